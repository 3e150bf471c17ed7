"""The ways that control may take through a kernel, for the scheduler: from block to block, into calls and back."""

from __future__ import annotations

from functools import cached_property

from turingas.flow.graph import Graph
from turingas.flow.guards import IMPOSSIBLE, TRUE, Guards, opposite, row
from turingas.isa.effects import Effects
from turingas.isa.latency import latencies


class Ways:
    """``next[b]``: the blocks that may run behind block ``b``, those of a function that it calls among them, and those
    behind its callers where it returns. ``open``: instructions behind which code may run that is not known.
    ``inside[b]``: the loops around a block. ``weight``: 10 for each loop around an instruction."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.lat = latencies(graph.kernel.arch)
        self.facts = [None if i is None else Effects(i, self.lat) for i in graph.instructions]
        blocks = graph.blocks
        self.guards = Guards(graph, self.facts)
        callers: dict[int, list[int]] = {}
        for number, block in enumerate(blocks):
            if block.calls is not None:
                callers.setdefault(block.calls, []).append(number)
        self._known: dict[tuple[int, int], int] = {}  # way -> literals that hold on it, -1: no thread takes it
        self.next = [list(block.next) for block in blocks]
        self.open: set[int] = set()
        for number, block in enumerate(blocks):
            last = block.end - 1
            i = graph.instructions[last]
            falls = i is not None and not i.always  # a guarded CALL or RET may be passed by
            if block.calls is not None:
                self.next[number] = [block.calls, *(block.next if falls else ())]
            elif block.leaves:
                self.open.add(last)
            elif block.returns:
                back = [to for entry, members in graph.own.items() if number in members
                        for caller in callers.get(entry, ()) for to in blocks[caller].next]  # fmt: skip
                if back:
                    self.next[number] += [to for to in back if to not in self.next[number]]
                else:
                    self.open.add(last)
        for number in graph.open:
            self.open.add(blocks[number].end - 1)
        self.inside: list[list[int]] = [[] for _ in blocks]
        for number, loop in enumerate(graph.loops):
            for member in loop.blocks:
                self.inside[member].append(number)
        self.weight = [1] * len(graph.instructions)
        for block, loops in zip(blocks, self.inside):
            depth = max((graph.loops[number].depth for number in loops), default=0)
            self.weight[block.start : block.end] = [10**depth] * (block.end - block.start)
        self.block = [0] * len(graph.instructions)
        for number, block in enumerate(blocks):
            self.block[block.start : block.end] = [number] * (block.end - block.start)

    @cached_property
    def reach(self) -> list[int]:
        """A mask of the blocks that may run from the begin of each block on, itself among them."""
        reach = [1 << number for number in range(len(self.next))]
        changed = True
        while changed:
            changed = False
            for number in range(len(reach) - 1, -1, -1):
                more = reach[number]
                for to in self.next[number]:
                    more |= reach[to]
                if more != reach[number]:
                    reach[number], changed = more, True
        return reach

    @cached_property
    def into(self) -> list[list[int]]:
        """Of each loop the blocks outside from which control may come into it."""
        found: list[list[int]] = [[] for _ in self.graph.loops]
        for number, following in enumerate(self.next):
            for to in following:
                for loop in self.inside[to]:
                    if number not in self.graph.loops[loop].blocks and found[loop][-1:] != [number]:
                        found[loop].append(number)
        return found

    def along(self, number: int, to: int, holds: int) -> int | None:
        """What holds of ``holds`` behind the way from a block to a next one; None for a way that is not taken where
        they hold. What a branch tells besides is not added: less would be waited for than the linter can follow."""
        here = self._known.get((number, to))
        if here is None:
            if to in self.graph.blocks[number].next:
                known = self.guards.along(number, to)
                here = -1 if known == IMPOSSIBLE else row(known, TRUE)
            else:
                here = 0  # into a function or back: nothing is followed there
            self._known[number, to] = here
        if here <= 0:
            return None if here else (holds if to in self.graph.blocks[number].next else 0)
        return None if here & opposite(holds) else holds
