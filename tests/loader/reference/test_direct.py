"""Direct convolution and im2col on the CPU device, against float64."""

from __future__ import annotations

import numpy as np
import pytest

from loader.reference import conv2d
from loader.reference.direct import SHARED, tile
from loader.reference.problem import Problem, arrange, relative_error, truth
from tests.loader.reference import arrays, check, layers

ALGORITHMS = ("direct", "tiled", "im2col")


def draw(rng):
    """Any stride, padding and filter; images smaller and larger than a tile, one channel, one filter."""
    n, c, k = (int(v) for v in rng.integers(1, (4, 6, 10)))
    r, s = (int(v) for v in rng.integers(1, 8, 2))
    stride, padding = int(rng.integers(1, 5)), int(rng.integers(0, 4))
    h, w = int(rng.integers(1, 22)), int(rng.integers(1, 22))
    if r > h + 2 * padding or s > w + 2 * padding:
        return None
    return Problem(n, c, h, w, k, r, s, stride, padding)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_random_layers(algorithm):
    for problem in layers(2002, draw):
        check(algorithm, problem)


CORNERS = [
    Problem(1, 1, 1, 1, 1, 1, 1),
    Problem(1, 1, 1, 1, 1, 3, 3, 1, 1),  # eight of nine taps outside
    Problem(2, 2, 1, 40, 5, 1, 9, 1, 4),  # rows of several tiles, wide filters
    Problem(1, 2, 17, 33, 3, 3, 3, 1, 1),  # one output more than a tile
    Problem(1, 1, 40, 25, 2, 33, 18, 1, 0),  # a filter of several pieces
    Problem(1, 1, 30, 30, 1, 2, 2, 13, 0),  # a stride longer than the filter
    Problem(1, 2, 3, 3, 2, 1, 1, 1, 5),  # outputs that see only padding
    Problem(1, 3, 12, 12, 70, 3, 3, 1, 1),  # two tiles of a product, both ways
]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("problem", CORNERS, ids=str)
def test_corners(algorithm, problem):
    check(algorithm, problem)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_no_value_of_one_channel_reaches_the_next(algorithm):
    """Whole numbers, summed without rounding: each output is exact, at the image's edges as well."""
    rng = np.random.default_rng(5)
    x = rng.integers(-9, 10, (2, 3, 19, 18)).astype(np.float32)
    w = rng.integers(-9, 10, (5, 3, 3, 3)).astype(np.float32)
    y = conv2d(x, w, algorithm, padding=1, device="cpu")
    assert (y == truth(x, w, Problem(2, 3, 19, 18, 5, 3, 3, 1, 1))).all()


@pytest.mark.parametrize("layout", ["CHWN", "NHWC"])
def test_layouts(layout):
    problem = Problem(2, 3, 9, 7, 5, 3, 2, 2, 1)
    x, w = arrays(problem)
    y = conv2d(arrange(x, "NCHW", layout), w, layout=layout, stride=2, padding=1, device="cpu")
    assert relative_error(arrange(y, layout, "NCHW"), truth(x, w, problem)) <= 1e-6


@pytest.mark.parametrize("stride", [1, 2, 7, 8, 50, 100, 10_000, 1_000_000])
@pytest.mark.parametrize("size", [1, 3, 16, 500])
def test_a_tile_fits_shared_memory(stride, size):
    rows, columns, piece_r, piece_s, shared = tile(Problem(1, 1, 2000, 2000, 1, size, size, stride))
    assert 1 <= rows <= 16 and 1 <= columns <= 16 and piece_r == piece_s == min(size, 16)
    assert shared == 4 * ((rows - 1) * stride + piece_r) * ((columns - 1) * stride + piece_s) <= SHARED
