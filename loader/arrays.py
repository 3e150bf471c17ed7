"""Arrays of other libraries as kernels take them: an address, in place, without a copy.

Known are numpy, PyTorch, CuPy, and anything with ``__cuda_array_interface__`` (version 2 or 3), DLPack or
``__array_interface__``. None of these libraries is imported here: who passes an array of theirs has done so.

Sources: CUDA Array Interface, version 3 (numba's documentation); the header of DLPack 1.0; PyTorch's and CuPy's own
documentation for their current streams.
"""

from __future__ import annotations

import ctypes
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from turingas.errors import LaunchError

HOST = -1  # in the place of a GPU's number
ASK = -2  # on some GPU: the driver knows on which
BOTH = -3  # pinned or managed: host and GPU reach it


#: where an array lies: address and size in bytes, the number of its GPU (or HOST, ASK, BOTH), and whether its elements
#: lie one behind the other in C order. A plain tuple, for one is made for every array of every launch.
Memory = tuple[int, int, int, bool]


@dataclass(frozen=True)
class Kind:
    """How arrays of one type are read. ``read(array, stream)`` finds the memory; ``stream`` is the one that will use
    it. ``stream(array)`` is the handle of the caller's current stream, where the library has such a thing;
    ``current(place)`` the same by the number of the GPU.
    ``quick`` is Python for what launches ask first, with {array} and {here}, the number of a GPU: the address of an
    array that lies there in C order; 0, False, None or a RuntimeError for all others, which are then read.
    ``alike(*arrays)``, where the library has such a thing: a function that says in one call of as many others that they
    differ from these in their memory alone, and ``met`` the same as ``quick`` for those.
    """

    read: Callable[[Any, int], Memory]
    stream: Callable[[Any], int] | None = None
    quick: str = ""
    current: Callable[[int], int] = lambda place: 0
    alike: Callable[..., Callable[..., bool]] | None = None
    met: str = ""


KINDS: dict[type, Kind] = {}  # by exact type: types met so far, and those that ``register`` was told of


def register(kind: type, read: Callable[[Any, int], Memory], quick: str) -> None:
    """Make a type of ours known."""
    KINDS[kind] = Kind(read, quick=quick)


def kind_of(value: Any) -> Kind | None:
    """How to read ``value``; None when it is no array."""
    found = KINDS.get(type(value))
    if found is None:
        found = _find(value)
        if found is not None:
            KINDS[type(value)] = found
    return found


def _find(value: Any) -> Kind | None:
    if isinstance(value, np.generic):  # a number, though it has numpy's array interface
        return None
    if isinstance(value, np.ndarray):
        return Kind(_numpy)
    if _is(value, "torch", "Tensor"):
        return _torch_kind()
    if _is(value, "cupy", "ndarray"):
        return Kind(_cupy, _cupy_stream, current=_cupy_stream)
    if hasattr(value, "__dlpack__") and hasattr(value, "__dlpack_device__"):
        return Kind(_dlpack)
    if hasattr(value, "__cuda_array_interface__"):
        return Kind(_cuda_array, _cuda_array_stream)
    if hasattr(value, "__array_interface__"):
        return Kind(_host_array)
    return None


def _is(value: Any, module: str, name: str) -> bool:
    library = sys.modules.get(module)
    kind = getattr(library, name, None)
    return isinstance(kind, type) and isinstance(value, kind)


def _numpy(array: Any, stream: int) -> Memory:
    if isinstance(array, np.ma.MaskedArray):
        raise LaunchError("has a mask", "pass x.filled(0), or x.data")
    if array.dtype.hasobject:
        raise LaunchError(f"holds Python objects ({array.dtype})")
    _native(array.dtype)
    return array.ctypes.data, array.nbytes, HOST, array.flags.c_contiguous


def _torch(array: Any, stream: int) -> Memory:
    if array.is_conj():
        raise LaunchError("is the conjugate of what its memory holds (is_conj())", "pass x.resolve_conj()")
    if array.is_neg():
        raise LaunchError("is a view with the sign changed (is_neg())", "pass x.resolve_neg()")
    return array.data_ptr(), array.nbytes, array.get_device(), array.is_contiguous()


#: get_device is -1 for a tensor in the host's memory; data_ptr is 0 without elements, and a RuntimeError without memory
TORCH = ("{array}.get_device() == {here} and {array}.is_contiguous() and not ({array}.is_neg() or {array}.is_conj())"
         " and {array}.data_ptr()")  # fmt: skip
TORCH_MET = "{array}.data_ptr()"


def guards(torch: Any) -> Any:
    """What the code that torch.compile makes asks of tensors, in one call: the type, the device, the dtype, whether
    they require gradients, sizes, strides, and the dispatcher's keys (of which conjugates and views with the sign
    changed have one), with what the modes of the thread add to them and take away. None: this PyTorch has no such
    thing."""
    return getattr(getattr(getattr(getattr(torch, "_C", None), "_dynamo", None), "guards", None), "TensorGuards", None)


def torch_alike(torch: Any) -> Callable[..., Callable[..., bool]] | None:
    """``Kind.alike``: as much time as to ask each for its place and its order, where is_neg and is_conj would come on
    top. RuntimeError or TypeError: not of these tensors."""
    made = guards(torch)

    def alike(*tensors: Any) -> Callable[..., bool]:
        found: Callable[..., bool] = made(*tensors, dynamic_dims_sizes=None, dynamic_dims_strides=None).check
        return found

    return alike if made is not None else None


def _torch_kind() -> Kind:
    """That of all tensors, parameters among them."""
    torch = sys.modules["torch"]
    if torch.Tensor not in KINDS:
        of_place = getattr(getattr(torch, "_C", None), "_cuda_getCurrentRawStream", None)  # makes no object: 2 us less
        if of_place is None:
            def of_place(place: int) -> int:
                return int(torch.cuda.current_stream(place).cuda_stream)

        def stream(array: Any) -> int:
            place = array.get_device()
            return of_place(place) if place >= 0 else 0

        KINDS[torch.Tensor] = Kind(_torch, stream, TORCH, of_place, torch_alike(torch), TORCH_MET)
    return KINDS[torch.Tensor]


def _cupy(array: Any, stream: int) -> Memory:
    return array.data.ptr, array.nbytes, array.device.id, array.flags.c_contiguous


def _cupy_stream(asked: Any) -> int:  # the thread's, wherever arrays lie
    return int(sys.modules["cupy"].cuda.get_current_stream().ptr)


def _native(dtype: np.dtype[Any]) -> None:
    if not dtype.isnative:
        raise LaunchError(f"has the bytes of its elements in another order than a GPU ({dtype})")


def _interface(found: dict[str, Any], place: int) -> Memory:
    """What the two array interfaces have in common."""
    shape, strides = found["shape"], found.get("strides")
    data = found.get("data")
    if found.get("mask") is not None:
        raise LaunchError("has a mask")
    dtype = np.dtype(found["typestr"])
    _native(dtype)
    item = dtype.itemsize
    nbytes = item * math.prod(shape)
    contiguous = strides is None or _contiguous(shape, [s / item for s in strides])
    return data[0] if data else 0, nbytes, place, contiguous


def _cuda_array(array: Any, stream: int) -> Memory:
    return _interface(array.__cuda_array_interface__, ASK)


def _cuda_array_stream(array: Any) -> int:
    return int(array.__cuda_array_interface__.get("stream") or 0)


def _host_array(array: Any, stream: int) -> Memory:
    return _interface(array.__array_interface__, HOST)


def _contiguous(shape: Any, strides: Any) -> bool:
    """Whether strides, in elements, are those of C order; dimensions of one element may have any."""
    expected = 1
    for size, stride in zip(reversed(shape), reversed(strides)):
        if size != 1 and stride != expected:
            return False
        expected *= size
    return True


# ---- DLPack ------------------------------------------------------------------------------------------------------


class _Tensor(ctypes.Structure):
    """DLTensor of dlpack.h; a capsule called "dltensor" begins with one."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


DL_CPU, DL_CUDA, DL_CUDA_HOST, DL_CUDA_MANAGED = 1, 2, 3, 13
_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]


def _dlpack(array: Any, stream: int) -> Memory:
    device = int(array.__dlpack_device__()[0])
    # the producer makes this stream wait for what it still has to do; 1 is DLPack's number for the default stream
    capsule = array.__dlpack__(stream=stream or 1) if device in (DL_CUDA, DL_CUDA_MANAGED) else array.__dlpack__()
    found = _Tensor.from_address(_pointer(capsule, b"dltensor"))
    shape = found.shape[: found.ndim]
    strides = found.strides[: found.ndim] if found.strides else None
    places = {DL_CPU: HOST, DL_CUDA: found.device_id, DL_CUDA_HOST: BOTH, DL_CUDA_MANAGED: BOTH}
    if device not in places:
        raise LaunchError(f"is on a device that is neither CPU nor CUDA (DLPack's number {device})")
    nbytes = math.prod(shape) * -(-found.bits * found.lanes // 8)
    contiguous = strides is None or _contiguous(shape, strides)
    return (found.data or 0) + found.byte_offset, nbytes, places[device], contiguous


# ---- what both devices ask ---------------------------------------------------------------------------------------


def memory_of(kind: Kind, value: Any, stream: int, name: str) -> Memory:
    """Where the array ``value`` lies, in C order and not empty; LaunchError, with ``name``, when it does not."""
    try:
        found = kind.read(value, stream)
    except LaunchError as error:
        raise LaunchError(f"{name} {error.message}", error.hint) from None
    except (AttributeError, BufferError, RuntimeError, TypeError, ValueError) as error:
        raise LaunchError(f"{name}, a {type(value).__name__}, does not give its memory: {error}") from error
    address, nbytes, _, contiguous = found
    if not nbytes:
        raise LaunchError(f"{name} is an array without elements", "pass 0 where the kernel takes a null pointer")
    if not contiguous:
        hint = "pass a copy in C order: numpy.ascontiguousarray(x), x.contiguous()"
        raise LaunchError(f"{name} is not contiguous", hint)
    if not address:
        raise LaunchError(f"{name}, a {type(value).__name__}, has no memory")
    return found


def on_host(value: Any, name: str) -> np.ndarray[Any, Any]:
    """An array as numpy sees it, in place, for the CPU device. LaunchError when it lies on a GPU."""
    kind = kind_of(value)
    assert kind is not None
    address, nbytes, place, _ = memory_of(kind, value, 0, name)
    if place not in (HOST, BOTH):
        where = f"cuda:{place}" if place >= 0 else "a GPU"
        raise LaunchError(f"{name} is on {where}, the kernel on the CPU device", "copy it to the host first")
    if isinstance(value, np.ndarray):
        return value
    area = (ctypes.c_uint8 * nbytes).from_address(address)
    return np.ctypeslib.as_array(area)
