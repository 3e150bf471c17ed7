"""Products of a warp group that wait for scoreboards."""

from __future__ import annotations

from collections.abc import Iterator

from turingas.check.finding import Finding
from turingas.check.report import at
from turingas.check.rules import rule
from turingas.flow.graph import Graph
from turingas.isa import control
from turingas.isa.table import OPS

SCOREBOARDS = range(6)
HINT = "let the WARPGROUP.ARRIVE in front of the products wait: there its warps come together"


@rule("group-wait", "A product of a warp group waits for a scoreboard by itself")
def check(graph: Graph) -> Iterator[Finding]:
    """An error for each. Its four warps begin such a product together; none in cuBLASLt's and Triton's kernels waits,
    and on an H200 Triton's attention read wrong addresses where some did."""
    for n in graph.of(*(mnemonic for mnemonic in graph.mnemonics if OPS[mnemonic].pipe == "wgmma")):
        mask = graph.kernel.words[n] >> control.WAIT
        boards = [str(board) for board in SCOREBOARDS if mask >> board & 1]
        if boards:
            what = f"a product of a warp group waits for scoreboard {' and '.join(boards)} by itself"
            yield at(graph, n, "group-wait", "error", what, HINT)
