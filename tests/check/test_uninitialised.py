"""Registers that nothing writes, names that nothing uses, local memory in loops, and the author's names in findings."""

from __future__ import annotations

import pytest

import turingas
from tests.cubin import cubins
from turingas.check import uninitialised
from turingas.flow.graph import Graph

EXIT = "--:-:-:Y:5 EXIT;"
STORE = "--:-:-:-:1 STS [RZ], R0;"


def found(source, *kinds):
    cubin = turingas.assemble(source)
    return [one for one in turingas.lint(cubin) if one.kind in (kinds or ("uninitialised",))]


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("IADD3 R0, R7, 0x1, RZ", ["R7"]),
        ("IMAD.WIDE R0, R7, 0x4, R4", ["R4", "R5", "R7"]),
        ("IADD3 R0, R0, 0x1, RZ", ["R0"]),  # a sum that nothing has set to zero
        ("@P3 MOV R0, RZ", ["P3"]),
        ("SEL R0, RZ, 0x1, !P2", ["P2"]),
        ("MOV R0, UR6", ["UR6"]),
    ],
)
def test_nothing_writes_it(line, names):
    told = found(f"--:-:-:-:8 {line};\n{STORE}\n{EXIT}")
    assert sorted(one.message.split()[0] for one in told if one.severity == "warning") == names
    assert {one.address for one in told if one.severity == "warning"} == {0}


def test_written_later_counts_for_nothing():
    told = found(f"--:-:-:-:8 IADD3 R0, R7, 0x1, RZ;\n--:-:-:-:8 MOV R7, RZ;\n{STORE}\n{EXIT}")
    assert [one.severity for one in told] == ["warning"]


def test_in_vain():
    """A copy that nobody reads before its register is written again, as ptxas leaves them behind, and one that is."""
    copy, again = "--:-:-:-:8 IMAD.MOV.U32 R0, RZ, RZ, R7;\n", f"--:-:-:-:8 MOV R0, RZ;\n{STORE}\n{EXIT}"
    assert found(copy + again) == []
    for between in (STORE, "--:-:-:-:8 IADD3 R2, R0, 0x1, RZ;"):
        assert [one.severity for one in found(f"{copy}{between}\n{again}")] == ["warning"]
    guarded = found(copy + "--:-:-:-:8 @P0 MOV R0, RZ;\n" + STORE + "\n" + EXIT)
    assert [one.severity for one in guarded if "R7" in one.message] == ["warning"]


def test_copies_of_what_nobody_needs():
    """cuSPARSE 12 for sm_89 and sm_121, cuBLASLt for sm_120: pairs are copied of which one half has no value."""
    end = f"--:-:-:-:5 @P0 EXIT;\n{{}}\n{STORE}\n{EXIT}"

    def warned(line, rest):
        start = ".arch sm_120\n--:-:-:Y:d ISETP.EQ.AND P0, PT, RZ, RZ, PT;\n--:-:-:-:8"
        told = found(f"{start} {line};\n{end.format(rest)}")
        return [one.message.split()[0] for one in told if one.severity == "warning"]

    later = "--:-:-:-:8 MOV R16, 0x1;\n--:-:-:-:8 MOV R0, R16;"
    for line in ("MOV R16, R4", "IMAD.MOV.U32 R16, RZ, RZ, R4"):
        assert warned(line, later) == []
        assert warned(line, "--:-:-:-:8 MOV R0, R16;") == ["R4"]
        assert warned(line, "--:-:-:-:8 MOV R17, R16;\n--:-:-:-:8 MOV R0, RZ;") == []  # nobody needs that copy, either
        assert warned(line, "--:-:-:-:8 IADD3 R0, R16, 0x1, RZ;") == ["R4"]
    half = "MOV R8, RZ;\n--:-:-:-:8 MOV.64 R16, R8"
    assert warned(half, "--:-:-:-:8 MOV R0, R16;") == []
    assert warned(half, "--:-:-:-:8 MOV R0, R17;") == ["R9"]
    assert warned("IADD3 R16, R4, 0x1, RZ", later) == ["R4"]  # no copy


def test_a_path_is_named():
    source = f"""
--:-:-:Y:d ISETP.LT.AND P0, PT, RZ, c[0x0][0x0], PT;
--:-:-:Y:5 @P0 BRA over;
--:-:-:Y:8 MOV R0, RZ;
over:
{STORE}
{EXIT}"""
    (told,) = found(source)
    assert (told.severity, told.address) == ("note", 0x30)
    assert told.message == "R0 is read, and on a path nothing has written it: the branch at line 3 is taken"


@pytest.mark.parametrize("wrong", [False, True])
def test_guards(wrong):
    """A read under the guard of the write is none; one under the opposite is."""
    source = f"""
--:-:-:Y:d ISETP.LT.AND P0, PT, RZ, c[0x0][0x0], PT;
--:-:-:Y:8 @P0 MOV R0, RZ;
--:-:-:-:1 @{"!" if wrong else ""}P0 STS [RZ], R0;
{EXIT}"""
    assert [one.severity for one in found(source)] == ["note"] * wrong


def test_branches_on_the_guard():
    source = f"""
--:-:-:Y:d ISETP.LT.AND P0, PT, RZ, c[0x0][0x0], PT;
--:-:-:Y:8 @P0 MOV R0, RZ;
--:-:-:Y:5 @!P0 BRA over;
{STORE}
over:
{EXIT}"""
    assert not found(source)
    assert found(source.replace("@!P0 BRA", "@P0 BRA"))


def test_calls():
    source = f"""
--:-:-:Y:6 MOV R20, 0x30;
--:-:-:Y:6 MOV R21, RZ;
--:-:-:-:5 CALL.REL.NOINC f;
{STORE}
{EXIT}
f:
--:-:-:-:8 MOV R0, {{}};
--:-:-:-:5 RET.REL.NODEC R20 0x0;
"""
    assert not found(source.format("RZ"))
    (told,) = found(source.format("R3"))
    assert told.severity == "warning" and told.address == 0x50


def test_parts_of_registers():
    """What replaces some bits of a register is its first write, as compiled code has it."""
    assert not found(f"--:-:-:-:8 PRMT R0, RZ, 0x7610, R0;\n{STORE}\n{EXIT}")
    assert found(f"--:-:-:-:8 PRMT R0, RZ, 0x7610, R1;\n{STORE}\n{EXIT}")


def test_device_functions_have_arguments():
    assert not found(f".function f\n--:-:-:-:8 MOV R0, R4;\n{STORE}\n--:-:-:-:5 RET.ABS.NODEC R20 0x0;")


def test_compiled_code_has_no_warning():
    count = 0
    for _, data in cubins.compiled():
        for kernel in turingas.Cubin.from_bytes(data).texts:
            count += 1
            assert not [one for one in uninitialised.check(Graph(kernel)) if one.severity != "note"]
    assert count or not list(cubins.compiled())


NAMES = """
<regs>
0 : lo
2-3 : to<0-1>
4 : hi
5 : nobody
P0 : small
</regs>
--:-:-:-:1 MOV lo, RZ;
--:-:-:-:8 FADD hi, lo, 1;
--:-:-:Y:d ISETP.LT.AND small, PT, hi, 0x3, PT;
--:-:-:-:8 IMAD.WIDE to0, hi, 0x4, RZ;
--:-:-:-:1 @small STG.E [to0], hi;
--:-:-:Y:5 EXIT;
"""


def test_names_of_the_author():
    (told,) = found(NAMES, "raw-stall")
    assert told.message == "lo (R0) is read 1 cycle after it is written; that takes 5"
    assert (told.text, told.other_text) == ("FADD hi, lo, 1", "MOV lo, RZ")
    assert turingas.assemble(NAMES).kernels[0].names["P0"] == "small"


def test_names_that_nothing_uses():
    """to1 is a part of what to0 begins."""
    (told,) = found(NAMES, "unused-name")
    assert (told.message, told.line, told.severity) == ("nobody is declared and never used", 6, "note")


def test_names_of_several_kernels():
    common = f"<regs>\n0 : mine\n</regs>\n.kernel a\n--:-:-:-:8 MOV mine, RZ;\n{EXIT}\n.kernel b\n{EXIT}"
    assert not found(common, "unused-name")


def test_spills():
    source = """
.frame 16
--:-:-:-:8 MOV R1, RZ;
--:-:0:-:2 LDL R3, [R1];
top:
01:-:1:-:2 LDL R2, [R1];
02:-:-:Y:d ISETP.LT.AND P0, PT, R2, R3, PT;
--:-:-:-:1 STL [R1+0x4], R2;
--:-:-:Y:5 @P0 BRA top;
--:-:-:Y:5 EXIT;
"""
    (told,) = found(source, "spill")
    assert told.message == "1 load and 1 store of local memory in a loop of depth 1" and told.address == 0x20
    assert not found(source.replace("@P0 BRA top", "NOP"), "spill")


@pytest.mark.parametrize("line", ["UP2UR UR4, UPR, URZ, 0x7f", "P2R R0, PR, RZ, 0x7f", "USEL UR4, UR5, URZ, UPT"])
def test_what_need_not_be_written(line):
    """All predicates are moved, whichever are needed; what is not selected does not matter (ptxas 13.5, sm_100a)."""
    assert not found(f"--:-:-:-:8 {line};\n{STORE.replace('R0', 'RZ')}\n{EXIT}")


def test_half_of_a_pair_that_is_put_away():
    """ptxas spills pairs of which it has written one half (13.5, sm_120a, -maxrregcount=24)."""
    code = "--:-:-:-:8 MOV R4, 0x1;\n--:-:-:-:8 MOV R1, 0x8;\n--:-:-:-:1 STL.64 [R1+0x20], R4;\n"
    assert not found(code + EXIT)
    assert found(code.replace("[R1", "[R7") + EXIT)
