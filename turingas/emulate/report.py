"""What a launch is given, and what it comes to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from turingas.cubin.model import Kernel
from turingas.emulate.counters import Counters
from turingas.launch import Three

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
    races: bool = False
    strict: bool = False
    stale: bool = False
    written: bool = False
    workers: int = 0
    lanes: int = LANES


@dataclass
class Report:
    """What a launch came to. ``counters`` is None unless asked for; ``races`` (pairs of accesses that nothing orders)
    and ``hazards`` (what the scoreboard mode found) are empty when there was nothing, or nobody asked."""

    kernel: Kernel = field(repr=False)
    seconds: float = 0.0
    instructions: int = 0  # of warps
    lane_instructions: int = 0
    counters: Counters | None = field(default=None, repr=False)
    races: list[Any] = field(default_factory=list)
    hazards: list[Any] = field(default_factory=list)
