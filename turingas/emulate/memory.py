"""The memories of the CPU device, and the checker in front of them.

Three of them: ``Global`` (one a device, an address space of 64 bits over the caller's numpy arrays), ``Shared`` (all
blocks of a wave in one array) and ``Local`` (all threads of a wave in one array). All take addresses in any shape,
usually (n, 32), with a mask of the lanes that count (None: all), and work on all lanes at once. Nothing is done to
memory unless every lane of the mask may do it. A lane that may not raises ``BadAccess``, which the caller turns into a
DeviceError with instruction, block and thread.

Values are words: a list of uint32 arrays, one for up to 4 bytes (smaller ones extended by zeros), two for 8, eight for
32. An access must be aligned to its size, as the CUDA C++ Programming Guide demands ("Size and Alignment
Requirement").
"""

from __future__ import annotations

import bisect
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from turingas.emulate.arrays import LANES, Array, Rows, spread
from turingas.forks import freed
from turingas.isa.arch import RANK_BIT

# Generic addresses: shared and local memory appear in windows of 4 GB each, whose upper halves these are. Compilers
# take them from constant bank 0, SHARED_WINDOW << 32 as 8 bytes at 0x18 (up to sm_89) and LOCAL_WINDOW << 32 at 0x20
# (all), or from SR_SWINHI and SR_LWINHI (sm_90); seen in the code of NVRTC 12.9 for generic pointers to either.
SHARED_WINDOW = 0x7E01
LOCAL_WINDOW = 0x7E02

RANK, WITHIN = np.uint32(RANK_BIT), np.uint32((1 << RANK_BIT) - 1)  # the rank of a shared address, and the rest

FIRST = 0x7F00_0000_0000  # where global memory begins
ALIGN = 256  # of allocations, as cudaMalloc promises at least
REMEMBERED = 1000  # allocations that are gone, so that using one can be told from a wild address
RED_ZONE = 1 << 16  # bytes between allocations that belong to none

#: complex128: 16 bytes, only copied
ITEMS: dict[int, Any] = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64, 16: np.complex128, 32: np.dtype("V32")}
SHIFT = {1: 0, 2: 1, 4: 2, 8: 3, 16: 4, 32: 5}
WRITTEN = {1: 0xFF, 2: 0xFFFF, **dict.fromkeys((4, 8, 16, 32), 0xFFFFFFFF)}  # a word of a shadow, all bytes written


class BadAccess(Exception):
    """A lane does what it must not. ``index`` is its flat place in the array of addresses."""

    def __init__(self, kind: str, message: str, index: int, address: int) -> None:
        super().__init__(message)
        self.kind, self.message, self.index, self.address = kind, message, index, address


class Plane:
    """Bytes, seen as items of 1 to 32 bytes; an index counts items. Items at the end that are not whole
    do not exist."""

    __slots__ = ("views",)

    def __init__(self, flat: Array) -> None:
        self.views: dict[int, Array] = {n: flat[: flat.size // n * n].view(item) for n, item in ITEMS.items()}

    def load(self, nbytes: int, index: Array) -> list[Array]:
        """The words at ``index``, each in its shape. Indices must be within bounds."""
        view = self.views[nbytes]
        # take would first copy the whole of an array that is not aligned
        items = view.take(index, mode="wrap") if view.flags.aligned else view[index]
        if nbytes == 4:
            return [items]
        if nbytes < 4:
            return [items.astype(np.uint32)]
        words = items.view(np.uint32).reshape(*index.shape, nbytes // 4)
        return [words[..., j] for j in range(nbytes // 4)]

    def store(self, nbytes: int, index: Array, words: Sequence[Array]) -> None:
        """Writes words to ``index``; where an index stands twice the later one counts."""
        if nbytes > 4:
            items = np.empty((*index.shape, nbytes // 4), np.uint32)
            for j, word in enumerate(words):
                items[..., j] = word
            self.views[nbytes][index] = items.view(ITEMS[nbytes])[..., 0]
        else:
            self.views[nbytes][index] = words[0] if nbytes == 4 else words[0].astype(ITEMS[nbytes])


@dataclass(slots=True)
class Spots:
    """Where lanes of one access meet memory: ``index`` counts items of the access's size in ``plane``, for the lanes
    of ``mask`` (None: all); other lanes have an index that exists. ``shadow`` remembers which bytes were written."""

    plane: Plane
    index: Array
    mask: Array | None
    shadow: Plane | None


def _load(found: list[Spots], address: Array, nbytes: int) -> list[Array]:
    """The words at all spots; lanes outside of every mask get anything."""
    for s in found:
        if s.shadow is not None:
            check_written(s, address, nbytes)
    if len(found) == 1:
        return found[0].plane.load(nbytes, found[0].index)
    words = [np.zeros(address.shape, np.uint32) for _ in range(max(1, nbytes // 4))]
    for s in found:
        for word, value in zip(words, s.plane.load(nbytes, s.index)):
            np.copyto(word, value, where=s.mask)
    return words


def _store(found: list[Spots], address: Array, nbytes: int, words: Sequence[Array]) -> None:
    words = [spread(w, address.shape) for w in words]
    for s in found:
        index, values = s.index, words
        if s.mask is not None:
            lanes = s.mask.ravel().nonzero()[0]
            index, values = index.take(lanes), [w.take(lanes) for w in words]
        s.plane.store(nbytes, index, values)
        if s.shadow is not None:
            s.shadow.store(nbytes, index, [np.full((), 0xFFFFFFFF, np.uint32)] * len(words))


def take_spots(found: list[Spots], rows: Rows, shape: tuple[int, ...], nbytes: int) -> list[Array]:
    """The words at some rows of spots; lanes outside of every mask get anything, ``shape`` is theirs."""
    words = [np.zeros(shape, np.uint32) for _ in range(max(1, nbytes // 4))] if len(found) != 1 else []
    for s in found:
        values = s.plane.load(nbytes, s.index[rows])
        if not words:
            return values
        for word, value in zip(words, values):
            np.copyto(word, value, where=True if s.mask is None else s.mask[rows])
    return words


def put_spots(s: Spots, rows: Rows, nbytes: int, words: Sequence[Array]) -> None:
    """Writes words (of their shape, or one for all) to some rows of spots."""
    index = s.index[rows]
    part = Spots(s.plane, index, None if s.mask is None else s.mask[rows], s.shadow)
    _store([part], index, nbytes, words)


def check_written(s: Spots, address: Array, nbytes: int) -> None:
    """Raises BadAccess where a lane reads bytes that nobody wrote; for spots with a shadow."""
    assert s.shadow is not None
    for word in s.shadow.load(nbytes, s.index):
        bad = word != WRITTEN[nbytes]
        if s.mask is not None:
            bad &= s.mask
        if bad.any():
            index = int(bad.argmax())
            at = int(address.flat[index])
            message = f"a read of {nbytes} bytes at 0x{at:x}: uninitialised memory, never written"
            raise BadAccess("never written", message, index, at)


def _first(mask: Array | None) -> int:
    return 0 if mask is None else int(mask.argmax())


def _active(offset: Array, mask: Array | None) -> Array:
    """Offsets with 0 where a lane does not count, contiguous."""
    return np.ascontiguousarray(offset) if mask is None else offset * mask


def _fits(offset: Array, limit: int, nbytes: int) -> bool:
    """Whether all offsets are aligned and no higher than limit. The union of their bits is no lower than any."""
    bits = int(np.bitwise_or.reduce(offset.reshape(-1)))
    return bits & nbytes - 1 == 0 and (bits <= limit or int(offset.max()) <= limit)


# ---- global memory ---------------------------------------------------------------------------------------------------


class Allocation:
    """A piece of global memory over an array of the caller's."""

    def __init__(self, base: int, array: Array, name: str, shadow: Array | None) -> None:
        flat = array.reshape(-1).view(np.uint8) if array.size else np.zeros(0, np.uint8)
        self.base, self.array, self.name, self.size = base, array, name, array.nbytes
        self.plane = Plane(flat)
        self.written = shadow
        self.shadow = None if shadow is None else Plane(shadow)
        self.writeable = array.flags.writeable

    def __str__(self) -> str:
        name = f"'{self.name}' " if self.name else ""
        return f"{name}({self.size} bytes at 0x{self.base:x})"


class Global:
    """The global memory of a device: allocations at addresses that are never given twice, with red zones between.

    With ``track_writes``, memory that ``add`` makes itself counts as never written, and reading it is an error.
    ``lock`` is held by atomics, for waves may run in several threads.
    """

    def __init__(self, track_writes: bool = False) -> None:
        self.track_writes = track_writes
        self.lock = freed(threading.Lock())
        self._next = FIRST
        self._live: list[Allocation] = []  # by address
        self._bases: list[int] = []
        self._freed: deque[tuple[int, int, str]] = deque(maxlen=REMEMBERED)  # address, bytes, what it was

    def add(self, array: Array | int, name: str = "") -> int:
        """Makes a C-contiguous array (in place; one that is not writeable is an error to write) or a number of bytes,
        zero-filled, part of global memory. Returns its address."""
        shadow = None
        if isinstance(array, np.ndarray):
            if not array.flags.c_contiguous:
                raise ValueError("global memory needs a C-contiguous array")
            if array.dtype.hasobject:
                raise ValueError(f"global memory cannot hold an array of {array.dtype}")
        else:
            if array < 0:
                raise ValueError(f"an allocation of {array} bytes")
            array = np.zeros(array, np.uint8)
            shadow = np.zeros(array.size, np.uint8) if self.track_writes else None
        made = Allocation(self._next, array, name, shadow)
        self._next += -(-(made.size + RED_ZONE) // ALIGN) * ALIGN
        self._live.append(made)
        self._bases.append(made.base)
        return made.base

    def remove(self, address: int) -> None:
        """Gives an allocation back; ``address`` is what ``add`` returned. KeyError when there is none."""
        gone = self._exact(address)
        self._live.remove(gone)
        self._bases.remove(gone.base)
        self._freed.append((gone.base, gone.size, str(gone)))

    def view(self, address: int) -> Array:
        """The array behind the allocation at ``address``, as it was given to ``add`` (uint8 for bytes)."""
        return self._exact(address).array

    def mark_written(self, address: int) -> None:
        """Says that the host filled the allocation at ``address`` (for ``track_writes``)."""
        written = self._exact(address).written
        if written is not None:
            written[:] = 0xFF

    def numbers(self, address: Array) -> Array:
        """Which of all allocations, by address, has the highest base that is no higher than uint64 addresses."""
        return np.asarray(np.searchsorted(np.array(self._bases, np.uint64), address, side="right").astype(np.int64) - 1)

    def allocation(self, number: int) -> Allocation:
        """One of ``numbers``."""
        return self._live[number]

    def _exact(self, address: int) -> Allocation:
        found = self._at(address)
        if found is None or found.base != address:
            raise KeyError(f"no allocation begins at 0x{address:x}")
        return found

    def _at(self, address: int) -> Allocation | None:
        """The allocation with the highest base that is no higher than address."""
        i = bisect.bisect_right(self._bases, address) - 1
        return self._live[i] if i >= 0 else None

    # -- what lanes do

    def locate(self, address: Array, nbytes: int, mask: Array | None = None, write: bool = False) -> list[Spots]:
        """Finds where uint64 addresses lie. BadAccess if a lane of the mask may not access (or write) its bytes."""
        if mask is not None and not mask.any():
            return []
        found = self._at(int(address.flat[_first(mask)]))
        if found is not None and found.size >= nbytes and (found.writeable or not write):
            offset = _active(address - np.uint64(found.base), mask)
            if _fits(offset, found.size - nbytes, nbytes):
                index = offset.view(np.int64) >> SHIFT[nbytes]
                return [Spots(found.plane, index, mask, found.shadow)]
        return self._spread(address, nbytes, np.ones(address.shape, bool) if mask is None else mask, write)

    def _spread(self, address: Array, nbytes: int, mask: Array, write: bool) -> list[Spots]:
        """Addresses in several allocations, or wrong ones."""
        which = self.numbers(address)
        good = np.zeros(address.shape, bool)
        found = []
        for i in np.unique(which[mask]):
            if i < 0:
                continue
            a = self._live[i]
            offset = address - np.uint64(a.base)
            inside = mask & (which == i) & (offset <= max(a.size - nbytes, 0)) & (offset & np.uint64(nbytes - 1) == 0)
            if a.size >= nbytes and (a.writeable or not write):
                good |= inside
                index = np.where(inside, offset, np.uint64(0)).view(np.int64) >> SHIFT[nbytes]
                found.append(Spots(a.plane, index, inside, a.shadow))
        bad = mask & ~good
        if bad.any():
            index = int(bad.argmax())
            raise self._wrong(int(address.flat[index]), nbytes, write, index)
        return found

    def _wrong(self, address: int, nbytes: int, write: bool, index: int) -> BadAccess:
        what = f"a {'write' if write else 'read'} of {nbytes} bytes at 0x{address:x}"
        a = self._at(address)
        inside = a is not None and address + nbytes <= a.base + a.size
        if inside and write and a is not None and not a.writeable:
            return BadAccess("read-only", f"{what}: {a} is read-only", index, address)
        if address & nbytes - 1:
            return BadAccess("misaligned", f"{what}: not aligned to {nbytes} bytes", index, address)
        for base, size, name in self._freed:
            if base <= address < base + max(size, 1):
                return BadAccess("use after free", f"{what}: in {name}, which was freed", index, address)
        near = []
        if a is not None:
            over = address + nbytes - a.base - a.size
            beyond = address - a.base - a.size
            place = f"{beyond} bytes behind the end" if beyond >= 0 else f"its last {over} bytes are behind the end"
            near.append((max(beyond, 0), f"{place} of {a}"))
        after = bisect.bisect_right(self._bases, address)
        if after < len(self._live):
            b = self._live[after]
            near.append((b.base - address, f"{b.base - address} bytes before {b}"))
        where = min(near)[1] if near else "nothing is allocated"
        if address < 1 << 16:
            where = "a null pointer?"
        return BadAccess("out of bounds", f"{what}: {where}", index, address)

    def load(self, address: Array, nbytes: int, mask: Array | None = None) -> list[Array]:
        """The words at uint64 addresses; lanes outside of the mask get anything. Raises BadAccess."""
        return _load(self.locate(address, nbytes, mask), address, nbytes)

    def store(self, address: Array, nbytes: int, words: Sequence[Array], mask: Array | None = None) -> None:
        """Writes words to uint64 addresses; of lanes with the same address the last one wins. Raises BadAccess."""
        _store(self.locate(address, nbytes, mask, write=True), address, nbytes, words)


# ---- shared memory ---------------------------------------------------------------------------------------------------


class Shared:
    """Shared memory of all blocks of a wave, ``nbytes`` each from address 0 (the KB that sm_80 and later reserve for
    the system included, if the kernel's addresses begin behind it). ``fill`` is what every byte holds at first.

    ``cluster`` blocks follow each other and are a cluster. The upper 8 bits of an address are then the rank of the
    block that it lies in (as ptxas' code for mapa makes them)."""

    def __init__(self, blocks: int, nbytes: int, fill: int = 0, track_writes: bool = False, cluster: int = 1) -> None:
        self.blocks, self.nbytes, self.cluster = blocks, nbytes, cluster
        self.ended = np.zeros(blocks, bool)  # of a cluster: all threads of the block have exited
        self.stride = -(-max(nbytes, 1) // 16) * 16  # bytes from block to block
        self.array = np.full(blocks * self.stride // 4, fill * 0x01010101, np.uint32)
        self.plane = Plane(self.array.view(np.uint8))
        self.written = np.zeros(blocks * self.stride, np.uint8) if track_writes else None
        self.shadow = None if self.written is None else Plane(self.written)

    def reset(self, fill: int = 0) -> None:
        """Makes it new, for the next blocks."""
        self.array[:] = fill * 0x01010101
        if self.written is not None:
            self.written[:] = 0

    def locate(
        self, address: Array, blocks: Array, nbytes: int, mask: Array | None = None, reach: bool = False
    ) -> list[Spots]:
        """Finds where uint32 addresses (n, lanes) of warps of ``blocks`` (n,) lie; with ``reach`` in any block of the
        cluster. Raises BadAccess."""
        owners = blocks[:, None]
        if self.cluster > 1:
            address, owners = self.resolve(address, blocks, mask, reach)
        offset = _active(address, mask)
        if self.nbytes < nbytes or not _fits(offset, self.nbytes - nbytes, nbytes):
            raise self._wrong(address, nbytes, mask)
        shift = SHIFT[nbytes]
        index = (offset >> np.uint32(shift)) + owners.astype(np.int64) * (self.stride >> shift)
        return [Spots(self.plane, index, mask, self.shadow)]

    def resolve(self, address: Array, blocks: Array, mask: Array | None, reach: bool) -> tuple[Array, Array]:
        """Addresses of a cluster as addresses in one block, and these blocks, (n, lanes) or (n, 1)."""
        rank, own = (address >> RANK).astype(np.int64), blocks[:, None] % self.cluster
        owners = blocks[:, None] + (rank - own if reach else 0)
        bad = rank >= self.cluster if reach else rank != own
        if reach:
            owners = np.where(bad, blocks[:, None], owners)
            bad = bad | self.ended[owners]
        if mask is not None:
            bad = bad & mask
        if bad.any():
            index = int(bad.argmax())
            at, to = int(address.flat[index]), int(rank.flat[index])
            what = f"an access of shared memory at 0x{at:x}, in block {to} of the cluster"
            if to >= self.cluster:
                why = f"there are {self.cluster}"
            elif reach:
                why = "it has ended (a barrier of the cluster at its end would hold it)"
            else:
                mine = int(np.broadcast_to(own, address.shape).flat[index])
                who = f"its own block alone ({mine}: SR_CgaCtaId, in bits 24 and up)"
                why = f"this instruction reaches {who}; LD, ST and ATOM reach others"
            raise BadAccess("out of bounds", f"{what}: {why}", index, at)
        return address & WITHIN, owners

    def in_block(self, offset: Array, blocks: Array) -> Array:
        """Addresses from offsets (n, lanes) in the memory of ``blocks`` (n,), as descriptors of matrices have them."""
        rank = (blocks[:, None] % self.cluster).astype(np.uint32)
        return offset.astype(np.uint32) | rank << RANK

    def _wrong(self, address: Array, nbytes: int, mask: Array | None) -> BadAccess:
        bad = (address & np.uint32(nbytes - 1) != 0) | (address.astype(np.int64) + nbytes > self.nbytes)
        index = int((bad if mask is None else bad & mask).argmax())
        at = int(address.flat[index])
        return _near(at, nbytes, self.nbytes, "shared", "block", index)

    def load(
        self, address: Array, blocks: Array, nbytes: int, mask: Array | None = None, reach: bool = False
    ) -> list[Array]:
        """The words at uint32 addresses (n, lanes); lanes outside of the mask get anything. Raises BadAccess."""
        return _load(self.locate(address, blocks, nbytes, mask, reach), address, nbytes)

    def store(
        self, address: Array, blocks: Array, nbytes: int, words: Sequence[Array], mask: Array | None = None,
        reach: bool = False,
    ) -> None:  # fmt: skip
        """Writes words; of lanes with the same address the last one wins. Raises BadAccess."""
        _store(self.locate(address, blocks, nbytes, mask, reach), address, nbytes, words)


def _near(address: int, nbytes: int, size: int, memory: str, owner: str, index: int) -> BadAccess:
    what = f"an access of {nbytes} bytes at 0x{address:x} of {memory} memory"
    if address & nbytes - 1:
        return BadAccess("misaligned", f"{what}: not aligned to {nbytes} bytes", index, address)
    if address >= 1 << 31:
        where = f"{(1 << 32) - address} bytes below 0"
    elif not size:
        where = f"the {owner} has none"
    else:
        where = f"the {owner} has {size} bytes"
    return BadAccess("out of bounds", f"{what}: {where}", index, address)


# ---- local memory ----------------------------------------------------------------------------------------------------


class Local:
    """Local memory of all threads of a wave, ``nbytes`` each from address 0. The words lie as (word, warp, lane), so
    that the usual access, all lanes at one offset, is one piece."""

    def __init__(self, warps: int, nbytes: int, track_writes: bool = False) -> None:
        self.warps, self.nbytes = warps, nbytes
        self.threads = warps * 32
        self.words = np.zeros((-(-nbytes // 16) * 4, warps, 32), np.uint32)
        self.plane = Plane(self.words.reshape(-1).view(np.uint8))
        self.written = np.zeros_like(self.words) if track_writes else None
        self.shadow = None if self.written is None else Plane(self.written.reshape(-1).view(np.uint8))

    def check(self, address: Array, nbytes: int, mask: Array | None) -> Array:
        """The offsets, with 0 where a lane does not count. Raises BadAccess."""
        offset = _active(address, mask)
        if self.nbytes < nbytes or not _fits(offset, self.nbytes - nbytes, nbytes):
            bad = (address & np.uint32(nbytes - 1) != 0) | (address.astype(np.int64) + nbytes > self.nbytes)
            index = int((bad if mask is None else bad & mask).argmax())
            raise _near(int(address.flat[index]), nbytes, self.nbytes, "local", "thread", index)
        return offset

    def _spots(self, address: Array, warps: Array, nbytes: int, mask: Array | None) -> list[Spots]:
        """A spot for each word."""
        offset = self.check(address, nbytes, mask)
        own = (warps.astype(np.int64) * 32)[:, None] + LANES
        index = (offset >> np.uint32(2)).astype(np.int64) * self.threads + own
        if nbytes < 4:
            index = index * (4 // nbytes) + ((offset & np.uint32(3)) >> np.uint32(SHIFT[nbytes]))
        return [Spots(self.plane, index + j * self.threads, mask, self.shadow) for j in range(max(1, nbytes // 4))]

    def _same(self, address: Array, nbytes: int, mask: Array | None) -> int | None:
        """The address, if it is the same in all lanes and all lanes count."""
        if mask is not None or nbytes < 4 or self.shadow is not None:
            return None
        first = address.flat[0]
        if address.size > 1 and (address != first).any():
            return None
        return int(first)

    def load(self, address: Array, rows: Rows, nbytes: int, mask: Array | None = None) -> list[Array]:
        """The words at uint32 addresses (n, 32) of the warps ``rows``; lanes outside of the mask get anything."""
        same = self._same(address, nbytes, mask)
        if same is not None:
            self.check(address[:1, :1], nbytes, None)
            return [self.words[(same >> 2) + j][rows] for j in range(nbytes // 4)]
        spots = self._spots(address, np.arange(self.warps)[rows], nbytes, mask)
        size = min(nbytes, 4)
        return [_load([s], address, size)[0] for s in spots]

    def store(self, address: Array, rows: Rows, nbytes: int, words: Sequence[Array], mask: Array | None = None) -> None:
        """Writes words at uint32 addresses (n, 32) of the warps ``rows``. Raises BadAccess."""
        same = self._same(address, nbytes, mask)
        if same is not None:
            self.check(address[:1, :1], nbytes, None)
            for j, word in enumerate(words):
                self.words[(same >> 2) + j][rows] = word
            return
        spots = self._spots(address, np.arange(self.warps)[rows], nbytes, mask)
        size = min(nbytes, 4)
        for s, word in zip(spots, words):
            _store([s], address, size, [word])
