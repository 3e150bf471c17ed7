"""How a row of the table is read: shapes of the sources, names of registers, fields that many rows share."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from turingas.isa.fields import Constant, Enum, Field, Float, Number, Offset, Register

ARCHITECTURES: dict[str, float] = {
    "sm_70": 70, "sm_75": 75, "sm_80": 80, "sm_86": 86, "sm_89": 89, "sm_90": 90, "sm_90a": 90.5,
}  # fmt: skip

ALL = (70, 90.5)
TURING = (75, 90.5)
AMPERE = (80, 90.5)
HOPPER = (90, 90.5)

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


@dataclass(frozen=True, eq=False)
class Row:
    text: str
    opcode: int
    fixed: Mapping[int, int]
    when: Mapping[str, object]
    first: float
    last: float
    fields: Mapping[str, Field]
    base: str  # the mnemonic without modifiers
    reuse: bool  # whether its register sources have reuse bits that nvdisasm prints
    uniform_guard: bool  # guarded by @UP0 instead of @P0
    without: tuple[int, ...]  # shapes (their opcode bits) that the instruction lacks


def row(
    text: str,
    opcode: int,
    fixed: Mapping[Any, Any],
    archs: tuple[float, float],
    fields: Mapping[str, Field] | None = None,
) -> Row:
    base = re.split(r"[\s.{]", text, maxsplit=1)[0]
    bits = {k: v for k, v in fixed.items() if isinstance(k, int) and isinstance(v, int)}
    when = {k: v for k, v in fixed.items() if isinstance(k, str) and k not in ("reuse", "guard", "without")}
    reuse = bool(fixed.get("reuse", opcode & 0x1FF < 0x100))
    guard = fixed.get("guard", "UP" if base[0] == "U" else "P") == "UP"
    lacks = fixed.get("without", ())
    without = (lacks,) if isinstance(lacks, int) else tuple(lacks)
    return Row(text, opcode, bits, when, *archs, fields or {}, base, reuse, guard, without)


def rows(*items: tuple[object, ...], fields: Mapping[str, Field] | None = None) -> list[Row]:
    """Rows of one family; ``fields`` are the names that only this family uses."""
    return [row(*item[:4], {**(fields or {}), **(item[4] if len(item) > 4 else {})}) for item in items]  # type: ignore


Shape = tuple[str, list[str], Mapping[int, int], Mapping[str, object], int]


def _choices(row: Row) -> list[tuple[int, str, str]]:
    """The shapes that a row's sources may have: opcode bits and the kinds of b and c; none for a row without such."""
    slots = "".join(sorted({m[4] for m in SOURCE.finditer(row.text.partition(" ")[2])}))
    return [shape for shape in SHAPES[slots] if shape[0] & 0xE00 not in row.without] if slots else []


def opcodes(row: Row) -> set[int]:
    """Bits 0 to 11 of everything that the row writes."""
    return {(row.opcode | bits) & 0xFFF for bits, _, _ in _choices(row)} or {row.opcode & 0xFFF}


@functools.cache
def shapes(row: Row) -> tuple[Shape, ...]:
    """(mnemonic, operands, fixed bits, conditions, opcode with bit 91 as 0x1000) for every shape of a row."""
    name, _, tail = row.text.partition(" ")
    tail = tail.strip()
    found = []
    for bits, b, c in _choices(row) or [(0, "", "")]:
        operands = SOURCE.sub(functools.partial(_source, {"b": b, "c": c, "C": c}), tail)
        found.append((name, _split(operands), row.fixed, row.when, row.opcode | bits))
    return tuple(found)


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


def _split(text: str) -> list[str]:
    return re.split(r",\s+", text) if text else []


# ---- registers -------------------------------------------------------------------------------------------------

PLACES = {"d": 16, "a": 24, "b": 32, "c": 64}
#           place: neg, abs bit of a register there
SIGNS = {"a": (72, 73), "b": (63, 62), "c": (75, 74), "ch": (84, 83)}
REUSE = {"a": 122, "b": 123, "c": 124}
#           name: place, bit of the not-sign
PREDICATES = {"u": (81, None), "v": (84, None), "p": (87, 90), "q": (77, 80), "r": (68, 71), "s": (64, 67)}
NAME = re.compile(r"([-~!]?)(\|?)(?:(U?R)([a-d])([2348w]?)(?:_?([bc])?(h?))?|(U?P)([a-z])|(c[bx])(h?))\|?")


def find(name: str, sm: float, reuse: bool = True) -> Field | None:
    """The field that a name in a row stands for, or None when it is plain text."""
    known = FIELDS.get(name)
    if known is not None:
        return known
    if name in SWIZZLES:
        return half_at(SWIZZLES[name], sm)
    match = NAME.fullmatch(name)
    if match is None:
        return None
    sign, bar, file, slot, words, place, half, pred, pname, const, chalf = match.groups()
    if pred:
        pos, inv = PREDICATES[pname]
        return Register(pred, pos, 3, "T", inv=inv if sign == "!" else None)
    neg = abs_ = inv = None
    if const:
        if sign == "-":
            neg = 63
        elif sign == "~":
            inv = 63
        suffix = half_at(60, sm) if chalf else None
        return Constant(const == "cx", neg, 62 if bar else None, inv, suffix)
    at = place or slot
    if sign or bar:
        minus, absolute = SIGNS[at + half if file == "R" else at]
        neg, inv = (minus, None) if sign == "-" else (None, minus) if sign == "~" else (None, None)
        abs_ = absolute if bar else None
    if file == "UR":
        suffix = half_at(60, sm) if half else None
        return Register("UR", PLACES[at], 6, "Z", neg=neg, abs=abs_, inv=inv, suffix=suffix)
    count = -1 if words == "w" else int(words or 1)
    bit = REUSE.get(slot) if reuse else None
    return Register("R", PLACES[at], 8, "Z", count, neg, abs_, inv, bit)


SWIZZLES = {"ha": 74, "hb": 60, "hc": 81}


def half_at(pos: int, sm: float) -> Enum:
    """Which halves of a register are read; before Ampere also one FP32 value for both."""
    return Enum(pos, 2, ("", ".F32" if sm < 80 else None, ".H0_H0", ".H1_H1"))


HALF = Enum(60, 1, ("", ".H1"))

FIELDS: dict[str, Field] = {
    # a packed half as the only source, the lower or the upper one: register, uniform register, constants
    "half_r": Register("R", 32, 8, "Z", 1, 63, 62, suffix=HALF), "h1": HALF,
    "half_u": Register("UR", 32, 6, "Z", 0, 63, 62, suffix=HALF),
    "half_c": Constant(False, 63, 62, suffix=HALF), "half_x": Constant(True, 63, 62, suffix=HALF),
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
