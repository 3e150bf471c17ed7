"""What comparisons of floating-point numbers have in common, whatever the width of these."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from turingas.emulate.arrays import Array
from turingas.emulate.build import Maker
from turingas.emulate.cohort import Cohort
from turingas.isa.instruction import Imm, Instruction, Operand, Reg

#: comparisons: of two arrays; those with U are true for NaNs
COMPARE: dict[str, Callable[[Array, Array], Array]] = {
    "F": lambda a, b: np.zeros(np.broadcast_shapes(a.shape, b.shape), bool),
    "LT": lambda a, b: a < b,
    "EQ": lambda a, b: a == b,
    "LE": lambda a, b: a <= b,
    "GT": lambda a, b: a > b,
    "NE": lambda a, b: (a < b) | (a > b),
    "GE": lambda a, b: a >= b,
    "NUM": lambda a, b: (a == a) & (b == b),
    "NAN": lambda a, b: (a != a) | (b != b),
    "LTU": lambda a, b: ~(a >= b),
    "EQU": lambda a, b: ~((a < b) | (a > b)),
    "LEU": lambda a, b: ~(a > b),
    "GTU": lambda a, b: ~(a <= b),
    "NEU": lambda a, b: a != b,
    "GEU": lambda a, b: ~(a < b),
    "T": lambda a, b: np.ones(np.broadcast_shapes(a.shape, b.shape), bool),
}
BOOLEANS: dict[str, Callable[[Array, Array], Array]] = {
    "AND": lambda a, b: a & b,
    "OR": lambda a, b: a | b,
    "XOR": lambda a, b: a ^ b,
}


def comparison(i: Instruction) -> tuple[Callable[[Array, Array], Array], Callable[[Array, Array], Array]]:
    """The comparison and the boolean operation that modifiers name."""
    compare = next(COMPARE[mod] for mod in i.mods if mod in COMPARE)
    return compare, next(BOOLEANS[mod] for mod in i.mods if mod in BOOLEANS)


def put_two(i: Instruction, m: Maker, combine: Callable[[Array, Array], Array]) -> Callable[[Cohort, Array], None]:
    """Writes a comparison to Pu and its opposite to Pv, each combined with the last operand."""
    u, v, p = i.operands[0], i.operands[1], i.operands[-1]
    put_u, put_v, last = m.put(u), m.put(v), m.pred(p)
    two = not (isinstance(v, Reg) and v.zero)
    alone = isinstance(p, Reg) and p.zero and not p.inv and combine is BOOLEANS["AND"] and not two

    def put(k: Cohort, value: Array) -> None:
        if alone:
            put_u(k, value)
            return
        other = last(k)
        positive = combine(value, other)
        negative = combine(~value, other) if two else positive
        put_u(k, positive)
        put_v(k, negative)

    return put


def is_size(o: Operand) -> bool:
    """Whether an operand of .XORSIGN is |x|, or an immediate that is not negative."""
    if isinstance(o, Imm):
        return not o.bits & (0x80008000 if o.kind.endswith("x2") else 0x80000000)
    return getattr(o, "abs", False) and not getattr(o, "neg", False)
