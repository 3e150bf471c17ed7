"""Tensor copies: tiles and im2col columns of tensors that tensor maps describe (PTX ISA, "Tensors").

How a map is read: ``turingas.tensor_map``. Elements outside of the tensor are filled when they are loaded, and left
alone when they are stored; the mbarrier hears of all bytes of the box. Stores and reductions count in whole units of 16
bytes: a row that ends within one is as long as if it were full (an H200, 1,636 random geometries). The swizzle
exchanges the 16-byte pieces of shared memory by bits of their address: 4 to 6 become exclusive ors with 7 to 9 (128
bytes), or as many of them as 64 and 32 bytes have. Rows that are shorter than the swizzle begin one swizzle apart (the
same H200); what lies between them stays, and the mbarrier does not hear of it.

Of an interleaved tensor all of this holds for slices in place of elements (an H200 and an H100,
``interleaved_sm90.npz``), but that its rows follow each other without gaps.

A copy is over when its mbarrier has to hear of it, or its group is waited for (``late``); the map is read at once.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from turingas.emulate.arrays import Array
from turingas.emulate.build import Maker, Step, only, semantics
from turingas.emulate.cohort import Cohort
from turingas.emulate.errors import Unsupported
from turingas.emulate.late import Touch
from turingas.emulate.memory import BadAccess
from turingas.emulate.semantics.atomics import OPERATIONS
from turingas.emulate.semantics.bulk import POISON, UNIT, Change, places, under_way
from turingas.emulate.semantics.loads import fault
from turingas.errors import LaunchError
from turingas.isa.instruction import Instruction, Mem, Reg
from turingas.tensor_map import ALIGN, CORNER_BITS, NBYTES, Layout, unpack

#: every 16 bits of a NaN that fills. How many bytes of float16, float32 and float64 an H200 filled otherwise than with
#: the NaN of arithmetic fits; the value is what HBFSim (SlugLab) found on a card of sm_120
NAN = 0x7FF7
#: what a reduction does with elements, by the name that atomics have for their type
REDUCED = {
    "uint32": "", "int32": "S32", "uint64": "64", "int64": "S64", "float16": "F16x2", "bfloat16": "BF16x2",
    "float32": "F32", "float32.ftz": "F32", "float64": "F64",
}  # fmt: skip
EXPONENT, NAN32 = np.uint32(0x7F800000), np.uint32(0x7FFFE000)


def _tf32(bits: Array) -> Array:
    """Rounded to 10 bits of a fraction, to nearest even; NaNs become one (an H200)."""
    rounded = bits + np.uint32(0xFFF) + (bits >> np.uint32(13) & np.uint32(1)) & ~np.uint32(0x1FFF)
    special = np.where(bits << np.uint32(1) > EXPONENT << np.uint32(1), NAN32, bits)
    return np.where(bits & EXPONENT == EXPONENT, special, rounded)


#: what a load makes of elements. An H200 leaves denormals of float32.ftz as they are
LOADED: dict[str, Callable[[Array], Array]] = {"tf32": _tf32, "tf32.ftz": _tf32}
TILE = 128  # alignment of a tile in shared memory


class Wrong(Exception):
    """The instruction and its tensor map do not fit."""


def outer(layout: Layout, start: list[int], offsets: list[int]) -> tuple[Array, Array]:
    """Of each row of a copy, in the order of shared memory: its offset in global memory, int64, and whether it is
    inside. ``start``: the first coordinates; ``offsets``: those of im2col."""
    if layout.im2col:
        return _columns(layout, start, offsets)
    if len(start) > layout.rank:  # of .GATHER4 and .SCATTER4: four rows, wherever they are
        rows = np.array(start[1:], np.int64)
        return rows * layout.strides[0], (rows >= 0) & (rows < layout.dims[1])
    offset, inside = np.zeros(1, np.int64), np.ones(1, bool)
    for n in range(1, layout.rank):
        count = 1 if layout.interleave and n == layout.rank - 2 else -(-layout.box[n] // layout.steps[n])
        at = start[n] + layout.steps[n] * np.arange(count, dtype=np.int64)
        good = (at >= 0) & (at < layout.dims[n])
        offset = (layout.strides[n - 1] * at[:, None] + offset).reshape(-1)
        inside = (good[:, None] & inside).reshape(-1)
    return offset, inside


def _columns(layout: Layout, start: list[int], offsets: list[int]) -> tuple[Array, Array]:
    """Pixels one after the other, row by row and image by image within the box of pixels."""
    at, pixels = list(start), []
    for _ in range(layout.pixels):
        pixels.append(list(at))
        for n, low, high in zip(layout.space, layout.lower, layout.upper):
            at[n] += layout.steps[n]
            if at[n] < layout.dims[n] + high:
                break
            at[n] = low
        else:
            at[-1] += 1
    first = layout.space.start  # dimensions before it are that of the channels, which ``pieces`` has
    found = np.array(pixels, np.int64)[:, first:]
    found[:, : len(offsets)] += offsets
    inside: Array = np.all((found >= 0) & (found < np.array(layout.dims[first:])), axis=1)
    return (found * np.array((layout.cell, *layout.strides)[first:])).sum(axis=1), inside


def pieces(layout: Layout, start: list[int], offsets: list[int], unit: int, end: int) -> tuple[Array, Array]:
    """The same of each piece of ``unit`` bytes, in rows of ``end`` bytes."""
    row, good = outer(layout, start, offsets)
    at = np.arange(0, layout.inner * layout.cell, unit, dtype=np.int64)
    if layout.interleave and layout.steps[0] > 1:
        at += at // layout.cell * (layout.steps[0] - 1) * layout.cell
    if not (layout.interleave and layout.im2col):
        at += start[0] * layout.cell
    inside = (at >= 0) & (at < end)
    return (row[:, None] + at).reshape(-1), (good[:, None] & inside).reshape(-1)


def unit_of(layout: Layout, address: int, start: list[int], end: int) -> int:
    """The most bytes, 16 at most, that are inside or outside as one and aligned in both memories."""
    bits = address | start[0] * layout.cell | end | layout.inner * layout.cell | UNIT
    return bits & -bits


def swizzled(layout: Layout, address: Array) -> Array:
    """Where bytes for shared addresses (uint32) go."""
    if not layout.swizzle:
        return address
    bits = np.uint32(layout.swizzle - 16)  # of the address: which piece
    return address ^ (address >> np.uint32(3) & bits)


class Copy:
    """One of UTMALDG, UTMASTG, UTMAREDG: its operands, [shared address, mbarrier (a load), coordinates ...] and
    [address of the map]."""

    def __init__(self, i: Instruction, m: Maker, front: int) -> None:
        first, second = i.operands[:2]
        assert isinstance(first, Mem) and isinstance(second, Mem)
        assert isinstance(first.ur, Reg) and isinstance(second.ur, Reg), i
        only(i, "1D", "2D", "3D", "4D", "5D", "IM2COL", "MULTICAST", "GATHER4", "SCATTER4", "2CTA", *OPERATIONS)
        self.i, self.first, self.map = i, first.ur.index, second.ur.index
        self.rank = next(int(mod[0]) for mod in i.mods if mod[1:] == "D")
        self.im2col, self.front = "IM2COL" in i.mods, front
        self.rows = "GATHER4" in i.mods or "SCATTER4" in i.mods
        self.coordinates = 5 if self.rows else self.rank
        more = [o for o in i.operands[2:] if isinstance(o, Reg)]
        self.more = m.raw(more[0]) if more else None

    def each(self, k: Cohort, do: Callable[[int, int, int, Layout, list[int], int], None]) -> None:
        """``do`` for each warp: row, lane, address of the tensor, layout, coordinates, the last operand."""
        lanes = k.lanes
        last = None if self.more is None else np.broadcast_to(self.more(k), (k.count, 1))
        for row in np.flatnonzero(lanes.any(axis=1)).tolist():
            lane = row * 32 + int(lanes[row].argmax())
            where = 0
            try:
                where = int(k.ur(self.map)[row, 0]) | int(k.ur(self.map + 1)[row, 0]) << 32
                address, layout = self.read(k, where)
                for observer in k.wave.observers:
                    observer.tensor_map(k, self.i, row, lane % 32, where)
                begin = self.first + self.front
                start = [int(k.ur(begin + n)[row, 0].view(np.int32)) for n in range(self.coordinates)]
                self.legal(layout, start)
                do(row, lane, address, layout, start, 0 if last is None else int(last[row, 0]))
            except BadAccess as bad:
                raise fault(k, self.i, BadAccess(bad.kind, bad.message, lane, bad.address), 32) from None
            except (Wrong, LaunchError, Unsupported) as why:
                raise fault(k, self.i, BadAccess("tensor map", str(why), lane, where), 32) from None

    def legal(self, layout: Layout, start: list[int]) -> None:
        """Where an H200 ends the kernel with an illegal instruction: of 123 random geometries of tiles exactly these.
        Of im2col an H100 did so for boxes beyond the tensor (PTX ISA: "Restrictions on Tensor Copy instructions") and
        for a first pixel on any side of the box."""
        if self.rows:  # of Blackwell, which was not asked
            return
        if start[0] * layout.cell % UNIT:
            what = f"the innermost coordinate, {start[0]}, is {start[0] * layout.cell} bytes"
            raise Wrong(f"{what}, which is no multiple of {UNIT}: an illegal instruction on an H200")
        if self.i.base == "UTMALDG":
            return
        if min(start) < 0:
            what = f"the coordinate {min(start)} is negative, which only loads may have"
            raise Wrong(f"{what}: an illegal instruction on an H200")
        if layout.im2col and (min(layout.lower) < 0 or max(layout.upper) > 0):
            what = f"the box of pixels (lower {layout.lower}, upper {layout.upper}) is not within the tensor"
            raise Wrong(f"{what}, which only loads may have: an illegal instruction on an H200")
        for n, low, high in zip(layout.space, layout.lower, layout.upper):
            if not low <= start[n] < layout.dims[n] + high:
                what = f"the first pixel is at {start[n]}, outside of its box, {low} to {layout.dims[n] + high - 1}"
                raise Wrong(f"{what}, which only loads may have: an illegal instruction on an H100")

    def read(self, k: Cohort, where: int) -> tuple[int, Layout]:
        """The tensor map at an address of global memory."""
        if where % ALIGN:
            raise Wrong(f"a tensor map at {where:#x}: not aligned to {ALIGN} bytes")
        words = k.wave.memory.load(np.uint64(where) + np.arange(0, NBYTES, 16, dtype=np.uint64)[None], 16)
        address, layout = unpack(np.stack(words, axis=-1).tobytes())
        if layout.rank != self.rank or layout.im2col != self.im2col:
            kinds = {True: "im2col", False: "tiled"}
            raise Wrong(
                f"{self.i.name} takes a {kinds[self.im2col]} map of {self.rank} dimensions; this one is "
                f"{kinds[layout.im2col]}, of {layout.rank}"
            )
        if self.rows and layout.box[1] != 1:
            raise Wrong(f"{self.i.name} takes a map with a box of one row; this one has {layout.box[1]}")
        layout.check()
        return address, layout

    def in_shared(self, layout: Layout, shared: int, count: int, unit: int) -> Array:
        """Where the pieces of a copy lie in shared memory, (1, count) uint32."""
        if shared % TILE:
            raise BadAccess("misaligned", f"a tile at 0x{shared:x} of shared memory: not aligned to {TILE}", 0, shared)
        at, row = np.arange(0, count * unit, unit, dtype=np.uint32), layout.inner * layout.cell
        if row < layout.swizzle and not layout.interleave:
            at = at // np.uint32(row) * np.uint32(layout.swizzle) + at % np.uint32(row)
        return swizzled(layout, np.uint32(shared) + at)[None]

    def offsets(self, last: int) -> list[int]:
        """Of im2col, packed into the lower half of the last operand."""
        if not self.im2col:
            return []
        bits = CORNER_BITS[self.rank]
        return [last >> bits * n & (1 << bits) - 1 for n in range(self.rank - 2)]


def _filled(layout: Layout, unit: int) -> list[int]:
    """The words of a piece outside of the tensor."""
    value = NAN << 16 | NAN if layout.fill == "nan" else 0
    return [value & (1 << 8 * min(unit, 4)) - 1] * max(1, unit // 4)


@semantics("UTMALDG")
def load_tile(i: Instruction, m: Maker) -> Step:
    """``UTMALDG.2D [URb], [URa]``: URb shared address, URb + 1 mbarrier, then coordinates. With URc its upper half says
    which blocks of the cluster get the tile (.MULTICAST), the lower half the offsets of .IM2COL. With .2CTA the
    mbarrier may lie in the other block of a pair; in a multicast it lies for each pair in the block of the rank, even
    or odd, of that which URb + 1 names (PTX ISA, "cp.async.bulk.tensor")."""
    copy, multicast, both = Copy(i, m, 2), "MULTICAST" in i.mods, "2CTA" in i.mods

    def step(k: Cohort) -> None:
        def one(row: int, lane: int, address: int, layout: Layout, start: list[int], last: int) -> None:
            end = layout.dims[0] * layout.cell
            unit = unit_of(layout, address, start, end)
            where, inside = _where(address, *pieces(layout, start, copy.offsets(last), unit, end))
            count = where.size
            k.wave.memory.locate(where, unit, inside)
            blocks = k.blocks[row : row + 1]
            for to, told in places(k, row, "S", copy.first, last >> 16 if multicast else None, both):
                at = copy.in_shared(layout, to, count, unit)
                (spots,) = k.wave.shared.locate(at, blocks, unit, reach=True)
                if k.wave.options.stale:
                    k.wave.shared.store(at, blocks, unit, [POISON] * max(1, unit // 4), reach=True)

                def land(at: Array = at) -> None:
                    words = k.wave.memory.load(where, unit, inside)
                    if (made := LOADED.get(layout.dtype)) is not None:
                        words = [made(word) for word in words]
                    if inside is not None:
                        filled = zip(words, _filled(layout, unit))
                        words = [np.where(inside, word, np.uint32(out)) for word, out in filled]
                    k.wave.shared.store(at, blocks, unit, words, reach=True)

                touches = [Touch("read", where, unit, inside, "global"), Touch("write", spots.index, unit)]
                under_way(k, i, lane, land, count * unit, told, touches)

        copy.each(k, one)

    return step


def _where(address: int, offset: Array, inside: Array) -> tuple[Array, Array | None]:
    """Addresses in global memory, (1, count) uint64, and which of them are inside of the tensor (None: all)."""
    where: Array = (address + np.where(inside, offset, 0)).astype(np.uint64)[None]
    return where, None if inside.all() else inside[None]


@semantics("UTMASTG", "UTMAREDG")
def store_tile(i: Instruction, m: Maker) -> Step:
    """``UTMASTG.2D [URb], [URa]``: URb shared address, then coordinates. ``UTMAREDG.2D.ADD`` does an operation on
    elements of the map's type instead."""
    copy, reduce = Copy(i, m, 1), i.base == "UTMAREDG"

    def step(k: Cohort) -> None:
        def one(row: int, lane: int, address: int, layout: Layout, start: list[int], last: int) -> None:
            change = _change(i, layout) if reduce else None
            end = -(-layout.dims[0] * layout.cell // UNIT) * UNIT  # whole units are written
            unit = layout.item if reduce else unit_of(layout, address, start, end)
            where, inside = _where(address, *pieces(layout, start, [0] * (layout.rank - 2), unit, end))
            at = copy.in_shared(layout, int(k.ur(copy.first)[row, 0]), where.size, unit)
            blocks = k.blocks[row : row + 1]
            k.wave.memory.locate(where, unit, inside, write=True)
            (spots,) = k.wave.shared.locate(at, blocks, unit)  # of its own block: else error 715 on an H100

            def land() -> None:
                words = k.wave.shared.load(at, blocks, unit, reach=True)
                if change is None:
                    k.wave.memory.store(where, unit, words, inside)
                else:
                    _reduce(k, change, unit, where, inside, words)

            into = Touch("atomic" if reduce else "write", where, unit, inside, "global")
            under_way(k, i, lane, land, 0, None, [Touch("read", spots.index, unit), into])

        copy.each(k, one)

    return step


def _change(i: Instruction, layout: Layout) -> Change:
    if layout.dtype not in REDUCED:
        raise Wrong(f"{i.name} of elements of {layout.dtype}")
    return Change(i, REDUCED[layout.dtype], layout.dtype.endswith("ftz"))


def _reduce(k: Cohort, change: Change, item: int, where: Array, inside: Array | None, words: list[Array]) -> None:
    """To elements of ``item`` bytes. Those of 2 bytes stand in the lower halves of pairs."""
    given: Array = np.ascontiguousarray(np.stack(words, axis=-1)).view(change.dtype)[..., 0]
    with k.wave.memory.lock:
        for s in k.wave.memory.locate(where, item, inside, write=True):
            mask: Array | slice = slice(None) if s.mask is None else s.mask
            index = s.index[mask].reshape(-1)
            memory = s.plane.views[item] if item < change.item else s.plane.views[item].view(change.dtype)
            new = change.function(memory[index].astype(change.dtype), given[mask].reshape(-1))
            memory[index] = new.astype(memory.dtype)
