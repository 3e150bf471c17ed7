"""Matrix products in tensor memory (UTCHMMA, UTCIMMA, UTCQMMA, UTCOMMA; PTX: ``tcgen05.mma``).

One thread begins a product of its block, or of the pair of blocks that it belongs to (.2CTA). D lies in tensor memory,
B in shared memory, A in one of both. Shapes, formats, signs and transposition stand in the instruction descriptor, 32
bits in a uniform register (``Described``); where matrices lie in shared memory says a descriptor of 64 bits that is
that of ``warpgroup``, but for bits 52 and 61. Of a pair each block has half of the rows of A and D in its own memory,
and half of the columns of B.

Which lanes and columns D has (PTX ISA, "Data path layout organization", A to G; CUTLASS, ``tmem_frg``), and A:

    256 rows of a pair, 128 rows    a row a lane
    128 rows of a pair              rows 0 to 63, the second half of the columns 64 lanes further
    64 rows                         16 rows of each warp's 32 lanes; also 128 rows of a pair, if A is sparse
    64 rows, .WS                    the second half of the columns 64 lanes further
    32 rows, .WS                    a quarter of the columns in each 32 lanes

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
from turingas.emulate.semantics.formats import FP4, SCALES, unpadded
from turingas.emulate.semantics.sums import adder
from turingas.emulate.semantics.tensor import FORMATS, codes, integers, saturated, without
from turingas.emulate.semantics.tmem import Words, address_of, begun, pair, paired
from turingas.emulate.semantics.warpgroup import PIECE, pieces
from turingas.emulate.tensor_memory import LANES
from turingas.isa import descriptors
from turingas.isa.instruction import Imm, Instruction, Mem, Reg

SLAB = 32  # bytes of a row that one product takes
BITS = {"F16": 16, "BF16": 16, "TF32": 32}
SHIFTED, ABSOLUTE = 61, 52  # bits of a descriptor whose meaning is not modelled


class Described(NamedTuple):
    """What an instruction descriptor says (``isa.descriptors``)."""

    rows: int
    columns: int
    kinds: tuple[str, str]
    into: str
    negative: tuple[bool, bool]
    turned: tuple[bool, bool]
    sparse: bool
    selector: int
    saturates: bool
    scale: str  # format of the scales, if there are any
    scale_ids: tuple[int, int]  # the first byte of a column that has them

    @property
    def packed(self) -> bool:
        """Two elements of 4 bits a byte."""
        return self.kinds[0] == FP4

    @property
    def kept(self) -> int:
        """Elements of a row of A that are there."""
        return SLAB * 2 if self.packed else SLAB * 8 // BITS.get(self.kinds[0], 8)

    @property
    def bits_of_a(self) -> int:
        return BITS.get(self.kinds[0], 4 if self.packed else 8)

    @property
    def k(self) -> int:
        return self.kept * (2 if self.sparse else 1)


@functools.lru_cache(256)
def described(i: Instruction, word: int) -> Described:
    """An instruction descriptor taken apart. ValueError for what is not there, Unsupported for what is not modelled."""
    kind = next(one.kind for one in descriptors.operands(i) if one.of == "idesc")
    told = {field.name: text for field, text in descriptors.parts(kind, word)}
    for name in ("A", "B", "D", "scales"):
        if told.get(name, "").endswith("?"):
            raise ValueError(f"format {told[name][:-1]} of {name}")
    if told.get("K") == "96":
        raise Unsupported(f"{i.name} with K = 96")
    rows, columns = int(told["M"]), int(told["N"])
    both = "2CTA" in i.mods
    if rows not in ((32, 64, 128) if "WS" in i.mods else (128, 256) if both else (64, 128)):
        raise ValueError(f"{rows} rows")
    if not 8 <= columns <= 256 or both and columns % 16 or "WS" in i.mods and columns % 32:
        raise ValueError(f"{columns} columns")

    def yes(name: str) -> bool:
        return told.get(name) == "yes"

    return Described(
        rows, columns, (FP4, FP4) if i.base == "UTCOMMA" else (told["A"], told["B"]), told.get("D", "F32"),
        (yes("negate A"), yes("negate B")), (yes("transpose A"), yes("transpose B")), yes("sparse"),
        int(told.get("sparsity selector", "0")), yes("saturate"), told.get("scales", ""),
        (int(told.get("scales of A", "0")), int(told.get("scales of B", "0"))),
    )  # fmt: skip


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

    def part(self, rows: Array) -> Operands:
        scales = self.scales[0][rows], self.scales[1][rows]
        fields = [x[rows] if isinstance(x, np.ndarray) else scales for x in self]
        return Operands(*fields)  # type: ignore[arg-type]


@semantics("UTCHMMA", "UTCIMMA", "UTCQMMA", "UTCOMMA")
def product(i: Instruction, m: Maker) -> Step:
    """``UTCHMMA A, gdesc[URb], tmem[URd], tmem[URe], idesc[URf], URm, !UPp, n``: D = A * B + D / 2**n, without D unless
    UPp holds. URe names the metadata of a sparse A, URm four or eight registers with the lanes of D that stay as they
    are. With scales of blocks tmem[URm] are those of A and tmem[URm + 1] those of B. Collectors (.A_KEEP and such)
    change nothing."""
    a, b, d, e, f = i.operands[:5]
    assert isinstance(a, Mem) and isinstance(b, Mem) and isinstance(d, Mem) and isinstance(e, Mem)
    assert isinstance(f, Mem) and a.ur is not None and b.ur is not None and f.ur is not None
    if "ASHIFT" in i.mods:
        raise Unsupported(f"{i.base}.ASHIFT (nothing public says whether tensor memory changes, too)")
    rest = i.operands[5:]
    scaled = isinstance(rest[0], Mem)
    mask = rest[0].ur if isinstance(rest[0], Mem) else rest[0]
    assert mask is None or isinstance(mask, Reg)
    masks = 0 if scaled or mask is None or mask.zero else mask.index
    if masks and "WS" in i.mods:
        raise Unsupported(f"{i.base}.WS with a mask of columns that are zero")
    adds = m.pred(rest[1])
    shift = rest[2].value if len(rest) > 2 and isinstance(rest[2], Imm) else 0
    both = "2CTA" in i.mods
    in_tensor = a.space == "tmem"
    of_d, of_e = address_of(m, d), address_of(m, e)
    of_a = address_of(m, a) if in_tensor else None
    index_a, index_b, word = a.ur.index, b.ur.index, m.raw(f.ur)
    arch = m.arch.name

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
        if masks:
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
        )  # fmt: skip
        _check(k, i, x, rows, in_tensor)
        wave = k.wave

        def land(which: Rows) -> None:
            chosen = np.arange(len(warps))[which]
            for given in np.unique(x.word[chosen]).tolist():
                some = chosen[x.word[chosen] == given]
                _multiply(wave, i, arch, described(i, given), x.part(some), shift, in_tensor)

        reads = []
        if wave.late.watchers and len(x.word):
            of = described(i, int(x.word[0]))  # products that run together are of one shape
            parts = x.blocks.shape[1]
            for blocks_of in x.blocks.T:
                if not in_tensor:
                    reads.append((blocks_of, _pieces(x, of, 0, of.rows // parts)))
                reads.append((blocks_of, _pieces(x, of, 1, of.columns // parts)))
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
        if of.scale:
            for which, rows in ((0, mine), (1, of.columns)):
                yield from (("read", at) for at in _places_of_scales(x, part, of, which, rows))
        if of.sparse:
            yield "read", _places_of_metadata(x, part, of, mine)
        yield "write", _places_of_d(i, x, part, of, mine)


def _check(k: Cohort, i: Instruction, x: Operands, rows: Array, in_tensor: bool) -> None:
    """Errors, and what is not supported, when a product begins."""
    for n, row in enumerate(rows.tolist()):
        lane = int(k.lanes[row].argmax())
        try:
            of = described(i, int(x.word[n]))
        except ValueError as why:
            message = f"{i.base} cannot do what its instruction descriptor {int(x.word[n]):#010x} says: {why}"
            raise k.wave.fault(i, "descriptor", message, row, lane) from None
        except Unsupported as why:
            raise _unsupported(k, i, str(why), row, lane) from None
        for of_matrix in ([] if in_tensor else [x.a]) + [x.b]:
            for bit, what in ((SHIFTED, "32-byte atoms of a swizzle"), (ABSOLUTE, "absolute leading offsets")):
                if int(of_matrix[n]) >> bit & 1:
                    raise _unsupported(k, i, f"{i.base} with {what} (bit {bit} of a descriptor)", row, lane)
        if of.sparse and of.selector > (1 if BITS.get(of.kinds[0]) else 0):
            raise _unsupported(k, i, f"{i.base} with sparsity selector {of.selector}", row, lane)
        if in_tensor and "WS" in i.mods and of.rows != LANES:
            raise _unsupported(k, i, f"{i.base}.WS with {of.rows} rows of A in tensor memory", row, lane)


def _unsupported(k: Cohort, i: Instruction, message: str, row: int, lane: int) -> DeviceError:
    return k.wave.fault(i, "unsupported", f"{message}; the CPU device cannot run it", row, lane)


def _multiply(wave: State, i: Instruction, arch: str, of: Described, x: Operands, shift: int, in_tensor: bool) -> None:
    """Do it, for warps whose instruction descriptor is the same."""
    parts = x.blocks.shape[1]
    mine = of.rows // parts
    b = np.concatenate([_shared(wave, i, x, part, of, 1, of.columns // parts) for part in range(parts)], axis=1)
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
        words = wave.shared.load(at.reshape(len(at), -1).astype(np.uint32), blocks, PIECE)
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
    at, *again = _places_of_a(x, part, of, rows)
    _taken(wave, i, x, *at)
    words = wave.tensor.words[at]
    if again and not np.array_equal(words, wave.tensor.words[again[0]]):
        message = "A differs in the two halves of tensor memory: with 128 rows of a pair both need all of it"
        raise wave.fault_of(i, "tensor memory", message, int(x.warps[0]), 0)
    kind = of.kinds[0]
    words = np.ascontiguousarray(words)
    value: Array = FORMATS[kind][0](words).astype(np.float64).reshape(len(words), rows, -1)
    return -value if of.negative[0] else value


def _places_of_a(x: Operands, part: int, of: Described, rows: int) -> list[Words]:
    """Of the words of A; once more where both halves of the lanes need it."""
    row, column = np.arange(rows)[:, None], np.arange(SLAB // 4)[None]
    folded = rows == 64 and x.blocks.shape[1] == 2 and not of.sparse
    lanes = row if rows == LANES or folded else row % 16 + row // 16 * 32
    block, a = x.blocks[:, part][:, None, None], x.a[:, None, None]
    return [(block, (a >> 16) + lanes + more, (a & 0xFFFF) + column) for more in ((0, 64) if folded else (0,))]


def _scales(wave: State, i: Instruction, x: Operands, part: int, of: Described, which: int, rows: int) -> Array:
    """The scale of each element, (n, rows, k). Row r has a byte for each block of k in lane r % 32 and column r / 32,
    the first as the instruction descriptor says; the four warps' lanes hold the same (CUTLASS, ``tmem_sf_frg``)."""
    vector = 32 if i.base == "UTCQMMA" or not ({"4X", "BLOCK16"} & set(i.mods)) else 16
    if of.sparse:
        vector *= 2
    count = of.k // vector
    first = of.scale_ids[which]
    if first + count > 4:
        message = f"{count} scales of a row from byte {first} of a column on"
        raise wave.fault_of(i, "descriptor", message, int(x.warps[0]), 0)
    copies = []
    for at in _places_of_scales(x, part, of, which, rows):
        _taken(wave, i, x, *at)
        copies.append(wave.tensor.words[at] >> np.uint32(8 * first))
    bytes_ = [np.ascontiguousarray(copy).view(np.uint8).reshape(len(copy), rows, 4)[:, :, :count] for copy in copies]
    if any(not np.array_equal(bytes_[0], copy) for copy in bytes_[1:]):
        message = f"the scales of {'AB'[which]} differ in the lanes of the four warps, which all need them"
        raise wave.fault_of(i, "tensor memory", message, int(x.warps[0]), 0)
    found: Array = np.repeat(SCALES[of.scale][bytes_[0]], vector, axis=2)
    return found


def _places_of_scales(x: Operands, part: int, of: Described, which: int, rows: int) -> list[Words]:
    """Of the words with the scales of each row, (n, rows, 1), for each warp that has them."""
    row = np.arange(rows)[:, None]
    halves = which == 1 and x.blocks.shape[1] == 2 and of.rows == LANES
    column = row // 32 if not halves else row % (rows // 2) // 32
    block, address = x.blocks[:, part][:, None, None], x.scales[which][:, None, None]
    lanes = [row % 32 + 32 * warp + (64 * (row // (rows // 2)) if halves else 0) for warp in range(2 if halves else 4)]
    return [(block, (address >> 16 & 0x7F) + lane, (address & 0xFFFF) + column) for lane in lanes]


# ---- sparse products -------------------------------------------------------------------------------------------------


def _picks(wave: State, i: Instruction, x: Operands, part: int, of: Described, rows: int) -> Array:
    """Which elements of its row a sparse A has, (n, rows, k) bool, from the metadata in tensor memory (CUTLASS,
    ``tmem_e_frg``): as many bits as elements, two for each that is kept of four (of eight pairs, if they have 4 bits;
    four for one of two, if they have 32)."""
    k, bits = of.k, of.bits_of_a
    at = _places_of_metadata(x, part, of, rows)
    _taken(wave, i, x, *at)
    words = wave.tensor.words[at]
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


def _places_of_metadata(x: Operands, part: int, of: Described, rows: int) -> Words:
    """Of the two words with the metadata of each row, (n, rows, 2); rows r and r + 8 share them from 16 bits on."""
    row, two = np.arange(rows)[:, None], np.arange(2)[None]
    own = row if rows == LANES else row % 16 + row // 16 * 32
    block, address = x.blocks[:, part][:, None, None], x.metadata[:, None, None]
    column = address & 0xFFFF
    if of.bits_of_a >= 16:
        lane = own - row % 16 + row % 8 + 8 * two
        return block, (address >> 16) + lane, (column & ~1) + of.selector + 0 * lane
    return block, (address >> 16) + own + 0 * two, column + two


def _spread(a: Array, picks: Array) -> Array:
    """A sparse A, (n, rows, k / 2), with its zeros."""
    found = np.zeros(picks.shape, a.dtype)
    found[picks] = a.reshape(-1)
    return found
