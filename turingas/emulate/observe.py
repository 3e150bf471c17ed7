"""Counts while a kernel runs."""

from __future__ import annotations

from turingas.emulate.arrays import Array
from turingas.emulate.cohort import Cohort, Observer
from turingas.emulate.counters import Counters
from turingas.emulate.report import Report
from turingas.isa.instruction import Instruction


class Counting(Observer):
    """Fills the counters of one wave."""

    each = True

    def __init__(self, size: int, traffic: bool) -> None:
        self.counters = Counters(size, traffic)

    def operands(self, k: Cohort, i: Instruction, n: int) -> None:
        counters = self.counters
        counters.warps[n] += k.count
        counters.lanes[n] += k.threads if k.mask is k.active else 32 * k.count if k.mask is None else int(k.mask.sum())

    def access(
        self, k: Cohort, i: Instruction, space: str, addresses: Array, lanes: Array | None, nbytes: int, what: str,
        words: list[Array] | None = None, owners: Array | None = None,
    ) -> None:  # fmt: skip
        if owners is not None:  # what lies in another block is not counted
            lanes = (k.lanes if lanes is None else lanes) & (owners == k.blocks[:, None])
        if self.counters.traffic:
            self.counters.memory(i, space, addresses, lanes, nbytes)

    def tell(self, report: Report) -> None:
        assert report.counters is not None
        report.counters.add(self.counters)
