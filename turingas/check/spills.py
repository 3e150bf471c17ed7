"""Local memory in loops: registers that were spilled, or an array that is indexed."""

from __future__ import annotations

from collections.abc import Iterator

from turingas.check.finding import Finding
from turingas.check.report import at
from turingas.check.rules import rule
from turingas.flow.graph import Graph


@rule("spill", "Local memory is accessed in a loop")
def check(graph: Graph) -> Iterator[Finding]:
    """A note for each loop with LDL or STL of its own."""
    local, loading = graph.of("LDL", "STL"), set(graph.of("LDL"))
    if not local:
        return
    inmost: dict[int, int] = {}  # block -> the innermost loop around it: inner ones come behind outer ones
    for number, loop in enumerate(graph.loops):
        inmost.update(dict.fromkeys(loop.blocks, number))
    found: dict[int, list[int]] = {}
    for n in local:
        block = graph.block_of(n)
        if block in inmost and block in graph.reachable:
            found.setdefault(inmost[block], []).append(n)
    for number, places in sorted(found.items()):
        loads = sum(n in loading for n in places)
        counts = [f"{count} {what}{'s' * (count > 1)}" for count, what in
                  ((loads, "load"), (len(places) - loads, "store")) if count]  # fmt: skip
        message = f"{' and '.join(counts)} of local memory in a loop of depth {graph.loops[number].depth}"
        hint = "spilled registers, or an array that is indexed: they cost as much as accesses of global memory"
        yield at(graph, places[0], "spill", "note", message, hint)
