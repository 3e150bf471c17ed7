"""Decoded instructions: which registers each reads and writes. What is expected was written down by hand, from what
they do (PTX ISA) and from how ptxas uses them: the registers that it fills before, and those that it reads after.
"""

from __future__ import annotations

import pytest

import turingas
from tests.cubin import cubins
from turingas.cubin.cubin import Cubin
from turingas.isa.instruction import Access, Instruction, instruction
from turingas.isa.isa import instruction_set

CONTROL = "--:-:-:Y:1"


def decoded(text: str, arch: str) -> Instruction:
    (word,) = turingas.encode(text + ";", arch=arch, default_control=CONTROL)
    found = instruction(instruction_set(arch), word)
    assert found is not None
    return found


def shown(accesses: tuple[Access, ...]) -> str:
    return " ".join(f"{a.file}{a.first}" + (f":{a.count}" if a.count > 1 else "") for a in accesses)


#: architecture, instruction, what it reads (first register : how many), what it writes
CASES = """
sm_75 | FFMA R0, R1, R2, R3                          | R1 R2 R3      | R0
sm_75 | @!P2 FADD R4, -R5, c[0x0][0x160]              | P2 R5         | R4
sm_75 | MOV R4, RZ                                    |               | R4
sm_75 | IADD3 R2, P0, P1, R3, R4, R5                  | R3 R4 R5      | R2 P0 P1
sm_75 | IADD3.X R2, R3, R4, RZ, P0, !PT               | R3 R4 P0      | R2
sm_75 | IMAD.WIDE R4, R2, R3, c[0x0][0x160]           | R2 R3         | R4:2
sm_75 | IMAD.WIDE.U32 R4, P3, R2, R3, R6              | R2 R3 R6:2    | R4:2 P3
sm_75 | IMAD.HI.U32 R4, R2, R3, R6                    | R2 R3 R6:2    | R4
sm_90 | IMAD.WIDE.U32 R8, R3, R10, UR4                | R3 R10 UR4:2  | R8:2
sm_75 | DFMA R4, R6, R8, R10                          | R6:2 R8:2 R10:2 | R4:2
sm_90 | DADD R4, R6, UR8                              | R6:2 UR8:2    | R4:2
sm_75 | DSETP.LT.AND P0, PT, R2, R4, !P1              | R2:2 R4:2 P1  | P0
sm_75 | F2F.F32.F64 R0, R2                            | R2:2          | R0
sm_75 | F2F.F64.F32 R2, R0                            | R0            | R2:2
sm_90 | F2F.BF16.F64 R15, UR4                         | UR4:2         | R15
sm_75 | I2F.S64 R0, R4                                | R4:2          | R0
sm_75 | LOP3.LUT P0, R0, R1, R2, R3, 0x96, !PT        | R1 R2 R3      | P0 R0
sm_75 | PLOP3.LUT P0, P1, P2, P3, PT, 0x80, 0x8       | P2 P3         | P0 P1
sm_75 | P2R R0, PR, RZ, 0x41                          | P0 P6         | R0
sm_75 | R2P PR, R3, 0x6                               | P0 P3 P4 P5 P6 R3 | P1 P2
sm_75 | R2P PR, R3, R4                                | R3 R4         | P0:7
sm_75 | UP2UR UR16, UPR, URZ, 0x8                     | UP3           | UR16
sm_75 | SHF.R.U64 R2, R3, R4, R5                      | R3 R4 R5      | R2
sm_75 | HMMA.1688.F32 R4, R8, R10, R12                | R8:2 R10 R12:4 | R4:4
sm_90 | HMMA.16816.F32 R4, R8, R12, R16               | R8:4 R12:2 R16:4 | R4:4
sm_90 | HMMA.16816.F16 R4, R8, R12, R16               | R8:4 R12:2 R16:2 | R4:2
sm_75 | LDS.U.128 R4, [R2+0x10]                       | R2            | R4:4
sm_75 | LDG.E.64.SYS R4, [R2]                         | R2:2          | R4:2
sm_75 | LDG.E.64.SYS R4, [R2.U32+UR6]                 | R2 UR6:2      | R4:2
sm_80 | LDG.E.128 R4, desc[UR8][R2.64]                | R2:2 UR8:2    | R4:4
sm_75 | STG.E.128.SYS [R2], R4                        | R2:2 R4:4     |
sm_75 | STS [R2.X4+UR5], R4                           | R2 UR5 R4     |
sm_80 | LDGSTS.E [R2], desc[UR4][R6.64]               | R2 R6:2 UR4:2 |
sm_80 | LDGSTS.E [R2+UR8], desc[UR9][R6.64]           | R2 UR8 R6:2 UR9:2 |
sm_90 | LDGSTS.E [UR8+0x10], desc[UR9][R6.64]         | UR8 R6:2 UR9:2 |
sm_75 | LDSM.16.M88.4 R4, [R2]                        | R2            | R4:4
sm_75 | LDC.64 R2, c[0x0][R4+0x10]                    | R4            | R2:2
sm_75 | ULDC.64 UR4, c[0x0][0x160]                    |               | UR4:2
sm_75 | UIADD3 UR4, UP0, UR5, UR6, URZ                | UR5 UR6       | UR4 UP0
sm_75 | UIMAD.WIDE.U32 UR4, UR6, UR7, UR8             | UR6 UR7 UR8:2 | UR4:2
sm_75 | R2UR UR4, R2                                  | R2            | UR4
sm_75 | @UP1 UMOV UR4, UR5                            | UP1 UR5       | UR4
sm_75 | ATOMS.CAS.64 R6, [R2], R4, R8                 | R2 R4:2 R8:2  | R6:2
sm_75 | ATOMG.E.CAS.STRONG.GPU PT, R6, [R2], R4, R5   | R2:2 R4 R5    | R6
sm_75 | SHFL.IDX P1, R2, R3, R4, R5                   | R3 R4 R5      | P1 R2
sm_75 | VOTE.ANY R2, P1, P2                           | P2            | R2 P1
sm_75 | TEX.SCR.LL P0, R4, R8, R10, R12, 0x0, 0x5a, 2D | R10 R12      | P0 R4:2 R8:2
sm_75 | BRX R2 -0x10                                  | R2:2          |
sm_75 | RET.REL.NODEC R20 0x0                         | R20:2         |
sm_75 | BRXU UR4 -0x10                                | UR4:2         |
sm_75 | BSSY B0, 0x100                                |               | B0
sm_75 | BSYNC B1                                      | B1            |
sm_75 | BREAK B1                                      | B1            | B1
sm_75 | BMOV.32.CLEAR R4, B2                          | B2            | R4 B2
sm_90 | HGMMA.64x64x16.F32 R24, gdesc[UR4], R24, gsb0 | UR4:4 R24:32  | R24:32
sm_90 | HGMMA.64x64x16.F32 R24, R4, gdesc[UR8], R24, gsb0 | R4:4 UR10:2 R24:32 | R24:32
sm_100 | UTCHMMA gdesc[UR8], gdesc[UR10], tmem[UR6], tmem[UR4], idesc[UR5], UP1 | UR8:2 UR10:2 UR6 UR4 UR5 UP1 |
sm_100 | UTCHMMA tmem[UR8], gdesc[UR10], tmem[UR6], tmem[UR4], idesc[UR5], UP1 | UR8 UR10:2 UR6 UR4 UR5 UP1 |
sm_100 | UTCCP.T.S.4x32dp128bit tmem[UR26], gdesc[UR60] | UR26 UR60:2  |
sm_90 | UBLKCP.S.G [UR8], [UR4], UR7                  | UR8:2 UR4:2 UR7 |
sm_90 | UBLKCP.G.S [UR8], [UR4], UR7                  | UR8:2 UR4 UR7 |
sm_90 | UTMALDG.2D [UR8], [UR4]                       | UR8:4 UR4:2   |
sm_90 | UTMASTG.3D [UR8], [UR4]                       | UR8:4 UR4:2   |
sm_90 | UTMAPF.L2.5D [UR8], [UR4]                     | UR8:5 UR4:2   |
sm_100 | UTMALDG.2D.GATHER4 [UR8], [UR4]              | UR8:7 UR4:2   |
sm_100 | UTMASTG.2D.SCATTER4 [UR8], [UR4]             | UR8:6 UR4:2   |
sm_100 | UTMAPF.L2.2D.GATHER4 [UR8], [UR4]            | UR8:5 UR4:2   |
sm_100 | UTCHMMA tmem[UR4], gdesc[UR6], tmem[UR5], tmem[UR10], idesc[UR11], UR12, UPT | UR4 UR6:2 UR5 UR10 UR11 UR12:4 |
sm_100|UTCIMMA.2CTA tmem[UR4], gdesc[UR6], tmem[UR5], tmem[UR10], idesc[UR11], UR12, UPT|UR4 UR5 UR6:2 UR10 UR11 UR12:8|
sm_100|UTCOMMA.4X gdesc[UR8], gdesc[UR6], tmem[UR5], tmem[UR4], idesc[UR5], tmem[UR12], UPT|UR8:2 UR6:2 UR5 UR4 UR12:2|
sm_90 | SYNCS.EXCH.64 URZ, [UR5], UR6                 | UR5 UR6:2     |
sm_90 | ELECT P0, UR4, PT                             |               | P0 UR4
""".strip().splitlines()


@pytest.mark.parametrize("case", CASES, ids=lambda case: " ".join(case.split("|")[1].split()))
def test_reads_and_writes(case: str) -> None:
    arch, text, reads, writes = (part.strip() for part in case.split("|"))
    i = decoded(text, arch)
    assert sorted(shown(i.reads).split()) == sorted(reads.split())
    assert sorted(shown(i.writes).split()) == sorted(writes.split())


def test_what_they_are_read_as() -> None:
    i = decoded("@P1 LDG.E R4, desc[UR8][R2.64]", "sm_90")
    assert {(a.file, a.what) for a in i.reads} == {("P", "guard"), ("R", "address"), ("UR", "address")}
    i = decoded("FFMA R0, R1, R2, R3", "sm_90")
    assert [a.what for a in i.reads] == ["a", "b", "c"]
    assert [a.what for a in decoded("SEL R0, R1, R2, P3", "sm_90").reads] == ["a", "b", "predicate"]


@pytest.mark.parametrize("path", cubins.STORED, ids=lambda path: path.stem)
def test_nothing_is_read_that_was_not_written(path) -> None:
    """Compiled kernels read no register that nothing wrote on any way there: a missing destination, or one source too
    many, would show. R1 is the stack pointer; PRMT may keep half of a register that has no value yet."""
    cubin = Cubin.from_file(path)
    isa = instruction_set(cubin.arch)
    for kernel in cubin.kernels:
        found = [instruction(isa, word, 16 * n) for n, word in enumerate(kernel.words)]
        known = [i for i in found if i is not None]
        assert len(known) == len(found)
        written = {("R", 1)} | {(a.file, a.first + n) for i in known for a in i.writes for n in range(a.count)}
        for i in known:
            if i.base not in ("PRMT", "RET", "CALL"):
                read = {(a.file, a.first + n) for a in i.reads for n in range(a.count) if a.what != "implicit"}
                assert read <= written, i.text()


@pytest.mark.parametrize("text, written, read", [
    ("LDG.E.ENL2.256 R12, R8, desc[UR4][R2.64]", {12, 8}, {2}),
    ("STG.E.ENL2.256 desc[UR4][R2.64], R12, R8", set(), {2, 12, 8}),
])  # fmt: skip
def test_two_groups_of_256_bits(text: str, written: set[int], read: set[int]) -> None:
    """They stand where no other load or store has a destination or a source."""
    isa = instruction_set("sm_100")
    one = instruction(isa, isa.encode(text))
    assert one is not None
    assert {a.first for a in one.writes if a.file == "R" and a.count == 4} == written == {a.first for a in one.writes}
    assert {a.first for a in one.reads if a.file == "R"} == read


def test_tiles_of_16_rows() -> None:
    """ldmatrix .m16n16 gives two registers for each matrix, .m8n16 one (PTX ISA)."""
    isa = instruction_set("sm_120")
    for tile, count in ((".8.MT1616", 2), (".U4x16P64TO8.MT1616.2", 4), (".U6x16P32TO8.M816.2", 2), (".16.MT88.4", 4)):
        i = instruction(isa, isa.encode(f"LDSM{tile} R8, [R0]"))
        assert i is not None and [(a.first, a.count) for a in i.writes] == [(8, count)]
