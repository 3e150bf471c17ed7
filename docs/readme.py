"""Writes the README's table of times from docs/results: ``make readme``. Nothing there is typed by hand."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
RESULTS = "docs/results/winograd_sm90.json"
BATCHES = (32, 128)  # the smallest and the largest; the means are over all
GOAL = 1.5, 1.1  # of issue 5: in the mean, at least

BLOCK = re.compile(r"(<!-- times: written by `make readme` from (\S+) -->\n).*?(<!-- end of times -->\n)", re.S)


def lines(found: dict[str, Any]) -> Iterator[str]:
    """The tables, and what they come to, of the results of `turingas bench winograd`."""
    layouts = found["asked"]["layouts"]
    yield f"{found['gpu']}, driver {found['driver']}, cuDNN {found['cudnn']}, PyTorch {found['torch'].split('+')[0]}, "
    yield f"float32, {found['date']}, commit {found['commit'][:7]}; milliseconds:"
    yield ""
    yield from cells("", *(f"ours, {layout}" for layout in layouts), "fastest fp32 of cuDNN and PyTorch",
                     "openCNN's kernel, written anew", "openCNN's own, another day", "TF32", "FP16")  # fmt: skip
    yield "|---" * (len(layouts) + 6) + "|"
    for name, entry in found["settings"].items():
        if entry["problem"]["n"] in BATCHES:
            yield from cells(name.replace("N", ", N = "), *times(name, entry, layouts, found["opencnn_recorded"]["ms"]))
    yield ""
    yield from cells(f"mean of {len(found['settings'])} settings (least)", *layouts)
    yield "|---" * (len(layouts) + 1) + "|"
    for over, kind in (("the fastest fp32 of cuDNN and PyTorch", "over_rival"),
                       ("openCNN's kernel, written anew", "over_opencnn")):  # fmt: skip
        ratios = [found["summary"][layout][kind] for layout in layouts]
        yield from cells(f"over {over}", *(f"{one['mean']:.2f}x ({one['least']:.2f}x)" for one in ratios))
    yield ""
    yield verdict(found, layouts)


def cells(*texts: str) -> Iterator[str]:
    """A row."""
    yield "| " + " | ".join(texts) + " |"


def times(name: str, entry: dict[str, Any], layouts: list[str], recorded: dict[str, float]) -> Iterator[str]:
    """The cells of a setting."""
    made = entry["verdict"]
    for layout in layouts:
        yield ms(made["ours"][layout]["ms"])
    yield f"{ms(made['rival_ms'])} {str(made['rival']).removeprefix('cuDNN ')}"
    yield ms(made["opencnn_ms"])
    yield ms(recorded.get(name))
    for group in ("tf32", "fp16"):
        found = [one["ms"] for one in entry["rows"] if one["group"] == group and one["status"] == "ok"]
        yield ms(min(found, default=None))


def ms(time: float | None) -> str:
    """Milliseconds, or that there are none."""
    return "-" if time is None else f"{time:.3f}"


def verdict(found: dict[str, Any], layouts: list[str]) -> str:
    """Whether the goal is reached, in each layout."""
    over = {layout: found["summary"][layout]["over_rival"] for layout in layouts}
    kept = [layout for layout, one in over.items() if one["mean"] >= GOAL[0] and one["least"] >= GOAL[1]]
    goal = f"The goal, {GOAL[0]}x over the fastest in the mean and {GOAL[1]}x at least, is "
    if kept == layouts:
        return goal + "reached."
    return goal + (f"reached in {', '.join(kept)} alone." if kept else "not reached.")


def table(path: str = RESULTS) -> str:
    """The whole block as it should be."""
    return "\n".join(line.rstrip() for line in lines(json.loads((ROOT / path).read_text()))) + "\n"


def written(text: str) -> str:
    """The README with its block as it should be."""
    found = BLOCK.search(text)
    assert found, "README.md has no block of times"
    return text[: found.start()] + found[1] + table(found[2]) + found[3] + text[found.end() :]


if __name__ == "__main__":
    README.write_text(written(README.read_text()))
