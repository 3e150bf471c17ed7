"""A loop of SASS that is timed on all SMs: what `turingas bench smem`, `ffma` and `hmma` are made of.

Each row is a loop of SASS that reads the SM's own clock before and after, in one block on every SM at once. What a loop
computes is compared first, for two rounds; a wrong result has no time. A row is the median of all blocks and launches.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import loader
import turingas
from loader.cuda import Buffer, Device
from turingas.cubin.cubin import Cubin

FOLDER = Path(__file__).parent
LEARN = FOLDER.parent / "learn"
SCHEDULERS = 4  # of an SM
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
