"""All forms of one architecture: by mnemonic for the encoder, by opcode for the decoder; built when first needed."""

from __future__ import annotations

import functools
import itertools
import threading
from collections.abc import Collection, Iterator

from turingas.errors import AsmError
from turingas.forks import freed
from turingas.isa import arch as architectures
from turingas.isa import grammar, table
from turingas.isa.arch import Arch
from turingas.isa.fields import Field, Target
from turingas.isa.form import Form, Mnemonic, Shared
from turingas.isa.operands import names_in, remember

#: A form that may explain a word: it does not unless the bits of the mask have this value. It is None until a word asks
#: for it; until then mask and value are the bits that are set in all of its words.
Candidate = tuple[int, int, Form | None]


class _Bucket(list[Candidate]):
    """The candidates of one opcode, and the row and shape that each of them comes from."""

    def __init__(self) -> None:
        self.origins: list[tuple[grammar.Row, int]] = []


class _Anywhere(dict[int, bool]):
    """Opcode -> whether it means the same at every address: none of its rows has a branch target."""

    def __init__(self, forms: Forms) -> None:
        self.forms = forms

    def __missing__(self, opcode: int) -> bool:
        found = self[opcode] = not any(map(self.forms.has_target, self.forms.rows_of(opcode)))
        return found


class Forms:
    """The forms of one architecture. Get them from ``forms(arch)``: threads share one set."""

    def __init__(self, arch: Arch) -> None:
        self.name, self.arch = arch.name, arch
        here = functools.cache(lambda archs: arch in archs)
        rows = [row for row in table.ROWS if here(row.archs)]
        self.rows = list(itertools.compress(rows, arch.kept([row.text for row in rows])))
        self.rows += grammar.own(arch)
        table.OPS.update(arch.ops)
        self.sources = set(arch.sources)
        self._last = {name + of.zero: of.last for name, of in arch.files.items()}  # "URZ" -> its number
        self._by_name: dict[str, list[grammar.Row]] = {}
        self._by_opcode: dict[int, list[grammar.Row]] = {}  # by bits 0 to 8, which all shapes of a row have
        for row in self.rows:
            self._by_name.setdefault(row.base, []).append(row)
            self._by_opcode.setdefault(row.opcode & 0x1FF, []).append(row)
        self._forms: dict[tuple[grammar.Row, int], Form] = {}
        self._mnemonics: dict[grammar.Row, Mnemonic] = {}
        self._readings: dict[str, list[tuple[grammar.Row, tuple[int, ...]]]] = {}
        #: opcode (bits 0 to 11) -> what may explain its words, for those that were asked for
        self.buckets: dict[int, _Bucket] = {}
        self.anywhere = _Anywhere(self)
        self._leads: dict[str, bool] = {}  # mnemonic without modifiers -> ``leads``
        self._targets: dict[grammar.Row, bool] = {}  # ``has_target``
        self._shared = Shared()
        self._lock = freed(threading.RLock())
        self._made_fields: dict[int, Field] = {}
        self._find_field = functools.cache(functools.partial(grammar.find, arch=arch))

    def field(self, row: grammar.Row, text: str) -> Field | None:
        """The field that a name in a row stands for; None when it is plain text."""
        local = row.fields.get(text)
        if local is None:
            found: Field | None = self._find_field(text, reuse=row.reuse)
            return found
        if isinstance(local, Field):
            return local
        made: Field = self._made_fields.get(id(local)) or self._made_fields.setdefault(id(local), local(self.arch))
        return made

    def forms_of(self, row: grammar.Row, opcode: int | None = None) -> list[Form]:
        """The forms of a row on this architecture; those with one opcode (bits 0 to 11) when it is given."""
        return list(self.each(row, opcode))

    def each(self, row: grammar.Row, opcode: int | None = None, without: Collection[str] = ()) -> Iterator[Form]:
        """The same, one by one: a form is made when it is asked for. None with sources of the kinds ``without``."""
        sources = self.sources.difference(without) if without else self.sources
        for n, (key, kinds) in enumerate(grammar.shapes(row)):
            if sources.issuperset(kinds) and (opcode is None or key & 0xFFF == opcode):
                yield self._forms.get((row, n)) or self._made(row, n)

    def _made(self, row: grammar.Row, n: int) -> Form:
        operands, (key, _) = grammar.operands(row, n), grammar.shapes(row)[n]
        find, mnemonic = functools.partial(self.field, row), self.mnemonic(row)
        with self._lock:
            form = self._forms.get((row, n))
            if form is None:
                form = self._forms[row, n] = Form(self._shared, row, mnemonic, operands, self._fixed(row, key), find)
        return form

    def _fixed(self, row: grammar.Row, key: int) -> int:
        """The bits that are set in every word of a row in one shape."""
        value = key & 0xFFF | key >> 12 << 91
        for pos, bits in row.fixed.items():
            value |= (bits if isinstance(bits, int) else self._last[bits]) << pos
        return value

    def mnemonic(self, row: grammar.Row) -> Mnemonic:
        """The mnemonic of a row; its forms share it."""
        found = self._mnemonics.get(row)
        if found is None:
            found = self._mnemonics.setdefault(row, Mnemonic(row, functools.partial(self.field, row)))
        return found

    def named(self, base: str) -> list[Form]:
        """The forms of a mnemonic (without modifiers), in the table's order."""
        return [form for row in self._by_name.get(base, ()) for form in self.forms_of(row)]

    def reading(self, name: str) -> list[tuple[grammar.Row, tuple[int, ...]]]:
        """The rows that write ``name`` (a mnemonic with its modifiers), and the bits of its modifiers in each."""
        found = self._readings.get(name)
        if found is None:
            rows = self._by_name.get(name.partition(".")[0], ())
            rows = [row for row in rows if _may_write(row, name)]  # of others no mnemonic need be made
            found = [(row, bits) for row in rows if (bits := self.mnemonic(row).read(name))]
            if found:  # what nobody writes is not worth keeping
                remember(self._readings, name, found)
        return found

    def mnemonics(self) -> list[str]:
        return sorted(self._by_name)

    @property
    def bases(self) -> Collection[str]:
        """The mnemonics without modifiers."""
        return self._by_name.keys()

    def others(self) -> Iterator[Forms]:
        """The other architectures, for saying which of them has what this one lacks."""
        for name in architectures.ARCHS:
            if name != self.name:
                yield forms(name)

    def all_forms(self) -> Iterator[Form]:
        for row in self.rows:
            yield from self.forms_of(row)

    def rows_of(self, opcode: int) -> list[grammar.Row]:
        """The rows that write words with these bits 0 to 11."""
        rows = self._by_opcode.get(opcode & 0x1FF, ())
        return [row for row in rows if any(key & 0xFFF == opcode for key, _ in grammar.shapes(row))]

    def has_target(self, row: grammar.Row) -> bool:
        """Whether an operand of a row is a branch target."""
        found = self._targets.get(row)
        if found is None:
            names = [name for text in grammar.operands(row, 0) for name in names_in(text)]
            found = self._targets[row] = any(isinstance(self.field(row, name), Target) for name in names)
        return found

    def leads(self, name: str) -> bool:
        """Whether an instruction with this mnemonic may have a branch target."""
        base = name.partition(".")[0]
        found = self._leads.get(base)
        if found is None:
            found = self._leads[base] = any(map(self.has_target, self._by_name.get(base, ())))
        return found

    def fitting(self, word: int) -> Iterator[Form]:
        """The forms that may explain a word, in the table's order."""
        bucket = self.buckets.get(word & 0xFFF) or self.bucket(word & 0xFFF)
        for n, (mask, value, form) in enumerate(bucket):
            if word & mask == value:
                if form is None:
                    mask, value, form = self._finish(bucket, n)
                    if word & mask != value:
                        continue
                yield form

    def divided(self, words: list[int]) -> Iterator[tuple[Form | None, list[int]]]:
        """Words of one opcode by the form that is the first to fit them; None for those that none fits."""
        bucket = self.buckets.get(words[0] & 0xFFF) or self.bucket(words[0] & 0xFFF)
        for n, (mask, value, form) in enumerate(bucket):
            fitting = [word for word in words if word & mask == value]
            if fitting and form is None:
                mask, value, form = self._finish(bucket, n)
                fitting = [word for word in fitting if word & mask == value]
            if fitting:
                yield form, fitting
                if len(fitting) == len(words):
                    return
                words = [word for word in words if word & mask != value]
        yield None, words

    def bucket(self, opcode: int) -> _Bucket:
        """What may explain words of an opcode, in the table's order."""
        bucket = _Bucket()
        for row in self._by_opcode.get(opcode & 0x1FF, ()):
            for n, (key, kinds) in enumerate(grammar.shapes(row)):
                if key & 0xFFF == opcode and self.sources.issuperset(kinds):
                    value = self._fixed(row, key)
                    bucket.append((value, value, None))
                    bucket.origins.append((row, n))
        return self.buckets.setdefault(opcode, bucket)

    def _finish(self, bucket: _Bucket, n: int) -> tuple[int, int, Form]:
        """Make the form of a candidate."""
        form = self._forms.get(bucket.origins[n]) or self._made(*bucket.origins[n])
        found = form.mask | form.check_mask, form.value | form.check_value, form
        bucket[n] = found
        return found


def _may_write(row: grammar.Row, name: str) -> bool:
    """Whether the plain texts of its mnemonic are there."""
    first, *others = grammar.mnemonic(row)[0]
    return name.startswith(first) and all(map(name.__contains__, others))


_KNOWN: dict[str, Forms] = {}
_LOCK = freed(threading.Lock())


def forms(arch: str) -> Forms:
    """The forms of an architecture ("sm_75"). AsmError for another name."""
    of = architectures.ARCHS.get(arch)
    if of is None:
        raise AsmError(f"unknown architecture {arch!r}", hint="one of " + ", ".join(architectures.ARCHS))
    with _LOCK:
        found = _KNOWN.get(arch)
        if found is None or found.arch is not of:
            found = _KNOWN[arch] = Forms(of)
    return found
