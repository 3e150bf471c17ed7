"""Kernels in Triton's language, and a program that compiles them for an architecture in a process of its own, so that
the Triton that does it need not be the one of the tests::

    PYTHONPATH=folder:. python -m tests.emulate.triton_kernels 100 build/triton
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import triton
import triton.language as tl


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


@triton.jit
def persistent(a, b, c, tiles, across, k_size, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
        row, column = tile // across * M, tile % across * N
        total = tl.zeros((M, N), tl.float32)
        for k in range(0, k_size, K):
            left = tl._experimental_descriptor_load(a, [row, k], [M, K], tl.float16)
            right = tl._experimental_descriptor_load(b, [k, column], [K, N], tl.float16)
            total = tl.dot(left, right, total)
        tl._experimental_descriptor_store(c, total.to(tl.float16), [row, column])


@triton.jit
def softmax(x, y, n, N: tl.constexpr):
    columns = tl.arange(0, N)
    value = tl.load(x + tl.program_id(0) * n + columns, mask=columns < n, other=-float("inf"))
    weight = tl.exp(value - tl.max(value, axis=0))
    tl.store(y + tl.program_id(0) * n + columns, weight / tl.sum(weight, axis=0), mask=columns < n)


@triton.jit
def layer_norm(x, y, weight, bias, n, eps, N: tl.constexpr):
    x += tl.program_id(0) * n
    y += tl.program_id(0) * n
    total = tl.zeros([N], tl.float32)
    for at in range(0, n, N):
        columns = at + tl.arange(0, N)
        total += tl.load(x + columns, mask=columns < n, other=0.0).to(tl.float32)
    mean = tl.sum(total, axis=0) / n
    squares = tl.zeros([N], tl.float32)
    for at in range(0, n, N):
        columns = at + tl.arange(0, N)
        value = tl.load(x + columns, mask=columns < n, other=0.0).to(tl.float32)
        value = tl.where(columns < n, value - mean, 0.0)
        squares += value * value
    factor = 1 / tl.sqrt(tl.sum(squares, axis=0) / n + eps)
    for at in range(0, n, N):
        columns = at + tl.arange(0, N)
        here = columns < n
        value = (tl.load(x + columns, mask=here, other=0.0).to(tl.float32) - mean) * factor
        value = value * tl.load(weight + columns, mask=here) + tl.load(bias + columns, mask=here)
        tl.store(y + columns, value.to(y.dtype.element_ty), mask=here)


@triton.jit
def scaled(a, scale_a, b, scale_b, c, k_size, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    rows, columns, inner, blocks = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K), tl.arange(0, K // 32)
    total = tl.zeros((M, N), tl.float32)
    for at in range(0, k_size, K):
        x = tl.load(a + rows[:, None] * k_size + at + inner[None, :])
        y = tl.load(b + columns[None, :] * k_size + at + inner[:, None])
        p = tl.load(scale_a + rows[:, None] * (k_size // 32) + at // 32 + blocks[None, :])
        q = tl.load(scale_b + columns[:, None] * (k_size // 32) + at // 32 + blocks[None, :])
        total = tl.dot_scaled(x, p, "e4m3", y, q, "e4m3", total)
    tl.store(c + rows[:, None] * N + columns[None, :], total)


@triton.jit
def persistent_tma(a, b, c, m, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, PROGRAMS: tl.constexpr):
    of_a = tl.make_tensor_descriptor(a, [m, k], [k, 1], [M, K])
    of_b = tl.make_tensor_descriptor(b, [n, k], [k, 1], [N, K])
    of_c = tl.make_tensor_descriptor(c, [m, n], [n, 1], [M, N])
    across = n // N
    for tile in tl.range(tl.program_id(0), m // M * across, PROGRAMS, flatten=True):
        row, column = tile // across * M, tile % across * N
        total = tl.zeros((M, N), tl.float32)
        for at in range(0, k, K):
            total = tl.dot(of_a.load([row, at]), of_b.load([column, at]).T, total)
        of_c.store([row, column], total.to(tl.float16))


#: kernel: its parameters, its sizes, and options
JOBS: dict[str, tuple[Any, dict[str, str], dict[str, int], dict[str, int]]] = {
    "matmul": (
        matmul, {"a": "*fp16", "b": "*fp16", "c": "*fp32", "k_size": "i32", "stride": "i32"},
        {"M": 128, "N": 128, "K": 64}, {"num_warps": 8, "num_stages": 3},
    ),
    "attention": (
        attention, {**dict.fromkeys(("q", "k", "v", "out"), "*fp16"), "scale": "fp32", "n": "i32", "head": "i32"},
        {"M": 128, "N": 64, "D": 64}, {"num_warps": 4, "num_stages": 2},
    ),
    "softmax": (softmax, {"x": "*fp32", "y": "*fp32", "n": "i32"}, {"N": 1024}, {"num_warps": 4}),
    "layer_norm": (
        layer_norm, {"x": "*fp16", "y": "*fp16", "weight": "*fp32", "bias": "*fp32", "n": "i32", "eps": "fp32"},
        {"N": 512}, {"num_warps": 4},
    ),
    "scaled": (
        scaled, {**dict.fromkeys(("a", "b"), "*fp8e4nv"), **dict.fromkeys(("scale_a", "scale_b"), "*u8"), "c": "*fp32",
                 "k_size": "i32"},
        {"M": 128, "N": 128, "K": 128}, {"num_warps": 4},
    ),
    "persistent_tma": (
        persistent_tma, {**dict.fromkeys(("a", "b", "c"), "*fp16"), **dict.fromkeys(("m", "n", "k"), "i32")},
        {"M": 128, "N": 128, "K": 64, "PROGRAMS": 2}, {"num_warps": 4, "num_stages": 3},
    ),
}  # fmt: skip

WHOLE = ("matmul", "attention", "scaled", "persistent_tma")  # whose numbers are multiples of 16


def compiled(
    fn: Any, types: dict[str, str], sizes: dict[str, int], arch: int = 90, whole: bool = True, **options: int
) -> Any:
    """A kernel for sm_``arch``. ``types``: of the parameters, in any order. Arrays are multiples of 16, and so with
    ``whole`` are all numbers but floats: without that nothing is copied asynchronously."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    types = {name: types[name] for name in fn.arg_names if name in types}
    aligned = [n for n, type in enumerate(types.values()) if type[0] == "*" or whole and type != "fp32"]
    try:
        from triton.compiler.compiler import AttrsDescriptor

        attrs = AttrsDescriptor(divisible_by_16=aligned, equal_to_1=())
        source = ASTSource(fn=fn, signature=types, constants=sizes, attrs=attrs)
    except (ImportError, TypeError):  # newer ones
        signature = {**types, **dict.fromkeys(sizes, "constexpr")}
        attrs = {(n,): [["tt.divisibility", 16]] for n in aligned}
        source = ASTSource(fn=fn, signature=signature, constexprs=sizes, attrs=attrs)
    return triton.compile(source, target=GPUTarget("cuda", arch, 32), options=options)


def main(target: int, folder: Path, names: list[str]) -> None:
    """Writes kernel.cubin and kernel.json of each job."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in names or JOBS:
        fn, types, sizes, options = JOBS[name]
        kernel = compiled(fn, types, sizes, target, whole=name in WHOLE, **options)
        (folder / f"{name}.cubin").write_bytes(kernel.asm["cubin"])
        facts = {"shared": kernel.metadata.shared, "warps": kernel.metadata.num_warps, "triton": triton.__version__}
        facts["scratch"] = getattr(kernel.metadata, "global_scratch_size", 0)
        (folder / f"{name}.json").write_text(json.dumps(facts))


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
