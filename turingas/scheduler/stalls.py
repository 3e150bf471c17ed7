"""The least stall counts with which straight code is right."""

from __future__ import annotations

from collections.abc import Sequence

from turingas.isa.effects import FIXED, SOONEST, Effects
from turingas.isa.instruction import Access, Instruction
from turingas.isa.latency import latencies
from turingas.scheduler.step import Step

ARITHMETIC = ("fma", "alu")  # pipes that are kept busy here: those that issue every other cycle on some architectures


def stalls(steps: Sequence[Step], arch: str) -> None:
    """Give each step the least stall that keeps every result of fixed latency, every arithmetic pipe, and the setting
    of every scoreboard. The steps run one after the other; nothing is under way before the first."""
    rules = latencies(arch)
    longest = rules.longest("raw", "waw")
    at, before = 0, None
    begun: dict[int, tuple[Instruction, Access, int]] = {}  # register -> last writer of fixed latency, its cycle
    busy: dict[str, int] = {}  # pipe -> cycle
    noted: dict[int, int] = {}  # scoreboard -> cycle
    for step in steps:
        i, facts = step.i, Effects(step.i, rules)
        pipe = rules.unit(i)
        soonest = at + (_least(before, rules.behind(before.i)) if before else 0)
        soonest = max([soonest, busy.get(pipe, 0)] + [cycle for sb, cycle in noted.items() if step.wait >> sb & 1])
        reads = [(register, access, rules.raw) for register, access in facts.reads.items()]
        writes = [(register, access, rules.waw) for register, (access, _) in facts.writes.items()]
        for register, access, need in reads + writes:
            if register in begun:
                first, write, cycle = begun[register]
                if soonest < cycle + longest:
                    soonest = max(soonest, cycle + need(first, write, i, access))
        if before:
            before.stall = soonest - at
        at, before = soonest, step
        if pipe in ARITHMETIC:
            busy[pipe] = at + rules.issue(i)
        for sb in (step.read, step.write):
            if sb is not None:
                noted[sb] = at + SOONEST
        for register, (access, role) in facts.writes.items():
            if role == FIXED:
                begun[register] = i, access, at
            else:
                begun.pop(register, None)
    if before:
        before.stall = max(before.least, rules.behind(before.i))


def _least(step: Step, behind: int) -> int:
    """Cycles to the next step whatever that is: a yield takes one more."""
    return max(step.least, behind, 2 if step.yields else 1)
