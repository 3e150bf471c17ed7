"""docs/adding-an-architecture.md names all that asks for an architecture; docs/architecture.md all rooms."""

from __future__ import annotations

import re

from tests.docs.pages import DOCS, ROOT

ASKS = re.compile(r"""\bsm\b\ *(?:>=|<=|==|>|<|in)\ *[(\d]|^[A-Z, ]+=.*(?:"sm_89"|\b199\b|\(89,)""", re.M)


def test_all_places():
    page = (DOCS / "adding-an-architecture.md").read_text()
    named = re.findall(r"`(turingas/[\w/.]+)`", page)
    assert all((ROOT / path).exists() for path in named)
    asking = [
        path.relative_to(ROOT).as_posix() for path in (ROOT / "turingas").rglob("*.py") if ASKS.search(path.read_text())
    ]
    assert len(asking) > 10
    assert not [path for path in asking if not any(path.startswith(name) for name in named)]
