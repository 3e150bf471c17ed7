"""Which blocks of a launch have not begun, and where they lie in the grid."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np

from turingas.emulate.arrays import Array
from turingas.emulate.report import Options


class Pending:
    """Blocks 0 to ``total`` - 1 of a launch, in their order. ``each`` of them, a multiple of the cluster, begin
    together. For several threads."""

    def __init__(self, options: Options, total: int, each: int) -> None:
        self.options, self.total, self.each = options, total, each
        self.next = 0
        self.cancelled = 0
        self.lock = threading.Lock()

    def begin(self) -> tuple[int, int] | None:
        """The first block of those that begin now, and how many; None where all have begun."""
        with self.lock:
            first, self.next = self.next, min(self.total, self.next + self.each)
            return (first, self.next - first) if first < self.next else None

    def cancel(self) -> Array | None:
        """Cancels the next cluster: where its first block lies in the grid, (3,). None where all have begun."""
        with self.lock:
            first, together = self.next, self.options.together
            if first >= self.total:
                return None
            self.next += together
            self.cancelled += together
        return places(self.options, np.array([first]))[:, 0]


def places(options: Options, numbers: Array) -> Array:
    """Where blocks lie in the grid, (3, n), in the order in which they run: cluster after cluster."""
    cluster = options.cluster or (1, 1, 1)
    outer = _unravel(numbers // options.together, [g // c for g, c in zip(options.grid, cluster)])
    return outer * np.array(cluster)[:, None] + _unravel(numbers % options.together, cluster)


def _unravel(numbers: Array, sizes: Sequence[int]) -> Array:
    x, y, _ = sizes
    return np.stack([numbers % x, numbers // x % y, numbers // (x * y)])
