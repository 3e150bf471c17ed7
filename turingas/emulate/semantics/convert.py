"""Conversions between integers and floating-point formats, and packed integers.

All go through float64, which holds every value of the smaller formats exactly; 64-bit integers go through it rounded to
odd (cut, and the lowest bit set where something was lost), so that the second rounding is still right.

NaN, range and saturation follow the PTX ISA (``cvt``, ``cvt.pack``); what it leaves open is listed in
``tests/emulate/test_convert.py``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from turingas.emulate.arrays import Array
from turingas.emulate.build import Get, Maker, Put, Step, semantics
from turingas.emulate.cohort import Cohort
from turingas.emulate.errors import Unsupported
from turingas.emulate.results import put64, split, u64
from turingas.emulate.rounding import QUIET64
from turingas.isa.instruction import Instruction, Operand

ROUNDING = {"RM": "RM", "RP": "RP", "RZ": "RZ", "FLOOR": "RM", "CEIL": "RP", "TRUNC": "RZ"}
INTEGRAL: dict[str, Any] = {"RN": np.rint, "RM": np.floor, "RP": np.ceil, "RZ": np.trunc}
FORMATS = ("F16", "BF16", "F32", "F64")
NORMAL = {"F16": 0x0400, "BF16": 0x0080, "F32": 0x00800000}  # the bits of the least normal number of a format
SIGN, SIZE = np.uint16(0x8000), np.uint16(0x7FFF)

# ---- reading -----------------------------------------------------------------------------------------------------


def mode_of(i: Instruction) -> str:
    """The rounding mode: "RN" (to even), "RM" (down), "RP" (up) or "RZ" (towards zero)."""
    return next((ROUNDING[x] for x in i.mods if x in ROUNDING), "RN")


def source(m: Maker, o: Operand, kind: str, ftz: bool = False) -> Get:
    """A float operand of a format as float64; ``ftz`` takes subnormal float32 values as zero."""
    if kind == "F64":
        get = _unsigned(m.f64, o)
    elif kind == "F32":
        single = _unsigned(m.f32, o)
        get = lambda k: (flushed(single(k)) if ftz else single(k)).astype(np.float64)  # noqa: E731
    else:
        half, exponent = upper_half(m, o), np.uint16(NORMAL[kind] - 1)

        def get(k: Cohort) -> Array:
            bits = half(k)
            return from_half(np.where(bits & SIZE <= exponent, bits & SIGN, bits) if ftz else bits, kind)

    negative, absolute = getattr(o, "neg", False), getattr(o, "abs", False)
    if not (negative or absolute):
        return get

    def read(k: Cohort) -> Array:
        """Of a NaN the sign stays (measured on an H200)."""
        value = given = get(k)
        value = np.abs(value) if absolute else value
        return np.where(np.isnan(given), given, -value if negative else value)

    return read


def _unsigned(read: Callable[[Operand], Get], o: Operand) -> Get:
    """An operand without its "-" and "|x|"."""
    bare = {name: False for name in ("neg", "abs") if getattr(o, name, False)}
    return read(dataclasses.replace(o, **bare) if bare else o)  # type: ignore[arg-type]


def upper_half(m: Maker, o: Operand) -> Get:
    """The 16 bits that a source's suffix picks, as uint16: the lower ones, or with .H1 the upper ones."""
    raw = m.raw(o)
    upper = getattr(o, "suffix", "").startswith(".H1")
    return lambda k: (raw(k) >> np.uint32(16) if upper else raw(k)).astype(np.uint16)


def from_half(bits: Array, kind: str) -> Array:
    """Bits of float16 or bfloat16 (uint16) as float64."""
    if kind == "F16":
        return bits.view(np.float16).astype(np.float64)
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32).astype(np.float64)


def flushed(value: Array) -> Array:
    """Subnormal float32 values become zeros of their sign."""
    bits = value.view(np.uint32)
    small = (bits & np.uint32(0x7F800000)) == 0
    return np.where(small, bits & np.uint32(0x80000000), bits).view(np.float32)


# ---- rounding ----------------------------------------------------------------------------------------------------

NAN = {"F16": 0x7FFF, "BF16": 0x7FFF, "F32": 0x7FFFFFFF}


def narrow(x: Array, kind: str, mode: str = "RN", ftz: bool = False) -> Array:
    """float64 values as the bits (uint32) of a smaller format, rounded once; NaN becomes the one that the hardware has
    for all results. ``ftz``: subnormal results become zeros."""
    bits = _directed(x, *_nearest(x, kind), mode)
    bits = np.where(np.isnan(x), np.uint32(NAN[kind]), bits)
    if not ftz:
        return bits
    sign = np.uint32(1 << (31 if kind == "F32" else 15))
    return np.where(bits & (sign - np.uint32(1)) < np.uint32(NORMAL[kind]), bits & sign, bits)


def nearest16(x: Array, kind: str) -> Array:
    """float32 values as the bits (uint32) of the float16 or bfloat16 next to them: what packing does all the time."""
    bits: Array
    if kind == "F16":
        bits = x.astype(np.float16).view(np.uint16).astype(np.uint32)
    else:
        whole = x.view(np.uint32)
        bits = whole + np.uint32(0x7FFF) + (whole >> np.uint32(16) & np.uint32(1)) >> np.uint32(16)
    np.copyto(bits, np.uint32(NAN[kind]), where=np.isnan(x))
    return bits


def _nearest(x: Array, kind: str) -> tuple[Array, Callable[[Array], Array]]:
    """The bits of the value next to x (of two, the even one), and what turns such bits into float64."""
    if kind == "F32":
        return x.astype(np.float32).view(np.uint32), lambda b: b.view(np.float32).astype(np.float64)
    if kind == "F16":
        value = lambda b: from_half(b.astype(np.uint16), "F16")  # noqa: E731
        return x.astype(np.float16).view(np.uint16).astype(np.uint32), value
    single = x.astype(np.float32)
    cut = single.view(np.uint32) - (np.abs(single.astype(np.float64)) > np.abs(x))
    odd = cut | (cut.view(np.float32).astype(np.float64) != x)
    bits = odd + np.uint32(0x7FFF) + (odd >> np.uint32(16) & np.uint32(1)) >> np.uint32(16)
    return bits.astype(np.uint32), lambda b: from_half(b.astype(np.uint16), "BF16")


def _directed(x: Array, bits: Array, value: Callable[[Array], Array], mode: str) -> Array:
    """From the nearest value to that of another rounding mode: at most one step away from zero, or towards it."""
    if mode == "RN":
        return bits
    cut = (bits - (np.abs(value(bits)) > np.abs(x))).astype(np.uint32)
    away = {"RZ": np.zeros_like(x, bool), "RP": x > 0, "RM": x < 0}[mode]
    return (cut + (away & (value(cut) != x))).astype(np.uint32)


def writer(m: Maker, o: Operand, kind: str, mode: str, ftz: bool = False) -> Put:
    """Writes float64 values in a format: to a pair of registers (a NaN made quiet), or to one (16 bits: its upper half
    is zero)."""
    if kind == "F64":
        wide = put64(m, o)
        return lambda k, x: wide(k, np.where(np.isnan(x), x.view(np.uint64) | QUIET64, x.view(np.uint64)))
    put = m.put(o)
    return lambda k, x: put(k, narrow(x, kind, mode, ftz))


# ---- floating point to floating point ------------------------------------------------------------------------------


@semantics("F2F", "UF2F")
def f2f(i: Instruction, m: Maker) -> Step:
    """The mnemonic names the result's format first."""
    to, kind = (x for x in i.mods if x in FORMATS)
    ftz = "FTZ" in i.mods
    if kind == "F32" and to in ("F16", "BF16") and mode_of(i) == "RN" and not ftz and i.base == "F2F":
        return _packed_nearest(m, i.operands[0], i.operands[1], to)
    get, put = source(m, i.operands[1], kind, ftz), writer(m, i.operands[0], to, mode_of(i), ftz)
    if kind == "F64":
        return _narrowed(m, i.operands[0], get, to, mode_of(i), ftz)
    return lambda k: put(k, get(k))


#: of a format: the bits of a quiet NaN, its sign, and how far the fraction of a double is shifted down to its own
PAYLOAD = {"F32": (0x7FC00000, 1 << 31, 29), "F16": (0x7E00, 1 << 15, 42), "BF16": (0x7FC0, 1 << 15, 45)}


def _narrowed(m: Maker, d: Operand, get: Get, to: str, mode: str, ftz: bool) -> Step:
    """From a double: here a NaN keeps its sign and the upper bits of its payload (measured on an H200)."""
    put = m.put(d)
    quiet, sign, shift = PAYLOAD[to]

    def step(k: Cohort) -> None:
        x = get(k)
        bits = narrow(x, to, mode, ftz)
        if (odd := np.isnan(x)).any():
            raw = x.view(np.uint64)
            kept = (raw >> np.uint64(shift)).astype(np.uint32) & np.uint32(sign - 1) | np.uint32(quiet)
            bits = np.where(odd, np.where(raw >> np.uint64(63) != 0, kept | np.uint32(sign), kept), bits)
        put(k, bits)

    return step


def _packed_nearest(m: Maker, d: Operand, o: Operand, kind: str) -> Step:
    get, put = m.f32(o), m.put(d)
    return lambda k: put(k, nearest16(get(k), kind))


@semantics("FRND", "UFRND")
def frnd(i: Instruction, m: Maker) -> Step:
    """A whole number in the same format."""
    kind = next((x for x in i.mods if x in FORMATS), "F32")
    get, put = source(m, i.operands[1], kind, "FTZ" in i.mods), writer(m, i.operands[0], kind, "RN")
    f = INTEGRAL[mode_of(i)]
    return lambda k: put(k, f(get(k)))


# ---- floating point to integer -----------------------------------------------------------------------------------


def limits(kind: str) -> tuple[int, int, int]:
    """Lowest and highest value and the bits of an integer type: "U8", "S64", "S4"."""
    bits = int(kind[1:])
    return (-(1 << bits - 1), (1 << bits - 1) - 1, bits) if kind[0] == "S" else (0, (1 << bits) - 1, bits)


def to_integer(x: Array, kind: str, mode: str, nan_zero: bool) -> Array:
    """float64 values rounded to whole numbers and clamped to a type: int64 (uint64 for U64). NaN becomes 0, or without
    ``nan_zero`` the type's highest bit alone."""
    low, high, bits = limits(kind)
    whole = INTEGRAL[mode](x)
    nan = np.isnan(x)
    value: Array
    if bits < 64:
        value = np.clip(np.where(nan, 0, whole), low, high).astype(np.int64)
    else:
        over, under = whole >= float(high), whole < float(low)  # float(high) is high + 1
        dtype: Any = np.int64 if low else np.uint64
        value = np.where(nan | over | under, 0, whole).astype(dtype)
        value = np.where(over, dtype(high), np.where(under, dtype(low), value))
    odd = 0 if nan_zero else low if low and bits == 64 else 1 << bits - 1
    return np.where(nan, value.dtype.type(odd), value)


def integer_type(i: Instruction, kinds: tuple[str, ...] = ("U8", "S8", "U16", "S16", "U32", "U64", "S64")) -> str:
    """The integer type that a mnemonic names; S32 is not written."""
    return next((x for x in i.mods if x in kinds), "S32")


@semantics("F2I", "UF2I")
def f2i(i: Instruction, m: Maker) -> Step:
    """Narrow results fill their register, with the sign of signed ones; but not what a NaN becomes (measured on an
    H200)."""
    kind = next((x for x in i.mods if x in FORMATS), "F32")
    to, mode, ntz = integer_type(i), mode_of(i), "NTZ" in i.mods
    get = source(m, i.operands[1], kind, "FTZ" in i.mods)
    if to in ("U64", "S64"):
        wide = put64(m, i.operands[0])
        return lambda k: wide(k, to_integer(get(k), to, mode, ntz))
    put = m.put(i.operands[0])
    return lambda k: put(k, to_integer(get(k), to, mode, ntz).astype(np.uint32))


# ---- integer to floating point -----------------------------------------------------------------------------------


def integer_source(m: Maker, o: Operand, kind: str) -> Get:
    """An integer operand as int64 (U64 and S64: uint64 bits). A suffix picks a byte (.B2) or a half (.H1)."""
    _, _, bits = limits(kind)
    if bits == 64:
        return u64(m, o)
    raw, suffix = m.raw(o), getattr(o, "suffix", "")
    part = int(suffix[2]) if suffix[:2] in (".B", ".H") else 0
    dtype = np.dtype(f"{'i' if kind[0] == 'S' else 'u'}{bits // 8}")
    return lambda k: split(raw(k), dtype)[..., part].astype(np.int64)


def float_from_64(bits: Array, signed: bool) -> tuple[Array, Array, Array]:
    """64-bit integers (uint64 bits) as float64: cut towards zero, whether something was lost, and the nearest."""
    negative = (bits.view(np.int64) < 0) & signed
    size = np.where(negative, -bits, bits)
    upper = (size >> np.uint64(32)).astype(np.float64) * 2.0**32
    lower = (size & np.uint64(0xFFFFFFFF)).astype(np.float64)
    near = upper + lower
    lost = lower - (near - upper)  # exact: upper is 0 or larger than lower
    cut = (near.view(np.uint64) - (lost < 0)).view(np.float64)
    return np.where(negative, -cut, cut), lost != 0, np.where(negative, -near, near)


@semantics("I2F", "I2FP", "UI2F", "UI2FP")
def i2f(i: Instruction, m: Maker) -> Step:
    """I2FP is I2F on another pipe."""
    to = next((x for x in i.mods if x in FORMATS), "F32")
    kind, mode = integer_type(i), mode_of(i)
    get, put = integer_source(m, i.operands[1], kind), writer(m, i.operands[0], to, mode)
    if kind not in ("U64", "S64"):
        return lambda k: put(k, get(k).astype(np.float64))
    signed = kind == "S64"

    def step(k: Cohort) -> None:
        cut, lost, near = float_from_64(get(k), signed)
        if to != "F64":
            put(k, (cut.view(np.uint64) | lost).view(np.float64))
        elif mode == "RN":
            put(k, near)
        else:
            away = {"RZ": False, "RP": cut > 0, "RM": cut < 0}[mode]
            put(k, (cut.view(np.uint64) + (lost & away)).view(np.float64))

    return step


# ---- packed integers ---------------------------------------------------------------------------------------------


def clamped(x: Array, relu: bool) -> Array:
    """With .RELU: negative values (and -0) become 0, NaN stays."""
    return np.where(x <= 0, 0.0, x) if relu else x


def packed(parts: list[Array], c: Array, bits: int) -> Array:
    """Integers of ``bits`` bits, the lowest first, below the lowest bits of c (PTX cvt.pack)."""
    ones = np.uint32((1 << bits) - 1)
    value = (parts[0].astype(np.uint32) & ones) | (parts[1].astype(np.uint32) & ones) << np.uint32(bits)
    return value | c << np.uint32(2 * bits)  # a shift by 32 leaves nothing of c


def rest_of(m: Maker, c: Operand) -> Get:
    """The source c of a packing: from its suffix on (.H1: its upper half; .24 and .28 name its lowest bits)."""
    raw = m.raw(c)
    upper = getattr(c, "suffix", "") == ".H1"
    return (lambda k: raw(k) >> np.uint32(16)) if upper else raw


@semantics("F2IP", "UF2IP")
def f2ip(i: Instruction, m: Maker) -> Step:
    """Two floats as 8-bit integers, clamped: b, above it a, above them a half of c. .RELU makes NaN 0 too."""
    d, a, b, c = i.operands
    kind, mode, ntz, relu = integer_type(i), mode_of(i), "NTZ" in i.mods, "RELU" in i.mods
    gets, rest, put = [source(m, o, "F32") for o in (b, a)], rest_of(m, c), m.put(d)
    nan_zero = ntz or relu
    return lambda k: put(k, packed([to_integer(clamped(g(k), relu), kind, mode, nan_zero) for g in gets], rest(k), 8))


def clamp(i: Instruction, kind: str) -> Callable[[Array], Array]:
    """What .SAT and .SATRELU do to int32 values before they are packed."""
    low, high, _ = limits(kind)
    if "SATRELU" in i.mods:
        low = 0
    elif "SAT" not in i.mods:
        return lambda value: value
    return lambda value: np.clip(value, low, high)


@semantics("I2I", "UI2I")
def i2i(i: Instruction, m: Maker) -> Step:
    """A 32-bit integer clamped to a smaller type; the bits above it are its sign's (measured on an H200)."""
    d, b = i.operands
    kind = i.mods[0]
    f, get, put = clamp(i, kind), m.raw(b), m.put(d)
    return lambda k: put(k, f(get(k).view(np.int32).astype(np.int64)).astype(np.uint32))


@semantics("I2IP", "UI2IP")
def i2ip(i: Instruction, m: Maker) -> Step:
    """Two 32-bit integers as smaller ones: b, above it a, above them the lowest bits of c (PTX cvt.pack)."""
    d, a, b, c = i.operands
    kind = i.mods[0]
    if "RELU" in i.mods:  # of UI2IP, and no compiled code has it
        raise Unsupported(i.name)
    f, bits = clamp(i, kind), limits(kind)[2]
    gets, rest, put = [m.raw(o) for o in (b, a)], rest_of(m, c), m.put(d)
    return lambda k: put(k, packed([f(g(k).view(np.int32).astype(np.int64)) for g in gets], rest(k), bits))
