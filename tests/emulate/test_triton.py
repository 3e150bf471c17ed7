"""Kernels that Triton compiles for sm_90a, with products of warp groups, on the CPU device: right, and quick enough."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import loader
import turingas
from turingas.emulate import launch

pytest.importorskip("triton", reason="Triton compiles the kernels of these tests")
from tests.emulate.triton_kernels import attention, compiled, matmul, persistent  # noqa: E402 (which imports it)

SECONDS = 10  # of processor time that a kernel may take
SIZE = 512


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Triton's own, which tests leave alone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_CACHE_DIR", str(tmp_path_factory.mktemp("triton")))
        yield


def matmul_kernel(arch: int = 90) -> Any:
    types = {"a": "*fp16", "b": "*fp16", "c": "*fp32", "k_size": "i32", "stride": "i32"}
    return compiled(matmul, types, {"M": 128, "N": 128, "K": 64}, arch, num_warps=8, num_stages=3)


def attention_kernel(arch: int = 90) -> Any:
    types = {**dict.fromkeys(("q", "k", "v", "out"), "*fp16"), "scale": "fp32", "n": "i32", "head": "i32"}
    return compiled(attention, types, {"M": 128, "N": 64, "D": 64}, arch, num_warps=4, num_stages=2)


def run(kernel: Any, grid: tuple[int, ...], args: list[Any], **options: Any) -> Any:
    cubin = kernel.asm["cubin"]
    assert " HGMMA." in turingas.disassemble(turingas.Cubin.from_bytes(cubin))
    begin = time.process_time()
    threads = 32 * kernel.metadata.num_warps
    report = launch(cubin, None, grid, threads, args, shared=kernel.metadata.shared, **options)
    assert options or time.process_time() - begin < SECONDS
    return report


def test_matmul() -> None:
    """512 x 512 x 512 in FP16."""
    kernel = matmul_kernel()
    rng = np.random.default_rng(0)
    a, b = (rng.normal(size=(SIZE, SIZE)).astype(np.float16) for _ in range(2))
    c = np.zeros((SIZE, SIZE), np.float32)
    run(kernel, (SIZE // 128, SIZE // 128), [a, b, c, SIZE, SIZE])
    assert np.abs(c - a.astype(np.float64) @ b.astype(np.float64)).max() < 2e-4
    small = np.zeros((128, 128), np.float32)
    report = run(
        kernel, (1, 1), [np.ascontiguousarray(a[:128, :128]), np.ascontiguousarray(b[:128, :128]), small, 128, 128],
        strict=True, races=True, written=True,
    )  # fmt: skip
    assert not report.hazards and not report.races


def test_persistent_matmul_with_tensor_maps() -> None:
    """Two programs compute six tiles; the edges are not whole."""
    if not hasattr(pytest.importorskip("triton.language"), "_experimental_descriptor_load"):
        pytest.skip("this Triton makes its tensor maps in another way")
    types = {**dict.fromkeys("abc", "*i8"), **dict.fromkeys(("tiles", "across", "k_size"), "i32")}
    kernel = compiled(persistent, types, {"M": 64, "N": 64, "K": 64}, 90, num_warps=4)
    rng = np.random.default_rng(2)
    a, b = (rng.normal(size=size).astype(np.float16) for size in ((136, 96), (96, 72)))
    c = np.zeros((136, 72), np.float16)
    maps = [loader.tensor_map(array, (64, 64), swizzle=128) for array in (a, b, c)]
    report = run(kernel, (2,), [*maps, 6, 2, 96], races=True)
    assert not report.races
    assert np.abs(c - a.astype(np.float64) @ b.astype(np.float64)).max() < 2e-2


def test_attention() -> None:
    """Two heads of 512 x 64, the weights from registers."""
    kernel = attention_kernel()
    rng = np.random.default_rng(1)
    q, k, v = (rng.normal(size=(2, SIZE, 64)).astype(np.float16) for _ in range(3))
    out = np.zeros_like(q)
    run(kernel, (SIZE // 128, 2), [q, k, v, out, np.float32(64**-0.5 * np.log2(np.e)), SIZE, SIZE * 64])
    score = np.einsum("zmd,znd->zmn", q.astype(np.float64), k) / 8
    weight = np.exp(score - score.max(axis=-1, keepdims=True))
    truth = weight / weight.sum(axis=-1, keepdims=True) @ v
    assert np.abs(out - truth).max() < 2e-3
