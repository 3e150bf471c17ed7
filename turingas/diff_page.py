"""A page with both sides of a ``turingas.diff`` beside each other: one file, that loads nothing."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from turingas.compare import Diff, FunctionDiff, Line, Row

NEAR = 3  # instructions around what changed; the others are folded

STYLE = """
:root { color-scheme: light dark }
body { font: 14px system-ui, sans-serif; margin: 1em }
table { border-collapse: collapse; font: 12px monospace }
td { padding: 0 .6em; white-space: pre; vertical-align: top }
td.n { text-align: right; opacity: .6 }
tr.minus td.a, li.minus { background: light-dark(#ffe0e0, #5a2020) }
tr.plus td.b, li.plus { background: light-dark(#dcffe0, #1d4a26) }
tr.code td { background: light-dark(#fff6d0, #4a4010) }
tr.fold td { opacity: .6; text-align: center }
summary { font-weight: bold; cursor: pointer; margin-top: 1em }
.wide { overflow-x: auto }
"""
CLASSES = {"-": "minus", "+": "plus", "~": "code", "=": ""}


def page(diff: Diff) -> str:
    """The whole page."""
    a, b = (escape(name) for name in diff.names)
    body = "".join("".join(_function(one)) for one in diff.functions)
    archs = f"{diff.archs[0]} / {diff.archs[1]}" if diff.archs[0] != diff.archs[1] else diff.archs[0]
    return (
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{a} and {b}</title><style>{STYLE}</style></head><body>"
        f"<h1>{a} &rarr; {b}</h1><p>{archs}</p>{body}</body></html>\n"
    )


def _function(one: FunctionDiff) -> Iterator[str]:
    renamed = f", {escape(one.renamed)} in A" if one.renamed else ""
    unfolded = " open" if one.status == "changed" else ""
    yield f"<details{unfolded}><summary>{escape(one.name)}: {one.status}{renamed}</summary>"
    yield "<ul>"
    for name, (before, after) in one.resources.items():
        yield f'<li class="{"plus" if after < before else "minus"}">{name}: {before} &rarr; {after}</li>'
    for loop in one.loops:
        yield f'<li class="{"minus" if loop.slower else "plus"}">{escape(str(loop))}</li>'
    for what, findings in (("new", one.added), ("gone", one.removed)):
        for finding in findings:
            said = f"{finding.severity}: 0x{finding.address:04x}: {escape(finding.message)} [{finding.kind}]"
            yield f"<li>{what} {said}</li>"
    yield '</ul><div class="wide"><table>'
    folded = 0
    for n, row in enumerate(one.rows):
        if all(near.how == "=" for near in one.rows[max(n - NEAR, 0) : n + NEAR + 1]):
            folded += 1
            continue
        yield _fold(folded)
        folded = 0
        yield _row(row)
    yield f"{_fold(folded)}</table></div></details>"


def _fold(count: int) -> str:
    return f'<tr class="fold"><td colspan="6">{count} alike</td></tr>' if count else ""


def _row(row: Row) -> str:
    return f'<tr class="{CLASSES[row.how]}">{_cells(row.a, "a")}{_cells(row.b, "b")}</tr>'


def _cells(line: Line | None, side: str) -> str:
    if line is None:
        return '<td class="n"></td><td></td><td></td>'
    return (
        f'<td class="n">{line.address:04x}</td><td class="{side}">{line.control}</td>'
        f'<td class="{side}">{escape(line.text)}</td>'
    )
