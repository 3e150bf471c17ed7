"""Operations and bytes of Winograd convolutions, by formulas, which the tests hold against the CPU device's counters
(ours) and cuDNN's workspaces (non-fused)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from kernels_sass.bench.winograd import ffmas
from loader.reference.problem import Problem

BLOCK = 64, 32  # filters and tiles of a block of ours; 32 and 32 of cuDNN's fused kernel, by Yan, Wang, Chu 2020
#: Additions and multiplications that transform a tile of F(2x2,3x3) and F(4x4,3x3): filter, input, output (Lavin, Gray)
TRANSFORMS = {2: (28, 32, 24), 4: (72, 156, 90)}


@dataclass(frozen=True)
class Work:
    """Operations of a convolution and bytes: ``asked`` is what the kernel's loads and stores of global memory ask for,
    ``least`` what has to come from or go to DRAM if nothing does so twice."""

    operations: int
    asked: int
    least: int


def tiles(p: Problem, size: int) -> int:
    """Tiles of ``size`` x ``size`` outputs."""
    return p.n * math.ceil(p.p / size) * math.ceil(p.q / size)


def inside(count: int, size: int, padding: int) -> int:
    """Of the rows, or columns, that all tiles of 2 read, those that are no padding: 4 a tile, two of which overlap."""
    starts = (2 * tile - padding for tile in range(math.ceil(count / 2)))
    return sum(min(start + 4, size) - max(start, 0) for start in starts)


def fused(p: Problem) -> Work:
    """The main kernel of ours, F(2x2,3x3): every block of filters reads and transforms the tiles anew, and every block
    of tiles reads the transformed filters."""
    filters, side = BLOCK
    rows = math.ceil(p.k / filters)
    blocks = rows * math.ceil(tiles(p, 2) / side)
    _, into, out = TRANSFORMS[2]
    operations = 2 * ffmas(p) + into * tiles(p, 2) * p.c * rows + out * tiles(p, 2) * p.k
    u, y = 4 * 16 * filters * 8 * math.ceil(p.c / 8), 4 * p.n * p.k * p.p * p.q
    x = 4 * p.n * p.c * inside(p.p, p.h, p.padding) * inside(p.q, p.w, p.padding)
    return Work(operations, blocks * u + rows * x + y, rows * u + 4 * p.n * p.c * p.h * p.w + y)


@dataclass(frozen=True)
class NonFused:
    """Bytes of the arrays of F(4x4,3x3) in kernels of its own: transformed filters, inputs, and products."""

    u: int
    v: int
    m: int

    @classmethod
    def of(cls, p: Problem) -> NonFused:
        return cls(4 * 36 * p.c * p.k, 4 * 36 * tiles(p, 4) * p.c, 4 * 36 * tiles(p, 4) * p.k)


def nonfused(p: Problem) -> Work:
    """F(4x4,3x3) in kernels of its own: each array is written once and read once, x, w and y once."""
    there = NonFused.of(p)
    weigh, into, out = TRANSFORMS[4]
    operations = 2 * 36 * tiles(p, 4) * p.c * p.k
    operations += weigh * p.c * p.k + into * tiles(p, 4) * p.c + out * tiles(p, 4) * p.k
    outside = 4 * (p.n * p.c * p.h * p.w + 9 * p.c * p.k + p.n * p.k * p.p * p.q)
    nbytes = 2 * (there.u + there.v + there.m) + outside
    return Work(operations, nbytes, nbytes)


def steps() -> dict[str, dict[str, Any]]:
    """Figure 2 of Yan, Wang, Chu 2020: operations for a byte of each step, a tile of one channel or filter."""
    weigh, into, out = TRANSFORMS[2]

    def batched(filters: int, side: int) -> float:
        return 2 * filters * side / (4 * (filters + side))

    return {
        "filters' transform": {"intensity": weigh / (4 * (9 + 16)), "from": "global memory"},
        "output transform": {"intensity": out / (4 * (16 + 4)), "from": "global memory"},
        "input transform": {"intensity": into / (4 * (4 + 16)), "from": "global memory"},
        "products, 32 x 32 a block": {"intensity": batched(32, 32), "from": "global memory"},
        "products, 64 x 32 a block": {"intensity": batched(*BLOCK), "from": "global memory"},
        "products, 8 x 8 a thread": {"intensity": batched(8, 8), "from": "shared memory"},
    }
