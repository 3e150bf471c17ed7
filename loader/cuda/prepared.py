"""Launches made ready once: what the driver is told stays packed, and only what changes is put in its place."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from turingas.cubin.model import Param

if TYPE_CHECKING:
    from loader.cuda.kernel import CudaKernel

EARLY = 9  # compute capability from which on a kernel may begin before the one before it has ended
SIZES = [f"{of}Dim{axis}" for of in ("grid", "block") for axis in "XYZ"] + ["sharedMemBytes"]


class Area:
    """A parameter area, ``bytes``, and at ``table`` what the driver wants: the address of each parameter in it."""

    def __init__(self, params: Sequence[Param], nbytes: int) -> None:
        self.bytes = ctypes.create_string_buffer(max(1, nbytes))
        base = ctypes.addressof(self.bytes)
        self._table = (ctypes.c_void_p * max(1, len(params)))(*(base + param.offset for param in params))
        self.table = ctypes.addressof(self._table)


def prepared(
    kernel: CudaKernel, numbers: Sequence[int], early: bool, area: Area, pack_into: Callable[..., None]
) -> Callable[..., None]:
    """A launch of which ``numbers``, grid, block and dynamic shared memory, and ``early`` are settled and checked: a
    function of the stream, as a number, and of the values that ``pack_into`` puts into the area. It calls the driver
    twice, to look at the context and to queue the kernel."""
    gpu, module, driver = kernel.gpu, kernel.module, kernel.gpu.driver
    current, launch = driver.cuCtxGetCurrent, driver.cuLaunchKernelEx
    handle, lock = kernel.handle, module._lock
    config, told = configuration(driver, numbers, early and gpu.major >= EARLY), 0

    def queue(stream: int, values: Sequence[Any]) -> None:
        nonlocal told
        if gpu.lost is not None:
            raise gpu.gone()
        with lock:  # area and configuration are one thread's, and the module stays, until the driver has read them
            if module.closed:
                module._open()
            pack_into(area.bytes, 0, *values)
            if stream != told:
                config.hStream = told = stream
            if current()[1] == gpu.context:
                (error,) = launch(config, handle, area.table, 0)
            else:
                with gpu.current():
                    (error,) = launch(config, handle, area.table, 0)
        if error:
            raise gpu.failed(error, "cuLaunchKernelEx", kernel.name)
        gpu.kernel = kernel.name

    return queue


def configuration(driver: Any, numbers: Sequence[int], early: bool = False) -> Any:
    """The CUlaunchConfig of a launch on the default stream."""
    made = driver.CUlaunchConfig()
    for name, number in zip(SIZES, numbers):
        setattr(made, name, number)
    attributes = [_begins_early(driver)] if early else []
    made.hStream, made.attrs, made.numAttrs = 0, attributes, len(attributes)
    return made


def _begins_early(driver: Any) -> Any:
    """The attribute of a launch that may begin before the kernel before it has ended."""
    value, made = driver.CUlaunchAttributeValue(), driver.CUlaunchAttribute()
    value.programmaticStreamSerializationAllowed = 1
    made.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
    made.value = value
    return made
