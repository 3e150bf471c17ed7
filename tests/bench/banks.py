"""What renaming spares of the register banks: ``python -m tests.bench.banks [PATH ...] [--kernels 40]``.

Without a path, the kernels of tests/kernels as NVRTC makes them; a path is a cubin, a library, a wheel, or a folder of
these (tests/tools/schedule_libraries). All control codes are made anew, without renaming and with it, each instruction
in its place. By the model of turingas/isa/banks, for each architecture: the cycles that reads lose to banks, times 10
for each loop around them; how many kernels lose any, and how many lose fewer and more with renaming.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from tests.kernels.cases import ARCHS, CASES
from tests.tools.schedule_libraries import draw
from turingas.cubin.cubin import Cubin
from turingas.cubin.model import Code, Kernel
from turingas.isa.given import NOTHING, YIELD
from turingas.scheduler.rebank import coded, cost


def ours() -> dict[str, list[Kernel]]:
    """The kernels of tests/kernels, each once."""
    made: dict[str, dict[str, Kernel]] = defaultdict(dict)
    for case in CASES:
        for arch in set(case.archs) & set(ARCHS):
            made[arch].update({kernel.name: kernel for kernel in Cubin.from_bytes(case.cubin(arch)).texts})
    return {arch: list(kernels.values()) for arch, kernels in sorted(made.items())}


def lost(kernels: list[Kernel]) -> Iterator[tuple[int, int]]:
    """For each kernel what it loses with its own registers, and renamed."""
    for kernel in kernels:
        fields = [NOTHING] * len(kernel.words)
        words = [coded(kernel, fields, YIELD, may).words for may in (None, [True] * len(fields))]
        plain, renamed = (cost(replace(kernel, code=Code(words=one)), one)[0] for one in words)
        yield plain, renamed


def main() -> None:
    """Print a line for each architecture."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split(":")[0])
    parser.add_argument("paths", nargs="*", type=Path)
    parser.add_argument("--kernels", type=int, default=40, help="of each architecture, drawn by a hash of their names")
    parser.add_argument("--largest", type=int, default=2500, help="instructions of a kernel")
    asked = parser.parse_args()
    found = draw(asked.paths, asked.kernels, asked.largest, set()) if asked.paths else ours()
    print("         kernels  that lose  cycles  renamed  fewer  more")
    for arch, kernels in sorted(found.items()):
        rows = list(lost(kernels))
        before, after = (sum(row[n] for row in rows) for n in (0, 1))
        print(f"{arch:8} {len(rows):7} {sum(a > 0 for a, _ in rows):10} {before:7} {after:8} "
              f"{sum(b < a for a, b in rows):6} {sum(b > a for a, b in rows):5}", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
