"""What happens before what: vector clocks of warps, for the detectors of races.

Each warp has a vector: of each warp of its block (or cluster) the time up to which it knows what that warp did; of each
warp and scoreboard the group of asynchronous operations up to which it knows that they are over; of each mbarrier the
phase up to which it knows what the mbarrier heard of. Barriers (named ones, too, with and without waiting), mbarriers
by their phases and barriers of clusters carry vectors from warp to warp; a wait for a group moves its entry on. What
uses the async proxy (bulk and tensor copies, products of warpgroups) sees what was written through the generic one only
behind a fence, FENCE.VIEW.ASYNC: for this each warp has a second vector, of what it knew when a fence stood between.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from turingas.emulate.arrays import Array
from turingas.emulate.cohort import Observer, State
from turingas.emulate.late import Flight, Which
from turingas.emulate.splits import GROUP, GSB0
from turingas.isa.instruction import Instruction

NEVER = np.iinfo(np.int32).max


class Meeting:
    """What carries vectors: (layers, columns) of those who arrived in this phase, and of all phases that are over."""

    def __init__(self, layers: int, columns: int) -> None:
        self.pending = np.zeros((layers, columns), np.int32)
        self.done = np.zeros((layers, columns), np.int32)
        self.phase = 0

    def grow(self, columns: int) -> None:
        self.pending, self.done = wider(self.pending, columns), wider(self.done, columns)

    def over(self) -> None:
        """The phase is over."""
        np.maximum(self.done, self.pending, out=self.done)
        self.phase += 1


def wider(clocks: Array, columns: int) -> Array:
    new = np.zeros((*clocks.shape[:-1], columns), np.int32)
    new[..., : clocks.shape[-1]] = clocks
    return new


class Operations:
    """Asynchronous operations by number: the column and the value that a vector has who knows of the end; the warp and
    the number of the instruction that began it; whether it uses the async proxy, and whether it is one of those that
    tensor memory does for a warp in its order."""

    def __init__(self) -> None:
        self.count = 0
        self.column, self.value, self.warp, self.number = (np.zeros(64, np.int32) for _ in range(4))
        self.proxy, self.queued = np.zeros(64, bool), np.zeros(64, bool)

    def add(self, warps: Array, number: int, proxy: bool, queued: bool = False) -> Array:
        """Numbers of new ones, of instruction ``number``, one for each of ``warps``."""
        begin, self.count = self.count, self.count + len(warps)
        while self.count > len(self.value):
            for name in ("column", "value", "warp", "number", "proxy", "queued"):
                values = getattr(self, name)
                setattr(self, name, np.concatenate([values, np.zeros_like(values)]))
        new = slice(begin, self.count)
        self.column[new], self.value[new], self.warp[new] = 0, NEVER, warps
        self.number[new], self.proxy[new], self.queued[new] = number, proxy, queued
        return np.arange(begin, self.count)


class Order(Observer):
    """The vectors of one wave."""

    layers = 2  # vectors of each warp: what it knows, and what it knows with a fence between

    def __init__(self, wave: State) -> None:
        self.wave = wave
        shared, blocks = wave.shared, wave.block_of
        self.slot = np.arange(wave.warps) - np.searchsorted(blocks, blocks)  # of each warp in its block
        self.slots = int(self.slot.max(initial=0)) + 1
        self.base = np.arange(shared.blocks) % shared.cluster * self.slots  # of each block: its first column
        self.own = self.base[blocks] + self.slot  # of each warp: its column
        self.team = blocks // shared.cluster
        self.members = self.slots * shared.cluster
        self.columns: dict[tuple[str, int], int] = {}  # of scoreboards (one for each warp of a team), of mbarriers
        self.used = self.members
        self.clocks = np.zeros((self.layers, wave.warps, self.members), np.int32)
        self.clocks[0, np.arange(wave.warps), self.own] = 1
        self.meetings: dict[tuple[str, int], Meeting] = {}
        self.operations = Operations()
        self.knowledge: dict[int, Array] = {}  # of operations that touch nothing: what their warp knew of others

    def _column(self, kind: str, which: int, width: int) -> int:
        """The first column of a scoreboard (width: one for each warp of a team), or that of an mbarrier."""
        at = self.columns.get((kind, which))
        if at is None:
            at = self.columns[kind, which] = self.used
            self.used += width
            if self.used > self.clocks.shape[-1]:
                self.clocks = wider(self.clocks, 2 * self.used)
                for meeting in self.meetings.values():
                    meeting.grow(2 * self.used)
        return at

    def _meeting(self, kind: str, which: int) -> Meeting:
        found = self.meetings.get((kind, which))
        if found is None:
            found = self.meetings[kind, which] = Meeting(self.layers, self.clocks.shape[-1])
        return found

    def _release(self, meeting: Meeting, warps: Array) -> None:
        np.maximum(meeting.pending, self.clocks[:, warps].max(axis=1), out=meeting.pending)
        self._tick(warps)

    def _tick(self, warps: Array) -> None:
        """What ``warps`` do from now on is not what they have told of."""
        self.clocks[0, warps, self.own[warps]] += 1

    def _acquire(self, meeting: Meeting, warps: Array) -> None:
        self.clocks[:, warps] = np.maximum(self.clocks[:, warps], meeting.done[:, None])

    def barrier(self, warps: Array, groups: Array, numbers: Array) -> None:
        order = np.argsort(groups, kind="stable")
        warps, keys = warps[order], groups[order]
        starts = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]]))
        joined = np.maximum.reduceat(self.clocks[:, warps], starts, axis=1)
        for n, key in enumerate(keys[starts].tolist()):
            come = self.meetings.get(("bar", key))
            if come is not None:
                np.maximum(joined[:, n], come.pending, out=joined[:, n])
                come.pending[:] = 0
        self.clocks[:, warps] = np.repeat(joined, np.diff(np.append(starts, len(warps))), axis=1)
        self._tick(warps)

    def arrive(self, warps: Array, groups: Array, number: int) -> None:
        for key in np.unique(groups).tolist():
            self._release(self._meeting("bar", key), warps[groups == key])

    def cluster(self, what: str, which: Array) -> None:
        if what == "met":
            for team in which.tolist():
                self._meeting("cluster", team).over()
            return
        for team in np.unique(self.team[which]).tolist():
            warps, meeting = which[self.team[which] == team], self._meeting("cluster", team)
            if what == "arrived":
                self._release(meeting, warps)
            else:
                self._acquire(meeting, warps)

    def fence(self, warps: Array, memory: str = "shared") -> None:
        if memory != "shared":
            return
        self.clocks[1, warps] = np.maximum(self.clocks[1, warps], self.clocks[0, warps])
        self._tick(warps)

    # -- mbarriers, by their places among all words of 8 bytes

    def mbarriers(self, i: Instruction, events: Sequence[tuple[int, int, bool, bool]]) -> None:
        for warp, cell, arrives, over in events:
            self.uses(i, np.array([warp]), np.array([cell]))
            meeting = self._meeting("mbarrier", cell)
            if arrives:
                self._release(meeting, np.array([warp]))
            if over:
                self._over(cell)

    def _over(self, cell: int) -> Meeting:
        meeting = self._meeting("mbarrier", cell)
        column = self._mbarrier(cell)
        meeting.over()
        meeting.done[:, column] = meeting.phase
        meeting.pending[:] = 0
        return meeting

    def _mbarrier(self, cell: int) -> int:
        return self._column("mbarrier", cell % (self.wave.shared.stride // 8 * self.wave.shared.cluster), 1)

    def acquire(self, i: Instruction, warps: Array, cells: Array) -> None:
        self.uses(i, warps, cells)
        for cell in np.unique(cells).tolist():
            meeting = self.meetings.get(("mbarrier", cell))
            if meeting is not None:
                self._acquire(meeting, np.unique(warps[cells == cell]))

    def uses(self, i: Instruction, warps: Array, cells: Array) -> None:
        """Warps use mbarriers."""

    # -- asynchronous operations

    def _remember(self, flight: Flight) -> None:
        """``flight`` touches nothing, it only tells of what was before (UTCBAR): an mbarrier that hears of it hears of
        what its warp knows of others, so that who waits may overwrite what was copied, multiplied and committed."""
        for number, warp in zip(flight.numbers.tolist(), flight.warps.tolist()):
            known = self.clocks[:, warp].copy()
            known[:, self.own[warp]] = 0
            self.knowledge[number] = known

    def closed(self, flights: Sequence[tuple[Flight, Which]], warps: Array, board: int, numbers: Array) -> None:
        value = np.zeros(self.wave.warps, np.int64)
        value[warps] = numbers + 1
        for flight, which in flights:
            if not len(flight.numbers):  # nobody said what it does to shared memory
                continue
            ids, whose = flight.numbers, flight.warps
            if which is not None:
                ids, whose = ids[which], whose[which]
            self.operations.column[ids] = self._proofs(board, whose)
            self.operations.value[ids] = value[whose]

    def waited(self, board: int, warps: Array, over: Array) -> None:
        column = self._proofs(board, warps)
        self.clocks[0, warps, column] = np.maximum(self.clocks[0, warps, column], over)

    def _proofs(self, board: int, warps: Array) -> Array:
        """The columns of a scoreboard of warps. The four of a warp group have one for their products, of which each of
        them knows when it has waited: CUTLASS' kernels let one of the four say that a stage may be overwritten."""
        column = self._column("scoreboard", board, self.members)
        if board == GSB0:
            warps = warps - self.slot[warps] % GROUP
        return np.asarray(column + self.own[warps])

    def delivered(self, cell: int, flights: Sequence[tuple[Flight, Which]]) -> None:
        operations, phase = self.operations, self._meeting("mbarrier", cell).phase + 1
        column = self._mbarrier(cell)
        meeting = self._meeting("mbarrier", cell)
        for flight, which in flights:
            if not len(flight.numbers):
                continue
            ids = flight.numbers
            ids = ids if which is None else ids[which]
            for known in (self.knowledge[n] for n in ids.tolist() if n in self.knowledge):
                part = meeting.pending[:, : known.shape[1]]
                np.maximum(part, known, out=part)
            fresh = operations.value[ids] == NEVER
            operations.column[ids[fresh]], operations.value[ids[fresh]] = column, phase
            grouped = ids[~fresh]  # those that their group proves, too
            np.maximum.at(meeting.pending[0], operations.column[grouped], operations.value[grouped])

    def phase_over(self, cell: int) -> None:
        self._over(cell)
