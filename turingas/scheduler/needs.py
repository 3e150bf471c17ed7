"""What the control codes of a kernel must respect, looked for from each result and each source: who needs it next, on
every way that control may take from there.

(The linter goes the other way round: it carries all that is under way along, and looks back from each instruction. The
two share what an instruction means, turingas/isa/effects and latency, and the ways, turingas/flow; no more.)
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import NamedTuple

from turingas.flow.guards import opposite
from turingas.isa.effects import FIXED, LATE, SOONEST, VARIABLE, WITH_SOURCES, Effects, bits
from turingas.isa.table import OPS
from turingas.scheduler.ways import Ways

#: pipes behind which compilers stall until the next instruction of the same pipe can begin
PACED = ("alu", "fma", "half", "lsu", "fp64", "uniform")
LONGEST_PACE = 8  # cycles: what takes longer is left to the hardware

SCOREBOARD, PACE = -1, -2  # what a distance may be for besides a register


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


class Needs:
    """``events``: what is told by scoreboards, and somebody waits for."""

    def __init__(self, ways: Ways) -> None:
        self.ways, self.facts, self.lat = ways, ways.facts, ways.lat
        self.blocks = ways.graph.blocks
        self.against = [opposite(mask) for mask in ways.guards.runs]
        self.before = [opposite(mask) for mask in ways.guards.ways]
        #: block -> register -> instructions that touch it
        self.touches: list[dict[int, list[int]]] = []
        #: block -> instructions that write predicates, and these
        self.clears: list[list[tuple[int, int]]] = []
        #: block -> all registers that it touches, as a mask, and all literals that it clears
        self.passed: list[tuple[int, int]] = []
        for block in self.blocks:
            touched: dict[int, list[int]] = {}
            cleared = []
            all_touched = all_cleared = 0
            for n in range(block.start, block.end):
                this = self.facts[n]
                if this is None:
                    continue
                for register in this.reads.keys() | this.writes.keys():
                    touched.setdefault(register, []).append(n)
                all_touched |= this.touched
                all_cleared |= this.clears
                if this.clears:
                    cleared.append((n, this.clears))
            self.touches.append(touched)
            self.clears.append(cleared)
            self.passed.append((all_touched, all_cleared))
        self.open = {ways.block[n] for n in ways.open}
        #: block -> registers that may be touched, or written, from its begin on; all where unknown code follows
        self.ahead = self._ahead([touched for touched, _ in self.passed])
        changes = [[this.changes for this in self.facts[block.start : block.end] if this] for block in self.blocks]
        self.written_ahead = self._ahead([reduce(or_, some, 0) for some in changes])
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
        wait already. A wait of a guarded instruction is not relied on: whoever comes behind waits once more."""
        found: set[int] = set()
        seen: dict[int, tuple[int, int]] = {}
        blocks, passed, roads = self.blocks, self.passed, self.ways.roads
        ahead = self.written_ahead if role == LATE else self.ahead
        looked_at = {self.ways.block[m] for m in told} | self.open
        here = self.ways.block[n]
        stack = [(here, n + 1, registers, self.ways.guards.runs[n] & ~this.clears)]
        while stack:
            number, start, live, holds = stack.pop()
            touched, cleared = passed[number]
            if live & touched or number in looked_at or start != blocks[number].start:
                live, holds, ended = self._through(number, start, live, holds, this, role, told, found)
                if ended:
                    continue
            else:
                holds &= ~cleared
            for to, wrong, still in roads[number]:
                if wrong & holds:
                    continue
                there, rest = still & holds, live & ahead[to]
                if not rest:
                    continue
                if to in seen:
                    known, held = seen[to]
                    if not rest & ~known and not held & ~there:
                        continue
                    rest, there = rest | known, there & held
                seen[to] = (rest, there)
                stack.append((to, blocks[to].start, rest, there))
        return frozenset(found)

    def _through(
        self,
        number: int,
        start: int,
        live: int,
        holds: int,
        this: Effects,
        role: int,
        told: frozenset[int],
        found: set[int],
    ) -> tuple[int, int, bool]:
        """Through a block from instruction ``start`` on: the registers that nobody has touched, what still holds of
        ``holds``, and whether the way ends here."""
        block, touched = self.blocks[number], self.touches[number]
        places = [(m, register) for register in bits(live & self.passed[number][0])
                  for m in touched[register][bisect_left(touched[register], start) :]]  # fmt: skip
        inside = [m for m in told if start <= m < block.end]
        places += [(m, register) for m in inside for register in bits(live)]
        places.sort()
        clears = [pair for pair in self.clears[number] if pair[0] >= start]
        for m, register in places:
            if not live >> register & 1:
                continue
            while clears and clears[0][0] < m:
                holds &= ~clears.pop(0)[1]
            other = self.facts[m]
            assert other is not None
            need = m not in told and self._needs(this, role, other, m, register, holds)
            if need:
                found.add(m)
            if (need or m in told) and other.guard is None:
                return 0, holds, True
            if register in other.writes and other.guard is None:
                live &= ~(1 << register)
                if not live:
                    return 0, holds, True
        last = block.end - 1
        if last in self.ways.open and last >= start:
            found.add(last)
            end = self.facts[last]
            if end is not None and end.guard is None:
                return 0, holds, True
        for _, mask in clears:
            holds &= ~mask
        return live, holds, False

    def _needs(self, this: Effects, role: int, other: Effects, m: int, register: int, holds: int) -> bool:
        """Whether instruction ``m`` must wait because of a register."""
        read, write = other.reads.get(register), other.writes.get(register)
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

    def paces(self, least: Sequence[int]) -> list[Distance]:
        """The distances that leave each pipe the time that it takes, in straight code."""
        found: list[Distance] = []
        for block in self.blocks:
            last: dict[str, tuple[int, int]] = {}  # pipe -> its last instruction, and how long that keeps it busy
            for m in range(block.start, block.end):
                this = self.facts[m]
                if this is None or OPS[this.i.base].pipe not in PACED:
                    continue
                pipe = self.lat.unit(this.i)
                if pipe in last:
                    n, cycles = last[pipe]
                    if cycles <= LONGEST_PACE and sum(least[n:m]) < cycles:
                        found.append(Distance(tuple(range(n, m)), cycles, m, PACE))
                last[pipe] = (m, self.lat.issue(this.i))
        return found
