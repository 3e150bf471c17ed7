"""When ptxas lets another warp go first: ``python -m tests.tools.mine_yields PATH ...``.

Of kernels that are drawn from cubins, libraries or wheels (as ``schedule_libraries`` draws them; ``--log LOG`` takes
what that has drawn), it tells how often an instruction yields that stalls for so many cycles: of a pipe whose results
come at a fixed time or of another, and before or after the warp has kept the issue slot for 12 cycles, counted from the
begin of its block or from its last yield. And how many instructions do what the scheduler's rule ``ptxas`` says.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from tests.tools.schedule_libraries import draw, remembered
from turingas.cubin.model import Kernel
from turingas.flow.graph import Graph
from turingas.isa.effects import Effects
from turingas.isa.given import MOST_KEPT
from turingas.isa.latency import STALL_ZERO, latencies
from turingas.scheduler.codes import PATIENCE, is_fixed, yield_rule

MOST = 6  # stalls of more cycles are counted together


class Seen(NamedTuple):
    """An instruction that may yield or not. ``kept``: for how many cycles the warp has kept the issue slot."""

    fixed: bool
    stall: int
    kept: int
    yields: bool


def seen(kernel: Kernel) -> Iterator[Seen]:
    """All of a kernel."""
    graph, lat = Graph(kernel), latencies(kernel.arch)
    for block in graph.blocks:
        kept = 0
        for i in graph.instructions[block.start : block.end]:
            if i is None:
                continue
            stall, yields = i.control.stall, bool(i.control.yields)
            kept += stall or STALL_ZERO
            if 1 <= stall <= MOST_KEPT:
                yield Seen(is_fixed(Effects(i, lat)), stall, kept, yields)
            kept = 0 if yields else kept


def told(kernels: Iterable[Kernel]) -> tuple[dict[tuple[bool, bool, int], tuple[int, int]], int, int]:
    """By what is told: how many there are, and how many yield; how many instructions there are, and how many do what
    the rule says."""
    rule = yield_rule("ptxas")
    rows: dict[tuple[bool, bool, int], list[int]] = defaultdict(lambda: [0, 0])
    count = right = 0
    for kernel in kernels:
        for one in seen(kernel):
            row = rows[one.fixed, one.kept >= PATIENCE, min(one.stall, MOST)]
            row[0], row[1] = row[0] + 1, row[1] + one.yields
            count, right = count + 1, right + (rule(0, one.fixed, one.stall, one.kept) == one.yields)
    return {key: (row[0], row[1]) for key, row in sorted(rows.items())}, count, right


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("paths", nargs="*", type=Path)
    parser.add_argument("--kernels", type=int, default=60, help="of each architecture")
    parser.add_argument("--largest", type=int, default=20000, help="instructions of a kernel")
    parser.add_argument("--arch", action="append", default=[])
    parser.add_argument("--log", type=Path, help="of schedule_libraries: what it has drawn is taken")
    asked = parser.parse_args()
    drawn = remembered(asked.log) or draw(asked.paths, asked.kernels, asked.largest, set(asked.arch))
    total = fits = 0
    for arch, kernels in drawn.items():
        if asked.arch and arch not in asked.arch:
            continue
        some = [kernel for kernel in kernels if len(kernel.words) <= asked.largest][: asked.kernels]
        rows, count, right = told(some)
        total, fits = total + count, fits + right
        print(f"{arch}: {right / max(count, 1):.1%} of {count:,} instructions of {len(some)} kernels")
        for (fixed, late, stall), (there, yields) in rows.items():
            what = f"{'fixed' if fixed else 'other':5} {'after' if late else 'before'} {PATIENCE} cycles, stall {stall}"
            print(f"    {what}{'+' if stall == MOST else ' '} {there:9,} {yields / there:7.1%}")
    print(f"all: {fits / max(total, 1):.1%} of {total:,}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
