"""Hazards of data and of scoreboards."""

from __future__ import annotations

from collections.abc import Iterator

from turingas.check.finding import Finding
from turingas.check.flow import Graph


def check(graph: Graph) -> Iterator[Finding]:
    """The hazards of a kernel."""
    yield from ()
