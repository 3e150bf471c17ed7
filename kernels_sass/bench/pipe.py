"""`turingas bench pipe`: how busy the tensor cores are while kernels by HGMMA run, by Nsight Compute (ncu).

Of each setting two kernels are counted, launched as Conv2d or gemm launches them: that of all, and the same one with
half of the channels, or with one row of the filter where all channels are one stage; of a product, with half of K. What
both have in common is all but their main loops: so the cycles of the tensor pipe that one has more than the other, over
all cycles that it has more, are the share of the main loop. 100 % is what products alone reach, without loads or stores
(kernels_sass/micro/hgmma.sass), which is counted in the same run.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from kernels_sass import gemm_kernels, gemm_plan
from kernels_sass.bench.conv import DTYPES, SQUARE, typed
from kernels_sass.bench.counters import watched
from kernels_sass.conv import Conv2d, cost
from kernels_sass.conv.implicit_plan import room
from kernels_sass.conv.implicit_shape import Shape, Source
from kernels_sass.conv.libraries import library_of
from kernels_sass.conv.methods import hgmma
from kernels_sass.conv.methods.hgmma import PRECISIONS
from kernels_sass.gemm_kernels import Tiling
from kernels_sass.micro import hmma
from kernels_sass.micro.loops import ROUNDS, Run
from loader import cuda
from loader.bench import measure, results
from loader.bench.bench import Bench, Option
from loader.bench.measure import gpu_at_hand
from loader.cuda import Buffer, Device
from turingas.errors import LaunchError

PRECISE = tuple(name for name, one in PRECISIONS.items() if not one.halves)  # one product for each
METRICS = {
    "tensor": "sm__pipe_tensor_cycles_active.sum", "cycles": "sm__cycles_active.sum",
    "elapsed": "sm__cycles_elapsed.max", "nanoseconds": "gpu__time_duration.sum",
}  # fmt: skip
KERNELS = "hgmma", "hgmma_wide", "hgmma_window", "hgemm"  # and that of products alone has the first one's name
CONV, GEMM = OF = "conv", "gemm"
KINDS = {"tf32": "float32", "fp16": "float16", "bf16": "bfloat16"}  # of gemm's elements
LOOPS = {"tf32": "HGMMA.64x256x8.F32.TF32", "fp16": "HGMMA.64x256x16.F32", "bf16": "HGMMA.64x256x16.F32.BF16"}
WITHOUT = "without one, `turingas bench pipe --show` prints the results that are kept"
GOAL = 0.9  # of the main loop
NUMBERS = 1000003  # at random, that x and filters repeat


class Layer(NamedTuple):
    """A layer of the 16 settings: precision, images, and rows, C, K, size of the filters."""

    precision: str
    n: int
    layer: tuple[int, ...]

    def kernel(self, device: str) -> str:
        """How it is launched, in words."""
        made = asking(shape_of(self.n, self.layer), self.precision, device)
        return _words({**made["schedule"], "splits": made["splits"]})

    def scale(self, device: str) -> float:
        """Of what is counted with fewer stages: kernels with windows go through more or fewer pixels then."""
        shape = shape_of(self.n, self.layer)
        if "WINDOWS" not in asking(shape, self.precision, device)["schedule"]:
            return 1
        return pixels(shape) / pixels(part_of(self.n, self.layer, self.precision))

    def launches(self, gpu: Device, drawn: Any) -> Iterator[Callable[[], object]]:
        """Of all, and with fewer stages: what queues it. Each has memory until the next is asked for."""
        options = asking(shape_of(self.n, self.layer), self.precision, str(gpu))
        for one in (shape_of(self.n, self.layer), part_of(self.n, self.layer, self.precision)):
            w = np.resize(drawn, (one.k, one.c, one.r, one.s))
            with contextlib.ExitStack() as stack:
                conv = stack.enter_context(Conv2d(
                    w, None, one.padding, layout="NHWC", device=str(gpu), precision=self.precision, kernel=hgmma.NAME,
                    **options))  # fmt: skip
                x = stack.enter_context(Buffer.of(np.resize(drawn, one.x_shape), gpu))
                y = stack.enter_context(Buffer(one.y_shape, drawn.dtype, gpu))
                yield functools.partial(conv.queue, x, y, 0)


class Square(NamedTuple):
    """A product of square matrices, B in rows of K as a linear layer has it: precision, rows and columns."""

    precision: str
    size: int

    def asking(self, device: str) -> tuple[Tiling, int]:
        """The tiles that gemm takes, and how many blocks share a K."""
        sms = cost.sms(device)
        made = gemm_plan.tiles(self.size, self.size, sms, self.precision)
        return made, gemm_plan.shared(made, self.size, self.size, -(-self.size // made.tile_k), sms)

    def kernel(self, device: str) -> str:
        """How it is launched, in words."""
        made, splits = self.asking(device)
        return _words({"TILE_N": made.tile_n, "STAGES": made.stages, "splits": splits})

    def scale(self, device: str) -> float:
        """Of what is counted with half of K: that has as many tiles."""
        return 1

    def launches(self, gpu: Device, drawn: Any) -> Iterator[Callable[[], object]]:
        """Of all of K, and of half: what queues it. Each has memory until the next is asked for. Half of K has the
        same tiles, which go by rows and columns alone, and as many blocks share it."""
        of = KINDS[self.precision]
        for k in (self.size, self.size // 2):
            one = gemm_plan.Operand((self.size, k), False, True)
            plan = gemm_plan.Plan(gemm_plan.Product(
                gpu.number, of, self.precision, one, one, self.size, self.size, k, 0, (self.size, self.size), False,
                None, self.asking(str(gpu))[1], True))  # fmt: skip
            with contextlib.ExitStack() as stack:
                a, b = (stack.enter_context(Buffer.of(np.resize(drawn, one.shape), gpu)) for _ in "AB")
                c = stack.enter_context(Buffer(plan.shape, drawn.dtype, gpu))
                given = a.address, b.address, 0, 0, c.address
                yield functools.partial(plan.run, library_of("A", a), a, 0, given)


@dataclasses.dataclass(frozen=True)
class Asked:
    """What the command was asked for."""

    of: tuple[str, ...] = OF
    precisions: tuple[str, ...] = PRECISE
    batches: tuple[int, ...] = (32, 64, 96, 128)
    sizes: tuple[int, ...] = (2048, 4096, 8192)

    def settings(self) -> dict[str, Layer | Square]:
        """What is counted, by name."""
        layers = itertools.product(self.precisions, SQUARE, self.batches) if CONV in self.of else ()
        products = itertools.product(self.precisions, self.sizes) if GEMM in self.of else ()
        made: dict[str, Layer | Square] = {
            f"{precision}: {c} -> {k}, {r}x{r}, {h}x{h}, N={n}": Layer(precision, n, (h, c, k, r))
            for precision, (h, c, k, r, _), n in layers
        }
        return made | {f"{precision}: {GEMM}, {size}": Square(precision, size) for precision, size in products}


def run(asked: Asked, path: Path | None) -> results.Json:
    """Count, and give the whole file."""
    gpu = gpu_at_hand(WITHOUT)
    if not gpu.runs(hgmma.ARCH):
        raise LaunchError(f"{gpu} ({gpu.name}) is {gpu.arch}; the kernels are for {hgmma.ARCH}", WITHOUT)
    if path is None and asked == Asked():
        path = results.default_path("pipe", gpu.arch)
    facts = results.facts("bench pipe", gpu, [*hgmma.FOLDER.glob("hgmma*.sass"), *gemm_kernels.TEXTS])
    before = measure.state(gpu)
    settings, lists = asked.settings(), dataclasses.astuple(asked)
    file = results.Results(path, facts, dataclasses.asdict(asked))
    with tempfile.TemporaryDirectory() as folder:
        states = Path(folder, "states")
        words = [*(",".join(map(str, one)) for one in lists), str(states)]
        every = watched("kernels_sass.bench.pipe", words, KERNELS, METRICS, len(asked.precisions) + 2 * len(settings))
        told = [json.loads(line) for line in states.read_text().splitlines()]
    file.facts["state"] = {"before": before, "after": measure.state(gpu)}
    if lacking := sorted({METRICS[name] for one in every for name, value in one.items() if value is None}):
        raise LaunchError("ncu could not count " + ", ".join(lacking),
                          "`ncu --query-metrics` lists what it can")  # fmt: skip
    counted = iter(every)
    peak = {precision: next(counted) for precision in asked.precisions}
    file.facts["peak"] = peak
    for (name, one), state in zip(settings.items(), told, strict=True):
        whole, less, most = next(counted), next(counted), share(peak[one.precision])
        scale = one.scale(str(gpu))
        more = {key: whole[key] - scale * less[key] for key in ("tensor", "cycles")}
        main = round(share(more) / most, 4) if more["cycles"] > 0 else None
        file.settings[name] = {
            **whole, "less": less, "of": GEMM if isinstance(one, Square) else CONV, "precision": one.precision,
            "kernel": one.kernel(str(gpu)), "peak": round(most, 4), "whole": round(share(whole) / most, 4),
            "main": main, "state": state,
        }  # fmt: skip
    file.summary = summary(file.settings)
    return file.write(complete=True)


def summary(settings: results.Json) -> results.Json:
    """By precision, of gemm apart: products alone, and the shares of their speed."""
    groups: dict[str, list[results.Json]] = {}
    for one in settings.values():
        of = one.get("of", CONV)  # older files have convolutions alone
        groups.setdefault(one["precision"] if of == CONV else f"{of} {one['precision']}", []).append(one)
    made: results.Json = {}
    for name, every in groups.items():
        shares = {word: [one[word] for one in every if one[word] is not None] for word in ("main", "whole")}
        made[name] = {"peak": every[-1].get("peak"), "settings": len(every), **{
            word: {"least": min(found, default=0), "mean": round(sum(found) / max(1, len(found)), 4)}
            for word, found in shares.items()}}  # fmt: skip
    return made


def join(files: Sequence[Path], path: Path | None, tell: Callable[[str], None] = print) -> results.Json:
    """Files of this command, of convolutions and of products, as one, in ``path`` or where results go."""
    several = [results.recorded("pipe", file) for file in files]
    for found in several:
        found["asked"] = {"of": [CONV], "sizes": [], **found["asked"]}
        for one in found["settings"].values():
            if "peak" not in one:
                one["peak"] = round(share(found["peak"][one["precision"]]), 4)
    made = results.join(several)
    of = tuple(one for one in OF if one in made["asked"]["of"])
    wanted = Asked(of, *(tuple(made["asked"][name]) for name in ("precisions", "batches", "sizes"))).settings()
    there = made["settings"]
    made["asked"]["of"] = list(of)
    made["settings"] = {name: there[name] for name in (*wanted, *there) if name in there}
    made["summary"], made["complete"] = summary(made["settings"]), wanted.keys() <= there.keys()
    path = path or results.default_path("pipe", made["arch"])
    results.keep(path, made)
    tell(f"written: {path}")
    return made


def _words(made: Mapping[str, object]) -> str:
    return " ".join(f"{one}={value}" for one, value in made.items())


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
    for name, one in found["summary"].items():
        main, whole = one["main"], one["whole"]
        console.print(f"{name}: {main['mean']:.1%} of the peak in the main loop, {main['least']:.1%} at least; "
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
    "pipe", "How busy the tensor cores are in convolutions and products by HGMMA.",
    """The share of cycles in which the tensor pipe is active, by ncu, of the kernels that Conv2d takes for the 16
    settings of `bench conv`, and of gemm's with square matrices: in the whole kernel, and in its main loop, which is
    what it has more than the same with half of the channels, or one row of the filter, or half of K. 100 % are products
    alone, counted in the same run.

    Exit code 1: a main loop is below 90 %.
    """,
    (
        Option("--of", "of", f"{', '.join(OF)}. [default: all]", (*OF, "all"), True, "NAME", every=OF),
        Option("--precision", "precisions", f"{', '.join(PRECISE)}. [default: all]", (*PRECISE, "all"), True, "NAME",
               every=PRECISE),
        Option("--batch", "batches", "Images. [default: 32,64,96,128]", "sizes", metavar="N[,N...]"),
        Option("--size", "sizes", "Rows and columns of products. [default: 2048,4096,8192]", "sizes",
               metavar="N[,N...]"),
        Option("--join", "join", "Count nothing: put results of several runs into one file; of settings that several "
               "have, the last file's are taken.", Path, True, "FILE"),
    ),
    lambda given, path, tell: join(given["join"], path, tell) if "join" in given else run(Asked(**given), path),
    show, failures,
)  # fmt: skip


def launch(of: str, precisions: str, batches: str, sizes: str, states: str) -> None:
    """What ncu watches, each twice: of each precision products alone, then of each setting all of it and less. Into the
    file ``states`` go clocks, power and temperature of each, a line for a setting."""
    gpu, numbers = cuda.device(0), np.random.default_rng(0).standard_normal(NUMBERS, np.float32)
    counts = (tuple(map(int, one.split(","))) for one in (batches, sizes))
    asked = Asked(tuple(of.split(",")), tuple(precisions.split(",")), *counts)
    for precision in asked.precisions:
        case = hmma.cases(gpu.arch)[f"{LOOPS[precision]}, 2 a scheduler"]
        with Run(case, case.cubin(gpu.arch), gpu) as loop:
            for _ in range(2):
                loop.launch(ROUNDS)
    with open(states, "w") as file:
        for one in asked.settings().values():
            seen = [measure.state(gpu)]
            for queue in one.launches(gpu, typed(numbers, DTYPES[PRECISIONS[one.precision].dtype])):
                for _ in range(2):
                    queue()
                gpu.synchronize()
                seen.append(measure.state(gpu))
            print(json.dumps(dict(zip(("before", "during", "after"), seen))), file=file)


if __name__ == "__main__":
    launch(*sys.argv[1:])
