"""FP32 and FP64 arithmetic. Exact: one rounding, in the mode that the instruction names. What is known of the rest:

* FP32: a NaN that is computed is 0x7fffffff (CUDA programming guide). ``.FTZ`` flushes denormal sources and results to
  zeros of their sign; a result is rounded first and flushed then (``rounding.result32`` says how). ``.FMZ`` also makes
  0 * x = +0 whatever x is (D3D9's rule). ``.SAT`` clamps to [0, 1], and makes NaN +0.
* FP64: the payload of a NaN survives, and "-" and "|x|" leave NaNs alone (PTX ISA, CUDA programming guide); of
  several NaNs that of the second source does, then that of the third (measured on an H200).

FFMA, FADD and FMUL have a fast way for round to nearest: a fused product in double is right unless it lies halfway
between two float32, or the result is denormal; such elements, and NaNs, are looked for and done once more exactly.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np

from turingas.emulate.arrays import Array
from turingas.emulate.build import Get, Maker, Step, only, semantics
from turingas.emulate.cohort import Cohort
from turingas.emulate.errors import Unsupported
from turingas.emulate.rounding import (
    EXPONENT32,
    NAN32,
    SIGN32,
    add64,
    finish32,
    flush32,
    fma64,
    mul64,
    nan64,
    result32,
    round32,
    sum_to_odd,
)
from turingas.emulate.semantics.compare import BOOLEANS, COMPARE, comparison, is_size, put_two
from turingas.isa.instruction import Const, Imm, Instruction, Operand, Reg

ROUNDINGS = ("RM", "RP", "RZ")
SCALES = {"D8": 0.125, "D4": 0.25, "D2": 0.5, "M2": 2.0, "M4": 4.0, "M8": 8.0}
HALFWAY = np.iinfo(np.int64).min  # the bits below a float32's, shifted to the top, when they say one half
LEAST32 = np.uint32(0x01000001)  # above the least normal float32, shifted left to lose its sign: FTZ may flush it
INFINITE32 = np.uint32(0xFF000000)
ONE = np.uint32(1)


class _Scratch(threading.local):
    """Arrays that a step needs between reading and writing: made once for a thread and a size."""

    rows = 0

    def take(self, rows: int) -> tuple[Array, ...]:
        """(rows, 32) of float64 four times, float32 and uint32, with anything in them."""
        if rows > self.rows:
            self.rows = rows
            types = (np.float64,) * 4 + (np.float32, np.uint32)
            self.arrays = tuple(np.empty((rows, 32), t) for t in types)
        return tuple(array[:rows] for array in self.arrays)


SCRATCH = _Scratch()


def _mode(i: Instruction) -> str:
    return next((m for m in i.mods if m in ROUNDINGS), "")


def _is_fixed(o: Operand) -> bool:
    """Whether an operand is the same number whenever the step runs: its getter needs no cohort."""
    return isinstance(o, Imm) or (isinstance(o, Const) and o.ur is None)


def _flushing(get: Get, o: Operand) -> Get:
    """``get`` with denormals flushed; nothing is copied where there are none."""
    if _is_fixed(o):
        value = flush32(get(None))  # type: ignore[arg-type]
        return lambda k: value

    def flushed(k: Cohort) -> Array:
        x = get(k)
        bits = SCRATCH.take(k.count)[-1][: x.shape[0], : x.shape[1]]
        np.left_shift(x.view(np.uint32), ONE, out=bits)
        return flush32(x) if _has_denormal(bits) else x

    return flushed


def _has_denormal(shifted: Array) -> bool:
    """Whether float32 bits, shifted left by one, hold a denormal. Spoils them."""
    if np.minimum.reduce(shifted, axis=None) >= LEAST32:
        return False
    np.subtract(shifted, ONE, out=shifted)  # zeros become large
    return bool(np.minimum.reduce(shifted, axis=None) < LEAST32 - ONE)


def _plain(m: Maker, o: Operand) -> tuple[Get, bool]:
    """A float32 without its "-", and whether it has one: the sum takes care of that. |x| stays with the value."""
    if getattr(o, "abs", False):
        return m.f32(o), False
    raw = m.raw(o)
    return (lambda k: raw(k).view(np.float32)), bool(getattr(o, "neg", False))


def _widening(get: Get, o: Operand) -> Callable[[Cohort, Array], Array]:
    """A float32 as doubles: in the array that is handed in, or the one number that it always is."""
    if _is_fixed(o):
        number = get(None).astype(np.float64)[0, 0]  # type: ignore[arg-type]
        return lambda k, out: number

    def widened(k: Cohort, out: Array) -> Array:
        np.copyto(out, get(k))
        return out

    return widened


Exact = Callable[[list[Array]], Array]


def _mend(k: Cohort, r: Array, suspect: Array, parts: list[Get], exact: Exact) -> None:
    """Computes the ``suspect`` elements of ``r`` once more."""
    if not suspect.any():
        return
    at = np.nonzero(suspect)
    r[at] = exact([np.broadcast_to(get(k), r.shape)[at] for get in parts])


def _odd_one(r: Array, bits: Array) -> bool:
    """Whether there is a denormal or a NaN in ``r``."""
    np.left_shift(r.view(np.uint32), ONE, out=bits)
    return bool(np.maximum.reduce(bits, axis=None) > INFINITE32) or _has_denormal(bits)


def _odd_ones(r: Array) -> Array:
    bits = r.view(np.uint32) << ONE
    return (bits > INFINITE32) | ((bits != 0) & (bits < LEAST32))


# ---- FP32: sums and products


def fma32(i: Instruction) -> Exact:
    """FFMA of three float32 arrays, exactly."""
    mode, fmz, sat = _mode(i), "FMZ" in i.mods, "SAT" in i.mods
    ftz = fmz or "FTZ" in i.mods

    def exact(v: list[Array]) -> Array:
        a, b, c = (flush32(x) for x in v) if ftz else v
        product = np.multiply(a, b, dtype=np.float64)
        if fmz:
            product = np.where((a == 0) | (b == 0), 0.0, product)
        return result32(sum_to_odd(product, c.astype(np.float64), mode), mode, ftz, sat)

    return exact


@semantics("FFMA", "UFFMA")
def ffma(i: Instruction, m: Maker) -> Step:
    only(i, *ROUNDINGS, "FTZ", "FMZ", "SAT")
    operands = i.operands[1:4]
    put, exact = m.put(i.operands[0]), fma32(i)
    parts = [m.f32(o) for o in operands]
    if any(mod != "FTZ" for mod in i.mods):
        return lambda k: put(k, exact([get(k) for get in parts]))
    (a, minus_a), (b, minus_b), (c, minus_c) = (_plain(m, o) for o in operands)
    if i.mods:
        a, b, c = (_flushing(get, o) for get, o in zip((a, b, c), operands))
    into_a, into_b, into_c = (_widening(get, o) for get, o in zip((a, b, c), operands))
    minus = minus_a != minus_b

    def step(k: Cohort) -> None:
        p, t, u, v, r, bits = SCRATCH.take(k.count)
        np.multiply(into_a(k, p), into_b(k, u), out=p)
        z = into_c(k, u)
        if minus and minus_c:
            np.negative(p, out=p)
        if minus and not minus_c:
            np.subtract(z, p, out=t)
        elif minus_c:
            np.subtract(p, z, out=t)
        else:
            np.add(p, z, out=t)
        np.copyto(r, t, casting="same_kind")
        low = v.view(np.int64)  # what a float32 has no room for
        np.left_shift(t.view(np.int64), 35, out=low)
        suspect: Array | None = None
        if np.minimum.reduce(low, axis=None) == HALFWAY:
            suspect = low == HALFWAY
            if minus and not minus_c:
                np.negative(p, out=p)
            suspect &= _error(p, -z if minus_c else z, t, v) != 0
        if _odd_one(r, bits):
            odd = _odd_ones(r)
            suspect = odd if suspect is None else suspect | odd
        if suspect is not None:
            _mend(k, r, suspect, parts, exact)
        put(k, r)

    return step


def _error(p: Array, c: Array, t: Array, spare: Array) -> Array:
    """The error of t = p + c, exactly (``rounding.two_sum``), without new arrays; ``p`` and ``t`` are lost."""
    np.subtract(t, p, out=spare)
    np.subtract(t, spare, out=t)
    np.subtract(p, t, out=p)
    np.subtract(c, spare, out=t)
    return np.add(p, t, out=p)


def _fast(i: Instruction, m: Maker, operation: np.ufunc, exact: Exact) -> Step:
    """FADD and FMUL to nearest: float32 does them right, but for NaNs and flushing."""
    operands = i.operands[1:3]
    put, parts = m.put(i.operands[0]), [m.f32(o) for o in operands]
    a, b = parts
    ftz = bool(i.mods)
    if ftz:
        a, b = (_flushing(get, o) for get, o in zip(parts, operands))

    def step(k: Cohort) -> None:
        *_, r, bits = SCRATCH.take(k.count)
        operation(a(k), b(k), out=r)
        if ftz:
            odd = _odd_one(r, bits)
        else:
            odd = np.isnan(np.maximum.reduce(r, axis=None))
        if odd:
            _mend(k, r, _odd_ones(r), parts, exact)
        put(k, r)

    return step


@semantics("FADD", "UFADD")
def fadd(i: Instruction, m: Maker) -> Step:
    only(i, *ROUNDINGS, "FTZ", "SAT")
    mode, ftz, sat = _mode(i), "FTZ" in i.mods, "SAT" in i.mods

    def exact(v: list[Array]) -> Array:
        a, b = (flush32(x) for x in v) if ftz else v
        return finish32(round32(sum_to_odd(a.astype(np.float64), b.astype(np.float64), mode), mode), ftz, sat)

    if mode or sat:
        put, parts = m.put(i.operands[0]), [m.f32(o) for o in i.operands[1:3]]
        return lambda k: put(k, exact([get(k) for get in parts]))
    return _fast(i, m, np.add, exact)


@semantics("FMUL", "UFMUL")
def fmul(i: Instruction, m: Maker) -> Step:
    """The scale (.D2, .M8 ...) multiplies the exact product."""
    only(i, *ROUNDINGS, *SCALES, "FTZ", "FMZ", "SAT")
    mode, fmz, sat = _mode(i), "FMZ" in i.mods, "SAT" in i.mods
    ftz = fmz or "FTZ" in i.mods
    scale = next((SCALES[mod] for mod in i.mods if mod in SCALES), 1.0)

    def exact(v: list[Array]) -> Array:
        a, b = (flush32(x) for x in v) if ftz else v
        product = np.multiply(a, b, dtype=np.float64) * scale
        if fmz:
            product = np.where((a == 0) | (b == 0), 0.0, product)
        return result32(product, mode, ftz, sat)

    if mode or sat or fmz or scale != 1:
        put, parts = m.put(i.operands[0]), [m.f32(o) for o in i.operands[1:3]]
        return lambda k: put(k, exact([get(k) for get in parts]))
    return _fast(i, m, np.multiply, exact)


# ---- two at a time ---------------------------------------------------------------------------------------------------

HALVES = {"FFMA2": ffma, "FADD2": fadd, "FMUL2": fmul}


class _Before(Maker, threading.local):
    """Makes getters of registers as they were when ``take`` was called: the first half may overwrite what the second
    one reads."""

    def __init__(self, m: Maker) -> None:
        super().__init__(m.image)
        self.gets: dict[tuple[str, int], Get] = {}
        self.values: dict[tuple[str, int], Array] = {}

    def raw(self, o: Operand) -> Get:
        if not isinstance(o, Reg) or o.zero:
            return super().raw(o)
        key = o.file, o.index
        self.gets[key] = super().raw(Reg(o.file, o.index))
        return lambda k: self.values[key]

    def take(self, k: Cohort) -> None:
        self.values = {key: get(k).copy() for key, get in self.gets.items()}


def _half(o: Operand, n: int) -> Operand:
    """What an operand is to half ``n`` of the result: of a pair in its order (.HI_LO) or swapped (.LO_HI) one register,
    of one number (.F32) that; .NP turns the sign of the high half."""
    if not isinstance(o, Reg):
        return o
    paired = o.words > 1 and not o.zero
    index = o.index + (n ^ (".LO_HI" in o.suffix)) * paired
    return Reg(o.file, index, 1, o.neg ^ (n == 1 and ".NP" in o.suffix), o.abs, place=o.place, write=o.write)


@semantics(*HALVES)
def pair(i: Instruction, m: Maker) -> Step:
    """FFMA, FADD or FMUL of two pairs of numbers."""
    before = _Before(m)
    low, high = (
        HALVES[i.base](i._replace(base=i.base[:-1], operands=tuple(_half(o, n) for o in i.operands)), maker)
        for n, maker in enumerate((m, before))
    )

    def step(k: Cohort) -> None:
        before.take(k)
        low(k)
        high(k)

    return step


#: FSWZADD, by two letters: what each source is multiplied by
SWIZZLES = {"PP": (1, 1), "PN": (1, -1), "NP": (-1, 1), "ZP": (0, 1)}


@semantics("FSWZADD")
def fswzadd(i: Instruction, m: Maker) -> Step:
    """The sum or difference of two registers, as the lane's place in its quad says: the letters of the first lane come
    first, those of the first source first. They are read as Mesa's compiler writes derivatives for these GPUs, and
    an H200 agrees. .NDV changes nothing where all lanes of a quad are there."""
    only(i, *ROUNDINGS, "FTZ", "NDV")
    mode, ftz = _mode(i), "FTZ" in i.mods
    put, a, b = m.put(i.operands[0]), m.f32(i.operands[1]), m.f32(i.operands[2])
    letters = i.text().rpartition(",")[2].strip()
    factors = np.array([SWIZZLES[letters[n : n + 2]] for n in range(0, 8, 2)] * 8, np.float32).T
    left, right = factors[0][None], factors[1][None]

    def step(k: Cohort) -> None:
        x, y = a(k), b(k)
        if ftz:
            x, y = flush32(x), flush32(y)
        x, y = np.where(left == 0, np.float32(0), x * left), y * right
        total = sum_to_odd(x.astype(np.float64), y.astype(np.float64), mode)
        put(k, finish32(round32(total, mode), ftz))

    return step


# ---- FP32: choosing and comparing


@semantics("FSEL", "UFSEL")
def fsel(i: Instruction, m: Maker) -> Step:
    """Bits pass as they are, NaNs too; .FTZ flushes denormals."""
    only(i, "FTZ")
    put, p = m.put(i.operands[0]), m.pred(i.operands[3])
    a, b = m.f32(i.operands[1]), m.f32(i.operands[2])
    if i.mods:
        return lambda k: put(k, flush32(np.where(p(k), a(k), b(k))))
    return lambda k: put(k, np.where(p(k), a(k), b(k)))


def order32(x: Array) -> Array:
    """Bits of float32 as int32 that have the order of the numbers, -0 before +0; and the way back."""
    bits = x.view(np.int32)
    mask = bits >> np.int32(31)
    mask &= np.int32(0x7FFFFFFF)
    mask ^= bits
    return mask


def extreme32(value: Array, there: Array, op: str, nan: bool) -> Array:
    """The least or the greatest, (n, 1) uint32, of float32 values (n, m) that are ``there``. ``op``: MIN or MAX, or of
    their sizes MINABS or MAXABS. -0 is below +0; a number wins over a NaN, but with ``nan`` the NaN does (PTX
    redux.sync)."""
    least = op.startswith("MIN")
    if op.endswith("ABS"):
        value = np.abs(value)
    number = there & ~np.isnan(value)
    kept = order32(np.where(number, value, np.float32(np.inf if least else -np.inf)))
    found = order32((np.minimum if least else np.maximum).reduce(kept, axis=1, keepdims=True)).view(np.uint32)
    lost = (there & np.isnan(value)).any(axis=1, keepdims=True) if nan else ~number.any(axis=1, keepdims=True)
    return np.where(lost, NAN32, found)


@semantics("FMNMX", "FMNMX3", "UFMNMX")
def fmnmx(i: Instruction, m: Maker) -> Step:
    """The least (predicate true) or the greatest one of two, or three; -0 < +0. A number wins over a NaN, but with .NAN
    the NaN does. .XORSIGN gives the result the exclusive or of the signs that the registers have (PTX
    min.xorsign.abs)."""
    only(i, "FTZ", "NAN", "XORSIGN")
    ftz, nan, xorsign = (mod in i.mods for mod in ("FTZ", "NAN", "XORSIGN"))
    d, *sources, last = i.operands
    put, p = m.put(d), m.pred(last)
    values, raw = [m.f32(o) for o in sources], [m.raw(o) for o in sources]
    if ftz:
        values = [_flushing(get, o) for get, o in zip(values, sources)]
    if xorsign and not all(map(is_size, sources)):
        raise Unsupported(f"{i.base}.XORSIGN of other than |x|")
    always = np.maximum if getattr(last, "inv", False) else np.minimum

    def chosen(k: Cohort, x: Array, y: Array) -> Array:
        left, right = order32(x), order32(y)
        if last.zero:  # type: ignore[union-attr]
            r = always(left, right)
        else:
            r = np.where(p(k), np.minimum(left, right), np.maximum(left, right))
        r = order32(r).view(np.uint32)
        if np.isnan(np.maximum.reduce(x, axis=None)) or np.isnan(np.maximum.reduce(y, axis=None)):
            no_x, no_y = x != x, y != y
            r = np.where(no_x, y.view(np.uint32), np.where(no_y, x.view(np.uint32), r))
            r = np.where(no_x | no_y if nan else no_x & no_y, NAN32, r)
        return r

    def step(k: Cohort) -> None:
        x, y, *more = (get(k) for get in values)
        r = chosen(k, x, y)
        for z in more:
            r = chosen(k, r.view(np.float32), z)
        if xorsign:
            r = np.where(r == NAN32, r, r ^ ((raw[0](k) ^ raw[1](k)) & SIGN32))
        put(k, r)

    return step


@semantics("FSETP", "UFSETP")
def fsetp(i: Instruction, m: Maker) -> Step:
    only(i, *COMPARE, *BOOLEANS, "FTZ")
    compare, combine = comparison(i)
    put = put_two(i, m, combine)
    a, b = m.f32(i.operands[2]), m.f32(i.operands[3])
    if "FTZ" in i.mods:
        a, b = (_flushing(get, o) for get, o in zip((a, b), i.operands[2:4]))
    return lambda k: put(k, compare(a(k), b(k)))


@semantics("FSET", "UFSET")
def fset(i: Instruction, m: Maker) -> Step:
    """.BF, the only form: 1.0 or 0."""
    only(i, *COMPARE, *BOOLEANS, "FTZ", "BF")
    compare, combine = comparison(i)
    put, p = m.put(i.operands[0]), m.pred(i.operands[3])
    a, b = m.f32(i.operands[1]), m.f32(i.operands[2])
    if "FTZ" in i.mods:
        a, b = (_flushing(get, o) for get, o in zip((a, b), i.operands[1:3]))
    one, zero = np.float32(1), np.float32(0)
    return lambda k: put(k, np.where(combine(compare(a(k), b(k)), p(k)), one, zero))


@semantics("FCHK")
def fchk(i: Instruction, m: Maker) -> Step:
    """Whether a / b needs more than the short sequence of MUFU.RCP and FFMA that compilers put beside it. That depends
    on the exponents alone (measured on an H200, all pairs of them)."""
    put, a, b = m.put(i.operands[0]), m.f32(i.operands[1]), m.f32(i.operands[2])

    def step(k: Cohort) -> None:
        x, y = ((g(k).view(np.int32) & np.int32(EXPONENT32)) >> np.int32(23) for g in (a, b))
        apart = x - y
        short = (x >= 25) & (x <= 254) & (y >= 2) & (y <= 251) & (apart >= -124) & (apart <= 126)
        put(k, ~short)

    return step


# ---- FP64


def _double(i: Instruction, m: Maker, exact: Callable[..., Array]) -> Step:
    only(i, *ROUNDINGS)
    mode = _mode(i)
    put = m.put64(i.operands[0])
    parts = [m.f64(o) for o in i.operands[1:]]
    first, *others = (m.raw64(o) for o in i.operands[1:])
    raw = [*others, first]  # whose NaN survives

    def step(k: Cohort) -> None:
        r = exact(*(get(k) for get in parts), mode)
        if (r != r).any():
            r = nan64(r, *(get(k) for get in raw))
        put(k, r)

    return step


@semantics("DFMA")
def dfma(i: Instruction, m: Maker) -> Step:
    return _double(i, m, fma64)


@semantics("DADD")
def dadd(i: Instruction, m: Maker) -> Step:
    return _double(i, m, add64)


@semantics("DMUL")
def dmul(i: Instruction, m: Maker) -> Step:
    return _double(i, m, mul64)


@semantics("DSETP")
def dsetp(i: Instruction, m: Maker) -> Step:
    """.MIN and .MAX say of which source fmin and fmax take the bits: Pu whether of the first, Pv whether both are NaN
    (compilers then make the second one quiet); -0 < +0. Of equal ones .MIN takes the first, .MAX the second (measured
    on an H200)."""
    only(i, *COMPARE, *BOOLEANS, "MIN", "MAX")
    a, b = m.f64(i.operands[2]), m.f64(i.operands[3])
    if i.mods[0] not in ("MIN", "MAX"):
        compare, combine = comparison(i)
        put = put_two(i, m, combine)
        return lambda k: put(k, compare(a(k), b(k)))
    combine = BOOLEANS[i.mods[1]]
    put_u, put_v, p = m.put(i.operands[0]), m.put(i.operands[1]), m.pred(i.operands[4])
    least = i.mods[0] == "MIN"

    def step(k: Cohort) -> None:
        x, y, other = a(k), b(k), p(k)
        left, right = np.signbit(x), np.signbit(y)
        closer = (x < y) | ((x == y) & (left | ~right)) if least else (x > y) | ((x == y) & ~left & right)
        no_x, no_y = x != x, y != y
        u, v = combine(closer | (no_y & ~no_x), other), combine(no_x & no_y, other)  # before Pu, which may be p too
        put_u(k, u)
        put_v(k, v)

    return step
