"""How the CPU device's tensor cores add up, against what others recorded on GPUs that we do not have.

    git clone https://github.com/north-numerical-computing/MATLAB-tensor-core
    python -m tests.tools.tensor_data MATLAB-tensor-core/model_validation

The files are those of Khattak and Mikaitis, "Accurate Models of NVIDIA Tensor Cores": 5,000 random sums for each GPU
and format, a row of A, a column of B, C and D. FP8 on H100 and H200 went through ``wgmma`` with nothing in C, where D
is FP32; where it is FP16, and on a B200, it went through ``mma``, of which ptxas makes two products of FP16 from
nothing, the pairs of numbers that stand in lower halves of registers first, and then a sum with C.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from turingas.emulate.arrays import Array
from turingas.emulate.semantics.sums import Combine, adder

GPUS = {
    "V100": "sm_70", "A100": "sm_80", "A2": "sm_86", "Ada": "sm_89", "L40S": "sm_89", "H100": "sm_90", "H200": "sm_90",
    "B200": "sm_100",
}  # fmt: skip
KINDS = {"fp16": "F16", "bf16": "BF16", "tf32": "TF32", "E4M3": "E4M3", "E5M2": "E5M2"}


def numbers(path: Path, base: int) -> Array:
    """FP32 by the text of their bits."""
    words = np.array([int(word, base) for word in path.read_text().split()], np.uint32)
    return words.view(np.float32).astype(np.float64)


def compare(folder: Path, gpu: str, kind: str, into: str) -> tuple[int, int]:
    """How many sums there are, and how many differ."""
    here = folder / gpu / kind
    c, d = (numbers(here / f"{name}.txt", 2) for name in (f"c_{gpu}_fp32", f"d_{gpu}_{into}"))
    a, b = (numbers(here / f"{name}_{gpu}_{kind}.txt", 16).reshape(len(c), -1) for name in "ab")
    if into == "fp16":
        c = c.astype(np.float16).astype(np.float64)
    form = {"fp16": "F16", "fp32": "F32"}[into]
    if kind.startswith("E") and (gpu == "B200" or gpu in ("H100", "H200") and into == "fp16"):
        return len(c), int((_as_fp16(adder(GPUS[gpu], ("F16", "F16"), form), a, b, c, into) != d).sum())
    if gpu in ("H100", "H200") and kind.startswith("E"):
        c = np.zeros_like(c)
    add = adder(GPUS[gpu], (KINDS[kind], KINDS[kind]), form)
    found = add(a[:, None], b[:, :, None], c[:, None, None])[:, 0, 0]
    return len(c), int((found != d).sum())


def _as_fp16(add: Combine, a: Array, b: Array, c: Array, into: str) -> Array:
    found = np.zeros((len(c), 1, 1))
    for half in (0, 1):
        k = np.flatnonzero(np.arange(a.shape[1]) // 2 % 2 == half)
        found = add(a[:, None, k], b[:, k, None], found)
    kind = np.float16 if into == "fp16" else np.float32
    return (found[:, 0, 0].astype(kind) + c.astype(kind)).astype(np.float64)


def main(folder: Path) -> int:
    """A line for each GPU and pair of formats; how many sums differ in all."""
    wrong = 0
    for gpu in GPUS:
        for kind in KINDS:
            for into in ("fp16", "fp32"):
                if not (folder / gpu / kind / f"d_{gpu}_{into}.txt").exists():
                    continue
                count, differ = compare(folder, gpu, kind, into)
                print(f"{gpu:5} {kind} -> {into}: {count} sums, {differ} differ")
                wrong += differ
    return wrong


if __name__ == "__main__":
    sys.exit(1 if main(Path(sys.argv[1])) else 0)
