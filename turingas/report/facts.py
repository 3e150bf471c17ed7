"""What the page shows of a kernel, as data for it: nothing is computed here that another room knows.

Lists have an entry an instruction; where most would be nothing, a dictionary has those that are not (JSON: its keys are
texts). Registers are numbered within their file.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from turingas.check.finding import Finding
from turingas.check.lint import lint_graph
from turingas.check.loops import iteration, summary
from turingas.check.report import at
from turingas.cubin.cubin import Cubin
from turingas.cubin.model import Kernel
from turingas.emulate.counters import NUMBERS
from turingas.emulate.report import Report
from turingas.flow import draw
from turingas.flow.boards import waits
from turingas.flow.graph import Graph
from turingas.flow.live import FILES, Lives
from turingas.info import as_dict, instruction_mix
from turingas.isa import control
from turingas.isa.arch import WORD_BYTES
from turingas.isa.banks import SLOTS, sources, walk
from turingas.isa.effects import bits, register_of
from turingas.isa.latency import latencies
from turingas.isa.table import OPS
from turingas.listing import source_text
from turingas.report.roofline import Ceilings, bounds

#: files that a line table may have us show: it comes with the cubin, and the page may be given to others
SHOWN = frozenset(".c .cc .cpp .cu .cuh .cxx .h .hh .hpp .hxx .inc .inl .ipp .ptx .py .sass .tpp".split())
NEAR = 3  # lines of a source that are shown around those that code comes from
MOST_DRAWN = 3000  # blocks of a control-flow graph that is drawn

Json = dict[str, Any]


@dataclass(frozen=True)
class Run:
    """A launch of a kernel on the CPU device, with counters. ``given``: how it was launched, as text; ``lines``: what
    `turingas run` prints of its results; ``error``: what the kernel did wrong."""

    report: Report
    given: str = ""
    lines: Sequence[str] = ()
    error: str = ""


@dataclass(frozen=True)
class File:
    """A file with kernels, ``shown`` those that the page is about. ``runs``: the kernels that ran, by name;
    ``folders``: where to look for source files besides where the line table says that they are; ``source``: what the
    cubin was assembled from, whose lines go by ``name``."""

    name: str
    cubin: Cubin
    shown: Sequence[Kernel]
    runs: Mapping[str, Run] = field(default_factory=dict)
    folders: Sequence[str] = ()
    source: str = ""


def kernel_facts(file: File, kernel: Kernel, ceilings: Ceilings | None = None) -> Json:
    """All that is known of a kernel."""
    graph = Graph(kernel, file.name)
    run = file.runs.get(kernel.name)
    words = kernel.words
    found: Json = {
        "name": kernel.name, "file": file.name, "arch": kernel.arch, "entry": kernel.entry,
        "text": [graph.text(n) for n in range(len(words))],
        **{name: [word >> at_ & mask for word in words] for name, (at_, mask) in CODE.items()},
        **_resources(file.cubin, kernel), **_flow(graph), **_source(graph, file), **_life(graph),
        **_banks(graph), **_meaning(graph),
        "boards": [list(one) for one in waits(graph)],
        "loops": list(_loops(graph)),
        "names": kernel.names,
        "findings": [_finding(one) for one in [*lint_graph(graph), *_found(graph, run)]],
        "run": None if run is None else _run(run, graph, ceilings),
    }  # fmt: skip
    return found


#: field of a control code -> its place in the word, and its bits
CODE = {
    "wait": (control.WAIT, 63), "read": (control.READ, 7), "write": (control.WRITE, 7), "keep": (control.YIELD, 1),
    "stall": (control.STALL, 15),
}  # fmt: skip


def _resources(cubin: Cubin, kernel: Kernel) -> Json:
    """As `turingas info` has them; of device functions only what they have."""
    for one in as_dict(cubin)["kernels"] if kernel.entry else ():
        if one["name"] == kernel.name:
            return {"resources": one, "mostWarps": kernel.facts.max_warps}
    mix = dict(instruction_mix(kernel).most_common())
    return {"resources": {"registers": kernel.registers, "mix": mix}, "mostWarps": kernel.facts.max_warps}


def _flow(graph: Graph) -> Json:
    """Blocks: first instruction, the one behind the last, the loops around it (inner ones last), whether anything leads
    there. ``targets``: where a branch or a call leads to. ``graph``: a drawing, "" of one that is too large."""
    around: dict[int, list[int]] = {}
    for number, loop in enumerate(graph.loops):  # outer ones come first
        for block in loop.blocks:
            around.setdefault(block, []).append(number)
    blocks = [
        [block.start, block.end, around.get(n, []), n in graph.reachable] for n, block in enumerate(graph.blocks)
    ]
    targets = {
        block.end - 1: graph.blocks[to].start
        for block in graph.blocks
        if (to := block.taken if block.taken is not None else block.calls) is not None
    }
    return {"blocks": blocks, "targets": targets,
            "graph": draw.svg(graph) if len(blocks) <= MOST_DRAWN else ""}  # fmt: skip


def _source(graph: Graph, of: File) -> Json:
    """``files``: names; ``lines``: of each, line -> text, of the lines that code comes from and those
    NEAR them; ``place``: of each instruction the number of its file, and its line, 0 where it is not known."""
    files: list[str] = []
    numbers: dict[str, int] = {}
    place = []
    for n in range(len(graph.instructions)):
        file, line = graph.source(n)
        if line and file not in numbers:
            numbers[file] = len(files)
            files.append(file)
        place.append([numbers[file], line] if line else [0, 0])
    texts: list[dict[int, str]] = []
    for number, file in enumerate(files):
        wanted = {near for its, line in {(its, line) for its, line in place if line and its == number}
                  for near in range(line - NEAR, line + NEAR + 1)}  # fmt: skip
        known: list[str] = []
        if of.source and file == of.name:
            known = of.source.splitlines()
        elif os.path.splitext(file)[1] in SHOWN:
            known = source_text(file, of.folders)
        texts.append({line: known[line - 1] for line in sorted(wanted) if 0 < line <= len(known)})
    return {"files": files, "lines": texts, "place": place}


def _meaning(graph: Graph) -> Json:
    """``does``: mnemonic -> what it does; ``pipe`` of each instruction; ``after``: the cycles after which its results
    are there for everybody, 0 where they come at no fixed time, None without results."""
    rules = latencies(graph.kernel.arch)
    after: list[int | None] = []
    for i in graph.instructions:
        writes = [one for one in i.writes if one.file in FILES] if i is not None else []
        late = any(rules.variable(i, one) for one in writes) if i is not None else False
        after.append(None if i is None or not writes else 0 if late else max(rules.most(i, one) for one in writes))
    return {
        "does": {i.base: OPS[i.base].does for i in graph.instructions if i is not None},
        "pipe": [None if i is None else rules.pipe(i) for i in graph.instructions],
        "after": after,
    }


def _life(graph: Graph) -> Json:
    """``held``: file of registers -> how many are taken at each instruction; ``peaks``: the most, and where. ``life``:
    name of a register -> [from, behind] of each stretch of instructions at which it is taken. ``touched``: of each
    instruction, the registers that it reads, and those that it writes."""
    lives = Lives(graph)
    size = len(lives.before)
    taken = [lives.before[n] | lives.after[n] | lives.written[n] for n in range(size)]
    spans: dict[int, list[list[int]]] = {}
    before = 0
    for n, now in enumerate([*taken, 0]):
        for register in bits(before & ~now):
            spans[register][-1].append(n)
        for register in bits(now & ~before):
            spans.setdefault(register, []).append([n])
        before = now
    used = [file for file in FILES if lives.used(file)]
    return {
        "held": {file: [lives.held(n, file) for n in range(size)] for file in used},
        "peaks": {file: list(lives.peak(file)) for file in used},
        "life": {_register(one): spans[one] for one in sorted(spans)},
        "touched": [[_registers(lives.read[n]), _registers(lives.written[n])] for n in range(size)],
    }


def _register(number: int) -> str:
    file, index = register_of(number)
    return f"{file}{index}"


def _registers(mask: int) -> list[str]:
    return [_register(one) for one in bits(mask)]


def _banks(graph: Graph) -> Json:
    """``conflicts``: cycles lost to register banks; ``reused``: the places (a, b, c) that come from the reuse cache,
    ``kept``: those that an instruction leaves there. Each block as if the cache were empty before it."""
    conflicts, reused, kept = dict[int, int](), dict[int, str](), dict[int, str]()
    for block in graph.blocks:
        for i, cache, cycles in walk(graph.instructions[block.start : block.end], graph.kernel.facts):
            n = i.address // WORD_BYTES
            if cycles:
                conflicts[n] = cycles
            read = sources(i) if cache.kept or i.control.reuse else ()
            if hit := "".join(SLOTS[slot[1]] for slot, number, _ in read if cache.kept.get(slot) == number):
                reused[n] = hit
            if flags := "".join(SLOTS[slot[1]] for slot, _, keep in read if keep):
                kept[n] = flags
    return {"conflicts": conflicts, "reused": reused, "kept": kept}


def _loops(graph: Graph) -> Iterable[Json]:
    """The linter's summaries, each with what an iteration issues."""
    for one in summary(graph):
        yield {
            "number": one.number, "start": one.start // WORD_BYTES, "end": one.end // WORD_BYTES, "depth": one.depth,
            "file": one.file, "lines": list(one.lines), "instructions": one.instructions, "math": one.math,
            "share": one.share, "stalls": one.stalls, "conflicts": one.conflicts, "waits": one.waits,
            "yields": one.yields, "bounds": one.bounds, "bound": one.bound, "alone": one.alone, "least": one.least,
            "warps": one.warps,
            "issues": [[i.n, i.cycle, i.stall, i.conflict, i.pipe, i.busy] for i in iteration(graph, one.number)],
        }  # fmt: skip


def _finding(one: Finding) -> Json:
    found: Json = {"n": one.address // WORD_BYTES, "kind": one.kind, "severity": one.severity, "message": one.message}
    if one.other is not None:
        found["other"] = one.other // WORD_BYTES
    return found | ({"hint": one.hint} if one.hint else {})


def _found(graph: Graph, run: Run | None) -> Iterable[Finding]:
    """What a run found: hazards, and races of both their instructions."""
    for hazard in run.report.hazards if run else ():
        first, second = (place.address // WORD_BYTES for place in (hazard.first, hazard.second))
        yield at(graph, second, f"run: {hazard.kind}", "error", hazard.message, other=first)
    for race in run.report.races if run else ():
        first, second = (place.address // WORD_BYTES for place in (race.first, race.second))
        yield at(graph, second, "run: race", "error", str(race), race.remedy, first)


def _run(run: Run, graph: Graph, ceilings: Ceilings | None) -> Json:
    """``counters``: of each instruction, see turingas.emulate.counters; ``roofline``: see turingas.report.roofline."""
    report = run.report
    counters = report.counters
    found: Json = {
        "given": run.given, "lines": [*report.printed.splitlines(), *run.lines], "error": run.error,
        "instructions": report.instructions, "laneInstructions": report.lane_instructions,
        "hazards": len(report.hazards), "races": len(report.races),
        "counters": {} if counters is None else {name: getattr(counters, name).tolist() for name in NUMBERS},
    }  # fmt: skip
    if counters is not None:
        found["roofline"] = bounds(graph, counters, ceilings)
    return found
