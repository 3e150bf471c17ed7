"""The kernel of Yan, Wang, Chu 2020, conv/methods/winograd.sass: its words, and what it computes on the CPU device.

TURINGAS_SHAPES=200 takes that many random shapes on each architecture instead of a few.
"""

from __future__ import annotations

import functools
import os
import random
from collections import Counter

import numpy as np
import pytest

import turingas
from kernels_sass.conv.method import FOLDER, KNOWN
from tests.kernels_sass.harness import LAYOUTS, Shape, convolve
from turingas.check.command import look
from turingas.check.loops import LoopSummary
from turingas.cubin.cubin import Cubin
from turingas.isa.arch import ARCHS as facts
from turingas.isa.instruction import Instruction, instruction
from turingas.isa.isa import instruction_set

SOURCE = FOLDER / "winograd.sass"
ARCHES = [name for name in KNOWN if facts[name].latency == name]  # the others issue as one of these
SHAPES = int(os.environ.get("TURINGAS_SHAPES", "2"))
OUTPUTS = ("paper", "sts64", "compact")
TOLERANCE = 1e-6


@functools.cache
def cubin(arch: str, **defines: object) -> Cubin:
    return turingas.assemble(SOURCE.read_text(), arch=arch, filename=str(SOURCE), defines=defines)


@functools.cache
def linted(arch: str, **defines: object):
    return look(cubin(arch, **defines), str(SOURCE))


def main_loop(arch: str, **defines: object) -> tuple[LoopSummary, list[Instruction]]:
    """The linter's summary of the main loop, and its instructions."""
    (loop,) = linted(arch, **defines).loops
    (kernel,) = (k for k in cubin(arch, **defines).kernels if k.name == "winograd")
    words = kernel.words[loop.start // 16 : loop.end // 16]
    return loop, [found for word in words if (found := instruction(instruction_set(arch), word)) is not None]


# ---- the words


@pytest.mark.parametrize("arch", ARCHES)
def test_the_main_loop_is_that_of_the_paper(arch):
    loop, code = main_loop(arch)
    count = Counter(i.base for i in code)
    assert count["FFMA"] + 2 * count["FFMA2"] == 1024  # a step of 8 channels
    assert count["FADD"] == 32  # one tile (section 4.2)
    assert (count["LDS"], count["LDG"], count["STS"]) == (8 * 8, 16 + 8, 16 + 8)  # all LDS of 128 bits
    assert (count["BAR"], count["BRA"], count["R2P"]) == (2, 1, 5)
    assert loop.yields == 0


@pytest.mark.parametrize("arch", ["sm_70", "sm_75", "sm_80"])
def test_issue_cycles_bound_it_at_93_percent(arch):
    """An FFMA keeps its pipe busy for two cycles; all else but the 32 FADD finds a free issue slot, but for 12 cycles
    of barriers and branch."""
    loop, _ = main_loop(arch)
    assert loop.conflicts == 0
    assert loop.alone == 2 * (1024 + 32) + (14 if arch == "sm_80" else 12)  # a barrier takes 6 there, 5 before
    assert 2 * 1024 / loop.alone > 0.96
    assert loop.bound == "fma"


@pytest.mark.parametrize("arch", ["sm_86", "sm_89", "sm_90"])
def test_where_ffma_take_every_slot(arch):
    loop, code = main_loop(arch)
    assert loop.bound == "issue slots" and len(code) == 1229
    assert loop.conflicts <= 25  # where FADD and STS take the place of a filter in the reuse cache


def test_pairs_of_ffma_leave_slots_to_the_rest():
    """FFMA2 of sm_100 takes its pipe for two cycles, so all else finds a free issue slot: by the model a step takes
    0.91 of what FFMA would, and the pipe bounds it but for register banks."""
    (loop, code), (plain, _) = main_loop("sm_100"), main_loop("sm_120")
    assert len(code) == 1229 - 512 and loop.bounds["issue slots"] < loop.bounds["fma"] == 1056
    assert loop.alone < 0.92 * plain.alone and plain.bound == "issue slots"


@pytest.mark.parametrize("arch", ARCHES)
def test_resources(arch):
    """Tables 5 and 7: 253 registers, two of them the hardware's own, and 48 KB of shared memory."""
    (kernel,) = (k for k in cubin(arch).kernels if k.name == "winograd")
    highest = max(instruction_set(arch).registers(word) for word in kernel.words)
    assert (highest, kernel.registers) == (251, 253)
    assert kernel.shared_bytes == 48 * 1024 + facts[arch].shared_counted  # what the system keeps counts there


@pytest.mark.sample(4)
@pytest.mark.parametrize("arch,output", [*((a, "paper") for a in ARCHES), ("sm_75", "sts64"), ("sm_90", "compact")])
def test_lint(arch, output):
    """No error or warning; notes are occupancy, which 253 registers set, and from sm_86 on the conflicts above."""
    found = [f for f in linted(arch, OUTPUT=output).findings if f.kind != "uninitialised"]  # on paths not taken
    assert {f.severity for f in found} == {"note"}
    conflicts = {"bank-conflict"} if facts[arch].fp32_lanes == 128 else set()
    assert {f.kind for f in found if f.kernel != "add_splits4"} <= {"occupancy"} | conflicts
    assert {f.kind for f in found} <= {"occupancy", "uncoalesced"} | conflicts  # y at an odd address


@pytest.mark.parametrize("arch", ["sm_75", "sm_90"])
@pytest.mark.parametrize("output", OUTPUTS)
def test_shared_memory_has_no_bank_conflict(arch, output):
    """Neither in the loop (Figure 3) nor in the output transform (Figure 5)."""
    _, reports = convolve(cubin(arch, OUTPUT=output), Shape(32, 8, 2, 2, 64, layout="CHWN", ni=32), counters=True)
    counters = reports[1].counters
    assert counters.wavefronts.sum() > 3_000
    assert (counters.wavefronts == counters.ideal).all()


@pytest.mark.parametrize("arch", ["sm_75", "sm_90"])
def test_chwn_is_coalesced(arch):
    shape = Shape(32, 8, 4, 4, 64, layout="CHWN", ni=32, filter_layout="CRSK")
    _, reports = convolve(cubin(arch), shape, counters=True)
    for report in reports:
        counters = report.counters
        code = next(k for k in cubin(arch).kernels if k.name == report.kernel.name).words
        for n, word in enumerate(code):
            i = instruction(instruction_set(arch), word)
            if i is not None and i.base in ("LDG", "STG") and counters.requests[n]:
                per_request = counters.sectors[n] / counters.requests[n]
                assert per_request <= (16 if "128" in i.mods else 4), i.text()


# ---- schedules

SCHEDULES = [
    {"YIELD": "nvcc8"},
    {"YIELD": "cudnn7", "LDG_INTERLEAVE": 2},
    {"YIELD": "every:5", "STS_INTERLEAVE": 2},
    {"LDG_INTERLEAVE": 4, "STS_INTERLEAVE": 4},
    {"LDG_INTERLEAVE": "2", "STS_INTERLEAVE": "2"},
]


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    "arch,defines", [*(("sm_75", one) for one in SCHEDULES), ("sm_90", SCHEDULES[1]), ("sm_90", SCHEDULES[2])], ids=str
)
def test_schedules(arch, defines):
    """FFMA between two LDG, between two STS, between two yields are those asked for; the linter has nothing more to
    say; the kernel still computes the same."""
    loop, code = main_loop(arch, **defines)
    every = {"natural": 0, "nvcc8": 8, "cudnn7": 7, "every:5": 5}[defines.get("YIELD", "natural")]
    assert loop.yields == (1024 // every if every else 0)
    for base, wanted in (("LDG", defines.get("LDG_INTERLEAVE", 8)), ("STS", defines.get("STS_INTERLEAVE", 6))):
        distances, between = [], None
        for i in code:
            if i.base == base:
                distances.append(between)
                between = 0
            elif i.base == "FFMA" and between is not None:
                between += 1
        # an R2P or LDS may hold the slot: then it is the next one
        assert Counter(distances[1:]).most_common(1)[0][0] == int(wanted)
        assert min(distances[1:]) >= int(wanted)
    assert {f.severity for f in linted(arch, **defines).findings} <= {"note"}
    error, reports = convolve(cubin(arch, **defines), Shape(3, 17, 5, 4, 5, residual=True), strict=True, races=True)
    assert error <= TOLERANCE and not any(r.hazards or r.races for r in reports)


@pytest.mark.parametrize(
    "name,value,known",
    [
        ("YIELD", "often", "natural, nvcc8, cudnn7, every:N"),
        ("YIELD", "every:0", "natural, nvcc8, cudnn7, every:N"),
        ("LDG_INTERLEAVE", 3, "2, 4, 8"),
        ("STS_INTERLEAVE", 8, "2, 4, 6"),
        ("OUTPUT", "sts128", "paper, sts64, compact"),
    ],
)
def test_a_schedule_that_does_not_exist(name, value, known):
    with pytest.raises(turingas.AsmError) as error:
        turingas.assemble(SOURCE.read_text(), arch="sm_75", filename=str(SOURCE), defines={name: value})
    assert f"-D {name}={value}: there are {known}" in str(error.value)


# ---- what it computes


def shapes(count: int, seed: str) -> list[Shape]:
    choose = random.Random(seed).choice
    found = []
    while len(found) < count:
        n, ni = choose([(1, 1), (2, 1), (2, 2), (3, 1), (3, 32), (33, 32), (33, 1), (5, 4)])
        shape = Shape(
            n, choose([1, 3, 8, 9, 17]), choose([1, 2, 3, 5, 7, 8]), choose([1, 2, 3, 5, 7, 8]), choose([1, 5, 64, 70]),
            choose([0, 1]), choose(LAYOUTS), choose(["KCRS", "CRSK", "KRSC"]), ni,
            choose([False, True]), choose([False, True]), choose([False, True]),
        )  # fmt: skip
        if shape.p > 0 and shape.q > 0:
            found.append(shape)
    return found


@pytest.mark.sample(3)
@pytest.mark.parametrize("arch", ARCHES)
def test_random_shapes(arch):
    """Of two, each kind of output is run on four architectures."""
    for number, shape in enumerate(shapes(SHAPES, arch)):
        output = OUTPUTS[(number + ARCHES.index(arch)) % len(OUTPUTS)]
        error, reports = convolve(cubin(arch, OUTPUT=output), shape, seed=number, strict=True, races=True)
        assert error <= TOLERANCE, (shape, output)
        assert not any(r.hazards or r.races for r in reports), (shape, output)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(layout):
    """With tails of tiles, channels and filters, and all of the epilogue."""
    shape = Shape(3, 9, 5, 7, 70, 1, layout, ni=2, bias=True, residual=True, relu=True)
    error, _ = convolve(cubin("sm_75"), shape, written=True)
    assert error <= TOLERANCE


def test_padding_is_masked_and_not_multiplied():
    """What lies outside of the image is never used: NaN on all sides of it would show."""
    shape = Shape(2, 3, 4, 6, 5, layout="NCHW")
    error, _ = convolve(cubin("sm_70"), shape, around=np.nan)
    assert error <= TOLERANCE
