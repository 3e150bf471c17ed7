"""Cubins and kernels in a GPU's memory."""

from __future__ import annotations

import contextlib
import inspect
import struct
import threading
import weakref
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from loader.arrays import kind_of, memory_of
from loader.cuda import written
from loader.cuda.errors import CudaError
from loader.cuda.gpu import Device
from loader.cuda.memory import Buffer
from loader.cuda.packer import Packer
from loader.cuda.prepared import Area, Prepared, configuration, launch_attributes, queue
from loader.cuda.streams import handle_of
from loader.cuda.written import Launch, Run
from loader.module import Given, Kernel, Module
from turingas.cubin.cubin import Cubin
from turingas.cubin.model import Kernel as Code
from turingas.errors import LaunchError
from turingas.forks import freed
from turingas.launch import check_array, check_count, cluster_of, find, label, scalar, shape, warn_of_bits
from turingas.tensor_map import NBYTES

TOO_OLD = {200, 209, 218, 222, 300}  # what an old driver says to a new cubin
STATIC = 48 * 1024  # bytes of shared memory that a block has without asking for more
PORTABLE = 8  # blocks of a cluster that every GPU with clusters takes
SHAPES = 256  # launches that a kernel remembers: sizes and types of arguments
UNFIT = struct.error, OverflowError, TypeError, RuntimeError  # what packing says to a value, and PyTorch of a tensor


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
        self._lock = freed(threading.RLock())  # held while the handle is used, so that nobody unloads the module then
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

    def kernel(self, name: str | None = None) -> CudaKernel:
        with self._lock:
            self._open()
            code = find(self.cubin, name or self.chosen)
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

    def queue_of_tuples(self, launches: Sequence[Prepared], count: int = 0, together: bool = False) -> Run:
        return queue(launches, count, together)

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


def _no_option(options: Mapping[str, Any]) -> Exception:
    """For options that a launch on a GPU does not have."""
    from loader.cpu import CpuKernel, unknown

    theirs = inspect.signature(CpuKernel.launch).parameters
    if all(name in theirs for name in options):
        return LaunchError(f"{', '.join(options)}: only the CPU device has this", "load the cubin with device='cpu'")
    mine = inspect.signature(CudaKernel.launch).parameters.values()
    known = [one.name for one in mine if one.kind == one.KEYWORD_ONLY]
    return unknown(next(name for name in options if name not in theirs), known, "launch on a GPU")


class CudaKernel(Kernel):
    """A kernel in a GPU's memory. What a launch needs is prepared once: for each mix of argument types a packer, for
    each grid, block and shared memory the checked numbers, and for both together what the driver is told."""

    module: CudaModule

    def __init__(self, module: CudaModule, code: Code, handle: Any) -> None:
        super().__init__(module, code.name)
        self.gpu, self.handle, self._code = module.gpu, handle, code
        self.params = sorted(code.params, key=lambda param: param.offset)
        self._labels = [label(n, param.name, code.name) for n, param in enumerate(self.params)]
        self._area = Area(self.params, code.param_bytes)
        self._packers: dict[tuple[type, ...], Packer] = {}
        self._ready: dict[Any, Launch] = {}
        self._usual: dict[Any, Launch] = {}  # of those the last of each grid, block ..., whatever the types
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
        cluster: int | Sequence[int] | None = None,
        cooperative: bool = False,
        **options: Any,
    ) -> None:
        key = grid, block, shared, early, cluster, cooperative
        try:
            run = self._usual.get(key)
        except TypeError:  # a list
            run = None
        if run is None or options:
            run = self._prepare(key, args, options)
        try:
            if not run(args, stream):
                self._prepare(key, args, options)(args, stream)
        except CudaError:
            raise
        except UNFIT:
            self._explain(args, range(len(args)))
            handle_of(0 if stream is None else stream)
            raise

    def prepare(
        self,
        grid: int | Sequence[int],
        block: int | Sequence[int],
        *args: Any,
        shared: int = 0,
        early: bool = False,
        cluster: int | Sequence[int] | None = None,
    ) -> Prepared:
        check_count(self.name, self.params, args)
        given = {n: value.number for n, value in enumerate(args) if isinstance(value, Given)}
        for n in given:
            if self.params[n].size != NBYTES:  # or else the bytes of a tensor map are given
                check_array(self._labels[n], self.params[n].size, self.params[n].type)
        rest = [n for n in range(len(args)) if n not in given]
        values = [args[n] for n in rest]
        area, packer = Area(self.params, self._code.param_bytes), self._packer(values, rest)
        try:
            packer.pack_into(area.bytes, 0, *(take(value, 0) for take, value in zip(packer.takes, values)))
        except UNFIT:
            self._explain(values, rest)
            raise
        numbers = self._sizes(grid, block, shared)
        return Prepared(self, numbers, self._attributes(numbers, early, cluster, False), area, given)

    def clusters(self, cluster: int, block: int | Sequence[int], shared: int = 0) -> int:
        """Clusters of so many blocks that the GPU runs at the same time (cuOccupancyMaxActiveClusters). LaunchError,
        CudaError."""
        numbers = self._sizes(cluster, block, shared)
        config = configuration(self.gpu, numbers, self._attributes(numbers, False, cluster, False))
        return int(self.gpu.call("cuOccupancyMaxActiveClusters", self.handle, config, kernel=self.name))

    # -- preparation

    def _prepare(self, key: Any, args: Sequence[Any], options: Mapping[str, Any]) -> Launch:
        """What ``launch`` does not have to find out again."""
        if self.gpu.lost is not None:
            raise self.gpu.gone()
        if options:
            raise _no_option(options)
        types = tuple(map(type, args))
        with contextlib.suppress(TypeError):  # a list
            if (found := self._ready.get((key, types))) is not None:
                self._usual[key] = found
                return found
        grid, block, shared, early, cluster, cooperative = key
        numbers = self._sizes(grid, block, shared)
        attributes = self._attributes(numbers, early, cluster, cooperative)
        packer = self._packers.get(types)
        if packer is None:
            check_count(self.name, self.params, args)
            packer = self._packers[types] = self._packer(args, range(len(args)))
        step = self, configuration(self.gpu, numbers, attributes), self._area.table
        found = written.launch(step, packer, self._area.bytes, self.module._lock)
        if len(self._ready) >= SHAPES:
            self._ready.clear()
            self._usual.clear()
        with contextlib.suppress(TypeError):
            self._ready[key, types] = self._usual[key] = found
        return found

    def _sizes(self, grid: int | Sequence[int], block: int | Sequence[int], shared: int) -> tuple[int, ...]:
        """Grid, block and dynamic shared memory as cuLaunchKernel takes them; more than 48 KB asked for."""
        with self.module._lock:
            self.module._open()
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
            return *grid3, *block3, int(shared)

    def _attributes(
        self, numbers: tuple[int, ...], early: bool, cluster: int | Sequence[int] | None, cooperative: bool
    ) -> list[Any]:
        """What ``cuLaunchKernelEx`` is told besides; more blocks of a cluster than every GPU has are asked for."""
        given = None if cluster is None else tuple(cluster) if isinstance(cluster, Iterable) else (cluster,)
        found = cluster_of(self._code, (numbers[0], numbers[1], numbers[2]), given)
        if found is not None and found[0] * found[1] * found[2] > PORTABLE:
            kind = self.gpu.driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
            self.gpu.call("cuFuncSetAttribute", self.handle, kind, 1, kernel=self.name)
        return launch_attributes(self.gpu, early, None if cluster is None else found, cooperative)

    def _packer(self, args: Sequence[Any], places: Sequence[int]) -> Packer:
        """For arguments of these types, which stand at these places."""
        for n, value in zip(places, args):
            warn_of_bits(self._code, n, self.params[n], value, self._labels[n])
        return Packer(self.gpu, [self.params[n] for n in places], [self._labels[n] for n in places], args)

    def _explain(self, args: Sequence[Any], places: Sequence[int]) -> None:
        """Raise the LaunchError for arguments, at these places, that do not fit their parameters."""
        for n, value in zip(places, args):
            if (kind := kind_of(value)) is None:
                scalar(value, self.params[n].size, self._labels[n], self.params[n].type)
            else:
                memory_of(kind, value, 0, self._labels[n])
