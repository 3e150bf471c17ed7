"""What x of a shape takes on a device, for a layer by HGMMA: its kernel, its tensor maps, its launches."""

from __future__ import annotations

import functools
import math
import threading
import weakref
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

import loader
import turingas
from kernels_sass.conv.cost import sms
from kernels_sass.conv.implicit_shape import UNIT, Shape, Sizes, Source, microseconds
from kernels_sass.conv.libraries import Library, Made, called
from kernels_sass.conv.methods import hgmma
from kernels_sass.conv.methods.hgmma import PACK_THREADS, PACK_TILE, TILE_M
from kernels_sass.conv.partial import PIECE, SHORT, Owner, Partial, Queue, running
from loader import cuda
from loader.arrays import HOST
from loader.cuda import Buffer
from loader.module import CPU, Given
from turingas.cubin.cubin import Cubin
from turingas.errors import AsmError, LaunchError

Array = np.ndarray[Any, np.dtype[Any]]
ARCH = hgmma.ARCH
X, Y, RESIDUAL, Y_MAP = map(Given, range(4))  # what the launches are given each time; X: where no x is packed, its map
MAPS = 256  # tensor maps of x, and of y, that a plan remembers by their addresses
MANY_STAGES, MOST_BESIDE = 16, 4  # Plan._early
NUMPY = {"float32": "<f4", "float16": "<f2", "bfloat16": "<u2"}  # bfloat16 as its bits


def room(device: str) -> hgmma.Room:
    """Clusters of 1, 2, ... blocks of the kernel that a device runs at once."""
    several = sms(device)
    if device == CPU:
        return {one: max(1, several // one) for one in hgmma.CLUSTERS}
    return {1: several, **_clusters(cuda.device_named(device))}


@functools.cache
def _clusters(gpu: cuda.Device) -> hgmma.Room:
    """As the driver tells of a kernel that takes all shared memory of a multiprocessor."""
    kernel: Any = loader.load(turingas.assemble(f".arch {ARCH}\n.kernel full\nEXIT;\n"), str(gpu)).kernel()
    return {one: kernel.clusters(one, hgmma.THREADS, hgmma.ROOM) for one in hgmma.CLUSTERS[1:]}


class View:
    """Memory at an address seen as an array, for whom takes the interfaces of numpy or CUDA. ``kept`` lives as long."""

    def __init__(self, address: int, shape: Sizes, strides: Sizes, dtype: str, kept: Any = None) -> None:
        self.shape, self.strides, self.dtype, self.kept = shape, strides, np.dtype(NUMPY[dtype]), kept
        self._facts = {"shape": shape, "strides": strides, "typestr": NUMPY[dtype], "data": (address, False),
                       "version": 3}  # fmt: skip

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return self._facts

    def on_host(self) -> Array:
        """As numpy has it."""
        class Host:
            __array_interface__ = self._facts

        return np.asarray(Host())


def view(place: int, address: int, shape: Sizes, strides: Sizes, dtype: str) -> Any:
    """The memory at an address as an array, on the host or a GPU."""
    made = View(address, shape, strides, dtype)
    return made.on_host() if place == HOST else made


def adjacent(shape: Sizes, item: int) -> Sizes:
    """Strides in bytes of C order."""
    return tuple(item * math.prod(shape[n + 1 :]) for n in range(len(shape)))


@functools.cache
def _loaded(device: str | cuda.Device, make: Callable[..., Cubin], *of: Any) -> Any:
    return loader.load(make(*of), str(device))


def loaded(device: str, make: Callable[..., Cubin], *of: Any) -> Any:
    """The module of a kernel that ``make`` makes, loaded once."""
    return _loaded(device if device == CPU else cuda.device_named(device), make, *of)


class Layer(Owner, Protocol):
    """What a plan asks of its layer, implicit.Implicit."""

    precision: hgmma.Precision
    bias: Any
    relu: bool
    schedule: dict[str, Any]
    splits: int | None
    lock: threading.RLock

    def filters_for(self, source: Source, place: int, paired: bool) -> tuple[Any, ...]: ...


class Plan:
    """What x of a shape takes on a device. ``aligned``: x begins where copies can; ``pairs``: so do y and residual."""

    def __init__(
        self, layer: Layer, shape: Shape, place: int, aligned: bool, pairs: bool, residual: bool
    ) -> None:
        self.shape, self.place, self.device = shape, place, called(place)
        self.precision = precision = layer.precision
        item = precision.item
        self.y_shape = shape.y_shape
        self.sizes = item * math.prod(shape.x_shape), item * math.prod(shape.y_shape)
        steps = shape.strides(shape.y_shape, item)
        self.steps = steps["N"], steps["W"], steps["C"]
        copied = shape.layout == "NHWC" and shape.k * item % UNIT == 0 and pairs  # y by tensor copies
        self.pixels = shape.n * shape.p * shape.q
        there = room(self.device)
        pairs = shape.layout == "NHWC" and shape.k % 2 == 0 and pairs
        ending = {"bias": int(layer.bias is not None), "residual": int(residual), "relu": int(layer.relu)}
        asked = {"windows", "tile_m"} & set(layer.schedule)
        free = copied and not precision.halves and layer.splits in (None, 1) and (not layer.schedule or bool(asked))
        self.source = Source.of(shape, precision, aligned)
        if free and (not asked or "windows" in asked):
            self.source = self._deep() or self.source
        work = self.source.work(shape, precision)
        more = {**ending, "direct": int(not copied), "pairs": int(pairs)}
        self.kernel: hgmma.Kernel = (self._of_pixels(layer, work, free, more) if asked
                                     else self._tiling(layer, work, there, free, more))  # fmt: skip
        if isinstance(self.kernel, hgmma.Tiling):
            self.windows, self.cluster = None, self.kernel.cluster
        else:
            windowed = isinstance(self.kernel, hgmma.Windowed)
            self.windows, self.cluster = self.source.windows(shape) if windowed else None, 1
        paired = not isinstance(self.kernel, hgmma.Tiling)
        self.weight, self.scales, self.bias = layer.filters_for(self.source, place, paired)
        seen = self.windows.pixels if self.windows else self.pixels
        tiles = hgmma.countable(seen, shape.k, self.kernel.tile_m, self.kernel.tile_n)
        most = there[self.cluster] * self.cluster
        self.blocks = most if self.cluster > 1 else min(most, tiles)
        self.tiles, self.whole = tiles, tiles // self.blocks * self.blocks  # the latter: those that blocks make alone
        self.by_lanes = paired or not copied  # who store y
        self.early = self._early(work)
        dtype = "float16" if precision.halves else precision.copied
        box = self.kernel.tile_n, self.source.row // (2 if precision.halves else precision.item)
        self.filters = loader.tensor_map(self.weight, box, swizzle=self.source.row, dtype=dtype)
        try:
            self.module = loaded(self.device, hgmma.built, self.kernel)
        except AsmError as error:  # a value that the source does not take
            source, given = hgmma.source_of(self.kernel).name, _said(layer.schedule)
            raise LaunchError(f"{source} cannot be assembled with {given}: {error.plain}", error.hint) from error
        n, h, _, _ = self.source.shape
        self.packed: Sizes = ()  # the array that pack*.sass make
        if self.source.packed:
            channels, columns, _ = self.source.packed
            self.packed = n, h, columns, channels * self.source.rows
        self.scratch = math.prod(self.packed or (0,))
        #: on a GPU what all layers there share: memory for the packed x, if it fits, and the lock that goes with it
        self.shared = None if place == HOST else Partial.of(cuda.device_named(self.device))
        self.lock = layer.lock if self.shared is None else self.shared.lock
        self.residual = residual
        self.maps: tuple[dict[int, Any], dict[int, Any]] = {}, {}  # of x and y, by their addresses
        self.makes: dict[type, Callable[[], Made]] = {}  # by the type of x what makes y
        #: on a GPU: by the address of the packed x, 0: x is not packed; as they are, and together
        self.queues: tuple[dict[int, Callable[..., None]], ...] = {}, {}
        at = self.shared.at if self.shared is not None and item * self.scratch <= 4 * PIECE else None
        short = self.packed and microseconds(shape, there) < SHORT  # as fp32: others take less
        self.run = running(self.lock, self.scratch, place, at, self.queued(False), self.queued(bool(short)))

    def _deep(self) -> Source | None:
        """For windows of several rows and columns of x in a pixel, if that can be, and there is room for them."""
        source = Source.deep(self.shape, self.precision)
        windows = source.windows(self.shape) if source else None
        if source is None or windows is None:
            return None
        work = source.work(self.shape, self.precision)
        return source if hgmma.windowed(self.precision, work, room(self.device), windows, source.filter) else None

    def _early(self, work: hgmma.Work) -> bool:
        """Whether the kernel may begin before the one ahead of it has ended. Then its blocks lie anywhere on the GPU,
        and no more beside those that ask for the same pixels at the same time, which the L2 answers at once. For up to
        four tiles of many stages that costs more than an early beginning saves (on an H100)."""
        columns = -(-work.filters // self.kernel.tile_n)
        together = isinstance(self.kernel, hgmma.Windowed) or self.precision.halves or self.cluster > 1
        return together or work.stages < MANY_STAGES or not 1 < columns <= MOST_BESIDE

    def making(self, library: Library, x: Any) -> Callable[[], Made]:
        """What makes y for arrays such as x."""
        return self.makes.setdefault(type(x), library.again(x, self.y_shape))

    def _of_pixels(self, layer: Layer, work: hgmma.Work, free: bool, more: dict[str, int]) -> hgmma.Kernel:
        """What a schedule asks for that has windows, or tiles of other than 128 pixels. LaunchError."""
        asked, windows = layer.schedule, self.source.windows(self.shape)
        kind = (hgmma.KEPT if asked.get("keep") else hgmma.WINDOWS) if "windows" in asked else hgmma.WIDER
        tile_n = hgmma.WIDE_N if kind == hgmma.WIDER else asked.get("tile_n", 64 if self.shape.k <= 64 else 128)
        way, tile_m = hgmma.Way(kind, tile_n, 0, 0, 0), asked.get("tile_m", TILE_M)
        if tile_m not in way.pixels:
            raise LaunchError(f"TILE_M={tile_m}: a tile of {tile_n} filters cannot have so many pixels",
                              f"it has {way.pixels[0]} to {way.pixels[-1]}, in eights")  # fmt: skip
        made = hgmma.of_pixels(self.precision, way, work, windows, self.source.filter, tile_m, **more) if free else None
        if made is None and kind == hgmma.WIDER:
            raise LaunchError("TILE_M: tiles of other than 128 pixels are for NHWC in tf32, fp16 and bf16",
                              "with channels and filters in multiples of 16 bytes, and without splits")  # fmt: skip
        if made is None:
            raise LaunchError("WINDOWS: there are no windows of this layer, or there is no room for them",
                              "they are for NHWC in tf32, fp16 and bf16, filters of several places, strides and "
                              "dilations of 1, channels and filters in multiples of 16 bytes; with KEEP=1 all "
                              "filters stay in shared memory")  # fmt: skip
        return self._scheduled(layer, made)

    def _tiling(
        self, layer: Layer, work: hgmma.Work, there: hgmma.Room, free: bool, more: dict[str, int]
    ) -> hgmma.Kernel:
        """What takes the least time, with filters that do not stay. ``free``: it may be any kernel. LaunchError for a
        schedule, or blocks that share tiles, that cannot be."""
        cluster = layer.splits or (1 if self.device == CPU or layer.schedule else None)
        if cluster and not there[cluster]:
            raise LaunchError(f"splits={cluster}: {self.device} runs no cluster of {cluster} such blocks",
                              "each takes a multiprocessor, and a cluster lies in one part of the GPU")  # fmt: skip
        windows = self.source.windows(self.shape) if free else None
        if windows and self.source.across:
            deep = hgmma.windowed(self.precision, work, there, windows, self.source.filter, **more)
            assert deep is not None
            return self._scheduled(layer, deep)
        made = hgmma.tiling(self.precision, work, there, cluster, windows, self.source.filter, wider=free,
                            asked=layer.schedule, **more)  # fmt: skip
        tiling = self._scheduled(layer, made)
        if isinstance(tiling, hgmma.Tiling) and tiling.cluster > work.stages:
            raise LaunchError(f"splits={tiling.cluster}, for a layer with {work.stages} stages",
                              "each of the blocks that share a tile has one at least")  # fmt: skip
        return tiling

    def _scheduled(self, layer: Layer, made: hgmma.Kernel) -> hgmma.Kernel:
        """With what the layer asks for. LaunchError."""
        if unknown := [name for name in layer.schedule if name not in vars(made)]:
            raise LaunchError(f"{unknown[0].upper()} is no parameter of {hgmma.source_of(made).name}")
        tiling = replace(made, **layer.schedule)
        if isinstance(tiling, hgmma.Tiling) and tiling.tile_n > TILE_M and "pingpong" not in layer.schedule:
            tiling = replace(tiling, pingpong=0)  # there are no registers for it
        if isinstance(tiling, hgmma.Tiling) and tiling.tile_n // tiling.columns % 2 and "buffers" not in layer.schedule:
            tiling = replace(tiling, buffers=1)  # as many as divide the boxes of a tile
        if isinstance(tiling, hgmma.Windowed) and tiling.keep and tiling.stages != made.stages:
            raise LaunchError(f"KEEP=1, STAGES={tiling.stages}: the filters of this layer are {made.stages} stages",
                              "with KEEP=1 leave STAGES out")  # fmt: skip
        if tiling.shared > hgmma.ROOM:
            raise LaunchError(f"{_said(layer.schedule)} take {tiling.shared} bytes of shared memory",
                              f"there are {hgmma.ROOM}: fewer STAGES, or a smaller TILE_N")  # fmt: skip
        return tiling

    def queued(self, together: bool) -> Queue:
        """What queues it all on a GPU, or on the CPU device runs it, as ``running`` asks. The plan would go round in
        circles: it is looked for only when something is new."""
        plan, by_lanes, queues, (x_maps, y_maps) = weakref.ref(self), self.by_lanes, self.queues[together], self.maps

        def on_host(stream: int | None, given: tuple[int, ...]) -> None:
            _there(plan).run_on_host(*given)

        def queue(stream: int, given: tuple[int, ...]) -> None:
            x, y, residual, packed = given
            run = queues.get(packed) or _there(plan)._queue(packed, together)
            first = x if packed else x_maps.get(x) or _there(plan)._map(0, x)
            if by_lanes:
                run(stream, (first, y, residual))
            else:
                run(stream, (first, y, residual, y_maps.get(y) or _there(plan)._map(1, y)))

        return on_host if self.place == HOST else queue

    def run_on_host(self, x: int, y: int, residual: int, scratch: int) -> None:
        """On the CPU device."""
        x_map, y_map = self._map(0, scratch or x), None if self.by_lanes else self._map(1, y)
        for kernel, grid, threads, args, options in self._launches(x, y, residual, scratch, x_map, y_map):
            kernel.launch(grid, threads, *args, **options)

    def _queue(self, scratch: int, together: bool) -> Callable[..., None]:
        """The launches, made ready for a packed x at an address: its map stays as it is."""
        known = self.queues[together]
        if len(known) >= MAPS:
            known.clear()
        x_map = self._x_map(scratch) if scratch else X
        every = self._launches(X, Y, RESIDUAL, scratch, x_map, None if self.by_lanes else Y_MAP)
        ready = [kernel.prepare(grid, threads, *args, **options) for kernel, grid, threads, args, options in every]
        known[scratch] = self.module.queue_of_tuples(ready, 3 + (not self.by_lanes), together)
        return known[scratch]

    def _launches(self, x: Any, y: Any, residual: Any, scratch: Any, x_map: Any, y_map: Any) -> list[Any]:
        """Kernel, grid, threads, arguments and options of each."""
        main = self._main(x_map, y_map, residual if self.residual else 0, y if self.by_lanes else 0)
        return [*([self._pack(x, scratch)] if self.packed else []), main]

    def _map(self, which: int, address: int) -> Any:
        """The tensor map of x (0) or y (1) at an address that is new: on a GPU its bytes."""
        known = self.maps[which]
        if len(known) >= MAPS:
            known.clear()
        made = (self._x_map, self._y_map)[which](address)
        known[address] = made if self.place == HOST else made.opaque
        return known[address]

    def _x_map(self, address: int) -> Any:
        given, dtype = self.source, self.precision.dtype
        return given.map(view(self.place, address, given.shape, given.strides, dtype), self.precision, self.kernel)

    def _y_map(self, address: int) -> Any:
        assert isinstance(self.kernel, hgmma.Tiling)
        sizes = self.pixels, self.shape.k
        target = view(self.place, address, sizes, adjacent(sizes, self.precision.item), self.precision.dtype)
        return loader.tensor_map(target, (16, self.kernel.columns), swizzle=hgmma.ROW, dtype=self.precision.dtype)

    def _array(self, address: Any, shape: Sizes) -> Any:
        """A pointer: the address, or what is given in its place, or on the CPU device an array."""
        if self.place != HOST or not address or isinstance(address, Given):
            return address
        return view(HOST, address, shape, adjacent(shape, self.precision.item), self.precision.dtype)

    def _main(self, x_map: Any, y_map: Any, residual: Any, y: Any) -> tuple[Any, ...]:
        shape, precision, given, inverse = self.shape, self.precision, self.source, hgmma.inverse
        pointers = self._bias(), *(self._array(one, shape.y_shape) for one in (residual, y))
        channels, (n, w, c) = given.channels(precision), self.steps
        args: tuple[Any, ...]
        if self.windows is not None:
            columns, image = self.windows.columns, self.windows.rows * self.windows.columns
            args = (
                x_map, self.filters, *pointers, self.windows.pixels, shape.k, self.tiles, channels,
                channels // given.tile_k(precision), image, inverse(image), columns, inverse(columns), *given.padding,
                shape.p, shape.q, w,
            )  # fmt: skip
        else:
            (rows, reach), (down, across), image = given.filter, given.dilation, shape.p * shape.q
            places = (given.stages(precision), channels, reach, across, (down << 8) - reach * across, rows * down << 8,
                      image, inverse(image), shape.q, inverse(shape.q), *given.stride, *given.padding)  # fmt: skip
            if isinstance(self.kernel, hgmma.Wide):
                args = x_map, self.filters, *pointers, self.pixels, shape.k, self.tiles, *places, w
            else:
                args = (x_map, self.filters, y_map or self.filters, *pointers, self.pixels, shape.k, *places, n, w, c,
                        *([_pointer(self.scales)] if precision.halves else []),
                        *([self.whole, rows * reach] if self.cluster > 1 else []))  # fmt: skip
        options = {"shared": self.kernel.shared, "early": self.early}
        options |= {"cluster": self.cluster} if self.cluster > 1 else {}
        return self.module.kernel(), self.blocks, hgmma.THREADS, args, options

    def _bias(self) -> Any:
        return _pointer(self.bias)

    def _pack(self, x: Any, target: Any) -> tuple[Any, ...]:
        shape, item = self.shape, self.precision.item
        steps = shape.strides(shape.x_shape, item)
        channels, columns, pad = self.source.packed
        x, target = self._array(x, shape.x_shape), self._array(target, self.packed)
        of = item, shape.c, channels, self.source.rows
        if hgmma.few(*of):
            few: Any = loaded(self.device, hgmma.packing_few, *of)
            height, top = self.packed[1], shape.padding[0] - self.source.padding[0]  # what copies do not add
            pieces = math.prod(self.packed) * item // min(hgmma.FEW_PIECE, self.packed[3] * item)
            args = (x, target, pieces, height, hgmma.inverse(height), columns, hgmma.inverse(columns), pad,
                    top, shape.h, shape.w, *(steps[one] for one in "NHWC"))  # fmt: skip
            return few.kernel(), -(-pieces // PACK_THREADS), PACK_THREADS, args, {"early": True}
        rows, per_image, width = shape.n * shape.h, shape.h, shape.w
        if columns == width and not pad and steps["H"] == width * steps["W"]:  # an image is one long row
            rows, per_image, width, columns = shape.n, 1, shape.h * width, shape.h * columns
        at_once = next(count for count in (4, 8, 32) if count >= min(channels, 32))
        in_rows = steps["W"] == item or steps["C"] != item
        grid = rows, -(-columns // (PACK_TILE // at_once)), -(-channels // at_once)
        numbers = (per_image, hgmma.inverse(per_image), width, columns, pad, shape.c, channels,
                   steps["N"], steps["H"], steps["W"], steps["C"])  # fmt: skip
        packer = loaded(self.device, hgmma.packing, item, at_once, in_rows)
        return packer.kernel(), grid, PACK_THREADS, (x, target, *numbers), {"early": True}


def _said(schedule: Mapping[str, object]) -> str:
    """As -D has it."""
    return ", ".join(f"{name.upper()}={value}" for name, value in schedule.items())


def _there(plan: weakref.ref[Plan]) -> Plan:
    """The plan, which its caller holds."""
    found = plan()
    assert found is not None
    return found


def _pointer(array: Any) -> Any:
    """To an array of the layer: 0 for none."""
    return 0 if array is None else array.address if isinstance(array, Buffer) else array
