"""The arguments of a launch, checked against the parameters and packed as the driver does."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from turingas.cubin.model import Kernel, Param
from turingas.emulate.memory import Global
from turingas.errors import LaunchError
from turingas.launch import check_array, check_count, element, label, scalar, warn_of_bits
from turingas.tensor_map import TensorMap, check_parameter
from turingas.texture import Bound, argument


def pack(kernel: Kernel, args: Sequence[Any], memory: Global) -> tuple[bytes, list[int]]:
    """The parameter area of a launch, and the addresses of what was added to ``memory`` for it.

    A numpy array is passed by its address and used in place; a Python int, float or bool takes the size of its
    parameter; a numpy scalar or ``bytes`` (a struct) must have that size; a tensor map is written for the address that
    its tensor gets; a texture goes by its handle. LaunchError says what does not fit.
    """
    params = sorted(kernel.params, key=lambda p: p.offset)
    check_count(kernel.name, params, args)
    area = bytearray(kernel.param_bytes)
    added: dict[tuple[int, int], int] = {}
    try:
        for number, (param, value) in enumerate(zip(params, args)):
            name = label(number, param.name, kernel.name)
            if not param.size:
                raise LaunchError(f"{name} has a parameter of 0 bytes, which nothing can be passed in")
            if isinstance(value, np.ndarray):
                check_array(name, param.size, param.type, element(value.dtype))
                data = _address(value, name, memory, added)
            elif isinstance(value, TensorMap):
                data = _tensor_map(value, name, param, memory, added)
            elif isinstance(value, Bound):
                data = struct.pack("<Q", argument(name, value, param.size, None))
            else:
                warn_of_bits(kernel, kernel.params.index(param), param, value, name)
                data = scalar(value, param.size, name, param.type)
            area[param.offset : param.offset + param.size] = data
    except LaunchError:
        for address in added.values():
            memory.remove(address)
        raise
    return bytes(area), list(added.values())


def _address(value: np.ndarray[Any, Any], name: str, memory: Global, added: dict[Any, int]) -> bytes:
    if not value.flags.c_contiguous:
        raise LaunchError(f"{name} is not contiguous", "pass numpy.ascontiguousarray(x)")
    if value.dtype.hasobject:
        raise LaunchError(f"{name} holds Python objects ({value.dtype})")
    key = (value.__array_interface__["data"][0], value.nbytes)
    if key not in added or not value.nbytes:
        added[key] = memory.add(value, name)
    return struct.pack("<Q", added[key])


def _tensor_map(value: TensorMap, name: str, param: Param, memory: Global, added: dict[Any, int]) -> bytes:
    check_parameter(name, param.size)
    if value.memory is None:
        raise LaunchError(f"{name} is a tensor map of an array on cuda:{value.device}, the kernel on the CPU device")
    data = value.layout.pack(struct.unpack("<Q", _address(value.memory, name, memory, added))[0])
    return data if param.size == len(data) else _address(np.frombuffer(data, np.uint8), name, memory, added)
