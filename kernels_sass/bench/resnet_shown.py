"""What `turingas bench resnet` prints and draws of its results."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

from kernels_sass.bench import network
from kernels_sass.bench.network import KINDS
from loader.bench import figures as drawing
from loader.bench import results
from loader.bench.measure import Row

FORMS = ("plain", "folded", "fused")
WHO = {"torch": "PyTorch", "tf32": "PyTorch TF32", "ours": "ours"}


def brief(entry: results.Json) -> str:
    """A batch size in a line."""
    made = entry["verdict"]
    texts = [f"{made[group]} {made[f'{group}_ms']:.3f} ms" if made[group] else f"{WHO[group]}: no time"
             for group in ("ours", "torch")]  # fmt: skip
    return "; ".join(texts) + (f"; {made['over_torch']:.2f}x" if made["over_torch"] else "")


def ordered(entry: results.Json) -> list[Row]:
    """The rows that have times: PyTorch's and ours side by side, by layout and form, TF32 last."""
    turns = {name: turn for turn, name in enumerate(WHO)}
    rows = [row for row in entry["rows"] if row["status"] == "ok"]
    return sorted(rows, key=lambda row: (row["group"] == "tf32", row["layout"], FORMS.index(row["form"]),
                                         turns[row["group"]]))  # fmt: skip


def show(found: results.Json) -> None:
    """Print a table for each batch size, what has no time, and the summary last."""
    console = results.console()
    for entry in found["settings"].values():
        made = results.table(f"{title(found, entry)}; {drawing.stamp(found)}", "milliseconds", *KINDS, "sum", "whole",
                             "pictures/s", "error")  # fmt: skip
        for row in ordered(entry):
            made.add_row(row["name"], *(f"{row['kinds'][kind]:.3f}" if kind in row["kinds"] else "-" for kind in KINDS),
                         f"{row['by_kind']:.3f}", f"{row['ms']:.3f}", f"{row['pictures_per_second']:,.0f}",
                         str(row["error"]))  # fmt: skip
        console.print(made)
    console.print(CAPTION, soft_wrap=True)
    for line in lines(found):
        console.print(line, soft_wrap=True, markup=False)


CAPTION = (
    "plain: as it was trained. folded: batch norm in the convolutions. fused: ReLU and addition too, by cuDNN's call. "
    "ours: batch norm and ReLU are in our 3x3 convolutions in each form. sum: one by one; whole: replayed as a graph."
)


def title(found: results.Json, entry: results.Json) -> str:
    """Of a batch size."""
    pictures = f"{entry['batch']} pictures" if entry["batch"] > 1 else "one picture"
    size, precision = found["asked"]["size"], "float32, TF32 off but where it is named"
    return f"ResNet-50 forward, {pictures} of {size}x{size}, {precision}"


def lines(found: results.Json) -> Iterator[str]:
    """What has no time, and the speed-ups."""
    if found.get("tuned"):
        yield f"ours has schedules that a sweep found on this card for {len(found['tuned'])} shapes"
    for name, entry in found["settings"].items():
        for row in entry["rows"]:
            if row["status"] != "ok":
                yield f"{name}: {row['name']} has no time: {row['status']}"
        for row in ordered(entry):
            if row["form"] == "plain":
                parts = (f"{kind} {share:.0f}% ({BREAKDOWN[kind][1]})" for kind, share in shares(row).items())
                yield f"{name}: {row['name']}: {', '.join(parts)}; in brackets a case study, A100, 32 pictures"
    for name, entry in found["settings"].items():
        made = entry["verdict"]
        if made["over_torch"] is not None:
            pairs = ", ".join(f"{pair} {times:.2f}x" for pair, times in made["pairs"].items() if times)
            yield f"{name}: {brief(entry)}. The convolution alone changed: {pairs}"


#: The breakdown of a forward pass in a case study, in percent: A100, 32 pictures, float32, by Nsight Systems. The
#: rest there is softmax, which is with fc, and memory operations, 4%.
BREAKDOWN = {
    "convolutions": (network.CONVOLUTIONS, 68), "batch norm": ((network.NORM,), 14),
    "ReLU and add": ((network.RELU, network.ADD), 8), "pooling": ((network.POOLING,), 4), "fc": ((network.FC,), 2),
}  # fmt: skip


def shares(row: Row) -> dict[str, float]:
    """The breakdown of a row in percent."""
    return {name: 100 * sum(row["kinds"].get(kind, 0.0) for kind in kinds) / row["by_kind"]
            for name, (kinds, _) in BREAKDOWN.items()}  # fmt: skip


COLOURS = {
    network.CONV3: "#c0392b", network.CONV1: "#2c5f8a", network.CONV3_2: "#e59866", network.CONV7: "#7fb3d5",
    network.NORM: "#f1c40f", network.RELU: "#52a35f", network.ADD: "#a9d5b0", network.POOLING: "#8e6bb0",
    network.FC: "#707b7c",
}  # fmt: skip


def figures(found: results.Json) -> drawing.Figures:
    """A figure for each batch size that has times."""
    there = {name: entry for name, entry in found["settings"].items() if ordered(entry)}
    return drawing.named("resnet", found, {name: functools.partial(bars, found, one) for name, one in there.items()})


def bars(found: results.Json, entry: results.Json) -> Any:
    """Stacked bars: one for each contender, a part for each kind."""
    rows = ordered(entry)
    figure, axes = drawing.pyplot().subplots(figsize=(11, 1.8 + 0.34 * len(rows)), layout="constrained")
    left = [0.0] * len(rows)
    for kind, colour in COLOURS.items():
        widths = [row["kinds"].get(kind, 0.0) for row in rows]
        if any(widths):
            axes.barh(range(len(rows)), widths, left=left, color=colour, label=kind, height=0.72)
            left = [start + width for start, width in zip(left, widths)]
    wholes = [row["ms"] for row in rows]
    axes.plot(wholes, range(len(rows)), "k|", markersize=16, markeredgewidth=2, label="whole pass")
    for place, (whole, end) in enumerate(zip(wholes, left)):
        axes.annotate(f"{whole:.2f}", (max(whole, end), place), (6, 0), textcoords="offset points", va="center",
                      fontsize=8)  # fmt: skip
    axes.set_yticks(range(len(rows)), [row["name"] for row in rows], fontsize=9)
    axes.invert_yaxis()
    axes.set_xlim(0, 1.08 * max(*wholes, *left))
    axes.set_xlabel("milliseconds. Parts: operations launched one by one. Mark and number: the whole pass as a graph. "
                    "ours: batch norm and ReLU are in the 3x3 convolutions", fontsize=8)  # fmt: skip
    axes.set_title(title(found, entry), fontsize=10, loc="left")
    figure.legend(fontsize=8, loc="outside right upper")
    figure.supxlabel(drawing.stamp(found), fontsize=7, color="#555555", x=0.995, ha="right")
    axes.grid(axis="x", alpha=0.4)
    axes.set_axisbelow(True)
    return figure
