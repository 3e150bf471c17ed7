"""Whether a wait at an mbarrier is needed, in any order of the warps: ``Without``.

The correct kernel runs, and what it does is put in order once more, as if some instructions that wait at mbarriers did
not: their warps learn nothing there. If all of the following still holds, no order of the warps can tell the kernel
without these waits from the correct one, as far as shared memory goes:

* *conflicts*: of any two accesses to the same word by different warps, copies or products, one of them a write, the
  later one's warp knows that the earlier one is over (and copies and products, of what threads have written, behind a
  fence). Every access is held against those of all others before it, not only against the last.
* *phases*: a warp that finds a phase over knows that the phase before was over, so it cannot take that one for it; the
  next phase does not end before some arrival that knows of the test, so it cannot miss it; who arrives, or begins a
  copy that an mbarrier hears of, knows that the phase before is over, so that it counts for no other one. (Not of
  phases whose ends nothing else looks for.)
* *ends*: whatever reaches a block of a cluster from another one, some warp of the block knows of when it ends.

So each order of the warps comes to the same accesses, arrivals and phases, one after the other, by induction over
these. What a phase tells besides of memory is causal here: a copy that was heard of had begun, and its warp knew what
it knew.

A test of another mbarrier in the place of one that is not needed (``instead``) must not keep its warp for ever: the
phase that it finds is over for all that the warp knows, and none can follow it unseen.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from turingas.emulate.cohort import Cohort, State
from turingas.emulate.late import Flight, Touch, Which
from turingas.emulate.order import Order
from turingas.isa.instruction import Instruction

NOWHERE = -1
CAUSAL = 2  # the vectors of what must have happened, whether or not memory shows it
Array = np.ndarray[Any, Any]


class Without(Order):
    """``instructions``: what tells nothing. ``twins``: of each test, those that failed just before it in the same
    warp."""

    each = True
    layers = 3

    def __init__(self, wave: State, instructions: Collection[int] = (), instead: Collection[int] = ()) -> None:
        super().__init__(wave)
        self.instructions, self.instead = set(instructions), set(instead)
        self.found: set[tuple[str, int, int]] = set()  # what does not hold; of a phase, the mbarrier and its number
        self.tested: dict[int, int] = {NOWHERE: 0}  # of mbarriers, the last phase whose end somebody looks for
        words = wave.shared.blocks * wave.shared.stride // 4
        self.reads, self.writes = (np.zeros((wave.warps, words), np.int32) for _ in range(2))  # when, by each warp
        self.reading: list[Array] = []  # of each operation, its words
        self.writing: list[Array] = []
        self.begin: dict[int, Array] = {}  # what the warp of an operation knew
        self.phases: dict[int, int] = {}
        self.tests: dict[int, dict[int, int]] = {}  # of each mbarrier, who has found its last phase over, and when
        self.merged: set[tuple[int, int]] = set()  # warps, and operations that they know the end of
        self.failed: dict[int, int] = {}
        self.twins: dict[int, set[int]] = {}
        self.final: dict[int, Array] = {}  # what each block's warps knew when they ended
        self.abroad: list[tuple[int, int, int, int]] = []  # block, column, value of what reached it; the instruction

    @property
    def wrong(self) -> list[str]:
        """What does not hold. Phases of an mbarrier make no difference whose ends nobody looks for any more."""
        return [what for what, cell, phase in self.found if self.tested.get(cell, -2) >= phase]

    def _say(self, what: str, i: Instruction, warp: int, cell: int = NOWHERE, phase: int = 0) -> None:
        self.found.add((f"{what}: {i.text()} of warp {warp}", cell, phase))

    def _knows(self, warp: int) -> Array:
        found: Array = self.clocks[:, warp].max(axis=0)
        return found

    def _known(self, warp: int, cell: int) -> int:
        """Up to which phase of an mbarrier."""
        column = self._mbarrier(cell)  # which may be new
        return int(self._knows(warp)[column])

    # -- accesses

    def operands(self, k: Cohort, i: Instruction, n: int) -> None:
        warps = (k.warps if k.mask is None else k.warps[k.mask.any(axis=1)]).tolist()
        if i.base == "SYNCS" and i.mods[0] == "PHASECHK":
            for warp in warps:
                if warp in self.failed:
                    self.twins.setdefault(n, set()).add(self.failed[warp])
                self.failed[warp] = n
        elif i.base == "EXIT":
            for warp in warps:
                block, known = int(self.wave.block_of[warp]), self._knows(warp)
                before = self.final.get(block, np.zeros(1, np.int32))
                both = np.zeros(max(len(known), len(before)), np.int32)
                both[: len(known)] = known
                both[: len(before)] = np.maximum(both[: len(before)], before)
                self.final[block] = both

    def access(
        self, k: Cohort, i: Instruction, space: str, addresses: Array, lanes: Array | None, nbytes: int, what: str,
        words: Any = None, owners: Array | None = None,
    ) -> None:  # fmt: skip
        if space != "shared" or what == "copy" or i.base == "SYNCS":
            return
        own = np.broadcast_to(k.blocks[:, None], addresses.shape)
        owners = own if owners is None else owners
        begin = owners.astype(np.int64) * self.wave.shared.stride + addresses
        for row, warp in enumerate(k.warps.tolist()):
            here = slice(None) if lanes is None else lanes[row]
            at = np.unique(begin[row][here].reshape(-1, 1) // 4 + np.arange(max(1, -(-nbytes // 4))))
            if not len(at):
                continue
            self._held(i, warp, at, what != "read", False)
            time = self.clocks[0, warp, self.own[warp]]
            (self.reads if what == "read" else self.writes)[warp, at] = time
            for block in np.unique(owners[row][here]).tolist():
                if block != self.wave.block_of[warp]:
                    self.abroad.append((block, int(self.own[warp]), int(time), i.address))

    def _held(self, i: Instruction, warp: int, at: Array, writes: bool, proxy: bool) -> None:
        """Against all that was before it."""
        team = np.flatnonzero(self.team == self.team[warp])
        others = team[team != warp]
        mine = self.clocks[:, warp]
        for table, layer in ((self.writes, 1 if proxy else 0), *(((self.reads, 0),) if writes else ())):
            if (table[np.ix_(others, at)].max(axis=1, initial=0) > mine[layer, self.own[others]]).any():
                self._say("conflict with a warp", i, warp)
        if proxy and (self.writes[warp, at] > mine[1, self.own[warp]]).any():
            self._say("no fence", i, warp)
        o, known = self.operations, len(self.writing)
        running = mine[0, o.column[:known]] < o.value[:known]
        running &= self.team[o.warp[:known]] == self.team[warp]
        for number in np.flatnonzero(running).tolist():
            for words in (self.writing[number], *((self.reading[number],) if writes else ())):
                if len(words) and words[0] <= at[-1] and at[0] <= words[-1] and np.isin(at, words, True).any():
                    self._say("conflict with an operation", i, warp)

    def began(self, flight: Flight, i: Instruction, touches: Sequence[Touch], proxy: bool) -> None:
        flight.numbers = self.operations.add(flight.warps, i.address // 16, proxy)  # the same as the detector's
        for row, (warp, number) in enumerate(zip(flight.warps.tolist(), flight.numbers.tolist())):
            self.begin[number] = self._knows(warp)
            parts: dict[bool, list[Array]] = {False: [], True: []}
            for touch in touches:
                if touch.space != "shared":
                    continue
                at = touch.at[row] if touch.mask is None else touch.at[row][touch.mask[row]]
                words = at.reshape(-1, 1).astype(np.int64) * touch.nbytes // 4 + np.arange(max(1, touch.nbytes // 4))
                if touch.what == "mbarrier":
                    self._counts(i, warp, (at.astype(np.int64) * touch.nbytes // 8).tolist())
                    continue
                parts[touch.what != "read"].append(np.unique(words))
                for block in np.unique(words * 4 // self.wave.shared.stride).tolist():
                    if block != self.wave.block_of[warp]:
                        self.abroad.append((block, -1 - number, 0, i.address))
            # products of a warp group, and copies of one instruction, follow each other or write apart
            none = np.zeros(0, np.int64)
            reading, writing = (np.unique(np.concatenate([none, *parts[kind]])) for kind in (False, True))
            for words, writes in ((reading, False), (writing, True)):
                if len(words):
                    self._held(i, warp, words, writes, proxy)
            self.reading.append(reading)
            self.writing.append(writing)

    # -- phases

    def _counts(self, i: Instruction, warp: int, cells: Sequence[int]) -> None:
        """What counts for a phase must know that the one before is over."""
        for cell in cells:
            if self._known(warp, cell) < (phase := self.phases.get(cell, 0)):
                self._say("may count for the phase before", i, warp, cell, phase - 1)

    def mbarriers(self, i: Instruction, events: Sequence[tuple[int, int, bool, bool]]) -> None:
        for warp, cell, arrives, over in events:
            self._counts(i, warp, [cell])
            block = cell * 8 // self.wave.shared.stride
            if block != self.wave.block_of[warp]:
                self.abroad.append((block, int(self.own[warp]), int(self.clocks[0, warp, self.own[warp]]), i.address))
            meeting = self._meeting("mbarrier", cell)
            if arrives:
                self._release(meeting, np.array([warp]))
                meeting.pending[CAUSAL] = np.maximum(meeting.pending[CAUSAL], meeting.pending[0])
            if over:
                self._over(cell)

    def waited(self, board: int, warps: Array, over: Array) -> None:
        """A product of a warp group that is over was begun by all four."""
        super().waited(board, warps, over)
        o, count = self.operations, self.operations.count
        for warp, column, limit in zip(warps.tolist(), self._proofs(board, warps).tolist(), over.tolist()):
            for number in np.flatnonzero((o.column[:count] == column) & (o.value[:count] <= limit)).tolist():
                if (warp, number) not in self.merged:
                    self.merged.add((warp, number))
                    known = self.begin[number]
                    mine = self.clocks[CAUSAL, warp, : len(known)]
                    np.maximum(mine, known, out=mine)

    def delivered(self, cell: int, flights: Sequence[tuple[Flight, Which]]) -> None:
        super().delivered(cell, flights)
        pending = self._meeting("mbarrier", cell).pending
        for flight, which in flights:
            for number in (flight.numbers if which is None else flight.numbers[which]).tolist():
                known = self.begin[number]
                pending[CAUSAL, : len(known)] = np.maximum(pending[CAUSAL, : len(known)], known)

    def _over(self, cell: int) -> Any:
        pending = self._meeting("mbarrier", cell).pending
        for warp, time in self.tests.pop(cell, {}).items():
            if pending.max(axis=0)[self.own[warp]] < time:
                self.found.add((f"a phase may be over before warp {warp} has seen the one before", NOWHERE, 0))
        self.phases[cell] = self.phases.get(cell, 0) + 1
        return super()._over(cell)

    def acquire(self, i: Instruction, warps: Array, cells: Array) -> None:
        number = i.address // 16
        for warp, cell in zip(warps.tolist(), cells.tolist()):
            self.failed.pop(warp, None)
            if number in self.instructions:
                continue
            phase, known = self.phases.get(cell, 0), self._known(warp, cell)
            self.tested[cell] = max(self.tested.get(cell, -2), phase - 1)
            if number in self.instead:
                if known < phase or not phase:
                    self._say("may wait for ever", i, warp)
            elif phase > 1 and known < phase - 1:
                self._say("may take a phase for the next one", i, warp)
            self.tests.setdefault(cell, {})[warp] = int(self.clocks[0, warp, self.own[warp]])
            self._tick(np.array([warp]))
        rest = np.full(len(warps), number not in self.instructions and number not in self.instead)
        if rest.any():
            super().acquire(i, warps, cells)

    # -- ends

    def ended(self) -> None:
        for block, column, value, _ in self.abroad:
            known = self.final.get(block)
            if column < 0:
                o = self.operations
                column, value = int(o.column[-1 - column]), int(o.value[-1 - column])
            if known is None or column >= len(known) or known[column] < value:
                self.found.add((f"block {block} may have ended when it is reached", NOWHERE, 0))
                return
