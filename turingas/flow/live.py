"""Register life ranges: which registers hold, at each instruction, a value that somebody may still read.

Registers are bits, as turingas.isa.effects numbers them. A register lives where some path from there reads it before
writing it, and some path to there has written it. Calls within the section are followed; code elsewhere is taken to
read and to return what the calling convention of compiled code passes in registers.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable

from turingas.flow.graph import Graph
from turingas.isa.effects import FIRST, bits, register_name
from turingas.isa.latency import BARRIER

#: the registers of each file, as bits, without what reads as zero or true
FILES = {
    "R": (1 << 255) - 1 << FIRST["R"],
    "UR": (1 << 255) - 1 << FIRST["UR"],
    "P": (1 << 7) - 1 << FIRST["P"],
    "UP": (1 << 7) - 1 << FIRST["UP"],
}
ALL = (1 << FIRST[BARRIER]) - 1
#: what calls of code elsewhere pass and return: the stack pointer, R4 to R15, and the address to return to
PASSED = 1 << 1 | (1 << 12) - 1 << 4 | 3 << 20

#: how a mark reads, in the columns of a listing
MARKS = {(False, False): " ", (False, True): "^", (True, False): "v", (True, True): "x"}
LIVE = ":"


class Lives:
    """The life ranges of a kernel. Of instruction ``n``: ``before[n]`` and ``after[n]`` are the registers that live in
    front of it and behind it; ``read[n]`` and ``written[n]`` those that it touches. AsmError where the latencies of the
    architecture are not known."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        facts = graph.effects
        keep = functools.reduce(int.__or__, FILES.values())
        self.read = [0 if one is None else one.read & keep for one in facts]
        self.written = [0 if one is None else one.written & keep for one in facts]
        self._sure = [w if one is not None and one.guard is None else 0 for one, w in zip(facts, self.written)]
        for block in graph.blocks:
            if block.leaves:
                self.read[block.end - 1] |= PASSED
        next_ = ways(graph)
        after_block = self._backward(next_)
        defined = self._forward(next_)
        self.before = [0] * len(facts)
        self.after = [0] * len(facts)
        for number, block in enumerate(graph.blocks):
            live = after_block[number]
            for n in range(block.end - 1, block.start - 1, -1):
                self.after[n] = live
                live = self.before[n] = self.read[n] | live & ~self._sure[n]
            known = defined[number]
            for n in range(block.start, block.end):
                self.before[n] &= known
                known |= self.written[n]
                self.after[n] &= known

    def _backward(self, next_: list[list[int]]) -> list[int]:
        """What lives behind each block."""
        blocks = self.graph.blocks
        used, killed = [0] * len(blocks), [0] * len(blocks)
        for number, block in enumerate(blocks):
            for n in range(block.start, block.end):
                used[number] |= self.read[n] & ~killed[number]
                killed[number] |= self._sure[n]
        behind = [PASSED if block.returns and not next_[n] else 0 for n, block in enumerate(blocks)]
        changed = True
        while changed:
            changed = False
            for number in range(len(blocks) - 1, -1, -1):
                found = behind[number]
                for to in next_[number]:
                    found |= used[to] | behind[to] & ~killed[to]
                changed |= found != behind[number]
                behind[number] = found
        return behind

    def _forward(self, next_: list[list[int]]) -> list[int]:
        """What some path to each block has written. A function may be called with anything that it reads."""
        blocks = self.graph.blocks
        own = [functools.reduce(int.__or__, self.written[b.start : b.end], 0) for b in blocks]
        known = [0] * len(blocks)
        led_to = {to for ways in next_ for to in ways}
        for number in range(len(blocks)):
            if number not in led_to and (number or not self.graph.kernel.entry):
                known[number] = ALL
        if blocks and not self.graph.kernel.entry:
            known[0] = ALL
        todo = list(range(len(blocks)))[::-1]
        while todo:
            number = todo.pop()
            out = known[number] | own[number]
            for to in next_[number]:
                if out & ~known[to]:
                    known[to] |= out
                    todo.append(to)
        return known

    # -- for listings

    def mark(self, n: int, register: int) -> str:
        """What instruction ``n`` does to a register: "^" writes, "v" reads, "x" both, ":" leaves it alone, alive."""
        bit = 1 << register
        touched = MARKS[bool(self.read[n] & bit), bool(self.written[n] & bit)]
        return LIVE if touched == " " and self.before[n] & self.after[n] & bit else touched

    def held(self, n: int, file: str = "R") -> int:
        """How many registers of a file are taken at instruction ``n``: those that live in front of it or behind it, and
        those that it writes."""
        return ((self.before[n] | self.after[n] | self.written[n]) & FILES[file]).bit_count()

    def peak(self, file: str = "R") -> tuple[int, int]:
        """The most registers of a file that are taken at once, and the first instruction where that is so; (0, 0) of a
        kernel without code."""
        counts = [self.held(n, file) for n in range(len(self.before))]
        most = max(counts, default=0)
        return most, counts.index(most) if counts else 0

    def used(self, file: str = "R") -> list[int]:
        """The registers of a file that anybody touches."""
        return bits(functools.reduce(int.__or__, [*self.read, *self.written], 0) & FILES[file])


def names(registers: Iterable[int]) -> list[str]:
    """R5, UR4, P0 ..."""
    return [register_name(register) for register in registers]


def ways(graph: Graph) -> list[list[int]]:
    """The blocks that may run behind each block: calls within the section lead into the function, and back from its
    returns to behind all of its calls."""
    blocks = graph.blocks
    found = [list(block.next) for block in blocks]
    for number, block in enumerate(blocks):
        if block.calls is None:
            continue
        i = graph.instructions[block.end - 1]
        found[number] = [block.calls, *(block.next if i is not None and not i.always else ())]
        for member in graph.own.get(block.calls, ()):
            if blocks[member].returns:
                found[member] += [to for to in block.next if to not in found[member]]
    return found
