"""cuBLAS through ctypes, where it is installed: one batched matrix product, to compare our own with.

Found as libcublas of nvidia-cublas-cu12 (or of CUDA 13's package, which PyTorch brings along), or as the system's.
Source of the calls: NVIDIA's cuBLAS documentation.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import functools
from typing import Any

from loader import cuda, nvrtc

NOT_TRANSPOSED = 0  # CUBLAS_OP_N
#: m, n, k, alpha, a, its leading dimension and stride, b and its, beta, c and its, count: after handle and operations
ARGUMENTS: list[Any] = [
    *(ctypes.c_void_p, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_void_p),
    *(ctypes.c_void_p, ctypes.c_int, ctypes.c_longlong) * 2,
    *(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_longlong, ctypes.c_int),
]


@functools.cache
def library() -> Any:
    """cuBLAS; None where it is not installed."""
    folders = [folder / "lib" for name in ("cublas", "cu13") for folder in nvrtc.package_folders(name)]
    found = [str(path) for folder in folders for path in sorted(folder.glob("libcublas.so.*"))]
    for name in (*found, ctypes.util.find_library("cublas")):
        try:
            loaded = ctypes.CDLL(name) if name else None
        except OSError:  # without libcublasLt, say
            continue
        if loaded is not None:
            loaded.cublasSgemmStridedBatched.argtypes = ARGUMENTS
            loaded.cublasSetStream_v2.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
            return loaded
    return None


@functools.cache
def _handle(gpu: cuda.Device) -> ctypes.c_void_p:
    handle = ctypes.c_void_p()
    _check(library().cublasCreate_v2(ctypes.byref(handle)), "cublasCreate")
    return handle


def products(
    a: Any, b: Any, c: Any, m: int, n: int, depth: int, first: int, count: int, stream: int = 0
) -> None:
    """c[first + i] = a b[i], i < count: float32 in ``loader.cuda.Buffer``, row-major, a: m x depth, b[i]: depth x n.

    Queued on ``stream``; the sums are in float32, not in TF32. RuntimeError when cuBLAS refuses.
    """
    with a.gpu.current():
        _check(library().cublasSetStream_v2(_handle(a.gpu), stream), "cublasSetStream")
        multiply(library(), _handle(a.gpu), (a.address, b.address, c.address), m, n, depth, first, count)


def multiply(
    blas: Any, handle: Any, addresses: tuple[int, int, int], m: int, n: int, depth: int, first: int, count: int
) -> None:
    """The call itself. cuBLAS reads column by column, so what it is told is c^T = b^T a^T."""
    a, b, c = addresses
    one, zero = ctypes.c_float(1), ctypes.c_float(0)
    status = blas.cublasSgemmStridedBatched(
        *(handle, NOT_TRANSPOSED, NOT_TRANSPOSED, n, m, depth, ctypes.addressof(one)),
        *(b, n, depth * n),
        *(a, depth, 0),
        *(ctypes.addressof(zero), c + 4 * first * m * n, n, m * n, count),
    )
    _check(status, "cublasSgemmStridedBatched")


def _check(status: int, function: str) -> None:
    if status:
        raise RuntimeError(f"{function} of cuBLAS failed with status {status}")
