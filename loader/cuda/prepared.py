"""Launches made ready once: what the driver is told stays packed, and only what changes is put in its place."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from turingas.cubin.model import Param

if TYPE_CHECKING:
    from loader.cuda.gpu import Device
    from turingas.launch import Three

POINTER = 8  # bytes
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


def queue(launches: Sequence[Prepared], count: int = 0) -> Run:
    """Launches of kernels of a GPU, one behind the other: a function of the stream, as a number, and of a tuple of what
    is given, ``count`` addresses at least; in the place of an address, for a parameter that is a tensor map, its bytes.
    These are packed once for all launches, into memory that all their parameters point to."""
    count = max([count, *(1 + number for one in launches for number in one.given.values())])
    sizes = [POINTER] * count
    for one in launches:
        for n, number in one.given.items():
            sizes[number] = one.area.sizes[n]
    memory = ctypes.create_string_buffer(max(1, sum(sizes)))
    base, steps = ctypes.addressof(memory), list[tuple[Launched, Any, int]]()
    there = [base + sum(sizes[:number]) for number in range(count)]
    memory.kept = []  # type: ignore[attr-defined]  # what has to live as long as the function does
    for one in launches:
        places = [there[one.given[n]] if n in one.given else place for n, place in enumerate(one.area.places)]
        table = (ctypes.c_void_p * max(1, len(places)))(*places)
        memory.kept += one.area, table  # type: ignore[attr-defined]
        steps.append((one.kernel, configuration(one.kernel.gpu, one.sizes, one.attributes), ctypes.addressof(table)))
    codes = ("Q" if size == POINTER else f"{size}s" for size in sizes)
    return runner(steps, struct.Struct("<" + "".join(codes)).pack_into, memory)


def runner(
    launches: Sequence[tuple[Launched, Any, int]], pack_into: Callable[..., None], memory: Any
) -> Run:
    """A function of the stream and of a tuple that ``pack_into`` puts into ``memory``, which then launches: kernels of
    a GPU, each with its configuration and the address of its table of parameters. The driver is called once to look at
    the context, and once for each. Memory and configurations are one thread's meanwhile, and the modules stay: who
    calls it holds a lock for both.

    All that it needs is at hand, since each look-up of a name is time."""
    gpu, modules = launches[0][0].gpu, tuple({id(one.module): one.module for one, _, _ in launches}.values())
    current, launch, context = gpu.driver.cuCtxGetCurrent, gpu.driver.cuLaunchKernelEx, gpu.context
    steps = [(config, kernel.handle, table, kernel.name) for kernel, config, table in launches]
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
        finally:
            if pushed:
                gpu.driver.cuCtxPopCurrent()

    return run


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
