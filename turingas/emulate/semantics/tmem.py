"""Loads and stores of tensor memory, its allocation, copies into it, and arrivals when what is asynchronous is done
(PTX: tcgen05.ld, .st, .alloc, .dealloc, .cp, .shift, .commit).

Which lane and column each register of a thread has is what CUTLASS' copy traits say of the shapes
(``SM100_TMEM_LOAD``). A warp reaches the 32 lanes of its place in its group of four. With .PACK16BIT a register has the
low halves of two neighbouring columns; .EXPAND16BIT stores them so (the upper halves become 0 here; nothing says what
they become on a GPU). A load has its values at once, and the scoreboard mode knows what ptxas waits for; others may
write there when its scoreboard has been waited for. A store is done when its warp waits at a fence
(FENCE.VIEW.ASYNC.T), all else when an mbarrier hears of it; what one warp has begun of that is done in its order.
(PTX promises this of some pairs only, a copy behind a product not among them. CUTLASS' kernels with scales rely on
that, too.)
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from turingas.emulate.arrays import Array, Rows
from turingas.emulate.build import Get, Maker, Step, semantics
from turingas.emulate.cohort import Cohort, State
from turingas.emulate.errors import Unsupported
from turingas.emulate.late import Land, Touch
from turingas.emulate.memory import WITHIN, BadAccess
from turingas.emulate.semantics.bulk import ARRIVALS, arrive, blame
from turingas.emulate.semantics.floating import extreme32
from turingas.emulate.semantics.formats import unpadded
from turingas.emulate.semantics.loads import TENSOR_STORE, fault
from turingas.emulate.semantics.warpgroup import PIECE, pieces, place_in_group
from turingas.emulate.splits import LOADED
from turingas.isa.effects import SCOREBOARDS
from turingas.isa.instruction import Instruction, Mem, Reg

LANES_OF_WARP = 32
TENSOR_LOAD = "tensor load"
FRESH = (ARRIVALS << 43) | (ARRIVALS << 1)  # an mbarrier of one arrival
T: Array = np.arange(32)


class Shape(NamedTuple):
    """``registers`` of a thread in one repetition, which is ``width`` columns. ``place``: the lanes and columns of
    (thread, register). ``threads``: those that take part."""

    registers: int
    width: int
    place: Callable[[Array, Array], tuple[Array, Array]]
    threads: slice = slice(None)


SHAPES = {
    "": Shape(1, 1, lambda t, r: (t + 0 * r, 0 * t + r)),
    "16dp64bit": Shape(1, 2, lambda t, r: (t // 4 + t % 2 * 8 + 0 * r, t // 2 % 2 + 0 * r)),
    "16dp128bit": Shape(2, 4, lambda t, r: (t // 4 + r * 8, t % 4 + 0 * r)),
    "16dp256bit": Shape(4, 8, lambda t, r: (t // 4 + r // 2 * 8, t % 4 * 2 + r % 2)),
    "16dp32bit_t0_t15": Shape(1, 1, lambda t, r: (t % 16 + 0 * r, 0 * t + r), slice(0, 16)),
    "16dp32bit_t16_t31": Shape(1, 1, lambda t, r: (t % 16 + 0 * r, 0 * t + r), slice(16, 32)),
}


def address_of(m: Maker, mem: Mem) -> Get:
    """An address in tensor memory, (n, 1) or (1, 1) uint32."""
    offset = np.uint32(mem.offset & 0xFFFFFFFF)
    if mem.ur is None or mem.ur.zero:
        constant = np.full((1, 1), offset)
        return lambda k: constant
    get = m.raw(mem.ur)
    return lambda k: get(k) + offset


def _places(i: Instruction, registers: int) -> tuple[Array, Array, slice]:
    """Lanes and columns from the address on, (threads, registers) each, twice as many columns where they are packed,
    and which threads."""
    shape = SHAPES[next((mod for mod in i.mods if mod in SHAPES), "")]
    again, each = np.divmod(np.arange(registers), shape.registers)
    lanes, columns = shape.place(T[:, None], each[None])
    columns = columns + again * shape.width
    if "PACK16BIT" in i.mods or "EXPAND16BIT" in i.mods:
        columns = (2 * columns[:, :, None] + np.arange(2)).reshape(32, -1)
        lanes = np.repeat(lanes, 2, axis=1)
    return lanes[shape.threads], columns[shape.threads], shape.threads


def _at(
    i: Instruction, m: Maker, mem: Mem, registers: int
) -> tuple[Callable[[Cohort], tuple[Array, Array, Array]], slice]:
    """What finds blocks, lanes and columns of all threads, and which threads these are."""
    where = address_of(m, mem)
    lanes, columns, threads = _places(i, registers)

    def find(k: Cohort) -> tuple[Array, Array, Array]:
        if k.mask is not None:
            row = int((~k.mask.all(axis=1)).argmax())
            raise k.wave.fault(i, "warp", f"{i.base} without all lanes of the warp", row, int(k.mask[row].argmax()))
        address = np.broadcast_to(where(k), (k.count, 1)).astype(np.int64)[:, :, None]
        first = address >> 16
        own = place_in_group(k.wave.warps // k.wave.blocks, k.warps)[:, None, None] * LANES_OF_WARP
        all_lanes = first + lanes
        wrong = (all_lanes < own) | (all_lanes >= own + LANES_OF_WARP)
        if wrong.any():
            row = int(wrong.any(axis=(1, 2)).argmax())
            low = int(own[row, 0, 0])
            message = f"lane {int(all_lanes[row][wrong[row]][0])} of tensor memory: the warp reaches lanes {low} to"
            raise k.wave.fault(i, "tensor memory", f"{message} {low + LANES_OF_WARP - 1}", row, 0)
        blocks = k.blocks[:, None, None]
        all_columns = (address & 0xFFFF) + columns
        try:
            k.wave.tensor.check(blocks, all_lanes, all_columns)
        except BadAccess as bad:
            row = bad.index // lanes.size
            raise fault(k, i, BadAccess(bad.kind, bad.message, row, bad.address), 1) from None
        return blocks, all_lanes, all_columns

    return find, threads


@semantics("LDTM")
def load(i: Instruction, m: Maker) -> Step:
    """``LDTM.shape.xN Rd, tmem[UR + offset]``. ``LDTM.STAT.shape.xN.MIN Ra, Rd, tmem[UR + offset]``: Ra gets the least
    or the greatest of the words that its thread loads (PTX: tcgen05.ld.red)."""
    *stat, d, mem = i.operands
    assert isinstance(d, Reg) and isinstance(mem, Mem)
    find, threads = _at(i, m, mem, d.words)
    packed = "PACK16BIT" in i.mods

    board = i.control.write

    def step(k: Cohort) -> None:
        at = find(k)
        words = k.wave.tensor.load(*at)
        if k.wave.late.watchers:
            touches = touched(k.wave, k.count, [("read", at)])
            k.wave.late.begin(k.warps, nothing_left, TENSOR_LOAD, i, touches, proxy=False)
            if board < SCOREBOARDS:
                k.wave.late.close(TENSOR_LOAD, k.warps, LOADED + board)
        if packed:
            words = words[:, :, ::2] & np.uint32(0xFFFF) | words[:, :, 1::2] << np.uint32(16)
        for n in range(0 if d.zero else d.words):
            k.wave.R[d.index + n, k.rows, threads] = words[:, :, n]
        for one in stat:
            assert isinstance(one, Reg)
            if not one.zero:
                k.wave.R[one.index, k.rows, threads] = _extreme(words, i.mods)

    return step


def _extreme(words: Array, mods: tuple[str, ...]) -> Array:
    """Of the words (n, threads, registers) of each thread: .MIN or .MAX of unsigned integers, of .S32 or .F32, of which
    there are .MINABS and .MAXABS, too."""
    op = next(mod for mod in mods if mod[:3] in ("MIN", "MAX"))
    if "F32" in mods:
        flat = words.reshape(-1, words.shape[2]).view(np.float32)
        return extreme32(flat, np.ones(flat.shape, bool), op, "NAN" in mods).reshape(words.shape[:2])
    sort = np.dtype(np.int32 if "S32" in mods else np.uint32)
    found: Array = (np.minimum if op == "MIN" else np.maximum).reduce(words.view(sort), axis=2).view(np.uint32)
    return found


@semantics("STTM")
def store(i: Instruction, m: Maker) -> Step:
    """``STTM.shape.xN tmem[UR + offset], Rb``."""
    mem, source = i.operands
    assert isinstance(source, Reg) and isinstance(mem, Mem)
    find, threads = _at(i, m, mem, source.words)
    expanded = "EXPAND16BIT" in i.mods

    def step(k: Cohort) -> None:
        words = np.stack(
            [np.zeros((k.count, 32), np.uint32) if source.zero else k.r(source.index + n) for n in range(source.words)],
            axis=2,
        )[:, threads]
        if expanded:
            halves = [words & np.uint32(0xFFFF), words >> np.uint32(16)]
            words = np.stack(halves, axis=-1).reshape(*words.shape[:2], -1)
        wave, (blocks, lanes, columns) = k.wave, find(k)

        def land(rows: Rows) -> None:
            wave.tensor.words[blocks[rows], lanes[rows], columns[rows]] = words[rows]

        touches = touched(wave, k.count, [("write", (blocks, lanes, columns))])
        wave.late.begin(k.warps, marked(wave, land, touches), TENSOR_STORE, i, touches, proxy=False)

    return step


def pair(k: Cohort, blocks: Array) -> Array:
    """Both blocks of the pairs that blocks (n,) belong to, (n, 2): those of the cluster whose ranks differ in bit 0."""
    rank = blocks % k.wave.shared.cluster
    found: Array = np.stack([blocks - (rank & 1), blocks - (rank & 1) + 1], axis=1)
    return found


def paired(k: Cohort, i: Instruction) -> None:
    """An error where a block has no other one to make a pair."""
    if k.wave.shared.cluster % 2:
        message = f"{i.base}.2CTA needs a cluster of an even number of blocks; it has {k.wave.shared.cluster}"
        raise k.wave.fault(i, "cluster", message, 0, int(k.lanes[0].argmax()))


@semantics("UTCATOMSWS")
def allocation(i: Instruction, m: Maker) -> Step:
    """``UTCATOMSWS.FIND_AND_SET.ALIGN UPu, URd, URb``: UPu whether URb free bits were there, and URd the first of them,
    in both blocks of a pair with .2CTA. ``UTCATOMSWS.AND URd, URb`` (and .OR) changes the bits of the block; URd is
    what they were. One bit is 32 columns."""
    both = "2CTA" in i.mods
    finds = "FIND_AND_SET" in i.mods
    if not finds and not ("AND" in i.mods or "OR" in i.mods):
        raise Unsupported(i.name)
    d, b = i.operands[-2:]
    put_found, put, value = m.put(i.operands[0]), m.put(d), m.raw(b)

    def step(k: Cohort) -> None:
        if both:
            paired(k, i)
        tensor, blocks, some = k.wave.tensor, k.blocks, k.lanes.any(axis=1)
        given = np.broadcast_to(value(k), (k.count, 1))[:, 0].tolist()
        found, result = np.zeros((k.count, 1), bool), np.zeros((k.count, 1), np.uint32)
        for row in np.flatnonzero(some).tolist():
            here = pair(k, blocks[row : row + 1])[0] if both else blocks[row : row + 1]
            if finds:
                first = tensor.find_and_set(here, given[row], "ALIGN" in i.mods)
                found[row], result[row] = first is not None, first or 0
            else:
                result[row] = tensor.taken[here[0]]
                bits = np.int64(given[row])
                tensor.taken[here] = tensor.taken[here] & bits if "AND" in i.mods else tensor.taken[here] | bits
        put(k, result)
        if finds:
            put_found(k, found)

    return step


#: where the mbarrier of a pair lies, and the parity to wait for, behind a symbol: as ptxas 12.9 and 13.0 use them
PIPELINES = {
    "__nv_reservedSMEM_tmem_allocation_pipeline_mbarrier": (0, 8),
    "__nv_reservedSMEM_tcgen05_partition": (8, 16),
}


def prepare(wave: State) -> None:
    """What the code that ptxas makes of tcgen05.alloc.cta_group::2 finds in the system's shared memory: an mbarrier of
    one arrival. The even block of a pair allocates, tells the other one which columns, and waits for its arrival before
    it allocates again: the first time the parity lets it pass. (Who puts that there is not said anywhere; ptxas does
    not.)"""
    for name, (mbarrier, parity) in PIPELINES.items():
        at = wave.image.reserved.get(name)
        if at is None or at + parity + 4 > wave.shared.nbytes:
            continue
        blocks = np.arange(wave.blocks)
        first = blocks % wave.shared.cluster % 2 == 0
        low, high = (np.full(wave.blocks, half) for half in (FRESH & 0xFFFFFFFF, FRESH >> 32))
        for offset, value in ((mbarrier, low), (mbarrier + 4, high), (parity, first)):
            address = np.full((wave.blocks, 1), at + offset, np.uint32)
            rank = (blocks % wave.shared.cluster << 24).astype(np.uint32)[:, None]
            wave.shared.store(address | rank, blocks, 4, [value.astype(np.uint32)[:, None]])


@semantics("UVIRTCOUNT")
def relinquish(i: Instruction, m: Maker) -> Step:
    """Gives up the right to allocate tensor memory: nobody else waits for it here."""
    return lambda k: None


# ---- what is asynchronous --------------------------------------------------------------------------------------------

Words = tuple[Array, Array, Array]  # blocks, lanes and columns, (n, ...) or broadcast to that


def nothing_left(rows: Rows) -> None:
    """Of an operation that is over when it begins, but for what others may do."""


def touched(wave: State, count: int, places: Iterable[tuple[str, Words]]) -> list[Touch]:
    """What an operation of ``count`` warps does to tensor memory; nothing where nobody asks. What is not there is an
    error when it is done."""
    if not wave.late.watchers and not wave.options.stale:
        return []
    numbers = [(what, wave.tensor.numbers(*at)) for what, at in places]
    return [Touch(what, n.reshape(count, -1), 4, None, "tensor") for what, n in numbers if n is not None]


def marked(wave: State, land: Land, touches: Sequence[Touch]) -> Land:
    """``land``, with --stale so that who reads before that finds what was never computed."""
    written = [touch.at for touch in touches if touch.space == "tensor" and touch.what == "write"]
    if not wave.options.stale or not written:
        return land
    for number in written:
        wave.tensor.mark(number, 1)

    def over(rows: Rows) -> None:
        land(rows)
        for number in written:
            wave.tensor.mark(number[rows], -1)

    return over


def begun(
    wave: State,
    i: Instruction,
    warps: Array,
    land: Land,
    reads: Sequence[tuple[Array, Array]],
    places: Iterable[tuple[str, Words]],
) -> None:
    """``warps`` begin a product or a copy; it is done when an mbarrier that UTCBAR names has to hear of it. ``reads``:
    blocks (n,) and the pieces of 16 bytes in their shared memory (n, ...) that it reads. ``places``: what it does to
    tensor memory ("read" or "write"), and where."""
    touches = touched(wave, len(warps), places)
    land = marked(wave, land, touches)
    for blocks, at in reads if wave.late.watchers else ():
        with contextlib.suppress(BadAccess):  # an error when it is done
            inside = wave.shared.in_block(at.reshape(len(at), -1), blocks)
            (spots,) = wave.shared.locate(inside, blocks, PIECE)
            touches.append(Touch("read", spots.index, PIECE))
    tensor = wave.tensor
    tensor.under_way = [flight for flight in tensor.under_way if flight.left]
    tensor.under_way.append(wave.late.begin(warps, land, None, i, touches))


@semantics("UTCBAR")
def commit(i: Instruction, m: Maker) -> Step:
    """``UTCBAR [URa], URZ, URc``: an arrival at the mbarrier, when all products and copies that the warp has begun are
    done. With .MULTICAST at the same place in each block of the cluster whose bit URc has."""
    mem, _, mask = i.operands
    assert isinstance(mem, Mem) and isinstance(mask, Reg)
    if "A0TX" in i.mods or "WAKEUP" in i.mods:
        raise Unsupported(f"{i.name}: no compiler makes it, and nothing public tells what it does")
    many = "MULTICAST" in i.mods
    where, which = m.raw(mem.ur) if mem.ur is not None else None, m.raw(mask)
    assert where is not None and not mem.offset

    def step(k: Cohort) -> None:
        wave, lanes = k.wave, k.lanes
        address, goals = (np.broadcast_to(get(k), (k.count, 1))[:, 0].tolist() for get in (where, which))
        for row in np.flatnonzero(lanes.any(axis=1)).tolist():
            lane = int(lanes[row].argmax())
            told = [address[row]]
            if many:
                within, blocks = int(WITHIN), wave.shared.cluster
                if goals[row] >> blocks:
                    message = f"an arrival at the blocks {goals[row]:#x} of the cluster, which has {blocks}"
                    raise wave.fault(i, "out of bounds", message, row, lane, address[row])
                told = [address[row] & within | n << 24 for n in range(blocks) if goals[row] >> n & 1]
            warp = int(k.warps[row])
            flights = [(f, f.warps == warp) for f in wave.tensor.under_way if f.left and (f.warps == warp).any()]
            flights.append((wave.late.begin(k.warps[row : row + 1], nothing_left, None, i), None))
            for one in told:
                try:
                    place = np.full((1, 1), one, np.uint32)
                    (spots,) = wave.shared.locate(place, k.blocks[row : row + 1], 8, reach=True)
                except BadAccess as bad:
                    raise fault(k, i, BadAccess(bad.kind, bad.message, 32 * row + lane, bad.address), 32) from None
                fail = blame(k, i, row, lane, one)
                wave.late.expect(int(spots.index[0, 0]), flights, _arrival, fail, i, warp, True)

    return step


def _arrival(state: int) -> int:
    return arrive(state, 1)


#: of UTCCP: rows, pieces of 16 bytes in each, and the lanes that get a row
COPIES: dict[str, tuple[int, int, Callable[[Array], list[Array]]]] = {
    "": (128, 2, lambda row: [row]),
    "128dp128bit": (128, 1, lambda row: [row]),
    "4dp256bit": (4, 2, lambda row: [32 * row]),
    "2x64dp128bit_lw02_lw13": (64, 1, lambda row: [row, row + 64]),
    "2x64dp128bit_lw01_lw23": (64, 1, lambda row: [row // 32 * 64 + row % 32 + n for n in (0, 32)]),
    "4x32dp128bit": (32, 1, lambda row: [row + n for n in (0, 32, 64, 96)]),
}
SPREAD = {"U4x16P64": "E2M1", "U6x16P32": "E2M3"}


@semantics("UTCCP")
def copy(i: Instruction, m: Maker) -> Step:
    """``UTCCP.T.S.shape tmem[URa + offset], gdesc[URb]``: rows of shared memory, where a descriptor says, into lanes.
    .U4x16P64 and .U6x16P32 make bytes of elements of 4 and 6 bits. With .2CTA both blocks of a pair copy their own."""
    to, source = i.operands
    assert isinstance(to, Mem) and isinstance(source, Mem) and source.ur is not None
    both = "2CTA" in i.mods
    rows, width, lanes_of = COPIES[next((mod for mod in i.mods if mod in COPIES), "")]
    packed = next((SPREAD[mod] for mod in i.mods if mod in SPREAD), None)
    where, low, high = address_of(m, to), source.ur.index, source.ur.index + 1
    row, piece = np.arange(rows)[:, None], np.arange(width)
    columns = np.arange(4 * width)

    def step(k: Cohort) -> None:
        if both:
            paired(k, i)
        some = np.flatnonzero(k.lanes.any(axis=1))
        wave, warps, blocks = k.wave, k.warps[some], k.blocks[some]
        all_blocks = pair(k, blocks) if both else blocks[:, None]
        given = where(k), k.ur(low), k.ur(high)
        address, first, second = (np.broadcast_to(v, (k.count, 1))[some, 0].astype(np.int64) for v in given)
        described = first | second << 32

        def land(which: Rows) -> None:
            at = pieces(described[which], row, piece, False)
            for part in all_blocks[which].T:
                try:
                    words = wave.shared.load(wave.shared.in_block(at.reshape(len(at), -1), part), part, PIECE)
                except BadAccess as bad:
                    warp = int(warps[which][bad.index // at[0].size])
                    raise wave.fault_of(i, bad.kind, f"the source: {bad}", warp, 0, bad.address) from None
                raw = np.ascontiguousarray(np.stack(words, axis=-1))
                value = (raw if packed is None else unpadded(raw, packed)).reshape(len(at), rows, -1)
                begin = address[which][:, None, None]
                for lanes in lanes_of(row):
                    goal = part[:, None, None], (begin >> 16) + lanes, (begin & 0xFFFF) + columns
                    try:
                        wave.tensor.check(*goal)
                    except BadAccess as bad:
                        warp = int(warps[which][bad.index // value[0].size])
                        raise wave.fault_of(i, bad.kind, bad.message, warp, 0, bad.address) from None
                    wave.tensor.words[goal] = value

        def places() -> Iterator[tuple[str, Words]]:
            begin = address[:, None, None]
            for part in all_blocks.T:
                for lanes in lanes_of(row):
                    yield "write", (part[:, None, None], (begin >> 16) + lanes, (begin & 0xFFFF) + columns)

        reads = [(part, pieces(described, row, piece, False)) for part in all_blocks.T]
        begun(wave, i, warps, land, reads, places())

    return step


COLUMNS_SHIFTED = 8  # 32 bytes


@semantics("UTCSHIFT")
def shift(i: Instruction, m: Maker) -> Step:
    """``UTCSHIFT.DOWN tmem[URa + offset]``: of the 32 lanes from the address on, a multiple of 32, each but the last
    gets what the next one has, in 8 columns. PTX ISA: 32-byte elements go "downwards across all the rows, except the
    last, by one row", and the shape is .31x256b. Which way is down says numsim of TIRx-harness (see ``utcmma._shift``);
    so does the use: rows of a picture move on, and .4x256b copies a new last row for each warp. No card of ours."""
    (to,) = i.operands
    assert isinstance(to, Mem)
    both = "2CTA" in i.mods
    where = address_of(m, to)
    lanes, columns = np.arange(LANES_OF_WARP)[:, None], np.arange(COLUMNS_SHIFTED)[None]

    def step(k: Cohort) -> None:
        if both:
            paired(k, i)
        some = np.flatnonzero(k.lanes.any(axis=1))
        wave, warps, blocks = k.wave, k.warps[some], k.blocks[some]
        all_blocks = pair(k, blocks) if both else blocks[:, None]
        address = np.broadcast_to(where(k), (k.count, 1))[some, 0].astype(np.int64)
        wrong = np.flatnonzero((address >> 16) % LANES_OF_WARP)
        if len(wrong):
            row, bad = int(some[wrong[0]]), int(address[wrong[0]])
            message = f"lane {bad >> 16} of tensor memory: rows are shifted from a multiple of {LANES_OF_WARP} on"
            raise wave.fault(i, "misaligned", message, row, int(k.lanes[row].argmax()), bad)

        def places(which: Rows = slice(None)) -> Iterator[Words]:
            begin = address[which][:, None, None]
            for part in all_blocks[which].T:
                yield part[:, None, None], (begin >> 16) + lanes, (begin & 0xFFFF) + columns

        def land(which: Rows) -> None:
            for at in places(which):
                try:
                    wave.tensor.check(*at)
                except BadAccess as bad:
                    warp = int(warps[which][bad.index // (lanes.size * columns.size)])
                    raise wave.fault_of(i, bad.kind, bad.message, warp, 0, bad.address) from None
                words = wave.tensor.words[at]
                wave.tensor.words[at[0], at[1][:, :-1], at[2]] = words[:, 1:]

        begun(wave, i, warps, land, [], (("write", at) for at in places()))

    return step
