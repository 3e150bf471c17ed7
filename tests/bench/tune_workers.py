"""How long `turingas tune` takes for the same candidates with one process and with several: ``python -m
tests.bench.tune_workers --workers 1 --workers gpus --workers 8``.

The kernel is one of loader/reference, as NVRTC makes it. Each time the same seed makes the same first round, so that
the same candidates are judged; later rounds depend on times. The start of the processes, and what each must do once
(the original's results, its copies of the arguments), is not counted. With two GPUs "gpus" is a process for each.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path

from kernels_sass.bench import tune
from loader.bench.results import commit
from loader.reference.problem import Problem
from loader.tune.judge import Child, Order, evaluate
from loader.tune.search import Search
from loader.validate import layer
from loader.workers import Lost, Workers

SMALL = Problem(1, 4, 5, 6, 3, 3, 3, 1, 1)


def seconds(order: Order, asked: str, count: int) -> tuple[float, int, int]:
    """Seconds for so many candidates, how many were not refused, and how many processes there were."""
    search = Search(order, 1)
    search.round = 2  # moves alone: what the scheduler makes of the whole takes longer
    children = [search._child(number) for number in range(count)]
    warm = Child(order, search.original, (0,), 2.0, True)
    with Workers(asked) as workers:
        for _, found in workers.run(evaluate, [warm] * (2 * workers.count)):
            assert not isinstance(found, Lost), found
        start = time.perf_counter()
        taken = sum(not (isinstance(found, Lost) or found.why) for _, found in workers.run(evaluate, children))
        return time.perf_counter() - start, taken, workers.count


def measure(order: Order, all_asked: Sequence[str], count: int) -> dict[str, dict[str, float]]:
    """What each of ``all_asked`` takes."""
    found = {}
    for asked in all_asked:
        took, taken, processes = seconds(order, asked, count)
        found[asked] = {"processes": processes, "seconds": round(took, 2), "candidates": count, "taken": taken}
        first = found[all_asked[0]]["seconds"]
        print(f"{asked:8} {processes} processes: {took:7.2f} s for {count} candidates, {first / took:.2f}x", flush=True)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kernel", choices=list(tune.NVRTC), default="gemm")
    parser.add_argument("--workers", action="append", help="as of turingas tune; several, which are compared")
    parser.add_argument("--candidates", type=int, default=64)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda", help="cpu: a small layer, and the model")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    on_gpu = asked.device == "cuda"
    problem = layer(tune.LAYER, tune.BATCH) if on_gpu else SMALL
    order = tune.order_of(asked.kernel, problem, None if on_gpu else "sm_90", asked.device)
    found = measure(order, asked.workers or ["1", "gpus"], asked.candidates)
    if asked.json:
        kept = {"kernel": asked.kernel, "device": asked.device, "commit": commit(), "workers": found}
        asked.json.write_text(json.dumps(kept, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
