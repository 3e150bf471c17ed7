"""The words behind a directive: numbers, names, sections, attributes. A Mistake says what is wrong with one."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from urllib.parse import unquote

from turingas.cubin import elf as e
from turingas.cubin import nvinfo, relocations
from turingas.cubin.model import RawSection
from turingas.cubin.nvinfo import BVAL, HVAL, NVAL, SVAL, Info
from turingas.cubin.write import LARGEST_ALIGN

NUMBER = re.compile(r"[-+]?(0[xX][0-9a-fA-F]+|[0-9]+)")
LONGEST_NUMBER = 42  # characters
BINDINGS = {"local": e.STB_LOCAL, "global": e.STB_GLOBAL, "weak": e.STB_WEAK}
SYMBOL_TYPES = {"notype": e.STT_NOTYPE, "object": e.STT_OBJECT, "func": e.STT_FUNC, "section": e.STT_SECTION}


class Mistake(Exception):
    """A directive that cannot be carried out; becomes an AsmError at its line."""

    def __init__(self, message: str, hint: str = "", part: str = "") -> None:
        super().__init__(message)
        self.message, self.hint, self.part = message, hint, part


def split(args: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """The words of a directive: plain ones, and KEY=VALUE."""
    plain: list[str] = []
    options: dict[str, str] = {}
    for word in args:
        key, equals, value = word.partition("=")
        if equals:
            options[key] = value
        else:
            plain.append(word)
    return plain, options


def one(args: list[str], what: str) -> str:
    if len(args) != 1:
        raise Mistake(f"this directive takes {what}")
    return args[0]


def number(text: str, bits: int = 0) -> int:
    """A number; with ``bits``, one that is not negative and fits them."""
    if not NUMBER.fullmatch(text) or len(text) > LONGEST_NUMBER:
        raise Mistake(f"{text!r} is not a number", part=text)
    value = int(text, 16) if "x" in text.lower() else int(text)
    if bits and not 0 <= value < 1 << bits:
        raise Mistake(f"{text} is out of range for {bits} bits", part=text)
    return value


def size(text: str) -> int:
    return number(text, 64)


def align(text: str) -> int:
    value = number(text)
    if not 0 <= value <= LARGEST_ALIGN:
        raise Mistake(f"{text} is not a valid alignment", f"at most {LARGEST_ALIGN}", text)
    return value


def relocation(text: str) -> int:
    """The number of a kind of relocation."""
    if text.isdecimal() and text.isascii():
        return number(text, 32)
    if text not in relocations.NUMBERS:
        raise Mistake(f"unknown kind of relocation {text}", "R_CUDA_ABS32_LO_32 for instance", text)
    return relocations.number(text)


def place(text: str, labels: Mapping[str, int]) -> int:
    """A number, a label, or the distance from one label to another: L_0380-L_0130."""
    if text in labels:
        return labels[text]
    end, minus, start = text.partition("-")
    return labels[end] - labels[start] if minus and {start, end} <= labels.keys() else size(text)


def symbol_number(name: str, numbers: Mapping[str, int]) -> int:
    """The number of a symbol, or the one that "@12" gives."""
    if name not in numbers and not name.startswith("@"):
        raise Mistake(f"undefined symbol {name!r}", "define it with .symbol", name)
    return numbers[name] if name in numbers else number(name[1:], 32)


def is_relocations(owner: object) -> bool:
    return isinstance(owner, RawSection) and owner.type in (e.SHT_REL, e.SHT_RELA)


def choice(text: str, known: Mapping[str, int], bits: int = 0) -> int:
    if text in known:
        return known[text]
    if text.isdecimal() and text.isascii() and bits:
        return number(text, bits)
    raise Mistake(f"{text!r} is none of {', '.join(known)}", part=text)


def name(text: str) -> str:
    """A name as it is written: %23 stands for #, - alone for no name."""
    return "" if text == "-" else unquote(text, errors="surrogateescape") if "%" in text else text


def key(text: str) -> str:
    """The name of a section; NAME@2 is the second of that name."""
    base, mark, at = text.partition("@")
    return name(base) + (f"\0{at}" if mark else "")


def reference(text: str) -> str | int:
    return number(text, 32) if NUMBER.fullmatch(text) else key(text)


def code(text: str) -> int:
    """The number of an attribute of .nv.info."""
    known = nvinfo.CODES.get(text.removeprefix("EIATTR_"))
    if known is None and not NUMBER.fullmatch(text):
        raise Mistake(f"unknown attribute {text}", part=text)
    return number(text, 8) if known is None else known


def integer(text: str, size: int, labels: Mapping[str, int]) -> bytes:
    value = labels[text] if text in labels else number(text)
    try:
        return value.to_bytes(size, "little", signed=value < 0)
    except OverflowError:
        raise Mistake(f"{text} is out of range for {8 * size} bits", part=text) from None


def attribute(code: int, values: list[str], labels: Mapping[str, int]) -> list[Info]:
    """What ``.info`` gives an attribute: words, or one of the marked forms."""
    small = {"flag": NVAL, "byte": BVAL, "half": HVAL}
    if values and values[0] in small:
        if len(values) > 2:
            raise Mistake(f"write {values[0]} and one number")
        return [Info(small[values[0]], code, number(values[1], 16) if len(values) > 1 else 0)]
    if values == ["absent"]:
        return []
    try:
        data = bytes.fromhex("".join(values[1:])) if values[:1] == ["hex"] else None
    except ValueError:
        raise Mistake("these are not hexadecimal bytes") from None
    if data is None:
        data = b"".join(integer(text, 4, labels) for text in values)
    if len(data) >= 1 << 16:
        raise Mistake("an attribute has less than 64 KB")
    return [Info(SVAL, code, data)]


