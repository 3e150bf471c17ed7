"""What a launch may ask for, whoever carries it out: the kernel by name, grid and block, arguments by their parameters.

The GPU loader and the CPU device check with the same functions and so refuse with the same words.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from turingas.cubin.cubin import Cubin
from turingas.cubin.model import Kernel, Param
from turingas.errors import LaunchError

# CUDA C++ Programming Guide, "Technical Specifications per Compute Capability"; the same for all that we know
GRID = (2**31 - 1, 65535, 65535)
BLOCK = (1024, 1024, 64)
THREADS = 1024
FLOATS = {2: "<e", 4: "<f", 8: "<d"}  # bytes -> how struct packs a float of that size

Three = tuple[int, int, int]


def find(cubin: Cubin, name: str | None) -> Kernel:
    """The kernel called ``name``, or the only one. LaunchError names those there are."""
    kernels = {kernel.name: kernel for kernel in cubin.kernels}
    hint = "there are: " + ", ".join(kernels) if kernels else "it has none at all"
    if name is None and len(kernels) != 1:
        raise LaunchError(f"the cubin has {len(kernels)} kernels, so a name is needed", hint)
    if name is not None and name not in kernels:
        raise LaunchError(f"the cubin has no kernel {name!r}", hint)
    return next(iter(kernels.values())) if name is None else kernels[name]


def label(number: int, param_name: str, kernel: str) -> str:
    """How messages call an argument."""
    return f"argument {number}" + (f" ({param_name})" if param_name else "") + f" of {kernel}"


def check_count(kernel: str, params: Sequence[Param], args: Sequence[Any]) -> None:
    """LaunchError unless there is an argument for each parameter, and no more."""
    if len(args) != len(params):
        sizes = ", ".join(f"{p.name or number} ({p.size} bytes)" for number, p in enumerate(params))
        raise LaunchError(
            f"kernel {kernel} takes {len(params)} arguments and was given {len(args)}",
            f"its parameters: {sizes}" if sizes else "it has none",
        )


def shape(grid: int | Sequence[int], block: int | Sequence[int]) -> tuple[Three, Three, int]:
    """Grid and block as three numbers each, and the threads of a block. LaunchError for what no GPU takes."""
    grid3, block3 = three(grid, "grid", GRID), three(block, "block", BLOCK)
    threads = block3[0] * block3[1] * block3[2]
    if threads > THREADS:
        raise LaunchError(f"a block of {block3} has {threads} threads; {THREADS} are the limit")
    return grid3, block3, threads


def three(value: int | Sequence[int], name: str, limits: Three) -> Three:
    """One to three numbers, as grid and block are given, filled up with 1. LaunchError beyond the limits."""
    numbers = tuple(value) if isinstance(value, Iterable) else (value,)
    if not 1 <= len(numbers) <= 3 or not all(isinstance(n, (int, np.integer)) for n in numbers):
        raise LaunchError(f"{name} {value!r} is not one to three integers")
    x, y, z = (*[int(n) for n in numbers], 1, 1)[:3]
    for size, limit, axis in zip((x, y, z), limits, "xyz"):
        if not 1 <= size <= limit:
            raise LaunchError(f"{name}.{axis} is {size}; it must be 1 to {limit}")
    return x, y, z


def scalar(value: Any, size: int, name: str) -> bytes:
    """The bytes of an argument that is no array. LaunchError, with ``name``, for what the parameter does not take."""
    if isinstance(value, (bytes, bytearray)):
        if len(value) != size:
            raise LaunchError(f"{name} has {len(value)} bytes, the parameter {size}")
        return bytes(value)
    if isinstance(value, np.generic):
        data = value.tobytes()
        if len(data) != size:
            hint = f"pass a numpy scalar of {8 * size} bits, or a Python number"
            raise LaunchError(f"{name} is a {value.dtype} of {len(data)} bytes, the parameter has {size}", hint)
        return data
    if isinstance(value, (bool, int)):
        bits = 8 * size
        if not -(1 << bits - 1) <= value < 1 << bits:
            raise LaunchError(f"{name} is {value}, which does not fit the {size} bytes of the parameter")
        return (value & (1 << bits) - 1).to_bytes(size, "little")
    if isinstance(value, float):
        if size not in FLOATS:
            raise LaunchError(f"{name} is a float, but the parameter has {size} bytes")
        try:
            return struct.pack(FLOATS[size], value)
        except OverflowError:
            raise LaunchError(f"{name} is {value}, which does not fit a float of {size} bytes") from None
    kinds = "arrays, numpy scalars, int, float, bool and bytes"
    raise LaunchError(f"{name} is a {type(value).__name__}", f"a kernel takes {kinds}")
