"""Which instruction of a block must stay behind which, and how far.

An order of a block is right if every edge of ``depends`` points forwards. What cannot be told apart keeps its order:

* registers of all files: who reads a result stays behind it, who overwrites something stays behind its readers and its
  writers, unless their guards exclude each other;
* memory: two accesses of which one writes keep their order, unless they lie in different spaces, or count from the same
  register with the same value and their bytes do not overlap (and of shared memory, both write). Strong accesses,
  atomics, fences, barriers, asynchronous copies and their groups keep their order with all of them;
* walls: nothing moves across a branch, an instruction of the convergence barriers, NOP (into which compilers turn
  __syncwarp), the clock, a word that cannot be read, and what a branch or a table of addresses names.

A warp runs its instructions in order, so an order that keeps these edges leaves each thread what it had. Lanes of a
warp that exchange words through memory with nothing between (no WARPSYNC, NOP or barrier) are a race, and not seen.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

from turingas.cubin import addresses
from turingas.cubin.model import Kernel
from turingas.flow.graph import Graph, flow_of
from turingas.flow.guards import opposite
from turingas.isa.arch import WORD_BYTES
from turingas.isa.effects import FIRST, FIXED, Effects
from turingas.isa.instruction import Instruction, Label, Mem, Name
from turingas.isa.latency import SOURCES
from turingas.scheduler.ways import Ways

TRUE, ANTI, OUTPUT, MEMORY, WALL = "true", "anti", "output", "memory", "wall"


class Edge(NamedTuple):
    """Instruction ``second`` comes ``cycles`` behind ``first`` at least. ``kind``: TRUE (it reads its result), ANTI (it
    overwrites its source), OUTPUT (its result), MEMORY, or WALL. The cycles of what is told by a scoreboard are those
    to be expected."""

    first: int
    second: int
    kind: str
    cycles: int


# ---- how long results take that come at no fixed time ------------------------------------------------------------

#: Cycles until a result is there, to be expected: an order is right whatever they are. Caches and shared memory: Luo et
#: al. 2024 (arXiv 2402.13499), H100. The others are round numbers.
EXPECTED = {
    "LDG": 260, "LD": 260, "LDGMC": 500, "ATOM": 300, "ATOMG": 300,  # as from L2
    "LDL": 41, "LDS": 29, "LDSM": 33, "ATOMS": 60,
    "LDC": 30, "S2R": 30, "S2UR": 30, "SHFL": 24, "MUFU": 20,
}  # fmt: skip
OTHERS = 20
READ_LATE = 30  # until a queue has read its sources: more than an empty one takes, for it may be full


def expected(i: Instruction) -> int:
    """Cycles until the result of an instruction of variable latency is there."""
    if i.op.pipe == "tex":
        return 400
    return EXPECTED.get(i.base, OTHERS)


# ---- what nothing moves across -----------------------------------------------------------------------------------

#: special registers that never change while a thread runs
STEADY = ("SRZ", "SR_TID", "SR_CTAID", "SR_NTID", "SR_LANEID", "SR_EQMASK", "SR_LTMASK", "SR_LEMASK", "SR_GTMASK",
          "SR_GEMASK", "SR_SMEMSZ", "SR_SWIN", "SR_LWIN", "SR_CgaCtaId")  # fmt: skip


def is_wall(i: Instruction | None) -> bool:
    """Whether no instruction may move across ``i``."""
    if i is None or flow_of(i) or i.op.pipe == "branch" or "place" in i.op.traits:
        return True
    if "special" in i.op.traits:
        return not all(o.text.startswith(STEADY) for o in i.operands if isinstance(o, Name))
    return False


def named(kernel: Kernel, graph: Graph) -> set[int] | None:
    """The instructions that something names by their address: branches, tables, return addresses. None if that is not
    known of all."""
    found: set[int] = set()
    for i in graph.instructions:
        for operand in i.operands if i is not None else ():
            if isinstance(operand, Label) and operand.base is None:
                found.add(operand.address // WORD_BYTES)
    told = addresses.find(kernel)
    if told.unknown:
        return None
    found |= {address // WORD_BYTES for address in told.held(kernel)}
    return found | {to // WORD_BYTES for table in addresses.branch_tables(kernel).values() for to in table}


# ---- memory ------------------------------------------------------------------------------------------------------

GLOBAL, SHARED, LOCAL, CONSTANT, GROUPS, LANES = 1, 2, 4, 8, 16, 32
GENERIC, EVERYWHERE = 7, 63

SPACES = {"global": GLOBAL, "shared": SHARED, "local": LOCAL, "generic": GENERIC}

Place = tuple[tuple[str, int, int], ...]  # the registers that an address counts from, and which value of each


class Touch(NamedTuple):
    """Memory that instruction ``n`` touches. ``place`` and bytes ``low`` to ``high`` - 1 from there; None if they are
    not told apart from others."""

    n: int
    spaces: int
    writes: bool
    place: Place | None = None
    low: int = 0
    high: int = 0


def touches(n: int, i: Instruction, values: dict[tuple[str, int], int]) -> Iterator[Touch]:
    """What an instruction touches. ``values``: how often each register has been written so far."""
    base, pipe, space, traits = i.base, i.op.pipe, i.op.space, i.op.traits
    if base == "LDGSTS":  # while it is under way its bytes are nobody else's: only the order is kept
        yield Touch(n, GLOBAL | GROUPS, False)
        yield Touch(n, SHARED, True)
    elif base == "LDGDEPBAR":
        yield Touch(n, GROUPS, True)
    elif "lanes" in traits:
        yield Touch(n, LANES, False)
    elif {"STRONG", "MMIO"} & set(i.mods):
        yield Touch(n, EVERYWHERE, True)
    elif pipe == "constant" or "CONSTANT" in i.mods or (pipe == "tex" and not space):
        yield Touch(n, CONSTANT, False)
    elif pipe != "copy" and traits & {"load", "store", "atomic"}:
        spaces, writes = SPACES[space], "load" not in traits
        memory = [o for o in i.operands if isinstance(o, Mem)]
        if "lanewise" in traits and "atomic" not in traits and len(memory) == 1:
            place, low = _place(memory[0], values)
            yield Touch(n, spaces, writes, place, low, low + i.nbytes)
        else:
            yield Touch(n, spaces, writes)
    elif pipe in ("lsu", "tex", "copy", "wgmma", "special") and not traits & {"special", "asks"}:
        yield Touch(n, EVERYWHERE, True)  # barriers, fences, asynchronous copies, and whatever else there is


def _place(memory: Mem, values: dict[tuple[str, int], int]) -> tuple[Place, int]:
    registers = []
    for reg in (memory.base, memory.ur, memory.desc):
        if reg is None or reg.zero:
            registers.append(("", 0, 0))
        else:
            for index in range(reg.index, reg.index + reg.words):
                registers.append((reg.file, index, values.get((reg.file, index), 0)))
    return (*registers, ("scale", memory.scale, 0)), memory.offset


def apart(one: Touch, other: Touch) -> bool:
    """Whether no byte can be in both. A load from shared memory and a store to it may be volatile, which nothing shows,
    and then the bytes that a store leaves are another lane's next."""
    both = one.spaces & other.spaces
    if not both:
        return True
    if both & SHARED and one.writes != other.writes:
        return False
    if one.place is None or one.place != other.place or one.spaces != other.spaces:  # a number is an address in a space
        return False
    return one.high <= other.low or other.high <= one.low


# ---- the whole ---------------------------------------------------------------------------------------------------

MOST_TOUCHES = 400  # that are compared with each other; one more keeps its order with all


class _Open:
    """Who has written a register since it was last written for sure, and who has read that."""

    __slots__ = ("readers", "writers")

    def __init__(self) -> None:
        self.readers: list[int] = []
        self.writers: list[int] = []


class _Block:
    def __init__(self, ways: Ways, number: int, walls: Collection[int]) -> None:
        self.ways, self.facts, self.lat = ways, ways.facts, ways.lat
        self.block, self.walls = ways.graph.blocks[number], walls
        self.runs = ways.guards.runs
        #: (first, second) -> edge
        self.found: dict[tuple[int, int], Edge] = {}

    def run(self) -> list[Edge]:
        start = self.block.start
        wall = -1
        registers: dict[int, _Open] = {}
        values: dict[tuple[str, int], int] = {}
        memory: list[Touch] = []
        for m in range(start, self.block.end):
            this = self.facts[m]
            if wall >= 0:
                self._add(wall, m, WALL, 1)
            if this is not None:
                self._registers(m, this, registers)
                for touch in touches(m, this.i, values):
                    self._memory(touch, memory)
                for write in this.i.writes:
                    for index in range(write.first, write.first + write.count):
                        values[write.file, index] = values.get((write.file, index), 0) + 1
            if m in self.walls or this is None or is_wall(this.i):
                for n in range(max(wall, start), m):
                    self._add(n, m, WALL, 1)
                wall, memory = m, []
        return sorted(self.found.values())

    def _add(self, first: int, second: int, kind: str, cycles: int) -> None:
        known = self.found.get((first, second))
        if known is None or cycles > known.cycles or (known.kind == WALL and cycles == known.cycles):
            self.found[first, second] = Edge(first, second, kind, cycles)

    def _exclude(self, n: int, m: int, wrong: int) -> bool:
        """Whether instructions ``n`` and, behind it, ``m`` never both run; ``wrong``: literals against ``m``."""
        holds = self.runs[n] & wrong
        for k in range(n, m):
            if not holds:
                return False
            this = self.facts[k]
            holds &= ~this.clears if this is not None else 0
        return holds != 0

    def _registers(self, m: int, this: Effects, registers: dict[int, _Open]) -> None:
        against, before = self._against(m)
        for register, read in this.reads.items():
            here = registers.setdefault(register, _Open())
            for n in here.writers:
                if not self._exclude(n, m, before if read.what == "guard" else against):
                    first = self.facts[n]
                    assert first is not None
                    access, role = first.writes[register]
                    cycles = self.lat.raw(first.i, access, this.i, read) if role == FIXED else expected(first.i)
                    self._add(n, m, ANTI if register >= FIRST[SOURCES] else TRUE, max(cycles, 1))
        for register, (_, role) in this.writes.items():
            if register >= FIRST[SOURCES]:
                continue
            here = registers.setdefault(register, _Open())
            for n in here.writers:
                if not self._exclude(n, m, against):
                    self._add(n, m, OUTPUT, self._overwrites(n, register, this, role))
            for n in here.readers:
                first = self.facts[n]
                assert first is not None  # a guard is read even where it keeps its instruction from running
                if not self._exclude(n, m, 0 if first.reads[register].what == "guard" else against):
                    self._add(n, m, ANTI, self._reads_first(first, register, this, role))
        for register in this.reads:
            here = registers[register]
            if register < FIRST[SOURCES]:
                here.readers.append(m)
            elif this.guard is None:  # whoever overwrites it next stays behind this one
                here.writers = []
        for register in this.writes:
            here = registers.setdefault(register, _Open())
            if this.guard is None and register < FIRST[SOURCES]:
                here.readers, here.writers = [], []
            here.writers.append(m)

    def _against(self, m: int) -> tuple[int, int]:
        """The literals that do not hold where ``m`` runs, and at its place; none in code that nothing leads to."""
        ways, runs = self.ways.guards.ways[m], self.runs[m]
        if ways & opposite(ways):
            return 0, 0
        return opposite(runs), opposite(ways)

    def _overwrites(self, n: int, register: int, this: Effects, role: int) -> int:
        first = self.facts[n]
        assert first is not None
        access, how = first.writes[register]
        if how == FIXED:
            return max(self.lat.waw(first.i, access, this.i, this.writes[register][0]), 1)
        return 1 if role != FIXED and first.queue == this.queue and first.in_order else expected(first.i)

    def _reads_first(self, first: Effects, register: int, this: Effects, role: int) -> int:
        late = register in first.late and not (role != FIXED and first.queue == this.queue)
        return READ_LATE if late else 1

    def _memory(self, touch: Touch, memory: list[Touch]) -> None:
        if len(memory) >= MOST_TOUCHES:
            touch = Touch(touch.n, EVERYWHERE, True)
        against, _ = self._against(touch.n)
        for other in memory:
            if other.n != touch.n and (other.writes or touch.writes) and not apart(other, touch):
                if not self._exclude(other.n, touch.n, against):
                    self._add(other.n, touch.n, MEMORY, 1)
        if touch.writes and touch.spaces == EVERYWHERE and self.runs[touch.n] == self.ways.guards.ways[touch.n]:
            memory.clear()  # whoever comes behind it comes behind those, too
        memory.append(touch)


def depends(ways: Ways, number: int, walls: Collection[int] = ()) -> list[Edge]:
    """The edges of block ``number`` of ``ways.graph``, between instructions of the kernel, in order of the first. Those
    that follow from others may be missing. ``walls``: instructions that nothing moves across, besides those that are
    walls anyway: what ``named`` finds (or all, where it knows nothing)."""
    return _Block(ways, number, walls).run()
