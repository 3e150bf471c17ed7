"""Races in global memory: ``--races global`` looks for them beside those in shared memory.

Warps of all blocks, also of different waves, have numbers in the grid, and what a warp knows of those of other blocks
it can only have learnt as the PTX memory model says ("Memory Consistency Model"): a *release*, which is a fence
(MEMBAR) and a strong store or atomic behind it, and an *acquire*, which is a strong load or atomic that reads what was
stored, or what atomics made of it, and behind it CCTL.IVALL: ptxas puts it behind each ld.acquire and each fence of the
GPU's scope. Vectors, beside those of ``order``:

* SEEN: of what the warp has read the release, but with no CCTL.IVALL since;
* WIDE, NARROW: what a fence of the GPU's scope, or of any, lies behind: so much its next strong store tells others, of
  any block, or of its own;
* ASYNC: what the async proxy sees in global memory.

Tensor maps are read through a proxy of their own: one that the kernel has written must have been renewed behind that
(UTMACCTL.IV), by the warp that copies or by one that it knows of.

Barriers carry them all, so one thread may fence, or read a flag, for its block. More than PTX says, as on the hardware:
fences of many threads, a barrier, and an atomic of one tell of all. In one block a strong load needs nothing behind it
(compilers leave nothing there for the block's scope).

Of each piece the last write is kept and SLOTS of the reads and atomics that nothing has ordered since, of each warp the
last. Two accesses race, one of them a write, that nothing orders, but not two strong ones whose scopes both hold the
other (morally strong). As in shared memory plain accesses of one warp by different instructions are not looked at, nor
plain writes of one value, nor the load of a compare-and-swap loop. What a bulk or tensor copy writes is known when its
group has been waited for, with CCTL.IVALL behind (cp.async.bulk.wait_group; the .read one has none); asynchronous reads
count when they begin.

A launch is ordered behind the one before; one that may begin early (programmatic dependent launch) only behind ACQBULK,
of the warp or of one that it knows of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from turingas.emulate.arrays import Array
from turingas.emulate.code import Code
from turingas.emulate.cohort import Cohort, State
from turingas.emulate.late import Flight, Touch
from turingas.emulate.memory import Allocation
from turingas.emulate.order import NEVER
from turingas.emulate.races import NEAR, THREADS, WORD, Race, Races, pieces_of, unit_of
from turingas.isa.instruction import Instruction
from turingas.launch import Three
from turingas.tensor_map import NBYTES

KNOWN, _, SEEN, WIDE, NARROW, ASYNC = range(6)  # layers of the vectors
SLOTS = 4  # reads and atomics of one place that are kept

WRITES, STRONG, FAR, ENGINE = 1, 2, 4, 8  # flags of an access; FAR: its scope is not the block alone

TELLS = "(MEMBAR.SC.GPU: __threadfence) between the first and a strong store or atomic, and before the second a strong"
TELLS += " load or atomic that reads it (.STRONG.GPU: volatile, cuda::atomic_ref, atomics)"
UNTOLD = f"a fence of the GPU's scope {TELLS}"
CLOSE = f"a fence of the GPU's scope, not of the block's {TELLS}"
BESIDE = f"{THREADS}, or MEMBAR (__threadfence_block), a strong store and a strong load that reads it"
CACHED = "CCTL.IVALL (__threadfence) before the second, behind the strong load or atomic that told of the first"
WEAK = "strong accesses on both sides, of a scope that holds both (.STRONG.GPU: volatile, cuda::atomic_ref, atomics)"
LANDED = "a wait for its group (DEPBAR, CCTL.IVALL: cp.async.bulk.wait_group without .read), and what tells the other"
OPEN_PATH = "an ordinary load (no __ldg, no const __restrict__): that path may give what was there before the kernel"
BEFORE = "ACQBULK (griddepcontrol.wait, cudaGridDependencySynchronize) before the second: the launch before may not"
BEFORE += " have ended"
RENEWED = "UTMACCTL.IV (fence.proxy.tensormap::generic.acquire) behind the write, of the warp that copies or before"
RENEWED += " what tells it"
FENCED = "FENCE.VIEW.ASYNC.G (fence.proxy.async) behind the write, before what tells the other of it"


class _Records:
    """Of each piece one access: who (a warp of the grid, -1: nobody), when, by which instruction, and flags."""

    def __init__(self, pieces: int) -> None:
        self.warp = np.full(pieces, -1, np.int32)
        self.clock, self.number = np.zeros(pieces, np.int32), np.zeros(pieces, np.int32)
        self.flags = np.zeros(pieces, np.uint8)

    def put(self, piece: Array, warp: Array, clock: Array, number: Array | int, flags: Array | int) -> None:
        self.warp[piece], self.clock[piece] = warp, clock
        self.number[piece], self.flags[piece] = number, flags

    def copy(self, piece: Array) -> tuple[Array, Array, Array, Array]:
        return self.warp[piece], self.clock[piece], self.number[piece], self.flags[piece]


class _Past:
    """What was done to one allocation, piece by piece."""

    def __init__(self, allocation: Allocation, unit: int) -> None:
        self.allocation = allocation
        self.pieces = -(-allocation.size // unit)
        self.last = _Records(self.pieces)  # writes
        self.value = np.zeros(self.pieces, np.uint32)
        self.slots: list[_Records] = []  # none before the first read

    def others(self) -> list[_Records]:
        if not self.slots:
            self.slots = [_Records(self.pieces) for _ in range(SLOTS)]
        return self.slots


class _Told:
    """What the last strong store to a word, and the atomics since, tell who reads it: ``_vectors``."""

    __slots__ = ("narrow", "wide")

    def __init__(self) -> None:
        self.wide: Array | None = None
        self.narrow: dict[int, Array] = {}  # of the block


class Ledger:
    """What the waves of one launch leave to the next ones. ``place`` gives where a block lies in the grid."""

    def __init__(self, image: Code, block: Three, warps: int, place: Callable[[int], Three]) -> None:
        self.image, self.block, self.warps, self.place = image, block, warps, place
        spaces, code = ("shared", "global", "generic"), [i for i in image.instructions if i is not None]
        self.unit = min([4, *(unit_of(i, spaces) for i in code)])  # bytes that are looked at as one
        self.before: Ledger | None = None  # of the launch that may not have ended when this one begins
        self.past: dict[int, _Past] = {}  # by address of the allocation
        self.same: dict[int, _Past | None] = {}  # of the launch before, by address here
        self.told: dict[int, _Told] = {}  # by address // 4
        #: of each tensor map (None: all), who has renewed it when, and what the warp knew then
        self.renewed: dict[int | None, list[tuple[int, int, Array]]] = {}
        self.known: set[tuple[str, int, int, bool]] = set()
        self.fenced = np.zeros((2, warps), np.int32)  # of each warp: the time behind which a wide, a narrow fence stood

    def earlier(self, allocation: Allocation) -> _Past | None:
        """What the launch before did to the same array: it had another address there."""
        if allocation.base not in self.same:
            found = [] if self.before is None else self.before.past.values()
            start = allocation.array.ctypes.data
            alike = (past for past in found if past.allocation.array.ctypes.data == start and allocation.size)
            self.same[allocation.base] = next(alike, None)
        return self.same[allocation.base]

    def who(self, warp: int) -> tuple[Three, Three]:
        """Block and lowest thread of a warp of the grid."""
        x, y, z = self.block
        number, slot = divmod(warp, -(-x * y * z // 32))
        lane = 32 * slot
        return self.place(number), (lane % x, lane // x % y, lane // (x * y))


class GlobalRaces(Races):
    """The detector of one wave whose first block has the number ``first``."""

    layers = 6

    def __init__(self, wave: State, ledger: Ledger, first: int) -> None:
        super().__init__(wave)
        code = [i for i in wave.image.instructions if i is not None]
        self.ledger, self.first, self.total = ledger, first * self.slots, ledger.warps
        self.teams = self.first + self.team * self.members  # of each warp: the first number of its team
        self.grid: int | None = None  # column of what is known of other teams, once something is
        self.orders = {i.address // WORD: _order(i) for i in code if i.op.traits & {"load", "store", "atomic"}}
        self.cas = [i.address // WORD for i in code if "atomic" in i.op.traits and {"CAS", "CAST"} & set(i.mods)]
        #: the column of who has waited for the launch before
        self.begun = self._column("launch", 0, 1) if ledger.before is not None else 0
        self.waiting: list[tuple[int, int, _Past, Array, int]] = []  # operation, warp, what it writes, instruction

    # -- what is known

    def knows(self, layer: int, warp: Array, whose: Array, clock: Array) -> Array:
        """Whether warps of the wave know of what warps of the grid did at their ``clock``."""
        column = whose - self.teams[warp]
        mine = (column >= 0) & (column < self.members)
        known = np.where(mine, self.clocks[layer, warp, np.where(mine, column, 0)], 0)
        if self.grid is not None:
            known = np.maximum(known, self.clocks[layer, warp, self.grid + np.maximum(whose, 0)])
        return np.asarray(known >= clock)

    def _vectors(self, layer: int, warp: int) -> Array | None:
        """What a warp knows, over the grid, and what of it the async proxy sees, (2, warps); None for nothing."""
        if not self.clocks[layer, warp].any():
            return None
        vectors = np.zeros((2, self.total), np.int32)
        for vector, row in zip(vectors, (self.clocks[layer, warp], self.clocks[ASYNC, warp])):
            if self.grid is not None:
                vector[:] = row[self.grid : self.grid + self.total]
            team = int(self.teams[warp])
            mine = vector[team : team + self.members]
            np.maximum(mine, row[: len(mine)], out=mine)
        np.minimum(vectors[0], vectors[1], out=vectors[1])
        return vectors

    def _learn(self, layer: int, warp: int, vectors: Array) -> None:
        team = int(self.teams[warp])
        mine = vectors[:, team : team + self.members]
        if self.grid is None and np.count_nonzero(vectors) > np.count_nonzero(mine):
            self.grid = self._column("grid", 0, self.total)
        for n, row in enumerate((self.clocks[layer, warp], self.clocks[ASYNC, warp])):
            own = row[: mine.shape[1]]
            np.maximum(own, mine[n], out=own)
            if self.grid is not None:
                there = row[self.grid : self.grid + self.total]
                np.maximum(there, vectors[n], out=there)

    def membar(self, warps: Array, wide: bool) -> None:
        now = np.maximum(self.clocks[KNOWN, warps], self.clocks[SEEN, warps])
        for layer, row in ((WIDE, 0), (NARROW, 1))[0 if wide else 1 :]:
            self.clocks[layer, warps] = np.maximum(self.clocks[layer, warps], now)
            for warp, known in zip(warps.tolist(), now):
                team = int(self.teams[warp])
                mine = self.ledger.fenced[row, team : team + self.members]
                np.maximum(mine, known[: len(mine)], out=mine)
        super().membar(warps, wide)

    def invalidate(self, warps: Array) -> None:
        self.clocks[KNOWN, warps] = np.maximum(self.clocks[KNOWN, warps], self.clocks[SEEN, warps])
        self._landed(set(warps.tolist()))

    def fence(self, warps: Array, memory: str = "shared") -> None:
        """The fence for all memories is a MEMBAR.ALL.GPU and the one for shared memory."""
        super().fence(warps, memory)
        behind = self.clocks[KNOWN if memory == "global" else WIDE, warps]
        self.clocks[ASYNC, warps] = np.maximum(self.clocks[ASYNC, warps], behind)
        self._tick(warps)

    def tensor_map(self, k: Cohort, i: Instruction, row: int, lane: int, address: int | None) -> None:
        warp = int(k.warps[row])
        mine = np.array([warp])
        if i.base == "UTMACCTL":
            vectors = self._vectors(KNOWN, warp)
            clock = int(self.clocks[KNOWN, warp, self.own[warp]])
            assert vectors is not None
            self.ledger.renewed.setdefault(address, []).append((self.first + warp, clock, vectors[0]))
            self._tick(mine)
            return
        assert address is not None
        begin = np.array([address], np.uint64)
        for past, hit in self._hits(i, mine, np.array([lane]), begin, NBYTES, 0):
            self._check(past, hit)
            self._was_read(past, hit)
            wrote, clock_ = past.last.warp[hit.piece], past.last.clock[hit.piece]
            stale = (wrote >= 0) & ((wrote == hit.whose) | self.knows(KNOWN, hit.warp, wrote, clock_))
            for who, when, vector in (*self.ledger.renewed.get(address, ()), *self.ledger.renewed.get(None, ())):
                if who == self.first + warp or self.knows(KNOWN, mine, np.array([who]), np.array([when])).all():
                    stale &= vector[np.maximum(wrote, 0)] < clock_
            self._report("MAP", past, hit, np.flatnonzero(stale), past.last)

    def dependency(self, warps: Array) -> None:
        if self.ledger.before is not None:
            self.clocks[KNOWN, warps, self.begun] = 1

    # -- asynchronous operations

    def began(self, flight: Flight, i: Instruction, touches: Sequence[Touch], proxy: bool) -> None:
        super().began(flight, i, touches, proxy)
        for touch in touches:
            if touch.space != "global":
                continue
            rows, columns = np.nonzero(np.ones(touch.at.shape, bool) if touch.mask is None else touch.mask)
            begin, writes = touch.at[rows, columns], touch.what != "read"
            flags = ENGINE | WRITES * writes | (STRONG | FAR) * (touch.what == "atomic")
            warps = flight.warps[rows]
            for past, hit in self._hits(i, warps, np.zeros(len(rows), np.intp), begin, touch.nbytes, flags):
                self._check(past, hit)
                if writes:
                    hit.clock = np.full_like(hit.clock, NEVER)
                    self._wrote(past, hit, None)
                    mine = zip(flight.numbers.tolist(), flight.warps.tolist())
                    self.waiting += [(op, w, past, hit.piece[hit.warp == w], hit.number) for op, w in mine]
                else:
                    self._was_read(past, hit)

    def _landed(self, warps: set[int]) -> None:
        """What operations of ``warps`` have written that they know to be over is written now."""
        left = []
        for one in self.waiting:
            op, warp, past, piece, number = one
            column, value = int(self.operations.column[op]), int(self.operations.value[op])
            if warp not in warps or self.clocks[KNOWN, warp, column] < value:
                left.append(one)
                continue
            for records in (past.last, *past.slots):
                mine = (records.warp[piece] == self.first + warp) & (records.number[piece] == number)
                mine &= records.clock[piece] == NEVER
                records.clock[piece[mine]] = self.clocks[KNOWN, warp, self.own[warp]]
        self.waiting = left

    # -- accesses

    def access(
        self, k: Cohort, i: Instruction, space: str, addresses: Array, lanes: Array | None, nbytes: int, what: str,
        words: list[Array] | None = None, owners: Array | None = None,
    ) -> None:  # fmt: skip
        if space != "global":
            super().access(k, i, space, addresses, lanes, nbytes, what, words, owners)
            return
        flat = np.arange(addresses.size) if lanes is None else np.flatnonzero(lanes)
        order = self.orders.get(i.address // WORD, 0)
        begin, warp = addresses.reshape(-1)[flat], k.warps[flat // 32]
        atomic = what == "atomic"
        writes = np.full(len(flat), what != "read")
        if atomic and words is not None:
            writes = words[0].reshape(-1)[flat]
        for flag, group in ((0, np.flatnonzero(~writes)), (WRITES, np.flatnonzero(writes))):
            if not len(group):
                continue
            for past, hit in self._hits(i, warp[group], flat[group] % 32, begin[group], nbytes, order | flag):
                if not flag:
                    self._read_global(past, hit, i)
                    continue
                values = None
                if not atomic and words is not None:
                    values = pieces_of(words, flat[group[hit.row]], addresses.shape, nbytes, self.ledger.unit)
                self._check(past, hit, values)
                self._wrote(past, hit, values)
        if order & STRONG:
            self._meet(warp, begin, nbytes, what != "write", writes, atomic, bool(order & FAR))
        elif self.ledger.told and what == "write":
            for address in np.unique(begin // np.uint64(4)).tolist():
                for word in range(max(1, nbytes // 4)):
                    self.ledger.told.pop(address + word, None)

    def _hits(
        self, i: Instruction, warp: Array, lane: Array, begin: Array, nbytes: int, flags: int
    ) -> Iterator[tuple[_Past, _Hit]]:
        """The pieces of each allocation that are touched. Those that kernels cannot write are left out."""
        memory, unit = self.wave.memory, self.ledger.unit
        which = memory.numbers(begin)
        for n in np.unique(which).tolist():
            allocation = memory.allocation(n)
            if not allocation.writeable:
                continue
            past = self.ledger.past.get(allocation.base)
            if past is None:
                past = self.ledger.past[allocation.base] = _Past(allocation, unit)
            row = np.flatnonzero(which == n)
            count = max(1, nbytes // unit)
            at = (begin[row] - np.uint64(allocation.base)).astype(np.int64) // unit
            piece = (at[:, None] + np.arange(count)).reshape(-1)
            yield past, _Hit(self, i, np.repeat(warp[row], count), np.repeat(lane[row], count), piece, flags, row)

    def _read_global(self, past: _Past, hit: _Hit, i: Instruction) -> None:
        self._check(past, hit)
        if "CONSTANT" in i.mods or i.op.space == "constant":
            stale = np.flatnonzero(past.last.warp[hit.piece] >= 0)
            if len(stale):
                self._report("CONSTANT", past, hit, stale, past.last)
        self._was_read(past, hit)

    def _check(self, past: _Past, hit: _Hit, values: Array | None = None) -> None:
        """Report what an access races with."""
        writes, engine = bool(hit.flags & WRITES), bool(hit.flags & ENGINE)
        self._check_before(past, hit)
        race = self._unordered(hit, past.last)
        if values is not None:
            plain = past.last.flags[hit.piece] & (STRONG | ENGINE) == 0
            race &= (past.value[hit.piece] != values) | ~plain
        self._report("WAW" if writes else "RAW", past, hit, np.flatnonzero(race), past.last)
        for slot in past.slots:
            race = self._unordered(hit, slot)
            wrote = slot.flags[hit.piece] & WRITES != 0
            self._report("WAW" if writes else "RAW", past, hit, np.flatnonzero(race & wrote), slot)
            if writes:
                self._report("WAR", past, hit, np.flatnonzero(race & ~wrote), slot)
        if engine:
            warp, clock, _, flags = past.last.copy(hit.piece)
            ordered = (warp == hit.whose) | self.knows(KNOWN, hit.warp, warp, clock)
            unseen = (warp >= 0) & (flags & ENGINE == 0) & ordered & ~self.knows(ASYNC, hit.warp, warp, clock)
            self._report("PROXY", past, hit, np.flatnonzero(unseen), past.last)

    def _check_before(self, past: _Past, hit: _Hit) -> None:
        """Report what an access of a warp that has not waited for the launch before races with there."""
        before = self.ledger.before
        if before is None or (earlier := self.ledger.earlier(past.allocation)) is None:
            return
        soon = self.clocks[KNOWN, hit.warp, self.begun] == 0
        there = hit.piece * self.ledger.unit // before.unit
        soon &= there < earlier.pieces
        there = np.minimum(there, earlier.pieces - 1)
        writes = bool(hit.flags & WRITES)
        for records in (earlier.last, *earlier.slots):
            wrote = records.flags[there] & WRITES != 0
            race = soon & (records.warp[there] >= 0) & (wrote | writes)
            for kind, at in (("WAW" if writes else "RAW", race & wrote), ("WAR", race & ~wrote)):
                self._report(kind, past, hit, np.flatnonzero(at), records, before, there)

    def _unordered(self, hit: _Hit, records: _Records) -> Array:
        """Where an access does not know of an older one, and the two are not morally strong."""
        warp, clock, number, flags = records.copy(hit.piece)
        found = (warp >= 0) & ((warp != hit.whose) | (clock == NEVER))
        if hit.number in self.cas:  # the load soon before it is that of its loop
            found &= (flags & WRITES != 0) | (number >= hit.number) | (number < hit.number - NEAR)
        elif not hit.flags & WRITES:
            swaps = np.arange(hit.number + 1, hit.number + NEAR + 1)
            found &= ~np.isin(number, swaps[np.isin(swaps, self.cas)])
        if not found.any():
            return np.asarray(found)
        both = flags & np.uint8(hit.flags)
        near = (warp // self.slots) == (hit.whose // self.slots)
        found &= ~((both & STRONG != 0) & (near | (both & FAR != 0)))
        found &= ~self.knows(KNOWN, hit.warp, warp, clock)
        return np.asarray(found)

    def _was_read(self, past: _Past, hit: _Hit) -> None:
        self._keep(past, hit.warp, hit.piece, hit.whose, hit.clock, np.full(len(hit.piece), hit.number), hit.flags)

    def _wrote(self, past: _Past, hit: _Hit, values: Array | None) -> None:
        """The write is the last one. A strong one leaves those accesses that it does not know of."""
        if hit.flags & STRONG:
            warp, clock, number, flags = past.last.copy(hit.piece)
            other = (warp >= 0) & (warp != hit.whose) & (flags & STRONG != 0)
            other &= ~self.knows(KNOWN, hit.warp, warp, clock)
            for slot in past.slots:
                known = self.knows(KNOWN, hit.warp, slot.warp[hit.piece], slot.clock[hit.piece])
                slot.warp[hit.piece[known]] = -1
            self._keep(past, hit.warp[other], hit.piece[other], warp[other], clock[other], number[other], flags[other])
            order = np.lexsort((hit.whose, hit.piece))  # others of this instruction: but for the last of each piece
            piece, whose = hit.piece[order], hit.whose[order]
            beside = np.flatnonzero((piece[1:] == piece[:-1]) & (whose[1:] != whose[:-1]))
            if len(beside):
                at = order[beside]
                numbers = np.full(len(at), hit.number)
                self._keep(past, hit.warp[at], hit.piece[at], hit.whose[at], hit.clock[at], numbers, hit.flags)
        else:
            for slot in past.slots:
                slot.warp[hit.piece] = -1
        past.last.put(hit.piece, hit.whose, hit.clock, hit.number, hit.flags)
        if values is not None:
            past.value[hit.piece] = values
        race = np.zeros(len(hit.piece), bool)  # with other lanes of this instruction
        if not hit.flags & STRONG and values is not None:
            race = past.value[hit.piece] != values
        elif not hit.flags & FAR:
            race = past.last.warp[hit.piece] // self.slots != hit.whose // self.slots
        self._report("WAW", past, hit, np.flatnonzero(race), past.last)

    def _keep(
        self, past: _Past, warp: Array, piece: Array, whose: Array, clock: Array, number: Array, flags: Array | int
    ) -> None:
        """Put accesses of warps of the grid (``whose``), of which ``warp`` of the wave tells, into slots."""
        if not len(piece):
            return
        slots, flags = past.others(), np.broadcast_to(np.asarray(flags, np.uint8), piece.shape)
        order = np.lexsort((whose, piece))
        new = np.ones(len(order), bool)
        new[1:] = (np.diff(piece[order]) != 0) | (np.diff(whose[order]) != 0)
        order = order[new]
        for _ in range(SLOTS):  # one of each piece at a time
            if not len(order):
                return
            head = np.ones(len(order), bool)
            head[1:] = np.diff(piece[order]) != 0
            at, order = order[head], order[~head]
            here, writes = piece[at], flags[at] & WRITES != 0
            scores = np.empty((SLOTS, len(at)), np.int8)
            for n, slot in enumerate(slots):
                old, when, _, of = slot.copy(here)
                like = (of & WRITES != 0) == writes
                known = (like | writes) & self.knows(KNOWN, warp[at], old, when)
                scores[n] = np.where(old < 0, 2, np.where((old == whose[at]) & like, 4, np.where(known, 3, 0)))
                scores[n] += (scores[n] == 0) & ((here + whose[at]) % SLOTS == n)
            best = scores.argmax(axis=0)
            for n, slot in enumerate(slots):
                mine = best == n
                slot.put(here[mine], whose[at][mine], clock[at][mine], number[at][mine], flags[at][mine])

    # -- releases and acquires

    def _meet(
        self, warp: Array, begin: Array, nbytes: int, reads: bool, writes: Array, atomic: bool, far: bool
    ) -> None:
        """Strong accesses: they learn of what is told at their words, and tell of what they know, in their order."""
        told, vectors = self.ledger.told, dict[tuple[int, int], Array | None]()
        names = np.unique(warp).tolist()
        fenced = self.clocks[[WIDE, NARROW]][:, names].any()
        if not told and not fenced:
            return
        first = begin // np.uint64(4)
        done: dict[tuple[int, int], bool] = {}  # the accesses of a warp to a word, which tell alike; whether one writes
        for w, word, writing in zip(warp.tolist(), first.tolist(), writes.tolist()):
            done[w, word] = done.get((w, word), False) or writing
        for (w, start), writing in done.items():
            block = self.wave.block_of[w] + self.first // self.slots
            for word in range(start, start + max(1, nbytes // 4)):
                old = told.get(word)
                if old is not None and reads:
                    if far and old.wide is not None:
                        self._learn(SEEN, w, old.wide)
                    if block in old.narrow:
                        self._learn(KNOWN, w, old.narrow[block])
                if not writing:
                    continue
                new = _Told()
                if atomic and old is not None:
                    new.wide, new.narrow = old.wide, dict(old.narrow)
                for layer in (WIDE, NARROW) if far else (NARROW,):
                    if (w, layer) not in vectors:
                        vectors[w, layer] = self._vectors(layer, w)
                    mine = vectors[w, layer]
                    if mine is None:
                        continue
                    if layer == WIDE:
                        new.wide = mine if new.wide is None else np.maximum(new.wide, mine)
                    else:
                        its = new.narrow.get(block)
                        new.narrow[block] = mine if its is None else np.maximum(its, mine)
                if new.wide is None and not new.narrow:
                    told.pop(word, None)
                else:
                    told[word] = new

    # -- findings

    def _report(
        self, kind: str, past: _Past, hit: _Hit, at: Array, records: _Records, other: Ledger | None = None,
        there: Array | None = None,
    ) -> None:  # fmt: skip
        """Report races with ``records``, which are those of another launch if ``other`` is given, ``there``."""
        if not len(at):
            return
        there, ledger = hit.piece if there is None else there, other or self.ledger
        numbers = records.number[there[at]]
        firsts, where, counts = np.unique(numbers, return_index=True, return_counts=True)
        for first, one, count in zip(firsts.tolist(), at[where].tolist(), counts.tolist()):
            if (name := (kind, first, hit.number, other is None)) in self.ledger.known:
                continue
            self.ledger.known.add(name)
            warp, clock, flags = (int(v[there[one]]) for v in (records.warp, records.clock, records.flags))
            block, thread = self.wave.who(int(hit.warp[one]), int(hit.lane[one]))
            home, its = ledger.who(warp)
            address, nbytes = past.allocation.base + int(hit.piece[one]) * self.ledger.unit, count * self.ledger.unit
            remedy = BEFORE if other is not None else self._missing(kind, hit, one, warp, clock, flags)
            memory = f"global memory, {past.allocation}"
            places = ledger.image.place(first), self.wave.image.place(hit.number)
            self.findings.append(Race(kind, *places, block, (its, thread), address, nbytes, remedy, memory, home))

    def _missing(self, kind: str, hit: _Hit, one: int, warp: int, clock: int, flags: int) -> str:
        """What would have ordered two accesses: the first piece that is not there."""
        if kind in ("PROXY", "CONSTANT", "MAP"):
            return {"PROXY": FENCED, "CONSTANT": OPEN_PATH, "MAP": RENEWED}[kind]
        if clock == NEVER:
            return LANDED
        if (flags | hit.flags) & STRONG:  # the other is weak, or a scope is too small
            return WEAK
        if warp // self.slots == int(hit.whose[one]) // self.slots:
            return BESIDE
        reader, whose, when = hit.warp[one : one + 1], np.array([warp]), np.array([clock])
        if self.knows(SEEN, reader, whose, when).all():
            return CACHED
        wide, narrow = (self.ledger.fenced[:, warp] >= clock).tolist()
        return CLOSE if narrow and not wide else UNTOLD


class _Hit:
    """Pieces of one allocation that an instruction touches: parallel arrays; ``row``: which lanes they come from."""

    def __init__(
        self, races: GlobalRaces, i: Instruction, warp: Array, lane: Array, piece: Array, flags: int, row: Array
    ) -> None:
        self.number, self.warp, self.lane, self.piece, self.flags, self.row = (
            i.address // WORD, warp, lane, piece, flags, row,
        )  # fmt: skip
        self.whose = races.first + warp
        self.clock = races.clocks[KNOWN, warp, races.own[warp]]


def _order(i: Instruction) -> int:
    """Whether a load, store or atomic is strong, and whether its scope reaches other blocks (before sm_80 all loads and
    stores name one)."""
    if not {"STRONG", "MMIO"} & set(i.mods) and "atomic" not in i.op.traits:
        return 0
    return STRONG | (0 if {"CTA", "SM"} & set(i.mods) else FAR)
