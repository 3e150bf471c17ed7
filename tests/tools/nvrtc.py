"""NVRTC as the tests call it: a face over loader.nvrtc, which says where the library and the headers come from."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from loader import nvrtc
from loader.nvrtc import NvrtcError, include_folders, package_folders, version

__all__ = ["NvrtcError", "compile_source", "include_folders", "library_path", "package_folders", "version"]


def library_path() -> Path | None:
    """Find the NVRTC shared library; None where it is not installed."""
    try:
        return Path(nvrtc.library_path())
    except NvrtcError:
        return None


def compile_source(source: str, arch: str, options: Sequence[str] = (), name: str = "source.cu") -> bytes:
    """Compile CUDA C++ to a cubin for arch ("sm_75"); options as NVRTC takes them (-G, -lineinfo, -rdc=true)."""
    return nvrtc.compile(source, arch, options, name)
