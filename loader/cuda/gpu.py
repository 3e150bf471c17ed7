"""The driver of cuda-python, and the GPUs that it knows."""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import threading
from collections.abc import Iterator
from typing import Any

from loader.arrays import HOST
from loader.cuda.errors import LOST, ContextLost, CudaError
from turingas.errors import LaunchError
from turingas.forks import freed
from turingas.isa.arch import ARCHS, runs_on
from turingas.stays import Stays

DRIVERS = ("cuda.bindings.driver", "cuda.cuda")  # the second in cuda-python before 12.6


@functools.cache
def driver() -> Any:
    """``cuda.bindings.driver``, ready. LaunchError says what is missing."""
    bindings, missing = None, list[str]()
    for name in DRIVERS:
        try:
            bindings = importlib.import_module(name)
            break
        except ImportError as error:
            missing.append(str(error))
    if bindings is None:
        hint = "pip install cuda-python, or use device='cpu'"
        raise LaunchError(f"cuda-python is not installed ({missing[0]})", hint)
    try:
        (failed,) = bindings.cuInit(0)
    except RuntimeError as error:  # no libcuda
        hint = "install NVIDIA's driver, or use device='cpu'"
        raise LaunchError(f"there is no driver: {error}", hint) from None
    if failed:
        name, _, meaning = explain(bindings, failed)
        raise LaunchError(f"the driver does not start: {name}: {meaning}", "device='cpu' needs none")
    return bindings


def explain(bindings: Any, error: Any) -> tuple[str, int, str]:
    """Name, number and meaning of an error."""
    texts = []
    for function in (bindings.cuGetErrorName, bindings.cuGetErrorString):
        failed, text = function(error)
        texts.append("unknown" if failed or text is None else text.decode())
    return texts[0], int(error), texts[1]


@functools.cache
def count() -> int:
    """How many GPUs there are; 0 without cuda-python or a driver."""
    try:
        error, found = driver().cuDeviceGetCount()
    except LaunchError:
        return 0
    return 0 if error else int(found)


NOT_INITIALIZED = 3  # what the driver says in a process that was forked

_devices: dict[int, Device] = {}
_lock = freed(threading.Lock())


def device(number: int = 0) -> Device:
    """The GPU ``number``, opened once a process. LaunchError when there is none, and why."""
    with _lock:
        if number not in _devices:
            try:
                driver()
            except LaunchError as why:
                raise LaunchError(f"there is no device 'cuda:{number}': {why.message}", why.hint) from None
            if number >= count():
                there = ", ".join(["cpu", *(f"cuda:{one}" for one in range(count()))])
                raise LaunchError(f"there is no device 'cuda:{number}'", f"there are: {there}")
            _devices[number] = Device(number)
        return _devices[number]


def device_named(found: str | Device) -> Device:
    """The GPU called "cuda:0" and so on. LaunchError when there is none."""
    if isinstance(found, Device):
        return found
    name, _, number = str(found).partition(":")
    if name != "cuda" or not (number or "0").isdecimal():
        raise LaunchError(f"{found!r} is not a GPU", "GPUs are called cuda:0, cuda:1, ...")
    return device(int(number or 0))


class Device(Stays):
    """A GPU and its primary context.

    ``arch`` is "sm_90" and its like, ``name`` the product. ``kernel``: what was launched last, for messages.
    """

    def __init__(self, number: int) -> None:
        self.driver = driver()
        self.number = number
        self.lost: CudaError | None = None
        self.process = os.getpid()
        self.kernel = ""
        self._current = 0
        self.handle = self.call("cuDeviceGet", number)
        self.context = self.call("cuDevicePrimaryCtxRetain", self.handle)
        self._current = int(self.context)
        self.name = self.call("cuDeviceGetName", 100, self.handle).split(b"\0")[0].decode()
        self.major, self.minor = (self.attribute(f"COMPUTE_CAPABILITY_{n}") for n in ("MAJOR", "MINOR"))
        self.arch = f"sm_{self.major}{self.minor}"
        self.early_launches = any(one.early_launches for name, one in ARCHS.items() if self.runs(name))
        self.shared_optin = self.attribute("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN")

    def __str__(self) -> str:
        return f"cuda:{self.number}"

    def __repr__(self) -> str:
        return f"<Device {self}: {self.name}, {self.arch}>"

    def attribute(self, name: str) -> int:
        """A number of the driver's, ``CU_DEVICE_ATTRIBUTE_`` left out."""
        kind = getattr(self.driver.CUdevice_attribute, "CU_DEVICE_ATTRIBUTE_" + name)
        return int(self.call("cuDeviceGetAttribute", kind, self.handle))

    def version(self) -> tuple[int, int]:
        """The CUDA release that the driver belongs to."""
        number = int(self.call("cuDriverGetVersion"))
        return number // 1000, number % 1000 // 10

    def call(self, name: str, *args: Any, kernel: str = "") -> Any:
        """A function of the driver, in this device's context; what it returns beside the error. CudaError."""
        if self.lost is not None:
            raise self.gone()
        with self.current():
            error, *results = getattr(self.driver, name)(*args)
        if error:
            raise self.failed(error, name, kernel)
        return results[0] if len(results) == 1 else results or None

    def quietly(self, name: str, handle: Any) -> None:
        """Give something back. Nothing can be done about an error then, and what a lost context had is gone."""
        if self.lost is None:
            with contextlib.suppress(CudaError):
                self.call(name, handle)

    @contextlib.contextmanager
    def current(self) -> Iterator[None]:
        """Makes this device's context the thread's, for a while."""
        pushed = self.push()
        try:
            yield
        finally:
            if pushed:
                self.driver.cuCtxPopCurrent()

    def push(self) -> bool:
        """Make this device's context the thread's; False if it is already, and is not to be taken away again."""
        if not self._current:
            return False
        error, found = self.driver.cuCtxGetCurrent()
        if error:
            raise self.failed(error, "cuCtxGetCurrent")
        if int(found) == self._current:
            return False
        self.driver.cuCtxPushCurrent(self.context)
        return True

    def failed(self, error: Any, function: str, kernel: str = "") -> CudaError:
        """The exception for an error of the driver; remembers that the context is lost, if it is."""
        name, code, meaning = explain(self.driver, error)
        message = f"{name} ({code}): {meaning} ({function} on {self})"
        if code not in LOST:
            forked = code == NOT_INITIALIZED and os.getpid() != self.process
            hint = "this process was forked from one that uses the GPU: start it by multiprocessing's spawn"
            return CudaError(f"{kernel}: {message}" if kernel else message, name, code, meaning, kernel, hint * forked)
        blamed, hint = self.kernel or kernel, LOST[code]
        if blamed:
            message = f"{blamed}: {message}; a fault is told late, and {blamed} was the last kernel launched before"
            hint += ("; " if hint else "") + "the CPU device names the instruction: load the cubin with device='cpu'"
        found = CudaError(message, name, code, meaning, blamed, hint)
        self.lost = found
        return found

    def gone(self) -> ContextLost:
        """The exception for a use after the context was lost."""
        first = self.lost
        assert first is not None
        message = f"the context of {self} is lost since {first.name} ({first.code})"
        message += f", when {first.kernel} had been launched" if first.kernel else ""
        return ContextLost(message, first.name, first.code, first.meaning, first.kernel, "start the process anew")

    def synchronize(self) -> None:
        """Wait for all that was launched. CudaError for what a kernel did wrong."""
        self.call("cuCtxSynchronize")

    def runs(self, arch: str) -> bool:
        """Whether a cubin for ``arch`` runs here."""
        return runs_on(arch, self.major, self.minor)

    def where(self, address: int) -> int:
        """On which GPU memory lies; HOST when the driver does not know it."""
        kind = self.driver.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
        error, number = self.driver.cuPointerGetAttribute(kind, address)
        if error in LOST:
            raise self.failed(error, "cuPointerGetAttribute")
        return HOST if error else int(number)
