"""F2FP: floats rounded to smaller formats and packed, or taken out of a register and widened.

What formats of 8 bits and fewer are is said in ``formats``. Rounding, NaN and saturation follow the PTX ISA (``cvt``);
what it leaves open of FP8 was measured on an H200 (``tests/emulate/test_convert.py``), and of UE8M0 (numbers below
2^-127, signs, what is too large without .satfinite) it is what cuda_fp8.hpp does on the host.

``.RS`` adds random bits to what is cut off (``dithered``). PTX says which bits of the last source are whose. In which
order they count, which it shows in pictures alone, others found on cards of sm_100: FlashInfer (conversion.cuh: FP16
and 22,528 numbers to E4M3, below the normal ones and too large ones among them), and quant_cast_bench (BF16, E4M3, E5M2
and FP4). FP6 has its bits as FP8 (PTX); FP16 and BF16 below their normal numbers are taken to round as FP8 does there.
ptxas makes four numbers by two instructions, of which the second one's last source is what the first one gave: so each
takes the upper bits of it, and moves the lower ones up.

Not done: numbers below -127/64 to S2_6, where PTX leaves open whether they become -127/64 or -128/64; scales of one
byte, which no compiled code has.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from turingas.emulate.arrays import Array
from turingas.emulate.build import Get, Maker, Step, semantics
from turingas.emulate.cohort import Cohort
from turingas.emulate.errors import Unsupported
from turingas.emulate.results import split
from turingas.emulate.semantics import formats
from turingas.emulate.semantics.bits import reversed_bits
from turingas.emulate.semantics.convert import (
    NAN,
    clamped,
    from_half,
    mode_of,
    narrow,
    nearest16,
    source,
    upper_half,
)
from turingas.isa.instruction import Instruction, Operand


@dataclass(frozen=True)
class Narrow:
    """A format of 8 bits or fewer: ``values`` of all its codes, ``mantissa`` bits, the exponent of its ``lowest``
    normal number, and the codes of its ``largest`` finite number, of NaN and of what is too large (None: there is only
    .SATFINITE)."""

    values: Array
    mantissa: int
    lowest: int
    largest: int
    nan: int
    over: int | None = None
    packs: int = 8  # bits from one to the next

    @property
    def sign(self) -> int:
        return len(self.values) // 2


NARROW = {
    "E4M3": Narrow(formats.E4M3, 3, -6, 0x7E, 0x7F, 0x7F),
    "E5M2": Narrow(formats.E5M2, 2, -14, 0x7B, 0x7F, 0x7C),
    "E2M3": Narrow(formats.E2M3, 3, 0, 0x1F, 0x1F),
    "E3M2": Narrow(formats.E3M2, 2, -2, 0x1F, 0x1F),
    "E2M1": Narrow(formats.E2M1, 1, 0, 0x7, 0x7, packs=4),
}
S2_6 = np.arange(256, dtype=np.uint8).view(np.int8) / 64.0
SCALE = formats.SCALES["UE8M0"]


def encode(x: Array, kind: str, finite: bool, mode: str = "RN") -> Array:
    """float64 values rounded to a format, to even or (RZ) cut: codes, uint32. ``finite`` stops at the largest one."""
    f = NARROW[kind]
    size = np.abs(x)
    exponent = np.maximum(np.frexp(np.where(np.isfinite(size), size, 0))[1] - 1, f.lowest)
    unit = np.ldexp(1.0, exponent - f.mantissa)
    whole = np.rint if mode == "RN" else np.trunc
    near = np.where(np.isfinite(size), whole(size / unit) * unit, np.inf)
    over = f.largest if finite or f.over is None else f.over
    code = np.where(near > f.values[f.largest], over, np.searchsorted(f.values[: f.largest + 1], near))
    code = np.where(np.signbit(x) & (code != 0x7F), code | f.sign, code)  # a NaN has no sign (measured on an H200)
    return np.where(np.isnan(x), f.nan, code).astype(np.uint32)


def dithered(x: Array, random: Array, bits: int, mantissa: int, lowest: int) -> Array:
    """float64 values cut to ``mantissa`` bits, fewer below 2 ** ``lowest``, and one further from zero where ``random``
    numbers of so many ``bits``, added to the highest bits that were cut off, give a carry (PTX cvt, ".rs")."""
    fits = np.isfinite(x)
    size = np.abs(np.where(fits, x, 0))
    unit = np.ldexp(1.0, np.maximum(np.frexp(size)[1] - 1, lowest) - mantissa)
    whole = np.floor(size / unit)
    carry = np.floor((size / unit - whole) * (1 << bits)) + random >= 1 << bits
    return np.where(fits, np.copysign((whole + carry) * unit, x), x)


def to_scale(x: Array, up: bool, finite: bool) -> Array:
    """The power of two next to the size of float64 values, below or ``up``, as UE8M0: the code 0 is 2^-127."""
    fraction, exponent = np.frexp(np.where(np.isfinite(x), np.abs(x), 0))
    code = np.where(fraction == 0, 0, exponent + 126 + (up & (fraction != 0.5)))
    code = np.where(np.isinf(x), 255, np.clip(code, 0, 255))
    code = np.minimum(code, 254) if finite else code
    return np.where(np.isnan(x), 255, code).astype(np.uint32)


def _finite(bits: Array, kind: str) -> Array:
    """16-bit results of which infinities become the largest finite value of their sign."""
    infinite = 0x7C00 if kind == "F16" else 0x7F80
    return np.where((bits & 0x7FFF) == infinite, bits - np.uint32(1), bits)


@semantics("F2FP", "UF2FP")
def f2fp(i: Instruction, m: Maker) -> Step:
    """Two floats packed into one register: .PACK_AB b below a; .MERGE_C b below a half of c; with formats of 8 and 6
    bits b (and a above it) below a half of c, with FP4 below its lower three bytes (ptxas makes a register of eight
    numbers so); .UNPACK_B takes two such apart; .PACK_B rounds one to TF32."""
    mods = set(i.mods)
    if "RS" in mods:
        return _random(i, m)
    if "UNPACK_B" in mods:
        return _unpack(i, m)
    d, *sources = i.operands
    put, mode, relu, satfinite = m.put(d), mode_of(i), "RELU" in mods, "SATFINITE" in mods
    if "PACK_B" in mods:
        get = m.f32(sources[0])
        return lambda k: put(k, tf32(get(k), mode, relu))
    to16 = "BF16" if "BF16" in mods else "F16"
    small = next((x for x in i.mods if x in NARROW or x in ("E8", "S2_6")), None)
    if "PACK_AB" in mods or "MERGE_C" in mods:
        if small or "TF32" in mods:  # UF2FP has bits for it, and no compiled code
            raise Unsupported(i.name)
        return _halves(i, m, to16)
    assert small, i
    if small == "S2_6" and satfinite:
        return _fixed_point(i, m)
    if small == "S2_6" or mode not in (("RZ", "RP") if small == "E8" else ("RN", "RZ")) or small == "E8" and relu:
        raise Unsupported(i.name)
    if small in NARROW and NARROW[small].over is None and not satfinite:
        raise Unsupported(f"{i.name} without .SATFINITE")
    width = np.uint32(NARROW[small].packs if small in NARROW else 8)
    *floats, last = sources

    def code(x: Array) -> Array:
        if small == "E8":
            return to_scale(x, mode == "RP", satfinite)
        return encode(clamped(x, relu), small, satfinite, mode)

    c, both = (upper_half(m, last) if width == 8 else m.raw(last)), _two(i, m, floats)

    def merge(k: Cohort) -> None:
        low, high = both(k)
        put(k, code(low) | code(high) << width | c(k).astype(np.uint32) << 2 * width)

    return merge


def _two(i: Instruction, m: Maker, floats: list[Operand]) -> Callable[[Cohort], tuple[Array, Array]]:
    """The lower and the upper one of two numbers to pack: two sources (the upper one first), or the halves of one."""
    if "UNPACK_B_MERGE_C" in i.mods:
        raw, kind = m.raw(floats[0]), "BF16" if "BF16" in i.mods else "F16"

        def halves(k: Cohort) -> tuple[Array, Array]:
            found = from_half(split(raw(k), np.uint16), kind)
            return found[..., 0], found[..., 1]

        return halves
    above, below = (source(m, o, "F32") for o in floats)
    return lambda k: (below(k), above(k))


#: of FP16 and BF16: random bits, bits of mantissa and the exponent of the lowest normal number
DITHERED = {"F16": (13, 10, -14), "BF16": (16, 7, -126)}


def _random(i: Instruction, m: Maker) -> Step:
    """.RS: rounded by the bits of the last source. ``F2FP.F16.F32.PACK_AB.RS Rd, Ra, Rb, Rc``: the upper half of Rc has
    those of Ra, the lower one those of Rb. ``F2FP.E4M3.F32.PACK_AB_MERGE_C.RS``: its upper half has those of Rb, and
    read from its lowest bit on those of Ra; its lower half moves up to make room. Of FP4 it is not halves but bytes."""
    *floats, last = i.operands[1:]
    put, relu, satfinite = m.put(i.operands[0]), "RELU" in i.mods, "SATFINITE" in i.mods
    both, raw = _two(i, m, floats), m.raw(last)
    small = next((mod for mod in i.mods if mod in NARROW), None)
    if small is None:
        to = "BF16" if "BF16" in i.mods else "F16"
        row, mask = DITHERED[to], np.uint32((1 << DITHERED[to][0]) - 1)

        def halves(k: Cohort) -> None:
            random = raw(k)
            found = []
            for x, dice in zip(both(k), (random & mask, random >> np.uint32(16) & mask)):
                bits = narrow(dithered(clamped(x, relu), dice, *row), to)
                found.append(_finite(bits, to) if satfinite else bits)
            put(k, found[0] | found[1] << np.uint32(16))

        return halves
    if not satfinite:  # PTX always has it
        raise Unsupported(f"{i.name} without .SATFINITE")
    f = NARROW[small]
    width, up = np.uint32(f.packs), np.uint32(2 * f.packs)

    def merge(k: Cohort) -> None:
        random = raw(k)
        dice = random >> np.uint32(16)
        if f.packs == 4:
            dice = dice & np.uint32(0xFF00) | random >> np.uint32(8) & np.uint32(0xFF)
        found = []
        for x, bits in zip(both(k), (dice, reversed_bits(dice) >> np.uint32(16))):
            found.append(encode(dithered(clamped(x, relu), bits, 16, f.mantissa, f.lowest), small, True))
        put(k, found[0] | found[1] << width | random << up)

    return merge


def _fixed_point(i: Instruction, m: Maker) -> Step:
    """To S2_6, whole 64ths from -128 to 127 of them, rounded to even: each divided by its scale, which lie in the upper
    half of the last source; the lower half moves up. A NaN becomes the largest number."""
    *floats, last = i.operands[1:]
    put, relu, both, raw = m.put(i.operands[0]), "RELU" in i.mods, _two(i, m, floats), m.raw(last)

    def merge(k: Cohort) -> None:
        c, found = raw(k), []
        for x, scale in zip(both(k), (c >> np.uint32(16) & np.uint32(0xFF), c >> np.uint32(24))):
            near = k.full(np.rint(clamped(x / SCALE[scale], relu) * 64))
            if (low := (near < -127) & k.lanes).any():
                row, lane = np.argwhere(low)[0].tolist()
                what = f"{near[row, lane] / 64} as S2_6: PTX leaves open whether that is -127/64 or -2"
                raise k.wave.fault(i, "unsupported", what, row, lane)
            whole = np.clip(np.where(np.isnan(near), 127, near), -128, 127).astype(np.int32)
            found.append(whole.view(np.uint32) & np.uint32(0xFF))
        put(k, found[0] | found[1] << np.uint32(8) | c << np.uint32(16))

    return merge


def _halves(i: Instruction, m: Maker, kind: str) -> Step:
    """.PACK_AB and .MERGE_C of FP16 or BF16."""
    d, *sources = i.operands
    put, mode, relu, satfinite = m.put(d), mode_of(i), "RELU" in i.mods, "SATFINITE" in i.mods
    shift = np.uint32(16)

    def rounded(o: Operand) -> Get:
        if not (relu or satfinite) and mode == "RN":
            single = m.f32(o)
            return lambda k: nearest16(single(k), kind)
        get = source(m, o, "F32")
        if satfinite:
            return lambda k: _finite(narrow(clamped(get(k), relu), kind, mode), kind)
        return lambda k: narrow(clamped(get(k), relu), kind, mode)

    if "PACK_AB" in i.mods:
        a, b = (rounded(o) for o in sources)
        return lambda k: put(k, a(k) << shift | b(k))
    low, c = rounded(sources[0]), upper_half(m, sources[1])
    return lambda k: put(k, low(k) | c(k).astype(np.uint32) << shift)


def _unpack(i: Instruction, m: Maker) -> Step:
    """Two numbers of 8 bits and fewer as FP16 or BF16; times a scale each, which lie in a half of the last source (PTX:
    .scaled::n2::ue8m0)."""
    d, b, *scales = i.operands
    mods = set(i.mods)
    put, relu, shift = m.put(d), "RELU" in mods, np.uint32(16)
    small = next(x for x in i.mods if x in NARROW or x in ("E8", "S2_6"))
    to = "BF16" if "BF16" in mods - {small} else "F16"
    values = S2_6 if small == "S2_6" else SCALE if small == "E8" else NARROW[small].values
    last = len(values) - 1
    width = NARROW[small].packs if small in NARROW else 8
    raw = m.raw(b)
    place = np.uint32({"": 0, ".H1": 16, ".B2": 16}[getattr(b, "suffix", "")])

    def both(k: Cohort) -> tuple[Array, Array]:
        bits = raw(k) >> place
        return bits & last, bits >> np.uint32(width) & last

    if not scales:
        codes = narrow(clamped(values, relu), to)

        def plain(k: Cohort) -> None:
            low, high = both(k)
            put(k, codes[low] | codes[high] << shift)

        return plain
    part = getattr(scales[0], "suffix", ".H0")  # a number has its lower half
    if not part.startswith(".H"):
        raise Unsupported(f"{i.name} with one scale ({part})")
    satfinite, scale = "SATFINITE" in mods, upper_half(m, scales[0])

    def scaled(k: Cohort) -> None:
        pair = scale(k)
        found = []
        for code, exponent in zip(both(k), (pair & 0xFF, pair >> 8)):
            bits = narrow(clamped(values[code] * SCALE[exponent], relu), to)
            found.append(_finite(bits, to) if satfinite else bits)
        put(k, found[0] | found[1] << shift)

    return scaled


def tf32(x: Array, mode: str, relu: bool) -> Array:
    """float32 rounded to 10 bits of mantissa, to even or (RZ) cut; the others are 0, of a NaN too (measured)."""
    bits = x.view(np.uint32)
    near = bits if mode == "RZ" else bits + np.uint32(0xFFF) + (bits >> np.uint32(13) & np.uint32(1))
    value = np.where(np.isnan(x), np.uint32(NAN["F32"]), near) & np.uint32(0xFFFFE000)
    return np.where((x <= 0), np.uint32(0), value) if relu else value
