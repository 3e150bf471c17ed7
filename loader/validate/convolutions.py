"""Convolutions, against a reference and the float64 result that is known."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import loader
from loader import reference as references
from loader.reference.problem import Problem, arrange, truth
from loader.reference.runner import Runner
from loader.validate.call import Call, launch, line, value
from loader.validate.device import Watched, compiled, device_of, options_for
from loader.validate.python_file import blamed, names_in
from loader.validate.verdict import TOLERANCE, Array, Result, Sides, judge, poisoned
from turingas.cubin.cubin import Cubin
from turingas.errors import LaunchError

#: The 3x3 layers of ResNet (Yan, Wang, Chu 2020, Table 1): channels in and out, rows and columns. Padding 1, stride 1.
LAYERS = {"Conv2": (64, 56), "Conv3": (128, 28), "Conv4": (256, 14), "Conv5": (512, 7)}


#: Launches a convolution: runner, module, problem, x, w, y on the device, in the layouts that it wants.
Host = Callable[[Runner, Any, Problem, Any, Any, Any], None]

AXES = {"x": "NCHW", "w": "KCRS", "y": "NCHW"}  # of the tensors, as they are made and compared
TENSOR = re.compile(r"([xwy])(?::(\w+))?")


@dataclass(frozen=True)
class Convolution:
    """What one must know of a convolution to call it. ``layouts``: of x, w and y; ``supports``: "" or why not."""

    name: str
    host: Host
    layouts: Mapping[str, str]
    supports: Callable[[Problem], str] = lambda problem: ""
    tolerance: float = 0.0  # what its method may be off, as a reference


def layer(name: str, batch: int) -> Problem:
    """A layer of LAYERS. LaunchError names those there are."""
    if name not in LAYERS:
        raise LaunchError(f"there is no layer {name!r}", "there are: " + ", ".join(LAYERS))
    channels, size = LAYERS[name]
    return Problem(batch, channels, size, size, channels, 3, 3, 1, 1)


def names_of(p: Problem) -> dict[str, int]:
    """What the expressions of a Call may name."""
    sizes = {"N": p.n, "C": p.c, "H": p.h, "W": p.w, "K": p.k, "R": p.r, "S": p.s, "P": p.p, "Q": p.q}
    return {**sizes, "STRIDE": p.stride, "PADDING": p.padding}


def tensor(text: str) -> tuple[str, str] | None:
    """x, w or y and its layout, from an argument such as ``x`` or ``x:CHWN``; None for other arguments."""
    found = TENSOR.fullmatch(text.strip())
    if found is None:
        return None
    name, layout = found[1], found[2] or AXES[found[1]]
    if sorted(layout) != sorted(AXES[name]):
        raise LaunchError(f"argument {text!r}: {layout} is not a layout", f"the letters are {AXES[name]}, in any order")
    return name, layout


def by_call(name: str, call: Call) -> Convolution:
    """A convolution that is launched as ``call`` says."""
    given = {one for one in map(tensor, call.args) if one}
    layouts = dict(given)
    if len(layouts) != len(given):
        twice = ", ".join(sorted(f"{one}:{layout}" for one, layout in given))
        raise LaunchError(f"a tensor of {name} has two layouts: {twice}")
    if missing := [name for name in AXES if name not in layouts]:
        raise LaunchError(f"the arguments of {name} lack {', '.join(missing)}", "say where the tensors go, such as "
                          "'x:CHWN w y:CHWN N C H W K', after the file or in a line 'validate:' in it")  # fmt: skip

    def host(run: Runner, module: Any, p: Problem, x: Any, w: Any, y: Any) -> None:
        names, random, tensors = names_of(p), np.random.default_rng(0), {"x": x, "w": w, "y": y}
        args: list[Any] = []
        for text in call.args:
            if one := tensor(text):
                args.append(tensors[one[0]])
            else:
                made, _ = value(text, names, random)
                args.append(run.array(made) if isinstance(made, np.ndarray) else made)
        launch(module, call, args, names)

    return Convolution(name, host, layouts)


def by_host(path: str | Path, layout: str | None = None) -> Convolution:
    """A convolution that the function ``launch`` of a Python file launches; its LAYOUT is that of x and y (NCHW),
    and its ``supports(problem)``, if it has one, gives "" or why it cannot do that. ``layout``: one of its LAYOUTS,
    which ``launch`` is told."""
    found = names_in(path)
    if "launch" not in found:
        raise LaunchError(f"{path} has no function launch(run, module, problem, x, w, y)")
    more = {} if layout is None else {"layout": layout}
    if layout is None:
        layout = found.get("LAYOUT", "NCHW")
    elif layout not in (known := found.get("LAYOUTS", ())):
        raise LaunchError(f"{path} has no layout {layout!r}", f"its LAYOUTS: {', '.join(known) or 'none'}")
    layouts = dict(one for one in map(tensor, (f"x:{layout}", "w", f"y:{layout}")) if one)

    def host(*args: Any) -> None:
        with blamed(path):
            found["launch"](*args, **more)

    return Convolution(Path(path).parent.name, host, layouts, found.get("supports", lambda problem: ""))


def inputs(p: Problem, seed: int) -> dict[str, Array]:
    """x (N, C, H, W) and w (K, C, R, S), of a normal distribution, float32."""
    random = np.random.default_rng(seed)
    return {
        "x": random.standard_normal(p.x_shape, np.float32),
        "w": random.standard_normal(p.w_shape, np.float32),
    }


def run_convolution(one: Convolution, runner: Runner, module: Any, p: Problem, given: Mapping[str, Array]) -> Array:
    """Its y, as N, K, P, Q. LaunchError if it does not do this problem or has changed its inputs."""
    if why := one.supports(p):
        raise LaunchError(f"{one.name} cannot do this: {why}")
    tensors = {**given, "y": poisoned(p.y_shape)}
    arranged = {name: arrange(array, AXES[name], one.layouts[name]) for name, array in tensors.items()}
    there = {name: runner.array(array) for name, array in arranged.items()}
    one.host(runner, module, p, there["x"], there["w"], there["y"])
    for name in given:
        if (runner.numpy(there[name]) != arranged[name]).any():
            raise LaunchError(f"{one.name} writes to its input {name}")
    return arrange(runner.numpy(there["y"]), one.layouts["y"], AXES["y"])


def convolution(
    cubin: Cubin | bytes,
    kernel: Convolution,
    problem: Problem,
    *,
    reference: str | Path | None = "direct",
    call: Call | None = None,
    device: str | None = None,
    seed: int = 0,
    tolerance: float | None = None,
    options: dict[str, Any] | None = None,
) -> Result:
    """A convolution on random inputs against the float64 result, and against ``reference``: the name of an algorithm
    of ``loader.reference``, or a CUDA C++ file, which is launched as its line ``// validate:`` says or else as
    ``call``; None: none.

    ``options``: strict, races, ... of the CPU device, for the kernel. LaunchError for what cannot be launched;
    DeviceError, CudaError, NvrtcError as they come.
    """
    given = inputs(problem, seed)
    expected, other, least = None, "", 0.0
    with Runner(device_of(device)) as runner, loader.load(cubin, runner.device) as module:
        watched = Watched(module, options_for(runner.device, options))
        found = run_convolution(kernel, runner, watched, problem, given)
        if reference is not None:
            one, compiled = _reference(reference, call, runner)
            expected, other, least = run_convolution(one, runner, compiled, problem, given), one.name, one.tolerance
        what = f"{kernel.name} on {runner.device}, {describe(problem)}, seed {seed}"
    exact = truth(given["x"], given["w"], problem)
    if tolerance is None:
        tolerance = accuracy(problem)
    what += f", tolerance {tolerance:.1e}"
    result = judge(what, kernel.name, other, [Sides("y", found, expected, exact)], tolerance, least)
    result.wrong += watched.found
    return result


def _reference(reference: str | Path, call: Call | None, runner: Runner) -> tuple[Convolution, Any]:
    """A reference by its name or its file, and its module (an algorithm compiles its own)."""
    path = Path(reference)
    if path.suffix != ".cu":
        try:
            entry = references.find(str(reference))
        except ValueError as error:
            raise LaunchError(f"--reference: {error}", "or a file that ends in .cu") from None

        def host(run: Runner, module: Any, p: Problem, x: Any, w: Any, y: Any) -> None:
            entry.function(run, p, x, w, y)

        layouts = {"x": entry.layout, "w": "KCRS", "y": entry.layout}
        return Convolution(entry.name, host, layouts, entry.supports, entry.tolerance), None
    words = line(path.read_text())
    how = replace(call or Call(), kernel=None).changed(words)
    return by_call(path.name, how), compiled(runner, path.absolute(), how)


def accuracy(p: Problem) -> float:
    """The tolerance of a convolution in float32: 1e-6, more for long sums. One that is added up term by term is off
    by about 2^-24 sqrt(n / 3) of its size, for n terms of random signs."""
    return max(TOLERANCE["f4"], 2**-24 * float(np.sqrt(p.c * p.r * p.s)))


def describe(p: Problem) -> str:
    """A problem in one line."""
    return f"N={p.n} C={p.c} H={p.h} W={p.w} K={p.k}, {p.r}x{p.s}, stride {p.stride}, padding {p.padding}"
