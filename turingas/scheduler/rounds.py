"""What waits cost, by the issue model: one warp that issues in order, along one way through the kernel.

Each loop goes round a few times, and other branches are not taken. No other warp hides a wait. It tells one choice of
waits from another, and no times.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from turingas.isa.effects import LATE, SCOREBOARDS, VARIABLE
from turingas.scheduler.ways import Ways

ROUNDS = 4
MOST_BLOCKS = 2000  # of a way: nested loops are cut off there


def way(ways: Ways) -> list[int]:
    """The blocks that the warp comes through, from the first one."""
    blocks = ways.graph.blocks
    back = {
        (number, to) for loop in ways.graph.loops for number in loop.blocks for to in blocks[number].next
        if to in loop.blocks and blocks[to].start <= blocks[number].start
    }  # fmt: skip
    rounds: dict[tuple[int, int], int] = {}
    found = [0]
    while len(found) < MOST_BLOCKS:
        number = found[-1]
        ahead = [to for to in blocks[number].next if (number, to) not in back]
        again = next((to for to in blocks[number].next if (number, to) in back), None)
        if again is not None:
            rounds[number, again] = (rounds.get((number, again), 0) + 1) % ROUNDS
            if rounds[number, again] or not ahead:
                ahead = [again] if rounds[number, again] else []
        if not ahead:
            break
        found.append(min(ahead, key=lambda to: blocks[to].start))
    return found


def cycles(
    ways: Ways,
    blocks: Sequence[int],
    read: Sequence[int],
    write: Sequence[int],
    waits: Sequence[int],
    takes: Callable[[int, int], int],
) -> int:
    """Cycles along a way. ``read``, ``write``: the scoreboards that each instruction sets; ``waits``: masks of those
    that it waits for; ``takes``: cycles of an instruction's sources (LATE) or results (VARIABLE)."""
    done = [0] * SCOREBOARDS
    now = 0
    plans: dict[int, tuple[list[_Step], int]] = {}
    for number in blocks:
        if number not in plans:
            plans[number] = _plan(ways, number, read, write, waits, takes)
        steps, rest = plans[number]
        for step in steps:
            now += step.idle
            for board in step.waits:
                if done[board] > now:
                    now = done[board]
            for board, later in step.sets:
                if now + later > done[board]:
                    done[board] = now + later
        now += rest
    return now


class _Step(NamedTuple):
    """An instruction that waits for scoreboards, or sets some, and in how many cycles; ``idle``: cycles before it."""

    idle: int
    waits: list[int]
    sets: list[tuple[int, int]]


def _plan(
    ways: Ways,
    number: int,
    read: Sequence[int],
    write: Sequence[int],
    waits: Sequence[int],
    takes: Callable[[int, int], int],
) -> tuple[list[_Step], int]:
    """What matters of a block, which a way may come through often; and the cycles behind the last of it."""
    steps, passed = [], 0
    block = ways.graph.blocks[number]
    for n in range(block.start, block.end):
        both = (read[n], LATE), (write[n], VARIABLE)
        sets = [(board, takes(n, role)) for board, role in both if board < SCOREBOARDS]
        if waits[n] or sets:
            steps.append(_Step(passed, [board for board in range(SCOREBOARDS) if waits[n] >> board & 1], sets))
            passed = 0
        this = ways.facts[n]
        passed += 1 if this is None else ways.lat.issue(this.i)
    return steps, passed
