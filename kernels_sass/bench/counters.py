"""`turingas bench counters`: what Nsight Compute (ncu) counts while the main kernel runs, setting by setting, launched
as Conv2d does. Shares are percent.

ncu starts this file again, which launches the kernel of each setting twice; the second launch is told.
"""

from __future__ import annotations

import csv
import dataclasses
import itertools
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kernels_sass import conv
from kernels_sass.bench import options, shapes
from kernels_sass.bench.ours import dated, kept_in
from kernels_sass.bench.winograd import BATCHES, ffmas
from kernels_sass.conv.method import kernels
from loader import cuda
from loader.bench import results
from loader.bench.bench import Bench, Given, Option
from loader.bench.measure import gpu_at_hand, peak_ffma
from loader.cuda import Buffer
from loader.reference.problem import Problem, rearrange_shape
from loader.validate import LAYERS, layer
from turingas.errors import LaunchError

#: Name in the results -> ncu's metric.
METRICS = {
    "fma": "sm__inst_executed_pipe_fma.avg.pct_of_peak_sustained_active",
    "tensor": "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
    "issued": "smsp__inst_issued.avg.pct_of_peak_sustained_active",
    "instructions": "smsp__inst_executed.sum",
    "ffma_threads": "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum",
    "tensor_instructions": "sm__inst_executed_pipe_tensor.sum",
    "cycles": "sm__cycles_active.avg",
    "elapsed": "sm__cycles_elapsed.max",
    "nanoseconds": "gpu__time_duration.sum",
    "l1": "l1tex__throughput.avg.pct_of_peak_sustained_active",
    "shared_conflicts": "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum",
    "shared_wavefronts": "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum",
    "dram_read": "dram__bytes_read.sum",
    "dram_written": "dram__bytes_write.sum",
    "l2_sectors": "lts__t_sectors.sum",
    "l2_hits": "lts__t_sector_hit_rate.pct",
    "warps": "sm__warps_active.avg.pct_of_peak_sustained_active",
}

#: Of an HMMA.1688, of which three take the place of one in FP32 (MATH=tf32x3).
PRODUCTS = 16 * 8 * 8 / 3

#: What is asked for with --shapes, unless said otherwise.
SHAPES = {"layers": tuple(one.network for one in shapes.LAYERS), "batches": (1, 8), "layouts": (shapes.LAYOUT,)}

WITHOUT = "without one, `turingas info` and `turingas lint` tell what can be told of the code alone"


@dataclasses.dataclass(frozen=True)
class Asked:
    """What the command was asked for."""

    layers: tuple[str, ...] = tuple(LAYERS)
    batches: tuple[int, ...] = (min(BATCHES), max(BATCHES))
    layouts: tuple[str, ...] = ("CHWN",)
    source: str = ""  # "": the best for the card
    schedule: Mapping[str, object] = dataclasses.field(default_factory=dict)  # parameters of the source

    def settings(self) -> list[tuple[str, int, str]]:
        """Layer, images, layout."""
        return list(itertools.product(self.layers, self.batches, self.layouts))


def problem(name: str, batch: int) -> Problem:
    """A layer of `bench winograd` or of `bench shapes`. LaunchError for what is neither."""
    for one in shapes.LAYERS:
        if one.network == name:
            return shapes.problem(one, batch)
    return layer(name, batch)


def chosen(p: Problem, layout: str, of: conv.Kernels) -> tuple[conv.Shape, conv.Kernels]:
    """With the splits and the main kernel that Conv2d takes."""
    shape = conv.Shape.of(p, layout, of.main)
    every = of.every(shape)
    shape = conv.split(shape, "cuda:0", tuple(every))
    return shape, every[shape.kernel]


def needed(p: Problem, shape: conv.Shape) -> int:
    """Products of the method that is launched: Winograd's, or those of the definition."""
    return shapes.operations(p) // 2 if shape.method.direct else ffmas(p)


def run(asked: Asked, path: Path | None) -> results.Json:
    """Count, and give the whole file."""
    gpu = gpu_at_hand(WITHOUT)
    source = asked.source or conv.choose(conv.arch_of(gpu)).name
    if path is None and asked == dataclasses.replace(Asked(), source=asked.source):
        path = kept_in("counters", gpu.arch, source)
    asked = dataclasses.replace(asked, source=source)
    of = conv.Kernels.of(conv.arch_of(gpu), source, asked.schedule)  # told before ncu is started
    file = results.Results(path, dated("bench counters", gpu, [source]), dataclasses.asdict(asked))
    for (name, batch, layout), counted in zip(asked.settings(), profiled(asked), strict=True):
        p = problem(name, batch)
        shape, _ = chosen(p, layout, of)
        counted |= {"splits": shape.splits, "kernel": shape.kernel.name}
        per_cycle, products = peak_ffma(gpu, 1e-6), needed(p, shape)
        ran = (counted["ffma_threads"] or 0) + PRODUCTS * (counted["tensor_instructions"] or 0)
        counted["useful"] = _of(products, ran, 100)
        counted["of_peak"] = _of(products / per_cycle, counted["elapsed"], 100)
        file.settings[f"{name}N{batch} {layout}"] = counted
    return file.write(complete=True)


def profiled(asked: Asked) -> Iterator[dict[str, Any]]:
    """The counters of each setting."""
    words = [",".join(asked.layers), ",".join(map(str, asked.batches)), ",".join(asked.layouts), asked.source]
    words += [f"{name}={value}" for name, value in asked.schedule.items()]
    names = dict.fromkeys(one.name for one in kernels())
    yield from watched("kernels_sass.bench.counters", words, names, METRICS, len(asked.settings()))


def watched(
    module: str, words: Sequence[str], kernels: Iterable[str], metrics: Mapping[str, str], settings: int
) -> list[dict[str, Any]]:
    """What ncu counts in every second launch of ``kernels`` that a module makes, run with some words: two in each of so
    many settings. LaunchError without ncu, or for what it says."""
    found = shutil.which("ncu") or shutil.which("ncu", path="/usr/local/cuda/bin")
    if found is None:
        raise LaunchError("ncu (Nsight Compute) is not installed")
    command = [found, "--csv", "--page", "raw", "--print-units", "base", "--clock-control", "none"]
    command += ["--metrics", ",".join(metrics.values())]
    command += ["-k", f"regex:^({'|'.join(kernels)})$", sys.executable, "-m", module, *words]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path), "LC_ALL": "C"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        raise LaunchError(f"ncu failed: {(done.stderr or done.stdout).strip()[-2000:]}")
    made = read(done.stdout.splitlines(), metrics)
    if len(made) != settings:
        raise LaunchError(f"ncu told of {len(made)} pairs of launches, and there are {settings}",
                          "it counts kernels named " + ", ".join(kernels))  # fmt: skip
    return made


def read(lines: Sequence[str], metrics: Mapping[str, str] = METRICS) -> list[dict[str, Any]]:
    """Every second launch of ncu's table: units are in the line below the titles, which begin with ID; what the program
    and ncu say besides may stand anywhere. None for what ncu could not count."""
    rows = list(csv.reader(line for line in lines if line.startswith('"')))
    first = next((n for n, row in enumerate(rows) if row[0] == "ID"), len(rows))
    launches = [row for row in rows[first + 2 :] if row[0].isdigit()]
    if len(launches) < 2:
        raise LaunchError("ncu told of no launch: " + "\n".join(lines)[-2000:])
    unit, made = dict(zip(rows[first], rows[first + 1])), []
    for pair in zip(launches[::2], launches[1::2]):
        before, cells = (dict(zip(rows[first], launch)) for launch in pair)
        if cells.get("Kernel Name") != before.get("Kernel Name"):
            raise LaunchError(f"launches {before['ID']} and {cells['ID']} that ncu told of are no pair: they are of "
                              f"{before['Kernel Name']} and {cells['Kernel Name']}")  # fmt: skip
        made.append({name: _number(cells.get(metric, ""), unit.get(metric, "")) for name, metric in metrics.items()})
    return made


#: ncu's prefixes of units: bytes, seconds (in nanoseconds).
SCALE = {"Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9, "us": 1e3, "ms": 1e6, "usecond": 1e3, "msecond": 1e6}


def _number(text: str, unit: str) -> float | None:
    try:
        return float(text.replace(",", "")) * SCALE.get(unit, 1)
    except ValueError:  # n/a
        return None


def show(found: results.Json) -> None:
    """Print the table."""
    given = "".join(f", {name}={value}" for name, value in found["asked"].get("schedule", {}).items())
    what = f"{found['gpu']}, {found['commit'][:9]}: {found['asked']['source']}{given}, main kernel, by ncu"
    made = results.table(what, "setting", "blocks", "FMA pipe %", "tensor pipe %", "issue slots %", "L1 %", "shared %",
                         "products/peak %", "us", "cycles", "active %", "conflicts/wavefronts %", "L2 MB", "DRAM MB r",
                         "DRAM MB w", "L2 hits %", "warps %", whole=["blocks"])  # fmt: skip
    for name, one in found["settings"].items():
        conflicts = _of(one["shared_conflicts"], one["shared_wavefronts"], 100)
        l2 = one["l2_sectors"] and 32 * one["l2_sectors"]
        shared = _of(one["shared_wavefronts"], (one["cycles"] or 0) * found["sms"], 100)
        cells = (one["fma"], one["tensor"], one["issued"], one["l1"], shared, one["of_peak"],
                 one["nanoseconds"] and one["nanoseconds"] / 1e3, one["elapsed"],
                 _of(one["cycles"], one["elapsed"], 100), conflicts, _megabytes(l2),
                 _megabytes(one["dram_read"]), _megabytes(one["dram_written"]), one["l2_hits"],
                 one["warps"])  # fmt: skip
        blocks = f"{one['splits']} x {one['kernel']}"
        made.add_row(name, blocks, *("-" if cell is None else f"{cell:.1f}" for cell in cells))
    results.console().print(made)


def _of(a: float | None, b: float | None, scale: float) -> float | None:
    return None if a is None or not b else scale * a / b


def _megabytes(number: float | None) -> float | None:
    return None if number is None else number / 1e6


def _asked(given: Given) -> Asked:
    return Asked(**{**(SHAPES if given.pop("shapes", False) else {}), **given})


BENCH = Bench(
    "counters", "Nsight Compute's counters of the main kernel.",
    "How busy the FMA pipe and the issue slots are, bank conflicts, and bytes from and to memory, by ncu.",
    (
        options.LAYER,
        Option("--shapes", "shapes", "The layers of `bench shapes`, with 1 and 8 images, in NCHW.", bool),
        options.saying(options.BATCH, "Images. [default: 32,128]"),
        options.several(options.LAYOUT, "[default: CHWN]"), options.SOURCE, options.DEFINE,
    ),
    lambda given, path, tell: run(_asked(given), path), show,
)  # fmt: skip


def launch(layers: str, batches: str, layouts: str, source: str, *schedule: str) -> None:
    """What ncu watches: the main kernel of each setting, twice, on random numbers."""
    gpu, random = cuda.device(0), np.random.default_rng(0)
    of = conv.Kernels.of(conv.arch_of(gpu), source, dict(one.split("=", 1) for one in schedule))
    numbers = tuple(map(int, batches.split(",")))
    for name, batch, layout in Asked(tuple(layers.split(",")), numbers, tuple(layouts.split(","))).settings():
        p = problem(name, batch)
        shape, made = chosen(p, layout, of)
        module = made.load("cuda:0")
        x = Buffer.of(random.standard_normal(rearrange_shape(p.x_shape, "NCHW", layout), np.float32), gpu)
        w = Buffer.of(random.standard_normal(p.w_shape, np.float32), gpu)
        y, u = Buffer(p.y_shape, np.float32, gpu), Buffer(conv.filter_floats(p.c, p.k), np.float32, gpu)
        partial = Buffer(shape.floats, np.float32, gpu) if shape.floats else 0
        conv.transform(module, w, u, p.c, p.k)
        for _ in range(2):
            conv.convolve(module, shape, x, u, y, sms=conv.sms("cuda:0"), partial=partial)
        gpu.synchronize()


if __name__ == "__main__":
    launch(*sys.argv[1:])
