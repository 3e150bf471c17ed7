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
from turingas.emulate.semantics import formats
from turingas.emulate.semantics.sums import Combine, adder
from turingas.isa.arch import BLACKWELL
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
    "E4M3": (formats.e4m3, 4, 1),
    "E5M2": (formats.e5m2, 4, 1),
    "E3M2": (formats.e3m2, 4, 1),
    "E2M3": (formats.e2m3, 4, 1),
    "E2M1": (formats.e2m1, 4, 1),
    formats.FP4: (formats.e2m1x2, 8, 2),
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


def expand(a: Array, words: Array, selector: int, each: float, apart: bool = False) -> Array:
    """A sparse A (n, 16, k / 2) with its zeros, (n, 16, k). Of four neighbours two are kept; the metadata name each by
    two bits, those of the first at the lowest. Row g and 16 columns: the low half of a register of group g, row g + 8
    its high half; further columns in the next lanes, beginning where ``selector`` says. ``words``: (n, 32, 1).

    ``apart``, of bytes and less: row g and 32 columns are a register, row g + 8 that of the next lane; further columns
    in the next two (ptxas, where it makes mma.sp of FP8 out of HMMA.SP on sm_90; CUTLASS's ELayout_64x64 of wgmma)."""
    n, rows, kept = a.shape
    picks = int(kept / each)  # of a row
    lanes = picks // 8
    own = words.reshape(n, 8, 4)[:, :, selector * lanes : (selector + 1) * lanes]
    if own.shape[2] != lanes:
        raise ValueError(f"no lanes hold the metadata that selector {selector} names")
    if apart:
        parts, many = own.reshape(n, 8, lanes // 2, 2).transpose(0, 3, 1, 2), 16
    else:
        parts, many = np.stack([own & np.uint32(0xFFFF), own >> np.uint32(16)], axis=1), 8
    which = parts.reshape(n, rows, -1, 1) >> 2 * np.arange(many, dtype=np.uint32) & np.uint32(3)
    which = which.reshape(n, rows, picks)
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


def _addend(i: Instruction, m: Maker, c: Reg, kind: str) -> Load:
    """The registers of C; zeros where the uniform predicate behind them is false, as of HGMMA: a loop of cuBLASLt for
    sm_120 begins its sums anew so, in registers that nothing else clears."""
    load = elements(c, kind)
    up = next((o for o in i.operands[4:] if isinstance(o, Reg) and o.file == "UP"), None)
    if up is None or up.zero and not up.inv:
        return load
    if m.arch not in BLACKWELL:
        raise Unsupported(f"{i.name} under a uniform predicate (no compiled code before sm_100 has it)")
    adds = m.pred(up)

    def added(k: Cohort) -> Array:
        value = load(k)
        return np.where(adds(k).reshape(-1, *[1] * (value.ndim - 1)), value, value.dtype.type(0))

    return added


def _mma(i: Instruction, m: Maker, sources: tuple[str, str], into: str, combine: Combine) -> Step:
    """All shapes of one layout: A of 8 or 16 rows, B and C of 8 columns."""
    d, a, b, c = i.operands[:4]
    assert isinstance(d, Reg) and isinstance(a, Reg) and isinstance(b, Reg) and isinstance(c, Reg)
    shape = next(mod for mod in i.mods if mod[0].isdecimal())
    rows = 16 if shape.startswith("16") else 8
    load_a, load_b, load_c = elements(a, sources[0]), elements(b, sources[1]), _addend(i, m, c, into)
    step_a, step_b, each = FORMATS[sources[0]][1], FORMATS[sources[1]][1], FORMATS[sources[0]][2]
    put = store(d, into, "SATFINITE" in i.mods)

    if "SP" not in i.mods:

        def dense(k: Cohort) -> None:
            first, second = matrix_a(load_a(k), rows, step_a), matrix_b(load_b(k), step_b)
            put(k, lanes_c(combine(first, second, matrix_c(load_c(k), rows))))

        return dense

    metadata, selector = i.operands[-2:]
    assert isinstance(metadata, Reg) and isinstance(selector, Imm)
    load_m, number, apart = _registers(metadata), selector.value, step_a >= 4

    def sparse(k: Cohort) -> None:
        kept, words = matrix_a(load_a(k), rows, step_a), load_m(k)
        first = expand(kept, words, number, each, apart)
        second, third = matrix_b(load_b(k), step_b), matrix_c(load_c(k), rows)
        if np.isfinite(second).all():
            put(k, lanes_c(combine(first, second, third)))
            return
        there = expand(np.ones_like(kept), words, number, each, apart) != 0
        put(k, lanes_c(without(combine, first, second, third, there)))

    return sparse


@semantics("HMMA")
def hmma(i: Instruction, m: Maker) -> Step:
    """``HMMA.shape.D Rd, Ra, Rb, Rc`` of FP16, BF16 or TF32; C has D's format."""
    if i.mods[0] == "884":
        return _hmma_884(i, m)
    source = next((kind for kind in ("BF16", "TF32") if kind in i.mods), "F16")
    into = i.mods[2] if i.mods[0] == "SP" else i.mods[1]
    return _mma(i, m, (source, source), into, adder(m.arch.name, (source, source), into, i.mods[0] == "SP"))


@semantics("QMMA")
def qmma(i: Instruction, m: Maker) -> Step:
    """``QMMA.shape.D.A.B Rd, Ra, Rb, Rc`` of FP8; on sm_120 also of FP6 and FP4 in bytes, and with scales."""
    if "SF" in i.mods:
        return _scaled(i, m, i.mods[-3:-1], i.mods[-1], 1)
    into, a, b = i.mods[-3:]
    return _mma(i, m, (a, b), into, adder(m.arch.name, (a, b), into, i.mods[0] == "SP"))


@semantics("OMMA")
def omma(i: Instruction, m: Maker) -> Step:
    """``OMMA.SF.16864.F32.E2M1.E2M1.scale Rd, Ra, Rb, Rc, UPp, Rs, Rt, URs`` of FP4: two in a byte, and two or four
    (.4X) scales for a row of A and a column of B."""
    scale = i.mods[i.mods.index("F32") + 3]
    return _scaled(i, m, (formats.FP4, formats.FP4), scale, 4 if "4X" in i.mods else 2)


def _scaled(i: Instruction, m: Maker, kinds: tuple[str, ...], scale: str, count: int) -> Step:
    """A product of 16 rows and 8 columns with ``count`` scales a row of A (Rs) and a column of B (Rt). Lane 4 g + 2 a
    has those of row g of A, the next one those of row g + 8; lane 4 g + b those of column g of B (PTX ISA, "Block
    scaling for mma.sync"). URs: bits 1:0 the first byte of A, 2 a, 4:3 the first byte of B, 6:5 b, as ptxas puts them
    together. A sparse A has the metadata in Rs and its scales in Rs + 1."""
    d, a, b, c, _, of_a, of_b, which = i.operands[:8]
    assert isinstance(d, Reg) and isinstance(a, Reg) and isinstance(b, Reg) and isinstance(c, Reg)
    assert isinstance(of_a, Reg) and isinstance(of_b, Reg)
    sparse = "SP" in i.mods
    _, step, picked = FORMATS[kinds[0]]
    values = formats.SCALES["UE8M0" if scale == "E8" else scale]
    load_a, load_b, load_c = elements(a, kinds[0]), elements(b, kinds[1]), _addend(i, m, c, "F32")
    words_a = m.raw(Reg("R", of_a.index + 1) if sparse else of_a)
    words_b, chosen, put = m.raw(of_b), m.raw(which), store(d, "F32", False)
    combine = adder(m.arch.name, (kinds[0], kinds[1]), "F32", sparse, True)
    last = i.operands[-1]
    selector = last.value if isinstance(last, Imm) else 0
    row, column = np.arange(16), np.arange(8)

    def scales(words: Array, lanes: Array, byte: Array) -> Array:
        """(n, rows, count) of words (n, 32)."""
        own = np.take_along_axis(words, lanes, axis=1)[:, :, None]
        code = own >> (8 * (byte[:, :, None] + np.arange(count))).astype(np.uint32) & np.uint32(0xFF)
        found: Array = values[code]
        return found

    def run(k: Cohort) -> None:
        ids = np.broadcast_to(chosen(k), (k.count, 1)).astype(np.int64)
        first, second = matrix_a(load_a(k), 16, step), matrix_b(load_b(k), step)
        there = None
        if sparse:
            words = np.ascontiguousarray(k.full(k.r(of_a.index)))[:, :, None]
            if not np.isfinite(second).all():
                there = expand(np.ones_like(first), words, selector, picked, True) != 0
            first = expand(first, words, selector, picked, True)
        each = first.shape[2] // count
        left = scales(k.full(words_a(k)), 4 * (row % 8) + 2 * (ids >> 2 & 1) + row // 8, ids & 3)
        right = scales(k.full(words_b(k)), 4 * column + (ids >> 5 & 3), ids >> 3 & 3)
        first = first * np.repeat(left, each, axis=2)
        second = second * np.repeat(right, each, axis=2).transpose(0, 2, 1)
        third = matrix_c(load_c(k), 16)
        if there is None:
            put(k, lanes_c(combine(first, second, third)))
        else:
            put(k, lanes_c(without(combine, first, second, third, there)))

    return run


@semantics("IMMA")
def imma(i: Instruction, m: Maker) -> Step:
    """``IMMA.shape.A.B Rd, Ra, Rb, Rc`` of 8 or 4 bits; the sum wraps, or saturates with .SAT."""
    a, b = [mod for mod in i.mods if mod in FORMATS]
    return _mma(i, m, (a, b), "S32", saturated if "SAT" in i.mods else integers)


@semantics("BMMA")
def bmma(i: Instruction, m: Maker) -> Step:
    """``BMMA.shape.op.POPC Rd, Ra, Rb, Rc``: counts the bits of a row and a column that differ, or that both have."""
    return _mma(i, m, ("B1", "B1"), "S32", _differing if "XOR" in i.mods else integers)


@semantics("DMMA")
def dmma(i: Instruction, m: Maker) -> Step:
    """``DMMA.shape Rd, Ra, Rb, Rc``."""
    if len(i.mods) > 1:
        raise Unsupported(f"the rounding mode of {i.name}")
    return _mma(i, m, ("F64", "F64"), "F64", _chained)


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
    """``MOVM.16.MT88 Rd, Ra``: transposes 8x8 elements of 16 bits; a lane holds columns 2t and 2t + 1 of row g.

    ``MOVM.U4TO8.M832 Rd, Ra``: a lane holds columns 8t to 8t + 7 of row g of 8x32 elements of 4 bits; the first
    register gets columns 4t to 4t + 3 as bytes, the second those 16 further on. ptxas makes products of bits (.b1)
    with it, where any order of columns is right that A and B have in common. That it is this one is not known, so
    ``machine.Image.step`` lets it run nowhere else."""
    if ".".join(i.mods) not in ("16.MT88", "U4TO8.M832"):
        raise Unsupported(f"{i.name} (only .16.MT88 and .U4TO8.M832)")
    d, a = i.operands
    assert isinstance(d, Reg) and isinstance(a, Reg)
    load = _registers(a)
    if "U4TO8" in i.mods:

        def widen(k: Cohort) -> None:
            both = load(k).view(np.uint8)
            row = np.stack([both & 15, both >> 4], axis=-1).reshape(k.count, 8, 2, 16)
            words = np.ascontiguousarray(row).view(np.uint32)  # (n, 8, 2, 4)
            for n in range(0 if d.zero else d.words):
                k.set_r(d.index + n, words[:, :, n].reshape(k.count, 32))

        return widen
    put = m.put(d)

    def step(k: Cohort) -> None:
        matrix = load(k).view(np.uint16).reshape(k.count, 8, 8)
        turned = np.ascontiguousarray(matrix.transpose(0, 2, 1)).reshape(k.count, 64)
        put(k, turned.view(np.uint32))

    return step
