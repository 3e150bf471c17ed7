"""Kernels that Triton compiles for sm_90a, with products of warp groups, on the CPU device: right, and quick enough."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import turingas
from turingas.emulate import launch

triton = pytest.importorskip("triton", reason="Triton compiles the kernels of these tests")
tl = pytest.importorskip("triton.language")

SECONDS = 10  # of processor time that a kernel may take
SIZE = 512


@triton.jit
def matmul(a, b, c, k_size, stride, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    rows, columns, inner = (
        tl.program_id(0) * M + tl.arange(0, M),
        tl.program_id(1) * N + tl.arange(0, N),
        tl.arange(0, K),
    )
    at_a, at_b = a + rows[:, None] * k_size + inner[None, :], b + inner[:, None] * stride + columns[None, :]
    total = tl.zeros((M, N), tl.float32)
    for _ in range(0, k_size, K):
        total = tl.dot(tl.load(at_a), tl.load(at_b), total)
        at_a += K
        at_b += K * stride
    tl.store(c + rows[:, None] * stride + columns[None, :], total)


@triton.jit
def attention(q, k, v, out, scale, n, head, M: tl.constexpr, N: tl.constexpr, D: tl.constexpr):
    start = tl.program_id(1) * head
    rows, inner, columns = tl.program_id(0) * M + tl.arange(0, M), tl.arange(0, D), tl.arange(0, N)
    query = tl.load(q + start + rows[:, None] * D + inner[None, :])
    most, total = tl.full([M], -float("inf"), tl.float32), tl.zeros([M], tl.float32)
    found = tl.zeros([M, D], tl.float32)
    for at in range(0, n, N):
        keys = tl.load(k + start + (at + columns)[None, :] * D + inner[:, None])
        score = tl.dot(query, keys) * scale
        higher = tl.maximum(most, tl.max(score, 1))
        weight, fade = tl.math.exp2(score - higher[:, None]), tl.math.exp2(most - higher)
        total = total * fade + tl.sum(weight, 1)
        values = tl.load(v + start + (at + columns)[:, None] * D + inner[None, :])
        found = tl.dot(weight.to(query.dtype), values, found * fade[:, None])
        most = higher
    tl.store(out + start + rows[:, None] * D + inner[None, :], (found / total[:, None]).to(out.dtype.element_ty))


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Triton's own, which tests leave alone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_CACHE_DIR", str(tmp_path_factory.mktemp("triton")))
        yield


def compiled(fn: Any, types: dict[str, str], sizes: dict[str, int], **options: int) -> Any:
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    try:
        source = ASTSource(fn=fn, signature=types, constants=sizes)
    except TypeError:
        source = ASTSource(fn=fn, signature={**types, **dict.fromkeys(sizes, "constexpr")}, constexprs=sizes)
    return triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)


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
    types = {"a": "*fp16", "b": "*fp16", "c": "*fp32", "k_size": "i32", "stride": "i32"}
    kernel = compiled(matmul, types, {"M": 128, "N": 128, "K": 64}, num_warps=8, num_stages=3)
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


def test_attention() -> None:
    """Two heads of 512 x 64, the weights from registers."""
    types = {**dict.fromkeys(("q", "k", "v", "out"), "*fp16"), "scale": "fp32", "n": "i32", "head": "i32"}
    kernel = compiled(attention, types, {"M": 128, "N": 64, "D": 64}, num_warps=4, num_stages=2)
    rng = np.random.default_rng(1)
    q, k, v = (rng.normal(size=(2, SIZE, 64)).astype(np.float16) for _ in range(3))
    out = np.zeros_like(q)
    run(kernel, (SIZE // 128, 2), [q, k, v, out, np.float32(64**-0.5 * np.log2(np.e)), SIZE, SIZE * 64])
    score = np.einsum("zmd,znd->zmn", q.astype(np.float64), k) / 8
    weight = np.exp(score - score.max(axis=-1, keepdims=True))
    truth = weight / weight.sum(axis=-1, keepdims=True) @ v
    assert np.abs(out - truth).max() < 2e-3
