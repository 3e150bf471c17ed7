"""Small changes of a kernel that leave what it computes as it is: where a search for a faster one goes on.

A move takes the words of a kernel and gives other words. Order is changed only where turingas/scheduler/depends finds
nothing between two instructions; what a move makes wrong in the control codes around it is made right by the scheduler,
and everything else stays as the compiler left it. Whoever takes a kernel that was made so has it looked at by the
linter, which shares no code with this.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from turingas.cubin import addresses
from turingas.cubin.model import Code, Kernel
from turingas.flow.graph import Block, Graph
from turingas.isa import control
from turingas.isa.arch import WORD_BYTES
from turingas.isa.effects import SCOREBOARDS
from turingas.isa.fields import Enum
from turingas.isa.given import MOST_KEPT, NOTHING, YIELD, Given, whole
from turingas.isa.instruction import Label, instruction
from turingas.isa.isa import instruction_set
from turingas.isa.table import OPS
from turingas.scheduler.codes import MOST_STALL, codes, is_fixed, yield_rule
from turingas.scheduler.depends import depends, named
from turingas.scheduler.keeps import reuse_flags
from turingas.scheduler.order import lists
from turingas.scheduler.rename import renamed
from turingas.scheduler.reorder import Model, bare
from turingas.scheduler.ways import Ways

#: pipes of instructions whose place is worth a search: what they begin takes long
MEMORY = ("lsu", "tex", "copy")
FARTHEST = 24  # places that one move takes an instruction
#: what is told of memory: how soon its line may leave the caches (.EF: first, .EL: last, .NA: it does not come into the
#: L1 at all), and how much around it the L2 may fetch (.LTC128B: 128 bytes); no result depends on them. The first of
#: each says nothing
EVICTION = ("no hint", "EF", "EL", "NA")
PREFETCH = ("no prefetch", "LTC64B", "LTC128B", "LTC256B")
AROUND = 2  # instructions before one of which the scheduler complains, whose stalls it may choose
ROUNDS = 4  # in which it may ask for more room

#: how much more a place in a loop counts: its loops to the power of this, so that 30 rounds are taken for each
STEEP = 1.5
SHORTEST = 4  # instructions of a block that is brought into another order
#: of a block that is: how often its registers are renamed, its scoreboards stay, and it keeps its own order
RENAMED, KEPT, OWN = 0.4, 0.3, 0.2
#: ... how long memory and the like are taken to take, and by how much the length of ways is taken wrongly
LONGER, NOISE = (0.5, 1.0, 2.0, 2.0, 3.0, 5.0), (0.0, 0.03, 0.03, 0.1, 0.3)
UNPACED = 0.3  # ... and how often it does not stall for pipes that are busy
#: what the scheduler says of a wait that is missing
UNAWAITED = re.compile(r"this must wait for scoreboard ([\d and]+), and")
RULES = ("ptxas", "natural", "natural", "every:4", "every:8", "every:16")  # for yields

Words = list[int]
#: new words, and what was done; None where nothing can be
Made = tuple[Words, str] | None


class Moves:
    """The moves of one kernel as it is now. ``pinned``: see ``pins``."""

    def __init__(self, kernel: Kernel, pinned: frozenset[int]) -> None:
        self.kernel, self.pinned = kernel, pinned
        self.words = kernel.words
        self.graph = Graph(kernel)
        self.ways = Ways(self.graph)
        self.block = {n: block for block in self.graph.blocks for n in range(block.start, block.end)}
        runs = {n for number in self.graph.reachable for n in self._members(number)}
        self.known = {n: i for n, i in enumerate(self.graph.instructions) if i is not None and n in runs}
        self.all = list(self.known)
        self.weight = [float(weight) ** STEEP for weight in self.ways.weight]
        told = named(kernel, self.graph)
        self.stay = None if told is None else told | pinned
        self.others = [n for n in self.known if n not in pinned]
        if self.stay is None:  # control may come to any place: all stay where they are
            self.others = []
        self.memory = [n for n in self.others if OPS[self.known[n].base].pipe in MEMORY]
        #: matrix products of warp groups read and write registers on their own until somebody waits for them
        self.walls = [n for n, i in self.known.items() if OPS[i.base].pipe == "wgmma" or i.base == "WARPGROUP"]
        self._edges: dict[int, set[tuple[int, int]]] = {}
        self._models: dict[int, Model] = {}
        self.waiting = [n for n in self.known if self.words[n] >> control.WAIT & 63]

    def _members(self, number: int) -> range:
        return range(self.graph.blocks[number].start, self.graph.blocks[number].end)

    @cached_property
    def bare(self) -> Ways:
        """The ways through the kernel, whose codes do not count."""
        return bare(self.kernel, self.words)

    def any(self, random: np.random.Generator, tries: int = 20) -> Made:
        """A move that can be made, drawn by chance: more than every third time the place of an instruction, mostly of
        one of memory. What is in loops is drawn more often."""
        kinds: Sequence[Callable[[np.random.Generator], Made]]
        kinds = (*[self.memories] * 5, self.another, *[self.arrange] * 4, *[self.yielding] * 2, self.wait, self.stall,
                 self.yields, self.reuse, *[self.hint] * 2)  # fmt: skip
        for _ in range(tries):
            made = kinds[int(random.integers(len(kinds)))](random)
            if made is not None and made[0] != self.words:
                return made
        return None

    def _one(self, random: np.random.Generator, places: Sequence[int]) -> int | None:
        """One of the places; of a loop more often, for it counts more."""
        if not places:
            return None
        sums = np.cumsum([self.weight[n] for n in places])
        return places[int(np.searchsorted(sums, random.random() * sums[-1], "right"))]

    # -- order

    def memories(self, random: np.random.Generator) -> Made:
        """A memory instruction some places up or down."""
        return self._shift(random, self.memory)

    def another(self, random: np.random.Generator) -> Made:
        """Any instruction: what stands between a memory instruction and a better place may have to go first."""
        return self._shift(random, self.others)

    def _shift(self, random: np.random.Generator, places: Sequence[int]) -> Made:
        """One of ``places`` up or down: by one, as often as by any other number."""
        n = self._one(random, places)
        if n is None:
            return None
        up = bool(random.integers(2))
        reach = self.reach(n, up)
        if not reach:
            return None
        far = 1 if random.integers(2) else 1 + int(random.integers(reach))
        return self.shifted(n, n - far if up else n + far)

    def reach(self, n: int, up: bool) -> int:
        """How many places instruction ``n`` can go up, or down, in its block."""
        block, step = self.block[n], -1 if up else 1
        edges = self._edges.get(block.start)
        if edges is None:
            found = depends(self.ways, self.ways.block[n], self.walls)
            edges = self._edges[block.start] = {(edge.first, edge.second) for edge in found}
        m = n
        while block.start <= (m := m + step) < block.end and abs(m - n) <= FARTHEST:
            if m in self.pinned or m not in self.known or (min(n, m), max(n, m)) in edges:
                break
        return abs(m - n) - 1

    def shifted(self, n: int, to: int) -> Made:
        """Instruction ``n`` in place ``to`` of its block, which ``reach`` allows."""
        order = list(range(len(self.words)))
        order.insert(to, order.pop(n))
        words = [self.words[m] for m in order]
        first, last = min(n, to), max(n, to)
        fields = [whole(word) for word in words]
        loose = {to, first - 1, last, n + (n < to) - 1}  # the instruction, and those before where it is and was
        made = self.fitted(words, fields, [m for m in loose if m in self.known], order)
        if made is None:
            return None
        return made, (f"{self.known[n].base} {abs(to - n)} {'up' if to < n else 'down'} to {_at(to)}")

    # -- a block at a time

    def _block(self, random: np.random.Generator) -> Block | None:
        """One of some length, by what its instructions count."""
        places = [n for n in self.all if self.block[n].end - self.block[n].start >= SHORTEST]
        n = self._one(random, places)
        return None if n is None else self.block[n]

    def arrange(self, random: np.random.Generator) -> Made:
        """A block in the order that list scheduling finds for a machine which is a little different, by chance, or in
        its own; with codes made anew."""
        block = self._block(random)
        if block is None or self.stay is None:
            return None
        names, keep, own = (random.random() < often for often in (RENAMED, KEPT, OWN))
        much, count = float(NOISE[int(random.integers(len(NOISE)))]), block.end - block.start
        noise = [1 + much * float(one) for one in random.standard_normal(count)]
        longer = None if own else float(LONGER[int(random.integers(len(LONGER)))])
        rule, pair = RULES[int(random.integers(len(RULES)))], bool(random.integers(2))
        return self.arranged(block, longer, rule, names, keep, pair, noise, random.random() >= UNPACED)

    def arranged(
        self, block: Block, longer: float | None, rule: str, names: bool = False, keep: bool = False,
        pair: bool = False, noise: Sequence[float] = (), paced: bool = True,
    ) -> Made:  # fmt: skip
        """A block with codes made anew, in the order for a machine on which results of variable latency take ``longer``
        times as long (None: its own order), with yields by a ``rule``. ``names``: registers may be others; ``keep``:
        scoreboards stay; ``pair`` and ``noise``: see reorder.Model; ``paced``: see codes."""
        if self.stay is None:
            return None
        words, ways = self.words, self.bare
        part = range(block.start, block.end)
        names = names and longer is not None
        if names:
            words = renamed(self.kernel, ways, [n in part and n not in self.stay for n in range(len(words))])
            ways = bare(self.kernel, words)
        order = list(range(len(words)))
        if longer is not None:
            model = self._models.get(block.start)
            if model is None or names:
                model = Model(ways, ways.block[block.start], self.stay)
            if not names:
                self._models[block.start] = model
            other = model.other(longer, noise or [1.0] * len(part))
            order[block.start : block.end] = other.arrange({}, pair)
        words = [words[n] for n in order]
        found = self.coded(words, part, order, rule, keep, paced)
        if found is None:
            return None
        how = "its order" if longer is None else f"order {longer:g}" + (", renamed" if names else "")
        how += f" of {_at(block.start)}, {rule}" + (", its scoreboards" if keep else "")
        return found, how + ("" if paced else ", unpaced")

    def loops(self) -> list[int]:
        """Where the blocks begin that are in loops, and long enough for another order; all, where there is no loop."""
        starts = sorted({self.block[n].start for n in self.all})
        long = [n for n in starts if self.block[n].end - n >= SHORTEST]
        return [n for n in long if self.weight[n] > 1] or long

    def coded(
        self, words: Words, part: range, order: Sequence[int], rule: str, keep: bool = False, paced: bool = True
    ) -> Words | None:
        """``words`` with codes made anew where they stand in ``part``; ``keep``: the scoreboards stay."""
        instructions = Graph(replace(self.kernel, code=Code(words=words))).instructions
        fields = [whole(word) for word in words]
        for n in part:
            i = instructions[n]
            words[n] &= ~(control.REUSE_MASK & ~(i.form.loose if i is not None else control.REUSE_MASK))
            fields[n] = fields[n]._replace(wait=None, yields=None, stall=None) if keep else NOTHING
        made = self.fitted(words, fields, [], order, rule, paced)
        if made is None:
            return None
        self._as_lax(made, part, order)
        return self._reused(made, part) if keep else made

    def _as_lax(self, words: Words, part: range, order: Sequence[int]) -> None:
        """A compiler knows that some of what began before ``part`` is over by now, and the scheduler waits for it there
        anew: such waits are taken away (the linter says who is right), unless it is a scoreboard that is set in
        ``part``."""
        lax = 0
        for m, message in self.before:
            if m in part and (found := UNAWAITED.match(message)):
                lax |= sum(1 << int(board) for board in set(found[1]) & set("012345"))
        if not lax:
            return
        for i in Graph(replace(self.kernel, code=Code(words=words))).instructions[part.start : part.stop]:
            if i is not None and i.base != "LDGDEPBAR":  # whose scoreboard nobody waits for: DEPBAR counts on it
                lax &= ~(1 << i.control.read | 1 << i.control.write)
        for n in part:
            words[n] &= ~((lax << control.WAIT) & ~self.words[order[n]])

    def _reused(self, words: Words, part: range) -> Words:
        """Words with reuse flags by the bank model in ``part``, and none besides."""
        made = list(words)
        inner = Graph(replace(self.kernel, code=Code(words=made))).instructions[part.start : part.stop]
        for n, i in zip(part, inner):
            if i is not None:
                made[n] &= ~(control.REUSE_MASK & ~i.form.loose)
        right = reuse_flags(inner, [not words[n] >> control.YIELD & 1 for n in part], [True] * len(inner))
        for n, bits in right.items():
            if not control.illegal(made[part.start + n] | bits):
                made[part.start + n] |= bits
        return made

    def yielding(self, random: np.random.Generator) -> Made:
        """A block, or all of the kernel, yields by another rule, and keeps the sources that it may keep then."""
        block = self._block(random)
        if block is None:
            return None
        rule = RULES[int(random.integers(len(RULES)))]
        blocks = self.graph.blocks if random.random() < OWN else [block]
        asked, words = yield_rule(rule), list(self.words)
        for one in blocks:
            part, kept = range(one.start, one.end), 0
            for n in part:
                this, stall = self.ways.facts[n], words[n] >> control.STALL & 15
                kept += stall
                if this is not None and 1 <= stall <= MOST_KEPT:
                    keeps = not asked(n, is_fixed(this), stall, kept)
                    words[n] = words[n] & ~(1 << control.YIELD) | keeps << control.YIELD
                kept = kept if words[n] >> control.YIELD & 1 else 0
            words = self._reused(words, part)
        if any(control.illegal(words[n]) for n in self.known):
            return None
        return words, f"yields {rule} in {_at(block.start) if len(blocks) == 1 else 'all'}"

    # -- control codes

    def wait(self, random: np.random.Generator) -> Made:
        """What an instruction waits for: one scoreboard of it some instructions earlier, or as late as can be."""
        n = self._one(random, self.waiting)
        if n is None:
            return None
        mask = self.words[n] >> control.WAIT & 63
        board = _one(random, [b for b in range(SCOREBOARDS) if mask >> b & 1])
        assert board is not None
        words, bit = list(self.words), 1 << control.WAIT + board
        words[n] &= ~bit
        if random.integers(2):
            made = self.fitted(words, [whole(word) for word in words], [], range(len(words)))
            return None if made is None else (made, f"wait for {board} later than {_at(n)}")
        block = self.block[n]
        places = []
        for m in range(n - 1, max(block.start, n - FARTHEST) - 1, -1):
            i = self.known.get(m)
            if i is None or board in (i.control.read, i.control.write):
                break
            if i.always:
                places.append(m)
        to = _one(random, places)
        if to is None:
            return None
        words[to] |= bit
        return words, f"wait for {board} of {_at(n)} at {_at(to)}"

    def stall(self, random: np.random.Generator) -> Made:
        """A cycle more, or less. (What is too little, the linter finds.)"""
        n = self._one(random, self.all)
        if n is None:
            return None
        stall = self.words[n] >> control.STALL & 15
        now = stall + (1 if random.integers(2) else -1)
        if not stall or not 1 <= now <= MOST_STALL:
            return None
        return self._code(n, now - stall << control.STALL, f"stall {now} at {_at(n)}")

    def yields(self, random: np.random.Generator) -> Made:
        """The warp keeps the issue slot, or gives it away. Who gives it away keeps no sources."""
        n = self._one(random, self.all)
        if n is None:
            return None
        word = self.words[n]
        keeps = bool(word >> control.YIELD & 1)
        if not 1 <= (word >> control.STALL & 15) <= MOST_KEPT:
            return None
        if keeps and self.known[n].control.reuse:
            return None
        step = -1 if keeps else 1
        return self._code(n, step << control.YIELD, f"{'yield' if keeps else 'no yield'} at {_at(n)}")

    def reuse(self, random: np.random.Generator) -> Made:
        """A reuse flag less, or one more where the bank model says that it saves a read."""
        n = self._one(random, self.all)
        if n is None:
            return None
        block = self.block[n]
        part = slice(block.start, block.end)
        yields = [not word >> control.YIELD & 1 for word in self.words[part]]
        right = reuse_flags(self.graph.instructions[part], yields, [True] * len(yields)).get(n - block.start, 0)
        there = self.words[n] & control.REUSE_MASK
        form = self.known[n].form
        bits = [1 << b for b in range(control.REUSE, control.REUSE + 4) if (right | there & ~form.loose) >> b & 1]
        bit = _one(random, bits)
        if bit is None:
            return None
        return self._code(n, -bit if there & bit else bit, f"{'no ' if there & bit else ''}reuse at {_at(n)}")

    def _code(self, n: int, difference: int, text: str) -> Made:
        words = list(self.words)
        words[n] += difference
        return None if control.illegal(words[n]) else (words, text)

    # -- what is told of memory

    def hint(self, random: np.random.Generator) -> Made:
        """Another hint for the caches, of all accesses of a kind, of those in one block, or of one of them."""
        every = [(base, places) for base in HINTED if (places := hinted(self.kernel, base))]
        if not every:
            return None
        base, places = every[int(random.integers(len(every)))]
        n = places[int(random.integers(len(places)))]
        near = [m for m in places if self.block[m] is self.block[n]]
        which = (places, near, [n])[int(random.integers(3))]
        kind = HINTED[base][int(random.integers(len(HINTED[base])))]
        name = kind[int(random.integers(len(kind)))]
        return with_hint(self.kernel, self.words, which, name), f"{name} of {len(which)} {base}"

    # -- codes that are right again

    def fitted(
        self, words: Words, fields: list[Given], loose: Sequence[int], order: Sequence[int], rule: str = YIELD,
        paced: bool = True,
    ) -> Words | None:
        """``words`` with codes that are right: of the ``loose`` instructions the scheduler chooses waits and stalls
        anew, and where it finds something wrong that was not wrong before (a compiler knows more than the scheduler:
        the linter says who is right), of those around. ``order``: where each instruction stood."""
        for n in loose:
            fields[n] = fields[n]._replace(wait=None, stall=None)
        for _ in range(ROUNDS):
            made = replace(self.kernel, code=Code(words=words))
            result = codes(made, fields, rule, paced)
            wrong = [p.n for p in result.problems if (order[p.n], p.message) not in self.before]
            if not wrong:
                return None if any(control.illegal(word) for word in result.words) else result.words
            for n in wrong:
                block = self.block[n]
                for m in range(max(block.start, n - AROUND), n + 1):
                    fields[m] = fields[m]._replace(wait=None, stall=None)
        return None

    @cached_property
    def before(self) -> set[tuple[int, str]]:
        """What the scheduler finds wrong with the kernel as it is. (A compiler knows more.)"""
        return set(_problems(self.kernel, [whole(word) for word in self.words], range(len(self.words))))


#: instructions that take hints, and of which kinds, where nothing else is said of how they are seen
HINTED = {"LDG": (EVICTION, PREFETCH), "STG": (EVICTION,), "LDGSTS": (PREFETCH,)}
PLAIN = {"E", "SYS", "CONSTANT", "U8", "S8", "U16", "S16", "64", "128", "BYPASS", "ZFILL", *EVICTION, *PREFETCH}


def hinted(kernel: Kernel, base: str) -> list[int]:
    """The instructions of a name that take hints."""
    found = enumerate(Graph(kernel).instructions)
    return [n for n, i in found if i is not None and i.base == base and {*i.mods} <= PLAIN]


def with_hint(kernel: Kernel, words: Sequence[int], places: Sequence[int], name: str) -> Words:
    """Words with a hint at some places, which ``hinted`` found; those whose architecture does not have it stay."""
    made, isa = list(words), instruction_set(kernel.arch)
    kind = EVICTION if name in EVICTION else PREFETCH
    text = "" if name == kind[0] else f".{name}"
    for n in places:
        i = instruction(isa, made[n])
        for part in i.form.name if i is not None else ():
            if isinstance(part, Enum) and f".{kind[1]}" in part.values and text in part.values:
                made[n] = made[n] & ~part.mask | part.encode(text)
    return made


def _problems(kernel: Kernel, fields: Sequence[Given], order: Sequence[int]) -> Iterator[tuple[int, str]]:
    for problem in codes(kernel, fields).problems:
        yield order[problem.n], problem.message


def _one(random: np.random.Generator, places: Sequence[int]) -> int | None:
    return places[int(random.integers(len(places)))] if places else None


def _at(n: int) -> str:
    return f"{WORD_BYTES * n:#06x}"


def pins(kernel: Kernel) -> frozenset[int]:
    """The instructions that must stay where they are, because their address is written somewhere, or because what they
    say counts from it: relocations, addresses in .nv.info, return addresses, what names a label."""
    found = {row.address // WORD_BYTES for row in kernel.relocations}
    for info in [*kernel.attributes, *(i for infos in kernel.infos.values() for i in infos)]:
        if info.record and not lists(kernel, info):
            found |= {address // WORD_BYTES for address in info.words[:: info.record]}
    for n, i in enumerate(Graph(kernel).instructions):
        if i is None or i.shape.op.relative or any(isinstance(operand, Label) for operand in i.operands):
            found.add(n)
    known = addresses.find(kernel)
    found |= {*known.immediates, *known.based, *known.unknown}
    found |= {address // WORD_BYTES for address in known.held(kernel)}
    return frozenset(n for n in found if n < len(kernel.words))
