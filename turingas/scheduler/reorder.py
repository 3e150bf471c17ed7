"""The order of instructions within blocks: list scheduling, critical path first.

A model of the machine tells how long a block takes in some order: a warp issues one instruction a cycle, results are
there after the cycles of ``depends``, and a pipe can begin the next instruction only when it is free. Instructions are
put one after the other; of those that are ready, the one goes first behind which the longest way lies; of equals, the
one whose sources the reuse cache keeps, and then the one that came first. No more registers are needed: they stay what
they are, unless rename.py finds others.

Scoreboards are not in that model, and six are not many: where loads of two batches are under way together, some share
one, and who waits for the first batch waits for the second. And how long a load takes is not known: if it takes longer,
whatever was put between two waits for loads comes later. So there are orders for loads that take the expected time and
for slower ones, codes are made for each, and each block has the one with which it keeps a warp the shortest (warp.py);
it keeps that which was given where no other is shorter.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace

from turingas.cubin.model import Code, Kernel
from turingas.flow.graph import Graph
from turingas.isa import control
from turingas.isa.arch import WORD_BYTES
from turingas.isa.banks import MATH, sources
from turingas.isa.effects import FIXED, Effects
from turingas.isa.given import NEUTRAL, NOTHING
from turingas.isa.instruction import Imm, Instruction
from turingas.scheduler.codes import codes
from turingas.scheduler.depends import MEMORY, TRUE, Edge, depends, expected, named
from turingas.scheduler.order import put
from turingas.scheduler.rename import renamed
from turingas.scheduler.warp import took
from turingas.scheduler.ways import Ways

#: accesses of more than 32 bits keep the pipe for longer (kernels_sass/results/smem_sm90.json: two cycles for 64 bits,
#: and for 128 bits where lanes read the same words)
WIDE = 2
LONGER = 1.0, 3.0  # times the expected time that results of variable latency may take
SAVES = 0.95  # of the time of an order for what is expected: other warps hide waits, but not instructions that wait
ROUNDS = 3  # an order of a loop changes what comes around it
ALIKE = 16  # of equals that are looked at for what the reuse cache keeps

PRODUCTS = "wgmma"  # the pipe of products of a warp group

Late = dict[int, int]  # register -> how many cycles behind the start of a block it is there


@dataclass
class Result:
    """``order``: the instruction that comes to each place. ``words``: those in the order that was given, with their
    registers renamed. ``notes``: what kept instructions in their places (place, and why)."""

    order: list[int]
    words: list[int]
    notes: list[tuple[int, str]] = field(default_factory=list)


class Model:
    """One block: its instructions, edges, and how long each is under way."""

    def __init__(self, ways: Ways, number: int, walls: Collection[int]) -> None:
        self.ways, self.lat = ways, ways.lat
        self.block = ways.graph.blocks[number]
        self.members = range(self.block.start, self.block.end)
        self.edges = _products(ways, self.members, depends(ways, number, walls))
        self.behind: dict[int, list[Edge]] = {n: [] for n in self.members}
        self.before: dict[int, list[Edge]] = {n: [] for n in self.members}
        for edge in self.edges:
            self.behind[edge.first].append(edge)
            self.before[edge.second].append(edge)
        self.pipe: dict[int, tuple[str, int]] = {}  # its pipe, and for how long it keeps it
        self.least: dict[int, int] = {}  # cycles to the next instruction, whatever that is
        self.open: dict[int, list[int]] = {}  # the registers that it reads from before the block
        self.left: dict[int, tuple[int, int]] = {}  # register -> who writes it last, and how long that takes
        self.tail: dict[int, int] = {}  # cycles that its results take for those behind the block
        self._facts()
        self.quickest: dict[str, int] = {}  # pipe -> the shortest time that it is kept
        for pipe, cycles in self.pipe.values():
            self.quickest[pipe] = min(cycles, self.quickest.get(pipe, cycles))
        self.height = self._heights()

    def _facts(self) -> None:
        seen: set[int] = set()
        for n in self.members:
            this = self.ways.facts[n]
            if this is None:
                self.pipe[n], self.least[n] = ("", 1), 1
                continue
            i = this.i
            cycles = 1 if i.op.pipe == PRODUCTS else self.lat.issue(i)  # these queue up
            if i.op.pipe == "lsu" and {"64", "128"} & set(i.mods):
                cycles *= WIDE
            self.pipe[n] = (self.lat.unit(i), cycles)
            self.least[n] = self.lat.behind(i)
            self.open[n] = [register for register in this.reads if register not in seen]
            for register, (access, role) in this.writes.items():
                self.left[register] = n, self.lat.most(i, access) if role == FIXED else expected(i)
            if this.guard is None:
                seen.update(this.writes)
        for n, cycles in self.left.values():
            self.tail[n] = max(self.tail.get(n, 0), cycles)

    def _heights(self) -> dict[int, int]:
        """The longest way behind each instruction, to where its last result is there."""
        height: dict[int, int] = {}
        for n in reversed(self.members):
            ways = [edge.cycles + height[edge.second] for edge in self.behind[n]]
            height[n] = max([self.tail.get(n, 0), self.least[n], *ways])
        return height

    def other(self, longer: float, noise: Sequence[float]) -> Model:
        """The same block of a machine that is not quite this one: results of variable latency take ``longer`` times as
        long, and how long the way behind each instruction is counts times one of ``noise``."""
        made = copy.copy(self)
        made.behind, made.before = {n: [] for n in self.members}, {n: [] for n in self.members}
        for edge in self.edges:
            first = self.ways.facts[edge.first]
            if edge.kind == TRUE and first is not None and first.queue:
                edge = edge._replace(cycles=max(1, round(edge.cycles * longer)))
            made.behind[edge.first].append(edge)
            made.before[edge.second].append(edge)
        heights = made._heights()
        made.height = {n: round(heights[n] * factor) for n, factor in zip(self.members, noise)}
        return made

    def soonest(self, late: Late) -> dict[int, int]:
        """When what each instruction reads from before the block is there. ``late``: the registers that come late."""
        return {n: max((late[register] for register in self.open.get(n, ()) if register in late), default=0)
                for n in self.members}  # fmt: skip

    def time(self, order: Sequence[int], late: Late) -> tuple[tuple[int, int], Late]:
        """What an order comes to: the cycle when all results are there, and that when the last instruction is issued;
        and how many cycles behind the block each register that it has written is there."""
        at = self.soonest(late)
        free: dict[str, int] = {}
        now = 0
        for n in order:
            pipe, cycles = self.pipe[n]
            now = max(now, at[n], free.get(pipe, 0), *[at[edge.first] + edge.cycles for edge in self.before[n]])
            at[n] = now
            free[pipe] = now + cycles
            now += self.least[n]
        left = {register: behind for register, (n, cycles) in self.left.items() if (behind := at[n] + cycles - now) > 0}
        return (now + max(left.values(), default=0), now), left

    def cost(self, order: Sequence[int], others: Late, loops: bool) -> tuple[tuple[int, int], Late]:
        """The cycles of ``time``, and what comes late into the block: ``others``, and in a loop its own results."""
        late = _latest([others, self.time(order, others)[1]]) if loops else others
        return self.time(order, late)[0], late

    def arrange(self, late: Late, pair: bool) -> list[int]:
        """The members in the order of list scheduling. ``pair``: what keeps its pipe for longer than others of that
        pipe do goes early, before an instruction of another pipe, which fills the time."""
        missing = {n: len(self.before[n]) for n in self.members}
        soonest = self.soonest(late)
        ready = [n for n in self.members if not missing[n]]
        free: dict[str, int] = {}
        order: list[int] = []
        last: Effects | None = None
        now = 0
        while ready:
            can = [n for n in ready if soonest[n] <= now and free.get(self.pipe[n][0], 0) <= now]
            if not can:
                now = min(max(soonest[n], free.get(self.pipe[n][0], 0)) for n in ready)
                continue
            n = self._choose(can, last, pair)
            ready.remove(n)
            order.append(n)
            pipe, cycles = self.pipe[n]
            free[pipe] = now + cycles
            for edge in self.behind[n]:
                m = edge.second
                soonest[m] = max(soonest[m], now + edge.cycles)
                missing[m] -= 1
                if not missing[m]:
                    ready.append(m)
            now += self.least[n]
            last = self.ways.facts[n]
        return order

    def _choose(self, can: Sequence[int], last: Effects | None, pair: bool) -> int:
        most = max(self.height[n] for n in can)
        alike = sorted(n for n in can if self.height[n] == most)
        best = alike[0]
        if len(alike) > 1 and last is not None and last.i.op.pipe in MATH:
            kept = {(slot, register) for slot, register, _ in sources(last.i)}
            best = min(alike[:ALIKE], key=lambda n: (-self._again(n, kept), n))
        if pair:  # what keeps a pipe for longer than others do goes before what needs another pipe
            others = [n for n in can if self.pipe[n][0] != self.pipe[best][0]]
            slow = [n for n in others if self.pipe[n][1] > self.quickest[self.pipe[n][0]]]
            return max(slow, key=lambda n: (self.height[n], -n), default=best)
        return best

    def _again(self, n: int, kept: set[tuple[tuple[int, int], int]]) -> int:
        this = self.ways.facts[n]
        if this is None or this.i.op.pipe not in MATH:
            return 0
        return sum((slot, register) in kept for slot, register, _ in sources(this.i))


def _products(ways: Ways, members: range, edges: Sequence[Edge]) -> list[Edge]:
    """The same edges; but whoever waits for all products of a warp group waits until those that have begun are done,
    one after the other. So what they need goes first, and other work is done meanwhile."""
    done: dict[int, int] = {}  # product -> cycles until it and all that begin behind it are done
    waits: set[int] = set()
    left = 0
    for n in reversed(members):
        this = ways.facts[n]
        if this is not None and this.i.op.pipe == PRODUCTS:
            left += ways.lat.issue(this.i)
            done[n] = left
        elif this is not None and this.i.base == "WARPGROUP":
            left = 0
            if this.i.mods[0] == "DEPBAR" and isinstance(count := this.i.operands[-1], Imm) and count.value == 0:
                waits.add(n)
    return [edge._replace(cycles=max(edge.cycles, done[edge.first])) if edge.first in done and edge.second in waits
            else edge for edge in edges]  # fmt: skip


def reorder(kernel: Kernel, may: Sequence[bool] | None = None, rename: Sequence[bool] | None = None) -> Result:
    """A better order for ``kernel``, whose control codes do not count. ``may``: which instructions may move; nothing
    moves across the others. Instructions stay in their blocks. ``rename``: those whose registers may be renamed, where
    that makes a better order possible."""
    made = bare(kernel, kernel.words)
    words = renamed(kernel, made, rename) if rename is not None and any(rename) else kernel.words
    found = []
    for longer in LONGER:
        found.append([_order(kernel, made, may, longer)])
        if words != kernel.words:
            found[-1].append(replace(_order(kernel, bare(kernel, words), may, longer), words=words))
    return _judged(kernel, found)


def _judged(kernel: Kernel, found: Sequence[Sequence[Result]]) -> Result:
    """Of each block the order with whose codes it keeps a warp the shortest: that which was given, or one of those that
    were ``found``, for loads that are slower and slower."""
    result = Result(list(range(len(kernel.words))), list(kernel.words), found[0][0].notes)
    if all(one.order == result.order for some in found for one in some):
        return result
    given = _coded(kernel, result)
    coded = [[(_coded(kernel, one), one) for one in some] for some in found]
    for number, block in enumerate(Graph(kernel).blocks):
        members, loops = slice(block.start, block.end), number in block.next
        least = took(given[members], loops)
        for some in coded:
            costs = [took(instructions[members], loops) for instructions, _ in some]
            if min(costs) < least:
                best = some[costs.index(min(costs))][1]
                result.order[members], result.words[members] = best.order[members], best.words[members]
                least = min(costs)
            least = least[0] * SAVES, 0.0
    return result


def _coded(kernel: Kernel, order: Result) -> list[Instruction | None]:
    """The instructions in an order, with codes for it."""
    copied = replace(kernel, code=Code(words=order.words), relocations=list(kernel.relocations))
    put(copied, order.order)
    copied.words = codes(copied, [NOTHING] * len(copied.words)).words
    return list(Graph(copied).instructions)


def bare(kernel: Kernel, words: Sequence[int]) -> Ways:
    """The ways through a kernel, whose control codes do not count."""
    words = [word & ~control.MASK | NEUTRAL for word in words]
    return Ways(Graph(replace(kernel, code=Code(words=words))))


def _order(kernel: Kernel, ways: Ways, may: Sequence[bool] | None, longer: float = 1.0) -> Result:
    """``longer``: for a machine whose results of variable latency take so many times as long."""
    count = len(kernel.words)
    told = named(kernel, ways.graph)
    result = Result(list(range(count)), list(kernel.words))
    if told is None:
        result.notes.append((0, "where its indirect branches lead is not known: all instructions keep their places"))
        return result
    walls = told if may is None else told | {n for n in range(count) if not may[n]}
    blocks = ways.graph.blocks
    models = [Model(ways, number, walls) for number in range(len(blocks))]
    if longer != 1.0:
        models = [model.other(longer, [1.0] * len(model.members)) for model in models]
    result.notes += [note for model in models for note in _kept(model)]
    left: list[Late] = [{} for _ in blocks]  # how late the results of each block are
    for number, model in enumerate(models):
        left[number] = model.time(model.members, {})[1]
    for number, model in enumerate(models):
        others = _latest([left[before] for before in blocks[number].previous if before != number])
        loops = number in blocks[number].previous
        best: Sequence[int] = model.members
        least, late = model.cost(best, others, loops)
        for _ in range(ROUNDS):
            tried = [(*model.cost(found, others, loops), found) for pair in (False, True)
                     for found in [model.arrange(late, pair)]]  # fmt: skip
            new, its, found = min(tried, key=lambda one: one[0])
            if new >= least:
                break
            best, least, late = found, new, its
        result.order[model.block.start : model.block.end] = best
        left[number] = model.time(best, late)[1]
    return result


def _kept(model: Model) -> Iterator[tuple[int, str]]:
    """Accesses that stay behind another one because it cannot be told that they touch different bytes."""
    behind: dict[int, tuple[int, str]] = {}
    for edge in model.edges:
        one, other = (model.ways.facts[n] for n in (edge.first, edge.second))
        if edge.kind != MEMORY or one is None or other is None:
            continue
        if all("lanewise" in i.op.traits and "STRONG" not in i.mods for i in (one.i, other.i)):
            behind[edge.second] = edge.first, one.i.base
    for m, (n, base) in behind.items():
        yield m, f"stays behind {base} at {WORD_BYTES * n:#06x}: they may touch the same bytes"


def _latest(parts: Sequence[Late]) -> Late:
    found: Late = {}
    for part in parts:
        for register, late in part.items():
            found[register] = max(found.get(register, 0), late)
    return found
