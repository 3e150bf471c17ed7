"""Direct convolution and im2col on the CPU device, against float64."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from loader.reference import conv2d, cublas
from loader.reference.direct import SHARED, tile
from loader.reference.problem import Problem, arrange, relative_error, truth
from tests.loader.reference import arrays, check, layers

ALGORITHMS = ("direct", "tiled", "im2col_own")


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


def test_im2col_on_the_cpu_device_is_ours(monkeypatch):
    monkeypatch.setattr(cublas, "products", lambda *args: pytest.fail("cuBLAS on the CPU device"))
    check("im2col", Problem(2, 3, 9, 7, 5, 3, 2, 2, 1))


def test_more_images_than_the_workspace_takes(monkeypatch):
    """Two at a time, then the fifth alone."""
    problem = Problem(5, 2, 6, 6, 3, 3, 3, 1, 1)
    monkeypatch.setattr("loader.reference.direct.WORKSPACE", 2 * 18 * 36 + 17)
    check("im2col_own", problem)


class ColumnMajor:
    """cublasSgemmStridedBatched as its documentation defines it, on memory of the host."""

    status = 0

    def cublasSgemmStridedBatched(self, handle, *args):
        types = cublas.ARGUMENTS[1:]
        assert len(args) == len(types)
        transposed_a, transposed_b, m, n, k, alpha, a, lda, step_a, b, ldb, step_b, beta, c, ldc, step_c, count = (
            kind(value).value for kind, value in zip(types, args)
        )
        assert transposed_a == transposed_b == 0 and number(alpha) == 1 and number(beta) == 0
        for i in range(count):
            one = matrix(a + 4 * i * step_a, m, k, lda)
            matrix(c + 4 * i * step_c, m, n, ldc)[...] = one @ matrix(b + 4 * i * step_b, k, n, ldb)
        return self.status


def number(address):
    return ctypes.c_float.from_address(address).value


def matrix(address, rows, columns, leading):
    """Element (i, j) lies at i + j * leading."""
    flat = np.ctypeslib.as_array((ctypes.c_float * (leading * columns)).from_address(address))
    return flat.reshape(columns, leading)[:, :rows].T


def test_what_cublas_is_asked_for():
    rng = np.random.default_rng(4)
    m, n, depth, first, count = 3, 5, 7, 2, 4
    a = rng.integers(-9, 10, (m, depth)).astype(np.float32)
    b = rng.integers(-9, 10, (count, depth, n)).astype(np.float32)
    c = np.zeros((first + count + 1, m, n), np.float32)
    addresses = tuple(array.ctypes.data for array in (a, b, c))
    cublas.multiply(ColumnMajor(), None, addresses, m, n, depth, first, count)
    assert (c[first : first + count] == a @ b).all() and not c[:first].any() and not c[first + count :].any()


def test_cublas_refuses(monkeypatch):
    monkeypatch.setattr(ColumnMajor, "status", 13)
    with pytest.raises(RuntimeError, match="cublasSgemmStridedBatched of cuBLAS failed with status 13"):
        cublas.multiply(ColumnMajor(), None, (8, 8, 8), 1, 1, 1, 0, 0)
