"""What a launch asks of an SM, against what one gives: cycles of each resource, and the roofline.

The CPU device counts instructions, wavefronts and sectors, and knows no time: what is shown is the most that these
counts allow, not what was reached. Operations a cycle are those of latency.csv (rows "issue"); bytes a cycle are
measured: `turingas bench roofline` wrote them.
"""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from turingas.emulate.counters import Counters
from turingas.flow.graph import Graph
from turingas.info import PARTITIONS, WARP
from turingas.isa.arch import WORD_BYTES
from turingas.isa.banks import walk
from turingas.isa.instruction import Instruction
from turingas.isa.latency import latencies
from turingas.isa.table import OPS

SECTOR, WAVEFRONT = 32, 128  # bytes
INK, PAPER = "#010203", "#fefdfc"  # become the page's colours
NAMED = 3  # instructions of one peak that are named


@dataclass(frozen=True)
class Ceilings:
    """What a GPU's memories gave: ``a_cycle``, name -> bytes of an SM and cycle. ``source``: the command that shows
    it."""

    gpu: str
    a_cycle: Mapping[str, float]
    source: str

    @classmethod
    def of(cls, results: Mapping[str, Any]) -> Ceilings:
        """Those of a file of `turingas bench roofline`."""
        rows = results["settings"].items()
        bytes_ = {name: row["a_cycle"] for name, row in rows if row.get("unit") == "byte" and row["status"] == "ok"}
        return cls(results["gpu"], bytes_, "turingas bench roofline --show")


def flops(i: Instruction) -> int:
    """Floating-point operations of a warp with all lanes; a sparse product's as if it were dense."""
    op = OPS[i.base]
    if "matrix" not in op.traits:
        return WARP * op.flops
    shape = next((name for name in i.mods if name[0].isdecimal()), "")
    if shape == "884":  # 16 x 16 x 4 in four steps, or two of half precision
        return 2 * 16 * 16 * 4 // (2 if i.mods[1] == "F16" else 4)
    if "x" in shape:
        rows, columns, depth = map(int, shape.split("x"))
        return 2 * min(rows, 16) * columns * depth  # 16 of a warp group's 64 rows are a warp's
    rows, rest = (16, shape[2:]) if shape.startswith("16") else (8, shape[1:])
    return 2 * rows * 8 * int(rest[1:] or 0)


def bounds(graph: Graph, counters: Counters, ceilings: Ceilings | None) -> dict[str, Any]:
    """``flops``: all that were done; ``bytes``: moved, of each memory; ``cycles``: those that one SM would take of each
    of its resources, if it ran everything; ``most``: operations a cycle that the scarcest one allows; ``peaks``: what
    the instructions used could do at best; ``svg``: the roofline, "" without matplotlib or operations."""
    rules = latencies(graph.kernel.arch)
    done = 0
    cycles: Counter[str] = Counter()
    peaks: dict[str, float] = {}
    for i in graph.instructions:
        if i is None or not (warps := int(counters.warps[n := i.address // WORD_BYTES])):
            continue
        cycles["issue slots"] += warps
        cycles[rules.unit(i).replace("wgmma", "tensor")] += warps * rules.issue(i)
        if (own := flops(i)) and (lanes := int(counters.lanes[n])):
            matrix = "matrix" in OPS[i.base].traits
            done += own * warps if matrix else own * lanes // WARP
            name = i.name if matrix else i.base
            peaks[name] = max(peaks.get(name, 0), PARTITIONS * own / rules.issue(i))
    for i, _, lost in walk(graph.instructions, graph.kernel.facts):
        cycles["register bank conflicts"] += lost * int(counters.warps[i.address // WORD_BYTES])
    took = {name: count / PARTITIONS for name, count in cycles.items() if count}
    rates = dict(ceilings.a_cycle) if ceilings else {}
    moved = {"shared": WAVEFRONT * int(counters.wavefronts.sum()), "global": SECTOR * int(counters.sectors.sum())}
    if moved["shared"]:
        took["shared memory"] = moved["shared"] / WAVEFRONT  # one a cycle
    if moved["global"] and "L2 read" in rates:
        took["L2"] = moved["global"] / rates["L2 read"]
    most = done / max(took.values(), default=1)
    found: dict[str, Any] = {
        "flops": done, "bytes": moved, "cycles": dict(sorted(took.items(), key=lambda item: -item[1])), "most": most,
        "peaks": peaks, "ceilings": None, "svg": "",
    }  # fmt: skip
    if ceilings:
        found["ceilings"] = {"gpu": ceilings.gpu, "source": ceilings.source, "bytes": rates}
    if done:
        found["svg"] = _drawn(found, rates)
    return found


ROOFS = {"shared": "shared memory", "global": "L2 read"}  # bytes that are counted -> a measured rate of them


def _drawn(found: dict[str, Any], rates: Mapping[str, float]) -> str:
    """The roofline as SVG: operations for a byte against operations of an SM and cycle."""
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ImportError:
        return ""
    colours = {"shared memory": "#2f6fdb", "L2 read": "#1a7f4b", "DRAM read": "#b8650b", "DRAM copy": "#7a49c4"}
    rates = {"shared memory": float(WAVEFRONT), **rates}
    inked = dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), INK)
    style: Any = {"svg.fonttype": "none", "svg.hashsalt": "turingas", "font.family": "sans-serif", "font.size": 10}
    with rc_context(style | inked):
        figure = Figure((6.4, 4.0), layout="constrained")
        axes = figure.subplots()
        best = max(found["peaks"].values())
        points = {what: found["flops"] / size for what, size in found["bytes"].items() if size}
        low = min([0.1, *(x / 4 for x in points.values())])
        high = max([200.0, *(4 * x for x in points.values()), 4 * best / min(rates.values())])
        alike: dict[float, list[str]] = {}
        for name, peak in found["peaks"].items():
            alike.setdefault(peak, []).append(name)
        for peak, names in alike.items():
            axes.plot([low, high], [peak, peak], color=INK, lw=1.2, ls="-" if peak == best else ":")
            label = ", ".join(names[:NAMED]) + ", ..." * (len(names) > NAMED)
            axes.annotate(f"{label}: {peak:g}", (high, peak), (-4, 3), textcoords="offset points", ha="right")
        for name, rate in rates.items():
            if name not in colours:
                continue
            axes.plot([low, best / rate], [rate * low, best], color=colours[name], lw=1.2, label=f"{name}: {rate:g} B")
        for what, x in points.items():
            y, colour = found["most"], colours[ROOFS[what]]
            axes.plot([x], [y], "o", color=colour, ms=8)
            axes.annotate(f"{what} memory", (x, y), (8, -13), textcoords="offset points", color=colour, weight="bold",
                          bbox={"facecolor": PAPER, "edgecolor": "none", "pad": 1.5, "alpha": 0.8})  # fmt: skip
        axes.set(xscale="log", yscale="log", xlim=(low, high), xlabel="floating-point operations for a byte",
                 ylabel="operations of an SM and cycle")  # fmt: skip
        axes.grid(which="major", color="#888888", alpha=0.25)
        axes.legend(loc="lower right", framealpha=0, fontsize=9)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
        stream = io.StringIO()
        figure.savefig(stream, format="svg", transparent=True, metadata={"Date": None})
    text = stream.getvalue()
    text = re.sub(r"<style.*?</style>", "", text, count=1, flags=re.S)  # it would hold for all of the page
    return text[text.index("<svg") :].replace(INK, "currentColor").replace(PAPER, "var(--paper)")
