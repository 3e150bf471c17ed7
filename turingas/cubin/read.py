"""From an ELF file to its parts: sections and symbols by name, and what they say of each kernel."""

from __future__ import annotations

from collections import Counter

from turingas.cubin import elf as e
from turingas.cubin import notes, nvinfo
from turingas.cubin.elf import Elf, Section, Symbol
from turingas.cubin.lines import read_lines
from turingas.cubin.model import Code, CodeRelocation, Header, Kernel, Param, Parts, RawSection, RawSymbol
from turingas.cubin.nvinfo import Info
from turingas.errors import CubinError
from turingas.isa.arch import ARCHS, WORD_BYTES

ET_EXEC = 2
STO_ENTRY = 0x10  # st_other of what the host can launch
BARRIERS_SHIFT, BARRIERS_MASK = 20, 0x7F  # in the flags of a section of code
INFO_IS_NUMBER = (e.SHT_SYMTAB, e.SHT_CAPSULE_CODE, e.SHT_CAPSULE_SYMBOLS)  # sh_info says no section
MOST_PARAMS = 1 << 16  # bytes: constant banks are not larger


def read(source: bytes) -> Parts:
    """The cubin in ``source``; CubinError when there is none."""
    elf = Elf.from_bytes(source)
    header = Header(elf.version, elf.flags, elf.type, elf.abi, elf.abi_version, program_headers(elf))
    cubin = Parts(architecture(elf), header=header, source=bytes(source), elf=elf)
    symbols = elf.symbols()
    names = [symbol.name for symbol in symbols]
    keys = section_keys(elf)
    functions = {(s.section, s.name): at for at, s in enumerate(symbols) if s.type == e.STT_FUNC}
    by_symbol: dict[int, list[Info]] = {}
    of_section: dict[int, list[Info]] = {}
    relocated: dict[int, list[Section]] = {}
    shared: dict[int, Section] = {}
    banks: dict[int, dict[int, Section]] = {}
    for section in elf.sections:
        if section.type == e.SHT_CUDA_INFO:
            infos = nvinfo.parse(section.data, section.offset)
            if section.name != ".nv.info":
                of_section.setdefault(section.info, []).extend(infos)
            else:
                for info in infos:
                    if nvinfo.KINDS.get(info.code) == nvinfo.SYMBOL_NUMBER and info.words:
                        by_symbol.setdefault(info.words[0], []).append(info)
        elif section.type in (e.SHT_REL, e.SHT_RELA):
            relocated.setdefault(section.info, []).append(section)
        elif section.name.startswith(".nv.shared."):
            shared.setdefault(section.info, section)
        elif bank_of(section) is not None and section.info:
            banks.setdefault(section.info, {}).setdefault(bank_of(section) or 0, section)
    lines = read_lines(elf)
    for index, section in enumerate(elf.sections):
        if index == 0 or not is_code(section):
            continue
        at = function_symbol(section, index, symbols, functions)
        symbol = symbols[at] if at else None
        kernel = _kernel(cubin, section, symbol)
        if keys[index] != kernel.section:
            kernel.own_section = keys[index]
        kernel.link = keys[section.link] if 0 < section.link < len(keys) else section.link
        kernel.entry_size, kernel.address = section.entry_size, section.address
        kernel.attributes = of_section.get(index, []) + by_symbol.get(at, [])
        kernel.lines = lines.get(index, [])
        _attributes(kernel, section)
        if index in shared:
            kernel.shared_bytes, kernel.shared_align = shared[index].size, shared[index].align
        for bank, holder in banks.get(index, {}).items():
            if bank:
                kernel.constants[bank] = holder.data
        for table in relocated.get(index, []):
            for row in e.relocations(table):
                name = names[row.symbol] if row.symbol < len(names) else f"@{row.symbol}"
                kernel.relocations.append(CodeRelocation(row.offset, row.type, name, row.addend))
        kernel.relocations.sort(key=lambda row: (row.address, row.addend is None))
        cubin.texts.append(kernel)
    note = elf.section(notes.SECTION)
    if note is not None:
        notes.apply(note.data, cubin.texts)
    return cubin


def program_headers(elf: Elf) -> int:
    """Header.segments of a file. cuFFT's, of sm_70 to sm_89, have none, or do not load them."""
    if elf.type != ET_EXEC or any(row.type == e.PT_LOAD and row.offset == elf.segment_at for row in elf.segments):
        return Header.segments
    return int(bool(elf.segments))


def architecture(elf: Elf) -> str:
    """The architecture's name, "sm_90a" for instance."""
    accelerated = bool(elf.flags & 0x800)
    sm = elf.flags & 0xFF
    if elf.abi_version >= 8:
        sm = elf.flags >> 8 & 0xFF
        compat = next((s for s in elf.sections if s.type == e.SHT_CUDA_COMPAT), None)
        infos = nvinfo.parse(compat.data, compat.offset) if compat else []
        accelerated = any(info.code == 9 and info.value == 1 for info in infos)
    name = f"sm_{sm}{'a' if accelerated else ''}"
    if name not in ARCHS:
        raise CubinError(f"unknown architecture {name}; known: {', '.join(ARCHS)}", 48)
    return name


def is_code(section: Section) -> bool:
    """Whether a section holds instructions."""
    return section.type == e.SHT_PROGBITS and bool(section.flags & e.SHF_EXECINSTR)


def bank_of(section: Section | RawSection) -> int | None:
    """The constant bank whose contents a section holds."""
    if not section.name.startswith(".nv.constant"):
        return None
    digits = section.name[len(".nv.constant") :].split(".")[0]
    return int(digits) if digits.isdigit() and len(digits) < 3 else None


def function_symbol(section: Section, index: int, symbols: list[Symbol], functions: dict[tuple[int, str], int]) -> int:
    """The number of the symbol of the function that a section of code holds: sh_info says it, or else its name."""
    at = section.info & 0xFFFFFF
    if at < len(symbols) and symbols[at].section == index and symbols[at].type == e.STT_FUNC:
        return at
    return functions.get((index, section.name.removeprefix(".text.")), 0)


def _kernel(cubin: Parts, section: Section, symbol: Symbol | None) -> Kernel:
    if section.size % WORD_BYTES:
        raise CubinError(f"the {section.size} bytes of code are not a whole number of instructions", section.offset)
    kernel = Kernel(section.name.removeprefix(".text."), cubin.arch, Code(section.data))
    kernel.entry = bool(symbol and symbol.other & STO_ENTRY)
    kernel.bind = symbol.bind if symbol else e.STB_LOCAL
    kernel.symbol = symbol.name if symbol and symbol.name != kernel.name else ""
    kernel.align = section.align
    kernel.barriers = section.flags >> BARRIERS_SHIFT & BARRIERS_MASK
    kernel.flags = section.flags & ~(BARRIERS_MASK << BARRIERS_SHIFT)
    return kernel


def _attributes(kernel: Kernel, section: Section) -> None:
    """Take over what .nv.info says of the kernel."""
    kernel.stack_bytes = None
    kernel.registers = section.info >> 24
    for info in kernel.attributes:
        name, words = info.name, info.words
        if name == "REGCOUNT" and len(words) > 1:
            kernel.registers = words[1]
        elif name == "FRAME_SIZE" and len(words) > 1:
            kernel.frame_bytes = words[1]
        elif name == "MIN_STACK_SIZE" and len(words) > 1:
            kernel.stack_bytes = words[1]
        elif name == "MAX_STACK_SIZE" and len(words) > 1:
            kernel.max_stack_bytes = words[1]
        elif name == "NUM_BARRIERS" and isinstance(info.value, int):
            kernel.barriers = info.value & 0xFF
        elif name == "KPARAM_INFO" and len(words) > 2:
            kernel.params.append(Param(words[1] >> 16, words[2] >> 18))
        elif name == "KPARAM_INFO_V2" and len(words) > 2:
            # above it: alignment (bits 16 to 23) and memory (24 to 27) of what a pointer with an attribute points to
            kernel.params.append(Param(words[1] >> 16, words[2] & 0xFFFF))
    kernel.params.sort(key=lambda param: param.offset)
    if kernel.param_bytes > MOST_PARAMS:
        raise CubinError(f"{kernel.name} has {kernel.param_bytes} bytes of parameters", section.offset)


# -- by name: what the sections and symbols are, without a number that depends on their order


def section_keys(elf: Elf) -> list[str]:
    """A name for each section that no other one has: the second ``x`` is ``x\\0002`` (NUL, 2)."""
    seen: Counter[str] = Counter()
    keys = []
    for section in elf.sections:
        seen[section.name] += 1
        keys.append(section.name if seen[section.name] == 1 else f"{section.name}\0{seen[section.name]}")
    return keys


def describe(elf: Elf) -> tuple[list[RawSection], list[RawSymbol]]:
    """All sections but the empty first one, and all symbols but the empty first one."""
    keys = section_keys(elf)

    def key(index: int) -> str | int:
        return keys[index] if 0 < index < len(keys) else index

    sections = []
    for name, section in zip(keys[1:], elf.sections[1:], strict=True):
        by_name = section.info and section.type not in INFO_IS_NUMBER and not section.flags & e.SHF_EXECINSTR
        size = section.size if section.type in e.NO_CONTENTS else 0
        info = key(section.info) if by_name else section.info
        sections.append(
            RawSection(name, section.type, section.flags, section.align, section.entry_size, key(section.link), info,
                       section.data, size, section.address)
        )  # fmt: skip
    symbols = []
    for symbol in elf.symbols()[1:]:
        place = key(symbol.section) if symbol.section else ""
        symbols.append(
            RawSymbol(symbol.name, place, symbol.value, symbol.size, symbol.type, symbol.bind, symbol.other)
        )
    return sections, symbols
