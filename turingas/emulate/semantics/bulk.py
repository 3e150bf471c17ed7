"""Asynchronous copies and the mbarriers that tell of them.

A copy is done when its mbarrier has to hear of it, or its group is waited for (``late``). An mbarrier is 8 bytes in
shared memory, so a kernel may copy, clear or spoil it. Bits 43 to 62 are minus the pending arrivals, bit 63 is the
parity of the phase, bits 1 to 20 are minus the arrivals that the next phase begins with: so much follows from code that
ptxas 12.9 makes of mbarrier.init, .pending_count and .test_wait. In between, from bit 21 on, lies minus the count of
bytes (words of an H200 that had heard of other bytes than it waited for). (sm_80 to sm_89 have other mbarriers, see
``atomics``.)

A wait only looks: a kernel that waits for what never comes runs until its budget of instructions ends.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Sequence

import numpy as np

from turingas.emulate.arrays import LANES, Array
from turingas.emulate.build import Maker, Step, semantics
from turingas.emulate.cohort import Cohort
from turingas.emulate.errors import Unsupported
from turingas.emulate.late import Touch
from turingas.emulate.memory import WITHIN, BadAccess
from turingas.emulate.semantics.atomics import OPERATIONS, arrived, named
from turingas.emulate.semantics.loads import fault, narrow_address, some_warps, sources, watch
from turingas.isa.instruction import Instruction, Mem, Reg

POISON = np.full((1, 1), 0xFFFFFFFF, np.uint32)  # of bytes that a copy may still write, with --stale

UNIT = 16  # bytes: what the engine copies at least
ARRIVALS = (1 << 20) - 1  # most of them, and most bytes that a phase may wait for (PTX ISA, "Contents of the mbarrier")


class Misuse(ValueError):
    """An mbarrier was told what does not fit its state."""


# ---- the state, as a number of 64 bits -------------------------------------------------------------------------------


def arrive(state: int, arrivals: int, expect: int = 0, complete: int = 0, drop: bool = False) -> int:
    """The state of an mbarrier (sm_90) after it is told to ``expect`` bytes, then of ``arrivals``, which the next phase
    does not wait for with ``drop``, and of bytes that are ``complete``. Raises Misuse."""
    parity = state >> 63
    pending = -(state >> 43) & ARRIVALS
    coming = -(state >> 1) & ARRIVALS
    bytes_ = (-(state >> 21) & 0x3FFFFF ^ 0x200000) - 0x200000
    if arrivals > pending:
        raise Misuse(f"{arrivals} arrive at an mbarrier that waits for {pending} (or is none)")
    pending -= arrivals
    bytes_ += expect - complete
    if abs(bytes_) > ARRIVALS:
        raise Misuse(f"an mbarrier cannot wait for {bytes_} bytes")
    if drop:
        coming -= arrivals
    if pending == bytes_ == 0 and (arrivals or complete):
        parity, pending = parity ^ 1, coming
    return parity << 63 | (-pending & ARRIVALS) << 43 | (-bytes_ & 0x3FFFFF) << 21 | (-coming & ARRIVALS) << 1


#: the suffix of SYNCS.ARRIVE: arrivals, bytes to expect, and bytes that are complete, of the value of Rb
TOLD: dict[str, Callable[[int], tuple[int, int, int]]] = {
    "": lambda b: (1, b, 0),
    "A1T0": lambda b: (1, 0, 0),
    "ART0": lambda b: (b, 0, 0),
    "A0T1": lambda b: (0, 1, 0),
    "A0TR": lambda b: (0, b, 0),
    "A0TX": lambda b: (0, 0, b),
}


def update(
    k: Cohort,
    i: Instruction,
    address: Array,
    change: Callable[[int, int], int],
    reach: bool = False,
    arrive: bool | None = None,
) -> Array:
    """Changes the mbarriers at uint32 addresses (n, 32), lane after lane: ``change`` gets a state and the flat number
    of the lane. Returns what each lane found, (n, 32) uint64. ``reach``: in any block of the cluster. ``arrive``:
    whether the lanes do (None: it is no use of an mbarrier), for the observers."""
    try:
        (spots,) = k.wave.shared.locate(address, k.blocks, 8, k.mask, reach)
    except BadAccess as bad:
        raise fault(k, i, bad, 32) from None
    cells, index = spots.plane.views[8], spots.index
    found = np.zeros((k.count, 32), np.uint64)
    events: list[tuple[int, int, bool, bool]] = []
    warps = k.warps
    for lane in np.flatnonzero(k.lanes).tolist():
        at = int(index.flat[lane])
        state = int(cells[at])
        try:
            try:
                new = change(state, lane)
            except Misuse:  # unless the phase is over
                k.wave.late.flush(at)
                state = int(cells[at])
                new = change(state, lane)
        except Misuse as why:
            raise fault(k, i, BadAccess("mbarrier", str(why), lane, int(address.flat[lane])), 32) from None
        found.flat[lane], cells[at] = state, new
        if arrive is not None:
            event = int(warps[lane // 32]), at, arrive, (state ^ new) >> 63 != 0
            if events[-1:] != [event]:  # lanes that do the same
                events.append(event)
        if spots.shadow is not None:
            spots.shadow.views[8][at] = 2**64 - 1  # written
    if events:
        for observer in k.wave.observers:
            observer.mbarriers(i, events)
    return found


# ---- SYNCS -----------------------------------------------------------------------------------------------------------


@semantics("SYNCS")
def syncs(i: Instruction, m: Maker) -> Step:
    """All that is done to mbarriers of sm_90."""
    return {"EXCH": _exchange, "LD": _load, "ARRIVE": _arrive, "PHASECHK": _check, "CCTL": _invalidate}[
        i.mods[0].removesuffix("ALL")
    ](i, m)


def _exchange(i: Instruction, m: Maker) -> Step:
    """``SYNCS.EXCH.64 URd, [URa + offset], URb``: mbarrier.init stores a state. Once a warp."""
    put, where, value = m.put64(i.operands[0]), _address(i, 1), m.raw64(i.operands[2])

    def step(k: Cohort) -> None:
        new = k.full(value(k))
        first = k.lanes.argmax(axis=1)
        old = np.zeros((k.count, 1), np.uint64)
        address = where(k)
        for cell in _cells(k, i, address).tolist():
            k.wave.late.flush(cell)

        def change(state: int, lane: int) -> int:
            row, column = divmod(lane, 32)
            if column != first[row]:
                return state
            old[row] = state
            return int(new[row, column])

        update(k, i, address, change)
        one = k.lanes & (LANES == first[:, None])
        words = [(new >> np.uint64(shift)).astype(np.uint32) for shift in (0, 32)]
        watch(k, i, "shared", address, one, 8, "write", words)
        put(k, old)

    return step


def _invalidate(i: Instruction, m: Maker) -> Step:
    """``SYNCS.CCTL.IV [URa + offset]``, mbarrier.inval: only the detector of races heeds it."""
    if "IV" not in i.mods or not i.operands:
        return nothing(i, m)
    where = _address(i, 0)

    def step(k: Cohort) -> None:
        if k.wave.observers:
            watch(k, i, "shared", where(k), k.mask, 8, "write", [POISON, POISON])

    return step


def _load(i: Instruction, m: Maker) -> Step:
    """``SYNCS.LD.64 Rd, [...]``."""
    put, where = m.put64(i.operands[0]), _address(i, 1)

    def step(k: Cohort) -> None:
        address = where(k)
        k.wave.late.poll(_cells(k, i, address))
        put(k, update(k, i, address, lambda state, lane: state))

    return step


def _cells(k: Cohort, i: Instruction, address: Array) -> Array:
    """Where the mbarriers of the lanes stand among all, (m,): for ``late``."""
    if not k.wave.late.expected:
        return np.zeros(0, np.intp)
    try:
        (spots,) = k.wave.shared.locate(address, k.blocks, 8, k.mask)
    except BadAccess as bad:
        raise fault(k, i, bad, 32) from None
    found: Array = spots.index[k.lanes]
    return found


def _arrive(i: Instruction, m: Maker) -> Step:
    """``SYNCS.ARRIVE.TRANS64 Rd, [...], Rb``: each lane by itself; Rd is the state that it found. With .TMASK
    (mbarrier.arrive.noComplete) Rd is the mask of the lanes that arrive there, and the upper word that the first of
    them found: the code after it counts the lanes before its own. With .RED in any block of the cluster, and Rd is not
    written."""
    d = i.operands[0]
    put, where, value = m.put64(d), _address(i, 1), m.raw(i.operands[2])
    told = TOLD[next((mod for mod in i.mods if mod in TOLD), "")]
    drop, masks, reach = "OPTOUT" in i.mods, "TMASK" in i.mods, "RED" in i.mods

    def step(k: Cohort) -> None:
        b, address = k.full(value(k)), where(k)
        found = update(k, i, address, lambda s, lane: arrive(s, *told(int(b.flat[lane])), drop), reach, told(1)[0] > 0)
        if masks:
            same = (address[:, :, None] == address[:, None, :]) & k.lanes[:, None, :]
            first = np.take_along_axis(found, same.argmax(axis=2), axis=1)
            bits = (same.astype(np.uint64) << LANES.astype(np.uint64)).sum(axis=2, dtype=np.uint64)
            found = first & ~np.uint64(0xFFFFFFFF) | bits
        if not reach:
            put(k, found)

    return step


def _check(i: Instruction, m: Maker) -> Step:
    """``SYNCS.PHASECHK.TRANS64 Pu, [...], Rb``: whether the phase with the parity of Rb's bit 31 is over. .TRYWAIT may
    wait a while first; it does not here."""
    put, where, value = m.put(i.operands[0]), _address(i, 1), m.raw(i.operands[2])
    unseen = isinstance(i.operands[0], Reg) and i.operands[0].zero  # who does not look at the answer learns nothing

    def step(k: Cohort) -> None:
        address = where(k)
        try:
            upper = k.wave.shared.load(address, k.blocks, 8, k.mask)[1]
        except BadAccess as bad:
            raise fault(k, i, bad, 32) from None
        parity = value(k)
        over = (upper ^ parity) >> np.uint32(31) != 0
        if k.wave.late.expected and not (over if k.mask is None else over | ~k.mask).all():
            cells = _cells(k, i, address).reshape(-1)
            if k.wave.late.poll(cells[~k.full(over)[k.lanes]]):
                over = (k.wave.shared.load(address, k.blocks, 8, k.mask)[1] ^ parity) >> np.uint32(31) != 0
        if k.wave.observers and not unseen:
            (spots,) = k.wave.shared.locate(address, k.blocks, 8, k.mask)
            rows, columns = np.nonzero(k.full(over) & k.lanes)
            pairs = np.unique(np.stack([k.warps[rows], spots.index[rows, columns]]), axis=1)
            for observer in k.wave.observers:
                observer.acquire(i, *pairs)
        put(k, over)

    return step


def _address(i: Instruction, operand: int) -> Callable[[Cohort], Array]:
    """An address of shared memory in each lane, (n, 32) uint32."""
    mem = i.operands[operand]
    assert isinstance(mem, Mem)
    get = narrow_address(mem)
    return lambda k: k.full(get(k))


@semantics("ARRIVES")
def arrives(i: Instruction, m: Maker) -> Step:
    """``ARRIVES.LDGSTSBAR.64 [...]``: what the warp's LDGSTS so far do when they are done: arrive (.ARVCNT, and before
    sm_90), or complete the one that SYNCS.ARRIVE.A0T1 made the mbarrier expect (.TRANSCNT)."""
    where, told, arrives = _address(i, 0), _arrivals(i, m), "TRANSCNT" not in i.mods

    def step(k: Cohort) -> None:
        address, late = where(k), k.wave.late
        try:
            (spots,) = k.wave.shared.locate(address, k.blocks, 8, k.mask)
        except BadAccess as bad:
            raise fault(k, i, bad, 32) from None
        lanes, warps = k.lanes, k.warps
        for row in np.flatnonzero(lanes.any(axis=1)).tolist():
            flights = late.of("copy", warps[row : row + 1])
            cells, first, counts = np.unique(spots.index[row][lanes[row]], return_index=True, return_counts=True)
            columns = np.flatnonzero(lanes[row])[first]
            for cell, column, count in zip(cells.tolist(), columns.tolist(), counts.tolist()):
                fail = blame(k, i, row, column, int(address[row, column]))
                late.expect(cell, flights, told(count), fail, i, int(warps[row]), arrives)

    return step


def _arrivals(i: Instruction, m: Maker) -> Callable[[int], Callable[[int], int]]:
    """What a number of lanes' arrivals make of a state."""
    if not m.arch.mbarriers:
        return lambda count: lambda state: arrived(state, count)
    if "ARVCNT" in i.mods:
        return lambda count: lambda state: arrive(state, count)
    if "TRANSCNT" in i.mods:
        return lambda count: lambda state: arrive(state, 0, complete=count)
    raise Unsupported(i.name)


def blame(k: Cohort, i: Instruction, row: int, lane: int, address: int) -> Callable[[Exception], Exception]:
    """The error of what an mbarrier is told when an operation is over."""
    wave, warp = k.wave, int(k.warps[row])
    return lambda why: wave.fault_of(i, "mbarrier", str(why), warp, lane, address)


# ---- bulk copies -----------------------------------------------------------------------------------------------------


@semantics("UBLKCP", "UBLKRED")
def bulk_copy(i: Instruction, m: Maker) -> Step:
    """``UBLKCP.to.from [URb], [URa], URc``, G for global and S for shared memory, once a warp; UBLKRED reduces instead
    of writing. An address of global memory is a pair; so is that of shared memory as a destination, in any block of the
    cluster, whose second register is the mbarrier that hears of the bytes. The lower half of URc counts 16 bytes; the
    upper one, with .MULTICAST, has a bit for each block of the cluster that gets them, at the same place and with its
    own mbarrier; with .DST_G_BYTE_MASK a bit for each byte that is written of every 16 (PTX: .cp_mask). An L2 policy
    changes nothing."""
    to, source = i.mods[:2]
    masked = "DST_G_BYTE_MASK" in i.mods
    if (to, source) == ("G", "G") or masked and (i.base != "UBLKCP" or to != "G"):
        raise Unsupported(i.name)
    target, origin = (_uniform(i, operand) for operand in (0, 1))
    size, multicast = m.raw(i.operands[2]), "MULTICAST" in i.mods
    change, item = Change(i) if i.base == "UBLKRED" else None, 1 if masked else UNIT

    def step(k: Cohort) -> None:
        lanes = k.lanes
        counts = np.broadcast_to(size(k), (k.count, 1))[:, 0].tolist()
        for row in np.flatnonzero(lanes.any(axis=1)).tolist():
            lane = row * 32 + int(lanes[row].argmax())
            many, goals = counts[row] & 0xFFFF, counts[row] >> 16
            if not many or masked and not goals:
                continue
            pieces = np.arange(0, 16 * many, 16, dtype=np.uint64)
            try:
                begin = at(k, origin, row, source)
                touches = _exists(k, row, source, begin, pieces, "read")
                if masked:
                    bits = np.array([n for n in range(16) if goals >> n & 1], np.uint64)
                    pieces = (pieces[:, None] + bits).reshape(-1)
                for place, told in places(k, row, to, target, goals if multicast else None):
                    wrote = _exists(k, row, to, place, pieces, "write" if change is None else "atomic", item)
                    if k.wave.options.stale and change is None:
                        write(k, row, to, place, pieces, [POISON] * max(1, item // 4), item)
                    land = _copying(k, row, (source, begin), (to, place), pieces, change, item)
                    under_way(k, i, lane, land, 16 * many, told if to == "S" else None, touches + wrote)
            except BadAccess as bad:
                raise fault(k, i, BadAccess(bad.kind, bad.message, lane, bad.address), 32) from None

    return step


def _copying(
    k: Cohort, row: int, source: tuple[str, int], to: tuple[str, int], pieces: Array, change: Change | None, item: int
) -> Callable[[], None]:
    """What copies, or reduces, when it is time."""

    def land() -> None:
        words = read(k, row, *source, pieces, item)
        if change is None:
            write(k, row, *to, pieces, words, item)
        else:
            change.apply(k, row, *to, pieces, words)

    return land


def under_way(
    k: Cohort,
    i: Instruction,
    lane: int,
    land: Callable[[], None],
    nbytes: int,
    told: int | None,
    touches: Sequence[Touch] = (),
) -> None:
    """``land`` copies when it is time: when the mbarrier at ``told``, an address of shared memory in the cluster, has
    to hear of its bytes; None: when the warp waits for the group that it belongs to. ``lane`` is the flat number of
    the one that began it, for errors."""
    row, late = lane // 32, k.wave.late

    def run(_: object) -> None:
        with contextlib.suppress(BadAccess):  # it could be done when it began: its block has ended
            land()

    warps = k.warps[row : row + 1]
    if told is None:
        late.begin(warps, run, "bulk", i, touches)
        return
    try:
        (spots,) = k.wave.shared.locate(np.full((1, 1), told, np.uint32), k.blocks[row : row + 1], 8, reach=True)
    except BadAccess as bad:
        raise fault(k, i, BadAccess(bad.kind, bad.message, lane, bad.address), 32) from None
    change = functools.partial(_completed, nbytes=nbytes)
    flight = late.begin(warps, run, None, i, [*touches, Touch("mbarrier", spots.index, 8)])
    late.expect(int(spots.index[0, 0]), flight, change, blame(k, i, row, lane % 32, told), i, int(warps[0]))


def _completed(state: int, nbytes: int) -> int:
    return arrive(state, 0, complete=nbytes)


def _exists(
    k: Cohort, row: int, space: str, address: int, pieces: Array, what: str, item: int = UNIT
) -> list[Touch]:
    """What a copy of ``item`` bytes at each of ``pieces`` does to memory. Raises BadAccess for what lies out of bounds,
    may not be written, or is read in the shared memory of another block (tests/gpu/reach.py: error 715 on an H100)."""
    whole = np.uint64(address) + pieces[None]
    if space == "G":
        k.wave.memory.locate(whole, item, write=what != "read")
        return [Touch(what, whole, item, None, "global")]
    found = k.wave.shared.locate(whole.astype(np.uint32), k.blocks[row : row + 1], item, reach=what != "read")
    return [Touch(what, s.index, item) for s in found]


def places(
    k: Cohort, row: int, to: str, target: int, goals: int | None, pairs: bool = False
) -> list[tuple[int, int]]:
    """The destinations of a copy, and for each its mbarrier; ``goals`` are the blocks of a multicast, as bits. With
    ``pairs`` both blocks of one tell the mbarrier of that whose rank is even, or odd, as the one that is named.
    BadAccess for a block that is not in the cluster."""
    place = at(k, target, row, to)
    told = int(k.ur(target + 1)[row, 0]) if to == "S" else 0
    if goals is None:
        return [(place, told)]
    blocks = k.wave.shared.cluster
    if goals >> blocks:
        message = f"a multicast to the blocks {goals:#x} of the cluster, which has {blocks}"
        raise BadAccess("out of bounds", message, 0, place)
    within, odd = int(WITHIN), told >> 24 & 1
    hears = [n & ~1 | odd if pairs else n for n in range(blocks)]
    return [(place & within | n << 24, told & within | hears[n] << 24) for n in range(blocks) if goals >> n & 1]


def _uniform(i: Instruction, operand: int) -> int:
    mem = i.operands[operand]
    assert isinstance(mem, Mem) and isinstance(mem.ur, Reg) and not mem.ur.zero, i
    return mem.ur.index


def at(k: Cohort, index: int, row: int, space: str) -> int:
    """The address in uniform registers: of shared memory one, of global memory two."""
    low = int(k.ur(index)[row, 0])
    return low if space == "S" else low | int(k.ur(index + 1)[row, 0]) << 32


def read(k: Cohort, row: int, space: str, address: int, pieces: Array, item: int = UNIT) -> list[Array]:
    """The words from each of ``pieces``, offsets (n,) of ``item`` bytes."""
    if space == "S":
        where = (np.uint64(address) + pieces).astype(np.uint32)[None]
        return k.wave.shared.load(where, k.blocks[row : row + 1], item, reach=True)
    return k.wave.memory.load((np.uint64(address) + pieces)[None], item)


def write(
    k: Cohort, row: int, space: str, address: int, pieces: Array, words: list[Array], item: int = UNIT
) -> None:
    """The other way."""
    if space == "S":
        where = (np.uint64(address) + pieces).astype(np.uint32)[None]
        k.wave.shared.store(where, k.blocks[row : row + 1], item, words, reach=True)
    else:
        k.wave.memory.store((np.uint64(address) + pieces)[None], item, words)


#: what the types of UBLKRED are called by atomics
BULK_TYPES = {"S32": "S32", "U64": "64", "S64": "S64", "F16": "F16x2", "F32": "F32", "F64": "F64", "BF16": "BF16x2"}


class Change:
    """What a reduction in bulk does to memory: its operation on elements of its type, that of an atomic."""

    def __init__(self, i: Instruction, kind: str | None = None, ftz: bool = False) -> None:
        op = next(mod for mod in i.mods if mod in OPERATIONS)
        given = kind if kind is not None else next((BULK_TYPES[mod] for mod in i.mods if mod in BULK_TYPES), "")
        flush = ("FTZ",) if ftz or "FTZ" in i.mods else ()
        _, self.dtype, function, _ = named(op, given, flush, i.name)
        assert function is not None, i
        self.function = function
        self.item = np.dtype(self.dtype).itemsize

    def apply(self, k: Cohort, row: int, space: str, address: int, pieces: Array, words: list[Array]) -> None:
        """To 16 bytes at each of ``pieces``. Raises BadAccess."""
        given: Array = np.stack([word[0] for word in words], axis=-1).reshape(-1).view(self.dtype)
        self.elements(k, row, space, (np.uint64(address) + pieces[:, None] + self._steps()).reshape(-1), given)

    def _steps(self) -> Array:
        return np.arange(0, 16, self.item, dtype=np.uint64)

    def elements(self, k: Cohort, row: int, space: str, address: Array, given: Array) -> None:
        """To elements at addresses (n,), each its own."""
        with k.wave.memory.lock:
            if space == "S":
                narrow = address.astype(np.uint32)[None]
                found = k.wave.shared.locate(narrow, k.blocks[row : row + 1], self.item, reach=True)
            else:
                found = k.wave.memory.locate(address[None], self.item, write=True)
            for s in found:
                memory: Array = s.plane.views[self.item].view(self.dtype)
                lanes = slice(None) if s.mask is None else s.mask.reshape(-1)
                index = s.index.reshape(-1)[lanes]
                memory[index] = self.function(memory[index], given[lanes])


# ---- stores into another block ---------------------------------------------------------------------------------------


@semantics("STAS", "REDAS")
def store_async(i: Instruction, m: Maker) -> Step:
    """``STAS [Ra.64 + URc + offset], Rb``: Ra is an address of shared memory in the cluster, and Ra + 1 that of the
    mbarrier that hears of the bytes, in the same block. REDAS reduces."""
    mem, source = i.operands
    assert isinstance(mem, Mem)
    if mem.base is None or mem.base.zero or mem.base.words != 2:
        raise Unsupported(i.text())
    base, offset = mem.base.index, mem.offset & 0xFFFFFFFF
    ur = None if mem.ur is None or mem.ur.zero else mem.ur.index
    reduce = i.base == "REDAS"
    kind = next((mod for mod in i.mods if mod in ("S32", "64")), "")
    nbytes = (8 if kind == "64" else 4) if reduce else i.nbytes
    values, change = sources(source, nbytes), Change(i, kind) if reduce else None
    what = "atomic" if reduce else "write"

    def step(k: Cohort) -> None:
        address = k.full(k.r(base) + np.uint32(offset) + (np.uint32(0) if ur is None else k.ur(ur)))
        words, told = [k.full(value(k)).copy() for value in values], k.full(k.r(base + 1))
        shared = k.wave.shared
        try:
            (places,) = shared.locate(address, k.blocks, nbytes, k.mask, reach=True)  # all or none
            (cells,) = shared.locate(told, k.blocks, 8, k.mask, reach=True)
        except BadAccess as bad:
            raise fault(k, i, bad, 32) from None
        for row, lane in np.argwhere(k.lanes).tolist():
            piece = slice(row, row + 1), slice(lane, lane + 1)
            land = _storing(k, row, address[piece], nbytes, [word[piece] for word in words], change)
            touches = [Touch(what, places.index[piece], nbytes), Touch("mbarrier", cells.index[piece], 8)]
            flight = k.wave.late.begin(k.warps[row : row + 1], land, None, i, touches, proxy=False)
            heard = functools.partial(_completed, nbytes=nbytes)
            fail = blame(k, i, row, lane, int(told[row, lane]))
            k.wave.late.expect(int(cells.index[row, lane]), flight, heard, fail, i, int(k.warps[row]))

    return step


def _storing(
    k: Cohort, row: int, address: Array, nbytes: int, words: list[Array], change: Change | None
) -> Callable[[object], None]:
    """What stores the words of one lane, or reduces, when it is time."""

    def land(_: object) -> None:
        with contextlib.suppress(BadAccess):  # it could be done when it began: its block has ended
            if change is None:
                k.wave.shared.store(address, k.blocks[row : row + 1], nbytes, words, reach=True)
            else:
                whole: Array = np.ascontiguousarray(np.stack(words, axis=-1)).view(change.dtype)[0, 0]
                change.elements(k, row, "S", address[0].astype(np.uint64), whole)

    return land


# ---- work of other blocks --------------------------------------------------------------------------------------------

SIXTEEN = np.zeros(1, np.uint64)  # one piece of 16 bytes


@semantics("UGETNEXTWORKID")
def next_work(i: Instruction, m: Maker) -> Step:
    """``UGETNEXTWORKID.SELFCAST [URa], [URa+1]``, once a warp: cancels the next cluster of the launch that has not
    begun, and writes 16 bytes that tell of it, of which the mbarrier hears; with .BROADCAST in all blocks of the
    cluster. What they say follows from what ptxas 13.0 makes of clusterlaunchcontrol.query_cancel: the x of the first
    block, y and z in 16 bits each, and whether there was one to cancel. The other bits are 0 here."""
    target, broadcast = _uniform(i, 0), "BROADCAST" in i.mods

    def step(k: Cohort) -> None:
        lanes, pending = k.lanes, k.wave.pending
        for row in np.flatnonzero(lanes.any(axis=1)).tolist():
            lane = row * 32 + int(lanes[row].argmax())
            found = None if pending is None else pending.cancel()
            x, y, z = (0, 0, 0) if found is None else found.tolist()
            words = [np.full((1, 1), word, np.uint32) for word in (x, y | z << 16, found is not None, 0)]
            try:
                for place, told in places(k, row, "S", target, (1 << k.wave.shared.cluster) - 1 if broadcast else None):
                    touches = _exists(k, row, "S", place, SIXTEEN, "write")
                    if k.wave.options.stale:
                        write(k, row, "S", place, SIXTEEN, [POISON] * 4)
                    land = functools.partial(write, k, row, "S", place, SIXTEEN, words)
                    under_way(k, i, lane, land, 16, told, touches)
            except BadAccess as bad:
                raise fault(k, i, BadAccess(bad.kind, bad.message, lane, bad.address), 32) from None

    return step


# ---- zeros -----------------------------------------------------------------------------------------------------------


@semantics("UMEMSETS")
def zeros(i: Instruction, m: Maker) -> Step:
    """``UMEMSETS.64 [URa + offset], URZ, URc``: URc times 8 bytes of shared memory become 0, once a warp. As other
    stores do: nothing in PTX (st.bulk) waits for it."""
    where, count = _address(i, 0), m.raw(i.operands[2])

    def step(k: Cohort) -> None:
        lanes, address = k.lanes, where(k)
        counts = np.broadcast_to(count(k), (k.count, 1))[:, 0].astype(np.int64)
        first = lanes.argmax(axis=1)
        begin = address[np.arange(k.count), first].astype(np.int64)[:, None]
        some: Array = np.asarray(lanes.any(axis=1, keepdims=True))
        nothing = np.zeros((k.count, 32), np.uint32)
        for start in range(0, int(counts.max(initial=0, where=some[:, 0])), 32):
            at = start + LANES
            mask = some & (at < counts[:, None])
            place = (begin + 8 * at).astype(np.uint32)
            try:
                k.wave.shared.store(place, k.blocks, 8, [nothing, nothing], mask)
            except BadAccess as bad:
                row = bad.index // 32
                bad = BadAccess(bad.kind, bad.message, 32 * row + int(first[row]), bad.address)
                raise fault(k, i, bad, 32) from None
            watch(k, i, "shared", place, mask, 8, "write", [nothing, nothing])

    return step


# ---- what has nothing to do here -------------------------------------------------------------------------------------


@semantics("ACQBULK")
def wait_for_grids(i: Instruction, m: Maker) -> Step:
    """griddepcontrol.wait: the launches before have ended in any case; only races can tell."""

    def step(k: Cohort) -> None:
        for observer in k.wave.observers:
            observer.dependency(some_warps(k))

    return step


@semantics("UTMACCTL")
def of_maps(i: Instruction, m: Maker) -> Step:
    """Maps are read when they are used; only races can tell whether that of ``.IV [UR4]``, or all, are renewed."""
    if not {"IV", "IVALL"} & set(i.mods):
        return nothing(i, m)
    mem = i.operands[0] if i.operands else None
    first = mem.ur.index if isinstance(mem, Mem) and isinstance(mem.ur, Reg) else None

    def step(k: Cohort) -> None:
        lanes = k.lanes
        for row in np.flatnonzero(lanes.any(axis=1)).tolist() if k.wave.observers else ():
            address = None
            if first is not None:
                address = int(k.ur(first)[row, 0]) | int(k.ur(first + 1)[row, 0]) << 32
            for observer in k.wave.observers:
                observer.tensor_map(k, i, row, int(lanes[row].argmax()), address)

    return step


@semantics("UBLKPF", "UTMAPF", "PREEXIT", "CGAERRBAR")
def nothing(i: Instruction, m: Maker) -> Step:
    """Prefetches, and what orders grids and clusters."""
    return lambda k: None
