"""Nobody waits for more than he needs: in front of loops, in queues, among loads; and where codes are given."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable

import pytest

import turingas
from kernels_sass.conv.code import Kernels
from loader.tune.model import cycles
from tests.bench.schedule import LAYERS, OWN, outside, sgemm_of
from turingas.assembler.schedule import again
from turingas.check.loops import summary
from turingas.cubin.cubin import Cubin
from turingas.cubin.model import Kernel
from turingas.flow.graph import Graph
from turingas.isa import control
from turingas.isa.arch import WORD_BYTES
from turingas.isa.given import NOTHING, Given, whole
from turingas.scheduler import boards, rounds
from turingas.scheduler.codes import codes
from turingas.scheduler.warp import GLOBAL, walk
from turingas.scheduler.ways import Ways

MORE = 1.08  # of the model's cycles with ptxas's codes


def fields(text: str) -> list[Given]:
    cubin = turingas.assemble(text, arch="sm_75")
    assert not [f for f in turingas.lint(cubin) if f.severity == "error"]
    return [whole(word) for word in cubin.texts[0].words]


def test_sources_from_before_a_loop_are_not_waited_for_in_it() -> None:
    lines = ["STG.E.SYS [R2], R4;", "MOV R9, RZ;", "again:", "LDG.E.SYS R5, [R6];", "IADD3 R4, R9, 0x1, RZ;"]
    lines += ["FADD R8, R5, R5;", "IADD3 R9, R9, 0x1, RZ;", "ISETP.LT.AND P0, PT, R9, 0x8, PT;", "@P0 BRA again;"]
    found = fields("\n".join([*lines, "EXIT;"]))
    assert found[0].read in range(6) and found[0].read is not None
    assert found[1].wait == 1 << found[0].read and found[3].wait == 0


def test_a_result_from_before_a_loop_is_waited_for_in_front_of_it() -> None:
    """Where the loop keeps six loads under way: a wait in it would be for one of these in each round."""
    lines = ["LDG.E.SYS R40, [R2];", *(f"LDG.E.SYS R{10 + k}, [R{60 + 2 * k}];" for k in range(6)), "MOV R9, RZ;"]
    lines += ["again:", "FFMA R30, R40, R9, R30;", *["FMUL R31, R31, R31;"] * 40]
    for k in range(6):
        lines += [f"FADD R{20 + k}, R{10 + k}, R{20 + k};", f"LDG.E.SYS R{10 + k}, [R{60 + 2 * k}];"]
    lines += ["IADD3 R9, R9, 0x1, RZ;", "ISETP.LT.AND P0, PT, R9, 0x8, PT;", "@P0 BRA again;", "EXIT;"]
    found = fields("\n".join(lines))
    assert found[7].wait and found[0].write is not None and found[7].wait >> found[0].write & 1
    assert found[8].wait == 0
    few = fields("\n".join(line for line in lines if not re.search(r"R1[1-5],", line)))
    assert few[3].wait and not few[2].wait, "with scoreboards left the loop may begin before"


def test_a_guarded_wait_is_relied_on_where_its_guard_holds() -> None:
    """By those that run only where it does, until the predicate is written: P1 may be true where P0 is false."""
    load, use = "LDG.E.SYS R4, [R2];", "@P0 FADD R5, R4, R6;"
    clears = "ISETP.GT.AND P0, PT, R10, R11, PT;"

    def waits(*lines: str) -> list[int]:
        found = fields("\n".join([*lines, "EXIT;"]))
        return [n for n, one in enumerate(found) if one.wait]

    assert waits(load, use, use.replace("R5", "R7"), "@P1 FADD R8, R4, R6;") == [1, 3]
    assert waits(load, use, clears, use.replace("R5", "R7")) == [1, 3]
    assert waits(load, use, "@!P0 FADD R7, R4, R6;", "FADD R8, R4, R6;") == [1, 2]
    loaded = "@P0 " + load  # where P0 is false, there is nothing to wait for
    assert waits(loaded, use, "@P1 FADD R7, R4, R6;", "FADD R8, R4, R6;") == [1]
    assert waits(loaded, clears, use, "@P0 FADD R7, R4, R6;", "FADD R8, R4, R6;") == [2, 4]


def test_who_comes_first_in_a_queue_needs_no_scoreboard() -> None:
    found = fields("LDS R0, [R8];\nLDS R1, [R8+0x4];\nFADD R2, R1, R1;\nFADD R3, R0, R0;\nEXIT;")
    assert [one.write for one in found[:2]] == [7, 0] and [one.wait for one in found[2:4]] == [1, 0]
    found = fields("LDG.E.SYS R0, [R8];\nLDG.E.SYS R1, [R8+0x4];\nFADD R2, R1, R1;\nFADD R3, R0, R0;\nEXIT;")
    assert 7 not in [one.write for one in found[:2]], "loads from global memory come as they like"


def test_match_waits_for_the_sources_of_stores() -> None:
    """A load that overwrites them comes later in their queue; MATCH is in none with them."""
    found = fields("STG.E.SYS [R2], R0;\nLDS R2, [R8];\nEXIT;")
    assert found[0].read == 7 and not found[1].wait
    found = fields("STG.E.SYS [R2], R0;\nMATCH.ANY R2, R8;\nEXIT;")
    assert found[0].read != 7 and found[1].wait == 1 << found[0].read


def test_sources_and_loads_do_not_share() -> None:
    """More loads than there are scoreboards; the addresses of some are overwritten at once."""
    loads = []
    for n in range(12):
        loads += [f"LDG.E.SYS R{40 + n}, [R{2 * (n % 3)}];", f"IADD3 R{2 * (n % 3)}, R{2 * (n % 3)}, 0x4, RZ;"]
    found = fields("\n".join([*loads, *(f"FADD R{60 + n}, R{40 + n}, R{40 + n};" for n in range(12)), "EXIT;"]))
    for n, one in enumerate(found[: len(loads)]):
        under_way = {load.write for load in found[:n]} - {7}
        assert not [board for board in under_way if board is not None and (one.wait or 0) >> board & 1], n
    assert len({one.read for one in found} - {7}) > 1


def estimate(kernel: Kernel) -> float:
    """Cycles of a warp that runs each loop ten times, waits included."""
    graph = Graph(kernel)
    runs = [1] * len(kernel.words)
    for loop in graph.loops:
        for block in (graph.blocks[number] for number in loop.blocks):
            runs[block.start : block.end] = [max(run, 10**loop.depth) for run in runs[block.start : block.end]]
    return cycles(kernel, runs)


LONG = [pytest.param(name, marks=pytest.mark.slow) for name in ("matmul", "flash attention", "softmax")]


@pytest.mark.parametrize("name", ["grouped GEMM", *LONG])
def test_waits_are_no_longer_than_ptxas_s(name: str) -> None:
    """Of Triton's kernels, by the model of a single warp, which knows of no other that hides a wait."""
    pytest.importorskip("triton", reason="Triton compiles the kernels of this test")
    kernels = importlib.import_module("kernels_sass.bench.triton_kernels")
    cubin = Cubin.from_bytes(bytes(kernels.compiled(name, 80, -1).asm["cubin"]))
    made = again(cubin)[0]
    assert not [f for f in turingas.lint(made) if f.severity != "note"]
    assert estimate(made.texts[0]) <= MORE * estimate(cubin.texts[0])


@pytest.mark.parametrize("name", ["sgemm", *(pytest.param(name, marks=pytest.mark.slow) for name in LAYERS)])
def test_codes_anew_but_for_the_main_loop(name: str) -> None:
    cubin = sgemm_of("sm_90", OWN) if name == "sgemm" else Kernels.of("sm_90", LAYERS[name][2], {}).cubin
    made = outside(cubin)
    assert not [f for f in turingas.lint(made) if f.severity != "note"]
    kept = 0
    for old, new in zip(cubin.texts, made.texts):
        for loop in sorted(summary(Graph(old)), key=lambda loop: -loop.share * loop.instructions)[:1]:
            inside = slice(loop.start // WORD_BYTES, loop.end // WORD_BYTES)
            assert new.words[inside] == old.words[inside]
            kept += 1
        assert [word & ~control.MASK & ~control.REUSE_MASK for word in new.words] == [
            word & ~control.MASK & ~control.REUSE_MASK for word in old.words
        ]
    assert kept


def tried(count: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """How often it is asked what a wait costs, in a loop with so many loads."""
    asked = 0
    early = boards._Boards._early

    def counted(self: boards._Boards, this: boards._Held, m: int) -> float:
        nonlocal asked
        asked += 1
        return early(self, this, m)

    lines = ["MOV R2, RZ;", "loop:"]
    for n in range(count):
        lines += [f"LDG.E.SYS R{8 + n % 200}, [R2+{4 * n:#x}];", f"STS [R3+{4 * n:#x}], R{8 + (n * 7 + 100) % 200};"]
    lines += ["ISETP.NE.AND P0, PT, R2, RZ, PT;", "@P0 BRA loop;", "EXIT;"]
    with monkeypatch.context() as patch:
        patch.setattr(boards._Boards, "_early", counted)
        turingas.assemble("\n".join(lines), arch="sm_75")
    return asked


def test_long_loops_take_no_longer_for_each_instruction(monkeypatch: pytest.MonkeyPatch) -> None:
    assert tried(400, monkeypatch) < 2 * tried(200, monkeypatch)


def branchy(count: int) -> Kernel:
    """Loads, branches around some of them, and loops, again and again."""
    lines = []
    for n in range(count):
        a, b = 8 + 4 * (n % 20), 120 + 4 * (n % 24)
        lines += [f"LDG.E R{a}, desc[UR4][R2.64+0x10];", f"LDG.E R{b}, desc[UR4][R2.64+0x18];",
                  f"ISETP.NE.AND P0, PT, R{b}, R{a}, PT;", f"@P0 BRA skip{n};", f"LDG.E R{b + 1}, desc[UR4][R2.64];",
                  f"skip{n}:", f"again{n}:", f"LDG.E R{a + 1}, desc[UR4][R2.64];",
                  f"FFMA R{b}, R{a + 1}, R{b + 1}, R{b};", f"ISETP.NE.AND P1, PT, R{a + 1}, RZ, PT;",
                  f"@P1 BRA again{n};", f"STG.E desc[UR4][R4.64], R{b};"]  # fmt: skip
    return turingas.assemble("\n".join([*lines, "EXIT;"]), arch="sm_90").texts[0]


def calls(kernel: Kernel) -> int:
    """How many functions of ours are called to schedule a kernel: what takes time, whatever else the machine does."""
    count = 0

    def seen(frame: object, event: str, arg: object) -> None:
        nonlocal count
        count += event == "call"

    nothing = [NOTHING] * len(kernel.words)
    before = sys.getprofile()
    sys.setprofile(seen)
    try:
        codes(kernel, nothing)
    finally:
        sys.setprofile(before)
    return count


def domino(count: int) -> Kernel:
    """Loads that are needed in some of many branches far behind them, and a function that is called between these."""
    lines = [f"LDG.E.128 R{40 + 4 * n}, desc[UR4][R2.64+{16 * n:#x}];" for n in range(30)]
    for n in range(count):
        lines += [f"LDS R{8 + n % 24}, [R9];", f"ISETP.NE.AND P0, PT, R{8 + n % 24}, {n}, PT;", f"@P0 BRA skip{n};"]
        lines += [f"FADD R{32 + n % 4}, R{40 + n % 120}, R33;", "MUFU.RCP R39, R38;", f"skip{n}:"]
        lines += ["FMUL R36, R36, R37;"] * 6
        lines += [f"MOV R4, 32@lo(back{n});", "MOV R5, 0x0;", "CALL.REL.NOINC f;", f"back{n}:"]
    return turingas.assemble("\n".join([*lines, "EXIT;", "f:", "RET.REL.NODEC R4 `(f);"]), arch="sm_90").texts[0]


@pytest.mark.parametrize("many", [branchy, domino])
def test_time_grows_with_the_code_and_not_with_its_square(many: Callable[[int], Kernel]) -> None:
    assert calls(many(160)) < 2.4 * calls(many(80))


def test_rounds_of_loops_take_no_time() -> None:
    """A way may come through a block hundreds of times; how long its instructions take is looked up once."""
    lines = ["loop:", "LDG.E R8, desc[UR4][R2.64];", "FADD R9, R8, R8;", "ISETP.NE.AND P0, PT, R9, RZ, PT;"]
    ways = Ways(Graph(turingas.assemble("\n".join([*lines, "@P0 BRA loop;", "EXIT;"]), arch="sm_90").texts[0]))
    asked: list[int] = []

    def takes(n: int, role: int) -> int:
        asked.append(n)
        return 100

    nothing = [7] * len(ways.facts)
    once = rounds.cycles(ways, [0], nothing, [0, *nothing[1:]], [0, 1, 0, 0, *[0] * len(nothing)], takes)
    often = rounds.cycles(ways, [0] * 1000, nothing, [0, *nothing[1:]], [0, 1, 0, 0, *[0] * len(nothing)], takes)
    assert asked == [0, 0] and once > 100 and often == 1000 * once


def test_a_function_returns_to_who_called_it() -> None:
    """What is under way at one call is not waited for behind another."""
    call = "MOV R4, 32@lo({0});\nMOV R5, 0x0;\nCALL.REL.NOINC f;\n{0}:"
    lines = ["ISETP.NE.AND P0, PT, R9, RZ, PT;", "@P0 BRA other;", "LDG.E.SYS R8, [R2];", call.format("one")]
    lines += ["FADD R10, R8, R8;", "EXIT;", "other:", "MOV R8, R9;", call.format("two"), "FADD R10, R8, R9;", "EXIT;"]
    lines += ["f:", "FADD R11, R9, R9;", "RET.REL.NODEC R4 `(f);"]
    found = fields("\n".join(lines))
    assert [n for n, one in enumerate(found) if one.wait] == [6]


def test_what_is_needed_far_away_is_waited_for_once() -> None:
    """Where all ways come by and it is long done, not in each of the branches behind that."""
    found = [word >> control.WAIT & 63 for word in domino(300).words]
    graph = Graph(domino(300))
    needed = [n for n, i in enumerate(graph.instructions) if i is not None and i.base == "FADD" and found[n]]
    assert needed and max(needed) < len(found) / 2


def test_ways_through_a_kernel() -> None:
    """Which blocks may follow, and from where loops are entered, as a plain search finds them."""
    ways = Ways(Graph(branchy(12)))
    for number in range(len(ways.next)):
        found, left = {number}, [number]
        while left:
            new = [to for to in ways.next[left.pop()] if to not in found]
            found.update(new)
            left += new
        assert ways.reach[number] == sum(1 << to for to in found)
        for to, wrong in ways.roads[number]:
            assert (3 if not wrong & 3 else None) == ways.along(number, to, 3)
    for loop, into in zip(ways.graph.loops, ways.into):
        assert into == [n for n in range(len(ways.next)) if n not in loop.blocks and set(ways.next[n]) & loop.blocks]


def test_a_second_batch_of_loads_has_a_scoreboard_of_its_own() -> None:
    """More loads than there are scoreboards, arithmetic, other loads; the first are waited for, and not the others, for
    which there is more arithmetic."""
    work = ["FFMA R7, R7, R7, R7;"] * 80
    loads = [f"LDG.E R{8 + n}, desc[UR4][R2.64+{128 * n:#x}];" for n in range(12)]
    stores = [f"STS [R1+{128 * n:#x}], R{8 + n};" for n in range(12)]
    begin = [*(f"MOV R{n}, 0x4;" for n in range(8)), "ULDC.64 UR4, c[0x0][0x208];"]
    lines = [*begin, *loads[:8], *work, *loads[8:], *stores[:8], *work, *stores[8:], "EXIT;"]
    cubin = turingas.schedule("\n".join([".arch sm_90", ".registers 64", ".shared 4096", *lines]), keep=False)
    found = walk(Graph(cubin.texts[0]).instructions[: len(lines)], False)[0]
    assert found < GLOBAL + 80 * 4 + 100, found
