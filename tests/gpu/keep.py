"""What tests on a GPU find out, in a file that the environment names: after each test, so that a run that is cut short
leaves what it knows, and from several processes (pytest -n 12) into one file."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from loader.bench import results


def keep(
    variable: str,
    head: Callable[[], dict[str, Any]],
    found: Mapping[str, Any],
    arrays: Mapping[str, np.ndarray[Any, Any]] | None = None,
) -> None:
    """Beside what is in the file that ``variable`` names, if it names one; ``head``: what a new file begins with.
    Tables in ``found`` are sorted by name. ``arrays`` go into a file beside it, with .npz behind the name."""
    if not (named := os.environ.get(variable)):
        return
    path, beside = Path(named), Path(named + ".npz")
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(named + ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        kept = json.loads(path.read_text()) if path.exists() else head()
        for name, value in found.items():
            if isinstance(value, Mapping):
                value = dict(sorted({**kept.get(name, {}), **value}.items()))
            kept[name] = value
        results.keep(path, kept)
        if arrays:
            before = dict(np.load(beside)) if beside.exists() else {}
            np.savez_compressed(beside, **{**before, **arrays})  # type: ignore[arg-type]
