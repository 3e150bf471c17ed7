"""Control codes for a kernel whose instructions stand in their order.

needs.py finds what must be respected, boards.py gives out scoreboards, least.py the stalls, keeps.py the reuse flags.
What the author wrote stays; what cannot be right then is an error.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

from turingas.cubin.model import Code, Kernel
from turingas.flow.graph import Graph
from turingas.isa import control
from turingas.isa.effects import LATE, SCOREBOARDS, VARIABLE, Effects, register_name
from turingas.isa.given import MOST_KEPT, NOTHING, YIELD, Given
from turingas.isa.instruction import Name
from turingas.isa.latency import STALL_ZERO
from turingas.isa.table import OPS
from turingas.scheduler import rounds
from turingas.scheduler.boards import assign, takes
from turingas.scheduler.keeps import reuse_flags
from turingas.scheduler.least import solve
from turingas.scheduler.needs import SCOREBOARD, Distance, Event, Needs
from turingas.scheduler.waits import common, fewer, in_front, reached, unheld
from turingas.scheduler.ways import Ways

MOST_STALL = 15
ALL = (1 << SCOREBOARDS) - 1


class Problem(NamedTuple):
    """What cannot be right, at instruction ``n``."""

    n: int
    message: str
    hint: str


@dataclass
class Result:
    """``words`` with their control codes; ``problems`` of what was given; ``notes``: where something is waited for that
    could not be told (instruction, and why)."""

    words: list[int]
    problems: list[Problem] = field(default_factory=list)
    notes: list[tuple[int, str]] = field(default_factory=list)


@dataclass(frozen=True)
class _Placed:
    """Scoreboards that each instruction sets, and masks of those that it waits for; ``sets``: the former as masks."""

    read: list[int]
    write: list[int]
    waits: list[int]
    sets: dict[int, int]
    notes: list[tuple[int, str]]


# ---- yields ------------------------------------------------------------------------------------------------------

#: whether instruction number n, of a pipe whose results come at a fixed time or not, yields with such a stall; and how
#: many cycles the warp has kept the issue slot then, since the block began or it yielded
YieldRule = Callable[[int, bool, int, int], bool]
PATIENCE = 12  # cycles after which ptxas yields behind shorter stalls, too: python -m tests.tools.mine_yields
YIELDS = "ptxas, natural, every:N"


def yield_rule(text: str) -> YieldRule:
    """``ptxas``: behind arithmetic that stalls for 3 cycles or more, or for 2 where the warp has kept the issue slot
    for 12, as ptxas does; ``natural``: only where the hardware wants it, for stalls of 12 and more; ``every:N``: each
    N-th instruction, too. ValueError for others."""
    if text == "ptxas":
        return lambda n, fixed, stall, kept: fixed and (stall >= 3 or (stall == 2 and kept >= PATIENCE))
    if text == "natural":
        return lambda n, fixed, stall, kept: False
    found = re.fullmatch(r"every:([1-9]\d*)", text)
    if found is None:
        raise ValueError(f"{text!r} is no rule for yields; there are {YIELDS}")
    every = int(found[1])
    return lambda n, fixed, stall, kept: n % every == every - 1


def is_fixed(this: Effects) -> bool:
    """Whether it is of a pipe whose results come at a fixed time: what rules call so."""
    return not this.queue and OPS[this.i.base].pipe not in ("branch", "tensor", "wgmma")


# ---- the whole ---------------------------------------------------------------------------------------------------


def codes(kernel: Kernel, fields: Sequence[Given], yields: str = YIELD, paced: bool = True) -> Result:
    """Control codes for the words of ``kernel``. ``fields``: what is given of each; the control bits of a word count
    only where it is given whole, but reuse flags stay where they are, unless nothing is given. ``paced``: stall until a
    pipe can begin the next instruction, as ptxas does; the hardware waits for that in any case."""
    return _Scheduler(kernel, fields, yield_rule(yields), paced).run()


class _Scheduler:
    def __init__(self, kernel: Kernel, fields: Sequence[Given], rule: YieldRule, paced: bool) -> None:
        self.old, self.fields, self.rule, self.paced = list(kernel.words), list(fields), rule, paced
        #: what instructions mean does not depend on the codes, but for matrix products, which work with scoreboards or
        #: with distance: with distance, unless a scoreboard is given
        bare = [word & ~control.MASK | _neutral(one) for word, one in zip(self.old, fields, strict=True)]
        self.graph = Graph(replace(kernel, code=Code(words=bare)))
        self.ways = Ways(self.graph)
        self.needs = Needs(self.ways, {n for n, one in enumerate(self.fields) if one.wait is None})
        self.facts = self.ways.facts
        self.result = Result(self.old)

    def run(self) -> Result:
        for n, this in enumerate(self.facts):
            if this is None:
                hint = "write it as an instruction, or give all control codes of this kernel"
                self._problem(n, "what this word needs, and what needs it, cannot be told", hint)
        self._scoreboards()
        stalls = self._stalls()
        self._words(stalls)
        return self.result

    def _problem(self, n: int, message: str, hint: str = "") -> None:
        self.result.problems.append(Problem(n, message, hint))

    def _name(self, n: int) -> str:
        i = self.graph.instructions[n]
        return "an unknown word" if i is None else i.base

    # -- scoreboards

    def _scoreboards(self) -> None:
        taken = self._counted()
        chosen: dict[tuple[int, int], int] = {}
        events = []
        for event in self.needs.events:
            one = self.fields[event.n]
            own = one.write if event.role == VARIABLE else one.read
            if own is None:
                events.append(event)
                continue
            if own >= SCOREBOARDS and event.role != VARIABLE and one.write is not None and one.write < SCOREBOARDS:
                own = one.write  # results are there after the sources were read
            if own >= SCOREBOARDS:
                later = self._later(event)
                if later is None:
                    kind, what = ("write", "results") if event.role == VARIABLE else ("read", "sources")
                    self._problem(
                        min(event.at), f"this must wait for the {what} of {self._name(event.n)}, which sets no {kind} "
                        "scoreboard", f"give {self._name(event.n)} a {kind} scoreboard, or ? in its place",
                    )  # fmt: skip
                else:
                    events.append(later)
                    board = self.fields[later.n].write if later.role == VARIABLE else self.fields[later.n].read
                    assert board is not None
                    chosen[later.n, later.role] = board
                continue
            chosen[event.n, event.role] = own
            events.append(event)
        merged: dict[tuple[int, int], Event] = {}
        for event in events:
            known = merged.get((event.n, event.role))
            merged[event.n, event.role] = event if known is None else replace(event, at=event.at | known.at)
        may = [event for key, event in merged.items() if key not in chosen]
        kept = {(event.n, event.role): event for event in fewer(self.ways, may, self._given)}
        merged = {key: kept.get(key, event) for key, event in merged.items() if key in chosen or key in kept}
        among = {key: common(self.ways, event, self._given) for key, event in kept.items()}
        if kept:
            boards, cost = assign(self.ways, self._asked(merged, chosen), chosen, taken, among)
            boards = {**chosen, **boards}
        else:  # all are given
            boards, cost = chosen, 0.0
        placed = self._place(merged, chosen, boards)
        for earlier in self._in_front(merged, chosen):
            boards, less = assign(self.ways, self._asked(earlier, chosen), chosen, taken, among)
            if less < cost:
                boards = {**chosen, **boards}
                other = self._place(earlier, chosen, boards)
                blocks = rounds.way(self.ways)
                placed = min(placed, other, key=lambda one: self._cycles(one, blocks))
        self.read, self.write, self.waits = placed.read, placed.write, placed.waits
        self.sets, self.result.notes = placed.sets, placed.notes
        for n, one in enumerate(self.fields):
            if one.wait is None:
                continue
            missing = self.waits[n] & ~one.wait
            if missing:
                numbers = " and ".join(str(board) for board in range(SCOREBOARDS) if missing >> board & 1)
                self._problem(n, f"this must wait for scoreboard {numbers}, and its control code does not",
                              "write ? for the wait, or more of a mask")  # fmt: skip
            self.waits[n] = one.wait

    def _reached(self, event: Event, board: int) -> frozenset[int]:
        """Those who must wait for an event on its scoreboard. Of mbarriers it counts, too, where the author lets
        somebody wait in front of them all: a fence, say."""
        this = self.facts[event.n]
        find = unheld if this is not None and this.made else reached
        return find(self.ways, event, board, self._given)

    def _asked(self, events: Mapping[tuple[int, int], Event], chosen: Mapping[tuple[int, int], int]) -> list[Event]:
        """Without what is made of mbarriers where the author says who tells of it and who waits: that is over before
        others begin, whose scoreboards need not heed it."""
        made = {key for key in chosen if (this := self.facts[key[0]]) is not None and this.made}
        settled = {key for key in made if not self._reached(events[key], chosen[key])}
        return [event for key, event in events.items() if key not in settled]

    def _place(
        self,
        events: dict[tuple[int, int], Event],
        chosen: Collection[tuple[int, int]],
        boards: Mapping[tuple[int, int], int],
    ) -> _Placed:
        """Scoreboards and waits of all instructions. ``chosen``: the events whose scoreboards are given."""
        read = [7 if one.read is None else one.read for one in self.fields]
        write = [7 if one.write is None else one.write for one in self.fields]
        notes = []
        awaited: dict[int, list[tuple[int, int]]] = {}  # place -> who is awaited there, and on which scoreboard
        for (n, role), event in events.items():
            board = boards[n, role]
            if (n, role) not in chosen:
                (write if role == VARIABLE else read)[n] = board
            for m in self._reached(event, board) if board < SCOREBOARDS else event.at:
                awaited.setdefault(m, []).append((n, board))
                if m in self.ways.open:
                    notes.append((m, self._note(m, n)))
        waits = self._await(awaited)
        for n, this in enumerate(self.facts):
            if this is not None and OPS[this.i.base].drains:
                waits[n] = ALL
        sets = {
            n: mask
            for n, pair in enumerate(zip(read, write))
            if (mask := sum({1 << board for board in pair if board < SCOREBOARDS}))
        }
        self._prune(waits, sets)
        return _Placed(read, write, waits, sets, notes)

    def _cycles(self, placed: _Placed, blocks: Sequence[int]) -> int:
        """By the issue model, along a way through blocks."""
        known = partial(takes, self.ways)
        return rounds.cycles(self.ways, blocks, placed.read, placed.write, placed.waits, known)

    def _in_front(
        self, events: dict[tuple[int, int], Event], chosen: Collection[tuple[int, int]]
    ) -> Iterator[dict[tuple[int, int], Event]]:
        """Results that loops wait for may be awaited in front of them: earlier, but then their scoreboards are free."""
        better = {
            key: there
            for key, event in events.items()
            if event.role == VARIABLE and key not in chosen
            and (there := in_front(self.ways, event, self._given)) != event
        }  # fmt: skip
        if better:
            yield {**events, **better}

    def _given(self, n: int) -> int | None:
        return self.fields[n].wait

    def _note(self, m: int, n: int) -> str:
        return f"waits for {self._name(n)} at {16 * n:#06x}: what runs behind {self._name(m)} is not known"

    def _later(self, event: Event) -> Event | None:
        """A later event of the same queue in the same block, whose end tells of this one's."""
        this = self.facts[event.n]
        assert this is not None
        if event.role == VARIABLE and not this.in_order:
            return None
        block = self.graph.blocks[self.ways.block[event.n]]
        first = min((m for m in event.at if m > event.n), default=-1)
        for m in range(event.n + 1, min(first, block.end)):
            other, one = self.facts[m], self.fields[m]
            if other is None or other.queue != this.queue or other.guard is not None:
                continue
            for role, board in ((VARIABLE, one.write), (LATE, one.read)):
                if board is not None and board < SCOREBOARDS and (role == VARIABLE or event.role != VARIABLE):
                    return Event(m, role, event.at)
        return None

    def _counted(self) -> int:
        """DEPBAR names scoreboards, and counts how often they were set. What ends a group of copies sets them; nobody
        else may."""
        taken = 0
        boards: dict[int, int] = {}  # DEPBAR -> its scoreboard
        for n, this in enumerate(self.facts):
            if this is not None and this.i.base == "DEPBAR":
                for operand in this.i.operands:
                    if isinstance(operand, Name) and operand.text.startswith("SB"):
                        boards[n] = int(operand.text[2:])
                        taken |= 1 << boards[n]
        for n, this in enumerate(self.facts):
            if this is None or not boards:
                continue
            given, board = self.fields[n], boards[min((m for m in boards if m > n), default=min(boards))]
            if this.i.base == "LDGDEPBAR" and given.write is None:
                self.fields[n] = given._replace(write=board)
            elif this.i.base == "UTMACMDFLUSH" and given.read is None:
                self.fields[n] = given._replace(read=board)
        return taken & ALL

    def _await(self, awaited: dict[int, list[tuple[int, int]]]) -> list[int]:
        """Waits, but for what an earlier one of the same block has told already: it may have been for something else,
        and the scoreboard have been set anew since."""
        found = [0] * len(self.facts)
        for block in self.graph.blocks:
            last: dict[int, int] = {}  # scoreboard -> who waited for it last
            for m in range(block.start, block.end):
                for n, board in awaited.get(m, ()):
                    since = last.get(board, -1)
                    inside = block.start <= n < m
                    if since < 0 or (inside and since <= n):
                        found[m] |= 1 << board
                this, given = self.facts[m], self.fields[m].wait
                if this is not None and this.guard is None:
                    waits = found[m] if given is None else given
                    last.update((board, m) for board in range(SCOREBOARDS) if waits >> board & 1)
        return found

    def _prune(self, waits: list[int], sets: Mapping[int, int]) -> None:
        """Waits for what is not pending on any way are taken away."""
        blocks = self.graph.blocks
        into = [0] * len(blocks)

        def through(number: int, pending: int, prune: bool) -> int:
            for n in range(blocks[number].start, blocks[number].end):
                one = self.fields[n]
                mask = waits[n] if one.wait is None else one.wait
                if mask:
                    this = self.facts[n]
                    if prune and not (this is not None and OPS[this.i.base].drains):
                        waits[n] &= pending
                    if this is not None and this.guard is None:
                        pending &= ~mask
                pending |= sets.get(n, 0)
            return pending

        queue = list(range(len(blocks)))[::-1]
        queued = set(queue)
        while queue:
            number = queue.pop()
            queued.discard(number)
            out = through(number, into[number], False)
            for to in self.ways.next[number]:
                if out & ~into[to]:
                    into[to] |= out
                    if to not in queued:
                        queued.add(to)
                        queue.append(to)
        for number in range(len(blocks)):
            through(number, into[number], True)

    # -- stalls

    def _stalls(self) -> list[int]:
        least, most = [], []
        free, held = self.needs.held()
        for n, (this, one) in enumerate(zip(self.facts, self.fields)):
            low = 1 if this is None or n in free else self.ways.lat.behind(this.i)
            high = MOST_KEPT if one.yields is False else MOST_STALL
            if one.stall is not None:
                low = high = one.stall or STALL_ZERO
            elif this is not None and this.i.base == "ERRBAR":
                low = high = STALL_ZERO
            elif self._endless(n):
                low = high = STALL_ZERO
            elif this is None:
                word = self.old[n] >> control.STALL & 15
                low = high = word or STALL_ZERO
            least.append(low)
            most.append(high)
        distances = self.needs.distances(least, self.sets, self.waits) + held
        distances += self.needs.paces(least) if self.paced else []
        stalls, lost = solve(distances, least, most, self.ways.weight)
        for d in lost:
            self._lost(d, sum(stalls[n] for n in d.path))
        return stalls

    def _endless(self, n: int) -> bool:
        """Whether it is the branch to itself behind the code, or a NOP behind that: compilers let them stall for 0."""
        block = self.graph.blocks[self.ways.block[n]]
        i = self.graph.instructions[n]
        if i is None:
            return False
        return i.base == "BRA" and block.next == [self.ways.block[n]] and block.end - block.start == 1

    def _lost(self, d: Distance, passed: int) -> None:
        first = d.path[0]
        if d.register == SCOREBOARD:
            message = f"this waits for a scoreboard that {self._name(first)} sets, which takes {d.cycles} cycles to see"
        elif d.to >= len(self.facts):
            message = f"{register_name(d.register)} must be there where the code is left, {d.cycles} cycles later"
        else:
            what = f"{register_name(d.register)} of {self._name(first)} is there after {d.cycles} cycles"
            message = f"{what}, and the stalls that are given leave {passed}"
        self._problem(
            min(d.to, len(self.facts) - 1), message, "write ? for a stall between the two, or put a NOP there"
        )

    # -- words

    def _words(self, stalls: list[int]) -> None:
        yields = [True] * len(self.fields)
        for block in self.graph.blocks:
            kept = 0
            for n in range(block.start, block.end):
                this, one = self.facts[n], self.fields[n]
                stall = 0 if stalls[n] > MOST_STALL else stalls[n]
                kept += stall
                if one.yields is not None:
                    yields[n] = one.yields
                elif 1 <= stall <= MOST_KEPT:
                    yields[n] = self.rule(n, this is not None and is_fixed(this), stall, kept)
                kept = 0 if yields[n] else kept
        flags: dict[int, int] = {}
        for block in self.graph.blocks:
            part = slice(block.start, block.end)
            wanted = [one == NOTHING for one in self.fields[part]]
            for n, bits in reuse_flags(self.graph.instructions[part], yields[part], wanted).items():
                flags[block.start + n] = bits

        words = []
        for n, (word, one) in enumerate(zip(self.old, self.fields)):
            if self.facts[n] is None or one.whole:
                words.append(word)
                continue
            stall = 0 if stalls[n] > MOST_STALL else stalls[n]
            code = (
                stall << control.STALL | (not yields[n]) << control.YIELD | self.write[n] << control.WRITE
                | self.read[n] << control.READ | self.waits[n] << control.WAIT
            )  # fmt: skip
            reuse = flags.get(n, 0) if one == NOTHING else word & control.REUSE_MASK
            made = word & ~control.MASK | code | reuse
            problem = control.illegal(made)
            if problem and one == NOTHING:
                made &= ~control.REUSE_MASK
                problem = control.illegal(made)
            if problem:
                self._problem(n, *problem)
            words.append(made)
        self.result.words = words


def _neutral(one: Given) -> int:
    """A control code with what is given, and otherwise nothing."""
    write, read = (7 if board is None else board for board in (one.write, one.read))
    return 1 << control.STALL | 1 << control.YIELD | write << control.WRITE | read << control.READ
