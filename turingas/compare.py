"""``turingas.diff``: what is different between two cubins, or the cubins of two sources, function by function.

The code of a function is compared as the disassembler writes it, with labels in the place of addresses. Its basic
blocks are aligned first, and the instructions between blocks that are alike; an instruction with a label is the same if
the label stands before the same instruction. With ``registers``, code that differs in the choice of registers alone
counts as the same: along all paths, what one side reads from a register the other side must have put into the one that
it reads.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from itertools import zip_longest
from typing import Any

from turingas.check.finding import SEVERITIES, Finding
from turingas.check.lint import lint_graph
from turingas.check.loops import LoopSummary, summary
from turingas.cubin.cubin import Cubin
from turingas.cubin.model import Kernel
from turingas.disassembler import disassemble
from turingas.flow.graph import Graph
from turingas.isa.arch import WORD_BYTES
from turingas.notebook import table

Comparable = Cubin | bytes | str | os.PathLike[str]

RESOURCES = {
    "registers": "registers", "shared memory": "shared_bytes", "local memory": "frame_bytes", "stack": "stack_bytes",
    "barriers": "barriers", "bytes of parameters": "param_bytes",
}  # fmt: skip
INSTRUCTIONS = "instructions"
COUNTS = ("registers", INSTRUCTIONS)  # told of every function, changed or not
OUTSIDE = "cycles outside of loops"
LABEL = re.compile(r"\b(?:LEPC)?L_[0-9a-f]{4,}\b")
REGISTER = re.compile(r"\b(U?R|U?P)\d+\b")
ADDRESS = re.compile(r" # ([0-9a-f]{4,})$")
CODE = re.compile(r"^(\S*:\S*:\S*)\s+(.*)$")
NOTES = 8  # of a function that the text shows
MOST = 2000  # instructions between blocks that are alike: of more than these, all count as changed
ALIKE = 0.5  # of their blocks are the same in functions of two names that are taken for one
#: what may make `turingas diff` fail
STATUSES = ("same", "changed", "only in A", "only in B")
CONDITIONS = ("differs", "slower", "registers", "memory", "findings")


@dataclass
class Line:
    """One instruction: its control code, its text with labels, and the text by which it is aligned."""

    address: int
    control: str
    text: str
    key: str
    labels: tuple[str, ...] = ()


@dataclass(repr=False)
class Side:
    """A function of one of the files."""

    kernel: Kernel
    lines: list[Line] = field(default_factory=list)
    places: dict[str, int] = field(default_factory=dict)  # label -> the instruction that it stands before
    graph: Graph = field(init=False)
    _loops: list[LoopSummary] | None = None

    def __post_init__(self) -> None:
        self.graph = Graph(self.kernel)

    @property
    def loops(self) -> list[LoopSummary]:
        """Summaries of its loops."""
        if self._loops is None:
            self._loops = summary(self.graph)
        return self._loops

    def blocks(self) -> list[tuple[str, ...]]:
        """The keys of each block."""
        return [tuple(line.key for line in self.lines[b.start : b.end]) for b in self.graph.blocks]

    def resources(self) -> dict[str, int]:
        """Numbers that a launch or its speed depends on."""
        found = {name: getattr(self.kernel, attribute) or 0 for name, attribute in RESOURCES.items()}
        inside = {b for loop in self.graph.loops for b in loop.blocks}
        rest = [
            max(i.control.stall, 1)
            for number in sorted(self.graph.reachable - inside)
            for i in self.graph.instructions[self.graph.blocks[number].start : self.graph.blocks[number].end]
            if i is not None
        ]
        return found | {INSTRUCTIONS: len(self.lines), OUTSIDE: sum(rest)}


@dataclass
class Row:
    """``how``: "=" both are the same, "~" they differ in the control code alone, "-" only in A, "+" only in B."""

    how: str
    a: Line | None
    b: Line | None


@dataclass
class LoopChange:
    """A loop of A and its counterpart in B; None where it has none."""

    a: LoopSummary | None
    b: LoopSummary | None

    @property
    def slower(self) -> bool:
        """Whether an iteration takes more cycles in B, of one warp alone or of many; a loop of B alone is taken to."""
        if self.b is None:
            return False
        return self.a is None or self.b.alone > self.a.alone or self.b.least > self.a.least

    @property
    def changed(self) -> bool:
        """Whether there is anything to tell."""
        return self.a is None or self.b is None or _cycles(self.a) != _cycles(self.b)

    def __str__(self) -> str:
        one = self.b or self.a
        assert one is not None
        where = f"loop 0x{one.start:04x}, depth {one.depth}"
        if self.a is None or self.b is None:
            only = "A" if self.b is None else "B"
            return f"{where}: only in {only}, {one.alone} cycles of one warp, {one.least} of many"
        alone, least = _change(self.a.alone, self.b.alone), _change(self.a.least, self.b.least)
        return f"{where}: {alone} cycles of one warp, {least} of many, bound by {_change(self.a.bound, self.b.bound)}"


@dataclass(repr=False)
class FunctionDiff:
    """One kernel or device function: ``a`` or ``b`` is None where only the other file has it."""

    a: Side | None
    b: Side | None
    rows: list[Row] = field(default_factory=list)
    loops: list[LoopChange] = field(default_factory=list)
    added: list[Finding] = field(default_factory=list)  # findings of B that A has not
    removed: list[Finding] = field(default_factory=list)

    def __repr__(self) -> str:
        return f"<FunctionDiff {self.name}: {self.status}>"

    @property
    def counts(self) -> list[tuple[int | None, int | None]]:
        """Each of COUNTS, of A and of B; None where one has not the function."""
        sides = [side.resources() if side else {} for side in (self.a, self.b)]
        return [(sides[0].get(name), sides[1].get(name)) for name in COUNTS]

    @property
    def name(self) -> str:
        """Its name in B, or in A if only that has it."""
        side = self.b or self.a
        assert side is not None
        return side.kernel.name

    @property
    def status(self) -> str:
        """"same", "changed", "only in A" or "only in B"."""
        if self.a is None or self.b is None:
            return "only in A" if self.b is None else "only in B"
        return "changed" if self.resources or any(row.how != "=" for row in self.rows) else "same"

    @property
    def renamed(self) -> str:
        """Its name in A, if that is another one."""
        return self.a.kernel.name if self.a and self.b and self.a.kernel.name != self.b.kernel.name else ""

    @property
    def resources(self) -> dict[str, tuple[int, int]]:
        """The numbers that changed: A's and B's."""
        if self.a is None or self.b is None:
            return {}
        one, other = self.a.resources(), self.b.resources()
        return {name: (one[name], other[name]) for name in one if one[name] != other[name]}

    @property
    def slower(self) -> bool:
        """Whether B is slower by the model: a loop, or the code outside of loops, takes more cycles."""
        before, after = self.resources.get(OUTSIDE, (0, 0))
        return any(loop.slower for loop in self.loops) or after > before

    def fails(self, condition: str) -> bool:
        """Whether one of CONDITIONS holds."""
        grown = {name for name, (before, after) in self.resources.items() if after > before}
        if condition == "differs":
            return self.status != "same" or bool(self.renamed)
        if condition == "slower":
            return self.slower
        if condition == "registers":
            return "registers" in grown
        if condition == "memory":
            return bool(grown & {"shared memory", "local memory", "stack"})
        return any(finding.severity != "note" for finding in self.added)


@dataclass(repr=False)
class Diff:
    """What is different between two files. ``bool(diff)`` is whether anything is."""

    archs: tuple[str, str]
    functions: list[FunctionDiff]
    names: tuple[str, str] = ("A", "B")

    def __repr__(self) -> str:
        return f"<Diff of {' and '.join(self.names)}: {self.summary}>"

    def _repr_html_(self) -> str:
        """A table for notebooks."""
        every = self.functions
        rows = [(one.name, one.status, *map(_both, one.counts), "slower" if one.slower else "") for one in every]
        return table(f"{self.names[0]} -> {self.names[1]}", ("function", "", *COUNTS, "by the model"), rows)

    @property
    def summary(self) -> str:
        """How many functions are the same, changed, only in A, only in B."""
        counts = Counter(one.status for one in self.functions)
        return ", ".join(f"{counts[what]} {what}" for what in STATUSES if counts[what]) or "no functions"

    def __bool__(self) -> bool:
        return self.archs[0] != self.archs[1] or any(one.fails("differs") for one in self.functions)

    def failures(self, conditions: Sequence[str]) -> list[tuple[str, str]]:
        """(function, condition) of all that hold; "" stands for the whole file."""
        found = [(one.name, what) for one in self.functions for what in conditions if one.fails(what)]
        if "differs" in conditions and self.archs[0] != self.archs[1]:
            found.insert(0, ("", "differs"))
        return found

    def to_dict(self) -> dict[str, Any]:
        """For programs: as docs/json.md has it."""
        return {
            "a": {"name": self.names[0], "arch": self.archs[0]},
            "b": {"name": self.names[1], "arch": self.archs[1]},
            "same": not self,
            "functions": [_as_dict(one) for one in self.functions],
        }

    def lines(self, context: int = 2) -> Iterator[str]:
        """As text; ``context``: instructions that are shown around what changed."""
        if self.archs[0] != self.archs[1]:
            yield f"architecture: {_change(*self.archs)}"
        for one in self.functions:
            yield from _text(one, context)
        yield self.summary


def diff(
    a: Comparable, b: Comparable, registers: bool = False, control: bool = True, arch: str | None = None,
    findings: bool = True,
) -> Diff:  # fmt: skip
    """What is different between ``a`` and ``b``: each a Cubin, the bytes of one, or a file: a cubin, or source, which
    is assembled for ``arch``. ``registers``: the choice of registers counts for nothing; ``control`` False: nor do
    control codes and reuse flags. ``findings`` False leaves the linter out.

    Raises AsmError or CubinError for what is neither source nor cubin.
    """
    cubins = [_cubin(one, arch) for one in (a, b)]
    sides = [_sides(one, registers, control) for one in cubins]
    functions = [_compare(*pair, registers, control, findings) for pair in _pairs(*sides)]
    names = [os.fspath(one) if isinstance(one, str | os.PathLike) else letter for one, letter in zip((a, b), "AB")]
    return Diff((cubins[0].arch, cubins[1].arch), functions, (str(names[0]), str(names[1])))


def _cubin(what: Comparable, arch: str | None) -> Cubin:
    if isinstance(what, Cubin):
        return what
    if not isinstance(what, bytes):
        with open(what, "rb") as stream:
            data = stream.read()
        if data[:4] != b"\x7fELF":
            from turingas.assembler import assemble

            folder = os.path.dirname(os.fspath(what)) or "."
            text = data.decode("utf-8", "surrogateescape")
            return assemble(text, arch or "sm_75", filename=os.fspath(what), include=(folder,))
        what = data
    return Cubin.from_bytes(what)


# -- functions side by side


def _sides(cubin: Cubin, registers: bool, control: bool) -> dict[str, Side]:
    """The functions of a file by their names, as the disassembler writes them."""
    sides = [Side(kernel) for kernel in cubin.texts]
    number, before, symbols = -1, list[str](), list[str]()
    for line in disassemble(cubin).split("\n"):
        if line.startswith((".kernel ", ".function ")):
            number += 1
        found = ADDRESS.search(line)
        if found is None:
            if line.endswith(":") and number >= 0:
                before.append(line[:-1])
            elif line.startswith(".reloc "):
                symbols.append(LABEL.sub("L", line))
            continue
        side = sides[number]
        side.places.update(dict.fromkeys(before, len(side.lines)))
        code = CODE.match(line[: found.start()].rstrip())
        codes, text = (code[1], code[2].rstrip(";")) if code else ("", line[: found.start()].rstrip(" ;"))
        plain = text if control else text.replace(".reuse", "")
        key = " ".join([LABEL.sub("L", REGISTER.sub(r"\1", plain) if registers else plain), *symbols])
        side.lines.append(Line(int(found[1], 16), codes if control else "", text, key, tuple(LABEL.findall(text))))
        before, symbols = [], []
    for side in sides:  # what only fills the section up
        while side.lines and side.lines[-1].text == "NOP":
            side.lines.pop()
    return {side.kernel.name: side for side in sides}


def _pairs(ones: dict[str, Side], others: dict[str, Side]) -> Iterator[tuple[Side | None, Side | None]]:
    """Functions of one name; of the rest those that have most blocks in common, where that is enough."""
    rest = {name: side for name, side in others.items() if name not in ones}
    counts = {name: Counter(side.blocks()) for name, side in rest.items()}
    for name, side in ones.items():
        if name in others:
            yield side, others[name]
            continue
        mine = Counter(side.blocks())
        best = max(rest, key=lambda other: _alike(mine, counts[other]), default="")
        if best and _alike(mine, counts[best]) >= ALIKE:
            yield side, rest.pop(best)
        else:
            yield side, None
    for side in rest.values():
        yield None, side


def _alike(one: Counter[tuple[str, ...]], other: Counter[tuple[str, ...]]) -> float:
    """The share of instructions that lie in blocks which both have."""
    both = sum(len(block) * count for block, count in (one & other).items())
    return both / max(sum(len(block) * count for block, count in (one | other).items()), 1)


def _compare(a: Side | None, b: Side | None, registers: bool, control: bool, findings: bool) -> FunctionDiff:
    made = FunctionDiff(a, b)
    if a is None or b is None:
        return made
    pairs = _aligned(a, b)
    pairs = _with_labels(a, b, pairs)
    if registers:
        pairs = _with_registers(a, b, pairs)
    made.rows = list(_rows(a, b, pairs))
    made.loops = [one for one in _loops(a, b, dict(pairs)) if one.changed]
    same_code = a.kernel.words == b.kernel.words and a.kernel.registers == b.kernel.registers
    if findings and not same_code:
        made.added, made.removed = _findings(a, b, registers)
    return made


Pairs = list[tuple[int, int]]


def _aligned(a: Side, b: Side) -> Pairs:
    """Instructions that belong together: blocks that are alike, and what is alike between them."""
    found: Pairs = []
    one, other = a.blocks(), b.blocks()
    keys = [[line.key for line in side.lines] for side in (a, b)]
    ones, others = a.graph.blocks, b.graph.blocks
    for tag, i, j, k, m in SequenceMatcher(None, one, other, autojunk=False).get_opcodes():
        if i == j or k == m:
            continue
        start, end, start2, end2 = ones[i].start, ones[j - 1].end, others[k].start, others[m - 1].end
        if tag == "equal":
            found += zip(range(start, end), range(start2, end2))
        elif max(end - start, end2 - start2) <= MOST:
            inner = SequenceMatcher(None, keys[0][start:end], keys[1][start2:end2], autojunk=False)
            for x, y, size in inner.get_matching_blocks():
                found += zip(range(start + x, start + x + size), range(start2 + y, start2 + y + size))
    return [(n, m) for n, m in found if n < len(a.lines) and m < len(b.lines)]


def _with_labels(a: Side, b: Side, pairs: Pairs) -> Pairs:
    """Those whose labels stand before instructions that belong together; or before what changed at the same place."""
    at = dict(pairs)
    back = {m: n for n, m in pairs}

    def same(one: str, other: str) -> bool:
        n, m = a.places.get(one), b.places.get(other)
        if n is None or m is None:
            return n is m is None and one == other
        if n in at or m in back:
            return at.get(n) == m
        return at.get(n - 1) == m - 1 if n and m else n == m

    return [
        (n, m) for n, m in pairs
        if all(same(*both) for both in zip_longest(a.lines[n].labels, b.lines[m].labels, fillvalue=""))
    ]  # fmt: skip


def _with_registers(a: Side, b: Side, pairs: Pairs) -> Pairs:
    """Those that read what belongs together, if other registers are taken to hold it."""
    at = dict(pairs)
    wrong: set[int] = set()
    before: dict[int, dict[tuple[str, int], int | None]] = {}
    todo = a.graph.entries[::-1]
    for entry in todo:
        before[entry] = {}
    blocks = a.graph.blocks
    while todo:
        number = todo.pop()
        state = dict(before[number])
        for n in range(blocks[number].start, blocks[number].end):
            i = a.graph.instructions[n]
            j = b.graph.instructions[at[n]] if n in at else None
            if i is None:
                continue
            if j is None or len(i.reads) != len(j.reads) or len(i.writes) != len(j.writes):
                for access in i.writes:
                    for k in range(access.count):
                        state.pop((access.file, access.first + k), None)
                continue
            for one, other in zip(i.reads, j.reads):
                for k in range(one.count):
                    if state.setdefault((one.file, one.first + k), other.first + k) != other.first + k:
                        wrong.add(n)
            for one, other in zip(i.writes, j.writes):
                if one.file not in ("R", "UR", "P", "UP"):
                    continue
                for k in range(one.count):
                    for gone in [r for r, v in state.items() if r[0] == one.file and v == other.first + k]:
                        state[gone] = None  # the other side has put something else there
                    state[one.file, one.first + k] = other.first + k
        for to in [*blocks[number].next, *([] if (call := blocks[number].calls) is None else [call])]:
            if to not in before:
                before[to] = dict(state)
                todo.append(to)
                continue
            known = before[to]
            for register, value in state.items():
                old = known.get(register, -1)
                if old not in (value, None):
                    known[register] = value if old == -1 else None  # two paths bring it in different registers
                    todo.append(to)
    return [(n, m) for n, m in pairs if n not in wrong]


def _rows(a: Side, b: Side, pairs: Pairs) -> Iterator[Row]:
    n = m = 0
    for one, other in [*pairs, (len(a.lines), len(b.lines))]:
        yield from (Row("-", line, None) for line in a.lines[n:one])
        yield from (Row("+", None, line) for line in b.lines[m:other])
        if one < len(a.lines):
            both = a.lines[one], b.lines[other]
            yield Row("=" if both[0].control == both[1].control else "~", *both)
        n, m = one + 1, other + 1


def _loops(a: Side, b: Side, at: dict[int, int]) -> Iterator[LoopChange]:
    """Loops whose instructions belong together, most of them; then those of the same depth, in their order."""
    rest = list(b.loops)
    left = []
    for loop in a.loops:
        places = [at[n] for n in range(loop.start // WORD_BYTES, loop.end // WORD_BYTES) if n in at]
        like = [x for x in rest if x.depth == loop.depth]
        best = max(like, key=lambda x: sum(x.start <= WORD_BYTES * m < x.end for m in places), default=None)
        if best is not None and any(best.start <= WORD_BYTES * m < best.end for m in places):
            rest.remove(best)
            yield LoopChange(loop, best)
        else:
            left.append(loop)
    for loop in left:
        other = next((x for x in rest if x.depth == loop.depth), None)
        if other is not None:
            rest.remove(other)
        yield LoopChange(loop, other)
    for loop in rest:
        yield LoopChange(None, loop)


def _findings(a: Side, b: Side, registers: bool) -> tuple[list[Finding], list[Finding]]:
    """The findings that only B has, and only A."""

    def key(finding: Finding) -> tuple[str, ...]:
        said = re.sub(r"0x[0-9a-f]+|\bline \d+", "", finding.message)
        return finding.kind, finding.severity, REGISTER.sub(r"\1", said) if registers else said

    one, other = lint_graph(a.graph), lint_graph(b.graph)

    def only(these: list[Finding], those: list[Finding]) -> list[Finding]:
        left = Counter(map(key, those))
        found = []
        for finding in these:
            if left[key(finding)]:
                left[key(finding)] -= 1
            elif finding.kind != "occupancy":
                found.append(finding)
        return sorted(found, key=lambda f: (SEVERITIES.index(f.severity), f.address))

    return only(other, one), only(one, other)


# -- how it reads


def _cycles(loop: LoopSummary) -> tuple[int, int, str]:
    return loop.alone, loop.least, loop.bound


def _change(before: object, after: object) -> str:
    return str(after) if before == after else f"{before} -> {after}"


def _both(counts: tuple[int | None, int | None]) -> str:
    return _change(*("none" if one is None else one for one in counts))


def _text(one: FunctionDiff, context: int) -> Iterator[str]:
    if one.status == "same" and not one.renamed:
        return
    yield f"{one.name}: {one.status}" + (f", {one.renamed} in A" if one.renamed else "")
    for name, (before, after) in one.resources.items():
        yield f"  {name}: {before} -> {after}"
    for loop in one.loops:
        yield f"  {loop}"
    for sign, findings in (("+", one.added), ("-", one.removed)):
        notes = [finding for finding in findings if finding.severity == "note"]
        for finding in findings[: len(findings) - max(len(notes) - NOTES, 0)]:
            yield f"  {sign} {finding.severity}: 0x{finding.address:04x}: {finding.message} [{finding.kind}]"
        if len(notes) > NOTES:
            yield f"  {sign} {len(notes) - NOTES} more notes"
    shown = -1
    for n, row in enumerate(one.rows):
        if all(near.how == "=" for near in one.rows[max(n - context, 0) : n + context + 1]):
            continue
        if shown >= 0 and n > shown + 1:
            yield "    ..."
        shown = n
        for sign, line in (("-", row.a), ("+", row.b)) if row.how != "=" else ((" ", row.b),):
            if line is not None:
                yield f"{sign} {line.address:04x}  {line.control:14} {line.text}".rstrip()


def _as_dict(one: FunctionDiff) -> dict[str, Any]:
    def line(found: Line | None) -> dict[str, Any] | None:
        return None if found is None else {"address": found.address, "control": found.control, "text": found.text}

    def loop(found: LoopSummary | None) -> dict[str, Any] | None:
        if found is None:
            return None
        return {
            "start": found.start, "end": found.end, "depth": found.depth, "one_warp": found.alone,
            "many_warps": found.least, "bound": found.bound,
        }  # fmt: skip

    def told(finding: Finding) -> dict[str, Any]:
        return {name: getattr(finding, name) for name in ("kind", "severity", "message", "address", "text")}

    return {
        "name": one.name, "renamed": one.renamed, "status": one.status, "slower": one.slower,
        "resources": {name: {"a": before, "b": after} for name, (before, after) in one.resources.items()},
        "loops": [{"a": loop(x.a), "b": loop(x.b), "slower": x.slower} for x in one.loops],
        "added": [told(finding) for finding in one.added], "removed": [told(finding) for finding in one.removed],
        "instructions": [
            {"how": row.how, "a": line(row.a), "b": line(row.b)} for row in one.rows if row.how != "="
        ],
    }  # fmt: skip
