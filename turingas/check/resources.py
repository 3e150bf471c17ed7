"""What a kernel takes of an SM: registers, shared memory and barriers against what it declares and what there is."""

from __future__ import annotations

from collections.abc import Iterator

from turingas.check.finding import Finding
from turingas.check.report import at, of_kernel
from turingas.check.rules import rule
from turingas.cubin.model import Kernel
from turingas.flow.graph import Graph
from turingas.info import BLOCK_SIZES, WARP, resident_warps
from turingas.isa.arch import KB
from turingas.isa.instruction import Imm, Reg

SPARE = 2  # the hardware's own: a warp that uses R181 faults unless it has 184 registers (measured on an H200)
UNIT = 8  # USETMAXREG counts in steps of so many
ALL = 256
GENERAL = (1 << ALL) - 1  # these registers as bits

Share = tuple[int, int]  # registers of a thread, and the USETMAXREG that set them (-1: what is declared)


@rule("registers", "Registers out of range: more than are declared, or than there are")
@rule("shared-memory", "More shared memory than there is")
@rule("barriers", "Barriers out of range: more than are declared, or than there are")
@rule("occupancy", "How many warps fit on an SM")
def check(graph: Graph) -> Iterator[Finding]:
    """Resources beyond a limit, and the occupancy that they give."""
    yield from _registers(graph)
    yield from _shared(graph)
    yield from _barriers(graph)
    if graph.kernel.entry:
        yield from _occupancy(graph)


def _registers(graph: Graph) -> Iterator[Finding]:
    kernel, facts = graph.kernel, graph.kernel.facts
    if kernel.registers > facts.max_registers:
        message = f"{kernel.registers} registers are declared; {facts.name} has {facts.max_registers} for a thread"
        yield of_kernel(graph, "registers", "error", message, "keep fewer values at a time")
    if graph.of("USETMAXREG"):
        yield from _moved_registers(graph, _counts(graph))  # what is declared holds at the start only
        return
    used = (graph.touched & GENERAL).bit_length()
    if used > kernel.registers:
        where = _counts(graph).index(used)
        message = f"R{used - 1} is used, and {kernel.registers} registers are declared: the kernel faults"
        yield at(graph, where, "registers", "error", message, f"declare {used + SPARE}, or leave .registers out")


def _counts(graph: Graph) -> list[int]:
    """Of each instruction, one more than the highest register that it uses."""
    return [0 if this is None else ((this.read | this.written) & GENERAL).bit_length() for this in graph.effects]


def _moved_registers(graph: Graph, counts: list[int]) -> Iterator[Finding]:
    """Registers beyond those that a warp has where it gives some up or gets more. Of all ways the fewest count; a call
    is taken to leave them as they were."""
    had: dict[int, Share] = dict.fromkeys(graph.entries[:1], (graph.kernel.registers, -1))
    todo = list(had)
    while todo:
        number = todo.pop()
        block, share = graph.blocks[number], had[number]
        for n in range(block.start, block.end):
            share = _share(graph, n, share)
        for to in [*block.next, *([] if block.calls is None else [block.calls])]:
            if to not in had or share < had[to]:
                had[to] = share
                todo.append(to)
    worst: dict[Share, int] = {}  # the instruction with the highest register
    for number, share in sorted(had.items()):
        for n in range(graph.blocks[number].start, graph.blocks[number].end):
            if counts[n] > max(share[0] - SPARE, counts[worst[share]] if share in worst else 0):
                worst[share] = n
            share = _share(graph, n, share)
    for (left, giver), n in worst.items():
        message = f"R{counts[n] - 1} is used, and the warp has {left} registers, of which it can use R0 to"
        message += f" R{left - SPARE - 1}: the kernel faults"
        hint = f"that takes {-(-(counts[n] + SPARE) // UNIT) * UNIT} registers; or use lower ones"
        yield at(graph, n, "registers", "error", message, hint, None if giver < 0 else giver)


def _share(graph: Graph, n: int, share: Share) -> Share:
    """What a warp has behind instruction ``n`` if it had ``share`` before. A number in a register may be any."""
    i = graph.instructions[n]
    if i is None or i.base != "USETMAXREG":
        return share
    found = next((o.value for o in i.operands if isinstance(o, Imm)), ALL), n
    return found if i.always else min(share, found)


def _shared(graph: Graph) -> Iterator[Finding]:
    kernel, facts = graph.kernel, graph.kernel.facts
    most = facts.shared_static + facts.shared_counted
    if kernel.shared_bytes > facts.shared_optin + facts.shared_counted:
        message = f"{kernel.shared_bytes} bytes of shared memory; a block on {facts.name} has {facts.shared_optin}"
        yield of_kernel(graph, "shared-memory", "error", message, "work on smaller tiles")
    elif kernel.shared_bytes > most:
        message = f"{kernel.shared_bytes} bytes of static shared memory; a cubin may declare {most}"
        hint = (
            f"declare 0 and pass the size at launch as dynamic shared memory: up to {facts.shared_optin // KB} KB with"
            " cudaFuncAttributeMaxDynamicSharedMemorySize"
        )
        yield of_kernel(graph, "shared-memory", "error", message, hint)


def _barriers(graph: Graph) -> Iterator[Finding]:
    kernel, facts = graph.kernel, graph.kernel.facts
    if kernel.barriers > facts.max_barriers:
        message = f"{kernel.barriers} barriers are declared; a block has {facts.max_barriers}"
        yield of_kernel(graph, "barriers", "error", message)
    if not kernel.entry:
        return  # a function's barriers are declared by the kernels that call it
    used, where = 0, 0
    for n in graph.of("BAR"):
        i = graph.instructions[n]
        if i is None or any(isinstance(o, Reg) and not o.zero for o in i.operands[:1]):
            continue  # a barrier whose number is in a register may be any
        if graph.isa.barriers(i.word) > used:
            used, where = graph.isa.barriers(i.word), n
    if kernel.barriers < used <= facts.max_barriers:
        message = f"barrier {used - 1} is used, and {kernel.barriers} barriers are declared"
        yield at(graph, where, "barriers", "error", message, f"write .barriers {used}, or leave it out")


def _occupancy(graph: Graph) -> Iterator[Finding]:
    kernel, facts = graph.kernel, graph.kernel.facts
    most = max_threads(kernel)
    if most and most * kernel.registers > facts.registers_per_sm:
        message = f"blocks of {most} threads with {kernel.registers} registers each do not fit: there are"
        message += f" {facts.registers_per_sm} registers"
        yield of_kernel(graph, "registers", "error", message, "use fewer registers or smaller blocks")
        return
    sizes = [size for size in BLOCK_SIZES if size >= 4 * WARP and (not most or size <= most)] or [most]
    if kernel.registers == 0:
        return
    groups: dict[tuple[int, str], list[str]] = {}  # (warps, limit) -> sizes of blocks
    for size in sizes:
        found = resident_warps(facts, kernel.registers, kernel.shared_bytes, size)
        groups.setdefault(found, []).append(str(size))
    fit = "; ".join(
        f"{warps} of {facts.max_warps} warps fit on an SM in blocks of {', '.join(blocks)} threads (limited by {limit})"
        for (warps, limit), blocks in groups.items()
    )
    message = f"{kernel.registers} registers, {kernel.shared_bytes} bytes of shared memory: {fit}"
    yield of_kernel(graph, "occupancy", "note", message)


def max_threads(kernel: Kernel) -> int:
    """The most threads of a block that the kernel is made for (.maxntid, .reqntid); 0 if it does not say."""
    infos = [*kernel.attributes, *(info for infos in kernel.infos.values() for info in infos)]
    for info in infos:
        if info.name in ("MAX_THREADS", "REQNTID") and len(info.words) == 3:
            x, y, z = info.words
            return x * y * z
    return 0
