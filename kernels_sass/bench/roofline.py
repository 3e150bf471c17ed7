"""`turingas bench roofline`: what the card gives, what the steps of a Winograd convolution ask for, where kernels are.

Ceilings are measured with our own kernels, by CUDA events. Operations and bytes are counted (``work``). Times are those
of `turingas bench winograd`.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import loader
import turingas
from kernels_sass.bench.verdicts import shorter
from kernels_sass.bench.winograd import ffmas
from kernels_sass.bench.work import NonFused, fused, nonfused, steps, tiles
from kernels_sass.micro import ffma, hmma, loops, micro, shown, smem
from loader import timing
from loader.bench import figures as drawing
from loader.bench import measure, results
from loader.bench.bench import SECONDS, Bench, Given, Option
from loader.bench.contenders import OPENCNN
from loader.bench.measure import gpu_at_hand
from loader.cuda import Buffer, Device
from loader.reference.problem import Problem
from turingas.isa import arch as architectures

Json = results.Json

TIMED = 2048  # rounds of a launch
REPEATS = 64  # times that a buffer in the L2 is read in a launch
RUNS = 20
PIECE = 1 << 14  # bytes, of memory.sass
THREADS = 256
LAYOUTS = "CHWN", "NCHW"  # of ours, beside the rivals' NCHW
NONFUSED = "cuDNN WINOGRAD_NONFUSED NCHW"
HALVES = "HMMA.16816.F32", "HMMA.1688.F32", "HMMA.884.F32.F32"  # of halves, the newest that a card has
TENSOR, PARTS = "HMMA.1688.F32.TF32", 3  # products of TF32 that take the place of one of FP32

# ---- ceilings ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Loop:
    """A loop of micro, timed from outside: ``work`` operations or bytes of a warp in a round."""

    case: loops.Case
    work: int
    unit: str

    def measure(self, gpu: Device) -> Json:
        with loops.Run(self.case, self.case.cubin(gpu.arch), gpu) as run:
            run.launch(loops.CHECKED)
            if not self.case.right(run.arrays(), loops.CHECKED):
                return {"status": f"wrong after {loops.CHECKED} rounds"}
            total = self.work * self.case.threads // 32 * run.blocks * TIMED
            kernel = run.module.kernel()
            return rate(
                gpu, total, self.unit,
                lambda: kernel.launch(run.blocks, self.case.threads, *run.given, run.clocks, TIMED),
            )  # fmt: skip


@dataclass(frozen=True)
class Stream:
    """memory.sass: ``op`` "read" or "copy" of memory that is ``times`` the L2."""

    op: str
    times: float

    @property
    def cubin(self) -> Callable[[str], turingas.Cubin]:
        path = loops.FOLDER / "memory.sass"
        return lambda arch: turingas.assemble(path.read_text(), arch, {"OP": self.op}, filename=str(path))

    def measure(self, gpu: Device) -> Json:
        blocks = gpu.attribute("MULTIPROCESSOR_COUNT") * 6
        with contextlib.ExitStack() as stack:
            module = stack.enter_context(loader.load(self.cubin(gpu.arch), str(gpu)))
            kernel = module.kernel()
            source = np.random.default_rng(0).integers(0, 2**32, (5, PIECE // 4), np.uint32)
            target = np.zeros_like(source)
            kernel.launch(2, THREADS, *(sent := [Buffer.of(one, gpu) for one in (source, target)]), 5, 3)
            found = sent[1].numpy()
            for one in sent:
                one.free()
            if not self.right(source, found):
                return {"status": "wrong"}
            pieces = max(int(self.times * gpu.attribute("L2_CACHE_SIZE")) // PIECE, blocks + 1)
            rounds = REPEATS if self.times < 1 else pieces // blocks
            pieces = pieces if self.times < 1 else rounds * blocks
            big = [stack.enter_context(Buffer(pieces * PIECE, "u1", gpu)) for _ in range(2)]
            for one in big:
                one.fill(1)
            total = PIECE * blocks * rounds * (2 if self.op == "copy" else 1)
            return rate(gpu, total, "byte", lambda: kernel.launch(blocks, THREADS, *big, pieces, rounds))

    def right(self, source: np.ndarray[Any, Any], target: np.ndarray[Any, Any]) -> bool:
        """After two blocks have read three pieces each of five: 0, 2, 4 and 1, 3, 0."""
        if self.op == "copy":
            return bool((target == source).all())
        words = np.bitwise_xor.reduce(source.reshape(5, 4, THREADS, 4), axis=(1, 3))
        wanted = [np.bitwise_xor.reduce(words[list(turn)]) for turn in ((0, 2, 4), (1, 3, 0))]
        return bool((target.ravel()[: 2 * THREADS] == np.concatenate(wanted)).all())


def rate(gpu: Device, total: int, unit: str, launch: Callable[[], object]) -> Json:
    """A row: what a launch does of ``unit`` in a second (10^12), and in a cycle of an SM at the clock that was read."""
    taken = timing.measure(launch, runs=RUNS, flush=False, device=gpu)
    low, high = taken.quartiles
    state = measure.state(gpu)
    mhz = taken.after.sm if taken.after else gpu.attribute("CLOCK_RATE") // 1000
    row: Json = {"status": "ok", "unit": unit, "work": total, "ms": loops.rounded(taken.median)}
    row |= {"low": loops.rounded(low), "high": loops.rounded(high), "runs": RUNS, "mhz": mhz, "state": state}
    row["tera"] = loops.rounded(total / taken.median / 1e9)
    row["a_cycle"] = loops.rounded(total / taken.median / mhz / 1e3 / gpu.attribute("MULTIPROCESSOR_COUNT"))
    return row


def ceilings(arch: str) -> dict[str, Any]:
    """What is measured."""
    best = ffma.cases(arch)[next(iter(ffma.FFMA))]
    found: dict[str, Any] = {"FFMA": Loop(best, best.count * 64, "operation")}
    there = [op for op in (TENSOR, *HALVES) if architectures.arch(arch) in hmma.MMA[op].archs]
    for op in there[:2] if TENSOR in there else there[:1]:
        queued = hmma.queued(op, arch)
        case = hmma.product(op, arch, 256, 6) if queued else hmma.product(op, arch, 256, 12, REUSE="ab")
        found[op] = Loop(case, 64 * hmma.MMA[op].flops, "operation")
    shared = smem.cases(arch)["LDS.128"]
    found["shared memory"] = Loop(shared, shared.count * shared.more["bytes"], "byte")
    return found | {"L2 read": Stream("read", 0.25), "DRAM read": Stream("read", 16), "DRAM copy": Stream("copy", 16)}


# ---- the command -------------------------------------------------------------------------------------------------


def run(
    path: Path | None, winograd: Path | None, seconds: float = math.inf, tell: Callable[[str], None] = print
) -> Json:
    """Measure the ceilings that are not measured yet, set the kernels of a file of `bench winograd` beside them, and
    give the whole file."""
    gpu = gpu_at_hand(micro.without("roofline"))
    cases = ceilings(gpu.arch)
    sources = {case.case.source for case in cases.values() if isinstance(case, Loop)} | {loops.FOLDER / "memory.sass"}
    file = micro.opened("roofline", path, gpu, sources, {"rounds": TIMED, "runs": RUNS})
    found = file.fill(cases, seconds, tell, lambda _, case, step: case.measure(gpu))
    winograd = winograd or results.default_path("winograd", gpu.arch)
    if len(file.settings) < len(cases):
        return found
    if not winograd.is_file():
        tell(f"there is no {winograd}: no kernels are set beside the ceilings (--winograd FILE)")
        return found
    file.summary = placed(found, winograd)
    return file.write(complete=True)


def placed(found: Json, winograd: Path) -> Json:
    """What the ceilings and a file of `bench winograd` tell together."""
    times = results.recorded("winograd", winograd)
    made: Json = {"times": {key: times[key] for key in ("gpu", "date", "commit")}, "steps": steps()}
    if times["gpu"] != found["gpu"]:
        return made | {"refused": f"{winograd.name} is of {times['gpu']}"}
    return made | {"points": points(found, times), "breakeven": breakeven(found, times)}


def ceiling(found: Json, name: str) -> float:
    """Operations or bytes a second; NaN if it was not measured."""
    return 1e12 * float(found["settings"].get(name, {}).get("tera", math.nan))


def points(found: Json, times: Json) -> Json:
    """For each setting, what our main kernels, openCNN's layout and cuDNN's non-fused kernels reach: TFLOP/s of the
    operations counted, operations for a byte asked for and for a byte that DRAM has to give, and the part of what the
    lowest roof over them allows."""
    made: Json = {}
    for setting, entry in times["settings"].items():
        p = Problem(**entry["problem"])
        made[setting] = {}
        for row in entry["rows"]:
            mine = row["group"] == "ours" and row["part"] == "main" and row["layout"] == "CHWN"
            if row["status"] != "ok" or not (mine or row["name"] in (NONFUSED, f"reference {OPENCNN}")):
                continue
            work = nonfused(p) if row["name"] == NONFUSED else fused(p)
            reached = work.operations / row["ms"] * 1e3
            flops = ceiling(found, TENSOR) / PARTS if "tf32" in row["name"] else ceiling(found, "FFMA")
            roofs = (flops, work.operations / work.least * ceiling(found, "DRAM copy"))
            point = {"operations": work.operations, "least": work.least, "ms": row["ms"],
                     "tflops": round(reached / 1e12, 2), "least_intensity": round(work.operations / work.least, 2),
                     "of_roof": round(reached / min(roofs), 3)}  # fmt: skip
            if mine:  # of the others' loads nothing is known
                point |= {"asked": work.asked, "asked_intensity": round(work.operations / work.asked, 2)}
            made[setting][row["name"]] = point
    return made


# ---- section 8.1 of Yan, Wang, Chu 2020 ----------------------------------------------------------------------------


def even(flops: float, bandwidth: float) -> float:
    """The number of filters K at which fused F(2x2,3x3) and non-fused F(4x4,3x3) take as long, by the paper:
    2NCHWK9 / (2.25 F) = 2NCHWK9 / (4 F) + NCHW (1 + 2.25) 2 * 4 bytes / B."""
    return 26 * flops / bandwidth / (18 * (1 / 2.25 - 1 / 4))


def ratio(k: float, flops: float, bandwidth: float) -> float:
    """Time of non-fused over that of fused, by the same formula."""
    return 2.25 * (1 / 4 + 26 * flops / (18 * bandwidth * k))


def by_roofs(p: Problem, flops: float, bandwidth: float) -> float:
    """The same with whole tiles and every kernel at the lower of its two roofs: filters' transform and main kernel;
    filters' transform, inputs' transform, products, outputs' transform."""
    x, y, w = 4 * p.n * p.c * p.h * p.w, 4 * p.n * p.k * p.p * p.q, 4 * 9 * p.c * p.k
    there, u = NonFused.of(p), 4 * 16 * p.c * p.k
    products = max(2 * 36 * tiles(p, 4) * p.c * p.k / flops, (there.u + there.v + there.m) / bandwidth)
    apart = products + (w + there.u + x + there.v + there.m + y) / bandwidth
    return apart / (max(2 * ffmas(p) / flops, (x + u + y) / bandwidth) + (w + u) / bandwidth)


def crossing(measured: Sequence[tuple[int, float]]) -> float | None:
    """K where the ratio falls to 1, on a straight line of logarithms between two measured ones; None where it does
    not."""
    for (k, above), (next_k, below) in zip(measured, measured[1:]):
        if above >= 1 > below:
            part = math.log(above) / math.log(above / below)
            return float(k * (next_k / k) ** part)
    return None


def breakeven(found: Json, times: Json) -> Json:
    """Computed from the ceilings, and measured: cuDNN's non-fused over the fastest of our kernels that use FFMA."""
    flops = ceiling(found, "FFMA")
    made: Json = {"computed": {name: round(even(flops, ceiling(found, name))) for name in ("DRAM copy", "L2 read")}}
    made["settings"], by_batch = {}, dict[str, dict[int, list[tuple[int, float]]]]()
    for setting, entry in times["settings"].items():
        p = Problem(**entry["problem"])
        ok = [row for row in entry["rows"] if row["status"] == "ok"]
        rival = next((row["ms"] for row in ok if row["name"] == NONFUSED), None)
        row: Json = {"n": p.n, "k": p.k, "paper": round(ratio(p.k, flops, ceiling(found, "DRAM copy")), 3),
                     "by_roofs": round(by_roofs(p, flops, ceiling(found, "DRAM copy")), 3), "measured": {}}  # fmt: skip
        for layout in LAYOUTS:
            mine = [one["ms"] for one in ok if (one["group"], one["part"], one["layout"]) == ("ours", "all", layout)
                    and "tf32" not in one["name"]]  # fmt: skip
            if mine and rival:
                row["measured"][layout] = round(rival / min(mine), 3)
                by_batch.setdefault(layout, {}).setdefault(p.n, []).append((p.k, rival / min(mine)))
        made["settings"][setting] = row
    made["measured"] = {
        layout: {str(n): (at := crossing(sorted(line))) and round(at) for n, line in sorted(batches.items())}
        for layout, batches in by_batch.items()
    }
    return made


# ---- what is printed ---------------------------------------------------------------------------------------------


def show(found: Json) -> None:
    """Print the ceilings, the steps, the kernels and the break-even."""
    console, summary = results.console(), found["summary"]
    made = results.table(f"Ceilings: {drawing.stamp(found)}", "", "10^12 a second", "of", "ms", "spread",
                         "a cycle and SM", "MHz")  # fmt: skip
    for name, row in found["settings"].items():
        if row["status"] == "ok":
            spread = f"{100 * (row['high'] - row['low']) / row['ms']:.1f}%"
            made.add_row(name, f"{row['tera']:.2f}", f"{row['unit']}s", f"{row['ms']:.3f}", spread,
                         f"{row['a_cycle']:.1f}", str(row["mhz"]))  # fmt: skip
    console.print(made)
    if summary:
        made = results.table("Steps of F(2x2,3x3)", "", "operations a byte", "from", "at most TFLOP/s")
        for name, row in summary["steps"].items():
            made.add_row(name, f"{row['intensity']:.2f}", row["from"], f"{roof(found, row) / 1e12:.1f}")
        console.print(made)
    if summary.get("points"):
        title = "Kernels: operations counted, over the time of `bench winograd`"
        heads = "", "ms", "TFLOP/s", "operations a byte asked for", "... that DRAM has to give", "of the roof"
        made = results.table(title, "setting", *heads, left=[""])
        for setting, rows in summary["points"].items():
            for name, row in rows.items():
                made.add_row(setting, shorter(name), f"{row['ms']:.4f}", f"{row['tflops']:.1f}",
                             shown.column(row, "asked_intensity", 1), f"{row['least_intensity']:.1f}",
                             f"{100 * row['of_roof']:.0f}%")  # fmt: skip
        console.print(made)
        seen = (f"measured, ours {layout}" for layout in LAYOUTS)
        made = results.table("Non-fused F(4x4,3x3) over fused F(2x2,3x3), times", "setting", "K", "paper's formula",
                             "every kernel at its roof", *seen)  # fmt: skip
        for setting, row in summary["breakeven"]["settings"].items():
            seen = (shown.column(row["measured"], layout, 2) for layout in LAYOUTS)
            made.add_row(setting, str(row["k"]), f"{row['paper']:.2f}", f"{row['by_roofs']:.2f}", *seen)
        console.print(made)
    for line in lines(found):
        console.print(line, markup=False, soft_wrap=True)


def roof(found: Json, step: Json) -> float:
    """What a step reaches at most, operations a second: FFMA's ceiling, or that of the memory that it reads. Global
    memory is the DRAM for the transforms, whose arrays are large, and the L2 for the products."""
    shared = step["from"] == "shared memory"
    memory = "shared memory" if shared else "DRAM copy" if step["intensity"] < 1 else "L2 read"
    return min(ceiling(found, "FFMA"), float(step["intensity"]) * ceiling(found, memory))


def lines(found: Json) -> Iterator[str]:
    """The break-even, and what went wrong."""
    summary = found["summary"]
    if summary.get("breakeven"):
        computed, measured = summary["breakeven"]["computed"], summary["breakeven"]["measured"]
        yield (f"break-even by the formula of section 8.1: K = {computed['DRAM copy']} with the DRAM's bandwidth, "
               f"{computed['L2 read']} with the L2's; fused is faster below")  # fmt: skip
        most = max(row["k"] for row in summary["breakeven"]["settings"].values())
        for layout, batches in measured.items():
            texts = (f"{n} images: K = {at}" if at else f"{n} images: none up to {most}" for n, at in batches.items())
            yield f"measured, ours in {layout}: {', '.join(texts)}"
        times = summary["times"]
        yield f"times of kernels: {times['gpu']}, {times['date']}, commit {times['commit'][:9]}"
    if "refused" in summary:
        yield f"no kernels stand beside the ceilings: {summary['refused']}"
    for line in shown.failures(found):
        yield f"NOT OK {line}"


# ---- figures -----------------------------------------------------------------------------------------------------


def figures(found: Json) -> drawing.Figures:
    """Figure 2, Figure 16 and the break-even."""
    there = {"steps": step_figure} if found["summary"] else {}
    if found["summary"].get("points"):
        there |= {"kernels": kernel_figure, "breakeven": breakeven_figure}
    return drawing.named("roofline", found, {name: functools.partial(one, found) for name, one in there.items()})


def stamp(found: Json) -> str:
    """What each figure says of its results: of the ceilings, and of the kernels' times."""
    times = found["summary"]["times"]
    return f"{drawing.stamp(found)}; kernels: {times['date']}, commit {times['commit'][:9]}"


def roofs(found: Json, title: str, memories: Sequence[str], low: float, high: float) -> tuple[Any, Any]:
    """Axes with the ceilings over ``low`` to ``high`` operations a byte."""
    figure, axes = drawing.pyplot().subplots(figsize=(9.5, 5.4), layout="constrained")
    axes.set_title(title, fontsize=11, loc="left")
    figure.supxlabel(stamp(found), fontsize=7, color="#555555", x=0.995, ha="right")
    flops = ceiling(found, "FFMA")
    axes.plot([low, high], [flops / 1e12] * 2, color="black", linewidth=1.5)
    axes.text(low, flops / 1e12 * 1.04, f"FFMA {flops / 1e12:.1f} TFLOP/s", fontsize=8)  # where no kernel is
    for memory, style in zip(memories, ("-", "--", ":")):
        ridge = flops / ceiling(found, memory)
        slope = [low * ceiling(found, memory) / 1e12, flops / 1e12]
        axes.plot([low, ridge], slope, style, color="black", linewidth=1.2,
                  label=f"{memory}, {ceiling(found, memory) / 1e12:.2f} TB/s: ridge at {ridge:.1f}")  # fmt: skip
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_ylabel("TFLOP/s")
    axes.grid(alpha=0.3)
    return figure, axes


def step_figure(found: Json) -> Any:
    """Figure 2 of Yan, Wang, Chu 2020: each step at what the roof over it allows."""
    title = "Figure 2, here: steps of the Winograd convolution F(2x2,3x3) under the measured ceilings"
    figure, axes = roofs(found, title, ("DRAM copy", "L2 read", "shared memory"), 0.125, 64)
    for turn, (name, row) in enumerate(found["summary"]["steps"].items()):
        axes.plot(row["intensity"], roof(found, row) / 1e12, "o", color=drawing.COLOURS[turn], markersize=8,
                  label=f"{name}: {row['intensity']:.2f}")  # fmt: skip
    axes.set_xlabel("operations for a byte that the step reads or writes")
    axes.legend(fontsize=8, loc="lower right")
    return figure


def kernel_figure(found: Json) -> Any:
    """Figure 16 of openCNN's papers: the kernels as they were measured, a marker for each setting."""
    title = "Figure 16, here: Winograd kernels as measured, by the bytes that DRAM at least has to give or take"
    everyone = found["summary"]["points"]
    names = list(dict.fromkeys(name for rows in everyone.values() for name in rows))
    figure, axes = roofs(found, title, ("DRAM copy", "L2 read"), 4, 512)
    highest = max(ceiling(found, "FFMA") / 1e12, *(row["tflops"] for row in rows_of(everyone)))
    if any("tf32" in name for name in names):
        parts = ceiling(found, TENSOR) / PARTS / 1e12
        highest = max(highest, parts)
        axes.axhline(parts, color="black", linestyle="-.", linewidth=1, label=f"TF32 / {PARTS}: {parts:.1f} TFLOP/s")
    for turn, name in enumerate(names):
        rows = {setting: rows[name] for setting, rows in everyone.items() if name in rows}
        at, high = ([row[key] for row in rows.values()] for key in ("least_intensity", "tflops"))
        axes.plot(at, high, "os^Dv"[turn % 5], color=drawing.COLOURS[turn], markersize=6, label=shorter(name))
        if name != f"reference {OPENCNN}":
            for setting, row in rows.items():
                if setting.endswith("N128"):
                    axes.annotate(setting, (row["least_intensity"], row["tflops"]), fontsize=6, xytext=(4, 4),
                                  textcoords="offset points")  # fmt: skip
        if turn == 0 and name.startswith("ours"):
            axes.plot([row["asked_intensity"] for row in rows.values()], high, "o", color=drawing.COLOURS[turn],
                      markersize=6, markerfacecolor="none", label="... by the bytes that it asks for")  # fmt: skip
    axes.set_xlabel("operations for a byte")
    axes.set_ylim(4, 1.3 * highest)
    axes.legend(fontsize=8, loc="lower right")
    return figure


def rows_of(everyone: Json) -> Iterator[Json]:
    """All points."""
    return (row for rows in everyone.values() for row in rows.values())


def breakeven_figure(found: Json) -> Any:
    """Section 8.1 of Yan, Wang, Chu 2020: the formula, and what was measured."""
    figure, axes = drawing.pyplot().subplots(figsize=(9.5, 4.8), layout="constrained")
    axes.set_title("Section 8.1, here: time of non-fused F(4x4,3x3), cuDNN, over that of fused F(2x2,3x3), ours",
                   fontsize=11, loc="left")  # fmt: skip
    figure.supxlabel(stamp(found), fontsize=7, color="#555555", x=0.995, ha="right")
    told, flops = found["summary"]["breakeven"], ceiling(found, "FFMA")
    filters = np.geomspace(48, 640, 60)
    for memory, style in (("DRAM copy", "-"), ("L2 read", "--")):
        curve = [ratio(k, flops, ceiling(found, memory)) for k in filters]
        axes.plot(filters, curve, style, color="black", linewidth=1.2,
                  label=f"paper's formula, {memory}: even at K = {told['computed'][memory]}")  # fmt: skip
    rows = list(told["settings"].values())
    for turn, layout in enumerate(LAYOUTS):
        for n, marker in zip(sorted({row["n"] for row in rows}), "osD^v"):
            line = sorted((row["k"], row["measured"][layout])
                          for row in rows if row["n"] == n and layout in row["measured"])  # fmt: skip
            if line:
                axes.plot(*zip(*line), marker + "-", color=drawing.COLOURS[turn], linewidth=0.8, markersize=5,
                          label=f"measured, ours in {layout}, {n} images")  # fmt: skip
    largest = max(row["n"] for row in rows)
    line = sorted((row["k"], row["by_roofs"]) for row in rows if row["n"] == largest)
    axes.plot(*zip(*line), "x", color="black", label=f"every kernel at its roof, {largest} images, DRAM copy")
    axes.axhline(1, color="black", linewidth=1)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_xlabel("filters K (= channels; Conv2 to Conv5 of ResNet)")
    axes.set_ylabel("times as fast; above 1 fused wins")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=7, loc="upper right")
    return figure


def _load(given: Given, path: Path | None) -> Json:
    """What is kept, beside other times if they are named."""
    found = results.recorded("roofline", path)
    return {**found, "summary": placed(found, given["winograd"])} if "winograd" in given else found


BENCH = Bench(
    "roofline", "Operations and bytes against the ceilings of the card.",
    """Figure 2 of Yan, Wang, Chu 2020, Figure 16 of openCNN's papers, and the break-even of section 8.1 of the former.

    Ceilings are measured: FFMA, tensor cores, shared memory, L2, DRAM. The kernels' times are of `bench winograd`. Exit
    code 1: a ceiling was not measured, because a result was wrong.
    """,
    (
        Option("--winograd", "winograd", "Results of `bench winograd`, for the points. [default: those that are kept]",
               Path, metavar="FILE"),
        SECONDS,
    ),
    lambda given, path, tell: run(path, given.get("winograd"), given.get("seconds", math.inf), tell),
    show, shown.failures, figures, _load, ("winograd",),
)  # fmt: skip
