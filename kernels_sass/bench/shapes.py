"""`turingas bench shapes`: layers of real networks, and how near they come to shapes that fill the kernel's blocks.

The main kernel is timed, as in a network whose filters are transformed once, on each layer and on the nearest shape
with images in multiples of 32, filters of 64 and channels of 8. The ratio is that of the times for a useful operation:
1 if nothing is lost, 2 if a shape that fits is twice as fast. A layer is timed with each number of blocks that may
share the channels of a job, and with each kernel that Conv2d may take, to tell whether conv.split chooses well; and
beside PyTorch, which transforms filters anew each time, if its algorithm does at all.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from kernels_sass import conv
from kernels_sass.bench import layers, options
from kernels_sass.bench.ours import Ours, dated, kept_in, said, way_of
from kernels_sass.conv import cost
from kernels_sass.conv.method import METHODS
from loader.bench import measure, results
from loader.bench.bench import SECONDS, Bench, Given, Option
from loader.bench.contenders import Torch
from loader.bench.measure import Contender, Data, gpu_at_hand
from loader.cuda import Device
from loader.reference.problem import Problem
from turingas.errors import LaunchError


class Layer(NamedTuple):
    """A 3x3 layer with stride 1 and padding 1: channels, rows and columns of the image, filters."""

    network: str
    c: int
    h: int
    k: int


LAYERS = (
    Layer("VGG conv1_1", 3, 224, 64), Layer("VGG conv2_1", 64, 112, 128), Layer("VGG conv3_1", 128, 56, 256),
    Layer("VGG conv5_1", 512, 14, 512), Layer("ResNet conv2", 64, 56, 64), Layer("ResNet conv3", 128, 28, 128),
    Layer("ResNet conv4", 256, 14, 256), Layer("ResNet conv5", 512, 7, 512), Layer("GoogLeNet 3b", 128, 28, 192),
    Layer("GoogLeNet 4b", 112, 14, 224), Layer("GoogLeNet 5b", 192, 7, 384), Layer("DenseNet 1", 128, 56, 32),
    Layer("DenseNet 2", 128, 28, 32), Layer("SqueezeNet fire4", 32, 27, 128), Layer("SqueezeNet fire8", 64, 13, 256),
    Layer("YOLOv3 104", 64, 104, 128), Layer("YOLOv3 13", 512, 13, 1024), Layer("SD conv_in", 4, 64, 320),
    Layer("SD conv_out", 320, 64, 4), Layer("VAE conv_out", 512, 64, 8), Layer("ESRGAN conv_last", 64, 128, 3),
)  # fmt: skip
NAMES = tuple(layer.network for layer in LAYERS)
BATCHES = (1, 8, 32, 100)
LAYOUT = "NCHW"
BLOCKS = 8  # for one SM: from there on nothing is won by more of them
SLOW = 1.6  # times the best way: no model has to tell it from the best
MOST = 120_000_000  # elements of x or y; larger ones are left out
WITHOUT = "without one, `turingas bench shapes --show` prints the results that are kept"


@dataclasses.dataclass(frozen=True)
class Asked:
    """What the command was asked for."""

    batches: tuple[int, ...] = BATCHES
    layout: str = LAYOUT
    source: str = ""  # "": the best for the card
    schedule: Mapping[str, object] = dataclasses.field(default_factory=dict)
    runs: int = 12
    seconds: float = math.inf
    random: int = 0  # layers that are drawn; 0: those of LAYERS
    seed: int = 0
    layers: tuple[str, ...] = ()  # their names; (): all

    def settings(self) -> dict[str, Problem]:
        """The problems, by name."""
        made = {f"{layer.network} N{n}": problem(layer, n) for layer in LAYERS for n in self.batches
                if not self.layers or layer.network in self.layers}  # fmt: skip
        return {name: p for name, p in made.items() if size(fitting(p)) <= MOST}


def problem(layer: Layer, n: int) -> Problem:
    return Problem(n, layer.c, layer.h, layer.h, layer.k, 3, 3, 1, 1)


def fitting(p: Problem) -> Problem:
    """The nearest shape that fills blocks of 64 filters, 8 channels and 32 images."""
    n, c, k = (-(-number // unit) * unit for number, unit in ((p.n, 32), (p.c, 8), (p.k, 64)))
    return dataclasses.replace(p, n=n, c=c, k=k)


def size(p: Problem) -> int:
    return max(math.prod(p.x_shape), math.prod(p.y_shape))


def operations(p: Problem) -> int:
    """Those of a direct convolution."""
    return 2 * math.prod(p.y_shape) * p.c * p.r * p.s


def jobs(p: Problem) -> int:
    """Blocks of 64 filters x 32 tiles, none of which share channels."""
    return -(-p.n * -(-p.p // 2) * -(-p.q // 2) // 32) * -(-p.k // 64)


def run(asked: Asked, path: Path | None, tell: Callable[[str], None] = print) -> results.Json:
    """Measure what is not measured yet, and give the whole file."""
    gpu = gpu_at_hand(WITHOUT)
    if asked.random:
        return at_random(asked, path, gpu, tell)
    source = asked.source or conv.choose(conv.arch_of(gpu)).name
    if path is None and asked == dataclasses.replace(Asked(), source=asked.source, seconds=asked.seconds):
        path = kept_in("shapes", gpu.arch, source)
    asked = dataclasses.replace(asked, source=source)
    conv.Kernels.of(conv.arch_of(gpu), source, asked.schedule)  # told before anything is measured
    file = results.Results(path, dated("bench shapes", gpu, [source]), dataclasses.asdict(asked))
    times: dict[Problem, results.Json] = {}

    def measured(_: str, p: Problem, step: Callable[[float], None]) -> results.Json:
        near = fitting(p)
        for one in (p, near):
            if one not in times:
                times[one] = timed(one, gpu, asked)
        row: results.Json = {"problem": dataclasses.asdict(p), "jobs": jobs(p), **times[p]}
        if row["status"] == times[near]["status"] == "ok":
            row["tflops"] = round(operations(p) / row["ms"] / 1e9, 2)
            row["fitting_ms"] = times[near]["ms"]
            row["ratio"] = round(row["ms"] / operations(p) * operations(near) / times[near]["ms"], 3)
        return row

    def summed_up(settings: results.Json) -> results.Json:
        fitted = model(settings, source, asked.layout, conv.sms(str(gpu)))
        return summary(settings, source, fitted) | {"model": fitted}

    def brief(row: results.Json) -> str:
        return str(row.get("ratio", row["status"]))

    return file.fill(asked.settings(), asked.seconds, tell, measured, summed_up, brief)


def at_random(asked: Asked, path: Path | None, gpu: Device, tell: Callable[[str], None]) -> results.Json:
    """The same for layers that are drawn."""
    if asked != Asked(layout=asked.layout, seconds=asked.seconds, random=asked.random, seed=asked.seed):
        raise LaunchError("--random draws the images too, and lets Conv2d choose its kernels",
                          "leave out --layer, --batch, --source and -D")  # fmt: skip
    path = path or drawn_in(asked, gpu.arch)
    file = results.Results(path, dated("bench shapes", gpu, list(METHODS)), dataclasses.asdict(asked))

    def brief(row: results.Json) -> str:
        return f"{row['speedup']:.2f}x" if "speedup" in row else str(row["status"])

    return file.fill(layers.draw(asked.random, asked.seed), asked.seconds, tell,
                     lambda name, p, step: layers.timed(p, gpu, asked.layout), layers.summary, brief)  # fmt: skip


def drawn_in(asked: Asked, arch: str) -> Path:
    """Where the results of layers at random go."""
    return results.default_path("shapes_random", arch, "" if asked.layout == LAYOUT else asked.layout.lower())


def load(given: Given, path: Path | None) -> results.Json:
    """What is kept; with --random of layers at random."""
    asked = Asked(**given)
    return results.recorded("shapes", path or (drawn_in(asked, "sm_90") if asked.random else None))


def timed(p: Problem, gpu: Device, asked: Asked) -> results.Json:
    """The time of the main kernel, with that of add_splits: as Conv2d launches it, its result having been compared with
    float64. ``of``: milliseconds with each "splits x main kernel", splits of no more than BLOCKS blocks an SM."""
    shape = conv.Shape.of(p, asked.layout)
    kernels = tuple(conv.Kernels.of(conv.arch_of(gpu), asked.source, asked.schedule).every(shape))
    chosen = conv.split(shape, str(gpu), kernels)
    most = BLOCKS * conv.sms(str(gpu))
    other = [one for one in cost.ways(shape, kernels)
             if (one.splits == 1 or math.prod(one.blocks) <= most) and one != chosen]  # fmt: skip
    ways = [(one.splits, one.kernel) for one in (chosen, *other)]
    with Data(p, gpu) as data:
        every: list[Contender] = [Ours(asked.source, asked.layout, "main", asked.schedule, way=one) for one in ways]
        rivals = [Torch("fp32", asked.layout)] if asked.layout != "CHWN" else []
        found, states = measure.compare(data, [*every, *rivals], asked.runs)
    rows, beside = found[: len(ways)], found[len(ways) :]
    kept: results.Json = {key: rows[0][key] for key in ("status", "ms", "low", "high", "error") if key in rows[0]}
    if wrong := [one for one in rows if one["status"] != "ok"]:
        kept["status"] = wrong[0]["status"]
    of = {said(asked.source, *way): one["ms"] for way, one in zip(ways, rows) if "ms" in one}
    kept |= {"splits": chosen.splits, "kernel": chosen.kernel.name, "of": of, "state": states}
    for row in beside:
        kept |= {"pytorch_ms": row["ms"]} if "ms" in row else {}
    return kept


def summary(settings: results.Json, source: str, fitted: results.Json) -> results.Json:
    """For each number of images: layers, the largest ratio, how many are above 2, and of how many of these one launch
    of one job with one step (``fitted``: the model), of any kernel for the layer, takes that long already; the least
    and the mean of PyTorch's time over ours."""
    made: results.Json = {}

    def floor(row: results.Json) -> float:
        kinds = {way_of(source, way)[1].block.cost.name for way in row["of"]}
        of_one = [fitted[f"step of {one}"] + fitted[f"job of {one}"] for one in kinds if f"job of {one}" in fitted]
        return float(fitted["launch"] + min(of_one))

    of: dict[str, list[float]] = {}
    for row in settings.values():
        if "ratio" in row:
            name = f"N={row['problem']['n']}"
            one = made.setdefault(name, {"layers": 0, "most": 0.0, "above_2": 0, "by_launch": 0})
            one["layers"] += 1
            one["most"] = max(one["most"], row["ratio"])
            one["above_2"] += row["ratio"] > 2
            one["by_launch"] += row["ratio"] > 2 and 2000 * row["ms"] / row["ratio"] < floor(row)
            if "pytorch_ms" in row:
                of.setdefault(name, []).append(row["pytorch_ms"] / row["ms"])
    for name, over in of.items():
        made[name]["over_pytorch"] = [round(min(over), 2), round(math.exp(sum(map(math.log, over)) / len(over)), 2)]
    return made


def model(settings: results.Json, source: str, layout: str, sms: int) -> results.Json:
    """Microseconds of a launch, and what conv.cost reckons with: fitted to the times of all ways that are not SLOW,
    their relative errors alike."""
    rows: list[dict[str, float]] = []
    times = []
    for row in settings.values():
        p, of = row["problem"], row.get("of", {})
        for way, ms in of.items():
            if ms > SLOW * min(of.values()):
                continue
            sizes = p["n"], p["c"], p["h"], p["w"], p["k"], p["padding"]
            shape = conv.Shape(*sizes, layout, *way_of(source, way))
            kind = shape.block.cost.name
            turns, steps, second, sums = cost.terms(shape, sms)
            rows.append({"launch": 1, f"step of {kind}": steps, f"job of {kind}": turns, "second launch": second,
                         "2^20 sums": sums})  # fmt: skip
            if shape.block.cost.again:
                rows[-1][f"again of {kind}"] = cost.again(shape, turns)
            times.append(1000 * ms)
    if not rows:
        return {}
    names = list(dict.fromkeys(name for row in rows for name in row))
    table, weight = np.array([[row.get(name, 0) for name in names] for row in rows]), 1 / np.array(times)
    fitted, *_ = np.linalg.lstsq(table * weight[:, None], np.ones(len(times)), rcond=None)
    off = np.abs(table @ fitted * weight - 1).mean()
    made: results.Json = {name: round(float(us), 2) for name, us in zip(names, fitted)}
    return made | {"mean relative error": round(float(off), 3)}


def failures(found: results.Json) -> list[str]:
    return [f"{name}: {row['status']}" for name, row in found["settings"].items() if row["status"] != "ok"]


def show(found: results.Json) -> None:
    """Print the table."""
    asked = found["asked"]
    if asked.get("random"):
        layers.show(found)
        return
    what = f"{found['gpu']}, {found['date']}, {found['commit'][:9]}: {asked['source']}, {asked['layout']}, main kernel"
    caption = ("jobs: blocks of 64 filters x 32 tiles. blocks: so many share the channels of a job, of this "
               "kernel; best ms: with those that are best here. ratio: time for a useful operation over that of "
               "the nearest shape in multiples of 32 images, 8 channels, 64 filters")  # fmt: skip
    made = results.table(what, "layer", "C", "H, W", "K", "N", "jobs", "blocks", "ms", "best ms", "PyTorch ms",
                         "TFLOPS", "ratio", "error", caption=caption, whole=["blocks"])  # fmt: skip
    for name, row in found["settings"].items():
        p = row["problem"]
        cells = (p["c"], p["h"], p["k"], p["n"], row["jobs"], f"{row['splits']} x {row['kernel']}")
        if "ratio" in row:
            best, error = min(row["of"].values(), default=row["ms"]), f"{row['error']:.1e}"
            rival = f"{row['pytorch_ms']:.4f}" if "pytorch_ms" in row else "-"
            rest = (f"{row['ms']:.4f}", f"{best:.4f}", rival, f"{row['tflops']:.1f}", f"{row['ratio']:.2f}", error)
        else:
            rest = (row["status"], "", "", "", "", "")
        made.add_row(name.rpartition(" ")[0], *map(str, cells), *rest)
    results.console().print(made)
    for name, one in found["summary"].items():
        if name == "model":
            continue
        above = f"{one['above_2']} of {one['layers']} layers above 2, {one['by_launch']} by a launch alone"
        over = "; PyTorch's time over ours: {} at least, {} in the mean".format(*one.get("over_pytorch", "--"))
        results.console().print(f"{name}: at most {one['most']:.2f}; {above}{over if 'over_pytorch' in one else ''}")


BENCH = Bench(
    "shapes", "Layers of real networks against the nearest shapes that fit.",
    """How much time a useful operation takes in layers of real networks, over that in the nearest shape with images in
    multiples of 32, channels of 8 and filters of 64.

    Exit code 1: a shape has no time, because its result was wrong or it was refused.
    """,
    (
        Option("--layer", "layers", f"{', '.join(NAMES)}. [default: all]", NAMES, True, "NAME"),
        options.saying(options.BATCH, "Images. [default: 1,8,32,100]"), options.LAYOUT, options.SOURCE, options.DEFINE,
        SECONDS,
        Option("--random", "random", "Time so many random layers instead of those of networks: Conv2d beside PyTorch "
               "and all algorithms of cuDNN.", int, metavar="COUNT", least=1),
        Option("--seed", "seed", "Seed of the random layers. [default: 0]", int),
    ),
    lambda given, path, tell: run(Asked(**given), path, tell), show, failures, load=load,
    chosen=("layout", "random"),
)  # fmt: skip
