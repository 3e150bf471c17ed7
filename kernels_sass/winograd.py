"""``from kernels_sass.winograd import Conv2d``: the layer of kernels_sass/conv, under the name that programs use."""

from kernels_sass.conv import Conv2d

__all__ = ["Conv2d"]
