"""Texture and surface instructions.

A texture instruction writes the components that its mask names, from the lowest bit up: the first two to Rd, the
others to Re, each a register (F16: a half of one), so there is one row for every number of components. Coordinates,
level, offsets and so on are vectors that begin at Ra and Rb, as long as the dimension and the modifiers ask for;
their widths are not modelled: every register of them is written by some other instruction.

The texture is named by a register (.B: at the head of the vector Rb), by a place in constant memory (bank and index of
a 32-bit word, or two shorter indices), or by a uniform register.

Facts: probed with nvdisasm 12.4 and 13.5 on what ptxas 12.9 makes of ``tex``, ``tld4``, ``txq``, ``suld``, ``sust``
and ``sured``. PTX reaches neither TMML, FOOTPRINT, PIXLD, SUATOM nor SUQUERY.
"""

import functools

from turingas.isa.arch import ALL, AMPERE, B200, BLACKWELL, GA10X, HOPPER, TURING, Arch, Archs
from turingas.isa.fields import Enum, Number, flag
from turingas.isa.grammar import OfArch, Row, register, rows
from turingas.isa.op import op

VOLTA = ALL - TURING
TO_HOPPER = ALL - BLACKWELL
VOLTA_TURING = ALL - AMPERE
TO_ADA = AMPERE - HOPPER

LOD = {0: "", 1: ".LZ", 2: ".LB", 3: ".LL", 4: ".LC", 5: ".LB.LC"}
EVICT = (".EF", "", ".EL", ".LU", ".EU", ".NA", None, None)
DIMENSIONS = ("1D", "2D", "3D", "CUBE", "ARRAY_1D", "ARRAY_2D", None, "ARRAY_CUBE")


def dimension(names: str) -> Enum:
    wanted = names.split()
    return Enum(61, 3, [name if name in wanted else None for name in DIMENSIONS])


def vector(pos: int) -> OfArch:
    """The first register of a vector; RZ cannot stand here."""
    return register("R", pos, 1, zero=False)


def mask(*counts: int) -> Enum:
    return Enum(72, 4, {m: hex(m) for m in range(16) if m.bit_count() in counts})


def moved(to_hopper: Enum, since_blackwell: Enum) -> OfArch:
    """A modifier that lies elsewhere on Blackwell."""

    def of(arch: Arch) -> Enum:
        return since_blackwell if arch in BLACKWELL else to_hopper

    return of


HANDLES: dict[str, OfArch] = {
    "bank": Number(54, 5), "slot": Number(40, 14), "low": Number(40, 6), "high": Number(46, 8),
    "URn": register("UR", 40, zero=False),
    "Va": vector(24), "Vb": vector(32), "Vc": vector(64), "Vd": vector(16), "Ve": vector(64),
}  # fmt: skip

# ---- textures --------------------------------------------------------------------------------------------------

TEXTURE: dict[str, OfArch] = HANDLES | {
    "Re": register("R", 64, 1), "Re2": register("R", 64, 2),
    "one": mask(0, 1), "two": mask(2), "three": mask(3), "four": mask(4),
    "some": Enum(72, 4, {m: hex(m) for m in range(15)} | {15: ""}),
    "scr": flag(60, ".SCR"), "nodep": flag(90, ".NODEP"),
    "f16": Enum(79, 2, (None, ".F16.RN", ".F16.RZ", None)),
    "lod": moved(Enum(87, 3, LOD | {6: ".LC.FDV"}), Enum(((59, 1), (87, 3)), 4, LOD)), "lod70": Enum(87, 3, LOD),
    "level": moved(Enum(87, 2, (None, ".LZ", None, ".LL")), Enum(87, 2, (".LZ", ".LL"))), "lc": flag(87, ".LC"),
    "rgba": Enum(87, 2, (".R", ".G", ".B", ".A")),
    "aoffi": moved(flag(76, ".AOFFI"), Enum(56, 2, ("", ".AOFFI"))), "ptp": Enum(76, 2, ("", ".AOFFI", ".PTP", None)),
    "ndv": lambda arch: flag(77, ".NDV") if arch not in BLACKWELL else Enum(76, 2, ("", ".NDV", ".FDV" if arch in B200 else None)), "dc": flag(78, ".DC"),
    "lodndv": moved(flag(77, ".NDV"), flag(76, ".NDV")), "cl": moved(flag(77, ".CL"), flag(76, ".CL")), "ms": moved(flag(78, ".MS"), flag(77, ".MS")),
    "coarse": flag(76, ".COARSE"), "txd": Enum(78, 1, (None, ".TXD")),
    "evict": Enum(84, 3, EVICT),
    "dim": dimension("1D 2D 3D CUBE ARRAY_1D ARRAY_2D ARRAY_CUBE"), "flat": dimension("1D 2D 3D ARRAY_1D ARRAY_2D"),
    "gather": dimension("2D CUBE ARRAY_2D ARRAY_CUBE"), "derived": dimension("1D 2D ARRAY_1D ARRAY_2D"),
    "solid": dimension("2D 3D"),
    "query": Enum(62, 2, ("TEX_HEADER_DIMENSION", "TEX_HEADER_TEXTURE_TYPE", "TEX_HEADER_SAMPLER_POS", None)),
}  # fmt: skip

# fmt: off
# OUT: the destinations; BIND, VB, VA, NAME: as the texture is named; MASK: the components
#                                                                                 opcodes by the way of naming
SAMPLES: list[tuple[Archs, str, int, int, int, int]] = [
    (VOLTA,  "TEX{scr}BIND{f16}{lod70}{aoffi}{dc}{evict}{ndv}{nodep} Pu?, OUT, Va, VB, NAME, dim, MASK",
                                                                                 0x361, 0xB60, 0xB62, 0x1F60),
    (TURING, "TEX{scr}BIND{f16}{lod}{aoffi}{dc}{evict}{ndv}{nodep} Pu?, OUT, Va, VB, NAME, dim, MASK",
                                                                                 0x361, 0xB60, 0xB62, 0x1F60),
    (ALL,    "TLD4{scr}{rgba}BIND{f16}{ptp}{dc}{evict}{nodep} Pu?, OUT, Va, VB, NAME, gather, MASK",
                                                                                 0x364, 0xB63, 0xB65, 0x1F63),
    (ALL,    "TLD{scr}BIND{f16}{level}{aoffi}{evict}{ms}{cl}{nodep} Pu?, OUT, Va, VB, NAME, flat, MASK",
                                                                                 0x367, 0xB66, 0xB68, 0x1F66),
    (ALL,    "TMMLBIND.LOD{lodndv}{nodep} OUT, Va, VB, NAME, dim, MASK",            0x36A, 0xB69, 0xB6B, 0x1F69),
    (ALL,    "TXDBIND{f16}{lc}{aoffi}{evict}{nodep} Pu?, OUT, Va, Rb, NAME, derived, MASK",
                                                                                 0x36D, 0xB6C, 0xB6E, 0x1F6C),
    (ALL,    "TXQBIND{nodep} OUT, VA, query, NAME, MASK",                        0x370, 0xB6F, 0xB71, 0x1F6F),
    (TURING - BLACKWELL, "FOOTPRINT{scr}BIND.TEX{coarse}{lod}{ndv}{nodep} Pu?, Ve, Vd, Va, VB, NAME, solid",
                                                                                 0x373, 0xB72, 0xB74, 0x1F74),
    (TURING - BLACKWELL, "FOOTPRINTBIND{txd}{coarse}{lod}{ndv}{nodep} Pu?, Ve, Vd, Va, VB, NAME, solid",
                                                                                 0x373, 0xB72, 0xB74, 0x1F74),
]
#     BIND   VB     VA    NAME               fixed
NAMED: list[tuple[int, str, str, str, str, dict[int, int], Archs]] = [
    (0, ".B", "Vb",  "Va", "",                {59: 1},   TO_HOPPER),
    (1, ".B", "Vb",  "Va", "bank, slot",      {59: 1},   TO_HOPPER),
    (1, "",   "Rb?", "Ra", "bank, slot",      {},        TO_HOPPER),
    (2, ".B", "Vb",  "Va", "bank, low, high", {59: 1},   TO_HOPPER),
    (3, "",   "Rb?", "Ra", "URn, high",       {},        TURING - BLACKWELL),
    (3, "",   "Rb?", "Ra", "URn",             {48: 255}, BLACKWELL),
]
#             OUT         MASK     F16
COMPONENTS = [
    ("Re2, Rd2", "four",  ""),
    ("Re, Rd2",  "three", ""),
    ("Re, Rd2",  "two",   ""),
    ("Re, Rd",   "one",   ""),
    ("Re, Rd",   "some?", "{f16}"),
]
# fmt: on


def sample() -> list[tuple[object, ...]]:
    """The rows of every texture instruction: four ways to name the texture, one to four components."""
    out: list[tuple[object, ...]] = []
    for of, text, *opcodes in SAMPLES:
        for n, bind, vb, va, name, fixed, named_so in NAMED:
            archs = of & named_so
            if not archs:
                continue
            named = text.replace("BIND", bind).replace("VB", vb).replace("VA", va)
            if "query" in text and "high" not in name and name.startswith("UR"):
                name, fixed = "URn, 0x0", {}  # what ptxas 12.9 writes; nvdisasm reads none of these bits
            named = named.replace("NAME", name) if name else named.replace(" NAME,", "")
            for registers, mask, half in COMPONENTS if "OUT" in text else [("", "", "")]:
                if half not in text:
                    continue
                row = named.replace("OUT", registers).replace("{f16}", half)
                if mask == "four" and "query" not in text:  # TXQ says even the full mask
                    out.append((row.replace(", MASK", ""), opcodes[n], {**fixed, 72: 15}, archs))
                else:
                    out.append((row.replace("MASK", mask), opcodes[n], fixed, archs))
    return out


# ---- surfaces --------------------------------------------------------------------------------------------------

SCOPES = (".CTA", ".SM", ".GPU", ".SYS")
EARLY = {kind << 2 | n: order + scope for n, scope in enumerate(SCOPES) for kind, order in ((1, ""), (2, ".STRONG"))}
LATE = {
    0: "", 1: ".CONSTANT.PRIVATE", 2: ".CONSTANT.CTA", 3: ".CONSTANT.CTA.PRIVATE",
    5: ".STRONG.SM", 6: ".STRONG.GPU.PRIVATE", 7: ".STRONG.GPU",
    8: ".MMIO.GPU", 9: ".CONSTANT.SM", 10: ".STRONG.SYS", 11: ".CONSTANT.SM.PRIVATE",
    12: ".MMIO.SYS", 13: ".CONSTANT.VC", 14: ".CONSTANT.VC.PRIVATE", 15: ".CONSTANT.GPU",
}  # fmt: skip

SURFACE: dict[str, OfArch] = HANDLES | {
    "ba": flag(72, ".BA"), "evict": Enum(84, 3, EVICT), "clamp": Enum(59, 2, (".IGN", "", ".TRAP", None)),
    "dim": Enum(61, 3, (".1D", ".1D_BUFFER", ".1D_ARRAY", ".2D", ".2D_ARRAY", ".3D", None, None)),
    "size": Enum(73, 3, (".U8", ".S8", ".U16", ".S16", "", ".64", ".128", None), spans={".64": 2, ".128": 4}),
    "rgba": Enum(72, 4, {1: ".R", 3: ".RG", 15: ""}, spans={".RG": 2, "": 4}),
    "op": Enum(87, 4, (".ADD", ".MIN", ".MAX", ".INC", ".DEC", ".AND", ".OR", ".XOR", ".EXCH", *[None] * 7)),
    "reduce": Enum(87, 3, (".ADD", ".MIN", ".MAX", ".INC", ".DEC", ".AND", ".OR", ".XOR")),
    "type": Enum(73, 3, ("", ".S32", ".U64", ".F32.FTZ.RN", ".F16x2.RN", ".S64", ".SD32", ".SD64"),
                 spans={".U64": 2, ".S64": 2, ".SD64": 2}),
    "cas": Enum(73, 3, {0: "", 1: ".S32"}),
    # sm_70 and sm_75: scope and order; later: one table of both
    "order70": Enum(77, 4, EARLY | {12 | n: ".MMIO" + scope for n, scope in enumerate(SCOPES)}),
    "atomic70": Enum(77, 4, EARLY), "private": flag(76, ".PRIVATE"),
    "load80": Enum(77, 4, LATE | {4: ".CONSTANT"}), "order80": Enum(77, 4, LATE | {4: ".STRONG.SM.PRIVATE"}),
}  # fmt: skip

# fmt: off
#    opcodes by the way the surface is named:     Vc     bank, slot  bank, low, high  URn, high
SURFACES = [
    ("SULD.P{dim}{evict}LOAD{rgba}{clamp}         Pu?, Rdw, [Va], NAME",      0x998, 0xB97, 0x797, 0x1F97),
    ("SULD.D{ba}{dim}{evict}{size}LOAD{clamp}     Pu?, Rdw, [Va], NAME",      0x99A, 0xB99, 0x799, 0x1F99),
    ("SUST.P{dim}{evict}ORDER{rgba}{clamp}        [Va], Rbw, NAME",           0x99C, 0xB9B, 0x79B, 0x1F9B),
    ("SUST.D{ba}{dim}{evict}{size}ORDER{clamp}    [Va], Rbw, NAME",           0x99E, 0xB9D, 0x79D, 0x1F9D),
    ("SURED.D{ba}{dim}{reduce}{evict}{type}ATOMIC{clamp} [Va], Rbw, NAME",    0x3A0, 0x59F, 0x79F, 0x1F9F),
    ("SUATOM.D{ba}{dim}{op}{evict}{type}ATOMIC{clamp} Pu?, Rdw, [Va], Rbw, NAME", 0x394, 0x593, 0x793, 0x1F93),
    ("SUATOM.D{ba}{dim}.CAS{evict}{cas}ATOMIC{clamp} Pu?, Rd, [Va], Rb2, NAME", 0x396, 0x595, 0x795, 0x1F95),
    ("SUATOM.D{ba}{dim}.CAS{evict}WIDEATOMIC{clamp} Pu?, Rd2, [Va], Rb4, NAME", 0x396, 0x595, 0x795, 0x1F95),
    ("SUQUERY{ba}{dim}                            Pu?, Rd, [Va], COMP_STATUS, NAME", 0x9B3, 0xBB3, 0x7B3, 0x1FB3),
]
ORDERS: list[tuple[dict[str, str], Archs]] = [
    ({"LOAD": "{order70}{private}", "ORDER": "{order70}{private}", "ATOMIC": "{atomic70}{private}", "WIDE": ".64"},
     VOLTA_TURING),
    ({"LOAD": "{load80}", "ORDER": "{order80}", "ATOMIC": "{order80}", "WIDE": ".U64"}, TO_ADA),
    ({"LOAD": "{load80}", "ORDER": "{order80}", "ATOMIC": "{order80}", "WIDE": ".64"}, HOPPER),
]
# fmt: on


def surface() -> list[tuple[object, ...]]:
    """The rows of every surface instruction: four ways to name the surface, each architecture's memory orders."""
    out: list[tuple[object, ...]] = []
    for text, *opcodes in SURFACES:
        for words, archs in ORDERS if "SUQUERY" not in text else [({}, GA10X)]:
            here = text
            for word, meaning in words.items():
                here = here.replace(word, meaning)
            fixed = {73: 2} if "WIDE" in text else {}
            for opcode, name in zip(opcodes, ("Vc", "bank, slot", "bank, low, high", "URn, high")):
                named = archs & (TURING if name.startswith("UR") else ALL) - BLACKWELL
                out.append((here.replace("NAME", name), opcode, fixed, named))
            out.append((here.replace("NAME", "URn"), opcodes[3], {**fixed, 48: 255}, archs & BLACKWELL))
    return out


PIXEL = {"pixel": Enum(78, 3, ("", ".COVMASK", ".CENTROID_OFFSET", ".MY_INDEX", ".INNER_COVERAGE", *[None] * 3))}

ROWS: list[Row] = [
    *rows(*sample(), fields=TEXTURE),
    *rows(*surface(), fields=SURFACE),
    *rows(("PIXLD{pixel} Rd, Pu?", 0x925, {}, ALL), fields=PIXEL),
]


# ---- what they are -----------------------------------------------------------------------------------------------

on_surface = functools.partial(op, "tex")
reads_surface = functools.partial(op, "tex", opaque=True)
texture = functools.partial(op, "tex", opaque=True, writes="R64")  # the second half of the texel

OPS = {
    "TEX": texture("reads a texture, filtered", "tex with FP32 coordinates, tex.level, tex2D",
                   "TEX.SCR.B.LL R0, R2, R4, R6, 2D", "TEX.B.LL R0, R2, R4, R6, 2D",
                   "TEX.LL R0, R6, R2, R4, UR4, 2D"),
    "TLD4": texture("reads one component of the four texels around a place", "tld4, tex2Dgather",
                    "TLD4.SCR.R.B R0, R2, R4, R6, 2D", "TLD4.R.B R0, R2, R4, R6, 2D",
                    "TLD4.R R0, R6, R2, UR4, 2D"),
    "TLD": texture("reads a texel, unfiltered", "tex with integer coordinates, tex1Dfetch",
                   "TLD.SCR.B.LZ R0, R2, R4, R6, 2D", "TLD.B.LZ R0, R2, R4, R6, 2D",
                   "TLD.LZ R0, R6, R2, UR4, 2D"),
    "TMML": texture("the mipmap level that TEX would take", "", "TMML.B.LOD R0, R2, R4, R6, 2D, 0x3",
                    "TMML.LOD R0, R2, R4, R6, UR4, 2D, 0x3"),
    "TXD": texture("reads a texture with given derivatives", "tex.grad, tex2DGrad", "TXD.B R0, R2, R4, R6, 2D",
                   "TXD R0, R6, R2, R4, UR4, 2D"),
    "TXQ": texture("asks for properties of a texture", "txq, suq", "TXQ.B R0, R2, R4, TEX_HEADER_DIMENSION, 0x1",
                   "TXQ R0, R2, R4, TEX_HEADER_DIMENSION, UR4, 0x0, 0x1",
                   traits="asks"),
    "FOOTPRINT": texture("which texels a texture access would touch", "", "FOOTPRINT.B.TEX R0, R2, R4, R6, 2D"),
    "SULD": reads_surface("loads from a surface", "suld.b, surf2Dread", "SULD.D.BA.1D.STRONG.SM.TRAP R0, [R2], R4",
                          "SULD.D.BA.1D.STRONG.CTA.TRAP R0, [R2], R4",
                          "SULD.D.BA.1D.STRONG.SM.TRAP R0, [R2], UR4", space="global", traits="load"),
    "SUST": on_surface("stores to a surface", "sust.b, sust.p, surf2Dwrite", "SUST.D.BA.1D.STRONG.SM.TRAP [R2], R0, R4",
                       "SUST.D.BA.1D.STRONG.CTA.TRAP [R2], R0, R4", "SUST.D.BA.1D.STRONG.SM.TRAP [R2], R0, UR4", space="global", traits="store"),
    "SURED": on_surface("atomic operation on a surface that returns nothing", "sured.b",
                        "SURED.D.BA.1D.ADD.STRONG.SYS.TRAP [R2], R0, R4",
                        "SURED.D.BA.1D.ADD.STRONG.SYS.TRAP [R2], R0, UR4", space="global", traits="atomic"),
    "SUATOM": reads_surface("atomic operation on a surface", "", "SUATOM.D.BA.1D.ADD.STRONG.SYS.TRAP R0, [R2], R4, R6",
                            "SUATOM.D.BA.1D.ADD.STRONG.SYS.TRAP R0, [R2], R4, UR4",
                            space="global", traits="atomic"),
    "SUQUERY": reads_surface("asks for properties of a surface", "", "SUQUERY.1D R0, [R2], COMP_STATUS, R4",
                             "SUQUERY.1D R0, [R2], COMP_STATUS, UR4",
                             traits="asks"),
    "PIXLD": reads_surface("reads the state of a pixel", "", "PIXLD.COVMASK R0"),
}
