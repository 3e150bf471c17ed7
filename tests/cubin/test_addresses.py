"""Which numbers are addresses of code, and what becomes of them when instructions are put in."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import turingas
from tests.kernels.cases import ARCHS, FOLDER
from tests.tools import nvrtc, ptxas
from turingas.cli import main
from turingas.cubin import addresses, moved
from turingas.cubin.lines import read_lines
from turingas.cubin.model import Code, Kernel
from turingas.disassembler import check
from turingas.emulate import launch
from turingas.errors import AsmWarning

NOP = "--:-:-:-:5  NOP;"
CALL = """\
.arch sm_80
.kernel k
--:-:-:-:1  MOV R4, {argument};
--:-:-:Y:6  {move};
--:-:-:-:5  CALL.REL.NOINC f;
back:
--:-:-:Y:5  EXIT;
f:
--:-:-:Y:6  MOV R2, R20;
--:-:-:Y:6  MOV R3, 0x0;
--:-:-:-:5  RET.REL.NODEC R2 0x0;
"""
STRANGE = """\
.arch sm_70
.kernel k
--:-:-:-:2  LEPC R20;
--:-:-:Y:8  IADD3 R20, R20, 0x30, RZ;
--:-:-:-:5  CALL.REL.NOINC f;
--:-:-:Y:5  EXIT;
f:
--:-:-:-:5  RET.ABS.NODEC R20 0x0;
"""


def found(source: str) -> addresses.Addresses:
    kernel = turingas.assemble(source).kernels[0]
    return addresses.find(kernel)


@pytest.mark.parametrize(
    "move",
    ["MOV R20, 0x30", "IMAD.MOV.U32 R20, RZ, RZ, 0x30", "HFMA2.MMA R20, -RZ, RZ, 0, 2.86102294921875e-06"],
)
def test_return_address(move: str) -> None:
    source = CALL.format(move=move, argument="0x7")
    assert found(source).immediates == {1: 0x30} and not found(source).unknown
    listing = turingas.disassemble(turingas.assemble(source))
    assert "32@lo(L_0030)" in listing
    assert turingas.assemble(listing).kernel("k").words == turingas.assemble(source).kernel("k").words
    more = turingas.assemble(listing.replace("\n--", f"\n{NOP}\n--", 1)).kernel("k")
    assert more.words[2] >> 32 & 0xFFFFFFFF == 0x40


def test_a_number_that_happens_to_be_the_same() -> None:
    """The function tells in which register it takes its return address."""
    assert found(CALL.format(move="MOV R20, 0x30", argument="0x30")).immediates == {1: 0x30}


def test_no_return_address() -> None:
    source = CALL.format(move="MOV R20, 0x40", argument="0x7")
    assert list(found(source).unknown) == [2]
    findings = [f for f in turingas.lint(turingas.assemble(source)) if f.severity == "error"]
    assert [(f.kind, f.address) for f in findings] == [("return-address", 0x20)]
    good = CALL.format(move="MOV R20, 32@lo(back)", argument="0x7")
    assert not [f for f in turingas.lint(turingas.assemble(good)) if f.severity == "error"]


def test_expressions() -> None:
    source = CALL.format(move="MOV R20, 32@lo(back)", argument="32@lo(back - f)")
    assert turingas.assemble(source).kernel("k").words[1] >> 32 & 0xFFFFFFFF == 0x30
    with pytest.raises(turingas.AsmError, match="undefined label 'nowhere'"):
        turingas.assemble(CALL.format(move="MOV R20, 32@lo(nowhere)", argument="0x1"))


def strange() -> str:
    return turingas.disassemble(turingas.assemble(STRANGE))


def more(listing: str) -> str:
    """With an instruction put in before the CALL."""
    return listing.replace("L_0020:", f"L_0020:\n{NOP}")


def test_what_cannot_be_told_is_named_and_a_warning() -> None:
    assert re.search(r"^\.layout 0x80 PCL_0000 L_0020$", strange(), re.M)
    assert check(turingas.assemble(STRANGE)) == []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        turingas.assemble(strange())  # nothing moved
    with pytest.warns(AsmWarning, match="code of k has changed"):
        cubin = turingas.assemble(more(strange()))
    assert "moved-code" in [f.kind for f in turingas.lint(cubin) if f.severity == "error"]


def test_the_command_prints_warnings(tmp_path: Path) -> None:
    file = tmp_path / "k.sass"
    file.write_text(more(strange()))
    result = CliRunner().invoke(main, ["assemble", str(file)])
    assert result.exit_code == 0 and "k.sass:9:13: warning: the code of k has changed" in result.output
    assert CliRunner().invoke(main, ["lint", str(file)]).exit_code == 1


needs_nvrtc = pytest.mark.skipif(nvrtc.library_path() is None, reason="NVRTC is not installed")


def compiled(arch: str, *options: str) -> turingas.Cubin:
    source = (FOLDER / "editing.cu").read_text()
    return turingas.Cubin.from_bytes(nvrtc.compile_source(source, arch, options, name="editing.cu"))


@needs_nvrtc
@pytest.mark.parametrize("arch", ARCHS)
def test_everything_in_compiled_code_is_told(arch: str) -> None:
    listing = turingas.disassemble(compiled(arch))
    assert re.findall(r"^\.layout 0x\w+(.*)$", listing, re.M) == [""] * 9
    assert not re.search(r"BRX R\d+ -?0x|MOV R20, 0x", listing) and listing.count("START") >= 4
    assert ".quad" in listing and ".long" in listing and "32@lo" in listing


@needs_nvrtc
@pytest.mark.parametrize("arch", ["sm_75", "sm_90"])
def test_a_forgotten_address_is_an_error_of_the_linter(arch: str) -> None:
    """Instructions put into the words themselves, as a tool would that knows nothing of addresses."""
    cubin = compiled(arch)
    for name in ("slow32", "sw", "recursion"):
        kernel = cubin.kernel(name)
        assert not [f for f in turingas.lint(kernel) if f.severity == "error"]
        kernel.code = Code(words=[turingas.encode(NOP, arch=arch)[0], *kernel.words])
        assert {"return-address", "branch-table"} & {f.kind for f in turingas.lint(kernel) if f.severity == "error"}
    kernel = cubin.kernel("sw")
    kernel.constants = {}  # its tables are in another kernel's section: nvlink puts those of device functions there
    assert "branch-table" not in {f.kind for f in turingas.lint(kernel)}


@needs_nvrtc
@pytest.mark.parametrize("option", ["-lineinfo", "-G", "-rdc=true"])
@pytest.mark.parametrize("arch", ["sm_75", "sm_90"])
def test_debug_information_follows(arch: str, option: str) -> None:
    """Every instruction keeps its source line, every relocated address its instruction, when one is put in."""
    cubin = compiled(arch, option)
    kernel = cubin.texts[0]
    lines = turingas.disassemble(cubin).splitlines()
    first = next(n for n, line in enumerate(lines) if line.endswith("# 0030"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        edited = turingas.assemble("\n".join([*lines[:first], NOP, *lines[first:]])).to_bytes()
    after = turingas.Cubin.from_bytes(edited)
    assert after.texts[0].name == kernel.name and opcodes(after.texts[0])[4:12] == opcodes(kernel)[3:11]
    assert cubin.elf and after.elf
    before_lines, after_lines = read_lines(cubin.elf), read_lines(after.elf)
    assert before_lines.keys() == after_lines.keys() and bool(before_lines) == (option != "-rdc=true")
    for section, old in before_lines.items():
        new = after_lines[section]
        if cubin.elf.sections[section].name != kernel.section:
            assert new == old
        elif old:
            assert new[:3] + new[4 : len(old)] == old[:3] + old[3 : len(old) - 1]
    told, end = addresses_of(after), len(kernel.code)
    for section, places in addresses_of(cubin).items():
        if section == kernel.section:
            first_moved = 0x40 if "L_0030:" in lines else 0x30  # a label stays before what is put in behind it
            now = {at + 16 * (at >= first_moved) if at < end else len(after.texts[0].code) for at in places}
            assert told[section] == now
        else:
            assert told[section] == places


def opcodes(kernel: Kernel) -> list[int]:
    return [word & 0xFFF for word in kernel.words]


def addresses_of(cubin: turingas.Cubin) -> dict[str, set[int]]:
    from turingas.cubin.split import split
    from turingas.cubin.write import combine

    parts = split(cubin)
    return moved.addresses(parts.sections, combine(parts)[1], {kernel.section for kernel in parts.texts})


def test_frames_that_cannot_be_read_are_told() -> None:
    """A frame of no common entry, as linkers leave them: nothing is known of it, and nothing breaks."""
    from turingas.cubin.elf import Relocation, pack_relocations
    from turingas.cubin.model import RawSection, RawSymbol

    frame = (16 + 8).to_bytes(4, "little") + (0x70).to_bytes(4, "little") + bytes(20)
    rows = pack_relocations([Relocation(8, 2, 1, 0)], True)
    table = RawSection(".rela.debug_frame", 4, info=".debug_frame", data=rows)
    sections = [RawSection(".debug_frame", data=frame), table]
    symbols = [RawSymbol("k", ".text.k", type=2)]
    found = list(moved.follow(sections, symbols, {".text.k"}, lambda _, at: at, lambda _, at: at))
    assert found == [(sections[0], None)]


@pytest.mark.parametrize("cut", [0, 1])
def test_registers_of_ptx(cut: int) -> None:
    """Ranges follow; a section that ends in the middle is told, and nothing breaks."""
    from turingas.cubin.model import RawSection, RawSymbol

    entry = bytes(4) + b"%r1\0" + bytes([7, 0, 0, 5])
    head = b"k\0" + (1).to_bytes(4, "little") + entry
    made = [head + at.to_bytes(4, "little") + end.to_bytes(4, "little") for at, end in ((0x10, 0x40), (0x10, 0x50))]
    section = RawSection(moved.REGISTERS, data=made[0][: len(made[0]) - cut])
    symbols = [RawSymbol("k", ".text.k", type=2)]
    found = list(moved.follow([section], symbols, {".text.k"}, lambda _, at: at + 16 * (at > 0x20), lambda _, at: at))
    assert found == [(section, None if cut else made[1])]


TABLE = """
.version 8.7
.target sm_120a
.address_size 64
.visible .entry k(.param .u64 out)
{
 .reg .b32 %r<4>; .reg .b64 %d<3>;
 ld.param.u64 %d0, [out]; mov.u32 %r0, %tid.x; mul.wide.u32 %d1, %r0, 4; add.u64 %d0, %d0, %d1; and.b32 %r0, %r0, 3;
 targets: .branchtargets A, B, C, D;
 brx.idx %r0, targets;
A: st.global.u32 [%d0], 5; bra.uni D;
B: st.global.u32 [%d0], 6; bra.uni D;
C: st.global.u32 [%d0], 7;
D: ret;
}"""


@pytest.mark.skipif(ptxas.program_path() is None, reason="ptxas is not installed")
@pytest.mark.parametrize("bias", [0, 0x8000])
def test_a_table_that_is_read_from_further_on(bias: int) -> None:
    """As in NVSHMEM's kernels for sm_120: something is added to the index, and taken off again by the LDC."""
    listing = turingas.disassemble(turingas.Cubin.from_bytes(ptxas.assemble_ptx(TABLE, "sm_120a")))
    load = re.search(r"^(.*)LDC (R\d+), c\[0x2\]\[(R\d+)\];.*$", listing, re.M)
    assert load is not None
    codes, target, index = load.groups()
    more = "--:-:-:-:8 NOP;\n"
    lines = f"--:-:-:-:6 IADD {index}, {index}, {bias:#x};\n{codes}LDC {target}, c[0x2][{index}+{-bias:#x}];"
    with pytest.warns(AsmWarning, match="capsule"):
        once = turingas.assemble(listing.replace(load[0], more + (lines if bias else load[0])))
    twice = turingas.assemble(re.sub(r"^(.*LDC R\d+, c\[0x2\])", more + r"\1", turingas.disassemble(once), flags=re.M))
    for cubin in (once, twice):
        assert not [f for f in turingas.lint(cubin) if f.severity != "note"]
        out = np.zeros(32, np.uint32)
        launch(cubin, "k", 1, 32, [out])
        assert out.tolist() == [5, 6, 7, 0] * 8
