"""What a kernel costs without a GPU, by a simple model: one warp that issues in order.

Each block is walked from its first instruction: stalls pass, and a wait holds the warp until what it waits for is
done, which takes as long as ``TIMES`` says; a block that is its own loop is walked twice, and the second round counts.
That is taken as often as warps ran the block on the CPU device. Other warps, which hide most of that time on a GPU,
caches and busy pipes are not in it: it tells one order from another, and no times.
"""

from __future__ import annotations

from collections.abc import Sequence

from turingas.cubin.model import Kernel
from turingas.flow.graph import Block, Graph
from turingas.isa.effects import SCOREBOARDS, SOONEST
from turingas.isa.instruction import Instruction
from turingas.isa.latency import STALL_ZERO
from turingas.isa.table import OPS

#: cycles until a scoreboard is released on an H100 where nothing else runs (tests/bench/released_sm90.json, by `python
#: -m tests.bench.released`). Global memory about as Luo et al. measured there (arXiv 2402.13499, latencies of the
#: memory levels: DRAM); for others, which matter little here, a round number
TIMES = {"LDS": 24, "LDSM": 27, "LDC": 26, "S2R": 21, "S2UR": 33, "SHFL": 24, "MUFU": 15, "FENCE": 20}
GLOBAL, OTHER, SOURCES = 480, 25, 12


def cycles(kernel: Kernel, runs: Sequence[int]) -> float:
    """Cycles of all warps. ``runs``: how often a warp ran each instruction (``Counters.warps``)."""
    graph = Graph(kernel)
    return float(sum(runs[block.start] * _block(graph, block, number) for number, block in enumerate(graph.blocks)))


def _block(graph: Graph, block: Block, number: int) -> int:
    done = [0] * SCOREBOARDS
    time = start = 0
    for _ in range(2 if number in block.next else 1):
        start = time
        for i in graph.instructions[block.start : block.end]:
            if i is None:
                time += STALL_ZERO
                continue
            waited = [done[board] for board in range(SCOREBOARDS) if i.control.wait >> board & 1]
            time = max([time, *waited])
            for board, takes in ((i.control.write, _time(i)), (i.control.read, SOURCES)):
                if board < SCOREBOARDS:
                    done[board] = max(done[board], time + takes)
            time += i.control.stall or (STALL_ZERO if i.control.yields else SOONEST)
    return time - start


def _time(i: Instruction) -> int:
    return TIMES.get(i.base, GLOBAL if OPS[i.base].pipe in ("lsu", "tex", "copy") else OTHER)
