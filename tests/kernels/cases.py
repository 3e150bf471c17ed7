"""The test kernels: how each is launched, with what, and what numpy says it must leave in memory.

A case is a function that makes, from a seeded random generator, the arguments of a launch and the truth. The buffers
that a kernel writes come first among its parameters, and the truth is a list of what they hold afterwards, in that
order (None: not compared). Arrays are buffers, everything else is passed as the numpy scalar that it is.

Truth is exact, bit for bit (all NaN are one), unless the case says ``near=(relative, absolute)``. What the GPU and the
emulator leave is compared bit for bit too, NaN included, unless the case says ``devices=(relative, absolute)``.
"""

from __future__ import annotations

import functools
import hashlib
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tests.kernels import exact
from tests.tools import nvrtc
from turingas.assembler import assemble

FOLDER = Path(__file__).parent
ARCHS = ("sm_70", "sm_75", "sm_80", "sm_86", "sm_89", "sm_90")
OPTIONS = {"fast.cu": ("--use_fast_math",)}

Built = tuple[list[Any], list[Any]]
Near = tuple[float, float]


@dataclass(frozen=True)
class Case:
    """``source`` lies beside this file; ``shared`` is dynamic shared memory in bytes; ``since`` the first architecture
    that has the kernel's instructions."""

    name: str
    source: str
    kernel: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    make: Callable[[np.random.Generator], Built]
    shared: int = 0
    since: int = 70
    only: tuple[str, ...] = ARCHS
    near: Near | None = None
    devices: Near | None = None

    @property
    def archs(self) -> tuple[str, ...]:
        return tuple(a for a in self.only if int(a[3:]) >= self.since)

    def build(self) -> Built:
        """Arguments and truth, the same at every call."""
        seed = int.from_bytes(hashlib.sha256(self.name.encode()).digest()[:8], "little")
        with np.errstate(all="ignore"):
            return self.make(np.random.default_rng(seed))

    def cubin(self, arch: str) -> bytes:
        return cubin(self.source, arch)


@functools.cache
def cubin(source: str, arch: str) -> bytes:
    """The source, compiled or assembled. TURINGAS_CUBINS names a folder where compiled ones are kept, for machines
    without NVRTC."""
    path = FOLDER / source
    if path.suffix == ".sass":
        return assemble(path.read_text(), arch=arch, filename=str(path)).to_bytes()
    options = OPTIONS.get(source, ())
    digest = hashlib.sha256(repr((path.read_text(), arch, options)).encode()).hexdigest()[:16]
    folder = os.environ.get("TURINGAS_CUBINS")
    kept = Path(folder, f"{path.stem}-{arch}-{digest}.cubin") if folder else None
    if kept and kept.exists():
        return kept.read_bytes()
    data = nvrtc.compile_source(path.read_text(), arch, options, name=source)
    if kept:
        kept.parent.mkdir(parents=True, exist_ok=True)
        made = kept.with_suffix(f".{os.getpid()}")
        made.write_bytes(data)
        made.replace(kept)
    return data


def difference(found: np.ndarray, truth: Any, near: Near | None, one_nan: bool = True) -> str:
    """What is wrong with ``found``; empty if nothing is."""
    truth = np.asarray(truth)
    assert truth.size == found.size and truth.dtype == found.dtype, (truth.dtype, truth.shape, found.dtype, found.shape)
    found, truth = found.ravel(), truth.ravel()
    bits = np.dtype(f"u{found.itemsize}")
    good = found.view(bits) == truth.view(bits)
    if found.dtype.kind == "f":
        if one_nan:
            good |= np.isnan(found) & np.isnan(truth)
        if near:
            with np.errstate(invalid="ignore"):
                distance = np.abs(found.astype(np.float64) - truth.astype(np.float64))
                good |= np.isfinite(truth) & (distance <= near[1] + near[0] * np.abs(truth.astype(np.float64)))
    wrong = np.flatnonzero(~good)
    if not wrong.size:
        return ""
    i = wrong[0]
    shown = f"{found[i]!r} ({found.view(bits)[i]:#x}), not {truth[i]!r} ({truth.view(bits)[i]:#x})"
    return f"{wrong.size} of {found.size} differ; [{i}] is {shown}; places {wrong[:8].tolist()}"


def largest(a: np.ndarray, b: np.ndarray) -> float:
    """The largest difference of two buffers: relative to the larger of 1 and the value for floats, plain otherwise."""
    if a.dtype.kind != "f":
        return float(np.max(np.abs(a.astype(object) - b.astype(object)))) if a.size else 0.0
    x, y = a.astype(np.float64).ravel(), b.astype(np.float64).ravel()
    x, y = (v[np.isfinite(x) & np.isfinite(y)] for v in (x, y))
    return float(np.max(np.abs(x - y) / np.maximum(1, np.abs(x)), initial=0))


def digest(buffers: Sequence[np.ndarray]) -> str:
    """Of all that a kernel left in memory."""
    return hashlib.sha256(b"".join(b.tobytes() for b in buffers)).hexdigest()[:16]


CASES: list[Case] = []


def case(
    source: str, grid: Sequence[int] | int, block: Sequence[int] | int, kernel: str = "", **facts: Any
) -> Callable[[Callable[[np.random.Generator], Built]], Callable[[np.random.Generator], Built]]:
    """Registers a function that makes arguments and truth as the case of its name."""

    def register(make: Callable[[np.random.Generator], Built]) -> Callable[[np.random.Generator], Built]:
        name = make.__name__
        g, b = ((x,) if isinstance(x, int) else tuple(x) for x in (grid, block))
        CASES.append(Case(name, source, kernel or name, g, b, make, **facts))
        return make

    return register


I32, U32, F32, F64 = np.int32, np.uint32, np.float32, np.float64


def ints(rng: np.random.Generator, low: int, high: int, n: int | tuple[int, ...], dtype: type = I32) -> np.ndarray:
    return rng.integers(low, high, n, dtype=dtype, endpoint=True)


def words(rng: np.random.Generator, n: int) -> np.ndarray:
    """Any 32 bits."""
    return rng.integers(0, 1 << 32, n, dtype=U32)


# -- classics.cu


def product_in_order(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    total = np.zeros((a.shape[0], b.shape[1]), F32)
    for k in range(a.shape[1]):
        total = exact.fma32(a[:, k : k + 1], b[k : k + 1], total)
    return total


@case("classics.cu", (3, 2), (16, 16))
def matmul(rng: np.random.Generator) -> Built:
    a, b = rng.normal(size=(29, 37)).astype(F32), rng.normal(size=(37, 45)).astype(F32)
    return [np.zeros((29, 45), F32), a, b, I32(29), I32(37), I32(45)], [product_in_order(a, b)]


@case("classics.cu", 3, 192)
def reduction(rng: np.random.Generator) -> Built:
    n = 3 * 192 * 2 + 55
    values, floats = words(rng, n).view(I32), rng.normal(size=n).astype(F32)
    each = np.zeros((3, 192), F32)
    for start in range(0, n, 3 * 192):
        part = np.zeros(3 * 192, F32)
        part[: min(3 * 192, n - start)] = floats[start : start + 3 * 192]
        each += part.reshape(3, 192)

    def butterfly(x: np.ndarray) -> np.ndarray:
        for d in (16, 8, 4, 2, 1):
            x = x + x[..., np.arange(32) ^ d]
        return x[..., 0]

    sums = np.zeros((3, 32), F32)
    sums[:, :6] = butterfly(each.reshape(3, 6, 32))
    total = np.array([values.view(U32).sum(dtype=U32) + U32(7)], U32)
    args = [np.array([7], U32), np.array([-(2**31)], I32), np.zeros(3, F32), values, floats, I32(n)]
    return args, [total, np.array([values.max()]), butterfly(sums)]


@case("classics.cu", 5, 256)
def scan(rng: np.random.Generator) -> Built:
    n = 4 * 256 + 99
    values = ints(rng, -1000, 1000, n)
    padded = np.zeros(5 * 256, I32)
    padded[:n] = values
    ends = padded.reshape(5, 256).sum(1).cumsum().astype(np.int64) & 0xFFFFFFFF
    args = [np.zeros(n, I32), np.zeros(5, np.uint64), np.zeros(1, U32), values, I32(n)]
    return args, [values.cumsum().astype(I32), (1 << 32 | ends).astype(np.uint64), np.array([5], U32)]


@case("classics.cu", 2, 64, shared=512)
def blelloch(rng: np.random.Generator) -> Built:
    values = ints(rng, -99, 99, (2, 128))
    return [np.zeros((2, 128), I32), values], [(values.cumsum(1) - values).astype(I32)]


@case("classics.cu", 3, 96)
def histogram(rng: np.random.Generator) -> Built:
    data = (rng.normal(size=1500) * 20 + 100).astype(np.uint8)
    return [np.zeros(256, U32), data, I32(1500)], [np.bincount(data, minlength=256).astype(U32)]


@case("classics.cu", 2, 256)
def bitonic(rng: np.random.Generator) -> Built:
    keys = np.stack([rng.permutation(512), rng.permutation(512)]).astype(U32) * U32(8000001)
    values = words(rng, 1024).reshape(2, 512)
    order = keys.argsort(1)
    return [keys, values], [np.take_along_axis(keys, order, 1), np.take_along_axis(values, order, 1)]


@case("classics.cu", (3, 3), (16, 8))
def stencil(rng: np.random.Generator) -> Built:
    image = rng.normal(size=(21, 41)).astype(F32)
    p = np.pad(image, 1)
    around = (p[:-2, 1:-1] + p[2:, 1:-1]) + (p[1:-1, :-2] + p[1:-1, 2:])
    return [np.zeros_like(image), image, I32(41), I32(21)], [exact.fma32(F32(-4), image, around)]


def transposing(rng: np.random.Generator) -> Built:
    a = rng.normal(size=(50, 70)).astype(F32)
    return [np.zeros((70, 50), F32), a, I32(50), I32(70)], [a.T.copy()]


@case("classics.cu", (3, 2), (32, 8))
def transpose(rng: np.random.Generator) -> Built:
    return transposing(rng)


@case("classics.cu", (3, 2), (32, 8))
def transpose_padded(rng: np.random.Generator) -> Built:
    return transposing(rng)


@case("classics.cu", 2, 128, near=(1e-5, 1e-5))
def fft(rng: np.random.Generator) -> Built:
    z = (rng.normal(size=(2, 256)) + 1j * rng.normal(size=(2, 256))).astype(np.complex64)
    roots = np.exp(-2j * np.pi * np.arange(128) / 256).astype(np.complex64)
    return [z.view(F32), roots.view(F32)], [np.fft.fft(z).astype(np.complex64).view(F32)]


@case("classics.cu", 3, 128)
def search(rng: np.random.Generator) -> Built:
    text, pattern = ints(rng, 97, 98, 333, np.uint8), np.frombuffer(b"abba", np.uint8).copy()
    hits = np.array([text[i : i + 4].tobytes() == b"abba" for i in range(333)])
    assert hits.any()
    args = [np.full(333, -1, I32), np.zeros(1, I32), text, I32(333), pattern, I32(4)]
    return args, [hits.astype(I32), np.array([hits.sum()], I32)]


@case("classics.cu", 2, 64)
def horspool(rng: np.random.Generator) -> Built:
    text, pattern = ints(rng, 97, 99, 1000, np.uint8), np.frombuffer(b"abcab", np.uint8).copy()
    hits = np.array([text[i : i + 5].tobytes() == b"abcab" for i in range(1000)])
    assert hits.any()
    truth = np.where(hits, 1 + np.array([3, 1, 4, 1])[np.arange(1000) & 3], 0).astype(I32)
    return [np.zeros(1000, I32), text, I32(1000), pattern, I32(5), I32(8)], [truth]


# -- fast.cu: MUFU. The errors are those of CUDA's mathematical functions appendix (2 to 3 units in the last place for
# reciprocals, roots, exp2 and log2; 2**-21.4 absolute for sine and cosine), with what the kernels do to them.


@case("fast.cu", 2, 32, shared=512, near=(2e-5, 2e-5), devices=(2e-5, 2e-5))
def nbody(rng: np.random.Generator) -> Built:
    bodies = rng.normal(size=(50, 4)).astype(F32)
    place, mass = bodies[:, :3].astype(F64), np.abs(bodies[:, 3:]).astype(F64)
    bodies[:, 3:] = mass
    away = place[None] - place[:, None]
    cube = ((away**2).sum(2, keepdims=True) + 0.01) ** -1.5
    truth = np.zeros((50, 4), F32)
    truth[:, :3] = (away * cube * mass[None]).sum(1)
    return [np.zeros((50, 4), F32), bodies, I32(50)], [truth]


@case("fast.cu", 1, 64, near=(3e-6, 6e-7), devices=(3e-6, 6e-7))
def mufu(rng: np.random.Generator) -> Built:
    x = rng.uniform(-3, 3, 60).astype(F32)
    d = x.astype(F64)
    p = (np.abs(x) + F32(0.001)).astype(F64)
    rows = [np.sin(d), np.cos(d), np.exp(d), np.log2(p), p**-0.5, p**0.5, 1 / d, 3 / d, p**1.5, 2**d]
    return [np.zeros((10, 60), F32), x, I32(60)], [np.array(rows, F32)]


@case("fast.cu", 1, 64, since=75, near=(2**-10.9, 0), devices=(2**-10, 0))
def mufu_tanh(rng: np.random.Generator) -> Built:
    x = rng.uniform(-4, 4, 60).astype(F32)
    return [np.zeros(60, F32), x, I32(60)], [np.tanh(x.astype(F64)).astype(F32)]


@case("fast.cu", 1, 32, near=(4e-7, 0), devices=(4e-7, 0))
def mufu_special(rng: np.random.Generator) -> Built:
    x = np.array([0, -0.0, 1, 2, 4, 16, -1, math.inf, -math.inf, math.nan, 1e-40, -1e-40, 0.25, 2.0**-20, 64, -64, 127])
    flushed = np.where(np.abs(x) < 2.0**-126, np.copysign(0, x), x)
    root, zero = np.sqrt(flushed), x.astype(F32) * F32(0)
    rows = [1 / flushed, 1 / root, np.log2(flushed), 2**flushed, np.sin(zero), root]
    return [np.zeros((6, x.size), F32), x.astype(F32), I32(x.size)], [np.array(rows, F32)]


# -- control.cu


def trunc_div(x: int, y: int) -> int:
    return int(math.copysign(abs(x) // abs(y), x * y)) if x else 0


def wrap(x: int) -> int:
    return (x + 2**31) % 2**32 - 2**31


@case("control.cu", 2, 96)
def switches(rng: np.random.Generator) -> Built:
    n = 180
    v = ints(rng, -2, 13, n)
    truth = np.full(n, 99, I32)
    for i, x in enumerate(v.tolist()):
        r = i
        if x == 0:
            r = x + 17
        elif x == 1:
            r *= 3
        elif x in (2, 3):
            r = (i.bit_count() + 5 if x == 2 else r) ^ 0x55
        elif x == 4:
            for j in range(i & 7):
                r = r * 5 + j
        elif x == 5:
            r = -r
        elif x == 6:
            r = 32 - i.bit_length()
        elif x == 7:
            continue
        elif x == 8:
            r = i // 3
        elif x == 9:
            r = int(f"{i:032b}"[::-1], 2)
        elif x == 10:
            r = i << (i & 3)
        elif x == 11:
            r = (i & -i).bit_length()
        else:
            r = -1
        truth[i] = wrap(r)
    return [np.full(n, 99, I32), v, I32(n)], [truth]


@case("control.cu", 2, 48)
def recursion(rng: np.random.Generator) -> Built:
    def fibonacci(n: int) -> int:
        return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)

    def one(i: int) -> int:
        return [fibonacci(i % 9), i % 5 + 2, 100 + (i % 11 % 2 == 0)][i % 3]

    return [np.zeros(96, I32)], [np.array([one(i) for i in range(96)], I32)]


@case("control.cu", 2, 48)
def indirect(rng: np.random.Generator) -> Built:
    which, a, b = ints(rng, 0, 7, 96), rng.normal(size=96).astype(F32), rng.normal(size=96).astype(F32)
    f = [np.add, np.subtract, np.multiply]
    truth = []
    for w, x, y in zip(which, a, b):
        r = f[w % 3](x, y)
        truth.append(f[w % 3](f[w % 3](r, y), y) if w & 4 else r)
    i = np.arange(96)
    areas = np.where(which & 1, i * i, 10 * i).astype(I32)
    return [np.zeros(96, F32), np.zeros(96, I32), which, a, b], [np.array(truth, F32), areas]


@case("control.cu", 2, 96)
def divergence(rng: np.random.Generator) -> Built:
    def one(x: int) -> int:
        r = 0
        for a in range(x & 15):
            if (a ^ x) % 5 == 0:
                continue
            b = a
            while not (b > 12 or (b * x) % 7 == 3):
                if (b & x) == 9:
                    r += 1000
                    if r > 5000:
                        return -r
                elif b & 1:
                    r += b
                else:
                    y = x
                    while True:
                        y = 3 * y + 1 if y & 1 else y >> 1
                        r += 1
                        if not (y > 40 and r % 11):
                            break
                b += 1
            if x & 256:
                r = r ^ a if x & 512 else r + 2 * a
            else:
                while r % 3:
                    r += 1
        return r

    x = ints(rng, 0, 1023, 170)
    x[:20] |= 9  # some go deep
    truth = np.array([one(v) for v in x.tolist()], I32)
    assert (truth < 0).any()
    return [np.zeros(170, I32), x, I32(170)], [truth]


@case("control.cu", 2, 64)
def collatz(rng: np.random.Generator) -> Built:
    x = ints(rng, 1, 300, 120, U32)

    def one(v: int) -> int:
        count = 0
        while v != 1:
            v = 3 * v + 1 if v & 1 else v // 2
            count += 1
        return count

    return [np.zeros(120, I32), x, I32(120)], [np.array([one(v) for v in x.tolist()], I32)]


@case("control.cu", 1, 64)
def subwarps(rng: np.random.Generator) -> Built:
    out, room = [0] * 128, [3 * t for t in range(64)]
    for w in (0, 32):
        moved = [room[w + (lane + 1) % 12] + 1 for lane in range(12)]
        room[w : w + 12] = moved
        odd = [lane for lane in range(12, 32) if lane & 1]
        for lane in range(32):
            if lane < 12:
                out[w + lane] = room[w + (lane + 5) % 12]
            elif lane & 1:
                out[w + lane] = 13 * 13 + sum(x > 20 for x in odd)
            else:
                room[w + lane] += lane * (lane - 1) // 2
                out[w + lane] = room[w + lane] + 1
    out[64:] = [room[t ^ 1] for t in range(64)]
    return [np.zeros(128, I32)], [np.array(out, I32)]


@case("control.cu", 2, 64)
def warp_lock(rng: np.random.Generator) -> Built:
    x = 1
    for _ in range(128):
        x = x * 3 % 1001 + 1
    return [np.array([1], I32), np.zeros(1, I32)], [np.array([x], I32), np.zeros(1, I32)]


@case("control.cu", 2, 18)
def spin_lock(rng: np.random.Generator) -> Built:
    args = [np.zeros(1, I32), np.zeros(1, I32), np.zeros(36, I32)]
    return args, [np.array([36], I32), np.zeros(1, I32), np.ones(36, I32)]


@case("control.cu", 3, 64)
def handshake(rng: np.random.Generator) -> Built:
    return [np.zeros(4, I32), np.zeros(1, I32)], [np.array([42, 43, 44, 77], I32), np.array([77], I32)]


@case("control.cu", 1, 128)
def barriers(rng: np.random.Generator) -> Built:
    t = np.arange(64)
    consumed = [200 * k + t + t // 2 for k in range(3)]
    return [np.zeros(320, I32)], [np.concatenate([*consumed, np.full(128, 64010)]).astype(I32)]


@case("control.cu", 2, 128)
def early_exit(rng: np.random.Generator) -> Built:
    t = np.arange(96)
    truth = np.full(128, 5)
    truth[:96] = np.where(t % 5 == 4, -1, t[t % 5 != 4].sum())
    return [np.full(128, 5, I32)], [truth.astype(I32)]


def placing(grid: tuple[int, int, int], block: tuple[int, int, int]) -> Built:
    threads = math.prod(block)
    rows = []
    for b in range(math.prod(grid)):
        at = b % grid[0] | b // grid[0] % grid[1] << 8 | b // grid[0] // grid[1] << 16
        for t in range(threads):
            here = t % block[0] | t // block[0] % block[1] << 8 | t // block[0] // block[1] << 16
            rows.append([at, here, t % 32 | 32 << 8, grid[0] | grid[1] << 8 | grid[2] << 16])
    return [np.zeros((len(rows), 4), U32)], [np.array(rows, U32)]


@case("control.cu", (2, 3, 2), (3, 5, 4), kernel="places")
def places_three(rng: np.random.Generator) -> Built:
    return placing((2, 3, 2), (3, 5, 4))


@case("control.cu", (5, 3), (17, 2), kernel="places")
def places_two(rng: np.random.Generator) -> Built:
    return placing((5, 3, 1), (17, 2, 1))


@case("control.cu", 7, 1, kernel="places")
def places_one(rng: np.random.Generator) -> Built:
    return placing((7, 1, 1), (1, 1, 1))


@case("control.cu", 2, 64, shared=320)
def registers(rng: np.random.Generator) -> Built:
    lane = np.arange(64) & 31
    eq = 1 << lane
    rows = np.stack([eq, 2 * eq - 1, eq - 1, 2**32 - eq, 2**32 - 2 * eq, np.full(64, 320)], 1) & 0xFFFFFFFF
    work = 3 * np.arange(64)
    for i in range(20):
        work = (work * 7 + 3 * (work + i & 63)) & 0xFFFFFFFF
    sane = np.stack([work.astype(U32).view(I32), np.full(64, 31, I32)], 1)
    return [np.zeros((64, 6), U32), np.zeros((64, 2), I32)], [rows.astype(U32), sane]


# -- warps.cu


def shuffled(v: np.ndarray, mode: str, by: Any, width: int = 32) -> np.ndarray:
    """__shfl_*_sync(~0u, v, by, width) within warps."""
    v = v.reshape(-1, 32)
    lane = np.arange(32)[None] + 0 * v
    start = lane - lane % width
    by = np.broadcast_to(np.asarray(by), v.shape) if np.ndim(by) != 1 else np.asarray(by).reshape(v.shape)
    source = {"idx": start + by % width, "up": lane - by, "down": lane + by, "xor": lane ^ by}[mode]
    if mode == "up":
        source = np.where(source < start, lane, source)
    elif mode in ("down", "xor"):
        source = np.where(source >= start + width, lane, source)
    return np.take_along_axis(v, source, 1).ravel()


@case("warps.cu", 1, 64)
def shuffles(rng: np.random.Generator) -> Built:
    v = ints(rng, -500, 500, 64)
    lane = np.arange(64) & 31
    top = lane & 0b01000 | 0x1F & ~0b01000  # the last operand 0x081f: only bit 3 of the lane parts segments
    down = np.where(lane + 6 <= top, v[np.arange(64) & 32 | np.minimum(lane + 6, 31)], -7)
    rows = [
        shuffled(v, "idx", 5), shuffled(v, "idx", lane * 7 + 3), shuffled(v, "up", 3), shuffled(v, "down", 9),
        shuffled(v, "xor", 21), shuffled(v, "idx", 2, 8), shuffled(v, "up", 1, 4), shuffled(v, "down", 2, 16),
        shuffled(v, "xor", 12, 8), shuffled(v, "idx", v, 16), 2 * shuffled(v, "idx", lane + 1), down,
    ]  # fmt: skip
    return [np.zeros((12, 64), I32), v], [np.array(rows, I32)]


def ballot(flags: Any) -> int:
    return sum(1 << i for i, flag in enumerate(flags) if flag)


@case("warps.cu", 1, 96)
def votes(rng: np.random.Generator) -> Built:
    v = ints(rng, 0, 9, 96)
    v[32:64] = 6
    rows: list[list[int]] = [[] for _ in range(9)]
    for w in range(3):
        x = v[32 * w : 32 * w + 32].tolist()
        odd = [i for i in range(32) if x[i] & 1]
        even = [i for i in range(32) if not x[i] & 1]
        uniform = len(set(x)) == 1
        for lane in range(32):
            mates = odd if lane in odd else even
            rows[0].append(ballot(y > 3 for y in x))
            rows[1].append((7 in x) | 1 << 1)
            rows[2].append(sum(1 << i for i in mates if x[i] > 3))
            rows[3].append(1 if lane in odd else int(all(x[i] > 2 for i in even)))
            same = ballot(y == x[lane] for y in x)
            rows[4].append(same)
            rows[5].append((2**33 - 1 if uniform else 0) & 0xFFFFFFFF)
            rows[6].append(0xFFFFFFFE)
            rows[7].append(same)
            first = min((i for i in range(9) if x[i] & 3 == x[lane] & 3), default=0)
            rows[8].append(first if lane < 9 else 0)
    return [np.zeros((9, 96), U32), v], [np.array(rows, U32)]


@case("warps.cu", 1, 64, since=80)
def reductions(rng: np.random.Generator) -> Built:
    v = words(rng, 64).view(I32)
    rows: list[list[int]] = [[] for _ in range(8)]
    for w in range(2):
        x = v[32 * w : 32 * w + 32]
        for lane in range(32):
            mates = x[(x & 4) == (x[lane] & 4)]
            low = int(mates.view(U32).sum(dtype=U32)) if x[lane] & 4 else int(mates.min())
            both = int(np.bitwise_and.reduce(x | 0x70))
            values = [int(x.view(U32).sum(dtype=U32)), x.min(), x.max(), x.view(U32).max(), both]
            values += [np.bitwise_or.reduce(x), np.bitwise_xor.reduce(x), low]
            for row, value in zip(rows, values):
                row.append(int(value) & 0xFFFFFFFF)
    return [np.zeros((8, 64), U32), v], [np.array(rows, U32)]


# -- groups.cu


@case("groups.cu", 1, 64)
def tiles(rng: np.random.Generator) -> Built:
    v = ints(rng, 0, 99, 64)
    t = np.arange(64)
    warp, tile = v.reshape(2, 32), v.reshape(8, 8)
    match = [ballot(y & 3 == x & 3 for y in warp[i >> 5]) for i, x in enumerate(v)]
    votes = [ballot(tile[i >> 3] > 2) for i in t]
    rows = [
        warp.sum(1).repeat(32), tile.max(1).repeat(8), np.bitwise_xor.reduce(tile, 1).repeat(8), tile.cumsum(1).ravel(),
        (warp.cumsum(1) - warp).ravel(), v[t ^ 3] + 10000 * (t // 8 % 4) + 1000000 * (t % 8),
        np.array(match, U32) ^ np.array(votes, U32),
    ]  # fmt: skip
    return [np.zeros((7, 64), I32), v], [np.array(rows, np.int64).astype(U32).view(I32)]


@case("groups.cu", 1, 64)
def coalesced(rng: np.random.Generator) -> Built:
    v = ints(rng, 0, 9, 64)
    truth = np.full((4, 64), -1, I32)
    total = 0
    for w in (0, 32):
        few = [i for i in range(w, w + 32) if v[i] & 6]
        total += len(few)
        for rank, i in enumerate(few):
            label = [j for j in few if v[j] & 3 == v[i] & 3]
            parity = [j for j in few if v[j] & 1 == v[i] & 1]
            truth[0, i] = rank + 100 * len(few)
            truth[1, i] = v[few[-1]] + any(v[j] == 7 for j in few)
            truth[2, i] = sum(v[j] for j in few)
            truth[3, i] = len(label) * 100 + label.index(i) + 10000 * len(parity)
    return [np.zeros((4, 64), I32), np.zeros(1, I32), v], [truth, np.array([total], I32)]


# -- numbers.cu


def lanes_of(x: np.ndarray, dtype: type) -> np.ndarray:
    return x.view(dtype).reshape(len(x), -1)


def pack(parts: np.ndarray) -> np.ndarray:
    """(n, k) parts of 16 or 8 bits -> n words."""
    return np.ascontiguousarray(parts).view(U32).ravel()


@case("numbers.cu", 1, 128)
def integers(rng: np.random.Generator) -> Built:
    special = [0, 1, -1, 2**31 - 1, -(2**31), 7, -37, 65536, 0x12345678, 255]
    x = np.concatenate([np.repeat(special, 10), ints(rng, -(2**31), 2**31 - 1, 24)]).astype(I32)
    y = np.concatenate([np.tile(special, 10), ints(rng, -40, 40, 24)]).astype(I32)
    n = x.size
    X, Y = x.astype(np.int64), y.astype(np.int64)
    u, v = x.view(U32), y.view(U32)
    U, V = u.astype(np.uint64), v.astype(np.uint64)
    both = (U << np.uint64(32) | V).tolist()  # u above v
    safe_y, safe_v = np.where(Y == 0, 1, Y), np.where(V == 0, 1, V)
    quotient = np.array([trunc_div(a, b) for a, b in zip(X.tolist(), safe_y.tolist())])

    swapped = [(b & 0xFFFFFFFF) << 32 | b >> 32 for b in both]  # v above u: __funnelshift(lo=u, hi=v)
    left = np.array([(h << (int(s) & 15)) >> 32 & 0xFFFFFFFF for h, s in zip(swapped, u)])
    right = np.array([h >> (int(s) & 31) & 0xFFFFFFFF for h, s in zip(swapped, v)])
    s16x, s16y = lanes_of(x, np.int16), lanes_of(y, np.int16)
    u8x, u8y = lanes_of(x, np.uint8), lanes_of(y, np.uint8)
    s8x, s8y = lanes_of(x, np.int8), lanes_of(y, np.int8)
    eight = np.concatenate([u8x, u8y], 1)

    def perm(selector: np.ndarray) -> np.ndarray:
        picks = np.stack([selector >> 4 * k & 7 for k in range(4)], 1)
        return pack(np.take_along_axis(eight, picks.astype(np.intp), 1))

    def dot(a: np.ndarray, b: np.ndarray, start: int) -> np.ndarray:
        return (a.astype(np.int64) * b.astype(np.int64)).sum(1) + start

    u16x = lanes_of(x, np.uint16)
    mul24 = ((X << 40 >> 40) * (Y << 40 >> 40)) & 0xFFFFFFFF
    shift = Y & 31
    bit_count = np.array([int(a).bit_count() for a in u])
    lead = np.array([32 - int(a).bit_length() for a in u])
    brev = np.array([int(f"{int(a):032b}"[::-1], 2) for a in u])
    ffs = np.array([(int(a) & -int(a)).bit_length() for a in u])
    find = np.array([(int(a) if a >= 0 else ~int(a)).bit_length() - 1 for a in X])
    start, length = np.minimum(X & 63, 32), np.minimum(Y & 63, 32)
    mask = np.array([(((1 << int(b)) - 1) << int(a)) & 0xFFFFFFFF for a, b in zip(start, length)])
    insert = (Y & ~np.int64(0x7F << 9)) | (X & 0x7F) << 9
    rows = [
        X + Y, X - Y, X * Y, X * Y >> 32, (U * V >> np.uint64(32)).astype(np.int64), mul24, X * 37 + Y,
        np.minimum(X, Y), np.maximum(U, V).astype(np.int64), np.abs(X), X & ~Y, (X ^ Y) | (X & 0xFF00FF),
        X << shift, X >> shift, (U >> shift.astype(np.uint64)).astype(np.int64), left, right,
        np.array([s >> 32 for s in swapped]), bit_count, lead, ffs, brev,
        perm(np.full(n, 0x2637)), perm(v), np.abs(X - Y) + 5, np.abs(U.astype(np.int64) - V.astype(np.int64)) + 5,
        np.where(Y == 0, 0, quotient), np.where(Y == 0, 0, X - quotient * safe_y),
        np.where(V == 0, 0, U // safe_v).astype(np.int64), np.where(V == 0, 0, U % safe_v).astype(np.int64),
        np.array([trunc_div(a, 7) for a in X.tolist()]), (U % np.uint64(1000)).astype(np.int64), X < Y, U < V,
        ((X < 0) & (Y > 3)) | (X == Y), pack(s16x + s16y), pack(u8x - u8y), pack(np.maximum(s16x, s16y)),
        pack(np.abs(u8x.astype(int) - u8y).astype(np.uint8)), pack(np.where(u8x > u8y, 255, 0).astype(np.uint8)),
        dot(s8x, s8y, 11), dot(u8x, u8y, 11), dot(s16x, s8y[:, :2], 3), dot(u16x, u8y[:, 2:], 3),
        (X + Y) >> 1, (X + Y + 1) >> 1, X << 48 >> 53, insert, find, X ^ Y ^ 0x1234567,
        np.clip(X + Y, -(2**31), 2**31 - 1), mask, s8x[:, 0].astype(int) * s8y[:, 0], s16x[:, 0].astype(int) >> 3,
        (X + Y) & 255,
    ]  # fmt: skip
    truth = np.array([np.asarray(row).astype(np.int64) & 0xFFFFFFFF for row in rows])
    return [np.zeros(truth.shape, I32), x, y, I32(n)], [truth.astype(U32).view(I32)]


@case("numbers.cu", 1, 96)
def longs(rng: np.random.Generator) -> Built:
    special = [0, 1, -1, 2**63 - 1, -(2**63), 10**12, -(10**10), 3]
    x = special * 8 + rng.integers(-(2**63), 2**63 - 1, 24).tolist()
    y = [s for s in special for _ in range(8)] + (rng.integers(-(2**40), 2**40, 24)).tolist()
    top = 2**64 - 1

    def row(a: int, b: int) -> list[int]:
        u, v, s = a & top, b & top, b & 63
        q = (abs(a) // abs(b)) * (1 if (a < 0) == (b < 0) else -1) if b else 0
        ten = abs(a) // 10 * (1 if a >= 0 else -1)
        low = lambda z: (z + 2**31) % 2**32 - 2**31  # noqa: E731
        return [
            a + b, a - b, a * b, a * b >> 64, u * v >> 64, q, a - q * b if b else 0, u // v if v else 0,
            u % v if v else 0, a << s, a >> s, u >> s, min(a, b), max(u, v), a < b, u < v, u.bit_count(),
            64 - u.bit_length(), int(f"{u:064b}"[::-1], 2), (u & -u).bit_length(), low(a) * low(b),
            (u & 2**32 - 1) * (v & 2**32 - 1) + v, ten, u % 1000000007, abs(a),
        ]  # fmt: skip

    truth = np.array([[z & top for z in row(a, b)] for a, b in zip(x, y)], np.uint64).T.view(np.int64)
    return [np.zeros(truth.shape, np.int64), np.array(x), np.array(y), I32(len(x))], [truth.copy()]


MODES = ("rn", "rz", "ru", "rd")
NOT_FINITE = [math.inf, -math.inf, math.nan]
SPECIALS = [0, -0.0, 1, -1, 1.5, *NOT_FINITE, 2.0**-149, 1e-40, -1e-40, 2.0**-126, 3.4028234e38, 0.1, -1 / 3, 1e10]


def smaller(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """fmin as IEEE 754-2019's minimumNumber: a number before NaN, -0 below +0."""
    first = (x < y) | ((x == y) & np.signbit(x)) | np.isnan(y)
    return np.where(first, x, y)


def saturated(x: np.ndarray) -> np.ndarray:
    return np.where(x > 0, np.minimum(x, 1), 0).astype(x.dtype)  # NaN and -0 become +0


@case("numbers.cu", 1, 256)
def floats(rng: np.random.Generator) -> Built:
    x, y = np.repeat(SPECIALS, 16).astype(F32), np.tile(SPECIALS, 16).astype(F32)
    z = np.array(SPECIALS, F32)[rng.integers(0, 16, 256)]
    fmt = exact.FLOAT

    def flush(a: np.ndarray) -> np.ndarray:
        return np.where(np.abs(a) < 2.0**-126, np.copysign(F32(0), a), a).astype(F32)

    def each(operation: Any, *values: np.ndarray, mode: str = "rn") -> np.ndarray:
        return exact.each(operation, *values, mode=mode, dtype=F32)

    fx, fy, fz = flush(x), flush(y), flush(z)
    rows = [each(fmt.add, x, y, mode=m) for m in MODES] + [each(fmt.mul, x, y, mode=m) for m in MODES]
    rows += [each(fmt.fma, x, y, z, mode=m) for m in MODES]
    rows += [x / y, np.sqrt(x), F32(1) / x, smaller(x, y), -smaller(-x, -y), saturated(x), np.abs(x), -x]
    rows += [np.rint(x), np.floor(x), np.ceil(x), np.trunc(x), np.copysign(x, y)]
    flags = [x < y, x >= y, x == y, x != y, np.isnan(x) | np.isinf(x) << 1 | np.signbit(x) << 2]
    rows += [np.asarray(flag).astype(U32).view(F32) for flag in flags]
    rows += [flush(each(fmt.add, fx, fy)), flush(each(fmt.mul, fx, fy)), flush(each(fmt.fma, fx, fy, fz))]
    rows += [saturated(each(fmt.fma, x, y, z))]
    return [np.zeros((len(rows), 256), F32), x, y, z, I32(256)], [np.array(rows, F32)]


@case("numbers.cu", 1, 256)
def doubles(rng: np.random.Generator) -> Built:
    special = [0, -0.0, 1, -1, math.pi, *NOT_FINITE, 5e-324, 1e-310, -1e-310, 2.0**-1022, 1.7e308, 0.1, -1 / 3, 1e200]
    x, y = np.repeat(special, 16), np.tile(special, 16)
    z = np.array(special)[rng.integers(0, 16, 256)]
    fmt = exact.DOUBLE
    rows = [exact.each(fmt.add, x, y, mode=m) for m in MODES] + [exact.each(fmt.mul, x, y, mode=m) for m in MODES]
    rows += [exact.each(fmt.fma, x, y, z, mode=m) for m in MODES]
    rows += [x / y, np.sqrt(x), 1 / x, smaller(x, y), -smaller(-x, -y), np.floor(x), np.rint(x), np.trunc(x), np.abs(x)]
    rows += [np.asarray(flag).astype(np.uint64).view(F64) for flag in (x < y, x != y)]
    return [np.zeros((len(rows), 256)), x, y, z, I32(256)], [np.array(rows)]


def to_integer(values: np.ndarray, rounding: Callable[[Any], Any], low: int, high: int, nan: int) -> list[int]:
    """Rounded and clipped to low ... high; ``nan`` stands for NaN."""

    def one(v: float) -> int:
        if math.isinf(v):
            return high if v > 0 else low
        return nan if math.isnan(v) else min(max(int(rounding(v)), low), high)

    return [one(v) for v in values.tolist()]


@case("numbers.cu", 1, 64)
def conversions(rng: np.random.Generator) -> Built:
    n = 48
    edges = [2.5, -2.5, 3.5, 2.0**31, -2147483904.0, 2.0**32, 1.8e19, -0.5, 0.5, 127.5, 255.5, -128.5]
    x = np.concatenate([SPECIALS, edges])
    x = np.concatenate([x, rng.normal(size=n - x.size) * 1e5]).astype(F32)
    d = np.concatenate([SPECIALS, [2.5, -2.5, 1e-320, 1e300, 2147483647.5, -2147483648.5, 9.3e18, 1 + 2.0**-30, 1e-42]])
    d = np.concatenate([d, rng.normal(size=n - d.size) * 1e9])
    edges = [0, 1, -1, 2**63 - 1, -(2**63), 2**24 + 1, -(2**24) - 1, 2**31 - 1, 2**31, 2**53 + 1, -(2**53) - 3]
    edges += [128, -129, 40000]
    l = np.array(edges + rng.integers(-(2**62), 2**62, n - len(edges)).tolist())  # noqa: E741
    s = l.astype(I32)
    s32, u32, s64, u64 = (-(2**31), 2**31 - 1), (0, 2**32 - 1), (-(2**63), 2**63 - 1), (0, 2**64 - 1)
    odd = -(2**63)  # what NaN becomes in 64 bits

    def rounded(fmt: exact.Format, value: Any, mode: str) -> float:
        return fmt.round(exact.Fraction(value), mode) if value and math.isfinite(value) else float(value)

    def f32(values: Any, mode: str) -> np.ndarray:
        return np.array([rounded(exact.FLOAT, v, mode) for v in values], F32).view(U32)

    def f64(values: Any, mode: str) -> np.ndarray:
        return np.array([rounded(exact.DOUBLE, v, mode) for v in values]).view(np.int64)

    wide = x.astype(F64)
    unsigned = [v % 2**64 for v in l.tolist()]
    rows = [
        to_integer(wide, np.rint, *s32, 0), to_integer(wide, np.trunc, *s32, 0), to_integer(wide, np.ceil, *s32, 0),
        to_integer(wide, np.floor, *s32, 0), to_integer(wide, np.trunc, *u32, 0), to_integer(wide, np.rint, *s64, odd),
        to_integer(wide, np.trunc, *u64, odd), to_integer(d, np.trunc, *s32, -(2**31)),
        to_integer(d, np.rint, *u32, 2**31), to_integer(d, np.floor, *s64, odd), to_integer(d, np.ceil, *u64, odd),
        f32(d.tolist(), "rn"), f32(d.tolist(), "rd"), f32(d.tolist(), "ru"),
        x.astype(F64).view(np.int64), f32(s.tolist(), "rn"), f32(s.tolist(), "rz"), f32(s.view(U32).tolist(), "ru"),
        f32(l.tolist(), "rn"), f32(unsigned, "rd"), f64(s.tolist(), "rn"), f64(s.view(U32).tolist(), "rn"),
        f64(l.tolist(), "rn"), f64(unsigned, "rz"), l.astype(np.int8), l.astype(np.uint16),
        f32(l.astype(np.int8).tolist(), "rn"), f32(l.astype(np.uint16).tolist(), "rn"),
        to_integer(wide, np.trunc, 0, 255, 0),
        to_integer(wide, np.rint, -32768, 32767, 0), np.clip(s, -128, 127),
    ]  # fmt: skip
    truth = np.array([[int(v) & 2**64 - 1 for v in row] for row in rows], np.uint64).view(np.int64)
    return [np.zeros(truth.shape, np.int64), x, d, l, I32(n)], [truth]


@case("numbers.cu", 1, 32)
def nans(rng: np.random.Generator) -> Built:
    quiet, loud = [0x7FC00000, 0xFFC00000, 0x7FC12345, 0xFFFFFFFF], [0x7F800001, 0xFFA54321]
    x = np.array([*quiet, *loud, 0x7FFFFFFF, 0x7FC00001], U32)
    wide = [0x7FF8000000000000, 0xFFF8000000000000, 0x7FF8123456789ABC, 0xFFFFFFFFFFFFFFFF, 0x7FF0000000000001]
    wide += [0xFFF4000020000000, 0x7FFFFFFFFFFFFFFF, 0x7FFC000000000000]
    d = np.array(wide, np.uint64)
    h = np.array([0x7E00, 0xFE00, 0x7FFF, 0xFE12, 0x7C01, 0xFD55, 0xFFFF, 0x7E01], np.uint16)
    outs = [np.zeros((14, 8), F32), np.zeros((14, 8)), np.zeros((6, 8), np.float16)]
    return [*outs, x, np.roll(x, 3), d, np.roll(d, 3), h, I32(8)], [np.full_like(out, np.nan) for out in outs]


@case("numbers.cu", 1, 64, near=(2e-6, 1e-6), devices=(1e-6, 1e-7))
def functions(rng: np.random.Generator) -> Built:
    x = rng.uniform(-10, 10, 60).astype(F32)
    d, a = x.astype(F64), (np.abs(x) + F32(0.01)).astype(F64)
    far, fifty = (x * F32(100000)).astype(F64), (x * F32(50)).astype(F64)
    fraction, exponent = np.frexp(a)
    rows = [
        np.sin(d), np.cos(far), np.exp(d), np.log(a), a ** F64(F32(0.7)), np.arctan2(d, 2), np.tanh(d),
        [math.erf(v) for v in d], np.cbrt(d), np.fmod(fifty, F64(F32(0.3))), np.hypot(d, 3), d / a, np.sqrt(a),
        d * 32 + fraction + exponent,
    ]  # fmt: skip
    return [np.zeros((14, 60), F32), x, I32(60)], [np.array(rows, F32)]


@case("numbers.cu", 1, 64, near=(1e-14, 1e-15))
def double_functions(rng: np.random.Generator) -> Built:
    x = rng.uniform(-10, 10, 60)
    a = np.abs(x) + 0.01
    rows = [
        np.sin(x), np.cos(x * 1e10), np.exp(x), np.log(a), a**1.7, np.arctan(x), np.sqrt(a), x / a, np.cbrt(x),
        np.fmod(x * 50, 0.3), a**-0.5,
    ]  # fmt: skip
    return [np.zeros((11, 60)), x, I32(60)], [np.array(rows)]


# -- halves.cu


def half_inputs(rng: np.random.Generator, n: int) -> list[np.ndarray]:
    """Three arrays of 2 * n numbers that halves hold: of every size, denormal ones, infinities, NaN; no two
    zeros meet in the first two."""
    special = np.array([1, -1, 65504, -65504, 6e-8, 1e-6, np.inf, -np.inf, np.nan, 0.1, 2048, 3, 0, 0.333])
    x = np.concatenate([np.repeat(special, 14), rng.normal(size=2 * n - 196) * 4])
    y = np.concatenate([np.tile(special + 0.0, 14), rng.normal(size=2 * n - 196)])
    y = np.where((x == 0) & (y == 0), 5, y)
    z = rng.normal(size=2 * n)
    return [v.astype(np.float16) for v in (x, y, z)]


@case("halves.cu", 1, 128)
def halves(rng: np.random.Generator) -> Built:
    n = 128
    x, y, z = half_inputs(rng, n)
    fmt = exact.HALF

    def each(operation: Any, *values: Any, mode: str = "rn") -> np.ndarray:
        return exact.each(operation, *values, mode=mode, dtype=np.float16)

    def alone(values: np.ndarray) -> np.ndarray:
        pairs = np.zeros((n, 2), np.float16)
        pairs[:, 0] = values
        return pairs.ravel()

    def word(values: Any) -> np.ndarray:
        return np.asarray(values).astype(np.int64).astype(U32).view(np.float16)

    def flag(values: np.ndarray) -> np.ndarray:
        return np.where(values, np.float16(1), np.float16(0))

    def swapped(values: np.ndarray) -> np.ndarray:
        return values.reshape(n, 2)[:, ::-1].ravel()

    lx, hx, ly, hy, hz = x[::2], x[1::2], y[::2], y[1::2], z[1::2]
    total = each(fmt.add, x, y)
    scaled = (lx.astype(F32) * F32(1.001)).astype(F64)
    toward_zero = [v if not math.isfinite(v) or v == 0 else fmt.round(exact.Fraction(v), "rz") for v in scaled.tolist()]
    packed = np.stack([(lx.astype(F32) * F32(0.999)).astype(np.float16), hy], 1).ravel()
    both = (x != y) & ~np.isnan(x) & ~np.isnan(y)
    different = both[::2] & both[1::2]
    rows = [
        total, each(fmt.add, x, -y), each(fmt.mul, x, y), each(fmt.fma, x, y, z), saturated(each(fmt.fma, x, y, z)),
        saturated(total), -x, np.abs(x), flag(x < y), flag(x == y), -smaller(-x, -y), smaller(x, y), swapped(x),
        np.stack([lx, hy], 1).ravel(), each(fmt.fma, lx.repeat(2), hy.repeat(2), z), alone(each(fmt.add, lx, hy)),
        alone(each(fmt.mul, hx, ly)), alone(each(fmt.fma, lx, ly, hz)),
        word((lx > ly) | different << 1 | np.isnan(hx) << 2),
        word(np.where(np.isnan(hx), 0x7FFFFFFF, hx.astype(F32).view(U32))),
        alone(scaled.astype(np.float16)), alone(np.array(toward_zero).astype(np.float16)),
        packed, word(to_integer(lx.astype(F64), np.rint, -(2**31), 2**31 - 1, 0)),
        word(to_integer(hy.astype(F64), np.trunc, -32768, 32767, 0)),
        alone((np.arange(n) * 1000 - 3333).astype(np.float16)), alone(np.floor(lx)), alone(np.rint(hx)),
    ]  # fmt: skip
    return [np.zeros((len(rows), 2 * n), np.float16), x, y, z, I32(n)], [np.array(rows)]


@case("halves.cu", 1, 64, near=(2**-9, 2**-12), devices=(2**-10, 2**-13))
def half_functions(rng: np.random.Generator) -> Built:
    x = rng.uniform(0.05, 9, 60).astype(np.float16)
    d = x.astype(F64)
    rows = [np.sqrt(d), 1 / d, 3 / d, d**-0.5, 2**d, np.log2(d), np.sin(d)]
    return [np.zeros((7, 60), np.float16), x, I32(60)], [np.array(rows).astype(np.float16)]


@case("halves.cu", 1, 128, since=80)
def bfloats(rng: np.random.Generator) -> Built:
    n = 128
    raw = [exact.bfloat(v.astype(F32)) for v in half_inputs(rng, n)]
    x, y, z = (exact.unbfloat(v) for v in raw)
    fmt = exact.BFLOAT

    def each(operation: Any, *values: Any, mode: str = "rn") -> np.ndarray:
        return exact.bfloat(exact.each(operation, *values, mode=mode, dtype=F32))

    def alone(bits: np.ndarray) -> np.ndarray:
        return np.stack([bits, np.zeros_like(bits)], 1).ravel()

    lx, hx, ly, hy, lz = x[::2], x[1::2], y[::2], y[1::2], z[::2]
    scaled = lx * F32(1.001)
    packed = np.stack([exact.bfloat(scaled), exact.bfloat(hy * F32(0.999))], 1).ravel()
    toward_zero = [v if not math.isfinite(v) or v == 0 else fmt.round(exact.Fraction(v), "rz") for v in scaled.tolist()]
    rows = [
        each(fmt.fma, x, y, z), each(fmt.add, x, y), each(fmt.mul, x, y), exact.bfloat(-smaller(-x, -y)),
        exact.bfloat(smaller(x, y)), np.where(np.isnan(x), 0x7FFF, raw[0] ^ 0x8000).astype(np.uint16), raw[0] & 0x7FFF,
        exact.bfloat((x < y).astype(F32)), packed,
        alone(exact.bfloat(np.array(toward_zero, F32))), alone(each(fmt.fma, lx, hy, lz)),
        hx.copy().view(np.uint16), (lx > ly).astype(U32).view(np.uint16),
    ]  # fmt: skip
    return [np.zeros((len(rows), 2 * n), np.uint16), *raw, I32(n)], [np.array(rows)]


# -- matrices.cu. Numbers are small integers, so that every sum is exact; the cases named _rounded and _scattered have
# any numbers, and numpy is only near: tensor cores cut terms off. How they do it is measured on sm_90, where the
# emulator leaves the same bits.

ROUNDED: Near = (2e-5, 2e-5)


def small(rng: np.random.Generator, shape: tuple[int, ...], dtype: type = np.float16) -> np.ndarray:
    return ints(rng, -8, 8, shape).astype(dtype)


def wmma_case(rng: np.random.Generator, dtype: type, plain: bool = True) -> Built:
    make = small if plain else lambda rng, shape, dtype=np.float16: rng.normal(size=shape).astype(dtype)
    a, b, c = make(rng, (2, 16, 16)), make(rng, (2, 16, 16)), make(rng, (2, 16, 16), dtype)
    truth = a.astype(F64) @ b.astype(F64).transpose(0, 2, 1) + c.astype(F64)  # b lies in columns
    return [np.zeros((2, 16, 16), dtype), a, b, c], [truth.astype(dtype)]


@case("matrices.cu", 2, 32)
def wmma_float(rng: np.random.Generator) -> Built:
    return wmma_case(rng, F32)


@case("matrices.cu", 2, 32, kernel="wmma_float", near=ROUNDED)
def wmma_float_rounded(rng: np.random.Generator) -> Built:
    return wmma_case(rng, F32, plain=False)


@case("matrices.cu", 2, 32)
def wmma_half(rng: np.random.Generator) -> Built:
    return wmma_case(rng, np.float16)


@case("matrices.cu", 1, 32)
def wmma_columns(rng: np.random.Generator) -> Built:
    a, b = small(rng, (16, 8)), small(rng, (16, 32))  # a lies in columns
    truth = 2 * (a.T.astype(F32) @ b.astype(F32) + 1)
    return [np.zeros((32, 8), F32), a, b], [truth.T.copy()]


@case("matrices.cu", 1, 32, since=75)
def wmma_int8(rng: np.random.Generator) -> Built:
    a, b = ints(rng, -128, 127, (16, 16), np.int8), ints(rng, -128, 127, (16, 16), np.int8)
    c = ints(rng, -9999, 9999, (16, 16))
    return [np.zeros((16, 16), I32), a, b, c], [a.astype(I32) @ b.T.astype(I32) + c]


G, T = np.arange(32) >> 2, np.arange(32) & 3  # a lane's group and its place in it, as PTX calls them


def pieces(matrix: np.ndarray, rows: Sequence[Any], columns: Sequence[Any]) -> np.ndarray:
    """What each lane holds: its registers in order, the elements of each register side by side."""
    return np.ascontiguousarray(np.stack([matrix[r, c] for r, c in zip(rows, columns)], 1))


def a_pieces(a: np.ndarray, per: int, parts: int) -> np.ndarray:
    """The A fragment of mma.sync: ``per`` elements a register, registers over rows g, g + 8, then the right half."""
    rows, columns = [], []
    for part in range(parts):
        for e in range(per):
            rows.append(G + 8 * (part & 1))
            columns.append(per * T + e + 4 * per * (part >> 1))
    return pieces(a, rows, columns)


def b_pieces(b: np.ndarray, per: int, parts: int) -> np.ndarray:
    rows = [per * T + e + 4 * per * part for part in range(parts) for e in range(per)]
    return pieces(b, rows, [G] * len(rows))


def c_pieces(c: np.ndarray) -> np.ndarray:
    rows = [G + 8 * h for h in range(len(c) // 8) for _ in range(2)]
    return pieces(c, rows, [2 * T, 2 * T + 1] * (len(c) // 8))


def mma_case(a: np.ndarray, b: np.ndarray, c: np.ndarray, per: int, bits: Callable[[np.ndarray], np.ndarray]) -> Built:
    """d (= c before), a, b as the lanes hold them."""
    truth = (a.astype(F64) @ b.astype(F64) + c).astype(c.dtype)
    return [c_pieces(c), bits(a_pieces(a, per, 4)).view(U32), bits(b_pieces(b, per, 2)).view(U32)], [c_pieces(truth)]


@case("matrices.cu", 1, 32, since=75)
def mma_1688(rng: np.random.Generator) -> Built:
    a, b, c = small(rng, (16, 8)), small(rng, (8, 8)), small(rng, (16, 8), F32)
    truth = a.astype(F32) @ b.astype(F32) + c
    args = [np.zeros((32, 4), F32), a_pieces(a, 2, 2).view(U32), b_pieces(b, 2, 1).view(U32), c_pieces(c)]
    return args, [c_pieces(truth)]


@case("matrices.cu", 1, 32, since=75)
def mma_bytes(rng: np.random.Generator) -> Built:
    a, b = ints(rng, -128, 127, (8, 16), np.int8), ints(rng, 0, 255, (16, 8), np.uint8)
    c = ints(rng, -(2**31), 2**31 - 1, (8, 8))
    truth = np.clip(a.astype(np.int64) @ b.astype(np.int64) + c, -(2**31), 2**31 - 1).astype(I32)
    pa, pb = a_pieces(a, 4, 1).view(U32), b_pieces(b, 4, 1).view(U32)
    return [np.zeros((32, 2), I32), pa, pb, c_pieces(c)], [c_pieces(truth)]


@case("matrices.cu", 1, 32, since=75)
def ldmatrix(rng: np.random.Generator) -> Built:
    data = words(rng, 128).view(np.uint16)
    rows = data.reshape(32, 8)[(np.arange(32) * 5 + 3) & 31]  # the row that each lane points at
    matrices = rows.reshape(4, 8, 8)
    plain = [np.stack([m[G, 2 * T], m[G, 2 * T + 1]], 1) for m in matrices]
    turned = [np.stack([m[2 * T, G], m[2 * T + 1, G]], 1) for m in matrices]
    out = [plain[0], turned[0], *plain[:2], *plain, *turned]
    return [np.zeros((32, 12), U32), data], [np.concatenate(out, 1).copy().view(U32)]


@case("matrices.cu", 1, 32, since=80)
def mma_16816(rng: np.random.Generator) -> Built:
    return mma_case(small(rng, (16, 16)), small(rng, (16, 8)), small(rng, (16, 8), F32), 2, lambda x: x)


@case("matrices.cu", 1, 32, kernel="mma_16816", since=80, near=ROUNDED)
def mma_16816_rounded(rng: np.random.Generator) -> Built:
    a, b = rng.normal(size=(16, 16)).astype(np.float16), rng.normal(size=(16, 8)).astype(np.float16)
    return mma_case(a, b, rng.normal(size=(16, 8)).astype(F32), 2, lambda x: x)


@case("matrices.cu", 1, 32, since=80)
def mma_bf16(rng: np.random.Generator) -> Built:
    return mma_case(small(rng, (16, 16), F32), small(rng, (16, 8), F32), small(rng, (16, 8), F32), 2, exact.bfloat)


@case("matrices.cu", 1, 32, since=80)
def mma_tf32(rng: np.random.Generator) -> Built:
    return mma_case(small(rng, (16, 8), F32), small(rng, (8, 8), F32), small(rng, (16, 8), F32), 1, lambda x: x)


#: Sums whose terms lie far apart: what hardware drops of the small ones is measured by the largest.
SCATTERED: Near = (0, 0.02)


def scattered(rng: np.random.Generator, shape: tuple[int, ...], low: int = -20) -> np.ndarray:
    """Numbers of very different sizes; some are denormal as halves, some 0."""
    return rng.normal(size=shape) * 2.0 ** rng.integers(low, 4, shape) * (rng.random(shape) < 0.95)


@case("matrices.cu", 1, 32, kernel="mma_16816", since=80, near=SCATTERED)
def mma_16816_scattered(rng: np.random.Generator) -> Built:
    a, b = scattered(rng, (16, 16)).astype(np.float16), scattered(rng, (16, 8)).astype(np.float16)
    return mma_case(a, b, scattered(rng, (16, 8)).astype(F32), 2, lambda x: x)


@case("matrices.cu", 1, 32, kernel="mma_bf16", since=80, near=SCATTERED)
def mma_bf16_scattered(rng: np.random.Generator) -> Built:
    a, b = (exact.unbfloat(exact.bfloat(scattered(rng, shape, -12))) for shape in ((16, 16), (16, 8)))
    return mma_case(a, b, scattered(rng, (16, 8)).astype(F32), 2, exact.bfloat)


@case("matrices.cu", 1, 32, kernel="mma_tf32", since=80, near=SCATTERED)
def mma_tf32_scattered(rng: np.random.Generator) -> Built:
    a, b = (scattered(rng, shape, -12).astype(F32) for shape in ((16, 8), (8, 8)))
    a, b = ((x.view(U32) & U32(0xFFFFE000)).view(F32) for x in (a, b))  # what TF32 holds
    return mma_case(a, b, scattered(rng, (16, 8)).astype(F32), 1, lambda x: x)


@case("matrices.cu", 1, 32, kernel="mma_1688", since=75, near=SCATTERED)
def mma_1688_scattered(rng: np.random.Generator) -> Built:
    a, b = scattered(rng, (16, 8)).astype(np.float16), scattered(rng, (8, 8)).astype(np.float16)
    c = scattered(rng, (16, 8)).astype(F32)
    truth = (a.astype(F64) @ b.astype(F64) + c).astype(F32)
    args = [np.zeros((32, 4), F32), a_pieces(a, 2, 2).view(U32), b_pieces(b, 2, 1).view(U32), c_pieces(c)]
    return args, [c_pieces(truth)]


@case("matrices.cu", 2, 32, kernel="wmma_half", near=(0.01, 0.05))
def wmma_half_rounded(rng: np.random.Generator) -> Built:
    return wmma_case(rng, np.float16, plain=False)


@case("matrices.cu", 1, 32, since=80)
def mma_16832(rng: np.random.Generator) -> Built:
    a, b = ints(rng, -128, 127, (16, 32), np.int8), ints(rng, -128, 127, (32, 8), np.int8)
    return mma_case(a, b, ints(rng, -99999, 99999, (16, 8)), 4, lambda x: x)


@case("matrices.cu", 1, 32, since=80)
def mma_double(rng: np.random.Generator) -> Built:
    a, b, c = small(rng, (8, 4), F64), small(rng, (4, 8), F64), small(rng, (8, 8), F64)
    return [c_pieces(c), a_pieces(a, 1, 1), b_pieces(b, 1, 1)], [c_pieces(a @ b + c)]


@case("matrices.cu", (2, 1), 128)
def tensor_matmul(rng: np.random.Generator) -> Built:
    a, b = small(rng, (32, 48)), small(rng, (48, 64))
    return [np.zeros((32, 64), F32), a, b, I32(64), I32(48)], [a.astype(F32) @ b.astype(F32)]


# -- memory.cu


@case("memory.cu", 2, 64)
def widths(rng: np.random.Generator) -> Built:
    n = 128
    data = words(rng, 4 * n).view(np.uint8)
    b2, b4, b8, b16 = data.view(np.int16), data.view(I32), data.view(I32).reshape(-1, 2), data.view(I32).reshape(-1, 4)
    extended = np.stack([data.view(np.int8)[:n], data.view(np.uint16)[:n]], 1).astype(I32)
    outs = [np.zeros(n, np.uint8), np.zeros(n, np.int16), np.zeros(n, I32)]
    outs += [np.zeros((n, 2), I32), np.zeros((n, 4), I32), np.zeros((n, 2), I32)]
    truth = [data[:n] + np.uint8(1), b2[:n] - np.int16(1), b4[:n] * I32(3), b8[:n, ::-1].copy(), b16[:n, ::-1].copy()]
    return [*outs, data], [*truth, extended]


@case("memory.cu", 1, 64, shared=1024)
def shared_widths(rng: np.random.Generator) -> Built:
    data = words(rng, 256).view(I32)
    t = np.arange(64)
    pair = data.reshape(-1, 2)[(5 * t) & 127]
    columns = [
        data.view(np.int8)[7 * t], data.reshape(64, 4)[63 - t].sum(1, dtype=I32), pair[:, 0] ^ pair[:, 1],
        data.reshape(64, 4)[(t + 9) & 63, 0].astype(np.int16), data.view(np.uint8)[1023 - t],
    ]  # fmt: skip
    return [np.zeros((64, 5), I32), data], [np.stack([c.astype(I32) for c in columns], 1)]


@case("memory.cu", 1, 64)
def constants(rng: np.random.Generator) -> Built:
    big = np.zeros(1, np.dtype([("values", I32, 20), ("scale", F64)]))
    big["values"], big["scale"] = ints(rng, -50, 50, 20), 0.25
    t = np.arange(64)
    table = np.array([3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3], F64)
    fractions = np.array([0.5, 0.25, 0.125, 1e-3])
    truth = table[3] + table[t & 15] * fractions[t & 3] + big["values"][0, (t * 3) % 20] * 0.25 + (t & 7) ** 2 + 5
    return [np.zeros(64), big[0]], [truth]


@case("memory.cu", 2, 48)
def stack(rng: np.random.Generator) -> Built:
    n = 96
    v = ints(rng, 0, 23, n)
    truth = np.zeros((2, n), I32)
    for t in range(n):
        a = [i * i + t for i in range(24)]
        for i in range(24):
            j = (int(v[t]) + i * 7) % 24
            a[i], a[j] = a[j], a[i]
        size, by = 5 + t % 19, t % 4
        a[:size] = a[by:size] + a[:by]
        r = 0
        for x in a:
            r = r * 31 + x
        truth[0, t] = wrap(r)
        truth[1, t] = int(((v[t] % 6) * 0.5 + t) * 8) + (int(v[t]) % 12 * t + 128) % 256 - 128
    return [np.zeros((2, n), I32), v], [truth]


@case("memory.cu", 1, 32)
def generic(rng: np.random.Generator) -> Built:
    values = ints(rng, 0, 99, 32)
    room = (values * 2).tolist()
    out, spaces = [0] * 64, [0] * 32
    end, room_end = values.tolist(), list(room)
    for t in range(32):
        local = [int(values[(t + i) & 31]) for i in range(8)]
        source, at, space = [(room, t & 15, 1), (local, 0, 4), (values.tolist(), t & 15, 2)][t % 3]
        out[t], spaces[t] = sum(source[at : at + 8]), space
        out[32 + t] = t if t % 3 == 1 else local[0]
    return [np.zeros(64, I32), np.zeros(32, I32), values], _generic(out, spaces, end, room_end)


def _generic(out: list[int], spaces: list[int], end: list[int], room: list[int]) -> list[Any]:
    """After all have written through their pointers: lanes t and t + 16 point at the same place of different spaces."""
    for t in range(32):
        if t % 3 == 0:
            room[t & 15] = t
        elif t % 3 == 2:
            end[t & 15] = t
    room[31] += 16
    end[31] += 16
    out[63] += end[31] + room[31]
    return [np.array(out, I32), np.array(spaces, I32), np.array(end, I32)]


@case("memory.cu", 2, 20)
def atomics(rng: np.random.Generator) -> Built:
    each, n, t = 20, 40, np.arange(40, dtype=np.uint64)
    h = (t * np.uint64(2654435761)) & np.uint64(0xFFFFFFFF)
    h32, s = h.astype(U32), h.astype(U32).view(I32)
    u = np.zeros(32, U32)
    u[2], u[4], u[8], u[9] = 2**32 - 1, 2**32 - 1, 20, 1
    end = u.copy()
    end[0], end[1], end[2], end[3] = h32.sum(dtype=U32), U32(2**32 - n * (n - 1) // 2), h32.min(), h32.max()
    end[4:8] = 2**32 - 256, np.bitwise_or.reduce(U32(1) << (h32 & 31)), np.bitwise_xor.reduce(h32), n
    dec, product = 20, 1
    for _ in range(n):
        dec = 50 if dec == 0 or dec > 50 else dec - 1
        product = (product * 3 + 7) & 0xFFFFFFFF
    end[8], end[9] = dec, product
    big, little = np.zeros(16, np.uint64), [int(x) for x in h]
    big[1] = 2**64 - 1
    long_end = big.copy()
    signed = [int(x) << 30 for x in s]
    long_end[:5] = [sum(x << 20 for x in little) & 2**64 - 1, min(little) << 3, max([0, *signed]), 0, 3 * n]
    long_end[3] = np.bitwise_xor.reduce(h << np.uint64(16))
    for b in range(2):
        part, mine = h32[each * b : each * b + each], little[each * b : each * b + each]
        inc = 0
        for _ in range(each):
            inc = 0 if inc >= 20 else inc + 1
        end[16 + 8 * b : 24 + 8 * b] = [
            part.sum(dtype=U32), part.max(), sum(1 << i for i in {(each * b + i) % 32 for i in range(each)}),
            part.min(), np.bitwise_xor.reduce(part), inc, np.array(0.25 * each, F32).view(U32), 2 * each,
        ]  # fmt: skip
        long_end[8 + 4 * b : 10 + 4 * b] = [sum(x << 8 for x in mine) & 2**64 - 1, max(mine) << 8]
    extremes = np.array([2**31 - 1, -(2**31)], I32)
    floats, doubles = F32((t & np.uint64(15)).sum()), ((t & np.uint64(31)) * 0.5).sum()
    args = [u, extremes, big, np.zeros(1, F32), np.zeros(1), np.zeros(n, U32)]
    return args, [end, np.array([s.min(), s.max()]), long_end, np.array([floats]), np.array([doubles]), np.ones(n, U32)]


@case("memory.cu", 2, 32)
def returned(rng: np.random.Generator) -> Built:
    t = np.arange(64)
    memory = ints(rng, 0, 999, 64)
    odd = t & 1 == 1
    after = np.where(odd, 1000 + t, 7 * t)
    rows = [memory, memory + t, 7 * t, after, 5 * t + 5 * t - 3 + 9, np.full(64, 8)]
    return [memory, np.zeros((6, 64), I32)], [np.maximum(after, 600).astype(I32), np.array(rows, I32)]


@case("memory.cu", 1, 64)
def hints(rng: np.random.Generator) -> Built:
    v = ints(rng, 0, 9999, 64)
    return [np.zeros((5, 64), I32), v], [np.array([4 * v, v, np.arange(64), 2 * (v ^ 1), v], I32)]


@case("memory.cu", 1, 32)
def conflicts(rng: np.random.Generator) -> Built:
    lane = np.arange(32)
    room = np.zeros(1056, np.int64)
    total = np.zeros(32, np.int64)
    for stride in (1, 2, 3, 4, 8, 16, 31, 32, 33):
        room[stride * lane] = lane + stride
        total += room[stride * (31 - lane)]
    total += room[lane // 2] + room[lane & 3] + room[7]
    for stride in (1, 2, 4, 8):
        two, four = (stride * lane) & 511, (stride * lane) & 255
        total += (2 * two) * 2 + 1 + (4 * four) * 4 + 6
    pair, quad = lane // 4 * 2, lane // 8 * 4
    total += 2 * pair + 1 + 4 * quad + 6
    end = np.arange(1024)
    np.add.at(end, 900 + (lane & 7), lane)
    end[32 * np.arange(16)] |= 1 << 20
    return [np.zeros(32, I32)], [(total + end[900 + (lane & 7)] + end[32 * (lane & 15)]).astype(I32)]


# -- async.cu


@case("async.cu", 1, 64, since=80)
def cp_async(rng: np.random.Generator) -> Built:
    data = ints(rng, -99, 99, 5 * 256)
    t = np.arange(64)
    total = np.zeros(64, I32)
    for tile in range(5):
        total = total * I32(3) + data[256 * tile + ((t * 37) & 255)]
    taken = np.where(t & 1, 8, np.where(t & 2, 4, 0))
    zeroed = np.stack([np.where(taken >= 4, data[2 * t], 0), np.where(taken >= 8, data[2 * t + 1], 0)], 1)
    return [np.zeros(256, I32), data, I32(5)], [np.concatenate([total, data[t + 1], zeroed.ravel()]).astype(I32)]


@case("async.cu", 1, 64, since=80)
def mbarrier(rng: np.random.Generator) -> Built:
    v = np.arange(64)
    for _ in range(3):
        v = np.roll(v, -1) + np.roll(v, -17)
    return [np.zeros(64, I32)], [v.astype(I32)]


@case("async.cu", 2, 256, since=90)
def bulk(rng: np.random.Generator) -> Built:
    data = ints(rng, -9999, 9999, (4, 256))
    return [np.zeros((4, 256), I32), data], [2 * data + data[:, ::-1]]


# -- written by hand


@case("carries.sass", 1, 64, kernel="kern")
def carries(rng: np.random.Generator) -> Built:
    a, b = words(rng, 256).reshape(64, 4), words(rng, 256).reshape(64, 4)
    a[:8] = 0xFFFFFFFF
    b[:4], b[8:12, :3] = 0, a[8:12, :3]
    rows = [carried([int(v) for v in x], [int(v) for v in y]) for x, y in zip(a, b)]
    return [np.zeros((64, 20), U32), a, b], [np.array(rows, U32)]


def carried(a: list[int], b: list[int]) -> list[int]:
    """A row of carries.sass."""
    mask = 2**32 - 1
    x, y = (sum(v << 32 * n for n, v in enumerate(w)) for w in (a, b))
    difference = x + (2**128 - y)  # the carry is 1 where nothing is borrowed
    three = a[0] + b[0] + a[1]
    source = [(b[1] << 32 | a[0]) >> 8 * n & 255 for n in range(8)]
    low, nibbles = b[0] & 3, [b[0] >> 4 * k & 15 for k in range(4)]
    signed = [0xFF * (source[n & 7] >> 7) if n & 8 else source[n & 7] for n in nibbles]
    picks = [
        signed, [source[low + k & 7] for k in range(4)], [source[low - k & 7] for k in range(4)], [source[low]] * 4,
        [source[max(k, low)] for k in range(4)], [source[min(k, low)] for k in range(4)],
        [source[2 * (low & 1) + (k & 1)] for k in range(4)],
    ]  # fmt: skip
    logic = (a[0] ^ (b[0] | a[1])) & mask  # table 0x1e
    p5 = logic != 0
    p6 = a[2] > b[2] and p5
    p0 = not a[2] > b[2] and p5
    carries = [p0, x + y >> 128, difference >> 128, 0, 0, p5, p6]
    top = three >> 32
    flags = sum(1 << k for k, carry in enumerate(carries) if carry)
    wide = (a[1] << 32 | a[0]) - (a[1] >> 31 << 64)
    out = [(x + y) >> 32 * k & mask for k in range(4)] + [difference >> 32 * k & mask for k in range(4)]
    out += [three & mask, top] + [sum(v << 8 * k for k, v in enumerate(pick)) for pick in picks] + [logic]
    return [*out, flags | (top >= 1) << 3 | (top >= 2) << 4, wide >> min(b[1], 63) & mask]


@case("parts.sass", 1, 32, kernel="kern")
def parts(rng: np.random.Generator) -> Built:
    lane = np.arange(32)
    total = np.where(lane >= 20, (lane + 300) * 2 + 1, np.where(lane < 5, lane + 200, lane + 100))
    total[3] += 10000
    votes = np.where(lane == 3, 8, 2**32 - 1 - 8)
    return [np.zeros((32, 2), U32)], [np.stack([total, votes], 1).astype(U32)]
