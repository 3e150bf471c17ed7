"""fold.sass: direct convolution for up to 5 channels, on tensor cores, where there are many filters."""

from __future__ import annotations

import math
from collections.abc import Mapping

from kernels_sass.conv.method import Cost, Main, Method, Sizes, ceil_div, enter
from kernels_sass.conv.methods.hgmma import MOST_TILES
from turingas.errors import LaunchError
from turingas.isa.arch import arch

FOLDED = 5  # at most so many channels are multiplied with their neighbours in a row
PIXELS, COLUMNS = 64, 32  # positions of a block, and at most so many in a row
FILTERS = 160  # of a block
ALONE = arch("sm_90").shared_per_sm // 2  # dynamic, of which an SM has no room for twice as many
SHARED = 0x600 + 64 * 128 + FILTERS // 32 * 3 * 2048  # scales and so on, a window, filters


class Fold(Method):
    """The three columns of a filter are channels."""

    name = "fold"
    file = "fold.sass"
    archs = ("sm_90", "sm_90a")
    kernels = {
        "fold160x64": Main(
            FILTERS, 1, 0, 0, an_sm=2, threads=256, cost=Cost("fold160x64", 0.47, 0.47, 1.23), shared=SHARED
        ),
    }
    order = 6
    ahead = True

    def able(self, shape: Sizes) -> str:
        """U has room for 16 numbers of a row if there are up to 5 channels, which are filled up to 8."""
        if shape.c > FOLDED or shape.splits > 1:
            return f"is for at most {FOLDED} channels, which are not split"
        if shape.blocks[0] >= MOST_TILES:
            return f"counts to {MOST_TILES} tiles, not to {shape.blocks[0]}"
        return ""

    def suits(self, shape: Sizes) -> bool:
        """Where it has a kernel, in NCHW: in NHWC others were faster."""
        return shape.layout == "NCHW" and shape.c <= FOLDED

    def defines(self, c: int, k: int) -> Mapping[str, object]:
        """Nothing. LaunchError where there is no kernel."""
        if c > FOLDED:
            raise LaunchError(f"the kernel {self.name!r} is for at most {FOLDED} channels, not for {c}")
        return {}

    def tile(self, shape: Sizes) -> tuple[int, int]:
        """Those that cover y with the fewest blocks."""
        able = [(PIXELS // width, width) for width in range(min(shape.q, COLUMNS), 0, -1)]
        return min(able, key=lambda tile: ceil_div(shape.p, tile[0]) * ceil_div(shape.q, tile[1]))

    def shared(self, shape: Sizes, sms: int) -> int:
        """Where there are no more blocks than SMs each takes one: else two might share one while others have none."""
        return ALONE if math.prod(shape.blocks) <= sms else super().shared(shape, sms)

    def steps(self, shape: Sizes) -> float:
        """One."""
        return 1


FOLD = enter(Fold())
