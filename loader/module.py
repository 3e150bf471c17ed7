"""Cubins on a device, their kernels, and launches."""

from __future__ import annotations

import os
from collections.abc import Sequence
from types import TracebackType
from typing import Any

from turingas import emulate
from turingas.emulate import Report
from turingas.errors import LaunchError
from turingas.program import Cubin

CPU = "cpu"


def devices() -> list[str]:
    """The devices that ``load`` takes: "cpu" always."""
    return [CPU]


def load(cubin: str | os.PathLike[str] | bytes | Cubin, device: str | None = None) -> Module:
    """Load a cubin: a file's path, its bytes, or what ``turingas.assemble`` gives.

    ``device`` is one of ``devices()``; None takes the first. The CPU device takes a cubin of any architecture from
    sm_70 to sm_90. Raises CubinError for what is no cubin, LaunchError for a device or an architecture that there is
    not.
    """
    if device is not None and device not in devices():
        raise LaunchError(f"there is no device {device!r}", "there are: " + ", ".join(devices()))
    if not isinstance(cubin, Cubin):
        cubin = Cubin.from_bytes(cubin) if isinstance(cubin, (bytes, bytearray)) else Cubin.from_file(cubin)
    return Module(cubin)


class Module:
    """A cubin on a device. Its variables live as long as it does; ``close``, or ``with``, ends that."""

    def __init__(self, cubin: Cubin) -> None:
        self.cubin = cubin
        self.device = CPU
        self._module: emulate.Module | None = emulate.Device(cubin.arch).load(cubin)

    def kernel(self, name: str | None = None) -> Kernel:
        """The kernel called ``name``, or the only one. LaunchError names those there are."""
        return Kernel(self, self._open().kernel(name).name)

    def variable(self, name: str) -> Any:
        """The bytes of a ``__device__`` variable, a numpy array of uint8, in place. LaunchError when there is none."""
        return self._open().variable(name)

    def close(self) -> None:
        """Give the device's memory back. The module cannot be used any more."""
        self._module = None

    def _open(self) -> emulate.Module:
        if self._module is None:
            raise LaunchError("the module is closed")
        return self._module

    def __enter__(self) -> Module:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class Kernel:
    """A kernel of a module."""

    def __init__(self, module: Module, name: str) -> None:
        self.module, self.name = module, name

    def launch(
        self,
        grid: int | Sequence[int],
        block: int | Sequence[int],
        *args: Any,
        shared: int = 0,
        stream: object = None,
        **options: Any,
    ) -> Report:
        """Run the kernel to its end and tell what it came to.

        ``grid`` and ``block`` are one to three numbers. ``args``, one for each parameter: numpy arrays, C-contiguous,
        used in place; Python and numpy numbers of the parameter's size; bytes for a struct. ``shared``: dynamic shared
        memory in bytes. ``stream`` must be None: the CPU device is done when this returns. ``options``: counters,
        races, strict, stale, written, budget, workers (``turingas.emulate.launch``).

        LaunchError for what no device would take, before anything runs; DeviceError for what the kernel does.
        """
        if stream is not None:
            raise LaunchError("the CPU device has no streams")
        return self.module._open().launch(self.name, grid, block, args, shared, **options)
