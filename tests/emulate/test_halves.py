"""Packed FP16 and BF16 against exact arithmetic (``ieee.py``)."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from tests.emulate import ieee
from tests.emulate.step import Result
from tests.emulate.step import run as run_words
from tests.emulate.test_floating import bits_of, same
from turingas.emulate.build import Unsupported

NAN = 0x7FFF
FORMATS = {"": ieee.F16, ".BF16_V2": ieee.BF16}
EDGES = {
    "": [0, 1, 0x3FF, 0x400, 0x401, 0x1400, 0x3BFF, 0x3C00, 0x3C01, 0x6400, 0x7BFF, 0x7C00, 0x7C01, 0x7E00],
    ".BF16_V2": [0, 1, 0x7F, 0x80, 0x81, 0x3B80, 0x3F7F, 0x3F80, 0x3F81, 0x4300, 0x7F7F, 0x7F80, 0x7F81, 0x7FC0],
}


@functools.cache
def operands(name: str, count: int = 64 * 6) -> list[np.ndarray]:
    """Three sources of 16 bits: any, near each other, and a sum near halfway between two results."""
    form = FORMATS[name]
    rng = np.random.default_rng(4)
    mixed = [bits_of(rng, count, form, EDGES[name]) for _ in range(3)]
    # c + a * b with the product about half a unit of c, or far below a product that lies halfway
    width, digits = form
    bias = (1 << width - 1) - 1
    fraction = rng.integers(0, 1 << digits, (3, count)).astype(np.uint64)
    few = rng.integers(0, 3, (2, count)).astype(np.uint64)
    one = np.uint64(bias << digits)
    down = np.uint64(digits + 1 << digits)
    fraction[1, ::2] = 1 << digits - 1  # 1.5 times anything often lies halfway
    near = [one - down + few[0], one + few[1], one + fraction[2]]
    halfway = [one | fraction[0], one | fraction[1], (rng.integers(1, bias - 4, count).astype(np.uint64) << digits)]
    signs = [rng.integers(0, 2, count, dtype=np.uint64) << np.uint64(15) for _ in range(3)]
    sources = [np.concatenate([x, y ^ s, z ^ s]) for x, y, z, s in zip(mixed, near, halfway, signs)]
    return [x.astype(np.uint16) for x in sources]


def run(text: str, arch: str = "sm_75", regs: Mapping[int, Any] = {}, **more: Any) -> Result:
    """``step.run`` with arrays of halves, two a register, the lower one first."""
    words = {n: v.view(np.uint32) if isinstance(v, np.ndarray) else v for n, v in regs.items()}
    return run_words(text, arch, regs=words, **more)


def arch_of(name: str) -> str:
    return "sm_90" if name else "sm_75"


@pytest.mark.parametrize("flush", ["", ".FTZ", ".FMZ"])
@pytest.mark.parametrize("last", ["", ".SAT", ".RELU"])
@pytest.mark.parametrize("name", FORMATS)
def test_hfma2(name: str, flush: str, last: str) -> None:
    form, (a, b, c) = FORMATS[name], operands(name)
    arch = "sm_90" if name or last == ".RELU" else "sm_75"
    got = run(f"HFMA2{name}{flush}{last} R3, R0, R1, R2", arch, regs={0: a, 1: b, 2: c}).r(3, np.uint16)
    ftz = bool(flush)
    expected = []
    for x, y, z in zip(a.tolist(), b.tolist(), c.tolist()):
        if ftz:
            x, y, z = (ieee.flushed(v, form) for v in (x, y, z))
        r = ieee.finished(ieee.fma(x, y, z, form, fmz=flush == ".FMZ"), form, NAN, ftz, last == ".SAT")
        expected.append(0 if last == ".RELU" and r >> 15 else r)
    same(got, expected, a, b, c)
    if name or last == ".RELU":
        unit = run(f"HFMA2.MMA{name}{flush}{last} R3, R0, R1, R2", arch, regs={0: a, 1: b, 2: c}).r(3, np.uint16)
        assert (unit == got).all()


def test_double_rounding_would_be_seen() -> None:
    """A product and sum of BF16 in float32, as one would write it, gives other results for the operands above."""
    a, b, c = operands(".BF16_V2")
    wide = [(x.astype(np.uint32) << np.uint32(16)).view(np.float32) for x in (a, b, c)]
    with np.errstate(all="ignore"):
        bits = (wide[0] * wide[1] + wide[2]).view(np.uint32)
    twice = (bits + 0x7FFF + (bits >> np.uint32(16) & 1)) >> np.uint32(16)
    right = run("HFMA2.BF16_V2 R3, R0, R1, R2", "sm_90", regs={0: a, 1: b, 2: c}).r(3, np.uint16)
    assert np.count_nonzero((twice != right) & (right != NAN)) > 20


@pytest.mark.parametrize("flush", ["", ".FTZ"])
@pytest.mark.parametrize("sat", ["", ".SAT"])
@pytest.mark.parametrize("name", FORMATS)
def test_hadd2_and_hmul2(name: str, flush: str, sat: str) -> None:
    form, (a, _, c) = FORMATS[name], operands(name)
    one, ftz = EDGES[name][7], bool(flush)
    sources = [[ieee.flushed(v, form) if ftz else v for v in x.tolist()] for x in (a, c)]
    got = run(f"HADD2{name}{flush}{sat} R3, R0, R1", arch_of(name), regs={0: a, 1: c}).r(3, np.uint16)
    sums = [ieee.fma(x, one, y, form) for x, y in zip(*sources)]
    same(got, [ieee.finished(r, form, NAN, ftz, bool(sat)) for r in sums], a, c)
    got = run(f"HMUL2{name}{flush}{sat} R3, R0, R1", arch_of(name), regs={0: a, 1: c}).r(3, np.uint16)
    products = [ieee.fma(x, y, (x ^ y) & 0x8000, form) for x, y in zip(*sources)]
    same(got, [ieee.finished(r, form, NAN, ftz, bool(sat)) for r in products], a, c)


def pair(low: float, high: float) -> int:
    return int(np.array([low, high], np.float16).view(np.uint32)[0])


def halves(text: str, arch: str = "sm_75", **regs: int) -> list[float]:
    """The two halves of R9."""
    return run(text, arch, regs={int(k[1:]): v for k, v in regs.items()}).r(9, np.float16)[:2].tolist()


def test_choice_of_halves_and_signs() -> None:
    a, b = pair(1, 2), pair(10, -20)
    assert halves("HADD2 R9, R0, R1", r0=a, r1=b) == [11, -18]
    assert halves("HADD2 R9, R0.H0_H0, R1", r0=a, r1=b) == [11, -19]
    assert halves("HADD2 R9, R0.H1_H1, -R1.H0_H0", r0=a, r1=b) == [-8, -8]
    assert halves("HADD2 R9, -R0, |R1|", r0=a, r1=b) == [9, 18]
    assert halves("HADD2 R9, R0, -|R1|.H1_H1", r0=a, r1=b) == [-19, -18]
    assert halves("HMUL2 R9, R0, 0.5, 4", r0=a) == [4, 1]  # the upper half is written first
    assert halves("HFMA2 R9, R0, R1.H0_NH1, R1.H0_H0", "sm_90", r0=a, r1=b) == [30, 30]  # as an H200 does
    assert halves("HFMA2.MMA R9, -RZ, RZ, 1.5, 5.9604644775390625e-08", "sm_80") == [2.0**-24, 1.5]


def test_a_float32_source_is_cut() -> None:
    """As ptxas needs it for cvt.rz.f16.f32, before Ampere."""
    for x, cut in ((1 + 2.0**-11 + 2.0**-20, 1), (-1e6, -65504), (2.0**-25 + 2.0**-30, 0), (np.inf, np.inf)):
        bits = int(np.float32(x).view(np.uint32))
        assert halves("HADD2 R9, R0.F32, -RZ.H0_H0", r0=bits) == [cut, cut]
    x = int(np.float32(1 + 2.0**-11 + 2.0**-20).view(np.uint32))
    assert halves("HADD2 R9, R0.F32, R1", r0=x, r1=pair(1, 2)) == [2, 3]


def test_widened_result_has_been_rounded() -> None:
    out = run("HMUL2.F32 R9, R0.H1_H1, R1.H0_H0", regs={0: pair(0, 1 + 2.0**-10), 1: pair(1 + 2.0**-10, 0)})
    assert out.r(9, np.float32)[0] == 1 + 2.0**-9
    for arch in ("sm_75", "sm_90"):
        text = "HADD2.F32 R9, R0.H1_H1, -RZ.H0_H0" if arch == "sm_75" else "HADD2.F32 R9, -RZ, R0.H1_H1"
        every = np.arange(65536, dtype=np.uint16).view(np.float16)
        sources = np.stack([np.zeros_like(every), every], axis=1).reshape(-1)
        got = run(text, arch, regs={0: sources}).r(9)
        with np.errstate(invalid="ignore"):
            expected = np.where(np.isnan(every), np.uint32(0x7FFFFFFF), every.astype(np.float32).view(np.uint32))
        assert (got == expected).all()


@pytest.mark.parametrize("nan", ["", ".NAN"])
@pytest.mark.parametrize("least", [True, False])
@pytest.mark.parametrize("name", FORMATS)
def test_hmnmx2(name: str, least: bool, nan: str) -> None:
    form, (a, b, c) = FORMATS[name], operands(name)
    pred = "PT" if least else "!PT"
    got = run(f"HMNMX2{name}{nan} R3, R0, R1, {pred}", "sm_90", regs={0: a, 1: b}).r(3, np.uint16)
    two = [ieee.chosen(x, y, form, least, NAN, bool(nan)) for x, y in zip(a.tolist(), b.tolist())]
    same(got, two, a, b)
    got = run(f"VHMNMX{name}{nan} R3, R0, R1, R2, {pred}", "sm_90", regs={0: a, 1: b, 2: c}).r(3, np.uint16)
    same(got, [ieee.chosen(x, y, form, least, NAN, bool(nan)) for x, y in zip(two, c.tolist())], a, b, c)


def test_xorsign() -> None:
    text = "HMNMX2.XORSIGN R9, |R0|, |R1|, PT"
    assert halves(text, "sm_90", r0=pair(3, -3), r1=pair(-2, -4)) == [-2, 3]
    with pytest.raises(Unsupported, match="XORSIGN"):
        halves("HMNMX2.XORSIGN R9, R0, |R1|, PT", "sm_90")
    assert halves("HMNMX2.XORSIGN R9, |R0|, 2, 5, PT", "sm_90", r0=pair(3, -3)) == [3, -2]
    with pytest.raises(Unsupported, match="XORSIGN"):
        halves("HMNMX2.XORSIGN R9, |R0|, 2, -5, PT", "sm_90")


@pytest.mark.parametrize("compare", ieee.COMPARISONS)
@pytest.mark.parametrize("name", FORMATS)
def test_comparisons(name: str, compare: str) -> None:
    form, arch = FORMATS[name], arch_of(name)
    edges = np.array([e | s for e in EDGES[name] for s in (0, 0x8000)], np.uint16)
    a, b = (x.reshape(-1)[: 64 * 12] for x in np.meshgrid(edges, edges))
    true = [ieee.relation(x, y, form) in ieee.COMPARISONS[compare] for x, y in zip(a.tolist(), b.tolist())]
    value = np.array(true)
    other = np.arange(a.size // 2) % 3 == 0
    both = np.repeat(other, 2)
    for boolean, combine in (("AND", np.logical_and), ("OR", np.logical_or), ("XOR", np.logical_xor)):
        tail = f".{boolean}"
        out = run(f"HSETP2{name}.{compare}{tail} P1, P2, R0, R1, P3", arch, regs={0: a, 1: b}, preds={3: other})
        assert (out.p(1) == combine(value[::2], other)).all()
        assert (out.p(2) == combine(value[1::2], other)).all()
        together = value[::2] & value[1::2]
        out = run(f"HSETP2{name}.{compare}.H_AND{tail} P1, P2, R0, R1, P3", arch, regs={0: a, 1: b}, preds={3: other})
        assert (out.p(1) == combine(together, other)).all()
        assert (out.p(2) == combine(~together, other)).all()
        out = run(f"HSET2{name}.{compare}{tail} R3, R0, R1, P3", arch, regs={0: a, 1: b}, preds={3: other})
        assert (out.r(3, np.uint16) == np.where(combine(value, both), 0xFFFF, 0)).all()
        out = run(f"HSET2{name}.BF.{compare}{tail} R3, R0, R1, P3", arch, regs={0: a, 1: b}, preds={3: other})
        assert (out.r(3, np.uint16) == np.where(combine(value, both), EDGES[name][7], 0)).all()


def test_predicate_that_is_source_and_result() -> None:
    """The second result takes the predicate as it was, not as the first result leaves it."""
    for first, second in ((1, 3), (3, 1)):
        text = f"HSETP2.LT.OR P{first}, P{second}, R0, R1, P3"
        out = run(text, regs={0: pair(0, 2), 1: pair(1, 1)}, preds={3: 0})
        assert out.p(first).all() and not out.p(second).any()


def test_compared_with_two_immediates() -> None:
    """As in hsin of cuda_fp16: the predicate that is named first is of the half that is written last."""
    source = pair(300, 0)
    out = run("HSETP2.EQ.AND P3, P2, |R0|.H0_H0, 300, 0.5, PT", regs={0: source})
    assert out.p(2).all() and not out.p(3).any()


@pytest.mark.parametrize(("kind", "form"), [("F16", ieee.F16), ("BF16", ieee.BF16)])
@pytest.mark.parametrize(("name", "function"), [("TANH", math.tanh), ("EX2", lambda v: 2.0**v)])
def test_mufu(kind: str, form: ieee.Format, name: str, function: object) -> None:
    values = np.linspace(-7, 7, 32 * 12).astype(np.float32)
    bits = values.astype(np.float16).view(np.uint16) if kind == "F16" else values.view(np.uint32) >> np.uint32(16)
    low, high = bits.astype(np.uint32), bits[::-1].astype(np.uint32) << np.uint32(16)
    bound = {("TANH", "F16"): 2**-10.987, ("TANH", "BF16"): 2**-8, ("EX2", "F16"): 2**-9.9, ("EX2", "BF16"): 2**-7}
    for half, sources in (("", bits), (".H1", bits[::-1])):
        got = run(f"MUFU.{name}.{kind} R3, R0{half}", "sm_90", regs={0: low | high}).r(3)
        assert (got < 0x10000).all()
        for x, r in zip(sources.tolist(), got.tolist()):
            sign, size = ieee.parts(x, form)
            exact = function(sign * float(size))  # type: ignore[operator]
            sign, size = ieee.parts(r, form)
            scale = 1 if name == "TANH" else exact
            assert abs(sign * float(size) - exact) <= bound[name, kind] * scale, (hex(x), hex(r))


@pytest.mark.parametrize("kind", [".OOB", ".BF16_V2.OOB", ".OOB.RELU"])
@pytest.mark.parametrize(("which", "zeros"), [(0, 524352), (1, 524352), (2, 1048576)])
def test_out_of_bounds(kind: str, which: int, zeros: int) -> None:
    """``fma.rn.oob`` of all 16 bits as one source and 40 pairs as the others: an H100 gave +0 ``zeros`` times where it
    would not be so without .OOB, and was the same elsewhere. 0x7FF7 and 0xFFF7 are 64 of them as a factor that runs."""
    others = (0x3C00, 0x4100, 0xBC00, 0x7C00, 0x7E00, 0x7FFF, 0x7FF7, 0xFFF7, 0x0000, 0x8000)
    differ, every = 0, np.arange(1 << 16, dtype=np.uint16)
    for y in others:
        for z in others[::3]:
            sources = [np.full_like(every, y), np.full_like(every, z)]
            sources.insert(which, every)
            regs = dict(enumerate(sources))
            got = run(f"HFMA2{kind} R3, R0, R1, R2", "sm_90", regs=regs).r(3)
            plain = run(f"HFMA2{kind.replace('.OOB', '')} R3, R0, R1, R2", "sm_90", regs=regs).r(3)
            out = (sources[0] & 0x7FFF == 0x7FF7) | (sources[1] & 0x7FFF == 0x7FF7)
            assert (got.view(np.uint16) == np.where(out, 0, plain.view(np.uint16))).all()
            differ += int((got.view(np.uint16) != plain.view(np.uint16)).sum())
    assert differ == zeros


def test_what_is_unknown_is_said() -> None:
    with pytest.raises(Unsupported, match="predicate P1"):
        run("HFMA2.RELU R3, R0, R1, R2, P1", "sm_90")
