"""Lines of source text that remember where they came from, and the diagnostics that point back there."""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar, overload

from turingas.errors import AsmError

_TOKEN = re.compile(r"\w+|\s+|[^\w\s]")
_ALIGNED = 1000  # words


class Origin:
    """The place that a line was written at, or the <code> block that generated it.

    ``line`` is a line of ``file`` in either case; ``text`` is what a caret points into. ``nth`` is 0 for a written line
    and the line's number within the generated text otherwise. ``parent`` is where the block starts, or the .include.
    """

    __slots__ = ("file", "line", "text", "nth", "parent")

    def __init__(self, file: str, line: int, text: str, nth: int = 0, parent: Origin | None = None) -> None:
        self.file = file
        self.line = line
        self.text = text
        self.nth = nth
        self.parent = parent

    @property
    def notes(self) -> tuple[str, ...]:
        """How the line came to be here: the block that generated it, the files that included it."""
        lines = []
        here, parent = self, self.parent
        while parent is not None:
            if here.nth:
                lines.append(f"note: line {here.nth} of the text that this block generated:")
            else:
                lines.append(f"note: included from {parent.file}:{parent.line}:")
            lines.append(f"{parent.line:5d} | {parent.text}")
            here, parent = parent, parent.parent
        return tuple(lines)

    def error(self, message: str, hint: str = "", column: int = 0) -> AsmError:
        """A diagnostic at ``column`` (counted from 1, 0: the whole line) of ``text``."""
        return AsmError(message, self.file, self.line, column, hint, self.text, self.notes)

    def error_at(self, message: str, hint: str, what: str) -> AsmError:
        """A diagnostic at the first place where ``what`` stands in the line."""
        found = re.search(rf"(?<!\w){re.escape(what)}(?!\w)", self.text) if what else None
        return self.error(message, hint, found.start() + 1 if found else 0)


class Source:
    """The lines of a file, or (``block``) of the text that a <code> block generated. ``parent``: see ``Origin``."""

    __slots__ = ("file", "lines", "parent", "block")

    def __init__(
        self, file: str, lines: list[str], parent: Origin | None = None, block: Origin | None = None
    ) -> None:
        self.file, self.lines, self.parent, self.block = file, lines, parent, block

    def origin(self, number: int) -> Origin:
        """Where line ``number``, counted from 1, was written."""
        text = self.lines[number - 1]
        if self.block is not None:
            return Origin(self.file, self.block.line, text, number, self.block)
        return Origin(self.file, number, text, 0, self.parent)


class PlainLine(NamedTuple):
    """Text after includes, inline Python and comments are gone, and where it was written."""

    text: str
    number: int
    source: Source

    @property
    def origin(self) -> Origin:
        """Made when it is asked for: of most lines nobody asks."""
        return self.source.origin(self.number)

    @property
    def place(self) -> tuple[str, int]:
        """File and line of its origin."""
        source = self.source
        return source.file, self.number if source.block is None else source.block.line


Kind = TypeVar("Kind", bound=tuple[Any, ...])
Self = TypeVar("Self", bound="Columns[Any]")


def maker(kind: type[Kind]) -> Callable[[tuple[Any, ...]], Kind]:
    """What ``_make`` of a named tuple does, in half the time."""
    return functools.partial(tuple.__new__, kind)


class Columns(Sequence[Kind]):
    """Named tuples of one kind, field by field: a row is made when it is asked for, and of most nobody asks."""

    kind: type[Any]  # the named tuple

    def __init__(self, *columns: Any) -> None:
        self.columns: tuple[Any, ...] = columns or tuple([] for _ in self.kind._fields)

    def row(self, values: tuple[Any, ...]) -> Any:
        """The row with these fields."""
        return tuple.__new__(self.kind, values)

    def __len__(self) -> int:
        return len(self.columns[0])

    def __iter__(self) -> Iterator[Any]:
        return map(self.row, zip(*self.columns))

    @overload
    def __getitem__(self, at: int) -> Any: ...
    @overload
    def __getitem__(self: Self, at: slice) -> Self: ...
    def __getitem__(self, at: Any) -> Any:
        values = [column[at] for column in self.columns]
        return type(self)(*values) if isinstance(at, slice) else self.row(tuple(values))

    def __setitem__(self, at: Any, new: Any) -> None:
        """A row, or (``at`` a slice) rows of this kind."""
        values = type(self).of(new).columns if isinstance(at, slice) else new
        for column, value in zip(self.columns, values):
            column[at] = value

    def append(self, row: Sequence[Any]) -> None:
        for column, value in zip(self.columns, row):
            column.append(value)

    def extend(self, more: Columns[Kind], start: int = 0, end: int | None = None) -> None:
        """Append rows ``start`` to ``end`` of ``more``."""
        for column, values in zip(self.columns, more.columns):
            if isinstance(column, Columns):
                column.extend(values, start, end)
            else:
                column += values[start:end]

    def compress(self: Self, keep: Sequence[object]) -> Self:
        """The rows at which ``keep`` has something true."""
        return type(self)(*[
            column.compress(keep) if isinstance(column, Columns) else list(itertools.compress(column, keep))
            for column in self.columns
        ])  # fmt: skip

    @classmethod
    def of(cls: type[Self], rows: Iterable[Any]) -> Self:
        """These rows."""
        if isinstance(rows, cls):
            return rows
        made = cls()
        for row in rows:
            made.append(row)
        return made


class Lines(Columns[PlainLine]):
    """Plain lines."""

    kind = PlainLine
    texts = property(lambda self: self.columns[0])
    numbers = property(lambda self: self.columns[1])
    sources = property(lambda self: self.columns[2])


def plain_lines(raw: Sequence[str], first: int, source: Source) -> Lines:
    """Lines of ``source``, from number ``first`` on, that hold nothing to be replaced: without comments of #, and
    without those that are blank."""
    texts = [text.partition("#")[0] for text in raw]
    numbers = [number for number, text in enumerate(texts, first) if text and not text.isspace()]
    if len(numbers) < len(texts):
        texts = [text for text in texts if text and not text.isspace()]
    return Lines(texts, numbers, [source] * len(texts))


def places(lines: Lines) -> list[tuple[str, int]]:
    """File and line of the origin of each."""
    sources = set(lines.sources)
    if len(sources) == 1 and (only := sources.pop()).block is None:
        return list(zip(itertools.repeat(only.file), lines.numbers))
    return [
        (at.file, number if at.block is None else at.block.line) for number, at in zip(lines.numbers, lines.sources)
    ]


def column_in(written: str, plain: str, position: int) -> int:
    """The column of ``written`` (from 1) that ``plain[position]`` came from.

    Names, {expressions} and spellings may have been replaced between the two texts, so their words are aligned.
    Only diagnostics need this: no line carries a map for it.
    """
    from difflib import SequenceMatcher

    old, new = _TOKEN.findall(written), _TOKEN.findall(plain)
    start = [0]
    for word in old:
        start.append(start[-1] + len(word))
    index = 0
    while index < len(new) and position >= len(new[index]):
        position -= len(new[index])
        index += 1
    if index == len(new):
        return len(written.rstrip()) + 1
    if len(old) > _ALIGNED or len(new) > _ALIGNED:  # aligning takes time in the square of the length
        return start[min(index, len(old))] + 1
    for tag, old_from, old_to, new_from, new_to in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if new_from <= index < new_to:
            if tag == "equal":
                return start[old_from + index - new_from] + position + 1
            return start[min(old_from + index - new_from, max(old_from, old_to - 1))] + 1
    raise AssertionError("every word lies in one piece of the alignment")


def split_text(text: str) -> list[str]:
    """The lines of ``text``, broken as an editor breaks them (str.splitlines also breaks at form feeds and others)."""
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return text.split("\n")


def decode(data: bytes, filename: str) -> str:
    """The text of a source file; AsmError with its place when that is not UTF-8."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        start = data.rfind(b"\n", 0, error.start) + 1
        column = len(data[start : error.start].decode("utf-8", "replace")) + 1
        text = data[start:].split(b"\n", 1)[0].decode("utf-8", "backslashreplace").rstrip("\r")
        bad = f"byte 0x{data[error.start]:02x} is not UTF-8"
        raise AsmError(bad, filename, line, column, "save the file as UTF-8", text) from None


def check_text(text: str, filename: str) -> None:
    """Refuse what no text file holds: NUL characters."""
    where = text.find("\0")
    if where >= 0:
        line = text.count("\n", 0, where) + 1
        column = where - text.rfind("\n", 0, where)
        raise AsmError("the file holds a NUL character", filename, line, column, "is this a .cubin or UTF-16 text?")
