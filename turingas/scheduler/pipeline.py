"""Loops of one block whose rounds overlap: modulo scheduling under predicates.

::

    loop:                          ISETP.EQ.AND P0, PT, RZ, RZ, PT     # this round is wanted
        LDG R4, [R2]               ISETP.NE.AND P2, PT, RZ, RZ, PT     # and the one before is not: there is none
        FFMA R9, R4, R4, R9    loop_rounds:
        IADD3 R8, R8, -1, RZ       @P0 LDG R4, [R2]
        ISETP P0, PT, R8, RZ, PT   @P2 FFMA R9, R5, R5, R9             # of the round before
        @P0 BRA loop               ISETP P2, PT, R8, RZ, P0            # is the next one wanted?
                                   @P2 LDG R5, [R2]
                                   @P0 FFMA R9, R4, R4, R9
                                   ISETP P0, PT, R8, RZ, P2
                                   @P2 BRA loop_rounds

1. **Rounds under predicates.** The body is written down for ``U`` rounds. Each has a predicate that tells whether the
   loop comes to it, which the compare of the round before leaves: that of the branch back, and the round's own
   predicate. What has an effect outside of its round has its round's predicate as guard; what has none runs unguarded.
   So the code is right for any number of rounds, without code before the loop or behind it.
2. **Registers.** A value that lives within a round has a register in each of the ``U``, as far as there are free ones.
3. **Order.** ``depends`` tells which instruction of these rounds, laid one behind the other, must stay behind which;
   modulo.py finds a time for each, and the instructions of all rounds stand in the order of their times. What comes
   later than the end of the ``U`` rounds is done in the next pass, where the predicates tell of which round it is.
   In the first pass there is no round before (guards that rounds compute begin as what keeps from running); so
   nothing may be ``U`` rounds late, and what leaves something for the next round unguarded, or has that round's
   predicate, runs while its own is the youngest.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from turingas.cubin.model import Code, Kernel
from turingas.flow.graph import Graph
from turingas.isa import control
from turingas.isa.arch import WORD_BYTES
from turingas.isa.effects import FIRST, FIXED, PREDICATES, SCOREBOARDS, Effects
from turingas.isa.given import NEUTRAL, NOTHING
from turingas.isa.instruction import Instruction, Label
from turingas.isa.table import OPS
from turingas.scheduler.codes import codes
from turingas.scheduler.depends import expected, is_wall, named
from turingas.scheduler.modulo import ISSUE, START, Arc, Modulo
from turingas.scheduler.rename import Value, live, there, values
from turingas.scheduler.reorder import Model
from turingas.scheduler.ways import Ways

ROUNDS = (2, 3, 4)  # under way at the same time, at most
GAIN = 0.97  # of the cycles of a round: what is no shorter is left as it is
LARGEST = 640  # instructions of a loop, with those of all rounds
GUARD = 12  # place in the word
READ = 12  # cycles until a queue with nothing else to do has read its sources
PASSES = 6  # of a loop, of which the last one tells how long one takes

#: pipes of instructions that do nothing but compute
PURE = ("fma", "alu", "half", "fp64", "xu", "uniform", "umove")
BACK = re.compile(r"@!?P\d BRA \S+$")
COMPARES = tuple(base for base, op in OPS.items() if "compare" in op.traits)


class Stays(Exception):
    """A loop is left as it is, and why."""


class Line(NamedTuple):
    """An instruction of the new loop: its text, and the number of the one that it stands for."""

    text: str
    n: int


@dataclass
class Pipelined:
    """``before``: what is put before the loop; ``lines``: the loop, but for the branch back, whose guard is ``back``;
    ``note``: what was gained."""

    before: list[str]
    lines: list[Line]
    back: str
    note: str


def loops(ways: Ways) -> Iterator[tuple[int, int, str]]:
    """The innermost loops, the last one first: the first instruction, the one behind the last, and why it must be left
    as it is."""
    graph = ways.graph
    outer = {loop.parent for loop in graph.loops}
    known = named(graph.kernel, graph) is not None
    for loop in sorted((loop for n, loop in enumerate(graph.loops) if n not in outer), key=lambda loop: -loop.header):
        start, end = graph.blocks[loop.header].start, max(graph.blocks[number].end for number in loop.blocks)
        why = "where the kernel's indirect branches lead is not known" if not known else ""
        if len(loop.blocks) > 1:
            why = f"it is {len(loop.blocks)} blocks, and only a loop of one can be"
        if end - start > 1:
            yield start, end, why


def pipelined(kernel: Kernel, ways: Ways, start: int, free: Sequence[bool], registers: int) -> Pipelined:
    """The loop of one block that begins with instruction ``start``, its rounds overlapping. ``free``: the instructions
    of which nothing is given; ``registers``: how many the kernel may use. Stays, if it cannot be done or the model
    finds nothing to gain."""
    best: tuple[float, _Rounds, list[tuple[int, int]]] | None = None
    both = [_Loop(kernel, ways, ways.graph.block_of(start), free, ahead) for ahead in (True, False)]
    if both[0].unguarded == both[1].unguarded:
        both.pop()
    was = both[0].cycles
    least, why = GAIN * was, ""
    for count, loop in itertools.product(ROUNDS, both):
        try:
            rounds = _Rounds(loop, count, registers)
        except Stays:
            if not why:
                raise
            break
        order = rounds.order(int(least * 1.5) + 1)
        why = rounds.bound()
        if order is not None:
            cycles = loop.time(rounds.words(order), rounds.back) / count
            if cycles <= least and rounds.under_way > 1:
                best, least = (cycles, rounds, order), GAIN * cycles
    if best is None:
        raise Stays(f"it takes {was} cycles a round by the model, and would not take less: {why}")
    cycles, rounds, order = best
    return rounds.made(order, f"{cycles:.0f} cycles a round by the model instead of {was}; {rounds.bound()}")


def issued(code: Sequence[Instruction]) -> list[tuple[int, int]]:
    """For instructions that one warp runs one after the other, with their control codes: the cycle when each could be
    issued, and when it is, behind what it waits for."""
    done, found, now = [0] * SCOREBOARDS, list[tuple[int, int]](), 0
    for i in code:
        at = max([now, *[done[sb] for sb in range(SCOREBOARDS) if i.control.wait >> sb & 1]])
        found.append((now, at))
        for sb, cycles in ((i.control.write, expected(i)), (i.control.read, READ)):
            if sb < SCOREBOARDS:
                done[sb] = max(done[sb], at + cycles)
        now = at + i.control.stall
    return found


class _Loop:
    """A loop of one block: what is known of it before a number of rounds is chosen. ``ahead``: whether what counts from
    round to round may run unguarded, and then ahead of all else of its round; if not, only what the compare needs."""

    def __init__(self, kernel: Kernel, ways: Ways, number: int, free: Sequence[bool], ahead: bool) -> None:
        self.kernel, self.ways, self.number, graph = kernel, ways, number, ways.graph
        self.isa, block = graph.isa, graph.blocks[number]
        self.start, self.branch = block.start, block.end - 1
        self.members = range(block.start, self.branch)
        self.i: dict[int, Instruction] = {}
        self.facts: dict[int, Effects] = {}
        fixed = {row.address // WORD_BYTES for row in kernel.relocations}
        for n in (*self.members, self.branch):
            i, facts = graph.instructions[n], ways.facts[n]
            if i is None or facts is None or n in fixed:
                raise Stays(f"nobody knows what {graph.text(n)} does")
            if not free[n]:
                raise Stays(f"{i.base} has a control code of yours")
            self.i[n], self.facts[n] = i, facts
        back = self.i[self.branch]
        if not BACK.match(graph.text(self.branch)):
            raise Stays("its branch back is not @P BRA")
        if number not in block.previous or len(block.next) != 2 or block.taken != number:
            raise Stays("it is left from elsewhere")
        self.index, self.inv = back.guard.index, back.guard.inv
        self.register = FIRST["P"] + self.index
        for n in self.members:
            if is_wall(self.i[n]) or any(isinstance(o, Label) for o in self.i[n].operands):
                raise Stays(f"nothing moves across {self.i[n].base}")
        self.compare = self._compare()
        live_before, behind = live(ways)
        self.behind = behind[number]
        others = [to for to in block.next if to != number]
        self.left = live_before[others[0]]  # what those behind the loop read
        self.touched = 0
        self.before = 0  # what a round reads of the one before
        written = 0
        for n in self.members:
            self.before |= self.facts[n].read & ~written
            self.touched |= self.facts[n].read | self.facts[n].written
            if self.facts[n].guard is None:
                written |= self.facts[n].written
        self.unguarded = self._unguarded(ahead)
        #: compares that take their round's predicate, or that of the next one, and for which sense
        self.joined = {self.compare: (self.inv, 0)}
        self.joined |= {n: (False, 1) for n in self.members if self._follows(n)}
        self.late = self._guards()
        may = [True] * len(graph.instructions)
        self.values = _together(values(ways, block.start, block.end, self.behind, may, sums=True)[0])
        self.values.sort(key=lambda value: -self._latency(value))
        bare = [kernel.words[n] & ~control.MASK | NEUTRAL for n in self.members]
        self.cycles = self.time(bare, f"@{'!' * self.inv}P{self.index}")

    def _compare(self) -> int:
        """The instruction that says whether another round comes."""
        found = [n for n in self.members if self.facts[n].written >> self.register & 1]
        name = f"P{self.index}"
        if len(found) != 1:
            raise Stays(f"{len(found)} instructions write {name}, by which it goes on")
        if not self._spare(found[0]):
            text = self.isa.decode(self.kernel.words[found[0]])
            other = f"ISETP.LT.AND {name}, PT, R0, R1, PT could"
            raise Stays(f"{text} cannot take the predicate of its round, too: {other}")
        return found[0]

    def _spare(self, n: int) -> bool:
        """Whether it is a compare with one result, and with a predicate among its operands that says nothing."""
        text = self.isa.decode(self.kernel.words[n])
        parts = operands(text)
        neutral = len(parts) > 4 and (".AND" in text and parts[4] == "PT" or ".OR" in text and parts[4] == "!PT")
        return neutral and text.startswith(COMPARES) and parts[1] == "PT"

    def _follows(self, n: int) -> bool:
        """Whether it is a compare that holds only if another round comes."""
        text = self.isa.decode(self.kernel.words[n])
        parts = operands(text)
        named = len(parts) > 4 and ".AND" in text and parts[1] == "PT" and parts[4] == f"P{self.index}"
        return named and text.startswith(COMPARES) and n > self.compare and not self.inv

    def _unguarded(self, ahead: bool) -> set[int]:
        """What may run in rounds that there are not: it computes, and leaves nothing to those behind the loop; what it
        leaves to the next round comes from nothing that is guarded."""
        found: set[int] = set()
        needed = self._needed()
        guarded = 0  # registers whose values may be those of an earlier round
        for n in self.members:
            i, facts = self.i[n], self.facts[n]
            pure = i.op.pipe in PURE and not {"lanes", "special"} & set(i.op.traits)
            if n == self.compare or pure and not facts.written & (self.left | 1 << self.register) and not (
                facts.written & self.before and (facts.read & guarded or not ahead and n not in needed)
            ):
                found.add(n)
                guarded = guarded & ~facts.written | (facts.written if facts.read & guarded else 0)
            else:
                guarded |= facts.written
        return found

    def _needed(self) -> set[int]:
        """What the compare follows from, in its round."""
        found, wanted = {self.compare}, self.facts[self.compare].read
        for n in range(self.compare - 1, self.start - 1, -1):
            if self.facts[n].written & wanted:
                found.add(n)
                wanted |= self.facts[n].read
        return found

    def _guards(self) -> dict[int, int]:
        """For what is guarded, the round after its own whose predicate that is."""
        late: dict[int, int] = {}
        for n in self.members:
            i, facts = self.i[n], self.facts[n]
            other = [o for o in i.reads if o.file == "P" and o.first == self.index and o.what != "guard"]
            if other and n not in self.joined:
                raise Stays(f"{i.base} reads P{self.index}, by which it goes on")
            mine = facts.guard == (self.register, self.inv)
            if facts.guard is not None and facts.guard[0] == self.register and not (mine and n > self.compare):
                raise Stays(f"{i.base} has P{self.index} for a guard, by which it goes on, before that is known")
            if mine:
                late[n] = 1
                self.unguarded.discard(n)
            elif n not in self.unguarded:
                if facts.guard is not None:
                    self._join(n, *facts.guard)
                    continue
                if i.guard.file != "P":
                    raise Stays(f"{i.base} cannot have P{self.index} for a guard")
                late[n] = 0
        return late

    def _join(self, n: int, register: int, inv: bool) -> None:
        """What is guarded by something else: the compare that this comes from takes the round's predicate, too."""
        writers = [m for m in self.members if self.facts[m].written >> register & 1]
        ok = len(writers) == 1 and writers[0] < n and writers[0] in self.unguarded and not self.before >> register & 1
        ok = ok and (self._spare(writers[0]) or self._follows(writers[0]))
        if not ok or self.joined.setdefault(writers[0], (inv, 0))[0] != inv:
            why = "does not come from one compare of its round that could take another predicate"
            raise Stays(f"{self.ways.graph.text(n)} has a guard of its own, which {why}")

    def _latency(self, value: Value) -> int:
        """Cycles that the slowest of it takes to come, if that is told by a scoreboard."""
        slow = [self.facts[n] for n, _ in value.touched]
        return max([0, *[expected(one.i) for one in slow if any(role != FIXED for _, role in one.writes.values())]])

    def time(self, words: Sequence[int], back: str) -> int:
        """Cycles from pass to pass of a loop that is one block, for one warp with codes as the scheduler makes them: as
        it is, or in a better order."""
        branch = self.isa.encode(f"{back} BRA 0x0", WORD_BYTES * len(words)) | NEUTRAL
        model = Model(self.alone(whole := [*words, branch]), 0, ())
        late = model.cost(model.members, {}, True)[1]
        orders = (model.members, *(model.arrange(late, pair) for pair in (False, True)))
        return min(self._passes([whole[n] for n in order]) for order in orders)

    def _passes(self, words: Sequence[int]) -> int:
        kernel = self.alone(words).graph.kernel
        graph = Graph(replace(kernel, code=Code(words=codes(kernel, [NOTHING] * len(kernel.words)).words)))
        code = [i for i in graph.instructions[: len(words)] if i is not None]
        at = [at for _, at in issued(code * PASSES)]
        return at[-len(code)] - at[-2 * len(code)]

    def alone(self, words: Sequence[int]) -> Ways:
        """The words, and nothing else."""
        code = Code(words=[*words, self.isa.encode("EXIT") | NEUTRAL])
        return Ways(Graph(replace(self.kernel, code=code, relocations=[], attributes=[], infos={}, lines=[])))


class _Rounds:
    """A loop written down for ``count`` rounds."""

    def __init__(self, loop: _Loop, count: int, registers: int) -> None:
        self.loop, self.count, self.isa = loop, count, loop.isa
        if count * len(loop.members) > LARGEST:
            raise Stays(f"it would be {count * len(loop.members)} instructions, more than {LARGEST}")
        self.predicates = self._predicates()
        self.shifts, self.more = self._copies(registers)
        self.word = {(n, k): self._word(n, k) for k in range(count) for n in loop.members}
        size = len(loop.members)
        sequence = [self.word[n, k] for _ in range(2) for k in range(count) for n in loop.members]
        model = Model(loop.alone(sequence), 0, ())
        arcs: dict[tuple[int, int, int], int] = {}
        for edge in model.edges:
            (r, first), (s, second) = divmod(edge.first, size), divmod(edge.second, size)
            if r < count and s < 2 * count:
                key = first, second, s - r
                arcs[key] = max(arcs.get(key, 0), edge.cycles)
        uses = [[(ISSUE, model.least[v]), model.pipe[v]] for v in range(size)]
        begin = {loop.compare, *(n for n, late in loop.late.items() if late)}
        begin |= {n for n, (_, late) in loop.joined.items() if late}
        begin |= {n for n in loop.unguarded if loop.facts[n].written & loop.before}
        ends = [Arc(v, START, 1, 1 if n in begin else count) for v, n in enumerate(loop.members)]
        self.modulo = Modulo(uses, [*(Arc(u, v, cycles, d) for (u, v, d), cycles in arcs.items()), *ends])
        self.ii = 0
        self.under_way = 0

    def _predicates(self) -> list[int]:
        """That of each round; the first is the loop's own."""
        loop = self.loop
        busy = loop.touched | loop.left | loop.behind
        free = [n for n in range(PREDICATES) if not busy >> FIRST["P"] + n & 1 and n != loop.index]
        if len(free) < self.count - 1:
            more = f"{self.count - 1} more predicates, and {len(free)} are free"
            raise Stays(f"{self.count} rounds at a time need {more}")
        return [loop.index, *free[: self.count - 1]]

    def _copies(self, registers: int) -> tuple[dict[int, dict[tuple[int, int], int]], int]:
        """For each round but the first, what is added to a register: by the instruction and the place in its word; and
        how many registers that takes. Values that take longest to come go first."""
        loop, count = self.loop, self.count
        free = there(loop.ways, registers)[loop.number] & ~loop.touched & ~loop.behind & ~loop.left
        shifts: dict[int, dict[tuple[int, int], int]] = {k: {} for k in range(1, count)}
        more = 0
        for value in loop.values:
            size, step = value.last - value.first + 1, max(value.align, 2)  # the bank stays
            places: list[int] = []
            left = free
            for first in range(value.first % step, 256 - size, step):
                mask = (1 << size) - 1 << first
                if left & mask == mask and len(places) < count - 1:
                    places.append(first)
                    left &= ~mask
            if len(places) == count - 1:
                free, more = left, more + size * len(places)
                for k, first in enumerate(places, 1):
                    shifts[k].update(dict.fromkeys(value.touched, first - value.first))
        return shifts, more

    def _word(self, n: int, k: int) -> int:
        """Instruction ``n`` in the round ``k``."""
        loop = self.loop
        word = loop.kernel.words[n] & ~control.MASK | NEUTRAL
        word += sum(by << place for (m, place), by in self.shifts.get(k, {}).items() if m == n)
        if n in loop.joined:
            parts = operands(text := self.isa.decode(word))
            inv, late = loop.joined[n]
            parts[4] = f"{'!' * (inv != loop.inv)}P{self._predicate(k + late)}"
            if n == loop.compare:
                parts[0] = f"P{self._predicate(k + 1)}"
            head = text.split()[0].replace(*((".AND", ".OR") if inv else (".OR", ".AND")))
            return self.isa.encode(f"{head} {', '.join(parts)}") | NEUTRAL
        if n in loop.late:
            word = word & ~(15 << GUARD) | (self._predicate(k + loop.late[n]) | loop.inv << 3) << GUARD
        return word

    def _predicate(self, k: int) -> int:
        return self.predicates[k % self.count]

    def order(self, most: int) -> list[tuple[int, int]] | None:
        """The instructions of all rounds, each with its round, in the order of a schedule; None if none is found."""
        found = self.modulo.schedule(most)
        if found is None:
            return None
        self.ii, length = found.ii, found.ii * self.count
        self.under_way = 1 + max(found.time) // found.ii
        late = [k for k in range(self.count) if any(t + k * found.ii >= length for t in found.time)]
        #: whose predicate says that the loop goes on: the first round of which something is left to do
        self.last = self._predicate(late[0] if late else self.count)
        when = {(n, k): (t + k * found.ii) % length
                for k in range(self.count) for n, t in zip(self.loop.members, found.time)}  # fmt: skip
        return sorted(when, key=lambda which: when[which])

    @property
    def back(self) -> str:
        """The guard of the branch back."""
        return f"@{'!' * self.loop.inv}P{self.last}"

    def words(self, order: Sequence[tuple[int, int]]) -> list[int]:
        """Their words."""
        return [self.word[which] for which in order]

    def bound(self) -> str:
        """What keeps rounds from following each other sooner."""
        least = f"{self.modulo.least} cycles"
        if what := self.modulo.bound:
            return f"{least} of {what}"
        bases = [self.loop.i[self.loop.members[v]].base for v in self.modulo.chain]
        return f"{least} that {', '.join(dict.fromkeys(bases))} take"

    def made(self, order: Sequence[tuple[int, int]], cycles: str) -> Pipelined:
        """The lines."""
        loop = self.loop
        starts = {f"P{p}": (k == 0) != loop.inv for k, p in enumerate(self.predicates)}
        for n, (inv, _) in loop.joined.items():  # what waits for them in the first pass, for rounds that there are not
            if n != loop.compare:
                starts[operands(self.isa.decode(loop.kernel.words[n]))[0]] = inv
        wanted = [f"ISETP.{'EQ' if true else 'NE'}.AND {p}, PT, RZ, RZ, PT" for p, true in starts.items()]
        lines = [Line(self.isa.decode(self.word[which]), which[0]) for which in order]
        more = f"{self.more or 'no'} more register{'s' * (self.more != 1)}"
        return Pipelined(wanted, lines, self.back, f"{self.under_way} rounds under way, {more}: {cycles}")


def _together(found: Sequence[Value]) -> list[Value]:
    """Values that one register holds, one after the other, as one; without those of which one must stay."""
    made: list[Value] = []
    for value in found:
        shared = [one for one in made if one.first <= value.last and value.first <= one.last]
        whole = Value(value.first, value.last, value.start, value.end, value.align, value.stays, list(value.touched))
        for one in shared:
            made.remove(one)
            whole.first, whole.last = min(whole.first, one.first), max(whole.last, one.last)
            whole.start, whole.end = min(whole.start, one.start), max(whole.end, one.end)
            whole.align, whole.stays = max(whole.align, one.align), whole.stays or one.stays
            whole.touched += one.touched
        made.append(whole)
    return [one for one in made if not one.stays]


def operands(text: str) -> list[str]:
    """What stands behind guard and mnemonic."""
    rest = text.partition(" ")[2] if text.startswith("@") else text
    return rest.partition(" ")[2].split(", ")
