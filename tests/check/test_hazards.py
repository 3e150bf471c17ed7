"""Hazards: each rule with a kernel that keeps it and one that breaks it."""

from __future__ import annotations

from dataclasses import replace

import pytest

import turingas
from tests.kernels import cases
from tests.tools import nvrtc
from turingas.check import hazards
from turingas.check.finding import Finding
from turingas.cubin.cubin import Cubin
from turingas.cubin.model import Code, CodeRelocation, Kernel
from turingas.flow.graph import Graph
from turingas.isa import control
from turingas.isa.instruction import instruction
from turingas.isa.isa import instruction_set

EXIT = "--:-:-:-:5 EXIT"
BARRIER_HOLDS = [("sm_70", 5), ("sm_75", 5), ("sm_80", 6), ("sm_86", 6), ("sm_89", 6), ("sm_90", 6)]


def findings(text: str, arch: str = "sm_75", **more: object) -> list[Finding]:
    words = turingas.encode(text.strip() + "\n" + EXIT, arch)
    return list(hazards.check(Graph(Kernel("kern", arch, Code(words=words), **more))))  # type: ignore[arg-type]


def kinds(text: str, arch: str = "sm_75", **more: object) -> list[tuple[str, int, int | None]]:
    """What is not a note: kind, number of the instruction, number of the other one."""
    found = [f for f in findings(text, arch, **more) if f.severity != "note"]
    return sorted((f.kind, f.address // 16, None if f.other is None else f.other // 16) for f in found)


def notes(text: str, arch: str = "sm_75") -> list[tuple[str, int]]:
    return [(f.kind, f.address // 16) for f in findings(text, arch) if f.severity == "note"]


# -- fixed latency


@pytest.mark.parametrize("arch", ["sm_70", "sm_75", "sm_80", "sm_86", "sm_89", "sm_90"])
def test_read_too_early(arch: str) -> None:
    line = "--:-:-:-:{} FADD R0, R1, R2\n--:-:-:-:1 FADD R3, R0, R2"
    assert kinds(line.format(2), arch) == [("raw-stall", 1, 0)]
    assert kinds(line.format(6), arch) == []


def test_data_from_the_tensor_pipe() -> None:
    """cuBLASLt 13 leaves 6 cycles on sm_90, as an H200 needs."""
    line = "--:-:-:Y:{} HFMA2.MMA R4, -RZ, RZ, 0, 0.0078125\n--:1:-:-:5 SYNCS.ARRIVE.TRANS64 RZ, [UR13+0x2000], R4"
    assert kinds(line.format(5), "sm_90") == [("raw-stall", 1, 0)]
    assert kinds(line.format(6), "sm_90") == []


def test_what_lies_between_counts() -> None:
    assert kinds("--:-:-:-:2 FADD R0, R1, R2\n--:-:-:-:2 NOP\n--:-:-:-:1 FADD R3, R0, R2") == []
    assert kinds("--:-:-:-:2 FADD R0, R1, R2\n--:-:-:-:1 NOP\n--:-:-:-:1 FADD R3, R0, R2") == [("raw-stall", 2, 0)]


def test_predicates_and_guards() -> None:
    text = "--:-:-:Y:{} ISETP.GT.AND P0, PT, R0, RZ, PT\n--:-:-:-:1 @P0 MOV R1, R2"
    assert kinds(text.format(5)) == [("raw-stall", 1, 0)]
    assert kinds(text.format("f")) == []
    assert kinds("--:-:-:-:3 ISETP.GT.AND P0, PT, R0, RZ, PT\n--:-:-:-:1 SEL R1, R2, R3, P0") == [("raw-stall", 1, 0)]


def test_r2p_writes_back_the_predicates_that_it_does_not_set() -> None:
    """An H200 lost the bits of the first of two R2P with other masks less than 5 cycles apart."""
    apart = "--:-:-:-:{} R2P PR, R0, 0x7\n--:-:-:-:5 R2P PR, R1, 0x38"
    assert kinds(apart.format(4), "sm_90") == [("raw-stall", 1, 0)]
    assert kinds(apart.format(5), "sm_90") == []
    assert kinds(apart.format(1).replace("0x38", "0x7f"), "sm_90") == []  # it sets all
    before = "--:-:-:-:{} ISETP.GT.AND P3, PT, R0, RZ, PT\n--:-:-:-:5 R2P PR, R1, 0x7"
    assert kinds(before.format(3), "sm_90") == [("raw-stall", 1, 0)]
    assert kinds(before.format(4), "sm_90") == []


def test_uniform_registers() -> None:
    assert kinds("--:-:-:-:1 UIADD3 UR4, UR5, UR6, URZ\n--:-:-:-:1 IADD3 R0, R1, UR4, RZ") == [("raw-stall", 1, 0)]
    assert kinds("--:-:-:-:8 UIADD3 UR4, UR5, UR6, URZ\n--:-:-:-:1 IADD3 R0, R1, UR4, RZ\n") == []


def test_wide_results_and_sources() -> None:
    """Of the pair, one register is enough."""
    assert kinds("--:-:-:-:2 FADD R3, R1, R0\n--:0:-:-:2 STG.E.64.SYS [R8], R2") == [("raw-stall", 1, 0)]
    assert kinds("--:-:-:-:2 FADD R9, R1, R0\n--:0:-:-:2 STG.E.64.SYS [R8], R2") == [("raw-stall", 1, 0)]
    assert kinds("--:-:-:-:2 FADD R4, R1, R0\n--:0:-:-:2 STG.E.64.SYS [R8], R2") == []


def test_loops_carry_results_back() -> None:
    text = """
    L:  --:-:-:-:6 FADD R1, R0, R2
        --:-:-:-:{} FADD R0, R3, R4
        --:-:-:-:1 @P0 BRA L
    """
    assert kinds(text.format(1)) == [("raw-stall", 0, 1)]
    assert kinds(text.format(6)) == []


def test_the_shortest_path_counts() -> None:
    text = """
        --:-:-:-:1 FADD R0, R1, R2
        --:-:-:-:1 @P0 BRA L
        --:-:-:-:8 NOP
    L:  --:-:-:-:1 FADD R3, R0, R2
    """
    assert kinds(text) == [("raw-stall", 3, 0)]
    assert kinds(text.replace("1 @P0", "5 @P0")) == []


def test_opposite_guards_do_not_meet() -> None:
    text = "--:-:-:-:1 @P0 MOV R0, R1\n--:-:-:-:1 {} MOV R2, R0"
    assert kinds(text.format("@!P0")) == []
    assert kinds(text.format("@P0")) == kinds(text.format("@P1")) == kinds(text.format("")) == [("raw-stall", 1, 0)]


def test_opposite_guards_meet_when_the_predicate_changed() -> None:
    text = """
        --:0:-:-:2 @P0 STG.E.SYS [R2], R0
        --:-:-:Y:f ISETP.GT.AND {}, PT, R4, RZ, PT
        --:-:-:-:1 @!P0 MOV R0, R1
        01:-:-:-:1 NOP
    """
    assert kinds(text.format("P0")) == [("war", 2, 0)]
    assert kinds(text.format("P1")) == []


def test_branches_tell_the_guard() -> None:
    text = """
        --:-:0:-:2 @P0 LDG.E.SYS R0, [R2]
        --:-:-:-:5 {} BRA L
        --:-:-:-:5 MOV R1, R0
        --:-:-:-:5 EXIT
    L:  01:-:-:-:1 NOP
    """
    assert kinds(text.format("@P0")) == []
    assert kinds(text.format("@!P0")) == kinds(text.format("@P1")) == [("raw", 2, 0)]


LOAD = "--:-:0:-:2 {} LDG.E.SYS R0, [R2]"
WAITS = "01:-:-:-:1 NOP"


@pytest.mark.parametrize("before, load, write, apart", [
    ("ISETP.GT.AND P0, P1, R4, RZ, PT", "@P0", "@P1", True),  # a comparison and its opposite
    ("ISETP.GT.OR P0, P1, R4, RZ, P2", "@!P0", "@!P1", False),  # ... is not known to be with .OR
    ("ISETP.GT.AND P0, PT, R4, RZ, P2", "@P0", "@!P2", True),  # P0 only where P2
    ("ISETP.GT.AND P0, PT, R4, RZ, P2", "@P0", "@P2", False),
    ("ISETP.GT.OR P0, PT, R4, RZ, P2", "@!P0", "@P2", True),
    ("ISETP.GT.OR P0, PT, R4, RZ, P2", "@P0", "@!P2", False),
    ("PLOP3.LUT P0, PT, P1, P2, PT, 0x80, 0x0", "@P0", "@!P1", True),  # P0 = P1 and P2
    ("PLOP3.LUT P0, PT, P1, P2, PT, 0xa8, 0x0", "@!P0", "@P1", True),  # P0 = P1 or P2
    ("PLOP3.LUT P0, PT, P1, P2, PT, 0xa8, 0x0", "@P0", "@!P1", False),
    ("PLOP3.LUT P0, PT, PT, PT, PT, 0x8, 0x0", "@P0", "", True),  # P0 is false
    ("PLOP3.LUT P0, PT, PT, PT, PT, 0x80, 0x0", "@P0", "", False),
    ("@!P1 R2P PR, RZ, 0x1", "@P0", "@!P1", True),  # P0 only where P1
    ("@P1 R2P PR, RZ, 0x1", "@P0", "@!P1", False),
    ("@P1 R2P PR, R5, 0x1", "@P0", "@!P1", False),
    ("@P1 PLOP3.LUT P0, PT, P2, PT, PT, 0x80, 0x0", "@P0", "@P1", False),
])  # fmt: skip
def test_what_a_predicate_was_made_from(before: str, load: str, write: str, apart: bool) -> None:
    text = f"--:-:-:Y:f {before}\n{LOAD.format(load)}\n--:-:-:-:1 {write} MOV R0, R1\n{WAITS}"
    assert kinds(text) == ([] if apart else [("waw", 2, 1)])
    again = text.replace("\n--:-:-:-:1", "\n--:-:-:Y:f ISETP.GT.AND P0, P1, R9, RZ, PT\n--:-:-:-:1")
    again = again.replace("MOV R0", "MOV R0", 1)
    if apart and write and "P2" not in write:  # the predicate that tells is another one by then
        assert kinds(again.replace("P0, P1, R9", f"{write.strip('@!')}, PT, R9")) == [("waw", 3, 1)]


@pytest.mark.parametrize("between, apart", [
    ("MOV R9, R8", True),
    ("ISETP.GT.AND P0, PT, R4, RZ, PT", False),
    ("@P1 ISETP.GT.AND P0, PT, R4, RZ, PT", False),
])  # fmt: skip
def test_a_way_tells_for_as_long_as_the_predicate_stands(between: str, apart: bool) -> None:
    """What runs on one way only does not meet what runs under the guard of the other, behind where they join."""
    text = f"""
        --:-:-:-:5 @!P0 BRA L
        {LOAD.format("")}
    L:  --:-:-:Y:f {between}
        --:-:-:-:1 @!P0 MOV R0, R1
        {WAITS}
    """
    assert kinds(text) == ([] if apart else [("waw", 3, 1)])
    assert kinds(text.replace("@!P0 MOV", "@P0 MOV")) == [("waw", 3, 1)]


def test_ways_are_told_apart_by_what_they_set() -> None:
    """P1 is true on one way and false on the other: behind them it tells which was gone."""
    text = """
        --:-:-:-:5 @P0 BRA L
        --:-:0:-:2 LDG.E.SYS R0, [R2]
        --:-:-:Y:d PLOP3.LUT P1, PT, PT, PT, PT, 0x8, 0x0
        --:-:-:-:5 BRA M
    L:  --:-:-:Y:d PLOP3.LUT P1, PT, PT, PT, PT, {}, 0x0
    M:  --:-:-:-:1 @P1 MOV R0, R1
        01:-:-:-:1 NOP
    """
    assert kinds(text.format("0x80")) == kinds(text.format("0x8")) == []
    assert kinds(text.format("0x80").replace("@P1", "@!P1")) == [("waw", 5, 1)]
    assert kinds(text.format("0x80").replace("BRA M", "NOP")) == [("waw", 5, 1)]


def test_a_guard_is_read_wherever_its_instruction_comes_by() -> None:
    """P0 becomes false where P1 is; who reads P0 too early may find it true."""
    text = "--:-:-:Y:{} @P1 PLOP3.LUT P0, PT, PT, PT, PT, 0x8, 0x0\n--:-:-:-:1 @P0 MOV R1, R2"
    assert kinds(text.format(4)) == [("raw-stall", 1, 0)]
    assert kinds(text.format("d")) == []


def test_guarded_writes_leave_what_was_there() -> None:
    text = "--:-:0:-:2 LDG.E.SYS R0, [R2]\n01:-:-:-:1 {} MOV R0, R1\n--:-:-:-:1 NOP\n--:-:-:-:1 MOV R3, R0"
    assert kinds(text.format("")) == kinds(text.format("@P0")) == [("raw-stall", 3, 1)]
    text = "--:-:-:-:1 MOV R0, R4\n--:-:-:-:1 {} MOV R0, R1\n--:-:-:-:1 @!P0 MOV R3, R0"
    assert kinds(text.format("@P0")) == [("raw-stall", 2, 0)]


# -- barriers

LDS_BEHIND = """
    --:-:-:-:2 STS [R2], R0
    --:-:-:-:{} BAR.SYNC{} 0x0
    --:-:0:-:2 LDS R4, [R8]
    01:-:-:-:2 NOP
"""


@pytest.mark.parametrize(("arch", "need"), BARRIER_HOLDS)
def test_a_barrier_takes_a_while_to_hold(arch: str, need: int) -> None:
    """An LDS 5 cycles behind BAR.SYNC.DEFER_BLOCKING read old data on an H200, ptxas leaves 6."""
    for mods in ("", ".DEFER_BLOCKING"):
        assert kinds(LDS_BEHIND.format(need - 1, mods), arch) == [("barrier-stall", 2, 1)]
        assert kinds(LDS_BEHIND.format(need, mods), arch) == []
    found = next(f for f in findings(LDS_BEHIND.format(need - 1, ""), arch) if f.severity == "error")
    assert found.message.startswith(f"LDS comes {need - 1} cycles behind a barrier")
    assert f"holds the warp only after {need}:" in found.message
    assert found.hint == "stall 1 more between the two"


@pytest.mark.parametrize(
    ("behind", "held_back"),
    [
        ("--:0:-:-:2 STS [R8], R4", True),
        ("--:0:-:-:2 STG.E desc[UR4][R8.64], R4", True),
        ("--:-:0:-:2 LDG.E R4, desc[UR4][R8.64]", True),
        ("--:0:-:-:2 RED.E.ADD.STRONG.GPU desc[UR4][R8.64], R4", True),
        ("--:-:-:-:6 BAR.SYNC 0x0", True),
        ("--:-:-:-:6 BAR.ARV 0x1, 0x40", True),
        ("--:-:0:-:2 S2R R4, SR_CLOCKLO", True),
        ("--:-:-:-:5 @P0 EXIT", True),
        ("--:-:-:-:5 FADD R4, R5, R6", False),
        ("--:-:-:-:2 NOP", False),
        ("--:-:-:-:4 DEPBAR.LE SB0, 0x0", False),
    ],
)
def test_what_a_barrier_holds_back(behind: str, held_back: bool) -> None:
    """What others may see, and what may see what others do; registers have no part in it."""
    text = f"--:-:-:-:{{}} BAR.{{}}\n{behind}\n3f:-:-:-:6 NOP"
    for kind in ("SYNC.DEFER_BLOCKING 0x0", "RED.POPC 0x0, P1"):
        assert kinds(text.format(1, kind), "sm_80") == ([("barrier-stall", 1, 0)] if held_back else [])
        assert kinds(text.format(6, kind), "sm_80") == []
    assert kinds(text.format(1, "ARV 0x0, 0x40"), "sm_80") == []  # nobody waits there


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90"])
def test_depbar_takes_a_while_to_hold(arch: str) -> None:
    """A BAR.SYNC 3 cycles behind a DEPBAR came before copies had landed on an H200; ptxas leaves 4. A barrier before it
    is not forgotten."""
    text = "--:-:-:-:{} DEPBAR.LE SB0, 0x1\n{}\n3f:-:-:-:6 NOP"
    for behind in ("--:-:0:-:2 LDS R4, [R8]", "--:-:-:-:6 BAR.SYNC 0x0", "--:-:-:-:5 @P0 EXIT"):
        assert kinds(text.format(3, behind), arch) == [("barrier-stall", 1, 0)]
        assert kinds(text.format(4, behind), arch) == []
    assert kinds(text.format(1, "--:-:-:-:5 FADD R4, R5, R6"), arch) == []
    found = next(f for f in findings(text.format(3, "--:-:0:-:2 LDS R4, [R8]"), arch) if f.severity == "error")
    assert found.message == "LDS comes 3 cycles behind DEPBAR, which holds the warp only after 4: " \
        "it may run before what it waits for"  # fmt: skip
    both = "--:-:-:-:1 BAR.SYNC 0x0\n--:-:-:-:{} DEPBAR.LE SB0, 0x1\n--:-:0:-:2 LDS R4, [R8]\n01:-:-:-:6 NOP"
    assert kinds(both.format(3), arch)[0] == ("barrier-stall", 2, 0) and kinds(both.format(5), arch) == []


def test_barriers_on_all_paths() -> None:
    """What lies between counts; a way in from elsewhere, and one on which no barrier was, do no harm."""
    text = """
        --:-:-:-:5 @P0 BRA M
        --:-:-:-:{} BAR.SYNC.DEFER_BLOCKING 0x0
    M:  --:-:-:-:{} FADD R0, R1, R2
    L:  --:-:0:-:2 LDS R4, [R8]
        01:-:-:-:4 IADD3 R9, R9, -0x1, RZ
        --:-:-:-:5 @P0 BRA L
    """
    assert kinds(text.format(1, 4), "sm_90") == kinds(text.format(4, 1), "sm_90") == [("barrier-stall", 3, 1)]
    assert kinds(text.format(1, 5), "sm_90") == kinds(text.format(5, 1), "sm_90") == []
    apart = "--:-:-:-:{} @P0 BAR.SYNC 0x0\n--:-:0:-:2 {} LDS R4, [R8]\n01:-:-:-:6 NOP"
    assert kinds(apart.format(1, "@!P0"), "sm_90") == []
    assert kinds(apart.format(1, "@P0"), "sm_90") == kinds(apart.format(5, ""), "sm_90") == [("barrier-stall", 1, 0)]


# -- variable latency


def test_products_of_a_warp_group_accumulate_in_order() -> None:
    first = "--:-:-:-:4 HGMMA.64x64x16.F32 R24, gdesc[UR4], R24"
    assert kinds(f"{first}\n{first}", "sm_90a") == []
    assert kinds(f"{first}\n{first.replace('R24', 'R32')}", "sm_90a") == [("raw-stall", 1, 0)]  # not the same registers
    assert kinds(f"{first}\n--:-:-:-:1 FADD R0, R24, R1", "sm_90a") == [("raw-stall", 1, 0)]


@pytest.mark.parametrize(("first", "second", "need"), [
    ("WARPGROUP.ARRIVE", "HGMMA.64x64x16.F32 R24, gdesc[UR4], RZ, !UPT", 6),
    ("HGMMA.64x64x16.F32 R24, gdesc[UR4], R24", "HGMMA.64x64x16.F32 R24, gdesc[UR8], R24, gsb0", 4),
    ("HGMMA.64x64x16.F32 R24, gdesc[UR4], R24, gsb0", "WARPGROUP.DEPBAR.LE gsb0, 0x0", 3),
])  # fmt: skip
def test_distances_within_a_warp_group(first: str, second: str, need: int) -> None:
    for stall in (need - 1, need):
        expected = [] if stall == need else [("barrier-stall", 1, 0)]
        assert kinds(f"--:-:-:-:{stall} {first}\n--:-:-:-:2 {second}", "sm_90a") == expected


def test_result_without_wait() -> None:
    text = "--:-:0:-:2 LDG.E.SYS R0, [R2]\n{}:-:-:-:5 IADD3 R4, R0, R5, RZ"
    assert kinds(text.format("--")) == kinds(text.format("02")) == [("raw", 1, 0)]
    assert kinds(text.format("01")) == []


def test_result_overwritten() -> None:
    text = "--:-:0:-:2 LDG.E.SYS R0, [R2]\n{}:-:-:-:5 MOV R0, R5"
    assert kinds(text.format("--")) == [("waw", 1, 0)]
    assert kinds(text.format("01")) == []


def test_result_without_scoreboard() -> None:
    text = "--:-:-:Y:f LDG.E.SYS R0, [R2]\n3f:-:-:-:5 IADD3 R4, {}, R5, RZ"
    assert kinds(text.format("R0")) == [("no-scoreboard", 1, 0)]
    assert kinds(text.format("R1")) == []


def test_wait_on_one_path_only() -> None:
    text = """
        --:-:0:-:2 LDG.E.SYS R0, [R2]
        --:-:-:-:5 @P0 BRA L
        {}:-:-:-:5 NOP
    L:  {}:-:-:-:5 MOV R4, R0
    """
    assert kinds(text.format("01", "--")) == [("raw", 3, 0)]
    assert kinds(text.format("--", "01")) == []


def test_predicates_of_a_shuffle() -> None:
    text = "--:-:0:-:2 SHFL.IDX P0, R0, R1, R2, 0x1f\n{}:-:-:-:5 @P0 MOV R4, R5"
    assert kinds(text.format("--")) == [("raw", 1, 0)]
    assert kinds(text.format("01")) == []


def test_order_of_a_queue() -> None:
    """Who waits for the second LDS has waited for the first; loads from global memory come in any order."""
    text = "--:-:-:-:2 {0} R0, [R2]\n--:-:0:-:2 {0} R4, [R2+0x80]\n01:-:-:-:5 FADD R6, R0, R4"
    assert kinds(text.format("LDS.U")) == []
    assert kinds(text.format("LDG.E.SYS")) == [("no-scoreboard", 2, 0)]
    assert kinds("--:-:-:-:2 LDS.U R0, [R2]\n--:-:0:-:2 MUFU.RCP R4, R5\n01:-:-:-:5 FADD R6, R0, R4") == [
        ("no-scoreboard", 2, 0)
    ]


# -- sources


def test_source_overwritten() -> None:
    text = "--:{}:-:-:2 STG.E.SYS [R2], R0\n{}:-:-:-:5 MOV {}, R5"
    assert kinds(text.format("0", "--", "R0")) == kinds(text.format("0", "--", "R3")) == [("war", 1, 0)]
    assert kinds(text.format("0", "01", "R0")) == kinds(text.format("0", "--", "R1")) == []
    assert kinds(text.format("-", "3f", "R0")) == [("no-scoreboard", 1, 0)]


def test_sources_are_read_when_the_result_is_there() -> None:
    assert kinds("--:-:0:-:2 LDG.E.SYS R0, [R2]\n01:-:-:-:5 MOV R2, R5") == []
    assert kinds("--:1:0:-:2 LDG.E.SYS R0, [R2]\n02:-:-:-:5 MOV R2, R5") == []
    assert kinds("--:1:0:-:2 LDG.E.SYS R0, [R2]\n02:-:-:-:5 MOV R4, R0") == [("raw", 1, 0)]


@pytest.mark.parametrize("known", [True, False])
def test_sources_and_results_are_told_apart(known: bool) -> None:
    """On one way the sources of the load have been read, and its result is still to come; on the other both are open,
    but P2 is false there. (Codes that the scheduler makes of csrmv_v3_transpose_kernel of cuSPARSE 12.5.)"""
    text = f"""
--:-:-:Y:d PLOP3.LUT P2, PT, PT, PT, PT, {"0x8" if known else "0x80"}, 0x0
--:4:5:-:2 LDG.E.SYS R0, [R2]
--:-:-:-:5 @P1 BRA 0x60
--:-:-:-:4 SHFL.IDX PT, R3, R22, RZ, 0x1f
--:-:0:-:4 SHFL.IDX PT, R4, R10, RZ, 0x1f
01:-:-:Y:d ISETP.NE.U32.AND P2, PT, R3, R4, PT
--:-:-:-:2 @P2 MOV R3, R5
0x30:-:-:-:1 MOV R6, R0"""
    assert kinds(text) == ([] if known else [("war", 6, 1)])


def test_sources_of_a_queue() -> None:
    text = "--:-:-:-:2 STG.E.SYS [R2], R0\n--:0:-:-:2 STG.E.SYS [R2+0x4], R1\n{}:-:-:-:5 MOV R0, R5"
    assert kinds(text.format("01")) == []
    assert kinds(text.format("--")) == [("no-scoreboard", 2, 0)]
    assert kinds("--:-:-:-:2 STG.E.SYS [R2], R0\n--:-:0:-:2 LDS.U R0, [R8]") == []  # the LDS comes later


def test_match_keeps_no_order_with_loads_and_stores() -> None:
    """On an H100 it overwrote the address of a RED that had not read it yet."""
    text = "--:0:-:-:2 STG.E.SYS [R2], R0\n{}:-:1:-:2 MATCH.ANY R2, R8"
    assert kinds(text.format("--")) == [("war", 1, 0)] and kinds(text.format("01")) == []


def test_barriers_flush_sources() -> None:
    assert kinds("--:-:-:-:2 STS [R2], R0\n--:-:-:-:6 BAR.SYNC 0x0\n--:-:-:-:5 MOV R0, R5") == []


# -- sources that are read late, without a queue


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_86", "sm_89", "sm_90"])
@pytest.mark.parametrize(
    ("reader", "writer"),
    [
        ("UIMAD.WIDE UR8, UR9, 0x4, UR32", "ULDC.64 UR32, c[0x0][0x160]"),
        ("UIMAD.WIDE UR8, UR9, 0x4, UR32", "UMOV UR33, UR4"),  # one of the pair
        ("UIMAD UR8, UR9, UR32, URZ", "VOTEU.ANY UR32, UPT, PT"),
        ("UIADD3 UR8, UR32, UR9, URZ", "UMOV UR32, UR4"),
    ],
)
def test_uniform_sources_overwritten_too_early(arch: str, reader: str, writer: str) -> None:
    """An H200 computes with the new value 1 and 2 cycles apart."""
    text = f"--:-:-:-:{{}} {reader}\n--:-:-:Y:f {writer}"
    for apart in (1, 2):
        assert kinds(text.format(apart), arch) == [("war-stall", 1, 0)]
    assert kinds(text.format(3), arch) == []
    between = text.format(1).replace("\n", "\n--:-:-:-:{} NOP\n")
    assert kinds(between.format(1), arch) == [("war-stall", 2, 0)]
    assert kinds(between.format(2), arch) == []


def test_an_own_result_does_not_hide_that_a_source_is_late() -> None:
    text = "--:-:-:-:{} UIADD3 UR32, UR32, 0x1, URZ\n--:-:-:-:1 UMOV UR32, UR4"
    assert ("war-stall", 1, 0) in kinds(text.format(2), "sm_90")
    assert ("war-stall", 1, 0) not in kinds(text.format(3), "sm_90")


@pytest.mark.parametrize(
    ("reader", "writer"),
    [
        ("UIMAD UR8, UR32, UR9, URZ", "UIADD3 UR32, UR4, UR5, URZ"),  # in order, in one pipe
        ("UIMAD UR8, UR9, UR10, URZ", "UMOV UR32, UR4"),
        ("UMOV UR8, UR32", "ULDC UR32, c[0x0][0x160]"),
        ("IADD3 R8, R9, UR32, RZ", "UMOV UR32, UR4"),  # vector instructions read at once
        ("UIMAD UR8, UR9, UR9, URZ", "MOV R32, R4"),
    ],
)
def test_who_may_overwrite_uniform_sources_at_once(reader: str, writer: str) -> None:
    assert kinds(f"--:-:-:-:1 {reader}\n--:-:-:-:1 {writer}", "sm_90") == []


def test_the_last_of_the_readers_counts() -> None:
    reads = "--:-:-:-:2 UIADD3 UR8, UR9, UR32, URZ\n--:-:-:-:{} UIADD3 UR10, UR9, UR32, URZ\n--:-:-:-:1 UMOV UR32, UR4"
    assert kinds(reads.format(2), "sm_90") == [("war-stall", 2, 1)]
    assert kinds(reads.format(3), "sm_90") == []
    # a writer between the two that keeps its order changes nothing (but is itself overtaken: 6 cycles on an H200)
    between = "--:-:-:-:1 UIADD3 UR8, UR9, UR32, URZ\n--:-:-:-:{} UIADD3 UR32, UR9, UR9, URZ\n--:-:-:-:1 UMOV UR32, UR4"
    assert kinds(between.format(1), "sm_90") == [("war-stall", 2, 0), ("waw-stall", 2, 1)]
    assert kinds(between.format(2), "sm_90") == [("waw-stall", 2, 1)]
    assert kinds(between.format(6), "sm_90") == []


def test_uniform_sources_and_guards() -> None:
    text = "--:-:-:-:1 @UP0 UIADD3 UR8, UR9, UR32, URZ\n--:-:-:-:1 {} UMOV UR32, UR4"
    assert kinds(text.format("@!UP0"), "sm_90") == []
    for guard in ("@UP0", "@UP1", "@!UP1", ""):
        assert kinds(text.format(guard), "sm_90") == [("war-stall", 1, 0)]
    first, second = "--:-:-:-:{} UIADD3 UR8, UR9, UR32, URZ\n", "--:-:-:-:1 @UP0 UIADD3 UR10, UR9, UR32, URZ\n"
    both = first + second + "--:-:-:-:1 UMOV UR32, UR4"
    assert kinds(both.format(2), "sm_90") == [("war-stall", 2, 1)]
    assert kinds(both.format(1), "sm_90") == [("war-stall", 2, 0), ("war-stall", 2, 1)]


def test_uniform_sources_on_all_paths() -> None:
    """Round a loop, and by the shorter of two ways."""
    loop = """
    L:  --:-:-:-:2 ULDC.64 UR32, c[0x0][0x160]
        --:-:-:-:{} UIMAD.WIDE UR8, UR9, 0x4, UR32
        --:-:-:-:1 @P0 BRA L
    """
    assert kinds(loop.format(1), "sm_90") == [("war-stall", 0, 1)]
    assert kinds(loop.format(2), "sm_90") == []
    ways = """
        --:-:-:-:1 UIMAD.WIDE UR8, UR9, 0x4, UR32
        --:-:-:-:{} @P0 BRA L
        --:-:-:-:8 NOP
    L:  --:-:-:-:2 UMOV UR33, UR4
    """
    assert kinds(ways.format(1), "sm_90") == [("war-stall", 3, 0)]
    assert kinds(ways.format(2), "sm_90") == []
    assert kinds(ways.format(1).replace("BRA L", "NOP").replace("L:", ""), "sm_90") == []


def test_uniform_sources_and_calls() -> None:
    call = """
        --:-:-:-:1 UIMAD UR8, UR9, UR32, URZ
        --:-:-:-:1 CALL.REL.NOINC F
        --:-:-:-:1 UMOV UR10, UR4
        --:-:-:-:5 EXIT
    F:  --:-:-:-:1 {}
        --:-:-:-:1 RET.REL.NODEC R20 0x0
    """
    assert kinds(call.format("UMOV UR32, UR4"), "sm_90") == [("war-stall", 4, 0)]
    assert kinds(call.format("UIADD3 UR9, UR10, UR4, URZ"), "sm_90") == [("war-stall", 2, 4)]
    assert kinds(call.format("UIADD3 UR9, UR11, UR4, URZ"), "sm_90") == []


def test_what_is_said_of_uniform_sources() -> None:
    text = "--:-:-:-:1 UIMAD.WIDE UR8, UR9, 0x4, UR32\n--:-:-:-:1 ULDC.64 UR32, c[0x0][0x160]"
    (found,) = (f for f in findings(text, "sm_90") if f.severity == "error")
    assert found.message.startswith("UR32 is overwritten 1 cycle behind an instruction that reads it late")
    assert "3" in found.message and found.hint == "stall 2 more between the two"
    assert found.text.startswith("ULDC.64") and found.other_text.startswith("UIMAD.WIDE")


# -- scoreboards


def test_wait_too_soon() -> None:
    text = "--:-:0:-:{} LDG.E.SYS R0, [R2]\n01:-:-:-:5 MOV R1, R0"
    assert kinds(text.format(1)) == [("wait-too-soon", 1, 0)]
    assert kinds(text.format(2)) == []


def test_scoreboard_counts() -> None:
    text = """
        --:-:0:-:2 TEX R0, R8, 0x0, 0x5a, 2D
        --:-:0:-:2 TEX R4, R8, 0x0, 0x5a, 2D
        --:-:-:-:4 DEPBAR.LE SB0, {}
        --:-:-:-:5 FADD R12, {}, R13
    """.replace("TEX R", "TEX.SCR R").replace(", R8, 0x0", ", R8, R10, 0x0")
    assert kinds(text.format("0x1", "R0"), "sm_75") == []
    assert kinds(text.format("0x0", "R4"), "sm_75") == []
    assert kinds(text.format("0x1", "R4"), "sm_75") == [("raw", 3, 1)]
    assert kinds(text.format("0x2", "R0"), "sm_75") == [("raw", 3, 0)]


@pytest.mark.parametrize("most", [1, 2])
def test_scoreboard_counts_what_a_guard_stops(most: int) -> None:
    """As NVRTC 12.9 does: tex1Dfetch under conditions, a DEPBAR for all of them."""
    text = f"""
        --:-:5:-:1 @!P0 TLD.SCR.LZ RZ, R0, R4, 0x0, 0x58, 1D, 0x1
        --:-:5:-:2 @!P1 TLD.SCR.LZ RZ, R10, R11, 0x0, 0x58, 1D, 0x1
        --:-:-:-:4 DEPBAR.LE SB5, {most:#x}
        --:-:-:-:2 @!P0 FMUL R17, R0, R0
    """
    assert kinds(text, "sm_80") == ([] if most == 1 else [("raw", 3, 0)])


def test_scoreboard_counts_anew_in_each_turn() -> None:
    text = """
    L:  --:-:0:-:2 TEX.SCR R0, R8, R10, 0x0, 0x5a, 2D
        --:-:-:-:4 DEPBAR.LE SB0, {}
        --:-:-:-:5 FADD R12, R0, R13
        --:-:-:-:5 @P0 BRA L
    """
    assert kinds(text.format("0x0"), "sm_75") == []
    assert kinds(text.format("0x1"), "sm_75") == [("raw", 2, 0)]


def test_depbar_waits_for_a_set() -> None:
    text = "--:-:2:-:2 LDG.E.SYS R0, [R2]\n--:-:-:-:4 DEPBAR.LE SB0, 0x1, {}\n--:-:-:-:5 MOV R1, R0"
    assert kinds(text.format("{2,1}")) == []
    assert kinds(text.format("{3,1}")) == [("raw", 2, 0)]


def test_scoreboard_that_is_never_released() -> None:
    assert kinds("--:-:0:-:2 FADD R0, R1, R2") == [("no-release", 0, None)]
    assert kinds("--:0:-:-:2 FADD R0, R1, R2") == [("no-release", 0, None)]
    assert kinds("--:0:-:-:2 STG.E.SYS [R2], R0\n") == []


def test_arithmetic_of_halves_releases_scoreboards_before_ampere() -> None:
    """NVIDIA's libraries have both kinds on it, on sm_70 and sm_75 (cuBLASLt's h884gemm); they have none on sm_80."""
    for text in (
        "--:-:0:-:5 HMUL2 R0, R1, R2",
        "--:0:-:-:5 HFMA2 R0, R1, R2, R3",
        "--:-:0:-:5 HSETP2.LT.AND P0, P1, R0, R1, PT",
    ):
        text += "\n01:-:-:-:5 NOP"
        assert kinds(text, "sm_70") == kinds(text, "sm_75") == []
        assert kinds(text, "sm_80") == [("no-release", 0, None)]


def test_never_waited() -> None:
    assert notes("--:-:0:-:2 LDG.E.SYS R0, [R2]") == [("never-waited", 0)]
    assert notes("--:-:0:-:2 LDG.E.SYS R0, [R2]\n01:-:-:-:2 NOP") == []


def test_nothing_pending() -> None:
    assert notes("01:-:-:-:2 NOP") == [("nothing-pending", 0)]
    assert notes("--:-:0:-:2 LDG.E.SYS R0, [R2]\n03:-:-:-:2 NOP\n01:-:-:-:1 NOP") == [
        ("nothing-pending", 1),
        ("nothing-pending", 2),
    ]
    join = "--:-:-:-:5 @P0 BRA L\n--:-:0:-:2 LDG.E.SYS R0, [R2]\nL: 01:-:-:-:2 NOP"
    assert notes(join) == []
    many = [f.message for f in findings("01:-:-:-:2 NOP\n" * 25)]
    assert len(many) == hazards.MOST_IDLE and "15 more instructions" in many[-1]


# -- calls

CALLS = """
    --:-:0:-:2 LDG.E.SYS R0, [R2]
    --:-:-:-:5 CALL.REL.NOINC F
    --:-:-:-:5 CALL.REL.NOINC F
    --:-:-:-:5 {}
    --:-:-:-:5 EXIT
 F: {}
    --:-:-:-:5 RET.REL.NODEC R20 0x0
"""


def test_functions_begin_with_what_is_under_way() -> None:
    assert kinds(CALLS.format("NOP", "--:-:-:-:5 MOV R1, R0")) == [("raw", 5, 0)]
    assert kinds(CALLS.format("MOV R1, R0", "01:-:-:-:5 NOP")) == []
    assert kinds(CALLS.format("MOV R1, R0", "--:-:-:-:5 NOP")) == [("raw", 3, 0)]
    assert kinds(CALLS.format("MOV R1, R8", "--:-:1:-:2 LDG.E.SYS R8, [R2]")) == [("raw", 3, 5), ("waw", 5, 5)]


def test_calls_do_not_mix() -> None:
    """What is under way at one call is none of the business of another."""
    text = """
        --:-:-:-:5 @P0 BRA L
        --:-:0:-:2 LDG.E.SYS R0, [R2]
        --:-:-:-:5 CALL.REL.NOINC F
        01:-:-:-:5 EXIT
    L:  --:-:-:-:5 CALL.REL.NOINC F
        --:-:-:-:5 MOV R1, R0
        --:-:-:-:5 EXIT
    F:  --:-:-:-:5 RET.REL.NODEC R20 0x0
    """
    assert kinds(text) == []


def test_only_a_function_itself_returns() -> None:
    """A call that never comes back (compilers leave a loop so) is not returned from where another function returns."""
    text = """
    T:  --:-:-:-:5 MOV R0, R1
        --:-:-:-:5 @P1 CALL.REL.NOINC L
        --:-:-:-:5 BRA T
    L:  --:-:-:-:5 CALL.REL.NOINC F
        01:-:-:-:5 EXIT
    F:  --:-:0:-:2 LDG.E.SYS R0, [R2]
        --:-:-:-:5 RET.REL.NODEC R4 {}
    """
    assert kinds(text.format("0x0")) == []
    assert ("waw", 0, 5) in kinds(text.replace("@P1 CALL.REL.NOINC L", "@P1 CALL.REL.NOINC F").format("0x0"))


def test_calls_elsewhere_leave_nothing() -> None:
    text = "--:-:0:-:2 LDG.E.SYS R0, [R2]\n--:-:-:-:5 CALL.ABS.NOINC 0x0\n--:-:-:-:5 MOV R1, R0"
    assert kinds(text, relocations=[CodeRelocation(16, 57, "other", 0)]) == []


# -- no false alarms


@pytest.mark.sample(2)
@pytest.mark.skipif(nvrtc.library_path() is None, reason="NVRTC is not installed")
@pytest.mark.parametrize("arch", ["sm_70", "sm_75", "sm_80", "sm_86", "sm_89", "sm_90"])
def test_compiled_code_is_right(arch: str) -> None:
    """NVRTC knows the hardware: what it makes of the test kernels has no hazard."""
    wrong = []
    for source in sorted({case.source for case in cases.CASES if arch in case.archs and case.source.endswith(".cu")}):
        for kernel in turingas.Cubin.from_bytes(cases.cubin(source, arch)).texts:
            wrong += [str(f) for f in hazards.check(Graph(kernel)) if f.severity != "note"]
    assert wrong == []


# -- what a finding says


def test_a_finding_names_both() -> None:
    words = turingas.encode("--:-:-:-:1 FADD R0, R1, R2\n--:-:-:-:1 FADD R3, R0, R2\n" + EXIT)
    kernel = Kernel("kern", "sm_75", Code(words=words))
    kernel.lines = [("k.sass", 7), ("k.sass", 8), ("k.sass", 9)]  # type: ignore[attr-defined,unused-ignore]
    finding = next(f for f in turingas.lint(kernel) if f.severity == "error")
    assert (finding.kind, finding.line, finding.address) == ("raw-stall", 8, 16)
    assert (finding.other, finding.other_line, finding.file, finding.kernel) == (0, 7, "k.sass", "kern")
    text = str(finding)
    assert text.startswith("k.sass:8: error: kern+0x0010: R0 is read 1 cycle after it is written")
    assert "FADD R0, R1, R2" in text and "FADD R3, R0, R2" in text and "(line 7)" in text and "hint: stall 3" in text


def test_each_pair_once() -> None:
    text = "--:-:0:-:2 LDG.E.128.SYS R0, [R8]\n--:-:-:-:5 FFMA R4, R0, R1, R2\n--:-:-:-:5 MOV R5, R3"
    assert kinds(text) == [("raw", 1, 0), ("raw", 2, 0)]


@pytest.mark.parametrize("arch", ["sm_103", "sm_110", "sm_120"])
def test_doubles_come_at_no_fixed_time(arch: str) -> None:
    """Where FP64 is slow its results have scoreboards: what ptxas 13.5 makes for sm_110 of random PTX."""
    compare = "--:-:1:-:1 DSETP.MAX.AND P0, P3, RZ, R4, PT\n--:-:-:-:1 MOV R18, 0x80000"
    assert kinds(f"{compare}\n02:-:-:-:1 SEL R6, RZ, R7, P0", arch) == []
    assert kinds(f"{compare}\n--:-:-:-:1 SEL R6, RZ, R7, P0\n02:-:-:-:1 NOP", arch) == [("raw", 2, 0)]


@pytest.mark.parametrize("arch", ["sm_90", "sm_100"])
def test_stall_0_without_scoreboards(arch: str) -> None:
    """The code of ptxas 13.5 with -O0: each instruction begins when the one before is done."""
    code = "--:-:-:{} LDG.E R2, desc[UR4][R4.64]\n--:-:-:Y:0 IADD3 R2, R2, 0x3, RZ\n"
    code += "--:-:-:Y:0 STG.E desc[UR4][R4.64], R2"
    code = code if arch == "sm_90" else code.replace("IADD3 R2,", "IADD3 R2, PT, PT,")
    assert kinds(code.format("Y:0"), arch) == []
    assert ("no-scoreboard", 1, 0) in kinds(code.format("Y:5"), arch)


def test_stores_of_uniform_pairs_read_the_second_one_later() -> None:
    """What ptxas 13.5 makes for sm_100a of st.async.mmio.release and red.async.mmio.release of 64 bits."""
    for store in ("USTGR.E.NA.64.MMIO.SYS [UR4], UR6", "UREDGR.E.ADD.NA.64.STRONG.SYS [UR4+0x100], UR6"):
        code = "--:-:-:-:2 R2UR.BROADCAST UR6, R6\n--:-:-:-:{} R2UR.BROADCAST UR7, R7\n--:0:-:-:6 MEMBAR.ALL.CTA\n"
        assert kinds(code.format(5) + "01:0:-:-:4 " + store, "sm_100a") == []
        assert kinds(code.format(4) + "01:0:-:-:4 " + store, "sm_100a") == [("raw-stall", 3, 0), ("raw-stall", 3, 1)]


def test_a_shift_of_tensor_memory_reads_its_address_at_once() -> None:
    """ptxas 13.5 sets no scoreboard, and gives the register to others."""
    after = "\n--:-:0:-:4 LDCU UR4, c[0x0][0x3a0]\n01:-:-:-:2 UMOV UR5, UR4"
    assert kinds("--:-:-:Y:c UTCSHIFT.DOWN tmem[UR4]" + after, "sm_100a") == []
    copy = "--:-:-:Y:c UTCCP.T.S.4x32dp128bit tmem[UR4], gdesc[UR8]"
    assert kinds(copy + after, "sm_100a") == [("no-scoreboard", 1, 0)]


@pytest.mark.parametrize("arch", ["sm_90", "sm_100", "sm_120"])
def test_a_cluster_is_waited_for_too_early(arch: str) -> None:
    text = "--:-:-:-:{} UCGABAR_ARV\n--:-:-:-:4 BSSY B0, 0x100\n--:-:-:-:6 UCGABAR_WAIT"
    assert kinds(text.format(2), arch) == []
    assert kinds(text.format(1), arch) == [("barrier-stall", 2, 0)]
    (found,) = [one for one in findings(text.format(1), arch) if one.kind == "barrier-stall"]
    assert found.message.startswith("UCGABAR_WAIT comes 5 cycles behind UCGABAR_ARV, which takes 6")


# -- mbarriers


MADE = "--:1:0:-:2 SYNCS.EXCH.64 URZ, [UR6], UR4\n"
SHOWS = ["BAR.SYNC 0x0", "BAR.ARV 0x1, 0x40", "UCGABAR_ARV", "SYNCS.ARRIVE.TRANS64.A1T0 RZ, [UR6], RZ",
         "ARRIVES.LDGSTSBAR.64.ARVCNT [UR6]", "UTMALDG.2D [UR8], [UR12]", "UBLKCP.S.G [UR8], [UR12], UR7"]  # fmt: skip


@pytest.mark.parametrize("who", SHOWS)
def test_an_mbarrier_is_shown_before_it_is_made(who: str) -> None:
    """Every compiler waits."""
    assert kinds(f"{MADE}01:-:-:-:6 {who}", "sm_90") == []
    assert kinds(f"{MADE}--:-:-:-:6 {who}", "sm_90") == [("raw", 1, 0)]
    assert kinds(f"{MADE.replace('1:0', '-:-')}--:-:-:-:6 {who}", "sm_90") == [("no-scoreboard", 1, 0)]
    (found,) = [one for one in findings(f"{MADE}--:-:-:-:6 {who}", "sm_90") if one.severity == "error"]
    assert found.message.startswith(f"{who.split('.')[0].split(' ')[0]} may let an mbarrier be used while SYNCS may")


def test_each_mbarrier_counts() -> None:
    """A later one is not waited for in the place of an earlier one."""
    two = "--:-:{}:-:2 SYNCS.EXCH.64 URZ, [UR6], UR4\n" + MADE + "01:-:-:-:6 BAR.SYNC 0x0"
    assert kinds(two.format(0), "sm_90") == []
    assert kinds(two.format("-"), "sm_90") == [("no-scoreboard", 2, 0)]
    assert kinds(two.format(2), "sm_90") == [("raw", 2, 0)]


def test_a_fence_does_not_make_an_mbarrier() -> None:
    """A fence that waits for nothing is no finding by itself (ptxas 12.4 lets MEMBAR come as soon, and waits at the
    barrier); a barrier is, unless the fence waits."""
    text = MADE + "{}:-:2:-:9 FENCE.VIEW.ASYNC.S\n04:-:-:Y:d NOP\n{}:-:-:-:6 BAR.SYNC 0x0"
    assert kinds(text.format("--", "--"), "sm_90") == [("raw", 3, 0)]
    assert kinds(text.format("--", "01"), "sm_90") == []
    assert kinds(text.format("01", "--"), "sm_90") == []


def test_an_mbarrier_in_code_that_waits_for_all() -> None:
    assert kinds("--:-:-:Y:0 SYNCS.EXCH.64 URZ, [UR6], UR4\n--:-:-:-:6 BAR.SYNC 0x0", "sm_90") == []


def test_an_mbarrier_under_a_guard() -> None:
    text = "--:-:0:-:2 @UP0 SYNCS.EXCH.64 URZ, [UR6], UR4\n{}:-:-:-:6 BAR.SYNC 0x0"
    assert kinds(text.format("01"), "sm_90") == []
    assert kinds(text.format("--"), "sm_90") == [("raw", 1, 0)]


@pytest.mark.parametrize("register", ["UR6", "UR4", "UR5"])
def test_what_an_mbarrier_is_made_from_is_overwritten(register: str) -> None:
    """In layers that hung on an H100, UMOV did so (November 2026; docs/latency.md)."""
    over = "{}:-:-:-:1 UMOV " + register + ", URZ\n01:-:-:-:6 BAR.SYNC 0x0"
    assert kinds(MADE + over.format("02"), "sm_90") == []
    assert kinds(MADE + over.format("01"), "sm_90") == []  # what is made has been read
    assert kinds(MADE + over.format("--"), "sm_90") == [("war", 1, 0)]


MAKES = """
__device__ __forceinline__ void make(unsigned at, int of) {
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(at), "r"(of) : "memory");
}
extern "C" __global__ void k(int *out, int n)
{
    __shared__ unsigned long long bars[4];
    unsigned at = __cvta_generic_to_shared(bars);
    if (threadIdx.x == 0) {
        for (int i = 0; i < 4; i++) make(at + 8 * i, n + i);
        if (FENCE == 1) asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        if (FENCE == 2) asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    }
    if (CLUSTER) asm volatile("barrier.cluster.arrive.relaxed.aligned; barrier.cluster.wait.aligned;" ::: "memory");
    else __syncthreads();
    asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(at) : "memory");
    out[threadIdx.x] = n;
}
"""


@pytest.mark.parametrize("fence", [0, 1, 2])
@pytest.mark.parametrize("cluster", [0, 1])
def test_compilers_wait_for_mbarriers(fence: int, cluster: int) -> None:
    """Nothing is found in what NVRTC makes of them; and each is, where their scoreboards are taken away."""
    options = [f"-DFENCE={fence}", f"-DCLUSTER={cluster}"]
    (kernel,) = Cubin.from_bytes(nvrtc.compile_source(MAKES, "sm_90", options)).texts
    words, table = list(kernel.words), instruction_set("sm_90")
    made = [n for n, word in enumerate(words) if instruction(table, word, 16 * n).name == "SYNCS.EXCH.64"]
    assert len(made) == 4 and not [f for f in hazards.check(Graph(kernel)) if f.severity != "note"]
    for n in made:
        words[n] |= 7 << control.WRITE
    found = list(hazards.check(Graph(replace(kernel, code=Code(words=words)))))
    assert {16 * n for n in made} == {f.other for f in found if f.kind == "no-scoreboard"}
