"""How steps write their results: straight into a register where no mask forbids it, and with few passes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from turingas.emulate.arrays import ZERO, Array
from turingas.emulate.build import Get, Maker, Put, Step
from turingas.emulate.cohort import Cohort
from turingas.isa.instruction import Imm, Operand, Reg

Out = Callable[[Cohort, Any], Array]  # computes a value, into the array given or, for None, into one of its own


def _row(k: Cohort, file: Array, index: int) -> Array | None:
    """The row of a register file as ``out=`` of numpy; None where only some lanes may be written."""
    return file[index][k.rows] if k.mask is None and isinstance(k.rows, slice) else None


def emit(m: Maker, d: Operand, value: Out) -> Step:
    """The step that computes ``value`` and writes it to ``d``, without a copy where that is allowed."""
    assert isinstance(d, Reg), d
    index = d.index
    if d.file in ("R", "P") and not d.zero:
        general = d.file == "R"

        def step(k: Cohort) -> None:
            out = _row(k, k.wave.R if general else k.wave.P, index)
            if out is not None:
                value(k, out)
            elif general:
                k.set_r(index, value(k, None))
            else:
                k.set_p(index, value(k, None))

        return step
    put = m.put(d)
    return lambda k: put(k, value(k, None))


def copied(get: Get) -> Out:
    """A value that is already there."""

    def value(k: Cohort, out: Any) -> Array:
        if out is None:
            return get(k)
        np.copyto(out, get(k))
        return out

    return value


def applied(f: Any, *gets: Get) -> Out:
    """A numpy function of values."""
    if len(gets) == 1:
        (a,) = gets
        return lambda k, out: f(a(k), out=out)
    a, b = gets
    return lambda k, out: f(a(k), b(k), out=out)


def constant(value: Array) -> Get:
    """A getter that gives one array."""
    return lambda k: value


def is_zero(o: Operand) -> bool:
    """Whether an operand adds nothing: RZ, URZ or 0 (but ~RZ is -1)."""
    if isinstance(o, Reg):
        return o.zero and not o.inv
    return isinstance(o, Imm) and o.bits == 0


def is_one(o: Operand) -> bool:
    """Whether an operand is the immediate 1."""
    return isinstance(o, Imm) and o.bits == 1


def is_pt(o: Operand, inverted: bool = False) -> bool:
    """Whether a predicate is PT (or !PT)."""
    return isinstance(o, Reg) and o.zero and o.inv == inverted


def select(p: Array, a: Array, b: Array, out: Any = None) -> Array:
    """``a`` where ``p``, else ``b``, both uint32; several times as fast as numpy.where on predicates that vary."""
    if p.shape[-1] == 1:
        value = np.where(p, a, b)
        if out is not None:
            out[...] = value
        return value
    ones = p.astype(np.uint32)
    if b is ZERO:
        return np.bitwise_and(np.negative(ones, out=ones), a, out=out)
    if a is ZERO:
        return np.bitwise_and(np.subtract(ones, np.uint32(1), out=ones), b, out=out)
    mask = np.bitwise_and(np.negative(ones, out=ones), np.bitwise_xor(a, b))
    return np.bitwise_xor(mask, b, out=out)


def u64(m: Maker, o: Operand) -> Get:
    """A pair of registers as uint64, with its sign; one pass a half."""
    if not isinstance(o, Reg) or o.zero:
        return m.u64(o)
    low, high = m.raw(Reg(o.file, o.index)), m.raw(Reg(o.file, o.index + 1))

    def get(k: Cohort) -> Array:
        a = low(k)
        both = np.empty((*a.shape, 2), np.uint32)
        both[..., 0], both[..., 1] = a, high(k)
        return both.view(np.uint64)[..., 0]

    return signed_term(get, o)


def signed_term(get: Get, o: Operand) -> Get:
    """A getter with the ``~`` or ``-`` of its operand."""
    if getattr(o, "inv", False):
        return lambda k: ~get(k)
    if getattr(o, "neg", False):
        return lambda k: -get(k)
    return get


def put64(m: Maker, o: Operand) -> Put:
    """Writes 64 bits (a new array of uint64, int64 or float64) to a pair of registers."""
    assert isinstance(o, Reg), o
    if o.zero:
        return lambda k, value: None
    low, high = m.put(o), m.put(Reg(o.file, o.index + 1))

    def put(k: Cohort, value: Array) -> None:
        halves = value.view(np.uint32)
        low(k, halves[:, 0::2])
        high(k, halves[:, 1::2])

    return put


def split(a: Array, dtype: Any) -> Array:
    """The parts of 32-bit values along a new last axis, the lowest first."""
    return np.ascontiguousarray(a).view(dtype).reshape(*a.shape, -1)


def joined(parts: Array) -> Array:
    """What ``split`` took apart, as uint32."""
    return np.ascontiguousarray(parts).view(np.uint32)[..., 0]
