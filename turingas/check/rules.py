"""The rules of the linter: each check registers itself, with the kinds of what it finds.

    @rule("bank-conflict", "An instruction reads several registers of one bank")
    def check(graph: Graph) -> Iterator[Finding]: ...

lint.py imports the modules that do so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from turingas.check.finding import Finding
from turingas.flow.graph import Graph

Check = Callable[[Graph], Iterator[Finding]]

CHECKS: list[Check] = []
#: what each kind of finding is, in a line
RULES: dict[str, str] = {}


def rule(kind: str, summary: str) -> Callable[[Check], Check]:
    """Makes a function one of the linter's checks, which gives findings of this kind; several kinds, several times."""
    if kind in RULES:
        raise ValueError(f"there are two rules called {kind!r}")
    RULES[kind] = summary

    def register(check: Check) -> Check:
        if check not in CHECKS:
            CHECKS.append(check)
        return check

    return register
