"""Reuse flags for decoded instructions: sources that the reuse cache keeps for the next instruction that reads them."""

from __future__ import annotations

from collections.abc import Sequence

from turingas.isa import control
from turingas.isa.banks import MATH, Slot, sources
from turingas.isa.fields import Register
from turingas.isa.instruction import Instruction, Reg
from turingas.isa.table import OPS


def reuse_flags(block: Sequence[Instruction | None], yields: Sequence[bool], wanted: Sequence[bool]) -> dict[int, int]:
    """Place in ``block`` -> reuse bits of the word, for the instructions that are ``wanted``. A flag is set where the
    next instruction that reads that bank in that place is arithmetic too and reads the same register, and nobody writes
    it before, and the warp keeps the issue slot until then."""
    found: dict[int, int] = {}
    waiting: dict[Slot, tuple[int, int]] = {}  # -> who read it last, and which register that was
    for n, i in enumerate(block):
        if i is None:
            waiting = {}
            continue
        math = OPS[i.base].pipe in MATH
        wide = {o.place for o in i.operands if isinstance(o, Reg) and o.words > 1}
        read = [(slot, register) for slot, register, _ in sources(i)]
        for slot, register in read:
            first, kept = waiting.pop(slot, (-1, -1))
            if kept == register and math:
                found[first] = found.get(first, 0) | _flag(block[first], slot[1])
        places = {o.place for o in i.operands if isinstance(o, Reg) and o.file == "R"}
        if not math:  # what it reads late, and what takes the place of a source, is not followed
            waiting = {slot: kept for slot, kept in waiting.items() if slot[1] not in places}
        if yields[n]:
            waiting = {}
            continue
        written = {r for w in i.writes if w.file == "R" for r in range(w.first, w.first + w.count)}
        if math and wanted[n]:
            waiting.update((slot, (n, register)) for slot, register in read if slot[1] not in wide)
        waiting = {slot: kept for slot, kept in waiting.items() if kept[1] not in written}
    return {n: bits for n, bits in found.items() if bits}


def _flag(i: Instruction | None, place: int) -> int:
    """The reuse bit of the source at ``place``; 0 for one without."""
    assert i is not None
    for operand in i.form.operands:
        for f in operand.fields:
            if isinstance(f, Register) and f.prefix == "R" and f.pos == place and f.reuse is not None:
                bit = 1 << f.reuse
                return 0 if control.illegal(i.word | bit) else bit
    return 0
