"""Cubins on a device, their kernels, and launches: the face that all devices have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from turingas.cubin.cubin import Cubin
from turingas.errors import LaunchError
from turingas.stays import Stays

if TYPE_CHECKING:
    from turingas.emulate import Report

CPU = "cpu"
Self = TypeVar("Self", bound="Module")


@dataclass(frozen=True)
class Given:
    """In the place of an argument of ``Kernel.prepare``, an array or a tensor map: its number among those that are
    given each time, from 0: an address, or the bytes of the map."""

    number: int

    def __post_init__(self) -> None:
        if self.number < 0:
            raise LaunchError(f"Given({self.number}): numbers begin with 0")


class Module(Stays):
    """A cubin on a device. Its code and variables live as long as it does; ``close``, or ``with``, ends that.

    Several threads may use one module and its kernels.
    """

    instead = "load its cubin, .cubin, where it is needed"

    def __init__(self, cubin: Cubin, device: str) -> None:
        self.cubin, self.device = cubin, device
        self.chosen: str | None = None  # the kernel that it was loaded for

    def __repr__(self) -> str:
        return f"<{type(self).__name__} on {self.device}: {self.cubin!r}>"

    def kernel(self, name: str | None = None) -> Kernel:
        """The kernel called ``name`` (in the cubin, or in C++), or the one that ``load`` was asked for, or the
        only one. LaunchError names those there are."""
        raise NotImplementedError

    def variable(self, name: str) -> Any:
        """The bytes of a ``__device__`` variable, in place: a numpy array of uint8 on the CPU device, a
        ``loader.cuda.Buffer`` on a GPU. LaunchError when there is none."""
        raise NotImplementedError

    def queue(self, launches: Sequence[Any], count: int = 0, together: bool = False) -> Callable[..., None]:
        """What ``Kernel.prepare`` gave for kernels of this module, or of others on its device, made ready to be
        launched one behind the other, again and again: a function of the stream and of what is ``Given`` each time, in
        the order of its numbers (``count`` arguments at least, though some may not be used). On a GPU the stream is a
        number and what is given are addresses there, which nobody checks; on the CPU device they are arrays.
        ``together``: on a GPU, if there are several different kernels, as one CUDA graph from the third call on a
        stream on, which takes the host less time; not for streams that are being recorded.

        Several threads that call it must hold a lock, which keeps the modules from being closed too.
        """
        run = self.queue_of_tuples(launches, count, together)
        return lambda stream, *given: run(stream, given)

    def queue_of_tuples(
        self, launches: Sequence[Any], count: int = 0, together: bool = False
    ) -> Callable[..., None]:
        """The same, of the stream and a tuple of what is given: a call of Python less."""

        def run(stream: int | None, given: tuple[Any, ...]) -> None:
            for launch in launches:
                launch(given)

        return run

    def synchronize(self) -> None:
        """Wait until the device has done what it was told. CudaError for what a kernel did wrong."""

    def close(self) -> None:
        """Give the device's memory back. The module cannot be used any more."""
        raise NotImplementedError

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class Kernel(Stays):
    """A kernel of a module."""

    instead = "load its cubin where it is needed"

    def __init__(self, module: Module, name: str) -> None:
        self.module, self.name = module, name

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name} on {self.module.device}>"

    def launch(
        self,
        grid: int | Sequence[int],
        block: int | Sequence[int],
        *args: Any,
        shared: int = 0,
        stream: Any = None,
        early: bool = False,
        cluster: int | Sequence[int] | None = None,
        cooperative: bool = False,
        **options: Any,
    ) -> Report | None:
        """Run the kernel.

        ``grid`` and ``block`` are one to three numbers. ``args``, one for each parameter: arrays in C order, used in
        place (``loader.arrays``); Python and numpy numbers of the parameter's size; bytes for a struct. ``shared``:
        dynamic shared memory in bytes. ``stream``: where a GPU queues it, see ``loader.cuda``. ``early``: from sm_90 on
        the kernel may begin before the one before it in the stream has ended (programmatic dependent launch), and must
        wait for that itself, by ACQBULK, before it touches memory; elsewhere it makes no difference.
        ``cluster``: blocks of a cluster, one to three numbers that divide those of the grid, from sm_90 on; None: as
        the kernel was compiled (``__cluster_dims__``), else no clusters. ``cooperative``: all blocks run at once, and
        may wait for each other (grid groups of CUDA's cooperative groups).

        On the CPU device the kernel has ended when this returns, with a report of what it came to; ``options`` are
        those of ``loader.cpu.CpuKernel.launch``. A GPU has only been told, and the answer is None.

        LaunchError for what no device would take, before anything runs. DeviceError (CPU device) and CudaError (GPU,
        now or at a later call) for what the kernel does.
        """
        raise NotImplementedError

    def prepare(
        self,
        grid: int | Sequence[int],
        block: int | Sequence[int],
        *args: Any,
        shared: int = 0,
        early: bool = False,
        cluster: int | Sequence[int] | None = None,
    ) -> Any:
        """A launch with all settled but the arguments that are ``Given``, arrays, for ``Module.queue``."""

        def launch(given: Sequence[Any]) -> None:
            now = (given[one.number] if isinstance(one, Given) else one for one in args)
            self.launch(grid, block, *now, shared=shared, early=early, cluster=cluster)

        return launch
