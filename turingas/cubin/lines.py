"""Source lines of compiled code (``-lineinfo``): the line-number program of .debug_line.

The format is that of DWARF 2 to 4, section 6.2 of the standard. Addresses are those of symbols, filled in by
relocations. NVIDIA's own extended operations (0x90 and above, for inlined calls) are passed over by their length.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

from turingas.cubin import elf as e
from turingas.cubin.elf import Elf
from turingas.isa.arch import WORD_BYTES

Line = tuple[str, int]
Row = tuple[int, int, int]  # address, file, line

COPY, ADVANCE_PC, ADVANCE_LINE, SET_FILE = 1, 2, 3, 4
CONST_ADD_PC, FIXED_ADVANCE_PC = 8, 9
END_SEQUENCE, SET_ADDRESS = 1, 2


class Reader:
    """Bytes read one after the other. IndexError or struct.error at their end."""

    def __init__(self, data: bytes, at: int = 0) -> None:
        self.data, self.at = data, at

    def take(self, form: str) -> int:
        """One number in a format of struct."""
        value: int = struct.unpack_from("<" + form, self.data, self.at)[0]
        self.at += struct.calcsize("<" + form)
        return value

    def leb(self, signed: bool = False) -> int:
        """A number of variable length (LEB128)."""
        value = shift = 0
        while True:
            byte = self.take("B")
            value |= (byte & 0x7F) << shift
            shift += 7
            if not byte & 0x80:
                return value - (1 << shift) if signed and byte & 0x40 else value

    def text(self) -> str:
        """A string that ends with a zero."""
        end = self.data.index(0, self.at)
        text = self.data[self.at : end].decode(errors="replace")
        self.at = end + 1
        return text


def read_lines(elf: Elf) -> dict[int, list[Line]]:
    """For each section of code, by its index: file and line of each instruction, ("", 0) where none is told. Empty
    without .debug_line, and for one that cannot be read: lines are a help, not a condition."""
    try:
        return _read(elf)
    except (IndexError, ValueError, struct.error):
        return {}


def _read(elf: Elf) -> dict[int, list[Line]]:
    section = elf.section(".debug_line")
    if section is None:
        return {}
    own = elf.sections.index(section)
    symbols = elf.symbols()
    places = {
        row.offset: (symbols[row.symbol].section, symbols[row.symbol].value + (row.addend or 0))
        for table in elf.sections
        if table.type in (e.SHT_REL, e.SHT_RELA) and table.info == own
        for row in e.relocations(table)
    }
    lines: dict[int, list[Line]] = {}
    data = bytes(section.data)
    at = 0
    while at < len(data):
        size = struct.unpack_from("<I", data, at)[0]
        _unit(Reader(data[: at + 4 + size], at + 4), places, elf, lines)
        at += 4 + size
    return lines


def _unit(r: Reader, places: dict[int, tuple[int, int]], elf: Elf, lines: dict[int, list[Line]]) -> None:
    version = r.take("H")
    if not 2 <= version <= 4:
        return
    start = r.take("I") + r.at
    least = r.take("B")
    if version >= 4:
        r.take("B")
    r.take("B")
    base, span, first = r.take("b"), r.take("B"), r.take("B")
    units = base, span, first, least
    lengths = [r.take("B") for _ in range(first - 1)]
    folders = [""]
    while folder := r.text():
        folders.append(folder)
    files = [""]
    while name := r.text():
        folder = folders[r.leb()] if r.data[r.at] < len(folders) else ""
        r.leb()
        r.leb()
        files.append(f"{folder.rstrip('/')}/{name}" if folder and not name.startswith("/") else name)
    r.at = start
    added = {at: address for at, (_, address) in places.items()}
    while r.at < len(r.data):
        rows, end, operand = sequence(r, added, units, lengths)
        if r.data[r.at - 3 : r.at] == bytes([0, 1, END_SEQUENCE]):  # else the table is cut off
            section = places.get(operand, (0, 0))[0]
            _fill(rows, end, files, elf.sections[section].size // WORD_BYTES, lines.setdefault(section, []))


def sequence(
    r: Reader, starts: Mapping[int, int], units: tuple[int, int, int, int], lengths: Sequence[int]
) -> tuple[list[Row], int, int]:
    """One sequence of a program: its rows, where it ends, and where its address stands (-1: nowhere). ``starts``: what
    relocations add to the address at a place; ``units``: line base and range, the first special operation, bytes of
    an instruction; ``lengths``: how many numbers follow each standard operation."""
    base, span, first, least = units
    operand, address, file, line = -1, 0, 1, 1
    rows: list[Row] = []
    while r.at < len(r.data):
        code = r.take("B")
        if code >= first:
            address += (code - first) // span * least
            line += base + (code - first) % span
            rows.append((address, file, line))
        elif code == 0:
            size = r.leb()
            end = r.at + size
            kind = r.take("B")
            if kind == SET_ADDRESS:
                operand = r.at
                address = starts.get(operand, 0) + int.from_bytes(r.data[operand:end], "little")
            r.at = end
            if kind == END_SEQUENCE:
                break
        elif code == COPY:
            rows.append((address, file, line))
        elif code == ADVANCE_PC:
            address += r.leb() * least
        elif code == ADVANCE_LINE:
            line += r.leb(signed=True)
        elif code == SET_FILE:
            file = r.leb()
        elif code == CONST_ADD_PC:
            address += (255 - first) // span * least
        elif code == FIXED_ADVANCE_PC:
            address += r.take("H")
        else:
            for _ in range(lengths[code - 1]):
                r.leb()
    return rows, address, operand


def _fill(rows: Sequence[Row], end: int, files: list[str], count: int, into: list[Line]) -> None:
    """Rows in the order of their addresses; each holds up to the next."""
    into.extend([("", 0)] * (count - len(into)))
    for (address, file, line), (after, _, _) in zip(rows, [*rows[1:], (end, 0, 0)]):
        name = files[file] if file < len(files) else ""
        for n in range(address // WORD_BYTES, min(-(-after // WORD_BYTES), count)):
            into[n] = (name, line)
