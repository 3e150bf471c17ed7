"""`turingas bench`: what the kernels do on the card at hand, beside what else there is for it."""
