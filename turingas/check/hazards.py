"""Hazards of data and of scoreboards: what the control codes must respect and the hardware does not check.

A walk over the control-flow graph. At each instruction it is known which results and which sources of earlier ones
are still under way on some path, for how many cycles at least, and which scoreboards they hold. Which distances are
enough is said by turingas/isa/latency; here is only the bookkeeping:

* a result of fixed latency stays under way until so many cycles have passed, and so does a barrier,
* a result of variable latency until its write scoreboard was waited for,
* a source that is read late until the read scoreboard, or the write scoreboard, of its reader was waited for.

Paths are joined by keeping everything under way on any of them, with the fewest cycles, and with the
predicates that hold on all of them where it is under way (turingas/flow/guards): so two instructions under guards that
exclude each other do not meet, nor do those on ways that no thread goes. A function that is called
starts with what is under way at any of its calls; behind the call only that counts which was under way at this call,
or began in the function. Of other functions, with code elsewhere, it is assumed that nothing is left under way.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from functools import lru_cache, reduce
from operator import or_
from typing import NamedTuple

from turingas.check.finding import Finding
from turingas.check.fixed import Fixed, Near, alone, cleared
from turingas.check.rules import rule
from turingas.check.under_way import (
    NOTHING,
    OF_LATE,
    OF_ROLE,
    OF_VARIABLE,
    OLDER,
    Begun,
    Place,
    State,
    instance_of,
    instances,
    key_of,
    number_of,
    of_keys,
    role_of,
)
from turingas.flow.graph import Block, Graph
from turingas.flow.guards import IMPOSSIBLE, TRUE, guards, opposite, row
from turingas.flow.stretch import REMEMBERED, Stretch
from turingas.isa.effects import (
    FIXED,
    LATE,
    SCOREBOARDS,
    SOONEST,
    VARIABLE,
    Effects,
    bits,
    distances,
    literal,
    pending,
    too_early,
)
from turingas.isa.latency import NONE, latencies

MOST_IDLE = 10  # notes in one kernel that a wait waits for nothing
MOST_SETS = 63  # DEPBAR counts no further

# what a pass through a block has found: findings, whose scoreboards were waited for, waits for what nothing has set
Told = tuple[dict[tuple[str, int, int | None], Finding], int, list[tuple[int, list[int]]]]


class Passed(NamedTuple):
    """What comes of a block alone: ``out`` is under way behind it; ``waited`` and ``idle`` as in ``Told``. Instructions
    are counted from its start."""

    out: State
    waited: int
    idle: list[tuple[int, list[int]]]


_PASSED: dict[tuple[object, ...], Passed] = {}


class Walk:
    """Passes over the graph until nothing changes. What the last one of each block has found stands: it began with all
    that may be under way there."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.lat = latencies(graph.kernel.arch)
        self.distances = distances(self.lat)
        self.facts, self.stretches = graph.effects, graph.stretches
        self.counts = any(f.depbar for n in graph.of("DEPBAR") if (f := self.facts[n]) is not None)
        self.at: dict[int, State] = {}  # block -> what is under way at its start
        self.told: dict[int, Told] = {}  # block -> what its last pass has found
        self._start_telling()
        # blocks before which it is known what was set: a function may be called with anything
        self.from_start = graph.reachable if graph.kernel.entry else frozenset()

    def run(self) -> Iterator[Finding]:
        """All findings."""
        self._converge()
        self._start_telling()
        for _, (found, waited, idle) in sorted(self.told.items()):
            self.found |= found
            self.waited |= waited
            self.idle += idle
        self._scoreboards()
        self._idle()
        yield from self.found.values()

    def _start_telling(self) -> None:
        self.found: dict[tuple[str, int, int | None], Finding] = {}
        self.waited = 0  # instructions that set a scoreboard which somebody waited for, as bits
        self.idle: list[tuple[int, list[int]]] = []  # instructions that wait for scoreboards which nothing has set

    # -- over blocks

    def _converge(self) -> None:
        blocks = self.graph.blocks
        order_of, _ = self.graph.order()
        rank = {number: n for n, number in enumerate(order_of)}
        self.own, self.inside = self.graph.own, self.graph.inside()
        self.guards = guards(self.graph)
        callers: dict[int, list[int]] = {}
        for number, block in enumerate(blocks):
            if block.calls is not None:
                callers.setdefault(block.calls, []).append(number)
        after: dict[int, State] = {}  # block that calls -> what is under way when it does
        returned: dict[int, State] = {}  # function -> what is under way when it returns
        heap = list(range(len(order_of)))
        queued = set(order_of)
        self.at = dict.fromkeys(order_of, NOTHING)

        def send(to: int, state: State) -> None:
            before = self.at[to]
            self.at[to] = before.joined(state)
            if self.at[to] is not before and to not in queued:
                queued.add(to)
                heapq.heappush(heap, rank[to])

        def come_back(caller: int) -> None:
            entry = blocks[caller].calls
            if entry in returned and caller in after:
                state = self._return(after[caller], returned[entry], self.inside[entry])
                for to in blocks[caller].next:
                    send(to, state)

        while heap:
            number = order_of[heapq.heappop(heap)]
            queued.discard(number)
            block = blocks[number]
            self._start_telling()
            out = self._through(number)
            self.told[number] = self.found, self.waited, self.idle
            if block.calls is not None:
                after[number] = out
                send(block.calls, out)
                come_back(number)
                if self._always(block):
                    continue
            elif block.leaves and self._always(block):
                out = NOTHING
            for to in block.next:
                state = self._along(number, to, out)
                if state is not None:
                    send(to, state)
            if block.returns:
                for entry in [entry for entry, members in self.own.items() if number in members]:
                    before = returned.setdefault(entry, NOTHING)
                    returned[entry] = before.joined(out)
                    if returned[entry] is not before:
                        for caller in callers.get(entry, ()):
                            come_back(caller)

    def _through(self, number: int) -> State:
        """Through a block. Where nothing is under way before it and nothing is wrong, what comes of it is the same
        wherever it stands under the same predicates, and is remembered."""
        state, stretch = self.at[number], self.stretches[number]
        if self.counts or not state.empty:
            return Pass(self, number, state).run()
        start, end = self.graph.blocks[number].start, self.graph.blocks[number].end
        key = stretch, number in self.from_start, *self.guards.ways[start:end], *self.guards.runs[start:end]
        known = _PASSED.get(key)
        if known is None:
            out = Pass(self, number, state).run()
            if not self.found:
                if len(_PASSED) >= REMEMBERED:
                    _PASSED.clear()
                idle = [(n - start, boards) for n, boards in self.idle]
                _PASSED[key] = Passed(out.moved(-start), self.waited >> start, idle)
            return out
        self.waited, self.idle = known.waited << start, [(start + n, boards) for n, boards in known.idle]
        return known.out.moved(start)

    def _always(self, block: Block) -> bool:
        i = self.graph.instructions[block.end - 1]
        return i is None or i.always

    def _return(self, before: State, after: State, inside: set[int]) -> State:
        """Behind a call: what was under way before it and still is, and what the function has begun."""
        block_of = self.graph.block_of
        known = {(register, key | OLDER) for register, key in before.fixed}
        fixed = {
            place: begun
            for place, begun in after.fixed.items()
            if (place[0], place[1] | OLDER) in known or block_of(number_of(place[1])) in inside
        }

        def left(before: dict[int, int], after: dict[int, int]) -> dict[int, int]:
            found = {}
            for key, registers in after.items():
                if block_of(number_of(key)) not in inside:
                    registers &= before.get(key | OLDER, 0) | before.get(key & ~OLDER, 0)
                if registers:
                    found[key] = registers
            return found

        results, sources = left(before.results, after.results), left(before.sources, after.sources)
        own = 0
        for number in inside:
            block = self.graph.blocks[number]
            own |= (1 << block.end) - (1 << block.start)
        pending = [now & (then | own) for then, now in zip(before.pending, after.pending)]
        fresh, settings = (
            {where: value for where, value in counts.items() if pending[where[0]] >> where[1] & 1}
            for counts in (after.fresh, after.settings)
        )
        under_way = instances(results, sources) | {instance_of(key) for _, key in fixed}
        holds = {instance: after.holds[instance] for instance in under_way}
        covers = of_keys(after.covers, results, sources)
        keys = set().union(*covers.values())
        marks = {where: sets for where, sets in after.marks.items() if where[1] in keys}
        return State(fixed, results, sources, holds, covers, pending, fresh, settings, marks)

    def _along(self, number: int, to: int, out: State) -> State | None:
        """To a next block. What is known of predicates on this way is known of all that is under way there; what has
        the opposite did not happen, and None is a way that no thread goes."""
        known = self.guards.along(number, to)
        if known == IMPOSSIBLE:
            return None
        here = row(known, TRUE)
        if not here:
            return out
        wrong = opposite(here)
        holds = {instance: mask | here for instance, mask in out.holds.items() if not mask & wrong}
        fixed, results, sources = out.fixed, out.results, out.sources
        if len(holds) < len(out.holds):
            fixed = {place: begun for place, begun in fixed.items() if instance_of(place[1]) in holds}
            results, sources = (
                {key: registers for key, registers in under_way.items() if instance_of(key) in holds}
                for under_way in (results, sources)
            )
        return State(
            fixed, results, sources, holds, out.covers, out.pending, out.fresh, out.settings, out.marks
        )  # fmt: skip

    def excluded(self, n: int, guard: bool) -> int:
        """Literals that are false where instruction ``n`` runs; or where its guard is read, which is wherever it comes
        by."""
        return opposite((self.guards.ways if guard else self.guards.runs)[n])

    # -- findings

    def _report(self, kind: str, severity: str, message: str, n: int, other: int | None, hint: str) -> None:
        if (kind, n, other) in self.found:
            return
        graph = self.graph
        file, line = graph.source(n)
        self.found[kind, n, other] = Finding(
            kind, severity, message, graph.kernel.name, 16 * n, graph.text(n), file, line,
            None if other is None else 16 * other,
            0 if other is None else graph.source(other)[1],
            "" if other is None else graph.text(other),
            hint,
        )  # fmt: skip

    def report_stall(self, hazard: str, first: int, n: int, register: int, passed: int, need: int) -> None:
        facts = self.facts[n]
        assert facts is not None
        kind, message = too_early(hazard, register, facts.i, passed, need)
        self._report(kind, "error", message, n, first, f"stall {need - passed} more between the two")

    def report_pending(self, kind: str, first: int, n: int, register: int) -> None:
        facts = self.facts[first]
        assert facts is not None
        control = facts.i.control
        second = self.graph.instructions[n]
        assert second is not None
        base, message = facts.i.base, pending(kind, register, facts.i, second)
        sb = control.read if kind == "war" and control.read != NONE else control.write
        if sb >= SCOREBOARDS:
            word = "read" if kind == "war" else "write"
            hint = f"give {base} a {word} scoreboard and wait for it"
            self._report("no-scoreboard", "error", message + f"; it has no {word} scoreboard", n, first, hint)
        else:
            self._report(kind, "error", message, n, first, f"wait for scoreboard {sb} here or before")

    def report_soon(self, sb: int, setter: int, n: int, passed: int) -> None:
        self._report(
            "wait-too-soon", "error",
            f"waits for scoreboard {sb} {passed} cycle after it is set; a wait within {SOONEST} does not see it",
            n, setter, f"stall {SOONEST} at least where the scoreboard is set",
        )  # fmt: skip

    def _idle(self) -> None:
        """Waits for scoreboards that nothing has set since the last wait. Unoptimised code is full of them."""
        for number, (n, idle) in enumerate(self.idle[:MOST_IDLE]):
            more = len(self.idle) - MOST_IDLE
            rest = f"; {more} more instructions do so" if more > 0 and number == MOST_IDLE - 1 else ""
            self._report(
                "nothing-pending", "note", f"waits for scoreboard {' and '.join(map(str, idle))}, which nothing has "
                f"set since the last wait{rest}", n, None,
                "remove the wait, or give the instruction that it is meant for that scoreboard",
            )  # fmt: skip

    def _scoreboards(self) -> None:
        """Scoreboards that an instruction cannot set, or that nobody waits for."""
        for block, stretch in zip(self.graph.blocks, self.stretches):
            for at, facts, never in setters(stretch):
                n = block.start + at
                if facts.missing:
                    numbers = " and ".join(map(str, facts.missing))
                    message = f"{facts.i.base} names scoreboard {numbers}, out of range: "
                    message += f"there are 0 to {SCOREBOARDS - 1}"
                    self._report("missing-scoreboard", "error", message, n, None, "use one of those")
                for kind, sb in never:
                    self._report(
                        "no-release", "error", f"{facts.i.base} never releases a {kind} scoreboard: a wait for "
                        f"scoreboard {sb} never ends", n, None, f"remove the {kind} scoreboard",
                    )  # fmt: skip
                if facts.sets and not self.waited >> n & 1:
                    numbers = " and ".join(map(str, facts.sets))
                    self._report("never-waited", "note", f"nothing waits for scoreboard {numbers} of {facts.i.base}",
                                 n, None, "remove it if nothing depends on it")  # fmt: skip


@lru_cache(REMEMBERED)
def setters(stretch: Stretch) -> list[tuple[int, Effects, list[tuple[str, int]]]]:
    """The instructions of a block that name scoreboards to set, with those that they never release."""
    found, lat = [], latencies(stretch.arch)
    for n, facts in enumerate(stretch.effects):
        if facts is not None and (facts.sets or facts.missing):
            control, can = facts.i.control, lat.releases(facts.i)
            named = zip(("read", "write"), (control.read, control.write), can, strict=True)
            found.append((n, facts, [(kind, sb) for kind, sb, releases in named if sb < SCOREBOARDS and not releases]))
    return found


class Event(NamedTuple):
    """Instruction ``n`` of a block begins something or waits for it, or writes predicates. ``now``: its cycle;
    ``passed``: the registers that those touch which stand between it and the event before."""

    n: int
    facts: Effects
    now: int
    passed: int


@lru_cache(REMEMBERED)
def events(stretch: Stretch) -> tuple[list[Event], int]:
    """The events of a block, and the registers that are touched behind the last of them."""
    found, now, passed = [], 0, 0
    for n, facts in enumerate(stretch.effects):
        if facts is None:
            now += 1
            continue
        if facts.awaits or facts.begins or facts.sets or facts.clears or facts.flushes:
            found.append(Event(n, facts, now, passed))
            passed = 0
        else:
            passed |= facts.touched
        now += facts.stall
    return found, passed


class Within(Fixed):
    """Results of fixed latency on the way through a block where it stands."""

    def __init__(self, walk: Walk, number: int, state: State) -> None:
        self.walk, self.start, self.holds = walk, walk.graph.blocks[number].start, state.holds
        near = [
            Near(1 << register, write.most - cycles, -cycles, key, write, state.holds[instance_of(key)], self.start)
            for (register, key), (cycles, write) in state.fixed.items()
        ]
        super().__init__(walk.facts, walk.distances, near)

    def runs(self, n: int) -> int:
        return self.walk.guards.runs[n]

    def apart(self, one: Near, n: int, guard: bool) -> bool:
        return bool(self.literals(one, n) & self.walk.excluded(n, guard))

    def too_early(self, hazard: str, key: int, n: int, register: int, passed: int, need: int) -> None:
        self.walk.report_stall(hazard, number_of(key), n, register, passed, need)

    def age(self, n: int, this: Effects) -> None:
        """An instruction comes by once more, under a guard that may be another than before: what it has under way is
        older then."""
        assert this.guard is not None
        key = key_of(n, FIXED)
        gone = cleared(self.facts, self.start, n)
        holds = self.holds.get(key, -1) & ~gone
        if holds >> literal(*this.guard) & 1:  # or nothing of it is under way
            return
        if (key | OLDER) in self.holds:
            holds &= self.holds[key | OLDER] & ~gone
        latest: dict[int, Near] = {}  # register -> the last that was written to it
        for one in sorted(self.near, key=lambda one: (one.cycle, one.key == key)):
            if one.key in (key, key | OLDER):
                latest |= dict.fromkeys(bits(one.mask), one)
        self.near = [one for one in self.near if one.key not in (key, key | OLDER)]
        for register, one in latest.items():
            self.near.append(one._replace(mask=1 << register, key=key | OLDER, holds=holds, since=n))


class Pass:
    """The way through one block."""

    def __init__(self, walk: Walk, number: int, state: State) -> None:
        self.walk, self.number, self.facts, self.state = walk, number, walk.facts, state
        self.stretch, self.start = walk.stretches[number], walk.graph.blocks[number].start
        self.now = 0  # cycles count from the start of the block
        self.results, self.sources = dict(state.results), dict(state.sources)
        self.holds = dict(state.holds)
        self.live = {queue: dict(covers) for queue, covers in state.covers.items()}  # as State.covers
        self.pending = list(state.pending)
        self.fresh = {where: -cycles for where, cycles in state.fresh.items()}  # the cycle when it was set
        self.sets = [0] * SCOREBOARDS  # how often each was set in this block
        self.settings = {where: -sets for where, sets in state.settings.items()}  # settings before
        self.marks = {where: -sets for where, sets in state.marks.items()}
        self._sum_up()

    def _of(self, key: int) -> Effects:
        facts = self.facts[number_of(key)]
        assert facts is not None
        return facts

    def _sum_up(self) -> None:
        """The registers of what only scoreboards tell of, as bits: those still to be written, and those still to be
        read. ``under``: both."""
        self.arriving = reduce(or_, self.results.values(), 0)
        self.reading = reduce(or_, self.sources.values(), 0)
        self.under = self.arriving | self.reading

    def run(self) -> State:
        """Through all its instructions; what is under way at its end."""
        start, first = self.start, self.start
        found, passed = events(self.stretch)
        for event, facts, now, before in found:
            n, self.now = start + event, now
            if before & self.under:
                self._touch_all(first, n)
            first = n + 1
            if facts.awaits:
                self._wait_for(n, facts)
            if facts.touched & self.under:
                self._touch(n, facts)
            if facts.begins:
                self.holds[key_of(n, FIXED)] = self.holds[key_of(n, LATE)] = self.walk.guards.runs[n]
            if facts.clears:
                keep = ~facts.clears
                self.holds = {instance: held & keep for instance, held in self.holds.items()}
            if facts.begins:
                self._begin(n, facts)
            if facts.sets:
                self._set(n, facts)
            if facts.flushes:
                live = self.live.get(facts.flushes, {})
                self._release(live, [key for key in live if role_of(key) == LATE])
        if passed & self.under:
            self._touch_all(first, start + len(self.stretch.effects))
        return self._end()

    def _touch_all(self, start: int, end: int) -> None:
        for n in range(start, end):
            facts = self.facts[n]
            if facts is not None and facts.touched & self.under:
                self._touch(n, facts)

    def _end(self) -> State:
        results, sources = (
            {key: registers for key, registers in under_way.items() if registers}
            for under_way in (self.results, self.sources)
        )
        holds = {instance: self.holds[instance] for instance in instances(results, sources)}
        fixed = self._fixed(holds)
        now, covers = alone(self.stretch).cycles, of_keys(self.live, results, sources)
        fresh = {
            (sb, n): now - cycle
            for (sb, n), cycle in self.fresh.items()
            if now - cycle < SOONEST and self.pending[sb] >> n & 1
        }
        if not self.walk.counts:
            return State(fixed, results, sources, holds, covers, self.pending, fresh, {}, {})
        settings = {
            (sb, n): min(MOST_SETS, self.sets[sb] - before)
            for (sb, n), before in self.settings.items()
            if self.pending[sb] >> n & 1
        }
        keys = set().union(*covers.values())
        marks = {
            where: min(MOST_SETS, self.sets[where[0]] - before)
            for where, before in self.marks.items()
            if where[1] in keys
        }
        return State(fixed, results, sources, holds, covers, self.pending, fresh, settings, marks)

    def _fixed(self, holds: dict[int, int]) -> dict[Place, Begun]:
        """The results of fixed latency that are under way at the end; what holds there is added to ``holds``."""
        own, start = alone(self.stretch), self.start
        end = start + len(self.stretch.effects)
        fixed: dict[Place, Begun] = {}
        if self.state.fixed or own.close:
            way = Within(self.walk, self.number, self.state)
            way.through(start, end, own.close)
            for one in way.near:
                if one.until > own.cycles:
                    begun = own.cycles - one.cycle, one.write
                    fixed.update([((register, one.key), begun) for register in bits(one.mask)])
                    holds[instance_of(one.key)] = way.literals(one, end)
        if not own.close:
            runs = self.walk.guards.runs
            for register, n, cycles, write, gone in own.left:
                key = key_of(start + n, FIXED)
                fixed[register, key] = cycles, write
                holds[key] = runs[start + n] & ~gone
        return fixed

    # -- scoreboards

    def _begin(self, n: int, facts: Effects) -> None:
        """Under way from here on, and told of by nothing; what was known of the time before does not count."""
        live = self.live.setdefault(facts.queue, {})
        begun = [(key_of(n, role), registers, self.results) for role, registers in facts.arriving.items()]
        if facts.read_late:
            begun.append((key_of(n, LATE), facts.read_late, self.sources))
        for key, registers, under_way in begun:
            live[key] = 0
            under_way[key] = registers
            if self.walk.counts:
                for sb in range(SCOREBOARDS):
                    self.marks.pop((sb, key), None)
        for registers in facts.arriving.values():
            self.arriving |= registers
        self.reading |= facts.read_late
        self.under |= self.arriving | self.reading

    def _set(self, n: int, facts: Effects) -> None:
        """Instruction ``n`` sets its scoreboards, whether or not its guard lets it run: NVRTC 12.9 counts guarded TLD
        with DEPBAR as if all ran. They also tell of what its queue ends before it."""
        for sb in facts.sets:
            self.sets[sb] += 1
            self.pending[sb] |= 1 << n
            if facts.stall < SOONEST:
                self.fresh[sb, n] = self.now
            if self.walk.counts:
                self.settings[sb, n] = self.sets[sb]
        live = self.live.get(facts.queue)
        if not live:
            return
        read, written = facts.releases[LATE], facts.releases[VARIABLE]
        for key, mask in live.items():
            if key & OF_ROLE != OF_VARIABLE:
                live[key] = mask | read
            elif written & ~mask and self._of(key).in_order:
                live[key] = mask | written
        for role in (*facts.arriving, LATE):
            if (own := key_of(n, role)) in live:
                live[own] = facts.releases[role]
        if self.walk.counts:
            for key, mask in live.items():
                for sb in facts.sets:
                    if mask >> sb & 1:
                        self.marks.setdefault((sb, key), self.sets[sb])

    def _wait_for(self, n: int, facts: Effects) -> None:
        """Until scoreboards are free: all that they tell of is done."""
        told = 0
        for (sb, setter), cycle in self.fresh.items():
            if sb in facts.wait and self.now - cycle < SOONEST and self.pending[sb] >> setter & 1:
                self.walk.report_soon(sb, setter, n, self.now - cycle)
        idle = [sb for sb in facts.wait if not self.pending[sb]]
        if idle and self.number in self.walk.from_start:
            self.walk.idle.append((n, idle))
        for sb in facts.wait + facts.waits:
            told |= 1 << sb
            self.walk.waited |= self.pending[sb]
            self.pending[sb] = 0
        self.fresh.clear()  # the next wait comes a cycle later at least
        for live in self.live.values():
            if done := [key for key, mask in live.items() if mask & told]:
                self._release(live, done)
        if facts.depbar is not None:
            self._count(*facts.depbar)

    def _count(self, sb: int, most: int) -> None:
        """Until at most so many settings of a scoreboard are pending: the older ones, which end in order, are done."""
        self.walk.waited |= self.pending[sb]
        for setter in bits(self.pending[sb]):
            if self.sets[sb] - self.settings[sb, setter] >= most:
                self.pending[sb] &= ~(1 << setter)
        for live in self.live.values():
            told = [key for key, mask in live.items() if mask >> sb & 1]
            self._release(live, [key for key in told if self.sets[sb] - self.marks[sb, key] >= most])

    def _release(self, live: dict[int, int], keys: list[int]) -> None:
        """What ``keys`` name of a queue is done."""
        if not keys:
            return
        results, sources = self.results, self.sources
        for key in keys:
            del live[key]
            under_way = sources if key & OF_ROLE == OF_LATE else results
            under_way.pop(key, None)
            under_way.pop(key | OLDER, None)
        self._sum_up()

    # -- registers

    def _touch(self, n: int, facts: Effects) -> None:
        """Instruction ``n`` reads and writes registers that may be under way."""
        if facts.read & self.arriving:
            self._read(n, facts)
        if facts.guard is not None:
            guard = literal(*facts.guard)
            for this in (key_of(n, FIXED), key_of(n, LATE)):
                if this in self.holds and not self.holds[this] >> guard & 1:
                    self._age(this)
        if facts.written & self.under:
            self._write(n, facts)

    def _age(self, this: int) -> None:
        """As Within.age."""
        older = this | OLDER
        self.holds[older] = self.holds[this] & self.holds.get(older, -1)
        for under_way in (self.results, self.sources):
            for key in [key for key in under_way if instance_of(key) == this]:
                under_way[key | OLDER] = under_way.pop(key) | under_way.get(key | OLDER, 0)

    def _read(self, n: int, facts: Effects) -> None:
        for read in facts.reading:
            against = self.walk.excluded(n, read.access.what == "guard")
            for register in bits(read.mask & self.arriving):
                for key, registers in self.results.items():
                    if registers >> register & 1 and not self.holds[instance_of(key)] & against:
                        self.walk.report_pending("raw", number_of(key), n, register)
                        self.results[key] = registers & ~(1 << register)
        self._sum_up()

    def _write(self, n: int, facts: Effects) -> None:
        wrong = self.walk.excluded(n, False)
        for write in facts.writing:
            for register in bits(write.mask & self.under):
                for kind, under_way in (("waw", self.results), ("war", self.sources)):
                    for key, registers in under_way.items():
                        if not registers >> register & 1 or self.holds[instance_of(key)] & wrong:
                            continue
                        first = self._of(key)
                        in_turn = write.role != FIXED and first.queue == facts.queue
                        if not in_turn or kind == "waw" and not first.in_order:
                            self.walk.report_pending(kind, number_of(key), n, register)
                        under_way[key] = registers & ~(1 << register)
        if facts.guard is None:
            for under_way in (self.results, self.sources):
                for key in under_way:
                    under_way[key] &= ~facts.written
        self._sum_up()


@rule("raw-stall", "A register is read before the cycles have passed that its writer takes")
@rule("waw-stall", "A register is overwritten before the cycles have passed that its writer takes")
@rule("war-stall", "A register is overwritten before the cycles have passed that its reader takes to read it")
@rule("barrier-stall", "An access too soon after a barrier: it is not yet in force")
@rule("raw", "A register is read without a wait for its writer")
@rule("waw", "A register is overwritten without a wait for its writer")
@rule("war", "A register is overwritten without a wait for its reader")
@rule("no-scoreboard", "An instruction of variable latency that sets no scoreboard")
@rule("missing-scoreboard", "A scoreboard out of range")
@rule("no-release", "A scoreboard that its instruction never releases")
@rule("never-waited", "A scoreboard that nothing waits for")
@rule("nothing-pending", "A wait for a scoreboard that nothing has set")
@rule("wait-too-soon", "A wait too soon after its scoreboard is set")
def check(graph: Graph) -> Iterator[Finding]:
    """The hazards of a kernel."""
    yield from Walk(graph).run()
