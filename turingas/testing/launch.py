"""Kernels for tests: loaded or compiled, launched on the CPU device; what the device finds is an AssertionError."""

from __future__ import annotations

import linecache
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import loader
from loader import nvrtc
from loader.cpu import CpuKernel
from turingas.emulate import Report
from turingas.emulate.errors import DeviceError
from turingas.testing.settings import current

PLACE = re.compile(r"(?:^|(?<=[\s(]))((?:\w:)?[^\s:()]+):(\d+): (?=\S+\+0x[0-9a-f]{4,}: )")
SHOWN = 5  # findings


class KernelFailure(AssertionError):
    """What a kernel did wrong. ``findings``: the DeviceError that ended it, or the hazards and races of its report."""

    def __init__(self, kernel: str, findings: Sequence[Any]) -> None:
        shown = [with_source(str(one)) for one in findings[:SHOWN]]
        if len(findings) > SHOWN:
            shown.append(f"... and {len(findings) - SHOWN} more")
        super().__init__(f"the kernel {kernel}:\n" + "\n".join(shown))
        self.kernel, self.findings = kernel, list(findings)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.kernel, self.findings)


class TestKernel:
    """A kernel on the CPU device: ``launch`` it as ``loader.Kernel``'s, ``variable`` gives a variable of its module."""

    __test__ = False  # to pytest

    def __init__(self, kernel: CpuKernel) -> None:
        self._kernel, self.name = kernel, kernel.name

    def launch(self, grid: Any, block: Any, *args: Any, shared: int = 0, **options: Any) -> Report:
        """Run it to its end, as the settings say; ``options`` are those of ``loader.cpu.CpuKernel.launch``, and win
        over the settings. KernelFailure for what it did wrong, LaunchError for what no device takes."""
        __tracebackhide__ = True
        return checked(self._kernel, grid, block, args, shared=shared, **options)

    def variable(self, name: str) -> Any:
        """The bytes of a ``__device__`` variable, in place."""
        return self._kernel.module.variable(name)


def load(what: Any, kernel: str | None = None, arch: str | None = None) -> TestKernel:
    """A kernel of all that ``loader.load`` takes: files, compiled kernels of Triton's, CuPy's modules."""
    return TestKernel(loader.load(what, "cpu", kernel=kernel, arch=arch).kernel(kernel))


def cuda(source: str | os.PathLike[str], kernel: str | None = None, options: Sequence[str] = ()) -> TestKernel:
    """A kernel of CUDA C++, compiled by NVRTC (``pip install nvidia-cuda-nvrtc-cu12``) for the settings' architecture.

    ``source``: the path of a file, whose own folder is looked in for what it includes, or the source itself (what
    has more than one line, or a brace). ``options`` as NVRTC takes them. NvrtcError for what does not compile.
    """
    words = ["-lineinfo", *options]
    if isinstance(source, str) and ("\n" in source or "{" in source):
        text, name = source, "source.cu"
    else:
        path = Path(source)
        text, name = path.read_text("utf-8"), str(path)
        words.append(f"--include-path={path.parent or '.'}")
    return load(nvrtc.compile(text, current().arch, words, name), kernel)


def checked(kernel: CpuKernel, grid: Any, block: Any, args: Sequence[Any], **options: Any) -> Report:
    """A launch with the settings of now. KernelFailure for what goes wrong in it, and for what is found."""
    __tracebackhide__ = True
    try:
        report = kernel.launch(grid, block, *args, **{**current().options(), **options})
    except DeviceError as error:
        found: list[Any] = [error]
    else:
        found = [*report.hazards, *report.races]
        if not found:
            return report
    raise KernelFailure(kernel.name, found)


def with_source(text: str) -> str:
    """The text of a finding, and beneath each place in a file the line that stands there."""
    lines = []
    for line in text.split("\n"):
        lines.append(line)
        for file, number in PLACE.findall(line):
            source = linecache.getline(file, int(number)).strip()
            if source:
                lines.append(f"    {Path(file).name}:{number} | {source}")
    return "\n".join(lines)
