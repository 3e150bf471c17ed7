"""The machine: blocks in waves, warps that split and meet again, and the loop that runs them.

Warps of all blocks of a wave that stand at one instruction run it together, as one numpy operation. A *split* is the
part of a warp that has stayed together: Volta and later have a program counter per thread, and the threads of a warp
part at divergent branches and meet again at BSYNC and WARPSYNC (``flow.py`` says what each of these does). Here:

* ``Image``: the code of one kernel, each word decoded once and made into a step when it is first reached;
* ``Wave``: registers of the warps that run together, and their splits;
* ``Wave.run``: picks a place in the code, takes all splits that stand there (one of each warp), runs them up to the
  next instruction that may change who runs, and lets ``flow.py`` do that one.

Which place comes next: the lowest one, so that those behind catch up and join; but a split that has waited for long
goes first, so that a thread that spins for another cannot starve it. Both are allowed schedules of the hardware.
"""

from __future__ import annotations

import bisect
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from turingas.emulate import build, flow
from turingas.emulate.cohort import Array, Cohort, Rows
from turingas.emulate.errors import DeviceError, Place
from turingas.emulate.memory import Local, Shared
from turingas.emulate.splits import BARRIERS, RUNNING, Splits
from turingas.isa.effects import Effects
from turingas.isa.instruction import Imm, Instruction, instruction
from turingas.isa.isa import instruction_set
from turingas.isa.latency import latencies

if TYPE_CHECKING:
    from turingas.cubin.model import Kernel
    from turingas.emulate.counters import Counters
    from turingas.emulate.device import Device, Options
    from turingas.emulate.races import Races
    from turingas.emulate.strict import Strict

PATIENCE = 64  # turns that a split waits before it goes first
WORD = 16

Section = tuple[int, "Kernel"]  # where a section of code begins, and what it holds


class Image:
    """A kernel as the device runs it: ``words`` are the code of its section (at address 0, as the addresses in its own
    tables have it) and of the functions' sections behind it; ``banks`` its constant memory."""

    def __init__(
        self, device: Device, kernel: Kernel, sections: list[Section], words: list[int], banks: dict[int, Array],
        local_bytes: int, externals: dict[int, str],
    ) -> None:
        self.device, self.arch, self.kernel = device, device.arch, kernel
        self.sections, self.words, self.banks = sections, words, banks
        self.externals = externals
        self.local_bytes = local_bytes
        self.isa = instruction_set(kernel.arch)
        self.maker = build.Maker(self)
        size = len(words)
        self.instructions: list[Instruction | None] = [instruction(self.isa, w, n * WORD) for n, w in enumerate(words)]
        self.steps: list[build.Step | None] = [None] * size
        # a count in a uniform register may be any
        asked = [i.operands[-1].value if isinstance(i.operands[-1], Imm) else self.arch.max_registers
                 for i in self.instructions if i is not None and i.base == "USETMAXREG"]  # fmt: skip
        self.registers = max(kernel.registers, 1, *asked)
        self.guards: list[build.Get | None] = [
            self.maker.pred(i.guard) if i is not None and not i.always else None for i in self.instructions
        ]
        #: who may run changes here: a run of plain instructions ends before these
        self.flow = [flow.FLOW.get(i.base) if i is not None else None for i in self.instructions]
        self.stalls = np.array([max(i.control.stall, 1) if i is not None else 1 for i in self.instructions], np.int64)
        self.elapsed = np.concatenate([[0], np.cumsum(self.stalls)])
        self.ends = self._ends()

    def _ends(self) -> list[int]:
        """For every instruction, the next one at or behind it that ends a run of plain ones."""
        ends, last = [0] * len(self.words), len(self.words)
        for n in range(len(self.words) - 1, -1, -1):
            i = self.instructions[n]
            if i is not None and _reads_clock(i):  # a run of its own, so that it sees the time
                ends[n], last = n + 1, n
                continue
            if self.flow[n] is not None:
                last = n
            ends[n] = last
        return ends

    @functools.cached_property
    def effects(self) -> list[Effects | None]:
        """What the scoreboard mode has to know of each instruction."""
        rules = latencies(self.arch.name)
        return [None if i is None else Effects(i, rules) for i in self.instructions]

    def step(self, n: int) -> build.Step:
        """The function that runs instruction ``n``. DeviceError where there is no semantics for it."""
        i = self.instructions[n]
        if i is None:
            raise DeviceError("unknown instruction", "no instruction of the table explains this word", self.place(n))
        beyond = [a.first for a in (*i.reads, *i.writes) if a.file == "R" and self.registers <= a.first < 255]
        if beyond:
            message = f"R{beyond[0]} is none of the {self.registers} registers that the kernel has"
            raise DeviceError("registers", message, self.place(n))
        try:
            made = self.steps[n] = build.build(i, self.maker)
        except build.Unsupported as why:
            raise DeviceError("unsupported", f"{why}; the CPU device cannot run it", self.place(n)) from None
        return made

    def place(self, n: int) -> Place:
        """Where instruction ``n`` stands, as people know it."""
        if not 0 <= n < len(self.words):
            return Place(self.kernel.name, n * WORD, "outside the code")
        start, owner = self.sections[bisect.bisect_right(self.sections, n, key=lambda s: s[0]) - 1]
        local = n - start
        file, line = owner.lines[local] if local < len(owner.lines) else ("", 0)
        text = self.isa.decode(self.words[n], local * WORD, plain=True)
        return Place(owner.name, local * WORD, text, file, line)

    # -- constant memory

    def bank(self, number: int) -> Array:
        """The bytes of a constant bank, uint8; an empty one where the kernel has none."""
        found = self.banks.get(number)
        return found if found is not None else np.zeros(0, np.uint8)

    def constant(self, bank: int, offset: int, size: int) -> bytes:
        """``size`` bytes of a bank. Unsupported (the instruction then cannot be run) beyond its end."""
        data = self.bank(bank)
        if not 0 <= offset <= offset + size <= len(data):
            raise build.Unsupported(f"c[{bank:#x}][{offset:#x}] lies beyond the {len(data)} bytes of that bank")
        return bytes(data[offset : offset + size])


def _reads_clock(i: Instruction) -> bool:
    return i.base in ("CS2R", "S2R", "S2UR") and ("CLOCK" in i.text() or "TIMER" in i.text())


class Wave:
    """Blocks that run together. ``index`` (3, blocks) are their places in the grid."""

    def __init__(self, image: Image, options: Options, index: Array) -> None:
        self.image, self.device, self.options = image, image.device, options
        self.grid, self.block = options.grid, options.block
        threads = int(np.prod(options.block))
        per_block = -(-threads // 32)
        blocks = index.shape[1]
        self.blocks = blocks
        self.warps = warps = blocks * per_block
        self.block_of = np.repeat(np.arange(blocks, dtype=np.intp), per_block)
        self.ctaid = np.repeat(index, per_block, axis=1)[:, :, None].astype(np.uint32)
        lane = np.arange(per_block * 32)
        x, y, _ = options.block
        tid = np.stack([lane % x, lane // x % y, lane // (x * y)]).astype(np.uint32).reshape(3, per_block, 32)
        self.tid = np.tile(tid, (1, blocks, 1))
        exists = np.tile((lane < threads).reshape(per_block, 32), (blocks, 1))
        self.R = np.zeros((image.registers, warps, 32), np.uint32)
        self.P = np.zeros((8, warps, 32), bool)
        self.P[7] = True
        self.UR = np.zeros((64, warps, 1), np.uint32)
        self.UP = np.zeros((8, warps, 1), bool)
        self.UP[7] = True
        self.barriers = np.zeros((BARRIERS, warps, 32), np.uint32)
        #: lanes that BREAK took out of a barrier while others had it saved: by warp, barrier and mask, see flow.bmov
        self.left: dict[tuple[int, int, int], int] = {}
        self.alive = exists.copy()
        self.clock = np.zeros((warps, 1), np.int64)
        self.executed = np.zeros(warps, np.int64)
        self.yields = np.zeros((warps, 32), np.int64)  # of each lane since its last BSYNC
        self.shared = Shared(blocks, options.shared, track_writes=options.written)
        self.local = Local(warps, image.local_bytes, track_writes=options.written)
        self.splits = Splits(exists)
        self.bars = flow.BlockBarriers(blocks, warps)
        self.turn = 0
        self.alone = True  # whether all that run stand at one place
        self.patience = PATIENCE
        self.moved = False  # a lane left, or a barrier changed: those who wait may go on
        self.counters: Counters | None = None
        self.races: Races | None = None
        self.strict: Strict | None = None
        self.scratch: dict[str, Array] = {}
        self.cohort: Cohort | None = None  # at work right now
        self.instructions = 0  # of warps
        self.lane_instructions = 0

    # -- the loop

    def run(self, stop: Callable[[], bool] = lambda: False) -> None:
        """Run all blocks to their end. DeviceError for what they do wrong."""
        image, splits = self.image, self.splits
        steps, guards, ends = image.steps, image.guards, image.ends
        size = len(image.words)
        with np.errstate(all="ignore"):
            while len(splits):
                if self.moved:
                    self.moved = False
                    flow.release(self)
                chosen, n, limit = self._choose()
                if not 0 <= n < size:
                    if n in image.externals:
                        raise DeviceError("unsupported", f"the kernel calls {image.externals[n]}", None)
                    row = int(np.flatnonzero(splits.mask[chosen[0]])[0])
                    warp = int(splits.warp[chosen[0]])
                    block, thread = self.who(warp, row)
                    message = f"execution left the code: address {n * WORD:#x}"
                    raise DeviceError("lost", message, image.place(n), block, thread)
                k = self.cohort = self._cohort(chosen)
                while True:
                    end = min(ends[n], limit)
                    if end > n:
                        self._straight(k, n, end, steps, guards)
                        n = end
                        splits.pc[chosen] = n
                        if n == limit or n >= size:
                            break
                        if image.flow[n] is None:
                            continue
                    act = image.flow[n]
                    if act is None:  # it stands at the limit
                        break
                    self.turn += 1
                    if stop():
                        return
                    if self.turn & 255 == 0:
                        self._check_budget()
                    if not self._act(k, n, act, chosen):
                        break
                    before = n
                    n = int(splits.pc[chosen[0]])  # all went on to one place: perhaps no need to choose anew
                    if not 0 <= n < limit or (n <= before and not self.alone):
                        break
        self._check_budget()

    def _choose(self) -> tuple[Array, int, int]:
        """The splits that go next, where they stand, and the next place where others wait to join."""
        splits = self.splits
        running = np.flatnonzero(splits.state == RUNNING)
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

    def _straight(
        self, k: Cohort, n: int, end: int, steps: list[build.Step | None], guards: list[build.Get | None]
    ) -> None:
        """Run the plain instructions ``n`` to ``end``."""
        if self.counters is not None or self.strict is not None:
            self._watched(k, n, end)
            return
        k.mask = k.active
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
        self._tick(k, n, end)

    def _watched(self, k: Cohort, n: int, end: int) -> None:
        """The same, with counters and the scoreboard mode looking on."""
        for at in range(n, end):
            step = self.image.steps[at] or self.image.step(at)
            self._enter(k, at)
            if k.mask is None or k.mask.any():
                step(k)
            self._exit(k, at)

    def _enter(self, k: Cohort, n: int) -> None:
        """Before instruction ``n``: its lanes, and what the observers want to see."""
        guard, strict, i = self.image.guards[n], self.strict, self.image.instructions[n]
        assert i is not None
        if strict is not None:
            strict.guard(k, i, n)
        k.mask = k.active if guard is None else self._guarded(k, guard)
        if strict is not None:
            strict.operands(k, i, n)
        if self.counters is not None:
            self.counters.count(k, n)

    def _exit(self, k: Cohort, n: int) -> None:
        if self.strict is not None:
            i = self.image.instructions[n]
            assert i is not None
            self.strict.after(k, i, n)
        k.mask = k.active
        self._tick(k, n, n + 1)

    def _tick(self, k: Cohort, n: int, end: int) -> None:
        """Account for the instructions ``n`` to ``end``."""
        self.clock[k.rows] += self.image.elapsed[end] - self.image.elapsed[n]
        self.executed[k.rows] += end - n
        self.instructions += k.count * (end - n)
        self.lane_instructions += k.threads * (end - n)

    @staticmethod
    def _guarded(k: Cohort, guard: build.Get) -> Array | None:
        """The lanes that a guard lets through; None for all."""
        mask = guard(k)
        if k.active is not None:
            mask = mask & k.active
        elif mask.shape != (k.count, 32):
            mask = np.broadcast_to(mask, (k.count, 32))
        return None if mask.all() else mask

    def _act(self, k: Cohort, n: int, act: flow.Flow, chosen: Array) -> bool:
        """Let ``flow.py`` do instruction ``n``. True when the same splits go on together, at ``splits.pc``."""
        i = self.image.instructions[n]
        assert i is not None
        self._enter(k, n)
        together = act(flow.Turn(self, k, i, n, chosen))
        self._exit(k, n)
        return together and not self.moved

    # -- errors

    def who(self, warp: int, lane: int) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
        """Block and thread of a lane, each (x, y, z)."""
        block = tuple(int(v) for v in self.ctaid[:, warp, 0])
        thread = tuple(int(v) for v in self.tid[:, warp, lane])
        return block, thread  # type: ignore[return-value]

    def fault(
        self, i: Instruction, kind: str, message: str, row: int, lane: int, address: int | None = None
    ) -> DeviceError:
        """The error of one lane of the cohort at work, to be raised."""
        assert self.cohort is not None
        block, thread = self.who(int(self.cohort.warps[row]), lane)
        return DeviceError(kind, message, self.image.place(i.address // WORD), block, thread, address)

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
