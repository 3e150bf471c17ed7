"""A driver without a GPU: the functions of ``cuda.bindings.driver`` that the loader calls, over the CPU device.

It answers as cuda-python does (a tuple, its first element the error), runs a kernel when it is launched, and tells a
fault at the next call, as a GPU does. ``calls`` are the names of the functions called.
"""

from __future__ import annotations

import bisect
import collections
import ctypes
import threading
import time
import types
from enum import IntEnum
from typing import Any

import numpy as np

from turingas import emulate
from turingas.errors import LaunchError
from turingas.tensor_map import TYPES, Layout


def enum(name: str, *names: str, **values: int) -> Any:
    return IntEnum(name, {**{n: i for i, n in enumerate(names)}, **values})


ERRORS = enum("CUresult", CUDA_SUCCESS=0, CUDA_ERROR_INVALID_VALUE=1, CUDA_ERROR_OUT_OF_MEMORY=2,
              CUDA_ERROR_NOT_INITIALIZED=3, CUDA_ERROR_NO_DEVICE=100, CUDA_ERROR_INVALID_IMAGE=200,
              CUDA_ERROR_INVALID_CONTEXT=201, CUDA_ERROR_NO_BINARY_FOR_GPU=209,
              CUDA_ERROR_NOT_FOUND=500, CUDA_ERROR_ILLEGAL_ADDRESS=700)  # fmt: skip


class Names:
    """An enumeration of which only the names matter."""

    def __getattr__(self, name: str) -> str:
        return name


def _number(word: str) -> int:
    return 0 if word == "NONE" else int(word)


class Driver:
    """``gpus`` of compute capability ``major``.``minor``; ``version`` as cuDriverGetVersion has it."""

    CUresult = ERRORS
    CUdevice_attribute = enum("CUdevice_attribute", *("CU_DEVICE_ATTRIBUTE_" + name for name in (
        "COMPUTE_CAPABILITY_MAJOR", "COMPUTE_CAPABILITY_MINOR", "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN", "L2_CACHE_SIZE",
        "MULTIPROCESSOR_COUNT", "CLOCK_RATE", "MEMORY_CLOCK_RATE",
    )))  # fmt: skip
    CUfunction_attribute = enum("CUfunction_attribute", *("CU_FUNC_ATTRIBUTE_" + name for name in (
        "NUM_REGS", "SHARED_SIZE_BYTES", "MAX_THREADS_PER_BLOCK", "MAX_DYNAMIC_SHARED_SIZE_BYTES",
        "NON_PORTABLE_CLUSTER_SIZE_ALLOWED",
    )))  # fmt: skip
    CUpointer_attribute = enum("CUpointer_attribute", "CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL")
    CUstream_flags = enum("CUstream_flags", CU_STREAM_NON_BLOCKING=1)
    CUstreamCaptureMode = enum("CUstreamCaptureMode", CU_STREAM_CAPTURE_MODE_GLOBAL=0,
                               CU_STREAM_CAPTURE_MODE_THREAD_LOCAL=1, CU_STREAM_CAPTURE_MODE_RELAXED=2)  # fmt: skip

    def __init__(self, gpus: int = 2, major: int = 7, minor: int = 5, version: int = 12090) -> None:
        self.gpus, self.major, self.minor, self.version = gpus, major, minor, version
        self.devices = [emulate.Device(f"sm_{major}{minor}") for _ in range(gpus)]
        for number, device in enumerate(self.devices):
            device.memory._next += number << 40  # no address twice
        self.handles: dict[int, Any] = {}
        self.calls: collections.Counter[str] = collections.Counter()
        self.launches: list[tuple[Any, ...]] = []
        self.told: list[dict[str, Any]] = []  # of each launch: cluster, cooperative
        self.early = 0  # launches that may begin before the one before has ended
        self.streams: set[int] = set()
        self.given_back: list[int] = []  # the capture mode in which each graph was
        self.copying: set[int] = set()  # streams with a copy from the host that nobody has waited for
        self.captured: dict[int, list[Any]] = {}
        self.fails: dict[str, int] = {}  # function -> the error it is to return
        self.sticky = 0
        self.next = 100  # handles that are no numbers of CUDA's own streams
        self.thread = threading.local()
        self.missing: Exception | None = None
        self.busy = threading.RLock()  # many threads may call a driver, the CPU device's memory one at a time

    def __getattr__(self, name: str) -> Any:
        """cuX: counted; fails where it is told to, and always after a fault."""
        function = object.__getattribute__(self, "do_" + name)

        def called(*args: Any) -> tuple[Any, ...]:
            with self.busy:
                self.calls[name] += 1
                error = self.fails.get(name) or (self.sticky if name not in FREE else 0)
                found = ERRORS(error) if error else function(*args)
            if isinstance(found, ERRORS):  # with a None for each result
                return (found,) if name in VOID or function.__annotations__["return"] == "None" else (found, None)
            return (ERRORS.CUDA_SUCCESS, *(found if isinstance(found, tuple) else () if found is None else (found,)))

        return called

    def made(self, thing: Any) -> int:
        self.next += 1
        self.handles[self.next] = thing
        return self.next

    # -- devices and contexts

    def do_cuInit(self, flags: int) -> Any:
        if self.missing:
            raise self.missing
        return None if self.gpus else ERRORS.CUDA_ERROR_NO_DEVICE

    def do_cuGetErrorName(self, error: int) -> bytes:
        return ERRORS(error).name.encode()

    def do_cuGetErrorString(self, error: int) -> bytes:
        return f"what {int(error)} means".encode()

    def do_cuDeviceGetCount(self) -> int:
        return self.gpus

    def do_cuDriverGetVersion(self) -> int:
        return self.version

    def do_cuOccupancyMaxActiveClusters(self, handle: int, config: Any) -> int:
        """A block on each multiprocessor."""
        kind = self.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
        (size,) = (int(one.value.clusterDim.x) for one in config.attrs if int(one.id) == 4)
        return self.do_cuDeviceGetAttribute(kind, 0) // size

    def do_cuDeviceGet(self, number: int) -> int:
        return number

    def do_cuDevicePrimaryCtxRetain(self, device: int) -> int:
        return 1000 + device

    def do_cuCtxGetCurrent(self) -> int:
        return int(getattr(self.thread, "stack", [0])[-1])

    def do_cuCtxPushCurrent(self, context: int) -> None:
        self.thread.stack = [*getattr(self.thread, "stack", [0]), context]

    def do_cuCtxPopCurrent(self) -> int:
        return int(self.thread.stack.pop())

    def do_cuCtxSynchronize(self) -> None:
        self.here()

    def do_cuDeviceGetName(self, size: int, device: int) -> bytes:
        return f"Fake {device}".encode().ljust(size, b"\0")

    def do_cuDeviceGetPCIBusId(self, size: int, device: int) -> bytes:
        return b"0000:ff:1f.0".ljust(size, b"\0")

    def do_cuDeviceGetAttribute(self, kind: int, device: int) -> int:
        return (self.major, self.minor, self.devices[0].arch.shared_optin, 1 << 16, 3, 1_000_000, 2_000_000)[kind]

    def here(self) -> emulate.Device:
        context = self.do_cuCtxGetCurrent()
        assert context, "no context is current"
        return self.devices[context - 1000]

    # -- modules

    def do_cuModuleLoadData(self, data: bytes) -> int:
        return self.made(self.here().load(data))

    def do_cuModuleUnload(self, handle: int) -> None:
        del self.handles[handle]

    def do_cuModuleGetFunction(self, handle: int, name: bytes) -> int:
        module = self.handles[handle]
        return self.made([module, module.kernel(name.decode()), 48 * 1024])

    def do_cuModuleGetGlobal(self, handle: int, name: bytes) -> Any:
        return self.handles[handle].globals.get(name.decode(), ERRORS.CUDA_ERROR_NOT_FOUND)

    def do_cuFuncGetAttribute(self, kind: int, handle: int) -> int:
        kernel = self.handles[handle][1]
        warps = 65536 // (32 * -(-kernel.registers // 8) * 8) // 4 * 4  # registers are given out by 8, warps by 4
        static = max(0, kernel.shared_bytes - 1024) if self.major >= 9 else kernel.shared_bytes  # without the system's
        return (kernel.registers, static, min(1024, 32 * warps))[kind]

    def do_cuFuncSetAttribute(self, handle: int, kind: int, value: int) -> None:
        if kind == self.CUfunction_attribute.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
            return
        assert kind == self.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        self.handles[handle][2] = value

    class CUlaunchConfig:
        """With the other two what cuLaunchKernelEx takes."""

        @property
        def hStream(self) -> int:
            return self._stream

        @hStream.setter
        def hStream(self, stream: Any) -> None:
            if not 0 <= int(stream) < 1 << 64:
                raise OverflowError("as cuda-python does")
            self._stream = stream

    class CUlaunchAttribute:
        pass

    class CUlaunchAttributeValue:
        def __init__(self) -> None:
            self.clusterDim = types.SimpleNamespace()

    CUlaunchAttributeID = enum("CUlaunchAttributeID", CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION=6,
                               CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION=4, CU_LAUNCH_ATTRIBUTE_COOPERATIVE=2)  # fmt: skip

    def do_cuLaunchKernelEx(self, config: Any, handle: int, table: int, extra: int) -> Any:
        told = {int(one.id): one.value for one in config.attrs}
        assert config.numAttrs == len(config.attrs) == len(told) and extra == 0 and told.keys() <= {2, 4, 6}
        early = 6 in told
        assert not early or told[6].programmaticStreamSerializationAllowed == 1
        options: dict[str, Any] = {}
        if 4 in told:
            options["cluster"] = tuple(getattr(told[4].clusterDim, axis) for axis in "xyz")
        if 2 in told:
            options["cooperative"] = told[2].cooperative == 1
        shape = [getattr(config, f"{of}Dim{axis}") for of in ("grid", "block") for axis in "XYZ"]
        shared, stream = config.sharedMemBytes, config.hStream
        module, kernel, most = self.handles[handle]
        assert module.device is self.here()
        assert not self.copying - {stream}, "a kernel on one stream, its input still on the way on another"
        if shared > most:
            return ERRORS.CUDA_ERROR_INVALID_VALUE
        launch = (module, kernel.name, shape[:3], shape[3:], self.arguments(kernel, table), shared, options)
        self.early += early
        self.told.append(options)
        if stream in self.captured:
            self.captured[stream].append((handle, launch))
        else:
            self.launched(launch, stream)
        return None

    def launched(self, launch: tuple[Any, ...], stream: int) -> None:
        _, name, grid, block, _, shared, _ = launch
        self.launches.append((name, (*grid, *block), shared, stream))
        self.run(launch)

    def arguments(self, kernel: Any, table: int) -> list[bytes]:
        """The bytes of each parameter."""
        params = sorted(kernel.params, key=lambda p: p.offset)
        pointers = (ctypes.c_void_p * len(params)).from_address(table)
        return [ctypes.string_at(pointers[n], param.size) for n, param in enumerate(params)]

    # -- tensor maps: as the CPU device reads them

    CUtensorMapDataType = CUtensorMapInterleave = CUtensorMapSwizzle = Names()
    CUtensorMapL2promotion = CUtensorMapFloatOOBfill = Names()
    cuuint64_t = cuuint32_t = int

    def do_cuTensorMapEncodeTiled(self, kind: str, rank: int, address: int, dims: Any, strides: Any, box: Any,
                                  steps: Any, *last: str) -> Any:  # fmt: skip
        return self.tensor_map(kind, address, dims, strides, box, steps, last)

    def do_cuTensorMapEncodeIm2col(self, kind: str, rank: int, address: int, dims: Any, strides: Any, lower: Any,
                                   upper: Any, channels: int, pixels: int, steps: Any, *last: str) -> Any:  # fmt: skip
        more = {"channels": channels, "pixels": pixels, "lower": tuple(lower), "upper": tuple(upper)}
        return self.tensor_map(kind, address, dims, strides, (), steps, last, **more)

    def tensor_map(self, kind: str, address: int, dims: Any, strides: Any, box: Any, steps: Any, last: Any,
                   **more: Any) -> Any:  # fmt: skip
        interleave, swizzle, _, fill = (one.rpartition("_")[2].removesuffix("B") for one in last)
        (dtype,) = (name for name, (*_, theirs) in TYPES.items() if kind == "CU_TENSOR_MAP_DATA_TYPE_" + theirs)
        strides = tuple(strides)[: len(dims) - 1]  # the driver wants one even where there is none
        layout = Layout(dtype, tuple(dims), strides, tuple(box), tuple(steps), _number(interleave),
                        _number(swizzle), "zero" if fill == "NONE" else "nan", **more)  # fmt: skip
        try:
            layout.check()
            data = layout.pack(address)
        except LaunchError:
            return ERRORS.CUDA_ERROR_INVALID_VALUE
        words = [int.from_bytes(data[at : at + 8], "little") for at in range(0, len(data), 8)]
        return types.SimpleNamespace(opaque=words)

    def run(self, launch: tuple[Any, ...]) -> None:
        module, *rest, options = launch
        try:
            module.launch(*rest, **options)
        except emulate.DeviceError:
            self.sticky = ERRORS.CUDA_ERROR_ILLEGAL_ADDRESS

    # -- memory

    def do_cuMemAlloc(self, size: int) -> Any:
        return self.here().memory.add(size) if size else ERRORS.CUDA_ERROR_INVALID_VALUE

    def do_cuMemFree(self, address: int) -> None:
        self.here().memory.remove(address)

    def from_address(self, address: int) -> Any:
        """From there to the end of the allocation."""
        memory = self.here().memory
        base = memory._bases[bisect.bisect_right(memory._bases, address) - 1]
        return memory.view(base)[address - base :]

    def do_cuMemcpyHtoDAsync(self, to: int, source: int, size: int, stream: int) -> None:
        self.copying.add(stream)
        self.from_address(to)[:size] = np.frombuffer(ctypes.string_at(source, size), np.uint8)

    def do_cuMemcpyDtoHAsync(self, to: int, source: int, size: int, stream: int) -> None:
        ctypes.memmove(to, self.from_address(source)[:size].tobytes(), size)

    def do_cuMemcpyDtoDAsync(self, to: int, source: int, size: int, stream: int) -> None:
        self.from_address(to)[:size] = self.from_address(source)[:size]

    def do_cuMemsetD8Async(self, to: int, byte: int, size: int, stream: int) -> None:
        self.from_address(to)[:size] = byte

    def do_cuPointerGetAttribute(self, kind: int, address: int) -> Any:
        for number, device in enumerate(self.devices):
            bases = device.memory._bases
            at = bisect.bisect_right(bases, address) - 1
            if at >= 0 and address - bases[at] < len(device.memory.view(bases[at])):
                return number
        return ERRORS.CUDA_ERROR_INVALID_VALUE

    # -- streams, events, graphs

    def do_cuStreamCreate(self, flags: int) -> int:
        self.streams.add(self.made("stream"))
        return self.next

    def do_cuStreamDestroy(self, stream: int) -> None:
        self.streams.remove(stream)

    def do_cuStreamSynchronize(self, stream: int) -> None:
        assert stream == 0 or stream in self.streams
        self.copying.discard(stream)

    def do_cuStreamBeginCapture(self, stream: int, mode: int) -> None:
        self.captured[stream] = []

    def do_cuStreamIsCapturing(self, stream: int) -> int:
        return int(stream in self.captured)

    def do_cuThreadExchangeStreamCaptureMode(self, mode: int) -> int:
        before, self.thread.mode = getattr(self.thread, "mode", self.CUstreamCaptureMode(0)), mode
        return before  # type: ignore[no-any-return]

    def do_cuStreamEndCapture(self, stream: int) -> int:
        return self.made(self.captured.pop(stream))

    def do_cuGraphInstantiate(self, graph: int, flags: int) -> int:
        return self.made([launch for _, launch in self.handles[graph]])

    def do_cuGraphGetNodes(self, graph: int, count: int) -> tuple[list[tuple[int, int]], int]:
        nodes = [(graph, number) for number in range(len(self.handles[graph]))]
        return nodes[::-1][:count], len(nodes)  # in no order

    def do_cuGraphKernelNodeGetParams(self, node: tuple[int, int]) -> Any:
        return types.SimpleNamespace(func=self.handles[node[0]][node[1]][0], kernelParams=0)

    def do_cuGraphExecKernelNodeSetParams(self, ready: int, node: tuple[int, int], params: Any) -> None:
        graph, number = node
        assert graph in self.handles and params.func == self.handles[graph][number][0]
        module, name, grid, block, _, *more = self.handles[ready][number]
        args = self.arguments(self.handles[params.func][1], params.kernelParams)
        self.handles[ready][number] = module, name, grid, block, args, *more

    def do_cuGraphDestroy(self, graph: int) -> None:
        del self.handles[graph]

    def do_cuGraphExecDestroy(self, graph: int) -> None:
        self.given_back.append(int(getattr(self.thread, "mode", 0)))
        del self.handles[graph]

    def do_cuGraphLaunch(self, graph: int, stream: int) -> None:
        for launch in self.handles[graph]:
            self.launched(launch, stream)

    def do_cuEventCreate(self, flags: int) -> int:
        return self.made([0.0])

    def do_cuEventRecord(self, event: int, stream: int) -> None:
        self.handles[event][0] = time.perf_counter()

    def do_cuEventElapsedTime(self, first: int, last: int) -> float:
        return 1e3 * float(self.handles[last][0] - self.handles[first][0])

    def do_cuEventDestroy(self, event: int) -> None:
        del self.handles[event]


#: functions that answer even after a fault
FREE = {"cuGetErrorName", "cuGetErrorString", "cuCtxGetCurrent", "cuCtxPushCurrent", "cuCtxPopCurrent",
        "cuDriverGetVersion"}  # fmt: skip
VOID = {"cuInit", "cuLaunchKernelEx"}  # with those that return None: functions without a result
