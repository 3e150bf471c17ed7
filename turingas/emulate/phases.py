"""Whether what mbarriers are told, and asked, can only be meant for one phase: vectors as in ``order``, and one more.

An mbarrier does not know for which phase an arrival is meant, it counts for the one that is not over; and a test tells
phases by their parity. That other orders of the warps come to the same phases needs this:

* PHASE: who arrives, tells of bytes, or begins what an mbarrier hears of, knows that the phase before is over. So it
  knows if it has found that, or knows who has, or knows of all arrivals, where no operation had to be heard of.
* EXPECT: who announces bytes without arriving is known to an arrival of the same phase: it might be over before.
* GONE: nobody uses an mbarrier behind mbarrier.inval, before it is made anew.
* PARITY: who finds a phase over knows that the one before was over: the one before that has the same parity.
* MISSED: the next phase does not end without an arrival, or an operation, that knows of the test: that one would not
  find it over any more.

By induction over what happens each arrival counts for the same phase then in any order. What only tells of phases that
nobody looks for, or a later one, makes no difference. Before sm_90 tests are loads, and which phase they look for
cannot be seen: PARITY and MISSED are of sm_90 and later.

What is known here is what has happened, whether or not memory shows it: who has found a phase over knows what those
knew that began the operations it heard of, and who waits for a product, what all four warps of its group knew. A layer
of vectors of its own carries that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from turingas.emulate.arrays import Array
from turingas.emulate.cohort import State
from turingas.emulate.late import PHASE, Flight, Which
from turingas.emulate.order import Meeting, Order
from turingas.emulate.splits import GROUP, GSB0
from turingas.isa.instruction import Instruction

WORD = 16  # bytes of an instruction
BEHIND = "a wait for the phase before (SYNCS.PHASECHK), by this warp or by one that tells it"
IN_TIME = "announcing the bytes before the arrival, or with it (mbarrier.arrive.expect_tx)"
IN_TURN = "a wait for each phase in turn, by this warp or by one that tells it"
ANEW = "mbarrier.init (SYNCS.EXCH) between them"
SEEN = "an arrival for the next phase that is behind this wait, or a barrier between them"


class By(NamedTuple):
    """Who: an instruction's number, and a warp."""

    number: int
    warp: int


class Heard(NamedTuple):
    """What an mbarrier will hear of: who began it, how many phases that one knew to be over, and what else."""

    by: By
    phases: int
    known: Array
    arrives: bool


Tests = dict[int, tuple[int, int]]  # of a warp, the time and the instruction


class End(NamedTuple):
    """Of a phase: who ended it; when each warp has arrived, None if the mbarrier had to hear of operations, for that
    these are over nobody knows of itself; who had found the one before over."""

    by: By
    came: Array | None
    tests: Tests


class Life:
    """What is kept of an mbarrier from when it is made: after so many ``begun`` phases of those that lay there before,
    which are counted on. However many phases there are, it does not grow."""

    def __init__(self, begun: int, members: int) -> None:
        self.begun = begun
        self.by = By(0, 0)  # who has told it something last
        self.looked = begun  # the most phases that somebody has found over
        self.doubts: dict[tuple[str, int, int], tuple[By, By, str]] = {}  # what makes a difference if somebody looks
        self.ends: dict[int, End] = {}  # of the last two phases; of the last that somebody has found over, and the next
        self.came = np.zeros(members, np.int32)  # in this phase, so far
        self.heard = False  # of operations
        self.tests: Tests = {}
        self.expects: Tests = {}  # who has announced bytes in this phase, unless an arrival knows of it


class Phases(Order):
    """The vectors of one wave. ``confused`` is told of what does not hold."""

    def __init__(self, wave: State) -> None:
        self.causal, self.layers = self.layers, self.layers + 1
        super().__init__(wave)
        self.lives: dict[int, Life] = {}  # of mbarriers, by their places
        self.gone: dict[int, By] = {}  # places of those that were given up, and by whom
        self.coming: dict[int, list[Heard]] = {}  # in the order in which they hear of it
        self.groups: dict[int, list[tuple[int, Array]]] = {}  # of a warp: what it knew when it closed products
        self.settled = np.zeros(wave.warps, np.int64)  # how many of these each warp knows to be over

    def confused(self, kind: str, first: By, second: By, cell: int, remedy: str) -> None:
        """``second`` may come to another phase of the mbarrier at ``cell`` than here, or be missed."""

    def sure(self, warp: int) -> Array:
        """What a warp knows to have happened."""
        known: Array = np.maximum(self.clocks[0, warp], self.clocks[self.causal, warp])
        return known

    def _time(self, warp: int) -> int:
        return int(self.clocks[0, warp, self.own[warp]])

    def _used(self, cell: int, by: By) -> None:
        if cell in self.gone:
            self.confused("GONE", self.gone[cell], by, cell, ANEW)

    def _life(self, cell: int) -> tuple[Life, Meeting]:
        meeting = self._meeting("mbarrier", cell)
        life = self.lives.get(cell)
        if life is None:
            life = self.lives[cell] = Life(meeting.phase, self.members)
        return life, meeting

    def made(self, cells: Array) -> None:
        """Mbarriers are made, or something else comes into their place."""
        for cell in cells.tolist():
            self.gone.pop(cell, None)
            if self.lives.pop(cell, None) is not None:
                meeting = self._meeting("mbarrier", cell)
                meeting.done[:] = meeting.pending[:] = 0

    def over_for(self, warp: int, cell: int) -> int:
        """How many phases of an mbarrier a warp knows to be over; perhaps too few, but then no fewer than somebody has
        found over, if it knows of these: who knows of all arrivals for a later one knows what they knew, and they knew
        that, or are reported."""
        life, meeting = self._life(cell)
        column = self._mbarrier(cell)  # which may be new
        known = self.sure(warp)
        found = int(known[column])
        for count in sorted(life.ends, reverse=True):
            came = life.ends[count].came
            if count > found and came is not None and (known[: self.members] >= came).all():
                return count
        return found

    def _counts(self, cell: int, by: By, phases: int, known: Array, arrives: bool) -> None:
        """It counts for the phase that is not over, of one who knows that so many ``phases`` are."""
        life, meeting = self._life(cell)
        life.by = by
        if phases < meeting.phase and meeting.phase > life.begun:
            self._doubt(cell, max(phases, life.begun) < life.looked, "PHASE", life.ends[meeting.phase].by, by, BEHIND)
            for count, end in life.ends.items() if arrives else ():
                if count > phases:  # which it may end as well
                    self._missed(cell, end.tests, known, by)

    def _missed(self, cell: int, tests: Tests, known: Array, by: By) -> None:
        """The phase may end without those who have looked for the one before: of them ``known`` tells."""
        for warp, (time, number) in tests.items():
            if known[self.own[warp]] < time:
                self.confused("MISSED", By(number, warp), by, cell, SEEN)

    def _doubt(self, cell: int, seen: bool, kind: str, first: By, second: By, remedy: str) -> None:
        """Is it ``seen``? Then by who has looked, or else by whoever looks from now on."""
        if seen:
            self.confused(kind, first, second, cell, remedy)
        else:
            self.lives[cell].doubts.setdefault((kind, first.number, second.number), (first, second, remedy))

    def mbarriers(self, i: Instruction, events: Sequence[tuple[int, int, bool, bool]]) -> None:
        for event in events:
            warp, cell, arrives, _ = event
            life, by = self._life(cell)[0], By(i.address // WORD, warp)
            self._used(cell, by)
            self._counts(cell, by, self.over_for(warp, cell), self.sure(warp), arrives)
            if arrives:
                life.came[self.own[warp]] = self._time(warp)
                self._expected(life, self.sure(warp))
            elif "A0TX" in i.mods:  # bytes that are complete
                life.heard = True
            else:
                life.expects[warp] = self._time(warp), by.number
            super().mbarriers(i, [event])

    def _expected(self, life: Life, known: Array) -> None:
        """Somebody arrives who knows so much."""
        if life.expects:
            life.expects = {w: one for w, one in life.expects.items() if known[self.own[w]] < one[0]}

    def _over(self, cell: int) -> Meeting:
        life, meeting = self._life(cell)
        known = np.maximum(meeting.pending[0], meeting.pending[self.causal])
        self._missed(cell, life.tests, known, life.by)
        for warp, (_, number) in life.expects.items():
            self._doubt(cell, False, "EXPECT", life.by, By(number, warp), IN_TIME)
        count = meeting.phase + 1
        life.ends[count] = End(life.by, None if life.heard else life.came, life.tests)
        life.ends = {n: end for n, end in life.ends.items() if n > count - 2 or 0 <= n - life.looked <= 1}
        life.came, life.heard, life.tests, life.expects = np.zeros_like(life.came), False, {}, {}
        return super()._over(cell)

    def acquire(self, i: Instruction, warps: Array, cells: Array) -> None:
        self.asked(i, warps, cells)
        super().acquire(i, warps, cells)

    def asked(self, i: Instruction, warps: Array, cells: Array) -> None:
        """Warps find phases over."""
        for warp, cell in dict.fromkeys(zip(warps.tolist(), cells.tolist())):
            life, meeting = self._life(cell)
            count, by = meeting.phase, By(i.address // WORD, warp)
            self._used(cell, by)
            if i.base == "SYNCS":
                if count - life.begun > 1 and self.over_for(warp, cell) < count - 1:
                    self.confused("PARITY", life.ends[count - 1].by, by, cell, IN_TURN)
                life.tests[warp] = self._time(warp), by.number
            if count > life.looked:
                life.looked = count
                for (kind, *_), (first, second, remedy) in life.doubts.items():
                    self.confused(kind, first, second, cell, remedy)
                life.doubts = {}

    # -- asynchronous operations

    def expected(self, cell: int, i: Instruction, warp: int, arrives: bool) -> None:
        by, phases = By(i.address // WORD, warp), self.over_for(warp, cell)  # which may need a new column
        self._used(cell, by)
        one = Heard(by, phases, self.sure(warp), arrives)
        self.coming.setdefault(cell, []).append(one)
        self._tick(np.array([warp]))

    def delivered(self, cell: int, flights: Sequence[tuple[Flight, Which]]) -> None:
        life, meeting = self._life(cell)
        one = self.coming[cell].pop(0)
        self._counts(cell, one.by, one.phases, one.known, one.arrives)
        life.heard = True
        if one.arrives:
            self._expected(life, one.known)
        super().delivered(cell, flights)
        causal = meeting.pending[self.causal, : len(one.known)]
        np.maximum(causal, one.known, out=causal)

    def ended(self) -> None:
        """What nobody has waited for ends phases, too."""
        late = self.wave.late
        for cell, waiting in late.expected.items():
            state = int(late.cells[cell])
            for one in waiting:
                try:
                    before, state = state, one.change(state)
                except ValueError:
                    break
                self.delivered(cell, one.flights)
                if (before ^ state) >> PHASE:
                    self.phase_over(cell)

    def closed(self, flights: Sequence[tuple[Flight, Which]], warps: Array, board: int, numbers: Array) -> None:
        super().closed(flights, warps, board, numbers)
        if board == GSB0:
            for warp, number in zip(warps.tolist(), numbers.tolist()):
                first = warp - self.slot[warp] % GROUP
                least = int(self.settled[first : first + GROUP].min())
                before = [one for one in self.groups.get(warp, ()) if one[0] >= least - 1]
                self.groups[warp] = [*before, (number, self.sure(warp))]
            self._tick(warps)

    def waited(self, board: int, warps: Array, over: Array) -> None:
        super().waited(board, warps, over)
        if board != GSB0:
            return
        for warp, count in zip(warps.tolist(), over.tolist()):
            if count > self.settled[warp]:
                self.settled[warp] = count
                first = warp - self.slot[warp] % GROUP
                for other in range(int(first), int(first) + GROUP):
                    begun = [known for number, known in self.groups.get(other, ()) if number < count]
                    if begun:
                        mine = self.clocks[self.causal, warp, : len(begun[-1])]
                        np.maximum(mine, begun[-1], out=mine)
