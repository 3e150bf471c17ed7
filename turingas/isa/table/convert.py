"""Conversions. The source and the result format share an opcode; 64-bit formats on either side have their own."""

import functools

from turingas.isa.arch import ADA, ALL, AMPERE, B200, BLACKWELL, GA10X, HOPPER, TURING, XAVIER, Archs
from turingas.isa.fields import Enum
from turingas.isa.grammar import rows
from turingas.isa.op import op

FIELDS = {
    "frnd": Enum(78, 2, ("", ".FLOOR", ".CEIL", ".TRUNC")),
    "ntz": Enum(77, 1, ("", ".NTZ")),
    "b3": Enum(60, 2, ("", ".B1", ".B2", ".B3")),
    # integer side, without the 64-bit ones: sign and width (".S32" is not written)
    "to32": Enum(((72, 1), (75, 2)), 3, (".U8", ".S8", ".U16", ".S16", ".U32", "")),
    "to64": Enum(((72, 1), (75, 2)), 3, (None, None, None, None, None, None, ".U64", ".S64")),
    "from8": Enum(((74, 1), (84, 2)), 3, (".U8", ".S8")),
    "from16": Enum(((74, 1), (84, 2)), 3, (None, None, ".U16", ".S16")),
    "fromu32": Enum(((74, 1), (84, 2)), 3, {4: ".U32"}),
    "froms32": Enum(((74, 1), (84, 2)), 3, {5: ""}),
    "fromu64": Enum(((74, 1), (84, 2)), 3, {6: ".U64"}),
    "froms64": Enum(((74, 1), (84, 2)), 3, {7: ".S64"}),
    # packed conversions
    "relu": Enum(75, 1, ("", ".RELU")),
    "satfinite": Enum(77, 1, ("", ".SATFINITE")),
    "bf16": Enum(76, 1, ("", ".BF16")),
    "packrnd": Enum(79, 3, ("", None, None, ".RZ")),
    "ch1": Enum(72, 1, ("", ".H1")),
    "fmt16": Enum(76, 1, (".F16", ".BF16")),
    "fmt8": Enum(76, 1, (".E5M2", ".E4M3")),
    "src8": Enum(73, 1, (".E5M2", ".E4M3")),
    "narrow": Enum(((76, 1), (85, 4)), 5, {6: ".E2M3", 7: ".E3M2", 8: ".E5M2", 9: ".E4M3"}),

    "e8rnd": Enum(79, 3, {0: "", 2: ".RP", 3: ".RZ"}), "s26": Enum(77, 1, (".SATFINITE", "")),
    "from2": Enum(82, 2, {0: ".F16", 2: ".BF16"}),
    "narrowsrc": Enum(((73, 2), (82, 2)), 4, {2: ".E5M2", 3: ".E4M3", 6: ".E2M3", 7: ".E3M2"}),
    "scaledsrc": Enum(((73, 2), (82, 2)), 4, {2: ".E5M2", 3: ".E4M3", 6: ".E2M3", 7: ".E3M2", 10: ".S2_6"}),
    "part": Enum(24, 3, (".H0", ".H1", ".B0", ".B1", ".B2", ".B3", None, None)),
    "b2": Enum(88, 1, ("", ".B2")),
    "bh1": Enum(88, 1, ("", ".H1")),
    "i2i": Enum(76, 2, (".U8", ".S8", ".U16", ".S16")),
    "i2ip16": Enum(76, 3, (".U8", ".S8", ".U16", ".S16")),
    "i2ip4": Enum(76, 3, (None, None, None, None, None, None, ".U4", ".S4")),
    "at24": Enum(72, 2, (None, None, ".24")),
    "i2ip2": Enum(76, 3, (None, None, None, None, ".U2", ".S2")),
    "at28": Enum(72, 2, (None, None, None, ".28")),
    "isat": Enum(74, 2, ("", ".SAT", ".SATRELU")),
    "fp_to": Enum(75, 3, (None, None, ".F32")),
    "fp_u32": Enum(((74, 1), (84, 2)), 3, {4: ".U32"}),
    "fp_s32": Enum(((74, 1), (84, 2)), 3, {5: ".S32"}),
    "f2ip": Enum(76, 2, (".U8", ".S8")),
    "f2ip_rnd": Enum(78, 2, ("", None, None, ".TRUNC")),
    "f2ip_ntz": Enum(74, 1, ("", ".NTZ")),
    "f2ip_relu": Enum(75, 1, ("", ".RELU")),
}

F16, F32, F64, BF16 = 1, 2, 3, 4  # format codes: results at 75, sources at 84


def f2f(to: str, source: str, archs: Archs) -> list[tuple[object, ...]]:
    """F2F rows of one pair of formats: half sources may be the upper half of a register."""
    codes = {"F16": F16, "F32": F32, "F64": F64, "BF16": BF16}
    opcode = 0x110 if "F64" in (to, source) else 0x104
    wide = "2" if source == "F64" else ""
    letter = "D" if source == "F64" else "F"
    name = f"F2F{{ftz}}.{to}.{source}{{rnd}} Rd{'2' if to == 'F64' else ''}"
    fixed = {75: codes[to], 84: codes[source]}
    if codes[source] in (F16, BF16):
        return half_sources(f"{name}, SRC", opcode, fixed, archs)
    return [(f"{name}, -|{letter}b{wide}|", opcode, fixed, archs)]


def half_sources(text: str, opcode: int, fixed: dict[int, int], archs: Archs) -> list[tuple[object, ...]]:
    """A one-source row (SRC) whose source is a packed half: register, constant, immediate, uniform register."""
    turing = archs & TURING
    return [
        (text.replace("SRC", "half_r"), opcode | 0x200, fixed, archs),
        (text.replace("SRC", "half_c"), opcode | 0xA00, fixed, archs),
        (text.replace("SRC", "bf16lo" if ".BF16{" in text else "f16lo"), opcode | 0x800, fixed, archs),
        (text.replace("SRC", "half_u"), opcode | 0x1C00, fixed, turing),
    ]


def small(
    text: str, opcode: int, fixed: dict[int, int], part: str, archs: Archs
) -> list[tuple[object, ...]]:
    """A one-source row (SRC) whose source is an 8 or 16-bit part of a register, chosen by the field ``part``."""
    return [
        (text.replace("SRC", f"Rb{{{part}}}"), opcode | 0x200, fixed, archs),
        (text.replace("SRC", f"URb{{{part}}}"), opcode | 0x1C00, fixed, archs & TURING),
    ]


ROWS = rows(
    # ---- floating point to floating point
    *f2f("F16", "F32", ALL), *f2f("F32", "F16", ALL), *f2f("BF16", "F32", AMPERE),
    *f2f("F16", "F64", ALL), *f2f("F32", "F64", ALL), *f2f("F64", "F16", ALL), *f2f("F64", "F32", ALL),
    *f2f("F16", "BF16", HOPPER), *f2f("F32", "BF16", HOPPER), *f2f("BF16", "F16", HOPPER),
    *f2f("F64", "BF16", HOPPER), *f2f("BF16", "F64", HOPPER),
    ("FRND{ftz}{frnd} Rd, -|Fb|",                                      0x107, {75: F32, 84: F32}, ALL),
    ("FRND{ftz}.F64{frnd} Rd2, -|Db|",                                 0x113, {75: F64, 84: F64}, ALL),
    *half_sources("FRND{ftz}.F16{frnd} Rd, SRC",                       0x107, {75: F16, 84: F16}, ALL),
    *half_sources("FRND{ftz}.BF16{frnd} Rd, SRC",                      0x107, {75: BF16, 84: BF16}, HOPPER),
    # ---- floating point to integer
    ("F2I{ftz}{to32}{frnd}{ntz} Rd, -|Fb|",                            0x105, {84: F32}, ALL),
    ("F2I{ftz}{to64}{frnd}{ntz} Rd2, -|Fb|",                           0x111, {84: F32}, ALL),
    ("F2I{ftz}{to32}.F64{frnd}{ntz} Rd, -|Db|",                        0x111, {84: F64}, ALL),
    ("F2I{ftz}{to64}.F64{frnd}{ntz} Rd2, -|Db|",                       0x111, {84: F64}, ALL),
    *half_sources("F2I{ftz}{to32}.F16{frnd}{ntz} Rd, SRC",             0x105, {84: F16}, ALL),
    *half_sources("F2I{ftz}{to64}.F16{frnd}{ntz} Rd2, SRC",            0x111, {84: F16}, ALL),
    *half_sources("F2I{ftz}{to32}.BF16{frnd}{ntz} Rd, SRC",            0x105, {84: BF16}, HOPPER),
    *half_sources("F2I{ftz}{to64}.BF16{frnd}{ntz} Rd2, SRC",           0x111, {84: BF16}, HOPPER),
    # ---- integer to floating point
    *(row for name, code, archs in (("", F32, ALL), (".F16", F16, ALL), (".BF16", BF16, HOPPER)) for row in (
        (f"I2F{name}{{fromu32}}{{rnd}} Rd, Sb",   0x106, {75: code}, archs),
        (f"I2F{name}{{froms32}}{{rnd}} Rd, Ib",   0x106, {75: code}, archs),
        (f"I2F{name}{{fromu64}}{{rnd}} Rd, Sb2",  0x112, {75: code}, archs),
        (f"I2F{name}{{froms64}}{{rnd}} Rd, Ib2",  0x112, {75: code}, archs),
        *small(f"I2F{name}{{from16}}{{rnd}} Rd, SRC", 0x106, {75: code}, "h1", archs),
        *small(f"I2F{name}{{from8}}{{rnd}} Rd, SRC", 0x106, {75: code}, "b3", archs))),
    ("I2F.F64{fromu32}{rnd} Rd2, Sb",                                   0x112, {75: F64}, ALL),
    ("I2F.F64{froms32}{rnd} Rd2, Ib",                                   0x112, {75: F64}, ALL),
    ("I2F.F64{fromu64}{rnd} Rd2, Sb2",                                  0x112, {75: F64}, ALL),
    ("I2F.F64{froms64}{rnd} Rd2, Ib2",                                  0x112, {75: F64}, ALL),
    *small("I2F.F64{from16}{rnd} Rd2, SRC",                            0x112, {75: F64}, "h1", ALL),
    *small("I2F.F64{from8}{rnd} Rd2, SRC",                             0x112, {75: F64}, "b3", ALL),
    ("I2FP{fp_to}{fp_u32}{prnd} Rd, Sb",                              0x045, {}, GA10X,
     {"prnd": Enum(78, 2, ("", None, None, ".RZ"))}),
    ("I2FP{fp_to}{fp_s32}{prnd} Rd, Ib",                              0x045, {}, GA10X,
     {"prnd": Enum(78, 2, ("", None, None, ".RZ"))}),
    # ---- packed; sm_75 uses F2FP.PACK_AB (cuBLAS), but nvdisasm passes over it there in silence
    ("F2FP.PACK_AB{packrnd} Rd, Ra, Rb",                               0x23E, {64: 255}, TURING - AMPERE),
    ("F2FP{satfinite}{relu}{bf16}.PACK_AB{packrnd} Rd, Ra, Fb",        0x03E, {64: 255}, AMPERE - ADA),
    ("F2FP{satfinite}{relu}{bf16}.MERGE_C{packrnd} Rd, Fb, Rc{ch1}",   0x03E, {24: 255, 78: 1}, AMPERE - ADA),
    ("F2FP{satfinite}{relu}{fmt16}.F32.PACK_AB{packrnd} Rd, Ra, Fb",   0x03E, {64: 255}, ADA),
    ("F2FP{satfinite}{relu}{fmt16}.F32.MERGE_C{packrnd} Rd, Fb, Rc{ch1}", 0x03E, {24: 255, 78: 1}, ADA),
    ("F2FP{satfinite}{relu}{fmt8}.F32.PACK_AB_MERGE_C Rd, Ra, Fb, Rc{ch1}", 0x03E, {78: 1, 87: 1, 90: 1}, ADA - BLACKWELL),
    ("F2FP{satfinite}{relu}{fmt8}.F16.UNPACK_B_MERGE_C Rd, Fb, Rc{ch1}", 0x03E, {24: 255, 73: 1, 87: 1, 90: 1}, ADA - BLACKWELL),
    ("F2FP{relu}{fmt16}{src8}.UNPACK_B Rd, Rb{bh1}",                   0x23E, {24: 255, 64: 255, 74: 1, 89: 1}, ADA - BLACKWELL),
    ("F2FP{relu}{fmt16}{src8}.UNPACK_B Rd, f32",                      0x83E, {24: 255, 64: 255, 74: 1, 89: 1}, ADA - BLACKWELL),
    ("F2FP{relu}{fmt16}{src8}.UNPACK_B Rd, cb{bh1}",                   0xA3E, {24: 255, 64: 255, 74: 1, 89: 1}, ADA - BLACKWELL),
    ("F2FP{relu}{fmt16}{src8}.UNPACK_B Rd, URb{bh1}",                 0x1C3E, {24: 255, 64: 255, 74: 1, 89: 1}, ADA - BLACKWELL),
    ("F2FP{relu}.TF32.F32.PACK_B{packrnd} Rd, Fb",          0x03E, {24: 255, 64: 255, 76: 1, 78: 1, 86: 1, 89: 1}, ADA - BLACKWELL),
    # Blackwell: formats of 4 and 6 bits, scales (.E8), and .RS, which rounds by the random bits of one more source
    ("F2FP{satfinite}{relu}{fmt16}.F32.PACK_AB.RS Rd, Ra, Fb, Rc",     0x03E, {81: 1}, B200),
    ("F2FP{satfinite}{relu}{narrow}.F32.PACK_AB_MERGE_C{e8rnd} Rd, Ra, Fb, Rc{ch1}", 0x03E, {78: 1, 90: 1}, BLACKWELL),
    ("F2FP{satfinite}{relu}{narrow}.F32.PACK_AB_MERGE_C.RS Rd, Ra, Fb, Rc", 0x03E, {78: 1, 81: 1, 90: 1}, B200),
    ("F2FP.SATFINITE{relu}.E2M1.F32.PACK_AB_MERGE_C Rd, Ra, Fb, Rc", 0x03E, {76: 7, 85: 1, 90: 1}, BLACKWELL),
    ("F2FP.SATFINITE{relu}.E2M1.F32.PACK_AB_MERGE_C.RS Rd, Ra, Fb, Rc", 0x03E, {76: 7, 81: 1, 85: 1, 90: 1}, B200),
    ("F2FP{satfinite}{relu}.E8.F32.PACK_AB_MERGE_C{e8rnd} Rd, Ra, Fb, Rc{ch1}", 0x03E, {78: 1, 86: 3, 90: 1}, BLACKWELL),
    ("F2FP{s26}{relu}.S2_6.F32.PACK_AB_MERGE_C Rd, Ra, Fb, Fc",   0x03E, {76: 1, 78: 1, 85: 5, 90: 1}, BLACKWELL),
    ("F2FP{s26}{relu}.S2_6.BF16.UNPACK_B_MERGE_C Rd, Fb, Fc", 0x03E, {24: 255, 73: 1, 76: 1, 83: 1, 85: 5, 90: 1}, BLACKWELL),
    ("F2FP{satfinite}{relu}{narrow}{from2}.UNPACK_B_MERGE_C{e8rnd} Rd, Fb, Rc{ch1}", 0x03E, {24: 255, 73: 1, 90: 1}, BLACKWELL),
    ("F2FP.SATFINITE{relu}.E2M1{from2}.UNPACK_B_MERGE_C Rd, Fb, Rc", 0x03E, {24: 255, 73: 1, 76: 3, 85: 1, 90: 1}, BLACKWELL),
    ("F2FP{satfinite}{relu}.E8{from2}.UNPACK_B_MERGE_C{e8rnd} Rd, Fb, Rc{ch1}", 0x03E, {24: 255, 73: 1, 86: 3, 90: 1}, BLACKWELL),
    *((f"F2FP{to} Rd, {source.replace('half', half)}", opcode, {24: 255, 64: 255, 89: 1, **fixed}, BLACKWELL)
      for source, opcode in (("Rb{half}", 0x23E), ("f32", 0x83E), ("URb{half}", 0x1C3E))
      for to, half, fixed in (("{relu}.F16{narrowsrc}.UNPACK_B", "bh1", {}), ("{relu}.F16.E2M1.UNPACK_B", "b2", {73: 1, 82: 1}),
                              (".BF16.E8.UNPACK_B", "bh1", {73: 3, 76: 1, 82: 2}))),
    # ... times a scale, a part of the last source (cvt .scaled::n2::ue8m0)
    *((f"F2FP{{satfinite}}{{relu}}.BF16{kind}.UNPACK_B Rd, {sources.replace('half', half)}{{part}}", opcode,
       {76: 1, 89: 1, **fixed}, BLACKWELL)
      for sources, opcode in (("Rb{half}, Rc", 0x63E), ("f32, Rc", 0xA3E), ("URb{half}, Rc", 0x123E),
                              ("Rb_c{half}, URb", 0x143E), ("Rb_c{half}, f32", 0xE3E))
      for kind, half, fixed in (("{scaledsrc}", "bh1", {}), (".E2M1", "b2", {73: 1, 82: 1}))),
    ("F2FP{satfinite}{relu}.TF32.F32.PACK_B{packrnd} Rd, Fb", 0x03E, {24: 255, 64: 255, 76: 1, 78: 1, 86: 1, 89: 1}, BLACKWELL),
    ("F2IP{f2ip}.F32{f2ip_rnd}{f2ip_ntz}{f2ip_relu} Rd, Ra, Fb, Rc{ch1}",        0x043, {}, GA10X),
    ("I2I{i2i}.S32.SAT Rd, Ib",                                        0x038, {}, TURING | XAVIER),
    ("I2IP{i2ip16}.S32.SAT Rd, Ra, Ib, Rc{ch1}",                       0x039, {}, (TURING | XAVIER) - HOPPER),
    ("I2IP{i2ip4}.S32.SAT Rd, Ra, Ib, Rc{at24}",                     0x039, {}, AMPERE - HOPPER),
    ("I2IP{i2ip2}.S32.SAT Rd, Ra, Ib, Rc{at28}",                     0x039, {}, AMPERE - HOPPER),
    ("I2IP{i2ip16}.S32{isat} Rd, Ra, Ib, Rc{ch1}",                     0x039, {}, HOPPER),
    ("I2IP{i2ip4}.S32{isat} Rd, Ra, Ib, Rc{at24}",                   0x039, {}, HOPPER),
    ("I2IP{i2ip2}.S32{isat} Rd, Ra, Ib, Rc{at28}",                   0x039, {}, HOPPER),
    fields=FIELDS,
)  # fmt: skip

alu, xu = (functools.partial(op, pipe) for pipe in ("alu", "xu"))

OPS = {
    "F2F": xu("from one floating-point format to another", "cvt.f64.f32, cvt.rn.f32.f64, __double2float_rn",
              "F2F.F32.F64 R0, R2"),
    "FRND": xu("rounds to an integer, in floating point", "cvt.rni.f32.f32, rintf, floorf, ceilf, truncf",
               "FRND.FLOOR R0, R1"),
    "F2I": xu("from floating point to integer", "cvt.rzi.s32.f32, __float2int_rz", "F2I.TRUNC.NTZ R0, R1"),
    "I2F": xu("from integer to floating point", "cvt.rn.f32.s32, __int2float_rn", "I2F.S16 R0, R1", "I2F.F64 R0, R2"),
    "I2FP": alu("from integer to FP32, at the rate of arithmetic", "cvt.rn.f32.s32, __int2float_rn",
                "I2FP.F32.S32 R0, R1", kin="I2F"),
    "F2FP": alu("two FP32 numbers, rounded and packed in one register (FP16, BF16, TF32, FP8)",
                "cvt.rn.f16x2.f32, cvt.rn.bf16x2.f32, __floats2half2_rn", "F2FP.F16.F32.PACK_AB R0, R1, R2",
                "F2FP.PACK_AB R0, R1, R2", kin="F2F"),
    "F2IP": alu("FP32 numbers to bytes, packed", "cvt.rni.sat.u8.f32", "F2IP.U8.F32.NTZ R0, R1, R2, R3", kin="F2I"),
    "I2I": alu("from one integer format to another, with saturation", "cvt.sat.s8.s32", "I2I.S8.S32.SAT R0, R1"),
    "I2IP": alu("packs integers to smaller ones, with saturation", "cvt.pack.sat.s8.s32.b32",
                "I2IP.S8.S32.SAT R0, R1, R2, R3"),
}
