"""GPUs, through the driver API of cuda-python (``cuda.bindings.driver``, CUDA 12 and 13): modules, launches, memory.

``launch`` allocates nothing and waits for nothing. It queues the kernel on the stream that it is given, as a number, as
an object of cuda-python, PyTorch (``cuda_stream``) or CuPy (``ptr``), or of anything with ``__cuda_stream__``; without
one on the caller's current stream: that of PyTorch or CuPy if the first array that has one is theirs, else the stream
that the array names in ``__cuda_array_interface__``, else the default stream. Arrays are used in place, so they must
lie on the GPU; numpy arrays go there and back through a ``Buffer``.

Everything lives in the device's primary context, which PyTorch, CuPy, JAX and the runtime API use too.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib
import operator
import struct
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Any

import numpy as np

from loader.arrays import ASK, BOTH, HOST, Kind, kind_of, memory_of, register
from loader.module import Kernel, Module
from turingas.cubin.cubin import Cubin
from turingas.cubin.model import Kernel as Code
from turingas.cubin.model import Param
from turingas.errors import LaunchError
from turingas.launch import check_array, check_count, find, label, scalar, shape, warn_of_bits

#: after these the context is of no use any more: every call in the process fails
LOST = {
    214: "", 220: "", 702: "",
    700: "the kernel used an address outside this GPU's memory",
    709: "", 710: "an assert in the kernel failed",
    714: "a call stack or a barrier was broken",
    715: "the code has an instruction that this GPU does not know",
    716: "an address was not a multiple of the size of the access",
    717: "a shared or local address was used where only a global one may stand, or the other way round",
    718: "the program counter left the code: no EXIT at the end, or a wrong branch",
    719: "the kernel failed",
}  # fmt: skip
TOO_OLD = {200, 209, 218, 222, 300}  # what an old driver says to a new cubin
DRIVERS = ("cuda.bindings.driver", "cuda.cuda")  # the second in cuda-python before 12.6
STATIC = 48 * 1024  # bytes of shared memory that a block has without asking for more
SHAPES = 256  # launch shapes that a kernel remembers
EARLY = 9  # compute capability from which on a kernel may begin before the one before it has ended
CODES = {np.dtype(kind).char: code for kind, code in (
    ("i1", "b"), ("u1", "B"), ("i2", "h"), ("u2", "H"), ("i4", "i"), ("u4", "I"), ("i8", "q"), ("u8", "Q"),
    ("f2", "e"), ("f4", "f"), ("f8", "d"), ("?", "?"),
)}  # fmt: skip
INTS, FLOATS = {1: "B", 2: "H", 4: "I", 8: "Q"}, {2: "e", 4: "f", 8: "d"}


class CudaError(RuntimeError):
    """The driver refused something, or a kernel faulted.

    ``name`` and ``code`` are CUDA's ("CUDA_ERROR_ILLEGAL_ADDRESS", 700), ``meaning`` its sentence for it, ``kernel``
    the kernel that was launched, or the last one before. ``lost``: the context is lost, see ``ContextLost``.
    """

    def __init__(self, message: str, name: str, code: int, meaning: str, kernel: str = "", hint: str = "") -> None:
        super().__init__(message)
        self.message, self.name, self.code, self.meaning = message, name, code, meaning
        self.kernel, self.hint, self.lost = kernel, hint, code in LOST

    def __str__(self) -> str:
        return self.message + (f"\nhint: {self.hint}" if self.hint else "")


class ContextLost(CudaError):
    """A kernel faulted earlier. Nothing runs on this GPU any more until the process is started anew."""


# ---- the driver --------------------------------------------------------------------------------------------------


@functools.cache
def driver() -> Any:
    """``cuda.bindings.driver``, ready. LaunchError says what is missing."""
    bindings, missing = None, list[str]()
    for name in DRIVERS:
        try:
            bindings = importlib.import_module(name)
            break
        except ImportError as error:
            missing.append(str(error))
    if bindings is None:
        hint = "pip install cuda-python, or use device='cpu'"
        raise LaunchError(f"cuda-python is not installed ({missing[0]})", hint)
    try:
        (failed,) = bindings.cuInit(0)
    except RuntimeError as error:  # no libcuda
        hint = "install NVIDIA's driver, or use device='cpu'"
        raise LaunchError(f"there is no driver: {error}", hint) from None
    if failed:
        name, _, meaning = explain(bindings, failed)
        raise LaunchError(f"the driver does not start: {name}: {meaning}", "device='cpu' needs none")
    return bindings


def explain(bindings: Any, error: Any) -> tuple[str, int, str]:
    """Name, number and meaning of an error."""
    texts = []
    for function in (bindings.cuGetErrorName, bindings.cuGetErrorString):
        failed, text = function(error)
        texts.append("unknown" if failed or text is None else text.decode())
    return texts[0], int(error), texts[1]


@functools.cache
def count() -> int:
    """How many GPUs there are; 0 without cuda-python or a driver."""
    try:
        error, found = driver().cuDeviceGetCount()
    except LaunchError:
        return 0
    return 0 if error else int(found)


_devices: dict[int, Device] = {}
_lock = threading.Lock()


def device(number: int = 0) -> Device:
    """The GPU ``number``, opened once a process. LaunchError when there is none, and why."""
    with _lock:
        if number not in _devices:
            try:
                driver()
            except LaunchError as why:
                raise LaunchError(f"there is no device 'cuda:{number}': {why.message}", why.hint) from None
            if number >= count():
                raise LaunchError(f"there is no device 'cuda:{number}'", f"there are {count()} GPUs, and 'cpu'")
            _devices[number] = Device(number)
        return _devices[number]


def device_named(found: str | Device) -> Device:
    """The GPU called "cuda:0" and so on. LaunchError when there is none."""
    if isinstance(found, Device):
        return found
    name, _, number = str(found).partition(":")
    if name != "cuda" or not (number or "0").isdecimal():
        raise LaunchError(f"{found!r} is not a GPU")
    return device(int(number or 0))


class Device:
    """A GPU and its primary context.

    ``arch`` is "sm_90" and its like, ``name`` the product. ``kernel``: what was launched last, for messages.
    """

    def __init__(self, number: int) -> None:
        self.driver = driver()
        self.number = number
        self.lost: CudaError | None = None
        self.kernel = ""
        self._current = 0
        self.handle = self.call("cuDeviceGet", number)
        self.context = self.call("cuDevicePrimaryCtxRetain", self.handle)
        self._current = int(self.context)
        self.name = self.call("cuDeviceGetName", 100, self.handle).split(b"\0")[0].decode()
        self.major, self.minor = (self.attribute(f"COMPUTE_CAPABILITY_{n}") for n in ("MAJOR", "MINOR"))
        self.arch = f"sm_{self.major}{self.minor}"
        self.shared_optin = self.attribute("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN")

    def __str__(self) -> str:
        return f"cuda:{self.number}"

    def attribute(self, name: str) -> int:
        """A number of the driver's, ``CU_DEVICE_ATTRIBUTE_`` left out."""
        kind = getattr(self.driver.CUdevice_attribute, "CU_DEVICE_ATTRIBUTE_" + name)
        return int(self.call("cuDeviceGetAttribute", kind, self.handle))

    def version(self) -> tuple[int, int]:
        """The CUDA release that the driver belongs to."""
        number = int(self.call("cuDriverGetVersion"))
        return number // 1000, number % 1000 // 10

    def call(self, name: str, *args: Any, kernel: str = "") -> Any:
        """A function of the driver, in this device's context; what it returns beside the error. CudaError."""
        if self.lost is not None:
            raise self.gone()
        with self.current():
            error, *results = getattr(self.driver, name)(*args)
        if error:
            raise self.failed(error, name, kernel)
        return results[0] if len(results) == 1 else results or None

    def quietly(self, name: str, handle: Any) -> None:
        """Give something back. Nothing can be done about an error then, and what a lost context had is gone."""
        if self.lost is None:
            with contextlib.suppress(CudaError):
                self.call(name, handle)

    @contextlib.contextmanager
    def current(self) -> Iterator[None]:
        """Makes this device's context the thread's, for a while."""
        if not self._current or int(self.driver.cuCtxGetCurrent()[1]) == self._current:
            yield
            return
        self.driver.cuCtxPushCurrent(self.context)
        try:
            yield
        finally:
            self.driver.cuCtxPopCurrent()

    def failed(self, error: Any, function: str, kernel: str = "") -> CudaError:
        """The exception for an error of the driver; remembers that the context is lost, if it is."""
        name, code, meaning = explain(self.driver, error)
        message = f"{name} ({code}): {meaning} ({function} on {self})"
        if code not in LOST:
            return CudaError(f"{kernel}: {message}" if kernel else message, name, code, meaning, kernel)
        blamed, hint = self.kernel or kernel, LOST[code]
        if blamed:
            message = f"{blamed}: {message}; a fault is told late, and {blamed} was the last kernel launched before"
            hint += ("; " if hint else "") + "the CPU device names the instruction: load the cubin with device='cpu'"
        found = CudaError(message, name, code, meaning, blamed, hint)
        self.lost = found
        return found

    def gone(self) -> ContextLost:
        """The exception for a use after the context was lost."""
        first = self.lost
        assert first is not None
        message = f"the context of {self} is lost since {first.name} ({first.code})"
        message += f", when {first.kernel} had been launched" if first.kernel else ""
        return ContextLost(message, first.name, first.code, first.meaning, first.kernel, "start the process anew")

    def synchronize(self) -> None:
        """Wait for all that was launched. CudaError for what a kernel did wrong."""
        self.call("cuCtxSynchronize")

    def runs(self, arch: str) -> bool:
        """Whether a cubin for ``arch`` runs here: the same major, no higher a minor version; sm_90a on 9.0 alone."""
        digits = arch.removeprefix("sm_")
        number = int(digits.rstrip("a"))
        if digits.endswith("a"):
            return number == 10 * self.major + self.minor
        return number // 10 == self.major and number % 10 <= self.minor

    def where(self, address: int) -> int:
        """On which GPU memory lies; HOST when the driver does not know it."""
        kind = self.driver.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
        error, number = self.driver.cuPointerGetAttribute(kind, address)
        if error in LOST:
            raise self.failed(error, "cuPointerGetAttribute")
        return HOST if error else int(number)


# ---- modules and kernels -----------------------------------------------------------------------------------------


class CudaModule(Module):
    """A cubin in a GPU's memory."""

    def __init__(self, cubin: Cubin, gpu: Device) -> None:
        super().__init__(cubin, str(gpu))
        self.gpu = gpu
        if not gpu.runs(cubin.arch):
            raise LaunchError(
                f"the cubin is for {cubin.arch}, {gpu} ({gpu.name}) is {gpu.arch}",
                f"assemble or compile it for {gpu.arch}, or run it on the CPU device: device='cpu'",
            )
        data = cubin.to_bytes()
        try:
            self._handle = gpu.call("cuModuleLoadData", data)
        except CudaError as error:
            raise self._refused(error) from None
        self.closed = False
        self._kernels: dict[str, CudaKernel] = {}
        self._lock = threading.Lock()  # held while the handle is used, so that nobody unloads the module then
        self._unload = weakref.finalize(self, gpu.quietly, "cuModuleUnload", self._handle)

    def _refused(self, error: CudaError) -> CudaError:
        """With what is known of the driver's and the cubin's age."""
        have, header = self.gpu.version(), self.cubin.header
        need = (13, 0) if header.abi_version >= 8 else divmod(header.version, 10)
        if error.code in TOO_OLD and have < need:
            text = f"the driver is of CUDA {have[0]}.{have[1]}, the cubin of CUDA {need[0]}.{need[1]}: {error.message}"
            hint = "update the driver, compile with an older CUDA, or run it on the CPU device: device='cpu'"
            return CudaError(text, error.name, error.code, error.meaning, hint=hint)
        return error

    def kernel(self, name: str | None = None) -> Kernel:
        with self._lock:
            self._open()
            code = find(self.cubin, name)
            if code.name not in self._kernels:
                handle = self.gpu.call("cuModuleGetFunction", self._handle, code.name.encode(), kernel=code.name)
                self._kernels[code.name] = CudaKernel(self, code, handle)
            return self._kernels[code.name]

    def variable(self, name: str) -> Any:
        try:
            with self._lock:
                self._open()
                address, size = self.gpu.call("cuModuleGetGlobal", self._handle, name.encode())
        except CudaError as error:
            if error.name == "CUDA_ERROR_NOT_FOUND":
                raise LaunchError(f"the cubin has no variable {name!r}") from None
            raise
        return Buffer.view(int(address), (size,), np.uint8, self.gpu, owner=self)

    def synchronize(self) -> None:
        self.gpu.synchronize()

    def close(self) -> None:
        with self._lock:
            self.closed = True
            self._kernels.clear()
            self._unload()

    def _open(self) -> None:
        if self.closed:
            raise LaunchError("the module is closed")


class CudaKernel(Kernel):
    """A kernel in a GPU's memory. What a launch needs is prepared once: for each mix of argument types a packer, for
    each grid, block and shared memory the checked numbers."""

    module: CudaModule

    def __init__(self, module: CudaModule, code: Code, handle: Any) -> None:
        super().__init__(module, code.name)
        self.gpu, self.handle, self._code = module.gpu, handle, code
        self.params = sorted(code.params, key=lambda param: param.offset)
        self._labels = [label(n, param.name, code.name) for n, param in enumerate(self.params)]
        self._room = ctypes.create_string_buffer(max(1, code.param_bytes))
        base = ctypes.addressof(self._room)
        self._table = (ctypes.c_void_p * max(1, len(self.params)))(*(base + param.offset for param in self.params))
        self._table_address = ctypes.addressof(self._table)
        self._packers: dict[tuple[type, ...], Packer] = {}
        self._shapes: dict[Any, tuple[int, ...]] = {}
        self._early: dict[Any, Any] = {}  # what cuLaunchKernelEx takes
        self._dynamic = 0  # bytes of dynamic shared memory that were asked for
        self.registers, self.static, self.threads = (
            self.attribute(name) for name in ("NUM_REGS", "SHARED_SIZE_BYTES", "MAX_THREADS_PER_BLOCK")
        )

    def attribute(self, name: str) -> int:
        """A number of the driver's, ``CU_FUNC_ATTRIBUTE_`` left out."""
        self.module._open()
        kind = getattr(self.gpu.driver.CUfunction_attribute, "CU_FUNC_ATTRIBUTE_" + name)
        return int(self.gpu.call("cuFuncGetAttribute", kind, self.handle, kernel=self.name))

    def launch(
        self,
        grid: int | Sequence[int],
        block: int | Sequence[int],
        *args: Any,
        shared: int = 0,
        stream: Any = None,
        early: bool = False,
        **options: Any,
    ) -> None:
        gpu, module = self.gpu, self.module
        if gpu.lost is not None:
            raise gpu.gone()
        if options:
            raise LaunchError(f"{', '.join(options)}: only the CPU device has this", "load the cubin with device='cpu'")
        try:
            numbers = self._shapes[grid, block, shared]
        except (KeyError, TypeError):  # new, or a list
            with module._lock:
                module._open()
                numbers = self._shape(grid, block, shared)
        types = tuple(map(type, args))
        packer = self._packers.get(types) or self._packer(types, args)
        handle = packer.stream(args) if stream is None else stream if type(stream) is int else handle_of(stream)
        values = [take(value, handle) for take, value in zip(packer.takes, args)]
        bindings = gpu.driver
        with module._lock:
            module._open()
            try:
                packer.pack_into(self._room, 0, *values)
            except (struct.error, OverflowError, TypeError):
                self._explain(args)
                raise
            table = self._table_address
            if early and gpu.major >= EARLY:
                name, given = "cuLaunchKernelEx", (self._begins_early(numbers, handle), self.handle, table, 0)
            else:
                name, given = "cuLaunchKernel", (self.handle, *numbers, handle, table, 0)
            if int(bindings.cuCtxGetCurrent()[1]) == gpu._current:
                (error,) = getattr(bindings, name)(*given)
            else:
                with gpu.current():
                    (error,) = getattr(bindings, name)(*given)
        if error:
            raise gpu.failed(error, name, self.name)
        gpu.kernel = self.name

    # -- preparation

    def _shape(self, grid: int | Sequence[int], block: int | Sequence[int], shared: int) -> tuple[int, ...]:
        """Grid, block and dynamic shared memory as cuLaunchKernel takes them; more than 48 KB asked for."""
        grid3, block3, threads = shape(grid, block)
        if threads > self.threads:
            raise LaunchError(
                f"a block of {threads} threads; {self.name} can have {self.threads} on {self.gpu.arch}",
                f"it takes {self.registers} registers a thread, or its launch bounds say so",
            )
        if not isinstance(shared, (int, np.integer)) or shared < 0:
            raise LaunchError(f"{shared} bytes of shared memory")
        if self.static + shared > self.gpu.shared_optin:
            raise LaunchError(
                f"{self.name} needs {self.static + shared} bytes of shared memory ({self.static} static, {shared} "
                f"dynamic); {self.gpu.arch} has {self.gpu.shared_optin} a block"
            )
        if self.static + shared > STATIC and shared > self._dynamic:
            most = self.gpu.shared_optin - self.static
            kind = self.gpu.driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            self.gpu.call("cuFuncSetAttribute", self.handle, kind, most, kernel=self.name)
            self._dynamic = most
        found = (*grid3, *block3, int(shared))
        if len(self._shapes) >= SHAPES:
            self._shapes.clear()
        with contextlib.suppress(TypeError):
            self._shapes[grid, block, shared] = found
        return found

    def _begins_early(self, numbers: tuple[int, ...], stream: int) -> Any:
        """The CUlaunchConfig of a launch that may begin before the kernel before it has ended."""
        found = self._early.get((numbers, stream))
        if found is None:
            driver = self.gpu.driver
            value, early, found = driver.CUlaunchAttributeValue(), driver.CUlaunchAttribute(), driver.CUlaunchConfig()
            value.programmaticStreamSerializationAllowed = 1
            early.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
            early.value = value
            sizes = [f"{of}Dim{axis}" for of in ("grid", "block") for axis in "XYZ"]
            for name, number in zip([*sizes, "sharedMemBytes"], numbers):
                setattr(found, name, number)
            found.hStream, found.attrs, found.numAttrs = stream, [early], 1
            if len(self._early) >= SHAPES:
                self._early.clear()
            self._early[numbers, stream] = found
        return found

    def _packer(self, types: tuple[type, ...], args: Sequence[Any]) -> Packer:
        check_count(self.name, self.params, args)
        for number, (param, value, name) in enumerate(zip(self.params, args, self._labels)):
            warn_of_bits(self._code, number, param, value, name)
        made = Packer(self.gpu, self.params, self._labels, args)
        self._packers[types] = made
        return made

    def _explain(self, args: Sequence[Any]) -> None:
        """Raise the LaunchError for arguments that do not fit their parameters."""
        for value, param, name in zip(args, self.params, self._labels):
            if kind_of(value) is None:
                scalar(value, param.size, name, param.type)


class Packer:
    """Arguments of certain types -> the parameter area: for each a function that turns it into what ``pack_into``
    takes, and the stream that the first array with a stream of its own asks for."""

    def __init__(self, gpu: Device, params: Sequence[Param], labels: Sequence[str], args: Sequence[Any]) -> None:
        self.takes: list[Callable[[Any, int], Any]] = []
        self.stream: Callable[[Sequence[Any]], int] = lambda args: 0
        layout, end, found = "<", 0, False
        for number, (param, name, value) in enumerate(zip(params, labels, args)):
            kind = kind_of(value)
            if kind is not None and kind.stream is not None and not found:
                self.stream, found = functools.partial(_stream_of, kind.stream, number), True
            code, take = _pointer(gpu, kind, param, name) if kind else _number(value, param, name)
            layout += f"{param.offset - end}x{code}"
            end = param.offset + param.size
            self.takes.append(take)
        self.pack_into = struct.Struct(layout).pack_into


def _stream_of(ask: Callable[[Any], int], number: int, args: Sequence[Any]) -> int:
    return ask(args[number])


def _pointer(gpu: Device, kind: Kind, param: Param, name: str) -> tuple[str, Callable[[Any, int], Any]]:
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

    return "Q", take


def _number(value: Any, param: Param, name: str) -> tuple[str, Callable[[Any, int], Any]]:
    """The common types by way of struct; all others by their bytes."""
    size, kind = param.size, type(value)
    if param.type:
        scalar(value, size, name, param.type)
        return f"{size}s", lambda value, stream: scalar(value, size, name, param.type)
    if kind in (int, bool) and size in INTS:
        low, high = -(1 << 8 * size - 1), 1 << 8 * size
        mask = high - 1

        def integer(value: int, stream: int) -> int:
            if low <= value < high:
                return value & mask
            scalar(value, size, name)  # says what is wrong
            raise AssertionError(value)

        return INTS[size], integer
    if kind is float and size in FLOATS:
        return FLOATS[size], _same
    if isinstance(value, np.generic) and value.dtype.char in CODES and value.dtype.itemsize == size:
        return CODES[value.dtype.char], _same
    scalar(value, size, name)
    return f"{size}s", lambda value, stream: scalar(value, size, name)


def _same(value: Any, stream: int) -> Any:
    return value


def handle_of(stream: Any) -> int:
    """The number of a stream of cuda-python, PyTorch, CuPy, or anything with ``__cuda_stream__``."""
    for name in ("cuda_stream", "ptr"):
        if isinstance(found := getattr(stream, name, None), int):
            return found
    if hasattr(stream, "__cuda_stream__"):
        given = stream.__cuda_stream__
        return int((given() if callable(given) else given)[1])
    try:
        return int(stream)
    except (TypeError, ValueError):
        raise LaunchError(f"stream is a {type(stream).__name__}", "a number, or a stream of a CUDA library") from None


# ---- memory ------------------------------------------------------------------------------------------------------


class Buffer:
    """Memory on a GPU, seen as an array in C order: ``shape``, ``dtype``, ``nbytes``, ``address``.

    Freed (``freed``) by ``free`` or ``with``, at the latest with the object. New memory holds anything. It has
    ``__cuda_array_interface__``, so that PyTorch, CuPy and others take it without a copy. Copies return when they are
    done, behind what ``stream`` (the default stream unless said otherwise) still had to do.
    """

    def __init__(self, shape: int | Sequence[int], dtype: Any = np.float32, device: str | Device = "cuda:0") -> None:
        gpu = device_named(device)
        self._describe(shape, dtype, gpu)
        self.address = int(gpu.call("cuMemAlloc", self.nbytes)) if self.nbytes else 0
        self.freed = False
        self._owner: CudaModule | None = None
        self._free = weakref.finalize(self, gpu.quietly, "cuMemFree", self.address) if self.nbytes else None

    @classmethod
    def of(cls, array: Any, device: str | Device = "cuda:0") -> Buffer:
        """A copy of a numpy array."""
        array = np.asarray(array)
        made = cls(array.shape, array.dtype, device)
        made.copy_from(array)
        return made

    @classmethod
    def view(
        cls, address: int, shape: int | Sequence[int], dtype: Any, device: str | Device, owner: CudaModule
    ) -> Buffer:
        """Memory of a module, which stays loaded as long as the view is there, unless it is closed."""
        made = cls.__new__(cls)
        made._describe(shape, dtype, device_named(device))
        made.freed, made.address, made._owner, made._free = False, address, owner, None
        return made

    def _describe(self, shape: int | Sequence[int], dtype: Any, gpu: Device) -> None:
        self.gpu, self.dtype = gpu, np.dtype(dtype)
        self.shape = (operator.index(shape),) if not isinstance(shape, Sequence) else tuple(map(operator.index, shape))
        if min(self.shape, default=0) < 0 or self.dtype.hasobject or not self.dtype.isnative:
            raise LaunchError(f"no buffer of shape {self.shape} and type {self.dtype}")
        self.nbytes = int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        self._check()
        return {"shape": self.shape, "typestr": self.dtype.str, "data": (self.address, False), "version": 3,
                "strides": None, "stream": None}  # fmt: skip

    def copy_from(self, array: Any, stream: Any = None) -> Buffer:
        """Fill it with a numpy array of the same shape and type. Returns itself."""
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
        """Set every byte; queued on the stream. Returns itself."""
        self._check()
        if self.nbytes:
            self.gpu.call("cuMemsetD8Async", self.address, byte, self.nbytes, handle_of(stream))
        return self

    def free(self) -> None:
        """Give the memory back; waits for kernels that may use it."""
        if self._free is not None:
            self.freed = True
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
        if self.freed or (self._owner is not None and self._owner.closed):
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


register(Buffer, _read_buffer)


class Stream:
    """A stream of its own, not ordered with the default stream. ``handle`` is its number, which ``launch`` takes."""

    def __init__(self, device: str | Device = "cuda:0") -> None:
        self.gpu = device_named(device)
        flags = self.gpu.driver.CUstream_flags.CU_STREAM_NON_BLOCKING
        made = self.gpu.call("cuStreamCreate", int(flags))
        self.handle = int(made)
        self._destroy = weakref.finalize(self, self.gpu.quietly, "cuStreamDestroy", made)

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.handle

    def synchronize(self) -> None:
        """Wait for what was queued. CudaError for what a kernel did wrong."""
        self.gpu.call("cuStreamSynchronize", self.handle)

    def close(self) -> None:
        """Give it back; what was queued is still done."""
        self._destroy()

    def __enter__(self) -> Stream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class Graph:
    """Launches recorded once and queued again and again with one call of the driver.

    ``record(stream)`` is called once and queues on the stream that it is given; nothing runs then. The arguments, grid
    and block of each launch are what they were; the arrays must stay where they are.
    """

    def __init__(self, record: Callable[[Stream], object], device: str | Device = "cuda:0") -> None:
        self.gpu = gpu = device_named(device)
        mode = gpu.driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
        with Stream(gpu) as stream:
            gpu.call("cuStreamBeginCapture", stream.handle, mode)
            try:
                record(stream)
            except BaseException:
                failed, graph = gpu.driver.cuStreamEndCapture(stream.handle)  # the first error is the one to tell
                if not failed:
                    gpu.quietly("cuGraphDestroy", graph)
                raise
            graph = gpu.call("cuStreamEndCapture", stream.handle)
        try:
            self._exec = gpu.call("cuGraphInstantiate", graph, 0)
        finally:
            gpu.quietly("cuGraphDestroy", graph)
        self._destroy = weakref.finalize(self, gpu.quietly, "cuGraphExecDestroy", self._exec)

    def launch(self, stream: Any = 0) -> None:
        """Queue it all."""
        if not self._destroy.alive:
            raise LaunchError("the graph is closed")
        self.gpu.call("cuGraphLaunch", self._exec, handle_of(stream))

    def close(self) -> None:
        """Give it back."""
        self._destroy()

    def __enter__(self) -> Graph:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
