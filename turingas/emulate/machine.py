"""The machine: blocks in waves, warps that split and meet again, and the loop that runs them.

Warps of all blocks of a wave that stand at one instruction run it together, as one numpy operation. A *split* is the
part of a warp that has stayed together: Volta and later have a program counter per thread, and the threads of a warp
part at divergent branches and meet again at BSYNC and WARPSYNC (``flow.py`` says what each of these does). Here:

* ``Image``: the code of one kernel, each word decoded once and made into a step when it is first reached;
* ``Wave``: the state of the warps that run together (``cohort.State``), and the loop over it;
* ``Wave.run``: picks a place in the code, takes all splits that stand there (one of each warp), runs them up to the
  next instruction that may change who runs, and lets ``flow.py`` do that one.

Which place comes next: the lowest one, so that those behind catch up and join; but a split that has waited for long
goes first, so that a thread that spins for another cannot starve it. Both are allowed schedules of the hardware.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from turingas.emulate import calls, flow
from turingas.emulate.arrays import Array, Rows, spread
from turingas.emulate.build import Get, Maker, Step
from turingas.emulate.code import WORD, Code
from turingas.emulate.cohort import PATIENCE, Cohort, State
from turingas.emulate.errors import DeviceError, Unsupported
from turingas.emulate.ready import ready
from turingas.emulate.splits import LOADED, RUNNING
from turingas.isa.effects import SCOREBOARDS

COLUMNS_UNKNOWN = (
    "MOVM.U4TO8: nothing public says which lane gets which columns; the CPU device runs it only within ptxas's "
    "functions for products of bits, where any order gives the same"
)
SPARE = 2  # registers of a warp that the hardware uses itself (see check/resources.py)


class Image(Code):
    """The code with what runs it: each instruction is made into a step when it is first reached."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.maker = Maker(self)
        self.steps: list[Step | None] = [None] * len(self.words)
        self.ready = ready(self, self.maker)
        self.guards: list[Get | None] = [None if r is None else r.guard for r in self.ready]
        self.flow = [None if r is None else r.flow for r in self.ready]
        self.stalls = np.array([r.stall if r is not None else 1 for r in self.ready], np.int64)
        self.elapsed = [0, *np.cumsum(self.stalls).tolist()]
        self.timed = False  # whether an instruction reads the time, or moves registers
        self.ends = self._ends()
        #: the highest register of each instruction
        self.highest = np.array([-1 if r is None else r.highest for r in self.ready]) if self.moves else np.zeros(0)
        self._settling()

    def _settling(self) -> None:
        """Whoever waits, by the mask of its control code, for a scoreboard that is set when a group of copies is
        closed, or by a load of tensor memory, knows that these are over."""
        self.settled: dict[int, list[int]] = {}
        if not (self.bases & {"LDGDEPBAR", "UTMACMDFLUSH"} or "LDTM" in self.bases):
            return
        groups = [i.control for i in self.instructions if i is not None and i.base in ("LDGDEPBAR", "UTMACMDFLUSH")]
        loads = {i.control.write for i in self.instructions if i is not None and i.base == "LDTM"}
        boards = [(b, b) for b in sorted({b for c in groups for b in (c.write, c.read) if b < SCOREBOARDS})]
        boards += [(b, LOADED + b) for b in sorted(loads) if b < SCOREBOARDS]
        for n, i in enumerate(self.instructions):
            if i is None or not (waits := [late for b, late in boards if i.control.wait >> b & 1]):
                continue
            if (guard := self.guards[n]) is not None:
                self.guards[n] = _behind(waits, guard)
            elif (act := self.flow[n]) is not None:
                self.flow[n] = _turn_behind(waits, act)
            else:
                self.settled[n] = waits

    def _ends(self) -> list[int]:
        """For every instruction, the next one at or behind it that ends a run of plain ones."""
        ends, last = [0] * len(self.words), len(self.words)
        for n in range(len(self.words) - 1, -1, -1):
            r = self.ready[n]
            if r is not None and r.solo:
                ends[n], last, self.timed = n + 1, n, True
                continue
            if self.flow[n] is not None:
                last = n
            ends[n] = last
        return ends

    def step(self, n: int) -> Step:
        """The function that runs instruction ``n``. DeviceError where there is no semantics for it."""
        r = self.ready[n]
        if r is None:
            raise DeviceError("unknown instruction", "no instruction of the table explains this word", self.place(n))
        if r.highest >= self.registers:
            message = f"R{r.highest} is out of range: the kernel has {self.registers} registers"
            raise DeviceError("registers", message, self.place(n))
        if "U4TO8" in r.instruction.mods and not any(n * WORD in function for function in self.any_order):
            raise DeviceError("unsupported", COLUMNS_UNKNOWN, self.place(n))
        try:
            made = r.step(self)
            self.steps[n] = made = _behind(self.settled[n], made) if n in self.settled else made
        except Unsupported as why:
            raise DeviceError("unsupported", f"{why}; the CPU device cannot run it", self.place(n)) from None
        return made


Result = TypeVar("Result")


def _behind(boards: list[int], then: Callable[[Cohort], Result]) -> Callable[[Cohort], Result]:
    def both(k: Cohort) -> Result:
        for board in boards:
            k.wave.late.settle(board, k.warps)
        return then(k)

    return both


def _turn_behind(boards: list[int], act: flow.Flow) -> flow.Flow:
    def both(t: flow.Turn) -> bool:
        for board in boards:
            t.wave.late.settle(board, t.k.warps)
        return act(t)

    return both


class Wave(State):
    """Blocks that run together, and the loop that runs them."""

    image: Image
    stepwise = False  # whether an observer looks at each instruction

    # -- the loop

    def run(self, stop: Callable[[], bool] = lambda: False) -> None:
        """Run all blocks to their end. DeviceError for what they do wrong."""
        self.stepwise = any(observer.each for observer in self.observers)
        with np.errstate(all="ignore"):
            while len(self.splits):
                if not self.go(stop):
                    return
            self.late.finish()
        for observer in self.observers:
            observer.ended()
        self._check_budget()

    def go(self, stop: Callable[[], bool]) -> bool:
        """Choose who goes next, and run those until somebody else may have to go. False when ``stop`` says so."""
        image, splits = self.image, self.splits
        size = len(image.words)
        if self.moved:
            self.moved = False
            flow.release(self)
        chosen, n, limit = self._choose()
        k = self.cohort = self._cohort(chosen)
        if not 0 <= n < size:
            self._outside(k, n, chosen)
            return True
        limit = min(limit, size)  # others may stand at functions of the driver
        steps, guards, ends = image.steps, image.guards, image.ends
        while True:
            end = min(ends[n], limit)
            if end > n:
                self._straight(k, n, end, steps, guards)
                n = end
                splits.pc[chosen] = n
                if n == limit or n >= size:
                    return True
                if image.flow[n] is None:
                    continue
            act = image.flow[n]
            if act is None:  # it stands at the limit
                return True
            self.turn += 1
            if stop():
                return False
            if self.turn & 255 == 0:
                self._check_budget()
            if not self._act(k, n, act, chosen):
                return True
            before = n
            n = int(splits.pc[chosen[0]])  # all went on to one place: perhaps no need to choose anew
            if not 0 <= n < limit or (n <= before and not self.alone):
                return True

    def _outside(self, k: Cohort, n: int, chosen: Array) -> None:
        """There is no code at ``n``: a function of the driver's is called. DeviceError if there is none either."""
        if n not in self.image.externals:
            block, thread = self.who(int(k.warps[0]), int(np.flatnonzero(k.lanes[0])[0]))
            message = f"execution left the code: address {n * WORD:#x}"
            raise DeviceError("lost", message, self.image.place(n), block, thread)
        self.turn += 1
        turn = flow.Turn(self, self.image.maker, k, None, n, chosen)  # type: ignore[arg-type]
        flow.back(turn, calls.call(k, self.image.externals[n]))

    def _choose(self) -> tuple[Array, int, int]:
        """The splits that go next, where they stand, and the next place where others wait to join."""
        splits = self.splits
        running = (splits.state == RUNNING).nonzero()[0]
        if not len(running):
            raise flow.deadlock(self)
        pcs = splits.pc[running]
        n = int(pcs.min())
        same = pcs == n
        limit = len(self.image.words)
        self.alone = bool(same.all())
        if self.alone:
            self.patience = PATIENCE
        else:
            ages = splits.last[running]
            oldest = int(ages.argmin())
            if self.turn - int(ages[oldest]) > self.patience:
                n = int(pcs[oldest])
                same = pcs == n
                self.patience = max(1, self.patience // 2)  # somebody spins: let the others run more often
            others = pcs[pcs > n]
            if len(others):
                limit = int(others.min())
        chosen = running[same]
        warps = splits.warp[chosen]
        if len(chosen) > 1 and not (warps[1:] > warps[:-1]).all():
            _, first = np.unique(warps, return_index=True)  # one split of each warp, in the order of the warps
            chosen = chosen[first]
        splits.last[chosen] = self.turn
        return chosen, n, limit

    def _cohort(self, chosen: Array) -> Cohort:
        warps = self.splits.warp[chosen]
        count = len(warps)
        rows: Rows = warps
        if int(warps[-1]) - int(warps[0]) == count - 1:
            rows = slice(int(warps[0]), int(warps[0]) + count)
        mask = self.splits.mask[chosen]
        return Cohort(self, rows, count, None if mask.all() else mask)

    def _straight(self, k: Cohort, n: int, end: int, steps: list[Step | None], guards: list[Get | None]) -> None:
        """Run the plain instructions ``n`` to ``end``."""
        if self.image.moves:
            self._check_registers(k, n, end)
        if self.stepwise:
            self._watched(k, n, end)
            return
        k.mask = k.active
        at = n
        try:
            for at in range(n, end):
                step = steps[at] or self.image.step(at)
                guard = guards[at]
                if guard is None:
                    step(k)
                    continue
                k.mask = mask = self._guarded(k, guard)
                if mask is None or mask.any():
                    step(k)
                k.mask = k.active
            at = end
        finally:  # a fault: what ran before it
            self._tick(k, n, at)

    def _watched(self, k: Cohort, n: int, end: int) -> None:
        """The same, with observers that look at each."""
        for at in range(n, end):
            step = self.image.steps[at] or self.image.step(at)
            self._enter(k, at)
            if k.mask is None or k.mask.any():
                step(k)
            self._exit(k, at)

    def _enter(self, k: Cohort, n: int) -> None:
        """Before instruction ``n``: its lanes, and what the observers want to see."""
        guard, i = self.image.guards[n], self.image.instructions[n]
        assert i is not None
        for observer in self.observers:
            observer.guard(k, i, n)
        k.mask = k.active if guard is None else self._guarded(k, guard)
        for observer in self.observers:
            observer.operands(k, i, n)

    def _exit(self, k: Cohort, n: int) -> None:
        i = self.image.instructions[n]
        assert i is not None
        for observer in self.observers:
            observer.after(k, i, n)
        k.mask = k.active
        self._tick(k, n, n + 1)

    def _tick(self, k: Cohort, n: int, end: int) -> None:
        """Account for the instructions ``n`` to ``end``."""
        self.clock[k.rows] += self.image.elapsed[end] - self.image.elapsed[n]
        self.executed[k.rows] += end - n
        self.instructions += k.count * (end - n)
        self.lane_instructions += k.threads * (end - n)

    @staticmethod
    def _guarded(k: Cohort, guard: Get) -> Array | None:
        """The lanes that a guard lets through; None for all."""
        mask = guard(k)
        if k.active is not None:
            mask = mask & k.active
        else:
            mask = spread(mask, (k.count, 32))
        return None if mask.all() else mask

    def _act(self, k: Cohort, n: int, act: flow.Flow, chosen: Array) -> bool:
        """Let ``flow.py`` do instruction ``n``. True when the same splits go on together, at ``splits.pc``."""
        i = self.image.instructions[n]
        assert i is not None
        self._enter(k, n)
        together = act(flow.Turn(self, self.image.maker, k, i, n, chosen))
        self._exit(k, n)
        return together and not self.moved

    def _check_registers(self, k: Cohort, n: int, end: int) -> None:
        """Of warps that give registers up: whether they have those that they use. (USETMAXREG is a run of its own.)"""
        has = self.has[k.rows]
        row = int(has.argmin())
        beyond = self.image.highest[n:end] >= has[row] - SPARE
        if beyond.any():
            at = n + int(beyond.argmax())
            i = self.image.instructions[at]
            assert i is not None
            message = f"R{self.image.highest[at]} is used, and the warp has {has[row]} registers now, of which it can"
            message += f" use R0 to R{has[row] - SPARE - 1}"
            raise self.fault(i, "registers", message, row, int(k.lanes[row].argmax()))

    def _check_budget(self) -> None:
        limit = self.options.budget
        most = int(self.executed.argmax())
        if self.executed[most] > limit:
            here = np.flatnonzero(self.splits.warp == most)
            place = self.image.place(int(self.splits.pc[here[0]])) if len(here) else None  # None: it has ended
            lane = int(self.splits.mask[here[0]].argmax()) if len(here) else 0
            block, thread = self.who(most, lane)
            message = f"a warp ran {limit:,} instructions, its budget (which may be raised): it may never end"
            raise DeviceError("budget", message, place, block, thread)
