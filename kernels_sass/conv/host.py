"""The host's side of the kernels: sizes and strides, the assembled code, and how they are launched.

Five sources have kernels with the same parameters: "paper" (winograd.sass, sm_70 to sm_90: paper 004), "hopper"
(winograd_sm90.sass), and three that multiply as the definition says, and win where Winograd's blocks would be filled
with zeros: "direct" (direct.sass), for few channels in NHWC "nhwc" (nhwc.sass), for few filters "few" (few.sass).
``filter_transform`` turns the filters w into U, once; the main kernel, one of BLOCKS, is the convolution:
y = act(conv(x, w) + bias + residual). Where it has too few blocks for the GPU they share their channels, write partial
results, and ``add_splits`` makes y of them. ``turingas validate`` finds LAYOUTS, ``supports`` and ``launch`` here.
"""

from __future__ import annotations

import functools
import math
import re
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import loader
import turingas
from loader import cuda
from turingas.errors import AsmError, LaunchError
from turingas.isa.arch import NAMES

FOLDER = Path(__file__).parent / "methods"

#: Of x and y, outermost first; for y, C stands for its channels k and H, W for its rows and columns.
LAYOUTS = ("NCHW", "CHWN", "NHWC")
LAYOUT = LAYOUTS[0]

TILES, FILTERS, CHANNELS = 32, 64, 8  # of a block: 2 x 2 outputs, k, c of one step
NARROW = 32  # k of a block of the other kernel that "hopper" has
STRIP, THIN_STRIP = 8, 4  # k of a block of "direct", and with -D FILTERS=4
FEW = (3, 4, 8)  # filters that there is a "few" for
PIXELS = 256  # inputs of a block of it
THIN = (1, 2, 3, 4)  # channels that there is an "nhwc" for
NARROWER, ENOUGH = (32, 16, 8), 512  # columns of its blocks: the first that give as many blocks


class Block(NamedTuple):
    """Filters (of partial results) and tiles of a block, and rows and columns of y in a tile, at most (0: Shape.tile
    says it); how many blocks an SM has room for; what the kernel is called in STEP and JOB."""

    filters: int
    tiles: int
    rows: int
    columns: int
    an_sm: int
    times: str


MAIN = "winograd"  # of the paper's source and of Hopper's

#: By the main kernel's name.
BLOCKS = {
    MAIN: Block(FILTERS, TILES, 2, 2, 1, MAIN), "winograd32": Block(NARROW, TILES, 2, 2, 1, "winograd32"),
    "direct8": Block(STRIP, 128, 8, 1, 3, "direct8"), "direct4": Block(THIN_STRIP, 128, 8, 1, 4, "direct4"),
    **{f"nhwc{c}": Block(FILTERS, 1, 16, NARROWER[0], 3, "nhwc") for c in THIN},
    **{f"few{k}": Block(8 if k == 8 else 4, 1, 0, 0, 3 if k == 3 else 2, f"few{k}") for k in FEW},
}  # fmt: skip
MANY = 128  # channels whose products "direct" sums up: relative errors of 6e-7
TURNS = 4  # blocks of "direct" that an SM's room is filled with so often have several groups of filters each
LIMIT = 1 << 32  # bytes of x, y or U: the kernels count with 32 bits
CPU_ARCH = "sm_75"  # what the CPU device runs unless told otherwise
CPU_SMS = 132  # persistent blocks there: those of an H200
SPLITS = (1, 2, 4, 8, 16)  # blocks that can share the channels of a job
ADDERS = 256  # threads of a block of add_splits


def ceil_div(a: int, b: int) -> int:
    """How many b cover a."""
    return -(-a // b)


def check_layout(layout: str) -> str:
    """The layout itself. LaunchError for what is none."""
    if layout not in LAYOUTS:
        raise LaunchError(f"there is no layout {layout!r}", "there are: " + ", ".join(LAYOUTS))
    return layout


# ---- sizes -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Shape:
    """A 3 x 3 convolution, stride 1: n images of c channels, h rows, w columns; k filters; ``pad`` zeros on each side.
    ``splits``: over how many blocks the channels of one's filters and tiles are spread; if it is not 1, these write
    partial results. ``kernel``: the main one (``BLOCKS``).

    LaunchError for sizes that give no output, or that the kernels cannot count.
    """

    n: int
    c: int
    h: int
    w: int
    k: int
    pad: int = 1
    layout: str = LAYOUT
    splits: int = 1
    kernel: str = MAIN

    def __post_init__(self) -> None:
        check_layout(self.layout)
        if self.pad not in (0, 1):
            raise LaunchError(f"a padding of {self.pad!r}; it is 0 or 1")
        if empty := [name for name in "nchwk" if getattr(self, name) < 1]:
            raise LaunchError(f"{empty[0]} is {getattr(self, empty[0])}; every size is at least 1")
        if self.p < 1 or self.q < 1:
            raise LaunchError(
                f"a filter of 3 x 3 is larger than an image of {self.h} x {self.w} with a padding of {self.pad}"
            )
        if self.kernel not in BLOCKS:
            raise LaunchError(f"there is no main kernel {self.kernel!r}", "there are: " + ", ".join(BLOCKS))
        if self.kernel in THINS.threads and (self.layout, self.kernel) != ("NHWC", f"nhwc{self.c}"):
            able = f"{self.kernel[-1]} channels in NHWC"
            raise LaunchError(f"the kernel {self.kernel!r} is for {able}, not for {self.c} in {self.layout}")
        if self.kernel in FEWS.threads and self.k > int(self.kernel[-1]):
            raise LaunchError(f"the kernel {self.kernel!r} is for at most {self.kernel[-1]} filters, not for {self.k}")
        if not hasattr(self.splits, "__index__") or self.splits not in SPLITS or self.steps % self.splits:
            able = ", ".join(str(one) for one in SPLITS if self.steps % one == 0)
            raise LaunchError(f"{self.c} channels, {self.steps} times 8, cannot be split into {self.splits!r}",
                              f"into: {able}")  # fmt: skip

    @classmethod
    def of(cls, problem: Any, layout: str, kernel: str = MAIN) -> Shape:
        """That of a ``loader.reference.problem.Problem``."""
        p = problem
        return cls(p.n, p.c, p.h, p.w, p.k, p.padding, layout, kernel=kernel)

    @property
    def p(self) -> int:
        """Rows of y."""
        return self.h + 2 * self.pad - 2

    @property
    def q(self) -> int:
        """Columns of y."""
        return self.w + 2 * self.pad - 2

    @property
    def ni(self) -> int:
        """Images whose tiles stand side by side in a block. CHWN: 32, or as near as leaves few places empty."""
        together = self.layout == "CHWN" and self.block.tiles > 1
        return ceil_div(self.n, ceil_div(self.n, TILES)) if together else 1

    @property
    def block(self) -> Block:
        """What a block is."""
        return BLOCKS[self.kernel]

    @property
    def direct(self) -> bool:
        """Whether the kernel multiplies as the definition says."""
        return without_winograd(self.kernel) is not None

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of tiles."""
        rows, columns = self.tile
        return ceil_div(self.p, rows), ceil_div(self.q, columns)

    @property
    def tile(self) -> tuple[int, int]:
        """Rows and columns of y in it. Blocks of "nhwc" are narrow where there are few; those of "few" cover y with as
        few as may be, of PIXELS inputs with those around."""
        rows, columns = self.block.rows, self.block.columns
        if self.kernel in FEWS.threads:
            return _fitting(self.p, self.q)
        if self.kernel in THINS.threads:
            others = self.n * ceil_div(self.p, rows) * ceil_div(self.k, self.block.filters)
            able = (width for width in NARROWER if others * ceil_div(self.q, width) >= ENOUGH)
            columns = next(able, NARROWER[-1])
        return rows, columns

    @property
    def tiles(self) -> int:
        """Tiles, with those of images n and beyond that fill up the last ``ni``."""
        return ceil_div(self.n, self.ni) * self.ni * math.prod(self.grid)

    @property
    def steps(self) -> int:
        """Of 8 channels."""
        return ceil_div(self.c, CHANNELS)

    @property
    def blocks(self) -> tuple[int, int]:
        """Blocks along tiles, and along k with those that share channels."""
        return ceil_div(self.tiles, self.block.tiles), ceil_div(self.k, self.block.filters) * self.splits

    @property
    def x_shape(self) -> tuple[int, ...]:
        """In the layout."""
        return self._shape(self.n, self.c, self.h, self.w)

    @property
    def y_shape(self) -> tuple[int, ...]:
        """In the layout."""
        return self._shape(self.n, self.k, self.p, self.q)

    @property
    def written(self) -> Shape:
        """What ``winograd`` writes: y, or the partial results, which are another's y: of a block's filters for each
        block along k, in the same layout."""
        if self.splits == 1:
            return self
        return replace(self, k=self.blocks[1] * self.block.filters, splits=1, kernel=MAIN)

    @property
    def floats(self) -> int:
        """Elements of the partial results; 0 if there are none."""
        return 0 if self.splits == 1 else math.prod(self.written.y_shape)

    @property
    def x_strides(self) -> tuple[int, ...]:
        """Of n, c, h, w, in elements."""
        return self._strides(self.x_shape)

    @property
    def y_strides(self) -> tuple[int, ...]:
        """Of n, k, p, q, in elements."""
        return self._strides(self.y_shape)

    @property
    def numbers(self) -> tuple[int, ...]:
        """The parameters of the main kernel between the pointers and relu."""
        written = self.written
        sizes = self.n, self.c, self.h, self.w, written.k, self.p, self.q, self.pad
        ni = self.ni if self.block.tiles > 1 else self.tile[1]
        return self.tiles, *sizes, *self.grid, ni, *self.x_strides, *written.y_strides

    def parts(self) -> Iterator[tuple[slice, Shape]]:
        """What single launches can do, and of which images: itself if x, y and partial results are below 4 GiB, and
        what is beyond x too: a column, up to which "direct" counts, and in NHWC a row, where "nhwc" begins."""
        k = max(self.k, self.written.k)
        of_x, of_y = 4 * self.c * self.h * self.w, 4 * k * self.p * self.q  # bytes of an image
        beyond = 4 * (self.x_strides[3] + (self.x_strides[2] if self.layout == "NHWC" else 0))
        most = min((LIMIT - 1 - beyond) // of_x, (LIMIT - 1) // of_y)
        if self.n <= most:
            yield slice(0, self.n), self
            return
        if self.layout == "CHWN" or not most:
            what = ("x or y" if self.splits == 1 else "x, y or partial results") if most else "an image"
            raise LaunchError(f"{what} of 4 GiB or more: {self.layout} = {self.x_shape} -> {self.y_shape}",
                              "NCHW and NHWC may have many images, of less than 4 GiB each")  # fmt: skip
        most = ceil_div(self.n, ceil_div(self.n, most))  # parts of one size
        for first in range(0, self.n, most):
            count = min(most, self.n - first)
            yield slice(first, first + count), replace(self, n=count)

    def _shape(self, *sizes: int) -> tuple[int, ...]:
        return tuple(sizes["NCHW".index(letter)] for letter in self.layout)

    def _strides(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        steps, step = {}, 1
        for letter, size in zip(reversed(self.layout), reversed(shape)):
            steps[letter], step = step, step * size
        return tuple(steps[letter] for letter in "NCHW")


@functools.lru_cache(1024)
def _fitting(p: int, q: int) -> tuple[int, int]:
    """Rows and columns of outputs whose inputs, two more each way, are at most PIXELS: few blocks, wide ones."""
    widths = range(min(q, PIXELS // 3 - 2), 0, -1)
    able = [(PIXELS // (width + 2) - 2, width) for width in widths]
    return min(able, key=lambda tile: ceil_div(p, tile[0]) * ceil_div(q, tile[1]))


def shape_of(x_shape: tuple[int, ...], k: int, pad: int, layout: str) -> Shape:
    """The Shape that x with these four sizes, in the layout, asks for."""
    sizes = dict(zip(layout, x_shape))
    return Shape(sizes["N"], sizes["C"], sizes["H"], sizes["W"], k, pad, layout)


def filter_floats(c: int, k: int) -> int:
    """Elements of U: 16 for each filter, c filled up to 8 and k to 64. Without Winograd's method: fewer."""
    floats = 16 * ceil_div(c, CHANNELS) * CHANNELS * ceil_div(k, FILTERS) * FILTERS
    if 4 * floats >= LIMIT:
        raise LaunchError(f"{k} filters of {c} channels take {4 * floats} bytes; the kernels count to 4 GiB")
    return floats


# ---- code --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Source:
    """A file with the kernels. ``threads`` of a block of the main one, by its name, and its dynamic ``shared``
    memory (bytes, 0 if it is not there); if it is ``persistent``, there is at most one block an SM, and each takes tile
    after tile; if it is ``early``, its kernels may begin before the one before them has ended: they wait for that
    themselves."""

    name: str
    file: str
    archs: tuple[str, ...]
    threads: Mapping[str, int] = field(hash=False)
    shared: Mapping[str, int] = field(hash=False)
    persistent: bool
    early: bool

    @property
    def path(self) -> Path:
        """Where it lies."""
        return FOLDER / self.file

    @property
    def files(self) -> list[Path]:
        """The file and those that it includes."""
        return [self.path, *(FOLDER / name for name in re.findall(r'^\.include "(.+)"', self.path.read_text(), re.M))]

    @property
    def exists(self) -> bool:
        """Whether it is installed."""
        return self.path.is_file()


PAPER = Source("paper", "winograd.sass", NAMES, {MAIN: 256}, {}, False, False)
_BOTH = {MAIN: 512, "winograd32": 640}
_ALL = dict.fromkeys(_BOTH, 231696)  # SHARED of the file, of blocks of 64 filters; those of 32 have less
HOPPER = Source("hopper", "winograd_sm90.sass", ("sm_90", "sm_90a"), _BOTH, _ALL, True, True)
AMPERE = NAMES[NAMES.index("sm_80") :]  # and later
DIRECT = Source("direct", "direct.sass", AMPERE, {"direct8": 128, "direct4": 128}, {}, False, True)
THINS = Source("nhwc", "nhwc.sass", AMPERE, {f"nhwc{c}": 128 for c in THIN}, {}, False, True)
#: SHARED of the file: of each column of products, 9 of a filter, a float for each input, and 16 bytes.
_RESULTS = {f"few{k}": 8 * ceil_div(9 * k, 8) * 4 * (PIXELS + 4) for k in FEW}
FEWS = Source("few", "few.sass", AMPERE, dict.fromkeys(_RESULTS, 128), _RESULTS, False, True)
SOURCES = {one.name: one for one in (PAPER, HOPPER, DIRECT, THINS, FEWS)}


def without_winograd(kernel: str) -> Source | None:
    """The source of a main kernel that multiplies as the definition says."""
    return next((source for source in (DIRECT, THINS, FEWS) if kernel in source.threads), None)


def choose(arch: str, source: str | None = None) -> Source:
    """The source of a name; None: the best of "paper" and "hopper" that there is for the architecture. LaunchError."""
    if arch not in NAMES:
        raise LaunchError(f"there is no architecture {arch!r}", "there are: " + ", ".join(NAMES))
    if source is None:
        return HOPPER if arch in HOPPER.archs and HOPPER.exists else PAPER
    if not isinstance(source, str) or source not in SOURCES:
        raise LaunchError(f"there is no kernel {source!r}", "there are: " + ", ".join(SOURCES))
    found = SOURCES[source]
    if arch not in found.archs:
        raise LaunchError(f"the kernel {source!r} is for {', '.join(found.archs)}, not for {arch}")
    if not found.exists:
        raise LaunchError(f"the kernel {source!r} is not there: {found.path.name}")
    return found


def arch_of(gpu: cuda.Device) -> str:
    """What is assembled for a GPU: its own architecture, or an older one of the same major version. LaunchError."""
    able = [name for name in NAMES if not name.endswith("a") and gpu.runs(name)]
    if not able:
        raise LaunchError(f"{gpu} ({gpu.name}) is {gpu.arch}; there are kernels for {', '.join(NAMES)}")
    return able[-1]


class Kernels:
    """One source assembled for an architecture, with a schedule; ``of`` keeps what it made for the whole process.
    ``main``: the main kernel's name."""

    _made: dict[Any, Kernels] = {}
    _lock = threading.RLock()

    def __init__(self, source: Source, arch: str, cubin: turingas.Cubin, schedule: Mapping[str, object]) -> None:
        self.source, self.arch, self.cubin, self.schedule = source, arch, cubin, schedule
        self.main = main_of(cubin)
        self._modules: dict[Any, loader.Module] = {}

    @classmethod
    def of(cls, arch: str, source: str | None = None, schedule: Mapping[str, object] | None = None) -> Kernels:
        """``schedule``: parameters of the source, such as {"YIELD": "natural"}. LaunchError for one that it does not
        have, or a value that it does not take."""
        chosen, given = choose(arch, source), dict(schedule or {})
        key = chosen.name, arch, tuple(sorted((str(name), repr(value)) for name, value in given.items()))
        with cls._lock:
            if key not in cls._made:
                cls._made[key] = cls(chosen, arch, _assemble(chosen, arch, given), given)
            return cls._made[key]

    def every(self, shape: Shape | None = None) -> dict[str, Kernels]:
        """By the main kernel's name: this one, and the other that the source has, unless the schedule says FILTERS.
        MATH=ffma has but one. Beside Hopper's without a schedule, what may win for a ``shape`` that leaves blocks of
        Winograd's, which fill up c to 8 and k to 32, half empty."""
        found = {self.main: self}
        given = {**self.schedule, "FILTERS": NARROW}
        alone = "FILTERS" in self.schedule or self.schedule.get("MATH") == "ffma" or self.main not in HOPPER.threads
        others = [(self.source, given)] if not alone and takes(self.source, given) else []
        if shape is not None and self.source.name == "hopper" and not self.schedule:
            others += by_definition(shape)
        for source, schedule in others:
            other = Kernels.of(self.arch, source.name, schedule)
            found[other.main] = other
        return found

    def load(self, device: str) -> loader.Module:
        """The module on "cpu" or "cuda:0" ..., loaded once and shared by all who ask. LaunchError."""
        place = device if device == "cpu" else cuda.device_named(device)
        with self._lock:
            if place not in self._modules:
                self._modules[place] = loader.load(self.cubin, device)
            return self._modules[place]


def _assemble(source: Source, arch: str, schedule: dict[str, object]) -> turingas.Cubin:
    text = source.path.read_text()
    known = parameters(text)
    if unknown := [str(name) for name in schedule if name not in known]:
        raise LaunchError(f"{source.file} has no parameter {unknown[0]!r}", "it has: " + ", ".join(known))
    try:
        return turingas.assemble(text, arch, schedule, include=[str(FOLDER)], filename=str(source.path))
    except AsmError as error:
        if not schedule:
            raise
        given = ", ".join(f"{name}={value}" for name, value in schedule.items())
        raise LaunchError(f"{source.file} cannot be assembled with {given}: {error.message}", error.hint) from error


def by_definition(shape: Shape) -> list[tuple[Source, dict[str, object]]]:
    """The sources without Winograd's method that may win for a shape, and their schedules. Threads of "direct" stand
    side by side along columns, or images, those of "nhwc" along filters, those of "few" along columns and channels: so
    they read and write neighbours."""
    some, few = shape.c < CHANNELS, shape.k <= max(FEW)
    able = {
        "NCHW": [DIRECT] * (some or few) + [FEWS] * (few and not some),
        "CHWN": [DIRECT] * (some or few),
        "NHWC": [THINS] * (shape.c in THIN) + [FEWS] * few,
    }
    return [(source, own_schedule(source, shape.c, shape.k)) for source in able[shape.layout]]


def own_schedule(source: Source, c: int, k: int) -> dict[str, object]:
    """What a source is assembled with for c channels and k filters, if nobody says otherwise. LaunchError."""
    if source is THINS:
        if c > max(THIN):
            raise LaunchError(f"the kernel {source.name!r} is for at most {max(THIN)} channels, not for {c}")
        return {"CHANNELS": c}
    if source is FEWS:
        if k > max(FEW):
            raise LaunchError(f"the kernel {source.name!r} is for at most {max(FEW)} filters, not for {k}")
        return {"FILTERS": min(one for one in FEW if one >= k)}
    return {"FILTERS": THIN_STRIP} if source is DIRECT and k <= THIN_STRIP else {}


def main_of(cubin: turingas.Cubin) -> str:
    """The main kernel's name."""
    (name,) = (one.name for one in cubin.kernels if one.name in BLOCKS)
    return name


def takes(source: Source, schedule: Mapping[str, object]) -> bool:
    """Whether a source has all parameters of a schedule."""
    return set(schedule) <= set(parameters(source.path.read_text()))


def parameters(text: str) -> list[str]:
    """The names of a source's parameters: its lines ``# -D NAME=value|value ...``, and ``choose("NAME", ...``."""
    found = re.findall(r'^#\s+-D\s+(\w+)=|\bchoose\("(\w+)"', text, re.M)
    return list(dict.fromkeys(one or other for one, other in found))


# ---- launches ----------------------------------------------------------------------------------------------------


@functools.cache
def _sms(gpu: cuda.Device) -> int:
    return gpu.attribute("MULTIPROCESSOR_COUNT")


def sms(device: str) -> int:
    """Multiprocessors of a device."""
    return CPU_SMS if device == "cpu" else _sms(cuda.device_named(device))


#: Times on an H200, in microseconds, by Block.times: a step of 8 channels, and a job beside its steps; of a second
#: launch, and of 2^20 elements of y that it sums up. They are what fits the times of `turingas bench shapes` best
#: ("model" in docs/results/shapes_sm90.json, for "nhwc" in shapes_sm90_nhwc.json), which shows how they choose.
STEP = {MAIN: 0.95, "winograd32": 0.65, "direct8": 2.68, "direct4": 1.7, "nhwc": 13.64,
        "few8": 0.5, "few4": 0.33, "few3": 0.31}  # fmt: skip
JOB = {MAIN: 2.27, "winograd32": 1.16, "direct8": 0.65, "direct4": 0.23, "nhwc": 0.25,
       "few8": 2.15, "few4": 0.94, "few3": 0.73}  # fmt: skip
LAUNCH, SUMS = 1.19, 2.53


def split(
    shape: Shape, device: str, kernels: tuple[str, ...] = (MAIN,), splits: tuple[int, ...] = SPLITS
) -> Shape:
    """The shape with those of ``kernels`` and ``splits`` that take the least time on a device, as far as steps tell; on
    the CPU device the first ones."""
    if device == "cpu":
        return replace(shape, kernel=kernels[0], splits=splits[0])
    return fastest(shape, sms(device), kernels, splits)


@functools.lru_cache(1024)
def fastest(
    shape: Shape, sms: int, kernels: tuple[str, ...] = (MAIN,), splits: tuple[int, ...] = SPLITS
) -> Shape:
    """What takes the least time on so many multiprocessors."""

    def time(one: Shape) -> float:
        turns, steps, seconds, sums = terms(one, sms)
        kind = one.block.times
        return steps * STEP[kind] + turns * JOB[kind] + seconds * LAUNCH + sums * SUMS

    able = [one for one in ways(shape, kernels, splits) if 4 * one.floats < LIMIT]
    return min(able or [replace(shape, kernel=kernels[0])], key=time)  # parts() has looked at this one


def terms(shape: Shape, sms: int) -> tuple[float, float, float, float]:
    """What a multiprocessor does one after another: jobs and steps, of narrow blocks parts; then second launches, and
    2^20 elements of y that these sum up. Blocks that do not fill an SM's room take as long as those that do."""
    turns = max(ceil_div(math.prod(shape.blocks), sms), shape.block.an_sm)
    steps: float = shape.steps
    if shape.kernel in DIRECT.threads or shape.kernel in THINS.threads:
        steps = shape.c / CHANNELS * math.prod(shape.tile) / (shape.block.rows * shape.block.columns)
    sums = math.prod(shape.y_shape) / (1 << 20) if shape.splits > 1 else 0.0
    return turns, turns * steps / shape.splits, float(shape.splits > 1), sums


def ways(shape: Shape, kernels: tuple[str, ...], splits: tuple[int, ...] = SPLITS) -> list[Shape]:
    """The shape with each of ``kernels`` and ``splits`` that there can be, or ought to: "direct" sums up one product
    after another, with errors that grow, and so has no more than MANY channels."""
    able = [replace(shape, splits=count, kernel=kernel) for kernel in kernels for count in splits
            if shape.steps % count == 0]  # fmt: skip
    return [one for one in able if one.kernel not in DIRECT.threads or one.c <= MANY * one.splits]


@dataclass(frozen=True)
class Launch:
    """A kernel's name, grid, threads and dynamic shared memory, and its parameters behind the pointers."""

    kernel: str
    grid: tuple[int, int, int]
    threads: int
    shared: int
    numbers: tuple[int, ...]


def launches(source: Source, shape: Shape, sms: int, relu: bool = False) -> tuple[Launch, ...]:
    """The convolution's kernels, of the source or of one ``by_definition``: the main one of x, U, y, bias, residual; or
    where the shape is split the main one of x, U, partial results, 0, 0, then ``add_splits`` or ``add_splits4`` of
    partial results, y, bias, residual. All are of the module that has the shape's kernel."""
    tiles, filters = shape.blocks
    source = without_winograd(shape.kernel) or source
    if source is DIRECT:
        room = sms * shape.block.an_sm * TURNS  # a block takes each ``filters``-th group
        filters = min(filters, shape.splits * ceil_div(room, tiles * shape.splits))
    grid = (min(sms, tiles * filters), 1, 1) if source.persistent else (tiles, filters, 1)
    fused = relu and shape.splits == 1
    numbers = *shape.numbers, int(fused), shape.steps // shape.splits, shape.splits
    main = Launch(shape.kernel, grid, source.threads[shape.kernel], source.shared.get(shape.kernel, 0), numbers)
    if shape.splits == 1:
        return (main,)
    count, inner = math.prod(shape.y_shape), shape.y_strides[1]
    width = 4 if shape.splits <= 4 and (inner if inner > 1 else shape.k) % 4 == 0 else 1  # elements of a thread
    numbers = count, shape.k, inner, shape.splits, int(relu)
    grid = ceil_div(count, ADDERS * width), 1, 1
    return main, Launch(f"add_splits{width if width > 1 else ''}", grid, ADDERS, 0, numbers)


def pointers(shape: Shape, x: Any, u: Any, y: Any, bias: Any, residual: Any, partial: Any) -> tuple[Any, ...]:
    """What each of the ``launches`` takes before its numbers."""
    if shape.splits == 1:
        return ((x, u, y, bias, residual),)
    return (x, u, partial, 0, 0), (partial, y, bias, residual)


def transform(module: Any, w: Any, u: Any, c: int, k: int, strides: tuple[int, ...] = (), **options: Any) -> Any:
    """Launch ``filter_transform``: w, with strides of k, c, r, s in elements (K, C, 3, 3 unless said), into u."""
    blocks = ceil_div(k, FILTERS), ceil_div(c, CHANNELS), 1
    numbers = strides or (9 * c, 9, 3, 1)
    return module.kernel("filter_transform").launch(blocks, (256, 1, 1), w, u, c, k, *numbers, **options)


def convolve(
    module: Any, source: Source, shape: Shape, x: Any, u: Any, y: Any, bias: Any = 0, residual: Any = 0,
    relu: bool = False, sms: int = CPU_SMS, partial: Any = 0, **options: Any,
) -> list[Any]:  # fmt: skip
    """Launch the convolution of a shape of one part; arrays as ``loader.Kernel.launch`` takes them, or 0. ``partial``:
    ``shape.floats`` elements. What the launches gave."""
    done = []
    for one, given in zip(launches(source, shape, sms, relu), pointers(shape, x, u, y, bias, residual, partial)):
        kernel, block = module.kernel(one.kernel), (one.threads, 1, 1)
        done.append(kernel.launch(one.grid, block, *given, *one.numbers, shared=one.shared, **options))
    return done


# ---- turingas validate -------------------------------------------------------------------------------------------


def supports(p: Any) -> str:
    """Why not, if not."""
    if (p.r, p.s) != (3, 3):
        return f"filters are 3 x 3, not {p.r} x {p.s}"
    if p.stride != 1:
        return f"the stride is 1, not {p.stride}"
    return "" if p.padding in (0, 1) else f"the padding is 0 or 1, not {p.padding}"


def launch(run: Any, module: Any, p: Any, x: Any, w: Any, y: Any, layout: str = LAYOUT) -> None:
    """Filters and convolution of a ``loader.reference.problem.Problem``; x and y in the layout, w as K, C, R, S."""
    kernel, source = main_of(module.cubin), _source_of(module.cubin)
    shape = split(Shape.of(p, layout, kernel), run.device, (kernel,))
    u, partial = run.empty((filter_floats(p.c, p.k),)), run.empty((shape.floats,)) if shape.floats else 0
    transform(module, w, u, p.c, p.k)
    convolve(module, source, shape, x, u, y, sms=sms(run.device), partial=partial)


def _source_of(cubin: turingas.Cubin) -> Source:
    """Which source a cubin is of: the paper's kernel declares its shared memory, Hopper's is given it at launch."""
    name = main_of(cubin)
    (main,) = (one for one in cubin.kernels if one.name == name)
    if source := without_winograd(name):
        return source
    return PAPER if main.shared_bytes >= 32 << 10 else HOPPER
