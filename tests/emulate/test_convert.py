"""Conversions against models in exact rational numbers.

PTX ISA tells: rounding, clamping, NaN to integers (0, but the highest bit alone where the source is a double or the
result has 64 bits, for which ptxas leaves out .NTZ), cvt.pack, the 8-bit formats. No source tells the following; an
H200 does so (tests/gpu/test_instructions.py):

- a NaN to or from a double, also FRND.F64, keeps sign and payload and becomes quiet; "-" and "|x|" pass it unchanged;
- a NaN of an 8-bit format as float16 is 0x7fff;
- F2I without .NTZ makes the highest bit of the type alone of a NaN; no sign is extended then, unlike of numbers;
- the upper half of a register that F2F, FRND or I2F fill with 16 bits is 0;
- I2I extends the sign of S8 and S16;
- .RELU makes +0 of -0, and F2IP.RELU also of NaN; TF32 of NaN is 0x7fffe000;
- F2FP to 8 bits without .SATFINITE makes infinities, or for E4M3 a NaN without sign;
- F2FP.MERGE_C puts the result below the half of c, as PACK_AB_MERGE_C does;
- .FTZ of F2F flushes denormals of every source and result but doubles.
"""

from __future__ import annotations

import math
import random
from fractions import Fraction

import numpy as np
import pytest

from tests.emulate.step import run, straight

COUNT = 192
MODES = {"": "RN", ".RM": "RM", ".RP": "RP", ".RZ": "RZ"}
INTEGRAL = {"": "RN", ".FLOOR": "RM", ".CEIL": "RP", ".TRUNC": "RZ"}
#: format: bits of precision, lowest exponent of a normal number, largest exponent, bits of the word
FORMATS = {"F16": (11, -14, 15, 16), "BF16": (8, -126, 127, 16), "F32": (24, -126, 127, 32),
           "F64": (53, -1022, 1023, 64)}  # fmt: skip
NAN = {"F16": 0x7FFF, "BF16": 0x7FFF, "F32": 0x7FFFFFFF}


# ---- the models


def value_of(bits, kind):
    """A float's bits as Fraction, or as a float where it is an infinity, a NaN or -0."""
    precision, lowest, highest, width = FORMATS[kind]
    mantissa, sign = bits & (1 << precision - 1) - 1, bits >> width - 1
    exponent = bits >> precision - 1 & (1 << width - precision) - 1
    if exponent == (1 << width - precision) - 1:
        return math.copysign(math.nan if mantissa else math.inf, -1 if sign else 1)
    if not exponent and not mantissa and sign:
        return -0.0
    size = mantissa + (1 << precision - 1 if exponent else 0)
    return (-1) ** sign * Fraction(size) * Fraction(2) ** (max(exponent, 1) + lowest - precision)


def whole(x, mode):
    """A Fraction rounded to an integer."""
    down = math.floor(x)
    rest = x - down
    if mode == "RN":
        return down + (rest > Fraction(1, 2) or (rest == Fraction(1, 2) and down % 2))
    up = {"RM": False, "RP": True, "RZ": x < 0}[mode]
    return down + (up and rest > 0)


def bits_of(x, kind, mode="RN"):
    """A Fraction (or a special float) as the bits of a format."""
    precision, lowest, highest, width = FORMATS[kind]
    infinite = (1 << width - precision) - 1 << precision - 1
    sign = 1 << width - 1
    if isinstance(x, float):
        return NAN[kind] if math.isnan(x) else (infinite if x else 0) | (sign if math.copysign(1, x) < 0 else 0)
    size = abs(x)
    if not size:
        return 0
    if x < 0:
        mode = {"RM": "RP", "RP": "RM"}.get(mode, mode)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    exponent = max(lowest, exponent - (size < Fraction(2) ** exponent))
    unit = Fraction(2) ** (exponent - precision + 1)
    steps = whole(size / unit, mode)
    bits = steps + (exponent - lowest << precision - 1)  # a carry goes into the exponent, as it should
    if bits >= infinite:
        bits = infinite if mode in ("RN", "RP") else infinite - 1
    return bits | (sign if x < 0 else 0)


def limits(kind):
    n = int(kind[1:])
    return (-(1 << n - 1), (1 << n - 1) - 1) if kind[0] == "S" else (0, (1 << n) - 1)


def integer_of(x, kind, mode, nan):
    low, high = limits(kind)
    if isinstance(x, float):
        return nan if math.isnan(x) else 0 if not x else low if x < 0 else high
    return min(max(whole(x, mode), low), high)


def floats(kind, seed):
    """Bits of a format: any, near 1, halves between integers, around the limits of integers, edges."""
    precision, lowest, highest, width = FORMATS[kind]
    r = random.Random(seed)
    infinite = (1 << width - precision) - 1 << precision - 1
    found = [0, 1, infinite, infinite - 1, infinite + (1 << precision - 2)]
    found += [(1 << precision - 1) - 1, 1 << precision - 1]
    found += [b | 1 << width - 1 for b in found]
    while len(found) < COUNT:
        pick = r.randrange(5)
        if pick == 0:
            found.append(r.getrandbits(width))
            continue
        x = [
            Fraction(r.randrange(-2000, 2000), 4),
            Fraction(r.randrange(-1 << 70, 1 << 70), 1 << r.randrange(8, 80)),
            r.choice((1, -1)) * (2 ** r.choice((7, 8, 15, 16, 31, 32, 63, 64)) - Fraction(r.randrange(5), 2)),
            r.choice((1, -1)) * Fraction(2) ** r.randrange(-150, 20) * r.getrandbits(26),
        ][pick - 1]
        found.append(bits_of(x, kind, r.choice(list(MODES.values()))))
    return found


def array(bits, kind):
    return np.array(bits, np.uint64 if FORMATS[kind][3] == 64 else np.uint32)


def convert(text, source, kind, **more):
    """Runs a conversion of R0 (or R0 and R1) to R4."""
    return run(text, arch="sm_90" if "BF16" in text else "sm_75", regs={0: array(source, kind)}, **more)


def same(got, want):
    assert [int(g) for g in got] == [int(w) for w in want]


# ---- floating point to floating point

PAIRS = [(to, kind) for to in FORMATS for kind in FORMATS if to != kind]


@pytest.mark.parametrize("to, kind", PAIRS)
@pytest.mark.parametrize("mode", MODES)
def test_f2f(to, kind, mode):
    source = floats(kind, 1)
    if to == "F64":
        source = [s for s in source if not math.isnan(value_of(s, kind))]
        source += [0] * (COUNT - len(source))
    out = convert(f"F2F.{to}.{kind}{mode} R4, R0", source, kind)
    if kind == "F64":
        want = [from_double(s, to, MODES[mode]) for s in source]
    else:
        want = [bits_of(value_of(s, kind), to, MODES[mode]) for s in source]
    same(out.r64(4) if to == "F64" else out.r(4), want)


def from_double(bits, to, mode="RN"):
    """As bits_of; but a NaN keeps its sign and the upper part of its payload, as on an H200."""
    sign, payload = bits >> 63, bits & 0x7FFFFFFFFFFFF
    if math.isnan(value_of(bits, "F64")):
        precision, _, _, width = FORMATS[to]
        quiet = (1 << width - precision + 1) - 1 << precision - 2
        return sign << width - 1 | quiet | payload >> 53 - precision
    return bits_of(value_of(bits, "F64"), to, mode)


def test_f2f_signs_halves_and_flushing():
    source = floats("F32", 2)
    values = [value_of(s & 0x7FFFFFFF, "F32") for s in source]
    negative = [v if math.isnan(v) else -v if v else -0.0 for v in values]
    same(convert("F2F.F16.F32 R4, -|R0|", source, "F32").r(4), (bits_of(v, "F16") for v in negative))
    flushed = [s & 0x80000000 if not s & 0x7F800000 else s for s in source]
    out = convert("F2F.FTZ.F16.F32.RP R4, R0", source, "F32")
    want = [bits_of(value_of(s, "F32"), "F16", "RP") for s in flushed]
    same(out.r(4), (w & 0x8000 if not w & 0x7C00 else w for w in want))
    doubles = floats("F64", 3)
    want = [from_double(s, "F32") for s in doubles]
    want = [w & 0x80000000 if not w & 0x7F800000 else w for w in want]
    same(convert("F2F.FTZ.F32.F64 R4, R0", doubles, "F64").r(4), want)
    halves = floats("F16", 4)
    packed = [h << 16 | 0x1234 for h in halves]
    same(convert("F2F.F32.F16 R4, R0.H1", packed, "F32").r(4), (bits_of(value_of(h, "F16"), "F32") for h in halves))
    want = [bits_of(value_of(h, "F16"), "F32") if h & 0x7C00 else (h & 0x8000) << 16 for h in halves]
    same(convert("F2F.FTZ.F32.F16 R4, R0.H1", packed, "F32").r(4), want)
    nans = [0x7C01, 0xFD55, 0x7FFF, 0xFE00] * (COUNT // 4)
    want = [0x7FF8040000000000, 0xFFFD540000000000, 0x7FFFFC0000000000, 0xFFF8000000000000] * (COUNT // 4)
    for sign in ("", "-"):
        same(convert(f"F2F.F64.F16 R4, {sign}R0.H1", [h << 16 for h in nans], "F32").r64(4), want)
    same(convert("F2F.F32.F16 R4, 1.5", packed, "F32").r(4), [0x3FC00000] * COUNT)


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("mode", INTEGRAL)
def test_frnd(kind, mode):
    source = floats(kind, 5)
    name = {"F32": "FRND"}.get(kind, f"FRND.{kind}")
    out = convert(f"{name}{mode} R4, R0", source, kind)

    def model(bits):
        x = value_of(bits, kind)
        if isinstance(x, float):
            return bits if kind == "F64" and math.isnan(x) else bits_of(x, kind)
        n = whole(x, INTEGRAL[mode])
        return bits_of(Fraction(n) if n else math.copysign(0.0, x), kind)

    if kind == "F64":
        source = [s | 1 << 51 if math.isnan(value_of(s, kind)) else s for s in source]  # quiet ones
        out = convert(f"{name}{mode} R4, R0", source, kind)
    same(out.r64(4) if kind == "F64" else out.r(4), map(model, source))


def test_frnd_flushes():
    source = floats("F32", 6)
    out = convert("FRND.FTZ.CEIL R4, R0", source, "F32")
    tiny = [not s & 0x7F800000 for s in source]
    same(out.r(4)[tiny], (s & 0x80000000 for s, t in zip(source, tiny) if t))
    assert any(s & 0x7FFFFF for s, t in zip(source, tiny) if t)


# ---- floating point to integer

INTEGERS = ["U8", "S8", "U16", "S16", "U32", "S32", "U64", "S64"]


@pytest.mark.parametrize("to", INTEGERS)
@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("mode", INTEGRAL)
def test_f2i(to, kind, mode):
    source = floats(kind, 7)
    types = ("" if to == "S32" else f".{to}") + ("" if kind == "F32" else f".{kind}")
    bits = int(to[1:])
    for ntz, nan in ((".NTZ", 0), ("", 1 << bits - 1)):
        out = convert(f"F2I{types}{mode}{ntz} R4, R0", source, kind)
        want = [integer_of(value_of(s, kind), to, INTEGRAL[mode], nan) & (1 << max(32, bits)) - 1 for s in source]
        same(out.r64(4) if bits == 64 else out.r(4), want)


def test_f2i_flushes_and_negates():
    same(convert("F2I.FTZ.CEIL.NTZ R4, R0", [1] * 32, "F32").r(4), [0] * 32)
    same(convert("F2I.CEIL.NTZ R4, R0", [1] * 32, "F32").r(4), [1] * 32)
    same(convert("F2I.TRUNC.NTZ R4, -|R0|", [0x40700000] * 32, "F32").r(4), [0xFFFFFFFD] * 32)


# ---- integer to floating point


def integers(kind, seed):
    r = random.Random(seed)
    bits = int(kind[1:])
    found = [0, 1, (1 << bits) - 1, 1 << bits - 1, (1 << bits - 1) - 1, (1 << bits - 1) + 1]
    while len(found) < COUNT:
        n = r.getrandbits(bits) >> r.randrange(bits)
        middle = (1 << r.randrange(bits)) + (1 << r.randrange(bits)) + r.choice((-1, 0, 1))
        found.append(r.choice((n, middle, -n, -middle)) & (1 << bits) - 1)
    return found


def number(bits, kind):
    n = int(kind[1:])
    return bits - (1 << n) if kind[0] == "S" and bits >> n - 1 else bits


@pytest.mark.parametrize("kind", INTEGERS)
@pytest.mark.parametrize("to", FORMATS)
@pytest.mark.parametrize("mode", MODES)
def test_i2f(kind, to, mode):
    source = integers(kind, 8)
    types = ("" if to == "F32" else f".{to}") + ("" if kind == "S32" else f".{kind}")
    bits = int(kind[1:])
    words = [0xA5 << bits & 0xFFFFFFFF | s if bits < 32 else s for s in source]  # what stands above does not matter
    out = convert(f"I2F{types}{mode} R4, R0", words, "F64" if bits == 64 else "F32")
    want = [bits_of(Fraction(number(s, kind)), to, MODES[mode]) for s in source]
    same(out.r64(4) if to == "F64" else out.r(4), want)


def test_i2f_parts_and_immediates():
    source = [0x80FF7F01] * 32
    for n, want in enumerate((1, 127, -1, -128)):
        suffix = f".B{n}" if n else ""
        assert convert(f"I2F.S8 R4, R0{suffix}", source, "F32").r(4, np.float32)[0] == want
    assert convert("I2F.U16 R4, R0.H1", source, "F32").r(4, np.float32)[0] == 0x80FF
    assert convert("I2F.F64.S64 R4, -0x5", source, "F32").r64(4, np.float64)[0] == -5
    assert convert("I2F R4, -0x5", source, "F32").r(4, np.float32)[0] == -5
    want = bits_of(Fraction(-0x1000001), "F32", "RZ")
    same(run("I2FP.F32.S32.RZ R4, R0", arch="sm_90", regs={0: 0xFEFFFFFF}).r(4)[:1], [want])
    same(run("I2FP.F32.U32 R4, R0", arch="sm_90", regs={0: 0xFFFFFFFF}).r(4)[:1], [0x4F800000])


# ---- packed


def relu(x):
    return x if isinstance(x, float) and math.isnan(x) else Fraction(0) if x <= 0 else x


@pytest.mark.parametrize("name, kind, arch", [
    ("F2FP.PACK_AB", "F16", "sm_75"), ("F2FP.PACK_AB", "F16", "sm_80"), ("F2FP.BF16.PACK_AB", "BF16", "sm_86"),
    ("F2FP.F16.F32.PACK_AB", "F16", "sm_89"), ("F2FP.BF16.F32.PACK_AB", "BF16", "sm_90"),
    ("UF2FP.PACK_AB", "F16", "sm_90"),
])  # fmt: skip
@pytest.mark.parametrize("mode", ["", ".RZ"])
def test_f2fp(name, kind, arch, mode):
    a, b = floats("F32", 9), floats("F32", 10)
    regs = {0: array(a, "F32"), 1: array(b, "F32")}
    upper, lower = ([bits_of(value_of(s, "F32"), kind, MODES[mode]) for s in v] for v in (a, b))
    want = [x << 16 | y for x, y in zip(upper, lower)]
    if name[0] == "U":
        out = run(f"{name}{mode} UR4, UR0, UR1", arch, regs={99: np.zeros(32 * COUNT, np.uint32)}, uregs=regs)
        same(out.ur(4), want)
        return
    same(run(f"{name}{mode} R4, R0, R1", arch, regs=regs).r(4), want)
    if arch == "sm_75":
        return
    plain = name.replace("F2FP", "F2FP.RELU")
    out = run(f"{plain}{mode} R4, RZ, R1", arch, regs=regs)
    same(out.r(4), (bits_of(relu(value_of(s, "F32")), kind, MODES[mode]) for s in b))
    most = {"F16": 0x7BFF, "BF16": 0x7F7F}[kind]
    finite = [y & 0x8000 | min(y & 0x7FFF, most) if y & 0x7FFF != 0x7FFF else y for y in lower]
    out = run(f"{name.replace('F2FP', 'F2FP.SATFINITE')}{mode} R4, RZ, R1", arch, regs=regs)
    same(out.r(4), finite)
    out = run(f"{name.replace('PACK_AB', 'MERGE_C')}{mode} R4, R1, R0", arch, regs=regs)
    same(out.r(4), ((x & 0xFFFF) << 16 | y for x, y in zip(a, lower)))


#: exponent, lowest exponent, bits of mantissa, code of the largest value
EIGHT = {"E4M3": (7, 3, 0x7E), "E5M2": (15, 2, 0x7B)}


def eight(code, kind):
    """The value of a code of an 8-bit format."""
    bias, mantissa, largest = EIGHT[kind]
    low = code & 0x7F
    if low > largest:
        return (-1) ** (code >> 7) * math.inf if kind == "E5M2" and low == 0x7C else math.nan
    e, f = low >> mantissa, low & (1 << mantissa) - 1
    size = Fraction(f + (1 << mantissa if e else 0)) * Fraction(2) ** (max(e, 1) - bias - mantissa)
    return -0.0 if code >> 7 and not size else (-1) ** (code >> 7) * size


TABLES = {kind: [eight(code, kind) for code in range(largest + 1)] for kind, (_, _, largest) in EIGHT.items()}


def eight_of(x, kind):
    """The code next to a value, of two the even one; those beyond the largest become it."""
    if isinstance(x, float) and math.isnan(x):
        return 0x7F
    sign = 0x80 if math.copysign(1, x) < 0 else 0
    size = abs(Fraction(x)) if abs(x) != math.inf else Fraction(10**9)
    return sign | min(enumerate(TABLES[kind]), key=lambda t: (abs(t[1] - size), t[0] & 1))[0]


@pytest.mark.parametrize("kind", EIGHT)
def test_f2fp_to_eight_bits(kind):
    a, b, c = floats("F32", 11), floats("F32", 12), floats("F32", 13)
    r = random.Random(14)
    for n in range(30, 150):  # values that such a format can hold, and ties between them
        b[n] = bits_of(Fraction(r.randrange(-4000, 4000), 1 << r.randrange(0, 18)), "F32")
    regs = {0: array(a, "F32"), 1: array(b, "F32"), 2: array(c, "F32")}
    codes = [eight_of(value_of(x, "F32"), kind) << 8 | eight_of(value_of(y, "F32"), kind) for x, y in zip(a, b)]
    out = run(f"F2FP.SATFINITE.{kind}.F32.PACK_AB_MERGE_C R4, R0, R1, R2", "sm_90", regs=regs)
    same(out.r(4), ((z & 0xFFFF) << 16 | x for x, z in zip(codes, c)))
    out = run(f"F2FP.SATFINITE.{kind}.F32.PACK_AB_MERGE_C R4, R0, R1, R2.H1", "sm_90", regs=regs)
    same(out.r(4), (z & 0xFFFF0000 | x for x, z in zip(codes, c)))
    over = {"E4M3": (0x7F, 0x7F), "E5M2": (0x7C, 0xFC)}[kind]
    ends = {0: np.float32(np.inf), 1: np.float32(-1e9)}
    out = run(f"F2FP.{kind}.F32.PACK_AB_MERGE_C R4, R0, R1, RZ", "sm_90", regs=ends)
    assert out.r(4)[0] == over[0] << 8 | over[1]
    halves = [(x & 0xFFFF, x >> 16) for x in b]
    codes = [eight_of(value_of(x, "F16"), kind) | eight_of(value_of(y, "F16"), kind) << 8 for x, y in halves]
    out = run(f"F2FP.SATFINITE.{kind}.F16.UNPACK_B_MERGE_C R4, R1, RZ", "sm_90", regs=regs)
    same(out.r(4), codes)


@pytest.mark.parametrize("kind", EIGHT)
@pytest.mark.parametrize("to", ["F16", "BF16"])
def test_f2fp_from_eight_bits(kind, to):
    codes = np.arange(256, dtype=np.uint32)
    regs = {1: codes | (255 - codes) << 8 | 0x12340000}
    one = [bits_of(eight(c, kind), to) for c in range(256)]
    out = run(f"F2FP.{to}.{kind}.UNPACK_B R4, R1", "sm_90", regs=regs)
    same(out.r(4), (x | y << 16 for x, y in zip(one, one[::-1])))
    top = [bits_of(relu(eight(c, kind)), to) for c in (0x34, 0x12)]
    same(run(f"F2FP.RELU.{to}.{kind}.UNPACK_B R4, R1.H1", "sm_90", regs=regs).r(4), [top[0] | top[1] << 16] * 256)


def test_f2fp_tf32():
    source = floats("F32", 15)

    def model(bits, mode):
        x = value_of(bits, "F32")
        if isinstance(x, float):
            return 0x7FFFE000 if math.isnan(x) else bits
        sign, size = bits & 0x80000000, bits & 0x7FFFFFFF
        return sign | whole(Fraction(size, 1 << 13), mode) << 13  # carries into the exponent, at last to infinity

    for mode in ("", ".RZ"):
        out = run(f"F2FP.TF32.F32.PACK_B{mode} R4, R0", "sm_90", regs={0: array(source, "F32")})
        same(out.r(4), (model(s, MODES[mode]) for s in source))
    out = run("F2FP.RELU.TF32.F32.PACK_B R4, R0", "sm_90", regs={0: array(source, "F32")})
    same(out.r(4), (model(s, "RN") if not s >> 31 or math.isnan(value_of(s, "F32")) else 0 for s in source))


def clamped(x, kind, low=None):
    least, most = limits(kind)
    return min(max(x, least if low is None else low), most) & (1 << int(kind[1:])) - 1


PACKS = [("U8", ""), ("S8", ""), ("U8", ".H1"), ("S8", ".H1"), ("U16", ""), ("S16", ""),
         ("U4", ".24"), ("S4", ".24"), ("U2", ".28"), ("S2", ".28")]  # fmt: skip


@pytest.mark.parametrize("kind, suffix", PACKS)
def test_i2ip(kind, suffix):
    a, b, c = (integers("S32", n) for n in (16, 17, 18))
    regs = {n: np.array(v, np.uint32) for n, v in enumerate((a, b, c))}
    bits = int(kind[1:])

    def want(f):
        for x, y, z in zip(a, b, c):
            above = z >> 16 if suffix == ".H1" else z
            yield (f(number(y, "S32")) | f(number(x, "S32")) << bits | above << 2 * bits) & 0xFFFFFFFF

    text = f"R4, R0, R1, R2{suffix}"
    same(run(f"I2IP.{kind}.S32.SAT {text}", "sm_80", regs=regs).r(4), want(lambda x: clamped(x, kind)))
    same(run(f"I2IP.{kind}.S32.SATRELU {text}", "sm_90", regs=regs).r(4), want(lambda x: clamped(x, kind, 0)))
    same(run(f"I2IP.{kind}.S32 {text}", "sm_90", regs=regs).r(4), want(lambda x: x & (1 << bits) - 1))


def test_i2i():
    source = integers("S32", 19)
    for kind in ("U8", "S8", "U16", "S16"):
        out = run(f"I2I.{kind}.S32.SAT R4, R0", "sm_80", regs={0: np.array(source, np.uint32)})
        least, most = limits(kind)
        same(out.r(4), (min(max(number(s, "S32"), least), most) & 0xFFFFFFFF for s in source))


@pytest.mark.parametrize("kind", ["U8", "S8"])
@pytest.mark.parametrize("mode", ["", ".TRUNC"])
def test_f2ip(kind, mode):
    a, b, c = floats("F32", 20), floats("F32", 21), integers("U32", 22)
    regs = {0: array(a, "F32"), 1: array(b, "F32"), 2: array(c, "F32")}

    def want(f):
        for x, y, z in zip(a, b, c):
            x, y = (integer_of(f(value_of(v, "F32")), kind, INTEGRAL[mode], 0) & 255 for v in (x, y))
            yield (z & 0xFFFF) << 16 | x << 8 | y

    same(run(f"F2IP.{kind}.F32{mode}.NTZ R4, R0, R1, R2", "sm_90", regs=regs).r(4), want(lambda x: x))
    same(run(f"F2IP.{kind}.F32{mode}.RELU R4, R0, R1, R2", "sm_90", regs=regs).r(4), want(relu))
    same(run(f"F2IP.{kind}.F32{mode}.NTZ.RELU R4, R0, R1, R2", "sm_90", regs=regs).r(4), want(relu))


# ---- end to end: ptxas's own code

KERNEL = """
extern "C" __global__ void k{n}({to}* out, const {source}* in) {{
    {source} a = in[threadIdx.x];
    out[threadIdx.x] = {body};
}}
"""
CHAINS = [  # type of the source, of the result, CUDA, format of the source, Python
    ("float", "int", "(int)a", "F32", lambda x: integer_of(x, "S32", "RZ", 0)),
    ("float", "unsigned", "__float2uint_ru(a)", "F32", lambda x: integer_of(x, "U32", "RP", 0)),
    ("float", "long long", "__float2ll_rn(a)", "F32", lambda x: integer_of(x, "S64", "RN", 1 << 63)),
    ("float", "unsigned long long", "__float2ull_rd(a)", "F32", lambda x: integer_of(x, "U64", "RM", 1 << 63)),
    ("double", "int", "__double2int_rd(a)", "F64", lambda x: integer_of(x, "S32", "RM", 1 << 31)),
    ("double", "unsigned", "(unsigned)a", "F64", lambda x: integer_of(x, "U32", "RZ", 1 << 31)),
    ("double", "long long", "__double2ll_rn(a)", "F64", lambda x: integer_of(x, "S64", "RN", 1 << 63)),
    ("double", "float", "__double2float_ru(a)", "F64", lambda x: bits_of(x, "F32", "RP") if x == x else
     from_double(0xFFF8 << 48 if math.copysign(1, x) < 0 else 0x7FF8 << 48, "F32")),
    ("float", "unsigned", "__half_as_ushort(__float2half_rz(a))", "F32", lambda x: bits_of(x, "F16", "RZ")),
    ("float", "unsigned", "__bfloat16_as_ushort(__float2bfloat16_rn(a))", "F32", lambda x: bits_of(x, "BF16")),
    ("unsigned", "float", "__half2float(__ushort_as_half(a))", "F16", lambda x: bits_of(x, "F32")),
    ("float", "float", "rintf(a)", "F32", lambda x: bits_of(x if isinstance(x, float) else
     Fraction(whole(x, "RN")) or math.copysign(0.0, x), "F32")),
    ("long long", "float", "__ll2float_rz(a)", "S64", lambda x: bits_of(Fraction(x), "F32", "RZ")),
    ("unsigned long long", "double", "__ull2double_ru(a)", "U64", lambda x: bits_of(Fraction(x), "F64", "RP")),
    ("int", "double", "(double)a", "S32", lambda x: bits_of(Fraction(x), "F64")),
    ("unsigned", "float", "__uint2float_rd(a)", "U32", lambda x: bits_of(Fraction(x), "F32", "RM")),
]  # fmt: skip


@pytest.mark.parametrize("arch", ["sm_70", "sm_75", "sm_80", "sm_90"])
@pytest.mark.parametrize("n", range(len(CHAINS)), ids=[c[2] for c in CHAINS])
def test_compiled(arch, n):
    """What ptxas makes of CUDA's conversions, run with these steps, gives what CUDA promises."""
    source, to, _, kind, model = CHAINS[n]
    text = "#include <cuda_fp16.h>\n#include <cuda_bf16.h>\n"
    text += "".join(KERNEL.format(n=j, source=s, to=t, body=b) for j, (s, t, b, _, _) in enumerate(CHAINS))
    bits = floats(kind, 23) if kind in FORMATS else integers(kind, 24)
    sizes = {"float": np.uint32, "int": np.uint32, "unsigned": np.uint32}
    dtype = sizes.get(to, np.uint64)
    got = straight(text, f"k{n}", arch, [np.array(bits, sizes.get(source, np.uint64))], dtype)
    values = [value_of(b, kind) if kind in FORMATS else number(b, kind) for b in bits]
    same(got, (model(v) & (1 << 8 * np.dtype(dtype).itemsize) - 1 for v in values))
