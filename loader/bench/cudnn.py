"""cuDNN through ctypes, where it is installed: the forward convolution with each of its algorithms, in float32.

Found as libcudnn of nvidia-cudnn-cu12 or -cu13 (PyTorch brings one along), or as the system's. TF32 is off: the math
type is CUDNN_FMA_MATH. Source of the calls and numbers: NVIDIA's cuDNN documentation, version 9.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import functools
import itertools
from collections.abc import Sequence
from typing import Any

from loader import nvrtc
from loader.bench.measure import WEIGHTS, Contender, Data, Refused, torch
from loader.cuda import Buffer, Device, Stream

#: cudnnConvolutionFwdAlgo_t, in its order
ALGORITHMS = (
    "IMPLICIT_GEMM", "IMPLICIT_PRECOMP_GEMM", "GEMM", "DIRECT", "FFT", "FFT_TILING", "WINOGRAD", "WINOGRAD_NONFUSED",
)  # fmt: skip
FORMATS = {"NCHW": 0, "NHWC": 1}  # cudnnTensorFormat_t
FLOAT, CROSS_CORRELATION, FMA_MATH = 0, 1, 3  # of cudnnDataType_t, cudnnConvolutionMode_t, cudnnMathType_t

_int, _size, _at = ctypes.c_int, ctypes.c_size_t, ctypes.c_void_p
SIGNATURES: dict[str, Sequence[Any]] = {
    "cudnnCreate": [_at],
    "cudnnSetStream": [_at, _at],
    "cudnnCreateTensorDescriptor": [_at],
    "cudnnCreateFilterDescriptor": [_at],
    "cudnnCreateConvolutionDescriptor": [_at],
    "cudnnDestroyTensorDescriptor": [_at],
    "cudnnDestroyFilterDescriptor": [_at],
    "cudnnDestroyConvolutionDescriptor": [_at],
    "cudnnSetTensor4dDescriptor": [_at, _int, _int, *[_int] * 4],  # format, type, n, c, h, w
    "cudnnSetFilter4dDescriptor": [_at, _int, _int, *[_int] * 4],  # type, format, k, c, h, w
    "cudnnSetConvolution2dDescriptor": [_at, *[_int] * 8],  # padding, stride, dilation, mode, type
    "cudnnSetConvolutionMathType": [_at, _int],
    "cudnnGetConvolutionForwardWorkspaceSize": [_at, _at, _at, _at, _at, _int, _at],
    # handle, alpha, x, w, convolution, algorithm, workspace, beta, y
    "cudnnConvolutionForward": [_at, _at, _at, _at, _at, _at, _at, _int, _at, _size, _at, _at, _at],
}


@functools.cache
def library() -> Any:
    """cuDNN; None where it is not installed. PyTorch goes first: it knows where the libraries lie that cuDNN needs."""
    torch()
    folders = [folder / "lib" for name in ("cudnn", "cu13") for folder in nvrtc.package_folders(name)]
    found = [str(path) for folder in folders for path in sorted(folder.glob("libcudnn.so.*"))]
    for name in (*found, ctypes.util.find_library("cudnn")):
        try:
            loaded = ctypes.CDLL(name) if name else None
        except OSError:  # without the libraries that it needs, say
            continue
        if loaded is not None:
            for function, arguments in SIGNATURES.items():
                getattr(loaded, function).argtypes = arguments
            loaded.cudnnGetErrorString.restype = ctypes.c_char_p
            loaded.cudnnGetVersion.restype = ctypes.c_size_t
            return loaded
    return None


def version() -> str:
    """Such as "9.19.0"; "" without cuDNN."""
    if library() is None:
        return ""
    number = int(library().cudnnGetVersion())
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"


def call(function: str, *args: Any) -> None:
    """Refused, with cuDNN's number and name of the status, when it is not 0."""
    status = getattr(library(), function)(*args)
    if status:
        name = library().cudnnGetErrorString(status).decode()
        raise Refused(f"status {status}: {name} ({function})")


@functools.cache
def _handle(gpu: Device) -> ctypes.c_void_p:
    handle = ctypes.c_void_p()
    with gpu.current():
        call("cudnnCreate", ctypes.byref(handle))
    return handle


class Cudnn(Contender):
    """One algorithm of cudnnConvolutionForward, in NCHW or NHWC."""

    group = "cudnn"

    def __init__(self, algorithm: str, layout: str) -> None:
        super().__init__(f"cuDNN {algorithm} {layout}")
        self.algorithm, self.layout = ALGORITHMS.index(algorithm), layout
        self.descriptors: dict[str, ctypes.c_void_p] = {}
        self.room: Buffer | None = None
        self.one, self.zero = ctypes.c_float(1), ctypes.c_float(0)

    def prepare(self, data: Data) -> None:
        if library() is None:
            raise Refused("cuDNN is not installed")
        p, kind = data.problem, FORMATS[self.layout]
        self.gpu, self.handle = data.gpu, _handle(data.gpu)
        for name, what in (("x", "Tensor"), ("w", "Filter"), ("y", "Tensor"), ("convolution", "Convolution")):
            self.descriptors[name] = made = ctypes.c_void_p()
            call(f"cudnnCreate{what}Descriptor", ctypes.byref(made))
        x, w, convolution, y = (self.descriptors[name] for name in ("x", "w", "convolution", "y"))
        call("cudnnSetTensor4dDescriptor", x, kind, FLOAT, *p.x_shape)
        call("cudnnSetTensor4dDescriptor", y, kind, FLOAT, *p.y_shape)
        call("cudnnSetFilter4dDescriptor", w, FLOAT, kind, *p.w_shape)
        numbers = (p.padding, p.padding, p.stride, p.stride, 1, 1, CROSS_CORRELATION, FLOAT)
        call("cudnnSetConvolution2dDescriptor", convolution, *numbers)
        call("cudnnSetConvolutionMathType", convolution, FMA_MATH)
        size = ctypes.c_size_t()
        with self.gpu.current():
            call("cudnnSetStream", self.handle, data.stream.handle)  # the one before may be gone
            call("cudnnGetConvolutionForwardWorkspaceSize", self.handle, x, w, convolution, y, self.algorithm,
                 ctypes.byref(size))  # fmt: skip
        self.workspace = size.value
        self.room = Buffer(self.workspace, "u1", self.gpu)
        self.x, self.y = data.arrays("x", self.layout), data.arrays("y", self.layout)
        self.w = data.arrays("w", WEIGHTS[self.layout])

    def arguments(self, copy: int) -> tuple[Any, ...]:
        """What cudnnConvolutionForward takes for a copy."""
        assert self.room is not None
        x, w, convolution, y = (self.descriptors[name] for name in ("x", "w", "convolution", "y"))
        return (
            self.handle, ctypes.addressof(self.one), x, self.x[copy].address, w, self.w[copy].address,
            convolution, self.algorithm, self.room.address, self.workspace,
            ctypes.addressof(self.zero), y, self.y[copy].address,
        )  # fmt: skip

    def launch(self, copy: int, stream: Stream) -> None:
        with self.gpu.current():
            call("cudnnSetStream", self.handle, stream.handle)
            call("cudnnConvolutionForward", *self.arguments(copy))

    def output(self, copy: int) -> Any:
        return self.y[copy]

    def close(self) -> None:
        for name, descriptor in self.descriptors.items():
            what = {"w": "Filter", "convolution": "Convolution"}.get(name, "Tensor")
            getattr(library(), f"cudnnDestroy{what}Descriptor")(descriptor)
        self.descriptors.clear()
        if self.room is not None:
            self.room.free()


def contenders() -> list[Contender]:
    """Every algorithm in both layouts."""
    return [Cudnn(algorithm, layout) for layout, algorithm in itertools.product(FORMATS, ALGORITHMS)]
