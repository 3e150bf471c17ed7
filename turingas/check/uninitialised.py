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

from collections.abc import Iterable, Iterator
from functools import lru_cache, reduce
from operator import or_
from typing import NamedTuple

from turingas.check.finding import Finding
from turingas.check.report import at
from turingas.check.rules import rule
from turingas.flow.graph import Graph
from turingas.flow.guards import IMPOSSIBLE, TRUE, guards, opposite, row
from turingas.flow.live import FILES, PASSED, ways
from turingas.flow.stretch import REMEMBERED, Stretch
from turingas.isa.arch import WORD_BYTES
from turingas.isa.effects import FIRST, Effects, bits, literal, register_name

START = reduce(int.__or__, FILES.values())  # what nothing has written when a kernel starts
PREDICATES = FILES["P"] | FILES["UP"]
SELECTS = ("SEL", "FSEL")  # what they do not take does not matter
MERGES = ("PRMT", "LOP3")  # they may replace some bits of a register: the others may be anything
SPILLS = ("STL",)  # half of a pair that compilers put away may have no value
ODD = frozenset(SPILLS) | frozenset(up + base for base in (*SELECTS, *MERGES) for up in ("", "U"))
SHOWN = 6  # branches of a path

#: literals that hold in every thread where some registers are unwritten -> these registers, as bits. (Few sets of
#: literals stand for many registers.)
State = dict[int, int]


@rule("uninitialised", "A register is read that nothing has written")
def check(graph: Graph) -> Iterator[Finding]:
    """Reads of registers that are unwritten on all paths, or on some."""
    if graph.kernel.entry and graph.blocks and (suspects := _Suspects(graph)).some:
        yield from _Walk(graph, suspects).run()


def _wanted(this: Effects) -> int:
    """The registers that an instruction needs, as bits."""
    mask = this.read & START
    if this.i.shape.moves:  # all predicates of a file, whichever are needed later
        return mask & ~PREDICATES
    if this.i.base not in ODD:
        return mask
    if this.i.base.removeprefix("U") in MERGES:
        mask &= ~this.written
    elif this.i.base in SPILLS:
        mask &= sum(touch.mask for touch in this.reading if touch.access.what == "address")
    else:
        mask &= PREDICATES
    return mask


def _in_vain(effects: list[Effects | None]) -> bool:
    """Whether what the first of these instructions writes is written again before one of them reads it. (Compilers
    leave such copies of registers behind.)"""
    this = effects[0]
    left = this.written & START if this is not None else 0
    if not left:
        return False
    for other in effects[1:]:
        if other is not None:
            if other.read & left:
                return False
            left &= ~other.written if other.guard is None else START
            if not left:
                return True
    return False


def _copied(this: Effects) -> dict[int, int]:
    """Of a plain copy of registers: source -> destination; nothing of other instructions. (Half of a pair that
    compilers copy may have no value.)"""
    i = this.i
    if "copy" not in i.op.traits and "MOV" not in i.mods:
        return {}
    read = bits(reduce(or_, [touch.mask for touch in this.reading if touch.access.what != "guard"], 0))
    written = bits(this.written)
    return dict(zip(read, written)) if len(read) == len(written) else {}


class _Needs:
    """Which registers are needed behind each block, and so whether what a copy has written ever is: by something other
    than a copy that nobody needs."""

    def __init__(self, graph: Graph) -> None:
        self.blocks, self.effects = graph.blocks, graph.effects
        next_ = ways(graph)
        before: list[list[int]] = [[] for _ in next_]
        for number, behind in enumerate(next_):
            for to in behind:
                before[to].append(number)
        self.behind = [PASSED if block.leaves or block.returns else 0 for block in self.blocks]
        todo = list(range(len(self.blocks)))
        while todo:
            number = todo.pop()
            needed = self.before(number, self.blocks[number].start)
            for one in before[number]:
                if needed & ~self.behind[one]:
                    self.behind[one] |= needed
                    todo.append(one)

    def before(self, number: int, first: int) -> int:
        """What is needed in front of instruction ``first`` of a block."""
        needed = self.behind[number]
        for this in reversed(self.effects[first : self.blocks[number].end]):
            if this is not None:
                copied = _copied(this)
                more = sum(1 << a for a, b in copied.items() if needed >> b & 1)
                more |= _wanted(this) & (PREDICATES if copied else START)
                needed = more | (needed & ~this.written if this.guard is None else needed)
        return needed


class _Summary(NamedTuple):
    """Registers of a block, as bits: those that it needs from before, those that it writes perhaps, and for sure."""

    needs: int
    maybe: int
    sure: int


@lru_cache(REMEMBERED)
def _summary(stretch: Stretch) -> _Summary:
    need = some = always = 0
    for this in stretch.effects:
        if this is not None:
            if this.read & ~always:
                need |= _wanted(this) & ~always
            some |= this.written
            if this.guard is None:
                always |= this.written
    return _Summary(need, some, always)


class _Suspects:
    """What is read unwritten if guards are not looked at, which is quick, and mostly nothing. ``some``: registers that
    are so on some path; ``reads``: (instruction, register) that is so on all of them; ``unneeded``: of copies of such,
    the registers whose copy nobody needs, as bits."""

    def __init__(self, graph: Graph) -> None:
        blocks, effects = graph.blocks, graph.effects
        found = [_summary(stretch) for stretch in graph.stretches]
        needs = [one.needs for one in found]
        maybe, sure = (
            [START if block.leaves else registers for block, registers in zip(blocks, of)]
            for of in ([one.maybe for one in found], [one.sure for one in found])
        )
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
        self.unneeded: dict[int, int] = {}
        needs_of: _Needs | None = None
        for number, known in written.items() if self.some else ():
            if not needs[number] & ~known:
                continue
            for n in range(blocks[number].start, blocks[number].end):
                this = effects[n]
                if this is not None:
                    wanted = _wanted(this) & ~known if this.read & ~known else 0
                    if wanted and (copied := _copied(this)):
                        needs_of = needs_of or _Needs(graph)
                        needed = needs_of.before(number, n + 1)
                        self.unneeded[n] = sum(1 << a for a, b in copied.items() if not needed >> b & 1)
                        wanted &= ~self.unneeded[n]
                    if wanted and not _in_vain(effects[n : blocks[number].end]):
                        self.reads.update((n, register) for register in bits(wanted))
                    known |= this.written


class _Walk:
    """Passes over the blocks until nothing changes, for the registers that are suspected alone."""

    def __init__(self, graph: Graph, suspects: _Suspects) -> None:
        self.graph, self.suspects = graph, suspects
        self.guards = guards(graph)
        self.at: dict[int, State] = {}
        #: block -> registers, as bits, and the block that they came unwritten from first
        self.came: dict[int, list[tuple[int, int]]] = {}
        self.found: dict[int, int] = {}  # register -> the first instruction that reads it
        #: of each block the instructions that matter, and the registers that they need and write
        self.steps: list[list[tuple[int, Effects, int, int]]] = []
        for block, stretch in zip(graph.blocks, graph.stretches):
            steps: list[tuple[int, Effects, int, int]] = []
            self.steps.append(steps)
            if not stretch.touched & (suspects.some | PREDICATES):
                continue
            for n, this in enumerate(graph.effects[block.start : block.end], block.start):
                if this is not None and ((this.read | this.written) & suspects.some or this.clears):
                    wanted = _wanted(this) & suspects.some if this.read & suspects.some else 0
                    wanted &= ~suspects.unneeded.get(n, 0)
                    if wanted and _in_vain(graph.effects[n : block.end]):
                        wanted = 0
                    steps.append((n, this, wanted, this.written & suspects.some))

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
            self._through(number, self.at[number], True)
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
        self.at = {0: {0: self.suspects.some}}
        self.todo = [0]
        while self.todo:
            number = self.todo.pop()
            block = blocks[number]
            out = self._through(number, self.at[number])
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
                    self._send(number, to, _assumed(out, row(known, TRUE)))
            if block.returns:
                for entry in [entry for entry, members in self.graph.own.items() if number in members]:
                    before = returned.get(entry, {})
                    returned[entry] = _joined(before, out)
                    if returned[entry] != before:
                        for caller in callers.get(entry, ()):
                            self._come_back(caller, after, returned)

    def _come_back(self, caller: int, after: dict[int, State], returned: dict[int, State]) -> None:
        entry = self.graph.blocks[caller].calls
        if caller in after and entry in returned:
            before = _registers(after[caller])
            for to in self.graph.blocks[caller].next:
                self._send(caller, to, _grouped((holds, mask & before) for holds, mask in returned[entry].items()))

    def _send(self, number: int, to: int, state: State) -> None:
        before = self.at.get(to, {})
        joined = _joined(before, state)
        if joined != before:
            self.came.setdefault(to, []).append((_registers(joined) & ~_registers(before), number))
            self.at[to] = joined
            self.todo.append(to)

    def _through(self, number: int, state: State, telling: bool = False) -> State:
        """Through a block, to its end."""
        for n, this, wanted, written in self.steps[number]:
            if not state:
                break
            if telling and wanted:
                self._read(n, this, wanted, state)
            if written:
                state = _written(this, state, written)
            if this.clears:
                state = _grouped((holds & ~this.clears, mask) for holds, mask in state.items())
        return state

    def _read(self, n: int, this: Effects, wanted: int, state: State) -> None:
        for register in bits(wanted & _registers(state)):
            if register not in self.found:
                guard = this.guard is not None and register == this.guard[0]
                here = self.guards.ways[n] if guard else self.guards.runs[n]
                if not next(holds for holds, mask in state.items() if mask >> register & 1) & opposite(here):
                    self.found[register] = n

    def _on_a_path(self, register: int, n: int) -> Finding:
        graph, name = self.graph, register_name(register)
        path = [graph.block_of(n)]
        while path[0]:
            came = (before for registers, before in self.came.get(path[0], ()) if registers >> register & 1)
            if (before := next(came, None)) is None or before in path:
                break
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


def _grouped(parts: Iterable[tuple[int, int]]) -> State:
    """Literals and registers as a state."""
    found: State = {}
    for holds, mask in parts:
        if mask:
            found[holds] = found.get(holds, 0) | mask
    return found


def _assumed(state: State, here: int) -> State:
    """What is unwritten where the literals of ``here`` hold."""
    if not here:
        return state
    wrong = opposite(here)
    return _grouped((holds | here, mask) for holds, mask in state.items() if not holds & wrong)


def _written(this: Effects, state: State, registers: int) -> State:
    """Registers are written: where the guard is false they stay as they are."""
    left = [(holds, mask & ~registers) for holds, mask in state.items()]
    if this.guard is not None:
        other = 1 << (literal(*this.guard) ^ 1)
        parts = [(holds | other, mask & registers) for holds, mask in state.items()]
        left += [(holds, mask) for holds, mask in parts if not holds & opposite(holds)]
    return _grouped(left)


def _joined(one: State, other: State) -> State:
    """What is unwritten in either state."""
    if not one or one == other:
        return other
    mine, more = _registers(one), _registers(other)
    parts = [(holds & more_holds, mask & both) for holds, mask in one.items() for more_holds, both in other.items()]
    parts += [(holds, mask & ~more) for holds, mask in one.items()]
    parts += [(holds, mask & ~mine) for holds, mask in other.items()]
    return _grouped(parts)


def _registers(state: State) -> int:
    return reduce(or_, state.values(), 0)
