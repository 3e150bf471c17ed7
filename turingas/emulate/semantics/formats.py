"""Floating-point formats of 8 bits and fewer, and scales of blocks (OCP Microscaling Formats; PTX ISA, "Alternate
floating-point data formats")."""

from __future__ import annotations

import numpy as np

from turingas.emulate.arrays import Array

FP4 = "E2M1x2"  # two E2M1 in a byte, the first one lower


def values(exponent: int, mantissa: int, special: str = "") -> Array:
    """The values of all codes of a format of a sign, an ``exponent`` and a ``mantissa`` of so many bits. ``special``:
    the codes that are none: "" none, "nan" the one with all bits set, "ieee" infinities and NaN as in IEEE formats."""
    code = np.arange(1 << 1 + exponent + mantissa)
    top, bias = (1 << exponent) - 1, (1 << exponent - 1) - 1
    e, f = code >> mantissa & top, code & (1 << mantissa) - 1
    scale = np.where(e > 0, 1.0, 0.0) + f / (1 << mantissa)
    value = np.ldexp(scale, np.maximum(e, 1) - bias)
    if special == "ieee":
        value = np.where(e == top, np.where(f == 0, np.inf, np.nan), value)
    elif special == "nan":
        value = np.where((e == top) & (f == (1 << mantissa) - 1), np.nan, value)
    return np.where(code >> exponent + mantissa, -value, value)


E4M3, E5M2 = values(4, 3, "nan"), values(5, 2, "ieee")
E3M2, E2M3, E2M1 = values(3, 2), values(2, 3), values(2, 1)

#: scales of blocks by their byte: powers of two, 0xFF a NaN; E4M3 without a sign (0x7F a NaN)
SCALES = {
    "UE8M0": np.where(np.arange(256) == 255, np.nan, np.ldexp(1.0, np.minimum(np.arange(256), 254) - 127)),
    "UE4M3": np.concatenate([E4M3[:128], E4M3[:128]]),
}


def e4m3(words: Array) -> Array:
    return E4M3[words.view(np.uint8)]


def e5m2(words: Array) -> Array:
    return E5M2[words.view(np.uint8)]


def e3m2(words: Array) -> Array:
    """Six bits in the lower ones of a byte."""
    return E3M2[words.view(np.uint8) & 63]


def e2m3(words: Array) -> Array:
    return E2M3[words.view(np.uint8) & 63]


def e2m1(words: Array) -> Array:
    """Four bits in the middle of a byte."""
    return E2M1[words.view(np.uint8) >> 2 & 15]


def e2m1x2(words: Array) -> Array:
    """Two in a byte."""
    both = words.view(np.uint8)
    return E2M1[np.stack([both & 15, both >> 4], axis=-1).reshape(*words.shape[:-1], -1)]


def unpadded(words: Array, kind: str) -> Array:
    """Pieces of 16 bytes (..., 4), each 16 elements of 4 or 6 bits with 8 or 4 bytes of padding behind them (as tensor
    copies write them, .b4x16_p64 and .b6x16_p32), as 16 bytes with an element each."""
    raw = words.view(np.uint8)
    if kind == "E2M1":
        low = raw[..., :8]
        found: Array = np.stack([low & 15, low >> 4], axis=-1).reshape(raw.shape) << 2
    else:
        bits = np.unpackbits(raw[..., :12], axis=-1, bitorder="little").reshape(*raw.shape[:-1], 16, 6)
        found = np.packbits(bits, axis=-1, bitorder="little")[..., 0]
    return np.ascontiguousarray(found, np.uint8).view(np.uint32)
