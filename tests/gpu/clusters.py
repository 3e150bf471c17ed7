"""Clusters on a GPU: ``python -m tests.gpu.clusters [WORD ...] [--device cpu]``, a line for each probe.

Compiled kernels (tests/kernels/clusters.cu and tiles.cu) must leave the bits that the CPU device leaves. The product of
step 9 must be right in clusters of two blocks, and ``as it was`` must end in an error: it stored (STSM) at addresses
without the rank of the block, which no compiler writes. An H200 ended that with an illegal instruction (715) at the
STSM, in block 1; compute-sanitizer: "Invalid __remote_shared__ write ... in CTA 0 is not located in executing CTA". A
fault takes its process along, so each probe has its own.
"""

from __future__ import annotations

import argparse
import functools
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np

import loader
import turingas
from kernels_sass.gemm_kernels import SOURCE, Tiling
from kernels_sass.learn import hgemm
from loader.cuda import Buffer, CudaError
from tests.emulate import test_clusters, tiles
from tests.tools import nvrtc
from turingas.emulate import DeviceError

PATIENCE = 60  # seconds that a probe has
AT_ONCE = 4
OK = "ok"
Array = np.ndarray[Any, np.dtype[Any]]
Probe = Callable[[str], str]  # takes the name of a device


def left(
    cubin: Any, kernel: str, grid: Any, block: int, arrays: list[Array], make: Any, device: str, **options: Any
) -> list[Array]:
    """What a launch leaves in ``arrays``; ``make`` gives its arguments, of where they lie."""
    with loader.load(cubin, device) as module:
        there: list[Any] = [a.copy() if device == "cpu" else Buffer.of(a, module.device) for a in arrays]
        module.kernel(kernel).launch(grid, block, *make(*there), **options)
        module.synchronize()
        return [a if device == "cpu" else a.numpy() for a in there]


def same(
    cubin: Any, kernel: str, grid: Any, block: int, arrays: list[Array], make: Any, device: str, **options: Any
) -> str:
    """Whether these are the bits that the CPU device leaves."""
    ours, theirs = (left(cubin, kernel, grid, block, arrays, make, one, **options) for one in ("cpu", device))
    off = [n for n, (a, b) in enumerate(zip(ours, theirs)) if a.tobytes() != b.tobytes()]
    return f"arrays {off} are not what the CPU device leaves" if off else OK


# ---- compiled kernels ------------------------------------------------------------------------------------------------


@functools.cache
def compiled() -> bytes:
    return nvrtc.compile_source(test_clusters.SOURCE, "sm_90", (), name="clusters.cu")


def zeros(*shape: int) -> Array:
    return np.zeros(shape, np.uint32)


def of_cuda() -> dict[str, Probe]:
    random = np.random.default_rng(1)
    x, small = random.integers(0, 1000, 16 * 32, np.uint32), list(random.integers(0, 40, (2, 256), np.uint32))
    rows: dict[str, tuple[str, Any, int, list[Array], tuple[Any, ...], dict[str, Any]]] = {
        "ids of 3 x 2": ("ids", (6, 4, 2), 32, [zeros(48, 16)], (), {"cluster": (3, 2, 1)}),
        "ids of 16": ("ids", 16, 32, [zeros(16, 16)], (), {"cluster": 16}),
        "ids without": ("ids", 5, 32, [zeros(5, 16)], (), {}),
        "compiled for clusters": ("fixed", 4, 32, [zeros(4)], (), {}),
        "counted stores": ("asynchronous", 4, 64, [zeros(4, 128)], (), {"cluster": 2}),
        "sums of all blocks": ("gather", 4, 64, [zeros(64), x], (), {"cluster": 4}),
        "the grid as a group": ("meet", 7, 96, [zeros(7 * 96), zeros(7 * 96)], (), {"cooperative": True}),
    }
    for size in (2, 4, 8):
        rows[f"a ring of {size}"] = ("ring", 2 * size, 32, [zeros(2 * size, 4, 32), x], (), {"cluster": size})
    for size, mask in ((2, 3), (4, 0b1010), (4, 0b1111)):
        arrays = [zeros(2 * size, 3, 64), x]
        rows[f"bulk to {mask:#b} of {size}"] = ("bulk", 2 * size, 64, arrays, (mask,), {"cluster": size})
    for name in ("add_u32", "min_s64", "xor_b64", "inc_u32", "add_f64", "add_f16"):
        rows[f"bulk {name}"] = (f"reduce_{name}", 1, 64, small, (), {})

    def run(row: tuple[Any, ...], device: str) -> str:
        kernel, grid, block, arrays, numbers, options = row
        return same(compiled(), kernel, grid, block, arrays, lambda *there: (*there, *numbers), device, **options)

    return {f"cuda: {name}": functools.partial(run, row) for name, row in rows.items()}


def multicast(device: str, count: int = 60) -> str:
    """Tiles of random geometry to random blocks of clusters of 2 to 8."""
    for seed in range(count):
        random = np.random.default_rng(seed)
        size, rows, quads = int(random.choice([2, 4, 8])), int(random.integers(1, 20)), int(random.integers(1, 9))
        a = random.random((int(random.integers(1, 40)), 4 * int(random.integers(1, 20))), np.float32)
        x, y = 4 * int(random.integers(-3, 15)), int(random.integers(-9, 40))
        mask, box = int(random.integers(1, 1 << size)), (rows, 4 * quads)
        numbers = (x, y, 16 * rows * quads, mask)
        make = lambda a, out: (loader.tensor_map(a, box), out, *numbers)  # noqa: E731, B023
        arrays = [a, zeros(size, 4 * rows * quads)]
        said = same(tiles.cubin(), "multicast", size, 32, arrays, make, device, cluster=size, shared=12288)
        if said != OK:
            return f"seed {seed}, box {box} of {a.shape} at {(y, x)} to {mask:#b} of {size}: {said}"
    return OK


# ---- gemm.sass -------------------------------------------------------------------------------------------------------

STAGED = "UIADD3 UR31, UR31, here, URZ;"
MAP_OF_C = "{map_at(24, 0x130)}"
WAS = "as it was"
#: By name: what is said otherwise in gemm.sass; what the tiling has
HGEMM: dict[str, tuple[list[tuple[str, str]], dict[str, int]]] = {
    "no clusters": ([], {"cluster": 1}),
    "as it is": ([], {}),
    "each loads all": ([], {"multicast": 0}),
    "192 columns": ([], {"tile_n": 192, "stages": 3}),
    WAS: ([(STAGED, ""), (MAP_OF_C, "UIADD3 UR31, UR31, here, URZ;\n" + MAP_OF_C)], {}),
}
FAULT = "CUDA_ERROR_ILLEGAL_INSTRUCTION"


def of_hgemm(name: str, device: str) -> str:
    """Products, right or not."""
    changes, given = HGEMM[name]
    tiling = replace(Tiling(128, 6, cluster=2, group=8), **given)  # type: ignore[arg-type]
    text = SOURCE.read_text()
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    made = turingas.assemble(text, "sm_90a", tiling.defines(), [SOURCE.parent], filename=str(SOURCE))
    off = 0.0
    for m, n, k in ((8, 8, 8), (136, 264, 72), (264, 520, 200)):
        a, b, c, exact = hgemm.matrices(tiling, m, n, k)
        given = lambda *x: (*map(tiling.map, range(3), x), m, n, k)  # noqa: B023, E731
        _, _, c = left(made, "hgemm", *_launch(tiling, m, n), [a, b, c], given, device,
                       shared=tiling.shared, **({"cluster": 2} if tiling.cluster > 1 else {}))  # fmt: skip
        off = max(off, hgemm.error(c, exact))
    return OK if off < hgemm.ROUNDED or not (tiling.loads and tiling.store) else f"relative L2 error {off:.2e}"


def _launch(tiling: Tiling, m: int, n: int) -> tuple[int, int]:
    return tiling.blocks(m, n, 8), hgemm.THREADS


def refused(device: str) -> str:
    """That what was wrong is found: by a card, and by the CPU device, which says why."""
    try:
        return f"ran: {of_hgemm(WAS, device)}"
    except (CudaError, DeviceError) as error:
        return (
            OK if (FAULT if isinstance(error, CudaError) else "in block 0 of the cluster") in str(error) else str(error)
        )


# ---- all -------------------------------------------------------------------------------------------------------------


def probes() -> dict[str, Probe]:
    found = {**of_cuda(), "cuda: multicast of tiles": multicast}
    found |= {f"hgemm: {name}": functools.partial(of_hgemm, name) for name in HGEMM if name != WAS}
    return found | {f"hgemm: {WAS}": refused}


def ask(name: str, device: str) -> str:
    """What a probe says in a process of its own."""
    command = [sys.executable, "-m", "tests.gpu.clusters", "--one", name, "--device", device]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        return f"hangs: nothing in {PATIENCE} s"
    return ((done.stdout + done.stderr).strip().splitlines() or ["dies without a word"])[-1]


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.gpu.clusters", description=__doc__.splitlines()[0])
    parser.add_argument("words", nargs="*", help="probes with one of these in their names; all without any")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    asked = parser.parse_args(words)
    if asked.one:
        print(probes()[asked.one](asked.device))
        return 0
    names = [name for name in probes() if not asked.words or any(word in name for word in asked.words)]
    compiled(), tiles.cubin()  # once, for all processes
    wrong = 0
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for name, said in zip(names, pool.map(lambda name: ask(name, asked.device), names)):
            wrong += said != OK
            print(f"{name}: {said}", flush=True)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
