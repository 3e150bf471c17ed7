"""FP32, FP16/BF16 packed and FP64 arithmetic, MUFU."""

import functools
import itertools
import operator
from collections.abc import Iterator

from turingas.isa.arch import ALL, AMPERE, B200, B300, BLACKWELL, GA10X, HOPPER, RTX, TURING
from turingas.isa.fields import Enum
from turingas.isa.grammar import OfArch, register, rows
from turingas.isa.op import op

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
    "hbf": Enum(82, 1, ("", ".BF16")), "half_a": Enum(83, 1, ("", ".H1")), "half_b": Enum(84, 1, ("", ".H1")),
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
# ---- two FP32 numbers in a pair of registers (sm_100)

# A source is such a pair, in its order or swapped, or one number for both. .NP turns the sign of what the high half of
# the result takes (ptxas writes it for a pair of which only the high half is negated, and -...NP for the low one).
PAIRS, ONE = (".F32x2.HI_LO", ".F32x2.LO_HI"), ".F32"
PACKED: dict[str, OfArch] = {
    **{f"pair{at}": Enum(pos, 3, {n + np: name + ".NP" * (np > 0) for n, name in enumerate(PAIRS) for np in (0, 4)})
       for at, pos in (("a", 81), ("c", 84))},
    **{f"one{at}": Enum(pos, 3, {2: ONE, 6: ONE + ".NP"}) for at, pos in (("a", 81), ("c", 84))},
    "-|URbh1|": register("UR", 32, neg=63, abs=62, suffix=FIELDS["half_b"]),
    "pairb": Enum(87, 2, PAIRS), "oneb": Enum(87, 2, {2: ONE}), "np": Enum(86, 1, ("", ".NP")),
    # of a uniform register they stand within the bars; b and c have one there
    **{f"-|UR{at}{n}|": register("UR", 32, int(n), neg=63, abs=62, suffix=Enum(pos, 2, PAIRS if n == "2" else {2: ONE}))
       for at, pos in (("b", 87), ("c", 84)) for n in "12"},
}  # fmt: skip


def packed(name: str, opcode: int, b: str, c: str) -> Iterator[tuple[object, ...]]:
    """FFMA2 and its kin with sources of these kinds, "" for one that it lacks: register, immediate, uniform register."""
    choices: list[list[tuple[str, dict[int, int]]]] = [[("-|Ra2|{paira}", {}), ("-|Ra|{onea}", {})]]
    for slot, kind in (("b", b), ("c", c)):
        place = {"r64": "c", "r32": "b"}.get(kind, slot)
        to = f"_{place}" if place != slot else ""
        if kind == "i":
            choices.append([("f32", {88: 1}) if slot == "b" else ("f32{np}", {85: 1})])
        elif kind == "u":
            choices.append([(f"-|UR{slot}{n}|", {}) for n in "21"])
        elif kind:
            choices.append([(f"-|R{slot}2{to}|{{pair{slot}}}", {}), (f"-|R{slot}{to}|{{one{slot}}}", {})])
    for sources in itertools.product(*choices):
        text = f"{name} Rd2, {', '.join(text for text, _ in sources)}"
        yield text, opcode, functools.reduce(operator.or_, (bits for _, bits in sources)), B200


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
    ("FMNMX3{ftz}{nan} Rd, -|Ra|, -|Fb|, -|Fc|, !Pp",                  0x076, {"without": (0x400, 0xE00)}, B200),
    ("FSET.BF{fcmp}{ftz}{bool} Rd, -|Ra|, -|Fb|, !Pp",                 0x00A, {}, ALL),
    ("FSETP{fcmp}{ftz}{bool} Pu, Pv, -|Ra|, -|Fb|, !Pp",               0x00B, {}, ALL),
    ("FSWZADD{ftz}{rnd}{ndv} Rd, Ra, Rc, {lanes}",                     0x822, {}, ALL),
    ("FCHK Pu, -|Ra|, -|Fb|",                                          0x102, {}, ALL),
    ("MUFU{func64} Rd, f64",                                           0x908, {}, ALL),
    ("MUFU{func70} Rd, -|Fb|",                                         0x108, {}, ALL - TURING),
    *((f"MUFU.EX2{name} Rd, -|{source}|", opcode, fixed, B300)
      for name, fixed in ((".BF16x2", {75: 1, 80: 1}), (".F16x2", {72: 3, 75: 1}))
      for source, opcode in (("Rb", 0x308), ("URb", 0x1D08))),
    ("MUFU{func} Rd, -|Fb|",                                           0x108, {}, TURING),
    *((f"MUFU{{hfunc}}{name} Rd, {source}", opcode, {bit: 1}, archs)
      for name, bit, archs in ((".F16", 73, TURING - HOPPER), (".F16", 72, HOPPER), (".BF16", 73, HOPPER))
      for source, opcode in (("half_r", 0x308), ("half_c", 0xB08), ("half_u", 0x1D08), ("half_x", 0x1B08), (f"{name[1:].lower()}lo", 0x908))),
    # ---- FP64
    ("DFMA{rnd} Rd2, -|Ra2|, -|Db|, -|Dc|",                            0x02B, {}, ALL - RTX),
    ("DFMA{rnd} Rd2, -|Ra2|, -|Db|, -|Dc|",                            0x02B, {"reuse": False}, RTX),
    ("DADD{rnd} Rd2, -|Ra2|, -|DC|",                                   0x029, {}, ALL - RTX),
    ("DADD{rnd} Rd2, -|Ra2|, -|DC|",                                   0x029, {"reuse": False}, RTX),
    ("DMUL{rnd} Rd2, -|Ra2|, -|Db|",                                   0x028, {}, ALL - RTX),
    ("DMUL{rnd} Rd2, -|Ra2|, -|Db|",                                   0x028, {"reuse": False}, RTX),
    ("DSETP{dcmp}{bool} Pu, Pv, -|Ra2|, -|Dc|, !Pp",                   0x02A, {}, ALL - RTX),
    ("DSETP{dcmp}{bool} Pu, Pv, -|Ra2|, -|Dc|, !Pp",                   0x02A, {"reuse": False}, RTX),
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
    # ---- a half and FP32
    ("FHADD{hbf}{rnd}{sat} Rd, -|Ra|{half_a}, -|Fc|",                 0x021, {81: 1, "without": 0x400}, BLACKWELL),
    ("FHFMA{hbf}{rnd}{sat} Rd, -|Ra|{half_a}, -|Fb|{half_b}, -|Fc|",  0x023, {81: 1, "without": (0x400, 0x800, 0xC00)},
     BLACKWELL),
    ("FHFMA{hbf}{rnd}{sat} Rd, -|Ra|{half_a}, -|URbh1|, -|Rc|",       0x1C23, {81: 1}, BLACKWELL),
    # ---- FP32 in pairs
    *packed("FADD2{ftz}{rnd}", 0x24B, "", "r32"), *packed("FADD2{ftz}{rnd}", 0x44B, "", "i"),
    *packed("FADD2{ftz}{rnd}", 0x1E4B, "", "u"),
    *packed("FMUL2{fmz}{rnd}", 0x24A, "r", ""), *packed("FMUL2{fmz}{rnd}", 0x84A, "i", ""),
    *packed("FMUL2{fmz}{rnd}", 0x1C4A, "u", ""),
    *packed("FFMA2{fmz}{rnd}", 0x249, "r", "r"), *packed("FFMA2{fmz}{rnd}", 0x449, "r64", "i"),
    *packed("FFMA2{fmz}{rnd}", 0x849, "i", "r"), *packed("FFMA2{fmz}{rnd}", 0x1C49, "u", "r"),
    *packed("FFMA2{fmz}{rnd}", 0x1E49, "r64", "u"),
    fields=FIELDS | PACKED,
)  # fmt: skip

fma, alu, half, fp64, xu = (functools.partial(op, pipe) for pipe in ("fma", "alu", "half", "fp64", "xu"))

OPS = {
    "FFMA": fma("d = a * b + c in FP32, rounded once", "fma.rn.f32, __fmaf_rn", "FFMA R0, R1, R2, R3", traits="f32", flops=2),
    "FADD": fma("d = a + b in FP32", "add.f32, sub.f32, abs.f32, __fadd_rn", "FADD R0, R1, -R2", traits="f32", flops=1),
    "FMUL": fma("d = a * b in FP32", "mul.f32, __fmul_rn", "FMUL R0, R1, 1.5", traits="f32", flops=1),
    "FSEL": alu("d = a if the predicate holds, else b (FP32: with signs and FTZ)", "selp.f32", "FSEL R0, R1, R2, P0",
                traits="light"),
    "FMNMX": alu("d = the smaller of a and b if the predicate holds, else the larger (FP32)",
                 "min.f32, max.f32, fminf, fmaxf", "FMNMX R0, R1, R2, !PT", traits="f32 light"),
    "FMNMX3": alu("the smallest or largest of three FP32 numbers", "min.f32, max.f32",
                  "FMNMX3 R0, R1, R2, R3, !PT", kin="FMNMX", traits="f32"),
    "FHADD": fma("d = a + b, a a half", "add.f32.f16, add.f32.bf16", "FHADD R0, R1, R2", kin="FADD"),
    "FHFMA": fma("d = a * b + c in FP32, a and b halves", "fma.rn.f32.f16", "FHFMA R0, R1, R2, R3", kin="FFMA"),
    "FFMA2": fma("FFMA of two pairs of numbers", "fma.rn.f32x2",
                 "FFMA2 R0, R2.F32x2.HI_LO, R4.F32x2.HI_LO, R6.F32x2.HI_LO", kin="FFMA", traits="pairs", flops=4),
    "FADD2": fma("FADD of two pairs of numbers", "add.rn.f32x2",
                 "FADD2 R0, R2.F32x2.HI_LO, R4.F32x2.HI_LO", kin="FADD", traits="pairs", flops=2),
    "FMUL2": fma("FMUL of two pairs of numbers", "mul.rn.f32x2",
                 "FMUL2 R0, R2.F32x2.HI_LO, R4.F32x2.HI_LO", kin="FMUL", traits="pairs", flops=2),
    "FSET": alu("compares FP32 numbers; d = 1.0 or all ones where it holds, else 0", "set.lt.f32.f32",
                "FSET.BF.LT.AND R0, R1, R2, PT", traits="f32"),
    "FSETP": alu("compares FP32 numbers into predicates, combined with a third one", "setp.lt.f32",
                 "FSETP.GEU.AND P0, PT, R0, R1, PT", traits="compare f32 light"),
    "FSWZADD": fma("adds or subtracts a and b by a sign for each lane of a quad (derivatives)", "",
                   "FSWZADD.NDV R0, R1, R2, PNPNPNPN", opaque=True, flops=1),
    "FCHK": xu("predicate: whether a / b needs the slow path of division", "part of div.rn.f32", "FCHK P0, R0, R1",
               traits="f32"),
    "MUFU": xu("the special function unit: reciprocal, square root, sine, logarithm, ...; an approximation",
               "rcp.approx.f32, sqrt.approx.f32, rsqrt.approx.f32, sin.approx.f32, cos.approx.f32, ex2.approx.f32,"
               " lg2.approx.f32, tanh.approx.f32, __sinf, __cosf, __expf, __logf", "MUFU.RCP R0, R1", traits="f32"),
    "DFMA": fp64("d = a * b + c in FP64, rounded once", "fma.rn.f64, __fma_rn", "DFMA R0, R2, R4, R6", flops=2),
    "DADD": fp64("d = a + b in FP64", "add.f64, sub.f64, __dadd_rn", "DADD R0, R2, -R4", flops=1),
    "DMUL": fp64("d = a * b in FP64", "mul.f64, __dmul_rn", "DMUL R0, R2, R4", flops=1),
    "DSETP": fp64("compares FP64 numbers into predicates, combined with a third one", "setp.lt.f64",
                  "DSETP.GEU.AND P0, PT, R2, R4, PT", traits="compare"),
    "HADD2": half("d = a + b, two FP16 or BF16 numbers in a register",
                  "add.f16x2, sub.f16x2, cvt.f32.f16, __hadd2, __half2float", "HADD2 R0, R1, R2", flops=2),
    "HMUL2": half("d = a * b, two FP16 or BF16 numbers in a register", "mul.f16x2, __hmul2", "HMUL2 R0, R1, R2", flops=2),
    "HFMA2": half("d = a * b + c, two FP16 or BF16 numbers in a register, rounded once", "fma.rn.f16x2, __hfma2",
                  "HFMA2 R0, R1, R2, R3", traits="product", flops=4),
    "HMNMX2": half("the smaller or larger of a and b, two FP16 or BF16 numbers in a register",
                   "min.f16x2, max.f16x2, __hmin2, __hmax2", "HMNMX2 R0, R1, R2, !PT", kin="HSETP2"),
    "VHMNMX": half("the smallest or largest of three, two FP16 or BF16 numbers in a register", "",
                   "VHMNMX R0, R1, R2, R3, !PT", kin="HMNMX2"),
    "HSET2": half("compares two pairs of FP16 or BF16 numbers; d holds a result for each",
                  "set.lt.f16x2.f16x2, __hlt2, __hblt2", "HSET2.BF.LT.AND R0, R1, R2, PT"),
    "HSETP2": half("compares two pairs of FP16 or BF16 numbers into predicates", "setp.lt.f16x2, __hlt",
                   "HSETP2.LT.AND P0, P1, R0, R1, PT"),
}
