"""The rows of turingas/isa/latency.csv, from code that NVIDIA's ptxas made.

    python -m tests.tools.mine_latency FOLDER... --measured kernels_sass/results/latency_sm90.json > rows.csv

For every fixed-latency instruction this finds who reads, or writes again, its registers, along every path of at most
HORIZON cycles, and keeps the smallest sum of stalls that ptxas ever left between two classes of instructions. ptxas
knows what the hardware needs, so with many cases the smallest distance is the need; with few it may be larger, and
then no row is written: the row (class, any) holds, with the smallest distance that the producer leaves to any reader.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.bench.latency import Pair, classes
from turingas.cubin.cubin import Cubin
from turingas.isa.arch import ARCHS
from turingas.isa.instruction import Instruction, Label, Reg, instruction
from turingas.isa.isa import instruction_set
from turingas.isa.latency import EARLY, SOURCES, Latencies, latencies, reader, writer

HORIZON = 48  # cycles that a dependence is followed
DEPTH = 5  # basic blocks that it is followed through
CASES, ATTESTED = 20, 8  # what makes a row: so many cases, and so many of them at the smallest distance or one more
SPREAD = 5  # readers of a general register do not need more than this beyond the quickest: rare cases only seem to
OVERTAKEN = {"half", "half.mma", "fp64", "move64", "r2ur", "uniform"}
FAST = {"alu", "fma", "half", "half.alu", "umove", "uniform"}
UNMINED = ("B", SOURCES)  # barriers are guarded by the hardware; of sources "war" tells
WRITER, READER = 2, 3  # in a Class
#: Classes that are rare in code. A pair with one of them that has no row has that of the pair with a commoner class, if
#: that asks for more than what there is. R2P is like ISETP, BRA.U like a guard.
LIKE = {("P", WRITER, "r2p"): "alu", ("R", WRITER, "HMMA.1688.F32"): "HMMA.1688.F32.TF32",
        ("UP", READER, "branch"): "guard"}  # fmt: skip
#: What was seen on an H200 apart from tests/bench/latency.py (docs/latency.md tells how).
SEEN = {("raw", "BAR", "BAR", "any"): "5 is too few", ("raw", "BAR", "DEPBAR", "any"): "3 is too few",
        ("war", "UR", "uniform", "umove"): "3"}
#: Less than the smallest distance of ptxas's own, in code of libraries that others have scheduled: cycles, and where.
SHORTER = {
    **{(arch, "raw", "UR", "uniform", "umove"): (6, "cuBLAS 13 on sm_80") for arch in ("sm_80", "sm_86", "sm_89")},
    ("sm_90", "raw", "R", "half.mma", "data"): (6, "cuBLAS 13 on sm_90"),
}
#: architectures with the same distances, wherever one of them has many cases
TOGETHER = [("sm_70", "sm_75"), ("sm_80", "sm_86", "sm_89"), ("sm_90",), ("sm_100",), ("sm_120",)]

# Issue rates do not follow from distances. An SM has four schedulers; 64 FP32 results a cycle and SM are 16 lanes for
# each: 2 cycles a warp instruction. Source: CUDA C++ Programming Guide, "Throughput of Native Arithmetic Instructions".
RATES = {
    "sm_70": {"fma": 2, "imad": 2, "alu": 2, "half": 2, "fp64": 4, "xu": 8, "lsu": 4},
    "sm_75": {"fma": 2, "imad": 2, "alu": 2, "half": 2, "fp64": 64, "xu": 8, "lsu": 4},
    "sm_80": {"fma": 2, "imad": 2, "alu": 2, "half": 1, "fp64": 4, "xu": 8, "lsu": 4},
    "sm_86": {"fma": 1, "imad": 2, "alu": 2, "half": 2, "fp64": 64, "xu": 8, "lsu": 4},
    "sm_89": {"fma": 1, "imad": 2, "alu": 2, "half": 2, "fp64": 64, "xu": 8, "lsu": 4},
    "sm_90": {"fma": 1, "imad": 2, "alu": 2, "half": 1, "fp64": 2, "xu": 8, "lsu": 4},
    "sm_100": {"fma": 1, "imad": 2, "alu": 2, "half": 2, "fp64": 2, "xu": 8, "lsu": 4},
    "sm_120": {"fma": 1, "imad": 2, "alu": 2, "half": 2, "fp64": 64, "xu": 8, "lsu": 4},
}
GUIDE = "CUDA C++ Programming Guide"
#: what ptxas leaves between neighbours (tests/tools/mine_behind.py --pairs), where that is more than the guide says
PACES = {
    ("sm_100", "half"): "ptxas: never less in 5858 pairs of neighbours in a part of cuBLAS and cuFFT for CUDA 13",
    ("sm_120", "half"): "ptxas: never less in 893 pairs of neighbours in a part of cuBLAS and cuFFT for CUDA 13",
}
ISSUE = {
    arch: [f"{arch},issue,,{pipe},,{cycles},{PACES.get((arch, pipe), GUIDE)}" for pipe, cycles in rates.items()]
    for arch, rates in RATES.items()
}
PAIRS = "sm_100,issue,,pairs,,2,ptxas: 2 in all of 3542 FFMA2 before an FFMA2 in libraries for CUDA 13"
ISSUE["sm_100"].insert(2, PAIRS)
LIGHT = (
    "sm_120,issue,,alu.light,,1,ptxas: 1 between any two and never 1 between two others of alu "
    "in 2500 kernels of cuSOLVER for CUDA 13"
)
ISSUE["sm_120"].insert(3, LIGHT)
#: rows of chips beside those of their line
CHIPS = {
    "sm_103": "sm_103,issue,,fp64,,64,as on sm_120; ptxas: 1 in 1766 of 3291 pairs of neighbours in 120 kernels of "
              "libraries for CUDA 13",
    "sm_110": "sm_110,issue,,fp64,,64,as on sm_120; ptxas 13.5 gives five DFMA the same codes for all three",
}  # fmt: skip

#: Products of tensor cores: where it is published how many multiply-adds a scheduler does in a cycle, by type; sparse
#: ones are done twice as fast. NVIDIA gives them for an SM, as peaks of a chip, or for a tensor core; of GA10x and Ada
#: those of the chips that do not halve them for FP32 accumulators. Binary is four times INT4 where both are published.
MULTIPLY_ADDS: dict[str, tuple[str, dict[str, float]]] = {
    "sm_70": ("Tesla V100 whitepaper", {"F16": 128}),
    "sm_75": ("Turing whitepaper", {"F16": 128, "S8": 256, "S4": 512, "B1": 2048}),
    "sm_80": ("A100 whitepaper", {"F16": 256, "TF32": 128, "S8": 512, "S4": 1024, "B1": 4096, "F64": 16}),
    "sm_86": ("GA102 whitepaper and A40 data sheet",
              {"F16": 128, "TF32": 64, "S8": 256, "S4": 512, "B1": 2048, "F64": 0.5}),
    "sm_89": ("Ada whitepaper and L40S data sheet",
              {"F16": 128, "TF32": 64, "S8": 256, "S4": 512, "B1": 2048, "F64": 0.5, "F8": 256}),
    "sm_100": ("", {}), "sm_120": ("", {}),  # of products of a warp nothing is published
}  # fmt: skip
HMMA = Path(__file__).parents[2] / "kernels_sass" / "results" / "hmma_sm90.json"
#: the classes of ``turingas.isa.latency.rate``, by type; Turing has the first of each
PRODUCTS = {
    "F16": "HMMA.1688 HMMA.16816 HMMA.SP.16816 HMMA.SP.16832",
    "TF32": "HMMA.1684.TF32 HMMA.1688.TF32 HMMA.SP.1688.TF32 HMMA.SP.16816.TF32",
    "S8": "IMMA.8816 IMMA.16816 IMMA.16832 IMMA.SP.16832 IMMA.SP.16864",
    "S4": "IMMA.8832.S4 IMMA.16832.S4 IMMA.16864.S4 IMMA.SP.16864.S4 IMMA.SP.168128.S4",
    "B1": "BMMA.88128 BMMA.168128 BMMA.168256",
    "F8": "QMMA.16816 QMMA.16832 QMMA.SP.16832 QMMA.SP.16864",
    "F64": "DMMA.884",
}


def products(arch: str, results: Path) -> Iterator[str]:
    """Rows of the products of tensor cores: published, or as `turingas bench hmma` measured them (two warps a
    scheduler; those of warp groups by the largest, for 8 columns)."""
    if arch not in MULTIPLY_ADDS:
        found = json.loads(results.read_text())
        source = f"turingas bench hmma on {found['gpu']}"
        cycles = {}
        for name, row in found["settings"].items():
            op, which = name.split(", ", 1)
            base, *mods = re.sub(r"\.(F16|F32|BF16|[SU]8|AND|POPC|E4M3)\b", "", op).split(".")
            if which == "2 a scheduler" and not base.endswith("GMMA"):
                cycles[".".join([base, *mods])] = round(row["cpi"])
            elif which == "1 a scheduler" and op == "HGMMA.64x256x16.F32":
                cycles["wgmma"] = round(row["cpi"] / 32)
        for name, count in cycles.items():
            yield f"{arch},issue,,{name},,{count},{source}"
        return
    source, rates = MULTIPLY_ADDS[arch]
    if arch in ("sm_70", "sm_75"):  # 16 x 16 x 4 in 4 steps, with F16 in 2
        for kind, steps in (("F16", 2), ("F32", 4)):
            cycles_ = round(1024 / steps / rates["F16"])
            yield f"{arch},issue,,HMMA.884.{kind},,{cycles_},{source}: 512 multiply-adds a cycle and SM"
    for kind, per_cycle in rates.items() if arch != "sm_70" else ():
        for name in PRODUCTS[kind].split()[: 1 if arch == "sm_75" else None]:
            m, k = re.findall(r"\.(16|8)8(\d+)", name)[0]
            count = int(m) * 8 * int(k) // (2 if ".SP." in name else 1)
            said = f"{source}: {round(4 * per_cycle)} multiply-adds of {kind} a cycle and SM"
            if arch in ("sm_86", "sm_89") and kind == "B1":
                said = "four times S4 as on sm_75 and sm_80"
            yield f'{arch},issue,,{name},,{round(count / per_cycle)},{said}'
LEAVE = {"BRA", "BRX", "BRXU", "JMP", "JMX", "JMXU", "CALL", "RET", "EXIT", "KILL", "BSYNC", "BREAK"}

Class = tuple[str, str, str, str]  # hazard, file, first, second
Register = tuple[str, int]  # file, index
Guard = tuple[Register, bool] | None  # predicate, inverted


@dataclass(frozen=True)
class Step:
    """One instruction: what it reads and writes, register by register, with its class as such."""

    i: Instruction
    guard: Guard
    reads: list[tuple[Register, str]]  # register, class
    writes: list[tuple[Register, str, bool]]  # register, class, whether it comes at a fixed time
    at_issue: bool  # reads its sources at issue

    @property
    def cycles(self) -> int:
        return max(1, self.i.control.stall)

    @property
    def drains(self) -> bool:
        """A stall of 0: the instruction itself decides when the warp goes on, long after all that is counted here."""
        return self.i.control.stall == 0


@dataclass(slots=True)
class Pending:
    """A register that was just written (or read), ``at`` a cycle, by the instruction ``index``."""

    at: int
    kind: str
    guard: Guard
    index: int


@dataclass
class Trail:
    """What is pending along a path. ``used``: results that were read on it; whoever overwrites one of these is no mere
    second writer. ``changed``: when a predicate was last written."""

    at: int = 0
    written: dict[Register, list[Pending]] = field(default_factory=dict)
    read: dict[Register, list[Pending]] = field(default_factory=dict)
    used: set[tuple[Register, int]] = field(default_factory=set)
    changed: dict[Register, int] = field(default_factory=dict)

    def forget(self) -> bool:
        """Drops what is too old; whether anything is left."""
        for pending in (self.written, self.read):
            for register in list(pending):
                pending[register] = [p for p in pending[register] if self.at - p.at <= HORIZON]
                if not pending[register]:
                    del pending[register]
        return bool(self.written or self.read)

    def copy(self) -> Trail:
        written, read = ({r: list(all_) for r, all_ in pending.items()} for pending in (self.written, self.read))
        return Trail(self.at, written, read, set(self.used), dict(self.changed))


def step(rules: Latencies, i: Instruction) -> Step:
    guard = None if i.guard.zero else ((i.guard.file, i.guard.index), i.guard.inv)
    reads = [
        ((a.file, a.first + n), reader(rules, i, a, n))
        for a in rules.reads(i)
        if a.file not in UNMINED
        for n in range(a.count)
    ]
    writes = [
        ((a.file, a.first + n), writer(rules, i, a, n), not rules.variable(i, a))
        for a in rules.writes(i)
        if a.file not in UNMINED
        for n in range(a.count)
    ]
    return Step(i, guard, reads, writes, rules.queue(i) == "")


def exclusive(one: Guard, two: Guard) -> bool:
    """Whether no thread runs both: one guard is the other's negation."""
    return one is not None and two is not None and one[0] == two[0] and one[1] != two[1]


class Blocks:
    """The basic blocks of some code, and which follows which."""

    def __init__(self, steps: list[Step]) -> None:
        self.steps = steps
        starts = {0}
        for n, s in enumerate(steps):
            starts |= set(self.targets(s))
            if s.i.base in LEAVE:
                starts.add(n + 1)
        edges = sorted(start for start in starts if 0 <= start < len(steps)) + [len(steps)]
        self.ranges = list(zip(edges, edges[1:]))
        number = {start: n for n, (start, _) in enumerate(self.ranges)}
        self.after = [
            [number[x] for x in self.exits(end - 1) if x in number] for _, end in self.ranges
        ]

    def targets(self, s: Step) -> list[int]:
        found = [o.address // 16 for o in s.i.operands if isinstance(o, Label)]
        return found if s.i.base in ("BRA", "JMP") else []

    def exits(self, last: int) -> Iterator[int]:
        s = self.steps[last]
        yield from self.targets(s)
        falls = s.i.base not in LEAVE or s.i.base in ("BSYNC", "BREAK") or s.guard is not None
        if s.i.base in ("BRA", "JMP"):  # with a predicate as an operand it may fall through, too
            falls = s.guard is not None or any(isinstance(o, Reg) and not o.zero for o in s.i.operands)
        if falls:
            yield last + 1


class Miner:
    """Smallest distances between classes, over all the code given to ``add``."""

    def __init__(self, *archs: str) -> None:
        self.name = " + ".join(archs)
        self.found: dict[Class, Counter[int]] = defaultdict(Counter)
        self.where: dict[tuple[Class, int], tuple[str, int, int]] = {}
        self._steps: dict[tuple[str, int], Step] = {}

    def add(self, name: str, arch: str, words: list[int]) -> None:
        known, rules, steps = instruction_set(arch), latencies(arch), []
        for n, word in enumerate(words):
            s = self._steps.get((arch, word))
            if s is None:
                i = instruction(known, word, 16 * n)
                if i is None:
                    return  # not known to the table: the paths through it are not either
                s = step(rules, i)
                if not i.form.has_target and i.base not in ("BRX", "BRXU"):
                    self._steps[arch, word] = s
            steps.append(s)
        blocks = Blocks(steps)
        for n in range(len(blocks.ranges)):
            self.walk(name, blocks, n)

    def walk(self, name: str, blocks: Blocks, block: int) -> None:
        """One block with what it leaves behind, and that into the blocks that may follow."""
        trail = Trail()
        self.run(name, blocks, block, trail, True)
        self.follow(name, blocks, block, trail, DEPTH)

    def follow(self, name: str, blocks: Blocks, block: int, trail: Trail, depth: int) -> None:
        if depth and trail.forget():
            for after in blocks.after[block]:
                branch = trail.copy()
                self.run(name, blocks, after, branch, False)
                self.follow(name, blocks, after, branch, depth - 1)

    def run(self, name: str, blocks: Blocks, block: int, trail: Trail, own: bool) -> None:
        """Go through a block. ``own``: what it reads and writes becomes pending, too."""
        at, written, read, used, changed = trail.at, trail.written, trail.read, trail.used, trail.changed

        def met(hazard: str, first: Pending, guard: Guard, register: Register, kind: str, n: int) -> None:
            if guard and exclusive(guard, first.guard) and changed.get(guard[0], -1) < first.at:
                return
            key = (hazard, register[0], first.kind, kind)
            self.found[key][at - first.at] += 1
            self.where.setdefault((key, at - first.at), (name, 16 * first.index, 16 * n))

        for n in range(*blocks.ranges[block]):
            s = blocks.steps[n]
            for register, kind in s.reads:
                for first in written.get(register, ()):
                    if at - first.at <= HORIZON:
                        met("raw", first, s.guard, register, kind, n)
                        used.add((register, first.index))
            for register, kind, fixed in s.writes:
                for first in written.get(register, ()):
                    if at - first.at <= HORIZON and (register, first.index) not in used:
                        met("waw", first, s.guard, register, kind, n)
                for first in read.get(register, ()):
                    if at - first.at <= HORIZON:
                        met("war", first, s.guard, register, kind, n)
                if s.guard is None:
                    written.pop(register, None)
                    read.pop(register, None)
                if own and fixed:
                    written.setdefault(register, []).append(Pending(at, kind, s.guard, n))
                changed[register] = at
            if own and s.at_issue:
                for register, kind in s.reads:
                    read[register] = [*read.get(register, [])[-2:], Pending(at, kind, s.guard, n)]
            if s.drains:
                written.clear()
                read.clear()
            at += s.cycles
        trail.at = at

    def rows(self) -> Iterator[tuple[str, str, str, str, int, str]]:
        """hazard, file, first, second, cycles, source; ``second`` is "any" for the smallest of all."""
        groups: dict[tuple[str, str, str], dict[str, Counter[int]]] = defaultdict(dict)
        for (hazard, file, first, second), cases in sorted(self.found.items()):
            if matters(hazard, file, first, second):
                groups[hazard, file, first][second] = cases
        for (hazard, file, first), seconds in groups.items():
            total: Counter[int] = Counter()
            for second, cases in seconds.items():
                total += Counter() if second in EARLY else cases
            if not attested(total):
                continue
            if hazard == "raw":
                yield hazard, file, first, "any", min(total), self.source(total)
            for second, cases in seconds.items():
                more = min(cases) - min(total)
                said = hazard == "raw" and more <= 0 and second not in EARLY
                if attested(cases) and not said and (file != "R" or more <= SPREAD or "MMA" in first):
                    cycles, source = min(cases), self.source(cases)
                    expected = self.expected(first, second) if hazard == "raw" and file == "R" else HORIZON
                    if expected < cycles:
                        cycles, source = expected, f"{source} is {cycles}: taken for rare (see docs)"
                    yield hazard, file, first, second, cycles, source

    def source(self, cases: Counter[int]) -> str:
        return f"ptxas: smallest of {cases.total()} on {self.name}"

    def expected(self, first: str, second: str) -> int:
        """What a pair of classes should need at most: as long as the first lets the ALU (or the FMA pipe) wait, and as
        much longer as the second waits for the ALU than the ALU itself. It checks pairs that are not too common."""
        bounds = []
        for pipe in ("alu", "fma"):
            parts = [self.found.get(("raw", "R", one, two), Counter()) for one, two in ((first, pipe), (pipe, second))]
            if all(attested(part) for part in parts):
                own = min(self.found["raw", "R", pipe, pipe])
                bounds.append(sum(min(part) for part in parts) - own)
        return max(bounds, default=HORIZON)


def matters(hazard: str, file: str, first: str, second: str) -> bool:
    """Whether a distance tells of a need: a second writer must be able to overtake the first, and registers are read
    at once but for the uniform ones."""
    if hazard == "waw":
        return (first in OVERTAKEN or "MMA" in first) and second in FAST
    return hazard == "raw" or (file in ("UR", "UP") and (first, second) == ("uniform", "umove"))


def attested(cases: Counter[int]) -> bool:
    low = min(cases, default=0)
    return cases.total() >= CASES and cases[low] + cases[low + 1] >= ATTESTED


def cubins(path: Path) -> list[Path]:
    return sorted(path.rglob("*.cubin")) if path.is_dir() else [path]


def measured(path: Path) -> dict[Class, list[int]]:
    """What tests/bench/latency.py found, by class."""
    found: dict[Class, list[int]] = defaultdict(list)
    for row in json.loads(path.read_text())["results"]:
        cycles = row.pop("cycles")
        row.pop("added", None)  # when, if later than the others
        if cycles is not None:
            first, second = classes(Pair(**row))
            found[row["hazard"], row["file"], first, second].append(cycles)
    return found


def table(arch: str, found: Miner, h200: Mapping[Class, list[int]]) -> Iterator[str]:
    """The lines of one architecture. Where ptxas left too few cases to tell, what the H200 needs stands for sm_90."""
    lines = {(hazard, file, one, two): (cycles, why) for hazard, file, one, two, cycles, why in found.rows()}

    def least(key: Class) -> int:
        """What the rows so far ask for without one of its own."""
        return lines.get((*key[:3], "any"), (1, ""))[0] if key[3] not in EARLY else 1

    def span(there: Iterable[int]) -> str:
        low, high = min(there), max(there)
        return f"H200: {low}" + (f" to {high}" if high > low else "")

    for key, there in h200.items() if arch == "sm_90" else ():
        if key in lines:
            lines[key] = lines[key][0], f"{lines[key][1]}; {span(there)}"
        elif max(there) > least(key) and (key[0] == "raw" or matters(*key)):
            lines[key] = min([max(there), *found.found.get(key, ())]), span(there)
    for whole in {(*key[:3], "any") for key in lines if key[0] == "raw" and (*key[:3], "any") not in lines}:
        there = [n for key, cycles in h200.items() if key[:3] == whole[:3] and key[3] not in EARLY for n in cycles]
        if arch == "sm_90" and there:  # no reader was common enough
            rest = [min(cases) for key, cases in found.found.items() if key[:3] == whole[:3] and key not in lines]
            lines[whole] = min([max(there), *rest]), span(there)
    for (file, place, rare), common in LIKE.items():
        for key, (cycles, source) in list(lines.items()):
            hazard, writer_, reader_ = key[0], *(rare if n == place else key[n] for n in (WRITER, READER))
            own = hazard, file, writer_, reader_
            like = (hazard, key[1], key[place]) == ("raw", file, common)
            if like and own not in lines and cycles > least(own) and "ptxas" in source:
                lines[own] = cycles, "as " + " ".join(key[1:])
    for key, seen in SEEN.items():
        if arch == "sm_90" and key in lines:
            lines[key] = lines[key][0], f"{lines[key][1]}; H200: {seen}"
    for (where, *rest), (cycles, code) in SHORTER.items():
        need, source = lines.get(tuple(rest), (0, ""))  # type: ignore[call-overload]
        if where == arch and need > cycles:
            mined, *more = source.split("; ")
            lines[tuple(rest)] = cycles, "; ".join((f"{code}: {cycles}", f"{mined} is {need}", *more))  # type: ignore[index]
    for key, (need, source) in sorted(lines.items()):
        yield ",".join((arch, *key, str(need), source))


def main(arguments: list[str]) -> None:
    h200 = measured(Path(arguments.pop(arguments.index("--measured") + 1))) if "--measured" in arguments else {}
    miners = {together: Miner(*together) for together in TOGETHER}
    of = {arch: miner for together, miner in miners.items() for arch in together}
    for path in [file for folder in arguments if folder != "--measured" for file in cubins(Path(folder))]:
        cubin = Cubin.from_file(path)
        miner = of[ARCHS[cubin.arch].latency]
        for text in cubin.texts:
            miner.add(f"{path.name} {text.name}", cubin.arch, text.words)
    print("arch,hazard,file,first,second,cycles,source")
    for together, miner in miners.items():
        for arch in together:
            print(*ISSUE[arch], *products(arch, HMMA), *table(arch, miner, h200), sep="\n")
    print(*CHIPS.values(), sep="\n")


if __name__ == "__main__":
    main(sys.argv[1:])
