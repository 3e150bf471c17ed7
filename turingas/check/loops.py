"""A summary of each loop: what it executes, how long an iteration takes, and what bounds it.

Cycles are those of one warp and one iteration, on its scheduler. What the control codes and the pipes say is known;
how long a wait on a scoreboard takes is not, so every number is a lower bound.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from turingas.flow.graph import Graph, Loop
from turingas.isa.arch import WORD_BYTES
from turingas.isa.banks import EMPTY, by_bank, reads, step
from turingas.isa.instruction import Instruction
from turingas.isa.latency import latencies

MATH = ("fma", "half", "fp64", "tensor", "wgmma")  # pipes that do what a kernel is for; without them, any pipe
CLOSE = 0.05
SLOTS = "issue slots"
BANKS = "register banks"


@dataclass
class LoopSummary:
    """One loop. Loops inside of it are not counted in, and all branches within it are taken to be executed.

    ``start`` and ``end``: byte addresses of its first instruction and behind its last; ``lines``: first and last source
    line, 0 if not known. ``pipes``: instructions by pipe. ``math``: the mnemonic that does the work, ``share`` its part
    of the instructions. ``stalls``: cycles that the control codes of an iteration add up to. ``conflicts``: cycles lost
    by register-bank conflicts. ``waits``, ``yields``: instructions that wait on a scoreboard, and that yield.
    ``bounds``: cycles that an iteration takes of each resource of the scheduler: issue slots, pipes, register banks.
    ``number``: its place in ``Graph.loops``."""

    kernel: str
    start: int
    end: int
    depth: int
    file: str = ""
    lines: tuple[int, int] = (0, 0)
    instructions: int = 0
    pipes: Counter[str] = field(default_factory=Counter)
    math: str = ""
    share: float = 0.0
    stalls: int = 0
    conflicts: int = 0
    waits: int = 0
    yields: int = 0
    bounds: dict[str, int] = field(default_factory=dict)
    number: int = 0

    @property
    def alone(self) -> int:
        """Cycles of an iteration when one warp has the scheduler to itself."""
        return self.stalls + self.conflicts

    @property
    def bound(self) -> str:
        """The resource that is used up first when there are warps enough."""
        return max(self.bounds, key=lambda name: self.bounds[name])

    @property
    def least(self) -> int:
        """Cycles of an iteration, for each of many warps: what ``bound`` allows."""
        return self.bounds[self.bound]

    @property
    def warps(self) -> int:
        """Warps a scheduler that it takes to fill the stalls and come within ``CLOSE`` of ``bound``."""
        return max(1, math.ceil(self.alone / self.least - CLOSE))

    def __str__(self) -> str:
        first, last = self.lines
        source = f", lines {first} to {last}" if first else ""
        pipes = ", ".join(f"{count} {pipe}" for pipe, count in self.pipes.most_common())
        rest = sorted(((cycles, name) for name, cycles in self.bounds.items() if name != self.bound), reverse=True)
        others = ", ".join(f"{name} {cycles}" for cycles, name in rest)
        fill = "1 warp a scheduler is enough" if self.warps == 1 else f"{self.warps} warps a scheduler fill the stalls"
        return "\n".join(
            [
                f"{self.kernel}: loop 0x{self.start:04x} to 0x{self.end - WORD_BYTES:04x}{source}, depth {self.depth}",
                f"  {self.instructions} instructions: {pipes}; {100 * self.share:.1f}% {self.math}",
                f"  one warp alone: {self.alone} cycles an iteration, {self.stalls} of stalls"
                f" and {self.conflicts} of bank conflicts; {self.waits} waits, {self.yields} yields",
                f"  bound by {self.bound}: {self.least} cycles ({others}); {fill}",
            ]
        )


class Issue(NamedTuple):
    """Instruction ``n`` of an iteration, when one warp has the scheduler to itself: the ``cycle`` in which it issues,
    the cycles to the next one without those that bank conflicts cost (``stall``, ``conflict``), and for how long it
    keeps its ``pipe`` busy. ``banks``: registers that it reads from the even bank, and from the odd one."""

    n: int
    cycle: int
    stall: int
    conflict: int
    pipe: str
    busy: int
    banks: tuple[int, int]


def iteration(graph: Graph, number: int) -> list[Issue]:
    """What an iteration of loop ``number`` (of Graph.loops) issues, without loops inside of it; the iteration before
    has left its registers in the reuse cache."""
    rules, arch = latencies(graph.kernel.arch), graph.kernel.facts
    code = list(_body(graph, number, graph.loops[number]))
    cache, cycle, found = EMPTY, 0, list[Issue]()
    for i in code:
        cache = step(i, cache, arch)[1]
    for i in code:
        banks = by_bank(reads(i, cache))
        conflict, cache = step(i, cache, arch)
        stall = max(i.control.stall, 1)
        # products of a warp and of a warp group are done by the same tensor cores
        pipe = rules.unit(i).replace("wgmma", "tensor")
        found.append(Issue(i.address // WORD_BYTES, cycle, stall, conflict, pipe, rules.issue(i), banks))
        cycle += stall + conflict
    return found


def summary(graph: Graph) -> list[LoopSummary]:
    """The loops of a kernel that can be reached, in the order of their addresses."""
    found = [_summary(graph, number, loop) for number, loop in enumerate(graph.loops) if loop.header in graph.reachable]
    return sorted((one for one in found if one is not None), key=lambda one: (one.start, -one.end))


def _summary(graph: Graph, number: int, loop: Loop) -> LoopSummary | None:
    code = list(_body(graph, number, loop))
    if not code or _waits_for_ever(graph, loop):
        return None
    rules = latencies(graph.kernel.arch)
    issues = iteration(graph, number)
    taken: Counter[str] = Counter()
    for one in issues:
        taken[one.pipe] += one.busy
    banks = max(sum(one.banks[0] for one in issues), sum(one.banks[1] for one in issues))
    bounds = {SLOTS: len(code), **dict(taken.most_common()), BANKS: banks}
    pipes = Counter(rules.pipe(i) for i in code)
    work = Counter(i.base for i in code if rules.pipe(i) in MATH) or Counter(i.base for i in code)
    name, count = work.most_common(1)[0]
    places = [graph.source(i.address // WORD_BYTES) for i in code]
    lines = [line for _, line in places if line]
    blocks = [graph.blocks[b] for b in loop.blocks]
    return LoopSummary(
        kernel=graph.kernel.name,
        start=WORD_BYTES * min(block.start for block in blocks),
        end=WORD_BYTES * max(block.end for block in blocks),
        depth=loop.depth,
        file=places[0][0],
        lines=(min(lines), max(lines)) if lines else (0, 0),
        instructions=len(code),
        pipes=pipes,
        math=name,
        share=count / len(code),
        stalls=sum(one.stall for one in issues),
        conflicts=sum(one.conflict for one in issues),
        waits=sum(bool(i.control.wait) for i in code),
        yields=sum(i.control.yields for i in code),
        bounds=bounds,
        number=number,
    )


def _body(graph: Graph, number: int, loop: Loop) -> Iterator[Instruction]:
    """The instructions of a loop in the order of their addresses, without those of loops inside of it."""
    inner = {b for other in graph.loops if other.parent == number for b in other.blocks}
    for b in sorted(loop.blocks - inner):
        for n in range(graph.blocks[b].start, graph.blocks[b].end):
            i = graph.instructions[n]
            if i is not None:
                yield i


def _waits_for_ever(graph: Graph, loop: Loop) -> bool:
    """Whether it is the branch to itself that stands behind the code."""
    header = graph.blocks[loop.header]
    return len(loop.blocks) == 1 and header.end - header.start == 1
