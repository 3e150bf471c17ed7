"""kernels_sass.gemm on the CPU device: precisions, sizes, transposed operands, batches, shared K, bias and activations,
and what it refuses. Every launch is strict and looks for races."""

from __future__ import annotations

import gc
import importlib
import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

import turingas
from kernels_sass import gemm_kernels, gemm_plan
from kernels_sass.gemm import gemm, prepare, shared, tiles
from kernels_sass.gemm_kernels import Tiling
from loader.cpu import CpuKernel
from loader.cuda import Buffer, Graph
from tests.loader.driver import Driver
from turingas.errors import AsmError, LaunchError

RANDOM = np.random.default_rng(9)
BOUNDS = {"fp16": 3e-4, "tf32": 5e-4, "fp32": 1e-6}
EXACT = {
    None: lambda y: y, "relu": lambda y: np.maximum(y, 0),
    "gelu": lambda y: y * np.vectorize(lambda one: 0.5 * math.erfc(-one / 2**0.5))(y),
    "gelu_tanh": lambda y: 0.5 * y * (1 + np.tanh((2 / math.pi) ** 0.5 * (y + 0.044715 * y**3))),
}  # fmt: skip


@pytest.fixture(autouse=True)
def launches(monkeypatch):
    """The kernels that were launched, none of which had a hazard or a race."""
    found, launch = [], CpuKernel.launch

    def strict(self, *args, **options):
        report = launch(self, *args, **options, strict=True, races=True)
        assert not report.hazards and not report.races, [str(one) for one in report.hazards + report.races][:3]
        found.append(self.name)

    monkeypatch.setattr(CpuKernel, "launch", strict)
    return found


def random(*shape, dtype=np.float32):
    return RANDOM.standard_normal(shape, np.float32).astype(dtype)


def off(found, exact):
    return np.linalg.norm(found - exact) / np.linalg.norm(exact)


def check(m, n, k, precision, ta=False, tb=False, bias=False, activation=None, out=False, batch=(0, 0), splits=None,
          prepared=False):  # fmt: skip
    dtype = np.float16 if precision == "fp16" else np.float32
    of_a, of_b = ((one,) if one else () for one in batch)
    a = random(*of_a, *((k, m) if ta else (m, k)), dtype=dtype)
    b = random(*of_b, *((n, k) if tb else (k, n)), dtype=dtype)
    added = random(n) if bias else None
    exact = (a.swapaxes(-1, -2) if ta else a).astype("f8") @ (b.swapaxes(-1, -2) if tb else b).astype("f8")
    exact = EXACT[activation](exact + (0 if added is None else added))
    given = np.full(exact.shape, np.nan, dtype) if out else None
    if prepared:
        b, tb = prepare(b, transpose_b=tb, precision=precision), False
    c = gemm(a, b, given, transpose_a=ta, transpose_b=tb, precision=precision, bias=added, activation=activation,
             splits=splits)  # fmt: skip
    assert c.dtype == dtype and c.shape == exact.shape and (not out or c is given)
    assert off(c, exact) < BOUNDS[precision]
    return c


@pytest.mark.parametrize(
    ("sizes", "precision", "options"),
    [
        ((5, 3, 7), "fp16", {}),
        ((136, 72, 40), "fp16", {"ta": True, "bias": True, "activation": "relu"}),
        ((9, 70, 65), "fp16", {"tb": True, "out": True, "prepared": True}),
        ((9, 72, 64), "fp16", {"out": True, "activation": "gelu"}),
        ((17, 33, 50), "tf32", {"ta": True, "bias": True}),
        ((30, 65, 300), "fp32", {"tb": True, "activation": "relu"}),
        ((1, 1, 1), "fp32", {}),
        ((20, 70, 9), "fp32", {"ta": True, "bias": True, "activation": "gelu", "prepared": True}),
        ((20, 12, 8), "fp32", {"tb": True, "activation": "gelu_tanh", "out": True}),
    ],
)
def test_products(sizes, precision, options):
    check(*sizes, precision, **options)


@pytest.mark.parametrize(
    ("batch", "sizes", "precision", "options"),
    [
        ((3, 3), (9, 65, 40), "fp32", {"bias": True, "activation": "relu"}),
        ((2, 2), (130, 72, 16), "fp16", {"ta": True, "tb": True, "out": True, "activation": "gelu_tanh"}),
        ((0, 3), (9, 7, 33), "fp16", {"prepared": True}),
        ((3, 0), (40, 8, 9), "tf32", {"ta": True}),
        ((3, 1), (5, 8, 9), "fp32", {"tb": True}),
        ((3, 0), (5, 12, 9), "fp32", {"out": True, "splits": 1}),
    ],
)
def test_batches(batch, sizes, precision, options, launches):
    """Of both, or of one; the last of them is one product with the rows of all."""
    check(*sizes, precision, batch=(batch[0], 3 if batch[1] == 1 else batch[1]), **options)
    assert launches.count("hgemm") == 1


@pytest.mark.parametrize(
    ("splits", "sizes", "precision", "options"),
    [
        (3, (9, 70, 200), "fp32", {"bias": True, "activation": "relu"}),
        (16, (5, 65, 300), "fp16", {"tb": True, "activation": "gelu"}),
        (2, (150, 72, 150), "fp16", {"out": True, "bias": True}),
        (16, (3, 5, 8), "tf32", {}),
    ],
)
def test_shared_k(splits, sizes, precision, options, launches):
    """More blocks than there are steps, too; a result is the same to the last bit each time."""
    check(*sizes, precision, splits=splits, **options)
    assert "add_parts" in launches
    a, b = random(5, 100), random(100, 9)
    one, two = (gemm(a, b, splits=4) for _ in range(2))
    assert (one.view("u4") == two.view("u4")).all() and off(one, gemm(a, b)) < 1e-6
    assert (gemm(a, b, splits=np.int64(4)) == one).all()


@pytest.mark.parametrize(
    ("sizes", "precision", "options"),
    [
        ((150, 72, 40), "fp16", {"tb": True, "bias": True, "activation": "relu"}),
        ((260, 256, 72), "fp16", {"ta": True}),
        ((150, 65, 33), "fp32", {"tb": True}),
    ],
)
def test_clusters(sizes, precision, options, monkeypatch):
    """Of two blocks, where there are rows for both, and neither batches nor shared K."""
    monkeypatch.setattr(gemm_plan, "CLUSTER", 2)
    monkeypatch.setattr(importlib.import_module("kernels_sass.gemm"), "PLANS", {})
    made, of = [], gemm_kernels.built

    def built(tiling):
        made.append(tiling.cluster)
        return of(tiling)

    monkeypatch.setattr(gemm_kernels, "built", built)
    check(*sizes, precision, **options)
    check(9, 20, 40, precision)
    check(150, 20, 40, precision, batch=(2, 2))
    check(150, 20, 300, precision, splits=2)
    assert made == [2, 1, 1, 1]


def test_what_is_prepared(launches):
    """Is made once."""
    b = prepare(random(9, 16), transpose_b=True)
    assert launches == ["halves"]
    for _ in range(2):
        gemm(random(4, 16), b)
    assert launches == ["halves"] + ["halves", "hgemm", "pack"] * 2
    with pytest.raises(LaunchError, match="B is prepared for float32 on cpu, as fp32"):
        gemm(random(4, 16), b, precision="tf32")


def test_no_host_copies(launches):
    """Float32 that lies the other way round, and rows of any length, are brought into order by a kernel; rows of any
    length that lie as they should are read as they are."""
    a, b = random(30, 7), random(30, 5)
    assert off(gemm(a, b, transpose_a=True), a.T.astype("f8") @ b) < 1e-6
    assert launches == ["pack", "pack", "halves", "hgemm", "pack"]
    launches.clear()
    gemm(random(3, 7), random(8, 7), transpose_b=True)
    assert launches == ["halves", "hgemm"]
    a, b = random(14, 30)[::2], random(5, 30).T[:, ::-1]  # which no kernel reads: numpy puts these into order
    assert off(gemm(a, b), a.astype("f8") @ b) < 1e-6


@pytest.mark.parametrize("k", [1, 40, 300, 1024, 1999, 9000])
def test_halves(k):
    """Of each row: 22 bits of a number that is at least 2^-17 of the largest, and zeros behind the last; rows that are
    read at once, and in pieces, by a warp and by a block."""
    x = np.ldexp(random(9, k), RANDOM.integers(-60, 60, (9, 1))).astype(np.float32)
    x[1] *= np.ldexp(1, RANDOM.integers(-17, 1, k)).astype(np.float32)
    x[2] = 0
    x[3] = np.ldexp(random(k), -140)  # no normal numbers
    made = prepare(x, transpose_b=True)
    parts = made.array.reshape(9, -1, 2, 32).astype("f8")
    assert made.array.dtype == np.float16 and parts.shape[1] == -(-k // 32)
    found, largest = parts.sum(axis=2).reshape(9, -1), np.abs(x).max(axis=1).astype("f8")
    assert not found[:, k:].any()
    exponents = np.maximum(np.frexp(largest)[1] - 1, -113)
    assert (made.scales[:9] == np.where(largest, np.ldexp(1.0, exponents), 2.0**-113)).all()
    scaled = np.ldexp(x.astype("f8"), 14 - exponents[:, None])
    assert (np.abs(found[:, :k] - scaled) <= np.maximum(2.0**-22 * np.abs(scaled), 2.0**-25)).all()
    assert (found[3, :k] == scaled[3]).all()


def test_numbers_of_any_size():
    """Rows of A and columns of B of very different size keep their precision side by side; of a row, what is small
    beside its largest number has an error of 2^-40 of that. What no number of float32 can be overflows, or is 0."""
    m, n, k = 40, 24, 300
    a, b = random(m, k), random(k, n)
    rows, columns = RANDOM.integers(-100, 100, (m, 1)), RANDOM.integers(-25, 25, (1, n))
    c = gemm(np.ldexp(a, rows).astype("f4"), np.ldexp(b, columns).astype("f4"))
    exact = a.astype("f8") @ b
    assert off(np.ldexp(c.astype("f8"), -rows - columns), exact) < 1e-6
    small = np.ldexp(a, RANDOM.integers(-40, 1, (m, k))).astype("f4")
    found, exact = gemm(small, b), small.astype("f8") @ b
    assert off(found, exact) < 1e-6
    one, two = np.full((8, 8), 2.0**100, np.float32), np.full((8, 8), 2.0**-126, np.float32)
    assert (gemm(one, two) == 2.0**-23).all() and (gemm(two, two) == 0).all() and np.isinf(gemm(one, one)).all()


@pytest.mark.parametrize("splits", [None, 2])
def test_scales_whose_product_is_no_float(splits):
    """The largest number of a row of A, times that of a column of B, is infinite or 0; the result is not."""
    a, b = np.zeros((3, 80), np.float32), np.zeros((80, 2), np.float32)
    a[0, 0], a[1, 70], b[:, 0], b[1, 1] = 2.0**127, -(2.0**100), 2, 2.0**127
    b[0, 0] = 0.5
    c = gemm(a, b, splits=splits)
    assert c.tolist() == [[2.0**126, 0], [-(2.0**101), 0], [0, 0]]
    ones, small, large = np.ones((8, 8), np.float32), np.float32(2**-140), np.float32(2**127)
    for one, two in ((ones * small, ones * large), (ones * large, ones * small)):
        assert (gemm(one, two, splits=splits) == 2.0**-10).all()


def test_scales_of_any_size():
    """Errors stay small beside the largest numbers of row and column, wherever these are, and where all of a row are no
    normal numbers."""
    for _ in range(20):
        m, n, k = (int(x) for x in RANDOM.integers(1, (20, 20, 80)))
        rows, columns = RANDOM.integers(-146, 125, (m, 1)), RANDOM.integers(-146, 125, (1, n))
        a, b = np.ldexp(random(m, k), rows).astype("f4"), np.ldexp(random(k, n), columns).astype("f4")
        with np.errstate(over="ignore"):
            c, exact = gemm(a, b).astype("f8"), a.astype("f8") @ b
        bound = 1e-6 * k * np.abs(a).max(1).astype("f8")[:, None] * np.abs(b).max(0) + 2.0**-121
        fits = np.abs(exact) + 1e6 * bound < 2.0**128
        assert (np.abs(c - exact)[fits] <= bound[fits]).all()


@pytest.mark.parametrize("which", ["A", "B", "bias"])
@pytest.mark.parametrize("precision", ["fp16", "fp32"])
def test_out_that_is_also_read(which, precision):
    """Would be wrong with more than a tile."""
    memory = np.zeros((40, 32), np.float16 if precision == "fp16" else np.float32)
    given = {"A": memory[8:40], "B": memory[4:36], "bias": memory.reshape(-1).view("f4")[32:64]}
    a, b = (given[name] if name == which else np.ones((32, 32), memory.dtype) for name in "AB")
    bias = given["bias"] if which == "bias" else None
    with pytest.raises(LaunchError, match="out overlaps A, B or bias"):
        gemm(a, b, memory[:32], bias=bias, precision=precision)
    beside = np.ones((64, 32), memory.dtype)
    assert (gemm(beside[:32], beside[:32], beside[32:], precision=precision) == 32).all()


def test_out_that_is_read_only():
    """Each time, whatever came before."""
    out = np.zeros((8, 16), np.float32)
    for one in (out.reshape(16, 8)[:8], out[:, ::2]):
        gemm(F, F, one)
        one.flags.writeable = False
        with pytest.raises(LaunchError, match="out is read-only"):
            gemm(F, F, one)


def test_out_with_rows_apart():
    """Whatever came before, with another out or none."""
    a, b, memory = random(8, 8), random(8, 8), np.zeros((8, 20), np.float32)
    for out in (None, memory[:, :8], memory[:, 1:17:2], np.zeros((8, 8), np.float32), memory[:, :8]):
        memory[...] = 7
        c = gemm(a, b, out)
        assert off(c, a.astype("f8") @ b) < 1e-6 and (out is None or c is out) and (memory[:, 17:] == 7).all()
    with pytest.raises(LaunchError, match=r"out is float32 of \(8, 4\)"):
        gemm(a, b, memory[:, :8:2])


# ---- on a GPU that is none: what the driver is told ---------------------------------------------------------------


@pytest.fixture
def gpu(install, monkeypatch):
    """What is launched there runs on the CPU device."""
    monkeypatch.setattr(importlib.import_module("kernels_sass.gemm"), "PLANS", {})
    return install(Driver(gpus=1, major=9, minor=0))


GIVEN = [
    ((9, 70, 65), "fp16", {"tb": True}), ((16, 64, 64), "fp16", {"tb": True, "bias": True}),
    ((9, 40, 24), "fp32", {"ta": True, "bias": True}), ((9, 40, 24), "fp32", {"bias": True, "prepared": True}),
    ((5, 7, 300), "fp32", {"splits": 3, "bias": True, "prepared": True}), ((3, 8, 9), "tf32", {"batch": (2, 2)}),
]  # fmt: skip


@pytest.mark.parametrize(("sizes", "precision", "more"), GIVEN)
def test_addresses_that_change(sizes, precision, more, gpu):
    """The second call with the same shapes launches what the first one has made ready, for other arrays; on another
    stream, too. With a prepared B short kernels are a graph from the third call on a stream on. Results are those of
    the CPU device."""
    (m, n, k), ta, tb, batch = sizes, more.get("ta"), more.get("tb"), more.get("batch", (0, 0))
    dtype = np.float16 if precision == "fp16" else np.float32
    lead_a, lead_b = ((one,) if one else () for one in batch)
    options = {"precision": precision, "splits": more.get("splits")}
    kept, made = [], importlib.import_module("kernels_sass.gemm").PLANS
    for number in range(5):
        a = random(*lead_a, *((k, m) if ta else (m, k)), dtype=dtype)
        if not number or not more.get("prepared"):
            b = random(*lead_b, *((n, k) if tb else (k, n)), dtype=dtype)
            y = Buffer.of(b, "cuda:0")
            y = prepare(y, precision=precision) if more.get("prepared") else y
            before = len(gpu.launches)
        bias = random(n) if more.get("bias") else None
        x, z = (None if one is None else Buffer.of(one, "cuda:0") for one in (a, bias))
        wanted = gemm(a, b, transpose_a=bool(ta), transpose_b=bool(tb), bias=bias, **{**options, "splits": 1})
        c = gemm(x, y, transpose_a=bool(ta), transpose_b=bool(tb), bias=z, stream=number % 2, **options)
        assert off(c.numpy(), wanted.astype("f8")) < BOUNDS[precision]
        kept += [x, y, z, c]
    assert len([one for one in made if one[0][2] == 0]) == 1  # a plan for all of these
    names = [name for name, *_ in gpu.launches][before if more.get("prepared") else 0 :]
    assert names == 5 * names[: len(names) // 5] and names.count("hgemm") == 5
    assert gpu.calls["cuGraphLaunch"] == bool(more.get("prepared"))


def test_what_a_gpu_refuses(gpu):
    """Arrays that are elsewhere, or gone."""
    a, b = (Buffer.of(random(8, 8), "cuda:0") for _ in range(2))
    with pytest.raises(LaunchError, match="A is float32 on cuda:0, B float32 on cpu"):
        gemm(a, random(8, 8))
    with pytest.raises(LaunchError, match="A is on cuda:0, bias on cpu"):
        gemm(a, b, bias=random(8))
    with pytest.raises(LaunchError, match="B is prepared for float32 on cpu, as fp32"):
        gemm(a, prepare(random(8, 8)))
    b.free()
    with pytest.raises(LaunchError, match="given back"):
        gemm(a, b)
    a, b = (Buffer.of(random(8, 8, dtype=np.float16), "cuda:0") for _ in range(2))
    kept = prepare(b)
    gemm(a, kept)
    b.free()  # fp16 is read where it lies
    with pytest.raises(LaunchError, match="given back"):
        gemm(a, kept)


def test_many_prepared(gpu, monkeypatch):
    """Each has launches of its own, as long as there are not too many; the others share some."""
    monkeypatch.setattr(gemm_plan, "MAPS", 3)
    a = random(9, 40)
    x, those = Buffer.of(a, "cuda:0"), [random(40, 24) for _ in range(4)]
    ready = [prepare(Buffer.of(b, "cuda:0")) for b in those]
    for _ in range(4):
        for b, one in zip(those, ready):
            assert off(gemm(x, one).numpy(), a.astype("f8") @ b) < 1e-6
    [plan] = importlib.import_module("kernels_sass.gemm").PLANS.values()
    assert len(plan._queues) == 4 and gpu.calls["cuGraphLaunch"] == 3 * 2


def test_much_memory(gpu, monkeypatch):
    """What has no room in the memory that layers share is allocated, and given back."""
    monkeypatch.setattr(gemm_plan, "PIECE", 0)
    a, b = random(9, 40), random(40, 24)
    x, y = Buffer.of(a, "cuda:0"), Buffer.of(b, "cuda:0")
    gemm(x, y)
    before = gpu.calls["cuMemAlloc"], gpu.calls["cuMemFree"]
    c = gemm(x, y)
    assert (gpu.calls["cuMemAlloc"] - before[0], gpu.calls["cuMemFree"] - before[1]) == (2, 1)
    assert off(c.numpy(), a.astype("f8") @ b) < 1e-6


def test_a_graph_whose_plan_is_forgotten(gpu, monkeypatch):
    """Memory that it was recorded with stays."""
    found = importlib.import_module("kernels_sass.gemm")
    monkeypatch.setattr(found, "MOST_PLANS", 1)
    a, b = random(9, 40), random(40, 24)
    x, y, z = Buffer.of(a, "cuda:0"), Buffer.of(b, "cuda:0"), Buffer((9, 24), np.float32)
    gemm(x, y, z)
    with Graph(lambda stream: gemm(x, y, z, stream=stream)) as graph:
        before = gpu.calls["cuMemFree"]
        gemm(x, Buffer.of(b[:, :8], "cuda:0"))
        gc.collect()
        assert len(found.PLANS) == 1 and gpu.calls["cuMemFree"] - before <= 2  # B and C of the last call
        z.fill(0)
        graph.launch()
        assert off(z.numpy(), a.astype("f8") @ b) < 1e-6


def test_gelu():
    """Of many numbers, small and large: never off by more than a few last bits of x."""
    x = np.concatenate([np.linspace(-7, 7, 4000), np.geomspace(1e-20, 1e4, 92), [0, 0, -30, -1e4]]).astype(np.float32)
    x = x.reshape(-1, 8)
    for name in ("gelu", "gelu_tanh"):
        got = gemm(x, np.eye(8, dtype=np.float32), activation=name).ravel()
        wanted = EXACT[name](x.ravel().astype("f8"))
        assert np.abs(got - wanted).max() < 3e-7 * np.abs(wanted).max()
        assert (np.abs(got - wanted) <= 5e-7 * np.abs(x.ravel())).all()


def test_infinities():
    """As documented: in fp16 as numpy has them; in fp32 NaN, in that row alone."""
    a, b = np.zeros((8, 8), np.float32), np.full((8, 8), 2, np.float32)
    a[0, 0], a[1, 0], a[2, 0] = np.inf, -np.inf, np.nan
    a[3, 1] = 1e3
    one, two = gemm(a.astype("f2"), b.astype("f2"), transpose_b=True), gemm(a, b, transpose_b=True)
    assert np.isposinf(one[0]).all() and np.isneginf(one[1]).all() and np.isnan(one[2]).all()
    assert np.isnan(two[:3]).all() and np.isfinite(two[3:]).all()
    gelu = gemm(a.astype("f2"), b.astype("f2"), transpose_b=True, activation="gelu")
    assert np.isposinf(gelu[0]).all() and np.isnan(gelu[1:3]).all()


def test_no_finding():
    """Of the linter, but notes: on occupancy, on values of the round before, which a predicate says are there, and on
    waits of one row of columns for the bias of another."""
    base = tiles(64, 64, 4, "fp32")
    half = Tiling(64, 8)
    built, adding = gemm_kernels.built, gemm_kernels.adding
    made = [built(replace(base, batched=1, gelu=1, bias=1)), built(replace(base, shared_k=1)),
            built(replace(half, batched=1, ta=1, tb=1, gelu=2)), adding(replace(base, bias=1, gelu=1)),
            built(replace(half, late=0, shared_k=1)), adding(replace(half, relu=1)),
            adding(replace(half, type="BF16", bias=1, gelu=2)),
            *(gemm_kernels.halving(*of) for of in itertools.product((32, 256), (1, 2, 4, 8), (0, 1)))]  # fmt: skip
    notes = "occupancy", "uninitialised", "nothing-pending"
    found = [one for cubin in made for one in turingas.lint(cubin) if one.kind not in notes]
    assert not found, [str(one) for one in found]


@pytest.mark.parametrize("more", [{"SHARED_K": 1}, {"BATCHED": 1, "CLUSTER": 2}, {"GELU": 1, "RELU": 1}, {"GELU": 3}])
def test_values_that_do_not_exist(more):
    with pytest.raises(AsmError, match="there are"):
        turingas.assemble(gemm_kernels.SOURCE.read_text(), "sm_90a", more, [gemm_kernels.SOURCE.parent])


@pytest.mark.slow
@pytest.mark.parametrize("precision", BOUNDS)
def test_random_products(precision):
    for _ in range(12):
        m, n, k = (int(x) for x in RANDOM.integers(1, (300, 300, 700)))
        ta, tb, bias, out, prepared = (bool(x) for x in RANDOM.integers(0, 2, 5))
        more = [{"splits": int(RANDOM.integers(1, 17))}, {"batch": tuple(2 * int(x) for x in RANDOM.integers(0, 2, 2))}]
        activation = list(EXACT)[RANDOM.integers(4)]
        check(m, n, k, precision, ta, tb, bias, activation, out, prepared=prepared, **more[RANDOM.integers(2)])


@pytest.mark.parametrize(("steps", "wanted"), [(2, 2.5e-7), (4, 4.6e-7), (8, 9.1e-7), (64, 7.2e-6)])
def test_how_often(steps, wanted, monkeypatch):
    """Sums leave the tensor cores, and what that does to the error: the table of docs/gemm.md."""
    monkeypatch.setattr(gemm_plan, "PROMOTED", steps)
    monkeypatch.setattr(importlib.import_module("kernels_sass.gemm"), "PLANS", {})
    numbers = np.random.default_rng(0)
    a, b = (numbers.standard_normal((64, 2048), np.float32) for _ in range(2))
    assert abs(off(gemm(a, b, transpose_b=True), a.astype("f8") @ b.T) / wanted - 1) < 0.05


def test_small_beside_large():
    """Where it is documented to be worse than float32: columns of A of very different size, and rows of B as much
    smaller."""
    sizes = np.ldexp(np.float32(1), RANDOM.integers(-15, 16, 64))
    a, b = random(50, 64) * sizes, random(64, 30) / sizes[:, None]
    assert 1e-6 < off(gemm(a, b), a.astype("f8") @ b) < 1e-3


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


def test_how_many_share():
    """Where there are fewer tiles than multiprocessors, and steps enough."""
    narrow = tiles(16, 1024, 132, "fp32")
    assert [shared(narrow, 16, 1024, steps, 132) for steps in (128, 32, 8, 1)] == [8, 6, 1, 1]
    assert shared(narrow, 256, 512, 32, 132) == 4
    assert shared(tiles(8192, 8192, 132), 8192, 8192, 128, 132) == 1


F, H = np.zeros((8, 8), np.float32), np.zeros((8, 8), np.float16)


@pytest.mark.parametrize(
    ("args", "options", "message"),
    [
        ((F, H), {}, "A is float32 on cpu, B float16"),
        ((F, F), {"precision": "fp16"}, "gemm of float32 as fp16"),
        ((F.astype("f8"), F), {}, "gemm of float64\nhint: fp16 takes"),
        ((F, F[:4]), {}, "A is 8 x 8, and B 4 x 8"),
        ((F, F[0]), {}, "B of gemm has the shape"),
        ((F[None, None], F), {}, "A of gemm has the shape"),
        ((np.stack([F, F]), F[None]), {}, "A has a batch of 2, B of 1"),
        ((F[None], F[None]), {"splits": 2}, "1 with a batch"),
        ((F, F), {"splits": 17}, "splits is 17"),
        ((F, F), {"splits": 2.0}, "splits is 2.0"),
        ((F, np.ma.masked_array(F, F == 0)), {}, "gemm of a MaskedArray"),
        ((F, F), {"bias": np.ma.masked_array(F[0], F[0] == 0)}, "gemm of a MaskedArray"),
        ((F, F), {"activation": "silu"}, "there is no activation 'silu'"),
        ((F, F, H), {}, "out is float16"),
        ((F, F), {"bias": F[0, :4]}, "bias is float32 of"),
        (([1.0], F), {}, "gemm of a list"),
    ],
)
def test_refused(args, options, message):
    """Also where a plan is at hand for what equals it."""
    gemm(F, F, splits=2)
    with pytest.raises(LaunchError, match=message):
        gemm(*args, **options)
