"""3 x 3 convolution in SASS: ``Conv2d`` runs it (docs/conv2d.md), and the rest is what it is made of."""

import kernels_sass.conv.methods  # noqa: F401  they enter themselves
from kernels_sass.conv.code import CPU_ARCH, Kernels, arch_of, choose
from kernels_sass.conv.conv2d import Conv2d
from kernels_sass.conv.cost import sms, split
from kernels_sass.conv.launch import convolve, launches, transform
from kernels_sass.conv.method import METHODS
from kernels_sass.conv.shape import LAYOUTS, Shape, filter_floats, supports

__all__ = [
    "CPU_ARCH", "LAYOUTS", "METHODS", "Conv2d", "Kernels", "Shape", "arch_of", "choose", "convolve", "filter_floats",
    "launches", "sms", "split", "supports", "transform",
]  # fmt: skip
