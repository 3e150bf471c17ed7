"""FFMA by register banks, reuse flags, yields and what stands between."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from kernels_sass.micro.loops import LEARN, Array, Case, Json


def best(**more: object) -> dict[str, object]:
    return {"PATTERN": "best", **more}


#: name -> file, what is defined, cycles that another kernel with this loop took on an H200 before this one was written
FFMA: dict[str, tuple[str, Mapping[str, object], int | None]] = {
    "c and a in opposite banks, b kept, a kept at the turn": ("05_outer_product", best(), 1061),
    "the same, b kept only": ("05_outer_product", {"PATTERN": "b_only"}, 1110),
    "c and a in one bank, both kept": ("05_outer_product", {"PATTERN": "same_bank"}, 1189),
    "no reuse flags": ("05_outer_product", {"PATTERN": "no_reuse"}, 1812),
    "all three in one bank (256 FFMA)": ("05_outer_product", {"PATTERN": "one_bank"}, 1552),
    **{
        f"best, yield every {n}": ("05_outer_product", best(YIELD=f"every:{n}"), cycles)
        for n, cycles in ((32, 1094), (16, 1123), (8, 1126), (7, 1147), (4, 1187))
    },
    **{
        f"best, {n} LDS.128 in 128 FFMA": ("07_mix", {"LDS": n}, cycles)
        for n, cycles in ((0, None), (4, 1093), (6, 1111), (8, 1125), (12, 1551))
    },
    "best, 8 LDS.128 in 128 FFMA, lanes of Yan, Wang, Chu 2020": ("07_mix", {"LDS": 8, "LANES": "yan2020"}, 1193),
    "best, 4 STS.128 in 128 FFMA": ("07_mix", {"STS": 4}, 1157),
}


def cases(arch: str) -> dict[str, Case]:
    """FFMA by register banks, reuse flags, yields and what stands between, one and two warps a
    scheduler."""
    del arch
    a, b = np.arange(1, 9, dtype=np.float32), np.arange(3, 11, dtype=np.float32)
    found = {}
    for warps in (8, 4):
        threads = 32 * warps
        for name, (file, defines, before) in FFMA.items():
            pure = file == "05_outer_product"
            count = 256 if defines.get("PATTERN") == "one_bank" else 512
            given: tuple[Array | int, ...] = (np.full(threads, np.nan, np.float32),)
            if pure:
                given = (np.full((64, threads), np.nan, np.float32), a, b)

            def right(found: Sequence[Array], rounds: int, pure: bool = pure, times: int = count // 64) -> bool:
                if not pure:
                    return bool((found[0] == times * rounds * 36**2).all())
                wanted = times * rounds * np.outer(found[1], found[2]).reshape(64, 1)
                return bool((found[0] == wanted).all())

            more: Json = {"before": before} if before and warps == 8 else {}
            label = name + ("" if warps == 8 else ", 1 warp a scheduler")
            found[label] = Case(LEARN / f"{file}.sass", defines, given, right, count, threads, more=more)
    return found
