"""The parameters of a method's source, as it lists them itself: names, defaults and the values that each takes.

A source names them in its head, ``# -D NAME=value|value``, the first being the default, or in its inline Python,
``choose("NAME", default, (values ...))`` or ``given("NAME", default, value, ...)``, which without values has 0 and 1.
"""

from __future__ import annotations

import ast
import itertools
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from kernels_sass.conv.method import Method

#: Parameters that say what the products are made with, and not when an instruction is issued. Each value of them is a
#: kernel of its own: it is measured beside the others, and no search for a schedule changes it.
VARIANTS = ("MATH",)

@dataclass(frozen=True)
class Parameter:
    """``values``: what it may be; () if the source does not say it in a way that can be read here. ``default``: None if
    that depends on other parameters."""

    name: str
    default: object
    values: tuple[object, ...]

    @property
    def few(self) -> tuple[object, ...]:
        """Values to try: of a family such as every:1, every:2, ... those with powers of two."""
        return tuple(value for value in self.values if _round(value))


def _round(value: object) -> bool:
    _, _, number = str(value).partition(":")
    return not number.isdecimal() or int(number) & (int(number) - 1) == 0


def parameters(method: Method) -> dict[str, Parameter]:
    """By name, in the order in which the source has them."""
    return read(method.files)


def read(files: Iterable[Path]) -> dict[str, Parameter]:
    """The same of a source, and of what it includes."""
    text = "".join(path.read_text() for path in files if path.suffix == ".sass")
    found = {}
    for name, values in re.findall(r"^#\s+-D\s+(\w+)=(\S+)", text, re.M):
        known = tuple(_value(word) for word in values.split("|") if not re.search(r":[A-Z]$", word))
        found[name] = Parameter(name, known[0], known)
    for block in re.findall(r"^<code>\n(.*?)^</code>", text, re.M | re.S):
        for key, default, values in _calls(block):
            found[key] = Parameter(key, _default(default), _values(values))
    return found


def _value(word: str) -> object:
    """As -D reads it."""
    return int(word) if word.isdecimal() else word


def _calls(block: str) -> Iterator[tuple[str, ast.expr, ast.expr]]:
    """Names, defaults, and what holds the values."""
    for node in ast.walk(ast.parse(textwrap.dedent(block))):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and len(node.args) > 1):
            continue
        (name, default, *rest), how = node.args, node.func.id
        if isinstance(name, ast.Constant) and (how == "given" or how == "choose" and len(rest) == 1):
            held = rest[0] if how == "choose" else ast.Tuple(rest or [ast.Constant(0), ast.Constant(1)], ast.Load())
            yield str(name.value), default, ast.fix_missing_locations(held)


def _default(default: ast.expr) -> object:
    try:
        return ast.literal_eval(default)
    except ValueError:
        return None


def _values(values: ast.expr) -> tuple[object, ...]:
    """What the argument behind the default holds. () for names that only the source has."""
    try:
        return tuple(eval(compile(ast.Expression(values), "<values>", "eval"), {"__builtins__": {"range": range}}))
    except NameError:
        return ()


def variants(method: Method, given: Mapping[str, object]) -> list[dict[str, object]]:
    """The kernels that a source is, as values of VARIANTS: [{}] if it has none of them. ``given``: what is decided."""
    there = parameters(method)
    names = [name for name in VARIANTS if name in there]
    values = [(given[name],) if name in given else there[name].values for name in names]
    return [dict(zip(names, one)) for one in itertools.product(*values)]
