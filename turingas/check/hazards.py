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
from collections.abc import Callable, Iterable, Iterator
from functools import reduce
from operator import and_, or_
from typing import TypeVar

from turingas.check.finding import Finding
from turingas.check.rules import rule
from turingas.flow.graph import Block, Graph
from turingas.flow.guards import IMPOSSIBLE, TRUE, guards, opposite, row
from turingas.isa.effects import (
    FIXED,
    LATE,
    SCOREBOARDS,
    SOONEST,
    VARIABLE,
    Effects,
    Touch,
    bits,
    distances,
    literal,
    register_name,
    too_early,
)
from turingas.isa.latency import NONE, latencies

MOST_IDLE = 10  # notes in one kernel that a wait waits for nothing
MOST_SETS = 63  # DEPBAR counts no further

# What is under way has a key: instruction number << 3 | role << 1 | OLDER. An instruction with a guard that comes by
# once more, when what it began before may still be under way, leaves that as OLDER.
OLDER = 1
ROLE = 3
NEVER = 1 << 30


def key_of(n: int, role: int) -> int:
    """The key of what instruction ``n`` has begun last."""
    return n << 3 | role << 1


def number_of(key: int) -> int:
    """The instruction of a key."""
    return key >> 3


def role_of(key: int) -> int:
    """FIXED, VARIABLE, LATE or WITH_SOURCES."""
    return key >> 1 & ROLE


def instance_of(key: int) -> int:
    """The instruction of a key, and whether it is the older one: all that began with it has this in common."""
    return key & ~(ROLE << 1)


Place = tuple[int, int]  # register, key
Begun = tuple[int, Touch]  # cycles, and a write
#: a result of fixed latency that is under way: its registers as bits, the cycle from which on nobody has to ask for it,
#: the cycle of its instruction, its key, the write, and the literals that held then; how many entries of
#: ``Pass.cleared`` these know of
Near = tuple[int, int, int, int, Touch, int, int]
# what a pass through a block has found: findings, whose scoreboards were waited for, waits for what nothing has set
Told = tuple[dict[tuple[str, int, int | None], Finding], int, list[tuple[int, list[int]]]]

K = TypeVar("K")
V = TypeVar("V")


class State:
    """What is under way at one point. ``fixed``: results of fixed latency, place -> fewest cycles since its
    instruction, and the write; ``results`` and ``sources``: what only a scoreboard tells of, key -> its registers as
    bits. ``holds``: instance -> literals that hold in a thread where it is under way. ``covers``: queue -> key without
    OLDER -> mask of the scoreboards any of which tells that it is done.
    ``pending``: for each scoreboard the instructions that have set it since the last wait, as bits; ``fresh``:
    (scoreboard, instruction) -> fewest cycles since it was set, if these are too few for a wait.
    Kept where DEPBAR counts: ``settings``, (scoreboard, instruction) -> fewest other settings since it was set;
    ``marks``, (scoreboard, key) -> fewest settings of a scoreboard in ``covers`` since the first one that told of
    key."""

    __slots__ = ("covers", "fixed", "fresh", "holds", "marks", "pending", "results", "settings", "sources")

    def __init__(
        self,
        fixed: dict[Place, Begun] | None = None,
        results: dict[int, int] | None = None,
        sources: dict[int, int] | None = None,
        holds: dict[int, int] | None = None,
        covers: dict[str, dict[int, int]] | None = None,
        pending: list[int] | None = None,
        fresh: dict[tuple[int, int], int] | None = None,
        settings: dict[tuple[int, int], int] | None = None,
        marks: dict[tuple[int, int], int] | None = None,
    ) -> None:
        self.fixed = fixed or {}
        self.results = results or {}
        self.sources = sources or {}
        self.holds = holds or {}
        self.covers = covers or {}
        self.pending = pending or [0] * SCOREBOARDS
        self.fresh = fresh or {}
        self.settings = settings or {}
        self.marks = marks or {}

    def join(self, other: State) -> bool:
        """Take over what is under way in ``other``; whether that is news."""
        changed = False
        pending = [one | more for one, more in zip(self.pending, other.pending)]
        if pending != self.pending:
            self.pending, changed = pending, True
        changed |= _join(self.fixed, other.fixed, _sooner)
        changed |= _join(self.results, other.results, or_)
        changed |= _join(self.sources, other.sources, or_)
        changed |= _join(self.holds, other.holds, and_)
        for queue, covers in other.covers.items():
            changed |= _join(self.covers.setdefault(queue, {}), covers, and_)
        for mine, more in ((self.fresh, other.fresh), (self.settings, other.settings), (self.marks, other.marks)):
            changed |= _join(mine, more, min)
        return changed


def _join(into: dict[K, V], more: dict[K, V], both: Callable[[V, V], V]) -> bool:
    """Take over entries; of what both have, what ``both`` makes of it. Whether that is news."""
    if not more or into and more.items() <= into.items():
        return False
    if not into:
        into.update(more)
        return True
    changed = False
    for key, value in more.items():
        known = into.get(key)
        new = value if known is None else both(known, value)
        if new != known:
            into[key] = new
            changed = True
    return changed


def _sooner(one: Begun, other: Begun) -> Begun:
    return other if other[0] < one[0] else one


class Walk:
    """Passes over the graph until nothing changes. What the last one of each block has found stands: it began with all
    that may be under way there."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.lat = latencies(graph.kernel.arch)
        self.distances = distances(self.lat)
        self.facts = graph.effects
        self.counts = any(f is not None and f.depbar is not None for f in self.facts)
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
        runs = self.guards.runs
        against = {mask: opposite(mask) for mask in set(runs)}
        self.against = [against[mask] for mask in runs]
        callers: dict[int, list[int]] = {}
        for number, block in enumerate(blocks):
            if block.calls is not None:
                callers.setdefault(block.calls, []).append(number)
        after: dict[int, State] = {}  # block that calls -> what is under way when it does
        returned: dict[int, State] = {}  # function -> what is under way when it returns
        heap = list(range(len(order_of)))
        queued = set(order_of)
        self.at = {number: State() for number in order_of}

        def send(to: int, state: State) -> None:
            if self.at[to].join(state) and to not in queued:
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
            out = Pass(self, number, self.at[number]).run()
            self.told[number] = self.found, self.waited, self.idle
            if block.calls is not None:
                after[number] = out
                send(block.calls, out)
                come_back(number)
                if self._always(block):
                    continue
            elif block.leaves and self._always(block):
                out = State()
            for to in block.next:
                state = self._along(number, to, out)
                if state is not None:
                    send(to, state)
            if block.returns:
                for entry, members in self.own.items():
                    if number in members and returned.setdefault(entry, State()).join(out):
                        for caller in callers.get(entry, ()):
                            come_back(caller)

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
        holds = {instance: after.holds[instance] for instance in _instances(fixed, results, sources)}
        covers = _of_keys(after.covers, results, sources)
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
        name = register_name(register)
        base = facts.i.base
        if kind == "war":
            sb = control.read if control.read != NONE else control.write
            message = f"{name} is overwritten while {base} may still have to read it"
        else:
            sb = control.write
            verb = "read" if kind == "raw" else "overwritten"
            message = f"{name} is {verb} while {base} may still have to write it"
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
        for n, facts in enumerate(self.facts):
            if facts is not None and facts.missing:
                numbers = " and ".join(map(str, facts.missing))
                message = f"{facts.i.base} names scoreboard {numbers}, out of range: there are 0 to {SCOREBOARDS - 1}"
                self._report("missing-scoreboard", "error", message, n, None, "use one of those")
            if facts is None or not facts.sets:
                continue
            control = facts.i.control
            for kind, sb, can in zip(
                ("read", "write"), (control.read, control.write), self.lat.releases(facts.i), strict=True
            ):
                if sb < SCOREBOARDS and not can:
                    self._report(
                        "no-release", "error", f"{facts.i.base} never releases a {kind} scoreboard: a wait for "
                        f"scoreboard {sb} never ends", n, None, f"remove the {kind} scoreboard",
                    )  # fmt: skip
            if not self.waited >> n & 1:
                numbers = " and ".join(map(str, facts.sets))
                self._report("never-waited", "note", f"nothing waits for scoreboard {numbers} of {facts.i.base}",
                             n, None, "remove it if nothing depends on it")  # fmt: skip


def _instances(fixed: Iterable[Place], results: Iterable[int], sources: Iterable[int]) -> set[int]:
    return {*(instance_of(key) for _, key in fixed), *map(instance_of, results), *map(instance_of, sources)}


def _of_keys(
    covers: dict[str, dict[int, int]], results: dict[int, int], sources: dict[int, int]
) -> dict[str, dict[int, int]]:
    """The part of ``covers`` that tells of what is under way."""
    keys = {key & ~OLDER for key in (*results, *sources)}
    if sum(map(len, covers.values())) == len(keys):  # as mostly
        return covers
    return {queue: {key: mask for key, mask in live.items() if key in keys} for queue, live in covers.items()}


class Pass:
    """The way through one block."""

    def __init__(self, walk: Walk, number: int, state: State) -> None:
        self.walk, self.number, self.facts = walk, number, walk.facts
        self.start = walk.graph.blocks[number].start
        self.now = 0  # cycles count from the start of the block
        self.near: list[Near] = [
            (1 << register, write.most - cycles, -cycles, key, write, state.holds[instance_of(key)], 0)
            for (register, key), (cycles, write) in state.fixed.items()
        ]
        self.busy = reduce(or_, [one[0] for one in self.near], 0)  # registers of ``near``
        self.results, self.sources = dict(state.results), dict(state.sources)
        self.holds = dict(state.holds)
        self.cleared: list[int] = []  # literals of predicates that were written
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
        read. ``under``: of all that is under way, and perhaps more."""
        self.arriving = reduce(or_, self.results.values(), 0)
        self.reading = reduce(or_, self.sources.values(), 0)
        self.under = self.busy | self.arriving | self.reading

    def run(self) -> State:
        """Through all its instructions; what is under way at its end."""
        runs, block = self.walk.guards.runs, self.walk.graph.blocks[self.number]
        for n in range(block.start, block.end):
            facts = self.facts[n]
            if facts is None:
                self.now += 1
                continue
            if facts.awaits:
                self._wait_for(n, facts)
            if facts.touched & self.under:
                self._touch(n, facts)
            if facts.lasting:
                key, now, holds, told = key_of(n, FIXED), self.now, runs[n], len(self.cleared)
                for write in facts.lasting:
                    self.near.append((write.mask, now + write.most, now, key, write, holds, told))
                    self.busy |= write.mask
                    self.under |= write.mask
            if facts.begins:
                self.holds[key_of(n, FIXED)] = runs[n]
            if facts.clears:
                self.cleared.append(facts.clears)
                for instance in self.holds:
                    self.holds[instance] &= ~facts.clears
            if facts.begins:
                self._begin(n, facts)
            if facts.sets:
                self._set(n, facts)
            if facts.flushes:
                live = self.live.get(facts.flushes, {})
                self._release(live, [key for key in live if role_of(key) == LATE])
            self.now += facts.stall
        return self._end()

    def _end(self) -> State:
        now = self.now
        fixed = {
            (register, one[3]): (now - one[2], one[4]) for one in self.near if one[1] > now for register in bits(one[0])
        }
        results, sources = (
            {key: registers for key, registers in under_way.items() if registers}
            for under_way in (self.results, self.sources)
        )
        holds = {instance: self.holds[instance] for instance in _instances((), results, sources)}
        if fixed:
            holds |= {instance_of(one[3]): self._literals(one) for one in self.near if one[1] > now}
        covers = _of_keys(self.live, results, sources)
        fresh = {
            (sb, n): now - cycle
            for (sb, n), cycle in self.fresh.items()
            if now - cycle < SOONEST and self.pending[sb] >> n & 1
        }
        settings = {
            (sb, n): min(MOST_SETS, self.sets[sb] - before)
            for (sb, n), before in self.settings.items()
            if self.pending[sb] >> n & 1
        }
        keys = set().union(*covers.values()) if self.marks else ()
        marks = {
            where: min(MOST_SETS, self.sets[where[0]] - before)
            for where, before in self.marks.items()
            if where[1] in keys
        }
        return State(fixed, results, sources, holds, covers, self.pending, fresh, settings, marks)

    def _literals(self, one: Near) -> int:
        """The literals that still hold in a thread where a result of fixed latency is under way."""
        holds = one[5]
        for cleared in self.cleared[one[6] :]:
            holds &= ~cleared
        return holds

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
            role = role_of(key)
            if number_of(key) == n:
                live[key] = facts.releases[role]
            elif role != VARIABLE:
                live[key] = mask | read
            elif written & ~mask and self._of(key).in_order:
                live[key] = mask | written
        if self.walk.counts:
            for key, mask in live.items():
                for sb in facts.sets:
                    if mask >> sb & 1:
                        self.marks.setdefault((sb, key), self.sets[sb])

    def _wait_for(self, n: int, facts: Effects) -> None:
        """Until scoreboards are free: all that they tell of is done."""
        told = 0
        for sb in facts.wait:
            for (fresh, setter), cycle in self.fresh.items():
                if fresh == sb and self.now - cycle < SOONEST and self.pending[sb] >> setter & 1:
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
            self._release(live, [key for key, mask in live.items() if mask & told])
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
        for key in keys:
            del live[key]
            under_way = self.sources if role_of(key) == LATE else self.results
            under_way.pop(key, None)
            under_way.pop(key | OLDER, None)
        if keys:
            self._sum_up()

    # -- registers

    def _touch(self, n: int, facts: Effects) -> None:
        """Instruction ``n`` reads and writes registers that may be under way."""
        wrong, this = self.walk.against[n], key_of(n, FIXED)
        if self.near:
            self.near = [one for one in self.near if one[1] > self.now]
            self.busy = reduce(or_, [one[0] for one in self.near], 0)
        if facts.read & self.arriving:
            self._read_open(n, facts, wrong)
        if facts.asks & self.busy:
            self._read_fixed(n, facts, wrong)
        if facts.guard is not None and this in self.holds and not self.holds[this] >> literal(*facts.guard) & 1:
            self._age(this)
        if facts.written & (self.arriving | self.reading):
            self._write_open(n, facts, wrong)
        if facts.changes & self.busy:
            self._write_fixed(n, facts, wrong)
        self.under = self.busy | self.arriving | self.reading

    def _age(self, this: int) -> None:
        """An instruction comes by once more, under a guard that may be another than before: what it has under way is
        older then."""
        older = this | OLDER
        self.holds[older] = holds = self.holds[this] & self.holds.get(older, -1)
        latest: dict[int, Near] = {}  # register -> the last that was written to it
        for one in sorted(self.near, key=lambda one: (one[2], one[3] == this)):
            if one[3] in (this, older):
                latest |= dict.fromkeys(bits(one[0]), one)
        self.near = [one for one in self.near if one[3] not in (this, older)]
        for register, (_, until, cycle, _, write, *_) in latest.items():
            self.near.append((1 << register, until, cycle, older, write, holds, len(self.cleared)))
        for under_way in (self.results, self.sources):
            for key in [key for key in under_way if instance_of(key) == this]:
                under_way[key | OLDER] = under_way.pop(key) | under_way.get(key | OLDER, 0)

    def _read_fixed(self, n: int, facts: Effects, wrong: int) -> None:
        early: list[tuple[int, int, int, int, int, int]] = []  # place, register, order, key, cycles passed, needed
        for place, read in enumerate(facts.reading):
            if not read.mask & self.busy:
                continue
            for one in self.near:
                mask, _, cycle, key, write, _, _ = one
                if mask & read.mask:
                    passed = self.now - cycle
                    need = self.walk.distances.raw(self._of(key).i, write, facts.i, read)
                    if passed < need and not self._literals(one) & self._against(n, read, wrong):
                        early.append((place, bits(mask & read.mask)[0], len(early), key, passed, need))
        for _, register, _, key, passed, need in sorted(early):
            self.walk.report_stall("raw", number_of(key), n, register, passed, need)

    def _against(self, n: int, read: Touch, wrong: int) -> int:
        """Literals that are false where instruction ``n`` reads: its guard is read wherever it comes by."""
        return opposite(self.walk.guards.ways[n]) if read.access.what == "guard" else wrong

    def _read_open(self, n: int, facts: Effects, wrong: int) -> None:
        for read in facts.reading:
            against = self._against(n, read, wrong)
            for register in bits(read.mask & self.arriving):
                for key, registers in self.results.items():
                    if registers >> register & 1 and not self.holds[instance_of(key)] & against:
                        self.walk.report_pending("raw", number_of(key), n, register)
                        self.results[key] = registers & ~(1 << register)
        self._sum_up()

    def _write_fixed(self, n: int, facts: Effects, wrong: int) -> None:
        """What instruction ``n`` overwrites; that is no longer under way."""
        early: list[tuple[int, int, int, int, int, int]] = []  # place, register, order, key, cycles passed, needed
        left = -1  # registers that its touches so far have not written for sure
        for place, write in enumerate(facts.writing):
            for one in self.near:
                mask, _, cycle, key, first, _, _ = one
                if mask & write.mask & left:
                    passed = self.now - cycle
                    need = self.walk.distances.waw(self._of(key).i, first, facts.i, write)
                    if passed < need and not self._literals(one) & wrong:
                        early.append((place, bits(mask & write.mask & left)[0], len(early), key, passed, need))
            if facts.guard is None:
                left &= ~write.mask
        for _, register, _, key, passed, need in sorted(early):
            self.walk.report_stall("waw", number_of(key), n, register, passed, need)
        if facts.guard is None:
            self.near = [
                (one[0] & left, *one[1:]) if one[0] & ~left else one for one in self.near if one[0] & left
            ]  # fmt: skip
            self.busy &= left
        else:
            self.near = [one for one in self.near if one[3] != key_of(n, FIXED)]

    def _write_open(self, n: int, facts: Effects, wrong: int) -> None:
        for write in facts.writing:
            for register in bits(write.mask & (self.arriving | self.reading)):
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
