"""Loads, stores, atomics, caches and fences.

An instruction that takes an address is written once, with ``@`` for the address and ``{E}`` for the ``.E`` of 64-bit
addresses; ``spread`` makes a row of it for each way an address is written (the ``Addresses`` below). nvdisasm's
spelling of addresses has some edges, which the rows follow:

* ``[0x10]`` is RZ with an offset, ``[RZ]`` is RZ without one; ``[UR4]`` is RZ and UR4, but only up to sm_89.
* From sm_80 on most accesses go through a descriptor, ``desc[UR4][R2.64]``. Up to sm_89 nvdisasm shows it only when bit
  101 is set, which ptxas does for accesses with a cache policy (``.L2::cache_hint``). The descriptor that nvdisasm does
  not show is written ``~desc[UR4][R2.64]``, for the two differ in their words.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from turingas.isa.arch import ALL, AMPERE, BLACKWELL, HOPPER, TURING, Archs
from turingas.isa.fields import Alone, Enum, Number, Offset, Register, flag
from turingas.isa.grammar import OfArch, not_zero, register, rows
from turingas.isa.op import op, wide_address

VOLTA = ALL - AMPERE  # the memory order is written in words of its own: .STRONG.GPU, .CONSTANT.SYS
V100, T4 = ALL - TURING, TURING - AMPERE
GA = AMPERE - HOPPER  # the descriptor is there, but not shown
TO_89 = ALL - HOPPER
H100 = HOPPER - BLACKWELL
TO_90 = ALL - BLACKWELL
T4_GA = TURING - HOPPER


class Awaited(Register):
    """The predicate input of a load: stored inverted, so that 0 is PT."""

    def __init__(self, pos: int, inv: int) -> None:
        super().__init__("P", pos, 3, "T", inv=inv)
        self.default = 0

    def encode(self, text: str) -> int:
        return super().encode(text) ^ 7 << self.pos

    def decode(self, word: int) -> str:
        return super().decode(word ^ 7 << self.pos)


Fixed = Mapping[Any, Any]  # bits and conditions of a row, see the head of the table

NO_MORE: Fixed = MappingProxyType({})
RZ: Fixed = {24: 255}

# ---- how addresses are written -----------------------------------------------------------------------------------


class Address(NamedTuple):
    text: str
    e: str = ""  # the .E in the mnemonic that goes with it
    uniform: bool = False  # encoded with the row's second opcode
    fixed: Fixed = NO_MORE
    archs: Archs = ALL


def _some(value: int) -> bool:
    return value != 0


def absolute(off: str, at: str, e: bool = True) -> list[Address]:
    """``[R2+0x10]``: a register (two with .E) and an offset; RZ with an offset is written ``[0x10]``."""
    pairs = [("", "Ra"), (".E", "Ra2")] if e else [("", "Ra")]
    return [
        a
        for suffix, reg in pairs
        for a in (Address(f"[{at}]", suffix, fixed={**RZ, at: _some}), Address(f"[{reg}({off})]", suffix))
    ]


def through(ur: str, wide: int, desc: int, pair: Fixed = NO_MORE, off: str = "off") -> list[Address]:
    """Global addresses with a uniform register: added to the register, or as a descriptor.

    ``wide`` is the bit that makes the register a pair, ``desc`` the one that makes the uniform register a descriptor;
    ``pair`` is a condition on a pair that goes with a descriptor up to sm_89.
    """
    d = {wide: 1, desc: 1}
    found = [
        Address(f"<~desc[{ur}]>[Ra2.64(off)]", ".E", True, {**d, **pair}, GA),
        Address(f"[{ur}(off)]", ".E", True, {wide: 1, **RZ}, T4_GA),
        Address(f"[<RZ.U32+>{ur}(off)]", ".E", True, RZ, T4_GA),
        Address(f"[<RZ.U32+>{ur}(off)]", "", True, RZ, T4_GA),
        Address(f"[Ra2.64+{ur}(off)]", ".E", True, {wide: 1, "Ra2": not_zero}, TURING),
        Address(f"[Ra.U32+{ur}(off)]", ".E", True, {"Ra": not_zero}, T4_GA),
        Address(f"[Ra.U32+{ur}(off)]", "", True, {"Ra": not_zero}, T4_GA),
        Address(f"[Ra.U32+{ur}(off)]", ".E", True, {}, HOPPER),
        Address(f"[Ra.U32+{ur}(off)]", "", True, {}, HOPPER),
        Address(f"desc[{ur}][Ra2.64(off)]", ".E", True, {**d, **pair, 101: 1}, GA),
        Address(f"desc[{ur}][Ra2.64(off)]", ".E", True, d, HOPPER),
    ]
    return [a._replace(text=a.text.replace("off", off)) for a in found]


def only(archs: Archs, addresses: list[Address]) -> list[Address]:
    """The addresses as they are on some architectures."""
    return [a._replace(archs=a.archs & archs) for a in addresses]


def large(ur: str, off: str) -> list[Address]:
    """Addresses of accesses of 256 bits. They are always of 64 bits, though bit 72 does not say so."""
    return [
        Address(f"[{ur}({off})]", "", True, RZ, BLACKWELL),
        Address(f"[Ra2.64+{ur}({off})]", "", True, {75: 1, "Ra2": not_zero}, BLACKWELL),
        Address(f"[Ra.U32+{ur}({off})]", "", True, {"Ra": not_zero}, BLACKWELL),
        Address(f"desc[{ur}][Ra2.64({off})]", "", True, {75: 1, 76: 1, "Ra2": not_zero}, BLACKWELL),
    ]


def local(ur: str) -> list[Address]:
    return [
        *absolute("off", "at", e=False),
        Address(f"[{ur}(off)]", "", True, RZ, TURING),
        Address(f"[Ra+{ur}(off)]", "", True, {"Ra": not_zero}, TURING),
        Address(f"desc[{ur}][Ra(off)]", "", True, {76: 1, 101: 1}, GA),
        Address(f"desc[{ur}][Ra(off)]", "", True, {76: 1}, HOPPER),
    ]


def shared(ur: str) -> list[Address]:
    """``[R2.X4+UR4+0x10]``: the register may be scaled. nvdisasm does not write a scaled RZ."""
    return [
        *absolute("off", "at", e=False),
        Address("[Ra{scaled}(off)]", "", False, {"Ra": not_zero}, TURING),
        *uniform_shared(ur),
    ]


def uniform_shared(ur: str) -> list[Address]:
    return [
        Address(f"[{ur}(off)]", "", True, RZ, TURING),
        Address(f"[Ra+{ur}(off)]", "", True, {"Ra": not_zero}, TURING),
        Address(f"[Ra{{scaled}}+{ur}(off)]", "", True, {}, TURING),
    ]


NEAR = absolute("off", "at")  # an offset of 24 bits
FAR = absolute("off32", "at32")  # an offset of 32 bits
LOAD = through("URb", 90, 76)
STORE = through("URc", 90, 76)
# the uniform register has 8 bits on Blackwell, and what lay behind its 6 has gone elsewhere
RED = only(TO_90, through("URc", 90, 71)) + only(BLACKWELL, through("URc", 90, 81))
ATOM = only(TO_90, through("URc", 70, 71, {"Ra2": not_zero})) + only(BLACKWELL, through("URc", 63, 76, off="off23"))
REDUCED = only(H100, through("URc", 70, 71)) + only(BLACKWELL, through("URc", 81, 82))
FLOAT_ATOM = only(TO_90, through("URc", 70, 71, {"Ra2": not_zero})) + only(BLACKWELL, through("URc", 63, 90, off="off23"))
LARGE_LOAD, LARGE_STORE = large("URb", "off17"), large("URc", "off19")
QUERY = [a for a in LOAD if "desc" not in a.text]
EXTENDED = [a for a in ATOM if "desc" not in a.text and a.e]


def spread(addresses: list[Address], *items: tuple[Any, ...]) -> Iterator[tuple[object, ...]]:
    """Each row for each way to write its address; the opcode is that of plain addresses, or one for each kind."""
    for text, opcode, fixed, archs, *fields in items:
        plain, uniform = opcode if isinstance(opcode, tuple) else (opcode, opcode)
        for a in addresses:
            if both := archs & a.archs:
                written = text.replace("{E}", a.e).replace("@", a.text)
                e = {72: 1} if a.e else {}
                yield (written, uniform if a.uniform else plain, {**fixed, **a.fixed, **e}, both, *fields)


# ---- modifiers ---------------------------------------------------------------------------------------------------

WIDTH = {".64": 2, ".S64": 2, ".F64.RN": 2, ".128": 4, ".U.128": 4}
FLOATS = {
    ".F64.RN": 2, ".F16x4.RN": 2, ".BF16x4.RN": 2, ".F32x2.RN": 2, ".F32x2.FTZ.RN": 2,
    ".F16x8.RN": 4, ".BF16x8.RN": 4, ".F32x4.RN": 4, ".F32x4.FTZ.RN": 4,
}  # fmt: skip
SIZES = (".U8", ".S8", ".U16", ".S16", "", ".64", ".128")
#: bytes that an access moves for each lane, by its modifiers; 4 without one of them. (LDSM and STSM: a row of a matrix.)
NBYTES = {
    "U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "128": 16, "256": 32, "M88": 16, "MT88": 16,
}  # fmt: skip
OPERATIONS = (".ADD", ".MIN", ".MAX", ".INC", ".DEC", ".AND", ".OR", ".XOR", ".EXCH")
TYPES = ("", ".S32", ".64", ".F32.FTZ.RN", ".F16x2.RN", ".S64", ".F64.RN")
#        memory order, scope and .PRIVATE in one field, 77 to 80, since sm_80
ORDERS = (
    "", ".CONSTANT.PRIVATE", ".CONSTANT.CTA", ".CONSTANT.CTA.PRIVATE",
    ".STRONG.SM.PRIVATE", ".STRONG.SM", ".STRONG.GPU.PRIVATE", ".STRONG.GPU",
    ".MMIO.GPU", ".CONSTANT.SM", ".STRONG.SYS", ".CONSTANT.SM.PRIVATE",
    ".MMIO.SYS", ".CONSTANT.VC", ".CONSTANT.VC.PRIVATE", ".CONSTANT.GPU",
)  # fmt: skip
COPY_ORDERS = (
    "", ".CONSTANT.PRIVATE", ".CONSTANT.CTA", ".CONSTANT.CTA.PRIVATE",
    ".CONSTANT", ".MMIO.CTA", ".GPU.PRIVATE", ".MMIO.CTA.PRIVATE",
    ".MMIO.SM", ".CONSTANT.SM", ".MMIO.VC", ".CONSTANT.SM.PRIVATE",
    ".MMIO.GPU", ".CONSTANT.VC", ".CONSTANT.VC.PRIVATE", ".CONSTANT.GPU",
)  # fmt: skip

FIELDS: dict[str, OfArch] = {
    # offsets
    "at": Alone(40, 24), "off23": Offset(40, 23), "off19": Offset(40, 19, scale=32), "off17": Offset(40, 17, scale=32), "off32": Offset(32, 32), "at32": Alone(32, 32), "far32": Alone(32, 32, signed=True),
    "soff": Offset(32, 12), "doff": Offset(44, 20), "dat": Alone(44, 20, signed=True),
    "coff": Offset(38, 16), "cat": Alone(38, 16, signed=True), "cxat": Alone(38, 16), "bank": Number(54, 5),
    "tbank": Number(54, 5), "toff": Number(40, 14),
    "tram": Enum(72, 1, (".AB", ".C")), "ramat": Alone(64, 8, scale=4), "ramoff": Offset(64, 8, signed=False, scale=4),
    # of addresses
    "scaled": Enum(78, 2, {1: ".X4", 2: ".X8", 3: ".X16"}),
    "!Ps": Awaited(64, 67),
    # of loads and stores
    "size": Enum(73, 3, SIZES, spans=WIDTH), "size70": Enum(73, 3, (*SIZES, ".U.128"), spans=WIDTH),
    "copied": lambda arch: Enum(74, 2, ("", ".64", ".128")) if arch in BLACKWELL else Enum(73, 3, {4: "", 5: ".64", 6: ".128"}),
    "csize": Enum(73, 3, SIZES[:6], spans=WIDTH), "index": Enum(78, 2, ("", ".IL", ".IS", ".ISL")),
    "u": flag(76, ".U"), "bypass": Enum(81, 1, (".BYPASS", "")), "zfill": flag(82, ".ZFILL"),
    "evict": Enum(84, 3, (".EF", "", ".EL", ".LU", ".EU", ".NA")),
    "ltc75": Enum(68, 2, ("", ".LTC64B", ".LTC128B")),
    "ltc": Enum(68, 2, ("", ".LTC64B", ".LTC128B", ".LTC256B")),
    "ltc256": Enum(73, 2, ("", ".LTC64B", ".LTC128B", ".LTC256B")),
    "copyltc": lambda arch: Enum(72 if arch in BLACKWELL else 71, 2, ("", ".LTC64B", ".LTC128B", ".LTC256B")),
    # memory order
    "scope": Enum(77, 2, (".CTA", ".SM", ".GPU", ".SYS")), "private": flag(76, ".PRIVATE"),
    "ldorder70": Enum(79, 2, (".CONSTANT", "", ".STRONG", ".MMIO")),
    "storder70": Enum(79, 2, (None, "", ".STRONG", ".MMIO")),
    "atorder70": Enum(79, 2, (None, "", ".STRONG")),
    "ldorder": Enum(77, 4, (*ORDERS[:4], ".CONSTANT", *ORDERS[5:])),
    "order": Enum(77, 4, ORDERS), "ordered": Enum(77, 4, (*ORDERS[:13], ".SYS.ORDERED", ".STRONG.SYS.ORDERED", ".MMIO.SYS.ORDERED")),
    "copyorder": Enum(77, 4, COPY_ORDERS),
    # of atomics
    "op": Enum(87, 4, OPERATIONS), "opg": Enum(87, 4, (*OPERATIONS, ".SAFEADD")), "redop": Enum(87, 3, OPERATIONS[:8]),
    "fop": Enum(88, 2, (".ADD", ".MIN", ".MAX")), "cas": Enum(87, 2, {0: ".CAS", 1: ".CAST", 3: ".CAST.SPIN"}),
    "type70": Enum(73, 3, TYPES, spans=WIDTH), "type80": Enum(73, 4, TYPES, spans=WIDTH),
    "type": Enum(73, 3, ("", ".S32", ".64", ".S64", ".128"), spans=WIDTH),
    "redtype": Enum(73, 3, ("", ".S32", ".64", ".S64"), spans=WIDTH),
    "ftype": Enum(73, 4, {
        0: ".F16x2.RN", 1: ".F16x4.RN", 2: ".F16x8.RN", 3: ".BF16x2.RN", 4: ".BF16x4.RN", 5: ".BF16x8.RN",
        9: ".F32.FTZ.RN", 10: ".F32x2.FTZ.RN", 11: ".F32x4.FTZ.RN",
        12: ".F32.RN", 13: ".F32x2.RN", 14: ".F32x4.RN", 15: ".F64.RN"}, spans=FLOATS),
    "stype70": Enum(73, 2, ("", ".S32", ".64"), spans=WIDTH),
    "stype": Enum(73, 3, {0: "", 1: ".S32", 2: ".64", 4: ".128"}, spans=WIDTH),
    "casw70": Enum(73, 3, ("", ".S32", ".64"), spans=WIDTH), "casw80": Enum(73, 4, ("", ".S32", ".64"), spans=WIDTH),
    "spin": flag(88, ".SPIN"),
    "casw": Enum(73, 3, {0: "", 1: ".S32", 2: ".64", 4: ".128"}, spans=WIDTH),
    "mcop": Enum(87, 4, {0: ".ADD", 1: ".MIN", 2: ".MAX", 5: ".AND", 6: ".OR", 7: ".XOR"}),
    "mctype": Enum(73, 3, (".32", ".S32", ".64", ".S64"), spans=WIDTH),
    "mcfop": Enum(88, 2, (".ADD", ".MIN", ".MAX", ".F32ADD")),
    "mcftype": Enum(73, 4, {
        0: ".F16x2.RN", 1: ".F16x4.RN", 2: ".F16x8.RN", 3: ".BF16x2.RN", 4: ".BF16x4.RN", 5: ".BF16x8.RN",
        12: ".F32.RN", 13: ".F32x2.RN", 14: ".F32x4.RN", 15: ".F64.RN"}, spans=FLOATS),
    "mchop": Enum(88, 2, (".ADD", ".MIN", ".MAX", ".HPADD")),
    "mchtype": Enum(((73, 4), (87, 1)), 5, {
        0: ".F16x2.RN", 1: ".F16x4.RN", 2: ".F16x8.RN", 3: ".BF16x2.RN", 4: ".BF16x4.RN", 5: ".BF16x8.RN",
        12: ".F32.RN", 13: ".F32x2.RN", 14: ".F32x4.RN", 15: ".F64.RN", 17: ".E5M2x4.RN", 18: ".E5M2x8.RN",
        19: ".E5M2x16.RN", 20: ".E4M3x4.RN", 21: ".E4M3x8.RN", 22: ".E4M3x16.RN"},
        spans=FLOATS | {f".{kind}x{n}.RN": n // 4 for kind in ("E5M2", "E4M3") for n in (8, 16)}),
    # caches and fences
    "cached": Enum(78, 2, ("", ".U", ".C", ".I")),
    "cctl70": Enum(87, 4, {0: ".PF1", 1: ".PF2", 2: ".WB", 3: ".IV", 5: ".RS"}),
    "cctl": Enum(87, 4, {0: ".PF1", 1: ".PF2", 2: ".WB", 3: ".IV", 5: ".RS", 9: ".PML2", 10: ".DML2", 11: ".RML2"}),
    "cctlall": Enum(87, 4, {4: ".IVALL", 6: ".IVALLP", 7: ".WBALL", 8: ".WBALLP"}),
    "cctllall": Enum(87, 4, {4: ".IVALL", 7: ".WBALL"}),
    "sem70": Enum(79, 2, (".SC", ".ALL", "")), "sem": Enum(79, 2, (".SC", ".ALL", "", ".MMIO")),
    "reach80": Enum(76, 3, {0: ".CTA", 1: ".SM", 2: ".GPU", 3: ".SYS", 5: ".VC"}),
    "reach": Enum(76, 3, {0: ".CTA", 1: ".SM", 2: ".GPU", 3: ".SYS", 5: ".VC", 6: ".CTA.PARTIAL"}),
    "mmio": flag(72, ".MMIO"), "deep": flag(86, ".DEEP"),
    "space70": Enum(73, 2, (".G", ".L", ".S")), "space": Enum(73, 2, (".G", ".L", ".S", ".D")),
}  # fmt: skip

# ---- rows --------------------------------------------------------------------------------------------------------

#           of 256 bits: two groups of four registers, and which of the eight are wanted
# (then the others of a group may be anything, and it need not begin at a multiple of four)
WIDE = {"dest": register("R", 64, 4, align=1), "dest2": register("R", 16, 4, align=1), "src": register("R", 32, 4), "src2": register("R", 16, 4),
        "wanted": Number(((57, 7), (72, 1)), 8, default=255), "stored": Number(((59, 5), (88, 3)), 8, default=255),
        "l2": Enum(81, 2, (".EFL2", ".ENL2", ".ELL2")), "!Pl": Awaited(87, 90)}  # fmt: skip

LDG_, LD_, ST_, STG_ = (0x381, 0x1981), (0x980, 0x1980), (0x385, 0x1985), (0x386, 0x1986)
RC_RZ = {64: 255}  # the place of a third source that up to sm_75 is filled with RZ

LOADS = (
    *spread(
        LOAD + NEAR,
        # .ZD: the predicate says whether zeros were delivered; nvdisasm then always writes it
        ("LDG{E}{evict}{size70}{ldorder70}{scope}{private} Pu?, Rdw, @",                0x381, {}, V100),
        ("LDG{E}{evict}{size70}{ldorder70}{scope}{private}.ZD Pu, Rdw, @",              0x381, {87: 1}, V100),
        ("LDG{E}{evict}{ltc75}{size70}{ldorder70}{scope}{private} Pu?, Rdw, @, !Ps?",   LDG_, {}, T4),
        ("LDG{E}{evict}{ltc75}{size70}{ldorder70}{scope}{private}.ZD Pu, Rdw, @, !Ps?", LDG_, {87: 1}, T4),
        ("LDG{E}{evict}{ltc}{size}{ldorder} Pu?, Rdw, @, !Ps?",                         LDG_, {}, AMPERE),
    ),
    *spread(
        LARGE_LOAD,
        ("LDG.E{evict}{l2}{ltc256}.256{ldorder} dest, dest2, @, wanted?, !Pl?",         0x197E, {}, BLACKWELL, WIDE),
    ),
    *spread(
        LOAD + FAR,
        ("LD{E}{evict}{size70}{ldorder70}{scope}{private} Rdw, @",                      0x980, {}, V100),
        ("LD{E}{evict}{size70}{ldorder70}{scope}{private}.ZD Pu, Rdw, @",               0x980, {87: 1}, V100),
        ("LD{E}{evict}{ltc75}{size70}{ldorder70}{scope}{private} Rdw, @, !Ps?",         LD_, {}, T4),
        ("LD{E}{evict}{ltc75}{size70}{ldorder70}{scope}{private}.ZD Pu, Rdw, @, !Ps?",  LD_, {87: 1}, T4),
        ("LD{E}{evict}{ltc}{size}{ldorder} Rdw, @, !Ps?",                               LD_, {}, AMPERE),
    ),
    *spread(
        shared("URb"),
        ("LDS{u}{size} Rdw, @",         (0x984, 0x1984), {}, VOLTA),
        ("LDS{u}{size}.ZD Pu, Rdw, @",  (0x984, 0x1984), {87: 1}, VOLTA),
        ("LDS{size} Rdw, @",            (0x984, 0x1984), {}, AMPERE),
    ),
    *spread(local("URb"), ("LDL{evict}{size} Rdw, @", (0x983, 0x1983), {}, ALL)),
    ("LDC{csize}{index} Rdw, c[bank][cat]",            0xB82, {24: 255, "cat": _some}, ALL),
    ("LDC{csize}{index} Rdw, c[bank][Ra(coff)]",       0xB82, {}, ALL),
    ("LDC{csize} Rdw, cx[URa][cxat]",                  0x1582, {64: 255}, T4),
    ("LDC{csize} Rdw, cx[URa][Rc(coff)]",              0x1582, {"Rc": not_zero}, T4),
    ("LDC{csize}{index} Rdw, cx[URa][cxat]",           0x1582, {64: 255}, AMPERE),
    ("LDC{csize}{index} Rdw, cx[URa][Rc(coff)]",       0x1582, {"Rc": not_zero}, AMPERE),
    ("LDTRAM{tram} Rd, a[ramat]",                      0x13AD, {24: "URZ", "ramat": _some}, TURING),
    ("LDTRAM{tram} Rd, a[URa(ramoff)]",                0x13AD, {}, TURING),
)  # fmt: skip

STORES = (
    *spread(
        STORE + NEAR,
        ("STG{E}{evict}{size70}{storder70}{scope}{private} @, Rbw",  STG_, {}, VOLTA),
        ("STG{E}{evict}{size}{order} @, Rbw",                        STG_, {}, AMPERE - BLACKWELL),
        ("STG{E}{evict}{size}{ordered} @, Rbw",                      STG_, {}, BLACKWELL),
    ),
    *spread(
        LARGE_STORE,
        ("STG.E{evict}{l2}.256{ordered} @, src, src2, stored?",      0x197F, {}, BLACKWELL, WIDE),
    ),
    *spread(
        STORE,
        ("ST{E}{evict}{size70}{storder70}{scope}{private} @, Rbw",   ST_, {}, VOLTA),
        ("ST{E}{evict}{size}{order} @, Rbw",                         ST_, {}, AMPERE),
    ),
    *spread(
        FAR,
        ("ST{E}{evict}{size70}{storder70}{scope}{private} @, Rcw",   ST_, {}, VOLTA),
        ("ST{E}{evict}{size}{order} @, Rcw",                         ST_, {}, AMPERE),
    ),
    *spread(shared("URc"), ("STS{size} @, Rbw", (0x388, 0x1988), {}, ALL)),
    *spread(local("URc"), ("STL{evict}{size} @, Rbw", (0x387, 0x1987), {}, ALL)),
)  # fmt: skip


def copies() -> Iterator[tuple[object, ...]]:
    """LDGSTS: shared memory from global memory; two addresses, and one uniform register for both."""
    name = "LDGSTS.E{bypass}{evict}{copyltc}{copied}{zfill}{copyorder}"
    fixed: dict[Any, Any]
    for to, fixed in (("[dat]", {16: 255, "dat": _some}), ("[Rd(doff)]", {})):
        for source, bits, archs in (
            ("<~desc[URc]>[Ra2.64(soff)]",    {70: 1, 76: 1}, GA),
            # without a descriptor; up to sm_89 nvdisasm writes [R2.64] with and without one
            ("[Ra2.64<+URZ>(soff)]",          {70: 1, 64: "URZ"}, GA),
            ("[Ra2.64+URc(soff)]",            {70: 1, "URc": not_zero}, GA),
            ("[Ra2.64(+URc)(soff)]",          {70: 1}, H100),
            ("[Ra2.64(+URc)(soff)]",          {83: 1}, BLACKWELL),
            ("[Ra.U32(+URc)(soff)]",          {}, AMPERE),
            ("desc[URc][Ra2.64(soff)]",       {70: 1, 76: 1, 101: 1}, GA),
            ("desc[URc][Ra2.64(soff)]",       {70: 1, 76: 1}, H100),
            ("desc[URc][Ra2.64(soff)]",       {83: 1, 76: 1}, BLACKWELL),
        ):  # fmt: skip
            yield (f"{name} {to}, {source}, !Pp?", 0x1FAE, fixed | bits, archs)
    for to, fixed in (("[URc(doff)]", {16: 255}), ("[Rd+URc(doff)]", {"Rd": not_zero})):
        yield (f"{name} {to}, <~desc>[Ra2.64(soff)], !Pp?", 0x1DAE, fixed | {70: 1, 76: 1}, GA)
        yield (f"{name} {to}, [Ra2.64<+URZ>(soff)], !Pp?", 0x1DAE, fixed | {70: 1}, GA)
        yield (f"{name} {to}, [Ra2.64(soff)], !Pp?", 0x1DAE, fixed | {70: 1}, H100)
        yield (f"{name} {to}, [Ra2.64(soff)], !Pp?", 0x1DAE, fixed | {83: 1}, BLACKWELL)
        # the descriptor is the uniform register after that of the other address: one field, written twice
        for count, wide, archs in ((63, 70, AMPERE - BLACKWELL), (255, 83, BLACKWELL)):
            for n in range(count + 1):
                with_descriptor = fixed | {64: n, wide: 1, 76: 1}
                ur, after = (f"UR{k}" if k < count else "URZ" for k in (n, n + 1))
                text = f"{name} {to.replace('URc', ur)}, desc[{after}][Ra2.64(soff)], !Pp?"
                yield (text, 0x1DAE, with_descriptor | {101: 1}, archs & GA)
                yield (text, 0x1DAE, with_descriptor, archs & HOPPER)


ATOMICS = (
    *spread(
        ATOM,
        ("ATOM{E}{op}{evict}{type70}{atorder70}{scope}{private} Pu, Rdw, @, Rbw",   0x198A, {}, T4),
        ("ATOMG{E}{opg}{evict}{type70}{atorder70}{scope}{private} Pu, Rdw, @, Rbw", 0x19A8, {}, T4),
        ("ATOM{E}{op}{evict}{type80}{order} Pu, Rdw, @, Rbw",                       0x198A, {}, GA),
        ("ATOMG{E}{opg}{evict}{type80}{order} Pu, Rdw, @, Rbw",                     0x19A8, {}, GA),
        ("ATOM{E}{op}{evict}{type}{order} Pu, Rdw, @, Rbw",                         0x198A, {}, HOPPER),
        ("ATOMG{E}{opg}{evict}{type}{order} Pu, Rdw, @, Rbw",                       0x19A8, {}, HOPPER),
    ),
    *spread(
        FLOAT_ATOM,
        ("ATOM{E}{fop}{evict}{ftype}{order} Pu, Rdw, @, Rbw",                       0x19A2, {}, HOPPER),
        ("ATOMG{E}{fop}{evict}{ftype}{order} Pu, Rdw, @, Rbw",                      0x19A3, {}, HOPPER),
    ),
    *spread(
        EXTENDED,
        ("ATOM{E}.POPC.INC{evict}.32{order} Pu, Rd, @",                             0x1F8A, {87: 10}, GA),
        ("ATOM{E}.ARRIVE{evict}.64{order} Pu, Rd2, @",                              0x1F8A, {87: 9, 73: 2}, GA),
        ("ATOM{E}.POPC.INC{evict}.32{order} Pu, Rd, @",                             0x1F8A, {87: 11}, HOPPER),
        ("ATOM{E}.ARRIVE{evict}.64{order} Pu, Rd2, @",                              0x1F8A, {87: 10, 73: 2}, HOPPER),
    ),
    *spread(
        [a for a in REDUCED if a.e],
        # multimem loads: the same address on several GPUs, reduced
        ("LDGMC{E}{mcop}{mctype}.STRONG.SYS Rdw, @",                                0x19A4, {77: 10}, HOPPER),
        ("LDGMC{E}{mcfop}{mcftype}.STRONG.SYS Rdw, @",                              0x19A5, {77: 10}, H100),
        ("LDGMC{E}{mchop}{mchtype}.STRONG.SYS Rdw, @",                              0x19A5, {77: 10}, BLACKWELL),
    ),
    *spread(
        RED,
        ("RED{E}{redop}{evict}{type70}{atorder70}{scope}{private} @, Rbw",          0x198E, {}, T4),
        ("RED{E}{redop}{evict}{type80}{order} @, Rbw",                              0x198E, {}, GA),
        ("REDG{E}{redop}{evict}{redtype}{order} @, Rbw",                            0x198E, {}, HOPPER),
        ("REDG{E}{fop}{evict}{ftype}{order} @, Rbw",                                0x19A6, {}, HOPPER),
    ),
    *spread(
        NEAR,
        ("ATOM{E}{op}{evict}{type70}{atorder70}{scope}{private} Pu, Rdw, @, Rbw",   0x38A, RC_RZ, VOLTA),
        ("ATOMG{E}{opg}{evict}{type70}{atorder70}{scope}{private} Pu, Rdw, @, Rbw", 0x3A8, RC_RZ, VOLTA),
        ("ATOM{E}{op}{evict}{type80}{order} Pu, Rdw, @, Rbw",                       0x38A, {}, GA),
        ("ATOMG{E}{opg}{evict}{type80}{order} Pu, Rdw, @, Rbw",                     0x3A8, {}, GA),
        ("ATOM{E}{op}{evict}{type}{order} Pu, Rdw, @, Rbw",                         0x38A, {}, HOPPER),
        ("ATOMG{E}{opg}{evict}{type}{order} Pu, Rdw, @, Rbw",                       0x3A8, {}, HOPPER),
        ("ATOM{E}{cas}{evict}{casw70}{atorder70}{scope}{private} Pu, Rdw, @, Rbw, Rcw", 0x38B, {}, VOLTA),
        ("ATOM{E}{cas}{evict}{casw80}{order} Pu, Rdw, @, Rbw, Rcw",                 0x38B, {}, GA),
        ("ATOM{E}{cas}{evict}{casw}{order} Pu, Rdw, @, Rbw, Rcw",                   0x38B, {}, HOPPER),
        ("ATOMG{E}.CAS{evict}{casw70}{atorder70}{scope}{private} Pu, Rdw, @, Rbw, Rcw", 0x3A9, {"Rbw": not_zero}, VOLTA),
        ("ATOMG{E}.CAS{evict}{casw80}{order} Pu, Rdw, @, Rbw, Rcw",                 0x3A9, {"Rbw": not_zero}, GA),
        ("ATOMG{E}.CAS{evict}{casw}{order} Pu, Rdw, @, Rbw, Rcw",                   0x3A9, {"Rbw": not_zero}, HOPPER),
        ("RED{E}{redop}{evict}{type70}{atorder70}{scope}{private} @, Rbw",          0x98E, {}, VOLTA),
        ("RED{E}{redop}{evict}{type80}{order} @, Rbw",                              0x98E, {}, GA),
        ("REDG{E}{redop}{evict}{redtype}{order} @, Rbw",                            0x98E, {}, HOPPER),
        ("ATOM{E}{fop}{evict}{ftype}{order} Pu, Rdw, @, Rbw",                       0x3A2, {}, HOPPER),
        ("ATOMG{E}{fop}{evict}{ftype}{order} Pu, Rdw, @, Rbw",                      0x3A3, {}, HOPPER),
        ("REDG{E}{fop}{evict}{ftype}{order} @, Rbw",                                0x9A6, {}, HOPPER),
    ),
    *spread(
        [a for a in shared("URc") if not a.uniform],
        ("ATOMS{op}{stype70} Rdw, @, Rbw",        0x38C, RC_RZ, VOLTA),
        ("ATOMS{op}{stype70} Rdw, @, Rbw",        0x38C, {}, GA),
        ("ATOMS{op}{stype} Rdw, @, Rbw",          0x38C, {}, HOPPER),
        ("ATOMS{cas}{stype70} Rdw, @, Rbw, Rcw",  0x38D, {}, TO_89),
        ("ATOMS{cas}{stype} Rdw, @, Rbw, Rcw",    0x38D, {}, HOPPER),
        ("ATOMS.CAST{spin}{stype} Pu, @, Rbw, Rcw", 0x58D, {87: 1}, BLACKWELL),
    ),
    *spread(
        uniform_shared("URc"),
        ("ATOMS{op}{stype70} Rdw, @, Rbw",        0x198C, {}, T4_GA),
        ("ATOMS{op}{stype} Rdw, @, Rbw",          0x198C, {}, HOPPER),
        ("ATOMS.POPC.INC.32 Rd, @",               0x1F8C, {87: 10}, GA),
        ("ATOMS.ARRIVE.64 Rd2, @",                0x1F8C, {87: 9, 73: 2}, GA),
        ("ATOMS.POPC.INC.32 Rd, @",               0x1F8C, {87: 11}, HOPPER),
        ("ATOMS.ARRIVE.64 Rd2, @",                0x1F8C, {87: 10, 73: 2}, HOPPER),
    ),
)  # fmt: skip

CACHES = (
    *spread(
        FAR,
        ("CCTL{E}{cached}{cctl70} @",        0x98F, {}, VOLTA),
        ("CCTL{E}{cached}{cctl} @",          0x98F, {}, AMPERE),
    ),
    ("CCTL{cached}{cctlall}",                0x98F, {24: 255}, ALL),
    ("CCTL{cached}{cctl70} [URb]",           0x1D8F, {24: 255}, T4),
    ("CCTL{cached}{cctl} [URb]",             0x1D8F, {24: 255}, AMPERE),
    ("CCTL.E{cached}{cctl70} [URb]",         0x1D8F, {24: 255, 72: 1}, T4),
    ("CCTL.E{cached}{cctl} [URb]",           0x1D8F, {24: 255, 72: 1}, AMPERE),
    ("CCTL{cached}{cctl70} [Ra+URb]",        0x1D8F, {"Ra": not_zero}, T4),
    ("CCTL{cached}{cctl} [Ra+URb]",          0x1D8F, {"Ra": not_zero}, AMPERE),
    ("CCTL.E{cached}{cctl70} [Ra2+URb]",     0x1D8F, {"Ra2": not_zero, 72: 1}, T4),
    ("CCTL.E{cached}{cctl} [Ra2+URb]",       0x1D8F, {"Ra2": not_zero, 72: 1}, AMPERE),
    ("CCTL.E.C.LDCU.IV{deep} [far32]",       0x1540, {24: "URZ", "far32": _some, 79: 1, 87: 3}, BLACKWELL),
    ("CCTL.E.C.LDCU.IV{deep} [URa(off32)]",  0x1540, {79: 1, 87: 3}, BLACKWELL),
    *spread(absolute("off", "at", e=False), ("CCTLL{cctl70} @", 0x990, {}, ALL)),
    ("CCTLL{cctllall}",                      0x990, {24: 255}, ALL),
    ("CCTLL{cctl70} [URb]",                  0x1D90, {24: 255}, TURING),
    ("CCTLL{cctl70} [Ra+URb]",               0x1D90, {"Ra": not_zero}, TURING),
    ("CCTLT.IVTH Rb",                        0x391, {85: 1, "Rb": not_zero}, ALL),
    ("CCTLT.IVALL",                          0x391, {85: 2}, ALL),
    ("CCTLT.IVTH tbank, toff",               0xB91, {85: 1}, ALL),
    ("CCTLT.IVTH URb",                       0x1D91, {85: 1, "URb": not_zero}, TURING),
    ("MEMBAR{sem70}{reach80}{mmio}",         0x992, {}, VOLTA),
    ("MEMBAR{sem}{reach80}",                 0x992, {}, GA),
    ("MEMBAR{sem}{reach}",                   0x992, {}, HOPPER),
    ("MEMBAR.VC.ASYNC",                      0x992, {73: 1, 76: 5}, HOPPER),
    ("ERRBAR",                               0x9AB, {}, ALL),
    ("LDGDEPBAR",                            0x9AF, {}, AMPERE),
    *spread(
        NEAR + QUERY,
        ("QSPC{E}{space70} Pu, Rd, @",       (0x3AA, 0x19AA), {}, TO_89),
        ("QSPC{E}{space} Pu, Rd, @",         (0x3AA, 0x19AA), {}, HOPPER),
    ),
)  # fmt: skip

ROWS = rows(*LOADS, *STORES, *copies(), *ATOMICS, *CACHES, fields=FIELDS)


# ---- what they are -----------------------------------------------------------------------------------------------


def to_shared(mods: tuple[str, ...], n: int, pattern: str) -> int:
    """The first address is one of shared memory, the second of global memory."""
    return wide_address(mods, n, pattern) if n else 0


lsu = functools.partial(op, "lsu")
load = functools.partial(op, "lsu", opaque=True)
behind_a_cache = functools.partial(load, ordered=False)
store = functools.partial(op, "lsu", sets="r")

OPS = {
    "LDG": behind_a_cache("loads from global memory", "ld.global, __ldg", "LDG.E R0, desc[UR4][R2.64]",
                          "LDG.E R0, [R2.64]", "LDG.E.SYS R0, [R2]", space="global", traits="load lanewise",
                          writes="R64"),  # of .256
    "LD": behind_a_cache("loads from a generic address", "ld", "LD.E R0, [R2]", "LD.E.SYS R0, [R2]",
                         space="generic", traits="load lanewise"),
    "LDS": load("loads from shared memory", "ld.shared", "LDS R0, [R1]", space="shared", traits="load lanewise"),
    "LDL": behind_a_cache("loads from local memory", "ld.local", "LDL R0, [R1]", space="local", traits="load lanewise"),
    "LDC": op("constant", "loads from constant memory, at an address in a register", "ld.const", "LDC R0, c[0x3][R1]",
              opaque=True, ordered=False, space="constant"),
    "LDTRAM": load("loads attributes of a triangle (graphics)", "", "LDTRAM.AB R0, a[0x10]"),
    "STG": store("stores to global memory", "st.global", "STG.E desc[UR4][R2.64], R0", "STG.E [R2.64], R0",
                 "STG.E.SYS [R2], R0", space="global", traits="store lanewise", reads="R16"),
    "ST": store("stores to a generic address", "st", "ST.E [R2], R0", "ST.E.SYS [R2], R0",
                space="generic", traits="store lanewise"),
    "STS": store("stores to shared memory", "st.shared", "STS [R1], R0", space="shared", traits="store lanewise"),
    "STL": store("stores to local memory", "st.local", "STL [R1], R0", space="local", traits="store lanewise"),
    "LDGSTS": lsu("copies from global to shared memory, past the registers", "cp.async, __pipeline_memcpy_async",
                  "LDGSTS.E.128 [R0], desc[UR4][R2.64]", "LDGSTS.E.128 [R0], [R2.64]", ordered=False, spans=to_shared,
                  kin="LDG STS"),
    "LDGDEPBAR": lsu("groups the LDGSTS before it, so that DEPBAR can wait for them",
                     "cp.async.commit_group, __pipeline_commit", "LDGDEPBAR", private=True),
    "ATOM": behind_a_cache("atomic operation at a generic address, returns the old value", "atom, atomicAdd, atomicCAS",
                           "ATOM.E.ADD.STRONG.GPU PT, R0, [R2], R4", space="generic", traits="atomic lanewise"),
    "ATOMG": behind_a_cache("atomic operation on global memory, returns the old value",
                            "atom.global, atomicAdd, atomicCAS", "ATOMG.E.ADD.STRONG.GPU PT, R0, [R2], R4",
                            space="global", traits="atomic lanewise"),
    "ATOMS": load("atomic operation on shared memory, returns the old value", "atom.shared, atomicAdd, atomicCAS",
                  "ATOMS.ADD R0, [R1], R2", space="shared", traits="atomic lanewise"),
    "RED": store("atomic operation on global memory that returns nothing", "red.global, atomicAdd",
                 "RED.E.ADD.STRONG.GPU [R2], R0", kin="REDG", space="global", traits="atomic lanewise"),
    "REDG": store("atomic operation on global memory that returns nothing", "red.global, multimem.red, atomicAdd",
                  "REDG.E.ADD.STRONG.GPU desc[UR4][R2.64], R0", kin="RED", space="global", traits="atomic lanewise"),
    "LDGMC": behind_a_cache("loads and reduces over a multicast address", "multimem.ld_reduce",
                            "LDGMC.E.ADD.S32.STRONG.SYS R0, [R2.64+URZ]", kin="LDG"),
    "CCTL": op("lsu", "cache control: invalidates or prefetches lines", "prefetch.global, discard, applypriority",
               "CCTL.IVALL", drains=True, sets="r", traits="stalls"),
    "CCTLL": lsu("cache control of local memory", "prefetch.local", "CCTLL.PF1 [R0]"),
    "CCTLT": lsu("cache control of textures", "", "CCTLT.IVALL"),
    "MEMBAR": op("lsu", "memory fence: earlier accesses are seen before later ones", "membar, fence, __threadfence",
                 "MEMBAR.SC.GPU", sets="r", fence="r", traits="fence orders stalls"),
    "ERRBAR": lsu("waits until errors of earlier accesses are known", "part of membar and fence", "ERRBAR",
                  traits="fence"),
    "QSPC": load("asks which memory a generic address lies in", "isspacep, __isGlobal, __isShared",
                 "QSPC.E.S P0, RZ, [R2]", traits="asks"),
}
