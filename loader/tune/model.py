"""What a kernel costs without a GPU, by a simple model: one warp that issues in order.

Each block takes what turingas/scheduler/warp.py says, as often as warps ran it on the CPU device.
"""

from __future__ import annotations

from collections.abc import Sequence

from turingas.cubin.model import Kernel
from turingas.flow.graph import Graph
from turingas.scheduler.warp import walk


def cycles(kernel: Kernel, runs: Sequence[int]) -> float:
    """Cycles of all warps. ``runs``: how often a warp ran each instruction (``Counters.warps``)."""
    graph = Graph(kernel)
    return float(sum(runs[block.start] * walk(graph.instructions[block.start : block.end], number in block.next)[0]
                     for number, block in enumerate(graph.blocks)))  # fmt: skip
