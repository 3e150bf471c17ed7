"""Sizes and strides of a convolution, and what blocks make of it."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from kernels_sass.conv.method import CHANNELS, Kernel, Main, Method, ceil_div, usual
from turingas.errors import LaunchError

#: Of x and y, outermost first; for y, C stands for its channels k and H, W for its rows and columns.
LAYOUTS = ("NCHW", "CHWN", "NHWC")
LAYOUT = LAYOUTS[0]

TOGETHER = 32  # images whose tiles may stand side by side in CHWN
PADDED = 64  # filters that U is filled up to
LIMIT = 1 << 32  # bytes of x, y or U: the kernels count with 32 bits
SPLITS = (1, 2, 4, 8, 16)  # blocks that can share the channels of a job


def check_layout(layout: str) -> str:
    """The layout itself. LaunchError for what is none."""
    if layout not in LAYOUTS:
        raise LaunchError(f"there is no layout {layout!r}", "there are: " + ", ".join(LAYOUTS))
    return layout


@dataclass(frozen=True)
class Shape:
    """A 3 x 3 convolution, stride 1: n images of c channels, h rows, w columns; k filters; ``pad`` zeros on each side.
    ``splits``: over how many blocks the channels of one's filters and tiles are spread; if it is not 1, these write
    partial results. ``kernel``: the main one.

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
    kernel: Kernel = field(default_factory=usual)

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
        if not hasattr(self.splits, "__index__") or self.splits not in SPLITS or self.steps % self.splits:
            raise LaunchError(f"{self.c} channels, {self.steps} times 8, cannot be split into {self.splits!r}",
                              "into: " + ", ".join(map(str, self._able())))  # fmt: skip
        if why := self.method.able(self):
            raise LaunchError(f"the kernel {self.kernel.name!r} {why}")

    @classmethod
    def of(cls, problem: Any, layout: str, kernel: Kernel | None = None) -> Shape:
        """That of a ``loader.reference.problem.Problem``."""
        p = problem
        return cls(p.n, p.c, p.h, p.w, p.k, p.padding, layout, kernel=kernel or usual())

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
        return ceil_div(self.n, ceil_div(self.n, TOGETHER)) if together else 1

    @property
    def method(self) -> Method:
        """That of the kernel."""
        return self.kernel.method

    @property
    def block(self) -> Main:
        """What a block is."""
        return self.kernel.block

    @property
    def sizes(self) -> Shape:
        """The same whatever computes it: undivided, and with the usual kernel."""
        return replace(self, splits=1, kernel=usual())

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of tiles."""
        rows, columns = self.tile
        return ceil_div(self.p, rows), ceil_div(self.q, columns)

    @property
    def tile(self) -> tuple[int, int]:
        """Rows and columns of y in it."""
        return self.method.tile(self)

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
        """What the main kernel writes: y, or the partial results, which are another's y: of a block's filters for each
        block along k, in the same layout."""
        if self.splits == 1 or self.method.clusters > 1:
            return self
        return replace(self.sizes, k=self.blocks[1] * self.block.filters)

    @property
    def floats(self) -> int:
        """Elements of the partial results; 0 if there are none."""
        return 0 if self.written is self else math.prod(self.written.y_shape)

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
        """The parameters of the main kernel between the pointers and relu. A block of one tile has the columns of that
        in the place of ``ni``."""
        written = self.written
        sizes = self.n, self.c, self.h, self.w, written.k, self.p, self.q, self.pad
        ni = self.ni if self.block.tiles > 1 else self.tile[1]
        return self.tiles, *sizes, *self.grid, ni, *self.x_strides, *written.y_strides

    def parts(self) -> Iterator[tuple[slice, Shape]]:
        """What single launches can do, and of which images: itself if x, y and partial results are below 4 GiB, and
        what is beyond x too, from which kernels count: a column, and in NHWC a row."""
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

    def _able(self) -> list[int]:
        """What the kernel can split the channels into. LaunchError if it cannot do the sizes at all."""
        replace(self, splits=1)
        found = []
        for one in SPLITS:
            if self.steps % one == 0:
                with contextlib.suppress(LaunchError):
                    found.append(replace(self, splits=one).splits)
        return found

    def _shape(self, *sizes: int) -> tuple[int, ...]:
        return tuple(sizes["NCHW".index(letter)] for letter in self.layout)

    def _strides(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        steps, step = {}, 1
        for letter, size in zip(reversed(self.layout), reversed(shape)):
            steps[letter], step = step, step * size
        return tuple(steps[letter] for letter in "NCHW")


def shape_of(x_shape: tuple[int, ...], k: int, pad: int, layout: str) -> Shape:
    """The Shape that x with these four sizes, in the layout, asks for."""
    sizes = dict(zip(layout, x_shape))
    return Shape(sizes["N"], sizes["C"], sizes["H"], sizes["W"], k, pad, layout)


def filter_floats(c: int, k: int) -> int:
    """Elements of U: 16 for each filter, c filled up to 8 and k to 64. Direct convolution needs fewer."""
    floats = 16 * ceil_div(c, CHANNELS) * CHANNELS * ceil_div(k, PADDED) * PADDED
    if 4 * floats >= LIMIT:
        raise LaunchError(f"{k} filters of {c} channels take {4 * floats} bytes; the kernels count to 4 GiB")
    return floats


def supports(p: Any) -> str:
    """Why a ``loader.reference.problem.Problem`` is none for these kernels, "" if it is one."""
    if (p.r, p.s) != (3, 3):
        return f"filters are 3 x 3, not {p.r} x {p.s}"
    if p.stride != 1:
        return f"the stride is 1, not {p.stride}"
    return "" if p.padding in (0, 1) else f"the padding is 0 or 1, not {p.padding}"
