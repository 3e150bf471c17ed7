"""What the control codes of a kernel must respect, looked for from each result and each source: who needs it next, on
every way that control may take from there.

(The linter goes the other way round: it carries all that is under way along, and looks back from each instruction. The
two share what an instruction means, turingas/isa/effects and latency, and the ways, turingas/flow; no more.)
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heapreplace
from typing import NamedTuple

from turingas.flow.guards import opposite
from turingas.isa.effects import FIXED, LATE, SOONEST, VARIABLE, WITH_SOURCES, Effects, bits, literal
from turingas.isa.latency import BARRIER
from turingas.isa.table import OPS
from turingas.scheduler.ways import Calls, Ways

#: pipes behind which compilers stall until the next instruction of the same pipe can begin
PACED = ("alu", "fma", "half", "lsu", "fp64", "uniform")
LONGEST_PACE = 8  # cycles: what takes longer is left to the hardware

SCOREBOARD, PACE = -1, -2  # what a distance may be for besides a register

MOST_BLOCKS = 128  # that ways come through before what is asked for is waited for where they meet
MANY_BLOCKS = 8 * MOST_BLOCKS  # ... and before calls are not told apart
MOST_CALLS = 2
UNSEEN = (0, -1)
FAR = 500  # instructions: behind so many anything is done


class Distance(NamedTuple):
    """The stalls of the instructions of ``path`` add up to ``cycles`` at least, before instruction ``to`` comes.
    ``register``: what it is for; SCOREBOARD: ``to`` waits for one that was just set; PACE: a pipe that is busy."""

    path: tuple[int, ...]
    cycles: int
    to: int
    register: int


@dataclass(frozen=True)
class Event:
    """Something that ends at no fixed time: the results of instruction ``n`` (``role`` VARIABLE), or the reading of its
    sources, and what comes with that (LATE). ``at``: the instructions that must wait for it, the first on each way."""

    n: int
    role: int
    at: frozenset[int]


class _Walk(NamedTuple):
    """What is followed: the results or the sources (``role``) of an instruction that does ``this``. ``told``: those who
    wait already; ``stops``: where a way ends, for they wait whatever their guard is; ``found``: those who must wait."""

    this: Effects
    role: int
    told: frozenset[int]
    stops: list[int]
    found: set[int]


class Needs:
    """``events``: what is told by scoreboards, and somebody waits for. ``may``: the instructions whose waits may be
    chosen."""

    def __init__(self, ways: Ways, may: Container[int]) -> None:
        self.ways, self.facts, self.lat, self.may = ways, ways.facts, ways.lat, may
        self.blocks = ways.graph.blocks
        self.against = [opposite(mask) for mask in ways.guards.runs]
        self.before = [opposite(mask) for mask in ways.guards.ways]
        #: block -> register -> instructions that touch it, or write it; and a mask of these registers
        self.touches: list[tuple[dict[int, list[int]], int]] = []
        self.overwritten: list[tuple[dict[int, list[int]], int]] = []
        #: block -> instructions that write predicates, and these
        self.clears: list[list[tuple[int, int]]] = []
        #: block -> all literals that it clears
        self.cleared: list[int] = []
        for block in self.blocks:
            touched: dict[int, list[int]] = {}
            written: dict[int, list[int]] = {}
            cleared = []
            all_touched = all_written = all_cleared = 0
            for n in range(block.start, block.end):
                this = self.facts[n]
                if this is None:
                    continue
                for register in {*this.reads, *this.writes, *bits(this.ordered)}:
                    touched.setdefault(register, []).append(n)
                for register in this.writes:
                    written.setdefault(register, []).append(n)
                all_touched |= this.touched | this.ordered
                all_written |= this.changes
                all_cleared |= this.clears
                if this.clears:
                    cleared.append((n, this.clears))
            self.touches.append((touched, all_touched))
            self.overwritten.append((written, all_written))
            self.clears.append(cleared)
            self.cleared.append(all_cleared)
        self.open = {ways.block[n] for n in ways.open}
        self.crosses = [block.calls is not None or bool(back) for block, back in zip(self.blocks, ways.back)]
        #: block -> registers that may be touched, or written, from its begin on; all where unknown code follows
        self.ahead = self._ahead([mask for _, mask in self.touches])
        self.written_ahead = self._ahead([mask for _, mask in self.overwritten])
        self.events = [event for event in self._events() if event.at]

    def _ahead(self, of_blocks: list[int]) -> list[int]:
        found = [-1 if number in self.open else mask for number, mask in enumerate(of_blocks)]
        changed = True
        while changed:
            changed = False
            for number in range(len(found) - 1, -1, -1):
                mask = found[number]
                for to in self.ways.next[number]:
                    mask |= found[to]
                if mask != found[number]:
                    found[number], changed = mask, True
        return found

    # -- what ends at no fixed time

    def _events(self) -> list[Event]:
        events = []
        for n, this in enumerate(self.facts):
            if this is None:
                continue
            fence = self.lat.fence(this.i)
            if fence:
                events.append(Event(n, VARIABLE if fence == "w" else LATE, frozenset(self.behind(n))))
            if not this.queue:
                continue
            at: dict[int, frozenset[int]] = {}
            for role in (VARIABLE, WITH_SOURCES):
                registers = this.arriving.get(role, 0)
                if registers:
                    at[role] = self._first(n, this, role, registers, frozenset())
            if this.read_late:  # who waits for the results waits for this, too
                told = at.get(VARIABLE, frozenset())
                at[LATE] = self._first(n, this, LATE, this.read_late, told)
            if WITH_SOURCES in at:  # one scoreboard tells of both
                at[LATE] = at.pop(WITH_SOURCES) | at.get(LATE, frozenset())
            for role, places in at.items():
                events.append(Event(n, role, frozenset(self._asked(n, m) for m in places)))
        return events

    def _asked(self, n: int, m: int) -> int:
        """Where the wait of instruction ``m`` for instruction ``n`` stands: of a product of a warp group, which all its
        warps begin together, at the WARPGROUP.ARRIVE before it. (No product of ptxas's waits for a scoreboard; on an
        H200, Triton's attention read wrong addresses where one did.)"""
        if self._pipe(m) != "wgmma":
            return m
        start = self.blocks[self.ways.block[m]].start
        between = range(max(start, n + 1) if n < m else start, m)
        arrival = next((k for k in reversed(between) if self._arrives(k)), None)
        if arrival is not None:
            return arrival
        return next((k for k in reversed(between) if self._pipe(k) != "wgmma"), m)

    def _pipe(self, n: int) -> str:
        this = self.facts[n]
        return "" if this is None else OPS[this.i.base].pipe

    def _arrives(self, n: int) -> bool:
        this = self.facts[n]
        return this is not None and this.i.base == "WARPGROUP" and this.i.mods[0] == "ARRIVE"

    def behind(self, n: int) -> list[int]:
        """The instructions that may run right behind instruction ``n``."""
        number = self.ways.block[n]
        if n + 1 < self.blocks[number].end:
            return [n + 1]
        return [self.blocks[to].start for to in self.ways.next[number]]

    def _first(self, n: int, this: Effects, role: int, registers: int, told: frozenset[int]) -> frozenset[int]:
        """The instructions that must wait because of ``registers`` (a mask), the first on each way. Those of ``told``
        wait already. The wait of a guarded instruction is relied on by those that run only where it does: whoever else
        comes behind waits once more."""
        stops = [m for m in told if self._always(m)]
        walk = _Walk(this, role, told, stops, set())
        if not self._follow(n, registers, walk, MOST_BLOCKS):
            far = self._far(n)
            stops += far
            walk.found.clear()
            if not far or not self._follow(n, registers, walk, MANY_BLOCKS):
                walk.found.clear()
                self._follow(n, registers, walk, None)
        return frozenset(walk.found)

    def _far(self, n: int) -> list[int]:
        """Behind instruction ``n``, a place where all ways come by, when whatever it began is done; none if there is no
        such place. What would be awaited at many places is awaited there."""
        here = to = self.ways.block[n]
        passed = self.blocks[here].end - n
        while (following := self.ways.join[to]) is not None:
            to = following
            block = self.blocks[to]
            if passed >= FAR and set(self.ways.inside[to]) <= set(self.ways.inside[here]):
                found = next((m for m in range(block.start, block.end) if self._always(m) and m in self.may), None)
                if found is not None:
                    return [found]
            passed += block.end - block.start
        return []

    def _follow(self, n: int, registers: int, walk: _Walk, most: int | None) -> bool:
        """All ways behind instruction ``n``; or False, if these come through more than ``most`` blocks. Without such a
        limit it is not followed which call a function returns to."""
        blocks, roads, ways, late = self.blocks, self.ways.roads, self.ways, walk.role == LATE
        touches, ahead = (self.overwritten, self.written_ahead) if late else (self.touches, self.ahead)
        looked_at = {ways.block[m] for m in walk.stops} | self.open
        seen: dict[tuple[int, Calls], tuple[int, int]] = {}
        nowhere: Calls = ()
        deep = 0 if most is None else MOST_CALLS
        stack = [(ways.block[n], n + 1, registers, ways.guards.runs[n] & ~walk.this.clears, nowhere)]

        while stack:
            number, start, live, holds, calls = stack.pop()
            if live & touches[number][1] or number in looked_at or start != blocks[number].start:
                live, holds, ended = self._through(number, start, live, holds, walk)
                if ended:
                    continue
            else:
                holds &= ~self.cleared[number]
            onward = [(to, holds, calls) for to, wrong in roads[number] if not wrong & holds]
            if self.crosses[number]:  # what holds is not followed there
                onward += [(to, 0, within) for to, within in ways.across(number, calls, deep)]
            for to, there, within in onward:
                rest = live & ahead[to]
                if not rest:
                    continue
                known, held = seen.get((to, within), UNSEEN)
                if rest & ~known or held & ~there:
                    rest, there = rest | known, there & held
                    seen[to, within] = rest, there
                    stack.append((to, blocks[to].start, rest, there, within))
            if most is not None and len(seen) > most:
                return False
        return True

    def _through(self, number: int, start: int, live: int, holds: int, walk: _Walk) -> tuple[int, int, bool]:
        """Through a block from instruction ``start`` on: the registers that nobody has touched, what still holds of
        ``holds``, and whether the way ends here."""
        this, role, told, stops, found = walk
        block = self.blocks[number]
        touched, mask = self.overwritten[number] if role == LATE else self.touches[number]
        stop = min([m for m in stops if start <= m < block.end], default=block.end)
        left: list[tuple[int, int, int]] = []  # heap: the next to touch each register, the register, and who that is
        for register in bits(live & mask):
            who = touched[register]
            k = bisect_left(who, start)
            if k < len(who):
                left.append((who[k], register, k))
        heapify(left)
        clears = self.clears[number]
        cleared = bisect_left(clears, (start,))
        while left and left[0][0] < stop:
            m, register, k = left[0]
            while cleared < len(clears) and clears[cleared][0] < m:
                holds &= ~clears[cleared][1]
                cleared += 1
            other = self.facts[m]
            assert other is not None
            waits = m in told
            if not waits and self._needs(this, role, other, m, register, holds):
                found.add(m)
                waits = True
            if waits:  # and so is over here, where the guard lets it run
                if other.guard is None or holds >> (runs := literal(*other.guard)) & 1:
                    return 0, holds, True
                holds |= 1 << (runs ^ 1)
            if register in other.writes and other.guard is None:
                live &= ~(1 << register)
                if not live:
                    return 0, holds, True
                heappop(left)
            elif k + 1 < len(touched[register]):
                heapreplace(left, (touched[register][k + 1], register, k + 1))
            else:
                heappop(left)
        if stop < block.end:
            if stop not in told:
                found.add(stop)
            return 0, holds, True
        last = block.end - 1
        if last in self.ways.open and last >= start:
            found.add(last)
            end = self.facts[last]
            if end is not None and end.guard is None:
                return 0, holds, True
        for _, gone in clears[cleared:]:
            holds &= ~gone
        return live, holds, False

    def _always(self, n: int) -> bool:
        this = self.facts[n]
        return this is not None and this.guard is None

    def _needs(self, this: Effects, role: int, other: Effects, m: int, register: int, holds: int) -> bool:
        """Whether instruction ``m`` must wait because of a register."""
        read, write = other.reads.get(register), other.writes.get(register)
        if other.ordered >> register & 1:  # unless the author knows better
            return m in self.may and not holds & self.against[m]
        if read is not None and role != LATE:
            wrong = self.before[m] if read.what == "guard" else self.against[m]
            if not holds & wrong:
                return True
        if write is None or holds & self.against[m]:
            return False
        same = write[1] != FIXED and other.queue == this.queue  # one queue reads, and mostly writes, in order
        return not (same and (role == LATE or this.in_order))

    # -- what takes a fixed time

    def distances(self, least: Sequence[int], sets: Mapping[int, int], waits: Sequence[int]) -> list[Distance]:
        """All distances that stalls of ``least`` do not keep. ``sets``: instruction -> mask of the scoreboards that it
        sets; ``waits``: those that each instruction waits for."""
        found: list[Distance] = []
        for n, this in enumerate(self.facts):
            if this is None:
                continue
            bounds = {
                register: bound
                for register, (access, role) in this.writes.items()
                if role == FIXED and (bound := self.lat.most(this.i, access)) > least[n]
            }
            if bounds:
                self._readers(n, this, bounds, least, found)
            if n in sets and least[n] < SOONEST:
                found += [Distance((n,), SOONEST, m, SCOREBOARD) for m in self.behind(n) if waits[m] & sets[n]]
        return found

    def _readers(
        self, n: int, this: Effects, bounds: dict[int, int], least: Sequence[int], found: list[Distance]
    ) -> None:
        """The distances behind instruction ``n``. ``bounds``: its registers, and after how many cycles each is there
        for anybody."""
        stack: list[tuple[tuple[int, ...], int, int, dict[int, int], int]] = []
        stack.append(((n,), n + 1, least[n], bounds, self.ways.guards.runs[n] & ~this.clears))
        while stack:
            path, m, passed, live, holds = stack.pop()
            number = self.ways.block[path[-1]]
            places = [(m, holds)]
            if m == self.blocks[number].end:
                if m - 1 in self.ways.open:
                    register = max(live, key=lambda register: live[register])
                    found.append(Distance(path, live[register], m, register))
                there = [(to, self.ways.along(number, to, holds)) for to in self.ways.next[number]]
                places = [(self.blocks[to].start, known) for to, known in there if known is not None]
            for m, known in places:
                rest, known = self._meet(path, m, passed, live, known, this, found)
                after = passed + least[m]
                rest = {register: bound for register, bound in rest.items() if bound > after}
                if rest:
                    stack.append(((*path, m), m + 1, after, rest, known))

    def _meet(
        self,
        path: tuple[int, ...],
        m: int,
        passed: int,
        live: dict[int, int],
        holds: int,
        this: Effects,
        found: list[Distance],
    ) -> tuple[dict[int, int], int]:
        """What instruction ``m`` asks for behind ``path``; the registers that are left behind it, and what holds."""
        other = self.facts[m]
        if other is None:
            return live, holds
        touched = [r for r in live if r in other.reads or r in other.writes]
        worst, most = passed, None
        for register in touched:
            access = this.writes[register][0]
            read, write = other.reads.get(register), other.writes.get(register)
            need = 0
            if read is not None:
                wrong = self.before[m] if read.what == "guard" else self.against[m]
                if not holds & wrong:
                    need = self.lat.raw(this.i, access, other.i, read)
            if write is not None:
                if not holds & self.against[m]:
                    need = max(need, self.lat.waw(this.i, access, other.i, write[0]))
                if other.guard is None:
                    live = {r: bound for r, bound in live.items() if r != register}
            if need > worst:
                worst, most = need, register
        if most is not None:
            found.append(Distance(path, worst, m, most))
        return live, holds & ~other.clears

    def held(self) -> tuple[set[int], list[Distance]]:
        """The barriers that something follows which need not be held back, and the distances to what must be."""
        free, found = set[int](), list[Distance]()
        for block in self.blocks:
            for n in range(block.start, block.end - 1):
                this, last = self.facts[n], block.end - 1
                if this is not None and this.i.base == BARRIER:
                    to = next((m for m in range(n + 1, last) if self._held(m)), last)
                    free.add(n)
                    found.append(Distance(tuple(range(n, to)), self.lat.behind(this.i), to, PACE))
        return free, found

    def _held(self, m: int) -> bool:
        this = self.facts[m]
        return this is None or self.lat.held(this.i)

    def paces(self, least: Sequence[int]) -> list[Distance]:
        """The distances that leave each pipe the time that it takes, in straight code. (What never runs takes none, nor
        does DEPBAR, which only waits: ptxas stalls for 1 before them.)"""
        found: list[Distance] = []
        for block in self.blocks:
            last: dict[str, tuple[int, int]] = {}  # pipe -> its last instruction, and how long that keeps it busy
            for m in range(block.start, block.end):
                this = self.facts[m]
                if this is None or OPS[this.i.base].pipe not in PACED or this.i.never or this.i.base == "DEPBAR":
                    continue
                pipe = self.lat.unit(this.i)
                if pipe in last:
                    n, cycles = last[pipe]
                    if cycles <= LONGEST_PACE and sum(least[n:m]) < cycles:
                        found.append(Distance(tuple(range(n, m)), cycles, m, PACE))
                last[pipe] = (m, self.lat.issue(this.i))
        return found
