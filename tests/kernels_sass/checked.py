"""A main kernel of conv/methods, assembled as its class says and run on the CPU device with all checks on."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable
from typing import Any

import turingas
from kernels_sass.conv.method import Kernel
from tests.kernels_sass import harness
from turingas.cubin.cubin import Cubin

SHAPES = int(os.environ.get("TURINGAS_SHAPES", "4"))  # random ones, of each method


@functools.cache
def cubin(kernel: Kernel, arch: str = "", **more: object) -> Cubin:
    """For an architecture, or else the first that the method has; with ``more`` parameters of the source."""
    method, path = kernel.method, kernel.method.path
    arch = arch or method.archs[0] + "a" * method.special
    return turingas.assemble(path.read_text(), arch, {**kernel.block.defines, **more}, filename=str(path))


def convolve(
    kernel: Kernel, shape: harness.Shape, arch: str = "", more: Iterable[tuple[str, object]] = (), **options: Any
) -> float:
    """The error, as ``harness.convolve`` has it; no launch has a hazard or a race."""
    block = kernel.block
    found, reports = harness.convolve(
        cubin(kernel, arch, **dict(more)), shape, block=block.threads, shared=block.shared, strict=True, races=True,
        **options,
    )  # fmt: skip
    assert not [fault for one in reports for fault in (*one.hazards, *one.races)]
    return found
