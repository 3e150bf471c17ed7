"""What is under way at one point of a kernel, and how that of several ways is joined: the state of hazards.py."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import and_, or_
from typing import TypeVar

from turingas.isa.effects import LATE, SCOREBOARDS, VARIABLE, Touch

# What is under way has a key: instruction number << 3 | role << 1 | OLDER. An instruction with a guard that comes by
# once more, when what it began before may still be under way, leaves that as OLDER.
OLDER = 1
ROLE = 3
OF_ROLE, OF_VARIABLE, OF_LATE = ROLE << 1, VARIABLE << 1, LATE << 1  # the role in a key


def key_of(n: int, role: int) -> int:
    """The key of what instruction ``n`` has begun last."""
    return n << 3 | role << 1


def number_of(key: int) -> int:
    """The instruction of a key."""
    return key >> 3


def role_of(key: int) -> int:
    """FIXED, VARIABLE, LATE or WITH_SOURCES."""
    return key >> 1 & ROLE


def instance_of(key: int) -> int:
    """The instruction of a key, and whether it is the older one: all results that began with it have this in common;
    its sources, which are done earlier, on some ways, have one of their own."""
    return key if key & OF_ROLE == OF_LATE else key & ~OF_ROLE


Place = tuple[int, int]  # register, key
Begun = tuple[int, Touch]  # cycles, and a write

K = TypeVar("K")
V = TypeVar("V")


class State:
    """What is under way at one point. ``fixed``: results of fixed latency, place -> fewest cycles since its
    instruction, and the write; ``results`` and ``sources``: what only a scoreboard tells of, key -> its registers as
    bits. ``holds``: instance -> literals that hold in a thread where it is under way. ``covers``: queue -> key without
    OLDER -> mask of the scoreboards any of which tells that it is done.
    ``pending``: for each scoreboard the instructions that have set it since the last wait, as bits; ``fresh``:
    (scoreboard, instruction) -> fewest cycles since it was set, if these are too few for a wait.
    Kept where DEPBAR counts: ``settings``, (scoreboard, instruction) -> fewest other settings since it was set;
    ``marks``, (scoreboard, key) -> fewest settings of a scoreboard in ``covers`` since the first one that told of
    key."""

    __slots__ = ("covers", "fixed", "fresh", "holds", "marks", "pending", "results", "settings", "sources")

    def __init__(
        self,
        fixed: dict[Place, Begun],
        results: dict[int, int],
        sources: dict[int, int],
        holds: dict[int, int],
        covers: dict[str, dict[int, int]],
        pending: list[int],
        fresh: dict[tuple[int, int], int],
        settings: dict[tuple[int, int], int],
        marks: dict[tuple[int, int], int],
    ) -> None:
        self.fixed, self.results, self.sources, self.holds, self.covers = fixed, results, sources, holds, covers
        self.pending, self.fresh, self.settings, self.marks = pending, fresh, settings, marks

    def joined(self, other: State) -> State:
        """With what is under way in ``other``; itself where that is no news. States share parts, and do not change."""
        if self is NOTHING and (other.results or other.fixed or other.sources):  # as mostly
            return other
        pending = [one | more for one, more in zip(self.pending, other.pending)]
        new = State(
            _joined(self.fixed, other.fixed, _sooner),
            _joined(self.results, other.results, or_),
            _joined(self.sources, other.sources, or_),
            _joined(self.holds, other.holds, and_),
            self.covers,
            self.pending if pending == self.pending else pending,
            _joined(self.fresh, other.fresh, min),
            _joined(self.settings, other.settings, min),
            _joined(self.marks, other.marks, min),
        )
        for queue, covers in other.covers.items():
            mine = self.covers.get(queue, {})
            if (both := _joined(mine, covers, and_)) is not mine:
                new.covers = {**new.covers, queue: both}
        same = (
            new.fixed is self.fixed and new.results is self.results and new.sources is self.sources
            and new.holds is self.holds and new.covers is self.covers and new.pending is self.pending
            and new.fresh is self.fresh and new.settings is self.settings and new.marks is self.marks
        )  # fmt: skip
        return self if same else new

    @property
    def empty(self) -> bool:
        """Whether nothing is under way, and no scoreboard is set."""
        return not (self.fixed or self.results or self.sources or self.covers or any(self.pending))

    def moved(self, by: int) -> State:
        """The same ``by`` instructions further on, where DEPBAR does not count."""
        more = key_of(by, 0)
        results, sources, holds = (
            {key + more: value for key, value in part.items()} for part in (self.results, self.sources, self.holds)
        )
        return State(
            {(register, key + more): begun for (register, key), begun in self.fixed.items()}, results, sources, holds,
            {queue: {key + more: mask for key, mask in live.items()} for queue, live in self.covers.items()},
            [mask << by if by > 0 else mask >> -by for mask in self.pending],
            {(sb, n + by): cycles for (sb, n), cycles in self.fresh.items()}, {}, {},
        )  # fmt: skip


NOTHING = State({}, {}, {}, {}, {}, [0] * SCOREBOARDS, {}, {}, {})


def _joined(mine: dict[K, V], more: dict[K, V], both: Callable[[V, V], V]) -> dict[K, V]:
    """All entries; of what both have, what ``both`` makes of it. ``mine`` itself where that is no news."""
    if not more or mine is more:
        return mine
    if not mine:
        return more
    found = mine
    for key, value in more.items():
        known = mine.get(key)
        new = value if known is None else both(known, value)
        if new != known:
            if found is mine:
                found = dict(mine)
            found[key] = new
    return found


def _sooner(one: Begun, other: Begun) -> Begun:
    return other if other[0] < one[0] else one


def instances(results: Iterable[int], sources: Iterable[int]) -> set[int]:
    """The instances of keys."""
    return {instance_of(key) for key in (*results, *sources)}


def of_keys(
    covers: dict[str, dict[int, int]], results: dict[int, int], sources: dict[int, int]
) -> dict[str, dict[int, int]]:
    """The part of ``covers`` that tells of what is under way."""
    keys = {key & ~OLDER for key in (*results, *sources)}
    if sum(map(len, covers.values())) == len(keys):  # as mostly
        return covers
    return {queue: {key: mask for key, mask in live.items() if key in keys} for queue, live in covers.items()}
