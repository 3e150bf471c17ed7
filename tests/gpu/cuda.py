"""CUDA's driver through cuda-python, as far as the tests on a GPU need it."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from turingas.cubin.cubin import Cubin


class Gpu:
    """The driver, as far as these tests need it."""

    def __init__(self) -> None:
        self.driver = pytest.importorskip("cuda.bindings.driver")
        try:
            self.call("cuInit", 0)
            self.device = self.call("cuDeviceGet", 0)
        except RuntimeError as error:
            pytest.skip(f"no GPU: {error}")
        kinds = self.driver.CUdevice_attribute
        major = self.call("cuDeviceGetAttribute", kinds.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, self.device)
        minor = self.call("cuDeviceGetAttribute", kinds.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, self.device)
        if (major, minor) != (9, 0):
            pytest.skip(f"these kernels are for sm_90, not sm_{major}{minor}")
        self.context = self.call("cuDevicePrimaryCtxRetain", self.device)
        self.call("cuCtxSetCurrent", self.context)

    def call(self, name: str, *args: Any) -> Any:
        error, *results = getattr(self.driver, name)(*args)
        if int(error) != 0:
            raise RuntimeError(f"{name}: {error}")
        return results[0] if len(results) == 1 else results

    def load(self, cubin: Cubin | bytes) -> Any:
        return self.call("cuModuleLoadData", cubin if isinstance(cubin, bytes) else cubin.to_bytes())

    def function(self, cubin: Cubin | bytes, name: str = "kern") -> Any:
        return self.call("cuModuleGetFunction", self.load(cubin), name.encode())

    def attribute(self, function: Any, name: str) -> int:
        return int(self.call("cuFuncGetAttribute", getattr(self.driver.CUfunction_attribute, name), function))

    def buffer(self, data: bytes) -> Any:
        pointer = self.call("cuMemAlloc", len(data))
        self.call("cuMemcpyHtoD", pointer, data, len(data))
        return pointer

    def read(self, pointer: Any, size: int) -> bytes:
        data = bytearray(size)
        self.call("cuMemcpyDtoH", data, pointer, size)
        return bytes(data)

    def launch(self, function: Any, threads: int, *args: tuple[Any, Any], blocks: int = 1, shared: int = 0) -> None:
        values, types = tuple(value for value, _ in args), tuple(kind for _, kind in args)
        self.call("cuLaunchKernel", function, blocks, 1, 1, threads, 1, 1, shared, 0, (values, types), 0)
        self.call("cuCtxSynchronize")

    def description(self) -> dict[str, Any]:
        """Name, driver and clocks (of SM and memory, at most), as a result is dated with."""
        kinds = self.driver.CUdevice_attribute
        clocks = {}
        for name in ("CLOCK_RATE", "MEMORY_CLOCK_RATE"):
            kind = getattr(kinds, f"CU_DEVICE_ATTRIBUTE_{name}")
            clocks[name.lower()[:-5]] = self.call("cuDeviceGetAttribute", kind, self.device) // 1000
        name = self.call("cuDeviceGetName", 100, self.device).split(b"\0")[0].decode()
        version = self.call("cuDriverGetVersion")
        query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        driver = subprocess.run(query, capture_output=True, text=True, check=True).stdout.split()[0]
        return {"gpu": name, "driver": driver, "cuda": f"{version // 1000}.{version % 1000 // 10}", "mhz": clocks}

    def run(
        self, cubin: bytes, name: str, grid: Sequence[int], block: Sequence[int], args: Sequence[Any], shared: int = 0
    ) -> None:
        """Runs a kernel on numpy arguments and waits: arrays are copied to the GPU and back into place, all else is
        passed as its bytes."""
        module = self.load(cubin)
        function = self.call("cuModuleGetFunction", module, name.encode())
        if shared > 48 * 1024:
            kind = self.driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            self.call("cuFuncSetAttribute", function, kind, shared)
        buffers, values = [], []
        for arg in args:
            if isinstance(arg, np.ndarray):
                buffers.append((arg, self.buffer(arg.tobytes())))
                values.append(int(buffers[-1][1]).to_bytes(8, "little"))
            else:
                values.append(arg.tobytes())
        rooms = [ctypes.create_string_buffer(value, len(value)) for value in values]
        table = (ctypes.c_void_p * len(rooms))(*(ctypes.addressof(room) for room in rooms))
        sizes = [*(tuple(grid) + (1, 1))[:3], *(tuple(block) + (1, 1))[:3]]
        self.call("cuLaunchKernel", function, *sizes, shared, 0, ctypes.addressof(table), 0)
        self.call("cuCtxSynchronize")
        for array, address in buffers:
            array[...] = np.frombuffer(self.read(address, array.nbytes), array.dtype).reshape(array.shape)
            self.call("cuMemFree", address)
        self.call("cuModuleUnload", module)
