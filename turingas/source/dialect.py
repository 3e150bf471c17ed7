"""TuringAs's own spellings -> nvdisasm's, which is all that the instruction table knows.

TuringAs leaves out what it has a default for (`LDG.E`, `SHF.L`), writes what nvdisasm does not print (`IMAD.S32`,
`LDS.U.32`) and leaves out predicates (`IADD3.X R0, R1, R2, RZ, P0`). nvdisasm prints none of these texts, so none has
two meanings; `CS2R R0, SR_CLOCKLO` is the exception, see ``Dialect``. Learned by giving TuringAs's words to nvdisasm.
"""

from __future__ import annotations

import re
from collections.abc import Callable

Repair = Callable[[str, "list[str]"], str]  # mnemonic, operands -> the whole text

_SCOPES = ("CTA", "SM", "GPU", "SYS", "VC")
_STRENGTHS = ("STRONG", "CONSTANT", "MMIO")
_PREDICATE = re.compile(r"!?U?P[0-7T]\Z")

# Modifiers that TuringAs accepts and nvdisasm never prints there: they say what holds anyway.
_SILENT = {
    "LDG": {"32"},
    "STG": {"32"},
    "LDS": {"32", "E"},
    "STS": {"32", "E", "U"},
    "LDC": {"32", "E", "U"},
    "ULDC": {"32", "E", "U"},
    "LDSM": {"1"},
    "RED": {"U32"},
    "IMAD": {"S32"},
    "ISETP": {"S32"},
    "IMNMX": {"S32"},
    "SGXT": {"S32"},
    "I2F": {"F32", "S32"},
    "F2I": {"F32", "S32"},
}

# TuringAs's stall `-` means the latency it lists; 1 for the others.
_STALL = {
    "MOV": 5, "IADD3": 4, "UIADD3": 4, "IMAD": 5, "ISETP": 4, "LOP3": 5, "SHF": 5, "USHF": 5, "PRMT": 5, "SEL": 4,
    "SGXT": 5, "IABS": 6, "HADD2": 7, "HFMA2": 7, "HMUL2": 7, "BRA": 7, "CS2R": 5, "S2R": 7, "P2R": 8, "R2P": 12,
    "F2F": 5, "S2UR": 4, "SHFL": 4,
}  # fmt: skip


def default_stall(mnemonic: str) -> str:
    """The stall, a hexadecimal digit, that `-` in its place stands for."""
    base = mnemonic.partition(".")[0]
    if mnemonic.startswith(("IMAD.WIDE", "IMAD.HI")):
        return "1"
    return f"{_STALL.get(base, 1):x}"


class Dialect(dict[str, tuple[str, "Repair | None"]]):
    """Mnemonic with modifiers as written -> nvdisasm's spelling and, for some, what to do with the operands.

    ``orders_by_name``: see ``Arch``. ``clock32``: `CS2R` of a clock reads 32 bits, as in TuringAs (2020); nvdisasm
    writes `CS2R.32` for that.
    """

    def __init__(self, orders_by_name: bool, clock32: bool) -> None:
        super().__init__()
        self.orders_by_name = orders_by_name
        self.clock32 = clock32

    def __missing__(self, mnemonic: str) -> tuple[str, Repair | None]:
        base, *modifiers = mnemonic.split(".")
        silent = _SILENT.get(base)
        if silent:
            modifiers = [modifier for modifier in modifiers if modifier not in silent]
        repair: Repair | None = None
        if base in ("LDG", "STG", "RED"):
            modifiers = self._memory(base, modifiers)
        elif base == "LDS" and not self.orders_by_name:
            modifiers = [modifier for modifier in modifiers if modifier != "U"]
        elif base in ("SHF", "USHF") and modifiers[:1] in (["L"], ["R"]):
            if not {"U32", "S32", "U64", "S64"} & set(modifiers):
                modifiers.insert(1 + (modifiers[1:2] == ["W"]), "U32")
        elif base in ("IADD3", "UIADD3") and "X" in modifiers:
            repair = _carry
        elif base == "LOP3" and modifiers == ["LUT"]:
            repair = _logic
        elif base == "BMMA" and modifiers[-1:] == ["POPC"] and not {"XOR", "AND"} & set(modifiers):
            modifiers.insert(-1, "XOR")
        elif base == "P2R":
            repair = _from_predicates
        elif base == "LDC":
            repair = _constant
        elif base == "CS2R" and self.clock32 and not modifiers:
            repair = _clock
        self[mnemonic] = result = (".".join([base, *modifiers]), repair)
        return result

    def _memory(self, base: str, modifiers: list[str]) -> list[str]:
        """Order and scope of accesses to global memory: sm_75 always has a scope, sm_80 only for a strong access."""
        if base == "RED" and "F32" in modifiers and "FTZ" not in modifiers:
            at = modifiers.index("F32") + 1
            modifiers[at:at] = ["FTZ", "RN"]
        scopes = [modifier for modifier in modifiers if modifier in _SCOPES]
        strengths = [modifier for modifier in modifiers if modifier in _STRENGTHS]
        if len(scopes) > 1 or len(strengths) > 1 or {"PRIVATE", "ORDERED"} & set(modifiers):
            return modifiers
        if not scopes:
            return [*modifiers, "SYS"] if self.orders_by_name else modifiers
        at = modifiers.index(scopes[0])
        if strengths and modifiers.index(strengths[0]) > at:  # STG.E.SYS.STRONG
            modifiers.remove(strengths[0])
            modifiers.insert(at, strengths[0])
        elif not self.orders_by_name and not strengths and base != "RED":
            modifiers.remove(scopes[0])
        if not self.orders_by_name and strengths == ["STRONG"] and scopes == ["CTA"]:
            modifiers[modifiers.index("CTA")] = "SM"
        return modifiers


def _text(mnemonic: str, operands: list[str]) -> str:
    return f"{mnemonic} {', '.join(operands)}"


def _carry(mnemonic: str, operands: list[str]) -> str:
    """An addition with carry has two carries in; nvdisasm always writes both."""
    given = 0
    while given < len(operands) and _PREDICATE.match(operands[-1 - given]):
        given += 1
    return _text(mnemonic, operands + ["!UPT" if mnemonic[0] == "U" else "!PT"] * (2 - given))


def _logic(mnemonic: str, operands: list[str]) -> str:
    """LOP3 ends in a predicate."""
    ends = operands and _PREDICATE.match(operands[-1])
    return _text(mnemonic, operands if ends else [*operands, "!PT"])


def _from_predicates(mnemonic: str, operands: list[str]) -> str:
    """P2R merges the predicates into a register; TuringAs leaves RZ out."""
    return _text(mnemonic, [*operands[:2], "RZ", operands[2]] if len(operands) == 3 else operands)


def _constant(mnemonic: str, operands: list[str]) -> str:
    """nvdisasm writes the offset of `LDC R0, c[0x3][0x0]` as the register that it adds."""
    return _text(mnemonic, [re.sub(r"\]\[0x0+\]\Z", "][RZ]", operand) for operand in operands])


def _clock(mnemonic: str, operands: list[str]) -> str:
    """`CS2R Rd, SRZ` clears 64 bits in TuringAs too."""
    return _text(mnemonic + ".32" if operands[1:] == ["SR_CLOCKLO"] else mnemonic, operands)
