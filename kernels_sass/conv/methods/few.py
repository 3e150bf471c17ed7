"""few.sass: direct convolution for few filters, on tensor cores."""

from __future__ import annotations

import functools
from collections.abc import Mapping

from kernels_sass.conv.method import AMPERE, CHANNELS, Cost, Main, Method, Sizes, ceil_div, enter
from turingas.errors import LaunchError

FEW = (3, 4, 8)  # filters that there is a kernel for
PIXELS = 256  # inputs of a block


def _main(k: int, an_sm: int, step: float, job: float) -> Main:
    """That for at most k filters. Shared memory has the block's products: a column of a float for each input, and 16
    bytes, for each of the 9 elements of a filter, filled up to eights."""
    shared = 8 * ceil_div(9 * k, 8) * 4 * (PIXELS + 4)
    return Main(8 if k == 8 else 4, 1, 0, 0, an_sm, 128, Cost(f"few{k}", step, job), shared, {"FILTERS": k})


class Few(Method):
    """A block has all filters. Threads stand side by side along columns and channels of x."""

    name = "few"
    file = "few.sass"
    archs = AMPERE
    kernels = {"few8": _main(8, 2, 0.5, 2.34), "few4": _main(4, 2, 0.34, 1.1), "few3": _main(3, 3, 0.31, 0.82)}
    order = 4

    def able(self, shape: Sizes) -> str:
        """At most as many filters as the kernel is for."""
        k = int(str(shape.block.defines["FILTERS"]))
        return "" if shape.k <= k else f"is for at most {k} filters, not for {shape.k}"

    def suits(self, shape: Sizes) -> bool:
        """In NCHW "direct" has the layers of few channels."""
        other = shape.layout == "CHWN" or shape.layout == "NCHW" and shape.c < CHANNELS
        return shape.k <= max(FEW) and not other

    def defines(self, c: int, k: int) -> Mapping[str, object]:
        """The least kernel that has room for k filters. LaunchError."""
        if k > max(FEW):
            raise LaunchError(f"the kernel {self.name!r} is for at most {max(FEW)} filters, not for {k}")
        return {"FILTERS": min(one for one in FEW if one >= k)}

    def tile(self, shape: Sizes) -> tuple[int, int]:
        """Those that cover y with the fewest blocks."""
        return _fitting(shape.p, shape.q)


@functools.lru_cache(1024)
def _fitting(p: int, q: int) -> tuple[int, int]:
    """Rows and columns of outputs whose inputs, two more each way, are at most PIXELS: few blocks, wide ones."""
    widths = range(min(q, PIXELS // 3 - 2), 0, -1)
    able = [(PIXELS // (width + 2) - 2, width) for width in widths]
    return min(able, key=lambda tile: ceil_div(p, tile[0]) * ceil_div(q, tile[1]))


FEWS = enter(Few())
