"""What a product of ``gemm`` takes on a device: found out once for operands of a shape, and then only launched."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from kernels_sass import gemm_kernels
from kernels_sass.conv.cost import sms
from kernels_sass.conv.implicit_plan import View, adjacent, loaded, view
from kernels_sass.conv.libraries import Library, Made, called
from kernels_sass.conv.methods import hgmma
from kernels_sass.conv.partial import PIECE, SHORT, Partial
from kernels_sass.gemm_kernels import SPARE, Halved, Halving, Tiling
from kernels_sass.learn.hgemm import THREADS, TILE_M
from loader import cuda
from loader.arrays import HOST
from loader.cuda.streams import relaxed
from loader.cuda.written import let_go
from loader.module import Given
from turingas.errors import LaunchError

Sizes = tuple[int, ...]

TYPES = {"fp16": "F16", "bf16": "BF16", "tf32": "TF32", "fp32": "FP32"}
ITEMS = {"float16": 2, "bfloat16": 2, "float32": 4}
ACTIVATIONS: dict[str | None, dict[str, int]] = {
    None: {}, "relu": {"relu": 1}, "gelu": {"gelu": 1}, "gelu_tanh": {"gelu": 2},
}  # fmt: skip
CLUSTER = 1  # blocks that load B for each other: 2 is right on a card, and no faster than without (docs/gemm.md)
PROMOTED = 2  # steps of fp32 after which sums leave the tensor cores: more are less exact, and no faster
GROUP = 16  # rows of tiles in a panel
WIDTHS = (256, 192, 128, 64)
STAGES = {256: 4, 192: 4, 128: 6, 64: 8}  # by the width: what there is room for
STARTED = 40  # what a tile takes besides, in columns' worth of time
ALIGNED = 16  # bytes: rows and beginnings that tensor maps take
PER = 8  # elements that a row is padded to a multiple of
MOST_SPLITS = 16  # blocks that share a K
LEAST_STEPS = 5, 8  # steps that each of these has at least: with one row of tiles, and with more
LIMIT = 1 << 32  # bytes from one matrix of a batch to the next that is turned or padded
PIECES = 256  # bytes: where each of the things lies that a call needs memory for
MAPS = 256  # tensor maps, and addresses of memory, that a plan remembers
SPEED = 2e8  # operations in a microsecond, about
ON_HOST = 4  # multiprocessors of the CPU device: blocks have several tiles there, too

A, B, SCALES, BIAS, OUT, MAPPED = range(6)  # what the launches are given; from MAPPED on maps of A, B and C


def tiles(
    m: int, n: int, sms: int, precision: str = "fp16", ta: bool = False, tb: bool = False, count: int = 1
) -> Tiling:
    """The tiling for ``count`` products: as wide as keeps all multiprocessors busy, counted in tiles one after the
    other."""

    def time(width: int) -> float:
        rounds = -(-(-(-m // TILE_M) * -(-n // width) * count) // sms)
        return rounds * (width + STARTED)

    def cluster(width: int) -> int:
        """Not where one of two had no rows; of K rows of N, halves are whole boxes of 64 columns."""
        return 1 if count > 1 or m <= TILE_M or tb and width % 128 else CLUSTER

    def tiling(width: int) -> Tiling:
        blocks = cluster(width)
        return Tiling(
            width, STAGES[width], blocks, GROUP // blocks, late=int(not wide), ta=int(ta), tb=int(tb),
            type=TYPES[precision], promote=PROMOTED if precision == "fp32" else 0,
        )  # fmt: skip

    wide = precision in ("tf32", "fp32")
    return tiling(min((w for w in WIDTHS if precision != "fp32" or w < 256), key=time))


def shared(tiling: Tiling, m: int, n: int, steps: int, sms: int) -> int:
    """Blocks that share a K, where there are fewer tiles than multiprocessors: as many as there is room for, each with
    some steps."""
    tiles = -(-m // TILE_M) * -(-n // tiling.tile_n)
    return max(1, min(MOST_SPLITS, sms // tiles, steps // LEAST_STEPS[m > TILE_M]))


# ---- kernels that bring operands into order ----------------------------------------------------------------------


class Packing:
    """A copy of a matrix, or a batch, ``turned`` if asked for, with zeros behind each row, by the kernel that brings
    pixels into the order of tensor copies. ``width``: how many numbers of each row are taken, without zeros. ``made``:
    the copy's shape. LaunchError."""

    def __init__(self, shape: Sizes, item: int, turned: bool, width: int = 0) -> None:
        *batch, rows, columns = shape
        images, step = math.prod(batch), rows * columns * item
        if step >= LIMIT and images > 1:
            raise LaunchError(f"a batch of matrices of {step} bytes each, which are to be copied", "4 GiB are too much")
        column, channel = (item, columns * item) if turned else (columns * item, item)
        if turned:
            rows, columns = columns, rows
        columns = width or columns
        filled = columns if width else -(-columns // PER) * PER
        at_once = next(count for count in (4, 8, 32) if count >= min(filled, 32))
        self.made: Sizes = (*batch, rows, filled)
        self.of = item, at_once, turned
        self.grid = images, -(-rows // (hgmma.PACK_TILE // at_once)), -(-filled // at_once)
        self.numbers = 1, hgmma.inverse(1), rows, rows, 0, columns, filled, step % LIMIT, 0, column, channel

    def kernel(self, device: str) -> Any:
        return loaded(device, hgmma.packing, *self.of).kernel()

    def arguments(self, x: Any, y: Any) -> tuple[Any, ...]:
        """Of ``launch``."""
        return self.grid, hgmma.PACK_THREADS, x, y, *self.numbers


def halver(device: str, parts: Halving) -> Any:
    """The kernel that makes parts of FP16."""
    return loaded(device, gemm_kernels.halving, *parts.of).kernel()


@dataclass(frozen=True)
class Operand:
    """A matrix, or a batch, as it lies: of ``shape``; ``turned``: K rows of M, or of N; ``aligned``: it begins where
    tensor maps can. ``ready``: as ``prepare`` has left it."""

    shape: Sizes
    turned: bool
    aligned: bool
    ready: bool = False

    def steps(self, kind: str, precision: str) -> tuple[Packing | None, Halved | None, bool]:
        """The copy that it takes, what makes parts of FP16 of it, and whether it is turned behind these: of float32 the
        tensor cores take rows of K alone."""
        if self.ready:
            return None, None, self.turned
        wide, halved = kind == "float32", precision == "fp32"
        turned, shape, packing = self.turned, self.shape, None
        plain = self.aligned and shape[-1] * ITEMS[kind] % ALIGNED == 0
        if turned and wide or not (halved or plain):
            packing = Packing(shape, ITEMS[kind], turned and wide)
            turned, shape = turned and not wide, packing.made
        parts = Halved(math.prod(shape[:-1]), shape[-1], self.aligned or packing is not None) if halved else None
        return packing, parts, turned


@dataclass(frozen=True)
class Product:
    """What is computed where: C = act(A B + bias). ``place``: the number of the GPU, or HOST; ``kind``: of elements;
    ``slices``: products of a batch, 0 for one; ``shape``: of C, where a batch may be more rows; ``aligned``: C begins
    where tensor maps can."""

    place: int
    kind: str
    precision: str
    a: Operand
    b: Operand
    m: int
    n: int
    k: int
    slices: int
    shape: Sizes
    bias: bool
    activation: str | None
    splits: int | None
    aligned: bool


# ---- plans -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Spot:
    """Where an array lies: what is given with this ``number``, or in memory of the call, so many bytes in (``at``)."""

    number: int
    at: int
    shape: Sizes
    dtype: str

    @property
    def nbytes(self) -> int:
        return ITEMS[self.dtype] * math.prod(self.shape)


RECORDED: list[Any] = []  # memory that CUDA graphs of their callers' go on with, when plans are forgotten

Launch = tuple[Any, tuple[Any, ...], dict[str, Any]]  # a kernel, the arguments and the options of its launch


class Plan:
    """A product on a device: its launches, for whatever addresses. LaunchError for what cannot be."""

    def __init__(self, product: Product) -> None:
        self.product, self.place, self.device = product, product.place, called(product.place)
        self.shape = product.shape
        item, of_b = ITEMS[product.kind], 2 if product.precision == "fp32" and product.b.ready else ITEMS[product.kind]
        #: bytes of A, B, bias and C
        self.sizes = (item * math.prod(product.a.shape), of_b * math.prod(product.b.shape), 4 * product.n,
                      item * math.prod(product.shape))  # fmt: skip
        self.scratch = 0  # bytes that a call needs besides
        self._steps: list[Callable[[_At], Launch]] = []
        self._add_all()
        self.makes: dict[type, Callable[[], Made]] = {}  # by the type of A what makes C
        on_gpu = self.place != HOST
        self.memory = Partial.of(cuda.device_named(self.device)) if on_gpu else None
        #: tensor maps of A, B and C by their addresses; None: of what lies in memory of the call
        self._maps = [dict[int, Any]() if spot.number >= 0 else None for spot in self._operands]
        #: by the address of the memory; and, queued as a graph, by that of a prepared B: layers of a network share a
        #: plan, and a graph that served all of them would be changed each time
        self._queues: dict[tuple[int, int], Callable[..., None]] = {}
        operations = 2 * product.m * product.n * product.k * (product.slices or 1)
        self._short = product.b.ready and operations / SPEED < SHORT / 2

    # -- what there is to launch

    def _room(self, shape: Sizes, dtype: str) -> Spot:
        """Memory of the call."""
        made = Spot(-1, self.scratch, shape, dtype)
        self.scratch += -(-made.nbytes // PIECES) * PIECES
        return made

    def _add(self, kernel: Any, arguments: Callable[[_At], tuple[Any, ...]], **options: Any) -> None:
        self._steps.append(lambda at: (kernel, arguments(at), {"early": True, **options}))

    def _ready(self, number: int, operand: Operand, halved: list[Any]) -> tuple[Spot, Spot | None, bool]:
        """An operand as tensor maps take it, the scales of its rows, whether it is turned. ``halved`` gets what is to
        be split, and its places."""
        p = self.product
        packing, parts, turned = operand.steps(p.kind, p.precision)
        fp32 = p.precision == "fp32"
        spot = Spot(number, 0, operand.shape, "float16" if fp32 and operand.ready else p.kind)
        scales = Spot(SCALES, 0, (math.prod(operand.shape[:-1]) + SPARE,), "float32") if fp32 else None
        if packing is not None:
            before, spot = spot, self._room(packing.made, p.kind)
            self._add(packing.kernel(self.device), _with(packing.arguments, before, spot))
        if parts is not None:
            before, spot = spot, self._room((*spot.shape[:-1], parts.row), "float16")
            scales = self._room((parts.rows + SPARE,), "float32")
            halved.append((parts, before, spot, scales))
        return spot, scales, turned

    def _add_all(self) -> None:
        p, there = self.product, ON_HOST if self.place == HOST else sms(self.device)
        m, n, k = p.m, p.n, p.k
        halved: list[Any] = []
        left, of_rows, ta = self._ready(A, p.a, halved)
        right, of_columns, tb = self._ready(B, p.b, halved)
        if halved:  # both at once
            parts = Halving(*(one for one, *_ in halved))
            self._add(halver(self.device, parts), _with(parts.arguments, *(one for _, *each in halved for one in each)))
        scales = [one for one in (of_rows, of_columns) if one is not None]
        shape = (p.slices, m, n) if p.slices else (m, n)
        result = Spot(OUT, 0, shape, p.kind)
        direct = p.aligned and n * ITEMS[p.kind] % ALIGNED == 0
        c = result if direct else self._room((*shape[:-1], -(-n // PER) * PER), p.kind)
        tiling = tiles(m, n, there, p.precision, ta, tb, p.slices or 1)
        steps, splits = -(-k // tiling.tile_k), p.splits
        if splits is None:
            splits = 1 if p.slices or self.place == HOST else shared(tiling, m, n, steps, there)
        ending: dict[str, Any] = {"bias": int(p.bias), **ACTIVATIONS[p.activation]}
        bias = Spot(BIAS, 0, (n,), "float32") if p.bias else None
        last, slices = bias, list[int]()
        to = c
        if p.slices:
            left, right = (replace(one, shape=(1, *one.shape)) if len(one.shape) == 2 else one for one in (left, right))
            slices = [p.slices, *(int(one.shape[0] > 1) for one in (left, right))]
            tiling = replace(tiling, cluster=1, batched=1, **ending)
        elif splits > 1:
            each = -(-steps // splits)
            slices, last = [-(-steps // each), each], None
            to = self._room((slices[0], m, c.shape[1]), "float32")
            tiling = replace(tiling, cluster=1, shared_k=1, late=0)
        else:
            tiling = replace(tiling, **ending)
        named = "bfloat16" if p.kind == "bfloat16" else None

        self._operands = left, right, to
        self._map_of = functools.partial(tiling.map, dtype=named)
        blocks, pointers = tiling.blocks(m, n, there, *slices[:1]), [*scales, *([last] if last else [])]

        def product(at: _At) -> tuple[Any, ...]:
            maps = (at.map(which, one) for which, one in enumerate(self._operands))
            return blocks, THREADS, *maps, m, n, k, *map(at.pointer, pointers), *slices

        self._add(loaded(self.device, gemm_kernels.built, tiling).kernel(), product, **tiling.options)
        if to is not c:
            quads = c.shape[1] // 4
            adder = loaded(self.device, gemm_kernels.adding, Tiling(type=tiling.type, **ending)).kernel()
            numbers = m * quads, quads, hgmma.inverse(quads), slices[0], n

            def added(at: _At) -> tuple[Any, ...]:
                more = [at.pointer(bias)] if bias else []
                return -(-m * quads // 256), 256, at.pointer(to), at.pointer(c), *numbers, *more

            self._add(adder, added)
        if not direct:
            dense = Packing(c.shape, ITEMS[p.kind], False, n)
            self._add(dense.kernel(self.device), _with(dense.arguments, c, result))

    # -- calls

    def run(
        self, library: Library, like: Any, stream: int, given: Sizes, recorded: Callable[[int], None] | None = None
    ) -> None:
        """Queue it all, or on the CPU device run it. ``given``: addresses of A, B, the scales of a prepared B, bias and
        C, 0: none; ``like``: an array of the library, on the device. ``recorded``: called with the stream if that may
        be recorded into a graph."""
        memory = self.memory
        if memory is None:
            room = np.empty(self.scratch + PIECES, np.uint8)
            at = _OnHost(self._map_of, given, -(-room.ctypes.data // PIECES) * PIECES)
            for step in self._steps:
                kernel, arguments, options = step(at)
                kernel.launch(*arguments, **options)
            return
        lock = memory.lock
        try:  # what `with` does takes longer; the lock knows whether it is this thread's
            lock.acquire()
            if self.scratch and self.scratch <= 4 * PIECE and (found := memory.at(stream)):
                self._queue(stream, given, found, self._short)  # it is not recorded
            elif recorded is not None:
                recorded(stream)
                self.run(library, like, stream, given)
            elif not self.scratch:
                self._queue(stream, given, 0, False)
            else:
                kept, found = self._allocated(library, like, stream)
                self._queue(stream, given, found, False)
                del kept  # all is queued
        except BaseException:
            let_go(lock.release)
            raise
        lock.release()

    def _allocated(self, library: Library, like: Any, stream: int) -> Made:
        """Memory from the library of A."""
        count = -(-self.scratch // ITEMS[self.product.kind])
        if not library.kept:
            return library.empty(like, (count,))
        assert self.memory is not None
        with relaxed(self.memory.gpu):  # Buffers: what is recorded meanwhile is not to be broken off by that
            made = library.empty(like, (count,))
        if self.memory.recorded(stream):
            RECORDED.append(made)
        return made

    def _queue(self, stream: int, given: Sizes, memory: int, together: bool) -> None:
        b = given[B] if together else 0
        run = self._queues.get((memory, b)) or self._prepare(memory, b)
        of_a, of_b, of_c = self._maps
        a, b, _, _, c = given
        run(stream, (
            *given,
            0 if of_a is None else of_a.get(a) or self._map(0, a),
            0 if of_b is None else of_b.get(b) or self._map(1, b),
            0 if of_c is None else of_c.get(c) or self._map(2, c),
        ))  # fmt: skip

    def _prepare(self, memory: int, b: int) -> Callable[..., None]:
        """The launches, made ready for memory at an address; as a graph for ``b``, if that is not 0."""
        if b and len(self._queues) >= MAPS:
            return self._queues.get((memory, 0)) or self._prepare(memory, 0)
        if len(self._queues) > MAPS:
            self._queues.clear()
        at, ready = _OnGpu(self._map_of, memory), []
        for step in self._steps:
            kernel, arguments, options = step(at)
            ready.append(kernel.prepare(*arguments, **options))
        found: Callable[..., None] = kernel.module.queue_of_tuples(ready, MAPPED + 3, bool(b))
        self._queues[memory, b] = found
        return found

    def _map(self, which: int, address: int) -> Any:
        """The bytes of the tensor map of an operand at an address that is new."""
        known = self._maps[which]
        assert known is not None
        if len(known) >= MAPS:
            known.clear()
        known[address] = made = self._map_of(which, _seen(self._operands[which], address)).opaque
        return made


def _with(arguments: Callable[..., tuple[Any, ...]], *spots: Spot) -> Callable[[_At], tuple[Any, ...]]:
    return lambda at: arguments(*map(at.pointer, spots))


def _seen(spot: Spot, address: int) -> View:
    """A GPU's memory as an array."""
    return View(address, spot.shape, adjacent(spot.shape, ITEMS[spot.dtype]), spot.dtype)


@dataclass(frozen=True)
class _At:
    """Pointers and tensor maps of a call. ``map_of``: makes these, of an operand by its number and an array."""

    map_of: Callable[[int, Any], Any]

    def pointer(self, spot: Spot) -> Any:
        raise NotImplementedError

    def map(self, which: int, spot: Spot) -> Any:
        raise NotImplementedError


@dataclass(frozen=True)
class _OnHost(_At):
    """Arrays at the addresses that are given, or in memory from an address on."""

    given: Sizes
    memory: int

    def pointer(self, spot: Spot) -> Any:
        address = self.given[spot.number] if spot.number >= 0 else self.memory + spot.at
        return view(HOST, address, spot.shape, adjacent(spot.shape, ITEMS[spot.dtype]), spot.dtype)

    def map(self, which: int, spot: Spot) -> Any:
        return self.map_of(which, self.pointer(spot))


@dataclass(frozen=True)
class _OnGpu(_At):
    """In memory from an address on; in the place of the others, what is given each time."""

    memory: int

    def pointer(self, spot: Spot) -> Any:
        return Given(spot.number) if spot.number >= 0 else self.memory + spot.at

    def map(self, which: int, spot: Spot) -> Any:
        if spot.number >= 0:
            return Given(MAPPED + which)
        return self.map_of(which, _seen(spot, self.memory + spot.at))
