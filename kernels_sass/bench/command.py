"""What the commands of `turingas bench` do with their options: measure, or show what is kept; the exit code."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from kernels_sass.bench import counters as counters_
from kernels_sass.bench import results
from kernels_sass.bench import schedule as schedule_
from kernels_sass.bench import winograd as winograd_
from loader.validate import LAYERS

Tell = Callable[[str], None]


def _given(asked: Mapping[str, Any]) -> dict[str, Any]:
    """The options that were given, each once; "all" in the place of every layer or rival."""
    found = {name: value for name, value in asked.items() if value not in (None, (), {})}
    every = {"layers": tuple(LAYERS), "rivals": winograd_.RIVALS}
    for name, value in found.items():
        if isinstance(value, tuple):
            found[name] = every[name] if name in every and "all" in value else tuple(dict.fromkeys(value))
    if "none" in found.get("rivals", ()):
        found["rivals"] = ()
    return found


def winograd(path: Path | None, show: bool, asked: Mapping[str, Any], tell: Tell) -> int:
    """`turingas bench winograd`: 1 if a kernel of ours has no time, because it is wrong or was refused."""
    results.rich()
    found = results.recorded("winograd", path) if show else winograd_.run(winograd_.Asked(**_given(asked)), path, tell)
    winograd_.show(found)
    return 1 if any(winograd_.failures(found)) else 0


def schedule(path: Path | None, figures: Path | None, show: bool, asked: Mapping[str, Any], tell: Tell) -> int:
    """`turingas bench schedule`: 1 if a schedule has no time."""
    results.rich()
    found = results.recorded("schedule", path) if show else schedule_.run(schedule_.Asked(**_given(asked)), path, tell)
    schedule_.show(found)
    for made in schedule_.figures(found, figures) if figures else ():
        tell(str(made))
    return 1 if any(schedule_.failures(found)) else 0


def counters(path: Path | None, show: bool, asked: Mapping[str, Any], tell: Tell) -> int:
    """`turingas bench counters`."""
    results.rich()
    found = results.recorded("counters", path) if show else counters_.run(counters_.Asked(**_given(asked)), path, tell)
    counters_.show(found)
    return 0
