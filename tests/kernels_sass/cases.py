"""A convolution of 3 x 3 in float64, and how far a layer is off it."""

from __future__ import annotations

import numpy as np

from kernels_sass.conv import Conv2d
from loader.reference.problem import Problem, arrange, relative_error, truth


class Case:
    """A convolution with bias, residual and ReLU, in a layout; ``y`` in float64 with what ``call`` asks for."""

    def __init__(self, n, c, h, w, k, pad=1, layout="NCHW", seed=0):
        random = np.random.default_rng(seed)
        self.problem, self.layout, self.pad = Problem(n, c, h, w, k, 3, 3, 1, pad), layout, pad
        made = [random.standard_normal(shape, np.float32)
                for shape in (self.problem.x_shape, self.problem.w_shape, (k,), self.problem.y_shape)]  # fmt: skip
        x, self.weight, self.bias, residual = made
        self.x, self.residual = arrange(x, "NCHW", layout), arrange(residual, "NCHW", layout)
        self.exact = truth(x, self.weight, self.problem)

    def y(self, bias=False, residual=False, relu=False):
        found = self.exact.copy()
        if bias:
            found += self.bias[:, None, None]
        if residual:
            found += arrange(self.residual, self.layout, "NCHW")
        return arrange(np.maximum(found, 0) if relu else found, "NCHW", self.layout)

    def conv(self, bias=False, relu=False, **more):
        return Conv2d(self.weight, self.bias if bias else None, self.pad, "relu" if relu else None, self.layout, **more)


def error(found, exact):
    return relative_error(np.asarray(found), exact)


def ones(*shape, dtype=np.float32):
    return np.ones(shape, dtype)
