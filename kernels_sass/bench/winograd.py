"""`turingas bench winograd`: our kernels beside cuDNN, PyTorch and openCNN's kernel, on the settings of paper 004."""

from __future__ import annotations

import dataclasses
import itertools
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from kernels_sass.bench import cudnn, measure, results
from kernels_sass.bench.contenders import Ours, Reference, ours, pytorch
from kernels_sass.bench.measure import Contender, Data, Row
from kernels_sass.winograd import host
from loader import cuda
from loader.cuda import Device
from loader.reference import algorithms
from loader.reference.problem import Problem
from loader.validate import LAYERS, layer
from turingas.errors import LaunchError

BATCHES = (32, 64, 96, 128)
LAYOUTS = ("CHWN", "NCHW", "NHWC")

#: The groups of --rivals. "cudnn" and "torch" are fp32, and what a speed-up is over; the others stand beside.
RIVALS = ("cudnn", "torch", "tf32", "fp16", "opencnn", "references")
DEFAULT_RIVALS = RIVALS[:5]
FP32 = ("cudnn", "torch")

#: Milliseconds that openCNN's own code (optSTS64) took on an H200 when this project began. They are cited, not
#: measured here: what is measured is our CUDA C++ kernel with its layouts (docs/references.md).
OPENCNN = {
    "what": "openCNN's own code (optSTS64) on an H200, measured when the project began; cited, not of this run",
    "ms": {"Conv2N32": 0.145, "Conv2N128": 0.557, "Conv3N32": 0.123, "Conv3N128": 0.523,
           "Conv4N32": 0.153, "Conv4N128": 0.481, "Conv5N32": 0.153, "Conv5N128": 0.611},
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Asked:
    """What the command was asked for."""

    layers: tuple[str, ...] = tuple(LAYERS)
    batches: tuple[int, ...] = BATCHES
    layouts: tuple[str, ...] = LAYOUTS
    sources: tuple[str, ...] = ()  # (): the best for the card
    schedule: Mapping[str, object] = dataclasses.field(default_factory=dict)  # parameters of ours
    rivals: tuple[str, ...] = DEFAULT_RIVALS
    runs: int = measure.RUNS
    seconds: float = math.inf
    seed: int = 0

    def settings(self) -> dict[str, Problem]:
        """The problems, in an order that gives the most of the picture first."""
        pairs = itertools.product(self.batches, self.layers)
        return {f"{name}N{batch}": layer(name, batch) for batch, name in pairs}


def gpu_at_hand(still: str) -> Device:
    """The first GPU. LaunchError if there is none: ``still`` is what can be done without."""
    if not cuda.count():
        why = "there is no GPU here"
        try:
            cuda.driver()
        except LaunchError as error:
            why += f": {error.message}"
        raise LaunchError(why, still)
    return cuda.device(0)


WITHOUT = (
    "without one, `turingas bench winograd --show` prints the results that are kept, and `turingas validate "
    "kernels_sass/winograd/winograd.sass --device cpu --shape 1,8,6,6,8` runs the kernel on the CPU device"
)


def run(asked: Asked, path: Path | None, tell: Callable[[str], None] = print) -> results.Json:
    """Measure what is not measured yet, and give the whole file. ``tell`` is given a line for each setting."""
    gpu = gpu_at_hand(WITHOUT)
    sources = asked.sources or (host.choose(host.arch_of(gpu)).name,)
    asked = dataclasses.replace(asked, sources=sources)
    wanted = {key: value for key, value in dataclasses.asdict(asked).items() if key != "seconds"}
    facts = results.facts("bench winograd", gpu, sources)
    if path is None and asked == dataclasses.replace(Asked(), sources=sources, seconds=asked.seconds):
        path = results.default_path("winograd", gpu.arch, sources[0])  # the whole table: not what a part of it replaces
    file = results.Results(path, facts, wanted)
    file.facts["opencnn_recorded"] = OPENCNN
    kept = len(file.settings)
    if kept:
        tell(f"{file.path}: {kept} settings are kept of a run that was interrupted")
    found = file.write(complete=False) if kept else {}
    for name, problem, left in results.turns(file.settings, asked.settings(), asked.seconds, tell):
        file.settings[name] = setting(problem, gpu, asked)
        file.summary = summary(file.settings, asked.sources[0], asked.layouts)
        found = file.write(complete=left == 0)
        tell(f"{name:<10} {brief(file.settings[name])}; {left} to do")
    return found


def contenders(asked: Asked) -> list[Contender]:
    """All that take part."""
    made = ours(asked.sources, asked.layouts, asked.schedule)
    if "cudnn" in asked.rivals:
        made += cudnn.contenders()
    made += pytorch([one for group, one in (("torch", "fp32"), ("tf32", "tf32"), ("fp16", "fp16"))
                     if group in asked.rivals])  # fmt: skip
    if "opencnn" in asked.rivals:
        made.append(Reference("winograd_opencnn", "opencnn"))
    if "references" in asked.rivals:
        queued = ("im2col", "winograd_opencnn")  # cuBLAS has no stream of ours; openCNN is there already
        made += [Reference(name) for name in algorithms() if name not in queued]
    return made


def setting(problem: Problem, gpu: Device, asked: Asked) -> results.Json:
    """The results for one problem."""
    start = time.monotonic()
    with Data(problem, gpu, asked.seed) as data:
        rows, states = measure.compare(data, contenders(asked), asked.runs, asked.seed)
        copies = data.copies
    mhz = states["during"].get("sm_mhz") or gpu.attribute("CLOCK_RATE") / 1000
    for row in rows:
        if row["status"] == "ok" and row["part"] != "filter":
            row["tflops"] = round(problem.flops / row["ms"] / 1e9, 2)
            if row["group"] == "ours":
                row["ffma"] = round(ffmas(problem) / (row["ms"] * 1e-3 * measure.peak_ffma(gpu, mhz)), 4)
    made = {"problem": dataclasses.asdict(problem), "flops": problem.flops, "ffmas": ffmas(problem), "copies": copies,
            "state": states, "seconds": round(time.monotonic() - start, 1), "rows": rows}  # fmt: skip
    made["verdict"] = verdict(rows, asked.sources[0], asked.layouts)
    return made


def ffmas(p: Problem) -> int:
    """FFMA that F(2x2,3x3) needs for the products: 16 a channel, filter and tile of 2 x 2 outputs."""
    return 16 * p.c * p.k * p.n * math.ceil(p.p / 2) * math.ceil(p.q / 2)


# ---- what comes of it --------------------------------------------------------------------------------------------


def verdict(rows: Sequence[Row], source: str, layouts: Sequence[str]) -> results.Json:
    """Ours in each layout over the fastest fp32 rival and over openCNN's kernel; None where there is no time."""
    times = {row["name"]: row["ms"] for row in rows if row["status"] == "ok"}
    fp32 = [row for row in rows if row["group"] in FP32 and row["status"] == "ok"]
    rival = min(fp32, key=lambda row: row["ms"], default=None)
    opencnn = next((row["ms"] for row in rows if row["group"] == "opencnn" and row["status"] == "ok"), None)
    made: results.Json = {"rival": rival and rival["name"], "rival_ms": rival and rival["ms"], "opencnn_ms": opencnn}
    made["ours"] = {}
    for name in layouts:
        ms = times.get(Ours(source, name).name)
        made["ours"][name] = {
            "ms": ms, "main_ms": times.get(Ours(source, name, "main").name),
            "over_rival": _ratio(rival["ms"] if rival else None, ms), "over_opencnn": _ratio(opencnn, ms),
        }  # fmt: skip
    return made


def _ratio(theirs: float | None, mine: float | None) -> float | None:
    return round(theirs / mine, 3) if theirs and mine else None


def summary(settings: results.Json, source: str, layouts: Sequence[str]) -> results.Json:
    """Geometric means and the least of the speed-ups over all settings, for each layout and for the best of each."""
    made: results.Json = {"source": source, "settings": len(settings)}
    for name in (*layouts, "best"):
        made[name] = {}
        for kind in ("over_rival", "over_opencnn"):
            found = [one for one in (_speedup(entry, name, kind) for entry in settings.values()) if one]
            if found:
                made[name][kind] = {"mean": round(geometric_mean(found), 3), "least": min(found), "of": len(found)}
    return made


def _speedup(entry: results.Json, name: str, kind: str) -> float | None:
    mine = entry["verdict"]["ours"]
    if name != "best":
        return mine[name][kind] if name in mine else None
    return max((one[kind] for one in mine.values() if one[kind]), default=None)


def geometric_mean(numbers: Iterable[float]) -> float:
    """The n-th root of the product."""
    logarithms = [math.log(one) for one in numbers]
    return math.exp(sum(logarithms) / len(logarithms))


# ---- how it is shown ---------------------------------------------------------------------------------------------


def brief(entry: results.Json) -> str:
    """A setting in a line."""
    made = entry["verdict"]
    parts = [f"{name} {_number(one['ms'], '.4f')} ms ({_number(one['over_rival'], '.2f')}x)"
             for name, one in made["ours"].items()]  # fmt: skip
    wrong = [row["name"] for row in entry["rows"] if row["group"] == "ours" and row["status"] != "ok"]
    text = f"ours {', '.join(parts)}; fastest fp32 {made['rival'] or ''} {_number(made['rival_ms'], '.4f')} ms"
    return text + (f"; NOT OK: {', '.join(wrong)}" if wrong else "")


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def failures(found: results.Json) -> Iterator[str]:
    """Rows of ours that have no time, and why."""
    for name, entry in found["settings"].items():
        for row in entry["rows"]:
            if row["group"] == "ours" and row["status"] != "ok":
                yield f"{name}: {row['name']}: {row['status']}"


def of_source(found: results.Json, source: str) -> results.Json:
    """The results with the verdict on another of our kernels."""
    layouts = found["asked"]["layouts"]
    settings = {name: {**entry, "verdict": verdict(entry["rows"], source, layouts)}
                for name, entry in found["settings"].items()}  # fmt: skip
    return {**found, "settings": settings, "summary": summary(settings, source, layouts)}


def table(found: results.Json) -> Any:
    """The verdict and the summary as a table of rich."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    layouts, source = found["asked"]["layouts"], found["summary"]["source"]
    title = f"{found['gpu']}, {found['date']}, {found['commit'][:9]}: {host.SOURCES[source].file}, milliseconds"
    made = Table(title=title, caption=CAPTION, box=SIMPLE_HEAD, padding=(0, 1))
    made.add_column("setting", no_wrap=True)
    for name in (*layouts, f"main {layouts[0]}", "fastest fp32 rival", "ms", "openCNN", "x", "TFLOPS", "FFMA",
                 "main", "error"):  # fmt: skip
        made.add_column(name, justify="right", no_wrap=True)
    for name, entry in found["settings"].items():
        made.add_row(name, *_cells(entry, source, layouts))
    return made


CAPTION = """In brackets and x: speed-up over the fastest fp32 algorithm of cuDNN and PyTorch, and over our CUDA C++
kernel with openCNN's layout. TFLOPS by the operations of a direct convolution. FFMA: what the products need of the
peak at the clock, with the filters' transformation and for the main kernel alone; both of the first layout."""


def _cells(entry: results.Json, source: str, layouts: Sequence[str]) -> Iterator[str]:
    made, rows = entry["verdict"], {row["name"]: row for row in entry["rows"]}
    for one in made["ours"].values():
        yield f"{_number(one['ms'], '.4f')} ({_number(one['over_rival'], '.2f')})"
    first, main = (rows.get(Ours(source, layouts[0], part).name, {}) for part in ("all", "main"))
    yield _number(main.get("ms"), ".4f")
    yield str(made["rival"] or "-").replace("cuDNN ", "").replace("PyTorch", "torch")
    yield _number(made["rival_ms"], ".4f")
    yield _number(made["opencnn_ms"], ".4f")
    yield _number(made["ours"][layouts[0]]["over_opencnn"], ".2f")
    yield _number(first.get("tflops"), ".1f")
    yield _number(first.get("ffma"), ".1%")
    yield _number(main.get("ffma"), ".1%")
    yield str(first.get("error", "-"))


def show(found: results.Json) -> None:
    """Print the table, what refused, and the summary last."""
    console = results.console()
    for source in reversed(found["asked"]["sources"][1:]):
        other = of_source(found, source)
        console.print(table(other))
        for line in summary_lines(other):
            console.print(line, soft_wrap=True, markup=False)
    console.print(table(found))
    for line in refused(found):
        console.print(line, soft_wrap=True, markup=False)
    for line in failures(found):
        console.print("NOT OK " + line, soft_wrap=True, markup=False)
    for line in summary_lines(found):
        console.print(line, soft_wrap=True, markup=False)


def refused(found: results.Json) -> Iterator[str]:
    """Rivals that have no time anywhere or somewhere: how often, and the first reason."""
    reasons: dict[str, list[str]] = {}
    for entry in found["settings"].values():
        for row in entry["rows"]:
            if row["group"] != "ours" and row["status"] != "ok":
                reasons.setdefault(row["name"], []).append(row["status"])
    for name, why in reasons.items():
        yield f"{name}: no time in {len(why)} of {len(found['settings'])} settings: {why[0]}"


def summary_lines(found: results.Json) -> Iterator[str]:
    """The figures that matter, one line a layout."""
    for name, one in found["summary"].items():
        if isinstance(one, dict) and one:
            parts = [f"{what} {one[kind]['mean']:.2f}x in the mean, {one[kind]['least']:.2f}x at least"
                     for kind, what in (("over_rival", "fastest fp32 rival"), ("over_opencnn", "openCNN's layout"))
                     if kind in one]  # fmt: skip
            yield f"{name}: over " + "; over ".join(parts) + f" ({found['summary']['settings']} settings)"
    ours = f"ours {found['summary']['source']} "
    worst = max((row.get("error", 0.0) for entry in found["settings"].values() for row in entry["rows"]
                 if row["name"].startswith(ours) and not isinstance(row.get("error"), str)), default=0.0)  # fmt: skip
    yield f"largest relative L2 error of ours against float64: {worst:.1e}"
