"""Public calls, timed as programs make them: what Python and the driver take for a call is part of its time.

Where ``loader.bench.measure`` replays graphs, so that nothing of the host is seen, calls are made here one after the
other on the default stream, in windows that begin when the GPU has nothing to do. All take turns in one process.
"""

from __future__ import annotations

import contextlib
import math
import statistics
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from kernels_sass.conv import Conv2d
from loader import timing
from loader.bench import contenders, cudnn, measure
from loader.bench.measure import Contender, Data, Refused, Row
from loader.cuda import Device
from turingas.errors import LaunchError

WINDOWS, CALLS = 9, 8  # the median of so many windows, of so many calls each
#: After the window to warm up, and after the first one that counts: a rival that has taken so many times the fastest
#: rival's time, at the least, is timed no more. Algorithms of cuDNN that nobody would take were most of a run.
BEHIND = {-1: 3.0, 0: 1.5}


@contextlib.contextmanager
def inference(gpu: Device) -> Iterator[None]:
    """What calls in float32 are made in: no gradients, cuDNN's fastest algorithm, TF32 off, the GPU's context."""
    library = measure.torch()
    with contextlib.ExitStack() as stack:
        stack.enter_context(gpu.current())
        if library is not None:
            stack.enter_context(library.no_grad())
            stack.enter_context(contenders.cudnn_settings(library, False))
        yield


# ---- who is called -----------------------------------------------------------------------------------------------


class Caller(Contender):
    """A contender that is called for a copy of the data. ``checked``: copies that are called and compared before
    anything is timed, at most."""

    checked = measure.COPIES[1]

    def begin(self) -> None:
        """What is done once all are prepared, and nothing has been timed."""

    def call(self, copy: int) -> None:
        """As a program does."""
        raise NotImplementedError


class Ours(Caller):
    """``Conv2d``, which chooses its kernels itself, on tensors of PyTorch, and makes y. Without PyTorch on Buffers, and
    y is one of the data's, for to allocate a Buffer takes long."""

    group, bound = "ours", 2e-6

    def __init__(self, layout: str) -> None:
        super().__init__(f"Conv2d {layout}")
        self.layout = layout
        self.conv: Conv2d | None = None

    def prepare(self, data: Data) -> None:
        library, gpu = measure.torch(), str(data.gpu)
        x, w = data.arrays("x", self.layout), data.arrays("w", "KCRS")[0]
        self.axes = None if library is None else [self.layout.index(axis) for axis in "NCHW"]
        self.x: list[Any] = [one if library is None else library.as_tensor(one, device=gpu) for one in x]
        self.y: list[Any] = data.arrays("y", self.layout)[:] if library is None else [None] * data.copies
        self.conv = Conv2d(w, padding=data.problem.padding, layout=self.layout)

    def call(self, copy: int) -> None:
        assert self.conv is not None
        if self.axes is None:
            self.conv(self.x[copy], out=self.y[copy])
        else:
            self.y[copy] = self.conv(self.x[copy])

    def output(self, copy: int) -> Any:
        return self.y[copy] if self.axes is None else self.y[copy].permute(*self.axes)

    def poison(self, data: Data) -> None:
        if self.axes is None:
            super().poison(data)
        else:
            for y in self.y:
                y.fill_(math.nan)

    def close(self) -> None:
        if self.conv is not None:
            self.conv.close()
        self.x, self.y = [], []


class PyTorch(contenders.Torch, Caller):
    """torch.nn.functional.conv2d."""

    def __init__(self, layout: str) -> None:
        super().__init__("fp32", layout)

    def call(self, copy: int) -> None:
        self.y[copy] = self.torch.nn.functional.conv2d(self.x[copy], self.w[copy], None, self.stride, self.padding)


class Cudnn(cudnn.Cudnn, Caller):
    """An algorithm of cuDNN; of Python there is one call of ctypes, with arguments that are made before, and y is there
    already: no copy has to be called before it is timed."""

    checked = 2

    def prepare(self, data: Data) -> None:
        super().prepare(data)
        self.begin()
        self.given = [self.arguments(copy) for copy in range(data.copies)]
        self.forward = cudnn.library().cudnnConvolutionForward

    def begin(self) -> None:
        """On the default stream. All algorithms share one handle, and one that was refused has left it on another."""
        cudnn.call("cudnnSetStream", self.handle, 0)

    def call(self, copy: int) -> None:
        if status := self.forward(*self.given[copy]):
            raise Refused(f"status {status}")


def rivals() -> list[Caller]:
    """All that compute in float32."""
    made: list[Caller] = [PyTorch(layout) for layout in ("NCHW", "NHWC")]
    return made + [Cudnn(name, layout) for layout in cudnn.FORMATS for name in cudnn.ALGORITHMS]


# ---- the time ----------------------------------------------------------------------------------------------------


def compare(data: Data, callers: Sequence[Caller], seed: int = 0) -> tuple[list[Row], Row]:
    """A row for each: name, group, status, and if that is "ok" error, and us, low, high: microseconds a call, the
    median and the quartiles of the windows. And the state of the GPU before, during and after them."""
    gpu, random = data.gpu, np.random.default_rng(seed)
    states = {"before": measure.state(gpu)}
    rows: dict[str, Row] = {}
    ready: list[Caller] = []
    with inference(gpu):
        try:
            for one in callers:
                row: Row = {"name": one.name, "group": one.group, "status": "ok"}
                rows[one.name] = row
                try:
                    row["error"] = _checked(one, data)
                    ready.append(one)
                except (Refused, LaunchError, RuntimeError) as why:
                    if getattr(why, "lost", False):
                        raise
                    row["status"] = measure.reason(why)
                    one.close()
            for one in ready:
                one.begin()
            times: dict[str, list[float]] = {one.name: [] for one in ready}
            racing = list(ready)
            with timing.Events(gpu, 1) as made:
                (events,) = made.pairs
                for window in range(-1, WINDOWS):  # one to warm up
                    for turn in random.permutation(len(racing)):
                        spent = _window(racing[turn], data, window + 1, events)
                        times[racing[turn].name].append(1000 * spent / CALLS)
                    if window == WINDOWS // 2:
                        states["during"] = measure.state(gpu)
                    if window in BEHIND:
                        racing = _in_the_race(racing, times, BEHIND[window])
        finally:
            for one in ready:
                one.close()
    for name, found in times.items():
        counted = found[1:] if len(found) > WINDOWS else [min(found)] * 2  # of who fell out: the best
        low, middle, high = (float(f"{us:.4g}") for us in statistics.quantiles(counted, n=4, method="inclusive"))
        rows[name] |= {"us": middle, "low": low, "high": high}
    return list(rows.values()), {**states, "after": measure.state(gpu)}


def _in_the_race(every: list[Caller], times: dict[str, list[float]], behind: float) -> list[Caller]:
    """Ours, and the rivals that may yet be the fastest."""
    fastest = min((min(times[one.name]) for one in every if one.group != Ours.group), default=math.inf)
    return [one for one in every if one.group == Ours.group or min(times[one.name]) <= behind * fastest]


def _checked(one: Caller, data: Data) -> float:
    """Its relative L2 error, the largest of the copies. Refused if that is too large."""
    one.prepare(data)
    copies = range(min(one.checked, data.copies))
    for again in (False, True):
        if again:
            one.poison(data)
        for copy in copies:
            one.call(copy)
        data.gpu.synchronize()
    errors = [data.error(one.output(copy), one.layout) for copy in copies]
    worst = math.nan if any(map(math.isnan, errors)) else max(errors)
    if not worst <= one.bound:
        raise Refused(f"wrong: a relative L2 error of {worst:.1e} against float64, more than {one.bound:.0e}")
    return float(f"{worst:.2g}")


def _window(one: Caller, data: Data, number: int, events: tuple[Any, Any]) -> float:
    """Milliseconds between the events around some calls, which find the GPU idle."""
    gpu, copies = data.gpu, data.copies
    first, last = events
    gpu.synchronize()
    gpu.call("cuEventRecord", first, 0)
    for turn in range(CALLS * number, CALLS * (number + 1)):
        one.call(turn % copies)
    gpu.call("cuEventRecord", last, 0)
    gpu.synchronize()
    return float(gpu.call("cuEventElapsedTime", first, last))
