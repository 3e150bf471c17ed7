"""What must not follow too soon: anything behind a branch, tensor copies behind what renews their map."""

from __future__ import annotations

from collections.abc import Iterator

from turingas.check.finding import Finding
from turingas.check.report import at
from turingas.check.rules import rule
from turingas.flow.graph import Graph
from turingas.isa.instruction import Instruction, Mem
from turingas.isa.latency import NONE, latencies
from turingas.isa.table import OPS

#: Behind these no code that anybody has seen stalls for less than the rows "behind" of latency.csv say. Behind CALL,
#: BSYNC, EXIT, RET and WARPSYNC none of ptxas's does, either, but for `@P0 CALL.REL.NOINC` on sm_8x, which is its own
#: row; what other makers write there was not looked at.
PROVED = frozenset(name for name, op in OPS.items() if "stalls" in op.traits)
USERS = frozenset(name for name, op in OPS.items() if "mapped" in op.traits)
WAIT = "wait for its read scoreboard in the next instruction, as ptxas does"
Boards = frozenset[int]


@rule("branch-stall", "A shorter stall than any compiled code has behind a branch or a fence")
def branches(graph: Graph) -> Iterator[Finding]:
    """A warning for each that can be reached: nobody has seen that less is enough."""
    rules = latencies(graph.kernel.arch)
    for n in graph.of(*PROVED):
        i = graph.instructions[n]
        if i is None or (passed := rules.stall(i)) >= (need := rules.behind(i)):
            continue
        number = graph.block_of(n)
        block = graph.blocks[number]
        # the branch to itself behind the code: compilers let it stall for 0
        if number in graph.reachable and not (block.next == [number] and block.end - block.start == 1):
            message = f"{i.base} stalls for {passed}; compilers stall for {need} or more behind it"
            yield at(graph, n, "branch-stall", "warning", message, f"stall {need - passed} more")


@rule("map-pending", "A tensor copy that may still use the old tensor map")
def maps(graph: Graph) -> Iterator[Finding]:
    """An error for each copy that a way without a wait leads to from the UTMACCTL that has its map fetched anew."""
    for n in graph.of("UTMACCTL"):
        i = graph.instructions[n]
        if i is not None and "PF" not in i.mods:
            for m in sorted(_reached(graph, n, i)):
                user = graph.instructions[m]
                assert user is not None
                message = f"{user.base} may still use the map that UTMACCTL renews: nothing waits for that"
                yield at(graph, m, "map-pending", "error", message, WAIT, other=n)


def _reached(graph: Graph, n: int, i: Instruction) -> set[int]:
    """The copies by way of this map, or of any (IVALL), before anybody waits for instruction ``n``, or for a
    UTMACMDFLUSH behind it (as cuBLASLt 13.1 does on sm_100). Not followed: ways on which the register of the map is
    written, and calls."""
    own = {(a.file, a.first + word) for a in i.reads if a.file == "UR" for word in range(a.count)}
    found, seen = set[int](), set[tuple[int, Boards]]()
    here = next(number for number, block in enumerate(graph.blocks) if block.start <= n < block.end)
    stack = [(here, n + 1, frozenset({i.control.read} - {NONE}))]
    while stack:
        number, start, boards = stack.pop()
        block = graph.blocks[number]
        for m in range(start, block.end):
            facts, other = graph.effects[m], graph.instructions[m]
            if facts is None or other is None or OPS[other.base].drains:
                break
            if boards & {*facts.wait, *facts.waits} and (other.always or other.guard == i.guard):
                break
            if other.base == "UTMACMDFLUSH" and (other.always or other.guard == i.guard):
                boards |= {other.control.read, other.control.write} - {NONE}
            if other.base in USERS and (not own or _map(other) in own):
                found.add(m)
                break
            if any((a.file, a.first + word) in own for a in other.writes for word in range(a.count)):
                break
        else:
            if block.calls is None:
                new = [(to, boards) for to in block.next if (to, boards) not in seen]
                seen.update(new)
                stack += [(to, graph.blocks[to].start, boards) for to, _ in new]
    return found


def _map(i: Instruction) -> tuple[str, int] | None:
    """The first register of the address of a tensor map."""
    where = i.operands[1]
    register = (where.ur or where.base) if isinstance(where, Mem) else None
    return None if register is None else (register.file, register.index)
