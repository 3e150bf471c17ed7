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

NOTHING: Mapping[str, object] = {}

NAME = "hgmma"
ARCH = "sm_90a"
FOLDER = Path(__file__).parent
SOURCE, PARTS = FOLDER / "hgmma.sass", FOLDER / "hgmma_parts.sass"
PACK, PACK_FEW = FOLDER / "pack.sass", FOLDER / "pack_few.sass"
WINDOW, WIDE_SOURCE = FOLDER / "hgmma_window.sass", FOLDER / "hgmma_wide.sass"
TILE_M, MOST_FILTERS = 128, 256  # pixels of a tile, and filters at most: so many zeros follow biases and scales
WIDE_N = 128  # filters of a tile of hgmma_wide.sass
THREADS = 384
ROW = 128  # bytes of a stage for a pixel or a filter
ROOM = 227 << 10  # bytes of dynamic shared memory
CLUSTERS = 1, 2, 4, 8  # blocks that share the last tiles
LEAST_STAGES, MOST_STAGES = 4, 8  # each of these has so many at least; and what may be under way
MOST_SEEN = 1024  # pixels of a copy
MOST_TILES = 1 << 21  # the kernels divide their numbers by way of floats
MOST_KEPT = 64  # stages of filters that stay: there are so many mbarriers
MOST_SENT = 1536  # filters of a tile times blocks that share it: for more sums stages have no room
FEW_SENT = 128  # so few were never the fastest but in fp32
KINDS = BOTH, TURNS, WIDER, WINDOWS, KEPT = "both", "turns", "wide", "windows", "kept"
WITH_WINDOWS = WINDOWS, KEPT
ANY_PIXELS = WIDER, *WITH_WINDOWS  # kinds whose tiles have any number of pixels, in eights:
LEAST_M, MOST_M = 64, 256
LEAST_N = 64  # filters of a tile
ENDING = "bias", "residual", "relu"
PACK_TILE, PACK_THREADS = 1024, 256  # elements and threads of a block of pack.sass
FEW, FEW_BYTES = 16, (8, 16, 32, 64)  # elements of x in a pixel that pack_few.sass makes, and its sizes
FEW_PIECE = 16  # bytes that a thread of it makes, at most


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
    groups; by each in TURNS; by both, WIDER or narrower than 128 pixels (hgmma_wide.sass); in turns from WINDOWS of x;
    from these with all filters KEPT. ``stage``: microseconds of a stage of 128 pixels; ``column``: where all tiles have
    the same filters, so that the L2 is asked for more pixels; ``still``: what of these does not depend on pixels."""

    kind: str
    tile_n: int
    stages: int
    stage: float
    column: float
    still: float = 0

    @property
    def pixels(self) -> range:
        """Those that a tile may have. A lane has the sums of all its filters at once, where groups take turns."""
        if self.kind not in ANY_PIXELS:
            return range(TILE_M, TILE_M + 1)
        most = MOST_M // (self.tile_n // 64 if self.kind in WITH_WINDOWS else 1)
        return range(LEAST_M, most + 1, 8)

    def schedule(self, tile_m: int = TILE_M) -> Mapping[str, int]:
        """That asks for it."""
        if self.kind in WITH_WINDOWS:
            return {"TILE_M": tile_m, "TILE_N": self.tile_n, "WINDOWS": 2, "KEEP": int(self.kind == KEPT)}
        if self.kind == WIDER:
            return {"TILE_M": tile_m}
        return {"TILE_N": self.tile_n, "STAGES": self.stages, "BUFFERS": 1, "PINGPONG": int(self.kind == TURNS)}


@dataclass(frozen=True)
class Precision:
    """``dtype``: of x, weight and y. ``type``: as the source has it."""

    dtype: str
    type: str
    ways: tuple[Way, ...]

    @property
    def plain(self) -> list[Way]:
        """Ways whose tiles have 128 pixels, without windows."""
        return [way for way in self.ways if way.kind not in ANY_PIXELS]

    @property
    def item(self) -> int:
        """Bytes of an element."""
        return 4 if self.type in FLOAT32 else 2

    @property
    def copied(self) -> str:
        """What tensor copies make of x, and of filters that are no halves: they round TF32, of which the tensor cores
        would truncate what they cannot read. So the error is less, and bits that are 0 take less power."""
        return "tf32" if self.type == "TF32" else self.dtype

    @property
    def halves(self) -> bool:
        """Whether filters are two parts of FP16 each."""
        return self.type == "FP32"

    @property
    def tile_k(self) -> int:
        """Channels of a stage."""
        return ROW // self.item


COSTS = Costs(launched=2.07, tile=0.0085, turn=0.0143, shared=1.09, sending=0.0131, memory=2.8e6)
HALF = (
    Way(BOTH, 256, 4, 0.606, 0.664),
    Way(BOTH, 128, 6, 0.323, 0.369),
    Way(BOTH, 64, 8, 0.203, 0.303),
    Way(TURNS, 128, 6, 0.340, 0.401),
    Way(TURNS, 64, 8, 0.227, 0.468),
    Way(WIDER, 128, 0, 0.329, 0.403, 0.035),
    Way(WINDOWS, 128, 0, 0.327, 0.367, 0.023),
    Way(WINDOWS, 64, 0, 0.193, 0.242, 0.045),
    Way(KEPT, 128, 0, 0.300, 0.366, 0.049),
    Way(KEPT, 64, 0, 0.180, 0.214, 0.042),
)
PRECISIONS = {
    "fp32": Precision("float32", "FP32", (Way(BOTH, 128, 6, 0.601, 0.626), Way(BOTH, 64, 8, 0.414, 0.429))),
    # stages of 256 filters, turns and wide tiles: 1 to 8 % off what fits best, such that layers whose ways take about
    # the same get the fastest one (256 channels of 14 x 14 and 128 images, 1 x 1 with 1024 channels)
    "tf32": Precision("float32", "TF32", (
        Way(BOTH, 256, 4, 0.603, 0.689),
        Way(BOTH, 128, 6, 0.339, 0.425),
        Way(BOTH, 64, 8, 0.231, 0.337),
        Way(TURNS, 128, 6, 0.328, 0.440),
        Way(TURNS, 64, 8, 0.251, 0.367),
        Way(WIDER, 128, 0, 0.340, 0.461, 0.051),
        Way(WINDOWS, 128, 0, 0.311, 0.337, 0.023),
        Way(WINDOWS, 64, 0, 0.179, 0.222, 0.044),
        Way(KEPT, 64, 0, 0.180, 0.186, 0.051),
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
    ahead: int | None = None  # None: as the source has it

    @property
    def tile_m(self) -> int:
        """Pixels of a tile."""
        return TILE_M

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
    ``columns`` and images of ``rows`` rows, those included that are none of y; ``more``: what a window has besides
    the pixels of a tile. ``row``: bytes of a pixel, and of a filter, that a stage takes."""

    columns: int
    rows: int
    pixels: int
    more: int
    row: int = ROW

    def seen(self, tile_m: int) -> int:
        """Pixels of a window, in eights."""
        return -(-(tile_m + self.more) // 8) * 8


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
    tile_m: int = TILE_M
    row: int = ROW

    @property
    def shared(self) -> int:
        """Bytes of dynamic shared memory: mbarriers, windows, stages of filters, where the pixels of each warp are."""
        return 0x400 + (self.windows * self.window + self.stages * self.tile_n) * self.row + seats(self.tile_m)


@dataclass(frozen=True)
class Wide:
    """The parameters of hgmma_wide.sass."""

    type: str
    tile_m: int
    stages: int
    bias: int = 0
    residual: int = 0
    relu: int = 0

    @property
    def tile_n(self) -> int:
        """Filters of a tile."""
        return WIDE_N

    @property
    def shared(self) -> int:
        """Bytes of dynamic shared memory: mbarriers, stages, where the pixels of each warp are."""
        return 0x400 + self.stages * (WIDE_N + self.tile_m) * ROW + seats(self.tile_m)


Kernel = Tiling | Windowed | Wide


def countable(pixels: int, filters: int, tile_m: int, tile_n: int) -> int:
    """How many tiles there are. LaunchError for more than the kernels count to."""
    tiles = -(-pixels // tile_m) * -(-filters // tile_n)
    if tiles >= MOST_TILES:
        raise LaunchError(f"y has {tiles} tiles of {tile_m} pixels and {tile_n} filters; the kernels count to "
                          f"{MOST_TILES}", "give it fewer images at a time")  # fmt: skip
    return tiles


def seats(tile_m: int) -> int:
    """Bytes in which eight warps keep where the pixels of a tile are in y."""
    return 8 * 4 * -(-tile_m // 32) * 32


@dataclass(frozen=True)
class Work:
    """A layer as the kernel sees it: pixels of y, filters, stages of each tile, bytes of x and y."""

    pixels: int
    filters: int
    stages: int
    nbytes: int = 0

    def tiles(self, width: int, tile_m: int = TILE_M) -> int:
        """Of y, with so many filters and pixels each."""
        return -(-self.pixels // tile_m) * -(-self.filters // width)

    def each(self, cluster: int) -> int:
        """Stages of one of so many blocks that share a tile, at most."""
        return -(-self.stages // cluster)

    def rounds(self, width: int, cluster: int, room: Room, tile_m: int = TILE_M) -> tuple[int, int]:
        """Tiles that a block makes one after the other: alone, and of those that clusters share."""
        tiles = self.tiles(width, tile_m)
        if cluster == 1:
            return -(-tiles // room[1]), 0
        blocks = room[cluster] * cluster
        return tiles // blocks, -(-(tiles % blocks) // room[cluster])

    def time(self, way: Way, cluster: int, room: Room, costs: Costs = COSTS, tile_m: int = TILE_M) -> float:
        """Microseconds."""
        alone, shared = self.rounds(way.tile_n, cluster, room, tile_m)
        stage, size = way.column if self.filters <= way.tile_n else way.stage, tile_m / TILE_M
        stage = way.still + (stage - way.still) * size
        both = costs.tile * way.tile_n * size
        if way.kind in (BOTH, WIDER):
            own = alone * (self.stages * stage + both)
        else:  # a group ends a tile while the other multiplies
            turn, tile = costs.turn * way.tile_n * size, self.stages * stage
            own = (alone * max(tile, (tile + turn) / 2) + turn) if alone else 0
        ends = both + costs.shared + costs.sending * way.tile_n
        made, moved = own + shared * (self.each(cluster) * stage + ends), self.nbytes / costs.memory
        return costs.launched + math.sqrt(math.hypot(made**2, moved**2))  # about the longer of both

    def best(
        self, precision: Precision, room: Room, cluster: int | None = None, asked: Mapping[str, object] = NOTHING
    ) -> tuple[Way, int]:
        """Without windows: the way that takes the least time, and how many blocks share the last tiles: ``cluster``. Of
        the ways that have what is ``asked`` for, "tile_n" and "pingpong", if there are any."""
        counts = [cluster] if cluster else [
            one for one in CLUSTERS if one == 1 or room[one] and self.each(one) >= LEAST_STAGES]  # fmt: skip
        able = [(way, count) for way in precision.plain for count in counts if way.tile_n * count <= MOST_SENT
                and (way.kind != TURNS or self.rounds(way.tile_n, count, room)[0])]  # of tiles made alone  # fmt: skip

        def wanted(way: Way, count: int) -> bool:
            if asked.keys() & {"tile_n", "pingpong"}:
                of = {"tile_n": way.tile_n, "pingpong": int(way.kind == TURNS)}
                return {**of, **asked}.items() >= of.items()
            return count == 1 or precision.halves or way.tile_n * count > FEW_SENT

        fitting = [one for one in able if wanted(*one)] or able
        return min(fitting, key=lambda one: self.time(one[0], one[1], room))


def tiling(
    precision: Precision, work: Work, room: Room, cluster: int | None = 1, windows: Windows | None = None,
    filter: tuple[int, int] = (1, 1), wider: bool = False, asked: Mapping[str, object] = NOTHING, **more: int,
) -> Kernel:  # fmt: skip
    """What takes the least time, with ``cluster`` blocks that share the last tiles (None: as many as are best).
    ``windows``: as these see the layer, if they may, with their ``filter``; ``wider``: whether tiles may have other
    than 128 pixels without them. ``asked``: as of ``Work.best``. ``more``: other parameters."""
    way, count = work.best(precision, room, cluster, asked)
    found: Kernel = _tiling(precision, way, cluster=count, **more)
    least = work.time(way, count, room)
    for way in precision.ways if cluster in (None, 1) else ():
        if way.kind == WIDER and wider or way.kind in WITH_WINDOWS and windows:
            able = _of_way(precision, way, work, room, windows, filter, **more)
            if able and able[0] < least:
                least, found = able
    return found


def windowed(
    precision: Precision, work: Work, room: Room, windows: Windows, filter: tuple[int, int], **more: int
) -> Kernel | None:
    """What takes the least time with windows; None without room for any."""
    able = [_of_way(precision, way, work, room, windows, filter, **more) for way in precision.ways
            if way.kind in WITH_WINDOWS]  # fmt: skip
    found = min((one for one in able if one), key=lambda one: one[0], default=None)
    return found and found[1]


def _of_way(
    precision: Precision, way: Way, work: Work, room: Room, windows: Windows | None, filter: tuple[int, int],
    **more: int,
) -> tuple[float, Kernel] | None:  # fmt: skip
    """The tile of any number of pixels that takes the least time, of those that there is room for, and that time."""
    seen = work
    if way.kind != WIDER and windows:
        seen = replace(work, pixels=windows.pixels, stages=-(-work.stages * windows.row // ROW))
    for time, tile_m in sorted((seen.time(way, 1, room, tile_m=tile_m), tile_m) for tile_m in way.pixels):
        if able := of_pixels(precision, way, work, windows, filter, tile_m, **more):
            return time, able
    return None


def _tiling(precision: Precision, way: Way, **more: int) -> Tiling:
    """Of a way without windows."""
    made = Tiling(precision.type, way.tile_n, way.stages, pingpong=int(way.kind == TURNS), **more)
    twice = replace(made, buffers=2)
    return twice if way.tile_n // made.columns % 2 == 0 and twice.shared <= ROOM and not made.direct else made


def of_pixels(
    precision: Precision, way: Way, work: Work, windows: Windows | None, filter: tuple[int, int], tile_m: int = TILE_M,
    **more: int,
) -> Wide | Windowed | None:  # fmt: skip
    """A way of ANY_PIXELS, with tiles of so many pixels, and as many stages, and windows, as there is room for. None:
    there is too little, or the filters that are to stay are more than those of a tile."""
    ending, able = {name: more.get(name, 0) for name in ENDING}, list[Wide | Windowed]()
    if way.kind == WIDER:
        able += (Wide(precision.type, tile_m, stages, **ending) for stages in range(MOST_STAGES, 1, -1))
    elif windows and windows.seen(tile_m) <= MOST_SEEN and tile_m <= way.pixels[-1]:
        keep, place = int(way.kind == KEPT), "{}x{}".format(*filter)
        if keep and (work.filters > way.tile_n or work.stages > MOST_KEPT):
            return None
        able += (Windowed(precision.type, way.tile_n, place, stages, windows.seen(tile_m), several, keep, **ending,
                          tile_m=tile_m, row=windows.row)
                 for stages in ([work.stages] if keep else range(MOST_STAGES, LEAST_STAGES - 1, -1))
                 for several in ((3, 2) if keep else (2,)))  # fmt: skip
    return next((one for one in able if one.shared <= ROOM), None)


def source_of(tiling: Kernel) -> Path:
    """Where the kernel is."""
    return {Tiling: SOURCE, Windowed: WINDOW, Wide: WIDE_SOURCE}[type(tiling)]


def defines(tiling: Kernel) -> dict[str, object]:
    """The parameters that its source is assembled with."""
    return {name.upper(): value for name, value in vars(tiling).items() if value is not None}


@functools.cache
def built(tiling: Kernel) -> Cubin:
    """The kernel, assembled."""
    return _assembled(source_of(tiling), defines(tiling))


@functools.cache
def packing(item: int, channels: int, rows: bool) -> Cubin:
    """The kernel that brings x into the order of copies: elements of ``item`` bytes, blocks of so many channels;
    ``rows``: neighbours in x are pixels of a row, not channels."""
    return _assembled(PACK, {"ITEM": item, "CHANNELS": channels, "ROWS": int(rows)})


@functools.cache
def packing_few(item: int, c: int, channels: int, rows: int) -> Cubin:
    """The same for few channels: pixels of ``rows`` rows of x, ``channels`` of each, of which there are ``c``."""
    return _assembled(PACK_FEW, {"ITEM": item, "C": c, "CP": channels, "GROUP": rows})


def few(item: int, c: int, channels: int, rows: int) -> bool:
    """Whether there is such a kernel."""
    size = channels * rows * item
    piece = min(FEW_PIECE, size) // item
    return c * rows <= FEW and size in FEW_BYTES and not (piece % channels and channels % piece)


def _assembled(source: Path, defines: dict[str, object]) -> Cubin:
    return turingas.assemble(source.read_text(), ARCH, defines, [FOLDER], filename=str(source))


def arranged(weight: Array, channels: int, folded: bool, tile_k: int, rows: int = 1) -> Array:
    """Filters K, C, R, S as the kernel wants them: rows of R x S places, each with its ``channels`` (with ``folded`` of
    R places, each with S x ``channels`` numbers; these of so many ``rows`` side by side), filled up with zeros to
    multiples of ``tile_k``."""
    k, c, r, s = weight.shape
    padded = np.zeros((k, -(-r // rows), rows, s, channels), weight.dtype)
    padded.reshape(k, -1, s, channels)[:, :r, :, :c] = weight.transpose(0, 2, 3, 1)
    places = padded.swapaxes(2, 3).reshape(k, -1, s * rows * channels) if folded else padded.reshape(k, r * s, channels)
    made = np.zeros((*places.shape[:2], -(-places.shape[2] // tile_k) * tile_k), weight.dtype)
    made[..., : places.shape[2]] = places
    return made.reshape(k, -1)


def deep(weight: Array, channels: int, rows: int, across: int) -> Array:
    """The same where ``rows`` x ``across`` pixels of x are one: rows of places, each with ``channels`` of each pixel,
    columns first."""
    k, c, r, s = weight.shape
    places = -(-r // rows), -(-s // across)
    padded = np.zeros((k, places[0], rows, places[1], across, channels), weight.dtype)
    all_of_them = padded.reshape(k, places[0] * rows, places[1] * across, channels)
    all_of_them[:, :r, :s, :c] = weight.transpose(0, 2, 3, 1)
    return np.ascontiguousarray(padded.transpose(0, 1, 3, 4, 2, 5)).reshape(k, -1)


def paired(rows: Array) -> Array:
    """For kernels in which a lane has the sums of rows n and n + 8 of 16: these become neighbours in y. Filled up with
    rows of zeros."""
    filled = np.pad(rows, ((0, -len(rows) % 16), (0, 0)))
    return np.ascontiguousarray(filled.reshape(-1, 8, 2, rows.shape[1]).swapaxes(1, 2)).reshape(filled.shape)


def halves(weight: Array) -> tuple[Array, Array]:
    """Rows of float32 as two parts of FP16 each, and of each row the power of two that its numbers were divided by: the
    largest becomes 2^14 at least, so that what is 2^-17 of it still has 22 bits. Of 32 numbers of a row the upper parts
    come first, then the lower ones; of 16 numbers in the order in which a lane of the kernel has those of x."""
    sizes, whole = np.abs(weight), True
    largest = sizes.max(axis=1, initial=0)
    if not np.isfinite(largest).all():  # few networks have such weights, and the rest takes longer with them
        largest, whole = np.where(np.isfinite(weight), sizes, 0).max(axis=1, initial=0), False
    exponents = np.frexp(largest)[1] - 1  # of the largest number of a row
    up = TOP - exponents
    first = np.minimum(up, 127)  # float32 has no larger power
    scaled = weight * np.ldexp(np.float32(1), first)[:, None]
    if (up > first).any():
        scaled *= np.ldexp(np.float32(1), up - first)[:, None]
    with np.errstate(invalid="ignore"):  # infinities
        upper = scaled.astype(np.float16)
        lower = (scaled - upper if whole else np.where(np.isfinite(weight), scaled - upper, 0)).astype(np.float16)
    rows = np.empty((len(weight), weight.shape[1] // (2 * STEP), 2, 2, 2, 4, 2), np.float16)
    for n, part in enumerate((upper, lower)):  # two numbers of a lane, and after those of all lanes its next two
        rows[:, :, n] = part.reshape(*rows.shape[:2], 2, 4, 2, 2).swapaxes(3, 4)
    rows = rows.reshape(len(weight), -1)
    return rows, np.ldexp(np.float32(1), exponents)


def inverse(number: int) -> int:
    """What the kernels divide by a number with: 2^32 over it, whole."""
    return min((1 << 32) // number, (1 << 32) - 1)
