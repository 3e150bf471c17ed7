"""What `turingas bench assembler` prints and draws of its results."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

from loader.bench import figures as drawing
from loader.bench import results
from turingas import throughput

Row = dict[str, Any]


def brief(entry: results.Json) -> str:
    """An architecture in a line."""
    there = entry["within"]
    wrong = [row["name"] for row in entry["rows"] if row["status"] not in ("ok", "not installed")]
    text = f"encode {there['encode']['new lines']:,}/s, decode {there['decode']['new lines']:,}/s of new lines"
    return text + (f"; NOT OK: {', '.join(wrong)}" if wrong else "")


def failures(found: results.Json) -> Iterator[str]:
    """Programs of ours that have no time, and why."""
    for arch, entry in found["settings"].items():
        for row in entry["rows"]:
            if row["name"] == "ours" and row["status"] != "ok":
                yield f"{arch}: {row['task']} {row['work']}: {row['status']}"


def ordered(entry: results.Json) -> list[Row]:
    """The programs that have times, by what they do."""
    return sorted((row for row in entry["rows"] if row["status"] == "ok"), key=lambda row: (row["task"], row["work"]))


def show(found: results.Json) -> None:
    """Print the tables, what has no time, and what this project wants of itself."""
    console = results.console()
    made = results.table(f"instructions a second within a process; {stamp(found)}", "", "instructions", "distinct",
                         *(f"{what} {state}" for what in CODING for state in STATES))  # fmt: skip
    for arch, entry in found["settings"].items():
        there = entry["within"]
        made.add_row(arch, f"{there['instructions']:,}", f"{there['distinct']:,}",
                     *(f"{there[what][state]:,}" for what in CODING for state in STATES))  # fmt: skip
    console.print(made)
    made = results.table("code that does not repeat, in fresh processes: instructions a second, the best turn and the "
                         "median", "", "of", "cubins", *(head for _, head in ONCE), left=["of"])  # fmt: skip
    for arch, entry in found["settings"].items():
        once = entry.get("once", {})
        cells = [", ".join(f"{one[what]:,}" for what in ("rate", "median") if what in one)
                 for one in (once.get(task, {}) for task, _ in ONCE)]  # fmt: skip
        made.add_row(arch, once.get("code", "not measured"), str(once.get("files", "")), *cells)
    console.print(made)
    made = results.table("whole programs: seconds, and instructions a second with the start in it", "", "what", "of",
                         "instructions", "seconds", "quartiles", "the start", "instructions/s",
                         left=["what", "of"])  # fmt: skip
    for arch, entry in found["settings"].items():
        for row in ordered(entry):
            made.add_row(f"{arch} {row['name']}", row["task"], row["work"], f"{row['instructions']:,}",
                         f"{row['seconds']:.3f}", f"{row['low']:.3f} {row['high']:.3f}", f"{row['start']:.3f}",
                         f"{row['rate']:,}")  # fmt: skip
    console.print(made)
    for line in lines(found):
        console.print(line, soft_wrap=True, markup=False)


ONCE = (("decode", "distinct words decoded"), ("encode", "encoded"), ("again", "cubins apart and together"),
        ("lint", "linted"))  # fmt: skip
CODING, STATES = ("encode", "decode"), ("warm", "new lines", "cold")


def lines(found: results.Json) -> Iterator[str]:
    """Versions, what has no time, and the targets."""
    yield "; ".join(f"{name} {told}" for name, told in found["tools"].items() if told) or "no other tool is installed"
    missing = [name for name, told in found["tools"].items() if not told]
    if missing:
        yield f"not installed: {', '.join(missing)} (--tool {missing[0]}=PATH)"
    for arch, entry in found["settings"].items():
        for row in entry["rows"]:
            if row["status"] not in ("ok", "not installed"):
                yield f"{arch}: {row['name']}, {row['task']} {row['work']}: {row['status']}"
    for task, head in ONCE:
        there = [entry["once"][task] for entry in found["settings"].values() if task in entry.get("once", {})]
        if there:
            worst = min(there, key=lambda one: one["rate"])
            told = "reached" if worst["rate"] >= throughput.TARGETS[task] else "MISSED"
            turns = f", the best of {worst['turns']} turns (median {worst['median']:,})" if "turns" in worst else ""
            yield (f"code that does not repeat, {head}: {worst['rate']:,} a second{turns}; {told} "
                   f"({throughput.TARGETS[task]:,})")  # fmt: skip
    for what, value, target in reached(found):
        good = value >= target if what in CODING else value <= target
        unit = "instructions/s of new lines at least" if what in CODING else "s at most"
        yield f"{what}: {value:,} {unit}; {'reached' if good else 'MISSED'} ({target:,})"


def reached(found: results.Json) -> Iterator[tuple[str, float, float]]:
    """What is wanted, the worst that was measured, and how much is wanted."""
    entries = list(found["settings"].values())
    for what in CODING:
        yield what, min(entry["within"][what]["new lines"] for entry in entries), found["targets"][what]
    ours = [row["seconds"] for entry in entries for row in entry["rows"]
            if (row["name"], row["work"], row["status"]) == ("ours", "unrolled", "ok")]  # fmt: skip
    if ours:
        yield "assemble unrolled", max(ours), found["targets"]["assemble unrolled"]
    yield "import", found["summary"]["import"], found["targets"]["import"]


def stamp(found: results.Json) -> str:
    """Machine, date and code."""
    return ", ".join(part for part in (found["machine"], found["date"], found["commit"][:9]) if part)


def figures(found: results.Json) -> drawing.Figures:
    """Both figures."""
    there = {"programs": bars, "within": coding}
    return {f"assembler_{name}": functools.partial(one, found) for name, one in there.items()}


def bars(found: results.Json) -> Any:
    """Bars: seconds of each program, the start apart."""
    rows = [(f"{row['name']}, {row['task']} {row['work']}, {arch}", row) for arch, entry in found["settings"].items()
            for row in ordered(entry)]  # fmt: skip
    figure, axes = drawing.pyplot().subplots(figsize=(10, 1.6 + 0.3 * len(rows)), layout="constrained")
    starts = [min(row["start"], row["seconds"]) for _, row in rows]
    rest = [row["seconds"] - start for (_, row), start in zip(rows, starts)]
    axes.barh(range(len(rows)), starts, color="#bbbbbb", label="the start: the same, of a few instructions")
    for ours, colour in ((True, drawing.COLOURS[0]), (False, drawing.COLOURS[1])):
        mine = [place for place, (_, row) in enumerate(rows) if (row["name"] == "ours") == ours]
        axes.barh(mine, [rest[place] for place in mine], left=[starts[place] for place in mine], color=colour,
                  label="the rest, ours" if ours else "the rest, others")  # fmt: skip
    for place, (_, row) in enumerate(rows):
        axes.annotate(f"{row['instructions']:,} instructions, {row['rate']:,}/s", (row["seconds"], place), (5, 0),
                      textcoords="offset points", va="center", fontsize=7)  # fmt: skip
    axes.set_yticks(range(len(rows)), [name for name, _ in rows], fontsize=8)
    axes.invert_yaxis()
    axes.set_xlim(0, 1.45 * max((row["seconds"] for _, row in rows), default=1))
    axes.margins(y=0.01)
    axes.set_xlabel("seconds of the whole program, median")
    axes.set_title("Assembling and disassembling a kernel: whole programs", fontsize=11, loc="left")
    return _finished(figure, axes, found)


def coding(found: results.Json) -> Any:
    """Bars: instructions a second of encode and decode."""
    figure, axes = drawing.pyplot().subplots(figsize=(10, 4), layout="constrained")
    groups = [(arch, what) for arch in found["settings"] for what in CODING]
    for turn, state in enumerate(STATES):
        heights = [found["settings"][arch]["within"][what][state] for arch, what in groups]
        places = [place + 0.28 * (turn - 1) for place in range(len(groups))]
        axes.bar(places, heights, 0.28, label=LABELS[state], color=drawing.COLOURS[turn])
        for place, height in zip(places, heights):
            axes.annotate(f"{height / 1000:,.0f}k", (place, height), (0, 2), textcoords="offset points", ha="center",
                          fontsize=7)  # fmt: skip
    axes.set_xticks(range(len(groups)), [f"{what}, {arch}" for arch, what in groups])
    axes.set_ylabel("instructions a second")
    axes.ticklabel_format(axis="y", style="plain")
    axes.set_title("turingas.encode and turingas.decode on real code, within a process", fontsize=11, loc="left")
    return _finished(figure, axes, found)


LABELS = {"warm": "warm: all lines seen before", "new lines": "new lines, known operands", "cold": "cold: no code seen"}


def _finished(figure: Any, axes: Any, found: results.Json) -> Any:
    axes.grid(axis="both", alpha=0.3)
    axes.set_axisbelow(True)
    figure.legend(fontsize=8, loc="outside right upper")
    figure.supxlabel(stamp(found), fontsize=7, color="#555555", x=0.995, ha="right")
    return figure
