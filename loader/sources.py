"""Sources, and cubins as other tools hold them: files of all kinds, Triton's compiled kernels, CuPy's RawModule and
RawKernel.

Neither Triton nor CuPy is imported here. A compiled kernel of Triton is what has ``asm["cubin"]`` and ``metadata``.
Of CuPy's objects the source and the options are taken (https://docs.cupy.dev/en/stable/reference/generated/cupy.RawModule.html)
and compiled by NVRTC, as CuPy would, since CuPy itself keeps no cubin and needs a GPU to compile.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from loader import nvrtc
from turingas.assembler.assembler import assemble_file
from turingas.cubin.cubin import Cubin
from turingas.cubin.pick import Found, holds, pick
from turingas.errors import CubinError, LaunchError

HOW = "kernel= and arch= choose"
ELF = b"\x7fELF"  # a cubin begins so
SOURCE_ARCH, CUPY_ARCH = "sm_75", "sm_80"  # of SASS and of CUDA C++ that nobody has said an architecture for
Runs = Callable[[str], bool] | None


def found(
    what: Any, kernel: str | None, arch: str | None, runs: Runs = None, default: str | None = None, **assembling: Any
) -> Found:
    """The cubin of ``what``: a path (of a source, a cubin, a fat binary, an object or library of the host, a folder of
    Triton's cache), the bytes of such a file but a source, a ``Cubin``, a compiled kernel of Triton's, a RawModule or
    RawKernel of CuPy's. Of several, the one that has ``kernel`` and is for ``arch``; without ``arch`` the newest that
    ``runs`` on a GPU, where there is one. ``default``: the architecture of sources, here and of CuPy's, for which
    neither they nor ``arch`` have one. ``assembling``: options of ``turingas.assemble``.

    AsmError for a source's mistakes, CubinError for what is no cubin, LaunchError where none is found, or several;
    NvrtcError where CuPy's source does not compile.
    """
    if isinstance(what, (str, os.PathLike)) and os.fspath(what).endswith(".sass") and not os.path.isdir(what):
        with open(what, "rb") as file:
            data = file.read()
        if not data.startswith(ELF):  # else it is a cubin, whatever it is called
            cubin = assemble_file(data, os.fspath(what), arch or default or SOURCE_ARCH, **assembling)
            return Found(cubin, kernel or "")
    if any(value for name, value in assembling.items() if name != "allow_python"):
        raise LaunchError("defines and include are for sources: files called .sass", "`turingas.assemble` takes text")
    if isinstance(what, Cubin):
        return Found(_told(what, arch), kernel or "")
    if isinstance(what, (bytes, bytearray, memoryview)):
        return _file(bytes(what), kernel, arch, runs)
    if isinstance(what, (str, os.PathLike)):
        return _file(os.fspath(what), kernel, arch, runs)
    if hasattr(what, "asm") and hasattr(what, "metadata"):
        if "cubin" not in what.asm:
            raise LaunchError("this kernel of Triton's has no cubin", f"it has: {', '.join(what.asm)}")
        facts = what.metadata
        cubin = _told(Cubin.from_bytes(bytes(what.asm["cubin"])), arch)
        return Found(cubin, kernel or facts.name, 32 * facts.num_warps, facts.shared)
    if _is(what, "triton", "JITFunction", "Autotuner", "Heuristics"):
        hint = "turingas.testing.triton_launch compiles and launches it; or pass what kernel.warmup(...) gives"
        raise LaunchError(f"{type(what).__name__} is not compiled yet", hint)
    if _is(what, "cupy", "RawModule", "RawKernel"):
        return _cupy(what, kernel, arch, runs, default or CUPY_ARCH)
    able = "a path, bytes, a Cubin, a kernel of Triton's or CuPy's"
    raise CubinError(f"of type {type(what).__name__}, which is no cubin; it must be {able}", None)


def _is(what: Any, package: str, *names: str) -> bool:
    kind = type(what)
    return kind.__name__ in names and kind.__module__.split(".")[0] == package


def _told(cubin: Cubin, arch: str | None) -> Cubin:
    if arch is not None and cubin.arch != arch:
        raise LaunchError(f"the cubin is for {cubin.arch}, not for {arch}", "leave arch= out")
    return cubin


def _file(source: str | bytes, kernel: str | None, arch: str | None, runs: Runs) -> Found:
    if _several(source):
        if arch is not None:
            return pick(source, kernel, lambda one: one == arch, f" for {arch}", HOW)
        return pick(source, kernel, runs or (lambda one: True), " for this GPU" if runs else "", HOW, bool(runs))
    if isinstance(source, bytes):
        return Found(_told(Cubin.from_bytes(source), arch), kernel or "")
    try:
        return Found(_told(Cubin.from_file(source), arch), kernel or "")
    except CubinError as error:
        raise CubinError(f"{error.message} ({source})", error.offset) from None


def _several(source: str | bytes) -> bool:
    """Whether it is, or may be, a file or folder with several cubins."""
    if isinstance(source, bytes):
        return holds(source[:20])
    if os.path.isdir(source):
        return True
    with open(source, "rb") as file:
        return holds(file.read(20))


def _cupy(what: Any, kernel: str | None, arch: str | None, runs: Runs, default: str) -> Found:
    name = kernel or getattr(what, "name", None)
    if what.file_path is not None:
        return _file(os.fspath(what.file_path), name, arch, runs)
    options = list(what.options)
    if not any(option.lstrip("-").startswith("std") for option in options):
        options.append("--std=c++14")  # CuPy's default
    return Found(Cubin.from_bytes(nvrtc.compile(what.code, arch or default, options, "<CuPy>")), name or "")
