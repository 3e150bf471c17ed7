"""How long compiled code stalls behind branches, barriers and fences, whatever comes next: ``python -m
tests.tools.mine_behind PATH ...``. A path is a cubin, a library, a wheel, or a folder of these.

For each architecture and each mnemonic of control flow and its like it prints how often each stall was seen (64: one of
0 with the yield flag, as behind the BRA to itself that ends the code), and for those that are shorter than the row and
can be reached the first of each. ``--row`` prints rows for latency.csv instead: the least stall, where there are
``CASES`` of it. ``--pairs HADD2 HFMA2 HMUL2`` prints how long it stalls between neighbours of these mnemonics: what a
pipe takes for each, if compilers leave it the time. ``--after BAR`` prints, for each pipe, how many cycles behind
these mnemonics its instructions come, up to ``NEAR``: what may come before a barrier holds the warp. ``--part`` takes
a part of the cubins.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.tools.corpus import share, sources
from tests.tools.mine_latency import TOGETHER
from turingas.cubin.cubin import Cubin
from turingas.cubin.model import Kernel
from turingas.errors import AsmError, CubinError
from turingas.flow.graph import Graph
from turingas.isa import control
from turingas.isa.instruction import Instruction, Label, instruction
from turingas.isa.isa import instruction_set
from turingas.isa.latency import STALL_ZERO, latencies
from turingas.isa.table import OPS

CASES, NEAR = 5, 8
NAMES = (
    "BRA BRX BRXU CALL RET EXIT BSYNC BREAK BMOV WARPSYNC YIELD NANOSLEEP MEMBAR ERRBAR CCTL CGAERRBAR BSSY BPT KILL "
    "JMP JMX BAR DEPBAR UCGABAR_WAIT UCGABAR_ARV"
).split()
BASES = {arch for together in TOGETHER for arch in together}
YIELDS = 1 << control.YIELD


def stall(word: int) -> int:
    """The stall of a word, in cycles."""
    return word >> control.STALL & 15 or (1 if word & YIELDS else STALL_ZERO)


class Mine:
    """``seen``: architecture and mnemonic -> stall -> how often, of those below the row only what can be reached;
    ``example``: of each such stall the first; ``guarded``: how many of them have a guard."""

    def __init__(self) -> None:
        self.seen: dict[tuple[str, str], Counter[int]] = defaultdict(Counter)
        self.guarded: Counter[tuple[str, str]] = Counter()
        self.example: dict[tuple[str, str, int], str] = {}
        self.named: dict[tuple[str, int], str] = {}  # architecture and word without its numbers -> mnemonic

    def add(self, kernel: Kernel) -> None:
        """All words of a kernel."""
        arch = kernel.arch
        isa, rules = instruction_set(arch), latencies(arch)
        graph: Graph | None = None
        for n in kernel.code.having(isa.opcodes(*(name for name in NAMES if isa.named(name)))):
            word = kernel.code[n]
            key = arch, word & 0xFFF
            if key not in self.named:
                i = instruction(isa, word)
                self.named[key] = "" if i is None else i.base
            name = self.named[key]
            cycles, need = stall(word), rules.cycles.get(("behind", "", name, ""), 1)
            if cycles < need:
                i = instruction(isa, word, 16 * n)
                if i is None or to_itself(i, n):
                    continue
                graph = graph or Graph(kernel)
                if graph.block_of(n) not in graph.reachable:
                    continue
                then = [isa.decode(kernel.code[n + k], 16 * (n + k)) for k in range(min(2, len(kernel.code) // 16 - n))]
                self.example.setdefault((arch, name, cycles), f"{kernel.name[:60]} +{16 * n:#x}: {' | '.join(then)}")
                self.guarded[arch, name] += not i.always
            self.seen[arch, name][cycles] += 1


def to_itself(i: Instruction, n: int) -> bool:
    """Whether it is the branch to itself behind the code."""
    return i.base == "BRA" and any(isinstance(o, Label) and o.address == 16 * n for o in i.operands)


def kernels(paths: Iterable[Path], part: float) -> Iterator[Kernel]:
    """All kernels of a part of the cubins, each once."""
    seen: set[tuple[str, str]] = set()
    with tempfile.TemporaryDirectory() as folder:
        for source in sources(paths, Path(folder)):
            if share(source.name) > part:
                continue
            try:
                cubin = Cubin.from_bytes(source.read())
            except (AsmError, CubinError):
                continue
            for kernel in cubin.texts:
                if (kernel.arch, kernel.name) not in seen:
                    seen.add((kernel.arch, kernel.name))
                    yield kernel


def neighbours(kernel: Kernel, names: Iterable[str], seen: Counter[tuple[str, str, int]]) -> None:
    """Counts the stalls between neighbours of a kernel; HFMA2.MMA, which has a pipe of its own, is told apart."""
    isa = instruction_set(kernel.arch)
    at = kernel.code.having(isa.opcodes(*(name for name in names if isa.named(name))))
    for n, following in zip(at, at[1:]):
        if following == n + 1:
            pair = [instruction(isa, kernel.code[m]) for m in (n, following)]
            kinds = " ".join("?" if i is None else f"{i.base}.MMA" if "MMA" in i.mods else i.base for i in pair)
            seen[kernel.arch, kinds, stall(kernel.code[n])] += 1


def followers(kernel: Kernel, names: Iterable[str], seen: Counter[tuple[str, str, int]]) -> None:
    """Counts how many cycles behind instructions of these names those of each pipe come, in straight code."""
    isa = instruction_set(kernel.arch)
    graph: Graph | None = None
    for n in kernel.code.having(isa.opcodes(*(name for name in names if isa.named(name)))):
        graph = graph or Graph(kernel)
        passed = 0
        for m in range(n, graph.blocks[graph.block_of(n)].end - 1):
            passed += stall(kernel.code[m])
            then = graph.instructions[m + 1]
            if passed > NEAR or then is None:
                break
            seen[kernel.arch, OPS[then.base].pipe, passed] += 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("paths", nargs="+", type=Path)
    parser.add_argument("--row", action="store_true", help="rows for latency.csv")
    parser.add_argument("--part", type=float, default=1.0, help="of the cubins, 0 to 1")
    parser.add_argument("--pairs", nargs="+", metavar="MNEMONIC", help="stalls between neighbours of these")
    parser.add_argument("--after", nargs="+", metavar="MNEMONIC", help="how soon behind these each pipe begins")
    options = parser.parse_args()
    if options.pairs or options.after:
        pairs: Counter[tuple[str, str, int]] = Counter()
        for kernel in kernels(options.paths, options.part):
            neighbours(kernel, options.pairs or (), pairs)
            followers(kernel, options.after or (), pairs)
        for (arch, kinds, cycles), count in sorted(pairs.items()):
            print(arch, kinds, f"{cycles}: {count}")
        return 0
    mine = Mine()
    for kernel in kernels(options.paths, options.part):
        mine.add(kernel)
    for (arch, name), stalls in sorted(mine.seen.items()):
        need = latencies(arch).cycles.get(("behind", "", name, ""), 1)
        count, least = sum(stalls.values()), min(stalls)
        if not options.row:
            short = f" ({mine.guarded[arch, name]} of the shorter ones with a guard)" if least < need else ""
            print(arch, name, f"row {need}, {count} seen:", *(f"{k}x{n}" for k, n in sorted(stalls.items())), short)
            for cycles in sorted(k for k in stalls if k < need):
                print("   ", cycles, mine.example[arch, name, cycles])
        elif least > 1 and count >= CASES and arch in BASES:
            print(f"{arch},behind,,{name},,{least},ptxas: never less in {count} words of NVIDIA's libraries")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
