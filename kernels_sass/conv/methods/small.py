"""small.sass: direct convolution for few images, on tensor cores, by clusters of small blocks."""

from __future__ import annotations

import functools
from collections.abc import Mapping

from kernels_sass.conv.method import CHANNELS, Cost, Main, Method, Sizes, ceil_div, enter
from kernels_sass.conv.methods.hgmma import MOST_TILES
from turingas.errors import LaunchError

TOGETHER = 16  # channels that are multiplied at once
FOLDED = 5  # at most so many are multiplied with their neighbours in a row
LEAST = 8  # filters that a block of a cluster adds up
ALONE = 114 << 10  # bytes of shared memory of which an SM has no room for twice as many


def _main(filters: int, pixels: int, window: int, cost: Cost, fold: int = 0) -> Main:
    """That of blocks of so many filters and pixels, which see a ``window`` of so many positions of x. Shared memory has
    filters, twice; the window, twice; sums of all. Those that make many products take an SM each."""
    places, windows, least = (3, 1, 0) if fold else (9, 2, ALONE)
    shared = max(0x400 + 2 * filters * places * 64 + windows * 64 * window + filters * 4 * (pixels + 8), least)
    given = {"FILTERS": filters, "PIXELS": pixels, "WINDOW": window, "FOLD": fold}
    return Main(filters, 1, 0, 0, an_sm=1 + fold, threads=128, cost=cost, shared=shared, defines=given)


class Small(Method):
    """Clusters share channels; a block stores what it adds up."""

    name = "small"
    file = "small.sass"
    archs = ("sm_90", "sm_90a")
    kernels = {
        # of 16 channels a step; fitted to shapes_sm90_few.json, all that shapes_sm90.json tells being known
        "small64x96": _main(64, 96, 160, Cost("small64x96", 1.8, 1.62)),
        "small64x80": _main(64, 80, 160, Cost("small64x80", 1.63, 1.48)),
        "small32x128": _main(32, 128, 192, Cost("small32x128", 1.6, 1.0)),
        "fold64x96": _main(64, 96, 160, Cost("fold64x96", 1.0, 1.0), fold=1),
    }
    order = 5
    clusters = 8
    ahead = True

    def able(self, shape: Sizes) -> str:
        """U has room for 16 channels if there are more than 8, and for up to 5 that are folded."""
        main = shape.block
        if main.defines["FOLD"] and (shape.c > FOLDED or shape.splits > 1):
            return f"is for at most {FOLDED} channels, which are not split"
        if not main.defines["FOLD"] and shape.c <= CHANNELS:
            return f"is for more than {CHANNELS} channels, not for {shape.c}"
        if shape.blocks[0] >= MOST_TILES:
            return f"counts to {MOST_TILES} tiles, not to {shape.blocks[0]}"
        most = min(self.clusters, main.filters // LEAST, ceil_div(shape.c, TOGETHER))
        return "" if shape.splits <= most else f"can split {shape.c} channels into {most}, not into {shape.splits}"

    def suits(self, shape: Sizes) -> bool:
        """Where it has a kernel, in NCHW: in NHWC others were faster."""
        return shape.layout == "NCHW" and not FOLDED < shape.c <= CHANNELS

    def offered(self, c: int, k: int) -> list[Mapping[str, object]]:
        """Those for so few channels, or filters."""
        if c <= FOLDED:
            names = ["fold64x96"]
        else:
            names = ["small32x128"] if k <= 32 else ["small64x96", "small64x80"]
        return [self.kernels[name].defines for name in names]

    def defines(self, c: int, k: int) -> Mapping[str, object]:
        """LaunchError where there is no kernel."""
        if FOLDED < c <= CHANNELS:
            raise LaunchError(f"the kernel {self.name!r} is for at most {FOLDED} channels, or more than {CHANNELS}")
        return self.offered(c, k)[0]

    def tile(self, shape: Sizes) -> tuple[int, int]:
        """Those that cover y with the fewest blocks."""
        given = shape.block.defines
        return _fitting(shape.p, shape.q, int(str(given["PIXELS"])), int(str(given["WINDOW"])))

    def steps(self, shape: Sizes) -> float:
        """Times 16 channels."""
        return ceil_div(shape.c, TOGETHER)


@functools.lru_cache(1024)
def _fitting(p: int, q: int, pixels: int, window: int) -> tuple[int, int]:
    """Rows and columns of outputs: two more columns a row, and pixels at most; the last place of a filter sees as many
    positions, two rows and two columns further on."""
    widths = range(min(q, (window - pixels - 6) // 2), 0, -1)
    able = [((pixels - width) // (width + 2) + 1, width) for width in widths]
    return min(able, key=lambda tile: ceil_div(p, tile[0]) * ceil_div(q, tile[1]))


SMALL = enter(Small())
