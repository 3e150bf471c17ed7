"""Direct convolution, and im2col with a matrix product (the case study): right for every shape, stride and padding.

All take and give N, C, H, W. They are the simplest there are: what others are held against.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from loader.module import CPU
from loader.reference import cublas
from loader.reference.problem import Problem
from loader.reference.registry import algorithm
from loader.reference.runner import Runner, ceil_div

SOURCE = "direct.cu"
THREADS = 128
MOST_BLOCKS = 1 << 20

FILTERS = 4  # of a block of `tiled`
TILE = 16  # outputs, both ways, of a block of `tiled`, and the largest piece of a filter
SHARED = 48 << 10  # bytes that every GPU gives a block

GEMM_THREADS = 256
WORKSPACE = 1 << 26  # elements that im2col lays out at once, if one image takes no more


def sizes(p: Problem) -> bytes:
    """struct Sizes of direct.cu."""
    return np.array([p.n, p.c, p.h, p.w, p.k, p.r, p.s, p.stride, p.padding, p.p, p.q], np.int32).tobytes()


@algorithm("direct", layout="NCHW")
def direct(run: Runner, p: Problem, x: Any, w: Any, y: Any) -> None:
    """One thread an output; everything is read from global memory.

    Source: the case study, "Direct 2D convolution kernel". float32; x: N, C, H, W; w: K, C, R, S; y: N, K, P, Q.
    """
    blocks = min(MOST_BLOCKS, ceil_div(p.n * p.k * p.p * p.q, THREADS))
    run.module(SOURCE).kernel("direct").launch(blocks, THREADS, x, w, y, sizes(p))


@algorithm("tiled", layout="NCHW")
def tiled(run: Runner, p: Problem, x: Any, w: Any, y: Any) -> None:
    """Tiles of the image, halo included, in shared memory; a thread computes one pixel for four filters.

    Source: the case study, "Shared memory tiling for direct convolution"; there halo elements at the image's right and
    lower edge keep what the channel before left in them, here all are loaded the same way. A tile is 16 x 16 outputs,
    less where a long stride would make it too large for shared memory; large filters are taken in pieces of 16 x 16.
    float32; x: N, C, H, W; w: K, C, R, S; y: N, K, P, Q.
    """
    rows, columns, piece_r, piece_s, shared = tile(p)
    blocks = ceil_div(p.q, columns) * ceil_div(p.p, rows) * ceil_div(p.k, FILTERS) * p.n
    kernel = run.module(SOURCE).kernel("tiled")
    kernel.launch(blocks, (columns, rows), x, w, y, sizes(p), piece_r, piece_s, shared=shared)


def tile(p: Problem) -> tuple[int, int, int, int, int]:
    """Rows and columns of outputs of a block of ``tiled``, rows and columns of a filter's piece, shared bytes."""
    rows = columns = TILE
    piece_r, piece_s = min(p.r, TILE), min(p.s, TILE)
    while (shared := 4 * ((rows - 1) * p.stride + piece_r) * ((columns - 1) * p.stride + piece_s)) > SHARED:
        rows, columns = (rows, columns // 2) if columns > rows else (rows // 2, columns)
    return rows, columns, piece_r, piece_s, shared


@algorithm("im2col", layout="NCHW")
def im2col(run: Runner, p: Problem, x: Any, w: Any, y: Any) -> None:
    """Lay out the patch of each output as a column, then multiply by the filters: (K x CRS) (CRS x PQ) an image.

    Source: the case study, "im2col + cuBLAS GEMM implementation", for a batch. The product is cuBLAS's on a GPU where
    that is installed, else ours. Works on as many images at a time as a workspace of 256 MiB takes. float32; x: N, C,
    H, W; w: K, C, R, S; y: N, K, P, Q.
    """
    _im2col(run, p, x, w, y, own=run.device == CPU or cublas.library() is None)


@algorithm("im2col_own", layout="NCHW")
def im2col_own(run: Runner, p: Problem, x: Any, w: Any, y: Any) -> None:
    """``im2col`` with our own tiled product, whatever is installed."""
    _im2col(run, p, x, w, y, own=True)


def _im2col(run: Runner, p: Problem, x: Any, w: Any, y: Any, own: bool) -> None:
    depth, pixels = p.c * p.r * p.s, p.p * p.q
    most = min(p.n, max(1, WORKSPACE // (depth * pixels)))
    columns = run.empty((most, depth, pixels))
    side = 128 if min(p.k, pixels) > 64 else 64  # outputs, both ways, of a block of `gemm`
    module = run.module(SOURCE, [f"-DSIDE={side}"])
    for first in range(0, p.n, most):
        images = min(most, p.n - first)
        blocks = min(MOST_BLOCKS, ceil_div(images * depth * pixels, THREADS))
        module.kernel("im2col").launch(blocks, THREADS, x, columns, sizes(p), first, images)
        if own:
            grid = ceil_div(pixels, side) * ceil_div(p.k, side) * images
            module.kernel("gemm").launch(grid, GEMM_THREADS, w, columns, y, p.k, pixels, depth, first)
        else:
            run.products(w, columns, y, p.k, pixels, depth, first, images)
