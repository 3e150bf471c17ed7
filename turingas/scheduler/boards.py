"""Which of the six scoreboards tells that something is done.

Any choice is right as long as everybody waits for the one that was chosen; a good choice makes nobody wait for more
than he needs. A wait takes as long as the last of those that share the scoreboard, so what is shared is judged by
cycles: when each is done, when somebody waits, and how much of that wait another wait would have cost anyway. What is
awaited at the same places shares one for nothing.

Whoever gives scoreboards out in the order of the code has given all of them to loads when the first source must be
waited for, which takes a few cycles by itself and the time of a load on a load's scoreboard; and to a first batch of
loads when a second begins. So where some wait is for too much, it is tried again with scoreboards set aside for what is
quick, and one for the second batch.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

from turingas.isa.effects import LATE, SCOREBOARDS
from turingas.isa.table import OPS
from turingas.scheduler.needs import Event
from turingas.scheduler.ways import Ways

#: about how many cycles it takes: sources, shared memory, global memory, all else. An order is all that matters
SOURCES, SHARED, GLOBAL, OTHER = 20, 30, 480, 25
LONGEST = GLOBAL
MOST_ISSUE = 16  # cycles that an instruction counts for at most
MOST_ASIDE = 3  # scoreboards for what is quick
QUICK = 100  # cycles
TOGETHER = 64  # events that are tried together
SHARED_AT_ALL = 0.1  # rather not, where it costs nothing
INFINITE = math.inf

Chosen = dict[tuple[int, int], int]
Wait = tuple[float, float, int]  # when, how many cycles it takes longer, and where
Pair = tuple[list[Wait], list[Wait]]


@dataclass(frozen=True, eq=False, slots=True)
class _Held:
    """An event on its scoreboard, of instruction ``n``. ``spans``: where it is pending, first and last instruction,
    and around a loop from the loop's start on; ``done``: when it is over; ``own``: when it is awaited first; ``round``:
    what is added to the time of a place before it, behind a loop's end; ``at``: where it is awaited; ``kind``: a number
    that all have that are awaited there and are as ``quick``."""

    event: Event
    n: int
    spans: tuple[tuple[int, int], ...]
    done: float
    own: float
    round: float
    at: tuple[int, ...]
    quick: bool
    kind: int

    def when(self, times: Sequence[float], m: int) -> float:
        return times[m] + (self.round if m <= self.n else 0)


Other = tuple[int, _Held, float, float]  # where somebody is awaited too early, who, when, and how many cycles longer


@dataclass
class _Costs:
    """What the waits for a scoreboard cost more than they must, by their places; when those who are awaited too early
    are; and the instruction that got it last."""

    costs: dict[int, float] = field(default_factory=dict)
    dragged: dict[_Held, float] = field(default_factory=dict)
    last: int = -1


class _Board(_Costs):
    """Who holds a scoreboard, so that few are looked at where many hold it. ``ends``: the last instructions of their
    spans; ``flying``: of each place, those that a wait there may come too early for; ``places``: where they are
    awaited; ``who``: by which kinds; ``kinds``: how many have each."""

    def __init__(self) -> None:
        super().__init__()
        self.ends: list[int] = []
        self.flying: dict[int, list[_Held]] = {}
        self.places: list[int] = []
        self.who: dict[int, set[int]] = {}
        self.kinds: Counter[int] = Counter()

    def add(self, one: _Held, times: Sequence[float], places: Sequence[int]) -> None:
        """``places``: all where anybody waits."""
        insort(self.ends, one.spans[0][1])
        for k in (bisect_right(places, one.n), *(bisect_left(places, first) for first, _ in one.spans[1:])):
            while k < len(places) and one.when(times, places[k]) < min(one.own, one.done):
                self.flying.setdefault(places[k], []).append(one)
                k += 1
        for m in () if one.kind in self.kinds else one.at:
            if m not in self.who:
                self.who[m] = set()
                insort(self.places, m)
            self.who[m].add(one.kind)
        self.kinds[one.kind] += 1

    def pending(self, n: int) -> int:
        return len(self.ends) - bisect_left(self.ends, n)

    def waits(self, times: Sequence[float], this: _Held) -> Iterator[int]:
        """Where others wait for it, from the first on; and around a loop, from there on, where ``this`` is pending."""
        for n, (first, last) in enumerate(this.spans):
            for m in self.places[bisect_left(self.places, first) : bisect_right(self.places, last)]:
                if (m <= this.n) != bool(n):
                    continue
                if this.when(times, m) >= min(this.own, this.done):
                    break
                if self.who[m] != {this.kind}:
                    yield m


@dataclass
class _More(_Costs):
    """What is tried to add to a scoreboard; ``ends`` and ``kinds`` as of a board."""

    held: set[_Held] = field(default_factory=set)
    ends: list[int] = field(default_factory=list)
    kinds: dict[int, int] = field(default_factory=dict)

    def add(self, one: _Held) -> None:
        self.held.add(one)
        insort(self.ends, one.spans[0][1])
        self.kinds[one.kind] = self.kinds.get(one.kind, 0) + 1


@dataclass
class _Try:
    """Scoreboards for some events, and what they cost; ``boards``: what comes to each."""

    boards: list[_More]
    chosen: Chosen = field(default_factory=dict)
    cost: float = 0.0


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
    if facts.in_order or facts.made:
        return SHARED
    return GLOBAL if OPS[facts.i.base].pipe in ("lsu", "tex", "copy") else OTHER


class _Boards:
    def __init__(self, ways: Ways, events: Collection[Event], given: Chosen, taken: int, among: Chosen) -> None:
        self.ways, self.given, self.among = ways, given, among
        self.free = [board for board in range(SCOREBOARDS) if not taken >> board & 1] or list(range(SCOREBOARDS))
        ordered = sorted(events, key=lambda event: (event.n, -event.role))
        self.times, self.idle = self._walk(ordered)
        self.idle_at = [place for place, _, _ in self.idle]
        blocks = ways.graph.blocks
        self.starts = [min(blocks[number].start for number in loop.blocks) for loop in ways.graph.loops]
        self.ends = [max(blocks[number].end for number in loop.blocks) - 1 for loop in ways.graph.loops]
        self.kinds: dict[tuple[tuple[int, ...], bool], int] = {}
        self.held = [self._held(event) for event in ordered]
        self.places = sorted({m for one in self.held for m in one.at})
        self.boards = [_Board() for _ in range(SCOREBOARDS)]
        self.pairs: dict[_Held, dict[_Held, Pair]] = {}  # of the events that are tried: who would share with whom
        self.known: dict[tuple[_Held, int], float] = {}
        self.seen: dict[tuple[_Held, int], tuple[list[Other], list[Wait]]] = {}  # ``_beside``, while boards stay

    def run(self) -> tuple[Chosen, float]:
        chosen: Chosen = {}
        cost = sum(cycles * self._often(whom, place) for place, whom, cycles in self.idle)
        for part in self._parts():
            self.pairs = self._pairs(part)
            best = self._greedy(part, 0)
            for aside, later in self._splits(part):
                if best.cost:
                    best = self._greedy(part, aside, best, later)
            cost += best.cost
            chosen |= best.chosen
            self.seen.clear()
            for board, more in zip(self.boards, best.boards):
                board.costs |= more.costs
                board.dragged |= more.dragged
                board.last = more.last
                for one in part:
                    if one in more.held:
                        board.add(one, self.times, self.places)
        return chosen, cost

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
        at, quick = tuple(sorted(event.at)), cycles < QUICK
        kind = self.kinds.setdefault((at, quick), len(self.kinds))
        return _Held(event, event.n, spans, done, own, around, at, quick, kind)

    def _spans(self, event: Event) -> tuple[tuple[tuple[int, int], ...], float]:
        """Where it is pending, in the order of the code: to its last wait, and around the loop if that is behind it;
        and how long the loop takes."""
        ahead = [m for m in event.at if m > event.n]
        back = [m for m in event.at if m <= event.n]
        if not back:
            return ((event.n, max(ahead)),), 0
        loops, here = self.ways.graph.loops, self.ways.block[event.n]
        there = {self.ways.block[m] for m in back}
        around = [number for number in self.ways.inside[here] if there <= loops[number].blocks]
        start, end = min(back), len(self.ways.facts) - 1
        if around:
            inner = min(around, key=lambda number: len(loops[number].blocks))
            start, end = self.starts[inner], self.ends[inner]
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

    def _splits(self, part: Sequence[_Held]) -> Iterator[tuple[int, int]]:
        """How many scoreboards are set aside: for what is quick, and for a second batch of loads, which is under way
        when the first is waited for."""
        most = min(MOST_ASIDE, len(self.free) - 2)
        yield from ((aside, 0) for aside in range(1, most + 1))
        if self._second(part) < INFINITE:
            yield from ((aside, 1) for aside in range(most + 1))

    def _second(self, part: Sequence[_Held]) -> float:
        """When the first of a second batch of what is slow is awaited: behind the longest time in which none is."""
        times = sorted({one.own for one in part if not one.quick})
        return max(zip(times, times[1:]), key=lambda pair: pair[1] - pair[0], default=(0.0, INFINITE))[1]

    def _greedy(self, part: Sequence[_Held], aside: int, known: _Try | None = None, later: int = 0) -> _Try:
        """Scoreboards in the order of the code, the first ``aside`` to what is quick alone, the last ``later`` to
        the second batch of what is slow; or what is known, if that costs no more."""
        quick, slow = (self.free[:aside], self.free[aside:]) if aside else (self.free, self.free)
        soon, second = (slow[:-later], self._second(part)) if later else (slow, INFINITE)
        boards = [_More(last=board.last) for board in self.boards]
        found = _Try(boards)
        for this in part:
            key = this.n, this.event.role
            number = self.given.get(key)
            if number is None:
                some = self._may(this, quick, soon if this.own < second else slow)
                costs = {one: self._sharing(this, one, boards[one]) for one in some}
                number = min(costs, key=lambda one: (costs[one][0], boards[one].last, one))
                shared = costs[number]
            elif number < SCOREBOARDS:
                shared = self._sharing(this, number, boards[number])
            found.chosen[key] = number
            if number < SCOREBOARDS:
                cost, places, dragged = shared
                found.cost += max(0.0, cost)
                board = boards[number]
                board.add(this)
                board.costs |= places
                board.dragged |= dragged
                board.last = this.n
                if known and found.cost >= known.cost:
                    return known
        return found

    def _may(self, this: _Held, quick: Sequence[int], slow: Sequence[int]) -> Sequence[int]:
        """Those that are for it, of which it can get one; or any that it can get."""
        wanted = quick if this.quick else slow
        mask = self.among.get((this.n, this.event.role), 0)
        found = [[one for one in some if mask >> one & 1] for some in (wanted, self.free)]
        return found[0] or found[1] or wanted

    def _sharing(self, this: _Held, number: int, more: _More) -> tuple[float, dict[int, float], dict[_Held, float]]:
        """What it costs to share a scoreboard, with what was tried to add to it: the cycles; what its waits cost then,
        and who is awaited too early, and when. A wait is as long as its longest, and who was waited for is done."""
        board = self.boards[number]
        same = board.kinds[this.kind] + more.kinds.get(this.kind, 0)
        pending = board.pending(this.n) + len(more.ends) - bisect_left(more.ends, this.n)
        cost = SHARED_AT_ALL * pending - (1 + SHARED_AT_ALL) * same
        costs: dict[int, float] = {}
        dragged: dict[_Held, float] = {}
        others, early = self._beside(this, number)
        for m, other, now, longer in others:
            known = more.dragged.get(other)
            if now < (board.dragged.get(other, INFINITE) if known is None else known):
                dragged[other] = min(now, dragged.get(other, INFINITE))
                costs[m] = max(longer, costs.get(m, 0.0))
        for other, (theirs, own) in self.pairs[this].items():
            if other in more.held:
                for now, longer, m in theirs:
                    if now < more.dragged.get(other, INFINITE):
                        dragged[other] = min(now, dragged.get(other, INFINITE))
                        costs[m] = max(longer, costs.get(m, 0.0))
                early = early + own
        if early:
            now, longer, m = min(early)
            dragged[this] = now
            costs[m] = max(longer, costs.get(m, 0.0))
        for m, longer in costs.items():
            known = more.costs.get(m, board.costs.get(m, 0.0))
            cost += max(0.0, longer - known)
            costs[m] = max(longer, known)
        return cost, costs, dragged

    def _pairs(self, part: Sequence[_Held]) -> dict[_Held, dict[_Held, Pair]]:
        """Of each event the ones before it with which it cannot share for nothing: which of its waits come too early
        for these, and which of theirs for it."""
        found: dict[_Held, dict[_Held, Pair]] = {}
        for k, this in enumerate(part):
            pairs = found[this] = {}
            for other in part[:k]:
                if other.kind != this.kind:
                    theirs, own = self._too_early(this.at, other), self._too_early(other.at, this)
                    if theirs or own:
                        pairs[other] = theirs, own
        return found

    def _too_early(self, places: tuple[int, ...], one: _Held) -> list[Wait]:
        """Those of ``places``, which are in order, where a wait comes too early for an event: behind it before it is
        awaited and done, and around a loop."""
        times, k = self.times, bisect_right(places, one.n)
        around = places[:k] if len(one.spans) > 1 else ()
        end = min(one.own, one.done)
        last = k
        while last < len(places) and times[places[last]] < end:
            last += 1
        if last == k and not around:
            return []
        return [(one.when(times, m), longer, m) for m in (*places[k:last], *around) if (longer := self._early(one, m))]

    def _beside(self, this: _Held, number: int) -> tuple[list[Other], list[Wait]]:
        """Of those that hold a scoreboard: who would be awaited too early by waits for ``this``, and which of their
        waits come too early for it."""
        found = self.seen.get((this, number))
        if found is None:
            board, times = self.boards[number], self.times
            others = [
                (m, other, other.when(times, m), longer) for m in this.at for other in board.flying.get(m, ())
                if other.kind != this.kind and (longer := self._early(other, m))
            ]  # fmt: skip
            waits = set(board.waits(times, this))
            early = [(this.when(times, m), longer, m) for m in waits if (longer := self._early(this, m))]
            found = self.seen[this, number] = others, early
        return found

    def _early(self, this: _Held, m: int) -> float:
        """The cycles that a wait at ``m`` takes longer if it is for this event, too, times the weight of the place."""
        key = this, m
        known = self.known.get(key)
        if known is None:
            known = self.known[key] = self._longer(this, m)
        return known

    def _longer(self, this: _Held, m: int) -> float:
        first, last = this.spans[m <= this.n and len(this.spans) > 1]
        if not first <= m <= last or m == this.n:
            return 0.0
        now = this.when(self.times, m)
        if now >= this.own or now >= this.done:
            return 0.0
        more = this.done - now
        if m > this.event.n:  # waits behind it for what is under way already would have cost some of that
            last = max((place for place in this.at if place > m), default=m)
            for k in range(bisect_right(self.idle_at, m), bisect_left(self.idle_at, last + 1)):
                place, whom, cycles = self.idle[k]
                if self.times[place] > self.times[m] + LONGEST:
                    break
                if whom < m:
                    more -= cycles
        return max(0.0, more) * self._often(this.event.n, m)
