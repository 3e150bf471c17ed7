"""Whether a wait at an mbarrier is needed, in any order of the warps: ``Without``.

The correct kernel runs, and what it does is put in order once more, as if some instructions that wait at mbarriers did
not: their warps learn nothing there. If all of the following still holds, no order of the warps can tell the kernel
without these waits from the correct one, as far as shared memory goes:

* *conflicts*: of any two accesses to the same word by different warps, copies or products, one of them a write, the
  later one's warp knows that the earlier one is over (and copies and products, of what threads have written, behind a
  fence). Every access is held against those of all others before it, not only against the last.
* *phases*: whatever is told to an mbarrier, and asked of it, can only be meant for one phase (``phases`` of the CPU
  device, which the detector of races holds every kernel against).
* *ends*: whatever reaches a block of a cluster from another one, some warp of the block knows of when it ends.

So each order of the warps comes to the same accesses, arrivals and phases, one after the other, by induction over
these.

A test of another mbarrier in the place of one that is not needed (``instead``) must not keep its warp for ever: the
phase that it finds is over for all that the warp knows, and none can follow it unseen.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from turingas.emulate.cohort import Cohort, State
from turingas.emulate.late import Flight, Touch
from turingas.emulate.phases import By, Phases
from turingas.isa.instruction import Instruction

Array = np.ndarray[Any, Any]


class Without(Phases):
    """``instructions``: what tells nothing. ``twins``: of each test, those that failed just before it in the same
    warp."""

    each = True

    def __init__(self, wave: State, instructions: Collection[int] = (), instead: Collection[int] = ()) -> None:
        super().__init__(wave)
        self.instructions, self.instead = set(instructions), set(instead)
        self.wrong: set[str] = set()  # what does not hold
        words = wave.shared.blocks * wave.shared.stride // 4
        self.reads, self.writes = (np.zeros((wave.warps, words), np.int32) for _ in range(2))  # when, by each warp
        self.reading: list[Array] = []  # of each operation, its words
        self.writing: list[Array] = []
        self.failed: dict[int, int] = {}
        self.twins: dict[int, set[int]] = {}
        self.final: dict[int, Array] = {}  # what each block's warps knew when they ended
        self.abroad: list[tuple[int, int, int, int]] = []  # block, column, value of what reached it; the instruction

    def _say(self, what: str, number: int, warp: int) -> None:
        i = self.wave.image.instructions[number]
        assert i is not None
        self.wrong.add(f"{what}: {i.text()} of warp {warp}")

    def confused(self, kind: str, first: By, second: By, cell: int, remedy: str) -> None:
        self._say(kind, *second)

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
                block, known = int(self.wave.block_of[warp]), self.sure(warp)
                before = self.final.get(block, np.zeros(1, np.int32))
                both = np.zeros(max(len(known), len(before)), np.int32)
                both[: len(known)] = known
                both[: len(before)] = np.maximum(both[: len(before)], before)
                self.final[block] = both

    def access(
        self, k: Cohort, i: Instruction, space: str, addresses: Array, lanes: Array | None, nbytes: int, what: str,
        words: Any = None, owners: Array | None = None,
    ) -> None:  # fmt: skip
        if space != "shared" or what == "copy":
            return
        own = np.broadcast_to(k.blocks[:, None], addresses.shape)
        owners = own if owners is None else owners
        begin = owners.astype(np.int64) * self.wave.shared.stride + addresses
        if i.base == "SYNCS":
            self.made(np.unique(begin if lanes is None else begin[lanes]) // 8)
            return
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
                self._say("conflict with a warp", i.address // 16, warp)
        if proxy and (self.writes[warp, at] > mine[1, self.own[warp]]).any():
            self._say("no fence", i.address // 16, warp)
        o, known = self.operations, len(self.writing)
        running = mine[0, o.column[:known]] < o.value[:known]
        running &= self.team[o.warp[:known]] == self.team[warp]
        for number in np.flatnonzero(running).tolist():
            for words in (self.writing[number], *((self.reading[number],) if writes else ())):
                if len(words) and words[0] <= at[-1] and at[0] <= words[-1] and np.isin(at, words, True).any():
                    self._say("conflict with an operation", i.address // 16, warp)

    def began(self, flight: Flight, i: Instruction, touches: Sequence[Touch], proxy: bool) -> None:
        flight.numbers = self.operations.add(flight.warps, i.address // 16, proxy)  # the same as the detector's
        for row, (warp, number) in enumerate(zip(flight.warps.tolist(), flight.numbers.tolist())):
            parts: dict[bool, list[Array]] = {False: [], True: []}
            for touch in touches:
                if touch.space != "shared":
                    continue
                at = touch.at[row] if touch.mask is None else touch.at[row][touch.mask[row]]
                words = at.reshape(-1, 1).astype(np.int64) * touch.nbytes // 4 + np.arange(max(1, touch.nbytes // 4))
                if touch.what == "mbarrier":
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

    def mbarriers(self, i: Instruction, events: Sequence[tuple[int, int, bool, bool]]) -> None:
        for event in events:
            warp, cell, *_ = event
            block = cell * 8 // self.wave.shared.stride
            if block != self.wave.block_of[warp]:
                self.abroad.append((block, int(self.own[warp]), int(self.clocks[0, warp, self.own[warp]]), i.address))
            super().mbarriers(i, [event])

    def acquire(self, i: Instruction, warps: Array, cells: Array) -> None:
        number = i.address // 16
        for warp in warps.tolist():
            self.failed.pop(warp, None)
        if number in self.instructions:
            return
        if number not in self.instead:
            super().acquire(i, warps, cells)
            return
        for warp, cell in zip(warps.tolist(), cells.tolist()):
            phases = self._meeting("mbarrier", cell).phase
            if self.over_for(warp, cell) < phases or not phases:
                self._say("may wait for ever", number, warp)
        self.asked(i, warps, cells)

    # -- ends

    def ended(self) -> None:
        super().ended()
        for block, column, value, _ in self.abroad:
            known = self.final.get(block)
            if column < 0:
                o = self.operations
                column, value = int(o.column[-1 - column]), int(o.value[-1 - column])
            if known is None or column >= len(known) or known[column] < value:
                self.wrong.add(f"block {block} may have ended when it is reached")
                return
