"""The parts of warps: which threads have stayed together, where they stand, and what they wait for."""

from __future__ import annotations

import numpy as np

from turingas.emulate.arrays import Array, spread

BARRIERS = 16  # convergence barriers of a warp, and barriers of a block
GROUP = 4  # warps of a warp group
GSB0 = 16  # the scoreboard of its products, beside those of each warp
STORED = 17  # that of a warp's stores to tensor memory, which a fence waits for
LOADED = 18  # from here on: those that its loads of tensor memory set, each beside the scoreboard of that number
RUNNING, AT_BSYNC, AT_WARPSYNC, AT_BAR, AT_CLUSTER, AT_GROUP = range(6)


class Splits:
    """The parts of all warps of a wave, a row each: parallel arrays."""

    def __init__(self, masks: Array) -> None:
        count = len(masks)
        self.warp = np.arange(count, dtype=np.intp)
        self.pc = np.zeros(count, np.int64)
        self.mask: Array = masks  # (s, 32) bool
        self.state = np.zeros(count, np.int8)
        self.key = np.zeros(count, np.int64)  # number of the barrier that it waits at
        self.need = np.zeros(count, np.int64)  # lanes (WARPSYNC) or threads (BAR) that it waits for
        self.last = np.zeros(count, np.int64)  # the turn when it last ran

    def add(self, warp: Array, pc: Array, mask: Array, turn: int) -> None:
        """New running splits."""
        count = len(warp)
        self.warp = np.concatenate([self.warp, warp])
        self.pc = np.concatenate([self.pc, spread(pc, (count,))])
        self.mask = np.concatenate([self.mask, mask])
        self.state = np.concatenate([self.state, np.zeros(count, np.int8)])
        self.key = np.concatenate([self.key, np.zeros(count, np.int64)])
        self.need = np.concatenate([self.need, np.zeros(count, np.int64)])
        self.last = np.concatenate([self.last, np.full(count, turn)])

    def keep(self, which: Array) -> None:
        """Drop the others."""
        for name in ("warp", "pc", "mask", "state", "key", "need", "last"):
            setattr(self, name, getattr(self, name)[which])

    def __len__(self) -> int:
        return len(self.warp)


class BlockBarriers:
    """The sixteen barriers of each block: threads that arrived without waiting, and what BAR.RED counts."""

    def __init__(self, blocks: int, warps: int) -> None:
        self.arrived = np.zeros(blocks * BARRIERS, np.int64)  # by BAR.ARV
        self.true = np.zeros(blocks * BARRIERS, np.int64)
        self.total = np.zeros(blocks * BARRIERS, np.int64)
        #: of the last BAR.RED that each warp came through: threads whose predicate held, and all of them
        self.result = np.zeros((2, warps, 1), np.int64)
        self.kind = np.zeros((warps, 1), np.int8)  # 0 POPC, 1 AND, 2 OR


class ClusterBarriers:
    """The barrier of each cluster: its phase, and of each thread in which phase it arrived, and whether it has to wait
    yet."""

    def __init__(self, clusters: int, warps: int) -> None:
        self.phase = np.zeros(clusters, np.int64)
        self.arrived = np.zeros((warps, 32), bool)  # in this phase
        self.since = np.zeros((warps, 32), np.int64)
        self.pending = np.zeros((warps, 32), bool)


def any_lane(lanes: Array) -> Array:
    """Lanes (n, 32) bool -> (n,): which rows have one."""
    found: Array = np.logical_or.reduce(lanes, axis=1)
    return found


def bits_of(lanes: Array) -> Array:
    """Lanes (n, 32) bool -> masks (n,) uint32, lane 0 in bit 0."""
    packed: Array = np.packbits(lanes, axis=1, bitorder="little").view("<u4")[:, 0]
    return packed
