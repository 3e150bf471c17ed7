"""Kernel arguments from text, as `turingas run` and `turingas validate` take them: numbers, arrays, files."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import numpy as np

from turingas.errors import LaunchError

TYPES = {
    **{f"{kind}{bits}": np.dtype(f"{letter}{bits // 8}") for kind, letter in (("i", "i"), ("u", "u"), ("f", "f"))
       for bits in (8, 16, 32, 64) if f"{kind}{bits}" != "f8"},
}  # fmt: skip
ARRAY = re.compile(r"(?P<type>[iuf]\d+)\[(?P<shape>\d+(?:\s*,\s*\d+)*)\](?:=(?P<fill>.+))?")
TYPED = re.compile(r"(?P<type>[iuf]\d+):(?P<value>.+)")
HINT = "write 7, 1.5, i64:7, f32[1024], f32[64,64]=random, u32[256]=arange, i32[8]=-1 or @file.npy"


def argument(text: str, random: np.random.Generator) -> Any:
    """A kernel argument from its text: a number (``7``, ``0x10``, ``1.5``), one with a type (``u8:7``), an array
    (``f32[64,64]``, zeros; ``=random``, ``=arange`` or ``=VALUE`` fills it) or ``@file.npy``. LaunchError otherwise."""
    text = text.strip()
    if text.startswith("@"):
        try:
            loaded = np.load(Path(text[1:]), allow_pickle=False)
        except OSError as error:
            raise LaunchError(f"argument {text}: {error.strerror or error}") from None
        except (ValueError, EOFError):
            raise LaunchError(f"argument {text}: not a file of numpy.save, or one of Python objects") from None
        if not isinstance(loaded, np.ndarray):
            raise LaunchError(f"argument {text} holds several arrays", "save one array with numpy.save")
        return np.array(loaded, order="C")
    match = ARRAY.fullmatch(text)
    if match:
        kind = _type(match["type"], text)
        try:
            shape = tuple(int(n) for n in match["shape"].split(","))
            return _filled(shape, kind, match["fill"] or "0", random, text)
        except LaunchError:  # a ValueError, too
            raise
        except (ValueError, MemoryError) as error:  # numpy's words for what is too large
            raise LaunchError(f"argument {text[:60]!r}: {error}") from None
    match = TYPED.fullmatch(text)
    if match:
        kind = _type(match["type"], text)
        return _number(match["value"], kind, text)
    try:
        return int(text, 0)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        raise LaunchError(f"argument {text!r} is neither a number nor an array", HINT) from None


def _type(name: str, text: str) -> np.dtype[Any]:
    if name not in TYPES:
        raise LaunchError(f"argument {text!r}: unknown type {name}", "types: " + " ".join(TYPES))
    return TYPES[name]


def _number(value: str, kind: np.dtype[Any], text: str) -> Any:
    try:
        number = float(value) if kind.kind == "f" else int(value, 0)
        with np.errstate(over="ignore"):  # a float beyond the type's range becomes infinity, as numpy has it
            return kind.type(number)
    except ValueError:
        raise LaunchError(f"argument {text!r}: {value!r} is not a valid {kind.name}", HINT) from None
    except OverflowError:
        raise LaunchError(f"argument {text!r}: {value} is out of range for {kind.name}", HINT) from None


def _filled(shape: tuple[int, ...], kind: np.dtype[Any], fill: str, random: np.random.Generator, text: str) -> Any:
    if fill == "random":
        if kind.kind == "f":
            return random.standard_normal(shape).astype(kind)
        limits = np.iinfo(kind)
        return random.integers(limits.min, limits.max, shape, kind.type, endpoint=True)
    if fill == "arange":
        return np.arange(math.prod(shape)).astype(kind).reshape(shape)
    return np.full(shape, _number(fill, kind, text))
