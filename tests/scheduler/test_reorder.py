"""A better order within blocks: the same results in strict mode, clean for the linter, and no slower by the model."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import turingas
from tests.kernels.cases import ARCHS, CASES, Case, difference
from tests.tools import nvrtc
from turingas.assembler.schedule import again, listing
from turingas.cubin import nvinfo
from turingas.cubin.cubin import Cubin
from turingas.emulate import launch
from turingas.errors import AsmError
from turingas.flow.graph import Graph
from turingas.scheduler.order import put
from turingas.scheduler.reorder import reorder
from turingas.scheduler.warp import walk

SCALE = """.arch sm_90
.kernel scale
.param y, f32*
.param x, f32*
    S2R R0, SR_TID.X;   # who
    ULDC.64 UR4, c[0x0][0x208];
    MOV R7, 0x4;
    IMAD.WIDE R2, R0, R7, c[0x0][0x218];
    # the load
    LDG.E R4, desc[UR4][R2.64];
    # doubled
    FMUL R5, R4, 2;
    IMAD.WIDE R6, R0, R7, c[0x0][0x210];
    LDG.E R8, desc[UR4][R2.64+0x80];
    FADD R5, R5, R8;
    STG.E desc[UR4][R6.64], R5;
    EXIT;
"""


def bodies(cubin: Cubin) -> list[str]:
    return [line.split("  ", 1)[1].replace(".reuse", "") for line in turingas.decode(cubin.texts[0].words, cubin.arch)]


def names(cubin: Cubin) -> list[str]:
    return [body.split()[0] for body in bodies(cubin)]


def test_loads_come_first() -> None:
    found = names(turingas.schedule(SCALE, reorder=True))
    assert found.index("FMUL") == 1 + max(n for n, name in enumerate(found) if name == "LDG.E")
    assert sorted(found) == sorted(names(turingas.assemble(SCALE)))
    assert not [f for f in turingas.lint(turingas.schedule(SCALE, reorder=True)) if f.severity != "note"]


def test_regions() -> None:
    """Only what lies between `.schedule reorder` and `.schedule on` moves, and nothing moves out."""
    text = SCALE.replace("    FMUL", ".schedule reorder\n    FMUL").replace("    STG", ".schedule on\n    STG")
    found = names(turingas.assemble(text))
    assert found[:5] == names(turingas.assemble(SCALE))[:5] and found[8] == "FADD"
    assert found.index("FMUL") > max(n for n, name in enumerate(found) if name == "LDG.E")
    with pytest.raises(AsmError, match="none of off, on, reorder"):
        turingas.assemble(".schedule order\n" + SCALE)


def test_what_has_a_code_stays() -> None:
    text = SCALE.replace("    FMUL", "?:-:-:?:?  FMUL")
    assert names(turingas.schedule(text, reorder=True))[5] == "FMUL"
    assert names(turingas.schedule(text, reorder=True, keep=False))[5] != "FMUL"


def test_comments_move_with_their_lines() -> None:
    shown, _ = listing(SCALE, reorder=True)
    assert turingas.assemble(shown).texts[0].words == turingas.schedule(SCALE, reorder=True).texts[0].words
    lines = shown.split("\n")
    for comment, line in (("# the load", "LDG.E R4"), ("# doubled", "FMUL")):
        assert line in lines[lines.index(f"    {comment}") + 1]
    assert "SR_TID.X;   # who" in shown and sorted(map(len, lines)) != sorted(map(len, SCALE.split("\n")))
    assert listing(shown, reorder=True)[0] == shown


def test_labels_keep_their_places() -> None:
    text = SCALE.replace("    # doubled", "HERE:\n    # doubled").replace("    EXIT", "@P0 BRA HERE;\n    EXIT")
    shown, _ = listing(text, reorder=True)
    above = shown[: shown.index("HERE:")]
    assert above.count("LDG") == 1 and "FMUL" not in above
    assert turingas.assemble(shown).texts[0].words == turingas.schedule(text, reorder=True).texts[0].words


def test_inline_python() -> None:
    text = "MOV R0, {2*3};\nLDS R4, [R8];\nFADD R5, R4, R4;\nLDS R6, [R8+0x4];\nFADD R7, R6, R6;\nEXIT;\n"
    shown, _ = listing(text, reorder=True)
    assert [line.split()[1] for line in shown.splitlines()][:3] == ["LDS", "MOV", "LDS"]
    assert turingas.assemble(shown).texts[0].words == turingas.schedule(text, reorder=True).texts[0].words


def test_lines_of_the_source_follow() -> None:
    """What the linter and the CPU device say of an instruction names the line that it was written in."""
    kernel = turingas.schedule(SCALE, reorder=True).texts[0]
    rows = SCALE.split("\n")
    for (_, line), word in zip(kernel.lines, kernel.words):
        if line:
            assert turingas.decode([word], "sm_90")[0].split()[1] == rows[line - 1].split()[0].strip(";")


def test_command(tmp_path: Path) -> None:
    source, cubin = tmp_path / "scale.sass", tmp_path / "scale.cubin"
    source.write_text(SCALE)

    def call(*args: object) -> str:
        command = [sys.executable, "-m", "turingas", "schedule", *map(str, args)]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    assert call(source, "--reorder") == listing(SCALE, reorder=True)[0]
    call(source, "-o", cubin)
    call(cubin, "--all", "--reorder", "-o", tmp_path / "new.cubin")
    made = Cubin.from_file(tmp_path / "new.cubin")
    assert made.texts[0].words == turingas.schedule(SCALE, reorder=True).texts[0].words


def test_explained() -> None:
    """What stays in order because nobody can tell whether it may not is said."""
    text = "STL [R2], R0;\nLDL R1, [R3];\nLDL R4, [R2+0x4];\nFADD R5, R1, R4;\nEXIT;\n"
    _, notes = listing(text, reorder=True, filename="a.sass")
    assert notes == ["a.sass:2: stays behind STL at 0x0000: they may touch the same bytes"]


# -- cubins

LINES = """extern "C" __global__ void k(float *x, float *y, int n) {
    int t = threadIdx.x;
    float a = x[t] * 2;
    a += x[t + 32] * 3;
    for (int i = 0; i < n; i++) {
        a += __shfl_down_sync(~0, x[i * 32 + t], 1);
        y[i * 32 + t] = a * a;
    }
    y[t] = a;
}
"""


@pytest.mark.skipif(nvrtc.library_path() is None, reason="NVRTC is not installed")
@pytest.mark.parametrize("arch", ["sm_75", "sm_90"])
def test_lines_and_attributes_of_a_cubin_follow(arch: str) -> None:
    """Each instruction keeps its line (-lineinfo), and what attributes name is the same instruction as before."""
    before = Cubin.from_bytes(nvrtc.compile_source(LINES, arch, ("-lineinfo",), name="k.cu"))
    after = Cubin.from_bytes(again(before, reorder=True)[0].to_bytes())

    def bodies(cubin: Cubin) -> list[str]:
        return [text.split("  ", 1)[1].replace(".reuse", "") for text in turingas.decode(cubin.texts[0].words, arch)]

    def named(cubin: Cubin) -> dict[str, list[str]]:
        texts = bodies(cubin)
        return {
            info.name: sorted(texts[at // 16] for at in info.words)
            for info in cubin.texts[0].attributes
            if info.name.endswith("INSTR_OFFSETS")
        }

    old, new = (sorted(zip(bodies(cubin), cubin.texts[0].lines)) for cubin in (before, after))
    assert bodies(before) != bodies(after) and old == new
    assert named(before) == named(after) and "COOP_GROUP_INSTR_OFFSETS" in named(before)



FILES = ("halves.cu", "groups.cu", "halves.cu", "carries.sass", "warps.cu", "groups.cu")
_AGAIN: dict[bytes, bytes] = {}


def check(case: Case, arch: str) -> None:
    data = case.cubin(arch)
    if data not in _AGAIN:
        cubin = Cubin.from_bytes(data)
        made = again(cubin, reorder=True)[0]
        moved = [reorder(kernel).order != list(range(len(kernel.words))) for kernel in cubin.texts]
        assert case.source == "parts.sass" or any(moved)
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
@pytest.mark.parametrize("arch, source", list(zip(ARCHS, FILES)))
def test_kernels_run_as_before(arch: str, source: str) -> None:
    """A file of test kernels on each architecture, in strict mode; the rest with ``make test-slow``."""
    for case in CASES:
        if arch in case.archs and case.source == source:
            check(case, arch)


@pytest.mark.slow
@pytest.mark.skipif(nvrtc.library_path() is None, reason="NVRTC is not installed")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_kernel_runs_as_before(case: Case) -> None:
    for arch in case.archs:
        check(case, arch)


def test_a_line_of_several_instructions_has_one_note() -> None:
    """Inline Python makes many instructions of one line: what is told of all of them is told once."""
    source = """.arch sm_90
.kernel k
.shared 1024
    MOV R0, RZ;
    MOV R2, RZ;
    MOV R4, RZ;
<code>
for n in range(3): out_ += "    STS [R0], R4;\\n    LDS R4, [R2];\\n"
</code>
    EXIT;
"""
    _, notes = listing(source, reorder=True)
    assert notes and len(set(notes)) == len(notes) and all("they may touch the same bytes" in note for note in notes)


def test_records_of_attributes_stay_whole() -> None:
    """Each begins with the address of its instruction; they stand in the order of these."""
    records = [(0, 0xFF, 32, 9), (16, 0xFE, 8, 1)]
    lines = ["--:-:-:-:5  NOP;", "--:-:-:-:5  NOP;", "--:-:-:-:5  EXIT;"]
    kernel = turingas.assemble("\n".join(lines), "sm_80").kernel("kern")
    kernel.attributes = [nvinfo.sval("MBARRIER_INSTR_OFFSETS", *records[0], *records[1])]
    put(kernel, [1, 0, *range(2, len(kernel.words))])
    assert kernel.attributes[0].words == (0, *records[1][1:], 16, *records[0][1:])


def test_products_of_a_warp_group_begin_before_other_work() -> None:
    """Whoever waits for all of them has the other work done meanwhile, as ptxas has it."""
    work = [f"IADD3 R{40 + n}, R{40 + n}, 0x1, RZ;" for n in range(8)]
    lines = [*work, "WARPGROUP.ARRIVE;", "HGMMA.64x64x16.F32 R0, gdesc[UR4], R0;", "UIADD3 UR8, UR8, 0x2, URZ;",
             "HGMMA.64x64x16.F32 R0, gdesc[UR8], R0, gsb0;", *work, "WARPGROUP.DEPBAR.LE gsb0, 0x0;",
             "EXIT;"]  # fmt: skip
    kernel = turingas.assemble("\n".join([".arch sm_90a", ".kernel k", ".registers 64", *lines])).texts[0]
    names = [lines[n].split()[0].split(".")[0].strip(";") for n in reorder(kernel).order[: len(lines)]]
    first, last = names.index("HGMMA"), len(names) - 1 - names[::-1].index("HGMMA")
    assert last - first <= 3 and names.index("WARPGROUP", last) - last > 6, names


def batches(first: int, second: int) -> str:
    """A loop that loads some words, and, behind a barrier, others at addresses that are made in the same registers."""
    lines = [f"LDG.E R{8 + n}, desc[UR4][R2.64+{128 * n:#x}];" for n in range(first)] + ["BAR.SYNC 0x0;"]
    for n in range(second):
        if n < first:
            lines.append(f"STS [R1+{128 * n:#x}], R{8 + n};")
        lines += ["IMAD.WIDE R4, R6, 0x4, R2;", f"LDG.E R{30 + n}, desc[UR4][R4.64+{128 * (first + n):#x}];"]
    lines += [f"STS [R1+{128 * (first + n):#x}], R{30 + n};" for n in range(second)]
    begin = [*(f"MOV R{n}, 0x4;" for n in range(8)), "ULDC.64 UR4, c[0x0][0x208];"]
    end = ["BAR.SYNC 0x0;", "IADD3 R6, R6, -0x1, RZ;", "ISETP.NE.AND P0, PT, R6, RZ, PT;", "@P0 BRA loop;", "EXIT;"]
    head = [".arch sm_90", ".kernel k", ".registers 64", ".shared 4096"]
    return "\n".join([*head, *begin, "loop:", *lines, *end])


@pytest.mark.parametrize("first, second", [(4, 4), (8, 8), (8, 16)])
def test_batches_of_loads_do_not_wait_for_each_other(first: int, second: int) -> None:
    """Six scoreboards are not many for two batches that are under way together: neither has one with the other."""

    def cycles(cubin: Cubin) -> int:
        graph = Graph(cubin.texts[0])
        loop = graph.blocks[graph.loops[0].header]
        return walk(graph.instructions[loop.start : loop.end], True)[0]

    source = batches(first, second)
    given = cycles(turingas.schedule(source, keep=False))
    made = turingas.schedule(source, keep=False, reorder=True)
    assert cycles(made) < given - 400, (cycles(made), given)
    assert not [f for f in turingas.lint(made) if f.severity != "note"]
