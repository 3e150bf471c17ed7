"""Where the time of the linter goes: ``python -m tests.bench.lint_stages CUBIN...``.

Microseconds of processor time an instruction of code that the process has not seen, stage by stage; the files are those
that `turingas.throughput` takes.
"""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from collections.abc import Callable
from operator import attrgetter
from pathlib import Path
from typing import TypeVar

from turingas import collector
from turingas.check import lint  # noqa: F401 (it registers the checks)
from turingas.check.finding import Finding
from turingas.check.rules import CHECKS, Check
from turingas.check.values import values
from turingas.cubin.cubin import Cubin
from turingas.flow.graph import Graph
from turingas.throughput import sample

T = TypeVar("T")


def main(files: list[str]) -> None:
    """Prints the table."""
    spent: dict[str, float] = defaultdict(float)

    def timed(stage: str, work: Callable[..., T], *what: object) -> T:
        start = time.process_time()
        found = work(*what)
        spent[stage] += time.process_time() - start
        return found

    count = 0
    data = [cubin.to_bytes() for _, cubin in sample([Path(file) for file in files])]
    whole = time.process_time()
    for one in data:
        with collector.paused():
            for kernel in timed("the file is read", Cubin.from_bytes, one).texts:
                graph = timed("words are decoded, blocks are found", Graph, kernel)
                count += len(graph.instructions)
                timed("what each instruction reads, writes and waits for", attrgetter("effects"), graph)
                timed("values of registers, where somebody asks", values, graph)
                for check in CHECKS:
                    timed(check.__module__.rpartition(".")[2], _findings, check, graph)
    whole = time.process_time() - whole
    spent["the rest"] = whole - sum(spent.values())
    for stage, seconds in sorted(spent.items(), key=lambda item: -item[1]):
        print(f"{1e6 * seconds / count:6.1f}  {stage}")
    print(f"{1e6 * whole / count:6.1f}  in all, of {count} instructions")


def _findings(check: Check, graph: Graph) -> list[Finding]:
    return list(check(graph))


if __name__ == "__main__":
    main(sys.argv[1:])
