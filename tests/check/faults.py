"""Breaks one thing at random in a correct kernel and asks the linter: ``python -m tests.check.faults PATH ...``.

A path is a cubin, a library, a wheel of one, or a folder of these: a kernel of each cubin is drawn, in an order drawn
by names, until there are enough. ``--tests`` adds tests/kernels. What is broken: a stall made shorter ("stall"), a
scoreboard that a result ("write") or the sources ("read") no longer set, one that is not waited for ("wait").

Only faults count that change what the hardware may compute. That is decided by ``Oracle``, which knows nothing of the
linter's own walk: from every instruction it follows every path, one instruction at a time, and looks whether a result
is used before it is there, or a source overwritten before it is read. Slow, and meant to be plainly right. The facts
of the hardware (turingas/isa/latency) and the edges of the graph are the same.
"""

from __future__ import annotations

import argparse
import datetime
import itertools
import json
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from tests.kernels import cases
from tests.tools.corpus import Source, share, sources
from turingas.check import hazards
from turingas.cubin.cubin import Cubin
from turingas.cubin.model import Kernel
from turingas.flow.graph import Graph, flow_of
from turingas.isa import control
from turingas.isa.instruction import Access, Imm, Instruction, Name, instruction
from turingas.isa.latency import latencies

NONE = 7
MOST_STATES = 200_000  # of one walk
DEEPEST = 3  # calls within calls
Register = tuple[str, int]
Use = tuple[int, int, str]  # first instruction, second, what goes wrong


class TooMany(Exception):
    """A walk has more states than are followed."""


@dataclass(frozen=True)
class Item:
    """Something that an instruction has begun: a result of fixed or variable latency, or sources that it still has to
    read ("late"), or results that come with the sources ("early")."""

    start: int
    kind: str
    registers: frozenset[Register]


@dataclass(frozen=True)
class At:
    """One state of a walk: the next instruction, cycles since the first one (up to the longest latency), scoreboards
    that tell of the item: those that a wait sees, and those set too shortly before; how often each was set since;
    what is not settled yet; whether the guard of the first instruction still says whether that ran."""

    pc: int
    cycles: int
    ready: int
    fresh: int
    since: tuple[int, ...]
    open: frozenset[Register]
    guard: bool
    stack: tuple[int, ...]


def registers(access: Access) -> list[Register]:
    return [(access.file, n) for n in range(access.first, access.first + access.count)]


class Oracle:
    """What can go wrong in one kernel, by following all paths from each instruction."""

    def __init__(self, kernel: Kernel) -> None:
        self.graph = Graph(kernel)
        self.lat = latencies(kernel.arch)
        self.code = list(self.graph.instructions)
        self.longest = max(n for (hazard, *_), n in self.lat.cycles.items() if hazard != "issue")
        self.counts = any(i is not None and i.base == "DEPBAR" for i in self.code)
        self.returns: dict[int, list[int]] = {}  # block of a RET -> where it may return to
        for entry in self.graph.entries[1:]:
            sites = [b.end for b in self.graph.blocks if b.calls == entry]
            for number in self.graph.function(entry):
                if self.graph.blocks[number].returns:
                    self.returns.setdefault(number, []).extend(sites)
        self.visited: dict[Item, set[int]] = {}
        self.uses: dict[Item, set[Use]] = {}
        self.problem = ""
        for n in range(len(self.code)):
            for item in self.items(n):
                try:
                    self.uses[item], self.visited[item] = self.walk(item)
                except TooMany as error:
                    self.problem = str(error)
                    return

    def with_fault(self, n: int, word: int) -> set[Use]:
        """What goes wrong when instruction ``n`` is ``word``, and does not without that."""
        old = self.code[n]
        self.code[n] = instruction(self.graph.isa, word, 16 * n)
        try:
            found: set[Use] = set()
            for item, seen in self.visited.items():
                if n in seen or item.start == n:
                    found |= self.walk(item)[0] - self.uses[item]
            return found
        finally:
            self.code[n] = old

    def items(self, n: int) -> Iterator[Item]:
        i = self.code[n]
        if i is None:
            return
        kinds: dict[str, set[Register]] = {"fixed": set(), "variable": set(), "early": set(), "late": set()}
        for write in self.lat.writes(i):
            if not self.lat.variable(i, write):
                kinds["fixed"].update(registers(write))
            elif self.lat.with_read(i, write):
                kinds["early"].update(registers(write))
            else:
                kinds["variable"].update(registers(write))
        written = {r for write in i.writes for r in registers(write)}
        for read in i.reads:
            if self.lat.late(i, read):
                kinds["late"].update(r for r in registers(read) if r not in written)
        for kind, found in kinds.items():
            if found:
                yield Item(n, kind, frozenset(found))

    def own(self, i: Instruction, kind: str) -> int:
        """The scoreboards of ``i`` that tell when something of this kind is done."""
        mask = 0
        if kind != "fixed" and i.control.write != NONE:
            mask |= 1 << i.control.write
        if kind in ("late", "early") and i.control.read != NONE:
            mask |= 1 << i.control.read
        return mask

    def walk(self, item: Item) -> tuple[set[Use], set[int]]:
        first = self.code[item.start]
        assert first is not None
        guard_lost = any((first.guard.file, first.guard.index) in registers(w) for w in first.writes)
        mine = self.own(first, item.kind)
        start = self.step(
            At(item.start, 0, 0, 0, (0,) * 6, item.registers, not first.always and not guard_lost, ()), first, mine
        )
        todo = list(self.follow(start, item.start, first, first))
        seen: set[At] = set(todo)
        uses: set[Use] = set()
        while todo:
            if len(seen) > MOST_STATES:
                raise TooMany(f"more than {MOST_STATES} states from {16 * item.start:#x}")
            at = todo.pop()
            i = self.code[at.pc]
            if i is None:
                nexts = list(self.follow(replace(at, cycles=at.cycles + 1), at.pc, None, first))
            else:
                after = self.meet(item, first, at, i, uses)
                nexts = [] if after is None else list(self.follow(after, at.pc, i, first))
            for state in nexts:
                if state not in seen:
                    seen.add(state)
                    todo.append(state)
        return uses, {state.pc for state in seen}

    def meet(self, item: Item, first: Instruction, at: At, i: Instruction, uses: set[Use]) -> At | None:
        """The item comes to an instruction: what goes wrong there, and what is left; None if nothing is."""
        if item.kind == "fixed":
            if at.cycles >= self.longest:
                return None
        else:
            if at.ready & i.control.wait or (at.ready | at.fresh) & self.waits(i, at):
                return None
            if item.kind == "late" and self.lat.flushes(i) == self.lat.queue(first):
                return None
        left = set(at.open)
        apart = at.guard and (first.guard.file, first.guard.index, not first.guard.inv) == (
            i.guard.file, i.guard.index, i.guard.inv,
        )  # fmt: skip
        if not apart:
            if item.kind != "late":
                for read in self.lat.reads(i):
                    for register in registers(read):
                        if register in at.open and self.too_early(item, first, at, i, register, read, "raw"):
                            uses.add((item.start, at.pc, "raw"))
                            left.discard(register)
            for write in self.lat.writes(i):
                for register in registers(write):
                    if register in at.open:
                        kind = "war" if item.kind == "late" else "waw"
                        if self.too_early(item, first, at, i, register, write, kind):
                            uses.add((item.start, at.pc, kind))
                            left.discard(register)
                        if i.always or item.kind != "fixed":
                            left.discard(register)
        if not left:
            return None
        covers = 0
        if item.kind != "fixed" and self.lat.queue(i) == self.lat.queue(first):
            if item.kind in ("late", "early"):
                covers = self.own(i, "late")
            elif self.lat.in_order(first):
                covers = self.own(i, "variable")
        guard = at.guard and not any((first.guard.file, first.guard.index) in registers(w) for w in i.writes)
        return self.step(replace(at, open=frozenset(left), guard=guard), i, covers)

    def too_early(
        self, item: Item, first: Instruction, at: At, i: Instruction, register: Register, access: Access, kind: str
    ) -> bool:
        if item.kind == "fixed":
            write = next(w for w in self.lat.writes(first) if register in registers(w))
            need = self.lat.raw if kind == "raw" else self.lat.waw
            return at.cycles < need(first, write, i, access)
        if kind == "raw":
            return True
        behind = self.lat.queue(i) == self.lat.queue(first) and self.lat.variable(i, access)
        return not (behind and (kind == "war" or self.lat.in_order(first)))

    def waits(self, i: Instruction, at: At) -> int:
        """The scoreboards that a DEPBAR itself waits for, those set just before too."""
        if i.base != "DEPBAR":
            return 0
        sb = next(int(o.text[2:]) for o in i.operands if isinstance(o, Name) and o.text.startswith("SB"))
        most = next(o.value for o in i.operands if isinstance(o, Imm) and o.kind == "int")
        mask = sum(o.bits for o in i.operands if isinstance(o, Imm) and o.kind == "set")
        if at.since[sb] >= most:
            mask |= 1 << sb
        return mask

    def step(self, at: At, i: Instruction, covers: int) -> At:
        """Behind an instruction that sets scoreboards which tell of the item."""
        stall = self.lat.stall(i)
        since = at.since
        if self.counts:
            known = at.ready | at.fresh
            sets = {sb for sb in (i.control.write, i.control.read) if sb != NONE}
            since = tuple(min(64, n + 1) if known >> sb & 1 and sb in sets else n for sb, n in enumerate(since))
        ready, fresh = at.ready | at.fresh, covers & ~(at.ready | at.fresh)
        if stall >= 2:
            ready, fresh = ready | fresh, 0
        return replace(at, cycles=min(at.cycles + stall, self.longest), ready=ready, fresh=fresh, since=since)

    def follow(self, at: At, n: int, i: Instruction | None, first: Instruction) -> Iterator[At]:
        """Where the warp goes behind instruction ``n``. Ways on which the first one would not have run are left out."""
        block = self.graph.blocks[self.graph.block_of(n)]
        if n != block.end - 1:
            yield replace(at, pc=n + 1)
            return
        always = i is None or i.always
        if block.calls is not None and len(at.stack) < DEEPEST:
            yield replace(at, pc=self.graph.blocks[block.calls].start, stack=(*at.stack, block.end))
        if (block.calls is not None or block.leaves) and always:
            return
        if block.returns:
            for to in at.stack[-1:] or self.returns.get(self.graph.block_of(n), ()):
                yield replace(at, pc=to, stack=at.stack[:-1])
        for to in block.next:
            if at.guard and i is not None and self.contradicts(first, i, to == block.taken, len(block.next)):
                continue
            yield replace(at, pc=self.graph.blocks[to].start)

    def contradicts(self, first: Instruction, i: Instruction, taken: bool, ways: int) -> bool:
        """Whether ``i`` goes this way only where the guard of ``first`` does not hold."""
        if i.always or (i.guard.file, i.guard.index) != (first.guard.file, first.guard.index):
            return False
        same = i.guard.inv == first.guard.inv
        if flow_of(i) == "end":
            return same and i.guard_decides
        if flow_of(i) != "jump" or ways != 2:
            return False
        return not same if taken else same and i.guard_decides


# -- faults


@dataclass(frozen=True)
class Fault:
    """Instruction ``n`` becomes ``word``; ``what`` says what that is."""

    n: int
    word: int
    what: str


KINDS = ("stall", "write", "wait", "read")


def place(word: int, value: int, at: int, width: int) -> int:
    return word & ~(((1 << width) - 1) << at) | value << at


def faults(code: list[Instruction | None], kind: str) -> list[Fault]:
    """All faults of one kind: each stall with each smaller one, each scoreboard that can go, each wait bit."""
    found = []
    for n, i in enumerate(code):
        if i is None:
            continue
        c, word = i.control, i.word
        if kind == "stall":
            for less in range(1, c.stall):
                found.append(Fault(n, place(word, less, control.STALL, 4), f"stall {c.stall} -> {less}"))
        elif kind == "write" and c.write != NONE:
            found.append(Fault(n, place(word, NONE, control.WRITE, 3), f"no write scoreboard {c.write}"))
        elif kind == "read" and c.read != NONE:
            found.append(Fault(n, place(word, NONE, control.READ, 3), f"no read scoreboard {c.read}"))
        elif kind == "wait":
            for sb in range(6):
                if c.wait >> sb & 1:
                    less = c.wait & ~(1 << sb)
                    found.append(Fault(n, place(word, less, control.WAIT, 6), f"no wait for scoreboard {sb}"))
    return found


def reported(kernel: Kernel, fault: Fault) -> bool:
    """Whether the linter calls the kernel with this fault an error. It must have been without one before."""
    words = list(kernel.code)
    words[fault.n] = fault.word
    broken = replace(kernel)
    broken.words = words
    return any(f.severity == "error" for f in hazards.check(Graph(broken)))


@dataclass
class Result:
    """``real`` faults of each kind, how many of them were reported (``seen``), and the first few that were not.
    ``harmless``: of some changes that the oracle finds harmless, how many there were, and how many were reported
    (``alarms``)."""

    real: Counter[str]
    seen: Counter[str]
    missed: list[str]
    harmless: list[int]
    kernels: int = 0
    refused: list[str] = field(default_factory=list)
    alarms: list[str] = field(default_factory=list)

    def figures(self) -> dict[str, int]:
        """Kernels, faults, and changes that matter to nobody, with how many of both were reported."""
        return {"kernels": self.kernels, "faults": self.real.total(), "reported": self.seen.total(),
                "harmless": self.harmless[0], "alarms": self.harmless[1]}  # fmt: skip

    def __str__(self) -> str:
        lines = [f"{kind:6} {self.seen[kind]:6} of {self.real[kind]:6} reported" for kind in KINDS]
        lines.append(f"all    {self.seen.total():6} of {self.real.total():6} reported")
        lines.append(f"harmless changes: {self.harmless[1]} of {self.harmless[0]} reported")
        lines.append(f"{self.kernels} kernels; {len(self.refused)} more are not correct as they are")
        return "\n".join([*lines, *self.missed, *self.alarms[:5], *self.refused[:5]])


def run(kernels: list[Kernel], count: int, seed: int, largest: int = 2000, skip: bool = False) -> Result:
    """``count`` faults that matter, over all kernels of at most ``largest`` instructions in turn, of all kinds in
    turn. Kernels that the linter or the oracle find wrong as they are, are no correct kernels, and raise ValueError, or
    with ``skip`` are named in the result."""
    dice = random.Random(seed)
    result = Result(Counter(), Counter(), [], [0, 0])
    usable = [k for k in kernels if 0 < len(k.code) <= 16 * largest]
    dice.shuffle(usable)
    each = -(-count // max(1, len(usable)))
    for kernel in usable:
        if result.real.total() >= count:
            break
        wrong = [str(f) for f in hazards.check(Graph(kernel)) if f.severity == "error"]
        oracle = Oracle(kernel)
        if oracle.problem:
            continue
        wrong += [f"oracle: {use}" for uses in oracle.uses.values() for use in uses]
        if wrong:
            what = f"{kernel.name} of {kernel.arch} is not correct: " + "; ".join(wrong[:3])
            if not skip:
                raise ValueError(what)
            result.refused.append(what)
            continue
        result.kernels += 1
        for kind in KINDS:
            candidates = faults(oracle.code, kind)
            dice.shuffle(candidates)
            done = quiet = 0
            for fault in candidates[: 30 * each]:
                if done >= -(-each // len(KINDS)):
                    break
                uses = oracle.with_fault(fault.n, fault.word)
                if not uses:
                    if quiet < each:
                        quiet += 1
                        result.harmless[0] += 1
                        if reported(kernel, fault):
                            result.harmless[1] += 1
                            at = f"{kernel.arch} {kernel.name}+{16 * fault.n:#x}"
                            result.alarms.append(f"{at} {fault.what}: reported, and harmless")
                    continue
                done += 1
                result.real[kind] += 1
                if reported(kernel, fault):
                    result.seen[kind] += 1
                elif len(result.missed) < 20:
                    result.missed.append(
                        f"{kernel.arch} {kernel.name}+{16 * fault.n:#x} {fault.what}: not reported; {sorted(uses)[:3]}"
                    )
    return result


def drawn(found: Iterable[Source], largest: int) -> Iterator[Kernel]:
    """A kernel of each cubin that has one of at most ``largest`` instructions: the first in an order of its own."""
    for source in found:
        usable = [k for k in Cubin.from_bytes(source.read()).texts if 0 < len(k.words) <= largest]
        if usable:
            yield min(usable, key=lambda k: share(k.name))


def compiled() -> Iterator[Kernel]:
    """What tests/kernels has, for each architecture."""
    for source, arch in sorted({(case.source, arch) for case in cases.CASES for arch in case.archs}):
        yield from Cubin.from_bytes(cases.cubin(source, arch)).texts


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("paths", nargs="*", type=Path, help="cubins, libraries, wheels, folders")
    parser.add_argument("--tests", action="store_true", help="the kernels of tests/kernels, too")
    parser.add_argument("--each", type=int, default=8, help="how many faults of a kernel")
    parser.add_argument("--count", type=int, default=1000, help="how many faults that matter")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--largest", type=int, default=2000, help="instructions of a kernel")
    parser.add_argument("--json", type=Path, help="where the figures are kept, which `make readme` puts into README.md")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        of_tests = list(compiled()) if options.tests else []
        found = itertools.chain(of_tests, drawn(sources(options.paths, Path(folder)), options.largest))
        kernels = list(itertools.islice(found, -(-options.count // options.each) + len(of_tests)))
    result = run(kernels, options.count, options.seed, options.largest, skip=True)
    print(result)
    if options.json:
        options.json.write_text(json.dumps(result.figures() | {"date": str(datetime.date.today())}, indent=1) + "\n")
    return 0 if result.seen.total() >= 0.99 * result.real.total() else 1


if __name__ == "__main__":
    sys.exit(main())
