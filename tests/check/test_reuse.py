"""Reuse flags: right ones give no finding; wrong and useless ones are told apart."""

from __future__ import annotations

import pytest

import turingas
from tests.cubin import cubins
from turingas.check import reuse
from turingas.check.finding import Finding
from turingas.cubin.cubin import Cubin
from turingas.cubin.model import Code, Kernel
from turingas.flow.graph import Graph
from turingas.isa import control

EXIT = "--:-:-:Y:5 EXIT"


def check(words: list[int] | str, arch: str = "sm_75") -> list[Finding]:
    if isinstance(words, str):
        words = turingas.encode(words, arch)
    return list(reuse.check(Graph(Kernel("k", arch, Code(words=words)))))


def told(lines: list[str], arch: str = "sm_75") -> list[tuple[str, str, int, int | None]]:
    found = check("\n".join([*lines, EXIT]), arch)
    return [(f.kind, f.severity, f.address // 16, None if f.other is None else f.other // 16) for f in found]


@pytest.mark.parametrize("arch", ["sm_70", "sm_75", "sm_80", "sm_86", "sm_89", "sm_90"])
def test_right(arch):
    pair = ["--:-:-:-:2 FFMA R1, R65, R80.reuse, R1", "--:-:-:-:2 FFMA R0, R64, R80, R0"]
    assert told(pair, arch) == []
    assert told([pair[0], "--:-:-:-:2 MOV R9, 0x1", pair[1]], arch) == []
    assert told([pair[0], pair[1].replace(":-:2", ":Y:2")], arch) == []  # it may find the register and then yield


@pytest.mark.parametrize(
    "following, other",
    [
        ("--:-:-:-:2 FFMA R0, R64, R82, R0", 1),  # another register in that place
        ("--:-:-:-:2 FFMA R0, R80, R64, R0", 1),  # the register in another place
        ("--:-:-:-:2 FADD R0, R64, R65", 2),  # nobody, before the EXIT that yields
        ("--:-:-:Y:2 FADD R0, R64, R65", 1),
    ],
)
def test_useless(following, other):
    assert told(["--:-:-:-:2 FFMA R1, R65, R80.reuse, R1", following]) == [("reuse-useless", "note", 0, other)]


def test_end_of_a_block():
    lines = ["--:-:-:-:2 FADD R1, R65, R80.reuse", "--:-:-:-:5 @P0 BRA 0x30", "--:-:-:-:2 FADD R2, R65, R80"]
    assert told(lines) == [("reuse-useless", "note", 0, None)]


@pytest.mark.parametrize(
    "lines",
    [
        ["--:-:-:-:4 FADD R80, R65, R80.reuse", "--:-:-:-:2 FADD R0, R64, R80"],
        ["--:-:-:-:4 FADD R1, R65, R80.reuse", "--:-:-:-:4 MOV R80, RZ", "--:-:-:-:2 FADD R0, R64, R80"],
        ["--:-:-:-:4 FADD R1, R65, R81.reuse", "--:-:0:-:4 LDS.64 R80, [R3]", "01:-:-:-:2 FADD R0, R64, R81"],
    ],
)
def test_stale(lines):
    """The register is written between its flag and its next reader."""
    assert told(lines) == [("reuse-stale", "error", len(lines) - 1, 0)]


@pytest.mark.parametrize("between, stale", [
    ("--:-:-:-:2 FADD R5, R64, R81", False),  # the place is read without a flag: nothing old is found there
    ("--:-:-:-:2 FADD R5, R64, R81.reuse", True),  # ... of the other bank, which keeps that
    ("--:-:-:-:2 FADD R5, R81, 0x1", True),  # another place
    ("--:-:-:-:2 MOV R5, 0x1", True),
])  # fmt: skip
def test_a_read_without_a_flag_takes_the_place(between, stale):
    for first, second in ((between, "--:-:-:-:4 MOV R80, RZ"), ("--:-:-:-:4 MOV R80, RZ", between)):
        lines = ["--:-:-:-:4 FADD R1, R65, R80.reuse", first, second, "--:-:-:-:2 FADD R0, R64, R80"]
        assert (("reuse-stale", "error", 3, 0) in told(lines, "sm_90")) == stale


def test_written_and_read_elsewhere():
    """A written register that is not taken from the cache does no harm."""
    lines = ["--:-:-:-:4 FADD R80, R65, R80.reuse", "--:-:-:-:2 FADD R0, R64, R82"]
    assert told(lines) == [("reuse-useless", "note", 0, 1)]


def test_lost_to_a_yield():
    lines = ["--:-:-:Y:2 FFMA R1, R65, R80.reuse, R1", "--:-:-:-:2 FFMA R0, R64, R80, R0"]
    assert told(lines) == [("reuse-lost", "warning", 0, None)]
    assert "R80" in check("\n".join([*lines, EXIT]))[0].message


def test_illegal():
    """Such a word cannot be written as an instruction, only as .word or by another assembler."""
    (word,) = turingas.encode("--:-:-:-:2 FFMA R1, R65, R80.reuse, R1")
    word &= ~(15 << control.STALL | 1 << control.YIELD)
    found = check([word, *turingas.encode(EXIT)])
    assert [(f.kind, f.severity) for f in found] == [("reuse-illegal", "error")]
    assert "stall 0" in found[0].message


@pytest.mark.parametrize("path", cubins.STORED, ids=lambda path: path.stem)
def test_compiled(path):
    """Compilers set flags that do nothing, and none that are wrong."""
    for kernel in Cubin.from_file(path).texts:
        assert {f.severity for f in reuse.check(Graph(kernel))} <= {"note"}


def test_place_of_b_behind_a_constant():
    """An immediate stands in the place of b, the register in that of c: its slot is b's still, as its flag is. ptxas
    keeps a register so for a shift that writes it (cuBLASLt 13, sm_86)."""
    kept = "--:-:-:-:1 SHF.R.S32.HI R20, RZ, R18.reuse, R19"
    lines = [kept, "--:-:-:-:1 SHF.R.S64 R18, RZ, R18, 0xfff00000", "--:-:-:-:2 LOP3.LUT R8, R17, R18, RZ, 0xc0, !PT"]
    assert told(lines, "sm_86") == []
    lines[1] = "--:-:-:-:1 SHF.R.S64 R18, RZ, 0xfff00000, R18"  # the register is c
    assert [kind for kind, *_ in told(lines, "sm_86")] == ["reuse-stale"]
