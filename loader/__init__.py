"""Runs kernels from Python, on a GPU or on the CPU device: ``loader.load("copy.cubin").kernel("kern").launch(...)``.

Nothing here needs a GPU, a driver or cuda-python to be imported.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, overload

from loader import cuda
from loader.module import CPU, Given, Kernel, Module
from loader.sources import found
from loader.tensor import tensor_map
from loader.textures import Texture, surface, texture
from turingas.cubin.cubin import Cubin
from turingas.errors import LaunchError

if TYPE_CHECKING:
    from loader.cpu import CpuModule

#: what ``load`` takes; what it takes of Triton's and CuPy's, which have no types, stands in ``loader.sources``
Loadable: TypeAlias = "str | os.PathLike[str] | bytes | bytearray | memoryview | Cubin"
Paths: TypeAlias = "Sequence[str | os.PathLike[str]]"
Gpu: TypeAlias = Literal["cuda", "cuda:0", "cuda:1", "cuda:2", "cuda:3", "cuda:4", "cuda:5", "cuda:6", "cuda:7"]
__all__ = ["Given", "Kernel", "Module", "Texture", "devices", "load", "surface", "tensor_map", "texture"]


def devices() -> list[str]:
    """The devices that ``load`` takes: "cpu" always, and "cuda:0" ... where there are GPUs and a driver."""
    return [CPU, *(f"cuda:{n}" for n in range(cuda.count()))]


# On "cpu" a launch gives a Report, on a GPU None. Who leaves the device to ``load`` gets either, and has to look.
@overload
def load(
    cubin: Loadable, device: Literal["cpu"], *, kernel: str | None = None, arch: str | None = None,
    defines: Mapping[str, object] | None = None, include: Paths = (), allow_python: bool = True,
) -> CpuModule: ...  # fmt: skip
@overload
def load(
    cubin: Loadable, device: Gpu, *, kernel: str | None = None, arch: str | None = None,
    defines: Mapping[str, object] | None = None, include: Paths = (), allow_python: bool = True,
) -> cuda.CudaModule: ...  # fmt: skip
@overload
def load(
    cubin: Loadable, device: str | None = None, *, kernel: str | None = None, arch: str | None = None,
    defines: Mapping[str, object] | None = None, include: Paths = (), allow_python: bool = True,
) -> Module: ...  # fmt: skip
def load(
    cubin: Loadable, device: str | None = None, *, kernel: str | None = None, arch: str | None = None,
    defines: Mapping[str, object] | None = None, include: Paths = (), allow_python: bool = True,
) -> Module:  # fmt: skip
    """Load a cubin: a file's path, its bytes, what ``turingas.assemble`` gives, a compiled kernel of Triton's, a
    RawModule or RawKernel of CuPy's. A file may also be one that holds cubins: a fat binary, an object, a library, an
    executable; or a folder of Triton's cache. Where it has several, ``kernel`` and ``arch`` choose; ``kernel`` is also
    what ``Module.kernel()`` gives then.

    A file called .sass is assembled, as `turingas run` does: for the architecture of its ``.arch``, else for ``arch``,
    else for that of the GPU, or sm_75 on the CPU device. ``defines``, ``include`` and ``allow_python`` (False: inline
    Python is refused, as by --no-python) are those of ``turingas.assemble``.

    ``device`` is one of ``devices()``, "cuda" the first GPU; None takes the first GPU if there is one, else the CPU
    device. A GPU takes cubins of its own architecture, the CPU device those of any from sm_70 to sm_121. Raises
    AsmError for the mistakes of a source, each with its line; CubinError for what is no cubin, LaunchError for a device
    that there is not (and says why), a cubin for another architecture, or several among which nothing chooses,
    CudaError for what the driver refuses.
    """
    if device is None:
        device = "cuda:0" if cuda.count() else CPU
    name, _, number = str(device).partition(":")
    if device != CPU and (name != "cuda" or (number and not number.isdecimal())):
        raise LaunchError(f"there is no device {device!r}", "there are: " + ", ".join(devices()))
    gpu = None if device == CPU else cuda.device(int(number or 0))
    chosen: tuple[Any, ...] = (None, None) if gpu is None else (gpu.runs, gpu.arch)
    held = found(cubin, kernel, arch, *chosen, defines=defines, include=include, allow_python=allow_python)
    if gpu is None:
        from loader.cpu import CpuModule

        module: Module = CpuModule(held.cubin)
    else:
        module = cuda.CudaModule(held.cubin, gpu)
    module.chosen = held.kernel or None
    return module
