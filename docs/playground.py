"""What docs/try.md asks of turingas. It runs in the reader's browser, in Pyodide: docs/assets/try/worker.js calls it.

Each function takes plain values and gives JSON. A source is called FILE; what it includes lies in FOLDER.
"""

from __future__ import annotations

import base64
import json
import warnings
from pathlib import Path
from typing import Any

from turingas.assembler.assembler import assemble
from turingas.assembler.schedule import listing
from turingas.check.lint import LEFT_OUT
from turingas.check.loops import summary
from turingas.cubin.cubin import Cubin
from turingas.disassembler import disassemble
from turingas.editor.analysis import Analysis, Problem, Settings
from turingas.editor.show import hover as told_at
from turingas.errors import AsmError, CubinError
from turingas.flow.graph import Graph
from turingas.isa import control
from turingas.isa.arch import ARCHS, WORD_BYTES
from turingas.version import __version__

FILE = "kernel.sass"
FOLDER = str(Path(__file__).parent / "included")
REFUSED = "the button above runs it, in a worker of this page; do that if you trust where the source comes from"

_last: tuple[tuple[str, str, bool], Analysis] | None = None


def about() -> str:
    """What this is: ``version``, ``archs``, and ``left_out``, the linter's rules that need numpy."""
    return json.dumps({"version": __version__, "archs": list(ARCHS), "left_out": LEFT_OUT})


def look(source: str, arch: str, python: bool) -> str:
    """``problems`` of a source, and, where it assembles, its ``kernels`` with a row an instruction and a line a loop.
    ``arch`` is the one that it was assembled for; ``python``: whether its inline Python is run; ``refused``: whether it
    has some that was not."""
    a = _analysis(source, arch, python)
    problems = [_problem(one) for one in a.problems]
    kernels = [
        {
            "name": graph.kernel.name,
            "rows": [_row(graph, n, word) for n, word in enumerate(graph.kernel.words)],
            "loops": [str(loop) for loop in summary(graph)],
        }
        for graph in a.graphs
    ]
    refused = any(one["severity"] == "hint" for one in problems)
    return json.dumps({"arch": a.text.arch, "problems": problems, "kernels": kernels, "refused": refused})


def hover(source: str, arch: str, python: bool, line: int, column: int) -> str:
    """What is told (Markdown) of the word at a place, counted from 0; if nothing, of the instruction there or above."""
    a = _analysis(source, arch, python)
    text = told_at(a, line, column)
    while 0 < line < len(a.text.lines) and not text and a.text.lines[line].kind == "blank":
        line -= 1
    if not text and line < len(a.text.lines) and (head := a.text.lines[line].head):
        text = told_at(a, line, head.start(6))
    return json.dumps(text)


def schedule(source: str, arch: str, python: bool, anew: bool) -> str:
    """The ``text`` of a source with the control codes that are missing, or, ``anew``, with all codes made by the
    scheduler; and ``notes``. Or ``problem``: why not."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            text, notes = listing(source, arch, None, (FOLDER,), FILE, allow_python=python, keep=not anew)
    except AsmError as error:
        return json.dumps({"problem": str(error)})
    return json.dumps({"text": text, "notes": notes})


def cubin(source: str, arch: str, python: bool) -> str:
    """The cubin of a source in Base64, ``data``; or ``problem``."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            made = assemble(source, arch, include=(FOLDER,), filename=FILE, allow_python=python)
    except AsmError as error:
        return json.dumps({"problem": str(error)})
    return json.dumps({"data": base64.b64encode(made.to_bytes()).decode()})


def taken_apart(data: Any) -> str:
    """The ``text`` of a cubin (the bytes of one) and its ``arch``; or ``problem``."""
    try:
        found = Cubin.from_bytes(bytes(data))
        return json.dumps({"text": disassemble(found), "arch": found.arch})
    except CubinError as error:
        return json.dumps({"problem": str(error)})


def _analysis(source: str, arch: str, python: bool) -> Analysis:
    global _last
    key = source, arch, python
    if _last is None or _last[0] != key:
        _last = key, Analysis(source, FILE, Settings(arch, python, (FOLDER,)))
    return _last[1]


def _problem(one: Problem) -> dict[str, Any]:
    hint = REFUSED if one.severity == "hint" else "" if one.kind == "left-out" else one.hint  # the page says why
    other = {"line": one.other[0], "text": one.other[1]} if one.other else None
    place = {"line": one.at.line, "start": one.at.start, "end": one.at.end}
    return {**place, "severity": one.severity, "message": one.message, "kind": one.kind, "hint": hint, "other": other}


def _row(graph: Graph, n: int, word: int) -> dict[str, Any]:
    """``line`` is -1 where the instruction stands in no line of the source; no ``code`` where the word is none that is
    known."""
    file, line = graph.source(n)
    known = graph.instructions[n] is not None
    return {
        "address": f"{WORD_BYTES * n:04x}", "word": f"{word:032x}", "text": graph.text(n),
        "code": control.show(word).split(":") if known else [], "line": line - 1 if file == FILE else -1,
    }  # fmt: skip
