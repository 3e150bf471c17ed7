"""One decoded instruction: its operands as values, and which registers it reads and writes.

The linter and the emulator work on this, never on bits or text of their own. All of it follows from the row of the
table that explains the word, and from what its mnemonic's Op says of registers that its operands do not show.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from turingas.isa import control
from turingas.isa.arch import WORD_BYTES
from turingas.isa.fields import BitSet, Constant, Enum, Float, Number, Register, Target, Unprintable
from turingas.isa.form import WORD, Form
from turingas.isa.grammar import SOURCE
from turingas.isa.isa import Isa
from turingas.isa.op import Op
from turingas.isa.operands import Operand as Pattern
from turingas.isa.operands import Piece, remember
from turingas.isa.table import OPS
from turingas.isa.table.memory import NBYTES
from turingas.isa.table.tensor import GROUP_DESCRIPTORS

# A destination stands at one of these bits; other registers are sources. What differs says so: Op.reads and Op.writes.
LANES_DECIDE = frozenset(["DIV", "CONV"])  # modifiers of branches on which lanes are active
DESTINATIONS = frozenset(["R16", "UR16", "P81", "P84", "UP81", "UP84", "B16"])
#: The number by which a decoded instruction calls what reads as zero or true: the same on all architectures, though the
#: word may have fewer bits for it.
ZEROS = {"R": 255, "UR": 255, "P": 7, "UP": 7}
GUARD, ALWAYS = 0xF000, 0x7000  # where the guard stands, and what stands there for @PT
NO_CODE = WORD & ~control.MASK | control.REUSE_MASK  # the reuse flags belong to the operands


@dataclass(frozen=True, slots=True)
class Control:
    """The control code. ``read`` and ``write`` are the scoreboards it sets, 7 for none; ``wait`` is a mask."""

    wait: int
    read: int
    write: int
    yields: bool  # the scheduler prefers another warp (the bit is clear)
    stall: int
    reuse: int  # flags of a, b, c (and the fourth)


@dataclass(frozen=True, slots=True)
class Reg:
    """A register operand. ``file`` is "R", "UR", "P", "UP" or "B"; ``place`` is its lowest bit in the word (16 is d, 24
    a, 32 b, 64 c). ``suffix`` is what follows it: ".H0_H0", ".ROW", ".X4"; "" for nothing. ``slot`` is the source that
    its reuse flag belongs to: "b" for one that stands at 64 because a constant has the place of b."""

    file: str
    index: int
    words: int = 1
    neg: bool = False
    abs: bool = False
    inv: bool = False
    reuse: bool = False
    suffix: str = ""
    place: int = 0
    write: bool = False
    slot: str = ""

    @property
    def zero(self) -> bool:
        """Whether it is RZ, URZ, PT or UPT."""
        return self.index == ZEROS.get(self.file, -1)

    def __str__(self) -> str:
        last = {"R": "RZ", "UR": "URZ", "P": "PT", "UP": "UPT"}.get(self.file, "")
        return last if self.zero else f"{self.file}{self.index}"


@dataclass(frozen=True, slots=True)
class Imm:
    """An immediate: ``bits`` as they stand in the word (a double's upper 32; two halves of 16 as one of 32), ``value``
    with sign and scale where it is an integer. ``kind``: "int", "f16", "bf16", "f32", "f64", "f16x2", "bf16x2" or
    "set" (of bits)."""

    bits: int
    value: int
    kind: str = "int"
    text: str = ""


@dataclass(frozen=True, slots=True)
class Const:
    """c[bank][offset], or with ``ur`` cx[URn][offset]; ``suffix`` picks halves."""

    bank: int
    offset: int
    ur: Reg | None = None
    neg: bool = False
    abs: bool = False
    inv: bool = False
    suffix: str = ""


@dataclass(frozen=True, slots=True)
class Mem:
    """An address. ``space`` is the text before the last bracket: "" (the mnemonic says which memory), "c", "cx",
    "gdesc", "a". ``base`` has ``words`` 2 where it is a 64-bit address; ``scale`` multiplies it; ``desc`` is the
    uniform register of desc[UR]; ``bank`` that of c[bank][R]."""

    offset: int = 0
    base: Reg | None = None
    ur: Reg | None = None
    scale: int = 1
    desc: Reg | None = None
    space: str = ""
    bank: int = 0


@dataclass(frozen=True, slots=True)
class Label:
    """A branch target as an address; with ``base`` it is added to a register (BRX, CALL.REL R, RET.REL R)."""

    address: int
    relative: bool
    base: Reg | None = None


@dataclass(frozen=True, slots=True)
class Name:
    """Anything else, by its text: a special register, SB0, PR, B0 as BMOV writes it."""

    text: str


Operand = Reg | Imm | Const | Mem | Label | Name


class Access(NamedTuple):
    """Registers that an instruction reads or writes: ``count`` of ``file`` from ``first``. ``what`` says as what:
    "d" (a destination), "a" "b" "c" (sources, by their slot), "address", "guard", "predicate", "implicit"."""

    file: str
    first: int
    count: int  # type: ignore[assignment]  # not the method of tuples
    what: str


class Instruction(NamedTuple):
    """``base`` is the mnemonic without its modifiers, ``mods`` those, in order. (It is a tuple because there are many,
    and nothing is made faster.)"""

    word: int
    address: int
    control: Control
    shape: Shape
    guard: Reg
    operands: tuple[Operand, ...]
    base: str = ""
    mods: tuple[str, ...] = ()
    reads: tuple[Access, ...] = ()
    writes: tuple[Access, ...] = ()

    @property
    def form(self) -> Form:
        """The form that explains the word."""
        return self.shape.form

    @property
    def name(self) -> str:
        """The mnemonic with its modifiers."""
        return self.shape.name

    @property
    def op(self) -> Op:
        """What the mnemonic is besides how it is written."""
        return self.shape.op

    @property
    def nbytes(self) -> int:
        """Bytes that a load or store moves for each lane."""
        return self.shape.nbytes

    @property
    def always(self) -> bool:
        """Whether its guard is @PT."""
        return self.word & GUARD == ALWAYS

    @property
    def never(self) -> bool:
        """Whether its guard is @!PT."""
        return self.word & GUARD == GUARD

    @property
    def guard_decides(self) -> bool:
        """Whether a branch or an end depends on nothing but its guard: not on another predicate, nor on which lanes
        are active."""
        if LANES_DECIDE & set(self.mods):
            return False
        return not any(isinstance(o, Reg) and o.file in ("P", "UP") and (not o.zero or o.inv) for o in self.operands)

    def text(self) -> str:
        """nvdisasm's text."""
        return self.shape.form.plain((self.word,), self.address, None)[0]


#: what an Instruction has behind its control code
Body = tuple["Shape", Reg, tuple[Operand, ...], str, tuple[str, ...], tuple[Access, ...], tuple[Access, ...]]


class Shape:
    """A mnemonic with its modifiers in one form: what its instructions have in common, whatever their guards.
    ``operands``: for each the mask of its bits, and what they stand for; ``located``: whether one of them depends on
    the address, too.
    ``nbytes``: what an access moves for each lane;
    ``both``: places of registers that are read and written; ``halves``: whether two operands may be the halves of one
    immediate; ``moves``: whether a mask says which predicates are operands; ``chosen``: whether one says which words of
    memory are loaded."""

    __slots__ = (
        "base", "both", "chosen", "form", "halves", "located", "mods", "moves", "name", "nbytes", "op", "operands",
    )  # fmt: skip

    def __init__(self, form: Form, word: int) -> None:
        self.form = form
        self.name = "".join(part if isinstance(part, str) else part.decode(word) for part in form.name)
        self.base, *mods = self.name.split(".")
        self.mods = tuple(mods)
        self.op = op = OPS[self.base]
        self.nbytes = next((NBYTES[mod] for mod in mods if mod in NBYTES), 4)
        self.both = op.reads & op.writes
        self.halves = sum(isinstance(f, Float) for pattern in form.operands for f in pattern.fields) > 1
        self.moves = any(pattern.source in MASKED for pattern in form.operands)
        self.chosen = any(pattern.source.startswith(CHOSEN) for pattern in form.operands)
        wide, clear = form.size.span(word) if form.size else 1, "CLEAR" in mods
        self.operands: list[tuple[int, Meanings]] = []
        for n, pattern in enumerate(form.operands):
            double = any(name in pattern.source for name in _wide_sources(form))
            spanning = "UR" in pattern.source and "[" in pattern.source or pattern.source == "URm"
            spans = op.spans(self.mods, n, pattern.source) if spanning else 0
            means = _meanings(pattern, op, wide, double, spans, n == 0, clear)
            self.operands.append((pattern.mask, means))
        self.located = bool(self.operands) and (op.relative or any(o.target is not None for o in form.operands))


def read_control(word: int) -> Control:
    """The control code of a word."""
    return Control(
        wait=word >> control.WAIT & 63,
        read=word >> control.READ & 7,
        write=word >> control.WRITE & 7,
        yields=not word >> control.YIELD & 1,
        stall=word >> control.STALL & 15,
        reuse=word >> control.REUSE & 15,
    )


def instruction(isa: Isa, word: int, address: int = 0) -> Instruction | None:
    """The instruction of a word at ``address``; None where no row of the table explains it."""
    bare = word & NO_CODE
    body = isa.bodies.get(bare)
    if body is None:
        body = isa.branches.get(bare)
    if body is None:
        body = _learned(isa, [bare])[bare]
    if not body:
        return None
    if body[0].located:
        body = (*body[:2], tuple([_placed(operand, address) for operand in body[2]]), *body[3:])
    return _new(Instruction, (word, address, _controls[word >> control.STALL], *body))


def _placed(operand: Operand, address: int) -> Operand:
    """An operand as it is at an address; it was read at address 0."""
    if isinstance(operand, Label) and operand.relative:
        return Label(operand.address + address, True, operand.base)
    return operand


def instructions(isa: Isa, words: Iterable[int]) -> list[Instruction | None]:
    """The instructions of words that stand one after the other, the first at address 0."""
    words = list(words)
    _learned(isa, {word & NO_CODE for word in words}.difference(isa.bodies, isa.branches))
    known, new, controls = isa.bodies, _new, _controls
    return [
        new(Instruction, (word, address, controls[word >> control.STALL], *body))
        if (body := known.get(word & NO_CODE))
        else instruction(isa, word, address)
        for address, word in zip(itertools.count(0, WORD_BYTES), words)
    ]


_new = tuple.__new__

# What comes again and again is made once: a large cubin decodes many times as fast.
REMEMBERED = 1 << 16  # words of an architecture


class _Controls(dict[int, Control]):
    """A word without what stands below its control code -> the control code."""

    def __missing__(self, bits: int) -> Control:
        return remember(self, bits, read_control(bits << control.STALL))


class _Shapes(dict[int, Shape]):
    """The bits of the mnemonic in words of a form -> what such instructions have in common."""

    def __init__(self, form: Form) -> None:
        self.form, self.mask = form, form.name_mask & ~GUARD

    def __missing__(self, bits: int) -> Shape:
        return remember(self, bits, Shape(self.form, bits))


_controls, _shapes = _Controls(), functools.cache(_Shapes)


def _learned(isa: Isa, words: Iterable[int]) -> dict[int, Body | tuple[()]]:
    """All that words without control code mean at address 0; () of those that no row explains. They are remembered.
    Those of one form are gone through together."""
    found: dict[int, Body | tuple[()]] = {}
    groups: dict[int, list[int]] = defaultdict(list)
    for word in words:
        groups[word & 0xFFF].append(word)
    for group in groups.values():
        for form, fitting in isa.forms.divided(group):
            if form is None:
                found.update(dict.fromkeys(fitting, ()))
                continue
            shapes = _shapes(form)
            for word in fitting:
                try:
                    found[word] = _meant(shapes, word)
                except (Unprintable, ValueError):
                    found[word] = _body(isa, word)
    for known in (isa.bodies, isa.branches):
        if len(known) + len(found) > REMEMBERED:
            known.clear()
    for word, body in found.items():
        (isa.branches if body and body[0].located else isa.bodies)[word] = body
    return found


def _body(isa: Isa, word: int) -> Body | tuple[()]:
    """The same of one word, by the first form that explains it."""
    for form in isa.decoder.fitting(word):
        with contextlib.suppress(Unprintable, ValueError):
            return _meant(_shapes(form), word)
    return ()


def _meant(shapes: _Shapes, word: int) -> Body:
    """The same by one form. Unprintable where it has no text in this form, and so is not of it."""
    form = shapes.form
    if form.tests and not form.accepts(word):
        raise Unprintable
    shape = shapes[word & shapes.mask]
    guard, reads = _guard(form.guard, word & GUARD)
    found = [means[word & mask] for mask, means in shape.operands]
    operands: tuple[Operand, ...] = tuple([one[0] for one in found])
    if shape.halves:
        operands = _packed(operands)
    if shape.moves:
        found = [_moved(shape.op, one, operands[-1]) for one in found]
    if shape.chosen:
        found = _loaded(found)
        operands = tuple([one[0] for one in found])
    writes: tuple[Access, ...] = ()
    for _, read, written in found:
        reads += read
        writes += written
    if shape.both:
        writes += tuple(
            Access(r.file, r.index, r.words, "d")
            for r in operands
            if isinstance(r, Reg) and f"{r.file}{r.place}" in shape.both
        )
    if len(reads) > 1:
        reads = tuple(dict.fromkeys(reads))
    if len(writes) > 1:
        writes = tuple(dict.fromkeys(writes))
    return shape, guard, operands, shape.base, shape.mods, reads, writes


@functools.cache
def _guard(file: str, bits: int) -> tuple[Reg, tuple[Access, ...]]:
    """The guard of a word, and what is read for it."""
    guard = Reg(file, bits >> 12 & 7, inv=bool(bits >> 15 & 1), place=12)
    return guard, () if guard.zero else (Access(guard.file, guard.index, 1, "guard"),)


Meaning = tuple[Operand, tuple[Access, ...], tuple[Access, ...]]  # what it reads, and what it writes


class Meanings(dict[int, Meaning]):
    """What the bits of an operand mean at address 0; Unprintable for those that no text has. ``wide``: how many
    registers the data operands have; ``double``: whether it is a source of 64 bits; ``spans``: how many uniform
    registers an address, or a mask of lanes, spans, 0 where its field says so; ``first``: whether it is the first
    operand; ``clear``: whether the instruction clears the barrier that it reads."""

    def __init__(self, pattern: Pattern, op: Op, wide: int, double: bool, spans: int, first: bool, clear: bool) -> None:
        self.read, self.show = _reader(pattern, wide, op), pattern.sized(wide).exact
        self.uniform, self.double, self.spans = "UR" in pattern.source, double, spans
        self.first, self.cleared = first, clear

    def __missing__(self, bits: int) -> Meaning:
        self.show(bits)
        operand = self.read(bits)
        if self.uniform:
            operand = self._widened(operand)
        return remember(self, bits, (operand, *self._accesses(operand)))

    def _widened(self, value: Operand) -> Operand:
        """An operand with uniform registers, which span more of them than their fields say."""
        if isinstance(value, Reg) and self.double:
            return replace(value, words=2)
        if isinstance(value, Reg) and self.spans:
            return replace(value, words=self.spans)
        if isinstance(value, Label) and value.base is not None and value.base.file == "UR":
            return replace(value, base=replace(value.base, words=2))  # BRXU, JMXU
        if isinstance(value, Mem) and value.ur is not None:
            return replace(value, ur=replace(value.ur, words=self.spans or value.ur.words))
        return value

    def _accesses(self, operand: Operand) -> tuple[tuple[Access, ...], tuple[Access, ...]]:
        """What the instruction reads and writes because of this operand."""
        if isinstance(operand, Reg) and operand.write:
            return (), _access(operand, "d")
        if isinstance(operand, Reg):
            what = operand.slot if operand.file in ("R", "UR") else "predicate"
            return _access(operand, what), ()
        if isinstance(operand, Const):
            return _access(operand.ur, "address"), ()
        if isinstance(operand, Mem) and operand.space == "gdesc" and operand.ur is not None:
            read = operand.ur
            if read.words == GROUP_DESCRIPTORS and read.place != 24 and not read.zero:
                read = replace(read, index=read.index + 2, words=2)  # A is in registers: B's alone, where it always is
            return _access(read, "address"), ()
        if isinstance(operand, Mem):
            regs = (operand.base, operand.ur, operand.desc)
            return tuple(access for reg in regs for access in _access(reg, "address")), ()
        if isinstance(operand, Label):
            return _access(operand.base, "address"), ()
        if isinstance(operand, Name) and operand.text[:1] == "B" and operand.text[1:].isdecimal():
            # BMOV writes its first operand, and reads its second (with .CLEAR it writes that too)
            barrier = (Access("B", int(operand.text[1:]), 1, "implicit"),)
            return ((), barrier) if self.first else (barrier, barrier if self.cleared else ())
        return (), ()


_meanings = functools.cache(Meanings)


def _access(reg: Reg | None, what: str) -> tuple[Access, ...]:
    return () if reg is None or reg.zero else (Access(reg.file, reg.index, reg.words, what),)


def _moved(op: Op, found: Meaning, mask: Operand) -> Meaning:
    """What P2R and R2P read and write of predicates."""
    name, *_ = found
    if not isinstance(name, Name) or name.text not in MASKED:
        return found
    moved, kept = _masked(MASKED[name.text], mask)
    reads, writes = ([], moved) if name.text in op.writes else (moved, [])
    return name, (*reads, *(kept if name.text in op.reads else ())), tuple(writes)


def _masked(file: str, mask: Operand) -> tuple[list[Access], list[Access]]:
    """The predicates that a mask names, and the others; all when it is no immediate."""
    if not isinstance(mask, Imm):
        return [Access(file, 0, 7, "implicit")], []
    moved: tuple[list[Access], list[Access]] = [], []
    for n in range(7):
        moved[not mask.bits >> n & 1].append(Access(file, n, 1, "implicit"))
    return moved


def _loaded(found: list[Meaning]) -> list[Meaning]:
    """Of a load of 256 bits: its registers have only the words that its mask wants, without gaps. The group that stands
    first in the text (at bit 64) has those of the upper four, the other those of the lower four: what ptxas makes of
    ``ld.global.v8.b32 {%r0, _, %r1, ...}``."""
    mask = next(one for one, _, _ in found if isinstance(one, Imm))

    def fewer(one: Meaning) -> Meaning:
        operand, read, _ = one
        if not isinstance(operand, Reg) or operand.file != "R" or not operand.write:
            return one
        count = (mask.bits >> (4 if operand.place == 64 else 0) & 15).bit_count()
        operand = replace(operand, words=count)
        return operand, read, _access(operand, "d") if count else ()

    return [fewer(one) for one in found]


def _packed(operands: tuple[Operand, ...]) -> tuple[Operand, ...]:
    """The operands with the two halves of a packed immediate, of which the upper one stands first, as one."""
    shown: list[Operand] = []
    for value in operands:
        last = shown[-1] if shown else None
        if isinstance(value, Imm) and isinstance(last, Imm) and value.kind == last.kind and value.kind in HALVES:
            bits = last.bits << 16 | value.bits
            shown[-1] = Imm(bits, bits, value.kind + "x2", f"{last.text}, {value.text}")
        else:
            shown.append(value)
    return tuple(shown)


@functools.cache
def _wide_sources(form: Form) -> tuple[str, ...]:
    """The sources of 64 bits, as the form's operands call them where they are uniform registers: URb, URc_b."""
    sources = SOURCE.finditer(form.row.text)
    return tuple(f"UR{m[4].lower()}" for m in sources if m[3] == "D" or m[5] == "2")


PLACES = {24: "a", 32: "b", 64: "c"}
#: bit of a reuse flag -> its source
SLOTS: dict[int | None, str] = {control.REUSE + n: slot for n, slot in enumerate("abc")}
MASKED = {"PR": "P", "UPR": "UP"}  # operands that are as many predicates as the last operand says
CHOSEN = "wanted"  # an operand that says which words of memory are loaded
HALVES = ("f16", "bf16")
FLOATS = {16: "f16", -16: "bf16", 32: "f32", 64: "f64"}


# -- from the bits of an operand to its value. What depends on the row alone is looked at once, for all words.

Read = Callable[[int], Operand]  # of a word at address 0


def _reader(pattern: Pattern, wide: int, op: Op) -> Read:
    """What reads an operand. ``wide``: how many registers the data operands have."""
    flat = list(_pieces(pattern.pieces))
    fields = [f for kind, f in flat if kind == "field"]
    if pattern.target is not None:
        return _label(pattern.target, [_register(f, wide, op) for f in fields if isinstance(f, Register)])
    if any(kind == "text" and "[" in f for kind, f in flat):
        return _memory(flat, wide, op)
    if not fields:
        name = Name(pattern.source)
        return lambda word: name
    first = fields[0]
    if isinstance(first, Register):
        register = _register(first, wide, op, [piece for piece in flat if _is_suffix(*piece)])
        if len(fields) > 1 and isinstance(fields[1], Number):
            return _distance(fields[1], register, op.relative)
        return register
    if isinstance(first, Constant):
        constant = _constant(first, op)
        return constant
    if isinstance(first, Float):
        kind = FLOATS[first.size]
        return lambda word: Imm(first.get(word), first.get(word), kind, first.decode(word))
    if isinstance(first, Number):
        return lambda word: Imm(first.get(word), _signed(first, word), "int", first.decode(word))
    if isinstance(first, BitSet):
        return lambda word: Imm(first.get(word), first.get(word), "set", first.decode(word))
    return lambda word: Name(_text(flat, word))


def _is_suffix(kind: str, f: Any) -> bool:
    return (kind == "text" and f.strip() not in ("", "~", "-", "!", "|")) or isinstance(f, Enum)


def _text(pieces: list[Piece], word: int) -> str:
    return "".join([f if kind == "text" else f.decode(word) for kind, f in pieces])


def _pieces(pieces: list[Piece]) -> Iterator[Piece]:
    for kind, value in pieces:
        if kind in ("group", "hidden"):
            yield from _pieces(value)
        else:
            yield kind, value


def _signed(f: Number, word: int) -> int:
    value = f.get(word)
    if f.signed and value > f.high:
        value -= 1 << f.width
    return value * f.scale


def _label(target: Target, regs: list[Callable[[int], Reg]]) -> Read:
    def read(word: int) -> Label:
        return Label(target.address(word, 0), target.relative, regs[0](word) if regs else None)

    return read


def _distance(number: Number, register: Callable[[int], Reg], relative: bool) -> Read:
    """BRX R2 -0x10: a distance behind the register."""

    def read(word: int) -> Label:
        return Label(_signed(number, word) + (WORD_BYTES if relative else 0), relative, register(word))

    return read


def _register(f: Register, wide: int, op: Op, suffixes: list[Piece] | None = None) -> Callable[[int], Reg]:
    prefix, pos, last = f.prefix, f.pos, f.last
    if type(f) is not Register:  # stored inverted: its text says what is meant

        def inverted(word: int) -> Reg:
            text = f.decode(word)
            name = text.lstrip("!").removeprefix(prefix)
            return Reg(prefix, ZEROS[prefix] if name == f.zero else int(name), inv=text[0] == "!", place=pos)

        return inverted
    place = f"{prefix}{pos}"
    words = f.words if f.words > 0 else wide if f.words < 0 else 1
    write = (place in DESTINATIONS or place in op.writes) and place not in op.reads
    zero = ZEROS[prefix] if f.zero else last
    neg, abs, inv, reuse = [0 if bit is None else 1 << bit for bit in (f.neg, f.abs, f.inv, f.reuse)]
    slot = SLOTS.get(f.reuse, PLACES.get(pos, ""))
    behind: list[Piece] = [("field", f.suffix)] if f.suffix else []
    behind += suffixes or []

    def read(word: int) -> Reg:
        index = word >> pos & last
        if index == last:
            index = zero
        signs = word & neg != 0, word & abs != 0, word & inv != 0, word & reuse != 0
        return Reg(prefix, index, words, *signs, _text(behind, word) if behind else "", pos, write, slot)

    return read


def _constant(f: Constant, op: Op) -> Callable[[int], Const]:
    bank = f.bank
    ur = _register(bank, 1, op) if isinstance(bank, Register) else None
    neg, abs, inv = [0 if bit is None else 1 << bit for bit in (f.neg, f.abs, f.inv)]

    def read(word: int) -> Const:
        signs = word & neg != 0, word & abs != 0, word & inv != 0, f.suffix.decode(word) if f.suffix else ""
        offset = f.offset.get(word) * f.offset.scale
        return Const(0, offset, ur(word), *signs) if ur else Const(bank.get(word), offset, None, *signs)

    return read


WRITTEN_OUT = re.compile(r"(desc\[)?UR(\d+)")  # a uniform register that the row itself names: LDGSTS's descriptor


def _memory(flat: list[Piece], wide: int, op: Op) -> Read:
    """Text and fields of an address, such as ``desc[`` URb ``][`` Ra ``.64`` offset ``]``."""
    space, named = "", {}
    parts: list[tuple[str, Any]] = []  # which part of a Mem, and what reads it
    scales: list[Enum] = []
    inside = ""  # what stands before the bracket we are in
    for kind, f in flat:
        if kind == "text":
            if written := WRITTEN_OUT.search(f):
                named["desc" if written[1] else "ur"] = Reg("UR", int(written[2]), 2 if written[1] else 1)
            if "[" in f:
                inside = f.rpartition("[")[0].rpartition("]")[2].strip()
                if inside == "~desc":
                    inside = "desc"
                if "]" not in f or space == "":
                    space = inside or space
        elif isinstance(f, Register):
            if inside == "desc":
                parts.append(("desc", _wide(_register(f, wide, op))))
            else:
                parts.append(("ur" if f.prefix == "UR" else "base", _register(f, wide, op)))
        elif isinstance(f, Number):
            parts.append(("bank" if inside == "c" else "offset", functools.partial(_signed, f)))
        elif isinstance(f, Constant):
            constant = _constant(f, op)
            parts.append(("bank", lambda word, constant=constant: constant(word).bank))
            parts.append(("offset", lambda word, constant=constant: constant(word).offset))
        elif isinstance(f, Enum):
            scales.append(f)
    space = "" if space == "desc" else space

    def read(word: int) -> Mem:
        found = {part: value(word) for part, value in parts}
        for f in scales:
            text = f.decode(word)
            if text.startswith(".X"):
                found["scale"] = int(text[2:])
        return Mem(**{"space": space, **named, **found})

    return read


def _wide(read: Callable[[int], Reg]) -> Callable[[int], Reg]:
    return lambda word: replace(read(word), words=2)
