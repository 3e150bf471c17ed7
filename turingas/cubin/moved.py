"""What data says of addresses of code, and how it follows when instructions are put in or taken out.

Four kinds of section hold such addresses besides the code itself: those with relocations by the symbol of a function
and a distance (DWARF's .debug_info and .debug_loc, tables of pointers), line tables (.debug_line and
.nv_debug_line_sass: DWARF 2 to 4, section 6.2, which count from one row to the next), call frames (.debug_frame,
section 6.4, likewise), and .nv_debug_info_reg_sass (-G), which says where the registers of PTX are. ``follow``
rewrites them for the places that the instructions have now; asked with a function that changes nothing, it tells which
addresses there are.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from turingas.cubin import elf as e
from turingas.cubin.elf import Relocation
from turingas.cubin.lines import (
    ADVANCE_LINE,
    ADVANCE_PC,
    CONST_ADD_PC,
    COPY,
    END_SEQUENCE,
    FIXED_ADVANCE_PC,
    SET_ADDRESS,
    Reader,
)
from turingas.cubin.model import RawSection, RawSymbol

LINES = (".debug_line", ".nv_debug_line_sass")
FRAMES = ".debug_frame"
REGISTERS = ".nv_debug_info_reg_sass"
WIDTHS = {1: 4, 2: 8}  # of relocations that add a distance to a symbol: R_CUDA_32, R_CUDA_64

Place = tuple[str, int]  # a section of code, and an address in it
At = Callable[[str, int], int]  # where the instruction at an address stands now


class Moves:
    """For each section of code where its instructions were and are: ``places`` has some of them, 0 and the end too.
    Those between have kept their distance to the one before."""

    def __init__(self, places: Mapping[str, Mapping[int, int]]) -> None:
        self.now = places
        self.sorted = {section: sorted(found) for section, found in places.items()}
        self.before = {section: {new: old for old, new in found.items()} for section, found in places.items()}

    def __call__(self, section: str, old: int) -> int:
        now = self.now.get(section)
        if not now:
            return old
        if old in now:
            return now[old]
        below = self.sorted[section][bisect_right(self.sorted[section], old) - 1]
        return now[below] + old - below

    def old(self, section: str, new: int) -> int:
        """Where an instruction stood."""
        return self.before.get(section, {}).get(new, new)


def addresses(sections: Sequence[RawSection], symbols: Sequence[RawSymbol], code: set[str]) -> dict[str, set[int]]:
    """The addresses that ``sections`` hold of each section of ``code``."""
    found: dict[str, set[int]] = {section: set() for section in code}

    def note(section: str, old: int) -> int:
        found[section].add(old)
        return old

    for _ in follow(sections, symbols, code, note, lambda section, value: value):
        pass
    return found


def follow(
    sections: Sequence[RawSection],
    symbols: Sequence[RawSymbol],
    code: set[str],
    at: At,
    old: At,
) -> Iterator[tuple[RawSection, bytes | None]]:
    """The sections that hold addresses of ``code``, with what they are to hold; None if one cannot be read.
    ``old`` tells where the instruction to which a symbol points was."""
    by_name = {section.name: section for section in sections}
    if (told := by_name.get(REGISTERS)) is not None:
        try:
            yield told, _registers(bytes(told.data), symbols, code, at, old)
        except (LookupError, ValueError, struct.error, OverflowError):
            yield told, None
    for table in sections:
        if table.type not in (e.SHT_REL, e.SHT_RELA) or not isinstance(table.info, str) or table.info in code:
            continue
        target = by_name.get(table.info)
        if target is None or not target.data:
            continue
        try:
            rows, data = e.relocations(e.Section("", table.type, data=table.data)), bytearray(target.data)
            starts = _relocated(rows, data, symbols, code, at, old)
            shifted = {row.offset: row.offset for row in rows}
            if target.name in LINES:
                data = _lines(bytes(data), starts, at, shifted)
            elif target.name == FRAMES:
                _frames(data, starts, at)
        except (LookupError, ValueError, struct.error, OverflowError):
            yield target, None
            continue
        yield target, bytes(data)
        rows = [replace(row, offset=shifted[row.offset]) for row in rows]
        yield table, e.pack_relocations(rows, table.type == e.SHT_RELA)


def _relocated(
    rows: list[Relocation], data: bytearray, symbols: Sequence[RawSymbol], code: set[str], at: At, old: At
) -> dict[int, Place]:
    """Brings relocations by a function and a distance up to date, in ``rows`` and ``data``. Where each of them points
    to, as it was."""
    starts: dict[int, Place] = {}
    for row in rows:
        symbol = symbols[row.symbol - 1] if 0 < row.symbol <= len(symbols) else None
        if symbol is None or symbol.section not in code or row.type not in WIDTHS:
            continue
        section, width = str(symbol.section), WIDTHS[row.type]
        inside = slice(row.offset, row.offset + width)
        added = int.from_bytes(data[inside], "little") if row.addend is None else row.addend
        start = old(section, symbol.value)
        starts[row.offset] = section, start + added
        if not added:
            continue
        distance = at(section, start + added) - (at(section, start) if start else 0)
        if row.addend is None:
            data[inside] = distance.to_bytes(width, "little")
        else:
            row.addend = distance
    return starts


# -- line tables


def _lines(data: bytes, starts: Mapping[int, Place], at: At, shifted: dict[int, int]) -> bytearray:
    """A line table in which rows stand for the same instructions; ``shifted`` learns where relocations move."""
    out = bytearray()
    place = 0
    while place < len(data):
        size = struct.unpack_from("<I", data, place)[0]
        reader = Reader(data[: place + 4 + size], place + 4)
        begin = len(out)
        out += bytes(4)
        _unit(reader, out, starts, at, shifted)
        struct.pack_into("<I", out, begin, len(out) - begin - 4)
        place += 4 + size
    return out


def _unit(r: Reader, out: bytearray, starts: Mapping[int, Place], at: At, shifted: dict[int, int]) -> None:
    begin = r.at
    version = r.take("H")
    if not 2 <= version <= 4:
        raise ValueError("not DWARF 2 to 4")
    program = r.take("I") + r.at
    least = r.take("B")
    r.at += 2 if version >= 4 else 1
    base, span, first = r.take("b"), r.take("B"), r.take("B")
    del base
    lengths = [r.take("B") for _ in range(first - 1)]
    out += r.data[begin:program]
    r.at = program
    section, address, row = "", 0, 0  # of the row before
    plain, bare = bytearray(), bytearray()  # operations since then: all, and those that do not advance the address
    while r.at < len(r.data):
        start = r.at
        code = r.take("B")
        ends = advances = False
        short = b""
        if code >= first:
            address += (code - first) // span * least
            ends, short = True, bytes([first + (code - first) % span])
        elif code == 0:
            size = r.leb()
            end = r.at + size
            kind = r.take("B")
            if kind == SET_ADDRESS:
                section, address = starts.get(r.at, ("", int.from_bytes(r.data[r.at : end], "little")))
                row = address
                shifted[r.at] = len(out) + len(bare) + r.at - start
            r.at = end
            ends, short = kind == END_SEQUENCE, r.data[start:end]
        elif code in (ADVANCE_PC, CONST_ADD_PC, FIXED_ADVANCE_PC):
            advances = True
            if code == ADVANCE_PC:
                address += r.leb() * least
            elif code == CONST_ADD_PC:
                address += (255 - first) // span * least
            else:
                address += r.take("H")
        elif code == ADVANCE_LINE:
            r.leb(signed=True)
        elif code == COPY:
            ends, short = True, bytes([COPY])
        else:
            for _ in range(lengths[code - 1]):
                r.leb()
        raw = r.data[start : r.at]
        if not ends:
            plain += raw
            bare += b"" if advances else raw
            continue
        distance = at(section, address) - at(section, row) if section else address - row
        if distance == address - row:
            out += plain + raw
        else:
            out += bare + bytes([ADVANCE_PC]) + leb(distance // least) + short
        row = address
        plain, bare = bytearray(), bytearray()
        if code == 0:
            section, address, row = "", 0, 0
    out += plain


def leb(number: int) -> bytes:
    """An unsigned number of variable length."""
    if number < 0:
        raise ValueError("instructions changed their order")
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


# -- registers of PTX


def _registers(data: bytes, symbols: Sequence[RawSymbol], code: set[str], at: At, old: At) -> bytes:
    """Ranges of addresses in which registers of PTX lie in registers. For each function its name, the number of
    entries (u32), and these: which half of a pair (u32), the name in PTX, the register (u8 of 4, the last its file),
    the first address and the end (u32 each). The format was read off cubins of -G: 82,252 entries of 33, sm_70 to
    sm_90, in which all ranges lie in their functions."""
    places = {symbol.name: symbol for symbol in symbols if symbol.section in code}
    out, r = bytearray(data), Reader(data)
    while r.at < len(data):
        symbol = places.get(r.text())
        for _ in range(r.take("I")):
            r.take("I")
            r.text()
            r.take("I")
            where = r.at
            ends = r.take("I"), r.take("I")
            if symbol is None:
                continue
            section = str(symbol.section)
            start = old(section, symbol.value)
            base = at(section, start) if start else 0
            struct.pack_into("<II", out, where, *(at(section, start + end) - base for end in ends))
    return bytes(out)


# -- call frames

ADVANCES = {2: "B", 3: "H", 4: "I"}  # DW_CFA_advance_loc1, 2, 4
OPERANDS = {5: 2, 6: 1, 7: 1, 8: 1, 9: 2, 0xC: 2, 0xD: 1, 0xE: 1, 0x11: 2, 0x12: 2, 0x13: 1}  # how many numbers
BLOCKS = {0xF: 0, 0x10: 1}  # numbers, then a block of bytes


def _frames(data: bytearray, starts: Mapping[int, Place], at: At) -> None:
    """Ranges and rows of .debug_frame, in place."""
    place = 0
    units: dict[int, int] = {}  # common entry -> how many bytes its frames count as one
    while place < len(data):
        r = Reader(bytes(data), place)
        form, size = ("I", r.take("I"))
        if size == 0xFFFFFFFF:
            form, size = "Q", r.take("Q")
        end = r.at + size
        common = r.take(form)
        if common == (1 << 8 * struct.calcsize(form)) - 1:
            r.take("B")
            r.text()
            units[place] = r.leb()
        elif r.at in starts:
            section, start = starts[r.at]
            r.take(form)
            length = r.take(form)
            covered = at(section, start + length) - at(section, start)
            struct.pack_into("<" + form, data, r.at - struct.calcsize(form), covered)
            _frame(Reader(r.data[:end], r.at), data, (section, start), units[common], at)
        place = end


def _frame(r: Reader, data: bytearray, place: Place, unit: int, at: At) -> None:
    section, address = place
    while r.at < len(r.data):
        code = r.take("B")
        if code >> 6 == 1 or code == 1:
            raise ValueError("DW_CFA_advance_loc, DW_CFA_set_loc")
        if code in ADVANCES:
            before = r.at
            now = address + r.take(ADVANCES[code]) * unit
            struct.pack_into("<" + ADVANCES[code], data, before, (at(section, now) - at(section, address)) // unit)
            address = now
        elif code >> 6 == 2 or code in OPERANDS:
            for _ in range(OPERANDS.get(code, 1)):
                r.leb()
        elif code in BLOCKS:
            for _ in range(BLOCKS[code]):
                r.leb()
            size = r.leb()
            r.at += size
