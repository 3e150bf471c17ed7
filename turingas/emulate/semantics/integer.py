"""Integer arithmetic, moves and comparisons, and their uniform twins; bits.py has logic, shifts and bytes.

What they mean follows from the PTX ISA (each of them implements a PTX instruction) and from what ptxas makes of it:
the order of operands, which word of a 64-bit operation an instruction computes, how carries pass from one to the next.
``tests/emulate/test_integer.py`` lists what no source tells.

IADD3, IMAD, LOP3, ISETP, SHF, LEA, SEL and MOV make up most of what a kernel runs. Their steps take as few passes over
the lanes as numpy allows: terms that are RZ are dropped when the step is built, carries are computed only where a
predicate takes them, and the last operation writes to the register itself where no mask forbids it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from turingas.emulate.arrays import TRUE, ZERO, Array
from turingas.emulate.build import Get, Maker, Put, Step, only, semantics
from turingas.emulate.cohort import Cohort
from turingas.emulate.errors import Unsupported
from turingas.emulate.results import (
    Out,
    applied,
    constant,
    copied,
    emit,
    is_one,
    is_pt,
    is_zero,
    joined,
    put64,
    select,
    split,
    u64,
)
from turingas.isa.instruction import Const, Imm, Instruction, Operand, Reg

FALSE = ~TRUE


# ---- adding, with and without carries ----------------------------------------------------------------------------


def total(gets: Sequence[Get], negated: Sequence[bool]) -> Out:
    """The sum of the terms, without carries."""
    plus = [g for g, n in zip(gets, negated) if not n]
    minus = [g for g, n in zip(gets, negated) if n]
    if not plus and not minus:
        return copied(constant(ZERO))
    if len(plus) == 1 and not minus:
        return copied(plus[0])
    if not plus and len(minus) == 1:
        return applied(np.negative, minus[0])
    if not plus:
        negative, *minus = minus
        plus.append(lambda k: -negative(k))
    chain = [(np.add, g) for g in plus[1:]] + [(np.subtract, g) for g in minus]
    first, (last, final) = plus[0], chain.pop()
    if not chain:
        return applied(last, first, final)
    (middle, second), *more = chain

    def value(k: Cohort, out: Any) -> Array:
        result = middle(first(k), second(k))
        for f, get in more:  # carries in, beside three terms
            result = f(result, get(k))
        return last(result, final(k), out=out)

    return value


def carries(terms: Sequence[Get]) -> Callable[[Cohort], tuple[Array, list[Array]]]:
    """Unsigned sum of the terms (uint32 or uint64), and one array of bool for each addition: whether it overflowed."""

    def add(k: Cohort) -> tuple[Array, list[Array]]:
        value, over = terms[0](k), []
        for term in terms[1:]:
            t = term(k)
            value = value + t
            over.append(value < t)
        return value, over

    return add


def adder(m: Maker, out: Operand, predicates: Sequence[Operand], terms: list[Get], wide: bool = False) -> Step:
    """Writes the sum of terms and its carries: one that is set says that the sum reached 2**32 (2**64 with ``wide``),
    two of them that it did so twice. A carry of 2 needs three terms, and then both predicates are there to take it."""
    add = carries(terms)
    put = (put64 if wide else Maker.put)(m, out)
    puts = [m.put(p) for p in predicates]
    second = len(puts) > 1 and not is_pt(predicates[1])

    def step(k: Cohort) -> None:
        value, over = add(k)
        put(k, value)
        if len(over) < 2:
            once, twice = over[0] if over else FALSE, FALSE
        else:
            count = functools.reduce(np.add, (o.view(np.uint8) for o in over))
            once, twice = count > 0, count > 1
        puts[0](k, once)
        if second:
            puts[1](k, twice)

    return step


def carry_terms(gets: Sequence[Get], operands: Sequence[Operand], one: Array) -> list[Get]:
    """The terms of a sum with carries: ``-x`` is ``~x + 1``, whose carry for x = 0 must not be lost."""
    terms: list[Get] = []
    for get, o in zip(gets, operands):
        if getattr(o, "neg", False):
            terms += [_inverted(get), constant(one)]
        elif not is_zero(o):
            terms.append(get)
    return terms or [constant(one ^ one)]


def _inverted(get: Get) -> Get:
    return lambda k: ~get(k)


def carry_in(m: Maker, predicates: Sequence[Operand], dtype: Any = np.uint32) -> list[Get]:
    """Predicates that are added, as numbers."""

    def number(get: Get) -> Get:
        return lambda k: get(k).astype(dtype)

    return [number(m.pred(p)) for p in predicates if not is_pt(p, inverted=True)]


@semantics("IADD3", "UIADD3")
def iadd3(i: Instruction, m: Maker) -> Step:
    """d = a + b + c, and with .X two carries in."""
    d, pu, pv, *sources = i.operands
    wide, extended = "64" in i.mods, "X" in i.mods
    sources, into = sources[:3], sources[3:] if extended else []
    dtype = np.uint64 if wide else np.uint32
    # a negated term keeps its sign apart; an inverted one is inverted when read
    raw = [(u64 if wide else Maker.u32)(m, _plain(o)) for o in sources]
    incoming = carry_in(m, into, dtype)
    if not (is_pt(pu) and is_pt(pv)):
        terms = carry_terms(raw, sources, np.ones((1, 1), dtype)) + incoming
        live = [(g, bool(getattr(o, "neg", False))) for g, o in zip(raw, sources)]
        live = [(g, n) for (g, n), o in zip(live, sources) if n or not is_zero(o)]
        if not wide and not incoming and is_pt(pv) and sorted(n for _, n in live) == [False, True]:
            return _difference(m, d, pu, *(g for g, _ in sorted(live, key=lambda t: t[1])))
        return adder(m, d, (pu, pv), terms, wide)
    live = [(g, bool(getattr(o, "neg", False))) for g, o in zip(raw, sources) if not is_zero(o)]
    live += [(g, False) for g in incoming]
    if wide:
        put = put64(m, d)
        zero = np.zeros((1, 1), np.uint64)
        return lambda k: put(k, functools.reduce(np.add, (-g(k) if n else g(k) for g, n in live), zero))
    return emit(m, d, total([g for g, _ in live], [n for _, n in live]))


def _plain(o: Operand) -> Operand:
    """An operand without its ``-``."""
    if isinstance(o, Reg):
        return Reg(o.file, o.index, o.words, inv=o.inv, place=o.place)
    if isinstance(o, Const):
        return Const(o.bank, o.offset, o.ur, inv=o.inv)
    return o


def _difference(m: Maker, d: Operand, pu: Operand, a: Get, b: Get) -> Step:
    """d = a - b; the carry says a >= b."""
    put, carry = m.put(d), m.put(pu)

    def step(k: Cohort) -> None:
        x, y = a(k), b(k)
        over = x >= y
        put(k, x - y)
        carry(k, over)

    return step


@semantics("IADD")
def iadd(i: Instruction, m: Maker) -> Step:
    """d = a + b: IADD3 without a third term and with one carry."""
    d, pu, a, b, *into = i.operands
    none = Reg("P", 7, inv=True)
    both = (d, pu, Reg("P", 7, write=True), a, b, Reg("R", 255), *into, *[none] * bool(into))
    return iadd3(i._replace(base="IADD3", operands=both), m)


@semantics("LEA", "ULEA")
def lea(i: Instruction, m: Maker) -> Step:
    """d = (a << shift) + b; .HI takes the upper word of c:a instead (.SX32: c is the sign of a)."""
    d, pu, a, b, *rest = i.operands
    extended = "X" in i.mods
    into = [rest.pop()] if extended else []
    shift = rest.pop()
    assert isinstance(shift, Imm), shift
    s = shift.value
    low = m.raw(a)
    if "HI" not in i.mods:
        moved = _shifted(np.left_shift, low, s, np.uint32)
    elif "SX32" in i.mods:
        moved = _shifted(np.right_shift, low, min(32 - s, 31), np.int32)
    elif s == 0:
        moved = m.raw(rest[0])
    elif is_zero(rest[0]):
        moved = _shifted(np.right_shift, low, 32 - s, np.uint32)
    else:
        high, left, right = m.raw(rest[0]), np.full((1, 1), s, np.uint32), np.full((1, 1), 32 - s, np.uint32)
        moved = lambda k: high(k) << left | low(k) >> right  # noqa: E731
    if getattr(a, "inv", False):
        moved = _inverted(moved)
    raw = [moved, m.u32(_plain(b))]
    signs = [bool(getattr(o, "neg", False)) for o in (a, b)]
    incoming = carry_in(m, into)
    if not is_pt(pu):
        if not incoming and signs == [True, False]:
            return _difference(m, d, pu, raw[1], raw[0])
        if not incoming and signs == [False, True]:
            return _difference(m, d, pu, raw[0], raw[1])
        # a is a term of its own even where it is RZ: ~RZ << s is all ones
        terms = [g for get, n in zip(raw, signs) for g in ([_inverted(get), constant(ZERO + 1)] if n else [get])]
        return adder(m, d, (pu,), terms + incoming)
    live = list(zip(raw, signs))
    if is_zero(b):
        live.pop()
    return emit(m, d, total([*(g for g, _ in live), *incoming], [*(n for _, n in live), *(False for _ in incoming)]))


def _shifted(f: Any, get: Get, by: int, dtype: Any) -> Get:
    """Shifts by a constant; from 32 on nothing (or the sign) is left."""
    if by == 0:
        return get
    count = np.full((1, 1), by, dtype)
    if dtype is np.uint32:
        return lambda k: f(get(k), count)
    return lambda k: f(get(k).view(dtype), count).view(np.uint32)


#: of a sum: the type of its parts. Signs matter where it saturates
SUMMED: dict[str, Any] = {
    "16x2": np.uint16, "S16x2": np.int16, "U8x4": np.uint8, "S8x4": np.int8, "S32": np.int32, "32": np.uint32,
}  # fmt: skip


@semantics("VIADD", "UVIADD")
def viadd(i: Instruction, m: Maker) -> Step:
    """d = a + b, or each half or byte for itself; with .ISAT a sum beyond its type is the end of its range (PTX
    add.sat)."""
    only(i, "ISAT", *SUMMED)
    d, a, b = i.operands
    negative = [bool(getattr(o, "neg", False)) for o in (a, b)]
    kind = SUMMED[next((mod for mod in i.mods if mod in SUMMED), "32")]
    saturates, width = "ISAT" in i.mods, np.dtype(kind).itemsize
    if width == 4 and not saturates:
        return emit(m, d, total([m.u32(_plain(o)) for o in (a, b)], negative))
    (x, y), put, ends = (m.raw(_plain(o)) for o in (a, b)), m.put(d), np.iinfo(kind)

    def step(k: Cohort) -> None:
        left, right = (split(get(k), kind).astype(np.int64) for get in (x, y))
        value = (-left if negative[0] else left) + (-right if negative[1] else right)
        put(k, joined((np.clip(value, ends.min, ends.max) if saturates else value).astype(kind)))

    return step


# ---- multiplying -------------------------------------------------------------------------------------------------


@semantics("IMAD", "UIMAD")
def imad(i: Instruction, m: Maker) -> Step:
    """d = a * b + c. .MOV, .IADD and .SHL are names for products that are easy to see."""
    if "WIDE" in i.mods or "HI" in i.mods:
        return imad_wide(i, m)
    d, a, b, c, *into = i.operands
    incoming = carry_in(m, into)
    addend = [] if is_zero(c) else [(m.u32(_plain(c)), bool(getattr(c, "neg", False)))]
    addend += [(g, False) for g in incoming]
    x, y = m.raw(a), m.raw(b)
    if is_zero(a) or is_zero(b):
        return emit(m, d, total([g for g, _ in addend], [n for _, n in addend]))
    if is_one(a) or is_one(b):
        terms = [(y if is_one(a) else x, False), *addend]
        return emit(m, d, total([g for g, _ in terms], [n for _, n in terms]))
    if not addend:
        return emit(m, d, applied(np.multiply, x, y))
    if len(addend) == 1:
        ((z, negative),) = addend
        f = np.subtract if negative else np.add
        return emit(m, d, lambda k, out: f(np.multiply(x(k), y(k)), z(k), out=out))
    terms = [(lambda k: np.multiply(x(k), y(k)), False), *addend]
    return emit(m, d, total([g for g, _ in terms], [n for _, n in terms]))


def imad_wide(i: Instruction, m: Maker) -> Step:
    """.WIDE: a pair d = a * b + a pair c, with a carry out of bit 63; .HI: the upper word of that."""
    d, pu, a, b, c, *into = i.operands
    dtype: Any = np.uint64 if "U32" in i.mods else np.int64
    half: Any = np.uint32 if "U32" in i.mods else np.int32
    x, y, z = m.raw(a), m.raw(b), u64(m, _plain(c))
    negative = bool(getattr(c, "neg", False))

    if "WIDE" in i.mods and is_pt(pu) and not into and not negative and isinstance(b, Imm):
        shift = b.bits.bit_length() - 1
        if 0 < shift < (32 if "U32" in i.mods else 31) and b.bits == 1 << shift:  # signed, 0x80000000 is -2^31
            return _scaled_address(m, d, x, shift, c, half)

    def product(k: Cohort) -> Array:
        return np.multiply(x(k).view(half), y(k).view(half), dtype=dtype).view(np.uint64)

    put = _put_upper(m, d) if "HI" in i.mods else put64(m, d)

    incoming = carry_in(m, into, np.uint64)
    if not is_pt(pu):
        one = np.ones((1, 1), np.uint64)
        add = carries([product, *([_inverted(z), constant(one)] if negative else [z]), *incoming])
        carry = m.put(pu)

        def step(k: Cohort) -> None:
            value, over = add(k)
            put(k, value)
            carry(k, functools.reduce(np.logical_or, over))

        return step
    if incoming:
        (one_more,) = incoming
        return lambda k: put(k, (product(k) - z(k) if negative else product(k) + z(k)) + one_more(k))
    if is_zero(c):
        return lambda k: put(k, product(k))
    final = np.subtract if negative else np.add

    def last(k: Cohort) -> None:
        value, more = product(k), z(k)
        fits = value.shape[0] >= more.shape[0] and value.shape[1] >= more.shape[1]
        put(k, final(value, more, out=value if fits else None))

    return last


def _scaled_address(m: Maker, d: Operand, a: Get, shift: int, c: Operand, half: Any) -> Step:
    """A pair d = (a << shift) + a pair c, a word at a time: how kernels find the place of an element."""
    assert isinstance(d, Reg) and isinstance(c, Reg), (d, c)  # beside an immediate c is a register
    put_low, put_high = m.put(Reg(d.file, d.index)), m.put(Reg(d.file, d.index + (not d.zero)))
    left, right = np.full((1, 1), shift, np.uint32), np.full((1, 1), 32 - shift, half)
    low, high = m.raw(Reg(c.file, c.index)), m.raw(Reg(c.file, c.index + (not c.zero)))

    def step(k: Cohort) -> None:
        x, z = a(k), low(k)
        lower, upper = (x << left) + z, (x.view(half) >> right).view(np.uint32) + high(k)
        upper = upper + (lower < z).astype(np.uint32)
        put_low(k, lower)
        put_high(k, upper)

    return step


def _put_upper(m: Maker, o: Operand) -> Put:
    """Writes the upper words of an array of uint64."""
    put = m.put(o)
    return lambda k, value: put(k, value.view(np.uint32)[:, 1::2])


@semantics("CLMAD")
def clmad(i: Instruction, m: Maker) -> Step:
    """The lower or upper 64 bits of the product of a and b without carries, exclusive or c (measured on an H200)."""
    d, a, b, c = i.operands
    x, y, z, put, upper = u64(m, a), u64(m, b), u64(m, c), put64(m, d), "HI" in i.mods

    def step(k: Cohort) -> None:
        p, q, value = x(k), y(k), z(k).copy()
        for n in range(64):
            by = np.uint64(n)
            part = (p >> np.uint64(64 - n) if n else p ^ p) if upper else p << by
            value = value ^ part * (q >> by & np.uint64(1))
        put(k, value)

    return step


@semantics("IDP")
def idp(i: Instruction, m: Maker) -> Step:
    """Dot product of 4 bytes (.4A), or of 2 halves of a and the lower or upper 2 bytes of b (.2A), plus c."""
    d, a, b, c = i.operands
    size = 8 if "4A" in i.mods else 16
    kinds = [t for t in i.mods if t[0] in "US" and t[1:].isdecimal()]
    kind_a = {"U8": np.uint8, "S8": np.int8, "U16": np.uint16, "S16": np.int16}[kinds[0]]
    kind_b = {"U8": np.uint8, "S8": np.int8}[kinds[1]]
    first = 2 if "HI" in i.mods else 0
    x, y, z, put = m.raw(a), m.raw(b), m.u32(c), m.put(d)

    def step(k: Cohort) -> None:
        p, q = split(x(k), kind_a), split(y(k), kind_b)
        value = z(k)
        for n in range(32 // size):
            value = value + (p[..., n].astype(np.int32) * q[..., first + n].astype(np.int32)).view(np.uint32)
        put(k, value)

    return step


@semantics("VABSDIFF")
def vabsdiff(i: Instruction, m: Maker) -> Step:
    """d = |a - b| + c; Pu is the carry of that sum (measured on an H200)."""
    d, pu, a, b, c = i.operands
    dtype: Any = np.uint32 if "U32" in i.mods else np.int32
    x, y, z = m.raw(a), m.raw(b), m.raw(c)
    return adder(m, d, (pu,), [lambda k: distance(x(k).view(dtype), y(k).view(dtype)).view(np.uint32), z])


@semantics("VABSDIFF4")
def vabsdiff4(i: Instruction, m: Maker) -> Step:
    """|a - b| of each byte; with .ACC their sum plus c, and Pu its carry, which is false without (measured on an
    H200)."""
    d, pu, a, b, c = i.operands
    dtype: Any = np.uint8 if "U8" in i.mods else np.int8
    x, y, z, put, carry = m.raw(a), m.raw(b), m.raw(c), m.put(d), m.put(pu)

    def each(k: Cohort) -> Array:
        return distance(split(x(k), dtype), split(y(k), dtype)).view(np.uint8)

    if "ACC" in i.mods:
        return adder(m, d, (pu,), [lambda k: each(k).sum(axis=-1, dtype=np.uint32), z])

    def step(k: Cohort) -> None:
        put(k, joined(each(k)))
        carry(k, FALSE)

    return step


def distance(a: Array, b: Array) -> Array:
    """|a - b|, whose bits are those of an unsigned number."""
    return np.maximum(a, b) - np.minimum(a, b)


# ---- minimum, maximum, absolute value -----------------------------------------------------------------------------


@semantics("IABS", "UIABS")
def iabs(i: Instruction, m: Maker) -> Step:
    """|b|; that of -2**31 is itself."""
    get = m.raw(i.operands[1])
    return emit(m, i.operands[0], copied(lambda k: np.absolute(get(k).view(np.int32)).view(np.uint32)))


def _kind(i: Instruction) -> Any:
    """The type of a comparison that names it in a modifier."""
    kinds = {"U32": np.uint32, "U16x2": np.uint16, "S16x2": np.int16, "U8x4": np.uint8, "S8x4": np.int8}
    return next((kinds[x] for x in i.mods if x in kinds), np.int32)


def _extreme(m: Maker, p: Operand) -> Callable[[Cohort, Array, Array], Array]:
    """Minimum where a predicate is true, maximum elsewhere, of arrays (n, 32) or (n, 32, parts)."""
    if is_pt(p) or is_pt(p, inverted=True):
        f = np.minimum if is_pt(p) else np.maximum
        return lambda k, a, b: f(a, b)
    get = m.pred(p)

    def either(k: Cohort, a: Array, b: Array) -> Array:
        wanted = get(k)
        return np.where(wanted[..., None] if a.ndim == 3 else wanted, np.minimum(a, b), np.maximum(a, b))

    return either


@semantics("IMNMX", "UIMNMX", "VIMNMX", "UVIMNMX", "VIMNMX3", "VIADDMNMX")
def imnmx(i: Instruction, m: Maker) -> Step:
    """Minimum where the predicate is true, else maximum: of two, of three, or of a + b and c; .RELU: at least 0.

    VIMNMX's predicates say of the lower and of the upper half whether the result is a.
    """
    if {"U64", "S64"} & set(i.mods):
        return imnmx64(i, m)
    kind = _kind(i)
    packed = np.dtype(kind).itemsize < 4
    d, *rest = i.operands
    chosen = [rest.pop(0), rest.pop(0)] if len(rest) == 5 else []
    *sources, p = rest
    extreme, relu, added = _extreme(m, p), "RELU" in i.mods, i.base == "VIADDMNMX"

    def reader(get: Get) -> Get:
        return (lambda k: split(get(k), kind)) if packed else (lambda k: get(k).view(kind))

    terms = [reader(m.raw(o)) for o in sources]
    subtract = added and bool(getattr(sources[1], "neg", False))
    put, wanted = m.put(d), [(n, m.put(c)) for n, c in enumerate(chosen) if not is_pt(c)]

    def step(k: Cohort) -> None:
        values = [t(k) for t in terms]
        if added:
            a, b, c = values
            values = [a - b if subtract else a + b, c]
        value = functools.reduce(lambda x, y: extreme(k, x, y), values)
        if relu:
            value = np.maximum(value, kind(0))
        took = value == values[0]
        put(k, joined(value) if packed else value.view(np.uint32))
        for n, keep in wanted:
            keep(k, took[..., n])

    return step


def imnmx64(i: Instruction, m: Maker) -> Step:
    """The same of pairs of registers. What its predicates are for is not known: ptxas leaves them unused."""
    pu, pv, d, a, b, p, q = i.operands
    if not (is_pt(pu) and is_pt(pv) and is_pt(q, inverted=True)):
        raise Unsupported(f"{i.base} of 64 bits with predicates")
    dtype = np.int64 if "S64" in i.mods else np.uint64
    extreme, x, y, put = _extreme(m, p), u64(m, a), u64(m, b), put64(m, d)
    return lambda k: put(k, extreme(k, k.full(x(k)).view(dtype), k.full(y(k)).view(dtype)))


# ---- moves -------------------------------------------------------------------------------------------------------


@semantics("MOV", "UMOV")
def mov(i: Instruction, m: Maker) -> Step:
    """d = b. The mask of MOV picks lanes of each quad (lane 4n + j by bit j), the others keep what they have."""
    d, b, *rest = i.operands
    if "64" in i.mods:
        put, both = put64(m, d), u64(m, b)
        return lambda k: put(k, both(k))
    get = m.raw(b)
    mask = rest[0].value if rest and isinstance(rest[0], Imm) else 15
    if mask == 15:
        return emit(m, d, copied(get))
    quads = np.array([[mask >> n % 4 & 1 for n in range(32)]], bool)
    old = m.raw(d)
    return emit(m, d, copied(lambda k: np.where(quads, get(k), old(k))))


@semantics("SEL", "USEL")
def sel(i: Instruction, m: Maker) -> Step:
    """a where the predicate is true, else b."""
    d, a, b, p = i.operands
    if "64" in i.mods:
        put, first, one, other = put64(m, d), m.pred(p), u64(m, a), u64(m, b)
        return lambda k: put(k, np.where(first(k), one(k), other(k)))
    x, y = (constant(ZERO) if is_zero(o) else m.raw(o) for o in (a, b))
    if is_pt(p) or is_pt(p, inverted=True):
        return emit(m, d, copied(x if is_pt(p) else y))
    get = m.pred(p)
    return emit(m, d, lambda k, out: select(get(k), x(k), y(k), out))


@semantics("R2UR")
def r2ur(i: Instruction, m: Maker) -> Step:
    """A uniform register takes the value of the first lane that takes part. Pu: the lane's own value differs (ptxas
    wraps ARRIVES.LDGSTSBAR [UR] in a loop that the lanes leave which find Pu false); with .OR also where Pu was true
    before (measured on an H200)."""
    pu, d, a = i.operands
    before = m.pred(pu)
    get, put, differs = m.raw(a), m.put(d), m.put(pu)
    if is_pt(pu):
        return lambda k: put(k, get(k))

    def step(k: Cohort) -> None:
        value = k.full(get(k))
        put(k, value)
        found = value != np.take_along_axis(value, k.lanes.argmax(axis=1)[:, None], axis=1)
        differs(k, found | before(k) if "OR" in i.mods else found)

    return step


def _byte(o: Operand, i: Instruction) -> int:
    """Which byte of a register takes or gives predicates (.B1 ...): a modifier of P2R, a suffix of R2P's source."""
    names = [*i.mods, getattr(o, "suffix", "").lstrip(".")]
    return next((int(n[1]) for n in names if n in ("B1", "B2", "B3")), 0)


@semantics("P2R", "UP2UR")
def p2r(i: Instruction, m: Maker) -> Step:
    """A byte of a takes the predicates that the mask names, one a bit."""
    d, _, a, mask = i.operands
    shift = 8 * _byte(d, i)
    file = "UP" if i.base == "UP2UR" else "P"
    flags = [(n, m.pred(Reg(file, n))) for n in range(7)]
    old, wanted, put = m.raw(a), m.raw(mask), m.put(d)
    if isinstance(mask, Imm):
        flags = [(n, get) for n, get in flags if mask.bits >> n & 1]

    def step(k: Cohort) -> None:
        bits = ZERO
        for n, get in flags:
            bits = bits | get(k).astype(np.uint32) << np.uint32(n)
        chosen = wanted(k) & 0xFF
        put(k, old(k) & ~(chosen << shift) | (bits & chosen) << shift)

    return step


@semantics("R2P", "UR2UP")
def r2p(i: Instruction, m: Maker) -> Step:
    """The predicates that the mask names take bits of a byte of a."""
    _, a, mask = i.operands
    shift = 8 * _byte(a, i)
    file = "UP" if i.base == "UR2UP" else "P"
    flags = [(n, m.pred(Reg(file, n)), m.put(Reg(file, n))) for n in range(7)]
    get, wanted = m.raw(a), m.raw(mask)
    if isinstance(mask, Imm):
        known = [(np.uint32(1 << shift + n), put) for n, _, put in flags if mask.bits >> n & 1]

        def fixed(k: Cohort) -> None:
            value = get(k)
            for bit, put in known:
                put(k, value & bit != 0)

        return fixed

    def step(k: Cohort) -> None:
        value, chosen = get(k) >> shift, wanted(k)
        for n, old, put in flags:
            put(k, np.where(chosen >> n & 1, (value >> n & 1).astype(bool), old(k)))

    return step


# ---- comparisons -------------------------------------------------------------------------------------------------

COMPARE: dict[str, Any] = {
    "LT": np.less, "EQ": np.equal, "LE": np.less_equal, "GT": np.greater, "NE": np.not_equal, "GE": np.greater_equal,
}  # fmt: skip
STRICT = {"LT": "LT", "LE": "LT", "GT": "GT", "GE": "GT"}
BOOLEAN: dict[str, Any] = {"AND": np.logical_and, "OR": np.logical_or, "XOR": np.logical_xor}


@semantics("ISETP", "UISETP")
def isetp(i: Instruction, m: Maker) -> Step:
    """u = (a op b) and/or/xor p; v = the same with !(a op b). .EX compares upper words: where they are equal the result
    is that of the lower ones, r."""
    pu, pv, a, b, p, *rest = i.operands
    name = i.mods[0]
    wide = bool({"U64", "S64"} & set(i.mods))
    dtype: Any = np.dtype(f"{'u' if {'U32', 'U64'} & set(i.mods) else 'i'}{8 if wide else 4}")
    x, y = (u64(m, a), u64(m, b)) if wide else (m.raw(a), m.raw(b))
    strict = COMPARE.get(STRICT.get(name, ""), np.equal)
    flag = next(n for n in BOOLEAN if n in i.mods)

    result: Out
    if name in ("F", "T"):
        result = copied(constant(TRUE if name == "T" else FALSE))
    elif "EX" not in i.mods:
        f = COMPARE[name]
        result = lambda k, out: f(x(k).view(dtype), y(k).view(dtype), out=out)  # noqa: E731
    else:
        lower = m.pred(rest[0])

        def result(k: Cohort, out: Any) -> Array:
            one, other, low = x(k).view(dtype), y(k).view(dtype), lower(k)
            if name == "NE":
                return np.logical_or(one != other, low, out=out)
            if name == "EQ":
                return np.logical_and(one == other, low, out=out)
            return np.logical_or(strict(one, other), np.logical_and(one == other, low), out=out)

    plain = is_pt(p) if flag == "AND" else is_pt(p, inverted=True)
    both, other = BOOLEAN[flag], m.pred(p)
    if is_pt(pv):
        return emit(m, pu, result if plain else lambda k, out: both(result(k, None), other(k), out=out))
    first, second = m.put(pu), m.put(pv)

    def step(k: Cohort) -> None:
        true, also = result(k, None), other(k)
        u, v = both(true, also), both(~true, also)
        first(k, u)
        second(k, v)

    return step
