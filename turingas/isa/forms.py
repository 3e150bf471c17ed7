"""Rows of the table -> checked forms for one architecture; encode and decode.

A row of ``table.py`` says how an instruction is written and where its bits lie. Here a row becomes one ``Form`` for
each shape of its operands (register, immediate, constant, uniform register). ``Isa.encode`` and ``Isa.decode`` are
a few dictionary look-ups an instruction: every operand remembers the texts and the bits it has seen.
"""

from __future__ import annotations

import contextlib
import copy
import difflib
import functools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import getitem
from typing import Any

from turingas.errors import AsmError
from turingas.isa import control, grammar, table
from turingas.isa.fields import Constant, Enum, Field, Number, Offset, Register, Target, Unprintable

MEMO = 20_000  # texts or bits that one operand remembers before it starts anew; bounds the memory
SEEN = 50_000  # whole instructions that are remembered
WORD = (1 << 128) - 1
FOURTH_REUSE = 8 << control.REUSE  # no operand shows it


DIGITS = str.maketrans("", "", "0123456789abcdef")  # what a kind of operand text is told apart without


class EncodeError(ValueError):
    """A line that has no exact encoding. ``position`` is the offset in the text, from 0."""

    def __init__(self, message: str, position: int = 0, hint: str = "") -> None:
        super().__init__(message)
        self.message, self.position, self.hint = message, position, hint


# ---- operands ----------------------------------------------------------------------------------------------------

Piece = tuple[str, Any]  # ("text", str) | ("field", Field) | ("group", list[Piece]) | ("hidden", list[Piece])
TOKEN = re.compile(r"\{(\w+)\}|([-~!]?\|?(?!cx\[)[A-Za-z_]\w*\|?)|(\()|(\))|(<)|(>)|(cx(?=\[)|.)", re.S)


def _pieces(text: str, find: Callable[[str], Field | None]) -> list[Piece]:
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


def _fields(pieces: Sequence[Piece]) -> Iterator[Field]:
    for kind, value in pieces:
        if kind == "field":
            yield value
        elif kind != "text":
            yield from _fields(value)


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
        self.fields = list(_fields(pieces))
        self.mask = functools.reduce(lambda m, f: m | f.mask, self.fields, 0)
        self.target = next((f for f in self.fields if isinstance(f, Target)), None)
        self.default = 0
        for f in self.fields:
            self.default |= f.default or 0
        self.bits = _Bits(self)
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
            if any(word & f.mask != f.default for f in _fields(value)):
                out += _show(value, word, plain, address, labels)
        elif not plain:
            out += _show(value, word, plain, address, labels)
    return out


class _Bits(dict[str, int]):
    """text -> bits of one operand."""

    def __init__(self, operand: Operand) -> None:
        self.operand = operand

    def __missing__(self, text: str) -> int:
        bits = self.operand.encode(text.strip())
        if len(self) > MEMO:
            self.clear()
        self[text] = bits
        return bits


class _Texts(dict[int, str]):
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


class _Names(dict[int, str]):
    """bits -> guard, and mnemonic with its modifiers."""

    def __init__(self, form: Form) -> None:
        self.form = form

    def __missing__(self, bits: int) -> str:
        name = "".join(part if isinstance(part, str) else part.decode(bits) for part in self.form.name)
        if bits & ~0xF000 not in self.form.modifiers(name):
            raise Unprintable
        self[bits] = text = GUARDS[self.form.guard][bits & 0xF000] + name
        return text


# ---- forms -------------------------------------------------------------------------------------------------------


Writer = Callable[[int, int, "Mapping[int, str] | None"], str]
GUARDS = {
    kind: {
        n << 12: "" if n == 7 else f"@{'!' if n > 7 else ''}{kind}{'T' if n % 8 == 7 else n % 8} " for n in range(16)
    }
    for kind in ("P", "UP")
}


@functools.cache
def _writer(units: int) -> Callable[..., Writer]:
    """The common case of Form.writer, written out for a number of units: one look-up for guard and mnemonic, and one
    for each unit."""
    parts = [f"u{n}, m{n}" for n in range(units)]
    body = "{n[w & nm]}" + "".join(f"{{u{n}[w & m{n}]}}" for n in range(units))
    known: dict[str, Any] = {}
    exec(f"def make({', '.join(['n, nm', *parts])}): return lambda w, address, labels: f'{body}'", known)
    made: Callable[..., Writer] = known["make"]
    return made


class Form:
    """One way to write one instruction on one architecture."""

    def __init__(
        self,
        isa: Isa,
        row: grammar.Row,
        name: str,
        operands: list[str],
        opcode: int,
        find: Callable[[str], Field | None],
        fixed: Mapping[int, int],
        when: Mapping[str, object],
    ) -> None:
        self.isa, self.row, self.when_text = isa, row, when
        self.text = f"{name} {', '.join(operands)}".strip()
        self.name: list[str | Enum] = []
        for kind, value in _merge(_pieces(name, lambda n: find(n) if f"{{{n}}}" in name else None)):
            assert kind in ("text", "field"), name
            self.name.append(value)
        self.base = str(self.name[0]).split(".")[0]
        self.guard = "UP" if row.uniform_guard else "P"
        #: the modifier that says how wide the data operands (``Rdw``) are
        self.size = next((p for p in self.name if isinstance(p, Enum) and p.spans), None)
        self.operands = [self._operand(text, find) for text in operands]
        self.name_mask = functools.reduce(lambda m, p: m | (0 if isinstance(p, str) else p.mask), self.name, 0)
        self.name_mask |= 0xF000  # the guard is looked up together with the mnemonic
        known = 0
        #: one operand that is written twice (``BAR.SYNC R4, R4``: one register holds the barrier and the count)
        self.repeats = len(set(self.operands)) < len(self.operands)
        operands_ = dict.fromkeys(self.operands)
        for place in [p for p in self.name if not isinstance(p, str)] + [f for o in operands_ for f in o.fields]:
            if known & place.mask:
                raise AssertionError(f"{self.text}: bits {_bits(known & place.mask)} are claimed twice")
            known |= place.mask
        if known & (opcode | 0xFFF | (1 << 91 if opcode >> 91 else 0)):
            raise AssertionError(f"{self.text}: a field lies in the opcode")
        self.value = opcode
        for pos, bits in fixed.items():
            if known & bits << pos:
                raise AssertionError(f"{self.text}: the fixed bit {pos} lies in a field")
            self.value |= bits << pos
        self.known = known
        #: reuse bits that mean nothing to this form, but that NVIDIA's compiler may have set
        self.loose = (FOURTH_REUSE if row.reuse else control.REUSE_MASK) & ~known
        self.mask = WORD & ~known & ~(control.MASK & ~control.REUSE_MASK) & ~self.loose & ~0xF000
        self.check_mask = self.check_value = 0  # the row's conditions on its own operands
        self.tests: list[tuple[Field, Callable[[int], bool]]] = []
        for key, want in when.items():
            f = find(key)
            assert f is not None, (key, self.text)
            if callable(want):
                self.tests.append((f, want))
            else:
                mask, value = _check(f, str(want))
                self.check_mask |= mask
                self.check_value |= value
        self.has_target = any(o.target for o in self.operands)
        self.hides = any("<" in o.source for o in self.operands)
        units: list[list[Operand]] = []
        for operand in self.operands:
            if operand.optional and units and units[-1][0].optional:
                units[-1].append(operand)
            else:
                units.append([operand])
        lead = " "
        #: mask, exact texts, nvdisasm's texts, and the operand when it is a branch target
        self.units: list[tuple[int, _Texts, _Texts, Operand | None]] = []
        for unit in units:
            size = self.size if any(o.variable for o in unit) else None
            mask = functools.reduce(lambda m, o: m | o.mask, unit, size.mask if size else 0)
            # when the first operand may be unsaid, the comma between it and the next belongs to it
            trail = "," if not self.units and unit[0].optional and len(units) > 1 else ""
            exact, plain = isa.texts(tuple(unit), size, lead, trail)
            self.units.append((mask, exact, plain, unit[0] if unit[0].target is not None else None))
            if not trail:
                lead = ", "
        self.names = _Names(self)
        self._modifiers: dict[str, tuple[int, ...]] = {}

    def _operand(self, text: str, find: Callable[[str], Field | None]) -> Operand:
        source = text.rstrip("?")
        pieces = _merge(_pieces(source, find))
        return self.isa.operand(source, pieces, text.endswith("?"))

    def modifiers(self, name: str) -> tuple[int, ...]:
        """Every way to read ``name`` as this form's mnemonic, as bits; () when it is none."""
        found = self._modifiers.get(name)
        if found is None:
            found = self._modifiers[name] = tuple(dict.fromkeys(_read(self.name, name)))
        return found

    def writer(self, plain: bool) -> Writer:
        """A function (word, address, labels) -> text. Raises Unprintable for words that have no exact text."""
        names, name_mask = self.names, self.name_mask
        units = [(mask, short if plain else exact, target) for mask, exact, short, target in self.units]
        yield_bit, no_reuse = 1 << control.YIELD, ~control.REUSE_MASK

        def careful(word: int, address: int, labels: Mapping[int, str] | None) -> str:
            if self.tests and not self.accepts(word):
                raise Unprintable
            if plain and not word & yield_bit:
                word &= no_reuse  # nvdisasm prints no .reuse on a yielding instruction
            shown = [
                texts[word & mask].strip(", ") if target is None else target.located(word, plain, address, labels)
                for mask, texts, target in units
            ]
            operands = ", ".join([text for text in shown if text])
            text = names[word & name_mask]
            return f"{text} {operands}" if operands else text

        if plain or self.tests or self.has_target:
            return careful
        return _writer(len(units))(names, name_mask, *[part for mask, texts, _ in units for part in (texts, mask)])

    def accepts(self, word: int) -> bool:
        """Whether the row's conditions on its own operands hold."""
        if word & self.check_mask != self.check_value:
            return False
        return not self.tests or all(test(f.get(word)) for f, test in self.tests)

    def assign(self, texts: Sequence[str]) -> list[Operand] | None:
        """The operand that each text stands for; None when they do not fit this form."""

        def walk(n: int, k: int) -> list[Operand] | None:
            if n == len(self.operands):
                return [] if k == len(texts) else None
            operand = self.operands[n]
            if k < len(texts) and operand.matches(texts[k]):
                rest = walk(n + 1, k + 1)
                if rest is not None:
                    return [operand, *rest]
            return walk(n + 1, k) if operand.optional else None

        return walk(0, 0)


def _bits(mask: int) -> list[int]:
    return [n for n in range(128) if mask >> n & 1]


def _merge(pieces: list[Piece]) -> list[Piece]:
    """Neighbouring texts become one."""
    out: list[Piece] = []
    for kind, value in pieces:
        if kind == "text" and out and out[-1][0] == "text":
            out[-1] = ("text", str(out[-1][1]) + str(value))
        else:
            out.append((kind, value if kind in ("text", "field") else _merge(value)))
    return out


def _check(f: Field, text: str) -> tuple[int, int]:
    """A condition on a field, as mask and value: the register number alone, not its signs."""
    if isinstance(f, Register):
        mask = f.last << f.pos
        return mask, f.encode(text) & mask
    return f.mask, f.encode(text)


def _read(parts: Sequence[str | Enum], text: str) -> Iterator[int]:
    if not parts:
        if not text:
            yield 0
        return
    part = parts[0]
    if isinstance(part, str):
        if text.startswith(part):
            yield from _read(parts[1:], text[len(part) :])
        return
    for name in part.values:
        if text.startswith(name):
            bits = part.encode(name)
            for rest in _read(parts[1:], text[len(name) :]):
                yield bits | rest


# ---- the instruction set of one architecture -----------------------------------------------------------------------


_Candidate = tuple[int, int, Form, Writer, Writer]


MASK = control.MASK
NOT_CODE = WORD & ~MASK | control.REUSE_MASK  # the reuse flags are written with the operands


class _Codes(dict[int, str]):
    """Control bits -> their text and two spaces. ValueError for combinations that do not exist."""

    def __missing__(self, bits: int) -> str:
        if control.illegal(bits):
            raise ValueError("illegal control code")
        text = self[bits] = control.show(bits) + "  "
        return text


_codes = _Codes()


@dataclass(slots=True)
class _Entry:
    """What a mnemonic with operands of certain kinds encodes to."""

    form: Form
    bits: int
    tables: list[_Bits]
    targets: list[tuple[int, Operand]] = field(default_factory=list)
    conditional: bool = False


class _Skeletons(dict[str, str]):
    """Operand text -> its kind: what is left without the digits of numbers and register indices."""

    def __missing__(self, text: str) -> str:
        skeleton = text.strip().translate(DIGITS)
        if len(self) > MEMO:
            self.clear()
        self[text] = skeleton
        return skeleton


SPACES = re.compile(r"(?<=[\[+|!~])\s+|\s+(?=[\]+|])")  # ``[R2 + 0x10]``: blanks that mean nothing
SPLIT = re.compile(r"\s*,\s*(?![^{]*\})")
GUARD = re.compile(r"@(!?)(U?P)(T|\d+)$")


class _Anywhere(dict[int, bool]):
    """Opcode -> whether it means the same at every address: none of its forms has a branch target."""

    def __init__(self, isa: Isa) -> None:
        self.isa = isa

    def __missing__(self, opcode: int) -> bool:
        found = self[opcode] = not any(candidate[2].has_target for candidate in self.isa.bucket(opcode))
        return found


class Isa:
    """Encoder and decoder of one architecture. Get one from ``isa(arch)``."""

    def __init__(self, name: str, sm: float) -> None:
        self.name, self.sm = name, sm
        self.rows = [row for row in table.ROWS if row.first <= sm <= row.last]
        self._by_name: dict[str, list[grammar.Row]] = {}
        self._by_opcode: dict[int, list[grammar.Row]] = {}
        for row in self.rows:
            self._by_name.setdefault(row.base, []).append(row)
            for key in grammar.opcodes(row):
                self._by_opcode.setdefault(key, []).append(row)
        self._forms: dict[tuple[grammar.Row, int], Form] = {}
        self._names: dict[str, list[Form]] = {}
        self._buckets: dict[int, list[_Candidate]] = {}
        self._entries: dict[str, dict[tuple[str, ...], _Entry]] = {}
        self._exact: dict[int, str] = {}
        self._plain: dict[int, str] = {}
        #: whole lines with control code, and their words: what ``turingas.encode`` has seen
        self.lines_seen: dict[str, int] = {}
        self.anywhere = _Anywhere(self)
        self._skeletons = _Skeletons()
        self._skeleton = self._skeletons.__getitem__
        self._operands: dict[tuple[object, ...], Operand] = {}
        self._texts: dict[tuple[object, ...], tuple[_Texts, _Texts]] = {}
        self._find_field = functools.lru_cache(maxsize=None)(functools.partial(grammar.find, sm=sm))

    # -- forms, built when first needed; equal operands of different forms share their memories

    def operand(self, source: str, pieces: list[Piece], optional: bool) -> Operand:
        key = (source, optional, *[id(f) for f in _fields(pieces)])
        found = self._operands.get(key)
        if found is None:
            found = self._operands[key] = Operand(pieces, optional, source)
        return found

    def texts(self, operands: tuple[Operand, ...], size: Enum | None, lead: str, trail: str) -> tuple[_Texts, _Texts]:
        key = (operands, size, lead, trail)
        found = self._texts.get(key)
        if found is None:
            exact, plain = (_Texts(operands, plain, size, lead, trail) for plain in (False, True))
            found = self._texts[key] = (exact, plain)
        return found

    def field(self, row: grammar.Row, text: str) -> Field | None:
        """The field that a name in a row stands for; None when it is plain text."""
        local = row.fields.get(text)
        return local if local is not None else self._find_field(text, reuse=row.reuse)

    def forms_of(self, row: grammar.Row, opcode: int | None = None) -> list[Form]:
        """The forms of a row on this architecture; those with one opcode (bits 0 to 11) when it is given."""
        found = []
        for n, (name, operands, fixed, when, key) in enumerate(grammar.shapes(row)):
            if self.sm < 75 and key & 0x1000 and not row.opcode & 0x1000:
                continue  # shapes with uniform registers came with sm_75
            if opcode is not None and key & 0xFFF != opcode:
                continue
            form = self._forms.get((row, n))
            if form is None:
                find = functools.partial(self.field, row)
                form = self._forms[row, n] = Form(self, row, name, operands, _opcode(key), find, fixed, when)
            found.append(form)
        return found

    def named(self, base: str) -> list[Form]:
        """The forms of a mnemonic (without modifiers), in the table's order."""
        forms = self._names.get(base)
        if forms is None:
            forms = self._names[base] = [f for row in self._by_name.get(base, []) for f in self.forms_of(row)]
        return forms

    def mnemonics(self) -> list[str]:
        return sorted(self._by_name)

    def all_forms(self) -> Iterator[Form]:
        for row in self.rows:
            yield from self.forms_of(row)

    # -- encode

    def encode(self, text: str, address: int = 0, labels: Mapping[str, int] | None = None) -> int:
        """The word of one instruction (guard, mnemonic, operands), control bits 0.

        ``address`` is its own, in bytes; ``labels`` gives the addresses of branch targets. EncodeError says what
        is wrong, and where in ``text``.
        """
        guard, uniform, rest = 0x7000, None, text
        if text[:1] == "@":
            word, _, rest = text.partition(" ")
            if "\t" in word:
                return self.encode(text.replace("\t", " "), address, labels)
            guard, uniform = self._guard(word)
        name, _, tail = rest.strip().partition(" ")
        parts = [] if not tail else SPLIT.split(tail.strip()) if "{" in tail else tail.split(",")
        try:
            entry = self._entries[name][tuple(map(self._skeleton, parts))]
            if uniform is None or uniform == entry.form.guard:
                # the bits of different operands are disjoint: their sum is their union
                bits = sum(map(getitem, entry.tables, parts), entry.bits | guard)
                for n, operand in entry.targets:
                    bits |= self._target(operand, parts[n].strip(), address, labels)
                if not entry.conditional or entry.form.accepts(bits):
                    return bits
        except (KeyError, ValueError):
            pass  # not seen before, or wrong: the search says which
        rest = rest.strip()
        try:
            return self._search(text, rest, name, [part.strip() for part in parts], guard, uniform, address, labels)
        except EncodeError:
            if "\t" in text:
                return self.encode(text.replace("\t", " "), address, labels)
            if ";" in text:
                raise EncodeError("nothing may follow the ';'", text.index(";"), "one instruction a line") from None
            tidy = SPACES.sub("", text)
            if tidy != text:
                with contextlib.suppress(EncodeError):
                    return self.encode(tidy, address, labels)
            raise

    def join(self, bits: int, code: int) -> int:
        """The word of an instruction and its control code. EncodeError when the two do not go together."""
        word = bits | code
        if word & control.REUSE_MASK:
            problem = control.illegal(word)
            if problem:
                raise EncodeError(problem[0], 0, problem[1])
            if code & control.REUSE_MASK:
                form = self.explain(word)
                if form is not None and code & control.REUSE_MASK & ~(form.loose | form.known):
                    raise EncodeError("the control code sets a reuse bit that no operand has", 0, "take :abc away")
                if form is None:
                    raise EncodeError("the control code sets a reuse bit that this instruction lacks", 0)
        return word

    def _guard(self, text: str) -> tuple[int, str | None]:
        match = GUARD.match(text)
        if match is None:
            raise EncodeError(f"{text!r} is no guard", 0, "a guard is @P0 to @P6, @PT, or @!P0 and so on")
        negated, kind, index = match.groups()
        number = 7 if index == "T" else int(index)
        if number > 7 or (index == "7"):
            hint = f"{kind}0 to {kind}6, {kind}T"
            raise EncodeError(f"{kind}{index} does not exist", len(text) - len(index) - 1, hint)
        return number << 12 | bool(negated) << 15, kind

    def _target(self, operand: Operand, text: str, address: int, labels: Mapping[str, int] | None) -> int:
        match = operand.regex.fullmatch(text)
        if match is None:
            raise ValueError(f"{text!r} is no target")
        bits = 0
        for f, part in zip(operand.fields, match.groups()):
            if not isinstance(f, Target):
                bits |= (f.default or 0) if part is None else f.encode(part)
                continue
            name = part
            if name.startswith("`("):
                name = name[2:-1]
            if labels and name in labels:
                where = labels[name]
            elif name[0].isdigit() or name[0] == "-":
                where = int(name, 0 if "x" in name.lower() else 10)
            else:
                raise EncodeError(f"label {name!r} is not defined", 0, _nearest(name, list(labels or ())))
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
    ) -> int:
        """Find the form of a line seen for the first time, or say why there is none."""
        offsets = _Offsets(text, rest, name, parts)
        base = name.partition(".")[0]
        forms = self.named(base)
        if not forms:
            raise self.unknown(base, offsets[0])
        best: tuple[int, Callable[[], EncodeError]] | None = None

        def better(rank: int, error: Callable[[], EncodeError]) -> None:
            nonlocal best
            if best is None or rank > best[0]:
                best = (rank, error)

        for form in forms:
            for bits in form.modifiers(name):
                assigned = form.assign(parts)
                if assigned is None:
                    rank = 2 if form.hides and self._lossy(form, parts) else 1
                    better(rank, functools.partial(self._misfit, form, name, parts, offsets))
                    continue
                if uniform is not None and uniform != form.guard:
                    message = f"{base} is guarded by {form.guard}0 to {form.guard}6"
                    better(3, functools.partial(EncodeError, message, 0))
                    continue
                if form.repeats and any(parts[assigned.index(o)] != parts[n] for n, o in enumerate(assigned)):
                    message = f"{name} takes the same register twice"
                    better(3, functools.partial(EncodeError, message, offsets[len(parts)]))
                    continue
                word = form.value | bits | guard
                words = form.size.span(bits) if form.size else 1
                for operand in form.operands:
                    if operand not in assigned:
                        word |= operand.default
                entry_bits = word & ~0xF000
                targets = []
                tables = []
                try:
                    for n, operand in enumerate(assigned):
                        at = n
                        if words > 1:
                            operand = operand.sized(words)
                        if operand.target is not None:
                            targets.append((n, operand))
                            word |= self._target(operand, parts[n], address, labels)
                        else:
                            tables.append((n, operand))
                            word |= operand.bits[parts[n]]
                except EncodeError as error:
                    raise EncodeError(error.message, offsets[1 + at], error.hint) from None
                except ValueError as error:
                    better(4 + at, functools.partial(_value_error, str(error), base, parts[at], offsets, 1 + at))
                    continue
                if not form.accepts(word):
                    wanted = ""
                    if word & form.check_mask != form.check_value:
                        wanted = ", ".join(f"{k} = {v}" for k, v in form.when_text.items() if not callable(v))
                    hint = f"{name} wants {wanted}" if wanted else ""
                    message = f"{name} is not written with these operands"
                    better(3, functools.partial(EncodeError, message, offsets[0], hint))
                    continue
                key = tuple(map(self._skeleton, parts))
                lookup: list[_Bits] = [_Zero.table] * len(parts)
                for n, operand in tables:
                    lookup[n] = operand.bits
                conditional = bool(form.check_mask or form.tests)
                if not form.repeats:  # the short way would not compare the two texts
                    self._entries.setdefault(name, {})[key] = _Entry(form, entry_bits, lookup, targets, conditional)
                return word
        if best is None:
            raise self._bad_modifier(forms, name, offsets[0])
        raise best[1]()

    # -- diagnostics

    def unknown(self, base: str, position: int) -> EncodeError:
        elsewhere = [n for n, sm in grammar.ARCHITECTURES.items() if any(r.base == base for r in isa(n).rows)]
        if elsewhere:
            return EncodeError(f"{self.name} has no {base}", position, "it exists on " + ", ".join(elsewhere))
        if not base:
            return EncodeError("an instruction is missing here", position, ".word takes neither control code nor guard")
        everywhere = {row.base for row in table.ROWS}
        hint = _nearest(base.upper(), everywhere)
        if base.upper() in everywhere:
            hint = "instructions are written in capitals"
        return EncodeError(f"unknown instruction {base!r}", position, hint)

    def _bad_modifier(self, forms: list[Form], name: str, position: int) -> EncodeError:
        base, *given = name.split(".")
        known: dict[str, None] = {}
        for form in forms:
            for part in form.name:
                texts = [part] if isinstance(part, str) else list(part.values)
                for text in texts:
                    known.update(dict.fromkeys("." + t for t in text.split(".")[1:]))
        at = position + len(base)
        for modifier in given:
            if "." + modifier not in known:
                hint = _nearest("." + modifier, known) or f"{base} takes " + " ".join(known)
                where = self._elsewhere(base, "." + modifier)
                return EncodeError(f"{base} has no modifier .{modifier}", at, where or hint)
            at += len(modifier) + 1
        arranged = sorted(filter(None, (_arrange(form, given) for form in forms)))
        if arranged and arranged[0][0] == 0:
            return EncodeError(f"the modifiers of {name} stand in another order", position, f"write {arranged[0][1]}")
        if arranged:
            return EncodeError(f"{name} lacks a modifier", position, f"it is written {arranged[0][1]}")
        orders = dict.fromkeys("".join(p if isinstance(p, str) else _slot(p) for p in f.name) for f in forms)
        hint = "it is written " + " or ".join(list(orders)[:2])
        return EncodeError(f"the modifiers of {name} do not go together", position, hint)

    def _elsewhere(self, base: str, modifier: str) -> str:
        names = []
        for name in grammar.ARCHITECTURES:
            if name != self.name:
                other = isa(name)
                for form in other.named(base):
                    texts = [t for p in form.name for t in ([p] if isinstance(p, str) else p.values)]
                    if any(modifier in re.findall(r"\.\w+", t) for t in texts):
                        names.append(name)
                        break
        return f"it exists on {', '.join(names)}" if names else ""

    def _misfit(self, form: Form, name: str, parts: list[str], offsets: _Offsets) -> EncodeError:
        from turingas.isa import describe

        lossy = self._lossy(form, parts)
        if lossy is not None:
            n, operand = lossy
            unsaid = "".join(text.replace("URa", "UR4").replace("URb", "UR4").replace("URc", "UR4")
                             for text in re.findall(r"<([^>]*)>", operand.source))  # fmt: skip
            hint = f"nvdisasm leaves it out; write it as {unsaid}{parts[n]}, for example"
            return EncodeError(f"{parts[n]} does not say which descriptor register is used", offsets[1 + n], hint)
        candidates = [f for f in self.named(form.base) if f.modifiers(name)]
        written = describe.written(candidates, name)
        # the operand that fits no form that agrees with all before it
        alive, n = candidates, 0
        while n < len(parts):
            fitting = [f for f in alive if _prefix(f, parts[: n + 1])]
            if not fitting:
                break
            alive, n = fitting, n + 1
        hint = "it is written " + "; or ".join(written[:6]) + ("; ..." if len(written) > 6 else "")
        if n >= len(parts):
            return EncodeError(f"{name} has too few operands", offsets[0], hint)
        if any(_prefix(f, [*parts[:n], parts[n].upper()]) for f in alive):
            hint = "registers and names are written in capitals"
        return EncodeError(f"operand {parts[n]!r} does not fit {name}", offsets[1 + n], hint)

    def _lossy(self, form: Form, parts: list[str]) -> tuple[int, Operand] | None:
        fixed = [o for o in form.operands if not o.optional]
        if len(fixed) > len(parts):
            return None
        for operand in form.operands:
            if not any(kind == "hidden" for kind, _ in operand.pieces):
                continue
            for n, part in enumerate(parts):
                if operand.lossy.fullmatch(part):
                    return n, operand
        return None

    # -- decode

    def decode(
        self,
        word: int,
        address: int = 0,
        labels: Mapping[int, str] | None = None,
        plain: bool = False,
    ) -> str:
        """The text of one word without its control code; ``.word 0x...`` where no row explains it.

        ``plain``: nvdisasm's own text, which at places says less than the word.
        """
        for mask, value, _, exact, short in self._buckets.get(word & 0xFFF) or self.bucket(word & 0xFFF):
            if word & mask == value:
                try:
                    return (short if plain else exact)(word, address, labels)
                except (Unprintable, ValueError):
                    pass
        return f".word {word:#034x}"

    def lines(
        self, words: Iterable[int], address: int = 0, control_code: bool = True, labels: Mapping[int, str] | None = None
    ) -> list[str]:
        """One line a word: control code and exact text, or (``control_code`` False) nvdisasm's text alone."""
        out: list[str] = []
        # Real code repeats its instructions: most texts are found here. Branches, which depend on their address, and
        # words whose reuse bits need a say are not kept.
        seen = self._exact if control_code else self._plain
        buckets, codes = self._buckets, _codes
        for word in words:
            key = word & NOT_CODE
            text = seen.get(key)
            try:
                if text is not None:
                    out.append(codes[word & MASK] + text if control_code else text)
                    address += 16
                    continue
            except ValueError:
                pass
            for mask, value, form, exact, short in buckets.get(word & 0xFFF) or self.bucket(word & 0xFFF):
                if word & mask == value:
                    try:
                        if not control_code:
                            text = short(word, address, labels)
                            keep = not word & control.REUSE_MASK
                        elif word & form.loose:
                            codes[word & MASK]  # refuses combinations that do not exist
                            text = f"{control.show(word, word & form.loose)}  {exact(word, address, labels)}"
                            keep = False
                        else:
                            body = exact(word, address, labels)
                            text = codes[word & MASK] + body
                            keep = True
                        if keep and not form.has_target:
                            if len(seen) > SEEN:
                                seen.clear()
                            seen[key] = body if control_code else text
                        break
                    except (Unprintable, ValueError):
                        text = None
            out.append(text or f".word {word:#034x}")
            address += 16
        return out

    def explain(self, word: int) -> Form | None:
        """The form that writes this word exactly, or None."""
        for mask, value, form, exact, _ in self._buckets.get(word & 0xFFF) or self.bucket(word & 0xFFF):
            if word & mask == value:
                try:
                    exact(word, 0, None)
                    return form
                except (Unprintable, ValueError):
                    pass
        return None

    def bucket(self, key: int) -> list[_Candidate]:
        """The forms that may explain a word with these bits 0 to 11, each with what it takes to tell."""
        forms = [form for row in self._by_opcode.get(key, []) for form in self.forms_of(row, key)]
        bucket = self._buckets[key] = [
            (f.mask | f.check_mask, f.value | f.check_value, f, f.writer(False), f.writer(True)) for f in forms
        ]
        return bucket

    # -- what the cubin needs to know of a word

    def target(self, word: int, address: int) -> int | None:
        """The address a relative branch goes to, if the instruction names one."""
        form = self.explain(word)
        if form is not None and form.has_target:
            for operand in form.operands:
                if operand.target is not None and operand.target.relative:
                    return operand.target.address(word, address)
        return None

    def registers(self, word: int) -> int:
        """One more than the highest general register that the word reads or writes; 0 when it uses none."""
        form = self.explain(word)
        top = 0
        if form is not None:
            for operand in form.operands:
                for f in operand.fields:
                    if isinstance(f, Register) and f.prefix == "R":
                        index = word >> f.pos & f.last
                        wide = f.words if f.words > 0 else form.size.span(word) if form.size else 1
                        if index != f.last:
                            top = max(top, index + wide)
        return top

    def barriers(self, word: int) -> int:
        """One more than the highest named barrier that the word uses by number; 16 when a register names it."""
        form = self.explain(word)
        if form is None or form.base not in ("BAR", "UBAR", "B2R"):
            return 0
        for operand in form.operands:
            for f in operand.fields:
                if isinstance(f, Number) and f.width == 4:
                    return f.get(word) + 1
        return 16 if form.base == "BAR" and any(isinstance(f, Register) for o in form.operands for f in o.fields) else 1

    def is_exit(self, word: int) -> bool:
        return word & 0xFFF == 0x94D

    # -- documentation

    def describe(self, mnemonic: str) -> str:
        """How an instruction is written, its operands and modifiers and their bits, as text."""
        from turingas.isa.describe import describe

        return describe(self, mnemonic)


class _Zero(dict[str, int]):
    """Stands in for operands that are encoded apart (branch targets)."""

    def __missing__(self, text: str) -> int:
        return 0

    table: _Bits


_Zero.table = _Zero()  # type: ignore[assignment]


def _opcode(key: int) -> int:
    return key & 0xFFF | (key >> 12) << 91


def _slot(part: Enum) -> str:
    """The choices of a modifier: in ( ) when one of them must be written, in { } when none need be."""
    names = [n for n in part.values if n]
    choices = "|".join(names[:6]) + ("|..." if len(names) > 6 else "")
    if "" in part.values:
        return f"{{{choices}}}" if names else ""
    return f"({choices})" if len(names) > 1 else choices


def _arrange(form: Form, given: Sequence[str]) -> tuple[int, str] | None:
    """The mnemonic of this form with the given modifiers in its order, and how many more it needs; None if it has
    not all of them."""
    left, lacking, text = list(given), 0, form.base
    for n, part in enumerate(form.name):
        names: Iterable[str] = part.values if isinstance(part, Enum) else [part[len(form.base) :] if n == 0 else part]
        if names == [""]:
            continue
        fitting = [name for name in names if name and all(left.count(t) for t in name.split(".")[1:])]
        if fitting:
            best = max(fitting, key=lambda name: name.count("."))
            for token in best.split(".")[1:]:
                if token in left:
                    left.remove(token)
            text += best
        elif "" not in names:
            lacking += 1
            text += _slot(part) if isinstance(part, Enum) else "".join(names)
    return None if left else (lacking, text)


def _prefix(form: Form, parts: Sequence[str]) -> bool:
    """Whether the first operands of a line could be those of this form."""

    def walk(n: int, k: int) -> bool:
        if k == len(parts):
            return True
        if n == len(form.operands):
            return False
        operand = form.operands[n]
        return (operand.matches(parts[k]) and walk(n + 1, k + 1)) or (operand.optional and walk(n + 1, k))

    return walk(0, 0)


def _value_error(message: str, base: str, part: str, offsets: _Offsets, place: int) -> EncodeError:
    """A value that does not fit: the caret goes to the value itself where the message begins with it."""
    inside = max(part.find(message.split(" ", 1)[0]), 0)
    return EncodeError(message.replace(" bits (", f" bits of {base} (", 1), offsets[place] + inside)


def _nearest(name: str, known: Mapping[str, object] | Sequence[str] | set[str]) -> str:
    close = difflib.get_close_matches(name, list(known), 1, 0.6)
    return f"did you mean {close[0]!r}?" if close else ""


class _Offsets:
    """Where the mnemonic (0) and each operand (1, 2, ...) begin in a line; worked out when an error needs it."""

    def __init__(self, text: str, rest: str, name: str, parts: list[str]) -> None:
        self.text, self.rest, self.name, self.parts = text, rest, name, parts

    @functools.cached_property
    def places(self) -> list[int]:
        at = max(self.text.find(self.rest), 0)
        places = [at]
        cursor = at + len(self.name)
        for part in self.parts:
            found = self.text.find(part, cursor)
            places.append(found if found >= 0 else cursor)
            cursor = places[-1] + len(part)
        return places

    def __getitem__(self, n: int) -> int:
        return self.places[n]


@functools.cache
def isa(arch: str) -> Isa:
    """The instruction set of ``sm_70`` ... ``sm_90a``. AsmError for another name."""
    sm = grammar.ARCHITECTURES.get(arch)
    if sm is None:
        raise AsmError(f"unknown architecture {arch!r}", hint="one of " + ", ".join(grammar.ARCHITECTURES))
    return Isa(arch, sm)
