"""Which bits of a register are known wherever code gets to an instruction: constants, and what is made of them.

For descriptors, whose upper bits compilers know and whose address they compute. A value is ``(known, bits)``: a mask of
the bits that are known, and these; whatever is not understood is not known.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from turingas.flow.graph import Graph
from turingas.isa import descriptors
from turingas.isa.instruction import Imm, Instruction, Reg

Bits = tuple[int, int]  # known, bits
NOTHING: Bits = (0, 0)
WORD = (1 << 32) - 1


class Known:
    """What is known of the registers of a kernel."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._results: dict[tuple[int, str, int], Bits] = {}  # NOTHING while one is being made: it depends on itself

    def value(self, at: int, file: str, register: int) -> Bits:
        """The 32 bits of a register in front of instruction ``at``: the same on all ways to it, or not known."""
        if file in ("UR", "R") and register == self.graph.kernel.facts.files[file].last:
            return WORD, 0
        found: Bits | None = None
        for n in self._made(at, file, register):
            value = NOTHING if n is None else self._kept(n, file, register)
            if found is None:
                found = value
            known = found[0] & value[0] & ~(found[1] ^ value[1])
            found = known, found[1] & known
            if not known:
                break
        return found or NOTHING

    def _made(self, at: int, file: str, register: int) -> Iterator[int | None]:
        """The instructions that may have written a register last, in front of ``at``; None: something else."""
        graph, seen = self.graph, set[int]()
        waiting = [(graph.block_of(at), at)]
        while waiting:
            number, end = waiting.pop()
            block = graph.blocks[number]
            for n in range(end - 1, block.start - 1, -1):
                i = graph.instructions[n]
                if i is None:
                    yield None
                    break
                if any(w.file == file and w.first <= register < w.first + w.count for w in i.writes):
                    yield n
                    if i.always:
                        break
            else:
                if not block.previous or number in graph.entries or block.start and self._called(number):
                    yield None
                for other in block.previous:
                    if other not in seen:
                        seen.add(other)
                        waiting.append((other, graph.blocks[other].end))

    def _called(self, number: int) -> bool:
        """Whether a function returns to the beginning of a block: it may have written anything."""
        return any(self.graph.blocks[one].calls is not None or self.graph.blocks[one].leaves
                   for one in self.graph.blocks[number].previous)  # fmt: skip

    def _kept(self, n: int, file: str, register: int) -> Bits:
        key = n, file, register
        if key not in self._results:
            self._results[key] = NOTHING
            self._results[key] = self._result(n, file, register)
        return self._results[key]

    def _result(self, n: int, file: str, register: int) -> Bits:
        i = self.graph.instructions[n]
        assert i is not None
        base = i.base if i.base.startswith("R2") else i.base.removeprefix("U")
        make = RULES.get(base)
        into = next((o for o in i.operands if isinstance(o, Reg) and o.write and o.file == file), None)
        if make is None or into is None:
            return NOTHING
        sources = [o for o in i.operands if not (isinstance(o, Reg) and (o.write or o.file in ("P", "UP")))]
        words = 2 if "64" in i.mods else 1
        values = [self._operand(o, n, words) for o in sources]
        known, bits = make(i, values)
        shift = 32 * (register - into.index)
        return known >> shift & WORD, bits >> shift & WORD

    def _operand(self, operand: Any, n: int, words: int) -> Bits:
        if isinstance(operand, Imm) and operand.kind == "int":
            return descriptors.ALL, operand.value & descriptors.ALL
        if not isinstance(operand, Reg) or operand.neg or operand.abs or operand.suffix:
            return NOTHING
        known, bits = self.value(n, operand.file, operand.index)
        if words == 2 and operand.index != self.graph.kernel.facts.files[operand.file].last:
            high, upper = self.value(n, operand.file, operand.index + 1)
            known, bits = known | high << 32, bits | upper << 32
        else:
            known |= WORD << 32
        return (known, ~bits & known) if operand.inv else (known, bits)


# -- rules. Values have 64 bits; what is above a result's is cut off by those who ask.


def add(x: Bits, y: Bits) -> Bits:
    """A sum: a bit is known where both are, and the carry into it is the same with all others 0 and with all 1."""
    low = x[1] + y[1]
    high = (x[1] | descriptors.ALL & ~x[0]) + (y[1] | descriptors.ALL & ~y[0])
    into_low = low ^ x[1] ^ y[1]
    into_high = high ^ (x[1] | descriptors.ALL & ~x[0]) ^ (y[1] | descriptors.ALL & ~y[0])
    known = x[0] & y[0] & ~(into_low ^ into_high) & descriptors.ALL
    return known, low & known


def left(x: Bits, count: int) -> Bits:
    return (x[0] << count | (1 << count) - 1) & descriptors.ALL, x[1] << count & descriptors.ALL


def _logic(i: Instruction, v: list[Bits]) -> Bits:
    """Any function of three bits: a result is known if all combinations that are possible agree."""
    table = v[3][1] if "LUT" in i.mods and len(v) > 3 else None
    if table is None:
        return NOTHING
    can = [0, 0]
    for row in range(8):
        possible = descriptors.ALL
        for value, bit in zip(v, (4, 2, 1)):
            known, bits = value
            possible &= ~known | (bits if row & bit else ~bits)
        can[table >> row & 1] |= possible
    known = ~(can[0] & can[1]) & descriptors.ALL
    return known, can[1] & known


def _move(i: Instruction, v: list[Bits]) -> Bits:
    return v[0] if v else NOTHING


def _sum(i: Instruction, v: list[Bits]) -> Bits:
    return add(add(v[0], v[1]), v[2]) if len(v) == 3 and "X" not in i.mods else NOTHING


def _lea(i: Instruction, v: list[Bits]) -> Bits:
    plain = not {"HI", "X", "SX32"} & set(i.mods) and len(v) == 3
    return add(left(v[0], v[2][1] & 31), v[1]) if plain else NOTHING


def _shift(i: Instruction, v: list[Bits]) -> Bits:
    if len(v) != 3 or v[1][0] & 31 != 31 or "64" in i.mods or "S64" in i.mods or "U64" in i.mods:
        return NOTHING
    count = v[1][1] & 31
    if i.mods[0] == "L" and "HI" not in i.mods:
        return left(v[0], count)
    if i.mods[0] == "R" and i.mods[1:] == ("U32", "HI"):
        known = v[2][0] & WORD
        return (known >> count | WORD & ~(WORD >> count)), (v[2][1] & WORD) >> count
    return NOTHING


def _cut(i: Instruction, v: list[Bits]) -> Bits:
    if "U32" not in i.mods or len(v) != 2 or v[1][0] & WORD != WORD:
        return NOTHING
    mask = (1 << min(v[1][1], 32)) - 1
    return v[0][0] | descriptors.ALL & ~mask, v[0][1] & mask


RULES = {"MOV": _move, "R2UR": _move, "IADD3": _sum, "LOP3": _logic, "LEA": _lea, "SHF": _shift, "SGXT": _cut}


def told(graph: Graph) -> dict[int, list[tuple[str, str]]]:
    """Of each instruction with descriptors: what each is of, and what is known of it, in words."""
    found: dict[int, list[tuple[str, str]]] = {}
    known = Known(graph)
    for n, i in enumerate(graph.instructions):
        for one in descriptors.operands(i) if i is not None else ():
            mask, bits = known.value(n, "UR", one.register)
            if descriptors.BITS[one.kind] == 64:
                high, upper = known.value(n, "UR", one.register + 1)
                mask, bits = mask | high << 32, bits | upper << 32
            if text := descriptors.text(one.kind, bits, mask):
                found.setdefault(n, []).append((one.of, text))
    return found
