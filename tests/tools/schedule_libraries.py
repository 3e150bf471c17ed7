"""Throws away the control codes of compiled kernels, makes them anew, and compares: ``python -m
tests.tools.schedule_libraries PATH ...``.

A path is a cubin, a library, a wheel, or a folder of these. For each architecture it draws ``--kernels`` kernels, by a
hash of their names, so that two runs draw the same ones; ``--seed TEXT`` draws others. The linter must find no error
and no warning, and the issue cycles (the stalls of all instructions that can be reached, times 10 for each loop around
them) are compared with those of the codes that were there. ``--order reorder`` and ``--order rename`` let instructions
change places, and registers. ``--having MATCH`` draws among kernels that have such an instruction: those whose codes a
change of its rules may change.

That takes hours. With ``--log FILE`` what has been seen of each kernel is noted there, and the drawn kernels beside it,
small ones come first, and whoever is interrupted goes on where he was; ``--minutes`` stops by itself. Each kernel is
noted with the commit that it was scheduled with, and ``--json`` says how many were with each.
"""

from __future__ import annotations

import argparse
import datetime
import gc
import hashlib
import heapq
import json
import math
import pickle
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from loader.bench import results
from tests.tools.corpus import sources
from turingas.check.lint import lint_graph
from turingas.cubin.cubin import Cubin
from turingas.cubin.model import Code, Kernel
from turingas.errors import AsmError, CubinError
from turingas.flow.graph import Graph
from turingas.isa import control
from turingas.isa.given import NOTHING, whole
from turingas.isa.isa import instruction_set
from turingas.isa.latency import STALL_ZERO
from turingas.scheduler.codes import codes
from turingas.scheduler.order import put
from turingas.scheduler.reorder import reorder

EXAMPLES = 5
REACHED = 10  # times that a loop goes round


def rank(kernel: Kernel, seed: str = "") -> bytes:
    """The kernels with the lowest are drawn: a hash of architecture and name, another one for each ``seed``."""
    return hashlib.sha256(f"{seed}{kernel.arch} {kernel.name}".encode()).digest()


def draw(
    paths: Iterable[Path], count: int, largest: int, archs: set[str], seed: str = "", having: str = ""
) -> dict[str, list[Kernel]]:
    """Architecture -> ``count`` kernels of at most ``largest`` instructions, which have one named ``having``."""
    heaps: dict[str, list[tuple[int, int, bytes]]] = defaultdict(list)  # pickled: the rest of the file may go
    seen: set[tuple[str, str]] = set()
    number = 0
    with tempfile.TemporaryDirectory() as folder:
        for source in sources(paths, Path(folder)):
            if not source.may_be(archs):
                continue
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
                if having and not has(kernel, having):
                    continue
                number += 1
                key, heap = -int.from_bytes(rank(kernel, seed)[:8], "big"), heaps[kernel.arch]
                if len(heap) < count:
                    heapq.heappush(heap, (key, number, pickle.dumps(kernel)))
                elif key > heap[0][0]:
                    heapq.heapreplace(heap, (key, number, pickle.dumps(kernel)))
    drawn = {arch: sorted(heap, reverse=True) for arch, heap in sorted(heaps.items())}
    return {arch: [pickle.loads(one) for _, _, one in heap] for arch, heap in drawn.items()}


def has(kernel: Kernel, name: str) -> bool:
    """Whether a kernel has an instruction of a name."""
    opcodes = instruction_set(kernel.arch).opcodes(name)
    return any(word & 0xFFF in opcodes for word in kernel.words)


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
class Seen:
    """What became of a kernel. ``ratio``: issue cycles, ours to theirs; ``refused``: why; ``found``: findings of the
    linter that codes made anew brought, by their kinds, and ``example``, one of them. ``commit``: of the scheduler."""

    arch: str
    name: str
    instructions: int
    seconds: float = 0.0
    ratio: float = 0.0
    refused: str = ""
    found: dict[str, int] = field(default_factory=dict)
    example: str = ""
    commit: str = ""


def totals(rows: list[Seen], drawn: int) -> dict[str, object]:
    """The figures of one architecture, of which ``drawn`` kernels were drawn."""
    ratios = [(row.ratio, row.name) for row in rows if row.ratio]
    worst = max(ratios, default=(0.0, ""))
    instructions, seconds = sum(row.instructions for row in rows), sum(row.seconds for row in rows)
    findings: Counter[str] = Counter()
    for row in rows:
        findings.update(row.found)
    return {
        "drawn": drawn,
        "kernels": len(rows),
        "instructions": instructions,
        "largest": max((row.instructions for row in rows), default=0),
        "rate": round(instructions / seconds) if seconds else 0,
        "mean": round(math.exp(sum(math.log(ratio) for ratio, _ in ratios) / len(ratios)), 4) if ratios else None,
        "worst": round(worst[0], 4),
        "worst_kernel": worst[1],
        "above": sum(ratio > 1.0 for ratio, _ in ratios),
        "refused": sum(bool(row.refused) for row in rows),
        "findings": dict(findings),
    }


def told(found: dict[str, dict[str, object]], rows: Iterable[Seen], asked: dict[str, object]) -> dict[str, object]:
    """What is kept: which options, when, how many kernels with which commits, and the figures of each architecture."""
    commits = Counter(row.commit for row in rows)
    date = datetime.date.today().isoformat()
    return {"asked": asked, "date": date, "commits": dict(commits.most_common()), "archs": found}


def look(kernel: Kernel, order: str = "given") -> Seen:
    """One kernel. ``order``: "given", "reorder" (instructions change places) or "rename" (and registers)."""
    old = kernel.words
    seen = Seen(kernel.arch, kernel.name, len(old))
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
    seen.seconds = round(time.process_time() - start, 3)
    if unknown or result.problems:
        seen.refused = str(result.problems[:1] or unknown[:1])
        return seen
    made = Graph(replace(kernel, code=Code(words=result.words)))
    seen.ratio = cycles(made, result.words) / cycles(made, old)
    wrong = [f for f in lint_graph(made) if f.severity != "note"]
    if wrong:
        known = Counter(f.kind for f in lint_graph(graph) if f.severity != "note")  # not of the codes, then
        for f in wrong:
            known[f.kind] -= 1
            if known[f.kind] < 0:
                seen.found[f.kind] = seen.found.get(f.kind, 0) + 1
                seen.example = seen.example or str(f)
    return seen


def beside(log: Path) -> Path:
    """Where the drawn kernels lie."""
    return log.with_suffix(".drawn")


def remembered(log: Path | None) -> dict[str, list[Kernel]] | None:
    """The kernels that were drawn for a log before."""
    if log is None or not beside(log).exists():
        return None
    drawn: dict[str, list[Kernel]] = pickle.loads(beside(log).read_bytes())
    return drawn


def noted(log: Path | None) -> dict[tuple[str, str], Seen]:
    """What a log knows already. A last line that was not finished does not count."""
    if log is None or not log.exists():
        return {}
    text = log.read_text()
    log.write_text(text[: text.rfind("\n") + 1])
    rows = [Seen(**json.loads(line)) for line in log.read_text().splitlines()]
    return {(row.arch, row.name): row for row in rows}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("paths", nargs="+", type=Path)
    parser.add_argument("--kernels", type=int, default=2000, help="of each architecture")
    parser.add_argument("--largest", type=int, default=1 << 20, help="instructions of a kernel")
    parser.add_argument("--at-least", type=int, default=0, help="instructions: smaller ones are drawn, and left out")
    parser.add_argument("--arch", action="append", default=[])
    parser.add_argument("--seed", default="", help="another one draws other kernels")
    parser.add_argument("--having", default="", metavar="NAME", help="kernels that have this instruction alone")
    parser.add_argument("--order", choices=["given", "reorder", "rename"], default="given")
    parser.add_argument("--json", type=Path, help="where the figures go")
    parser.add_argument("--log", type=Path, help="what is known of each kernel: made, or gone on with")
    parser.add_argument("--minutes", type=float, default=math.inf, help="stop after so long")
    options = parser.parse_args()
    commit = results.commit()
    until = time.monotonic() + 60 * options.minutes
    drawn = remembered(options.log)
    if drawn is None:
        drawn = draw(options.paths, options.kernels, options.largest, set(options.arch), options.seed, options.having)
        if options.log:
            beside(options.log).write_bytes(pickle.dumps(drawn))
    drawn = {arch: [k for k in kernels if len(k.words) >= options.at_least] for arch, kernels in drawn.items()}
    gc.freeze()  # what has been drawn is not looked through each time that a kernel is scheduled
    seen = noted(options.log)
    left = [kernel for kernels in drawn.values() for kernel in kernels if (kernel.arch, kernel.name) not in seen]
    with options.log.open("a") if options.log else nullcontext() as log:
        for kernel in sorted(left, key=lambda kernel: len(kernel.code)):
            if time.monotonic() > until:
                break
            row = seen[kernel.arch, kernel.name] = look(kernel, options.order)
            row.commit = commit
            if log:
                log.write(json.dumps(asdict(row)) + "\n")
                log.flush()
    found, done = {}, []
    for arch, kernels in drawn.items():
        rows = [seen[arch, kernel.name] for kernel in kernels if (arch, kernel.name) in seen]
        found[arch] = totals(rows, len(kernels))
        done += rows
        print(arch, json.dumps(found[arch]), flush=True)
        for row in [row for row in rows if row.refused or row.found][:EXAMPLES]:
            print("  ", row.name, row.refused or row.example)
    if options.json:
        names = ("kernels", "largest", "at_least", "arch", "seed", "having", "order")
        asked = {name: getattr(options, name) for name in names}
        options.json.write_text(json.dumps(told(found, done, asked), indent=1) + "\n")
    return int(any(one["refused"] or one["findings"] for one in found.values()))


if __name__ == "__main__":
    raise SystemExit(main())
