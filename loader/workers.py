"""Work spread over processes, one a GPU, or over a Dask cluster: anything that is a ``concurrent.futures.Executor``.

    with Workers("gpus") as workers:
        for number, made in workers.run(function, tasks):      # in the order in which they are done
            ...

``function`` and what it is given and gives back must pickle: a function of a module, no lambda. A worker that is lost
(it crashed, its machine is gone, its GPU's context broke, it hung) loses no result: what it was doing is tried again,
alone, and given up after ``TRIES``: then ``made`` is a ``Lost``.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, wait
from concurrent.futures import CancelledError as Cancelled
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import ModuleType, TracebackType
from typing import Any, TypeVar

from loader import cuda
from turingas.errors import LaunchError

TRIES = 3
ANSWER = 20.0  # seconds in which a cluster must answer
GPUS = "gpus"
HERE = "here"
SCHEMES = ("tcp://", "tls://", "ucx://", "ws://", "wss://", "inproc://")
VISIBLE = "CUDA_VISIBLE_DEVICES"

Task = TypeVar("Task")
Made = TypeVar("Made")


@dataclass(frozen=True)
class Lost:
    """A task that was given up: ``why``."""

    why: str


class Workers:
    """``asked``: "gpus", a process for each GPU (one where there is none); a number of processes, which share the GPUs
    in turn; "tcp://HOST:PORT", the scheduler of a Dask cluster; "here", this very process, one task after the other.

    ``seconds``: a task that takes longer is taken for a worker that hangs. LaunchError for another ``asked``, for a
    cluster that does not answer, and without the package ``distributed`` where it is needed. ``close``, or ``with``,
    ends the workers; a cluster stays.
    """

    def __init__(self, asked: str = GPUS, seconds: float = 600.0) -> None:
        self.asked, self.seconds = asked, seconds
        self.interrupts = 0  # how often Ctrl-C was pressed in ``interruptible``
        self._cluster: Any = None
        self._executor: Executor | None = None
        if asked == HERE:
            self.count = 1
        elif asked.startswith(SCHEMES):
            self._cluster = _cluster(asked)
            self.count = 2 * max(1, sum(self._cluster.nthreads().values()))
        elif asked == GPUS or (asked.isdecimal() and int(asked) > 0):
            self.count = max(1, cuda.count()) if asked == GPUS else int(asked)
        else:
            hint = "'gpus', a number of processes, or tcp://HOST:PORT of a Dask cluster"
            raise LaunchError(f"workers {asked!r}", hint)

    def __str__(self) -> str:
        if self._cluster is not None:
            return f"Dask cluster {self.asked}"
        return "this process" if self.asked == HERE else f"{self.count} process" + "es" * (self.count > 1)

    def run(
        self, function: Callable[[Task], Made], tasks: Sequence[Task],
        late: Callable[[int], bool] = lambda number: False,
    ) -> Iterator[tuple[int, Made | Lost]]:
        """``function`` of each of ``tasks``, with its number, in the order in which they are done. What it raises ends
        the run. At most as many are on their way as there are workers, and one that it is too ``late`` for when its
        turn comes is left out: a task is looked up when it is begun, and again when it was lost. ``tasks`` may be
        endless, and may become shorter meanwhile."""
        begun, running = 0, dict[Future[Any], int]()
        suspects: list[tuple[int, BaseException]] = []
        try:
            while begun < len(tasks) or running or suspects:
                while begun < len(tasks) and len(running) < self.count and not (suspects or self.interrupts):
                    number, begun = begun, begun + 1
                    if not late(number):
                        running[self._submit(function, tasks[number])] = number
                if self.interrupts and not running:
                    break
                if suspects and not running:  # all that a loss took along has ended: now each alone, to see who did it
                    self._renew()
                    for number, why in suspects:
                        if self.interrupts:
                            break
                        yield number, self._alone(function, tasks[number], why)
                    suspects = []
                    continue
                if not running:
                    break
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    number = running.pop(future)
                    try:
                        made = future.result()
                    except _losses() as why:
                        suspects.append((number, why))
                    else:
                        yield number, made
        finally:
            for future in running:
                future.cancel()

    @contextmanager
    def interruptible(self, tell: Callable[[], None]) -> Iterator[None]:
        """Ctrl-C meanwhile loses nothing that is done: nothing more is begun, and ``run`` ends with what is under way.
        ``tell`` is called then, at any moment. A second one ends the workers, and ``run`` with what is done.
        KeyboardInterrupt afterwards, in both cases; at once in this very process, whose work it ends, at the second of
        a cluster, whose workers stay, and at a third."""
        usual, main = signal.getsignal(signal.SIGINT), threading.current_thread() is threading.main_thread()
        if self.asked == HERE or usual is not signal.default_int_handler or not main:
            yield
            return

        def interrupted(*_: Any) -> None:
            self.interrupts += 1
            processes = dict(getattr(self._executor, "_processes", None) or {})  # a cluster has none
            if self.interrupts > 2 or self.interrupts == 2 and not processes:
                raise KeyboardInterrupt
            if self.interrupts == 1:
                with suppress(RuntimeError):  # it came while something else was printed
                    tell()
                return
            for process in processes.values():
                process.terminate()

        self.interrupts = 0
        signal.signal(signal.SIGINT, interrupted)
        try:
            yield
            if self.interrupts:
                raise KeyboardInterrupt
        finally:
            signal.signal(signal.SIGINT, usual)
            self.interrupts = 0

    def _alone(self, function: Callable[[Task], Made], task: Task, why: BaseException) -> Made | Lost:
        for _ in range(TRIES - 1 if self._cluster is None else 0):  # Dask has tried as often itself
            try:
                return self._submit(function, task).result()
            except _losses() as again:
                if self.interrupts:
                    return Lost("interrupted")
                why = again
                self._renew()
        reason = str(why).partition("\n")[0] or type(why).__name__
        return Lost(f"it was given up after {TRIES} tries: {reason}")

    def _submit(self, function: Callable[[Task], Made], task: Task) -> Future[Made]:
        if self.asked == HERE:
            future: Future[Made] = Future()
            future.set_result(function(task))
            return future
        if self._executor is None:
            self._executor = self._made()
        try:
            with apart():
                return self._executor.submit(watched, function, task, self.seconds)
        except BrokenProcessPool as why:
            future = Future()
            future.set_exception(why)
            return future

    def _made(self) -> Executor:
        if self._cluster is not None:
            executor: Executor = self._cluster.get_executor(pure=False, retries=0)
            return executor
        context = multiprocessing.get_context("spawn")  # a process that has used a GPU cannot be forked
        gpus = context.SimpleQueue()
        names = visible()
        for number in range(self.count):
            gpus.put(names[number % len(names)] if names else "")
        return ProcessPoolExecutor(self.count, context, begin, (gpus,))

    def _renew(self) -> None:
        """A pool that has lost a process is of no more use. A cluster looks after its workers itself."""
        if self._cluster is None and self._executor is not None:
            self._executor.shutdown(wait=False, cancel_futures=True)
            self._executor = None

    def close(self) -> None:
        """End the workers: what they are doing is done, what they have not begun is not."""
        if self._cluster is not None:
            self._cluster.close()
        elif self._executor is not None:
            self._executor.shutdown(wait=True, cancel_futures=True)
        self._executor = None

    def __enter__(self) -> Workers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def visible() -> list[str]:
    """The GPUs of this machine, as CUDA_VISIBLE_DEVICES names them: those that the variable leaves, if it is set."""
    given = os.environ.get(VISIBLE)
    count = cuda.count()
    return given.split(",")[:count] if given else [str(number) for number in range(count)]


@contextmanager
def apart() -> Iterator[None]:
    """A process that is started here leaves Ctrl-C to this one from its first moment, and does not run the program
    that this one runs again: tasks are functions of modules, so a script needs no ``if __name__ == "__main__"``."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        sys.modules["__main__"] = main
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


# ---- in a worker -------------------------------------------------------------------------------------------------


def begin(gpus: Any) -> None:
    """A worker process begins: it sees one GPU alone, and ends with the one that started it, however that ends."""
    threading.Thread(target=_outlived, daemon=True).start()
    if name := gpus.get():
        os.environ[VISIBLE] = name


def _outlived() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def watched(function: Callable[[Task], Made], task: Task, seconds: float) -> Made:
    """``function(task)``; the process ends if that takes too long, or if its GPU is of no more use."""
    clock = threading.Timer(seconds, os._exit, (1,))
    clock.daemon = True
    clock.start()
    try:
        made = function(task)
        pickle.dumps(made)  # what cannot be sent back would break the pool
        return made
    except cuda.CudaError as error:
        if error.lost:
            os._exit(1)
        raise
    finally:
        clock.cancel()


# ---- Dask --------------------------------------------------------------------------------------------------------


def _cluster(address: str) -> Any:
    try:
        distributed = importlib.import_module("distributed")
    except ImportError as error:
        hint = "pip install distributed, here and on all machines of the cluster, in the same version"
        raise LaunchError(f"{address} is a Dask cluster: {error}", hint) from None
    try:
        return distributed.Client(address, timeout=ANSWER, set_as_default=False)
    except (OSError, TimeoutError, ValueError) as error:
        raise LaunchError(f"no Dask scheduler answers at {address}: {error}", "dask scheduler starts one") from None


def _losses() -> tuple[type[BaseException], ...]:
    """What a lost worker looks like from here."""
    found: list[type[BaseException]] = [BrokenProcessPool, Cancelled]
    if (distributed := sys.modules.get("distributed")) is not None:
        found += [distributed.KilledWorker, distributed.client.FutureCancelledError]
    return tuple(found)
