"""A source as an editor has it, line by line, with nothing run: what each line is; names, labels and their places.

Lines and columns count from 0, as in the protocol of editors.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import NamedTuple

from turingas.errors import AsmError
from turingas.isa.arch import arch as find_arch
from turingas.source.expand import Comments
from turingas.source.lines import PlainLine, Source, split_text
from turingas.source.names import BLOCKS, NameProblem, Names

HEAD = re.compile(r"(\s*)(?:([^\s:;<]*:[^\s:;]*:[^\s;]*)(\s+))?(?:(@\S+)(\s+))?([A-Za-z]\w*(?:\.\w+)*)(?=[\s;]|$)")
_LABEL = re.compile(r"\s*([A-Za-z_.$][\w.$]*)\s*:(?!:)(?![^\s;]*:)")
_DIRECTIVE = re.compile(r"\s*\.([A-Za-z_]\w*)(?=[\s;,]|$)")
_BLOCK = re.compile(r"\s*<\s*(/?)\s*(\w+)\s*>")
_DECLARED = re.compile(r"[A-Za-z_]\w*(?:<\d+-\d+>\w*)?")
_ARCH = re.compile(r"\s*\.arch\s+(\w+)")
SECTIONS = ("kernel", "function")
NAME = re.compile(r"[A-Za-z_]\w*\Z")
REGISTER = re.compile(r"(UR|UP|R|P)(\d+)\Z")


class Span(NamedTuple):
    """Columns ``start`` to ``end`` of a line."""

    line: int
    start: int
    end: int


class Line(NamedTuple):
    """``kind``: instruction, label (perhaps with an instruction behind it), directive, block (a line of <regs> and the
    like), tag, python, other or blank. ``plain``: without comments, in its columns. ``head``: where an instruction's
    parts are."""

    kind: str
    plain: str
    section: int
    block: str = ""
    head: re.Match[str] | None = None


class Symbol(NamedTuple):
    """What a source names. ``kind``: register, parameter, constant, label, kernel or function; ``means``: the register
    or the constant. ``ranged``: one of several that are declared at once (``v<0-3>``)."""

    name: str
    kind: str
    at: Span
    section: int
    means: str = ""
    ranged: bool = False


class Text:
    """``source`` taken apart. ``arch``: the architecture where the source does not say it."""

    def __init__(self, source: str, arch: str = "sm_75") -> None:
        self.raw = split_text(source)
        self.arch = next((found[1] for line in self.raw if (found := _ARCH.match(line))), arch)
        try:
            facts = find_arch(self.arch)
        except AsmError:  # an error of its own; the text is taken apart all the same
            facts = find_arch("sm_75")
        self.lines: list[Line] = []
        self.symbols: list[Symbol] = []
        self.names = [Names(facts)]  # of each section
        self._constants = 0
        self._read(Source("", self.raw))

    def _read(self, source: Source) -> None:
        comments = Comments([])
        section, block = 0, ""
        for number, raw in enumerate(self.raw):
            if block == "code":
                self.lines.append(Line("python", raw, section, "code"))
                block = "" if re.match(r"\s*</code>", raw, re.I) else block
                continue
            plain = comments.strip(raw, source.origin(number + 1))
            if tag := _BLOCK.match(plain):
                block = "" if tag[1] else tag[2].lower()
                self.lines.append(Line("tag", plain, section, tag[2].lower()))
                rest = plain[tag.end() :]
                if "</" in rest:
                    rest, block = rest.partition("</")[0], ""
                    self._declare(section, tag[2].lower(), number, rest, tag.end(), source)
                continue
            if block:
                self.lines.append(Line("block", plain, section, block))
                self._declare(section, block, number, plain, 0, source)
            elif not plain.strip():
                self.lines.append(Line("blank", plain, section))
            elif found := _DIRECTIVE.match(plain):
                if found[1] in SECTIONS:
                    section = len(self.names)
                    self.names.append(Names(self.names[0].arch, self.names[0]))
                    if name := re.compile(r"\s*([^\s;,=]+)").match(plain, found.end()):
                        self.symbols.append(Symbol(name[1], found[1], Span(number, *name.span(1)), section))
                self.lines.append(Line("directive", plain, section))
            elif found := _LABEL.match(plain):
                self.symbols.append(Symbol(found[1], "label", Span(number, *found.span(1)), section))
                self.lines.append(Line("label", plain, section, head=HEAD.match(plain, found.end())))
            else:
                head = HEAD.match(plain)
                self.lines.append(Line("instruction" if head else "other", plain, section, head=head))

    def _declare(self, section: int, block: str, number: int, text: str, column: int, source: Source) -> None:
        """What a line of a block names."""
        names, line = self.names[section], PlainLine(text, number + 1, source)
        if block not in BLOCKS or not text.strip():
            return
        before = set(names.places)
        parts = [part.strip() for part in text.partition("=")[0].split(",")]
        kind = {"regs": "register", "params": "parameter", "consts": "constant"}.get(block, "")
        with contextlib.suppress(NameProblem):  # the assembler tells
            if block == "regs":
                names.register(text.strip(), line)
            elif block == "params":
                names.parameter(parts, line)
            elif block == "consts":
                offset = names.constant(parts, line, self._constants)
                self._constants = offset + names.memory[parts[0]][2]
        from_ = re.search("[:~]", text) if block == "regs" else None
        places: dict[str, tuple[Span, bool]] = {}
        for found in _DECLARED.finditer(text, from_.end() if from_ else 0):
            span = Span(number, column + found.start(), column + found.end())
            if "<" not in found[0]:
                places[found[0]] = span, False
                continue
            stem, first, last, tail = re.split(r"<(\d+)-(\d+)>", found[0])[0:4]
            for n in range(int(first), min(int(last), int(first) + 255) + 1):
                places[f"{stem}{n}{tail}"] = span, True
        for name in [name for name in names.places if name not in before]:
            span, ranged = places.get(name, (Span(number, column, column + len(text)), True))
            means = names.meaning.get(name) or "c[0x{:x}][0x{:x}], {} bytes".format(*names.memory[name])
            self.symbols.append(Symbol(name, kind, span, section, means, ranged))

    # -- what stands where

    def word(self, line: int, column: int) -> tuple[str, Span] | None:
        """The word at a place, as short as a name can be: letters, digits, ``_`` and, in labels, ``.`` and ``$``."""
        if not 0 <= line < len(self.lines):
            return None
        for pattern in (r"[\w.$]+", r"\w+"):
            for found in re.finditer(pattern, self.lines[line].plain):
                if found.start() <= column <= found.end():
                    if pattern == r"\w+" or self._symbol(found[0], self.lines[line].section):
                        return found[0], Span(line, *found.span())
        return None

    def _symbol(self, name: str, section: int) -> Symbol | None:
        own = [one for one in self.symbols if one.name == name]
        return next(
            (one for one in own if one.section == section or one.section == 0 and one.kind != "label"
             or one.kind in SECTIONS), None,
        )  # fmt: skip

    def symbol(self, line: int, column: int) -> Symbol | None:
        """What is named at a place."""
        if not 0 <= line < len(self.lines) or self.lines[line].kind in ("python", "tag", "other"):
            return None
        head = self.lines[line].head
        if head and head.start(6) <= column < head.end(6):
            return None  # the mnemonic
        for one in self.symbols:  # a range: v<0-3>
            if one.at.line == line and one.at.start <= column <= one.at.end:
                return one
        found = self.word(line, column)
        return self._symbol(found[0], self.lines[line].section) if found else None

    def places(self, symbol: Symbol) -> list[Span]:
        """Where a symbol stands: its declaration and its uses, in the order of lines."""
        if symbol.ranged:
            found = [symbol.at]
        else:
            found = []
        dots = r".$" if symbol.kind in ("label", *SECTIONS) else ""
        pattern = re.compile(rf"(?<![\w.$]){re.escape(symbol.name)}(?![\w{dots}])")
        everywhere = symbol.section == 0 and symbol.kind != "label" or symbol.kind in SECTIONS
        for number, line in enumerate(self.lines):
            if line.kind in ("python", "blank", "tag") or not (everywhere or line.section == symbol.section):
                continue
            for one in pattern.finditer(line.plain):
                span = Span(number, *one.span())
                head = line.head
                if head and head.start(6) <= one.start() < head.end(6) and head[6] == one[0]:
                    continue
                if head and head[2] and head.start(2) <= one.start() < head.end(2):
                    continue  # a control code
                found.append(span)
        return list(dict.fromkeys(found))

    def register(self, line: int, column: int) -> Symbol | None:
        """The register at a place that stands there by its number, as if it had been declared."""
        found = self.word(line, column)
        if found is None or not REGISTER.match(found[0]) or self.lines[line].kind not in ("instruction", "label"):
            return None
        return Symbol(found[0], "register", found[1], self.lines[line].section, found[0])

    def uses(self, register: Symbol) -> list[Span]:
        """Where a register stands by its number, in its section."""
        code = ("instruction", "label")
        return [one for one in self.places(register) if self.lines[one.line].kind in code
                and self.lines[one.line].section == register.section]  # fmt: skip

    def declaration(self, register: Symbol, name: str) -> tuple[int, str]:
        """A line, and what to put in front of it, so that ``name`` stands for a register of a section."""
        number = register.name.removeprefix("R")
        for n, line in enumerate(self.lines):
            if line.section != register.section:
                continue
            if line.kind == "tag" and line.block == "regs" and re.match(r"\s*</", line.plain):
                return n, f"{number} : {name}\n"
            if line.kind in ("instruction", "label"):
                while n and self.lines[n - 1].kind == "blank" and self.raw[n - 1].strip():
                    n -= 1  # its comment
                return n, f"<regs>\n{number} : {name}\n</regs>\n"
        return 0, ""

    def in_python(self, name: str) -> bool:
        """Whether a word stands in inline Python."""
        word = re.compile(rf"\b{re.escape(name)}\b")
        return any(
            word.search(line.plain if line.kind == "python" else " ".join(re.findall(r"\{[^}]*\}", line.plain)))
            for line in self.lines if line.kind == "python" or "{" in line.plain
        )  # fmt: skip

    def has_python(self) -> bool:
        """Whether a <code> block stands in it."""
        return any(line.block == "code" for line in self.lines)

    def visible(self, line: int) -> Iterator[Symbol]:
        """The names and labels that may be used in a line."""
        section = self.lines[line].section if line < len(self.lines) else 0
        for one in self.symbols:
            if one.section == section or one.section == 0 and one.kind != "label" or one.kind in SECTIONS:
                yield one

    # -- as a whole

    def folds(self) -> list[tuple[int, int]]:
        """First and last line of what may be folded: kernels, blocks, loops, comments of several lines."""
        found: list[tuple[int, int]] = []
        starts = [n for n, line in enumerate(self.lines) if line.kind == "directive" and self._begins(n)]
        for start, end in zip(starts, [*starts[1:], len(self.lines)]):
            while end - 1 > start and (self.lines[end - 1].kind == "blank"):
                end -= 1
            found.append((start, end - 1))
        opened: int | None = None
        for n, line in enumerate(self.lines):
            if line.kind == "tag" or line.kind == "python" and "</" in line.plain:
                if "</" in line.plain:
                    found += [(opened, n)] if opened is not None else []
                    opened = None
                else:
                    opened = n
        labels = {(one.name, one.section): one.at.line for one in self.symbols if one.kind == "label"}
        for n, line in enumerate(self.lines):
            if line.head and line.head[6].startswith(("BRA", "JMP")):
                target = re.search(r"([A-Za-z_.$][\w.$]*)\s*\)?\s*;?\s*$", line.plain[line.head.end() :])
                at = labels.get((target[1], line.section)) if target else None
                if at is not None and at < n:
                    found.append((at, n))
        first: int | None = None
        for n, line in enumerate([*self.lines, Line("end", "", 0)]):
            comment = line.kind == "blank" and bool(self.raw[n].strip())
            if comment and first is None:
                first = n
            elif not comment and first is not None:
                found += [(first, n - 1)] if n - 1 > first else []
                first = None
        return sorted({(a, b) for a, b in found if b > a})

    def _begins(self, n: int) -> bool:
        found = _DIRECTIVE.match(self.lines[n].plain)
        return found is not None and found[1] in SECTIONS

    def formatted(self) -> list[str]:
        """The lines with their parts in columns: control code, guard, mnemonic and operands, comment. What is no
        instruction stays as it is."""
        coded = any(line.head and line.head[2] for line in self.lines)
        codes = max((len(line.head[2]) for line in self.lines if line.head and line.head[2]), default=0)
        rows: list[tuple[str, str] | None] = []
        for raw, line in zip(self.raw, self.lines):
            head = line.head
            comment = raw[len(line.plain) :].strip()
            if line.kind != "instruction" or head is None or "{" in line.plain and "}" not in line.plain:
                rows.append(None)
                continue
            if "/*" in raw or line.plain.count(";") > 1:
                rows.append(None)
                continue
            operands = line.plain[head.end() :].strip()
            operands = re.sub(r"\s+", " ", operands) if '"' not in operands and "{" not in operands else operands
            code = f"{head[2] or '':{codes}}  " if coded else ""
            guard = f"{head[4]:<5}" + " " * (len(head[4]) > 4) if head[4] else " " * 5
            body = f"{head[6]} {operands}" if operands and not operands.startswith(";") else head[6] + operands
            rows.append((f"{code}{guard}{body}".rstrip(), comment))
        found: list[str] = []
        for n, (raw, row) in enumerate(zip(self.raw, rows)):
            if row is None:
                found.append(raw.rstrip() if self.lines[n].kind != "python" else raw)
                continue
            text, comment = row
            if not comment:
                found.append(text)
                continue
            found.append(f"{text:<{self._comments_at(rows, n)}}{comment}")
        return found

    @staticmethod
    def _comments_at(rows: list[tuple[str, str] | None], n: int) -> int:
        """The column of comments in the run of instructions that line ``n`` belongs to."""
        first = last = n
        while first and rows[first - 1] is not None:
            first -= 1
        while last + 1 < len(rows) and rows[last + 1] is not None:
            last += 1
        widest = max(len(row[0]) for row in rows[first : last + 1] if row is not None and row[1])
        return (widest + 2 + 3) // 4 * 4
