"""A page with both sides of a ``turingas.diff`` beside each other: one file, that loads nothing and has no script."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from html import escape
from itertools import groupby, zip_longest

from turingas.check.finding import Finding
from turingas.compare import COUNTS, Diff, FunctionDiff, Line, LoopChange, Row

NEAR = 3  # instructions around what changed; the others are folded
MOST = 1000  # changed instructions in a row that are paired by their mnemonics; of more, one by one
WORD = re.compile(r"[\w.$]+|\s+|.")

STYLE = """
:root {
  color-scheme: light dark; --paper: light-dark(#ffffff, #14171c); --raised: light-dark(#f5f6f8, #1c2027);
  --ink: light-dark(#1c2026, #dfe3ea); --dim: light-dark(#69707c, #8b94a3); --edge: light-dark(#dde1e7, #2e343e);
  --minus: light-dark(#ffebe9, #3b1a1c); --minus-word: light-dark(#ffc1bc, #7d2a2c);
  --plus: light-dark(#e6ffec, #12301d);
  --plus-word: light-dark(#abf2bc, #1f6a37); --code: light-dark(#fff8dc, #38300f);
  --worse: light-dark(#c4231c, #ff7b72);
  --better: light-dark(#1a7f4b, #56d08c);
}
* { box-sizing: border-box }
body { font: 14px/1.45 system-ui, "Segoe UI", Helvetica, Arial, sans-serif; margin: 0 16px 40px;
  background: var(--paper); color: var(--ink) }
h1 { font-size: 17px; overflow-wrap: anywhere } h1 small { color: var(--dim); font-weight: 400 }
table { border-collapse: collapse } th { text-align: left; color: var(--dim); font-weight: 400; font-size: 12px }
.facts { margin: 6px 18px 6px 0 } .facts td, .facts th { padding: 1px 14px 1px 0 }
.number { text-align: right; font-variant-numeric: tabular-nums } .worse { color: var(--worse) }
.better { color: var(--better) }
.wide { overflow-x: auto } .beside { display: flex; flex-wrap: wrap }
.code { font: 12px/18px ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace; width: 100%;
  min-width: 900px }
.code td { padding: 0 8px; white-space: pre; vertical-align: top }
.code .n { text-align: right; color: var(--dim); width: 1%; user-select: none }
.code .c { width: 1%; color: var(--dim) } .code .t { width: 48% }
.code th { position: sticky; top: 0; background: var(--raised); padding: 2px 8px }
.code td.b, .code th + th { border-left: 1px solid var(--edge) }
.minus { background: var(--minus) } .plus { background: var(--plus) }
.code .codes .c { background: var(--code); color: inherit }
.minus mark { background: var(--minus-word); color: inherit }
.plus mark { background: var(--plus-word); color: inherit }
.fold td { background: var(--raised); color: var(--dim); padding: 1px 8px } .fold label { cursor: pointer }
.fold input { vertical-align: -2px }
tbody:not(:has(input:checked)) > .folded { display: none }
details { border: 1px solid var(--edge); border-radius: 8px; margin: 10px 0; padding: 6px 12px }
summary { font-weight: 600; cursor: pointer; overflow-wrap: anywhere }
summary small { font-weight: 400; color: var(--dim) } ul { margin: 4px 0 8px; padding-left: 20px }
li small { color: var(--dim) }
.error b { color: var(--worse) } .warning b { color: light-dark(#a35b00, #e3a33a) }
"""


def page(diff: Diff) -> str:
    """The whole page."""
    a, b = (escape(name) for name in diff.names)
    archs = f"{diff.archs[0]} &rarr; {diff.archs[1]}" if diff.archs[0] != diff.archs[1] else diff.archs[0]
    body = "".join("".join(_function(one, n, (a, b))) for n, one in enumerate(diff.functions))
    return (
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<title>{a} and {b}</title><style>{STYLE}</style></head><body>"
        f"<h1>{a} &rarr; {b} <small>{archs}</small></h1>{_index(diff)}{body}</body></html>\n"
    )


def _index(diff: Diff) -> str:
    """All functions, with what counts."""
    rows = []
    for n, one in enumerate(diff.functions):
        cycles = [(x.a.alone, x.b.alone) for x in one.loops if x.a and x.b]
        cells = [f'<a href="#f{n}">{escape(one.name)}</a>', one.status, *(_change(*both) for both in one.counts)]
        loops = _change(*max(cycles, key=lambda both: both[1] - both[0])) if cycles else ""
        verdict = '<span class="worse">slower</span>' if one.slower else ""
        row = "".join(f'<td class="{"number" if k > 1 else ""}">{x}</td>' for k, x in enumerate([*cells, loops]))
        rows.append(f"<tr>{row}<td>{verdict}</td></tr>")
    names = ("function", "", *COUNTS, "cycles of the loop that got slowest", "by the model")
    heads = "".join(f"<th>{name}</th>" for name in names)
    return f'<div class="wide"><table class="facts"><tr>{heads}</tr>{"".join(rows)}</table></div>'


def _change(before: int | None, after: int | None) -> str:
    """Two numbers; coloured where they differ, since less is better of all that is shown."""
    if before is None or after is None or before == after:
        return str(after if before is None else before)
    return f'<span class="{"worse" if after > before else "better"}">{before} &rarr; {after}</span>'


def _function(one: FunctionDiff, number: int, names: tuple[str, str]) -> Iterator[str]:
    renamed = f", {escape(one.renamed)} in A" if one.renamed else ""
    unfolded = " open" if one.status == "changed" else ""
    said = f"{escape(one.name)} <small>{one.status}{renamed}</small>"
    yield f'<details id="f{number}"{unfolded}><summary>{said}</summary>'
    yield '<div class="beside">'
    if one.resources:
        rows = (f'<tr><td>{name}</td><td class="number">{_change(*x)}</td></tr>' for name, x in one.resources.items())
        yield f'<table class="facts"><tr><th colspan="2">resources</th></tr>{"".join(rows)}</table>'
    if one.loops:
        yield f'<table class="facts">{"".join(_loops(one.loops))}</table>'
    yield "</div>"
    if one.added or one.removed:
        yield f"<ul>{_findings('new', one.added)}{_findings('gone', one.removed)}</ul>"
    if one.rows:
        yield '<div class="wide"><table class="code">'
        yield "<tr>" + "".join(f'<th colspan="3">{name}</th>' for name in names) + "</tr>"
        yield from _listing(one.rows)
        yield "</table></div>"
    yield "</details>"


def _loops(loops: Sequence[LoopChange]) -> Iterator[str]:
    heads = ("loop", "cycles of one warp", "of many", "bound by")
    yield "<tr>" + "".join(f"<th>{head}</th>" for head in heads) + "</tr>"
    for loop in loops:
        one = loop.b or loop.a
        assert one is not None
        only = "" if loop.a and loop.b else f" (only in {'B' if loop.b else 'A'})"
        both = (loop.a or one, loop.b or one)
        bound = " &rarr; ".join(escape(x) for x in dict.fromkeys(x.bound for x in both))
        yield (
            f"<tr><td>0x{one.start:04x}, depth {one.depth}{only}</td>"
            f'<td class="number">{_change(both[0].alone, both[1].alone)}</td>'
            f'<td class="number">{_change(both[0].least, both[1].least)}</td><td>{bound}</td></tr>'
        )


def _findings(what: str, findings: Sequence[Finding]) -> str:
    return "".join(
        f'<li class="{one.severity}">{what} <b>{one.severity}</b> 0x{one.address:04x}: {escape(one.message)}'
        f" <small>{one.kind}</small></li>"
        for one in findings
    )


def _listing(rows: Sequence[Row]) -> Iterator[str]:
    """What changed and what is near it; the rest is folded."""
    near = [any(x.how != "=" for x in rows[max(n - NEAR, 0) : n + NEAR + 1]) for n in range(len(rows))]
    for shown, group in groupby(range(len(rows)), near.__getitem__):
        part = [rows[n] for n in group]
        yield "<tbody>"
        if not shown:
            yield f'<tr class="fold"><td colspan="6"><label><input type="checkbox"> {len(part)} alike</label></td></tr>'
        for one, other, changed in paired(part):
            yield _row(one, other, changed, "" if shown else "folded")
        yield "</tbody>"


def paired(rows: Sequence[Row]) -> Iterator[tuple[Line | None, Line | None, bool]]:
    """What stands beside each other, and whether it changed: of instructions that only one side has, in a row, those of
    one mnemonic."""
    for changed, group in groupby(rows, lambda row: row.how in "-+"):
        part = list(group)
        if not changed:
            yield from ((row.a, row.b, False) for row in part)
            continue
        minus = [row.a for row in part if row.a]
        plus = [row.b for row in part if row.b]
        n = m = 0
        for i, j, size in _alike(minus, plus):
            yield from ((x, y, True) for x, y in zip_longest(minus[n:i], plus[m:j]))
            yield from ((x, y, True) for x, y in zip(minus[i : i + size], plus[j : j + size]))
            n, m = i + size, j + size


def _alike(minus: Sequence[Line], plus: Sequence[Line]) -> list[tuple[int, int, int]]:
    """Runs of the same mnemonics, and the end of both."""
    end = (len(minus), len(plus), 0)
    if max(end) > MOST:
        return [end]
    one, other = ([_mnemonic(line) for line in side] for side in (minus, plus))
    return [(i, j, size) for i, j, size in SequenceMatcher(None, one, other, autojunk=False).get_matching_blocks()]


def _mnemonic(line: Line) -> str:
    return re.sub(r"^@\S+ ", "", line.text).partition(" ")[0].partition(".")[0]


def _row(a: Line | None, b: Line | None, changed: bool, more: str) -> str:
    left, right = (escape(line.text) if line else "" for line in (a, b))
    if changed and a and b and _mnemonic(a) == _mnemonic(b):
        left, right = _marked(a.text, b.text)
    codes = "codes" if a and b and a.control != b.control else ""
    cells = _cells(a, left, "a", "minus" * changed) + _cells(b, right, "b", "plus" * changed)
    return f'<tr class="{" ".join(filter(None, [more, codes]))}">{cells}</tr>'


def _marked(a: str, b: str) -> tuple[str, str]:
    """Both texts, with the words that differ marked."""
    one, other = WORD.findall(a), WORD.findall(b)
    out: tuple[list[str], list[str]] = ([], [])
    for tag, i, j, k, m in SequenceMatcher(None, one, other, autojunk=False).get_opcodes():
        for to, part in ((out[0], one[i:j]), (out[1], other[k:m])):
            text = escape("".join(part))
            to.append(f"<mark>{text}</mark>" if text and tag != "equal" else text)
    return "".join(out[0]), "".join(out[1])


def _cells(line: Line | None, text: str, side: str, how: str) -> str:
    if line is None:
        return f'<td class="n {side}"></td><td></td><td></td>'
    how = f" {how}".rstrip()
    code = f'<td class="c{how}">{line.control}</td><td class="t{how}">{text}</td>'
    return f'<td class="n {side}">{line.address:04x}</td>{code}'
