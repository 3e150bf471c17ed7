"""hgmma.sass: convolution as a matrix product by HGMMA, fed by tensor copies of kind im2col.
``kernels_sass.conv.implicit`` launches it; it is none of METHODS, which are for filters of 3 x 3 in float32."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import turingas
from turingas.cubin.cubin import Cubin
from turingas.errors import LaunchError

Array = np.ndarray[Any, np.dtype[Any]]

NAME = "hgmma"
ARCH = "sm_90a"
FOLDER = Path(__file__).parent
SOURCE, PACK = FOLDER / "hgmma.sass", FOLDER / "pack.sass"
PARTIAL = FOLDER.parent.parent / "partial.sass"
TILE_M = 128  # pixels
THREADS = 384
ROW = 128  # bytes of a stage for a pixel or a filter
ROOM = 227 << 10  # bytes of dynamic shared memory
MOST_SPLITS, LEAST_STAGES = 16, 4  # blocks that share a tile, and stages that each has then at least
#: What it takes to add their sums, by an estimate: a second launch, and sums that are moved in the time of one filter's
#: stage
ADDING, MOVED = 500, 1600
STARTED = 90  # what a tile of any width takes, in filters' worth of time: A is copied and read for each
CUT, HALF = 0xFFFFE000, 0x1000  # what the tensor cores read of a float32, and half of the last bit of it
PACK_TILE, PACK_THREADS = 1024, 256  # elements and threads of a block of pack.sass


@dataclass(frozen=True)
class Precision:
    """``dtype``: of x, weight and y. ``type``, ``parts``, ``promote``: as the source has them. ``widths``: filters of
    a tile, and stages that there is room for."""

    dtype: str
    type: str
    parts: int
    promote: int
    widths: tuple[tuple[int, int], ...]

    @property
    def item(self) -> int:
        """Bytes of an element."""
        return 4 if self.type == "TF32" else 2

    @property
    def tile_k(self) -> int:
        """Channels of a stage."""
        return ROW // self.item


ONE = ((256, 4), (192, 5), (128, 6), (64, 8))
PRECISIONS = {
    "fp32": Precision("float32", "TF32", 3, 2, ((128, 3), (64, 4))),
    "tf32": Precision("float32", "TF32", 1, 0, ONE),
    "fp16": Precision("float16", "F16", 1, 0, ONE),
    "bf16": Precision("bfloat16", "BF16", 1, 0, ONE),
}


def precision_of(name: object) -> Precision:
    """LaunchError for what is none."""
    if not isinstance(name, str) or name not in PRECISIONS:
        raise LaunchError(f"there is no precision {name!r}", "there are: " + ", ".join(PRECISIONS))
    return PRECISIONS[name]


@dataclass(frozen=True)
class Tiling:
    """The parameters of the source."""

    type: str
    parts: int
    promote: int
    tile_n: int
    stages: int
    buffers: int = 1
    group: int = 16
    direct: int = 0
    pairs: int = 0
    bias: int = 0
    residual: int = 0
    relu: int = 0
    shared_k: int = 0

    @property
    def columns(self) -> int:
        """Of a box of results."""
        return ROW // (4 if self.type == "TF32" or self.shared_k else 2)

    @property
    def shared(self) -> int:
        """Bytes of dynamic shared memory: mbarriers, stages, results on their way out."""
        stage = (TILE_M + self.tile_n) * ROW * (2 if self.parts > 1 else 1)
        return 0x400 + self.stages * stage + 8 * self.buffers * 16 * ROW

    def tiles(self, pixels: int, filters: int) -> int:
        """Of y."""
        return -(-pixels // TILE_M) * -(-filters // self.tile_n)


def tiling(
    precision: Precision, pixels: int, filters: int, stages: int, sms: int, splits: int | None = 1, **more: int
) -> tuple[Tiling, int]:
    """What takes the least time, counted in stages of tiles that a multiprocessor does one after the other, and the
    stages of each of the ``splits`` blocks that share a tile (None: as many as are best): all of them if none do.
    Those who share write sums, which are added in the end. ``more``: other parameters."""

    def each(splits: int) -> int:
        return -(-stages // splits)

    def time(able: tuple[tuple[int, int], int]) -> float:
        (width, _), splits = able
        parts = -(-stages // each(splits))
        rounds = -(-(-(-pixels // TILE_M) * -(-filters // width) * parts) // sms)
        added = ADDING + pixels * filters * parts / MOVED if parts > 1 else 0
        return rounds * each(splits) * (width + STARTED) + added

    counts = [splits] if splits else [one for one in range(1, MOST_SPLITS + 1) if one == 1 or each(one) >= LEAST_STAGES]
    best, parts = min(((one, count) for one in precision.widths for count in counts), key=time)
    return _tiling(precision, best, **more), each(parts)


def _tiling(precision: Precision, one: tuple[int, int], **more: int) -> Tiling:
    """Of a width with its number of stages."""
    made = Tiling(precision.type, precision.parts, precision.promote, *one, **more)
    twice = Tiling(**{**vars(made), "buffers": 2})
    return twice if one[0] // made.columns % 2 == 0 and twice.shared <= ROOM and not made.direct else made


@functools.cache
def built(tiling: Tiling) -> Cubin:
    """The kernel, assembled."""
    return _assembled(SOURCE, {name.upper(): value for name, value in vars(tiling).items()})


@functools.cache
def adding(type: str, bias: int, residual: int, relu: int) -> Cubin:
    """The kernel that adds the sums of blocks that share tiles, assembled."""
    given = {"TYPE": "F32" if type == "TF32" else type, "BIAS": bias, "RESIDUAL": residual, "RELU": relu}
    return turingas.assemble(PARTIAL.read_text(), ARCH, given, [PARTIAL.parent], filename=str(PARTIAL))


@functools.cache
def packing(item: int, channels: int, rows: bool, low: bool = False) -> Cubin:
    """The kernel that brings x into the order of copies: elements of ``item`` bytes, blocks of so many channels;
    ``rows``: neighbours in x are pixels of a row, not channels; ``low``: the second parts of float32 besides."""
    return _assembled(PACK, {"ITEM": item, "CHANNELS": channels, "ROWS": int(rows), "LOW": int(low)})


def _assembled(source: Path, defines: dict[str, object]) -> Cubin:
    return turingas.assemble(source.read_text(), ARCH, defines, [FOLDER], filename=str(source))


def arranged(weight: Array, channels: int, folded: bool, tile_k: int) -> Array:
    """Filters K, C, R, S as the kernel wants them: rows of R x S places, each with its ``channels`` (with ``folded`` of
    R places, each with S x ``channels`` numbers), filled up with zeros to multiples of ``tile_k``."""
    k, c, r, s = weight.shape
    padded = np.zeros((k, r, s, channels), weight.dtype)
    padded[..., :c] = weight.transpose(0, 2, 3, 1)
    places = padded.reshape(k, r, s * channels) if folded else padded.reshape(k, r * s, channels)
    made = np.zeros((*places.shape[:2], -(-places.shape[2] // tile_k) * tile_k), weight.dtype)
    made[..., : places.shape[2]] = places
    return made.reshape(k, -1)


def with_low(weight: Array) -> Array:
    """Rows of float32, and below them as many with what the tensor cores do not read of them: rounded to the 19 bits
    that they read; 0 of infinities."""
    read = (weight.view(np.uint32) & np.uint32(CUT)).view(np.float32)
    low = np.where(np.isfinite(weight), weight - np.where(np.isfinite(weight), read, 0), np.float32(0))
    rounded = (low.view(np.uint32) + np.uint32(HALF) & np.uint32(CUT)).view(np.float32)
    return np.concatenate([weight, rounded])


def inverse(number: int) -> int:
    """What the kernels divide by a number with: 2^32 over it, whole."""
    return min((1 << 32) // number, (1 << 32) - 1)
