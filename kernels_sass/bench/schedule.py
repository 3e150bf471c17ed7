"""`turingas bench schedule`: Figures 7, 8, 9 of Yan, Wang, Chu 2020, the main kernel's time by how it is scheduled."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from kernels_sass import conv
from kernels_sass.bench.ours import Ours, dated, kept_in
from kernels_sass.bench.verdicts import column, geometric_mean
from kernels_sass.bench.winograd import BATCHES, ffmas
from loader.bench import measure, results
from loader.bench.figures import Figures, bars, canvas, legend, named
from loader.bench.measure import Data, gpu_at_hand
from loader.cuda import Device
from loader.reference.problem import Problem
from loader.validate import LAYERS, layer
from loader.workers import Workers
from turingas.errors import LaunchError

#: The values of the paper's figures, the fastest there first. Each is varied alone; the others stay as the source has
#: them.
FIGURES: dict[str, tuple[object, ...]] = {
    "YIELD": ("natural", "nvcc8", "cudnn7"),  # Figure 7
    "LDG_INTERLEAVE": (8, 4, 2),  # Figure 8
    "STS_INTERLEAVE": (6, 4, 2),  # Figure 9
}
TITLES = {
    "YIELD": "Figure 7: the yield flag",
    "LDG_INTERLEAVE": "Figure 8: FFMA between two LDG",
    "STS_INTERLEAVE": "Figure 9: FFMA between two STS",
}

LAYOUT = "CHWN"
HANGS = 3600.0  # seconds after which a worker is taken for one that hangs

WITHOUT = (
    "without one, `turingas bench schedule --show` prints the results that are kept, --figures draws them, and "
    "`turingas lint kernels_sass/conv/methods/winograd.sass -D YIELD=nvcc8` tells what a schedule "
    "costs by the instructions themselves"
)


@dataclasses.dataclass(frozen=True)
class Asked:
    """What the command was asked for."""

    layers: tuple[str, ...] = tuple(LAYERS)
    batches: tuple[int, ...] = BATCHES
    layout: str = ""  # "": LAYOUT, or that of a sweep
    source: str = ""  # "": the best for the card
    schedule: Mapping[str, object] = dataclasses.field(default_factory=dict)  # parameters that do not vary
    vary: Mapping[str, tuple[object, ...]] = dataclasses.field(default_factory=dict)  # {}: what there is of FIGURES
    sweep: bool = False  # vary {}: all that the source has
    runs: int = measure.RUNS
    seconds: float = math.inf
    seed: int = 0
    workers: str = ""  # "": one setting after the other, in this process

    def settings(self) -> dict[str, Problem]:
        """The problems."""
        pairs = itertools.product(self.layers, self.batches)
        return {f"{name}N{batch}": layer(name, batch) for name, batch in pairs}


def run(asked: Asked, path: Path | None, tell: Callable[[str], None] = print) -> results.Json:
    """Measure what is not measured yet, and give the whole file. LaunchError for a parameter that there is not, or a
    value that it does not take, before anything is measured."""
    gpu = gpu_at_hand(WITHOUT)
    source = asked.source or conv.choose(conv.arch_of(gpu)).name
    whole = dataclasses.replace(Asked(), source=asked.source, seconds=asked.seconds, workers=asked.workers)
    if path is None and asked == whole:
        path = kept_in("schedule", gpu.arch, source)
    vary = asked.vary or {name: tuple(values) for name, values in there_is(asked, conv.arch_of(gpu), source, tell)}
    asked = dataclasses.replace(asked, source=source, vary=vary, layout=asked.layout or LAYOUT)
    for contender in contenders(asked):
        conv.Kernels.of(conv.arch_of(gpu), source, contender.schedule)
    file = results.Results(path, dated("bench schedule", gpu, [source]), dataclasses.asdict(asked))
    return filled(file, asked, gpu, setting, work, tell, lambda _, made: made,
                  lambda settings: summary(settings, asked.vary), brief)  # fmt: skip


def filled(
    file: results.Results, asked: Asked, gpu: Device, measured: Callable[..., results.Json],
    work: Callable[[tuple[Problem, Asked]], results.Json], tell: Callable[[str], None],
    done: Callable[[str, results.Json], results.Json], summary: Callable[[results.Json], results.Json],
    brief: Callable[[results.Json], str],
) -> results.Json:  # fmt: skip
    """Each setting ``measured`` here, or by ``work`` in a worker that has the same card. ``done`` is told each."""
    if not asked.workers:
        def one(name: str, problem: Problem, step: Callable[[float], None]) -> results.Json:
            return done(name, measured(problem, gpu, asked, step))

        return file.fill(asked.settings(), asked.seconds, tell, one, summary, brief)

    def there(name: str, made: results.Json) -> results.Json:
        if (card := made.pop("gpu")) != gpu.name:
            raise LaunchError(f"{name} was measured on a {card}", f"all workers need a {gpu.name}, as there is here")
        return done(name, made)

    with Workers(asked.workers, HANGS) as workers:
        tell(f"{workers}: settings are measured at the same time")
        return file.spread(asked.settings(), asked.seconds, tell, workers, work, lambda problem: (problem, asked),
                           there, summary, brief)  # fmt: skip


def work(task: tuple[Problem, Asked]) -> results.Json:
    """``setting``, in a worker."""
    gpu = gpu_at_hand(WITHOUT)
    return {**setting(task[0], gpu, task[1]), "gpu": gpu.name}


def there_is(
    asked: Asked, arch: str, source: str, tell: Callable[[str], None]
) -> Iterator[tuple[str, list[object]]]:
    """What the source has of FIGURES."""
    for name, values in FIGURES.items():
        found = []
        for value in values:
            try:
                conv.Kernels.of(arch, source, {**asked.schedule, name: value})
            except LaunchError as why:
                tell(f"{label(name, value)} is left out: {why.message}")
            else:
                found.append(value)
        if found:
            yield name, found


def contenders(asked: Asked) -> list[Ours]:
    """The main kernel as its source has it, and with each value of each parameter."""
    varied = {label(name, value): {name: value} for name, values in asked.vary.items() for value in values}
    return [Ours(asked.source, asked.layout, "main", {**asked.schedule, **one}, name)
            for name, one in {"as it is": {}, **varied}.items()]  # fmt: skip


def label(name: str, value: object) -> str:
    """How a row is called."""
    return f"{name}={value}"


def setting(
    problem: Problem, gpu: Device, asked: Asked, step: Callable[[float], None] = lambda part: None
) -> results.Json:
    """The results for one problem. ``tflops`` counts Winograd's products: two operations for each of ``ffmas``."""
    with Data(problem, gpu, asked.seed) as data:
        rows, states = measure.compare(data, contenders(asked), asked.runs, asked.seed, step)
    for row in rows:
        if row["status"] == "ok":
            row["tflops"] = round(2 * ffmas(problem) / row["ms"] / 1e9, 2)
            row["ffma"] = measure.ffma_share(ffmas(problem), row["ms"], gpu, states)
    return {"problem": dataclasses.asdict(problem), "ffmas": ffmas(problem), "state": states, "rows": rows}


def _times(entry: results.Json) -> dict[str, float]:
    return {row["name"]: row["ms"] for row in entry["rows"] if row["status"] == "ok"}


def summary(settings: results.Json, vary: Mapping[str, Sequence[object]]) -> results.Json:
    """For each parameter and value: how much faster its first value is, in the geometric mean of the settings."""
    made: results.Json = {}
    for name, values in vary.items():
        first = label(name, values[0])
        made[name] = {}
        for value in values[1:]:
            other = label(name, value)
            ratios = [times[other] / times[first] for times in map(_times, settings.values())
                      if first in times and other in times]  # fmt: skip
            if ratios:
                made[name][f"{values[0]} over {value}"] = round(geometric_mean(ratios), 4)
    return made


def brief(entry: results.Json) -> str:
    """A setting in a line."""
    return ", ".join(
        f"{row['name']} {row['ms']:.4f}" if row["status"] == "ok" else f"{row['name']} NOT OK ({row['status']})"
        for row in entry["rows"]
    )


def show(found: results.Json) -> None:
    """Print a table for each parameter, and the means last."""
    console = results.console()
    for name, values in found["asked"]["vary"].items():
        made = results.table(title(name), "setting", *(label(name, value) for value in values))
        for setting, entry in found["settings"].items():
            rows = {row["name"]: row for row in entry["rows"]}
            made.add_row(setting, *(cell(rows[label(name, value)]) for value in values))
        console.print(made)
    console.print("TFLOP/s of Winograd's products in the main kernel, and its milliseconds")
    for line in lines(found):
        console.print(line, soft_wrap=True, markup=False)


def cell(row: results.Json) -> str:
    """A time and what comes of it; a dash where there is none."""
    return f"{row['tflops']:.1f} ({row['ms']:.4f} ms)" if row["status"] == "ok" else "-"


def title(name: str) -> str:
    """Of a parameter's figure."""
    return TITLES.get(name, name)


def lines(found: results.Json) -> Iterator[str]:
    """What went wrong, and the means."""
    for name, ratios in found["summary"].items():
        for what, ratio in ratios.items():
            yield f"{name}: {what}: {ratio:.3f}x"
    for line in failures(found):
        yield f"NOT OK {line}"


def failures(found: results.Json) -> Iterator[str]:
    """Schedules that have no time, and why."""
    for setting, entry in found["settings"].items():
        for row in entry["rows"]:
            if row["status"] != "ok":
                yield f"{setting}: {row['name']}: {row['status']}"


# ---- figures -----------------------------------------------------------------------------------------------------


def figures(found: results.Json) -> Figures:
    """A figure for each parameter."""
    found = results.in_order(found)
    made: Figures = {name.lower(): functools.partial(bars_of, found, name) for name in found["asked"]["vary"]}
    return named_figures(found, made)


def named_figures(found: results.Json, made: Figures) -> Figures:
    """Their names tell the source and what -D gave."""
    asked = found["asked"]
    given = "".join(f"_{value}" for value in asked.get("schedule", {}).values()).replace(":", "")
    return named("schedule", found, {f"{asked['source']}{given}_{name}": figure for name, figure in made.items()})


def bars_of(found: results.Json, name: str) -> Any:
    """Bars: the main kernel with each value of a parameter (Figures 7, 8 and 9 of Yan, Wang, Chu 2020)."""
    asked = found["asked"]
    heading = f"{title(name)}. Main kernel, {what_varied(asked)}"
    figure, axes = canvas(found, heading, 11, 3.8)
    rows = {}
    for value in asked["vary"][name]:
        row = label(name, value)
        rows[str(value)] = column(found, row, "tflops")
    bars(axes, list(found["settings"]), rows)
    axes.set_ylabel("TFLOP/s (Winograd's products)")
    legend(figure, title=name)
    return figure


def what_varied(asked: results.Json) -> str:
    """What was varied: the source, what -D gave, the layout."""
    given = [label(name, value) for name, value in asked.get("schedule", {}).items()]
    return ", ".join([asked["source"], *given, asked["layout"]])
