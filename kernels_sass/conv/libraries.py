"""Arrays of numpy, PyTorch, CuPy and our own Buffers, as ``Conv2d`` takes, makes and checks them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from loader import cuda
from loader.arrays import HOST, Kind, Memory, kind_of, memory_of, on_host
from loader.cuda import Buffer
from loader.module import CPU
from turingas.errors import LaunchError

Sizes = tuple[int, ...]
F4 = np.dtype("f4")
NUMPY = {"float32": F4, "float16": np.dtype("f2"), "bfloat16": np.dtype("u2")}

#: Address and GPU of an array of a call; (0, 0) for one that ``where`` is to be asked about.
Seen = tuple[int, int]
ASK = 0, 0
Made = tuple[Any, int]  # a new array and its address


@dataclass(frozen=True)
class Library:
    """What is done with arrays of one library. ``dtypes``: its own for float32, float16 and bfloat16 (of which numpy
    has the bits, as uint16). ``again(x, shape)`` is a function that makes an array like x, time and again, and tells
    its address; ``empty(x, shape)`` makes one, and ``new`` is how, where that is quicker than ``again``.
    ``seen(array, dtype)``, for each call, is where one of a dtype lies that ``where`` would not refuse for its type,
    order or use; ``check(array, use)`` raises LaunchError, without the array's name, for one that cannot be used so
    (``where``); ``staged``: copied to a GPU and back; ``kept``: memory of the layer takes what a call needs meanwhile,
    since allocating it anew would wait for the GPU."""

    kind: Kind
    dtypes: Mapping[str, Any]
    again: Callable[[Any, Sizes], Callable[[], Made]]
    seen: Callable[[Any, str], Seen] = lambda array, dtype: ASK
    check: Callable[[Any, str], None] | None = None
    staged: bool = False
    kept: bool = False
    new: Callable[[Any, Sizes], Made] | None = None

    def empty(self, x: Any, shape: Sizes) -> Made:
        return self.again(x, shape)() if self.new is None else self.new(x, shape)


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
        return _numpy
    if isinstance(value, Buffer):
        return _buffer
    torch, cupy = sys.modules.get("torch"), sys.modules.get("cupy")
    if torch is not None and isinstance(value, torch.Tensor):
        return _torch
    if cupy is not None and isinstance(value, cupy.ndarray):
        return _cupy
    return None


def _numpy(kind: Kind) -> Library:
    def check(array: Any, use: str) -> None:
        if use == "written" and not array.flags.writeable:
            raise LaunchError("is read-only")

    def again(x: Any, shape: Sizes) -> Callable[[], Made]:
        dtype = x.dtype

        def make() -> Made:
            made = np.empty(shape, dtype)
            return made, made.ctypes.data

        return make

    return Library(kind, NUMPY, again, check=check, staged=True)


def _buffer(kind: Kind) -> Library:
    def seen(x: Buffer, dtype: str) -> Seen:
        return ASK if x.place is None or x.dtype != NUMPY[dtype] else (x.address, x.place)

    def again(x: Buffer, shape: Sizes) -> Callable[[], Made]:
        dtype, gpu = x.dtype, x.gpu

        def make() -> Made:
            made = Buffer(shape, dtype, gpu)
            return made, made.address

        return make

    return Library(kind, NUMPY, again, seen, kept=True)


def _torch(kind: Kind) -> Library:
    torch = sys.modules["torch"]
    dtypes = {name: getattr(torch, name, None) for name in NUMPY}
    #: what the code calls that torch.compile makes: half the time, since nothing is dispatched
    guards = getattr(getattr(getattr(torch, "_C", None), "_dynamo", None), "guards", None)
    quickest = {place: getattr(guards, f"_empty_strided_{place}", None) for place in ("cuda", "cpu")}

    def seen(x: Any, dtype: str) -> Seen:
        try:
            if x.dtype is dtypes[dtype] and x.is_contiguous() and not (
                x.is_neg() or x.requires_grad and torch.is_grad_enabled()
            ):
                return x.data_ptr(), x.get_device()
        except RuntimeError:  # no memory of its own
            pass
        return ASK

    def check(array: Any, use: str) -> None:
        if array.requires_grad and use != "learned" and torch.is_grad_enabled():
            raise LaunchError("requires gradients, and this layer has none", "use torch.no_grad(), or pass x.detach()")

    def new(x: Any, shape: Sizes) -> Made:
        made = x.new_empty(*shape)
        return made, made.data_ptr()

    def again(x: Any, shape: Sizes) -> Callable[[], Made]:
        like, empty_like = x.new_empty(*shape), torch.empty_like  # which reads no sizes
        like.untyped_storage().resize_(0)  # its sizes alone are wanted
        place = x.get_device()
        quick = quickest["cuda" if place >= 0 else "cpu"] if type(like) is torch.Tensor else None
        if quick is None:
            def make() -> Made:
                made = empty_like(like)
                return made, made.data_ptr()

            return make
        strides, dtype = like.stride(), x.dtype

        def make_quickly() -> Made:
            made = quick(shape, strides, dtype)
            if made.get_device() != place:  # it knows the current GPU alone
                made = empty_like(like)
            return made, made.data_ptr()

        return make_quickly

    return Library(kind, dtypes, again, seen, check, new=new)


def _cupy(kind: Kind) -> Library:
    cupy = sys.modules["cupy"]

    def again(x: Any, shape: Sizes) -> Callable[[], Made]:
        dtype, device = x.dtype, x.device

        def make() -> Made:
            with device:
                made = cupy.empty(shape, dtype)
            return made, int(made.data.ptr)

        return make

    def seen(x: Any, dtype: str) -> Seen:
        return (x.data.ptr, x.device.id) if x.dtype == NUMPY[dtype] and x.flags.c_contiguous and x.nbytes else ASK

    return Library(kind, NUMPY, again, seen)


def where(
    name: str, value: Any, shape: Sizes | None = None, place: int | None = None, use: str = "read",
    dtype: str = "float32",
) -> Memory:  # fmt: skip
    """Where an array lies. LaunchError unless it is of the dtype, in C order, of the shape, on the device ``place``,
    and fit for its use: "read", "written", or "learned", a parameter of the network, which alone may require
    gradients."""
    library = LIBRARIES.get(type(value)) or library_of(name, value)
    as_stored(**{name: value})
    if value.dtype != library.dtypes[dtype]:
        bits = " (of numpy: its bits as uint16)" if dtype == "bfloat16" else ""
        raise LaunchError(f"{name} has the dtype {value.dtype}; it must be {dtype}{bits}")
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


def address_of(
    name: str, value: Any, shape: Sizes, place: int, use: str = "read", dtype: str = "float32"
) -> int:
    """Where an array of a call lies, which is to be as ``where`` says."""
    library = LIBRARIES.get(type(value)) or library_of(name, value)
    address, there = library.seen(value, dtype)
    if address and there == place and value.shape == shape:
        return address
    return where(name, value, shape, place, use, dtype)[0]


def written_to(
    out: Any, shape: Sizes, place: int, x: int, residual: int, sizes: tuple[int, int], dtype: str = "float32"
) -> int:
    """The address of ``out``, which overlaps neither x nor residual (an address or 0) but as a whole. ``sizes``: bytes
    of x and of out."""
    address = address_of("out", out, shape, place, "written", dtype)
    if address < x + sizes[0] and x < address + sizes[1]:
        raise LaunchError("out overlaps x")
    if residual and address != residual and abs(address - residual) < sizes[1]:
        raise LaunchError("out overlaps residual", "it may be the same array, or another")
    return address


def as_stored(**arrays: Any) -> None:
    """LaunchError for a tensor whose numbers are those of its memory with the other sign: a view, which PyTorch's own
    operators would have told. Those in C order come from torch._neg_view alone, and from tensors of one element."""
    for name, one in arrays.items():
        if (asked := getattr(one, "is_neg", None)) is not None and asked():
            raise LaunchError(f"{name} is a view with the sign changed (is_neg())", "pass x.resolve_neg()")


def called(place: int) -> str:
    return CPU if place == HOST else f"cuda:{place}"


def raw(name: str, value: Any, dtype: str = "float32") -> np.ndarray[Any, np.dtype[Any]]:
    """A copy of a parameter's bytes in the host's memory, from wherever it lies. Waits for the caller's stream."""
    address, nbytes, place, _ = where(name, value, use="learned", dtype=dtype)
    if place == HOST:
        return np.array(on_host(value, name).reshape(-1).view(np.uint8))
    gpu = cuda.device_named(called(place))
    stream = library_of(name, value).kind.stream
    gpu.call("cuStreamSynchronize", 0 if stream is None else stream(value))
    made = np.empty(nbytes, np.uint8)
    gpu.call("cuMemcpyDtoHAsync", made.ctypes.data, address, nbytes, 0)
    gpu.call("cuStreamSynchronize", 0)
    return made


def copied(name: str, value: Any) -> Any:
    """A copy in the host's memory, as numpy array of one dimension."""
    return on_host(value, name).reshape(-1).view(np.float32).copy()


def on_gpu(name: str, value: Any, gpu: cuda.Device) -> tuple[Any, int]:
    """An array on a GPU, copied if it is in the host's memory, and the caller's current stream for it."""
    if where(name, value, use="learned")[2] == HOST:
        value = Buffer.of(copied(name, value), gpu)
    stream = library_of(name, value).kind.stream
    return value, 0 if stream is None else stream(value)
