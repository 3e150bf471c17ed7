"""How kernels run in tests: for which architecture, and what is looked for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import Any


@dataclass(frozen=True)
class Settings:
    """``arch``: what kernels are compiled for. ``strict``, ``races``, ``written``, ``stale``: modes of the CPU device,
    as `turingas run` has them. ``budget``: instructions that a warp may run."""

    arch: str = "sm_80"
    strict: bool = False
    races: bool | str = False
    written: bool = False
    stale: bool = False
    budget: int = 1_000_000

    def options(self) -> dict[str, Any]:
        """Those of a launch."""
        return {one.name: getattr(self, one.name) for one in fields(self) if one.name != "arch"}


_now = [Settings()]


def current() -> Settings:
    """The settings that hold now."""
    return _now[-1]


@contextmanager
def using(**changes: Any) -> Iterator[Settings]:
    """Other settings for a while: ``with using(arch="sm_90", races=True): ...``; TypeError for an unknown one."""
    _now.append(replace(current(), **changes))
    try:
        yield current()
    finally:
        _now.pop()
