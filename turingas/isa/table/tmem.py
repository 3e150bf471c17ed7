"""Tensor memory and the fifth generation of tensor cores (tcgen05): sm_100, sm_103 and sm_110.

What each instruction is of PTX was read off ptxas 13.0's code for every form of tcgen05.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from typing import Any

from turingas.isa.arch import B200, B300, THOR, Archs, since
from turingas.isa.fields import Alone, Enum, Number, Offset, flag
from turingas.isa.grammar import OfArch, behind, register, rows
from turingas.isa.op import op

UP = {"guard": "UP"}


# Rows of tensor memory that a warp reaches, and the bits of each for one register of a thread: 81, 82 and 87 the shape,
# 83 to 85 how many times. A register holds 32 bits of a thread's: 16 rows x 256 bits are 4 of them.
SHAPES = {".16dp128bit": (0, 2), ".16dp256bit": (1, 4), "": (2, 1), ".16dp64bit": (3, 1), ".16dp32bit_t0_t15": (4, 1),
          ".16dp32bit_t16_t31": (5, 1)}  # fmt: skip
TIMES = {n: f".x{1 << n}" if n else "" for n in range(8)}
LAYOUTS = {
    name + times: (code | n << 3, registers << n)
    for name, (code, registers) in SHAPES.items() for n, times in TIMES.items() if registers << n <= 128
}  # fmt: skip

REDUCED = {  # of loads that also reduce what they load
    name: row for name, row in LAYOUTS.items() if row[0] & 7 in (2, 4, 5) and row[1] > 1
}

FIELDS: dict[str, OfArch] = {
    "reduced": Enum(((81, 2), (87, 1), (83, 3)), 6, {code: name for name, (code, _) in REDUCED.items()},
                    spans={name: count for name, (_, count) in REDUCED.items()}),
    "least": Enum(66, 2, (".MAX", ".MAXABS", ".MIN", ".MINABS")), "sort": Enum(64, 2, ("", ".S32", ".F32")), "nan": flag(68, ".NAN"),
    "layout": Enum(((81, 2), (87, 1), (83, 3)), 6, {code: name for name, (code, _) in LAYOUTS.items()},
                   spans={name: count for name, (_, count) in LAYOUTS.items()}),
    "pack": flag(80, ".PACK16BIT"), "expand": flag(80, ".EXPAND16BIT"), "far": Offset(((40, 24), (72, 8)), 32), "alone": Alone(((40, 24), (72, 8)), 32, signed=True),
    "cta2": flag(85, ".2CTA"),
    # copies from shared memory: rows x bits, which warps get a copy, and the numbers of 4 or 6 bits that are spread
    "copied": Enum(((83, 2), (88, 1)), 3, ("", None, ".4dp256bit", ".128dp128bit", ".2x64dp128bit_lw02_lw13",
                                           ".2x64dp128bit_lw01_lw23", ".4x32dp128bit")),
    "spread": Enum(80, 2, ("", ".U4x16P64", ".U6x16P32")),
    "multicast": flag(75, ".MULTICAST"), "wakeup": flag(76, ".WAKEUP"), "a0tx": flag(77, ".A0TX"),
    "align": flag(75, ".ALIGN"), "setop": Enum(87, 1, (".AND", ".OR")),
    # of products
    "areuse": flag(86, ".A_REUSE"), "akeep": flag(84, ".A_KEEP"), "breuse": flag(82, ".B_REUSE"), "bkeep": flag(81, ".B_KEEP"),
    "buffer": Enum(79, 2, ("", ".BUFFER1", ".BUFFER2", ".BUFFER3")), "ws": flag(83, ".WS"), "ashift": flag(74, ".ASHIFT"),
    "scale": Number(75, 4, default=0), "vec": lambda arch: Enum(62, 1, (".BLOCK16" if arch in since("sm_103") else ".4X", "")),
    "URa2": register("UR", 24, 2), "URb2": register("UR", 32, 2), "URe": register("UR", 40), "URf": behind(40),
    "URm": register("UR", 48),
}  # fmt: skip


def placed(
    text: str, opcode: int, fixed: Mapping[Any, Any], pos: int, archs: Archs = B200
) -> list[tuple[object, ...]]:
    """A row with an address in tensor memory; an offset without a register stands alone."""
    alone = re.sub(r"UR\w\(far\)", "alone", text)
    return [(alone, opcode, {**fixed, pos: "URZ", "alone": bool}, archs), (text, opcode, fixed, archs)]


def products() -> Iterator[tuple[object, ...]]:
    """UTCHMMA and its kin: a in shared or in tensor memory, with one CTA or the second one's as well. Its accumulator is
    tmem[URc]; the register at 40 names its metadata of sparse matrices, and the one behind that the instruction descriptor."""
    end = "tmem[URe], idesc[URf]"
    for pair, cta, b in ((0, "", "{breuse}{bkeep}{buffer}"), (1, ".2CTA", "")):
        for of, a, ashift in ((0x15EA, "gdesc[URa2]{areuse}{akeep}", ""), (0x19EA, "tmem[URa]{areuse}{akeep}", "{ashift}")):
            sources = f"{a}, gdesc[URb2]{b}, tmem[URc], {end}"
            for name, kind in (("UTCHMMA", 0), ("UTCIMMA", 1), ("UTCQMMA", 3)):
                scale = ", scale?" if name == "UTCHMMA" else ""
                fixed = {72: kind, 85: pair}
                yield f"{name}{cta}{{ws}}{ashift} {sources}, URm?, !UPp{scale}", of, fixed, B200
            plain = f"{a}, gdesc[URb2], tmem[URc], {end}, tmem[URm], !UPp"  # with scales of blocks
            yield f"UTCQMMA{cta} {plain}", of + 0x800 if of == 0x15EA else of + 0x600, {72: 3, 85: pair}, B200
            yield f"UTCOMMA{cta}{{vec}} {plain}", of, {63: 1, 85: pair}, B200


# fmt: off
ROWS = rows(
    # text                                                              opcode  fixed       architectures
    *placed("LDTM{layout}{pack} Rdw, tmem[URb(far)]",                   0x19EE, UP,         32),
    *placed("LDTM.STAT{reduced}{least}{sort}{nan} Ra, Rdw, tmem[URb(far)]", 0x15EE, UP, 32, B300 | THOR),
    *placed("STTM{layout}{expand} tmem[URc(far)], Rbw",                 0x19ED, UP,         64),
    *placed("UTCCP.T.S{cta2}{copied}{spread} tmem[URa(far)], gdesc[URb2]", 0x19E7, {},      24),
    *placed("UTCSHIFT{cta2}.DOWN tmem[URa(far)]",                       0x19E6, {80: 1},    24),
    ("UTCBAR.2CTA{a0tx}{multicast} [URa], URb, URc?",                   0x13E9, {85: 1},    B200),
    ("UTCBAR{a0tx}{wakeup}{multicast} [URa], URb, URc?",                0x13E9, {},         B200),
    ("UTCATOMSWS{cta2}.FIND_AND_SET{align} UPu, URd, URb",              0x15E3, {},         B200),
    ("UTCATOMSWS{cta2}{setop} URd, URb",                                0x19E3, {},         B200),
    *products(),
    fields=FIELDS,
)
# fmt: on


def lanes(mods: tuple[str, ...], n: int, pattern: str) -> int:
    """The lanes that stay as they are: 32 a register, of one CTA or two; the addresses of the scales of A and of B."""
    return {"URm": 8 if "2CTA" in mods else 4, "tmem[URm]": 2}.get(pattern, 0)


lsu, copy = (functools.partial(op, pipe) for pipe in ("lsu", "copy"))
# products read their uniform registers as late as copies do, and ptxas lets the scoreboard of a later one, or of a
# commit, speak for them, too (460 of the 2712 UTCHMMA in cuBLAS 13.1 have none of their own)
product = functools.partial(copy, spans=lanes)

OPS = {
    # .STAT: the least or the greatest of what it loads goes to the register that stands first (tcgen05.ld.red)
    "LDTM": lsu("loads from tensor memory", "tcgen05.ld", "LDTM.x4 R4, tmem[UR4]", opaque=True, writes="R24", kin="LDS"),
    "STTM": lsu("stores to tensor memory", "tcgen05.st", "STTM.x4 tmem[UR4], R4", kin="STS"),
    "UTCCP": copy("copies from shared to tensor memory", "tcgen05.cp", "UTCCP.T.S.4x32dp128bit tmem[UR4], gdesc[UR8]"),
    # ptxas 13.5 sets no scoreboard on it, in 10 of 10, stalls for 12, and overwrites its register later
    "UTCSHIFT": copy("shifts rows of tensor memory down", "tcgen05.shift", "UTCSHIFT.DOWN tmem[UR4]", sets=""),
    "UTCBAR": copy("arrives at an mbarrier when the products and copies before it are done", "tcgen05.commit",
                   "UTCBAR [UR4], URZ", traits="arrives"),
    "UTCATOMSWS": lsu("finds columns of tensor memory that are free and takes them, or gives them back",
                      "tcgen05.alloc, tcgen05.dealloc",
                      "UTCATOMSWS.FIND_AND_SET.ALIGN UP0, UR4, UR5", opaque=True),
    "UTCHMMA": product("matrix product of one or two CTAs in tensor memory, FP16, BF16 or TF32",
                       "tcgen05.mma.kind::f16, tcgen05.mma.kind::tf32, tcgen05.mma.ws",
                       "UTCHMMA gdesc[UR8], gdesc[UR10], tmem[UR6], tmem[UR4], idesc[UR5], UPT", kin="HGMMA HMMA"),
    "UTCIMMA": product("the same of small integers", "tcgen05.mma.kind::i8",
                       "UTCIMMA gdesc[UR8], gdesc[UR10], tmem[UR6], tmem[UR4], idesc[UR5], UPT", kin="IGMMA IMMA"),
    "UTCQMMA": product("the same of numbers of 8, 6 and 4 bits, also with a scale for each block",
                       "tcgen05.mma.kind::f8f6f4, tcgen05.mma.kind::mxf8f6f4.block_scale",
                       "UTCQMMA gdesc[UR8], gdesc[UR10], tmem[UR6], tmem[UR4], idesc[UR5], UPT", kin="QGMMA QMMA"),
    "UTCOMMA": product("the same of FP4 with a scale for each block",
                       "tcgen05.mma.kind::mxf4.block_scale, tcgen05.mma.kind::mxf4nvf4.block_scale",
                       "UTCOMMA.4X gdesc[UR8], gdesc[UR10], tmem[UR6], tmem[UR4], idesc[UR5], tmem[UR12], UPT",
                       "UTCOMMA.BLOCK16 gdesc[UR8], gdesc[UR10], tmem[UR6], tmem[UR4], idesc[UR5], tmem[UR12], UPT"),
}
