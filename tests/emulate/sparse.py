"""Kernels with mma.sp, a product of a sparse A, in all shapes, and operands for them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

WARPS = 64
E4M3, E5M2 = (0x00, 0x38, 0x40, 0xB8), (0x00, 0x3C, 0x40, 0xBC)  # 0, 1, 2, -1


class Kind(NamedTuple):
    """PTX's shape and types, registers of A and B, sparsity selectors, and how wide an element is."""

    shape: str
    types: str
    a: int
    b: int
    selectors: int
    bits: int


KINDS = [
    Kind("m16n8k16", "f32.f16.f16.f32", 2, 2, 4, 16), Kind("m16n8k32", "f32.f16.f16.f32", 4, 4, 2, 16),
    Kind("m16n8k8", "f32.tf32.tf32.f32", 2, 2, 4, 32), Kind("m16n8k16", "f32.tf32.tf32.f32", 4, 4, 2, 32),
    Kind("m16n8k32", "s32.s8.u8.s32", 2, 2, 2, 8), Kind("m16n8k64", "s32.s8.u8.s32", 4, 4, 1, 8),
    Kind("m16n8k64", "s32.s4.u4.s32", 2, 2, 2, 4), Kind("m16n8k128", "s32.s4.u4.s32", 4, 4, 1, 4),
    Kind("m16n8k64", "f32.e4m3.e5m2.f32", 4, 4, 1, 8),
]  # fmt: skip
CASES = [(kind, selector) for kind in KINDS for selector in range(kind.selectors)]


def name(kind: Kind, selector: int) -> str:
    return f"{kind.shape}_{kind.types}_{selector}".replace(".", "_")


def source(fp8: bool = True) -> str:
    """A kernel for each case: 13 registers of each lane in, 4 out. ``fp8``: those too; sm_80 has none."""
    made = []
    for kind, selector in CASES:
        if "e4m3" in kind.types and not fp8:
            continue
        real = kind.types.startswith("f32")
        letter, c_type = ("f", "float") if real else ("r", "int")
        places = [f"%{n}" for n in range(8 + kind.a + kind.b + 1)]
        d, a, places = places[:4], places[4 : 4 + kind.a], places[4 + kind.a :]
        b, c, meta = places[: kind.b], places[kind.b : kind.b + 4], places[kind.b + 4]
        groups = ", ".join("{" + ", ".join(one) + "}" for one in (d, a, b, c))
        reads = [f'"r"(in[{n}])' for n in range(kind.a)] + [f'"r"(in[{4 + n}])' for n in range(kind.b)]
        reads += [f'"{letter}"(c[{n}])' for n in range(4)] + ['"r"(in[12])']
        made.append(f"""
extern "C" __global__ void {name(kind, selector)}(const unsigned* all, {c_type}* out) {{
    int lane = blockIdx.x * 32 + threadIdx.x;
    const unsigned* in = all + 13 * lane;
    const {c_type}* c = reinterpret_cast<const {c_type}*>(in + 8);
    {c_type} d[4];
    asm volatile("mma.sp::ordered_metadata.sync.aligned.{kind.shape}.row.col.{kind.types} {groups}, {meta}, {selector};"
        : {", ".join(f'"={letter}"(d[{n}])' for n in range(4))} : {", ".join(reads)});
    for (int n = 0; n < 4; n++) out[4 * lane + n] = d[n];
}}""")
    return "\n".join(made)


def operands(kind: Kind) -> np.ndarray:
    """Registers of all lanes, (WARPS, 32, 13): small numbers, and metadata that name two of four in order, or one of
    two."""
    rng = np.random.default_rng(5)
    made = np.zeros((WARPS, 32, 13), np.uint32)
    if kind.bits == 16:
        made[..., :8] = rng.integers(-8, 9, (WARPS, 32, 16)).astype(np.float16).view(np.uint32)
    elif kind.bits == 32:
        made[..., :8] = rng.integers(-8, 9, (WARPS, 32, 8)).astype(np.float32).view(np.uint32)
    elif kind.types.startswith("f32"):
        made[..., :4] = rng.choice(np.array(E4M3, np.uint8), (WARPS, 32, 16)).view(np.uint32)
        made[..., 4:8] = rng.choice(np.array(E5M2, np.uint8), (WARPS, 32, 16)).view(np.uint32)
    else:
        made[..., :8] = rng.integers(0, 1 << 32, (WARPS, 32, 8), np.uint32)
    pairs = [0b0100, 0b1000, 0b1100, 0b1001, 0b1101, 0b1110] if kind.bits != 32 else [0b0100, 0b1110]
    for n in range(8):
        made[..., 12] |= rng.choice(np.array(pairs, np.uint32), (WARPS, 32)) << np.uint32(4 * n)
    return made
