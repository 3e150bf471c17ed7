"""Accesses that cost more than they have to, where the addresses of a warp are known: bank conflicts of shared memory,
and global accesses that touch more sectors than their bytes fill. values.py tells what can be known."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import numpy as np

from turingas.check.finding import Finding
from turingas.check.report import at
from turingas.check.rules import rule
from turingas.check.values import State, Value, accesses, add, guard, make, register, values
from turingas.flow.graph import Graph
from turingas.isa.instruction import Instruction, Mem
from turingas.memory_model import SECTOR, sectors, wavefronts

LANES = np.ones((1, 32), bool)


@rule("shared-conflict", "Lanes access different words of one bank of shared memory")
@rule("uncoalesced", "Lanes touch more sectors than their bytes fill")
def check(graph: Graph) -> Iterator[Finding]:
    """Notes on the shared and global accesses of a kernel; those of which lanes may be inactive are left out."""
    asked = accesses(graph)
    if not asked:
        return
    known = values(graph)
    for block in sorted(graph.reachable - known.apart):
        for n, i, state in known.instructions(block, asked):
            sure, found = guard(state, i), address(state, i)
            if found is not None and not found.uniform and sure is not None and sure.uniform:
                yield from (_shared if i.op.space == "shared" else _global)(graph, n, i, found)


def address(state: State, i: Instruction) -> Value | None:
    """The address of an access, its low 32 bits."""
    mem = next((o for o in i.operands if isinstance(o, Mem)), None)
    if mem is None or mem.scale != 1:
        return None
    found: Value | None = make(0, mem.offset)
    for reg in (mem.base, mem.ur):
        if reg is not None:
            found = add(found, register(state, reg.file, reg.index))
    return found


def _pattern(found: Value) -> str:
    """How the addresses of neighbours lie: ``128 bytes apart``."""
    steps = np.diff(found.lanes)
    if (steps == steps[0]).all():
        return f"lanes are {abs(int(steps[0]))} bytes apart"
    return "lanes 0 to 3 are at offsets " + ", ".join(str(int(n - found.lanes[0])) for n in found.lanes[:4])


def _shared(graph: Graph, n: int, i: Instruction, found: Value) -> Iterator[Finding]:
    taken, needed = _wavefronts(found.lanes.tobytes(), i.nbytes)
    if taken > needed:
        message = f"{taken} wavefronts of shared memory instead of {needed}: {_pattern(found)}"
        hint = "pad the rows of the array, or swizzle its columns, so that the lanes fall into different banks"
        yield at(graph, n, "shared-conflict", "note", message, hint)


def _global(graph: Graph, n: int, i: Instruction, found: Value) -> Iterator[Finding]:
    # Where the base lies in its sector is known only if it is a multiple of 32
    taken, needed = _sectors(found.lanes.tobytes(), i.nbytes, found.step % SECTOR == 0)
    if taken > needed:
        message = f"at least {taken} sectors of {SECTOR} bytes a request, {needed} would hold them: {_pattern(found)}"
        hint = "let neighbouring lanes access neighbouring addresses, or go through shared memory"
        yield at(graph, n, "uncoalesced", "note", message, hint)


# Few patterns of addresses come again and again: each is counted once.


@lru_cache(1 << 12)
def _wavefronts(offsets: bytes, size: int) -> tuple[int, int]:
    """Wavefronts that a request takes, and how many it would without conflicts."""
    taken, needed = wavefronts(np.frombuffer(offsets, np.int64)[None], LANES, size)
    return int(taken[0]), int(needed[0])


@lru_cache(1 << 12)
def _sectors(offsets: bytes, size: int, aligned: bool) -> tuple[int, int]:
    """Sectors that a request takes, at the best place of its base if that is not aligned, and how many would do."""
    lanes = np.frombuffer(offsets, np.int64)
    needed = -(-len(set(lanes.tolist())) * size // SECTOR)
    start = lanes - lanes.min() // SECTOR * SECTOR
    bases = [0] if aligned else range(0, SECTOR, size)
    return min(int(sectors(start[None] + base, LANES, size)[0]) for base in bases), needed
