"""nhwc.sass: direct convolution for few channels in NHWC."""

from __future__ import annotations

from collections.abc import Mapping

from kernels_sass.conv.method import AMPERE, CHANNELS, Cost, Main, Method, Sizes, ceil_div, enter
from turingas.errors import LaunchError

COST = Cost("nhwc", 13.78, 0.22)
THIN = (1, 2, 3, 4)  # channels
COLUMNS, ENOUGH = (32, 16, 8), 512  # of a block: the first that give as many blocks


class Nhwc(Method):
    """A kernel for each number of channels. Threads stand side by side along filters, as y has them."""

    name = "nhwc"
    file = "nhwc.sass"
    archs = AMPERE
    kernels = {
        f"nhwc{c}": Main(64, 1, 16, COLUMNS[0], an_sm=3, threads=128, cost=COST, defines={"CHANNELS": c}) for c in THIN
    }
    order = 3

    def able(self, shape: Sizes) -> str:
        """As many channels as the kernel is for."""
        c = shape.block.defines["CHANNELS"]
        if (shape.layout, shape.c) == ("NHWC", c):
            return ""
        return f"is for {c} channels in NHWC, not for {shape.c} in {shape.layout}"

    def suits(self, shape: Sizes) -> bool:
        """Always where it is able."""
        return shape.layout == "NHWC" and shape.c in THIN

    def defines(self, c: int, k: int) -> Mapping[str, object]:
        """So many channels. LaunchError."""
        if c > max(THIN):
            raise LaunchError(f"the kernel {self.name!r} is for at most {max(THIN)} channels, not for {c}")
        return {"CHANNELS": c}

    def tile(self, shape: Sizes) -> tuple[int, int]:
        """Blocks are narrow where there are few."""
        rows, most = shape.block.rows, shape.block.filters
        others = shape.n * ceil_div(shape.p, rows) * ceil_div(shape.k, most)
        able = (width for width in COLUMNS if others * ceil_div(shape.q, width) >= ENOUGH)
        return rows, next(able, COLUMNS[-1])

    def steps(self, shape: Sizes) -> float:
        """Those of narrow blocks are parts of one; channels are not filled up to 8."""
        return shape.c / CHANNELS * self.tile(shape)[1] / COLUMNS[0]


NHWC = enter(Nhwc())
