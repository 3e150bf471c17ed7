"""What `turingas validate` was asked for, compared."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from loader.nvrtc import NvrtcError
from loader.reference.problem import Problem
from loader.validate.call import Call, line
from loader.validate.convolutions import LAYERS, by_call, by_host, convolution, layer
from loader.validate.kernels import arrays
from loader.validate.python_file import blamed, names_in
from loader.validate.verdict import Result
from turingas.cubin.cubin import Cubin
from turingas.errors import LaunchError


def problems(
    layers: Sequence[str], shape: Sequence[int] | None, batches: Sequence[int], filters: Sequence[int], stride: int,
    padding: int | None,
) -> list[Problem]:  # fmt: skip
    """The problems that --layer ("all": every one), --batch, --shape N,C,H,W,K and the rest ask for."""
    try:
        found = [layer(name, n) for one in layers for name in (LAYERS if one == "all" else [one]) for n in batches]
        if shape is not None:
            n, c, h, w, k = shape
            r, s = filters if len(filters) == 2 else (filters[0], filters[0])
            found.append(Problem(n, c, h, w, k, r, s, stride, (r - 1) // 2 if padding is None else padding))
    except LaunchError:
        raise
    except ValueError as error:
        raise LaunchError(str(error)) from None
    return found


def function(text: str) -> Callable[..., Any]:
    """The float64 function that ``FILE.py:NAME`` names. LaunchError if there is none."""
    path, colon, name = text.rpartition(":")
    if not colon or not Path(path).is_file():
        raise LaunchError(f"--truth {text}: write a Python file that exists and its function, such as check.py:exact")
    found = names_in(path).get(name)
    if not callable(found):
        raise LaunchError(f"--truth {text}: {path} has no function {name}")

    def exact(*args: Any) -> Any:
        with blamed(path):
            return found(*args)

    return exact


def command(
    cubin: Cubin,
    file: str,
    source: str,
    words: Sequence[str],
    asked: Sequence[Problem],
    *,
    host: str | None,
    reference: str | None,
    truth: str | None,
    python: bool,
    layouts: Sequence[str] = (),
    **more: Any,
) -> Iterator[Result]:
    """What ``turingas validate`` compares, one result a problem (and layout). ``source``: the text of a .sass file;
    ``words``: the arguments and options of the launch that were given on the command line."""
    name = "<stdin>" if file == "-" else Path(file).name
    call = Call().changed(line(source)).changed(words)
    beside = Path(file).parent / "host.py"
    if host is None and not call.args and beside.is_file():
        host = str(beside)
    if layouts and (host is None or not asked):
        raise LaunchError("--layout is for a convolution with a host.py", "arguments tell it so: x:CHWN w y:CHWN")
    if not python and (host or truth):
        raise LaunchError(f"--no-python refuses {host or truth}")
    try:
        if not asked:
            exact = None if truth is None else function(truth)
            yield arrays(cubin, call, reference=reference, truth=exact, name=name, **more)
            return
        if truth is not None:
            raise LaunchError("--truth is for other kernels: what a convolution should give is known")
        if host is None:
            kernels = [by_call(name, call)]
        elif not layouts:
            kernels = [replace(by_host(host), name=name)]
        else:
            kernels = [replace(by_host(host, layout), name=f"{name} ({layout})") for layout in layouts]
        against = {None: "direct", "none": None}.get(reference, reference)
        for problem, kernel in itertools.product(asked, kernels):
            yield convolution(cubin, kernel, problem, reference=against, call=call, **more)
    except NvrtcError as error:
        raise LaunchError(str(error)) from None
