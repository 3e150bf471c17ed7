"""Winograd convolution F(2x2,3x3) in SASS: ``Conv2d`` runs it; docs/conv2d.md tells of it."""

from kernels_sass.conv.conv2d import Conv2d

__all__ = ["Conv2d"]
