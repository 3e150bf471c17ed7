"""Integer instructions against models in Python's integers, and ptxas's own code for 64-bit arithmetic.

No source tells the following; an H200 does so (tests/gpu/test_instructions.py):

- IADD3's first carry is set when the sum wraps once, the second one when it does so twice; LEA.HI with a negated a;
- MOV's mask picks lanes of a quad (nothing that NVRTC compiles uses it);
- bit 7 of the mask of P2R and R2P is ignored;
- VIADDMNMX: a + b wraps before it is compared;
- IDP's sum wraps, it does not saturate;
- VABSDIFF4 without .ACC ignores c;
- the predicate results of FLO, VABSDIFF and VABSDIFF4, and R2UR.OR.
"""

from __future__ import annotations

import functools
import itertools
import random

import numpy as np
import pytest

from tests.emulate.step import Image, decoded, run, straight
from tests.isa.words import PLAIN, Draw, random_word
from turingas.isa.instruction import Const, instruction
from turingas.isa.isa import instruction_set

M32, M64 = (1 << 32) - 1, (1 << 64) - 1
EDGES = [0, 1, 2, 31, 32, 33, 63, 64, 0x7F, 0x80, 0xFF, 0x8000, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0x80000001, M32]
COUNT = 128


def numbers(seed: int, count: int = COUNT) -> list[int]:
    """32-bit values: edges, small ones and any."""
    r = random.Random(seed)
    kinds = [lambda: r.choice(EDGES), lambda: r.getrandbits(32), lambda: r.getrandbits(6), lambda: 1 << r.randrange(32)]
    return [r.choice(kinds)() for _ in range(count)]


def flags(seed: int, count: int = COUNT) -> list[bool]:
    r = random.Random(seed)
    return [r.random() < 0.5 for _ in range(count)]


A, B, C, D = (numbers(n) for n in range(4))
P, Q = flags(5), flags(6)
WIDE = [high << 32 | low for low, high in zip(C, D)]
REGS = {n: np.array(v, np.uint32) for n, v in enumerate((A, B, C, D))}
PREDS = {0: np.array(P), 1: np.array(Q)}


def signed(value: int, bits: int = 32) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> bits - 1 else value


def go(text, **more):
    """Runs with A to D in R0 to R3 (so a pair R2), P0 and P1."""
    return run(text, **{"regs": REGS, "preds": PREDS, **more})


def same(got, want, mask=M32):
    assert [int(g) for g in got] == [int(w) & mask for w in want]


def uniform(text, **more):
    """Runs a uniform instruction once for each of A to D in UR0 to UR3: a warp each."""
    uregs = {n: np.array(v, np.uint32) for n, v in enumerate((A, B, C, D))}
    upreds = {0: np.array(P), 1: np.array(Q)}
    return run(text, **{"regs": {99: np.zeros(32 * COUNT, np.uint32)}, "uregs": uregs, "upreds": upreds, **more})


# ---- IADD3, LEA: sums and carries


def carried(terms, ones=0, bits=32):
    """Sum and number of carries; each term is (value, sign)."""
    full = (1 << bits) - 1
    value = sum(~v & full if sign in "~-" else v for v, sign in terms) + sum(s == "-" for _, s in terms) + ones
    return value & full, value >> bits


@pytest.mark.parametrize("signs", ["   ", "-  ", " - ", "  -", "-- ", "- -"])
@pytest.mark.parametrize("zero", range(4))
def test_iadd3(signs, zero):
    names, values = ["R0", "R1", "R2"], [A, B, C]
    if zero < 3:
        names[zero], values[zero] = "RZ", [0] * COUNT
    operands = ", ".join((s + n).strip() for s, n in zip(signs, names))
    want = [carried(list(zip(v, signs))) for v in zip(*values)]
    plain = go(f"IADD3 R5, {operands}")
    same(plain.r(5), (w for w, _ in want))
    out = go(f"IADD3 R5, P2, P3, {operands}")
    same(out.r(5), (w for w, _ in want))
    same(out.p(2), (c >= 1 for _, c in want))
    same(out.p(3), (c >= 2 for _, c in want))
    if zero < 3:
        out = go(f"IADD3 R5, P2, {operands}")
        same(out.p(2), (c >= 1 for _, c in want))


@pytest.mark.parametrize("signs", ["   ", "~  ", " ~ ", "  ~", "~~ "])
def test_iadd3_x(signs):
    operands = ", ".join((s + n).strip() for s, n in zip(signs, ("R0", "R1", "R2")))
    not_p, not_q = [not p for p in P], [not q for q in Q]
    for text, ones in (("P0, P1", zip(P, Q)), ("!P0, !PT", zip(not_p)), ("P0, !P1", zip(P, not_q))):
        want = [carried(list(zip(v, signs)), sum(n)) for *v, n in zip(A, B, C, ones)]
        same(go(f"IADD3.X R5, {operands}, {text}").r(5), (w for w, _ in want))
        out = go(f"IADD3.X R5, P2, P3, {operands}, {text}")
        same(out.r(5), (w for w, _ in want))
        same(out.p(2), (c >= 1 for _, c in want))
        same(out.p(3), (c >= 2 for _, c in want))


def test_iadd3_shapes_of_sources():
    constants = {0: bytes(0x160) + (0xFFFFFFF0).to_bytes(4, "little")}
    same(go("IADD3 R5, R0, -0x5, RZ").r(5), (a - 5 for a in A))
    same(go("IADD3 R5, R0, -c[0x0][0x160], R2", constants=constants).r(5), (a + 16 + c for a, c in zip(A, C)))
    same(go("IADD3 R0, R0, UR4, R0", uregs={4: 7}).r(0), (2 * a + 7 for a in A))
    same(go("IADD3 R0, RZ, RZ, RZ").r(0), (0 for _ in A))


def test_only_active_lanes_are_written():
    on = np.array(P) & (np.array(A) % 3 > 0)
    want = [a + b if x else d for a, b, d, x in zip(A, B, D, on)]
    for active in (np.array(A) % 3 > 0,):
        same(go("@P0 IADD3 R3, R0, R1, RZ", active=active).r(3), want)
        same(go("@P0 ISETP.LT.AND P1, PT, R0, R1, PT", active=active).p(1),
             (signed(a) < signed(b) if x else q for a, b, q, x in zip(A, B, Q, on)))  # fmt: skip


def test_uiadd3():
    same(uniform("UIADD3 UR5, UR0, -UR1, UR2").ur(5), (a - b + c for a, b, c in zip(A, B, C)))
    out = uniform("UIADD3 UR5, UP2, UR0, -UR1, URZ")
    same(out.up(2), (a >= b for a, b in zip(A, B)))
    same(uniform("UIADD3.X UR5, UR0, ~UR1, URZ, UP0, !UPT").ur(5), (a + ~b + p for a, b, p in zip(A, B, P)))


def test_uiadd3_64():
    left = [b << 32 | a for a, b in zip(A, B)]
    out = uniform("UIADD3.64 UR6, UP2, UP3, UR0, UR2, -UR0", arch="sm_90")
    want = [carried([(x, " "), (y, " "), (x, "-")], bits=64) for x, y in zip(left, WIDE)]
    same(out.ur64(6), (w for w, _ in want), M64)
    same(out.up(2), (c >= 1 for _, c in want))
    same(out.up(3), (c >= 2 for _, c in want))
    same(uniform("UIADD3.64 UR6, UR0, -0x2, URZ", arch="sm_90").ur64(6), (x - 2 for x in left), M64)
    same(uniform("UIADD3.64.X UR6, UR0, ~UR2, URZ, UP0, !UPT", arch="sm_90").ur64(6),
         (x + ~y + p for x, y, p in zip(left, WIDE, P)), M64)  # fmt: skip


LEAS = [  # text, what a becomes
    ("LEA", lambda a, c, s: a << s),
    ("LEA.HI", lambda a, c, s: (c << 32 | a) << s >> 32),
    ("LEA.HI.SX32", lambda a, c, s: signed(a) << s >> 32),
]


@pytest.mark.parametrize("name, moved", LEAS)
@pytest.mark.parametrize("shift", [0, 1, 5, 16, 31])
@pytest.mark.parametrize("signs", ["  ", "- ", " -"])
def test_lea(name, moved, shift, signs):
    a, b = ((s + n).strip() for s, n in zip(signs, ("R0", "R1")))
    third = ", R2" if name == "LEA.HI" else ""
    want = [carried([(moved(x, z, shift) & M32, signs[0]), (y, signs[1])]) for x, y, z in zip(A, B, C)]
    same(go(f"{name} R5, {a}, {b}{third}, {shift:#x}").r(5), (w for w, _ in want))
    out = go(f"{name} R5, P2, {a}, {b}{third}, {shift:#x}")
    same(out.r(5), (w for w, _ in want))
    same(out.p(2), (c for _, c in want))


@pytest.mark.parametrize("name, moved", list(zip(("LEA.X", "LEA.HI.X", "LEA.HI.X.SX32"), (f for _, f in LEAS))))
@pytest.mark.parametrize("signs", ["  ", "~ ", " ~"])
def test_lea_x(name, moved, signs):
    a, b = ((s + n).strip() for s, n in zip(signs, ("R0", "R1")))
    third = ", R2" if name == "LEA.HI.X" else ""
    want = [carried([(moved(x, z, 3) & M32, signs[0]), (y, signs[1])], p) for x, y, z, p in zip(A, B, C, P)]
    out = go(f"{name} R5, P2, {a}, {b}{third}, 0x3, P0")
    same(out.r(5), (w for w, _ in want))
    same(out.p(2), (c for _, c in want))
    same(go(f"{name} R5, {a}, {b}{third}, 0x3, P0").r(5), (w for w, _ in want))


def test_lea_other_shapes():
    same(go("LEA.HI R5, R0, R1, RZ, 0x8").r(5), ((a >> 24) + b for a, b in zip(A, B)))
    same(go("LEA.HI R5, R0, R1, 0x7, 0x8").r(5), ((7 << 8 | a >> 24) + b for a, b in zip(A, B)))
    same(uniform("ULEA.HI UR5, UR0, UR1, UR2, 0x8").ur(5), ((c << 8 | a >> 24) + b for a, b, c in zip(A, B, C)))
    same(uniform("ULEA UR5, UR0, 0x10, 0x4").ur(5), ((a << 4) + 16 for a in A))


def test_viadd():
    same(go("VIADD R5, R0, R1", arch="sm_90").r(5), (a + b for a, b in zip(A, B)))
    same(go("VIADD R5, R0, -R1", arch="sm_90").r(5), (a - b for a, b in zip(A, B)))
    want = [(a + b & 0xFFFF) | ((a >> 16) + (b >> 16) & 0xFFFF) << 16 for a, b in zip(A, B)]
    same(go("VIADD.16x2 R5, R0, R1", arch="sm_90").r(5), want)


# ---- products


@pytest.mark.parametrize("text, model", [
    ("IMAD R5, R0, R1, R2", lambda a, b, c, p: a * b + c),
    ("IMAD R5, R0, R1, -R2", lambda a, b, c, p: a * b - c),
    ("IMAD R5, R0, R1, RZ", lambda a, b, c, p: a * b),
    ("IMAD R5, R0, 0x12345, R2", lambda a, b, c, p: a * 0x12345 + c),
    ("IMAD R5, R0, -0x7, R2", lambda a, b, c, p: a * -7 + c),
    ("IMAD R5, R0, R1, 0x5", lambda a, b, c, p: a * b + 5),
    ("IMAD.MOV.U32 R5, RZ, RZ, R2", lambda a, b, c, p: c),
    ("IMAD.MOV R5, RZ, RZ, -R2", lambda a, b, c, p: -c),
    ("IMAD.IADD R5, R0, 0x1, R2", lambda a, b, c, p: a + c),
    ("IMAD.IADD R5, R0, 0x1, -R2", lambda a, b, c, p: a - c),
    ("IMAD.SHL.U32 R5, R0, 0x8, RZ", lambda a, b, c, p: a << 3),
    ("IMAD.X R5, R0, R1, ~R2, P0", lambda a, b, c, p: a * b + ~c + p),
    ("IMAD.X R5, R0, 0x1, R2, !P0", lambda a, b, c, p: a + c + (not p)),
])  # fmt: skip
def test_imad(text, model):
    same(go(text).r(5), (model(*v) for v in zip(A, B, C, P)))


@pytest.mark.parametrize("kind", ["", ".U32"])
@pytest.mark.parametrize("third, extra, model", [
    ("R2", "", lambda c, p: c), ("-R2", "", lambda c, p: -c), ("RZ", "", lambda c, p: 0),
    ("R2", "P0", lambda c, p: c + p), ("~R2", "P0", lambda c, p: ~c + p),
])  # fmt: skip
def test_imad_wide(kind, third, extra, model):
    number = (lambda a: a) if kind else signed
    product = [number(a) * number(b) for a, b in zip(A, B)]
    want = [x + model(c, p) for x, c, p in zip(product, WIDE, P)]
    x = ".X" if extra else ""
    tail = f"R0, R1, {third}" + (f", {extra}" if extra else "")
    same(go(f"IMAD.WIDE{kind}{x} R6, {tail}").r64(6), want, M64)
    same(go(f"IMAD.HI{kind}{x} R6, {tail}").r(6), (w >> 32 for w in want))
    out = go(f"IMAD.WIDE{kind}{x} R6, P2, {tail}")
    same(out.r64(6), want, M64)
    sign = "-" if third[0] == "-" else "~" if third[0] == "~" else " "
    known = [carried([(y & M64, " "), (0 if third == "RZ" else c, sign)], bool(extra) and p, 64)[1]
             for y, c, p in zip(product, WIDE, P)]  # fmt: skip
    same(out.p(2), known)


def test_imad_wide_sources():
    constants = {0: bytes(0x160) + (0x123456789ABCDEF0).to_bytes(8, "little")}
    want = [signed(a) * 4 + 0x123456789ABCDEF0 for a in A]
    same(go("IMAD.WIDE R6, R0, 0x4, R2", regs={**REGS, 2: 0x9ABCDEF0, 3: 0x12345678}).r64(6), want, M64)
    same(go("IMAD.WIDE R6, R0, R1, c[0x0][0x160]", regs={**REGS, 1: 4}, constants=constants).r64(6), want, M64)
    for shift in (1, 3, 30, 31):
        for c, addend in (("R2", WIDE), ("RZ", [0] * COUNT)):
            out = go(f"IMAD.WIDE R2, R0, {1 << shift:#x}, {c}")
            same(out.r64(2), (signed(a) * signed(1 << shift) + x for a, x in zip(A, addend)), M64)
            out = go(f"IMAD.WIDE.U32 R0, R0, {1 << shift:#x}, {c}")
            same(out.r64(0), ((a << shift) + x for a, x in zip(A, addend)), M64)
    same(go("IMAD.WIDE R2, R0, R1, R2").r64(2), (signed(a) * signed(b) + c for a, b, c in zip(A, B, WIDE)), M64)
    for number in (-3, -(1 << 31)):
        out = uniform(f"UIMAD.WIDE UR6, UR0, {number & M32:#x}, UR2")
        same(out.ur64(6), (signed(a) * number + c for a, c in zip(A, WIDE)), M64)
    same(uniform("UIMAD UR6, UR0, UR1, UR2").ur(6), (a * b + c for a, b, c in zip(A, B, C)))


def test_clmad():
    """As an H200 does; PTX calls it clmad."""

    def product(x, y):
        return functools.reduce(lambda a, b: a ^ b, (x << n for n in range(64) if y >> n & 1), 0)

    wide = [h << 32 | v for h, v in zip(A, B)]
    regs = {0: np.array(wide, np.uint64), 2: np.array(WIDE, np.uint64)}
    out = run("CLMAD.LO R6, R0, R2, R0", "sm_90", regs=regs).r64(6)
    same(out, (product(x, y) ^ x for x, y in zip(wide, WIDE)), M64)
    out = run("CLMAD.HI R6, R0, R2, R2", "sm_90", regs=regs).r64(6)
    same(out, (product(x, y) >> 64 ^ y for x, y in zip(wide, WIDE)), M64)


@pytest.mark.parametrize("kind", ["4A", "2A.LO", "2A.HI"])
@pytest.mark.parametrize("signs", ["UU", "US", "SU", "SS"])
def test_idp(kind, signs):
    left, right = signs
    size = 8 if kind == "4A" else 16
    out = go(f"IDP.{kind}.{left}{size}.{right}8 R5, R0, R1, R2")

    def part(value, n, bits, sign):
        value = value >> n * bits & (1 << bits) - 1
        return signed(value, bits) if sign == "S" else value

    first = 2 if kind == "2A.HI" else 0
    same(out.r(5), (c + sum(part(a, n, size, left) * part(b, first + n, 8, right) for n in range(32 // size))
                    for a, b, c in zip(A, B, C)))  # fmt: skip


def parts(value, bits, sign=False):
    each = [value >> n & (1 << bits) - 1 for n in range(0, 32, bits)]
    return [signed(e, bits) for e in each] if sign else each


def together(values, bits):
    return sum((v & (1 << bits) - 1) << n * bits for n, v in enumerate(values))


def test_vabsdiff():
    same(go("VABSDIFF R5, R0, R1, R2").r(5), (abs(signed(a) - signed(b)) + c for a, b, c in zip(A, B, C)))
    same(go("VABSDIFF.U32 R5, R0, R1, R2").r(5), (abs(a - b) + c for a, b, c in zip(A, B, C)))
    for text, sign in ((".U8", False), ("", True)):
        each = [[abs(x - y) for x, y in zip(parts(a, 8, sign), parts(b, 8, sign))] for a, b in zip(A, B)]
        same(go(f"VABSDIFF4{text} R5, R0, R1, R2").r(5), (together(e, 8) for e in each))
        out = go(f"VABSDIFF4{text}.ACC R5, P2, R0, R1, R2")
        same(out.r(5), (sum(e) + c for e, c in zip(each, C)))
        same(out.p(2), (sum(e) + c > M32 for e, c in zip(each, C)))
        assert not go(f"VABSDIFF4{text} R5, P0, R0, R1, R2").p(0).any()
    same(go("VABSDIFF.U32 R5, P2, R0, R1, R2").p(2), (abs(a - b) + c > M32 for a, b, c in zip(A, B, C)))


def test_r2ur_or():
    out = go("R2UR.OR P0, UR4, R0", arch="sm_90")
    same(out.ur(4), A[::32])
    same(out.p(0), (p or a != A[n // 32 * 32] for n, (a, p) in enumerate(zip(A, P))))


# ---- extremes


def test_iabs_and_imnmx():
    same(go("IABS R5, R0").r(5), (abs(signed(a)) for a in A))
    same(go("IMNMX R5, R0, R1, PT").r(5), (min(signed(a), signed(b)) for a, b in zip(A, B)))
    same(go("IMNMX.U32 R5, R0, R1, !PT").r(5), (max(a, b) for a, b in zip(A, B)))
    same(go("IMNMX R5, R0, R1, P0").r(5), ((min if p else max)(signed(a), signed(b)) for a, b, p in zip(A, B, P)))
    same(go("VIMNMX.RELU R5, R0, R1, PT", arch="sm_90").r(5), (max(0, min(signed(a), signed(b))) for a, b in zip(A, B)))


@pytest.mark.parametrize("kind", ["U16x2", "S16x2"])
@pytest.mark.parametrize("p, f", [("PT", min), ("!PT", max)])
def test_packed_extremes(kind, p, f):
    sign = kind[0] == "S"
    halves = [[parts(v, 16, sign) for v in values] for values in zip(A, B, C)]
    out = go(f"VIMNMX.{kind} R5, P2, P3, R0, R1, {p}", arch="sm_90")
    same(out.r(5), (together(map(f, a, b), 16) for a, b, _ in halves))
    for n in (0, 1):
        same(out.p(2 + n), (f(a[n], b[n]) == a[n] for a, b, _ in halves))
    if sign:  # the predicates look at the result as .RELU leaves it (an H200 does so)
        out = go(f"VIMNMX.{kind}.RELU R5, P2, P3, R0, R1, {p}", arch="sm_90")
        same(out.p(2), (max(f(a[0], b[0]), 0) == a[0] for a, b, _ in halves))
    same(go(f"VIMNMX3.{kind} R5, R0, R1, R2, {p}", arch="sm_90").r(5), (together(map(f, *h), 16) for h in halves))
    sums = [([signed(x + y, 16) if sign else x + y & 0xFFFF for x, y in zip(a, b)], c) for a, b, c in halves]
    same(go(f"VIADDMNMX.{kind} R5, R0, R1, R2, {p}", arch="sm_90").r(5), (together(map(f, s, c), 16) for s, c in sums))


def test_wide_extremes_of_three():
    triples = [tuple(map(signed, v)) for v in zip(A, B, C)]
    same(go("VIMNMX3 R5, R0, R1, R2, PT", arch="sm_90").r(5), map(min, triples))
    same(go("VIMNMX3.U32 R5, R0, R1, R2, !PT", arch="sm_90").r(5), map(max, zip(A, B, C)))
    same(go("VIADDMNMX.RELU R5, R0, R1, R2, !PT", arch="sm_90").r(5), (max(signed(a + b), c, 0) for a, b, c in triples))
    same(go("VIADDMNMX.U32 R5, R0, R1, R2, PT", arch="sm_90").r(5), (min(a + b & M32, c) for a, b, c in zip(A, B, C)))


# ---- logic


def table(lut, a, b, c, width=32):
    rows = (lut >> n & 1 for n in range(8))
    full = (1 << width) - 1
    value = 0
    for n, row in enumerate(rows):
        if row:
            value |= (a if n & 4 else ~a) & (b if n & 2 else ~b) & (c if n & 1 else ~c)
    return value & full


def test_lop3_all_tables():
    lines = "\n".join(f"LOP3.LUT R{5 + n % 200}, R0, R1, R2, {n:#x}, !PT" for n in range(256))
    code = decoded(lines, "sm_75")
    for start in range(0, 256, 128):
        out = go(code[start : start + 128])
        for n in range(start, start + 128):
            same(out.r(5 + n % 200), (table(n, *v) for v in zip(A, B, C)))


@pytest.mark.parametrize("sources", ["RZ, R1, R2", "R0, RZ, R2", "R0, R1, RZ", "R0, 0xff, RZ", "RZ, 0x0, RZ"])
def test_lop3_zeros(sources):
    known = {"R0": A, "R1": B, "R2": C, "RZ": [0] * COUNT, "0xff": [255] * COUNT, "0x0": [0] * COUNT}
    values = [known[s] for s in sources.split(", ")]
    for lut in (0xC0, 0xFC, 0x3C, 0x33, 0x96, 0xE2, 0xB8, 0x1E, 0xFF, 0x00):
        same(go(f"LOP3.LUT R5, {sources}, {lut:#x}, !PT").r(5), (table(lut, *v) for v in zip(*values)))


def test_lop3_predicate():
    result = [a & b & 0x11 for a, b in zip(A, B)]
    regs = {**REGS, 2: 0x11}
    out = go("LOP3.LUT P2, R5, R0, R1, R2, 0x80, !PT", regs=regs)
    same(out.r(5), result)
    same(out.p(2), map(bool, result))
    same(go("LOP3.LUT P2, RZ, R0, R1, R2, 0x80, P0", regs=regs).p(2), (bool(x) or p for x, p in zip(result, P)))
    both = [bool(x) and p for x, p in zip(result, P)]
    same(go("LOP3.LUT.PAND P2, RZ, R0, R1, R2, 0x80, P0", regs=regs).p(2), both)
    same(go("LOP3.LUT.PAND P0, RZ, R0, R1, R2, 0x80, P0", regs=regs).p(0), both)
    same(uniform("ULOP3.LUT UP2, UR5, UR0, UR1, UR2, 0x96, !UPT").ur(5), (a ^ b ^ c for a, b, c in zip(A, B, C)))


@pytest.mark.parametrize("lut", [0x80, 0x01, 0x2A, 0x8, 0xCA, 0xFE, 0x10])
def test_plop3(lut):
    def truth(*inputs):
        return table(lut, *map(int, inputs), width=1)

    other = [a & 1 for a in A]
    preds = {**PREDS, 2: np.array(other, bool)}
    out = go(f"PLOP3.LUT P3, P4, P0, !P1, P2, {lut:#x}, 0x40", preds=preds)
    same(out.p(3), (truth(p, not q, r) for p, q, r in zip(P, Q, other)))
    same(out.p(4), (p and q and not r for p, q, r in zip(P, (not q for q in Q), other)))
    same(go(f"PLOP3.LUT P3, PT, P0, PT, !PT, {lut:#x}, 0x0").p(3), (truth(p, 1, 0) for p in P))
    out = go(f"PLOP3.LUT P3, PT, P0, R0.SIGN, P1, {lut:#x}, 0x0")
    same(out.p(3), (truth(p, a >> 31, q) for p, a, q in zip(P, A, Q)))
    out = go(f"PLOP3.LUT P3, PT, R0.SIGN, R1.SIGN, R2.SIGN, {lut:#x}, 0x0")
    same(out.p(3), (truth(a >> 31, b >> 31, c >> 31) for a, b, c in zip(A, B, C)))
    same(uniform(f"UPLOP3.LUT UP3, UPT, UP0, UP1, UPT, {lut:#x}, 0x0").up(3), (truth(p, q, 1) for p, q in zip(P, Q)))


def test_plop3_swaps():
    out = go("PLOP3.LUT P0, P1, P0, P1, PT, 0xcc, 0xf0")
    same(out.p(0), Q)
    same(out.p(1), P)


# ---- shifts and fields

SHIFTS = list(map("".join, itertools.product("LR", ("", ".W"), (".U32", ".S32", ".U64", ".S64"), ("", ".HI"))))


def shifted(kind, low, by, high):
    size = 64 if "64" in kind else 32
    by = by % size if ".W" in kind else min(by, size)
    pair = high << 32 | low
    if kind[0] == "R" and ".S" in kind:
        pair = signed(pair, 64)
    pair = pair << by if kind[0] == "L" else pair >> by
    return pair >> 32 if ".HI" in kind else pair


@pytest.mark.parametrize("kind", SHIFTS)
def test_shf(kind):
    same(go(f"SHF.{kind} R5, R0, R1, R2").r(5), (shifted(kind, *v) for v in zip(A, B, C)))
    for by in (0, 1, 8, 31, 32, 33, 63, 64, 100):
        for a, c in (("R0", "R2"), ("RZ", "R2"), ("R0", "RZ")):
            want = (shifted(kind, x if a != "RZ" else 0, by, z if c != "RZ" else 0) for x, z in zip(A, C))
            same(go(f"SHF.{kind} R5, {a}, {by:#x}, {c}").r(5), want)


def test_shf_other_sources():
    same(go("SHF.R.U32.HI R5, RZ, UR4, R2", uregs={4: 5}).r(5), (c >> 5 for c in C))
    same(go("SHF.R.U64 R5, R0, R1, 0x369cf258").r(5), (shifted("R.U64", a, b, 0x369CF258) for a, b in zip(A, B)))
    same(uniform("USHF.L.U64.HI UR5, UR0, UR1, UR2").ur(5), (shifted("L.U64.HI", *v) for v in zip(A, B, C)))
    same(go("SHF.L.W.U32.HI R0, R0, 0x7, R0").r(0), (a << 7 | a >> 25 for a in A))


@pytest.mark.parametrize("mods", ["", ".W", ".U32", ".W.U32"])
def test_sgxt(mods):
    def model(a, b):
        n = b % 32 if ".W" in mods else min(b, 32)
        low = a & (1 << n) - 1
        return low if ".U32" in mods or not n else signed(low, n)

    same(go(f"SGXT{mods} R5, R0, R1").r(5), (model(a, b) for a, b in zip(A, B)))
    same(go(f"SGXT{mods} R5, R0, 0x20").r(5), (model(a, 32) for a in A))
    same(uniform(f"USGXT{mods} UR5, UR0, UR1").ur(5), (model(a, b) for a, b in zip(A, B)))


@pytest.mark.parametrize("mods", ["", ".W"])
def test_bmsk(mods):
    def model(a, b):
        a, b = (a % 32, b % 32) if mods else (min(a, 32), min(b, 32))
        return (1 << b) - 1 << a

    same(go(f"BMSK{mods} R5, R0, R1").r(5), (model(a, b) for a, b in zip(A, B)))
    same(uniform(f"UBMSK{mods} UR5, UR0, UR1").ur(5), (model(a, b) for a, b in zip(A, B)))


def test_counting_bits():
    same(go("POPC R5, R0").r(5), (a.bit_count() for a in A))
    same(go("POPC R5, ~R0").r(5), (32 - a.bit_count() for a in A))
    same(go("BREV R5, R0").r(5), (int(f"{a:032b}"[::-1], 2) for a in A))
    same(go("FLO.U32 R5, R0").r(5), (a.bit_length() - 1 for a in A))
    same(go("FLO.U32 R5, ~R0").r(5), ((~a & M32).bit_length() - 1 for a in A))

    def place(a):
        return (a if not a >> 31 else ~a & M32).bit_length() - 1

    same(go("FLO R5, R0").r(5), map(place, A))
    same(go("FLO R5, P3, R0").p(3), (place(a) >= 0 for a in A))  # an H200 says so
    same(go("FLO.SH R5, R0").r(5), (-1 if place(a) < 0 else 31 - place(a) for a in A))
    same(uniform("UFLO.U32.SH UR5, UR0").ur(5), (32 - a.bit_length() if a else -1 for a in A))
    same(uniform("UPOPC UR5, UR0").ur(5), (a.bit_count() for a in A))
    same(uniform("UBREV UR5, UR0").ur(5), (int(f"{a:032b}"[::-1], 2) for a in A))


# ---- bytes

#: PTX ISA, prmt: for each mode and the lowest bits of the selector the bytes of the result, the highest first
MODES = {
    "F4E": ("3210", "4321", "5432", "6543"), "B4E": ("5670", "6701", "7012", "0123"),
    "RC8": ("0000", "1111", "2222", "3333"), "ECL": ("3210", "3211", "3222", "3333"),
    "ECR": ("0000", "1110", "2210", "3210"), "RC16": ("1010", "3232", "1010", "3232"),
}  # fmt: skip


def permuted(mode, low, selector, high):
    pair = high << 32 | low
    digits = MODES[mode][selector & 3] if mode else f"{selector & 0xFFFF:04x}"
    value = 0
    for digit in digits:
        n = int(digit, 16)
        byte = pair >> 8 * (n & 7) & 255
        value = value << 8 | ((255 if byte >> 7 else 0) if n & 8 else byte)
    return value


@pytest.mark.parametrize("mode", ["", *MODES])
def test_prmt(mode):
    name = f"PRMT.{mode}" if mode else "PRMT"
    same(go(f"{name} R5, R0, R1, R2").r(5), (permuted(mode, *v) for v in zip(A, B, C)))
    fixed = [0x5410, 0x7632, 0x8880, 0x7770, 0x4440, 0x3210, 0x0123, 0xBA98, 0xF4E1, 0x7604, 1, 2, 3]
    r = random.Random(3)
    for s in fixed + [r.getrandbits(16) for _ in range(10)]:
        same(go(f"{name} R5, R0, {s:#x}, R2").r(5), (permuted(mode, a, s, c) for a, c in zip(A, C)))
        same(go(f"{name} R5, R0, {s:#x}, RZ").r(5), (permuted(mode, a, s, 0) for a in A))
    if not mode:
        same(uniform("UPRMT UR5, UR0, UR1, UR2").ur(5), (permuted("", *v) for v in zip(A, B, C)))


# ---- moves


def test_moves():
    same(go("MOV R5, R0").r(5), A)
    same(go("MOV R5, 0x12345678").r(5), (0x12345678 for _ in A))
    same(go("MOV R2, R0, 0x5").r(2), (c if n % 2 else a for n, (a, c) in enumerate(zip(A, C))))
    same(uniform("UMOV UR5, UR0").ur(5), A)
    same(run("MOV R5, UR0", uregs={0: 7}).r(5), [7] * 32)
    same(run("R2UR UR4, R0", regs={0: np.arange(32, dtype=np.uint32) + 9}, active=np.arange(32) > 3).ur(4), [13])


@pytest.mark.parametrize("a, b", [("R0", "R1"), ("RZ", "R1"), ("R0", "RZ"), ("R0", "0x7")])
@pytest.mark.parametrize("p", ["P0", "!P0", "PT", "!PT", "UP0"])
def test_sel(a, b, p):
    values = {"R0": A, "R1": B, "RZ": [0] * COUNT, "0x7": [7] * COUNT}
    truth = {"P0": P, "!P0": [not p for p in P], "PT": [True] * COUNT, "!PT": [False] * COUNT}
    if p == "UP0":
        out = uniform(f"USEL UR5, {'UR0' if a == 'R0' else 'URZ'}, {'UR1' if b == 'R1' else 'URZ'}, UP0").ur(5)
        same(out, (x if t else y for t, x, y in zip(P, values[a], values[b] if b == "R1" else [0] * COUNT)))
        return
    want = [x if t else y for t, x, y in zip(truth[p], values[a], values[b])]
    same(go(f"SEL R5, {a}, {b}, {p}").r(5), want)
    same(go(f"SEL R0, {a}, {b}, {p}").r(0), want)


def test_predicates_and_registers():
    packed = [p | q << 1 for p, q in zip(P, Q)]
    same(go("P2R R5, PR, RZ, 0x7f").r(5), packed)
    same(go("P2R R5, PR, R0, 0x2").r(5), (a & ~2 | q << 1 for a, q in zip(A, Q)))
    same(go("P2R.B2 R5, PR, R0, 0x3").r(5), (a & ~0x30000 | x << 16 for a, x in zip(A, packed)))
    out = go("R2P PR, R0.B1, 0x7d")
    for n in range(7):
        same(out.p(n), (Q if n == 1 else (a >> 8 + n & 1 for a in A)))
    out = go("R2P PR, R0, R1")
    same(out.p(0), (a & 1 if b & 1 else p for a, b, p in zip(A, B, P)))
    same(uniform("UP2UR UR5, UPR, URZ, 0x3").ur(5), packed)
    same(uniform("UR2UP UPR, UR0").up(3), (a >> 3 & 1 for a in A))


# ---- comparisons

RELATIONS = {
    "F": lambda a, b: False, "LT": lambda a, b: a < b, "EQ": lambda a, b: a == b, "LE": lambda a, b: a <= b,
    "GT": lambda a, b: a > b, "NE": lambda a, b: a != b, "GE": lambda a, b: a >= b, "T": lambda a, b: True,
}  # fmt: skip
JOINS = {"AND": lambda a, b: a and b, "OR": lambda a, b: a or b, "XOR": lambda a, b: a != b}
CLOSE = [b if n % 3 else a for n, (a, b) in enumerate(zip(A, B))]  # a third of them equal to A


@pytest.mark.parametrize("name", RELATIONS)
@pytest.mark.parametrize("join", JOINS)
@pytest.mark.parametrize("kind", ["", ".U32"])
def test_isetp(name, join, kind):
    relation, f = RELATIONS[name], JOINS[join]
    number = (lambda a: a) if kind else signed
    regs = {**REGS, 1: np.array(CLOSE, np.uint32)}
    truth = [relation(number(a), number(b)) for a, b in zip(A, CLOSE)]
    out = go(f"ISETP.{name}{kind}.{join} P2, P3, R0, R1, P0", regs=regs)
    same(out.p(2), (f(t, p) for t, p in zip(truth, P)))
    same(out.p(3), (f(not t, p) for t, p in zip(truth, P)))
    same(go(f"ISETP.{name}{kind}.{join} P0, PT, R0, R1, !P0", regs=regs).p(0), (f(t, not p) for t, p in zip(truth, P)))
    same(go(f"ISETP.{name}{kind}.{join} P2, PT, R0, R1, PT", regs=regs).p(2), (f(t, True) for t in truth))
    same(go(f"ISETP.{name}{kind}.{join} P2, PT, R0, R1, !PT", regs=regs).p(2), (f(t, False) for t in truth))
    same(uniform(f"UISETP.{name}{kind}.{join} UP2, UPT, UR0, UR1, UP0").up(2),
         (f(relation(number(a), number(b)), p) for a, b, p in zip(A, B, P)))  # fmt: skip


@pytest.mark.parametrize("name", RELATIONS)
@pytest.mark.parametrize("kind", ["", ".U32"])
def test_isetp_of_64_bits(name, kind):
    """Two of them, as ptxas compares 64-bit numbers."""
    high = np.array(CLOSE, np.uint32)
    wide = [h << 32 | x for h, x in zip(A, C)]
    other = [h << 32 | x for h, x in zip(CLOSE, D)]
    regs = {0: REGS[2], 1: REGS[0], 2: REGS[3], 3: high}
    text = f"ISETP.{name}.U32.AND P2, PT, R0, R2, PT\nISETP.{name}{kind}.AND.EX P2, PT, R1, R3, PT, P2"
    number = (lambda a: a) if kind else functools.partial(signed, bits=64)
    same(go(text, regs=regs).p(2), (RELATIONS[name](number(a), number(b)) for a, b in zip(wide, other)))


def test_isetp_sources():
    same(go("ISETP.LT.AND P2, PT, R0, -0x5, PT").p(2), (signed(a) < -5 for a in A))
    same(go("ISETP.GE.U32.AND P2, PT, R0, -0x5, PT").p(2), (a >= M32 - 4 for a in A))


# ---- what is refused, and what is there


# ---- end to end: ptxas's own code

KERNEL = """
extern "C" __global__ void k{n}({type}* out, const {type}* in) {{
    int t = threadIdx.x;
    {type} a = in[t], b = in[t + 32], c = in[t + 64], r;
    r = {body};
    out[t] = r;
}}
"""
LONG, ULONG, INT, UINT = "long long", "unsigned long long", "int", "unsigned"


def s64(f):
    return lambda a, b, c: f(signed(a, 64), signed(b, 64), signed(c, 64))


CHAINS = [  # type, CUDA, Python
    (ULONG, "a * b + c", lambda a, b, c: a * b + c),
    (ULONG, "a + b - c", lambda a, b, c: a + b - c),
    (ULONG, "-a - b + 5", lambda a, b, c: -a - b + 5),
    (ULONG, "a + b + c", lambda a, b, c: a + b + c),
    (ULONG, "__umul64hi(a, b)", lambda a, b, c: a * b >> 64),
    (LONG, "__mul64hi(a, b)", s64(lambda a, b, c: a * b >> 64)),
    (ULONG, "a << (b & 127)", lambda a, b, c: a << (b & 127)),
    (ULONG, "a >> (b & 127)", lambda a, b, c: a >> (b & 127)),
    (LONG, "a >> (b & 127)", s64(lambda a, b, c: a >> (b & 127))),
    (ULONG, "(a << 5) + b", lambda a, b, c: (a << 5) + b),
    (ULONG, "b - (a << 5)", lambda a, b, c: b - (a << 5)),
    (LONG, "a < b ? c : max(a, c)", s64(lambda a, b, c: c if a < b else max(a, c))),
    (LONG, "a / 7", s64(lambda a, b, c: abs(a) // 7 * (-1 if a < 0 else 1))),
    (ULONG, "a / 1000003", lambda a, b, c: a // 1000003),
    (ULONG, "__popcll(a) + __clzll(b) + __ffsll(c)",
     lambda a, b, c: a.bit_count() + 64 - b.bit_length() + ((c & -c).bit_length())),
    (ULONG, "__brevll(a)", lambda a, b, c: int(f"{a:064b}"[::-1], 2)),
    (ULONG, "(a & b) | (~a & c)", lambda a, b, c: (a & b) | (~a & c)),
    (UINT, "a / 7 + b % 10", lambda a, b, c: a // 7 + b % 10),
    (INT, "a / 16", lambda a, b, c: abs(signed(a)) // 16 * (-1 if a >> 31 else 1)),
    (INT, "__mulhi(a, b)", lambda a, b, c: signed(a) * signed(b) >> 32),
    (UINT, "__umulhi(a, b) + c", lambda a, b, c: (a * b >> 32) + c),
    (UINT, "__funnelshift_l(a, b, c)", lambda a, b, c: (b << 32 | a) << (c & 31) >> 32),
    (UINT, "__funnelshift_lc(a, b, c)", lambda a, b, c: (b << 32 | a) << min(c, 32) >> 32),
    (UINT, "__funnelshift_r(a, b, c)", lambda a, b, c: (b << 32 | a) >> (c & 31)),
    (UINT, "__funnelshift_rc(a, b, c)", lambda a, b, c: (b << 32 | a) >> min(c, 32)),
    (UINT, "__byte_perm(a, b, c)", lambda a, b, c: permuted("", a, c & 0x7777, b)),
    (UINT, "__usad(a, b, c)", lambda a, b, c: abs(a - b) + c),
    (UINT, "__vabsdiffu4(a, b)", lambda a, b, c: together([abs(x - y) for x, y in zip(parts(a, 8), parts(b, 8))], 8)),
    (UINT, "__vadd4(a, b)", lambda a, b, c: together([x + y for x, y in zip(parts(a, 8), parts(b, 8))], 8)),
    (UINT, "__vmaxs2(a, b)", lambda a, b, c: together(map(max, parts(a, 16, True), parts(b, 16, True)), 16)),
    (UINT, "__vavgu4(a, b)", lambda a, b, c: together([x + y + 1 >> 1 for x, y in zip(parts(a, 8), parts(b, 8))], 8)),
    (UINT, "(unsigned)__dp4a((int)a, (int)b, (int)c)",
     lambda a, b, c: c + sum(x * y for x, y in zip(parts(a, 8, True), parts(b, 8, True)))),
]  # fmt: skip


@pytest.mark.parametrize("arch", ["sm_70", "sm_75", "sm_80", "sm_90"])
@pytest.mark.parametrize("n", range(len(CHAINS)), ids=[c[1] for c in CHAINS])
def test_compiled(arch, n):
    """What ptxas makes of an expression of 64-bit numbers, run with these steps."""
    kind, _, model = CHAINS[n]
    wide, count = "long" in kind, 64
    r = random.Random(n)
    columns = [numbers(r.random(), count) for _ in range(6)]
    inputs = [[x << 32 | y if wide else y for x, y in zip(columns[2 * j], columns[2 * j + 1])] for j in range(3)]
    source = "".join(KERNEL.format(type=t, body=b, n=n) for n, (t, b, _) in enumerate(CHAINS))
    dtype = np.uint64 if wide else np.uint32
    got = straight(source, f"k{n}", arch, [np.array(v, dtype) for v in inputs], dtype)
    same(got, (model(*v) for v in zip(*inputs)), M64 if wide else M32)


# ---- every form of the table

MINE = (
    "MOV SEL IABS BREV POPC FLO IADD3 IMAD CLMAD IDP LEA LOP3 PLOP3 SHF SGXT BMSK PRMT ISETP IMNMX VIMNMX VIMNMX3 "
    "VIADDMNMX VIADD VABSDIFF VABSDIFF4 P2R R2P R2UR UMOV USEL UIADD3 UIMAD ULEA ULOP3 USHF UPRMT USGXT UBMSK UFLO "
    "UBREV UPOPC "
    "UISETP UPLOP3 UP2UR UR2UP UF2FP I2F F2I F2F FRND I2FP I2I I2IP F2FP F2IP"
).split()


@pytest.mark.parametrize("arch", ["sm_70", "sm_75", "sm_80", "sm_86", "sm_89", "sm_90"])
def test_every_form_runs(arch):
    """Random words of all forms of these mnemonics: each runs."""
    isa, rng = instruction_set(arch), Draw(arch)
    image = Image(arch, {n: bytes(range(256)) * 257 for n in range(32)})
    seen = set()
    for form in isa.all_forms():
        if form.base not in MINE:
            continue
        for _ in range(12):
            one = instruction(isa, random_word(form, rng) | PLAIN)
            if one is None or one.form.base != form.base or any(isinstance(o, Const) and o.ur for o in one.operands):
                continue  # no instruction; or a bindless constant, which the kernel's image must know
            seen.add(form.base)
            run([one], arch, constants=image.constants, regs={250: np.zeros(64, np.uint32)})
    assert seen == set(MINE) & {f.base for f in isa.all_forms()}
