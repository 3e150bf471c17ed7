"""What the pages on adding an architecture and an instruction say of the source: all places, and rows that exist."""

from __future__ import annotations

import ast
import re

from tests.docs.pages import DOCS, ROOT, listings
from turingas.isa import table
from turingas.isa.arch import ALL, ARCHS

#: the number of an architecture, or a comparison of its name
ASKS = re.compile(
    r"""\bsm\b *(?:>=|<=|==|!=|>|<|in\b)|\.sm\b|\b(?:arch(?:\.name)?|ARCH)\b *(?:==|!=|(?:not )?in) *[("]+sm"""
    r"""|int\(arch(?:\.name)?\[|\.(?:major|minor) *(?:>=|<=|==|!=|>|<)"""
)
CLOCKS = ("loader/timing.py",)  # .sm is the clock of the SMs there
NUMBERS = {one.sm for one in ARCHS.values()}


def listed(text: str) -> bool:
    """Whether Python has a dict, or a list of another kind, of three or more numbers of architectures."""
    found: list[list[ast.expr | None]] = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Dict):
            found.append(node.keys)
        elif isinstance(node, (ast.Tuple, ast.List, ast.Set)):
            found.append([*node.elts])
    values = ([getattr(one, "value", None) for one in each] for each in found if len(each) > 2)
    return any(set(each) <= NUMBERS for each in values)


def test_all_places():
    """Nobody but isa/arch.py tells architectures apart; where the page sends its reader, there is a file."""
    page = (DOCS / "adding-an-architecture.md").read_text()
    assert all((ROOT / path).exists() for path in re.findall(r"`((?:turingas|tests)/[\w/.]+)`", page))
    asking = {
        path.relative_to(ROOT).as_posix()
        for folder in ("turingas", "loader", "kernels_sass")
        for path in [*(ROOT / folder).rglob("*.py"), *(ROOT / folder).rglob("*.sass")]
        if ASKS.search(re.sub(r"clocks?\.sm|after\.sm", "", uncommented(path.read_text())))
        or (path.suffix == ".py" and listed(path.read_text()))
    }
    assert asking - set(CLOCKS) == {"turingas/isa/arch.py"}
    assert ASKS.search("if facts.sm >= 90:") and ASKS.search('if arch in ("sm_86", "sm_90")')
    assert ASKS.search("return int(arch[3:5])") and ASKS.search("if gpu.major >= EARLY:")
    assert ASKS.search('if ARCH != "sm_90a":') and listed("UNITS = {70: 1, 75: 2, 80: 3}") and not listed("(70, 1, 80)")


def uncommented(text: str) -> str:
    """Without comments and docstrings."""
    return re.sub(r'#[^\n]*|""".*?"""', "", text, flags=re.S)


def test_rows_of_the_table():
    """Those that docs/adding-an-instruction.md shows are there."""
    [text] = [one.text for one in listings(DOCS / "adding-an-instruction.md") if one.text.startswith('("')]
    rows = eval(f"[{text}]", {"ALL": ALL})
    known = {(row.text, row.opcode, tuple(row.fixed.items()), row.archs) for row in table.ROWS}
    assert {(text, opcode, tuple(fixed.items()), archs) for text, opcode, fixed, archs in rows} <= known


def test_ops_of_the_table():
    """And so are the entries of OPS."""
    page = DOCS / "adding-an-instruction.md"
    [entries] = [one.text for one in listings(page) if one.text.lstrip().startswith('"FFMA": ')]
    source = "".join(path.read_text() for path in (ROOT / "turingas" / "isa" / "table").glob("*.py"))
    lines = [line.strip() for line in entries.splitlines() if line.strip()]
    assert len(lines) == 3 and all(line in source for line in lines)
