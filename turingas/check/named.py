"""Findings in the author's words: the names of registers that the source gives them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace

from turingas.check.finding import Finding

_REGISTER = re.compile(r"\bU?(?:R\d+|P\d)\b")


def named(findings: Iterable[Finding], names: Mapping[str, str]) -> list[Finding]:
    """The same findings: instructions with the names, messages and hints with both (``lo (R25)``)."""
    if not names:
        return list(findings)

    def plain(text: str) -> str:
        return _REGISTER.sub(lambda found: names.get(found[0], found[0]), text)

    def both(text: str) -> str:
        return _REGISTER.sub(lambda found: f"{names[found[0]]} ({found[0]})" if found[0] in names else found[0], text)

    return [
        replace(f, message=both(f.message), hint=both(f.hint), text=plain(f.text), other_text=plain(f.other_text))
        for f in findings
    ]
