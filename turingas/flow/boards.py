"""Who waits for whom: the instructions that set a scoreboard, and those that a wait on it may wait for."""

from __future__ import annotations

from typing import NamedTuple

from turingas.flow.graph import Graph
from turingas.flow.live import ways
from turingas.isa.effects import SCOREBOARDS, Effects, bits

Counts = tuple[int, ...]  # of each scoreboard, the instructions whose settings may be open, as bits


class Wait(NamedTuple):
    """Instruction ``waiter`` waits on scoreboard ``board``, which ``setter`` may have set and nothing between them has
    waited for. ``left``: so many settings may stay open (DEPBAR.LE); 0: none."""

    setter: int
    waiter: int
    board: int
    left: int = 0


def waits(graph: Graph) -> list[Wait]:
    """All pairs, on any path through the kernel, in the order of the waiters."""
    next_ = ways(graph)
    start: list[Counts | None] = [None] * len(graph.blocks)
    todo = sorted({*graph.entries, *graph.reachable}, reverse=True)
    for number in todo:
        start[number] = (0,) * SCOREBOARDS
    while todo:
        number = todo.pop()
        block, now = graph.blocks[number], start[number]
        assert now is not None
        for n in range(block.start, block.end):
            now = _behind(graph.effects[n], n, now)
        for to in next_[number]:
            before = start[to]
            joined = now if before is None else tuple(a | b for a, b in zip(before, now))
            if joined != before:
                start[to] = joined
                todo.append(to)
    found = []
    for block, state in zip(graph.blocks, start):
        if state is None:
            continue
        for n in range(block.start, block.end):
            facts = graph.effects[n]
            if facts is not None:
                for board, left in _waited(facts):
                    found += [Wait(setter, n, board, left) for setter in bits(state[board])]
            state = _behind(facts, n, state)
    return found


def _waited(facts: Effects) -> list[tuple[int, int]]:
    """The scoreboards that an instruction waits for, and how many settings it leaves open."""
    return [*((board, 0) for board in {*facts.wait, *facts.waits}), *([facts.depbar] if facts.depbar else ())]


def _behind(facts: Effects | None, n: int, state: Counts) -> Counts:
    """What is open behind an instruction. A wait that leaves some open is taken to leave all."""
    if facts is None or not (facts.wait or facts.waits or facts.sets):
        return state
    done = {*facts.wait, *facts.waits}
    return tuple(
        (0 if board in done else open_) | (1 << n if board in facts.sets else 0) for board, open_ in enumerate(state)
    )
