"""A finding at an instruction of a graph, or on a kernel as a whole: what the checks make of what they find."""

from __future__ import annotations

from turingas.check.finding import Finding
from turingas.flow.graph import Graph
from turingas.isa.arch import WORD_BYTES


def at(
    graph: Graph, n: int, kind: str, severity: str, message: str, hint: str = "", other: int | None = None
) -> Finding:
    """A finding at instruction ``n``; ``other`` is the second instruction that it concerns."""
    file, line = graph.source(n)
    return Finding(
        kind=kind,
        severity=severity,
        message=message,
        kernel=graph.kernel.name,
        address=WORD_BYTES * n,
        text=graph.text(n),
        file=file,
        line=line,
        other=None if other is None else WORD_BYTES * other,
        other_line=0 if other is None else graph.source(other)[1],
        other_text="" if other is None else graph.text(other),
        hint=hint,
    )


def of_kernel(graph: Graph, kind: str, severity: str, message: str, hint: str = "") -> Finding:
    """A finding on a kernel as a whole; it stands at its first instruction."""
    file, line = graph.source(0) if graph.instructions else (graph.file, 0)
    return Finding(kind, severity, message, graph.kernel.name, 0, "", file, line, hint=hint)
