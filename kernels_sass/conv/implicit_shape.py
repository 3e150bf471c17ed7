"""Layers as HGMMA's kernels see them: sizes, what tensor copies take, and how long that is about."""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import loader
from kernels_sass.conv.methods import hgmma
from kernels_sass.conv.methods.hgmma import Precision
from kernels_sass.conv.shape import check_layout
from loader.reference.problem import Problem
from turingas.errors import LaunchError

Pair = tuple[int, int]
Sizes = tuple[int, ...]

UNIT = 16  # bytes: what copies take at least, and strides and addresses are multiples of
MOST_PLACES = 7  # rows or columns of a filter for hgmma_window.sass
STRIDES, REACH, PADDINGS = 8, 255, 127  # what a map of kind im2col can say: a stride; an offset; a corner
LIMIT = 1 << 32  # bytes from one image, row, ... to the next, and pixels of y: the kernels count with 32 bits
FOLD = 2  # so many times fewer stages make it worth to see the columns of a filter as channels
DEEP = 32, 64, 128, 256  # bytes of several pixels that are one
L2_BYTES = 256  # that the L2 fetches at once of x, where each is read in one place alone
#: Microseconds of an H200: 2^20 numbers that pack*.sass make, or that lanes store one by one in NHWC. The kernels of
#: ``cost`` took 1.03 times what that says, which leaves a launch out. (`turingas bench conv`, the 16 settings in fp32:
#: ours with kernel=hgmma in NCHW beside NHWC, and with kernel=hopper; `turingas bench shapes`.)
PACKED, ONE_BY_ONE, OVER_COST = 2.6, 3.9, 1.03


def pair(name: str, value: Any, least: int) -> Pair:
    """A number for rows and columns, or one for each. LaunchError."""
    values = tuple(value) if isinstance(value, (tuple, list)) else (value, value)
    try:
        found = tuple(-1 if isinstance(one, bool) else operator.index(one) for one in values)
    except TypeError:
        found = ()
    if len(found) != 2 or min(found) < least:
        what = f"a number from {least} on, or one for rows and one for columns"
        raise LaunchError(f"{name} is {value!r}; it must be {what}")
    return found[0], found[1]


def unreached(size: int, padding: int, dilation: int) -> str:
    """Why tensor copies do not reach all rows, or columns, of a filter of this size; ""."""
    far = (size - 1) * dilation
    if far <= REACH and max(padding, far - padding) <= PADDINGS:
        return ""
    return f"a filter of {size} with a dilation of {dilation} and a padding of {padding}"


@dataclass(frozen=True)
class Shape:
    """A convolution: n images of c channels, h rows, w columns; k filters of r x s. LaunchError for one that gives no
    output, or that the kernel cannot count."""

    n: int
    c: int
    h: int
    w: int
    k: int
    r: int
    s: int
    stride: Pair = (1, 1)
    padding: Pair = (0, 0)
    dilation: Pair = (1, 1)
    layout: str = "NCHW"

    @classmethod
    def of(cls, p: Problem, layout: str) -> Shape:
        """A problem's."""
        return cls(p.n, p.c, p.h, p.w, p.k, p.r, p.s, (p.stride, p.stride), (p.padding, p.padding), layout=layout)

    def __post_init__(self) -> None:
        check_layout(self.layout)
        if empty := [name for name in "nchwkrs" if getattr(self, name) < 1]:
            raise LaunchError(f"{empty[0]} is {getattr(self, empty[0])}; every size is at least 1")
        if self.p < 1 or self.q < 1:
            raise LaunchError(f"a filter of {self.r} x {self.s} is larger than an image of {self.h} x {self.w} with a "
                              f"padding of {self.padding[0]} x {self.padding[1]}")  # fmt: skip
        for size, reach, padding in zip((self.r, self.s), self.dilation, self.padding):
            if why := unreached(size, padding, reach):
                raise LaunchError(why, f"tensor copies reach {REACH} pixels far, {PADDINGS} beyond an image")
        if max(self.stride) > STRIDES:
            raise LaunchError(f"a stride of {max(self.stride)}", f"tensor copies have strides up to {STRIDES}")
        if self.n * self.p * self.q >= LIMIT - hgmma.MOST_M:
            raise LaunchError(f"y has {self.n * self.p * self.q} pixels; the kernel counts to 4 G")

    @property
    def p(self) -> int:
        """Rows of y."""
        return self._size(self.h, self.r, 0)

    @property
    def q(self) -> int:
        """Columns of y."""
        return self._size(self.w, self.s, 1)

    def check(self, item: int) -> None:
        """LaunchError for x or y with elements of ``item`` bytes that is too large, for any of the kernels."""
        self.strides(self.x_shape, item)
        self.strides(self.y_shape, item)
        hgmma.countable(self.n * self.p * self.q, self.k, hgmma.LEAST_M, hgmma.LEAST_N)

    def _size(self, size: int, of: int, axis: int) -> int:
        return (size + 2 * self.padding[axis] - self.dilation[axis] * (of - 1) - 1) // self.stride[axis] + 1

    @property
    def x_shape(self) -> Sizes:
        """In the layout."""
        return self._shape(self.n, self.c, self.h, self.w)

    @property
    def y_shape(self) -> Sizes:
        """In the layout."""
        return self._shape(self.n, self.k, self.p, self.q)

    def strides(self, shape: Sizes, item: int) -> Mapping[str, int]:
        """Of N, C, H, W in bytes, of an array in the layout. LaunchError for what is too large."""
        found, step = {}, item
        for letter, size in zip(reversed(self.layout), reversed(shape)):
            found[letter], step = step, step * size
        if max(found.values()) >= LIMIT:
            raise LaunchError(f"{self.layout} = {shape} has strides of 4 GiB or more")
        return found

    def _shape(self, *sizes: int) -> Sizes:
        return tuple(sizes["NCHW".index(letter)] for letter in self.layout)


@dataclass(frozen=True)
class Source:
    """What tensor copies take: images x rows x columns x channels, ``strides`` in bytes, with the ``filter`` that goes
    over it. ``packed``: channels, columns and columns of zeros in front, of the array that pack*.sass make of x;
    () if copies take x itself. ``folded``: all columns of a filter are channels here; and so are ``rows`` of it: as
    many rows of x are one here, zeros above and below included. ``across``: so are as many columns alone, for windows.
    ``row``: bytes of a pixel that a stage takes."""

    shape: Sizes
    strides: Sizes
    filter: Pair
    stride: Pair
    padding: Pair
    dilation: Pair
    packed: Sizes = ()
    folded: bool = False
    rows: int = 1
    across: int = 0
    row: int = hgmma.ROW

    @classmethod
    def of(cls, shape: Shape, precision: Precision, aligned: bool) -> Source:
        """For a layer; ``aligned``: whether x begins where copies can."""
        n, c, h, w, s = shape.n, shape.c, shape.h, shape.w, shape.s
        item = precision.item
        rest = (shape.r, s), shape.stride, shape.padding, shape.dilation
        filled = -(-c * item // UNIT) * UNIT // item  # channels, so many that copies take them
        if s > 1 and shape.dilation[1] == 1:
            rows = 1 if precision.halves else shape.stride[0]  # fp32: zeros of filters would make NaN of infinities
            able = (cls._folded(shape, precision, count) for count in dict.fromkeys((1, rows)))
            best = min((one for one in able if one), key=lambda one: one.stages(precision))
            if best.stages(precision) * FOLD <= _stages(shape.r * s, filled, precision):
                return best
        step = filled * item
        strides = h * w * step, w * step, step, item
        if shape.layout == "NHWC" and filled == c and aligned:
            return cls((n, h, w, c), strides, *rest)
        return cls((n, h, w, filled), strides, *rest, (filled, w, 0))

    @classmethod
    def _folded(cls, shape: Shape, precision: Precision, rows: int) -> Source | None:
        """With the columns of a filter as channels; and with as many ``rows``, of the stride, if pack_few.sass can."""
        (_, across), item = shape.stride, precision.item
        count = next((one for one in range(shape.c, shape.c + UNIT) if one * rows * across * item % UNIT == 0
                      and (rows == 1 or hgmma.few(item, shape.c, one, rows))), 0)  # fmt: skip
        if not count or rows > 1 and shape.dilation[0] > 1:
            return None
        step, columns = count * rows * item, (shape.q - 1 + -(-shape.s // across)) * across
        places, height, (stride, padding, dilation) = shape.r, shape.h, (shape.stride, shape.padding, shape.dilation)
        if rows > 1:
            places, stride, padding, dilation = -(-shape.r // rows), (1, 1), (0, 0), (1, 1)
            height = shape.p - 1 + places
        strides = height * columns * step, columns * step, across * step, item
        return cls((shape.n, height, shape.q, shape.s * rows * count), strides, (places, 1), (stride[0], 1),
                   (padding[0], 0), (dilation[0], 1), (count, columns, shape.padding[1]), True, rows)  # fmt: skip

    @classmethod
    def deep(cls, shape: Shape, precision: Precision) -> Source | None:
        """For windows of few channels and a stride: so many rows and columns of x are one pixel, of 32 or 64 bytes or a
        multiple of 128."""
        (rows, across), item = shape.stride, precision.item
        count = next((one for one in range(shape.c, shape.c + UNIT) if hgmma.few(item, shape.c, one, rows)
                      and rows * across * one * item in DEEP), 0)  # fmt: skip
        if not count or max(rows, across) == 1 or max(shape.dilation) > 1:
            return None
        places, channels = (-(-shape.r // rows), -(-shape.s // across)), rows * across * count
        height, width, step = shape.p - 1 + places[0], shape.q - 1 + places[1], channels * item
        return cls((shape.n, height, width, channels), (height * width * step, width * step, step, item), places,
                   (1, 1), (0, 0), (1, 1), (count, width * across, shape.padding[1]), False, rows, across,
                   min(step, hgmma.ROW))  # fmt: skip

    def tile_k(self, precision: Precision) -> int:
        """Channels of a stage."""
        return self.row // precision.item

    def channels(self, precision: Precision) -> int:
        """In multiples of those of a stage."""
        return -(-self.shape[3] // self.tile_k(precision)) * self.tile_k(precision)

    def work(self, shape: Shape, precision: Precision) -> hgmma.Work:
        """What the kernel has to do."""
        pixels, x = shape.n * shape.p * shape.q, shape.n * shape.h * shape.w * shape.c
        return hgmma.Work(pixels, shape.k, self.stages(precision), precision.item * (x + pixels * shape.k))

    def stages(self, precision: Precision) -> int:
        """For a tile."""
        return self.filter[0] * self.filter[1] * self.channels(precision) // self.tile_k(precision)

    def windows(self, shape: Shape) -> hgmma.Windows | None:
        """How windows see it; None if they cannot: strides, dilations, a filter of one place."""
        (r, s), (down, across), steps = self.filter, self.padding, (*self.stride, *self.dilation)
        if max(steps) > 1 or r * s == 1 or down >= r or across >= s or max(r, s) > MOST_PLACES:
            return None
        rows, columns = self.shape[1] + down, self.shape[2] + across
        pixels = ((shape.n - 1) * rows + shape.p - 1) * columns + shape.q
        made = hgmma.Windows(columns, rows, pixels, (r - 1) * columns + s - 1, self.row)
        return made if made.seen(hgmma.LEAST_M) <= hgmma.MOST_SEEN and pixels < LIMIT - hgmma.MOST_M else None

    def map(self, array: Any, precision: Precision, kernel: hgmma.Kernel) -> Any:
        """The tensor map of the array that has it, for a kernel."""
        if isinstance(kernel, hgmma.Windowed):
            lower = [-one for one in self.padding]
            return loader.tensor_map(array, channels=self.tile_k(precision), pixels=kernel.window, lower=lower,
                                     upper=(0, 0), swizzle=self.row, dtype=precision.copied)  # fmt: skip
        corners = zip(self.filter, self.padding, self.dilation)
        upper = [padding - (size - 1) * reach for size, padding, reach in corners]
        return loader.tensor_map(
            array, channels=precision.tile_k, pixels=kernel.tile_m, lower=[-one for one in self.padding], upper=upper,
            steps=(1, *self.stride, 1), swizzle=hgmma.ROW, dtype=precision.copied,
            l2=L2_BYTES if self.filter == (1, 1) else 0,
        )  # fmt: skip


def microseconds(shape: Shape, room: hgmma.Room) -> float:
    """What a layer in fp32 takes, about, by the kernels here."""
    precision = hgmma.PRECISIONS["fp32"]
    source = Source.of(shape, precision, True)
    work = source.work(shape, precision)
    copied = shape.layout == "NHWC" and shape.k * precision.item % UNIT == 0
    found = work.time(*work.best(precision, room), room)
    if source.packed:
        found += PACKED * source.rows * math.prod((*source.shape[:2], *source.packed[:2])) / (1 << 20)
    if not copied and shape.layout == "NHWC":
        found += ONE_BY_ONE * work.pixels * work.filters / (1 << 20)
    return found


def _stages(places: int, channels: int, precision: Precision) -> int:
    return places * -(-channels // precision.tile_k)
