"""What the references run on: a device, their kernels compiled for it, and arrays there."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

import loader
from loader import cuda, nvrtc
from loader.module import CPU, Module
from loader.reference import cublas
from turingas.errors import LaunchError

Array = np.ndarray[Any, Any]

FOLDER = Path(__file__).parent
CPU_ARCH = "sm_75"

#: Every byte of new arrays. As float32 it is a NaN that no arithmetic makes, so what a kernel left out can be seen.
POISON_BYTE = 0xFF
POISON = 0xFFFFFFFF


class Runner:
    """A device, and modules compiled for it. ``close``, or ``with``, gives them back.

    ``device``: "cpu", "cuda:0" ... (``loader.devices()``); None is a GPU if there is one, else the CPU device.
    ``arch``: what is compiled for; None is the GPU's own, and sm_75 on the CPU device, which runs what NVIDIA's
    compiler makes. LaunchError for a device that there is not.
    """

    def __init__(self, device: str | None = None, arch: str | None = None) -> None:
        self.device = device or default_device()
        self.arch = arch or (CPU_ARCH if self.device == CPU else _gpu(self.device).arch)
        self._modules: dict[tuple[str, tuple[str, ...]], Module] = {}

    def module(self, name: str, options: Sequence[str] = ()) -> Module:
        """The module of a .cu file of this folder (or of another: a whole path), compiled with NVRTC's ``options``.

        A file of another folder may include those beside it. Raises NvrtcError when NVRTC is absent or refuses it.
        """
        key = (str(name), tuple(options))
        if key not in self._modules:
            path = FOLDER / name
            beside = [] if path.parent == FOLDER else [f"--include-path={path.parent}"]
            cubin = nvrtc.compile(path.read_text(), self.arch, [*options, *beside], name=path.name)
            self._modules[key] = loader.load(cubin, self.device)
        return self._modules[key]

    def array(self, array: Array) -> Any:
        """A copy of a numpy array on the device, in C order, as ``launch`` takes it."""
        return np.array(array, order="C") if self.device == CPU else cuda.Buffer.of(array, _gpu(self.device))

    def empty(self, shape: Sequence[int], dtype: Any = np.float32) -> Any:
        """An array on the device that nobody wrote yet: every byte is POISON_BYTE (NaN; -1)."""
        if self.device == CPU:
            array = np.empty(shape, dtype)
            array.view(np.uint8)[...] = POISON_BYTE
            return array
        return cuda.Buffer(shape, dtype, _gpu(self.device)).fill(POISON_BYTE)

    def numpy(self, array: Any) -> Array:
        """The numpy array of what ``array`` or ``empty`` gave, when all launches are done."""
        return array.numpy() if isinstance(array, cuda.Buffer) else np.asarray(array)

    def products(self, *args: Any) -> None:
        """``cublas.products``."""
        cublas.products(*args)

    def close(self) -> None:
        """Give the modules back."""
        for module in self._modules.values():
            module.close()
        self._modules.clear()

    def __enter__(self) -> Runner:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def default_device() -> str:
    """A GPU if there is one, else "cpu"."""
    return next((device for device in loader.devices() if device != CPU), CPU)


def ceil_div(a: int, b: int) -> int:
    """How many b cover a: blocks for a size."""
    return -(-a // b)


def _gpu(device: str) -> cuda.Device:
    name, _, number = device.partition(":")
    if name != "cuda" or (number and not number.isdecimal()):
        raise LaunchError(f"there is no device {device!r}", "there are: " + ", ".join(loader.devices()))
    return cuda.device(int(number or 0))
