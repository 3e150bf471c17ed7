"""`turingas bench smem`, `ffma`, `hmma`: what shared memory, the register banks and the tensor cores of an SM give."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from pathlib import Path

from kernels_sass.micro import ffma, hmma, loops, smem
from kernels_sass.micro.loops import Case, Json
from kernels_sass.micro.shown import failures, figures, show
from loader.bench import measure, results
from loader.bench.bench import SECONDS, Bench
from loader.bench.measure import gpu_at_hand
from loader.cuda import Device

KINDS: dict[str, Callable[[str], dict[str, Case]]] = {"smem": smem.cases, "ffma": ffma.cases, "hmma": hmma.cases}


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
    asked = {"rounds": loops.ROUNDS, "launches": loops.LAUNCHES}
    file = opened(what, path, gpu, {one.source for one in cases.values()}, asked)
    return file.fill(cases, seconds, tell, lambda _, case, step: case.measure(gpu) | {"state": measure.state(gpu)})


def opened(what: str, path: Path | None, gpu: Device, sources: set[Path], asked: Json) -> results.Results:
    """The file of a command, with what an interrupted run left in it."""
    facts = results.facts(f"bench {what}", gpu, sorted(sources))
    return results.Results(path or results.default_path(what, gpu.arch), facts, asked)


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
    "Cycles of the products that the GPU's tensor cores have (HMMA, IMMA, BMMA, QMMA, DMMA; of warp groups HGMMA, "
    "IGMMA, BGMMA, QGMMA), one and two warps a scheduler, and the latency from one product to the next on the same "
    "accumulator.",
)  # fmt: skip
BENCHES = SMEM, REGISTERS, TENSOR
