"""From the parts of a cubin to the bytes of a file, laid out and filled in as ptxas 12.9 does.

``derive`` makes the sections and symbols that follow from the kernels alone; what the cubin names besides replaces
or joins them; ``link`` numbers everything, and ``layout`` gives it its place in the file.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import replace

from turingas.cubin import elf as e
from turingas.cubin import notes, nvinfo
from turingas.cubin.elf import Elf, Relocation, Section, Segment, Symbol
from turingas.cubin.model import CodeRelocation, Header, Kernel, Parts, RawSection, RawSymbol
from turingas.cubin.nvinfo import BVAL, CODES, HVAL, NVAL, SVAL, Info, sval
from turingas.cubin.read import BARRIERS_SHIFT, STO_ENTRY, bank_of
from turingas.errors import AsmError, CubinError
from turingas.isa.arch import CUDA_13_0, WORD_BYTES, Arch, arch
from turingas.isa.instruction import Mem, instruction
from turingas.isa.isa import instruction_set
from turingas.isa.table import OPS
from turingas.version import __version__

NOBITS_FLAGS = e.SHF_WRITE | e.SHF_ALLOC | e.SHF_INFO_LINK
CONSTANT_FLAGS = e.SHF_ALLOC | e.SHF_INFO_LINK
SHT_CUDA_CONSTANT = 0x70000064  # and the number of the bank, in relocatable files
UNNAMED_5F = 0x5F  # an attribute that cuobjdump has no name for
AS_LONG_AS_CODE = -1  # size of a symbol
LARGEST_ALIGN = 1 << 16
USER_BANK = 3  # constant bank of __constant__ variables
RESERVED_SHARED = ".nv.shared.reserved.0"
TKINFO, CUINFO = ".note.nv.tkinfo", ".note.nv.cuinfo"  # notes: what made the file; for which architecture and CUDA
CALLGRAPH = struct.pack("<8I", 0, 0xFFFFFFFF, 0, 0xFFFFFFFE, 0, 0xFFFFFFFD, 0, 0xFFFFFFFC)  # nothing calls anything
SPECIAL = tuple(base for base, op in OPS.items() if "special" in op.traits)  # read special registers
#: what SYNCS with these modifiers does with an mbarrier, in MBARRIER_INSTR_OFFSETS (read off what ptxas 12.9 makes of
#: PTX; a test of a phase by its state is 5, or 9, which instructions do not tell apart from one by its parity)
MBARRIER_USES = tuple((frozenset(mods.split()), use) for mods, use in (
    ("EXCH", 0), ("ARRIVE OPTOUT", 3), ("ARRIVE TMASK", 2), ("ARRIVE A0TR", 11), ("ARRIVE A0TX", 12),
    ("ARRIVE A1T0", 1), ("ARRIVE ART0", 1), ("PHASECHK TRYWAIT", 10), ("PHASECHK", 6),
))  # fmt: skip
REL_ACTION = bytes.fromhex("73000000000000000000001125000536")  # as in every cubin of CUDA 12 before sm_90



def _codes(names: str) -> list[int]:
    return [CODES[name] if name in CODES else int(name, 16) for name in names.split()]


# The attributes of a kernel stand in this order, before sm_90 and since.
ORDER_OLD = _codes(
    """LANGUAGE SW_WAR CUDA_API_VERSION SW2861232_WAR PARAM_CBANK CBANK_PARAM_SIZE KPARAM_INFO KPARAM_INFO_V2
    MAXREG_COUNT EXTERNS UNUSED_LOAD_BYTE_OFFSET NUM_BARRIERS ANNOTATIONS 0x5f INT_WARP_WIDE_INSTR_OFFSETS
    COOP_GROUP_MASK_REGIDS COOP_GROUP_INSTR_OFFSETS
    SYSCALL_OFFSETS EXIT_INSTR_OFFSETS CTAIDZ_USED REQNTID MAX_THREADS CRS_STACK_SIZE INDIRECT_BRANCH_TARGETS"""
)
ORDER_NEW = _codes(
    """LANGUAGE CUDA_API_VERSION KPARAM_INFO KPARAM_INFO_V2 EXPLICIT_CLUSTER CTA_PER_CLUSTER SPARSE_MMA_MASK
    MAXREG_COUNT EXTERNS UNUSED_LOAD_BYTE_OFFSET NUM_BARRIERS ANNOTATIONS 0x5f INT_WARP_WIDE_INSTR_OFFSETS
    COOP_GROUP_MASK_REGIDS COOP_GROUP_INSTR_OFFSETS VRC_CTA_INIT_COUNT
    SYSCALL_OFFSETS MBARRIER_INSTR_OFFSETS NUM_MBARRIERS
    EXIT_INSTR_OFFSETS CTAIDZ_USED REQNTID MAX_THREADS CRS_STACK_SIZE INDIRECT_BRANCH_TARGETS
    CBANK_PARAM_SIZE PARAM_CBANK SW_WAR NVSAL_SW_WAR PREEXIT_USED"""
)


def build(cubin: Parts) -> Elf:
    """The whole file as structures, everything in its place."""
    sections, symbols = combine(cubin)
    elf = link(cubin, sections, symbols)
    fill_tables(elf, symbols, {raw.name: at for at, raw in enumerate(sections)})
    layout(elf, newer_order(cubin.arch, sections), cubin.header.segments)
    return elf


# -- what follows from the kernels


def derive(cubin: Parts) -> list[RawSection]:
    """The sections that a cubin with these kernels and constants has, without the contents of tables."""
    facts = arch(cubin.arch)
    executable, modern = cubin.header.type == 2, facts.newer_elf
    sections = [RawSection(".nv.info", e.SHT_CUDA_INFO, align=4, link=".symtab")]
    if facts.abi != Header.abi:
        sections.append(RawSection(TKINFO, e.SHT_NOTE, 0x2000000, 4, data=_toolkit()))
        sections.append(RawSection(CUINFO, e.SHT_NOTE, 0x1000000 | e.SHF_INFO_LINK, 4, 0, TKINFO, ".nv.compat",
                                   _note(1000, struct.pack("<HHI", 2, *facts.chip_and_cuda))))  # fmt: skip
        sections.append(RawSection(".nv.compat", e.SHT_CUDA_COMPAT, align=4, data=compatibility(facts)))
    if types := notes.pack(cubin.texts):
        sections.append(RawSection(notes.SECTION, e.SHT_NOTE, align=4, data=types))
    for kernel in cubin.texts:
        text = kernel.section
        sections.append(
            RawSection(".nv.info." + kernel.name, e.SHT_CUDA_INFO, e.SHF_INFO_LINK, 4, 0, ".symtab", text)
        )
        for addends in (True, False):
            if any((row.addend is not None) == addends for row in kernel.relocations):
                sections.append(_relocation_section(text, addends))
        for bank, data in kernel.constants.items():
            name = f".nv.constant{bank}.{kernel.name}"
            kind = e.SHT_PROGBITS if executable else SHT_CUDA_CONSTANT + bank
            sections.append(RawSection(name, kind, CONSTANT_FLAGS, 4, info=text, data=data))
        if kernel.entry:
            zeros = bytes(facts.params_at(kernel.param_bytes) + kernel.param_bytes)
            kind = e.SHT_PROGBITS if executable else SHT_CUDA_CONSTANT
            sections.append(RawSection(".nv.constant0." + kernel.name, kind, CONSTANT_FLAGS, 4, info=text, data=zeros))
        flags = kernel.flags | (kernel.barriers << BARRIERS_SHIFT if cubin.header.abi_version < 8 else 0)
        sections.append(RawSection(text, e.SHT_PROGBITS, flags, kernel.align, kernel.entry_size, kernel.link, 0,
                                   kernel.code.data, address=kernel.address))  # fmt: skip
        if kernel.shared_bytes:
            kind = e.SHT_NOBITS if executable else e.SHT_CUDA_SHARED
            sections.append(
                RawSection(".nv.shared." + kernel.name, kind, NOBITS_FLAGS, kernel.shared_align, info=text,
                           size=kernel.shared_bytes)
            )  # fmt: skip
    sections.append(RawSection(".nv.callgraph", e.SHT_CUDA_CALLGRAPH, 0, 4, 8, ".symtab", data=CALLGRAPH))
    if executable and not modern:
        sections.append(RawSection(".nv.rel.action", e.SHT_CUDA_RELOCINFO, 0, 8, 8, data=REL_ACTION))
    if executable and modern:
        sections.append(RawSection(RESERVED_SHARED, e.SHT_NOBITS, e.SHF_WRITE | e.SHF_ALLOC, size=facts.shared_kept))
    if cubin.constants:
        data = bytearray(max(c.offset + len(c.data) for c in cubin.constants))
        for constant in cubin.constants:
            data[constant.offset : constant.offset + len(constant.data)] = constant.data
        sections.append(RawSection(f".nv.constant{USER_BANK}", 1, e.SHF_ALLOC, 8, data=bytes(data)))
    return sections


def compatibility(facts: Arch) -> bytes:
    """.nv.compat, as ptxas 13.0's smallest cubins have it. 9: whether the code is for that chip alone; what the others
    mean is not known."""
    values = {9: int(facts.variant == "a"), 2: 1, 5: 5, 7: 0x101, 3: 0, 6: 1}
    infos = [Info(HVAL if code == 7 else BVAL, code, value) for code, value in values.items()]
    return nvinfo.pack([*infos, Info(SVAL, 11, facts.compat.to_bytes(8, "little"))])


def _note(kind: int, data: bytes) -> bytes:
    """An ELF note with NVIDIA's owner, as its tools look for it."""
    owner = b"NVIDIA Corp\0"
    return struct.pack("<III", len(owner), len(data), kind) + owner + data


def _toolkit() -> bytes:
    """What made the file: that it was not ptxas. Offsets of four texts (what, version, build, options) among those
    that follow, as ptxas 13.0 has them."""
    texts = [b"", b"TuringAs\0", f"release {__version__}\0".encode(), b"\0", b"\0"]
    at = [1 + sum(map(len, texts[:n])) for n in range(1, len(texts))]
    data = struct.pack("<6I", 2, 0, *at) + b"\0" + b"".join(texts)
    return _note(2000, data + bytes(-len(data) % 4))


def tables() -> list[RawSection]:
    """What every file starts with: the empty section, names and symbols."""
    return [
        RawSection("", e.SHT_NULL, align=0),
        RawSection(".shstrtab", e.SHT_STRTAB),
        RawSection(".strtab", e.SHT_STRTAB),
        RawSection(".symtab", e.SHT_SYMTAB, 0, 8, e.SYMBOL.size, ".strtab"),
    ]


def _relocation_section(text: str, addends: bool) -> RawSection:
    if addends:
        return RawSection(".rela" + text, e.SHT_RELA, e.SHF_INFO_LINK, 8, e.RELA.size, ".symtab", text)
    return RawSection(".rel" + text, e.SHT_REL, e.SHF_INFO_LINK, 8, e.REL.size, ".symtab", text)


def derive_symbols(cubin: Parts, present: set[str]) -> list[RawSymbol]:
    """The symbol table that ptxas would write for these kernels, when ``present`` are the sections."""
    modern = arch(cubin.arch).newer_elf
    rows: list[RawSymbol] = []
    last: list[RawSymbol] = []

    def mark(name: str) -> None:
        if name in present:
            rows.append(RawSymbol(name, name, type=e.STT_SECTION))

    for name in (TKINFO, CUINFO):
        mark(name)
    for kernel in cubin.texts:
        text = kernel.section
        other = STO_ENTRY if kernel.entry else 0
        row = RawSymbol(kernel.symbol or kernel.name, text, 0, len(kernel.code), e.STT_FUNC, kernel.bind, other)
        (last if kernel.bind == e.STB_GLOBAL else rows).append(row)
        mark(text)
        if kernel is cubin.texts[0]:
            if RESERVED_SHARED in present:
                kept = arch(cubin.arch).shared_kept
                rows.append(RawSymbol(".nv.reservedSmem.offset0", "", kept, 4, e.STT_OBJECT, e.STB_WEAK))
                alias = "__nv_reservedSMEM_offset_0_alias"
                rows.append(RawSymbol(alias, RESERVED_SHARED, kept, bind=e.STB_WEAK, other=0xA0))
            if cubin.constants:
                mark(f".nv.constant{USER_BANK}")
        if kernel.shared_bytes:
            mark(".nv.shared." + kernel.name)
        for bank in kernel.constants:
            mark(f".nv.constant{bank}.{kernel.name}")
        if not modern:
            mark(".nv.constant0." + kernel.name)
    for name in (".debug_frame", ".nv.callgraph", ".nv.prototype", ".nv.rel.action"):
        mark(name)
    for c in cubin.constants:
        place = f".nv.constant{USER_BANK}"
        rows.append(RawSymbol(c.name, place, c.offset, len(c.data), e.STT_OBJECT, e.STB_GLOBAL))
    rows += last
    if modern:
        for kernel in cubin.texts:
            mark(".nv.constant0." + kernel.name)
    return rows


def combine(cubin: Parts) -> tuple[list[RawSection], list[RawSymbol]]:
    """The derived sections and symbols, changed as the cubin says, in their final order."""
    sections = tables() + derive(cubin)
    place = {section.name: at for at, section in enumerate(sections)}
    for raw in cubin.sections:
        if raw.name in place:
            sections[place[raw.name]] = raw
        else:
            sections.append(raw)
    dropped = set(cubin.dropped) - {section.name for section in tables()}
    sections = [section for section in sections if section.name not in dropped]
    modern = newer_order(cubin.arch, sections)
    given = {name: at for at, name in enumerate(["", *cubin.order])} if cubin.order else {}
    sections.sort(key=lambda section: (given.get(section.name, len(given)), _rank(section, modern)))
    derived = derive_symbols(cubin, {section.name for section in sections})
    if cubin.symbols is None:
        return sections, derived
    have = {(row.name, row.section) for row in cubin.symbols}
    ends = {kernel.section: len(kernel.code) for kernel in cubin.texts}
    symbols = [
        replace(row, size=max(ends.get(str(row.section), 0) - row.value, 0)) if row.size == AS_LONG_AS_CODE else row
        for row in cubin.symbols
    ]
    symbols += [row for row in derived if (row.name, row.section) not in have and row.type == e.STT_FUNC]
    return sections, symbols


def newer_order(name: str, sections: list[RawSection]) -> bool:
    """Whether sections and program headers stand as ptxas places them since sm_90. The linker (nvlink, nvJitLink)
    keeps the older order there too; its files have a section .nv.rel.action, those of ptxas have none."""
    return arch(name).newer_elf and all(section.name != ".nv.rel.action" for section in sections)


def _rank(section: RawSection, modern: bool) -> int:
    """Where a section stands among the others."""
    bank = bank_of(section)
    tests: list[bool] = [
        section.type == e.SHT_NULL,
        section.type == e.SHT_STRTAB,
        section.type in (e.SHT_SYMTAB, e.SHT_SYMTAB_SHNDX),
        not section.flags & e.SHF_ALLOC and section.type == e.SHT_PROGBITS,
        not section.flags & e.SHF_ALLOC and section.type == e.SHT_NOTE,
        section.name == ".nv.info",
        section.type == e.SHT_CUDA_COMPAT,
        section.type == e.SHT_CUDA_INFO,
        section.type == e.SHT_CUDA_CALLGRAPH,
        section.name == ".nv.prototype",
        section.type == e.SHT_CUDA_RELOCINFO,
        section.type in (e.SHT_REL, e.SHT_RELA),
        bank is not None and not section.info,
        bank is not None and not (modern and bank == 0),
        bool(section.flags & e.SHF_EXECINSTR),
        bank is None and section.type not in e.NO_CONTENTS,
        section.type in e.NO_CONTENTS,
    ]
    if section.flags & e.SHF_CAPSULE:
        return len(tests) + 1
    return tests.index(True) if True in tests else len(tests)


# -- the contents of tables, once the symbols have numbers


class Numbers:
    """The number of each symbol, and of each kernel's."""

    def __init__(self, cubin: Parts, symbols: list[RawSymbol]) -> None:
        self.of_name: dict[str, int] = {}
        self.of_place: dict[tuple[str, str | int], int] = {}
        for at, row in enumerate(symbols, 1):
            self.of_name.setdefault(row.name, at)
            self.of_place.setdefault((row.name, row.section), at)
        self.count = len(symbols) + 1

    def kernel(self, kernel: Kernel) -> int:
        """The symbol of ``kernel``; 0 when there is none."""
        return self.of_place.get((kernel.symbol or kernel.name, kernel.section), 0)

    def symbol(self, name: str) -> int:
        """The symbol called ``name``, or the one that "@12" numbers."""
        if name in self.of_name:
            return self.of_name[name]
        if name.startswith("@") and name[1:].isdigit():
            return int(name[1:])
        raise AsmError(f"relocation of the undefined symbol {name!r}", hint="define it with .symbol")


def global_infos(cubin: Parts, numbers: Numbers) -> list[Info]:
    """The attributes of .nv.info: registers and stack of each kernel."""
    first: list[Info] = []
    second: list[Info] = []
    old = cubin.header.version < 120 and cubin.header.abi_version < 8
    for kernel in reversed(cubin.texts):
        at = numbers.kernel(kernel)
        if not at:
            continue
        first.append(sval("REGCOUNT", at, kernel.registers))
        if kernel.max_stack_bytes is not None:
            first.append(sval("MAX_STACK_SIZE", at, kernel.max_stack_bytes))
        if kernel.stack_bytes is not None:
            (first if old else second).append(sval("MIN_STACK_SIZE", at, kernel.stack_bytes))
        first.append(sval("FRAME_SIZE", at, kernel.frame_bytes))
    return first + second[::-1]


def _with_resources(data: e.Bytes, derived: list[Info]) -> bytes:
    """A given .nv.info, in which the kernels have the registers and stack that they have now."""
    now = {(info.code, info.words[0]): info for info in derived}
    try:
        given = nvinfo.parse(data)
    except CubinError:
        return bytes(data)
    return nvinfo.pack(now.get((info.code, info.words[0]), info) if info.words else info for info in given)


def kernel_infos(cubin: Parts, kernel: Kernel, numbers: Numbers) -> list[Info]:
    """The attributes of one kernel, derived ones and given ones, in their order."""
    infos = derived_infos(cubin, kernel, numbers)
    for code, given in kernel.infos.items():
        infos = [info for info in infos if info.code != code] + given
    order = kernel.info_order or (ORDER_NEW if kernel.facts.newer_elf else ORDER_OLD)
    rank = {code: at for at, code in enumerate(order)}
    return sorted(infos, key=lambda info: rank.get(info.code, len(rank)))


def derived_infos(cubin: Parts, kernel: Kernel, numbers: Numbers) -> list[Info]:
    """The attributes that follow from the kernel itself, in no particular order."""
    facts = kernel.facts
    new = facts.abi != Header.abi  # written as ptxas 13.0 does
    version = cubin.header.version if cubin.header.abi_version < 8 else CUDA_13_0 if new else 135
    infos = [sval("CUDA_API_VERSION", version)]
    if facts.sw_war is not None:
        infos.append(sval("SW_WAR", facts.sw_war))
    if facts.sw2861232_war:
        infos.append(Info(NVAL, CODES["SW2861232_WAR"], 0))
    if facts.newer_elf and version >= 120:
        infos.append(Info(HVAL, CODES["SPARSE_MMA_MASK"], 0))
    if kernel.params and kernel.entry:
        infos += _param_infos(kernel, numbers)
    if kernel.entry:
        infos.append(Info(HVAL, CODES["MAXREG_COUNT"], facts.max_registers))
    if new:
        infos.append(Info(HVAL, UNNAMED_5F, 0x101))
    if new and kernel.entry:
        infos.append(Info(BVAL, CODES["VRC_CTA_INIT_COUNT"], 0))
    if cubin.header.abi_version >= 8 and kernel.barriers:
        infos.append(Info(BVAL, CODES["NUM_BARRIERS"], kernel.barriers))
    if kernel.entry:
        exits = kernel.code.having(instruction_set(kernel.arch).opcodes("EXIT"))
        if exits:
            infos.append(sval("EXIT_INSTR_OFFSETS", *[WORD_BYTES * at for at in exits]))
        infos += _mbarriers(kernel)
        if not facts.newer_elf and reads_third(kernel):
            infos.append(Info(NVAL, CODES["CTAIDZ_USED"], 0))
    return infos


def _param_infos(kernel: Kernel, numbers: Numbers) -> Iterator[Info]:
    size = kernel.param_bytes
    bank = numbers.of_name.get(".nv.constant0." + kernel.name, 0)
    yield sval("PARAM_CBANK", bank, size << 16 | kernel.facts.params_at(size))
    yield Info(HVAL, CODES["CBANK_PARAM_SIZE"], size)
    wide = any(param.size >= 1 << 14 or param.offset >= 1 << 12 for param in kernel.params)
    for ordinal, param in reversed(list(enumerate(kernel.params))):
        if wide or size > 4096:
            yield sval("KPARAM_INFO_V2", 0, param.offset << 16 | ordinal, param.size)
        else:
            yield sval("KPARAM_INFO", 0, param.offset << 16 | ordinal, param.size << 18 | 0x1F000)


def _mbarriers(kernel: Kernel) -> list[Info]:
    """What uses mbarriers, and how many are made: compute-sanitizer takes those for unmade that it is not told of. A
    record: the place, the register of the address, the offset, and what is done with 0x100 and the uniform register."""
    isa, files = instruction_set(kernel.arch), kernel.facts.files
    words, made = [], 0
    for at in kernel.code.having(isa.opcodes("SYNCS")):
        i = instruction(isa, kernel.code[at], WORD_BYTES * at)
        mem = next((o for o in i.operands if isinstance(o, Mem)), None) if i else None
        use = next((use for mods, use in MBARRIER_USES if i and mods <= set(i.mods)), None)
        if mem is None or use is None:
            continue
        made += use == 0
        register, uniform = (
            files[name].last if of is None or of.zero else of.index for name, of in (("R", mem.base), ("UR", mem.ur))
        )
        words += [WORD_BYTES * at, register, mem.offset & 0xFFFFFFFF, uniform << 16 | 0x100 | use]
    return [sval("MBARRIER_INSTR_OFFSETS", *words), Info(HVAL, CODES["NUM_MBARRIERS"], made)] if words else []


def reads_third(kernel: Kernel) -> bool:
    """Whether a kernel reads blockIdx.z."""
    isa = instruction_set(kernel.arch)
    asking = {kernel.code[at] for at in kernel.code.having(isa.opcodes(*SPECIAL))}
    return any("SR_CTAID.Z" in text for text in isa.lines(asking))


def relocation_rows(rows: Iterable[CodeRelocation], addends: bool, numbers: Numbers) -> bytes:
    """The contents of .rel.text or .rela.text: the last address first, as ptxas has it."""
    chosen = [row for row in rows if (row.addend is not None) == addends]
    chosen.sort(key=lambda row: -row.address)
    return e.pack_relocations(
        [Relocation(row.address, row.type, numbers.symbol(row.symbol), row.addend) for row in chosen], addends
    )


def text_info(kernel: Kernel, numbers: Numbers) -> int:
    """sh_info of a section of code: the symbol of its function, and before sm_90 the registers."""
    return numbers.kernel(kernel) | (0 if kernel.facts.newer_elf else kernel.registers << 24)


# -- numbers for names


def link(cubin: Parts, raws: list[RawSection], symbols: list[RawSymbol]) -> Elf:
    """The sections with numbers in place of names; nothing has its offset yet, and the tables are empty."""
    facts = arch(cubin.arch)
    head = cubin.header
    elf = Elf(abi=head.abi, abi_version=head.abi_version, type=head.type, version=head.version)
    elf.flags = facts.e_flags if head.flags is None else head.flags
    numbers = Numbers(cubin, symbols)
    given = {section.name for section in cubin.sections}
    index = {raw.name: at for at, raw in enumerate(raws)}
    kernels = {kernel.section: kernel for kernel in cubin.texts}
    infos = {".nv.info." + kernel.name: kernel for kernel in cubin.texts}

    def number(name: str | int) -> int:
        return name if isinstance(name, int) else index.get(name, 0)

    for raw in raws:
        name = raw.name.partition("\0")[0]
        size = raw.size if raw.type in e.NO_CONTENTS else len(raw.data)
        section = Section(name, raw.type, raw.flags, raw.address, 0, size, number(raw.link), number(raw.info),
                          raw.align, raw.entry_size, raw.data)  # fmt: skip
        elf.sections.append(section)
        if raw.name in kernels:
            kernel = kernels[raw.name]
            section.info = text_info(kernel, numbers) if kernel.section_info is None else kernel.section_info
        if raw.name in given:
            if raw.name == ".nv.info":
                section.data = _with_resources(raw.data, global_infos(cubin, numbers))
            continue
        if raw.name == ".nv.info":
            section.data = nvinfo.pack(global_infos(cubin, numbers))
        elif raw.name in infos:
            section.data = nvinfo.pack(kernel_infos(cubin, infos[raw.name], numbers))
        elif raw.type in (e.SHT_REL, e.SHT_RELA):
            rows = kernels[str(raw.info)].relocations
            section.data = relocation_rows(rows, raw.type == e.SHT_RELA, numbers)
        if raw.type not in e.NO_CONTENTS:
            section.size = len(section.data)
    return elf


def fill_tables(elf: Elf, symbols: list[RawSymbol], index: dict[str, int]) -> None:
    """Write the symbol table and the string tables."""
    elf.names_section = index[".shstrtab"]
    names = _StringTable(elf.sections[elf.names_section].data)
    for section in elf.sections:
        section.name_at = names.add(section.name)
    texts = _StringTable(elf.sections[index[".strtab"]].data)
    table = bytearray(e.SYMBOL.size)
    first_global = 0
    for at, row in enumerate(symbols, 1):
        place = row.section
        section_number = place if isinstance(place, int) else index[place] if place else e.SHN_UNDEF
        symbol = Symbol(row.name, row.value, row.size, row.type, row.bind, row.other, section_number)
        first_global = first_global or (at if row.bind == e.STB_GLOBAL else 0)
        table += e.SYMBOL.pack(texts.add(row.name), symbol.bind << 4 | symbol.type, symbol.other, symbol.section,
                               symbol.value, symbol.size)  # fmt: skip
    holder = elf.sections[index[".symtab"]]
    holder.data, holder.info = bytes(table), first_global or len(symbols) + 1
    elf.sections[elf.names_section].data = bytes(names.data)
    elf.sections[index[".strtab"]].data = bytes(texts.data)
    for at in (elf.names_section, index[".strtab"], index[".symtab"]):
        elf.sections[at].size = len(elf.sections[at].data)


class _StringTable:
    """Names, each kept once."""

    def __init__(self, data: e.Bytes) -> None:
        self.data = bytearray(data) or bytearray(1)
        self.at: dict[bytes, int] = {b"": 0}
        start = 0
        for piece in bytes(self.data).split(b"\0")[:-1]:
            self.at.setdefault(piece, start)
            start += len(piece) + 1

    def add(self, name: str) -> int:
        """The offset of ``name``, which is put at the end if it is new."""
        raw = name.encode("utf-8", "surrogateescape")
        if raw not in self.at:
            self.at[raw] = len(self.data)
            self.data += raw + b"\0"
        return self.at[raw]


# -- places in the file


def _twin(elf: Elf, section: Section) -> Section | None:
    """The section that one of the capsule is another name for: it has no bytes of its own in the file."""
    start = e.CAPSULE_TWINS.get(section.type)
    if start is None or not section.flags & e.SHF_CAPSULE:
        return None
    loaded = (one for one in elf.sections if one.flags & e.SHF_ALLOC and not one.flags & e.SHF_CAPSULE)
    return next((one for one in loaded if one.name.startswith(start) and one.data == section.data), None)


def layout(elf: Elf, modern: bool, program_headers: int) -> None:
    """Give every section its offset, and make the program headers of an executable, as Header.segments says."""
    at = e.HEADER.size
    for section in elf.sections[1:]:
        if section.align > LARGEST_ALIGN:
            raise CubinError(f"section {section.name} cannot be aligned to {section.align} bytes", section.offset)
        twin = _twin(elf, section)
        if twin is not None:
            section.offset = twin.offset
            continue
        if section.align > 1:
            at = -(-at // section.align) * section.align
        section.offset = at
        at += len(section.data)
    elf.section_at = -(-at // 8) * 8
    end = elf.section_at + len(elf.sections) * e.SECTION.size
    elf.size = end
    if elf.type != 2 or not program_headers:
        return
    elf.segment_at = end
    flags = 4 if modern else 5
    headers = Segment(e.PT_LOAD, flags, end, 0, 0, 0, 0, 8)
    loads: list[Segment] = []
    previous = -1
    for section in elf.sections:
        if not section.flags & e.SHF_ALLOC or section.flags & e.SHF_CAPSULE:
            previous = -1
            continue
        write, execute = section.flags & e.SHF_WRITE, section.flags & e.SHF_EXECINSTR
        key = 6 if write else (4 + bool(execute) if modern else 5)
        if key != previous:
            loads.append(Segment(e.PT_LOAD, key, section.offset, 0, 0, 0, 0, 8))
        previous = key
        load = loads[-1]
        load.file_size = section.offset + len(section.data) - load.offset
        load.memory_size = max(load.memory_size, load.file_size)
        if section.type in e.NO_CONTENTS:
            unit = max(section.align, 1)
            start = -(-(load.offset + load.memory_size) // unit) * unit
            load.memory_size = start + section.size - load.offset
    own = Segment(e.PT_PHDR, flags, end, 0, 0, 0, 0, 8)
    elf.segments = [own, headers, *loads] if modern else [own, *loads, headers]
    if program_headers == 1:
        elf.segments.remove(headers)
    size = len(elf.segments) * e.SEGMENT.size
    for segment in (own, headers):
        segment.file_size = segment.memory_size = size
    elf.size = end + size
