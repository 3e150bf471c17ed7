"""Tensor cores against plain matrix products; where each element lies is written out as the PTX ISA gives it.

A layout is a function (lane, i) -> (row, column) of element i of a lane, word by word from the section of the shape in
"Matrix multiply-accumulate operation using mma instruction".
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

import loader
from tests.emulate import sparse, step
from tests.tools import nvrtc
from turingas import emulate
from turingas.emulate.build import Unsupported
from turingas.emulate.semantics import sums

RNG = np.random.default_rng(11)
WARPS = 2
Layout = Callable[[int, int], tuple[int, int]]


# ---- layouts of PTX --------------------------------------------------------------------------------------------------


def m8_a(k: int) -> Layout:
    """m8n8k16 (8 bit), m8n8k32 (4 bit), m8n8k128 (1 bit), m8n8k4 (f64): k / 4 neighbours."""
    return lambda lane, i: (lane >> 2, lane % 4 * (k // 4) + i)


def m8_b(k: int) -> Layout:
    return lambda lane, i: (lane % 4 * (k // 4) + i, lane >> 2)


def c8(lane: int, i: int) -> tuple[int, int]:
    return lane >> 2, lane % 4 * 2 + i


def c16(lane: int, i: int) -> tuple[int, int]:
    return lane // 4 + (8 if i >= 2 else 0), lane % 4 * 2 + i % 2


def a_16816_half(lane: int, i: int) -> tuple[int, int]:
    row = lane // 4 + (0 if 0 <= i < 2 or 4 <= i < 6 else 8)
    return row, lane % 4 * 2 + (i & 1) + (8 if i >= 4 else 0)


def b_16816_half(lane: int, i: int) -> tuple[int, int]:
    return lane % 4 * 2 + (i & 1) + (8 if i >= 2 else 0), lane // 4


def a_1688_half(lane: int, i: int) -> tuple[int, int]:
    return lane // 4 + (8 if i >= 2 else 0), lane % 4 * 2 + (i & 1)


def b_1688_half(lane: int, i: int) -> tuple[int, int]:
    return lane % 4 * 2 + i, lane // 4


def a_1684_tf32(lane: int, i: int) -> tuple[int, int]:
    return lane // 4 + (8 if i == 1 else 0), lane % 4


def a_1688_tf32(lane: int, i: int) -> tuple[int, int]:
    return lane // 4 + (8 if i in (1, 3) else 0), lane % 4 + (4 if i >= 2 else 0)


def b_tf32(lane: int, i: int) -> tuple[int, int]:
    return lane % 4 + 4 * i, lane // 4


def a_16816_byte(lane: int, i: int) -> tuple[int, int]:
    return lane // 4 + (8 if i >= 4 else 0), lane % 4 * 4 + (i & 3)


def b_16816_byte(lane: int, i: int) -> tuple[int, int]:
    return lane % 4 * 4 + i, lane // 4


def a_16832_byte(lane: int, i: int) -> tuple[int, int]:
    row = lane // 4 + (0 if 0 <= i < 4 or 8 <= i < 12 else 8)
    return row, lane % 4 * 4 + (i & 3) + (16 if i >= 8 else 0)


def b_16832_byte(lane: int, i: int) -> tuple[int, int]:
    return lane % 4 * 4 + (i & 3) + (16 if i >= 4 else 0), lane // 4


def a_16832_nibble(lane: int, i: int) -> tuple[int, int]:
    return lane // 4 + (8 if i >= 8 else 0), lane % 4 * 8 + (i & 7)


def b_16832_nibble(lane: int, i: int) -> tuple[int, int]:
    return lane % 4 * 8 + (i & 7), lane // 4


def a_16864_nibble(lane: int, i: int) -> tuple[int, int]:
    row = lane // 4 + (0 if 0 <= i < 8 or 16 <= i < 24 else 8)
    return row, lane % 4 * 8 + (i & 7) + (32 if i >= 16 else 0)


def b_16864_nibble(lane: int, i: int) -> tuple[int, int]:
    return lane % 4 * 8 + (i & 7) + (32 if i >= 8 else 0), lane // 4


def a_168128_bit(lane: int, i: int) -> tuple[int, int]:
    return lane // 4 + (8 if i >= 32 else 0), lane % 4 * 32 + (i & 31)


def b_168128_bit(lane: int, i: int) -> tuple[int, int]:
    return lane % 4 * 32 + i, lane // 4


def a_168256_bit(lane: int, i: int) -> tuple[int, int]:
    row = lane // 4 + (0 if 0 <= i < 32 or 64 <= i < 96 else 8)
    return row, lane % 4 * 32 + (i & 31) + (128 if i >= 64 else 0)


def b_168256_bit(lane: int, i: int) -> tuple[int, int]:
    return lane % 4 * 32 + (i & 31) + (128 if i >= 32 else 0), lane // 4


def a_f64(lane: int, i: int) -> tuple[int, int]:
    """m16n8k4, m16n8k8 and m16n8k16."""
    return lane // 4 + (8 if i % 2 else 0), lane % 4 + i // 2 * 4


def b_f64(lane: int, i: int) -> tuple[int, int]:
    return lane % 4 + 4 * i, lane // 4


# ---- number formats --------------------------------------------------------------------------------------------------


def pack(values: np.ndarray, bits: int) -> np.ndarray:
    """Codes (..., elements) -> (..., registers), the first element in the lowest bits; 64 bits take two registers."""
    if bits == 64:
        return np.stack([values & 0xFFFFFFFF, values >> np.uint64(32)], -1).reshape(*values.shape[:-1], -1)
    each = 32 // bits
    parts = values.reshape(*values.shape[:-1], -1, each).astype(np.uint64)
    return (parts << np.uint64(bits) * np.arange(each, dtype=np.uint64)).sum(-1)


def unpack(words: np.ndarray, bits: int) -> np.ndarray:
    if bits == 64:
        return words[..., ::2] | words[..., 1::2] << np.uint64(32)
    parts = words[..., None] >> np.uint64(bits) * np.arange(32 // bits, dtype=np.uint64)
    return parts.reshape(*words.shape[:-1], -1) & np.uint64((1 << bits) - 1)


def minifloat(code: int, exponent: int, mantissa: int) -> Fraction:
    """The value of a finite IEEE-like code."""
    sign = -1 if code >> exponent + mantissa else 1
    e, f = code >> mantissa & (1 << exponent) - 1, code & (1 << mantissa) - 1
    bias = (1 << exponent - 1) - 1
    whole = Fraction(f, 1 << mantissa) + (1 if e else 0)
    return sign * whole * Fraction(2) ** (max(e, 1) - bias)


FLOATS = {
    "F16": (16, 5, 10), "BF16": (16, 8, 7), "TF32": (32, 8, 23), "F32": (32, 8, 23), "F64": (64, 11, 52),
    "E4M3": (8, 4, 3), "E5M2": (8, 5, 2),
}  # fmt: skip
INTEGERS = {"U8": (8, False), "S8": (8, True), "U4": (4, False), "S4": (4, True), "B1": (1, False), "S32": (32, True)}


def width(kind: str) -> int:
    return FLOATS[kind][0] if kind in FLOATS else INTEGERS[kind][0]


@functools.cache
def exact(code: int, kind: str) -> Fraction:
    """The value of a code."""
    if kind in FLOATS:
        return minifloat(code & ~0x1FFF if kind == "TF32" else code, *FLOATS[kind][1:])
    bits, signed = INTEGERS[kind]
    return Fraction(code - (1 << bits) if signed and code >> bits - 1 else code)


def random_codes(kind: str, shape: tuple[int, ...]) -> np.ndarray:
    """Codes of any value, the floats not far from 1, so that sums round."""
    if kind in INTEGERS:
        return RNG.integers(0, 1 << INTEGERS[kind][0], shape, np.uint64)
    bits, exponent, mantissa = FLOATS[kind]
    bias = (1 << exponent - 1) - 1
    e = RNG.integers(bias - 3, bias + 3, shape, np.uint64)
    f = RNG.integers(0, 1 << mantissa, shape, np.uint64)
    return RNG.integers(0, 2, shape, np.uint64) << np.uint64(bits - 1) | e << np.uint64(mantissa) | f


# ---- the model -------------------------------------------------------------------------------------------------------


def scatter(codes: np.ndarray, layout: Layout, rows: int, columns: int) -> list[list[int]]:
    """The codes (32, elements) of one warp as a matrix."""
    matrix = [[-1] * columns for _ in range(rows)]
    for lane in range(32):
        for i in range(codes.shape[1]):
            row, column = layout(lane, i)
            assert matrix[row][column] == -1
            matrix[row][column] = int(codes[lane, i])
    assert all(-1 not in row for row in matrix)
    return matrix


def registers(first: int, words: np.ndarray) -> dict[int, np.ndarray]:
    """(warps, 32, registers) as the harness takes them."""
    return {first + n: words[:, :, n].astype(np.uint32).reshape(-1) for n in range(words.shape[2])}


def read(out: step.Result, first: int, count: int) -> np.ndarray:
    return np.stack([out.r(first + n) for n in range(count)], -1).reshape(WARPS, 32, count).astype(np.uint64)


#: what is published of tensor cores: bits that they keep below the largest exponent, products (of 16 bits) of a sum,
#: and below which exponent no sum is aligned, for FP32 and for FP16
CORES = {
    "sm_70": (23, 4, -131, -19), "sm_75": (24, 8, -132, -20), "sm_80": (24, 8, -132, -20), "sm_86": (24, 8, -132, -20),
    "sm_89": (24, 8, -132, -20), "sm_90": (25, 16, -133, -21), "sm_90a": (25, 16, -133, -21),
}  # fmt: skip


def exponent_of(code: int, kind: str) -> int:
    """As the field of the code says it; a denormal number has that of the smallest normal one."""
    _, exponent, mantissa = FLOATS[kind]
    return max(code >> mantissa & (1 << exponent) - 1, 1) - (1 << exponent - 1) + 1


def cut(value: Fraction, unit: Fraction) -> Fraction:
    return int(value / unit) * unit


def power(value: Fraction) -> int:
    """The exponent of a value."""
    guess = value.numerator.bit_length() - value.denominator.bit_length() if value else -9999
    return guess - (abs(value) < Fraction(2) ** guess)


def core(arch: str, kinds: tuple[str, str, str], pairs: list[tuple[int, int]], c: int, twice: int = 1) -> Fraction:
    """A sum of products as a tensor core makes it, in whole numbers: ``pairs`` of codes, and the code ``c``."""
    kind_a, kind_b, kind = kinds
    kept, block, low, low_half = CORES[arch]
    low = low if kind == "F32" else low_half
    digits = 23
    if width(kind_a) == 8:
        kept, low, digits = 13, -133, 13
    block = block * 16 // (32 if kind_a == "TF32" else width(kind_a)) * twice
    total, of_total = exact(c, kind), exponent_of(c, kind)
    for n in range(0, len(pairs), block):
        terms = [(total, of_total)] if total else []
        for x, y in pairs[n : n + block]:
            if product := exact(x, kind_a) * exact(y, kind_b):
                terms.append((product, exponent_of(x, kind_a) + exponent_of(y, kind_b)))
        unit = Fraction(2) ** (max([low, *(exponent for _, exponent in terms)]) - kept)
        total = sum((cut(term, unit) for term, _ in terms), Fraction(0))
        if kind == "F32":
            total = cut(total, Fraction(2) ** (max(power(total), -126) - digits))
            of_total = max(power(total), -126)
        else:
            unit = Fraction(2) ** (max(power(total), -14) - 10)
            total = round(total / unit) * unit
            of_total = max(power(total), -14)
    return total


MMA = [
    # instruction, architecture, m, k, A, B, C and D, layouts of A, B, C
    ("HMMA.1688.F16", "sm_75", 16, 8, "F16", "F16", "F16", a_1688_half, b_1688_half, c16),
    ("HMMA.1688.F32", "sm_75", 16, 8, "F16", "F16", "F32", a_1688_half, b_1688_half, c16),
    ("HMMA.16816.F16", "sm_80", 16, 16, "F16", "F16", "F16", a_16816_half, b_16816_half, c16),
    ("HMMA.16816.F32", "sm_80", 16, 16, "F16", "F16", "F32", a_16816_half, b_16816_half, c16),
    ("HMMA.1688.F32.BF16", "sm_80", 16, 8, "BF16", "BF16", "F32", a_1688_half, b_1688_half, c16),
    ("HMMA.16816.F32.BF16", "sm_86", 16, 16, "BF16", "BF16", "F32", a_16816_half, b_16816_half, c16),
    ("HMMA.1684.F32.TF32", "sm_80", 16, 4, "TF32", "TF32", "F32", a_1684_tf32, b_tf32, c16),
    ("HMMA.1688.F32.TF32", "sm_80", 16, 8, "TF32", "TF32", "F32", a_1688_tf32, b_tf32, c16),
    ("IMMA.8816.U8.S8", "sm_75", 8, 16, "U8", "S8", "S32", m8_a(16), m8_b(16), c8),
    ("IMMA.8816.S8.S8", "sm_80", 8, 16, "S8", "S8", "S32", m8_a(16), m8_b(16), c8),
    ("IMMA.8832.S4.U4", "sm_75", 8, 32, "S4", "U4", "S32", m8_a(32), m8_b(32), c8),
    ("IMMA.16816.S8.U8", "sm_80", 16, 16, "S8", "U8", "S32", a_16816_byte, b_16816_byte, c16),
    ("IMMA.16832.U8.U8", "sm_90", 16, 32, "U8", "U8", "S32", a_16832_byte, b_16832_byte, c16),
    ("IMMA.16832.S4.S4", "sm_80", 16, 32, "S4", "S4", "S32", a_16832_nibble, b_16832_nibble, c16),
    ("IMMA.16864.U4.S4", "sm_89", 16, 64, "U4", "S4", "S32", a_16864_nibble, b_16864_nibble, c16),
    ("BMMA.88128.XOR.POPC", "sm_75", 8, 128, "B1", "B1", "S32", m8_a(128), m8_b(128), c8),
    ("BMMA.168128.AND.POPC", "sm_80", 16, 128, "B1", "B1", "S32", a_168128_bit, b_168128_bit, c16),
    ("BMMA.168256.XOR.POPC", "sm_80", 16, 256, "B1", "B1", "S32", a_168256_bit, b_168256_bit, c16),
    ("DMMA.884", "sm_80", 8, 4, "F64", "F64", "F64", m8_a(4), m8_b(4), c8),
    ("DMMA.8x8x4", "sm_90", 8, 4, "F64", "F64", "F64", m8_a(4), m8_b(4), c8),
    ("DMMA.16x8x4", "sm_90", 16, 4, "F64", "F64", "F64", a_f64, b_f64, c16),
    ("DMMA.16x8x8", "sm_90", 16, 8, "F64", "F64", "F64", a_f64, b_f64, c16),
    ("DMMA.16x8x16", "sm_90", 16, 16, "F64", "F64", "F64", a_f64, b_f64, c16),
    ("QMMA.16816.F32.E4M3.E5M2", "sm_89", 16, 16, "E4M3", "E5M2", "F32", a_16816_byte, b_16816_byte, c16),
    ("QMMA.16832.F16.E5M2.E4M3", "sm_89", 16, 32, "E5M2", "E4M3", "F16", a_16832_byte, b_16832_byte, c16),
]  # fmt: skip


def suffixes(name: str) -> tuple[str, str]:
    """IMMA, BMMA and QMMA say that A goes by rows and B by columns."""
    return (".ROW", ".COL") if name[0] in "IBQ" else ("", "")


def count(kind: str, rows: int, columns: int) -> int:
    return rows * columns // 32


def compare(name: str, arch: str, got: np.ndarray, a: list, b: list, c: list, layout: Layout, kinds: tuple) -> None:
    """One warp: the codes (32, elements) of D against the product of exact matrices."""
    kind_a, kind_b, kind = kinds
    columns = list(zip(*b))
    for lane in range(32):
        for i in range(got.shape[1]):
            row, column = layout(lane, i)
            pairs = list(zip(a[row], columns[column]))
            if "XOR" in name:
                terms = [Fraction(x ^ y) for x, y in pairs]
            else:
                terms = [exact(x, kind_a) * exact(y, kind_b) for x, y in pairs]
            terms.append(exact(c[row][column], kind))
            result, total = exact(int(got[lane, i]), kind), sum(terms)
            if kind == "S32":
                wrapped = (total + (1 << 31)) % (1 << 32) - (1 << 31)
                saturated = min(max(total, -(1 << 31)), (1 << 31) - 1)
                assert result == (saturated if "SAT" in name else wrapped)
            elif kind == "F64":
                assert abs(result - total) <= sum(abs(t) for t in terms) * len(terms) * Fraction(1, 1 << 52)
            else:
                assert result == core(arch, kinds, pairs, c[row][column], 2 if ".SP" in name else 1), (lane, i)


def test_the_sum_of_hopper() -> None:
    """Terms are cut off 25 bits below the largest exponent, the sum to FP32; the exponent of a product is that of its
    factors' added up: 1.5 * 1.5 counts as 1. (What an H200 gives is compared in test_kernels.py.)"""

    def total(products: list[tuple[float, float]], c: float) -> float:
        a, b = (np.array(column) for column in zip(*products))
        add = sums.adder("sm_90", ("F16", "F16"), "F32")
        return float(add(a[None, None], b[None, :, None], np.array([[[c]]]))[0, 0, 0])

    tiny = 2.0**-25
    assert total([(1, 1), (-1, 1 - 2.0**-11)], 0) == 2.0**-11
    assert total([(1, 1), (-1, 1)], tiny) == tiny
    assert total([(1, 1), (-1, 1)], tiny / 2) == 0
    assert total([(1.5, 1.5), (-1.5, 1.5)], tiny) == tiny
    assert total([(2, 1), (-2, 1)], tiny) == 0
    assert total([(1, 1), (tiny, 7)], 0) == 1 + 2.0**-23  # 7 / 4 units, not rounded up
    assert total([(-1, 1), (-tiny, 7)], 0) == -1 - 2.0**-23
    assert total([(2.0**-24, 1), (0, 1)], 2.0**-45) == 2.0**-24  # a denormal half has the exponent -14
    assert total([(1, 0), (0, 2.0**15)], 2.0**-60) == 2.0**-60  # what is 0 has no exponent
    with np.errstate(invalid="ignore"):
        assert np.isnan(total([(np.inf, 1), (-np.inf, 1)], 0))


@pytest.mark.parametrize("case", MMA, ids=lambda case: f"{case[0]}-{case[1]}")
def test_mma(case: tuple) -> None:
    name, arch, m, k, kind_a, kind_b, kind, layout_a, layout_b, layout_c = case
    sizes = (count(kind_a, m, k), count(kind_b, k, 8), count(kind, m, 8))
    codes = [random_codes(t, (WARPS, 32, s)) for t, s in zip((kind_a, kind_b, kind), sizes)]
    words = [pack(c, width(t)) for c, t in zip(codes, (kind_a, kind_b, kind))]
    row, col = suffixes(name)
    regs = registers(16, words[0]) | registers(48, words[1]) | registers(80, words[2])
    out = step.run(f"{name} R112, R16{row}, R48{col}, R80", arch=arch, regs=regs)
    got = unpack(read(out, 112, words[2].shape[2]), width(kind))
    for w in range(WARPS):
        a = scatter(codes[0][w], layout_a, m, k)
        b = scatter(codes[1][w], layout_b, k, 8)
        c = scatter(codes[2][w], layout_c, m, 8)
        compare(name, arch, got[w], a, b, c, layout_c, (kind_a, kind_b, kind))


def test_in_place_and_masked() -> None:
    """D over C, lanes outside of the guard keep theirs."""
    a, b, c = (pack(random_codes(t, (WARPS, 32, s)), width(t)) for t, s in (("S8", 4), ("S8", 4), ("S32", 2)))
    regs = registers(0, a) | registers(1, b) | registers(2, c)
    whole = step.run("IMMA.8816.S8.S8 R4, R0.ROW, R1.COL, R2", regs=regs)
    some = np.arange(64) % 3 == 0
    out = step.run("@P0 IMMA.8816.S8.S8 R2, R0.ROW, R1.COL, R2", regs=regs, preds={0: some})
    for n in range(2):
        assert (out.r(2 + n) == np.where(some, whole.r(4 + n), regs[2 + n])).all()


@pytest.mark.parametrize("sat", ["", ".SAT"])
def test_integer_overflow(sat: str) -> None:
    regs = {0: 0x7F7F7F7F, 1: np.where(np.arange(32) < 16, 0x7F7F7F7F, 0x80808080).astype(np.uint32)}
    regs |= {2: 0x7FFFFFF0, 3: 0x80000010}
    out = step.run(f"IMMA.8816.S8.S8{sat} R4, R0.ROW, R1.COL, R2", regs=regs)
    for lane in range(32):
        for i, c in enumerate((0x7FFFFFF0, 0x80000010 - (1 << 32))):
            column = lane % 4 * 2 + i
            total = c + 16 * 127 * (127 if column < 4 else -128)
            if sat:
                total = min(max(total, -(1 << 31)), (1 << 31) - 1)
            assert out.r(4 + i)[lane] == total & 0xFFFFFFFF


def test_signs() -> None:
    a, b, c = (random_codes("F64", (1, 32, s)) for s in (1, 1, 2))
    regs = registers(0, pack(a, 64)) | registers(2, pack(b, 64)) | registers(4, pack(c, 64))
    changed = {0: a ^ np.uint64(1 << 63), 2: b & ~np.uint64(1 << 63), 4: c | np.uint64(1 << 63)}
    other = {r: words for first, codes in changed.items() for r, words in registers(first, pack(codes, 64)).items()}
    x = step.run("DMMA.884 R8, -R0, |R2|, -|R4|", arch="sm_80", regs=regs)
    y = step.run("DMMA.884 R8, R0, R2, R4", arch="sm_80", regs=other)
    for r in (8, 10):
        assert (x.r64(r) == y.r64(r)).all()


def test_zero_registers() -> None:
    c = random_codes("F32", (1, 32, 4))
    out = step.run("HMMA.1688.F32 R4, RZ, RZ, R8", arch="sm_80", regs=registers(8, c))
    assert all((out.r(4 + n) == c[0, :, n].astype(np.uint32)).all() for n in range(4))
    one = np.uint32(0x3C003C00)
    out = step.run("HMMA.1688.F32 R4, R0, R2, RZ", arch="sm_80", regs={0: one, 1: one, 2: one})
    assert all((out.r(4 + n, np.float32) == 8).all() for n in range(4))
    step.run("HMMA.1688.F32 RZ, R0, R2, RZ", arch="sm_80")


HUGE, NAN16, INF16 = 0x7BFF, 0x7E01, 0x7C00


@pytest.mark.parametrize("finite", ["", ".SATFINITE"])
def test_overflow_and_nan(finite: str) -> None:
    """A lane's rows: group 0 overflows, group 1 has a NaN, group 2 inf - inf."""
    a = np.zeros((32, 2), np.uint32)
    a[0, 0] = HUGE | HUGE << 16
    a[4, 0] = NAN16
    a[8, 0] = INF16 | (INF16 | 0x8000) << 16
    one = 0x3C003C00
    text = f"HMMA.1688.F16{finite} R8, R0, R2, R4\nHMMA.1688.F32{finite} R12, R0, R2, R4"
    out = step.run(text, regs={0: a[:, 0], 1: a[:, 1], 2: one, 4: 0, 5: 0, 6: 0, 7: 0})
    half = [0x7BFF, 0, 0] if finite else [INF16, 0x7FFF, 0x7FFF]
    assert out.r(8)[[0, 4, 8]].tolist() == [h | h << 16 for h in half]
    assert out.r(12)[[4, 8]].tolist() == ([0, 0] if finite else [0x7FFFFFFF] * 2)
    assert out.r(12, np.float32)[0] == 131008.0  # FP32 holds it
    assert not out.r(8)[12:].any()


def test_fp8_codes() -> None:
    """All codes of both formats: times 1, added to nothing."""
    from turingas.emulate.semantics.formats import E4M3, E5M2

    for code in range(256):
        if code & 0x7F < 0x7F:
            assert Fraction(float(E4M3[code])) == minifloat(code, 4, 3)
        if code & 0x7F < 0x7C:
            assert Fraction(float(E5M2[code])) == minifloat(code, 5, 2)
    assert np.isnan(E4M3[[0x7F, 0xFF]]).all() and E5M2[[0x7C, 0xFC]].tolist() == [np.inf, -np.inf]
    assert np.isnan(E5M2[[0x7D, 0x7E, 0x7F, 0xFD]]).all() and np.signbit(E4M3[0x80])


def test_fp16_rounds_once() -> None:
    """2048 + 1 + 2^-11 is above the middle of 2048 and 2050."""
    a = {0: np.where(np.arange(32) % 4 == 0, 0x1000_3C00, 0).astype(np.uint32), 1: 0}  # 1 and 2^-11
    out = step.run("HMMA.1688.F16 R8, R0, R2, R4", regs=a | {2: 0x3C003C00, 4: 0x68006800, 5: 0})
    assert set(out.r(8, np.float16).tolist()) == {2050.0}


# ---- sparse A --------------------------------------------------------------------------------------------------------


def meta_lanes(k: int, kind: str, selector: int) -> int:
    """How many lanes of a quad hold metadata: 2 bits a kept element (or pair), those of 8 of rows g and g + 8 each, or
    of 16 of one of these rows where elements have 8 bits or less."""
    kept = k // 2 * 2 if kind == "TF32" else k // 4 if kind in ("U4", "S4") else k // 2
    return kept // 8


SPARSE = [
    # instruction, k, A, B, D, layout of the kept A, layout of B, selectors
    ("HMMA.SP.16816.F32", 16, "F16", "F32", a_1688_half, b_16816_half, range(4)),
    ("HMMA.SP.16832.F32.BF16", 32, "BF16", "F32", a_16816_half, None, range(2)),
    ("HMMA.SP.1688.F32.TF32", 8, "TF32", "F32", a_1684_tf32, b_tf32, range(4)),
    ("HMMA.SP.16816.F32.TF32", 16, "TF32", "F32", a_1688_tf32, b_tf32, range(2)),
    ("IMMA.SP.16832.S8.S8", 32, "S8", "S32", a_16816_byte, b_16832_byte, range(2)),
    ("IMMA.SP.16864.S8.S8", 64, "S8", "S32", a_16832_byte, None, range(1)),
    ("IMMA.SP.16864.U4.U4", 64, "U4", "S32", a_16832_nibble, b_16864_nibble, range(2)),
    ("IMMA.SP.168128.U4.U4", 128, "U4", "S32", a_16864_nibble, None, range(1)),
]


@pytest.mark.parametrize("case", SPARSE, ids=lambda case: case[0])
def test_sparse(case: tuple) -> None:
    name, k, kind_a, kind, layout_a, layout_b, selectors = case
    each = 32 // width(kind_a)
    if layout_b is None:  # registers go on as they begin
        layout_b = lambda lane, i: (lane % 4 * each + i % each + i // each * 4 * each, lane // 4)  # noqa: E731
    row_text, col_text = suffixes(name)
    for selector in selectors:
        codes_a = random_codes(kind_a, (32, 16 * (k // 2) // 32))
        codes_b = random_codes(kind_a, (32, k * 8 // 32))
        codes_c = random_codes(kind, (32, 4))
        kept = scatter(codes_a, layout_a, 16, k // 2)
        b, c = scatter(codes_b, layout_b, k, 8), scatter(codes_c, c16, 16, 8)
        # which of each group are kept, and the dense matrix
        unit = 2 if kind_a == "U4" else 1  # elements that go together
        size, many = (2, 1) if kind_a == "TF32" else (4, 2)  # one of two, or two of four
        dense = [[0] * k for _ in range(16)]
        picks = [[] for _ in range(16)]  # two bits each
        for row in range(16):
            for group in range(k // unit // size):
                chosen = sorted(RNG.choice(size, many, replace=False).tolist())
                picks[row] += [2 * chosen[0], 2 * chosen[0] + 1] if kind_a == "TF32" else chosen
                for n, place in enumerate(chosen):
                    for part in range(unit):
                        dense[row][(group * size + place) * unit + part] = kept[row][(group * many + n) * unit + part]
        lanes = meta_lanes(k, kind_a, selector)
        meta = RNG.integers(0, 1 << 32, 32, np.uint32)  # other lanes hold anything
        for lane in range(32):
            part = lane % 4 - selector * lanes
            if 0 <= part < lanes:
                if width(kind_a) > 8:
                    held = [pick for row in (lane // 4, lane // 4 + 8) for pick in picks[row][8 * part : 8 * part + 8]]
                else:
                    held = picks[lane // 4 + 8 * (part % 2)][16 * (part // 2) : 16 * (part // 2) + 16]
                meta[lane] = sum(pick << 2 * n for n, pick in enumerate(held))
        words = [pack(x[None], width(t)) for x, t in ((codes_a, kind_a), (codes_b, kind_a), (codes_c, kind))]
        regs = registers(16, words[0]) | registers(48, words[1]) | registers(80, words[2]) | {100: meta}
        text = f"{name} R112, R16{row_text}, R48{col_text}, R80, R100, {selector:#x}"
        out = step.run(text, arch="sm_80", regs=regs)
        got = np.stack([out.r(112 + n) for n in range(4)], -1).astype(np.uint64)
        compare(name, "sm_80", got, dense, b, c, c16, (kind_a, kind_a, kind))


@pytest.mark.skipif(nvrtc.library_path() is None, reason="needs NVRTC")
def test_sparse_as_ptxas_takes_it_apart():
    """sm_90 has no sparse products of 4 bits and of FP8 for a warp: ptxas makes them of those of 8 and 16 bits, and
    brings the metadata to where these have them. sm_80 and sm_89 have them."""
    made = {}
    for arch, kinds in (("sm_80", "s4"), ("sm_89", "e4m3"), ("sm_90a", "")):
        module = loader.load(nvrtc.compile_source(sparse.source(arch != "sm_80"), arch), "cpu")
        for kind, selector in sparse.CASES:
            if kinds in kind.types and ("s4" in kind.types or "e4m3" in kind.types):
                name, d = sparse.name(kind, selector), np.zeros((sparse.WARPS, 32, 4), np.uint32)
                module.kernel(name).launch(sparse.WARPS, 32, sparse.operands(kind), d)
                made.setdefault(name, []).append(d)
    assert len(made) == 4
    for name, (one, other) in made.items():
        assert one.any() and (one == other).all(), name


# ---- HMMA.884: the parts of mma.m8n8k4, four quad pairs at once ------------------------------------------------------


def volta_a(layout: str, lane: int, i: int) -> tuple[int, int]:
    if layout == "ROW":
        return lane % 4 + (4 if lane >= 16 else 0), i
    return i + (4 if lane >= 16 else 0), lane % 4


def volta_b(layout: str, lane: int, i: int) -> tuple[int, int]:
    if layout == "ROW":
        return lane % 4, i + (4 if lane >= 16 else 0)
    return i, lane % 4 + (4 if lane >= 16 else 0)


def volta_c(kind: str, lane: int, i: int) -> tuple[int, int]:
    if kind == "F16":
        return lane % 4 + (4 if lane >= 16 else 0), i
    return (lane & 1) + (i & 2) + (4 if lane >= 16 else 0), (i & 4) + (lane & 2) + (i & 1)


#: What ptxas 12.9 makes of the mma: the registers of D and C of each step, in PTX's order (2 halves or 1 float each)
STEPS = {
    ("F16", "F16"): [(0, 0), (2, 2)],
    ("F32", "F32"): [(0, 0), (2, 2), (4, 4), (6, 6)],
    ("F32", "F16"): [(0, 0), (2, 0), (4, 2), (6, 2)],
}


@pytest.mark.parametrize("layout_a", ["ROW", "COL"])
@pytest.mark.parametrize("layout_b", ["ROW", "COL"])
@pytest.mark.parametrize("kinds", STEPS)
def test_volta(layout_a: str, layout_b: str, kinds: tuple[str, str]) -> None:
    into, kind_c = kinds
    codes = [random_codes("F16", (32, 4)), random_codes("F16", (32, 4)), random_codes(kind_c, (32, 8))]
    words = [pack(c[None], width(t)) for c, t in zip(codes, ("F16", "F16", kind_c))]
    regs = registers(0, words[0]) | registers(2, words[1]) | registers(8, words[2])
    text = "\n".join(
        f"HMMA.884.{into}.{kind_c}.STEP{n} R{24 + d}, R0.{layout_a}, R2.{layout_b}, R{8 + c}"
        for n, (d, c) in enumerate(STEPS[kinds])
    )
    arch = "sm_70" if layout_a == "ROW" else "sm_75"
    out = step.run(text, arch=arch, regs=regs)
    got = unpack(read_one(out, 24, 4 if into == "F16" else 8), width(into))
    for quad in range(4):
        lanes = [*range(4 * quad, 4 * quad + 4), *range(4 * quad + 16, 4 * quad + 20)]
        a, b, c = {}, {}, {}
        for lane in lanes:
            for i in range(4):
                a[volta_a(layout_a, lane, i)] = int(codes[0][lane, i])
                b[volta_b(layout_b, lane, i)] = int(codes[1][lane, i])
            for i in range(8):
                c[volta_c(kind_c, lane, i)] = int(codes[2][lane, i])
        assert len(a) == len(b) == 32 and len(c) == 64
        for lane in lanes:
            for i in range(8):
                row, column = volta_c(into, lane, i)
                pairs = [(a[row, k], b[k, column]) for k in range(4)]
                added = c[row, column]
                if into != kind_c:  # FP16 as FP32
                    added = int(np.float32(float(exact(added, kind_c))).view(np.uint32))
                assert exact(int(got[lane, i]), into) == core(arch, ("F16", "F16", into), pairs, added), (lane, i)


def read_one(out: step.Result, first: int, count: int) -> np.ndarray:
    return np.stack([out.r(first + n) for n in range(count)], -1).astype(np.uint64)


WMMA = """
#include <mma.h>
using namespace nvcuda;
extern "C" __global__ void product(const half* a, const half* b, const SUM* c, SUM* d) {
    a += blockIdx.x * 256, b += blockIdx.x * 256, c += blockIdx.x * 256, d += blockIdx.x * 256;
    wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::A_major> fa;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::B_major> fb;
    wmma::fragment<wmma::accumulator, 16, 16, 16, SUM> fc;
    wmma::load_matrix_sync(fa, a, 16);
    wmma::load_matrix_sync(fb, b, 16);
    wmma::load_matrix_sync(fc, c, 16, wmma::mem_row_major);
    wmma::mma_sync(fc, fa, fb, fc);
    wmma::store_matrix_sync(d, fc, 16, wmma::mem_row_major);
}
"""


LAYOUTS = [("float", ("row", "col")), ("half", ("col", "row")), ("float", ("col", "row"))]


@pytest.mark.skipif(nvrtc.library_path() is None, reason="needs NVRTC")
@pytest.mark.parametrize("kind, order", LAYOUTS)
def test_volta_wmma(kind: str, order: tuple[str, str]) -> None:
    """Where the elements lie is up to the compiler here: a second witness for the steps."""
    source = WMMA.replace("SUM", kind).replace("A_major", order[0] + "_major").replace("B_major", order[1] + "_major")
    a, b = (RNG.integers(-8, 9, (3, 16, 16)).astype(np.float16) for _ in range(2))
    c = RNG.integers(-99, 99, (3, 16, 16)).astype(np.float16 if kind == "half" else np.float32)
    stored = [np.ascontiguousarray(x if o == "row" else x.swapaxes(1, 2)) for x, o in zip((a, b), order)]
    d = np.zeros_like(c)
    emulate.launch(nvrtc.compile_source(source, "sm_70"), "product", 3, 32, [*stored, c, d])
    assert (d == a.astype(np.float32) @ b.astype(np.float32) + c).all()  # small integers: exact in any order


# ---- the rest --------------------------------------------------------------------------------------------------------


def test_movm_transposes() -> None:
    codes = random_codes("F16", (WARPS, 32, 2))
    out = step.run("MOVM.16.MT88 R1, R0", regs=registers(0, pack(codes, 16)))
    got = unpack(read(out, 1, 1), 16)
    for w in range(WARPS):
        matrix = scatter(codes[w], c8, 8, 8)
        assert scatter(got[w], c8, 8, 8) == [list(row) for row in zip(*matrix)]


@pytest.mark.parametrize(
    "text, arch",
    [
        ("MOVM.16.M832 R0, R1", "sm_80"),
        ("DMMA.884.RZ R0, R4, R6, R8", "sm_80"),
        ("HMMA.16816.F32 R0, R4, R8, R12, UP1", "sm_90"),
    ],
)
def test_what_is_not_there_is_named(text: str, arch: str) -> None:
    with pytest.raises(Unsupported, match=text.split()[0].replace(".", r"\.")):
        step.run(text, arch=arch)


def test_infinities_opposite_to_what_sparse_a_leaves_out() -> None:
    """They are not multiplied (an H200 does so); those that A picks are."""
    one, infinite = 0x3C003C00, 0x7C003C00  # pairs of FP16: the upper one infinite
    regs = dict.fromkeys(range(16, 20), one) | dict.fromkeys(range(48, 52), infinite) | dict.fromkeys(range(80, 84), 0)
    for meta, result in ((0x88888888, 16.0), (0xDDDDDDDD, np.inf)):  # of each four: 0 and 2, or 1 and 3
        text = "HMMA.SP.16832.F32 R112, R16, R48, R80, R100, 0x0"
        out = step.run(text, "sm_90", regs=regs | {100: meta})
        assert (out.r(112, np.float32) == result).all(), hex(meta)
