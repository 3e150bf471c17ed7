"""`turingas bench smem`, `ffma`, `hmma`: what shared memory, the register banks and the tensor cores of an SM give.

Each row is a loop of SASS that reads the SM's own clock before and after, in one block on every SM at once. What a loop
computes is compared first, for two rounds; a wrong result has no time. A row is the median of all blocks and launches.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import loader
import turingas
from loader.bench import figures as drawing
from loader.bench import measure, results
from loader.bench.bench import SECONDS, Bench
from loader.bench.measure import gpu_at_hand
from loader.cuda import Buffer, Device
from turingas import memory_model
from turingas.cubin.cubin import Cubin

FOLDER = Path(__file__).parent
LEARN = FOLDER.parent / "learn"
SCHEDULERS = 4  # of an SM
IN_A_ROUND = 64  # LDS or STS, of 06_smem.sass
ROUNDS = 512  # of a loop that is timed
CHECKED = 2  # rounds whose results are compared
LAUNCHES = 9  # the first is not counted
FARTHEST = 30  # cycles between two products of which one needs the other: more than any latency

Array = np.ndarray[Any, np.dtype[Any]]
Json = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """A loop that is timed: ``count`` instructions of a warp in a round. ``given``: the kernel's parameters before
    clocks and rounds; ``right`` says of the arrays among them, after so many rounds, whether they hold what they must.
    ``shared_by``: the schedulers that issue them, 4, or 1 where all warps of the SM wait for one unit. ``more``: what a
    row says beside its times. ``variant``: "a" for sm_90a."""

    source: Path
    defines: Mapping[str, object]
    given: tuple[Array | int, ...]
    right: Callable[[Sequence[Array], int], bool]
    count: int
    threads: int = 256
    shared_by: int = SCHEDULERS
    more: Json = field(default_factory=dict)
    variant: str = ""

    def cubin(self, arch: str, **more: object) -> Cubin:
        """Assembled."""
        text = self.source.read_text()
        defines = {**self.defines, **more}
        return turingas.assemble(text, arch + self.variant, defines, [LEARN], filename=str(self.source))

    def measure(self, gpu: Device) -> Json:
        """A row: status, cycles of a round and their spread, cpi."""
        row: Json = {"status": "ok", "source": self.source.name, "defines": dict(self.defines)}
        row |= {"warps": self.threads // 32, "instructions": self.count, **self.more}
        with Run(self, self.cubin(gpu.arch), gpu) as run:
            run.launch(CHECKED)
            if not self.right(run.arrays(), CHECKED):
                return row | {"status": f"wrong after {CHECKED} rounds"}
            times = np.concatenate([run.launch(ROUNDS) / ROUNDS for _ in range(LAUNCHES)][1:])
        low, middle, high = (float(x) for x in np.percentile(times, (25, 50, 75)))
        row |= {"cycles": rounded(middle), "low": rounded(low), "high": rounded(high), "least": rounded(times.min()),
                "most": rounded(times.max()), "times": len(times)}  # fmt: skip
        row["cpi"] = rounded(middle * self.shared_by / (self.count * row["warps"]))
        return row


@dataclass(frozen=True)
class Latency(Case):
    """The least number of cycles between two products on the same accumulator with which all results are right, and
    with every larger one up to FARTHEST."""

    def measure(self, gpu: Device) -> Json:
        row: Json = {"status": "ok", "source": self.source.name, "defines": dict(self.defines), **self.more}
        found = None
        for distance in range(FARTHEST, 0, -1):
            with Run(self, self.cubin(gpu.arch, DISTANCE=distance), gpu) as run:
                run.launch(CHECKED)
                if not self.right(run.arrays(), CHECKED):
                    break
            found = distance
        return row | ({"latency": found} if found else {"status": f"wrong with {FARTHEST} cycles between two"})


class Run:
    """A kernel with its arrays, on all SMs of a GPU."""

    def __init__(self, case: Case, cubin: Cubin, gpu: Device) -> None:
        self.case, self.blocks = case, gpu.attribute("MULTIPROCESSOR_COUNT")
        self.stack = contextlib.ExitStack()
        with self.stack:
            self.module = self.stack.enter_context(loader.load(cubin, str(gpu)))
            self.given = [self._on(gpu, one) if isinstance(one, np.ndarray) else one for one in case.given]
            self.clocks = self._on(gpu, np.zeros((self.blocks, case.threads, 2), np.uint32))
            self.stack = self.stack.pop_all()

    def _on(self, gpu: Device, array: Array) -> Buffer:
        return self.stack.enter_context(Buffer.of(array, gpu))

    def launch(self, rounds: int) -> Array:
        """Cycles that each block took."""
        self.module.kernel().launch(self.blocks, self.case.threads, *self.given, self.clocks, rounds)
        self.module.synchronize()
        return elapsed(self.clocks.numpy())

    def arrays(self) -> list[Array]:
        """What the arrays hold now."""
        return [one.numpy() for one in self.given if isinstance(one, Buffer)]

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *what: object) -> None:
        self.stack.close()


def elapsed(clocks: Array) -> Array:
    """Cycles from a block's first start to its last end: (blocks, threads, 2) of 32-bit clocks, which may turn over."""
    ticks = (clocks - clocks[:, :1, :1]).view(np.int32)
    found: Array = ticks[:, :, 1].max(1) - ticks[:, :, 0].min(1)
    return found


def rounded(number: float) -> float:
    """To five digits."""
    return float(f"{number:.5g}")


# ---- smem --------------------------------------------------------------------------------------------------------

#: Bytes a cycle on an RTX 2080 Ti, as far as the text of openCNN has them (Table 1 is a picture in our copy).
PAPER = {"STS.64": 42.61, "STS.128": 51.21, "STS.128 half": 25.60}

ACCESSES = [
    *((op, width, "own") for op in ("LDS", "STS") for width in (32, 64, 128)),
    *((op, width, "half") for op in ("LDS", "STS") for width in (32, 64, 128)),
    *(("LDS", width, "broadcast") for width in (32, 64, 128)),
    *(("LDS", width, "yan2020") for width in (32, 64, 128)),
    *((op, 32, f"stride:{n}") for op in ("LDS", "STS") for n in (2, 3, 4, 8, 16, 32)),
    *((op, width, f"stride:{n}") for op in ("LDS", "STS") for width, n in ((64, 4), (128, 8))),
]  # fmt: skip


def lanes(width: int, pattern: str) -> tuple[Array, Array]:
    """Where each lane of a warp reads or writes, in bytes, and which lanes take part, as 06_smem.sass has it."""
    lane = np.arange(32)
    stride = 4 * int(pattern[7:]) if pattern.startswith("stride:") else width // 8
    at = {"yan2020": lane // 2 % 8, "broadcast": 0 * lane}.get(pattern, lane) * stride
    return at, (lane & 8 == 0) if pattern == "half" else lane >= 0


def smem(arch: str) -> dict[str, Case]:
    """LDS and STS: 64 in a round, 8 warps; those of whole warps also with 4."""
    del arch  # the same on all
    cases = {}
    for op, width, pattern in ACCESSES:
        at, part = lanes(width, pattern)
        needed, fewest = memory_model.wavefronts(at[None], part[None], width // 8, op == "LDS", False)
        name = f"{op}.{width}" + (f" {pattern}" if pattern != "own" else "")
        more: Json = {"bytes": int(part.sum()) * width // 8, "wavefronts": int(needed[0]), "fewest": int(fewest[0])}
        if name in PAPER:
            more["paper"] = PAPER[name]
        for threads in (256, 128) if pattern == "own" else (256,):

            def right(found: Sequence[Array], rounds: int, op: str = op, at: Array = at, part: Array = part) -> bool:
                tid = np.arange(len(found[0]))
                place, takes = at[tid % 32] + 4096 * (tid // 32), part[tid % 32]
                wanted = np.where(takes, place, tid) if op == "LDS" else np.where(takes, tid, place)
                return bool((found[0] == wanted).all())

            defines = {"OP": op, "WIDTH": width, "PATTERN": pattern}
            words = np.full(threads, 0xFFFFFFFF, np.uint32)
            cases[name + (", 4 warps" if threads == 128 else "")] = Case(
                LEARN / "06_smem.sass", defines, (words,), right, IN_A_ROUND, threads, 1, more
            )
    return cases


# ---- ffma --------------------------------------------------------------------------------------------------------


def best(**more: object) -> dict[str, object]:
    return {"PATTERN": "best", **more}


#: name -> file, what is defined, cycles that another kernel with this loop took on an H200 before this one was written
FFMA: dict[str, tuple[str, Mapping[str, object], int | None]] = {
    "c and a in opposite banks, b kept, a kept at the turn": ("05_outer_product", best(), 1061),
    "the same, b kept only": ("05_outer_product", {"PATTERN": "b_only"}, 1110),
    "c and a in one bank, both kept": ("05_outer_product", {"PATTERN": "same_bank"}, 1189),
    "no reuse flags": ("05_outer_product", {"PATTERN": "no_reuse"}, 1812),
    "all three in one bank (256 FFMA)": ("05_outer_product", {"PATTERN": "one_bank"}, 1552),
    **{
        f"best, yield every {n}": ("05_outer_product", best(YIELD=f"every:{n}"), cycles)
        for n, cycles in ((32, 1094), (16, 1123), (8, 1126), (7, 1147), (4, 1187))
    },
    **{
        f"best, {n} LDS.128 in 128 FFMA": ("07_mix", {"LDS": n}, cycles)
        for n, cycles in ((0, None), (4, 1093), (6, 1111), (8, 1125), (12, 1551))
    },
    "best, 8 LDS.128 in 128 FFMA, lanes of Yan, Wang, Chu 2020": ("07_mix", {"LDS": 8, "LANES": "yan2020"}, 1193),
    "best, 4 STS.128 in 128 FFMA": ("07_mix", {"STS": 4}, 1157),
}


def ffma(arch: str) -> dict[str, Case]:
    """FFMA by register banks, reuse flags, yields and what stands between, one and two warps a
    scheduler."""
    del arch
    a, b = np.arange(1, 9, dtype=np.float32), np.arange(3, 11, dtype=np.float32)
    cases = {}
    for warps in (8, 4):
        threads = 32 * warps
        for name, (file, defines, before) in FFMA.items():
            pure = file == "05_outer_product"
            count = 256 if defines.get("PATTERN") == "one_bank" else 512
            given: tuple[Array | int, ...] = (np.full(threads, np.nan, np.float32),)
            if pure:
                given = (np.full((64, threads), np.nan, np.float32), a, b)

            def right(found: Sequence[Array], rounds: int, pure: bool = pure, times: int = count // 64) -> bool:
                if not pure:
                    return bool((found[0] == times * rounds * 36**2).all())
                wanted = times * rounds * np.outer(found[1], found[2]).reshape(64, 1)
                return bool((found[0] == wanted).all())

            more: Json = {"before": before} if before and warps == 8 else {}
            label = name + ("" if warps == 8 else ", 1 warp a scheduler")
            cases[label] = Case(LEARN / f"{file}.sass", defines, given, right, count, threads, more=more)
    return cases


# ---- hmma --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Type:
    """What stands in all places of A and B: words, and the product of two elements, which every type holds exactly.
    ``into``: the type of the accumulator, "f2", "f4", "f8" or "i4"."""

    a: int
    b: int
    value: float
    into: str


HALF, HALF_F32, BF16, TF32 = (
    Type(0x3C003C00, 0x14001400, 2**-10, "f2"), Type(0x3C003C00, 0x14001400, 2**-10, "f4"),
    Type(0x3F803F80, 0x3A803A80, 2**-10, "f4"), Type(0x3F800000, 0x3A800000, 2**-10, "f4"),
)  # fmt: skip
FP64, FP8, FP8_F32 = (
    Type(0x3FF00000, 0x3F500000, 2**-10, "f8"),
    Type(0x38383838, 0x08080808, 2**-6, "f2"), Type(0x38383838, 0x08080808, 2**-6, "f4"),
)  # fmt: skip
INT8, INT4 = Type(0x01010101, 0x01010101, 1, "i4"), Type(0x11111111, 0x11111111, 1, "i4")
AND, XOR = Type(0xFFFFFFFF, 0xFFFFFFFF, 1, "i4"), Type(0xFFFFFFFF, 0, 1, "i4")


@dataclass(frozen=True)
class Mma:
    """A product of an m x k and a k x n matrix that a warp does; of a warp group's, a warp does 16 of 64 rows.
    ``registers``: of the accumulator; ``first``, ``last``: compute capabilities; ``sparse``: half of A's elements are
    there, two of four, of TF32 one of two."""

    m: int
    n: int
    k: int
    type: Type
    registers: int
    first: int
    last: int = 90
    sparse: bool = False

    @property
    def flops(self) -> int:
        """Of a warp; a sparse product's as if it were dense."""
        return 2 * self.m * self.n * self.k

    def element(self, products: int) -> list[int]:
        """The words in which an accumulator stands that took so many."""
        value = products * self.k // (1 + self.sparse) * self.type.value
        words = np.full(2 * self.registers, value, np.dtype(f"<{self.type.into}")).view(np.uint32)
        found: list[int] = words[: self.registers].tolist()
        return found


MMA = {
    "HMMA.884.F16.F16": Mma(16, 16, 4, HALF, 4, 70, 75),  # four products of 8 x 8, in 2 or 4 steps
    "HMMA.884.F32.F32": Mma(16, 16, 4, HALF_F32, 8, 70, 75),
    "HMMA.1688.F16": Mma(16, 8, 8, HALF, 2, 75),
    "HMMA.1688.F32": Mma(16, 8, 8, HALF_F32, 4, 75),
    "HMMA.1688.F32.BF16": Mma(16, 8, 8, BF16, 4, 80),
    "HMMA.16816.F16": Mma(16, 8, 16, HALF, 2, 80),
    "HMMA.16816.F32": Mma(16, 8, 16, HALF_F32, 4, 80),
    "HMMA.16816.F32.BF16": Mma(16, 8, 16, BF16, 4, 80),
    "HMMA.1684.F32.TF32": Mma(16, 8, 4, TF32, 4, 80),
    "HMMA.1688.F32.TF32": Mma(16, 8, 8, TF32, 4, 80),
    "HMMA.SP.16816.F16": Mma(16, 8, 16, HALF, 2, 80, sparse=True),
    "HMMA.SP.16816.F32": Mma(16, 8, 16, HALF_F32, 4, 80, sparse=True),
    "HMMA.SP.16832.F16": Mma(16, 8, 32, HALF, 2, 80, sparse=True),
    "HMMA.SP.16832.F32": Mma(16, 8, 32, HALF_F32, 4, 80, sparse=True),
    "HMMA.SP.1688.F32.TF32": Mma(16, 8, 8, TF32, 4, 80, sparse=True),
    "HMMA.SP.16816.F32.TF32": Mma(16, 8, 16, TF32, 4, 80, sparse=True),
    "IMMA.8816.S8.S8": Mma(8, 8, 16, INT8, 2, 75),
    "IMMA.16816.S8.S8": Mma(16, 8, 16, INT8, 4, 80),
    "IMMA.16832.S8.S8": Mma(16, 8, 32, INT8, 4, 80),
    "IMMA.SP.16832.S8.S8": Mma(16, 8, 32, INT8, 4, 80, sparse=True),
    "IMMA.SP.16864.S8.S8": Mma(16, 8, 64, INT8, 4, 80, sparse=True),
    "IMMA.8832.S4.S4": Mma(8, 8, 32, INT4, 2, 75, 89),
    "IMMA.16832.S4.S4": Mma(16, 8, 32, INT4, 4, 80, 89),
    "IMMA.16864.S4.S4": Mma(16, 8, 64, INT4, 4, 80, 89),
    "BMMA.88128.XOR.POPC": Mma(8, 8, 128, XOR, 2, 75, 89),
    "BMMA.88128.AND.POPC": Mma(8, 8, 128, AND, 2, 80),
    "BMMA.168128.AND.POPC": Mma(16, 8, 128, AND, 4, 80),
    "BMMA.168256.AND.POPC": Mma(16, 8, 256, AND, 4, 80),
    "QMMA.16832.F16.E4M3.E4M3": Mma(16, 8, 32, FP8, 2, 89, 89),
    "QMMA.16832.F32.E4M3.E4M3": Mma(16, 8, 32, FP8_F32, 4, 89, 89),
    "DMMA.884": Mma(8, 8, 4, FP64, 4, 80, 89),
    "DMMA.8x8x4": Mma(8, 8, 4, FP64, 4, 90),
    "DMMA.16x8x4": Mma(16, 8, 4, FP64, 8, 90),
    "DMMA.16x8x8": Mma(16, 8, 8, FP64, 8, 90),
    "DMMA.16x8x16": Mma(16, 8, 16, FP64, 8, 90),
}
#: Products of warp groups, with any of SIZES for N.
GROUPS = {
    "HGMMA.64x{n}x16.F16": (16, HALF), "HGMMA.64x{n}x16.F32": (16, HALF_F32), "HGMMA.64x{n}x16.F32.BF16": (16, BF16),
    "HGMMA.64x{n}x8.F32.TF32": (8, TF32),
    "HGMMA.SP.64x{n}x32.F16": (32, HALF), "HGMMA.SP.64x{n}x32.F32": (32, HALF_F32),
    "HGMMA.SP.64x{n}x16.F32.TF32": (16, TF32),
    "IGMMA.64x{n}x32.S8.S8": (32, INT8), "IGMMA.SP.64x{n}x64.S8.S8": (64, INT8),
    "BGMMA.64x{n}x256.AND.POPC": (256, AND),
    "QGMMA.64x{n}x32.F16.E4M3.E4M3": (32, FP8), "QGMMA.64x{n}x32.F32.E4M3.E4M3": (32, FP8_F32),
    "QGMMA.SP.64x{n}x64.F16.E4M3.E4M3": (64, FP8), "QGMMA.SP.64x{n}x64.F32.E4M3.E4M3": (64, FP8_F32),
}  # fmt: skip
SIZES = (8, 64, 128, 256)
GROUP_MMA = {
    name.format(n=n): Mma(16, n, k, kind, n // (4 if kind.into == "f2" else 2), 90, sparse=".SP." in name)
    for name, (k, kind) in GROUPS.items() for n in SIZES
}  # fmt: skip
REUSED = ("HMMA.16816.F32", "HMMA.1688.F32.TF32")  # also timed with both sources in the reuse cache


def capability(arch: str) -> int:
    """75 of "sm_75"."""
    return int(arch[3:5])


def queued(op: str, arch: str) -> bool:
    """Whether a scoreboard tells when it is done; else its latency is fixed."""
    return capability(arch) < 80 or op.startswith("DMMA")


def product(op: str, arch: str, threads: int, chains: int, kind: type[Case] = Case, **defines: object) -> Case:
    """Products on so many accumulators, which take turns."""
    group = op in GROUP_MMA
    one = GROUP_MMA[op] if group else MMA[op]
    words = np.full((one.registers * chains, threads), 0xFFFFFFFF, np.uint32)

    def right(found: Sequence[Array], rounds: int) -> bool:
        wanted = [word for chain in range(chains) for word in one.element(rounds * len(range(chain, 64, chains)))]
        return bool((found[0] == np.array(wanted, np.uint32)[:, None]).all())

    more = {"op": op, "flops": one.flops, "chains": chains}
    defines = {"OP": op, "CHAINS": chains, **defines}
    source, variant = (FOLDER / "hgmma.sass", "a") if group else (FOLDER / "hmma.sass", "")
    return kind(source, defines, (words, one.type.a, one.type.b), right, 64, threads, more=more, variant=variant)


def hmma(arch: str) -> dict[str, Case]:
    """What the tensor cores of ``arch`` sustain, one and two warps a scheduler, and their latency."""
    cases: dict[str, Case] = {}
    for op, one in MMA.items():
        if not one.first <= capability(arch) <= one.last:
            continue
        waits = queued(op, arch)
        for warps in (8, 4):
            label = f"{op}, {warps // 4} a scheduler"
            cases[label] = product(op, arch, 32 * warps, 6 if waits else 12)
            if warps == 8 and op in REUSED and not waits:
                cases[f"{label}, sources kept"] = product(op, arch, 256, 12, REUSE="ab")
        cases[f"{op}, latency"] = product(op, arch, 32, 1, Case if waits else Latency)
    for op, one in GROUP_MMA.items() if capability(arch) == 90 else ():
        chains = min(4, 128 // one.registers)
        cases[f"{op}, 2 a scheduler"] = product(op, arch, 256, chains)
        cases[f"{op}, 2 a scheduler, A in registers"] = product(op, arch, 256, chains, A="registers")
        if one.n == max(SIZES):
            cases[f"{op}, 1 a scheduler"] = product(op, arch, 128, chains)
            cases[f"{op}, latency"] = product(op, arch, 128, 1, WAIT=1)
    return cases


# ---- a command ---------------------------------------------------------------------------------------------------

KINDS: dict[str, Callable[[str], dict[str, Case]]] = {"smem": smem, "ffma": ffma, "hmma": hmma}


def without(what: str) -> str:
    """What can be done where there is no GPU."""
    return (
        f"without one, `turingas bench {what} --show` prints the results that are kept, --figures draws them, and "
        "`turingas run` runs the kernels on the CPU device, which counts wavefronts but has no time"
    )


def run(what: str, path: Path | None, seconds: float = math.inf, tell: Callable[[str], None] = print) -> Json:
    """Measure what is not measured yet, and give the whole file."""
    gpu = gpu_at_hand(without(what))
    cases = KINDS[what](gpu.arch)
    asked = {"rounds": ROUNDS, "launches": LAUNCHES}
    file = opened(what, path, gpu, {one.source for one in cases.values()}, asked)
    return file.fill(cases, seconds, tell, lambda _, case, step: case.measure(gpu) | {"state": measure.state(gpu)})


def opened(what: str, path: Path | None, gpu: Device, sources: set[Path], asked: Json) -> results.Results:
    """The file of a command, with what an interrupted run left in it."""
    facts = results.facts(f"bench {what}", gpu, sorted(sources))
    return results.Results(path or results.default_path(what, gpu.arch), facts, asked)


def failures(found: Json) -> Iterator[str]:
    """Rows without a time, and why."""
    for name, row in found["settings"].items():
        if row["status"] != "ok":
            yield f"{name}: {row['status']}"


# ---- what is printed ---------------------------------------------------------------------------------------------


def heading(found: Json) -> str:
    """What, where and when."""
    return f"{found['gpu']}, {found['date']}" + (f", {found['commit'][:9]}" if found["commit"] else "")


def column(row: Json, name: str, digits: int) -> str:
    """A number, or nothing."""
    return f"{row[name]:.{digits}f}" if row.get(name) is not None else ""


def speed(found: Json, row: Json) -> Json:
    """What comes of a row: bytes or operations a cycle and SM, TFLOP/s of all SMs at the clock that was read. Of a
    product on one accumulator, waited for, the latency."""
    made: Json = {}
    if "cpi" not in row:
        return made
    waits = row.get("chains") == 1 and (row.get("op") not in GROUP_MMA or "WAIT" in row["defines"])
    if waits:
        return {"latency": row["cpi"]}
    if "bytes" in row:
        made["bytes_per_cycle"] = row["bytes"] / row["cpi"]
    if "flops" in row:
        made["flops_per_cycle"] = row["flops"] * SCHEDULERS / row["cpi"]
        mhz = row.get("state", {}).get("sm_mhz") or found["mhz"]["clock"]
        made["tflops"] = made["flops_per_cycle"] * found["sms"] * mhz / 1e6
    return made


#: name -> columns: heading, key, digits
COLUMNS: dict[str, list[tuple[str, str, int]]] = {
    "smem": [("cycles", "cycles", 0), ("spread", "spread", 1), ("CPI", "cpi", 2), ("bytes/cycle", "bytes_per_cycle", 1),
             ("wavefronts", "wavefronts", 0), ("2080 Ti, paper", "paper", 1)],
    "ffma": [("cycles", "cycles", 0), ("spread", "spread", 1), ("before", "before", 0), ("CPI", "cpi", 3)],
    "hmma": [("cycles", "cycles", 0), ("spread", "spread", 1), ("CPI", "cpi", 2),
             ("FLOP/cycle/SM", "flops_per_cycle", 0), ("TFLOP/s", "tflops", 0), ("latency", "latency", 0)],
}  # fmt: skip
TITLES = {
    "smem": "Shared memory: 64 LDS or STS a warp, 8 warps an SM",
    "ffma": "FFMA: 512 a warp by register banks, reuse flags, yields and neighbours",
    "hmma": "Tensor cores: 64 products a warp, and cycles to the next on the same accumulator",
}
NOTES = {
    "smem": "CPI: cycles of the SM for an instruction of a warp. bytes/cycle: what the lanes ask for, of an SM. "
            "wavefronts: passes that an access needs, as the CPU device counts them.",
    "ffma": "CPI: cycles of a scheduler for an FFMA. before: other kernels with these loops, on an H200, when the "
            "project began.",
    "hmma": "CPI: cycles of a scheduler for a product of a warp. latency: the fewest cycles to the next product on "
            "the same accumulator with right results; where a scoreboard tells when it is done, it is the CPI.",
}  # fmt: skip


def show(what: str, found: Json) -> None:
    """Print the table."""
    made = results.table(f"{TITLES[what]}: {heading(found)}", "", *(title for title, _, _ in COLUMNS[what]))
    for name, row in found["settings"].items():
        if row["status"] == "ok":
            row = {**row, **speed(found, row), "spread": row["high"] - row["low"] if "high" in row else None}
            made.add_row(name, *(column(row, key, digits) for _, key, digits in COLUMNS[what]))
    console = results.console()
    console.print(made)
    console.print(NOTES[what], markup=False)
    for line in failures(found):
        console.print(f"NOT OK {line}", markup=False, soft_wrap=True)


# ---- figures -----------------------------------------------------------------------------------------------------


#: what a figure has on its axis: key, label
AXES = {
    "smem": ("bytes_per_cycle", "bytes a cycle and SM (what the lanes ask for)"),
    "ffma": ("cpi", "cycles of a scheduler for an FFMA"),
    "hmma": ("flops_per_cycle", "operations a cycle and SM"),
}


#: what a figure leaves out
SMALLER = {op for op, one in GROUP_MMA.items() if one.n < max(SIZES)}


def figures(what: str, found: Json) -> drawing.Figures:
    """Bars of what was measured."""
    return drawing.named(what, found, {"bars": functools.partial(bars, what, found)})


def bars(what: str, found: Json) -> Any:
    """Bars of the rows that have a rate, of warp groups' products the largest; latencies of products beside them."""
    key, label = AXES[what]
    every = {name: {**row, **speed(found, row)} for name, row in found["settings"].items()}
    rows = {name: row for name, row in every.items() if key in row and row.get("op") not in SMALLER}
    latencies = {row["op"]: f"{row['latency']:.0f}" for row in every.values() if "latency" in row}
    figure, axes = drawing.pyplot().subplots(figsize=(9, 1.2 + 0.22 * len(rows)), layout="constrained")
    values = [row[key] for row in rows.values()]
    colours = [drawing.COLOURS[row["warps"] == 4] for row in rows.values()]
    drawn = axes.barh(range(len(rows)), values, color=colours, label="8 warps an SM")
    texts = [f"{value:.2f}" if key == "cpi" else f"{value:.0f}" for value in values]
    if latencies:
        texts = [f"{text}, latency {latencies.get(row['op'], '?')}" for text, row in zip(texts, rows.values())]
    axes.bar_label(drawn, texts, padding=3, fontsize=7)
    if any(row["warps"] == 4 for row in rows.values()):
        axes.barh([0], [0], color=drawing.COLOURS[1], label="4 warps an SM")
    figure.legend(fontsize=8, loc="outside lower left", ncols=2)
    axes.set_yticks(range(len(rows)), list(rows), fontsize=7)
    axes.invert_yaxis()
    axes.set_xlabel(label)
    figure.suptitle(TITLES[what], fontsize=11, x=0.01, ha="left")
    figure.supxlabel(drawing.stamp(found), fontsize=7, color="#555555", x=0.995, ha="right")
    axes.grid(axis="x", alpha=0.4)
    axes.set_axisbelow(True)
    axes.margins(x=0.2 if latencies else 0.1, y=0.01)
    return figure


# ---- the benches -------------------------------------------------------------------------------------------------


def _bench(what: str, short: str, help: str) -> Bench:
    return Bench(
        what, short, help, (SECONDS,),
        lambda given, path, tell: run(what, path, given.get("seconds", math.inf), tell),
        functools.partial(show, what), failures, functools.partial(figures, what),
    )  # fmt: skip


SMEM = _bench(
    "smem", "LDS and STS by width and lanes.",
    "Cycles and bytes a cycle of LDS and STS: 32, 64, 128 bits, whole and half warps, broadcasts, bank conflicts "
    "(Table 1 of openCNN's paper).",
)  # fmt: skip
REGISTERS = _bench(
    "ffma", "FFMA by register banks, reuse flags, yields.",
    "Cycles of FFMA by register banks, reuse flags, yield flags, and with LDS and STS between them; one and two "
    "warps a scheduler.",
)  # fmt: skip
TENSOR = _bench(
    "hmma", "Tensor cores: products a cycle, latencies.",
    "Cycles of what the tensor cores of the GPU have (HMMA, IMMA, BMMA, QMMA, DMMA; of warp groups HGMMA, IGMMA, "
    "BGMMA, QGMMA), one and two warps a scheduler, and the latency from one product to the next on the same "
    "accumulator.",
)  # fmt: skip
