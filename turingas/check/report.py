"""From a check to the reader: a finding at an instruction of a graph, and the text that `turingas lint` prints."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from turingas.check.finding import SEVERITIES, Finding
from turingas.check.flow import Graph
from turingas.program import WORD_BYTES

NOTES = 8  # notes of one kind and kernel that are printed when nobody asked for all


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


def at_least(findings: Iterable[Finding], severity: str) -> list[Finding]:
    """Those that are as severe as ``severity``, or more."""
    return [finding for finding in findings if SEVERITIES.index(finding.severity) <= SEVERITIES.index(severity)]


def fails(findings: Iterable[Finding]) -> bool:
    """Whether `turingas lint` exits with 1: there is an error or a warning."""
    return bool(at_least(findings, "warning"))


def lines(findings: Iterable[Finding], every_note: bool) -> Iterator[str]:
    """The findings as text. Of the notes of one kind in a kernel only the first few, unless ``every_note``."""
    seen: Counter[tuple[str, str]] = Counter()
    for finding in findings:
        if finding.severity == "note" and not every_note:
            seen[finding.kernel, finding.kind] += 1
            if seen[finding.kernel, finding.kind] > NOTES:
                continue
        yield str(finding)
    for (kernel, kind), count in seen.items():
        if count > NOTES:
            yield f"{kernel}: {count - NOTES} more of [{kind}]; --severity note shows all"


def total(findings: Iterable[Finding]) -> str:
    """How many there are: ``1 error, 2 warnings, 10 notes``."""
    counts = Counter(finding.severity for finding in findings)
    return ", ".join(f"{counts[name]} {name}{'' if counts[name] == 1 else 's'}" for name in SEVERITIES if counts[name])
