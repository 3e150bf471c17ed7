"""kernels_sass.gemm on a card: precisions, operands that lie either way, batches, shared K, bias and activations, with
Buffers of the loader; PyTorch's tensors and graphs.

    python -m tests.gpu.test_gemm    # small products of all kinds, for compute-sanitizer
"""

from __future__ import annotations

import importlib
import re
from unittest.mock import patch

import numpy as np
import pytest

import loader
from kernels_sass import gemm_kernels, gemm_plan
from kernels_sass.bench.gemm import VARIANTS
from kernels_sass.gemm import gemm, prepare
from kernels_sass.learn import hgemm
from loader.cuda import Buffer
from tests.gpu.poison import poisoned
from tests.gpu.sanitizer import TOOLS, watch
from tests.kernels_sass.test_gemm import BOUNDS, EXACT, off

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("gpu")]
ARCHS = ("sm_90",)
RANDOM = np.random.default_rng(20)


def error(m, n, k, precision, ta=False, tb=False, bias=False, activation=None, batch=(0, 0), splits=None,
          prepared=False):  # fmt: skip
    """The relative L2 error of a product of random matrices."""
    dtype = np.float16 if precision == "fp16" else np.float32
    of_a, of_b = ((one,) if one else () for one in batch)
    a = RANDOM.standard_normal((*of_a, *((k, m) if ta else (m, k))), np.float32).astype(dtype)
    b = RANDOM.standard_normal((*of_b, *((n, k) if tb else (k, n))), np.float32).astype(dtype)
    added = RANDOM.standard_normal(n, np.float32) if bias else None
    exact = (a.swapaxes(-1, -2) if ta else a).astype("f8") @ (b.swapaxes(-1, -2) if tb else b).astype("f8")
    exact = EXACT[activation](exact + (0 if added is None else added))
    x, y, z = (None if one is None else Buffer.of(one, "cuda:0") for one in (a, b, added))
    if prepared:
        y, tb = prepare(y, transpose_b=tb, precision=precision), False
    c = gemm(x, y, transpose_a=ta, transpose_b=tb, precision=precision, bias=z, activation=activation, splits=splits)
    assert c.shape == exact.shape and c.dtype == dtype
    return off(c.numpy(), exact)


@pytest.mark.parametrize("cluster", [1, 2])
@pytest.mark.parametrize("precision", BOUNDS)
def test_random_products(precision, cluster, monkeypatch):
    monkeypatch.setattr(gemm_plan, "CLUSTER", cluster)
    monkeypatch.setattr(importlib.import_module("kernels_sass.gemm"), "PLANS", {})
    for _ in range(30):
        m, n, k = (int(one) for one in RANDOM.integers(1, (700, 700, 900)))
        ta, tb, bias, prepared = (bool(one) for one in RANDOM.integers(0, 2, 4))
        activation = (None, "relu")[RANDOM.integers(2)]
        batch = tuple(3 * int(one) for one in RANDOM.integers(0, 2, 2))
        options = [{}, {"splits": int(RANDOM.integers(1, 17))}, {"batch": batch}][RANDOM.integers(3)]
        found = error(m, n, k, precision, ta, tb, bias, activation, prepared=prepared, **options)
        assert found < BOUNDS[precision], (m, n, k, ta, tb, bias, activation, prepared, options)


@pytest.mark.parametrize("activation", ["gelu", "gelu_tanh"])
@pytest.mark.parametrize("precision", BOUNDS)
def test_gelu(precision, activation):
    assert error(130, 200, 96, precision, tb=True, bias=True, activation=activation) < BOUNDS[precision]
    assert error(130, 200, 300, precision, bias=True, activation=activation, splits=3) < BOUNDS[precision]


@pytest.mark.parametrize("sizes", [(4096, 4096, 512), (8192, 1024, 2048), (33, 4096, 8192), (1, 1000, 2048)])
@pytest.mark.parametrize("precision", BOUNDS)
def test_many_tiles(precision, sizes):
    """More than multiprocessors; few rows, of which several blocks share a K."""
    assert error(*sizes, precision, tb=True, bias=True) < BOUNDS[precision]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_tensors_and_graphs(dtype):
    """PyTorch's, recorded in a graph that is replayed with another A."""
    torch = pytest.importorskip("torch")
    kind = getattr(torch, dtype)
    a, b = (torch.randn(shape, device="cuda", dtype=kind) for shape in ((300, 256), (512, 256)))
    weight = prepare(b, transpose_b=True)
    gemm(a, weight)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        c = gemm(a, weight)
    a.normal_()
    graph.replay()
    exact = a.double() @ b.double().T
    bound = {"float16": 3e-4, "bfloat16": 3e-3, "float32": 1e-6}[dtype]
    assert float((c.double() - exact).norm() / exact.norm()) < bound


@pytest.mark.parametrize("splits", [1, 3])
def test_calls_again(splits):
    """Launches that are made ready serve other tensors, on two streams by turns; and a product that needs memory of its
    own."""
    torch = pytest.importorskip("torch")
    weights = [torch.randn(200, 300, device="cuda") for _ in range(2)]
    ready = [prepare(weight, transpose_b=True) for weight in weights]
    bias, streams = torch.randn(200, device="cuda"), [torch.cuda.current_stream(), torch.cuda.Stream()]
    torch.cuda.synchronize()
    kept = []
    for number in range(20):
        with torch.cuda.stream(streams[number // 2 % 2]):
            x = torch.randn(33, 300, device="cuda")
            kept.append((x, number % 2, gemm(x, ready[number % 2], bias=bias, activation="relu", splits=splits)))
    torch.cuda.synchronize()
    for x, which, y in kept:
        exact = torch.relu(x.double() @ weights[which].double().T + bias.double())
        assert float((y.double() - exact).norm() / exact.norm()) < 1e-6
    for _ in range(3):
        a, b = torch.randn(3000, 2000, device="cuda"), torch.randn(2000, 1000, device="cuda")
        exact = a.double() @ b.double()
        assert float((gemm(a, b).double() - exact).norm() / exact.norm()) < 1e-6


def test_numbers_of_any_size():
    """Rows of A and columns of B of very different size."""
    a, b = RANDOM.standard_normal((300, 500), np.float32), RANDOM.standard_normal((500, 200), np.float32)
    rows, columns = RANDOM.integers(-60, 60, (300, 1)), RANDOM.integers(-60, 60, (1, 200))
    x, y = (Buffer.of(np.ldexp(one, by).astype(np.float32), "cuda:0") for one, by in ((a, rows), (b, columns)))
    c = np.ldexp(gemm(x, y).numpy().astype("f8"), -rows - columns)
    assert off(c, a.astype("f8") @ b) < 1e-6


@pytest.mark.parametrize("splits", [1, 2])
def test_scales_whose_product_is_no_float(splits):
    """As on the CPU device: the largest numbers of row and column together are infinite, or 0, results are not."""
    for rows, columns, less in ((104, 30, 14), (-120, 120, 0), (120, -120, 0), (-60, 122, 0)):
        a, b = (np.zeros(shape, np.float32) for shape in ((130, 128), (128, 70)))
        a[:, :64] = np.ldexp(RANDOM.standard_normal((130, 64)), rows)
        b[:64] = np.ldexp(RANDOM.standard_normal((64, 70)), columns - less)
        b[64:] = np.ldexp(RANDOM.standard_normal((64, 70)), columns)
        found = gemm(Buffer.of(a, "cuda:0"), Buffer.of(b, "cuda:0"), splits=splits).numpy()
        wanted = gemm(a, b, splits=splits)
        assert np.isfinite(wanted).all() and (found == wanted).all()


# ---- compute-sanitizer -------------------------------------------------------------------------------------------

KINDS = [
    ((150, 72, 40), {"tb": True, "bias": True, "activation": "relu"}), ((40, 8, 9), {"batch": (3, 3), "ta": True}),
    ((20, 70, 9), {"ta": True, "activation": "gelu"}), ((9, 72, 33), {"batch": (0, 3), "prepared": True}),
    ((9, 65, 300), {"splits": 3, "bias": True, "activation": "gelu_tanh"}), ((3, 72, 2000), {"tb": True, "splits": 16}),
]  # fmt: skip


def small() -> None:
    """Products of each kind and precision, with clusters and without; the variants of `turingas bench gemm`."""
    ways = [(precision, cluster, *kind) for precision in BOUNDS for cluster in (1, 2) for kind in KINDS]
    for precision, cluster, sizes, options in ways:
        with patch.object(gemm_plan, "CLUSTER", cluster), patch.dict(PLANS, clear=True):
            found = error(*sizes, precision, **options)
        print(f"{precision} {sizes} {options} clusters of {cluster} {found:.1e}", flush=True)
        assert found < BOUNDS[precision]
    for name, tiling in VARIANTS.items():
        a, b, c, exact = hgemm.matrices(tiling, 264, 264, 200)
        given = [Buffer.of(one, "cuda:0") for one in (a, b, c)]
        with loader.load(gemm_kernels.built(tiling), "cuda:0") as module:
            hgemm.multiply(module, tiling, *given)
            module.synchronize()
        found = hgemm.error(given[2].numpy(), exact)
        print(f"{name} {found:.1e}", flush=True)
        assert found < hgemm.ROUNDED or not (tiling.loads and tiling.store)
    print(f"{len(ways) + len(VARIANTS)} products")


PLANS = importlib.import_module("kernels_sass.gemm").PLANS


@pytest.mark.parametrize("tool", TOOLS)
def test_sanitizer(tool):
    printed = watch(tool, "tests.gpu.test_gemm")
    assert re.search(r"^[1-9]\d* products$", printed, re.M)  # it was these that it watched


if __name__ == "__main__":
    with poisoned():
        small()
