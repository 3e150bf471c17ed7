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
from collections.abc import Iterable, Iterator

from turingas.check.finding import Finding
from turingas.check.rules import rule
from turingas.flow.graph import Block, Graph
from turingas.flow.guards import IMPOSSIBLE, TRUE, Guards, opposite, row
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
Begun = tuple[int, Touch]  # a cycle, and a write
# what a pass through a block has found: findings, whose scoreboards were waited for, waits for what nothing has set
Told = tuple[dict[tuple[str, int, int | None], Finding], set[int], list[tuple[int, list[int]]]]


class State:
    """What is under way at one point. ``fixed``: results of fixed latency, place -> fewest cycles since its
    instruction, and the write; ``open``: what only a scoreboard tells of, key -> its registers as bits.
    ``holds``: instance -> literals that hold in a thread where it is under way. ``covers``: key
    without OLDER -> mask of the scoreboards any of which tells that it is done.
    ``pending``: (scoreboard, instruction) -> fewest cycles since it was set, fewest other settings of it since.
    ``marks``: (scoreboard, key) -> fewest settings of a scoreboard in ``covers`` since the first one that told of key;
    kept where DEPBAR counts."""

    __slots__ = ("covers", "fixed", "holds", "marks", "open", "pending")

    def __init__(
        self,
        fixed: dict[Place, Begun] | None = None,
        open: dict[int, int] | None = None,
        holds: dict[int, int] | None = None,
        covers: dict[int, int] | None = None,
        pending: dict[tuple[int, int], tuple[int, int]] | None = None,
        marks: dict[tuple[int, int], int] | None = None,
    ) -> None:
        self.fixed = fixed or {}
        self.open = open or {}
        self.holds = holds or {}
        self.covers = covers or {}
        self.pending = pending or {}
        self.marks = marks or {}

    def join(self, other: State) -> bool:
        """Take over what is under way in ``other``; whether that is news."""
        changed = False
        fixed = self.fixed
        for place, begun in other.fixed.items():
            known_begun = fixed.get(place)
            if known_begun is None or known_begun[0] > begun[0]:
                fixed[place] = begun
                changed = True
        under_way = self.open
        for key, registers in other.open.items():
            known_registers = under_way.get(key, 0)
            if registers & ~known_registers:
                under_way[key] = known_registers | registers
                changed = True
        holds = self.holds
        for instance, literals in other.holds.items():
            known = holds.get(instance, -1)
            if known & ~literals:
                holds[instance] = known & literals
                changed = True
        covers = self.covers
        for key, mask in other.covers.items():
            old_mask = covers.get(key, -1)
            if old_mask & ~mask:
                covers[key] = old_mask & mask
                changed = True
        pending = self.pending
        for where, (cycles, sets) in other.pending.items():
            old = pending.get(where)
            if old is None:
                pending[where] = (cycles, sets)
                changed = True
            elif old[0] > cycles or old[1] > sets:
                pending[where] = (min(old[0], cycles), min(old[1], sets))
                changed = True
        marks = self.marks
        for where, sets in other.marks.items():
            if marks.get(where, NEVER) > sets:
                marks[where] = sets
                changed = True
        return changed


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
        self.waited: set[int] = set()  # instructions that set a scoreboard which somebody waited for
        self.idle: list[tuple[int, list[int]]] = []  # instructions that wait for scoreboards which nothing has set

    # -- over blocks

    def _converge(self) -> None:
        blocks = self.graph.blocks
        order_of, _ = self.graph.order()
        rank = {number: n for n, number in enumerate(order_of)}
        self.own, self.inside = self.graph.own, self.graph.inside()
        self.guards = Guards(self.graph, self.facts)
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
            out = Pass(self, number, self.at[number]).block(block)
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
        left = {}
        for key, registers in after.open.items():
            if block_of(number_of(key)) not in inside:
                registers &= before.open.get(key | OLDER, 0) | before.open.get(key & ~OLDER, 0)
            if registers:
                left[key] = registers
        holds = {instance: after.holds[instance] for instance in _instances(fixed, left)}
        keys = {key & ~OLDER for key in left}
        covers = {key: mask for key, mask in after.covers.items() if key in keys}
        pending = {
            where: value
            for where, value in after.pending.items()
            if where in before.pending or block_of(where[1]) in inside
        }
        return State(fixed, left, holds, covers, pending, {m: n for m, n in after.marks.items() if m[1] in covers})

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
        fixed, left = out.fixed, out.open
        if len(holds) < len(out.holds):
            fixed = {place: begun for place, begun in fixed.items() if instance_of(place[1]) in holds}
            left = {key: registers for key, registers in left.items() if instance_of(key) in holds}
        return State(fixed, left, holds, out.covers, out.pending, out.marks)

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
            if n not in self.waited:
                numbers = " and ".join(map(str, facts.sets))
                self._report("never-waited", "note", f"nothing waits for scoreboard {numbers} of {facts.i.base}",
                             n, None, "remove it if nothing depends on it")  # fmt: skip


def _instances(fixed: Iterable[Place], left: Iterable[int]) -> set[int]:
    return {instance_of(key) for _, key in fixed} | {instance_of(key) for key in left}


class Pass:
    """The way through one block."""

    def __init__(self, walk: Walk, number: int, state: State) -> None:
        self.walk, self.number, self.facts = walk, number, walk.facts
        self.fixed: dict[int, dict[int, Begun]] = {}  # register -> key; cycles count from the start of the block
        self.open = dict(state.open)
        self.holds = dict(state.holds)
        self.live: dict[str, dict[int, int]] = {}  # queue -> key without OLDER -> mask of scoreboards
        # of each scoreboard: instruction -> cycle, sets before
        self.pending: list[dict[int, tuple[int, int]]] = [{} for _ in range(SCOREBOARDS)]
        self.sets = [0] * SCOREBOARDS  # how often each was set in this block
        self.marks = {where: -sets for where, sets in state.marks.items()}
        self.now = 0
        for (register, key), (cycles, write) in state.fixed.items():
            self.fixed.setdefault(register, {})[key] = -cycles, write
        for key, mask in state.covers.items():
            self.live.setdefault(self._of(key).queue, {})[key] = mask
        for (sb, n), (cycles, later) in state.pending.items():
            self.pending[sb][n] = (-cycles, -later)
        self._sum_up()

    def _of(self, key: int) -> Effects:
        facts = self.facts[number_of(key)]
        assert facts is not None
        return facts

    def _sum_up(self) -> None:
        """The registers of what is open, as bits: those that are still to be written, and those still to be read."""
        results = sources = 0
        for key, registers in self.open.items():
            if role_of(key) == LATE:
                sources |= registers
            else:
                results |= registers
        self.results, self.sources = results, sources

    def block(self, block: Block) -> State:
        """Through all its instructions; what is under way at its end."""
        fixed, holds = self.fixed, self.holds
        runs, against = self.walk.guards.runs, self.walk.against
        for n in range(block.start, block.end):
            facts = self.facts[n]
            if facts is None:
                self.now += 1
                continue
            if facts.wait:
                self._report_waits(facts.wait, n)
                self._wait(facts.wait)
            if facts.waits:
                self._wait(facts.waits)
            if facts.depbar is not None:
                self._count(*facts.depbar)
            wrong, now = against[n], self.now
            if facts.read & self.results:
                self._read_open(n, facts, wrong)
            for touch in facts.reading:
                for register in touch.numbers:
                    if register in fixed:
                        self._read_fixed(n, facts, register, touch, wrong)
            this, guard = key_of(n, FIXED), facts.guard
            if guard is not None and this in holds and not holds[this] >> literal(*guard) & 1:
                self._age(this, facts)
            if facts.written & (self.results | self.sources):
                self._write_open(n, facts, wrong)
            for touch in facts.writing:
                for register in touch.numbers:
                    keys = fixed.get(register)
                    if keys:
                        self._write_fixed(n, facts, register, touch, keys, wrong)
                    if touch.role == FIXED:
                        if keys and guard is not None:
                            keys[this] = now, touch
                        else:
                            fixed[register] = {this: (now, touch)}
                    elif keys and guard is None:
                        del fixed[register]
            holds[this] = runs[n]
            if facts.clears:
                keep = ~facts.clears
                for instance in holds:
                    holds[instance] &= keep
            if facts.arriving:
                for role, registers in facts.arriving.items():
                    self._begin(facts.queue, key_of(n, role), registers)
            if facts.read_late:
                self._begin(facts.queue, key_of(n, LATE), facts.read_late)
            if facts.sets:
                self._set(n, facts)
            if facts.flushes:
                self._release([key for key in self.live.get(facts.flushes, ()) if role_of(key) == LATE])
            self.now = now + facts.stall
        return self._end()

    def _age(self, this: int, facts: Effects) -> None:
        """An instruction comes by once more, under a guard that may be another than before: what it has under way is
        older then."""
        older = this | OLDER
        for touch in facts.writing:
            for register in touch.numbers:
                keys = self.fixed.get(register)
                if keys and this in keys:
                    begun = keys.pop(this)
                    keys[older] = max(begun, keys.get(older, begun), key=lambda one: one[0])
        for key in [key for key in self.open if instance_of(key) == this]:
            self.open[key | OLDER] = self.open.pop(key) | self.open.get(key | OLDER, 0)
        self.holds[older] = self.holds[this] & self.holds.get(older, -1)

    def _end(self) -> State:
        now = self.now
        fixed = {
            (register, key): (now - cycle, write)
            for register, keys in self.fixed.items()
            for key, (cycle, write) in keys.items()
            if now - cycle < write.most
        }
        left = {key: registers for key, registers in self.open.items() if registers}
        keys_left = {key & ~OLDER for key in left}
        holds = {instance: self.holds[instance] for instance in _instances(fixed, left)}
        covers = {key: mask for live in self.live.values() for key, mask in live.items() if key in keys_left}
        pending = {
            (sb, n): (min(SOONEST, now - cycle), min(MOST_SETS, self.sets[sb] - before))
            for sb in range(SCOREBOARDS)
            for n, (cycle, before) in self.pending[sb].items()
        }
        marks = {
            where: min(MOST_SETS, self.sets[where[0]] - before)
            for where, before in self.marks.items()
            if where[1] in covers
        }
        return State(fixed, left, holds, covers, pending, marks)

    # -- scoreboards

    def _begin(self, queue: str, key: int, registers: int) -> None:
        """Under way from here on, and told of by nothing; what was known of the time before does not count."""
        self.live.setdefault(queue, {})[key] = 0
        self.open[key] = registers
        if role_of(key) == LATE:
            self.sources |= registers
        else:
            self.results |= registers
        if self.walk.counts:
            for sb in range(SCOREBOARDS):
                self.marks.pop((sb, key), None)

    def _set(self, n: int, facts: Effects) -> None:
        """Instruction ``n`` sets its scoreboards, whether or not its guard lets it run: NVRTC 12.9 counts guarded TLD
        with DEPBAR as if all ran. They also tell of what its queue ends before it."""
        for sb in facts.sets:
            self.sets[sb] += 1
            self.pending[sb][n] = (self.now, self.sets[sb])
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

    def _report_waits(self, waits: tuple[int, ...], n: int) -> None:
        for sb in waits:
            for setter, (cycle, _) in self.pending[sb].items():
                if self.now - cycle < SOONEST:
                    self.walk.report_soon(sb, setter, n, self.now - cycle)
        idle = [sb for sb in waits if not self.pending[sb]]
        if idle and self.number in self.walk.from_start:
            self.walk.idle.append((n, idle))

    def _wait(self, boards: tuple[int, ...]) -> None:
        """Until scoreboards are free: all that they tell of is done."""
        told = 0
        for sb in boards:
            told |= 1 << sb
            self.walk.waited.update(self.pending[sb])
            self.pending[sb].clear()
        self._release([key for live in self.live.values() for key, mask in live.items() if mask & told])

    def _count(self, sb: int, most: int) -> None:
        """Until at most so many settings of a scoreboard are pending: the older ones, which end in order, are done."""
        self.walk.waited.update(self.pending[sb])
        for setter, (_, before) in list(self.pending[sb].items()):
            if self.sets[sb] - before >= most:
                del self.pending[sb][setter]
        told = [key for live in self.live.values() for key, mask in live.items() if mask >> sb & 1]
        self._release([key for key in told if self.sets[sb] - self.marks[sb, key] >= most])

    def _release(self, keys: list[int]) -> None:
        """What ``keys`` name is done."""
        for key in keys:
            del self.live[self._of(key).queue][key]
            self.open.pop(key, None)
            self.open.pop(key | OLDER, None)
        if keys:
            self._sum_up()

    # -- registers

    def _read_fixed(self, n: int, facts: Effects, register: int, read: Touch, wrong: int) -> None:
        keys, late = self.fixed[register], True
        for key, (cycle, write) in keys.items():
            passed = self.now - cycle
            if passed >= write.most:
                continue
            late = False
            need = self.walk.distances.raw(self._of(key).i, write, facts.i, read)
            if passed < need and not self.holds[instance_of(key)] & self._against(n, read, wrong):
                self.walk.report_stall("raw", number_of(key), n, register, passed, need)
        if late:  # nobody has to ask any more
            del self.fixed[register]

    def _against(self, n: int, read: Touch, wrong: int) -> int:
        """Literals that are false where instruction ``n`` reads: its guard is read wherever it comes by."""
        return opposite(self.walk.guards.ways[n]) if read.access.what == "guard" else wrong

    def _read_open(self, n: int, facts: Effects, wrong: int) -> None:
        for read in facts.reading:
            against = self._against(n, read, wrong)
            for register in bits(read.mask & self.results):
                for key, registers in self.open.items():
                    if not registers >> register & 1 or role_of(key) == LATE or self.holds[instance_of(key)] & against:
                        continue
                    self.walk.report_pending("raw", number_of(key), n, register)
                    self.open[key] = registers & ~(1 << register)
        self._sum_up()

    def _write_fixed(
        self, n: int, facts: Effects, register: int, write: Touch, keys: dict[int, Begun], wrong: int
    ) -> None:
        for key, (cycle, first) in keys.items():
            passed = self.now - cycle
            if passed >= first.most or not passed:  # it may write a register twice
                continue
            need = self.walk.distances.waw(self._of(key).i, first, facts.i, write)
            if passed < need and not self.holds[instance_of(key)] & wrong:
                self.walk.report_stall("waw", number_of(key), n, register, passed, need)

    def _write_open(self, n: int, facts: Effects, wrong: int) -> None:
        for write in facts.writing:
            for register in bits(write.mask & (self.results | self.sources)):
                for key, registers in self.open.items():
                    if not registers >> register & 1 or self.holds[instance_of(key)] & wrong:
                        continue
                    first = self._of(key)
                    same = write.role != FIXED and first.queue == facts.queue
                    if role_of(key) == LATE:
                        if not same:
                            self.walk.report_pending("war", number_of(key), n, register)
                    elif not (same and first.in_order):
                        self.walk.report_pending("waw", number_of(key), n, register)
                    self.open[key] = registers & ~(1 << register)
        if facts.guard is None:
            for key in self.open:
                self.open[key] &= ~facts.written
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
