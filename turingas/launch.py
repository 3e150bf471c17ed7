"""What a launch may ask for, whoever carries it out: the kernel by name, grid and block, arguments by their parameters.

The GPU loader and the CPU device check with the same functions and so refuse with the same words.
"""

from __future__ import annotations

import functools
import struct
import warnings
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from turingas.cubin.cubin import Cubin
from turingas.cubin.model import Kernel, Param
from turingas.cubin.pick import matching
from turingas.errors import LaunchError, LaunchWarning
from turingas.isa.arch import WORD_BYTES, first_with
from turingas.isa.instruction import Const, Mem, Reg, instruction
from turingas.isa.isa import instruction_set
from turingas.packages import callers_level

# CUDA C++ Programming Guide, "Technical Specifications per Compute Capability"; the same for all that we know
GRID = (2**31 - 1, 65535, 65535)
BLOCK = (1024, 1024, 64)
THREADS = 1024
FLOATS = {2: "<e", 4: "<f", 8: "<d"}  # bytes -> how struct packs a float of that size

POINTER = 8  # bytes

Three = tuple[int, int, int]


def find(cubin: Cubin, name: str | None) -> Kernel:
    """The kernel called ``name`` (in the cubin, or in C++), or the only one. LaunchError names those there are."""
    kernels = {kernel.name: kernel for kernel in cubin.kernels}
    found = matching(list(kernels), name)
    hint = "there are: " + ", ".join(kernels) if kernels else "it has none at all"
    if name is None and len(kernels) != 1:
        raise LaunchError(f"the cubin has {len(kernels)} kernels, so a name is needed", hint)
    if not found:
        raise LaunchError(f"the cubin has no kernel {name!r}", hint)
    if len(found) > 1:
        raise LaunchError(f"the cubin has {len(found)} kernels {name!r}", "there are: " + ", ".join(found))
    return kernels[found[0]]


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
        raise LaunchError(f"a block of {block3} has {threads} threads; the limit is {THREADS}")
    return grid3, block3, threads


def cluster_of(kernel: Kernel, grid: Three, cluster: int | Sequence[int] | None) -> Three | None:
    """The blocks of a cluster of a launch: those asked for, or those that the kernel was compiled with
    (__cluster_dims__); None: there are no clusters. LaunchError for what no GPU of the kernel's architecture takes."""
    own = _own_cluster(kernel)
    if cluster is None:
        if own is None:
            return None
        found = own
    else:
        limit = kernel.facts.max_cluster
        if not limit:
            since = first_with(lambda one: one.max_cluster)
            raise LaunchError(f"{kernel.arch} has no clusters", f"they begin with {since}")
        found = three(cluster, "cluster", (limit, limit, limit))
        if own is not None and found != own:
            raise LaunchError(f"cluster is {found}; {kernel.name} was compiled for clusters of {own}", "leave it out")
        blocks = found[0] * found[1] * found[2]
        if blocks > limit:
            raise LaunchError(f"a cluster of {found} has {blocks} blocks; the limit is {limit}, and 8 on every GPU")
    for size, blocks, axis in zip(found, grid, "xyz"):
        if blocks % size:
            raise LaunchError(
                f"grid.{axis} is {blocks}, which clusters of {found} do not divide: it must be a multiple of {size}"
            )
    return found


def _own_cluster(kernel: Kernel) -> Three | None:
    """What EIATTR_CTA_PER_CLUSTER says; 0 where the launch decides."""
    for info in kernel.attributes:
        if info.name == "CTA_PER_CLUSTER" and isinstance(info.value, bytes) and len(info.value) == 12:
            x, y, z = struct.unpack("<3I", info.value)
            return (x, y, z) if x * y * z else None
    return None


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


def _as_type(value: Any, size: int, name: str, kind: str) -> Any:
    """A number as a parameter of the type ``kind`` takes it: an int for f32 becomes a float."""
    given = value.dtype.kind if isinstance(value, np.generic) else "i" if isinstance(value, (bool, int)) else "f"
    if isinstance(value, (bytes, bytearray)) or not isinstance(value, (np.generic, bool, int, float)):
        return value
    wanted = "f" if kind[0] == "f" and not kind.endswith("*") else "iu"
    if wanted == "f" and isinstance(value, (bool, int)):
        return float(value)
    if given == "b":
        given = "i"
    if given not in wanted:
        what = f"a {value.dtype}" if isinstance(value, np.generic) else f"the {type(value).__name__} {value}"
        raise LaunchError(f"{name} is {what}, the parameter is {kind}", f"pass a value of that type: {_example(kind)}")
    pointer = kind == "ptr" or kind.endswith("*")
    if kind[0] == "s" and not pointer and not -(1 << 8 * size - 1) <= int(value) < 1 << 8 * size - 1:
        raise LaunchError(f"{name} is {value}, out of range for {kind}")
    if (pointer or kind[0] == "u") and int(value) < 0:
        raise LaunchError(f"{name} is {value}, out of range for {kind}")
    return value


def _example(kind: str) -> str:
    return "2.5" if kind[0] == "f" and not kind.endswith("*") else "an array or an address" if kind[-1] in "r*" else "2"


def check_array(name: str, size: int, kind: str, dtype: str = "") -> None:
    """LaunchError unless a parameter takes an array, of the elements ``dtype`` ("f32"; "" if that is not known)."""
    if size != POINTER or kind and kind != "ptr" and not kind.endswith("*"):
        said = f"is {kind}" if kind else f"has {size} bytes and is not a pointer"
        raise LaunchError(f"{name} is an array, but the parameter {said}")
    if kind.endswith("*") and dtype and dtype != kind[:-1]:
        raise LaunchError(f"{name} is an array of {dtype}, the parameter is {kind}")


def element(dtype: np.dtype[Any]) -> str:
    """What parameters call the elements of an array: "f32"; "" for what they have no word for."""
    kind = {"i": "s", "u": "u", "f": "f"}.get(dtype.kind)
    return f"{kind}{8 * dtype.itemsize}" if kind else ""


def warn_of_bits(kernel: Kernel, number: int, param: Param, value: Any, name: str) -> None:
    """A LaunchWarning if ``value`` is an int for an untyped parameter that ``kernel`` reads as a float (2: 2.8e-45)."""
    if param.type or param.size != 4 or type(value) is not int or not value:
        return
    if number in float_parameters(kernel):
        seen = struct.unpack("<f", (value & 0xFFFFFFFF).to_bytes(4, "little"))[0]
        hint = f"pass {value}.0, or give the parameter a type in the source: {param.name or 'a'}, f32"
        message = f"{name} is the int {value}, and the kernel reads its bits as a float: {seen:.3g}\nhint: {hint}"
        warnings.warn(LaunchWarning(message), stacklevel=callers_level())


def float_parameters(kernel: Kernel) -> frozenset[int]:
    """The parameters of 4 bytes that are read by FP32 arithmetic alone, by their numbers."""
    first = kernel.facts.params_at(kernel.param_bytes)
    places = tuple((first + param.offset, n) for n, param in enumerate(kernel.params) if param.size == 4)
    return _read_as_floats(kernel.arch, places, tuple(kernel.code))


@functools.lru_cache(64)
def _read_as_floats(arch: str, numbers: tuple[tuple[int, int], ...], code: tuple[int, ...]) -> frozenset[int]:
    """``numbers``: of parameters, by where they lie in constant bank 0."""
    isa, places = instruction_set(arch), dict(numbers)
    floats: set[int] = set()
    others: set[int] = set()
    holders: dict[tuple[str, int], set[int]] = {}  # registers that hold parameters, in the order of the code
    for at, word in enumerate(code):
        i = instruction(isa, word, WORD_BYTES * at)
        if i is None:
            return frozenset()
        constants = [o for o in i.operands if isinstance(o, (Const, Mem)) and _in_bank_0(o)]
        read = {places[o.offset] for o in constants if o.offset in places}
        held = {n for o in i.operands if isinstance(o, Reg) and not o.write for n in holders.get((o.file, o.index), ())}
        copied = "copy" in i.op.traits or "MOV" in i.mods or i.op.space == "constant"
        if "f32" in i.op.traits:
            floats |= read | held
        elif not copied:
            others |= read | held
        for access in i.writes:
            for n in range(access.count):
                holders.pop((access.file, access.first + n), None)
        if copied and i.writes:
            holders[i.writes[0].file, i.writes[0].first] = read | held
    return frozenset(floats - others)


def _in_bank_0(o: Const | Mem) -> bool:
    return o.bank == 0 and (isinstance(o, Const) or o.space == "c" and o.base is None)


def scalar(value: Any, size: int, name: str, kind: str = "") -> bytes:
    """The bytes of an argument that is no array, of ``size`` bytes and the type ``kind`` ("": any). LaunchError, with
    ``name``, for what the parameter does not take."""
    if kind:
        value = _as_type(value, size, name, kind)
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
            raise LaunchError(f"{name} is {value}, out of range for the {size} bytes of the parameter")
        return (value & (1 << bits) - 1).to_bytes(size, "little")
    if isinstance(value, float):
        if size not in FLOATS:
            raise LaunchError(f"{name} is a float, but the parameter has {size} bytes")
        try:
            return struct.pack(FLOATS[size], value)
        except OverflowError:
            raise LaunchError(f"{name} is {value}, out of range for a float of {size} bytes") from None
    kinds = "arrays, numpy scalars, int, float, bool and bytes"
    raise LaunchError(f"{name} is a {type(value).__name__}", f"a kernel takes {kinds}")
