"""The shape of the control flow: code that runs off the end or leads nowhere."""

from __future__ import annotations

from collections.abc import Iterator

from turingas.check.finding import Finding
from turingas.check.report import at, of_kernel
from turingas.check.rules import rule
from turingas.flow.graph import Graph, flow_of
from turingas.isa.arch import WORD_BYTES
from turingas.isa.instruction import Instruction, Label, Reg
from turingas.isa.latency import latencies


@rule("no-exit", "Control runs off the end of the code")
@rule("bad-target", "A branch to an address where no instruction begins")
@rule("unreachable", "Code that no path reaches")
@rule("unknown-word", "A word that is not a known instruction")
def check(graph: Graph) -> Iterator[Finding]:
    """What is wrong with the control flow of a kernel."""
    if not graph.instructions:
        yield of_kernel(graph, "no-exit", "error", "there are no instructions", "end the kernel with EXIT")
        return
    yield from _opaque(graph)
    yield from _targets(graph)
    yield from _ends(graph)
    yield from _unreachable(graph)


# -- words and targets


def _opaque(graph: Graph) -> Iterator[Finding]:
    if None not in graph.instructions:
        return
    for number in sorted(graph.reachable):
        block = graph.blocks[number]
        for n in range(block.start, block.end):
            if graph.instructions[n] is None:
                message = f"this word is not an instruction known on {graph.kernel.arch}"
                hint = "is it made for another architecture? the checks do not know what it does"
                yield at(graph, n, "unknown-word", "warning", message, hint)


def _targets(graph: Graph) -> Iterator[Finding]:
    """Branches to places where no instruction begins. Targets that the linker fills in are not known."""
    linked = {row.address // WORD_BYTES for row in graph.kernel.relocations}
    size = WORD_BYTES * len(graph.instructions)
    for n, i in [(n, i) for n, i in enumerate(graph.instructions) if i is not None and i.shape.located]:
        if n in linked:
            continue
        for label in (o for o in i.operands if isinstance(o, Label) and o.base is None):
            if not label.relative and i.base != "BSSY":
                continue  # an absolute address: JMP, CALL.ABS
            if not 0 <= label.address < size:
                message = f"{i.base} leads to {label.address:#x}, outside of the kernel (0x0 to {size:#x})"
            elif label.address % WORD_BYTES:
                message = f"{i.base} leads to {label.address:#x}, into the middle of an instruction"
            else:
                continue
            yield at(graph, n, "bad-target", "error", message, "use a label")


# -- ends


def _ends(graph: Graph) -> Iterator[Finding]:
    """Control that reaches the end of the code, or the branch to itself that the assembler puts there."""
    hint = "end every path through the kernel with EXIT" if graph.kernel.entry else "end the function with RET or EXIT"
    padding = _padding(graph)
    for number in sorted(graph.reachable):
        block = graph.blocks[number]
        last = graph.instructions[block.end - 1]
        if block.end == len(graph.instructions) and not _stops(last):
            message = "control runs off the end of the code"
            yield at(graph, block.end - 1, "no-exit", "error", message, hint)
        elif block.start == padding and (before := block.start - 1) >= 0 and not _stops(graph.instructions[before]):
            message = "control runs into the branch to itself behind the code: the kernel does not end"
            if _stub(graph):
                message += "; it does nothing either, and is not meant to be launched"
            yield at(graph, before, "no-exit", "note" if _stub(graph) else "error", message, hint)


#: pipes whose instructions have effects outside of the registers of a warp, or end it
EFFECTS = ("lsu", "tex", "copy", "branch")


def _stub(graph: Graph) -> bool:
    """Whether compiled code neither does anything nor has an end: what compilers make of a kernel whose body cannot be
    reached."""
    rules, padding = latencies(graph.kernel.arch), _padding(graph)
    code = graph.instructions[:padding]
    return not graph.source(0)[1] and all(i is not None and rules.pipe(i) not in EFFECTS for i in code)


def _stops(i: Instruction | None) -> bool:
    """Whether no thread goes on to the next instruction. A trap ends the kernel: compilers put nothing behind it."""
    if i is not None and i.base == "BPT" and "TRAP" in i.mods:
        return i.always
    if i is None or flow_of(i) not in ("end", "jump", "indirect"):
        return False
    return i.always and not any(isinstance(o, Reg) and o.file in ("P", "UP") and not o.zero for o in i.operands)


def _padding(graph: Graph) -> int:
    """Where the code ends: its last instructions are a branch to itself and NOPs."""
    n = len(graph.instructions)
    while n and (i := graph.instructions[n - 1]) is not None and i.base == "NOP" and i.always:
        n -= 1
    if n and (i := graph.instructions[n - 1]) is not None and _to_itself(i):
        n -= 1
    return n


def _to_itself(i: Instruction) -> bool:
    return i.base == "BRA" and i.always and any(isinstance(o, Label) and o.address == i.address for o in i.operands)


def _unreachable(graph: Graph) -> Iterator[Finding]:
    """Runs of blocks that nothing leads to, one finding each. With calls or branches to what is not known, any block
    may be where they lead."""
    if graph.open or any(block.leaves for block in graph.blocks):
        return
    run: list[int] = []
    for number, block in enumerate(graph.blocks):
        if number in graph.reachable or not _matters(graph, block.start, block.end):
            yield from _dead(graph, run)
            run = []
        else:
            run.append(number)
    yield from _dead(graph, run)


def _dead(graph: Graph, run: list[int]) -> Iterator[Finding]:
    if run:
        first, last = graph.blocks[run[0]].start, graph.blocks[run[-1]].end - 1
        count = last - first + 1
        message = "no path reaches this instruction" + (f" and the {count - 1} that follow" if count > 1 else "")
        before = graph.instructions[first - 1] if first else None
        end = graph.instructions[last]
        # compilers leave dead code behind a BRA, and the way back of a function that nobody calls (ptxas 12.9, sm_87)
        left = before is not None and before.base == "BRA" and _stops(before) or end is not None and end.base == "RET"
        yield at(graph, first, "unreachable", "note" if left else "warning", message, "branch here, or remove it")


#: Op.traits of what may stand, with ends, where nobody comes by: padding, and what compilers leave behind a call that
#: does not return
HARMLESS = frozenset(["nothing", "fence"])


def _matters(graph: Graph, start: int, end: int) -> bool:
    code = graph.instructions[start:end]
    return not all(i is not None and (i.op.traits & HARMLESS or flow_of(i) == "end" or _to_itself(i)) for i in code)
