"""Rounding once, in any mode: exact sums and products of doubles, and the way from them to each format.

A result is first *rounded to odd* in double: cut off towards zero, and the last bit set if anything was cut. Nothing
that decides a later rounding is lost then, as long as the target has at least two bits less than a double; so the
second rounding gives what one rounding of the exact value gives (Boldo, Melquiond: Emulation of FMA and correctly
rounded sums, 2008). All functions work on numpy arrays of any shapes that broadcast.

Modes are written as the modifiers are: "" to nearest even, "RM" down, "RP" up, "RZ" to zero.
"""

from __future__ import annotations

import math

import numpy as np

from turingas.emulate.arrays import Array

NAN32 = np.uint32(0x7FFFFFFF)  # every NaN that an FP32 instruction computes (CUDA programming guide)
NAN16 = np.uint16(0x7FFF)  # of FP16 and BF16 (CUDART_NAN_FP16)
NAN64 = np.uint64(0xFFF8000000000000)  # of an invalid FP64 operation
INFINITE16 = np.uint16(0x7C00)
QUIET64 = np.uint64(1 << 51)
SIGN32, EXPONENT32 = np.uint32(1 << 31), np.uint32(0x7F800000)
SAFE = 2.0**450  # factors from 1/SAFE to SAFE have products whose error is a normal double
SPLIT = 2.0**27 + 1


def two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    """a + b as its nearest double and the error of that, exactly (Knuth). The error is NaN where the sum is no number
    or infinite."""
    s = a + b
    t = s - a
    return s, (a - (s - t)) + (b - t)


def two_product(a: Array, b: Array) -> tuple[Array, Array]:
    """a * b likewise (Dekker); right where |a| and |b| lie between 1/SAFE and SAFE, or one is zero."""
    p = a * b
    high_a, low_a = _split(a)
    high_b, low_b = _split(b)
    return p, low_a * low_b - (((p - high_a * high_b) - low_a * high_b) - high_a * low_b)


def _split(a: Array) -> tuple[Array, Array]:
    t = SPLIT * a
    high = t - (t - a)
    return high, a - high


def to_odd(s: Array, e: Array) -> Array:
    """A nearest double ``s`` with the error ``e``, rounded to odd instead."""
    inexact = (e != 0) & np.isfinite(s)
    beyond = inexact & (np.signbit(e) != np.signbit(s))  # the exact value is nearer to zero than s
    return ((s.view(np.int64) - beyond) | inexact).view(np.float64)


def sum_to_odd(a: Array, b: Array, mode: str = "") -> Array:
    """a + b of doubles, rounded to odd. ``mode`` decides the sign of a zero: x - x is -0 when rounding down."""
    s, e = two_sum(a, b)
    x = to_odd(s, e)
    if mode == "RM":
        x = np.where((s == 0) & (np.signbit(a) | np.signbit(b)), -0.0, x)
    return x


# ---- FP32


def round32(x: Array, mode: str = "") -> Array:
    """Doubles that are exact or rounded to odd, as float32; denormals and overflow included. NaNs are any NaN."""
    r = x.astype(np.float32)
    if not mode:
        return r
    back = r.astype(np.float64)
    if mode == "RZ":
        return (r.view(np.int32) - (np.abs(back) > np.abs(x))).astype(np.int32).view(np.float32)
    if mode == "RM":
        return np.where(back > x, np.nextafter(r, np.float32(-np.inf)), r)
    return np.where(back < x, np.nextafter(r, np.float32(np.inf)), r)


def flush32(x: Array) -> Array:
    """float32 with denormals made zeros of their sign."""
    bits = x.view(np.uint32)
    return np.where(bits & EXPONENT32 == 0, bits & SIGN32, bits).view(np.float32)


def finish32(r: Array, ftz: bool = False, sat: bool = False) -> Array:
    """A rounded float32 as an instruction leaves it: flushed, clamped to [0, 1] (NaN and -0 become +0), NaN as it is
    always written."""
    if ftz:
        r = flush32(r)
    if sat:
        return np.where(r > 0, np.minimum(r, np.float32(1)), np.float32(0))
    return np.where(r != r, NAN32, r.view(np.uint32)).view(np.float32)


def result32(x: Array, mode: str = "", ftz: bool = False, sat: bool = False) -> Array:
    """Doubles, exact or rounded to odd, as the float32 that an instruction makes of them.

    What ``ftz`` flushes is below 2^-126 when it is rounded as if exponents had no end: 2^-126 - 2^-150 is flushed,
    though the float32 next to it is 2^-126 (measured on an H200)."""
    r = round32(x, mode)
    if ftz:
        tiny = np.abs(round32(x * 2.0**64, mode)) < np.float32(2.0**-62)
        r = np.where(tiny, np.copysign(np.float32(0), r), r)
    return finish32(r, ftz, sat)


# ---- FP16 and BF16: 16 bits, as uint16


def round_f16(x: Array) -> Array:
    """Doubles that are exact or rounded to odd, to nearest as the 16 bits of FP16."""
    bits = x.astype(np.float16).view(np.uint16)
    return np.where(bits & NAN16 > INFINITE16, NAN16, bits)


def round_bf16(x: Array) -> Array:
    """Doubles that are exact or rounded to odd, to nearest as the 16 bits of BF16."""
    r = x.astype(np.float32)
    back = r.astype(np.float64)
    # to odd once more, then the upper half of a float32 to nearest even
    bits = (r.view(np.int32) - (np.abs(back) > np.abs(x))) | (back != x)
    bits = bits.astype(np.uint32)
    near = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    return np.where(x != x, NAN16, near.astype(np.uint16))


def from_f16(bits: Array) -> Array:
    """16 bits of FP16 as doubles."""
    return bits.view(np.float16).astype(np.float64)


def from_bf16(bits: Array) -> Array:
    """16 bits of BF16 as doubles."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32).astype(np.float64)


# ---- FP64


def fma64(a: Array, b: Array, c: Array, mode: str = "") -> Array:
    """a * b + c of doubles, rounded once. NaNs are any NaN."""
    a, b, c = np.broadcast_arrays(a, b, c)
    high, low = two_product(a, b)
    top, rest = two_sum(c, low)
    head, tail = two_sum(high, top)
    r = _round_sum64(head, to_odd(*two_sum(rest, tail)), mode)
    sizes = np.abs(a), np.abs(b), np.abs(c)
    ranges = ((1 / SAFE, SAFE), (1 / SAFE, SAFE), (0.0, SAFE * SAFE))
    if mode != "RM" and all(x.min() >= least and x.max() <= most for x, (least, most) in zip(sizes, ranges)):
        return r
    special = r == 0
    for x, (least, most) in zip(sizes, ranges):
        special |= ~((x >= least) & (x <= most))
    at = np.nonzero(special)
    r[at] = _fma_special(a[at], b[at], c[at], mode)
    return r


def _fma_special(a: Array, b: Array, c: Array, mode: str) -> Array:
    """Zeros and what is not finite need no rounding, but signs; the rest is done by integers, one by one."""
    product = a * b
    ends = ~(np.isfinite(a) & np.isfinite(b))
    r = np.where(np.isfinite(c) | ends, product + c, c)
    if mode == "RM":
        r = np.where((r == 0) & (np.signbit(product) | np.signbit(c)), -0.0, r)
    for n in np.nonzero(~ends & np.isfinite(c) & (a != 0) & (b != 0))[0]:
        r[n] = _fma_of_integers(float(a[n]), float(b[n]), float(c[n]), mode)
    return r


def add64(a: Array, b: Array, mode: str = "") -> Array:
    """a + b of doubles in any mode. NaNs are any NaN."""
    if not mode:
        return np.asarray(a + b)
    return fma64(a, np.ones((1, 1)), b, mode)


def mul64(a: Array, b: Array, mode: str = "") -> Array:
    """a * b of doubles in any mode. NaNs are any NaN."""
    if not mode:
        return np.asarray(a * b)
    product = a * b
    # the zero that is added has the sign that leaves a zero product as it is
    return fma64(a, b, np.copysign(0.0, product), mode)


def _round_sum64(a: Array, b: Array, mode: str) -> Array:
    """a + b in any mode, with all that matters of b."""
    s, e = two_sum(a, b)
    if not mode:
        return s
    if mode == "RZ":
        return (s.view(np.int64) - ((e != 0) & (np.signbit(e) != np.signbit(s)))).view(np.float64)
    if mode == "RM":
        return np.where(e < 0, np.nextafter(s, -np.inf), s)
    return np.where(e > 0, np.nextafter(s, np.inf), s)


def _fma_of_integers(a: float, b: float, c: float, mode: str) -> float:
    """a * b + c of finite doubles, by integers: for those whose error terms leave the range of doubles."""
    mantissa_a, exponent_a = _integer(a)
    mantissa_b, exponent_b = _integer(b)
    mantissa_c, exponent_c = _integer(c)
    exponent = min(exponent_a + exponent_b, exponent_c)
    total = mantissa_a * mantissa_b << exponent_a + exponent_b - exponent
    total += mantissa_c << exponent_c - exponent
    if total == 0:  # the factors are not zero: c cancels their product
        return -0.0 if mode == "RM" else 0.0
    negative, size = total < 0, abs(total)
    cut = max(size.bit_length() - 53, -1074 - exponent)  # bits that a double has no room for
    if cut > 0:
        rest, half = size & ((1 << cut) - 1), 1 << cut - 1
        size >>= cut
        up = rest > half or (rest == half and size & 1)
        if mode:
            up = rest > 0 and mode == ("RM" if negative else "RP")
        size += up
        exponent += cut
    if size.bit_length() + exponent > 1024:
        stays = mode == "RZ" or mode == ("RP" if negative else "RM")
        value = float(np.finfo(np.float64).max) if stays else math.inf
    else:
        value = math.ldexp(size, exponent)
    return -value if negative else value


def _integer(x: float) -> tuple[int, int]:
    """x as an integer times a power of two."""
    mantissa, exponent = math.frexp(x)
    return int(mantissa * 2.0**53), exponent - 53


def nan64(r: Array, *sources: Array) -> Array:
    """Doubles ``r`` with their NaNs as FP64 instructions leave them: the first source that is a NaN, made quiet, or
    else NAN64. ``sources`` are uint64 as they lie in the registers: "-" and "|x|" pass a NaN unchanged (CUDA
    programming guide)."""
    odd = r != r
    if not odd.any():
        return r
    bits = np.where(odd, NAN64, r.view(np.uint64))
    for source in reversed(sources):
        bits = np.where(odd & (source << np.uint64(1) > np.uint64(0x7FF << 53)), source | QUIET64, bits)
    return bits.view(np.float64)
