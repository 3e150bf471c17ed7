"""Memory-efficient direct convolution (Chen et al. 2017), any stride, padding and filter size.

Both kernels read, write and compute n neighbouring values as one (the paper's section 2.1): n matches the width of a
bank of shared memory, 4 bytes since Maxwell, with n = 1 for float32 and n = 2 for half; other n are unmatched. Float
sums in either case; ``half`` rounds x and w to half precision first, which costs a relative error of about 3e-4.

x: N, C, H, W; w: K, C, R, S; y: N, K, P, Q; all float32.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np

from loader.reference.problem import Problem
from loader.reference.registry import algorithm
from loader.reference.runner import Runner, ceil_div

SOURCE = "memory_efficient.cu"
UNITS = (1, 2, 4)
SHARED_BYTES = 48 * 1024  # what every GPU gives without being asked
MOST_THREADS = 1024
PREFETCH = 64  # registers of a thread for the next step's pixels and filters
WIDEST_ACCESS = 16  # bytes; an array in shared memory takes a multiple of it
CHUNK = 7  # rows and columns of the filter in shared memory at a time
FILTER_VALUES = 960  # floats of filters in constant memory: kernel parameters have 4 KB in all
HALF_TOLERANCE = 1e-3  # relative L2 error: x and w are rounded to 11 bits each
WINDOW = 160  # pixels that a thread of the kernel for one channel keeps in registers


@dataclass(frozen=True)
class Blocking:
    """What a block and a thread of the general kernel compute: a row of the paper's Table 1, in its order.

    ``width`` (W) x ``height`` (H) outputs and ``filters`` (F_TB) filters a block, ``thread_pixels`` (W_T) outputs and
    ``thread_filters`` (F_T) filters a thread; ``channels`` (C_SH) are in shared memory at a time.
    """

    width: int
    height: int
    filters: int
    thread_pixels: int
    thread_filters: int
    channels: int

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.filters // self.thread_filters * (self.width * self.height // self.thread_pixels)


TABLE_1 = {
    3: Blocking(32, 4, 64, 16, 4, 2),
    5: Blocking(32, 8, 32, 8, 8, 1),
    7: Blocking(64, 4, 32, 8, 8, 1),
}

#: The block of the kernel for one channel, W x H outputs (section 5.1).
SINGLE_TILE = (256, 8)


def memory_efficient(
    run: Runner, p: Problem, x: Any, w: Any, y: Any, unit: int = 1, half: bool = False, blocking: Blocking | None = None
) -> None:
    """The general case (section 4): blocks of pixels and filters in shared memory, sums in registers.

    ``unit``: n, one of 1, 2, 4. ``half``: pixels and filters as half. ``blocking``: None takes the column of Table 1
    for the filter's size, or what is left of it where large strides leave too little shared memory. Raises ValueError
    for a blocking that does not work, and for values that a half cannot hold.
    """
    macros = general_macros(p, unit, half, blocking)
    if half:
        x, w = as_half(run, x, "x"), as_half(run, w, "w")
    blocks = ceil_div(p.k, macros["TILE_K"]) * tiles(p, macros)
    threads = macros["TILE_K"] // macros["THREAD_K"] * (macros["TILE_W"] * macros["TILE_H"] // macros["THREAD_Q"])
    run.module(SOURCE, options(macros)).kernel("memory_efficient").launch(blocks, threads, x, w, y, shape(p))


def memory_efficient_single(
    run: Runner,
    p: Problem,
    x: Any,
    w: Any,
    y: Any,
    unit: int = 1,
    half: bool = False,
    tile: tuple[int, int] | None = None,
) -> None:
    """One input channel (section 3): filters in constant memory, the rows of the window in registers, prefetch.

    ``unit`` and ``half`` as above, but filters are in constant memory as float in either case. ``tile``: W and H, the
    outputs of a block; None is 256 x 8, or less for narrow images and large strides. Raises ValueError for more
    channels, for filters that registers cannot hold (about 11 x 11), for a tile that does not work, and for values that
    a half cannot hold.
    """
    macros = single_macros(p, unit, half, tile)
    filters = run.numpy(as_half(run, w, "w") if half else w).astype(np.float32).reshape(p.k, p.r * p.s)
    if half:
        x = as_half(run, x, "x")
    kernel = run.module(SOURCE, options(macros)).kernel("memory_efficient_single")
    batch = FILTER_VALUES // (p.r * p.s)
    for first in range(0, p.k, batch):
        some = filters[first : first + batch]
        constant = np.zeros(FILTER_VALUES, np.float32)
        constant[: some.size] = some.ravel()
        threads = macros["TILE_W"] // unit
        kernel.launch(tiles(p, macros), threads, x, y, shape(p), first, len(some), constant.tobytes())


# ---- configurations --------------------------------------------------------------------------------------------------


def general_macros(p: Problem, unit: int = 1, half: bool = False, blocking: Blocking | None = None) -> dict[str, int]:
    """What memory_efficient.cu is compiled with for the general kernel. Raises ValueError for what does not work."""
    check_unit(unit)
    if blocking is not None:
        check_blocking(blocking, unit)
        macros = _general(p, unit, half, blocking)
        if (size := shared_bytes(macros)) > SHARED_BYTES:
            raise ValueError(f"{blocking} takes {size} bytes of shared memory for this; there are {SHARED_BYTES}")
        return macros
    best = TABLE_1[next((size for size in TABLE_1 if max(p.r, p.s) <= size), 7)]
    return first_that_fits([_general(p, unit, half, b) for b in smaller(best, unit)])


def smaller(blocking: Blocking, unit: int) -> Iterator[Blocking]:
    """The blocking, and what is left when its numbers are halved, largest tiles first."""
    b = blocking
    least = (unit, 1, unit, unit, 1)
    sizes = zip((b.width, b.height, b.thread_pixels, b.thread_filters, b.channels), least)
    found = [
        replace(b, width=width, height=height, thread_pixels=pixels, thread_filters=filters, channels=channels)
        for width, height, pixels, filters, channels in product(*(halves(size, least) for size, least in sizes))
    ]
    found = [b for b in found if b.thread_pixels <= b.width and b.threads <= MOST_THREADS]
    yield from sorted(found, key=lambda b: (-b.width * b.height, -b.thread_pixels * b.thread_filters, -b.channels))


def halves(size: int, least: int) -> list[int]:
    """The size, half of it, and so on down to the least."""
    return [size >> n for n in range(size.bit_length()) if size >> n >= least]


def check_blocking(b: Blocking, unit: int) -> None:
    """ValueError for numbers that do not divide each other as the kernel needs it."""
    if not isinstance(b, Blocking):
        raise ValueError(f"a blocking of {b!r}; it must be a {__name__}.Blocking")
    if min(vars(b).values()) < 1:
        raise ValueError(f"{b}: all numbers must be at least 1")
    for what, inner in (("width", "thread_pixels"), ("filters", "thread_filters")):
        if getattr(b, what) % getattr(b, inner) or getattr(b, inner) % unit:
            raise ValueError(f"{b}: {what} must be a multiple of {inner}, and that of n = {unit}")
    if b.threads > MOST_THREADS:
        raise ValueError(f"{b} has {b.threads} threads a block; the most is {MOST_THREADS}")


def single_macros(
    p: Problem, unit: int = 1, half: bool = False, tile: tuple[int, int] | None = None
) -> dict[str, int]:
    """What memory_efficient.cu is compiled with for the kernel for one channel. ValueError for what does not work."""
    check_unit(unit)
    if p.c != 1:
        raise ValueError(f"it takes one input channel, not {p.c}")
    if p.r * (p.s + unit - 1) > WINDOW:
        raise ValueError(f"a filter of {p.r} x {p.s} with n = {unit} takes too many registers: use memory_efficient")
    width, height = tile or SINGLE_TILE
    if tile is not None:
        if min(tile) < 1 or width % unit or width // unit > MOST_THREADS:
            raise ValueError(f"a tile of {tile}: the width must be a multiple of n = {unit}, at most {MOST_THREADS} n")
        macros = _single(p, unit, half, width, height)
        if (size := shared_bytes(macros)) > SHARED_BYTES:
            raise ValueError(f"a tile of {tile} takes {size} bytes of shared memory for this; there are {SHARED_BYTES}")
        return macros
    while width > 32 * unit and width // 2 >= p.q:
        width //= 2
    return first_that_fits([_single(p, unit, half, narrower, height) for narrower in halves(width, unit)])


def first_that_fits(candidates: list[dict[str, int]]) -> dict[str, int]:
    """The first that shared memory and registers hold, else that with the least in registers. ValueError for none."""
    works = [macros for macros in candidates if shared_bytes(macros) <= SHARED_BYTES]
    if not works:
        stride, unit = (candidates[0][name] for name in ("STRIDE", "UNIT"))
        raise ValueError(f"a stride of {stride} with n = {unit} takes more than {SHARED_BYTES} bytes of shared memory")
    return next((macros for macros in works if prefetch(macros) <= PREFETCH), min(works, key=prefetch))


def check_unit(unit: int) -> None:
    """ValueError for an n that the kernels do not have."""
    if unit not in UNITS:
        raise ValueError(f"n is {unit!r}; it must be one of {UNITS}")


def _general(p: Problem, unit: int, half: bool, b: Blocking) -> dict[str, int]:
    chunk_r, chunk_s = (ceil_div(size, ceil_div(size, CHUNK)) for size in (p.r, p.s))
    return {
        "SINGLE": 0,
        **_common(p, unit, half, b.width, b.height, wide=chunk_s == p.s),
        "TILE_K": b.filters,
        "TILE_C": b.channels,
        "THREAD_Q": b.thread_pixels,
        "THREAD_K": b.thread_filters,
        "CHUNK_R": chunk_r,
        "CHUNK_S": chunk_s,
    }


def _single(p: Problem, unit: int, half: bool, width: int, height: int) -> dict[str, int]:
    return {"SINGLE": 1, **_common(p, unit, half, width, height, wide=True), "FILTER_VALUES": FILTER_VALUES}


def _common(p: Problem, unit: int, half: bool, width: int, height: int, wide: bool) -> dict[str, int]:
    wide = wide and p.w % unit == 0
    return {
        "HALF": int(half),
        "UNIT": unit,
        "FILTER_R": p.r,
        "FILTER_S": p.s,
        "STRIDE": p.stride,
        "TILE_H": height,
        "TILE_W": width,
        "WIDE_LOADS": int(wide),
        "WIDE_STORES": int(p.q % unit == 0),
        "LEAD": -p.padding % unit if wide else 0,
    }


def _sizes(m: dict[str, int]) -> tuple[int, int, int, int]:
    """Pixels of a block's tile, filter values of a step, padding between those, threads: as memory_efficient.cu."""
    unit, stride = m["UNIT"], m["STRIDE"]
    if m["SINGLE"]:
        neighbours, columns, rows = unit, m["FILTER_S"], m["FILTER_R"]
        values = padding = 0
        threads = m["TILE_W"] // unit
    else:
        neighbours, columns = m["THREAD_Q"], m["CHUNK_S"]
        rows = m["TILE_C"] * ((m["TILE_H"] - 1) * stride + m["CHUNK_R"])
        places = m["TILE_C"] * m["CHUNK_R"] * m["CHUNK_S"]
        values, padding = places * m["TILE_K"], places * unit
        threads = m["TILE_K"] // m["THREAD_K"] * (m["TILE_W"] * m["TILE_H"] // neighbours)
    span = m["LEAD"] + (neighbours - 1) * stride + columns
    pitch = (m["TILE_W"] - neighbours) * stride + ceil_div(span, unit) * unit
    return rows * pitch, values, padding, threads


def shared_bytes(macros: dict[str, int]) -> int:
    """Shared memory of a block."""
    pixels, values, padding, _ = _sizes(macros)
    size = 2 if macros["HALF"] else 4
    return sum(ceil_div(count * size, WIDEST_ACCESS) * WIDEST_ACCESS for count in (pixels, values + padding))


def prefetch(macros: dict[str, int]) -> int:
    """Values that a thread has on their way to the next step."""
    pixels, values, _, threads = _sizes(macros)
    return ceil_div(pixels, threads) + ceil_div(values, threads)


# ---- launches --------------------------------------------------------------------------------------------------------


def options(macros: dict[str, int]) -> list[str]:
    """The macros as NVRTC takes them."""
    return [f"-D{name}={value}" for name, value in macros.items()]


def tiles(p: Problem, macros: dict[str, int]) -> int:
    """Tiles of all images."""
    return p.n * ceil_div(p.p, macros["TILE_H"]) * ceil_div(p.q, macros["TILE_W"])


def shape(p: Problem) -> bytes:
    """struct Shape of memory_efficient.cu."""
    return np.array([p.c, p.h, p.w, p.k, p.p, p.q, p.padding], np.int32).tobytes()


def as_half(run: Runner, array: Any, name: str) -> Any:
    """The array on the device, each value rounded to the nearest half. ValueError when one is too large for that."""
    with np.errstate(over="ignore"):
        rounded = run.numpy(array).astype(np.float16)
    if not np.isfinite(rounded).all():
        index = tuple(int(i) for i in np.argwhere(~np.isfinite(rounded))[0])
        raise ValueError(f"{name} is too large for a half at {index}")
    return run.array(rounded)


# ---- the list of algorithms ------------------------------------------------------------------------------------------

#: Names end in the unit's type, where it is not float: n = 1 float; 2 float2; 4 float4; half and half2.
VARIANTS = {"": (1, False), "_float2": (2, False), "_float4": (4, False), "_half": (1, True), "_half2": (2, True)}


def _why_not(macros: Callable[..., dict[str, int]], unit: int, half: bool) -> Callable[[Problem], str]:
    def supports(p: Problem) -> str:
        try:
            macros(p, unit, half)
        except ValueError as error:
            return str(error)
        return ""

    return supports


for _ending, (_unit, _half) in VARIANTS.items():
    for _function, _macros in ((memory_efficient, general_macros), (memory_efficient_single, single_macros)):
        algorithm(
            _function.__name__ + _ending,
            layout="NCHW",
            supports=_why_not(_macros, _unit, _half),
            tolerance=HALF_TOLERANCE if _half else 1e-6,
        )(functools.partial(_function, unit=_unit, half=_half))
