"""THE table: how every instruction is written and where its bits lie. The only home of encoding facts.

A row is ``(text, opcode, fixed, architectures)`` and, where it needs them, fields of its own::

    ("FFMA{fmz}{rnd}{sat} Rd, -|Ra|, -|Fb|, -|Fc|", 0x023, {}, ALL)

text
    The mnemonic with its modifiers (``{name}`` stands for an Enum field), then the operands.
    ``Rd Ra Rb Rc`` are general registers at bits 16, 24, 32, 64; ``URd`` ... uniform registers and ``Pu Pv Pp Pq``
    predicates (81, 84, 87, 68). A digit says how many registers the operand spans (``Ra2``: 64 bits, even),
    ``w`` that the size modifier says it.
    ``-Ra``  ``|Ra|``  ``~Ra``  ``!Pp``: the operand may carry that sign; a name alone carries none.
    The sources b and c that may be register, immediate, constant or uniform register begin with a letter of their
    own, which says how an immediate is written: ``S`` unsigned, ``I`` signed, ``F`` float, ``D`` double, ``H`` and
    ``B`` packed FP16 and BF16 with a choice of halves, ``P`` and ``Q`` the same without it (``Sb``, ``Fc``, ``-|Hb|``
    ...). SHAPES says how each combination is encoded; ``DC`` is a source c that stands at 64 though it is alone.
    ``Rb_c`` is operand b at the place of c.
    ``(...)`` is not written when all its fields have their default; ``Pu?`` is such an operand; ``<...>`` is text
    that nvdisasm does not print. Every other character stands for itself.
opcode
    Bits 0 to 8 for rows with such a source (the shape gives bits 9 to 11), else bits 0 to 11. 0x1000 stands for bit
    91.
fixed
    ``{bit: value}`` for bits that are set in every word of the row. A name as key is a condition on a field of the
    row: ``{"Ra": "RZ"}``; a row with conditions stands before the row it is an alias of. ``"without"`` names shapes
    (their opcode bits) that the instruction lacks; ``"reuse": False`` says that its sources have no reuse flags, and
    ``"guard": "P"`` or ``"UP"`` which predicates guard it, where that does not follow from the opcode and the name.
architectures
    A set: ``AMPERE`` is sm_80 and all that descend from it, ``AMPERE - HOPPER`` those before Hopper (isa/arch.py).

Sources of the facts: the layout of the word and the control code, Yan, Wang, Chu 2020, section 5.1; everything else was
probed: words that differ in one bit were given to nvdisasm 12.4 (sm_70) and 13.5 (sm_75 to sm_90a), and every row was compared
with it on NVIDIA's library code and on random words (tests/isa).
"""

from turingas.isa.grammar import Row
from turingas.isa.op import Op
from turingas.isa.table import async_, control, convert, floating, integer, memory, tensor, texture, tmem, uniform

ROWS: list[Row] = [
    *floating.ROWS,
    *integer.ROWS,
    *convert.ROWS,
    *memory.ROWS,
    *control.ROWS,
    *uniform.ROWS,
    *async_.ROWS,
    *tensor.ROWS,
    *texture.ROWS,
    *tmem.ROWS,
]

#: mnemonic -> what it is besides how it is written
OPS: dict[str, Op] = {
    **floating.OPS,
    **integer.OPS,
    **convert.OPS,
    **memory.OPS,
    **control.OPS,
    **uniform.OPS,
    **async_.OPS,
    **tensor.OPS,
    **texture.OPS,
    **tmem.OPS,
}
