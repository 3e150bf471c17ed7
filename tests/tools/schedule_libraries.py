"""Throws away the control codes of compiled kernels, makes them anew, and compares: ``python -m
tests.tools.schedule_libraries PATH ...``.

A path is a cubin, a library, a wheel, or a folder of these. For each architecture it draws ``--kernels`` kernels, by a
hash of their names, so that two runs draw the same ones. The linter must find no error and no warning, and the issue
cycles (the stalls of all instructions that can be reached, times 10 for each loop around them) are compared with those
of the codes that were there. ``--order reorder`` and ``--order rename`` let instructions change places, and registers.
"""

from __future__ import annotations

import argparse
import hashlib
import heapq
import json
import math
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from tests.tools.corpus import sources
from turingas.check.lint import lint_graph
from turingas.cubin.cubin import Cubin
from turingas.cubin.model import Code, Kernel
from turingas.errors import AsmError, CubinError
from turingas.flow.graph import Graph
from turingas.isa import control
from turingas.isa.latency import STALL_ZERO
from turingas.scheduler.codes import codes
from turingas.scheduler.given import NOTHING, whole
from turingas.scheduler.order import put
from turingas.scheduler.reorder import reorder

EXAMPLES = 5
REACHED = 10  # times that a loop goes round


def rank(kernel: Kernel) -> bytes:
    """The kernels with the lowest are drawn: a hash of architecture and name."""
    return hashlib.sha256(f"{kernel.arch} {kernel.name}".encode()).digest()


def draw(paths: Iterable[Path], count: int, largest: int, archs: set[str]) -> dict[str, list[Kernel]]:
    """Architecture -> ``count`` kernels of at most ``largest`` instructions."""
    heaps: dict[str, list[tuple[int, int, Kernel]]] = defaultdict(list)
    seen: set[tuple[str, str]] = set()
    number = 0
    with tempfile.TemporaryDirectory() as folder:
        for source in sources(paths, Path(folder)):
            try:
                cubin = Cubin.from_bytes(source.read())
            except (AsmError, CubinError):
                continue
            if archs and cubin.arch not in archs:
                continue
            for kernel in cubin.texts:
                if (kernel.arch, kernel.name) in seen or not 0 < len(kernel.code) <= 16 * largest:
                    continue
                seen.add((kernel.arch, kernel.name))
                number += 1
                item = (-int.from_bytes(rank(kernel)[:8], "big"), number, kernel)
                heap = heaps[kernel.arch]
                if len(heap) < count:
                    heapq.heappush(heap, item)
                else:
                    heapq.heappushpop(heap, item)
    return {arch: [kernel for _, _, kernel in sorted(heap, reverse=True)] for arch, heap in sorted(heaps.items())}


def cycles(graph: Graph, words: Iterable[int]) -> int:
    """Issue cycles of one warp, with loops weighted."""
    depth = [0] * len(graph.instructions)
    for loop in graph.loops:
        for number in loop.blocks:
            block = graph.blocks[number]
            for n in range(block.start, block.end):
                depth[n] = max(depth[n], loop.depth)
    total = 0
    words = list(words)
    for number in graph.reachable:
        block = graph.blocks[number]
        for n in range(block.start, block.end):
            stall = words[n] >> control.STALL & 15
            endless = block.next == [number] and block.end - block.start == 1
            total += 0 if endless else (stall or STALL_ZERO) * REACHED ** depth[n]
    return total


@dataclass
class Totals:
    """Of one architecture. ``ratios``: issue cycles, ours to theirs."""

    kernels: int = 0
    instructions: int = 0
    seconds: float = 0.0
    ratios: list[tuple[float, str]] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    found: Counter[str] = field(default_factory=Counter)
    examples: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, object]:
        logs = [math.log(ratio) for ratio, _ in self.ratios]
        worst = max(self.ratios, default=(0.0, ""))
        return {
            "kernels": self.kernels,
            "instructions": self.instructions,
            "rate": round(self.instructions / self.seconds) if self.seconds else 0,
            "mean": round(math.exp(sum(logs) / len(logs)), 4) if logs else None,
            "worst": round(worst[0], 4),
            "worst_kernel": worst[1],
            "above": sum(ratio > 1.0 for ratio, _ in self.ratios),
            "refused": len(self.refused),
            "findings": dict(self.found),
        }


def look(kernel: Kernel, totals: Totals, order: str = "given") -> None:
    """One kernel. ``order``: "given", "reorder" (instructions change places) or "rename" (and registers)."""
    totals.kernels += 1
    old = kernel.words
    totals.instructions += len(old)
    start = time.process_time()
    graph = Graph(kernel)
    unknown = [n for n, i in enumerate(graph.instructions) if i is None]
    # behind the code lies what is fetched ahead and never runs
    end = max((n + 1 for n, i in enumerate(graph.instructions) if i is None or i.base != "NOP"), default=0)
    fields = [NOTHING] * end + [whole(word) for word in old[end:]]
    if order != "given":
        may = [one == NOTHING for one in fields]
        better = reorder(kernel, may, may if order == "rename" else None)
        kernel = replace(kernel, code=Code(words=better.words), relocations=list(kernel.relocations))
        put(kernel, better.order)
    result = codes(kernel, fields)
    totals.seconds += time.process_time() - start
    if unknown or result.problems:
        totals.refused.append(kernel.name)
        totals.examples += [f"{kernel.arch} {kernel.name}: {result.problems[:1] or unknown[:1]}"]
        return
    made = Graph(replace(kernel, code=Code(words=result.words)))
    ours, theirs = cycles(made, result.words), cycles(made, old)
    totals.ratios.append((ours / theirs, kernel.name))
    known = Counter(f.kind for f in lint_graph(graph) if f.severity != "note")  # not of the codes, then
    for f in lint_graph(made):
        known[f.kind] -= f.severity != "note"
        if f.severity != "note" and known[f.kind] < 0:
            totals.found[f.kind] += 1
            if len(totals.examples) < EXAMPLES:
                totals.examples.append(f"{kernel.arch} {f}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("paths", nargs="+", type=Path)
    parser.add_argument("--kernels", type=int, default=2000, help="of each architecture")
    parser.add_argument("--largest", type=int, default=1 << 20, help="instructions of a kernel")
    parser.add_argument("--arch", action="append", default=[])
    parser.add_argument("--order", choices=["given", "reorder", "rename"], default="given")
    parser.add_argument("--json", type=Path, help="where the figures go")
    options = parser.parse_args()
    found = {}
    for arch, kernels in draw(options.paths, options.kernels, options.largest, set(options.arch)).items():
        totals = Totals()
        for kernel in kernels:
            look(kernel, totals, options.order)
        found[arch] = totals.as_dict()
        print(arch, json.dumps(found[arch]), flush=True)
        for example in totals.examples:
            print("  ", example)
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")
    return int(any(one["refused"] or one["findings"] for one in found.values()))


if __name__ == "__main__":
    raise SystemExit(main())
