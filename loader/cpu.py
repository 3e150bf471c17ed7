"""Cubins on the CPU device. Loaded when one is asked for: who has a GPU does not wait for the emulator."""

from __future__ import annotations

import contextlib
import difflib
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from loader.arrays import kind_of, on_host
from loader.module import CPU, Kernel, Module
from turingas import emulate
from turingas.cubin.cubin import Cubin
from turingas.cubin.model import Kernel as Code
from turingas.emulate import Report
from turingas.emulate.report import BUDGET, STACK
from turingas.errors import LaunchError
from turingas.forks import freed
from turingas.launch import find, label


class CpuModule(Module):
    """A cubin on the CPU device (``turingas.emulate``)."""

    def __init__(self, cubin: Cubin) -> None:
        super().__init__(cubin, CPU)
        self._lock = freed(threading.Lock())
        self._module: emulate.Module | None = emulate.Device(cubin.arch).load(cubin)
        self._under_way = False

    @contextlib.contextmanager
    def _alone(self) -> Iterator[emulate.Module]:
        """For one launch at a time, for which a device's memory is made. LaunchError where a variable may hold
        anything."""
        with self._lock:
            module = self._open()
            if self._under_way:  # this process was forked meanwhile, and the thread is not there
                if module.globals:
                    what = "a kernel ran when this process was forked: the variables of its module may hold anything"
                    raise LaunchError(what, "load the cubin again")
                module = self._module = emulate.Device(self.cubin.arch).load(self.cubin)
            self._under_way = True
            try:
                yield module
            finally:
                self._under_way = False

    def kernel(self, name: str | None = None) -> CpuKernel:
        self._open()
        return CpuKernel(self, find(self.cubin, name or self.chosen))

    def variable(self, name: str) -> Any:
        return self._open().variable(name)

    def close(self) -> None:
        self._module = None

    def _open(self) -> emulate.Module:
        if self._module is None:
            raise LaunchError("the module is closed")
        return self._module


def unknown(name: str, known: Sequence[str], what: str) -> TypeError:
    """For an option that there is not."""
    near = difflib.get_close_matches(name, known, 1)
    return TypeError(f"{what} has no option {name!r}" + (f"; did you mean {near[0]!r}?" if near else ""))


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
        cluster: int | Sequence[int] | None = None,
        cooperative: bool = False,
        counters: bool = False,
        races: bool | str = False,
        strict: bool = False,
        stale: bool = False,
        written: bool = False,
        budget: int = BUDGET,
        stack: int = STACK,
        workers: int = 0,
        **others: Any,
    ) -> Report:
        """Run the kernel to its end, and say what it came to. Beside what every ``Kernel.launch`` takes:

        ``counters``: count by instruction (``Report.counters``). ``races``: find races in shared memory, with "global"
        in global memory, too. ``strict``: heed stalls and scoreboards; ``stale``: and use the old value where a GPU
        would. ``written``: reading memory that was never written is an error. ``budget``: instructions that a warp may
        run. ``stack``: bytes of a thread beside the kernel's own frame. ``workers``: threads of the CPU, 0: one a core.

        What the kernel prints goes to ``sys.stdout`` when it has ended, as on a GPU; ``Report.printed`` has it, too.
        TypeError for another option; LaunchError before anything runs; DeviceError for what the kernel does.
        """
        options: dict[str, Any] = {
            "counters": counters, "races": races, "strict": strict, "stale": stale, "written": written,
            "budget": budget, "stack": stack, "workers": workers, "cluster": cluster, "cooperative": cooperative,
            "early": early,
        }  # fmt: skip
        for name in others:
            raise unknown(name, [*options, "shared", "stream"], "launch on the CPU device")
        if stream is not None:
            raise LaunchError("the CPU device has no streams")
        if not isinstance(shared, (int, np.integer)):
            raise LaunchError(f"{shared!r} bytes of shared memory")
        self.module._open()
        names = [*self._names, *[""] * len(args)]  # too many arguments are counted below
        given = [
            value if kind_of(value) is None else on_host(value, label(n, names[n], self.name))
            for n, value in enumerate(args)
        ]
        with self.module._alone() as module:
            try:
                report = module.launch(self.name, grid, block, given, shared, **options)
            except emulate.DeviceError as error:
                print(error.report.printed if error.report else "", end="")
                raise
        print(report.printed, end="")
        return report
