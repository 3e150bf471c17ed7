"""The uniform datapath (sm_75 and later)."""

import functools

from turingas.isa.arch import BLACKWELL, HOPPER, TURING, Arch
from turingas.isa.fields import Alone, Constant, Enum, Number, Offset, Target, flag
from turingas.isa.grammar import behind, field_of, not_zero, register, rows
from turingas.isa.op import op


class Bindless(Constant):
    """``cx[URn][offset]`` of ULDC: its uniform register stands at 24."""

    def __init__(self, arch: Arch) -> None:
        super().__init__(field_of(register("UR", 24), arch), byte=True)


# A predicate operand that only the .X form has is !UPT elsewhere: NVIDIA sets these bits, nvdisasm does not print them.
NO_Q = {77: 15}
NO_P = {87: 15}
NO_C = {64: "URZ"}  # a source c that the form does not read is URZ

TO_HOPPER = TURING - BLACKWELL

# fmt: off
ROWS = rows(
    # text                                                        opcode  fixed           architectures
    ("UMOV URd, URb",                                             0x1C82, {}, TURING),
    ("UMOV URd, imm",                                             0x0882, {}, TURING),
    ("USEL URd, URa, URb, !UPp",                                  0x1287, {}, TURING),
    ("USEL URd, URa, imm, !UPp",                                  0x1887, {}, TURING),

    # ---- integer arithmetic
    ("UIADD3 URd, UPu?, UPv?, -URa, -URb, -URc",                  0x1290, NO_Q | NO_P, TO_HOPPER),
    ("UIADD3 URd, UPu?, UPv?, -URa, simm, -URc",                  0x1890, NO_Q | NO_P, TO_HOPPER),
    ("UIADD3.X URd, UPu?, UPv?, ~URa, ~URb, ~URc, !UPp, !UPq",    0x1290, {74: 1}, TO_HOPPER),
    ("UIADD3.X URd, UPu?, UPv?, ~URa, simm, ~URc, !UPp, !UPq",    0x1890, {74: 1}, TO_HOPPER),
    ("UIADD3.64 URd2, UPu?, UPv?, -URa2, -URb2, -URc2",           0x1297, NO_Q | NO_P, TO_HOPPER),
    ("UIADD3.64 URd2, UPu?, UPv?, -URa2, simm, -URc2",            0x1897, NO_Q | NO_P, TO_HOPPER),
    ("UIADD3.64.X URd2, UPu?, UPv?, ~URa2, ~URb2, ~URc2, !UPp, !UPq", 0x1297, {74: 1}, TO_HOPPER),
    ("UIADD3.64.X URd2, UPu?, UPv?, ~URa2, simm, ~URc2, !UPp, !UPq", 0x1897, {74: 1}, TO_HOPPER),
    ("UIADD3 URd, UPu, UPv, -URa, -URb, -URc",                  0x1290, NO_Q | NO_P, BLACKWELL),
    ("UIADD3 URd, UPu, UPv, -URa, simm, -URc",                  0x1890, NO_Q | NO_P, BLACKWELL),
    ("UIADD3.X URd, UPu, UPv, ~URa, ~URb, ~URc, !UPp, !UPq",    0x1290, {74: 1}, BLACKWELL),
    ("UIADD3.X URd, UPu, UPv, ~URa, simm, ~URc, !UPp, !UPq",    0x1890, {74: 1}, BLACKWELL),
    ("UIADD3.64 URd2, UPu, UPv, -URa2, -URb2, -URc2",           0x1297, NO_Q | NO_P, BLACKWELL),
    ("UIADD3.64 URd2, UPu, UPv, -URa2, simm, -URc2",            0x1897, NO_Q | NO_P, BLACKWELL),
    ("UIADD3.64.X URd2, UPu, UPv, ~URa2, ~URb2, ~URc2, !UPp, !UPq", 0x1297, {74: 1}, BLACKWELL),
    ("UIADD3.64.X URd2, UPu, UPv, ~URa2, simm, ~URc2, !UPp, !UPq", 0x1897, {74: 1}, BLACKWELL),
    ("UIMAD{u32} URd, URa, URb, -URc",                            0x12A4, NO_P | {81: 7}, TURING),
    ("UIMAD{u32} URd, URa, simm, -URc",                           0x18A4, NO_P | {81: 7}, TURING),
    ("UIMAD{u32} URd, URa, URb_c, simm",                          0x14A4, NO_P | {81: 7}, TURING),
    ("UIMAD{u32}.X URd, URa, URb, ~URc, !UPp",                    0x12A4, {74: 1, 81: 7}, TURING),
    ("UIMAD{u32}.X URd, URa, simm, ~URc, !UPp",                   0x18A4, {74: 1, 81: 7}, TURING),
    ("UIMAD{u32}.X URd, URa, URb_c, simm, !UPp",                  0x14A4, {74: 1, 81: 7}, TURING),
    ("UIMAD.WIDE{u32} URd2, UPu?, URa, URb, -URc2",               0x12A5, NO_P, TURING),
    ("UIMAD.WIDE{u32} URd2, UPu?, URa, simm, -URc2",              0x18A5, NO_P, TURING),
    ("UIMAD.WIDE{u32}.X URd2, UPu?, URa, URb, ~URc2, !UPp",       0x12A5, {74: 1}, TURING),
    ("UIMAD.WIDE{u32}.X URd2, UPu?, URa, simm, ~URc2, !UPp",      0x18A5, {74: 1}, TURING),
    # ULEA.HI takes the high half in c; with .SX32 that is the sign of a
    ("ULEA URd, UPu?, -URa, -URb, shift",                         0x1291, NO_P | NO_C, TURING),
    ("ULEA URd, UPu?, -URa, imm, shift",                          0x1891, NO_P | NO_C, TURING),
    ("ULEA.X URd, UPu?, ~URa, ~URb, shift, !UPp",                 0x1291, NO_C | {74: 1}, TURING),
    ("ULEA.X URd, UPu?, ~URa, imm, shift, !UPp",                  0x1891, NO_C | {74: 1}, TURING),
    ("ULEA.HI URd, UPu?, -URa, -URb, URc, shift",                 0x1291, NO_P | {80: 1}, TURING),
    ("ULEA.HI URd, UPu?, -URa, imm, URc, shift",                  0x1891, NO_P | {80: 1}, TURING),
    ("ULEA.HI URd, UPu?, -URa, URb_c, imm, shift",                0x1491, NO_P | {80: 1}, TURING),
    ("ULEA.HI.X URd, UPu?, ~URa, ~URb, URc, shift, !UPp",         0x1291, {74: 1, 80: 1}, TURING),
    ("ULEA.HI.X URd, UPu?, ~URa, imm, URc, shift, !UPp",          0x1891, {74: 1, 80: 1}, TURING),
    ("ULEA.HI.X URd, UPu?, ~URa, URb_c, imm, shift, !UPp",        0x1491, {74: 1, 80: 1}, TURING),
    ("ULEA.HI.SX32 URd, UPu?, -URa, -URb, shift",                 0x1291, NO_P | NO_C | {73: 1, 80: 1}, TURING),
    ("ULEA.HI.SX32 URd, UPu?, -URa, imm, shift",                  0x1891, NO_P | NO_C | {73: 1, 80: 1}, TURING),
    ("ULEA.HI.X.SX32 URd, UPu?, ~URa, ~URb, shift, !UPp",         0x1291, NO_C | {73: 1, 74: 1, 80: 1}, TURING),
    ("ULEA.HI.X.SX32 URd, UPu?, ~URa, imm, shift, !UPp",          0x1891, NO_C | {73: 1, 74: 1, 80: 1}, TURING),
    ("UCLEA URd, UPu, URa, URb, shift4",                          0x1CBC, {}, TURING),
    ("UCLEA URd, UPu, URa, imm16, shift4",                        0x18BC, {}, TURING),

    # ---- logic, shifts, bits
    ("ULOP3.LUT{pand} UPu?, URd, URa, URb, URc, lut, !UPp",       0x1292, {}, TURING),
    ("ULOP3.LUT{pand} UPu?, URd, URa, imm, URc, lut, !UPp",       0x1892, {}, TURING),
    ("USHF{lr}{wrap}{shtype}{hi} URd, URa, URb, URc",             0x1299, {}, TURING),
    ("USHF{lr}{wrap}{shtype}{hi} URd, URa, imm, URc",             0x1899, {}, TURING),
    ("USHF{lr}{wrap}{shtype}{hi} URd, URa, URb_c, imm",           0x1499, {}, TURING),
    ("UPRMT URd, URa, URb, URc",                                  0x1296, {}, TURING),
    ("UPRMT URd, URa, imm, URc",                                  0x1896, {}, TURING),
    ("USGXT{wrap}{u32} URd, URa, URb",                            0x129A, {}, TURING),
    ("USGXT{wrap}{u32} URd, URa, imm",                            0x189A, {}, TURING),
    ("UBMSK{wrap} URd, URa, URb",                                 0x129B, {}, TURING),
    ("UBMSK{wrap} URd, URa, imm",                                 0x189B, {}, TURING),
    ("UFLO{u32}{sh} URd, UPu?, ~URb",                             0x12BD, {}, TURING),
    ("UFLO{u32}{sh} URd, UPu?, imm",                              0x18BD, {}, TURING),
    ("UBREV URd, URb",                                            0x12BE, {}, TURING),
    ("UBREV URd, imm",                                            0x18BE, {}, TURING),
    ("UPOPC URd, ~URb",                                           0x12BF, {}, TURING),
    ("UPOPC URd, imm",                                            0x18BF, {}, TURING),
    # two floats to packed halves; the only format that nvdisasm has a (silent) name for is F16
    ("UF2FP.PACK_AB{rz} URd, URa, URb",                           0x12BA, NO_C | {75: 1, 85: 1}, HOPPER),
    ("UF2FP.PACK_AB{rz} URd, URa, f32",                           0x18BA, NO_C | {75: 1, 85: 1}, HOPPER),
    ("UF2FP.MERGE_C{rz} URd, URb, URc{h1}",                       0x12BA, {24: "URZ", 75: 1, 78: 1, 85: 1}, HOPPER),
    ("UF2FP.MERGE_C{rz} URd, f32, URc{h1}",                       0x18BA, {24: "URZ", 75: 1, 78: 1, 85: 1}, HOPPER),

    # ---- predicates
    ("UISETP{icmp}{u32}{bool} UPu, UPv, URa, URb, !UPp",          0x128C, {68: 7}, TURING),
    ("UISETP{icmp}{u32}{bool} UPu, UPv, URa, simm, !UPp",         0x188C, {68: 7}, TURING),
    ("UISETP{icmp}{u32}{bool}.EX UPu, UPv, URa, URb, !UPp, !UPr", 0x128C, {72: 1}, TURING),
    ("UISETP{icmp}{u32}{bool}.EX UPu, UPv, URa, simm, !UPp, !UPr", 0x188C, {72: 1}, TURING),
    ("UPLOP3.LUT UPu, UPv, !UPp, !UPq, !UPr, lut53, lut_v",       0x089C, {}, TURING),
    ("UPLOP3.LUT UPu, UPv, !UPp, URb.SIGN, !UPr, lut, lut_v",     0x129D, {}, TURING),
    ("UPLOP3.LUT UPu, UPv, !UPp, URb.SIGN, URc.SIGN, lut, lut_v", 0x129E, {}, TURING),
    ("UPLOP3.LUT UPu, UPv, URa.SIGN, URb.SIGN, URc.SIGN, lut, lut_v", 0x129F, {}, TURING),
    ("UP2UR{byte} URd, UPR, URa, imm",                            0x1883, {}, TURING),
    ("UP2UR{byte} URd, UPR, URa, URb",                            0x1C83, {}, TURING),
    ("UR2UP UPR, URa{byte}, upmask?",                             0x1884, {}, TURING),
    ("UR2UP UPR, URa{byte}, URb",                                 0x1C84, {}, TURING),
    ("VOTEU{vote} URd?, UPu, !Pp",                                0x0886, {}, TURING),

    # ---- constant memory
    ("ULDC{size} URdw, const",                                    0x0AB9, {}, TURING),
    ("ULDC{size} URdw, cx",                                       0x1AB9, {}, TURING),
    ("ULDC{size} URdw, c[bank][URa(coff)]",                       0x1ABB, {}, TURING),

    ("LDCU{sizes}{texunpack} URdw, c[bank][cuat]",                            0x17AC, {24: "URZ", "cuat": bool, "guard": "UP"}, BLACKWELL),
    ("LDCU{sizes}{texunpack} URdw, c[bank][URa(cuoff)]",                      0x17AC, {"guard": "UP"}, BLACKWELL),

    # ---- the warp and its resources
    ("UVIRTCOUNT.DEALLOC.SMPOOL imm",                             0x084C, {"guard": "UP"}, BLACKWELL),
    ("UGETNEXTWORKID{cast} [URa], [URg]",                         0x13CA, {"URa": not_zero}, BLACKWELL),
    ("USETMAXREG.DEALLOC.CTAPOOL count",                          0x19C8, {72: 1, 74: 1, 81: 7}, HOPPER),
    ("USETMAXREG.DEALLOC.CTAPOOL URb",                            0x13C8, {72: 1, 74: 1, 81: 7}, HOPPER),
    ("USETMAXREG.TRY_ALLOC.CTAPOOL UPu, count",                   0x19C8, {73: 1, 74: 1}, HOPPER),
    ("USETMAXREG.TRY_ALLOC.CTAPOOL UPu, URb",                     0x13C8, {73: 1, 74: 1}, HOPPER),
    ("USETSHMSZ bytes",                                           0x19C9, {}, HOPPER),
    ("USETSHMSZ URb",                                             0x13C9, {}, HOPPER),
    ("USETSHMSZ.FLUSH",                                           0x19C9, {72: 1}, HOPPER),
    ("UCGABAR_ARV",                                               0x19C7, {}, HOPPER),
    ("UCGABAR_WAIT",                                              0x1DC7, {}, HOPPER),
    ("ULEPC URd",                                                 0x13CE, {"reuse": True}, HOPPER),
    ("ULEPC URd, target",                                         0x19CE, {"reuse": True}, HOPPER),
    fields={
        # pairs of registers: even ones only
        "URd2": register("UR", 16, 2), "URdw": register("UR", 16, -1),
        "-URa2": register("UR", 24, 2, neg=72), "~URa2": register("UR", 24, 2, inv=72),
        "-URb2": register("UR", 32, 2, neg=63), "~URb2": register("UR", 32, 2, inv=63),
        "-URc2": register("UR", 64, 2, neg=75), "~URc2": register("UR", 64, 2, inv=75),
        "u32": Enum(73, 1, (".U32", "")),
        "icmp": Enum(76, 3, (".F", ".LT", ".EQ", ".LE", ".GT", ".NE", ".GE", ".T")),
        "bool": Enum(74, 2, (".AND", ".OR", ".XOR", None)),
        "pand": flag(80, ".PAND"),
        "lut": Number(72, 8), "lut_v": Number(16, 8), "lut53": Number(((64, 3), (72, 5)), 8),
        "shift": Number(75, 5), "shift4": Number(73, 4), "imm16": Number(32, 16),
        "lr": Enum(76, 1, (".L", ".R")), "hi": flag(80, ".HI"), "wrap": flag(75, ".W"), "sh": flag(74, ".SH"),
        "shtype": Enum(73, 2, (".S64", ".U64", ".S32", ".U32")),
        "h1": flag(72, ".H1"), "rz": Enum(79, 3, {0: "", 3: ".RZ"}),
        "cuat": Alone(37, 17, signed=True), "cuoff": Offset(37, 17),
        "texunpack": flag(80, ".TEXUNPACK"), "cast": Enum(72, 1, (".SELFCAST", ".BROADCAST")), "URg": behind(24),
        "byte": Enum(76, 2, ("", ".B1", ".B2", ".B3")), "upmask": Number(32, 32, default=0xFF),
        "vote": Enum(72, 2, (".ALL", ".ANY", ".EQ", None)),
        "size": Enum(73, 3, (".U8", ".S8", ".U16", ".S16", "", ".64"), spans={".64": 2}),
        "sizes": Enum(73, 3, (".U8", ".S8", ".U16", ".S16", "", ".64", ".128"), spans={".64": 2, ".128": 4}),
        "const": Constant(byte=True), "cx": Bindless, "bank": Number(54, 5), "coff": Offset(38, 16),
        "count": Number(32, 10), "bytes": Number(32, 20),
        "target": Target(((24, 58),)),
    },
)
# fmt: on

uniform, umove, branch = (functools.partial(op, pipe) for pipe in ("uniform", "umove", "branch"))

# umove: they write uniform registers, but not through the uniform arithmetic
OPS = {
    "UMOV": umove("uniform d = a", "mov.b32", "UMOV UR4, 0x1", kin="MOV", traits="copy"),
    "USEL": uniform("uniform SEL", "selp.b32", "USEL UR4, UR5, UR6, UP0", kin="SEL"),
    "UIADD3": uniform("uniform IADD3", "add.s32, sub.s32", "UIADD3 UR4, UR5, 0x1, URZ", kin="IADD3", traits="sum"),
    "UIMAD": uniform("uniform IMAD", "mad.lo.s32, mul.lo.s32", "UIMAD UR4, UR5, UR6, UR7", kin="IMAD",
                     traits="product"),
    "ULEA": uniform("uniform LEA", "part of mad, shl, add", "ULEA UR4, UR5, UR6, 0x2", kin="LEA"),
    "UCLEA": uniform("address arithmetic for constants, uniform", "", "UCLEA UR4, UP0, UR6, UR8, 0x2", kin="LEA"),
    "ULOP3": uniform("uniform LOP3", "and.b32, or.b32, xor.b32", "ULOP3.LUT UR4, UR5, UR6, URZ, 0xc0, !UPT", kin="LOP3"),
    "USHF": uniform("uniform SHF", "shl.b32, shr.u32, shf.l", "USHF.R.U32.HI UR4, URZ, 0x5, UR6", kin="SHF"),
    "UPRMT": uniform("uniform PRMT", "prmt.b32", "UPRMT UR4, UR5, 0x5410, UR6", kin="PRMT"),
    "USGXT": uniform("uniform SGXT", "szext, bfe.s32", "USGXT UR4, UR5, 0x8", kin="SGXT"),
    "UBMSK": uniform("uniform BMSK", "bmsk.clamp.b32", "UBMSK UR4, UR5, UR6", kin="BMSK"),
    "UFLO": uniform("uniform FLO", "bfind.u32, clz.b32", "UFLO.U32 UR4, UR5", kin="FLO"),
    "UBREV": uniform("uniform BREV", "brev.b32", "UBREV UR4, UR5", kin="BREV"),
    "UPOPC": uniform("uniform POPC", "popc.b32", "UPOPC UR4, UR5", kin="POPC"),
    "UF2FP": uniform("uniform F2FP", "cvt.rn.f16x2.f32", "UF2FP.PACK_AB UR4, UR5, UR6", kin="F2FP"),
    "UISETP": uniform("uniform ISETP", "setp.lt.s32", "UISETP.GE.AND UP0, UPT, UR4, UR5, UPT", kin="ISETP",
                      traits="compare"),
    "UPLOP3": uniform("uniform PLOP3", "and.pred, or.pred", "UPLOP3.LUT UP0, UPT, UP1, UP2, UPT, 0x80, 0x0",
                      kin="PLOP3"),
    "UP2UR": uniform("uniform P2R", "", "UP2UR UR4, UPR, URZ, 0x7f", kin="P2R"),
    "UR2UP": uniform("uniform R2P", "", "UR2UP UPR, UR4", writes="UPR", kin="R2P"),
    "VOTEU": umove("VOTE with a uniform result", "vote.sync, __all_sync", "VOTEU.ANY UR4, UPT, PT", kin="VOTE",
                   traits="lanes"),
    "ULDC": umove("loads a uniform register from constant memory", "ld.param, ld.const", "ULDC UR4, c[0x0][0x160]",
                  kin="MOV", space="constant"),
    "LDCU": op("constant", "loads uniform registers from constant memory", "ld.param, ld.const",
               "LDCU UR4, c[0x0][0x380]", kin="ULDC", space="constant"),
    "UVIRTCOUNT": branch("gives up what the warp has of a pool", "part of tcgen05.alloc",
                         "UVIRTCOUNT.DEALLOC.SMPOOL 0x80"),
    "UGETNEXTWORKID": branch("asks for the next block to work on: cancels its launch", "clusterlaunchcontrol.try_cancel",
                             "UGETNEXTWORKID.SELFCAST [UR4], [UR5]"),
    "USETMAXREG": branch("gives up or asks for registers", "setmaxnreg", "USETMAXREG.DEALLOC.CTAPOOL 0x18",
                         fence="w"),
    "USETSHMSZ": branch("sets the size of shared memory", "", "USETSHMSZ 0x8000"),
    "UCGABAR_ARV": branch("arrives at the barrier of the cluster", "barrier.cluster.arrive, cluster.barrier_arrive",
                          "UCGABAR_ARV"),
    "UCGABAR_WAIT": branch("waits at the barrier of the cluster", "barrier.cluster.wait, cluster.barrier_wait",
                           "UCGABAR_WAIT"),
    "ULEPC": uniform("uniform d = the address of this instruction", "", "ULEPC UR4", kin="LEPC", traits="place"),
}
