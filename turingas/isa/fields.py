"""Kinds of field: a place in the 128-bit word, and how the value there is written.

Every field can ``encode`` a text into bits that already stand at their place, and ``decode`` them back.
What a field cannot write exactly raises ``Unprintable`` (decode) or ``ValueError`` with a message (encode).
"""

from __future__ import annotations

import functools
import math
import re
import struct
from collections.abc import Iterable, Mapping

Place = int | tuple[tuple[int, int], ...]
REMEMBERED = 1 << 14  # distances of branches


class Unprintable(Exception):
    """The bits have no exact text; the word is shown as ``.word``."""


class Field:
    """Bits at ``places`` (pairs of position and width, lowest first) and a regular expression of their texts."""

    pattern = r"[^,\s\]\[]+"
    begins: tuple[str, ...] = ("",)  # what each of its texts begins with, as far as it says so
    what = "a value"
    words = 0  # how many general registers the operand spans; 0: it is none; -1: the size modifier says it
    default: int | None = None  # the bits that an optional group leaves unsaid

    def __init__(self, pos: Place, width: int = 1) -> None:
        self.places: tuple[tuple[int, int], ...] = ((pos, width),) if isinstance(pos, int) else pos
        self.width = sum(w for _, w in self.places)
        self.mask = 0
        for p, w in self.places:
            self.mask |= ((1 << w) - 1) << p
        #: where the field lies in one piece, as nearly all do; -1: in several
        self.start, self.ones = (self.places[0][0], (1 << self.width) - 1) if len(self.places) == 1 else (-1, 0)

    def get(self, word: int) -> int:
        if self.start >= 0:
            return word >> self.start & self.ones
        value = shift = 0
        for p, w in self.places:
            value |= (word >> p & (1 << w) - 1) << shift
            shift += w
        return value

    def put(self, value: int) -> int:
        if self.start >= 0:
            return (value & self.ones) << self.start
        bits = 0
        for p, w in self.places:
            bits |= (value & (1 << w) - 1) << p
            value >>= w
        return bits

    def encode(self, text: str) -> int:
        raise NotImplementedError

    def quick(self, text: str) -> int | None:
        """``encode`` of a text that need not be one of this field's: None where ``pattern`` has to decide. ValueError
        as in ``encode``."""
        return None

    def decode(self, word: int) -> str:
        raise NotImplementedError

    def plain(self, word: int) -> str:
        """nvdisasm's text, where it says less than ``decode``."""
        return self.decode(word)


class Enum(Field):
    """Names of values. ``''`` is a name: the modifier is then not written at all.

    ``also`` gives further names that encode accepts (an alias never comes out of decode); ``spans`` the registers
    that the data operands of such an instruction span, by name.
    """

    what = "a modifier"

    def __init__(
        self,
        pos: Place,
        width: int,
        names: Mapping[int, str] | Iterable[str | None],
        also: Mapping[str, int] | None = None,
        default: int | None = None,
        spans: Mapping[str, int] | None = None,
    ) -> None:
        super().__init__(pos, width)
        self.spans = spans or {}
        pairs = names.items() if isinstance(names, Mapping) else enumerate(names)
        self.names = {v: n for v, n in pairs if n is not None}
        self.values: dict[str, int] = {}
        for v, n in self.names.items():
            if n in self.values:
                raise AssertionError(f"two values are named {n!r}")
            self.values[n] = v
        if max(self.names, default=0) >> self.width:
            raise AssertionError(f"value {max(self.names):#x} does not fit {self.width} bits")
        self.values.update(also or {})
        self.default = self.put(self.values[""]) if "" in self.values else None
        if default is not None:
            self.default = self.put(default)
        self.pattern = "(?:" + "|".join(re.escape(n) for n in sorted(self.values, key=len, reverse=True)) + ")"

    @functools.cached_property
    def choices(self) -> list[tuple[str, int]]:
        """Its texts and their bits."""
        return [(text, self.put(value)) for text, value in self.values.items()]

    @functools.cached_property
    def unsaid(self) -> list[tuple[str, int]]:
        """The same, of the empty text alone, if that is one."""
        return [choice for choice in self.choices if not choice[0]]

    def encode(self, text: str) -> int:
        try:
            return self.put(self.values[text])
        except KeyError:
            known = " ".join(n for n in self.values if n)
            raise ValueError(f"{text!r} is not one of {known}") from None

    def quick(self, text: str) -> int | None:
        value = self.values.get(text)
        return None if value is None else self.put(value)

    def decode(self, word: int) -> str:
        try:
            return self.names[self.get(word)]
        except KeyError:
            raise Unprintable from None

    def span(self, word: int) -> int:
        """How many registers the data operands have with this modifier (``spans``; 1 where it says nothing)."""
        return self.spans.get(self.names.get(self.get(word), ""), 1)


def flag(pos: int, name: str, off: str = "") -> Enum:
    """One bit that writes ``name`` when set."""
    return Enum(pos, 1, (off, name))


@functools.cache
def _indices(prefix: str, count: int, zero: str, last: int) -> dict[str, int]:
    """The names of the registers of a file."""
    return {f"{prefix}{n}": n for n in range(count)} | ({prefix + zero: last} if zero else {})


@functools.cache
def _texts(prefix: str, count: int, zero: str, last: int) -> dict[int, str]:
    """The same, the other way round."""
    return {index: name for name, index in _indices(prefix, count, zero, last).items()}


@functools.cache
def _beginning(prefix: str, count: int, zero: str, last: int, words: int, align: int) -> dict[int, str]:
    """The registers that an operand of ``words`` registers may begin at, multiples of ``align``."""
    texts = _texts(prefix, count, zero, last)
    return {index: name for index, name in texts.items() if _fits(index, words, align, count, last)}


@functools.cache
def _registers(
    prefix: str, count: int, zero: str, last: int, pos: int, words: int, align: int, lead: str, trail: str
) -> dict[int, str]:
    """Bits and texts of these registers where they stand at ``pos``, between ``lead`` and ``trail``."""
    found = _beginning(prefix, count, zero, last, words, align)
    texts = f"{lead}{(trail + SEPARATOR + lead).join(found.values())}{trail}".split(SEPARATOR)
    return dict(zip([index << pos for index in found], texts))


@functools.cache
def _ending(prefix: str, count: int, zero: str, last: int, pos: int, words: int, align: int) -> dict[str, int]:
    """The same, the other way round; above the word of 128 bits is a bit for where a general register ends."""
    found = _beginning(prefix, count, zero, last, words, align)
    end = 1 << 128 + max(words, 1) if prefix == "R" else 0
    return {name: index << pos | (end << index if index != last else 0) for index, name in found.items()}


SEPARATOR = "\n"  # stands in no text


def usual(words: int) -> int:
    """What the first of so many registers is a multiple of."""
    return 4 if words > 2 else max(1, words)


def _fits(index: int, words: int, align: int, count: int, last: int) -> bool:
    """Whether an operand of so many registers may begin at this one."""
    return words <= 1 or index == last or not (index % align or index + words > count)


KINDS = {"R": "a register", "UR": "a uniform register", "P": "a predicate", "UP": "a uniform predicate"}


class Register(Field):
    """A register: ``R5``, ``UR4``, ``P0``, ``B3``. The last index of general and uniform ones reads as zero.

    ``neg``, ``abs``, ``inv`` and ``reuse`` are the positions of the bits that write ``-``, ``|x|``, ``~`` or ``!`` and
    ``.reuse``; None where the operand has none. ``suffix`` is written behind the name, inside the bars. ``align``: what
    the first of several registers is a multiple of, if it is not as usual.
    """

    def __init__(
        self,
        prefix: str,
        pos: int,
        width: int,
        zero: str = "",
        words: int = 0,
        neg: int | None = None,
        abs: int | None = None,
        inv: int | None = None,
        reuse: int | None = None,
        limit: int | None = None,
        suffix: Enum | None = None,
        align: int | None = None,
    ) -> None:
        super().__init__(pos, width)
        self.prefix, self.zero, self.words = prefix, zero, words
        self.align = align or usual(words)
        self.neg, self.abs, self.inv, self.reuse = neg, abs, inv, reuse
        self.pos, self.suffix = pos, suffix
        self.mask |= suffix.mask if suffix else 0
        self.last = (1 << width) - 1  # the index that reads as zero or true
        self.count = self.last if zero else (limit or 1 << width)
        self._names = _indices(prefix, self.count, zero, self.last)
        self._texts = _texts(prefix, self.count, zero, self.last)
        for bit in (neg, abs, inv, reuse):
            if bit is not None:
                self.mask |= 1 << bit
        self._extras = self.mask & ~(self.last << pos)  # what is written beside the name; a suffix may be of zeros
        if suffix is not None and suffix.names.get(0) != "":
            self._extras = -1
        self.what = KINDS.get(prefix, f"{prefix}0 to {prefix}{self.count - 1}")
        self.mark = "!" if prefix in ("P", "UP") else "~"
        name = rf"{prefix}(?:{zero}|[0-9]+)" if zero else rf"{prefix}[0-9]+"
        if suffix:
            name += suffix.pattern + "?"
        if abs is not None:
            name = rf"(?:\|{name}\||{name})"
        signs = ("-" if neg is not None else "") + (self.mark if inv is not None else "")
        self.pattern = (f"[{signs}]?" if signs else "") + name + (r"(?:\.reuse)?" if reuse is not None else "")
        self.begins = (prefix, *signs, *("|" if abs is not None else ""))
        if zero:
            self.default = self.last << pos

    def signs(self, text: str) -> tuple[int, str]:
        """The bits of the signs that a text carries, and the text without them."""
        bits = 0
        if self.reuse is not None and text[-6:] == ".reuse":
            bits, text = 1 << self.reuse, text[:-6]
        if self.neg is not None and text[:1] == "-":
            bits, text = bits | 1 << self.neg, text[1:]
        elif self.inv is not None and text[:1] == self.mark:
            bits, text = bits | 1 << self.inv, text[1:]
        if self.abs is not None and text[:1] == "|" == text[-1:]:
            bits, text = bits | 1 << self.abs, text[1:-1]
        return bits, text

    def quick(self, text: str) -> int | None:
        signs, name = self.signs(text)
        index = self._names.get(name)
        if index is None or self.suffix is not None or not _fits(index, self.words, self.align, self.count, self.last):
            return None
        return signs | index << self.pos

    def encode(self, text: str) -> int:
        bits = 0
        if self.reuse is not None and ".reuse" in text:
            bits |= 1 << self.reuse
            text = text.replace(".reuse", "")
        if text[0] in "-~!":
            sign = self.neg if text[0] == "-" else self.inv
            if sign is None:
                raise ValueError(f"{text[0]!r} cannot stand before this operand")
            bits |= 1 << sign
            text = text[1:]
        if text[0] == "|":
            if self.abs is None:
                raise ValueError("this operand has no absolute value")
            bits |= 1 << self.abs
            text = text.strip("|")
        if self.suffix:
            text, dot, rest = text.partition(".")
            bits |= self.suffix.encode(dot + rest)
        name = text[len(self.prefix) :]
        if not text.startswith(self.prefix) or not (name == self.zero or name.isdecimal() and name.isascii()):
            raise ValueError(f"{text!r} is not {self.what}")
        if name == self.zero:
            return bits | self.last << self.pos
        index = int(name)
        if name[0] == "0" and name != "0":
            raise ValueError(f"{text} is written {self.prefix}{index}")
        last = f"the last one is {self.prefix}{self.count - 1}"
        if index >= self.count:
            raise ValueError(f"{text} is out of range: {last}")
        if self.words > 1:
            if index % self.align:
                raise ValueError(f"{text} must be a multiple of {self.align}: this operand has {32 * self.words} bits")
            if index + self.words > self.count:
                raise ValueError(f"{text} to {self.prefix}{index + self.words - 1} are out of range: {last}")
        return bits | index << self.pos

    def decode(self, word: int) -> str:
        text = self._texts.get(word >> self.pos & self.last)
        if text is None:
            raise Unprintable
        if self._extras != -1 and not word & self._extras:
            return text
        if self.suffix:
            text += self.suffix.decode(word)
        if self.abs is not None and word >> self.abs & 1:
            text = f"|{text}|"
        if self.reuse is not None and word >> self.reuse & 1:
            text += ".reuse"
        if self.neg is not None and word >> self.neg & 1:
            return "-" + text
        if self.inv is not None and word >> self.inv & 1:
            return self.mark + text
        return text

    def texts(self, lead: str, trail: str) -> Mapping[int, str]:
        """The bits and names of all registers that may stand here, without signs, between ``lead`` and ``trail``; none
        where there is a suffix."""
        if self._extras == -1:
            return {}
        at = self.pos, self.words, self.align
        return _registers(self.prefix, self.count, self.zero, self.last, *at, lead, trail)

    def names(self) -> Mapping[str, int]:
        """The same, the other way round, each with its ``end``."""
        if self._extras == -1:
            return {}
        return _ending(self.prefix, self.count, self.zero, self.last, self.pos, self.words, self.align)

    def end(self, bits: int) -> int:
        """A bit above the 128 of a word: bit n tells that general register n - 1 is the last that is used; 0 for RZ."""
        index = bits >> self.pos & self.last
        return 0 if self.prefix != "R" or index == self.last else 1 << 128 + index + max(self.words, 1)

    def checked(self, word: int) -> str:
        """``decode``, but Unprintable for what ``encode`` would not read back: a misaligned wide register."""
        if self.words > 1 and not _fits(word >> self.pos & self.last, self.words, self.align, self.count, self.last):
            raise Unprintable
        return self.decode(word)


class Following(Register):
    """The register behind one that stands at the same bits: an instruction reads both, and writes both in its text."""

    def __init__(self, prefix: str, pos: int, width: int, zero: str) -> None:
        super().__init__(prefix, pos, width, zero)
        self.default = None

    def decode(self, word: int) -> str:
        index = self.get(word) + 1
        return self._texts.get(index) or self._texts[self.last]

    def checked(self, word: int) -> str:
        return self.decode(word)

    def encode(self, text: str) -> int:
        """No bits: those are the other's. ValueError for what is no register."""
        super().encode(text)
        return 0

    def quick(self, text: str) -> int | None:
        return None if super().quick(text) is None else 0


LONGEST = 100  # characters of a number
INTEGER = r"-?(?:0[xX][0-9a-fA-F]+|[0-9]+)"
_IS_INTEGER = re.compile(INTEGER).fullmatch


class Number(Field):
    """An integer, written in hexadecimal (or decimal with ``base=10``), in units of ``scale``."""

    pattern = INTEGER
    begins = tuple("-0123456789")
    what = "a number"

    def __init__(
        self, pos: Place, width: int, signed: bool = False, scale: int = 1, base: int = 16, default: int | None = None
    ) -> None:
        super().__init__(pos, width)
        self.signed, self.scale, self.base = signed, scale, base
        top = 1 << self.width
        self.low = -(top >> 1) if signed else 0
        self.high = (top >> 1) - 1 if signed else top - 1
        if default is not None:
            self.default = self.put(default // scale)

    def quick(self, text: str) -> int | None:
        return self.encode(text) if _IS_INTEGER(text) else None

    def encode(self, text: str) -> int:
        if len(text) > LONGEST:
            raise ValueError(f"{text[:12]}... is a number of {len(text)} digits")
        units = int(text, 0 if "x" in text or "X" in text else 10)
        if self.scale == 1 and self.low <= units <= self.high:
            return self.put(units)
        units, rest = divmod(units, self.scale)
        if rest:
            raise ValueError(f"{text} is not a multiple of {self.scale}")
        if units > self.high and self.signed and self.width == 32 and units <= 0xFFFFFFFF:
            units -= 1 << 32  # 0xffffffff and -0x1 are the same 32 bits
        elif units < self.low and not self.signed and self.width == 32 and units >= -(1 << 31):
            units += 1 << 32
        if not self.low <= units <= self.high:
            either = self.width == 32 and self.scale == 1  # signed and unsigned numbers are both taken
            bounds = (-(1 << 31), (1 << 32) - 1) if either else (self.low * self.scale, self.high * self.scale)
            low, high = map(hex if self.base == 16 else str, bounds)
            kind = "" if either else "signed " if self.signed else "unsigned "
            bits = self.width + self.scale.bit_length() - 1
            raise ValueError(f"{text} is out of range for the {kind}{bits} bits ({low} to {high})")
        return self.put(units)

    def decode(self, word: int) -> str:
        value = self.get(word)
        if self.signed and value > self.high:
            value -= 1 << self.width
        value *= self.scale
        return hex(value) if self.base == 16 else str(value)


class Offset(Number):
    """A signed number behind a base: ``+0x10``, ``+-0x10`` as nvdisasm writes it; ``-0x10`` is read too."""

    pattern = r"(?:\+-?|-)(?:0[xX][0-9a-fA-F]+|[0-9]+)"
    begins = ("+", "-")
    what = "an offset"

    def __init__(self, pos: Place, width: int, signed: bool = True, scale: int = 1) -> None:
        super().__init__(pos, width, signed, scale)
        self.default = 0

    def quick(self, text: str) -> int | None:
        return super().quick(text[1:] if text[:1] == "+" else text) if text[:1] in self.begins else None

    def encode(self, text: str) -> int:
        return super().encode(text[1:] if text[0] == "+" else text)

    def decode(self, word: int) -> str:
        return "+" + super().decode(word)


class Alone(Number):
    """The same number where it stands without a base: ``[0x10]``."""


SPECIAL = {"+INF": 0x7F800000, "-INF": 0xFF800000}


class Constant(Field):
    """Constant memory: ``c[bank][offset]``, or ``cx[URn][offset]`` through a uniform register (``handle``).

    The offset is printed signed, as nvdisasm does (unsigned with ``cx``); 0x8000 to 0xfffc are read too.
    """

    what = "a constant"

    def __init__(
        self,
        handle: Register | None = None,
        neg: int | None = None,
        abs: int | None = None,
        inv: int | None = None,
        suffix: Enum | None = None,
        byte: bool = False,
        pos: int = 38,
    ) -> None:
        super().__init__(0, 0)
        bindless = handle is not None
        self.offset = Number(pos if byte else pos + 2, 16 if byte else 14, signed=not bindless, scale=1 if byte else 4)
        self.bank = handle if handle is not None else Number(54, 5)
        self.neg, self.abs, self.inv, self.suffix, self.bindless = neg, abs, inv, suffix, bindless
        self.mask = self.offset.mask | self.bank.mask | (suffix.mask if suffix else 0)
        for bit in (neg, abs, inv):
            if bit is not None:
                self.mask |= 1 << bit
        head = "cx" if bindless else "c"
        inner = self.bank.pattern
        signs = ("-" if neg is not None else "") + ("~" if inv is not None else "")
        bar = r"\|?" if abs is not None else ""
        tail = suffix.pattern + "?" if suffix else ""
        self.pattern = (f"[{signs}]?" if signs else "") + rf"{bar}{head}\[{inner}\]\s*\[{INTEGER}\]{tail}{bar}"
        self.begins = (head, *signs, *("|" if abs is not None else ""))
        self._parts = rf"([-~]?)(\|?){head}\[({inner})\]\s*\[({INTEGER})\]({tail or ''})\|?"
        self._head = head + "["

    def quick(self, text: str) -> int | None:
        sign = text[:1] if text[:1] in "-~" else ""
        if not text.startswith(self._head, len(sign)) or sign and (self.neg if sign == "-" else self.inv) is None:
            return None
        bank, _, offset = text[len(sign) + len(self._head) : -1].partition("][")
        if text[-1] != "]" or self.bank.quick(bank) is None or not _IS_INTEGER(offset) or self.suffix is not None:
            return None
        return self._bits(sign, "", bank, offset, "")

    def encode(self, text: str) -> int:
        match = re.fullmatch(self._parts, text)
        if match is None:
            raise ValueError(f"{text!r} is not {self.what}")
        return self._bits(*match.groups())

    def _bits(self, sign: str, bar: str, bank: str, offset: str, suffix: str) -> int:
        bits = self.bank.encode(bank)
        if self.offset.signed and 0x8000 <= int(offset, 0 if "x" in offset else 10) <= 0xFFFF:
            offset = str(int(offset, 0 if "x" in offset else 10) - 0x10000)
        bits |= self.offset.encode(offset)
        if sign:
            bit = self.neg if sign == "-" else self.inv
            if bit is None:
                raise ValueError(f"{sign!r} cannot stand before this operand")
            bits |= 1 << bit
        if bar:
            if self.abs is None:
                raise ValueError("this operand has no absolute value")
            bits |= 1 << self.abs
        if self.suffix:
            bits |= self.suffix.encode(suffix)
        return bits

    def decode(self, word: int) -> str:
        head = "cx" if self.bindless else "c"
        text = f"{head}[{self.bank.decode(word)}][{self.offset.decode(word)}]"
        if self.suffix:
            text += self.suffix.decode(word)
        if self.abs is not None and word >> self.abs & 1:
            text = f"|{text}|"
        if self.neg is not None and word >> self.neg & 1:
            return "-" + text
        if self.inv is not None and word >> self.inv & 1:
            return "~" + text
        return text


class Float(Field):
    """A binary floating-point number of ``size`` bits (16, 32, or the upper half of 64), printed as nvdisasm does.

    NaNs are written by their bits (``0x7fc00000``): nvdisasm says only ``+QNAN``, which does not determine the word.
    """

    pattern = r"[+-]?(?:INF|QNAN|SNAN|0[xX][0-9a-fA-F]+|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)"
    what = "a floating-point number"
    #          bits: (exponent bits, mantissa bits kept in the field, digits nvdisasm prints)
    FORMATS = {16: (5, 10), 32: (8, 23), 64: (11, 20), -16: (8, 7)}  # -16: bfloat16

    def __init__(self, pos: Place, size: int) -> None:
        super().__init__(pos, 16 if size in (16, -16) else 32)
        self.size = size
        self.exponent, self.mantissa = self.FORMATS[size]

    def _value(self, bits: int) -> float:
        if self.size == 16:
            return float(struct.unpack("<e", struct.pack("<H", bits))[0])
        if self.size == -16:
            return float(struct.unpack("<f", struct.pack("<I", bits << 16))[0])
        if self.size == 32:
            return float(struct.unpack("<f", struct.pack("<I", bits))[0])
        return float(struct.unpack("<d", struct.pack("<Q", bits << 32))[0])

    def _bits(self, value: float) -> int:
        try:
            if self.size == 16:
                return int(struct.unpack("<H", struct.pack("<e", value))[0])
            if self.size == -16:
                bits = int(struct.unpack("<I", struct.pack("<f", value))[0])
                if bits & 0xFFFF:
                    raise ValueError(f"{value!r} is not exact in bfloat16")
                return bits >> 16
            if self.size == 32:
                return int(struct.unpack("<I", struct.pack("<f", value))[0])
        except OverflowError:
            raise ValueError(f"{value!r} is out of range for {abs(self.size)} bits") from None
        bits = int(struct.unpack("<Q", struct.pack("<d", value))[0])
        if bits & 0xFFFFFFFF:
            raise ValueError(f"{value!r} needs more than the upper 32 bits of a double; the instruction holds no more")
        return bits >> 32

    def encode(self, text: str) -> int:
        low = text.lower()
        if "0x" in low:
            bits = int(text, 16)
            if not 0 <= bits >> self.width < 1:
                raise ValueError(f"{text} is out of range for {self.width} bits")
            return self.put(bits)
        if "nan" in low:
            quiet = ((1 << self.exponent + 1) - 1) << self.mantissa - 1
            raise ValueError(f"{text} does not say which NaN is meant; write its bits, {quiet:#x} for example")
        if "inf" in low:
            infinity = ((1 << self.exponent) - 1) << self.mantissa
            return self.put(infinity | (1 << self.width - 1 if text[0] == "-" else 0))
        return self.put(self._bits(float(text)))

    def decode(self, word: int) -> str:
        bits = self.get(word)
        if math.isnan(self._value(bits)):
            return hex(bits)
        return self.plain(word)

    def plain(self, word: int) -> str:
        bits = self.get(word)
        value = self._value(bits)
        if math.isnan(value):
            sign = "-" if bits >> self.width - 1 else "+"
            return sign + ("QNAN" if bits >> self.mantissa - 1 & 1 else "SNAN")
        if math.isinf(value):
            return "-INF" if value < 0 else "+INF"
        return digits(value)


def digits(value: float) -> str:
    """The number as nvdisasm prints it: 20 significant digits; 20 behind the point from 1e9 on (probed)."""
    if value == 0:
        return "0" if math.copysign(1, value) > 0 else "-0.0"
    return f"{value:.20e}" if abs(value) >= 1e9 else f"{value:.20g}"


class Target(Field):
    """A branch target: the distance from the next instruction, in units of ``scale`` bytes; written as an address."""

    pattern = r"`\([^)]*\)|" + INTEGER + r"|(?!U?[RP](?:[0-9]+|Z|T)\b(?!\.))[A-Za-z_.$][\w.$@]*"
    what = "a label or an address"

    def __init__(self, pos: Place, width: int = 0, scale: int = 1, relative: bool = True) -> None:
        super().__init__(pos, width)
        self.scale, self.relative = scale, relative
        self._distances: dict[int, int] = {}  # bits -> bytes, for many words of a cubin are asked for more than once
        self._bits: dict[int, int] = {}  # and back

    def address(self, word: int, address: int) -> int:
        bits = word & self.mask
        distance = self._distances.get(bits)
        if distance is None:
            value = self.get(bits)
            if value >> self.width - 1:
                value -= 1 << self.width
            if len(self._distances) >= REMEMBERED:
                self._distances.clear()
            distance = self._distances[bits] = value * self.scale
        return distance + address + 16 if self.relative else distance

    def at(self, target: int, address: int) -> int:
        distance = target - address - 16 if self.relative else target
        bits = self._bits.get(distance)
        return self._of(distance, target) if bits is None else bits

    def _of(self, distance: int, target: int) -> int:
        units, rest = divmod(distance, self.scale)
        if rest:
            raise ValueError(f"target {target:#x} is not a multiple of {self.scale}")
        if not -(1 << self.width - 1) <= units < 1 << self.width - 1:
            raise ValueError(f"target {target:#x} is out of range: the distance has {self.width} bits")
        if len(self._bits) >= REMEMBERED:
            self._bits.clear()
        bits = self._bits[distance] = self.put(units)
        return bits


class BitSet(Field):
    """A set of bit numbers in braces: ``{4,3,0}``, highest first."""

    pattern = r"\{\s*(?:[0-9]+\s*(?:,\s*[0-9]+\s*)*)?\}"
    what = "a set like {2,0}"

    def __init__(self, pos: int, width: int) -> None:
        super().__init__(pos, width)
        self.default = 0

    def encode(self, text: str) -> int:
        value = 0
        for part in text.strip("{}").split(","):
            if part.strip():
                number = int(part)
                if number >= self.width:
                    raise ValueError(f"{number} is out of range: the last one is {self.width - 1}")
                value |= 1 << number
        return self.put(value)

    def decode(self, word: int) -> str:
        value = self.get(word)
        return "{" + ",".join(str(n) for n in range(self.width - 1, -1, -1) if value >> n & 1) + "}"
