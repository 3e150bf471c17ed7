"""The control-flow graph of a kernel: blocks, calls, what can be reached, loops.

Instructions are counted, not addressed: number n lies at byte address 16 * n. Blocks are numbered in the order of
their code. Threads that wait at a BSYNC go on behind it, whichever way they came, so BSSY and its target give no edge.
"""

from __future__ import annotations

import functools
import operator
import struct
from dataclasses import dataclass, field

from turingas.cubin.model import Kernel
from turingas.flow.stretch import Stretch, stretch
from turingas.isa.arch import WORD_BYTES
from turingas.isa.effects import Effects
from turingas.isa.instruction import Instruction, Label, instructions
from turingas.isa.isa import instruction_set

TABLE_BANK = 2  # of constants: where compilers put jump tables


@dataclass
class Block:
    """Instructions ``start`` to ``end - 1`` run one after the other. ``next`` and ``previous`` are blocks of the same
    function; behind a call, ``next`` is where it returns to. ``calls`` is the first block of the function called by
    the last instruction, None if there is none or it lies elsewhere; ``returns``: the last instruction may be a RET."""

    start: int
    end: int
    next: list[int] = field(default_factory=list)
    previous: list[int] = field(default_factory=list)
    taken: int | None = None  # the one of ``next`` that a branch leads to
    calls: int | None = None
    leaves: bool = False  # it calls something outside of this section, or something that is not known
    returns: bool = False


@dataclass
class Loop:
    """A natural loop: ``header`` dominates all of ``blocks``; ``parent`` is the loop around it (its place in
    Graph.loops), ``depth`` 1 for an outermost one."""

    header: int
    blocks: frozenset[int]
    backs: tuple[int, ...]  # blocks that branch back to the header
    parent: int | None = None
    depth: int = 1


class Graph:
    """The control-flow graph of ``kernel``; ``file`` is named where it has no source lines.

    ``instructions`` holds None where no row of the table explains a word. ``entries`` are the blocks where functions
    begin: that at address 0, then those that a CALL of this section leads to. ``open`` are the indirect branches whose
    targets are not known; they are taken to lead to every block that nothing else leads to.
    """

    def __init__(self, kernel: Kernel, file: str = "") -> None:
        self.kernel, self.file = kernel, file
        self.isa = instruction_set(kernel.arch)
        self.words = list(kernel.code)
        self.instructions = instructions(self.isa, self.words)
        self.blocks: list[Block] = []
        self.block_at: dict[int, int] = {}  # first instruction -> block
        self.entries: list[int] = []
        self.open: list[int] = []
        self._outside = {row.address // WORD_BYTES for row in kernel.relocations}
        self._tables = self._indirect_targets()
        self._cut()
        self._connect()
        self.reachable = self._reach(self.entries[:1])
        self._loops: list[Loop] | None = None
        self._functions: dict[int, list[int]] = {}  # ``function``

    @functools.cached_property
    def stretches(self) -> list[Stretch]:
        """The instructions of each block, as a stretch."""
        arch, words, code = self.kernel.arch, self.words, self.instructions
        return [
            stretch(arch, tuple(words[block.start : block.end]), code[block.start : block.end]) for block in self.blocks
        ]

    @functools.cached_property
    def effects(self) -> list[Effects | None]:
        """What each instruction means for those behind it. AsmError where the latencies are not known."""
        return [this for one in self.stretches for this in one.effects]

    @functools.cached_property
    def mnemonics(self) -> frozenset[str]:
        """The mnemonics of its instructions, without modifiers."""
        return frozenset().union(*[one.mnemonics for one in set(self.stretches)])

    @property
    def touched(self) -> int:
        """The registers that its instructions read and write, as bits."""
        return functools.reduce(operator.or_, [one.touched for one in self.stretches], 0)

    def of(self, *mnemonics: str) -> list[int]:
        """The instructions of these mnemonics, in order."""
        wanted = self.mnemonics.intersection(mnemonics)
        if not wanted:
            return []
        return [
            block.start + n
            for block, one in zip(self.blocks, self.stretches)
            for n in sorted([n for mnemonic in wanted for n in one.mnemonics.get(mnemonic, ())])
        ]

    def text(self, n: int) -> str:
        """Instruction ``n`` as nvdisasm writes it."""
        found = self.instructions[n]
        return found.text() if found else f".word {self.words[n]:#034x}"

    def source(self, n: int) -> tuple[str, int]:
        """File and line that instruction ``n`` comes from; line 0 where it is not known."""
        lines = getattr(self.kernel, "lines", None)
        if lines and n < len(lines) and lines[n]:
            file, line = lines[n]
            return file or self.file, line
        return self.file, 0

    def block_of(self, n: int) -> int:
        """The block that holds instruction ``n``."""
        low, high = 0, len(self.blocks) - 1
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self.blocks[middle].start <= n else (low, middle - 1)
        return low

    # -- blocks

    def _target(self, n: int) -> int | None:
        """The instruction that a direct branch leads to, if it is one of this section."""
        i = self.instructions[n]
        assert i is not None
        label = next((o for o in i.operands if isinstance(o, Label)), None)
        if label is None or label.base is not None or n in self._outside:
            return None
        place = label.address // WORD_BYTES
        return place if 0 <= place < len(self.instructions) and label.address % WORD_BYTES == 0 else None

    def _indirect_targets(self) -> dict[int, list[int]]:
        """Targets of indirect branches, as .nv.info says them: branch -> instructions."""
        found: dict[int, list[int]] = {}
        for info in [*self.kernel.attributes, *(i for infos in self.kernel.infos.values() for i in infos)]:
            if info.name != "INDIRECT_BRANCH_TARGETS":
                continue
            words, at = info.words, 0
            while at + 2 < len(words):  # branch, 0, number of targets, targets
                targets = words[at + 3 : at + 3 + words[at + 2]]
                if any(targets):  # else they are filled in when the cubin is linked
                    found.setdefault(words[at] // WORD_BYTES, []).extend(t // WORD_BYTES for t in targets)
                at += 3 + words[at + 2]
        return found

    def _jump_table(self) -> list[int]:
        """Every word of the bank of jump tables that is the address of an instruction."""
        data = bytes(self.kernel.constants.get(TABLE_BANK, b""))
        words = struct.unpack_from(f"<{len(data) // 4}I", data)
        if not any(words):
            return []
        return sorted({w // WORD_BYTES for w in words if w % WORD_BYTES == 0 and w // WORD_BYTES < self._size})

    @property
    def _size(self) -> int:
        return len(self.instructions)

    def _cut(self) -> None:
        starts = {0}
        for n, i in [(n, i) for n, i in enumerate(self.instructions) if i is not None and i.shape.op.flow]:
            starts.add(n + 1)
            target = self._target(n)
            if target is not None:
                starts.add(target)
            if flow_of(i) == "indirect":
                if n not in self._tables and (table := self._jump_table()):
                    self._tables[n] = table
                starts.update(t for t in self._tables.get(n, ()) if t < self._size)
        bounds = sorted(s for s in starts if s < self._size)
        for start, end in zip(bounds, [*bounds[1:], self._size]):  # none, if there is no code
            self.block_at[start] = len(self.blocks)
            self.blocks.append(Block(start, end))

    def _connect(self) -> None:
        self.entries = [0] if self.blocks else []
        for number, block in enumerate(self.blocks):
            last = block.end - 1
            i = self.instructions[last]
            fall = True
            if i is not None and (flow := flow_of(i)):
                target = self._target(last)
                place = None if target is None else self.block_at[target]
                if flow == "jump":
                    fall = _conditional(i)
                    if place is not None:
                        block.next.append(place)
                        block.taken = place
                elif flow == "call":
                    block.calls, block.leaves = place, place is None
                    if place is not None and place not in self.entries:
                        self.entries.append(place)
                elif flow == "indirect":
                    fall = not i.always
                    if last in self._tables:
                        block.next += [self.block_at[t] for t in self._tables[last] if t < self._size]
                    else:
                        self.open.append(number)
                elif flow == "end":
                    fall = _conditional(i)
                    block.returns = i.base == "RET"
            if fall and number + 1 < len(self.blocks):
                block.next.append(number + 1)
            block.next = list(dict.fromkeys(block.next))
        if self.open:
            known = {to for block in self.blocks for to in block.next} | set(self.entries)
            others = [n for n in range(len(self.blocks)) if n not in known]
            for number in self.open:
                self.blocks[number].next += [n for n in others if n not in self.blocks[number].next]
        for number, block in enumerate(self.blocks):
            for to in block.next:
                self.blocks[to].previous.append(number)

    def _reach(self, roots: list[int]) -> frozenset[int]:
        seen = set(roots)
        stack = list(roots)
        while stack:
            block = self.blocks[stack.pop()]
            for to in [*block.next, *([] if block.calls is None else [block.calls])]:
                if to not in seen:
                    seen.add(to)
                    stack.append(to)
        return frozenset(seen)

    def function(self, entry: int) -> list[int]:
        """The blocks of the function that begins with block ``entry``, in the order of a reverse post-order walk."""
        found = self._functions.get(entry)
        if found is None:
            found = self._functions[entry] = self._walked(entry)
        return found

    def _walked(self, entry: int) -> list[int]:
        order: list[int] = []
        seen = {entry}
        stack = [(entry, iter(self.blocks[entry].next))]
        while stack:
            number, rest = stack[-1]
            for to in rest:
                if to not in seen:
                    seen.add(to)
                    stack.append((to, iter(self.blocks[to].next)))
                    break
            else:
                order.append(number)
                stack.pop()
        return order[::-1]

    @functools.cached_property
    def own(self) -> dict[int, set[int]]:
        """The blocks of each function that is called."""
        return {entry: set(self.function(entry)) for entry in self.entries[1:]}

    def inside(self) -> dict[int, set[int]]:
        """The blocks of each function that is called, with those of the functions that it calls."""
        blocks, own = self.blocks, self.own
        inside: dict[int, set[int]] = {}
        for entry in own:
            seen: set[int] = set()
            stack = [entry]
            calls = {entry}
            while stack:
                members = own[stack.pop()]
                seen |= members
                for number in members:
                    callee = blocks[number].calls
                    if callee is not None and callee not in calls and callee in own:
                        calls.add(callee)
                        stack.append(callee)
            inside[entry] = seen
        return inside

    def order(self) -> tuple[list[int], list[int]]:
        """All blocks, those of a function in reverse post-order; what nothing leads to begins one of its own. And the
        blocks before which anything may have been."""
        ordered: list[int] = []
        seen: set[int] = set()
        led_to = {to for block in self.blocks for to in block.next}
        roots = [n for n in range(len(self.blocks)) if n not in led_to]
        starts = []
        for entry in [*self.entries, *roots, *range(len(self.blocks))]:
            if entry not in seen:
                if entry not in self.entries[1:]:
                    starts.append(entry)
                fresh = [n for n in self.function(entry) if n not in seen]
                ordered += fresh
                seen.update(fresh)
        return ordered, starts

    # -- loops

    @property
    def loops(self) -> list[Loop]:
        """The natural loops, outer ones before inner ones."""
        if self._loops is None:
            found: dict[int, tuple[set[int], list[int]]] = {}
            for entry in self.entries:
                for header, (blocks, backs) in self._natural(entry).items():
                    one, other = found.setdefault(header, (set(), []))
                    one |= blocks
                    other += [b for b in backs if b not in other]
            ordered = sorted(found.items(), key=lambda item: (-len(item[1][0]), item[0]))
            loops: list[Loop] = []
            for header, (blocks, backs) in ordered:
                around = [n for n, loop in enumerate(loops) if header in loop.blocks and blocks <= loop.blocks]
                parent = around[-1] if around else None
                depth = 1 if parent is None else loops[parent].depth + 1
                loops.append(Loop(header, frozenset(blocks), tuple(backs), parent, depth))
            self._loops = loops
        return self._loops

    def dominators(self, entry: int = 0) -> dict[int, int]:
        """Immediate dominators of the blocks of one function (Cooper, Harvey and Kennedy); ``entry`` is its own."""
        order = self.function(entry)
        place = {number: n for n, number in enumerate(order)}
        idom = {entry: entry}
        changed = True
        while changed:
            changed = False
            for number in order[1:]:
                best: int | None = None
                for p in self.blocks[number].previous:
                    if p not in idom:
                        continue
                    if best is None:
                        best = p
                        continue
                    one, two = p, best
                    while one != two:
                        while place[one] > place[two]:
                            one = idom[one]
                        while place[two] > place[one]:
                            two = idom[two]
                    best = one
                if best is not None and idom.get(number) != best:
                    idom[number] = best
                    changed = True
        return idom

    def _natural(self, entry: int) -> dict[int, tuple[set[int], list[int]]]:
        idom = self.dominators(entry)
        found: dict[int, tuple[set[int], list[int]]] = {}
        place = {number: n for n, number in enumerate(self.function(entry))}
        for number in idom:
            for header in self.blocks[number].next:
                if place[header] > place[number] or not _dominates(idom, header, number):
                    continue
                blocks, backs = found.setdefault(header, ({header}, []))
                backs.append(number)
                stack = [number]
                while stack:
                    at = stack.pop()
                    if at not in blocks:
                        blocks.add(at)
                        stack += [p for p in self.blocks[at].previous if p in idom]
        return found


def flow_of(i: Instruction) -> str:
    """Where control goes instead of on: ``Op.flow``."""
    return i.op.flow


def _conditional(i: Instruction) -> bool:
    """Whether the next instruction may follow a branch or an end."""
    return not i.always or not i.guard_decides


def _dominates(idom: dict[int, int], above: int, below: int) -> bool:
    while below != above:
        if idom[below] == below:
            return False
        below = idom[below]
    return True
