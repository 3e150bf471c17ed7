"""kernels_sass.gemm on the CPU device: precisions, sizes, transposed operands, bias and ReLU, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest

from kernels_sass.gemm import gemm, tiles
from turingas.errors import LaunchError

RANDOM = np.random.default_rng(9)
BOUNDS = {"fp16": 3e-4, "tf32": 1e-3, "fp32": 1e-6}


def check(m, n, k, precision, ta=False, tb=False, bias=False, relu=False, out=False):
    dtype = np.float16 if precision == "fp16" else np.float32
    a = RANDOM.standard_normal((k, m) if ta else (m, k), np.float32).astype(dtype)
    b = RANDOM.standard_normal((n, k) if tb else (k, n), np.float32).astype(dtype)
    added = RANDOM.standard_normal(n, np.float32) if bias else None
    given = np.full((m, n), np.nan, dtype) if out else None
    c = gemm(a, b, given, transpose_a=ta, transpose_b=tb, precision=precision, bias=added, relu=relu)
    exact = (a.T if ta else a).astype("f8") @ (b.T if tb else b).astype("f8")
    exact = exact + (0 if added is None else added)
    exact = np.maximum(exact, 0) if relu else exact
    assert c.dtype == dtype and c.shape == (m, n) and (not out or c is given)
    assert np.linalg.norm(c - exact) / np.linalg.norm(exact) < BOUNDS[precision]


@pytest.mark.parametrize(
    ("sizes", "precision", "options"),
    [
        ((5, 3, 7), "fp16", {}),
        ((136, 72, 40), "fp16", {"ta": True, "bias": True, "relu": True}),
        ((9, 70, 65), "fp16", {"tb": True, "out": True}),
        ((17, 33, 50), "tf32", {"ta": True, "bias": True}),
        ((30, 65, 300), "fp32", {"tb": True, "relu": True}),
        ((1, 1, 1), "fp32", {}),
    ],
)
def test_products(sizes, precision, options):
    check(*sizes, precision, **options)


@pytest.mark.slow
@pytest.mark.parametrize("precision", BOUNDS)
def test_random_products(precision):
    for _ in range(12):
        m, n, k = (int(x) for x in RANDOM.integers(1, (300, 300, 700)))
        ta, tb, bias, relu, out = (bool(x) for x in RANDOM.integers(0, 2, 5))
        check(m, n, k, precision, ta, tb, bias, relu, out)


@pytest.mark.slow
def test_long_sums():
    """fp32 stays below 1e-6 where K is long."""
    for k in (2048, 8192):
        check(64, 64, k, "fp32")


def test_tiles():
    """Wide where there are many, narrow where multiprocessors would have nothing to do."""
    assert tiles(8192, 8192, 132).tile_n == 256
    assert tiles(1024, 1024, 132).tile_n == 64
    assert tiles(8192, 8192, 132, "fp32").tile_n == 192


F, H = np.zeros((8, 8), np.float32), np.zeros((8, 8), np.float16)


@pytest.mark.parametrize(
    ("args", "options", "message"),
    [
        ((F, H), {}, "A is float32 on cpu, B float16"),
        ((F, F), {"precision": "fp16"}, "gemm of float32 as fp16"),
        ((F.astype("f8"), F), {}, "gemm of float64 as nothing"),
        ((F, F[:4]), {}, "A is 8 x 8, and B 4 x 8"),
        ((F, F[0]), {}, "of shapes"),
        ((F, F, H), {}, "out is float16"),
        ((F, F), {"bias": F[0, :4]}, "bias is float32 of"),
        (([1.0], F), {}, "gemm of a list"),
    ],
)
def test_refused(args, options, message):
    with pytest.raises(LaunchError, match=message):
        gemm(*args, **options)
