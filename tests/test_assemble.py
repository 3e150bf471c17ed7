"""From source to cubin: resources, directives, data, and what wrong source gets. Encodings have their own tests."""

from __future__ import annotations

import pickle
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turingas.assembler import assemble
from turingas.assembler.directives import DIRECTIVES
from turingas.cubin import elf
from turingas.cubin.cubin import Cubin
from turingas.cubin.elf import Elf
from turingas.cubin.model import Param
from turingas.errors import AsmError, AsmWarning, CubinError

ARCHS = ("sm_70", "sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_90a")
EXIT = "--:-:-:Y:5  EXIT;\n"
NOP = 0x000FC000000000000000000000007918


def kernel(body: str, arch: str = "sm_75", **options):
    """The one kernel of a source, read back from the bytes of its cubin."""
    (found,) = Cubin.from_bytes(assemble(body, arch, **options).to_bytes()).kernels
    return found


# -- code


@pytest.mark.parametrize("arch", ARCHS)
def test_code_ends_in_a_loop_and_nops(arch):
    words = kernel(EXIT, arch).words
    assert words[0] & 0xFFF == 0x94D and words[1] & 0xFFF == 0x947
    assert len(words) == (16 if arch.startswith("sm_90") else 8)
    assert set(words[2:]) == {NOP}


def test_what_ends_well_is_left_alone():
    body = "".join(f".word {word:#x}\n" for word in kernel(EXIT).words)
    assert kernel(body).words == kernel(EXIT).words
    assert len(kernel(".tail none\n" + EXIT).words) == 1


def test_labels_belong_to_their_kernel():
    body = "again:\n--:-:-:Y:5  BRA again;\n"
    cubin = assemble(".kernel a\n" + EXIT + body + ".kernel b\n" + body)
    assert cubin.kernel("a").words[1] == cubin.kernel("b").words[0]


def test_lines_before_the_first_kernel():
    cubin = assemble(EXIT + ".kernel other\n" + EXIT, kernel="first")
    assert [k.name for k in cubin.kernels] == ["first", "other"]
    assert kernel(EXIT).name == "kern"


def test_the_architecture_of_the_source_goes_first():
    assert assemble(".arch sm_90a\n" + EXIT, "sm_75").arch == "sm_90a"
    assert assemble(EXIT, "sm_80").arch == "sm_80"


# -- resources


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize(
    "line, registers",
    [
        ("EXIT", 2),
        ("MOV R5, R4", 8),
        ("MOV RZ, RZ", 2),
        ("LDS.128 R8, [R2]", 14),
        ("STS.64 [R2], R20", 24),
        ("MOV R254, RZ", 255),
    ],
)
def test_registers_are_counted(arch, line, registers):
    assert kernel(f"--:-:-:Y:5  {line};\n" + EXIT, arch).registers == registers


def test_registers_can_be_said():
    assert kernel(".registers 40\n" + EXIT).registers == 40
    with pytest.raises(AsmError, match="uses R19: 19 registers are too few"):
        assemble(".registers 19\n--:-:-:Y:5  MOV R19, RZ;\n" + EXIT)
    assert kernel(".registers 20\n--:-:-:Y:5  MOV R19, RZ;\n" + EXIT).registers == 20


def test_barriers_shared_memory_stack():
    found = kernel(".shared 4096\n.frame 16\n--:-:-:Y:5  BAR.SYNC 0x3;\n" + EXIT)
    assert (found.barriers, found.shared_bytes, found.frame_bytes, found.stack_bytes) == (4, 4096, 16, 16)
    assert kernel(".barriers 9\n.stack 64\n.max_stack 80\n" + EXIT).barriers == 9
    found = kernel(".barriers 9\n.stack 64\n.max_stack 80\n" + EXIT)
    assert (found.stack_bytes, found.max_stack_bytes) == (64, 80)


@pytest.mark.parametrize("arch, base", [("sm_70", 0x160), ("sm_75", 0x160), ("sm_86", 0x160), ("sm_90", 0x210)])
def test_parameters(arch, base):
    found = kernel(".param 4\n.param 8\n.param 1\n.param 12\n" + EXIT, arch)
    assert found.params == [Param(0, 4), Param(8, 8), Param(16, 1), Param(20, 12)]
    cubin = assemble(".param 4\n.param 8\n" + EXIT, arch)
    assert Elf.from_bytes(cubin.to_bytes()).section(".nv.constant0.kern").size == base + 16


def test_many_parameters():
    found = kernel(".param 8\n.param 20000 offset=8\n" + EXIT, "sm_90")
    assert found.params == [Param(0, 8), Param(8, 20000)]
    assert kernel(".param 8\n.param 8000\n" + EXIT, "sm_75").params == [Param(0, 8), Param(8, 8000)]


# -- data


def test_constants_have_their_values():
    cubin = assemble(".constant a 12\n.float 1.5 -2\n.long -1\n.constant b 8\n.double 0.1\n.constant c 3\n" + EXIT)
    read = Elf.from_bytes(cubin.to_bytes())
    assert bytes(read.section(".nv.constant3").data) == struct.pack("<ffi4xd3x", 1.5, -2, -1, 0.1)
    symbols = {s.name: (s.value, s.size) for s in read.symbols() if s.type == elf.STT_OBJECT}
    assert symbols == {"a": (0, 12), "b": (16, 8), "c": (24, 3)}


def test_banks_hold_addresses():
    found = kernel(".bank 2\n.long here there 7\n.bytes 0102\n.half 3\n" + EXIT + "here:\n" + EXIT + "there:\n" + EXIT)
    assert bytes(found.constants[2]) == struct.pack("<IIIHH", 16, 32, 7, 0x0201, 3)


def test_sections_symbols_relocations():
    source = """
    .kernel k
    .reloc R_CUDA_ABS32_LO_32 value
    --:-:-:Y:5  MOV R0, 0x0;
    .reloc 57 value 0x10
    --:-:-:Y:5  MOV R0, 0x0;
    --:-:-:Y:5  EXIT;
    .section .nv.global.init type=1 flags=3 align=8
    .quad 0x1122334455667788
    .zero 8
    .section .odd%23name type=1
    .bytes 00ff
    .section .rel.odd type=9 flags=0x40 align=8 entry=16 link=.symtab info=.odd%23name
    .row 0 R_CUDA_64 value
    .symbol value section=.nv.global.init value=8 size=8 type=object bind=global
    """
    read = Elf.from_bytes(assemble(source).to_bytes())
    names = [symbol.name for symbol in read.symbols()]
    assert bytes(read.section(".nv.global.init").data) == struct.pack("<QQ", 0x1122334455667788, 0)
    assert bytes(read.section(".odd#name").data) == b"\0\xff"
    (row,) = elf.relocations(read.section(".rel.odd"))
    assert (row.type, names[row.symbol]) == (2, "value")
    (row,) = elf.relocations(read.section(".rel.text.k"))
    assert (row.offset, row.type, names[row.symbol]) == (0, 56, "value")
    (row,) = elf.relocations(read.section(".rela.text.k"))
    assert (row.offset, row.type, names[row.symbol], row.addend) == (16, 57, "value", 16)


def test_attributes():
    found = kernel(
        ".info MAX_THREADS 256 1 1\n.info EIATTR_CRS_STACK_SIZE 0\n.info WMMA_USED flag\n.info NUM_BARRIERS byte 3\n"
        ".info MAXREG_COUNT absent\n.info 0xee hex 0102\n.info SYSCALL_OFFSETS here\n" + EXIT + "here:\n" + EXIT
    )
    seen = {info.name: info for info in found.attributes}
    assert seen["MAX_THREADS"].words == (256, 1, 1)
    assert (seen["WMMA_USED"].format, seen["NUM_BARRIERS"].format, seen["0xee"].value) == (1, 2, b"\1\2")
    assert seen["SYSCALL_OFFSETS"].words == (16,) and "MAXREG_COUNT" not in seen
    assert seen["EXIT_INSTR_OFFSETS"].words == (0, 16)


def test_the_third_dimension_of_the_grid_is_noted():
    def noted(arch, line):
        return "CTAIDZ_USED" in {info.name for info in kernel(f"--:-:0:Y:5  {line};\n" + EXIT, arch).attributes}

    assert noted("sm_75", "S2R R0, SR_CTAID.Z")
    assert not noted("sm_75", "S2R R0, SR_CTAID.X")
    assert not noted("sm_90", "S2R R0, SR_CTAID.Z")


# -- mistakes

MISTAKES = [
    (".arch sm_99\n", "unknown architecture 'sm_99'"),
    (".arch sm_80\n.arch sm_86\n" + EXIT, ".arch sm_86 comes after .arch sm_80"),
    (".nonsense 3\n" + EXIT, "unknown directive .nonsense"),
    (".regsters 3\n" + EXIT, "did you mean .registers"),
    (".kernel a\n" + EXIT + ".kernel a\n" + EXIT, "duplicate kernel a"),
    (".kernel\n" + EXIT, "takes a name"),
    (".kernel a colour=red\n" + EXIT, "unknown option colour="),
    (".registers many\n" + EXIT, "'many' is not a number"),
    (".registers 256\n" + EXIT, "at most 255 registers"),
    (".shared 1000000\n" + EXIT, "more than sm_75 has"),
    (".barriers 17\n" + EXIT, "16 barriers"),
    (".param\n" + EXIT, "write .param"),
    (".param 0\n" + EXIT, "take 1 to"),
    (".param 8\n.param 8 offset=4\n" + EXIT, "begins inside"),
    (".param x 5000\n" + EXIT, "4096"),
    (".constant a 4\n.constant a 4\n" + EXIT, "duplicate constant a"),
    (".constant a 4\n.long 1 2\n" + EXIT, "do not fit"),
    (".constant a 70000\n" + EXIT, "64 KB"),
    (".long 1\n" + EXIT, "belongs to nothing"),
    (".bank 0\n" + EXIT, "constant bank 0"),
    (".bank 2\n.long nowhere\n" + EXIT, "'nowhere' is not a number"),
    (".bank 2\n.byte 256\n" + EXIT, "out of range for 8 bits"),
    (".bank 2\n.bytes 0g\n" + EXIT, "hexadecimal"),
    (".bank 2\n.zero 99999999999\n" + EXIT, "bytes of data"),
    (".bank 2\n.float x\n" + EXIT, "could not convert"),
    (".word 0x1ffffffffffffffffffffffffffffffff\n", "128 bits"),
    (".info NO_SUCH 3\n" + EXIT, "unknown attribute NO_SUCH"),
    (".reloc R_CUDA_NONSENSE x\n" + EXIT, "unknown kind of relocation"),
    (".reloc R_CUDA_64 nowhere\n" + EXIT, "nowhere"),
    (".kernel a\n" + EXIT + ".reloc R_CUDA_64 a\n", "has no instruction"),
    (".section .x type=1\n" + EXIT, "in no kernel"),
    (".kernel a\n", "no instructions"),
    ("", "no instructions"),
    (".stack x\n" + EXIT, "'x' is not a number"),
    (".frame 99999999999\n" + EXIT, "out of range for 32 bits"),
    (".drop .strtab\n" + EXIT, "needs .strtab"),
    (".kernel a\n" + EXIT + ".drop .text.a\n", "needs .text.a"),
    (".section .x align=100000\n", "not a valid alignment"),
    (".elf colour=1\n" + EXIT, "unknown option colour="),
    (".kernel a\n" + EXIT + ".symbol x section=.nowhere\n", "nowhere"),
]


@pytest.mark.parametrize("source, message", MISTAKES)
def test_mistakes_are_refused(source, message):
    with pytest.raises(AsmError) as caught:
        assemble(source, filename="x.sass").to_bytes()
    assert message in str(caught.value)


def test_all_mistakes_are_reported_where_they_are():
    source = ".registers x\n" + EXIT + "--:-:-:Y:5  NONSENSE R0;\n.barriers 99\n--:9:-:Y:5  EXIT;\n"
    with pytest.raises(AsmError) as caught:
        assemble(source, filename="x.sass")
    places = [(error.file, error.line) for error in caught.value.errors]
    assert places == [("x.sass", line) for line in (1, 3, 4, 5)]
    column = {error.line: error.column for error in caught.value.errors}
    assert (column[1], column[3], column[4]) == (12, 13, 11)


ARGUMENTS = """0 1 -1 8 0x10 99999999999 k .text.k - %23 @3 R_CUDA_64 57 2 L none align=3 type=9 flags=6 size=auto
    section=.text.k value=L bind=weak info=5 link=.symtab info=.text.k offset=4 absent half hex 0011 .strtab .text.k@2
    a=b=c = size=8 entry=16 other=300 type=object MAX_THREADS""".split()


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.sampled_from([EXIT.strip(), "L:", ".kernel k", ".section .x type=1"]),
            st.builds(
                lambda name, arguments: f".{name} " + " ".join(arguments),
                st.sampled_from(sorted(DIRECTIVES)),
                st.lists(st.sampled_from(ARGUMENTS), max_size=5),
            ),
        ),
        max_size=8,
    )
)
def test_any_directives_give_a_cubin_or_an_error(lines):
    try:
        data = assemble("\n".join(lines)).to_bytes()
    except AsmError:
        return
    try:
        Cubin.from_bytes(data)
    except CubinError:
        assert any(line.startswith((".section", ".elf", ".symbol")) for line in lines)


# -- all mistakes at once


FAILED_BLOCK = """--:-:-:-:1  MOVV R0, R1;
--:-:-:-:1  BRA made_by_the_block;
<code>
x = 1 / 0
</code>
--:-:-:-:1  LDG.E.64.SYS R3, [R4];
"""


def test_a_failed_block_hides_no_other_mistake():
    """Nor is it blamed twice: the label may be what the block would have written."""
    with pytest.raises(AsmError) as caught:
        assemble(FAILED_BLOCK)
    assert [error.line for error in caught.value.errors] == [1, 4, 6]


def test_names_that_a_failed_block_may_have_declared_are_no_mistakes():
    """`turingas lint -D FILTERS=16` of kernels_sass/conv/methods/small.sass told 85 of them beside what was wrong."""
    text = ".kernel k\n<regs>\n{BASE} : tid\n</regs>\n--:-:-:-:1  MOV tid, RO;\n--:-:-:-:1  MOV R0, tid;\n" + EXIT
    with pytest.raises(AsmError) as caught:
        assemble("<code>\nBASE = 1 / 0\n</code>\n" + text)
    assert [error.line for error in caught.value.errors] == [2]
    with pytest.raises(AsmError) as caught:
        assemble("<code>\nBASE = 0\n</code>\n" + text)
    assert [error.message for error in caught.value.errors] == ["operand 'RO' does not fit MOV"]


def test_a_block_that_fails_alone_is_the_only_mistake():
    with pytest.raises(AsmError) as caught:
        assemble("<code>\nx = 1 / 0\n</code>\n")
    assert [error.line for error in caught.value.errors] == [2]


def test_an_unknown_label_is_named():
    with pytest.raises(AsmError, match="undefined label 'nowhere'"):
        assemble("--:-:-:-:1  BRA nowhere;\n" + EXIT)


def test_a_mnemonic_that_stands_for_another():
    """A message says what it calls the mnemonic that is written."""
    with pytest.raises(AsmError) as caught:
        assemble("STG.E [UR4], RO;\nEXIT;\n")
    error = caught.value.errors[0]
    assert error.message == "operand 'RO' does not fit STG.E.SYS"
    assert error.hint == "did you mean 'R0', with a digit?; STG.E stands for STG.E.SYS here"


def test_a_warning_goes_to_another_process():
    """With what it is about, and with its text."""
    warning = AsmWarning(AsmError("odd", "a.sass", 3, hint="mend it"))
    again = pickle.loads(pickle.dumps(warning))
    assert str(again) == str(warning) == "a.sass:3: warning: odd\nhint: mend it"
    assert again.about.line == 3
