"""What may still be under way: asynchronous copies into shared memory that is read, products of warp groups whose
registers are touched, and waits that nobody ends. Only what can be shown from the code: an address counts as the same
where its registers have not been written since."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from turingas.check.finding import Finding
from turingas.check.report import at
from turingas.check.rules import rule
from turingas.flow.graph import Graph
from turingas.isa.instruction import Instruction, Mem, Reg
from turingas.isa.table import OPS

OPEN = -1  # its group has not been closed
MANY = 8  # groups closed behind it: more are not told apart

State = tuple[int, int]  # groups closed behind it, their scoreboard
Step = Callable[[int, Instruction, State], State | None]


def _walk(graph: Graph, start: int, state: State, step: Step) -> None:
    """Follow all ways from behind instruction ``start``. ``step`` gets an instruction and what is known there, and
    gives what is known behind it; None: the way is not followed further. Calls are not followed."""
    todo = [(graph.block_of(start), start + 1, state)]
    seen = set()
    while todo:
        number, first, now = todo.pop()
        block, known = graph.blocks[number], now
        for n in range(first, block.end):
            i = graph.instructions[n]
            found = None if i is None else step(n, i, known)
            if found is None:
                break
            known = found
        else:
            if block.calls is None and not block.leaves and not block.returns:
                fresh = [(after, known) for after in block.next if (after, known) not in seen]
                seen.update(fresh)
                todo += [(after, graph.blocks[after].start, known) for after, known in fresh]


def _closed(state: State, board: int) -> State | None:
    """Behind the end of a group; None where groups go by several scoreboards."""
    groups, mine = state
    if groups == OPEN:
        return 0, board
    return (min(groups + 1, MANY), board) if board == mine else None


# ---- copies ----------------------------------------------------------------------------------------------------------


class Place(NamedTuple):
    """An address of shared memory: what stands in its brackets, and bytes."""

    registers: tuple[object, ...]
    offset: int
    nbytes: int

    def meets(self, other: Place) -> bool:
        apart = self.offset + self.nbytes <= other.offset or other.offset + other.nbytes <= self.offset
        return self.registers == other.registers and not apart


def _place(i: Instruction, mem: Mem) -> Place:
    return Place((str(mem.base), str(mem.ur), mem.scale), mem.offset, i.nbytes)


def _registers(i: Instruction, mem: Mem) -> set[tuple[str, int]]:
    """Those of an address, and the guard."""
    found = {(r.file, r.index) for r in (mem.base, mem.ur) if r is not None and not r.zero}
    if not i.always and isinstance(i.guard, Reg):
        found.add((i.guard.file, i.guard.index))
    return found


@rule("copy-pending", "Shared memory is read that LDGSTS may still have to write")
def copies(graph: Graph) -> Iterator[Finding]:
    """An error for each load that a way leads to from a copy to the same address, with no wait for its group."""
    if "LDGSTS" not in graph.mnemonics:
        return
    reported = set()
    loads = [_load(i) for n in graph.of("LDS", "LDSM") if (i := graph.instructions[n]) is not None]
    for n in graph.of("LDGSTS"):
        for reader in _readers(graph, n, {place.registers for place in loads}):
            if reader not in reported:
                reported.add(reader)
                what = "reads what a copy may still have to write: no wait for its group comes between"
                hint = "close its group (LDGDEPBAR) and wait until few enough are left (DEPBAR.LE)"
                yield at(graph, reader, "copy-pending", "error", what, hint, n)


def _load(i: Instruction) -> Place:
    return _place(i, next(o for o in i.operands if isinstance(o, Mem)))


def _readers(graph: Graph, n: int, loads: set[tuple[object, ...]]) -> list[int]:
    """The loads of what instruction ``n`` copies; ``loads``: the registers of all addresses that are loaded from."""
    copy = graph.instructions[n]
    assert copy is not None
    mem = copy.operands[0]
    if not isinstance(mem, Mem) or _place(copy, mem).registers not in loads:
        return []
    place, registers, found = _place(copy, mem), _registers(copy, mem), []

    def step(m: int, i: Instruction, state: State) -> State | None:
        groups, board = state
        effects = graph.effects[m]
        if effects is None or i.base == "ARRIVES" or i.base == "SYNCS":
            return None
        if groups != OPEN:
            if board in effects.wait or board in effects.waits:
                return None
            if effects.depbar is not None and effects.depbar[0] == board and effects.depbar[1] <= groups:
                return None
        if i.base in ("LDS", "LDSM") and (i.always or i.guard == copy.guard):
            if place.meets(_load(i)):
                found.append(m)
                return None
        if any((a.file, r) in registers for a in i.writes for r in range(a.first, a.first + a.count)):
            return None
        if i.base == "LDGDEPBAR":
            return _closed(state, i.control.write) if i.always else None
        return state

    _walk(graph, n, (OPEN, OPEN), step)
    return found


# ---- products of warp groups -----------------------------------------------------------------------------------------


def _products(graph: Graph) -> list[int]:
    return graph.of(*(mnemonic for mnemonic in graph.mnemonics if OPS[mnemonic].pipe == "wgmma"))


@rule("product-pending", "A register is touched that a product of a warp group may still have to read or write")
def products(graph: Graph) -> Iterator[Finding]:
    """An error for each instruction that a way leads to from the product, with no wait for its group."""
    reported = set()
    for n in _products(graph):
        for toucher, what in _touchers(graph, n):
            if toucher not in reported:
                reported.add(toucher)
                hint = "wait until few enough groups of products are left (WARPGROUP.DEPBAR.LE gsb0)"
                yield at(graph, toucher, "product-pending", "error", what, hint, n)


def _touchers(graph: Graph, n: int) -> list[tuple[int, str]]:
    product = graph.instructions[n]
    assert product is not None
    writes = {r for a in product.writes if a.file == "R" for r in range(a.first, a.first + a.count)}
    reads = {r for a in product.reads if a.file == "R" for r in range(a.first, a.first + a.count)} | writes
    found: list[tuple[int, str]] = []

    def step(m: int, i: Instruction, state: State) -> State | None:
        if i.op.pipe == "wgmma":
            return _closed(state, 0) if "gsb0" in i.text() else state
        if i.base == "WARPGROUP" and i.mods[0] != "ARRIVE":
            left = getattr(i.operands[-1], "value", 0) if i.operands else 0
            return None if state[0] != OPEN and left <= state[0] else state
        for accesses, mine, does, may in ((i.reads, writes, "read", "write"), (i.writes, reads, "overwritten", "use")):
            for a in accesses:
                hit = mine.intersection(range(a.first, a.first + a.count)) if a.file == "R" else ()
                if hit:
                    found.append((m, f"R{min(hit)} is {does} while {product.base} may still have to {may} it"))
                    return None
        return state

    _walk(graph, n, (0, 0) if "gsb0" in product.text() else (OPEN, OPEN), step)
    return found


@rule("no-arrive", "A product of a warp group that no WARPGROUP.ARRIVE comes before")
def arrivals(graph: Graph) -> Iterator[Finding]:
    """An error for each that no way leads to from one. Functions and kernels with calls are left alone."""
    products = _products(graph)
    if not products or _calls(graph):
        return
    behind: set[int] = set()

    def step(m: int, i: Instruction, state: State) -> State:
        behind.add(m)
        return state

    for n in graph.of("WARPGROUP"):
        i = graph.instructions[n]
        if i is not None and i.mods[0] == "ARRIVE" and n not in behind:
            _walk(graph, n, (0, 0), step)
    for n in products:
        if n not in behind and graph.block_of(n) in graph.reachable:
            what = "a product of a warp group with no WARPGROUP.ARRIVE before it"
            hint = "it may not see registers written before, and its warps may not be together"
            yield at(graph, n, "no-arrive", "error", what, hint)


# ---- mbarriers -------------------------------------------------------------------------------------------------------


@rule("never-over", "A wait at an mbarrier whose phase nothing can end")
def phases(graph: Graph) -> Iterator[Finding]:
    """An error for a wait for the first phase in a kernel that arrives at no mbarrier, and for bytes that are announced
    in one that copies none. Functions and kernels with calls are left alone."""
    if "SYNCS" not in graph.mnemonics or not graph.kernel.entry or _calls(graph):
        return
    used = [(n, i) for n in graph.of("SYNCS") if (i := graph.instructions[n]) is not None]
    arrivals = [(n, i) for n, i in used if i.mods[0] == "ARRIVE"]
    if not arrivals and not any("arrives" in OPS[base].traits for base in graph.mnemonics):
        for n, i in used:
            if i.mods[0] == "PHASECHK" and isinstance(value := i.operands[-1], Reg) and value.zero:
                what = "waits for the end of a phase, and nothing in this kernel arrives at an mbarrier"
                yield at(graph, n, "never-over", "error", what, "arrive (SYNCS.ARRIVE), or copy and tell the mbarrier")
    if any("brings" in OPS[base].traits for base in graph.mnemonics) or any("A0TX" in i.mods for _, i in arrivals):
        return
    for n, i in arrivals:
        bytes_ = i.operands[-1]
        if i.mods[-1] in ("TRANS64", "A0TR") and isinstance(bytes_, Reg) and not bytes_.zero:
            what = "announces bytes to an mbarrier, and nothing in this kernel copies any: its phase never ends"
            yield at(graph, n, "never-over", "error", what, "SYNCS.ARRIVE.TRANS64.A1T0 arrives without bytes")


def _calls(graph: Graph) -> bool:
    return any(block.calls is not None or block.leaves or block.returns for block in graph.blocks)
