"""Stalls behind branches and fences, and tensor copies behind what renews their map."""

from __future__ import annotations

import pytest

import turingas
from turingas.check.behind import PROVED, branches, maps
from turingas.cubin.model import Code, Kernel
from turingas.flow.graph import Graph
from turingas.isa.arch import ARCHS
from turingas.isa.latency import latencies


def graph_of(source: str, arch: str = "sm_90a") -> Graph:
    return Graph(Kernel("k", arch, Code(words=turingas.assemble(source, arch).texts[0].words)))


def pending(source: str) -> list[tuple[int, int]]:
    return [(one.address // 16, (one.other or 0) // 16) for one in maps(graph_of(source))]


def stalls(source: str, arch: str = "sm_90a") -> list[tuple[int, str]]:
    return [(one.address // 16, one.severity) for one in branches(graph_of(source, arch))]


@pytest.mark.parametrize("arch", ["sm_70", "sm_75", "sm_80", "sm_90", "sm_100", "sm_120"])
def test_a_branch_stalls_as_long_as_compilers_let_it(arch: str) -> None:
    """Also with a guard, and behind a fence; of what is never reached, and of the end of the code, nothing is said."""
    code = "back:\n--:-:-:-:{} @P0 BRA back;\n--:-:-:-:{} MEMBAR.SC.GPU;\n--:-:-:Y:5 EXIT;\n--:-:-:-:1 @P0 BRA back;"
    fence = latencies(arch).cycles["behind", "", "MEMBAR", ""]
    assert stalls(code.format(5, fence), arch) == []
    assert stalls(code.format(4, fence), arch) == [(0, "warning")]
    assert stalls(code.format(1, fence - 1), arch) == [(0, "warning"), (1, "warning")]


def test_what_compilers_do_is_no_finding() -> None:
    assert stalls("--:-:-:-:1 @P0 CALL.REL.NOINC f;\n--:-:-:Y:5 EXIT;\nf:\n--:-:-:-:5 RET.REL.NODEC R20 `(f);") == []
    assert stalls("--:-:-:Y:5 EXIT;\nend:\n--:-:-:Y:0 BRA end;") == []
    for arch in ARCHS:
        rows = {first for hazard, _, first, _ in latencies(arch).cycles if hazard == "behind"}
        assert "BRA" in rows and {"BRA", "MEMBAR"} <= set(PROVED)


RENEW = "--:0:-:-:2 UTMACCTL.IV [UR6];\n"
LOAD = "{}:-:-:-:2 UTMALDG.2D [UR8], [UR6];\n--:-:-:Y:5 EXIT;"


def test_a_copy_waits_for_its_map() -> None:
    assert pending(RENEW + LOAD.format("--")) == [(1, 0)]
    assert pending(RENEW + LOAD.format("01")) == []
    assert pending(RENEW + "01:-:-:-:1 UMOV UR10, URZ;\n" + LOAD.format("--")) == []
    assert pending(RENEW + LOAD.format("02")) == [(1, 0)]  # another scoreboard
    assert pending(RENEW.replace(":0:-", ":-:-") + LOAD.format("01")) == [(1, 0)]  # it sets none
    assert pending(RENEW + "01:-:-:-:1 @P0 MOV R2, RZ;\n" + LOAD.format("--")) == [(2, 0)]  # such a wait may not happen
    store = LOAD.format("--").replace("UTMALDG", "UTMASTG")
    assert pending(RENEW + store) == [(1, 0)]


def test_a_flush_behind_it_tells_as_well() -> None:
    """cuBLASLt 13.1 on sm_100: nobody waits for UTMACCTL's own scoreboard."""
    flush = "--:3:-:-:2 UTMACMDFLUSH;\n"
    assert pending(RENEW + flush + "08:-:-:-:1 NOP;\n" + LOAD.format("--")) == []
    assert pending(RENEW + flush + LOAD.format("08")) == []
    assert pending(RENEW + flush + LOAD.format("--")) == [(2, 0)]
    assert pending(flush + RENEW + LOAD.format("08")) == [(2, 1)]  # before it: tells of nothing
    assert pending(RENEW + flush.replace("UTMACMD", "@UP0 UTMACMD") + LOAD.format("08")) == [(2, 0)]


def test_other_maps() -> None:
    """By another register, or one that was written since, it may be another map; IVALL renews all of them."""
    assert pending(RENEW.replace("UR6", "UR4") + LOAD.format("--")) == []
    assert pending(RENEW + "--:-:-:-:2 UMOV UR7, URZ;\n" + LOAD.format("--")) == []
    assert pending(RENEW.replace("IV [UR6]", "IVALL") + LOAD.format("--")) == [(1, 0)]
    assert pending(RENEW.replace("IV", "PF") + LOAD.format("--")) == []  # a prefetch forgets nothing


def test_ways() -> None:
    """Around a loop; and a way that waits beside one that does not."""
    loop = "back:\n{}:-:-:-:2 UTMALDG.2D [UR8], [UR6];\n--:0:-:-:2 UTMACCTL.IV [UR6];\n{}:-:-:-:5 @P0 BRA back;\n"
    assert pending(loop.format("--", "--") + "--:-:-:Y:5 EXIT;") == [(0, 1)]
    assert pending(loop.format("01", "--") + "--:-:-:Y:5 EXIT;") == []
    beside = RENEW + "--:-:-:-:5 @P0 BRA on;\n01:-:-:-:1 MOV R2, RZ;\non:\n" + LOAD.format("--")
    assert pending(beside) == [(3, 0)]


def test_schedules_are_right() -> None:
    """What the scheduler makes has neither finding."""
    lines = ["again:", "UTMACCTL.IV [UR6];", "UTMALDG.2D [UR8], [UR6];", "MEMBAR.SC.GPU;", "@P0 BRA again;", "EXIT;"]
    graph = graph_of("\n".join(lines))
    assert [*maps(graph), *branches(graph)] == []
