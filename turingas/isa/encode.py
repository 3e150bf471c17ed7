"""Text -> word, in a few dictionary look-ups an instruction.

What the operands of a line look like without their digits, signs and reuse flags tells, together with its mnemonic,
which form it is. Each operand of that form then remembers the bits of every text that it has seen.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from operator import getitem, or_
from typing import Any

from turingas.errors import EncodeError
from turingas.isa import diagnose, grammar
from turingas.isa.diagnose import Line, Problem
from turingas.isa.fields import Register, Target
from turingas.isa.form import GUARDS as GUARD_TEXTS
from turingas.isa.form import WORD, Form
from turingas.isa.forms import Forms
from turingas.isa.grammar import Row
from turingas.isa.operands import MEMO, Bits, Operand, remember


@dataclass(slots=True)
class _Entry:
    """What a mnemonic with operands of certain kinds encodes to. ``tables`` have the bits of each operand's texts."""

    form: Form
    bits: int
    tables: list[Bits]
    target: Operand | None = None  # the last operand, if it is a branch target
    following: list[tuple[int, Operand]] = dataclasses.field(default_factory=list)  # operands with such registers
    alone: Target | None = None  # ... whose field is all of it, and nothing else is asked of the operands
    careful: bool = False  # its operands' bits alone do not make a word: there is a target, or ``allows`` tells

    def allows(self, parts: list[str], bits: int) -> bool:
        """Whether the operands go with each other."""
        if not self.form.accepts(bits):
            return False
        return not (self.following and any(operand.follows(parts[n], bits) for n, operand in self.following))


TARGET = b"\0"
#: what the kind of an operand does not say: digits, signs and ".reuse" (but for "~", without which ~desc is a desc)
UNTOLD = b"0123456789abcdef" + b"-!|" + b".reus"
SPACES = re.compile(r"(?<=[\[+|!~])\s+|\s+(?=[\]+|])")  # ``[R2 + 0x10]``: blanks that mean nothing
SPLIT = re.compile(r"\s*,\s*(?![^{]*\})")
GUARD = re.compile(r"@(!?)(U?P)(T|\d+)$")


REGISTERS = "RUPSBc"  # what their names begin with: the label of a branch may be called like one
NO_GUARD = (0, "")  # fits no form
GUARDS = {text.strip(): (bits, kind) for kind in ("P", "UP") for bits, text in GUARD_TEXTS[kind].items() if text}


class Encoder:
    """Text to word, for the forms of one architecture."""

    def __init__(self, forms: Forms) -> None:
        self.forms = forms
        #: mnemonic -> kinds of its operands -> what they encode to; a branch target is of kind ``TARGET``
        self._entries: dict[str, dict[bytes, _Entry]] = {}
        self._count = 0  # of entries
        #: a branch up to its target, which is all of its last operand -> the bits of the rest, form, the target's field
        self._branches: dict[str, tuple[int, Form, Target]] = {}
        #: a row, the number and kinds of operands -> the form that fits them, and its operands
        self._shapes: dict[tuple[Row, int, bytes], tuple[Form, list[Operand]]] = {}

    def encode(self, text: str, address: int = 0, labels: Mapping[str, int] | None = None) -> int:
        """The word of one instruction (guard, mnemonic, operands), control bits 0.

        ``address`` is its own, in bytes; ``labels`` gives the addresses of branch targets. EncodeError says what
        is wrong, and where in ``text``.
        """
        return self.find(text, address, labels)[0]

    def find(self, text: str, address: int = 0, labels: Mapping[str, int] | None = None) -> tuple[int, Form]:
        """The word, as ``encode`` gives it, and the form that the text has."""
        bits, form = self.read(text, address, labels)
        return bits & WORD, form

    def read(self, text: str, address: int = 0, labels: Mapping[str, int] | None = None) -> tuple[int, Form]:
        """The same, and above the 128 bits of the word those that tell which general registers it uses
        (``Register.end``)."""
        found = self.branch(text, address, labels or {}) or self.quick(text, address, labels)
        if found is not None:
            return found
        guard, uniform, rest, before = 0x7000, None, text, ""
        if text[:1] == "@":
            before, _, rest = text.partition(" ")
            if "\t" in before:
                return self.read(text.replace("\t", " "), address, labels)
            guard, uniform = GUARDS.get(before) or self._guard(before)
        rest = rest.strip()
        name, _, tail = rest.partition(" ")
        parts = SPLIT.split(tail.strip()) if tail else []
        tidy = f"{before} {name} {', '.join(parts)}".strip()
        if tidy != text:  # it has other blanks than nvdisasm writes
            found = self.quick(tidy, address, labels)
            if found is not None:
                return found
        try:
            return self._search(text, rest, name, parts, guard, uniform, address, labels)
        except EncodeError:
            if "\t" in text:
                return self.read(text.replace("\t", " "), address, labels)
            if ";" in text:
                raise EncodeError("nothing may follow the ';'", text.index(";"), "one instruction a line") from None
            tidy = SPACES.sub("", text)
            if tidy != text:
                with contextlib.suppress(EncodeError):
                    return self.read(tidy, address, labels)
            raise

    def branch(self, text: str, address: int, labels: Mapping[str, int]) -> tuple[int, Form] | None:
        """What ``read`` gives, of a branch to a label or an address, if another one was seen that differs in that
        alone."""
        before, _, name = text.rpartition(" ")
        known = self._branches.get(before)
        if known is None:
            return None
        bits, form, target = known
        try:
            if name in labels and name[0] not in REGISTERS:
                return bits | target.at(labels[name], address), form
            if name[:2] == "0x" and name.isalnum() and name.isascii():
                return bits | target.at(int(name, 16), address), form
        except ValueError:
            pass
        return None

    def known(self, text: str) -> int | None:
        """The bits that ``read`` gives, of an instruction whose like was seen before and that means the same
        everywhere; None of others (branches, too), and where something is wrong."""
        guard, uniform = 0x7000, None
        name, _, tail = text.partition(" ")
        kinds = self._entries.get(name)
        if kinds is None:  # new, or behind a guard
            guard, uniform = GUARDS.get(name, NO_GUARD)
            name, _, tail = tail.partition(" ")
            kinds = self._entries.get(name)
            if kinds is None:
                return None
        try:
            entry = kinds.get(tail.encode().translate(None, UNTOLD))
            if entry is None:
                return None
            parts = tail.split(", ")
            bits = reduce(or_, map(getitem, entry.tables, parts), entry.bits | guard)
        except ValueError:
            return None
        if uniform is not None and uniform != entry.form.guard:
            return None
        if entry.careful and (entry.target is not None or not entry.allows(parts, bits)):
            return None
        return bits

    def quick(self, text: str, address: int = 0, labels: Mapping[str, int] | None = None) -> tuple[int, Form] | None:
        """What ``read`` gives, of an instruction whose like was seen before; None of others, and where something is
        wrong."""
        guard, uniform, rest = 0x7000, None, text
        if text[:1] == "@":
            before, _, rest = text.partition(" ")
            guard, uniform = GUARDS.get(before, NO_GUARD)
        name, _, tail = rest.partition(" ")
        kinds = self._entries.get(name)
        if kinds is None:
            return None
        key = _kind(tail)
        entry = kinds.get(key) or kinds.get(_to_target(key))
        if entry is None or uniform is not None and uniform != entry.form.guard:
            return None
        bits = entry.bits | guard
        try:
            parts = tail.split(", ")
            for table, part in zip(entry.tables, parts):
                bits |= table[part]
            if entry.target is not None:
                if entry.alone is not None:
                    remember(self._branches, text[: -len(parts[-1]) - 1], (bits, entry.form, entry.alone))
                bits |= self._target(entry.target, parts[-1], address, labels)
        except ValueError:
            return None
        if entry.careful and not entry.allows(parts, bits):
            return None
        return bits, entry.form

    def _guard(self, text: str) -> tuple[int, str | None]:
        match = GUARD.match(text)
        if match is None:
            raise EncodeError(f"{text!r} is not a guard", 0, diagnose.guard_hint(text))
        negated, kind, index = match.groups()
        number = 7 if index == "T" else int(index)
        if number > 7 or (index == "7"):
            hint = f"{kind}0 to {kind}6, {kind}T"
            raise EncodeError(f"{kind}{index} is out of range", len(text) - len(index) - 1, hint)
        return number << 12 | bool(negated) << 15, kind

    def _target(self, operand: Operand, text: str, address: int, labels: Mapping[str, int] | None) -> int:
        if labels and operand.only is operand.target is not None and text in labels:
            return operand.target.at(labels[text], address)
        match = operand.regex.fullmatch(text)
        if match is None:
            raise ValueError(f"{text!r} is not a branch target")
        bits = 0
        for f, part in zip(operand.fields, match.groups()):
            if not isinstance(f, Target):
                bits |= (f.default or 0) if part is None else f.encode(part)
                if isinstance(f, Register):
                    bits |= f.end(bits)
                continue
            name = part
            if name.startswith("`("):
                name = name[2:-1]
            if labels and name in labels:
                where = labels[name]
            elif name[0].isdigit() or name[0] == "-":
                where = int(name, 0 if "x" in name.lower() else 10)
            else:
                raise diagnose.unknown_label(name, labels or {})
            bits |= f.at(where, address)
        return bits

    def _search(
        self,
        text: str,
        rest: str,
        name: str,
        parts: list[str],
        guard: int,
        uniform: str | None,
        address: int,
        labels: Mapping[str, int] | None,
        explain: bool = False,
    ) -> tuple[int, Form]:
        """Find the form of a line seen for the first time. EncodeError when there is none."""
        line = Line(text, rest, name, parts)
        kind = _kind(", ".join(parts))
        worst: Problem | None = None
        without = () if explain else grammar.unsaid(parts)
        for row, readings in self.forms.reading(name):
            shape = row, len(parts), kind  # no operand and an empty one are of the same kind
            if (known := self._shapes.get(shape)) is not None:  # such texts were seen with other modifiers
                for modifiers in readings:
                    found = self._fit(*known, modifiers, line, guard, uniform, address, labels)
                    if not isinstance(found, Problem):
                        return found
            for form in self.forms.each(row, without=without):
                assigned = form.assign(parts)
                if assigned is not None:
                    remember(self._shapes, shape, (form, assigned))
                for modifiers in readings:
                    found = self._fit(form, assigned, modifiers, line, guard, uniform, address, labels)
                    if not isinstance(found, Problem):
                        return found
                    if worst is None or found.rank > worst.rank:
                        worst = found
        if without:  # which is worst is told of all forms
            return self._search(text, rest, name, parts, guard, uniform, address, labels, explain=True)
        raise diagnose.error(self.forms, line, worst)

    def _fit(
        self,
        form: Form,
        assigned: list[Operand] | None,
        modifiers: int,
        line: Line,
        guard: int,
        uniform: str | None,
        address: int,
        labels: Mapping[str, int] | None,
    ) -> tuple[int, Form] | Problem:
        """The word of a line in this form, or what is in the way. Remembers what the line's operands look like."""
        parts = line.parts
        if assigned is None:
            return Problem(2 if form.hides and form.lossy(parts) else 1, "operands", form)
        if uniform is not None and uniform != form.guard:
            return Problem(3, "guard", form)
        if form.repeats and any(parts[assigned.index(o)] != parts[n] for n, o in enumerate(assigned)):
            return Problem(3, "twice", form)
        entry = _Entry(form, form.value | modifiers, [_ZERO] * len(parts))
        for operand in form.operands:
            if operand not in assigned:
                entry.bits |= operand.default
        word = entry.bits | guard
        words = form.size.span(modifiers) if form.size else 1
        for n, operand in enumerate(assigned):
            sized = operand.sized(words)
            try:
                if sized.target is not None:
                    entry.target = sized
                    word |= self._target(sized, parts[n], address, labels)
                else:
                    entry.tables[n] = sized.bits
                    word |= sized.bits[parts[n]]
            except EncodeError as error:
                raise type(error)(error.message, line.places[1 + n], error.hint) from None
            except ValueError as error:
                return Problem(4 + n, "value", form, n, str(error))
        for n, operand in enumerate(assigned) if form.following else ():
            needed = operand.follows(parts[n], word) if operand.following else ""
            if needed:
                return Problem(4 + n, "value", form, n, f"{parts[n]} must name {needed}, behind the register before it")
            if operand.following:
                entry.following.append((n, operand))
        if not form.accepts(word):
            return Problem(3, "values" if word & form.check_mask != form.check_value else "tests", form)
        asked = form.check_mask or form.tests or entry.following
        entry.careful = bool(entry.target or asked)
        if entry.target is not None and entry.target.only is entry.target.target and not asked:
            entry.alone = entry.target.target
        if not form.repeats:  # the short way would not compare the two texts
            self._keep(line.name, parts, entry)
        return word, form

    def _keep(self, name: str, parts: list[str], entry: _Entry) -> None:
        key = _kind(", ".join(parts))
        if key.count(b", ") >= len(parts) > 0:  # a set with blanks in it looks like several operands
            return
        if entry.target is not None:  # always the last; its text says nothing of the form
            key = _to_target(key)
        if self._count >= MEMO:
            self._entries.clear()
            self._count = 0
        self._entries.setdefault(name, {})[key] = entry
        self._count += 1


def _to_target(key: bytes) -> bytes:
    """The kinds of operands of which the last is a branch target."""
    others, comma, _ = key.rpartition(b", ")
    return others + comma + TARGET


def _kind(operands: str) -> bytes:
    """What operands look like without what is ``UNTOLD``."""
    try:
        return operands.encode().translate(None, UNTOLD)
    except UnicodeEncodeError:
        return operands.encode("utf-8", "surrogatepass").translate(None, UNTOLD)


class _Zero(dict[str, int]):
    """Stands in for operands that are encoded apart (branch targets)."""

    def __missing__(self, text: str) -> int:
        return 0


_ZERO: Any = _Zero()
