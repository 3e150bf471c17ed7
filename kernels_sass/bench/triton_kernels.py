"""Triton kernels of the kinds that its tutorials teach, for `turingas bench tune`. Importing this needs Triton.

Each is written for tensors in C order whose sizes are multiples of its tiles. ``CASES`` says how each is launched, and
which configurations Triton may choose from; ``compiled`` makes a cubin of one without a GPU.
"""

import math

import triton
import triton.language as tl


@triton.jit
def softmax(x, y, n, B: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, B)
    v = tl.load(x + row * n + at, mask=at < n, other=-float("inf"))
    e = tl.exp(v - tl.max(v, axis=0))
    tl.store(y + row * n + at, e / tl.sum(e, axis=0), mask=at < n)


@triton.jit
def layer_norm(x, y, scale, shift, n, eps, B: tl.constexpr):
    row = tl.program_id(0)
    total = tl.zeros([B], tl.float32)
    squares = tl.zeros([B], tl.float32)
    for first in range(0, n, B):
        at = first + tl.arange(0, B)
        v = tl.load(x + row * n + at, mask=at < n, other=0.0).to(tl.float32)
        total += v
        squares += v * v
    mean = tl.sum(total, axis=0) / n
    factor = 1 / tl.sqrt(tl.sum(squares, axis=0) / n - mean * mean + eps)
    for first in range(0, n, B):
        at = first + tl.arange(0, B)
        inside = at < n
        v = tl.load(x + row * n + at, mask=inside, other=0.0).to(tl.float32)
        made = (v - mean) * factor * tl.load(scale + at, mask=inside) + tl.load(shift + at, mask=inside)
        tl.store(y + row * n + at, made, mask=inside)


@triton.jit
def matmul(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr):
    number = tl.program_id(0)
    wide, high = tl.cdiv(N, BN), tl.cdiv(M, BM)
    band = number // (GROUP * wide) * GROUP  # blocks of some rows together, so that they share columns in the L2
    rows = min(high - band, GROUP)
    pm, pn = band + number % (GROUP * wide) % rows, number % (GROUP * wide) // rows
    om, on, ok = pm * BM + tl.arange(0, BM), pn * BN + tl.arange(0, BN), tl.arange(0, BK)
    pa, pb = a + om[:, None] * K + ok[None, :], b + ok[:, None] * N + on[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    for _ in range(0, tl.cdiv(K, BK)):
        acc = tl.dot(tl.load(pa), tl.load(pb), acc)
        pa += BK
        pb += BK * N
    tl.store(c + om[:, None] * N + on[None, :], acc.to(c.dtype.element_ty))


@triton.jit
def attention(Q, K, V, out, scale, length, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr):
    head = tl.program_id(1) * length * D
    om, od, on = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, D), tl.arange(0, BN)
    q = tl.load(Q + head + om[:, None] * D + od[None, :])
    most = tl.full([BM], -float("inf"), tl.float32)
    total = tl.zeros([BM], tl.float32)
    acc = tl.zeros([BM, D], tl.float32)
    for first in range(0, length, BN):
        k = tl.load(K + head + (first + on)[None, :] * D + od[:, None])
        score = tl.dot(q, k) * scale
        now = tl.maximum(most, tl.max(score, 1))
        p, faded = tl.math.exp2(score - now[:, None]), tl.math.exp2(most - now)
        v = tl.load(V + head + (first + on)[:, None] * D + od[None, :])
        acc = tl.dot(p.to(v.dtype), v, acc * faded[:, None])
        total = total * faded + tl.sum(p, 1)
        most = now
    tl.store(out + head + om[:, None] * D + od[None, :], (acc / total[:, None]).to(out.dtype.element_ty))


@triton.jit
def grouped(a, b, c, sizes, count, programs, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Several products in one launch: their M, N, K and where their matrices begin stand in ``sizes``, six numbers
    each. Each program takes every ``programs``-th tile of all."""
    tile = tl.program_id(0)
    before = 0
    for group in range(0, count):
        M, N, K = tl.load(sizes + 6 * group), tl.load(sizes + 6 * group + 1), tl.load(sizes + 6 * group + 2)
        first_a, first_b = tl.load(sizes + 6 * group + 3), tl.load(sizes + 6 * group + 4)
        first_c = tl.load(sizes + 6 * group + 5)
        wide = tl.cdiv(N, BN)
        tiles = tl.cdiv(M, BM) * wide
        while tile < before + tiles:
            pm, pn = (tile - before) // wide, (tile - before) % wide
            om, on, ok = pm * BM + tl.arange(0, BM), pn * BN + tl.arange(0, BN), tl.arange(0, BK)
            pa, pb = a + first_a + om[:, None] * K + ok[None, :], b + first_b + ok[:, None] * N + on[None, :]
            acc = tl.zeros((BM, BN), tl.float32)
            for _ in range(0, tl.cdiv(K, BK)):
                acc = tl.dot(tl.load(pa), tl.load(pb), acc)
                pa += BK
                pb += BK * N
            tl.store(c + first_c + om[:, None] * N + on[None, :], acc.to(c.dtype.element_ty))
            tile += programs
        before += tiles


# ---- launches ----------------------------------------------------------------------------------------------------


def configs(*rows):
    """Of triton.autotune, from rows of tile sizes, num_warps and num_stages."""
    return [triton.Config(dict(tiles), num_warps=warps, num_stages=stages) for tiles, warps, stages in rows]


PRODUCT = configs(
    ({"BM": 128, "BN": 256, "BK": 64, "GROUP": 8}, 8, 3), ({"BM": 128, "BN": 128, "BK": 64, "GROUP": 8}, 4, 4),
    ({"BM": 128, "BN": 128, "BK": 32, "GROUP": 8}, 4, 4), ({"BM": 64, "BN": 256, "BK": 32, "GROUP": 8}, 4, 4),
)  # fmt: skip
HEADS = configs(
    *(({"BM": m, "BN": n}, warps, stages) for m, n, warps in ((128, 64, 4), (128, 64, 8), (128, 128, 8), (64, 64, 4))
      for stages in (2, 3))
)  # fmt: skip
ROWS = configs(({}, 4, 1), ({}, 8, 1), ({}, 16, 1))
GROUPS = configs(
    ({"BM": 128, "BN": 128, "BK": 64}, 8, 3), ({"BM": 128, "BN": 128, "BK": 32}, 4, 4),
    ({"BM": 64, "BN": 64, "BK": 32}, 4, 4),
)  # fmt: skip


def grouped_sizes(shapes):
    """The table of ``grouped``, and how many elements A, B and C have."""
    table, ends = [], [0, 0, 0]
    for m, n, k in shapes:
        table += [m, n, k, *ends]
        ends = [ends[0] + m * k, ends[1] + k * n, ends[2] + m * n]
    return table, ends


#: name -> function, configurations, constants. What is launched with them ``launch`` says.
CASES = {
    "softmax": (softmax, ROWS, {"B": 4096}),
    "layer norm": (layer_norm, ROWS, {"B": 1024}),
    "matmul": (matmul, PRODUCT, {}),
    "flash attention": (attention, HEADS, {"D": 64}),
    "grouped GEMM": (grouped, GROUPS, {}),
}


def launch(name, torch):
    """Grid (a function of the configuration), arguments and constants of a case, as tensors of torch on its GPU."""

    def drawn(*shape, dtype=torch.float16):
        return torch.randn(shape, device="cuda", dtype=dtype)

    constants = CASES[name][2]
    if name == "softmax":
        x = drawn(4096, 4000, dtype=torch.float32)
        return lambda meta: (4096,), (x, torch.empty_like(x), 4000), constants
    if name == "layer norm":
        x, scale, shift = drawn(4096, 8192), drawn(8192), drawn(8192)
        return lambda meta: (4096,), (x, torch.empty_like(x), scale, shift, 8192, 1e-5), constants
    if name == "matmul":
        a, b, c = (drawn(4096, 4096) for _ in range(3))
        return lambda meta: (4096 // meta["BM"] * 4096 // meta["BN"],), (a, b, c, 4096, 4096, 4096), constants
    if name == "flash attention":
        q, k, v, o = (drawn(4, 16, 4096, 64) for _ in range(4))
        scale = 1.4427 / math.sqrt(64)
        return lambda meta: (4096 // meta["BM"], 64), (q, k, v, o, scale, 4096), constants
    table, ends = grouped_sizes([(1024, 1024, 1024), (512, 2048, 512), (256, 1024, 4096), (2048, 512, 256)])
    a, b, c = (drawn(size) for size in ends)
    sizes, programs = torch.tensor(table, device="cuda", dtype=torch.int32), 132
    return lambda meta: (programs,), (a, b, c, sizes, 4, programs), constants


def autotuned(name):
    """The kernel of a case, which chooses its configuration when it is first launched."""
    function, choice, _ = CASES[name]
    return triton.autotune(configs=choice, key=[])(function)


TYPES = {"x": "*fp16", "scale": "*fp16", "shift": "*fp16", "eps": "fp32", "sizes": "*i32"}


def compiled(name, arch, number=0):
    """A case in one of its configurations, for a GPU that need not be there: ``arch`` 90 is sm_90."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    function, choice, constants = CASES[name]
    config = choice[number]
    constants = {**constants, **config.kwargs}
    pointers = ("x", "y", "a", "b", "c", "Q", "K", "V", "out", *TYPES)
    types = {}
    for one in function.arg_names:
        pointer = one in pointers and not (one == "K" and name != "flash attention")
        kind = "fp32" if name == "softmax" else "fp16"
        types[one] = "constexpr" if one in constants else "i32"
        if pointer and one not in constants:
            types[one] = TYPES.get(one, f"*{kind}") if name != "softmax" else f"*{kind}"
        if one == "scale" and name == "flash attention":
            types[one] = "fp32"
    options = {"num_warps": config.num_warps, "num_stages": config.num_stages}
    try:
        source = ASTSource(fn=function, signature=types, constexprs=constants)
    except TypeError:  # before Triton 3.2
        types = {one: kind for one, kind in types.items() if kind != "constexpr"}
        source = ASTSource(fn=function, signature=types, constants=constants)
    return triton.compile(source, target=GPUTarget("cuda", arch, 32), options=options)
