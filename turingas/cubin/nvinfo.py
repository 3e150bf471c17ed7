"""The attributes of ``.nv.info`` sections (EIATTR): what a cubin tells the driver about itself and its kernels.

Each attribute is a format, a code and a value. Codes and names were read off ``cuobjdump -elf`` (12.4 and 13.5)
by giving it sections with every code; payloads were compared with cubins of NVRTC 11.8, 12.9 and 13.5.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from turingas.cubin.elf import Bytes
from turingas.errors import CubinError

NVAL, BVAL, HVAL, SVAL = 1, 2, 3, 4  # formats: no value, a byte, a half word, bytes with their number

# What a payload holds. Addresses are offsets in the code of the kernel, symbols are indices in the symbol table.
NUMBER, WORDS, ADDRESSES, SYMBOL_NUMBER, SYMBOLS, PARAM, CBANK, BYTES = range(8)

_TABLE = """
02 IMAGE_SLOT            03 JUMPTABLE_RELOCS      04 CTAIDZ_USED           05 MAX_THREADS words
06 IMAGE_OFFSET          07 IMAGE_SIZE            08 TEXTURE_NORMALIZED    09 SAMPLER_INIT
0a PARAM_CBANK cbank     0b SMEM_PARAM_OFFSETS    0c CBANK_PARAM_OFFSETS   0d SYNC_STACK
0e TEXID_SAMPID_MAP      0f EXTERNS symbols       10 REQNTID words         11 FRAME_SIZE symbol_number
12 MIN_STACK_SIZE symbol_number                   13 SAMPLER_FORCE_UNNORMALIZED
14 BINDLESS_IMAGE_OFFSETS                         15 BINDLESS_TEXTURE_BANK 16 BINDLESS_SURFACE_BANK
17 KPARAM_INFO param     18 SMEM_PARAM_SIZE       19 CBANK_PARAM_SIZE      1a QUERY_NUMATTRIB
1b MAXREG_COUNT          1c EXIT_INSTR_OFFSETS addresses                   1d S2RCTAID_INSTR_OFFSETS addresses
1e CRS_STACK_SIZE words  1f NEED_CNP_WRAPPER      20 NEED_CNP_PATCH        21 EXPLICIT_CACHING
22 ISTYPEP_USED          23 MAX_STACK_SIZE symbol_number                   24 SUQ_USED
25 LD_CACHEMOD_INSTR_OFFSETS addresses            26 LOAD_CACHE_REQUEST
27 ATOM_SYS_INSTR_OFFSETS addresses               28 COOP_GROUP_INSTR_OFFSETS addresses
29 COOP_GROUP_MASK_REGIDS words                   2a SW1850030_WAR         2b WMMA_USED
2c HAS_PRE_V10_OBJECT    2d ATOMF16_EMUL_INSTR_OFFSETS addresses           2e ATOM16_EMUL_INSTR_REG_MAP
2f REGCOUNT symbol_number                         30 SW2393858_WAR         31 INT_WARP_WIDE_INSTR_OFFSETS addresses
32 SHARED_SCRATCH        33 STATISTICS            34 INDIRECT_BRANCH_TARGETS
35 SW2861232_WAR         36 SW_WAR words          37 CUDA_API_VERSION words
38 NUM_MBARRIERS         39 MBARRIER_INSTR_OFFSETS addresses               3a COROUTINE_RESUME_ID_OFFSETS
3b SAM_REGION_STACK_SIZE 3c PER_REG_TARGET_PERF_STATS                      3d CTA_PER_CLUSTER words
3e EXPLICIT_CLUSTER      3f MAX_CLUSTER_RANK words                         40 INSTR_REG_MAP addresses
41 RESERVED_SMEM_USED    42 RESERVED_SMEM_0_SIZE  43 UCODE_SECTION_DATA    44 UNUSED_LOAD_BYTE_OFFSET addresses
45 KPARAM_INFO_V2 param  46 SYSCALL_OFFSETS addresses
47 SW_WAR_MEMBAR_SYS_INSTR_OFFSETS addresses      48 GRAPHICS_GLOBAL_CBANK 49 SHADER_TYPE
4a VRC_CTA_INIT_COUNT    4b TOOLS_PATCH_FUNC      4c NUM_BARRIERS          4d TEXMODE_INDEPENDENT
4e PERF_STATISTICS       4f AT_ENTRY_FRAGMENTS    50 SPARSE_MMA_MASK       51 TCGEN05_1CTA_USED
52 TCGEN05_2CTA_USED     53 GEN_ERRBAR_AT_EXIT    54 REG_RECONFIG          55 ANNOTATIONS
57 STACK_CANARY_TRAP_OFFSETS addresses            58 STUB_FUNCTION_KIND    59 LOCAL_CTA_ASYNC_STORE_OFFSETS addresses
5b BLOCKS_ARE_CLUSTERS   5c SANITIZE              5d SYSCALLS_FALLBACK     5e CUDA_REQ
61 RTCORE_ENTRY          62 CLUSTER_LAUNCH_CONTROL_USED                    64 MIN_PER_CTA_MEMORY_SIZE
65 IGNOREOOB_CP_ASYNC_BULK_INSTR_OFFSETS addresses                         66 LANGUAGE
68 GRID_ATTRIBUTES       69 STACK_OFFSET          6a RT_LIVESTATE_SASS_MAP 6b NVSAL_SW_WAR
6c INSTR_OFFSETS         6d PREEXIT_USED
"""
_KINDS = {"words": WORDS, "addresses": ADDRESSES, "symbol_number": SYMBOL_NUMBER, "symbols": SYMBOLS}
_KINDS.update({"param": PARAM, "cbank": CBANK})

NAMES: dict[int, str] = {}
KINDS: dict[int, int] = {}
_words = _TABLE.split()
for _at, _word in enumerate(_words):
    if len(_word) == 2:
        NAMES[int(_word, 16)] = _words[_at + 1]
        KINDS[int(_word, 16)] = _KINDS.get([*_words, ""][_at + 2], BYTES)
CODES = {name: code for code, name in NAMES.items()}
#: attributes of addresses that say more of each instruction: words of a record, of which the first is the address
RECORDS = {"MBARRIER_INSTR_OFFSETS": 4, "INSTR_REG_MAP": 3, "UNUSED_LOAD_BYTE_OFFSET": 2}


class Info(NamedTuple):
    """One attribute. ``value`` is a number (formats NVAL, BVAL, HVAL) or bytes (SVAL)."""

    format: int
    code: int
    value: int | bytes

    @property
    def name(self) -> str:
        """EIATTR_... without its prefix, or the code in hexadecimal."""
        return NAMES.get(self.code) or f"0x{self.code:02x}"

    @property
    def words(self) -> tuple[int, ...]:
        """The value as 32-bit words (what is left over is dropped)."""
        if isinstance(self.value, int):
            return (self.value,)
        return struct.unpack_from(f"<{len(self.value) // 4}I", self.value)

    @property
    def numbers_symbols(self) -> bool:
        """Whether it names a symbol by its number, of its own kernel as a rule."""
        return KINDS.get(self.code) in (SYMBOL_NUMBER, SYMBOLS, CBANK)

    @property
    def record(self) -> int:
        """How many words there are to each address, which comes first; 0 for an attribute without addresses."""
        addresses = self.format == SVAL and KINDS.get(self.code) == ADDRESSES
        return RECORDS.get(self.name, 1) if addresses else 0

    @property
    def marked(self) -> list[tuple[int, bool]]:
        """The words, each with whether it is the address of an instruction."""
        if self.format == SVAL and self.name == "INDIRECT_BRANCH_TARGETS":
            return list(_branch_table(self.words))
        record = self.record
        return [(word, bool(record) and n % record == 0) for n, word in enumerate(self.words)]


def _branch_table(words: tuple[int, ...]) -> Iterator[tuple[int, bool]]:
    """Of INDIRECT_BRANCH_TARGETS: branch, 0, number of targets, targets."""
    at = 0
    while at < len(words):
        count = words[at + 2] if at + 2 < len(words) else 0
        for place, word in enumerate(words[at : at + 3 + count]):
            yield word, place not in (1, 2)
        at += 3 + count


def sval(name: str, *words: int) -> Info:
    """An attribute whose value is ``words``."""
    return Info(SVAL, CODES[name], struct.pack(f"<{len(words)}I", *words))


def parse(data: Bytes, place: int = 0) -> list[Info]:
    """The attributes of one section. ``place`` is its offset in the file, for messages."""
    raw, result, at = bytes(data), [], 0
    while at < len(raw):
        if at + 4 > len(raw):
            raise CubinError(f"{len(raw) - at} bytes are left at the end of .nv.info", place + at)
        kind, code, value = struct.unpack_from("<BBH", raw, at)
        at += 4
        if kind not in (NVAL, BVAL, HVAL, SVAL):
            raise CubinError(f"attribute 0x{code:02x} of .nv.info has the unknown format {kind}", place + at - 4)
        if kind != SVAL:
            result.append(Info(kind, code, value))
            continue
        if at + value > len(raw):
            raise CubinError(f"attribute 0x{code:02x} of .nv.info is longer than its section", place + at - 4)
        result.append(Info(kind, code, raw[at : at + value]))
        at += value
    return result


def pack(infos: Iterable[Info]) -> bytes:
    """The contents of a section that holds ``infos``."""
    out = bytearray()
    for info in infos:
        if isinstance(info.value, int):
            out += struct.pack("<BBH", info.format, info.code, info.value)
        else:
            out += struct.pack("<BBH", info.format, info.code, len(info.value)) + info.value
    return bytes(out)
