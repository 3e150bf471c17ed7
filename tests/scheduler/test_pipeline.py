"""Loops whose rounds overlap: the same bits in strict mode for any number of rounds, clean for the linter, sooner."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import example, given, settings
from hypothesis import strategies as st

import turingas
from kernels_sass.learn.measure import FOLDER
from tests.kernels.cases import ARCHS as KERNELS
from tests.kernels.cases import CASES, difference
from tests.tools import nvrtc
from turingas.assembler.schedule import listing
from turingas.cli import main
from turingas.cubin.cubin import Cubin
from turingas.emulate import launch
from turingas.scheduler import pipeline
from turingas.scheduler.modulo import START, Arc, Modulo

# -- the scheduler alone


def test_a_chain_and_a_table() -> None:
    """Two loads and a sum: the pipe of the loads bounds the interval, and then the sum's own latency."""
    uses = [[("issue", 1), ("lsu", 4)], [("issue", 1), ("lsu", 4)], [("issue", 1), ("fma", 1)]]
    ends = [Arc(v, START, 1, 4) for v in range(3)]
    arcs = [Arc(0, 2, 20, 0), Arc(1, 2, 20, 0)]
    wide = Modulo(uses, [*arcs, Arc(2, 2, 4, 1), *ends])
    assert (wide.bound, wide.least) == ("lsu", 8)
    found = wide.schedule(100)
    assert found is not None and found.ii == 8
    assert all(found.time[a.second] >= found.time[a.first] + a.cycles for a in arcs)
    slow = Modulo(uses, [*arcs, Arc(2, 2, 13, 1), *ends])
    assert (slow.bound, slow.least, slow.chain) == ("", 13, [2])
    short = Modulo(uses, [*arcs, *[Arc(v, START, 1, 2) for v in range(3)]])  # too few rounds to hide 20
    assert short.least == 11 and short.schedule(11) is None and short.schedule(20) is not None


# -- loops

SUM = """.arch sm_90
.kernel sum
<params>
y, f32*
x, f32*
n, u32
</params>
    S2R R0, SR_TID.X;
    MOV R7, 0x4;
    MOV R8, n;
    MOV R9, RZ;
    IMAD.WIDE R2, R0, R7, x[0];
.schedule pipeline
loop:
    LDG.E R4, [R2];   # a word
    FFMA R9, R4, R4, R9;
    IADD3 R2, P1, R2, 0x80, RZ;
    IADD3.X R3, R3, RZ, RZ, P1, !PT;
    IADD3 R8, R8, -0x1, RZ;
    ISETP.NE.AND P0, PT, R8, RZ, PT;
    @P0 BRA loop;
.schedule on
    IMAD.WIDE R6, R0, R7, y[0];
    STG.E [R6], R9;
    EXIT;
"""


def notes_of(source: str, **more: bool) -> str:
    return "\n".join(listing(source, **more)[1])


def summed(cubin: Cubin, rounds: int) -> np.ndarray:
    y, x = np.zeros(32, np.float32), np.random.default_rng(1).standard_normal((rounds, 32)).astype(np.float32)
    report = launch(cubin, "sum", 1, 32, [y, x, np.uint32(rounds)], strict=True)  # a load behind x is an error
    assert not report.hazards
    return y


def clean(cubin: Cubin) -> bool:
    return not [f for f in turingas.lint(cubin) if f.severity != "note"]


def test_a_sum() -> None:
    plain, made = turingas.assemble(SUM.replace("pipeline", "reorder")), turingas.assemble(SUM)
    for rounds in range(1, 10):
        assert (summed(plain, rounds) == summed(made, rounds)).all()
    assert clean(made) and made.texts[0].registers <= 16
    told = "pipelined: 4 rounds under way, 3 more registers: 68 cycles a round by the model instead of 271"
    assert told in notes_of(SUM)


def test_other_architectures() -> None:
    for arch in ("sm_70", "sm_75", "sm_80", "sm_86"):
        made = turingas.assemble(SUM.replace("sm_90", arch))
        assert clean(made) and (summed(made, 6) == summed(turingas.assemble(SUM), 6)).all()


def test_the_listing_is_the_loop() -> None:
    """What is printed assembles to the same, and is left as it is then: its lines have codes."""
    text, _ = listing(SUM)
    assert "loop_rounds:\n" in text and text.count("LDG") == 4 and text.index("loop:") < text.index("loop_rounds:")
    assert turingas.assemble(text).texts[0].words == turingas.assemble(SUM).texts[0].words
    every, _ = listing(SUM.replace(".schedule pipeline\n", ""), pipeline=True)
    assert every == text.replace(".schedule pipeline\n", "")
    beside = SUM.replace("loop:\n", "loop:")
    assert listing(beside)[0].replace("loop:\n", "loop:") == text.replace("loop:\n", "loop:")


def test_registers_of_the_kernel() -> None:
    """No more than .registers says: with room for one, two loads are under way at the same time, and not four."""
    tight = SUM.replace("    MOV R9", "    MOV R1, RZ;\n    MOV R5, RZ;\n    MOV R9")
    tight = tight.replace(".kernel sum", ".kernel sum\n.registers 12")
    tight = tight.replace("    IMAD.WIDE R6", "    IADD3 R9, R9, R1, R5;\n    IMAD.WIDE R6")
    made = turingas.assemble(tight)
    assert made.texts[0].registers == 12 and (summed(made, 5) == summed(turingas.assemble(SUM), 5)).all()
    assert "2 rounds under way, 1 more register:" in notes_of(tight)


@pytest.mark.parametrize(("old", "new", "why"), [
    ("@P0 BRA loop", "BRA loop", "its branch back is not @P BRA"),
    ("    FFMA", "    @P3 BRA end;\n    FFMA", "it is 2 blocks"),
    ("    FFMA", "    NOP;\n    FFMA", "nothing moves across NOP"),
    ("    FFMA", "?:-:-:-:?  FFMA", "FFMA has a control code of yours"),
    ("    FFMA", "HERE:\n    FFMA", "a label or another .schedule stands in it"),
    ("    FFMA", "    @P3 FFMA", "has a guard of its own, which does not come from one compare"),
    ("    FFMA", "    @P0 IADD3 R9, R9, R9, RZ;\n    FFMA", "IADD3 has P0 for a guard, by which it goes on, before"),
    ("    FFMA", "    SEL R10, R4, R4, P0;\n    FFMA", "SEL reads P0"),
    ("ISETP.NE.AND P0, PT, R8, RZ, PT", "ISETP.NE.AND P0, PT, R8, RZ, P3", "cannot take the predicate of its round"),
    ("ISETP.NE.AND P0", "ISETP.NE.AND P0, P4, R8, RZ, PT;\n    ISETP.NE.AND P0", "2 instructions write P0"),
    ("    FFMA", "    STG.E [R2], R4;\n    FFMA", "would not take less"),
])  # fmt: skip
def test_what_is_left_as_it_is(old: str, new: str, why: str) -> None:
    source = SUM.replace(old, new).replace("    EXIT", "end:\n    EXIT")
    assert "not pipelined" in notes_of(source) and why in notes_of(source)
    assert "loop_rounds" not in listing(source)[0]


def test_a_guard_by_which_it_goes_on() -> None:
    """What runs only if another round comes: its guard becomes the next round's predicate."""
    source = SUM.replace("    @P0 BRA", "    @P0 IADD3 R10, R10, 0x1000, RZ;\n    @P0 BRA")
    source = source.replace("    MOV R9", "    MOV R10, RZ;\n    MOV R9")
    source = source.replace("    IMAD.WIDE R6", "    IADD3 R9, R9, R10, RZ;\n    IMAD.WIDE R6")
    made = turingas.assemble(source)
    assert ": pipelined: 3 rounds" in notes_of(source) and clean(made)
    for rounds in (1, 2, 3, 6):
        assert (summed(made, rounds) == summed(turingas.assemble(source.replace("pipeline", "on")), rounds)).all()


def test_step_3() -> None:
    """A loop of kernels_sass/learn, written for something else: a load with a guard of its own, which a compare of its
    round leaves; lanes without a word add nothing."""
    source = (FOLDER / "03_sum.sass").read_text()
    text, notes = listing(source, "sm_90", keep=False, pipeline=True)
    assert any(": pipelined: 3 rounds under way" in note for note in notes) and clean(turingas.assemble(text, "sm_90"))
    for n in (1, 500, 3000):
        x, found = np.random.default_rng(n).standard_normal(n).astype(np.float32), []
        for cubin in (turingas.assemble(source, "sm_90"), turingas.assemble(text, "sm_90")):
            sums = np.zeros(2, np.float32)
            report = launch(cubin, "sum", 2, 128, [x, sums, np.uint32(n)], strict=True, races=True)
            assert not report.hazards and not report.races
            found.append(sums)
        assert (found[0] == found[1]).all() and abs(found[0].sum() - x.sum()) < 1e-3


def test_a_cubin_is_no_source(tmp_path: Path) -> None:
    (tmp_path / "sum.cubin").write_bytes(turingas.assemble(SUM).to_bytes())
    done = CliRunner().invoke(main, ["schedule", str(tmp_path / "sum.cubin"), "--all", "--pipeline"])
    assert done.exit_code == 2 and "turingas disassemble" in done.output
    for option in ("--reorder", "--rename"):
        done = CliRunner().invoke(main, ["schedule", str(tmp_path / "sum.cubin"), option])
        assert done.exit_code == 2 and f"{option} needs --all" in done.output


# -- compiled loops


def compiled(arch: str, sources: Sequence[str]) -> list[str]:
    """What is told of the loops of test kernels, taken apart and pipelined; they run as before, strictly."""
    made: dict[bytes, tuple[Cubin, list[str]]] = {}
    for case in CASES:
        if arch not in case.archs or case.source not in sources:
            continue
        data = case.cubin(arch)
        if data not in made:
            text, notes = listing(turingas.disassemble(data), arch, keep=False, pipeline=True)
            made[data] = turingas.assemble(text, arch), [note for note in notes if ": pipelined: " in note]
            assert clean(made[data][0]), (case.name, arch)
        if made[data][1]:
            args, truth = case.build()
            cubin = made[data][0].to_bytes()
            report = launch(cubin, case.kernel, case.grid, case.block, args, shared=case.shared, strict=True)
            assert not report.hazards, (case.name, arch, report.hazards[0])
            for arg, wanted in zip(args, truth):
                assert wanted is None or not difference(arg, wanted, case.near), (case.name, arch)
    return [note for _, notes in made.values() for note in notes]


@pytest.mark.skipif(nvrtc.library_path() is None, reason="NVRTC is not installed")
def test_compiled_loops() -> None:
    assert len(compiled("sm_90", ["memory.cu"])) == 1


@pytest.mark.slow
@pytest.mark.skipif(nvrtc.library_path() is None, reason="NVRTC is not installed")
@pytest.mark.parametrize("arch", KERNELS)
def test_all_compiled_loops(arch: str) -> None:
    assert compiled(arch, [case.source for case in CASES])


# -- any loop

HEAD = """.arch {arch}
.kernel any
<params>
y, u32*
x, u32*
n, u32
</params>
.registers {registers}
.shared 1024
    S2R R0, SR_TID.X;
    MOV R1, 0x10;
    IMAD.WIDE R2, R0, R1, x[0];
    IMAD.WIDE R6, R0, R1, y[0];
    IMAD R5, R0, 0x10, RZ;
    LOP3.LUT R4, R0, {mask}, RZ, 0xc0, !PT;
    IADD3 R8, R4, n, RZ;
    {starts}
    ISETP.LT.AND P3, PT, R0, 0x7, PT;
.schedule {what}
loop:
    {body}
    @{sense}P0 BRA loop;
.schedule on
    {ends}
    EXIT;
"""
SUMS, TEMPORARY, PAIR = ("R10", "R11", "R12", "R13"), ("R16", "R17", "R18", "R19", "R20"), "R24"
ANY = (*SUMS, *TEMPORARY, "R24", "R25", "R0", "R8", "R2")
t, a, r, off = (st.sampled_from(one) for one in (TEMPORARY, SUMS, ANY, ("", "+0x4", "+0x8", "+0xc")))
LINES = st.one_of(
    st.builds("LDG.E {}, [R2{}]".format, t, off),
    st.builds("LDG.E.CONSTANT {}, [R2{}]".format, t, off),
    st.builds("LDG.E {}, [R6{}]".format, t, off),
    st.just("LDG.E.64 R24, [R2+0x8]"),
    st.builds("STG.E [R6{}], {}".format, off, r),
    st.builds("LDS {}, [R5{}]".format, t, off),
    st.builds("STS [R5{}], {}".format, off, r),
    st.builds("FFMA {0}, {1}, {2}, {0}".format, a, r, r),
    st.builds("IADD3 {0}, {1}, {2}, {0}".format, a, r, r),
    st.builds("FADD {}, {}, {}".format, t, r, r),
    st.builds("IADD3 {}, {}, {}, RZ".format, t, r, r),
    st.builds("LOP3.LUT {}, {}, {}, RZ, 0x3c, !PT".format, t, r, r),
    st.builds("IMAD {}, {}, {}, {}".format, t, r, r, r),
    st.builds("MUFU.RCP {}, {}".format, t, r),
    st.builds("I2F {}, {}".format, t, r),
    st.builds("ISETP.LT.AND P3, PT, {}, {}, PT".format, r, r),
    st.builds("SEL {}, {}, {}, P3".format, t, r, r),
    st.builds("@!P3 IADD3 {}, {}, {}, RZ".format, t, r, r),
    st.builds("ISETP.{}.AND P5, PT, {}, {}, PT;\n    @{}P5 LDG.E {}, [R2]".format, st.sampled_from(["GT", "NE"]), r, r,
              st.sampled_from(["", "!"]), t),
    st.builds("ISETP.{}.AND P5, PT, {}, {}, PT;\n    @{}P5 STG.E [R6+0x4], {}".format, st.sampled_from(["GT", "NE"]), r,
              r, st.sampled_from(["", "!"]), t),
    st.builds("ISETP.LT.OR P6, PT, {}, {}, !PT;\n    @P6 STG.E [R6], {}".format, r, r, r),
    st.just("IADD3 R6, P4, R6, 0x200, RZ;\n    IADD3.X R7, R7, RZ, RZ, P4, !PT"),
)
TOGETHER = st.one_of(  # of whole warps
    st.builds("SHFL.BFLY PT, {}, {}, 0x1, 0x1f".format, t, r), st.just("BAR.SYNC 0x0"),
    st.builds("STS [R5], {}".format, r), st.builds("LDS {}, [R5+0x10]".format, t),
)  # fmt: skip
LOAD = ("LDG.E {0}, [R2{1}]", "LDG.E.CONSTANT {0}, [R2{1}]", "LDS {0}, [R5{1}]", "I2F {0}, R8",
        "SHF.L.U32 {0}, R8, 0x3, RZ")  # fmt: skip
CHANGE = ("MUFU.RCP {0}, {0}", "FADD {0}, {0}, {2}", "ISETP.LT.AND P3, PT, {0}, {2}, PT;\n    SEL {0}, {0}, {2}, P3",
          "@!P3 IADD3 {0}, {0}, 0x1, RZ", "LOP3.LUT {0}, {0}, R8, RZ, 0x3c, !PT")  # fmt: skip
TAKE = ("FFMA {3}, {0}, {0}, {3}", "IADD3 {3}, {0}, {2}, {3}", "IMAD {3}, {0}, 0x3, {3}", "STS [R5{1}], {0}",
        "ISETP.GT.AND P5, PT, {0}, R0, PT;\n    @P5 IADD3 {3}, {3}, {0}, RZ",
        "ISETP.GT.AND P6, PT, {0}, R0, PT;\n    @!P6 LOP3.LUT {3}, {3}, {0}, RZ, 0x3c, !PT")  # fmt: skip
WORK = st.builds(  # what a loop is for: a value comes, changes, and goes into a sum
    lambda load, change, take, *names: ";\n    ".join([load, *change, take]).format(*names),
    st.sampled_from(LOAD), st.lists(st.sampled_from(CHANGE), max_size=2), st.sampled_from(TAKE),
    t, off, st.sampled_from(["R0", "R8"]), a,
)  # fmt: skip


@st.composite
def bodies(draw: st.DrawFn) -> tuple[str, str, bool]:
    """The lines of a loop, the sense of its branch, and whether all threads make the same number of rounds."""
    together = draw(st.booleans())
    lines = draw(st.lists(WORK, min_size=1, max_size=3))
    lines += draw(st.lists(st.one_of(LINES, TOGETHER) if together else LINES, max_size=3 if draw(st.booleans()) else 0))
    sense = draw(st.sampled_from(["", "!"]))
    compare = f"ISETP.{'EQ' if sense else 'NE'}.AND P0, PT, R8, RZ, PT"
    count, at = "IADD3 R8, R8, -0x1, RZ", draw(st.integers(0, len(lines)))
    later = [line for line in lines[at:] if "R8" not in line]
    next_one = st.builds(f"@{sense}P0 LDG.E {{}}, [R2{{}}]".format, t, off)
    if not sense:
        line = "ISETP.LT.AND P5, PT, {}, {}, P0;\n    @P5 LDG.E {}, [R2{}]"
        next_one = st.one_of(next_one, st.builds(line.format, r, r, t, off))
    ahead = draw(st.lists(next_one, max_size=1))
    step = ["IADD3 R2, P1, R2, 0x200, RZ", "IADD3.X R3, R3, RZ, RZ, P1, !PT"]
    return ";\n    ".join([*lines[:at], count, compare, *later, *step, *ahead]) + ";", sense, together


#: in the first pass, R20 must not be loaded for the round before, though the next one, whose guard it has, is wanted
NEXT = """IADD3 R8, R8, -0x1, RZ;
    ISETP.NE.AND P0, PT, R8, RZ, PT;
    LDG.E R16, [R2];
    LDG.E R16, [R2];
    FFMA R10, R10, R20, R10;
    IADD3 R2, P1, R2, 0x200, RZ;
    IADD3.X R3, R3, RZ, RZ, P1, !PT;
    @P0 LDG.E R20, [R2];"""
#: nor for a guard that the round before has not computed
OWN = NEXT.replace("@P0", "ISETP.NE.AND P5, PT, R8, 0x3, PT;\n    @!P5").replace("R20, [R2]", "R20, [R6]")


def ran(source: str, n: int, rounds: int) -> tuple[np.ndarray, np.ndarray]:
    cubin = turingas.assemble(source)
    assert clean(cubin), [f for f in turingas.lint(cubin) if f.severity != "note"][0]
    random = np.random.default_rng(n)
    x = random.integers(0, 1 << 32, 128 * rounds, np.uint32)
    y = np.zeros(128 * (rounds + 1) * 10, np.uint32)
    report = launch(cubin, "any", 1, 32, [y, x, np.uint32(n)], strict=True)
    assert not report.hazards, report.hazards[0]
    return x, y


def same(body: tuple[str, str, bool], arch: str, count: int, registers: int) -> None:
    """Pipelined, whatever the model says, and as it is: the same bits."""
    lines, sense, together = body
    starts = [f"IADD3 {name}, R0, {n:#x}, RZ;" for n, name in enumerate((*SUMS, *TEMPORARY, "R24", "R25"))]
    ends = ["IADD3 R13, R13, R8, RZ;", *[f"STG.E [R6+{4 * n:#x}], {name};" for n, name in enumerate(SUMS)]]
    known = {"arch": arch, "registers": registers, "mask": "RZ" if together else "0x3", "sense": sense,
             "body": lines, "starts": "\n    ".join(starts), "ends": "\n    ".join(ends)}  # fmt: skip
    plain, made = (HEAD.format(what=what, **known) for what in ("on", "pipeline"))
    with mock.patch.multiple(pipeline, GAIN=10, ROUNDS=(count,)):
        for n in (1, count, 7):
            wanted, found = ran(plain, n, n + 3), ran(made, n, n + 3)
            assert all((one == other).all() for one, other in zip(wanted, found)), n


ARCHS = ["sm_70", "sm_75", "sm_80", "sm_86", "sm_90"]


@settings(max_examples=6, deadline=None)
@given(bodies(), st.sampled_from(ARCHS), st.integers(2, 4), st.sampled_from([32, 40, 64]))
@example((NEXT, "", False), "sm_70", 2, 32)
@example((NEXT.replace("@P0", "ISETP.NE.AND P5, PT, R8, 0x3, P0;\n    @P5"), "", False), "sm_90", 3, 64)
@example((OWN, "", True), "sm_90", 3, 64)
def test_any_loop(body: tuple[str, str, bool], arch: str, count: int, registers: int) -> None:
    same(body, arch, count, registers)


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(bodies(), st.sampled_from(ARCHS), st.integers(2, 4), st.sampled_from([32, 40, 64]))
def test_many_loops(body: tuple[str, str, bool], arch: str, count: int, registers: int) -> None:
    same(body, arch, count, registers)
