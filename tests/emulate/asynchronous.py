"""Kernels of tests/kernels/asynchronous.cu, what launches them, and what they come to in numpy: for the CPU device, for
a GPU, and for ``late_faults``."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import loader
from tests.tools import nvrtc

SOURCE = Path(__file__).parents[1] / "kernels" / "asynchronous.cu"
Array = np.ndarray[Any, Any]
Put = Callable[[Array], Any]  # brings an array to where the kernel runs


class Launch(NamedTuple):
    """``arrays``: what is written, and what it should be then, up to ``error``."""

    grid: tuple[int, ...]
    block: int
    args: list[Any]
    shared: int
    arrays: list[tuple[Any, Array]]
    error: float = 0


@functools.cache
def cubin() -> bytes:
    return nvrtc.compile_source(SOURCE.read_text(), "sm_90a", (), SOURCE.name)


def product(put: Put, m: int = 256, n: int = 64, steps: int = 5) -> Launch:
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-8, 9, (rows, 64 * steps)).astype(np.float16) / np.float16(8) for rows in (m, n))
    c = put(np.zeros((m, n), np.float16))
    boxes = (put(a), (128, 64)), (put(b), (32, 64)), (c, (64, 64))
    maps = [loader.tensor_map(x, box, swizzle=128) for x, box in boxes]
    wanted = (a.astype(float) @ b.astype(float).T).astype(np.float16)  # the sums are exact
    return Launch((m // 128, n // 64), 384, [*maps, np.int32(steps)], 3 * 24576 + 16384, [(c, wanted)])


def attention(put: Put, queries: int = 64, keys: int = 256) -> Launch:
    rng = np.random.default_rng(1)
    q, k, v = (rng.normal(size=(rows, 64)).astype(np.float16) for rows in (queries, keys, keys))
    weight = np.exp(q.astype(float) @ k.astype(float).T / 8)
    wanted = weight / weight.sum(axis=1, keepdims=True) @ v.astype(float)
    out = put(np.zeros((queries, 64), np.float32))
    maps = [loader.tensor_map(put(x), (64, 64), swizzle=128) for x in (q, k, v)]
    scale = np.float32(0.125 * np.log2(np.e))
    return Launch((queries // 64,), 160, [*maps, out, np.int32(keys), scale], 5 * 8192, [(out, wanted)], 2e-3)


def convolution(put: Put) -> Launch:
    rng, (images, height, width, count) = np.random.default_rng(2), (2, 5, 9, 32)
    x = rng.integers(-4, 5, (images, height, width, 64)).astype(np.float16)
    filters = rng.integers(-4, 5, (count, 9, 64)).astype(np.float16)
    padded = np.pad(x.astype(float), ((0, 0), (1, 1), (1, 1), (0, 0)))
    windows = [padded[:, r : r + height, s : s + width] for r in range(3) for s in range(3)]
    wanted = sum(window @ filters[:, n].astype(float).T for n, window in enumerate(windows)).reshape(-1, count)
    pixels = images * height * width
    out = put(np.zeros((pixels, count), np.float32))
    maps = [
        loader.tensor_map(put(x), channels=64, pixels=64, lower=(-1, -1), upper=(-1, -1), swizzle=128),
        loader.tensor_map(put(filters.reshape(count, -1)), (32, 64), swizzle=128),
    ]
    args = [*maps, out, *map(np.int32, (height, width, pixels, count))]
    return Launch((-(-pixels // 64), count // 32), 128, args, 0, [(out, wanted.astype(np.float32))])


def ring(put: Put, clusters: int = 2, rounds: int = 5) -> Launch:
    x = np.random.default_rng(3).integers(0, 1000, (clusters, 4, 64, 4)).astype(np.int32)
    wanted = np.roll(x, rounds, axis=1)
    wanted[..., 0] += rounds
    wanted[..., 3] = np.roll(3 * wanted[..., 1], 1, axis=1)
    bins = [np.bincount(cluster[..., 2].reshape(-1) % 16, minlength=16) for cluster in x]
    counts = np.repeat(np.array(bins, np.uint32)[:, None], 4, axis=1)
    out, counted = put(np.zeros_like(x)), put(np.zeros_like(counts))
    return Launch((4 * clusters,), 64, [put(x), out, counted, np.int32(rounds)], 0, [(out, wanted), (counted, counts)])


KERNELS: dict[str, Callable[[Put], Launch]] = {
    "product": product, "attention": attention, "convolution": convolution, "ring": ring,
}  # fmt: skip
