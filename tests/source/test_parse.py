"""Lines, labels, directives, names and TuringAs's spellings."""

import time

import pytest

from turingas.source import Directive, Instruction, Label, read
from turingas.source.dialect import Dialect

C = "--:-:-:-:2  "


def bodies(source, arch="sm_75", **options):
    parsed = read(source, "k.sass", arch, **options)
    assert not parsed.errors, str(parsed.errors[0])
    return [item.body for item in parsed.items if isinstance(item, Instruction)]


def errors(source, arch="sm_75", **options):
    return read(source, "k.sass", arch, **options).errors


def one(source, **options):
    found = errors(source, **options)
    assert len(found) == 1, [str(error) for error in found]
    return found[0]


# Lines


@pytest.mark.parametrize(
    "line, control, body",
    [
        ("01:-:2:Y:4  NOP;", "01:-:2:Y:4", "NOP"),
        ("  01:-:2:y:4\tNOP", "01:-:2:y:4", "NOP"),
        ("--:-:-:-:2  @!P0 BRA  LOOP ;", "--:-:-:-:2", "@!P0 BRA LOOP"),
        ("--:-:-:-:2 @P0   EXIT;  anything behind", "--:-:-:-:2", "@P0 EXIT"),
        ("B0-----:R-:W0:Y:S04 NOP;", "B0-----:R-:W0:Y:S04", "NOP"),
        ("[B------:R-:W-:-:S02] /*0000*/ MOV R1, c[0x0][0x28] ;", "[B------:R-:W-:-:S02]", "MOV R1, c[0x0][0x28]"),
        ("--:-:-:-:- IADD3 R0, R1, R2, RZ;", "--:-:-:-:4", "IADD3 R0, R1, R2, RZ"),
        ("--:-:-:-:- LDG.E.SYS R0, [R2];", "--:-:-:-:1", "LDG.E.SYS R0, [R2]"),
        ("--:-:-:Y:- R2P PR, R0, 0x7f;", "--:-:-:Y:c", "R2P PR, R0, 0x7f"),
        ("--:-:-:- NOP;", "--:-:-:-", "NOP"),
        ("1:2 NOP;", None, None),
    ],
)
def test_line(line, control, body):
    parsed = read(line)
    if control is None:
        assert parsed.errors
        return
    [item] = parsed.items
    assert (item.control, item.body) == (control, body)


def test_missing_control_code():
    [item] = read("\n   FADD R0, R1, R2;").items
    assert item.control == ""  # the assembler fills it in
    [item] = read("?:-:0:-:?  LDG.E R0, [R2];").items
    assert item.control == "?:-:0:-:?"
    [item] = read("FADD R0, R1, R2;", default_control="--:-:-:Y:4").items
    assert item.control == "--:-:-:Y:4"


@pytest.mark.parametrize(
    "line, column, message",
    [
        (C + "NOP; NOP;", 17, "two instructions"),
        ("  ???", 3, "neither an instruction"),
        ("01:-:2:Y:4", 1, "without an instruction"),
        ("01:-:2:Y:4 ;", 1, "without an instruction"),
        ("<foo>", 2, "no block <foo>"),
        ("<reg>", 2, "no block <reg>"),
        ("</regs>", 0, "closes nothing"),
        ("<regs>\n0 : a", 0, "<regs> is never closed"),
        ("<regs>\n0 : a\n</regs> NOP;", 0, "text after </regs>"),
        ("1abc: NOP;", 1, "neither an instruction"),
        ("LDG..E R0, [R2];", 1, "neither an instruction"),
    ],
)
def test_broken_line(line, column, message):
    error = one(line)
    assert message in error.message
    assert error.column == column


def test_near_block_is_suggested():
    assert one("<reg>").hint == "did you mean <regs>?"
    assert "<code>" in one("<xyzzy>").hint


def test_every_line_is_reported():
    assert [error.line for error in errors("NOP;\n???\n<x>\n" + C + "NOP;\nNOP;")] == [2, 3]


# Labels


def test_labels():
    items = read(f"LOOP:\n.L_x_0: # c\nA$b.c: {C}NOP;\n{C}BRA LOOP;\n{C}BRA `(.L_x_0);").items
    assert [item.name for item in items if isinstance(item, Label)] == ["LOOP", ".L_x_0", "A$b.c"]
    assert [item.body for item in items if isinstance(item, Instruction)] == ["NOP", "BRA LOOP", "BRA `(.L_x_0)"]


def test_doubled_label():
    error = one("A:\nB:\n  A:")
    assert (error.line, error.column, error.hint) == (3, 3, "first at k.sass:1")
    assert not errors(".kernel x\nA:\n.kernel y\nA:")


def test_label_that_is_a_name():
    assert "label and a register" in one("<regs>\n0 : A\n</regs>\nA:").message


# Directives


def test_directives():
    items = read('.kernel foo, bar "a, b;" x=1 ;\n.word 0x12\n.registers 40').items
    assert [(item.name, item.args) for item in items] == [
        ("kernel", ("foo", "bar", '"a, b;"', "x=1")),
        ("word", ("0x12",)),
        ("registers", ("40",)),
    ]
    error = items[0].error("bad", at="bar")
    assert (error.line, error.column) == (1, 14)


# Names


HEAD = """<params>
input, 8 # name, size
n, 4
output, 8
</params>
<REGS>
0-3 : a<0-3>
4, 6-7 : x, y, z
10-20 ~ lo<1-2>_w, hi
P3 : cond
UR4-5 : base<0-1>
</REGS>
<consts>
table, 8
more, 16, 16 = 1, -2
</consts>
<smem> 0x400 </smem>
"""


@pytest.mark.parametrize(
    "text, body",
    [
        ("FFMA a0, -a1.reuse, |a2|, a3;", "FFMA R0, -R1.reuse, |R2|, R3"),
        ("IADD3 lo1_w, lo2_w, hi, z;", "IADD3 R10, R11, R12, R7"),
        ("MOV a0, input[0];", "MOV R0, c[0x0][0x160]"),
        ("MOV a0, input[1];", "MOV R0, c[0x0][0x164]"),
        ("MOV a0, n;", "MOV R0, c[0x0][0x168]"),
        ("MOV a0, -output[1];", "MOV R0, -c[0x0][0x170]"),
        ("MOV a0, table[2];", "MOV R0, c[0x3][0x8]"),
        ("MOV a0, more;", "MOV R0, c[0x3][0x10]"),
        ("MOV a0, c[0x0][0x28];", "MOV R0, c[0x0][0x28]"),
        ("MOV a0, c[0x3][a1];", "MOV R0, c[0x3][R1]"),
        ("LDG.E.SYS x, [a0+0x10];", "LDG.E.SYS R4, [R0+0x10]"),
        ("LDG.E.SYS x, [a0.64+base1+0x10];", "LDG.E.SYS R4, [R0.64+UR5+0x10]"),
        ("STG.E.SYS desc[base0][a0.64], x;", "STG.E.SYS desc[UR4][R0.64], R4"),
        ("@!cond MOV x, y;", "@!P3 MOV R4, R6"),
        ("@cond BRA x_done;", "@P3 BRA x_done"),
        ("ISETP.LT.AND cond, PT, x, y, !cond;", "ISETP.LT.AND P3, PT, R4, R6, !P3"),
        ("S2R x, SR_TID.X;", "S2R R4, SR_TID.X"),
        ("S2R x, threadIdx.x;", "S2R R4, SR_TID.X"),
        ("S2R x, blockIdx.z;", "S2R R4, SR_CTAID.Z"),
        ("IMAD x, y, blockDim.x, z;", "IMAD R4, R6, c[0x0][0x0], R7"),
        ("MOV x, gridDim.z;", "MOV R4, c[0x0][0x14]"),
        ("BRA `(a0);", "BRA `(a0)"),
        ("MOV R9, xyz;", "MOV R9, xyz"),
    ],
)
def test_names(text, body):
    assert bodies(HEAD + C + text) == [body]


def test_parameters_start_where_the_architecture_has_them():
    assert bodies(HEAD + C + "MOV a0, input;", "sm_90") == ["MOV R0, c[0x0][0x210]"]


def test_builtins_need_no_block():
    assert bodies(C + "MOV R0, blockDim.y;") == ["MOV R0, c[0x0][0x4]"]


def test_names_may_be_declared_behind_their_use():
    assert bodies(C + "MOV a, RZ;\n<regs>\n9 : a\n</regs>") == ["MOV R9, RZ"]


def test_name_that_is_also_the_constant_bank():
    assert bodies(f"<regs>\n8 : c\n</regs>\n{C}MOV c, c[0x0][0x4];") == ["MOV R8, c[0x0][0x4]"]


def test_blocks_become_directives():
    items = [item for item in read(HEAD).items if isinstance(item, Directive)]
    assert [(item.name, item.args) for item in items] == [
        ("constant", ("table", "8", "offset=0")),
        ("constant", ("more", "16", "offset=16")),
        ("long", ("1", "-2")),
        ("param", ("input", "8", "offset=0")),
        ("param", ("n", "4", "offset=8")),
        ("param", ("output", "8", "offset=12")),
        ("shared", ("0x400",)),
    ]


def test_alignment_of_a_parameter():
    source = f"<params>\nn, 4\np, 8, 8\n</params>\n{C}MOV R0, p;"
    assert bodies(source) == ["MOV R0, c[0x0][0x168]"]


def test_blocks_may_be_generated():
    source = f"<regs>\n<code>\nout_ = '0-{{N}} : a<0-{{N}}>'\n</code>\n</regs>\n{C}MOV a{{N}}, RZ;"
    assert bodies(source, defines={"N": 5}) == ["MOV R5, RZ"]


def test_block_on_one_line():
    assert bodies(f"<regs> 7 : seven </regs>\n{C}MOV seven, RZ;") == ["MOV R7, RZ"]


@pytest.mark.parametrize(
    "block, message",
    [
        ("<regs>\n0-3 : a, b\n</regs>", "4 registers for 2 names"),
        ("<regs>\n0 ~ a, b\n</regs>", "1 registers for 2 names"),
        ("<regs>\n0, 1\n</regs>", "registers : names"),
        ("<regs>\n0 : a : b\n</regs>", "registers : names"),
        ("<regs>\n0 : a\n1 : a\n</regs>", "duplicate name a"),
        ("<regs>\n0 : R5\n</regs>", "a name of the hardware's"),
        ("<regs>\n0 : SR_x\n</regs>", "a name of the hardware's"),
        ("<regs>\n0 : 1a\n</regs>", "not a valid name"),
        ("<regs>\n255 : a\n</regs>", "R255 is out of range"),
        ("<regs>\nP7 : a\n</regs>", "P7 is out of range"),
        ("<regs>\n9-3 : a\n</regs>", "backwards"),
        ("<regs>\nx : a\n</regs>", "not a register number"),
        ("<regs>\n0-3 : a<3-0>\n</regs>", "empty or too long"),
        ("<regs>\n0 ~ a<0-99999999999>\n</regs>", "empty or too long"),
        ("<params>\na\n</params>", "name, bytes"),
        ("<params>\na, 6\n</params>", "not a multiple of 4"),
        ("<params>\na, 0\n</params>", "not a multiple of 4"),
        ("<params>\na, x\n</params>", "a number of bytes"),
        ("<params>\na, 8, 3\n</params>", "not a valid alignment"),
        ("<params>\na, 8\na, 8\n</params>", "duplicate name a"),
        ("<regs>\n0 : a\n</regs>\n<params>\na, 8\n</params>", "duplicate name a"),
        ("<consts>\na, 4 = 1, 2\n</consts>", "do not fit"),
        ("<consts>\na, 4 = x\n</consts>", "not a 32-bit word"),
        ("<smem>lots</smem>", "a number of bytes"),
        ("<smem>4</smem>\n<smem>4</smem>", "duplicate <smem>"),
    ],
)
def test_broken_block(block, message):
    error = one(block)
    assert message in error.message
    assert error.line > 0


def test_misuse_of_names():
    head = "<params>\np, 8\n</params>\n<regs>\n0 : r\n</regs>\n"
    assert "is out of range: p has" in one(head + C + "MOV r, p[3];").message
    assert bodies(head + C + "MOV r, p[2];")  # one past the end: TuringAs (2020) lets it pass
    error = one(head + C + "MOV r[1], RZ;")
    assert "cannot be indexed" in error.message and (error.line, error.column) == (7, 17)


def test_undeclared_name_is_explained():
    [item] = read(C + "MOV R0, foo;").items
    error = item.error("operand 'foo' does not fit MOV", 8, "it is written MOV")
    assert error.column == 21 and "is foo a name?" in error.hint
    [item] = read(f"<regs>\n2 : weight\n</regs>\n{C}MOV R0, weigth;").items
    assert item.error("operand 'weigth' does not fit MOV", 8, "it is written MOV").hint == "did you mean 'weight'?"


# Several kernels


def test_scopes():
    source = f"""<regs>
0 : a
</regs>
<params>
p, 8
</params>
.arch sm_75
.kernel one
<regs>
1 : b
</regs>
{C}MOV a, b;
.kernel two
<regs>
2 : b
</regs>
<params>
q, 4
</params>
{C}MOV b, q;
.function three
{C}MOV a, p;
"""
    parsed = read(source)
    assert not parsed.errors
    shown = [item.body if isinstance(item, Instruction) else (item.name, *item.args) for item in parsed.items]
    assert shown == [
        ("arch", "sm_75"),
        ("kernel", "one"),
        ("param", "p", "8", "offset=0"),
        "MOV R0, R1",
        ("kernel", "two"),
        ("param", "p", "8", "offset=0"),
        ("param", "q", "4", "offset=8"),
        "MOV R2, c[0x0][0x168]",
        ("function", "three"),
        "MOV R0, c[0x0][0x160]",
    ]


# TuringAs's own readings


def test_wait_masks_are_decimal_in_a_turingas_file():
    [item] = read("<regs>\n</regs>\n15:-:-:-:4 NOP;").items
    assert item.control == "0x0f:-:-:-:4"
    for source in ("15:-:-:-:4 NOP;", "<regs>\n</regs>\n.kernel k\n15:-:-:-:4 NOP;"):
        assert read(source).items[-1].control == "15:-:-:-:4"


def test_clock_has_32_bits_in_a_turingas_file():
    assert bodies(f"<regs>\n</regs>\n{C}CS2R R5, SR_CLOCKLO;\n{C}CS2R R4, SRZ;") == [
        "CS2R.32 R5, SR_CLOCKLO",
        "CS2R R4, SRZ",
    ]
    assert bodies(f"{C}CS2R R4, SR_CLOCKLO;") == ["CS2R R4, SR_CLOCKLO"]


@pytest.mark.parametrize(
    "written, sm75, sm80",
    [
        ("LDG.E R4, [R0]", "LDG.E.SYS R4, [R0]", "LDG.E R4, [R0]"),
        ("LDG.E.32.STRONG.CTA R4, [R0]", "LDG.E.STRONG.CTA R4, [R0]", "LDG.E.STRONG.SM R4, [R0]"),
        ("LDG.E.128.CONSTANT R4, [R0]", "LDG.E.128.CONSTANT.SYS R4, [R0]", "LDG.E.128.CONSTANT R4, [R0]"),
        ("LDG.E.128.CONSTANT.GPU R4, [R0]", "LDG.E.128.CONSTANT.GPU R4, [R0]", "LDG.E.128.CONSTANT.GPU R4, [R0]"),
        ("STG.E.SYS [R2], R4", "STG.E.SYS [R2], R4", "STG.E [R2], R4"),
        ("STG.E.GPU.STRONG [R2], R4", "STG.E.STRONG.GPU [R2], R4", "STG.E.STRONG.GPU [R2], R4"),
        ("STG.E.128 [R2], R4", "STG.E.128.SYS [R2], R4", "STG.E.128 [R2], R4"),
        ("LDS.U.32 R4, [R0]", "LDS.U R4, [R0]", "LDS R4, [R0]"),
        ("STS.32 [R0], R4", "STS [R0], R4", "STS [R0], R4"),
        ("LDC.E R4, c[0x3][0x4]", "LDC R4, c[0x3][0x4]", "LDC R4, c[0x3][0x4]"),
        ("LDC.64 R4, c[0x3][0x0]", "LDC.64 R4, c[0x3][RZ]", "LDC.64 R4, c[0x3][RZ]"),
        ("LDS R4, [R0 + 0x10]", "LDS R4, [R0+0x10]", "LDS R4, [R0+0x10]"),
        ("LDS R4, [R0 - 16]", "LDS R4, [R0+-16]", "LDS R4, [R0+-16]"),
        ("MOV R4, c[0x0] [0x28]", "MOV R4, c[0x0][0x28]", "MOV R4, c[0x0][0x28]"),
        ("LDSM.16.M88.1 R4, [R0]", "LDSM.16.M88 R4, [R0]", "LDSM.16.M88 R4, [R0]"),
        ("SHF.L R0, R1, 2, RZ", "SHF.L.U32 R0, R1, 2, RZ", "SHF.L.U32 R0, R1, 2, RZ"),
        ("SHF.R.HI R0, RZ, 2, R1", "SHF.R.U32.HI R0, RZ, 2, R1", "SHF.R.U32.HI R0, RZ, 2, R1"),
        ("SHF.R.S32.HI R0, RZ, 2, R1", "SHF.R.S32.HI R0, RZ, 2, R1", "SHF.R.S32.HI R0, RZ, 2, R1"),
        ("IMAD.S32 R0, R1, R2, R3", "IMAD R0, R1, R2, R3", "IMAD R0, R1, R2, R3"),
        ("IMAD.WIDE.S32 R0, R2, R3, R4", "IMAD.WIDE R0, R2, R3, R4", "IMAD.WIDE R0, R2, R3, R4"),
        ("ISETP.LT.S32.AND P0, PT, R1, R2, PT", "ISETP.LT.AND P0, PT, R1, R2, PT", "ISETP.LT.AND P0, PT, R1, R2, PT"),
        ("IADD3.X R0, R1, R2, RZ, P0", "IADD3.X R0, R1, R2, RZ, P0, !PT", "IADD3.X R0, R1, R2, RZ, P0, !PT"),
        ("IADD3.X R0, R1, R2, RZ", "IADD3.X R0, R1, R2, RZ, !PT, !PT", "IADD3.X R0, R1, R2, RZ, !PT, !PT"),
        ("UIADD3.X UR0, UR1, UR2, URZ, UP0", "UIADD3.X UR0, UR1, UR2, URZ, UP0, !UPT",
         "UIADD3.X UR0, UR1, UR2, URZ, UP0, !UPT"),
        ("LOP3.LUT R0, R1, R2, RZ, 0xc0", "LOP3.LUT R0, R1, R2, RZ, 0xc0, !PT", "LOP3.LUT R0, R1, R2, RZ, 0xc0, !PT"),
        ("LOP3.LUT P0, R0, R1, R2, RZ, 0xc0, P1", "LOP3.LUT P0, R0, R1, R2, RZ, 0xc0, P1",
         "LOP3.LUT P0, R0, R1, R2, RZ, 0xc0, P1"),
        ("BMMA.88128.POPC R0, R6.ROW, R7.COL, R0", "BMMA.88128.XOR.POPC R0, R6.ROW, R7.COL, R0",
         "BMMA.88128.XOR.POPC R0, R6.ROW, R7.COL, R0"),
        ("P2R R0, PR, 0x7f", "P2R R0, PR, RZ, 0x7f", "P2R R0, PR, RZ, 0x7f"),
        ("P2R R0, PR, R1, 0x7f", "P2R R0, PR, R1, 0x7f", "P2R R0, PR, R1, 0x7f"),
        ("RED.E.ADD.U32 [R2], R4", "RED.E.ADD.SYS [R2], R4", "RED.E.ADD [R2], R4"),
        ("RED.E.ADD.F32.STRONG.GPU [R2], R4", "RED.E.ADD.F32.FTZ.RN.STRONG.GPU [R2], R4",
         "RED.E.ADD.F32.FTZ.RN.STRONG.GPU [R2], R4"),
        ("I2F.F32.S32 R0, R1", "I2F R0, R1", "I2F R0, R1"),
        ("F2I.F32.U32.TRUNC R0, R1", "F2I.U32.TRUNC R0, R1", "F2I.U32.TRUNC R0, R1"),
        ("LDG.E.64.STRONG.GPU.PRIVATE R4, [R0]", "LDG.E.64.STRONG.GPU.PRIVATE R4, [R0]",
         "LDG.E.64.STRONG.GPU.PRIVATE R4, [R0]"),
    ],
)  # fmt: skip
def test_spellings(written, sm75, sm80):
    assert bodies(C + written + ";", "sm_75") == [sm75]
    assert bodies(C + written + ";", "sm_80") == [sm80]


def test_nvdisasm_spelling_is_left_alone():
    dialect = Dialect(75, False)
    for mnemonic in (
        "LDG.E.128.CONSTANT.SYS",
        "SHF.L.W.U32.HI",
        "IMAD.MOV.U32",
        "HMMA.1688.F32",
        "LDS.U.128",
        "LDG.E.U.128.CONSTANT.SYS",
        "CS2R",
    ):
        assert dialect[mnemonic][0] == mnemonic


# Speed


def test_five_thousand_lines_are_fast():
    source = (
        "<regs>\n0-63 : c<0-63>\n64-71 : a<0-7>\n</regs>\n<code>\nout = []\nfor k in range(5000):\n"
        "  out.append(f'--:-:-:-:1 FFMA c{k%64}, a{k%8}, a{k//8%8}, c{k%64};')\nout_ = '\\n'.join(out)\n</code>\n"
    )
    read(source)
    started = time.perf_counter()
    parsed = read(source)
    took = time.perf_counter() - started
    assert len(parsed.items) == 5000 and not parsed.errors
    assert took < 0.5  # about 0.04 s; the rest is patience with slow machines
