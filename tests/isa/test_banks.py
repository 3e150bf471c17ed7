"""Register banks: which sources come from where, and what that costs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import turingas
from turingas.check import banks as finding
from turingas.cubin.model import Code, Kernel
from turingas.flow.graph import Graph
from turingas.isa import arch as arches
from turingas.isa import banks
from turingas.isa.instruction import Instruction, instruction
from turingas.isa.isa import instruction_set


def decode(text: str, arch: str) -> list[Instruction]:
    words = turingas.encode(text, arch)
    found = [instruction(instruction_set(arch), word, 16 * n) for n, word in enumerate(words)]
    return [i for i in found if i is not None]


def cycles(text: str, arch: str = "sm_75") -> list[int]:
    """Cycles that each line loses."""
    return [lost for _, _, lost in banks.walk(decode(text, arch), arches.arch(arch))]


def findings(text: str, arch: str = "sm_75") -> Iterator[object]:
    return finding.check(Graph(Kernel("k", arch, Code(words=turingas.encode(text, arch)))))


@pytest.mark.parametrize(
    "line, lost",
    [
        ("FFMA R0, R2, R4, R6", 1),
        ("FFMA R1, R3, R5, R7", 1),
        ("FFMA R1, R2, R4, R6", 1),  # where the result goes does not matter
        ("FFMA R0, R2, R4, R7", 0),
        ("FFMA R0, R2, R5, R6", 0),
        ("FFMA R0, R2, R2, R4", 0),  # one register twice is read once
        ("FFMA R0, R2, RZ, R6", 0),
        ("FFMA R0, R2, 1, R6", 0),
        ("FFMA R0, R2, c[0x0][0x160], R6", 0),
        ("FADD R0, R2, R4", 0),
        ("IMAD R0, R2, R4, R6", 1),
        ("IADD3 R0, R2, R4, R6", 1),
        ("LOP3.LUT R0, R2, R4, R6, 0x96, !PT", 1),
        ("HFMA2 R0, R2, R4, R6", 1),
        ("STG.E.SYS [R2], R4", 0),
    ],
)
@pytest.mark.parametrize("arch", ["sm_70", "sm_75"])
def test_volta_and_turing(line, lost, arch):
    assert cycles(f"--:-:-:-:2 {line}", arch) == [lost]
    assert len(list(findings(f"--:-:-:-:2 {line}", arch))) == lost


def test_one_more_cycle_each_time():
    line = "--:-:-:-:2 FFMA R0, R2, R4, R6\n"
    assert cycles(3 * line, "sm_75") == [1, 1, 1]
    assert cycles(3 * line.replace(":2", ":1"), "sm_90") == [0, 2, 2]  # three cycles to read, then the bank is behind
    assert cycles(3 * line.replace(":2", ":3"), "sm_90") == [0, 0, 0]


@pytest.mark.parametrize("second, lost", [("R1, R3, R5", 0), ("R1, R3, R6", 0), ("R1, R8, R6", 1), ("R8, R6, R10", 2)])
def test_second_instruction_of_ampere(second, lost):
    """Three even sources, then one, two or three more (Huerta et al., listing 3)."""
    text = f"--:-:-:-:1 FFMA R11, R10, R12, R14\n--:-:-:-:1 FFMA R13, {second}"
    for arch in ("sm_86", "sm_89", "sm_90"):
        assert cycles(text, arch) == [0, lost]


def test_reuse():
    """The pairs of Yan, Wang, Chu 2020, section 4.3, and the same without the flag."""
    pair = "--:-:-:-:2 FFMA R1, R65, R80.reuse, R1\n--:-:-:-:2 FFMA R0, R64, R80, R0"
    assert cycles(pair) == [0, 0]
    assert cycles(pair.replace(".reuse", "")) == [0, 1]


@pytest.mark.parametrize(
    "between, kept",
    [
        ("--:-:-:-:2 MOV R9, 0x1", True),  # reads nothing
        ("--:-:-:-:2 FMUL R9, R3, R5", True),  # reads the other bank in that place
        ("--:-:-:-:2 FMUL R9, R3, R80", False),  # finds it, and does not keep it
        ("--:-:-:-:2 FMUL R9, R3, R80.reuse", True),
        ("--:-:-:-:2 FMUL R9, R3, R6", False),  # takes its place
        ("--:-:-:-:2 FFMA R9, R3, R6, 0.5", False),  # and so does b where it stands at 64
        ("--:-:-:-:2 FMUL R9, R6, R3", True),  # another place
        ("--:-:-:-:2 FADD R9, R3, R6", True),  # FADD's second source is c
        ("--:-:-:Y:2 MOV R9, 0x1", False),  # yields
    ],
)
def test_how_long_a_register_is_kept(between, kept):
    text = f"--:-:-:-:2 FMUL R1, R65, R80.reuse\n{between}\n--:-:-:-:2 FFMA R0, R64, R80, R0"
    assert cycles(text)[-1] == (0 if kept else 1)


def test_flag_of_a_scale():
    """The flag of B is printed behind the scales of its blocks, too, which the model does not know."""
    text = "OMMA.SF.16864.F32.E2M1.E2M1.UE4M3.4X R4, R92, R96.reuse, R4, R0, R8.reuse, URZ"
    (word,) = turingas.encode(f"--:-:-:-:1  {text}", "sm_120a")
    made = instruction(instruction_set("sm_120a"), word)
    assert [number for (_, place), number, kept in banks.sources(made) if kept] == [96, 97]


def test_flag_of_an_instruction_that_yields():
    text = "--:-:-:Y:2 FADD R1, R65, R80.reuse\n--:-:-:-:2 FFMA R0, R64, R80, R0"
    assert cycles(text) == [0, 1]


def test_pure():
    """The cache that is asked is not changed."""
    (i,) = decode("--:-:-:-:2 FFMA R0, R2.reuse, R4, R6", "sm_75")
    cache = banks.Cache({(0, 24): 2})
    arch = arches.arch("sm_75")
    assert banks.conflict_cycles(i, banks.EMPTY, arch) == 1 and banks.conflict_cycles(i, cache, arch) == 0
    lost, left = banks.step(i, banks.EMPTY, arch)
    assert lost == 1 and left.kept == {(0, 24): 2} and cache.kept == {(0, 24): 2} and not banks.EMPTY.kept


def test_finding():
    (found,) = findings("--:-:-:-:2 MOV R0, RZ\n--:-:-:-:2 FFMA R0, R2, R4, R6\n--:-:-:Y:5 EXIT")
    assert found.kind == "bank-conflict" and found.severity == "note" and found.address == 16
    assert "1 cycle lost: R2 R4 R6 are read from the even register bank" in found.message and ".reuse" in found.hint
