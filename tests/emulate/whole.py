"""Whole products for sm_90a, made by NVRTC (tests/kernels/hopper.cu), of every kind of elements: for the CPU device and
for a GPU, which must leave the same bits."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import loader
from tests.tools import nvrtc

SOURCE = Path(__file__).parents[1] / "kernels" / "hopper.cu"
STEPS, CLUSTERS = 7, 2
Array = np.ndarray[Any, Any]


class Kind(NamedTuple):
    """``text`` and what follows the descriptors, in PTX; ``formats`` of A and B; the type of a register of sums."""

    text: str
    formats: tuple[str, str]
    last: str = ""
    sums: str = "float"
    count: int = 32

    def cubin(self) -> bytes:
        return _compiled(self)


SCALED, TURNED = ", 1, 1", ", 1, 1, 0, 0"
KINDS = {
    kind.text: kind
    for kind in (
        Kind("m64n64k16.f32.f16.f16", ("f16", "f16"), TURNED),
        Kind("m64n64k16.f16.f16.f16", ("f16", "f16"), TURNED, "unsigned", 16),
        Kind("m64n64k16.f32.bf16.bf16", ("bf16", "bf16"), TURNED),
        Kind("m64n64k8.f32.tf32.tf32", ("tf32", "tf32"), SCALED),
        Kind("m64n64k32.f32.e4m3.e4m3", ("e4m3", "e4m3"), SCALED),
        Kind("m64n64k32.f32.e5m2.e4m3", ("e5m2", "e4m3"), SCALED),
        Kind("m64n64k32.f16.e4m3.e5m2", ("e4m3", "e5m2"), SCALED, "unsigned", 16),
        Kind("m64n64k32.s32.s8.s8", ("bits", "bits"), "", "int"),
        Kind("m64n64k32.s32.u8.s8", ("bits", "bits"), "", "int"),
        Kind("m64n64k256.s32.b1.b1.and.popc", ("bits", "bits"), "", "int"),
    )
}


@functools.cache
def _compiled(kind: Kind) -> bytes:
    letter = "f" if kind.sums == "float" else "r"
    defines = {
        "PRODUCT": f'"{kind.text}"', "LAST": f'"{kind.last}"', "SUM": kind.sums, "COUNT": str(kind.count),
        "SUMS": '"' + ", ".join(f"%{n}" for n in range(kind.count)) + '"',
        "OPERANDS": ", ".join(f'"+{letter}"(d[{n}])' for n in range(kind.count)),
        "FROM": f'"%{kind.count}"', "TO": f'"%{kind.count + 1}"',
    }  # fmt: skip
    head = "".join(f"#define {name} {value}\n" for name, value in defines.items())
    return nvrtc.compile_source(head + SOURCE.read_text(), "sm_90a", (), name="hopper.cu")


def elements(rng: np.random.Generator, format: str, rows: int, width: int) -> Array:
    """Rows of ``width`` bytes: numbers whose exponents lie some apart, none of them infinite or no number."""
    if format == "bits":
        return rng.integers(0, 256, (rows, width), np.uint8)
    if format in ("f16", "tf32"):
        made = rng.standard_normal((rows, width // (2 if format == "f16" else 4))) * np.exp2(rng.integers(-4, 5))
        return made.astype(np.float16 if format == "f16" else np.float32).view(np.uint8)
    if format == "bf16":
        sign, exponent, fraction = (rng.integers(*span, (rows, width // 2)) for span in ((0, 2), (118, 133), (0, 128)))
        return (sign << 15 | exponent << 7 | fraction).astype(np.uint16).view(np.uint8)
    bits, low = (3, 1) if format == "e4m3" else (2, 9)  # sums that float16 holds
    sign, exponent, fraction = (rng.integers(*span, (rows, width)) for span in ((0, 2), (low, low + 9), (0, 1 << bits)))
    return (sign << 7 | exponent << bits | fraction).astype(np.uint8)


def product(
    kind: Kind, blocks: int, device: str, send: Callable[[Array], Any] = lambda a: a,
    fetch: Callable[[Any], Array] = lambda a: a, seed: int = 0, **options: Any,
) -> tuple[Array, Any, Array, Array]:  # fmt: skip
    """The sums as the lanes have them, what ``launch`` gives, A and B. ``blocks`` of a cluster: 1 or 2."""
    rng, rows = np.random.default_rng(seed), 64 * blocks * CLUSTERS
    a, b = elements(rng, kind.formats[0], rows, 128 * STEPS), elements(rng, kind.formats[1], 64, 128 * STEPS)
    with loader.load(kind.cubin(), device) as module:
        there = send(a), send(b), send(np.zeros((blocks * CLUSTERS, kind.count, 128), np.uint32))
        maps = [loader.tensor_map(x, (n, 128), swizzle=128) for x, n in ((there[0], 64), (there[1], 64 // blocks))]
        report = module.kernel("product").launch(
            blocks * CLUSTERS, 256, *maps, there[2], STEPS, shared=3 * 2 * 64 * 128, cluster=blocks, **options
        )
        module.synchronize()
        return fetch(there[2]), report, a, b


def unpacked(kind: Kind, sums: Array) -> Array:
    """(rows, 64) of what the lanes have."""
    halves = kind.count == 16
    words = sums.view(np.float16 if halves else np.float32 if kind.sums == "float" else np.int32)
    words = words.reshape(len(sums), kind.count, 128, -1).transpose(0, 1, 3, 2).reshape(len(sums), 32, 128)
    n, t = np.arange(32)[:, None], np.arange(128)
    found = np.zeros((len(sums), 64, 64))
    found[:, t // 32 * 16 + t % 32 // 4 + n // 2 % 2 * 8, n // 4 * 8 + t % 4 * 2 + n % 2] = words
    return found.reshape(-1, 64)
