"""The scoreboard mode: each rule with a kernel that keeps it and one that breaks it."""

from __future__ import annotations

import os

import numpy as np
import pytest

import turingas
from tests.emulate.test_kernels import compiled_once  # noqa: F401
from tests.kernels.cases import CASES
from tests.tools import nvrtc
from turingas.emulate import launch

GOOD = """
.arch {arch}
.kernel k
.param out 8
.param in 8
--:-:0:-:2 S2R R0, SR_TID.X;
--:-:-:-:6 MOV R2, 0x4;
01:-:-:-:6 IMAD.WIDE R4, R0, R2, c[0x0][0x168];
--:-:-:-:6 IMAD.WIDE R8, R0, R2, c[0x0][0x160];
--:1:0:-:2 LDG.E.SYS R6, [R4];
02:-:-:-:6 MOV R4, 0x7;
01:-:-:-:6 IADD3 R6, R6, R4, RZ;
--:-:-:Y:d ISETP.GT.AND P0, PT, R0, 0x3, PT;
--:-:-:-:6 @P0 IADD3 R6, R6, 0x64, RZ;
--:0:-:-:2 STG.E.SYS [R8], R6;
01:-:-:-:2 MOV R6, 0x0;
--:-:-:-:5 EXIT;
"""


def run(source, stale=False, arch="sm_75"):
    cubin = turingas.assemble(source.format(arch=arch), arch=arch, filename="k.sass")
    values, out = np.arange(32, dtype=np.int32) * 10, np.zeros(32, np.int32)
    report = launch(cubin, "k", 1, 32, [out, values], strict=True, stale=stale)
    return out, report.hazards


RIGHT = np.arange(32) * 10 + 7 + 100 * (np.arange(32) > 3)


@pytest.mark.parametrize("arch", ["sm_70", "sm_75"])
def test_a_kernel_that_keeps_the_rules(arch):
    out, hazards = run(GOOD, stale=True, arch=arch)
    assert hazards == []
    assert (out == RIGHT).all()


BROKEN = [
    # what is changed, kind, lines of the two instructions, what a GPU would compute (None: not looked at)
    ("02:-:-:-:6 MOV R4, 0x7", "02:-:-:-:1 MOV R4, 0x7", "raw-stall", (11, 12), None),
    ("ISETP.GT.AND P0", "ISETP.GT.AND P0", None, None, RIGHT),
    ("--:-:-:Y:d ISETP", "--:-:-:Y:4 ISETP", "raw-stall", (13, 14), np.arange(32) * 10 + 7),
    ("--:-:0:-:2 S2R", "--:-:-:-:2 S2R", "no-scoreboard", (6, 8), None),
    ("01:-:-:-:6 IADD3 R6", "--:-:-:-:6 IADD3 R6", "raw", (10, 12), 7 + 100 * (np.arange(32) > 3)),
    ("02:-:-:-:6 MOV R4", "--:-:-:-:6 MOV R4", "war", (10, 11), None),
    ("--:1:0:-:2 LDG", "--:-:0:-:2 LDG", "war", (10, 11), None),
    ("01:-:-:-:2 MOV R6", "--:-:-:-:2 MOV R6", "war", (15, 16), None),
    ("--:-:0:-:2 S2R", "--:-:0:-:1 S2R", None, None, RIGHT),  # MOV stands between
    ("--:1:0:-:2 LDG", "--:1:0:-:1 LDG", "wait-too-soon", (10, 11), None),
    ("--:-:-:-:6 IMAD.WIDE R8", "--:-:-:-:2 IMAD.WIDE R8", None, None, RIGHT),
    ("01:-:-:-:6 IADD3 R6, R6, R4, RZ;\n", "01:-:-:-:6 IADD3 R6, R6, R4, RZ;\n--:-:-:-:2 LDG.E.SYS R6, [R8];\n",
     "no-scoreboard", (13, 15), None),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "kind", "lines", "computed"), BROKEN)
def test_each_rule_has_a_case_that_breaks_it(old, new, kind, lines, computed):
    assert old in GOOD
    out, hazards = run(GOOD.replace(old, new), stale=True)
    if kind is None:
        assert hazards == []
    else:
        found = [(h.kind, (h.first.line, h.second.line)) for h in hazards]
        assert (kind, lines) in found, "\n".join(map(str, hazards))
        text = str(next(h for h in hazards if h.kind == kind))
        assert f"k.sass:{lines[1]}: k+0x" in text and f"after k.sass:{lines[0]}: " in text
    if computed is not None:
        assert (out == computed).all()


def test_without_stale_the_new_value_is_used():
    broken = GOOD.replace("--:-:-:Y:d ISETP", "--:-:-:Y:4 ISETP")
    out, hazards = run(broken)
    assert [h.kind for h in hazards] == ["raw-stall"]
    assert (out == RIGHT).all()


def test_the_other_lanes_of_a_warp_do_not_matter():
    # lanes 0 to 15 read R6 late; the others overwrite their own
    source = """
.arch {arch}
.kernel k
.param out 8
.param in 8
--:-:0:-:2 S2R R0, SR_TID.X;
--:-:-:-:6 MOV R2, 0x4;
01:-:-:-:8 IMAD.WIDE R8, R0, R2, c[0x0][0x160];
--:-:-:-:8 MOV R6, 0x5;
--:-:-:Y:d ISETP.GT.AND P0, PT, R0, 0xf, PT;
--:-:-:-:5 @P0 BRA high;
--:-:-:-:2 STG.E.SYS [R8], R6;
--:-:-:-:5 EXIT;
high:
--:-:-:-:8 MOV R6, 0x6;
--:-:-:-:2 STG.E.SYS [R8], R6;
--:-:-:-:5 EXIT;
"""
    out, hazards = run(source)
    assert hazards == []
    assert out.tolist() == [5] * 16 + [6] * 16
    together = source.replace("--:-:-:-:5 @P0 BRA high;", "--:-:-:-:5 NOP;").replace(
        "[R8], R6;\n--:-:-:-:5 EXIT;\nhigh:", "[R8], R6;\nhigh:"
    )
    assert together != source
    _, hazards = run(together)
    assert [h.kind for h in hazards] == ["no-scoreboard"]


def test_depbar_counts():
    source = """
.arch {arch}
.kernel k
.param out 8
.param in 8
--:-:0:-:2 S2R R0, SR_TID.X;
--:-:-:-:6 MOV R2, 0x4;
01:-:-:-:6 IMAD.WIDE R4, R0, R2, c[0x0][0x168];
--:-:-:-:6 IMAD.WIDE R8, R0, R2, c[0x0][0x160];
--:-:-:-:8 SHF.L.U32 R0, R0, 0x2, RZ;
--:0:-:-:2 STS [R0], R0;
--:-:1:-:2 LDS R6, [R0];
--:-:1:-:4 LDS R7, [R0];
--:-:-:-:4 DEPBAR.LE SB1, 0x1;
01:-:-:-:6 IADD3 R6, R6, 0x1, RZ;
02:-:-:-:8 IADD3 R6, R6, R7, RZ;
--:0:-:-:2 STG.E.SYS [R8], R6;
--:-:-:-:5 EXIT;
""".replace(".param in 8", ".param in 8\n.shared 128")
    out, hazards = run(source)
    assert hazards == []
    assert (out == 8 * np.arange(32) + 1).all()
    _, hazards = run(source.replace("0x1;\n01:-", "0x2;\n01:-"))
    assert {h.kind for h in hazards} == {"raw", "waw"}  # read, and overwritten, before it has come


# -- rules, one by one: text, and what is found: kind, number of the first instruction, number of the second

LANE = "--:-:0:-:2 S2R R9, SR_LANEID; 01:-:-:Y:f ISETP.GT.AND P0, PT, R9, 0x7, PT; "  # P0: lanes 8 to 31
RULES = [
    # results of fixed latency, by all kinds of instructions
    ("--:-:-:-:2 FADD R0, R1, R2; --:-:-:-:1 FADD R3, R0, R2", [("raw-stall", 0, 1)]),
    ("--:-:-:-:2 FADD R0, R1, R2; --:-:-:-:2 NOP; --:-:-:-:1 FADD R3, R0, R2", []),
    ("--:-:-:Y:5 ISETP.GT.AND P0, PT, R0, RZ, PT; --:-:-:-:5 @P0 BRA end; end: --:-:-:-:1 NOP", [("raw-stall", 0, 1)]),
    ("--:-:-:Y:f ISETP.GT.AND P0, PT, R0, RZ, PT; --:-:-:-:5 @P0 BRA end; end: --:-:-:-:1 NOP", []),
    ("--:-:-:Y:5 ISETP.GT.AND P0, PT, R0, RZ, PT; --:-:-:-:5 @P0 EXIT", [("raw-stall", 0, 1)]),
    ("--:-:-:-:1 MOV R4, 0x30; --:-:-:-:5 RET.REL.NODEC R4 0x0; --:-:-:-:5 EXIT", [("raw-stall", 0, 1)]),
    ("--:-:-:-:1 UIADD3 UR4, UR5, UR6, URZ; --:-:-:-:1 IADD3 R0, R1, UR4, RZ", [("raw-stall", 0, 1)]),
    ("--:-:-:Y:f UIADD3 UR4, UR5, UR6, URZ; --:-:-:-:1 IADD3 R0, R1, UR4, RZ", []),
    ("L: --:-:-:-:8 FADD R1, R0, R2; --:-:-:Y:f ISETP.GT.AND P0, PT, R5, RZ, PT; --:-:-:-:6 IADD3 R5, R5, 0x1, RZ; "
     "--:-:-:-:1 FADD R0, R3, R4; --:-:-:-:1 @!P0 BRA L", [("raw-stall", 3, 0)]),
    # lanes decide
    (LANE + "--:-:-:-:1 @P0 MOV R0, R1; --:-:-:-:1 @!P0 MOV R2, R0", []),
    (LANE + "--:-:-:-:1 @P0 MOV R0, R1; --:-:-:-:1 @P0 MOV R2, R0", [("raw-stall", 2, 3)]),
    (LANE + "--:-:0:-:2 @P0 LDS.U R0, [R2]; --:-:-:-:8 @!P0 MOV R0, R1; 01:-:-:-:1 MOV R2, R0", []),
    # results of variable latency
    ("--:-:0:-:2 LDS.U R0, [R2]; --:-:-:-:5 IADD3 R4, R0, R5, RZ", [("raw", 0, 1)]),
    ("--:-:0:-:2 LDS.U R0, [R2]; 02:-:-:-:5 IADD3 R4, R0, R5, RZ", [("raw", 0, 1)]),
    ("--:-:0:-:2 LDS.U R0, [R2]; 01:-:-:-:5 IADD3 R4, R0, R5, RZ", []),
    ("--:-:0:-:2 LDS.U R0, [R2]; --:-:-:-:5 MOV R0, R5", [("waw", 0, 1)]),
    ("--:-:0:-:2 LDS.U R0, [R2]; --:-:0:-:2 LDS.U R0, [R2]", []),
    ("--:-:0:-:2 LDS.U R0, [R2]; --:-:1:-:2 MUFU.RCP R0, R3", [("waw", 0, 1)]),
    ("--:-:-:-:2 LDS.U R0, [R2]; 3f:-:-:-:5 MOV R1, R0", [("no-scoreboard", 0, 1)]),
    ("--:-:0:-:2 SHFL.IDX P0, R0, R1, R2, 0x1f; --:-:-:-:5 @P0 MOV R4, R5", [("raw", 0, 1)]),
    ("--:-:0:-:2 SHFL.IDX P0, R0, R1, R2, 0x1f; 01:-:-:-:5 @P0 MOV R4, R5", []),
    # the order of a queue
    ("--:-:-:-:2 LDS.U R0, [R2]; --:-:0:-:2 LDS.U R4, [R2]; 01:-:-:-:5 FADD R6, R0, R4", []),
    ("--:-:-:-:2 LDS.U R0, [R2]; --:-:0:-:2 MUFU.RCP R4, R5; 01:-:-:-:5 FADD R6, R0, R4", [("no-scoreboard", 0, 2)]),
    ("--:-:-:-:2 S2R R0, SR_TID.X; --:-:0:-:2 S2R R4, SR_TID.Y; 01:-:-:-:5 FADD R6, R0, R4", [("no-scoreboard", 0, 2)]),
    # sources
    ("--:0:-:-:2 STS [R2], R0; --:-:-:-:5 MOV R0, R5", [("war", 0, 1)]),
    ("--:0:-:-:2 STS [R2], R0; --:-:-:-:5 MOV R2, R5", [("war", 0, 1)]),
    ("--:0:-:-:2 STS [R2], R0; 01:-:-:-:5 MOV R0, R5", []),
    ("--:-:-:-:2 STS [R2], R0; --:-:-:-:5 MOV R0, R5", [("no-scoreboard", 0, 1)]),
    ("--:-:0:-:2 LDS.U R0, [R2]; 01:-:-:-:5 MOV R2, R5", []),
    ("--:1:0:-:2 LDS.U R0, [R2]; 02:-:-:-:5 MOV R2, R5", []),
    ("--:1:0:-:2 LDS.U R0, [R2]; 02:-:-:-:5 MOV R4, R0", [("raw", 0, 1)]),
    ("--:-:-:-:2 STS [R2], R0; --:0:-:-:2 STS [R2], R1; 01:-:-:-:5 MOV R0, R5", []),
    ("--:-:-:-:2 STS [R2], R0; --:-:0:-:2 LDS.U R0, [R8]", []),
    ("--:-:-:-:2 STS [R2], R0; --:-:-:-:6 BAR.SYNC 0x0; --:-:-:-:5 MOV R0, R5", []),
    ("--:-:-:-:2 STS [R2], R0; --:-:-:-:6 BAR.ARV 0x0, 0x40; --:-:-:-:5 MOV R0, R5", [("no-scoreboard", 0, 2)]),
    # sources that are read late without a queue
    ("--:-:-:-:1 UIMAD.WIDE UR8, UR9, 0x4, UR32; --:-:-:Y:f ULDC.64 UR32, c[0x0][0x0]", [("war-stall", 0, 1)]),
    ("--:-:-:-:2 UIMAD.WIDE UR8, UR9, 0x4, UR32; --:-:-:Y:f ULDC.64 UR32, c[0x0][0x0]", [("war-stall", 0, 1)]),
    ("--:-:-:-:3 UIMAD.WIDE UR8, UR9, 0x4, UR32; --:-:-:Y:f ULDC.64 UR32, c[0x0][0x0]", []),
    ("--:-:-:-:2 UIADD3 UR8, UR9, UR32, URZ; --:-:-:Y:f UMOV UR32, UR4", [("war-stall", 0, 1)]),
    ("--:-:-:-:1 UIADD3 UR8, UR9, UR32, URZ; --:-:-:-:2 NOP; --:-:-:Y:f UMOV UR32, UR4", []),
    ("--:-:-:-:1 UIADD3 UR8, UR9, UR32, URZ; --:-:-:-:1 UIADD3 UR32, UR9, UR9, URZ; --:-:-:Y:f UMOV UR32, UR4",
     [("war-stall", 0, 2)]),
    ("--:-:-:-:1 UIADD3 UR8, UR9, UR32, URZ; --:-:-:Y:f UIADD3 UR32, UR4, UR5, URZ", []),
    ("--:-:-:-:1 IADD3 R8, R9, UR32, RZ; --:-:-:Y:f UMOV UR32, UR4", []),
    ("--:-:-:-:1 UMOV UR8, UR32; --:-:-:Y:f UMOV UR32, UR4", []),
    # scoreboards
    ("--:-:0:-:1 LDS.U R0, [R2]; 01:-:-:-:5 MOV R1, R0", [("wait-too-soon", 0, 1)]),
    ("--:-:2:-:2 LDS.U R0, [R2]; --:-:-:-:4 DEPBAR.LE SB0, 0x1, {2,1}; --:-:-:-:5 MOV R1, R0", []),
    ("--:-:2:-:2 LDS.U R0, [R2]; --:-:-:-:4 DEPBAR.LE SB0, 0x1, {3,1}; --:-:-:-:5 MOV R1, R0", [("raw", 0, 2)]),
    ("--:-:0:-:2 LDS.U R0, [R2]; --:-:0:-:2 LDS.U R4, [R2]; --:-:-:-:4 DEPBAR.LE SB0, 0x1; --:-:-:-:5 MOV R1, R0", []),
    ("--:-:0:-:2 LDS.U R0, [R2]; --:-:0:-:2 LDS.U R4, [R2]; --:-:-:-:4 DEPBAR.LE SB0, 0x1; --:-:-:-:5 MOV R1, R4",
     [("raw", 1, 3)]),
    ("--:-:0:-:2 LDS.U R0, [R2]; --:-:0:-:2 LDS.U R4, [R2]; --:-:-:-:4 DEPBAR.LE SB0, 0x0; --:-:-:-:5 MOV R1, R4", []),
]  # fmt: skip


def assembled(text, arch="sm_75"):
    source = f".arch {arch}\n.kernel k\n.shared 64\n" + text.replace("; ", ";\n") + ";\n--:-:-:-:5 EXIT;\n"
    return turingas.assemble(source, arch)


def found(text, arch="sm_75", blocks=1, **options):
    hazards = launch(assembled(text, arch), "k", blocks, 32, [], strict=True, **options).hazards
    return [(h.kind, h.first.address // 16, h.second.address // 16) for h in hazards]


@pytest.mark.parametrize(("text", "wrong"), RULES)
def test_rule(text, wrong):
    assert found(text) == wrong
    if LANE not in text:  # the linter says the same, but that it knows nothing of lanes
        errors = [f for f in turingas.lint(assembled(text).to_bytes()) if f.severity == "error"]
        assert [(f.kind, f.other // 16, f.address // 16) for f in errors] == wrong


@pytest.mark.parametrize(("stall", "wrong"), [(5, [("barrier-stall", 0, 1)]), (6, [])])
def test_a_cluster_is_waited_for_when_its_warp_has_arrived(stall, wrong):
    assert found(f"--:-:-:-:{stall} UCGABAR_ARV; --:-:-:-:6 UCGABAR_WAIT", "sm_90") == wrong


MBARRIERS = """--:-:-:-:1 UMOV UR6, 0x400; --:-:-:-:1 UMOV UR4, 0x1ffffe; --:-:-:Y:c UMOV UR5, 0x7ffff800; \
{}:{}:-:2 SYNCS.EXCH.64 URZ, [UR6], UR4; {}:{}:-:2 SYNCS.EXCH.64 URZ, [UR6+0x8], UR4; {}"""


@pytest.mark.parametrize(("boards", "behind", "wrong"), [
    (("-:0", "-:0"), "01:-:-:-:6 BAR.SYNC 0x0", []),
    (("-:0", "-:1"), "03:-:-:-:6 BAR.SYNC 0x0", []),
    (("-:0", "-:0"), "--:-:-:-:6 BAR.SYNC 0x0", [("raw", 3, 5), ("raw", 4, 5)]),
    (("-:0", "-:1"), "01:-:-:-:6 BAR.SYNC 0x0", [("raw", 4, 5)]),
    (("-:-", "-:1"), "02:-:-:-:6 BAR.SYNC 0x0", [("no-scoreboard", 3, 5)]),  # the later one tells nothing of it
    (("-:0", "-:0"), "01:-:2:-:9 FENCE.VIEW.ASYNC.S; 04:-:-:-:6 BAR.SYNC 0x0", []),
    (("-:0", "-:0"), "--:-:2:-:9 FENCE.VIEW.ASYNC.S; 04:-:-:-:6 BAR.SYNC 0x0", [("raw", 3, 6), ("raw", 4, 6)]),
    (("-:0", "-:0"), "--:-:-:-:2 SYNCS.ARRIVE.TRANS64.A1T0 RZ, [UR6], RZ; 01:-:-:-:2 NOP",
     [("raw", 3, 5), ("raw", 4, 5)]),
    (("1:-", "1:-"), "02:-:-:-:1 UMOV UR4, URZ", []),
    (("-:1", "-:1"), "02:-:-:-:1 UMOV UR4, URZ", []),
    (("1:-", "2:-"), "02:-:-:-:1 UMOV UR4, URZ", [("war", 4, 5)]),
    (("-:-", "1:-"), "02:-:-:-:1 UMOV UR4, URZ", []),  # sources are read in order
])  # fmt: skip
def test_mbarriers(boards, behind, wrong):
    text = MBARRIERS.format("--", boards[0], "--", boards[1], behind)
    assert found(text, "sm_90", shared=2048) == wrong
    errors = [f for f in turingas.lint(assembled(text, "sm_90").to_bytes()) if f.severity == "error"]
    assert sorted((f.kind, f.other // 16, f.address // 16) for f in errors if f.other is not None) == wrong


# -- barriers


@pytest.mark.parametrize(("arch", "need"), [("sm_75", 5), ("sm_80", 6), ("sm_90", 6)])
def test_a_barrier_takes_a_while_to_hold(arch, need):
    text = "--:-:-:-:{} {} BAR.SYNC{} 0x0; --:-:-:-:{} MOV R4, R5; --:-:0:-:2 {}; 01:-:-:-:2 NOP"
    for mods in ("", ".DEFER_BLOCKING"):
        wrong = [("barrier-stall", 0, 2)]
        assert found(text.format(1, "", mods, need - 2, "LDS R6, [RZ]"), arch) == wrong
        assert found(text.format(1, "", mods, need - 1, "LDS R6, [RZ]"), arch) == []
        assert found(text.format(need - 2, "", mods, 1, "STS [RZ], R6"), arch) == wrong
        assert found(text.format(need - 2, "", mods, 1, "FADD R6, R5, R5"), arch) == []
    assert found(text.format(1, "@!PT", "", 1, "LDS R6, [RZ]"), arch) == []  # it does not run
    text = text.format(1, "", "", 1, "LDS R6, [RZ]")
    (hazard,) = launch(assembled(text, arch), "k", 1, 64, [], strict=True, stale=True).hazards
    assert hazard.message.startswith("LDS comes 2 cycles behind a barrier")
    assert f"holds the warp only after {need}:" in hazard.message
    assert (hazard.first.text, hazard.second.text) == ("BAR.SYNC 0x0", "LDS R6, [RZ]")


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90"])
def test_depbar_takes_a_while_to_hold(arch):
    text = "--:-:-:-:{} DEPBAR.LE SB0, 0x1; --:-:-:-:{} MOV R4, R5; --:-:0:-:2 LDS R6, [RZ]; 01:-:-:-:2 NOP"
    assert found(text.format(1, 2), arch) == found(text.format(2, 1), arch) == [("barrier-stall", 0, 2)]
    assert found(text.format(1, 3), arch) == found(text.format(4, 1), arch) == []


def test_lanes_behind_a_barrier():
    """Those that go on and those that do not; only what runs counts."""
    text = LANE + "--:-:-:-:1 BAR.SYNC 0x0; --:-:0:-:2 {} LDS R6, [RZ]; 01:-:-:-:6 NOP"
    assert found(text.format("@P0"), "sm_90") == [("barrier-stall", 2, 3)]
    assert found(text.format("@!PT"), "sm_90") == []
    text = LANE + "--:-:-:-:{} BAR.SYNC 0x0; --:-:-:-:{} MOV R4, R5; --:-:-:-:5 @P0 EXIT"
    assert found(text.format(1, 4), "sm_90") == [("barrier-stall", 2, 4)]
    assert found(text.format(1, 5), "sm_90") == []


def test_a_barrier_at_each_turn_of_a_loop():
    """Two warps, so that they do wait for one another."""
    text = "--:-:-:Y:f MOV R9, 0x3; L: --:-:-:-:{} BAR.SYNC.DEFER_BLOCKING 0x0; --:-:-:-:4 IADD3 R9, R9, -0x1, RZ; "
    text += "--:-:-:Y:d ISETP.NE.AND P0, PT, R9, RZ, PT; --:0:-:-:5 @P0 STS [RZ], R9; 01:-:-:-:{} BAR.SYNC 0x0; "
    text += "--:-:0:-:2 LDS R6, [RZ]; 01:-:-:-:5 @P0 BRA L"
    for stalls, wrong in (((1, 6), []), ((6, 5), [("barrier-stall", 5, 6)])):
        hazards = launch(assembled(text.format(*stalls), "sm_90"), "k", 2, 64, [], strict=True).hazards
        assert [(h.kind, h.first.address // 16, h.second.address // 16) for h in hazards] == wrong


# -- sources of the uniform datapath


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_86", "sm_89", "sm_90"])
def test_uniform_sources_in_a_loop(arch):
    """The reader of one turn and the writer of the next."""
    text = "--:-:-:Y:f MOV R9, 0x3; L: --:-:-:-:2 UMOV UR32, 0x1; --:-:-:-:4 IADD3 R9, R9, -0x1, RZ; "
    text += "--:-:-:Y:f ISETP.NE.AND P0, PT, R9, RZ, PT; --:-:-:-:{} UIADD3 UR8, UR9, UR32, URZ; --:-:-:-:1 @P0 BRA L"
    assert found(text.format(1), arch) == [("war-stall", 4, 1)]
    assert found(text.format(2), arch) == []


def test_uniform_sources_of_what_does_not_run():
    text = "--:-:-:Y:f UISETP.{}.AND UP0, UPT, URZ, URZ, UPT; --:-:-:-:1 {} UIADD3 UR8, UR9, UR32, URZ; "
    text += "--:-:-:-:1 {} UMOV UR32, UR4"
    for compare, reader, writer, wrong in (
        ("EQ", "", "@UP0", True), ("NE", "", "@UP0", False), ("EQ", "@UP0", "", True), ("NE", "@UP0", "", False),
    ):  # fmt: skip
        assert found(text.format(compare, reader, writer), "sm_90") == ([("war-stall", 1, 2)] if wrong else [])


def test_what_is_said_of_uniform_sources():
    text = "--:-:-:-:2 UIMAD.WIDE UR8, UR9, 0x4, UR32; --:-:-:-:1 UMOV UR33, UR4"
    for stale in (False, True):
        (hazard,) = launch(assembled(text, "sm_90"), "k", 2, 64, [], strict=True, stale=stale).hazards
        assert hazard.message.startswith("UR33 is overwritten 2 cycles behind an instruction that reads it late")
        assert (hazard.first.text, hazard.second.text) == ("UIMAD.WIDE UR8, UR9, 0x4, UR32", "UMOV UR33, UR4")


def test_each_pair_is_reported_once():
    text, wrong = RULES[0]
    assert found(text, blocks=4, lanes=32) == wrong
    loop = "--:-:-:Y:f MOV R9, 0x5; L: --:-:-:-:6 IADD3 R9, R9, -0x1, RZ; --:-:-:-:1 FADD R0, R1, R2; "
    loop += "--:-:-:Y:2 FADD R3, R0, R2; --:-:-:Y:f ISETP.NE.AND P0, PT, R9, RZ, PT; --:-:-:-:5 @P0 BRA L"
    assert found(loop, blocks=4, lanes=32) == [("raw-stall", 2, 3)]


def test_old_values_where_the_wait_comes_too_soon():
    source = GOOD.replace("--:1:0:-:2 LDG", "--:-:0:-:1 LDG").replace("02:-:-:-:6 MOV R4, 0x7;\n", "")
    out, hazards = run(source.replace("R6, R6, R4, RZ", "R6, R6, 0x7, RZ"), stale=True)
    assert "wait-too-soon" in {h.kind for h in hazards}
    assert (out == 7 + 100 * (np.arange(32) > 3)).all()


# -- compiled kernels keep the rules

needs_nvrtc = pytest.mark.skipif(nvrtc.library_path() is None, reason="NVRTC is not installed")
SLOW = ("atomics", "divergence", "spin_lock", "recursion", "warp_lock", "double_functions")


def all_cases():
    """Each case on one architecture in turn; TURINGAS_ALL_ARCHS=1: on all."""
    for number, case in enumerate(CASES):
        for arch in case.archs:
            if os.environ.get("TURINGAS_ALL_ARCHS"):
                yield case, arch
            elif arch == case.archs[number % len(case.archs)] and case.name not in SLOW:
                yield case, arch


@needs_nvrtc
@pytest.mark.parametrize(("case", "arch"), list(all_cases()), ids=lambda value: getattr(value, "name", value))
def test_no_false_alarms(case, arch):
    left = []
    for more in ({}, {"strict": True, "stale": True}):
        args, _ = case.build()
        report = launch(case.cubin(arch), case.kernel, case.grid, case.block, args, shared=case.shared, **more)
        assert report.hazards == [], "\n".join(map(str, report.hazards))
        left.append([arg.tobytes() for arg in args if isinstance(arg, np.ndarray)])
    assert left[0] == left[1]
