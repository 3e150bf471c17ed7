"""winograd.sass: Winograd's F(2x2,3x3) as Yan, Wang and Chu have it (PPoPP 2020). The default but on Hopper."""

from __future__ import annotations

from kernels_sass.conv.method import KNOWN, Main, Method, enter
from kernels_sass.conv.methods.hopper import COST


class Yan2020(Method):
    """For every architecture; on Blackwell constants lie in uniform registers (.preload). What its blocks cost nobody
    has fitted: Hopper's costs tell how many share channels."""

    name = "paper"
    file = "winograd.sass"
    archs = KNOWN
    kernels = {"winograd": Main(64, 32, 2, 2, an_sm=1, threads=256, cost=COST)}
    order = 0
    general = True
    direct = early = False


YAN2020 = enter(Yan2020())
