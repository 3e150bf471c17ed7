"""`turingas bench schedule`: the time of a convolution's kernel by its parameters. Unless others are named, Figures 7,
8, 9 of Yan, Wang, Chu 2020."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from kernels_sass import conv
from kernels_sass.bench import by_hgmma
from kernels_sass.bench import conv as layers
from kernels_sass.bench.by_hgmma import Several, Values
from kernels_sass.bench.ours import Ours, kept_in
from kernels_sass.bench.vary import OWN, alone, apart, impossible, label, refused
from kernels_sass.bench.verdicts import column, geometric_mean
from kernels_sass.bench.winograd import BATCHES, ffmas
from kernels_sass.conv.method import METHODS
from loader.bench import measure, results
from loader.bench.figures import Figures, bars, canvas, legend, named
from loader.bench.measure import Contender, Data, gpu_at_hand
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

SQUARE = "16"  # of layers.GROUPS: the settings that all sources do
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
    layout: str = ""  # "": that of the source, or of a sweep
    source: str = ""  # "": the best for the card
    precision: str = ""  # "": the first that the source has
    groups: tuple[str, ...] = (SQUARE,)  # of layers.GROUPS
    schedule: Mapping[str, object] = dataclasses.field(default_factory=dict)  # parameters that do not vary
    vary: Mapping[str, tuple[object, ...]] = dataclasses.field(default_factory=dict)  # {}: what the source says
    sweep: bool = False
    runs: int = measure.RUNS
    seconds: float = math.inf
    seed: int = 0
    workers: str = ""  # "": one setting after the other, in this process

    def settings(self) -> dict[str, Problem]:
        """The problems."""
        pairs = itertools.product(self.layers, self.batches) if SQUARE in self.groups else ()
        others = tuple(one for one in self.groups if one != SQUARE)
        more = layers.Asked(groups=others, batches=self.batches).settings()
        return {**{f"{name}N{batch}": layer(name, batch) for name, batch in pairs},
                **{name: problem for name, (_, problem) in more.items()}}  # fmt: skip


# ---- sources -----------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Square:
    """A source of METHODS, for filters of 3 x 3 in float32: its main kernel alone."""

    name: str
    layout = "CHWN"
    square = True
    precisions = ("fp32",)
    counted = "TFLOP/s of Winograd's products in the main kernel, and its milliseconds"

    @property
    def files(self) -> list[Path]:
        """The source, with what it includes."""
        return METHODS[self.name].files

    def settled(
        self, schedule: Values, vary: Several, gpu: Device, tell: Callable[[str], None]
    ) -> tuple[Values, Several]:
        """What does not vary, and what does: as asked for, or what the source has of FIGURES. LaunchError for what it
        has not."""
        arch = conv.arch_of(gpu)
        vary = vary or {name: tuple(values) for name, values in there_is(schedule, arch, self.name, tell)}
        for one in alone(vary).values():
            conv.Kernels.of(arch, self.name, {**schedule, **one})
        return schedule, vary

    def data(self, problem: Problem, gpu: Device, precision: str, seed: int) -> Data:
        """The arrays."""
        return Data(problem, gpu, seed)

    def contender(self, precision: str, layout: str, schedule: Values, name: str) -> Contender:
        """The main kernel with a schedule."""
        return Ours(self.name, layout, "main", schedule, name)

    def operations(self, problem: Problem) -> tuple[dict[str, int], int]:
        """What the setting says of them, and what ``tflops`` counts: two for each of ``ffmas``, Winograd's products."""
        return {"ffmas": ffmas(problem)}, 2 * ffmas(problem)

    def more(self, problem: Problem, one: Contender, ms: float, gpu: Device, states: results.Json) -> results.Json:
        """Of a row with a time: the share of the FFMA peak."""
        return {"ffma": measure.ffma_share(ffmas(problem), ms, gpu, states)}


SOURCES: dict[str, Square | by_hgmma.Tiles] = {**{name: Square(name) for name in METHODS}, **by_hgmma.SOURCES}


def run(asked: Asked, path: Path | None, tell: Callable[[str], None] = print) -> results.Json:
    """Measure what is not measured yet, and give the whole file. LaunchError for a parameter that there is not, or a
    value that it does not take, before anything is measured."""
    gpu = gpu_at_hand(WITHOUT)
    source = asked.source or conv.choose(conv.arch_of(gpu)).name
    whole = dataclasses.replace(Asked(), source=asked.source, seconds=asked.seconds, workers=asked.workers)
    if path is None and asked == whole:
        path = kept_in("schedule", gpu.arch, source)
    apart(asked.schedule, asked.vary)
    found = SOURCES[source]
    asked = dataclasses.replace(asked, source=source, layout=asked.layout or found.layout,
                                precision=asked.precision or found.precisions[0])  # fmt: skip
    fits(asked)
    schedule, vary = found.settled(asked.schedule, asked.vary, gpu, tell)
    asked = dataclasses.replace(asked, schedule=schedule, vary=vary)
    file = results.Results(path, results.facts("bench schedule", gpu, found.files), dataclasses.asdict(asked))
    return filled(file, asked, gpu, setting, work, tell, lambda _, made: made,
                  lambda settings: summary(settings, asked.vary), brief)  # fmt: skip


def fits(asked: Asked) -> None:
    """LaunchError for a precision, or layers, that the source does not do, and for layers that the groups leave out."""
    source = SOURCES[asked.source]
    if asked.precision not in source.precisions:
        raise LaunchError(f"the source {source.name!r} has no {asked.precision}",
                          "it has: " + ", ".join(source.precisions))  # fmt: skip
    if source.square and asked.groups != (SQUARE,):
        raise LaunchError(f"--group: the source {source.name!r} is for filters of 3 x 3 with stride 1",
                          "other layers are for: " + ", ".join(by_hgmma.SOURCES))  # fmt: skip
    if SQUARE not in asked.groups and asked.layers != Asked().layers:
        raise LaunchError(f"--layer {asked.layers[0]} is one of the 16 settings, which --group leaves out",
                          f"add --group {SQUARE}")  # fmt: skip


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
    schedule: Values, arch: str, source: str, tell: Callable[[str], None]
) -> Iterator[tuple[str, list[object]]]:
    """What the source has of FIGURES."""
    for name, values in FIGURES.items():
        found = []
        for value in values:
            try:
                conv.Kernels.of(arch, source, {**schedule, name: value})
            except LaunchError as why:
                tell(f"{label(name, value)} is left out: {why.message}")
            else:
                found.append(value)
        if found:
            yield name, found


def contenders(asked: Asked) -> list[Contender]:
    """The source as it is, and with each value of each parameter."""
    source = SOURCES[asked.source]
    return [source.contender(asked.precision, asked.layout, {**asked.schedule, **one}, name)
            for name, one in alone(asked.vary).items()]  # fmt: skip


def setting(
    problem: Problem, gpu: Device, asked: Asked, step: Callable[[float], None] = lambda part: None
) -> results.Json:
    """The results for one problem."""
    source, several = SOURCES[asked.source], contenders(asked)
    with source.data(problem, gpu, asked.precision, asked.seed) as data:
        rows, states = measure.compare(data, several, asked.runs, asked.seed, step)
    told, operations = source.operations(problem)
    for row, one in zip(rows, several, strict=True):
        if row["status"] == "ok":
            row["tflops"] = round(operations / row["ms"] / 1e9, 2)
            row |= source.more(problem, one, row["ms"], gpu, states)
    return {"problem": dataclasses.asdict(problem), **told, "state": states, "rows": rows}


def _times(entry: results.Json) -> dict[str, float]:
    return {row["name"]: row["ms"] for row in entry["rows"] if row["status"] == "ok"}


def summary(settings: results.Json, vary: Mapping[str, Sequence[object]]) -> results.Json:
    """For each parameter and value: how much faster its first value is that has a time, in the geometric mean of the
    settings."""
    made: results.Json = {}
    every = [_times(entry) for entry in settings.values()]
    for name, values in vary.items():
        first, *others = [value for value in values if any(label(name, value) in times for times in every)] or [None]
        made[name] = {}
        for value in others:
            pairs = [(times.get(label(name, first)), times.get(label(name, value))) for times in every]
            if ratios := [other / one for one, other in pairs if one and other]:
                made[name][f"{first} over {value}"] = round(geometric_mean(ratios), 4)
    return made


def brief(entry: results.Json) -> str:
    """A setting in a line."""
    return ", ".join(
        f"{row['name']} {row['ms']:.4f}" if row["status"] == "ok" else
        f"{row['name']} refused" if refused(row) else f"{row['name']} NOT OK ({row['status']})"
        for row in entry["rows"]
    )  # fmt: skip


def show(found: results.Json) -> None:
    """Print a table for each parameter, and the means last."""
    console = results.console()
    for parameter, values in found["asked"]["vary"].items():
        columns = OWN, *(label(parameter, value) for value in values)
        made = results.table(title(parameter), "setting", *columns)
        for setting, entry in found["settings"].items():
            rows = {row["name"]: row for row in entry["rows"]}
            made.add_row(setting, *(cell(rows[name]) for name in columns))
        console.print(made)
    console.print(SOURCES[found["asked"]["source"]].counted)
    for line in lines(found):
        console.print(line, soft_wrap=True, markup=False)


def cell(row: results.Json) -> str:
    """A time and what comes of it; a dash where there is none."""
    return f"{row['tflops']:.1f} ({row['ms']:.4f} ms)" if row["status"] == "ok" else "-"


def title(name: str) -> str:
    """Of a parameter's figure."""
    return TITLES.get(name, name)


def lines(found: results.Json) -> Iterator[str]:
    """What cannot be, what went wrong, and the means."""
    yield from impossible(found)
    for name, ratios in found["summary"].items():
        for what, ratio in ratios.items():
            yield f"{name}: {what}: {ratio:.3f}x"
    for line in failures(found):
        yield f"NOT OK {line}"


def failures(found: results.Json) -> Iterator[str]:
    """Schedules that have no time and should, and why."""
    for setting, entry in found["settings"].items():
        for row in entry["rows"]:
            if row["status"] != "ok" and not refused(row):
                yield f"{setting}: {row['name']}: {row['status']}"


# ---- figures -----------------------------------------------------------------------------------------------------


def figures(found: results.Json) -> Figures:
    """A figure for each parameter."""
    found = results.in_order(found)
    made: Figures = {name.lower(): functools.partial(bars_of, found, name) for name in found["asked"]["vary"]}
    return named_figures(found, made)


def named_figures(found: results.Json, made: Figures) -> Figures:
    """Their names tell the source, its precision if there are several, and what -D gave."""
    asked = found["asked"]
    several = [] if SOURCES[asked["source"]].square else [asked["precision"]]
    given = "".join(f"_{value}" for value in [*several, *asked.get("schedule", {}).values()]).replace(":", "")
    return named("schedule", found, {f"{asked['source']}{given}_{name}": figure for name, figure in made.items()})


def bars_of(found: results.Json, name: str) -> Any:
    """Bars: the kernel with each value of a parameter (Figures 7, 8 and 9 of Yan, Wang, Chu 2020)."""
    asked = found["asked"]
    square = SOURCES[asked["source"]].square
    heading = f"{title(name)}. {'Main kernel' if square else 'Convolution'}, {what_varied(asked)}"
    figure, axes = canvas(found, heading, 11, 3.8)
    rows = {}
    for value in asked["vary"][name]:
        row = label(name, value)
        rows[str(value)] = column(found, row, "tflops")
    bars(axes, list(found["settings"]), rows)
    axes.set_ylabel("TFLOP/s (Winograd's products)" if square else "TFLOP/s")
    legend(figure, title=name)
    return figure


def what_varied(asked: results.Json) -> str:
    """What was varied: the source, its precision if there are several, what -D gave, the layout."""
    given = [] if SOURCES[asked["source"]].square else [asked["precision"]]
    given += [label(name, value) for name, value in asked.get("schedule", {}).items()]
    return ", ".join([asked["source"], *given, asked["layout"]])
