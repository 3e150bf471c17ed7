"""The scoreboard mode: the CPU device heeds what the control codes say, as the GPU does.

On the GPU nothing checks that a result is there before it is read: the stall of a fixed-latency instruction and the
scoreboard of a variable-latency one say so, and where they say it wrong the old value is read. This mode keeps, for
every register and lane, who wrote it last and when, and who has still to read it; each read and write is held against
that. The rules are the linter's (turingas/isa/effects and turingas/isa/latency). Time is the least that can pass: the
stall counts of the warp's own instructions. What takes a variable time never arrives before somebody waits for it.

What is under way waits on a *channel*: the results of one queue, or its sources, which come in order, or one scoreboard
where there is no order. For each warp and channel it is known up to which cycle all that was issued is done; a wait for
a scoreboard moves that on. So one comparison, of cycles, says whether a result is there. It takes 12 bytes for
every register and lane, and as many again for each queue that reads registers late.

With ``stale`` an instruction that reads too early gets the old value, as on the GPU.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from turingas.emulate.arrays import Array
from turingas.emulate.cohort import Cohort, Observer, State
from turingas.emulate.errors import DeviceError, Place
from turingas.emulate.report import Report
from turingas.isa.effects import (
    FIXED,
    LATE,
    SCOREBOARDS,
    SOONEST,
    VARIABLE,
    WITH_SOURCES,
    Effects,
    bits,
    pending,
    register_of,
    too_early,
)
from turingas.isa.instruction import Instruction
from turingas.isa.latency import BARRIER, MADE, NONE, SOURCES, latencies

MANY = 16  # instructions that may have something under way to one register, before those that have not are sorted out


@dataclass(frozen=True)
class Hazard:
    """``first`` and ``second`` are the two instructions; ``kind`` as the linter names it. ``block`` and ``thread`` are
    those of the first lane that it was seen in."""

    kind: str
    message: str = field(compare=False)
    first: Place
    second: Place
    block: tuple[int, int, int] = field(compare=False)
    thread: tuple[int, int, int] = field(compare=False)

    def __str__(self) -> str:
        where = f"block {self.block}, thread {self.thread}"
        return f"{self.second}: error: {self.message} [{self.kind}]\n  after {self.first}\n  {where}"


class Begun:
    """What was last begun with each register of one file, lane by lane: arrays (registers, warps, lanes). ``open``: for
    each register the instructions that may have something under way there."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.who = np.zeros(shape, np.int32)  # number of the instruction
        self.when = np.zeros(shape, np.int64)  # cycle of its issue; 0: never
        self.open: list[set[int]] = [set() for _ in range(shape[0])]

    def begin(self, k: Cohort, index: int, n: int, now: Array, lanes: Array | None) -> None:
        """Instruction ``n``, issued at ``now`` (n, 1), writes or will read register ``index`` in ``lanes``."""
        who, when, begun = self.who[index], self.when[index], self.open[index]
        if lanes is None:
            who[k.rows], when[k.rows] = n, now
            if k.count == len(who):
                begun.clear()
        else:
            who[k.rows], when[k.rows] = np.where(lanes, n, who[k.rows]), np.where(lanes, now, when[k.rows])
        if len(begun) >= MANY and n not in begun:
            begun.intersection_update(np.unique(who[when > 0]).tolist())
        begun.add(n)

    def behind(self, k: Cohort, index: int, n: int, done: Array, lanes: Array | None) -> Array | None:
        """Those of ``lanes`` in which instruction ``n`` began it after the cycle ``done`` (n, 1); None for none."""
        found: Array = self.when[index][k.rows] > done
        if not found.any():
            return None
        found &= self.who[index][k.rows] == n
        if lanes is not None:
            found &= lanes
        return found if found.any() else None


class Strict(Observer):
    """The scoreboard mode of one wave. ``findings`` has each pair of instructions once."""

    each = True

    def __init__(self, wave: State, stale: bool) -> None:
        self.wave = wave
        self.latency = latencies(wave.image.arch.name)
        self.effects = wave.image.effects
        self.values = {"R": wave.R, "P": wave.P, "UR": wave.UR, "UP": wave.UP, "B": wave.barriers}
        for file, like in ((BARRIER, wave.P[:4]), (MADE, wave.P[:1]), (SOURCES, wave.UR)):
            # no values: only when they were written counts
            self.values[file] = np.zeros(like.shape, bool)
        self.old = {file: values.copy() for file, values in self.values.items()} if stale else {}
        self.results = {file: Begun(values.shape) for file, values in self.values.items()}
        self.sources: dict[str, dict[str, Begun]] = {file: {} for file in self.values}  # read late, by queue
        self.made: dict[int, Begun] = {}  # what is made of mbarriers, by instruction: none overwrites what others do
        self.clock = np.full(wave.warps, SOONEST, np.int64)

        queues = sorted({e.queue for e in self.effects if e is not None})
        names = [(role, queue) for queue in queues for role in (VARIABLE, LATE, WITH_SOURCES)]
        self.channel = {name: n for n, name in enumerate([*names, *range(SCOREBOARDS), NONE])}
        # DEPBAR counts settings of a scoreboard, so that what was told by the older ones is kept
        counted = [e.depbar[1] for e in self.effects if e is not None and e.depbar is not None]
        channels, warps = len(self.channel), wave.warps
        self.done = np.zeros((warps, channels), np.int64)  # all issued up to this cycle is
        # scoreboard, its last settings -> up to which cycle that says that a channel is done
        self.told = np.zeros((SCOREBOARDS, 1 + max(counted, default=0), warps, channels), np.int64)
        self.sets = np.zeros((SCOREBOARDS, warps), np.int64)  # how often it was set
        self.set_at = np.zeros((SCOREBOARDS, warps), np.int64)
        self.setter = np.zeros((SCOREBOARDS, warps), np.int32)

        self.findings: list[Hazard] = []
        self._seen: set[tuple[str, int, int]] = set()
        self._borrowed: list[tuple[int, Array, Array]] = []  # register, lanes, what they held
        self._rules: dict[tuple[str, int, int, int], tuple[int, int]] = {}

    def tell(self, report: Report) -> None:
        report.hazards += [hazard for hazard in self.findings if hazard not in report.hazards]

    # -- called by the machine, in this order

    def guard(self, k: Cohort, i: Instruction, n: int) -> None:
        """Before the guard of instruction ``n`` is looked at: the scoreboards that it waits for, then the guard."""
        this = self._of(n)
        if this.missing:
            message = f"names scoreboard {this.missing[0]}; there are 0 to {SCOREBOARDS - 1}"
            raise DeviceError("scoreboard", message, self.wave.image.place(n))
        for board in this.wait:
            self._wait(k, board, n)
        for board in this.waits:
            self._release(k.warps, board, 0)
        if this.depbar is not None:
            self._release(k.warps, *this.depbar)
        if this.guard is not None:
            self._read(k, n, this.guard[0], k.active)

    def operands(self, k: Cohort, i: Instruction, n: int) -> None:
        """Before instruction ``n`` runs on the lanes of ``k.mask``."""
        lanes = k.mask
        if lanes is not None and not lanes.any():
            return
        this = self._of(n)
        for register, read in this.reads.items():
            if read.what != "guard":
                self._read(k, n, register, lanes)
        for register in this.writes:
            self._write(k, n, register, lanes)
        for register in bits(this.made):
            made = self.made.setdefault(n, Begun(self.values[MADE].shape))
            made.begin(k, register_of(register)[1], n, self._now(k), lanes)
        for register in this.late:
            file, index = register_of(register)
            sources = self.sources[file]
            if this.queue not in sources:
                sources[this.queue] = Begun(self.values[file].shape)
            sources[this.queue].begin(k, index, n, self._now(k), _of_file(file, lanes))

    def after(self, k: Cohort, i: Instruction, n: int) -> None:
        """After it: new values where old ones were read, and what its scoreboards will tell."""
        this = self._of(n)
        for register, lanes, held in self._borrowed:
            file, index = register_of(register)
            if register in this.writes:
                written = _of_file(file, k.lanes)
                lanes = lanes & ~written if written is not None else lanes
            values = self.values[file][index]
            values[k.rows] = np.where(lanes, held, values[k.rows])
        self._borrowed.clear()
        for board in this.sets:
            self._set(k, board, n, this)
        if this.flushes:
            channel = self.channel.get((LATE, this.flushes))
            if channel is not None:
                self.done[k.rows, channel] = self.clock[k.rows]
        self.clock[k.rows] += this.stall

    # -- scoreboards

    def _set(self, k: Cohort, board: int, n: int, this: Effects) -> None:
        warps, told = k.warps, self.told[board]
        now = self.clock[warps]
        before = self.sets[board, warps]
        after = before + 1  # those count, too, that no lane runs: NVRTC 12.9 counts guarded TLD so
        if len(told) > 1:
            told[after % len(told), warps] = told[before % len(told), warps]
        channels = [self.channel[role, this.queue] for role, mask in this.releases.items() if mask >> board & 1]
        if this.releases[VARIABLE] >> board & 1:
            channels.append(self.channel[board])
        told[(after % len(told))[:, None], warps[:, None], channels] = now[:, None]
        self.sets[board, warps], self.set_at[board, warps], self.setter[board, warps] = after, now, n

    def _wait(self, k: Cohort, board: int, n: int) -> None:
        soon = self.clock[k.rows] - self.set_at[board][k.rows] < SOONEST
        if soon.any():
            row = int(soon.argmax())
            message = f"waits for scoreboard {board} less than {SOONEST} cycles after it is set, and so may not wait"
            self._report("wait-too-soon", message, k, row, 0, int(self.setter[board][k.rows][row]), n)
        self._release(k.warps[~soon] if self.old else k.warps, board, 0)

    def _release(self, warps: Array, board: int, left: int) -> None:
        """All but the last ``left`` settings of a scoreboard are done, and so is what they tell of."""
        told = self.told[board]
        self.done[warps] = np.maximum(self.done[warps], told[(self.sets[board, warps] - left) % len(told), warps])

    # -- registers

    def _read(self, k: Cohort, n: int, register: int, lanes: Array | None) -> None:
        file, index = register_of(register)
        lanes = _of_file(file, lanes)
        early: Array | None = None
        for begun in self.made.values() if file == MADE else (self.results[file],):
            for first in tuple(begun.open[index]):
                hit = self._clash("raw", k, begun, first, n, register, lanes)
                if hit is not None:
                    early = hit if early is None else early | hit
        if early is not None and self.old:
            values = self.values[file][index]
            held = values[k.rows].copy()
            self._borrowed.append((register, early, held))
            values[k.rows] = np.where(early, self.old[file][index][k.rows], held)

    def _write(self, k: Cohort, n: int, register: int, lanes: Array | None) -> None:
        file, index = register_of(register)
        lanes = _of_file(file, lanes)
        begun = self.results[file]
        if self.old:
            self._keep(k, file, index, n, register, lanes)
        for first in tuple(begun.open[index]):
            self._clash("waw", k, begun, first, n, register, lanes)
        for sources in self.sources[file].values():
            for first in tuple(sources.open[index]):
                self._clash("war", k, sources, first, n, register, lanes)
        begun.begin(k, index, n, self._now(k), lanes)

    def _keep(self, k: Cohort, file: str, index: int, n: int, register: int, lanes: Array | None) -> None:
        """Until the new value is there, the one that can be seen now is read."""
        begun, values, old = self.results[file], self.values[file][index], self.old[file][index]
        seen = np.ones(values[k.rows].shape, bool) if lanes is None else lanes
        for first in begun.open[index]:
            channel = self._channel(self._of(first), register)
            if channel >= 0:
                hidden = begun.behind(k, index, first, self.done[k.rows, channel][:, None], lanes)
                seen = seen if hidden is None else seen & ~hidden
        old[k.rows] = np.where(seen, values[k.rows], old[k.rows])

    def _clash(
        self, hazard: str, k: Cohort, begun: Begun, first: int, n: int, register: int, lanes: Array | None
    ) -> Array | None:
        """The lanes in which instruction ``n`` comes too early for what ``first`` began with a register."""
        need, channel = self._rule(hazard, first, n, register)
        done = self._now(k) - need if channel < 0 else self.done[k.rows, channel][:, None]
        index = register_of(register)[1]
        hit = begun.behind(k, index, first, done, lanes)
        if hit is None:
            return None
        row, lane = divmod(int(hit.argmax()), hit.shape[1])
        if channel < 0:
            passed = int((self._now(k) - begun.when[index][k.rows])[row, lane])
            found = too_early(hazard, register, self._of(n).i, passed, need)
            self._report(*found, k, row, lane, first, n)
        else:
            self._explain(hazard, k, row, lane, first, n, register)
        return hit

    def _rule(self, hazard: str, first: int, n: int, register: int) -> tuple[int, int]:
        """How ``n`` keeps behind ``first`` because of a register: so many cycles, and -1; or 0, and the channel."""
        key = (hazard, first, n, register)
        rule = self._rules.get(key)
        if rule is None:
            rule = self._rules[key] = self._find_rule(hazard, self._of(first), self._of(n), register)
        return rule

    def _find_rule(self, hazard: str, one: Effects, two: Effects, register: int) -> tuple[int, int]:
        queued = hazard != "raw" and one.queue == two.queue and two.writes[register][1] != FIXED
        if queued and (hazard == "war" or one.in_order):
            return 0, -1  # in order anyway
        if hazard == "war":
            return 0, self.channel[LATE, one.queue]
        channel = self._channel(one, register)
        if channel >= 0:
            return 0, channel
        write = one.writes[register][0]
        if hazard == "raw":
            return self.latency.raw(one.i, write, two.i, two.reads[register]), -1
        return self.latency.waw(one.i, write, two.i, two.writes[register][0]), -1

    def _channel(self, one: Effects, register: int) -> int:
        """The channel of a result; -1 when it takes a fixed time."""
        role = VARIABLE if one.made >> register & 1 else one.writes[register][1]
        if role == FIXED:
            return -1
        return self.channel[one.i.control.write if role == VARIABLE and not one.in_order else (role, one.queue)]

    def _of(self, n: int) -> Effects:
        found = self.effects[n]
        assert found is not None
        return found

    def _now(self, k: Cohort) -> Array:
        return self.clock[k.rows][:, None]

    # -- reports

    def _explain(self, kind: str, k: Cohort, row: int, lane: int, first: int, n: int, register: int) -> None:
        one = self._of(first).i
        message = pending(kind, register, one, self._of(n).i)
        does, board = "write", one.control.write
        if kind == "war":
            does, board = "read", one.control.read if one.control.read != NONE else board
        why = f"which scoreboard {board} would tell"
        if board == NONE:
            kind, why = "no-scoreboard", f"and has no {does} scoreboard"
        self._report(kind, f"{message}, {why}", k, row, lane, first, n)

    def _report(self, kind: str, message: str, k: Cohort, row: int, lane: int, first: int, second: int) -> None:
        key = (kind, first, second)
        if key in self._seen:
            return
        self._seen.add(key)
        block, thread = self.wave.who(int(k.warps[row]), lane)
        place = self.wave.image.place
        self.findings.append(Hazard(kind, message, place(first), place(second), block, thread))


def _of_file(file: str, lanes: Array | None) -> Array | None:
    """Lanes (n, 32) as a register of ``file`` has them: uniform registers have one for all (n, 1)."""
    if lanes is None or file not in ("UR", "UP", SOURCES):
        return lanes
    return np.logical_or.reduce(lanes, axis=1, keepdims=True)
