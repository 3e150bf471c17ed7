"""Conversions to and from FP4, FP6, FP8, UE8M0 and S2F6 of Blackwell, against models in exact rational numbers that are
written from the PTX ISA (``cvt``, "Alternate floating-point data formats", "Fixed-point data format"): the nearest of
all values of a format, what is too large its largest with the sign, and a NaN the largest positive one where the format
has no NaN. What PTX leaves open of UE8M0 is as cuda_fp8.hpp says. No card was asked.

The SASS of each is what ptxas makes of a PTX kernel where 12.9 knows the form; of newer ones (.bf16x2 of FP4 to FP8 and
S2F6, with scales) what ptxas 13.5 makes of PTX 9.3, named in the test."""

from __future__ import annotations

import math
import random
from fractions import Fraction

import numpy as np
import pytest

import turingas
from tests.emulate.step import run
from tests.emulate.test_convert import COUNT, array, bits_of, floats, relu, same, value_of
from tests.tools import ptxas
from turingas.emulate import launch
from turingas.emulate.errors import DeviceError, Unsupported

#: bias, bits of mantissa, all bits, code of the largest value; UE8M0 and S2F6 are told apart
KINDS = {"e4m3": (7, 3, 8, 0x7E), "e5m2": (15, 2, 8, 0x7B), "e3m2": (3, 2, 6, 0x1F), "e2m3": (1, 3, 6, 0x1F),
         "e2m1": (1, 1, 4, 0x7)}  # fmt: skip
BEFORE_13 = ["e2m1", "e2m3", "e3m2"]
ARCHS = ["sm_100a", "sm_120a"]


def worth(code, kind):
    """The value of a code: Fraction, or a float where it is an infinity, a NaN or -0."""
    if kind == "s2f6":
        return Fraction(code - 256 if code > 127 else code, 64)
    if kind == "ue8m0":
        return math.nan if code == 255 else Fraction(2) ** (code - 127)
    bias, mantissa, bits, largest = KINDS[kind]
    size, sign = code & (1 << bits - 1) - 1, -1 if code >> bits - 1 else 1
    if size > largest:
        return math.copysign(math.inf if kind == "e5m2" and size == 0x7C else math.nan, sign)
    e, f = size >> mantissa, size & (1 << mantissa) - 1
    value = Fraction(f + (1 << mantissa if e else 0)) * Fraction(2) ** (max(e, 1) - bias - mantissa)
    return sign * value if value or sign > 0 else -0.0


SIZES = {kind: [worth(code, kind) for code in range(row[3] + 1)] for kind, row in KINDS.items()}


def nearest(x, kind):
    """The code of the value next to x, of two the even one; beyond the largest it is the largest."""
    _, _, bits, largest = KINDS[kind]
    if isinstance(x, float) and math.isnan(x):
        return 0x7F if bits == 8 else largest
    size = abs(Fraction(x)) if abs(x) != math.inf else Fraction(10**9)
    code = min(enumerate(SIZES[kind]), key=lambda t: (abs(t[1] - size), t[0] & 1))[0]
    return code | (1 << bits - 1 if math.copysign(1, x) < 0 else 0)


def scale_of(x, up, finite):
    """UE8M0 of the size of x."""
    if isinstance(x, float) and math.isnan(x):
        return 255
    if abs(x) == math.inf:
        return 254 if finite else 255
    size = abs(Fraction(x))
    code = next((c for c in range(256) if Fraction(2) ** (c - 127) >= size), 256)  # up
    if not up and code and Fraction(2) ** (code - 127) != size:
        code -= 1
    return min(code, 254 if finite else 255)


def draw(kind, seed):
    """Bits of FP32 or packed halves (F16, BF16): any, and such as a small format can hold, and ties between them."""
    if kind != "F32":
        low, high = draw_halves(kind, seed), draw_halves(kind, seed + 1)
        return [x | y << 16 for x, y in zip(low, high)]
    found, r = floats("F32", seed), random.Random(seed)
    for n in range(30, 160):
        found[n] = bits_of(Fraction(r.randrange(-4000, 4000), 1 << r.randrange(0, 18)), "F32")
    return found


def draw_halves(kind, seed):
    found, r = floats(kind, seed), random.Random(seed)
    for n in range(30, 150):
        found[n] = bits_of(Fraction(r.randrange(-300, 300), 1 << r.randrange(0, 10)), kind)
    return found


def compiled(arch, body, sources):
    """Runs PTX that makes %r9 of %r0, %r1 ... (or %f0, %f1 ..., the same bits) of each thread: a list of words each."""
    count = len(sources[0])
    loads = [f"ld.global.b32 %r{n}, [%d1+{4 * count * n}]; mov.b32 %f{n}, %r{n};" for n in range(len(sources))]
    text = f"""
.version 8.8
.target {arch}
.address_size 64
.visible .entry k(.param .u64 out, .param .u64 in)
{{
 .reg .b32 %t, %r<12>; .reg .f32 %f<8>; .reg .b16 %h<4>; .reg .b8 %b<4>; .reg .b64 %d<6>;
 mov.u32 %t, %tid.x; mul.wide.u32 %d3, %t, 4;
 ld.param.u64 %d0, [out]; ld.param.u64 %d1, [in];
 add.u64 %d0, %d0, %d3; add.u64 %d1, %d1, %d3;
 {" ".join(loads)}
 mov.b32 {{%h0, %h1}}, %r0;
 {body}
 st.global.b32 [%d0], %r9;
 ret;
}}
"""
    out = np.zeros(count, np.uint32)
    launch(ptxas.assemble_ptx(text, arch), "k", 1, count, [out, np.array(sources, np.uint32)])
    return out


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("clamp", ["", ".relu"])
@pytest.mark.parametrize("kind", BEFORE_13)
def test_from_floats(kind, clamp, arch):
    a, b = draw("F32", 1), draw("F32", 2)
    f = relu if clamp else lambda x: x
    codes = [[nearest(f(value_of(x, "F32")), kind) for x in half] for half in (b, a)]
    pack = f"cvt.rn.satfinite{clamp}.{kind}x2.f32"
    if kind == "e2m1":
        body = f"{pack} %b0, %f0, %f1; mov.b16 %h0, {{%b0, 0}}; cvt.u32.u16 %r9, %h0;"
    else:
        body = f"{pack} %h0, %f0, %f1; cvt.u32.u16 %r9, %h0;"
    same(compiled(arch, body, [a, b]), (x | y << (4 if kind == "e2m1" else 8) for x, y in zip(*codes)))


@pytest.mark.parametrize("arch", ARCHS)
def test_eight_of_a_register(arch):
    """Four pairs of FP4 in a register, as quantizing kernels pack them: ptxas merges each with those before it."""
    sources = [draw("F32", seed) for seed in range(20, 28)]
    codes = [[nearest(value_of(x, "F32"), "e2m1") for x in source] for source in sources]
    pairs = "".join(f"cvt.rn.satfinite.e2m1x2.f32 %b{n}, %f{2 * n + 1}, %f{2 * n}; " for n in range(4))
    out = compiled(arch, pairs + "mov.b32 %r9, {%b0, %b1, %b2, %b3};", sources)
    same(out, (sum(code << 4 * n for n, code in enumerate(row)) for row in zip(*codes)))


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("clamp", ["", ".relu"])
@pytest.mark.parametrize("kind", BEFORE_13)
def test_to_halves(kind, clamp, arch):
    bits = KINDS[kind][2]
    codes = [(x, x * 7 + 3 & (1 << bits) - 1) for x in range(1 << bits)]
    f = relu if clamp else lambda x: x
    want = [bits_of(f(worth(x, kind)), "F16") | bits_of(f(worth(y, kind)), "F16") << 16 for x, y in codes]
    source = [x | y << (4 if bits == 4 else 8) for x, y in codes]
    take = "mov.b16 {%b0, %b1}, %h0;" if bits == 4 else ""
    body = f"{take} cvt.rn{clamp}.f16x2.{kind}x2 %r9, {'%b0' if bits == 4 else '%h0'};"
    same(compiled(arch, body, [source]), want)
    if bits == 4:  # the second byte of a register
        body = body.replace("f16x2.e2m1x2 %r9, %b0", "f16x2.e2m1x2 %r9, %b1")
        same(compiled(arch, body, [[s << 8 for s in source]]), want)


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("finite", ["", ".satfinite"])
@pytest.mark.parametrize("mode", ["rz", "rp"])
def test_scales(mode, finite, arch):
    a, b = floats("F32", 3), floats("F32", 4)
    model = [[scale_of(value_of(x, "F32"), mode == "rp", bool(finite)) for x in half] for half in (b, a)]
    body = f"cvt.{mode}{finite}.ue8m0x2.f32 %h0, %f0, %f1; cvt.u32.u16 %r9, %h0;"
    same(compiled(arch, body, [a, b]), (x | y << 8 for x, y in zip(*model)))
    pairs = [x & 0xFFFF | y & 0xFFFF0000 for x, y in zip(a, b)] + [x >> 16 | x << 16 & 0xFFFF0000 for x in a]
    model = [
        [scale_of(value_of(x >> at & 0xFFFF, "BF16"), mode == "rp", bool(finite)) for x in pairs] for at in (0, 16)
    ]
    body = f"cvt.{mode}{finite}.ue8m0x2.bf16x2 %h0, %r0; cvt.u32.u16 %r9, %h0;"
    same(compiled(arch, body, [pairs]), (x | y << 8 for x, y in zip(*model)))


@pytest.mark.parametrize("arch", ARCHS)
def test_from_scales(arch):
    one = [bits_of(worth(x, "ue8m0"), "BF16") for x in range(256)]
    body = "cvt.rn.bf16x2.ue8m0x2 %r9, %h0;"
    same(
        compiled(arch, body, [[x | (255 - x) << 8 for x in range(256)]]), (x | y << 16 for x, y in zip(one, one[::-1]))
    )


@pytest.mark.parametrize("kind", ["E4M3", "E5M2", "E2M3", "E3M2", "E2M1"])
@pytest.mark.parametrize("of", ["F16", "BF16"])
def test_from_halves(kind, of):
    """cvt.rn.satfinite{.relu}.e2m1x2.bf16x2 and its like (PTX 9.1)."""
    source = draw(of, 5)
    width = 4 if kind == "E2M1" else 8
    for clamp, f in (("", lambda x: x), (".RELU", relu)):
        pairs = [[nearest(f(value_of(x >> at & 0xFFFF, of)), kind.lower()) for x in source] for at in (0, 16)]
        text = f"F2FP.SATFINITE{clamp}.{kind}.{of}.UNPACK_B_MERGE_C R4, R0, RZ"
        same(run(text, "sm_100", regs={0: array(source, "F32")}).r(4), (x | y << width for x, y in zip(*pairs)))


@pytest.mark.parametrize("finite", ["", "SATFINITE."])
@pytest.mark.parametrize("clamp", ["", "RELU."])
@pytest.mark.parametrize("kind", ["E4M3", "E5M2", "E2M3", "E3M2", "E2M1", "S2_6"])
def test_times_scales(kind, clamp, finite):
    """cvt.rn{.satfinite}{.relu}.scaled::n2::ue8m0.bf16x2.e4m3x2 and its like (PTX 9.1 and 9.2)."""
    ptx = {"S2_6": "s2f6"}.get(kind, kind.lower())
    bits = KINDS[ptx][2] if ptx in KINDS else 8
    r = random.Random(6)
    codes = [(r.randrange(1 << bits), r.randrange(1 << bits)) for _ in range(COUNT)]
    edge = [0, 1, 100, 116, 118, 120, 126, 127, 128, 140, 250, 253, 254, 255]
    scales = [(r.choice(edge), r.randrange(256)) for _ in range(COUNT)]

    def one(code, scale):
        x, factor = worth(code, ptx), worth(scale, "ue8m0")
        if isinstance(x, float) or isinstance(factor, float):
            x = float(x) * (factor if isinstance(factor, float) else 1.0)
        else:
            x *= factor
        found = bits_of(relu(x) if clamp else x, "BF16")
        return found - 1 if finite and found & 0x7FFF == 0x7F80 else found

    want = [one(x, s) | one(y, t) << 16 for (x, y), (s, t) in zip(codes, scales)]
    source = array([x | y << (4 if bits == 4 else 8) for x, y in codes], "F32")
    pair = array([s | t << 8 for s, t in scales], "F32")
    text = f"F2FP.{finite}{clamp}BF16.{kind}.UNPACK_B R4, R0{{}}, R1.{{}}"
    same(run(text.format("", "H0"), "sm_100", regs={0: source, 1: pair}).r(4), want)
    second = ".B2" if bits == 4 else ".H1"
    one_scale = run(text.replace("R1.{}", "2e-43.H0").format(""), "sm_100", regs={0: source}).r(4)  # 0x8f
    pair[:] = 0x8F
    same(one_scale, run(text.format("", "H0"), "sm_100", regs={0: source, 1: pair}).r(4).tolist())
    pair = array([s | t << 8 for s, t in scales], "F32")
    shifted = {0: source << np.uint32(16), 1: pair << np.uint32(16)}
    same(run(text.format(second, "H1"), "sm_100", regs=shifted).r(4), want)


#: bits of a random number, counted from the highest to the lowest: of x2 the halves of rbits, of x4 what FlashInfer
#: (conversion.cuh) and quant_cast_bench (nvidia_rs_bit_probe) found on cards of sm_100. The first row is that of a.
DICE = {
    "f16": [range(28, 15, -1), range(12, -1, -1)],
    "bf16": [range(31, 15, -1), range(15, -1, -1)],
    "e2m1": [[*range(8, 16), *range(24, 32)], [*range(31, 23, -1), *range(15, 7, -1)],
             [*range(0, 8), *range(16, 24)], [*range(23, 15, -1), *range(7, -1, -1)]],
    "small": [range(16, 32), range(31, 15, -1), range(0, 16), range(15, -1, -1)],
}  # fmt: skip


#: of FP16 and BF16: bits of mantissa, exponents of the lowest and highest normal numbers, the code of infinity
WIDE = {"f16": (10, -14, 15, 0x7C00), "bf16": (7, -126, 127, 0x7F80)}


def beside(size, kind):
    """Of a positive size: the code of the value next below it (or of itself), this value, and how far the next one is;
    None behind the last one."""
    if kind in KINDS:
        sizes = SIZES[kind]
        code = max(n for n, value in enumerate(sizes) if value <= size)
        return code, sizes[code], sizes[code + 1] - sizes[code] if code + 1 < len(sizes) else None
    mantissa, e, highest, _ = WIDE[kind]
    lowest = e
    while e < highest and size >= Fraction(2) ** (e + 1):
        e += 1
    unit = Fraction(2) ** (e - mantissa)
    return int(size // unit) + (e - lowest << mantissa), size // unit * unit, unit


def by_chance(x, dice, kind, finite):
    """The code of x cut to a format, or one further from zero where ``dice`` and the part that is lost make one."""
    bits, most = (KINDS[kind][2], KINDS[kind][3]) if kind in KINDS else (16, WIDE[kind][3] - finite)
    if isinstance(x, float) and math.isnan(x):
        return (1 << bits - 1) - 1 if bits >= 8 else most
    sign = 1 << bits - 1 if math.copysign(1, x) < 0 else 0
    if abs(x) == math.inf:
        return sign | most
    code, below, step = beside(abs(Fraction(x)), kind)
    return sign | min(code + (step is not None and (abs(Fraction(x)) - below) / step + dice >= 1), most)


@pytest.mark.parametrize("clamp", ["", ".relu"])
@pytest.mark.parametrize("kind", ["f16", "bf16", "f16.satfinite", "e4m3", "e5m2", "e2m3", "e3m2", "e2m1"])
def test_by_chance(kind, clamp):
    """cvt.rs, which sm_100a and sm_103a have, against exact rational numbers: also of random numbers that just do, or
    just do not, give a carry."""
    kind, _, finite = kind.partition(".")
    small = kind in KINDS
    order = DICE.get(kind, DICE["small"])
    r = random.Random(len(kind + clamp))
    rows = 96
    xs = [draw("F32", seed) for seed in range(5, 5 + len(order))]
    top = {"e4m3": 500, "e5m2": 70000, "f16": 70000}.get(kind, 9)
    for column in xs:
        for n in range(rows // 2):
            column[n] = bits_of(Fraction(r.randrange(-(1 << 24), 1 << 24), 1 << r.randrange(20, 34)), "F32")
        column[rows // 2] = bits_of(Fraction(top), "F32")
        column[rows // 2 + 1] = bits_of(Fraction(-top), "F32")
    f = relu if clamp else lambda x: x
    want, given = [], []
    for n in range(rows):
        row = [f(value_of(column[n], "F32")) for column in xs]
        rbits = r.getrandbits(32)
        if n % 3 and n < rows // 2:  # of one of them the least that gives a carry, or one less
            which = r.randrange(len(order))
            size = abs(Fraction(row[which]))
            _, below, step = beside(size, kind)
            if step is not None:
                least = math.ceil((1 - (size - below) / step) * (1 << len(order[which]))) - n % 3 + 1
                for weight, bit in enumerate(reversed(order[which])):
                    rbits = rbits & ~(1 << bit) | (least >> weight & 1) << bit
        given.append(rbits)
        dice = [Fraction(sum((rbits >> bit & 1) << w for w, bit in enumerate(reversed(o))), 1 << len(o)) for o in order]
        codes = [by_chance(x, d, kind, bool(small or finite)) for x, d in zip(row, dice)]
        width = 16 if not small else 4 if kind == "e2m1" else 8
        want.append(sum(code << width * at for at, code in enumerate(reversed(codes))))
    if not small:
        body = f"cvt.rs{clamp}.{finite + '.' if finite else ''}{kind}x2.f32 %r9, %f0, %f1, %r2;"
    elif kind == "e2m1":
        body = f"cvt.rs{clamp}.satfinite.e2m1x4.f32 %h0, {{%f0, %f1, %f2, %f3}}, %r4; cvt.u32.u16 %r9, %h0;"
    else:
        body = f"cvt.rs{clamp}.satfinite.{kind}x4.f32 %r9, {{%f0, %f1, %f2, %f3}}, %r4;"
    same(compiled("sm_100a", body, [*(column[:rows] for column in xs), given]), want)


@pytest.mark.parametrize("clamp", ["", "RELU."])
@pytest.mark.parametrize("of", ["F32", "BF16"])
def test_to_fixed_point(of, clamp):
    """cvt.rn.satfinite{.relu}.scaled::n2::ue8m0.s2f6x2.f32 and .bf16x2 (PTX 9.1): quotients rounded to whole 64ths, to
    even, at most 127 of them; the scales are in the upper half of the last source (ptxas 13.5)."""
    f = relu if clamp else lambda x: x
    r, pairs, scales, want = random.Random(len(of + clamp)), [], [], []
    numbers = draw(of, 5) + draw(of, 6)

    def one(bits, scale):
        x, by = value_of(bits, of), worth(scale, "ue8m0")
        if isinstance(x, float) and (math.isnan(x) or abs(x) == math.inf) or isinstance(by, float):
            quotient = f(float(x) / by if isinstance(by, float) else float(x))
            return 127 if math.isnan(quotient) or quotient > 0 else 0 if quotient == 0 else None
        return min(round(f(Fraction(x) / by) * 64), 127)

    while len(want) < COUNT:
        raw = [r.choice(numbers) >> (16 if of == "BF16" and r.random() < 0.5 else 0) for _ in range(2)]
        raw = [bits & 0xFFFF for bits in raw] if of == "BF16" else raw
        factors = [r.choice([127, 127, 124, 130, r.randrange(256)]) for _ in raw]
        codes = [one(bits, factor) for bits, factor in zip(raw, factors)]
        if any(code is None or code < -127 for code in codes):
            continue  # refused, see below
        pairs.append(raw)
        scales.append(factors[0] << 16 | factors[1] << 24)
        want.append((codes[0] & 0xFF) | (codes[1] & 0xFF) << 8)
    last = {2: array(scales, "F32")}
    low, high = zip(*pairs)
    if of == "F32":
        text = f"F2FP.SATFINITE.{clamp}S2_6.F32.PACK_AB_MERGE_C R4, R1, R0, R2"
        out = run(text, "sm_100", regs={0: array(low, "F32"), 1: array(high, "F32"), **last})
    else:
        text = f"F2FP.SATFINITE.{clamp}S2_6.BF16.UNPACK_B_MERGE_C R4, R0, R2"
        packed = [x | y << 16 for x, y in pairs]
        out = run(text, "sm_100", regs={0: array(packed, "F32"), **last})
    same(out.r(4), want)


@pytest.mark.parametrize("value, refused", [(-127.49, False), (-127.51, True), (-128, True), (-1e9, True)])
def test_fixed_points_that_are_too_small(value, refused):
    """PTX: what is too large becomes the largest number with its sign; and the least number of S2_6 is -2."""
    source = """.kernel kern
.param out 8
.param value 4
LDC.64 R2, c[0x0][0x380]
LDC R0, c[0x0][0x388]
LDCU.64 UR4, c[0x0][0x358]
MOV R1, 0x7f7f0000
F2FP.SATFINITE.S2_6.F32.PACK_AB_MERGE_C R4, RZ, R0, R1
STG.E desc[UR4][R2.64], R4
EXIT"""
    out = np.zeros(1, np.uint32)
    args = [out, np.float32(value / 64)]
    if refused:
        with pytest.raises(DeviceError, match="PTX leaves open"):
            launch(turingas.assemble(source, "sm_100"), "kern", 1, 1, args)
    else:
        launch(turingas.assemble(source, "sm_100"), "kern", 1, 1, args)
        assert out[0] == 129


@pytest.mark.parametrize("text", [
    "F2FP.E4M3.F32.PACK_AB_MERGE_C.RS R4, R0, R1, R2",
    "F2FP.S2_6.F32.PACK_AB_MERGE_C R4, R0, R1, R2",
    "F2FP.E2M3.F32.PACK_AB_MERGE_C R4, R0, R1, RZ",
    "F2FP.RELU.E8.F32.PACK_AB_MERGE_C.RP R4, R0, R1, RZ",
    "F2FP.BF16.E4M3.UNPACK_B R4, R0, R1.B1",
])  # fmt: skip
def test_refused(text):
    """What PTX does not define, or no compiled code has."""
    with pytest.raises(Unsupported):
        run(text, "sm_100", regs={n: np.zeros(32, np.uint32) for n in range(3)})


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("bits, form", [(4, "b4x16_p64"), (6, "b6x16_p32")])
def test_padded_rows(bits, form, count, arch):
    """ldmatrix.m8n16: 16 elements of 4 or 6 bits, and padding, become 16 bytes, 4 of them for each lane (PTX ISA);
    4 bits stand in the middle of their byte, as mma.sync takes them."""
    r = np.random.default_rng(bits)
    source = r.integers(0, 256, (8 * count, 16), np.uint8)  # in the padding, too
    regs = [f"%r{n}" for n in range(count)]
    text = f"""
.version 8.8
.target {arch}
.address_size 64
.visible .entry k(.param .u64 out, .param .u64 in)
{{
 .reg .b32 %r<12>; .reg .b64 %d<6>; .reg .pred %p;
 .shared .align 16 .b8 tile[512];
 mov.u32 %r8, %tid.x; mul.wide.u32 %d3, %r8, 16; ld.param.u64 %d0, [out]; ld.param.u64 %d1, [in]; add.u64 %d1, %d1, %d3;
 mov.u32 %r9, tile; mad.lo.u32 %r9, %r8, 16, %r9; setp.lt.u32 %p, %r8, {8 * count};
 @%p ld.global.v4.b32 {{%r0, %r1, %r2, %r3}}, [%d1];
 @%p st.shared.v4.b32 [%r9], {{%r0, %r1, %r2, %r3}};
 bar.sync 0;
 ldmatrix.sync.aligned.m8n16.x{count}.shared.b8x16.{form} {{{", ".join(regs)}}}, [%r9];
 mul.wide.u32 %d3, %r8, 4; add.u64 %d0, %d0, %d3;
 {" ".join(f"st.global.b32 [%d0+{128 * n}], %r{n};" for n in range(count))}
 ret;
}}
"""
    out = np.zeros((count, 32), np.uint32)
    launch(ptxas.assemble_ptx(text, arch), "k", 1, 32, [out, source])
    stream = np.unpackbits(source, axis=1, bitorder="little")[:, : 16 * bits].reshape(8 * count, 16, bits)
    elements = (stream << np.arange(bits, dtype=np.uint8)).sum(axis=2).astype(np.uint8) << (2 if bits == 4 else 0)
    assert (out.view(np.uint8).reshape(count, 8, 16) == elements.reshape(count, 8, 16)).all()


def shared_bytes(arch, body, source, size):
    """Runs PTX with ``source`` in shared memory at %r9 + 16 * %t, and stores ``size`` bytes from there on."""
    text = f"""
.version 8.8
.target {arch}
.address_size 64
.visible .entry k(.param .u64 out, .param .u64 in)
{{
 .reg .b32 %t, %r<12>; .reg .b64 %d<6>;
 .shared .align 16 .b8 tile[512];
 mov.u32 %t, %tid.x; mul.wide.u32 %d3, %t, 16; ld.param.u64 %d0, [out]; ld.param.u64 %d1, [in]; add.u64 %d1, %d1, %d3;
 mov.u32 %r9, tile; mad.lo.u32 %r9, %t, 16, %r9;
 ld.global.v4.b32 {{%r0, %r1, %r2, %r3}}, [%d1];
 {body}
 ret;
}}
"""
    out = np.zeros(size, np.uint8)
    report = launch(ptxas.assemble_ptx(text, arch), "k", 1, 32, [out, source], strict=True, races="shared")
    assert not report.hazards and not report.races
    return out


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("form, bits", [("b8", 8), ("b8x16.b4x16_p64", 4), ("b8x16.b6x16_p32", 6)])
def test_transposed_bytes(form, bits, count, arch):
    """ldmatrix.m16n16.trans: lane l has the columns l / 4 and 8 + l / 4 of a matrix of 16 rows, of each the four rows
    from 4 (l % 4) on: what CUTLASS makes of it (SM100_U8x8_LDSM_T), and what others say that they saw on sm_120."""
    source = np.random.default_rng(bits).integers(0, 256, (32, 16), np.uint8)
    regs = [f"%r{4 + n}" for n in range(2 * count)]
    body = f"""st.shared.v4.b32 [%r9], {{%r0, %r1, %r2, %r3}}; bar.sync 0;
 ldmatrix.sync.aligned.m16n16.x{count}.trans.shared.{form} {{{", ".join(regs)}}}, [%r9];
 mul.wide.u32 %d3, %t, {8 * count}; add.u64 %d0, %d0, %d3;
 {" ".join(f"st.global.b32 [%d0+{4 * n}], {r};" for n, r in enumerate(regs))}"""
    out = shared_bytes(arch, body, source, 32 * 8 * count).reshape(32, count, 2, 4)
    stream = np.unpackbits(source, axis=1, bitorder="little")[:, : 16 * bits].reshape(32, 16, bits)
    elements = (stream << np.arange(bits, dtype=np.uint8)).sum(axis=2).astype(np.uint8) << (2 if bits == 4 else 0)
    for lane, matrix, half, byte in np.ndindex(out.shape):
        row, column = 16 * matrix + 4 * (lane % 4) + byte, lane // 4 + 8 * half
        assert out[lane, matrix, half, byte] == elements[row, column]


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("count", [1, 2, 4])
def test_transposed_bytes_are_stored(count, arch):
    """stmatrix.m16n8.trans: what a lane has of the accumulators of a product of 16 x 8, two neighbours in a row and the
    two that are eight rows below (CUTLASS, SM100_U8x4_STSM_T); each column becomes 16 bytes."""
    source = np.random.default_rng(count).integers(0, 256, (32, 16), np.uint8)
    regs = [f"%r{n}" for n in range(count)]
    body = f"""stmatrix.sync.aligned.m16n8.x{count}.trans.shared.b8 [%r9], {{{", ".join(regs)}}}; bar.sync 0;
 setp.lt.u32 %p, %t, {8 * count}; @!%p bra END;
 ld.shared.v4.b32 {{%r0, %r1, %r2, %r3}}, [%r9]; mul.wide.u32 %d3, %t, 16; add.u64 %d0, %d0, %d3;
 st.global.v4.b32 [%d0], {{%r0, %r1, %r2, %r3}};
END:"""
    out = shared_bytes(arch, ".reg .pred %p; " + body, source, 128 * count).reshape(count, 8, 16)
    for matrix, row, column in np.ndindex(count, 16, 8):
        lane, byte = row % 8 * 4 + column // 2, 2 * (row // 8) + column % 2
        assert out[matrix, column, row] == source[lane, 4 * matrix + byte]


@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_powers_of_pairs(kind):
    """ex2.approx of two halves, which sm_103 has an instruction for: as of each alone."""
    body = f"ex2.approx.{'ftz.' * (kind == 'bf16')}{kind}x2 %r9, %r0;"
    source = draw(kind.upper(), 9)
    assert (compiled("sm_103a", body, [source]) == compiled("sm_100a", body, [source])).all()
