"""Calls that return to another place than behind themselves, and indirect branches that lead elsewhere than their
table says: what happens to compiled code in which instructions moved and the numbers that are addresses did not."""

from __future__ import annotations

from collections.abc import Iterator

from turingas.check.finding import Finding
from turingas.check.report import at
from turingas.check.rules import rule
from turingas.cubin import addresses
from turingas.flow.graph import Graph, flow_of
from turingas.isa.arch import WORD_BYTES
from turingas.isa.table import OPS

HINT = "was an instruction put in or taken out? write the address as a label: MOV R20, 32@lo(LABEL)"


@rule("branch-table", "An indirect branch to targets other than those that the cubin lists")
@rule("moved-code", "A branch of changed code that may lead anywhere")
@rule("return-address", "A call that does not return to the instruction after it")
def check(graph: Graph) -> Iterator[Finding]:
    """Addresses of code that do not agree with where the instructions stand."""
    told = {n // WORD_BYTES for n in graph.kernel.stranded}
    for n in sorted(told):
        message = "the code has changed since it was taken from a cubin, and where this leads cannot be told"
        yield at(graph, n, "moved-code", "error", message, "correct the number by hand, and take it out of .layout")
    if not any(OPS[mnemonic].flow in ("call", "indirect") for mnemonic in graph.mnemonics):
        return
    # a device function of its own section has its tables in those of the kernels, as nvlink put them there (NCCL)
    tables = bool(addresses.branch_tables(graph.kernel)) and addresses.TABLE_BANK in graph.kernel.constants
    for n, why in sorted(addresses.find(graph.kernel).unknown.items()):
        i = graph.instructions[n]
        if i is None or n in told or graph.block_of(n) not in graph.reachable:
            continue
        if i.base == "CALL" and "NOINC" in i.mods and why == addresses.NO_RETURN:
            message = f"no register holds {WORD_BYTES * (n + 1):#x}, the address after this call: it returns elsewhere"
            yield at(graph, n, "return-address", "error", message, HINT)
        elif flow_of(i) == "indirect" and i.op.relative and tables:
            message = "this branch has other targets than .nv.info lists (INDIRECT_BRANCH_TARGETS)"
            yield at(graph, n, "branch-table", "error", message, "count from START, and write the table with labels")
