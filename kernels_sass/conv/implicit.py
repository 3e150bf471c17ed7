"""Layers as matrix products by HGMMA: any filters, strides, paddings, dilations, in four precisions. ``Conv2d`` has one
of these where Winograd's kernels cannot. The kernels are methods/hgmma*.sass and methods/pack*.sass."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Mapping
from typing import Any

import numpy as np

from kernels_sass.conv.implicit_plan import NUMPY, Array, Plan
from kernels_sass.conv.implicit_shape import UNIT, Pair, Shape, Sizes, Source
from kernels_sass.conv.libraries import (
    LIBRARIES,
    Library,
    address_of,
    called,
    library_of,
    raw,
    where,
    written_to,
)  # fmt: skip
from kernels_sass.conv.methods import hgmma
from kernels_sass.conv.partial import Kept, Partial
from loader import cuda
from loader.arrays import HOST
from loader.cuda import Buffer
from loader.module import CPU
from turingas.errors import LaunchError
from turingas.forks import freed

NAME, ARCH, precision_of = hgmma.NAME, hgmma.ARCH, hgmma.precision_of
#: that a schedule may set
KNOBS = ("tile_m", "tile_n", "stages", "group", "buffers", "pingpong", "ahead", "windows", "keep")


class Implicit:
    """A layer, as ``Conv2d`` has it: y = act(conv(x, weight) + bias + residual)."""

    def __init__(
        self, weight: Any, bias: Any, stride: Pair, padding: Pair, dilation: Pair, relu: bool, layout: str,
        device: str | None, precision: str, schedule: Mapping[str, object], splits: int | None,
    ) -> None:  # fmt: skip
        self.precision, self.relu, self.layout = precision_of(precision), relu, layout
        self.dtype = self.precision.dtype
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
        self.lock = freed(threading.RLock())
        self.plans: dict[Any, Plan] = {}
        self.usual: dict[Any, Plan] = {}  # those for arrays that begin where copies can
        self.filters: dict[Any, tuple[Any, ...]] = {}  # by the place, and how they lie
        self.kept: dict[int, Kept] = {}  # by the place: for what pack*.sass make of x
        self.closed = False
        if device not in (None, CPU):
            supported(str(device))

    def __call__(self, x: Any, residual: Any, out: Any, stream: int | None = None) -> Any:
        """As ``Conv2d`` has it. ``stream``: on a GPU another than the caller's current one."""
        library = LIBRARIES.get(type(x)) or library_of("x", x)
        if library.staged and self.device not in (None, CPU):
            return self._through_buffers(x, residual, out)
        source, place = library.seen(x, self.dtype)
        if not source:
            source, _, place, _ = where("x", x, dtype=self.dtype)
        return self.run(library, x, source, place, residual, out, stream)

    def run(
        self, library: Library, x: Any, source: int, place: int, residual: Any, out: Any, stream: int | None = None
    ) -> Any:
        """The same for x of the layer's precision that lies at an address, ``source``, of the ``place``."""
        plan = self.usual.get((x.shape, place, residual is None))
        if plan is None or source % UNIT:
            plan = self._plan(tuple(map(int, x.shape)), place, source % UNIT == 0, True, residual is not None)
        added = 0
        if residual is not None:
            added = address_of("residual", residual, plan.y_shape, place, dtype=self.dtype)
        if out is None:
            y, target = (plan.makes.get(type(x)) or plan.making(library, x))()
        else:
            y, target = out, written_to(out, plan.y_shape, place, source, added, plan.sizes, self.dtype)
        if (target | added) % UNIT:
            plan = self._plan(tuple(map(int, x.shape)), place, source % UNIT == 0, False, residual is not None)
        if place == HOST:
            stream = 0
        elif stream is None:
            stream = library.kind.current(place)
        plan.run(self, library, x, stream, source, target, added)
        return y

    def scratch(self, library: Library, x: Any, count: int, place: int, stream: int) -> tuple[Any, int]:
        """Memory for so many elements that pack*.sass make of x, from its library; where to allocate would wait for the
        GPU the same each time, for one stream alone."""
        if not library.kept or place == HOST:
            return library.empty(x, (count,))
        if place not in self.kept:
            self.kept[place] = Kept(Partial.of(cuda.device_named(called(place))))
        return None, self.kept[place].at(stream, -(-count * self.precision.item // 4))

    def shape(self, given: Sizes) -> Shape:
        """For x with these sizes. LaunchError."""
        if len(given) != 4:
            raise LaunchError(f"x has the shape {given}; it must have four sizes, {', '.join(self.layout)}")
        sizes, (k, c, r, s) = dict(zip(self.layout, given)), self.weight_shape
        if sizes["C"] != c:
            raise LaunchError(f"x has {sizes['C']} channels ({self.layout} = {given}), the filters {c}")
        return Shape(sizes["N"], c, sizes["H"], sizes["W"], k, r, s, self.stride, self.padding, self.dilation,
                     self.layout)  # fmt: skip

    def _plan(self, given: Sizes, place: int, aligned: bool, pairs: bool, residual: bool) -> Plan:
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
                self.plans[key] = Plan(self, shape, place, aligned, pairs, residual)
                if aligned and pairs:
                    self.usual[given, place, not residual] = self.plans[key]
            return self.plans[key]

    def filters_for(self, source: Source, place: int, paired: bool) -> tuple[Any, ...]:
        """Weight, as a tensor map's array, its scales and bias on a device; made once for each way to lie. ``paired``:
        hgmma.paired."""
        channels = source.packed[0] if source.packed else source.shape[3]
        key = place, channels, source.folded, source.rows, source.across, paired
        if key not in self.filters:
            if source.across:
                made = hgmma.deep(self.weight, channels, source.rows, source.across)
            else:
                made = hgmma.arranged(self.weight, channels, source.folded, self.precision.tile_k, source.rows)
            scales = None
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
                if isinstance(one, (Buffer, Kept)):
                    one.free()
            self.filters.clear()
            self.kept.clear()


def _filled(numbers: Array | None) -> Array | None:
    """Those of all filters, and zeros for those that the last tile has not."""
    return None if numbers is None else np.pad(numbers, (0, hgmma.MOST_FILTERS))


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
