"""What `turingas lint` does with a file, and the text that it prints."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from turingas.check.finding import SEVERITIES, Finding
from turingas.check.lint import lint_graph
from turingas.check.loops import LoopSummary, summary
from turingas.cubin.cubin import Cubin
from turingas.errors import AsmError
from turingas.flow.graph import Graph

NOTES = 8  # of one kind and kernel: so many are printed when nobody asked for all


@dataclass
class Report:
    """What is said of one file."""

    file: str
    findings: list[Finding] = field(default_factory=list)
    loops: list[LoopSummary] = field(default_factory=list)


def look(cubin: Cubin, file: str, kernel: str | None = None) -> Report:
    """Findings and loops of a cubin, or of the kernel called ``kernel`` alone. ``file`` is shown where the source lines
    are not known. Raises AsmError if there is no such kernel."""
    texts = [text for text in cubin.texts if kernel in (None, text.name)]
    if kernel is not None and not texts:
        names = ", ".join(text.name for text in cubin.texts)
        raise AsmError(f"there is no kernel {kernel!r}", file, hint=f"there are: {names}")
    report = Report(file)
    for text in texts:
        graph = Graph(text, file)
        report.findings += lint_graph(graph)
        report.loops += summary(graph)
    return report


def at_least(findings: Iterable[Finding], severity: str) -> list[Finding]:
    """Those that are as severe as ``severity``, or more."""
    return [finding for finding in findings if SEVERITIES.index(finding.severity) <= SEVERITIES.index(severity)]


def fails(reports: Iterable[Report]) -> bool:
    """Whether `turingas lint` exits with 1: there is an error or a warning."""
    return any(at_least(report.findings, "warning") for report in reports)


def lines(report: Report, severity: str | None, loops: bool) -> Iterator[str]:
    """A report as text. ``severity`` is the least that is shown; None: everything, but of the notes of one kind in a
    kernel only the first ``NOTES``."""
    seen: Counter[tuple[str, str]] = Counter()
    for finding in at_least(report.findings, severity or "note"):
        if finding.severity == "note" and severity is None:
            seen[finding.kernel, finding.kind] += 1
            if seen[finding.kernel, finding.kind] > NOTES:
                continue
        yield str(finding)
    for (kernel, kind), count in seen.items():
        if count > NOTES:
            yield f"{report.file}: {kernel}: {count - NOTES} more notes [{kind}]; --severity note shows them"
    for loop in report.loops if loops else ():
        yield f"{report.file}: {loop}"
    yield f"{report.file}: {total(report.findings)}"


def total(findings: Iterable[Finding]) -> str:
    """How many there are: ``1 error, 2 warnings, 10 notes``."""
    counts = Counter(finding.severity for finding in findings)
    found = [f"{counts[name]} {name}{'' if counts[name] == 1 else 's'}" for name in SEVERITIES if counts[name]]
    return ", ".join(found) or "no findings"
