"""Cubins on a device, their kernels, and launches: the face that all devices have, and the CPU device behind it."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from types import TracebackType
from typing import Any

import numpy as np

from loader.arrays import kind_of, on_host
from turingas import emulate
from turingas.cubin.cubin import Cubin
from turingas.cubin.model import Kernel as Code
from turingas.emulate import Report
from turingas.emulate.arguments import find, label
from turingas.errors import LaunchError

CPU = "cpu"


class Module:
    """A cubin on a device. Its code and variables live as long as it does; ``close``, or ``with``, ends that.

    Several threads may use one module and its kernels.
    """

    def __init__(self, cubin: Cubin, device: str) -> None:
        self.cubin, self.device = cubin, device

    def kernel(self, name: str | None = None) -> Kernel:
        """The kernel called ``name``, or the only one. LaunchError names those there are."""
        raise NotImplementedError

    def variable(self, name: str) -> Any:
        """The bytes of a ``__device__`` variable, in place: a numpy array of uint8 on the CPU device, a
        ``loader.cuda.Buffer`` on a GPU. LaunchError when there is none."""
        raise NotImplementedError

    def synchronize(self) -> None:
        """Wait until the device has done what it was told. CudaError for what a kernel did wrong."""

    def close(self) -> None:
        """Give the device's memory back. The module cannot be used any more."""
        raise NotImplementedError

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
        stream: Any = None,
        early: bool = False,
        **options: Any,
    ) -> Report | None:
        """Run the kernel.

        ``grid`` and ``block`` are one to three numbers. ``args``, one for each parameter: arrays in C order, used in
        place (``loader.arrays``); Python and numpy numbers of the parameter's size; bytes for a struct. ``shared``:
        dynamic shared memory in bytes. ``stream``: where a GPU queues it, see ``loader.cuda``. ``early``: from sm_90 on
        the kernel may begin before the one before it in the stream has ended (programmatic dependent launch), and must
        wait for that itself, by ACQBULK, before it touches memory; elsewhere it makes no difference.

        On the CPU device the kernel has ended when this returns, with a report of what it came to; ``options`` there:
        counters, races, strict, stale, written, budget, workers (``turingas.emulate.launch``). A GPU has only been
        told, and the answer is None.

        LaunchError for what no device would take, before anything runs. DeviceError (CPU device) and CudaError (GPU,
        now or at a later call) for what the kernel does.
        """
        raise NotImplementedError


class CpuModule(Module):
    """A cubin on the CPU device (``turingas.emulate``)."""

    def __init__(self, cubin: Cubin) -> None:
        super().__init__(cubin, CPU)
        self._lock = threading.Lock()
        self._module: emulate.Module | None = emulate.Device(cubin.arch).load(cubin)

    def kernel(self, name: str | None = None) -> Kernel:
        self._open()
        return CpuKernel(self, find(self.cubin, name))

    def variable(self, name: str) -> Any:
        return self._open().variable(name)

    def close(self) -> None:
        self._module = None

    def _open(self) -> emulate.Module:
        if self._module is None:
            raise LaunchError("the module is closed")
        return self._module


class CpuKernel(Kernel):
    """A kernel on the CPU device."""

    module: CpuModule

    def __init__(self, module: CpuModule, code: Code) -> None:
        super().__init__(module, code.name)
        self._names = [param.name for param in sorted(code.params, key=lambda p: p.offset)]

    def launch(
        self,
        grid: int | Sequence[int],
        block: int | Sequence[int],
        *args: Any,
        shared: int = 0,
        stream: Any = None,
        early: bool = False,
        **options: Any,
    ) -> Report:
        if stream is not None:
            raise LaunchError("the CPU device has no streams")
        if not isinstance(shared, (int, np.integer)):
            raise LaunchError(f"{shared!r} bytes of shared memory")
        module = self.module._open()
        names = [*self._names, *[""] * len(args)]  # too many arguments are counted below
        given = [
            value if kind_of(value) is None else on_host(value, label(n, names[n], self.name))
            for n, value in enumerate(args)
        ]
        with self.module._lock:  # a device's memory is made for one launch at a time
            return module.launch(self.name, grid, block, given, shared, **options)
