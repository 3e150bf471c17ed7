"""Convolution layers for inference, on arrays of numpy, PyTorch and CuPy: ``Conv2d``."""

from __future__ import annotations

import math
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, TypeVar, overload

import numpy as np

from kernels_sass.conv import implicit, implicit_shape, tuned
from kernels_sass.conv.code import CPU_ARCH, Kernels, arch_of, choose, takes
from kernels_sass.conv.cost import FITTED, microseconds, sms, split
from kernels_sass.conv.implicit import Implicit, refused
from kernels_sass.conv.implicit_plan import room
from kernels_sass.conv.implicit_shape import Pair, pair
from kernels_sass.conv.launch import launches, pointers, transform
from kernels_sass.conv.libraries import (
    LIBRARIES,
    Library,
    Made,
    Sizes,
    address_of,
    called,
    copied,
    library_of,
    on_gpu,
    where,
    written_to,
)  # fmt: skip
from kernels_sass.conv.method import METHODS, Kernel, Method, usual
from kernels_sass.conv.partial import PIECE, SHORT, Kept, Partial, Queue, running
from kernels_sass.conv.shape import LAYOUT, SPLITS, Shape, check_layout, filter_floats, shape_of
from loader import cuda
from loader.arrays import HOST
from loader.cuda import Buffer
from loader.module import CPU, Given
from turingas.errors import LaunchError
from turingas.forks import freed
from turingas.packages import callers_level
from turingas.stays import Stays

CPU_ARCHS = (CPU_ARCH, "sm_90")  # what it runs: the first that has the kernel, and its schedule
ACTIVATIONS = (None, "relu")
PLANS = 256  # shapes that a layer remembers on each device

ArrayT = TypeVar("ArrayT")  # an array of a library


class Conv2d(Stays):
    """y = act(conv(x, weight) + bias + residual).

    ``weight``: K, C, R, S. ``bias``: K. ``stride``, ``padding``, ``dilation``: a number, or one for rows and one for
    columns. ``activation``: None or "relu". ``layout`` of x, residual and y: "NCHW", "CHWN" or "NHWC". weight and bias
    are read while the layer is made (with ``device`` None and both in the host's memory: copied). What is written to
    them later has no effect.

    ``precision``: of x, weight, residual and y, and of the products; sums are float32. "fp32": float32, relative L2
    errors below 1e-6 (of sums before bias, residual and ReLU, which may leave little of them); "tf32": float32, rounded
    to 19 bits on the way (2.9e-4); "fp16" and "bf16": float16 and bfloat16 (in numpy and Buffers: its bits, as uint16),
    rounded once. bias may be float32 with all of them.

    Filters of 3 x 3 with stride and dilation 1, padding 0 or 1, in "fp32" are computed by Winograd's method or one of
    those beside it, on all architectures. All others, and the other precisions, are matrix products by HGMMA, the
    kernel "hgmma": on H100 and H200 (sm_90a) and on the CPU device. Its strides are at most 8, a filter reaches 255
    pixels far. Its ``splits``, 1, 2, 4 or 8, are blocks of a cluster that share channels and places of filters
    of the last tiles. The rest of this text is about the former, ``schedule`` apart, which "hgmma" has too
    (TILE_N, STAGES, GROUP, BUFFERS).

    ``device``: "cpu", "cuda:0" ...; None: the GPU where weight is, or if it is in the host's memory, wherever each x
    is. ``arch``: what the kernels are assembled for; None: the GPU's own, on the CPU device sm_75, or sm_90 for what
    "paper" has not. ``kernel``: "paper", "hopper", "direct", "nhwc", "few", "small", "fold" or "hgmma"; None: the best
    there is. On Hopper with fewer than 8 channels, or at most 8 filters, that may be "direct", "nhwc", "few" or "fold",
    with few images "small", which do without Winograd.
    ``schedule``: parameters of its source, such as {"YIELD": "natural"}; {}: the source as it is for these sizes, and
    no other. None: the same, but for shapes of x for which `turingas bench schedule --sweep` found a faster schedule on
    this card (``tuned``), or a kernel without Winograd is faster.
    On H100 and H200 it may be "hgmma" too, but in CHWN: products of FP16 parts, with errors of 2.3e-7.
    "hopper" multiplies on tensor cores, in three parts of TF32 and with relative errors of 5e-7; {"MATH": "ffma"} makes
    its products those of float32. Its blocks have 64 filters or 32, which gives the same bits: whichever is faster,
    unless FILTERS says so.

    ``splits``: over how many blocks the channels of 64 filters x 32 tiles are spread, so that a small x fills the GPU
    too: 1, 2, 4, 8 or 16, of which ceil(C / 8) is a multiple. None: on a GPU what takes the least time for each x, on
    the CPU device 1. It changes the order of sums, and so last bits: with a number, y[n] depends on x[n] alone and not
    on how many images there are. Partial results take memory, from the library of x; with Buffers the layer keeps it.

    Filters are transformed once for each device, and the stream on which that is done is waited for: while the layer
    is made if the device is known, else when the first x comes from it. Several threads may use one layer. ``close``,
    or ``with``, gives its memory back.

    LaunchError, which is a ValueError, tells of all that is wrong with arguments, here and in calls, before anything
    runs.
    """

    instead = "make another one from its weight"

    def __init__(
        self,
        weight: Any,
        bias: Any = None,
        padding: int | Pair = 1,
        activation: str | None = None,
        layout: str = LAYOUT,
        device: Any = None,
        arch: str | None = None,
        *,
        kernel: str | None = None,
        schedule: Mapping[str, object] | None = None,
        splits: int | None = None,
        stride: int | Pair = 1,
        dilation: int | Pair = 1,
        precision: str = "fp32",
    ) -> None:
        if activation not in ACTIVATIONS:
            raise LaunchError(f"there is no activation {activation!r}", "there are: None, 'relu'")
        sizes = pair("stride", stride, 1), pair("padding", padding, 0), pair("dilation", dilation, 1)
        self.activation, self.layout, self.precision = activation, check_layout(layout), precision
        self.stride, _, self.dilation = sizes
        self.padding: int | Pair = sizes[1][0] if sizes[1][0] == sizes[1][1] else sizes[1]
        self.arch, self.kernel, self.schedule, self.tuned = arch, kernel, dict(schedule or {}), schedule is None
        self.splits = splits
        self._only = usual()  # the main kernel of x's sizes, until the fastest one is chosen

        library_of("weight", weight)
        shape = tuple(weight.shape)
        if len(shape) != 4 or 0 in shape:
            raise LaunchError(f"weight has the shape {shape}; it must be K, C, R, S, none of them 0")
        self.filters, self.channels = shape[:2]
        self._implicit: Implicit | None = None
        self._pad = sizes[1][0]
        self._dtype = dtype = implicit.precision_of(precision).dtype
        other = beyond(shape[2:], *sizes, precision)
        if kernel == implicit.NAME or other and kernel is None:
            self._closed = False
            self._be_implicit(weight, bias, sizes, device, other or f"kernel={kernel!r}", dtype)
            return
        if other:
            raise LaunchError(f"{other}: the kernel {kernel!r} is for filters of 3 x 3, stride 1, padding 0 or 1, fp32",
                              f"leave kernel out, or say kernel={implicit.NAME!r}")  # fmt: skip
        filter_floats(self.channels, self.filters)
        there = where("weight", weight, shape, use="learned")[2]
        also = there if bias is None else where("bias", bias, (self.filters,), use="learned")[2]
        self.device = _device(device, there if there != HOST else also)
        for name, one in (("weight", there), ("bias", also)):
            if one != HOST and called(one) != self.device:
                raise LaunchError(f"{name} is on {called(one)}, the layer on {self.device}")

        self._lock = freed(threading.RLock())
        self._places: dict[int, _Place] = {}
        self._closed = False
        self._beside: Implicit | None = None  # the layer by HGMMA, for shapes of x that are faster so
        self._plans: dict[tuple[int, Sizes], Plan] = {}  # by the place and the shape of x
        self._weight, self._bias = weight, bias
        if self.device is not None:
            self._place(_number(self.device))
            self._weight = self._bias = None
            return
        if arch is not None or kernel is not None or schedule:  # tell now of what there is not
            self._kernels(CPU)
        else:
            self._sizes(self._only)
        self._weight = copied("weight", weight)
        self._bias = None if bias is None else copied("bias", bias)

    @overload
    def __call__(self, x: ArrayT, residual: Any = None, out: None = None) -> ArrayT: ...
    @overload
    def __call__(self, x: Any, residual: Any = None, *, out: ArrayT) -> ArrayT: ...
    @overload
    def __call__(self, x: Any, residual: Any, out: ArrayT) -> ArrayT: ...
    def __call__(self, x: Any, residual: Any = None, out: Any = None) -> Any:
        """The convolution of x: an array like x (of its library, on its device), or ``out``.

        x, residual and out are of the layer's precision, in C order and in its layout: x with N, C, H, W, the others
        with the sizes of y: N, K, P, Q, with P = (H + 2 padding - dilation (R - 1) - 1) // stride + 1, and Q alike.
        out may be the very same memory as residual; overlap it otherwise, or x, it may not.

        On a GPU this is queued on the caller's current stream of x's library and returns at once; the default stream
        for a ``loader.cuda.Buffer``. numpy arrays are copied to a GPU and back if the layer is on one, which waits.
        DeviceError (CPU device) and CudaError (GPU, now or at a later call) for what goes wrong in a kernel.
        """
        library, other = LIBRARIES.get(type(x)) or library_of("x", x), self._implicit
        source, number = library.seen(x, self._dtype)
        if other is not None:
            return other.run(library, x, source, number, residual, out) if source else other(x, residual, out)
        if not source:
            source, _, number, _ = where("x", x)
        plan = self._plans.get((number, x.shape)) or self._plan(number, tuple(x.shape))
        if plan.beside is not None:
            return plan.beside.run(library, x, source, number, residual, out)
        added = target = 0
        if residual is not None:
            added = address_of("residual", residual, plan.y_shape, number)
        if out is not None:
            target = written_to(out, plan.y_shape, number, source, added, plan.sizes)
        if number == HOST:
            return self._on_host(library, plan, x, residual, out)

        stream = library.kind.current(number)
        if plan.place is None:
            self._prepare(plan, number, stream)
            if plan.beside is not None:
                return plan.beside.run(library, x, source, number, residual, out)
        y = out
        if y is None:
            y, target = (plan.makes.get(type(x)) or plan.making(library, x))()
        plan.run(plan.place, library, x, stream, source, target, added)
        return y

    def queue(self, x: Buffer, y: Buffer, stream: int) -> None:
        """The same for Buffers and a stream of one's own, into y; one stream at a time."""
        if self._implicit is not None:
            self._implicit(x, None, y, stream)
            return
        number = x.gpu.number
        plan = self._plan(number, x.shape)
        if plan.place is None and plan.beside is None:
            self._prepare(plan, number, stream)
        if plan.beside is not None:
            plan.beside(x, None, y, stream)
            return
        plan.run(plan.place, library_of("x", x), x, stream, x.address, y.address, 0)

    def _on_host(self, library: Library, plan: Plan, x: Any, residual: Any, out: Any) -> Any:
        """For arrays in the host's memory."""
        if library.staged and self.device not in (None, CPU):
            return self._through_buffers(x, residual, out)
        place = plan.place or self._prepare(plan, HOST)
        y = library.empty(x, plan.y_shape)[0] if out is None else out
        more = library.empty(x, (plan.floats,))[0] if plan.floats else 0
        place.run_on_host(plan, x, y, 0 if residual is None else residual, more)
        return y

    def close(self) -> None:
        """Give the memory of all devices back; waits for kernels that use it. The layer is of no use afterwards."""
        if self._implicit is not None:
            self._implicit.close()
            return
        with self._lock:
            self._closed = True
            self._weight = self._bias = None
            self._plans.clear()
            for place in self._places.values():
                place.close()
            if self._beside is not None:
                self._beside.close()

    def __enter__(self) -> Conv2d:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return (
            f"Conv2d({self.channels} -> {self.filters}, {self._others()}padding={self.padding}, "
            f"activation={self.activation!r}, layout={self.layout!r}, device={self.device!r})"
        )

    def _others(self) -> str:
        """What is said of a layer by HGMMA besides."""
        if self._implicit is None:
            return ""
        r, s = self._implicit.weight_shape[2:]
        return f"{r} x {s}, {self.precision}, stride={self.stride}, dilation={self.dilation}, "

    def _be_implicit(
        self, weight: Any, bias: Any, sizes: tuple[Pair, Pair, Pair], device: Any, why: str, dtype: str
    ) -> None:
        """A layer by HGMMA; ``why``: what asks for it."""
        if self.arch not in (None, implicit.ARCH):
            raise LaunchError(*refused(f"{why}: the layer is for {self.arch}"))
        there = where("weight", weight, tuple(weight.shape), use="learned", dtype=dtype)[2]
        self.device = _device(device, there)
        if there != HOST and called(there) != self.device:
            raise LaunchError(f"weight is on {called(there)}, the layer on {self.device}")
        self._implicit = Implicit(weight, bias, *sizes, self.activation == "relu", self.layout, self.device,
                                  self.precision, self.schedule, self.splits)  # fmt: skip

    # -- devices

    def _arch(self, device: str) -> str:
        if self.arch is not None:
            return self.arch
        if device != CPU:
            return arch_of(cuda.device_named(device))
        if method := self._method():
            return next(arch for arch in (*CPU_ARCHS, *method.archs) if arch in method.archs)
        able = [arch for arch in CPU_ARCHS if takes(choose(arch), self.schedule)]
        return (able or CPU_ARCHS)[0]

    def _method(self) -> Method | None:
        """The one that is asked for by name, if it is one."""
        return METHODS.get(self.kernel) if isinstance(self.kernel, str) else None

    def _kernels(self, device: str) -> Kernels:
        """Those that the arguments ask for. LaunchError."""
        schedule = self.schedule
        if method := self._method():
            schedule = {**method.defines(self.channels, self.filters), **schedule}
        kernels = Kernels.of(self._arch(device), self.kernel, schedule)
        self._sizes(kernels.main)
        self._only = kernels.main
        return kernels

    def _sizes(self, kernel: Kernel) -> Shape:
        """Those of the layer. LaunchError if the kernel is not for them."""
        splits = 1 if self.splits is None else self.splits
        return Shape(1, self.channels, 3, 3, self.filters, 1, self.layout, splits, kernel)

    def _place(self, number: int) -> _Place:
        """The layer on a device; the first time its filters are transformed there."""
        with self._lock:
            if self._closed:
                raise LaunchError("the layer is closed")
            if number not in self._places:
                device = called(number)
                if self.device not in (None, device):
                    raise LaunchError(f"x is on {device}, the layer on {self.device}")
                kernels = self._kernels(device)
                sizes = self._sizes(kernels.main)
                every = {kernels.main: kernels}
                free = device != CPU and self.kernel is None and self.tuned and self.splits is None
                if device != CPU:
                    every = kernels.every(sizes if free else None)
                place = _Place(device, kernels.main, every, self._weight, self._bias, sizes)
                if free and self.arch is None and self._beside is None and _multiplies(device):
                    self._beside = self._by_products()
                if self.tuned and device != CPU:
                    others = {main: one for main, one in place.kernels.items() if main.method is not kernels.method}
                    found = self._tuned(device, kernels)
                    place.tuned = {shape: {**of, **others} for shape, of in found.items()}
                self._places[number] = place
            return self._places[number]

    def _by_products(self) -> Implicit:
        """The layer by HGMMA."""
        weight, relu = self._weight, self.activation == "relu"
        if isinstance(weight, np.ndarray):  # a copy may be flat
            weight = weight.reshape(self.filters, self.channels, 3, 3)
        return Implicit(weight, self._bias, (1, 1), (self._pad, self._pad), (1, 1), relu, self.layout, self.device,
                        "fp32", {}, None)  # fmt: skip

    def _tuned(self, device: str, kernels: Kernels) -> dict[Shape, Any]:
        """The kernels with schedules that a sweep found for shapes of this layer. A schedule that the source does not
        take is reported by a warning, and left out."""
        mine = self.layout, self.channels, self.filters, self.padding
        found = {}
        for shape, schedule in tuned.best(cuda.device_named(device), kernels).items():
            if (shape.layout, shape.c, shape.k, shape.pad) == mine:
                try:
                    other = Kernels.of(kernels.arch, kernels.method.name, schedule)
                except LaunchError as error:
                    told = f"{tuned.path()}: {schedule} is ignored: {error}"
                    warnings.warn(told, RuntimeWarning, stacklevel=callers_level())
                    continue
                if _transform(other) == _transform(kernels):  # else the filters would lie otherwise
                    found[shape] = _loaded(other.every(), device)
        return found

    def _plan(self, number: int, given: Sizes) -> Plan:
        """For x of a shape: all sizes, and no kernel yet. LaunchError."""
        if len(given) != 4:
            raise LaunchError(f"x has the shape {given}; it must have four sizes, {', '.join(self.layout)}")
        channels = given[self.layout.index("C")]
        if channels != self.channels:
            raise LaunchError(f"x has {channels} channels ({self.layout} = {given}), the filters {self.channels}")
        shape = replace(shape_of(given, self.filters, self._pad, self.layout), kernel=self._only)
        shape = shape if self.splits is None else replace(shape, splits=self.splits)
        list(shape.parts())  # says what is too large
        if len(self._plans) >= PLANS:
            self._plans.clear()
        return self._plans.setdefault((number, given), Plan(shape))

    def _prepare(self, plan: Plan, number: int, stream: int = 0) -> _Place:
        """Find the kernels for it, and make their launches ready. While a graph is recorded nothing is loaded, and
        nothing copied to the GPU: then they are those that are there."""
        place = self._place(number)
        recorded = place.shared is not None and place.shared.recorded(stream)
        if self._beside is not None and not recorded and place.slower(plan.shape):
            plan.beside = self._beside
        else:
            place.prepare(plan, self.activation == "relu", self.splits is None)
        return place

    def _through_buffers(self, x: Any, residual: Any, out: Any) -> Any:
        """numpy arrays for a layer on a GPU."""
        assert self.device is not None
        for name, value in (("residual", residual), ("out", out)):
            if value is not None and not isinstance(value, np.ndarray):
                raise LaunchError(f"{name} is a {type(value).__name__}, x a numpy array")
        more = None if residual is None else Buffer.of(residual, self.device)
        y = self(Buffer.of(x, self.device), more)
        if out is None:
            return y.numpy()
        y.copy_to(out)
        return out


#: What is given each time to the launches for a shape.
X, Y, RESIDUAL, PARTIAL = map(Given, range(GIVEN := 4))


class Plan:
    """What x of a shape is, and once it is prepared what launches the kernels for it, at the ``place``: ``queue``, and
    on a GPU ``run`` (``partial.running``), which calls it. ``sizes``: bytes of x and y. ``floats``: elements of the
    partial results. ``makes``: by the type of x what makes y (``Library.again``)."""

    def __init__(self, shape: Shape) -> None:
        self.shape, self.y_shape = shape, shape.y_shape
        self.sizes = 4 * math.prod(shape.x_shape), 4 * math.prod(shape.y_shape)
        self.place: _Place | None = None
        self.queue: Queue = _unprepared
        self.run: Callable[..., None] = _unprepared
        self.floats = 0
        self.makes: dict[type, Callable[[], Made]] = {}
        self.beside: Implicit | None = None  # the layer by HGMMA, if it is faster for this shape

    def making(self, library: Library, x: Any) -> Callable[[], Made]:
        """What makes y for arrays such as x."""
        return self.makes.setdefault(type(x), library.again(x, self.y_shape))


def _unprepared(*given: Any) -> None:
    raise AssertionError("a plan is prepared first")


def _transform(kernels: Kernels) -> tuple[int, ...]:
    """The code that transforms filters."""
    return tuple(next(one.words for one in kernels.cubin.kernels if one.name == "filter_transform"))


def _loaded(every: Mapping[Kernel, Kernels], device: str) -> dict[Kernel, dict[str, Any]]:
    """By the main kernel: all kernels by name."""
    return {main: {kernel.name: one.load(device).kernel(kernel.name) for kernel in one.cubin.kernels}
            for main, one in every.items()}  # fmt: skip


def _in_parts(shape: Shape, queues: Sequence[tuple[slice, Queue]]) -> Queue:
    """What launches the kernels for all images, some by each of the queues; partial results are written anew."""
    of_x, of_y = 4 * shape.x_strides[0], 4 * shape.y_strides[0]

    def queue(stream: int | None, given: tuple[Any, ...]) -> None:
        x, y, residual, partial = given
        for images, part in queues:
            part(stream, (_part(x, images, of_x), _part(y, images, of_y), _part(residual, images, of_y), partial))

    return queue


def _part(memory: Any, images: slice, step: int) -> Any:
    """Some images: of an array a part, of an address (0: none) another."""
    if isinstance(memory, int):
        return memory and memory + images.start * step
    return memory[images]


class _Place:
    """A layer on a device: the kernels, the transformed filters and the bias there. ``sizes``: those of the layer;
    ``every``: kernels by the main one, ``main`` and others. ``u``: by the same, the filters as these kernels want them.
    They and the bias are addresses of ``buffers`` on a GPU, else arrays."""

    def __init__(
        self, device: str, main: Kernel, every: Mapping[Kernel, Kernels], weight: Any, bias: Any, sizes: Shape
    ) -> None:
        self.device, self.main, self.sms = device, main, sms(device)
        self.shared = None if device == CPU else Partial.of(cuda.device_named(device))
        self.kept = None if self.shared is None else Kept(self.shared)  # partial results of Buffers that are larger
        self.tuned: dict[Shape, Any] = {}  # kernels for some shapes, as self.kernels
        # held while kernels are queued, so that nobody frees the filters then
        self.lock = freed(threading.RLock()) if self.shared is None else self.shared.lock
        self.closed = False
        self.kernels = _loaded(every, device)
        c, k = sizes.c, sizes.k
        floats = filter_floats(c, k)
        self.buffers: list[Buffer] = []
        self.u: dict[Kernel, Any] = {}
        self.bias: Any = 0
        if device == CPU:
            self.u[main] = np.empty(floats, np.float32)
            transform(every[main].load(device), weight, self.u[main], c, k)
            self.bias = 0 if bias is None else copied("bias", bias)
            return
        gpu = cuda.device_named(device)
        there, stream = on_gpu("weight", weight, gpu)
        made: dict[tuple[int, ...], int] = {}
        for one, kernels in every.items():
            code = _transform(kernels)
            if code not in made:
                u = self._buffer(floats, gpu)
                transform(kernels.load(device), there, u, c, k, stream=stream)
                made[code] = u.address
            self.u[one] = made[code]
        gpu.call("cuStreamSynchronize", stream)
        if bias is not None:
            there, stream = on_gpu("bias", bias, gpu)
            self.bias = self._buffer(k, gpu).address
            address = where("bias", there, use="learned")[0]
            gpu.call("cuMemcpyDtoDAsync", self.bias, address, 4 * k, stream)
            gpu.call("cuStreamSynchronize", stream)

    def _buffer(self, floats: int, gpu: cuda.Device) -> Buffer:
        self.buffers.append(Buffer(floats, np.float32, gpu))
        return self.buffers[-1]

    def prepare(self, plan: Plan, relu: bool, free: bool) -> None:
        """Its launches; ``free``: with the splits that are best for the shape."""
        shape, found, floats = replace(plan.shape, kernel=self.main), list[tuple[slice, Queue]](), 0
        for images, part in shape.parts():
            kernels = self.tuned.get(part.sizes, self.kernels)
            splits = SPLITS if free else (part.splits,)
            sizes = split(part, self.device, tuple(kernels), splits)
            mine, u = kernels[sizes.kernel], self.u[sizes.kernel]
            given = pointers(sizes, X, u, Y, self.bias, RESIDUAL, PARTIAL)
            ready = [mine[one.kernel].prepare(one.grid, (one.threads, 1, 1), *first, *one.numbers, shared=one.shared,
                                              early=one.early, cluster=one.cluster)
                     for one, first in zip(launches(sizes, self.sms, relu), given)]  # fmt: skip
            module = mine[sizes.kernel.name].module
            found.append((images, module.queue_of_tuples(ready, GIVEN)))
            floats = max(floats, sizes.floats)
        several = len(found) > 1
        plan.floats, plan.queue = floats, _in_parts(shape, found) if several else found[0][1]
        long = several or microseconds(sizes, self.sms) > SHORT
        together = plan.queue if long else module.queue_of_tuples(ready, GIVEN, together=True)
        at = self.shared.at if self.shared is not None and floats <= PIECE else None
        plan.run = running(self.lock, floats, _number(self.device), at, plan.queue, together)
        plan.place = self  # last: from here on other threads take it

    def slower(self, shape: Shape) -> bool:
        """Whether the kernels here are, by what the costs say, slower than products by HGMMA."""
        if shape.layout == "CHWN" or any(part.sizes in self.tuned for _, part in shape.parts()):
            return False  # y in CHWN would be stored number by number
        n, c, h, w, k, pads = shape.n, shape.c, shape.h, shape.w, shape.k, (shape.pad, shape.pad)
        try:
            other = implicit_shape.Shape(n, c, h, w, k, 3, 3, (1, 1), pads, (1, 1), shape.layout)
            other.check(4)
        except LaunchError:  # too large for them
            return False
        mine = sum(microseconds(split(part, self.device, tuple(self.kernels)), self.sms) for _, part in shape.parts())
        by_hgmma = implicit_shape.microseconds(other, room(self.device))
        return by_hgmma < implicit_shape.OVER_COST * mine

    def scratch(self, library: Library, like: Any, floats: int, place: int, stream: int) -> tuple[Any, int]:
        """Memory for so many partial results, from the library; or the layer's, where to allocate would wait for the
        GPU."""
        if library.kept and self.kept is not None:
            return None, self.kept.at(stream, floats)
        return library.empty(like, (floats,))

    def run_on_host(self, plan: Plan, x: Any, y: Any, residual: Any, partial: Any) -> None:
        """The same on the CPU device, with arrays; 0: none."""
        with self.lock:
            if self.closed:
                raise LaunchError("the layer is closed")
            plan.queue(None, (x, y, residual, partial))

    def close(self) -> None:
        """Give memory back."""
        with self.lock:
            self.closed = True
            for one in self.buffers:
                one.free()
            if self.kept is not None:
                self.kept.free()
            self.u, self.bias = {}, 0
            self.kept = self.shared = None


# ---- arguments ---------------------------------------------------------------------------------------------------


def beyond(filter: tuple[int, ...], stride: Pair, padding: Pair, dilation: Pair, precision: str = "fp32") -> str:
    """What of a layer Winograd's kernels cannot, and those beside them, so that it is computed by HGMMA; ""."""
    if precision != "fp32":
        return precision
    if filter != (3, 3):
        return f"filters of {filter[0]} x {filter[1]}"
    if stride != (1, 1) or dilation != (1, 1):
        return f"a stride of {stride}" if stride != (1, 1) else f"a dilation of {dilation}"
    return "" if padding in ((0, 0), (1, 1)) else f"a padding of {padding}"


def _multiplies(device: str) -> bool:
    """Whether a GPU has HGMMA, and costs of different kernels may be compared there."""
    gpu = cuda.device_named(device)
    return gpu.runs(implicit.ARCH) and arch_of(gpu) in FITTED


def _device(device: Any, weight: int) -> str | None:
    """The device's name. None: that of weight, if it is on a GPU. LaunchError when there is none such."""
    if device is None:
        return None if weight == HOST else f"cuda:{weight}"
    name = str(device)  # torch.device is one too
    return CPU if name == CPU else str(cuda.device_named(name))


def _number(device: str) -> int:
    return HOST if device == CPU else cuda.device_named(device).number
