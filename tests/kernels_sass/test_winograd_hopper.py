"""Hopper's own kernel, kernels_sass/conv/methods/winograd_sm90.sass: its words, and what it computes on the CPU device.
Both with products on tensor cores (MATH=tf32x3) and with FFMA.

TURINGAS_SHAPES=200 takes that many random shapes instead of a few.
"""

from __future__ import annotations

import functools
import os
import random
import re
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import turingas
from kernels_sass.conv.method import FOLDER
from kernels_sass.conv.methods.hopper import HOPPER
from tests.kernels_sass import harness
from tests.kernels_sass.harness import LAYOUTS, Shape
from turingas import emulate
from turingas.check.command import Report, look
from turingas.cubin.cubin import Cubin
from turingas.cubin.model import Kernel
from turingas.emulate import Device
from turingas.emulate.counters import Counters
from turingas.isa.instruction import Instruction, Label, Mem, instruction
from turingas.isa.isa import instruction_set
from turingas.isa.latency import latencies

SOURCE = FOLDER / "winograd_sm90.sass"
ARCH = "sm_90"
SHAPES = int(os.environ.get("TURINGAS_SHAPES", "4"))
TOLERANCE = 1e-6
MATHS = {"tf32x3": "HMMA", "ffma": "FFMA"}  # what multiplies; the first is the default
both_maths = pytest.mark.parametrize("math", MATHS)
Defines = dict[str, object]
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
    found = [instruction(instruction_set(ARCH), word, 16 * n) for n, word in enumerate(kernel(name, **defines).words)]
    assert None not in found
    return [i for i in found if i is not None]


def role(name: str, kernel: str = "winograd", **defines: object) -> range:
    """Where the code of the warps with a role lies; each begins with its registers."""
    words = code(kernel, **defines)
    starts = [n for n, i in enumerate(words) if i.base == "USETMAXREG"] + [len(words)]
    assert len(starts) == len(ROLES) + 1
    at = ROLES.index(name)
    return range(starts[at], starts[at + 1])


def main_loop(**defines: object) -> list[Instruction]:
    """A step: from where the products begin to be repeated to the first branch back there."""
    words = code(**defines)
    for n, i in enumerate(words):
        target = next((o.address // 16 for o in i.operands if isinstance(o, Label)), n)
        if target < n and any(one.base in MATHS.values() for one in words[target:n]):
            return words[target : n + 1]
    raise AssertionError("no loop has products")


def convolve(shape: Shape, defines: Defines, sms: int = 132, **options: Any) -> tuple[float, list[emulate.Report]]:
    main = HOPPER.kernels["winograd"]
    return harness.convolve(cubin(**defines), shape, block=main.threads, shared=main.shared, sms=sms, **options)


@functools.cache
def counted(shape: Shape, math: str) -> tuple[Counters, Counters]:
    """Of the filters' transform and the convolution."""
    first, second = convolve(shape, {"MATH": math}, counters=True)[1]
    return first.counters, second.counters


def right(shape: Shape, defines: Defines, sms: int = 132, strict: bool = True, **options: Any) -> None:
    """The result is, and with ``strict`` (six times as slow) neither hazards nor races are found."""
    error, reports = convolve(shape, defines, sms, strict=strict, races=strict, **options)
    assert error <= TOLERANCE, (shape, sms, defines)
    assert not any(r.hazards or r.races for r in reports), (shape, sms, defines)


# ---- the words


def test_the_default():
    assert cubin().to_bytes() == cubin(MATH="tf32x3").to_bytes() != cubin(MATH="ffma").to_bytes()


@both_maths
def test_registers_of_the_roles(math):
    """All that an SM has."""
    counts = [i.operands[-1].value for i in code(MATH=math) if i.base == "USETMAXREG"]
    assert counts == [184, 56, 88]
    warps = HOPPER.kernels["winograd"].threads // 32
    assert 8 * 184 + 4 * 56 + 4 * 88 == warps * kernel("winograd", MATH=math).registers == 65536 // 32
    assert kernel("filter_transform", MATH=math).registers <= 48


def test_registers_of_blocks_of_32_filters():
    """No more than there are from the start, and no role uses the two that warps keep for themselves."""
    counts = [i.operands[-1].value for i in code("winograd32", FILTERS=32) if i.base == "USETMAXREG"]
    assert counts == [120, 56, 88]
    warps = HOPPER.kernels["winograd32"].threads // 32
    assert 8 * 120 + 4 * 56 + 8 * 88 <= warps * kernel("winograd32", FILTERS=32).registers <= 65536 // 32
    for at, most in zip(ROLES, counts):
        words = [code("winograd32", FILTERS=32)[n] for n in role(at, "winograd32", FILTERS=32)]
        used = [a.first + a.count for i in words[1:] for a in (*i.reads, *i.writes) if a.file == "R" and a.first < 255]
        assert max(used) <= most - 2, at


def test_a_step_of_blocks_of_32_filters():
    """Half of the products of 64; a fetching warp has a tile a lane, and takes 16 elements of it."""
    words = code("winograd32", FILTERS=32)
    loops = [loop for loop in linted(FILTERS=32).loops if loop.pipes["tensor"]]
    step = min(loops, key=lambda loop: loop.end - loop.start)
    assert step.pipes["tensor"] == 48 and step.pipes["fma"] == 64 + 32 and step.conflicts == 0
    fetch = Counter(words[n].base for n in role("fetch", "winograd32", FILTERS=32))
    assert fetch["STS"] == 16 + 1 and fetch["LDG"] == 2 * 16  # the first x of all, and that of the next step


@both_maths
def test_shared_memory(math):
    """What the system keeps is declared, the rest given at launch; the method knows how much."""
    assert kernel("winograd", MATH=math).shared_bytes == 1024
    last = max(o.offset for i in code(MATH=math) if i.base == "SYNCS" for o in i.operands if isinstance(o, Mem))
    assert last + 8 - 1024 == HOPPER.kernels["winograd"].shared  # an mbarrier stands at the end


def test_the_main_loop_of_ffma():
    """A step of 8 channels: 1024 FFMA, and nothing else for the FMA pipe."""
    step = main_loop(MATH="ffma")
    pipes = Counter(latencies(ARCH).pipe(i) for i in step)
    count = Counter(i.base for i in step)
    assert pipes["fma"] == count["FFMA"] == 1024
    assert count["LDS"] == 48 and all("128" in i.mods for i in step if i.base == "LDS")
    loop = max(linted(MATH="ffma").loops, key=lambda loop: loop.pipes["fma"])
    assert loop.start == step[0].address and loop.bound == "issue slots" and loop.conflicts == 0


def test_the_main_loop_of_tf32x3():
    """A step of 8 channels: of each of 8 groups, three times 4 HMMA, which begin their sums at 0; each of the 128
    accumulators is added to once; two instructions for each low part of 32 registers of filters and 16 of tiles."""
    step = main_loop(MATH="tf32x3")
    pipes = Counter(latencies(ARCH).pipe(i) for i in step)
    count = Counter(i.base for i in step)
    assert pipes["tensor"] == count["HMMA"] == 96 and pipes["fma"] == count["FADD"] == 128 + 48 and count["LOP3"] == 48
    assert count["LDS"] == 12 and all("128" in i.mods for i in step if i.base == "LDS")
    products = [i for i in step if i.base == "HMMA"]
    assert all(i.mods == ("1688", "F32", "TF32") for i in products)
    sums = [next(w.first for w in i.writes) for i in products]
    first = [i for i in products if not any(r.first == w.first for w in i.writes for r in i.reads)]
    assert len(first) == 32 and Counter(Counter(sums).values()) == {24: 4}
    written = Counter(w.first for i in step if i.base == "FADD" for w in i.writes)
    assert [written[n] for n in range(128)] == [1] * 128
    (loop,) = (loop for loop in linted(MATH="tf32x3").loops if loop.start == step[0].address)
    assert loop.pipes["tensor"] == 96 and loop.bound == "tensor" and loop.conflicts == 0


@both_maths
def test_lint(math):
    """Notes alone: occupancy, bank conflicts of FADD, in the warps that fetch and store, and how add_splits4 writes a y
    at an address that is no multiple of 16. An EXIT may wait for more than there is, and paths that are not taken leave
    registers unwritten. Some names are for the other arithmetic."""
    found = [f for f in linted(MATH=math).findings if f.kind != "nothing-pending" or not f.text.startswith("EXIT")]
    found = [f for f in found if (f.severity, f.kind) not in (("note", "uninitialised"), ("note", "unused-name"))]
    notes = {"occupancy": 4, "bank-conflict": 9, "uncoalesced": 4}
    assert Counter((f.severity, f.kind) for f in found) == {("note", kind): count for kind, count in notes.items()}
    assert {f.kernel for f in found if f.kind == "uncoalesced"} == {"add_splits4"}
    for f in found:
        if f.kind == "bank-conflict":
            assert f.text.startswith("FADD") and f.kernel == "winograd"
            assert f.address // 16 >= role("store", MATH=math).start


def head(math: str, first: str) -> list[int]:
    """The numbers of the line that begins so, of the table for ``math`` in the head comment."""
    _, _, table = SOURCE.read_text().partition(f"#   MATH={math}")
    (line, *_) = re.findall(rf"^#   {re.escape(first)} (.*)$", table, re.M)
    return [int(n) for n in re.findall(r"(?<!\.)\b\d+\b", line)]


def fetched(shape: Shape, math: str) -> Counter[str]:
    """What a fetching warp runs in a step, by mnemonic: each place once, however often it waits."""
    steps = []
    for c in (24, 32):
        steps.append(counted(replace(shape, c=c), math)[1].warps)
    more = steps[1] - steps[0]  # of four warps
    words = code(MATH=math)
    ran = [n for n in role("fetch", MATH=math) if more[n]]
    assert all(more[n] == 4 for n in ran if words[n].base not in ("SYNCS", "BRA"))
    return Counter(words[n].base for n in ran)


@both_maths
def test_the_counts_in_the_head(math):
    step = main_loop(MATH=math)
    multiply = Counter(i.base for i in step)
    product = MATHS[math]
    own = [product, "LDS"] if math == "ffma" else [product, "LDS", "FADD", "LOP3"]
    assert head(math, product) == [multiply[product], 2 * multiply[product]]
    assert head(math, "LDS.128") == [multiply["LDS"], 2 * multiply["LDS"]]
    if math == "tf32x3":
        assert head(math, "FADD of sums, low parts") == [128, multiply["FADD"] - 128, 2 * multiply["FADD"]]
        assert head(math, "LOP3 of low parts") == [multiply["LOP3"], 2 * multiply["LOP3"]]
    words = fetched(Shape(1, 8, 8, 8, 64), math)
    four = [words[base] for base in ("LDG", "R2P", "FADD", "STS")]
    rest = len(step) - sum(multiply[base] for base in own), sum(words.values()) - sum(four)
    pairs = fetched(Shape(32, 8, 2, 2, 64, layout="CHWN", ni=32), math)
    fewer = [pairs[base] for base in ("LDG", "R2P", "FADD", "STS")]
    assert head(math, "LDG, R2P, FADD, STS") == [*four, sum(four), fewer[0], sum(fewer)] and fewer[0] == 16
    slots = 2 * len(step) + sum(words.values())
    products = 2 * multiply[product]
    assert head(math, "the rest") == [*rest, 2 * rest[0] + rest[1], products, slots, round(100 * products / slots)]


@both_maths
@pytest.mark.parametrize("layout, ni", [("NCHW", 1), ("CHWN", 32), ("NHWC", 1)])
def test_shared_memory_has_no_bank_conflict(layout, ni, math):
    """Filters' transform, tiles, results: swizzled or padded, in each layout. But where a job's tiles lie, a warp of
    tf32x3 stores every other one: twice as many wavefronts, once a job."""
    image = 2 if layout == "CHWN" else 8
    shape = Shape(32 if ni == 32 else 2, 8, image, image, 64, layout=layout, ni=ni)
    for name, counters in zip(("filter_transform", "winograd"), counted(shape, math)):
        assert counters.wavefronts.sum() > 100
        more = counters.wavefronts - counters.ideal
        for n in more.nonzero()[0]:
            i = code(name, MATH=math)[n]
            assert (math, i.base, i.mods) == ("tf32x3", "STS", ("128",)) and n in role("fetch", MATH=math)
            assert counters.wavefronts[n] <= 2 * counters.ideal[n] <= 4


@both_maths
@pytest.mark.parametrize("layout, sectors", [
    ("CHWN", 8),  # 64 bits a lane, 16 of them side by side
    ("NHWC", 4),  # 8 channels of 4 tiles
])  # fmt: skip
def test_global_memory_is_coalesced(layout, sectors, math):
    image = 4 if layout == "CHWN" else 8
    shape = Shape(32 if layout == "CHWN" else 2, 8, image, image, 64, layout=layout, ni=32 if layout == "CHWN" else 1)
    counters, words = counted(shape, math)[1], code(MATH=math)
    for base in ("LDG", "STG"):
        at = [n for n, i in enumerate(words) if i.base == base and counters.requests[n]]
        assert at and all(("64" in words[n].mods) == (layout == "CHWN") for n in at), base
        assert max(counters.sectors[n] / counters.requests[n] for n in at) <= sectors, base


# ---- schedules

TAILS = Shape(3, 9, 5, 4, 5, bias=True, residual=True)
YIELDS = {  # products and LDS of a step that yield, of tf32x3 and of ffma
    "natural": ((0, 0), (0, 0)), "nvcc8": ((12, 0), (128, 0)), "cudnn7": ((13, 0), (146, 0)),
    "every:5": ((19, 0), (204, 0)), "every:128": ((0, 0), (8, 0)), "lds": ((0, 12), (0, 48)),
    "lds:1": ((0, 12), (0, 48)), "lds:2": ((0, 6), (0, 24)), "lds:3": ((0, 5), (0, 16)), "lds:128": ((0, 3), (0, 8)),
}  # fmt: skip
OWN = {"tf32x3": "natural", "ffma": "lds:2"}
SCHEDULES: list[dict[str, object]] = [
    {"MATH": "tf32x3", "HMMA_STALL": 4, "LDG_INTERLEAVE": 2},
    {"MATH": "tf32x3", "FADD_STALL": 2, "LDG_INTERLEAVE": "4", "STS_INTERLEAVE": "4"},
    {"MATH": "tf32x3", "HMMA_STALL": 8, "FADD_STALL": 4, "LDG_INTERLEAVE": 8, "STS_INTERLEAVE": 6},
    {"MATH": "ffma", "LANES": "paper", "LDS_FIRST": 3, "LDS_INTERLEAVE": 8, "LDG_INTERLEAVE": 2},
    {"MATH": "ffma", "LANES": "tiles", "LDS_FIRST": 16, "STS_INTERLEAVE": 2, "CHECK": 4},
    {"MATH": "ffma", "LANES": "filters", "LDS_INTERLEAVE": 13, "LDG_INTERLEAVE": "4", "STS_INTERLEAVE": 4, "CHECK": 5},
    {"MATH": "ffma", "LDG_INTERLEAVE": 8, "STS_INTERLEAVE": 6, "LDS_FIRST": 9},
]


@pytest.mark.sample(6)
@both_maths
@pytest.mark.parametrize("kind", YIELDS)
def test_yields(kind, math):
    yields = Counter(i.base for i in main_loop(YIELD=kind, MATH=math) if i.control.yields)
    there, own = (YIELDS[one][list(MATHS).index(math)] for one in (kind, OWN[math]))
    assert (yields.pop(MATHS[math], 0), yields.pop("LDS", 0)) == there
    assert not yields
    assert (cubin(YIELD=kind, MATH=math).to_bytes() == cubin(MATH=math).to_bytes()) == (there == own)


@pytest.mark.sample(3)
@both_maths
@pytest.mark.parametrize("kind", ["nvcc8", "every:5", "lds:1"])  # cudnn7 is every:7
def test_each_kind_of_yield_computes_the_same(kind, math):
    right(TAILS, {"YIELD": kind, "MATH": math}, strict=False)
    kinds = {f.kind for f in linted(YIELD=kind, MATH=math).findings if f.severity != "note"}
    assert not kinds


@pytest.mark.sample(3)
@pytest.mark.parametrize("defines", SCHEDULES, ids=str)
def test_schedules(defines):
    """Places and distances are those asked for; the linter has nothing more to say; the result is the same."""
    step = main_loop(**defines)
    count = Counter(i.base for i in step)
    if defines["MATH"] == "ffma":
        assert (count["FFMA"], count["LDS"]) == (1024, 48)
        places, ffma = [], 0
        for i in step:
            ffma += i.base == "FFMA"
            if i.base == "LDS":
                places.append(ffma)
        first, between = int(str(defines.get("LDS_FIRST", 4))), int(str(defines.get("LDS_INTERLEAVE", 19)))
        assert places == [128 * channel + first + between * n for channel in range(8) for n in range(6)]
    else:
        assert (count["HMMA"], count["LDS"]) == (96, 12)
        sums = [i for i in step if i.base == "FADD" and all(w.first < 128 for w in i.writes)]
        for name, found in (("HMMA_STALL", [i for i in step if i.base == "HMMA"]), ("FADD_STALL", sums)):
            assert min(i.control.stall for i in found) == defines.get(name, 1), name
    for base, name in (("LDG", "LDG_INTERLEAVE"), ("STS", "STS_INTERLEAVE")):
        fetch = [code(**defines)[n] for n in role("fetch", **defines)]
        stalls = [i.control.stall for i in fetch if i.base == base]
        assert Counter(stalls).most_common(1)[0][0] == int(str(defines.get(name, 1)))
    assert {f.severity for f in linted(**defines).findings} == {"note"}
    right(TAILS, defines, strict=False)


@pytest.mark.parametrize("math, name, values, known", [
    ("", "MATH", ["fp32", "", 3], "tf32x3, ffma"),
    ("tf32x3", "YIELD", ["often", "every:0", "every:129", "lds:x", ""], "natural, nvcc8, cudnn7, lds, every:1"),
    ("tf32x3", "HMMA_STALL", [0, 9, "x"], "1, 2, 3, 4, 5, 6, 7, 8"),
    ("tf32x3", "FADD_STALL", [0, 5], "1, 2, 3, 4"),
    ("ffma", "LANES", ["rows", 1], "xor, paper, tiles, filters"),
    ("ffma", "LDS_FIRST", [2, 17, "x"], "3, 4, 5"),
    ("ffma", "LDS_INTERLEAVE", [0, 7, 20, "1.5"], "19"),
    ("tf32x3", "LDG_INTERLEAVE", [0, 3, 16], "1, 2, 4, 8"),
    ("ffma", "STS_INTERLEAVE", [3, 8], "1, 2, 4, 6"),
    ("ffma", "CHECK", [3, 7], "4, 5, 6"),
])  # fmt: skip
def test_a_value_that_does_not_exist(math, name, values, known):
    for value in values:
        with pytest.raises(turingas.AsmError) as error:
            cubin(**{"MATH": math, name: value})
        assert f"-D {name}={value}: there are " in str(error.value) and known in str(error.value)


@pytest.mark.parametrize("name, value, math", [
    ("LANES", "xor", "ffma"), ("LDS_FIRST", 4, "ffma"), ("LDS_INTERLEAVE", 19, "ffma"), ("CHECK", 6, "ffma"),
    ("HMMA_STALL", 1, "tf32x3"), ("FADD_STALL", 1, "tf32x3"),
])  # fmt: skip
def test_parameters_of_one_math(name, value, math):
    """Its own default is what it takes there; the other has none of that name."""
    assert cubin(**{"MATH": math, name: value}).to_bytes() == cubin(MATH=math).to_bytes()
    (other,) = set(MATHS) - {math}
    with pytest.raises(turingas.AsmError, match=f"{name} is there with MATH={math} alone"):
        cubin(**{"MATH": other, name: value})


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


@pytest.mark.sample(3)
@both_maths
@pytest.mark.parametrize("number", range(SHAPES))
def test_random_shapes(number, math):
    shape, sms, shift = shapes(number + 1)[number]
    right(shape, {"MATH": math}, sms, strict=number % 4 == 0, seed=number, shift=shift)


@pytest.mark.sample(3)
@both_maths
@pytest.mark.parametrize("c", [1, 8, 24])
def test_many_jobs_a_block(c, math):
    """Nine for one block, or five and four: places of results are used again, a job begins at either stage, and the
    next one is looked at behind its last step, or one or two before."""
    right(Shape(5, c, 6, 6, 130, bias=True), {"MATH": math}, sms=1 if c < 24 else 2, strict=False)


@pytest.mark.sample(3)
@both_maths
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(layout, math):
    """With tails of tiles, channels and filters, and all of the epilogue; two jobs, one after the other."""
    shape = Shape(3, 9, 3, 5, 70, 1, layout, ni=2, bias=True, residual=True, relu=True)
    right(shape, {"MATH": math}, sms=1)


@pytest.mark.sample(4)
@both_maths
@pytest.mark.parametrize("layout, wide", [("NCHW", {"STG"}), ("CHWN", {"LDG", "STG"}), ("NHWC", set())])
@pytest.mark.parametrize("shift", [1, 2])
def test_where_64_bits_are_moved_at_a_time(layout, wide, shift, math):
    """Where x and y do not lie at multiples of 8 bytes, pairs side by side are moved a word each."""
    shape = Shape(4, 3, 4, 4, 9, layout=layout, ni=4 if layout == "CHWN" else 1, residual=True)
    error, reports = convolve(shape, {"MATH": math}, shift=shift, counters=True)
    assert error <= TOLERANCE
    ran = [i for n, i in enumerate(code(MATH=math)) if reports[1].counters.requests[n] and "64" in i.mods]
    assert {i.base for i in ran if i.base in ("LDG", "STG")} == (wide if shift == 2 else set())


@both_maths
@pytest.mark.parametrize("layout, ni", [("NCHW", 1), ("CHWN", 2), ("NHWC", 1)])
def test_padding_is_masked_and_not_multiplied(layout, ni, math):
    """What lies outside of the image is never used: NaN on all sides of it would show."""
    right(Shape(2, 3, 4, 6, 5, layout=layout, ni=ni), {"MATH": math}, strict=False, around=np.nan)


# ---- numbers


def output(x: np.ndarray, w: np.ndarray, math: str, relu: bool = False) -> np.ndarray:
    """y of x (n, c, h, w) and w (k, c, 3, 3), with a padding of 1."""
    x, w = x.astype("f4"), w.astype("f4")
    s = Shape(*x.shape, len(w))
    u = np.empty(16 * -(-s.c // 8) * 8 * -(-s.k // 64) * 64, "f4")
    y = np.zeros((s.n, s.k, s.h, s.w), "f4")
    module = Device(ARCH).load(cubin(MATH=math))
    module.launch("filter_transform", (-(-s.k // 64), -(-s.c // 8)), 256, [w, u, s.c, s.k, 9 * s.c, 9, 3, 1])
    args = [x, u, y, 0, 0, s.tiles(2, 2), s.n, s.c, s.h, s.w, s.k, s.p, s.q, 1, -(-s.p // 2), -(-s.q // 2), 1]
    args += [stride // 4 for stride in (*x.strides, *y.strides)]
    blocks = -(-s.tiles(2, 2) // 32) * -(-s.k // 64)
    main = HOPPER.kernels["winograd"]
    module.launch("winograd", blocks, main.threads, [*args, int(relu), -(-s.c // 8), 1], main.shared)
    return y


def wanted_of(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    return harness.exact(x, w, Shape(*x.shape, len(w)), None, None)


def random_arrays(c: int = 9) -> tuple[np.ndarray, np.ndarray]:
    r = np.random.default_rng(c)
    return r.standard_normal((1, c, 6, 6), np.float32), r.standard_normal((3, c, 3, 3), np.float32)


@functools.cache
def random_output(math: str) -> np.ndarray:
    """Of random_arrays()."""
    y = output(*random_arrays(), math)
    y.flags.writeable = False
    return y


def test_accuracy():
    """Of 8192 random outputs: the error that products with FFMA have, and twice as much with three parts of TF32."""
    for math, bound in (("ffma", 3.5e-7), ("tf32x3", 7e-7)):
        assert bound / 2 < convolve(Shape(2, 64, 8, 8, 64), {"MATH": math})[0] <= bound


@both_maths
@pytest.mark.parametrize("largest", [3, 200])
def test_integers_are_exact(math, largest):
    """Where all sums have a place in 24 bits: so no product is rounded, and none of the three parts is missing."""
    r = np.random.default_rng(largest)
    x, w = r.integers(-largest, largest + 1, (2, 16, 6, 6)), r.integers(-20, 21, (5, 16, 3, 3))
    assert np.array_equal(output(x, w, math), wanted_of(x, w))


@pytest.mark.sample(3)
@both_maths
@pytest.mark.parametrize("of_x, of_w", [(60, 0), (0, -80), (50, 50), (-110, 0)])
def test_powers_of_two_change_no_digit(math, of_x, of_w):
    x, w = random_arrays()
    y = random_output(math).astype("f8")
    assert np.array_equal(output(np.ldexp(x, of_x), np.ldexp(w, of_w), math), np.ldexp(y, of_x + of_w))


def test_denormal_numbers():
    """FFMA keeps them; TF32 has the exponents of FP32, so that of what is left of a number below 2^-113 HMMA takes what
    is at least 2^-136 alone. With FP32's accuracy down to 2^-115 all the same, and never off by more than that."""
    x, w = random_arrays()
    for power, bound in ((-115, 1e-6), (-126, 1e-3)):
        small = np.ldexp(x, power)
        wanted = wanted_of(small, w)
        errors = {math: np.abs(output(small, w, math) - wanted).max() / np.abs(wanted).max() for math in MATHS}
        assert errors["ffma"] < 1e-6 and errors["tf32x3"] < bound, power
    assert errors["tf32x3"] > 1e-5  # if not, say so in the head


@both_maths
def test_the_largest_numbers(math):
    """One that is as large as can be; then more of them, whose sums are infinite."""
    x, w = random_arrays()
    w = np.abs(w) / 64
    x[0, 0, 2, 2] = np.finfo("f4").max
    y, wanted = output(x, w, math), wanted_of(x, w)
    assert np.isfinite(y).all() and np.abs(y - wanted).max() < 1e-6 * np.abs(wanted).max()
    x[0, :, 2:4, 2:4] = np.finfo("f4").max
    assert not np.isfinite(output(x, 64 * w, math)[:, :, 2:4, 2:4]).any()


not_numbers = pytest.mark.parametrize("value", [np.nan, -np.inf], ids=str)


@not_numbers
def test_input_that_is_no_number(value):
    """The same outputs are no numbers with FFMA and with tf32x3, those that see it among them: nothing else changes."""
    x, w = random_arrays()
    x[0, 4, 2, 3] = value
    found = {math: output(x, w, math) for math in MATHS}
    for math, y in found.items():
        finite = np.isfinite(y)
        assert np.array_equal(finite, np.isfinite(found["ffma"]))
        assert not finite[:, :, 1:4, 2:5].any() and finite.any()
        assert np.array_equal(y[finite], random_output(math)[finite])


@both_maths
@not_numbers
def test_filter_that_is_no_number(value, math):
    """Its outputs are no numbers, and those of other filters are as before. tf32x3 gives NaN where FFMA gives inf."""
    x, w = random_arrays()
    w[1, 4, 0, 1] = value
    y = output(x, w, math)
    assert not np.isfinite(y[:, 1]).any()
    assert np.array_equal(y[:, ::2], random_output(math)[:, ::2])


@both_maths
def test_nan_comes_through_relu(math):
    """max(0, NaN) is NaN, as in the frameworks; x with one NaN spoils the tiles that see it and no other."""
    x, w = np.ones((1, 1, 8, 8)), np.ones((1, 1, 3, 3))
    x[0, 0, 0, 0] = np.nan
    seen = np.zeros((8, 8), bool)
    seen[:2, :2] = True
    assert np.array_equal(np.isnan(output(x, w, math, relu=True)[0, 0]), seen)


# ---- filters

G = np.array([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]])


def transformed(w: np.ndarray, at: Any, strides: list[int], math: str, device: Device | None = None) -> np.ndarray:
    """U, which is [k / 64][c / 8] chunks of 16 * 8 * 64. ``at``: w in memory, with these strides."""
    k, c = w.shape[:2]
    u = np.full((-(-k // 64), -(-c // 8), 16 * 8 * 64), np.nan, np.float32)
    module = (device or Device(ARCH)).load(cubin(MATH=math))
    report = module.launch("filter_transform", u.shape[:2], 256, [at, u, c, k, *strides], strict=True, races=True)
    assert not report.hazards and not report.races
    return u


def as_of_tf32x3(u: np.ndarray) -> np.ndarray:
    """U of ffma, [element][8 channels][64 filters], in the order of tf32x3: [k / 32][c / 8][elements, even ones first]
    [4 t][16 places: 8 quarter + (filter % 8 ^ 2 t)][filters f and f + 8 of the quarter][channels t and t + 4]."""
    e, h, t, q, m, g = 16, 2, 4, 4, 2, 8  # channel 4 h + t; filter 16 q + 8 m + g
    there = u.reshape(*u.shape[:2], e, h, t, q, m, g)[:, :, [*range(0, 16, 2), *range(1, 16, 2)]]
    there = there.transpose(0, 1, 2, 4, 5, 7, 6, 3)  # e t q g m h
    made = np.empty_like(there)
    for one in range(t):
        for filter in range(g):
            made[:, :, :, one, :, filter ^ 2 * one] = there[:, :, :, one, :, filter]
    halves = made.reshape(*u.shape[:2], e, t, 2, 2, g, m, h)  # of the filters, each with all channels
    return halves.transpose(0, 4, 1, 2, 3, 5, 6, 7, 8).reshape(u.shape)


@pytest.mark.parametrize("layout", ["KCRS", "CRSK", "KRSC", "mirrored"])
@pytest.mark.parametrize("c, k", [(1, 1), (9, 70), (16, 128)])
def test_filter_transform(layout, c, k):
    """0 where there is no filter; strides have any sign. U of tf32x3 is that of ffma in another order, rounded to 22
    bits: half of the last one up, as the hardware adds."""
    w = np.random.default_rng(c * k).standard_normal((k, c, 3, 3), np.float32)
    there, strides = harness.stored(w, "KCRS", "KCRS" if layout == "mirrored" else layout)
    found = {}
    for math in MATHS:
        device, x, order = Device(ARCH), w, strides
        at = device.memory.add(there, "w")
        if layout == "mirrored":  # rows and columns from the last to the first
            x, at, order = w[:, :, ::-1, ::-1], at + 4 * 8, [*strides[:2], -strides[2], -strides[3]]
        found[math] = transformed(x, at, order, math, device)
    wanted = np.zeros((-(-k // 64) * 64, -(-c // 8) * 8, 4, 4))
    wanted[:k, :c] = G @ x.astype("f8") @ G.T
    blocks = found["ffma"].shape[:2]
    chunks = wanted.reshape(blocks[0], 64, blocks[1], 8, 16).transpose(0, 2, 4, 3, 1).reshape(*blocks, -1)
    assert np.abs(found["ffma"] - chunks).max() <= 2e-6
    assert not found["ffma"][chunks == 0].any()
    rounded = (as_of_tf32x3(found["ffma"]).view("u4") + 2) & np.uint32(0xFFFFFFFC)
    assert np.array_equal(found["tf32x3"].view("u4"), rounded)
    exact = as_of_tf32x3(chunks)
    assert (np.abs(found["tf32x3"] - exact) <= 2e-6 + 2.0**-22 * np.abs(exact)).all()
