"""What is known of predicates: which of them hold wherever an instruction runs.

A *literal* is a predicate that is true, or one that is false. Of each place it is known which literals hold there (a
branch tells its guard), and which follow from which: behind ``@!P1 R2P PR, RZ, 0x78`` P3 is true only where P1 is,
behind ``ISETP.LT.AND P0, P2, R5, 0x8, P1`` P0 is true only where P1 is true and P2 is false. So two instructions are
seen to exclude each other under guards that are no opposites, and on ways that no thread goes.

Literals are bits: P0 is bit 0, !P0 bit 1, P1 bit 2 ... !P6 bit 13, UP0 bit 14 ... What is known of a place is one
number: a row of 32 bits for each literal with those that follow from it, and one more with those that hold. So paths
are joined by a single ``&``: what is known there is known on all of them.
"""

from __future__ import annotations

import heapq
from functools import lru_cache
from typing import NamedTuple

from turingas.flow.graph import Graph, flow_of
from turingas.flow.stretch import REMEMBERED, Stretch
from turingas.isa.effects import FIRST, PREDICATES, Effects, literal
from turingas.isa.instruction import Imm, Instruction, Operand, Reg

LITERALS = 4 * PREDICATES
TRUE = LITERALS  # the row of what holds
WIDTH = 32
ROW = (1 << LITERALS) - 1
POSITIVE = ROW // 3
NOTHING = 0  # is known
IMPOSSIBLE = sum(ROW << WIDTH * row for row in range(TRUE + 1))  # no thread comes here: everything holds



def opposite(mask: int) -> int:
    """The literals that are false where those of ``mask`` are true."""
    return (mask & POSITIVE) << 1 | mask >> 1 & POSITIVE


def row(known: int, number: int) -> int:
    """What follows from a literal, without itself; of TRUE: what holds."""
    return known >> WIDTH * number & ROW


COLUMN = sum(1 << WIDTH * number for number in range(TRUE + 1))  # the first bit of every row


def _rows(mask: int) -> int:
    return sum(ROW << WIDTH * number for number in range(LITERALS) if mask >> number & 1)


_FORGET: dict[int, int] = {}


def forget(known: int, mask: int) -> int:
    """What is left when the predicates of ``mask`` are written."""
    keep = _FORGET.get(mask)
    if keep is None:
        keep = _FORGET[mask] = IMPOSSIBLE & ~(mask * COLUMN) & ~_rows(mask)
    return known & keep


def closure(known: int, mask: int) -> int:
    """The literals of ``mask`` and all that follow from them."""
    found = mask
    for number in _bits(mask):
        found |= row(known, number)
    return found


def _bits(mask: int) -> list[int]:
    found = []
    while mask:
        low = mask & -mask
        found.append(low.bit_length() - 1)
        mask ^= low
    return found


def learn(known: int, number: int, more: int) -> int:
    """``more`` follows from a literal, or holds (of TRUE); and the other way round, so does what follows from that."""
    more = closure(known, more)
    if number == TRUE:
        known |= more * COLUMN
        for wrong in _bits(opposite(more)):
            known |= ROW << WIDTH * wrong
        return known
    known |= more << WIDTH * number
    back = row(known, number ^ 1) | 1 << (number ^ 1)
    known |= (known >> number & COLUMN) * more  # to what the literal follows from
    against = 0  # the rows, by their first bits, that exclude some of it
    for wrong in _bits(opposite(more)):
        against |= known >> wrong & COLUMN | 1 << WIDTH * wrong
    return known | (against & ~(1 << WIDTH * TRUE)) * back


def assume(known: int, number: int) -> int:
    """Where a literal is found to hold."""
    if row(known, TRUE) >> (number ^ 1) & 1:
        return IMPOSSIBLE
    return learn(known, TRUE, 1 << number)


class Rule(NamedTuple):
    """What follows from the new value of a predicate: ``number`` is the literal of true. ``true`` and ``false`` are
    literals that hold, before the instruction, where it becomes so; ``never``: those of its two that it never becomes;
    ``apart``: literals written by the same instruction of which it excludes the true one where it is true."""

    number: int
    true: int
    false: int
    never: int
    apart: int


def rules(i: Instruction) -> list[Rule]:
    """What an instruction tells of the predicates that it writes; nothing for those that are missing."""
    if "compare" in i.op.traits and len(i.operands) >= 5:
        return _setp(i)
    if i.base in ("PLOP3", "UPLOP3"):
        return _plop3(i)
    if i.base == "R2P" and any(isinstance(o, Reg) and o.file == "R" and o.zero for o in i.operands):
        masks = [o.bits for o in i.operands if isinstance(o, Imm)]
        return [Rule(2 * n, 0, 0, 1 << 2 * n, 0) for n in range(PREDICATES) if not masks or masks[-1] >> n & 1]
    return []


def _source(o: Operand) -> int | None:
    """The literal that an operand is; TRUE for PT, -1 for !PT."""
    if not isinstance(o, Reg) or o.file not in ("P", "UP"):
        return None
    if o.zero:
        return -1 if o.inv else TRUE
    return literal(FIRST[o.file] + o.index, o.inv)


def _setp(i: Instruction) -> list[Rule]:
    """d = (a op b) and p, e = !(a op b) and p; or the same with or."""
    targets = [_source(o) for o in i.operands[:2]]
    p = _source(i.operands[4])
    found = []
    if p is None or not {"AND", "OR"} & set(i.mods):
        return []
    both_set = [t for t in targets if t is not None and 0 <= t < TRUE]
    for number in both_set:
        true = false = never = apart = 0
        if "AND" in i.mods:
            true = 1 << p if 0 <= p < TRUE else 0
            never = 1 << number if p == -1 else 0
            apart = sum(1 << other for other in both_set if other != number)
        elif 0 <= p < TRUE:
            false = 1 << (p ^ 1)
        elif p == TRUE:
            never = 2 << number
        found.append(Rule(number, true, false, never, apart))
    return found


def _plop3(i: Instruction) -> list[Rule]:
    """Any function of three predicates: what all rows of its table say in which it is true, or false."""
    if len(i.operands) < 7 or not all(isinstance(o, Imm) for o in i.operands[5:7]):
        return []
    sources = [_source(o) for o in i.operands[2:5]]
    found = []
    for target, table in zip(i.operands[:2], i.operands[5:7]):
        number = _source(target)
        assert isinstance(table, Imm)
        if number is None or not 0 <= number < TRUE:
            continue
        holds = [ROW, ROW]  # where the result is false, and true
        for line in range(8):
            now = 0
            for place, source in enumerate(sources):
                value = line >> (2 - place) & 1
                if source is None:
                    continue
                if source in (-1, TRUE):
                    if value != (source == TRUE):
                        break
                else:
                    now |= 1 << (source if value else source ^ 1)
            else:
                if not now & opposite(now):
                    holds[table.value >> line & 1] &= now
        never = (holds[1] == ROW) << number | (holds[0] == ROW) << (number + 1)
        found.append(Rule(number, holds[1] % ROW, holds[0] % ROW, never, 0))
    return found


class Guards:
    """What is known at the start of each block (``at``) and at its end (``out``), and what holds at each instruction.

    ``facts``: the effects of each instruction. ``ways``: literals that hold on all ways to an instruction, ``runs``:
    those that hold where its guard lets it run."""

    def __init__(self, graph: Graph, facts: list[Effects | None]) -> None:
        self.graph, self.facts = graph, facts
        self.at = [IMPOSSIBLE] * len(graph.blocks)
        self.clobbered = {entry: self._written(members) for entry, members in graph.inside().items()}
        self.out = [IMPOSSIBLE] * len(graph.blocks)
        self._along: list[dict[int, int]] = [{} for _ in graph.blocks]
        self.ways = [NOTHING] * len(facts)
        self.runs = [NOTHING] * len(facts)
        self._flow(*graph.order())

    def _flow(self, order: list[int], roots: list[int]) -> None:
        """Follows all ways: ``order`` has all blocks, each function in reverse post-order, ``roots`` those that may be
        reached with anything."""
        blocks = self.graph.blocks
        rank = {number: n for n, number in enumerate(order)}
        for number in roots:
            self.at[number] = NOTHING
        heap = sorted({rank[number] for number in roots})
        queued = set(heap)
        while heap:
            place = heapq.heappop(heap)
            queued.discard(place)
            number = order[place]
            block = blocks[number]
            out = self.out[number] = self._through(number, self.at[number])
            reached = [(to, self._learned(number, to)) for to in block.next]
            self._along[number] = dict(reached)
            if block.calls is not None:
                reached.append((block.calls, out))
            for to, known in reached:
                joined = self.at[to] & known
                if joined != self.at[to]:
                    self.at[to] = joined
                    if rank[to] not in queued:
                        queued.add(rank[to])
                        heapq.heappush(heap, rank[to])

    def along(self, number: int, to: int) -> int:
        """What is known on the way from a block to a next one."""
        found = self._along[number].get(to)
        return self._learned(number, to) if found is None else found

    def _learned(self, number: int, to: int) -> int:
        """The same. A branch tells what its guard is; behind a call only that is left which no function has written."""
        block, out = self.graph.blocks[number], self.out[number]
        facts = self.facts[block.end - 1]
        if block.calls is not None:
            out = forget(out, self.clobbered.get(block.calls, ROW))
        elif block.leaves:
            return NOTHING
        if facts is None or not facts.guard:
            return out
        if flow_of(facts.i) == "end":
            taken = False
        elif block.taken is not None and len(block.next) == 2:
            taken = to == block.taken
        else:
            return out
        if not (taken or facts.i.guard_decides):
            return out
        register, inv = facts.guard
        return assume(out, literal(register, inv == taken))

    def _through(self, number: int, known: int) -> int:
        """Through a block; notes what holds at each of its instructions."""
        block = self.graph.blocks[number]
        out, self.ways[block.start : block.end], self.runs[block.start : block.end] = _through(
            self.graph.stretches[number], known
        )
        return out

    def _written(self, members: set[int]) -> int:
        mask = 0
        for number in members:
            block = self.graph.blocks[number]
            for n in range(block.start, block.end):
                facts = self.facts[n]
                if facts is None or block.leaves:
                    return ROW
                mask |= facts.clears
        return mask


@lru_cache(REMEMBERED)
def _through(stretch: Stretch, known: int) -> tuple[int, list[int], list[int]]:
    """What is known behind a block; and of each of its instructions the literals that hold on all ways to it, and where
    its guard lets it run."""
    end, holds = len(stretch.effects), row(known, TRUE)
    ways, runs = [holds] * end, [holds] * end
    for n, this in _predicated(stretch):
        if this.guard is not None:
            guard = literal(*this.guard)
            runs[n] = holds | row(known, guard) | 1 << guard
        if this.clears:
            known = _write(this, known)
            if row(known, TRUE) != holds:
                holds = row(known, TRUE)
                ways[n + 1 :] = runs[n + 1 :] = [holds] * (end - n - 1)
    return known, ways, runs


@lru_cache(REMEMBERED)
def _predicated(stretch: Stretch) -> list[tuple[int, Effects]]:
    """The instructions of a block that have a guard or write predicates."""
    return [(n, this) for n, this in enumerate(stretch.effects) if this is not None and (this.guard or this.clears)]


@lru_cache(REMEMBERED)
def _rules(this: Effects) -> list[Rule]:
    return rules(this.i)


def _write(this: Effects, known: int) -> int:
    """What is known behind an instruction that writes predicates."""
    if known == IMPOSSIBLE:
        return known
    told, gone = _rules(this), this.clears
    if not told:
        return _perhaps(this, known, forget(known, gone), []) if this.guard else forget(known, gone)
    new = []  # literal, and what follows from it
    for rule in told:
        true, false = (closure(known, mask) & ~gone for mask in (rule.true, rule.false))
        new.append((rule.number, true | rule.apart << 1, rule.never))
        new.append((rule.number + 1, false, 0))
    after = forget(known, gone)
    if this.guard:
        return _perhaps(this, known, after, new)
    for number, follows, never in new:
        if never:
            after = learn(after, TRUE, opposite(never))
        if follows:
            after = learn(after, number, follows)
    return after


def _perhaps(this: Effects, known: int, after: int, new: list[tuple[int, int, int]]) -> int:
    """Behind a guarded write: a literal follows from another if it does of the new value where the guard holds, and did
    of the old one where it does not."""
    assert this.guard is not None
    guard = literal(*this.guard)
    runs, rests = (row(known, g) | 1 << g | row(known, TRUE) for g in (guard, guard ^ 1))
    never = sum(mask for *_, mask in new)
    excluded = {number: follows & ~this.clears for number, follows, _ in new}  # where the new value cannot be so
    learned = []
    for value in _bits(this.clears):
        for other in range(TRUE + 1):
            if this.clears >> other & 1:
                continue
            here = row(known, other) | (1 << other if other < TRUE else 0)
            if not (
                never >> (value ^ 1) & 1
                or opposite(here) >> guard & 1
                or opposite(here | runs) & excluded.get(value ^ 1, 0)
            ):
                continue
            if (here | rests) >> value & 1 or here >> guard & 1:
                learned.append((other, 1 << value))
    for other, more in learned:
        after = learn(after, other, more)
    return after


@lru_cache(1)
def guards(graph: Graph) -> Guards:
    """The guards of a kernel; several checks ask for them, one after the other."""
    return Guards(graph, graph.effects)
