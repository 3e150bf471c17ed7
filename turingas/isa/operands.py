"""One operand of an instruction: its pattern, and what is remembered of its texts and bits.

A pattern such as ``[Ra(.64)(off)]`` comes from a row of the table (``table/__init__.py`` has its grammar); its fields
come from ``grammar.find``. Operands of different forms that are equal are one object, so they share what they remember.
"""

from __future__ import annotations

import copy
import functools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from turingas.isa.fields import Constant, Enum, Field, Number, Offset, Register, Target, Unprintable

MEMO = 20_000  # texts or bits that one operand remembers before it starts anew; bounds the memory
DIGITS = str.maketrans("", "", "0123456789abcdef")  # what a kind of operand text is told apart without

Piece = tuple[str, Any]  # ("text", str) | ("field", Field) | ("group", list[Piece]) | ("hidden", list[Piece])
TOKEN = re.compile(r"\{(\w+)\}|([-~!]?\|?(?!cx\[)[A-Za-z_]\w*\|?)|(\()|(\))|(<)|(>)|(cx(?=\[)|.)", re.S)


def pieces_of(text: str, find: Callable[[str], Field | None]) -> list[Piece]:
    """``[Ra(.64)(+off)]`` -> pieces. Names of fields stand for fields, ( ) for what may be unsaid, < > for what
    nvdisasm does not print; every other character stands for itself."""
    stack: list[list[Piece]] = [[]]
    for braced, name, opened, closed, less, greater, other in TOKEN.findall(text):
        here = stack[-1]
        found = find(braced or name) if braced or name else None
        if found is not None:
            here.append(("field", found))
        elif braced:
            raise AssertionError(f"no field {braced!r} in {text!r}")
        elif opened or less:
            stack.append([])
        elif closed or greater:
            group = stack.pop()
            stack[-1].append(("group" if closed else "hidden", group))
        else:
            here.append(("text", name or other))
    assert len(stack) == 1, text
    return stack[0]


def fields_of(pieces: Sequence[Piece]) -> Iterator[Field]:
    for kind, value in pieces:
        if kind == "field":
            yield value
        elif kind != "text":
            yield from fields_of(value)


def _regex(pieces: Sequence[Piece], skip_hidden: bool = False) -> str:
    out = ""
    for kind, value in pieces:
        if kind == "text":
            out += re.escape(value) if value != " " else r"\s+"
        elif kind == "field":
            out += f"({value.pattern})"
        elif kind == "group":
            out += f"(?:{_regex(value, skip_hidden)})?"
        elif not skip_hidden:
            out += _regex(value, skip_hidden)
    return out


class Operand:
    """One operand of a form: its pattern, and two memories (text -> bits, bits -> text)."""

    def __init__(self, pieces: list[Piece], optional: bool, source: str) -> None:
        self.pieces, self.optional, self.source = pieces, optional, source
        self.fields = list(fields_of(pieces))
        self.mask = functools.reduce(lambda m, f: m | f.mask, self.fields, 0)
        self.target = next((f for f in self.fields if isinstance(f, Target)), None)
        self.default = 0
        for f in self.fields:
            self.default |= f.default or 0
        self.bits = Bits(self)
        only = self.fields[0] if len(pieces) == 1 and self.fields else None
        self.register = only if type(only) is Register else None
        self.registers = [f for f in self.fields if isinstance(f, Register)]
        #: kinds of text that were seen to encode to the bits they came from; fields of other classes prove each text
        self.proven: set[str] = set()
        self.exacting = any(type(f) not in (Register, Number, Offset, Constant, Enum) for f in self.fields)
        self.variable = any(f.words < 0 for f in self.fields)
        self._variants: dict[int, Operand] = {}

    def sized(self, words: int) -> Operand:
        """This operand with its data register ``words`` registers wide."""
        if not self.variable:
            return self
        found = self._variants.get(words)
        if found is None:
            found = self._variants[words] = Operand(_resize(self.pieces, words), self.optional, self.source)
        return found

    @functools.cached_property
    def regex(self) -> re.Pattern[str]:
        return re.compile(_regex(self.pieces))

    @functools.cached_property
    def lossy(self) -> re.Pattern[str]:
        """The spelling without the parts that nvdisasm does not print."""
        return re.compile(_regex(self.pieces, skip_hidden=True))

    def encode(self, text: str) -> int:
        """The bits of one operand (none of them a branch target). ValueError when a value does not fit."""
        match = self.regex.fullmatch(text)
        if match is None:
            raise ValueError(f"{text!r} does not fit {self.source}")
        bits = 0
        for f, part in zip(self.fields, match.groups()):
            bits |= (f.default or 0) if part is None else f.encode(part)
        return bits

    def checked(self, bits: int, plain: bool = False) -> str:
        """The text of these bits; Unprintable when the exact text would not encode to them again."""
        if self.register is not None:
            return self.register.checked(bits)
        text = exact = self.decode(bits)
        if plain:
            text = self.decode(bits, True)
        kind = exact.translate(DIGITS)
        if kind in self.proven:
            for f in self.registers:
                f.checked(bits)
            return text
        if self.encode(exact) != bits:
            raise Unprintable
        if not self.exacting:
            self.proven.add(kind)
        return text

    def located(self, word: int, plain: bool, address: int, labels: Mapping[int, str] | None) -> str:
        """The text of a branch target; Unprintable with a register that ``encode`` would not take."""
        for f in self.fields:
            if isinstance(f, Register):
                f.checked(word)
        return self.decode(word, plain, address, labels)

    def matches(self, text: str) -> bool:
        return self.regex.fullmatch(text) is not None

    def decode(self, word: int, plain: bool = False, address: int = 0, labels: Mapping[int, str] | None = None) -> str:
        return _show(self.pieces, word, plain, address, labels)


def _resize(pieces: Sequence[Piece], words: int) -> list[Piece]:
    out: list[Piece] = []
    for kind, value in pieces:
        if kind == "field" and value.words < 0:
            value = copy.copy(value)
            value.words = words
        elif kind in ("group", "hidden"):
            value = _resize(value, words)
        out.append((kind, value))
    return out


def _show(pieces: Sequence[Piece], word: int, plain: bool, address: int, labels: Mapping[int, str] | None) -> str:
    out = ""
    for kind, value in pieces:
        if kind == "text":
            out += value
        elif kind == "field":
            if isinstance(value, Target):
                target = value.address(word, address)
                name = labels.get(target) if labels and value.relative else None
                out += name if name is not None else hex(target)
            else:
                out += value.plain(word) if plain else value.decode(word)
        elif kind == "group":
            if any(word & f.mask != f.default for f in fields_of(value)):
                out += _show(value, word, plain, address, labels)
        elif not plain:
            out += _show(value, word, plain, address, labels)
    return out


class Bits(dict[str, int]):
    """text -> bits of one operand."""

    def __init__(self, operand: Operand) -> None:
        self.operand = operand

    def __missing__(self, text: str) -> int:
        bits = self.operand.encode(text.strip())
        if len(self) > MEMO:
            self.clear()
        self[text] = bits
        return bits


class Texts(dict[int, str]):
    """bits -> text of one unit: an operand, or a run of operands that may be unsaid. ``lead`` comes before it and
    ``trail`` behind it, unless there is nothing to say."""

    def __init__(self, operands: tuple[Operand, ...], plain: bool, size: Enum | None, lead: str, trail: str) -> None:
        self.operands, self.plain, self.size, self.lead, self.trail = operands, plain, size, lead, trail

    def __missing__(self, bits: int) -> str:
        words = self.size.span(bits) if self.size else 1
        shown: list[str] = []
        last = 0
        for n, operand in enumerate(self.operands):
            own = bits & operand.mask
            said = not operand.optional or own != operand.default
            text = operand.sized(words).checked(own, self.plain)
            if said:
                last = n + 1
            shown.append(text if said or not self.plain else "")
        # an operand before one that is said must be said too, or the text would not determine the word
        text = ", ".join([part for part in shown[:last] if part])
        if text:
            text = self.lead + text + self.trail
        if len(self) > MEMO:
            self.clear()
        self[bits] = text
        return text


def merged(pieces: list[Piece]) -> list[Piece]:
    """Neighbouring texts become one."""
    out: list[Piece] = []
    for kind, value in pieces:
        if kind == "text" and out and out[-1][0] == "text":
            out[-1] = ("text", str(out[-1][1]) + str(value))
        else:
            out.append((kind, value if kind in ("text", "field") else merged(value)))
    return out
