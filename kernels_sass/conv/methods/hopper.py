"""winograd_sm90.sass: Winograd's F(2x2,3x3) for Hopper, on tensor cores. The default there."""

from __future__ import annotations

from collections.abc import Mapping

from kernels_sass.conv.method import Cost, Main, Method, enter

COST = Cost("winograd", 1.02, 1.44)
NARROW = Cost("winograd32", 0.67, 1)
SHARED = 231696  # bytes, of blocks of 64 filters; those of 32 have less


class Hopper(Method):
    """Blocks of 64 filters or 32, which stay on their SM."""

    name = "hopper"
    file = "winograd_sm90.sass"
    archs = ("sm_90", "sm_90a")
    kernels = {
        "winograd": Main(64, 32, 2, 2, an_sm=1, threads=512, cost=COST, shared=SHARED),
        "winograd32": Main(32, 32, 2, 2, an_sm=1, threads=640, cost=NARROW, shared=SHARED, defines={"FILTERS": 32}),
    }
    order = 1
    general = persistent = True
    direct = False

    def beside(self, schedule: Mapping[str, object]) -> list[dict[str, object]]:
        """Blocks of 32 filters, which multiply on tensor cores alone."""
        alone = "FILTERS" in schedule or schedule.get("MATH") == "ffma"
        return [] if alone else [{**schedule, **self.kernels["winograd32"].defines}]


HOPPER = enter(Hopper())
