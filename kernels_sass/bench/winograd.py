"""`turingas bench winograd`: ours beside cuDNN, PyTorch and the references, in the settings of Yan, Wang, Chu 2020."""

from __future__ import annotations

import dataclasses
import itertools
import math
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from kernels_sass import conv
from kernels_sass.bench import figures, options
from kernels_sass.bench.ours import dated, kept, kept_in, ours
from kernels_sass.bench.verdicts import FP32, OURS, TABLES, best, names, shorter, speedups, status, summary, verdict
from kernels_sass.conv.method import METHODS
from loader.bench import cudnn, measure, results
from loader.bench.bench import RUNS, SECONDS, Bench, Option
from loader.bench.contenders import OPENCNN, Reference, pytorch
from loader.bench.measure import Contender, Data, gpu_at_hand
from loader.cuda import Device
from loader.reference import algorithms
from loader.reference.problem import Problem
from loader.validate import LAYERS, layer

BATCHES = (32, 64, 96, 128)
LAYOUTS = ("CHWN", "NCHW", "NHWC")

#: The groups of --rivals. "cudnn" and "torch" are fp32, and what a speed-up is over; the others stand beside.
RIVALS = ("cudnn", "torch", "tf32", "fp16", "opencnn", "references")

#: Milliseconds that openCNN's own code (optSTS64) took on an H200 when this project began. They are cited, not
#: measured here: what is measured is our CUDA C++ kernel with its layouts (docs/references.md).
RECORDED = {
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
    rivals: tuple[str, ...] = RIVALS
    runs: int = measure.RUNS
    seconds: float = math.inf
    seed: int = 0

    def settings(self) -> dict[str, Problem]:
        """The problems, in an order that gives the most of the picture first."""
        pairs = itertools.product(self.batches, self.layers)
        return {f"{name}N{batch}": layer(name, batch) for batch, name in pairs}


WITHOUT = (
    "without one, `turingas bench winograd --show` prints the results that are kept, --figures draws them, and "
    "`turingas validate kernels_sass/conv/methods/winograd.sass --device cpu --shape 1,8,6,6,8` runs the "
    "kernel on the CPU device"
)


def run(asked: Asked, path: Path | None, tell: Callable[[str], None] = print) -> results.Json:
    """Measure what is not measured yet, and give the whole file. ``tell`` is given a line for each setting."""
    gpu = gpu_at_hand(WITHOUT)
    sources = asked.sources or (conv.choose(conv.arch_of(gpu)).name,)
    asked = dataclasses.replace(asked, sources=sources)
    facts = dated("bench winograd", gpu, sources)
    if path is None and asked == dataclasses.replace(Asked(), sources=sources, seconds=asked.seconds):
        path = kept_in("winograd", gpu.arch, sources[0])  # the whole table: not what a part of it replaces
    file = results.Results(path, facts, dataclasses.asdict(asked))
    file.facts["opencnn_recorded"] = RECORDED
    return file.fill(
        asked.settings(), asked.seconds, tell, lambda _, problem, step: setting(problem, gpu, asked, step),
        lambda settings: summary(settings, sources[0]), brief,
    )  # fmt: skip


def contenders(asked: Asked) -> list[Contender]:
    """All that take part, what a speed-up is over first."""
    made = ours(asked.sources, asked.layouts, asked.schedule)
    if "cudnn" in asked.rivals:
        made += cudnn.contenders()
    if "torch" in asked.rivals:
        made += pytorch(["fp32"])
    if "opencnn" in asked.rivals:
        made.append(Reference(OPENCNN))
    made += pytorch([name for name in ("tf32", "fp16") if name in asked.rivals])
    if "references" in asked.rivals:
        made += [Reference(name) for name in algorithms() if name != OPENCNN]
    return made


def setting(
    problem: Problem, gpu: Device, asked: Asked, step: Callable[[float], None] = lambda part: None
) -> results.Json:
    """The results for one problem."""
    start = time.monotonic()
    with Data(problem, gpu, asked.seed) as data:
        rows, states = measure.compare(data, contenders(asked), asked.runs, asked.seed, step)
        copies = data.copies
    for row in rows:
        if row["status"] == "ok" and row["part"] != "filter":
            row["tflops"] = round(problem.flops / row["ms"] / 1e9, 2)
            if row["group"] == "ours":
                row["ffma"] = measure.ffma_share(ffmas(problem), row["ms"], gpu, states)
    made = {"problem": dataclasses.asdict(problem), "flops": problem.flops, "ffmas": ffmas(problem), "copies": copies,
            "state": states, "seconds": round(time.monotonic() - start, 1), "rows": rows}  # fmt: skip
    made["verdict"] = verdict(rows, asked.sources[0])
    return made


def ffmas(p: Problem) -> int:
    """FFMA that F(2x2,3x3) needs for the products: 16 a channel, filter and tile of 2 x 2 outputs."""
    return 16 * p.c * p.k * p.n * math.ceil(p.p / 2) * math.ceil(p.q / 2)


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
    settings = {name: {**entry, "verdict": verdict(entry["rows"], source)}
                for name, entry in found["settings"].items()}  # fmt: skip
    return {**found, "settings": settings, "summary": summary(settings, source)}


def _table(title: str, caption: str, *columns: str) -> Any:
    made = results.table(title, *columns, caption=caption, min_width=len(title) + 2)
    for column in made.columns:
        column.no_wrap = True
    return made


def table(found: results.Json) -> Any:
    """The verdict as a table of rich."""
    source = found["summary"]["source"]
    ours = list(dict.fromkeys(name for entry in found["settings"].values() for name in entry["verdict"]["ours"]))
    title = f"{found['gpu']}, {found['date']}, {found['commit'][:9]}: {METHODS[source].file}, milliseconds"
    made = _table(title, "In brackets: speed-up over the fastest fp32 algorithm of cuDNN and PyTorch, TF32 being off.",
                  "setting", "fastest fp32 rival", "ms", *ours)  # fmt: skip
    for name, entry in found["settings"].items():
        mine, verdict = entry["verdict"]["ours"], entry["verdict"]
        cells = [f"{_number(mine[one]['ms'], '.4f')} ({_number(mine[one]['over_rival'], '.2f')})" for one in ours]
        made.add_row(name, shorter(verdict["rival"] or "-"), _number(verdict["rival_ms"], ".4f"), *cells)
    return made


DETAILS = """TFLOPS by the operations of a direct convolution. FFMA: what F(2x2,3x3) needs for its products, over the
peak of FFMA at the clock, with the filters' transformation and for the main kernel alone. openCNN: our CUDA C++ kernel
with its layout. TF32 and FP16 are PyTorch's, NHWC: less accurate, and no rivals."""


def details(found: results.Json) -> Any:
    """What else there is to say of the fastest of ours in each setting, as a table of rich."""
    source = found["summary"]["source"]
    made = _table("the fastest of ours in each setting", DETAILS, "setting", "which", "ms", "quartiles", "TFLOPS",
                  "FFMA", "main", "MB", "error", "openCNN", "x", "TF32", "FP16")  # fmt: skip
    for name, entry in found["settings"].items():
        rows, label = {row["name"]: row for row in entry["rows"]}, best(entry)
        mine = rows.get(f"ours {source} {label}", {})
        main, verdict = rows.get(f"ours {source} {label} main", {}), entry["verdict"]
        made.add_row(
            name, label or "-", _number(mine.get("ms"), ".4f"),
            f"{mine['low']:.4f} {mine['high']:.4f}" if "low" in mine else "-", _number(mine.get("tflops"), ".1f"),
            _number(mine.get("ffma"), ".1%"), _number(main.get("ffma"), ".1%"),
            _number(mine["workspace"] / 1e6 if "workspace" in mine else None, ".2f"), str(mine.get("error", "-")),
            _number(verdict["opencnn_ms"], ".4f"),
            _number(verdict["ours"][label]["over_opencnn"] if label else None, ".2f"),
            *(_number(rows.get(f"PyTorch {kind} NHWC", {}).get("ms"), ".4f") for kind in ("tf32", "fp16")),
        )  # fmt: skip
    return made


def over_all(found: results.Json) -> Any:
    """How many times as fast as each contender the fastest of ours is: Figures 12 and 13 in numbers."""
    columns = (setting.replace("N", "\nN") for setting in found["settings"])
    made = _table("the fastest of ours in each setting: how many times as fast as ...", "", "", *columns)
    for name in names(found, (*FP32, "opencnn", "references", "tf32", "fp16")):
        ratios = speedups(found, OURS, name)
        made.add_row(shorter(name), *(_number(ratios.get(setting), ".2f") for setting in found["settings"]))
    return made


def paper_table(found: results.Json, title: str) -> Any:
    """One of TABLES: a row for each other contender and number of images, a column for each layer."""
    whose, others = TABLES[title]
    pairs = [setting.rpartition("N")[::2] for setting in found["settings"]]
    layers, batches = (list(dict.fromkeys(column)) for column in zip(*pairs))
    ratios = {other: speedups(found, whose, other) for other in others}
    missing = [f"{shorter(other)}: {status(found, other)}" for other in others if not ratios[other]]
    made = _table(f"{title}: speed-up of {shorter(whose)}", "\n".join(missing), "over", "N", *layers)
    for other in others:
        for batch in batches if ratios[other] else ():
            cells = (_number(ratios[other].get(f"{layer}N{batch}"), ".2f") for layer in layers)
            made.add_row(shorter(other), batch, *cells)
    return made


def show(found: results.Json) -> None:
    """Print the tables, what refused, and the summary last."""
    console, found = results.console(), results.in_order(found)
    for source in reversed(found["asked"]["sources"][1:]):
        other = of_source(found, source)
        console.print(table(other))
        for line in summary_lines(other):
            console.print(line, soft_wrap=True, markup=False)
    for made in (over_all(found), *(paper_table(found, title) for title in TABLES), details(found), table(found)):
        console.print(made)
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
    """The figures that matter, one line for each of ours."""
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


BENCH = Bench(
    "winograd", "Winograd against cuDNN, PyTorch and openCNN's kernel.",
    """The 16 settings of Yan, Wang, Chu 2020: four 3x3 layers of ResNet, four batch sizes.

    Outputs are compared with float64 before anything is timed; all take turns in one process. Exit code 1: a kernel of
    ours has no time, because it is wrong or was refused.

    \b
      turingas bench winograd
      turingas bench winograd --layer Conv2 --batch 32 --rivals cudnn --rivals opencnn
      turingas bench winograd --show --figures build/figures
    """,
    (
        options.LAYER, options.BATCH, options.several(options.LAYOUT, "Layout of x and y. [default: all three]"),
        options.several(options.SOURCE, options.SOURCE.help), options.DEFINE,
        Option("--rivals", "rivals", f"{', '.join(RIVALS)}, all, none. [default: all]", (*RIVALS, "all", "none"), True,
               "NAME", every=RIVALS),
        RUNS, SECONDS,
    ),
    lambda given, path, tell: run(Asked(**given), path, tell), show, failures, figures.winograd,
    lambda given, path: kept("winograd", path, given.get("sources", [None])[0]), ("sources",),
)  # fmt: skip
