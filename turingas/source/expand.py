"""Source text -> plain lines: .include, <code> blocks, {expressions} and comments are gone, every origin is known.

As in TuringAs all <code> blocks run first, from top to bottom and in one namespace; then the {expressions} of every
line are evaluated, of generated lines too.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from pathlib import Path

from turingas.errors import AsmError
from turingas.source.lines import Lines, Origin, PlainLine, Source, check_text, decode, plain_lines, split_text
from turingas.source.python import Python, importing

MAX_LINES = 1_000_000  # generated and included
MAX_DEPTH = 32  # files that include one another
_PIECE = re.compile(r'"(?:\\.|[^"\\])*"|#|//|/\*|\{')
#: what a line is not read without a closer look for: comments, strings, expressions, blocks, other files
_MARKS = ("/", "*", '"', "{", "<", ".include")
_CODE = re.compile(r"\s*<code>(.*)", re.I)
_END_CODE = re.compile(r"\s*</code>(.*)", re.I)
_INCLUDE = re.compile(r'\s*\.include\b\s*(?:"([^"]*)"|([^\s"]+))?\s*(.*)')
_STRING = re.compile(r"'(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\"|[()\[\]{}]")
_SCOREBOARDS = re.compile(r"\{[\d, ]*\}")  # nvdisasm's `DEPBAR.LE SB0, 0x0, {3,1}`: no expression
_CLOSING = {"(": ")", "[": "]", "{": "}"}


def expand(
    source: str,
    filename: str | None = None,
    defines: Mapping[str, object] | None = None,
    include: Sequence[str | os.PathLike[str]] = (),
    allow_python: bool = True,
    arch: str = "sm_75",
) -> tuple[Lines, list[AsmError]]:
    """The plain lines of ``source``, and what is wrong with it. Where a block failed the lines are those that stand
    there without any Python: they may hold mistakes of their own.

    ``include``: folders that .include searches, and Python files to run first (-inc of TuringAs (2020)). Inline Python
    may import modules from these folders and from that of ``filename``.
    ``defines`` and ARCH (the architecture's name) are variables of the inline Python. A name that is defined and stands
    nowhere is an error, a slip of the pen, and so is one that no Python reads, or that the source sets itself.
    """
    name, given = filename or "<source>", list(defines or ())
    defines = {"ARCH": arch, **(defines or {})}
    for key in defines:
        if not key.isidentifier():
            raise AsmError(f"{key!r} cannot be defined: it is not a Python name", name)
    folders = [Path(path) for path in include if not os.fspath(path).endswith(".py")]
    path = Path(filename) if filename else Path()
    with importing([path.parent, *folders]):
        expander = _Expander(Python(defines, allow_python, given), folders)
        for file in include:
            if os.fspath(file).endswith(".py"):
                expander.run_file(Path(file), Origin(name, 0, ""))
        check_text(source, name)
        expander.text(source, name, path.parent, None, (path.resolve(),))
        lines = expander.lines
        if expander.errors:  # the expressions may need what a failed block would have set
            lines = lines.compress(["{" not in text for text in lines.texts])
        else:
            lines = expander.expressions()
        return lines, _unused(given, name, expander.python, not expander.errors) + expander.errors


def _unused(defines: Sequence[str], file: str, python: Python, all_ran: bool) -> list[AsmError]:
    """What is defined though no line of the source, or of what it includes, has a word of that name, or no Python, of
    which ``all_ran``; or though the source sets it."""
    found = python.overwritten[:]
    for name in defines:
        word = re.compile(rf"\b{name}\b")
        if word.search(python.read()):
            continue
        places = ((where, number, line) for where, lines in python.sources.items()
                  for number, line in enumerate(lines, 1) if name in line and word.search(line))  # fmt: skip
        if (place := next(places, None)) is None:
            from turingas.isa.diagnose import nearest

            words = set(re.findall(r"\w+", "\n".join(line for lines in python.sources.values() for line in lines)))
            said = f"{name} is defined, but the source never uses it"
            found.append(AsmError(said, file, hint=nearest(name, words)))
        elif all_ran:
            said, (where, number, line) = f"{name} is defined, but no Python reads it", place
            hint = f"{{{name}}} stands for its value in a line"
            found.append(Origin(where, number, line).error_at(said, hint, name))
    return found


class _Expander:
    def __init__(self, python: Python, folders: list[Path]) -> None:
        self.python = python
        self.folders = folders
        self.lines = Lines()
        self.errors: list[AsmError] = []
        self.room = MAX_LINES
        self.braces = False  # whether a line may hold an {expression}

    def text(self, text: str, file: str, folder: Path, parent: Origin | None, stack: tuple[Path, ...]) -> None:
        """Append the lines of one file, those that its .include lines and <code> blocks stand for among them."""
        written = split_text(text)
        self.python.sources.setdefault(file, written)
        source = Source(file, written, parent)
        marked = sorted({n for mark in _MARKS if mark in text for n, raw in enumerate(written, 1) if mark in raw})
        marked.append(len(written) + 1)
        comments = Comments(self.errors)
        code: list[str] = []
        opening: Origin | None = None  # of the <code> block that the line is in
        number = 0
        while number < len(written):
            number += 1
            if opening is None and not comments.open:
                start, number = number, marked[bisect_left(marked, number)]
                if start < number:
                    self.lines.extend(plain_lines(written[start - 1 : number - 1], start, source))
                if number > len(written):
                    break
            raw = written[number - 1]
            if opening is not None:
                end = _END_CODE.match(raw)
                if end is None:
                    code.append(raw)
                    continue
                if comments.strip(end[1], opening).strip():
                    behind = Origin(file, number, raw, 0, parent)
                    self.errors.append(behind.error("text after </code>", "begin a new line", end.start(1) + 1))
                self.generate("\n".join(code), opening)
                opening = None
                continue
            origin = source.origin(number)
            plain = comments.strip(raw, origin)
            if begins := _CODE.match(plain):
                opening, code = origin, [begins[1].strip()]
                continue
            if found := _INCLUDE.match(plain):
                self.include(found, origin, folder, stack)
                continue
            if plain and not plain.isspace():
                self.lines.append(PlainLine(plain, number, source))
                self.braces |= "{" in plain
        if opening is not None:
            self.errors.append(opening.error("<code> is never closed", "</code> must start a line"))
        comments.finish()

    def generate(self, code: str, opening: Origin) -> None:
        """Run a <code> block and append what it generates."""
        if self.errors:
            return  # what follows a failed block would only fail for its sake
        try:
            text = self.python.block(code, opening)
            self.take(text.count("\n"), opening)
        except AsmError as error:
            self.errors.append(error)
            return
        comments = Comments(self.errors)
        source = Source(opening.file, split_text(text), block=opening)
        for number, raw in enumerate(source.lines, 1):
            if not raw or raw.isspace():
                continue
            plain = comments.strip(raw, source.origin(number))
            if plain and not plain.isspace():
                self.lines.append(PlainLine(plain, number, source))
                self.braces |= "{" in plain
        comments.finish()

    def include(self, found: re.Match[str], origin: Origin, folder: Path, stack: tuple[Path, ...]) -> None:
        """Do what an .include line says: .py files run, others are read as source."""
        wanted = found[1] or found[2]
        try:
            if not wanted or found[3]:
                raise origin.error('.include takes one file name, as in .include "helper.sass"')
            for place in (folder, *self.folders):
                path = place / wanted
                if path.is_file():
                    break
            else:
                searched = ", ".join(str(place) for place in (folder, *self.folders))
                raise origin.error_at(f"cannot find {wanted}", f"searched in {searched}", wanted)
            if wanted.endswith(".py"):
                self.run_file(path, origin)
                return
            real = path.resolve()
            if real in stack:
                raise origin.error_at(f"{wanted} includes itself", "", wanted)
            if len(stack) > MAX_DEPTH:
                raise origin.error_at(f"includes are nested more than {MAX_DEPTH} deep", "", wanted)
            text = _read(path, origin)
            self.take(text.count("\n"), origin)
            self.text(text, str(path), path.parent, origin, (*stack, real))
        except AsmError as error:
            self.errors.append(error)
        except (OSError, ValueError) as error:  # ValueError: a name with a NUL
            self.errors.append(origin.error_at(f"cannot read {wanted}: {error}", "", wanted))

    def run_file(self, path: Path, origin: Origin) -> None:
        """Run a Python file in the namespace of the inline Python."""
        text = _read(path, origin)
        self.python.sources.setdefault(str(path), split_text(text))
        self.python.run(text, Origin(str(path), 1, text.partition("\n")[0]), 1, origin if origin.line else None)

    def take(self, lines: int, origin: Origin) -> None:
        self.room -= lines
        if self.room < 0:
            raise origin.error(f"more than {MAX_LINES:,} lines generated or included", "is there an endless loop?")

    def expressions(self) -> Lines:
        """The lines with every {expression} replaced by its value."""
        if not self.braces:
            return self.lines
        lines = Lines()
        for line in self.lines:
            if "{" not in line.text:
                lines.append(line)
                continue
            try:
                text = self.evaluate(line.text, line.origin)
            except AsmError as error:
                self.errors.append(error)
                continue
            comments = Comments(self.errors)  # a value may be lines of their own, with comments
            for part in split_text(text):
                plain = comments.strip(part, line.origin)
                if plain and not plain.isspace():
                    lines.append(line._replace(text=plain))
            comments.finish()
        return lines

    def evaluate(self, text: str, origin: Origin) -> str:
        parts = []
        at = 0
        for piece in _PIECE.finditer(text):
            start = piece.start()
            if start < at or piece[0] != "{":
                continue  # inside the expression before, or a quoted string
            if "DEPBAR" in text and _SCOREBOARDS.match(text, start):
                continue
            end = _expression_end(text, start)
            column = origin.text.find(text[start:end]) + 1
            if end < 0:
                raise origin.error("{ is never closed", column=origin.text.find("{") + 1)
            parts += [text[at:start], self.python.value(text[start + 1 : end - 1], origin, column)]
            at = end
        return "".join(parts) + text[at:]


class Comments:
    """Takes comments off lines: '#', '//' and '/* */', the last over several lines. {expressions}, "strings" stay."""

    def __init__(self, errors: list[AsmError]) -> None:
        self.open: tuple[Origin, int] | None = None  # where the comment that the line is in starts
        self.errors = errors

    def strip(self, text: str, origin: Origin) -> str:
        kept = ""
        at = 0
        while True:
            if self.open:
                end = text.find("*/", at)
                if end < 0:
                    return kept
                self.open = None
                kept += " " * (end + 2 - at)  # columns stay
                at = end + 2
            piece = _PIECE.search(text, at)
            if piece is None:
                return kept + text[at:]
            start, what = piece.start(), piece[0]
            if what == "#" or what == "//":
                return kept + text[at:start]
            if what == "/*":
                kept += text[at:start]
                self.open = (origin, start + 1)
                at = start
                if text.find("*/", start + 2) < 0:
                    return kept
                at = start + 2
                kept += "  "
            else:
                end = _expression_end(text, start) if what == "{" else piece.end()
                if end < 0:
                    return kept + text[at:]  # evaluate() reports it
                kept += text[at:end]
                at = end

    def finish(self) -> None:
        if self.open:
            origin, column = self.open
            self.errors.append(origin.error("/* is never closed", column=column))


def _expression_end(text: str, start: int) -> int:
    """Where the {expression} that opens at ``start`` ends (after its brace); -1 if it does not."""
    expected = ["}"]
    for piece in _STRING.finditer(text, start + 1):
        mark = piece[0]
        if mark in _CLOSING:
            expected.append(_CLOSING[mark])
        elif mark == expected[-1]:
            expected.pop()
            if not expected:
                return piece.end()
        elif mark == "}":
            return -1
    return -1


def _read(path: Path, origin: Origin) -> str:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise origin.error(f"cannot read {path}: {error.strerror}") from None
    text = decode(data, str(path))
    check_text(text, str(path))
    return text
