"""The structures of a file: everything comes back byte for byte, and nothing is believed unchecked."""

from __future__ import annotations

import struct

import pytest

from tests.cubin import cubins
from turingas.cubin import elf
from turingas.cubin.elf import Elf
from turingas.errors import CubinError


@pytest.mark.parametrize("path", cubins.STORED, ids=lambda path: path.stem)
def test_comes_back_byte_for_byte(path):
    data = path.read_bytes()
    assert Elf.from_bytes(data).to_bytes() == data


def test_bytes_that_nothing_accounts_for_come_back():
    data = cubins.named("plain_cuda12_sm75")
    odd = data[:9] + b"\1\2\3\4\5\6\7" + data[16:] + b"and more"
    read = Elf.from_bytes(odd)
    assert read.rest and read.to_bytes() == odd


def test_sections_symbols_and_relocations():
    read = Elf.from_bytes(cubins.named("plain_cuda12_sm75"))
    assert [s.name for s in read.sections[:4]] == ["", ".shstrtab", ".strtab", ".symtab"]
    assert read.section(".text.reverse").size % 128 == 0
    assert read.section(".no.such") is None
    functions = {s.name: s.size for s in read.symbols() if s.type == elf.STT_FUNC}
    assert functions == {k: read.section(".text." + k).size for k in ("reverse", "fill", "empty")}
    table = read.section(".rel.debug_frame")
    rows = elf.relocations(table)
    assert len(rows) == 3 and elf.pack_relocations(rows, addends=False) == table.data


def header(sections_at: int, count: int, names: int) -> bytes:
    """The header of a file of sm_75 with these sections."""
    ident = (b"\x7fELF", 2, 1, 1, 0x33, 7, bytes(7))
    return elf.HEADER.pack(*ident, 2, 190, 129, 0, 0, sections_at, 0x4B054B, 64, 56, 0, 64, count, names)


def test_more_sections_than_16_bits_count():
    count = 70000
    names = b"\0.shstrtab\0"
    first = elf.SECTION.pack(0, 0, 0, 0, 0, count, 1, 0, 0, 0)
    second = elf.SECTION.pack(1, 3, 0, 0, 64, len(names), 0, 0, 1, 0)
    rest = elf.SECTION.pack(0, 8, 0, 0, 64, 0, 0, 0, 1, 0) * (count - 2)
    at = 64 + len(names)
    head = header(at, 0, 0xFFFF)
    data = head + names + first + second + rest
    read = Elf.from_bytes(data)
    assert len(read.sections) == count and read.names_section == 1
    assert read.to_bytes() == data


def field(at: int, layout: str, value: int) -> bytes:
    data = bytearray(cubins.named("plain_cuda12_sm75"))
    struct.pack_into(layout, data, at, value)
    return bytes(data)


SECTION_HEADERS = struct.unpack_from("<Q", cubins.named("plain_cuda12_sm75"), 40)[0]

BROKEN = {
    "empty": (b"", 0, "too few"),
    "no ELF": (b"MZ" + bytes(100), 0, "not an ELF"),
    "32 bits": (field(4, "<B", 1), 4, "64-bit"),
    "machine": (field(18, "<H", 62), 18, "not CUDA"),
    "header size": (field(52, "<H", 52), 52, "52 bytes"),
    "section header size": (field(58, "<H", 40), 58, "40 bytes"),
    "sections beyond": (field(40, "<Q", 1 << 60), 40, "out of range: the file ends"),
    "segments beyond": (field(32, "<Q", 1 << 60), 32, "out of range: the file ends"),
    "too many sections": (field(60, "<H", 65000), 40, "out of range: the file ends"),
    "names nowhere": (field(62, "<H", 999), 62, "section 999"),
    "contents beyond": (field(SECTION_HEADERS + 64 + 32, "<Q", 1 << 40), SECTION_HEADERS + 64 + 24, "section 1"),
    "name beyond": (field(SECTION_HEADERS + 64, "<I", 1 << 30), 64, "0x40000000"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_files(name):
    data, offset, text = BROKEN[name]
    with pytest.raises(CubinError, match=text) as caught:
        Elf.from_bytes(data)
    assert caught.value.offset == offset


def test_overlapping_sections_are_refused():
    names = b"\0.shstrtab\0" + bytes(4000)
    section = elf.SECTION.pack(1, 3, 0, 0, 64, len(names), 0, 0, 1, 0)
    with pytest.raises(CubinError, match="overlap"):
        Elf.from_bytes(header(64 + len(names), 400, 1) + names + bytes(64) + section * 399)
