"""What is known of registers without running the kernel: how the value of a lane differs from that of its neighbours.

A value is ``base + offsets[lane]``: the offsets are known, the base is the same for all lanes of a warp and need not be
known. Thread indices start it (S2R), arithmetic that keeps the form carries it on (IMAD, IADD3, LEA, SHF, LOP3, MOV);
whatever else is computed from uniform values alone is uniform, and all the rest is unknown. Nothing is guessed but one
thing: that a warp lies along tid.x, which holds where blockDim.x is a multiple of 32.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from itertools import product
from operator import or_
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from turingas.flow.graph import Graph
from turingas.flow.stretch import REMEMBERED, Stretch
from turingas.isa.effects import FIRST, Effects, bits
from turingas.isa.instruction import (
    LANES_DECIDE,
    ZEROS,
    Access,
    Const,
    Imm,
    Instruction,
    Mem,
    Name,
    Operand,
    Reg,
    Shape,
)
from turingas.isa.table import OPS

Offsets = NDArray[Any]
LANE = np.arange(32, dtype=np.int64)
WORD = 1 << 32
THREAD, OTHER = 1, 2  # what a value is made from, besides numbers: an index of the thread; what is not known


@dataclass(frozen=True, eq=False, slots=True)
class Value:
    """``step`` 0: the lanes hold ``offsets`` (a number, or int64 of 32 lanes). Otherwise they hold ``offsets`` and a
    base that is not known but the same in the whole warp, and a multiple of ``step``. ``origin``: THREAD if it was made
    from an index of the thread in its block, so that warps, too, may differ in it; OTHER if from what is not known.
    ``uniform``: whether all lanes hold the same."""

    step: int
    offsets: Offsets | int
    origin: int
    uniform: bool

    @property
    def lanes(self) -> Offsets:
        """The offsets as an array."""
        return np.asarray(self.offsets, np.int64)

    @property
    def thread(self) -> bool:
        """Whether it was made from an index of the thread in its block."""
        return bool(self.origin & THREAD)

    @property
    def number(self) -> int | None:
        """The number that it is, if that is known."""
        return int(self.offsets) if self.step == 0 and self.uniform else None

    def same(self, other: Value) -> bool:
        """Whether the two are equal, as far as is known of both."""
        if self is other:
            return True
        if self.step != other.step or self.origin != other.origin or self.uniform != other.uniform:
            return False
        return self.offsets == other.offsets if self.uniform else np.array_equal(self.offsets, other.offsets)


@dataclass(frozen=True, eq=False, slots=True)
class Truth:
    """A predicate of which is known whether all lanes of a warp hold the same, and what it was made from. There is one
    object of each kind: TRUTHS."""

    uniform: bool
    origin: int

    @property
    def thread(self) -> bool:
        """Whether an index of the thread takes part in deciding it."""
        return bool(self.origin & THREAD)

    @property
    def sure(self) -> bool:
        """Whether an index of the thread decides it, and nothing that is not known does."""
        return self.origin == THREAD


Known = Value | Truth
State = dict[int, Known]  # register, as turingas/isa/effects counts them; general ones and predicates alone
Rule = Callable[[State, Instruction, list[Operand]], Value | None]


def make(step: int, offsets: Offsets | int, origin: int = 0) -> Value:
    """A value in its simplest form: multiples of the step belong to the base, equal offsets are one."""
    if not isinstance(offsets, int):
        first = int(offsets.flat[0])
        if offsets.ndim and (offsets != first).any():
            offsets = offsets - int(offsets.min()) // step * step if step else offsets % WORD
            return Value(step, offsets, origin, False)
        offsets = first
    return Value(step, offsets % (step or WORD), origin, True)


ZERO = make(0, 0)
UNIFORM = make(1, 0, OTHER)  # uniform registers, too
ALL_THREADS = make(1, 0, THREAD)  # uniform in a warp, another in the next one
UNIFORMS = [make(1, 0, origin) for origin in range(4)]
TRUTHS = {(uniform, origin): Truth(uniform, origin) for uniform in (False, True) for origin in range(4)}
SAME, CONSTANT = TRUTHS[True, OTHER], TRUTHS[True, 0]

SPECIAL = {
    "SR_TID.X": make(32, LANE, THREAD),
    "SR_TID.Y": ALL_THREADS,
    "SR_TID.Z": ALL_THREADS,
    "SR_LANEID": make(0, LANE, THREAD),
    "SRZ": make(0, 0),
    "SR_CTAID.X": UNIFORM,
    "SR_CTAID.Y": UNIFORM,
    "SR_CTAID.Z": UNIFORM,
    "SR_CgaCtaId": UNIFORM,
    "SR_NTID": UNIFORM,
}


# -- arithmetic. None is a value of which nothing is known.


def add(x: Value | None, y: Value | None) -> Value | None:
    """x + y."""
    if x is None or y is None:
        return None
    return make(math.gcd(x.step, y.step), x.offsets + y.offsets, x.origin | y.origin)


def times(x: Value | None, number: int) -> Value | None:
    """x * number."""
    return None if x is None else make(x.step * abs(number), x.offsets * number, x.origin if number else 0)


def multiply(x: Value | None, y: Value | None) -> Value | None:
    """x * y."""
    if x is None or y is None:
        return None
    for one, other in ((x, y), (y, x)):
        if one.number is not None:
            return times(other, one.number if one.number < WORD >> 1 else one.number - WORD)
    if x.uniform and y.uniform:
        return make(1, 0, x.origin | y.origin)
    if x.step == y.step == 0:
        return make(0, x.offsets * y.offsets, x.origin | y.origin)
    return None


def shift_right(x: Value | None, count: int) -> Value | None:
    """x >> count of a number without sign."""
    if x is None:
        return None
    if x.step == 0 or x.step % (1 << count) == 0:
        return make(x.step >> count, x.offsets >> count, x.origin)
    return make(1, 0, x.origin) if x.uniform else None


def bitwise(values: list[Value | None], table: int) -> Value | None:
    """LOP3: bit n of the result is bit ``4 a + 2 b + c`` of ``table``, of the bits n of the values a, b, c."""
    known = [v for v in values if v is not None]
    if len(known) < len(values):
        return None
    origin = _origin(known)
    steps = [v.step for v in known if v.step]
    if not steps:
        return make(0, _lut([v.offsets for v in known], table) % WORD, origin)
    step = min(step & -step for step in steps)  # the base has no bits below this one
    if any(v.step and int(v.lanes.max()) >= step for v in known):
        return make(1, 0, origin) if all(v.uniform for v in known) else None
    high = [v.lanes // step for v in known if not v.step]
    if any((part != part.flat[0]).any() for part in high):
        return None
    low = _lut([v.offsets % step for v in known], table) % step
    # What the table makes of the bits above: of a base they may be anything, so both are tried
    choices = [(0, WORD - step) if v.step else (int(v.lanes.flat[0]) // step * step,) for v in known]
    above = [int(_lut(list(choice), table)) % WORD // step for choice in product(*choices)]
    return make(step if any(above) else 0, low, origin)


def _origin(known: Iterable[Known | None]) -> int:
    """What is made of all these is made of: nothing is known where there is a None."""
    origin = 0
    for one in known:
        origin |= OTHER if one is None else one.origin
    return origin


def _lut(values: Sequence[Offsets | int], table: int) -> Offsets | int:
    result: Offsets | int = 0
    for row in range(8):
        if table >> row & 1:
            term: Offsets | int = -1
            for place, value in enumerate(values):
                term = term & (value if row >> (2 - place) & 1 else ~value)
            result = result | term
    return result


# -- instructions


def operand(state: State, o: Operand) -> Value | None:
    """The value of a source of 32 bits."""
    if isinstance(o, Imm):
        return make(0, o.value if o.kind == "int" else o.bits)
    if isinstance(o, Const):
        return UNIFORM
    if isinstance(o, Reg) and o.file in ("R", "UR"):
        value = register(state, o.file, o.index)
        if o.inv or o.abs or o.suffix:
            return value if value is not None and value.uniform and value.step == 1 else None
        return times(value, -1) if o.neg else value
    return None


def register(state: State, file: str, index: int) -> Value | None:
    """What is known of a register."""
    if index == ZEROS[file]:
        return ZERO
    if file == "UR":
        return UNIFORM
    found = state.get(index)
    return found if isinstance(found, Value) else None


def truth(state: State, file: str, index: int) -> Truth | None:
    """What is known of a predicate."""
    if index == ZEROS.get(file):
        return CONSTANT
    if file == "UP":
        return SAME
    found = state.get(FIRST["P"] + index)
    return found if isinstance(found, Truth) else None


def guard(state: State, i: Instruction) -> Truth | None:
    """What is known of the guard of an instruction."""
    return truth(state, i.guard.file, i.guard.index)


def _imad(state: State, i: Instruction, sources: list[Operand]) -> Value | None:
    if {"HI", "X"} & set(i.mods) or len(sources) != 3:
        return None
    a, b, c = (operand(state, o) for o in sources)
    return add(multiply(a, b), c)


def _iadd3(state: State, i: Instruction, sources: list[Operand]) -> Value | None:
    if "X" in i.mods or len(sources) < 3:
        return None
    a, b, c = (operand(state, o) for o in sources[:3])
    return add(add(a, b), c)


def _lea(state: State, i: Instruction, sources: list[Operand]) -> Value | None:
    if i.mods or len(sources) != 3 or not isinstance(sources[2], Imm):
        return None
    return add(times(operand(state, sources[0]), 1 << sources[2].value), operand(state, sources[1]))


def _shf(state: State, i: Instruction, sources: list[Operand]) -> Value | None:
    low, count, high = sources[:3]
    known = operand(state, count)
    number = None if known is None else known.number
    if number is None or number > 31 or "W" in i.mods or {"U64", "S64"} & set(i.mods):
        return None
    if "L" in i.mods and "HI" not in i.mods:
        return times(operand(state, low), 1 << number)
    if "R" in i.mods and "HI" in i.mods:
        value = operand(state, high)
        if "S32" in i.mods and value is not None and value.step == 0 and int(value.lanes.max()) >= WORD >> 1:
            return None
        return shift_right(value, number)
    return None


def _lop3(state: State, i: Instruction, sources: list[Operand]) -> Value | None:
    if len(sources) < 4 or not isinstance(sources[3], Imm):
        return None
    return bitwise([operand(state, o) for o in sources[:3]], sources[3].value)


def _mov(state: State, i: Instruction, sources: list[Operand]) -> Value | None:
    return operand(state, sources[0])


def _special(state: State, i: Instruction, sources: list[Operand]) -> Value | None:
    return SPECIAL.get(sources[0].text) if isinstance(sources[0], Name) else None


RULES = {"IMAD": _imad, "IADD3": _iadd3, "LEA": _lea, "SHF": _shf, "LOP3": _lop3, "MOV": _mov, "S2R": _special}



class Plan(NamedTuple):
    """What an instruction does to a state. ``reads``: the registers that it reads, its guard apart; ``uses``: the same
    with its guard, as bits; ``writes``: those that it writes; ``exact``: the one of them that ``rule`` works out;
    ``opaque``: whether its results are no function of its registers; ``origin``: OTHER if it reads more than these;
    ``uniform``: whether its results are where those are; ``always``: whether it has no guard; ``results``: what is
    known of the registers that it reads -> of those that it writes."""

    i: Instruction
    reads: tuple[int, ...]
    uses: int
    writes: tuple[int, ...]
    exact: int
    rule: Rule | None
    sources: list[Operand]
    opaque: bool
    origin: int
    uniform: bool
    always: bool
    results: dict[tuple[Known | None, ...], list[Known | None]]


SITUATIONS = 16  # that are remembered of an instruction
#: the files that a state knows of, and where the numbers of their registers begin
KEPT = {file: FIRST[file] for file in ("R", "P")}
BITS = (1 << FIRST["UR"]) - 1 | ((1 << 8) - 1) << FIRST["P"]


class _Numbers(dict[Access, tuple[int, ...]]):
    """The registers of an access that a state knows of."""

    def __missing__(self, access: Access) -> tuple[int, ...]:
        first = KEPT.get(access.file, 0) + access.first
        found = self[access] = tuple(range(first, first + access.count)) if access.file in KEPT else ()
        return found


_numbers = _Numbers()
_MORE: dict[Shape, bool] = {}


def _reads_more(i: Instruction) -> bool:
    """Whether it reads more than registers."""
    found = _MORE.get(i.shape)
    if found is None:
        found = _MORE[i.shape] = any(isinstance(o, (Const, Mem)) for o in i.operands)
    return found


@lru_cache(1 << 15)
def plan(this: Effects) -> Plan:
    """What there is to know of an instruction, whatever the state."""
    i = this.i
    rule, opaque = RULES.get(i.base), i.op.opaque
    origin, uniform = OTHER if _reads_more(i) else 0, not opaque
    reads: tuple[int, ...] = ()
    writes: tuple[int, ...] = ()
    exact = -1
    for access in i.reads:
        if access.what != "guard":
            if numbers := _numbers[access]:
                reads += numbers
            else:
                origin = OTHER
                uniform = uniform and access.file in ("UR", "UP")
    for access in i.writes:
        writes += _numbers[access]
    sources: list[Operand] = []
    if rule:
        sources = [o for o in i.operands if not (isinstance(o, Reg) and (o.write or o.file in ("P", "UP")))]
        exact = next((access.first for access in i.writes if access.file == "R"), -1)
    return Plan(i, reads, this.read & BITS, writes, exact, rule, sources, opaque, origin, uniform, i.always, {})


ALL = range(BITS.bit_length())


def execute(state: State, this: Plan) -> None:
    """Brings ``state`` behind an instruction."""
    before = tuple([state.get(number) for number in this.reads])
    results = this.results.get(before)
    if results is None:
        results = _results(state, this, before)
        if len(this.results) < SITUATIONS:
            this.results[before] = results
    for number, new in zip(this.writes, results):
        if not this.always:
            new = _perhaps(new, state.get(number), guard(state, this.i))
        if new is None:
            state.pop(number, None)
        else:
            state[number] = new


def _results(state: State, this: Plan, before: tuple[Known | None, ...]) -> list[Known | None]:
    """What an instruction writes if it runs; ``before``: what is known of the registers that it reads."""
    origin, uniform = this.origin, this.uniform
    for known in before:
        if known is None:
            origin |= OTHER
            uniform = False
        else:
            origin |= known.origin
            uniform = uniform and known.uniform
    exact = None if this.rule is None else this.rule(state, this.i, this.sources)
    found: list[Known | None] = []
    for number in this.writes:
        new: Known | None = None
        if number < FIRST["P"]:
            new = exact if exact is not None and number == this.exact else UNIFORMS[origin] if uniform else None
        elif this.i.base == "VOTE":
            new = SAME
        elif uniform or origin & THREAD and not this.opaque:
            new = TRUTHS[uniform, origin]
        found.append(new)
    return found


def _perhaps(new: Known | None, old: Known | None, sure: Truth | None) -> Known | None:
    """What is known of a register that a guarded instruction may have written."""
    if new is None or old is None:
        return None
    if _equal(new, old):
        return new
    return _either(new, old) if sure is not None and sure.uniform else None


def _equal(one: Known, other: Known) -> bool:
    if isinstance(one, Value) and isinstance(other, Value):
        return one.same(other)
    return one is other


def _either(one: Known, other: Known) -> Known | None:
    """What is known where all lanes of a warp hold ``one``, or all hold ``other``."""
    if isinstance(one, Truth) and isinstance(other, Truth):
        return TRUTHS[one.uniform and other.uniform, one.origin | other.origin]
    if not isinstance(one, Value) or not isinstance(other, Value):
        return None
    difference = np.ravel(one.lanes - other.lanes)
    if (difference != difference[0]).any():
        return None
    step = math.gcd(one.step, other.step, int(difference[0]))
    return make(step, one.offsets, one.origin | other.origin) if step else one


# -- over the graph


#: what an access or a branch says of itself
DECIDING = ("address", "guard", "predicate")


class Step(NamedTuple):
    """An instruction that matters, ``n`` from the start of its block. ``asked``: registers of which is to be known what
    they hold before it; ``plan``: what it does, if that matters; ``clears``: whether nothing is known behind it."""

    n: int
    asked: Sequence[int] = ()
    plan: Plan | None = None
    clears: bool = False


class Needed:
    """The instructions of a kernel on which it depends what is known where somebody asks: addresses and guards of the
    instructions of ``asked``, and what decides where a block goes on. The rest need not be gone through.

    ``steps``: block -> those that are needed; ``at``: block -> registers that matter at its start, as bits;
    ``written``: block -> registers that it writes.
    """

    def __init__(self, graph: Graph, asked: Container[str] | None) -> None:
        self.graph, self.asked = graph, asked
        self.at = [0] * len(graph.blocks)
        self.steps: list[list[Step]] = [[] for _ in graph.blocks]
        self.written = [0] * len(graph.blocks)
        self._behind = [-1] * len(graph.blocks)  # what matters behind each; -1: not gone through yet
        self._asking = frozenset(base for base in graph.mnemonics if asked is None or base in asked)
        order = list(dict.fromkeys([number for entry in graph.entries for number in graph.function(entry)]))[::-1]
        rank = {number: n for n, number in enumerate(order)}
        waiting = list(range(len(order)))  # the last ones first
        queued = set(order)
        while waiting:
            number = order[heapq.heappop(waiting)]
            queued.discard(number)
            before = self._everything(number) if asked is None else self._through(number)
            if before != self.at[number]:
                self.at[number] = before
                for to in graph.blocks[number].previous:
                    if to in rank and to not in queued:
                        queued.add(to)
                        heapq.heappush(waiting, rank[to])

    def _through(self, number: int) -> int:
        """What matters before a block; notes which of its instructions are needed."""
        block = self.graph.blocks[number]
        live = 0
        for to in block.next:
            live |= self.at[to]
        before, self._behind[number] = self._behind[number], live
        if before >= 0 and not live & ~before & self.written[number]:
            return self.at[number] | live & ~before  # what is new only passes through
        stretch = self.graph.stretches[number]
        asking = self._asking if not self._asking.isdisjoint(stretch.mnemonics) else NOBODY
        self.steps[number], self.written[number], live = _needed(stretch, live, len(block.next) > 1, asking)
        return live

    def _everything(self, number: int) -> int:
        """The same where all is asked of all instructions."""
        block = self.graph.blocks[number]
        code = self.graph.effects[block.start : block.end]
        self.steps[number] = [Step(n, ALL, None if e is None else plan(e), e is None) for n, e in enumerate(code)]
        self.written[number] = BITS
        return BITS


NOBODY = frozenset[str]()


Backwards = list[tuple[int, Effects | None, int, str]]


@lru_cache(REMEMBERED)
def _backwards(stretch: Stretch) -> tuple[Backwards, int]:
    """The instructions of a block, the last one first: number, effects, registers that it writes, mnemonic. And what
    all of them write."""
    found: Backwards = []
    for n, this in enumerate(stretch.effects):
        found.append((n, None, 0, "") if this is None else (n, this, this.written, this.i.base))
    return found[::-1], reduce(or_, [written for _, _, written, _ in found], 0)


@lru_cache(REMEMBERED)
def _needed(stretch: Stretch, live: int, branches: bool, asking: frozenset[str]) -> tuple[list[Step], int, int]:
    """The instructions of a block that matter, if ``live`` matters behind it; the registers that it writes; and what
    matters before it. ``branches``: whether its last instruction decides where it goes on; ``asking``: mnemonics of
    which is to be known what they read."""
    steps: list[Step] = []
    last = len(stretch.effects) - 1
    backwards, written = _backwards(stretch)
    for n, this, writes, base in backwards:
        if this is None:
            steps.append(Step(n, clears=True))
            continue
        needed = None
        if writes & live:
            needed = plan(this)
            if needed.always:
                live &= ~writes
            live |= needed.uses
        elif base == "CALL":
            steps.append(Step(n, clears=True))  # what a function leaves
        if base in asking or branches and n == last:
            registers = _asked(this.i)
            for register in registers:
                live |= 1 << register
            if needed or registers:
                steps.append(Step(n, registers, needed))
        elif needed:
            steps.append(Step(n, (), needed))
    steps.reverse()
    return steps, written, live


def _asked(i: Instruction) -> list[int]:
    """The registers that an instruction's address, guard and condition are read from."""
    return [KEPT[access.file] + access.first for access in i.reads if access.what in DECIDING and access.file in KEPT]


class Values:
    """What is known in each block of a kernel; ``instructions`` tells of one.

    ``asked``: of which mnemonics addresses and guards are to be known; None: everything of all.
    ``split``: blocks at whose end the lanes of a warp may go different ways.
    ``apart``: blocks between such a branch and the place where its ways meet, where not all lanes may be active.
    """

    def __init__(self, graph: Graph, asked: Container[str] | None = None) -> None:
        self.graph = graph
        self.start: dict[int, State] = {entry: {} for entry in graph.entries}
        self.before: dict[int, State] = {}  # instruction -> what is known there of the registers that are asked for
        self.ends: dict[int, State] = {}
        #: the state before: a block that is come to with what was known before is not gone through again
        self.seen: dict[int, State] = {}
        order = [n for entry in graph.entries for n in graph.function(entry)]
        self.order = list(dict.fromkeys(order))
        self.forget = [0] * len(graph.blocks)  # registers of which nothing is known before a block, as bits
        self.after = post_dominators(graph)
        self._next = [sum(1 << to for to in set(block.next)) for block in graph.blocks]
        self.needed = Needed(graph, asked)
        self.split: set[int] = set()
        self._apart = 0
        self._flow()
        self.apart = frozenset(bits(self._apart))

    def instructions(
        self, block: int, wanted: Container[str] | None = None
    ) -> Iterator[tuple[int, Instruction, State]]:
        """The instructions of a block (with one of some mnemonics), their numbers, and what is known before each of the
        registers that were asked for."""
        start = self.graph.blocks[block].start
        for step in self.needed.steps[block]:
            n = start + step.n
            i = self.graph.instructions[n]
            if i is not None and (wanted is None or i.base in wanted):
                yield n, i, self.before.get(n, {})

    def decides(self, block: int) -> Truth | None:
        """What is known of the predicates that decide where a block goes on."""
        state, i = self.ends.get(block, {}), self.graph.instructions[self.graph.blocks[block].end - 1]
        if i is None or i.base == "RET" or i.op.flow in ("indirect", "call") or LANES_DECIDE & set(i.mods):
            return None
        found = [guard(state, i)]
        found += [truth(state, o.file, o.index) for o in i.operands if isinstance(o, Reg) and o.file in ("P", "UP")]
        known = [one for one in found if one is not None]
        if len(known) < len(found):
            return None
        return TRUTHS[all(one.uniform for one in known), _origin(known)]

    def _end(self, block: int) -> State:
        """The state behind a block."""
        start = self.start.get(block, {})
        before = self.seen.get(block)
        if before is not None and len(before) == len(start):
            if all(before.get(register) is known for register, known in start.items()):
                return self.ends[block]
        state = dict(start)
        first = self.graph.blocks[block].start
        for n, asked, this, clears in self.needed.steps[block]:
            if asked:
                self.before[first + n] = {register: state[register] for register in asked if register in state}
            if this is not None:
                execute(state, this)
            elif clears:
                state.clear()
        self.seen[block], self.ends[block] = start, state
        return state

    def meet(self, block: int) -> int | None:
        """The first block that all ways from ``block`` pass; None where they end apart from each other."""
        later = self.after[block] & ~(1 << block)
        rest = later
        while rest:
            lowest = (rest & -rest).bit_length() - 1
            if self.after[lowest] == later:
                return lowest
            rest &= rest - 1
        return None

    def ways(self, block: int) -> list[set[int]]:
        """For each way out of a block the blocks on it, up to where all of them meet, that one included."""
        return [set(bits(way)) for way in self._ways(block, self.meet(block))[0]]

    def _ways(self, block: int, end: int | None) -> tuple[list[int], int]:
        """The same, as bits, and the registers that are written on them; ``end`` is where they meet."""
        next_, stop = self._next, -1 if end is None else ~(1 << end)
        found, written = [], 0
        for first in self.graph.blocks[block].next:
            seen = 1 << first
            todo = seen & stop
            while todo:
                low = todo & -todo
                at = low.bit_length() - 1
                written |= self.needed.written[at]
                new = next_[at] & ~seen
                seen |= new
                todo = (todo ^ low) | new & stop
            found.append(seen)
        return found, written

    def _flow(self) -> None:
        """Goes through the blocks until nothing changes. What is known becomes less and less on the way: so a branch at
        whose end lanes go apart once does so for good."""
        rank = {number: n for n, number in enumerate(self.order)}
        waiting = sorted(rank[entry] for entry in self.graph.entries)
        queued = set(waiting)
        while waiting:
            place = heapq.heappop(waiting)
            queued.discard(place)
            number = self.order[place]
            state = self._end(number)
            block = self.graph.blocks[number]
            changed = [to for to in block.next if self._merge(to, state)]
            if len(block.next) > 1 and number not in self.split:
                found = self.decides(number)
                if found is None or not found.uniform:
                    self.split.add(number)
                    changed += self._part(number)
            for to in changed:
                if rank[to] not in queued:
                    queued.add(rank[to])
                    heapq.heappush(waiting, rank[to])

    def _part(self, number: int) -> list[int]:
        """Lanes go apart at the end of a block: where their ways meet, what was written on them is not known. The
        blocks before which something changed."""
        end = self.meet(number)
        ways, written = self._ways(number, end)
        union = shared = 0
        for way in ways:
            shared |= union & way
            union |= way
        if end is not None:
            self._apart |= union & ~(1 << end)
        changed = []
        for b in bits(shared):
            self.forget[b] |= written
            start = self.start.get(b, {})
            left = {register: known for register, known in start.items() if not written >> register & 1}
            if len(left) < len(start):
                self.start[b] = left
                changed.append(b)
        return changed

    def _merge(self, block: int, state: State) -> bool:
        """Joins a state to what stands before a block; whether that changed."""
        keep = self.needed.at[block] & ~self.forget[block]
        state = {register: known for register, known in state.items() if keep >> register & 1}
        old = self.start.get(block)
        if old is None:
            self.start[block] = state
            return True
        new: State = {}
        for key, known in old.items():
            if key in state:
                joined = known if _equal(known, state[key]) else _either(known, state[key])
                if joined is not None:
                    new[key] = joined
        changed = len(new) != len(old) or any(not _equal(new[key], old[key]) for key in new)
        self.start[block] = new
        return changed


def accesses(graph: Graph) -> frozenset[str]:
    """The mnemonics of a kernel with which lanes access shared or global memory, each at an address of its own."""
    ops = {mnemonic: OPS[mnemonic] for mnemonic in graph.mnemonics}
    spaces = ("shared", "global", "generic")
    return frozenset(name for name, op in ops.items() if "lanewise" in op.traits and op.space in spaces)


@lru_cache(1)
def values(graph: Graph) -> Values:
    """The values of a kernel; several checks ask for them, one after the other."""
    return Values(graph, accesses(graph) | {"BAR"})


def post_dominators(graph: Graph) -> list[int]:
    """For each block those that every way from it to an end of the kernel passes, itself included, as bits."""
    count = len(graph.blocks)
    everything = (1 << count) - 1
    found = [everything] * count
    changed = True
    while changed:
        changed = False
        for number in range(count)[::-1]:
            block = graph.blocks[number]
            new = everything if block.next else 0
            for to in block.next:
                new &= found[to]
            if number in graph.open or _may_end(graph, number):
                new = 0
            new |= 1 << number
            if new != found[number]:
                found[number] = new
                changed = True
    return found


def _may_end(graph: Graph, number: int) -> bool:
    """Whether a thread may end in this block, or leave the function."""
    i = graph.instructions[graph.blocks[number].end - 1]
    return i is not None and i.op.flow == "end"
