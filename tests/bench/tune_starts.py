"""What `turingas tune` tries first, without a GPU: ``python -m tests.bench.tune_starts CUBIN [--kernel NAME]``.

Of each start the stalls and the cycles of the model of a single warp (turingas/scheduler/warp.py), loops weighted by
10, as parts of the original's, and what the linter says. With the figures that a search on a GPU has noted beside them
(``--search FILE``: what `turingas bench tune --keep` keeps), that shows what the model is worth.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from loader.bench import results
from loader.tune.judge import STARTS, STRICT, Judge, Order, Refused, Words
from loader.tune.model import cycles
from tests.tools.schedule_libraries import REACHED
from tests.tools.schedule_libraries import cycles as stalls
from turingas.cubin.cubin import Cubin
from turingas.cubin.split import without_capsule
from turingas.flow.graph import Graph
from turingas.launch import find

NOTHING = "arguments = []\ngrid = 1\nblock = 32\n"  # it is not launched


def weights(graph: Graph) -> list[int]:
    """How often each instruction runs, if each loop goes round ten times."""
    depth = [0] * len(graph.instructions)
    for loop in graph.loops:
        for number in loop.blocks:
            for n in range(graph.blocks[number].start, graph.blocks[number].end):
                depth[n] = max(depth[n], loop.depth)
    return [REACHED**one for one in depth]


def rows(cubin: Cubin, kernel: str) -> Iterator[tuple[str, float, float, str]]:
    """Start, stalls, cycles of the model, and what it was refused for."""
    one = Judge(Order(without_capsule(cubin), kernel, NOTHING, "nothing", "cpu"))
    runs = weights(Graph(one.kernel))

    def measured(words: Words) -> tuple[float, float]:
        made = one.made(words).kernel(kernel)
        return stalls(Graph(made), words), cycles(made, runs)

    own = measured(tuple(one.kernel.words))
    for start in STARTS:
        if start == STRICT:
            continue
        why = ""
        try:
            words, _ = one.started(start)
        except Refused as refused:
            yield start, 1.0, 1.0, str(refused)
            continue
        try:
            one.lint(words)
        except Refused as refused:
            why = str(refused)
        now = measured(words)
        yield start, now[0] / own[0], now[1] / own[1], why


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cubin", type=Path)
    parser.add_argument("--kernel")
    parser.add_argument("--search", type=Path)
    parser.add_argument("--json", type=Path, help="a file in which this kernel's figures take their place")
    asked = parser.parse_args()
    cubin = Cubin.from_file(asked.cubin)
    kernel = find(cubin, asked.kernel).name
    noted: dict[str, Any] = json.loads(asked.search.read_text())["starts"] if asked.search else {}
    print(f"{'':66} stalls  model" + ("    GPU" if noted else ""))
    made: dict[str, Any] = {}
    for start, issue, model, why in rows(cubin, kernel):
        made[start] = {"stalls": round(issue, 4), "model": round(model, 4), "gpu": noted.get(start, ""), "refused": why}
        print(f"{start:66} {issue:6.3f} {model:6.3f} {noted.get(start, ''):>6} {why}".rstrip(), flush=True)
    if asked.json:
        known = json.loads(asked.json.read_text()) if asked.json.exists() else {}
        asked.json.write_text(results.text({**known, kernel: made}))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
