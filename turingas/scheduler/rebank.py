"""Registers of values that live within a block: others, so that fewer reads wait for a bank of the register file.

Where an instruction loses a cycle because its sources lie in one bank (turingas/isa/banks), a source that is a value
of this block alone, and no part of a pair, gets a register of the other bank: one that holds nothing while the value
lives. It stays there if the block loses fewer cycles then; and all of it stays if the codes that are made anew for it
take no more cycles, either.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from turingas.cubin.model import Code, Kernel
from turingas.flow.graph import Block, Graph
from turingas.isa import control
from turingas.isa.arch import WORD_BYTES
from turingas.isa.banks import walk
from turingas.isa.given import Given
from turingas.isa.instruction import Instruction, instruction
from turingas.scheduler.codes import Result, codes
from turingas.scheduler.keeps import reuse_flags
from turingas.scheduler.rename import Span, Value, held, live, there, values
from turingas.scheduler.reorder import bare
from turingas.scheduler.ways import Ways

TRIES = 64  # registers that are tried in a block
REST = 8  # instructions between one value and the next one in a register, if there is one that has rested as long


def coded(kernel: Kernel, fields: Sequence[Given], yields: str, may: Sequence[bool] | None) -> Result:
    """Codes for ``kernel`` (scheduler.codes). ``may``: instructions whose registers may be others for it; None: none.
    Their words then name those."""
    result = codes(kernel, fields, yields)
    if may is None or result.problems or not any(may):
        return result
    words = _renamed(replace(kernel, code=Code(words=result.words)), may)
    if words is None:
        return result
    other = codes(replace(kernel, code=Code(words=words)), fields, yields)
    lost, cycles = cost(kernel, result.words)
    fewer, then = cost(kernel, other.words)
    return other if not other.problems and fewer < lost and then <= cycles else result


def cost(kernel: Kernel, words: Sequence[int]) -> tuple[int, int]:
    """Cycles lost to banks, and all issue cycles, those among them; times 10 for each loop around them."""
    graph = Graph(replace(kernel, code=Code(words=list(words))))
    weight = Ways(graph).weight
    lost = sum(cycles * weight[n] for block in graph.blocks for n, cycles in _losing(graph, block))
    return lost, lost + sum(weight[n] * i.control.stall for n, i in enumerate(graph.instructions) if i is not None)


def _losing(graph: Graph, block: Block) -> Iterator[tuple[int, int]]:
    numbers = (n for n in range(block.start, block.end) if graph.instructions[n] is not None)
    code = graph.instructions[block.start : block.end]
    for n, (_, _, cycles) in zip(numbers, walk(code, graph.kernel.facts)):
        if cycles:
            yield n, cycles


def _renamed(kernel: Kernel, may: Sequence[bool]) -> list[int] | None:
    """Words with other registers; None where nothing is gained."""
    graph, ways = Graph(kernel), bare(kernel, kernel.words)
    words = list(kernel.words)
    ahead, behind = live(ways)
    free = there(ways, kernel.registers)
    for number, block in enumerate(graph.blocks):
        if any(True for _ in _losing(graph, block)) and None not in graph.instructions[block.start : block.end]:
            found, _ = values(ways, block.start, block.end, behind[number], may)
            spans = held(ways, block.start, block.end, behind[number])
            _Block(graph, block, words, may, found, spans, free[number] & ~ahead[number] & ~behind[number]).run()
    return words if words != kernel.words else None


class _Block:
    """``free``: registers that hold nothing before the block and behind it; ``spans``: when each holds something."""

    def __init__(
        self, graph: Graph, block: Block, words: list[int], may: Sequence[bool], found: Sequence[Value],
        spans: dict[int, list[Span]], free: int,
    ) -> None:  # fmt: skip
        self.graph, self.words, self.free, self.start = graph, words, free, block.start
        self.may = may[block.start : block.end]
        self.code = [self._read(n, words[n]) for n in range(block.start, block.end)]
        self.yields = [not word >> control.YIELD & 1 for word in words[block.start : block.end]]
        self.spans = spans
        self.of: dict[int, list[Value]] = {}  # instruction -> values of one register that it touches
        for value in found:
            if value.first == value.last and value.align == 1 and not value.stays:
                for n, _ in value.touched:
                    self.of.setdefault(n, []).append(value)

    def run(self) -> None:
        """Change the words."""
        best, losing = self._lost(self.code)
        tried: set[tuple[int, int]] = set()
        while best:
            todo = (one for n in losing for one in self.of.get(n, ()) if (one.first, one.start) not in tried)
            value = next(todo, None)
            if value is None or len(tried) >= TRIES:
                return
            tried.add((value.first, value.start))
            to = self._register(value)
            if to is None:
                continue
            code = list(self.code)
            for m, place in dict.fromkeys(value.touched):
                old = code[m - self.start]
                assert old is not None
                code[m - self.start] = self._read(m, old.word + (to - value.first << place))
            lost, where = self._lost(code)
            if lost < best:
                best, losing, self.code = lost, where, code
                for m, place in dict.fromkeys(value.touched):
                    self.words[m] += to - value.first << place
                self.spans[value.first].remove((value.start, value.end))
                self.spans.setdefault(to, []).append((value.start, value.end))
                value.first = value.last = to

    def _read(self, n: int, word: int) -> Instruction | None:
        """The instruction without reuse flags, if those are to be set anew."""
        mask = control.REUSE_MASK if self.may[n - self.start] else 0
        return instruction(self.graph.isa, word & ~mask, WORD_BYTES * n)

    def _register(self, value: Value) -> int | None:
        """One of the other bank that holds nothing while ``value`` lives, at rest for as long as can be."""
        best: tuple[int, int] | None = None
        for register in range(1 - value.first % 2, 256, 2):
            if not self.free >> register & 1:
                continue
            spans = self.spans.get(register, ())
            rest = min([REST, *(max(value.start - end, start - value.end) for start, end in spans)])
            if rest > 0 and (best is None or rest > best[0]):
                best = rest, register
        return best[1] if best else None

    def _lost(self, code: Sequence[Instruction | None]) -> tuple[int, list[int]]:
        """Cycles that are lost, and where."""
        flags = reuse_flags(code, self.yields, self.may)
        flagged = [
            instruction(self.graph.isa, i.word | flags[n], i.address) if i is not None and n in flags else i
            for n, i in enumerate(code)
        ]
        found = [(i.address // WORD_BYTES, cycles) for i, _, cycles in walk(flagged, self.graph.kernel.facts) if cycles]
        return sum(cycles for _, cycles in found), [n for n, _ in found]
