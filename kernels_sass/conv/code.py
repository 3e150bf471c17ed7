"""The kernels' code: which method an architecture has, what its source takes, and what is made of it."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import loader
import turingas
from kernels_sass.conv.cost import FITTED
from kernels_sass.conv.method import FOLDER, KNOWN, METHODS, Kernel, Method, kernels
from kernels_sass.conv.parameters import parameters
from kernels_sass.conv.shape import Shape
from loader import cuda
from turingas.check.resources import max_threads
from turingas.errors import AsmError, LaunchError
from turingas.forks import freed
from turingas.isa.arch import NAMES

CPU_ARCH = "sm_75"  # what the CPU device runs unless told otherwise


def choose(arch: str, name: str | None = None) -> Method:
    """The method of a name; None: the architecture's default. LaunchError."""
    if arch not in KNOWN:
        what = "kernel for" if arch in NAMES else "architecture"
        raise LaunchError(f"there is no {what} {arch!r}", "there are: " + ", ".join(KNOWN))
    if name is None:
        return [one for one in METHODS.values() if one.general and arch in one.archs][-1]
    if not isinstance(name, str) or name not in METHODS:
        raise LaunchError(f"there is no kernel {name!r}", "there are: " + ", ".join([*METHODS, "hgmma (of Conv2d)"]))
    found = METHODS[name]
    if arch not in found.archs:
        raise LaunchError(f"the kernel {name!r} is for {', '.join(found.archs)}, not for {arch}")
    return found


def arch_of(gpu: cuda.Device) -> str:
    """What is assembled for a GPU: its own architecture, or an older one of the same major version. LaunchError."""
    able = [name for name in KNOWN if name[-1] not in "af" and gpu.runs(name)]
    if not able:
        raise LaunchError(f"{gpu} ({gpu.name}) is {gpu.arch}; there are kernels for {', '.join(KNOWN)}")
    return able[-1]


class Kernels:
    """The source of a method assembled for an architecture, with a schedule; ``of`` keeps what it made for the whole
    process. ``main``: the main kernel."""

    _made: dict[Any, Kernels] = {}
    _lock = freed(threading.RLock())

    def __init__(self, method: Method, arch: str, cubin: turingas.Cubin, schedule: Mapping[str, object]) -> None:
        self.method, self.arch, self.cubin, self.schedule = method, arch, cubin, schedule
        (self.main,) = (method.kernel(one.name) for one in cubin.kernels if one.name in method.kernels)
        self._modules: dict[Any, loader.Module] = {}

    @classmethod
    def of(cls, arch: str, method: str | None = None, schedule: Mapping[str, object] | None = None) -> Kernels:
        """``schedule``: parameters of the source, such as {"YIELD": "natural"}. LaunchError for one that it does not
        have, or a value that it does not take."""
        chosen, given = choose(arch, method), dict(schedule or {})
        key = chosen.name, arch, tuple(sorted((str(name), repr(value)) for name, value in given.items()))
        with cls._lock:
            if key not in cls._made:
                cls._made[key] = cls(chosen, arch, assemble(chosen, arch, given), given)
            return cls._made[key]

    def every(self, shape: Shape | None = None) -> dict[Kernel, Kernels]:
        """By the main kernel: this one, and others of its source that may take its place. Beside the
        architecture's default, as it is, other methods that may win for a ``shape``, where costs can be compared."""
        others = [(self.method, given) for given in self.method.beside(self.schedule)]
        if shape is not None and not self.schedule and self.method is choose(self.arch) and self.arch in FITTED:
            others += [(one, dict(given)) for one in METHODS.values()
                       if one is not self.method and self.arch in one.archs and one.suits(shape)
                       for given in one.offered(shape.c, shape.k)]  # fmt: skip
        made = [Kernels.of(self.arch, method.name, given) for method, given in others]
        return {one.main: one for one in (self, *made)}

    def load(self, device: str) -> loader.Module:
        """The module on "cpu" or "cuda:0" ..., loaded once and shared by all who ask. LaunchError."""
        place = device if device == "cpu" else cuda.device_named(device)
        with self._lock:
            if place not in self._modules:
                self._modules[place] = loader.load(self.cubin, device)
            return self._modules[place]


def assemble(method: Method, arch: str, schedule: Mapping[str, object]) -> turingas.Cubin:
    """Its source with a schedule. LaunchError for what the source does not take."""
    known = parameters(method) if schedule else {}
    if unknown := [str(name) for name in schedule if name not in known]:
        raise LaunchError(f"{method.file} has no parameter {unknown[0]!r}", "it has: " + ", ".join(known))
    try:
        text, path = method.path.read_text(), str(method.path)
        arch = f"{arch}a" if method.special and not arch.endswith("a") else arch
        return turingas.assemble(text, arch, dict(schedule), include=[str(FOLDER)], filename=path)
    except AsmError as error:
        if not schedule:
            raise
        given = ", ".join(f"{name}={value}" for name, value in schedule.items())
        raise LaunchError(f"{method.file} cannot be assembled with {given}: {error.plain}", error.hint) from error


def takes(method: Method, schedule: Mapping[str, object]) -> bool:
    """Whether its source has all parameters of a schedule."""
    return schedule.keys() <= parameters(method).keys()


def main_of(cubin: turingas.Cubin) -> Kernel:
    """The main kernel of a cubin, as its name and the threads of a block tell. LaunchError if no method has such a one,
    or several have."""
    names = {one.name for one in kernels()}
    (main,) = (one for one in cubin.kernels if one.name in names)
    threads = max_threads(main)
    found = [one for one in kernels() if one.name == main.name and one.block.threads == threads]
    if len(found) != 1:
        of = f"{len(found)} methods have" if found else "no method has"
        hint = "they are: " + ", ".join(one.method.name for one in found) if found else ""
        raise LaunchError(f"{of} a kernel {main.name!r} with blocks of {threads} threads", hint)
    return found[0]
