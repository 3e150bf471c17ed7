"""Tensor memory (sm_100): 128 lanes of 512 columns of 32 bits for each block, and who has taken which columns.

An address has the lane in its upper half and the column in its lower one. The hardware keeps a bit for each 32 columns
of an SM; here each block has an SM of its own. ptxas makes of tcgen05.alloc and dealloc code around UTCATOMSWS that
finds free bits, sets and clears them, and besides notes them in the shared memory that is the system's.
"""

from __future__ import annotations

import numpy as np

from turingas.emulate.arrays import Array
from turingas.emulate.late import Flight
from turingas.emulate.memory import BadAccess

LANES, COLUMNS, UNIT = 128, 512, 32
UNITS = COLUMNS // UNIT


class TensorMemory:
    """That of all blocks of a wave: ``words`` (blocks, lanes, columns) uint32; ``taken`` (blocks,), a bit for each 32
    columns."""

    def __init__(self, blocks: int) -> None:
        self.words = np.zeros((blocks, LANES, COLUMNS), np.uint32)
        self.taken = np.zeros(blocks, np.int64)
        self.under_way: list[Flight] = []  # products and copies, in their order
        self.coming: Array | None = None  # with --stale: how many of what is under way write each word

    def numbers(self, blocks: Array, lanes: Array, columns: Array) -> Array | None:
        """The words at lanes and columns, arrays that broadcast, counted from the first one of the first block; None
        if one is not there."""
        if (lanes < 0).any() or (lanes >= LANES).any() or (columns < 0).any() or (columns >= COLUMNS).any():
            return None
        return np.asarray((blocks * LANES + lanes) * COLUMNS + columns)

    def mark(self, number: Array, change: int) -> None:
        """With --stale: something that writes the words ``number`` begins (1) or is over (-1)."""
        if self.coming is None:
            self.coming = np.zeros(self.words.size, np.int16)
        np.add.at(self.coming, number.reshape(-1), change)

    def load(self, blocks: Array, lanes: Array, columns: Array) -> Array:
        """Words, as they are; all bits 1 in those that are marked."""
        found: Array = self.words[blocks, lanes, columns]
        if self.coming is None:
            return found
        coming = self.coming[(blocks * LANES + lanes) * COLUMNS + columns]
        return np.where(coming > 0, np.uint32(0xFFFFFFFF), found)

    def find_and_set(self, blocks: Array, count: int, aligned: bool) -> int | None:
        """Takes ``count`` free bits that follow each other in all of ``blocks``, at a multiple of their number if
        ``aligned``; returns the first, or None where there is no room."""
        taken = int(np.bitwise_or.reduce(self.taken[blocks]))
        step = 1 << max(0, count - 1).bit_length() if aligned else 1
        for first in range(0, UNITS - count + 1, step):
            bits = (1 << count) - 1 << first
            if not taken & bits:
                self.taken[blocks] |= bits
                return first
        return None

    def check(self, blocks: Array, lanes: Array, columns: Array) -> None:
        """Raises BadAccess where lanes or columns, arrays that broadcast with ``blocks``, are not there or not taken.
        Its index is that of the first bad one among all of them broadcast."""
        outside = (lanes < 0) | (lanes >= LANES) | (columns < 0) | (columns >= COLUMNS)
        bit = self.taken[blocks] >> np.clip(columns, 0, COLUMNS - 1) // UNIT & 1
        bad = outside | (bit == 0)
        if bad.any():
            index = int(np.argmax(bad))
            lane, column = (int(np.broadcast_to(a, bad.shape).flat[index]) for a in (lanes, columns))
            what = f"lane {lane}, column {column} of tensor memory"
            if np.broadcast_to(outside, bad.shape).flat[index]:
                why = f"there are {LANES} lanes and {COLUMNS} columns"
            else:
                why = "nobody has taken it (tcgen05.alloc takes columns, in steps of 32)"
            raise BadAccess("tensor memory", f"{what}: {why}", index, lane << 16 | column)
