"""The scoreboard mode: the CPU device heeds what the control codes say, as the GPU does.

On the GPU nothing checks that a result is there before it is read: the stall of a fixed-latency instruction and the
scoreboard of a variable-latency one say so, and where they say it wrong the old value is read. This mode keeps, for
every register and lane, who wrote it last, when, and what its arrival waits for; each read and write is held against
that. Time is the least that can pass: the stall counts of the warp's own instructions. What takes a variable time never
arrives before somebody waits for it.

With ``stale`` an instruction that reads too early gets the old value, as on the GPU.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from turingas.emulate.cohort import Array, Cohort
from turingas.emulate.errors import Place
from turingas.isa.instruction import Access, Imm, Instruction, Name
from turingas.isa.latency import latencies

if TYPE_CHECKING:
    from turingas.emulate.machine import Wave

SCOREBOARDS = 6
NONE = 7  # no scoreboard
SOONEST = 2  # cycles from setting a scoreboard to the first instruction that can wait for it (facts.md)
FAR = 64  # cycles after which every fixed-latency result has arrived
KEPT = 64  # settings of a scoreboard that are remembered, for DEPBAR.LE counts them

# how a result arrives
FIXED = 0  # after so many cycles
ALONE = 1  # when its own scoreboard says so
IN_ORDER = 2  # ... or that of a later instruction of its queue
WITH_SOURCES = 3  # ... or when its sources have been read


@dataclass(frozen=True)
class Hazard:
    """``first`` and ``second`` are the two instructions; ``kind`` as the linter names it. ``block`` and ``thread`` are
    those of the first lane that it was seen in."""

    kind: str
    message: str
    first: Place
    second: Place
    block: tuple[int, int, int]
    thread: tuple[int, int, int]

    def __str__(self) -> str:
        where = f"block {self.block}, thread {self.thread}"
        return f"{self.second}: error: {self.message} [{self.kind}]\n  after {self.first}\n  {where}"


class Ledger:
    """What is under way to each register of one file: arrays (registers, warps, lanes)."""

    def __init__(self, values: Array, stale: bool) -> None:
        self.values = values
        shape = values.shape
        self.issued = np.full(shape, -FAR, np.int64)  # when the last write was issued
        self.writer = np.full(shape, -1, np.int32)  # by which instruction
        self.how = np.zeros(shape, np.int8)  # it arrives: FIXED ...
        self.board = np.full(shape, NONE, np.int8)  # its write scoreboard
        self.ticket = np.zeros(shape, np.int32)  # its number among the settings of that
        self.queue = np.zeros(shape, np.int8)  # the queue that it came from
        self.place = np.zeros(shape, np.int32)  # its number in that
        self.old = values.copy() if stale else None
        self.locks: dict[int, Locks] = {}  # by queue


class Locks:
    """Registers that instructions of one queue have still to read: for each the last such instruction."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.place = np.zeros(shape[:2], np.int32)  # its number in the queue
        self.reader = np.full(shape[:2], -1, np.int32)
        self.lanes = np.zeros(shape, bool)


class Strict:
    """The scoreboard mode of one wave. ``findings`` has each pair of instructions once."""

    def __init__(self, wave: Wave, stale: bool) -> None:
        self.wave, self.stale = wave, stale
        self.latency = latencies(wave.image.arch.name)
        self.ledgers = {
            "R": Ledger(wave.R, stale),
            "P": Ledger(wave.P, stale),
            "UR": Ledger(wave.UR, stale),
            "UP": Ledger(wave.UP, stale),
        }
        warps = wave.warps
        self.queues = {name: n for n, name in enumerate(sorted({*self.latency.queues, "tensor"}))}
        count = len(self.queues)
        # of each queue and warp: instructions so far; up to which number sources have been read, and results are there
        self.count = np.zeros((count, warps), np.int32)
        self.read_to = np.zeros((count, warps), np.int32)
        self.there_to = np.zeros((count, warps), np.int32)
        # of each scoreboard and warp
        self.issued = np.zeros((SCOREBOARDS, warps), np.int32)  # how often it was set
        self.arrived = np.zeros((SCOREBOARDS, warps), np.int32)  # how many of these are known to be done
        self.when = np.full((SCOREBOARDS, warps), -FAR, np.int64)  # when it was last set
        self.setter = np.full((SCOREBOARDS, warps), -1, np.int32)
        # of the last settings of each: queue, number in it, whether as a write scoreboard
        self.set_queue = np.full((SCOREBOARDS, KEPT, warps), -1, np.int8)
        self.set_place = np.zeros((SCOREBOARDS, KEPT, warps), np.int32)
        self.set_write = np.zeros((SCOREBOARDS, KEPT, warps), bool)
        self.findings: list[Hazard] = []
        self._seen: set[tuple[str, int, int]] = set()
        self._borrowed: list[tuple[Ledger, int, Array, Array]] = []

    # -- called by the machine, in this order

    def guard(self, k: Cohort, i: Instruction, n: int) -> None:
        """Before the guard of instruction ``n`` is looked at: the scoreboards that it waits for, then the guard."""
        wait = i.control.wait
        now = self._now(k)
        for board in range(SCOREBOARDS):
            if wait >> board & 1:
                soon = now - self.when[board][k.rows] < SOONEST
                if soon.any():
                    row = int(soon.argmax())
                    first = int(self.setter[board][k.rows][row])
                    message = f"waits for scoreboard {board} less than two cycles after it is set, and so may not wait"
                    self._report("wait-too-soon", message, k, row, 0, first, n)
                self._done(k, board, 0)
        if i.base == "DEPBAR":
            self._depbar(k, i)
        lanes = np.ones((k.count, 32), bool) if k.active is None else k.active
        for read in i.reads:
            if read.what == "guard":
                self._read(k, i, n, read, lanes)

    def operands(self, k: Cohort, i: Instruction, n: int) -> None:
        """Before instruction ``n`` runs on the lanes of ``k.mask``."""
        lanes = k.lanes
        for read in i.reads:
            if read.what != "guard":
                self._read(k, i, n, read, lanes)
        for write in i.writes:
            self._write(k, i, n, write, lanes)

    def after(self, k: Cohort, i: Instruction, n: int) -> None:
        """After it: what is under way now, and the new values where old ones were read."""
        written = {(w.file, r) for w in i.writes for r in range(w.first, w.first + w.count)}
        for ledger, index, lanes, value in self._borrowed:
            file = next(name for name, one in self.ledgers.items() if one is ledger)
            if (file, index) in written:
                mask = k.mask if k.mask is None or ledger.values.shape[2] > 1 else k.mask.any(axis=1, keepdims=True)
                lanes = lanes & ~mask if mask is not None else np.zeros_like(lanes)
            here = ledger.values[index][k.rows]
            ledger.values[index][k.rows] = np.where(lanes, value, here)
        self._borrowed.clear()
        control = i.control
        now = self._now(k)
        queue = self.queues.get(self.latency.queue(i), -1)
        if queue >= 0:
            self.count[queue][k.rows] += 1
        for board in {control.write, control.read} - {NONE}:
            self.issued[board][k.rows] += 1
            self.when[board][k.rows] = now
            self.setter[board][k.rows] = n
            if queue >= 0:
                slot = self.issued[board][k.rows] % KEPT
                self.set_queue[board, slot, k.warps] = queue
                self.set_place[board, slot, k.warps] = self.count[queue][k.rows]
                self.set_write[board, slot, k.warps] = board == control.write
        flushed = self.latency.flushes(i)
        if flushed:
            self.read_to[self.queues[flushed]][k.rows] = self.count[self.queues[flushed]][k.rows]

    def _done(self, k: Cohort, board: int, left: int) -> None:
        """All but the last ``left`` settings of a scoreboard are done, and so is what their queues did before."""
        warps = k.warps
        last = self.issued[board][warps] - left
        for number in range(KEPT):
            ticket = last - number
            new = ticket > self.arrived[board][warps]
            if not new.any():
                break
            slot = ticket % KEPT
            queue = self.set_queue[board, slot, warps]
            place = self.set_place[board, slot, warps]
            writes = self.set_write[board, slot, warps]
            for q in np.unique(queue[new & (queue >= 0)]):
                hit = new & (queue == q)
                rows = warps[hit]
                self.read_to[q, rows] = np.maximum(self.read_to[q, rows], place[hit])
                hit &= writes
                rows = warps[hit]
                self.there_to[q, rows] = np.maximum(self.there_to[q, rows], place[hit])
        self.arrived[board][warps] = np.maximum(self.arrived[board][warps], last)

    # -- reads and writes

    def _now(self, k: Cohort) -> Array:
        return self.wave.clock[k.rows][:, 0]

    def _lanes(self, ledger: Ledger, lanes: Array) -> Array:
        return lanes if ledger.values.shape[2] > 1 else np.logical_or.reduce(lanes, axis=1, keepdims=True)

    def _pending(self, k: Cohort, ledger: Ledger, index: int) -> Array:
        """Which lanes' results of variable latency are still under way; shape (n, lanes)."""
        how = ledger.how[index][k.rows]
        if not how.any():
            return np.zeros(how.shape, bool)
        warps = k.warps[:, None]
        board = ledger.board[index][k.rows]
        queue, place = ledger.queue[index][k.rows], ledger.place[index][k.rows]
        done = (board != NONE) & (self.arrived[np.minimum(board, 5), warps] >= ledger.ticket[index][k.rows])
        done |= (how == IN_ORDER) & (self.there_to[queue, warps] >= place)
        done |= (how == WITH_SOURCES) & (self.read_to[queue, warps] >= place)
        return (how != FIXED) & ~done

    def _read(self, k: Cohort, i: Instruction, n: int, read: Access, lanes: Array) -> None:
        ledger = self.ledgers.get(read.file)
        if ledger is None:
            return
        lanes = self._lanes(ledger, lanes)
        now = self._now(k)[:, None]
        for index in range(read.first, min(read.first + read.count, len(ledger.values))):
            writer = ledger.writer[index][k.rows]
            early = lanes & self._pending(k, ledger, index)
            if early.any():
                self._explain(k, n, read.file, index, early, ledger, "raw", "reads")
            age = now - ledger.issued[index][k.rows]
            near = lanes & (age < FAR) & (ledger.how[index][k.rows] == FIXED) & (writer >= 0)
            if near.any():
                for first in np.unique(writer[near]):
                    need = self._need("raw", int(first), n, read, index)
                    late = near & (writer == first) & (age < need)
                    if late.any():
                        row, lane = np.argwhere(late)[0]
                        passed = int(age[row, 0])
                        message = f"reads {read.file}{index} {passed} cycles after it is set; {need} are needed"
                        self._report("raw-stall", message, k, int(row), int(lane), int(first), n)
                        early = early | late
            if early.any() and ledger.old is not None:
                value = ledger.values[index][k.rows].copy()
                self._borrowed.append((ledger, index, early, value))
                ledger.values[index][k.rows] = np.where(early, ledger.old[index][k.rows], value)
            if self.latency.late(i, read):
                self._lock(k, i, n, ledger, index, lanes)

    def _write(self, k: Cohort, i: Instruction, n: int, write: Access, lanes: Array) -> None:
        ledger = self.ledgers.get(write.file)
        if ledger is None:
            return
        lanes = self._lanes(ledger, lanes)
        now = self._now(k)[:, None]
        queue = self.queues.get(self.latency.queue(i), -1)
        how = FIXED
        if self.latency.variable(i, write):
            how = IN_ORDER if self.latency.in_order(i) else ALONE
            how = WITH_SOURCES if self.latency.with_read(i, write) else how
        for index in range(write.first, min(write.first + write.count, len(ledger.values))):
            writer = ledger.writer[index][k.rows]
            under_way = lanes & self._pending(k, ledger, index)
            clash = under_way
            if how != FIXED and clash.any():  # a queue delivers in its order
                clash = clash & ((ledger.queue[index][k.rows] != queue) | (ledger.how[index][k.rows] == ALONE))
            if clash.any():
                self._explain(k, n, write.file, index, clash, ledger, "waw", "overwrites")
            age = now - ledger.issued[index][k.rows]
            near = lanes & (age < FAR) & (ledger.how[index][k.rows] == FIXED) & (writer >= 0)
            if near.any():
                for first in np.unique(writer[near]):
                    need = self._need("waw", int(first), n, write, index)
                    late = near & (writer == first) & (age < need)
                    if late.any():
                        row, lane = np.argwhere(late)[0]
                        message = f"overwrites {write.file}{index} {int(age[row, 0])} cycles after it is set; "
                        message += f"{need} are needed"
                        self._report("waw-stall", message, k, int(row), int(lane), int(first), n)
            self._unlock(k, n, write, ledger, index, lanes, queue if how != FIXED else -1)
            if ledger.old is not None:
                # until the new value is there, the one that can be seen now is read
                old = ledger.old[index]
                old[k.rows] = np.where(lanes & ~under_way, ledger.values[index][k.rows], old[k.rows])
            self._set(k, ledger.issued[index], lanes, np.broadcast_to(now, lanes.shape))
            self._set(k, ledger.writer[index], lanes, n)
            self._set(k, ledger.how[index], lanes, how)
            if how != FIXED:
                board = i.control.write
                self._set(k, ledger.board[index], lanes, board)
                self._set(k, ledger.queue[index], lanes, queue)
                self._set(k, ledger.place[index], lanes, self._next(self.count[queue], k, lanes))
                if board != NONE:
                    self._set(k, ledger.ticket[index], lanes, self._next(self.issued[board], k, lanes))

    @staticmethod
    def _next(numbers: Array, k: Cohort, lanes: Array) -> Array:
        return np.broadcast_to(numbers[k.rows][:, None] + 1, lanes.shape)

    @staticmethod
    def _set(k: Cohort, row: Array, lanes: Array, value: Array | int) -> None:
        row[k.rows] = np.where(lanes, value, row[k.rows])

    def _lock(self, k: Cohort, i: Instruction, n: int, ledger: Ledger, index: int, lanes: Array) -> None:
        """Instruction ``n`` reads late: nobody may overwrite until it is known to have done so."""
        queue = self.queues[self.latency.queue(i)]
        locks = ledger.locks.setdefault(queue, Locks(ledger.values.shape))
        pending = locks.place[index][k.rows] > self.read_to[queue][k.rows]
        locks.lanes[index][k.rows] = locks.lanes[index][k.rows] & pending[:, None] | lanes
        locks.place[index][k.rows] = self.count[queue][k.rows] + 1
        locks.reader[index][k.rows] = n

    def _unlock(
        self, k: Cohort, n: int, write: Access, ledger: Ledger, index: int, lanes: Array, queue: int
    ) -> None:
        """A write of ``lanes``, by an instruction of ``queue`` (-1: of none), to what others may still have to read."""
        for other, locks in ledger.locks.items():
            if other == queue:
                continue
            pending = locks.place[index][k.rows] > self.read_to[other][k.rows]
            hit = lanes & locks.lanes[index][k.rows] & pending[:, None]
            reader = locks.reader[index][k.rows]
            hit &= (reader != n)[:, None]  # its own sources are read before its result comes
            if hit.any():
                row, lane = np.argwhere(hit)[0]
                message = f"overwrites {write.file}{index}, which an earlier instruction may still have to read"
                self._report("war", message, k, int(row), int(lane), int(reader[row]), n)

    def _depbar(self, k: Cohort, i: Instruction) -> None:
        """DEPBAR.LE SBn, m {...}: all but the last m have come; and the scoreboards of the set, whole."""
        for operand in i.operands:
            if isinstance(operand, Imm) and operand.kind == "set":
                for board in range(SCOREBOARDS):
                    if operand.value >> board & 1:
                        self._done(k, board, 0)
        if "LE" in i.mods and isinstance(i.operands[0], Name):
            left = i.operands[1].value if isinstance(i.operands[1], Imm) else 0
            self._done(k, int(i.operands[0].text.removeprefix("SB")), left)

    # -- reports

    def _need(self, hazard: str, first: int, second: int, access: Access, index: int) -> int:
        one, two = self.wave.image.instructions[first], self.wave.image.instructions[second]
        assert one is not None and two is not None
        rule = self.latency.raw if hazard == "raw" else self.latency.waw
        for write in one.writes:
            if write.file == access.file and write.first <= index < write.first + write.count:
                return rule(one, write, two, access)
        return 0

    def _explain(
        self, k: Cohort, n: int, file: str, index: int, lanes: Array, ledger: Ledger, kind: str, verb: str
    ) -> None:
        row, lane = np.argwhere(lanes)[0]
        board = int(ledger.board[index][k.rows][row, lane])
        if board == NONE:
            kind, why = "no-scoreboard", "of an instruction without a write scoreboard"
        else:
            why = f"without waiting for scoreboard {board}"
        message = f"{verb} {file}{index}, a result of variable latency, {why}"
        self._report(kind, message, k, int(row), int(lane), int(ledger.writer[index][k.rows][row, lane]), n)

    def _report(self, kind: str, message: str, k: Cohort, row: int, lane: int, first: int, second: int) -> None:
        key = (kind, first, second)
        if key in self._seen:
            return
        self._seen.add(key)
        block, thread = self.wave.who(int(k.warps[row]), lane)
        place = self.wave.image.place
        self.findings.append(Hazard(kind, message, place(first), place(second), block, thread))
