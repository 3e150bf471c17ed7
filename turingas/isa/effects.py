"""What one instruction means for those behind it: which registers it reads and writes, how its results arrive, which
scoreboards it waits for and sets. The linter and the CPU device's scoreboard mode keep their books with this; distances
and pipes are in turingas/isa/latency.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from turingas.isa.instruction import ZEROS, Access, Imm, Instruction, Name, Shape
from turingas.isa.latency import BARRIER, MADE, NONE, SOURCES, Latencies, reader, sources_of, writer
from turingas.isa.operands import remember

# A register of any file has one number: R 0 to 255, then as many UR, P, UP and B, what a barrier "writes", what is made
# of mbarriers, and the UR once more as sources that are read late.
FIRST = {"R": 0, "UR": 256, "P": 512, "UP": 520, "B": 528, BARRIER: 544, MADE: 548, SOURCES: 549}
FILES = sorted(((first, file) for file, first in FIRST.items()), reverse=True)
SCOREBOARDS = 6  # a control code has room for 7, which is none, and for 6, which there is not
SOONEST = 2  # cycles from setting a scoreboard to the first instruction that can wait for it (docs/control-codes.md)

# Roles of what an instruction has begun: results of fixed and of variable latency, sources that it has still to read,
# results that come with the sources.
FIXED, VARIABLE, LATE, WITH_SOURCES = 0, 1, 2, 3


@functools.cache
def register_of(number: int) -> tuple[str, int]:
    """The file of a register and its index there."""
    return next((file, number - first) for first, file in FILES if number >= first)


def register_name(number: int) -> str:
    """R5, UR4, P0 ..."""
    file, index = register_of(number)
    return "an mbarrier" if file == MADE else f"{file}{index}"


PREDICATES = 7  # of a file, without the one that is always true


def literal(register: int, inv: bool) -> int:
    """The number of a predicate that is true, or with ``inv`` false: P0 is 0, !P0 1, P1 2 ... UP0 14."""
    number = register - FIRST["P"]
    return 2 * (number if number <= PREDICATES else number - 1) + inv


def too_early(hazard: str, register: int, i: Instruction, passed: int, need: int) -> tuple[str, str]:
    """Kind and message of a finding: ``i`` reads ("raw") or overwrites ("waw") a register only ``passed`` cycles behind
    the fixed-latency instruction that writes it, where ``need`` are needed. (Barriers and sources that are read late
    are kept as registers, too.)"""
    cycles = "1 cycle" if passed == 1 else f"{passed} cycles"
    if FIRST[BARRIER] <= register < FIRST[SOURCES]:
        if register == FIRST[BARRIER] + 2:
            what = f"{i.base} comes {cycles} behind what its warp group did before (WARPGROUP.ARRIVE, or a product)"
            return "barrier-stall", f"{what}; they need {need}"
        if register == FIRST[BARRIER] + 3:
            what = f"{i.base} comes {cycles} behind UCGABAR_ARV, which takes {need}"
            return "barrier-stall", f"{what}: it may pass before its own warp has arrived"
        who, rest = [("a barrier", "the others are there"), ("DEPBAR", "what it waits for")][register - FIRST[BARRIER]]
        held = f"{i.base} comes {cycles} behind {who}, which holds the warp only after {need}"
        return "barrier-stall", f"{held}: it may run before {rest}"
    if register >= FIRST[SOURCES]:
        return "war-stall", (
            f"UR{register - FIRST[SOURCES]} is overwritten {cycles} behind an instruction that reads it late, and may "
            f"compute with the new value; they need {need}"
        )
    what = "read" if hazard == "raw" else "overwritten"
    return f"{hazard}-stall", f"{register_name(register)} is {what} {cycles} after it is written; that takes {need}"


def pending(hazard: str, register: int, first: Instruction, second: Instruction) -> str:
    """The message of a finding: ``second`` reads ("raw") or overwrites ("waw") a register that ``first`` may still have
    to write, or overwrites one that it may still have to read ("war")."""
    name = register_name(register)
    if register == FIRST[MADE]:
        return f"{second.base} may let {name} be used while {first.base} may still have to write it"
    does = "read" if hazard == "war" else "write"
    return f"{name} is {'read' if hazard == 'raw' else 'overwritten'} while {first.base} may still have to {does} it"


def bits(mask: int) -> list[int]:
    """The numbers of the bits that are set, lowest first."""
    found = []
    while mask:
        low = mask & -mask
        found.append(low.bit_length() - 1)
        mask ^= low
    return found


class Touch(NamedTuple):
    """One access of an instruction. ``numbers``: its registers, ``first`` the first of them, ``mask`` all of them as
    bits. ``role``: of a write, how it arrives; of a read, LATE if it is read late, else FIXED. ``most``: cycles that
    anybody has to keep behind a write of fixed latency. ``clears``: both literals of the predicates that it writes.
    ``kind``: a number; the distances that two touches ask for follow from their kinds and how far apart they begin.
    ``also``: the same registers as sources that may be overwritten too early."""

    access: Access
    numbers: tuple[int, ...]
    first: int
    mask: int
    role: int
    most: int
    clears: int
    kind: int
    also: Touch | None


REMEMBERED = 1 << 16  # words of an architecture


class Distances:
    """The effects of the instructions of one architecture, and the cycles between two touches. Everything is asked of
    ``lat`` once."""

    def __init__(self, lat: Latencies) -> None:
        self.lat = lat
        self.manners: dict[tuple[Shape, bool, bool], Manner] = {}
        self.kinds: dict[tuple[object, ...], int] = {}
        self.most: dict[int, int] = {}  # kind of a write -> cycles that anybody has to keep behind it
        self._seen: dict[int, Effects] = {}
        self._raw: dict[tuple[int, int, int], int] = {}
        self._waw: dict[tuple[int, int, int], int] = {}

    def effects(self, i: Instruction) -> Effects:
        """The effects of an instruction; its address may be another one."""
        found = self._seen.get(i.word)
        if found is None:
            if len(self._seen) >= REMEMBERED:
                self._seen.clear()
            found = self._seen[i.word] = Effects(i, self.lat)
        return found

    def all(self, instructions: Iterable[Instruction | None]) -> list[Effects | None]:
        """The effects of many; None of what is no instruction."""
        known = self._seen  # most were seen before
        return [None if i is None else known.get(i.word) or self.effects(i) for i in instructions]

    def raw(self, one: Instruction, write: Touch, other: Instruction, read: Touch) -> int:
        """Cycles that a reader must keep behind a fixed-latency producer."""
        key = write.kind, read.kind, read.first - write.first
        need = self._raw.get(key)
        if need is None:
            need = self._raw[key] = self.lat.raw(one, write.access, other, read.access)
        return need

    def waw(self, one: Instruction, write: Touch, other: Instruction, write2: Touch) -> int:
        """Cycles between two writers of one register, the first of fixed latency."""
        key = write.kind, write2.kind, write2.first - write.first
        need = self._waw.get(key)
        if need is None:
            need = self._waw[key] = self.lat.waw(one, write.access, other, write2.access)
        return need


distances = functools.cache(Distances)


class Touches(NamedTuple):
    """All touches of an instruction that read, or all that write; the masks are of registers. ``own``: without a
    barrier; ``mask``: with it; ``clears``, ``late`` and ``arriving``: see Effects. ``also``: the same registers as
    sources; ``longest``: the most cycles that anybody has to keep behind a write of fixed latency."""

    touches: tuple[Touch, ...]
    own: int
    mask: int
    clears: int
    late: int
    arriving: dict[int, int]
    also: tuple[Touch, ...]
    also_mask: int
    longest: int


def _masks(touches: Iterable[Touch]) -> int:
    return functools.reduce(operator.or_, [touch.mask for touch in touches], 0)


NOTHING: dict[int, int] = {}


class Manner:
    """What all instructions of one shape have in common, whatever their registers; products of the tensor cores with
    scoreboards of their own, and without, are two, and so are those that nothing follows before they are ``done``."""

    def __init__(self, i: Instruction, of: Distances) -> None:
        lat = of.lat
        self.of, self.lat = of, lat
        self.done = _done(i)
        self.queue, self.in_order, self.flushes = lat.queue(i), lat.in_order(i), lat.flushes(i)
        self.product = i.mods[:1] if lat.pipe(i) == "wgmma" else None
        self.reads: dict[Access, Touch] = {}
        self.writes: dict[Access, Touch] = {}
        self._kinds: dict[tuple[object, ...], int] = {}
        self.barrier_reads = [self.read(i, access) for access in lat.held_back(i)]
        self.barrier_writes = [self.write(i, access) for access in lat.holds_back(i)]
        self.shown = [self.read(i, access) for access in lat.shown(i)]
        self.made = 0 if self.done else _masks(self.write(i, access) for access in lat.made(i))
        self.ordered = _masks(self.read(i, access) for access in lat.ordered(i))
        self.reading: dict[tuple[Access, ...], Touches] = {}  # ``all_reads`` and ``all_writes``: many have the same
        self.writing: dict[tuple[Access, ...], Touches] = {}

    def all_reads(self, i: Instruction) -> Touches:
        """What ``i`` does to all registers that it reads, and to a barrier."""
        own = [self.reads.get(access) or self.read(i, access) for access in i.reads] + self.shown
        late = [touch for touch in own if touch.role == LATE]
        also = [touch.also for touch in own if touch.also]
        return remember(self.reading, i.reads, Touches(
            (*own, *self.barrier_reads), _masks(own), _masks([*own, *self.barrier_reads]), 0, _masks(late), NOTHING,
            tuple(also), _masks(also), max([touch.most for touch in also if touch.role == FIXED], default=0),
        ))  # fmt: skip

    def all_writes(self, i: Instruction) -> Touches:
        """What ``i`` does to all registers that it writes, and to a barrier."""
        own = [self.writes.get(access) or self.write(i, access) for access in i.writes]
        also = [touch.also for touch in own if touch.also]
        arriving: dict[int, int] = {}
        clears = 0
        for touch in own:
            clears |= touch.clears
            if touch.role != FIXED:
                arriving[touch.role] = arriving.get(touch.role, 0) | touch.mask
        if self.made:
            arriving[VARIABLE] = arriving.get(VARIABLE, 0) | self.made
        touches = (*own, *self.barrier_writes)
        return remember(self.writing, i.writes, Touches(
            touches, _masks(own), _masks(touches), clears, 0, arriving or NOTHING, tuple(also), _masks(also),
            max([touch.most for touch in touches if touch.role == FIXED], default=0),
        ))  # fmt: skip

    def read(self, i: Instruction, access: Access) -> Touch:
        """What ``i`` does to the registers that it reads."""
        also, kind = None, self._kind(i, access, reader)
        if self.lat.is_overtaken(i, access):
            as_source = sources_of(access)
            also = _touch(as_source, FIXED, self._most(i, as_source, kind), kind)
        role = LATE if self.lat.late(i, access) and not self.done else FIXED
        found = self.reads[access] = _touch(access, role, 0, kind, also)
        return found

    def write(self, i: Instruction, access: Access) -> Touch:
        """What ``i`` does to the registers that it writes."""
        lat, role, kind = self.lat, FIXED, self._kind(i, access, writer)
        also = _touch(sources_of(access), FIXED, 0, kind) if lat.overtakes(i, access) else None
        if lat.variable(i, access) and not self.done:
            role = WITH_SOURCES if lat.with_read(i, access) else VARIABLE
        most = self._most(i, access, kind) if role == FIXED else 0
        found = self.writes[access] = _touch(access, role, most, kind, also)
        return found

    def _kind(self, i: Instruction, access: Access, of: Callable[..., str]) -> int:
        key = of, access.file, access.count, access.what
        found = self._kinds.get(key)
        if found is None:
            classes = [of(self.lat, i, access, word) for word in range(access.count)]
            product = (self.product, access.what) if self.product else None  # latency.accumulates
            kinds = self.of.kinds
            found = self._kinds[key] = kinds.setdefault((of, access.file, product, *classes), len(kinds))
        return found

    def _most(self, i: Instruction, access: Access, kind: int) -> int:
        found = self.of.most.get(kind)
        if found is None:
            found = self.of.most[kind] = self.lat.most(i, access)
        return found


def _done(i: Instruction) -> bool:
    """Whether the next instruction comes when this one is done, whatever it is: that of stall 0 without scoreboards.
    ptxas 13.5 writes nothing else with -O0, and does not wait for loads."""
    control = i.control
    return not control.stall and control.yields and control.write == NONE and control.read == NONE


def _touch(access: Access, role: int, most: int, kind: int, also: Touch | None = None) -> Touch:
    first = FIRST[access.file] + access.first
    numbers = tuple(range(first, first + access.count))
    clears = 0
    if access.file in ("P", "UP"):
        clears = sum(3 << literal(n, False) for n in numbers if n % 8 != PREDICATES)
    return Touch(access, numbers, first, (1 << access.count) - 1 << first, role, most, clears, kind, also)


class Boards(NamedTuple):
    """What the scoreboards of a control code say: see Effects."""

    sets: tuple[int, ...]
    missing: tuple[int, ...]
    releases: dict[int, int]


@functools.cache
def _boards(write: int, read: int) -> Boards:
    named = sorted({sb for sb in (write, read) if sb != NONE})
    written, read_by = (1 << sb if sb < SCOREBOARDS else 0 for sb in (write, read))
    return Boards(
        tuple(sb for sb in named if sb < SCOREBOARDS),
        tuple(sb for sb in named if sb >= SCOREBOARDS),
        {VARIABLE: written, LATE: written | read_by, WITH_SOURCES: written | read_by},
    )


WAITS = [tuple(bits(mask)) for mask in range(1 << SCOREBOARDS)]


class Effects:
    """One instruction. ``wait``: scoreboards that its control code waits for; ``waits``: those that the instruction
    itself does, which looks later; ``depbar``: (scoreboard, how many settings may be left of it). ``reading`` and
    ``writing``: its touches, in the order of its operands; ``read`` and ``written``: their registers, as bits.
    ``read_late``: registers that it reads late, without those that it writes too, for which its result stands, as bits;
    ``arriving``: role of what arrives at no fixed time -> registers, as bits; ``made``, those among them that
    ``writes`` has not, for they are not overwritten: mbarriers; ``ordered``: those that only the scheduler lets it wait
    for. ``clears``: both literals of the predicates that it writes, as a mask. ``guard``: its register, and whether it
    is inverted. ``sets``: its scoreboards; ``missing``: those that it names and that there are not; ``releases``: role
    -> the scoreboards that tell when it is done, as a mask.

    What tells quickly whether there is something to look at: ``asks`` and ``changes``, all registers of ``reading`` and
    of ``writing``, ``touched`` both; ``lasting``: writes of fixed latency that somebody has to keep behind for longer
    than its stall; ``begins``: whether something is under way behind it of which only a scoreboard tells; ``awaits``:
    whether it waits for scoreboards."""

    def __init__(self, i: Instruction, lat: Latencies) -> None:
        control, of = i.control, distances(lat)
        boards = control.write != NONE or control.read != NONE
        key = i.shape, i.shape.op.pipe == "tensor" and boards, not control.stall and _done(i)
        manner = of.manners.get(key)
        if manner is None:
            manner = of.manners[key] = Manner(i, of)
        self.i = i
        self.queue, self.in_order, self.flushes = manner.queue, manner.in_order, manner.flushes
        self.wait = WAITS[control.wait]
        self.stall = control.stall or lat.stall(i)
        reads = manner.reading.get(i.reads) or manner.all_reads(i)
        writes = manner.writing.get(i.writes) or manner.all_writes(i)
        self.reading: Sequence[Touch] = reads.touches + writes.also
        self.writing: Sequence[Touch] = writes.touches + reads.also
        self.asks, self.changes = reads.mask | writes.also_mask, writes.mask | reads.also_mask
        self.touched = self.asks | self.changes
        self.lasting: Sequence[Touch] = ()
        if reads.longest > self.stall or writes.longest > self.stall:
            self.lasting = [touch for touch in self.writing if touch.role == FIXED and touch.most > self.stall]
        self.read, self.written, self.clears = reads.own, writes.own, writes.clears
        self.read_late, self.arriving = reads.late & ~writes.own, writes.arriving
        self.made, self.ordered = manner.made, manner.ordered
        self.begins = bool(self.read_late or self.arriving)
        self.guard = None if i.always else _guard(i.guard.file, i.guard.index, i.guard.inv)
        self.sets, self.missing, self.releases = _boards(control.write, control.read)
        self.waits: tuple[int, ...] = ()
        self.depbar: tuple[int, int] | None = None
        if i.base == "DEPBAR":
            self._depbar(i)
        self.awaits = bool(self.wait or self.waits or self.depbar)

    @functools.cached_property
    def reads(self) -> dict[int, Access]:
        """Register -> how it is read. Of several places the first counts, which needs the most cycles."""
        found: dict[int, Access] = {}
        for touch in self.reading:
            for register in touch.numbers:
                found.setdefault(register, touch.access)
        return found

    @functools.cached_property
    def writes(self) -> dict[int, tuple[Access, int]]:
        """Register -> how it is written, and its role."""
        return {register: (touch.access, touch.role) for touch in self.writing for register in touch.numbers}

    @functools.cached_property
    def late(self) -> tuple[int, ...]:
        """The registers of ``read_late``."""
        return tuple(bits(self.read_late))

    def _depbar(self, i: Instruction) -> None:
        """DEPBAR.LE SB0, 0x1, {3, 2} waits for SB2 and SB3, and until one is left of SB0."""
        waits: list[int] = []
        counted: tuple[int, int] | None = None
        for operand in i.operands:
            if isinstance(operand, Name) and operand.text.startswith("SB"):
                counted = (int(operand.text[2:]), 0)
            elif isinstance(operand, Imm) and operand.kind == "set":
                waits += WAITS[operand.bits & 63]
            elif isinstance(operand, Imm) and counted is not None:
                counted = (counted[0], operand.value)
        if counted is not None and counted[1] == 0:
            waits.append(counted[0])
            counted = None
        named = {*self.missing, *waits, *(counted or ())[:1]}
        self.missing = tuple(sorted(sb for sb in named if sb >= SCOREBOARDS))
        self.waits = tuple(sb for sb in waits if sb < SCOREBOARDS)
        self.depbar = counted if counted is not None and counted[0] < SCOREBOARDS else None


@functools.cache
def _guard(file: str, index: int, inv: bool) -> tuple[int, bool] | None:
    return None if index == ZEROS[file] else (FIRST[file] + index, inv)
