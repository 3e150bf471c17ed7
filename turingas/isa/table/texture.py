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

import re

from turingas.isa.fields import Enum, Field, Number, Register, flag
from turingas.isa.grammar import ALL, HOPPER, TURING, Row, rows

VOLTA = (70, 70)
VOLTA_TURING = (70, 75)
NO_HOPPER = (80, 89)
AFTER_GA100 = (86, 90.5)

LOD = {0: "", 1: ".LZ", 2: ".LB", 3: ".LL", 4: ".LC", 5: ".LB.LC"}
EVICT = (".EF", "", ".EL", ".LU", ".EU", ".NA", None, None)
DIMENSIONS = ("1D", "2D", "3D", "CUBE", "ARRAY_1D", "ARRAY_2D", None, "ARRAY_CUBE")


def dimension(names: str) -> Enum:
    wanted = names.split()
    return Enum(61, 3, [name if name in wanted else None for name in DIMENSIONS])


def vector(pos: int) -> Register:
    """The first register of a vector; RZ cannot stand here."""
    return Register("R", pos, 8, words=1, limit=255)


def mask(*counts: int) -> Enum:
    return Enum(72, 4, {m: hex(m) for m in range(16) if m.bit_count() in counts})


HANDLES: dict[str, Field] = {
    "bank": Number(54, 5), "slot": Number(40, 14), "low": Number(40, 6), "high": Number(46, 8),
    "URn": Register("UR", 40, 6, limit=63),
    "Va": vector(24), "Vb": vector(32), "Vc": vector(64), "Vd": vector(16), "Ve": vector(64),
}  # fmt: skip

# ---- textures --------------------------------------------------------------------------------------------------

TEXTURE: dict[str, Field] = HANDLES | {
    "Re": Register("R", 64, 8, "Z", 1), "Re2": Register("R", 64, 8, "Z", 2),
    "one": mask(0, 1), "two": mask(2), "three": mask(3), "four": mask(4), "all": Enum(72, 4, {15: ""}),
    "some": Enum(72, 4, {m: hex(m) for m in range(15)} | {15: ""}),
    "scr": flag(60, ".SCR"), "nodep": flag(90, ".NODEP"),
    "f16": Enum(79, 2, (None, ".F16.RN", ".F16.RZ", None)),
    "lod": Enum(87, 3, LOD | {6: ".LC.FDV"}), "lod70": Enum(87, 3, LOD),
    "level": Enum(87, 2, (None, ".LZ", None, ".LL")), "lc": flag(87, ".LC"),
    "rgba": Enum(87, 2, (".R", ".G", ".B", ".A")),
    "aoffi": flag(76, ".AOFFI"), "ptp": Enum(76, 2, ("", ".AOFFI", ".PTP", None)),
    "ndv": flag(77, ".NDV"), "dc": flag(78, ".DC"), "cl": flag(77, ".CL"), "ms": flag(78, ".MS"),
    "coarse": flag(76, ".COARSE"),
    "evict": Enum(84, 3, EVICT),
    "dim": dimension("1D 2D 3D CUBE ARRAY_1D ARRAY_2D ARRAY_CUBE"), "flat": dimension("1D 2D 3D ARRAY_1D ARRAY_2D"),
    "gather": dimension("2D CUBE ARRAY_2D ARRAY_CUBE"), "derived": dimension("1D 2D ARRAY_1D ARRAY_2D"),
    "solid": dimension("2D 3D"),
    "query": Enum(62, 2, ("TEX_HEADER_DIMENSION", "TEX_HEADER_TEXTURE_TYPE", "TEX_HEADER_SAMPLER_POS", None)),
}  # fmt: skip

# fmt: off
# OUT: the destinations; BIND, VB, NAME: as the texture is named; MASK: the components
SAMPLE: list[tuple[str, int, tuple[float, float]]] = [
    ("TEX{scr}BIND{f16}{lod70}{aoffi}{dc}{evict}{ndv}{nodep} Pu?, OUT, Va, VB, NAME, dim, MASK",      0x60, VOLTA),
    ("TEX{scr}BIND{f16}{lod}{aoffi}{dc}{evict}{ndv}{nodep}   Pu?, OUT, Va, VB, NAME, dim, MASK",      0x60, TURING),
    ("TLD4{scr}{rgba}BIND{f16}{ptp}{dc}{evict}{nodep}        Pu?, OUT, Va, VB, NAME, gather, MASK",   0x63, ALL),
    ("TLD{scr}BIND{f16}{level}{aoffi}{evict}{ms}{cl}{nodep}  Pu?, OUT, Va, VB, NAME, flat, MASK",     0x66, ALL),
    ("TMMLBIND.LOD{ndv}{nodep}                               OUT, Va, VB, NAME, dim, MASK",           0x69, ALL),
    ("TXDBIND{f16}{lc}{aoffi}{evict}{nodep}                  Pu?, OUT, Va, Rb, NAME, derived, MASK",  0x6C, ALL),
    ("TXQBIND{nodep}                                         OUT, VA, query, NAME, MASK",             0x6F, ALL),
]
# opcode   BIND   VB     VA    NAME              fixed
NAMED = [
    (0x301,  ".B",  "Vb",  "Va", "",               {59: 1}, ALL),
    (0xB00,  ".B",  "Vb",  "Va", "bank, slot",     {59: 1}, ALL),
    (0xB00,  "",    "Rb?", "Ra", "bank, slot",     {},      ALL),
    (0xB02,  ".B",  "Vb",  "Va", "bank, low, high", {59: 1}, ALL),
    (0x1F00, "",    "Rb?", "Ra", "URn, high",      {},      TURING),
]
# OUT        MASK
COUNTED = [
    ("Re2, Rd2", "all"),
    ("Re, Rd2",  "three"),
    ("Re, Rd2",  "two"),
    ("Re, Rd",   "one"),
]
# fmt: on


def sample() -> list[tuple[object, ...]]:
    """The rows of every texture instruction: four ways to name the texture, one to four components."""
    out: list[tuple[object, ...]] = []
    for text, base, (first, last) in SAMPLE:
        for opcode, bind, vb, va, name, fixed, (since, _) in NAMED:
            if last < since:
                continue
            named = re.sub(r"\bVB\b", vb, re.sub(r"\bVA\b", va, text.replace("BIND", bind)))
            named = named.replace("NAME", name) if name else named.replace(" NAME,", "")
            whole = [(registers, mask, "") for registers, mask in COUNTED]
            for registers, mask, half in [*whole, ("Re, Rd", "some?", "{f16}")] if "{f16}" in text else whole:
                here = named.replace("OUT", registers).replace("{f16}", half)
                always = mask == "all" and "query" not in text  # TXQ says its mask even when it is full
                here = here.replace(", MASK", "") if always else here.replace("MASK", mask.replace("all", "four"))
                out.append((here, opcode + base, {**fixed, 72: 15} if always else fixed, (max(first, since), last)))
    return out


# fmt: off
FOOTPRINT = [
    ("FOOTPRINT{scr}.B.TEX{coarse}{lod}{ndv}{nodep} Pu?, Ve, Vd, Va, Vb, solid",                  0x373,  {59: 1}, TURING),
    ("FOOTPRINT{scr}.B.TEX{coarse}{lod}{ndv}{nodep} Pu?, Ve, Vd, Va, Vb, bank, slot, solid",      0xB72,  {59: 1}, TURING),
    ("FOOTPRINT{scr}.TEX{coarse}{lod}{ndv}{nodep}   Pu?, Ve, Vd, Va, Rb?, bank, slot, solid",     0xB72,  {},      TURING),
    ("FOOTPRINT{scr}.B.TEX{coarse}{lod}{ndv}{nodep} Pu?, Ve, Vd, Va, Vb, bank, low, high, solid", 0xB74,  {59: 1}, TURING),
    ("FOOTPRINT{scr}.TEX{coarse}{lod}{ndv}{nodep}   Pu?, Ve, Vd, Va, Rb?, URn, high, solid",      0x1F74, {},      TURING),
    ("FOOTPRINT.B.TXD{coarse}{lod}{ndv}{nodep} Pu?, Ve, Vd, Va, Vb, solid",                  0x373,  {59: 1, 78: 1}, TURING),
    ("FOOTPRINT.B.TXD{coarse}{lod}{ndv}{nodep} Pu?, Ve, Vd, Va, Vb, bank, slot, solid",      0xB72,  {59: 1, 78: 1}, TURING),
    ("FOOTPRINT.TXD{coarse}{lod}{ndv}{nodep}   Pu?, Ve, Vd, Va, Rb?, bank, slot, solid",     0xB72,  {78: 1},        TURING),
    ("FOOTPRINT.B.TXD{coarse}{lod}{ndv}{nodep} Pu?, Ve, Vd, Va, Vb, bank, low, high, solid", 0xB74,  {59: 1, 78: 1}, TURING),
    ("FOOTPRINT.TXD{coarse}{lod}{ndv}{nodep}   Pu?, Ve, Vd, Va, Rb?, URn, high, solid",      0x1F74, {78: 1},        TURING),
]
# fmt: on

# ---- surfaces --------------------------------------------------------------------------------------------------

SCOPES = (".CTA", ".SM", ".GPU", ".SYS")
EARLY = {kind << 2 | n: order + scope for n, scope in enumerate(SCOPES) for kind, order in ((1, ""), (2, ".STRONG"))}
LATE = {
    0: "", 1: ".CONSTANT.PRIVATE", 2: ".CONSTANT.CTA", 3: ".CONSTANT.CTA.PRIVATE",
    5: ".STRONG.SM", 6: ".STRONG.GPU.PRIVATE", 7: ".STRONG.GPU",
    8: ".MMIO.GPU", 9: ".CONSTANT.SM", 10: ".STRONG.SYS", 11: ".CONSTANT.SM.PRIVATE",
    12: ".MMIO.SYS", 13: ".CONSTANT.VC", 14: ".CONSTANT.VC.PRIVATE", 15: ".CONSTANT.GPU",
}  # fmt: skip

SURFACE: dict[str, Field] = HANDLES | {
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
ORDERS: list[tuple[dict[str, str], tuple[float, float]]] = [
    ({"LOAD": "{order70}{private}", "ORDER": "{order70}{private}", "ATOMIC": "{atomic70}{private}", "WIDE": ".64"},
     VOLTA_TURING),
    ({"LOAD": "{load80}", "ORDER": "{order80}", "ATOMIC": "{order80}", "WIDE": ".U64"}, NO_HOPPER),
    ({"LOAD": "{load80}", "ORDER": "{order80}", "ATOMIC": "{order80}", "WIDE": ".64"}, HOPPER),
]
# fmt: on


def surface() -> list[tuple[object, ...]]:
    """The rows of every surface instruction: four ways to name the surface, each architecture's memory orders."""
    out: list[tuple[object, ...]] = []
    for text, *opcodes in SURFACES:
        for words, (first, last) in ORDERS if "SUQUERY" not in text else [({}, AFTER_GA100)]:
            here = re.sub("LOAD|ORDER|ATOMIC|WIDE", lambda m: words[m[0]], text)
            fixed = {73: 2} if "WIDE" in text else {}
            for opcode, name in zip(opcodes, ("Vc", "bank, slot", "bank, low, high", "URn, high")):
                since = max(first, 75) if name.startswith("UR") else first
                out.append((here.replace("NAME", name), opcode, fixed, (since, last)))
    return out


PIXEL = {"pixel": Enum(78, 3, ("", ".COVMASK", ".CENTROID_OFFSET", ".MY_INDEX", ".INNER_COVERAGE", *[None] * 3))}

ROWS: list[Row] = [
    *rows(*sample(), fields=TEXTURE),
    *rows(*FOOTPRINT, fields=TEXTURE),
    *rows(*surface(), fields=SURFACE),
    *rows(("PIXLD{pixel} Rd, Pu?", 0x925, {}, ALL), fields=PIXEL),
]
