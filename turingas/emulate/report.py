"""What a launch is given, and what it comes to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from turingas.api import decode
from turingas.cubin.model import Kernel
from turingas.emulate.counters import Counters
from turingas.launch import Three
from turingas.notebook import table

STACK = 1024  # bytes of local memory a thread beyond the kernel's own frame, as cudaLimitStackSize has it at first
BUDGET = 1_000_000  # instructions of a warp
LANES = 32768  # of a wave: enough that numpy is busy for longer than two threads take to hand over the interpreter lock


@dataclass(frozen=True)
class Options:
    """One launch. ``shared`` is all of a block's shared memory in bytes; see ``Device.launch`` for the others."""

    grid: Three
    block: Three
    shared: int
    budget: int = BUDGET
    stack: int = STACK
    counters: bool = False
    traffic: bool = True
    races: bool | str = False
    strict: bool = False
    stale: bool = False
    written: bool = False
    workers: int = 0
    lanes: int = LANES
    cluster: Three | None = None
    cooperative: bool = False
    early: bool = False

    @property
    def together(self) -> int:
        """Blocks of a cluster, which run together; 1 where there are none."""
        x, y, z = self.cluster or (1, 1, 1)
        return x * y * z


@dataclass(repr=False)
class Report:
    """What a launch came to. ``counters`` is None unless asked for; ``races`` (pairs of accesses that nothing orders)
    and ``hazards`` (what the scoreboard mode found) are empty when there was nothing, or nobody asked. ``printed``:
    what the kernel printed."""

    kernel: Kernel
    seconds: float = 0.0
    instructions: int = 0  # of warps
    lane_instructions: int = 0
    counters: Counters | None = None
    races: list[Any] = field(default_factory=list)
    hazards: list[Any] = field(default_factory=list)
    printed: str = ""

    def __repr__(self) -> str:
        found = "".join(f", {len(some)} {what}" for what in ("races", "hazards") if (some := getattr(self, what)))
        return f"<Report {self.kernel.name}: {self.instructions:,} warp instructions, {self.seconds:.3g} s{found}>"

    def _repr_html_(self) -> str:
        """For notebooks: what ran, and with counters each instruction that did."""
        titles = ["warp instructions", "lane instructions", "seconds", "races", "hazards"]
        numbers = [f"{self.instructions:,}", f"{self.lane_instructions:,}", f"{self.seconds:.3g}"]
        found = [table(self.kernel.name, titles, [[*numbers, len(self.races), len(self.hazards)]])]
        if self.hazards or self.races:
            found.append(table("found", ["what"], [[one] for one in [*self.hazards, *self.races]]))
        if (counters := self.counters) is not None:
            texts = decode(self.kernel.words, self.kernel.arch, control=False)
            rows = [
                (f"{16 * n:#06x}", int(warps), f"{counters.lanes[n] / warps:.1f}", int(counters.wavefronts[n]),
                 int(counters.wavefronts[n] - counters.ideal[n]), int(counters.sectors[n]), texts[n])
                for n, warps in enumerate(counters.warps) if warps
            ]  # fmt: skip
            titles = ["address", "warps", "lanes", "wavefronts", "conflicts", "sectors", "instruction"]
            found.append(table("counters", titles, rows))
        return "".join(found)
