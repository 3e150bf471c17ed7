"""``turingas report``: kernels as one page that loads nothing, to look at in a browser."""
