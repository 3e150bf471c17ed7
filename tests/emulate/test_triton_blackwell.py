"""Kernels that Triton 3.6 or later compiles for sm_100 and sm_120, on the CPU device, against numpy. The tests' own
environment has an older Triton, which knows neither; ``make test-triton`` installs a newer one in a folder of its own
(1 GB), which TURINGAS_TRITON names."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import turingas
from turingas.emulate import launch
from turingas.emulate.arrays import Array

FOLDER = os.environ.get("TURINGAS_TRITON", "")
SECONDS = 10  # of processor time that a kernel may take
ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.skipif(not FOLDER, reason="needs Triton 3.6 or later in a folder: make test-triton")


@pytest.fixture(scope="module", params=[100, 120], ids=["sm_100", "sm_120"])
def kernels(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[int, Path]:
    """All of them, compiled for an architecture."""
    folder = tmp_path_factory.mktemp("triton")
    paths = os.pathsep.join([FOLDER, str(ROOT)])
    environment = {**os.environ, "PYTHONPATH": paths, "TRITON_CACHE_DIR": str(folder / "cache")}
    command = [sys.executable, "-W", "ignore", "-m", "tests.emulate.triton_kernels", str(request.param), str(folder)]
    made = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert made.returncode == 0, made.stderr[-2000:]
    return request.param, folder


def run(kernels: tuple[int, Path], name: str, grid: tuple[int, ...], args: list[Any], uses: str, **options: Any) -> Any:
    """A kernel, which ``uses`` an instruction on sm_100, in its time."""
    target, folder = kernels
    facts = json.loads((folder / f"{name}.json").read_text())
    cubin = turingas.Cubin.from_bytes((folder / f"{name}.cubin").read_bytes())
    assert target != 100 or f" {uses}" in turingas.disassemble(cubin)
    scratch = np.zeros(max(1, facts["scratch"] * int(np.prod(grid))), np.uint8)
    whole = [*args, scratch, 0][: len(cubin.kernels[0].params)]
    begin = time.process_time()
    report = launch(cubin, None, grid, 32 * facts["warps"], whole, shared=facts["shared"], **options)
    assert options or time.process_time() - begin < SECONDS
    return report


def normal(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float16)


def test_matmul(kernels: tuple[int, Path]) -> None:
    """512 x 512 x 512 in FP16; a part of it also under the checks of the device."""
    a, b, c = normal(0, 512, 512), normal(1, 512, 512), np.zeros((512, 512), np.float32)
    run(kernels, "matmul", (4, 4), [a, b, c, 512, 512], "UTCHMMA")
    assert np.abs(c - a.astype(np.float64) @ b.astype(np.float64)).max() < 2e-4
    a, b, c = normal(2, 128, 128), normal(3, 128, 128), np.zeros((128, 128), np.float32)
    report = run(kernels, "matmul", (1, 1), [a, b, c, 128, 128], "UTCHMMA", strict=True, races=True)
    assert not report.hazards and not report.races
    assert np.abs(c - a.astype(np.float64) @ b.astype(np.float64)).max() < 2e-4


def test_attention(kernels: tuple[int, Path]) -> None:
    """Two heads of 512 x 64; on sm_100 the weights are in tensor memory."""
    q, k, v = (normal(n, 2, 512, 64) for n in range(3))
    out = np.zeros_like(q)
    scale = np.float32(64**-0.5 * np.log2(np.e))
    run(kernels, "attention", (4, 2), [q, k, v, out, scale, 512, 512 * 64], "UTCHMMA tmem")
    score = np.einsum("zmd,znd->zmn", q.astype(np.float64), k) / 8
    weight = np.exp(score - score.max(axis=-1, keepdims=True))
    assert np.abs(out - weight / weight.sum(axis=-1, keepdims=True) @ v).max() < 2e-3


def test_persistent_matmul(kernels: tuple[int, Path]) -> None:
    """Two programs, four tiles, all copied by the copy engine."""
    a, b, c = normal(0, 256, 256), normal(1, 256, 256), np.zeros((256, 256), np.float16)
    run(kernels, "persistent_tma", (2,), [a, b, c, 256, 256, 256], "UTMALDG.2D")
    wanted = a.astype(np.float64) @ b.astype(np.float64).T
    assert np.abs(c - wanted).max() <= 2.0**-5  # half of the last place of FP16 at 64


def test_scaled_matmul(kernels: tuple[int, Path]) -> None:
    """FP8 with a scale for each 32 elements."""
    rng = np.random.default_rng(0)
    codes = [rng.integers(0x28, 0x40, (128, 256)) | rng.integers(0, 2, (128, 256)) << 7 for _ in range(2)]
    scales = [rng.integers(120, 130, (128, 8)) for _ in range(2)]
    real = [
        np.where(code >> 7, -1, 1) * (1 + (code & 7) / 8) * 2.0 ** ((code >> 3 & 15) - 7)
        * np.repeat(2.0 ** (scale - 127), 32, axis=1)
        for code, scale in zip(codes, scales)
    ]  # fmt: skip
    c = np.zeros((128, 128), np.float32)
    (a, b), (p, q) = ([x.astype(np.uint8) for x in each] for each in (codes, scales))
    run(kernels, "scaled", (1,), [a, p, b, q, c, 256], "UTCQMMA")
    assert np.abs(c - real[0] @ real[1].T).max() < 1e-3


def test_softmax(kernels: tuple[int, Path]) -> None:
    x = np.random.default_rng(0).normal(size=(8, 1000)).astype(np.float32)
    y = np.zeros_like(x)
    run(kernels, "softmax", (8,), [x, y, 1000], "MUFU.EX2")
    weight = np.exp(x - x.max(axis=1, keepdims=True))
    assert np.abs(y - weight / weight.sum(axis=1, keepdims=True)).max() < 1e-7


def test_layer_norm(kernels: tuple[int, Path]) -> None:
    x, y = normal(0, 8, 1300), np.zeros((8, 1300), np.float16)
    weight, bias = np.random.default_rng(1).normal(size=(2, 1300)).astype(np.float32)
    run(kernels, "layer_norm", (8,), [x, y, weight, bias, 1300, np.float32(1e-5)], "MUFU")
    whole = x.astype(np.float64)
    whole = (whole - whole.mean(axis=1, keepdims=True)) / np.sqrt(whole.var(axis=1, keepdims=True) + 1e-5)
    assert np.abs(y - (whole * weight + bias)).max() < 5e-3


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_100"])
def test_descriptors_of_the_host(arch: str, tmp_path: Path) -> None:
    """Tensor maps from sm_90 on; on sm_100 with warps that only copy, and warps that only multiply."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([FOLDER, str(ROOT)]), "TRITON_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-W", "ignore", "-m", "tests.emulate.triton_descriptors", arch]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
