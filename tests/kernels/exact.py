"""Arithmetic of floating-point formats by fractions: what a correctly rounded operation gives, in every rounding mode.

Slow and plain: it is the truth that kernels are held against, and shares nothing with the emulator.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Format:
    """``precision`` counts the hidden bit; ``top`` is the largest exponent of a finite number."""

    precision: int
    top: int

    def round(self, value: Fraction, mode: str = "rn") -> float:
        """The number of this format for ``value``, which is not 0. Modes: rn, rz, ru, rd."""
        negative, size = value < 0, abs(value)
        exponent = size.numerator.bit_length() - size.denominator.bit_length()
        exponent -= Fraction(2) ** exponent > size
        unit = Fraction(2) ** (max(exponent, 1 - self.top) - self.precision + 1)
        count, rest = divmod(size, unit)
        if mode == "rn":
            count += rest > unit / 2 or (rest == unit / 2 and count % 2 == 1)
        elif mode == ("rd" if negative else "ru"):
            count += rest > 0
        result = count * unit
        if result >= Fraction(2) ** (self.top + 1):
            away = mode == "rn" or mode == ("rd" if negative else "ru")
            result = math.inf if away else (2 - Fraction(2) ** (1 - self.precision)) * Fraction(2) ** self.top
        return -float(result) if negative else float(result)

    def fma(self, x: float, y: float, z: float, mode: str = "rn") -> float:
        """x * y + z, rounded once."""
        if not (math.isfinite(x) and math.isfinite(y)):
            return x * y + z
        if not math.isfinite(z):
            return z
        product = Fraction(x) * Fraction(y)
        total = product + Fraction(z)
        if total:
            return self.round(total, mode)
        below = math.copysign(1, x) * math.copysign(1, y) < 0
        same = product == 0 and below == (math.copysign(1, z) < 0)
        return -0.0 if (below if same else mode == "rd") else 0.0

    def add(self, x: float, y: float, mode: str = "rn") -> float:
        return self.fma(x, 1.0, y, mode)

    def mul(self, x: float, y: float, mode: str = "rn") -> float:
        finite = math.isfinite(x) and math.isfinite(y)
        return self.round(Fraction(x) * Fraction(y), mode) if finite and x and y else x * y


HALF, BFLOAT, FLOAT, DOUBLE = Format(11, 15), Format(8, 127), Format(24, 127), Format(53, 1023)


def each(operation: Callable[..., float], *arrays: Any, mode: str = "rn", dtype: type = np.float64) -> np.ndarray:
    """``operation`` on the elements of arrays of one shape."""
    rows: Iterable[tuple[float, ...]] = zip(*(np.asarray(a, np.float64).ravel().tolist() for a in arrays))
    flat = [operation(*row, mode=mode) for row in rows]
    return np.array(flat, np.float64).astype(dtype).reshape(np.shape(arrays[0]))


def fma32(a: Any, b: Any, c: Any) -> np.ndarray:
    """a * b + c of float32 arrays, rounded once: float64 holds the product, and rounding its sum to odd first makes the
    second rounding right (Boldo and Melquiond, 2008)."""
    product, c = np.float64(a) * np.float64(b), np.float64(c)
    total = product + c
    back = total - product
    error = (product - (total - back)) + (c - back)
    even = total.view(np.int64) & 1 == 0
    odd = np.nextafter(total, np.where(error > 0, np.inf, -np.inf))
    return np.where((error != 0) & even, odd, total).astype(np.float32)


def bfloat(values: Any) -> np.ndarray:
    """float32 values rounded to bfloat16, as their 16 bits."""
    bits = np.asarray(values, np.float32).view(np.uint32)
    rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
    return np.where(np.isnan(values), 0x7FFF, rounded).astype(np.uint16)


def unbfloat(bits: Any) -> np.ndarray:
    """The float32 values of bfloat16 bits."""
    return (np.asarray(bits, np.uint32) << 16).view(np.float32)
