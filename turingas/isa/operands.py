"""One operand of an instruction: its pattern, and what is remembered of its texts and bits.

A pattern such as ``[Ra(.64)(off)]`` comes from a row of the table (``table/__init__.py`` has its grammar); its fields
come from ``grammar.find``. Operands of different forms that are equal are one object, so they share what they remember.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from turingas.isa.fields import Alone, Constant, Enum, Field, Following, Number, Offset, Register, Target, usual

MEMO = 20_000  # entries of a memory; one that is full starts anew

K = TypeVar("K")
V = TypeVar("V")


def remember(memory: dict[K, V], key: K, value: V) -> V:
    """Put an entry into a memory, which starts anew when it is full: no memory grows without bound."""
    if len(memory) >= MEMO:
        memory.clear()
    memory[key] = value
    return value


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


@functools.cache
def names_in(text: str) -> tuple[str, ...]:
    """What may be names of fields in an operand of a row."""
    return tuple([braced or name for braced, name, *_ in TOKEN.findall(text) if braced or name])


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


QUICK = (Register, Enum, Number, Alone, Constant)  # not their subclasses, which may read their texts in other ways
PART = re.compile(r"[-~!+]*(?:\w+|\|\w+\|)(?:\.reuse)?")  # what fields of an operand look like, but for names of values


def _taken_apart(pieces: Sequence[Piece], text: str, at: int = 0) -> tuple[int, int] | None:
    """The bits of ``pieces``, which stand in a text from ``at`` on, and where they end. None where they do not stand
    there as they are printed: the regular expression, which takes long to make, has to decide."""
    bits = 0
    for kind, value in pieces:
        if kind == "text":
            if not text.startswith(value, at):
                return None
            at += len(value)
        elif kind == "field":
            if isinstance(value, Enum):
                part = max([name for name in value.values if text.startswith(name, at)], key=len, default=None)
            else:
                part = found[0] if (found := PART.match(text, at)) else None
            own = None if part is None else value.quick(part)
            if own is None or part is None:
                return None
            bits, at = bits | own, at + len(part)
        elif (inside := _taken_apart(value, text, at)) is not None:
            bits, at = bits | inside[0], inside[1]
        elif kind == "group":
            bits |= _unsaid(fields_of(value))
        else:
            return None
    return bits, at


def _unsaid(fields: Iterable[Field]) -> int:
    """The bits of what is left out."""
    return functools.reduce(operator.or_, [f.default or 0 for f in fields], 0)


class Operand:
    """One operand of a form: its pattern, and two memories (text -> bits, bits -> text)."""

    def __init__(self, pieces: list[Piece], optional: bool, source: str, always: bool = False) -> None:
        #: whether a source may leave it out, and whether it is printed even where it has its default
        self.optional, self.always = optional, always
        self.pieces, self.source = pieces, source
        self.fields = list(fields_of(pieces))
        #: registers that must be those behind others of the instruction: they read bits that those have claimed
        self.following = [n for n, f in enumerate(self.fields) if isinstance(f, Following)]
        masks = [f.mask for f in self.fields if not isinstance(f, Following)]
        self.claims = functools.reduce(operator.or_, masks, 0)
        if sum(masks) != self.claims:
            raise AssertionError(f"{source}: bits are claimed twice")
        self.mask = functools.reduce(operator.or_, [f.mask for f in self.fields], 0)
        self.target = next((f for f in self.fields if isinstance(f, Target)), None)
        self.default = _unsaid(self.fields)
        #: the field that is all of the operand, as nearly always
        alone = len(pieces) == 1 and pieces[0][0] == "field"
        self.only: Field | None = self.fields[0] if alone else None
        self.quick = self._quick if self.only is None else self.only.quick if type(self.only) in QUICK else None
        self.bits = Bits(self)
        self.variable = any(f.words < 0 for f in self.fields)
        self._variants: dict[int, Operand] = {}

    def sized(self, words: int) -> Operand:
        """This operand with its data register ``words`` registers wide."""
        if not self.variable:
            return self
        found = self._variants.get(words)
        if found is None:
            of_words = Operand(_resize(self.pieces, words), self.optional, self.source, self.always)
            found = self._variants.setdefault(words, of_words)
        return found

    @functools.cached_property
    def regex(self) -> re.Pattern[str]:
        return re.compile(_regex(self.pieces))

    @functools.cached_property
    def lossy(self) -> re.Pattern[str]:
        """The spelling without the parts that nvdisasm does not print."""
        return re.compile(_regex(self.pieces, skip_hidden=True))

    @functools.cached_property
    def exact(self) -> Show:
        """Bits -> the text that determines them; Unprintable where there is none. Of an operand with a target:
        ``located``."""
        return _shower(self.pieces, False)

    @functools.cached_property
    def plain(self) -> Show:
        """Bits -> nvdisasm's text."""
        return _shower(self.pieces, True)

    def _quick(self, text: str) -> int | None:
        """The bits of a text of several pieces, if it is written as it is printed; None of other texts."""
        with contextlib.suppress(ValueError):  # the regular expression tells whether the rest of it is right
            found = _taken_apart(self.pieces, text)
            if found is not None and found[1] == len(text):
                return found[0]
        return None

    def encode(self, text: str) -> int:
        """The bits of one operand (none of them a branch target). ValueError when a value does not fit."""
        if self.quick is not None:
            bits = self.quick(text)
            if bits is not None:
                return bits
        match = self.regex.fullmatch(text)
        if match is None:
            raise ValueError(f"{text!r} does not fit {self.source}")
        bits = 0
        for f, part in zip(self.fields, match.groups()):
            bits |= (f.default or 0) if part is None else f.encode(part)
        return bits

    def located(self, plain: bool, word: int, address: int, labels: Mapping[int, str] | None) -> str:
        """The text of a branch target; Unprintable with a register that ``encode`` would not take."""
        target = self.target
        assert target is not None
        where = target.address(word, address)
        name = labels.get(where) if labels and target.relative else None
        text = hex(where) if name is None else name
        return text if self.only is target else (self.plain if plain else self.exact)(word).replace(TARGET, text)

    @functools.cached_property
    def marks(self) -> list[str]:
        """What stands in each of its texts."""
        registers = [value.prefix for kind, value in self.pieces if kind == "field" and isinstance(value, Register)]
        return registers + [value.strip() for kind, value in self.pieces if kind == "text"]

    def follows(self, text: str, word: int) -> str:
        """What must stand in an operand with ``following`` registers instead of what does; "" if nothing."""
        match = self.regex.fullmatch(text)
        assert match is not None
        meant = [(match[n + 1], self.fields[n].decode(word)) for n in self.following]
        return next((needed for said, needed in meant if said != needed), "")

    @functools.cached_property
    def begins(self) -> tuple[str, ...]:
        """What each of its texts begins with, as far as that is cheaply told."""
        kind, first = self.pieces[0]
        return (first,) if kind == "text" and first != " " else first.begins if kind == "field" else ("",)

    def matches(self, text: str) -> bool:
        """Whether ``text`` looks like this operand, though its value may not fit."""
        if not text.startswith(self.begins):
            return False
        for mark in self.marks:
            if mark not in text:
                return False
        try:
            if self.target is None:
                self.bits[text]
                return True
        except ValueError:
            pass
        return self.regex.fullmatch(text) is not None


Show = Callable[[int], str]
TARGET = "\0"  # stands for a branch target, which depends on more than the bits


class _Shown(dict[int, str]):
    """bits -> text of a part of an operand. Unprintable for registers that ``encode`` would not take."""

    def __init__(self, show: Show) -> None:
        self.show = show

    def __missing__(self, bits: int) -> str:
        return remember(self, bits, self.show(bits))


def _shower(pieces: Sequence[Piece], plain: bool) -> Show:
    """A function from bits to the text of ``pieces``."""
    text = ""
    parts: list[tuple[_Shown, int]] = []
    for kind, value in pieces:
        if kind == "text":
            text += value.replace("%", "%%")
        elif kind == "field" and isinstance(value, Target):
            text += TARGET
        elif kind == "field" or kind == "group" or not plain:
            text += "%s"
            fields = [value] if kind == "field" else list(fields_of(value))
            show = _shows(value, plain) if kind == "field" else _shower(value, plain)
            if kind == "group":
                show = _unless_default(fields, show)
            parts.append((_Shown(show), functools.reduce(operator.or_, [f.mask for f in fields], 0)))
    if text == "%s":
        return parts[0][0].show
    return lambda bits: text % tuple([shown[bits & mask] for shown, mask in parts])


def _shows(f: Field, plain: bool) -> Show:
    """What writes a field."""
    return f.checked if isinstance(f, Register) else f.plain if plain else f.decode


def _unless_default(fields: Sequence[Field], show: Show) -> Show:
    """What may be unsaid, and is where all its fields have their default."""
    if any(f.default is None for f in fields):
        return show
    default = sum(f.default or 0 for f in fields)
    return lambda bits: show(bits) if bits != default else ""


def _resize(pieces: Sequence[Piece], words: int) -> list[Piece]:
    out: list[Piece] = []
    for kind, value in pieces:
        if kind == "field" and value.words < 0:
            value = copy.copy(value)
            value.words, value.align = words, usual(words)
        elif kind in ("group", "hidden"):
            value = _resize(value, words)
        out.append((kind, value))
    return out


class Bits(dict[str, int]):
    """text -> bits of one operand, and above the 128 bits of the word where its general registers end
    (``Register.end``): of operands that are ORed together the highest bit tells how many registers they need."""

    def __init__(self, operand: Operand) -> None:
        self.operand = operand
        self._registers = [f for f in operand.fields if isinstance(f, Register) and f.prefix == "R"]
        self._register = operand.only if type(operand.only) is Register else None
        self._names: Mapping[str, int] = {}
        #: the offset of an address, if that is written last
        *_, (kind, group), end = [("", []), *operand.pieces]
        last = group[0][1] if kind == "group" and end == ("text", "]") else None
        self._offset = last if type(last) is Offset else None

    def __missing__(self, text: str) -> int:
        bits = self._like_another(text)
        if bits is None:
            bits = self.operand.encode(text.strip())
            for f in self._registers:
                bits |= f.end(bits)
        return remember(self, text, bits)

    def _like_another(self, text: str) -> int | None:
        """The bits of a register with signs, and of an address with an offset, by those of the same without; None of
        other texts, right or wrong."""
        if self._register is not None:
            if not self:
                self._names = self._register.names()
                self.update(self._names)
            signs, name = self._register.signs(text)
            bits = self._names.get(name)
            return None if bits is None else bits | signs
        if self._offset is not None and "-" not in text and text[-1:] == "]":
            address, _, offset = text[:-1].rpartition("+")
            if offset[:2] == "0x" and not address.rpartition("+")[2][:1].isdigit():  # not the second offset
                try:
                    return self[address + "]"] | self._offset.encode(offset)
                except ValueError:
                    pass
        return None


class Texts(dict[int, str]):
    """bits -> text of one unit: an operand, or a run of operands that may be unsaid. ``lead`` comes before it and
    ``trail`` behind it, unless there is nothing to say."""

    def __init__(self, operands: tuple[Operand, ...], plain: bool, size: Enum | None, lead: str, trail: str) -> None:
        self.operands, self.plain, self.size, self.lead, self.trail = operands, plain, size, lead, trail
        first = operands[0]
        self._several = len(operands) > 1 or first.optional
        #: what shows the register that is all of the unit, as often
        self._register = first.only if type(first.only) is Register and not (self._several or size) else None

    def __missing__(self, bits: int) -> str:
        if not self and self._register is not None:
            self.update(self._register.texts(self.lead, self.trail))
            if bits in self:
                return self[bits]
        words = self.size.span(bits) if self.size else 1
        text = self._run(bits, words) if self._several else self._show(self.operands[0], words)(bits)
        return remember(self, bits, self.lead + text + self.trail if text else text)

    def _show(self, operand: Operand, words: int) -> Show:
        sized = operand.sized(words) if operand.variable else operand
        return sized.plain if self.plain else sized.exact

    def _run(self, bits: int, words: int) -> str:
        shown: list[str] = []
        last = 0
        for n, operand in enumerate(self.operands):
            said = not operand.optional or operand.always or bits & operand.mask != operand.default
            text = self._show(operand, words)(bits)
            if said:
                last = n + 1
            shown.append(text if said or not self.plain else "")
        # an operand before one that is said must be said too, or the text would not determine the word
        return ", ".join([part for part in shown[:last] if part])


def merged(pieces: list[Piece]) -> list[Piece]:
    """Neighbouring texts become one."""
    out: list[Piece] = []
    for kind, value in pieces:
        if kind == "text" and out and out[-1][0] == "text":
            out[-1] = ("text", str(out[-1][1]) + str(value))
        else:
            out.append((kind, value if kind in ("text", "field") else merged(value)))
    return out
