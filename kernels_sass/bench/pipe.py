"""`turingas bench pipe`: how busy the tensor cores are while convolutions by HGMMA run, by Nsight Compute (ncu).

Of each setting two kernels are counted, launched as Conv2d launches them: the layer's, and the same one with half of
the channels, or with one row of the filter where all channels are one stage. What both have in common is all but their
main loops: so the cycles of the tensor pipe that one has more than the other, over all cycles that it has more, are the
share of the main loop. 100 % is what products alone reach, without loads or stores (kernels_sass/micro/hgmma.sass),
which is counted in the same run.
"""

from __future__ import annotations

import dataclasses
import itertools
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from kernels_sass.bench.conv import DTYPES, SQUARE, typed
from kernels_sass.bench.counters import watched
from kernels_sass.conv import Conv2d
from kernels_sass.conv.implicit_plan import room
from kernels_sass.conv.implicit_shape import Shape, Source
from kernels_sass.conv.methods import hgmma
from kernels_sass.conv.methods.hgmma import PRECISIONS
from kernels_sass.micro import hmma
from kernels_sass.micro.loops import ROUNDS, Run
from loader import cuda
from loader.bench import measure, results
from loader.bench.bench import Bench, Option
from loader.bench.measure import gpu_at_hand
from loader.cuda import Buffer
from turingas.errors import LaunchError

PRECISE = tuple(name for name, one in PRECISIONS.items() if not one.halves)  # one product for each
METRICS = {
    "tensor": "sm__pipe_tensor_cycles_active.sum", "cycles": "sm__cycles_active.sum",
    "elapsed": "sm__cycles_elapsed.max", "nanoseconds": "gpu__time_duration.sum",
}  # fmt: skip
KERNELS = "hgmma", "hgmma_wide", "hgmma_window"  # and that of products alone has the first one's name
LOOPS = {"tf32": "HGMMA.64x256x8.F32.TF32", "fp16": "HGMMA.64x256x16.F32", "bf16": "HGMMA.64x256x16.F32.BF16"}
WITHOUT = "without one, `turingas bench pipe --show` prints the results that are kept"
GOAL = 0.9  # of the main loop
NUMBERS = 1000003  # at random, that x and filters repeat


@dataclasses.dataclass(frozen=True)
class Asked:
    """What the command was asked for."""

    precisions: tuple[str, ...] = PRECISE
    batches: tuple[int, ...] = (32, 64, 96, 128)

    def settings(self) -> dict[str, tuple[str, int, tuple[int, ...]]]:
        """Precision, images and layer, by name."""
        return {f"{precision}: {c} -> {k}, {r}x{r}, {h}x{h}, N={n}": (precision, n, (h, c, k, r))
                for precision, (h, c, k, r, _), n in itertools.product(self.precisions, SQUARE, self.batches)}


def run(asked: Asked, path: Path | None) -> results.Json:
    """Count, and give the whole file."""
    gpu = gpu_at_hand(WITHOUT)
    if not gpu.runs(hgmma.ARCH):
        raise LaunchError(f"{gpu} ({gpu.name}) is {gpu.arch}; the kernels are for {hgmma.ARCH}", WITHOUT)
    if path is None and asked == Asked():
        path = results.default_path("pipe", gpu.arch)
    facts = results.facts("bench pipe", gpu, [*hgmma.FOLDER.glob("hgmma*.sass")])
    facts["state"] = measure.state(gpu)
    file = results.Results(path, facts, dataclasses.asdict(asked))
    words = [",".join(asked.precisions), ",".join(map(str, asked.batches))]
    settings = asked.settings()
    every = watched("kernels_sass.bench.pipe", words, KERNELS, METRICS, len(asked.precisions) + 2 * len(settings))
    if lacking := sorted({METRICS[name] for one in every for name, value in one.items() if value is None}):
        raise LaunchError("ncu could not count " + ", ".join(lacking),
                          "`ncu --query-metrics` lists what it can")  # fmt: skip
    counted = iter(every)
    peak = {precision: next(counted) for precision in asked.precisions}
    file.facts["peak"] = peak
    for name, (precision, n, layer) in settings.items():
        whole, less, most = next(counted), next(counted), share(peak[precision])
        shape = shape_of(n, layer)
        made = asking(shape, precision, str(gpu))
        windows = "WINDOWS" in made["schedule"]
        scale = pixels(shape) / pixels(part_of(n, layer, precision)) if windows else 1
        more = {one: whole[one] - scale * less[one] for one in ("tensor", "cycles")}
        main = round(share(more) / most, 4) if more["cycles"] > 0 else None
        kernel = " ".join(f"{one}={value}" for one, value in {**made["schedule"], "splits": made["splits"]}.items())
        file.settings[name] = {**whole, "less": less, "precision": precision, "kernel": kernel,
                               "whole": round(share(whole) / most, 4), "main": main}  # fmt: skip
    for precision in asked.precisions:
        of = [one for one in file.settings.values() if one["precision"] == precision]
        shares = {word: [one[word] for one in of if one[word] is not None] for word in ("main", "whole")}
        file.summary[precision] = {"peak": round(share(peak[precision]), 4), **{
            word: {"least": min(found, default=0), "mean": round(sum(found) / max(1, len(found)), 4)}
            for word, found in shares.items()}}  # fmt: skip
    return file.write(complete=True)


def share(counted: results.Json) -> float:
    """Of its cycles, in which the tensor pipe is active: of four of them, one for each scheduler."""
    return float(counted["tensor"] / counted["cycles"])


def shape_of(n: int, layer: tuple[int, ...]) -> Shape:
    """A layer of the 16 settings: rows, C, K, size of the filters."""
    h, c, k, r = layer
    return Shape(n, c, h, h, k, r, r, padding=(r // 2, r // 2), layout="NHWC")


def part_of(n: int, layer: tuple[int, ...], precision: str) -> Shape:
    """The same with fewer stages for each tile: of half of the channels, or else of one row of the filter."""
    shape = shape_of(n, layer)
    if shape.c // 2 >= PRECISIONS[precision].tile_k:
        return dataclasses.replace(shape, c=shape.c // 2)
    return dataclasses.replace(shape, r=1, padding=(0, shape.padding[1]))


def pixels(shape: Shape) -> int:
    """That kernels with windows go through."""
    windows = Source.of(shape, PRECISIONS["fp16"], True).windows(shape)
    return windows.pixels if windows else shape.n * shape.p * shape.q


def asking(shape: Shape, precision: str, device: str) -> dict[str, Any]:
    """The schedule, and how many blocks share the last tiles, that Conv2d takes for a layer in NHWC."""
    of = PRECISIONS[precision]
    source = Source.of(shape, of, True)
    work, windows = source.work(shape, of), source.windows(shape)
    made = hgmma.tiling(of, work, room(device), None, windows, source.filter, wider=True)
    names = {hgmma.Windowed: ("tile_m", "tile_n", "windows", "keep"), hgmma.Wide: ("tile_m", "stages")}
    found = {name.upper(): getattr(made, name)
             for name in names.get(type(made), ("tile_n", "stages", "buffers", "pingpong"))}  # fmt: skip
    return {"schedule": found, "splits": getattr(made, "cluster", 1)}


def show(found: results.Json) -> None:
    """Print the table and the summary."""
    made = results.table(f"{found['gpu']}, {found['date']}, {found['commit'][:9]}: tensor pipe, by ncu", "setting",
                         "kernel", "main loop %", "whole kernel %", "us", "cycles", left=["kernel"])  # fmt: skip
    for name, one in found["settings"].items():
        main = "-" if one["main"] is None else f"{one['main'] * 100:.1f}"
        made.add_row(name, one["kernel"], main, f"{one['whole'] * 100:.1f}", f"{one['nanoseconds'] / 1e3:.1f}",
                     f"{one['elapsed']:.0f}")  # fmt: skip
    console = results.console()
    console.print(made)
    for precision, one in found["summary"].items():
        main, whole = one["main"], one["whole"]
        console.print(f"{precision}: {main['mean']:.1%} of the peak in the main loop, {main['least']:.1%} at least; "
                      f"{whole['mean']:.1%} and {whole['least']:.1%} of the whole kernel",
                      soft_wrap=True, highlight=False)  # fmt: skip


def failures(found: results.Json) -> Iterator[str]:
    """Main loops below the goal."""
    for name, one in found["settings"].items():
        if one["main"] is None:
            yield (f"{name}: {one['cycles']:.0f} cycles, and {one['less']['cycles']:.0f} with fewer stages: nothing to "
                   "tell the main loop by")  # fmt: skip
        elif one["main"] < GOAL:
            yield f"{name}: {one['main']:.1%} of the peak in the main loop"


BENCH = Bench(
    "pipe", "How busy the tensor cores are in convolutions by HGMMA.",
    """The share of cycles in which the tensor pipe is active, by ncu, of the kernels that Conv2d takes for the 16
    settings of `bench conv`: in the whole kernel, and in its main loop, which is what the layer has more than the same
    with half of the channels, or one row of the filter. 100 % are products alone, counted in the same run.

    Exit code 1: a main loop is below 90 %.
    """,
    (
        Option("--precision", "precisions", f"{', '.join(PRECISE)}. [default: all]", (*PRECISE, "all"), True, "NAME",
               every=PRECISE),
        Option("--batch", "batches", "Images. [default: 32,64,96,128]", "sizes", metavar="N[,N...]"),
    ),
    lambda given, path, tell: run(Asked(**given), path), show, failures,
)  # fmt: skip


def launch(precisions: str, batches: str) -> None:
    """What ncu watches, each twice: of each precision products alone, then of each setting the layer and its half."""
    gpu, numbers = cuda.device(0), np.random.default_rng(0).standard_normal(NUMBERS, np.float32)
    asked = Asked(tuple(precisions.split(",")), tuple(map(int, batches.split(","))))
    for precision in asked.precisions:
        case = hmma.cases(gpu.arch)[f"{LOOPS[precision]}, 2 a scheduler"]
        with Run(case, case.cubin(gpu.arch), gpu) as loop:
            for _ in range(2):
                loop.launch(ROUNDS)
    for precision, n, layer in asked.settings().values():
        drawn = typed(numbers, dtype := DTYPES[PRECISIONS[precision].dtype])
        options = asking(shape_of(n, layer), precision, str(gpu))
        for one in (shape_of(n, layer), part_of(n, layer, precision)):
            w = np.resize(drawn, (one.k, one.c, one.r, one.s))
            with Conv2d(w, None, one.padding, layout="NHWC", device=str(gpu), precision=precision, kernel=hgmma.NAME,
                        **options) as conv:  # fmt: skip
                there, y = Buffer.of(np.resize(drawn, one.x_shape), gpu), Buffer(one.y_shape, dtype, gpu)
                for _ in range(2):
                    conv.queue(there, y, 0)
                gpu.synchronize()
                there.free()
                y.free()


if __name__ == "__main__":
    launch(*sys.argv[1:])
