"""One row of the table in one shape of its operands -> a checked ``Form``: its bits, and functions that write its text.

A row says how an instruction is written and where its bits lie. It becomes one ``Form`` for each shape of its operands
(register, immediate, constant, uniform register). Every operand remembers the texts and the bits that it has seen;
equal operands of the forms of an architecture are one object (``Shared``), so they share those memories.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from turingas.isa import control, grammar
from turingas.isa.fields import Enum, Field, Register, Unprintable
from turingas.isa.operands import Operand, Texts, fields_of, merged, names_in, pieces_of, remember

WORD = (1 << 128) - 1
FOURTH_REUSE = 8 << control.REUSE  # no operand shows it
#: what is left of a word without its control code and guard; the reuse flags are written with the operands
NO_CONTROL = WORD & ~(control.MASK & ~control.REUSE_MASK) & ~0xF000


class Shared:
    """The operands of an architecture's forms, each once: equal ones share what they remember."""

    def __init__(self) -> None:
        self._operands: dict[tuple[object, ...], Operand] = {}
        self._texts: dict[tuple[object, ...], Texts] = {}

    def operand(self, row: grammar.Row, text: str, find: Find) -> Operand:
        """What a row calls ``text``. Beyond the text it depends on the fields that are the row's own."""
        own = [id(row.fields[name]) for name in names_in(text) if name in row.fields] if row.fields else ()
        key = (text, row.reuse, *own)
        found = self._operands.get(key)
        if found is None:
            source, optional, always = text.rstrip("?"), text[-1] == "?", text[-2:] == "??"
            pieces = merged(pieces_of(source, find))
            same = (source, optional, always, *[id(f) for f in fields_of(pieces)])
            found = self._operands.get(same) or Operand(pieces, optional, source, always)
            self._operands[same] = self._operands[key] = found
        return found

    def texts(self, operands: tuple[Operand, ...], plain: bool, size: Enum | None, lead: str, trail: str) -> Texts:
        """What remembers the texts of a unit (``Form.units``)."""
        key = (operands, plain, size, lead, trail)
        found = self._texts.get(key)
        return self._texts.setdefault(key, Texts(*key)) if found is None else found


# ---- mnemonics ---------------------------------------------------------------------------------------------------

GUARDS = {
    kind: {
        n << 12: "" if n == 7 else f"@{'!' if n > 7 else ''}{kind}{'T' if n % 8 == 7 else n % 8} " for n in range(16)
    }
    for kind in ("P", "UP")
}


class Mnemonic(dict[int, str]):
    """The mnemonic of a row with its modifiers, and the guard: bits -> text. The forms of a row have one."""

    def __init__(self, row: grammar.Row, find: Find) -> None:
        texts, names = grammar.mnemonic(row)
        self.parts: list[str | Enum] = [texts[0]]
        for name, text in zip(names, texts[1:]):
            field = find(name)
            assert isinstance(field, Enum), (name, row.text)
            self.parts += [field, text] if text else [field]
        self.base = row.base
        self.guard = "UP" if row.uniform_guard else "P"
        #: the modifier that says how wide the data operands (``Rdw``) are
        self.size = next((p for p in self.parts if isinstance(p, Enum) and p.spans), None)
        self.fields = 0xF000  # the guard is looked up together with the mnemonic
        for part in self.parts:
            if isinstance(part, Enum):
                self.fields |= part.mask
        self._bare: dict[int, str] = {}

    def __missing__(self, bits: int) -> str:
        bare = bits & ~0xF000
        name = self._bare.get(bare)
        if name is None:
            name = "".join([part if isinstance(part, str) else part.decode(bare) for part in self.parts])
            remember(self._bare, bare, name)
        return remember(self, bits, GUARDS[self.guard][bits & 0xF000] + name)

    def read(self, name: str) -> tuple[int, ...]:
        """Every way to read ``name`` as this mnemonic, as bits; () when it is none."""
        found = [(0, 0)]  # how much of the name is read, and its bits
        for part in self.parts:
            if isinstance(part, str):
                found = [(at + len(part), bits) for at, bits in found if name.startswith(part, at)]
            else:
                found = [
                    (at + len(text), bits | more)
                    for at, bits in found
                    for text, more in (part.choices if at < len(name) else part.unsaid)
                    if name.startswith(text, at)
                ]
            if not found:
                return ()
        return tuple(dict.fromkeys([bits for at, bits in found if at == len(name)]))


# ---- forms -------------------------------------------------------------------------------------------------------

#: words, their address (of branches, which depend on it, one at a time), labels -> the text of each word
Writer = Callable[[Sequence[int], int, "Mapping[int, str] | None"], list[str]]
Located = Callable[[int, int, "Mapping[int, str] | None"], str]
Find = Callable[[str], "Field | None"]
#: texts and the bits that they depend on; or what writes a branch target, and what stands before it
Unit = tuple[Texts, int] | tuple[Located, str]


@functools.cache
def _writer(targets: tuple[bool, ...]) -> Callable[..., Writer]:
    """A writer for so many units, of which some are branch targets: one look-up for guard and mnemonic, and one for
    each unit."""
    names = [f"u{n}, m{n}" for n in range(len(targets))]
    units = [
        f"{{m{n}}}{{u{n}(w, address, labels)}}" if target else f"{{u{n}[w & m{n}]}}" for n, target in enumerate(targets)
    ]
    text = "{n[w & nm]}" + "".join(units)
    known: dict[str, Any] = {}
    write = f"lambda words, address, labels: [f'{text}' for w in words]"
    exec(f"def make({', '.join(['n, nm', *names])}): return {write}", known)
    made: Callable[..., Writer] = known["make"]
    return made


class Form:
    """One way to write one instruction on one architecture."""

    def __init__(
        self,
        shared: Shared,
        row: grammar.Row,
        mnemonic: Mnemonic,
        operands: list[str],
        value: int,
        find: Find,
    ) -> None:
        self.row, self.mnemonic, self.find, self._shared, self._texts = row, mnemonic, find, shared, operands
        self.name, self.base, self.guard, self.size = mnemonic.parts, mnemonic.base, mnemonic.guard, mnemonic.size
        self.name_mask, self.modifiers = mnemonic.fields, mnemonic.read
        self.operands = [shared.operand(row, text, find) for text in operands]
        self.fewest = len([o for o in self.operands if not o.optional])  # operands that are always written
        once = dict.fromkeys(self.operands)
        #: one operand that is written twice (``BAR.SYNC R4, R4``: one register holds the barrier and the count)
        self.repeats = len(once) < len(self.operands)
        self.following = any(o.following for o in once)
        self.value = value
        self.known = self._claim(
            [part.mask for part in self.name if not isinstance(part, str)] + [o.claims for o in once]
        )
        #: reuse bits that mean nothing to this form, but that NVIDIA's compiler may have set
        self.loose = (FOURTH_REUSE if row.reuse else control.REUSE_MASK) & ~self.known
        self.mask = NO_CONTROL & ~self.known & ~self.loose
        self.when_text = row.when
        self.check_mask = self.check_value = 0  # the row's conditions on its own operands
        self.tests: list[tuple[Field, Callable[[int], bool]]] = []
        for key, want in row.when.items():
            f = find(key)
            assert f is not None, (key, self.text)
            if want is grammar.not_zero:
                assert isinstance(f, Register), (key, self.text)
                self.tests.append((f, functools.partial(grammar.not_zero, last=f.last)))
            elif callable(want):
                self.tests.append((f, want))
            else:
                mask, value = _check(f, str(want))
                self.check_mask |= mask
                self.check_value |= value
        self.has_target = any(o.target is not None for o in self.operands)

    @property
    def text(self) -> str:
        """How the instruction is written, in the table's terms."""
        return f"{self.row.text.partition(' ')[0]} {', '.join(self._texts)}".strip()

    @functools.cached_property
    def hides(self) -> bool:
        """Whether nvdisasm does not print all of it."""
        return any("<" in o.source for o in self.operands)

    def _claim(self, masks: list[int]) -> int:
        """The bits of all fields. AssertionError when a bit is claimed twice."""
        known = sum(masks)  # of masks that have no bit in common the sum is the union
        if known != functools.reduce(operator.or_, masks, 0):
            raise AssertionError(f"{self.text}: bits are claimed twice")
        if known & (self.value | 0xFFF):
            raise AssertionError(f"{self.text}: a field lies in the opcode, or a fixed bit in a field")
        return known

    def units(self, plain: bool) -> list[Unit]:
        """The operands, those together that may be unsaid, with their texts (nvdisasm's or exact ones)."""
        groups: list[list[Operand]] = []
        for operand in self.operands:
            if operand.optional and groups and groups[-1][0].optional:
                groups[-1].append(operand)
            else:
                groups.append([operand])
        lead = " "
        units: list[Unit] = []
        for group in groups:
            first = group[0]
            if first.target is not None:
                units.append((functools.partial(first.located, plain), lead))
                lead = ", "
                continue
            size, mask = None, first.mask
            for operand in group:
                mask |= operand.mask
                if operand.variable:
                    size = self.size
            if size:
                mask |= size.mask
            # when the first operand may be unsaid, the comma between it and the next belongs to it
            trail = "," if not units and first.optional and len(groups) > 1 else ""
            units.append((self._shared.texts(tuple(group), plain, size, lead, trail), mask))
            if not trail:
                lead = ", "
        return units

    @functools.cached_property
    def exact(self) -> Writer:
        """Writes the text that determines each word. Unprintable if there is one without."""
        return self._writer(False)

    @functools.cached_property
    def plain(self) -> Writer:
        """Writes nvdisasm's own text, which at places says less."""
        return self._writer(True)

    def _writer(self, plain: bool) -> Writer:
        units = self.units(plain)
        write = _writer(tuple([isinstance(mask, str) for _, mask in units]))(
            self.mnemonic, self.name_mask, *[part for unit in units for part in unit]
        )
        if not plain and not self.tests:
            return write
        yield_bit, no_reuse = 1 << control.YIELD, ~control.REUSE_MASK

        def careful(words: Sequence[int], address: int, labels: Mapping[int, str] | None) -> list[str]:
            if self.tests and not all(map(self.accepts, words)):
                raise Unprintable
            if plain:  # nvdisasm prints no .reuse on a yielding instruction
                words = [word if word & yield_bit else word & no_reuse for word in words]
            return write(words, address, labels)

        return careful

    @functools.cached_property
    def _registers(self) -> list[tuple[int, int, int]]:
        """Place, last index and width of its general registers; width 0 where the size modifier tells."""
        fields = [f for operand in self.operands for f in operand.fields]
        return [(f.pos, f.last, max(f.words, 0)) for f in fields if isinstance(f, Register) and f.prefix == "R"]

    def registers(self, word: int) -> int:
        """One more than the highest general register that a word of this form reads or writes; 0 for none."""
        top = 0
        for pos, last, words in self._registers:
            index = word >> pos & last
            if index != last:
                end = index + (words or (self.size.span(word) if self.size else 1))
                if end > top:
                    top = end
        return top

    def accepts(self, word: int) -> bool:
        """Whether the row's conditions on its own operands hold."""
        if word & self.check_mask != self.check_value:
            return False
        return not self.tests or all(test(f.get(word)) for f, test in self.tests)

    def assign(self, texts: Sequence[str]) -> list[Operand] | None:
        """The operand that each text stands for; None when they do not fit this form."""
        if not self.fewest <= len(texts) <= len(self.operands):
            return None
        if len(texts) == len(self.operands):
            for operand, text in zip(self.operands, texts):
                if not operand.matches(text):
                    return None
            return list(self.operands)

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
        if self.fewest > len(texts):
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
