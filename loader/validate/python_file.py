"""A user's Python file: what it defines, and what goes wrong in it."""

from __future__ import annotations

import runpy
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from loader.cuda import CudaError
from loader.nvrtc import NvrtcError
from turingas.emulate.errors import DeviceError
from turingas.errors import LaunchError
from turingas.source.python import importing


def names_in(path: str | Path) -> dict[str, Any]:
    """What a Python file defines. It may import modules that lie beside it."""
    with blamed(path), importing([Path(path).absolute().parent]):
        return runpy.run_path(str(path))


@contextmanager
def blamed(path: str | Path) -> Iterator[None]:
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
