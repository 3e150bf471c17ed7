"""Who takes part beside cuDNN's algorithms: PyTorch, and the CUDA C++ references."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from loader.bench.measure import WEIGHTS, Contender, Data, Refused, torch
from loader.cuda import Buffer, Stream
from loader.nvrtc import NvrtcError
from loader.reference import cublas, find
from loader.reference.runner import Runner

# ---- PyTorch -----------------------------------------------------------------------------------------------------

BOUNDS = {"fp32": 1e-4, "tf32": 1e-2, "fp16": 1e-2}  # TF32's own error is 3e-4: it is not taken for float32


#: What no speed-up is over takes part in each such round alone: it is many, and some of it slow.
SELDOM = 3


class Torch(Contender):
    """torch.nn.functional.conv2d with cudnn.benchmark: the algorithm that cuDNN finds to be the fastest."""

    workspace = None
    pool: Any = None  # of torch.cuda.graph_pool_handle: what graphs that are never replayed at once share

    def __init__(self, precision: str, layout: str) -> None:
        super().__init__(f"PyTorch {precision} {layout}")
        self.precision, self.layout, self.bound = precision, layout, BOUNDS[precision]
        self.group, self.every = ("torch", 1) if precision == "fp32" else (precision, SELDOM)
        self.y: list[Any] = []

    def prepare(self, data: Data) -> None:
        self.torch = library = torch()
        if library is None:
            raise Refused("PyTorch is not installed, or sees no GPU")
        self.padding, self.stride = data.problem.padding, data.problem.stride
        self.stream = library.cuda.ExternalStream(data.stream.handle, device=str(data.gpu))
        x, w = data.arrays("x", self.layout), data.arrays("w", WEIGHTS[self.layout])
        self.x = [self._tensor(buffer, self.layout) for buffer in x]
        self.w = [self._tensor(buffer, self.layout) for buffer in w]  # K, C, R, S stand as N, C, H, W do
        self.y = [None] * data.copies
        data.gpu.synchronize()

    def _tensor(self, buffer: Buffer, layout: str) -> Any:
        found = self.torch.as_tensor(buffer, device=str(buffer.gpu)).permute(*(layout.index(axis) for axis in "NCHW"))
        return found.half() if self.precision == "fp16" else found

    def launch(self, copy: int, stream: Stream) -> None:
        with self.torch.cuda.stream(self.stream):
            self._convolve(copy)

    def _convolve(self, copy: int) -> None:
        with cudnn_settings(self.torch, self.precision == "tf32"), self.torch.no_grad():
            convolve = self.torch.nn.functional.conv2d
            self.y[copy] = convolve(self.x[copy], self.w[copy], stride=self.stride, padding=self.padding)

    def record(self, data: Data) -> Any:
        graph = self.torch.cuda.CUDAGraph()
        with self.torch.cuda.graph(graph, pool=self.pool, stream=self.stream, capture_error_mode="thread_local"):
            for copy in range(data.copies):
                self._convolve(copy)
        return _Recorded(self, graph)

    def poison(self, data: Data) -> None:
        for y in self.y:
            y.fill_(float("nan"))
        data.gpu.synchronize()

    def output(self, copy: int) -> Any:
        return self.y[copy]

    def close(self) -> None:
        self.x, self.w, self.y = [], [], []


class _Recorded:
    """A graph of PyTorch's, with the face of ``loader.cuda.Graph``."""

    def __init__(self, contender: Torch, graph: Any) -> None:
        self.contender, self.graph = contender, graph

    def launch(self, stream: Stream) -> None:
        with self.contender.torch.cuda.stream(self.contender.stream):
            self.graph.replay()

    def close(self) -> None:
        self.graph.reset()


@contextlib.contextmanager
def cudnn_settings(library: Any, tf32: bool) -> Iterator[None]:
    """cudnn.benchmark, TF32 on or off; PyTorch's defaults after it."""
    cudnn = library.backends.cudnn
    cudnn.benchmark, cudnn.allow_tf32 = True, tf32
    try:
        yield
    finally:
        cudnn.benchmark, cudnn.allow_tf32 = False, True


def pytorch(precisions: Sequence[str]) -> list[Contender]:
    """Each precision with contiguous tensors (NCHW) and with channels_last (NHWC)."""
    return [Torch(precision, layout) for precision, layout in itertools.product(precisions, ("NCHW", "NHWC"))]


# ---- references --------------------------------------------------------------------------------------------------

OPENCNN = "winograd_opencnn"  # openCNN as it is measured: a speed-up is over it
#: Kernels that only bring the filters into the order that an algorithm takes them in: not timed.
REARRANGING = {"winograd_crsk"}


class Reference(Contender):
    """An algorithm of loader.reference, launched again as it was the first time."""

    def __init__(self, algorithm: str) -> None:
        super().__init__(f"reference {algorithm}")
        self.entry = find(algorithm)
        self.group, self.every = ("opencnn", 1) if algorithm == OPENCNN else ("references", SELDOM)
        self.layout = self.entry.layout
        self.runner: _Recorder | None = None
        if "half" in algorithm:
            self.precision, self.bound = "fp16", 1e-2

    def prepare(self, data: Data) -> None:
        if why := self.entry.supports(data.problem):
            raise Refused(why)
        self.runner = _Recorder(str(data.gpu))
        self.y, self.launches = data.arrays("y", self.layout), []
        x, w = data.arrays("x", self.layout), data.arrays("w", "KCRS")
        for copy in range(data.copies):
            self.runner.launches = []
            try:
                self.entry.function(self.runner, data.problem, x[copy], w[copy], self.y[copy])
            except NvrtcError as error:
                raise Refused(str(error)) from None
            self.launches.append(self.runner.launches)
        self.workspace = self.runner.allocated // data.copies
        data.gpu.synchronize()

    def record(self, data: Data) -> Any:
        if any(kernel is _Cublas for launches in self.launches for kernel, *_ in launches):
            raise Refused("cuBLAS may allocate its workspace while it is recorded")
        return super().record(data)

    def launch(self, copy: int, stream: Stream) -> None:
        for kernel, args, options in self.launches[copy]:
            kernel.launch(*args, stream=stream.handle, **options)

    def output(self, copy: int) -> Any:
        return self.y[copy]

    def close(self) -> None:
        self.launches = []
        if self.runner is not None:
            self.runner.close()


class _Recorder(Runner):
    """A runner that keeps the launches, and counts the bytes that it allocates."""

    def __init__(self, device: str) -> None:
        super().__init__(device)
        self.launches: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = []
        self.allocated = 0

    def module(self, name: str, options: Sequence[str] = ()) -> Any:
        return _Module(super().module(name, options), self)

    def empty(self, shape: Sequence[int], dtype: Any = np.float32) -> Any:
        made = super().empty(shape, dtype)
        self.allocated += made.nbytes
        return made

    def products(self, *args: Any) -> None:
        self.launches.append((_Cublas, args, {}))
        super().products(*args)


class _Cublas:
    """cuBLAS's product, with the face of a kernel."""

    launch = staticmethod(cublas.products)


class _Module:
    """A module of a recorder."""

    def __init__(self, module: Any, recorder: _Recorder) -> None:
        self.module, self.recorder = module, recorder

    def __getattr__(self, name: str) -> Any:
        return getattr(self.module, name)

    def kernel(self, name: str | None = None) -> Any:
        return _Kernel(self.module.kernel(name), self.recorder)


class _Kernel:
    """A kernel of a recorder's module."""

    def __init__(self, kernel: Any, recorder: _Recorder) -> None:
        self.kernel, self.recorder = kernel, recorder

    def launch(self, *args: Any, **options: Any) -> Any:
        if self.kernel.name not in REARRANGING:
            self.recorder.launches.append((self.kernel, args, options))
        return self.kernel.launch(*args, **options)
