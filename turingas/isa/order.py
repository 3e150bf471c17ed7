"""What ends in the order in which it was issued.

Instructions of one queue take their sources in order, and those of most queues return their results in order too. So
who waits for one of them has waited for all before it, and a scoreboard each is not needed: compilers leave it out.
It holds whatever the guards say: one that does not run holds its place in the queue all the same.
Learned from the code of NVRTC 12.9: without these rules thousands of sources and results are used there without any
wait; with them none is. Sources: 49 of 50 such cases are stores behind which another one is waited for. Results: LDS,
SHFL, ATOMS, conversions, MUFU and textures; never a load from global or local memory.
"""

from __future__ import annotations

from turingas.isa.instruction import Instruction
from turingas.isa.latency import PIPE_OF

#: of these pipes, results that come in no order: memory behind a cache
UNORDERED = set("LD LDG LDL LDGMC ATOM ATOMG LDGSTS LDC S2R B2R".split())


def queue(i: Instruction) -> str:
    """The queue in which ``i`` takes its sources: whoever is behind it takes them later."""
    return PIPE_OF[i.base]


def in_order(i: Instruction) -> bool:
    """Whether the results of ``i`` are there before those of whatever is issued to its queue later."""
    return i.base not in UNORDERED


def with_sources(i: Instruction, file: str) -> bool:
    """Whether this result is there as soon as the sources are read, and is released by the read scoreboard: the
    predicate by which a generic ATOM says that the address is not in its memory (NVRTC 12.9, sm_90)."""
    return i.base == "ATOM" and file == "P"


def flushes(i: Instruction) -> str:
    """The queue whose sources have all been taken behind ``i``, "" for none: a barrier waits for the accesses to
    memory before it."""
    return "lsu" if i.base == "BAR" else ""
