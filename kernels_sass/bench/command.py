"""What the commands of `turingas bench` do with their options: measure, or show what is kept; the exit code."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from kernels_sass.bench import counters as counters_
from kernels_sass.bench import figures as figures_
from kernels_sass.bench import schedule as schedule_
from kernels_sass.bench import sweep as sweep_
from kernels_sass.bench import winograd as winograd_
from loader.bench import results
from loader.bench.figures import Figures, draw, pyplot
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


def _command(
    name: str,
    path: Path | None,
    figures: Path | None,
    show: bool,
    tell: Tell,
    measure: Callable[[], results.Json],
    shown: Callable[[results.Json], object],
    failures: Callable[[results.Json], Iterable[str]],
    drawn: Callable[[results.Json], Figures] | None = None,
    arch: str = "sm_90",
) -> int:
    """``measure``, or with ``show`` read what is kept; print it, draw it; 1 if there are failures. What is missing for
    that is told before anything is measured."""
    results.rich()
    if figures:
        pyplot()
    found = results.recorded(name, path, arch) if show else measure()
    shown(found)
    for made in draw(drawn(found), figures) if drawn and figures else ():
        tell(str(made))
    return 1 if any(failures(found)) else 0


def winograd(path: Path | None, figures: Path | None, show: bool, asked: Mapping[str, Any], tell: Tell) -> int:
    """`turingas bench winograd`: 1 if a kernel of ours has no time, because it is wrong or was refused."""
    return _command(
        "winograd", path, figures, show, tell,
        lambda: winograd_.run(winograd_.Asked(**_given(asked)), path, tell),
        winograd_.show, winograd_.failures, figures_.winograd,
    )  # fmt: skip


def schedule(path: Path | None, figures: Path | None, show: bool, asked: Mapping[str, Any], tell: Tell) -> int:
    """`turingas bench schedule`: 1 if a schedule has no time, or in a sweep if its result was wrong."""
    wanted = schedule_.Asked(**_given(asked))

    def what(found: results.Json) -> Any:
        return sweep_ if found["asked"].get("sweep") else schedule_

    return _command(
        "sweep" if wanted.sweep else "schedule", path, figures, show, tell,
        lambda: (sweep_ if wanted.sweep else schedule_).run(wanted, path, tell),
        lambda found: what(found).show(found), lambda found: what(found).failures(found), figures_.schedule,
    )  # fmt: skip


def counters(path: Path | None, show: bool, asked: Mapping[str, Any], tell: Tell) -> int:
    """`turingas bench counters`."""
    given = _given(asked)
    if given.pop("shapes", False):
        given = counters_.SHAPES | given
    return _command(
        "counters", path, None, show, tell,
        lambda: counters_.run(counters_.Asked(**given), path),
        counters_.show, lambda found: (),
    )  # fmt: skip


def shapes(path: Path | None, show: bool, asked: Mapping[str, Any], tell: Tell) -> int:
    """`turingas bench shapes`: 1 if a shape has no time, because its result was wrong or it was refused."""
    from kernels_sass.bench import shapes as shapes_

    return _command(
        "shapes", path, None, show, tell,
        lambda: shapes_.run(shapes_.Asked(**_given(asked)), path, tell),
        shapes_.show, shapes_.failures,
    )  # fmt: skip


def _micro(what: str, path: Path | None, figures: Path | None, show: bool, seconds: float | None, tell: Tell) -> int:
    """`turingas bench smem`, `ffma` and `hmma`: 1 if a kernel has no time, because its result was wrong."""
    from kernels_sass.micro import micro as micro_

    return _command(
        what, path, figures, show, tell,
        lambda: micro_.run(what, path, seconds or math.inf, tell),
        functools.partial(micro_.show, what), micro_.failures, functools.partial(micro_.figures, what),
    )  # fmt: skip


smem, ffma, hmma = (functools.partial(_micro, what) for what in ("smem", "ffma", "hmma"))


def roofline(
    path: Path | None, winograd: Path | None, figures: Path | None, show: bool, seconds: float | None, tell: Tell
) -> int:
    """`turingas bench roofline`: 1 if a ceiling was not measured, because a result was wrong."""
    from kernels_sass.bench import roofline as roofline_
    from kernels_sass.micro import micro as micro_

    def shown(found: results.Json) -> None:
        if show and winograd:
            found["summary"] = roofline_.placed(found, winograd)
        roofline_.show(found)

    return _command(
        "roofline", path, figures, show, tell,
        lambda: roofline_.run(path, winograd, seconds or math.inf, tell),
        shown, micro_.failures, roofline_.figures,
    )  # fmt: skip


def resnet(path: Path | None, figures: Path | None, show: bool, asked: Mapping[str, Any], tell: Tell) -> int:
    """`turingas bench resnet`: 1 if a network with our convolution has no time, because it is wrong or was refused."""
    from kernels_sass.bench import resnet as resnet_

    return _command(
        "resnet", path, figures, show, tell,
        lambda: resnet_.run(resnet_.Asked(**_given(asked)), path, tell),
        resnet_.show, resnet_.failures, resnet_.figures,
    )  # fmt: skip


def assembler(path: Path | None, figures: Path | None, show: bool, asked: Mapping[str, Any], tell: Tell) -> int:
    """`turingas bench assembler`: 1 if our own command line has no time."""
    from turingas import speed as assembler_

    return _command(
        "assembler", path, figures, show, tell,
        lambda: assembler_.run(assembler_.Asked(**_given(asked)), path, tell),
        assembler_.show, assembler_.failures, assembler_.figures, "cpu",
    )  # fmt: skip
