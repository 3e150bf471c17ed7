"""What a run counts for each instruction of a kernel."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

import numpy as np

from turingas import memory_model
from turingas.emulate.arrays import Array
from turingas.isa.instruction import Instruction

WORD = 16


@dataclass(repr=False)
class Counters:
    """Arrays with a number for each instruction (its address / 16).

    ``warps``: how often a warp ran it; ``lanes``: lanes that took part, after the guard; ``requests``: warps that
    accessed memory with at least one lane; ``wavefronts``: passes that shared memory needed for them, ``ideal`` the
    fewest that the same bytes could take, so that ``wavefronts - ideal`` are its bank conflicts; ``sectors``: 32-byte
    pieces of global memory that the requests touched. ``traffic`` False leaves the memory's out.
    """

    size: int
    traffic: bool = True
    warps: Array = field(init=False)
    lanes: Array = field(init=False)
    requests: Array = field(init=False)
    wavefronts: Array = field(init=False)
    ideal: Array = field(init=False)
    sectors: Array = field(init=False)

    def __post_init__(self) -> None:
        for name in NUMBERS:
            setattr(self, name, np.zeros(self.size, np.int64))

    def __repr__(self) -> str:
        ran = int(np.count_nonzero(self.warps))
        return f"<Counters of {self.size} instructions: {ran} ran, {int(self.warps.sum()):,} warp instructions>"

    def memory(self, i: Instruction, space: str, addresses: Array, mask: Array | None, nbytes: int) -> None:
        """An access of ``nbytes`` a lane at ``addresses`` (n, 32) in "shared" or "global" memory."""
        n = i.address // WORD
        lanes = np.ones(addresses.shape, bool) if mask is None else mask
        self.requests[n] += int(lanes.any(axis=1).sum())
        if space == "shared":
            apart = "atomic" in i.op.traits and "POPC" not in i.mods  # POPC.INC adds up lanes with the same word
            load = {"load", "lanewise"} <= i.op.traits
            needed, fewest = memory_model.wavefronts(addresses, lanes, nbytes, load, apart)
            if apart and ("CAS" in i.mods or "CAST" in i.mods):  # two operands (measured: ncu on an H200)
                needed, fewest = 2 * needed, 2 * fewest
            self.wavefronts[n] += int(needed.sum())
            self.ideal[n] += int(fewest.sum())
        elif space == "global":
            self.sectors[n] += int(memory_model.sectors(addresses, lanes, nbytes).sum())

    def add(self, other: Counters) -> None:
        """Counts of another part of the same run."""
        for name in NUMBERS:
            getattr(self, name)[:] += getattr(other, name)


NUMBERS = [f.name for f in fields(Counters) if not f.init]
