"""Tests of CUDA and Triton kernels without a GPU: launches on the CPU device, what it finds as failures.

A plugin of pytest (``turingas.testing.plugin``) has the options and fixtures; these functions work without it, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from turingas.testing.launch import KernelFailure, TestKernel, cuda, load
    from turingas.testing.settings import Settings, current, using
    from turingas.testing.triton import tensor_descriptor, triton_launch, triton_on_cpu

__all__ = [
    "KernelFailure", "Settings", "TestKernel", "cuda", "current", "load", "tensor_descriptor", "triton_launch",
    "triton_on_cpu", "using",
]  # fmt: skip

# Loaded when first used: pytest reads this package in every project that has TuringAs installed.
_HOME = {
    "KernelFailure": "launch", "TestKernel": "launch", "cuda": "launch", "load": "launch", "Settings": "settings",
    "current": "settings", "using": "settings", "tensor_descriptor": "triton", "triton_launch": "triton",
    "triton_on_cpu": "triton",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'turingas.testing' has no attribute {name!r}")
    from importlib import import_module

    from turingas.packages import check

    check("loader")
    value = globals()[name] = getattr(import_module("turingas.testing." + _HOME[name]), name)
    return value


def __dir__() -> list[str]:
    return __all__
