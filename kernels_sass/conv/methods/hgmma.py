"""hgmma.sass: convolution as a matrix product by HGMMA, fed by tensor copies of kind im2col.
``kernels_sass.conv.implicit`` launches it; it is none of METHODS, which are for filters of 3 x 3 in float32."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import turingas
from turingas.cubin.cubin import Cubin
from turingas.errors import LaunchError

Array = np.ndarray[Any, np.dtype[Any]]
Room = Mapping[int, int]  # clusters of 1, 2, ... blocks that run at the same time

NAME = "hgmma"
ARCH = "sm_90a"
FOLDER = Path(__file__).parent
SOURCE, PARTS, PACK = FOLDER / "hgmma.sass", FOLDER / "hgmma_parts.sass", FOLDER / "pack.sass"
WINDOW = FOLDER / "hgmma_window.sass"
TILE_M, MOST_FILTERS = 128, 256  # pixels of a tile, and filters at most: so many zeros follow biases and scales
THREADS = 384
ROW = 128  # bytes of a stage for a pixel or a filter
ROOM = 227 << 10  # bytes of dynamic shared memory
CLUSTERS = 1, 2, 4, 8  # blocks that share the last tiles
LEAST_STAGES, MOST_STAGES = 4, 8  # each of these has so many at least; and what may be under way
MOST_KEPT = 64  # stages of filters that stay: there are so many mbarriers
MOST_SENT = 1536  # filters of a tile times blocks that share it: for more sums stages have no room
FEW_SENT = 128  # so few were never the fastest but in fp32
BOTH, TURNS, WINDOWS, KEPT = "both", "turns", "windows", "kept"
WITH_WINDOWS = WINDOWS, KEPT
PACK_TILE, PACK_THREADS = 1024, 256  # elements and threads of a block of pack.sass


FLOAT32 = "TF32", "FP32"  # types of the source whose elements are those
STEP = 16  # k of an instruction with FP16
TOP = 14  # numbers of a filter are brought to 2^TOP ... 2^(TOP + 1) at most


@dataclass(frozen=True)
class Costs:
    """Microseconds, as ``python -m tests.tools.fit_hgmma`` finds them: a launch; what each filter of a tile takes
    before and behind its stages, where BOTH warp groups make it (``tile``) and where one does (``turn``); a tile that
    blocks share, and each of its filters. And bytes of x and y in a microsecond."""

    launched: float
    tile: float
    turn: float
    shared: float
    sending: float
    memory: float


@dataclass(frozen=True)
class Way:
    """How tiles of ``tile_n`` filters are made, with as many ``stages`` as there is room for. ``kind``: by BOTH warp
    groups; by each in TURNS; so from WINDOWS of x, too; from these with all filters KEPT. ``stage``: microseconds of a
    stage; ``column``: where all tiles have the same filters, so that the L2 is asked for more pixels."""

    kind: str
    tile_n: int
    stages: int
    stage: float
    column: float

    @property
    def schedule(self) -> Mapping[str, int]:
        """That asks for it."""
        if self.kind in WITH_WINDOWS:
            return {"TILE_N": self.tile_n, "WINDOWS": 2, "KEEP": int(self.kind == KEPT)}
        return {"TILE_N": self.tile_n, "STAGES": self.stages, "BUFFERS": 1, "PINGPONG": int(self.kind == TURNS)}


@dataclass(frozen=True)
class Precision:
    """``dtype``: of x, weight and y. ``type``: as the source has it."""

    dtype: str
    type: str
    ways: tuple[Way, ...]

    @property
    def plain(self) -> list[Way]:
        """Ways without windows."""
        return [way for way in self.ways if way.kind not in WITH_WINDOWS]

    @property
    def item(self) -> int:
        """Bytes of an element."""
        return 4 if self.type in FLOAT32 else 2

    @property
    def halves(self) -> bool:
        """Whether filters are two parts of FP16 each."""
        return self.type == "FP32"

    @property
    def tile_k(self) -> int:
        """Channels of a stage."""
        return ROW // self.item


COSTS = Costs(launched=1.85, tile=0.0091, turn=0.0154, shared=1.70, sending=0.0088, memory=4.0e6)
HALF = (
    Way(BOTH, 256, 4, 0.594, 0.625),
    Way(BOTH, 128, 6, 0.317, 0.326),
    Way(BOTH, 64, 8, 0.181, 0.264),
    Way(TURNS, 128, 6, 0.326, 0.353),
    Way(TURNS, 64, 8, 0.206, 0.299),
    Way(WINDOWS, 128, 0, 0.312, 0.345),
    Way(WINDOWS, 64, 0, 0.175, 0.233),
    Way(KEPT, 128, 0, 0.300, 0.335),
    Way(KEPT, 64, 0, 0.180, 0.228),
)
PRECISIONS = {
    "fp32": Precision("float32", "FP32", (Way(BOTH, 128, 6, 0.601, 0.626), Way(BOTH, 64, 8, 0.414, 0.429))),
    "tf32": Precision("float32", "TF32", (
        Way(BOTH, 256, 4, 0.632, 0.648),
        Way(BOTH, 128, 6, 0.334, 0.360),
        Way(BOTH, 64, 8, 0.198, 0.279),
        Way(TURNS, 128, 6, 0.335, 0.373),
        Way(TURNS, 64, 8, 0.219, 0.302),
        Way(WINDOWS, 128, 0, 0.308, 0.327),
        Way(WINDOWS, 64, 0, 0.171, 0.211),
        Way(KEPT, 64, 0, 0.180, 0.205),
    )),
    "fp16": Precision("float16", "F16", HALF),
    "bf16": Precision("bfloat16", "BF16", HALF),
}  # fmt: skip


def precision_of(name: object) -> Precision:
    """LaunchError for what is none."""
    if not isinstance(name, str) or name not in PRECISIONS:
        raise LaunchError(f"there is no precision {name!r}", "there are: " + ", ".join(PRECISIONS))
    return PRECISIONS[name]


@dataclass(frozen=True)
class Tiling:
    """The parameters of the source."""

    type: str
    tile_n: int
    stages: int
    buffers: int = 1
    group: int = 1
    direct: int = 0
    pairs: int = 0
    bias: int = 0
    residual: int = 0
    relu: int = 0
    cluster: int = 1
    pingpong: int = 0

    @property
    def columns(self) -> int:
        """Of a box of results."""
        return ROW // (4 if self.type in FLOAT32 else 2)

    @property
    def shared(self) -> int:
        """Bytes of dynamic shared memory: mbarriers, stages, results on their way out."""
        return 0x400 + self.stages * (TILE_M + self.tile_n) * ROW + 8 * self.buffers * 16 * ROW


@dataclass(frozen=True)
class Windows:
    """A layer as the windows of hgmma_window.sass see it: ``pixels`` from the first of y to the last, in rows of
    ``columns`` and images of ``rows`` rows, those included that are none of y; ``seen``: pixels of a window, in
    eights."""

    columns: int
    rows: int
    pixels: int
    seen: int


@dataclass(frozen=True)
class Windowed:
    """The parameters of hgmma_window.sass."""

    type: str
    tile_n: int
    filter: str
    stages: int
    window: int
    windows: int
    keep: int = 0
    bias: int = 0
    residual: int = 0
    relu: int = 0

    @property
    def shared(self) -> int:
        """Bytes of dynamic shared memory: mbarriers, windows, stages of filters, where the pixels of each warp are."""
        return 0x400 + (self.windows * self.window + self.stages * self.tile_n) * ROW + 8 * 4 * TILE_M


@dataclass(frozen=True)
class Work:
    """A layer as the kernel sees it: pixels of y, filters, stages of each tile, bytes of x and y."""

    pixels: int
    filters: int
    stages: int
    nbytes: int = 0

    def tiles(self, width: int) -> int:
        """Of y, with so many filters each."""
        return -(-self.pixels // TILE_M) * -(-self.filters // width)

    def each(self, cluster: int) -> int:
        """Stages of one of so many blocks that share a tile, at most."""
        return -(-self.stages // cluster)

    def rounds(self, width: int, cluster: int, room: Room) -> tuple[int, int]:
        """Tiles that a block makes one after the other: alone, and of those that clusters share."""
        tiles = self.tiles(width)
        if cluster == 1:
            return -(-tiles // room[1]), 0
        blocks = room[cluster] * cluster
        return tiles // blocks, -(-(tiles % blocks) // room[cluster])

    def time(self, way: Way, cluster: int, room: Room, costs: Costs = COSTS) -> float:
        """Microseconds."""
        alone, shared = self.rounds(way.tile_n, cluster, room)
        stage, both = way.column if self.filters <= way.tile_n else way.stage, costs.tile * way.tile_n
        if way.kind == BOTH:
            own = alone * (self.stages * stage + both)
        else:  # a group ends a tile while the other multiplies
            turn, tile = costs.turn * way.tile_n, self.stages * stage
            own = (alone * max(tile, (tile + turn) / 2) + turn) if alone else 0
        ends = both + costs.shared + costs.sending * way.tile_n
        made, moved = own + shared * (self.each(cluster) * stage + ends), self.nbytes / costs.memory
        return costs.launched + math.sqrt(math.hypot(made**2, moved**2))  # about the longer of both

    def best(self, precision: Precision, room: Room, cluster: int | None = None) -> tuple[Way, int]:
        """Without windows: the way that takes the least time, and how many blocks share the last tiles: ``cluster``."""
        counts = [cluster] if cluster else [
            one for one in CLUSTERS if one == 1 or room[one] and self.each(one) >= LEAST_STAGES]  # fmt: skip
        able = ((way, count) for way in precision.plain for count in counts if way.tile_n * count <= MOST_SENT
                and (count == 1 or precision.halves or way.tile_n * count > FEW_SENT))  # fmt: skip
        return min(able, key=lambda one: self.time(one[0], one[1], room))


def tiling(
    precision: Precision, work: Work, room: Room, cluster: int | None = 1, windows: Windows | None = None,
    filter: tuple[int, int] = (1, 1), **more: int,
) -> Tiling | Windowed:  # fmt: skip
    """What takes the least time, with ``cluster`` blocks that share the last tiles (None: as many as are best).
    ``windows``: as these see the layer, if they may, with their ``filter``. ``more``: other parameters."""
    way, count = work.best(precision, room, cluster)
    found: Tiling | Windowed = _tiling(precision, way, cluster=count, **more)
    least = work.time(way, count, room)
    if windows and cluster in (None, 1):
        seen = replace(work, pixels=windows.pixels)
        for way in precision.ways:
            if way.kind in WITH_WINDOWS and (time := seen.time(way, 1, room)) < least:
                able = windowed(precision, way, work, windows, filter, **more)
                found, least = (able, time) if able else (found, least)
    return found


def _tiling(precision: Precision, way: Way, **more: int) -> Tiling:
    """Of a way without windows."""
    made = Tiling(precision.type, way.tile_n, way.stages, pingpong=int(way.kind == TURNS), **more)
    twice = replace(made, buffers=2)
    return twice if way.tile_n // made.columns % 2 == 0 and twice.shared <= ROOM and not made.direct else made


def windowed(
    precision: Precision, way: Way, work: Work, windows: Windows, filter: tuple[int, int], **more: int
) -> Windowed | None:
    """A way with windows, with as many of these, and stages, as there is room for. None: there is too little, or the
    filters that are to stay are more than those of a tile."""
    keep, ending = int(way.kind == KEPT), {name: more.get(name, 0) for name in ("bias", "residual", "relu")}
    if keep and (work.filters > way.tile_n or work.stages > MOST_KEPT):
        return None
    stages = [work.stages] if keep else range(MOST_STAGES, LEAST_STAGES - 1, -1)
    able = [Windowed(precision.type, way.tile_n, "{}x{}".format(*filter), one, windows.seen, several, keep, **ending)
            for one in stages for several in ((3, 2) if keep else (2,))]  # fmt: skip
    return next((one for one in able if one.shared <= ROOM), None)


def source_of(tiling: Tiling | Windowed) -> Path:
    """Where the kernel is."""
    return SOURCE if isinstance(tiling, Tiling) else WINDOW


@functools.cache
def built(tiling: Tiling | Windowed) -> Cubin:
    """The kernel, assembled."""
    return _assembled(source_of(tiling), {name.upper(): value for name, value in vars(tiling).items()})


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


def paired(rows: Array) -> Array:
    """For hgmma_window.sass, in which a lane has the sums of rows n and n + 8 of 16: these become neighbours in y. Filled
    up with rows of zeros."""
    filled = np.pad(rows, ((0, -len(rows) % 16), (0, 0)))
    return np.ascontiguousarray(filled.reshape(-1, 8, 2, rows.shape[1]).swapaxes(1, 2)).reshape(filled.shape)


def halves(weight: Array) -> tuple[Array, Array]:
    """Rows of float32 as two parts of FP16 each, and of each row the power of two that its numbers were divided by: the
    largest becomes 2^14 at least, so that what is 2^-17 of it still has 22 bits. Of 32 numbers of a row the upper parts
    come first, then the lower ones; of 16 numbers in the order in which a lane of the kernel has those of x."""
    finite = np.where(np.isfinite(weight), np.abs(weight), 0)
    exponents = np.frexp(finite.max(axis=1, initial=0))[1] - 1  # of the largest number of a row
    scaled = np.ldexp(weight, TOP - exponents[:, None])
    with np.errstate(invalid="ignore"):  # infinities
        upper = scaled.astype(np.float16)
        lower = np.where(np.isfinite(weight), scaled - upper, 0).astype(np.float16)
    lane, half, one = np.ogrid[:4, :2, :2]
    order = np.empty(STEP, int)
    order[(2 * lane + 8 * half + one).ravel()] = (4 * lane + 2 * half + one).ravel()
    parts = np.stack([upper, lower], 1).reshape(len(weight), 2, -1, 2, STEP)[..., order]
    rows = parts.transpose(0, 2, 1, 3, 4).reshape(len(weight), -1)
    return np.ascontiguousarray(rows), np.ldexp(np.float32(1), exponents)


def inverse(number: int) -> int:
    """What the kernels divide by a number with: 2^32 over it, whole."""
    return min((1 << 32) // number, (1 << 32) - 1)
