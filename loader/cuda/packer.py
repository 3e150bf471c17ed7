"""Arguments -> the parameter area that a launch hands to the driver."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Callable, Iterable, Sequence
from types import FunctionType
from typing import Any

import numpy as np

from loader.arrays import ASK, BOTH, HOST, Kind, kind_of, memory_of
from loader.cuda.gpu import Device
from turingas.cubin.model import Param
from turingas.errors import LaunchError
from turingas.launch import POINTER, check_array, scalar
from turingas.tensor_map import TensorMap, check_parameter
from turingas.texture import Bound, argument

CODES = {np.dtype(kind).char: code for kind, code in (
    ("i1", "b"), ("u1", "B"), ("i2", "h"), ("u2", "H"), ("i4", "i"), ("u4", "I"), ("i8", "q"), ("u8", "Q"),
    ("f2", "e"), ("f4", "f"), ("f8", "d"), ("?", "?"),
)}  # fmt: skip
#: how an argument of a type becomes a parameter: its code of ``struct``, a function of the argument and the stream that
#: gives what is packed, and Python for the same, with {a} for the argument and {take} for a call of the function
Take = Callable[[Any, int], Any]
Way = tuple[str, Take, str]
ALIKE = 8  # mixes of shapes, dtypes and modes that a launch of a grid gets ready for
INTS, FLOATS = {1: "B", 2: "H", 4: "I", 8: "Q"}, {2: "e", 4: "f", 8: "d"}


def never(*arrays: Any) -> bool:
    return False


class Packer:
    """Arguments of certain ``types`` -> the parameter area. ``takes[n](args[n], stream)`` makes of an argument what
    ``pack_into`` takes; ``reads[n]`` is Python for the same, of ``a0``, ``a1``, ..., the ``stream``, and ``names``.
    ``ask(args[first])``: the stream that the first array with a stream of its own asks for. ``group``: numbers of
    arrays of one library that can be told all at once (``Kind.alike``) and Python for those that were, as ``reads``."""

    def __init__(self, gpu: Device, params: Sequence[Param], labels: Sequence[str], args: Sequence[Any]) -> None:
        self.types, self.takes, self.reads = [type(value) for value in args], list[Take](), list[str]()
        self.ask: Callable[[Any], int] | None = None
        self.group = dict[int, str]()
        self._alike: Callable[..., Callable[..., bool]] | None = None
        self.first, codes = 0, []
        for number, (param, name, value) in enumerate(zip(params, labels, args)):
            kind = kind_of(value)
            if kind is not None and kind.stream is not None and self.ask is None:
                self.ask, self.first = kind.stream, number
            if isinstance(value, TensorMap):
                code, take, read = _tensor_map(gpu, param, name)
            elif isinstance(value, Bound):
                code, take, read = _texture(gpu, param, name)
            else:
                code, take, read = _pointer(gpu, kind, param, name) if kind else _number(value, param, name)
            codes.append((param, code))
            self.takes.append(take)
            self.reads.append(read.format(a=f"a{number}", take=f"take{number}(a{number}, stream)"))
            if kind is not None and kind.alike is not None and self._alike in (None, kind.alike):
                self._alike = kind.alike
                self.group[number] = f"{kind.met.format(array=f'a{number}')} or take{number}(a{number}, stream)"
        self.written: FunctionType | None = None  # a launch with these types (loader.cuda.written)
        self.names = {f"take{number}": take for number, take in enumerate(self.takes)}
        self.pack_into = struct.Struct(layout(codes)).pack_into

    def again(self, left: int, *arrays: Any) -> tuple[Callable[..., bool], int]:
        """What tells the ``group`` of the next launch, after these were taken, and how often it is still to be made
        anew for others: the last time it is nothing, for the next ones will be others again."""
        with contextlib.suppress(AttributeError, RuntimeError, TypeError):  # not of these
            if left > 1 and self._alike is not None:
                return self._alike(*arrays), left - 1
        return never, left - 1


def layout(codes: Iterable[tuple[Param, str]]) -> str:
    """The format of ``struct`` for parameters where they lie, each with its code."""
    made, end = "<", 0
    for param, code in codes:
        made += f"{param.offset - end}x{code}"
        end = param.offset + param.size
    return made


def _pointer(gpu: Device, kind: Kind, param: Param, name: str) -> Way:
    check_array(name, param.size, param.type)
    read, here = kind.read, gpu.number

    def take(value: Any, stream: int) -> int:
        try:
            address, nbytes, place, contiguous = read(value, stream)
        except (AttributeError, BufferError, LaunchError, RuntimeError, TypeError, ValueError):
            address, nbytes, place, contiguous = memory_of(kind, value, stream, name)  # says it with the name
        if place == ASK:
            place = gpu.where(address)
        if (place == here or place == BOTH) and contiguous and nbytes and address:
            return address
        if place == HOST:
            raise LaunchError(
                f"{name} is a {type(value).__name__} in the host's memory, the kernel is on {gpu}",
                "copy it: loader.cuda.Buffer.of(array), and .numpy() or .copy_to(array) afterwards",
            )
        if place != here and place != BOTH:
            raise LaunchError(f"{name} is on cuda:{place}, the kernel on {gpu}")
        memory_of(kind, value, stream, name)  # says what is wrong
        raise AssertionError(name)

    return "Q", take, f"({kind.quick.format(array='{a}', here=here)}) or {{take}}" if kind.quick else "{take}"


def _tensor_map(gpu: Device, param: Param, name: str) -> Way:
    check_parameter(name, param.size)

    pointer = param.size == POINTER

    def take(value: TensorMap, stream: int) -> bytes | int:
        if value.device != gpu.number:
            place = "the CPU device" if value.device is None else f"cuda:{value.device}"
            hint = "make it of an array there"
            raise LaunchError(f"{name} is a tensor map for {place}, the kernel is on {gpu}", hint)
        return value.copy.address if pointer else value.opaque

    return "Q" if pointer else f"{param.size}s", take, "{take}"


def _texture(gpu: Device, param: Param, name: str) -> Way:
    return "Q", lambda value, stream: argument(name, value, param.size, gpu.number), "{take}"


def _number(value: Any, param: Param, name: str) -> Way:
    """The common types by way of struct; all others by their bytes."""
    size, kind = param.size, type(value)
    if param.type:
        scalar(value, size, name, param.type)
        return f"{size}s", lambda value, stream: scalar(value, size, name, param.type), "{take}"
    if kind in (int, bool) and size in INTS:
        low, high = -(1 << 8 * size - 1), 1 << 8 * size
        mask = high - 1

        def integer(value: int, stream: int) -> int:
            if low <= value < high:
                return value & mask
            scalar(value, size, name)  # says what is wrong
            raise AssertionError(value)

        return INTS[size], integer, f"{{a}} if 0 <= {{a}} < {high} else {{take}}"
    if kind is float and size in FLOATS:
        return FLOATS[size], _same, "{a}"
    if isinstance(value, np.generic) and value.dtype.char in CODES and value.dtype.itemsize == size:
        return CODES[value.dtype.char], _same, "{a}"
    scalar(value, size, name)
    return f"{size}s", lambda value, stream: scalar(value, size, name), "{take}"


def _same(value: Any, stream: int) -> Any:
    return value
