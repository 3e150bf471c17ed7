"""Hopper's own kernel, kernels_sass/winograd/winograd_sm90.sass: its words, and what it computes on the CPU device.

TURINGAS_SHAPES=200 takes that many random shapes instead of a few.
"""

from __future__ import annotations

import functools
import os
import random
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import turingas
from kernels_sass import winograd
from kernels_sass.winograd.host import HOPPER
from tests.kernels_sass import harness
from tests.kernels_sass.harness import LAYOUTS, Shape
from turingas import emulate
from turingas.check.command import Report, look
from turingas.emulate import Device
from turingas.isa.forms import isa
from turingas.isa.instruction import Instruction, Label, Mem, instruction
from turingas.isa.latency import latencies
from turingas.program import Cubin, Kernel

SOURCE = Path(winograd.__file__).with_name("winograd_sm90.sass")
ARCH = "sm_90"
SHAPES = int(os.environ.get("TURINGAS_SHAPES", "4"))
TOLERANCE = 1e-6
Defines = dict[str, object] | None
ROLES = "multiply", "store", "fetch"  # in the order of their code


@functools.cache
def cubin(**defines: object) -> Cubin:
    return turingas.assemble(SOURCE.read_text(), arch=ARCH, filename=str(SOURCE), defines=defines)


@functools.cache
def linted(**defines: object) -> Report:
    return look(cubin(**defines), str(SOURCE))


def kernel(name: str, **defines: object) -> Kernel:
    return next(k for k in cubin(**defines).kernels if k.name == name)


@functools.cache
def code(name: str = "winograd", **defines: object) -> list[Instruction]:
    found = [instruction(isa(ARCH), word, 16 * n) for n, word in enumerate(kernel(name, **defines).words)]
    assert None not in found
    return [i for i in found if i is not None]


def role(name: str) -> range:
    """Where the code of the warps with a role lies; each begins with its registers."""
    starts = [n for n, i in enumerate(code()) if i.base == "USETMAXREG"] + [len(code())]
    assert len(starts) == len(ROLES) + 1
    at = ROLES.index(name)
    return range(starts[at], starts[at + 1])


def main_loop(**defines: object) -> list[Instruction]:
    """A step: from where the FFMA begin to be repeated to the first branch back there."""
    words = code(**defines)
    for n, i in enumerate(words):
        target = next((o.address // 16 for o in i.operands if isinstance(o, Label)), n)
        if target < n and any(one.base == "FFMA" for one in words[target:n]):
            return words[target : n + 1]
    raise AssertionError("no loop has FFMA")


def convolve(
    shape: Shape, sms: int = 132, defines: Defines = None, **options: Any
) -> tuple[float, list[emulate.Report]]:
    made = cubin(**(defines or {}))
    return harness.convolve(made, shape, block=HOPPER.threads, shared=HOPPER.shared, sms=sms, **options)


def right(shape: Shape, sms: int = 132, defines: Defines = None, strict: bool = True, **options: Any) -> None:
    """The result is, and with ``strict`` (six times as slow) neither hazards nor races are found."""
    error, reports = convolve(shape, sms, defines, strict=strict, races=strict, **options)
    assert error <= TOLERANCE, (shape, sms, defines)
    assert not any(r.hazards or r.races for r in reports), (shape, sms, defines)


# ---- the words


def test_registers_of_the_roles():
    """All that an SM has."""
    counts = [i.operands[-1].value for i in code() if i.base == "USETMAXREG"]
    assert counts == [184, 56, 88]
    assert 8 * 184 + 4 * 56 + 4 * 88 == HOPPER.threads // 32 * kernel("winograd").registers == 65536 // 32
    assert kernel("filter_transform").registers <= 40


def test_shared_memory():
    """What the system keeps is declared, the rest given at launch; host.py knows how much."""
    assert kernel("winograd").shared_bytes == 1024
    last = max(o.offset for i in code() if i.base == "SYNCS" for o in i.operands if isinstance(o, Mem))
    assert last + 8 - 1024 == HOPPER.shared  # an mbarrier stands at the end


def test_the_main_loop():
    """A step of 8 channels: 1024 FFMA, and nothing else for the FMA pipe."""
    step = main_loop()
    pipes = Counter(latencies(ARCH).pipe(i) for i in step)
    count = Counter(i.base for i in step)
    assert pipes["fma"] == count["FFMA"] == 1024
    assert count["LDS"] == 48 and all("128" in i.mods for i in step if i.base == "LDS")
    loop = max(linted().loops, key=lambda loop: loop.pipes["fma"])
    assert loop.start == step[0].address and loop.bound == "issue slots" and loop.conflicts == 0


def test_lint():
    """Notes alone: occupancy, and bank conflicts of FADD, in the warps that fetch and store."""
    found = linted().findings
    assert Counter((f.severity, f.kind) for f in found) == {("note", "occupancy"): 2, ("note", "bank-conflict"): 9}
    for f in found:
        if f.kind == "bank-conflict":
            assert f.text.startswith("FADD") and f.kernel == "winograd" and f.address // 16 >= role("store").start


def head(first: str) -> list[int]:
    """The numbers of the line of the table in the head comment that begins so."""
    (line,) = re.findall(rf"^#   {re.escape(first)} (.*)$", SOURCE.read_text(), re.M)
    return [int(n) for n in re.findall(r"(?<!\.)\b\d+\b", line)]


def fetched(shape: Shape) -> Counter[str]:
    """What a fetching warp runs in a step, by mnemonic: each place once, however often it waits."""
    steps = []
    for c in (24, 32):
        _, reports = convolve(replace(shape, c=c), counters=True)
        steps.append(reports[1].counters.warps)
    more = steps[1] - steps[0]  # of four warps
    ran = [n for n in role("fetch") if more[n]]
    assert all(more[n] == 4 for n in ran if code()[n].base not in ("SYNCS", "BRA"))
    return Counter(code()[n].base for n in ran)


def test_the_counts_in_the_head():
    step = main_loop()
    multiply = Counter(i.base for i in step)
    assert head("FFMA") == [multiply["FFMA"], 2 * multiply["FFMA"]]
    assert head("LDS.128") == [multiply["LDS"], 2 * multiply["LDS"]]
    words = fetched(Shape(1, 8, 8, 8, 64))
    four = [words[base] for base in ("LDG", "R2P", "FADD", "STS")]
    rest = len(step) - 1024 - multiply["LDS"], sum(words.values()) - sum(four)
    pairs = fetched(Shape(32, 8, 2, 2, 64, layout="CHWN", ni=32))
    fewer = [pairs[base] for base in ("LDG", "R2P", "FADD", "STS")]
    assert head("LDG, R2P, FADD, STS") == [*four, sum(four), fewer[0], sum(fewer)] and fewer[0] == 16
    slots = 2 * len(step) + sum(words.values())
    assert head("the rest") == [*rest, 2 * rest[0] + rest[1], 2048, slots, round(100 * 2048 / slots)]


@pytest.mark.parametrize("layout, ni", [("NCHW", 1), ("CHWN", 32), ("NHWC", 1)])
def test_shared_memory_has_no_bank_conflict(layout, ni):
    """Filters' transform, tiles, results: swizzled or padded, in each layout."""
    image = 2 if layout == "CHWN" else 8
    _, reports = convolve(Shape(32 if ni == 32 else 2, 8, image, image, 64, layout=layout, ni=ni), counters=True)
    for report in reports:
        counters = report.counters
        assert counters.wavefronts.sum() > 100
        assert (counters.wavefronts == counters.ideal).all()


@pytest.mark.parametrize("layout, base, sectors", [
    ("CHWN", "LDG", 8), ("CHWN", "STG", 8),  # 64 bits a lane, 16 of them side by side
    ("NHWC", "LDG", 4), ("NHWC", "STG", 4),  # 8 channels of 4 tiles
])  # fmt: skip
def test_global_memory_is_coalesced(layout, base, sectors):
    image = 4 if layout == "CHWN" else 8
    shape = Shape(32 if layout == "CHWN" else 2, 8, image, image, 64, layout=layout, ni=32 if layout == "CHWN" else 1)
    counters = convolve(shape, counters=True)[1][1].counters
    at = [n for n, i in enumerate(code()) if i.base == base and counters.requests[n]]
    assert at and all(("64" in code()[n].mods) == (layout == "CHWN") for n in at)
    assert max(counters.sectors[n] / counters.requests[n] for n in at) <= sectors


# ---- schedules

TAILS = Shape(3, 9, 5, 4, 5, bias=True, residual=True)
YIELDS = {  # FFMA and LDS of a step that yield
    "natural": (0, 0), "nvcc8": (128, 0), "cudnn7": (146, 0), "every:5": (204, 0), "every:128": (8, 0),
    "lds": (0, 48), "lds:1": (0, 48), "lds:2": (0, 24), "lds:3": (0, 16), "lds:128": (0, 8),
}  # fmt: skip
SCHEDULES: list[dict[str, object]] = [
    {"LANES": "paper", "LDS_FIRST": 3, "LDS_INTERLEAVE": 8, "LDG_INTERLEAVE": 2},
    {"LANES": "tiles", "LDS_FIRST": 16, "STS_INTERLEAVE": 2, "CHECK": 4},
    {"LANES": "filters", "LDS_INTERLEAVE": 13, "LDG_INTERLEAVE": "4", "STS_INTERLEAVE": "4", "CHECK": 5},
    {"LDG_INTERLEAVE": 8, "STS_INTERLEAVE": 6, "LDS_FIRST": 9},
]


@pytest.mark.parametrize("kind", YIELDS)
def test_yields(kind):
    yields = Counter(i.base for i in main_loop(YIELD=kind) if i.control.yields)
    assert (yields["FFMA"], yields["LDS"]) == YIELDS[kind]


@pytest.mark.parametrize("kind", ["natural", "nvcc8", "cudnn7", "every:5", "lds:1"])
def test_each_kind_of_yield_computes_the_same(kind):
    right(TAILS, defines={"YIELD": kind}, strict=False)
    kinds = {f.kind for f in linted(YIELD=kind).findings if f.severity != "note"}
    assert not kinds


@pytest.mark.parametrize("defines", SCHEDULES, ids=str)
def test_schedules(defines):
    """Places and distances are those asked for; the linter has nothing more to say; the result is the same."""
    step = main_loop(**defines)
    count = Counter(i.base for i in step)
    assert (count["FFMA"], count["LDS"]) == (1024, 48)
    places, ffma = [], 0
    for i in step:
        ffma += i.base == "FFMA"
        if i.base == "LDS":
            places.append(ffma)
    first, between = int(str(defines.get("LDS_FIRST", 4))), int(str(defines.get("LDS_INTERLEAVE", 19)))
    assert places == [128 * channel + first + between * n for channel in range(8) for n in range(6)]
    for base, name in (("LDG", "LDG_INTERLEAVE"), ("STS", "STS_INTERLEAVE")):
        stalls = [code(**defines)[n].control.stall for n in role("fetch") if code(**defines)[n].base == base]
        assert Counter(stalls).most_common(1)[0][0] == int(str(defines.get(name, 1)))
    assert {f.severity for f in linted(**defines).findings} == {"note"}
    right(TAILS, defines=defines, strict=False)


@pytest.mark.parametrize("name, values, known", [
    ("YIELD", ["often", "every:0", "every:129", "lds:x", ""], "natural, nvcc8, cudnn7, lds, every:1"),
    ("LANES", ["rows", 1], "xor, paper, tiles, filters"),
    ("LDS_FIRST", [2, 17, "x"], "3, 4, 5"),
    ("LDS_INTERLEAVE", [0, 7, 20, "1.5"], "19"),
    ("LDG_INTERLEAVE", [0, 3, 16], "1, 2, 4, 8"),
    ("STS_INTERLEAVE", [3, 8], "1, 2, 4, 6"),
    ("CHECK", [3, 7], "4, 5, 6"),
])  # fmt: skip
def test_a_value_that_does_not_exist(name, values, known):
    for value in values:
        with pytest.raises(turingas.AsmError) as error:
            turingas.assemble(SOURCE.read_text(), arch=ARCH, filename=str(SOURCE), defines={name: value})
        assert f"{name} is one of " in str(error.value) and f"not {value}" in str(error.value)
        assert known in str(error.value)


# ---- what it computes


def shapes(count: int) -> list[tuple[Shape, int, int]]:
    """Shapes, SMs, and how far from an aligned address x and y lie."""
    r = random.Random("hopper")
    found: list[tuple[Shape, int, int]] = []
    while len(found) < count:
        layout = LAYOUTS[len(found) % 3]
        n = r.choice([1, 2, 3, 5, 8, 32, 33])
        ni = r.choice([1, 2, 4, 17, 32]) if layout == "CHWN" else r.choice([1, 1, 1, 2])
        shape = Shape(
            n, r.choice([1, 3, 7, 8, 9, 16, 17, 24, 31, 33, 40]), r.randint(1, 8), r.randint(1, 8),
            r.choice([1, 5, 63, 64, 65, 70, 128, 130]), r.choice([0, 1]), layout,
            r.choice(["KCRS", "CRSK", "KRSC"]), ni, *(r.choice([False, True]) for _ in range(3)),
        )  # fmt: skip
        sms, shift = r.choice([1, 2, 3, 7, 132]), r.choice([0, 0, 2, 1])
        if shape.n * shape.k * shape.p * shape.q < 64:  # of few outputs, ReLU may leave only sums that cancel
            shape = replace(shape, relu=False)
        if shape.p > 0 and shape.q > 0:
            found.append((shape, sms, shift))
    return found


@pytest.mark.parametrize("number", range(SHAPES))
def test_random_shapes(number):
    shape, sms, shift = shapes(number + 1)[number]
    right(shape, sms, strict=number % 4 == 0, seed=number, shift=shift)


@pytest.mark.parametrize("c", [1, 8, 9, 24, 40])
def test_many_jobs_a_block(c):
    """Nine for one block, or five and four: places of results are used again, and a job begins at either stage."""
    right(Shape(5, c, 6, 6, 130, bias=True), sms=1 if c < 24 else 2, strict=False)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(layout):
    """With tails of tiles, channels and filters, and all of the epilogue."""
    right(Shape(3, 9, 5, 7, 70, 1, layout, ni=2, bias=True, residual=True, relu=True), sms=2)


@pytest.mark.parametrize("layout, wide", [("NCHW", {"STG"}), ("CHWN", {"LDG", "STG"}), ("NHWC", set())])
@pytest.mark.parametrize("shift", [1, 2])
def test_where_64_bits_are_moved_at_a_time(layout, wide, shift):
    """Where x and y do not lie at multiples of 8 bytes, pairs side by side are moved a word each."""
    shape = Shape(4, 3, 4, 4, 9, layout=layout, ni=4 if layout == "CHWN" else 1, residual=True)
    error, reports = convolve(shape, shift=shift, counters=True)
    assert error <= TOLERANCE
    ran = [i for n, i in enumerate(code()) if reports[1].counters.requests[n] and "64" in i.mods]
    assert {i.base for i in ran if i.base in ("LDG", "STG")} == (wide if shift == 2 else set())


@pytest.mark.parametrize("layout, ni", [("NCHW", 1), ("CHWN", 2), ("NHWC", 1)])
def test_padding_is_masked_and_not_multiplied(layout, ni):
    """What lies outside of the image is never used: NaN on all sides of it would show."""
    right(Shape(2, 3, 4, 6, 5, layout=layout, ni=ni), strict=False, around=np.nan)


def test_nan_and_infinity_come_through_relu():
    """max(0, NaN) is NaN, as in the frameworks; x with one NaN spoils the tiles that see it and no other."""
    shape = Shape(1, 1, 8, 8, 1, relu=True)
    assert shape.tiles == 16
    x, w = np.ones((1, 1, 8, 8), "f4"), np.ones((1, 1, 3, 3), "f4")
    x[0, 0, 0, 0] = np.nan
    u, y = np.empty(16 * 8 * 64, "f4"), np.zeros((8, 8), "f4")
    module = Device(ARCH).load(cubin())
    module.launch("filter_transform", 1, 256, [w, u, 1, 1, 9, 9, 3, 1])
    args = [x, u, y, 0, 0, 16, 1, 1, 8, 8, 1, 8, 8, 1, 4, 4, 1, 64, 64, 8, 1, 64, 64, 8, 1, 1]
    module.launch("winograd", 1, HOPPER.threads, args, HOPPER.shared)
    seen = np.zeros((8, 8), bool)
    seen[:2, :2] = True
    assert np.array_equal(np.isnan(y), seen)


G = np.array([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]])


@pytest.mark.parametrize("layout", ["KCRS", "CRSK", "KRSC", "mirrored"])
@pytest.mark.parametrize("c, k", [(1, 1), (9, 70), (16, 128)])
def test_filter_transform(layout, c, k):
    """U is [k / 64][c / 8][element][8 channels][64 filters], 0 where there is no filter; strides have any sign."""
    w = np.random.default_rng(c * k).standard_normal((k, c, 3, 3), np.float32)
    there, strides = harness.stored(w, "KCRS", "KCRS" if layout == "mirrored" else layout)
    c_pad, k_pad = -(-c // 8) * 8, -(-k // 64) * 64
    u = np.full(16 * c_pad * k_pad, np.nan, np.float32)
    module = Device(ARCH).load(cubin())
    at = module.device.memory.add(there, "w")
    if layout == "mirrored":  # rows and columns from the last to the first
        w, at, strides = w[:, :, ::-1, ::-1], at + 4 * 8, [*strides[:2], -strides[2], -strides[3]]
    args = [at, u, c, k, *strides]
    report = module.launch("filter_transform", (k_pad // 64, c_pad // 8), 256, args, strict=True, races=True)
    assert not report.hazards and not report.races
    wanted = np.zeros((k_pad, c_pad, 4, 4))
    wanted[:k, :c] = G @ w.astype("f8") @ G.T
    chunks = wanted.reshape(k_pad // 64, 64, c_pad // 8, 8, 16).transpose(0, 2, 4, 3, 1)
    assert np.abs(u.reshape(chunks.shape) - chunks).max() <= 2e-6
    assert not u.reshape(chunks.shape)[chunks == 0].any()
