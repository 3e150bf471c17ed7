"""Iterative modulo scheduling of one round of a loop (Rau, "Iterative Modulo Scheduling", MICRO 1994).

A round begins every ``ii`` cycles (the initiation interval), whether or not those before are done: operation ``v`` of
each round runs ``time[v]`` cycles behind the round's begin. An arc says how far apart two operations stay, of which the
second may belong to a later round; a table of ``ii`` rows says which cycles are taken of the issue slot and of each
pipe. The least interval follows from both; from there on each is tried until one can be kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

START = -1  # the begin of a round, as the end of an arc
TRIES = 8  # for each operation, of which some push others from their places
ISSUE = "issue"


class Arc(NamedTuple):
    """``second`` of the round that begins ``rounds`` later runs ``cycles`` behind ``first`` at least."""

    first: int
    second: int
    cycles: int
    rounds: int


class Found(NamedTuple):
    """The interval, and when each operation runs."""

    ii: int
    time: list[int]


class Modulo:
    """``uses``: for each operation how long it takes what, such as ("issue", 1) and ("lsu", 4). ``arcs``: between
    operations, and to START, which runs at cycle 0 of its round: so no operation comes too late."""

    def __init__(self, uses: Sequence[Sequence[tuple[str, int]]], arcs: Sequence[Arc]) -> None:
        self.uses, self.count = uses, len(uses)
        self.arcs = sorted((arc for arc in arcs if arc.second != START), key=lambda arc: -arc.second)
        self.ends = [[arc for arc in arcs if arc.first == v and arc.second == START] for v in range(self.count)]
        self.behind: list[list[Arc]] = [[] for _ in uses]
        self.before: list[list[Arc]] = [[] for _ in uses]
        for arc in self.arcs:
            self.behind[arc.first].append(arc)
            self.before[arc.second].append(arc)
        self.bound, self.least = self._bound()

    def _bound(self) -> tuple[str, int]:
        """The least interval, and what asks for it: something that all rounds use, or a chain (operations by number)
        that leads from a round to a later one."""
        taken: dict[str, int] = {}
        for uses in self.uses:
            for what, cycles in uses:
                taken[what] = taken.get(what, 0) + cycles
        what, most = max(taken.items(), key=lambda pair: (pair[1], pair[0] == ISSUE))
        self.chain: list[int] = []
        low, high = most, most + sum(max(arc.cycles, 1) for arc in self.arcs) + 1
        while low < high:
            middle = (low + high) // 2
            if self.latest(middle) is None:
                low = middle + 1
            else:
                high = middle
        if low > most:
            self.latest(low - 1)
        return (what, most) if low == most else ("", low)

    def latest(self, ii: int) -> list[int] | None:
        """The latest cycle of each operation; None if one of them would come before its round, because of ``chain``."""
        late = [min(ii * arc.rounds - arc.cycles for arc in ends) for ends in self.ends]
        by: list[int | None] = [None] * self.count
        changed = True
        while changed:
            changed = False
            for first, second, cycles, rounds in self.arcs:
                bound = late[second] + ii * rounds - cycles
                if bound < late[first]:
                    late[first], by[first], changed = bound, second, True
                    if bound < 0:
                        self.chain = _followed(by, first)
                        return None
        return late

    def schedule(self, most: int) -> Found | None:
        """With the least interval below ``most`` that is found."""
        ii = self.least
        while ii < most:
            time = self._kept(ii)
            if time is not None:
                return Found(ii, time)
            ii += max(1, ii // 16)
        return None

    def _kept(self, ii: int) -> list[int] | None:
        late = self.latest(ii)
        if late is None or any(cycles > ii for uses in self.uses for _, cycles in uses):
            return None
        time: dict[int, int] = {}
        last = [-1] * self.count
        table: dict[tuple[str, int], int] = {}  # what, row -> who takes it
        todo = set(range(self.count))
        budget = TRIES * self.count
        while todo:
            budget -= 1
            v = min(todo, key=lambda v: (late[v], v))
            known = [time[a.first] + a.cycles - ii * a.rounds for a in self.before[v] if a.first in time]
            soon = max([0, *known])
            t = next((t for t in range(soon, soon + ii) if not self._takes(v, t, ii, table)), max(soon, last[v] + 1))
            if budget < 0 or t > late[v]:
                return None
            pushed = self._takes(v, t, ii, table)
            for _, u, cycles, rounds in self.behind[v]:
                if u in time and time[u] < t + cycles - ii * rounds:
                    pushed.add(u)
            for u in pushed - {v}:
                for row in self._rows(u, time.pop(u), ii):
                    del table[row]
                todo.add(u)
            for row in self._rows(v, t, ii):
                table[row] = v
            time[v] = last[v] = t
            todo.remove(v)
        return [time[v] for v in range(self.count)]

    def _rows(self, v: int, t: int, ii: int) -> list[tuple[str, int]]:
        return [(what, (t + n) % ii) for what, cycles in self.uses[v] for n in range(cycles)]

    def _takes(self, v: int, t: int, ii: int, table: dict[tuple[str, int], int]) -> set[int]:
        """Who is in the way of ``v`` at cycle ``t``."""
        return {table[row] for row in self._rows(v, t, ii) if row in table}


def _followed(by: Sequence[int | None], v: int | None) -> list[int]:
    """The chain that ``v`` begins, or the circle that it leads into."""
    chain: list[int] = []
    while v is not None and v not in chain:
        chain.append(v)
        v = by[v]
    return chain[chain.index(v) :] if v is not None else chain
