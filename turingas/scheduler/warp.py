"""How long a block keeps a single warp, with the control codes that it has.

It is walked from its first instruction: stalls pass, and a wait holds the warp until all that has the scoreboard is
done, which takes as long as ``TIMES`` says; a block that is its own loop is walked twice, and the second round counts.
Other warps, which hide most of that time on a GPU, caches and busy pipes are not in it: it tells one order from
another, and no times.
"""

from __future__ import annotations

from collections.abc import Sequence

from turingas.isa.effects import SCOREBOARDS, SOONEST
from turingas.isa.instruction import Instruction
from turingas.isa.latency import STALL_ZERO
from turingas.isa.table import OPS

#: cycles until a scoreboard is released on an H100 where nothing else runs (tests/bench/released_sm90.json, by `python
#: -m tests.bench.released`). Global memory about as Luo et al. measured there (arXiv 2402.13499, latencies of the
#: memory levels: DRAM); for others, which matter little here, a round number
TIMES = {"LDS": 24, "LDSM": 27, "LDC": 26, "S2R": 21, "S2UR": 33, "SHFL": 24, "MUFU": 15, "FENCE": 20}
GLOBAL, OTHER, SOURCES = 480, 25, 12


def walk(instructions: Sequence[Instruction | None], loops: bool) -> tuple[int, int]:
    """Cycles to the end of a block, and until all that it has begun is done. ``loops``: it is its own loop."""
    done = [0] * SCOREBOARDS
    time = start = 0
    for _ in range(2 if loops else 1):
        start = time
        for i in instructions:
            if i is None:
                time += STALL_ZERO
                continue
            waited = [done[board] for board in range(SCOREBOARDS) if i.control.wait >> board & 1]
            time = max([time, *waited])
            for board, takes in ((i.control.write, _time(i)), (i.control.read, SOURCES)):
                if board < SCOREBOARDS:
                    done[board] = max(done[board], time + takes)
            time += i.control.stall or (STALL_ZERO if i.control.yields else SOONEST)
    return time - start, max(time, *done) - start


def took(instructions: Sequence[Instruction | None], loops: bool) -> tuple[float, float]:
    """What one order of a block costs beside another: the time of a round; if it is no loop, first that until all is
    done."""
    time, done = walk(instructions, loops)
    return (time if loops else done), time


def _time(i: Instruction) -> int:
    return TIMES.get(i.base, GLOBAL if OPS[i.base].pipe in ("lsu", "tex", "copy") else OTHER)
