"""A GPU of sm_90 that is none, on which some kernels are the fastest wherever they may be taken."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kernels_sass.conv import host, tuned
from tests.loader.driver import Driver


def preferring(install: Callable[..., Driver], monkeypatch: pytest.MonkeyPatch, *kernels: str) -> Iterator[Driver]:
    """By host.py's model: ``kernels`` as STEP and JOB call them. What a fixture yields; no schedule is in a file."""
    for kernel in kernels:
        for times in (host.STEP, host.JOB):
            monkeypatch.setitem(times, kernel, 1e-3)
    monkeypatch.setattr(tuned, "path", lambda: Path("no such file"))
    host.fastest.cache_clear()
    yield install(Driver(major=9, minor=0))
    host.fastest.cache_clear()
