"""Integer, logic, shift, permute and move instructions."""

import functools
from typing import Any

from turingas.isa.arch import ALL, AMPERE, BLACKWELL, HOPPER, RTX, THOR, TURING, XAVIER
from turingas.isa.fields import Enum, Number
from turingas.isa.grammar import rows
from turingas.isa.op import op


def shift(value: int) -> bool:
    """The factors that nvdisasm shows as IMAD.SHL: powers of two, but neither 2**16 nor 2**31 (probed)."""
    return 1 < value < 1 << 31 and value & (value - 1) == 0 and value != 1 << 16


FIELDS = {
    "u32": Enum(73, 1, (".U32", "")),
    "lanes": Number(72, 4, default=15),  # which bytes MOV writes
    "lut": Number(72, 8),
    "plut": Number(((64, 3), (72, 5)), 8),
    "qlut": Number(16, 8),
    "pand": Enum(80, 1, ("", ".PAND")),
    "shift": Number(75, 5),
    "prmt": Enum(72, 3, ("", ".F4E", ".B4E", ".RC8", ".ECL", ".ECR", ".RC16")),
    "dir": Enum(76, 1, (".L", ".R")),
    "wrap": Enum(75, 1, ("", ".W")),
    "stype": Enum(73, 2, (".S64", ".U64", ".S32", ".U32")),
    "hi": Enum(80, 1, ("", ".HI")),
    "atype": Enum(73, 1, (".U8", ".S8")),
    "btype": Enum(74, 1, (".U8", ".S8")),
    "atype16": Enum(73, 1, (".U16", ".S16")),
    "lo": Enum(77, 1, (".LO", ".HI")),
    "acc": Enum(75, 1, ("", ".ACC")),
    "acctype": Enum(73, 1, (".U8", "")),
    "clhi": Enum(77, 1, (".LO", ".HI")),
    "vtype": Enum(72, 2, (".U32", "", ".U16x2", ".S16x2")),
    "v16x2": Enum(72, 1, (".U16x2", ".S16x2")),
    "vtype32": Enum(72, 1, (".U32", "")),
    "relu": Enum(76, 1, ("", ".RELU")),
    "v16": Enum(73, 1, ("", ".16x2")),
    # sm_120: 64 bits, and four bytes
    "imm64": Number(24, 64), "imm33": Number(32, 33, signed=True), "u64": Enum(73, 1, (".U64", ".S64")),
    "vtype6": Enum(72, 3, (".U32", ".S32", ".U16x2", ".S16x2", ".U8x4", ".S8x4")),
    "v6": Enum(73, 3, (".32", ".16x2", ".S32", ".S16x2", ".U8x4", ".S8x4")), "isat": Enum(80, 1, ("", ".ISAT")),
}

TO_HOPPER = ALL - BLACKWELL
PLAIN: dict[Any, Any] = {81: 7, 87: 15}  # IMAD: no carry out, none in
NOT_X = {77: 15, 87: 15}  # the carries that a plain IADD3 does not read: !PT

ROWS = rows(
    ("MOV Rd, Sb, lanes?",                                             0x002, {}, ALL),
    ("MOV.64 Rd2, Rb2",                                                0x202, {72: 15, 80: 1}, RTX),
    ("MOV.64 Rd2, URb2",                                               0x1C02, {72: 15, 80: 1}, RTX),
    ("MOV.64 Rd2, imm64",                                              0x402, {}, RTX),
    ("MOV.SPILL Rd, URb",                                              0x1C02, {72: 15, 88: 1}, BLACKWELL),
    ("SEL Rd, Ra, Sb, !Pp",                                            0x007, {}, ALL),
    ("SEL.64 Rd2, Ra2, Rb2, !Pp",                                      0x607, {}, RTX),
    ("SEL.64 Rd2, Ra2, imm33, !Pp",                                    0x407, {}, RTX),
    ("SEL.64 Rd2, Ra2, URb2, !Pp",                                     0x1E07, {}, RTX),
    ("IABS Rd, Ib",                                                    0x013, {}, ALL),
    ("BREV Rd, Sb",                                                    0x101, {}, ALL),
    ("POPC Rd, ~Sb",                                                   0x109, {}, ALL),
    ("FLO{u32}{sh} Rd, Pu?, ~Sb",                                      0x100, {}, ALL, {"sh": Enum(74, 1, ("", ".SH"))}),
    # ---- add, multiply
    ("IADD3.X Rd, Pu?, Pv?, ~Ra, ~Ib, ~Rc, !Pp, !Pq",                  0x010, {74: 1}, TO_HOPPER),
    ("IADD3.X Rd, Pu??, Pv??, ~Ra, ~Ib, ~Rc, !Pp, !Pq",                0x010, {74: 1}, BLACKWELL),
    ("IADD3 Rd, Pu?, Pv?, -Ra, -Ib, -Rc",                              0x010, NOT_X, TO_HOPPER),
    ("IADD3 Rd, Pu??, Pv??, -Ra, -Ib, -Rc",                            0x010, NOT_X, BLACKWELL),
    ("IADD.X Rd, Pu?, ~Ra, ~Ib, !Pp",                                  0x035, {74: 1}, RTX),
    ("IADD Rd, Pu?, -Ra, -Ib",                                         0x035, {87: 15}, RTX),
    ("IADD.64.X Rd2, Pu?, ~Ra2, ~Ib2, !Pp",                            0x035, {73: 3}, RTX),
    ("IADD.64 Rd2, Pu?, -Ra2, -Ib2",                                   0x035, {73: 1, 87: 15}, RTX),
    *((f"IMAD.MOV{{u32}} Rd, Ra, {sources}", opcode, {**PLAIN, zero: "RZ"}, ALL) for sources, opcode, zeros in (
        ("Rb, -Rc", 0x224, ("Ra", "Rb")), ("Rb_c, simm", 0x424, ("Ra", "Rb_c")), ("Rb_c, -cb", 0x624, ("Ra", "Rb_c")),
        ("simm, -Rc", 0x824, ("Ra",)), ("cb, -Rc", 0xA24, ("Ra",))) for zero in zeros),
    ("IMAD.MOV{u32} Rd, Ra, simm, -Rc",                                0x824, {**PLAIN, "simm": "0x1", "Rc": "RZ"}, ALL),
    ("IMAD.MOV{u32} Rd, Ra, simm, -Rc",                                0x824, {**PLAIN, "simm": "0x0"}, ALL),
    ("IMAD.IADD{u32} Rd, Ra, simm, -Rc",                               0x824, {**PLAIN, "simm": "0x1"}, ALL),
    ("IMAD.SHL{u32} Rd, Ra, simm, -Rc",                                0x824, {**PLAIN, "simm": shift, "Rc": "RZ"}, ALL),
    ("IMAD{u32} Rd, Ra, Ib, -Ic",                                      0x024, PLAIN, ALL),
    ("IMAD{u32}.X Rd, Ra, Ib, ~Ic, !Pp",                               0x024, {74: 1, 81: 7}, ALL),
    ("IMAD.WIDE{u32} Rd2, Pu?, Ra, Ib, -Ic2",                          0x025, {87: 15, "without": 0x400}, ALL),
    ("IMAD.WIDE{u32}.X Rd2, Pu?, Ra, Ib, ~Ic2, !Pp",                   0x025, {74: 1, "without": 0x400}, ALL),
    ("IMAD.HI{u32} Rd, Pu?, Ra, Ib, -Ic2",                             0x027, {87: 15, "without": 0x400}, TURING | XAVIER),
    ("IMAD.HI{u32}.X Rd, Pu?, Ra, Ib, ~Ic2, !Pp",                      0x027, {74: 1, "without": 0x400}, TURING | XAVIER),
    ("IDP.4A{atype}{btype} Rd, Ra, Sb, -Rc",                           0x026, {"without": 0x800}, TURING),
    ("IDP.4A{atype}{btype} Rd, Ra, Sb, Rc" ,                           0x026, {"without": 0x800}, ALL - TURING),
    ("IDP.2A{lo}{atype16}{btype} Rd, Ra, Sb, -Rc",                      0x026, {76: 1, "without": 0x800}, TURING),
    ("IDP.2A{lo}{atype16}{btype} Rd, Ra, Sb, Rc" ,                      0x026, {76: 1, "without": 0x800}, ALL - TURING),
    ("CLMAD{clhi} Rd2, Ra2, Sb2, Sc2",                                 0x02C, {"without": (0x400, 0x800)}, AMPERE - RTX),
    ("CLMAD{clhi} Rd2, Ra2, Sb2, Sc2",                                 0x02C, {"without": (0x400, 0x800), "reuse": False}, RTX),
    ("LEA.HI.X Rd, Pu?, ~Ra, ~Sb, Rc, shift, !Pp",                     0x011, {74: 1, 80: 1}, ALL),
    ("LEA.HI.X.SX32 Rd, Pu?, ~Ra, ~Sb, shift, !Pp",                    0x011, {73: 1, 74: 1, 80: 1, 64: 255}, ALL),
    ("LEA.HI Rd, Pu?, -Ra, -Sb, Rc, shift",                            0x011, {80: 1, 87: 15}, ALL),
    ("LEA.HI.SX32 Rd, Pu?, -Ra, -Sb, shift",                           0x011, {73: 1, 80: 1, 64: 255, 87: 15}, ALL),
    ("LEA.HI.X Rd, Pu?, ~Ra, Rb_c, imm, shift, !Pp",                  0x411, {74: 1, 80: 1}, ALL),
    ("LEA.HI Rd, Pu?, -Ra, Rb_c, imm, shift",                         0x411, {80: 1, 87: 15}, ALL),
    ("LEA.X Rd, Pu?, ~Ra, ~Sb, shift, !Pp",                            0x011, {74: 1, 64: 255}, ALL),
    ("LEA Rd, Pu?, -Ra, -Sb, shift",                                   0x011, {64: 255, 87: 15}, ALL),
    # ---- logic, shift, bytes
    ("LOP3.LUT{pand} Pu?, Rd, Ra, Sb, Rc, lut, !Pp",                   0x012, {}, ALL),
    ("PLOP3.LUT Pu, Pv, !Pp, !Pq, !Pr, plut, qlut",                    0x81C, {}, ALL),
    ("PLOP3.LUT Pu, Pv, !Pp, !Pq, !UPr, plut, qlut",                   0x81C, {67: 1}, TURING),
    ("PLOP3.LUT Pu, Pv, !Pp, Sb.SIGN, !Pr, lut, qlut",                 0x01D, {"without": 0x800}, ALL),
    ("PLOP3.LUT Pu, Pv, !Pp, Sb.SIGN, Rc.SIGN, lut, qlut",             0x01E, {"without": 0x800}, ALL),
    ("PLOP3.LUT Pu, Pv, Ra.SIGN, Sb.SIGN, Rc.SIGN, lut, qlut",         0x01F, {"without": 0x800}, ALL),
    ("SHF{dir}{wrap}{stype}{hi} Rd, Ra, Sb, Sc",                       0x019, {}, ALL),
    ("SGXT{wrap}{u32} Rd, Ra, Sb",                                     0x01A, {}, ALL),
    ("BMSK{wrap} Rd, Ra, Sb",                                          0x01B, {}, ALL),
    ("PRMT{prmt} Rd, Ra, Sb, Sc",                                      0x016, {}, ALL),
    # ---- compare, select
    ("ISETP{icmp}{u32}{bool} Pu, Pv, Ra, Ib, !Pp",                     0x00C, {68: 7}, ALL),
    ("ISETP{icmp}{u64}{bool} Pu, Pv, Ra2, Ib2, !Pp",                   0x00C, {68: 7, 80: 1}, RTX),
    ("ISETP{icmp}{u32}{bool}.EX Pu, Pv, Ra, Ib, !Pp, !Pr?",            0x00C, {72: 1}, ALL - AMPERE),
    ("ISETP{icmp}{u32}{bool}.EX Pu, Pv, Ra, Ib, !Pp, !Pr",             0x00C, {72: 1}, AMPERE),
    ("IMNMX{u32} Rd, Ra, Ib, !Pp",                                     0x017, {}, (TURING | XAVIER) - THOR),
    ("IMNMX{u32} Rd, Ra, Ib, !Pp",                                     0x017, {77: 0x3FF}, THOR),
    ("VIMNMX{vtype32}{relu} Rd, Ra, Ib, !Pp",                          0x048, {81: 7, 84: 7}, HOPPER - BLACKWELL),
    ("VIMNMX{vtype32}{relu} Rd, Pu??, Pv??, Ra, Ib, !Pp",              0x048, {}, BLACKWELL - RTX),
    ("VIMNMX{vtype6}{relu} Rd, Ra, Ib, !Pp",                           0x048, {81: 7, 84: 7}, RTX),
    ("IMNMX{u64} Pu, Pv, Rd2, Ra2, Ib2, !Pp, !Pq",                     0x017, {74: 1}, RTX),
    ("VIMNMX{v16x2}{relu} Rd, Pu?, Pv?, Ra, Ib, !Pp",                  0x048, {73: 1}, HOPPER - BLACKWELL),
    ("VIMNMX{v16x2}{relu} Rd, Pu??, Pv??, Ra, Ib, !Pp",                0x048, {73: 1}, BLACKWELL - RTX),
    ("VIMNMX3{vtype}{relu} Rd, Ra, Sb, Rc, !Pp",                       0x00F, {}, HOPPER),
    ("VIADDMNMX{vtype}{relu} Rd, Ra, -Sb, Sc, !Pp",                    0x046, {}, HOPPER),
    ("VIADD{v16} Rd, Ra, -Sb",                                         0x036, {}, HOPPER - RTX),
    ("VIADD{v6}{isat} Rd, -Ra, -Sb",                                   0x036, {}, RTX),
    ("VABSDIFF{u32} Rd, Pu?, Ra, Sb, Sc",                              0x014, {}, ALL),
    ("VABSDIFF4{acctype}{acc} Rd, Pu?, Ra, Sb, Sc",                    0x015, {}, ALL),
    fields=FIELDS,
)  # fmt: skip

fma, alu, xu = (functools.partial(op, pipe) for pipe in ("fma", "alu", "xu"))

OPS = {
    "MOV": alu("d = a", "mov.b32", "MOV R0, R1", traits="copy light"),
    "SEL": alu("d = a if the predicate holds, else b", "selp.b32", "SEL R0, R1, R2, P0", traits="light"),
    "IABS": alu("d = |a|", "abs.s32", "IABS R0, R1"),
    "BREV": xu("d = the bits of a in reverse order", "brev.b32, __brev", "BREV R0, R1"),
    "POPC": xu("d = how many bits of a are set", "popc.b32, __popc", "POPC R0, R1"),
    "FLO": xu("d = the position of the highest bit that is set (signed: that differs from the sign)",
              "bfind.u32, clz.b32, __clz", "FLO.U32 R0, R1"),
    "IADD3": alu("d = a + b + c; .X adds carries from predicates, which also receive them",
                 "add.s32, sub.s32, neg.s32, add.cc, addc", "IADD3 R0, R1, R2, RZ", "IADD3 R0, PT, PT, R1, R2, RZ",
                 traits="sum"),
    "IADD": alu("d = a + b; .64 of pairs of registers, .X with a carry", "add.s64, sub.s64", "IADD R0, R1, R2",
                kin="IADD3", traits="sum light"),
    "IMAD": fma("d = a * b + c; .WIDE has 64 bits of result, .HI is the upper half; IMAD.MOV and such are moves",
                "mad.lo.s32, mul.lo.s32, mad.wide.s32, mad.hi.s32, __mulhi", "IMAD R0, R1, R2, R3", traits="product"),
    "IDP": fma("dot product of four or two small integers, added to c", "dp4a, dp2a, __dp4a, __dp2a_lo",
               "IDP.4A.S8.S8 R0, R1, R2, R3"),
    "CLMAD": xu("carry-less product of a and b, combined with c", "", "CLMAD.LO R0, R2, R4, R6"),
    "LEA": alu("d = (a << shift) + b, for addresses; .HI gives the upper half of a 64-bit shift", "part of mad, shl, add",
               "LEA R0, R1, R2, 0x2"),
    "LOP3": alu("any logical function of three registers, given as a table of 8 bits (a = 0xf0, b = 0xcc, c = 0xaa)",
                "lop3.b32, and.b32, or.b32, xor.b32, not.b32", "LOP3.LUT R0, R1, R2, RZ, 0xc0, !PT"),
    "PLOP3": alu("any logical function of three predicates, given as a table of 8 bits", "and.pred, or.pred, xor.pred",
                 "PLOP3.LUT P0, PT, P1, P2, PT, 0x80, 0x0"),
    "SHF": alu("funnel shift: the pair of registers c:a is shifted by b, d is one half of the result",
               "shf.l, shf.r, shl.b32, shr.u32, shr.s32, __funnelshift_l", "SHF.R.U32.HI R0, RZ, 0x5, R1"),
    "SGXT": alu("extends the sign of the low b bits of a (.U32: clears the others)", "szext, bfe.s32",
                "SGXT R0, R1, 0x8"),
    "BMSK": alu("d = a mask of b bits that begins at bit a", "bmsk.clamp.b32, part of bfi.b32", "BMSK R0, R1, R2"),
    "PRMT": alu("d = four bytes picked out of the eight of a and c; b says which", "prmt.b32, __byte_perm",
                "PRMT R0, R1, 0x5410, R2"),
    "ISETP": alu("compares integers into predicates, combined with a third one; .EX for 64 bits in two steps",
                 "setp.lt.s32", "ISETP.GE.AND P0, PT, R0, R1, PT", traits="compare light"),
    "IMNMX": alu("d = the smaller of a and b if the predicate holds, else the larger (integers)",
                 "min.s32, max.s32, min.s64, max.s64, min, max", "IMNMX R0, R1, R2, !PT", "IMNMX.S64 PT, PT, R0, R2, R4, PT, !PT", kin="ISETP SEL"),
    "VIMNMX": alu("the smaller or larger of a and b, integers", "min.s32, max.s32, min.s16x2, max.s16x2, __vmins2",
                  "VIMNMX R0, R1, R2, !PT", "VIMNMX R0, PT, PT, R1, R2, !PT",
                  "VIMNMX.S32 R0, R1, R2, !PT",
                  kin="IMNMX", traits="light"),
    "VIMNMX3": alu("the smallest or largest of three integers", "__vimin3_s32, __vimax3_s32",
                   "VIMNMX3 R0, R1, R2, R3, !PT", kin="IMNMX"),
    "VIADDMNMX": alu("a + b, then the smaller or larger of that and c", "__viaddmin_s32, __viaddmax_s32",
                     "VIADDMNMX R0, R1, R2, R3, !PT", kin="IADD3 IMNMX"),
    "VIADD": fma("d = a + b, integers", "add.s32", "VIADD R0, R1, 0x1", "VIADD.32 R0, R1, 0x1", kin="IADD3", traits="sum"),
    "VABSDIFF": alu("d = |a - b| + c", "sad.s32, __sad", "VABSDIFF R0, R1, R2, R3"),
    "VABSDIFF4": alu("d = |a - b| for each of four bytes; .ACC adds them up, and c", "vabsdiff4, __vabsdiffu4, __vsadu4",
                     "VABSDIFF4.U8 R0, R1, R2, RZ"),
}
