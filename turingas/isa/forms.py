"""Rows of the table -> checked forms for one architecture; encode and decode.

A row of the table says how an instruction is written and where its bits lie. Here a row becomes one ``Form`` for
each shape of its operands (register, immediate, constant, uniform register). ``Isa.encode`` and ``Isa.decode`` are
a few dictionary look-ups an instruction: every operand remembers the texts and the bits it has seen.
"""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import getitem
from typing import Any

from turingas.errors import AsmError
from turingas.isa import control, diagnose, grammar, table
from turingas.isa.diagnose import EncodeError
from turingas.isa.fields import Enum, Field, Number, Register, Target, Unprintable
from turingas.isa.operands import DIGITS, MEMO, Bits, Operand, Piece, Texts, fields_of, merged, pieces_of

SEEN = 50_000  # whole instructions that are remembered
WORD = (1 << 128) - 1
FOURTH_REUSE = 8 << control.REUSE  # no operand shows it


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
        for kind, value in merged(pieces_of(name, lambda n: find(n) if f"{{{n}}}" in name else None)):
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
            exact, plain = isa.texts(tuple(unit), size, lead, trail)
            self.units.append((mask, exact, plain, unit[0] if unit[0].target is not None else None))
            if not trail:
                lead = ", "
        self.names = _Names(self)
        self._modifiers: dict[str, tuple[int, ...]] = {}

    def _operand(self, text: str, find: Callable[[str], Field | None]) -> Operand:
        source = text.rstrip("?")
        pieces = merged(pieces_of(source, find))
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


# ---- the instruction set of one architecture -------------------------------------------------------------------


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
    tables: list[Bits]
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
        self._texts: dict[tuple[object, ...], tuple[Texts, Texts]] = {}
        self._find_field = functools.cache(functools.partial(grammar.find, sm=sm))

    # -- forms, built when first needed; equal operands of different forms share their memories

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

    def others(self) -> Iterator[Isa]:
        """The other architectures, for saying which of them has what this one lacks."""
        for name in grammar.ARCHITECTURES:
            if name != self.name:
                yield isa(name)

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
                hint = diagnose.nearest(name, list(labels or ()))
                raise diagnose.UnknownLabel(f"label {name!r} is not defined", 0, hint)
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
        offsets = diagnose.Offsets(text, rest, name, parts)
        base = name.partition(".")[0]
        forms = self.named(base)
        if not forms:
            raise diagnose.unknown(self, base, offsets[0])
        best: tuple[int, Callable[[], EncodeError]] | None = None

        def better(rank: int, error: Callable[[], EncodeError]) -> None:
            nonlocal best
            if best is None or rank > best[0]:
                best = (rank, error)

        for form in forms:
            for bits in form.modifiers(name):
                assigned = form.assign(parts)
                if assigned is None:
                    rank = 2 if form.hides and diagnose.lossy(form, parts) else 1
                    better(rank, functools.partial(diagnose.misfit, self, form, name, parts, offsets))
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
                    raise type(error)(error.message, offsets[1 + at], error.hint) from None
                except ValueError as error:
                    complaint = functools.partial(diagnose.value_error, str(error), base, parts[at], offsets, 1 + at)
                    better(4 + at, complaint)
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
                lookup: list[Bits] = [_Zero.table] * len(parts)
                for n, operand in tables:
                    lookup[n] = operand.bits
                conditional = bool(form.check_mask or form.tests)
                if not form.repeats:  # the short way would not compare the two texts
                    self._entries.setdefault(name, {})[key] = _Entry(form, entry_bits, lookup, targets, conditional)
                return word
        if best is None:
            raise diagnose.bad_modifier(self, forms, name, offsets[0])
        raise best[1]()

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

    # -- documentation

    def describe(self, mnemonic: str) -> str:
        """How an instruction is written, its operands and modifiers and their bits, as text."""
        from turingas.isa.describe import describe

        return describe(self, mnemonic)


class _Zero(dict[str, int]):
    """Stands in for operands that are encoded apart (branch targets)."""

    def __missing__(self, text: str) -> int:
        return 0

    table: Bits


_Zero.table = _Zero()  # type: ignore[assignment]


def _opcode(key: int) -> int:
    return key & 0xFFF | (key >> 12) << 91


@functools.cache
def isa(arch: str) -> Isa:
    """The instruction set of ``sm_70`` ... ``sm_90a``. AsmError for another name."""
    sm = grammar.ARCHITECTURES.get(arch)
    if sm is None:
        raise AsmError(f"unknown architecture {arch!r}", hint="one of " + ", ".join(grammar.ARCHITECTURES))
    return Isa(arch, sm)
