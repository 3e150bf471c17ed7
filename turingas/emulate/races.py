"""Races in shared and tensor memory: accesses to one place, at least one a write, that nothing orders.

What happens before what is kept in vector clocks, ``order`` (the way of FastTrack: Flanagan and Freund, PLDI 2009).
For each piece of shared memory the last write is kept, and the last read of every warp of its block (or cluster),
ordinary and asynchronous; an access that does not know of one is a race. An asynchronous operation (``late``) writes
and reads at any time between its begin and what proves its end: its begin must know of those before it, and those
after it of its end, its own warp's too.

What is reported, each pair of instructions once:

* RAW, WAR and WAW between warps of a block; a plain write of the value that is there is none.
* WAW within one instruction: lanes of one or several warps that write different values to one place.
* The same with an asynchronous operation, of any warp. PROXY: a fence is missing (what LDGSTS copied needs none:
  Triton's kernels for sm_90 multiply it without). END: a block ends while others, or an operation of the async proxy,
  may still use its memory, or have yet to arrive at its mbarriers.
* PHASE: a warp arrives at a barrier of the block (BAR) that not all pass, and does not know that the phase before is
  over, so that it may count for that one. The same at an mbarrier, and what else may confuse phases there (``phases``).
* In a cluster, a barrier or an mbarrier tells other blocks of what threads have written only if a MEMBAR of a wider
  scope than the block stands before it, as in ``barrier.cluster.arrive.release`` and ``mbarrier.arrive`` with
  ``.release.cluster``, not in those with ``.relaxed`` or the scope of the block. (Reads and mbarriers need none.)
* In tensor memory products, copies and shifts that one warp has begun follow each other in order. Its loads and stores
  are asynchronous, too (``semantics.tmem``): a scoreboard tells of the end of a load, a fence of that of a store.
* Atomics, asynchronous ones too, do not race with atomics, nor with the load that belongs to a compare-and-swap loop
  (float atomics are compiled to such loops), nor with strong loads and stores (generic ones with .STRONG, of
  cuda::atomic); they do with other loads and stores.

A fence (MEMBAR) and an atomic or strong store behind it release what the warp knows to an atomic or strong load that
reads that: locks and flags of such order what they protect, in the block, or in the cluster if the fence is for more.

What is not: plain accesses of one warp by different instructions, for what orders them cannot be seen (compilers leave
out __syncwarp where a warp has not diverged); a fence, a wait and an arrival count for the whole warp. A flag that is
read by LDS, as volatile ones are, is a load like others: what it orders is not seen, so that memory it protects is
reported.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from turingas.emulate.arrays import Array
from turingas.emulate.cohort import Cohort, State
from turingas.emulate.errors import Place
from turingas.emulate.late import Flight, Touch
from turingas.emulate.order import NEVER, wider
from turingas.emulate.phases import By, Phases
from turingas.emulate.report import Report
from turingas.emulate.splits import BARRIERS
from turingas.emulate.tensor_memory import COLUMNS, LANES
from turingas.isa.instruction import Instruction, Mem, Reg

WORD = 16  # bytes of an instruction
NEAR = 24  # instructions: how far a compare-and-swap may be behind the load of its loop
KINDS = {
    "RAW": "read after write", "WAR": "write after read", "WAW": "write after write",
    "PROXY": "use through the async proxy after a generic write", "END": "end of a block whose memory is in use",
    "MAP": "use of a tensor map that the kernel has written, and not renewed",
    "PHASE": "arrival that may count for the phase before",
    "EXPECT": "bytes announced when the phase may be over",
    "PARITY": "wait that may take an earlier phase for its own",
    "MISSED": "arrival that may end the next phase before a wait has seen the end of the last one",
    "GONE": "use of an mbarrier that was given up",
    "CONSTANT": "read through the read-only path of what the kernel writes",
}  # fmt: skip
THREADS = "a barrier that both pass, or an mbarrier at which one arrives and the other waits"
#: what would have ordered an asynchronous operation and what comes behind it
OPEN = "closing its group (LDGDEPBAR, UTMACMDFLUSH) and waiting (DEPBAR), or waiting for the mbarrier that it tells"
CLOSED = "a wait for its group (DEPBAR.LE with few enough left) by its warp, and a barrier for the others"
HEARD = "a wait for the phase of the mbarrier that it tells (SYNCS.PHASECHK)"
MET = "a barrier of the cluster (UCGABAR_ARV, UCGABAR_WAIT) before its end"
QUEUED = "a commit (UTCBAR), and a wait for the phase of its mbarrier"
MOVED = (
    "FENCE.VIEW.ASYNC.T behind a store (tcgen05.wait::st), a wait for the scoreboard of a load (tcgen05.wait::ld), "
    "and a barrier or an mbarrier between warps"
)
ALONE = "a barrier or an mbarrier that tells this warp that the phase before is over"
SPREAD = (
    "a MEMBAR of a wider scope than the block (.release.cluster, fence.acq_rel.cluster) behind the write, before what "
    "tells the other block of it"
)
FENCE = "FENCE.VIEW.ASYNC (fence.proxy.async) behind the write, before what tells the other of it"


@dataclass(frozen=True)
class Race:
    """Two instructions that nothing orders: ``first`` ran before ``second`` here. Two with the same kind and places
    are equal; ``block``, the two threads, (x, y, z) each, the address and the number of bytes are those of the first
    time (of ``first`` only the warp is known: its lowest thread, in block ``home``). ``remedy``: what would have
    ordered them; ``memory``: where it lies."""

    kind: str
    first: Place
    second: Place
    block: tuple[int, int, int] = field(compare=False)
    threads: tuple[tuple[int, int, int], tuple[int, int, int]] = field(compare=False)
    address: int = field(compare=False)
    nbytes: int = field(compare=False)
    remedy: str = field(compare=False)
    memory: str = field(compare=False)
    home: tuple[int, int, int] = field(compare=False)

    def __str__(self) -> str:
        one, other = self.threads
        home = f" of block {self.home}" if self.home != self.block else ""
        where = f"0x{self.address:x} of {self.memory}, {self.nbytes} bytes" if self.nbytes else self.memory
        return (
            f"{self.second}: race: {KINDS[self.kind]} at {where}\n"
            f"  block {self.block}, thread {other}\n"
            f"  the other instruction: {self.first}, in the warp of thread {one}{home}\n"
            f"  what would order them: {self.remedy}"
        )


class Races(Phases):
    """The detector of one wave. ``findings`` grows; nothing is raised."""

    def __init__(self, wave: State) -> None:
        self.far = 0  # in clusters, one layer more: what a warp knew when a MEMBAR of a wide scope stood between
        if wave.shared.cluster > 1:
            self.far, self.layers = self.layers, self.layers + 1
        super().__init__(wave)
        self.passed: dict[int, tuple[int, int, int]] = {}  # of barriers that not all pass: how many are over, the
        # instruction and the warp that ended the last one
        self.findings: list[Race] = []
        self._known: dict[tuple[str, int, int], int] = {}  # and the first piece of each
        instructions = wave.image.instructions
        spaces = ("shared", "generic")
        self.unit = min([4, *(unit_of(i, spaces) for i in instructions if i is not None)])  # bytes looked at as one
        self.swaps = _swap_loads(instructions)
        self.strong = {n for n, i in enumerate(instructions) if i is not None and "STRONG" in i.mods}
        self.stride = wave.shared.stride // self.unit  # pieces of a block
        self.pieces = wave.shared.blocks * self.stride
        self.words = wave.tensor.words.size if any(_tensor(i) for i in instructions) else 0  # of tensor memory
        self.write = _Last(self.pieces + self.words)  # those of shared memory first
        self.read = np.zeros((self.pieces, self.members), np.int32)  # the clock of the last read of each warp of a team
        self.reader = np.zeros((self.pieces, self.members), np.int32)  # and its instruction
        self.fetch: Array | None = None  # the same of asynchronous reads: their operations, -1: none
        self.sums: Array | None = None  # and of asynchronous atomics, which do not race with each other
        self.spun: tuple[Array, Array] | None = None  # the same two of strong loads
        self.behind: dict[int, tuple[Array, bool]] = {}  # of a warp: what its last fence releases, and whether widely
        self.told: dict[int, dict[int, Array]] = {}  # of a piece, by block (-1: any): what its last strong write tells
        self.atomic = np.zeros(self.pieces + self.words, bool)  # the last write was one, or strong
        self.value = np.zeros(self.pieces, np.uint32)  # what it wrote
        self.cells = np.zeros(self.pieces, bool)  # what lies in one
        self.suspects: dict[int, list[Race]] = {}  # of a piece: races of an atomic with a load, unless it is one

    def tell(self, report: Report) -> None:
        report.races += [race for race in self.findings if race not in report.races]

    def membar(self, warps: Array, wide: bool) -> None:
        if wide and self.far:
            self.clocks[self.far, warps] = np.maximum(self.clocks[self.far, warps], self.clocks[0, warps])
        for warp in warps.tolist():
            self.behind[warp] = self.clocks[:, warp].copy(), wide
        self._tick(warps)

    # -- barriers of the block that not all of its warps pass

    def barrier(self, warps: Array, groups: Array, numbers: Array) -> None:
        partial = [
            (key, warps[groups == key], numbers[groups == key])
            for key, count in zip(*(found.tolist() for found in np.unique(groups, return_counts=True)))
            if key in self.passed or count < self._awake(key // BARRIERS)
        ]
        for key, mine, of in partial:
            self._arrives(key, mine, of)
        super().barrier(warps, groups, numbers)
        for key, mine, of in partial:
            phase = self.passed[key][0] + 1
            self.passed[key] = phase, int(of[0]), int(mine[0])
            column = self._bar(key)
            self.clocks[0, mine, column] = phase

    def arrive(self, warps: Array, groups: Array, number: int) -> None:
        for key in np.unique(groups).tolist():
            mine = warps[groups == key]
            self._arrives(key, mine, np.full(len(mine), number))
        super().arrive(warps, groups, number)

    def _awake(self, block: int) -> int:
        """How many warps of a block have not ended."""
        return int(self.wave.alive[self.wave.block_of == block].any(axis=1).sum())

    def _bar(self, key: int) -> int:
        return self._column("bar", key % (BARRIERS * self.wave.shared.cluster), 1)

    def _arrives(self, key: int, warps: Array, numbers: Array) -> None:
        """Warps that come to a barrier must know that its phase before is over."""
        phase, first, by = self.passed.setdefault(key, (0, 0, 0))
        column = self._bar(key)  # which may be new
        late = self.clocks[0, warps, column] < phase
        for warp, number in dict(zip(warps[late].tolist(), numbers[late].tolist())).items():
            if ("PHASE", first, number) not in self._known:
                self._known["PHASE", first, number] = -1
                (home, one), (block, other) = self.wave.who(by, 0), self.wave.who(warp, 0)
                places = self.wave.image.place(first), self.wave.image.place(number)
                memory = f"barrier {key % BARRIERS}"
                self.findings.append(Race("PHASE", *places, block, (one, other), 0, 0, ALONE, memory, home))

    def _reads(self) -> list[tuple[Array, Array]]:
        """The tables of reads, strong ones last: clocks and instructions by piece and warp."""
        return [(self.read, self.reader), *([] if self.spun is None else [self.spun])]

    def _hears(self, warp: int, piece: int) -> None:
        """Who reads strongly what another has released knows what that one knew."""
        for block, vectors in self.told.get(piece, {}).items():
            if block in (-1, self.wave.block_of[warp]):
                mine = self.clocks[:, warp, : vectors.shape[1]]
                np.maximum(mine, vectors, out=mine)

    def _tells(self, warp: int, piece: int, strong: bool, atomic: bool) -> None:
        """What is written strongly tells of what the last fence of its warp lies behind; an atomic, of what was told
        before, too."""
        told = self.told.setdefault(piece, {})
        if not atomic:
            told.clear()
        if strong and warp in self.behind:
            vectors, wide = self.behind[warp]
            block = -1 if wide else int(self.wave.block_of[warp])
            before = told.get(block, vectors)
            size = max(before.shape[1], vectors.shape[1])
            told[block] = np.maximum(wider(before, size), wider(vectors, size))

    def uses(self, i: Instruction, warps: Array, cells: Array) -> None:
        """Warps use mbarriers: they must know that these were made, and who makes new ones, or puts something else in
        their place, that they are done with them."""
        hit = self._hit(i, warps, cells * 8, 8)
        self._mbarriers(hit.piece)
        hit.report("RAW", hit.unknown(self.write) & ~self.atomic[hit.piece], self.write)
        own = self.own[hit.warp]
        self.read[hit.piece, own], self.reader[hit.piece, own] = hit.clock, hit.number

    def confused(self, kind: str, first: By, second: By, cell: int, remedy: str) -> None:
        piece, count = cell * 8 // self.unit, 8 // self.unit
        self.add(kind, first.number, second.number, (first.warp, second.warp), 0, piece, count, remedy)

    def _mbarriers(self, pieces: Array) -> None:
        """An mbarrier lies here. Before sm_90 nothing tells before the first arrival: until then, what looks at it
        (LDS) and what counts for it (ATOMS) seemed to race."""
        self.cells[pieces] = True
        if self.suspects:
            for piece in set(pieces.tolist()) & self.suspects.keys():
                for race in self.suspects.pop(piece):
                    self.findings.remove(race)
                    del self._known[key_of(race)]

    # -- asynchronous operations

    def began(self, flight: Flight, i: Instruction, touches: Sequence[Touch], proxy: bool) -> None:
        number = i.address // WORD
        queued = proxy and any(touch.space == "tensor" for touch in touches)
        flight.numbers = self.operations.add(flight.warps, number, proxy, queued)
        if not touches:
            self._remember(flight)
        for touch in touches:
            if touch.space == "global":
                continue
            rows, columns = np.nonzero(np.ones(touch.at.shape, bool) if touch.mask is None else touch.mask)
            begin, warps = touch.at[rows, columns].astype(np.int64), flight.warps[rows]
            if touch.space == "tensor":
                hit = _Hit(self, i, warps, columns % 32, self.pieces + begin, queued)
            else:
                hit = self._hit(i, warps, begin * touch.nbytes, touch.nbytes, columns % 32)
            ops = np.repeat(flight.numbers[rows], len(hit.piece) // max(1, len(rows)))
            race = hit.unknown(self.write)
            if touch.what == "atomic":
                race &= ~self.atomic[hit.piece]
            hit.report("WAW" if touch.what in ("write", "atomic") else "RAW", race, self.write)
            if touch.space == "shared":
                hit.report("PROXY", hit.unknown(self.write, proxy) & ~race, self.write)
            if touch.what == "mbarrier":
                self.cells[hit.piece] = True
            elif touch.what == "write":
                hit.readers()
                hit.under_way("WAW", self.sums)
                self.write.set(hit, number, ops, True)
                self.atomic[hit.piece] = False
            elif touch.what == "atomic":
                hit.readers()
                self.sums = self._noted(self.sums, hit, ops)
            else:
                hit.under_way("RAW", self.sums)
                self.fetch = self._noted(self.fetch, hit, ops)

    def _noted(self, table: Array | None, hit: _Hit, ops: Array) -> Array:
        """A table of operations by piece and warp, with these in it."""
        if table is None:
            table = np.full((self.pieces + self.words, self.members), -1, np.int64)
        table[hit.piece, self.own[hit.warp]] = ops
        return table

    def ended(self) -> None:
        """The wave has ended: a block whose shared memory others, or operations of the async proxy, may still be using
        must not end. (LDGSTS are not among them: the hardware lets a block that ends wait for its own loads.)"""
        if self.operations.count or self.wave.shared.cluster > 1:
            self._in_use()
        super().ended()

    def _in_use(self) -> None:
        operations = self.operations
        nothing = np.full(self.stride, -1)
        for block in range(self.wave.shared.blocks):
            warps = np.flatnonzero(self.wave.block_of == block)
            known = self.clocks[0, warps].max(axis=0)  # by the last of its warps that ends
            pieces = slice(block * self.stride, (block + 1) * self.stride)
            last, warp = self.write.operation[pieces], self.write.warp[pieces]
            clock, number = self.write.clock[pieces], self.write.number[pieces]
            foreign = (warp >= 0) & (self.wave.block_of[warp] != block) & (last < 0)
            foreign &= known[self.own[warp]] < clock
            self._ends(block, warps, foreign, number, warp, last)
            others = [column for table in (self.fetch, self.sums) if table is not None for column in table[pieces].T]
            for ops in (last, *others):
                under_way = (ops >= 0) & (known[operations.column[ops]] < operations.value[ops])
                under_way &= operations.proxy[ops] | (self.wave.block_of[operations.warp[ops]] != block)
                self._ends(block, warps, under_way, operations.number[ops], operations.warp[ops], ops)
            abroad = np.setdiff1d(np.arange(self.members), self.own[warps])
            for member in abroad.tolist() if self.wave.shared.cluster > 1 else ():
                reader = np.full(self.stride, self.team[warps[0]] * self.members + member)
                for read, by in self._reads():
                    late = read[pieces, member] > known[member]
                    self._ends(block, warps, late, by[pieces, member], reader, nothing)

    def _ends(self, block: int, warps: Array, late: Array, numbers: Array, users: Array, operations: Array) -> None:
        """Report pieces of a block, (stride,), that are used when it ends."""
        if not late.any():
            return
        end = max(n for n, i in enumerate(self.wave.image.instructions) if i is not None and i.base == "EXIT")
        at = np.flatnonzero(late)
        firsts, where, counts = np.unique(numbers[at], return_index=True, return_counts=True)
        for first, one, count in zip(firsts.tolist(), at[where].tolist(), counts.tolist()):
            operation, user = int(operations[one]), int(users[one])
            remedy = MET if operation < 0 or self.wave.block_of[user] != block else self.remedy(operation)
            piece = block * self.stride + one
            self.add("END", first, end, (user, int(warps[-1])), 0, piece, count, remedy)

    def remedy(self, operation: int) -> str:
        """What would have told of the end of an operation."""
        if self.operations.queued[operation]:
            return QUEUED
        if _tensor(self.wave.image.instructions[self.operations.number[operation]]):
            return MOVED
        if self.operations.value[operation] == NEVER:
            return OPEN
        column = int(self.operations.column[operation])
        kind = max((at, key[0]) for key, at in self.columns.items() if at <= column)[1]
        return HEARD if kind == "mbarrier" else CLOSED

    # -- accesses

    def access(
        self, k: Cohort, i: Instruction, space: str, addresses: Array, lanes: Array | None, nbytes: int, what: str,
        words: list[Array] | None = None, owners: Array | None = None,
    ) -> None:  # fmt: skip
        if space != "shared" or what == "copy":
            return
        flat = np.arange(addresses.size) if lanes is None else np.flatnonzero(lanes)
        warp = k.warps[flat // 32]
        block = self.wave.block_of[warp] if owners is None else owners.reshape(-1)[flat]
        begin = block * self.stride * self.unit + addresses.reshape(-1)[flat].astype(np.int64)
        hit = self._hit(i, warp, begin, nbytes, flat % 32)
        number = i.address // WORD
        if what == "read":
            self._read(hit, i, number)
        else:
            atomic, values, done = what == "atomic", None, None
            if words is not None and atomic:
                done = np.repeat(words[0].reshape(-1)[flat], max(1, nbytes // self.unit))
            elif words is not None:
                values = pieces_of(words, flat, addresses.shape, nbytes, self.unit)
            if "ARRIVE" in i.mods and atomic:
                self._mbarriers(hit.piece)
            self._write(hit, number, atomic, values, i.base == "SYNCS", done)
            if i.base == "SYNCS" and "CCTL" in i.mods:
                cells = hit.piece * self.unit // 8
                self.gone.update((cell, By(number, w)) for cell, w in zip(cells.tolist(), hit.warp.tolist()))

    def _hit(self, i: Instruction, warp: Array, begin: Array, nbytes: int, lane: Array | None = None) -> _Hit:
        """Accesses of so many bytes at offsets ``begin`` into the shared memory of all blocks."""
        count = max(1, nbytes // self.unit)
        piece = (begin[:, None] // self.unit + np.arange(count)).reshape(-1)
        lane = np.zeros(len(warp), np.intp) if lane is None else lane
        return _Hit(self, i, np.repeat(warp, count), np.repeat(lane, count), piece)

    def _read(self, hit: _Hit, i: Instruction, number: int) -> None:
        strong = number in self.strong
        if strong and self.told:
            for pair in hit.pairs():
                self._hears(*pair)
        looks = self.cells[hit.piece]
        if looks.any():
            self.acquire(i, hit.warp[looks], hit.piece[looks] * self.unit // 8)
        race = hit.unknown(self.write) & ~looks
        if strong or number in self.swaps:
            race &= ~self.atomic[hit.piece]
        count = len(self.findings)
        hit.report("RAW", race, self.write)
        self._suspect(count)
        hit.under_way("RAW", self.sums)
        if number in self.swaps:
            return  # the compare-and-swap that follows speaks for it
        own = self.own[hit.warp]
        if strong and self.spun is None:
            self.spun = np.zeros_like(self.read), np.zeros_like(self.reader)
        read, reader = self._reads()[-1] if strong else (self.read, self.reader)
        read[hit.piece, own], reader[hit.piece, own] = hit.clock, number

    def _write(
        self, hit: _Hit, number: int, atomic: bool, values: Array | None, syncs: bool, done: Array | None
    ) -> None:
        """``syncs``: SYNCS makes an mbarrier, in the place where the copy engine finds it: what ptxas makes of
        mbarrier.init has a fence before it, and none behind it also where the program has fence.mbarrier_init.
        ``done``: where a compare-and-swap writes."""
        strong = atomic or number in self.strong
        if self.told or strong and self.behind:
            writes = hit.pairs(done)
            for pair in hit.pairs() if atomic else writes:  # one warp after the other
                if atomic:
                    self._hears(*pair)
                if pair in writes:
                    self._tells(*pair, strong, atomic)
        race = hit.unknown(self.write)
        if syncs:
            hit.report("PROXY", hit.unknown(self.write, True) & ~race, self.write)
        plain = self.write.operation[hit.piece] < 0
        if strong:
            race &= ~self.atomic[hit.piece]
        elif values is not None:
            race &= (self.value[hit.piece] != values) | self.atomic[hit.piece] | ~plain
        hit.report("WAW", race, self.write)
        count = len(self.findings)
        hit.readers(strong, but=self.cells[hit.piece] & atomic)  # before sm_90, LDS looks at what ATOMS changes
        self._suspect(count)
        if not atomic:
            hit.under_way("WAW", self.sums)
        self.write.set(hit, number, proxy=syncs)
        self.atomic[hit.piece] = strong
        if not atomic and (self.gone or self.cells[hit.piece].any()):
            self.made(np.unique(hit.piece * self.unit // 8))
            self.cells[hit.piece] = False
        if values is not None:
            self.value[hit.piece] = values
            if not strong:
                hit.report("WAW", self.value[hit.piece] != values, self.write)  # other lanes of this instruction

    def _suspect(self, count: int) -> None:
        """Races of loads with atomics, those behind the first ``count``."""
        for race in self.findings[count:]:
            if "atomic" in self._op(race.first) | self._op(race.second):
                self.suspects.setdefault(self._known[key_of(race)], []).append(race)

    def _op(self, place: Place) -> frozenset[str]:
        i = self.wave.image.instructions[place.address // WORD]
        return frozenset() if i is None else frozenset(i.op.traits)

    def add(
        self,
        kind: str,
        first: int,
        second: int,
        warps: tuple[int, int],
        lane: int,
        piece: int,
        count: int,
        remedy: str,
    ) -> None:
        """A race of instructions ``first`` and ``second`` (numbers) about ``count`` pieces, ``piece`` the first."""
        if (kind, first, second) in self._known:
            return
        self._known[kind, first, second] = piece
        image, wave = self.wave.image, self.wave
        block, other = wave.who(warps[1], lane)
        home, one = wave.who(warps[0], 0)
        if piece < self.pieces:
            space, (owner, at) = "shared memory", divmod(piece, self.stride)
            address, nbytes = at * self.unit, count * self.unit
        else:
            space, (owner, at) = "tensor memory", divmod(piece - self.pieces, LANES * COLUMNS)
            address, nbytes = at // COLUMNS << 16 | at % COLUMNS, count * 4
        its, _ = wave.who(owner * self.slots, 0)
        memory = space if its == block else f"{space} of block {its}"
        places = image.place(first), image.place(second)
        self.findings.append(Race(kind, *places, block, (one, other), address, nbytes, remedy, memory, home))


def key_of(race: Race) -> tuple[str, int, int]:
    return race.kind, race.first.address // WORD, race.second.address // WORD


class _Last:
    """The last access of a kind to each piece: a warp's at its clock, or of an operation."""

    def __init__(self, pieces: int) -> None:
        self.warp = np.full(pieces, -1, np.int32)
        self.clock = np.zeros(pieces, np.int32)
        self.number = np.zeros(pieces, np.int32)
        self.operation = np.full(pieces, -1, np.int64)
        self.proxy = np.zeros(pieces, bool)  # the async proxy sees it without a fence

    def set(self, hit: _Hit, number: int, operations: Array | int = -1, proxy: bool = False) -> None:
        self.warp[hit.piece] = hit.warp
        self.clock[hit.piece] = hit.clock
        self.number[hit.piece] = number
        self.operation[hit.piece] = operations
        self.proxy[hit.piece] = proxy


class _Hit:
    """The pieces that one access touches: parallel arrays."""

    def __init__(
        self, races: Races, i: Instruction, warp: Array, lane: Array, piece: Array, queued: bool = False
    ) -> None:
        """``queued``: of an operation that tensor memory does in its order."""
        self.races, self.number, self.queued = races, i.address // WORD, queued
        self.warp, self.lane, self.piece = warp, lane, piece
        self.clock = races.clocks[0, warp, races.own[warp]]
        self.untold = np.zeros(len(piece), bool)  # where another block's write is known of, but for a MEMBAR

    def pairs(self, lanes: Array | None = None) -> dict[tuple[int, int], None]:
        """Warps and pieces, in their order."""
        some = slice(None) if lanes is None else lanes
        return dict.fromkeys(zip(self.warp[some].tolist(), self.piece[some].tolist()))

    def unknown(self, last: _Last, proxy: bool = False) -> Array:
        """Where an access was that this one does not know of: of another warp, or of an operation of any. ``proxy``:
        through the async proxy, so that it does not see either what was written through the other one, by any warp,
        where no fence stands between."""
        races, piece = self.races, self.piece
        who, operation = last.warp[piece], last.operation[piece]
        column, value = races.own[who], last.clock[piece]
        under_way = operation >= 0
        layer = (proxy & ~last.proxy[piece]).astype(int)
        if under_way.any():
            ops = races.operations
            column = np.where(under_way, ops.column[operation], column)
            value = np.where(under_way, ops.value[operation], value)
        known = races.clocks[layer, self.warp, column] >= value
        if races.far and not proxy:
            blocks = races.wave.block_of
            abroad = (blocks[who] != blocks[self.warp]) & ~under_way & ~last.proxy[piece]
            self.untold = known & abroad & (races.clocks[races.far, self.warp, column] < value)
            known &= ~self.untold
        if self.queued:
            known |= under_way & races.operations.queued[operation] & (who == self.warp)
        return np.asarray((who >= 0) & ~known & ((who != self.warp) | under_way | proxy))

    def readers(self, strong: bool = False, but: Array | None = None) -> None:
        """Reports reads that this write does not know of: those of other warps, and asynchronous ones of any. A
        ``strong`` write does not race with strong loads; ``but``: pieces that it does not race with any load of."""
        races, mine = self.races, self.warp[:, None]
        team = races.team[self.warp] * races.members  # warps before it
        if len(self.piece) and self.piece[0] < races.pieces:  # who reads tensor memory is asynchronous
            for read, number in races._reads()[: 1 if strong else 2]:
                late = read[self.piece] > races.clocks[0][mine, np.arange(races.members)]
                late &= np.arange(races.members) != races.own[mine]
                if but is not None:
                    late &= ~but[:, None]
                at, reader = np.nonzero(late)
                if len(at):
                    self._each("WAR", at, number[self.piece[at], reader], team[at] + reader, np.full(len(at), -1))
        self.under_way("WAR", races.fetch)

    def under_way(self, kind: str, table: Array | None) -> None:
        """Reports operations of a table whose end this access does not know of."""
        if table is None:
            return
        races, mine = self.races, self.warp[:, None]
        operation, known = table[self.piece], races.operations
        late = (operation >= 0) & (races.clocks[0][mine, known.column[operation]] < known.value[operation])
        if self.queued:
            late &= ~(known.queued[operation] & (known.warp[operation] == mine))
        at, which = np.nonzero(late)
        if len(at):
            operation = operation[at, which]
            self._each(kind, at, known.number[operation], known.warp[operation], operation)

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
            remedy = SPREAD if operation < 0 and self.untold[n] else remedy
            warps_of = int(warps[one]), int(self.warp[n])
            lane, piece = int(self.lane[n]), int(self.piece[n])
            races.add(kind, first, self.number, warps_of, lane, piece, count, remedy)


def pieces_of(words: list[Array], flat: Array, shape: tuple[int, ...], nbytes: int, unit: int) -> Array:
    """The values of each piece of ``unit`` bytes that a write covers, (lanes * pieces,)."""
    full = np.stack([np.broadcast_to(word, shape).reshape(-1)[flat] for word in words], axis=-1)
    parts = full.view({1: np.uint8, 2: np.uint16, 4: np.uint32}[unit])
    return parts[:, : max(1, nbytes // unit)].astype(np.uint32).reshape(-1)


def unit_of(i: Instruction, spaces: Sequence[str]) -> int:
    """The size of pieces that an instruction needs, in one of ``spaces``."""
    if not i.op.traits & {"load", "store"} or i.op.space not in spaces:
        return 4
    return next((size for mod, size in (("U8", 1), ("S8", 1), ("U16", 2), ("S16", 2)) if mod in i.mods), 4)


def _tensor(i: Instruction | None) -> bool:
    """Whether it uses tensor memory."""
    return i is not None and any(isinstance(o, Mem) and o.space == "tmem" for o in i.operands)


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
