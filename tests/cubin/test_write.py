"""Cubins written from scratch, and cubins changed after they were read."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.cubin import cubins
from tests.emulate import asynchronous, tiles
from tests.tools import nvrtc
from turingas.assembler import assemble
from turingas.cubin import elf, nvinfo
from turingas.cubin.cubin import Cubin
from turingas.cubin.elf import Elf
from turingas.cubin.model import Code, Constant, Kernel, Param
from turingas.cubin.split import differences, split
from turingas.cubin.write import build
from turingas.disassembler import check, disassemble
from turingas.isa.arch import arch

EXIT, NOP = 0x000FEA0003800000000000000000794D, 0x000FC000000000000000000000007918


def small(name: str) -> Cubin:
    kernel = Kernel("k", name, Code(words=[NOP, EXIT, NOP, NOP, NOP, NOP, NOP, NOP]), registers=10, shared_bytes=512)
    kernel.params = [Param(0, 8), Param(8, 4)]
    kernel.barriers = 2
    kernel.constants = {2: b"\1\2\3\4"}
    other = Kernel("other", name, Code(words=[EXIT] * 8), registers=4)
    return Cubin(name, [kernel, other], [Constant("c", 0, b"abcd")])


@pytest.mark.parametrize("name", cubins.ARCHS)
def test_what_is_written_reads_back(name):
    data = small(name).to_bytes()
    cubin = Cubin.from_bytes(data)
    assert cubin.arch == name and cubin.elf.flags == arch(name).e_flags
    assert Elf.from_bytes(data).to_bytes() == data
    kernel, other = cubin.kernels
    assert (kernel.name, kernel.words[1], kernel.registers, kernel.barriers) == ("k", EXIT, 10, 2)
    assert (kernel.shared_bytes, kernel.params) == (512, [Param(0, 8), Param(8, 4)])
    assert bytes(kernel.constants[2]) == b"\1\2\3\4"
    assert (other.name, other.registers, other.params, other.shared_bytes) == ("other", 4, [], 0)
    assert differences(cubin.elf, build(split(cubin))) == []


@pytest.mark.parametrize("name", cubins.ARCHS)
def test_sections_are_those_that_ptxas_writes(name):
    read = Elf.from_bytes(small(name).to_bytes())
    facts = arch(name)
    bank = read.section(".nv.constant0.k")
    assert bank.size == facts.param_base + 12 and not any(bank.data)
    text = read.section(".text.k")
    symbols = read.symbols()
    assert symbols[text.info & 0xFFFFFF].name == "k"
    assert text.info >> 24 == (0 if facts.newer_elf else 10)
    assert text.flags == 6 | 2 << 20
    assert text.offset % 128 == 0
    assert (read.section(".nv.shared.k").type, read.section(".nv.shared.k").size) == (elf.SHT_NOBITS, 512)
    infos = {info.name: info for info in nvinfo.parse(read.section(".nv.info.k").data)}
    assert infos["EXIT_INSTR_OFFSETS"].words == (16,)
    assert infos["PARAM_CBANK"].words[1] == 12 << 16 | facts.param_base
    assert infos["CBANK_PARAM_SIZE"].value == 12
    assert ("SW_WAR" in infos) == (facts.sw_war is not None)
    assert [s.memory_size for s in read.segments if s.flags == 6 and s.type == elf.PT_LOAD] == [512]
    assert next(s for s in symbols if s.name == "c").size == 4


@pytest.mark.parametrize("name", cubins.ARCHS)
def test_the_program_headers_are_the_end_of_the_file(name):
    data = small(name).to_bytes()
    read = Elf.from_bytes(data)
    own = next(s for s in read.segments if s.type == elf.PT_PHDR)
    assert (own.offset, own.offset + own.file_size) == (read.segment_at, len(data))
    assert own.file_size == elf.SEGMENT.size * len(read.segments)
    loads = [s for s in read.segments if s.type == elf.PT_LOAD]
    assert sum(s.offset == own.offset and s.file_size == own.file_size for s in loads) == 1
    for section in read.sections:
        if section.flags & elf.SHF_ALLOC and section.type == elf.SHT_PROGBITS:
            places = [s for s in loads if s.offset <= section.offset and
                      section.offset + section.size <= s.offset + s.file_size]  # fmt: skip
            assert len(places) == 1, section.name


def test_the_same_as_ptxas_where_ptxas_adds_nothing():
    """Of a plain kernel nothing is left over but the debug frame."""
    for sm in (70, 75, 80, 86, 89):
        name = f"plain_cuda12_sm{sm}"
        parts = split(Cubin.from_bytes(cubins.named(name)))
        assert [section.name for section in parts.sections] == [".debug_frame", ".rel.debug_frame"], name
        assert parts.dropped == [] and parts.symbols is None


@pytest.mark.parametrize("path", cubins.STORED, ids=lambda path: path.stem)
def test_everything_survives_taking_apart(path):
    cubin = Cubin.from_file(path)
    assert differences(cubin.elf, Elf.from_bytes(build(split(cubin)).to_bytes())) == []


@pytest.mark.parametrize("name", ["memory_cuda12_sm75", "flow_cuda12_sm80", "flow_cuda12_sm90", "flow_cuda11_sm80"])
def test_changed_kernels_are_written(name):
    cubin = Cubin.from_bytes(cubins.named(name))
    kernel = cubin.kernels[0]
    kernel.words = kernel.words + [NOP] * 8
    kernel.registers = 77
    again = Cubin.from_bytes(cubin.to_bytes())
    assert again.kernels[0].words == kernel.words and again.kernels[0].registers == 77
    assert [k.words for k in again.texts[1:]] == [k.words for k in cubin.texts[1:]]
    sizes = {symbol.name: symbol.size for symbol in again.elf.symbols() if symbol.type == elf.STT_FUNC}
    assert sizes[kernel.name] == len(kernel.code)


def test_a_word_changed_in_place_is_written():
    cubin = Cubin.from_bytes(cubins.named("plain_cuda12_sm75"))
    cubin.kernel("fill").words[0] = NOP
    assert Cubin.from_bytes(cubin.to_bytes()).kernel("fill").words[0] == NOP


def test_changes_that_a_file_cannot_show():
    """An error, and not a file without them."""
    path = cubins.DATA / "memory_cuda12_sm90_linked.cubin"
    cubin = Cubin.from_file(path)
    kernel = cubin.kernel("swap")
    kernel.relocations[0] = replace(kernel.relocations[0], address=32)
    with pytest.raises(ValueError, match="^swap: its relocations are kept as they lie in the file"):
        cubin.to_bytes()
    cubin = Cubin.from_file(path)
    cubin.kernel("swap").attributes.pop()
    with pytest.raises(ValueError, match="^swap: attributes tell what was read; infos replaces"):
        cubin.to_bytes()
    cubin = Cubin.from_file(path)
    cubin.kernel("swap").registers += 8
    assert Cubin.from_bytes(cubin.to_bytes()).kernel("swap").registers == cubin.kernel("swap").registers


@pytest.mark.sample(6)
@pytest.mark.parametrize("name", ["memory_cuda12_sm75", "flow_cuda13_sm90", "flow_cuda12_sm80_rdc"])
@pytest.mark.parametrize(
    ("field", "value"), [("link", 3), ("link", 0), ("info", 2), ("align", 256), ("entry_size", 8), ("address", 0x100)]
)
def test_what_a_section_says_of_itself_is_kept(name, field, value):
    """Linkers leave sh_link of code at .nv.info, for instance: nothing reads it there, and it is kept."""
    data = cubins.named(name)
    for at, section in enumerate(Elf.from_bytes(data).sections):
        if at and section.name not in (".symtab", ".strtab", ".shstrtab"):
            file = Elf.from_bytes(data)
            setattr(file.sections[at], field, value)
            assert check(file.to_bytes()) == [], section.name


def test_a_file_without_code_survives():
    empty = Cubin("sm_80", dropped=[".nv.info"])
    assert check(build(empty).to_bytes()) == []


def test_a_size_that_follows_the_code_does_so_after_a_change():
    """``size=auto`` is worked out for each file that is written, not once for all."""
    source = disassemble(Cubin.from_bytes(cubins.named("memory_cuda12_sm75")))
    assert "size=auto" in source
    cubin = assemble(source)
    kernel = cubin.kernels[0]
    before = len(kernel.code)
    kernel.words = [*kernel.words, *kernel.words]
    [symbol] = [s for s in Elf.from_bytes(cubin.to_bytes()).symbols() if s.name == kernel.name]
    assert symbol.size == 2 * before == len(kernel.code)


@pytest.mark.parametrize("segments", [0, 1, 2])
def test_program_headers_are_kept(segments):
    """cuFFT's cubins have none before sm_89, and there none that loads the headers."""
    cubin = assemble(f".arch sm_89\n.elf segments={segments}\n.kernel k\n--:-:-:Y:5 EXIT;")
    again = Cubin.from_bytes(cubin.to_bytes())
    assert again.header.segments == segments and len(again.elf.segments) == (0, 2, 3)[segments]
    assert check(again) == []


MBARRIERS = """
.arch sm_90
.kernel k
SYNCS.EXCH.64 URZ, [UR4+0x8], UR6;
SYNCS.ARRIVE.TRANS64 RZ, [UR4], R2;
SYNCS.ARRIVE.TRANS64.A1T0 RZ, [R3+URZ+0x10], RZ;
SYNCS.ARRIVE.TRANS64.RED.A0TX RZ, [UR4], R2;
SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [R3+UR4], RZ;
SYNCS.PHASECHK.TRANS64 P0, [UR4], RZ;
EXIT;
"""


def test_uses_of_mbarriers_are_told():
    """compute-sanitizer asks for them. An arrival with bytes to come is not told, as ptxas does not tell it."""
    made = Cubin.from_bytes(assemble(MBARRIERS, "k.sass").to_bytes())
    infos = {info.name: info for info in nvinfo.parse(made.elf.section(".nv.info.k").data)}
    assert infos["NUM_MBARRIERS"].value == 1
    words = infos["MBARRIER_INSTR_OFFSETS"].words
    assert [words[n : n + 4] for n in range(0, len(words), 4)] == [
        (0x00, 0xFF, 0x8, 0x40100), (0x20, 3, 0x10, 0x3F0101), (0x30, 0xFF, 0, 0x4010C), (0x40, 3, 0, 0x4010A),
        (0x50, 0xFF, 0, 0x40106),
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["sm_90a", "sm_100a", "sm_120a"])
def test_uses_of_mbarriers_are_those_that_ptxas_tells(name):
    """So the source of a compiled kernel does not say them."""
    data = asynchronous.cubin() if name == "sm_90a" else nvrtc.compile_source(tiles.SOURCE.read_text(), name)
    text = disassemble(Cubin.from_bytes(data))
    assert text.count("SYNCS.") > 40 and ".info MBARRIER" not in text and ".info NUM_MB" not in text
    assert not check(Cubin.from_bytes(data))
