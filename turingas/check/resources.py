"""What a kernel takes of an SM: registers, shared memory and barriers against what it declares and what there is."""

from __future__ import annotations

from collections.abc import Iterator

from turingas.check.finding import Finding
from turingas.check.flow import Graph
from turingas.check.report import at, of_kernel
from turingas.info import BLOCK_SIZES, WARP, resident_warps
from turingas.isa import control
from turingas.isa.arch import KB
from turingas.isa.instruction import Reg
from turingas.program import Kernel


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
    if any(i is not None and i.base == "USETMAXREG" for i in graph.instructions):
        return  # warps give registers to each other: what is declared holds at the start only
    memo: dict[int, int] = {}
    used, where = 0, 0
    for n, word in enumerate(kernel.words):
        bare = word & ~control.MASK
        if bare not in memo:
            memo[bare] = graph.isa.registers(bare)
        if memo[bare] > used:
            used, where = memo[bare], n
    if used > kernel.registers:
        message = f"R{used - 1} is used, and {kernel.registers} registers are declared: the kernel faults"
        yield at(graph, where, "registers", "error", message, f"declare {used + 2}, or leave .registers out")


def _shared(graph: Graph) -> Iterator[Finding]:
    kernel, facts = graph.kernel, graph.kernel.facts
    most = facts.shared_static + facts.shared_reserved  # compilers for sm_90 count what is reserved in
    if kernel.shared_bytes > facts.shared_optin + facts.shared_reserved:
        message = f"{kernel.shared_bytes} bytes of shared memory; a block on {facts.name} has {facts.shared_optin}"
        yield of_kernel(graph, "shared-memory", "error", message, "work on smaller tiles")
    elif kernel.shared_bytes > most:
        message = f"{kernel.shared_bytes} bytes of static shared memory; a cubin may declare {facts.shared_static}"
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
    for n, i in enumerate(graph.instructions):
        if i is None or i.base != "BAR" or any(isinstance(o, Reg) and not o.zero for o in i.operands[:1]):
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
