"""Times of many ways to do one convolution, in one process: outputs checked first, then rounds in which all take turns.

A ``Contender`` does the convolution of ``Data``, whose arrays lie on the GPU several times over: each run takes all
copies in turn, so that what it reads was not left in the L2 by the run before. Its launches are recorded once in a
CUDA graph, as those of all contenders are, and the replay is timed: no gap is Python's.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import logging
import math
import signal
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from loader import cuda, timing
from loader.cuda import Buffer, CudaError, Device, Graph, Stream
from loader.reference.problem import Problem, arrange, rearrange_shape, relative_error, truth
from loader.validate import inputs
from turingas.errors import LaunchError
from turingas.isa.arch import arch

log = logging.getLogger(__name__)  # who is ready after how long: what is cut off has said what it was at

ROTATION = 4  # times the L2 that all copies of x, w and y take together, at least
COPIES = 2, 64  # the fewest and the most
RUNS = 24
ACCURATE = 1e-12  # float64 against float64
PREPARING = 0.6  # of the time of a comparison, about: the rest are the rounds
AGAIN = 5.0  # seconds after which ``within`` says once more that it is late
FILLS = 8  # of twice the L2, queued before a round: a head start for Python
WEIGHTS = {"NCHW": "KCRS", "CHWN": "KCRS", "NHWC": "KRSC"}  # the filters' order beside a layout of x


class Refused(Exception):
    """A contender does not do this, and why."""


class Late(BaseException):
    """The time of ``within`` is over. No Exception: a compiler takes those for a candidate's that is no good."""


@contextlib.contextmanager
def within(seconds: float) -> Iterator[None]:
    """Late, within, once so many seconds are over, and again where somebody took no notice. Where signals do not reach,
    outside a process's main thread, only if there are none left to begin with. C code is not interrupted."""
    if seconds <= 0:
        raise Late
    reached = hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread()
    if math.isinf(seconds) or not reached:
        yield
        return

    def over(*_: Any) -> None:
        raise Late

    before = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


# ---- what is convolved -------------------------------------------------------------------------------------------


class Data:
    """The random arrays of a problem: on the host, and ``copies`` of each on the GPU, in every layout asked for. Of
    those that are named in ``once`` there is one alone, which all copies take: the filters where one layer of ours,
    which has brought them into order once, does all copies; others would read theirs from memory each time."""

    def __init__(self, problem: Problem, gpu: Device, seed: int = 0, once: Sequence[str] = ()) -> None:
        self.problem, self.gpu, self.once = problem, gpu, once
        self.stream = Stream(gpu)
        given = inputs(problem, seed)
        self.host = {"x": given["x"], "w": given["w"]}
        shapes = {"x": problem.x_shape, "w": problem.w_shape, "y": problem.y_shape}
        nbytes = 4 * sum(math.prod(shape) for name, shape in shapes.items() if name not in once)
        wanted = math.ceil(ROTATION * gpu.attribute("L2_CACHE_SIZE") / nbytes)
        self.copies = min(max(wanted, COPIES[0]), COPIES[1])
        self._made: dict[tuple[str, str], list[Buffer]] = {}
        self._exact: Any = None

    def arrays(self, name: str, layout: str) -> list[Buffer]:
        """The copies of x or y in a layout, or of w ("KCRS", "KRSC"): made once, and shared."""
        key, count = (name, layout), self.different(name)
        if key not in self._made:
            axes = "KCRS" if name == "w" else "NCHW"
            if name == "y":
                shape = rearrange_shape(self.problem.y_shape, axes, layout)
                self._made[key] = [Buffer(shape, np.float32, self.gpu) for _ in range(count)]
            else:
                first = Buffer.of(arrange(self.host[name], axes, layout), self.gpu)
                self._made[key] = [first]
                for _ in range(count - 1):
                    other = Buffer(first.shape, first.dtype, self.gpu)
                    self.gpu.call("cuMemcpyDtoDAsync", other.address, first.address, first.nbytes, 0)
                    self._made[key].append(other)
        return self._made[key] * (self.copies // count)

    def different(self, name: str) -> int:
        """How many arrays the copies of x, w or y are."""
        return 1 if name in self.once else self.copies

    def poison(self, layout: str) -> None:
        """Make every element of every y a NaN."""
        for y in self.arrays("y", layout):
            y.fill(0xFF)
        self.gpu.synchronize()

    def error(self, y: Any, layout: str) -> float:
        """The relative L2 error of a y, a Buffer or a tensor of PyTorch, against float64; NaN if it has one."""
        if self._exact is None:
            self._exact = self._truth()
        pytorch = torch()
        if pytorch is None:
            return relative_error(arrange(y.numpy(), layout, "NCHW"), self._exact)
        found = self._seen(y, layout) if isinstance(y, Buffer) else y
        off = float((found.double() - self._exact).norm() / self._exact.norm())
        self.gpu.synchronize()
        return off

    def _seen(self, buffer: Buffer, layout: str) -> Any:
        """As a tensor, N, C, H, W, without a copy."""
        return torch().as_tensor(buffer, device=str(self.gpu)).permute(*(layout.index(axis) for axis in "NCHW"))

    def _truth(self) -> Any:
        """y in float64: PyTorch's on the GPU, whose first image is compared with numpy's; without it, numpy's."""
        p = self.problem
        one = Problem(**{**vars(p), "n": 1})
        pytorch = torch()
        if pytorch is None:
            return truth(self.host["x"], self.host["w"], p)
        x, w = self._seen(self.arrays("x", "NCHW")[0], "NCHW"), self._seen(self.arrays("w", "KCRS")[0], "NCHW")
        cudnn = pytorch.backends.cudnn
        before, cudnn.benchmark = cudnn.benchmark, False  # once: not worth a search for the fastest algorithm
        try:
            exact = pytorch.nn.functional.conv2d(x.double(), w.double(), stride=p.stride, padding=p.padding)
        finally:
            cudnn.benchmark = before
        first = truth(self.host["x"][:1], self.host["w"], one)
        off = relative_error(exact[:1].cpu().numpy(), first)
        if not off < ACCURATE:
            raise ArithmeticError(f"PyTorch's convolution in float64 is off by {off:.1e}")
        return exact

    def close(self) -> None:
        """Give all memory back."""
        for buffers in self._made.values():
            for buffer in buffers:
                buffer.free()
        self._made.clear()
        self._exact = None
        self.stream.close()
        if torch() is not None:
            torch().cuda.empty_cache()

    def __enter__(self) -> Data:
        return self

    def __exit__(self, *what: object) -> None:
        self.close()


@functools.cache
def torch() -> Any:
    """PyTorch if it is installed and sees a GPU, else None."""
    try:
        found = importlib.import_module("torch")
    except ImportError:
        return None
    return found if found.cuda.is_available() else None


# ---- who takes part ----------------------------------------------------------------------------------------------


class Contender:
    """A way to do the convolution of ``data``. ``bound``: the relative L2 error that it may have; ``name`` is unique.

    ``group`` is "ours", "cudnn", "torch", "opencnn", ...; ``precision`` "fp32", "tf32" or "fp16"; ``part`` says what of
    the convolution is timed: "all", or one of its kernels. It takes part in each ``every``-th round.
    """

    group, layout, precision, part, bound, every = "", "NCHW", "fp32", "all", 1e-4, 1
    until = math.inf  # by time.time(): when it must be ready
    queued = True  # is timed launch by launch where it cannot be recorded; else it has no time then
    workspace: int | None = 0  # bytes; None: nobody tells

    def __init__(self, name: str) -> None:
        self.name = name

    def prepare(self, data: Data) -> None:
        """All that is done once. Refused if this cannot be done."""

    def launch(self, copy: int, stream: Stream) -> None:
        """Queue the convolution of a copy."""
        raise NotImplementedError

    def output(self, copy: int) -> Any:
        """The y of a copy, a Buffer in the layout or a tensor as N, C, H, W."""
        raise NotImplementedError

    def poison(self, data: Data) -> None:
        """Make every element of every output a NaN."""
        data.poison(self.layout)

    def record(self, data: Data) -> Any:
        """Something whose ``launch(stream)`` queues the convolutions of all copies."""

        def all_copies(stream: Stream) -> None:
            for copy in range(data.copies):
                self.launch(copy, stream)

        return Graph(all_copies, data.gpu)

    def close(self) -> None:
        """Give memory back."""


class Queued:
    """In the place of a graph, for what cannot be recorded: launches one by one. ``lead``: seconds that Python takes
    for them, which the GPU must be given something to do for."""

    def __init__(self, contender: Contender, data: Data) -> None:
        self.contender, self.copies, self.lead = contender, data.copies, 0.0
        for _ in range(2):  # behind a failed recording the first one may look for memory, or an algorithm, again
            start = time.perf_counter()
            self.launch(data.stream)
            self.lead = 2 * (time.perf_counter() - start)
            data.stream.synchronize()

    def launch(self, stream: Stream) -> None:
        for copy in range(self.copies):
            self.contender.launch(copy, stream)

    def close(self) -> None:
        """As Graph has it."""


# ---- a measurement -----------------------------------------------------------------------------------------------

Row = dict[str, Any]


def compare(
    data: Data, contenders: Sequence[Contender], runs: int = RUNS, seed: int = 0,
    step: Callable[[float], None] = lambda part: None, enough: float = math.inf, least: int = 1,
    limit: float = math.inf,
) -> tuple[list[Row], Row]:  # fmt: skip
    """A row of results for each contender, and the state of the GPU before, during and after.

    A row has name, group, layout, precision, part, status ("ok" or why there is no time), and for those that are ok
    error, workspace (bytes), how ("graph", "queued"), ms (median), low, high (quartiles), least, most, runs. ``step``
    is told again and again what part of the work is done. ``enough``, ``least``: as of ``alternate``. Contenders that
    are not prepared ``limit`` seconds after the first began are left out, and their rows say so.
    """
    rows: dict[str, Row] = {}
    ready: dict[str, tuple[Contender, Any]] = {}
    before, until, start = state(data.gpu), time.time() + limit, time.monotonic()
    try:
        for number, one in enumerate(contenders):
            one.until = until
            step(PREPARING * number / len(contenders))
            row = {"name": one.name, "group": one.group, "layout": one.layout, "precision": one.precision,
                   "part": one.part, "status": "ok"}  # fmt: skip
            assert one.name not in rows, one.name
            rows[one.name] = row
            try:
                ready[one.name] = one, _ready(one, data, row)
            except (Refused, LaunchError, RuntimeError) as why:
                if getattr(why, "lost", False):
                    raise
                row["status"] = reason(why)
                one.close()
            except Late:
                row["status"] = f"not ready {limit:g} s after the first began"
                one.close()
            how = f", not recorded: {row['not recorded']}" if "not recorded" in row else ""
            log.info("%.0f s: %s: %s%s", time.monotonic() - start, one.name, row["status"], how)
        replays = {name: replay for name, (_, replay) in ready.items()}
        every = {name: one.every for name, (one, _) in ready.items()}
        found, during = alternate(data, replays, runs, seed, every,
                                  lambda part: step(PREPARING + (1 - PREPARING) * part), enough, least)  # fmt: skip
        for name, times in found.items():
            low, middle, high = statistics.quantiles(times, n=4, method="inclusive")
            rows[name] |= {"ms": _round(middle), "low": _round(low), "high": _round(high), "least": _round(min(times)),
                           "most": _round(max(times)), "runs": len(times)}  # fmt: skip
    finally:
        for one, replay in ready.values():
            replay.close()
            one.close()
    return list(rows.values()), {"before": before, "during": during, "after": state(data.gpu)}


def _ready(one: Contender, data: Data, row: Row) -> Any:
    """Prepare, check every copy's output as it will be timed, and give what is timed."""
    with within(one.until - time.time()):
        one.prepare(data)
        data.gpu.synchronize()
        row["workspace"] = one.workspace
        for copy in range(data.copies):  # whatever is loaded or looked up at a first call is so before it is recorded
            one.launch(copy, data.stream)
        data.stream.synchronize()
    row["how"] = "graph"
    try:
        replay: Any = one.record(data)
    except (Refused, CudaError, LaunchError, RuntimeError) as why:
        if getattr(why, "lost", False):
            raise
        if not one.queued:
            raise Refused(f"not recorded in a graph: {reason(why)}") from why
        row["how"], row["not recorded"] = "queued", reason(why)
        replay = Queued(one, data)
    one.poison(data)
    replay.launch(data.stream)
    data.stream.synchronize()
    if one.part == "all" or one.part == "main":
        error = max((data.error(one.output(copy), one.layout) for copy in range(data.copies)), key=_nan_first)
        row["error"] = finite(error)
        if not error <= one.bound:
            replay.close()
            raise Refused(f"wrong: a relative L2 error of {error:.1e} against float64, more than {one.bound:.0e}")
    return replay


def reason(why: Exception) -> str:
    """The first line of what it says; its name, if that is nothing."""
    return next(filter(None, str(why).splitlines()), type(why).__name__)


def finite(number: float) -> float | str:
    """Two digits of a number. As a text where JSON has none: "nan", "inf"."""
    return float(f"{number:.2g}") if math.isfinite(number) else str(number)


def _nan_first(error: float) -> float:
    return error if math.isfinite(error) else math.inf


def _round(ms: float) -> float:
    return float(f"{ms:.5g}")


class Place(Protocol):
    """Where replays run, and how many launches each is."""

    gpu: Device
    stream: Stream
    copies: int


def alternate(
    data: Place, replays: Mapping[str, Any], runs: int, seed: int, every: Mapping[str, int] | None = None,
    step: Callable[[float], None] = lambda part: None, enough: float = math.inf, least: int = 1,
) -> tuple[dict[str, list[float]], Row]:  # fmt: skip
    """Milliseconds a launch, of ``runs`` rounds in which all take turns, in an order that changes from round to
    round; and the median state of the GPU while it was busy. ``every``: who takes part in each so-manyth round. After
    ``enough`` seconds no more rounds begin, if there were ``least``."""
    gpu, stream = data.gpu, data.stream
    times: dict[str, list[float]] = {name: [] for name in replays}
    states: list[Row] = []
    random = np.random.default_rng(seed)
    size = 2 * max(gpu.attribute("L2_CACHE_SIZE"), 1 << 20)
    with Buffer(size, "u1", gpu) as scratch, timing.Events(gpu, len(replays)) as made:
        events = dict(zip(replays, made.pairs))

        def fill(count: int) -> None:
            for _ in range(count):
                scratch.fill(0, stream)

        start = time.monotonic()
        for number in range(-2, runs):  # two to warm up
            if number >= least and time.monotonic() - start > enough:
                break
            step((number + 2) / (runs + 2))
            log.debug("%.0f s: round %d of %d", time.monotonic() - start, number, runs)
            names = [name for name in replays if number % (every or {}).get(name, 1) == 0 or number == -1]
            fill(FILLS)
            for turn in random.permutation(len(names)):
                replay, (first, last) = replays[names[turn]], events[names[turn]]
                fill(min(timing.MOST_FILLS, math.ceil(getattr(replay, "lead", 0.0) / timing.FILL_SECONDS)))
                gpu.call("cuEventRecord", first, stream.handle)
                replay.launch(stream)
                gpu.call("cuEventRecord", last, stream.handle)
                if number < 0 and log.isEnabledFor(logging.DEBUG):
                    stream.synchronize()
                    log.debug("%.1f s: %s was launched", time.monotonic() - start, names[turn])
            if number % 8 == 0:
                states.append(state(gpu))
            stream.synchronize()
            if number >= 0:
                for name in names:
                    times[name].append(gpu.call("cuEventElapsedTime", *events[name]) / data.copies)
    keys = [key for key in states[0] if all(key in one for one in states)] if states else []
    return times, {key: statistics.median(one[key] for one in states) for key in keys}


# ---- the card ----------------------------------------------------------------------------------------------------


def gpu_at_hand(still: str) -> Device:
    """The first GPU. LaunchError if there is none: ``still`` is what can be done without."""
    if not cuda.count():
        why = "there is no GPU here"
        try:
            cuda.driver()
        except LaunchError as error:
            why += f": {error.message}"
        raise LaunchError(why, still)
    return cuda.device(0)


def state(gpu: Device) -> Row:
    """Clocks in MHz, degrees Celsius and watts, as far as somebody tells them."""
    found: Row = {}
    clocks = timing.clocks(gpu)
    if clocks is not None:
        found |= {"sm_mhz": clocks.sm, "memory_mhz": clocks.memory}
    nvml = timing.nvml()
    if nvml is not None:
        with contextlib.suppress(nvml.NVMLError):
            bus = gpu.call("cuDeviceGetPCIBusId", 32, gpu.handle).split(b"\0")[0]
            handle = nvml.nvmlDeviceGetHandleByPciBusId(bus)
            found["celsius"] = int(nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU))
            found["watts"] = round(nvml.nvmlDeviceGetPowerUsage(handle) / 1000)
    return found


def ffma_share(count: int, ms: float, gpu: Device, states: Row) -> float:
    """The part of the FFMA peak that so many FFMA in a time are, at the clock that was read while they ran."""
    mhz = states["during"].get("sm_mhz") or gpu.attribute("CLOCK_RATE") / 1000
    return round(count / (ms * 1e-3 * peak_ffma(gpu, mhz)), 4)


def peak_ffma(gpu: Device, mhz: float) -> float:
    """FFMA a second of all SMs at a clock rate: as many a cycle and SM as its architecture has lanes."""
    return gpu.attribute("MULTIPROCESSOR_COUNT") * arch(gpu.arch).fp32_lanes * mhz * 1e6
