"""Launches made ready once: what the driver is told stays packed, and only what changes is put in its place."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from turingas.cubin.model import Param

if TYPE_CHECKING:
    from loader.cuda.gpu import Device
    from turingas.launch import Three

EARLY = 9  # compute capability from which on a kernel may begin before the one before it has ended
SIZES = [f"{of}Dim{axis}" for of in ("grid", "block") for axis in "XYZ"] + ["sharedMemBytes"]


class Area:
    """A parameter area, ``bytes``, and at ``table`` what the driver wants: the address of each parameter in it."""

    def __init__(self, params: Sequence[Param], nbytes: int) -> None:
        self.bytes = ctypes.create_string_buffer(max(1, nbytes))
        base = ctypes.addressof(self.bytes)
        self._table = (ctypes.c_void_p * max(1, len(params)))(*(base + param.offset for param in params))
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


@dataclass(eq=False)
class Prepared:
    """A launch of which grid, block, shared memory and ``early`` are settled and checked, in ``config``; ``pack_into``
    puts what is given each time into the area. ``stream``: the one that the configuration has."""

    kernel: Launched
    config: Any
    area: Area
    pack_into: Callable[..., None]
    stream: int = 0


def queue(launches: Sequence[Prepared]) -> Callable[[int, Sequence[Sequence[Any]]], None]:
    """Launches of kernels of one module, one behind the other: a function of the stream, as a number, and of what each
    is given. It calls the driver once to look at the context, and once for each. Areas and configurations are one
    thread's meanwhile, and the module stays: who calls it holds a lock for both."""
    gpu, module = launches[0].kernel.gpu, launches[0].kernel.module
    current = gpu.driver.cuCtxGetCurrent
    steps = list(map(_step, launches))
    first, more = steps[0], list(enumerate(steps))[1:]

    def run(stream: int, given: Sequence[Sequence[Any]]) -> None:
        if gpu.lost is not None:
            raise gpu.gone()
        if module.closed:
            module._open()
        if current()[1] == gpu.context:  # in old cuda-python never equal: right all the same
            first(stream, given[0])
            for number, step in more:
                step(stream, given[number])
        else:
            with gpu.current():
                for step, values in zip(steps, given):
                    step(stream, values)

    return run


def _step(one: Prepared) -> Callable[[int, Sequence[Any]], None]:
    """Pack and launch; all that it needs is at hand, since each look-up of a name is time."""
    gpu, handle, name = one.kernel.gpu, one.kernel.handle, one.kernel.name
    config, area, pack_into, launch = one.config, one.area, one.pack_into, gpu.driver.cuLaunchKernelEx

    def step(stream: int, values: Sequence[Any]) -> None:
        if stream != one.stream:
            config.hStream = one.stream = stream
        pack_into(area.bytes, 0, *values)
        (error,) = launch(config, handle, area.table, 0)
        if error:
            raise gpu.failed(error, "cuLaunchKernelEx", name)
        gpu.kernel = name

    return step


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

    if early and gpu.major >= EARLY:
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
