"""What the pages on adding an architecture and an instruction say of the source: all places, and rows that exist."""

from __future__ import annotations

import re

from tests.docs.pages import DOCS, ROOT, listings
from turingas.isa import table
from turingas.isa.grammar import ALL

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


def test_rows_of_the_table():
    """Those that docs/adding-an-instruction.md shows are there."""
    [text] = [one.text for one in listings(DOCS / "adding-an-instruction.md") if one.text.startswith('("')]
    rows = eval(f"[{text}]", {"ALL": ALL})
    known = {(row.text, row.opcode, tuple(row.fixed.items()), row.first, row.last) for row in table.ROWS}
    assert {(text, opcode, tuple(fixed.items()), *archs) for text, opcode, fixed, archs in rows} <= known


def test_ops_of_the_table():
    """And so are the entries of OPS."""
    page = DOCS / "adding-an-instruction.md"
    [entries] = [one.text for one in listings(page) if one.text.lstrip().startswith('"FFMA": ')]
    source = "".join(path.read_text() for path in (ROOT / "turingas" / "isa" / "table").glob("*.py"))
    lines = [line.strip() for line in entries.splitlines() if line.strip()]
    assert len(lines) == 3 and all(line in source for line in lines)
