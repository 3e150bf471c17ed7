"""direct.sass: direct convolution for few channels and few filters."""

from __future__ import annotations

from collections.abc import Mapping

from kernels_sass.conv.method import AMPERE, CHANNELS, Cost, Main, Method, Sizes, ceil_div, enter

TURNS = 4  # blocks that an SM's room is filled with so often have several groups of filters each


class Direct(Method):
    """A thread makes a strip of 8 rows of y, of 8 filters or 4. Threads stand side by side along columns, in CHWN along
    images, and so read and write neighbours."""

    name = "direct"
    file = "direct.sass"
    archs = AMPERE
    kernels = {
        "direct8": Main(8, 128, 8, 1, an_sm=3, threads=128, cost=Cost("direct8", 2.67, 0.74)),
        "direct4": Main(4, 128, 8, 1, an_sm=4, threads=128, cost=Cost("direct4", 1.7, 0.31), defines={"FILTERS": 4}),
    }
    order = 2
    most = 128  # relative errors of 6e-7

    def suits(self, shape: Sizes) -> bool:
        """Where Winograd's blocks, which fill up c to 8 and k to 32, would multiply zeros."""
        return shape.layout != "NHWC" and (shape.c < CHANNELS or shape.k <= 8)

    def defines(self, c: int, k: int) -> Mapping[str, object]:
        """4 filters at a time, or 8."""
        return self.kernels["direct4" if k <= 4 else "direct8"].defines

    def grid(self, shape: Sizes, sms: int) -> tuple[int, int, int]:
        """A block takes each y-th group of filters."""
        tiles, groups = shape.blocks
        room = sms * shape.block.an_sm * TURNS
        return tiles, min(groups, shape.splits * ceil_div(room, tiles * shape.splits)), 1

    def steps(self, shape: Sizes) -> float:
        """Channels are not filled up to 8."""
        return shape.c / CHANNELS


DIRECT = enter(Direct())
