"""Streams, and graphs of launches."""

from __future__ import annotations

import contextlib
import numbers
import weakref
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any

from loader.cuda.gpu import Device, device_named
from turingas.errors import LaunchError
from turingas.stays import Stays


def handle_of(stream: Any) -> int:
    """The number of a stream of cuda-python, PyTorch, CuPy, or anything with ``__cuda_stream__``. LaunchError for what
    is none: a text, a fraction, a number that has more than 64 bits, or is negative."""
    for name in ("cuda_stream", "ptr"):
        if isinstance(found := getattr(stream, name, None), int):
            return found
    if hasattr(stream, "__cuda_stream__"):
        given = stream.__cuda_stream__
        return int((given() if callable(given) else given)[1])
    try:
        if not hasattr(stream, "__index__") and isinstance(stream, (str, bytes, bytearray, numbers.Number)):
            raise TypeError
        found = int(stream)  # cuda-python's have nothing else
    except (TypeError, ValueError):
        raise LaunchError(f"stream is a {type(stream).__name__}", "a number, or a stream of a CUDA library") from None
    if not 0 <= found < 1 << 64:
        raise LaunchError(f"stream is {found}", "0 is the default stream")
    return found


class Stream(Stays):
    """A stream of its own, not ordered with the default stream. ``handle`` is its number, which ``launch`` takes."""

    def __init__(self, device: str | Device = "cuda:0") -> None:
        self.gpu = device_named(device)
        flags = self.gpu.driver.CUstream_flags.CU_STREAM_NON_BLOCKING
        made = self.gpu.call("cuStreamCreate", int(flags))
        self.handle = int(made)
        self._destroy = weakref.finalize(self, self.gpu.quietly, "cuStreamDestroy", made)

    def __repr__(self) -> str:
        return f"<Stream {self.handle:#x} on {self.gpu}{'' if self._destroy.alive else ', closed'}>"

    def __cuda_stream__(self) -> tuple[int, int]:
        if not self._destroy.alive:
            raise LaunchError("the stream is closed")
        return 0, self.handle

    def synchronize(self) -> None:
        """Wait for what was queued. CudaError for what a kernel did wrong."""
        self.gpu.call("cuStreamSynchronize", self.__cuda_stream__()[1])

    def close(self) -> None:
        """Give it back; what was queued is still done."""
        self._destroy()

    def __enter__(self) -> Stream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


@contextlib.contextmanager
def relaxed(gpu: Device) -> Iterator[None]:
    """What another thread records meanwhile is not broken off by what is done here."""
    mode = gpu.driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    before = gpu.call("cuThreadExchangeStreamCaptureMode", mode)
    try:
        yield
    finally:
        gpu.call("cuThreadExchangeStreamCaptureMode", before)


class Graph(Stays):
    """Launches recorded once and queued again and again with one call of the driver.

    ``record(stream)`` is called once and queues on the stream that it is given; nothing runs then. The arguments, grid
    and block of each launch are what they were; the arrays must stay where they are.
    """

    def __init__(self, record: Callable[[Stream], object], device: str | Device = "cuda:0") -> None:
        self.gpu = gpu = device_named(device)
        mode = gpu.driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
        with Stream(gpu) as stream:
            gpu.call("cuStreamBeginCapture", stream.handle, mode)
            try:
                record(stream)
            except BaseException:
                failed, graph = gpu.driver.cuStreamEndCapture(stream.handle)  # the first error is the one to tell
                if not failed:
                    gpu.quietly("cuGraphDestroy", graph)
                raise
            graph = gpu.call("cuStreamEndCapture", stream.handle)
        try:
            self._exec = gpu.call("cuGraphInstantiate", graph, 0)
        finally:
            gpu.quietly("cuGraphDestroy", graph)
        self._destroy = weakref.finalize(self, gpu.quietly, "cuGraphExecDestroy", self._exec)

    def launch(self, stream: Any = 0) -> None:
        """Queue it all."""
        if not self._destroy.alive:
            raise LaunchError("the graph is closed")
        self.gpu.call("cuGraphLaunch", self._exec, handle_of(stream))

    def close(self) -> None:
        """Give it back."""
        self._destroy()

    def __enter__(self) -> Graph:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
