"""Registers of values that live within a block: others, so that fewer instructions must wait for a register to be free.

A value is renamed only if nothing outside of its block sees it, and only into registers that hold nothing else
meanwhile, and that no product of a warp group touches, for these read and write on their own. Values that are read or
written together move together, and pairs and quads stay aligned, so that each register stays in its bank.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from turingas.cubin.model import Kernel
from turingas.isa.arch import SPARE_REGISTERS
from turingas.isa.effects import FIRST
from turingas.isa.instruction import Imm, Instruction, Label, Mem, Reg
from turingas.isa.latency import BARRIER
from turingas.scheduler.ways import Ways

ALL = (1 << FIRST[BARRIER]) - 1
MOST_TOGETHER = 4  # registers of one access
NEAR = 32  # instructions: a register that rests longer is left as it is


@dataclass(eq=False)
class Value:
    """What one or more instructions write, with all who touch it: the registers from ``first`` to ``last``, and the
    instructions from ``start`` to ``end``. ``stays``: somebody else sees it, or it cannot be told."""

    first: int
    last: int
    start: int
    end: int
    align: int
    stays: bool = False
    touched: list[tuple[int, int]] = field(default_factory=list)  # instruction, place in its word
    written: list[int] = field(default_factory=list)  # by instructions that write nothing else
    joined: Value | None = None

    def root(self) -> Value:
        """The value that it has been joined with."""
        while self.joined is not None:
            self = self.joined
        return self


def fields(i: Instruction) -> Iterator[Reg]:
    """The general registers that an instruction names."""
    for operand in i.operands:
        reg = operand if isinstance(operand, Reg) else operand.base if isinstance(operand, (Mem, Label)) else None
        if reg is not None and reg.file == "R" and not reg.zero:
            yield reg


def live(ways: Ways) -> tuple[list[int], list[int]]:
    """For each block the registers that somebody may still read before it and behind it, as masks (turingas.isa.effects
    numbers them)."""
    blocks = ways.graph.blocks
    used, written = [0] * len(blocks), [0] * len(blocks)
    for number, block in enumerate(blocks):
        for n in range(block.start, block.end):
            this = ways.facts[n]
            if this is None:
                used[number] |= ALL & ~written[number]
                continue
            used[number] |= this.read & ~written[number]
            if this.guard is None:
                written[number] |= this.written
    behind = [0] * len(blocks)
    for number, block in enumerate(blocks):
        if block.end - 1 in ways.open or block.returns or block.leaves or block.calls is not None:
            behind[number] = ALL
    changed = True
    while changed:
        changed = False
        for number in range(len(blocks) - 1, -1, -1):
            found = behind[number]
            for to in blocks[number].next:
                found |= used[to] | behind[to] & ~written[to]
            changed |= found != behind[number]
            behind[number] = found
    return [used[n] | behind[n] & ~written[n] for n in range(len(blocks))], behind


def _mask(accesses: Sequence[tuple[str, int, int, str]]) -> int:
    return sum({1 << n for file, first, count, _ in accesses if file == "R" for n in range(first, first + count)})


def renamed(kernel: Kernel, ways: Ways, may: Sequence[bool]) -> list[int]:
    """The words of ``kernel``, some of their registers renamed. ``may``: the instructions that may be changed."""
    words = list(kernel.words)
    behind, free = live(ways)[1], there(ways, kernel.registers)
    for number, block in enumerate(ways.graph.blocks):
        found, touched = values(ways, block.start, block.end, behind[number], may)
        if touched != ALL:
            spans = held(ways, block.start, block.end, behind[number])
            _place(words, found, free[number], spans, block.end - block.start)
    return words


def there(ways: Ways, registers: int) -> list[int]:
    """For each block registers that its warps have for values, as masks. ``registers``: of the kernel. Where warps give
    some up (USETMAXREG) they have those that any of them keeps, and as many as the block touches itself."""
    of_products, fewest, changes = 0, registers, set[int]()
    for n, this in enumerate(ways.facts):
        if this is not None and this.i.op.pipe == "wgmma":
            of_products |= _mask(this.i.reads) | _mask(this.i.writes)
        if this is not None and this.i.base == "USETMAXREG":
            changes.add(n)
            fewest = min(fewest, next((one.value for one in this.i.operands if isinstance(one, Imm)), 0))
    found = []
    for block in ways.graph.blocks:
        count, members = max(fewest - SPARE_REGISTERS, 0), range(block.start, block.end)
        if changes and not changes.intersection(members):
            known = [this.i for n in members if (this := ways.facts[n]) is not None]
            count = max(count, *((_mask(i.reads) | _mask(i.writes)).bit_length() for i in known), 0)
        found.append((1 << count) - 1 & ~of_products)
    return found


Span = tuple[int, int]  # who writes a register, and who touches what was written last


def held(ways: Ways, start: int, end: int, behind: int) -> dict[int, list[Span]]:
    """When each register of a block holds something, in the order of the code."""
    found: dict[int, list[Span]] = {}
    for n in range(start, end):
        this = ways.facts[n]
        assert this is not None
        written = _mask(this.i.writes)
        fresh = written if this.guard is None else 0
        for register in _bits(_mask(this.i.reads) | written & ~fresh):
            spans = found.setdefault(register, [(start - 1, n)])
            spans[-1] = spans[-1][0], n
        for register in _bits(fresh):
            found.setdefault(register, []).append((n, n))
    for register in _bits(behind):
        spans = found.setdefault(register, [(start - 1, end)])
        spans[-1] = spans[-1][0], end
    return found


def _bits(mask: int) -> Iterator[int]:
    while mask:
        yield (mask & -mask).bit_length() - 1
        mask &= mask - 1


def values(
    ways: Ways, start: int, end: int, behind: int, may: Sequence[bool], sums: bool = False
) -> tuple[list[Value], int]:
    """The values of a block, in the order of the code, and all the registers that it touches. ``sums``: whether what
    is added to in place may be moved, too."""
    values: list[Value] = []
    now: dict[int, Value | None] = {}  # register -> the value that it holds; None: one from before the block
    touched = 0
    for n in range(start, end):
        this = ways.facts[n]
        if this is None:
            touched = ALL
            continue
        i = this.i
        touched |= _mask(i.reads) | _mask(i.writes)
        places: dict[tuple[int, bool], list[Reg]] = {}
        for reg in fields(i):
            places.setdefault((reg.index, reg.write), []).append(reg)
        for access in i.reads:
            if access.file == "R":
                there = [now.get(register) for register in range(access.first, access.first + access.count)]
                value = _join(there)
                named = places.get((access.first, False), [])
                _touch(value, n, named, access.first, access.count, may[n])
        fresh: dict[int, Value | None] = {}
        for access in i.writes:
            if access.file != "R":
                continue
            registers = range(access.first, access.first + access.count)
            named = places.get((access.first, True), [])
            if this.guard is None:
                value = Value(access.first, access.first + access.count - 1, n, n, 1)
                #: a sum must wait for the one before anyway
                value.stays = not sums and bool(_mask(i.reads) & _mask([access]))
                value.written += [n] if sum(one.file == "R" for one in i.writes) == 1 else []
                values.append(value)
            else:  # what was there may stay
                value = _join([now.get(register) for register in registers])
            _touch(value, n, named, access.first, access.count, may[n])
            fresh.update(dict.fromkeys(registers, value))
        now.update(fresh)
    for register, value in now.items():
        if value is not None and behind >> register & 1:
            value.root().stays = True
    return [value for value in values if value.joined is None], touched


def _join(values: Sequence[Value | None]) -> Value | None:
    """One value of several that are touched together; None, and all of them stay, if one is from before the block."""
    roots = list(dict.fromkeys(value.root() for value in values if value is not None))
    if None in values:
        for root in roots:
            root.stays = True
        return None
    first, *others = sorted(roots, key=lambda root: root.start)
    for root in others:
        root.joined = first
        first.first, first.last = min(first.first, root.first), max(first.last, root.last)
        first.end, first.align = max(first.end, root.end), max(first.align, root.align)
        first.stays |= root.stays
        first.touched += root.touched
        first.written += root.written
    return first


def _touch(value: Value | None, n: int, named: Sequence[Reg], first: int, count: int, may: bool) -> None:
    if value is None:
        return
    value = value.root()
    value.end = n
    while value.align < min(count, MOST_TOGETHER):
        value.align *= 2
    value.touched += [(n, reg.place) for reg in named]
    if not named or not may or count > MOST_TOGETHER:
        value.stays = True


def _place(words: list[int], values: Sequence[Value], free: int, held: dict[int, list[Span]], far: int) -> None:
    """Give values that have little rest other registers of ``free``: those that are at rest for longest, before and
    behind them. ``far``: longer than that nothing is at rest."""
    for value in sorted(values, key=lambda value: value.start):
        if value.stays:
            continue
        span = range(value.first, value.last + 1)
        others = {register: [one for one in held.get(register, ()) if one[0] not in value.written] for register in span}
        step = max(value.align, 2)  # the bank stays
        best, most = 0, min(_rest(others[register], value, far) for register in span)
        for first in range(value.first % step, 256 - len(span), step) if most < NEAR else ():
            registers = range(first, first + len(span))
            if all(free >> register & 1 for register in registers):
                rest = min(_rest(held.get(register, ()), value, far) for register in registers)
                if rest > most:
                    best, most = first - value.first, rest
        if best:
            held.update(others)
            for register in span:
                held.setdefault(register + best, []).append((value.start, value.end))
            for n, place in dict.fromkeys(value.touched):
                words[n] += best << place


def _rest(spans: Sequence[Span], value: Value, far: int) -> int:
    """For how long a register is at rest before a value and behind it, the shorter of both; -1: it holds something
    else meanwhile."""
    rest = far
    for first, last in spans:
        if last <= value.start and first < value.start:
            rest = min(rest, value.start - last)
        elif first >= value.end and first > value.start:
            rest = min(rest, first - value.end)
        else:
            return -1
    return rest
