"""FP32, FP16/BF16 packed and FP64 arithmetic, MUFU."""

from turingas.isa.arch import ALL, AMPERE, GA10X, HOPPER, TURING
from turingas.isa.fields import Enum
from turingas.isa.grammar import register, rows

BEFORE_AMPERE = ALL - AMPERE
BEFORE_HOPPER = AMPERE - HOPPER

FIELDS = {
    # FMUL: the product times a power of two; 4 is what every plain FMUL has
    "scale": Enum(84, 3, (None, ".D8", ".D4", ".D2", "", ".M2", ".M4", ".M8")),
    "oob": Enum(((76, 1), (80, 1)), 2, ("", ".FMZ", ".FTZ", ".OOB")),
    "ndv": Enum(77, 1, ("", ".NDV")),
    # FSWZADD: which lanes of a quad are added, subtracted or left out; two letters for two bits
    "lanes": Enum(32, 8, ["".join(("PP", "PN", "NP", "ZP")[n >> k & 3] for k in (6, 4, 2, 0)) for n in range(256)]),
    "nan": Enum(81, 1, ("", ".NAN")),
    "xorsign": Enum(82, 1, ("", ".XORSIGN")),
    "bf": Enum(71, 1, ("", ".BF")),
    "func": Enum(74, 4, (".COS", ".SIN", ".EX2", ".LG2", ".RCP", ".RSQ", ".RCP64H", ".RSQ64H", ".SQRT", ".TANH")),
    "func70": Enum(74, 4, (".COS", ".SIN", ".EX2", ".LG2", ".RCP", ".RSQ", ".RCP64H", ".RSQ64H", ".SQRT")),
    "func64": Enum(74, 4, {6: ".RCP64H", 7: ".RSQ64H"}),
    "hfunc": Enum(74, 4, (".COS", ".SIN", ".EX2", ".LG2", ".RCP", ".RSQ", None, None, ".SQRT", ".TANH")),
    "dcmp": Enum(76, 4, [f".{n}" for n in "MIN LT EQ LE GT NE GE NUM NAN LTU EQU LEU GTU NEU GEU MAX".split()]),
    "hc76": Enum(76, 2, ("", None, ".H0_H0", ".H1_H1")),
    # packed halves: where the result and the operation live
    "h32": Enum(78, 1, ("", ".F32")),
    "hbool": Enum(69, 2, (".AND", ".OR", ".XOR")),
    "h_and": Enum(71, 1, ("", ".H_AND")),
}
# HADD2.F32 can keep its second source alone for reuse
ONE_REUSE = {"-Ra": register("R", 24, 1, neg=72)}

ROWS = rows(
    # ---- FP32
    ("FFMA{fmz}{rnd}{sat} Rd, -|Ra|, -|Fb|, -|Fc|",                    0x023, {}, ALL),
    ("FADD{ftz}{rnd}{sat} Rd, -|Ra|, -|Fc|",                           0x021, {}, ALL),
    ("FMUL{fmz}{scale}{rnd}{sat} Rd, -|Ra|, -|Fb|",                    0x020, {}, ALL),
    ("FSEL{ftz} Rd, -|Ra|, -|Fb|, !Pp",                                0x008, {}, AMPERE),
    ("FSEL Rd, -|Ra|, -|Fb|, !Pp",                                     0x008, {}, BEFORE_AMPERE),
    ("FMNMX{ftz}{nan}{xorsign} Rd, -|Ra|, -|Fb|, !Pp",                 0x009, {}, GA10X),
    ("FMNMX{ftz}{nan} Rd, -|Ra|, -|Fb|, !Pp",                          0x009, {}, AMPERE - GA10X),
    ("FMNMX{ftz} Rd, -|Ra|, -|Fb|, !Pp",                               0x009, {}, BEFORE_AMPERE),
    ("FSET.BF{fcmp}{ftz}{bool} Rd, -|Ra|, -|Fb|, !Pp",                 0x00A, {}, ALL),
    ("FSETP{fcmp}{ftz}{bool} Pu, Pv, -|Ra|, -|Fb|, !Pp",               0x00B, {}, ALL),
    ("FSWZADD{ftz}{rnd}{ndv} Rd, Ra, Rc, {lanes}",                     0x822, {}, ALL),
    ("FCHK Pu, -|Ra|, -|Fb|",                                          0x102, {}, ALL),
    ("MUFU{func64} Rd, f64",                                           0x908, {}, ALL),
    ("MUFU{func70} Rd, -|Fb|",                                         0x108, {}, ALL - TURING),
    ("MUFU{func} Rd, -|Fb|",                                           0x108, {}, TURING),
    *((f"MUFU{{hfunc}}{name} Rd, {source}", opcode, {bit: 1}, archs)
      for name, bit, archs in ((".F16", 73, TURING - HOPPER), (".F16", 72, HOPPER), (".BF16", 73, HOPPER))
      for source, opcode in (("half_r", 0x308), ("half_c", 0xB08), ("half_u", 0x1D08), ("half_x", 0x1B08))),
    # ---- FP64
    ("DFMA{rnd} Rd2, -|Ra2|, -|Db|, -|Dc|",                            0x02B, {}, ALL),
    ("DADD{rnd} Rd2, -|Ra2|, -|DC|",                                   0x029, {}, ALL),
    ("DMUL{rnd} Rd2, -|Ra2|, -|Db|",                                   0x028, {}, ALL),
    ("DSETP{dcmp}{bool} Pu, Pv, -|Ra2|, -|Dc|, !Pp",                   0x02A, {}, ALL),
    # ---- FP16, BF16 packed
    ("HADD2{h32}{ftz}{sat} Rd, -|Ra|{ha}, -|Hc|",                      0x030, {}, BEFORE_AMPERE),
    ("HMUL2{h32}{fmz}{sat} Rd, -|Ra|{ha}, -|Hb|",                      0x032, {}, BEFORE_AMPERE),
    ("HFMA2{h32}{fmz}{sat} Rd, -|Ra|{ha}, -|Hb|, -|Hc|",               0x031, {}, BEFORE_AMPERE),
    ("HADD2.F32{ftz}{sat} Rd, -Ra{ha}, -|Rc_b|{hb}",                             0x230, {78: 1}, AMPERE, ONE_REUSE),
    ("HADD2.F32{ftz}{sat} Rd, -Ra{ha}, -|cbh|",                                  0x630, {78: 1}, AMPERE, ONE_REUSE),
    ("HADD2.F32{ftz}{sat} Rd, -Ra{ha}, -|URc_bh|",                               0x1E30, {78: 1}, AMPERE, ONE_REUSE),
    ("HADD2{ftz}{sat} Rd, -|Ra|{ha}, -|Hc|",                           0x030, {}, AMPERE),
    ("HADD2.BF16_V2{ftz}{sat} Rd, -|Ra|{ha}, -|Bc|",                   0x030, {85: 1}, HOPPER),
    ("HMUL2{fmz}{sat} Rd, -|Ra|{ha}, -|Hb|",                           0x032, {}, AMPERE),
    ("HMUL2.BF16_V2{fmz}{sat} Rd, -|Ra|{ha}, -|Bb|",                   0x032, {85: 1}, HOPPER),
    ("HFMA2{fmz}{sat} Rd, -|Ra|{ha}, -|Hb|, -|Hc|",                    0x031, {}, BEFORE_HOPPER),
    ("HFMA2{oob}{sat} Rd, -|Ra|{ha}, -|Hb|, -|Hc|",                    0x031, {}, HOPPER),
    ("HFMA2{fmz}{sat} Rd, -|Ra|{ha}, -|Rb|.H0_NH1, -|Rch|{hc}",                    0x231, {86: 1}, GA10X - HOPPER),
    ("HFMA2{oob}{sat} Rd, -|Ra|{ha}, -|Rb|.H0_NH1, -|Rch|{hc}",                    0x231, {86: 1}, HOPPER),
    ("HFMA2{fmz}.RELU Rd, -|Ra|{ha}, -|Hb|, -|Hc|, Pp?",               0x031, {79: 1}, BEFORE_HOPPER),
    ("HFMA2{oob}.RELU Rd, -|Ra|{ha}, -|Hb|, -|Hc|, Pp?",               0x031, {79: 1}, HOPPER),
    ("HFMA2{fmz}.RELU Rd, -|Ra|{ha}, -|Rb|.H0_NH1, -|Rch|{hc}, Pp?",               0x231, {86: 1, 79: 1}, GA10X - HOPPER),
    ("HFMA2{oob}.RELU Rd, -|Ra|{ha}, -|Rb|.H0_NH1, -|Rch|{hc}, Pp?",               0x231, {86: 1, 79: 1}, HOPPER),
    ("HFMA2.BF16_V2{fmz}{sat} Rd, -|Ra|{ha}, -|Bb|, -|Bc|",            0x031, {85: 1}, BEFORE_HOPPER),
    ("HFMA2.BF16_V2{oob}{sat} Rd, -|Ra|{ha}, -|Bb|, -|Bc|",            0x031, {85: 1}, HOPPER),
    ("HFMA2.BF16_V2{fmz}{sat} Rd, -|Ra|{ha}, -|Rb|.H0_NH1, -|Rch|{hc}",            0x231, {86: 1, 85: 1}, GA10X - HOPPER),
    ("HFMA2.BF16_V2{oob}{sat} Rd, -|Ra|{ha}, -|Rb|.H0_NH1, -|Rch|{hc}",            0x231, {86: 1, 85: 1}, HOPPER),
    ("HFMA2.BF16_V2{fmz}.RELU Rd, -|Ra|{ha}, -|Bb|, -|Bc|, Pp?",       0x031, {79: 1, 85: 1}, BEFORE_HOPPER),
    ("HFMA2.BF16_V2{oob}.RELU Rd, -|Ra|{ha}, -|Bb|, -|Bc|, Pp?",       0x031, {79: 1, 85: 1}, HOPPER),
    ("HFMA2.BF16_V2{fmz}.RELU Rd, -|Ra|{ha}, -|Rb|.H0_NH1, -|Rch|{hc}, Pp?",       0x231, {86: 1, 79: 1, 85: 1}, GA10X - HOPPER),
    ("HFMA2.BF16_V2{oob}.RELU Rd, -|Ra|{ha}, -|Rb|.H0_NH1, -|Rch|{hc}, Pp?",       0x231, {86: 1, 79: 1, 85: 1}, HOPPER),
    ("HFMA2.MMA{fmz}{sat} Rd, -|Ra|, -|Pb|, -|Pc|",                    0x035, {}, AMPERE),
    ("HFMA2.MMA{fmz}.RELU Rd, -|Ra|, -|Pb|, -|Pc|, Pp?",               0x035, {79: 1}, AMPERE),
    ("HFMA2.MMA.BF16_V2{fmz}{sat} Rd, -|Ra|, -|Qb|, -|Qc|",            0x035, {85: 1}, HOPPER),
    ("HFMA2.MMA.BF16_V2{fmz}.RELU Rd, -|Ra|, -|Qb|, -|Qc|, Pp?",       0x035, {79: 1, 85: 1}, HOPPER),
    ("HMNMX2{ftz}{nan}{xorsign} Rd, -|Ra|{ha}, -|Hb|, !Pp",            0x040, {}, GA10X),
    ("HMNMX2.BF16_V2{ftz}{nan}{xorsign} Rd, -|Ra|{ha}, -|Bb|, !Pp",    0x040, {85: 1}, GA10X),
    ("HMNMX2{ftz}{nan} Rd, -|Ra|{ha}, -|Hb|, !Pp",                     0x040, {}, AMPERE - GA10X),
    ("HMNMX2.BF16_V2{ftz}{nan} Rd, -|Ra|{ha}, -|Bb|, !Pp",             0x040, {85: 1}, AMPERE - GA10X),
    ("VHMNMX{ftz}{nan}{xorsign} Rd, -|Ra|{ha}, -|Hb|, -|Rch|{hc76}, !Pp",          0x047, {}, HOPPER),
    ("VHMNMX.BF16_V2{ftz}{nan}{xorsign} Rd, -|Ra|{ha}, -|Bb|, -|Rch|{hc76}, !Pp",  0x047, {85: 1}, HOPPER),
    ("HSET2{bf}{fcmp}{ftz}{hbool} Rd, -|Ra|{ha}, -|Hc|, !Pp",          0x033, {}, ALL),
    ("HSETP2{fcmp}{h_and}{ftz}{hbool} Pu, Pv, -|Ra|{ha}, -|Hc|, !Pp",  0x034, {}, ALL),
    ("HSET2.BF16_V2{bf}{fcmp}{ftz}{hbool} Rd, -|Ra|{ha}, -|Bc|, !Pp",  0x033, {65: 1}, HOPPER),
    ("HSETP2.BF16_V2{fcmp}{h_and}{ftz}{hbool} Pu, Pv, -|Ra|{ha}, -|Bc|, !Pp", 0x034, {65: 1}, HOPPER),
    fields=FIELDS,
)  # fmt: skip
