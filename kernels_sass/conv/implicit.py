"""Layers as matrix products by HGMMA: any filters, strides, paddings, dilations, in four precisions. ``Conv2d`` has one
of these where Winograd's kernels cannot. The kernels are methods/hgmma.sass and methods/pack.sass."""

from __future__ import annotations

import contextlib
import functools
import math
import operator
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import loader
import turingas
from kernels_sass.conv.cost import sms
from kernels_sass.conv.libraries import (
    LIBRARIES,
    Library,
    Made,
    address_of,
    called,
    library_of,
    raw,
    where,
    written_to,
)  # fmt: skip
from kernels_sass.conv.methods import hgmma
from kernels_sass.conv.methods.hgmma import PACK_ROWS, PACK_THREADS, PACK_TILE, TILE_M, Precision
from kernels_sass.conv.partial import PIECE, Partial
from kernels_sass.conv.shape import check_layout
from loader import cuda
from loader.arrays import HOST
from loader.cuda import Buffer
from loader.module import CPU, Given
from loader.reference.problem import Problem
from turingas.cubin.cubin import Cubin
from turingas.errors import LaunchError
from turingas.tensor_map import NBYTES

Pair = tuple[int, int]
Sizes = tuple[int, ...]
Array = np.ndarray[Any, np.dtype[Any]]

NAME, ARCH, precision_of = hgmma.NAME, hgmma.ARCH, hgmma.precision_of
UNIT = 16  # bytes: what copies take at least, and strides and addresses are multiples of
MOST_PLACES = 7  # rows or columns of a filter for hgmma_window.sass
STRIDES, REACH, PADDINGS = 8, 255, 127  # what a map of kind im2col can say: a stride; an offset; a corner
LIMIT = 1 << 32  # bytes from one image, row, ... to the next, and pixels of y: the kernels count with 32 bits
FOLD = 2  # so many times fewer stages make it worth to see the columns of a filter as channels
MANY_STAGES, MOST_BESIDE = 16, 4  # Plan._early
L2_BYTES = 256  # that the L2 fetches at once of x, where each is read in one place alone
NO_MAP = bytes(NBYTES)
GIVEN = 6  # what the launches are given each time: addresses of x, y, residual and scratch, maps of x and y
MAPS = 256  # tensor maps of x, and of y, that a plan remembers by their addresses
#: Microseconds of an H200: 2^20 numbers that pack.sass makes, or that lanes store one by one in NHWC. Winograd's
#: kernels took 1.1 times what their own model says.
PACKED, ONE_BY_ONE, WINOGRAD = 4.7, 3.9, 1.1
KNOBS = ("tile_m", "tile_n", "stages", "group", "buffers", "pingpong", "windows", "keep")  # that a schedule may set
NUMPY = {"float32": "<f4", "float16": "<f2", "bfloat16": "<u2"}  # bfloat16 as its bits


def pair(name: str, value: Any, least: int) -> Pair:
    """A number for rows and columns, or one for each. LaunchError."""
    values = tuple(value) if isinstance(value, (tuple, list)) else (value, value)
    try:
        found = tuple(-1 if isinstance(one, bool) else operator.index(one) for one in values)
    except TypeError:
        found = ()
    if len(found) != 2 or min(found) < least:
        what = f"a number from {least} on, or one for rows and one for columns"
        raise LaunchError(f"{name} is {value!r}; it must be {what}")
    return found[0], found[1]


def unreached(size: int, padding: int, dilation: int) -> str:
    """Why tensor copies do not reach all rows, or columns, of a filter of this size; ""."""
    far = (size - 1) * dilation
    if far <= REACH and max(padding, far - padding) <= PADDINGS:
        return ""
    return f"a filter of {size} with a dilation of {dilation} and a padding of {padding}"


@dataclass(frozen=True)
class Shape:
    """A convolution: n images of c channels, h rows, w columns; k filters of r x s. LaunchError for one that gives no
    output, or that the kernel cannot count."""

    n: int
    c: int
    h: int
    w: int
    k: int
    r: int
    s: int
    stride: Pair = (1, 1)
    padding: Pair = (0, 0)
    dilation: Pair = (1, 1)
    layout: str = "NCHW"

    @classmethod
    def of(cls, p: Problem, layout: str) -> Shape:
        """A problem's."""
        return cls(p.n, p.c, p.h, p.w, p.k, p.r, p.s, (p.stride, p.stride), (p.padding, p.padding), layout=layout)

    def __post_init__(self) -> None:
        check_layout(self.layout)
        if empty := [name for name in "nchwkrs" if getattr(self, name) < 1]:
            raise LaunchError(f"{empty[0]} is {getattr(self, empty[0])}; every size is at least 1")
        if self.p < 1 or self.q < 1:
            raise LaunchError(f"a filter of {self.r} x {self.s} is larger than an image of {self.h} x {self.w} with a "
                              f"padding of {self.padding[0]} x {self.padding[1]}")  # fmt: skip
        for size, reach, padding in zip((self.r, self.s), self.dilation, self.padding):
            if why := unreached(size, padding, reach):
                raise LaunchError(why, f"tensor copies reach {REACH} pixels far, {PADDINGS} beyond an image")
        if max(self.stride) > STRIDES:
            raise LaunchError(f"a stride of {max(self.stride)}", f"tensor copies have strides up to {STRIDES}")
        if self.n * self.p * self.q >= LIMIT - hgmma.MOST_M:
            raise LaunchError(f"y has {self.n * self.p * self.q} pixels; the kernel counts to 4 G")

    @property
    def p(self) -> int:
        """Rows of y."""
        return self._size(self.h, self.r, 0)

    @property
    def q(self) -> int:
        """Columns of y."""
        return self._size(self.w, self.s, 1)

    def check(self, item: int) -> None:
        """LaunchError for x or y with elements of ``item`` bytes that is too large, for any of the kernels."""
        self.strides(self.x_shape, item)
        self.strides(self.y_shape, item)
        if (tiles := hgmma.Work(self.n * self.p * self.q, self.k, 0).tiles(64, hgmma.LEAST_M)) >= hgmma.MOST_TILES:
            raise LaunchError(f"y has {tiles} tiles of {hgmma.LEAST_M} pixels and 64 filters; the kernels count to "
                              f"{hgmma.MOST_TILES}", "give it fewer images at a time")  # fmt: skip

    def _size(self, size: int, of: int, axis: int) -> int:
        return (size + 2 * self.padding[axis] - self.dilation[axis] * (of - 1) - 1) // self.stride[axis] + 1

    @property
    def x_shape(self) -> Sizes:
        """In the layout."""
        return self._shape(self.n, self.c, self.h, self.w)

    @property
    def y_shape(self) -> Sizes:
        """In the layout."""
        return self._shape(self.n, self.k, self.p, self.q)

    def strides(self, shape: Sizes, item: int) -> Mapping[str, int]:
        """Of N, C, H, W in bytes, of an array in the layout. LaunchError for what is too large."""
        found, step = {}, item
        for letter, size in zip(reversed(self.layout), reversed(shape)):
            found[letter], step = step, step * size
        if max(found.values()) >= LIMIT:
            raise LaunchError(f"{self.layout} = {shape} has strides of 4 GiB or more")
        return found

    def _shape(self, *sizes: int) -> Sizes:
        return tuple(sizes["NCHW".index(letter)] for letter in self.layout)


@dataclass(frozen=True)
class Source:
    """What tensor copies take: images x rows x columns x channels, ``strides`` in bytes, with the ``filter`` that goes
    over it. ``packed``: channels, columns and columns of zeros in front, of the array that pack.sass is to make of x;
    () if copies take x itself. ``folded``: all columns of a filter are channels here."""

    shape: Sizes
    strides: Sizes
    filter: Pair
    stride: Pair
    padding: Pair
    dilation: Pair
    packed: Sizes = ()
    folded: bool = False

    @classmethod
    def of(cls, shape: Shape, precision: Precision, aligned: bool) -> Source:
        """For a layer; ``aligned``: whether x begins where copies can."""
        n, c, h, w, s = shape.n, shape.c, shape.h, shape.w, shape.s
        (_, across), (_, pad), item = shape.stride, shape.padding, precision.item
        rest = (shape.r, s), shape.stride, shape.padding, shape.dilation
        filled = -(-c * item // UNIT) * UNIT // item  # channels, so many that copies take them
        if s > 1 and shape.dilation[1] == 1:
            folded = next(count for count in range(c, c + UNIT) if count * across * item % UNIT == 0)
            if _stages(1, s * folded, precision) * FOLD <= _stages(s, filled, precision):
                columns = (shape.q - 1 + -(-s // across)) * across
                step = folded * item
                return cls((n, h, shape.q, s * folded), (h * columns * step, columns * step, across * step, item),
                           (shape.r, 1), (shape.stride[0], 1), (shape.padding[0], 0), (shape.dilation[0], 1),
                           (folded, columns, pad), True)  # fmt: skip
        step = filled * item
        strides = h * w * step, w * step, step, item
        if shape.layout == "NHWC" and filled == c and aligned:
            return cls((n, h, w, c), strides, *rest)
        return cls((n, h, w, filled), strides, *rest, (filled, w, 0))

    def channels(self, precision: Precision) -> int:
        """In multiples of those of a stage."""
        return -(-self.shape[3] // precision.tile_k) * precision.tile_k

    def work(self, shape: Shape, precision: Precision) -> hgmma.Work:
        """What the kernel has to do."""
        pixels, x = shape.n * shape.p * shape.q, shape.n * shape.h * shape.w * shape.c
        return hgmma.Work(pixels, shape.k, self.stages(precision), precision.item * (x + pixels * shape.k))

    def stages(self, precision: Precision) -> int:
        """For a tile."""
        return self.filter[0] * self.filter[1] * self.channels(precision) // precision.tile_k

    def depth(self, precision: Precision) -> int:
        """Of the products of a stage, those that are not of zeros alone."""
        if precision.halves or self.shape[3] >= precision.tile_k:
            return hgmma.DEPTH
        return -(-self.shape[3] * precision.item * hgmma.DEPTH // hgmma.ROW)

    def windows(self, shape: Shape) -> hgmma.Windows | None:
        """How windows see it; None if they cannot: strides, dilations, a filter of one place."""
        (r, s), (down, across), steps = self.filter, self.padding, (*self.stride, *self.dilation)
        if self.folded or max(steps) > 1 or r * s == 1 or down >= r or across >= s or max(r, s) > MOST_PLACES:
            return None
        rows, columns = shape.h + down, shape.w + across
        pixels = ((shape.n - 1) * rows + shape.p - 1) * columns + shape.q
        made = hgmma.Windows(columns, rows, pixels, (r - 1) * columns + s - 1)
        return made if made.seen(hgmma.LEAST_M) <= hgmma.MOST_SEEN and pixels < LIMIT - hgmma.MOST_M else None

    def map(self, array: Any, precision: Precision, kernel: hgmma.Kernel) -> Any:
        """The tensor map of the array that has it, for a kernel."""
        if isinstance(kernel, hgmma.Windowed):
            lower = [-one for one in self.padding]
            return loader.tensor_map(array, channels=precision.tile_k, pixels=kernel.window, lower=lower, upper=(0, 0),
                                     swizzle=hgmma.ROW, dtype=precision.copied)  # fmt: skip
        corners = zip(self.filter, self.padding, self.dilation)
        upper = [padding - (size - 1) * reach for size, padding, reach in corners]
        return loader.tensor_map(
            array, channels=precision.tile_k, pixels=kernel.tile_m, lower=[-one for one in self.padding], upper=upper,
            steps=(1, *self.stride, 1), swizzle=hgmma.ROW, dtype=precision.copied,
            l2=L2_BYTES if self.filter == (1, 1) else 0,
        )  # fmt: skip


def microseconds(shape: Shape, room: hgmma.Room) -> float:
    """What a layer in fp32 takes, about, by the kernels here."""
    precision = hgmma.PRECISIONS["fp32"]
    source = Source.of(shape, precision, True)
    work = source.work(shape, precision)
    copied = shape.layout == "NHWC" and shape.k * precision.item % UNIT == 0
    found = work.time(*work.best(precision, room), room)
    if source.packed:
        found += PACKED * math.prod((*source.shape[:2], *source.packed[:2])) / (1 << 20)
    if not copied and shape.layout == "NHWC":
        found += ONE_BY_ONE * work.pixels * work.filters / (1 << 20)
    return found


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


def _stages(places: int, channels: int, precision: Precision) -> int:
    return places * -(-channels // precision.tile_k)


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


class Implicit:
    """A layer, as ``Conv2d`` has it: y = act(conv(x, weight) + bias + residual)."""

    def __init__(
        self, weight: Any, bias: Any, stride: Pair, padding: Pair, dilation: Pair, relu: bool, layout: str,
        device: str | None, precision: str, schedule: Mapping[str, object], splits: int | None,
    ) -> None:  # fmt: skip
        self.precision, self.relu, self.layout = precision_of(precision), relu, layout
        self.stride, self.padding, self.dilation = stride, padding, dilation
        self.schedule, self.splits = _knobs(schedule), splits
        if splits is not None and (isinstance(splits, bool) or splits not in hgmma.CLUSTERS):
            able = ", ".join(map(str, hgmma.CLUSTERS))
            raise LaunchError(f"splits is {splits!r}; the kernel {NAME!r} has {able}")
        dtype = self.precision.dtype
        self.weight_shape = tuple(map(int, weight.shape))
        self.weight = raw("weight", weight, dtype).view(NUMPY[dtype]).reshape(self.weight_shape)
        self.bias = None if bias is None else _floats("bias", bias, dtype)
        self.device = device
        self.lock = threading.RLock()
        self.plans: dict[Any, _Plan] = {}
        self.usual: dict[Any, _Plan] = {}  # those for arrays that begin where copies can
        self.filters: dict[Any, tuple[Any, ...]] = {}  # by the place, and how they lie
        self.kept: dict[int, Any] = {}  # by the place: Buffers for what pack.sass makes of x
        self.closed = False
        if device not in (None, CPU):
            supported(str(device))

    def __call__(self, x: Any, residual: Any, out: Any, stream: int | None = None) -> Any:
        """As ``Conv2d`` has it. ``stream``: on a GPU another than the caller's current one."""
        library, dtype = LIBRARIES.get(type(x)) or library_of("x", x), self.precision.dtype
        if library.staged and self.device not in (None, CPU):
            return self._through_buffers(x, residual, out)
        source, place = library.seen(x, dtype)
        if not source:
            source, _, place, _ = where("x", x, dtype=dtype)
        return self.run(library, x, source, place, residual, out, stream)

    def run(
        self, library: Library, x: Any, source: int, place: int, residual: Any, out: Any, stream: int | None = None
    ) -> Any:
        """The same for x of the layer's precision that lies at an address, ``source``, of the ``place``."""
        dtype = self.precision.dtype
        plan = self.usual.get((x.shape, place, residual is None))
        if plan is None or source % UNIT:
            plan = self._plan(tuple(map(int, x.shape)), place, source % UNIT == 0, True, residual is not None)
        added = 0 if residual is None else address_of("residual", residual, plan.y_shape, place, dtype=dtype)
        if out is None:
            y, target = (plan.makes.get(type(x)) or plan.making(library, x))()
        else:
            y, target = out, written_to(out, plan.y_shape, place, source, added, plan.sizes, dtype)
        if (target | added) % UNIT:
            plan = self._plan(tuple(map(int, x.shape)), place, source % UNIT == 0, False, residual is not None)
        if stream is None:
            stream = 0 if place == HOST else library.kind.current(place)
        lock = plan.lock
        try:  # what `with` does takes longer; the lock knows whether it is this thread's
            lock.acquire()
            if self.closed:
                raise LaunchError("the layer is closed")
            at = 0
            if plan.scratch:
                at = plan.shared.at(stream) if plan.shared is not None and plan.fits else 0
                if not at:
                    more, at = self._scratch(library, x, plan.scratch, place)  # freed when all is queued
            plan.run(stream, source, target, added, at)
        finally:
            lock.release()
        return y

    def _scratch(self, library: Library, x: Any, count: int, place: int) -> tuple[Any, int]:
        """Memory for so many elements that pack.sass makes of x, from its library; where to allocate would wait for the
        GPU the same each time, for one stream alone."""
        if not library.kept:
            return library.empty(x, (count,))
        kept = self.kept.get(place)
        if kept is None or kept.nbytes < count * self.precision.item:
            if kept is not None:
                kept.free()
            kept = self.kept[place] = library.empty(x, (count,))[0]
        return kept, kept.address

    def shape(self, given: Sizes) -> Shape:
        """For x with these sizes. LaunchError."""
        if len(given) != 4:
            raise LaunchError(f"x has the shape {given}; it must have four sizes, {', '.join(self.layout)}")
        sizes, (k, c, r, s) = dict(zip(self.layout, given)), self.weight_shape
        if sizes["C"] != c:
            raise LaunchError(f"x has {sizes['C']} channels ({self.layout} = {given}), the filters {c}")
        return Shape(sizes["N"], c, sizes["H"], sizes["W"], k, r, s, self.stride, self.padding, self.dilation,
                     self.layout)  # fmt: skip

    def _plan(self, given: Sizes, place: int, aligned: bool, pairs: bool, residual: bool) -> _Plan:
        """For x with these sizes. LaunchError."""
        with self.lock:
            if self.closed:
                raise LaunchError("the layer is closed")
            key = given, place, aligned, pairs, residual
            if key not in self.plans:
                shape = self.shape(given)
                if self.device is not None and called(place) != self.device:
                    raise LaunchError(f"x is on {called(place)}, the layer on {self.device}")
                supported(called(place))
                self.plans[key] = _Plan(self, shape, place, aligned, pairs, residual)
                if aligned and pairs:
                    self.usual[given, place, not residual] = self.plans[key]
            return self.plans[key]

    def filters_for(self, source: Source, place: int, paired: bool) -> tuple[Any, ...]:
        """Weight, as a tensor map's array, its scales and bias on a device; made once for each way to lie. ``paired``:
        hgmma.paired."""
        channels = source.packed[0] if source.packed else source.shape[3]
        key = place, channels, source.folded, paired
        if key not in self.filters:
            made, scales = hgmma.arranged(self.weight, channels, source.folded, self.precision.tile_k), None
            if paired:
                made = hgmma.paired(made)
            if self.precision.halves:
                made, scales = hgmma.halves(made)
            found: tuple[Any, ...] = made, _filled(scales), _filled(self.bias)
            if place != HOST:
                gpu = cuda.device_named(called(place))
                found = tuple(None if one is None else Buffer.of(one, gpu) for one in found)
            self.filters[key] = found
        return self.filters[key]

    def _through_buffers(self, x: Any, residual: Any, out: Any) -> Any:
        """numpy arrays for a layer on a GPU."""
        assert self.device is not None
        more = None if residual is None else Buffer.of(residual, self.device)
        y = self(Buffer.of(x, self.device), more, None)
        if out is None:
            return y.numpy()
        y.copy_to(out)
        return out

    def close(self) -> None:
        """Give memory back."""
        with self.lock, contextlib.ExitStack() as stack:
            for plan in self.plans.values():  # nobody frees the filters while kernels are queued
                stack.enter_context(plan.lock)
            self.closed = True
            self.plans.clear()
            self.usual.clear()
            for one in (*(one for made in self.filters.values() for one in made), *self.kept.values()):
                if isinstance(one, Buffer):
                    one.free()
            self.filters.clear()
            self.kept.clear()


class _Plan:
    """What x of a shape takes on a device. ``aligned``: x begins where copies can; ``pairs``: so do y and residual."""

    def __init__(
        self, layer: Implicit, shape: Shape, place: int, aligned: bool, pairs: bool, residual: bool
    ) -> None:
        self.shape, self.place, self.device = shape, place, called(place)
        self.precision = precision = layer.precision
        item = precision.item
        self.source = Source.of(shape, precision, aligned)
        self.y_shape = shape.y_shape
        self.sizes = item * math.prod(shape.x_shape), item * math.prod(shape.y_shape)
        steps = shape.strides(shape.y_shape, item)
        self.steps = steps["N"], steps["W"], steps["C"]
        copied = shape.layout == "NHWC" and shape.k * item % UNIT == 0 and pairs  # y by tensor copies
        self.pixels = shape.n * shape.p * shape.q
        there = room(self.device)
        pairs = shape.layout == "NHWC" and shape.k % 2 == 0 and pairs
        ending = {"bias": int(layer.bias is not None), "residual": int(residual), "relu": int(layer.relu)}
        work = self.source.work(shape, precision)
        asked = {"windows", "tile_m"} & set(layer.schedule)
        free = copied and not precision.halves and layer.splits in (None, 1) and (not layer.schedule or bool(asked))
        more = {**ending, "direct": int(not copied), "pairs": int(pairs), "depth": self.source.depth(precision)}
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
        tiles = -(-seen // self.kernel.tile_m) * -(-shape.k // self.kernel.tile_n)
        if tiles >= hgmma.MOST_TILES:
            each = f"{self.kernel.tile_m} pixels and {self.kernel.tile_n} filters"
            raise LaunchError(f"y has {tiles} tiles of {each}; the kernel counts to {hgmma.MOST_TILES}",
                              "give it fewer images at a time")  # fmt: skip
        most = there[self.cluster] * self.cluster
        self.blocks = most if self.cluster > 1 else min(most, tiles)
        self.tiles, self.whole = tiles, tiles // self.blocks * self.blocks  # the latter: those that blocks make alone
        self.by_lanes = paired or not copied  # who store y
        self.early = self._early(work)
        self.no_map: Any = 0 if paired else NO_MAP  # there is no such parameter
        dtype = "float16" if precision.halves else precision.copied
        box = self.kernel.tile_n, hgmma.ROW // (2 if precision.halves else precision.item)
        self.filters = loader.tensor_map(self.weight, box, swizzle=hgmma.ROW, dtype=dtype)
        self.module = loaded(self.device, hgmma.built, self.kernel)
        n, h, _, _ = self.source.shape
        self.packed: Sizes = ()  # the array that pack.sass makes
        if self.source.packed:
            channels, columns, _ = self.source.packed
            self.packed = n, h, columns, channels
        self.scratch = math.prod(self.packed or (0,))
        #: on a GPU what all layers there share: memory for the packed x, if it fits, and the lock that goes with it
        self.shared = None if place == HOST else Partial.of(cuda.device_named(self.device))
        self.fits = item * self.scratch <= 4 * PIECE
        self.lock = layer.lock if self.shared is None else self.shared.lock
        self.residual = residual
        self.maps: tuple[dict[int, Any], dict[int, Any]] = {}, {}  # of x and y, by their addresses
        self.makes: dict[type, Callable[[], Made]] = {}  # by the type of x what makes y
        self.queue: Callable[..., None] | None = None  # on a GPU, once all is ready

    def _early(self, work: hgmma.Work) -> bool:
        """Whether the kernel may begin before the one ahead of it has ended. Then its blocks lie anywhere on the GPU,
        and no more beside those that ask for the same pixels at the same time, which the L2 answers at once. For up to
        four tiles of many stages that costs more than an early beginning saves (4 to 16 % on an H100)."""
        columns = -(-work.filters // self.kernel.tile_n)
        together = isinstance(self.kernel, hgmma.Windowed) or self.precision.halves or self.cluster > 1
        return together or work.stages < MANY_STAGES or not 1 < columns <= MOST_BESIDE

    def making(self, library: Library, x: Any) -> Callable[[], Made]:
        """What makes y for arrays such as x."""
        return self.makes.setdefault(type(x), library.again(x, self.y_shape))

    def _of_pixels(self, layer: Implicit, work: hgmma.Work, free: bool, more: dict[str, int]) -> hgmma.Kernel:
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
        self, layer: Implicit, work: hgmma.Work, there: hgmma.Room, free: bool, more: dict[str, int]
    ) -> hgmma.Kernel:
        """What takes the least time, with filters that do not stay. ``free``: it may be any kernel. LaunchError for a
        schedule, or blocks that share tiles, that cannot be."""
        cluster = layer.splits or (1 if self.device == CPU or layer.schedule else None)
        if cluster and not there[cluster]:
            raise LaunchError(f"splits={cluster}: {self.device} runs no cluster of {cluster} such blocks",
                              "each takes a multiprocessor, and a cluster lies in one part of the GPU")  # fmt: skip
        windows = self.source.windows(self.shape) if free else None
        made = hgmma.tiling(self.precision, work, there, cluster, windows, self.source.filter, wider=free, **more)
        tiling = self._scheduled(layer, made)
        if isinstance(tiling, hgmma.Tiling) and tiling.cluster > work.stages:
            raise LaunchError(f"splits={tiling.cluster}, for a layer with {work.stages} stages",
                              "each of the blocks that share a tile has one at least")  # fmt: skip
        return tiling

    def _scheduled(self, layer: Implicit, made: hgmma.Kernel) -> hgmma.Kernel:
        """With what the layer asks for. LaunchError."""
        if unknown := [name for name in layer.schedule if name not in vars(made)]:
            raise LaunchError(f"{unknown[0].upper()} is no parameter of {hgmma.source_of(made).name}")
        tiling = replace(made, **layer.schedule)
        if tiling.shared > hgmma.ROOM:
            raise LaunchError(f"{layer.schedule} take {tiling.shared} bytes of shared memory",
                              f"there are {hgmma.ROOM}: fewer STAGES, or a smaller TILE_N")  # fmt: skip
        return tiling

    def run(self, stream: int, x: int, y: int, residual: int, scratch: int) -> None:
        """Queue it all; on the CPU device: run it. Addresses; ``scratch``: of memory for what is made on the way."""
        copied, (x_maps, y_maps) = scratch if self.packed else x, self.maps
        x_map = x_maps.get(copied) or self._map(0, copied)
        y_map = self.no_map if self.by_lanes else y_maps.get(y) or self._map(1, y)
        if self.place == HOST:
            for kernel, grid, threads, args, options in self._launches(x, y, residual, scratch, x_map, y_map):
                kernel.launch(grid, threads, *args, **options)
            return
        queue = self.queue or self._queue()
        queue(stream, x, y, residual, scratch, x_map, y_map)

    def _queue(self) -> Callable[..., None]:
        """The launches, made ready."""
        every = self._launches(*map(Given, range(GIVEN)))
        ready = [kernel.prepare(grid, threads, *args, **options) for kernel, grid, threads, args, options in every]
        self.queue = self.module.queue(ready, GIVEN)
        return self.queue

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
                channels // precision.tile_k, image, inverse(image), columns, inverse(columns), *given.padding, shape.p,
                shape.q, w,
            )  # fmt: skip
        else:
            (rows, reach), (down, across), image = given.filter, given.dilation, shape.p * shape.q
            places = (given.stages(precision), channels, reach, across, (down << 8) - reach * across, rows * down << 8,
                      image, inverse(image), shape.q, inverse(shape.q), *given.stride, *given.padding)  # fmt: skip
            if isinstance(self.kernel, hgmma.Wide):
                args = x_map, self.filters, *pointers, self.pixels, shape.k, self.tiles, *places, w
            else:
                args = (x_map, self.filters, y_map, *pointers, self.pixels, shape.k, *places, n, w, c,
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
        rows, per_image, width = shape.n * shape.h, shape.h, shape.w
        if columns == width and steps["H"] == width * steps["W"]:  # an image is one long row
            rows, per_image, width, columns = shape.n, 1, shape.h * width, shape.h * columns
        at_once = next(count for count in (4, 8, 32) if count >= min(channels, 32))
        in_rows = steps["W"] == item or steps["C"] != item
        grid = rows, -(-columns // (PACK_TILE // at_once)), -(-channels // at_once)
        numbers = (per_image, hgmma.inverse(per_image), width, columns, pad, shape.c, channels,
                   steps["N"], steps["H"], steps["W"], steps["C"])  # fmt: skip
        args = self._array(x, shape.x_shape), self._array(target, self.packed), *numbers
        if channels * item in (8, 16):
            packer = loaded(self.device, hgmma.packing_few, item, channels)
            few = -(-rows // PACK_ROWS), -(-columns // PACK_THREADS)
            return packer.kernel(), few, PACK_THREADS, (*args, rows), {"early": True}
        packer = loaded(self.device, hgmma.packing, item, at_once, in_rows)
        return packer.kernel(), grid, PACK_THREADS, args, {"early": True}


def _filled(numbers: Array | None) -> Array | None:
    """Those of all filters, and zeros for those that the last tile has not."""
    return None if numbers is None else np.pad(numbers, (0, hgmma.MOST_FILTERS))


def _pointer(array: Any) -> Any:
    """To an array of the layer: 0 for none."""
    return 0 if array is None else array.address if isinstance(array, Buffer) else array


def supported(device: str) -> None:
    """LaunchError for a GPU without these instructions."""
    if device == CPU:
        return
    gpu = cuda.device_named(device)
    if not gpu.runs(ARCH):
        raise LaunchError(*refused(f"{gpu} ({gpu.name}) is {gpu.arch}"))


def refused(why: str) -> tuple[str, str]:
    """Message and hint for where these layers cannot run."""
    return (f"{why}, and this layer takes the kernel {NAME!r}, which is for {ARCH} alone (H100, H200): its "
            "products are HGMMA, fed by tensor copies",
            "elsewhere there are filters of 3 x 3, stride 1, dilation 1, padding 0 or 1, in fp32")  # fmt: skip


def _knobs(schedule: Mapping[str, object]) -> dict[str, Any]:
    """A schedule as fields of a Tiling. LaunchError."""
    found = {str(name).lower(): value for name, value in schedule.items()}
    if unknown := [name for name in schedule if str(name).lower() not in KNOBS]:
        raise LaunchError(f"{hgmma.SOURCE.name} has no parameter {unknown[0]!r}",
                          "it has: " + ", ".join(map(str.upper, KNOBS)))  # fmt: skip
    for name, value in found.items():
        if not isinstance(value, int):
            raise LaunchError(f"{name.upper()} is {value!r}; it must be a number")
    return found


def _floats(name: str, value: Any, dtype: str) -> Array:
    """A bias, of float32 or of the type of x, as float32 in the host's memory."""
    library = library_of(name, value)
    own = "float32" if value.dtype == library.dtypes["float32"] else dtype
    found: Array = raw(name, value, own).view(NUMPY[own])
    if own == "bfloat16":
        found = (found.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return found.astype(np.float32)
