"""The structures of an ELF64 file as NVIDIA's tools write it, and nothing more: no meaning, no layout.

``Elf.from_bytes(data).to_bytes() == data`` for every file that parses. Section contents are views of the bytes
read, so that a large file is not copied. Every count, offset and size is checked against the file before use.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import astuple, dataclass, field
from typing import Any

from turingas.cubin import kinds
from turingas.cubin.kinds import EM_CUDA
from turingas.errors import CubinError

Bytes = bytes | bytearray | memoryview

HEADER = struct.Struct("<4s5B7sHHIQQQIHHHHHH")
SECTION = struct.Struct("<IIQQQQIIQQ")
SEGMENT = struct.Struct("<IIQQQQQQ")
SYMBOL = struct.Struct("<IBBHQQ")
REL = struct.Struct("<QQ")
RELA = struct.Struct("<QQq")

SHT_NULL, SHT_PROGBITS, SHT_SYMTAB, SHT_STRTAB, SHT_RELA, SHT_NOTE, SHT_NOBITS, SHT_REL = 0, 1, 2, 3, 4, 7, 8, 9
SHT_SYMTAB_SHNDX = 18
SHT_CUDA_COMPAT = 0x70000086
#: a capsule's names for what stands in the file anyway: type -> how the other section's name begins
CAPSULE_TWINS = {0x7000007C: ".nv.constant", 0x7000007D: ".nv.constant", 0x70000008: ".nv.global.init"}
SHT_CAPSULE_CODE, SHT_CAPSULE_SYMBOLS = 0x70000016, 0x70000085  # sh_info: a symbol; the first global one
SHF_CAPSULE = 0x10000000  # what ptxas keeps of the code before its last step, from sm_100 on (docs/cubin.md)
SHT_CUDA_INFO, SHT_CUDA_CALLGRAPH, SHT_CUDA_RELOCINFO = 0x70000000, 0x70000001, 0x7000000B
SHT_CUDA_GLOBAL, SHT_CUDA_LOCAL, SHT_CUDA_SHARED = 0x70000007, 0x70000009, 0x7000000A  # in relocatable files
SHT_CUDA_RESERVED_SHARED = 0x70000015
NO_CONTENTS = {SHT_NOBITS, SHT_CUDA_GLOBAL, SHT_CUDA_LOCAL, SHT_CUDA_SHARED, SHT_CUDA_RESERVED_SHARED}  # only a size
SHN_UNDEF, SHN_LORESERVE, SHN_ABS, SHN_XINDEX = 0, 0xFF00, 0xFFF1, 0xFFFF
SHF_WRITE, SHF_ALLOC, SHF_EXECINSTR, SHF_INFO_LINK = 1, 2, 4, 0x40
STB_LOCAL, STB_GLOBAL, STB_WEAK = 0, 1, 2
STT_NOTYPE, STT_OBJECT, STT_FUNC, STT_SECTION = 0, 1, 2, 3
STT_CUDA_OBJECT = 13  # a variable in a relocatable file
PT_LOAD, PT_PHDR = 1, 6


@dataclass
class Section:
    """One section: its header's fields (``name_at`` is sh_name) and its contents (empty where there is only a size)."""

    name: str
    type: int
    flags: int = 0
    address: int = 0
    offset: int = 0
    size: int = 0
    link: int = 0
    info: int = 0
    align: int = 1
    entry_size: int = 0
    data: Bytes = b""
    name_at: int = 0


@dataclass(slots=True)
class Symbol:
    """One row of the symbol table. ``section`` is an index, or one of the SHN_ numbers."""

    name: str
    value: int = 0
    size: int = 0
    type: int = STT_NOTYPE
    bind: int = STB_LOCAL
    other: int = 0
    section: int = SHN_UNDEF
    name_at: int = 0


@dataclass(slots=True)
class Relocation:
    """One row of a REL (``addend`` is None) or RELA section. ``symbol`` is an index."""

    offset: int
    type: int
    symbol: int
    addend: int | None = None


@dataclass
class Segment:
    """One program header."""

    type: int
    flags: int
    offset: int
    address: int
    physical: int
    file_size: int
    memory_size: int
    align: int


class Strings:
    """A string table being read: each offset is decoded once, and the total is bounded."""

    def __init__(self, data: Bytes, place: int) -> None:
        self.data = bytes(data)
        self.place = place
        self.seen: dict[int, str] = {}
        self.budget = 4 * len(self.data) + 1024

    def __getitem__(self, at: int) -> str:
        text = self.seen.get(at)
        if text is None:
            end = self.data.find(b"\0", at) if at < len(self.data) else -1
            if end < 0:
                raise CubinError(f"the name at 0x{at:x} of the string table has no end", self.place)
            self.budget -= end - at
            if self.budget < 0:
                raise CubinError("the names of the string table overlap", self.place)
            text = self.seen[at] = self.data[at:end].decode("utf-8", "surrogateescape")
        return text


@dataclass
class Elf:
    """A whole file. ``rest`` holds what no header accounts for (offset, bytes): padding that is not zero."""

    abi: int = 0x33
    abi_version: int = 7
    type: int = 2
    machine: int = EM_CUDA
    version: int = 129
    entry: int = 0
    flags: int = 0
    segment_at: int = 0
    section_at: int = 0
    sections: list[Section] = field(default_factory=list)
    segments: list[Segment] = field(default_factory=list)
    names_section: int = 1
    size: int = 0
    rest: list[tuple[int, bytes]] = field(default_factory=list)
    header: tuple[int, ...] = (2, 1, 1)  # class, byte order, version of the identification
    sizes: tuple[int, ...] = (64, 56, 64)  # of the file header, a program header, a section header
    padding: bytes = bytes(7)  # the end of the identification
    wide_count: bool = False  # the number of sections is in section 0
    wide_names: bool = False  # the number of the section of names is there too

    # -- reading

    @classmethod
    def from_bytes(cls, source: Bytes) -> Elf:
        """Parse ``source``; CubinError says what is wrong with it and where."""
        data = memoryview(source).cast("B").toreadonly()
        what, hint = kinds.other(data)
        if what:
            at = 18 if data[0] == 0x7F else 0  # where ELF says the machine
            raise CubinError(f"this is not a cubin but {what}" + (f"; {hint}" if hint else ""), at)
        if len(data) < HEADER.size:
            raise CubinError(f"{len(data)} bytes are too few for an ELF header", 0)
        (magic, klass, order, ident, abi, abi_version, padding, kind, machine, version, entry, phoff, shoff, flags,
         ehsize, phentsize, phnum, shentsize, shnum, shstrndx) = HEADER.unpack_from(data)  # fmt: skip
        if magic != b"\x7fELF":
            raise CubinError("this is not an ELF file", 0)
        if (klass, order) != (2, 1):
            raise CubinError("this is not a little-endian 64-bit ELF file", 4)
        if ehsize != HEADER.size:
            raise CubinError(f"the ELF header says it has {ehsize} bytes, not {HEADER.size}", 52)
        elf = cls(abi, abi_version, kind, machine, version, entry, flags, phoff, shoff, size=len(data))
        elf.header = (klass, order, ident)
        elf.padding = padding
        elf.wide_count = bool(shoff) and not shnum
        elf.wide_names = bool(shoff) and shstrndx == SHN_XINDEX
        elf.sizes = (ehsize, phentsize, shentsize)
        if elf.wide_count:  # more sections than 16 bits count: section 0 has the number
            _inside(data, shoff, SECTION.size, "section header 0", 40)
            shnum = SECTION.unpack_from(data, shoff)[5]
        if elf.wide_names:
            _inside(data, shoff, SECTION.size, "section header 0", 40)
            shstrndx = SECTION.unpack_from(data, shoff)[6]
        elf.names_section = shstrndx
        if phnum:
            if phentsize != SEGMENT.size:
                raise CubinError(f"a program header has {phentsize} bytes, not {SEGMENT.size}", 54)
            _inside(data, phoff, phnum * SEGMENT.size, "program headers", 32)
            elf.segments = [Segment(*row) for row in _rows(SEGMENT, data, phoff, phnum)]
        if shnum and shoff:
            if shentsize != SECTION.size:
                raise CubinError(f"a section header has {shentsize} bytes, not {SECTION.size}", 58)
            _inside(data, shoff, shnum * SECTION.size, "section headers", 40)
            used = 0
            for index, row in enumerate(_rows(SECTION, data, shoff, shnum)):
                elf.sections.append(_section(data, row, index, shoff + index * SECTION.size))
                used += len(elf.sections[-1].data)
            if used > 2 * len(data):
                raise CubinError("the sections overlap", shoff)
            elf._name_sections()
        elf._keep_rest(data)
        return elf

    def _name_sections(self) -> None:
        if self.names_section >= len(self.sections):
            raise CubinError(f"section {self.names_section} should hold the names, but does not exist", 62)
        holder = self.sections[self.names_section]
        names = Strings(holder.data, holder.offset)
        for section in self.sections:
            if section.type != SHT_NULL:
                section.name = names[section.name_at]

    def _keep_rest(self, data: memoryview) -> None:
        """Note the bytes that are not zero and in no part of the file."""
        at = 0
        for start, end in [*sorted(self._parts()), (len(data), len(data))]:
            if start > at:
                gap = bytes(data[at:start])
                if gap.count(0) != len(gap):
                    self.rest.append((at, gap))
            at = max(at, end)

    def _parts(self) -> Iterator[tuple[int, int]]:
        yield 0, HEADER.size
        yield self.segment_at, self.segment_at + len(self.segments) * SEGMENT.size
        yield self.section_at, self.section_at + len(self.sections) * SECTION.size
        for section in self.sections:
            yield section.offset, section.offset + len(section.data)

    # -- writing

    def to_bytes(self) -> bytes:
        """The file, everything at the offset that it says it has."""
        out = bytearray(max([self.size] + [end for _, end in self._parts()]))
        for at, gap in self.rest:
            out[at : at + len(gap)] = gap
        for section in self.sections:
            out[section.offset : section.offset + len(section.data)] = section.data
        HEADER.pack_into(
            out, 0, b"\x7fELF", *self.header, self.abi, self.abi_version, self.padding, self.type, self.machine,
            self.version, self.entry, self.segment_at, self.section_at, self.flags, self.sizes[0], self.sizes[1],
            len(self.segments), self.sizes[2], 0 if self.wide_count else len(self.sections),
            SHN_XINDEX if self.wide_names else self.names_section,
        )  # fmt: skip
        for at, segment in enumerate(self.segments):
            SEGMENT.pack_into(out, self.segment_at + at * SEGMENT.size, *astuple(segment))
        for at, s in enumerate(self.sections):
            row = (s.name_at, s.type, s.flags, s.address, s.offset, s.size, s.link, s.info, s.align, s.entry_size)
            SECTION.pack_into(out, self.section_at + at * SECTION.size, *row)
        return bytes(out)

    # -- tables inside sections

    def section(self, name: str) -> Section | None:
        """The first section called ``name``."""
        return next((s for s in self.sections if s.name == name), None)

    def symbols(self) -> list[Symbol]:
        """The rows of the (first) symbol table, the empty row 0 too."""
        table = next((s for s in self.sections if s.type == SHT_SYMTAB), None)
        if table is None:
            return []
        if not 0 < table.link < len(self.sections):
            raise CubinError(f"the symbol table's names are in section {table.link}, which is not there", table.offset)
        strings = self.sections[table.link]
        names = Strings(strings.data, strings.offset)
        wide = next((s for s in self.sections if s.type == SHT_SYMTAB_SHNDX), None)
        result = []
        for index, row in enumerate(_rows(SYMBOL, table.data, 0, len(table.data) // SYMBOL.size)):
            name_at, info, other, section, value, size = row
            if section == SHN_XINDEX and wide and 4 * index + 4 <= len(wide.data):
                section = struct.unpack_from("<I", wide.data, 4 * index)[0]
            name = names[name_at] if name_at else ""
            result.append(Symbol(name, value, size, info & 15, info >> 4, other, section, name_at))
        return result


def relocations(section: Section) -> list[Relocation]:
    """The rows of a REL or RELA section."""
    if section.type == SHT_RELA:
        rows = _rows(RELA, section.data, 0, len(section.data) // RELA.size)
        return [Relocation(at, info & 0xFFFFFFFF, info >> 32, addend) for at, info, addend in rows]
    rows = _rows(REL, section.data, 0, len(section.data) // REL.size)
    return [Relocation(at, info & 0xFFFFFFFF, info >> 32) for at, info in rows]


def pack_relocations(rows: list[Relocation], addends: bool) -> bytes:
    """The contents of a REL or (``addends``) RELA section."""
    if addends:
        return b"".join(RELA.pack(r.offset, r.symbol << 32 | r.type, r.addend or 0) for r in rows)
    return b"".join(REL.pack(r.offset, r.symbol << 32 | r.type) for r in rows)


def _inside(data: memoryview, at: int, size: int, what: str, field_at: int) -> None:
    if at + size > len(data):
        ends = f"the file ends at 0x{len(data):x}"
        raise CubinError(f"{what} at 0x{at:x} to 0x{at + size:x} are out of range: {ends}", field_at)


def _rows(layout: struct.Struct, data: Bytes, at: int, count: int) -> Iterator[Any]:
    return layout.iter_unpack(memoryview(data)[at : at + count * layout.size])


def _section(data: memoryview, row: tuple[int, ...], index: int, at: int) -> Section:
    name_at, kind, flags, address, offset, size, link, info, align, entry_size = row
    section = Section("", kind, flags, address, offset, size, link, info, align, entry_size, b"", name_at)
    if kind != SHT_NULL and kind not in NO_CONTENTS:
        _inside(data, offset, size, f"the contents of section {index}", at + 24)
        section.data = data[offset : offset + size]
    return section

