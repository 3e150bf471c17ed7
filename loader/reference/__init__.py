"""CUDA C++ convolutions that kernels are compared with, behind one call: ``conv2d(x, w, algorithm="direct")``.

Written from the papers that each names, compiled by NVRTC for the device at hand. One module a family, with its .cu
file next to it; ``algorithms()`` tells what there is.
"""

from __future__ import annotations

import functools
import importlib
import threading
from typing import Any

import numpy as np

from loader.reference.problem import Array, Problem, arrange, check, rearrange_shape
from loader.reference.registry import ALGORITHMS, Algorithm
from loader.reference.runner import POISON, Runner, default_device

__all__ = ["Algorithm", "Problem", "Runner", "algorithms", "conv2d", "find", "run"]

FAMILIES = ("direct", "memory_efficient", "winograd", "nonfused")  # modules of this folder: each lists its algorithms


@functools.cache
def _import_families() -> None:
    for family in FAMILIES:
        importlib.import_module(f"{__name__}.{family}")


def algorithms() -> list[str]:
    """The names that ``conv2d`` takes."""
    _import_families()
    return list(ALGORITHMS)


def find(name: str) -> Algorithm:
    """The algorithm of that name. ValueError names those there are."""
    if name not in algorithms():
        raise ValueError(f"there is no algorithm {name!r}; there are: " + ", ".join(algorithms()))
    return ALGORITHMS[name]


def conv2d(
    x: Array,
    w: Array,
    algorithm: str = "direct",
    layout: str = "NCHW",
    stride: int = 1,
    padding: int | None = None,
    device: str | None = None,
    arch: str | None = None,
    **options: Any,
) -> Array:
    """Convolve ``x`` with ``w`` (cross-correlation, no bias; see loader.reference.problem) and give y.

    ``x``: float32, in ``layout``: "NCHW", "CHWN" or "NHWC"; y, float32, is in the same (channels k in the place of c).
    ``w``: float32, K, C, R, S, whatever the layout. ``stride`` and ``padding`` in elements, for rows and columns;
    padding None: (r - 1) // 2. ``device``: one of ``loader.devices()``, None: a GPU if there is one. ``arch``: compile
    for another architecture than the device's (sm_75 on the CPU device). ``options``: those of the algorithm's function
    (``blocking`` of memory_efficient).

    Raises ValueError for arrays that do not fit each other, wrong types, NaN and infinity, and problems that the
    algorithm does not do; NvrtcError when there is no compiler; RuntimeError when the kernel left outputs unwritten.
    """
    entry = find(algorithm)
    problem = check(x, w, layout, stride, padding)
    if why := entry.supports(problem):
        raise ValueError(f"the algorithm {algorithm!r} cannot do this: {why}")
    return run(entry, problem, x, w, layout, _runner(device or default_device(), arch), **options)


def run(
    entry: Algorithm, problem: Problem, x: Array, w: Array, layout: str, runner: Runner, **options: Any
) -> Array:
    """``conv2d`` after the checks, on a runner of one's own."""
    device_x = runner.array(arrange(x, layout, entry.layout))
    device_y = runner.empty(rearrange_shape(problem.y_shape, "NCHW", entry.layout))
    entry.function(runner, problem, device_x, runner.array(w), device_y, **options)
    y = runner.numpy(device_y)
    if left := np.count_nonzero(y.view(np.uint32) == POISON):
        raise RuntimeError(f"the algorithm {entry.name!r} left {left} of {y.size} outputs unwritten: {problem}")
    return arrange(y, entry.layout, layout)


_threads = threading.local()


def _runner(device: str, arch: str | None) -> Runner:
    """One for each thread: a module's variables (filters in constant memory) are state."""
    runners: dict[str, Runner] = _threads.__dict__
    key = f"{device} {arch}"
    if key not in runners:
        runners[key] = Runner(device, arch)
    return runners[key]
