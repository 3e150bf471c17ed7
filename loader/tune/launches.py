"""How the kernel that is tuned is launched: the Python file of `turingas tune --bench`.

    grid = 64
    block = 256
    shared = 0                      # bytes of dynamic shared memory; these three as in loader.Kernel.launch
    kernel = "saxpy"                # where the cubin has several

    def arguments(rng):             # a numpy Generator; or a list, where no function is needed
        return ["f32[16384]=random", "f32[16384]", 16384, np.float32(2.0)]

    check = {"grid": 2, ...}        # what is different on the CPU device, where all of it would take too long

Without ``check`` the CPU device runs the first block, where a GPU runs the rest, and else the whole launch.
Texts are arguments as `turingas run` takes them; an array without a value (``f32[16384]``) is an output and begins as
the pattern that ``turingas validate`` finds again. Everything else is passed as it is. All arrays are compared after a
launch, not the outputs alone.
"""

from __future__ import annotations

import base64
import importlib
import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from loader.validate.call import value
from loader.validate.python_file import blamed
from turingas.errors import LaunchError
from turingas.launch import shape
from turingas.source.python import importing

Json = dict[str, Any]
NAMES = ("arguments", "grid", "block", "shared")


@dataclass(frozen=True)
class Launch:
    """One launch. ``arguments``: a list, or what makes one of a random generator; ``path`` is blamed for it."""

    arguments: Any
    grid: Any = 1
    block: Any = 32
    shared: int = 0
    path: str = ""

    def made(self, seed: int) -> list[Any]:
        """The arguments, the same for the same seed: arrays are new ones of numpy. LaunchError with the file's line."""
        random = np.random.default_rng(seed)
        with blamed(self.path):
            found = self.arguments(random) if callable(self.arguments) else self.arguments
            if not isinstance(found, (list, tuple)):
                raise LaunchError(f"{self.path}: arguments is a {type(found).__name__}", "a list, or a function of rng "
                                  "that returns one")  # fmt: skip
            with told(self.path):
                made = [value(one, {}, random)[0] if isinstance(one, str) else one for one in found]
            return [np.array(one, order="C") if isinstance(one, np.ndarray) and one.ndim else one for one in made]


@contextmanager
def told(path: str) -> Iterator[None]:
    """What a launch is refused for is told of the file that describes it."""
    try:
        yield
    except LaunchError as error:
        raise LaunchError(f"{path}: {error.message}", error.hint) from None


@dataclass(frozen=True)
class Bench:
    """A file's ``timed`` launch, and the one for the CPU device, ``check``, and ``kernel``, its name, if it says."""

    timed: Launch
    check: Launch | None
    kernel: str | None = None


def read(text: str, path: str) -> Bench:
    """What a file says. It may import what lies beside it, where it lies. LaunchError for what it lacks."""
    names: dict[str, Any] = {"__name__": "<bench>", "__file__": path}
    with blamed(path), importing([Path(path).absolute().parent]):
        exec(compile(text, path, "exec"), names)
    return described(names, path)


def described(names: Mapping[str, Any], path: str) -> Bench:
    """The launches that ``names`` describe."""
    if "arguments" not in names:
        raise LaunchError(f"{path} defines no arguments", 'such as: arguments = ["f32[256]=random", "f32[256]", 256]')
    check = names.get("check", {})
    if not isinstance(check, Mapping) or (wrong := [name for name in check if name not in NAMES]):
        what = f"check says {wrong[0]!r}" if isinstance(check, Mapping) else f"check is a {type(check).__name__}"
        raise LaunchError(f"{path}: {what}", "a dict of what is different on the CPU device: " + ", ".join(NAMES))
    timed = {name: names[name] for name in NAMES if name in names}
    made = [Launch(**said, path=path) for said in (timed, {**timed, **check})]
    for launch in made:
        with told(path):
            shape(launch.grid, launch.block)
        if not isinstance(launch.shared, int):
            raise LaunchError(f"{path}: {launch.shared!r} bytes of shared memory")
    kernel = names.get("kernel")
    if not isinstance(kernel, (str, type(None))):
        raise LaunchError(f"{path}: kernel is a {type(kernel).__name__}", "the name of a kernel, as text")
    return Bench(made[0], made[1] if "check" in names else None, kernel)


# ---- launches that are there already -----------------------------------------------------------------------------

#: types of torch that numpy has not, and what they are stored as
STORED = {"bfloat16": "u2", "float8_e4m3fn": "u1", "float8_e5m2": "u1", "bool": "u1"}
POOL = 1_000_003  # floats that are drawn at most: no multiple of what strides are. Larger arrays repeat them
DRAWN = ("float16", "float32", "float64", "bfloat16")


def stated(arguments: Sequence[Json], grid: Any, block: Any, shared: int, check: Mapping[str, Any]) -> str:
    """A file for the launch of a program: ``arguments``, those of ``check`` too, as ``argument`` describes them."""
    numbers = {"grid": grid, "block": block, "shared": shared, "check": dict(check)}
    said = json.dumps({**numbers, "arguments": list(arguments)})
    return f"from loader.tune import launches\nglobals().update(launches.restated({said!r}))\n"


def argument(value: Any, name: str) -> Json:
    """An argument of a launch, as JSON has it: of arrays of floats the size and type, for they are drawn; of others
    the bytes. LaunchError for what is no array of numpy, tensor of torch, number or bytes."""
    if isinstance(value, bytes):
        return {"bytes": _text(value)}
    if isinstance(value, (int, float, np.number)):
        return {"number": value if isinstance(value, (int, float)) else value.item()}
    if isinstance(value, np.ndarray):
        size, kind, stored = value.size, value.dtype.name, value.dtype.str
    elif hasattr(value, "stride") and hasattr(value, "element_size"):  # a tensor of torch
        kind = str(value.dtype).removeprefix("torch.")
        size = 1 + sum((n - 1) * step for n, step in zip(value.shape, value.stride())) if value.numel() else 0
        stored = STORED.get(kind) or np.dtype(kind).str
    else:
        hint = "a tensor of PyTorch, a numpy array, a number or bytes"
        raise LaunchError(f"{name} is a {type(value).__name__}", hint)
    if kind in DRAWN:
        return {"draw": kind, "size": size}
    host = np.ascontiguousarray(value) if isinstance(value, np.ndarray) else _flat(value, size)
    return {"data": _text(host.tobytes()), "dtype": stored}


def _flat(tensor: Any, size: int) -> np.ndarray[Any, Any]:
    """All elements between the first and the last of a tensor of torch, as bytes."""
    torch = importlib.import_module("torch")
    found: np.ndarray[Any, Any] = tensor.detach().as_strided((size,), (1,)).cpu().view(torch.uint8).numpy()
    return found


def _text(data: bytes) -> str:
    return base64.b64encode(zlib.compress(data)).decode()


def _bytes(text: str) -> bytes:
    return zlib.decompress(base64.b64decode(text))


def restated(text: str) -> dict[str, Any]:
    """What such a file defines."""
    def said(one: Json) -> dict[str, Any]:
        described = one.pop("arguments", None)
        return one if described is None else {**one, "arguments": lambda rng: [_drawn(each, rng) for each in described]}

    made = said(json.loads(text))
    return {**made, "check": said(made["check"])}


def _drawn(one: Json, random: np.random.Generator) -> Any:
    if "number" in one:
        return one["number"]
    if "bytes" in one:
        return _bytes(one["bytes"])
    if "data" in one:
        return np.frombuffer(bytearray(_bytes(one["data"])), one["dtype"])
    found = random.standard_normal(min(one["size"], POOL), np.float32)
    bfloats = one["draw"] == "bfloat16"
    drawn = (found.view(np.uint32) >> 16).astype(np.uint16) if bfloats else found.astype(one["draw"])
    return np.resize(drawn, one["size"])
