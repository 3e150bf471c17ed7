"""Tensor cores: matrix products of a warp (HMMA, IMMA, BMMA, DMMA, QMMA) and of a warp group (HGMMA, IGMMA, QGMMA,
BGMMA), and the instructions that bring matrices into their registers.

An operand spans as many registers as its part of the matrix needs, so there is one row for every shape. Facts: probed
with nvdisasm 12.4 and 13.5 on what ptxas 12.9 makes of every ``mma``, ``wmma`` and ``wgmma`` of PTX, and on libraries.
"""

import functools
from collections.abc import Mapping
from typing import Any

from turingas.isa.arch import ADA, ALL, AMPERE, BLACKWELL, GA10X, HOPPER, RTX, TURING, XAVIER, Archs
from turingas.isa.fields import Alone, Enum, Field, Number, Offset, Register, flag
from turingas.isa.grammar import OfArch, Row, field_of, register, rows
from turingas.isa.op import op

TURING_ONLY = TURING - AMPERE
VOLTA_TURING = ALL - AMPERE
GA100 = AMPERE - GA10X
TO_ADA = AMPERE - HOPPER
ADA_ONLY = ADA - HOPPER


class Inverted(Register):
    """A uniform predicate whose number is stored inverted: 0 is UPT, 7 is UP0."""

    def __init__(self) -> None:
        super().__init__("UP", 87, 3, "T", inv=90)
        self.default = 0

    def encode(self, text: str) -> int:
        return super().encode(text) ^ self.last << self.pos

    def decode(self, word: int) -> str:
        return super().decode(word ^ self.last << self.pos)


class Split(Register):
    """A register whose number lies in two places."""

    def __init__(self, prefix: str, places: tuple[tuple[int, int], ...], zero: str) -> None:
        Field.__init__(self, places)
        split, mask = (self.places, self.start, self.ones), self.mask
        super().__init__(prefix, 0, self.width, zero)
        (self.places, self.start, self.ones), self.mask = split, mask
        self.default = self.put(self.last)

    def encode(self, text: str) -> int:
        return self.put(super().encode(text))

    def quick(self, text: str) -> int | None:
        index = super().quick(text)
        return None if index is None else self.put(index)

    def decode(self, word: int) -> str:
        return super().decode(self.get(word))


def wide(words: int, pos: int, neg: int | None = None, abs: int | None = None, reuse: int | None = None) -> OfArch:
    return register("R", pos, words, neg=neg, abs=abs, reuse=reuse)


Item = tuple[str, int, Mapping[Any, object], Archs]


def both(item: Item) -> list[Item]:
    """A row of Ampere and later. The predicate UPp came with sm_86; ptxas leaves it unsaid."""
    text, opcode, fixed, archs = item
    since_86: list[Item] = [(text, opcode, fixed, archs & GA10X)]
    ga100 = archs - GA10X
    return [(text.replace(", UPp?", ""), opcode, fixed, ga100), *since_86] if ga100 else since_86


# ---- one warp --------------------------------------------------------------------------------------------------

VOLTA: dict[str, OfArch] = {
    "la": Enum(73, 1, (".ROW", ".COL")), "lb": Enum(74, 1, (".ROW", ".COL")),
    "step2": Enum(79, 2, (".STEP0", ".STEP1", None, None)),
    "step4": Enum(79, 2, (".STEP0", ".STEP1", ".STEP2", ".STEP3")),
    "fin": flag(77, ".SATFINITE"), "sat": flag(82, ".SAT"),
    "u8a": Enum(76, 1, (".U8", ".S8")), "u8b": Enum(78, 1, (".U8", ".S8")),
    "u4a": Enum(76, 1, (".U4", ".S4")), "u4b": Enum(78, 1, (".U4", ".S4")),
    "-Va2": wide(2, 24, neg=72), "-Vb": wide(1, 32, neg=63, reuse=123),
    "Vc2": wide(2, 64), "Vc4": wide(4, 64),
}  # fmt: skip

# fmt: off
FIRST = rows(
    # 76: D is F32; 78: C is F32; 75: shape 444, which no compiler writes
    ("HMMA.884.F16.F16{step2}{fin} Rd2, -Ra2{la}, -Rb2{lb}, Rc2", 0x236, {},             VOLTA_TURING),
    ("HMMA.884.F32.F16{step4}{fin} Rd2, -Ra2{la}, -Rb2{lb}, Rc2", 0x236, {76: 1},        VOLTA_TURING),
    ("HMMA.884.F32.F32{step4}{fin} Rd2, -Ra2{la}, -Rb2{lb}, Rc2", 0x236, {76: 1, 78: 1}, VOLTA_TURING),
    # only b has a reuse bit
    ("HMMA.1688.F16{fin} Rd2, -Va2, -Vb, Vc2",            0x23C, {},             TURING_ONLY),
    ("HMMA.1688.F32{fin} Rd4, -Va2, -Vb, Vc4",            0x23C, {76: 1},        TURING_ONLY),
    ("IMMA.8816{u8a}{u8b}{sat} Rd2, Ra.ROW, Rb.COL, Rc2", 0x237, {74: 1},        TURING_ONLY | XAVIER),
    ("IMMA.8832{u4a}{u4b}{sat} Rd2, Ra.ROW, Rb.COL, Rc2", 0x237, {74: 1, 83: 7}, TURING_ONLY),
    ("BMMA.88128.XOR.POPC Rd2, Ra.ROW, Rb.COL, Rc2",      0x23D, {74: 1, 80: 1}, TURING_ONLY),
    fields=VOLTA,
)
# fmt: on

WARP: dict[str, OfArch] = {
    "UPp": Inverted(),
    "sat": flag(82, ".SAT"),
    "bf": Enum(82, 2, ("", ".BF16", None, None)),
    "u8a": Enum(76, 1, (".U8", ".S8")), "u8b": Enum(78, 1, (".U8", ".S8")),
    "u4a": Enum(76, 1, (".U4", ".S4")), "u4b": Enum(78, 1, (".U4", ".S4")),
    "e4a": Enum(78, 1, (".E4M3", ".E5M2")), "e4b": Enum(79, 1, (".E4M3", ".E5M2")),
    "xor": Enum(78, 1, (".XOR", ".AND")),
    "Rc2": wide(2, 64), "Rc4": wide(4, 64),  # the accumulator has no reuse bit since sm_80
    "Rm": wide(1, 40, reuse=50), "sel": Number(48, 2),  # metadata of sparse matrices, and which threads hold it
    "-|Rc4|": wide(4, 64, 75, 74), "-|Rc8|": wide(8, 64, 75, 74), "Rd8": wide(8, 16),
    "-|Ra4|": wide(4, 24, 72, 73, 122), "-|Ra8|": wide(8, 24, 72, 73, 122), "-|Ra16|": wide(16, 24, 72, 73, 122),
    "-|Rb4|": wide(4, 32, 63, 62, 123), "-|Rb8|": wide(8, 32, 63, 62, 123),
}  # fmt: skip

# fmt: off
SECOND: list[Item] = [
    # bits 75 and 78 (with 73, sparse): shape; 76: D and C are F32; 82: BF16; 83: TF32
    ("HMMA.1688.F16 Rd2, -Ra2, -Rb, Rc2, UPp?",                    0x23C, {},                           AMPERE),
    ("HMMA.1688.F32{bf} Rd4, -Ra2, -Rb, Rc4, UPp?",                0x23C, {76: 1},                      AMPERE),
    ("HMMA.16816.F16 Rd2, -Ra4, -Rb2, Rc2, UPp?",                  0x23C, {75: 1},                      AMPERE),
    ("HMMA.16816.F32{bf} Rd4, -Ra4, -Rb2, Rc4, UPp?",              0x23C, {75: 1, 76: 1},               AMPERE),
    ("HMMA.1684.F32.TF32 Rd4, -Ra2, -Rb, Rc4, UPp?",               0x23C, {76: 1, 78: 1, 83: 1},        AMPERE),
    ("HMMA.1688.F32.TF32 Rd4, -Ra4, -Rb2, Rc4, UPp?",              0x23C, {76: 1, 83: 1},               AMPERE),
    ("HMMA.SP.16816.F16 Rd2, -Ra2, -Rb2, Rc2, UPp?, Rm, sel",      0x23C, {73: 1, 75: 1},               AMPERE),
    ("HMMA.SP.16816.F32{bf} Rd4, -Ra2, -Rb2, Rc4, UPp?, Rm, sel",  0x23C, {73: 1, 75: 1, 76: 1},        AMPERE),
    ("HMMA.SP.16832.F16 Rd2, -Ra4, -Rb4, Rc2, UPp?, Rm, sel",      0x23C, {73: 1, 75: 1, 78: 1},        AMPERE),
    ("HMMA.SP.16832.F32{bf} Rd4, -Ra4, -Rb4, Rc4, UPp?, Rm, sel",  0x23C, {73: 1, 75: 1, 76: 1, 78: 1}, AMPERE),
    ("HMMA.SP.1688.F32.TF32 Rd4, -Ra2, -Rb2, Rc4, UPp?, Rm, sel",  0x23C, {73: 1, 76: 1, 83: 1},        AMPERE),
    ("HMMA.SP.16816.F32.TF32 Rd4, -Ra4, -Rb4, Rc4, UPp?, Rm, sel", 0x23C, {73: 1, 75: 1, 76: 1, 83: 1}, AMPERE),
    # bits 75, 85 and 86 (with 72, sparse): shape; 83 and 84: a and b have 4 bits
    ("IMMA.8816{u8a}{u8b}{sat} Rd2, Ra.ROW, Rb.COL, Rc2, UPp?",                 0x237, {74: 1},                AMPERE),
    ("IMMA.8832{u4a}{u4b}{sat} Rd2, Ra.ROW, Rb.COL, Rc2, UPp?",                 0x237, {74: 1, 83: 3, 85: 1},  TO_ADA),
    ("IMMA.16816{u8a}{u8b}{sat} Rd4, Ra2.ROW, Rb.COL, Rc4, UPp?",               0x237, {74: 1, 86: 1},         AMPERE),
    ("IMMA.16832{u8a}{u8b}{sat} Rd4, Ra4.ROW, Rb2.COL, Rc4, UPp?",              0x237, {74: 3, 86: 1},         AMPERE),
    ("IMMA.16832{u4a}{u4b}{sat} Rd4, Ra2.ROW, Rb.COL, Rc4, UPp?",               0x237, {74: 3, 83: 3, 86: 1},  TO_ADA),
    ("IMMA.16864{u4a}{u4b}{sat} Rd4, Ra4.ROW, Rb2.COL, Rc4, UPp?",              0x237, {74: 1, 83: 15},        TO_ADA),
    ("IMMA.SP.16832{u8a}{u8b}{sat} Rd4, Ra2.ROW, Rb2.COL, Rc4, UPp?, Rm, sel",  0x237, {72: 1, 74: 3, 86: 1},  AMPERE),
    ("IMMA.SP.16864{u8a}{u8b}{sat} Rd4, Ra4.ROW, Rb4.COL, Rc4, UPp?, Rm, sel",  0x237, {72: 1, 74: 1, 85: 3},  AMPERE),
    ("IMMA.SP.16864{u4a}{u4b}{sat} Rd4, Ra2.ROW, Rb2.COL, Rc4, UPp?, Rm, sel",  0x237, {72: 1, 74: 1, 83: 15}, TO_ADA),
    ("IMMA.SP.168128{u4a}{u4b}{sat} Rd4, Ra4.ROW, Rb4.COL, Rc4, UPp?, Rm, sel", 0x237, {72: 1, 74: 3, 83: 15}, TO_ADA),
    # Hopper has no XOR
    ("BMMA.88128{xor}.POPC Rd2, Ra.ROW, Rb.COL, Rc2, UPp?",    0x23D, {74: 1, 80: 1},        TO_ADA),
    ("BMMA.168128{xor}.POPC Rd4, Ra2.ROW, Rb.COL, Rc4, UPp?",  0x23D, {74: 3, 80: 1},        TO_ADA),
    ("BMMA.168256{xor}.POPC Rd4, Ra4.ROW, Rb2.COL, Rc4, UPp?", 0x23D, {74: 5, 80: 1},        TO_ADA),
    ("BMMA.88128.AND.POPC Rd2, Ra.ROW, Rb.COL, Rc2, UPp?",     0x23D, {74: 1, 78: 1, 80: 1}, HOPPER),
    ("BMMA.168128.AND.POPC Rd4, Ra2.ROW, Rb.COL, Rc4, UPp?",   0x23D, {74: 3, 78: 1, 80: 1}, HOPPER),
    ("BMMA.168256.AND.POPC Rd4, Ra4.ROW, Rb2.COL, Rc4, UPp?",  0x23D, {74: 5, 78: 1, 80: 1}, HOPPER),
    ("DMMA.884{rnd} Rd4, -|Ra2|, -|Rb2|, -|Rc4|, UPp?",        0x23F, {},                    TO_ADA),
    ("DMMA.8x8x4{rnd} Rd4, -|Ra2|, -|Rb2|, -|Rc4|, UPp?",      0x23F, {},                    HOPPER - RTX),
    ("DMMA.8x8x4{rnd} Rd4, -|Ra2|, -|Rb2|, -|Rc4|, UPp?",      0x23F, {"reuse": False},        RTX),
    ("DMMA.16x8x4{rnd} Rd8, -|Ra4|, -|Rb2|, -|Rc8|, UPp?",     0x23F, {76: 1},               HOPPER),
    ("DMMA.16x8x8{rnd} Rd8, -|Ra8|, -|Rb4|, -|Rc8|, UPp?",     0x23F, {76: 2},               HOPPER),
    ("DMMA.16x8x16{rnd} Rd8, -|Ra16|, -|Rb8|, -|Rc8|, UPp?",   0x23F, {76: 3},               HOPPER),
    # bits 75 and 76 (with 80, sparse): shape
    ("QMMA.16816.F16{e4a}{e4b} Rd2, -Ra2.ROW, -Rb.COL, Rc2, UPp?",              0x27A, {74: 1},               ADA_ONLY),
    ("QMMA.16816.F32{e4a}{e4b} Rd4, -Ra2.ROW, -Rb.COL, Rc4, UPp?",              0x27A, {74: 1, 77: 1},        ADA_ONLY),
    ("QMMA.16832.F16{e4a}{e4b} Rd2, -Ra4.ROW, -Rb2.COL, Rc2, UPp?",             0x27A, {74: 3},               ADA_ONLY),
    ("QMMA.16832.F32{e4a}{e4b} Rd4, -Ra4.ROW, -Rb2.COL, Rc4, UPp?",             0x27A, {74: 3, 77: 1},        ADA_ONLY),
    ("QMMA.SP.16832.F16{e4a}{e4b} Rd2, -Ra2.ROW, -Rb2.COL, Rc2, UPp?, Rm, sel", 0x27A, {74: 3, 80: 1},        ADA_ONLY),
    ("QMMA.SP.16832.F32{e4a}{e4b} Rd4, -Ra2.ROW, -Rb2.COL, Rc4, UPp?, Rm, sel", 0x27A, {74: 3, 77: 1, 80: 1}, ADA_ONLY),
    ("QMMA.SP.16864.F16{e4a}{e4b} Rd2, -Ra4.ROW, -Rb4.COL, Rc2, UPp?, Rm, sel", 0x27A, {74: 5, 80: 1},        ADA_ONLY),
    ("QMMA.SP.16864.F32{e4a}{e4b} Rd4, -Ra4.ROW, -Rb4.COL, Rc4, UPp?, Rm, sel", 0x27A, {74: 5, 77: 1, 80: 1}, ADA_ONLY),
]
# fmt: on



def sources(words: int, neg: bool) -> OfArch:
    """The first source: on sm_120 it has no reuse bit of its own."""
    return lambda arch: field_of(wide(words, 24, 72 if neg else None, reuse=None if arch in RTX else 122), arch)


NARROW = {0: ".E4M3", 1: ".E5M2", 3: ".E3M2", 4: ".E2M3", 5: ".E2M1"}
WARP |= {
    "qa": Enum(((78, 1), (82, 2)), 3, NARROW), "qb": Enum(((79, 1), (84, 2)), 3, NARROW),
    **{f"{'-' * neg}Ra{words if words > 1 else ''}": sources(words, bool(neg)) for words in (1, 2, 4) for neg in (0, 1)},
    "Rm": lambda arch: field_of(wide(1, 40, reuse=None if arch in RTX else 50), arch),
    # scales of blocks: those of a and the metadata in one register, those of b, and which bytes and threads hold them
    "Rs": wide(1, 40), "Rt": wide(1, 52, reuse=51), "URs": lambda arch: Split("UR", ((60, 3), (73, 5)), arch.files["UR"].zero),
    "sf": Enum(82, 1, (".E8", ".UE4M3")), "vec": Enum(83, 1, (".4X", "")),
}  # fmt: skip

# fmt: off
HALF_OR_FULL = ("F16", 2, 0), ("F32", 4, 1)
# sm_120: numbers of 8, 6 and 4 bits, also with a scale for each block (.SF)
THIRD_WARP: list[Item] = [
    *[(f"QMMA.16816.{to}{{qa}}{{qb}} Rd{n}, -Ra2, -Rb, Rc{n}, UPp?",              0x27A, {74: 1, 77: code},        RTX)
      for to, n, code in HALF_OR_FULL],
    *[(f"QMMA.16832.{to}{{qa}}{{qb}} Rd{n}, -Ra4, -Rb2, Rc{n}, UPp?",             0x27A, {74: 3, 77: code},        RTX)
      for to, n, code in HALF_OR_FULL],
    *[(f"QMMA.SP.16832.{to}{{qa}}{{qb}} Rd{n}, -Ra2, -Rb2, Rc{n}, UPp?, Rm, sel", 0x27A, {74: 3, 77: code, 80: 1}, RTX)
      for to, n, code in HALF_OR_FULL],
    *[(f"QMMA.SP.16864.{to}{{qa}}{{qb}} Rd{n}, -Ra4, -Rb4, Rc{n}, UPp?, Rm, sel", 0x27A, {74: 5, 77: code, 80: 1}, RTX)
      for to, n, code in HALF_OR_FULL],
    ("QMMA.SF.16832.F32{qa}{qb}.E8 Rd4, -Ra4, -Rb2, Rc4, UPp?, Rs, Rt, URs",         0x47A, {},      RTX),
    ("QMMA.SF.SP.16864.F32{qa}{qb}.E8 Rd4, -Ra4, -Rb4, Rc4, UPp?, Rs, Rt, URs, sel", 0x47A, {80: 1}, RTX),
    ("OMMA.SF.16864.F32.E2M1.E2M1{sf}{vec} Rd4, -Ra4, -Rb2, Rc4, UPp?, Rs, Rt, URs",          0x47F, {}, RTX),
    ("OMMA.SF.SP.168128.F32.E2M1.E2M1{sf}{vec} Rd4, -Ra4, -Rb4, Rc4, UPp?, Rs, Rt, URs, sel", 0x47F, {80: 1}, RTX),
]
# fmt: on

# ---- a warp group ----------------------------------------------------------------------------------------------

EIGHTS = range(8, 257, 8)
SOME = (8, 16, 24, *range(32, 257, 16))


def shape(k: int, first: int, step: int = 1, sizes: range | tuple[int, ...] = EIGHTS, bits: int = 32) -> Enum:
    """64xNxK. The accumulator takes N/2 registers, N/4 where it is F16."""
    names = {first + step * n: f".64x{size}x{k}" for n, size in enumerate(sizes)}
    return Enum(53, 7, names, spans={f".64x{size}x{k}": size * bits // 64 for size in sizes})


GROUP: dict[str, OfArch] = {
    "UPp": Inverted(),
    "n8": shape(8, 32), "n16": shape(16, 0), "n16h": shape(16, 0, bits=16),
    "n32": shape(32, 64), "n32h": shape(32, 64, bits=16),
    "i32": shape(32, 0, 3, SOME), "i64": shape(64, 1, 3, SOME), "b256": shape(256, 0, 1, SOME),
    "q32": shape(32, 0), "q32h": shape(32, 0, bits=16), "q64": shape(64, 32), "q64h": shape(64, 32, bits=16),
    "bf": flag(76, ".BF16"), "sat": flag(75, ".SAT"),
    "u8a": Enum(76, 1, (".U8", ".S8")), "u8b": Enum(82, 1, (".U8", ".S8")),
    "e4a": Enum(76, 1, (".E4M3", ".E5M2")), "e4b": Enum(77, 1, (".E4M3", ".E5M2")),
    "negA": flag(72, ".negA"), "negB": flag(63, ".negB"), "tnspA": flag(61, ".tnspA"), "tnspB": flag(62, ".tnspB"),
    "Rm": wide(1, 40), "sel": Number(48, 2), "some": Number(48, 2, default=0), "off": flag(74, ".REGOFFSET"),
}  # fmt: skip

# fmt: off
# a stands for both matrices in shared memory (URa names two descriptors), or the first one in registers
TRANSPOSED = "gdesc[URa]{negA}{negB}{tnspA}{tnspB}", "-Ra4, gdesc[URb]{negB}{tnspB}"
SIGNED     = "gdesc[URa]{negA}{negB}",               "-Ra4, gdesc[URb]{negB}"
PLAIN      = "gdesc[URa]",                           "Ra4, gdesc[URb]"
THIRD: list[tuple[str, tuple[str, str], int, dict[object, object]]] = [
    ("HGMMA{n16h}.F16                Rdw, a, Rcw, UPp?",                TRANSPOSED, 0x0F0, {}),
    ("HGMMA{n16}.F32{bf}             Rdw, a, Rcw, UPp?",                TRANSPOSED, 0x0F0, {75: 1}),
    ("HGMMA{n8}.F32.TF32             Rdw, a, Rcw, UPp?",                TRANSPOSED, 0x0F0, {75: 5}),
    ("HGMMA.SP{off}{n32h}.F16        Rdw, a, Rcw, UPp?, Rm, sel",       TRANSPOSED, 0x0F0, {73: 1}),
    ("HGMMA.SP{off}{n32}.F32{bf}     Rdw, a, Rcw, UPp?, Rm, sel",       TRANSPOSED, 0x0F0, {73: 5}),
    ("HGMMA.SP{off}{n16}.F32.TF32    Rdw, a, Rcw, UPp?, Rm, sel",       TRANSPOSED, 0x0F0, {73: 1, 75: 5}),
    ("IGMMA{i32}{u8a}{u8b}{sat}      Rdw, a, Rcw, UPp?",                PLAIN,      0x0F1, {}),
    ("IGMMA.SP{off}{i64}{u8a}{u8b}{sat} Rdw, a, Rcw, UPp?, Rm, some?",  PLAIN,      0x0F1, {73: 1}),
    ("BGMMA{b256}.AND.POPC           Rdw, a, Rcw, UPp?",                PLAIN,      0x0F2, {78: 1, 80: 1}),
    ("QGMMA{q32h}.F16{e4a}{e4b}      Rdw, a, Rcw, UPp?",                SIGNED,     0x0F3, {}),
    ("QGMMA{q32}.F32{e4a}{e4b}       Rdw, a, Rcw, UPp?",                SIGNED,     0x0F3, {75: 1}),
    ("QGMMA.SP{off}{q64h}.F16{e4a}{e4b} Rdw, a, Rcw, UPp?, Rm, some?",  SIGNED,     0x0F3, {73: 1}),
    ("QGMMA.SP{off}{q64}.F32{e4a}{e4b} Rdw, a, Rcw, UPp?, Rm, some?",   SIGNED,     0x0F3, {73: 5}),
]
# fmt: on

WARP_GROUP: list[Item] = []
for text, two, opcode, fixed in THIRD:
    for low, a in zip((0x1900, 0x1D00), two):
        here = text.replace(" a,", f" {a},")
        # bits 84 to 86: the scoreboard of the group, 7 for none; nvdisasm knows gsb0 alone
        WARP_GROUP.append((f"{here}, gsb0", low | opcode, fixed, HOPPER))
        WARP_GROUP.append((here, low | opcode, {**fixed, 84: 7}, HOPPER))

# ---- matrices to and from shared memory ------------------------------------------------------------------------

TILES: dict[str, OfArch] = {
    "tile": Enum(78, 2, (".M88", ".MT88", ".M816", ".M832")),
    "tile88": Enum(78, 1, (".M88", ".MT88")),
    "bits": Enum(75, 3, {0: ".16", 5: ".U4x16P64TO8", 6: ".U6x16P32TO8", 7: ".8"}),
    "tile4": Enum(78, 3, (".M88", ".MT88", ".M816", ".M832")),
    "half": Enum(75, 1, (".16", ".8")), "tile3": Enum(78, 2, (".M88", ".MT88", ".MT168")),
    "tilem": Enum(78, 2, (".MT88", ".M832", ".M864", None)),
    "n": Enum(72, 2, ("", ".2", ".4", None), spans={".2": 2, ".4": 4}),
    # of matrices of 16 rows of 16 bytes
    "n16": Enum(72, 2, ("", ".2", ".4", None), spans={"": 2, ".2": 4, ".4": 8}),
    "low": Alone(40, 24), "signed": Alone(40, 24, signed=True), "up": Offset(40, 24, signed=False),
}  # fmt: skip

# fmt: off
MOVES = rows(
    # without a register the offset is unsigned on sm_75
    ("LDSM.16{tile}{n} Rdw, [low]",           0x83B,  {24: 255, "low": bool, "reuse": False},    TURING_ONLY),
    ("LDSM.16{tile}{n} Rdw, [signed]",        0x83B,  {24: 255, "signed": bool, "reuse": False}, AMPERE - BLACKWELL),
    ("LDSM{bits}{tile4}{n} Rdw, [signed]",        0x83B,  {24: 255, "signed": bool, "reuse": False}, BLACKWELL),
    ("LDSM{bits}.MT1616{n16} Rdw, [signed]",        0x83B,  {78: 4, 24: 255, "signed": bool, "reuse": False}, BLACKWELL),
    ("LDSM.16{tile}{n} Rdw, [Ra(off)]",       0x83B,  {"reuse": False},                          TURING - BLACKWELL),
    ("LDSM{bits}{tile4}{n} Rdw, [Ra(off)]",       0x83B,  {"reuse": False},                          BLACKWELL),
    ("LDSM{bits}.MT1616{n16} Rdw, [Ra(off)]",       0x83B,  {78: 4, "reuse": False},                          BLACKWELL),
    ("LDSM.16{tile}{n} Rdw, [URb(up)]",       0x183B, {24: 255, "reuse": False},                 TURING_ONLY),
    ("LDSM.16{tile}{n} Rdw, [URb(off)]",      0x183B, {24: 255, "reuse": False},                 AMPERE - BLACKWELL),
    ("LDSM{bits}{tile4}{n} Rdw, [URb(off)]",      0x183B, {24: 255, "reuse": False},                 BLACKWELL),
    ("LDSM{bits}.MT1616{n16} Rdw, [URb(off)]",      0x183B, {78: 4, 24: 255, "reuse": False},                 BLACKWELL),
    ("LDSM.16{tile}{n} Rdw, [Ra+URb(off)]",   0x183B, {"reuse": False},                          TURING - BLACKWELL),
    ("LDSM{bits}{tile4}{n} Rdw, [Ra+URb(off)]",   0x183B, {"reuse": False},                          BLACKWELL),
    ("LDSM{bits}.MT1616{n16} Rdw, [Ra+URb(off)]",   0x183B, {78: 4, "reuse": False},                          BLACKWELL),
    ("STSM.16{tile88}{n} [signed], Rbw",      0x844,  {24: 255, "signed": bool, "reuse": False}, HOPPER - BLACKWELL),
    ("STSM{half}{tile3}{n} [signed], Rbw",      0x844,  {24: 255, "signed": bool, "reuse": False}, BLACKWELL),
    ("STSM.16{tile88}{n} [Ra(off)], Rbw",     0x844,  {"reuse": False},                          HOPPER - BLACKWELL),
    ("STSM{half}{tile3}{n} [Ra(off)], Rbw",     0x844,  {"reuse": False},                          BLACKWELL),
    ("STSM.16{tile88}{n} [URc(off)], Rbw",    0x1844, {24: 255, "reuse": False},                 HOPPER - BLACKWELL),
    ("STSM{half}{tile3}{n} [URc(off)], Rbw",    0x1844, {24: 255, "reuse": False},                 BLACKWELL),
    ("STSM.16{tile88}{n} [Ra+URc(off)], Rbw", 0x1844, {"reuse": False},                          HOPPER - BLACKWELL),
    ("STSM{half}{tile3}{n} [Ra+URc(off)], Rbw", 0x1844, {"reuse": False},                          BLACKWELL),
    ("MOVM.16{tilem} Rd, Ra",                 0x23A,  {"reuse": False},                          TURING),
    ("MOVM.U4TO8{tilem} Rd2, Ra",             0x23A,  {75: 1, "reuse": False},                   BLACKWELL),
    fields=TILES,
)
# fmt: on

ROWS: list[Row] = [
    *FIRST,
    *rows(*[each for row in SECOND for each in both(row)], *THIRD_WARP, fields=WARP),
    *rows(*WARP_GROUP, fields=GROUP),
    *MOVES,
]


# ---- what they are -----------------------------------------------------------------------------------------------

GROUP_DESCRIPTORS = 4  # uniform registers that gdesc[UR] of a warp group product names: the descriptors of A and of B


def descriptors(mods: tuple[str, ...], n: int, pattern: str) -> int:
    """Those of both matrices, also where A is in registers: its two have their place then, and nobody reads them."""
    return GROUP_DESCRIPTORS if "gdesc" in pattern else 0


tensor = functools.partial(op, "tensor", opaque=True)
wgmma = functools.partial(op, "wgmma", opaque=True, spans=descriptors)
lsu = functools.partial(op, "lsu")

OPS = {
    "HMMA": tensor("matrix product of a warp, FP16, BF16 or TF32, with FP16 or FP32 sums",
                   "mma.sync .f16 .bf16 .tf32, wmma::mma_sync", "HMMA.16816.F32 R0, R4, R8, R12",
                   "HMMA.1688.F32 R0, R4, R6, R8", "HMMA.884.F32.F32.STEP0 R0, R4.ROW, R6.COL, R0", traits="matrix"),
    "IMMA": tensor("matrix product of a warp, small integers", "mma.sync .s8 .u8 .s4 .u4, wmma::mma_sync",
                   "IMMA.16816.S8.S8 R0, R4.ROW, R6.COL, R8", "IMMA.8816.S8.S8 R0, R4.ROW, R6.COL, R8"),
    "BMMA": tensor("matrix product of a warp, bits", "mma.sync .b1, wmma::bmma_sync",
                   "BMMA.168128.XOR.POPC R0, R4.ROW, R6.COL, R8", "BMMA.88128.XOR.POPC R0, R4.ROW, R5.COL, R6",
                   "BMMA.168128.AND.POPC R0, R4.ROW, R6.COL, R8"),
    "DMMA": tensor("matrix product of a warp, FP64", "mma.sync .f64, wmma::mma_sync", "DMMA.884 R0, R4, R6, R8",
                   "DMMA.8x8x4 R0, R4, R6, R8", traits="matrix"),
    "QMMA": tensor("matrix product of a warp, FP8", "mma.sync .e4m3 .e5m2",
                   "QMMA.16832.F32.E4M3.E4M3 R0, R4.ROW, R8.COL, R12", "QMMA.16832.F32.E4M3.E4M3 R0, R4, R8, R12",
                   kin="HMMA", traits="matrix"),
    "OMMA": tensor("matrix product of a warp, FP4 with a scale for each block", "mma.sync.kind::mxf4nvf4 .e2m1",
                   "OMMA.SF.16864.F32.E2M1.E2M1.UE4M3.4X R0, R4, R8, R12, R16, R17, URZ", kin="QMMA"),
    "HGMMA": wgmma("matrix product of a warp group, FP16, BF16 or TF32", "wgmma.mma_async .f16 .bf16 .tf32",
                   "HGMMA.64x128x16.F32 R24, gdesc[UR8], R24, UP0, gsb0", kin="HMMA", traits="matrix"),
    "IGMMA": wgmma("matrix product of a warp group, integers", "wgmma.mma_async .s8 .u8",
                   "IGMMA.64x128x32.S8.S8 R24, gdesc[UR8], R24, UP0, gsb0", kin="IMMA"),
    "BGMMA": wgmma("matrix product of a warp group, bits", "wgmma.mma_async .b1",
                   "BGMMA.64x128x256.AND.POPC R24, gdesc[UR8], R24, UP0, gsb0", kin="BMMA"),
    "QGMMA": wgmma("matrix product of a warp group, FP8", "wgmma.mma_async .e4m3 .e5m2",
                   "QGMMA.64x128x32.F32.E4M3.E4M3 R24, gdesc[UR8], R24, UP0, gsb0", kin="QMMA", traits="matrix"),
    "LDSM": lsu("loads 8x8 matrices from shared memory, spread over the warp", "ldmatrix",
                "LDSM.16.M88.4 R0, [R4]", opaque=True, kin="LDS", space="shared", traits="load"),
    "STSM": lsu("stores 8x8 matrices to shared memory", "stmatrix", "STSM.16.M88.4 [R0], R4", kin="STS",
                space="shared", traits="store"),
    "MOVM": lsu("transposes an 8x8 matrix that is spread over the warp, or makes bytes of elements of 4 bits",
                "movmatrix", "MOVM.16.MT88 R0, R1",
                opaque=True, kin="SHFL", traits="lanes"),
}
