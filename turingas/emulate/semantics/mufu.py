"""MUFU, the functions of the multi-function unit: of float32, of the upper half of a double, of FP16 and BF16."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from turingas.emulate.arrays import Array
from turingas.emulate.build import Maker, Put, Step, only, semantics
from turingas.emulate.cohort import Cohort
from turingas.emulate.rounding import NAN32, finish32, flush32
from turingas.emulate.semantics.halves import BF16, F16, flush, half_of
from turingas.isa.instruction import Instruction


def _sine_of_turns(x: Array) -> Array:
    """sin(2 pi x); exact zeros where there should be, with the sign of x (measured on an H200)."""
    negative = np.signbit(x)
    x = np.where(x == 0, x, x - np.rint(x))
    x = np.where(np.abs(x) > 0.25, np.copysign(0.5, x) - x, x)
    value = np.sin(2 * np.pi * x)
    return np.where(value == 0, np.where(negative, -0.0, 0.0), value)


def _cosine_of_turns(x: Array) -> Array:
    """cos(2 pi x); its zeros are negative where it falls, seen from 0 (measured on an H200)."""
    value = _sine_of_turns(0.25 - np.abs(x - np.rint(x)))
    return np.where((value == 0) & (np.abs(x) % 1 < 0.5), -0.0, value)


#: of doubles
FUNCTIONS: dict[str, Callable[[Array], Array]] = {
    "COS": _cosine_of_turns,
    "SIN": _sine_of_turns,
    "EX2": np.exp2,
    "LG2": np.log2,
    "RCP": lambda x: 1 / x,
    "RSQ": lambda x: 1 / np.sqrt(x),
    "SQRT": np.sqrt,
    "TANH": np.tanh,
}


@semantics("MUFU")
def mufu(i: Instruction, m: Maker) -> Step:
    """Functions of the multi-function unit: here the exact value, rounded once to nearest. Hardware approximates, and
    its tables are not published; PTX ISA and CUDA programming guide bound its error against the exact value. The last
    column is the largest error of an H200 among 131072 sources each (tests/gpu/test_instructions.py):

    ======  ==================================================  =================
    RCP     1 ulp                                               2^-23.3
    RSQ     2^-22.9 relative                                    2^-22.99
    SQRT    2^-23 relative                                      2^-23.2
    LG2     2^-22 absolute for x in [0.5, 2], relative else     2^-22.2, 2^-22.3
    EX2     2^-22 relative                                      2^-22.7
    SIN     2^-20.9 absolute for angles in [-pi, pi]; so COS    2^-21.4
    TANH    2^-11 relative                                      2^-16.5
    RCP64H  2^-20 relative, not documented; so RSQ64H           2^-20.04
    ======  ==================================================  =================

    To FP16 and BF16 the value is cut, not rounded (measured): EX2 is exact then, TANH nearly so.

    SIN and COS take turns: compilers multiply the angle by 1 / (2 pi) first. Denormal sources and results are flushed,
    but for TANH; compilers scale operands for that. RCP64H and RSQ64H take and give the upper 32 bits of a double (PTX
    rcp.approx.ftz.f64), 20 bits of fraction, cut as well.
    """
    halves = next((mod for mod in i.mods if mod in ("F16", "BF16", "F16x2", "BF16x2")), "")
    if halves:
        return _mufu_of_halves(i, m, halves)
    name = i.mods[0]
    put = m.put(i.operands[0])
    if name in ("RCP64H", "RSQ64H"):
        return _mufu_of_double(i, m, put, FUNCTIONS[name[:3]])
    only(i, *FUNCTIONS)
    get, function = m.f32(i.operands[1]), FUNCTIONS[name]
    ftz = name != "TANH"

    def step(k: Cohort) -> None:
        x = get(k)
        if ftz:
            x = flush32(x)
        put(k, finish32(function(x.astype(np.float64)).astype(np.float32), ftz))

    return step


def _mufu_of_double(i: Instruction, m: Maker, put: Put, function: Callable[[Array], Array]) -> Step:
    o = i.operands[1]
    # an immediate is a double, of which the word holds the upper half
    get = m.f32(o)
    exponent, sign = np.uint64(0x7FF << 52), np.uint64(1 << 63)

    def flush(x: Array) -> Array:
        bits = x.view(np.uint64)
        return np.where(bits & exponent == 0, bits & sign, bits).view(np.float64)

    def step(k: Cohort) -> None:
        x = flush((get(k).view(np.uint32).astype(np.uint64) << np.uint64(32)).view(np.float64))
        r = function(x)
        cut = flush(r).view(np.uint64) >> np.uint64(32)
        put(k, np.where(r != r, NAN32, cut.astype(np.uint32)))

    return step


def _mufu_of_halves(i: Instruction, m: Maker, name: str) -> Step:
    """MUFU.EX2.F16, MUFU.TANH.BF16 ...: of the lower half (or with .H1 the upper one) to the lower half; the upper one
    becomes zero. The value is cut, not rounded (measured on an H200, with all sources: EX2 agrees in all bits). BF16's
    EX2 flushes denormals (PTX has only ex2.approx.ftz.bf16). .F16x2 and .BF16x2 (sm_103) count as two of these."""
    form = F16 if name.startswith("F16") else BF16
    function, o, put = FUNCTIONS[i.mods[0]], i.operands[1], m.put(i.operands[0])
    exponential = i.mods[0] == "EX2"
    ftz = form is BF16 and i.mods[0] != "TANH"

    def one(bits: Array) -> Array:
        x = flush(bits, form) if ftz else bits
        value = form.read(x)
        if exponential:  # what is lost on the way to fixed point
            value = np.where(np.abs(value) < 2.0**-23, 0.0, value)
        exact = function(value).astype(np.float32).astype(np.float64)  # TANH is not that exact
        r = form.round(exact)
        near = np.abs(form.read(r))
        r = (r - ((near > np.abs(exact)) & np.isfinite(near))).astype(np.uint16)
        return (flush(r, form) if ftz else r).astype(np.uint32)

    if name.endswith("x2"):
        low, high = half_of(m, o, False), half_of(m, o, True)
        return lambda k: put(k, one(low(k)) | one(high(k)) << np.uint32(16))
    half = half_of(m, o, getattr(o, "suffix", "") == ".H1")
    return lambda k: put(k, one(half(k)))
