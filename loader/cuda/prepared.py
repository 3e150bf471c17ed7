"""Launches made ready once: what the driver is told stays packed, and only what changes is put in its place."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import struct
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from loader.cuda import written
from loader.cuda.errors import CudaError
from loader.cuda.streams import Stream, relaxed
from loader.cuda.written import Launched, Run, Step
from turingas.cubin.model import Param

if TYPE_CHECKING:
    from loader.cuda.gpu import Device
    from turingas.launch import Three

POINTER = 8  # bytes
GRAPHS = 8  # streams for which launches are recorded: the first, as to record costs more than many calls
READY = 2  # graphs of a stream, as y often lies at two places in turn: the one before is there until the next is made
Uses = tuple[int, ...]  # numbers of what is given that a kernel takes
SIZES = [f"{of}Dim{axis}" for of in ("grid", "block") for axis in "XYZ"] + ["sharedMemBytes"]


class Area:
    """A parameter area, ``bytes``: ``places``, the address of each parameter in it, and ``table``, that of a table of
    these, which the driver wants."""

    def __init__(self, params: Sequence[Param], nbytes: int) -> None:
        self.bytes = ctypes.create_string_buffer(max(1, nbytes))
        base = ctypes.addressof(self.bytes)
        self.places, self.sizes = [base + param.offset for param in params], [param.size for param in params]
        self._table = (ctypes.c_void_p * max(1, len(params)))(*self.places)
        self.table = ctypes.addressof(self._table)


@dataclass(frozen=True, eq=False)
class Prepared:
    """A launch that is settled and checked: ``sizes`` (grid, block, dynamic shared memory), ``attributes``, and in
    ``area`` all parameters but those that ``given`` has: by their place, the number of what the queue is given."""

    kernel: Launched
    sizes: tuple[int, ...]
    attributes: Sequence[Any]
    area: Area
    given: Mapping[int, int]


def queue(launches: Sequence[Prepared], count: int = 0, together: bool = False) -> Run:
    """Launches of kernels of a GPU, one behind the other: a function of the stream, as a number, and of a tuple of what
    is given, ``count`` addresses at least; in the place of an address, for a parameter that is a tensor map, its bytes.
    These are packed once for all launches, into memory that all their parameters point to. ``together``: as of
    ``as_graphs``, if there are several different kernels."""
    count = max([count, *(1 + number for one in launches for number in one.given.values())])
    sizes = [POINTER] * count
    for one in launches:
        for n, number in one.given.items():
            sizes[number] = one.area.sizes[n]
    memory = ctypes.create_string_buffer(max(1, sum(sizes)))
    base, steps = ctypes.addressof(memory), list[Step]()
    there = [base + sum(sizes[:number]) for number in range(count)]
    memory.kept = []  # type: ignore[attr-defined]  # what has to live as long as the function does
    for one in launches:
        places = [there[one.given[n]] if n in one.given else place for n, place in enumerate(one.area.places)]
        table = (ctypes.c_void_p * max(1, len(places)))(*places)
        memory.kept += one.area, table  # type: ignore[attr-defined]
        steps.append((one.kernel, configuration(one.kernel.gpu, one.sizes, one.attributes), ctypes.addressof(table)))
    pack_into = struct.Struct("<" + "".join("Q" if size == POINTER else f"{size}s" for size in sizes)).pack_into
    run, streams_changed = written.queue(steps, pack_into, memory, count)
    if together and len({int(one.kernel.handle) for one in launches}) == len(launches) > 1:
        uses = [tuple(set(one.given.values())) for one in launches]
        return as_graphs(steps, uses, functools.partial(pack_into, memory, 0), run, streams_changed)
    return run


def as_graphs(
    launches: Sequence[Step], uses: Sequence[Uses], pack_into: Callable[..., None], run: Run,
    streams_changed: Callable[[], None],
) -> Run:  # fmt: skip
    """``run`` for several different kernels, on streams that are not being recorded: from the third call on a stream on
    the driver is called once for all, with a graph, and once more for each kernel of which what it is given (``uses``)
    is not what it was at one of the last calls. ``streams_changed``: ``written.queue``."""
    gpu, modules = launches[0][0].gpu, tuple({id(one.module): one.module for one, _, _ in launches}.values())
    current, context, launch_graph = gpu.driver.cuCtxGetCurrent, gpu.context, gpu.driver.cuGraphLaunch
    graphs: dict[int, Recorded | None] = {}  # by stream; None: not yet, or it cannot be
    seen, last = set[int](), launches[-1][0].name

    def record(stream: int, values: tuple[Any, ...]) -> None:
        run(stream, values)
        if stream in graphs or len(graphs) >= GRAPHS:
            return
        if stream not in seen:  # a call alone is not worth it
            seen.add(stream)
            return
        graphs[stream] = None
        streams_changed()
        with contextlib.suppress(RuntimeError, KeyError), gpu.current():  # functions or kernels are not known
            graphs[stream] = Recorded(gpu, launches, uses, values)

    def run_graph(stream: int, values: tuple[Any, ...]) -> None:
        graph = graphs.get(stream)
        if graph is None:
            return record(stream, values)
        if gpu.lost is not None:
            raise gpu.gone()
        for module in modules:
            if module.closed:
                module._open()
        pushed = current()[1] != context and gpu.push()  # contexts of old cuda-python's are never equal
        try:
            ready = graph.ready.get(values)
            if ready is None:
                pack_into(*values)
                ready = graph.changed(values)
            (error,) = launch_graph(ready, stream)
            if error:
                raise gpu.failed(error, "cuGraphLaunch", last)
            gpu.kernel = last
        finally:
            if pushed:
                gpu.driver.cuCtxPopCurrent()

    return run_graph


class Recorded:
    """Launches as a graph. ``ready``: by the values that the tables of parameters point to, what the driver launches;
    of the last ones that were asked for. The tables have ``values`` at first."""

    def __init__(
        self, gpu: Device, launches: Sequence[Step], uses: Sequence[Uses], values: tuple[Any, ...]
    ) -> None:  # fmt: skip
        driver, self.gpu = gpu.driver, gpu
        self.ready: dict[tuple[Any, ...] | None, Any] = {}
        self._first: tuple[Any, ...] | None = None  # what the graph itself has; None: it is not known to be changeable
        known = {int(kernel.handle): (table, numbers) for (kernel, _, table), numbers in zip(launches, uses)}
        with relaxed(gpu), Stream(gpu) as stream:
            mode = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
            gpu.call("cuStreamBeginCapture", stream.handle, mode)
            try:
                for kernel, config, table in launches:
                    config.hStream = stream.handle
                    gpu.call("cuLaunchKernelEx", config, kernel.handle, table, 0)
            finally:
                self._graph = gpu.call("cuStreamEndCapture", stream.handle)
                weakref.finalize(self, _give_back, gpu, "cuGraphDestroy", self._graph)  # it is asked for again
            nodes, self._nodes = gpu.call("cuGraphGetNodes", self._graph, len(launches))[0], list[Any]()
            for node in nodes:
                params = gpu.call("cuGraphKernelNodeGetParams", node)
                params.kernelParams, numbers = known[int(params.func)]
                self._nodes.append((node, params, numbers))
            self.changed(values)
            self._first = values

    def changed(self, values: tuple[Any, ...]) -> Any:
        """What is launched with the values that the tables point to now: one more, or the oldest with these values.
        CudaError."""
        gpu, ready, before = self.gpu, self.ready, None
        if None not in ready and len(ready) < READY:
            with relaxed(gpu):
                ready[None] = gpu.call("cuGraphInstantiate", self._graph, 0)
            weakref.finalize(self, _give_back, gpu, "cuGraphExecDestroy", ready[None])
            before = self._first
        elif None not in ready:
            before = next(iter(ready))
            ready[None] = ready.pop(before)
        made = ready[None]  # None: it is not known what it has
        for node, params, numbers in self._nodes:
            if before is not None and all(values[number] == before[number] for number in numbers):
                continue
            (error,) = gpu.driver.cuGraphExecKernelNodeSetParams(made, node, params)
            if error:
                raise gpu.failed(error, "cuGraphExecKernelNodeSetParams")
        ready[values] = ready.pop(None)
        return made


def _give_back(gpu: Device, name: str, handle: Any) -> None:
    """Whenever garbage is collected: what is recorded then is not broken off."""
    with contextlib.suppress(CudaError), relaxed(gpu):
        gpu.quietly(name, handle)


def configuration(gpu: Device, numbers: Sequence[int], attributes: Sequence[Any] = ()) -> Any:
    """The CUlaunchConfig of a launch on the default stream; ``numbers``: grid, block and dynamic shared memory."""
    driver = gpu.driver
    made = driver.CUlaunchConfig()
    for name, number in zip(SIZES, numbers):
        setattr(made, name, number)
    made.hStream, made.attrs, made.numAttrs = 0, list(attributes), len(attributes)
    return made


def launch_attributes(gpu: Device, early: bool, cluster: Three | None, cooperative: bool) -> list[Any]:
    """What the driver is told of a launch besides: that it may begin before the kernel before it has ended (where that
    can be), the blocks of a cluster, that all blocks run at once."""
    driver, found = gpu.driver, []

    def add(name: str) -> Any:
        made = driver.CUlaunchAttribute()
        made.id = getattr(driver.CUlaunchAttributeID, "CU_LAUNCH_ATTRIBUTE_" + name)
        found.append(made)
        return driver.CUlaunchAttributeValue()

    if early and gpu.early_launches:
        value = add("PROGRAMMATIC_STREAM_SERIALIZATION")
        value.programmaticStreamSerializationAllowed = 1
        found[-1].value = value
    if cluster is not None:
        value = add("CLUSTER_DIMENSION")
        value.clusterDim.x, value.clusterDim.y, value.clusterDim.z = cluster
        found[-1].value = value
    if cooperative:
        value = add("COOPERATIVE")
        value.cooperative = 1
        found[-1].value = value
    return found
