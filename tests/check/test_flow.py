"""The control-flow graph: edges, calls, jump tables, loops."""

from __future__ import annotations

import struct

import turingas
from turingas.cubin.model import Code, CodeRelocation, Kernel
from turingas.cubin.nvinfo import sval
from turingas.flow.graph import Graph


def graph(text: str, arch: str = "sm_75", **more: object) -> Graph:
    words = turingas.encode(text, arch, default_control="--:-:-:-:5")
    return Graph(Kernel("kern", arch, Code(words=words), **more))  # type: ignore[arg-type]


def edges(g: Graph) -> dict[int, list[int]]:
    return {number: sorted(block.next) for number, block in enumerate(g.blocks)}


def test_branches() -> None:
    g = graph("""
        ISETP.GT.AND P0, PT, R0, RZ, PT
    @P0 BRA L
        MOV R0, R1
    L:  EXIT
    @!P0 BRA L
    """)
    assert [(b.start, b.end) for b in g.blocks] == [(0, 2), (2, 3), (3, 4), (4, 5)]
    assert edges(g) == {0: [1, 2], 1: [2], 2: [], 3: [2]}
    assert g.blocks[0].taken == 2 and g.blocks[2].previous == [0, 1, 3]
    assert g.reachable == {0, 1, 2}
    assert [g.block_of(n) for n in range(5)] == [0, 0, 1, 2, 3]


def test_conditions_besides_the_guard() -> None:
    g = graph("BRA.DIV 0x20\nNOP\nBRA.U P0, 0x0\nEXIT\nBRA 0x40\nNOP")
    assert edges(g) == {0: [1, 2], 1: [2], 2: [0, 3], 3: [], 4: [4], 5: []}


def test_convergence_points_are_no_targets() -> None:
    g = graph("BSSY B0, 0x40\n@P0 BRA 0x40\nBSYNC B0\nNOP\nBSYNC B0\nEXIT")
    assert edges(g) == {0: [1, 2], 1: [2], 2: []}


def test_guarded_exit() -> None:
    g = graph("@P0 EXIT\nNOP\nEXIT\nNOP")
    assert edges(g) == {0: [1], 1: [], 2: []} and g.reachable == {0, 1}


def test_calls() -> None:
    g = graph("CALL.REL.NOINC 0x30\nEXIT\nNOP\nCALL.REL.NOINC 0x50\nRET.REL.NODEC R20 0x0\nRET.REL.NODEC R22 0x0")
    assert g.blocks[0].calls == 3 and g.blocks[0].next == [1]  # behind the call
    assert g.blocks[3].calls == 5 and g.blocks[4].returns and g.blocks[4].next == []
    assert g.entries == [0, 3, 5] and g.reachable == {0, 1, 3, 4, 5}
    assert g.function(3) == [3, 4]


def test_calls_elsewhere() -> None:
    g = graph("CALL.ABS.NOINC 0x20\nEXIT\nEXIT", relocations=[CodeRelocation(0, 57, "other", 0)])
    assert g.blocks[0].leaves and g.blocks[0].calls is None and g.blocks[0].next == [1]


def test_jump_table_of_the_info() -> None:
    info = sval("INDIRECT_BRANCH_TARGETS", 0x10, 0, 2, 0x30, 0x40)
    g = graph("NOP\nBRX R2 -0x20\nNOP\nNOP\nEXIT", infos={info.code: [info]})
    assert edges(g) == {0: [2, 3], 1: [2], 2: [3], 3: []} and not g.open


def test_jump_table_of_the_constants() -> None:
    bank = struct.pack("<4I", 0x20, 0x40, 0x20, 0x12345)
    g = graph("BRX R2 -0x10\nNOP\nEXIT\nNOP\nEXIT", constants={2: bank})
    assert edges(g)[0] == [2, 4] and not g.open


def test_unknown_targets() -> None:
    g = graph("BRX R2 -0x10\nNOP\nEXIT\nNOP\nEXIT")
    assert g.open == [0] and edges(g)[0] == [1, 2] and g.reachable == {0, 1, 2}


def test_opaque_words_go_on() -> None:
    g = Graph(Kernel("kern", "sm_75", Code(words=[(1 << 128) - 1, *turingas.encode("--:-:-:-:5 EXIT")])))
    assert g.instructions[0] is None and edges(g) == {0: []} and g.text(0).startswith(".word 0xffff")


def test_loops() -> None:
    g = graph("""
        NOP
    A:  NOP
    B:  NOP
    @P0 BRA B
    @P1 BRA A
    C:  NOP
    @P0 BRA C
        EXIT
    """)
    found = {g.blocks[loop.header].start: loop for loop in g.loops}
    assert sorted(found) == [1, 2, 5]
    outer, inner = found[1], found[2]
    assert inner.parent == g.loops.index(outer) and (outer.depth, inner.depth, found[5].depth) == (1, 2, 1)
    assert inner.blocks < outer.blocks and not found[5].blocks & outer.blocks
    assert [g.blocks[b].end - 1 for b in outer.backs] == [4]


def test_two_ways_into_a_cycle_are_no_natural_loop() -> None:
    g = graph("@P0 BRA 0x30\nNOP\nNOP\nNOP\n@P1 BRA 0x20\nEXIT")
    assert g.loops == []


def test_loop_of_a_function() -> None:
    g = graph("CALL.REL.NOINC 0x20\nEXIT\nNOP\n@P0 BRA 0x20\nRET.REL.NODEC R20 0x0")
    assert [(g.blocks[loop.header].start, sorted(loop.blocks)) for loop in g.loops] == [(2, [2])]


def test_source_lines() -> None:
    g = graph("NOP\nEXIT")
    assert g.source(1) == ("", 0)
    g.kernel.lines = [("a.sass", 3), ("a.sass", 4)]  # type: ignore[attr-defined,unused-ignore]
    assert g.source(1) == ("a.sass", 4)


def test_nothing() -> None:
    g = Graph(Kernel("kern", "sm_75"))
    assert g.blocks == [] and g.loops == [] and not g.reachable
