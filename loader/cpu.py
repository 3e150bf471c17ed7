"""Cubins on the CPU device. Loaded when one is asked for: who has a GPU does not wait for the emulator."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from loader.arrays import kind_of, on_host
from loader.module import CPU, Kernel, Module
from turingas import emulate
from turingas.cubin.cubin import Cubin
from turingas.cubin.model import Kernel as Code
from turingas.emulate import Report
from turingas.errors import LaunchError
from turingas.launch import find, label


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
