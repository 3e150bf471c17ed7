"""Flags of the reuse cache that are wrong, and those that do nothing. banks.py tells how the cache works."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from turingas.check.finding import Finding
from turingas.check.report import at
from turingas.check.rules import rule
from turingas.flow.graph import Graph
from turingas.flow.stretch import REMEMBERED, Stretch
from turingas.isa import control
from turingas.isa.banks import SLOTS, Slot, sources
from turingas.isa.instruction import Instruction, Mem, Reg


class Told(NamedTuple):
    """A finding, with instructions counted from the start of the block."""

    n: int
    kind: str
    severity: str
    message: str
    hint: str
    other: int | None = None


@rule("reuse-stale", "A register that is written between its reuse flag and its next read")
@rule("reuse-lost", "A reuse flag of an instruction that yields")
@rule("reuse-useless", "A reuse flag that saves no read")
@rule("reuse-illegal", "A reuse flag that the hardware does not have")
def check(graph: Graph) -> Iterator[Finding]:
    """The reuse flags of a kernel, block by block: what follows a block is not known to run next."""
    for number in sorted(graph.reachable):
        start = graph.blocks[number].start
        for n, kind, severity, message, hint, other in _wrong(graph.stretches[number]):
            yield at(graph, start + n, kind, severity, message, hint, None if other is None else start + other)


@lru_cache(REMEMBERED)
def _wrong(stretch: Stretch) -> list[Told]:
    """What is to be said of the instructions of a block."""
    found: list[Told] = []
    for n, i in enumerate(stretch.instructions):
        if i is None or not i.control.reuse:
            continue
        problem = control.illegal(i.word)
        if problem:
            message, hint = problem
            found.append(Told(n, "reuse-illegal", "error", message, hint))
        elif i.control.yields:
            flags = [str(o) for o in i.operands if getattr(o, "reuse", False)]
            if flags:
                found.append(_lost(n, flags))
        else:
            kept = [(slot, register) for slot, register, keep in sources(i) if keep]
            told = [(slot[1], list(_flag(stretch, n, slot, register))) for slot, register in kept]
            saving = {place for place, wrong in told if not wrong}  # a pair has one flag: it may save one read of two
            for place, wrong in told:
                found += [one for one in wrong if one.kind != "reuse-useless" or place not in saving]
    return found


def _flag(stretch: Stretch, n: int, slot: Slot, register: int) -> Iterator[Told]:
    """What becomes of the flag on ``register``: who takes its place in the cache, who writes the register before."""
    _, place = slot
    overwritten: int | None = None
    replaced = False
    flag = f"the reuse flag of R{register} ({SLOTS[place]})"
    for m, i in enumerate(stretch.instructions[n:], n):
        if i is None:
            break
        if m > n:
            taken = [number for found, number, _ in sources(i) if found == slot]
            if taken:
                if register not in taken:
                    message = f"{flag} does nothing: R{taken[0]} takes its place in the cache"
                    yield Told(n, "reuse-useless", "note", message, "remove the flag", m)
                elif overwritten is not None and not replaced:
                    message = f"R{register} is written after its reuse flag, and read: the old value may be used"
                    hint = "remove the flag" + ("" if m == overwritten else ", or write the register later")
                    yield Told(m, "reuse-stale", "error", message, hint, n)
                return
            replaced = replaced or _reads_without(i, place)
        if overwritten is None and _writes(i, register):
            overwritten = m
        if m > n and i.control.yields:
            message = f"{flag} does nothing: the warp yields before R{register} is read there again"
            yield Told(n, "reuse-useless", "note", message, "remove the flag, or do not yield", m)
            return
    message = f"{flag} does nothing: no instruction of this block reads R{register} there again"
    yield Told(n, "reuse-useless", "note", message, "remove the flag")


def _reads_without(i: Instruction, place: int) -> bool:
    """Whether it reads a register of either bank in this place, and does not keep it. Nothing old is found there then:
    compilers write the register of a flag, and read it there, when such an instruction lies between (NCCL on sm_90)."""
    found = [reg for o in i.operands for reg in ((o.base, o.ur) if isinstance(o, Mem) else (o,))]
    return any(
        isinstance(o, Reg) and o.file == "R" and o.slot == SLOTS[place] and not (o.write or o.zero or o.reuse)
        for o in found
    )


def _writes(i: Instruction, register: int) -> bool:
    return any(w.file == "R" and w.first <= register < w.first + w.count for w in i.writes)


def _lost(n: int, flags: list[str]) -> Told:
    message = f"the reuse flag of {' '.join(flags)} is lost: an instruction that yields keeps nothing in the cache"
    return Told(n, "reuse-lost", "warning", message, "write - in the place of Y, or remove the flag")
