"""Memory for partial results on a GPU: a piece for each stream, which all layers there share.

The kernels on a stream run one behind the other, so the next call may write over what the last one has summed up. A
stream that is being recorded into a CUDA graph is another matter: the graph runs later, wherever it is launched.
"""

from __future__ import annotations

import threading
import weakref

import numpy as np

from loader.cuda import Buffer, CudaError, Device

PIECE = 4 << 20  # floats of a stream's memory, 16 MiB; what needs more takes long enough to hide that it allocates
MOST = 8  # streams of a GPU that have memory
DEFAULT = 0, 1  # the default stream, which is never recorded: as it is, and as CU_STREAM_LEGACY
OF_EACH_THREAD = 2  # CU_STREAM_PER_THREAD: the same number for different streams


class Partial:
    """That of a GPU; ``Partial.of`` finds it. Whoever asks for memory and queues what uses it holds ``lock`` from the
    one to the other, so that no other thread's kernels come in between."""

    def __init__(self, gpu: Device) -> None:
        self.gpu, self.lock = gpu, threading.RLock()  # one that garbage collection, too, may take in between
        self._pieces: dict[int, int] = {}
        self._buffers: list[Buffer] = []

    @classmethod
    def of(cls, gpu: Device) -> Partial:
        """The one of a GPU. Its memory is given back with the last layer that holds it."""
        with _LOCK:
            found = _ALL.get(gpu)
            if found is None:
                found = _ALL[gpu] = cls(gpu)
            return found

    def at(self, stream: int) -> int:
        """The address of PIECE floats for kernels that are queued on the stream now; 0: the caller must allocate."""
        if stream not in DEFAULT and self.recorded(stream):
            return 0
        return self._pieces.get(stream) or self._piece(stream)

    def recorded(self, stream: int) -> bool:
        """Whether what is queued on the stream now is, or may be, recorded into a graph."""
        if stream in DEFAULT or stream == OF_EACH_THREAD:
            return stream == OF_EACH_THREAD
        error, status = self.gpu.driver.cuStreamIsCapturing(stream)
        if error:  # as without a context: what makes one current takes longer
            status = self.gpu.call("cuStreamIsCapturing", stream)
        return int(status) != 0

    def _piece(self, stream: int) -> int:
        """Allocated anew. What another thread records meanwhile is not to be broken off by that."""
        if len(self._pieces) >= MOST:
            return 0
        mode = self.gpu.driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
        before = self.gpu.call("cuThreadExchangeStreamCaptureMode", mode)
        try:
            made = Buffer(PIECE, np.float32, self.gpu)
        except CudaError:  # no memory left: the caller's library may have some
            return 0
        finally:
            self.gpu.call("cuThreadExchangeStreamCaptureMode", before)
        self._buffers.append(made)
        self._pieces[stream] = made.address
        return made.address


_LOCK = threading.Lock()
_ALL: weakref.WeakValueDictionary[Device, Partial] = weakref.WeakValueDictionary()
