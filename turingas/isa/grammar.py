"""How a row of the table is read: shapes of the sources, names of registers, fields that many rows share."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any

from turingas.isa.arch import ARCHS, Arch, Archs, since
from turingas.isa.fields import Constant, Enum, Field, Float, Following, Number, Offset, Register

#: a field of the word, or what makes it for an architecture
OfArch = Field | Callable[[Arch], Field]

# ---- shapes of the sources -------------------------------------------------------------------------------------

# opcode bits, source b, source c: r = general register, i = immediate, c = constant, x = constant through a uniform
# register, u = uniform register. Registers stand at 32 (b) and 64 (c), but b gives way to an operand c that is no
# register; a source c alone is encoded at 32.
SHAPES = {
    "bc": [
        (0x200, "r", "r"), (0x400, "r64", "i"), (0x600, "r64", "c"), (0x800, "i", "r"), (0xA00, "c", "r"),
        (0x1C00, "u", "r"), (0x1E00, "r64", "u"), (0x1600, "r64", "x"), (0x1A00, "x", "r"),
    ],
    "b": [(0x200, "r", ""), (0x800, "i", ""), (0xA00, "c", ""), (0x1C00, "u", ""), (0x1A00, "x", "")],
    "c": [(0x200, "", "r32"), (0x400, "", "i"), (0x600, "", "c"), (0x1E00, "", "u"), (0x1600, "", "x")],
    "C": [(0x200, "", "r"), (0x400, "", "i"), (0x600, "", "c"), (0x1E00, "", "u"), (0x1600, "", "x")],
}  # fmt: skip
IMMEDIATE = {"S": "imm", "I": "simm", "F": "f32", "D": "f64", "H": "f16hi, f16lo", "B": "bf16hi, bf16lo"}
IMMEDIATE |= {"P": IMMEDIATE["H"], "Q": IMMEDIATE["B"]}  # packed halves without a swizzle
SOURCE = re.compile(r"(?<!\w)([-~]?)(\|?)([SIFDHBPQ])([bcC])(\d?)(\|?)(?!\w)")


def not_zero(index: int, last: int) -> bool:
    """A condition on a register of a row: it is not the last one, RZ or URZ."""
    return index != last


@dataclass(frozen=True, eq=False)
class Row:
    text: str
    opcode: int
    fixed: Mapping[int, int | str]  # "URZ": the number of that register
    when: Mapping[str, object]
    archs: Archs
    fields: Mapping[str, OfArch]
    base: str  # the mnemonic without modifiers
    reuse: bool  # whether its register sources have reuse bits that nvdisasm prints
    uniform_guard: bool  # guarded by @UP0 instead of @P0
    without: tuple[int, ...]  # shapes (their opcode bits) that the instruction lacks


def row(
    text: str,
    opcode: int,
    fixed: Mapping[Any, Any],
    archs: Archs,
    fields: Mapping[str, OfArch] | None = None,
) -> Row:
    base = re.split(r"[\s.{]", text, maxsplit=1)[0]
    bits = {k: v for k, v in fixed.items() if isinstance(k, int)}
    when = {k: v for k, v in fixed.items() if isinstance(k, str) and k not in ("reuse", "guard", "without")}
    reuse = bool(fixed.get("reuse", opcode & 0x1FF < 0x100))
    guard = fixed.get("guard", "UP" if base[0] == "U" else "P") == "UP"
    lacks = fixed.get("without", ())
    without = (lacks,) if isinstance(lacks, int) else tuple(lacks)
    return Row(text, opcode, bits, when, archs, fields or {}, base, reuse, guard, without)


def rows(*items: tuple[object, ...], fields: Mapping[str, OfArch] | None = None) -> list[Row]:
    """Rows of one family; ``fields`` are the names that only this family uses."""
    return [row(*item[:4], {**(fields or {}), **(item[4] if len(item) > 4 else {})}) for item in items]  # type: ignore


#: opcode with bit 91 as 0x1000, and the kinds of its sources: "ri"
Shape = tuple[int, str]


def own(arch: Arch) -> list[Row]:
    """The rows that an architecture, and those it descends from, say themselves."""
    named = [ARCHS[name] for name in arch.line]
    rows = [(of.name, *given) for of in named for given in of.rows]
    kept = compress(rows, arch.kept([text for _, text, *_ in rows]))
    return [row(text, opcode, fixed, since(name), *fields) for name, text, opcode, fixed, *fields in kept]


@functools.cache
def mnemonic(row: Row) -> tuple[list[str], list[str]]:
    """The mnemonic of a row: its plain texts, and the fields between them."""
    found = re.split(r"\{(\w+)\}", row.text.partition(" ")[0])
    return found[::2], found[1::2]


@functools.cache
def _choices(row: Row) -> list[tuple[int, str, str]]:
    """The shapes that a row's sources may have: opcode bits and the kinds of b and c; none for a row without such."""
    slots = "".join(sorted({found[3] for found in SOURCE.findall(row.text.partition(" ")[2])}))
    return [shape for shape in SHAPES[slots] if shape[0] & 0xE00 not in row.without] if slots else []


@functools.cache
def shapes(row: Row) -> tuple[Shape, ...]:
    """Every shape of a row."""
    return tuple([(row.opcode | bits, b[:1] + c[:1]) for bits, b, c in _choices(row) or [(0, "", "")]])


def operands(row: Row, n: int) -> list[str]:
    """The operands of its shape ``n``."""
    tail = row.text.partition(" ")[2].strip()
    choices = _choices(row)
    if choices:
        _, b, c = choices[n]
        tail = SOURCE.sub(functools.partial(_source, {"b": b, "c": c, "C": c}), tail)
    return re.split(r",\s+", tail) if tail else []


def unsaid(texts: Sequence[str]) -> list[str]:
    """The kinds of sources that none of these operands is."""
    said = " ".join(texts)
    found = [kind for kind, mark in (("u", "UR"), ("c", "c["), ("x", "cx[")) if mark not in said]
    if all(text.lstrip(SIGN)[:1] in NO_NUMBER for text in texts):
        found.append("i")
    return found


SIGN, NO_NUMBER = "-+~!|", ("R", "U", "P", "c", "d", "[")  # what operands begin with; "d": desc[UR4][R2.64]


def _source(kinds: Mapping[str, str], match: re.Match[str]) -> str:
    """What stands for a source of several shapes in one of them."""
    sign, bar, letter, slot, words, _ = match.groups()
    kind = kinds[slot]
    if kind == "i":
        return IMMEDIATE[letter]
    swizzled, packed = letter in "HB", letter in "HBPQ"
    slot = slot.lower()
    if letter == "D":
        words = "2"
    if kind in ("c", "x"):
        return f"{sign}{bar}c{kind if kind == 'x' else 'b'}{'h' if swizzled else ''}{bar}"
    if kind == "u":
        return f"{sign}{bar}UR{slot}{'_b' if slot == 'c' else ''}{'h' if swizzled else ''}{bar}"
    place = {"r": slot, "r64": "c", "r32": "b"}[kind]
    name = f"R{slot}{words}" + (f"_{place}" if place != slot else "")
    # packed halves have their signs elsewhere when they stand at 64
    return f"{sign}{bar}{name}{'h' if packed and place == 'c' else ''}{bar}" + (f"{{h{place}}}" if swizzled else "")


# ---- registers -------------------------------------------------------------------------------------------------

PLACES = {"d": 16, "a": 24, "b": 32, "c": 64}
#           place: neg, abs bit of a register there
SIGNS = {"a": (72, 73), "b": (63, 62), "c": (75, 74), "ch": (84, 83)}
REUSE = {"a": 122, "b": 123, "c": 124}
#           name: place, bit of the not-sign
PREDICATES = {"u": (81, None), "v": (84, None), "p": (87, 90), "q": (77, 80), "r": (68, 71), "s": (64, 67)}
NAME = re.compile(r"([-~!]?)(\|?)(?:(U?R)([a-d])([2348w]?)(?:_?([bc])?(h?))?|(U?P)([a-z])|(c[bx])(h?))\|?")


def register(file: str, pos: int, words: int = 0, zero: bool = True, **bits: int | Enum | None) -> OfArch:
    """A register of a file, whose width and zero register the architecture says; ``zero``: whether that may stand here.
    ``bits`` are those of ``Register``."""

    def made(arch: Arch) -> Field:
        of = arch.files[file]
        limit = None if zero else of.count
        return Register(file, pos, of.width, of.zero if zero else "", words, limit=limit, **bits)  # type: ignore[arg-type]

    return made


def behind(pos: int) -> OfArch:
    """The uniform register behind the one at ``pos``."""
    return lambda arch: Following("UR", pos, arch.files["UR"].width, arch.files["UR"].zero)


def find(name: str, arch: Arch, reuse: bool = True) -> Any:
    """The ``Field`` that a name in a row stands for, or None when it is plain text."""
    known = FIELDS.get(name)
    if known is not None:
        return known if isinstance(known, Field) else known(arch)
    if name in SWIZZLES:
        return half_at(SWIZZLES[name], arch)
    match = NAME.fullmatch(name)
    if match is None:
        return None
    sign, bar, file, slot, words, place, half, pred, pname, const, chalf = match.groups()
    if pred:
        pos, inv = PREDICATES[pname]
        return field_of(register(pred, pos, inv=inv if sign == "!" else None), arch)
    neg = abs_ = inv = None
    if const:
        if sign == "-":
            neg = 63
        elif sign == "~":
            inv = 63
        suffix = half_at(60, arch) if chalf else None
        handle = field_of(HANDLE, arch) if const == "cx" else None
        return Constant(handle, neg, 62 if bar else None, inv, suffix)
    at = place or slot
    if sign or bar:
        minus, absolute = SIGNS[at + half if file == "R" else at]
        neg, inv = (minus, None) if sign == "-" else (None, minus) if sign == "~" else (None, None)
        abs_ = absolute if bar else None
    if file == "UR":
        suffix = half_at(60, arch) if half else None
        return field_of(register("UR", PLACES[at], neg=neg, abs=abs_, inv=inv, suffix=suffix), arch)
    count = -1 if words == "w" else int(words or 1)
    bit = REUSE.get(slot) if reuse else None
    return field_of(register("R", PLACES[at], count, neg=neg, abs=abs_, inv=inv, reuse=bit), arch)


SWIZZLES = {"ha": 74, "hb": 60, "hc": 81}


def half_at(pos: int, arch: Arch) -> Enum:
    """Which halves of a register are read; before Ampere also one FP32 value for both."""
    return Enum(pos, 2, ("", ".F32" if arch.halves_of_floats else None, ".H0_H0", ".H1_H1"))


def field_of(made: OfArch, arch: Arch) -> Any:
    """A field as it is on an architecture."""
    return made if isinstance(made, Field) else made(arch)


HALF = Enum(60, 1, ("", ".H1"))
HANDLE = register("UR", 32)  # of cx[URn][offset]

FIELDS: dict[str, OfArch] = {
    # a packed half as the only source, the lower or the upper one: register, uniform register, constants
    "half_r": register("R", 32, 1, neg=63, abs=62, suffix=HALF), "h1": HALF,
    "half_u": register("UR", 32, neg=63, abs=62, suffix=HALF),
    "half_c": Constant(None, 63, 62, suffix=HALF),
    "half_x": lambda arch: Constant(field_of(HANDLE, arch), 63, 62, suffix=HALF),
    # immediates and offsets
    "imm": Number(32, 32), "simm": Number(32, 32, signed=True), "f32": Float(32, 32), "f64": Float(32, 64),
    "f16lo": Float(32, 16), "f16hi": Float(48, 16), "bf16lo": Float(32, -16), "bf16hi": Float(48, -16),
    "off": Offset(40, 24),
    # comparisons
    "fcmp": Enum(76, 4, [f".{n}" for n in
                         "F LT EQ LE GT NE GE NUM NAN LTU EQU LEU GTU NEU GEU T".split()]),
    "icmp": Enum(76, 3, [f".{n}" for n in "F LT EQ LE GT NE GE T".split()]),
    "bool": Enum(74, 2, (".AND", ".OR", ".XOR")),
    # arithmetic modifiers
    "rnd": Enum(78, 2, ("", ".RM", ".RP", ".RZ")),
    "sat": Enum(77, 1, ("", ".SAT")), "ftz": Enum(80, 1, ("", ".FTZ")),
    "fmz": Enum(((76, 1), (80, 1)), 2, ("", ".FMZ", ".FTZ")),
}  # fmt: skip
