"""The kernels of ``gemm``: their parameters, and what launches take. gemm.sass multiplies, halves.sass makes parts of
float32, partial.sass adds what blocks have made that share K.

    python -m kernels_sass.gemm_kernels 300 520 200 -D TA=1                 # the CPU device, strict, races

is ``python -m kernels_sass.learn.hgemm`` for gemm.sass: C = A B in float16, so not with OTHERS.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import loader
import turingas
from kernels_sass.learn import hgemm
from kernels_sass.learn.hgemm import THREADS, TILE_M, Array
from turingas.cubin.cubin import Cubin
from turingas.errors import LaunchError

SOURCE, HALVES, PARTIAL = (Path(__file__).parent / name for name in ("gemm.sass", "halves.sass", "partial.sass"))
TEXTS = SOURCE, SOURCE.with_name("gelu.py"), hgemm.SOURCE.with_name("ring.py")  # with what it includes
FLOAT32 = "TF32", "FP32"  # types whose elements are those
PACKED = 32  # numbers whose upper parts stand together
MOST_QUADS = 8  # times four numbers that a thread of halves.sass reads at once
OTHERS = "type", "bias", "relu", "gelu", "batched", "shared_k"  # parameters of other products than the command's
SPARE = 256  # scales that are read behind the last one: those of rows that a tile has too many


@dataclass(frozen=True)
class Tiling(hgemm.Tiling):
    """The parameters of gemm.sass: those of the lesson, and these.

    ``ta``: A is given as K rows of M; ``tb``: B is given as K rows of N (else as N rows of K). ``type``: of
    elements and results, F16, BF16, TF32 (float32), or FP32: float32 in parts that the kernel ``halving`` makes.
    """

    buffers: int = 0  # 0: 2, or 1 where the columns are no multiple of 128
    ta: int = 0
    tb: int = 0
    multicast: int = 1
    compiled: int = 0
    type: str = "F16"
    promote: int = 0
    bias: int = 0
    relu: int = 0
    gelu: int = 0  # 1: by the error function, 2: by tanh
    batched: int = 0
    shared_k: int = 0

    def defines(self) -> dict[str, object]:
        return {**super().defines(), "BUFFERS": self.boxes}

    @property
    def tile_k(self) -> int:
        """Elements of a row of 128 bytes."""
        return 32 if self.type in FLOAT32 else 64

    @property
    def columns(self) -> int:
        """Results in 128 bytes."""
        return 32 if self.shared_k else self.tile_k

    @property
    def boxes(self) -> int:
        """Boxes of 16 rows of 128 bytes that a warp has for its results."""
        return self.buffers or 2 - self.tile_n // self.columns % 2

    def blocks(self, m: int, n: int, sms: int, slices: int = 1) -> int:
        """Of the grid: one a multiprocessor, or fewer where there are fewer tiles."""
        tiles = -(-m // (TILE_M * self.cluster)) * -(-n // self.tile_n) * slices
        return self.cluster * min(tiles, sms // self.cluster)

    @property
    def options(self) -> dict[str, Any]:
        """Of ``launch``."""
        clustered = {"cluster": self.cluster} if self.cluster > 1 and not self.compiled else {}
        return {"shared": self.shared, **clustered}

    def map(self, which: int, array: Any, dtype: str | None = None) -> Any:
        """The tensor map of A (0), B (1) or C (2). ``dtype``: of their elements, if arrays do not say ("bfloat16")."""
        across = 32 if self.type == "TF32" else 64
        # the copies round TF32, of which the tensor cores would truncate what they cannot read
        read = "tf32" if self.type == "TF32" else dtype
        box, named = (
            ((64, 64) if self.ta else (TILE_M, across), read),
            ((64, 64) if self.tb else (self.tile_n // (self.cluster if self.multicast else 1), across), read),
            ((16, self.columns), None if self.shared_k else dtype),
        )[which]
        return loader.tensor_map(array, (1,) * (len(array.shape) - 2) + box, swizzle=128, dtype=named)

    def sizes(self, a: Any, b: Any) -> tuple[int, int, int]:
        """M, N, K."""
        k, m = a.shape if self.ta else a.shape[::-1]
        return int(m), int(b.shape[1 if self.tb else 0]), int(k)

    def laid(self, a: Array, b: Array) -> tuple[Array, Array]:
        """A and B as the kernel takes them."""
        x, y = (np.ascontiguousarray(one.T if turned else one) for one, turned in ((a, self.ta), (b, not self.tb)))
        return x, y


@functools.cache
def built(tiling: Tiling) -> Cubin:
    """The kernel, assembled."""
    return turingas.assemble(SOURCE.read_text(), "sm_90a", tiling.defines(), [SOURCE.parent], filename=str(SOURCE))


@functools.cache
def halving(threads: int, many: int, quads: int) -> Cubin:
    """The kernel that makes two parts of FP16 of float32, assembled; its parameters are those of the source."""
    given = {"THREADS": threads, "MANY": many, "QUADS": quads}
    return turingas.assemble(HALVES.read_text(), "sm_90a", given, filename=str(HALVES))


@dataclass(frozen=True)
class Halved:
    """A matrix of ``rows`` of ``k`` numbers of float32 that is to be split; ``aligned``: it begins at a multiple of 16
    bytes."""

    rows: int
    k: int
    aligned: bool

    @property
    def row(self) -> int:
        """Halves that come of a row."""
        return -(-self.k // PACKED) * 2 * PACKED


class Halving:
    """What the kernel ``halving`` takes for one matrix, or two whose rows give as many halves."""

    def __init__(self, *those: Halved) -> None:
        self.those, self.quads = those, those[0].row // 8
        threads = 32 if self.quads <= 32 * MOST_QUADS else 256
        many = next(one for one in (1, 2, 4, MOST_QUADS) if one == MOST_QUADS or self.quads <= one * threads)
        self.of = threads, many, int(all(one.aligned and one.k % 4 == 0 for one in those))
        rows = sum(one.rows for one in those)
        self.blocks = rows if threads == 256 else -(-rows // 8)

    def arguments(self, *arrays: Any) -> tuple[Any, ...]:
        """Of ``launch``, for x, halves and scales of each: float32, one a row, and room for SPARE more behind them."""
        first, second = self.those[0], self.those[1] if len(self.those) > 1 else Halved(0, 0, True)
        more = arrays[3:] or (0, 0, 0)
        return self.blocks, 256, *arrays[:3], first.rows, first.k, self.quads, *more, second.rows, second.k


@functools.cache
def adding(tiling: Tiling) -> Cubin:
    """The kernel that adds what blocks have made that share K, for results as the tiling says, assembled."""
    given = {"TYPE": "F32" if tiling.type in FLOAT32 else tiling.type}
    given |= {name.upper(): getattr(tiling, name) for name in ("bias", "relu", "gelu")}
    return turingas.assemble(PARTIAL.read_text(), "sm_90a", given, [PARTIAL.parent], filename=str(PARTIAL))


def arguments(
    tiling: Tiling, a: Any, b: Any, c: Any, sizes: tuple[int, int, int] | None = None, sms: int = 132, *,
    scales: Sequence[Any] = (), bias: Any = None, dtype: str | None = None, slices: Sequence[int] = (),
) -> tuple[tuple[Any, ...], dict[str, Any]]:  # fmt: skip
    """Of ``launch``, for C = A B: grid, block and parameters, and options. Tensor maps are made here. ``scales``: of
    FP32 those of the rows of A and B; ``bias``: float32, one a column; ``sizes``: M, N, K, where the arrays are larger;
    ``slices``: how many there are, and of a batch whether A and B move on with them, of shared K the steps of each."""
    m, n, k = sizes or tiling.sizes(a, b)
    more = [*scales, *([] if bias is None else [bias]), *slices]
    maps = (tiling.map(which, array, dtype) for which, array in enumerate((a, b, c)))
    return (tiling.blocks(m, n, sms, *slices[:1]), THREADS, *maps, m, n, k, *more), tiling.options


def main(words: Sequence[str] | None = None) -> int:
    """The command."""

    def make(tiling: Tiling) -> Cubin:
        cubin = built(tiling)
        if other := [name.upper() for name in OTHERS if getattr(tiling, name) != getattr(Tiling, name)]:
            what = f"this multiplies in float16, and adds nothing: {other[0]} is not for it"
            raise LaunchError(what, "kernels_sass.gemm has all products")
        return cubin

    return hgemm.command(words, "kernels_sass.gemm_kernels", Tiling, make)


if __name__ == "__main__":
    sys.exit(main())
