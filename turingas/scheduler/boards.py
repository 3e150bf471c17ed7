"""Which of the six scoreboards tells that something is done.

Any choice is right as long as everybody waits for the one that was chosen; a good choice makes nobody wait for more
than he needs. A wait takes as long as the last of those that share the scoreboard, so what is shared is judged by
cycles: when each is done, when somebody waits, and how much of that wait another wait would have cost anyway. What is
awaited at the same places shares one for nothing.

Whoever gives scoreboards out in the order of the code has given all of them to loads when the first source must be
waited for, which takes a few cycles by itself and the time of a load on a load's scoreboard. So where some wait is for
too much, it is tried again with scoreboards set aside for what is quick.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from turingas.isa.effects import LATE, SCOREBOARDS
from turingas.isa.table import OPS
from turingas.scheduler.needs import Event
from turingas.scheduler.ways import Ways

#: about how many cycles it takes: sources, shared memory, global memory, all else. An order is all that matters
SOURCES, SHARED, GLOBAL, OTHER = 20, 30, 480, 25
MOST_ISSUE = 16  # cycles that an instruction counts for at most
SET_ASIDE = (0, 1, 2, 3)  # scoreboards for what is quick
QUICK = 100  # cycles

Chosen = dict[tuple[int, int], int]


@dataclass(frozen=True)
class _Held:
    """An event on its scoreboard. ``spans``: where it is pending, first and last instruction; ``done``: when; ``own``:
    when it is awaited first; ``round``: what is added to the time of a place before it, behind a loop's end."""

    event: Event
    spans: tuple[tuple[int, int], ...]
    done: float
    own: float
    round: float
    quick: bool
    at: tuple[int, ...]

    def when(self, times: Sequence[float], m: int) -> float:
        return times[m] + (self.round if m <= self.event.n else 0)


def assign(ways: Ways, events: Collection[Event], given: Mapping[tuple[int, int], int], taken: int) -> Chosen:
    """Instruction and role -> scoreboard, of every event. ``given``: those that the author wrote; ``taken``: a mask of
    those that are not to be used."""
    return _Boards(ways, events, given, taken).run()


class _Boards:
    def __init__(
        self, ways: Ways, events: Collection[Event], given: Mapping[tuple[int, int], int], taken: int
    ) -> None:
        self.ways, self.given = ways, given
        self.free = [board for board in range(SCOREBOARDS) if not taken >> board & 1] or list(range(SCOREBOARDS))
        ordered = sorted(events, key=lambda event: (event.n, -event.role))
        self.times, self.idle = self._walk(ordered)
        self.idle_at = [place for place, _, _ in self.idle]
        self.held = [self._held(event) for event in ordered]
        self.costs: dict[tuple[int, int, int, int], float] = {}

    def run(self) -> Chosen:
        chosen: Chosen = {}
        last = [-1] * SCOREBOARDS  # which instruction got each last
        for part in self._parts():
            tries: list[tuple[float, Chosen, list[int]]] = []
            for aside in SET_ASIDE:
                if aside and aside + 1 >= len(self.free):
                    break
                tries.append(self._greedy(part, aside, list(last)))
                if tries[0][0] <= 0:
                    break
            _, best, last = min(tries, key=lambda one: one[0])
            chosen.update(best)
        return chosen

    def _walk(self, events: Sequence[Event]) -> tuple[list[float], list[tuple[int, int, float]]]:
        """When each instruction is issued if everything had a scoreboard of its own; and the waits: where, for whom,
        and how long."""
        awaited: dict[int, list[Event]] = {}
        for event in events:
            for m in event.at:
                if m > event.n:
                    awaited.setdefault(m, []).append(event)
        times: list[float] = []
        idle = []
        now = 0.0
        for n, this in enumerate(self.ways.facts):
            if n in awaited:
                last = max(awaited[n], key=lambda event: times[event.n] + self._takes(event))
                done = times[last.n] + self._takes(last)
                if done > now:
                    idle.append((n, last.n, done - now))
                    now = done
            times.append(now)
            now += 1 if this is None else max(1, min(self.ways.lat.issue(this.i), MOST_ISSUE))
        return times, idle

    def _takes(self, event: Event) -> int:
        facts = self.ways.facts[event.n]
        assert facts is not None
        if event.role == LATE:
            return SOURCES
        if facts.in_order:
            return SHARED
        return GLOBAL if OPS[facts.i.base].pipe in ("lsu", "tex", "copy") else OTHER

    def _held(self, event: Event) -> _Held:
        spans, around = self._spans(event)
        takes = self._takes(event)
        own = min(self.times[m] + (around if m <= event.n else 0) for m in event.at)
        done = self.times[event.n] + takes
        return _Held(event, spans, done, own, around, takes < QUICK, tuple(sorted(event.at)))

    def _spans(self, event: Event) -> tuple[tuple[tuple[int, int], ...], float]:
        """Where it is pending, in the order of the code: to its last wait, and around the loop if that is behind it; and
        how long the loop takes."""
        ahead = [m for m in event.at if m > event.n]
        back = [m for m in event.at if m <= event.n]
        if not back:
            return ((event.n, max(ahead)),), 0
        blocks = self.ways.graph.blocks
        here, there = self.ways.block[event.n], {self.ways.block[m] for m in back}
        around = [loop for loop in self.ways.graph.loops if here in loop.blocks and there <= loop.blocks]
        start, end = min(back), len(self.ways.facts) - 1
        if around:
            inner = min(around, key=lambda loop: len(loop.blocks))
            start = min(blocks[number].start for number in inner.blocks)
            end = max(blocks[number].end for number in inner.blocks) - 1
        return ((event.n, max([end, *ahead])), (start, max(back))), self.times[end] - self.times[start]

    def _parts(self) -> Iterator[list[_Held]]:
        """The events, parted where nothing is under way."""
        reach: list[tuple[int, int, _Held]] = [
            (min(a for a, _ in one.spans), max(b for _, b in one.spans), one) for one in self.held
        ]
        reach.sort(key=lambda row: row[:2])
        part: list[_Held] = []
        end = -1
        for start, stop, one in reach:
            if part and start > end:
                yield sorted(part, key=lambda one: one.event.n)
                part = []
            part.append(one)
            end = max(end, stop)
        if part:
            yield sorted(part, key=lambda one: one.event.n)

    def _greedy(self, part: Sequence[_Held], aside: int, last: list[int]) -> tuple[float, Chosen, list[int]]:
        """Give scoreboards out in the order of the code, the first ``aside`` to what is quick alone. What it costs, who
        got which, and who got each last."""
        held: list[list[_Held]] = [[] for _ in range(SCOREBOARDS)]
        total = 0.0
        chosen: Chosen = {}
        quick, slow = (self.free[:aside], self.free[aside:]) if aside else (self.free, self.free)
        for this in part:
            event = this.event
            board = self.given.get((event.n, event.role))
            if board is None:
                for one in self.free:  # what is over for good no longer counts: the code comes in order
                    held[one] = [h for h in held[one] if len(h.spans) > 1 or h.spans[0][1] >= event.n]
                costs = {one: self._sharing(this, held[one]) for one in (quick if this.quick else slow)}
                board = min(costs, key=lambda one: (costs[one], last[one], one))
                total += max(0.0, costs[board])
            elif board in self.free:
                total += max(0.0, self._sharing(this, held[board]))
            chosen[event.n, event.role] = board
            if board < SCOREBOARDS:
                held[board].append(this)
                last[board] = event.n
        return total, chosen, last

    def _sharing(self, this: _Held, held: Collection[_Held]) -> float:
        """What it costs to share a scoreboard with those that hold it."""
        cost = 0.0
        for other in held:
            if not any(a[0] <= b[1] and b[0] <= a[1] for a in this.spans for b in other.spans):
                continue
            key = this.event.n, this.event.role, other.event.n, other.event.role
            known = self.costs.get(key)
            if known is None:
                same = this.at == other.at and (this.event.role == LATE) == (other.event.role == LATE)
                known = -1.0 if same else self._early(this, other) + self._early(other, this) or 0.1
                self.costs[key] = known
            cost += known
        return cost

    def _early(self, this: _Held, other: _Held) -> float:
        """The cycles that one costs those who wait for the other, times the weight of the place."""
        worst = 0.0
        for m in other.at:
            if not any(first <= m <= last for first, last in this.spans) or m == this.event.n:
                continue
            now = this.when(self.times, m)
            if now >= this.own or now >= this.done:
                continue
            more = this.done - now
            if m > this.event.n:  # waits behind it for what is under way already would have cost some of that
                last = max((place for place in this.at if place > m), default=m)
                for _, whom, cycles in self.idle[bisect_right(self.idle_at, m) : bisect_left(self.idle_at, last + 1)]:
                    if whom < m:
                        more -= cycles
            worst = max(worst, more * self.ways.weight[m])
        return worst
