"""What waits cost, by the issue model: one warp that issues in order, along one way through the kernel.

Each loop goes round a few times, and other branches are not taken. No other warp hides a wait. It tells one choice of
waits from another, and no times.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

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
    for number in blocks:
        block = ways.graph.blocks[number]
        for n in range(block.start, block.end):
            if waits[n]:
                now = max([now, *(done[board] for board in range(SCOREBOARDS) if waits[n] >> board & 1)])
            for board, role in ((read[n], LATE), (write[n], VARIABLE)):
                if board < SCOREBOARDS:
                    done[board] = max(done[board], now + takes(n, role))
            this = ways.facts[n]
            now += 1 if this is None else ways.lat.issue(this.i)
    return now
