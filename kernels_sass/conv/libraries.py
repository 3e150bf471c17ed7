"""Arrays of numpy, PyTorch, CuPy and our own Buffers, as ``Conv2d`` takes, makes and checks them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from loader import cuda
from loader.arrays import HOST, Kind, Memory, kind_of, memory_of, on_host
from loader.cuda import Buffer
from loader.module import CPU
from turingas.errors import LaunchError

Sizes = tuple[int, ...]

@dataclass(frozen=True)
class Library:
    """What is done with arrays of one library. ``empty(x, shape)`` makes one of float32 where x is;
    ``check(array, use)`` raises LaunchError, without the array's name, for one that cannot be used so (``where``);
    ``staged``: copied to a GPU and back; ``kept``: memory of the layer takes what a call needs meanwhile, since
    allocating it anew would wait for the GPU."""

    kind: Kind
    float32: Any
    empty: Callable[[Any, Sizes], Any]
    check: Callable[[Any, str], None] | None = None
    staged: bool = False
    kept: bool = False


LIBRARIES: dict[type, Library] = {}  # by exact type, as they are met


def library_of(name: str, value: Any) -> Library:
    """The library of an array. LaunchError for what is none, or of another library."""
    found = LIBRARIES.get(type(value))
    if found is None:
        kind = kind_of(value)
        if kind is None or (make := _made_by(value)) is None or isinstance(value, np.ma.MaskedArray):
            raise LaunchError(f"{name} is a {type(value).__name__}",
                              "it must be an array of numpy, PyTorch or CuPy, or a loader.cuda.Buffer")  # fmt: skip
        found = LIBRARIES[type(value)] = make(kind)
    return found


def _made_by(value: Any) -> Callable[[Kind], Library] | None:
    if isinstance(value, np.ndarray):
        return lambda kind: Library(kind, np.dtype("f4"), _numpy_empty, _numpy_check, staged=True)
    if isinstance(value, Buffer):
        return lambda kind: Library(kind, np.dtype("f4"), _buffer_empty, kept=True)
    torch, cupy = sys.modules.get("torch"), sys.modules.get("cupy")
    if torch is not None and isinstance(value, torch.Tensor):
        return lambda kind: Library(kind, torch.float32, _torch_empty, _torch_check)
    if cupy is not None and isinstance(value, cupy.ndarray):
        return lambda kind: Library(kind, np.dtype("f4"), _cupy_empty)
    return None


def _numpy_empty(x: Any, shape: Sizes) -> Any:
    return np.empty(shape, np.float32)


def _buffer_empty(x: Any, shape: Sizes) -> Any:
    return Buffer(shape, np.float32, x.gpu)


def _torch_empty(x: Any, shape: Sizes) -> Any:
    return x.new_empty(shape)


def _cupy_empty(x: Any, shape: Sizes) -> Any:
    with x.device:
        return sys.modules["cupy"].empty(shape, np.float32)


def _numpy_check(array: Any, use: str) -> None:
    if use == "written" and not array.flags.writeable:
        raise LaunchError("is read-only")


def _torch_check(array: Any, use: str) -> None:
    if array.requires_grad and use != "learned" and sys.modules["torch"].is_grad_enabled():
        raise LaunchError("requires gradients, and this layer has none", "use torch.no_grad(), or pass x.detach()")


def where(
    name: str, value: Any, shape: Sizes | None = None, place: int | None = None, use: str = "read"
) -> Memory:
    """Where an array lies. LaunchError unless it is float32 in C order, of the shape, on the device ``place``, and fit
    for its use: "read", "written", or "learned", a parameter of the network, which alone may require gradients."""
    library = LIBRARIES.get(type(value)) or library_of(name, value)
    if value.dtype != library.float32:
        raise LaunchError(f"{name} has the dtype {value.dtype}; it must be float32")
    if shape is not None and value.shape != shape:
        raise LaunchError(f"{name} has the shape {tuple(value.shape)}; it must be {shape}")
    try:
        if library.check is not None:
            library.check(value, use)
        found = library.kind.read(value, 0)
    except LaunchError as error:
        raise LaunchError(f"{name} {error.message}", error.hint) from None
    except (AttributeError, BufferError, RuntimeError, TypeError, ValueError):
        found = memory_of(library.kind, value, 0, name)  # says it with the name
    if not (found[0] and found[1] and found[3]):
        _refuse(library, name, value)
    if place is not None and found[2] != place:
        raise LaunchError(f"{name} is on {called(found[2])}, x on {called(place)}")
    return found


def _refuse(library: Library, name: str, value: Any) -> None:
    """Raise the LaunchError for an array without elements, memory or order."""
    if 0 in value.shape:
        raise LaunchError(f"{name} has the shape {tuple(value.shape)}; no size may be 0")
    try:
        memory_of(library.kind, value, 0, name)
    except LaunchError as error:
        if "contiguous" not in error.message or not hasattr(value, "permute"):
            raise
        hint = error.hint + "; a tensor in channels_last goes as value.permute(0, 2, 3, 1), with layout='NHWC'"
        raise LaunchError(error.message, hint) from None


def written_to(out: Any, shape: Sizes, place: int, x: tuple[int, int], residual: int) -> int:
    """The address of ``out``, which overlaps neither x (address, bytes) nor residual (address or 0) but as a whole."""
    address, size, _, _ = where("out", out, shape, place, "written")
    if address < x[0] + x[1] and x[0] < address + size:
        raise LaunchError("out overlaps x")
    if residual and address != residual and abs(address - residual) < size:
        raise LaunchError("out overlaps residual", "it may be the same array, or another")
    return address


def called(place: int) -> str:
    return CPU if place == HOST else f"cuda:{place}"


def copied(name: str, value: Any) -> Any:
    """A copy in the host's memory, as numpy array of one dimension."""
    return on_host(value, name).reshape(-1).view(np.float32).copy()


def on_gpu(name: str, value: Any, gpu: cuda.Device) -> tuple[Any, int]:
    """An array on a GPU, copied if it is in the host's memory, and the caller's current stream for it."""
    if where(name, value, use="learned")[2] == HOST:
        value = Buffer.of(copied(name, value), gpu)
    stream = library_of(name, value).kind.stream
    return value, 0 if stream is None else stream(value)
