"""What the commands of `turingas bench` do with their options: measure, or show what is kept; the exit code."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from kernels_sass.bench import counters as counters_
from kernels_sass.bench import figures as figures_
from kernels_sass.bench import results
from kernels_sass.bench import schedule as schedule_
from kernels_sass.bench import sweep as sweep_
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


def winograd(path: Path | None, figures: Path | None, show: bool, asked: Mapping[str, Any], tell: Tell) -> int:
    """`turingas bench winograd`: 1 if a kernel of ours has no time, because it is wrong or was refused."""
    results.rich()
    if figures:
        figures_.pyplot()  # told before anything is measured
    found = results.recorded("winograd", path) if show else winograd_.run(winograd_.Asked(**_given(asked)), path, tell)
    winograd_.show(found)
    for made in figures_.winograd(found, figures) if figures else ():
        tell(str(made))
    return 1 if any(winograd_.failures(found)) else 0


def schedule(path: Path | None, figures: Path | None, show: bool, asked: Mapping[str, Any], tell: Tell) -> int:
    """`turingas bench schedule`: 1 if a schedule has no time, or in a sweep if its result was wrong."""
    results.rich()
    if figures:
        figures_.pyplot()
    wanted = schedule_.Asked(**_given(asked))
    if show:
        found = results.recorded("sweep" if wanted.sweep else "schedule", path)
    else:
        found = (sweep_ if wanted.sweep else schedule_).run(wanted, path, tell)
    what = sweep_ if found["asked"].get("sweep") else schedule_
    what.show(found)
    for made in figures_.schedule(found, figures) if figures else ():
        tell(str(made))
    return 1 if any(what.failures(found)) else 0


def counters(path: Path | None, show: bool, asked: Mapping[str, Any]) -> int:
    """`turingas bench counters`."""
    results.rich()
    found = results.recorded("counters", path) if show else counters_.run(counters_.Asked(**_given(asked)), path)
    counters_.show(found)
    return 0


def shapes(path: Path | None, show: bool, asked: Mapping[str, Any], tell: Tell) -> int:
    """`turingas bench shapes`: 1 if a shape has no time, because its result was wrong or it was refused."""
    from kernels_sass.bench import shapes as shapes_

    results.rich()
    found = results.recorded("shapes", path) if show else shapes_.run(shapes_.Asked(**_given(asked)), path, tell)
    shapes_.show(found)
    return 1 if any(shapes_.failures(found)) else 0


def micro(what: str, path: Path | None, figures: Path | None, show: bool, seconds: float | None, tell: Tell) -> int:
    """`turingas bench smem`, `ffma` and `hmma`: 1 if a kernel has no time, because its result was wrong."""
    from kernels_sass.bench import micro as micro_

    results.rich()
    found = results.recorded(what, path) if show else micro_.run(what, path, seconds or math.inf, tell)
    micro_.show(what, found)
    for made in micro_.figures(what, found, figures) if figures else ():
        tell(str(made))
    return 1 if any(micro_.failures(found)) else 0


def roofline(
    path: Path | None, winograd: Path | None, figures: Path | None, show: bool, seconds: float | None, tell: Tell
) -> int:
    """`turingas bench roofline`: 1 if a ceiling was not measured, because a result was wrong."""
    from kernels_sass.bench import micro as micro_
    from kernels_sass.bench import roofline as roofline_

    results.rich()
    found = results.recorded("roofline", path) if show else roofline_.run(path, winograd, seconds or math.inf, tell)
    if show and winograd:
        found["summary"] = roofline_.placed(found, winograd)
    roofline_.show(found)
    for made in roofline_.figures(found, figures) if figures else ():
        tell(str(made))
    return 1 if any(micro_.failures(found)) else 0


def resnet(path: Path | None, figures: Path | None, show: bool, asked: Mapping[str, Any], tell: Tell) -> int:
    """`turingas bench resnet`: 1 if a network with our convolution has no time, because it is wrong or was refused."""
    from kernels_sass.bench import resnet as resnet_

    results.rich()
    if figures:
        figures_.pyplot()
    found = results.recorded("resnet", path) if show else resnet_.run(resnet_.Asked(**_given(asked)), path, tell)
    resnet_.show(found)
    for made in resnet_.figures(found, figures) if figures else ():
        tell(str(made))
    return 1 if any(resnet_.failures(found)) else 0


def assembler(path: Path | None, figures: Path | None, show: bool, asked: Mapping[str, Any], tell: Tell) -> int:
    """`turingas bench assembler`: 1 if our own command line has no time."""
    from kernels_sass.bench import assembler as assembler_

    results.rich()
    if figures:
        figures_.pyplot()
    if show:
        found = results.recorded("assembler", path or results.default_path("assembler", "cpu"))
    else:
        found = assembler_.run(assembler_.Asked(**_given(asked)), path, tell)
    assembler_.show(found)
    for made in assembler_.figures(found, figures) if figures else ():
        tell(str(made))
    return 1 if any(assembler_.failures(found)) else 0
