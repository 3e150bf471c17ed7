"""Launches made ready once: what the driver is told stays packed, and only what changes is put in its place."""

from __future__ import annotations

import contextlib
import ctypes
import struct
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from loader.cuda.errors import CudaError
from loader.cuda.streams import Stream, relaxed
from turingas.cubin.model import Param

if TYPE_CHECKING:
    from loader.cuda.gpu import Device
    from turingas.launch import Three

POINTER = 8  # bytes
GRAPHS = 8  # streams for which launches are recorded: the first, as to record costs more than many calls
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


class Loaded(Protocol):
    """A module that holds kernels."""

    closed: bool

    def _open(self) -> None:
        """LaunchError if it is closed."""


class Launched(Protocol):
    """A kernel, as a launch knows it."""

    gpu: Device
    name: str

    @property
    def module(self) -> Loaded: ...
    @property
    def handle(self) -> Any: ...


@dataclass(frozen=True, eq=False)
class Prepared:
    """A launch that is settled and checked: ``sizes`` (grid, block, dynamic shared memory), ``attributes``, and in
    ``area`` all parameters but those that ``given`` has: by their place, the number of what the queue is given."""

    kernel: Launched
    sizes: tuple[int, ...]
    attributes: Sequence[Any]
    area: Area
    given: Mapping[int, int]


Run = Callable[..., None]


def queue(launches: Sequence[Prepared], count: int = 0, together: bool = False) -> Run:
    """Launches of kernels of a GPU, one behind the other: a function of the stream, as a number, and of a tuple of what
    is given, ``count`` addresses at least; in the place of an address, for a parameter that is a tensor map, its bytes.
    These are packed once for all launches, into memory that all their parameters point to. ``together``: as of
    ``runner``."""
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
    codes = ("Q" if size == POINTER else f"{size}s" for size in sizes)
    together = together and len({int(one.kernel.handle) for one in launches}) == len(launches) > 1
    return runner(steps, struct.Struct("<" + "".join(codes)).pack_into, memory, together)


Step = tuple[Launched, Any, int]  # a kernel, its configuration, the address of its table of parameters


def runner(launches: Sequence[Step], pack_into: Callable[..., None], memory: Any, together: bool = False) -> Run:
    """A function of the stream and of a tuple that ``pack_into`` puts into ``memory``, which then launches: kernels of
    a GPU, each with its configuration and the address of its table of parameters. The driver is called once to look at
    the context, and once for each. Memory and configurations are one thread's meanwhile, and the modules stay: who
    calls it holds a lock for both.

    ``together``: several different kernels, on streams that are not being recorded: the driver is called once for all,
    with a graph, from the third call on a stream on, and once more for each if what is given has changed since.

    All that it needs is at hand, since each look-up of a name is time."""
    gpu, modules = launches[0][0].gpu, tuple({id(one.module): one.module for one, _, _ in launches}.values())
    current, launch, context = gpu.driver.cuCtxGetCurrent, gpu.driver.cuLaunchKernelEx, gpu.context
    steps = [(config, kernel.handle, table, kernel.name) for kernel, config, table in launches]
    graphs: dict[int, Recorded | None] = {}  # by stream; None: not yet, or it cannot be
    launch_graph, seen, last = gpu.driver.cuGraphLaunch, set[int](), steps[-1][-1]
    before: int | None = 0  # the stream that all configurations have; None: not all the same
    head = memory, 0

    def run(stream: int, values: tuple[Any, ...]) -> None:
        nonlocal before
        if gpu.lost is not None:
            raise gpu.gone()
        for module in modules:
            if module.closed:
                module._open()
        pushed = current()[1] != context and gpu.push()  # old cuda-python's are never equal
        try:
            if together and (graph := graphs.get(stream)) is not None:
                if graph.values != values:
                    graph.values = None
                    pack_into(*(head + values))
                    graph.renew()
                    graph.values = values
                (error,) = launch_graph(graph.ready, stream)
                if error:
                    raise gpu.failed(error, "cuGraphLaunch", last)
                gpu.kernel = last
                return
            if stream != before:
                before = None
                for config, _, _, _ in steps:
                    config.hStream = stream
                before = stream
            pack_into(*(head + values))  # one tuple: the quickest way to hand it on
            for config, handle, table, name in steps:
                (error,) = launch(config, handle, table, 0)
                if error:
                    raise gpu.failed(error, "cuLaunchKernelEx", name)
                gpu.kernel = name
            if together and stream not in graphs and len(graphs) < GRAPHS:
                if stream not in seen:  # a call alone is not worth it
                    seen.add(stream)
                    return
                before, graphs[stream] = None, None
                with contextlib.suppress(CudaError):  # old drivers
                    graphs[stream] = Recorded(gpu, launches)
        finally:
            if pushed:
                gpu.driver.cuCtxPopCurrent()

    return run


class Recorded:
    """Launches as a graph, ``ready`` for the driver, with the parameters that their tables point to now: ``renew`` puts
    those of later into it. ``values``: what these were made of, as far as the caller says."""

    def __init__(self, gpu: Device, launches: Sequence[Step]) -> None:
        driver, self.gpu = gpu.driver, gpu
        self.values: tuple[Any, ...] | None = None
        tables = {int(kernel.handle): table for kernel, _, table in launches}
        with relaxed(gpu), Stream(gpu) as stream:
            mode = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
            gpu.call("cuStreamBeginCapture", stream.handle, mode)
            try:
                for kernel, config, table in launches:
                    config.hStream = stream.handle
                    gpu.call("cuLaunchKernelEx", config, kernel.handle, table, 0)
            finally:
                graph = gpu.call("cuStreamEndCapture", stream.handle)
                weakref.finalize(self, _give_back, gpu, "cuGraphDestroy", graph)  # its nodes are asked for again
            self.ready = gpu.call("cuGraphInstantiate", graph, 0)
            weakref.finalize(self, _give_back, gpu, "cuGraphExecDestroy", self.ready)
            nodes, self._nodes = gpu.call("cuGraphGetNodes", graph, len(launches))[0], list[Any]()
            for node in nodes:
                params = gpu.call("cuGraphKernelNodeGetParams", node)
                params.kernelParams = tables[int(params.func)]
                self._nodes.append((node, params))
            self.renew()

    def renew(self) -> None:
        """With what the tables point to now. CudaError."""
        change, ready = self.gpu.driver.cuGraphExecKernelNodeSetParams, self.ready
        for node, params in self._nodes:
            (error,) = change(ready, node, params)
            if error:
                raise self.gpu.failed(error, "cuGraphExecKernelNodeSetParams")


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
