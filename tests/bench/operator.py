"""What turingas::conv2d costs the host beside ``conv.Conv2d`` behind it, without a GPU:
``python -m tests.bench.operator``.

Needs PyTorch. The layer behind it does nothing and gives the same tensor each time; microseconds of the processor.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from typing import Any

os.environ["TURINGAS_TORCH_CPU"] = "kernels"
os.environ.setdefault("OMP_NUM_THREADS", "1")
TURNS, CALLS = 9, 4000


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    import torch

    from kernels_sass import conv
    from kernels_sass.torch import Conv2d, operator

    x, y, theirs = torch.zeros(1, 16, 4, 4), torch.zeros(1, 16, 4, 4), torch.nn.Conv2d(16, 16, 3, padding=1).eval()
    ours = Conv2d.from_torch(theirs)
    conv.Conv2d.__call__ = lambda self, x, residual=None, out=None: y  # type: ignore[method-assign]
    pairs = (1, 1), False, (1, 1), (1, 1)
    ways: dict[str, Callable[[], Any]] = {
        "the CUDA implementation alone": lambda: operator._by_kernels(x, theirs.weight, theirs.bias, None, *pairs),
        "torch.ops.turingas.conv2d": lambda: torch.ops.turingas.conv2d(x, theirs.weight, theirs.bias, None, *pairs),
        "kernels_sass.torch.conv2d": lambda: operator.conv2d(x, theirs.weight, theirs.bias, None, *pairs),
        "kernels_sass.torch.Conv2d": lambda: ours(x),
        "torch.nn.Conv2d, which computes": lambda: theirs(x),
    }
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            best = dict.fromkeys(ways, 1e9)
            for _ in range(TURNS):
                for name, way in ways.items():
                    start = time.process_time()
                    for _ in range(CALLS):
                        way()
                    best[name] = min(best[name], (time.process_time() - start) / CALLS * 1e6)
        for name, us in best.items():
            print(f"{mode.__name__:15} {name:35} {us:6.2f} us")


if __name__ == "__main__":
    main()
