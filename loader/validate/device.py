"""Where a kernel runs, and what the CPU device sees of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import loader
from loader.cuda import device_named
from loader.reference.runner import Runner
from loader.validate.call import Call
from turingas.errors import LaunchError


class Watched:
    """A module whose launches take ``options`` of the CPU device along; ``found`` lists their hazards and races."""

    def __init__(self, module: loader.Module, options: dict[str, Any]) -> None:
        self.module, self.options = module, options
        self.cubin = module.cubin
        self.found: list[str] = []

    def kernel(self, name: str | None = None) -> WatchedKernel:
        """As ``loader.Module.kernel``."""
        return WatchedKernel(self.module.kernel(name), self)


class WatchedKernel:
    """A kernel of a Watched module."""

    def __init__(self, kernel: loader.Kernel, module: Watched) -> None:
        self.inner, self.module = kernel, module

    def launch(self, grid: int | Sequence[int], block: int | Sequence[int], *args: Any, shared: int = 0) -> None:
        """As ``loader.Kernel.launch``."""
        report = self.inner.launch(grid, block, *args, shared=shared, **self.module.options)
        if report is not None:
            self.module.found += map(str, [*report.hazards, *report.races])


def device_of(device: str | None) -> str | None:
    if device is not None and device.partition(":")[0] == "cuda":
        return str(device_named(device))  # says what is missing
    if device is not None and device not in loader.devices():
        raise LaunchError(f"there is no device {device!r}", "there are: " + ", ".join(loader.devices()))
    return device


def options_for(device: str, options: dict[str, Any] | None) -> dict[str, Any]:
    if options and device != "cpu":
        raise LaunchError(", ".join("--" + name for name in options) + ": the CPU device alone does this")
    return options or {}


def compiled(runner: Runner, path: Path, call: Call) -> loader.Module:
    """The module of a reference's file. LaunchError, with the file's name, when it lacks the kernel of ``call``."""
    module = runner.module(str(path))
    try:
        module.kernel(call.kernel)
    except LaunchError as error:
        hint = f"{error.hint}; a line '// validate: --kernel NAME' chooses"
        raise LaunchError(f"{path.name}: {error.message}", hint) from None
    return module
