"""`turingas bench resnet`: where a ResNet-50 forward pass spends its time, with and without our convolution."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kernels_sass import conv
from kernels_sass.bench import network, options
from kernels_sass.bench.network import CONV3, Op
from kernels_sass.bench.ours import dated, kept_in
from kernels_sass.bench.resnet_shown import FORMS, WHO, brief, figures, show
from kernels_sass.bench.verdicts import ratio
from kernels_sass.conv import Conv2d, tuned
from loader import timing
from loader.bench import measure, results
from loader.bench.bench import RUNS, SECONDS, Bench, Option
from loader.bench.contenders import BOUNDS, Torch, cudnn_settings
from loader.bench.measure import Data, Refused, Row, gpu_at_hand, torch
from loader.cuda import Buffer, Device, Stream
from turingas.errors import LaunchError

BATCHES = (32, 128, 1)
LAYOUTS = ("NCHW", "NHWC")
BOUND = 1e-5  # of ours; the others have those of `bench winograd`
CHUNK = 16  # pictures that go through the network in float64 at once
ROUNDS = 9  # in which kinds are timed

WITHOUT = (
    "without one, `turingas bench resnet --show` prints the results that are kept, and --figures draws them; "
    "`turingas validate kernels_sass/conv/methods/winograd.sass --device cpu --shape 1,8,6,6,8` runs the "
    "kernel on the CPU device"
)


@dataclasses.dataclass(frozen=True)
class Asked:
    """What the command was asked for."""

    batches: tuple[int, ...] = BATCHES
    layouts: tuple[str, ...] = LAYOUTS
    forms: tuple[str, ...] = FORMS
    source: str = ""  # "": the best for the card
    schedule: Mapping[str, object] = dataclasses.field(default_factory=dict)  # parameters of ours
    runs: int = measure.RUNS
    seconds: float = math.inf
    seed: int = 0
    blocks: tuple[int, ...] = network.BLOCKS
    width: int = network.WIDTH
    size: int = network.SIZE

    def settings(self) -> dict[str, int]:
        """The batch sizes."""
        return {f"N{batch}": batch for batch in self.batches}


def run(asked: Asked, path: Path | None, tell: Callable[[str], None] = print) -> results.Json:
    """Measure what is not measured yet, and give the whole file. ``tell`` is given a line for each batch size."""
    gpu = gpu_at_hand(WITHOUT)
    if torch() is None:
        raise LaunchError("PyTorch is not installed, or sees no GPU: the network is its", WITHOUT)
    source = asked.source or conv.choose(conv.arch_of(gpu)).name
    if path is None and asked == dataclasses.replace(Asked(), source=asked.source, seconds=asked.seconds):
        path = kept_in("resnet", gpu.arch, source)
    asked = dataclasses.replace(asked, source=source)
    facts = {**dated("bench resnet", gpu, [source]), "tuned": schedules(gpu, asked)}
    file = results.Results(path, facts, dataclasses.asdict(asked))
    return file.fill(
        asked.settings(), asked.seconds, tell, lambda _, batch, step: setting(batch, gpu, asked, step), summary, brief
    )


def schedules(gpu: Device, asked: Asked) -> results.Json:
    """What Conv2d has for shapes of the network from `bench schedule --sweep`; without -D it takes that."""
    if asked.schedule:
        return {}
    found = {}
    for shape, schedule in tuned.best(gpu, conv.Kernels.of(conv.arch_of(gpu), asked.source)).items():
        if shape.n in asked.batches and shape.layout in asked.layouts:
            found[f"{shape.layout} N{shape.n} C{shape.c} {shape.h}x{shape.w} K{shape.k}"] = schedule
    return found


# ---- what goes through the network -------------------------------------------------------------------------------


class Pictures(Data):
    """Random pictures and parameters on the GPU, and what comes out of each stage in float64. There is one copy: what a
    forward pass reads and writes is more than the L2 holds."""

    def __init__(self, batch: int, gpu: Device, asked: Asked) -> None:
        self.gpu, self.stream, self.copies, self.asked = gpu, Stream(gpu), 1, asked
        self._made, self._exact = {}, None
        self.torch = torch()
        self.ops = network.resnet(asked.blocks, asked.width)
        given = network.parameters(self.ops, asked.seed)
        self.parameters = {"plain": given, "folded": network.folded(given)}
        self._tensors: dict[tuple[str, str], dict[tuple[str, str], Any]] = {}
        self._ours: dict[str, dict[str, Conv2d]] = {}
        shape = batch, 3, asked.size, asked.size
        x = self._there(np.random.default_rng(asked.seed + 1).standard_normal(shape, np.float32))
        self.x = {layout: self.ordered(x, layout) for layout in asked.layouts}
        self.exact = self._stages(x)
        gpu.synchronize()

    def _there(self, array: Any) -> Any:
        return self.torch.from_numpy(array).to(str(self.gpu))

    def ordered(self, tensor: Any, layout: str) -> Any:
        """With its elements in the order of a layout; its axes stay N, C, H, W."""
        return tensor.contiguous(memory_format=self.torch.channels_last) if layout == "NHWC" else tensor.contiguous()

    def tensors(self, folded: bool, layout: str) -> dict[tuple[str, str], Any]:
        """The parameters on the GPU."""
        key = "folded" if folded else "plain", layout
        if key not in self._tensors:
            made = {name: self._there(array) for name, array in self.parameters[key[0]].items()}
            self._tensors[key] = {name: self.ordered(one, layout) if one.ndim == 4 else one
                                  for name, one in made.items()}  # fmt: skip
        return self._tensors[key]

    def ours(self, layout: str) -> dict[str, Callable[[Any], Any]]:
        """Our layers in the place of the 3x3 convolutions of stride 1, batch norm and ReLU in them."""
        if layout not in self._ours:
            given, asked = self.tensors(True, "NCHW"), self.asked
            self._ours[layout] = {
                op.name: Conv2d(given[op.name, "weight"], given[op.name, "bias"], 1, "relu", layout,
                                kernel=asked.source, schedule=asked.schedule or None)
                for op in self.ops if op.kind == CONV3
            }  # fmt: skip
        return {name: one if layout == "NCHW" else functools.partial(_channels_last, one)
                for name, one in self._ours[layout].items()}  # fmt: skip

    def _stages(self, x: Any) -> dict[str, Any]:
        """What each stage makes in float64, by PyTorch, batch norm as it is."""
        exact: dict[str, list[Any]] = {}
        ends = stages(self.ops)
        doubles = {name: self._there(array).double() for name, array in self.parameters["plain"].items()}

        def keep(number: int, made: Any) -> None:
            if number in ends:
                exact.setdefault(ends[number], []).append(made)

        with self.torch.no_grad():
            for start in range(0, x.shape[0], CHUNK):
                network.forward(self.torch, self.ops, doubles, x[start : start + CHUNK].double(), after=keep)
            return {name: self.torch.cat(parts) for name, parts in exact.items()}

    def off(self, found: Any, stage: str) -> float:
        """The relative L2 error of what a stage made; NaN if it has one."""
        exact = self.exact[stage]
        return float((found.double() - exact).norm() / exact.norm())

    def error(self, y: Any, layout: str) -> float:
        """That of the network."""
        return self.off(y, "fc")

    def close(self) -> None:
        """Give all memory back."""
        for layer in itertools.chain(*(layers.values() for layers in self._ours.values())):
            layer.close()
        self._tensors, self._ours, self.x, self.exact = {}, {}, {}, {}
        super().close()


def _channels_last(layer: Conv2d, x: Any) -> Any:
    """A tensor in channels_last through a layer of ours, without a copy."""
    return layer(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


def stages(ops: Sequence[Op]) -> dict[int, str]:
    """The last operation of each stage, and of all: its number and the stage's name."""
    last: dict[str, int] = {}
    for number, op in enumerate(ops):
        stage = op.name.partition(".")[0]
        if op.slot == "x" and (stage.startswith("layer") or stage == "fc"):
            last[stage] = number
    return {number: stage for stage, number in last.items()}


# ---- who takes part ----------------------------------------------------------------------------------------------


class Forward(Torch):
    """The whole network. ``form``: "plain", as it was trained; "folded", batch norm in the convolutions; "fused", ReLU
    and addition too, by cuDNN's fused call. ``who``: of WHO; "ours" has batch norm and ReLU in its 3x3 convolutions in
    each form."""

    def __init__(self, who: str, form: str, layout: str, ops: Sequence[Op]) -> None:
        super().__init__("tf32" if who == "tf32" else "fp32", layout)
        self.name, self.group, self.form = f"{WHO[who]} {form} {layout}", who, form
        self.bound = BOUND if who == "ours" else BOUNDS[self.precision]
        self.ops = list(ops)
        if form != "plain":
            self.ops = network.fold(ops)
            fused = [op.name for op in ops if form == "fused" or (who == "ours" and op.kind == CONV3)]
            self.ops = network.fuse(self.ops, lambda op: op.name in fused)
        self.errors: dict[str, float] = {}  # by stage, as launched one by one

    def prepare(self, data: Data) -> None:
        assert isinstance(data, Pictures)
        self.torch = data.torch
        self.stream = self.torch.cuda.ExternalStream(data.stream.handle, device=str(data.gpu))
        self.pictures, self.tensors = data.x[self.layout], data.tensors(self.form != "plain", self.layout)
        self.layers = data.ours(self.layout) if self.group == "ours" else {}
        self.y, ends = [None], stages(self.ops)
        data.gpu.synchronize()

        def check(number: int, made: Any) -> None:
            if number in ends:
                self.errors[ends[number]] = data.off(made, ends[number])

        with self.torch.cuda.stream(self.stream):
            self.forward(check)
        for stage, error in self.errors.items():
            if not error <= self.bound:
                raise Refused(f"wrong: a relative L2 error of {error:.1e} after {stage}, more than {self.bound:.0e}")

    def forward(self, after: Callable[[int, Any], object] | None = None) -> Any:
        """Queue it all on PyTorch's current stream; the output."""
        with cudnn_settings(self.torch, self.precision == "tf32"), self.torch.no_grad():
            return network.forward(self.torch, self.ops, self.tensors, self.pictures, self.layers, after)

    def _convolve(self, copy: int) -> None:
        self.y[copy] = self.forward()

    def close(self) -> None:
        self.y, self.layers, self.pictures, self.tensors = [], {}, None, {}


def contenders(asked: Asked) -> list[Forward]:
    """All that take part; TF32, which nothing is compared with, in one form."""
    ops = network.resnet(asked.blocks, asked.width)
    made = []
    for layout in asked.layouts:
        made += [Forward("torch", form, layout, ops) for form in asked.forms]
        made += [Forward("ours", form, layout, ops) for form in asked.forms if form != "plain"]
        made += [Forward("tf32", "folded", layout, ops)] * ("folded" in asked.forms)
    return made


# ---- a batch size ------------------------------------------------------------------------------------------------


COMPARED = 0.7  # of the time for a batch size, about: whole passes; the rest are the kinds


def setting(
    batch: int, gpu: Device, asked: Asked, step: Callable[[float], None] = lambda part: None
) -> results.Json:
    """The results for one batch size."""
    start = time.monotonic()
    every = contenders(asked)
    flops = network.flops(every[0].ops, batch, asked.size)
    with contextlib.closing(Pictures(batch, gpu, asked)) as data:
        rows, states = measure.compare(data, every, asked.runs, asked.seed, lambda part: step(COMPARED * part))
        timed = [one for one, row in zip(every, rows) if row["status"] == "ok"]
        kinds = by_kind(data, timed, asked.seed, lambda part: step(COMPARED + (1 - COMPARED) * part))
    for one, row in zip(every, rows):
        row["form"] = one.form
        row["stages"] = {stage: float(f"{error:.2g}") if math.isfinite(error) else str(error)
                         for stage, error in one.errors.items()}  # fmt: skip
        if row["status"] == "ok":
            row["kinds"], row["by_kind"] = kinds[one.name], round(sum(kinds[one.name].values()), 5)
            row["tflops"] = round(sum(flops.values()) / row["ms"] / 1e9, 2)
            row["pictures_per_second"] = round(1e3 * batch / row["ms"], 1)
    made = {"batch": batch, "flops": flops, "state": states, "seconds": round(time.monotonic() - start, 1),
            "rows": rows}  # fmt: skip
    return {**made, "verdict": verdict(rows)}


def by_kind(
    data: Pictures, every: Sequence[Forward], seed: int, step: Callable[[float], None]
) -> dict[str, dict[str, float]]:
    """Milliseconds of each kind of operation in a forward pass, by contender: the medians of rounds in which all take
    turns. Operations are launched one by one behind other work, with an event wherever the kind changes."""
    gpu, stream = data.gpu, data.stream
    random = np.random.default_rng(seed)
    times: dict[str, dict[str, list[float]]] = {one.name: {} for one in every}
    lead = dict.fromkeys(times, math.inf)  # seconds that Python takes
    most = max((len(one.ops) for one in every), default=0)
    with Buffer(2 * max(gpu.attribute("L2_CACHE_SIZE"), 1 << 20), "u1", gpu) as scratch, _events(gpu, most) as events:
        for number in range(-2, ROUNDS):  # two to warm up, in which Python's time is found
            step((number + 2) / (ROUNDS + 2))
            for turn in random.permutation(len(every)):
                one = every[turn]
                if number == -2:
                    one.prepare(data)
                for _ in range(math.ceil(2 * lead[one.name] / timing.FILL_SECONDS) if number > -2 else 0):
                    scratch.fill(0, stream)
                start = time.perf_counter()
                kinds = _queue(one, gpu, stream, events)
                lead[one.name] = min(lead[one.name], time.perf_counter() - start)
                stream.synchronize()
                if number >= 0:
                    for kind, ms in _elapsed(gpu, kinds, events).items():
                        times[one.name].setdefault(kind, []).append(ms)
        for one in every:
            one.close()
    return {name: {kind: float(f"{statistics.median(all_):.5g}") for kind, all_ in kinds.items()}
            for name, kinds in times.items()}  # fmt: skip


def _queue(one: Forward, gpu: Device, stream: Stream, events: Sequence[Any]) -> list[str]:
    """Queue a forward pass with an event before it and one after each run of operations of a kind: these kinds."""
    ops, kinds = one.ops, list[str]()

    def mark(number: int, made: Any) -> None:
        if number + 1 == len(ops) or ops[number + 1].kind != ops[number].kind:
            kinds.append(ops[number].kind)
            gpu.call("cuEventRecord", events[len(kinds)], stream.handle)

    gpu.call("cuEventRecord", events[0], stream.handle)
    with one.torch.cuda.stream(one.stream):
        one.forward(mark)
    return kinds


def _elapsed(gpu: Device, kinds: Sequence[str], events: Sequence[Any]) -> dict[str, float]:
    """Milliseconds of each kind in a pass that is done."""
    sums = dict.fromkeys(kinds, 0.0)
    for number, kind in enumerate(kinds):
        sums[kind] += gpu.call("cuEventElapsedTime", events[number], events[number + 1])
    return sums


@contextlib.contextmanager
def _events(gpu: Device, count: int) -> Iterator[list[Any]]:
    made = [gpu.call("cuEventCreate", 0) for _ in range(count + 1)]
    try:
        yield made
    finally:
        for event in made:
            gpu.quietly("cuEventDestroy", event)


# ---- what comes of it --------------------------------------------------------------------------------------------


def verdict(rows: Sequence[Row]) -> results.Json:
    """The fastest of PyTorch in float32 and the fastest of ours, and ours over PyTorch where they differ in nothing
    but the 3x3 convolutions of stride 1."""
    times = {(row["group"], row["form"], row["layout"]): row["ms"] for row in rows if row["status"] == "ok"}
    made: results.Json = {}
    for group in ("torch", "ours"):
        mine = [row for row in rows if row["group"] == group and row["status"] == "ok"]
        best = min(mine, key=lambda row: row["ms"], default=None)
        made[group] = best and best["name"]
        made[f"{group}_ms"] = best and best["ms"]
    made["over_torch"] = ratio(made["torch_ms"], made["ours_ms"])
    made["pairs"] = {f"{form} {layout}": ratio(times.get(("torch", form, layout)), ms)
                     for (group, form, layout), ms in times.items() if group == "ours"}  # fmt: skip
    return made


def summary(settings: results.Json) -> results.Json:
    """By batch size: the fastest of ours over the fastest of PyTorch in float32."""
    return {name: entry["verdict"]["over_torch"] for name, entry in settings.items()}


def failures(found: results.Json) -> Iterator[str]:
    """Rows of ours that have no time, and why; but in a form that PyTorch alone has no time in either."""
    for name, entry in found["settings"].items():
        theirs = {(row["form"], row["layout"]): row["status"] for row in entry["rows"] if row["group"] == "torch"}
        for row in entry["rows"]:
            there = theirs.get((row["form"], row["layout"])) == "ok"
            if row["group"] == "ours" and row["status"] != "ok" and there:
                yield f"{name}: {row['name']}: {row['status']}"


BENCH = Bench(
    "resnet", "A ResNet-50 forward pass by kind of operation.",
    """ResNet-50 with random weights, by PyTorch in float32 and with our kernels in its 3x3 convolutions of stride 1.

    The output of each stage is compared with float64 before anything is timed; all take turns in one process. Exit
    code 1: a network with our convolution has no time, because it is wrong or was refused.

    \b
      turingas bench resnet
      turingas bench resnet --batch 32,64 --figures figures
    """,
    (
        options.saying(options.BATCH, "Images. [default: 32,128,1]"),
        Option("--layout", "layouts", "NCHW or NHWC, which is PyTorch's channels_last. [default: both]",
               ("NCHW", "NHWC"), True, "LAYOUT"),
        Option("--form", "forms", "plain; batch norm folded; ReLU and addition fused too. [default: all three]",
               ("plain", "folded", "fused"), True, "FORM"),
        options.SOURCE, options.DEFINE, RUNS, SECONDS,
    ),
    lambda given, path, tell: run(Asked(**given), path, tell), show, failures, figures,
)  # fmt: skip
