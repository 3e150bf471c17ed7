"""`turingas bench schedule --sweep`: the best schedule for each shape, searched among all parameters of a source.

First each value of each parameter alone, the others as the source has them; so all shapes share one set of kernels.
Then the best value of each, the one that gained most first, is added to those before if it gains with them too. What
remains is measured once more beside the source's own schedule, and is kept where ``Conv2d`` finds it if it is faster.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from kernels_sass import conv
from kernels_sass.bench import options, schedule
from kernels_sass.bench.conv import GROUPS
from kernels_sass.bench.ours import Ours, dated, kept, kept_in
from kernels_sass.bench.schedule import SOURCES, WITHOUT, Asked
from kernels_sass.bench.vary import OWN, apart, label
from kernels_sass.bench.verdicts import geometric_mean
from kernels_sass.conv import shape, tuned
from kernels_sass.conv.method import METHODS
from kernels_sass.conv.methods.hgmma import PRECISIONS
from kernels_sass.conv.parameters import VARIANTS, parameters
from loader.bench import measure, results
from loader.bench.bench import RUNS, SECONDS, Bench, Option
from loader.bench.figures import Figures, bars, canvas
from loader.bench.measure import Data, gpu_at_hand
from loader.cuda import Device
from loader.reference.problem import Problem
from turingas.errors import LaunchError

LAYOUT = shape.LAYOUT  # that of Conv2d, if none is asked for
ROUNDS = 8  # while it is searched
GAIN = 1.004  # a smaller gain is taken for chance
BEFORE = "before"

Step = Callable[[float], None]


def run(asked: Asked, path: Path | None, tell: Callable[[str], None] = print) -> results.Json:
    """Search for the shapes that are not done yet, and give the whole file."""
    gpu = gpu_at_hand(WITHOUT)
    source = asked.source or conv.choose(conv.arch_of(gpu)).name
    if source not in METHODS or not METHODS[source].general:
        raise LaunchError(f"{SOURCES[source].files[0].name} has no schedule to search",
                          "what it has Conv2d chooses; --vary without --sweep times the values")  # fmt: skip
    apart(asked.schedule, asked.vary)
    whole = dataclasses.replace(Asked(), source=asked.source, sweep=True, seconds=asked.seconds, workers=asked.workers)
    if path is None and asked == whole:
        path = kept_in("sweep", gpu.arch, source)
    vary = dict(asked.vary) or {
        name: tuple(value for value in one.few if value != one.default)
        for name, one in parameters(METHODS[source]).items()
        if name not in VARIANTS and name not in asked.schedule
    }  # fmt: skip
    asked = dataclasses.replace(asked, source=source, vary=vary, layout=asked.layout or LAYOUT,
                                precision=asked.precision or SOURCES[source].precisions[0])  # fmt: skip
    schedule.fits(asked)
    own = conv.Kernels.of(conv.arch_of(gpu), source, asked.schedule)
    file = results.Results(path, dated("bench schedule --sweep", gpu, [source]), dataclasses.asdict(asked))
    if asked.schedule:
        tell("with -D nothing is kept for Conv2d: it takes the source as it is")
    else:
        tell(f"what is found is kept for Conv2d in {tuned.path()}")

    problems = asked.settings()

    def keep(name: str, made: results.Json) -> results.Json:
        if not asked.schedule and (best := made["best"]) is not None:
            shape = conv.Shape.of(problems[name], asked.layout)
            facts = {"ms": best["ms"], "gain": best["gain"], "date": file.facts["date"]}
            try:
                tuned.keep(gpu, own, shape, best["schedule"], **facts)
            except OSError as error:
                tell(f"{name} is not kept for Conv2d: {error}")
        return made

    return schedule.filled(file, asked, gpu, setting, work, tell, keep, summary, brief)


def work(task: tuple[Problem, Asked]) -> results.Json:
    """``setting``, in a worker."""
    gpu = gpu_at_hand(WITHOUT)
    return {**setting(task[0], gpu, task[1]), "gpu": gpu.name}


def setting(problem: Problem, gpu: Device, asked: Asked, step: Step = lambda part: None) -> results.Json:
    """The search for one shape."""
    with Data(problem, gpu, asked.seed) as data:
        search = Search(data, asked)
        found = search.best(step)
        rows, states = search.compare({OWN: {}, **({"best": found} if found else {})}, asked.runs)
    times = {row["name"]: row["ms"] for row in rows if row["status"] == "ok"}
    best = None
    if OWN in times:
        own = times[OWN]
        gain = own / times.get("best", own)
        best = {"schedule": found, "ms": times.get("best", own), "gain": round(gain, 4)}
        if gain < 1:
            best = {"schedule": {}, "ms": own, "gain": 1.0}
    return {"problem": dataclasses.asdict(problem), "state": states, "rows": rows, "tried": search.tried, "best": best}


class Search:
    """For one shape. ``tried``: each schedule, and how many times as fast as the source's own it was or why it was not
    run."""

    def __init__(self, data: Data, asked: Asked) -> None:
        self.data, self.asked = data, asked
        self.tried: list[results.Json] = []

    def best(self, step: Step) -> dict[str, object]:
        """The schedule that was the fastest."""
        moves: list[tuple[float, str, object]] = []
        for number, (name, values) in enumerate(self.asked.vary.items()):
            step(number / (len(self.asked.vary) + 1))
            gains = self.gains({label(name, value): {name: value} for value in values})
            moves += sorted(((gains.get(label(name, value), 0.0), name, value) for value in values), key=_gain)[-1:]
        found: dict[str, object] = {}
        for gain, name, value in sorted(moves, key=_gain, reverse=True):
            if gain > GAIN:
                both = {**found, name: value}
                gains = self.gains({BEFORE: found, text(both): both})
                if gains.get(text(both), 0.0) > GAIN * gains.get(BEFORE, math.inf):
                    found = both
        return found

    def gains(self, schedules: Mapping[str, Mapping[str, object]]) -> dict[str, float]:
        """How many times as fast as the source's own each schedule is that runs and is right, measured together."""
        rows, _ = self.compare({OWN: {}, **schedules}, ROUNDS)
        times = {row["name"]: row["ms"] for row in rows if row["status"] == "ok"}
        found = {}
        for row in rows[1:]:
            name = row["name"]
            if row["status"] == "ok" and OWN in times:
                found[name] = times[OWN] / row["ms"]
            if name != BEFORE:
                more = {"gain": round(found[name], 4)} if name in found else {"status": row["status"]}
                self.tried.append({"schedule": dict(schedules[name]), **more})
        return found

    def compare(
        self, schedules: Mapping[str, Mapping[str, object]], runs: int
    ) -> tuple[list[measure.Row], measure.Row]:
        """The main kernel with these schedules, side by side."""
        asked = self.asked
        made = [Ours(asked.source, asked.layout, "main", {**asked.schedule, **schedule}, name)
                for name, schedule in schedules.items()]  # fmt: skip
        return measure.compare(self.data, made, runs, asked.seed)


def _gain(move: tuple[float, str, object]) -> float:
    return move[0]


def summary(settings: results.Json) -> results.Json:
    """The geometric mean of the gains, the least and the most."""
    gains = [entry["best"]["gain"] for entry in settings.values() if entry["best"]]
    return {"mean": round(geometric_mean(gains), 4), "least": min(gains), "most": max(gains)} if gains else {}


def text(schedule: Mapping[str, object]) -> str:
    """A schedule as -D takes it."""
    return " ".join(label(name, value) for name, value in schedule.items()) or OWN


def brief(entry: results.Json) -> str:
    """A shape in a line."""
    best = entry["best"]
    return f"{best['ms']:.4f} ms, {best['gain']:.3f}x: {text(best['schedule'])}" if best else "NOT OK: no time"


def failures(found: results.Json) -> Iterator[str]:
    """Shapes without a time, and schedules whose results were wrong: those that are not assembled are no failure."""
    for name, entry in found["settings"].items():
        for row in entry["rows"]:
            if row["status"] != "ok":
                yield f"{name}: {row['name']}: {row['status']}"
        for one in entry["tried"]:
            if one.get("status", "").startswith("wrong"):
                yield f"{name}: {text(one['schedule'])}: {one['status']}"


def show(found: results.Json) -> None:
    """Print what was found for each shape, and the mean."""
    asked, console = found["asked"], results.console()
    title = f"{found['gpu']}, {found['date']}: best schedules, main kernel, {asked['source']}, {asked['layout']}"
    made = results.table(title, "setting", "ms", "times as fast", "tried", "schedule", left=["schedule"])
    for name, entry in found["settings"].items():
        best = entry["best"]
        cells = (f"{best['ms']:.4f}", f"{best['gain']:.3f}") if best else ("-", "-")
        made.add_row(name, *cells, str(len(entry["tried"])), text(best["schedule"]) if best else "no time")
    console.print(made)
    for line in failures(found):
        console.print(f"NOT OK {line}", soft_wrap=True, markup=False)
    if gains := found["summary"]:
        words = f"{gains['mean']:.3f}x in the mean, {gains['least']:.3f}x to {gains['most']:.3f}x"
        console.print(f"over the source's own schedule: {words}", soft_wrap=True, markup=False)


def figures(found: results.Json) -> Figures:
    """One figure."""
    found = results.in_order(found)
    return schedule.named_figures(found, {"sweep": functools.partial(bars_of, found)})


def bars_of(found: results.Json) -> Any:
    """Bars: how much faster the main kernel is with the best schedule that was found for each shape."""
    asked = found["asked"]
    heading = f"Best schedule found over the source's own. Main kernel, {schedule.what_varied(asked)}"
    figure, axes = canvas(found, heading, 11, 4.4)
    gains = [100 * (entry["best"]["gain"] - 1) for entry in found["settings"].values()]
    bars(axes, list(found["settings"]), {"gain": gains})
    for place, (gain, entry) in enumerate(zip(gains, found["settings"].values())):
        words = "\n".join(f"{name}={value}" for name, value in entry["best"]["schedule"].items()) or "as it is"
        axes.text(place, gain, words, ha="center", va="bottom", fontsize=6)
    axes.margins(y=0.25)
    axes.set_ylabel("% faster")
    return figure


def _of(found: results.Json) -> Any:
    """Which module the results are of."""
    return sys.modules[__name__] if found["asked"].get("sweep") else schedule


BENCH = Bench(
    "schedule", "Time of a convolution's kernel by its schedule.",
    """The time of a convolution's kernel by the parameters of its source, one varied at a time. Without others Figures
    7, 8 and 9 of Yan, Wang, Chu 2020: the main kernel's by yield flag and by the spacing of LDG, STS.

    hgmma, hgmma_wide and hgmma_window are the sources of Conv2d(kernel="hgmma"), for any filter. What is not given is
    chosen by the sizes; "as it is" all is, the source too. Values that cannot be with these sizes are told, and no
    failure. For matrix products: turingas bench gemm --vary.

    Exit code 1: a schedule has no time, or in a sweep its result was wrong.

    \b
      turingas bench schedule --figures figures
      turingas bench schedule --sweep --layout NCHW --seconds 120
      turingas bench schedule --source paper --vary YIELD=natural,nvcc8,every:4 --layer Conv2 --batch 64
      turingas bench schedule --source hgmma --precision fp16 --vary STAGES=4,5,6 -D TILE_N=128 --group 1x1
    """,
    (
        options.LAYER, options.BATCH,
        options.saying(options.LAYOUT, "Layout of x and y. [default: CHWN, with --sweep NCHW, of hgmma NHWC]"),
        Option("--source", "source", f"{', '.join(SOURCES)}. [default: the best for the GPU]", tuple(SOURCES),
               metavar="NAME"),
        Option("--precision", "precision", f"{', '.join(PRECISIONS)}. [default: fp32, of hgmma fp16]",
               tuple(PRECISIONS), metavar="NAME"),
        Option("--group", "groups", f"Layers, of hgmma: {', '.join(GROUPS)}, as bench conv has them. [default: 16]",
               (*GROUPS, "all"), True, "NAME", every=tuple(GROUPS)),
        options.saying(options.DEFINE, "A parameter that does not vary."),
        Option("--vary", "vary", "Parameters and values. [default: those of the figures, with --sweep or hgmma all]",
               "values", True, "NAME=VALUE,..."),
        Option("--sweep", "sweep", "Search for the best schedule of each shape, and keep it for Conv2d.", bool),
        RUNS, SECONDS,
        Option("--workers", "workers", "Measure several settings at the same time: a process for each GPU, or a Dask "
               "cluster. [default: one after the other]", str, metavar="gpus|N|tcp://..."),
    ),
    lambda given, path, tell: (run if given.get("sweep") else schedule.run)(Asked(**given), path, tell),
    lambda found: _of(found).show(found), lambda found: _of(found).failures(found),
    lambda found: _of(found).figures(found),
    lambda given, path: kept("sweep" if given.get("sweep") else "schedule", path, given.get("source")),
    ("source", "sweep"),
)  # fmt: skip
