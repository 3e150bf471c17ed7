"""What nvdisasm and cuobjdump -sass print, taken apart: sections, their bytes, code, labels and symbols.

nvdisasm's text holds all that is in the ELF file: names for addresses, `index@(NAME)` for the number of a symbol, sums
of names where a relocation will put an address. cuobjdump's holds code alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from turingas.errors import AsmError
from turingas.isa.arch import WORD_BYTES

SECTION = re.compile(r'\s*\.section\s+([^\s,]+),"(\w*)",@"?(\w+)"?')
FUNCTION = re.compile(r"\s*Function : (\S+)")
ARCH = re.compile(r"\s*(?:code for |arch = |\.target\s+)(sm_\w+)|.*\bEF_CUDA_SM(\d+)\b")
LABEL = re.compile(r"([^\s:/][^\s:]*):\s*$")
DATA = re.compile(r"\s*(?:/\*([0-9a-f]+)\*/)?\s*\.(byte|short|word|dword|zero)\s+(.*?)\s*$")
DIRECTIVE = re.compile(r"\s*\.(sectionflags|sectioninfo|align|type|size|global|weak|other|elftype)\s+(.*?)\s*$")
CODE = re.compile(r"\s*\{?\s*/\*([0-9a-f]{4,})\*/\s+\{?\s*([^\s.].*?)\s*(?:/\* 0x([0-9a-f]{16}) \*/\s*)?$")
HIGH = re.compile(r"\s*/\* 0x([0-9a-f]{16}) \*/\s*$")
SIZES = {"byte": 1, "short": 2, "word": 4, "dword": 8}
NUMBER = re.compile(r"-?(?:0x[0-9a-f]+|[0-9]+)")
INDEX = re.compile(r"index@\((.*)\)")
SUM = re.compile(r"\(?([^()\s]+)(?: \+ ([^()\s]+))?\)?")
FROM_SECTION = "@srel"  # behind a label: its offset in its section
TEXT = ".text."


class Line(NamedTuple):
    """An instruction: the line it stands in (counted from 0), address, text, and the word if there is one."""

    line: int
    address: int
    text: str
    word: int | None


@dataclass
class Symbol:
    """What .type, .size, .other, .global and .weak say of a name."""

    name: str
    kind: str = ""
    size: str = ""
    other: str = ""
    bind: str = "local"


@dataclass
class Section:
    """``rows``: offset, size and text of each number, and the line that it stands in; ``notes``: what .sectionflags
    and .sectioninfo say; ``symbols``: those declared in it."""

    name: str
    flags: str = ""
    kind: str = ""
    line: int = 0
    arch: str = ""
    align: int = 1
    size: int = 0
    notes: str = ""
    rows: list[tuple[int, int, str, int]] = field(default_factory=list)
    code: list[Line] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    symbols: list[Symbol] = field(default_factory=list)

    @property
    def function(self) -> str:
        return self.name.removeprefix(TEXT)


@dataclass(frozen=True)
class Place:
    """An address that a relocation will put there: a symbol, and what is added."""

    symbol: str
    addend: int


class Unclear(Exception):
    """A value that the text does not tell, and its line (counted from 0)."""

    def __init__(self, text: str, line: int) -> None:
        super().__init__(text)
        self.text, self.line = text, line


class ElfText:
    """``sections`` in their order; ``symbols`` by their names, and the ``numbers`` that stand for them.
    ``relocatable``: it is no executable. AsmError where half of a word is missing."""

    def __init__(self, lines: Sequence[str], filename: str) -> None:
        self.sections: list[Section] = []
        self.symbols: dict[str, Symbol] = {}
        self.relocatable = False
        self._read(lines, filename)
        self.numbers = {name: n for n, name in enumerate(self.symbols, 1)}
        self._named = {one.name: one for one in reversed(self.sections)}
        self.offsets = {name: at for one in self.sections for name, at in one.labels.items()}

    def _read(self, lines: Sequence[str], filename: str) -> None:
        section = Section("")
        waiting = ""  # the lower half of a word
        for n, line in enumerate(lines):
            if waiting:
                high = HIGH.match(line)
                if not high:
                    raise AsmError("the second half of this word is missing", filename, n, text=lines[n - 1])
                section.code[-1] = section.code[-1]._replace(word=int(high[1] + waiting, 16))
                waiting = ""
            elif "/*" in line and (match := CODE.match(line)):
                if not section.name:
                    section = Section(TEXT + "kern", "ax", "progbits", n, section.arch)
                    self.sections.append(section)
                section.code.append(Line(n, int(match[1], 16), match[2], None))
                section.size = int(match[1], 16) + WORD_BYTES
                waiting = match[3] or ""
            elif match := SECTION.match(line):
                section = Section(match[1], match[2], match[3], n, section.arch)
                self.sections.append(section)
            elif match := FUNCTION.match(line):
                section = Section(TEXT + match[1], "ax", "progbits", n, section.arch)
                self.sections.append(section)
            elif match := ARCH.match(line):
                known = match[1] or f"sm_{match[2]}" + ("a" if "EF_CUDA_ACCELERATORS" in line else "")
                if not section.arch.startswith(known):  # cuobjdump's flags do not tell sm_90 from sm_90a
                    if section.code or section.rows:
                        section = Section("")
                    section.arch = known
            elif match := LABEL.match(line):
                section.labels[match[1]] = section.size
            elif match := DATA.match(line):
                self._data(section, match, n)
            elif match := DIRECTIVE.match(line):
                self._directive(section, match[1], match[2])
        if waiting:
            raise AsmError("the second half of this word is missing", filename, len(lines), text=lines[-1])

    def _data(self, section: Section, match: re.Match[str], line: int) -> None:
        at, kind, text = match.groups()
        section.size = int(at, 16) if at else section.size
        if kind == "zero":
            section.size += int(text, 0)
            return
        for part in text.split(", "):
            section.rows.append((section.size, SIZES[kind], part, line))
            section.size += SIZES[kind]

    def _directive(self, section: Section, kind: str, text: str) -> None:
        name, _, rest = text.partition(",")
        if kind == "align":
            section.align = max(section.align, int(text, 0))
            section.size = -(-section.size // int(text, 0)) * int(text, 0)
        elif kind in ("sectionflags", "sectioninfo"):
            section.notes += text
        elif kind == "elftype":
            self.relocatable = "ET_REL" in text
        else:
            symbol = self.symbols.setdefault(name, Symbol(name))
            if kind == "type":
                symbol.kind = rest.strip('@"')
                section.symbols.append(symbol)
            elif kind == "size":
                symbol.size = rest
            elif kind == "other":
                symbol.other = rest
            else:
                symbol.bind = kind

    def texts(self, arch: str) -> list[Section]:
        """The sections of code for ``arch``, and those of which no architecture is said."""
        return [one for one in self.sections if one.code and one.arch in (arch, "")]

    def named(self, name: str) -> Section | None:
        return self._named.get(name)

    def value(self, text: str, line: int) -> int | Place:
        """What the text of a number stands for; that of a symbol is one of ``numbers``. Raises Unclear."""
        if NUMBER.fullmatch(text):
            return int(text, 0)
        if text.startswith("(") and " - " in text:
            end, _, start = text[1:-1].partition(" - ")
            if end in self.offsets and start in self.offsets:
                return self.offsets[end] - self.offsets[start]
        elif match := INDEX.fullmatch(text):
            return self.numbers.get(match[1], 0)
        elif text.endswith(FROM_SECTION) and text.removesuffix(FROM_SECTION) in self.offsets:
            return self.offsets[text.removesuffix(FROM_SECTION)]
        elif (match := SUM.fullmatch(text)) and "@" not in match[1]:
            addend = self.value(match[2], line) if match[2] else 0
            if isinstance(addend, int):
                return Place(match[1], addend)
        raise Unclear(text, line)

    def contents(self, section: Section) -> tuple[bytes, list[tuple[int, int, Place]]]:
        """The bytes of a section, and where, and how many bytes wide, addresses belong in it. Raises Unclear."""
        data = bytearray(section.size)
        places = []
        for at, size, text, line in section.rows:
            found = self.value(text, line)
            if isinstance(found, Place):
                places.append((at, size, found))
            else:
                data[at : at + size] = (found & ((1 << 8 * size) - 1)).to_bytes(size, "little")
        return bytes(data), places

    def length(self, symbol: Symbol) -> int:
        """The size of a symbol, 0 where it is not told."""
        try:
            found = self.value(symbol.size, 0)
        except Unclear:
            return 0
        return found if isinstance(found, int) else 0


def architectures(sections: Iterable[Section]) -> list[str]:
    """Of the sections of code, in their order; "" where none is said."""
    return list(dict.fromkeys(one.arch for one in sections if one.code))
