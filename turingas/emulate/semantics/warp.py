"""What the lanes of a warp say to each other, and what the hardware tells them: shuffles, votes, special registers.

The lanes that take part are those that are active and pass the guard (``Cohort.lanes``). What each does follows from
the PTX instruction that it comes from (PTX ISA: shfl.sync, vote.sync, match.sync, redux.sync, elect.sync); the order of
the operands was read off what ptxas 12.9 makes of these.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from turingas.emulate import memory
from turingas.emulate.arrays import LANES, Array
from turingas.emulate.build import Get, Maker, Step, semantics
from turingas.emulate.cohort import Cohort
from turingas.emulate.errors import Unsupported
from turingas.emulate.semantics.floating import extreme32
from turingas.isa.instruction import Imm, Instruction, Name, Operand, Reg

LANE = LANES.astype(np.int32)[None, :]


def ballot(bits: Array) -> Array:
    """(n, 32) bool as masks, bit i for lane i: (n, 1) uint32."""
    return np.packbits(bits, axis=1, bitorder="little").view("<u4")


# ---- shuffles --------------------------------------------------------------------------------------------------------


def _idx(lane: Array, b: Array, low: Array, high: Array, segment: Array) -> tuple[Array, Array]:
    j = low | b & ~segment
    return j, j <= high


def _up(lane: Array, b: Array, low: Array, high: Array, segment: Array) -> tuple[Array, Array]:
    j = lane - b
    return j, j >= high


def _down(lane: Array, b: Array, low: Array, high: Array, segment: Array) -> tuple[Array, Array]:
    j = lane + b
    return j, j <= high


def _bfly(lane: Array, b: Array, low: Array, high: Array, segment: Array) -> tuple[Array, Array]:
    j = lane ^ b
    return j, j <= high


SHUFFLES = {"IDX": _idx, "UP": _up, "DOWN": _down, "BFLY": _bfly}


@semantics("SHFL")
def shfl(i: Instruction, m: Maker) -> Step:
    """``SHFL.mode Pu, Rd, Ra, b, c``: c holds the segment mask (bits 8 to 12) and the clamp (0 to 4). A lane that would
    read beyond its segment gets its own a, and Pu says so. PTX leaves open what an inactive lane gives: it is 0
    (measured on an H200, where a guard left lanes out)."""
    inside, d, a = m.put(i.operands[0]), m.put(i.operands[1]), m.u32(i.operands[2])
    b, c = m.s32(i.operands[3]), m.s32(i.operands[4])
    mode = SHUFFLES[i.mods[0]]

    def given(k: Cohort) -> Array:
        value = k.full(a(k))
        return value if k.mask is None else np.where(k.mask, value, np.uint32(0))

    def source(b: Array, c: Array) -> tuple[Array, Array]:
        """The lane that each lane reads, and whether it lies in the segment."""
        segment, clamp = c >> 8 & 31, c & 31
        low = LANE & segment
        high = low | clamp & ~segment
        j, good = mode(LANE, b & 31, low, high, segment)
        return np.where(good, j, LANE), good

    if isinstance(i.operands[3], Imm) and isinstance(i.operands[4], Imm):
        lanes, good = source(*(np.full((1, 1), o.value, np.int32) for o in i.operands[3:5] if isinstance(o, Imm)))
        lanes = lanes[0]

        def fixed(k: Cohort) -> None:
            value = given(k)[:, lanes]
            inside(k, good)
            d(k, value)

        return fixed

    def step(k: Cohort) -> None:
        lanes, good = source(b(k), c(k))
        value = np.take_along_axis(given(k), k.full(lanes), axis=1)
        inside(k, good)
        d(k, value)

    return step


# ---- votes -----------------------------------------------------------------------------------------------------------


@semantics("VOTE", "VOTEU")
def vote(i: Instruction, m: Maker) -> Step:
    """``VOTE.mode Rd, Pu, !Pp``: Rd is the mask of the lanes that say yes, in every mode; Pu whether all, any, or all
    or none do."""
    d, result, says = m.put(i.operands[0]), m.put(i.operands[1]), m.pred(i.operands[2])
    mode = i.mods[0]

    def step(k: Cohort) -> None:
        lanes = k.lanes
        yes = lanes & says(k)
        some = np.asarray(yes.any(axis=1, keepdims=True))
        every = np.asarray((yes == lanes).all(axis=1, keepdims=True))
        outcome = some if mode == "ANY" else every if mode == "ALL" else every | ~some
        d(k, ballot(yes))
        result(k, outcome)

    return step


@semantics("MATCH")
def match(i: Instruction, m: Maker) -> Step:
    """``MATCH.ANY Rd, Ra``: the mask of the lanes with the same a. ``MATCH.ALL Pu, Rd, Ra``: the mask of all lanes, if
    all have the same, else 0."""
    get: Callable[[Operand], Get] = m.raw64 if "U64" in i.mods else m.raw
    a = get(i.operands[-1])
    d = m.put(i.operands[-2])
    if i.mods[0] == "ALL":
        equal = m.put(i.operands[0])

        def every(k: Cohort) -> None:
            value, lanes = k.full(a(k)), k.lanes
            first = np.take_along_axis(value, lanes.argmax(axis=1)[:, None], axis=1)
            same = ((value == first) | ~lanes).all(axis=1, keepdims=True)
            equal(k, same)
            d(k, ballot(lanes) * same.astype(np.uint32))

        return every

    def step(k: Cohort) -> None:
        value = k.full(a(k))
        same = (value[:, :, None] == value[:, None, :]) & k.lanes[:, None, :]
        d(k, ballot(same.reshape(-1, 32)).reshape(k.count, 32))

    return step


# what an inactive lane adds, and how two values become one
REDUCTIONS: dict[str, tuple[int, np.ufunc]] = {
    "AND": (0xFFFFFFFF, np.bitwise_and),
    "OR": (0, np.bitwise_or),
    "XOR": (0, np.bitwise_xor),
    "SUM": (0, np.add),
    "MIN": (0xFFFFFFFF, np.minimum),
    "MAX": (0, np.maximum),
    "MIN.S32": (0x7FFFFFFF, np.minimum),
    "MAX.S32": (0x80000000, np.maximum),
}


@semantics("REDUX", "CREDUX")
def redux(i: Instruction, m: Maker) -> Step:
    """``REDUX.op URd, Ra``; without an op it is AND. Signs matter to MIN and MAX only. CREDUX has those two, of
    integers and floats."""
    if "F32" in i.mods:
        return redux32(i, m)
    d, a = m.put(i.operands[0]), m.raw(i.operands[1])
    kinds = [mod for mod in i.mods if mod != "S32"]
    op = kinds[0] if kinds else "AND"
    signed = "S32" in i.mods and op in ("MIN", "MAX")
    neutral, combine = REDUCTIONS[op + ".S32" * signed]
    dtype = np.int32 if signed else np.uint32
    nothing = np.uint32(neutral).view(dtype)

    def step(k: Cohort) -> None:
        value = np.where(k.lanes, a(k).view(dtype), nothing)
        d(k, combine.reduce(value, axis=1, keepdims=True, dtype=dtype).view(np.uint32))

    return step


def redux32(i: Instruction, m: Maker) -> Step:
    """The least or the greatest float of the warp."""
    d, source = m.put(i.operands[0]), m.f32(i.operands[1])
    op, nan = i.mods[0], "NAN" in i.mods
    return lambda k: d(k, extreme32(k.full(source(k)), k.lanes, op, nan))


def _bits_of(mask: Get) -> Get:
    """Masks (n, 1) as (n, 32) bool."""

    def bits(k: Cohort) -> Array:
        set_: Array = mask(k) >> LANES & np.uint32(1) != 0
        return set_

    return bits


@semantics("ELECT")
def elect(i: Instruction, m: Maker) -> Step:
    """``ELECT Pu, URd, !Pp`` or, with a mask of lanes, ``ELECT Pu, URd, URa``: one lane gets Pu, all get its number.
    PTX does not say which; it is the lowest (an H100, too)."""
    chosen, d = m.put(i.operands[0]), m.put(i.operands[1])
    who = i.operands[2]
    assert isinstance(who, Reg)
    may = _bits_of(m.u32(who)) if who.file == "UR" else m.pred(who)

    def step(k: Cohort) -> None:
        lanes = k.lanes & may(k)
        leader = lanes.argmax(axis=1).astype(np.uint32)[:, None]
        chosen(k, lanes & (leader == LANES))
        d(k, leader)

    return step


@semantics("RPCMOV")
def rpcmov(i: Instruction, m: Maker) -> Step:
    """``RPCMOV.32 Rpc.LO, Rb`` and ``RPCMOV.32 Rd, Rpc.LO``: each thread's Rpc, by its name a return address. What
    ptxas keeps there, short of registers, it takes back before any call."""
    d, source = i.operands
    if "64" in i.mods:
        raise Unsupported(f"{i.name} (only 32 bits of Rpc)")
    half = int(any(isinstance(o, Name) and o.text == "Rpc.HI" for o in (d, source)))
    if isinstance(source, Name):
        put = m.put(d)
        return lambda k: put(k, k.wave.Rpc[half, k.rows])
    get = m.raw(source)

    def step(k: Cohort) -> None:
        k.wave.Rpc[half, k.rows] = np.where(k.lanes, get(k), k.wave.Rpc[half, k.rows])

    return step


# ---- special registers -----------------------------------------------------------------------------------------------


def _fixed(value: int) -> Get:
    array = np.full((1, 1), value, np.uint32)
    return lambda k: array


def _lanes(values: Array) -> Get:
    array = values.astype(np.uint32)[None, :]
    return lambda k: array


def _tid(axis: int) -> Get:
    return lambda k: k.wave.tid[axis][k.rows]


def _ctaid(axis: int) -> Get:
    return lambda k: k.wave.ctaid[axis][k.rows]


def _tid_packed(k: Cohort) -> Array:
    x, y, z = (k.wave.tid[axis][k.rows] for axis in range(3))
    packed: Array = x | y << np.uint32(16) | z << np.uint32(26)
    return packed


def _warp_of_block(k: Cohort) -> Array:
    """The number of the warp in its block, where hardware has its slot in the SM: bits 8 to 14 (%warpid)."""
    x, y, z = (k.wave.tid[axis][k.rows][:, :1] for axis in range(3))
    nx, ny, _ = k.wave.block
    warp: Array = (x + np.uint32(nx) * (y + np.uint32(ny) * z)) // np.uint32(32)
    found: Array = (warp & np.uint32(127)) << np.uint32(8)
    return found


def _clock(shift: int) -> Get:
    return lambda k: (k.wave.clock[k.rows] >> shift).astype(np.uint32)


def _shared_size(k: Cohort) -> Array:
    return np.full((1, 1), k.wave.shared.nbytes, np.uint32)


#: What S2R and its like read, by the name of the special register. There is one SM, number 0.
#: A nanosecond of the global timer is a cycle. What PTX's registers become is seen in ptxas' output; the packing of
#: SR_TID (x, y from bit 16, z from bit 26) is that of Maxwell, as emulators of its shaders have it.
SPECIAL: dict[str, Get] = {
    "SR_LANEID": _lanes(LANES),
    "SR_TID": _tid_packed,
    "SR_TID.X": _tid(0),
    "SR_TID.Y": _tid(1),
    "SR_TID.Z": _tid(2),
    "SR_CTAID.X": _ctaid(0),
    "SR_CTAID.Y": _ctaid(1),
    "SR_CTAID.Z": _ctaid(2),
    "SR_EQMASK": _lanes(1 << LANE[0].astype(np.int64)),
    "SR_LTMASK": _lanes((1 << LANE[0].astype(np.int64)) - 1),
    "SR_LEMASK": _lanes((2 << LANE[0].astype(np.int64)) - 1),
    "SR_GTMASK": _lanes(0x1_0000_0000 - (2 << LANE[0].astype(np.int64))),
    "SR_GEMASK": _lanes(0x1_0000_0000 - (1 << LANE[0].astype(np.int64))),
    "SR_VIRTID": _warp_of_block,
    "SR_VIRTUALSMID": _fixed(0),
    "SR_SMEMSZ": _shared_size,
    "SR_SWINHI": _fixed(memory.SHARED_WINDOW),
    "SR_LWINHI": _fixed(memory.LOCAL_WINDOW),
    "SR_LMEMHIOFF": _fixed(0),  # where the stack ends: ptxas' code at -O0 traps when R1 falls below it
    "SR_CgaSize": _fixed(0),  # isa/arch.py says what of
    "SR_CgaCtaId": lambda k: k.wave.rank[k.rows],
    "SR_CLOCK": _clock(0),
    "SR_CLOCKLO": _clock(0),
    "SR_CLOCKHI": _clock(32),
    "SR_GLOBALTIMERLO": _clock(0),
    "SR_GLOBALTIMERHI": _clock(32),
    **{f"SR_PM{n}": _fixed(0) for n in range(8)},
    **{f"SR_PM_HI{n}": _fixed(0) for n in range(8)},
    "SRZ": _fixed(0),
}

#: what CS2R of 64 bits reads beside the register it names
UPPER = {
    "SR_CLOCKLO": "SR_CLOCKHI",
    "SR_GLOBALTIMERLO": "SR_GLOBALTIMERHI",
    **{f"SR_PM{n}": f"SR_PM_HI{n}" for n in range(8)},
    "SRZ": "SRZ",
}


def special(o: Operand, m: Maker) -> tuple[str, Get]:
    """The name of a special register, and what reads it. Unsupported names those that have no meaning here."""
    assert isinstance(o, Name), o
    if o.text == "SR_VIRTCFG":  # %nwarpid: bits 8 to 15
        return o.text, _fixed(m.arch.max_warps << 8)
    found = SPECIAL.get(o.text)
    if found is None:
        raise Unsupported(f"the emulator has no special register {o.text}")
    return o.text, found


@semantics("S2R", "S2UR")
def s2r(i: Instruction, m: Maker) -> Step:
    """``S2R Rd, name``."""
    d, (_, value) = m.put(i.operands[0]), special(i.operands[1], m)
    return lambda k: d(k, value(k))


@semantics("CS2R", "CS2UR")
def cs2r(i: Instruction, m: Maker) -> Step:
    """``CS2R Rd, name``: 64 bits unless ``.32``."""
    if "32" in i.mods:
        return s2r(i, m)
    name, low = special(i.operands[1], m)
    if name not in UPPER:
        raise Unsupported(f"64 bits of the special register {name}")
    high = SPECIAL[UPPER[name]]
    d = i.operands[0]
    assert isinstance(d, Reg)
    if d.zero:
        return lambda k: None
    put_low, put_high = m.put(d), m.put(Reg(d.file, d.index + 1))

    def step(k: Cohort) -> None:
        put_low(k, low(k))
        put_high(k, high(k))

    return step
