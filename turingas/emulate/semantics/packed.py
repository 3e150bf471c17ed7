"""F2FP: floats rounded to smaller formats and packed, or taken out of a register and widened.

What formats of 8 bits and fewer are is said in ``formats``. Rounding, NaN and saturation follow the PTX ISA (``cvt``);
what it leaves open of FP8 was measured on an H200 (``tests/emulate/test_convert.py``), and of UE8M0 (numbers below
2^-127, signs, what is too large without .satfinite) it is what cuda_fp8.hpp does on the host.

Not done: ``.RS``, whose random bits the PTX ISA shows in pictures alone; numbers to S2_6, where it leaves open whether
what is too small becomes -127/64 or -128/64; FP4 merged with anything but RZ, and the scales of one byte, which no
compiled code has.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from turingas.emulate.arrays import Array
from turingas.emulate.build import Get, Maker, Step, semantics
from turingas.emulate.cohort import Cohort
from turingas.emulate.errors import Unsupported
from turingas.emulate.results import split
from turingas.emulate.semantics import formats
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
from turingas.isa.instruction import Instruction, Operand, Reg


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
    """Two floats packed into one register: .PACK_AB b below a; .MERGE_C b below a half of c; with formats of 8 bits and
    fewer b (and a above it) below a half of c; .UNPACK_B takes two such apart; .PACK_B rounds one to TF32."""
    mods = set(i.mods)
    if "RS" in mods:
        raise Unsupported(f"{i.name} (rounding by random bits)")
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
    if small == "S2_6" or mode not in (("RZ", "RP") if small == "E8" else ("RN", "RZ")) or small == "E8" and relu:
        raise Unsupported(i.name)
    if small in NARROW and NARROW[small].over is None and not satfinite:
        raise Unsupported(f"{i.name} without .SATFINITE")
    width = np.uint32(NARROW[small].packs if small in NARROW else 8)
    *floats, last = sources
    if width < 8 and not (isinstance(last, Reg) and last.zero):
        raise Unsupported(f"{i.name} with a last source that is not RZ")

    def code(x: Array) -> Array:
        if small == "E8":
            return to_scale(x, mode == "RP", satfinite)
        return encode(clamped(x, relu), small, satfinite, mode)

    c = upper_half(m, last)
    if "UNPACK_B_MERGE_C" in mods:
        raw = m.raw(floats[0])

        def both(k: Cohort) -> tuple[Array, Array]:
            halves = from_half(split(raw(k), np.uint16), to16)
            return halves[..., 0], halves[..., 1]
    else:
        above, below = (source(m, o, "F32") for o in floats)

        def both(k: Cohort) -> tuple[Array, Array]:
            return below(k), above(k)

    def merge(k: Cohort) -> None:
        low, high = both(k)
        put(k, code(low) | code(high) << width | c(k).astype(np.uint32) << np.uint32(16))

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
    part = getattr(scales[0], "suffix", "")
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
