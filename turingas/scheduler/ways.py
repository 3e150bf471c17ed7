"""The ways that control may take through a kernel, for the scheduler: from block to block, into calls and back."""

from __future__ import annotations

from functools import cached_property

from turingas.flow.graph import Graph
from turingas.flow.guards import IMPOSSIBLE, TRUE, Guards, opposite, row
from turingas.isa.effects import Effects
from turingas.isa.latency import latencies

#: the blocks with the calls that a way is in, the last one inmost; of others nothing is known
Calls = tuple[int, ...]


class Ways:
    """``next[b]``: the blocks that may run behind block ``b``: ``inner[b]``, those of its own function, those of one
    that it calls, and where it returns ``back[b]``, those behind its callers. ``open``: instructions behind which code
    may run that is not known. ``inside[b]``: the loops around a block. ``weight``: 10 for each loop around an
    instruction."""

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
        self.inner = [list(block.next) for block in blocks]
        self.back: list[list[int]] = [[] for _ in blocks]
        self.open: set[int] = set()
        for number, block in enumerate(blocks):
            last = block.end - 1
            i = graph.instructions[last]
            falls = i is not None and not i.always  # a guarded CALL or RET may be passed by
            if block.calls is not None:
                self.inner[number] = list(block.next) if falls else []
                self.next[number] = [block.calls, *self.inner[number]]
            elif block.leaves:
                self.open.add(last)
            elif block.returns:
                back = [to for entry, members in graph.own.items() if number in members
                        for caller in callers.get(entry, ()) for to in blocks[caller].next]  # fmt: skip
                if back:
                    self.back[number] = back
                    self.next[number] += [to for to in back if to not in self.next[number]]
                else:
                    self.open.add(last)
        #: the first blocks of functions that return
        self.returning = {entry for entry, members in graph.own.items() if any(self.back[number] for number in members)}
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
    def join(self) -> list[int | None]:
        """Of each block the next one of its function that all ways from it come through, but for those that end before
        (its immediate post-dominator; Cooper, Harvey, Kennedy 2001); None where there is none."""
        blocks = self.graph.blocks
        last = len(blocks)  # where all ways end
        onward: list[list[int]] = []
        for block, inner in zip(blocks, self.inner):
            entry = block.calls
            following = block.next if entry is None or entry in self.returning else [entry, *inner]
            onward.append([to for to in following if self.next[to]] or [last])
        before: list[list[int]] = [[] for _ in range(last + 1)]
        for number, following in enumerate(onward):
            for to in following:
                before[to].append(number)
        order: list[int] = []  # behind all that comes after it, but around loops
        seen, stack = {last}, [(last, iter(before[last]))]
        while stack:
            number, rest = stack[-1]
            new = next((to for to in rest if to not in seen), None)
            if new is None:
                order.append(number)
                stack.pop()
            else:
                seen.add(new)
                stack.append((new, iter(before[new])))
        rank = {number: n for n, number in enumerate(order)}
        found: dict[int, int] = {last: last}
        changed = True
        while changed:
            changed = False
            for number in reversed(order[:-1]):
                meet = -1
                for to in (to for to in onward[number] if to in found):
                    if meet < 0:
                        meet = to
                    while meet != to:
                        if rank[meet] < rank[to]:
                            meet = found[meet]
                        else:
                            to = found[to]
                if found.get(number) != meet:
                    found[number], changed = meet, True
        joins = [found.get(number, last) for number in range(last)]
        return [None if to == last else to for to in joins]

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
    def roads(self) -> list[list[tuple[int, int]]]:
        """From each block, within its function: where to, and the literals that are false on that way. What a branch
        tells besides is not added: less would be waited for than the linter can follow."""
        along = self.guards.along
        return [
            [(to, opposite(row(known, TRUE))) for to in inner if (known := along(number, to)) != IMPOSSIBLE]
            for number, inner in enumerate(self.inner)
        ]

    def along(self, number: int, to: int, holds: int) -> int | None:
        """What holds of ``holds`` behind the way from a block to a next one; None for a way that is not taken where
        they hold. Into a function and back it is not followed."""
        if to not in self.inner[number]:
            return 0
        wrong = next((wrong for there, wrong in self.roads[number] if there == to), None)
        return None if wrong is None or wrong & holds else holds

    def across(self, number: int, calls: Calls, deep: int) -> list[tuple[int, Calls]]:
        """The ways from a block into the function that it calls, and out of its own: where to, and the calls that they
        are in. ``calls``: those that a way to the block is in. A function that was called on the way returns there and
        nowhere else; in more than ``deep`` calls it may return behind any of its callers."""
        entry, back = self.graph.blocks[number].calls, self.back[number]
        found: list[tuple[int, Calls]] = []
        if entry in self.returning:
            found.append((entry, (*calls, number) if len(calls) < deep else ()))
        elif entry is not None:  # as good as a branch
            found.append((entry, calls))
        if calls and back:
            back = [to for to in self.graph.blocks[calls[-1]].next if to in back]
        return found + [(to, calls[:-1]) for to in back]
