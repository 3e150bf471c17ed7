"""What the references run on: a device, their kernels compiled for it, and arrays there."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

import loader
from loader import nvrtc
from loader.module import Module

Array = np.ndarray[Any, Any]

FOLDER = Path(__file__).parent
CPU = "cpu"
CPU_ARCH = "sm_75"

#: What new float arrays are filled with: a NaN that no arithmetic makes, so that what a kernel left out is seen.
POISON = 0x7FBADBAD


class Runner:
    """A device, and modules compiled for it. ``close``, or ``with``, gives them back.

    ``device``: one of ``loader.devices()``; None is a GPU if there is one, else the CPU device. ``arch``: what is
    compiled for; None is the GPU's own, and sm_75 on the CPU device, which runs NVIDIA's compiled code.
    """

    def __init__(self, device: str | None = None, arch: str | None = None) -> None:
        self.device = device or default_device()
        self.arch = arch or (CPU_ARCH if self.device == CPU else _gpu_arch(self.device))
        self._modules: dict[tuple[str, tuple[str, ...]], Module] = {}

    def module(self, name: str, options: Sequence[str] = ()) -> Module:
        """The module of a .cu file of this folder (or of another: a whole path), compiled with NVRTC's ``options``.

        Raises NvrtcError when NVRTC is absent or refuses it.
        """
        key = (str(name), tuple(options))
        if key not in self._modules:
            path = FOLDER / name
            cubin = nvrtc.compile(path.read_text(), self.arch, options, name=path.name)
            self._modules[key] = loader.load(cubin, self.device)
        return self._modules[key]

    def array(self, array: Array) -> Any:
        """A C-contiguous copy of a numpy array on the device, as ``launch`` takes it."""
        return np.array(array, order="C")

    def empty(self, shape: Sequence[int], dtype: Any = np.float32) -> Any:
        """An array on the device. float32: all elements are POISON; other types: zeros."""
        host = np.zeros(shape, dtype)
        if host.dtype == np.float32:
            host.view(np.uint32)[...] = POISON
        return self.array(host)

    def numpy(self, array: Any) -> Array:
        """The numpy array of what ``array`` or ``empty`` gave, after all launches are done."""
        return np.asarray(array)

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


@functools.cache
def _gpu_arch(device: str) -> str:
    raise NotImplementedError(device)
