"""Races in shared memory: accesses to one place, at least one a write, that nothing orders.

What happens before what is kept in vector clocks (the way of FastTrack: Flanagan and Freund, PLDI 2009). Each warp has
a vector: of each warp of its block (or cluster) the time up to which it knows what that warp did; of each warp and
scoreboard the group of asynchronous operations up to which it knows that they are over; of each mbarrier the phase up
to which it knows what the mbarrier heard of. Barriers (named ones, too, with and without waiting), mbarriers by their
phases and barriers of clusters carry vectors from warp to warp; a wait for a group moves its entry on. For each piece
of shared memory the last write is kept, the last read of every warp, and the asynchronous reads; an access that does
not know of one is a race.

An asynchronous operation (``late``) writes and reads at any time between its begin and what proves its end: its begin
must know of those before it, and those after it of its end, its own warp's too. What uses the async proxy (bulk and
tensor copies, products of warpgroups) sees what was written through the generic one only behind a fence,
FENCE.VIEW.ASYNC: for this each warp has a second vector, of what it knew when a fence stood between.

What is reported, each pair of instructions once:

* RAW, WAR and WAW between warps of a block; a plain write of the value that is there is none.
* WAW within one instruction: lanes of one or several warps that write different values to one place.
* The same with an asynchronous operation, of any warp. PROXY: a fence is missing. END: the kernel ends while a copy may
  still read shared memory.
* Atomics do not race with atomics, nor with the load that belongs to a compare-and-swap loop (float atomics are
  compiled to such loops); they do with other loads and stores.

What is not: plain accesses of one warp by different instructions, for what orders them cannot be seen (compilers leave
out __syncwarp where a warp has not diverged); a fence, a wait and an arrival count for the whole warp. Plain accesses
to shared memory of other blocks. Order that locks and flags make is not seen, so that memory they protect is reported.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from turingas.emulate.arrays import Array
from turingas.emulate.cohort import Cohort, Observer, State
from turingas.emulate.errors import Place
from turingas.emulate.late import Flight, Touch, Which
from turingas.emulate.report import Report
from turingas.isa.instruction import Instruction, Mem, Reg

WORD = 16  # bytes of an instruction
NEAR = 24  # instructions: how far a compare-and-swap may be behind the load of its loop
NEVER = np.iinfo(np.int32).max
KINDS = {
    "RAW": "read after write", "WAR": "write after read", "WAW": "write after write",
    "PROXY": "use through the async proxy after a generic write", "END": "end of the kernel after a read",
}  # fmt: skip
THREADS = "a barrier that both pass, or an mbarrier at which one arrives and the other waits"
#: what would have ordered an asynchronous operation and what comes behind it
OPEN = "closing its group (LDGDEPBAR, UTMACMDFLUSH) and waiting (DEPBAR), or waiting for the mbarrier that it tells"
CLOSED = "a wait for its group (DEPBAR.LE with few enough left) by its warp, and a barrier for the others"
HEARD = "a wait for the phase of the mbarrier that it tells (SYNCS.PHASECHK)"
FENCE = "FENCE.VIEW.ASYNC (fence.proxy.async) behind the write, before what tells the other of it"


@dataclass(frozen=True)
class Race:
    """Two instructions that nothing orders: ``first`` ran before ``second`` here. Two with the same kind and places
    are equal; ``block``, the two threads, (x, y, z) each, the address and the number of bytes are those of the first
    time (of ``first`` only the warp is known: its lowest thread). ``remedy``: what would have ordered them."""

    kind: str
    first: Place
    second: Place
    block: tuple[int, int, int] = field(compare=False)
    threads: tuple[tuple[int, int, int], tuple[int, int, int]] = field(compare=False)
    address: int = field(compare=False)
    nbytes: int = field(compare=False)
    remedy: str = field(compare=False)

    def __str__(self) -> str:
        one, other = self.threads
        return (
            f"{self.second}: race: {KINDS[self.kind]} at 0x{self.address:x} of shared memory, {self.nbytes} bytes\n"
            f"  block {self.block}, thread {other}\n"
            f"  the other instruction: {self.first}, in the warp of thread {one}\n"
            f"  what would order them: {self.remedy}"
        )


class Meeting:
    """What carries vectors: (2, columns) of those who arrived in this phase, and of all phases that are over."""

    def __init__(self, columns: int) -> None:
        self.pending = np.zeros((2, columns), np.int32)
        self.done = np.zeros((2, columns), np.int32)
        self.phase = 0

    def grow(self, columns: int) -> None:
        self.pending, self.done = _wider(self.pending, columns), _wider(self.done, columns)

    def over(self) -> None:
        """The phase is over."""
        np.maximum(self.done, self.pending, out=self.done)
        self.phase += 1


def _wider(clocks: Array, columns: int) -> Array:
    new = np.zeros((*clocks.shape[:-1], columns), np.int32)
    new[..., : clocks.shape[-1]] = clocks
    return new


class Operations:
    """Asynchronous operations by number: the column and the value that a vector has who knows of the end."""

    def __init__(self) -> None:
        self.count = 0
        self.column = np.zeros(64, np.int32)
        self.value = np.full(64, NEVER, np.int32)
        self.proxy = np.zeros(64, bool)  # uses the async one

    def add(self, count: int, proxy: bool) -> Array:
        """Numbers of new ones."""
        begin, self.count = self.count, self.count + count
        while self.count > len(self.value):
            more = len(self.value)
            self.column = np.concatenate([self.column, np.zeros(more, np.int32)])
            self.value = np.concatenate([self.value, np.full(more, NEVER, np.int32)])
            self.proxy = np.concatenate([self.proxy, np.zeros(more, bool)])
        self.proxy[begin : self.count] = proxy
        return np.arange(begin, self.count)


class Races(Observer):
    """The detector of one wave. ``findings`` grows; nothing is raised."""

    def __init__(self, wave: State) -> None:
        self.wave = wave
        self.findings: list[Race] = []
        self._known: set[tuple[str, int, int]] = set()
        instructions = wave.image.instructions
        self.unit = min([4, *(_unit(i) for i in instructions if i is not None)])  # bytes that are looked at as one
        self.swaps = _swap_loads(instructions)
        shared = wave.shared
        self.stride = shared.stride // self.unit  # pieces of a block
        pieces = shared.blocks * self.stride
        blocks = wave.block_of
        self.slot = np.arange(wave.warps) - np.searchsorted(blocks, blocks)  # of each warp in its block
        self.slots = int(self.slot.max(initial=0)) + 1
        self.base = np.arange(shared.blocks) % shared.cluster * self.slots  # of each block: its first column
        self.own = self.base[blocks] + self.slot  # of each warp: its column
        self.team = blocks // shared.cluster
        self.members = self.slots * shared.cluster
        self.columns: dict[tuple[str, int], int] = {}  # of scoreboards (one for each warp of a team), of mbarriers
        self.used = self.members
        self.clocks = np.zeros((2, wave.warps, self.members), np.int32)  # known; known with a fence between
        self.clocks[0, np.arange(wave.warps), self.own] = 1
        self.meetings: dict[tuple[str, int], Meeting] = {}
        self.operations = Operations()
        self.write = _Last(pieces)
        self.fetched, self.other = _Last(pieces), _Last(pieces)  # asynchronous reads
        self.read = np.zeros((pieces, self.slots), np.int32)  # the clock of each warp's last read
        self.reader = np.zeros((pieces, self.slots), np.int32)  # and its instruction
        self.atomic = np.zeros(pieces, bool)  # the last write was one
        self.value = np.zeros(pieces, np.uint32)  # what it wrote
        self.cells = np.zeros(pieces, bool)  # what lies in one

    def tell(self, report: Report) -> None:
        report.races += [race for race in self.findings if race not in report.races]

    # -- what orders

    def _column(self, kind: str, which: int, width: int) -> int:
        """The first column of a scoreboard (width: one for each warp of a team), or that of an mbarrier."""
        at = self.columns.get((kind, which))
        if at is None:
            at = self.columns[kind, which] = self.used
            self.used += width
            if self.used > self.clocks.shape[-1]:
                self.clocks = _wider(self.clocks, 2 * self.used)
                for meeting in self.meetings.values():
                    meeting.grow(2 * self.used)
        return at

    def _meeting(self, kind: str, which: int) -> Meeting:
        found = self.meetings.get((kind, which))
        if found is None:
            found = self.meetings[kind, which] = Meeting(self.clocks.shape[-1])
        return found

    def _release(self, meeting: Meeting, warps: Array) -> None:
        np.maximum(meeting.pending, self.clocks[:, warps].max(axis=1), out=meeting.pending)
        self._tick(warps)

    def _tick(self, warps: Array) -> None:
        """What ``warps`` do from now on is not what they have told of."""
        self.clocks[0, warps, self.own[warps]] += 1

    def _acquire(self, meeting: Meeting, warps: Array) -> None:
        self.clocks[:, warps] = np.maximum(self.clocks[:, warps], meeting.done[:, None])

    def barrier(self, warps: Array, groups: Array | None = None) -> None:
        keys = self.wave.block_of[warps] if groups is None else groups
        order = np.argsort(keys, kind="stable")
        warps, keys = warps[order], keys[order]
        starts = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]]))
        joined = np.maximum.reduceat(self.clocks[:, warps], starts, axis=1)
        for n, key in enumerate(keys[starts].tolist()):
            come = self.meetings.get(("bar", key))
            if come is not None:
                np.maximum(joined[:, n], come.pending, out=joined[:, n])
                come.pending[:] = 0
        self.clocks[:, warps] = np.repeat(joined, np.diff(np.append(starts, len(warps))), axis=1)
        self._tick(warps)

    def arrive(self, warps: Array, groups: Array | None = None) -> None:
        keys = self.wave.block_of[warps] if groups is None else groups
        for key in np.unique(keys).tolist():
            self._release(self._meeting("bar", key), warps[keys == key])

    def cluster(self, what: str, which: Array) -> None:
        if what == "met":
            for team in which.tolist():
                self._meeting("cluster", team).over()
            return
        for team in np.unique(self.team[which]).tolist():
            warps, meeting = which[self.team[which] == team], self._meeting("cluster", team)
            if what == "arrived":
                self._release(meeting, warps)
            else:
                self._acquire(meeting, warps)

    def fence(self, warps: Array) -> None:
        self.clocks[1, warps] = np.maximum(self.clocks[1, warps], self.clocks[0, warps])
        self._tick(warps)

    # -- mbarriers, by their places among all words of 8 bytes

    def mbarriers(self, i: Instruction, events: Sequence[tuple[int, int, bool, bool]]) -> None:
        for warp, cell, arrives, over in events:
            self._uses(i, np.array([warp]), np.array([cell]))
            meeting = self._meeting("mbarrier", cell)
            if arrives:
                self._release(meeting, np.array([warp]))
            if over:
                self._over(cell)

    def _over(self, cell: int) -> Meeting:
        meeting = self._meeting("mbarrier", cell)
        column = self._mbarrier(cell)
        meeting.over()
        meeting.done[:, column] = meeting.phase
        meeting.pending[:] = 0
        return meeting

    def _mbarrier(self, cell: int) -> int:
        return self._column("mbarrier", cell % (self.wave.shared.stride // 8 * self.wave.shared.cluster), 1)

    def acquire(self, i: Instruction, warps: Array, cells: Array) -> None:
        self._uses(i, warps, cells)
        for cell in np.unique(cells).tolist():
            meeting = self.meetings.get(("mbarrier", cell))
            if meeting is not None:
                self._acquire(meeting, np.unique(warps[cells == cell]))

    def _uses(self, i: Instruction, warps: Array, cells: Array) -> None:
        """Warps use mbarriers: they must know that these were made."""
        hit = self._hit(i, warps, cells * 8, 8)
        self.cells[hit.piece] = True
        hit.report("RAW", hit.unknown(self.write) & ~self.atomic[hit.piece], self.write)

    # -- asynchronous operations

    def began(self, flight: Flight, i: Instruction, touches: Sequence[Touch], proxy: bool) -> None:
        ids = self.operations.add(len(flight.warps), proxy)
        flight.numbers = ids
        number = i.address // WORD
        for touch in touches:
            rows, columns = np.nonzero(np.ones(touch.at.shape, bool) if touch.mask is None else touch.mask)
            begin = touch.at[rows, columns].astype(np.int64) * touch.nbytes
            hit = self._hit(i, flight.warps[rows], begin, touch.nbytes, columns % 32)
            ops = np.repeat(ids[rows], len(hit.piece) // max(1, len(rows)))
            race = hit.unknown(self.write)
            hit.report("WAW" if touch.what == "write" else "RAW", race, self.write)
            hit.report("PROXY", hit.unknown(self.write, proxy) & ~race, self.write)
            if touch.what == "mbarrier":
                self.cells[hit.piece] = True
            elif touch.what == "write":
                hit.readers()
                for last in (self.fetched, self.other):
                    hit.report("WAR", hit.unknown(last), last)
                self.write.set(hit, number, ops)
                self.atomic[hit.piece] = False
            else:
                self.fetched.push(hit, number, self.other, ops)

    def closed(self, flights: Sequence[tuple[Flight, Which]], warps: Array, board: int, numbers: Array) -> None:
        column = self._column("scoreboard", board, self.members)
        value = np.zeros(self.wave.warps, np.int64)
        value[warps] = numbers + 1
        for flight, which in flights:
            if not len(flight.numbers):  # nobody said what it does to shared memory
                continue
            ids, whose = flight.numbers, flight.warps
            if which is not None:
                ids, whose = ids[which], whose[which]
            self.operations.column[ids] = column + self.own[whose]
            self.operations.value[ids] = value[whose]

    def waited(self, board: int, warps: Array, over: Array) -> None:
        column = self._column("scoreboard", board, self.members) + self.own[warps]
        self.clocks[0, warps, column] = np.maximum(self.clocks[0, warps, column], over)

    def delivered(self, cell: int, flights: Sequence[tuple[Flight, Which]]) -> None:
        operations, phase = self.operations, self._meeting("mbarrier", cell).phase + 1
        column = self._mbarrier(cell)
        meeting = self._meeting("mbarrier", cell)
        for flight, which in flights:
            if not len(flight.numbers):
                continue
            ids = flight.numbers
            ids = ids if which is None else ids[which]
            fresh = operations.value[ids] == NEVER
            operations.column[ids[fresh]], operations.value[ids[fresh]] = column, phase
            grouped = ids[~fresh]  # those that their group proves, too
            np.maximum.at(meeting.pending[0], operations.column[grouped], operations.value[grouped])

    def phase_over(self, cell: int) -> None:
        self._over(cell)

    def left(self, flight: Flight) -> None:
        for touch in flight.touches:
            if touch.what == "read" and touch.at.size and flight.instruction is not None:
                end = max(n for n, i in enumerate(self.wave.image.instructions) if i is not None and i.base == "EXIT")
                piece = int(touch.at.flat[0]) * touch.nbytes // self.unit
                warp, number = int(flight.warps[0]), flight.instruction.address // WORD
                self.add("END", number, end, (warp, warp), 0, piece, touch.at.size * touch.nbytes, CLOSED)

    def remedy(self, operation: int) -> str:
        """What would have told of the end of an operation."""
        if self.operations.value[operation] == NEVER:
            return OPEN
        column = int(self.operations.column[operation])
        kind = max((at, key[0]) for key, at in self.columns.items() if at <= column)[1]
        return HEARD if kind == "mbarrier" else CLOSED

    # -- accesses

    def access(
        self, k: Cohort, i: Instruction, space: str, addresses: Array, lanes: Array | None, nbytes: int, what: str,
        words: list[Array] | None = None,
    ) -> None:  # fmt: skip
        if space != "shared" or what == "copy":
            return
        flat = np.arange(addresses.size) if lanes is None else np.flatnonzero(lanes)
        warp = k.warps[flat // 32]
        begin = self.wave.block_of[warp] * self.stride * self.unit + addresses.reshape(-1)[flat].astype(np.int64)
        hit = self._hit(i, warp, begin, nbytes, flat % 32)
        number = i.address // WORD
        if what == "read":
            self._read(hit, i, number)
        else:
            values = None if words is None else self._pieces(words, flat, addresses.shape, nbytes)
            self._write(hit, number, what == "atomic", values)

    def _hit(self, i: Instruction, warp: Array, begin: Array, nbytes: int, lane: Array | None = None) -> _Hit:
        """Accesses of so many bytes at offsets ``begin`` into the shared memory of all blocks."""
        count = max(1, nbytes // self.unit)
        piece = (begin[:, None] // self.unit + np.arange(count)).reshape(-1)
        lane = np.zeros(len(warp), np.intp) if lane is None else lane
        return _Hit(self, i, np.repeat(warp, count), np.repeat(lane, count), piece)

    def _read(self, hit: _Hit, i: Instruction, number: int) -> None:
        looks = self.cells[hit.piece]
        if looks.any():
            self.acquire(i, hit.warp[looks], hit.piece[looks] * self.unit // 8)
        race = hit.unknown(self.write) & ~looks
        if number in self.swaps:
            race &= ~self.atomic[hit.piece]
        hit.report("RAW", race, self.write)
        if number in self.swaps:
            return  # the compare-and-swap that follows speaks for it
        slot = self.slot[hit.warp]
        self.read[hit.piece, slot], self.reader[hit.piece, slot] = hit.clock, number

    def _write(self, hit: _Hit, number: int, atomic: bool, values: Array | None) -> None:
        race = hit.unknown(self.write)
        plain = self.write.operation[hit.piece] < 0
        if atomic:
            race &= ~self.atomic[hit.piece]
        elif values is not None:
            race &= (self.value[hit.piece] != values) | self.atomic[hit.piece] | ~plain
        hit.report("WAW", race, self.write)
        hit.readers()
        for last in (self.fetched, self.other):
            hit.report("WAR", hit.unknown(last), last)
        self.write.set(hit, number)
        self.atomic[hit.piece] = atomic
        if not atomic:
            self.cells[hit.piece] = False
        if values is not None:
            self.value[hit.piece] = values
            hit.report("WAW", self.value[hit.piece] != values, self.write)  # other lanes of this instruction

    def _pieces(self, words: list[Array], flat: Array, shape: tuple[int, ...], nbytes: int) -> Array:
        """The values of each piece that a write covers, (lanes * pieces,)."""
        full = np.stack([np.broadcast_to(word, shape).reshape(-1)[flat] for word in words], axis=-1)
        parts = full.view({1: np.uint8, 2: np.uint16, 4: np.uint32}[self.unit])
        return parts[:, : max(1, nbytes // self.unit)].astype(np.uint32).reshape(-1)

    def add(
        self,
        kind: str,
        first: int,
        second: int,
        warps: tuple[int, int],
        lane: int,
        piece: int,
        nbytes: int,
        remedy: str,
    ) -> None:
        """A race of instructions ``first`` and ``second`` (numbers)."""
        if (kind, first, second) in self._known:
            return
        self._known.add((kind, first, second))
        image, wave = self.wave.image, self.wave
        block, other = wave.who(warps[1], lane)
        _, one = wave.who(warps[0], 0)
        address = piece % self.stride * self.unit
        places = image.place(first), image.place(second)
        self.findings.append(Race(kind, *places, block, (one, other), address, nbytes, remedy))


class _Last:
    """The last access of a kind to each piece: a warp's at its clock, or of an operation."""

    def __init__(self, pieces: int) -> None:
        self.warp = np.full(pieces, -1, np.int32)
        self.clock = np.zeros(pieces, np.int32)
        self.number = np.zeros(pieces, np.int32)
        self.operation = np.full(pieces, -1, np.int64)

    def set(self, hit: _Hit, number: int, operations: Array | int = -1) -> None:
        self.warp[hit.piece] = hit.warp
        self.clock[hit.piece] = hit.clock
        self.number[hit.piece] = number
        self.operation[hit.piece] = operations

    def push(self, hit: _Hit, number: int, second: _Last, operations: Array) -> None:
        """The same, and what was there goes to ``second``."""
        at = hit.piece
        for name in ("warp", "clock", "number", "operation"):
            getattr(second, name)[at] = getattr(self, name)[at]
        self.set(hit, number, operations)


class _Hit:
    """The pieces that one access touches: parallel arrays."""

    def __init__(self, races: Races, i: Instruction, warp: Array, lane: Array, piece: Array) -> None:
        self.races, self.number = races, i.address // WORD
        self.warp, self.lane, self.piece = warp, lane, piece
        self.clock = races.clocks[0, warp, races.own[warp]]

    def unknown(self, last: _Last, proxy: bool = False) -> Array:
        """Where an access was that this one does not know of: of another warp, or of an operation of any. ``proxy``:
        through the async proxy, so that it does not see either what was written through the other one, by any warp,
        where no fence stands between."""
        races, piece = self.races, self.piece
        who, operation = last.warp[piece], last.operation[piece]
        column, value = races.own[who], last.clock[piece]
        under_way = operation >= 0
        fenced = np.full(len(piece), int(proxy))
        if under_way.any():
            ops = races.operations
            column = np.where(under_way, ops.column[operation], column)
            value = np.where(under_way, ops.value[operation], value)
            if proxy:
                fenced = np.where(under_way & ops.proxy[operation], 0, fenced)
        known = races.clocks[fenced, self.warp, column] >= value
        return np.asarray((who >= 0) & ~known & ((who != self.warp) | under_way | proxy))

    def readers(self) -> None:
        """Reports reads of other warps that this write does not know of."""
        races = self.races
        block = self.piece // races.stride
        columns = races.base[block][:, None] + np.arange(races.slots)
        late = races.read[self.piece] > races.clocks[0][self.warp[:, None], columns]
        elsewhere = races.wave.block_of[self.warp] != block
        late &= (np.arange(races.slots) != races.slot[self.warp][:, None]) | elsewhere[:, None]
        at, slot = np.nonzero(late)
        if len(at):
            first = races.wave.block_of.searchsorted(block[at])
            self._each("WAR", at, races.reader[self.piece[at], slot], first + slot, np.full(len(at), -1))

    def report(self, kind: str, race: Array, last: _Last) -> None:
        at = np.flatnonzero(race)
        if len(at):
            piece = self.piece[at]
            self._each(kind, at, last.number[piece], last.warp[piece], last.operation[piece])

    def _each(self, kind: str, at: Array, numbers: Array, warps: Array, operations: Array) -> None:
        races = self.races
        firsts, where, counts = np.unique(numbers, return_index=True, return_counts=True)
        for first, one, count in zip(firsts.tolist(), where.tolist(), counts.tolist()):
            operation, n = int(operations[one]), int(at[one])
            remedy = FENCE if kind == "PROXY" else THREADS if operation < 0 else races.remedy(operation)
            warps_of = int(warps[one]), int(self.warp[n])
            lane, piece = int(self.lane[n]), int(self.piece[n])
            races.add(kind, first, self.number, warps_of, lane, piece, count * races.unit, remedy)


def _unit(i: Instruction) -> int:
    """The size of pieces that an instruction needs."""
    if not i.op.traits & {"load", "store"} or i.op.space not in ("shared", "generic"):
        return 4
    return next((size for mod, size in (("U8", 1), ("S8", 1), ("U16", 2), ("S16", 2)) if mod in i.mods), 4)


def _swap_loads(instructions: Sequence[Instruction | None]) -> set[int]:
    """Numbers of the loads that belong to a compare-and-swap soon behind them: they bring what it compares with, or
    are at the same address."""
    found = set()
    for n, i in enumerate(instructions):
        if i is None or "atomic" not in i.op.traits or not ("CAS" in i.mods or "CAST" in i.mods):
            continue
        at = next(n for n, o in enumerate(i.operands) if isinstance(o, Mem))
        mem, compare = i.operands[at], i.operands[at + 1]
        assert isinstance(compare, Reg)
        brought = False
        for before in range(n - 1, max(0, n - NEAR) - 1, -1):
            load = instructions[before]
            if load is None:
                continue
            writes = any(w.file == "R" and w.first <= compare.index < w.first + w.count for w in load.writes)
            if "load" in load.op.traits and ((writes and not brought) or any(_same(mem, o) for o in load.operands)):
                found.add(before)
            brought |= writes
    return found


def _same(a: object, b: object) -> bool:
    return isinstance(a, Mem) and isinstance(b, Mem) and _address(a) == _address(b)


def _address(mem: Mem) -> tuple[object, ...]:
    return mem.offset, mem.scale, str(mem.base), str(mem.ur)
