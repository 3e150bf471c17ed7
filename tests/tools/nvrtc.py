"""A small ctypes wrapper around NVRTC: CUDA C++ source in, cubin out. It needs no GPU.

The library comes from the installed package nvidia-cuda-nvrtc-cu12, or from the file that the environment variable
TURINGAS_NVRTC names (for NVRTC of another CUDA release). The headers (cooperative_groups.h, cuda_fp16.h, ...) come
from nvidia-cuda-runtime-cu12, nvidia-cuda-cccl-cu12 and nvidia-cuda-nvcc-cu12, or from the folders, parted by ':',
in TURINGAS_CUDA_INCLUDE.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

APART = "TURINGAS_NVRTC_APART"  # set in the process that compiles with -G


class NvrtcError(Exception):
    """The source does not compile; the text is NVRTC's log."""


def package_folders(name: str) -> Iterator[Path]:
    """Yield the folders of the installed package nvidia.NAME (a namespace package may have several)."""
    try:
        spec = importlib.util.find_spec(f"nvidia.{name}")
    except ModuleNotFoundError:
        return
    for folder in (spec.submodule_search_locations if spec else None) or ():
        yield Path(folder)


def library_path() -> Path | None:
    """Find the NVRTC shared library; None where it is not installed."""
    if named := os.environ.get("TURINGAS_NVRTC"):
        return Path(named) if Path(named).is_file() else None
    for folder in package_folders("cuda_nvrtc"):
        for path in sorted(folder.glob("lib/libnvrtc.so.*")):
            return path
    return None


@functools.cache
def include_folders() -> tuple[Path, ...]:
    """Return the folders that hold CUDA's headers."""
    if named := os.environ.get("TURINGAS_CUDA_INCLUDE"):
        return tuple(Path(folder) for folder in named.split(os.pathsep))
    packages = ("cuda_runtime", "cuda_nvcc", "cuda_cccl")
    return tuple(f / "include" for name in packages for f in package_folders(name) if (f / "include").is_dir())


@functools.cache
def _library() -> ctypes.CDLL:
    path = library_path()
    if path is None:
        raise FileNotFoundError("NVRTC is not installed: pip install nvidia-cuda-nvrtc-cu12")
    for builtins in sorted(path.parent.glob("libnvrtc-builtins.so*")):  # NVRTC looks it up by bare name
        ctypes.CDLL(str(builtins), mode=ctypes.RTLD_GLOBAL)
    return ctypes.CDLL(str(path))


def version() -> tuple[int, int]:
    """Return NVRTC's version, such as (12, 9)."""
    major, minor = ctypes.c_int(), ctypes.c_int()
    _library().nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    return major.value, minor.value


def compile_source(source: str, arch: str, options: Sequence[str] = (), name: str = "source.cu") -> bytes:
    """Compile CUDA C++ to a cubin for arch ("sm_75"); options as NVRTC takes them (-G, -lineinfo, -rdc=true).

    -G gets a process of its own: NVRTC 12.9 makes other code of all that it compiles after it.
    """
    if "-G" in options and not os.environ.get(APART):
        return _apart(source, arch, options, name)
    lib = _library()
    program = ctypes.c_void_p()
    lib.nvrtcCreateProgram(ctypes.byref(program), source.encode(), name.encode(), 0, None, None)
    try:
        words = [f"--gpu-architecture={arch}", "--std=c++17", *(f"--include-path={f}" for f in include_folders())]
        words += options
        array = (ctypes.c_char_p * len(words))(*(word.encode() for word in words))
        if lib.nvrtcCompileProgram(program, len(words), array):
            raise NvrtcError(_take(program, "nvrtcGetProgramLog").rstrip(b"\0").decode(errors="replace"))
        return _take(program, "nvrtcGetCUBIN")
    finally:
        lib.nvrtcDestroyProgram(ctypes.byref(program))


def _apart(source: str, arch: str, options: Sequence[str], name: str) -> bytes:
    work = "import pickle, sys; from tests.tools import nvrtc\n"
    work += "sys.stdout.buffer.write(nvrtc.compile_source(*pickle.load(sys.stdin.buffer)))"
    given = pickle.dumps((source, arch, list(options), name))
    environment = {**os.environ, APART: "1", "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    root = Path(__file__).parent.parent.parent
    made = subprocess.run([sys.executable, "-c", work], input=given, capture_output=True, env=environment, cwd=root)
    if made.returncode:
        raise NvrtcError(made.stderr.decode(errors="replace"))
    return made.stdout


def _take(program: ctypes.c_void_p, what: str) -> bytes:
    """Call one of NVRTC's pairs nvrtcGetXSize and nvrtcGetX."""
    size = ctypes.c_size_t()
    getattr(_library(), what + "Size")(program, ctypes.byref(size))
    data = ctypes.create_string_buffer(size.value)
    getattr(_library(), what)(program, data)
    return data.raw
