"""Packed FP16 and BF16: two numbers of 16 bits in a register.

Everything is rounded once, to nearest. NaNs that are computed are 0x7fff in both formats (CUDART_NAN_FP16, PTX ISA). A
source picks its halves (``.H0_H0``); as "" it gives each half its own; ``.H0_NH1`` gives the upper result its lower
half and the lower one its upper half with the other sign (i times a complex number; measured on an H200). ``.F32``
behind a source (Volta and Turing) is one float32 for both, cut to 16 bits: ptxas writes PTX cvt.rz.f16.f32, and that
rounding alone, as its sum with -0; behind the mnemonic the lower result is widened to a
float32: it has been rounded to 16 bits before, as compilers write ``cvt.f32.f16`` of a product this way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from turingas.emulate.arrays import Array
from turingas.emulate.build import Get, Maker, Step, only, semantics
from turingas.emulate.cohort import Cohort
from turingas.emulate.errors import Unsupported
from turingas.emulate.rounding import (
    NAN16,
    NAN32,
    from_bf16,
    from_f16,
    round_bf16,
    round_f16,
    sum_to_odd,
)
from turingas.emulate.semantics.compare import BOOLEANS, COMPARE, comparison, is_size
from turingas.emulate.semantics.floating import ROUNDINGS, fma32
from turingas.isa.instruction import Instruction, Operand, Reg

SIGN, SIZE = np.uint16(0x8000), np.uint16(0x7FFF)
SIGNS, SIGN_LOW = 0x80008000, 0x00008000
ONE_LOW, LOW, HIGH = np.uint32(0x00010001), np.uint32(0xFFFF), np.uint32(16)
OFTEN = ("FTZ", "FMZ", "SAT", "RELU", "F32", "BF16_V2", "MMA", "OOB")  # modifiers of arithmetic
OUTSIDE = np.uint16(0x7FF7)  # with any sign: what tensor copies fill in for NaN, in either format


@dataclass(frozen=True)
class Format:
    """A format of 16 bits: how to read and round it, its exponent, 1, and the bits of its fraction."""

    read: Callable[[Array], Array]
    round: Callable[[Array], Array]
    exponent: np.uint16
    one: np.uint16
    digits: int

    @property
    def least(self) -> int:
        """The bits of the least normal number."""
        return 1 << self.digits


F16 = Format(from_f16, round_f16, np.uint16(0x7C00), np.uint16(0x3C00), 10)
BF16 = Format(from_bf16, round_bf16, np.uint16(0x7F80), np.uint16(0x3F80), 7)
LIFT = 12  # by how many powers of two a number is lifted to see whether it is tiny


def _format(i: Instruction) -> Format:
    return BF16 if "BF16_V2" in i.mods else F16


def _pairs(bits: Array) -> Array:
    """(n, 32) of 32 bits as (n, 32, 2) of 16: the lower half first."""
    return np.ascontiguousarray(bits)[..., None].view(np.uint16)


def _packed(pairs: Array) -> Array:
    return np.ascontiguousarray(pairs).view(np.uint32)[..., 0]


def flush(x: Array, form: Format) -> Array:
    return np.where(x & form.exponent == 0, x & SIGN, x)


def bits_of(m: Maker, o: Operand, signs: bool = True) -> Get:
    """A packed source with its choice of halves and, where ``signs``, its "-" and "|x|": (n, 32, 2) uint16."""
    get, suffix = m.raw(o), getattr(o, "suffix", "")
    neg, absolute = (signs and getattr(o, name, False) for name in ("neg", "abs"))
    flip = (SIGNS if neg else 0) ^ (SIGN_LOW if suffix == ".H0_NH1" else 0)
    if suffix not in ("", ".H0_H0", ".H1_H1", ".H0_NH1"):
        raise Unsupported(f"a source {suffix} of packed halves")

    def pairs(k: Cohort) -> Array:
        bits = get(k)
        if suffix == ".H0_H0":
            bits = (bits & LOW) * ONE_LOW
        elif suffix == ".H1_H1":
            bits = (bits >> HIGH) * ONE_LOW
        elif suffix == ".H0_NH1":
            bits = bits >> HIGH | bits << HIGH
        if absolute:
            bits = bits & ~np.uint32(SIGNS)
        if flip:
            bits = bits ^ np.uint32(flip)
        return _pairs(bits)

    return pairs


def value_of(m: Maker, o: Operand, form: Format, ftz: bool) -> Get:
    """A packed source as doubles, (n, 32, 2)."""
    if getattr(o, "suffix", "") == ".F32":
        single = m.f32(o)
        return lambda k: _cut(single(k).astype(np.float64))[..., None]
    bits = bits_of(m, o)
    if ftz:
        return lambda k: form.read(flush(bits(k), form))
    return lambda k: form.read(bits(k))


def _cut(x: Array) -> Array:
    """Doubles rounded to FP16 towards zero."""
    bits = round_f16(x)
    return from_f16(bits - (np.abs(from_f16(bits)) > np.abs(x)))


def _arithmetic(i: Instruction, m: Maker, sources: list[Operand], compute: Callable[[list[Array]], Array]) -> Step:
    """An instruction that computes doubles, exact or rounded to odd, from its sources."""
    only(i, *OFTEN)
    form, put = _format(i), m.put(i.operands[0])
    ftz = "FTZ" in i.mods or "FMZ" in i.mods
    sat, relu, widen = ("SAT" in i.mods, "RELU" in i.mods, "F32" in i.mods)
    get = [value_of(m, o, form, ftz) for o in sources]
    factors = [bits_of(m, o) for o in sources[:2]] if "OOB" in i.mods else []

    def step(k: Cohort) -> None:
        x = compute([g(k) for g in get])
        r = form.round(x)
        if ftz:  # below the least normal number when rounded as if exponents had no end, as FP32 (rounding.result32)
            tiny = (form.round(x * 2.0**LIFT) & SIZE) < form.least + (LIFT << form.digits)
            r = np.where(tiny, r & SIGN, r)
        if sat:
            value = form.read(r)
            r = np.where(value > 0, np.minimum(r, form.one), np.uint16(0))
        if relu:
            r = np.where(r & SIGN != 0, np.uint16(0), r)  # a NaN has no sign here
        for factor in factors:
            r = np.where(factor(k) & SIZE == OUTSIDE, np.uint16(0), r)
        r = np.broadcast_to(r, (*r.shape[:2], 2))
        if widen:
            low = form.read(np.ascontiguousarray(r[..., 0])).astype(np.float32)
            put(k, np.where(low != low, NAN32, low.view(np.uint32)))
        else:
            put(k, _packed(r))

    return step


def _product(i: Instruction) -> Callable[[Array, Array], Array]:
    if "FMZ" in i.mods:
        return lambda a, b: np.where((a == 0) | (b == 0), 0.0, a * b)
    return lambda a, b: a * b


def _sum(i: Instruction) -> Callable[[Array, Array], Array]:
    """A sum rounded to odd, where it must be. FP16 needs no care: when a sum of FP16 numbers or their products does
    not fit a double, the lesser part is far below half a unit of the greater, which is an FP16 number itself; or the
    greater is a product beyond the range of FP16."""
    return np.add if _format(i) is F16 else sum_to_odd


@semantics("HADD2")
def hadd2(i: Instruction, m: Maker) -> Step:
    """HADD2.F32 with -RZ, which changes nothing, is how compilers widen a half."""
    kept = [o for o in i.operands[1:3] if not (isinstance(o, Reg) and o.zero and o.neg and not o.abs)]
    if i.mods == ("F32",) and len(kept) == 1 and getattr(kept[0], "suffix", "") != ".F32":
        return _widen(m, i.operands[0], kept[0])
    add = _sum(i)
    return _arithmetic(i, m, list(i.operands[1:3]), lambda v: add(v[0], v[1]))


def _widen(m: Maker, target: Operand, source: Operand) -> Step:
    put, bits = m.put(target), half_of(m, source, getattr(source, "suffix", "") == ".H1_H1")

    def step(k: Cohort) -> None:
        r = bits(k).view(np.float16).astype(np.float32)
        if np.isnan(np.maximum.reduce(r, axis=None)):
            r = np.where(r != r, NAN32, r.view(np.uint32))
        put(k, r)

    return step


def half_of(m: Maker, o: Operand, upper: bool) -> Get:
    """The upper or the lower half of a source with its signs, (n, 32) uint16."""
    get = m.raw(o)
    absolute, neg = getattr(o, "abs", False), getattr(o, "neg", False)

    def half(k: Cohort) -> Array:
        bits = (get(k) >> HIGH if upper else get(k)).astype(np.uint16)
        if absolute:
            bits &= SIZE
        if neg:
            bits ^= SIGN
        return bits

    return half


@semantics("HMUL2")
def hmul2(i: Instruction, m: Maker) -> Step:
    product = _product(i)
    return _arithmetic(i, m, list(i.operands[1:3]), lambda v: product(*v))


@semantics("HFMA2")
def hfma2(i: Instruction, m: Maker) -> Step:
    """.MMA names the unit that computes it; the result is the same. .RELU: what is below zero becomes +0.
    .OOB: the result is +0 where a factor is 0x7FF7 or 0xFFF7, whatever the other sources (an H100, of all 16 bits); of
    no other NaN, and not where the addend is."""
    for o in i.operands[4:]:
        if not (isinstance(o, Reg) and o.zero and not o.inv):
            raise Unsupported(f"HFMA2 with a predicate {o}")
    product, add = _product(i), _sum(i)
    return _arithmetic(i, m, list(i.operands[1:4]), lambda v: add(product(v[0], v[1]), v[2]))


# ---- choosing and comparing


def _order(x: Array) -> Array:
    """16 bits of either format as int16 in the order of the numbers, -0 before +0."""
    bits = x.view(np.int16)
    return bits ^ ((bits >> np.int16(15)) & np.int16(0x7FFF))


def _choose(x: Array, y: Array, least: Array, nan: bool, form: Format) -> Array:
    no_x, no_y = x & SIZE > form.exponent, y & SIZE > form.exponent
    first = ~no_x & (no_y | ((_order(x) < _order(y)) == least))
    return np.where(no_x | no_y if nan else no_x & no_y, NAN16, np.where(first, x, y))


@semantics("HMNMX2", "VHMNMX")
def hmnmx2(i: Instruction, m: Maker) -> Step:
    """The least (predicate true) or the greatest of two sources, or of three (VHMNMX); -0 < +0. As FMNMX with NaNs and
    .XORSIGN."""
    only(i, "FTZ", "NAN", "XORSIGN", "BF16_V2")
    form, put, p = _format(i), m.put(i.operands[0]), m.pred(i.operands[-1])
    sources = i.operands[1:-1]
    ftz, nan, xorsign = (mod in i.mods for mod in ("FTZ", "NAN", "XORSIGN"))
    if xorsign and not (len(sources) == 2 and all(map(is_size, sources))):
        raise Unsupported(f"{i.base}.XORSIGN of other than two |x|")
    get = [bits_of(m, o) for o in sources]
    raw = [bits_of(m, o, signs=False) for o in sources]

    def step(k: Cohort) -> None:
        least = p(k)[..., None]
        values = [flush(g(k), form) if ftz else g(k) for g in get]
        r = values[0]
        for value in values[1:]:
            r = _choose(r, value, least, nan, form)
        if xorsign:
            r = np.where(r == NAN16, r, r ^ ((raw[0](k) ^ raw[1](k)) & SIGN))
        put(k, _packed(r))

    return step


def _compared(i: Instruction, m: Maker, a: Operand, b: Operand) -> Get:
    """The comparison of both halves, (n, 32, 2) bool."""
    compare, _ = comparison(i)
    form, ftz = _format(i), "FTZ" in i.mods
    x, y = value_of(m, a, form, ftz), value_of(m, b, form, ftz)
    return lambda k: compare(x(k), y(k))


@semantics("HSET2")
def hset2(i: Instruction, m: Maker) -> Step:
    """Each half: all bits set, or with .BF 1.0; or else zero."""
    only(i, *COMPARE, *BOOLEANS, "FTZ", "BF", "BF16_V2")
    put, p = m.put(i.operands[0]), m.pred(i.operands[3])
    compared, (_, combine) = _compared(i, m, *i.operands[1:3]), comparison(i)
    true = _format(i).one if "BF" in i.mods else np.uint16(0xFFFF)

    def step(k: Cohort) -> None:
        r = np.where(combine(compared(k), p(k)[..., None]), true, np.uint16(0))
        put(k, _packed(np.broadcast_to(r, (*r.shape[:2], 2))))

    return step


@semantics("HSETP2")
def hsetp2(i: Instruction, m: Maker) -> Step:
    """Pu is of the lower half, Pv of the upper one; with .H_AND Pu is of both together, and Pv of its opposite."""
    only(i, *COMPARE, *BOOLEANS, "FTZ", "H_AND", "BF16_V2")
    put_u, put_v, p = m.put(i.operands[0]), m.put(i.operands[1]), m.pred(i.operands[4])
    compared, (_, combine) = _compared(i, m, *i.operands[2:4]), comparison(i)
    both = "H_AND" in i.mods

    def step(k: Cohort) -> None:
        pairs = compared(k)
        low, high = pairs[..., 0], pairs[..., -1]
        if both:
            low, high = low & high, ~(low & high)
        other = p(k)
        u, v = combine(low, other), combine(high, other)  # both before Pu, which may be the source p too
        put_u(k, u)
        put_v(k, v)

    return step


# ---- FP32 with halves ------------------------------------------------------------------------------------------------


@semantics("FHADD", "FHFMA")
def with_halves(i: Instruction, m: Maker) -> Step:
    """FADD and FFMA with halves of registers (.H1 the upper one), FP16 or .BF16, as factors or first term."""
    only(i, *ROUNDINGS, "BF16", "SAT")
    d, *sources = i.operands
    put, exact, adds = m.put(d), fma32(i), i.base == "FHADD"
    halves = [_one_half(m, o, "BF16" in i.mods) for o in sources[:-1]]
    last = m.f32(sources[-1])
    one = np.ones((1, 1), np.float32)

    def step(k: Cohort) -> None:
        put(k, exact([halves[0](k), one if adds else halves[1](k), last(k)]))

    return step


def _one_half(m: Maker, o: Operand, bfloat: bool) -> Get:
    """A half of a register as float32, with its signs."""
    raw, upper = m.raw(o), "H1" in getattr(o, "suffix", "")

    def get(k: Cohort) -> Array:
        bits = raw(k) >> np.uint32(16) if upper else raw(k) & np.uint32(0xFFFF)
        if bfloat:
            value = (bits << np.uint32(16)).view(np.float32)
        else:
            value = bits.astype(np.uint16).view(np.float16).astype(np.float32)
        if getattr(o, "abs", False):
            value = np.abs(value)
        return -value if getattr(o, "neg", False) else value

    return get
