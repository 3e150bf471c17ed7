"""Launches the test kernels on the GPU one after the other: for a profiler, or to keep what they leave in memory.

    python -m tests.gpu.record FILE.npz [CASE ...]

FILE.npz gets the buffers of every case after the launch, under CASE/0, CASE/1, ...
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import numpy as np

from tests.gpu.cuda import Gpu
from tests.kernels.cases import CASES


def main(path: str, names: Sequence[str]) -> None:
    gpu, kept = Gpu(), {}
    for case in CASES:
        if "sm_90" in case.archs and (not names or case.name in names):
            args, _ = case.build()
            gpu.run(case.cubin("sm_90"), case.kernel, case.grid, case.block, args, case.shared)
            kept.update({f"{case.name}/{n}": a for n, a in enumerate(args) if isinstance(a, np.ndarray)})
            print(case.name, flush=True)
    np.savez_compressed(path, **kept)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
