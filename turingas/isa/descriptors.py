"""What is in the descriptors that products of matrices take: THE table of their fields.

Sources: PTX ISA 8.8, "Instruction descriptor" and "Shared memory descriptor" of tcgen05, "Matrix descriptor format" of
wgmma; what ptxas lets through unchanged from ``tcgen05.mma`` to ``idesc[UR]`` (tests/flow/test_known.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from turingas.isa.instruction import Instruction, Mem, Reg

ALL = (1 << 64) - 1


class Field(NamedTuple):
    """Bits ``low`` to ``low + width - 1``. ``values``: the name of each code; without them the field is a number, times
    ``unit``. A field that is ``usual`` need not be told."""

    name: str
    low: int
    width: int
    values: Mapping[int, str] = {}
    unit: int = 1
    usual: int | None = None


def _flag(name: str, low: int, value: str = "yes") -> Field:
    return Field(name, low, 1, {0: "no", 1: value}, usual=0)


SMALL = {0: "E4M3", 1: "E5M2", 3: "E2M3", 4: "E3M2", 5: "E2M1"}
SIGNS = (_flag("negate A", 13), _flag("negate B", 14))
TURNED = (_flag("transpose A", 15), _flag("transpose B", 16))
N, M = Field("N", 17, 6, unit=8), Field("M", 24, 5, unit=16)
SPARSE = (Field("sparsity selector", 0, 2, usual=0), _flag("sparse", 2))
SHIFT = Field("shift of B", 30, 2, {0: "none", 1: "8", 2: "16", 3: "32"}, usual=0)  # of .ws, at most
SCALED = (_flag("sparse", 2), Field("scales of B", 4, 2, usual=0), *SIGNS, *TURNED, N,
          Field("M", 27, 2, unit=128), Field("scales of A", 29, 2, usual=0))  # fmt: skip


def _product(into: Mapping[int, str], sources: Mapping[int, str], *more: Field) -> tuple[Field, ...]:
    return (*SPARSE, *more, Field("D", 4, 2, into), Field("A", 7, 3, sources), Field("B", 10, 3, sources),
            *SIGNS, *TURNED, N, M, SHIFT)  # fmt: skip


def _shared(*more: Field) -> tuple[Field, ...]:
    return (Field("address", 0, 14, unit=16), Field("leading offset", 16, 14, unit=16),
            Field("stride", 32, 14, unit=16), Field("base offset", 49, 3, usual=0), *more)  # fmt: skip


#: kind -> fields. Of ``UTC...``: what ``idesc`` holds; ``shared``: what ``gdesc`` does
KINDS: dict[str, tuple[Field, ...]] = {
    "UTCHMMA": _product({0: "F16", 1: "F32"}, {0: "F16", 1: "BF16", 2: "TF32"}),
    "UTCIMMA": _product({2: "S32"}, {0: "U8", 1: "S8"}, _flag("saturate", 3)),
    "UTCQMMA": _product({0: "F16", 1: "F32"}, SMALL),
    "UTCQMMA-scaled": (Field("A", 7, 3, SMALL), Field("B", 10, 3, SMALL), *SCALED,
                       Field("scales", 23, 1, {1: "UE8M0"})),
    "UTCOMMA": (Field("A", 7, 3, {1: "E2M1"}), Field("B", 10, 2, {1: "E2M1"}), *SCALED,
                Field("scales", 23, 1, {0: "UE4M3", 1: "UE8M0"}), Field("K", 31, 1, {0: "64", 1: "96"}, usual=0)),
    "shared-wgmma": _shared(Field("swizzle", 62, 2, {0: "none", 1: "128", 2: "64", 3: "32"})),
    "shared-tcgen05": _shared(
        Field("version", 46, 3, usual=1), Field("leading offset is", 52, 1, {0: "relative", 1: "absolute"}, usual=0),
        Field("swizzle", 61, 3, {0: "none", 1: "128, of 32 bytes", 2: "128", 4: "64", 6: "32"}),
    ),
}  # fmt: skip
BITS = {kind: 64 if kind.startswith("shared") else 32 for kind in KINDS}


def parts(kind: str, value: int, known: int = ALL) -> list[tuple[Field, str]]:
    """The fields of a descriptor all of whose bits are ``known``, each with its text."""
    found = []
    for field in KINDS[kind]:
        mask = (1 << field.width) - 1
        if known >> field.low & mask == mask:
            code = value >> field.low & mask
            text = field.values.get(code, f"{code}?") if field.values else str(code * field.unit)
            found.append((field, text))
    return found


def text(kind: str, value: int, known: int = ALL) -> str:
    """What is known of a descriptor, in a line; "" if that is nothing. What is as usual is left out."""
    found = [(field, told) for field, told in parts(kind, value, known)
             if field.usual is None or value >> field.low & (1 << field.width) - 1 != field.usual]  # fmt: skip
    return ", ".join(f"{field.name} {told}" for field, told in found)


class Operand(NamedTuple):
    """A descriptor of an instruction: what it is of, its kind, and the uniform register where it begins."""

    of: str
    kind: str
    register: int


def operands(i: Instruction) -> list[Operand]:
    """The descriptors that an instruction takes."""
    memories = [one for one in i.operands if isinstance(one, Mem) and one.ur is not None]
    found = []
    if i.base.startswith("UTC"):
        shared = [one.ur.index for one in memories if one.space == "gdesc" and one.ur]
        names = ("A", "B") if len(shared) == 2 else ("B",) if i.base.endswith("MMA") else ("",)
        found = [Operand(name, "shared-tcgen05", at) for name, at in zip(names, shared)]
        scaled = i.base == "UTCQMMA" and sum(one.space == "tmem" for one in memories) + len(shared) > 4
        kind = i.base + "-scaled" * scaled
        found += [Operand("idesc", kind, one.ur.index) for one in memories if one.space == "idesc" and one.ur]
    elif i.base.endswith("GMMA"):
        for n, one in enumerate(i.operands):
            if isinstance(one, Mem) and one.space == "gdesc" and one.ur:
                held = any(isinstance(other, Reg) and other.file == "R" and not other.write for other in i.operands[:n])
                names = ("B",) if held else ("A", "B")  # A may be in registers
                found += [Operand(name, "shared-wgmma", one.ur.index + 2 * m) for m, name in enumerate(names)]
    return found


def kinds_of(mnemonic: str) -> list[str]:
    """The kinds of descriptor that instructions of this mnemonic take."""
    if mnemonic.startswith("UTC"):
        own = [kind for kind in KINDS if kind.partition("-")[0] == mnemonic]
        return [*own, "shared-tcgen05"] if own or mnemonic == "UTCCP" else []
    return ["shared-wgmma"] if mnemonic.endswith("GMMA") else []


def table(kind: str) -> list[tuple[str, str, str]]:
    """Bits, name and values of the fields, for people, from the lowest bit up."""
    rows = []
    for field in sorted(KINDS[kind], key=lambda one: one.low):
        bits = f"{field.low + field.width - 1}:{field.low}" if field.width > 1 else str(field.low)
        values = ", ".join(f"{code} {name}" for code, name in field.values.items())
        rows.append((bits, field.name, values or ("a number" if field.unit == 1 else f"/ {field.unit}")))
    return rows
