"""Matrix products of a warp group (HGMMA, IGMMA, QGMMA, BGMMA; PTX: ``wgmma``), and the registers that its warps have.

Four warps multiply 64 x K by K x N together; warp w has the rows 16 w to 16 w + 15 of A, if it is in registers, and of
D. Where each element of a row lies is as for ``mma`` with 16 rows, D in pieces of 8 columns. A matrix in shared memory
is named by a descriptor of 64 bits in uniform registers (PTX, "Asynchronous warpgroup level matrix shared memory
layout"; the strides are those of CUTLASS' canonical layouts):

    13:0 the address, 29:16 the leading and 45:32 the stride byte offset, each / 16; 51:49 the base offset;
    63:62 the swizzle: 0 none, 1 of 128, 2 of 64, 3 of 32 bytes

In pieces of 16 bytes, W being 16 or the width of the swizzle: where K is contiguous, row r lies at r % 8 * W + r / 8 *
stride, and goes on at each W bytes by the leading offset; where M or N is contiguous (``.tnsp``, elements of 16 bits),
k lies at k % 8 * W, and goes on at 8 k by the stride and at W bytes of M or N by the leading offset (the other way
round without a swizzle). Bits 6:4 of an address are then XORed with bits 9:7, as many as the swizzle has, less the base
offset.

How products are added up says ``sums.py``; integers are exact. A product is done late (``late.py``): when the program
has waited for the group that its ``gsb0``, or that of a later one, closes. Registers and shared memory are read then,
descriptors and predicates when it begins.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeVar

import numpy as np

from turingas.emulate.arrays import Array, Rows
from turingas.emulate.build import Get, Maker, Step, semantics
from turingas.emulate.cohort import REGISTERS, Cohort, State
from turingas.emulate.errors import Unsupported
from turingas.emulate.late import Touch
from turingas.emulate.memory import BadAccess
from turingas.emulate.semantics.sums import Combine, adder
from turingas.emulate.semantics.tensor import FORMATS, codes, expand, integers, matrix_a, saturated, without
from turingas.emulate.splits import GROUP, GSB0
from turingas.isa.instruction import Imm, Instruction, Mem, Reg

SLAB = 32  # bytes of a row that one product takes
WIDTHS = np.array([16, 128, 64, 32], np.int64)  # of the swizzles, by their codes in a descriptor
OF_WGMMA = ~(1 << 61 | 1 << 52)  # bits of a descriptor: these two are tcgen05's
PIECE = 16
WINDOW = (1 << 18) - 1  # what a descriptor can address


@semantics("HGMMA")
def hgmma(i: Instruction, m: Maker) -> Step:
    """``HGMMA.64xNxK.D Rd, A, gdesc[UR], Rc, UPp`` of FP16, BF16 or TF32. A: registers, or in ``gdesc``, too. C counts
    where UPp holds."""
    kind = next((mod for mod in i.mods if mod in ("BF16", "TF32")), "F16")
    into = "F16" if "F32" not in i.mods else "F32"
    return _product(i, m, (kind, kind), into, adder(m.arch.name, (kind, kind), into, "SP" in i.mods))


@semantics("QGMMA")
def qgmma(i: Instruction, m: Maker) -> Step:
    """``QGMMA.64xNxK.D.A.B`` of FP8."""
    into, a, b = i.mods[-3:]
    return _product(i, m, (a, b), into, adder(m.arch.name, (a, b), into, "SP" in i.mods))


@semantics("IGMMA")
def igmma(i: Instruction, m: Maker) -> Step:
    """``IGMMA.64xNxK.A.B`` of 8 bits; the sum wraps, or saturates with .SAT."""
    a, b = [mod for mod in i.mods if mod in FORMATS]
    return _product(i, m, (a, b), "S32", saturated if "SAT" in i.mods else integers)


@semantics("BGMMA")
def bgmma(i: Instruction, m: Maker) -> Step:
    """``BGMMA.64xNx256.AND.POPC``: counts the bits that a row and a column both have."""
    return _product(i, m, ("B1", "B1"), "S32", integers)


def _product(i: Instruction, m: Maker, kinds: tuple[str, str], into: str, combine: Combine) -> Step:
    if "REGOFFSET" in i.mods:  # libraries alone have it, and load 16 bits of metadata for it in each thread
        raise Unsupported(f"{i.base}.SP.REGOFFSET: where its metadata lie is not known")
    d, first = i.operands[:2]
    second = i.operands[2] if isinstance(first, Reg) else first
    c, adds = i.operands[3 if isinstance(first, Reg) else 2 :][:2]
    assert isinstance(d, Reg) and isinstance(c, Reg) and isinstance(second, Mem) and second.ur is not None
    sparse = "SP" in i.mods
    columns = int(i.mods[sparse].split("x")[1])
    text = i.text()
    of_b = second.ur.index + 2
    b_matrix = Matrix(i, of_b, columns, kinds[1], ".tnspB" in text, ".negB" in text, 2 if sparse else 1)
    if isinstance(first, Reg):
        load_a, matrices = _from_registers(first, kinds[0]), [b_matrix]
    else:
        a_matrix = Matrix(i, of_b - 2, 64, kinds[0], ".tnspA" in text, ".negA" in text, shares=True)
        load_a, matrices = a_matrix.load, [a_matrix, b_matrix]
    counts = m.pred(adds)
    spread_out = _sparse(i, *FORMATS[kinds[0]][1:]) if sparse else None

    def land(work: Work) -> None:
        a, b = load_a(work), b_matrix.load(work).transpose(0, 2, 1)
        third = _accumulators(work, c, into, columns)
        if not work.adds.all():
            third = np.where(work.adds[:, None, None], third, third.dtype.type(0))
        there = None
        if spread_out is not None:
            if not np.isfinite(b).all():
                there = spread_out(work, np.ones_like(a)) != 0
            a = spread_out(work, a)
        found = combine(a, b, third) if there is None else without(combine, a, b, third, there)
        _put(work, d, into, found)

    return _begin(i, land, matrices, counts, "gsb0" in text)


class Work(NamedTuple):
    """A product of some groups, g of them, when it is done: all their ``warps`` (4 g,), ``where`` these are as an
    index, and which of them are ``wanted``; the descriptors and whether C counts, (g,), as they were when it began."""

    wave: State
    warps: Array
    where: Rows
    wanted: Rows
    descriptors: dict[int, Array]
    adds: Array


def _begin(i: Instruction, land: Callable[[Work], None], matrices: list[Matrix], counts: Get, gsb0: bool) -> Step:
    """The step that begins a product. It is done, and reads its matrices, when the program has waited for its group."""

    def step(k: Cohort) -> None:
        wave = k.wave
        rows, warps = _groups(k, i)
        adds = np.broadcast_to(counts(k), (k.count, 1))[rows[::GROUP], 0]
        descriptors = {}
        for index in (matrix.index for matrix in matrices):
            low, high = (wave.UR[index + n][warps, 0].reshape(-1, GROUP).astype(np.int64) for n in (0, 1))
            both = low | high << 32
            if (other := (both != both[:, :1]).any(axis=1)).any():
                message = f"{i.base} with different descriptors in the warps of a warp group"
                raise k.wave.fault(i, "warp group", message, int(rows[GROUP * int(other.argmax())]), 0)
            descriptors[index] = both[:, 0]

        def over(rows: Rows) -> None:
            if isinstance(rows, slice):
                land(Work(wave, warps, _index(warps), rows, descriptors, adds))
            else:
                groups = np.unique(rows // GROUP)
                all_of = (groups[:, None] * GROUP + np.arange(GROUP)).ravel()
                part = {index: given[groups] for index, given in descriptors.items()}
                wanted = np.searchsorted(all_of, rows)
                land(Work(wave, warps[all_of], warps[all_of], wanted, part, adds[groups]))
            for observer in wave.observers:
                observer.product_over(warps[rows], i)

        for observer in wave.observers:
            observer.product(k, i)
        touches = [m.touch(wave, warps, descriptors[m.index]) for m in matrices] if wave.observers else []
        wave.late.begin(warps, over, "product", i, touches)
        if gsb0:
            wave.late.close("product", warps, GSB0)

    return step


def _index(warps: Array) -> Rows:
    first, last = int(warps[0]), int(warps[-1])
    return slice(first, last + 1) if last - first == len(warps) - 1 else warps


def _sparse(i: Instruction, held: int, each: float) -> Callable[[Work, Array], Array]:
    """A sparse A, (groups, 64, k / 2), with its zeros, (groups, 64, k). ``held``: elements in a register."""
    metadata, selector = i.operands[-3:-1] if isinstance(i.operands[-2], Imm) else i.operands[-2:]
    assert isinstance(metadata, Reg) and isinstance(selector, Imm)
    index, number = metadata.index, selector.value

    def spread_out(work: Work, a: Array) -> Array:
        words = work.wave.R[index, work.where][:, :, None]
        return expand(a.reshape(-1, 16, a.shape[2]), words, number, each, held >= 4).reshape(len(a), 64, -1)

    return spread_out


def _groups(k: Cohort, i: Instruction) -> tuple[Array, Array]:
    """The rows of the cohort that are at work, and their warps. Each group must be here with all its lanes."""
    rows = np.arange(k.count)
    if k.mask is not None:
        some = k.mask.any(axis=1)
        missing = some & ~k.mask.all(axis=1)
        if missing.any():
            row = int(missing.argmax())
            message = f"{i.base} without all lanes of the warp"
            raise k.wave.fault(i, "warp group", message, row, int(k.mask[row].argmax()))
        rows = np.flatnonzero(some)
    warps = k.warps[rows]
    first = warps - place_in_group(k.wave.warps // k.wave.blocks, warps)
    together = np.bincount(first, minlength=k.wave.warps)[first] == GROUP
    if not together.all():
        row = int(rows[(~together).argmax()])
        message = f"{i.base} without the other warps of the warp group; WARPGROUP.ARRIVE brings the four together"
        raise k.wave.fault(i, "warp group", message, row, 0)
    return rows, warps


def place_in_group(per_block: int, warps: Array) -> Array:
    """The place of warps of the wave in their groups of four: a block begins a new group."""
    found: Array = warps % per_block % GROUP
    return found


Load = Callable[[Work], Array]
T = TypeVar("T")


# ---- registers -------------------------------------------------------------------------------------------------------


def _registers(work: Work, o: Reg) -> Array:
    """The registers of an operand, (registers, warps, 32)."""
    found: Array = work.wave.R[o.index : o.index + o.words, work.where]
    return found


def _from_registers(o: Reg, kind: str) -> Load:
    """A, (groups, 64, k)."""
    read, step, _ = FORMATS[kind]

    def load(work: Work) -> Array:
        words = np.ascontiguousarray(np.moveaxis(_registers(work, o), 0, 2))
        value = matrix_a(read(words), 16, step).reshape(len(work.adds), 64, -1)
        return -value if o.neg else value

    return load


def _accumulators(work: Work, o: Reg, into: str, columns: int) -> Array:
    """C, (groups, 64, columns): float64, or int64 of S32."""
    dtype = np.int64 if into == "S32" else np.float64
    if o.zero:
        return np.zeros((len(work.adds), 64, columns), dtype)
    words = _registers(work, o)
    if into == "F16":
        parts: Array = np.ascontiguousarray(words).view(np.float16).reshape(columns // 8, 2, -1, 8, 4, 2)
        matrix = parts.transpose(2, 1, 3, 0, 4, 5)  # warp, half, row, piece, pair, element
    else:
        parts = words.view(np.int32 if into == "S32" else np.float32).reshape(columns // 8, 2, 2, -1, 8, 4)
        matrix = parts.transpose(3, 1, 4, 0, 5, 2)
    return matrix.astype(dtype).reshape(-1, 64, columns)


def _put(work: Work, o: Reg, into: str, value: Array) -> None:
    """Writes D, (groups, 64, columns), in the warps that are wanted."""
    if o.zero:
        return
    bits = value.astype(np.uint32) if into == "S32" else codes(value, into)
    parts = bits.reshape(-1, 2, 8, value.shape[2] // 8, 4, 2)
    if into == "F16":
        words = np.ascontiguousarray(parts.transpose(3, 1, 0, 2, 4, 5)).view(np.uint32)
    else:
        words = parts.transpose(3, 1, 5, 0, 2, 4)
    words = words.reshape(o.words, -1, 32)
    if isinstance(work.wanted, slice):
        work.wave.R[o.index : o.index + o.words, work.where] = words
    else:
        work.wave.R[o.index : o.index + o.words, work.warps[work.wanted]] = words[:, work.wanted]


# ---- shared memory ---------------------------------------------------------------------------------------------------


class Matrix:
    """The matrix that UR``index`` describes, (groups, rows, k). ``turned``: its rows are contiguous, not k. ``shares``:
    each warp of a group reads a quarter of the rows, not all."""

    def __init__(
        self, i: Instruction, index: int, rows: int, kind: str, turned: bool, negative: bool, slabs: int = 1,
        shares: bool = False,
    ) -> None:  # fmt: skip
        self.i, self.index, self.rows, self.turned, self.negative = i, index, rows, turned, negative
        self.shares = shares
        self.read, each, _ = FORMATS[kind]
        if turned and each != 2:
            raise Unsupported(f"{i.name} with a transposed matrix of {kind}")
        if turned:
            self.inner, self.outer = np.arange(SLAB * slabs // 2), np.arange(rows // 8)[:, None]  # k; eight rows
        else:
            self.inner, self.outer = np.arange(slabs * SLAB // PIECE), np.arange(rows)[:, None]  # pieces of a row; rows

    def _do(self, wave: State, warps: Array, descriptors: Array, do: Callable[[Array, Array, int], list[T]]) -> list[T]:
        """``do`` something to all warps of some groups where its pieces lie: addresses, blocks, bytes."""
        firsts = warps[::GROUP]
        places = pieces(descriptors & OF_WGMMA, self.outer, self.inner, self.turned)
        blocks = wave.block_of[firsts]
        at = wave.shared.in_block(places.reshape(len(firsts), -1), blocks)
        try:
            return do(at, blocks, PIECE)
        except BadAccess as bad:
            warp, message = int(firsts[bad.index // at.shape[1]]), f"the matrix of UR{self.index}: {bad}"
            raise wave.fault_of(self.i, bad.kind, message, warp, 0, bad.address) from None

    def load(self, work: Work) -> Array:
        words = self._do(work.wave, work.warps, work.descriptors[self.index], work.wave.shared.load)
        both, groups = np.stack(words, axis=-1), len(work.adds)
        if self.turned:
            eights = self.read(both.reshape(groups, self.rows // 8, -1, PIECE // 4))
            value = eights.reshape(groups, self.rows // 8, -1, 8).swapaxes(2, 3).reshape(groups, self.rows, -1)
        else:
            value = self.read(both).reshape(groups, self.rows, -1)
        return -value if self.negative else value

    def touch(self, wave: State, warps: Array, descriptors: Array) -> Touch:
        """What it makes the warps read."""
        (spots,) = self._do(wave, warps, descriptors, wave.shared.locate)
        index = spots.index
        index = index.reshape(-1, index.shape[1] // GROUP) if self.shares else index.repeat(GROUP, axis=0)
        return Touch("read", index, PIECE)


def pieces(descriptors: Array, outer: Array, inner: Array, turned: bool) -> Array:
    """Where the pieces of 16 bytes of matrices lie in shared memory, (n, outer, inner), for ``descriptors`` (n,)."""
    if (descriptors == descriptors[0]).all():
        found = pieces_of(descriptors[:1], outer, inner, turned)
        return np.broadcast_to(found, (len(descriptors), *found.shape[1:]))
    return pieces_of(descriptors, outer, inner, turned)


def pieces_of(descriptors: Array, outer: Array, inner: Array, turned: bool) -> Array:
    """The same, for each by itself. Of tcgen05 alone: bit 61 says that the swizzle of 128 bytes moves 32 bytes at once;
    with bit 52 the leading offset is an address, where a row goes on that leaves its 128 bytes."""
    d = descriptors[:, None, None]
    start, leading, stride = ((d >> bit & 0x3FFF) * PIECE for bit in (0, 16, 32))
    double, absolute = d >> 61 & 1, d >> 52 & 1
    width, base = np.where(double, 128, WIDTHS[d >> 62 & 3]), d >> 49 & 7
    if turned:
        one = np.where(width == PIECE, stride, leading)
        eight = np.where(width == PIECE, leading, stride)
        deep = np.where(double, 4, 8)  # along K
        at = outer * PIECE % width + outer * PIECE // width * one + inner % deep * width + inner // deep * eight
    else:
        column = inner * PIECE
        at = outer % 8 * width + outer // 8 * stride + column % width + column // width * leading
        over = absolute & (start % 128 + column >= 128)
        start = np.where(over, leading + start % 128 - 128, start)
    at = at + start & WINDOW
    phase = (at >> 7) - base & np.where(double, 3, width // PIECE - 1)
    found: Array = at ^ phase << 4 + double
    return found


# ---- the registers of a warp -----------------------------------------------------------------------------------------

FEWEST, MOST = 24, 256


@semantics("USETMAXREG")
def set_max_registers(i: Instruction, m: Maker) -> Step:
    """``USETMAXREG.DEALLOC.CTAPOOL n`` gives registers of the warp to its block, so that it keeps n;
    ``USETMAXREG.TRY_ALLOC.CTAPOOL UPu, n`` takes them from there, and says whether there were enough."""
    asks = "TRY_ALLOC" in i.mods
    count = m.raw(i.operands[-1])
    put = m.put(i.operands[0]) if asks else None

    def step(k: Cohort) -> None:
        wave, done = k.wave, np.ones((k.count, 1), bool)
        wanted = np.broadcast_to(count(k), (k.count, 1))[:, 0].tolist()
        lanes = k.lanes
        for row, warp in enumerate(k.warps.tolist()):
            if not lanes[row].any():
                continue
            has, block = int(wave.has[warp]), int(wave.block_of[warp])
            want = wanted[row]
            if not FEWEST <= want <= MOST or want % REGISTERS or (want < has if asks else want > has):
                what = "asks for" if asks else "keeps"
                than = "fewer" if asks else "more"
                message = f"the warp has {has} registers and {what} {want}; that must be a multiple of {REGISTERS} from"
                message += f" {FEWEST} to {MOST}, and no {than} than it has"
                raise wave.fault(i, "registers", message, row, int(lanes[row].argmax()))
            if want - has > wave.pool[block]:
                done[row] = False
                continue
            wave.pool[block] -= want - has
            wave.has[warp] = want
        if put is not None:
            put(k, done)

    return step
