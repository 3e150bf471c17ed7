"""Results of fixed latency on the way through a block: who reads or overwrites them too early.

What happens among the instructions of a block is the same wherever the block stands, and mostly nothing: that is found
out once (``alone``). In each place only that remains to be looked at which was under way before the block.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, reduce
from operator import or_
from typing import NamedTuple

from turingas.check.under_way import key_of, number_of
from turingas.flow.stretch import REMEMBERED, Stretch
from turingas.isa.effects import FIXED, Distances, Effects, Touch, bits, distances
from turingas.isa.latency import latencies


class Near(NamedTuple):
    """A result that is under way. ``mask``: its registers as bits; ``until``: the cycle from which on nobody has to ask
    for it; ``cycle`` and ``key`` of its instruction; ``write``: how it is written; ``holds``: literals that held in a
    thread where it is under way, in front of instruction ``since``."""

    mask: int
    until: int
    cycle: int
    key: int
    write: Touch
    holds: int
    since: int


class Fixed:
    """The way through instructions of ``facts`` alone, of which nothing else is known. ``near``: what is under way
    before them; cycles count from the first. ``close``: whether something comes too early."""

    def __init__(self, facts: Sequence[Effects | None], of: Distances, near: list[Near]) -> None:
        self.facts, self.distances, self.near, self.close = facts, of, near, False
        self.busy = reduce(or_, [one.mask for one in near], 0)  # registers of ``near``, and perhaps more

    def through(self, start: int, end: int, own: bool) -> None:
        """From instruction ``start`` to ``end - 1``. ``own``: their results are looked at, too; otherwise it is over
        when all others are there."""
        now, last = 0, max([one.until for one in self.near], default=0)
        for n in range(start, end):
            if now >= last and not own:
                return
            this = self.facts[n]
            if this is None:
                now += 1
                continue
            if this.touched & self.busy:
                self._touch(n, this, now)
            if own and this.lasting:
                key, holds = key_of(n, FIXED), self.runs(n)
                for write in this.lasting:
                    self.near.append(Near(write.mask, now + write.most, now, key, write, holds, n))
                    self.busy |= write.mask
            now += this.stall

    # -- what is known where a block stands, and not of its words alone

    def runs(self, n: int) -> int:
        """The literals that hold where instruction ``n`` runs."""
        return 0

    def apart(self, one: Near, n: int, guard: bool) -> bool:
        """Whether predicates exclude that a result is under way where ``n`` runs, or where its guard is read."""
        return False

    def age(self, n: int, this: Effects) -> None:
        """``n`` may come by once more: what it has under way is older then."""

    def too_early(self, hazard: str, key: int, n: int, register: int, passed: int, need: int) -> None:
        """``n`` reads ("raw") or overwrites ("waw") a register too early."""
        self.close = True

    # -- registers

    def _touch(self, n: int, this: Effects, now: int) -> None:
        """Instruction ``n`` reads and writes registers that may be under way."""
        self.near = [one for one in self.near if one.until > now]
        self.busy = 0
        for one in self.near:
            self.busy |= one.mask
        if not this.touched & self.busy:
            return
        if this.asks & self.busy:
            self._read(n, this, now)
        if this.guard is not None:
            self.age(n, this)
        if this.changes & self.busy:
            self._write(n, this, now)

    def _read(self, n: int, this: Effects, now: int) -> None:
        early: list[tuple[int, int, int, int, int, int]] = []  # place, register, order, key, cycles passed, needed
        for place, read in enumerate(this.reading):
            if not read.mask & self.busy:
                continue
            for one in self.near:
                if one.mask & read.mask:
                    passed = now - one.cycle
                    need = self.distances.raw(self._of(one).i, one.write, this.i, read)
                    if passed < need and not self.apart(one, n, read.access.what == "guard"):
                        early.append((place, bits(one.mask & read.mask)[0], len(early), one.key, passed, need))
        for _, register, _, key, passed, need in sorted(early):
            self.too_early("raw", key, n, register, passed, need)

    def _write(self, n: int, this: Effects, now: int) -> None:
        """What instruction ``n`` overwrites; that is no longer under way."""
        early: list[tuple[int, int, int, int, int, int]] = []  # place, register, order, key, cycles passed, needed
        left = -1  # registers that its touches so far have not written for sure
        for place, write in enumerate(this.writing):
            for one in self.near:
                if one.mask & write.mask & left:
                    passed = now - one.cycle
                    need = self.distances.waw(self._of(one).i, one.write, this.i, write)
                    if passed < need and not self.apart(one, n, False):
                        early.append((place, bits(one.mask & write.mask & left)[0], len(early), one.key, passed, need))
            if this.guard is None:
                left &= ~write.mask
        for _, register, _, key, passed, need in sorted(early):
            self.too_early("waw", key, n, register, passed, need)
        if this.guard is None:
            self.near = [
                one._replace(mask=one.mask & left) if one.mask & ~left else one for one in self.near if one.mask & left
            ]  # fmt: skip
            self.busy &= left
        else:
            self.near = [one for one in self.near if one.key != key_of(n, FIXED)]

    def _of(self, one: Near) -> Effects:
        this = self.facts[number_of(one.key)]
        assert this is not None
        return this

    def literals(self, one: Near, n: int) -> int:
        """The literals that still hold in front of instruction ``n`` where a result is under way."""
        return one.holds & ~cleared(self.facts, one.since, n)


def cleared(facts: Sequence[Effects | None], since: int, n: int) -> int:
    """The literals of predicates that instructions ``since`` to ``n - 1`` write."""
    return reduce(or_, [this.clears for this in facts[since:n] if this is not None], 0)


class Left(NamedTuple):
    """A result that is under way behind a block: instruction ``n`` has begun it ``cycles`` before."""

    register: int
    n: int
    cycles: int
    write: Touch
    cleared: int  # literals of predicates that were written since


class Alone(NamedTuple):
    """The instructions of a block alone. ``close``: whether some come too early, if predicates do not exclude it;
    ``left``: what is under way behind them; ``cycles`` from the first to the one behind the block."""

    close: bool
    left: list[Left]
    cycles: int


@lru_cache(REMEMBERED)
def alone(stretch: Stretch) -> Alone:
    """What there is to know of the instructions of a block, wherever it stands."""
    facts = stretch.effects
    way = Fixed(facts, distances(latencies(stretch.arch)), [])
    way.through(0, len(facts), True)
    cycles = sum([1 if this is None else this.stall for this in facts])
    left = []
    for one in way.near:
        if one.until > cycles:
            gone = cleared(facts, one.since, len(facts))
            left += [
                Left(register, number_of(one.key), cycles - one.cycle, one.write, gone) for register in bits(one.mask)
            ]
    return Alone(way.close, left, cycles)
