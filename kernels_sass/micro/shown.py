"""What was measured, as a table and as bars."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

from kernels_sass.micro.hmma import GROUP_MMA, SIZES
from kernels_sass.micro.loops import SCHEDULERS, Json
from loader.bench import figures as drawing
from loader.bench import results


def failures(found: Json) -> Iterator[str]:
    """Rows without a time, and why."""
    for name, row in found["settings"].items():
        if row["status"] != "ok":
            yield f"{name}: {row['status']}"


def heading(found: Json) -> str:
    """What, where and when."""
    return f"{found['gpu']}, {found['date']}" + (f", {found['commit'][:9]}" if found["commit"] else "")


def column(row: Json, name: str, digits: int) -> str:
    """A number, or nothing."""
    return f"{row[name]:.{digits}f}" if row.get(name) is not None else ""


def speed(found: Json, row: Json) -> Json:
    """What comes of a row: bytes or operations a cycle and SM, TFLOP/s of all SMs at the clock that was read. Of a
    product on one accumulator, waited for, the latency."""
    made: Json = {}
    if "cpi" not in row:
        return made
    waits = row.get("chains") == 1 and (row.get("op") not in GROUP_MMA or "WAIT" in row["defines"])
    if waits:
        return {"latency": row["cpi"]}
    if "bytes" in row:
        made["bytes_per_cycle"] = row["bytes"] / row["cpi"]
    if "flops" in row:
        made["flops_per_cycle"] = row["flops"] * SCHEDULERS / row["cpi"]
        mhz = row.get("state", {}).get("sm_mhz") or found["mhz"]["clock"]
        made["tflops"] = made["flops_per_cycle"] * found["sms"] * mhz / 1e6
    return made


#: name -> columns: heading, key, digits
COLUMNS: dict[str, list[tuple[str, str, int]]] = {
    "smem": [("cycles", "cycles", 0), ("spread", "spread", 1), ("CPI", "cpi", 2), ("bytes/cycle", "bytes_per_cycle", 1),
             ("wavefronts", "wavefronts", 0), ("2080 Ti, paper", "paper", 1)],
    "ffma": [("cycles", "cycles", 0), ("spread", "spread", 1), ("before", "before", 0), ("CPI", "cpi", 3)],
    "hmma": [("cycles", "cycles", 0), ("spread", "spread", 1), ("CPI", "cpi", 2),
             ("FLOP/cycle/SM", "flops_per_cycle", 0), ("TFLOP/s", "tflops", 0), ("latency", "latency", 0)],
}  # fmt: skip
TITLES = {
    "smem": "Shared memory: 64 LDS or STS a warp, 8 warps an SM",
    "ffma": "FFMA: 512 a warp by register banks, reuse flags, yields and neighbours",
    "hmma": "Tensor cores: 64 products a warp, and cycles to the next on the same accumulator",
}
NOTES = {
    "smem": "CPI: cycles of the SM for an instruction of a warp. bytes/cycle: what the lanes ask for, of an SM. "
            "wavefronts: passes that an access needs, as the CPU device counts them.",
    "ffma": "CPI: cycles of a scheduler for an FFMA. before: other kernels with these loops, on an H200, when the "
            "project began.",
    "hmma": "CPI: cycles of a scheduler for a product of a warp. latency: the fewest cycles to the next product on "
            "the same accumulator with right results; where a scoreboard tells when it is done, it is the CPI.",
}  # fmt: skip


def show(what: str, found: Json) -> None:
    """Print the table."""
    made = results.table(f"{TITLES[what]}: {heading(found)}", "", *(title for title, _, _ in COLUMNS[what]))
    for name, row in found["settings"].items():
        if row["status"] == "ok":
            row = {**row, **speed(found, row), "spread": row["high"] - row["low"] if "high" in row else None}
            made.add_row(name, *(column(row, key, digits) for _, key, digits in COLUMNS[what]))
    console = results.console()
    console.print(made)
    console.print(NOTES[what], markup=False)
    for line in failures(found):
        console.print(f"NOT OK {line}", markup=False, soft_wrap=True)


# ---- figures -----------------------------------------------------------------------------------------------------


#: what a figure has on its axis: key, label
AXES = {
    "smem": ("bytes_per_cycle", "bytes a cycle and SM (what the lanes ask for)"),
    "ffma": ("cpi", "cycles of a scheduler for an FFMA"),
    "hmma": ("flops_per_cycle", "operations a cycle and SM"),
}


#: what a figure leaves out
SMALLER = {op for op, one in GROUP_MMA.items() if one.n < max(SIZES)}


def figures(what: str, found: Json) -> drawing.Figures:
    """Bars of what was measured."""
    return drawing.named(what, found, {"bars": functools.partial(bars, what, found)})


def bars(what: str, found: Json) -> Any:
    """Bars of the rows that have a rate, of warp groups' products the largest; latencies of products beside them."""
    key, label = AXES[what]
    every = {name: {**row, **speed(found, row)} for name, row in found["settings"].items()}
    rows = {name: row for name, row in every.items() if key in row and row.get("op") not in SMALLER}
    latencies = {row["op"]: f"{row['latency']:.0f}" for row in every.values() if "latency" in row}
    figure, axes = drawing.pyplot().subplots(figsize=(9, 1.2 + 0.22 * len(rows)), layout="constrained")
    values = [row[key] for row in rows.values()]
    colours = [drawing.COLOURS[row["warps"] == 4] for row in rows.values()]
    drawn = axes.barh(range(len(rows)), values, color=colours, label="8 warps an SM")
    texts = [f"{value:.2f}" if key == "cpi" else f"{value:.0f}" for value in values]
    if latencies:
        texts = [f"{text}, latency {latencies.get(row['op'], '?')}" for text, row in zip(texts, rows.values())]
    axes.bar_label(drawn, texts, padding=3, fontsize=7)
    if any(row["warps"] == 4 for row in rows.values()):
        axes.barh([0], [0], color=drawing.COLOURS[1], label="4 warps an SM")
    figure.legend(fontsize=8, loc="outside lower left", ncols=2)
    axes.set_yticks(range(len(rows)), list(rows), fontsize=7)
    axes.invert_yaxis()
    axes.set_xlabel(label)
    figure.suptitle(TITLES[what], fontsize=11, x=0.01, ha="left")
    figure.supxlabel(drawing.stamp(found), fontsize=7, color="#555555", x=0.995, ha="right")
    axes.grid(axis="x", alpha=0.4)
    axes.set_axisbelow(True)
    axes.margins(x=0.2 if latencies else 0.1, y=0.01)
    return figure
