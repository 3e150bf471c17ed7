"""Shared memory: LDS and STS by width and lanes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kernels_sass.micro.loops import LEARN, Array, Case, Json
from turingas import memory_model

IN_A_ROUND = 64  # LDS or STS, of 06_smem.sass

#: Bytes a cycle on an RTX 2080 Ti, as far as the text of openCNN has them (Table 1 is a picture in our copy).
PAPER = {"STS.64": 42.61, "STS.128": 51.21, "STS.128 half": 25.60}

ACCESSES = [
    *((op, width, "own") for op in ("LDS", "STS") for width in (32, 64, 128)),
    *((op, width, "half") for op in ("LDS", "STS") for width in (32, 64, 128)),
    *(("LDS", width, "broadcast") for width in (32, 64, 128)),
    *(("LDS", width, "yan2020") for width in (32, 64, 128)),
    *((op, 32, f"stride:{n}") for op in ("LDS", "STS") for n in (2, 3, 4, 8, 16, 32)),
    *((op, width, f"stride:{n}") for op in ("LDS", "STS") for width, n in ((64, 4), (128, 8))),
]  # fmt: skip


def lanes(width: int, pattern: str) -> tuple[Array, Array]:
    """Where each lane of a warp reads or writes, in bytes, and which lanes take part, as 06_smem.sass has it."""
    lane = np.arange(32)
    stride = 4 * int(pattern[7:]) if pattern.startswith("stride:") else width // 8
    at = {"yan2020": lane // 2 % 8, "broadcast": 0 * lane}.get(pattern, lane) * stride
    return at, (lane & 8 == 0) if pattern == "half" else lane >= 0


def cases(arch: str) -> dict[str, Case]:
    """LDS and STS: 64 in a round, 8 warps; those of whole warps also with 4."""
    del arch  # the same on all
    found = {}
    for op, width, pattern in ACCESSES:
        at, part = lanes(width, pattern)
        needed, fewest = memory_model.wavefronts(at[None], part[None], width // 8, op == "LDS", False)
        name = f"{op}.{width}" + (f" {pattern}" if pattern != "own" else "")
        more: Json = {"bytes": int(part.sum()) * width // 8, "wavefronts": int(needed[0]), "fewest": int(fewest[0])}
        if name in PAPER:
            more["paper"] = PAPER[name]
        for threads in (256, 128) if pattern == "own" else (256,):

            def right(found: Sequence[Array], rounds: int, op: str = op, at: Array = at, part: Array = part) -> bool:
                tid = np.arange(len(found[0]))
                place, takes = at[tid % 32] + 4096 * (tid // 32), part[tid % 32]
                wanted = np.where(takes, place, tid) if op == "LDS" else np.where(takes, tid, place)
                return bool((found[0] == wanted).all())

            defines = {"OP": op, "WIDTH": width, "PATTERN": pattern}
            words = np.full(threads, 0xFFFFFFFF, np.uint32)
            found[name + (", 4 warps" if threads == 128 else "")] = Case(
                LEARN / "06_smem.sass", defines, (words,), right, IN_A_ROUND, threads, 1, more
            )
    return found
