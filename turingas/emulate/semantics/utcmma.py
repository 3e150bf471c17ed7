"""Matrix products in tensor memory (UTCHMMA, UTCIMMA, UTCQMMA, UTCOMMA; PTX: ``tcgen05.mma``).

One thread begins a product of its block, or of the pair of blocks that it belongs to (.2CTA). D lies in tensor memory,
B in shared memory, A in one of both. Shapes, formats, signs and transposition stand in the instruction descriptor, 32
bits in a uniform register (``Described``); where matrices lie in shared memory says a descriptor of 64 bits that is
that of ``warpgroup``, and has a few bits more. Of a pair each block has half of the rows of A and D in its own memory,
and half of the columns of B.

Which lanes and columns D has (PTX ISA, "Data path layout organization", A to G; CUTLASS, ``tmem_frg``), and A:

    256 rows of a pair, 128 rows    a row a lane
    128 rows of a pair              rows 0 to 63, the second half of the columns 64 lanes further
    64 rows                         16 rows of each warp's 32 lanes; also 128 rows of a pair, if A is sparse
    64 rows, .WS                    the second half of the columns 64 lanes further
    32 rows, .WS                    a quarter of the columns in each 32 lanes

A lane multiplies with what is in that lane: where columns of D go on in further lanes, these need A, and the metadata
of a sparse A, as well.

Sums are those of ``sums``; a scale belongs to its factors, as if these had its exponent, too. No card was at hand: a
product with scales of UE4M3 may differ in its last bits. A product is done late, when an mbarrier has to hear of it
(UTCBAR): matrices, C included, are read then; descriptors when it begins.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from turingas.emulate.arrays import Array, Rows
from turingas.emulate.build import Maker, Step, semantics
from turingas.emulate.cohort import Cohort, State
from turingas.emulate.errors import DeviceError, Unsupported
from turingas.emulate.memory import BadAccess
from turingas.emulate.semantics.described import BITS, Described, described, taken
from turingas.emulate.semantics.formats import SCALES, unpadded
from turingas.emulate.semantics.sums import adder
from turingas.emulate.semantics.tensor import FORMATS, codes, integers, saturated, without
from turingas.emulate.semantics.tmem import Words, address_of, begun, pair, paired
from turingas.emulate.semantics.warpgroup import PIECE, pieces
from turingas.emulate.tensor_memory import LANES
from turingas.isa.instruction import Imm, Instruction, Mem, Reg

ABSOLUTE, SWIZZLE = 52, 61  # in a descriptor of a matrix
SELECTORS = 2  # of metadata
NEIGHBOURS = 32  # lanes of a warp, whose rows .ASHIFT shifts


@functools.lru_cache(64)
def places(rows: int, columns: int, both: bool, stationary: bool, sparse: bool) -> tuple[Array, Array]:
    """The lane and column, from the address of D on, of each of its elements in a block, (rows, columns)."""
    row, column = np.arange(rows)[:, None], np.arange(columns)[None]
    folds = 1
    if both and rows == 64 and not sparse or stationary and rows == 64:
        folds = 2
    elif stationary and rows == 32:
        folds = 4
    if folds > 1:
        each = columns // folds
        return row + column // each * (LANES // folds), column % each + 0 * row
    lanes = row % 16 + row // 16 * 32 if rows == 64 else row
    return lanes + 0 * column, column + 0 * row


class Operands(NamedTuple):
    """Of a product of some warps, (n,) each: their blocks, and what their registers said when it began."""

    warps: Array
    blocks: Array  # (n, 1), or (n, 2) of a pair, the even one first
    a: Array
    b: Array
    d: Array
    metadata: Array
    scales: tuple[Array, Array]
    word: Array
    adds: Array
    off: Array  # (n, 128 or 256) bool: lanes that are not written
    mask: Array  # of columns of B

    def part(self, rows: Array) -> Operands:
        scales = self.scales[0][rows], self.scales[1][rows]
        fields = [x[rows] if isinstance(x, np.ndarray) else scales for x in self]
        return Operands(*fields)  # type: ignore[arg-type]


@semantics("UTCHMMA", "UTCIMMA", "UTCQMMA", "UTCOMMA")
def product(i: Instruction, m: Maker) -> Step:
    """``UTCHMMA A, gdesc[URb], tmem[URd], tmem[URe], idesc[URf], URm, !UPp, n``: D = A * B + D / 2**n, without D unless
    UPp holds. URe names the metadata of a sparse A, URm four or eight registers with the lanes of D that stay as they
    are, with .WS two that say which columns of B are 0. With scales of blocks tmem[URm] are those of A and
    tmem[URm + 1] those of B. Collectors (.A_KEEP and such) change nothing. .ASHIFT then shifts A as ``_shift`` does."""
    a, b, d, e, f = i.operands[:5]
    assert isinstance(a, Mem) and isinstance(b, Mem) and isinstance(d, Mem) and isinstance(e, Mem)
    assert isinstance(f, Mem) and a.ur is not None and b.ur is not None and f.ur is not None
    in_tensor = a.space == "tmem"
    if "ASHIFT" in i.mods and not in_tensor:
        raise Unsupported(f"{i.base}.ASHIFT of A in shared memory")
    rest = i.operands[5:]
    scaled = isinstance(rest[0], Mem)
    mask = rest[0].ur if isinstance(rest[0], Mem) else rest[0]
    assert mask is None or isinstance(mask, Reg)
    masks = 0 if scaled or mask is None or mask.zero else mask.index
    stationary = "WS" in i.mods
    adds = m.pred(rest[1])
    shift = rest[2].value if len(rest) > 2 and isinstance(rest[2], Imm) else 0
    both = "2CTA" in i.mods
    of_d, of_e = address_of(m, d), address_of(m, e)
    of_a = address_of(m, a) if in_tensor else None
    index_a, index_b, word = a.ur.index, b.ur.index, m.raw(f.ur)
    arch, long = m.arch.name, m.arch.products_of_96

    def step(k: Cohort) -> None:
        if both:
            paired(k, i)
        rows = np.flatnonzero(k.lanes.any(axis=1))
        warps, blocks = k.warps[rows], k.blocks[rows]

        def value(get: Callable[[Cohort], Array]) -> Array:
            return np.broadcast_to(get(k), (k.count, 1))[rows, 0].astype(np.int64)

        def double(index: int) -> Array:
            return value(lambda k: k.ur(index)) | value(lambda k: k.ur(index + 1)) << 32

        lanes = np.zeros((len(rows), LANES * (1 + both)), bool)
        if masks and not stationary:
            given = [value(lambda k, n=n: k.ur(masks + n)) for n in range(4 * (1 + both))]  # type: ignore[misc]
            lanes = (np.stack(given, axis=1)[:, :, None] >> np.arange(32) & 1).reshape(len(rows), -1) != 0
        zero = np.zeros(len(rows), np.int64)
        scales = (zero, zero)
        if scaled:
            assert isinstance(mask, Reg)
            scales = value(lambda k: k.ur(mask.index)), value(lambda k: k.ur(mask.index + 1))
        x = Operands(
            warps, pair(k, blocks) if both else blocks[:, None], double(index_a) if of_a is None else value(of_a),
            double(index_b), value(of_d), value(of_e), scales, value(word), value(adds) != 0, lanes,
            double(masks) if masks and stationary else zero,
        )  # fmt: skip
        _check(k, i, x, rows, in_tensor, long)
        wave = k.wave

        def land(which: Rows) -> None:
            chosen = np.arange(len(warps))[which]
            for given, of_columns in {*zip(x.word[chosen].tolist(), x.mask[chosen].tolist())}:
                some = x.part(chosen[(x.word[chosen] == given) & (x.mask[chosen] == of_columns)])
                of = described(i, given)
                _multiply(wave, i, arch, of, some, shift, in_tensor)
                if "ASHIFT" in i.mods:
                    _shift(wave, i, some, of)

        reads = []
        if wave.late.watchers and len(x.word):
            of = described(i, int(x.word[0]))  # products that run together are of one shape
            parts = x.blocks.shape[1]
            for blocks_of in x.blocks.T:
                if not in_tensor:
                    reads.append((blocks_of, _pieces(x, of, 0, of.rows // parts)))
                shifted = taken(of, int(x.mask[0]))[0]
                reads.append((blocks_of, _pieces(x, of, 1, of.columns // parts + shifted)))
        begun(wave, i, warps, land, reads, _touched(i, x, in_tensor))

    return step


def _touched(i: Instruction, x: Operands, in_tensor: bool) -> Iterator[tuple[str, Words]]:
    """What products, which run together and so are of one shape, do to tensor memory. D is no word that they read: who
    knows that it was written may go on adding to it."""
    if not len(x.word):
        return
    of = described(i, int(x.word[0]))
    parts = x.blocks.shape[1]
    mine = of.rows // parts
    for part in range(parts):
        if in_tensor:
            yield from (("read", at) for at in _places_of_a(x, part, of, mine))
        if "ASHIFT" in i.mods:
            yield "write", _places_of_shift(x, part, of)
        if of.scale:
            for which, rows in ((0, mine), (1, of.columns)):
                yield from (("read", at) for at in _places_of_scales(i, x, part, of, which, rows))
        if of.sparse:
            yield from (("read", at) for at in _places_of_metadata(x, part, of, mine))
        yield "write", _places_of_d(i, x, part, of, mine)


def _check(k: Cohort, i: Instruction, x: Operands, rows: Array, in_tensor: bool, long: bool) -> None:
    """Errors, and what is not supported, when a product begins."""
    for n, row in enumerate(rows.tolist()):
        lane = int(k.lanes[row].argmax())
        try:
            of = described(i, int(x.word[n]))
            if of.long and not long:
                raise ValueError("K = 96, which this architecture does not have")
            if of.sparse and of.selector and not BITS.get(of.kinds[0]):
                raise ValueError(f"sparsity selector {of.selector}, which must be 0 for elements of 8 bits and fewer")
            taken(of, int(x.mask[n]))
        except ValueError as why:
            message = f"{i.base} cannot do what its instruction descriptor {int(x.word[n]):#010x} says: {why}"
            raise k.wave.fault(i, "descriptor", message, row, lane) from None
        for which, of_matrix in enumerate((x.a, x.b)):
            if not (in_tensor and which == 0) and (why_not := _wrong(int(of_matrix[n]), of, which)):
                message = f"{i.base} cannot read matrix {'AB'[which]}: {why_not}"
                raise k.wave.fault(i, "descriptor", message, row, lane)
        if of.sparse and of.selector >= SELECTORS:
            alone = "the PTX ISA shows in pictures alone which columns that is"
            raise _unsupported(k, i, f"{i.base} with sparsity selector {of.selector}: {alone}", row, lane)
        if "ASHIFT" in i.mods and of.sparse and of.rows // x.blocks.shape[1] != LANES:
            raise _unsupported(k, i, f"{i.base}.ASHIFT of a sparse A of {of.rows} rows in a pair", row, lane)


def _wrong(descriptor: int, of: Described, which: int) -> str:
    """What a descriptor of a matrix in shared memory says that there is not; "" if that is nothing."""
    swizzle = descriptor >> SWIZZLE & 7
    if swizzle in (3, 5, 7):
        return f"swizzle {swizzle} of its descriptor"
    if descriptor >> ABSOLUTE & 1 and not (of.long and swizzle == 2):
        return "an absolute leading offset (bit 52 of its descriptor), which is for K = 96 with a swizzle of 128 bytes"
    return ""


def _unsupported(k: Cohort, i: Instruction, message: str, row: int, lane: int) -> DeviceError:
    return k.wave.fault(i, "unsupported", f"{message}; the CPU device cannot run it", row, lane)


def _multiply(wave: State, i: Instruction, arch: str, of: Described, x: Operands, shift: int, in_tensor: bool) -> None:
    """Do it, for warps whose instruction descriptor is the same."""
    parts = x.blocks.shape[1]
    mine = of.rows // parts
    shifted, zeros = taken(of, int(x.mask[0]))
    each = of.columns // parts + shifted
    b = np.concatenate([_shared(wave, i, x, part, of, 1, each)[:, shifted:] for part in range(parts)], axis=1)
    b[:, zeros] = 0
    if of.scale:
        b = b * _scales(wave, i, x, 0, of, 1, of.columns)
        if parts == 2:  # the other block has them, too, and could have others
            other = _scales(wave, i, x, 1, of, 1, of.columns)
            if not np.array_equal(other, _scales(wave, i, x, 0, of, 1, of.columns)):
                message = "the scales of B differ in the two blocks of a pair"
                raise wave.fault_of(i, "tensor memory", message, int(x.warps[0]), 0)
    b = b.transpose(0, 2, 1)
    combine: Callable[[Array, Array, Array], Array] = integers
    if of.into != "S32":
        combine = adder(arch, of.kinds, of.into, of.sparse, bool(of.scale))
    elif of.saturates:
        combine = saturated
    for part in range(parts):
        a = _tensor_a(wave, i, x, part, of, mine) if in_tensor else _shared(wave, i, x, part, of, 0, mine)
        there = None
        if of.sparse:
            picks = _picks(wave, i, x, part, of, mine)
            if of.into != "S32" and not np.isfinite(b).all():
                there = _spread(np.ones_like(a), picks) != 0
            a = _spread(a, picks)
        if of.scale:
            a = a * _scales(wave, i, x, part, of, 0, mine)
        at = _places_of_d(i, x, part, of, mine)
        _taken(wave, i, x, *at)
        words = wave.tensor.words[at]
        c = _accumulators(words, of.into)
        if shift:
            c = c / (1 << shift)
        c = np.where(x.adds[:, None, None], c, c.dtype.type(0))
        found = combine(a, b, c) if there is None else without(combine, a, b, c, there)
        bits = found.astype(np.uint32) if of.into == "S32" else codes(found, of.into).astype(np.uint32)
        if of.into == "F16":
            bits = bits | words & np.uint32(0xFFFF0000)
        if x.off.any():
            stays = np.take_along_axis(
                x.off[:, part * LANES : (part + 1) * LANES], at[1].reshape(len(at[1]), -1), axis=1
            )
            bits = np.where(stays.reshape(bits.shape), words, bits)
        wave.tensor.words[at] = bits


def _places_of_d(i: Instruction, x: Operands, part: int, of: Described, rows: int) -> Words:
    """Of D in a block, (n, rows, columns)."""
    lanes, columns = places(rows, of.columns, x.blocks.shape[1] == 2, "WS" in i.mods, of.sparse)
    d = x.d[:, None, None]
    return x.blocks[:, part][:, None, None], (d >> 16) + lanes, (d & 0xFFFF) + columns


def _taken(wave: State, i: Instruction, x: Operands, blocks: Array, lanes: Array, columns: Array) -> None:
    try:
        wave.tensor.check(blocks, lanes, columns)
    except BadAccess as bad:
        each = np.broadcast(blocks, lanes, columns).size // len(x.warps)
        raise wave.fault_of(i, bad.kind, bad.message, int(x.warps[bad.index // each]), 0, bad.address) from None


def _accumulators(words: Array, into: str) -> Array:
    """float64, or int64 of S32. An FP16 has a column of its own, the lower half."""
    if into == "S32":
        return words.view(np.int32).astype(np.int64)
    if into == "F16":
        return words.astype(np.uint16).view(np.float16).astype(np.float64)
    found: Array = words.view(np.float32).astype(np.float64)
    return found


# ---- factors ---------------------------------------------------------------------------------------------------------


def _shared(wave: State, i: Instruction, x: Operands, part: int, of: Described, which: int, rows: int) -> Array:
    """A (``which`` 0) or B out of the shared memory of a block, (n, rows, k)."""
    kind, turned = of.kinds[which], of.turned[which]
    k = of.k if which else of.kept
    at = _pieces(x, of, which, rows)
    blocks = x.blocks[:, part]
    try:
        words = wave.shared.load(wave.shared.in_block(at.reshape(len(at), -1), blocks), blocks, PIECE)
    except BadAccess as bad:
        warp = int(x.warps[bad.index // at[0].size])
        raise wave.fault_of(i, bad.kind, f"matrix {'AB'[which]}: {bad}", warp, 0, bad.address) from None
    raw = np.ascontiguousarray(np.stack(words, axis=-1).reshape(*at.shape, 4))
    if kind in ("E2M3", "E3M2", "E2M1"):
        raw = unpadded(raw, kind)
    value = FORMATS[kind][0](raw).astype(np.float64)
    if turned:
        value = value.swapaxes(2, 3).reshape(len(at), -1, k)[:, :rows]
    else:
        value = value.reshape(len(at), rows, k)
    return -value if of.negative[which] else value


def _pieces(x: Operands, of: Described, which: int, rows: int) -> Array:
    """Where A or B lies in shared memory, in pieces of 16 bytes, (n, rows, pieces), or (n, pieces of rows, k)."""
    kind, turned = of.kinds[which], of.turned[which]
    size = 1 if of.packed else BITS.get(kind, 8) // 8
    k = of.k if which else of.kept
    if turned:
        outer, inner = np.arange(-(-rows * size // PIECE))[:, None], np.arange(k)
    else:
        outer, inner = np.arange(rows)[:, None], np.arange(k * size // (2 if of.packed else 1) // PIECE)
    return pieces((x.a, x.b)[which], outer, inner, turned)


def _tensor_a(wave: State, i: Instruction, x: Operands, part: int, of: Described, rows: int) -> Array:
    """A out of tensor memory, (n, rows, k): 32 bits of a row are a column, elements of 6 and 4 bits in bytes."""
    words = _copies(wave, i, x, _places_of_a(x, part, of, rows), "A")
    kind = of.kinds[0]
    words = np.ascontiguousarray(words)
    value: Array = FORMATS[kind][0](words).astype(np.float64).reshape(len(words), rows, -1)
    return -value if of.negative[0] else value


def _copies(wave: State, i: Instruction, x: Operands, places_of: list[Words], what: str) -> Array:
    """The words at the first of ``places_of``. The others, which further lanes multiply with, must hold the same."""
    found = []
    for at in places_of:
        _taken(wave, i, x, *at)
        found.append(wave.tensor.words[at])
    if any(not np.array_equal(found[0], copy) for copy in found[1:]):
        message = f"{what} differs in the {LANES // len(found)} lanes each that all need it"
        raise wave.fault_of(i, "tensor memory", message, int(x.warps[0]), 0)
    return found[0]


def _lanes_of_a(x: Operands, of: Described, rows: int) -> list[Array]:
    """The lanes with the rows of A, and of what belongs to them, (rows, 1); further ones that need the same."""
    row = np.arange(rows)[:, None]
    if rows == LANES:
        return [row]
    if of.stationary or x.blocks.shape[1] == 2 and not of.sparse:
        return [row + first for first in range(0, LANES, rows)]
    return [row % 16 + row // 16 * 32]


def _places_of_a(x: Operands, part: int, of: Described, rows: int) -> list[Words]:
    """Of the words of A; once more for further lanes that need it."""
    column = np.arange(of.columns_of_a)[None]
    block, a = x.blocks[:, part][:, None, None], x.a[:, None, None]
    return [(block, (a >> 16) + lanes, (a & 0xFFFF) + column) for lanes in _lanes_of_a(x, of, rows)]


def _places_of_shift(x: Operands, part: int, of: Described) -> Words:
    """The words that .ASHIFT writes: of all lanes but the last of each warp."""
    lanes = np.arange(LANES).reshape(-1, NEIGHBOURS)[:, :-1].reshape(-1, 1)
    block, a = x.blocks[:, part][:, None, None], x.a[:, None, None]
    return block, (a >> 16) + lanes, (a & 0xFFFF) + np.arange(of.columns_of_a)[None]


def _shift(wave: State, i: Instruction, x: Operands, of: Described) -> None:
    """What .ASHIFT does when the product is done: in each 32 lanes a row of A takes the place of the one before it, and
    the last one stays, too. PTX ISA: "shifts the rows of the A matrix down by one row, except for the last row in the
    Tensor Memory"; which way is down, and that it comes behind the product, says numsim of TIRx-harness, whose authors
    asked an SM100."""
    for part in range(x.blocks.shape[1]):
        block, lanes, columns = _places_of_shift(x, part, of)
        _taken(wave, i, x, block, lanes + 1, columns)
        wave.tensor.words[block, lanes, columns] = wave.tensor.words[block, lanes + 1, columns]


def _scales(wave: State, i: Instruction, x: Operands, part: int, of: Described, which: int, rows: int) -> Array:
    """The scale of each element, (n, rows, k). Row r has a byte for each block of k in lane r % 32 and column r / 32,
    the first as the instruction descriptor says; the four warps' lanes hold the same (CUTLASS, ``tmem_sf_frg``)."""
    vector, count = _vector(i, of)
    first = of.scale_ids[which]
    if first + count > 4 and not of.long:
        message = f"{count} scales of a row from byte {first} of a column on"
        raise wave.fault_of(i, "descriptor", message, int(x.warps[0]), 0)
    copies = []
    for at in _places_of_scales(i, x, part, of, which, rows):
        _taken(wave, i, x, *at)
        raw = np.ascontiguousarray(wave.tensor.words[at]).view(np.uint8)
        copies.append(raw.reshape(len(raw), rows, -1)[:, :, first : first + count])
    if any(not np.array_equal(copies[0], copy) for copy in copies[1:]):
        message = f"the scales of {'AB'[which]} differ in the lanes of the four warps, which all need them"
        raise wave.fault_of(i, "tensor memory", message, int(x.warps[0]), 0)
    found: Array = np.repeat(SCALES[of.scale][copies[0]], vector, axis=2)
    return found


def _vector(i: Instruction, of: Described) -> tuple[int, int]:
    """How many elements of a row have a scale in common, and how many scales a row has."""
    vector = 32 if i.base == "UTCQMMA" or not ({"4X", "BLOCK16"} & set(i.mods)) else 16
    if of.sparse:
        vector *= 2
    return vector, of.k // vector


def _places_of_scales(i: Instruction, x: Operands, part: int, of: Described, which: int, rows: int) -> list[Words]:
    """Of the words with the scales of each row, (n, rows, words), for each warp that has them. A second word, of
    K = 96, stands behind the first ones of all rows, a multiple of four columns further."""
    row, words = np.arange(rows)[:, None], -(-(of.scale_ids[which] + _vector(i, of)[1]) // 4)
    halves = which == 1 and x.blocks.shape[1] == 2 and of.rows == LANES
    column = row // 32 if not halves else row % (rows // 2) // 32
    column = column + np.arange(words) * 4 * -(-rows // LANES)
    block, address = x.blocks[:, part][:, None, None], x.scales[which][:, None, None]
    lanes = [row % 32 + 32 * warp + (64 * (row // (rows // 2)) if halves else 0) for warp in range(2 if halves else 4)]
    return [(block, (address >> 16 & 0x7F) + lane, (address & 0xFFFF) + column) for lane in lanes]


# ---- sparse products -------------------------------------------------------------------------------------------------


def _picks(wave: State, i: Instruction, x: Operands, part: int, of: Described, rows: int) -> Array:
    """Which elements of its row a sparse A has, (n, rows, k) bool, from the metadata in tensor memory (CUTLASS,
    ``tmem_e_frg``): as many bits as elements, two for each that is kept of four (of eight pairs, if they have 4 bits;
    four for one of two, if they have 32)."""
    k, bits = of.k, of.bits_of_a
    words = _copies(wave, i, x, _places_of_metadata(x, part, of, rows), "the metadata of A")
    if bits >= 16:  # sixteen bits for half of a row
        row = np.arange(rows)[:, None]
        words = words >> (16 * (row // 8 % 2)).astype(np.uint32) & np.uint32(0xFFFF)
        fields = (words[..., None] >> (2 * np.arange(8, dtype=np.uint32)) & np.uint32(3)).reshape(len(words), rows, 16)
    else:
        fields = (words[..., None] >> (2 * np.arange(16, dtype=np.uint32)) & np.uint32(3)).reshape(len(words), rows, 32)
    if bits == 32:  # 0100 names the first of two, 1110 the second
        chosen = fields.reshape(*fields.shape[:2], -1, 2)[..., :1] >> 1 == np.arange(2)
        return chosen.reshape(*fields.shape[:2], k)
    one: Array = (fields.reshape(*fields.shape[:2], -1, 2)[..., None] == np.arange(4)).any(axis=3)
    found = one.reshape(*fields.shape[:2], -1)
    return np.repeat(found, 2, axis=2) if bits == 4 else found


def _places_of_metadata(x: Operands, part: int, of: Described, rows: int) -> list[Words]:
    """Of the two words with the metadata of each row, (n, rows, 2); rows r and r + 8 share them from 16 bits on. Once
    more for further lanes that need them."""
    row, two = np.arange(rows)[:, None], np.arange(2)[None]
    block, address = x.blocks[:, part][:, None, None], x.metadata[:, None, None]
    column, found = address & 0xFFFF, []
    for own in _lanes_of_a(x, of, rows):
        if of.bits_of_a >= 16:
            lane = own - row % 16 + row % 8 + 8 * two
            found.append((block, (address >> 16) + lane, (column & ~1) + of.selector + 0 * lane))
        else:
            found.append((block, (address >> 16) + own + 0 * two, column + two))
    return found


def _spread(a: Array, picks: Array) -> Array:
    """A sparse A, (n, rows, k / 2), with its zeros."""
    found = np.zeros(picks.shape, a.dtype)
    found[picks] = a.reshape(-1)
    return found
