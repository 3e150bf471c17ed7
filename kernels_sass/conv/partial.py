"""Memory for partial results on a GPU: a piece for each stream, which all layers there share; and what queues a layer's
kernels with it.

The kernels on a stream run one behind the other, so the next call may write over what the last one has summed up. A
stream that is being recorded into a CUDA graph is another matter: the graph runs later, wherever it is launched.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from loader.cuda import Buffer, CudaError, Device
from loader.cuda.streams import relaxed
from loader.cuda.written import let_go
from turingas.errors import LaunchError
from turingas.forks import freed

PIECE = 4 << 20  # floats of a stream's memory, 16 MiB; what needs more takes long enough to hide that it allocates
MOST = 8  # streams of a GPU that have memory
DEFAULT = 0, 1  # the default stream, which is never recorded: as it is, and as CU_STREAM_LEGACY
#: microseconds that a layer of two kernels takes the GPU, about, up to which a graph queues both: with longer ones the
#: GPU has enough to do while the host launches them one by one, and takes up to 3 % longer with a graph
#: (tests/bench/launch.py)
SHORT = 12.0
OF_EACH_THREAD = 2  # CU_STREAM_PER_THREAD: the same number for different streams


class Partial:
    """That of a GPU; ``Partial.of`` finds it. Whoever asks for memory and queues what uses it holds ``lock`` from the
    one to the other, so that no other thread's kernels come in between."""

    def __init__(self, gpu: Device) -> None:
        self.gpu, self.lock = gpu, freed(threading.RLock())  # one that garbage collection, too, may take in between
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

    def allocated(self, floats: int) -> Buffer:
        """What is recorded meanwhile, by this thread or another, is not to be broken off by that."""
        with relaxed(self.gpu):
            return Buffer(floats, np.float32, self.gpu)

    def _piece(self, stream: int) -> int:
        """Allocated anew."""
        if len(self._pieces) >= MOST:
            return 0
        try:
            made = self.allocated(PIECE)
        except CudaError:  # no memory left: the caller's library may have some
            return 0
        self._buffers.append(made)
        self._pieces[stream] = made.address
        return made.address


class Kept:
    """Memory of a layer on a GPU for what ``Partial`` has no room for, where the caller's library has none: a piece for
    what is queued, and one for what graphs are recorded with. What a graph has is there until the layer is closed."""

    def __init__(self, shared: Partial) -> None:
        self.shared = shared
        self.pieces: dict[bool, Buffer] = {}  # by whether it is for graphs
        self._before: list[Buffer] = []

    def at(self, stream: int, floats: int) -> int:
        """The address of so many floats, the same as before if that has as many: for one stream at a time."""
        graph = self.shared.recorded(stream)
        piece = self.pieces.get(graph)
        if piece is None or piece.nbytes < 4 * floats:
            if piece is not None and not graph:
                self.pieces.pop(graph).free()
            elif piece is not None:
                self._before.append(piece)
            piece = self.pieces[graph] = self.shared.allocated(floats)
        return piece.address

    def free(self) -> None:
        """Give all back."""
        for one in (*self.pieces.values(), *self._before):
            one.free()
        self.pieces.clear()
        self._before.clear()


_LOCK = freed(threading.Lock())
_ALL: weakref.WeakValueDictionary[Device, Partial] = weakref.WeakValueDictionary()


# ---- who queues --------------------------------------------------------------------------------------------------

#: of a stream (None: the CPU device) and the addresses of x, y, residual and of memory between kernels, 0: none
Queue = Callable[[Any, tuple[Any, ...]], None]


class Owner(Protocol):
    """Whose kernels are queued."""

    closed: bool

    def scratch(self, library: Any, like: Any, count: int, place: int, stream: int) -> tuple[Any, int]:
        """Memory for so many elements that nobody else has, and what must live until all is queued."""


def running(
    lock: Any, count: int, place: int, at: Callable[[int], int] | None, queue: Queue, together: Queue
) -> Callable[..., None]:
    """What queues a layer's kernels for a shape of x: a function of the owner, the library, an array of it such as x,
    the stream, and the addresses of x, y and residual, 0: none. ``count``: elements of the memory that the kernels need
    between them; ``at``: where it is at hand (``Partial.at``), None if there is no room; ``together``: what queues them
    then, on a stream that is not being recorded.

    All that it needs is at hand, since each look-up of a name is time; but for the owner, which would go round in
    circles and keep its memory until that is noticed."""
    acquire, release = lock.acquire, lock.release

    def run(owner: Owner, library: Any, like: Any, stream: int, x: int, y: int, residual: int) -> None:
        try:  # what `with` does takes longer
            acquire()
            if owner.closed:
                raise LaunchError("the layer is closed")
            if not count:
                queue(stream, (x, y, residual, 0))
            elif at is not None and (memory := at(stream)):
                together(stream, (x, y, residual, memory))
            else:
                kept, memory = owner.scratch(library, like, count, place, stream)  # freed when all is queued
                queue(stream, (x, y, residual, memory))
        except BaseException:
            let_go(release)
            raise
        release()

    return run
