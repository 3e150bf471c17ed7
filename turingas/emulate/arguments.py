"""What a launch names: the kernel, and its arguments, checked against the parameters and packed as the driver does."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from turingas.cubin.cubin import Cubin
from turingas.cubin.model import Kernel, Param
from turingas.emulate.errors import LaunchError
from turingas.emulate.memory import Global

POINTER = 8
FLOATS = {2: "<e", 4: "<f", 8: "<d"}


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


def pack(kernel: Kernel, args: Sequence[Any], memory: Global) -> tuple[bytes, list[int]]:
    """The parameter area of a launch, and the addresses of what was added to ``memory`` for it.

    A numpy array is passed by its address and used in place; a Python int, float or bool takes the size of its
    parameter; a numpy scalar or ``bytes`` (a struct) must have that size. LaunchError says what does not fit.
    """
    params = sorted(kernel.params, key=lambda p: p.offset)
    check_count(kernel.name, params, args)
    area = bytearray(kernel.param_bytes)
    added: dict[tuple[int, int], int] = {}
    try:
        for number, (param, value) in enumerate(zip(params, args)):
            name = label(number, param.name, kernel.name)
            if isinstance(value, np.ndarray):
                data = _address(value, param.size, name, memory, added)
            else:
                data = scalar(value, param.size, name)
            area[param.offset : param.offset + param.size] = data
    except LaunchError:
        for address in added.values():
            memory.remove(address)
        raise
    return bytes(area), list(added.values())


def _address(value: np.ndarray[Any, Any], size: int, name: str, memory: Global, added: dict[Any, int]) -> bytes:
    if size != POINTER:
        raise LaunchError(f"{name} is an array, but the parameter has {size} bytes and is no pointer")
    if not value.flags.c_contiguous:
        raise LaunchError(f"{name} is not contiguous", "pass numpy.ascontiguousarray(x)")
    if value.dtype.hasobject:
        raise LaunchError(f"{name} holds Python objects ({value.dtype})")
    key = (value.__array_interface__["data"][0], value.nbytes)
    if key not in added or not value.nbytes:
        added[key] = memory.add(value, name)
    return struct.pack("<Q", added[key])


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
