"""Tensor cores: D = A * B + C on matrices that the lanes of a warp hold in pieces.

Where each element lies is what PTX documents for ``mma`` of the same shape ("Matrix multiply-accumulate operation using
mma instruction", the figures of each shape). ptxas 12.9 hands the registers of an ``mma`` on in their order; only
m8n8k4 becomes several instructions (HMMA.884, see there).

Numbers. IMMA and BMMA are exact. HMMA and QMMA cut their sums as the hardware does (``sums.py``). DMMA adds one product
after the other, with one rounding each, as an H200 does (measured for 8x8x4). A NaN is the canonical one (0x7fffffff,
0x7fff; NaNs of DMMA are left).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from turingas.emulate.arrays import Array
from turingas.emulate.build import Maker, Step, semantics
from turingas.emulate.cohort import Cohort
from turingas.emulate.errors import Unsupported
from turingas.emulate.rounding import fma64
from turingas.emulate.semantics.sums import Combine, adder
from turingas.isa.instruction import Imm, Instruction, Reg

Load = Callable[[Cohort], Array]


# ---- number formats: the registers of a lane (n, 32, r) uint32 as its elements (n, 32, e) ----------------------------


def _f16(words: Array) -> Array:
    return words.view(np.float16).astype(np.float64)


def _bf16(words: Array) -> Array:
    wide = words.view(np.uint16).astype(np.uint32) << np.uint32(16)
    found: Array = wide.view(np.float32).astype(np.float64)
    return found


def _tf32(words: Array) -> Array:
    found: Array = (words & np.uint32(0xFFFFE000)).view(np.float32).astype(np.float64)
    return found


def _f32(words: Array) -> Array:
    return words.view(np.float32).astype(np.float64)


def _f64(words: Array) -> Array:
    return words.view(np.float64)


def _u8(words: Array) -> Array:
    return words.view(np.uint8).astype(np.float32)


def _s8(words: Array) -> Array:
    return words.view(np.int8).astype(np.float32)


def _u4(words: Array) -> Array:
    pairs = words.view(np.uint8)
    return np.stack([pairs & 15, pairs >> 4], axis=-1).reshape(*words.shape[:-1], -1).astype(np.float32)


def _s4(words: Array) -> Array:
    value = _u4(words)
    found: Array = value - np.float32(16) * (value >= 8)
    return found


def _b1(words: Array) -> Array:
    return np.unpackbits(words.view(np.uint8), axis=-1, bitorder="little").astype(np.float32)


def _s32(words: Array) -> Array:
    return words.view(np.int32).astype(np.int64)


def _fp8(exponent: int, infinite: bool) -> Array:
    """The values of the 256 codes of an 8-bit format (OCP 8-bit Floating Point Specification): E5M2 has infinities as
    IEEE formats do; in E4M3 only the code with all bits set is special, a NaN."""
    code = np.arange(256)
    mantissa = 7 - exponent
    bias = (1 << exponent - 1) - 1
    e, f = code >> mantissa & (1 << exponent) - 1, code & (1 << mantissa) - 1
    value = np.where(e > 0, np.ldexp(1.0 + f / (1 << mantissa), e - bias), np.ldexp(f / (1 << mantissa), 1 - bias))
    top = (1 << exponent) - 1
    if infinite:
        value = np.where(e == top, np.where(f == 0, np.inf, np.nan), value)
    else:
        value = np.where((e == top) & (f == (1 << mantissa) - 1), np.nan, value)
    return np.where(code & 128, -value, value)


E4M3, E5M2 = _fp8(4, False), _fp8(5, True)


def _e4m3(words: Array) -> Array:
    return E4M3[words.view(np.uint8)]


def _e5m2(words: Array) -> Array:
    return E5M2[words.view(np.uint8)]


#: format: what reads it, elements in a register, and how many elements the metadata of a sparse matrix picks at once
#: (TF32: two picks name one)
FORMATS: dict[str, tuple[Callable[[Array], Array], int, float]] = {
    "F16": (_f16, 2, 1),
    "BF16": (_bf16, 2, 1),
    "TF32": (_tf32, 1, 0.5),
    "F32": (_f32, 1, 1),
    "U8": (_u8, 4, 1),
    "S8": (_s8, 4, 1),
    "U4": (_u4, 8, 2),
    "S4": (_s4, 8, 2),
    "B1": (_b1, 32, 1),
    "S32": (_s32, 1, 1),
    "E4M3": (_e4m3, 4, 1),
    "E5M2": (_e5m2, 4, 1),
    "F64": (_f64, 1, 1),  # of two registers
}


def elements(o: Reg, kind: str) -> Load:
    """The elements of an operand in each lane, (n, 32, e), with its signs."""
    read = FORMATS[kind][0]
    words = _registers(o)

    def load(k: Cohort) -> Array:
        value = read(words(k))
        if o.abs:
            value = np.abs(value)
        return -value if o.neg else value

    return load


def _registers(o: Reg) -> Load:
    """The registers of an operand, (n, 32, r) uint32, contiguous."""
    if o.zero:
        return lambda k: np.zeros((k.count, 32, o.words), np.uint32)
    return lambda k: np.ascontiguousarray(np.moveaxis(k.wave.R[o.index : o.index + o.words, k.rows], 0, 2))


def store(o: Reg, kind: str, finite: bool) -> Callable[[Cohort, Array], None]:
    """Writes elements (n, 32, e) of an accumulator, rounded to ``kind``. ``finite``: infinities become the largest
    number, NaN becomes 0 (.SATFINITE)."""

    def put(k: Cohort, value: Array) -> None:
        if finite:
            value = np.clip(np.where(np.isnan(value), 0.0, value), -LARGEST[kind], LARGEST[kind])
        if kind == "S32":
            bits = value.astype(np.uint32)
        elif kind == "F64":
            bits = np.ascontiguousarray(value).view(np.uint32)
        else:
            bits = codes(value, kind).view(np.uint32)
        for n in range(0 if o.zero else o.words):
            k.set_r(o.index + n, np.ascontiguousarray(bits[:, :, n]))

    return put


LARGEST = {"F16": 65504.0, "F32": float(np.finfo(np.float32).max)}


def codes(value: Array, kind: str) -> Array:
    """FP64 as the bits of FP32 or FP16, a NaN as the one that tensor cores make. The result is contiguous."""
    dtype, bits, nan = (np.float16, np.uint16, 0x7FFF) if kind == "F16" else (np.float32, np.uint32, 0x7FFFFFFF)
    code = np.ascontiguousarray(value).astype(dtype).view(bits)
    code[np.isnan(value)] = nan
    return code


# ---- matrices out of lanes. A lane is 4 * g + t: its group g of 8, and its place t in the group ----------------------


def matrix_a(lanes: Array, rows: int, step: int) -> Array:
    """(n, 32, e) -> (n, rows, k). A register of a lane holds ``step`` neighbours of row g; the next register those of
    row g + 8 if there are 16 rows; then the same 4 * step further in k."""
    n = len(lanes)
    found: Array = lanes.reshape(n, 8, 4, -1, rows // 8, step).transpose(0, 4, 1, 3, 2, 5).reshape(n, rows, -1)
    return found


def matrix_b(lanes: Array, step: int) -> Array:
    """(n, 32, e) -> (n, k, 8). A register of a lane holds ``step`` neighbours of column g."""
    n = len(lanes)
    found: Array = lanes.reshape(n, 8, 4, -1, step).transpose(0, 3, 2, 4, 1).reshape(n, -1, 8)
    return found


def matrix_c(lanes: Array, rows: int) -> Array:
    """(n, 32, e) -> (n, rows, 8). A lane holds columns 2t and 2t + 1 of row g, then of row g + 8."""
    n = len(lanes)
    found: Array = lanes.reshape(n, 8, 4, rows // 8, 2).transpose(0, 3, 1, 2, 4).reshape(n, rows, 8)
    return found


def lanes_c(matrix: Array) -> Array:
    """The way back from ``matrix_c``."""
    n, rows, _ = matrix.shape
    found: Array = matrix.reshape(n, rows // 8, 8, 4, 2).transpose(0, 2, 3, 1, 4).reshape(n, 32, -1)
    return found


def expand(a: Array, words: Array, selector: int, each: float) -> Array:
    """A sparse A (n, 16, k / 2) with its zeros, (n, 16, k). Of four neighbours two are kept; the metadata name each by
    two bits, those of the first at the lowest. Row g and 16 columns: the low half of a register of group g, row g + 8
    its high half; further columns in the next lanes, beginning where ``selector`` says. ``words``: (n, 32, 1)."""
    n, rows, kept = a.shape
    picks = int(kept / each)  # of a row
    lanes = picks // 8
    own = words.reshape(n, 8, 4)[:, :, selector * lanes : (selector + 1) * lanes]
    if own.shape[2] != lanes:
        raise ValueError(f"no lanes hold the metadata that selector {selector} names")
    halves = np.stack([own & np.uint32(0xFFFF), own >> np.uint32(16)], axis=1).reshape(n, rows, lanes, 1)
    which = (halves >> 2 * np.arange(8, dtype=np.uint32) & np.uint32(3)).reshape(n, rows, picks)
    if each < 1:  # two picks of halves name one element of a pair
        group, width, which = 1, 2, which[:, :, ::2] >> np.uint32(1)
    else:
        group, width = 2, 4
    a = a.reshape(n, rows, -1, group, 1, max(1, int(each)))
    place = which.reshape(n, rows, -1, group, 1, 1) == np.arange(width, dtype=np.uint32)[:, None]
    found: Array = np.where(place, a, a.dtype.type(0)).sum(axis=3).reshape(n, rows, -1)
    return found


def without(combine: Combine, a: Array, b: Array, c: Array, there: Array) -> Array:
    """A * B + C of a sparse A, which has elements only where it is ``there``. What it leaves out is not multiplied:
    infinities of B opposite to it do not show (measured on an H200)."""
    rows = [
        combine(a[:, n : n + 1], np.where(there[:, n, :, None], b, 0.0), c[:, n : n + 1]) for n in range(a.shape[1])
    ]
    return np.concatenate(rows, axis=1)


# ---- the instructions ------------------------------------------------------------------------------------------------


def _chained(a: Array, b: Array, c: Array) -> Array:
    """C, and the products in the order of k, each a fused multiply and add."""
    shape = c.shape
    for n in range(a.shape[2]):
        left, right = (np.ascontiguousarray(np.broadcast_to(x, shape)) for x in (a[:, :, n, None], b[:, n, None]))
        c = fma64(left, right, c)
    return c


def integers(a: Array, b: Array, c: Array) -> Array:
    """Sums of at most 64 products of 8 bits are exact in FP32."""
    found: Array = np.matmul(a, b).astype(np.int64) + c
    return found


def saturated(a: Array, b: Array, c: Array) -> Array:
    return np.clip(integers(a, b, c), -(1 << 31), (1 << 31) - 1)


def _differing(a: Array, b: Array, c: Array) -> Array:
    """How many bits differ: those of both, less the common ones twice."""
    ones = a.sum(axis=2, keepdims=True) + b.sum(axis=1, keepdims=True) - 2 * np.matmul(a, b)
    found: Array = ones.astype(np.int64) + c
    return found


def _mma(i: Instruction, sources: tuple[str, str], into: str, combine: Combine) -> Step:
    """All shapes of one layout: A of 8 or 16 rows, B and C of 8 columns."""
    d, a, b, c = i.operands[:4]
    assert isinstance(d, Reg) and isinstance(a, Reg) and isinstance(b, Reg) and isinstance(c, Reg)
    for o in i.operands[4:]:
        if isinstance(o, Reg) and o.file == "UP" and (not o.zero or o.inv):
            raise Unsupported(f"{i.name} under a uniform predicate")
    shape = next(mod for mod in i.mods if mod[0].isdecimal())
    rows = 16 if shape.startswith("16") else 8
    load_a, load_b, load_c = elements(a, sources[0]), elements(b, sources[1]), elements(c, into)
    step_a, step_b, each = FORMATS[sources[0]][1], FORMATS[sources[1]][1], FORMATS[sources[0]][2]
    put = store(d, into, "SATFINITE" in i.mods)

    if "SP" not in i.mods:

        def dense(k: Cohort) -> None:
            first, second = matrix_a(load_a(k), rows, step_a), matrix_b(load_b(k), step_b)
            put(k, lanes_c(combine(first, second, matrix_c(load_c(k), rows))))

        return dense

    metadata, selector = i.operands[-2:]
    assert isinstance(metadata, Reg) and isinstance(selector, Imm)
    load_m, number = _registers(metadata), selector.value

    def sparse(k: Cohort) -> None:
        kept, words = matrix_a(load_a(k), rows, step_a), load_m(k)
        first, second, third = expand(kept, words, number, each), matrix_b(load_b(k), step_b), matrix_c(load_c(k), rows)
        if np.isfinite(second).all():
            put(k, lanes_c(combine(first, second, third)))
            return
        there = expand(np.ones_like(kept), words, number, each) != 0
        put(k, lanes_c(without(combine, first, second, third, there)))

    return sparse


@semantics("HMMA")
def hmma(i: Instruction, m: Maker) -> Step:
    """``HMMA.shape.D Rd, Ra, Rb, Rc`` of FP16, BF16 or TF32; C has D's format."""
    if i.mods[0] == "884":
        return _hmma_884(i, m)
    source = next((kind for kind in ("BF16", "TF32") if kind in i.mods), "F16")
    into = i.mods[2] if i.mods[0] == "SP" else i.mods[1]
    return _mma(i, (source, source), into, adder(m.arch.name, (source, source), into, i.mods[0] == "SP"))


@semantics("QMMA")
def qmma(i: Instruction, m: Maker) -> Step:
    """``QMMA.shape.D.A.B Rd, Ra, Rb, Rc`` of FP8."""
    into, a, b = i.mods[-3:]
    return _mma(i, (a, b), into, adder(m.arch.name, (a, b), into, i.mods[0] == "SP"))


@semantics("IMMA")
def imma(i: Instruction, m: Maker) -> Step:
    """``IMMA.shape.A.B Rd, Ra, Rb, Rc`` of 8 or 4 bits; the sum wraps, or saturates with .SAT."""
    a, b = [mod for mod in i.mods if mod in FORMATS]
    return _mma(i, (a, b), "S32", saturated if "SAT" in i.mods else integers)


@semantics("BMMA")
def bmma(i: Instruction, m: Maker) -> Step:
    """``BMMA.shape.op.POPC Rd, Ra, Rb, Rc``: counts the bits of a row and a column that differ, or that both have."""
    return _mma(i, ("B1", "B1"), "S32", _differing if "XOR" in i.mods else integers)


@semantics("DMMA")
def dmma(i: Instruction, m: Maker) -> Step:
    """``DMMA.shape Rd, Ra, Rb, Rc``."""
    if len(i.mods) > 1:
        raise Unsupported(f"the rounding mode of {i.name}")
    return _mma(i, ("F64", "F64"), "F64", _chained)


# ---- HMMA.884, of Volta ----------------------------------------------------------------------------------------------


def _hmma_884(i: Instruction, m: Maker) -> Step:
    """Four products of 8x4 and 4x8 at once, one for each quad pair: lanes 4q to 4q + 3 (h = 0) and those 16 further on
    (h = 1). A and B are those of PTX's m8n8k4, .ROW or .COL each. A STEP writes some of D:

    - with D in FP16, the columns 4s to 4s + 3 of the lane's row, 4h + t;
    - with D in FP32, two columns of a row: row 4h + (t & 1) + 2 * (s & 1), column 4 * (s >> 1) + (t & 2) and the next.

    C lies as D does; but if C is FP16 and D FP32, it lies as an FP16 D of STEP s >> 1, so the lanes of a quad exchange
    it. (The registers of each STEP are those that ptxas gives to the parts of the ``mma``'s D and C.)
    """
    d, a, b, c = i.operands
    assert isinstance(d, Reg) and isinstance(a, Reg) and isinstance(b, Reg) and isinstance(c, Reg)
    into, kind_c = i.mods[1], i.mods[2]
    step = int(next(mod for mod in i.mods if mod.startswith("STEP"))[4:])
    load_a, load_b, load_c = elements(a, "F16"), elements(b, "F16"), elements(c, kind_c)
    put, combine = store(d, into, "SATFINITE" in i.mods), adder(m.arch.name, ("F16", "F16"), into)
    row_a, row_b = a.suffix == ".ROW", b.suffix == ".ROW"

    lane = np.arange(32)
    half, quad, t = (part[:, None] for part in (lane >> 4, lane >> 2 & 3, lane & 3))
    if into == "F16":
        row, column = 4 * half + t, 4 * step + np.arange(4)
    else:
        row, column = 4 * half + (t & 1) + 2 * (step & 1), 4 * (step >> 1) + (t & 2) + np.arange(2)
    exchanged = into == "F32" and kind_c == "F16"
    giver = 16 * half + 4 * quad + (row & 3)

    def run(k: Cohort) -> None:
        n = k.count
        x = load_a(k).reshape(n, 2, 4, 4, 4)  # half, quad, t, element
        x = x.transpose(0, 2, 1, 3, 4) if row_a else x.transpose(0, 2, 1, 4, 3)
        y = load_b(k).reshape(n, 2, 4, 4, 4)
        y = y.transpose(0, 2, 3, 1, 4) if row_b else y.transpose(0, 2, 4, 1, 3)
        added = load_c(k)
        if exchanged:
            added = added[:, giver, column & 3]
        third = np.zeros((n, 4, 8, 8))
        third[:, quad, row, column] = added
        found = combine(x.reshape(-1, 8, 4), y.reshape(-1, 4, 8), third.reshape(-1, 8, 8)).reshape(third.shape)
        put(k, found[:, quad, row, column])

    return run


# ---- transposition ---------------------------------------------------------------------------------------------------


@semantics("MOVM")
def movm(i: Instruction, m: Maker) -> Step:
    """``MOVM.16.MT88 Rd, Ra``: transposes 8x8 elements of 16 bits; a lane holds columns 2t and 2t + 1 of row g."""
    if i.mods != ("16", "MT88"):
        raise Unsupported(f"{i.name} (only .MT88)")
    d, a = i.operands
    assert isinstance(a, Reg)
    load, put = _registers(a), m.put(d)

    def step(k: Cohort) -> None:
        matrix = load(k).view(np.uint16).reshape(k.count, 8, 8)
        turned = np.ascontiguousarray(matrix.transpose(0, 2, 1)).reshape(k.count, 64)
        put(k, turned.view(np.uint32))

    return step
