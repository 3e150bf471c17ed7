"""A cohort: warps of any blocks that stand at one instruction, and run it as one numpy operation.

Everything has the shape (n, 32): n warps (rows) of 32 lanes. Uniform registers have the shape (n, 1), so that they
broadcast against the others, and one function serves IADD3 and UIADD3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from turingas.isa.instruction import ZEROS

if TYPE_CHECKING:
    from turingas.emulate.machine import Wave

Array = NDArray[Any]
Rows = slice | NDArray[np.intp]

LANES = np.arange(32, dtype=np.uint32)
Z_R, Z_UR, Z_P = ZEROS["R"], ZEROS["UR"], ZEROS["P"]
ZERO = np.zeros((1, 1), np.uint32)
TRUE = np.ones((1, 1), bool)


class Cohort:
    """``rows`` are the warps of the wave that take part; ``active`` (n, 32) tells which lanes of them do, before the
    guard; ``mask`` after the guard of the current instruction. Both are None when all lanes take part."""

    __slots__ = ("active", "count", "mask", "rows", "threads", "wave")

    def __init__(self, wave: Wave, rows: Rows, count: int, active: Array | None) -> None:
        self.wave, self.rows, self.count, self.active = wave, rows, count, active
        self.mask = active
        self.threads = 32 * count if active is None else int(active.sum())

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
        return np.broadcast_to(self.mask, (self.count, 32))

    def full(self, value: Array) -> Array:
        """``value`` broadcast to (n, 32)."""
        return np.broadcast_to(value, (self.count, 32))

    @property
    def warps(self) -> Array:
        """Indices of the warps in the wave, (n,)."""
        return np.arange(self.wave.warps)[self.rows]

    @property
    def blocks(self) -> Array:
        """Index of each warp's block in the wave, (n,): where its shared memory lies."""
        return self.wave.block_of[self.rows]
