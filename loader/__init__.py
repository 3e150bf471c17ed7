"""Runs cubins from Python, on a GPU or on the CPU device: ``loader.load("copy.cubin").kernel("kern").launch(...)``.

Nothing here needs a GPU, a driver or cuda-python to be imported.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Literal, TypeAlias, overload

from loader import cuda
from loader.module import CPU, Given, Kernel, Module
from turingas.cubin.cubin import Cubin
from turingas.errors import CubinError, LaunchError

if TYPE_CHECKING:
    from loader.cpu import CpuModule

Loadable: TypeAlias = "str | os.PathLike[str] | bytes | bytearray | memoryview | Cubin"
__all__ = ["Given", "Kernel", "Module", "devices", "load"]


def devices() -> list[str]:
    """The devices that ``load`` takes: "cpu" always, and "cuda:0" ... where there are GPUs and a driver."""
    return [CPU, *(f"cuda:{n}" for n in range(cuda.count()))]


@overload
def load(cubin: Loadable, device: Literal["cpu"]) -> CpuModule: ...
@overload
def load(cubin: Loadable, device: str | None = None) -> Module: ...
def load(cubin: Loadable, device: str | None = None) -> Module:
    """Load a cubin: a file's path, its bytes, or what ``turingas.assemble`` gives.

    ``device`` is one of ``devices()``, "cuda" the first GPU; None takes the first GPU if there is one, else the CPU
    device. A GPU takes cubins of its own architecture, the CPU device those of any from sm_70 to sm_90. Raises
    CubinError for what is no cubin, LaunchError for a device that there is not (and says why) or a cubin for another
    architecture, CudaError for what the driver refuses.
    """
    if isinstance(cubin, (bytes, bytearray, memoryview)):
        cubin = Cubin.from_bytes(bytes(cubin))
    elif not isinstance(cubin, Cubin):
        path = cubin
        try:
            cubin = Cubin.from_file(path)
        except CubinError as error:
            source = "; turingas.assemble makes one from source" if str(path).endswith(".sass") else ""
            raise CubinError(f"{error.message} ({os.fspath(path)}){source}", error.offset) from None
    if device is None:
        device = "cuda:0" if cuda.count() else CPU
    if device == CPU:
        from loader.cpu import CpuModule

        return CpuModule(cubin)
    name, _, number = str(device).partition(":")
    if name != "cuda" or (number and not number.isdecimal()):
        raise LaunchError(f"there is no device {device!r}", "there are: " + ", ".join(devices()))
    return cuda.CudaModule(cubin, cuda.device(int(number or 0)))
