"""Triton's kernels on the CPU device: a driver in the place of Triton's own for GPUs.

Triton itself compiles and specialises as it does for a GPU; what it then would launch, the driver here launches. What a
driver and a launcher are asked for was read off Triton 3.1 to 3.9, whose ``triton/backends/nvidia/driver.py`` they
stand for. Triton is imported when the first kernel is launched.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

import loader
from loader.cpu import CpuKernel
from turingas.cubin.model import Param
from turingas.emulate import Report
from turingas.errors import LaunchError
from turingas.isa.arch import arch as facts_of
from turingas.launch import POINTER
from turingas.tensor_map import NAMES, SWIZZLES, Layout, TensorMap, aligned
from turingas.testing.launch import KernelFailure, checked
from turingas.testing.settings import current

WARP = 32


def triton_launch(kernel: Any, grid: Any, *args: Any, **meta: Any) -> Report:
    """``kernel[grid](*args, **meta)`` on the CPU device; the report of the launch.

    ``kernel``: a function with ``@triton.jit``, and around it ``@triton.autotune`` (the first of its configurations is
    taken, nothing is measured) or ``@triton.heuristics``. ``grid``: one to three numbers, or a function of the
    meta-parameters. ``args``: tensors of PyTorch on the CPU and numpy arrays, used in place, and numbers. ``meta``:
    what is given by name: arguments, constexprs, ``num_warps``, ``num_stages`` and other options of Triton's.

    Triton specialises: integers that are 1 or divisible by 16, addresses divisible by 16. The architecture, and what is
    looked for, say the settings (``turingas.testing.using``). KernelFailure for what the kernel does wrong, LaunchError
    for what the device does not take, Triton's own errors for what it does not compile.
    """
    __tracebackhide__ = True
    if isinstance(grid, (int, np.integer)):
        grid = (int(grid),)
    with triton_on_cpu() as driver:
        driver.reports.clear()
        try:
            kernel[grid](*map(_pointer, args), **{name: _pointer(value) for name, value in meta.items()})
        except KernelFailure as failure:
            raise failure.with_traceback(None) from None  # the test's own line is what counts
        if not driver.reports:
            raise LaunchError("Triton launched nothing", "an empty grid, or TRITON_INTERPRET, which needs no device")
        return driver.reports[-1]


@contextmanager
def triton_on_cpu() -> Iterator[Driver]:
    """As long as it lasts, ``kernel[grid](...)`` launches on the CPU device, with tensors of PyTorch on the CPU, and
    ``@triton.autotune`` takes the first configuration."""
    from triton.runtime import driver as drivers
    from triton.runtime.autotuner import Autotuner

    before = vars(drivers).copy()
    tuned = Autotuner.run
    driver = Driver(current().arch)
    drivers.set_active(driver)
    Autotuner.run = _first(tuned)
    try:
        yield driver
    finally:
        vars(drivers).update(before)
        Autotuner.run = tuned


def _first(run: Callable[..., Any]) -> Callable[..., Any]:
    """``Autotuner.run`` with one configuration, and so without measuring."""

    def first(tuner: Any, *args: Any, **more: Any) -> Any:
        configs, tuner.configs = tuner.configs, tuner.configs[:1]
        try:
            return run(tuner, *args, **more)
        finally:
            tuner.configs = configs

    return first


class Pointer:
    """A numpy array as Triton takes tensors: with ``data_ptr``. Its other attributes are the array's."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self.array = array

    def data_ptr(self) -> int:
        return int(self.array.ctypes.data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.array, name)


def _pointer(value: Any) -> Any:
    return Pointer(value) if isinstance(value, np.ndarray) else value


def tensor_descriptor(array: np.ndarray[Any, Any], block_shape: Sequence[int], padding: str = "zero") -> Any:
    """``TensorDescriptor`` (Triton 3.4 and later) of a numpy array, which Triton's own refuses."""
    from triton.tools.tensor_descriptor import TensorDescriptor

    strides = [step // array.itemsize for step in array.strides]
    more = {"padding": padding} if padding != "zero" else {}
    return TensorDescriptor(Pointer(array), list(array.shape), strides, list(block_shape), **more)


# ---- the driver --------------------------------------------------------------------------------------------------


class Driver:
    """What Triton asks a GPU's driver for, for a GPU of ``arch`` that is not there. ``reports``: of its launches."""

    def __init__(self, arch: str) -> None:
        self.facts = facts_of(arch)
        self.capability = int(re.sub(r"\D", "", arch))
        self.reports: list[Report] = []
        self.utils = self  # GPUs have theirs in an object of its own

    def launcher_cls(self, src: Any, metadata: Any) -> Launcher:
        """What a compiled kernel is launched by."""
        return Launcher(src, metadata)

    def is_active(self) -> bool:
        return True

    def get_current_target(self) -> Any:
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", self.capability, WARP)

    def get_current_device(self) -> int:
        """No GPU's number: what Triton keeps for the device is for this architecture alone."""
        return -self.capability

    def set_current_device(self, device: int) -> None:
        pass

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_device_capability(self, device: int = 0) -> tuple[int, int]:
        return divmod(self.capability, 10)

    def get_active_torch_device(self) -> Any:
        import torch

        return torch.device("cpu")

    def get_benchmarker(self) -> Callable[..., list[float]]:
        """There is nothing to measure here."""
        return lambda call, **more: [0.0, 0.0, 0.0]

    def map_python_to_cpp_type(self, kind: str) -> str:
        raise NotImplementedError("the CPU device compiles no C++")

    def get_device_properties(self, device: int) -> dict[str, int]:
        return {
            "max_shared_mem": self.facts.shared_optin, "max_num_regs": self.facts.registers_per_sm,
            "multiprocessor_count": 1, "warpSize": WARP, "sm_clock_rate": 1, "mem_clock_rate": 1, "mem_bus_width": 1,
        }  # fmt: skip

    def load_binary(self, name: str, cubin: bytes, shared: int, device: int) -> tuple[Any, ...]:
        """Module, kernel, registers, spilled registers, and from Triton 3.4 on the most threads of a block."""
        module = loader.load(bytes(cubin), "cpu", kernel=name)
        code = module.cubin.kernel(name)
        found = (module, module.kernel(), code.registers, 0)
        return (*found, 1024) if _five() else found

    def unload_module(self, module: Any) -> None:
        module.close()


def _five() -> bool:
    """Whether this Triton wants to know how many threads a block may have."""
    import inspect

    from triton.compiler.compiler import CompiledKernel

    return "n_max_threads" in inspect.getsource(CompiledKernel._init_handles)


class Launcher:
    """What launches one compiled kernel of Triton's."""

    def __init__(self, src: Any, metadata: Any) -> None:
        self.metadata = metadata
        function = src.fn
        self.names = list(function.arg_names)
        types = {self._place(key): kind for key, kind in src.signature.items()}
        constants = {self._place(key) for key in getattr(src, "constants", {}) if self._plain(key)}
        self.types = {n: kind for n, kind in sorted(types.items()) if kind != "constexpr" and n not in constants}
        self.given = [n for n in range(len(self.names)) if n not in function.constexprs]  # before Triton 3.2

    def _plain(self, key: Any) -> bool:
        """Whether it is an argument, not a part of a tuple."""
        return not isinstance(key, tuple) or len(key) == 1

    def _place(self, key: Any) -> int:
        key = key[0] if isinstance(key, tuple) else key
        return self.names.index(key) if isinstance(key, str) else int(key)

    def __call__(
        self, x: int, y: int, z: int, stream: Any, function: CpuKernel, packed: Any, launched: Any, enter: Any,
        leave: Any, *args: Any,
    ) -> None:  # fmt: skip
        """Launch it. Hooks before and after are called with what Triton says of the launch."""
        __tracebackhide__ = True
        facts = self.metadata
        if x * y * z == 0:
            return
        places = range(len(self.names)) if len(args) == len(self.names) else self.given
        values = dict(zip(places, args))
        maps = iter(getattr(facts, "tensordesc_meta", None) or ())
        parts = [
            (self.names[n], one) for n, kind in self.types.items() for one in flat(kind, values[n], self.names[n], maps)
        ]
        made = [one for _, one in parts]
        clusters = tuple(getattr(facts, "cluster_dims", None) or (getattr(facts, "num_ctas", 1), 1, 1))
        grid = [blocks * many for blocks, many in zip((x, y, z), clusters)]
        code = function.module.cubin.kernel(function.name)
        params = sorted(code.params, key=lambda param: param.offset)
        code.params = [replace(param, name=name) for param, (name, _) in zip(params, parts)] + params[len(parts) :]
        made += self._scratch(function.name, params[len(made) :], x * y * z)
        cooperative = getattr(facts, "launch_cooperative_grid", False)
        options: dict[str, Any] = {"shared": facts.shared, "cooperative": cooperative}
        if clusters != (1, 1, 1):
            options["cluster"] = clusters
        if enter is not None:
            enter(launched)
        report = checked(function, grid, WARP * facts.num_warps, made, **options)
        if leave is not None:
            leave(launched)
        from triton.runtime import driver

        driver.active.reports.append(report)

    def _scratch(self, name: str, params: list[Param], programs: int) -> list[Any]:
        """Arguments behind those of the function: scratch memory in global memory, none where Triton wants none."""
        sizes = [getattr(self.metadata, f"{what}_scratch_size", 0) for what in ("global", "profile")]
        if any(param.size != POINTER for param in params) or len(params) > len(sizes):
            wanted = ", ".join(str(param.size) for param in params)
            raise LaunchError(f"{name} has parameters of {wanted} bytes that no argument is known for")
        programs *= getattr(self.metadata, "num_ctas", 1)
        return [np.zeros(programs * size, np.uint8) if size else 0 for _, size in zip(params, sizes)]


def flat(kind: Any, value: Any, name: str, maps: Iterator[Any]) -> Iterator[Any]:
    """An argument of Triton's type ``kind`` as the loader takes it; of a tuple each part that is no constant. ``maps``:
    what Triton says of the tensor maps that it makes of descriptors, in their order."""
    if isinstance(kind, (tuple, list)):
        for one, part in zip(kind, value):
            yield from flat(one, part, name, maps)
    elif kind == "constexpr":
        return
    elif kind.startswith("tensordesc"):
        yield from descriptor(value, name, next(maps, None))
    elif kind.startswith("*"):
        yield memory(value, name)
    elif kind.startswith("nvTmaDesc"):
        raise LaunchError(f"{name} is a tensor map that Triton made itself", "make a TensorDescriptor")
    elif kind in ("bf16", "fp16"):
        yield half(kind, float(value))
    elif kind.startswith("fp"):
        yield float(value)
    else:
        yield int(value)


def half(kind: str, value: float) -> Any:
    """The bits of a number of 16 bits, rounded to nearest even."""
    if kind == "fp16":
        return np.float16(value)
    bits = int(np.float32(value).view(np.uint32))
    return np.uint16(0x7FC0 if value != value else (bits + 0x7FFF + (bits >> 16 & 1)) >> 16)


def descriptor(value: Any, name: str, meta: Any) -> Iterator[Any]:
    """A TensorDescriptor of the host: a tensor map where Triton says which (``meta``, from sm_90 on), else pointer,
    shape and strides; and behind it shape and strides anyway."""
    shape, strides = [int(n) for n in value.shape], [int(n) for n in value.strides]
    if meta:
        yield tensor_map(value, name, meta)
    else:
        yield memory(value.base, name)
        yield from map(np.int64, [*shape, *strides])
        if hasattr(value, "padding"):  # from Triton 3.5 on
            yield value.padding == "nan"
        if hasattr(value, "round_f32_to_tf32"):
            yield bool(value.round_f32_to_tf32)
    yield from map(np.int32, shape)
    yield from map(np.int64, strides)


def tensor_map(value: Any, name: str, meta: Any) -> TensorMap:
    """What Triton's driver for GPUs makes of a TensorDescriptor."""
    if meta["fp4_padded"]:
        raise LaunchError(f"{name} is a tensor map of 4-bit elements, which the CPU device has not")
    given = value.shape, value.strides, meta["block_size"]
    dims, strides, box = ([int(n) for n in reversed(one)] for one in given)
    kind = "tf32" if getattr(value, "round_f32_to_tf32", False) else NAMES[meta["elem_type"]]
    tiled: dict[str, Any] = {"box": tuple(box)}
    if meta.get("is_im2col"):
        corners = (value.pixel_box_lower_corner, value.pixel_box_upper_corner)
        lower, upper = (tuple(int(n) for n in reversed(corner)) for corner in corners)
        tiled = {"box": (), "channels": box[0], "pixels": box[1], "lower": lower, "upper": upper}
    layout = Layout(
        kind, tuple(dims), tuple(meta["elem_size"] * n for n in strides[1:]), **tiled,
        steps=tuple(int(n) for n in reversed(getattr(value, "element_strides", None) or [1] * len(dims))),
        swizzle=SWIZZLES[meta["swizzle"]], fill=getattr(value, "padding", "zero"),
    )  # fmt: skip
    layout.check()
    base = memory(value.base, name)
    there = base.reshape(-1).view(np.uint8) if isinstance(base, np.ndarray) else np.zeros(0, np.uint8)
    if layout.extent > there.nbytes:
        raise LaunchError(f"the descriptor {name} reaches {layout.extent} bytes, its array has {there.nbytes}")
    aligned(layout, there.ctypes.data)
    return TensorMap(layout, value.base, there)


def memory(value: Any, name: str) -> Any:
    """The memory behind a pointer, in place: from the first element to the last, whatever lies between them."""
    if value is None or isinstance(value, int):
        return int(value or 0)
    array = getattr(value, "array", value)
    if isinstance(array, np.ndarray):
        shape, strides, item = array.shape, list(array.strides), array.itemsize
    else:
        if hasattr(value, "device") and str(value.device) != "cpu":
            raise LaunchError(f"{name} is on {value.device}, the kernel on the CPU device", "copy it to the host first")
        item = value.element_size() if hasattr(value, "element_size") else np.dtype(value.dtype).itemsize
        shape, strides = tuple(value.shape), [item * n for n in value.stride()]
    if 0 in shape:
        return 0
    if any(step < 0 for step in strides):
        raise LaunchError(f"{name} runs backwards", "pass a copy: numpy.ascontiguousarray(x)")
    size = sum((count - 1) * step for count, step in zip(shape, strides)) + item
    if isinstance(array, np.ndarray) and array.flags.c_contiguous:
        return array  # which may be read-only
    return np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(value.data_ptr()))
