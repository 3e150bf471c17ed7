"""Whether ``loader`` and ``kernels_sass`` are the packages that came with this one: their names are common ones."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

HOME = Path(__file__).resolve().parents[1]
INCLUDES = re.compile(r'^\.include "(.+)"', re.MULTILINE)
OURS = tuple(f"{HOME / name}{os.sep}" for name in ("turingas", "loader", "kernels_sass"))


def callers_level() -> int:
    """The ``stacklevel`` with which a warning names the line that called into these packages."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and os.path.realpath(frame.f_code.co_filename).startswith(OURS):
        level, frame = level + 1, frame.f_back
    return level


def check(*names: str) -> None:
    """ImportError, with the file, if another module has the name of one of ours, or is imported under it already."""
    for name in names:
        module = sys.modules.get(name)
        # all finders are asked: that of an editable installation is none of sys.path
        spec = getattr(module, "__spec__", None) if module else find_spec(name)
        found = getattr(module, "__file__", None) or (spec.origin if spec else None)
        ours = HOME / name / "__init__.py"
        if found is None or Path(found).resolve() != ours:
            where = f"{found} is" if found else "nothing, or a folder without __init__.py, is"
            raise ImportError(
                f"{where} what Python imports as {name!r}, and not TuringAs's package of that name, {ours}; rename "
                "that file, or keep its folder off the path: `python -P` leaves out the script's",
                name=name, path=found,
            )  # fmt: skip


def bundled() -> list[Path]:
    """The sources of kernels that come with the package, those that only others include not among them."""
    check("kernels_sass")
    found = sorted((HOME / "kernels_sass").rglob("*.sass"))
    included = {path.parent / name for path in found for name in INCLUDES.findall(path.read_text("utf-8"))}
    return [path for path in found if path not in included]


def about(path: Path) -> str:
    """The first sentence of a source."""
    lines = itertools.takewhile(lambda line: line.startswith("# "), path.read_text("utf-8").splitlines())
    return re.split(r"(?<=[\w)])\.(?= |$)", " ".join(line[1:].strip() for line in lines))[0]


def copy(folder: Path) -> None:
    """All of ``kernels_sass`` but results, as ``folder``, which must not be there: kernels with what they include."""
    check("kernels_sass")
    leave = shutil.ignore_patterns("__pycache__", "results")
    shutil.copytree(HOME / "kernels_sass", folder, ignore=leave)
