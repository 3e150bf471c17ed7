"""Races in shared memory: accesses of two threads to one place, at least one a write, that no barrier orders.

Each warp has a clock for each warp of its block (a vector clock): what it knows to be over. A barrier of the block
joins the clocks of the warps that pass it. For each piece of shared memory the last write and the last reads of two
warps are kept, with the clock of who did it; an access by another warp that does not know of them is a race. (The way
of FastTrack: Flanagan and Freund, PLDI 2009.)

What is reported, each pair of instructions once:

* RAW, WAR and WAW between warps of a block with no barrier between; a write of the value that is there is none.
* WAW within one instruction: lanes of one or several warps that write different values to one place.
* Atomics do not race with atomics, nor with the load that belongs to a compare-and-swap loop (float atomics are
  compiled to such loops); they do with other loads and stores.

What is not: accesses of one warp by different instructions, for what orders them cannot be seen (compilers leave out
__syncwarp where a warp has not diverged). Of mbarriers and of barriers where some do not wait it is only seen that who
looks, or passes, comes after all that arrived anywhere in the block before: more order than there is. Order that locks
and flags make is not seen, so that memory they protect is reported.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from turingas.emulate.arrays import Array
from turingas.emulate.cohort import Cohort, Observer, State
from turingas.emulate.errors import Place
from turingas.emulate.report import Report
from turingas.isa.instruction import Instruction, Mem, Reg

WORD = 16  # bytes of an instruction
NEAR = 24  # instructions: how far a compare-and-swap may be behind the load of its loop
KINDS = {"RAW": "read after write", "WAR": "write after read", "WAW": "write after write"}


@dataclass(frozen=True)
class Race:
    """Two instructions that nothing orders: ``first`` ran before ``second`` here. Two with the same kind and places
    are equal; ``block``, the two threads, (x, y, z) each, and the address are those of the first time (of ``first``
    only the warp is known: its lowest thread)."""

    kind: str
    first: Place
    second: Place
    block: tuple[int, int, int] = field(compare=False)
    threads: tuple[tuple[int, int, int], tuple[int, int, int]] = field(compare=False)
    address: int = field(compare=False)

    def __str__(self) -> str:
        one, other = self.threads
        return (
            f"{self.second}: race: {KINDS[self.kind]} at 0x{self.address:x} of shared memory, no barrier between\n"
            f"  block {self.block}, thread {other}\n"
            f"  the other instruction: {self.first}, in the warp of thread {one}"
        )


class Races(Observer):
    """The detector of one wave. ``findings`` grows; nothing is raised."""

    def __init__(self, wave: State) -> None:
        self.wave = wave
        self.findings: list[Race] = []
        self._known: set[tuple[str, int, int]] = set()
        instructions = wave.image.instructions
        self.unit = min([4, *(_unit(i) for i in instructions if i is not None)])  # bytes that are looked at as one
        self.swaps = _swap_loads(instructions)
        shared = wave.shared
        self.stride = shared.stride // self.unit  # pieces of a block
        pieces = shared.blocks * self.stride
        blocks = wave.block_of
        self.slot = np.arange(wave.warps) - np.searchsorted(blocks, blocks)  # of each warp in its block
        slots = int(self.slot.max(initial=0)) + 1
        self.clocks = np.zeros((wave.warps, slots), np.int32)
        self.clocks[np.arange(wave.warps), self.slot] = 1
        self.arrived = np.zeros((shared.blocks, slots), np.int32)  # clocks of those who arrived without waiting
        # the last write and the last reads of two warps: who (-1: none), its clock then, which instruction
        self.write, self.read, self.other = (_Last(pieces) for _ in range(3))
        self.atomic = np.zeros(pieces, bool)  # the last write was one
        self.value = np.zeros(pieces, np.uint32)  # what it wrote
        self.mbarriers = np.zeros(pieces, bool)  # what lies in one

    def tell(self, report: Report) -> None:
        report.races += [race for race in self.findings if race not in report.races]

    # -- what orders

    def barrier(self, warps: Array) -> None:
        """Warps (ascending indices) that passed a barrier; those of one block did so together."""
        blocks = self.wave.block_of[warps]
        starts = np.flatnonzero(np.concatenate([[True], blocks[1:] != blocks[:-1]]))
        joined = np.maximum.reduceat(self.clocks[warps], starts, axis=0)
        joined = np.maximum(joined, self.arrived[blocks[starts]])
        self.clocks[warps] = np.repeat(joined, np.diff(np.append(starts, len(warps))), axis=0)
        self.clocks[warps, self.slot[warps]] += 1

    def arrive(self, warps: Array) -> None:
        """Warps that arrived at a barrier without waiting (BAR.ARV, an mbarrier): who passes later knows of them."""
        np.maximum.at(self.arrived, self.wave.block_of[warps], self.clocks[warps])
        self.clocks[warps, self.slot[warps]] += 1

    def acquire(self, warps: Array) -> None:
        """Warps that looked at an mbarrier: they know of all that arrived somewhere in the block before."""
        self.clocks[warps] = np.maximum(self.clocks[warps], self.arrived[self.wave.block_of[warps]])

    def arrive_at(self, k: Cohort, addresses: Array) -> None:
        """The lanes of ``k`` arrive at mbarriers of 8 bytes; loads of these look at them."""
        lanes = np.flatnonzero(k.lanes)
        warps = k.warps[lanes // 32]
        begin = self._begin(warps, addresses, lanes)
        self.mbarriers[begin[:, None] + np.arange(8 // self.unit)] = True
        self.arrive(np.unique(warps))

    # -- accesses

    def access(
        self, k: Cohort, i: Instruction, space: str, addresses: Array, lanes: Array | None, nbytes: int, what: str,
        words: list[Array] | None = None,
    ) -> None:  # fmt: skip
        if space != "shared":
            return
        flat = np.arange(addresses.size) if lanes is None else np.flatnonzero(lanes)
        warp = k.warps[flat // 32]
        begin = self._begin(warp, addresses, flat)
        count = max(1, nbytes // self.unit)
        piece = (begin[:, None] + np.arange(count)).reshape(-1)
        hit = _Hit(self, i, np.repeat(warp, count), np.repeat(flat % 32, count), piece)
        number = i.address // WORD
        if what == "read":
            self._read(hit, number)
        else:
            values = None if words is None else self._pieces(words, flat, addresses.shape, nbytes)
            self._write(hit, number, what == "atomic", values)

    def _begin(self, warps: Array, addresses: Array, lanes: Array) -> Array:
        """The first piece that each of some lanes touches."""
        return self.wave.block_of[warps] * self.stride + addresses.reshape(-1)[lanes].astype(np.int64) // self.unit

    def _read(self, hit: _Hit, number: int) -> None:
        looks = self.mbarriers[hit.piece]
        if looks.any():
            self.acquire(np.unique(hit.warp[looks]))
        race = hit.unknown(self.write) & ~looks
        if number in self.swaps:
            race &= ~self.atomic[hit.piece]
        hit.report("RAW", race, self.write)
        if number in self.swaps:
            return  # the compare-and-swap that follows speaks for it
        self.read.push(hit, number, self.other)

    def _write(self, hit: _Hit, number: int, atomic: bool, values: Array | None) -> None:
        race = hit.unknown(self.write)
        if atomic:
            race &= ~self.atomic[hit.piece]
        elif values is not None:
            race &= (self.value[hit.piece] != values) | self.atomic[hit.piece]
        hit.report("WAW", race, self.write)
        for last in (self.read, self.other):
            hit.report("WAR", hit.unknown(last), last)
        self.write.set(hit, number)
        self.atomic[hit.piece] = atomic
        if values is not None:
            self.value[hit.piece] = values
            hit.report("WAW", self.value[hit.piece] != values, self.write)  # other lanes of this instruction

    def _pieces(self, words: list[Array], flat: Array, shape: tuple[int, ...], nbytes: int) -> Array:
        """The values of each piece that a write covers, (lanes * pieces,)."""
        full = np.stack([np.broadcast_to(word, shape).reshape(-1)[flat] for word in words], axis=-1)
        parts = full.view({1: np.uint8, 2: np.uint16, 4: np.uint32}[self.unit])
        return parts[:, : max(1, nbytes // self.unit)].astype(np.uint32).reshape(-1)

    def add(self, kind: str, first: int, second: int, warps: tuple[int, int], lane: int, piece: int) -> None:
        """A race of instructions ``first`` and ``second`` (numbers)."""
        if (kind, first, second) in self._known:
            return
        self._known.add((kind, first, second))
        image, wave = self.wave.image, self.wave
        block, other = wave.who(warps[1], lane)
        _, one = wave.who(warps[0], 0)
        address = piece % self.stride * self.unit
        self.findings.append(Race(kind, image.place(first), image.place(second), block, (one, other), address))


class _Last:
    """The last access of a kind to each piece."""

    def __init__(self, pieces: int) -> None:
        self.warp = np.full(pieces, -1, np.int32)
        self.clock = np.zeros(pieces, np.int32)
        self.number = np.zeros(pieces, np.int32)

    def set(self, hit: _Hit, number: int) -> None:
        self.warp[hit.piece] = hit.warp
        self.clock[hit.piece] = hit.clock
        self.number[hit.piece] = number

    def push(self, hit: _Hit, number: int, second: _Last) -> None:
        """The same, and what another warp did before, or does now, goes to ``second``."""
        moved = self.warp[hit.piece] != hit.warp
        at = hit.piece[moved]
        second.warp[at], second.clock[at], second.number[at] = self.warp[at], self.clock[at], self.number[at]
        self.set(hit, number)
        lost = self.warp[hit.piece] != hit.warp
        at = hit.piece[lost]
        second.warp[at], second.clock[at], second.number[at] = hit.warp[lost], hit.clock[lost], number


class _Hit:
    """The pieces that one access touches: parallel arrays."""

    def __init__(self, races: Races, i: Instruction, warp: Array, lane: Array, piece: Array) -> None:
        self.races, self.number = races, i.address // WORD
        self.warp, self.lane, self.piece = warp, lane, piece
        self.clock = races.clocks[warp, races.slot[warp]]

    def unknown(self, last: _Last) -> Array:
        """Where another warp was last, and this one does not know of it."""
        who = last.warp[self.piece]
        known = self.races.clocks[self.warp, self.races.slot[who]]
        return np.asarray((who >= 0) & (who != self.warp) & (last.clock[self.piece] > known))

    def report(self, kind: str, race: Array, last: _Last) -> None:
        at = np.flatnonzero(race)
        if not len(at):
            return
        firsts, where = np.unique(last.number[self.piece[at]], return_index=True)
        for first, one in zip(firsts.tolist(), at[where].tolist()):
            piece = int(self.piece[one])
            warps = (int(last.warp[piece]), int(self.warp[one]))
            self.races.add(kind, first, self.number, warps, int(self.lane[one]), piece)


def _unit(i: Instruction) -> int:
    """The size of pieces that an instruction needs."""
    if not i.op.traits & {"load", "store"} or i.op.space not in ("shared", "generic"):
        return 4
    return next((size for mod, size in (("U8", 1), ("S8", 1), ("U16", 2), ("S16", 2)) if mod in i.mods), 4)


def _swap_loads(instructions: Sequence[Instruction | None]) -> set[int]:
    """Numbers of the loads that belong to a compare-and-swap soon behind them: they bring what it compares with, or
    are at the same address."""
    found = set()
    for n, i in enumerate(instructions):
        if i is None or "atomic" not in i.op.traits or not ("CAS" in i.mods or "CAST" in i.mods):
            continue
        at = next(n for n, o in enumerate(i.operands) if isinstance(o, Mem))
        mem, compare = i.operands[at], i.operands[at + 1]
        assert isinstance(compare, Reg)
        brought = False
        for before in range(n - 1, max(0, n - NEAR) - 1, -1):
            load = instructions[before]
            if load is None:
                continue
            writes = any(w.file == "R" and w.first <= compare.index < w.first + w.count for w in load.writes)
            if "load" in load.op.traits and ((writes and not brought) or any(_same(mem, o) for o in load.operands)):
                found.add(before)
            brought |= writes
    return found


def _same(a: object, b: object) -> bool:
    return isinstance(a, Mem) and isinstance(b, Mem) and _address(a) == _address(b)


def _address(mem: Mem) -> tuple[object, ...]:
    return mem.offset, mem.scale, str(mem.base), str(mem.ur)
