"""What comes late: copies and products that a warp has begun, and whose end the program has not proved yet.

An asynchronous instruction says with ``Late.begin`` which warps begin it and gives a function that carries it out. It
is called when the program has proved that the operation is over, and not before, so that who reads too early finds the
old bytes; sources, too, are read only then, so that who overwrites them too early finds the new ones in the copy. There
are two proofs:

* A **group**: operations of a ``kind`` ("copy", "bulk", "product") stay open until the warp closes the group
  (``close``: LDGDEPBAR, UTMACMDFLUSH, gsb0 of a product), which sets a scoreboard; a wait (``settle``: DEPBAR,
  WARPGROUP.DEPBAR, a wait mask) says how many settings may be left. Groups of a warp end in their order.
* An **mbarrier** that hears of the end (``expect``). Whoever tests its phase (``poll``) has delivered what is under
  way, in order, as far as the phase needs to be over; where that is not enough, nothing is.

What nobody has waited for is done when the wave ends, ``finish``. A kernel that waits by looking at the data itself
waits forever. One call for each case::

    late.begin(k.warps, land, kind="copy", i=i, touches=[...], proxy=False)    # LDGSTS: proved by its group
    late.expect(cell, late.begin(warps, land, i=i, touches=[...]), change, fail, i, warp)    # UBLKCP: by an mbarrier

``land(rows)`` gets a slice or indices into the warps that it began with, each of them once. ``touches`` say which bytes
of memory it reads and writes, for ``races``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from turingas.emulate.arrays import Array, Rows
from turingas.isa.instruction import Instruction

MANY = 256  # operations, before those that are over are forgotten
NONE: Array = np.zeros(0, np.int64)
PHASE = 63  # the bit of an mbarrier that changes with its phase

Land = Callable[[Rows], None]
Which = Array | None  # rows of a flight, (n,) bool; None: all


class Touch(NamedTuple):
    """What an operation does to memory: "read", "write", "atomic" or "mbarrier" (that hears of the end). ``at``: (rows,
    m), counts items of ``nbytes`` from the first byte of the wave's shared memory, as ``memory.Spots`` does, for each
    warp that begins it; those of ``mask`` count (None: all). In the "global" ``space`` they are addresses, in that of
    "tensor" memory words as ``TensorMemory.numbers`` counts them."""

    what: str
    at: Array
    nbytes: int
    mask: Array | None = None
    space: str = "shared"


class Flight:
    """One operation of some warps, (n,) ascending; ``left``: rows where it is not over yet. ``numbers``: what the
    detector of races calls them."""

    __slots__ = ("land", "left", "numbers", "pending", "warps")

    def __init__(self, warps: Array, land: Land) -> None:
        self.warps, self.land, self.left, self.numbers = warps, land, len(warps), NONE
        self.pending: Array | None = None  # None: all or none

    def finish(self, which: Which = None) -> None:
        """Carry it out in rows where it is not over."""
        if not self.left:
            return
        if which is not None and self.pending is None:
            self.pending = np.ones(len(self.warps), bool)
        if self.pending is None:
            self.left = 0
            self.land(slice(None))
            return
        rows = np.flatnonzero(self.pending if which is None else self.pending & which)
        if len(rows):
            self.pending[rows] = False
            self.left -= len(rows)
            self.land(rows)


class Group(NamedTuple):
    """Operations that ``warps`` closed together, in each as the setting ``number`` of a scoreboard."""

    warps: Array
    number: Array
    flights: list[tuple[Flight, Which]]


class Delivery(NamedTuple):
    """What an mbarrier hears of: ``change`` makes its new state, and raises what ``fail`` makes an error of."""

    flights: Sequence[tuple[Flight, Which]]
    change: Callable[[int], int]
    fail: Callable[[Exception], Exception]


class Watcher(Protocol):
    """Who hears of what is under way (``cohort.Observer``)."""

    def began(self, flight: Flight, i: Instruction, touches: Sequence[Touch], proxy: bool) -> None: ...

    def closed(self, flights: Sequence[tuple[Flight, Which]], warps: Array, board: int, numbers: Array) -> None: ...

    def waited(self, board: int, warps: Array, over: Array) -> None: ...

    def expected(self, cell: int, i: Instruction, warp: int, arrives: bool) -> None: ...

    def delivered(self, cell: int, flights: Sequence[tuple[Flight, Which]]) -> None: ...

    def phase_over(self, cell: int) -> None: ...


class Late:
    """All that is under way in one wave of so many warps. ``cells`` are its mbarriers: shared memory as uint64."""

    def __init__(self, warps: int, cells: Array, watchers: Sequence[Watcher] = ()) -> None:
        self.warps, self.cells, self.watchers = warps, cells, watchers
        self.flights: list[Flight] = []  # in the order in which they began
        self.open: dict[str, list[tuple[Flight, Which]]] = {}
        self.groups: dict[int, list[Group]] = {}  # by scoreboard
        self.sets: dict[int, Array] = {}  # scoreboard -> how often each warp has set it by closing a group
        self.expected: dict[int, list[Delivery]] = {}  # by mbarrier

    def begin(
        self,
        warps: Array,
        land: Land,
        kind: str | None = None,
        i: Instruction | None = None,
        touches: Sequence[Touch] = (),
        proxy: bool = True,
    ) -> Flight:
        """``warps`` (ascending) begin an operation. With a ``kind`` it belongs to the group that they close next. For
        the detector of races: the instruction, what it does to memory, and whether through the async proxy."""
        flight = Flight(warps, land)
        if i is not None:
            for watcher in self.watchers:
                watcher.began(flight, i, touches, proxy)
        if len(self.flights) >= MANY:
            self.flights = [f for f in self.flights if f.left]
        self.flights.append(flight)
        if kind is not None:
            self.open.setdefault(kind, []).append((flight, None))
        return flight

    # -- groups

    def close(self, kind: str, warps: Array, board: int | None) -> None:
        """``warps`` close a group, also an empty one, and set a scoreboard (None: none, so that no wait can tell)."""
        taken: list[tuple[Flight, Which]] = []
        still: list[tuple[Flight, Which]] = []
        for flight, rest in self.open.get(kind, ()):
            if not flight.left:
                continue
            which = self._of(flight.warps, warps)
            if rest is not None:  # some have closed it before
                which = rest if which is None else which & rest
            if which is None or which.any():
                taken.append((flight, which))
            if which is not None and (rest := ~which if rest is None else rest & ~which).any():
                still.append((flight, rest))
        self.open[kind] = still
        if board is None:
            return
        sets = self.sets.get(board)
        if sets is None:
            sets = self.sets[board] = np.zeros(self.warps, np.int64)
        for watcher in self.watchers:
            watcher.closed(taken, warps, board, sets[warps])
        if taken:
            self.groups.setdefault(board, []).append(Group(warps, sets[warps], taken))
        sets[warps] += 1

    def settle(self, board: int, warps: Array, left: Array | int = 0) -> None:
        """``warps`` have waited until at most ``left`` settings of a scoreboard, a number or (n,), are not over."""
        if board not in self.sets:
            return
        limit = np.full(self.warps, -1, np.int64)
        limit[warps] = self.sets[board][warps] - left
        for watcher in self.watchers:
            watcher.waited(board, warps, limit[warps])
        if not self.groups.get(board):
            return
        still = []
        for group in self.groups[board]:
            over = group.number < limit[group.warps]
            if over.all():
                for flight, which in group.flights:
                    flight.finish(which)
                continue
            if over.any():
                for flight, which in group.flights:
                    mine = self._of(flight.warps, group.warps[over])
                    flight.finish(mine if which is None else which if mine is None else mine & which)
                rest = ~over
                group = Group(group.warps[rest], group.number[rest], group.flights)
            still.append(group)
        self.groups[board] = still

    def of(self, kind: str, warps: Array) -> list[tuple[Flight, Which]]:
        """What ``warps`` have under way of a kind, in open and closed groups."""
        found = [(f, self._of(f.warps, warps)) for f in self.flights if f.left]
        known = {id(f) for f, _ in self.open.get(kind, ())}
        known |= {id(f) for groups in self.groups.values() for g in groups for f, _ in g.flights}
        return [(f, which) for f, which in found if id(f) in known and (which is None or which.any())]

    def _of(self, mine: Array, warps: Array) -> Which:
        """Which of ``mine`` are among ``warps``."""
        if len(mine) == len(warps) and (mine == warps).all():
            return None
        among = np.zeros(self.warps, bool)
        among[warps] = True
        found: Array = among[mine]
        return found

    # -- mbarriers

    def expect(
        self,
        cell: int,
        flights: Flight | Sequence[tuple[Flight, Which]],
        change: Callable[[int], int],
        fail: Callable[[Exception], Exception],
        i: Instruction,
        warp: int,
        arrives: bool = False,
    ) -> None:
        """The mbarrier at an index of ``cells`` hears when ``flights`` are over, and becomes what ``change`` says. For
        the detector of races: the instruction and the warp that see to it, and whether that counts as an arrival."""
        for watcher in self.watchers:
            watcher.expected(cell, i, warp, arrives)
        given = [(flights, None)] if isinstance(flights, Flight) else flights
        self.expected.setdefault(cell, []).append(Delivery(given, change, fail))

    def poll(self, cells: Array) -> bool:
        """Mbarriers are tested whose phase is not over: deliver what ends it. Returns whether one has ended."""
        ended = False
        if self.expected:
            for cell in self.expected.keys() & set(np.unique(cells).tolist()):
                ended |= self._deliver(cell)
        return ended

    def flush(self, cell: int) -> None:
        """Deliver all that an mbarrier waits for: who arrives in its next phase, or makes it anew, knows of the end."""
        while cell in self.expected and self._deliver(cell, every=True):
            pass

    def _deliver(self, cell: int, every: bool = False) -> bool:
        """Deliver what it takes to end a phase; nothing where all is not enough, but for ``every``."""
        before = state = int(self.cells[cell])
        waiting = self.expected[cell]
        for n, delivery in enumerate(waiting, 1):
            try:
                state = delivery.change(state)
            except ValueError as why:
                raise delivery.fail(why) from None
            over = (state ^ before) >> PHASE != 0
            if over or every and n == len(waiting):
                self.expected[cell] = waiting[n:]
                if not self.expected[cell]:
                    del self.expected[cell]
                self.cells[cell] = state
                for one in waiting[:n]:
                    for watcher in self.watchers:
                        watcher.delivered(cell, one.flights)
                    for flight, which in one.flights:
                        flight.finish(which)
                if over:
                    for watcher in self.watchers:
                        watcher.phase_over(cell)
                return True
        return False

    def finish(self) -> None:
        """The wave has ended: what nobody has waited for is done too."""
        for flight in self.flights:
            flight.finish()
        self.flights.clear()
