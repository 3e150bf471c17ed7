"""Memory on a GPU."""

from __future__ import annotations

import math
import operator
import weakref
from collections.abc import Sequence
from types import TracebackType
from typing import Any, NoReturn, Protocol

import numpy as np

from loader.arrays import register
from loader.cuda.gpu import Device, device_named
from loader.cuda.streams import handle_of
from turingas.errors import LaunchError
from turingas.stays import Stays

MOST = 1 << 63  # bytes


class Owner(Protocol):
    """Of memory that a Buffer shows: the module."""

    closed: bool


class Buffer(Stays):
    """Memory on a GPU, seen as an array in C order: ``shape``, ``dtype``, ``nbytes``, ``address``.

    Freed (``freed``) by ``free`` or ``with``, at the latest with the object. New memory holds anything. It has
    ``__cuda_array_interface__``, so that PyTorch, CuPy and others take it without a copy. Copies return when they are
    done, behind what ``stream`` (the default stream unless said otherwise) still had to do. ``owner``: the module whose
    memory it shows, if it is not its own. ``place``: the GPU's number while there is memory of its own, else None: what
    a launch looks at.
    """

    instead = ".numpy() gives a copy on the host, Buffer.of(array) brings one to a GPU"

    def __init__(self, shape: int | Sequence[int], dtype: Any = np.float32, device: str | Device = "cuda:0") -> None:
        gpu = device_named(device)
        self._describe(shape, dtype, gpu)
        self.address = int(gpu.call("cuMemAlloc", self.nbytes)) if self.nbytes else 0
        self.freed = False
        self.owner: Owner | None = None
        self.place: int | None = gpu.number if self.nbytes else None
        self._free = weakref.finalize(self, gpu.quietly, "cuMemFree", self.address) if self.nbytes else None

    @classmethod
    def of(cls, array: Any, device: str | Device = "cuda:0") -> Buffer:
        """A copy of a numpy array."""
        array = np.asarray(array)
        made = cls(array.shape, array.dtype, device)
        made.copy_from(array)
        return made

    @classmethod
    def view(cls, address: int, shape: int | Sequence[int], dtype: Any, device: str | Device, owner: Owner) -> Buffer:
        """Memory of a module, which stays loaded as long as the view is there, unless it is closed."""
        made = cls.__new__(cls)
        made._describe(shape, dtype, device_named(device))
        made.freed, made.address, made.owner, made.place, made._free = False, address, owner, None, None
        return made

    def _describe(self, shape: int | Sequence[int], dtype: Any, gpu: Device) -> None:
        self.gpu, self.dtype = gpu, np.dtype(dtype)
        self.shape = (operator.index(shape),) if not isinstance(shape, Sequence) else tuple(map(operator.index, shape))
        if min(self.shape, default=0) < 0 or self.dtype.hasobject or not self.dtype.isnative:
            raise LaunchError(f"no buffer of shape {self.shape} and type {self.dtype}")
        self.nbytes = math.prod(self.shape) * self.dtype.itemsize
        if self.nbytes >= MOST:
            raise LaunchError(f"a buffer of shape {self.shape} and type {self.dtype} has {self.nbytes:,} bytes")

    def __repr__(self) -> str:
        return f"<Buffer {self.dtype}{list(self.shape)} on {self.gpu}{', freed' if self.freed else ''}>"

    def __array__(self, *args: Any, **kwargs: Any) -> NoReturn:
        """For numpy, which would make an array of one object of it."""
        raise TypeError("a Buffer lies on a GPU: .numpy() gives a copy on the host")

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        self._check()
        return {"shape": self.shape, "typestr": self.dtype.str, "data": (self.address, False), "version": 3,
                "strides": None, "stream": None}  # fmt: skip

    def copy_from(self, array: Any, stream: Any = None) -> Buffer:
        """Fill it with a numpy array, or a buffer of the same GPU, of the same shape and type. Returns itself."""
        if isinstance(array, Buffer):
            if (array.shape, array.dtype, array.gpu) != (self.shape, self.dtype, self.gpu):
                raise LaunchError("the buffer is of another shape, type or GPU")
            array._check()
            self._check()
            self._copy("cuMemcpyDtoDAsync", self.address, array.address, stream)
            return self
        array = np.asarray(array)
        self._same(array)
        array = np.ascontiguousarray(array)
        self._copy("cuMemcpyHtoDAsync", self.address, array.ctypes.data, stream)
        return self

    def copy_to(self, array: np.ndarray[Any, Any], stream: Any = None) -> None:
        """Copy it into a numpy array of the same shape and type, in C order."""
        self._same(array)
        if not (array.flags.c_contiguous and array.flags.writeable):
            raise LaunchError("the array is read-only or not contiguous")
        self._copy("cuMemcpyDtoHAsync", array.ctypes.data, self.address, stream)

    def numpy(self, stream: Any = None) -> np.ndarray[Any, Any]:
        """A copy on the host."""
        array = np.empty(self.shape, self.dtype)
        self.copy_to(array, stream)
        return array

    def fill(self, byte: int, stream: Any = 0) -> Buffer:
        """Set every byte to a number from 0 to 255; queued on the stream. Returns itself."""
        self._check()
        if not 0 <= byte <= 255:
            raise LaunchError(f"fill({byte}): a byte is 0 to 255")
        if self.nbytes:
            self.gpu.call("cuMemsetD8Async", self.address, byte, self.nbytes, handle_of(stream))
        return self

    def free(self) -> None:
        """Give the memory back; waits for kernels that may use it."""
        if self._free is not None:
            self.freed, self.place = True, None
            self._free()

    def _same(self, array: np.ndarray[Any, Any]) -> None:
        self._check()
        if array.shape != self.shape or array.dtype != self.dtype:
            mine = f"{self.dtype}{list(self.shape)}"
            raise LaunchError(f"the array is {array.dtype}{list(array.shape)}, the buffer {mine}")

    def _copy(self, name: str, to: int, source: int, stream: Any) -> None:
        """Not the function without Async: it returns before the GPU has what comes from pageable memory, and streams
        of their own do not wait for it."""
        if self.nbytes:
            handle = 0 if stream is None else handle_of(stream)
            self.gpu.call(name, to, source, self.nbytes, handle)
            self.gpu.call("cuStreamSynchronize", handle)

    def _check(self) -> None:
        if self.freed or (self.owner is not None and self.owner.closed):
            raise LaunchError("the buffer's memory was given back")

    def __enter__(self) -> Buffer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.free()


def _read_buffer(buffer: Buffer, stream: int) -> tuple[int, int, int, bool]:
    buffer._check()
    return buffer.address, buffer.nbytes, buffer.gpu.number, True


register(Buffer, _read_buffer, "{array}.place == {here} and {array}.address")
