"""Control flow that leads nowhere, and barriers that some threads miss."""

from __future__ import annotations

import pytest

import turingas
from tests.cubin import cubins
from turingas.check import divergence, structure
from turingas.check.finding import Finding
from turingas.cubin.cubin import Cubin
from turingas.cubin.model import Code, Kernel
from turingas.flow.graph import Graph

EXIT = "--:-:-:Y:5 EXIT"


def check(lines: list[str] | list[int], arch: str = "sm_75") -> list[Finding]:
    words = [w for line in lines for w in ([line] if isinstance(line, int) else [])]
    if not words:
        words = turingas.encode("\n".join(str(line) for line in lines), arch)
    graph = Graph(Kernel("k", arch, Code(words=words)))
    return [*structure.check(graph), *divergence.check(graph)]


def told(lines: list[str], arch: str = "sm_75") -> list[tuple[str, str, int]]:
    return [(f.kind, f.severity, f.address // 16) for f in check(lines, arch)]


# -- ends and targets


def test_missing_exit():
    assert told(["--:-:-:-:4 MOV R0, RZ"]) == [("no-exit", "error", 0)]
    assert told(["--:-:-:-:4 MOV R0, RZ", EXIT]) == []
    assert told(["--:-:-:-:4 MOV R0, RZ", "--:-:-:Y:5 @P0 EXIT"]) == [("no-exit", "error", 1)]
    assert told([]) == [("no-exit", "error", 0)]


def test_missing_exit_of_assembled_source():
    """The assembler puts a branch to itself behind the code: the kernel would hang."""
    (kernel,) = turingas.assemble("--:-:-:-:4 MOV R0, RZ;\n--:-:-:-:4 MOV R1, RZ;").kernels
    assert [(f.kind, f.address) for f in structure.check(Graph(kernel))] == [("no-exit", 16)]
    (kernel,) = turingas.assemble("--:-:-:-:4 MOV R0, RZ;\n--:-:-:Y:5 EXIT;").kernels
    assert list(structure.check(Graph(kernel))) == []


HANG = ["--:-:-:Y:0 BRA {0}", "--:-:-:Y:0 NOP"]


@pytest.mark.parametrize("lines, severity", [
    (["--:-:-:-:4 MOV R0, RZ"], "note"),  # nothing is done: nobody launches it
    (["--:-:-:Y:5 BPT.TRAP 0x1"], None),  # a trap ends the kernel
    (["--:-:-:Y:5 @P0 BPT.TRAP 0x1"], "error"),
    (["--:-:-:-:2 STG.E.SYS [R2], R0"], "error"),
    (["--:-:-:-:4 MOV R0, RZ", "--:-:-:Y:5 @P0 EXIT"], "error"),
])  # fmt: skip
def test_compiled_stubs(lines, severity):
    """What compilers make of a body that cannot be reached falls into the branch to itself behind the code."""
    found = told([*lines, HANG[0].format(hex(16 * len(lines))), HANG[1]])
    assert found == ([] if severity is None else [("no-exit", severity, len(lines) - 1)])


def test_a_loop_without_end_is_no_missing_exit():
    assert told(["top:", "--:-:-:-:4 IADD3 R0, R0, 0x1, RZ", "--:-:-:Y:5 BRA top"]) == []


@pytest.mark.parametrize("target, says", [("0x400", "outside"), ("-0x10", "outside"), ("0x8", "middle")])
def test_bad_target(target, says):
    found = check([f"--:-:-:Y:5 @P0 BRA {target}", EXIT])
    assert [(f.kind, f.severity) for f in found] == [("bad-target", "error")] and says in found[0].message


def test_unknown_word():
    (mov, exit_) = turingas.encode(f"--:-:-:-:4 MOV R0, RZ\n{EXIT}")
    found = check([mov, 0xFFF, exit_])
    assert [(f.kind, f.severity, f.address) for f in found] == [("unknown-word", "warning", 16)]
    assert [f.kind for f in check([mov, exit_, 0xFFF])] == ["unreachable"]


def test_unreachable():
    lines = ["--:-:-:Y:5 BRA end", "--:-:-:-:4 MOV R0, RZ", "--:-:-:-:4 MOV R1, RZ", "end:", EXIT]
    found = check(lines)
    assert [(f.kind, f.severity, f.address) for f in found] == [("unreachable", "note", 16)]
    assert "the 1 that follow" in found[0].message
    assert told([lines[0].replace("BRA", "@P0 BRA"), *lines[1:]]) == []
    assert told([EXIT, "--:-:-:-:4 MOV R0, RZ", EXIT]) == [("unreachable", "warning", 1)]


def test_padding_is_not_unreachable():
    assert told([EXIT, "--:-:-:Y:0 BRA 0x10", *["--:-:-:Y:0 NOP"] * 4]) == []


def test_code_behind_an_unknown_branch():
    """A BRX without a table may lead anywhere."""
    assert told(["--:-:-:Y:5 BRX R2 -0x10", "--:-:-:-:4 MOV R0, RZ", EXIT]) == []


# -- barriers

TID = ["--:-:0:-:2 S2R R0, SR_TID.X", "01:-:-:Y:d ISETP.LT.AND P0, PT, R0, 0x40, PT"]
BAR = "--:-:-:Y:6 BAR.SYNC 0x0"
WORK = "--:-:-:-:4 MOV R1, RZ"


def test_guarded_barrier():
    found = check([*TID, BAR.replace("BAR", "@P0 BAR"), EXIT])
    assert [(f.kind, f.severity, f.address) for f in found] == [("divergent-barrier", "warning", 32)]
    assert "P0 holds" in found[0].message


@pytest.mark.parametrize("index", ["SR_TID.X", "SR_TID.Y", "SR_LANEID"])
def test_barrier_under_a_branch(index):
    lines = [TID[0].replace("SR_TID.X", index), TID[1], "--:-:-:Y:5 @P0 BRA meet", BAR, "meet:", WORK, EXIT]
    found = check(lines)
    assert [(f.kind, f.severity, f.address, f.other) for f in found] == [("divergent-barrier", "warning", 48, 32)]


def test_barrier_of_some_warps():
    """tid >> 5 is the same in a warp, and differs from the next one's."""
    shift = "01:-:-:-:4 SHF.R.U32.HI R0, RZ, 0x5, R0"
    lines = [TID[0], shift, TID[1].replace("01:", "--:"), "--:-:-:Y:5 @P0 BRA meet", BAR, "meet:", WORK, EXIT]
    assert [kind for kind, _, _ in told(lines)] == ["divergent-barrier"]


def test_barrier_in_a_loop_of_different_length():
    lines = [TID[0], "top:", BAR, "01:-:-:-:6 IADD3 R0, R0, -0x1, RZ", "--:-:-:Y:d ISETP.GT.AND P0, PT, R0, RZ, PT",
             "--:-:-:Y:5 @P0 BRA top", WORK, EXIT]  # fmt: skip
    assert [kind for kind, _, _ in told(lines)] == ["divergent-barrier"]


@pytest.mark.parametrize(
    "lines",
    [
        [*TID, "--:-:-:Y:5 @P0 EXIT", BAR, EXIT],  # threads that have ended are not waited for
        [*TID, "--:-:-:Y:5 @P0 BRA end", BAR, "end:", EXIT],
        [*TID, "--:-:-:Y:5 @P0 BRA other", BAR, "--:-:-:Y:5 BRA meet", "other:", BAR, "meet:", WORK, EXIT],
        [*TID, "--:-:-:Y:5 @P0 BRA meet", WORK, "meet:", BAR, EXIT],
        [*TID, "--:-:-:Y:5 @P0 BRA meet", "--:-:-:Y:6 BAR.SYNC 0x1, 0x40", "meet:", WORK, EXIT],  # a part of the block
        [*TID, "--:-:-:Y:5 @P0 BRA meet", "--:-:-:Y:6 BAR.SYNC R4, R4", "meet:", WORK, EXIT],  # it may be a part
        [*TID, "--:-:-:Y:5 @P0 BRA end", BAR, "end:", "--:-:-:-:5 BSYNC B0", EXIT],
        [*TID, "--:-:-:Y:5 @P0 BRA end", BAR, "end:", "--:-:-:-:6 MEMBAR.SC.VC", "03:-:-:Y:0 ERRBAR", EXIT],
        ["--:-:0:-:2 S2R R0, SR_CTAID.X", TID[1], "--:-:-:Y:5 @P0 BRA meet", BAR, "meet:", WORK, EXIT],
        ["--:-:0:-:2 LDG.E.SYS R0, [R2]", TID[1], "--:-:-:Y:5 @P0 BRA meet", BAR, "meet:", WORK, EXIT],  # not known
    ],
)
def test_barriers_that_are_right_or_not_known(lines):
    assert told(lines) == []


def test_an_index_against_what_is_not_known():
    """A parameter may be so that all threads decide alike."""
    compare = TID[1].replace("0x40", "c[0x0][0x160]")
    for lines in ([BAR.replace("BAR", "@P0 BAR")], ["--:-:-:Y:5 @P0 BRA meet", BAR, "meet:", WORK]):
        found = check([TID[0], compare, *lines, EXIT])
        assert [(f.kind, f.severity) for f in found] == [("divergent-barrier", "note")], lines
        assert "not known" in found[0].message


@pytest.mark.parametrize("path", cubins.STORED, ids=lambda path: path.stem)
def test_compiled(path):
    for kernel in Cubin.from_file(path).texts:
        assert list(structure.check(Graph(kernel))) == []
