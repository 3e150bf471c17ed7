"""Reuse flags: which sources the reuse cache keeps for the next instruction that reads them."""

from __future__ import annotations

from collections.abc import Sequence

from turingas.isa.banks import Slot, sources
from turingas.scheduler.step import Step

KEEPING = "FFMA"  # what bank conflicts slow down, and what does two of it; flags on others are left to the writer


def keeping(step: Step) -> bool:
    """Whether flags are given to an instruction."""
    return step.i.base == KEEPING or "pairs" in step.i.op.traits


def flags(code: Sequence[Step | str]) -> None:
    """Give FFMAs reuse flags where the next FFMA that reads that bank in that place reads the same register, and nobody
    writes it before. Paths meet at a label (a str) and behind a branch: nothing is kept over one."""
    waiting: dict[Slot, tuple[Step, int]] = {}  # -> who read it last, and which register that was
    for step in code:
        if isinstance(step, str) or step.i.base == "BRA":
            waiting = {}
            continue
        read = [(slot, register) for slot, register, _ in sources(step.i)]
        for slot, register in read:
            first, kept = waiting.pop(slot, (None, None))
            if first is not None and kept == register and keeping(step):
                first.keeps.add(slot[1])
        if step.yields:
            waiting = {}
            continue
        if keeping(step):
            waiting.update((slot, (step, register)) for slot, register in read)
        written = {n for w in step.i.writes if w.file == "R" for n in range(w.first, w.first + w.count)}
        waiting = {slot: kept for slot, kept in waiting.items() if kept[1] not in written}
