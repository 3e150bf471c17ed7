"""Winograd F(4x4,3x3) that is not fused: four kernels that pass 36 numbers a tile through global memory (Yan, Wang,
Chu 2020, section 8.1), a quarter of the multiplications of a direct convolution.

Takes and gives N, C, H, W, float32; filters 3 x 3, stride 1, any padding. The workspace holds 36 x C x T transformed
inputs, 36 x C x K filters and 36 x K x T products, C, K and the T tiles of 4 x 4 outputs filled up to 8, 64 and 128.

Less accurate than other methods, because its transforms multiply by 4, 5 and 8 and cancel again: against float64 the
relative L2 error is below BOUND.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from loader.reference.problem import Problem
from loader.reference.registry import algorithm
from loader.reference.runner import Runner, ceil_div

SOURCE = "nonfused.cu"
THREADS = 128
ROWS, COLUMNS, DEPTH = 64, 128, 8  # of a block of the product: filters, tiles, channels
POINTS = 36
WORKSPACE = 32 << 30  # bytes, the most
BOUND = 5e-6


def supports(p: Problem) -> str:
    """Why not, if not."""
    if (p.r, p.s) != (3, 3):
        return f"F(4x4,3x3) is for filters of 3 x 3, not {p.r} x {p.s}"
    if p.stride != 1:
        return f"Winograd's method has stride 1, not {p.stride}"
    c, k, t = padded(p)
    size = 4 * POINTS * (c * t + c * k + k * t)
    return "" if size <= WORKSPACE else f"its workspace is {size / 2**30:.0f} GiB; {WORKSPACE >> 30} GiB is the most"


def tiles(p: Problem) -> tuple[int, int]:
    """Tiles of 4 x 4 outputs of an image: in a row, and rows of them."""
    return ceil_div(p.q, 4), ceil_div(p.p, 4)


def padded(p: Problem) -> tuple[int, int, int]:
    """Channels, filters and tiles of all images, filled up to whole blocks."""
    across, down = tiles(p)
    t = p.n * across * down
    return ceil_div(p.c, DEPTH) * DEPTH, ceil_div(p.k, ROWS) * ROWS, ceil_div(t, COLUMNS) * COLUMNS


@algorithm("winograd_nonfused", layout="NCHW", supports=supports, tolerance=BOUND)
def winograd_nonfused(run: Runner, p: Problem, x: Any, w: Any, y: Any) -> None:
    """Transforms of input and filters, 36 products of matrices, transform of the output."""
    (across, down), (c, k, t) = tiles(p), padded(p)
    sizes = np.array([p.n, p.c, p.h, p.w, p.k, p.padding, p.p, p.q, across, down, c, k, t], np.int32).tobytes()
    u, v, m = (run.empty((POINTS, *shape)) for shape in ((c, t), (c, k), (k, t)))
    module = run.module(SOURCE)
    module.kernel("nonfused_input").launch(ceil_div(c * t, THREADS), THREADS, x, u, sizes)
    module.kernel("nonfused_filter").launch(ceil_div(c * k, THREADS), THREADS, w, v, sizes)
    module.kernel("nonfused_product").launch((t // COLUMNS, k // ROWS, POINTS), THREADS, v, u, m, sizes)
    module.kernel("nonfused_output").launch(ceil_div(p.k * p.n * across * down, THREADS), THREADS, m, y, sizes)
