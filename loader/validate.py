"""Holds a kernel against a reference and a float64 result, on the same random inputs: ``turingas validate``.

Two kinds of comparison. ``convolution``: the kernel is a convolution, the inputs are made for a layer's sizes, the
reference is one of ``loader.reference`` (or a .cu file) and the float64 result is known. ``arrays``: any kernel, with
arguments as ``turingas run`` takes them, against another kernel with the same arguments, a float64 function, or both.

Every output is filled with POISON before a kernel runs, so that an element that it never wrote is seen.
"""

from __future__ import annotations

import ast
import itertools
import operator
import re
import runpy
import shlex
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

import loader
from loader import reference as references
from loader.cuda import CudaError, device_named
from loader.nvrtc import NvrtcError
from loader.reference.problem import Problem, arrange, truth
from loader.reference.runner import Runner
from turingas.argument_text import argument
from turingas.cubin.cubin import Cubin
from turingas.emulate.errors import DeviceError
from turingas.errors import LaunchError
from turingas.source.python import importing

Array = np.ndarray[Any, Any]

#: The 3x3 layers of ResNet (Yan, Wang, Chu 2020, Table 1): channels in and out, rows and columns. Padding 1, stride 1.
LAYERS = {"Conv2": (64, 56), "Conv3": (128, 28), "Conv4": (256, 14), "Conv5": (512, 7)}

#: What outputs are filled with: in each of f16, f32 and f64 this pattern, repeated, is a NaN that no arithmetic makes.
POISON = 0xFFFA

#: The largest relative L2 error, by the type of the array. Integers must be equal.
TOLERANCE = {"f2": 1e-3, "f4": 1e-6, "f8": 1e-12}

#: How many times the tolerance a reference may be off where the float64 result is known: some are less accurate by
#: nature (Winograd F(4x4,3x3)), and what counts is the kernel.
REFERENCE = 100

#: How many times the tolerance a single element may be off, in units of the root mean square of what is wanted: a
#: few wrong elements are lost in the norm of a large array.
SINGLE = 100


# ---- how a kernel is called --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Call:
    """How a kernel is launched, as text. ``args`` as ``turingas run`` takes them, and in a convolution also the
    tensors ``x``, ``w``, ``y`` and expressions of its sizes; ``grid``, ``block``, ``shared``: expressions."""

    args: tuple[str, ...] = ()
    grid: str = "1"
    block: str = "32"
    shared: str = "0"
    kernel: str | None = None

    def changed(self, words: Sequence[str]) -> Call:
        """With what ``words`` say: arguments, and --grid, --block, --shared, --kernel each with its value."""
        rest, args = list(words), list[str]()
        changes: dict[str, Any] = {}
        while rest:
            word = rest.pop(0)
            if not word.startswith("--"):
                args.append(word)
                continue
            if word[2:] not in ("grid", "block", "shared", "kernel") or not rest:
                hint = "it takes --grid, --block, --shared and --kernel, each with a value"
                raise LaunchError(f"'validate:' line: {word!r}", hint)
            changes[word[2:]] = rest.pop(0)
        call = replace(self, **changes)
        return replace(call, args=tuple(args)) if args else call


LINE = re.compile(r"^\s*(?:#|//)\s*validate:(.*)$", re.M)


def line(source: str) -> list[str]:
    """The words of the line ``# validate: ...`` (in CUDA C++ ``// validate: ...``) of a source; [] without one."""
    found = LINE.findall(source)
    if len(found) > 1:
        raise LaunchError(f"{len(found)} lines begin with 'validate:'; one is enough")
    try:
        return shlex.split(found[0]) if found else []
    except ValueError as error:
        raise LaunchError(f"'validate:' line: {error}") from None


_OPERATORS: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod, ast.USub: operator.neg,
}  # fmt: skip
_FUNCTIONS: dict[str, Callable[..., Any]] = {"ceil_div": lambda a, b: -(-a // b), "min": min, "max": max}


def numbers(text: str, names: Mapping[str, int]) -> list[Any]:
    """The values of expressions, parted by commas: integers, ``names``, + - * // %, ceil_div, min and max."""

    def value(node: ast.AST) -> Any:
        match node:
            case ast.Constant(value=int() | float() as number):
                return number
            case ast.Name(id=name) if name in names:
                return names[name]
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
                return _OPERATORS[type(op)](value(left), value(right))
            case ast.UnaryOp(op=op, operand=operand) if type(op) in _OPERATORS:
                return _OPERATORS[type(op)](value(operand))
            case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in _FUNCTIONS:
                return _FUNCTIONS[name](*map(value, args))
        raise ValueError(f"{ast.unparse(node)!r} is unknown here")

    try:
        body = ast.parse(f"[{text.strip()}]", mode="eval").body
        if not isinstance(body, ast.List):
            raise ValueError("not a list of expressions")
        return [value(node) for node in body.elts]
    except (ValueError, TypeError, ZeroDivisionError, SyntaxError, RecursionError, MemoryError) as error:
        known = "names: " + ", ".join(names) if names else ""
        why = "no expression" if isinstance(error, SyntaxError) else str(error)
        raise LaunchError(f"{text!r}: {why}", known) from None


ARRAY = re.compile(r"([iuf]\d+)\[(.+)\](=.+)?")
TYPED = re.compile(r"([iuf]\d+):(.+)")


def value(text: str, names: Mapping[str, int], random: np.random.Generator) -> tuple[Any, bool]:
    """An argument from its text, and whether it is an output: an array that nothing was said of, and so poisoned."""
    text = text.strip()
    if found := ARRAY.fullmatch(text):
        shape = ",".join(map(str, numbers(found[2], names)))
        array = argument(f"{found[1]}[{shape}]{found[3] or ''}", random)
        return (array, False) if found[3] else (poisoned(array.shape, array.dtype), True)
    if found := TYPED.fullmatch(text):
        return argument(f"{found[1]}:{_one(found[2], names)}", random), False
    if names and not text.startswith("@"):
        return _one(text, names), False
    return argument(text, random), False


def _one(text: str, names: Mapping[str, int]) -> Any:
    found = numbers(text, names)
    if len(found) != 1:
        raise LaunchError(f"{text!r} is not one number")
    return found[0]


def poisoned(shape: Sequence[int], dtype: Any = np.float32) -> Array:
    """A new array full of POISON."""
    kind = np.dtype(dtype)
    size = int(np.prod(shape)) * kind.itemsize
    pattern = np.full(-(-size // 2), POISON, "<u2").view(np.uint8)[:size]
    return np.frombuffer(bytearray(pattern), kind).reshape(shape)


def unwritten(array: Array) -> Array:
    """Where an array still holds the pattern of ``poisoned``, as bool."""
    flat = np.ascontiguousarray(array).reshape(-1)
    same = flat.view(np.uint8) == poisoned(flat.shape, flat.dtype).view(np.uint8)
    return np.asarray(same.reshape(flat.size, flat.itemsize).all(axis=1).reshape(array.shape))


# ---- what came of it ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """An array of one side against what is wanted. ``worst`` is the index of the element that is furthest off, by
    ``max_abs``; ``relative`` the relative L2 error, both infinite where a NaN or infinity is wrong. ``why``: "" or
    what is wrong with it."""

    array: str
    name: str
    against: str
    max_abs: float
    relative: float
    worst: tuple[int, ...]
    found: float
    wanted: float
    why: str = ""


@dataclass
class Result:
    """A comparison. ``what`` says of what; ``wrong`` lists what is not as it should be, one line each."""

    what: str
    rows: list[Row] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether all agree."""
        return not self.wrong

    def lines(self) -> Iterator[str]:
        """The table."""
        yield self.what
        titles = [f"{row.array}: {row.name} - {row.against}" for row in self.rows]
        width = max(map(len, titles), default=0)
        yield f"{'':{width}}  {'max abs':>9}  {'relative L2':>11}  {'found':>12}  {'wanted':>12}  worst element"
        for title, row in zip(titles, self.rows):
            index = ",".join(map(str, row.worst))
            yield (
                f"{title:{width}}  {row.max_abs:9.2e}  {row.relative:11.2e}  {row.found:12.6g}  {row.wanted:12.6g}  "
                f"{row.array}[{index}]"
            )
        yield from ("mismatch: " + text for text in self.wrong)
        if self.ok:
            yield "match"

    def json(self) -> dict[str, Any]:
        """The same for programs; None where a number is NaN or infinite, for JSON has neither."""
        rows = [
            {key: None if isinstance(one, float) and not np.isfinite(one) else one for key, one in vars(row).items()}
            for row in self.rows
        ]
        return {"what": self.what, "ok": self.ok, "rows": rows, "wrong": self.wrong}


def allowed(array: Array, tolerance: float | None) -> float:
    """The tolerance, or what TOLERANCE says of the array's type."""
    return TOLERANCE.get(array.dtype.str[1:], 0.0) if tolerance is None else tolerance


def compare(array: str, name: str, found: Array, against: str, wanted: Array, tolerance: float) -> Row:
    """One array against another of the same shape. ``tolerance``: the relative L2 error that is allowed, inf: any."""
    if not found.size:
        return Row(array, name, against, 0.0, 0.0, (), 0.0, 0.0)
    a, b = found.astype(np.float64), wanted.astype(np.float64)
    with np.errstate(all="ignore"):
        off = np.abs(a - b)
        off[~np.isfinite(off)] = np.inf
        off[(found == wanted) | (np.isnan(a) & np.isnan(b))] = 0.0
        off[(off == 0) & (a == b) & (found != wanted)] = 1.0  # 64-bit integers that float64 cannot tell apart
        scale = float(np.linalg.norm(b[np.isfinite(b)]))
        norm = float(np.linalg.norm(off.reshape(-1)))
    worst = int(off.argmax())
    index = tuple(int(i) for i in np.unravel_index(worst, off.shape))
    max_abs = float(off.reshape(-1)[worst])
    relative = norm / scale if scale else (np.inf if norm else 0.0)
    single = SINGLE * tolerance * scale / np.sqrt(off.size)
    why = ""
    if max_abs == np.inf and tolerance < np.inf:
        why = f"{np.count_nonzero(np.isinf(off))} of {off.size} elements are NaN or infinite on one side alone"
    elif relative > tolerance:
        why = f"a relative L2 error of {relative:.2e}, more than {tolerance:.1e}"
    elif max_abs > max(single, tolerance * abs(float(b[index]))):
        why = f"an element is off by {max_abs:.2e}, more than {single:.2e}"
    return Row(array, name, against, max_abs, relative, index, float(a[index]), float(b[index]), why)


@dataclass(frozen=True)
class Sides:
    """One array: what the kernel and the reference made of it, and what it should be; None: not asked for."""

    array: str
    found: Array
    expected: Array | None
    exact: Array | None
    output: bool = True  # it was poisoned


def judge(
    what: str, name: str, other: str, sides: Sequence[Sides], tolerance: float | None, least: float = 0.0
) -> Result:
    """Compare all arrays of ``name``, the kernel, and ``other``, the reference, which may be off by ``least``."""
    result = Result(what)
    for side in sides:
        pairs = [(name, side.found, "float64", side.exact), (other, side.expected, "float64", side.exact),
                 (name, side.found, other, side.expected)]  # fmt: skip
        for who, mine, against, wanted in pairs:
            if mine is None or wanted is None:
                continue
            limit = allowed(mine, tolerance)
            if who == other:
                limit = max(REFERENCE * limit, least)
            elif side.exact is not None and against == other:
                limit = np.inf  # both have been judged
            row = compare(side.array, who, mine, against, wanted, limit)
            result.rows.append(row)
            if row.why:
                index = ",".join(map(str, row.worst))
                result.wrong.append(f"{row.array} of {who}, worst at [{index}], against {against}: {row.why}")
        if side.output:
            result.wrong += _left(side, name)
    return result


def _left(side: Sides, name: str) -> Iterator[str]:
    left = unwritten(side.found)
    certain = side.found.dtype.kind == "f" or side.found.itemsize >= 4  # else POISON may be a result: -6 in 16 bits
    nothing = left.size > 0 and left.all() and certain
    if side.expected is not None:
        left &= ~unwritten(side.expected)
    elif side.exact is not None:
        left &= ~np.isnan(side.exact)
    if count := np.count_nonzero(left):
        index = ",".join(str(int(i)) for i in np.argwhere(left)[0])
        yield f"{side.array} of {name}: {count} of {left.size} elements were never written, the first [{index}]"
    elif nothing:
        yield f"{side.array} of {name}: nothing was written, so nothing was compared"


# ---- any kernel --------------------------------------------------------------------------------------------------


class Watched:
    """A module whose launches take ``options`` of the CPU device along; ``found`` lists their hazards and races."""

    def __init__(self, module: loader.Module, options: dict[str, Any]) -> None:
        self.module, self.options = module, options
        self.cubin = module.cubin
        self.found: list[str] = []

    def kernel(self, name: str | None = None) -> WatchedKernel:
        """As ``loader.Module.kernel``."""
        return WatchedKernel(self.module.kernel(name), self)


class WatchedKernel:
    """A kernel of a Watched module."""

    def __init__(self, kernel: loader.Kernel, module: Watched) -> None:
        self.inner, self.module = kernel, module

    def launch(self, grid: int | Sequence[int], block: int | Sequence[int], *args: Any, shared: int = 0) -> None:
        """As ``loader.Kernel.launch``."""
        report = self.inner.launch(grid, block, *args, shared=shared, **self.module.options)
        if report is not None:
            self.module.found += map(str, [*report.hazards, *report.races])


def launch(module: Any, call: Call, args: Sequence[Any], names: Mapping[str, int]) -> None:
    """Launch the kernel of ``call`` with arguments that are made already."""
    kernel = module.kernel(call.kernel)
    kernel.launch(numbers(call.grid, names), numbers(call.block, names), *args, shared=_one(call.shared, names))


def arrays(
    cubin: Cubin | bytes,
    call: Call,
    *,
    reference: str | Path | None = None,
    truth: Callable[..., Any] | None = None,
    device: str | None = None,
    seed: int = 0,
    tolerance: float | None = None,
    options: dict[str, Any] | None = None,
    name: str = "kernel",
) -> Result:
    """Any kernel: against ``reference``, a CUDA C++ file whose kernel is given the same arguments, and ``truth``.

    Arrays that have no value (``f32[64]``) are the outputs and poisoned. All arrays are compared with the reference's;
    the outputs with what ``truth`` gives: a function of all arguments as they were before, outputs as zeros, that
    returns the output, or a list of the outputs in their order. The reference is launched as ``call`` says, or as the
    line ``// validate: --grid ... --block ...`` in it.

    ``options``: strict, races, ... of the CPU device, for the kernel. LaunchError for what cannot be launched;
    DeviceError, CudaError, NvrtcError as they come.
    """
    if reference is None and truth is None:
        raise LaunchError("nothing to compare with", "give --reference FILE.cu, --truth FILE.py:FUNCTION or, for a "
                          "convolution, --layer or --shape")  # fmt: skip
    random = np.random.default_rng(seed)
    made = [value(text, {}, random) for text in call.args]
    outputs = [n for n, (_, output) in enumerate(made) if output]

    def run(module: Any, how: Call) -> list[Any]:
        given = [runner.array(one) if isinstance(one, np.ndarray) else one for one, _ in made]
        launch(module, how, given, {})
        return [runner.numpy(there) if isinstance(one, np.ndarray) else one for (one, _), there in zip(made, given)]

    with Runner(_device(device)) as runner, loader.load(cubin, runner.device) as module:
        watched = Watched(module, _for(runner.device, options))
        found = run(watched, call)
        expected: list[Any] | None = None
        if reference is not None:
            path = Path(reference).absolute()
            if path.suffix != ".cu":
                raise LaunchError(
                    f"--reference {reference}: for a kernel that is not a convolution, write a file that ends in .cu",
                    "--layer or --shape say that it is one",
                )
            words = line(path.read_text())
            how = replace(call, kernel=None).changed(words)
            if how.args != call.args:
                raise LaunchError(f"{path.name} has arguments of its own in its 'validate:' line",
                                  "it takes those of the kernel: only a convolution knows which is which")  # fmt: skip
            expected = run(_compiled(runner, path, how), how)
        what = f"{name} on {runner.device}, {', '.join(call.args)}, seed {seed}"
    exact: dict[int, Array] = {}
    if truth is not None:
        before = [np.zeros_like(one) if output else one.copy() if isinstance(one, np.ndarray) else one
                  for one, output in made]  # fmt: skip
        exact = _outputs(truth(*before), outputs, made)
    sides = [
        Sides(f"argument {n}", found[n], None if expected is None else expected[n], exact.get(n), output)
        for n, (one, output) in enumerate(made)
        if isinstance(one, np.ndarray) and (expected is not None or n in exact)
    ]
    if not sides:
        raise LaunchError("no array to compare", "write an output as f32[64], without a value")
    result = judge(what, name, Path(reference).name if reference else "", sides, tolerance)
    result.wrong += watched.found
    return result


def _device(device: str | None) -> str | None:
    if device is not None and device.partition(":")[0] == "cuda":
        return str(device_named(device))  # says what is missing
    if device is not None and device not in loader.devices():
        raise LaunchError(f"there is no device {device!r}", "there are: " + ", ".join(loader.devices()))
    return device


def _for(device: str, options: dict[str, Any] | None) -> dict[str, Any]:
    if options and device != "cpu":
        raise LaunchError(", ".join("--" + name for name in options) + ": the CPU device alone does this")
    return options or {}


def _outputs(given: Any, outputs: list[int], made: list[tuple[Any, bool]]) -> dict[int, Array]:
    """What the float64 function gave, by argument."""
    found = list(given) if isinstance(given, (list, tuple)) else [given]
    if len(found) != len(outputs):
        raise LaunchError(f"the float64 function gives {len(found)} arrays; the kernel has {len(outputs)} outputs")
    exact = {n: np.asarray(one) for n, one in zip(outputs, found)}
    for n, one in exact.items():
        if one.shape != made[n][0].shape:
            raise LaunchError(f"the float64 function gives {one.shape} for argument {n}, {made[n][0].shape}")
    return exact


# ---- convolutions ------------------------------------------------------------------------------------------------

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
    found = _names_in(path)
    if "launch" not in found:
        raise LaunchError(f"{path} has no function launch(run, module, problem, x, w, y)")
    more = {} if layout is None else {"layout": layout}
    if layout is None:
        layout = found.get("LAYOUT", "NCHW")
    elif layout not in (known := found.get("LAYOUTS", ())):
        raise LaunchError(f"{path} has no layout {layout!r}", f"its LAYOUTS: {', '.join(known) or 'none'}")
    layouts = dict(one for one in map(tensor, (f"x:{layout}", "w", f"y:{layout}")) if one)

    def host(*args: Any) -> None:
        with _blamed(path):
            found["launch"](*args, **more)

    return Convolution(Path(path).parent.name, host, layouts, found.get("supports", lambda problem: ""))


def _names_in(path: str | Path) -> dict[str, Any]:
    """What a Python file defines. It may import modules that lie beside it."""
    with _blamed(path), importing([Path(path).absolute().parent]):
        return runpy.run_path(str(path))


@contextmanager
def _blamed(path: str | Path) -> Iterator[None]:
    """What goes wrong in a user's Python file is told with its line, not with ours."""
    try:
        yield
    except (LaunchError, DeviceError, CudaError, NvrtcError):
        raise
    except Exception as error:
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
        if isinstance(error, SyntaxError):
            lines = [error.lineno]
        place = f"{path}:{lines[-1]}" if lines else str(path)
        raise LaunchError(f"{place}: {type(error).__name__}: {error}") from error


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
    with Runner(_device(device)) as runner, loader.load(cubin, runner.device) as module:
        watched = Watched(module, _for(runner.device, options))
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
    return by_call(path.name, how), _compiled(runner, path.absolute(), how)


def _compiled(runner: Runner, path: Path, call: Call) -> loader.Module:
    """The module of a reference's file. LaunchError, with the file's name, when it lacks the kernel of ``call``."""
    module = runner.module(str(path))
    try:
        module.kernel(call.kernel)
    except LaunchError as error:
        hint = f"{error.hint}; a line '// validate: --kernel NAME' chooses"
        raise LaunchError(f"{path.name}: {error.message}", hint) from None
    return module


def accuracy(p: Problem) -> float:
    """The tolerance of a convolution in float32: 1e-6, more for long sums. One that is added up term by term is off
    by about 2^-24 sqrt(n / 3) of its size, for n terms of random signs."""
    return max(TOLERANCE["f4"], 2**-24 * float(np.sqrt(p.c * p.r * p.s)))


def describe(p: Problem) -> str:
    """A problem in one line."""
    return f"N={p.n} C={p.c} H={p.h} W={p.w} K={p.k}, {p.r}x{p.s}, stride {p.stride}, padding {p.padding}"


# ---- the command -------------------------------------------------------------------------------------------------


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
    found = _names_in(path).get(name)
    if not callable(found):
        raise LaunchError(f"--truth {text}: {path} has no function {name}")

    def exact(*args: Any) -> Any:
        with _blamed(path):
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
