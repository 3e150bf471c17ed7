"""Barriers that some threads of a block miss because of their index. values.py tells what can be known."""

from __future__ import annotations

from collections.abc import Iterator

from turingas.check.finding import Finding
from turingas.check.report import at
from turingas.check.rules import rule
from turingas.check.values import Values, guard, values
from turingas.flow.graph import Graph, flow_of
from turingas.isa.instruction import Imm, Instruction


@rule("divergent-barrier", "A barrier that some threads of the block do not reach")
def check(graph: Graph) -> Iterator[Finding]:
    """Barriers of the whole block that some of its threads are shown to miss."""
    if not any((i := graph.instructions[n]) and _whole(i) for n in graph.of("BAR")):
        return
    found = values(graph)
    hint = "move the barrier to where all threads pass; threads that have ended do not count"
    unsure = "; that depends on a value that is not known here"
    for number in sorted(graph.reachable):
        for n, i, state in found.instructions(number, ("BAR",)):
            sure = guard(state, i)
            if _whole(i) and not i.always and sure is not None and sure.thread:
                message = f"only the threads for which {i.guard} {_is(i)} reach this barrier"
                severity, more = ("warning", "") if sure.sure else ("note", unsure)
                yield at(graph, n, "divergent-barrier", severity, message + more, hint)
    told: set[int] = set()
    for number in sorted(graph.reachable):
        deciding = found.decides(number) if len(graph.blocks[number].next) == 2 else None
        if deciding is None or not deciding.thread:
            continue
        for n in _missed(graph, found, number):
            if n not in told:
                told.add(n)
                branch = graph.blocks[number].end - 1
                if deciding.sure:
                    message = "an index of the thread decides who reaches this barrier, and others do not wait at one"
                    yield at(graph, n, "divergent-barrier", "warning", message, hint, branch)
                else:
                    message = "an index of the thread may decide who reaches this barrier" + unsure
                    yield at(graph, n, "divergent-barrier", "note", message, hint, branch)


def _whole(i: Instruction) -> bool:
    """Whether all threads of a block wait at it: BAR.SYNC or BAR.RED with the number of a barrier and no count."""
    if i.base != "BAR" or not {"SYNC", "RED"} & set(i.mods):
        return False
    number, count = i.operands[:2]
    return isinstance(number, Imm) and isinstance(count, Imm) and count.value == 0


def _is(i: Instruction) -> str:
    return "is false" if i.guard.inv else "holds"


def _missed(graph: Graph, found: Values, number: int) -> list[int]:
    """The barriers on one way from a branch, when the other way passes none before the two meet."""
    end = found.meet(number)
    if end is None or _only_ends(graph, end):
        return []  # threads that have ended are not waited for
    ways = [_barriers_of(graph, way - {end}) for way in found.ways(number)]
    if len(ways) != 2 or all(ways) or not any(ways):
        return []
    return [n for n in ways[0] or ways[1] if (i := graph.instructions[n]) is not None and _whole(i)]


def _only_ends(graph: Graph, number: int) -> bool:
    """Whether nothing is done from this block on but to end."""
    block = graph.blocks[number]
    for n in range(block.start, block.end):
        i = graph.instructions[n]
        if i is None or not i.op.traits & MEETING:
            return i is not None and flow_of(i) == "end" and i.always
    return False


#: Op.traits of what does nothing but let threads meet, or order what they did before (nvcc -G ends kernels so)
MEETING = frozenset(["nothing", "meets", "fence"])


def _barriers_of(graph: Graph, blocks: set[int]) -> list[int]:
    places = [graph.blocks[b] for b in sorted(blocks)]
    code = [(n, graph.instructions[n]) for place in places for n in range(place.start, place.end)]
    return [n for n, i in code if i is not None and i.base == "BAR" and {"SYNC", "RED"} & set(i.mods)]
