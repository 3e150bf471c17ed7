"""Fused Winograd convolution F(2x2,3x3): Yan, Wang, Chu 2020, and openCNN's layouts of its output transform.

All take and give C, H, W, N (the output K, P, Q, N), float32; filters 3 x 3, stride 1, any padding. The filters are
transformed by a kernel of their own into (C, 4, 4, K), C and K filled up to 8 and 64. The main kernel takes 64 filters
x 32 tiles a block, 8 channels at a time, 256 threads, 48 KB of shared memory.

The kernels round as the method does: against float64 the relative L2 error is below 1e-6.
"""

from __future__ import annotations

from typing import Any

from loader.reference.problem import Problem
from loader.reference.registry import algorithm
from loader.reference.runner import Runner, ceil_div
from turingas.emulate import Report

SOURCE = "winograd.cu"
THREADS = 256
FILTERS, TILES, CHANNELS = 64, 32, 8  # of a block
MOST_FILTERS = (1 << 25) - FILTERS  # 16 x 8 x K is counted with 32 bits
#: OUTPUT of winograd.cu, and the shared memory that it takes, in bytes.
LAYOUTS = {"BASELINE": 48 << 10, "STS64": 48 << 10, "STS64_COMPACT": 64 << 10, "LDS64": 48 << 10}


def supports(p: Problem) -> str:
    """Why not, if not."""
    if (p.r, p.s) != (3, 3):
        return f"F(2x2,3x3) is for filters of 3 x 3, not {p.r} x {p.s}"
    if p.stride != 1:
        return f"Winograd's method has stride 1, not {p.stride}"
    return "" if p.k <= MOST_FILTERS else f"at most {MOST_FILTERS} filters, not {p.k}"


def tiles(p: Problem) -> int:
    """Tiles of 2 x 2 outputs in all images."""
    return ceil_div(p.p, 2) * ceil_div(p.q, 2) * p.n


class Plan:
    """The launches for a problem: ``prepare`` brings the filters from K, C, R, S to C, R, S, K; ``run`` is the rest."""

    def __init__(self, run: Runner, p: Problem, layout: str) -> None:
        self.p, self.layout = p, layout
        self.module = run.module(SOURCE, [f"-DOUTPUT={layout}"])
        self.blocks_k, self.blocks_c = ceil_div(p.k, FILTERS), ceil_div(p.c, CHANNELS)
        self.crsk = run.empty((p.c, 3, 3, p.k))
        self.transformed = run.empty((self.blocks_c * CHANNELS, 4, 4, self.blocks_k * FILTERS))

    def prepare(self, w: Any) -> None:
        """``w``: K, C, R, S."""
        blocks = ceil_div(9 * self.p.c * self.p.k, THREADS)
        self.module.kernel("winograd_crsk").launch(blocks, THREADS, w, self.crsk, self.p.c, self.p.k)

    def run(self, x: Any, y: Any, **options: Any) -> Report | None:
        """``x``: C, H, W, N; ``y``: K, P, Q, N. ``options`` of the main kernel's launch, and what that tells."""
        p = self.p
        grid = self.blocks_c * self.blocks_k
        self.module.kernel("winograd_filter").launch(grid, THREADS, self.crsk, self.transformed, p.c, p.k)
        grid = ceil_div(tiles(p), TILES) * self.blocks_k
        arguments = (x, self.transformed, y, p.n, p.c, p.h, p.w, p.k, p.padding)
        kernel = self.module.kernel("winograd")
        return kernel.launch(grid, THREADS, *arguments, shared=LAYOUTS[self.layout], **options)


def _run(run: Runner, p: Problem, x: Any, w: Any, y: Any, layout: str) -> None:
    plan = Plan(run, p, layout)
    plan.prepare(w)
    plan.run(x, y)


@algorithm("winograd", layout="CHWN", supports=supports)
def winograd(run: Runner, p: Problem, x: Any, w: Any, y: Any) -> None:
    """Yan, Wang, Chu 2020 in CUDA C++: sections 4.1 to 4.4, output transform in four rounds, padded (figure 5)."""
    _run(run, p, x, w, y, "BASELINE")


@algorithm("winograd_opencnn_baseline", layout="CHWN", supports=supports)
def winograd_opencnn_baseline(run: Runner, p: Problem, x: Any, w: Any, y: Any) -> None:
    """What the papers on openCNN start from, "the CUDA-only implementation of [10]": the same kernel as "winograd"."""
    _run(run, p, x, w, y, "BASELINE")


@algorithm("winograd_opencnn_optsts64", layout="CHWN", supports=supports)
def winograd_opencnn_optsts64(run: Runner, p: Problem, x: Any, w: Any, y: Any) -> None:
    """Output transposed with STS.64 of all lanes (openCNN, figure 7), stored with STG.64 (figure 14)."""
    _run(run, p, x, w, y, "STS64")


@algorithm("winograd_opencnn_optsts64_compact", layout="CHWN", supports=supports)
def winograd_opencnn_optsts64_compact(run: Runner, p: Problem, x: Any, w: Any, y: Any) -> None:
    """The same without padding, in two buffers (openCNN, figure 8): 64 KB of shared memory."""
    _run(run, p, x, w, y, "STS64_COMPACT")


@algorithm("winograd_opencnn_optlds64", layout="CHWN", supports=supports)
def winograd_opencnn_optlds64(run: Runner, p: Problem, x: Any, w: Any, y: Any) -> None:
    """The same read with LDS.64 (openCNN, figure 13), with its bank conflicts."""
    _run(run, p, x, w, y, "LDS64")


@algorithm("winograd_opencnn", layout="CHWN", supports=supports)
def winograd_opencnn(run: Runner, p: Problem, x: Any, w: Any, y: Any) -> None:
    """openCNN as it is measured: optSTS64."""
    _run(run, p, x, w, y, "STS64")
