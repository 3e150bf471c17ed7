"""Winograd F(4x4,3x3) in four steps on the CPU device, against float64."""

from __future__ import annotations

import numpy as np
import pytest

from loader.reference import Runner, conv2d
from loader.reference.nonfused import BOUND, SOURCE, padded, supports
from loader.reference.problem import Problem, arrange, relative_error, truth
from tests.loader.reference import arrays, check, layers

NAME = "winograd_nonfused"


def draw(rng):
    """Images smaller and larger than a tile, one channel, one filter; padding 0, 1 and 2."""
    n, c, k = (int(v) for v in rng.integers(1, (5, 20, 12)))
    h, w, padding = int(rng.integers(1, 15)), int(rng.integers(1, 15)), int(rng.integers(0, 3))
    return Problem(n, c, h, w, k, 3, 3, 1, padding) if min(h, w) + 2 * padding >= 3 else None


def test_random_layers():
    for problem in layers(2004, draw):
        check(NAME, problem, BOUND)


CORNERS = [
    Problem(1, 1, 1, 1, 1, 3, 3, 1, 1),
    Problem(1, 1, 3, 3, 1, 3, 3, 1, 0),
    Problem(1, 8, 6, 6, 64, 3, 3, 1, 0),  # whole blocks, whole tiles
    Problem(2, 9, 5, 5, 65, 3, 3, 1, 1),  # one more than a block of channels, of filters; one row more than a tile
    Problem(129, 1, 2, 2, 1, 3, 3, 1, 1),  # one tile more than a block
    Problem(1, 17, 4, 31, 3, 3, 3, 1, 1),  # three blocks of channels
]


@pytest.mark.parametrize("problem", CORNERS, ids=str)
def test_corners(problem):
    check(NAME, problem, BOUND)


def test_deep_layers():
    """Long sums: the error of the transforms stays what it is."""
    check(NAME, Problem(1, 128, 4, 4, 3, 3, 3, 1, 1), BOUND)


@pytest.mark.parametrize("layout", ["CHWN", "NHWC"])
def test_layouts(layout):
    problem = Problem(2, 3, 9, 7, 5, 3, 3, 1, 1)
    x, w = arrays(problem)
    y = conv2d(arrange(x, "NCHW", layout), w, NAME, layout=layout, device="cpu")
    assert relative_error(arrange(y, layout, "NCHW"), truth(x, w, problem)) <= BOUND


def test_each_position_of_a_tile_and_a_filter():
    """Images and filters with a single 1: the outputs that they meet in are 1, and no other."""
    problem = Problem(49, 1, 7, 7, 9, 3, 3, 1, 1)
    x = np.eye(49, dtype=np.float32).reshape(problem.x_shape)
    w = np.eye(9, dtype=np.float32).reshape(problem.w_shape)
    assert np.abs(conv2d(x, w, NAME, device="cpu") - truth(x, w, problem)).max() <= 2e-6


def test_what_lies_beyond_the_layer_is_zero():
    """Channels, filters and tiles that fill a block up come from nowhere: not from neighbours in memory."""
    problem = Problem(3, 5, 6, 5, 7, 3, 3, 1, 1)
    c, k, t = padded(problem)
    assert (c, k, t) == (8, 64, 128)
    x, w = (np.ones(shape, np.float32) for shape in (problem.x_shape, problem.w_shape))
    sizes = np.array([3, 5, 6, 5, 7, 1, 6, 5, 2, 2, c, k, t], np.int32).tobytes()
    with Runner("cpu") as run:
        u, v = run.empty((36, c, t)), run.empty((36, c, k))
        run.module(SOURCE).kernel("nonfused_input").launch(c * t // 128, 128, x, u, sizes, written=True)
        run.module(SOURCE).kernel("nonfused_filter").launch(c * k // 128, 128, w, v, sizes, written=True)
    assert np.isfinite(u).all() and np.isfinite(v).all()
    assert not u[:, 5:].any() and not u[:, :, 12:].any() and u[:, :5, :12].any(axis=0).all()
    assert not v[:, 5:].any() and not v[:, :, 7:].any() and v[:, :5, :7].any(axis=0).all()


def test_no_races_and_no_bank_conflicts():
    problem = Problem(1, 16, 8, 8, 64, 3, 3, 1, 1)
    c, k, t = padded(problem)
    sizes = np.array([1, 16, 8, 8, 64, 1, 8, 8, 2, 2, c, k, t], np.int32).tobytes()
    rng = np.random.default_rng(0)
    v, u = (rng.standard_normal((36, c, size), np.float32) for size in (k, t))
    with Runner("cpu") as run:
        m = run.empty((36, k, t))
        kernel = run.module(SOURCE).kernel("nonfused_product")
        report = kernel.launch((1, 1, 36), 128, v, u, m, sizes, races=True, counters=True, written=True)
    assert not report.races
    assert report.counters.wavefronts.sum() == report.counters.ideal.sum()
    assert relative_error(m, np.einsum("pck,pct->pkt", v.astype(np.float64), u)) < 1e-6


@pytest.mark.parametrize(
    ("problem", "message"),
    [
        (Problem(1, 1, 9, 9, 1, 5, 3, 1, 1), "filters of 3 x 3, not 5 x 3"),
        (Problem(1, 1, 9, 9, 1, 3, 3, 2, 1), "stride 1, not 2"),
        (Problem(100_000_000, 1, 1, 1, 1, 3, 3, 1, 1), "workspace is 966 GiB; 32 GiB is the most"),
    ],
)
def test_what_it_does_not_do(problem, message):
    assert message in supports(problem)


def test_conv2d_refuses():
    with pytest.raises(ValueError, match="winograd_nonfused.*filters of 3 x 3, not 2 x 2"):
        conv2d(np.zeros((1, 1, 4, 4), np.float32), np.zeros((1, 1, 2, 2), np.float32), NAME, device="cpu")
