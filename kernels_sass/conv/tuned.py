"""The fastest schedules that `turingas bench schedule --sweep` found: a small JSON file that ``Conv2d`` reads.

It lies in the cache folder, TURINGAS_CACHE or ~/.cache/turingas, and may be deleted at any time. An entry holds for one
card, CUDA version of the driver, source, and code that the source gives without any parameter; for others it is not
found. A schedule says when instructions are issued, not what is computed.
"""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kernels_sass.conv.code import Kernels
from kernels_sass.conv.shape import Shape
from loader.cuda import Device
from loader.nvrtc import cache_folder
from turingas.errors import LaunchError
from turingas.packages import callers_level

FORMAT = 1

#: Parameters and their values.
Schedule = dict[str, object]


def path() -> Path:
    """The file."""
    return cache_folder() / "schedules.json"


def key(gpu: Device, kernels: Kernels) -> str:
    """What an entry is for, but for the shape. ``kernels``: those of the source without any parameter."""
    code = hashlib.sha256(kernels.cubin.to_bytes()).hexdigest()[:16]
    major, minor = gpu.version()
    return f"{gpu.name}, CUDA {major}.{minor}, {kernels.method.name}, {code}"


def read() -> dict[str, dict[str, Any]]:
    """key -> shape -> entry; {} if there is no file. A file that holds something else is reported by a warning, and is
    as none."""
    try:
        found = json.loads(path().read_text())
    except (FileNotFoundError, RuntimeError):  # the second: nobody knows where home is
        return {}
    except (OSError, ValueError) as error:
        return _broken(str(error))
    if not isinstance(found, dict) or found.get("format") != FORMAT or not isinstance(found.get("found"), dict):
        return _broken(f"it is not of format {FORMAT}")
    for entries in found["found"].values():
        for name, entry in entries.items() if isinstance(entries, dict) else [("", entries)]:
            if _shape(name) is None or not _right(entry):
                return _broken(f"{name!r}: {json.dumps(entry)[:80]} is not a schedule")
    return dict(found["found"])


def _right(entry: Any) -> bool:
    schedule = entry.get("schedule") if isinstance(entry, dict) else None
    return isinstance(schedule, dict) and all(isinstance(value, (str, int)) for value in schedule.values())


def _shape(name: str) -> Shape | None:
    """What ``_name`` gives for a shape; None for what it does not give."""
    layout, *sizes = name.split(",")
    if len(sizes) != 6 or not all(size.isdecimal() for size in sizes):
        return None
    n, c, h, w, k, pad = map(int, sizes)
    try:
        return Shape(n, c, h, w, k, pad, layout)
    except LaunchError:
        return None


def _name(shape: Shape) -> str:
    return ",".join(map(str, (shape.layout, shape.n, shape.c, shape.h, shape.w, shape.k, shape.pad)))


def _broken(why: str) -> dict[str, Any]:
    warnings.warn(f"{path()} is ignored: {why}; it may be deleted", RuntimeWarning, stacklevel=callers_level())
    return {}


def best(gpu: Device, kernels: Kernels) -> dict[Shape, Schedule]:
    """What was found on a card for these kernels; {} without a file."""
    found: dict[Shape, Schedule] = {}
    for name, entry in read().get(key(gpu, kernels), {}).items():
        shape = _shape(name)
        assert shape is not None  # read() has looked
        found[shape] = dict(entry["schedule"])
    return found


def keep(gpu: Device, kernels: Kernels, shape: Shape, schedule: Mapping[str, object], **facts: object) -> None:
    """Add an entry, with facts for who reads the file. Entries for another code of this source on this card go. OSError
    if it cannot be written."""
    mine = key(gpu, kernels)
    found = {one: entries for one, entries in read().items() if one == mine or not _stale(one, mine)}
    found.setdefault(mine, {})[_name(shape)] = {"schedule": dict(schedule), **facts}
    file = path()
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.with_name(f"{file.name}.{os.getpid()}.tmp")
    draft.write_text(json.dumps({"format": FORMAT, "found": found}, indent=1) + "\n")
    os.replace(draft, file)


def _stale(one: str, mine: str) -> bool:
    """Whether they are the same but for the code."""
    return one.rpartition(", ")[0] == mine.rpartition(", ")[0]
