"""Which main kernel, and how many blocks that share the channels, take the least time: a sum of steps, jobs, launches.

All times are an H200's, in microseconds: what fits those of `turingas bench shapes` best ("model" in
kernels_sass/results/shapes_sm90.json), which shows how well they choose. ``Cost`` has those of each kernel.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
from collections.abc import Iterable
from dataclasses import replace

from kernels_sass.conv.method import Kernel, ceil_div
from kernels_sass.conv.shape import LIMIT, SPLITS, Shape
from loader import cuda
from turingas.errors import LaunchError

LAUNCH, SUMS = 0.99, 2.76  # of a second launch, and of 2^20 elements of y that it sums up
FITTED = ("sm_90", "sm_90a")  # where the times of different kernels may be compared
CPU_SMS = 132  # persistent blocks on the CPU device: those of an H200


@functools.cache
def _sms(gpu: cuda.Device) -> int:
    return gpu.attribute("MULTIPROCESSOR_COUNT")


def sms(device: str) -> int:
    """Multiprocessors of a device."""
    return CPU_SMS if device == "cpu" else _sms(cuda.device_named(device))


def split(
    shape: Shape, device: str, kernels: tuple[Kernel, ...] = (), splits: tuple[int, ...] = SPLITS
) -> Shape:
    """The shape with those of ``kernels`` (none: its own) and ``splits`` that take the least time on a device, as far
    as steps tell; on the CPU device the first ones."""
    if device == "cpu":
        return replace(shape, kernel=kernels[0] if kernels else shape.kernel, splits=splits[0])
    return fastest(shape, sms(device), kernels, splits)


@functools.lru_cache(1024)
def fastest(
    shape: Shape, sms: int, kernels: tuple[Kernel, ...] = (), splits: tuple[int, ...] = SPLITS
) -> Shape:
    """The shape with those of ``kernels`` (none: its own) and ``splits`` that take the least time on so many
    multiprocessors."""
    kernels = kernels or (shape.kernel,)
    able = [one for one in ways(shape, kernels, splits) if 4 * one.floats < LIMIT]
    able = able or [replace(shape, kernel=kernels[0])]  # parts() has looked at this one
    return min(able, key=lambda one: microseconds(one, sms))


def microseconds(shape: Shape, sms: int) -> float:
    """What it takes, about, on so many multiprocessors."""
    turns, steps, seconds, sums = terms(shape, sms)
    cost = shape.block.cost
    return steps * cost.step + turns * cost.job + again(shape, turns) * cost.again + seconds * LAUNCH + sums * SUMS


def again(shape: Shape, turns: float) -> float:
    """Of so many jobs of an SM those that begin where others have ended."""
    return turns - shape.block.an_sm


def terms(shape: Shape, sms: int) -> tuple[float, float, float, float]:
    """What a multiprocessor does one after another: jobs and steps, of narrow blocks parts; then second launches, and
    2^20 elements of y that these sum up. Blocks that do not fill an SM's room take as long as those that do. Clusters
    of 4 or 8 lie in one part of the GPU: there is room for them on 120 of 132 SMs."""
    second = shape.written is not shape
    if shape.splits > 2 and not second:
        sms = sms * 10 // 11
    turns = max(ceil_div(math.prod(shape.blocks), sms), shape.block.an_sm)
    sums = math.prod(shape.y_shape) / (1 << 20) if second else 0.0
    return turns, turns * shape.method.steps(shape) / shape.splits, float(second), sums


def ways(shape: Shape, kernels: Iterable[Kernel], splits: tuple[int, ...] = SPLITS) -> list[Shape]:
    """The shape with each of ``kernels`` and ``splits`` that there can be, or ought to: a sum of too many products has
    too large an error (``Method.most``)."""
    able = []
    for kernel, count in itertools.product(kernels, (one for one in splits if shape.steps % one == 0)):
        with contextlib.suppress(LaunchError):  # what the kernel cannot
            able.append(replace(shape, splits=count, kernel=kernel))
    return [one for one in able if one.c <= one.method.most * one.splits]
