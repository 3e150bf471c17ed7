"""Which of the six scoreboards tells that something is done.

Any choice is right as long as everybody waits for the one that was chosen; a good choice makes nobody wait for more
than he needs. What is awaited at the same places shares one. Where none is free, that one is shared whose waits hold
the fewest up.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from turingas.isa.effects import LATE, SCOREBOARDS
from turingas.scheduler.needs import Event
from turingas.scheduler.ways import Ways

#: about how long it takes, in instructions: results that come through the caches, and all else
SLOW, QUICK = 40, 4
FAR = 1000  # instructions: to a wait behind the end of a loop


@dataclass(frozen=True)
class _Held:
    """An event on its scoreboard. ``spans``: where it is pending, first and last instruction; ``own``: where it is
    awaited first, in the order of the code; ``time``: about how long it takes."""

    event: Event
    spans: tuple[tuple[int, int], ...]
    own: int
    time: int
    ahead: tuple[int, ...]


def assign(
    ways: Ways, events: Collection[Event], given: Mapping[tuple[int, int], int], taken: int
) -> dict[tuple[int, int], int]:
    """Instruction and role -> scoreboard, of every event. ``given``: those that the author wrote; ``taken``: a mask of
    those that are not to be used."""
    chosen: dict[tuple[int, int], int] = {}
    held: list[list[_Held]] = [[] for _ in range(SCOREBOARDS)]
    last = [-1] * SCOREBOARDS  # which instruction got each last
    free = [board for board in range(SCOREBOARDS) if not taken >> board & 1] or list(range(SCOREBOARDS))
    for event in sorted(events, key=lambda event: event.n):
        this = _held(ways, event)
        board = given.get((event.n, event.role))
        if board is None:
            for one in free:  # what is over for good no longer counts: the code comes in order
                held[one] = [h for h in held[one] if len(h.spans) > 1 or h.spans[0][1] >= event.n]
            board = min(free, key=lambda one: (_cost(this, held[one]), last[one], one))
        chosen[event.n, event.role] = board
        if board < SCOREBOARDS:
            held[board].append(this)
            last[board] = event.n
    return chosen


def _held(ways: Ways, event: Event) -> _Held:
    facts = ways.facts[event.n]
    assert facts is not None
    ahead = tuple(sorted(m for m in event.at if m > event.n))
    time = SLOW if event.role != LATE and not facts.in_order else QUICK
    return _Held(event, tuple(_spans(ways, event)), ahead[0] if ahead else max(event.at) + FAR, time, ahead)


def _spans(ways: Ways, event: Event) -> list[tuple[int, int]]:
    """Where it is pending, in the order of the code: to its last wait, and around the loop if that is behind it."""
    ahead = [m for m in event.at if m > event.n]
    back = [m for m in event.at if m <= event.n]
    if not back:
        return [(event.n, max(ahead))]
    blocks = ways.graph.blocks
    here, there = ways.block[event.n], {ways.block[m] for m in back}
    around = [loop for loop in ways.graph.loops if here in loop.blocks and there <= loop.blocks]
    start, end = min(back), len(ways.facts) - 1
    if around:
        inner = min(around, key=lambda loop: len(loop.blocks))
        start = min(blocks[number].start for number in inner.blocks)
        end = max(blocks[number].end for number in inner.blocks) - 1
    return [(event.n, max([end, *ahead])), (start, max(back))]


def _cost(this: _Held, held: Collection[_Held]) -> float:
    """What it costs to share a scoreboard with those that hold it."""
    cost = 0.0
    for other in held:
        if not any(a[0] <= b[1] and b[0] <= a[1] for a in this.spans for b in other.spans):
            continue
        if this.event.at == other.event.at and (this.event.role == LATE) == (other.event.role == LATE):
            cost -= 1.0
        else:
            cost += _early(this, other) * this.time + _early(other, this) * other.time or 0.1
    return cost


def _early(this: _Held, other: _Held) -> float:
    """How much sooner than needed one is awaited where the other is, in parts of the way to its own wait."""
    start = this.event.n
    for m in other.ahead:
        if m >= this.own:
            break
        if m > start:
            return (this.own - m) / (this.own - start)
    return 0.0
