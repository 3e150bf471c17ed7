"""Registers that are read where nothing has written them: on no path from the start of the kernel, or on some path not.

Where no path has written a register, what is read is whatever a kernel before has left: a warning. Compiled code never
does that, but for instructions that replace some bits of a register. Where some path has not, it may be meant: paths
that values exclude are not told from others, and compilers read registers whose value does not matter. That is a note,
with the path. A write under a guard leaves a register unwritten where the guard is false: of each one it is known which
predicates hold wherever it is unwritten (turingas.flow.guards), so that a read under the same guard is none of
something unwritten, nor one behind a branch that such a thread does not take.

Device functions are called with registers that their callers have written, and code elsewhere may write any: nothing is
said of the former, nor behind calls of the latter.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce

from turingas.check.finding import Finding
from turingas.check.report import at
from turingas.check.rules import rule
from turingas.cubin.model import WORD_BYTES
from turingas.flow.graph import Graph
from turingas.flow.guards import IMPOSSIBLE, TRUE, guards, opposite, row
from turingas.flow.live import FILES, ways
from turingas.isa.effects import FIRST, Effects, bits, literal, register_name

START = reduce(int.__or__, FILES.values())  # what nothing has written when a kernel starts
PREDICATES = FILES["P"] | FILES["UP"]
WHOLE = ("P2R", "R2P")  # they move all predicates of a file, whichever are needed later
SELECTS = ("SEL", "FSEL")  # what they do not take does not matter
MERGES = ("PRMT", "LOP3")  # they may replace some bits of a register: the others may be anything
SHOWN = 6  # branches of a path

State = dict[int, int]  # register that is unwritten -> literals that hold in every thread where it is


@rule("uninitialised", "A register is read that nothing has written")
def check(graph: Graph) -> Iterator[Finding]:
    """Reads of registers that are unwritten on all paths, or on some."""
    if graph.kernel.entry and graph.blocks and (suspects := _Suspects(graph)).some:
        yield from _Walk(graph, suspects).run()


def _wanted(this: Effects) -> int:
    """The registers that an instruction needs, as bits."""
    mask = this.read & START
    if this.i.base in WHOLE:
        mask &= ~PREDICATES
    elif this.i.base.removeprefix("U") in MERGES:
        mask &= ~this.written
    elif this.i.base in SELECTS:
        mask &= PREDICATES
    return mask


class _Suspects:
    """What is read unwritten if guards are not looked at, which is quick, and mostly nothing. ``some``: registers that
    are so on some path; ``reads``: (instruction, register) that is so on all of them."""

    def __init__(self, graph: Graph) -> None:
        blocks, effects = graph.blocks, graph.effects
        needs, sure, maybe = ([0] * len(blocks) for _ in range(3))
        for number, block in enumerate(blocks):
            for this in effects[block.start : block.end]:
                if this is not None:
                    needs[number] |= _wanted(this) & ~sure[number]
                    maybe[number] |= this.written
                    if this.guard is None:
                        sure[number] |= this.written
            if block.leaves:
                sure[number] = maybe[number] = START
        next_ = ways(graph)
        given = sum(1 << FIRST["UR"] + n for n in graph.isa.forms.arch.given)
        unwritten, written = {0: START & ~given}, {0: given}
        todo = [0]
        while todo:
            number = todo.pop()
            left, more = unwritten[number] & ~sure[number], written[number] | maybe[number]
            for to in next_[number]:
                if left & ~unwritten.get(to, 0) or more & ~written.get(to, 0):
                    unwritten[to] = unwritten.get(to, 0) | left
                    written[to] = written.get(to, 0) | more
                    todo.append(to)
        self.some = reduce(int.__or__, [mask & needs[number] for number, mask in unwritten.items()], 0)
        self.reads: set[tuple[int, int]] = set()
        for number, known in written.items() if self.some else ():
            if not needs[number] & ~known:
                continue
            for n in range(blocks[number].start, blocks[number].end):
                this = effects[n]
                if this is not None:
                    self.reads.update((n, register) for register in bits(_wanted(this) & ~known))
                    known |= this.written


class _Walk:
    """Passes over the blocks until nothing changes, for the registers that are suspected alone."""

    def __init__(self, graph: Graph, suspects: _Suspects) -> None:
        self.graph, self.suspects = graph, suspects
        self.guards = guards(graph)
        self.at: dict[int, State] = {}
        self.came: dict[tuple[int, int], int] = {}  # block, register -> the block that it came unwritten from first
        self.found: dict[int, int] = {}  # register -> the first instruction that reads it

    def run(self) -> Iterator[Finding]:
        """A finding for each register, at the first place that reads it; what no path has written goes first."""
        self._converge()
        told = set()
        for n, register in sorted(self.suspects.reads):
            if register not in told:
                told.add(register)
                name = register_name(register)
                message = f"{name} is read, and nothing has written it"
                yield at(self.graph, n, "uninitialised", "warning", message, f"write {name} before it is read")
        for number in sorted(self.at):
            self._through(number, dict(self.at[number]), True)
        for register, n in self.found.items():
            if register not in told:
                yield self._on_a_path(register, n)

    def _converge(self) -> None:
        blocks = self.graph.blocks
        callers: dict[int, list[int]] = {}
        for number, block in enumerate(blocks):
            if block.calls is not None:
                callers.setdefault(block.calls, []).append(number)
        after: dict[int, State] = {}  # block that calls -> what is unwritten when it does
        returned: dict[int, State] = {}  # function -> what is unwritten when it returns
        self.at = {0: dict.fromkeys(bits(self.suspects.some), 0)}
        self.todo = [0]
        while self.todo:
            number = self.todo.pop()
            block = blocks[number]
            out = self._through(number, dict(self.at[number]))
            if block.calls is not None:
                after[number] = out
                self._send(number, block.calls, out)
                self._come_back(number, after, returned)
                i = self.graph.instructions[block.end - 1]
                if i is None or i.always:
                    continue
            elif block.leaves:
                out = {}
            for to in block.next:
                known = self.guards.along(number, to)
                if known != IMPOSSIBLE:
                    here = row(known, TRUE)
                    wrong = opposite(here)
                    self._send(number, to, {r: holds | here for r, holds in out.items() if not holds & wrong})
            if block.returns:
                for entry, members in self.graph.own.items():
                    if number in members and _join(returned.setdefault(entry, {}), out) is not None:
                        for caller in callers.get(entry, ()):
                            self._come_back(caller, after, returned)

    def _come_back(self, caller: int, after: dict[int, State], returned: dict[int, State]) -> None:
        entry = self.graph.blocks[caller].calls
        if caller in after and entry in returned:
            state = {r: holds for r, holds in returned[entry].items() if r in after[caller]}
            for to in self.graph.blocks[caller].next:
                self._send(caller, to, state)

    def _send(self, number: int, to: int, state: State) -> None:
        fresh = _join(self.at.setdefault(to, {}), state)
        if fresh is not None:
            for register in fresh:
                self.came[to, register] = number
            self.todo.append(to)

    def _through(self, number: int, state: State, telling: bool = False) -> State:
        """Through a block, to its end."""
        block, some = self.graph.blocks[number], self.suspects.some
        for n in range(block.start, block.end):
            this = self.graph.effects[n]
            if this is None or not state:
                continue
            if telling:
                self._read(n, this, state)
            if this.written & some:
                _write(this, state, this.written & some)
            if this.clears:
                for register in state:
                    state[register] &= ~this.clears
        return state

    def _read(self, n: int, this: Effects, state: State) -> None:
        for register in bits(_wanted(this) & self.suspects.some):
            if register in state and register not in self.found:
                guard = this.guard is not None and register == this.guard[0]
                holds = self.guards.ways[n] if guard else self.guards.runs[n]
                if not state[register] & opposite(holds):
                    self.found[register] = n

    def _on_a_path(self, register: int, n: int) -> Finding:
        graph, name = self.graph, register_name(register)
        path = [graph.block_of(n)]
        while path[0] and (before := self.came.get((path[0], register))) is not None and before not in path:
            path.insert(0, before)
        steps = []
        for one, to in zip(path, path[1:]):
            block = graph.blocks[one]
            if len(block.next) > 1 or block.calls == to:
                last = block.end - 1
                line = graph.source(last)[1]
                where = f"line {line}" if line else f"0x{WORD_BYTES * last:04x}"
                taken = to in (block.taken, block.calls)
                steps.append(f"the branch at {where} is {'taken' if taken else 'not taken'}")
        more = f" and {len(steps) - SHOWN} more" if len(steps) > SHOWN else ""
        how = ", ".join(steps[:SHOWN]) + more if steps else "the guards of what writes it are false"
        message = f"{name} is read, and on a path nothing has written it: {how}"
        return at(graph, n, "uninitialised", "note", message, f"write {name} on every path, if its value matters here")


def _write(this: Effects, state: State, mask: int) -> None:
    """Registers are written: where the guard is false they stay as they are."""
    other = 0 if this.guard is None else 1 << (literal(*this.guard) ^ 1)
    for register in bits(mask):
        if register in state:
            holds = state[register] | other
            if not other or holds & opposite(holds):
                del state[register]
            else:
                state[register] = holds


def _join(into: State, state: State) -> list[int] | None:
    """Take over what is unwritten in another state: the registers that are new, None if nothing has changed."""
    fresh: list[int] = []
    changed = False
    for register, holds in state.items():
        known = into.get(register)
        if known is None:
            into[register] = holds
            fresh.append(register)
        elif known & ~holds:
            into[register] = known & holds
            changed = True
    return fresh if fresh or changed else None
