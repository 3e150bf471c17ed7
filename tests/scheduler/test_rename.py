"""Registers renamed within a block: the same results, no more registers, and a better order."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

import turingas
from kernels_sass.conv.methods import hgmma
from tests.bench.schedule import OWN, RENAMED, sgemm_of, static
from tests.kernels.cases import CASES, Case, difference
from tests.tools import nvrtc
from turingas.assembler.schedule import again, listing
from turingas.check import resources
from turingas.cubin.cubin import Cubin
from turingas.cubin.model import Code
from turingas.emulate import launch
from turingas.flow.graph import Graph
from turingas.isa.given import NOTHING
from turingas.scheduler.rebank import coded, cost
from turingas.scheduler.rename import renamed
from turingas.scheduler.reorder import bare

SOURCE = """.arch sm_90
.kernel k
.registers 32
    S2R R0, SR_TID.X;
    IMAD.SHL.U32 R0, R0, 0x10, RZ;
.schedule rename
    LDS.128 R4, [R0];
    FADD R8, R4, R5;
    FADD R8, R8, R6;
    FADD R8, R8, R7;
    LDS.128 R4, [R0+0x1000];
    FADD R8, R8, R4;
    FADD R8, R8, R5;
    FADD R8, R8, R6;
    FADD R8, R8, R7;
.schedule on
    STS [R0], R8;
    EXIT;
"""


def loads(text: str) -> list[str]:
    """The registers that LDS.128 loads, in the order of the code."""
    return re.findall(r"LDS\.128 (R\d+)", text)


def test_a_quad_of_its_own() -> None:
    """The second load need not wait for the first sum; its quad is aligned, and within what the kernel has."""
    plain, _ = listing(SOURCE.replace("rename", "reorder"))
    shown, _ = listing(SOURCE)
    assert loads(plain) == ["R4", "R4"]
    first, second = loads(shown)
    assert "R4" in (first, second) and first != second
    assert all(int(name[1:]) % 4 == 0 and int(name[1:]) < 28 for name in (first, second))
    assert shown.rindex("LDS") < shown.index("FADD") and turingas.assemble(SOURCE).texts[0].registers == 32
    assert turingas.assemble(shown).texts[0].words == turingas.assemble(SOURCE).texts[0].words
    assert not [f for f in turingas.lint(turingas.assemble(SOURCE)) if f.severity == "error"]


@pytest.mark.parametrize(
    "old, new",
    [
        (".registers 32", ".registers 12"),  # there is none left
        ("    STS [R0], R8;", "    STS.128 [R0], R4;"),  # the second quad is seen behind the region
        ("    LDS.128 R4, [R0+0x1000]", "    @P0 LDS.128 R4, [R0+0x1000]"),  # what was there may stay
        ("    FADD R8, R8, R7;\n.sch", "    --:-:-:Y:4  FADD R8, R8, R7;\n.sch"),  # the author's line stays as it is
    ],
)
def test_what_keeps_its_registers(old: str, new: str) -> None:
    shown, _ = listing(SOURCE.replace(old, new))
    assert loads(shown)[-1] == "R4" or old.startswith("    LDS")
    if old.startswith("    LDS"):
        assert len(set(loads(shown))) == 1


def test_sgemm_with_one_set_of_operands() -> None:
    """Step 8 with one set of registers for the operands of all k: renaming finds a second, and so 8 k take at most 3%
    more cycles than scheduled by hand. The results are the same."""
    by_hand, cycles = (cycles for _, _, _, cycles in static(["sm_90"], (OWN, RENAMED)))
    assert cycles <= 1.03 * by_hand
    cubin = sgemm_of("sm_90", RENAMED)
    assert not [f for f in turingas.lint(cubin) if f.severity != "note"] and cubin.texts[0].registers == 128
    random = np.random.default_rng(3)
    a, b = random.standard_normal((40, 24)).astype(np.float32), random.standard_normal((24, 48)).astype(np.float32)
    results = []
    for variant in (OWN, RENAMED):
        c = np.zeros((40, 48), np.float32)
        args = [a, b, c, *map(np.uint32, (40, 48, 24))]
        report = launch(sgemm_of("sm_90", variant), "sgemm", 1, 256, args, strict=True)
        assert not report.hazards
        results.append(c)
    assert results[0].any() and (results[0] == results[1]).all()


# -- registers that hold something else at another time

LINES = 40


def drawn(seed: int) -> str:
    """A straight line of arithmetic and loads on ten registers, some of it guarded, with few values for each register.
    R8 to R13 are stored at the end."""
    random = np.random.default_rng(seed)
    lines = [f"MOV R{n}, {int(random.integers(1, 99)):#x};" for n in range(4, 14)]
    for _ in range(LINES):
        a, b, c, d = (int(n) for n in random.integers(4, 14, 4))
        guard = ("", "", "", "@P0 ", "@!P0 ")[int(random.integers(5))]
        even = a & ~1
        every = (f"IADD3 R{a}, R{b}, R{c}, RZ;", f"IMAD R{a}, R{b}, R{c}, R{d};", f"LDS.64 R{even}, [R3+{8 * b:#x}];",
                 f"IMAD.WIDE R{even}, R{b}, R{c}, R{d & ~1};", f"STS [R3+{8 * c:#x}], R{b};",
                 f"LDS R{a}, [R3+{8 * c + 4:#x}];")  # fmt: skip
        lines.append(guard + every[int(random.integers(6))])
    stores = [f"STG.E desc[UR4][R0.64+{4 * n:#x}], R{8 + n};" for n in range(6)]
    begin = ["S2R R2, SR_TID.X;", "ULDC.64 UR4, c[0x0][0x208];", "LOP3.LUT P0, RZ, R2, 0x1, RZ, 0xc0, !PT;",
             "IMAD.SHL.U32 R3, R2, 0x100, RZ;", "MOV R1, 0x18;", "IMAD.WIDE R0, R2, R1, c[0x0][0x210];"]  # fmt: skip
    head = [".arch sm_90", ".kernel k", ".registers 16", ".param y, u32*", ".shared 8192"]
    return "\n".join([*head, *begin, *lines, *stores, "EXIT;"])


def test_registers_that_are_free_for_a_while() -> None:
    """Everything that the kernel has is used somewhere in the block: values move to where nothing is held meanwhile,
    and the results stay."""
    moved = 0
    for seed in range(40):
        results = []
        for rename in (False, True):
            cubin = turingas.schedule(drawn(seed), reorder=True, rename=rename)
            assert not [f for f in turingas.lint(cubin) if f.severity == "error"] and cubin.texts[0].registers == 16
            y = np.zeros(6 * 32, np.uint32)
            assert not launch(cubin, "k", 1, 32, [y], strict=True).hazards
            results.append(y)
        assert (results[0] == results[1]).all(), seed
        kernel = turingas.assemble(drawn(seed)).texts[0]
        words = renamed(kernel, bare(kernel, kernel.words), [True] * len(kernel.words))
        moved += words != bare(kernel, kernel.words).graph.kernel.words
    assert moved > 20


def test_products_of_warp_groups_keep_their_registers_for_themselves() -> None:
    """They read and write on their own, longer than the code tells."""
    lines = ["MOV R24, 0x1;", "IADD3 R25, R24, R24, RZ;", "IADD3 R26, R25, R24, RZ;", "IADD3 R25, R26, R26, RZ;",
             "IADD3 R26, R25, R25, RZ;", "STS [R26], R26;"]  # fmt: skip
    product = "HGMMA.64x8x16.F32 R0, R8, gdesc[UR4], R0;"
    for more in ([], [product]):
        head = ".arch sm_90a", ".kernel k", ".registers 40", ".shared 64"
        kernel = turingas.assemble("\n".join([*head, *lines, *more, "EXIT;"])).texts[0]
        words = renamed(kernel, bare(kernel, kernel.words), [True] * len(kernel.words))
        texts = [i.text() for i in Graph(replace(kernel, code=Code(words=words))).instructions if i.base == "IADD3"]
        named = {int(name) for text in texts for name in re.findall(r"R(\d+)", text)}
        assert bool(named & {*range(4), *range(8, 12)}) == (not more), texts


def test_registers_that_warps_have_given_up() -> None:
    """Those that load keep 24 of 168 registers: no value may come to lie beyond."""
    kernel = hgmma.built(hgmma.Tiling(type="F16", tile_n=128, stages=6)).texts[0]
    ways = bare(kernel, kernel.words)
    words = renamed(kernel, ways, [True] * len(kernel.words))
    assert words != ways.graph.kernel.words
    assert not [f for f in resources.check(Graph(replace(kernel, code=Code(words=words)))) if f.severity == "error"]


# -- cubins

DRAWN = [("sm_70", "halves.cu"), ("sm_80", "groups.cu"), ("sm_90", "warps.cu")]
BANKS = """.arch sm_75
.kernel banks
.registers 32
.param y, f32*
.param x, f32*
    S2R R0, SR_TID.X;
    MOV R1, 0x4;
    IMAD.WIDE R2, R0, R1, c[0x0][0x168];
    IMAD.WIDE R4, R0, R1, c[0x0][0x160];
    LDG.E R8, [R2];
    LDG.E R10, [R2+0x80];
    FMUL R12, R8, R10;
    FADD R14, R8, R10;
    FFMA R16, R8, R12, R14;
    FFMA R18, R10, R14, R12;
    STG.E [R4], R16;
    STG.E [R4+0x80], R18;
    EXIT;
"""


def test_banks() -> None:
    """Three sources of one bank cost a cycle; with renaming one of them comes from the other bank, and no register is
    named that the kernel has not."""
    plain, renamed = (turingas.schedule(BANKS, rename=rename, reorder=rename) for rename in (False, True))
    before, after = (cost(cubin.texts[0], cubin.texts[0].words) for cubin in (plain, renamed))
    assert before[0] == 2 and after[0] == 0 and after[1] <= before[1]
    assert not [f for f in turingas.lint(renamed) if f.severity != "note"] and renamed.texts[0].registers == 32
    x, results = np.arange(64, dtype=np.float32), []
    for cubin in (plain, renamed):
        y = np.zeros(64, np.float32)
        assert not launch(cubin, "banks", 1, 32, [y, x], strict=True).hazards
        results.append(y)
    assert (results[0] == results[1]).all() and results[0].any()
    text, _ = listing(BANKS, rename=True, reorder=True)
    assert turingas.assemble(text).texts[0].words == renamed.texts[0].words


GUARDED = """.arch sm_75
.kernel guarded
.registers 10
.param y, u32*
    S2R R0, SR_TID.X;
    ISETP.EQ.AND P0, PT, R0, RZ, PT;
    MOV R1, 0xffffffff;
    MOV R3, 0x3;
    MOV R7, 0x7;
    MOV R4, 0x4;
    MOV R2, 0x2;
    @P0 IMAD.WIDE R4, R1, R3, RZ;
    IADD3 R6, R2, R0, R4;
    IADD3 R6, R6, R1, R3;
    IADD3 R6, R6, R7, RZ;
    MOV R2, 0x4;
    IMAD.WIDE R0, R0, R2, c[0x0][0x160];
    STG.E [R0], R6;
    EXIT;
"""


def test_banks_beside_a_guarded_write_that_nobody_reads() -> None:
    """R5, the upper half of a product, is no place for the thread's number."""
    cubin = turingas.assemble(GUARDED)
    kernel, results = cubin.texts[0], []
    words = coded(kernel, [NOTHING] * len(kernel.words), "ptxas", [True] * len(kernel.words)).words
    for code in (kernel.words, words):
        kernel.code = Code(words=code)
        y = np.zeros(32, np.uint32)
        launch(cubin, "guarded", 1, 32, [y])
        results.append(y.tolist())
    assert results[0] == results[1] == [8, *range(16, 47)]



_AGAIN: dict[bytes, bytes] = {}


def check(case: Case, arch: str) -> None:
    data = case.cubin(arch)
    if data not in _AGAIN:
        made = again(Cubin.from_bytes(data), reorder=True, rename=True)[0]
        _AGAIN[data] = made.to_bytes()
        wrong = [f for f in turingas.lint(made) if f.severity != "note"]
        assert not wrong, (case.name, arch, wrong[0])
    args, truth = case.build()
    report = launch(_AGAIN[data], case.kernel, case.grid, case.block, args, shared=case.shared, strict=True)
    assert not report.hazards, (case.name, arch, report.hazards[0])
    for arg, wanted in zip(args, truth):
        if wanted is not None:
            assert not difference(arg, wanted, case.near), (case.name, arch)


@pytest.mark.skipif(nvrtc.library_path() is None, reason="NVRTC is not installed")
@pytest.mark.parametrize("arch, source", DRAWN)
def test_kernels_run_as_before(arch: str, source: str) -> None:
    """A file of test kernels, in strict mode; the others on all architectures with ``make test-slow``."""
    for case in CASES:
        if arch in case.archs and case.source == source:
            check(case, arch)


@pytest.mark.slow
@pytest.mark.skipif(nvrtc.library_path() is None, reason="NVRTC is not installed")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_kernel_runs_as_before(case: Case) -> None:
    for arch in case.archs:
        check(case, arch)
