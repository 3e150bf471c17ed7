"""small.sass: direct convolution for few images, on tensor cores, by clusters of small blocks."""

from __future__ import annotations

import functools
from collections.abc import Mapping

from kernels_sass.conv.method import CHANNELS, Cost, Main, Method, Sizes, ceil_div, enter
from kernels_sass.conv.methods.hgmma import MOST_TILES
from turingas.errors import LaunchError

TOGETHER = 16  # channels that are multiplied at once
FILTERS, FEW = 64, 32  # of a block
SLOTS, WINDOWS = 4, 3  # times 16 channels of filters and of x that a block has room for
PARTED = 1.15  # a step's time if the rows of x that a block sees are parts of rows; 1.1 fits as well, 1 and 1.25 worse


def _main(filters: int, pixels: int, window: int, cost: Cost) -> Main:
    """That of blocks of so many filters and pixels, which see a ``window`` of so many positions of x. Shared memory has
    filters, windows, and sums: so much that a block takes an SM."""
    sums = filters * 4 * (pixels + 8 * (pixels % 16 == 0)) if filters == FILTERS else 4 * filters * 4 * (pixels + 4)
    shared = 0x400 + SLOTS * filters * 9 * 64 + WINDOWS * 64 * window + sums
    return Main(filters, 1, 0, 0, an_sm=1, threads=256, cost=cost, shared=shared,
                defines={"FILTERS": filters, "PIXELS": pixels, "WINDOW": window})  # fmt: skip


class Small(Method):
    """Clusters share channels; a block stores what it adds up."""

    name = "small"
    file = "small.sass"
    archs = ("sm_90", "sm_90a")
    special = True
    kernels = {
        # of 16 channels a step
        "small64x96": _main(FILTERS, 96, 160, Cost("small64x96", 0.84, 1.11, 1.76)),
        "small64x88": _main(FILTERS, 88, 160, Cost("small64x88", 0.82, 1, 1.59)),
        "small64x80": _main(FILTERS, 80, 160, Cost("small64x80", 0.77, 0.99, 1.5)),
        "small64x64": _main(FILTERS, 64, 128, Cost("small64x64", 0.68, 0.71, 1.29)),
        "small64x128": _main(FILTERS, 128, 192, Cost("small64x128", 1.21, 1.39, 1.45)),
        "small32x64": _main(FEW, 64, 128, Cost("small32x64", 0.45, 0.85, 1.34)),
        "small32x128": _main(FEW, 128, 192, Cost("small32x128", 0.6, 1.46, 1.49)),
    }
    order = 5
    clusters = 8
    ahead = True

    def able(self, shape: Sizes) -> str:
        """U has room for 16 channels if there are more than 8."""
        if shape.c <= CHANNELS:
            return f"is for more than {CHANNELS} channels, not for {shape.c}"
        if shape.blocks[0] >= MOST_TILES:
            return f"counts to {MOST_TILES} tiles, not to {shape.blocks[0]}"
        most = min(self.clusters, ceil_div(shape.c, TOGETHER))
        return "" if shape.splits <= most else f"can split {shape.c} channels into {most}, not into {shape.splits}"

    def suits(self, shape: Sizes) -> bool:
        """Where it has a kernel, in NCHW: in NHWC others were faster."""
        return shape.layout == "NCHW" and shape.c > CHANNELS

    def offered(self, c: int, k: int) -> list[Mapping[str, object]]:
        """Those with blocks of 32 filters for up to so many, else those of 64: the same U for all of them."""
        filters = FEW if k <= FEW else FILTERS
        return [main.defines for main in self.kernels.values() if main.filters == filters]

    def defines(self, c: int, k: int) -> Mapping[str, object]:
        """Of those offered the first. LaunchError where there is no kernel."""
        if c <= CHANNELS:
            raise LaunchError(f"the kernel {self.name!r} is for more than {CHANNELS} channels, not for {c}",
                              "for up to 5 there is 'fold'")  # fmt: skip
        return self.offered(c, k)[0]

    def tile(self, shape: Sizes) -> tuple[int, int]:
        """Those that cover y with the fewest blocks."""
        pixels, window = (int(str(shape.block.defines[name])) for name in ("PIXELS", "WINDOW"))
        return _fitting(shape.p, shape.q, pixels, window, 2 if shape.block.filters == FILTERS else 0)

    def steps(self, shape: Sizes) -> float:
        """Times 16 channels, which take longer where a block has parts of rows."""
        return ceil_div(shape.c, TOGETHER) * (PARTED if shape.tile[1] < shape.q else 1)


@functools.lru_cache(1024)
def _fitting(p: int, q: int, pixels: int, window: int, beyond: int) -> tuple[int, int]:
    """Rows and columns of outputs: two more columns a row, and pixels at most, ``beyond`` those of the last row's two
    more; the last place of a filter sees as many positions, two rows and ``beyond`` columns further on."""
    widths = range(min(q, (window - pixels - 4 - beyond) // 2), 0, -1)
    able = [((pixels + beyond) // (width + 2), width) for width in widths]
    return min(able, key=lambda tile: ceil_div(p, tile[0]) * ceil_div(q, tile[1]))


SMALL = enter(Small())
