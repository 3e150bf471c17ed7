"""Runs a Winograd file of kernels_sass on the CPU device, and the same convolution in float64.

What all files take is one interface: U of filter_transform has 16 Cpad Kpad floats (direct.sass: 9 Cpad, and K filled
up to the filters of a block; nhwc.sass: 9 C Kpad; few.sass: 16 Cpad for eight columns; small.sass: 9, or 3, times 16
numbers for each filter and 16 channels, and one for each filter), of the main kernel every tensor has strides in
elements. Here nothing is known of host.py, so that tests of the kernels do not depend on it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from turingas.cubin.cubin import Cubin
from turingas.emulate import Device, Report

LAYOUTS = ("NCHW", "CHWN", "NHWC")

#: Main kernels: filters and tiles of a block, rows and columns of the output in a tile.
BLOCKS = {
    "winograd": (64, 32, 2, 2), "winograd32": (32, 32, 2, 2), "direct8": (8, 128, 8, 1), "direct4": (4, 128, 8, 1),
    **{f"nhwc{channels}": (64, 1, 16, 32) for channels in (1, 2, 3, 4)},  # or 16, 8 columns: ``columns``
    **{f"small64x{pixels}": (64, 1, 0, 0) for pixels in (96, 88, 80, 64, 128)}, "fold160x64": (160, 1, 0, 0),
    **{f"small32x{pixels}": (32, 1, 0, 0) for pixels in (64, 128)},
    "few8": (8, 1, 14, 14), "few4": (4, 1, 14, 14), "few3": (4, 1, 14, 14),  # or other columns, and rows for 256 inputs
}  # fmt: skip


@dataclass(frozen=True)
class Shape:
    """A 3x3 convolution of x[n,c,h,w] with w[k,c,3,3]."""

    n: int
    c: int
    h: int
    w: int
    k: int
    pad: int = 1
    layout: str = "NCHW"
    filter_layout: str = "KCRS"
    ni: int = 1
    bias: bool = False
    residual: bool = False
    relu: bool = False
    splits: int = 1

    @property
    def p(self) -> int:
        return self.h + 2 * self.pad - 2

    @property
    def q(self) -> int:
        return self.w + 2 * self.pad - 2

    def tiles(self, rows: int, columns: int) -> int:
        return -(-self.n // self.ni) * -(-self.p // rows) * -(-self.q // columns) * self.ni


def stored(array: np.ndarray, names: str, layout: str) -> tuple[np.ndarray, list[int]]:
    """``array``, whose axes are ``names``, in the order ``layout``; and the strides of its axes there, in elements."""
    there = np.ascontiguousarray(array.transpose([names.index(letter) for letter in layout]))
    return there, [there.strides[layout.index(letter)] // 4 for letter in names]


def exact(x: np.ndarray, w: np.ndarray, s: Shape, bias: np.ndarray | None, residual: np.ndarray | None) -> np.ndarray:
    """The convolution in float64, n k p q."""
    padded = np.pad(x.astype("f8"), [(0, 0), (0, 0), (s.pad, s.pad), (s.pad, s.pad)])
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    y = np.einsum("nchwrs,kcrs->nkhw", windows, w.astype("f8"), optimize=True)
    if bias is not None:
        y += bias[:, None, None]
    if residual is not None:
        y += residual
    return np.maximum(y, 0) if s.relu else y


def behind(array: np.ndarray, words: int) -> np.ndarray:
    """Memory that holds ``array`` from element ``words`` on, and NaN before it."""
    return np.concatenate([np.full(words, np.nan, np.float32), array.ravel()])


def convolve(
    cubin: Cubin, s: Shape, seed: int = 0, around: float | None = None, shift: int = 0,
    block: int = 256, shared: int = 0, sms: int = 0, groups: int = 0, columns: int = 0, **options: Any,
) -> tuple[float, list[Report]]:  # fmt: skip
    """Random data through both kernels. The relative L2 error against float64, and the reports of the launches. What
    may not be written, or must be, shows: y and U hold NaN before, and inputs are compared with what they were. With
    ``around``, x is part of larger images that hold this number elsewhere; x and y begin ``shift`` elements behind an
    address that is aligned. ``block``, ``shared``: threads and dynamic shared memory of a block of `winograd`; with
    ``sms`` there is at most one for each of so many SMs; with ``groups`` there are blocks for so many groups of
    filters, and each takes several. ``columns``: of a block of nhwc or few."""
    random = np.random.default_rng(seed)
    x = random.standard_normal((s.n, s.c, s.h, s.w), np.float32)
    w = random.standard_normal((s.k, s.c, 3, 3), np.float32)
    bias = random.standard_normal(s.k, np.float32) if s.bias else None
    residual = random.standard_normal((s.n, s.k, s.p, s.q), np.float32) if s.residual else None
    there_x, strides_x = stored(x, "NCHW", s.layout)
    if around is not None:
        image = np.full((s.n, s.c, s.h + 4, s.w + 4), around, np.float32)
        image[:, :, 2:-2, 2:-2] = x
        there_x, strides_x = stored(image, "NCHW", s.layout)
    inside = 4 * 2 * (strides_x[2] + strides_x[3]) if around is not None else 0
    there_w, strides_w = stored(w, "KCRS", s.filter_layout)
    there_y, strides_y = stored(np.full((s.n, s.k, s.p, s.q), np.nan, np.float32), "NCHW", s.layout)
    memory_x, memory_y = behind(there_x, shift), behind(there_y, shift)
    there_r = stored(residual, "NCHW", s.layout)[0] if residual is not None else None
    c_pad, k_pad = -(-s.c // 8) * 8, -(-s.k // 64) * 64
    (main,) = (kernel.name for kernel in cubin.kernels if kernel.name in BLOCKS)
    filters, a_block, rows, width = BLOCKS[main]
    columns = columns or width
    few = main.startswith("few")
    rows = 256 // (columns + 2) - 2 if few else rows
    small = main.startswith(("small", "fold"))  # its clusters have no partial results
    if small:
        columns = columns or min(s.q, 28)
        pixels = int(main.partition("x")[2])
        rows = pixels // columns if main.startswith("fold") else (pixels + 2 * (filters == 64)) // (columns + 2)
    tiles, k_blocks = s.tiles(rows, columns), -(-s.k // filters)
    u = np.full(16 * c_pad * k_pad, np.nan, np.float32)
    before = [array.copy() for array in (memory_x, there_w)]
    module = Device(cubin.arch).load(cubin)
    reports = [
        module.launch("filter_transform", (k_pad // 64, c_pad // 8), 256, [there_w, u, s.c, s.k, *strides_w], **options)
    ]
    used = 9 * (s.c if main.startswith("nhwc") else c_pad) * k_blocks * filters
    used = c_pad // 8 * 128 * -(-9 * int(main[-1]) // 8) if few else used
    used = u.size if main.startswith("winograd") else used
    used = k_pad * (1 + 16 * (3 if main.startswith("fold") else 9 * -(-s.c // 16))) if small else used
    assert np.isfinite(u[:used]).all() and np.isnan(u[used:]).all()
    x_at, y_at = (module.device.memory.add(m, name) + 4 * shift for m, name in ((memory_x, "x"), (memory_y, "y")))
    last = [bias if s.bias else 0, there_r if s.residual else 0]
    if s.splits > 1 and not small:  # partial results are a y of more filters
        k_partial = s.splits * k_blocks * filters
        partial, strides = stored(np.full((s.n, k_partial, s.p, s.q), np.nan, np.float32), "NCHW", s.layout)
        args = [x_at + inside, u, partial, 0, 0]
    else:
        args, strides = [x_at + inside, u, y_at, *last], strides_y
    args += [tiles, s.n, s.c, s.h, s.w, s.k if s.splits == 1 or small else k_partial, s.p, s.q, s.pad]
    side = columns if main.startswith(("nhwc", "few")) or small else s.ni
    args += [-(-s.p // rows), -(-s.q // columns), side, *strides_x, *strides]
    args += [int(s.relu and (s.splits == 1 or small)), c_pad // 8 // s.splits, s.splits]
    grid = -(-tiles // a_block), (groups or k_blocks) * s.splits
    if sms:
        grid = min(sms, grid[0] * grid[1]), 1
    more = {"cluster": (1, s.splits, 1)} if small and s.splits > 1 else {}
    reports.append(module.launch(main, grid, block, args, shared, **options, **more))
    if s.splits > 1 and not small:
        assert np.isfinite(partial).all()
        inner = strides_y[1]
        width = 4 if s.splits <= 4 and (inner if inner > 1 else s.k) % 4 == 0 else 1
        args = [partial, y_at, *last, there_y.size, s.k, inner, s.splits, int(s.relu)]
        name, grid = "add_splits" + "4" * (width == 4), -(-there_y.size // (256 * width))
        reports.append(module.launch(name, grid, 256, args, **options))
    assert all(np.array_equal(a, b, equal_nan=True) for a, b in zip(before, (memory_x, there_w)))
    assert np.isnan(memory_y[:shift]).all()
    y = memory_y[shift:].reshape(there_y.shape).transpose([s.layout.index(letter) for letter in "NCHW"])
    wanted = exact(x, w, s, bias, residual)
    return float(np.linalg.norm(y - wanted) / max(np.linalg.norm(wanted), 1e-30)), reports
