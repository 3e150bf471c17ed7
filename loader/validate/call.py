"""How a kernel is called: arguments, grid and block as text."""

from __future__ import annotations

import ast
import operator
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from loader.validate.verdict import poisoned
from turingas.argument_text import argument
from turingas.errors import LaunchError


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
        return argument(f"{found[1]}:{one_number(found[2], names)}", random), False
    if names and not text.startswith("@"):
        return one_number(text, names), False
    return argument(text, random), False


def one_number(text: str, names: Mapping[str, int]) -> Any:
    found = numbers(text, names)
    if len(found) != 1:
        raise LaunchError(f"{text!r} is not one number")
    return found[0]


def launch(module: Any, call: Call, args: Sequence[Any], names: Mapping[str, int]) -> None:
    """Launch the kernel of ``call`` with arguments that are made already."""
    kernel = module.kernel(call.kernel)
    kernel.launch(numbers(call.grid, names), numbers(call.block, names), *args, shared=one_number(call.shared, names))
