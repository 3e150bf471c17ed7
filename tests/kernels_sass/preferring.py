"""A GPU of sm_90 that is none, on which some kernels are the fastest wherever they may be taken."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kernels_sass.conv import cost, tuned
from kernels_sass.conv.method import Cost, kernels
from tests.loader.driver import Driver


def costs() -> dict[str, Cost]:
    """What the kernels of all methods cost, by name."""
    return {one.block.cost.name: one.block.cost for one in kernels()}


def costing(monkeypatch: pytest.MonkeyPatch, name: str, **us: float) -> None:
    """Kernels cost so much: ``step``, ``job``."""
    for what, time in us.items():
        monkeypatch.setattr(costs()[name], what, time)
    cost.fastest.cache_clear()


def preferring(install: Callable[..., Driver], monkeypatch: pytest.MonkeyPatch, *preferred: str) -> Iterator[Driver]:
    """By the costs of ``preferred``. What a fixture yields; no schedule is in a file."""
    for kernel in preferred:
        costing(monkeypatch, kernel, step=1e-3, job=1e-3)
    monkeypatch.setattr(tuned, "path", lambda: Path("no such file"))
    yield install(Driver(major=9, minor=0))
    cost.fastest.cache_clear()
