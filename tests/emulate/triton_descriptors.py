"""Products of Triton 3.5 or later with tensor descriptors of the host, and warp specialised, through ``triton_launch``:
``python -m tests.emulate.triton_descriptors sm_90``, where such a Triton is; an error where one is wrong."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import triton
import triton.language as tl

from turingas.testing import tensor_descriptor, triton_launch, using


@triton.jit  # type: ignore[untyped-decorator]
def tiles(  # type: ignore[no-untyped-def]
    a, b, c, m, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, PROGRAMS: tl.constexpr, SPECIAL: tl.constexpr
):  # fmt: skip
    across = n // N
    for tile in tl.range(tl.program_id(0), m // M * across, PROGRAMS, flatten=True, warp_specialize=SPECIAL):
        row, column = tile // across * M, tile % across * N
        total = tl.zeros((M, N), tl.float32)
        for at in range(0, k, K):
            total = tl.dot(a.load([row, at]), b.load([column, at]).T, total)
        c.store([row, column], total.to(tl.float16))


def main(arch: str) -> None:
    random = np.random.default_rng(0)
    a, b = (random.integers(-8, 9, (256, 128)).astype(np.float16) for _ in range(2))
    wanted = a.astype(np.float32) @ b.astype(np.float32).T
    modes: list[dict[str, Any]] = [{}, {"stale": True}, {"strict": True, "races": "global"}]
    for special in (False, True):
        for options in modes:
            c = np.zeros((256, 256), np.float16)
            maps = [tensor_descriptor(x, box) for x, box in ((a, (128, 64)), (b, (64, 64)), (c, (128, 64)))]
            with using(arch=arch, **options):
                triton_launch(tiles, 3, *maps, 256, 256, 128, M=128, N=64, K=64, PROGRAMS=3, SPECIAL=special)
            assert (c == wanted.astype(np.float16)).all(), (special, options)


if __name__ == "__main__":
    main(sys.argv[1])
