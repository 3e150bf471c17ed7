"""What becomes of a candidate: made from a parent by moves, looked at by the linter, compared, timed, run strictly.

All of it happens in a worker (loader.workers): ``evaluate``, ``prove`` and ``look`` are given an ``Order``, which
pickles, and keep what they need again, such as the original's results, in their process.
"""

from __future__ import annotations

import fcntl
import functools
import math
import multiprocessing
import os
import statistics
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import loader
from loader import cuda
from loader.bench import measure
from loader.cuda import Buffer, CudaError, Stream
from loader.cuda import Graph as Recorded
from loader.timing import Events
from loader.tune.launches import Bench, Launch, read, told
from loader.tune.model import cycles
from loader.workers import VISIBLE
from turingas.assembler.schedule import again
from turingas.check.lint import lint_kernel
from turingas.cubin.cubin import Cubin
from turingas.cubin.model import Kernel
from turingas.emulate.errors import DeviceError
from turingas.errors import AsmError, LaunchError
from turingas.isa import control
from turingas.isa.given import whole
from turingas.scheduler.codes import codes
from turingas.scheduler.moves import Moves, hinted, pins, with_hint
from turingas.scheduler.order import replaced

Words = tuple[int, ...]
Array = np.ndarray[Any, Any]

MODEL = "CPU device"  # what is said to be timed where there is no GPU
RUNS, FINAL_RUNS = 24, 100  # rounds of a timing; of the last one
#: rounds of a timing after which who is slower by so much is not measured any longer
SLOWER = ((2, 1.03), (6, 1.01), (12, 1.004))
COPIES = 16  # of the arguments, at most, so that a launch does not find them in the L2,
ENOUGH, MOST = 0.25, 2.0  # and so that all take so many milliseconds: how fast a launch is depends on where its arrays
#: lie. Of those that take longer there are fewer copies, for in their time other candidates can be tried
MOST_MOVES = 3  # of a child
INPUTS = 2  # random inputs of the comparison before a candidate may be a parent; on a GPU one before it is timed
HANGS = 20.0  # seconds after which a launch is not waited for any longer
KEPT_BYTES = 1 << 28  # of inputs that are kept on the GPU, to be there again quickly
STRICT_INPUTS = 2  # ... of the strict run


@dataclass(frozen=True)
class Order:
    """What is tuned. ``cubin``: the file; ``bench``: the text of the Python file, ``path`` its name; ``device`` "cpu"
    or "cuda"."""

    cubin: bytes
    kernel: str
    bench: str
    path: str
    device: str


class Child(NamedTuple):
    """A task: a child of ``words`` by the moves that ``seed`` draws; or ``words`` themselves once more (``again``); or
    what the scheduler makes of the original (``start``, one of STARTS). ``bar``: who is slower than that is not looked
    at any further."""

    order: Order
    words: Words
    seed: tuple[int, ...]
    bar: float
    again: bool = False
    start: str = ""


class Outcome(NamedTuple):
    """``figure``: its time or its model's cycles, the original's being 1. ``why``: "", or what it was refused for."""

    words: Words
    moves: tuple[str, ...]
    figure: float
    why: str = ""


class Proof(NamedTuple):
    """What holds of the best candidate: ``figure`` as it was measured last, ``inputs``: on how many random inputs it
    left the original's bits, ``strict``: on how many of them in the strict mode of the CPU device; ``blind``: why on
    none."""

    figure: float
    inputs: int
    strict: int
    why: str = ""
    blind: str = ""


#: what is tried first, besides moves: all codes made anew, and another order (turingas.assembler.schedule.again); loops
#: as Moves.arranged has them, if what has no fixed latency takes "longer"; stalls alone ("stalls": and yields, by which
#: rule); and what global accesses tell the caches ("hint")
LAST = "LDG of the last block"
STRICT = "as it is, in strict mode"  # on a GPU, beside others: it may take longer than a hundred of these
STARTS: dict[str, dict[str, Any]] = {
    STRICT: {},
    # those that have won, by python -m tests.bench.tune_starts with what searches have noted
    "codes made anew, no yields": {"yields": "natural"},
    "loops for slow results, yields": {"longer": 2.0, "rule": "ptxas"},
    "stores leave the caches first, loads last": {"hint": [("LDG", "EL"), ("STG", "EF")]},
    "loads fetch 256 bytes, stores leave the caches first":
        {"hint": [("LDG", "LTC256B"), ("LDGSTS", "LTC256B"), ("STG", "EF")]},
    "loops for slow results, other registers, yields": {"longer": 2.0, "rule": "ptxas", "names": True},
    "loops for slow results, other registers, unpaced":
        {"longer": 2.0, "rule": "natural", "names": True, "paced": False},
    "reordered, unpaced": {"reorder": True, "yields": "natural", "paced": False},
    "reordered, other registers, unpaced": {"reorder": True, "rename": True, "yields": "natural", "paced": False},
    # and others
    "codes made anew": {},
    "reordered": {"reorder": True}, "reordered, no yields": {"reorder": True, "yields": "natural"},
    "reordered, other registers": {"reorder": True, "rename": True},
    "reordered, other registers, no yields": {"reorder": True, "rename": True, "yields": "natural"},
    "loops for slow results": {"longer": 2.0, "rule": "natural"},
    "loops with other registers": {"longer": 1.0, "rule": "natural", "names": True},
    "loops for slow results, other registers": {"longer": 2.0, "rule": "natural", "names": True},
    "loops for slower results, other registers": {"longer": 3.0, "rule": "natural", "names": True},
    "loops for slow results, their scoreboards": {"longer": 2.0, "rule": "natural", "keep": True},
    "loops for slow results, unpaced": {"longer": 2.0, "rule": "natural", "paced": False},
    "stalls made anew, unpaced": {"stalls": "natural", "paced": False},
    "stalls made anew": {"stalls": "kept"}, "stalls made anew, no yields": {"stalls": "natural"},
    "stores leave the caches first": {"hint": [("STG", "EF")]},
    "loads leave the caches first": {"hint": [("LDG", "EF")]},
    "loads and stores leave the caches first": {"hint": [("LDG", "EF"), ("STG", "EF")]},
    "stores and the last loads leave the caches first, other loads last":
        {"hint": [("LDG", "EL"), (LAST, "EF"), ("STG", "EF")]},
    "loads pass by the L1": {"hint": [("LDG", "NA")]},
    "loads fetch 128 bytes": {"hint": [("LDG", "LTC128B"), ("LDGSTS", "LTC128B")]},
    "loads fetch 256 bytes": {"hint": [("LDG", "LTC256B"), ("LDGSTS", "LTC256B")]},
}  # fmt: skip


class Refused(Exception):
    """A candidate is not taken, and why."""


# ---- what a worker is asked for ----------------------------------------------------------------------------------


def look(order: Order) -> dict[str, Any]:
    """What there is to know before a search: ``device``, ``arch``, ``instructions``, ``figure`` (milliseconds, or
    cycles of the model). LaunchError for an original that cannot be compared with. (On a GPU the strict run, which may
    take longer than a hundred candidates, is left to ``prove``.)"""
    judge = Judge.of(order)
    judge.original(strict=judge.gpu is None)
    count = len(judge.kernel.words)
    return {"device": judge.name, "arch": judge.cubin.arch, "instructions": count, "figure": judge.own, "blind": ""}


def evaluate(child: Child) -> Outcome:
    """A child, judged."""
    judge = Judge.of(child.order)
    words: Words = child.words
    moves: tuple[str, ...] = ()
    try:
        if child.start == STRICT:
            if judge.gpu:  # else ``look`` has done it
                judge.original(strict=True)
            return Outcome(words, (STRICT,), 1.0)
        if not child.again:
            words, moves = judge.started(child.start) if child.start else judge.moved(words, child.seed)
            judge.lint(words)
            if judge.gpu:
                judge.compare(words, judge.bench.timed, range(1), strict=False)
        figure = judge.figure(words, RUNS, child.seed, child.bar)
        if figure < child.bar and not child.again:
            if judge.gpu:
                judge.compare(words, judge.bench.timed, range(1, INPUTS), strict=False)
            else:
                judge.compare(words, judge.check, range(STRICT_INPUTS), strict=True)
    except Refused as why:
        return Outcome(words, moves, math.inf, str(why))
    return Outcome(words, moves, figure)


def strictly(task: tuple[Order, Words, int, bool]) -> Proof:
    """Of what is timed on a GPU: whether a candidate is right in the strict mode of the CPU device, on so many random
    inputs at most. LaunchError if the original is not, unless that is ``known``."""
    order, words, inputs, known = task
    judge = Judge.of(order)
    if not known:
        judge.original(strict=True)
    inputs = 0 if judge.blind else min(inputs, STRICT_INPUTS)
    try:
        judge.compare(words, judge.check, range(INPUTS, INPUTS + inputs), strict=True)
    except Refused as why:
        return Proof(math.inf, 0, 0, str(why))
    return Proof(0.0, inputs, inputs, "", judge.blind)


def prove(task: tuple[Order, Words, range, int]) -> Proof:
    """Whether a candidate keeps what is promised on the device, on some random inputs, none of which was used before;
    on the CPU device that is its strict mode. And how fast it is, in so many rounds."""
    order, words, inputs, runs = task
    judge = Judge.of(order)
    launch = judge.bench.timed if judge.gpu else judge.check
    try:
        judge.lint(words)
        judge.compare(words, launch, inputs, strict=judge.gpu is None)
        return Proof(judge.figure(words, runs, (0,)), len(inputs), 0 if judge.gpu else len(inputs))
    except Refused as why:
        return Proof(math.inf, 0, 0, str(why))


# ---- how it finds out --------------------------------------------------------------------------------------------


class Judge:
    """Of one order, in one process."""

    def __init__(self, order: Order) -> None:
        self.order = order
        self.cubin = Cubin.from_bytes(order.cubin)
        self.kernel = self.cubin.kernel(order.kernel)
        self.bench: Bench = read(order.bench, order.path)
        self.gpu = cuda.device(0) if order.device != "cpu" else None
        first = replace(self.bench.timed, grid=1) if self.gpu else self.bench.timed
        self.check = self.bench.check or first
        self.name = self.gpu.name if self.gpu else MODEL
        self.pinned = pins(self.kernel)
        self.findings = _findings(self.kernel)
        self._wanted: dict[tuple[bool, int], list[Array]] = {}
        self._runs: Sequence[int] | None = None
        self._timer: Timer | None = None
        self._args: dict[tuple[bool, int], list[Any]] = {}  # of the inputs that every candidate is given
        self._there: list[Buffer] = []  # on the GPU, what a launch is given
        self._clean: dict[int, list[Buffer]] = {}  # ... and what is in it before, by the input
        self._host: dict[int, Array] = {}
        self._written: set[int] = set()  # which arrays the original writes
        self.moves = functools.lru_cache(maxsize=2 * MOST_MOVES)(self._moves)  # of parents, which have many children
        self._own = 0.0

    @staticmethod
    @functools.lru_cache(maxsize=2)
    def of(order: Order) -> Judge:
        """The one of this process."""
        return Judge(order)

    @property
    def own(self) -> float:
        """The original's time in milliseconds, or its cycles in the model."""
        if not self._own:
            if self.gpu:
                with self.alone():
                    self._own = self.timer.alone()
            else:
                self._own = cycles(self.kernel, self.runs)
        return self._own

    @functools.cached_property
    def blind(self) -> str:
        """Why the CPU device cannot run the kernel, where a GPU can do without: an instruction that it does not know.
        "" if it can."""
        if self.gpu is None:
            return ""
        try:
            self.wanted(False, 0)
        except DeviceError as error:
            if error.kind != "unsupported":
                raise Refused(str(error).splitlines()[0]) from None
            place = error.place and replace(error.place, line=0)  # results keep this: no file of this machine
            return str(DeviceError(error.kind, error.message, place)).splitlines()[0]
        return ""

    def original(self, strict: bool) -> None:
        """LaunchError unless the original, run twice on the device, leaves the same; and ``strict`` on the CPU
        device."""
        words = tuple(self.kernel.words)
        try:
            if strict:
                self.compare(words, self.check, range(1), strict=True)
            if not (strict and self.gpu):
                self.compare(words, self.bench.timed if self.gpu else self.check, range(1), strict=False)
        except Refused as why:
            hint = f"{self.order.path} says how it is launched: that must be right, and the same each time"
            raise LaunchError(f"{self.order.kernel} cannot be tuned as it is: {why}", hint) from None

    def made(self, words: Words) -> Cubin:
        """The cubin with a candidate in the kernel's place."""
        return with_words(self.order.cubin, self.order.kernel, words)

    def moved(self, words: Words, seed: tuple[int, ...]) -> tuple[Words, tuple[str, ...]]:
        """A child by some moves."""
        random, texts = np.random.default_rng(seed), list[str]()
        for _ in range(1 + int(random.integers(MOST_MOVES))):
            made = self.moves(words).any(random)
            if made is not None:
                words, text = tuple(made[0]), made[1]
                texts.append(text)
        if not texts:
            raise Refused("no move can be made")
        return words, tuple(texts)

    def started(self, start: str) -> tuple[Words, tuple[str, ...]]:
        """The original as the scheduler would have it, or with hints."""
        own, how = self.kernel.words, dict(STARTS[start])
        if "hint" in how:
            words = own
            for base, name in how["hint"]:
                words = with_hint(self.kernel, words, self.last() if base == LAST else hinted(self.kernel, base), name)
            if words == own:
                raise Refused("no access takes a hint")
            return tuple(words), (start,)
        if "longer" in how:
            return self.arranged(how), (start,)
        paced = how.pop("paced", True)
        if "stalls" in how:
            return _stalled(self.kernel, how["stalls"] == "natural", paced), (start,)
        try:
            made, _ = again(self.cubin, **how, stay={self.order.kernel: self.pinned})
        except AsmError as error:
            raise Refused(f"scheduler: {error.message}") from None
        words = made.kernel(self.order.kernel).words
        if any((words[n] ^ own[n]) & ~control.MASK for n in self.pinned):
            raise Refused("what is named by its address would move")
        return tuple(words) if paced else _stalled(made.kernel(self.order.kernel), True, False), (start,)

    def last(self) -> list[int]:
        """The global loads of the last block that has some."""
        block, places = self.moves(tuple(self.kernel.words)).block, hinted(self.kernel, "LDG")
        return [n for n in places if block[n] is block[places[-1]]]

    def arranged(self, how: dict[str, Any]) -> Words:
        """The original with its loops as Moves.arranged has them."""
        words: Words = tuple(self.kernel.words)
        for first in self.moves(words).loops():
            moves = self.moves(words)
            found = moves.arranged(moves.block[first], **how)
            words = words if found is None else tuple(found[0])
        return words

    def _moves(self, words: Words) -> Moves:
        return Moves(self.made(words).kernel(self.order.kernel), self.pinned)

    def lint(self, words: Words) -> None:
        """Refused if the linter finds an error or a warning that the original has not."""
        new = _findings(self.made(words).kernel(self.order.kernel)) - self.findings
        if new:
            raise Refused(f"linter: {next(iter(new))}")

    def compare(self, words: Words, launch: Launch, inputs: Sequence[int], strict: bool) -> None:
        """Refused unless a candidate leaves the bits that the original leaves. ``strict`` runs on the CPU device, if
        that is not ``blind``. Of the inputs that every candidate is given, arrays that the original has not written
        are not looked at on a GPU: of the others (``prove``) they are."""
        if strict and self.blind:
            return
        on_gpu = self.gpu is not None and not strict
        wanted = [self.wanted(on_gpu, seed) for seed in inputs] if on_gpu and max(inputs, default=0) < INPUTS else []
        with loader.load(self.made(words), "cuda:0" if on_gpu else "cpu") as module:
            for number, seed in enumerate(inputs):
                what = "strict mode" if strict else "bits"
                try:
                    with self.alone() if on_gpu else nullcontext(), in_time() if on_gpu else nullcontext():
                        found = self._left(module, launch, seed, strict, wanted[number] if wanted else None)
                except (DeviceError, CudaError) as error:
                    if getattr(error, "lost", False):
                        raise
                    raise Refused(f"{what}: {str(error).splitlines()[0]}") from None
                right = wanted[number] if wanted else self.wanted(on_gpu, seed)
                if not all(a is None or _same(a, b) for a, b in zip(found, right)):
                    raise Refused(f"{what}: other results than the original's on random input {seed}")

    def wanted(self, on_gpu: bool, seed: int) -> list[Array]:
        """The arrays that the original leaves; those of the first inputs are kept."""
        key = on_gpu, seed
        if key in self._wanted:
            return self._wanted[key]
        with loader.load(self.cubin, "cuda:0" if on_gpu else "cpu") as module:
            with self.alone() if on_gpu else nullcontext():
                left = self._left(module, self.bench.timed if on_gpu else self.check, seed, False)
        found = [one for one in left if one is not None]
        if seed < INPUTS:
            self._wanted[key] = found
            if on_gpu:
                before = [one for one in self._arguments(self.bench.timed, True, seed) if _is_array(one)]
                self._written |= {n for n, (a, b) in enumerate(zip(found, before)) if not _same(a, b)}
        return found

    def _left(
        self, module: loader.Module, launch: Launch, seed: int, strict: bool, like: Sequence[Array] | None = None
    ) -> list[Array | None]:
        """The arrays after a launch; ``like``: those alone that the original has written, in memory that the next
        launch takes again."""
        gpu = self.gpu if module.device != "cpu" else None
        args = self._arguments(launch, gpu is not None, seed)
        given = self._on(gpu, args, seed) if gpu else args
        options: dict[str, Any] = {} if gpu else {"strict": strict, "counters": not strict}
        kernel = module.kernel(self.order.kernel)
        with told(launch.path):
            report = kernel.launch(launch.grid, launch.block, *given, shared=launch.shared, **options)
        module.synchronize()
        if report is not None and report.hazards:
            raise Refused(f"strict mode: {str(report.hazards[0]).splitlines()[0]}")
        if report is not None and report.counters is not None and self._runs is None:
            self._runs = [int(count) for count in report.counters.warps]
        if not gpu:
            return [one for one in args if _is_array(one)]
        if like is None or not self._written:
            return [there.numpy() for there in self._there]
        for n in self._written:
            if n not in self._host:
                self._host[n] = np.empty_like(like[n])
            self._there[n].copy_to(self._host[n])
        return [self._host[n] if n in self._written else None for n in range(len(self._there))]

    def _on(self, gpu: cuda.Device, args: Sequence[Any], seed: int) -> list[Any]:
        """The arguments with their arrays on the GPU, in memory that all launches of the order share. Those that every
        candidate is given stay there once more, as they were."""
        arrays = [one for one in args if _is_array(one)]
        if [(one.shape, one.dtype) for one in arrays] != [(one.shape, one.dtype) for one in self._there]:
            self._there = [Buffer(one.shape, one.dtype, gpu) for one in arrays]
            self._clean = {}
        if seed < INPUTS and seed not in self._clean and sum(one.nbytes for one in arrays) <= KEPT_BYTES:
            self._clean[seed] = [Buffer.of(one, gpu) for one in arrays]
        for there, source in zip(self._there, self._clean.get(seed) or arrays):
            there.copy_from(source)
        given = iter(self._there)
        return [next(given) if _is_array(one) else one for one in args]

    def _arguments(self, launch: Launch, on_gpu: bool, seed: int) -> list[Any]:
        """The arguments of an input; arrays may be written on the CPU device, where they are used in place."""
        if (on_gpu, seed) not in self._args:
            for other in [key for key in self._args if key[1] >= INPUTS]:
                del self._args[other]  # of the others the last alone, which the original and a candidate are given
            self._args[on_gpu, seed] = launch.made(seed)
        return [one.copy() if _is_array(one) and not on_gpu else one for one in self._args[on_gpu, seed]]

    @property
    def runs(self) -> Sequence[int]:
        """How often a warp runs each instruction of the original, on the CPU device."""
        if self._runs is None:
            self._wanted.pop((False, 0), None)
            self.wanted(False, 0)
            assert self._runs is not None
        return self._runs

    def figure(self, words: Words, runs: int, seed: tuple[int, ...], bar: float = math.inf) -> float:
        """Time or cycles, as a part of the original's. ``bar``: who is slower than that need not be measured well."""
        if self.gpu:
            with self.alone():
                return self.timer.ratio(self.made(words), runs, seed, bar)
        return cycles(self.made(words).kernel(self.order.kernel), self.runs) / self.own

    @contextmanager
    def alone(self) -> Iterator[None]:
        """No other process of a search uses this GPU meanwhile: several share one, so that candidates are made, linted
        and run strictly while another is timed."""
        name = f"turingas-{os.getuid()}-gpu-{os.environ.get(VISIBLE, '0')}.lock"
        place = Path(tempfile.gettempdir(), name.replace(os.sep, "_"))
        with place.open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    @property
    def timer(self) -> Timer:
        """Of this process's GPU."""
        if self._timer is None:
            assert self.gpu is not None
            args = self._arguments(self.bench.timed, True, 0)
            self._timer = Timer(self.order.kernel, self.bench.timed, args, self.cubin, self.gpu)
        return self._timer


class Timer:
    """Times a candidate and the original in the same run, in turns; each takes all copies of the arguments."""

    def __init__(self, kernel: str, launch: Launch, args: Sequence[Any], original: Cubin, gpu: cuda.Device) -> None:
        self.kernel, self.launch, self.gpu = kernel, launch, gpu
        self.stream = Stream(gpu)
        nbytes = sum(one.nbytes for one in args if _is_array(one))
        l2 = gpu.attribute("L2_CACHE_SIZE")
        self.copies = 1
        self.given = [[Buffer.of(one, gpu) if _is_array(one) else one for one in args]]
        self.scratch = Buffer(2 * max(l2, 1 << 20), "u1", gpu)
        self.events = Events(gpu, 2)
        self.module = loader.load(original, "cuda:0")
        self.original = self._record(self.module)
        took = max(self.alone(), 1e-6)
        wanted = max(measure.ROTATION * l2 / max(nbytes, 1), ENOUGH / took)
        self.copies = max(1, min(COPIES, math.ceil(wanted), int(MOST / took)))
        while len(self.given) < self.copies:
            self.given.append([Buffer(one.shape, one.dtype, self.gpu) if isinstance(one, Buffer) else one
                               for one in self.given[0]])  # fmt: skip
            for one, first in zip(self.given[-1], self.given[0]):
                if isinstance(one, Buffer):
                    one.copy_from(first)
        self.original = self._record(self.module)

    def _record(self, module: loader.Module) -> Recorded:
        kernel = module.kernel(self.kernel)

        def all_copies(stream: Stream) -> None:
            for given in self.given:
                kernel.launch(self.launch.grid, self.launch.block, *given, shared=self.launch.shared, stream=stream)

        all_copies(self.stream)  # what is loaded at a first launch is so before it is recorded
        self.stream.synchronize()
        return Recorded(all_copies, self.gpu)

    def ratio(self, candidate: Cubin, runs: int, seed: Sequence[int], bar: float = math.inf) -> float:
        """The median of what a candidate takes, each time as a part of what the original took in the same round. After
        a few rounds those go on that may be faster than ``bar``."""
        random = np.random.default_rng(tuple(seed))
        found: list[list[float]] = []
        with loader.load(candidate, "cuda:0") as module, self._record(module) as replay:
            for until, limit in (*SLOWER, (runs, math.inf)):
                found += self._rounds([replay, self.original], min(until, runs) - len(found), random, not found)
                if statistics.median(a / b for a, b in found) >= limit * bar:
                    break
        return float(statistics.median(a / b for a, b in found))

    def alone(self) -> float:
        """The original's time in milliseconds."""
        found = self._rounds([self.original], RUNS, np.random.default_rng(0))
        return float(statistics.median(times[0] for times in found)) / self.copies

    def _rounds(
        self, replays: Sequence[Recorded], runs: int, random: np.random.Generator, cold: bool = True
    ) -> list[list[float]]:
        """What each takes, in rounds that change the order, behind something that keeps the GPU busy meanwhile."""
        found = []
        for number in range(-1 if cold else 0, runs):  # one to warm up
            for _ in range(measure.FILLS):
                self.scratch.fill(0, self.stream)
            for place, turn in enumerate(random.permutation(len(replays))):
                if place:  # what the one before has written must not have to be written back meanwhile
                    self.scratch.fill(0, self.stream)
                first, last = self.events.pairs[turn]
                self.gpu.call("cuEventRecord", first, self.stream.handle)
                replays[turn].launch(self.stream)
                self.gpu.call("cuEventRecord", last, self.stream.handle)
            self.stream.synchronize()
            if number >= 0:
                pairs = self.events.pairs[: len(replays)]
                found.append([float(self.gpu.call("cuEventElapsedTime", first, last)) for first, last in pairs])
        return found


@contextmanager
def in_time() -> Iterator[None]:
    """A worker process whose GPU is not done after ``HANGS`` seconds ends: others that share the GPU wait for it."""
    if multiprocessing.parent_process() is None:
        yield
        return
    clock = threading.Timer(HANGS, os._exit, (1,))
    clock.daemon = True
    clock.start()
    try:
        yield
    finally:
        clock.cancel()


def with_words(cubin: bytes, kernel: str, words: Words) -> Cubin:
    """A cubin with other words in a kernel's place. Who searches has left its capsule out, or wants it."""
    made = Cubin.from_bytes(cubin)
    made.keep_capsule = True
    replaced(made.kernel(kernel), words)
    return made


def _stalled(kernel: Kernel, yields: bool, paced: bool) -> Words:
    """The words of a kernel with other stalls, and ``yields`` where they are needed alone. Of scoreboards and waits the
    linter is to judge."""
    fields = [whole(word)._replace(stall=None) for word in kernel.words]
    if yields:
        fields = [one._replace(yields=None) for one in fields]
    words = codes(kernel, fields, "natural", paced).words
    if any(control.illegal(word) for word in words):
        raise Refused("scheduler: a code that no instruction has")
    return tuple(words)


def _findings(kernel: Kernel) -> Counter[str]:
    return Counter(f.kind for f in lint_kernel(kernel) if f.severity != "note")


def _is_array(one: Any) -> bool:
    return isinstance(one, np.ndarray) and one.ndim > 0


def _same(a: Array, b: Array) -> bool:
    """Whether two arrays have the same bytes: a NaN equals itself, -0.0 is not 0.0."""
    return np.array_equal(_bytes(a), _bytes(b))


def _bytes(array: Array) -> Array:
    plain = np.ascontiguousarray(array).reshape(-1)
    return plain.view(np.uint64 if plain.nbytes % 8 == 0 else np.uint8)
