"""Direct convolution, and im2col with a matrix product (paper 002): right for every shape, stride and padding.

All take and give N, C, H, W. They are the simplest there are: what others are held against.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from loader.reference import algorithm
from loader.reference.problem import Problem
from loader.reference.runner import Runner, ceil_div

SOURCE = "direct.cu"
THREADS = 128
MOST_BLOCKS = 1 << 20


def sizes(p: Problem) -> bytes:
    """struct Sizes of direct.cu."""
    return np.array([p.n, p.c, p.h, p.w, p.k, p.r, p.s, p.stride, p.padding, p.p, p.q], np.int32).tobytes()


@algorithm("direct", layout="NCHW")
def direct(run: Runner, p: Problem, x: Any, w: Any, y: Any) -> None:
    """One thread an output; everything is read from global memory (paper 002, "Direct 2D convolution kernel")."""
    blocks = min(MOST_BLOCKS, ceil_div(p.n * p.k * p.p * p.q, THREADS))
    run.module(SOURCE).kernel("direct").launch(blocks, THREADS, x, w, y, sizes(p))
