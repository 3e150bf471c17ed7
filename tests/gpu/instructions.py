"""Single instructions of sm_90, each in a kernel of its own, and the operands that they get.

Every lane loads 16 words into R16 to R31, runs the instruction and stores R32 to R35, R40 to R43, the uniform registers
UR32 and UR33, and all predicates. A form finds its sources in

- R16, R18, R20, R22 (a, b, c, d; pairs with the register that follows), R24 to R31 more of the same;
- UR16, UR18, UR20, UR22 the same of a warp's first lane;
- P0 to P6 and UP0 to UP6 bits of R23;
- memory: 16 bytes a lane at [R6.64] and (shared) [R8], which hold R16 to R19 before; R40 to R43 is what they hold then.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable

import numpy as np

import turingas
from tests.emulate import test_floating, test_halves
from turingas.assembler import assemble
from turingas.cubin.cubin import Cubin
from turingas.isa.instruction import instruction
from turingas.isa.isa import instruction_set
from turingas.isa.latency import latencies

Array = np.ndarray
LANES = 4096
BLOCK = 128
IN, OUT = 16, 12  # words of a lane

HEAD = """
.arch sm_90
.shared 2048
.param out 8
.param in_ 8
.param memory 8
--:-:0:Y:2   S2R R0, SR_TID.X;
--:-:0:Y:2   S2R R1, SR_CTAID.X;
--:-:1:Y:2   LDC.64 R2, c[0x0][0x218];
--:-:1:Y:2   LDC.64 R4, c[0x0][0x210];
--:-:1:Y:2   LDC.64 R6, c[0x0][0x220];
--:-:-:Y:12  ULDC.64 UR4, c[0x0][0x208];
01:-:-:Y:8   IMAD.SHL.U32 R8, R0, 0x10, RZ;
--:-:-:Y:8   IMAD R0, R1, 0x80, R0;
02:-:-:Y:8   IMAD.WIDE.U32 R2, R0, 0x40, R2;
--:-:-:Y:8   IMAD.WIDE.U32 R4, R0, 0x30, R4;
--:-:-:Y:8   IMAD.WIDE.U32 R6, R0, 0x10, R6;
--:-:0:Y:2   LDG.E.128 R16, desc[UR4][R2.64];
--:-:0:Y:2   LDG.E.128 R20, desc[UR4][R2.64+0x10];
--:-:0:Y:2   LDG.E.128 R24, desc[UR4][R2.64+0x20];
--:-:0:Y:2   LDG.E.128 R28, desc[UR4][R2.64+0x30];
--:-:-:Y:8   MOV R32, 0x32323232;
--:-:-:Y:8   MOV R33, 0x33333333;
--:-:-:Y:8   MOV R34, 0x34343434;
--:-:-:Y:8   MOV R35, 0x35353535;
--:-:-:Y:12  UMOV UR32, 0x32323232;
--:-:-:Y:12  UMOV UR33, 0x33333333;
"""
UNIFORM = "".join(f"01:-:-:Y:15  R2UR UR{n}, R{n};\n" for n in range(16, 24)) + """
--:-:-:Y:15  UR2UP UPR, UR23;
--:-:-:Y:15  NOP;
"""
MEMORY = """
01:0:-:Y:2   STG.E.128 desc[UR4][R6.64], R16;
--:0:-:Y:2   STS.128 [R8], R16;
"""
MIDDLE = """
01:-:-:Y:15  R2P PR, R23, 0x7f;
--:-:-:Y:15  NOP;
"""
AGAIN = """
01:-:1:Y:2   {load} R40, {place};
02:0:-:Y:2   STG.E.128 desc[UR4][R4.64+0x10], R40;
"""
TAIL = """
01:-:-:Y:15  NOP;
--:-:-:Y:15  NOP;
--:-:-:Y:15  NOP;
--:-:-:Y:15  MOV R36, UR32;
--:-:-:Y:15  MOV R37, UR33;
--:-:-:Y:15  UP2UR UR34, UPR, URZ, 0x7f;
--:-:-:Y:15  MOV R38, UR34;
--:-:-:Y:15  P2R R39, PR, RZ, 0x7f;
--:0:-:Y:2   STG.E.128 desc[UR4][R4.64], R32;
--:0:-:Y:2   STG.E.128 desc[UR4][R4.64+0x20], R36;
--:-:-:Y:15  EXIT;
"""


@dataclasses.dataclass(frozen=True)
class Form:
    """An instruction and the kind of its operands. ``near``: it is compared by its error, not by its bits."""

    text: str
    kind: str
    near: bool = False

    def cubin(self) -> Cubin:
        """The kernel ``kern`` around it."""
        scoreboard = "0" if waits(self.text) else "-"
        body = f"01:-:{scoreboard}:Y:15  {self.text};\n"
        memory, again = "", ""
        if "[R6" in self.text or "[R8" in self.text:
            memory = MEMORY
            load, place = ("LDS.128", "[R8]") if "[R8" in self.text else ("LDG.E.128.STRONG.GPU", "desc[UR4][R6.64]")
            again = AGAIN.format(load=load, place=place)
        return assemble(HEAD + UNIFORM + memory + MIDDLE + body + again + TAIL)


def waits(text: str) -> bool:
    """Whether the result of an instruction comes at no fixed time."""
    (word,) = turingas.encode(text, arch="sm_90", default_control="00:-:-:-:1")
    found = instruction(instruction_set("sm_90"), word, 0)
    assert found is not None, text
    return any(latencies("sm_90").variable(found, write) for write in found.writes)


def spelled(pattern: str) -> list[str]:
    """All spellings of a pattern: {x,y} stands for x or y, and {x,} for x or nothing."""
    found = re.search(r"\{([^{}]*)\}", pattern)
    if not found:
        return [pattern]
    before, after = pattern[: found.start()], pattern[found.end() :]
    return [one for part in found[1].split(",") for one in spelled(before + part + after)]


# ---- operands --------------------------------------------------------------------------------------------------------

EDGES = [0, 1, 2, 3, 31, 32, 33, 63, 64, 0x7F, 0x80, 0xFF, 0x100, 0x7FFF, 0x8000, 0xFFFF, 0x10000, 0x7FFFFFFF,
         0x80000000, 0x80000001, 0xFFFFFF80, 0xFFFF8000, 0xFFFFFFFE, 0xFFFFFFFF]  # fmt: skip


def _edges(edges: list[int], rng: np.random.Generator) -> Array:
    """Every pair of edge values in the first columns; (m, 16)."""
    values = np.array(edges, np.uint64)
    a, b = (v.reshape(-1) for v in np.meshgrid(values, values))
    more = rng.choice(values, (len(a), 14))
    return np.concatenate([a[:, None], rng.choice(values, (len(a), 1)), b[:, None], more[:, 1:]], axis=1)


def _filled(rows: list[Array]) -> Array:
    """(LANES, 16) uint32 of rows; the flags in R23 are any bits, but for some warps where all are set."""
    table = np.concatenate([r.astype(np.uint64) & np.uint64(0xFFFFFFFF) for r in rows])
    assert len(table) <= LANES, len(table)
    rng = np.random.default_rng(9)
    table = np.concatenate([table, table[rng.integers(0, len(table), LANES - len(table))]])
    table[:, 7] = rng.integers(0, 1 << 32, LANES)
    table[::128, 7] |= 0x7F  # never a warp without a lane
    table[-256:-128, 7] |= 0x7F
    return table.astype(np.uint32)


def integers() -> Array:
    """Edges, any bits, short numbers, and a pair that is equal or differs by one."""
    rng = np.random.default_rng(1)
    any_bits = rng.integers(0, 1 << 32, (1200, 16), dtype=np.uint64)
    short = any_bits[:1200] >> rng.integers(0, 32, (1200, 16), dtype=np.uint64)
    short ^= (rng.integers(0, 2, (1200, 16), dtype=np.uint64)) * np.uint64(0xFFFFFFFF)
    close = rng.integers(0, 1 << 32, (600, 16), dtype=np.uint64)
    close[:, 2] = close[:, 0] + rng.integers(-1, 2, 600).astype(np.uint64)
    close[:, 3] = close[:, 1]
    close[:, 4] = close[:, 0] + close[:, 2]
    return _filled([_edges(EDGES, rng), any_bits, short, close])


def counts() -> Array:
    """Any first source, the others small: distances, positions, selectors of lanes."""
    rng = np.random.default_rng(2)
    rows = rng.integers(0, 1 << 32, (3000, 16), dtype=np.uint64)
    rows[:, 2] = rng.integers(0, 70, 3000)
    rows[::2, 0] = rng.integers(0, 70, 1500)
    rows[::4, 2] = rng.integers(0, 1 << 32, 750)
    return _filled([_edges(EDGES, rng), rows])


def few() -> Array:
    """Few different values, so that lanes of a warp agree."""
    rng = np.random.default_rng(3)
    rows = rng.integers(0, 1 << 32, (LANES, 16), dtype=np.uint64)
    choice = rng.integers(0, 1 << 32, (LANES // 32, 1, 3), dtype=np.uint64)
    pick = rng.integers(0, 3, (LANES // 32, 32)) * (np.arange(LANES // 32) % 2)[:, None]
    rows[:, 0] = np.take_along_axis(choice, pick[:, :, None], axis=2).reshape(-1)
    rows[:, 1] = rows[:, 0] // 3
    rows[:, 2] = rng.integers(0, 64, LANES)
    clamps = [0x1F, 0, 0x181F, 0x1800, 0x1C03, 0x0F, 0x100F, 0x1E01, 0x71F1F]
    rows[:, 4] = rng.choice(np.array(clamps, np.uint64), LANES)
    return _filled([rows])


def _columns(a: Array, b: Array, c: Array, wide: bool = False) -> Array:
    """Three sources as rows."""
    rng = np.random.default_rng(4)
    rows = rng.integers(0, 1 << 32, (len(a), 16), dtype=np.uint64)
    for n, v in enumerate((a, b, c)):
        rows[:, 2 * n] = v.astype(np.uint64) & np.uint64(0xFFFFFFFF)
        if wide:
            rows[:, 2 * n + 1] = v >> np.uint64(32)
    return rows


def _mixed(edges: list[int], sign: int, sources: list[Array], wide: bool = False) -> list[Array]:
    values = np.array([e | s for e in edges for s in (0, sign)], np.uint64)
    a, b = (v.reshape(-1) for v in np.meshgrid(values, values))
    return [_columns(a, b, np.random.default_rng(5).choice(values, len(a)), wide), _columns(*sources, wide=wide)]


WHOLE = [x + d for x in (0, 1, 2, 3, 15, 16, 127, 128, 255, 256, 32767, 32768, 65535, 65536, 2**31 - 1, 2**31,
                         2**32 - 1, 2**32, 2**63, 2**64) for d in (-0.5, -0.25, 0, 0.25, 0.5)]  # fmt: skip


def floats32() -> Array:
    whole = np.array([s * x for x in WHOLE for s in (1, -1)], np.float32)
    below = [np.nextafter(whole, np.float32(end)) for end in (np.inf, -np.inf)]
    limits = np.concatenate([whole, *below]).view(np.uint32).astype(np.uint64)
    rng = np.random.default_rng(6)
    size = (rng.uniform(-1, 1, 700) * 2.0 ** rng.integers(-4, 70, 700)).astype(np.float32).view(np.uint32)
    size = size.astype(np.uint64)
    # products about the smallest normal number: is flushed before or after rounding?
    x = (np.float32(1) + rng.integers(0, 1 << 23, 256).astype(np.float32) * np.float32(2.0**-23)).astype(np.float32)
    y = (2.0**-126 / x.astype(np.float64) * (1 - rng.integers(0, 9, 256) * 2.0**-26)).astype(np.float32)
    tiny = [x.view(np.uint32), y.view(np.uint32), np.full(256, 1 << 31, np.uint32)]
    sources = test_floating.operands32(192)
    edges = _mixed(test_floating.EDGES32, 1 << 31, sources)
    edges[0] = edges[0][rng.permutation(len(edges[0]))[:1000]]
    half = test_halves.operands("")[0].astype(np.uint64)[: 64 * 4]
    # float32 near halfway between two float16 or bfloat16
    near = half.astype(np.uint16).view(np.float16).astype(np.float32).view(np.uint32) + rng.integers(-1, 2, len(half))
    near = near.astype(np.uint64) | rng.choice(np.array([0, 0x1000, 0x8000, 0x7FFF, 0xFFF], np.uint64), len(half))
    return _filled([*edges, _columns(limits, limits[::-1], limits), _columns(size, size[::-1], size),
                    _columns(*tiny), _columns(near, near[::-1], near)])  # fmt: skip


def floats64() -> Array:
    whole = np.array([s * x for x in WHOLE for s in (1, -1)], np.float64)
    limits = np.concatenate([whole, np.nextafter(whole, np.inf), np.nextafter(whole, -np.inf)]).view(np.uint64)
    rng = np.random.default_rng(7)
    size = (rng.uniform(-1, 1, 700) * 2.0 ** rng.integers(-4, 70, 700)).view(np.uint64)
    # doubles near halfway between numbers of smaller formats, and near their ends
    short = rng.choice(np.array([2.0**-149, 2.0**-126, 2.0**-24, 2.0**-14, 1, 65504, 2.0**127, 3.3895e38]), 500)
    near = (short * rng.choice(np.array([0.5, 1, 1.5, 1 + 2.0**-11, 1 + 3 * 2.0**-11, 1 + 2.0**-24, 1 + 2.0**-8]), 500))
    near = (near.view(np.int64) + rng.integers(-1, 2, 500)).view(np.uint64)
    near |= rng.integers(0, 2, 500, dtype=np.uint64) << np.uint64(63)
    sources = test_floating.operands64(192)
    nans = [*test_floating.EDGES64, 0x7FF0000000000123, 0x7FF8000000000456]
    edges = _mixed(nans, 1 << 63, sources, wide=True)
    return _filled([*edges, *(_columns(x, x[::-1], np.roll(x, 7), wide=True) for x in (limits, size, near))])


def _halves(name: str, ones: int) -> Array:
    sources = [v.view(np.uint32).astype(np.uint64) for v in test_halves.operands(name)]
    edges = np.array([e | s for e in test_halves.EDGES[name] for s in (0, 0x8000)], np.uint64)
    a, b = (v.reshape(-1) for v in np.meshgrid(edges, edges))
    pairs = [v | np.roll(v, 5) << np.uint64(16) for v in (a, b, b[::-1])]
    every = np.arange(1 << 16, dtype=np.uint64)[:: 1 << 5] ^ np.uint64(ones)
    two = every | np.roll(every, 77) << np.uint64(16)
    return _filled([_columns(*sources), _columns(*pairs), _columns(two, two[::-1], np.roll(two, 99))])


def halves() -> Array:
    return _halves("", 0)


def bfloats() -> Array:
    return _halves(".BF16_V2", 0)


def _random_matrix(convert: Callable[[Array], Array], per_word: int, rng: np.random.Generator) -> Array:
    """A, B from standard normal numbers, some warps with numbers of very different size."""
    wide = np.repeat(rng.choice([0.0, 2.0, 6.0], LANES // 32), 32)[:, None]
    x, size = (rng.standard_normal((LANES, 12 * per_word)) for _ in range(2))
    return convert(x * np.exp2(np.rint(size * wide))).view(np.uint32).reshape(LANES, 12)


def _matrix(convert: Callable[[Array], Array], per_word: int, half_sums: bool = False) -> Array:
    rng = np.random.default_rng(8)
    rows = np.zeros((LANES, 16), np.uint64)
    rows[:, :12] = _random_matrix(convert, per_word, rng)
    sums = rng.standard_normal((LANES, 4)) * 8.0 ** np.repeat(rng.integers(-3, 3, LANES // 32), 32)[:, None]
    rows[:, 8:12] = sums.astype(np.float32).view(np.uint32)
    if half_sums:
        rows[:, 8:12] = rng.standard_normal((LANES, 8)).astype(np.float16).view(np.uint32)
    rows[:, 13] = 0x4E4E4E4E  # metadata of a sparse matrix: elements 2 and 3, 0 and 1
    found = _filled([rows])
    found[:, 7] = rows[:, 7]
    return found


def _f16(x: Array) -> Array:
    return np.clip(x, -30000, 30000).astype(np.float16)


def _bf16(x: Array) -> Array:
    return (x.astype(np.float32).view(np.uint32) >> np.uint32(16)).astype(np.uint16)


KINDS: dict[str, Callable[[], Array]] = {
    "integers": integers,
    "counts": counts,
    "few": few,
    "floats32": floats32,
    "floats64": floats64,
    "halves": halves,
    "bfloats": bfloats,
    "matrix16": lambda: _matrix(_f16, 2),
    "matrix16.16": lambda: _matrix(_f16, 2, True),
    "matrixb": lambda: _matrix(_bf16, 2),
    "matrix32": lambda: _matrix(lambda x: x.astype(np.float32), 1),
    "matrixany": lambda: _any_matrix(),
    "matrix64": lambda: _doubles(),
}


def _any_matrix() -> Array:
    """Any FP16 in some warps: infinities, NaNs and denormals among them; elsewhere finite ones; sums of any size."""
    rng = np.random.default_rng(10)
    rows = rng.integers(0, 1 << 32, (LANES, 16), dtype=np.uint64)
    finite = np.repeat(rng.integers(0, 4, LANES // 32) > 0, 32)
    rows[finite, :8] &= np.uint64(0xBFFFBFFF)
    rows[:, 8:12] &= np.uint64(0xBFFFFFFF)
    rows[:, 13] = 0x4E4E4E4E
    found = _filled([rows])
    found[:, 7] = rows[:, 7]
    return found


def _doubles() -> Array:
    rng = np.random.default_rng(8)
    rows = rng.standard_normal((LANES, 8)).view(np.uint32).astype(np.uint64)
    found = _filled([rows])
    found[:, 7] = rows[:, 7]
    return found


@functools.cache
def operands(kind: str) -> Array:
    """What the lanes load, (LANES, 16) uint32."""
    return KINDS[kind]()


# ---- the list --------------------------------------------------------------------------------------------------------

R = "{,.RM,.RP,.RZ}"
I = "{,.FLOOR,.CEIL,.TRUNC}"  # noqa: E741
COMPARE = "{LT,EQ,LE,GT,NE,GE,F,T}"
FCOMPARE = "{F,LT,EQ,LE,GT,NE,GE,NUM,NAN,LTU,EQU,LEU,GTU,NEU,GEU,T}"

EXACT: dict[str, list[str]] = {
    "integers": [
        "IADD3 R32, P1, P2, {,-}R16, {,-}R18, R20",
        "IADD3 R32, {,-}R16, {,-}R18, {,-}R20",
        "IADD3 R32, P1, P2, R16, R18, -R20",
        "IADD3 R32, P1, PT, {,-}R16, {,-}R18, RZ",
        "IADD3 R32, P1, P2, {,-}RZ, {,-}R18, RZ",
        "IADD3.X R32, P1, P2, {,~}R16, {,~}R18, R20, P0, {P3,!PT}",
        "IADD3.X R32, P1, P2, R16, R18, ~R20, !P0, P3",
        "IADD3.X R32, {,~}R16, R18, {,~}RZ, P0, P3",
        "VIADD{,.16x2} R32, R16, {,-}R18",
        "IMAD{,.U32} R32, R16, R18, {,-}R20",
        "IMAD.X R32, R16, R18, {,~}R20, {,!}P0",
        "IMAD.WIDE{,.U32} R32, P1, R16, R18, {,-}R20",
        "IMAD.WIDE{,.U32} R32, R16, R18, {,-}R20",
        "IMAD.WIDE{,.U32} R32, P1, R16, -0x3, R20",
        "IMAD.WIDE{,.U32} R32, R16, 0x10, R20",
        "IMAD.WIDE{,.U32}.X R32, P1, R16, R18, {,~}R20, P0",
        "IMAD.HI{,.U32} R32, R16, R18, R20",
        "IMAD.HI{,.U32} R32, P1, R16, R18, {,-}R20",
        "IMAD.HI{,.U32}.X R32, P1, R16, R18, {,~}R20, P0",
        "IDP.4A{.U8,.S8}{.U8,.S8} R32, R16, R18, {,-}R20",
        "IDP.2A{.LO,.HI}{.U16,.S16}{.U8,.S8} R32, R16, R18, {,-}R20",
        "LEA R32, P1, {,-}R16, R18, {0x0,0x1,0x1f}",
        "LEA R32, P1, R16, -R18, {0x0,0x4}",
        "LEA R32, {,-}R16, R18, 0x5",
        "LEA.X R32, P1, {,~}R16, {,~}R18, {0x0,0x7}, P0",
        "LEA.HI R32, P1, R16, {,-}R18, R20, {0x0,0x1,0x1f}",
        "LEA.HI R32, P1, -R16, R18, R20, {0x0,0x1,0x1f}",
        "LEA.HI R32, R16, R18, R20, 0x9",
        "LEA.HI.X R32, P1, {,~}R16, {,~}R18, R20, {0x0,0x7}, P0",
        "LEA.HI.SX32 R32, P1, {,-}R16, R18, {0x0,0x1,0x1f}",
        "LEA.HI.X.SX32 R32, P1, {,~}R16, {,~}R18, {0x0,0x7}, {,!}P0",
        "VABSDIFF{,.U32} R32, R16, R18, R20",
        "VABSDIFF4{,.U8}{,.ACC} R32, R16, R18, R20",
        "VABSDIFF{,.U32} R32, P1, R16, R18, R20",
        "VABSDIFF4{,.U8}{,.ACC} R32, P1, R16, R18, R20",
        "R2UR.OR P1, UR32, R16",
        "IABS R32, R16",
        "IMNMX{,.U32} R32, R16, R18, {,!}P0",
        "VIMNMX{,.U32}{,.RELU} R32, R16, R18, {,!}P0",
        "VIMNMX{.U16x2,.S16x2}{,.RELU} R32, P1, P2, R16, R18, {P0,PT,!PT}",
        "VIMNMX3{,.U32,.U16x2,.S16x2}{,.RELU} R32, R16, R18, R20, {,!}P0",
        "VIADDMNMX{,.U32,.U16x2,.S16x2}{,.RELU} R32, R16, {,-}R18, R20, {,!}P0",
        "LOP3.LUT P1, R32, R16, R18, R20, {0x96,0xca,0xe8,0x17,0x40,0xf8}, {!PT,P0}",
        "LOP3.LUT.PAND P1, R32, R16, R18, R20, {0x80,0x3c}, {PT,!P0}",
        "PLOP3.LUT P1, P2, P0, P3, {,!}P4, {0x96,0xca,0x40}, {0x17,0xe8}",
        "PLOP3.LUT P1, P2, P0, P3, UP4, {0x96,0xca,0x40}, 0x17",
        "PLOP3.LUT P1, P2, P0, R16.SIGN, P4, {0xca,0x40}, 0x17",
        "PLOP3.LUT P1, P2, R16.SIGN, R18.SIGN, R20.SIGN, {0xca,0x40}, 0x17",
        "FLO{,.U32}{,.SH} R32, {,~}R16",
        "FLO{,.U32}{,.SH} R32, P1, R16",
        "POPC R32, {,~}R16",
        "BREV R32, R16",
        "PRMT{,.F4E,.B4E,.RC8,.ECL,.ECR,.RC16} R32, R16, R18, R20",
        "PRMT R32, R16, {0x5410,0x7632,0x8888,0xba98,0x1043,0x3f90}, R20",
        "SHF{.L,.R}{,.W}{.S64,.U64,.S32,.U32}{,.HI} R32, R16, {0x0,0x1,0x1f,0x20,0x21,0x3f,0x40,0x41}, R20",
        "MOV R32, R16",
        "MOV R32, R16, {0x1,0x6,0xf}",
        "SEL R32, R16, R18, {,!}P0",
        "SEL R32, R16, 0x1234567, P0",
        f"ISETP.{COMPARE}{{,.U32}}{{.AND,.OR,.XOR}} P1, P2, R16, R18, {{,!}}P0",
        f"ISETP.{COMPARE}{{,.U32}}.{{AND,OR}}.EX P1, P2, R16, R18, P0, {{,!}}P3",
        "P2R{,.B1,.B2,.B3} R32, PR, R16, {0x7f,0x2d,0xff}",
        "P2R{,.B1} R32, PR, R16, R18",
        "R2P PR, R16{,.B1,.B2,.B3}, {0x7f,0x2d,0xff}",
        "R2P PR, R16{,.B1}, R18",
        "R2UR UR32, R16",
        "R2UR P1, UR32, R16",
        "@P0 R2UR UR32, R16",
        "I2F{,.U32,.U8,.S8,.U16,.S16,.U64,.S64}" + R + " R32, R16",
        "I2F{.F16,.BF16,.F64}{,.U32,.U8,.S8,.U16,.S16,.U64,.S64}" + R + " R32, R16",
        "I2F{,.F16,.F64}{.U8,.S8}.RZ R32, R16{.B1,.B2,.B3}",
        "I2F{,.F16,.F64}{.U16,.S16}.RZ R32, R16.H1",
        "I2FP.F32{.U32,.S32}{,.RZ} R32, R16",
        "I2I{.U8,.S8,.U16,.S16}.S32.SAT R32, R16",
        "I2IP{.U8,.S8,.U16,.S16}.S32{,.SAT,.SATRELU} R32, R16, R18, R20",
        "I2IP{.U8,.S8}.S32{,.SAT,.SATRELU} R32, R16, R18, R20.H1",
        "I2IP{.U4,.S4}.S32{,.SAT,.SATRELU} R32, R16, R18, R20.24",
        "I2IP{.U2,.S2}.S32{,.SAT,.SATRELU} R32, R16, R18, R20.28",
        "CLMAD{.LO,.HI} R32, R16, R18, R20",
        # uniform twins
        "UIADD3 UR32, UP1, UP2, {,-}UR16, {,-}UR18, UR20",
        "UIADD3.X UR32, UP1, UP2, {,~}UR16, UR18, UR20, UP0, UP3",
        "UIADD3.64 UR32, UP1, UP2, {,-}UR16, {,-}UR18, UR20",
        "UIADD3.64.X UR32, UP1, UP2, {,~}UR16, UR18, UR20, UP0, UP3",
        "UIMAD UR32, UR16, UR18, UR20",
        "UIMAD.WIDE{,.U32} UR32, UR16, UR18, UR20",
        "ULEA UR32, UP1, {,-}UR16, UR18, {0x0,0x7}",
        "ULEA.HI UR32, UP1, UR16, UR18, UR20, {0x1,0x1f}",
        "ULEA.HI.X.SX32 UR32, UP1, UR16, UR18, 0x7, UP0",
        "ULOP3.LUT UP1, UR32, UR16, UR18, UR20, {0x96,0xca}, UP0",
        "USHF{.L,.R}{,.W}{.S64,.U64,.S32,.U32}{,.HI} UR32, UR16, {0x1,0x1f,0x21}, UR20",
        "UPRMT UR32, UR16, UR18, UR20",
        "UFLO{,.U32}{,.SH} UR32, UR16",
        "UFLO{,.U32} UR32, UP1, UR16",
        "UBREV UR32, UR16",
        "UPOPC UR32, UR16",
        f"UISETP.{COMPARE}{{,.U32}}.AND UP1, UP2, UR16, UR18, UP0",
        f"UISETP.{COMPARE}{{,.U32}}.AND.EX UP1, UP2, UR16, UR18, UP0, UP3",
        "UPLOP3.LUT UP1, UP2, UP0, UP3, UP4, {0x96,0x40}, 0x17",
        "USEL UR32, UR16, UR18, UP0",
        "UP2UR UR32, UPR, UR16, 0x7f",
        "UP2UR.B1 UR32, UPR, UR16, 0xff",
        "UR2UP UPR, UR16{,.B1}",
    ],
    "counts": [
        "SHF{.L,.R}{,.W}{.S64,.U64,.S32,.U32}{,.HI} R32, R16, R18, R20",
        "USHF{.L,.R}{,.W}{.S64,.U64,.S32,.U32}{,.HI} UR32, UR16, UR18, UR20",
        "SGXT{,.W}{,.U32} R32, R16, R18",
        "BMSK{,.W} R32, R16, R18",
        "USGXT{,.W}{,.U32} UR32, UR16, UR18",
        "UBMSK{,.W} UR32, UR16, UR18",
    ],
    "few": [
        "SHFL{.IDX,.UP,.DOWN,.BFLY} P1, R32, R16, R18, R20",
        "@P0 SHFL{.IDX,.UP,.DOWN,.BFLY} P1, R32, R16, R18, R20",
        "SHFL{.IDX,.UP,.DOWN,.BFLY} P1, R32, R16, {0x1,0x5,0x1f}, {0x1f,0x0,0x181f,0x1c03}",
        "VOTE{.ALL,.ANY,.EQ} R32, P1, {,!}P3",
        "@P0 VOTE{.ALL,.ANY,.EQ} R32, P1, {,!}P3",
        "VOTEU{.ALL,.ANY,.EQ} UR32, UP1, {,!}P3",
        "@P0 VOTEU{.ALL,.ANY,.EQ} UR32, UP1, P3",
        "{,@P0 }MATCH.ANY{,.U64} R32, R16",
        "{,@P0 }MATCH.ALL{,.U64} P1, R32, R16",
        "{,@P0 }REDUX{,.OR,.XOR,.SUM,.MIN,.MAX}{,.S32} UR32, R16",
        "{,@P0 }ELECT P1, UR32, {PT,P3}",
        "ELECT P1, UR32, UR23",
    ],
    "floats32": [
        f"FFMA{{,.FTZ,.FMZ}}{R}{{,.SAT}} R32, R16, R18, R20",
        "FFMA{,.FTZ} R32, -R16, R18, {,-}R20",
        f"FMUL{{,.FTZ,.FMZ}}{R}{{,.SAT}} R32, R16, R18",
        "FMUL{,.FTZ}{.D8,.D4,.D2,.M2,.M4,.M8} R32, R16, R18",
        f"FADD{{,.FTZ}}{R}{{,.SAT}} R32, R16, R20",
        "FADD{,.FTZ} R32, -|R16|, -R20",
        "FMNMX{,.FTZ}{,.NAN} R32, R16, R18, {P0,PT,!PT}",
        "FMNMX{,.FTZ}{,.NAN} R32, -R16, |R18|, P0",
        "FMNMX{,.FTZ}{,.NAN}.XORSIGN R32, |R16|, |R18|, {PT,!PT}",
        f"FSETP.{FCOMPARE}{{,.FTZ}}.AND P1, P2, R16, R18, P0",
        "FSETP.LT.{OR,XOR} P1, P2, -R16, |R18|, !P0",
        "FSET.BF.{LT,NE,GEU,NUM}{,.FTZ}.{AND,XOR} R32, R16, R18, P0",
        "FSEL{,.FTZ} R32, {,-}R16, |R18|, P0",
        f"FSWZADD{{,.FTZ}}{R} R32, R16, R20, {{PPPNNPZP,ZPPPPNNP}}",
        "FSWZADD.NDV R32, R16, R20, PPPNNPZP",
        "UF2FP.PACK_AB{,.RZ} UR32, UR16, UR18",
        f"F2F{{,.FTZ}}{{.F16.F32,.BF16.F32,.F64.F32}}{R} R32, {{,-}}R16",
        "F2FP{,.SATFINITE}{,.RELU}{.F16,.BF16}.F32.PACK_AB{,.RZ} R32, R16, R18",
        "F2FP{,.SATFINITE}{,.RELU}{.F16,.BF16}.F32.MERGE_C{,.RZ} R32, R18, R20{,.H1}",
        "F2FP{,.SATFINITE}{,.RELU}{.E5M2,.E4M3}.F32.PACK_AB_MERGE_C R32, R16, R18, R20{,.H1}",
        "F2FP{,.RELU}.TF32.F32.PACK_B{,.RZ} R32, R16",
        f"F2I{{,.FTZ}}{{,.U8,.S8,.U16,.S16,.U32,.U64,.S64}}{I}{{,.NTZ}} R32, R16",
        "F2I.NTZ R32, -|R16|",
        "F2IP{.U8,.S8}.F32{,.TRUNC}{,.NTZ}{,.RELU} R32, R16, R18, R20{,.H1}",
        f"FRND{{,.FTZ}}{I} R32, {{,-}}R16",
        "ATOMG.E.ADD{.F32.FTZ.RN,.F32.RN}.STRONG.GPU PT, R32, desc[UR4][R6.64], R18",
        "REDG.E.ADD{.F32.FTZ.RN,.F32.RN}.STRONG.GPU desc[UR4][R6.64], R18",
        "ATOMG.E.ADD{.F32x2.FTZ.RN,.F32x4.FTZ.RN,.F32x2.RN,.F32x4.RN}.STRONG.GPU PT, R32, desc[UR4][R6.64], R24",
    ],
    "floats64": [
        f"DFMA{R} R32, R16, R18, R20",
        "DFMA R32, -R16, R18, {,-}R20",
        f"DMUL{R} R32, {{,-}}R16, R18",
        f"DADD{R} R32, {{,-}}R16, R20",
        "DADD R32, {|R16|,-|R16|,-RZ}, -R20",
        f"DSETP.{FCOMPARE[:1] + FCOMPARE[3:-3]}}}.AND P1, P2, R16, R18, P0",
        "DSETP.{MIN,MAX}.AND P1, P2, {,-}R16, {R18,|R18|}, PT",
        f"F2F{{,.FTZ}}{{.F16.F64,.BF16.F64,.F32.F64}}{R} R32, {{,-}}R16",
        f"F2I{{,.U8,.S8,.U16,.S16,.U32,.U64,.S64}}.F64{I}{{,.NTZ}} R32, R16",
        f"FRND.F64{I} R32, {{,-}}R16",
        "ATOMG.E.ADD.F64.RN.STRONG.GPU PT, R32, desc[UR4][R6.64], R18",
        "REDG.E.ADD.F64.RN.STRONG.GPU desc[UR4][R6.64], R18",
    ],
}


def _of_halves(name: str, short: str) -> list[str]:
    """What FP16 and BF16 have in common."""
    e, m = name, "{,.FTZ,.FMZ}" if not name else "{,.FMZ}"
    f = "{,.FTZ}" if not name else ""
    return [
        f"HFMA2{{,.MMA}}{e}{m}{{,.RELU,.SAT}} R32, R16, R18, R20",
        f"HFMA2{e} R32, R16{{.H0_H0,.H1_H1}}, -R18, R20",
        f"HMUL2{e}{m}{{,.SAT}} R32, R16, R18",
        f"HADD2{e}{f}{{,.SAT}} R32, R16, {{,-}}R20",
        f"HMNMX2{e}{f}{{,.NAN}} R32, R16, R18, {{P0,PT,!PT}}",
        f"HMNMX2{e}{f}{{,.NAN}}.XORSIGN R32, |R16|, |R18|, {{PT,!PT}}",
        f"VHMNMX{e}{f}{{,.NAN}} R32, R16, R18, R20, {{P0,PT,!PT}}",
        f"HSETP2{e}.{FCOMPARE}{{,.H_AND}}.AND P1, P2, R16, R18, P0",
        f"HSETP2{e}.LT{f}.{{OR,XOR}} P1, P2, R16, R18, P0",
        f"HSET2{e}.{{LT,GEU,NE}}{f}.AND R32, R16, R18, P0",
        f"HSET2{e}.BF.{{LT,GEU}}{f}.AND R32, R16, R18, P0",
        f"F2I{{,.U8,.S8,.U16,.S16,.U32,.U64,.S64}}.{short}{I}{{,.NTZ}} R32, R16",
        f"F2I.{short} R32, -R16.H1",
        f"FRND.{short}{I} R32, R16",
        f"ATOMG.E.{{ADD,MIN,MAX}}.{short}x2.RN.STRONG.GPU PT, R32, desc[UR4][R6.64], R18",
        f"REDG.E.{{ADD,MIN,MAX}}.{short}x2.RN.STRONG.GPU desc[UR4][R6.64], R18",
        f"ATOMG.E.ADD.{short}{{x4,x8}}.RN.STRONG.GPU PT, R32, desc[UR4][R6.64], R24",
    ]


EXACT["halves"] = _of_halves("", "F16") + [
    "HADD2.F32{,.FTZ} R32, {-RZ,R16.H1_H1}, R20.H0_H0",
    "HFMA2 R32, R16, R18{.H0_NH1,.H0_H0}, R20.H0_H0",
    f"F2F{{,.FTZ}}{{.F32.F16,.F64.F16,.BF16.F16}}{R} R32, {{,-}}R16",
    "F2F.F32.F16 R32, R16.H1",
    "F2FP{,.SATFINITE}{,.RELU}{.E5M2,.E4M3}.F16.UNPACK_B_MERGE_C R32, R18, R20{,.H1}",
    "F2FP{,.RELU}{.F16,.BF16}{.E5M2,.E4M3}.UNPACK_B R32, R16{,.H1}",
]
EXACT["bfloats"] = _of_halves(".BF16_V2", "BF16") + [
    f"F2F{{,.FTZ}}{{.F32.BF16,.F64.BF16,.F16.BF16}}{R} R32, {{,-}}R16",
]
for _width in ("", ".S32", ".64", ".S64"):
    for _op in ("ADD", "MIN", "MAX", "INC", "DEC", "AND", "OR", "XOR", "EXCH"):
        if ("INC" in _op or "DEC" in _op) and _width or (_width[1:2] == "S" and _op not in ("MIN", "MAX")):
            continue
        EXACT["integers"].append(f"ATOMG.E.{_op}{_width}.STRONG.GPU PT, R32, desc[UR4][R6.64], R18")
        if _op != "EXCH":
            EXACT["integers"].append(f"REDG.E.{_op}{_width}.STRONG.GPU desc[UR4][R6.64], R18")
        if not _width[-2:] == "64" or _op == "EXCH":
            EXACT["integers"].append(f"ATOMS.{_op}{_width} R32, [R8], R18")
EXACT["integers"] += [
    "ATOMG.E.CAS{,.64}.STRONG.GPU PT, R32, [R6], R16, R20",
    "ATOMG.E.CAS.STRONG.GPU PT, R32, [R6], R18, R20",
    "ATOMS.CAS{,.64} R32, [R8], R16, R20",
    "ATOMS.CAS{,.64} R32, [R8], R18, R20",
    "ATOMS.CAST R32, [R8], {R16,R18}, R20",
]
EXACT["integers"] += [
    "IMMA.16816{.U8,.S8}{.U8,.S8}{,.SAT} R32, R16.ROW, R18.COL, R24",
    "IMMA.16832{.U8,.S8}{.U8,.S8}{,.SAT} R32, R16.ROW, R20.COL, R24",
    "IMMA.8816{.U8,.S8}{.U8,.S8}{,.SAT} R32, R16.ROW, R18.COL, R24",
    "BMMA.88128.AND.POPC R32, R16.ROW, R18.COL, R24",
    "BMMA.168256.AND.POPC R32, R16.ROW, R20.COL, R24",
]

#: functions of the MUFU by kind
MUFU = {
    "floats32": [f"MUFU.{f} R32, R16" for f in ("RCP", "RSQ", "SQRT", "LG2", "EX2", "SIN", "COS", "TANH")]
    + ["MUFU{.RCP64H,.RSQ64H} R32, R17"],
    "halves": [f"MUFU.{f}.F16 R32, R16" for f in ("EX2", "TANH")],
    "bfloats": [f"MUFU.{f}.BF16 R32, R16" for f in ("EX2", "TANH")],
}
_HMMA = ["HMMA.1688.F32{} R32, R16, R18, R24", "HMMA.16816.F32{} R32, R16, R20, R24",
         "HMMA.SP.16832.F32{} R32, R16, R20, R24, R29, 0x0"]  # fmt: skip
EXACT["matrix16"] = EXACT["matrixany"] = [pattern.format("") for pattern in _HMMA]
EXACT["matrixb"] = [pattern.format(".BF16") for pattern in _HMMA]
EXACT["matrix16.16"] = [pattern.format("").replace("F32", "F16") for pattern in _HMMA]
EXACT["matrix32"] = ["HMMA.1684.F32.TF32 R32, R16, R18, R24", "HMMA.1688.F32.TF32 R32, R16, R20, R24"]
EXACT["matrix64"] = ["DMMA.8x8x4 R32, R16, R18, R24"]


#: What the assembler takes and an H200 stops at, with an illegal instruction
REFUSED = re.compile(
    r"IADD3\S* .*-U?R[Z\d]+, -U?R[Z\d]+, -?U?R[Z\d]+$|~R16, ~R18|MNMX3?\.U(32|16x2)\.RELU|I2IP\.U\d+\.S32\.SATRELU"
    r"|F2IP\.U8.*RELU|\.BF16\.E\dM\d\.UNPACK_B|HADD2\.F32\S* R32, R16"
    r"|BF16_V2\S*(FMZ|\.SAT)"
)


def mnemonic(form: Form) -> str:
    """With its modifiers."""
    return next(word for word in form.text.split() if word[0] != "@")


#: what semantics/mufu.py says of functions: the largest error, relative or absolute, for |x| from one number to
#: another; or none, in bits
CLAIMS: dict[str, list[tuple[str, float, float, float]]] = {
    "MUFU.RCP": [("relative", 0, np.inf, 2.0**-23)],
    "MUFU.RSQ": [("relative", 0, np.inf, 2.0**-22.9)],
    "MUFU.SQRT": [("relative", 0, np.inf, 2.0**-23)],
    "MUFU.LG2": [("absolute", 0.5, 2, 2.0**-22), ("relative", 2, np.inf, 2.0**-22), ("relative", 0, 0.5, 2.0**-22)],
    "MUFU.EX2": [("relative", 0, np.inf, 2.0**-22)],
    "MUFU.SIN": [("absolute", 0, np.inf, 2.0**-20.9)],
    "MUFU.COS": [("absolute", 0, np.inf, 2.0**-20.9)],
    "MUFU.TANH": [("relative", 0, np.inf, 2.0**-11)],
    "MUFU.RCP64H": [("relative", 0, np.inf, 2.0**-20)],
    "MUFU.RSQ64H": [("relative", 0, np.inf, 2.0**-20)],
    "MUFU.EX2.F16": [("bits", 0, np.inf, 0)],
    "MUFU.TANH.F16": [("absolute", 0, np.inf, 2.0**-10.987)],
    "MUFU.EX2.BF16": [("bits", 0, np.inf, 0)],
    "MUFU.TANH.BF16": [("absolute", 0, np.inf, 2.0**-7.99)],
}


def all_forms() -> list[Form]:
    """Every form that the hardware takes, each once."""
    found: dict[str, Form] = {}
    for near, table in ((False, EXACT), (True, MUFU)):
        for kind, patterns in table.items():
            for pattern in patterns:
                for text in filter(lambda t: not REFUSED.search(t), spelled(pattern)):
                    found.setdefault(text + kind, Form(text, kind, near))
    return list(found.values())
