"""How tensor cores add up floating-point products: not as a chain of rounded additions.

A core multiplies exactly. It gives each product the exponent of its factors' added up (not that of its value: 1.5 * 1.5
counts as 1), shifts the products of a block and C to the largest exponent among them, cuts off what then falls behind
its last bit, and adds up the rest without a loss. The sum is cut off to FP32, or rounded to FP16, and is the C of the
next block. A product that is 0 has no exponent.

How many bits a core keeps and how long its blocks are (``tensor_sums`` of isa/arch.py) is published: Khattak and
Mikaitis, "Accurate Models of NVIDIA Tensor Cores" (arXiv 2512.07004); Xie et al., "MMA-Sim" (arXiv 2511.10909), which
alone has Turing. The two agree where both have a model. ``tests/tools/tensor_data.py`` compares with what the former
recorded on a V100, A100, A2, RTX 1000 Ada, L40S, H100, H200 and B200; the tests of sm_90 with an H200 of our own.
Nobody has published sparse products: they are taken to add the products that A keeps, in blocks of as many, as an
H200's HGMMA.SP does.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from turingas.emulate.arrays import Array
from turingas.isa.arch import arch as facts_of

Combine = Callable[[Array, Array, Array], Array]

BITS = {"F16": 16, "BF16": 16, "TF32": 32, "E4M3": 8, "E5M2": 8, "E3M2": 8, "E2M3": 8, "E2M1": 8, "E2M1x2": 4}
#: the exponent that denormal numbers have
LOWEST = {
    "F16": -14, "BF16": -126, "TF32": -126, "F32": -126, "E4M3": -6, "E5M2": -14, "E3M2": -2, "E2M3": 0, "E2M1": 0,
    "E2M1x2": 0,
}  # fmt: skip
#: no term is shifted as if the largest exponent were below this one, where 23 bits are kept (less 1 for each more)
FLOOR = {"F32": -131, "F16": -19}
FLOOR8 = -133
NO_EXPONENT = -4096  # of 0
CACHED = 1 << 15  # sums that are worked on at a time: eight bytes each, a few arrays of them stay in the cache


def adder(arch: str, kinds: tuple[str, str], into: str, sparse: bool = False, scaled: bool = False) -> Combine:
    """What computes A * B + C, of float64 (n, rows, k), (n, k, columns) and (n, rows, columns), on an architecture.
    ``kinds``: the formats of A and B; ``into``: that of C and D. The result has bits that ``into`` can hold; infinities
    and NaN are as they come. ``sparse``: half of A is not there, and 0. ``scaled``: factors come with the scales of
    their blocks, and have the exponents that they have then."""
    unit, bits = facts_of(arch).tensor_sums, BITS[kinds[0]]
    narrow = bits <= 8
    kept = unit.kept8 if narrow else unit.kept
    floor = FLOOR8 if narrow else FLOOR[into] - (kept - 23)
    digits = min(kept, 23) if narrow else 23
    block = unit.block * 8 // bits * (2 if sparse else 1)
    low_a, low_b = (NO_EXPONENT if scaled else LOWEST[kind] for kind in kinds)
    low_c = LOWEST[into]

    def one(x: Array, y: Array, c: Array) -> Array:
        """A block: x (k, n, rows, 1), y (k, n, 1, columns), c (n, rows, columns)."""
        each = max(1, CACHED // c.size)  # products of an element at a time
        largest = np.maximum(exponents(c, low_c), np.int16(floor))
        x_exponents, y_exponents = exponents(x, low_a), exponents(y, low_b)
        for k in range(0, len(x), each):
            here = x_exponents[k : k + each] + y_exponents[k : k + each]
            np.maximum(largest, here[0] if each == 1 else here.max(axis=0), out=largest)
        scale = ((kept + 1023 - largest.astype(np.int64)) << 52).view(np.float64)
        total = np.trunc(c * scale)
        for k in range(0, len(x), each):
            terms = x[k : k + each] * y[k : k + each]
            np.multiply(terms, scale, out=terms)
            np.trunc(terms, out=terms)
            np.add(total, terms[0] if each == 1 else terms.sum(axis=0), out=total)
        np.divide(total, scale, out=total)
        return narrowed(total, into, digits)

    def part(a: Array, b: Array, c: Array) -> Array:
        many = len(c) > c.shape[2]  # which axis is long, and so the last one in memory: that of n or that of columns
        x, y = np.moveaxis(a, 2, 0)[..., None], np.moveaxis(b, 1, 0)[:, :, None]
        if many:
            x, y, c = (np.moveaxis(np.ascontiguousarray(np.moveaxis(v, -3, -1)), -1, -3) for v in (x, y, c))
        else:
            x, y, c = (np.ascontiguousarray(v) for v in (x, y, c))
        for k in range(0, len(x), block):
            c = one(x[k : k + block], y[k : k + block], c)
        return c

    def combine(a: Array, b: Array, c: Array) -> Array:
        a, b, c = (np.asarray(v, np.float64) for v in (a, b, c))
        each = max(1, CACHED // (c.shape[1] * c.shape[2]))
        if len(c) <= each:
            return part(a, b, c)
        found = np.empty(c.shape)
        for n in range(0, len(c), each):
            here = slice(n, n + each)
            found[here] = part(a[here], b[here], c[here])
        return found

    return combine


def exponents(x: Array, lowest: int) -> Array:
    """The exponents of float64 numbers, int16, of those that are denormal in their format ``lowest``."""
    field = (x.view(np.int64) >> 52).astype(np.int16) & np.int16(0x7FF)
    found: Array = np.maximum(field - np.int16(1023), np.int16(lowest))
    np.copyto(found, NO_EXPONENT, where=field == 0)  # (numpy.where would not keep the order of the axes in memory)
    return found


def narrowed(x: Array, into: str, digits: int) -> Array:
    """Sums as FP32, cut off behind ``digits`` bits of the fraction, or as FP16, rounded to nearest; all as float64."""
    if into == "F16":
        return x.astype(np.float16).astype(np.float64)
    normal = (x.view(np.int64) & ~np.int64((1 << 52 - digits) - 1)).view(np.float64)
    tiny = np.abs(x) < 2.0**-126
    if tiny.any():
        unit = 2.0 ** -(126 + digits)
        normal = np.where(tiny, np.trunc(x / unit) * unit, normal)
    special = ~np.isfinite(x)
    return np.where(special, x, normal) if special.any() else normal
