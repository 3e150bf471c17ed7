"""A convolution layer's sizes, its arrays in their layouts, and what it should give, in float64.

The convolution is that of neural networks (a cross-correlation), no bias:

    y[n, k, i, j] = sum over c, a, b of x[n, c, i * stride + a - padding, j * stride + b - padding] * w[k, c, a, b]

where x is 0 outside. A layout is a word of the letters N, C, H, W, outermost first: CHWN has neighbouring images next
to each other. For y, C stands for its channels k, and H, W for its rows and columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

LAYOUTS = ("NCHW", "CHWN", "NHWC")
LIMIT = 1 << 31  # elements of an array: the kernels count with 32 bits
MOST = 1 << 28  # any size, stride or padding


@dataclass(frozen=True)
class Problem:
    """Sizes: n images of c channels, h rows and w columns; k filters of c channels, r rows and s columns.

    ``stride`` (at least 1) and ``padding`` (zeros on each side, at least 0) hold for rows and columns. Raises
    ValueError for sizes that give no output.
    """

    n: int
    c: int
    h: int
    w: int
    k: int
    r: int
    s: int
    stride: int = 1
    padding: int = 0

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            least = 0 if name == "padding" else 1
            if not isinstance(value, int) or not least <= value <= MOST:
                raise ValueError(f"{name} is {value!r}; it must be an integer from {least} to {MOST}")
        for what, outer, inner in (("rows", self.h, self.r), ("columns", self.w, self.s)):
            if inner > outer + 2 * self.padding:
                raise ValueError(
                    f"a filter of {inner} {what} is larger than an image of {outer} with a padding of {self.padding}"
                )
        arrays = {"the input": self.x_shape, "the filters": self.w_shape, "the output": self.y_shape}
        for what, shape in arrays.items():
            if (size := int(np.prod(shape, dtype=object))) >= LIMIT:
                raise ValueError(f"{what}, {shape}, has {size} elements; the most is {LIMIT - 1}")

    @property
    def p(self) -> int:
        """Rows of the output."""
        return (self.h + 2 * self.padding - self.r) // self.stride + 1

    @property
    def q(self) -> int:
        """Columns of the output."""
        return (self.w + 2 * self.padding - self.s) // self.stride + 1

    @property
    def x_shape(self) -> tuple[int, int, int, int]:
        """N, C, H, W."""
        return self.n, self.c, self.h, self.w

    @property
    def w_shape(self) -> tuple[int, int, int, int]:
        """K, C, R, S."""
        return self.k, self.c, self.r, self.s

    @property
    def y_shape(self) -> tuple[int, int, int, int]:
        """N, K, P, Q."""
        return self.n, self.k, self.p, self.q

    @property
    def flops(self) -> int:
        """Operations of the direct convolution: two (multiply, add) a tap."""
        return 2 * self.n * self.k * self.p * self.q * self.c * self.r * self.s


def check_layout(layout: str) -> None:
    """ValueError for what is no layout."""
    if layout not in LAYOUTS:
        raise ValueError(f"there is no layout {layout!r}; there are: " + ", ".join(LAYOUTS))


def arrange(array: Array, source: str, target: str) -> Array:
    """The array in another layout, C-contiguous: a copy, unless nothing changes."""
    return np.ascontiguousarray(array.transpose([source.index(letter) for letter in target]))


def rearrange_shape(shape: tuple[int, ...], source: str, target: str) -> tuple[int, ...]:
    """The shape of what ``arrange`` gives."""
    return tuple(shape[source.index(letter)] for letter in target)


def check(x: Any, w: Any, layout: str = "NCHW", stride: int = 1, padding: int | None = None) -> Problem:
    """The problem that these arrays pose. Raises ValueError for what is no such problem.

    ``x``: float32, in ``layout``; ``w``: float32, K, C, R, S. ``padding`` None is (r - 1) // 2 for square filters:
    with an odd r and stride 1, the output is as large as the image.
    """
    check_layout(layout)
    for name, array, letters in (("the input x", x, layout), ("the filters w", w, "KCRS")):
        if not isinstance(array, np.ndarray):
            raise ValueError(f"{name} is a {type(array).__name__}; it must be a numpy array")
        if array.dtype != np.float32:
            raise ValueError(f"{name} has the dtype {array.dtype}; it must be float32")
        if array.ndim != 4 or 0 in array.shape:
            wanted = ", ".join(letters)
            raise ValueError(f"{name} has the shape {array.shape}; it must have four sizes ({wanted}), none of them 0")
        if not (finite := np.isfinite(array)).all():
            index = tuple(int(i) for i in np.argwhere(~finite)[0])
            what = "NaN" if np.isnan(array[index]) else "infinite"
            raise ValueError(f"{name} is {what} at {index} ({np.count_nonzero(~finite)} such of {array.size})")
    n, c, h, width = rearrange_shape(x.shape, layout, "NCHW")
    k, channels, r, s = w.shape
    if c != channels:
        raise ValueError(f"the input has {c} channels ({layout} = {x.shape}) and the filters have {channels}")
    if padding is None:
        if r != s:
            raise ValueError(f"a filter of {r} x {s} is not square: say the padding")
        padding = (r - 1) // 2
    stride, padding = (int(value) if isinstance(value, np.integer) else value for value in (stride, padding))
    return Problem(n, c, h, width, k, r, s, stride, padding)


def truth(x: Array, w: Array, problem: Problem) -> Array:
    """The convolution in float64. ``x``: N, C, H, W; ``w``: K, C, R, S; the result: N, K, P, Q."""
    p = problem
    padded = np.zeros((p.c, p.n, p.h + 2 * p.padding, p.w + 2 * p.padding))
    padded[:, :, p.padding : p.padding + p.h, p.padding : p.padding + p.w] = x.transpose(1, 0, 2, 3)
    y = np.zeros((p.k, p.n * p.p * p.q))
    for a in range(p.r):
        rows = slice(a, a + (p.p - 1) * p.stride + 1, p.stride)
        for b in range(p.s):
            columns = slice(b, b + (p.q - 1) * p.stride + 1, p.stride)
            y += w[:, :, a, b].astype(np.float64) @ padded[:, :, rows, columns].reshape(p.c, -1)
    return np.ascontiguousarray(y.reshape(p.k, p.n, p.p, p.q).transpose(1, 0, 2, 3))


def relative_error(y: Array, exact: Array) -> float:
    """The relative L2 error: |y - exact| / |exact|, both as vectors."""
    scale = float(np.linalg.norm(exact))
    difference = float(np.linalg.norm(y.astype(np.float64) - exact))
    return difference / scale if scale else difference
