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

    @cached_property
    def roads(self) -> list[list[tuple[int, int, int]]]:
        """From each block: where to, the literals that are false on that way, and a mask of those that still hold
        behind it. What a branch tells besides is not added: less would be waited for than the linter can follow."""
        found: list[list[tuple[int, int, int]]] = []
        for number, following in enumerate(self.next):
            found.append([])
            for to in following:
                if to not in self.graph.blocks[number].next:
                    found[-1].append((to, 0, 0))  # into a function or back: nothing is followed there
                elif (known := self.guards.along(number, to)) != IMPOSSIBLE:
                    found[-1].append((to, opposite(row(known, TRUE)), -1))
        return found

    def along(self, number: int, to: int, holds: int) -> int | None:
        """What holds of ``holds`` behind the way from a block to a next one; None for a way that is not taken where
        they hold."""
        road = next((road for road in self.roads[number] if road[0] == to), None)
        return None if road is None or road[1] & holds else road[2] & holds
