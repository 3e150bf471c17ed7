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

import math
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

from turingas.isa.effects import LATE, SCOREBOARDS
from turingas.isa.table import OPS
from turingas.scheduler.needs import Event
from turingas.scheduler.ways import Ways

#: about how many cycles it takes: sources, shared memory, global memory, all else. An order is all that matters
SOURCES, SHARED, GLOBAL, OTHER = 20, 30, 480, 25
MOST_ISSUE = 16  # cycles that an instruction counts for at most
SET_ASIDE = (0, 1, 2, 3)  # scoreboards for what is quick
QUICK = 100  # cycles
TOGETHER = 64  # events that are tried together
SHARED_AT_ALL = 0.1  # rather not, where it costs nothing
INFINITE = math.inf

Chosen = dict[tuple[int, int], int]


@dataclass(frozen=True, eq=False)
class _Held:
    """An event on its scoreboard. ``spans``: where it is pending, first and last instruction; ``until``: the last that
    may come before a wait for it; ``done``: when; ``own``: when it is awaited first; ``round``: what is added to the
    time of a place before it, behind a loop's end."""

    event: Event
    spans: tuple[tuple[int, int], ...]
    until: int
    done: float
    own: float
    round: float
    quick: bool
    at: tuple[int, ...]

    def when(self, times: Sequence[float], m: int) -> float:
        return times[m] + (self.round if m <= self.event.n else 0)


@dataclass
class _Board:
    """Who holds a scoreboard; what its waits cost more than they must, by their places; and when those who are awaited
    too early are; ``last``: the instruction that got it last."""

    held: list[_Held] = field(default_factory=list)
    costs: dict[int, float] = field(default_factory=dict)
    dragged: dict[_Held, float] = field(default_factory=dict)
    last: int = -1


@dataclass
class _State:
    """What has been given out so far, and what that costs."""

    boards: list[_Board]
    chosen: Chosen
    cost: float

    def copy(self) -> _State:
        boards = [_Board(list(one.held), dict(one.costs), dict(one.dragged), one.last) for one in self.boards]
        return _State(boards, dict(self.chosen), self.cost)


def assign(ways: Ways, events: Collection[Event], given: Chosen, taken: int, among: Chosen) -> tuple[Chosen, float]:
    """Instruction and role -> scoreboard, of every event; and about how many cycles the warp waits then. ``given``:
    those that the author wrote; ``taken``: a mask of those that are not to be used; ``among``: masks of those that an
    event should get one of."""
    return _Boards(ways, events, given, taken, among).run()


def takes(ways: Ways, n: int, role: int) -> int:
    """About how many cycles it takes until the sources of an instruction (LATE) were read, or its results are there."""
    facts = ways.facts[n]
    if role == LATE or facts is None:
        return SOURCES
    if facts.in_order:
        return SHARED
    return GLOBAL if OPS[facts.i.base].pipe in ("lsu", "tex", "copy") else OTHER


class _Boards:
    def __init__(self, ways: Ways, events: Collection[Event], given: Chosen, taken: int, among: Chosen) -> None:
        self.ways, self.given, self.among = ways, given, among
        self.free = [board for board in range(SCOREBOARDS) if not taken >> board & 1] or list(range(SCOREBOARDS))
        ordered = sorted(events, key=lambda event: (event.n, -event.role))
        self.times, self.idle = self._walk(ordered)
        self.idle_at = [place for place, _, _ in self.idle]
        self.held = [self._held(event) for event in ordered]
        self.known: dict[tuple[int, int, int], float] = {}

    def run(self) -> tuple[Chosen, float]:
        best = _State([_Board() for _ in range(SCOREBOARDS)], {}, 0.0)
        for part in self._parts():
            tries: list[_State] = []
            for aside in SET_ASIDE:
                if aside and aside + 1 >= len(self.free):
                    break
                tries.append(self._greedy(part, aside, best.copy()))
                if tries[0].cost <= best.cost:
                    break
            best = min(tries, key=lambda one: one.cost)
        waits = sum(cycles * self._often(whom, place) for place, whom, cycles in self.idle)
        return best.chosen, best.cost + waits

    def _often(self, n: int, m: int) -> int:
        """How often ``m`` waits for ``n``: of what began before a loop, only the first round knows."""
        return min(self.ways.weight[n], self.ways.weight[m])

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
                last = max(awaited[n], key=lambda event: times[event.n] + takes(self.ways, event.n, event.role))
                done = times[last.n] + takes(self.ways, last.n, last.role)
                if done > now:
                    idle.append((n, last.n, done - now))
                    now = done
            times.append(now)
            now += 1 if this is None else max(1, min(self.ways.lat.issue(this.i), MOST_ISSUE))
        return times, idle

    def _held(self, event: Event) -> _Held:
        spans, around = self._spans(event)
        cycles = takes(self.ways, event.n, event.role)
        own = min(self.times[m] + (around if m <= event.n else 0) for m in event.at)
        done = self.times[event.n] + cycles
        return _Held(event, spans, self._until(event), done, own, around, cycles < QUICK, tuple(sorted(event.at)))

    def _until(self, event: Event) -> int:
        """A wait in a loop comes again in each round, for what was set since."""
        blocks = self.ways.graph.blocks
        there = {self.ways.block[m] for m in event.at}
        around = [loop for loop in self.ways.graph.loops if not there.isdisjoint(loop.blocks)]
        return max([*event.at, *(blocks[number].end - 1 for loop in around for number in loop.blocks)])

    def _spans(self, event: Event) -> tuple[tuple[tuple[int, int], ...], float]:
        """Where it is pending, in the order of the code: to its last wait, and around the loop if that is behind it;
        and how long the loop takes."""
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
        """The events of each block, in the order of the code; of a long one, some at a time."""
        part: list[_Held] = []
        for one in self.held:
            if part and (len(part) >= TOGETHER or self.ways.block[part[0].event.n] != self.ways.block[one.event.n]):
                yield part
                part = []
            part.append(one)
        if part:
            yield part

    def _greedy(self, part: Sequence[_Held], aside: int, state: _State) -> _State:
        """Give scoreboards out in the order of the code, the first ``aside`` to what is quick alone."""
        quick, slow = (self.free[:aside], self.free[aside:]) if aside else (self.free, self.free)
        boards = state.boards
        for this in part:
            event = this.event
            number = self.given.get((event.n, event.role))
            if number is None:
                for one in self.free:  # what is over for good no longer counts: the code comes in order
                    held = boards[one].held
                    held[:] = [h for h in held if h.until >= event.n]
                may = self._may(this, quick if this.quick else slow)
                costs = {one: self._sharing(this, boards[one]) for one in may}
                number = min(costs, key=lambda one: (costs[one][0], boards[one].last, one))
                found = costs[number]
            elif number < SCOREBOARDS:
                found = self._sharing(this, boards[number])
            state.chosen[event.n, event.role] = number
            if number < SCOREBOARDS:
                cost, places, dragged = found
                state.cost += max(0.0, cost)
                board = boards[number]
                board.held.append(this)
                board.costs.update(places)
                board.dragged.update(dragged)
                board.last = event.n
        return state

    def _may(self, this: _Held, wanted: Sequence[int]) -> Sequence[int]:
        """Those of ``wanted`` that it can get; or any that it can get."""
        mask = self.among.get((this.event.n, this.event.role), 0)
        found = [[one for one in some if mask >> one & 1] for some in (wanted, self.free)]
        return found[0] or found[1] or wanted

    def _sharing(self, this: _Held, board: _Board) -> tuple[float, dict[int, float], dict[_Held, float]]:
        """What it costs to share a scoreboard: the cycles; what its waits cost then, and who is awaited too early, and
        when. A wait is as long as its longest, and who was waited for is done."""
        cost = 0.0
        costs: dict[int, float] = {}
        dragged: dict[_Held, float] = {}
        early: list[tuple[float, float, int]] = []
        for other in board.held:
            if not any(a[0] <= b[1] and b[0] <= a[1] for a in this.spans for b in other.spans):
                continue
            if this.at == other.at and this.quick == other.quick:
                cost -= 1
                continue
            cost += SHARED_AT_ALL
            for m in other.at:
                if more := self._early(this, m):
                    early.append((this.when(self.times, m), more, m))
            for m in this.at:
                now = other.when(self.times, m)
                if now < board.dragged.get(other, INFINITE) and (more := self._early(other, m)):
                    dragged[other] = min(now, dragged.get(other, INFINITE))
                    costs[m] = max(more, costs.get(m, 0.0))
        if early:
            now, more, m = min(early)
            dragged[this] = now
            costs[m] = max(more, costs.get(m, 0.0))
        for m, more in costs.items():
            known = board.costs.get(m, 0.0)
            cost += max(0.0, more - known)
            costs[m] = max(more, known)
        return cost, costs, dragged

    def _early(self, this: _Held, m: int) -> float:
        """The cycles that a wait at ``m`` takes longer if it is for this event, too, times the weight of the place."""
        key = this.event.n, this.event.role, m
        known = self.known.get(key)
        if known is None:
            known = self.known[key] = self._longer(this, m)
        return known

    def _longer(self, this: _Held, m: int) -> float:
        if not any(first <= m <= last for first, last in this.spans) or m == this.event.n:
            return 0.0
        now = this.when(self.times, m)
        if now >= this.own or now >= this.done:
            return 0.0
        more = this.done - now
        if m > this.event.n:  # waits behind it for what is under way already would have cost some of that
            last = max((place for place in this.at if place > m), default=m)
            for _, whom, cycles in self.idle[bisect_right(self.idle_at, m) : bisect_left(self.idle_at, last + 1)]:
                if whom < m:
                    more -= cycles
        return max(0.0, more) * self._often(this.event.n, m)
