"""What the assembler, the linter and the scheduler say of a source, by its lines (from 0)."""

from __future__ import annotations

import functools
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from turingas.assembler.assembler import Assembler, parsed
from turingas.assembler.schedule import listing
from turingas.check.finding import Finding
from turingas.check.lint import lint_graph
from turingas.editor.text import Span, Text
from turingas.errors import UNNAMED, AsmError
from turingas.flow.graph import Graph
from turingas.flow.live import Lives
from turingas.isa import banks, control
from turingas.isa.arch import arch as facts
from turingas.isa.instruction import Instruction
from turingas.source.lines import split_text

MEANT = re.compile(r"did you mean (?:'([^']+)'|(\S+?))\?")
REFUSED = "is refused"  # of inline Python
SECONDS_OF_CODE = 4000  # instructions: of longer kernels the scheduler is not asked while somebody types


@dataclass(frozen=True)
class Settings:
    """How sources are read. ``python``: whether their inline Python is run, which is to run programs of whoever wrote
    them."""

    arch: str = "sm_75"
    python: bool = False
    include: tuple[str, ...] = ()
    defines: Mapping[str, Any] = field(default_factory=dict)


class Problem(NamedTuple):
    """A diagnostic. ``severity``: error, warning, note or hint; ``kind``: the linter's rule; ``other``: the line of a
    second instruction, with its text."""

    at: Span
    severity: str
    message: str
    kind: str = ""
    hint: str = ""
    other: tuple[int, str] | None = None
    finding: Finding | None = None


class Place(NamedTuple):
    """An instruction of a line."""

    graph: Graph
    n: int

    @property
    def instruction(self) -> Instruction | None:
        return self.graph.instructions[self.n]

    @property
    def word(self) -> int:
        return self.graph.kernel.words[self.n]


class Analysis:
    """``source`` of the file ``file`` ("" if it has none), read as ``settings`` say. Nothing is raised."""

    def __init__(self, source: str, file: str = "", settings: Settings | None = None) -> None:
        self.source, self.file, self.settings = source, file or "<editor>", settings or Settings()
        self.text = Text(source, self.settings.arch)
        self.errors: list[AsmError] = []
        self.warned: list[AsmError] = []
        self.graphs: list[Graph] = []
        self.at: dict[int, list[Place]] = {}
        self._assemble()

    def _assembler(self, source: str, keep: bool = True) -> Assembler:
        s = self.settings
        read = parsed(source, s.arch, s.defines, s.include, self.file, "kern", s.python, None)
        return Assembler(*read, keep)

    def _assemble(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assembler = None
            try:
                assembler = self._assembler(self.source)
                cubin = assembler.run()
            except AsmError as error:
                self.errors = error.errors
            except RecursionError:
                self.errors = [AsmError("this is nested too deep", self.file, 1)]
            if assembler is not None:
                self.warned = [warning.about for warning in assembler.warnings]
        if self.errors:
            return
        self.graphs = [Graph(kernel, self.file) for kernel in cubin.texts]
        for graph in self.graphs:
            for n in range(len(graph.instructions)):
                file, line = graph.source(n)
                if line and file == self.file:
                    self.at.setdefault(line - 1, []).append(Place(graph, n))

    # -- what is wrong

    @functools.cached_property
    def findings(self) -> list[Finding]:
        """What the linter says; nothing of a source that does not assemble."""
        return [finding for graph in self.graphs for finding in lint_graph(graph)]

    @functools.cached_property
    def problems(self) -> list[Problem]:
        """Everything that is underlined."""
        found = [self._problem(error, "error") for error in self.errors]
        found += [self._problem(error, "warning") for error in self.warned]
        for one in self.findings:
            here = one.file == self.file and one.line
            line = one.line - 1 if here else 0
            other = (one.other_line - 1, one.other_text) if one.other is not None and one.other_line else None
            message = one.message if here else f"{one.file}: {one.message}"
            found.append(Problem(self._whole(line), one.severity, message, one.kind, one.hint, other, one))
        return found

    def _whole(self, line: int) -> Span:
        """A line without its margins and comments."""
        line = min(line, len(self.text.lines) - 1)
        plain = self.text.lines[line].plain
        return Span(line, len(plain) - len(plain.lstrip()), max(len(plain.rstrip()), 1))

    def _problem(self, error: AsmError, severity: str) -> Problem:
        message = error.message
        if error.file not in (self.file, UNNAMED):  # of a file that is included
            name = error.file.rpartition("/")[2]
            rows = (n for n, raw in enumerate(self.text.raw) if ".include" in raw and name in raw)
            at = self._whole(next(rows, 0))
            return Problem(at, severity, f"{error.file}:{error.line}: {message}", hint=error.hint)
        line = max(error.line - 1, 0)
        at = self._whole(line)
        if error.column and line == at.line:
            raw = self.text.raw[line]
            word = re.compile(r"[\w.$]+|\S").match(raw, min(error.column - 1, len(raw)))
            at = Span(line, *word.span()) if word else at
        if REFUSED in message and not self.settings.python:
            hint = "an editor runs none unless its settings allow it (allowPython); `turingas assemble` runs it"
            return Problem(at, "hint", "inline Python is not run here, so what it makes is not looked at", "", hint)
        return Problem(at, severity, message, hint=error.hint)

    # -- what is told beside the lines

    @functools.cached_property
    def scheduled(self) -> dict[int, str]:
        """The control codes that the scheduler would give, by lines that are one instruction."""
        if self.errors or sum(len(graph.instructions) for graph in self.graphs) > SECONDS_OF_CODE:
            return {}
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                assembler = self._assembler(self.source, keep=False)
                assembler.run()
        except AsmError:
            return {}
        found: dict[int, list[str]] = {}
        for draft in assembler.drafts:
            for item, word in zip(draft.lines, draft.kernel.words):
                if not isinstance(item, int) and item.origin.file == self.file:
                    found.setdefault(item.origin.line - 1, []).append(control.show(word))
        return {line: codes[0] for line, codes in found.items() if len(codes) == 1}

    @functools.cached_property
    def lives(self) -> dict[int, Lives]:
        """Life ranges of each kernel, by ``id`` of its graph; none where latencies are not known."""
        found = {}
        for graph in self.graphs:
            try:
                found[id(graph)] = Lives(graph)
            except AsmError:
                continue
        return found

    @functools.cached_property
    def conflicts(self) -> dict[tuple[int, int], int]:
        """Cycles lost to register banks: (``id`` of the graph, instruction) -> cycles."""
        found = {}
        for graph in self.graphs:
            arch = facts(graph.kernel.arch)
            for block in graph.blocks:
                known = [n for n in range(block.start, block.end) if graph.instructions[n] is not None]
                walked = banks.walk(graph.instructions[block.start : block.end], arch)
                for n, (_, _, cycles) in zip(known, walked):
                    if cycles:
                        found[id(graph), n] = cycles
        return found

    def only(self, line: int) -> Place | None:
        """The instruction of a line that is one."""
        places = self.at.get(line, [])
        return places[0] if len(places) == 1 else None

    def beside(self, line: int) -> tuple[str, str]:
        """What is shown in a line: in front, the control code that is filled in where there is none; behind it, the
        stall that the scheduler would give instead of the one that is given, the registers that live there, and the
        cycles that register banks cost."""
        place, row = self.only(line), self.text.lines[line]
        if place is None or row.head is None:
            return "", ""
        given = row.head[2]
        front = "" if given else control.show(place.word)
        behind = []
        code = self.scheduled.get(line)
        if given and code and place.instruction is not None:
            stall = int(code.split(":")[4], 16)
            if stall != place.instruction.control.stall:
                behind.append(f"scheduler: stall {stall}")
        lives = self.lives.get(id(place.graph))
        if lives is not None:
            behind.append(f"{lives.held(place.n)} live")
        if cycles := self.conflicts.get((id(place.graph), place.n)):
            behind.append(f"bank +{cycles}")
        return front, " · ".join(behind)

    # -- what mends it

    def meant(self, problem: Problem) -> str:
        """The word that a hint proposes for the one at the problem."""
        found = MEANT.search(problem.hint)
        return (found[1] or found[2]) if found else ""

    def mended(self, findings: Sequence[Finding]) -> list[tuple[int, str]]:
        """Lines and their new text, with which the linter has these findings no more and no others instead: the
        scheduler fills in parts of control codes that stand in the way of it. Nothing if that does not help."""
        if self.text.has_python() or any(one.file != self.file or not one.line for one in findings):
            return []
        both = {line - 1 for one in findings for line in (one.line, one.other_line) if line}
        between: set[int] = set()
        for one in findings:
            here, other = one.line - 1, (one.other_line or one.line) - 1
            between.update(range(min(here, other), max(here, other)), [other])
        readers = {one.line - 1 for one in findings}
        gone = {(one.kind, one.line, one.severity) for one in findings}
        before = {(one.kind, one.line, one.severity) for one in self.findings}
        for lines in (dict.fromkeys(readers, "w"), dict.fromkeys(between, "ys"),
                      {n: "ys" if n not in both else "wys" for n in between | both},
                      dict.fromkeys(both, "wrtys"), dict.fromkeys(between | both, "wrtys")):  # fmt: skip
            made = self._filled(lines)
            new = split_text(made)
            if len(new) != len(self.text.raw):
                continue
            after = Analysis(made, self.file, replace(self.settings, python=False))
            left = {(one.kind, one.line, one.severity) for one in after.findings if one.severity != "note"}
            if not after.errors and not gone & left and left <= before:
                return [(n, text) for n, (text, old) in enumerate(zip(new, self.text.raw)) if text != old]
        return []

    def _filled(self, lines: Mapping[int, str]) -> str:
        """The source with parts of the control codes of ``lines`` (wait, read, the one at writing, yield, stall:
        letters of "wrtys") as the scheduler fills them in; "" if it cannot."""
        source = list(self.text.raw)
        for n, parts in lines.items():
            head = self.text.lines[n].head
            if head is None or not head[2]:
                continue
            fields = head[2].split(":")
            if len(fields) != 5:
                return ""
            code = ":".join("?" if letter in parts else field for letter, field in zip("wrtys", fields))
            source[n] = source[n][: head.start(2)] + code + source[n][head.end(2) :]
        s = self.settings
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return listing("\n".join(source), s.arch, s.defines, s.include, self.file, allow_python=False)[0]
        except AsmError:
            return ""

    def rewritten(self) -> str:
        """The source with every control code as the scheduler would give it; "" where that cannot be done."""
        if self.text.has_python() or self.errors:
            return ""
        s = self.settings
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                made, _ = listing(self.source, s.arch, s.defines, s.include, self.file, allow_python=False, keep=False)
        except AsmError:
            return ""
        return made


def sequence(values: Sequence[int]) -> str:
    """Numbers as a text with commas, runs as first-last: 1-3, 7."""
    runs: list[list[int]] = []
    for value in sorted(set(values)):
        if runs and runs[-1][1] == value - 1:
            runs[-1][1] = value
        else:
            runs.append([value, value])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)
