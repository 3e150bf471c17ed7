"""What all figures of `turingas bench` share: drawn from results alone, as SVG.

A bench gives its figures by name, each as a function that draws it, so that one of them can be had without the others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from loader.bench import results
from turingas.errors import LaunchError

Json = results.Json
Figures = Mapping[str, Callable[[], Any]]  # None: the results have nothing for it

COLOURS = ("#2f6db3", "#e08a1e", "#4c9f70", "#b5485d", "#7d6bb0", "#8a8a8a", "#c9b037", "#5bb6c9", "#333333")
MOST_BARS = len(COLOURS)


def pyplot() -> Any:
    """matplotlib's pyplot, drawing into files alone. LaunchError if it is not installed."""
    try:
        import matplotlib
    except ImportError as error:
        raise LaunchError(f"figures are drawn with matplotlib: {error}", results.INSTALL) from None
    matplotlib.use("Agg")
    matplotlib.rcParams |= {"svg.hashsalt": "turingas", "svg.fonttype": "none"}  # the same results give the same file
    from matplotlib import pyplot

    return pyplot


def named(stem: str, found: Json, figures: Figures) -> dict[str, Callable[[], Any]]:
    """With names such as STEM_sm90_NAME, for the architecture that was measured."""
    return {f"{stem}_{found['arch'].replace('_', '')}_{name}": figure for name, figure in figures.items()}


def draw(figures: Figures, folder: Path) -> list[Path]:
    """A file NAME.svg in the folder for each figure that is not None; the paths. LaunchError without matplotlib."""
    plot, made = pyplot(), []
    folder.mkdir(parents=True, exist_ok=True)
    for name, function in figures.items():
        figure = function()
        if figure is not None:
            made.append(folder / f"{name}.svg")
            figure.savefig(made[-1], metadata={"Date": None})
            plot.close(figure)
    return made


def stamp(found: Json) -> str:
    """What every figure says of its results: the card, the date, the code; settings may have others of their own."""

    def values(key: str, most: int | None = None) -> str:
        own = (entry.get(key, found[key]) for entry in found.get("settings", {}).values())
        return " and ".join(dict.fromkeys(one[:most] for one in (found[key], *own) if one))

    names = {"gpu": "", "driver": "driver ", "date": "", "cudnn": "cuDNN ", "torch": "PyTorch "}
    parts = [f"{name}{text}" for key, name in names.items() if (text := values(key))]
    return ", ".join([*parts, f"commit {values('commit', 9)}"])


def canvas(found: Json, title: str, width: float, height: float) -> tuple[Any, Any]:
    """A figure with a title and the stamp, and its axes."""
    figure, axes = pyplot().subplots(figsize=(width, height), layout="constrained")
    axes.set_title(title, fontsize=11, loc="left")
    figure.supxlabel(stamp(found), fontsize=7, color="#555555", x=0.995, ha="right")
    return figure, axes


def bars(axes: Any, settings: Sequence[str], rows: Mapping[str, Sequence[float | None]]) -> None:
    """Groups of bars, one for each setting; None has no bar."""
    width = 0.84 / max(len(rows), 1)
    for turn, (name, values) in enumerate(rows.items()):
        places = [place + (turn - (len(rows) - 1) / 2) * width for place in range(len(settings))]
        heights = [math.nan if value is None else value for value in values]
        axes.bar(places, heights, width, label=name, color=COLOURS[turn % MOST_BARS])
    axes.set_xticks(range(len(settings)), settings, rotation=45, ha="right")
    axes.margins(x=0.01)
    axes.grid(axis="y", alpha=0.4)
    axes.set_axisbelow(True)


def legend(figure: Any, **options: Any) -> None:
    """Beside the axes."""
    figure.legend(fontsize=8, loc="outside right upper", **options)


def heat(found: Json, title: str, rows: Mapping[str, Mapping[str, float]], label: str) -> Any:
    """A heat map: contenders down, settings across; red where the ratio is below 1."""
    settings = list(found["settings"])
    figure, axes = canvas(found, title, 3.6 + 0.62 * len(settings), 1.9 + 0.3 * len(rows))
    table = [[ratios.get(setting, math.nan) for setting in settings] for ratios in rows.values()]
    shades = [[math.log2(ratio) if ratio == ratio else math.nan for ratio in line] for line in table]
    axes.imshow(shades, cmap="RdBu", vmin=-2, vmax=2, aspect="auto")
    for y, line in enumerate(table):
        for x, ratio in enumerate(line):
            if ratio == ratio:
                text = f"{ratio:.2f}" if ratio < 10 else f"{ratio:.0f}"
                axes.text(x, y, text, ha="center", va="center", fontsize=7,
                          color="white" if abs(shades[y][x]) > 1.3 else "black")  # fmt: skip
    axes.set_xticks(range(len(settings)), settings, rotation=45, ha="right")
    axes.set_yticks(range(len(rows)), list(rows), fontsize=8)
    axes.set_xlabel(label, fontsize=9)
    return figure
