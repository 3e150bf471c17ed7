"""An instruction on its way through the scheduler."""

from __future__ import annotations

from turingas.isa.instruction import Instruction


class Step:
    """``i``: the instruction, whose own control code does not count. ``wait``: the scoreboards that it waits for, as
    a mask; ``read``, ``write``: those that it sets, or None; ``yields``: whether another warp may go first; ``least``:
    cycles that it stalls at least. The scheduler puts its results in ``stall`` and ``keeps``: places in the word of
    the sources that the reuse cache keeps."""

    def __init__(
        self, i: Instruction, wait: int, read: int | None, write: int | None, yields: bool, least: int = 1
    ) -> None:
        self.i, self.wait, self.read, self.write, self.yields, self.least = i, wait, read, write, yields, least
        self.stall = least
        self.keeps: set[int] = set()
