"""How long a kernel takes on a GPU: CUDA events around each launch, with the caches as they should be.

    timing = measure(lambda: kernel.launch(grid, block, x, y))
    print(timing)                        # 0.1234 ms (0.1230 to 0.1251, 20 runs), SM 1980 MHz, memory 3201 MHz

What is queued before the first event gives Python a head start, so that the GPU never waits for it between two events.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import itertools
import math
import statistics
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from loader.cuda import Buffer, Device, device_named, handle_of
from turingas.errors import LaunchError

FLUSH = 2  # times the L2 cache is written over
FILL_SECONDS = 20e-6  # writing over the L2 takes at least this on any GPU; a head start is reckoned in it
MOST_FILLS = 1000


@dataclass(frozen=True)
class Clocks:
    """Clock rates in MHz."""

    sm: int
    memory: int

    def __str__(self) -> str:
        return f"SM {self.sm} MHz, memory {self.memory} MHz"


@dataclass(frozen=True)
class Timing:
    """Milliseconds a launch, one number a run, and the clocks before the first and after the last (None: neither NVML
    nor nvidia-smi tells them)."""

    times: tuple[float, ...]
    before: Clocks | None = None
    after: Clocks | None = None

    @property
    def median(self) -> float:
        """The middle one."""
        return statistics.median(self.times)

    @property
    def quartiles(self) -> tuple[float, float]:
        """A quarter of the runs took no longer than the first, a quarter no less than the second."""
        low, _, high = statistics.quantiles(self.times, n=4, method="inclusive")
        return low, high

    @property
    def spread(self) -> float:
        """The distance of the quartiles, as a part of the median."""
        low, high = self.quartiles
        return (high - low) / self.median if self.median else 0.0

    def __str__(self) -> str:
        low, high = min(self.times), max(self.times)
        text = f"{self.median:.4g} ms ({low:.4g} to {high:.4g}, {len(self.times)} runs)"
        if self.after is not None:
            text += f", {self.after}"
            if self.before is not None and self.before.sm != self.after.sm:
                text += f" (SM {self.before.sm} MHz before)"
        return text


def measure(
    launch: Callable[..., object],
    inputs: Sequence[Sequence[Any]] = (),
    *,
    runs: int = 20,
    warmup: int = 3,
    batch: int = 1,
    flush: bool | None = None,
    stream: Any = 0,
    device: str | Device = "cuda:0",
) -> Timing:
    """Time ``launch()``, which queues work on ``stream`` and does not wait.

    The caches: before each run the L2 is written over (``flush``). With ``inputs``, tuples of arguments, run n calls
    ``launch(*inputs[n % len(inputs)])``, and the L2 is left alone unless ``flush`` is True: to find nothing in it, the
    inputs must be larger than it together. ``flush=False`` without ``inputs`` times with warm caches.

    ``runs`` are timed after ``warmup`` others; ``batch`` launches make one run, for kernels of a few microseconds,
    whose time is divided by it. CudaError for what a kernel does wrong, LaunchError for numbers that make no sense.
    """
    if runs < 2 or warmup < 1 or batch < 1:
        raise LaunchError(f"{runs} runs of {batch} launches after {warmup}", "at least 2, 1 and 1")
    gpu, queue = device_named(device), handle_of(stream)
    flush = not inputs if flush is None else flush
    turns = itertools.cycle(inputs or [()])

    size = FLUSH * max(gpu.attribute("L2_CACHE_SIZE"), 1 << 20)

    with Buffer(size, "u1", gpu) as scratch, Events(gpu, runs) as events:
        start = time.perf_counter()
        for _ in range(warmup):
            launch(*next(turns))
        host = (time.perf_counter() - start) / warmup
        gpu.call("cuStreamSynchronize", queue)
        before = clocks(gpu)
        start = time.perf_counter()
        launch(*next(turns))  # NVML took a while: the clocks may have gone down
        host = min(host, time.perf_counter() - start)
        for _ in range(min(MOST_FILLS, math.ceil(runs * batch * host / FILL_SECONDS))):
            scratch.fill(0, queue)
        for first, last in events.pairs:
            if flush:
                scratch.fill(0, queue)
            gpu.call("cuEventRecord", first, queue)
            for _ in range(batch):
                launch(*next(turns))
            gpu.call("cuEventRecord", last, queue)
        gpu.call("cuStreamSynchronize", queue)
        after = clocks(gpu)
        return Timing(tuple(time / batch for time in events.times()), before, after)


class Events:
    """Pairs of CUDA events."""

    def __init__(self, gpu: Device, count: int) -> None:
        self.gpu = gpu
        self.pairs = [(gpu.call("cuEventCreate", 0), gpu.call("cuEventCreate", 0)) for _ in range(count)]

    def times(self) -> list[float]:
        return [float(self.gpu.call("cuEventElapsedTime", first, last)) for first, last in self.pairs]

    def __enter__(self) -> Events:
        return self

    def __exit__(self, *what: object) -> None:
        for event in itertools.chain(*self.pairs):
            self.gpu.quietly("cuEventDestroy", event)


# ---- clocks ------------------------------------------------------------------------------------------------------


def clocks(gpu: Device) -> Clocks | None:
    """What NVML says (the package nvidia-ml-py), or nvidia-smi; None without either."""
    bus = gpu.call("cuDeviceGetPCIBusId", 32, gpu.handle).split(b"\0")[0].decode()
    found = nvml()
    if found is not None:
        with contextlib.suppress(found.NVMLError):
            handle = found.nvmlDeviceGetHandleByPciBusId(bus.encode())
            kinds = (found.NVML_CLOCK_SM, found.NVML_CLOCK_MEM)
            return Clocks(*(int(found.nvmlDeviceGetClockInfo(handle, kind)) for kind in kinds))
    query = ["nvidia-smi", f"--id={bus}", "--query-gpu=clocks.sm,clocks.mem", "--format=csv,noheader,nounits"]
    try:
        answer = subprocess.run(query, capture_output=True, text=True, check=True, timeout=10).stdout
        sm, memory = (int(number) for number in answer.split(","))
    except (OSError, subprocess.SubprocessError, ValueError):
        return None
    return Clocks(sm, memory)


@functools.cache
def nvml() -> Any:
    """NVML's module (the package nvidia-ml-py); None without it, or where it finds no driver."""
    try:
        found = importlib.import_module("pynvml")
    except ImportError:
        return None
    try:
        found.nvmlInit()
    except found.NVMLError:
        return None
    return found
