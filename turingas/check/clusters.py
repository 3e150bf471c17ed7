"""Shared memory of a cluster at addresses that do not say whose it is.

Bits 24 and up of an address of shared memory are the rank of a block in its cluster. Compilers take them from
SR_CgaCtaId; what comes of the index of a thread and of constants below 2^24 alone has none. Anything else (a parameter,
what was loaded, a number of the block) may have them, and is believed.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from turingas.check.finding import Finding
from turingas.check.report import at
from turingas.check.rules import rule
from turingas.cubin.model import Kernel
from turingas.flow.graph import Graph
from turingas.flow.live import FILES, ways
from turingas.isa.arch import RANK_BIT
from turingas.isa.effects import FIRST
from turingas.isa.instruction import GUARD, Access, Const, Imm, Instruction, Label, Mem, Name
from turingas.isa.table import OPS

BARRIERS = ("UCGABAR_ARV", "UCGABAR_WAIT")
OWN = frozenset(name for name, op in OPS.items() if op.space == "shared")  # reach the memory of their own block alone
PLAIN = ("SR_TID.X", "SR_TID.Y", "SR_TID.Z", "SR_LANEID")
ALL = FILES["R"] | FILES["UR"]
HINT = "add SR_CgaCtaId << 24, as compilers do: without it the address is that of block 0"


@rule("block-unsaid", "An address of shared memory in a cluster lacks the rank of the block")
def check(graph: Graph) -> Iterator[Finding]:
    """Accesses in kernels that have clusters: all that is known of the address is made without a rank."""
    asked = graph.of(*OWN)
    if not asked or not (set(BARRIERS) & set(graph.mnemonics) or _compiled_for(graph.kernel)):
        return
    ranked, wanted = _ranked(graph), set(asked)
    for number in sorted({graph.block_of(n) for n in asked} & graph.reachable):
        state = ranked[number]
        for n in range(graph.blocks[number].start, graph.blocks[number].end):
            i = graph.instructions[n]
            if n in wanted and i is not None and _lacks(i, state):
                yield at(graph, n, "block-unsaid", "warning", f"{i.base} at an address without the rank of its block: "
                         "an illegal instruction in all blocks of the cluster but the first", HINT)  # fmt: skip
            state = _behind(i, state)


def _lacks(i: Instruction, state: int) -> bool:
    """Whether nothing of its address may have a rank. Not @!PT, which ptxas writes to wait."""
    mem = next((o for o in i.operands if isinstance(o, Mem)), None)
    if mem is None or mem.offset >> RANK_BIT or i.word & GUARD == GUARD:
        return False
    return not any(state & _bits(one) for one in i.reads if one.what == "address")


def _compiled_for(kernel: Kernel) -> bool:
    """Whether it says that it runs in clusters of several blocks."""
    said = [*kernel.attributes, *(one for each in kernel.infos.values() for one in each)]
    sizes = [info.value for info in said if info.name == "CTA_PER_CLUSTER"]
    return any(isinstance(one, bytes) and len(one) == 12 and set(struct.unpack("<3I", one)) - {0, 1} for one in sizes)


def _ranked(graph: Graph) -> list[int]:
    """In front of each block: registers that may have a rank, as bits."""
    next_ = ways(graph)
    led_to = {to for each in next_ for to in each}
    known = [0 if number in led_to and number not in graph.entries else ALL for number in range(len(graph.blocks))]
    todo = list(range(len(graph.blocks)))[::-1]
    while todo:
        number = todo.pop()
        block, state = graph.blocks[number], known[number]
        for n in range(block.start, block.end):
            state = _behind(graph.instructions[n], state)
        if block.leaves:
            state = ALL
        for to in next_[number]:
            if state & ~known[to]:
                known[to] |= state
                todo.append(to)
    return known


def _behind(i: Instruction | None, state: int) -> int:
    if i is None:
        return ALL
    written = 0
    for one in i.writes:
        written |= _bits(one)
    if not written:
        return state
    if any(map(_may, i.operands)) or any(state & _bits(one) for one in i.reads):
        return state | written
    return state & ~written if i.always else state


def _bits(one: Access) -> int:
    return ((1 << one.count) - 1 << FIRST[one.file] + one.first) & ALL if one.file in FILES else 0


def _may(o: object) -> bool:
    """Whether a rank may come from there."""
    if isinstance(o, Imm):
        return o.kind != "int" or not -1 << RANK_BIT < (o.value + (1 << 31)) % (1 << 32) - (1 << 31) < 1 << RANK_BIT
    return isinstance(o, (Const, Mem, Label)) or isinstance(o, Name) and o.text not in PLAIN
