"""Line tables (-lineinfo) and relocations of code whose instructions have another order.

A table is one sequence of rows a function, by ascending address. For a function whose order has changed it is made
anew, with the file and the line of each instruction where that stands now; what was inlined where is not told any more.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

from turingas.cubin import elf as e
from turingas.cubin.lines import (
    ADVANCE_LINE,
    ADVANCE_PC,
    COPY,
    END_SEQUENCE,
    SET_ADDRESS,
    SET_FILE,
    Reader,
    Row,
    sequence,
)
from turingas.cubin.model import RawSection, RawSymbol
from turingas.cubin.moved import LINES, leb
from turingas.isa.arch import WORD_BYTES

ADDRESS_BYTES = 8


def follow(
    sections: Sequence[RawSection], symbols: Sequence[RawSymbol], orders: Mapping[str, Sequence[int]]
) -> list[str]:
    """Bring the line tables among ``sections``, and the relocations of code, up to date. ``orders``: section of code ->
    which instruction came to each place. The names of those that cannot be read, and stay as they were."""
    by_name = {section.name: section for section in sections}
    lost = []
    for table in sections:
        if table.type in (e.SHT_REL, e.SHT_RELA) and (order := orders.get(str(table.info))):
            now = {n: place for place, n in enumerate(order)}
            rows = e.relocations(e.Section("", table.type, data=table.data))
            for row in rows:
                row.offset = WORD_BYTES * now[row.offset // WORD_BYTES] + row.offset % WORD_BYTES
            table.data = e.pack_relocations(rows, table.type == e.SHT_RELA)
        target = by_name.get(str(table.info))
        if table.type not in (e.SHT_REL, e.SHT_RELA) or target is None or target.name not in LINES:
            continue
        try:
            rows = e.relocations(e.Section("", table.type, data=table.data))
            starts: dict[int, tuple[str, int]] = {}
            for row in rows:
                symbol = symbols[row.symbol - 1]
                starts[row.offset] = str(symbol.section), symbol.value + (row.addend or 0)
            shifted: dict[int, int] = {}
            data = _table(bytes(target.data), starts, orders, shifted)
            for row in rows:
                row.offset = shifted[row.offset]
        except (LookupError, ValueError, struct.error, OverflowError):
            lost.append(target.name)
            continue
        target.data, table.data = data, e.pack_relocations(rows, table.type == e.SHT_RELA)
    return lost


def _table(
    data: bytes, starts: Mapping[int, tuple[str, int]], orders: Mapping[str, Sequence[int]], shifted: dict[int, int]
) -> bytes:
    """``shifted`` learns where the relocated places are in the new table."""
    out = bytearray()
    place = 0
    while place < len(data):
        size = struct.unpack_from("<I", data, place)[0]
        begin = len(out)
        out += bytes(4)
        _unit(Reader(data[: place + 4 + size], place + 4), out, starts, orders, shifted)
        struct.pack_into("<I", out, begin, len(out) - begin - 4)
        place += 4 + size
    return bytes(out)


def _unit(
    r: Reader, out: bytearray, starts: Mapping[int, tuple[str, int]], orders: Mapping[str, Sequence[int]],
    shifted: dict[int, int],
) -> None:  # fmt: skip
    begin = r.at
    if not 2 <= (version := r.take("H")) <= 4:
        raise ValueError("not DWARF 2 to 4")
    program = r.take("I") + r.at
    least = r.take("B")
    r.at += 2 if version >= 4 else 1
    base, span, first = r.take("b"), r.take("B"), r.take("B")
    lengths = [r.take("B") for _ in range(first - 1)]
    out += r.data[begin:program]
    r.at = program
    added = {at: offset for at, (_, offset) in starts.items()}
    while r.at < len(r.data):
        start = r.at
        rows, end, operand = sequence(r, added, (base, span, first, least), lengths)
        section, begins = starts.get(operand, ("", 0))
        order = orders.get(section)
        if order is None or list(order) == sorted(order):
            shifted.update((at, at - start + len(out)) for at in starts if start <= at < r.at)
            out += r.data[start : r.at]
            continue
        shifted[operand] = len(out) + 3
        out += bytes([0, ADDRESS_BYTES + 1, SET_ADDRESS]) + r.data[operand : operand + ADDRESS_BYTES]
        out += _program(_permuted(rows, end, order), begins, end, least)


def _permuted(rows: Sequence[Row], end: int, order: Sequence[int]) -> list[Row]:
    """A row for each instruction, where it stands now."""
    told: dict[int, tuple[int, int]] = {}
    for (address, file, line), (after, _, _) in zip(rows, [*rows[1:], (end, 0, 0)]):
        for n in range(address // WORD_BYTES, after // WORD_BYTES):
            told[n] = file, line
    return [(WORD_BYTES * place, *told[n]) for place, n in enumerate(order) if n in told]


def _program(rows: Sequence[Row], here: int, end: int, least: int) -> bytes:
    """The operations of a sequence that begins at address ``here``."""
    out = bytearray()
    known: tuple[int, int] | None = None
    for address, file, line in rows:
        if (file, line) != known:
            out += bytes([ADVANCE_PC]) + leb((address - here) // least) + bytes([SET_FILE]) + leb(file)
            out += bytes([ADVANCE_LINE]) + _signed(line - (known[1] if known else 1)) + bytes([COPY])
            here, known = address, (file, line)
    return bytes(out) + bytes([ADVANCE_PC]) + leb((end - here) // least) + bytes([0, 1, END_SEQUENCE])


def _signed(number: int) -> bytes:
    """A signed number of variable length."""
    out = bytearray()
    while not -0x40 <= number < 0x40:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number & 0x7F])
