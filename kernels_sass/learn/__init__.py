"""Small kernels that teach the language, in steps; README.md is the tour, ``measure`` times them on a GPU."""
