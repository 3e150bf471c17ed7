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
NOBODY = 6  # a scoreboard that nothing ever releases: an instruction that should have set one did not
FAR = 64  # cycles after which every fixed-latency result has arrived
NONE = 7
SHOWN = {"R": "R", "UR": "UR", "P": "P", "UP": "UP"}


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
        self.board = np.full(shape, NONE, np.int8)  # the scoreboard that tells of its arrival; NONE: a fixed latency
        self.ticket = np.zeros(shape, np.int32)  # its number among those of the scoreboard
        self.old = values.copy() if stale else None
        # the last reader that reads late, by scoreboard: its number there, its lanes, which instruction it is
        self.lock = np.zeros((SCOREBOARDS + 1, *shape[:2]), np.int32)
        self.locked = np.zeros((SCOREBOARDS + 1, *shape[:2], shape[2]), bool)
        self.reader = np.full((SCOREBOARDS + 1, *shape[:2]), -1, np.int32)


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
        self.issued = np.zeros((SCOREBOARDS + 1, warps), np.int32)  # how often each scoreboard was set
        self.arrived = np.zeros((SCOREBOARDS + 1, warps), np.int32)  # how many of these are known to have come
        self.when = np.full((SCOREBOARDS + 1, warps), -FAR, np.int64)  # when it was last set
        self.setter = np.full((SCOREBOARDS + 1, warps), -1, np.int32)
        self.issued[NOBODY] = 1
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
                soon = now - self.when[board][k.rows] < 2
                if soon.any():
                    row = int(soon.argmax())
                    first = int(self.setter[board][k.rows][row])
                    message = f"waits for scoreboard {board} less than two cycles after it is set, and so may not wait"
                    self._report("wait-too-soon", message, k, row, 0, first, n)
                self.arrived[board][k.rows] = self.issued[board][k.rows]
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
        for board in {control.write, control.read} - {NONE}:
            self.issued[board][k.rows] += 1
            self.when[board][k.rows] = now
            self.setter[board][k.rows] = n

    # -- reads and writes

    def _now(self, k: Cohort) -> Array:
        return self.wave.clock[k.rows][:, 0]

    def _lanes(self, ledger: Ledger, lanes: Array) -> Array:
        return lanes if ledger.values.shape[2] > 1 else np.logical_or.reduce(lanes, axis=1, keepdims=True)

    def _pending(self, k: Cohort, board: Array, ticket: Array) -> Array:
        """Whether what has number ``ticket`` of ``board`` is still under way; shape (n, lanes)."""
        arrived = self.arrived[:, k.rows] if isinstance(k.rows, slice) else self.arrived[:, k.warps]
        rows = np.arange(k.count)[:, None]
        known = arrived[np.minimum(board, NOBODY), rows]
        return (board != NONE) & (ticket > known)

    def _read(self, k: Cohort, i: Instruction, n: int, read: Access, lanes: Array) -> None:
        ledger = self.ledgers.get(read.file)
        if ledger is None:
            return
        lanes = self._lanes(ledger, lanes)
        now = self._now(k)[:, None]
        for index in range(read.first, min(read.first + read.count, len(ledger.values))):
            writer = ledger.writer[index][k.rows]
            board = ledger.board[index][k.rows]
            early = lanes & self._pending(k, board, ledger.ticket[index][k.rows])
            kind = "no-wait"
            if early.any():
                self._explain(k, n, read.file, index, early, writer, board)
            age = now - ledger.issued[index][k.rows]
            near = lanes & (age < FAR) & (board == NONE) & (writer >= 0)
            if near.any():
                for first in np.unique(writer[near]):
                    need = self._need("raw", int(first), n, read, index)
                    late = near & (writer == first) & (age < need)
                    if late.any():
                        kind = "raw-stall"
                        row, lane = np.argwhere(late)[0]
                        passed = int(age[row, 0])
                        message = f"reads {read.file}{index} {passed} cycles after it is set; {need} are needed"
                        self._report(kind, message, k, int(row), int(lane), int(first), n)
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
        variable = self.latency.variable(i, write)
        for index in range(write.first, min(write.first + write.count, len(ledger.values))):
            writer = ledger.writer[index][k.rows]
            board = ledger.board[index][k.rows]
            under_way = lanes & self._pending(k, board, ledger.ticket[index][k.rows])
            if under_way.any():
                self._explain(k, n, write.file, index, under_way, writer, board, "overwrites")
            age = now - ledger.issued[index][k.rows]
            near = lanes & (age < FAR) & (board == NONE) & (writer >= 0)
            if near.any():
                for first in np.unique(writer[near]):
                    need = self._need("waw", int(first), n, write, index)
                    late = near & (writer == first) & (age < need)
                    if late.any():
                        row, lane = np.argwhere(late)[0]
                        message = f"overwrites {write.file}{index} {int(age[row, 0])} cycles after it is set; "
                        message += f"{need} are needed"
                        self._report("waw-stall", message, k, int(row), int(lane), int(first), n)
            self._unlock(k, n, write, ledger, index, lanes)
            if ledger.old is not None:
                # until the new value is there, the one that can be seen now is read
                old = ledger.old[index]
                old[k.rows] = np.where(lanes & ~under_way, ledger.values[index][k.rows], old[k.rows])
            self._set(k, ledger.issued[index], lanes, np.broadcast_to(now, lanes.shape))
            self._set(k, ledger.writer[index], lanes, n)
            mine = i.control.write if variable else NONE
            if variable and mine == NONE:
                mine = NOBODY
            self._set(k, ledger.board[index], lanes, mine)
            if mine != NONE:
                number = self.issued[mine][k.rows][:, None] + (mine != NOBODY)
                self._set(k, ledger.ticket[index], lanes, np.broadcast_to(number, lanes.shape))

    @staticmethod
    def _set(k: Cohort, row: Array, lanes: Array, value: Array | int) -> None:
        row[k.rows] = np.where(lanes, value, row[k.rows])

    def _lock(self, k: Cohort, i: Instruction, n: int, ledger: Ledger, index: int, lanes: Array) -> None:
        """Instruction ``n`` reads late: nobody may overwrite until its scoreboard says so."""
        board = i.control.read if i.control.read != NONE else i.control.write
        board = NOBODY if board == NONE else board
        number = self.issued[board][k.rows] + (board != NOBODY)
        pending = ledger.lock[board][index][k.rows] > self.arrived[board][k.rows]
        before = ledger.locked[board][index][k.rows] & pending[:, None]
        ledger.locked[board][index][k.rows] = before | lanes
        ledger.lock[board][index][k.rows] = number
        ledger.reader[board][index][k.rows] = n

    def _unlock(self, k: Cohort, n: int, write: Access, ledger: Ledger, index: int, lanes: Array) -> None:
        for board in range(SCOREBOARDS + 1):
            pending = ledger.lock[board][index][k.rows] > self.arrived[board][k.rows]
            if not pending.any():
                continue
            hit = lanes & ledger.locked[board][index][k.rows] & pending[:, None]
            reader = ledger.reader[board][index][k.rows]
            hit &= (reader != n)[:, None]  # its own sources are read before its result comes
            if hit.any():
                row, lane = np.argwhere(hit)[0]
                which = "that sets no scoreboard" if board == NOBODY else f"whose scoreboard {board} nobody waited for"
                message = f"overwrites {write.file}{index} before it has been read by an instruction {which}"
                self._report("war", message, k, int(row), int(lane), int(reader[row]), n)

    def _depbar(self, k: Cohort, i: Instruction) -> None:
        """DEPBAR.LE SBn, m {...}: all but the last m have come; and the scoreboards of the set, whole."""
        for operand in i.operands:
            if isinstance(operand, Imm) and operand.kind == "set":
                for board in range(SCOREBOARDS):
                    if operand.value >> board & 1:
                        self.arrived[board][k.rows] = self.issued[board][k.rows]
        if "LE" in i.mods and isinstance(i.operands[0], Name):
            board = int(i.operands[0].text.removeprefix("SB"))
            left = i.operands[1].value if isinstance(i.operands[1], Imm) else 0
            come = self.issued[board][k.rows] - left
            self.arrived[board][k.rows] = np.maximum(self.arrived[board][k.rows], come)

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
        self, k: Cohort, n: int, file: str, index: int, lanes: Array, writer: Array, board: Array, verb: str = "reads"
    ) -> None:
        row, lane = np.argwhere(lanes)[0]
        where = int(board[row, lane])
        if where == NOBODY:
            kind, why = "no-scoreboard", "which sets no write scoreboard"
        else:
            kind, why = "no-wait", f"without waiting for scoreboard {where}"
        message = f"{verb} {file}{index}, the result of an instruction of variable latency, {why}"
        self._report(kind, message, k, int(row), int(lane), int(writer[row, lane]), n)

    def _report(self, kind: str, message: str, k: Cohort, row: int, lane: int, first: int, second: int) -> None:
        key = (kind, first, second)
        if key in self._seen:
            return
        self._seen.add(key)
        block, thread = self.wave.who(int(k.warps[row]), lane)
        place = self.wave.image.place
        self.findings.append(Hazard(kind, message, place(first), place(second), block, thread))
