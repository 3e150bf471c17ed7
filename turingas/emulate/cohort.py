"""The state of a wave, and a cohort of it: warps of any blocks that stand at one instruction, and run it as one numpy
operation.

Everything has the shape (n, 32): n warps (rows) of 32 lanes. Uniform registers have the shape (n, 1), so that they
broadcast against the others, and one function serves IADD3 and UIADD3.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np

from turingas.emulate.arrays import TRUE, ZERO, Array, Rows, spread
from turingas.emulate.code import WORD, Code
from turingas.emulate.errors import DeviceError
from turingas.emulate.late import Flight, Late, Touch, Which
from turingas.emulate.memory import Local, Shared
from turingas.emulate.pending import Pending
from turingas.emulate.report import Options, Report
from turingas.emulate.splits import BARRIERS, BlockBarriers, ClusterBarriers, Splits
from turingas.emulate.tensor_memory import TensorMemory
from turingas.isa.instruction import ZEROS, Instruction

PATIENCE = 64  # turns that a split waits before it goes first
REGISTERS = 8  # a warp gets so many, or a multiple, for each thread
Z_R, Z_UR, Z_P = ZEROS["R"], ZEROS["UR"], ZEROS["P"]


class Cohort:
    """``rows`` are the warps of the wave that take part; ``active`` (n, 32) tells which lanes of them do, before the
    guard; ``mask`` after the guard of the current instruction. Both are None when all lanes take part."""

    __slots__ = ("active", "count", "mask", "rows", "threads", "wave")

    def __init__(self, wave: State, rows: Rows, count: int, active: Array | None) -> None:
        self.wave, self.rows, self.count, self.active = wave, rows, count, active
        self.mask = active
        self.threads = 32 * count if active is None else int(np.count_nonzero(active))

    # -- registers, raw

    def r(self, index: int) -> Array:
        """General register ``index``, (n, 32) uint32: a view or a copy, not to be written to."""
        return self.wave.R[index][self.rows] if index != Z_R else ZERO

    def ur(self, index: int) -> Array:
        """Uniform register ``index``, (n, 1) uint32."""
        return self.wave.UR[index][self.rows] if index != Z_UR else ZERO

    def p(self, index: int) -> Array:
        """Predicate ``index``, (n, 32) bool."""
        return self.wave.P[index][self.rows] if index != Z_P else TRUE

    def up(self, index: int) -> Array:
        """Uniform predicate ``index``, (n, 1) bool."""
        return self.wave.UP[index][self.rows] if index != Z_P else TRUE

    def set_r(self, index: int, value: Array) -> None:
        """Writes a general register in the lanes of ``mask``. ``value``: 32 bits of any kind, (n, 32) or broadcast."""
        if index != Z_R:
            self._put(self.wave.R[index], value.view(np.uint32), self.mask)

    def set_p(self, index: int, value: Array) -> None:
        """Writes a predicate in the lanes of ``mask``."""
        if index != Z_P:
            self._put(self.wave.P[index], value, self.mask)

    def set_ur(self, index: int, value: Array) -> None:
        """Writes a uniform register; of a value (n, 32) that of the first lane in ``mask`` counts. Warps without a lane
        in ``mask`` keep theirs."""
        if index != Z_UR:
            value = np.asarray(value).view(np.uint32)
            self._put(self.wave.UR[index], self._uniform(value), self._some())

    def set_up(self, index: int, value: Array) -> None:
        """Writes a uniform predicate, as ``set_ur``."""
        if index != Z_P:
            self._put(self.wave.UP[index], self._uniform(value), self._some())

    def _put(self, row: Array, value: Array, mask: Array | None) -> None:
        if isinstance(self.rows, slice):
            np.copyto(row[self.rows], value, where=True if mask is None else mask)
        elif mask is None:
            row[self.rows] = value
        else:
            old = row[self.rows]
            np.copyto(old, value, where=mask)
            row[self.rows] = old

    def _some(self) -> Array | None:
        return None if self.mask is None else np.logical_or.reduce(self.mask, axis=1, keepdims=True)

    def _uniform(self, value: Array) -> Array:
        if value.ndim < 2 or value.shape[1] == 1:
            return value
        if self.mask is None:
            return value[:, :1]
        first = self.mask.argmax(axis=1)
        if value.shape[0] == 1:
            return value[0, first][:, None]
        return value[np.arange(self.count), first][:, None]

    # -- who runs

    @property
    def lanes(self) -> Array:
        """``mask`` as an array (n, 32) of bool, also when all lanes take part."""
        if self.mask is None:
            return np.ones((self.count, 32), bool)
        return spread(self.mask, (self.count, 32))

    def full(self, value: Array) -> Array:
        """``value`` broadcast to (n, 32)."""
        return spread(value, (self.count, 32))

    @property
    def warps(self) -> Array:
        """Indices of the warps in the wave, (n,)."""
        return np.arange(self.wave.warps)[self.rows]

    @property
    def blocks(self) -> Array:
        """Index of each warp's block in the wave, (n,): where its shared memory lies."""
        return self.wave.block_of[self.rows]


class Observer:
    """What watches a wave. Each method is told of something, before it is done unless it says otherwise, and does
    nothing here. ``each``: whether it is told of every instruction, which then run one by one."""

    each = False

    def guard(self, k: Cohort, i: Instruction, n: int) -> None:
        """Instruction ``n`` comes up; ``k.mask`` does not heed its guard yet."""

    def operands(self, k: Cohort, i: Instruction, n: int) -> None:
        """Instruction ``n`` will run on the lanes of ``k.mask``."""

    def after(self, k: Cohort, i: Instruction, n: int) -> None:
        """It has run."""

    def access(
        self, k: Cohort, i: Instruction, space: str, addresses: Array, lanes: Array | None, nbytes: int, what: str,
        words: list[Array] | None = None, owners: Array | None = None,
    ) -> None:  # fmt: skip
        """Memory was accessed: "shared", "global" or "local", at ``addresses`` (n, 32) in ``lanes`` (None: all).
        ``what`` is "read", "write" (of ``words``) or "atomic" (``words`` are the lanes in which a
        compare-and-swap was done); ``owners`` (n, 32) are the blocks of the wave whose shared memory it is (None: each
        its own)."""

    def barrier(self, warps: Array, groups: Array, numbers: Array) -> None:
        """Warps have passed a barrier, with instructions ``numbers``; those of one of ``groups`` (a number for each
        block and barrier) did so together."""

    def arrive(self, warps: Array, groups: Array, number: int) -> None:
        """Warps have arrived at a barrier without waiting (BAR.ARV)."""

    def cluster(self, what: str, which: Array) -> None:
        """The barrier of clusters: warps have "arrived", or "passed"; all of a cluster (its number) have "met"."""

    def fence(self, warps: Array, memory: str = "shared") -> None:
        """Warps stand at a fence between the generic proxy and the async one, for "shared" or "global" memory."""

    def membar(self, warps: Array, wide: bool) -> None:
        """Warps stand at a MEMBAR, with the scope of the block or a wider one."""

    def invalidate(self, warps: Array) -> None:
        """Warps forget what their L1 holds (CCTL.IVALL)."""

    def mbarriers(self, i: Instruction, events: Sequence[tuple[int, int, bool, bool]]) -> None:
        """Mbarriers were told something, in this order: (warp, which of all words of 8 bytes, whether the warp arrives,
        whether the phase is then over)."""

    def acquire(self, i: Instruction, warps: Array, cells: Array) -> None:
        """Warps have found a phase over, of one mbarrier each."""

    def tensor_map(self, k: Cohort, i: Instruction, row: int, lane: int, address: int | None) -> None:
        """A warp (``row`` of k) reads a tensor map in global memory; UTMACCTL: it forgets what it knows of the map at
        ``address``, or of all (None)."""

    def dependency(self, warps: Array) -> None:
        """Warps have waited for the launches before this one (ACQBULK)."""

    def began(self, flight: Flight, i: Instruction, touches: Sequence[Touch], proxy: bool) -> None:
        """An asynchronous operation begins, see ``late``."""

    def closed(self, flights: Sequence[tuple[Flight, Which]], warps: Array, board: int, numbers: Array) -> None:
        """Warps close a group, as the setting ``numbers`` (n,) of a scoreboard."""

    def waited(self, board: int, warps: Array, over: Array) -> None:
        """Warps know that the first ``over`` (n,) settings of a scoreboard are done."""

    def expected(self, cell: int, i: Instruction, warp: int, arrives: bool) -> None:
        """An mbarrier will hear of operations of a warp, as an arrival or as bytes."""

    def delivered(self, cell: int, flights: Sequence[tuple[Flight, Which]]) -> None:
        """It has heard of their end: those come first that were ``expected`` first."""

    def phase_over(self, cell: int) -> None:
        """... which ended its phase."""

    def ended(self) -> None:
        """All blocks have ended."""

    def product(self, k: Cohort, i: Instruction) -> None:
        """Warp groups begin a matrix product."""

    def product_over(self, warps: Array, i: Instruction) -> None:
        """It is done in ``warps``."""

    def tell(self, report: Report) -> None:
        """The wave has ended: add to the report what it came to."""


class State:
    """Blocks that run together: their registers, memories and threads. ``index`` (3, blocks) are their places in the
    grid. ``observers`` watch what is done."""

    def __init__(self, image: Code, options: Options, index: Array) -> None:
        self.image, self.memory, self.options = image, image.memory, options
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
        self.P[Z_P] = True
        self.UR = np.zeros((image.arch.files["UR"].count, warps, 1), np.uint32)
        self.UP = np.zeros((8, warps, 1), bool)
        self.UP[Z_P] = True
        self.barriers = np.zeros((BARRIERS, warps, 32), np.uint32)
        self.Rpc = np.zeros((2, warps, 32), np.uint32)  # lower and upper half
        #: lanes that BREAK took out of a barrier while others had it saved: by warp, barrier and mask, see flow.bmov
        self.left: dict[tuple[int, int, int], int] = {}
        self.has = np.full(warps, -(-image.kernel.registers // REGISTERS) * REGISTERS)  # registers that each warp has
        self.pool = np.zeros(blocks, np.int64)  # registers that warps of a block have given up, for each thread of one
        self.alive = exists.copy()
        self.clock = np.zeros((warps, 1), np.int64)
        self.executed = np.zeros(warps, np.int64)
        self.yields = np.zeros((warps, 32), np.int64)  # of each lane since its warp last came to a BSYNC
        self.shared = Shared(blocks, options.shared, track_writes=options.written, cluster=options.together)
        self.rank = (self.block_of % options.together).astype(np.uint32)[:, None]  # of each warp's block in its cluster
        self.meeting = ClusterBarriers(blocks // options.together, warps)
        self.observers: list[Observer] = []
        self.late = Late(warps, self.shared.plane.views[8], self.observers)  # what is under way
        self.pending: Pending | None = None  # blocks of the launch that have not begun
        self.local = Local(warps, image.local_bytes, track_writes=options.written)
        self.splits = Splits(exists)
        self.bars = BlockBarriers(blocks, warps)
        self.turn = 0
        self.alone = True  # whether all that run stand at one place
        self.patience = PATIENCE
        self.moved = False  # a lane left, or a barrier changed: those who wait may go on
        self.scratch: dict[str, Array] = {}
        self.cohort: Cohort | None = None  # at work right now
        self.printed: list[str] = []  # by printf, in its order
        self.instructions = 0  # of warps
        self.lane_instructions = 0

    @functools.cached_property
    def tensor(self) -> TensorMemory:
        """Tensor memory of the blocks."""
        return TensorMemory(self.blocks)

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
        return self.fault_of(i, kind, message, int(self.cohort.warps[row]), lane, address)

    def fault_of(
        self, i: Instruction, kind: str, message: str, warp: int, lane: int, address: int | None = None
    ) -> DeviceError:
        """The same, of a lane of any warp: of what it began earlier."""
        block, thread = self.who(warp, lane)
        return DeviceError(kind, message, self.image.place(i.address // WORD), block, thread, address)
