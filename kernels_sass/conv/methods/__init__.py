"""Methods of 3 x 3 convolution, a source each."""
