"""Logic, shifts, bit fields and bytes, and their uniform twins.

Sources and ways are those of integer.py: the PTX ISA, what ptxas makes of it, and few passes over the lanes.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from turingas.emulate.arrays import TRUE, ZERO, Array
from turingas.emulate.build import Get, Maker, Step, semantics
from turingas.emulate.cohort import Cohort
from turingas.emulate.results import (
    Out,
    applied,
    constant,
    copied,
    emit,
    is_pt,
    is_zero,
    joined,
    split,
)
from turingas.isa.instruction import Imm, Instruction, Operand, Reg

ALL_ONES = ~ZERO


# ---- logic -------------------------------------------------------------------------------------------------------

Tree = tuple[Any, ...]  # ("a",), ("~", tree), ("&" | "|" | "^", tree, tree)
INPUTS = {0xF0: ("a",), 0xCC: ("b",), 0xAA: ("c",)}


@functools.cache
def expressions() -> dict[int, Tree]:
    """A shortest expression for each truth table of three inputs (bit 4a + 2b + c of a table is the result)."""
    found: dict[int, Tree] = dict(INPUTS)
    by_cost: list[dict[int, Tree]] = [dict(found)]
    while len(found) < 254:  # all but the constants 0 and 0xff
        offers: list[tuple[int, Tree]] = [(t ^ 0xFF, ("~", tree)) for t, tree in by_cost[-1].items()]
        for n, left in enumerate(by_cost):
            for x, tx in left.items():
                for y, ty in by_cost[len(by_cost) - 1 - n].items():
                    offers += [(x & y, ("&", tx, ty)), (x | y, ("|", tx, ty)), (x ^ y, ("^", tx, ty))]
        by_cost.append({t: tree for t, tree in offers if t not in found and t not in (0, 0xFF)})
        found |= by_cost[-1]
    return found


FUNCTIONS = {"&": np.bitwise_and, "|": np.bitwise_or, "^": np.bitwise_xor, "~": np.invert}


def without_constants(table: int, known: Sequence[bool | None]) -> int:
    """The truth table with inputs that are always 0 or 1 (None: vary): it no longer depends on them."""
    for place, value in zip((4, 2, 1), known):
        if value is not None:
            table = sum((table >> (row | place if value else row & ~place) & 1) << row for row in range(8))
    return table


def lookup(table: int, inputs: Sequence[Get], known: Sequence[bool | None], ones: Array) -> Out:
    """A truth table of three values (uint32 or bool; ``ones`` has all bits set), in few operations."""
    table = without_constants(table, known)
    if table in (0, 0xFF):
        return copied(constant(ones if table else ~ones))
    values = dict(zip("abc", inputs))

    def value(tree: Tree) -> Out:
        if tree[0] in values:
            return copied(values[tree[0]])
        f = FUNCTIONS[tree[0]]
        return applied(f, *(get(part) for part in tree[1:]))

    def get(tree: Tree) -> Get:
        if tree[0] in values:
            return values[tree[0]]
        inner = value(tree)
        return lambda k: inner(k, None)

    return value(expressions()[table])


@semantics("LOP3", "ULOP3")
def lop3(i: Instruction, m: Maker) -> Step:
    """d = a truth table of a, b, c; the predicate says whether d is not 0, or (.PAND: and) p."""
    pu, d, a, b, c, lut, p = i.operands
    assert isinstance(lut, Imm), lut
    sources = (a, b, c)
    value = lookup(lut.value, [m.raw(o) for o in sources], [False if is_zero(o) else None for o in sources], ALL_ONES)
    if is_pt(pu):
        return emit(m, d, value)
    put = m.put(d)
    both = np.logical_and if "PAND" in i.mods else np.logical_or
    if is_pt(p, inverted="PAND" not in i.mods):

        def flagged(k: Cohort, out: Any) -> Array:
            result = value(k, None)
            put(k, result)
            return np.not_equal(result, np.uint32(0), out=out)
    else:
        other = m.pred(p)

        def flagged(k: Cohort, out: Any) -> Array:
            result = value(k, None)
            flag = both(result != 0, other(k))
            put(k, result)
            return copied(constant(flag))(k, out)

    return emit(m, pu, flagged)


@semantics("PLOP3", "UPLOP3")
def plop3(i: Instruction, m: Maker) -> Step:
    """Two truth tables of three predicates, or of the signs of registers."""
    pu, pv, *sources, first, second = i.operands
    assert isinstance(first, Imm) and isinstance(second, Imm), i
    inputs = [_truth(m, o) for o in sources]
    known = [True if is_pt(o) else False if is_pt(o, inverted=True) else None for o in sources]
    tables = [(o, lookup(t.value, inputs, known, TRUE)) for o, t in ((pu, first), (pv, second)) if not is_pt(o)]
    if len(tables) == 1:
        return emit(m, *tables[0])
    results = [(m.put(o), value) for o, value in tables]

    def step(k: Cohort) -> None:
        # both are computed before one is written: it may be a source too
        for put, value in [(put, np.array(get(k, None))) for put, get in results]:
            put(k, value)

    return step


def _truth(m: Maker, o: Operand) -> Get:
    if isinstance(o, Reg) and o.file in ("P", "UP"):
        return m.pred(o)
    raw = m.raw(o)
    return lambda k: raw(k).view(np.int32) < 0


# ---- shifts and bit fields ---------------------------------------------------------------------------------------


@semantics("SHF", "USHF")
def shf(i: Instruction, m: Maker) -> Step:
    """One word of the 64 bits c:a, shifted: the lower one, or with .HI the upper one.

    The distance is at most 32 (64 for .S64 and .U64); with .W it wraps there instead.
    """
    d, a, b, c = i.operands
    wide = "U64" in i.mods or "S64" in i.mods
    size = 64 if wide else 32
    left, upper, wrap = "L" in i.mods, "HI" in i.mods, "W" in i.mods
    signed = not left and ("S32" in i.mods or "S64" in i.mods)
    low, high, by = m.raw(a), m.raw(c), m.raw(b)
    if isinstance(b, Imm) or (isinstance(b, Reg) and b.zero):
        bits = b.bits if isinstance(b, Imm) else 0
        s = bits & (size - 1) if wrap else min(bits, size)
        return emit(m, d, _fixed_shift(s, left, upper, signed, (a, low), (c, high)))
    most = np.full((1, 1), size - 1 if wrap else size, np.uint32)
    limit = np.bitwise_and if wrap else np.minimum

    # one word alone decides: numpy shifts by 32 and more as the hardware does, to 0 or to the sign
    if left != upper:
        word = low if left else high

        def single(k: Cohort, out: Any) -> Array:
            count = limit(by(k), most) if wrap else by(k)
            if not signed:
                return (np.left_shift if left else np.right_shift)(word(k), count, out=out)
            value = np.right_shift(word(k).view(np.int32), np.minimum(count, most).view(np.int32)).view(np.uint32)
            return copied(constant(value))(k, out)

        return emit(m, d, single)

    pair = _joined_words(low, high)
    put = m.put(d)

    def step(k: Cohort) -> None:
        both, count = pair(k), limit(by(k), most).astype(np.uint64)
        if left:
            both = both << count
        elif signed:
            both = (both.view(np.int64) >> count.view(np.int64)).view(np.uint64)
        else:
            both = both >> count
        put(k, both.view(np.uint32)[:, 1 if upper else 0 :: 2])

    return step


def _joined_words(low: Get, high: Get) -> Get:
    """Two words as uint64."""

    def get(k: Cohort) -> Array:
        a, b = low(k), high(k)
        both = np.empty((*np.broadcast_shapes(a.shape, b.shape), 2), np.uint32)
        both[..., 0], both[..., 1] = a, b
        return both.view(np.uint64)[..., 0]

    return get


def _fixed_shift(
    s: int, left: bool, upper: bool, signed: bool, low: tuple[Operand, Get], high: tuple[Operand, Get]
) -> Out:
    """SHF by a known distance, 0 to 64."""
    # the word that moves into place whole, and the one whose bits follow it
    if left == upper:
        near, far = (high, low) if left else (low, high)
        if s >= 32:
            near, s = far, s - 32
            far = (Reg("R", 255), constant(ZERO))
            if signed:  # .S64: the sign follows
                return _shift_out(np.right_shift, near[1], s, np.int32)
    else:
        near, far = (low if left else high), (Reg("R", 255), constant(ZERO))
        if signed:
            return _shift_out(np.right_shift, near[1], s, np.int32)
    f, g = (np.left_shift, np.right_shift) if left else (np.right_shift, np.left_shift)
    if s == 0:
        return copied(near[1])
    if is_zero(far[0]):
        return _shift_out(f, near[1], s, np.uint32)
    if is_zero(near[0]):
        return _shift_out(g, far[1], 32 - s, np.uint32)
    x, y, one, other = near[1], far[1], np.full((1, 1), s, np.uint32), np.full((1, 1), 32 - s, np.uint32)
    return lambda k, out: np.bitwise_or(f(x(k), one), g(y(k), other), out=out)


def _shift_out(f: Any, get: Get, by: int, dtype: Any) -> Out:
    count = np.full((1, 1), by, dtype)
    if dtype is np.uint32:
        return lambda k, out: f(get(k), count, out=out)
    return lambda k, out: f(get(k).view(dtype), count, out=None if out is None else out.view(dtype)).view(np.uint32)


@semantics("SGXT", "USGXT")
def sgxt(i: Instruction, m: Maker) -> Step:
    """The lowest b bits of a, extended by their sign or by zeros (PTX szext)."""
    d, a, b = i.operands
    x, y, put = m.raw(a), m.raw(b), m.put(d)
    wrap, dtype = "W" in i.mods, np.uint32 if "U32" in i.mods else np.int32

    def step(k: Cohort) -> None:
        n = y(k) & 31 if wrap else np.minimum(y(k), 32)
        unused = (32 - n).astype(np.uint32)  # all 32 for n = 0, which leaves 0
        put(k, (x(k) << unused).view(dtype) >> unused.view(dtype))

    return step


@semantics("BMSK", "UBMSK")
def bmsk(i: Instruction, m: Maker) -> Step:
    """b ones from bit a on (PTX bmsk)."""
    d, a, b = i.operands
    x, y, put = m.raw(a), m.raw(b), m.put(d)
    wrap, one = "W" in i.mods, np.uint64(1)

    def step(k: Cohort) -> None:
        start, count = ((v & 31 if wrap else np.minimum(v, 32)).astype(np.uint64) for v in (x(k), y(k)))
        put(k, (((one << count) - one) << start).astype(np.uint32))

    return step


@semantics("FLO", "UFLO")
def flo(i: Instruction, m: Maker) -> Step:
    """Place of the highest one, for signed values of the highest bit that differs from the sign (PTX bfind); -1 for
    none. .SH counts from the top. Pu: there is one (measured on an H200)."""
    d, pu, b = i.operands
    get, put, found = m.u32(b), m.put(d), m.put(pu)
    signed, top = "U32" not in i.mods, "SH" in i.mods

    def step(k: Cohort) -> None:
        value = get(k)
        if signed:
            value = value ^ (value.view(np.int32) >> 31).view(np.uint32)
        place = np.frexp(value.astype(np.float64))[1].astype(np.int32) - 1
        put(k, np.where(place < 0, -1, 31 - place if top else place).astype(np.int32))
        found(k, place >= 0)

    return step


#: masks of the bits whose index has bit 0, 1, 2, 3, 4 clear
STRIPES = [np.uint32(n) for n in (0x55555555, 0x33333333, 0x0F0F0F0F, 0x00FF00FF, 0x0000FFFF)]


def reversed_bits(value: Array) -> Array:
    """The bits of uint32 in reverse order: neighbours change places, then pairs of them, and so on."""
    for n, low in enumerate(STRIPES):
        by = np.uint32(1 << n)
        value = value >> by & low | (value & low) << by
    return value


@semantics("BREV", "UBREV")
def brev(i: Instruction, m: Maker) -> Step:
    """The bits in reverse order."""
    get, put = m.raw(i.operands[1]), m.put(i.operands[0])
    return lambda k: put(k, reversed_bits(get(k)))


@semantics("POPC", "UPOPC")
def popc(i: Instruction, m: Maker) -> Step:
    """How many bits are set: sums of neighbours, then of pairs, and so on."""
    get, put = m.u32(i.operands[1]), m.put(i.operands[0])

    def step(k: Cohort) -> None:
        value = get(k)
        for n, low in enumerate(STRIPES):
            value = (value >> np.uint32(1 << n) & low) + (value & low)
        put(k, value)

    return step


# ---- bytes -------------------------------------------------------------------------------------------------------

#: the selectors that a mode of PRMT means, by the lowest two bits of b: byte 0 first
PERMUTES = {
    "F4E": [[n, n + 1, n + 2, n + 3] for n in range(4)],
    "B4E": [[n, n - 1 & 7, n - 2 & 7, n - 3 & 7] for n in range(4)],
    "RC8": [[n] * 4 for n in range(4)],
    "ECL": [[max(n, j) for j in range(4)] for n in range(4)],
    "ECR": [[min(n, j) for j in range(4)] for n in range(4)],
    "RC16": [[2 * (n & 1), 2 * (n & 1) + 1] * 2 for n in range(4)],
}


@semantics("PRMT", "UPRMT")
def prmt(i: Instruction, m: Maker) -> Step:
    """Any four bytes of c:a; bit 3 of a selector takes the byte's sign instead (PTX prmt)."""
    d, a, b, c = i.operands
    mode = PERMUTES.get(i.mods[0]) if i.mods else None
    x, z, by, put = m.raw(a), m.raw(c), m.raw(b), m.put(d)
    if isinstance(b, Imm) or (isinstance(b, Reg) and b.zero):
        bits = b.bits if isinstance(b, Imm) else 0
        known = mode[bits & 3] if mode else [bits >> 4 * j & 15 for j in range(4)]
        return emit(m, d, _fixed_bytes(known, (a, c), (x, z)))
    modes = np.array(mode or [], np.uint8)
    nibbles, words = np.arange(0, 16, 4, dtype=np.uint32), _joined_words(x, z)

    def step(k: Cohort) -> None:
        pair = split(words(k), np.uint8)
        chosen = by(k)
        if mode:
            selectors = modes[chosen & 3]
        else:
            selectors = (chosen[..., None] >> nibbles & 15).astype(np.uint8)
        shape = np.broadcast_shapes(pair.shape[:-1], selectors.shape[:-1])
        selectors = np.broadcast_to(selectors, (*shape, 4))
        part = np.take_along_axis(np.broadcast_to(pair, (*shape, 8)), selectors & 7, axis=-1)
        put(k, joined(np.where(selectors & 8, (part.view(np.int8) >> 7).view(np.uint8), part)))

    return step


def _fixed_bytes(selectors: Sequence[int], operands: Sequence[Operand], words: Sequence[Get]) -> Out:
    """PRMT with known selectors: bytes that move the same way are moved together."""
    groups: dict[tuple[int, int, bool], int] = {}  # (which word, distance or byte, sign): the bytes it fills
    for j, s in enumerate(selectors):
        word, byte, sign = s >> 2 & 1, s & 3, bool(s & 8)
        if not is_zero(operands[word]):
            key = (word, byte if sign else byte - j, sign)
            groups[key] = groups.get(key, 0) | 255 << 8 * j
    parts = [_moved(words[word], n, sign, mask) for (word, n, sign), mask in groups.items()]
    if not parts:
        return copied(constant(ZERO))
    if len(parts) == 1:
        return parts[0]
    *first, last = parts

    def value(k: Cohort, out: Any) -> Array:
        result = first[0](k, None)
        for part in first[1:]:
            result = result | part(k, None)
        return np.bitwise_or(result, last(k, None), out=out)

    return value


def _moved(get: Get, n: int, sign: bool, mask: int) -> Out:
    """A word moved down by n bytes, of which the bytes in mask stay; or the sign of its byte n there."""
    if sign:
        left, right = np.full((1, 1), 24 - 8 * n, np.uint32), np.full((1, 1), 31, np.int32)
        kept = np.full((1, 1), mask, np.uint32)
        signs = lambda k: ((get(k) << left).view(np.int32) >> right).view(np.uint32)  # noqa: E731
        return copied(signs) if mask == 0xFFFFFFFF else applied(np.bitwise_and, signs, constant(kept))
    f, count = (np.right_shift if n > 0 else np.left_shift), np.full((1, 1), 8 * abs(n), np.uint32)
    whole = 0xFFFFFFFF >> 8 * n if n > 0 else 0xFFFFFFFF << -8 * n & 0xFFFFFFFF
    moved = applied(f, get, constant(count)) if n else copied(get)
    if mask == whole:
        return moved
    kept = np.full((1, 1), mask, np.uint32)
    return lambda k, out: np.bitwise_and(moved(k, None), kept, out=out)
