"""Bank conflicts: instructions that lose cycles because sources lie in one bank (turingas/isa/banks)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from turingas.check.finding import Finding
from turingas.check.report import at
from turingas.check.rules import rule
from turingas.flow.graph import Graph
from turingas.flow.stretch import REMEMBERED, Stretch
from turingas.isa.arch import arch as facts
from turingas.isa.banks import Cache, by_bank, reads, walk


@rule("bank-conflict", "An instruction reads several registers of one bank")
def check(graph: Graph) -> Iterator[Finding]:
    """Instructions that lose cycles to a bank conflict, in each block as if the cache were empty before it."""
    for number in sorted(graph.reachable):
        for n, cache, cycles in _lost(graph.stretches[number]):
            yield _conflict(graph, graph.blocks[number].start + n, cache, cycles)


@lru_cache(REMEMBERED)
def _lost(stretch: Stretch) -> list[tuple[int, Cache, int]]:
    """The instructions that lose cycles, what they find in the cache, and how many."""
    places = [n for n, i in enumerate(stretch.instructions) if i is not None]
    walked = walk(stretch.instructions, facts(stretch.arch))
    return [(n, cache, cycles) for n, (_, cache, cycles) in zip(places, walked) if cycles]


def _conflict(graph: Graph, n: int, cache: Cache, cycles: int) -> Finding:
    i = graph.instructions[n]
    assert i is not None
    found = reads(i, cache)
    counts = by_bank(found)
    bank = max((b for b in (0, 1) if counts[b]), key=lambda b: cache.behind[b] + counts[b])
    names = " ".join(f"R{number}" for number in found if number & 1 == bank)
    which = ("even", "odd")[bank]
    behind = f", which is {cache.behind[bank]} reads behind" if cache.behind[bank] else ""
    verb = "is" if counts[bank] == 1 else "are"
    message = f"{_cycles(cycles)} lost: {names} {verb} read from the {which} register bank{behind}"
    hint = (
        "move one source to a register of the other parity, or take it from the reuse cache: .reuse on the"
        " instruction before, in the same place"
    )
    return at(graph, n, "bank-conflict", "note", message, hint)


def _cycles(count: int) -> str:
    return f"{count} cycle" + ("" if count == 1 else "s")
