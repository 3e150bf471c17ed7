"""One row of the table in one shape of its operands -> a checked ``Form``: its bits, and functions that write its text.

A row says how an instruction is written and where its bits lie. It becomes one ``Form`` for each shape of its operands
(register, immediate, constant, uniform register). Every operand remembers the texts and the bits that it has seen;
equal operands of the forms of an architecture are one object (``Shared``), so they share those memories.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from turingas.isa import control, grammar
from turingas.isa.fields import Enum, Field, Register, Unprintable
from turingas.isa.operands import Operand, Piece, Texts, fields_of, merged, pieces_of

WORD = (1 << 128) - 1
FOURTH_REUSE = 8 << control.REUSE  # no operand shows it


class Shared:
    """The operands of an architecture's forms, each once."""

    def __init__(self) -> None:
        self._operands: dict[tuple[object, ...], Operand] = {}
        self._texts: dict[tuple[object, ...], tuple[Texts, Texts]] = {}

    def operand(self, source: str, pieces: list[Piece], optional: bool) -> Operand:
        key = (source, optional, *[id(f) for f in fields_of(pieces)])
        found = self._operands.get(key)
        if found is None:
            found = self._operands[key] = Operand(pieces, optional, source)
        return found

    def texts(self, operands: tuple[Operand, ...], size: Enum | None, lead: str, trail: str) -> tuple[Texts, Texts]:
        key = (operands, size, lead, trail)
        found = self._texts.get(key)
        if found is None:
            exact, plain = (Texts(operands, plain, size, lead, trail) for plain in (False, True))
            found = self._texts[key] = (exact, plain)
        return found


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
        shared: Shared,
        row: grammar.Row,
        name: str,
        operands: list[str],
        opcode: int,
        find: Callable[[str], Field | None],
        fixed: Mapping[int, int],
        when: Mapping[str, object],
    ) -> None:
        self.row, self.find, self.when_text = row, find, when
        self.text = f"{name} {', '.join(operands)}".strip()
        self.name: list[str | Enum] = []
        for kind, value in merged(pieces_of(name, lambda n: find(n) if f"{{{n}}}" in name else None)):
            assert kind in ("text", "field"), name
            self.name.append(value)
        self.base = str(self.name[0]).split(".")[0]
        self.guard = "UP" if row.uniform_guard else "P"
        #: the modifier that says how wide the data operands (``Rdw``) are
        self.size = next((p for p in self.name if isinstance(p, Enum) and p.spans), None)
        self.operands = [self._operand(shared, text) for text in operands]
        self.name_mask = functools.reduce(lambda m, p: m | (0 if isinstance(p, str) else p.mask), self.name, 0)
        self.name_mask |= 0xF000  # the guard is looked up together with the mnemonic
        known = 0
        #: one operand that is written twice (``BAR.SYNC R4, R4``: one register holds the barrier and the count)
        self.repeats = len(set(self.operands)) < len(self.operands)
        operands_ = dict.fromkeys(self.operands)
        for place in [p for p in self.name if not isinstance(p, str)] + [f for o in operands_ for f in o.fields]:
            if known & place.mask:
                raise AssertionError(f"{self.text}: bits {bits_of(known & place.mask)} are claimed twice")
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
        self.units: list[tuple[int, Texts, Texts, Operand | None]] = []
        for unit in units:
            size = self.size if any(o.variable for o in unit) else None
            mask = functools.reduce(lambda m, o: m | o.mask, unit, size.mask if size else 0)
            # when the first operand may be unsaid, the comma between it and the next belongs to it
            trail = "," if not self.units and unit[0].optional and len(units) > 1 else ""
            exact, plain = shared.texts(tuple(unit), size, lead, trail)
            self.units.append((mask, exact, plain, unit[0] if unit[0].target is not None else None))
            if not trail:
                lead = ", "
        self.names = _Names(self)
        self._modifiers: dict[str, tuple[int, ...]] = {}

    def _operand(self, shared: Shared, text: str) -> Operand:
        source = text.rstrip("?")
        pieces = merged(pieces_of(source, self.find))
        return shared.operand(source, pieces, text.endswith("?"))

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

    def lossy(self, texts: Sequence[str]) -> tuple[int, Operand] | None:
        """The first text that leaves out what nvdisasm does not print but the word needs, and its operand."""
        if len([o for o in self.operands if not o.optional]) > len(texts):
            return None
        for operand in self.operands:
            if not any(kind == "hidden" for kind, _ in operand.pieces):
                continue
            for n, text in enumerate(texts):
                if operand.lossy.fullmatch(text):
                    return n, operand
        return None


def bits_of(mask: int) -> list[int]:
    return [n for n in range(128) if mask >> n & 1]


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
