"""Products in tensor memory on the CPU device, in kernels that ptxas makes of PTX: every kind, shape, place of A,
layout, sign, scale and kind of sparse product. All operands are small, so that sums are exact in any order: it is
places and formats that are tested here. No Blackwell card was at hand: what is expected follows from the PTX ISA and
from CUTLASS' traits."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

from tests.emulate.tcgen05 import COLUMNS, compiled, registers
from tests.emulate.wgmma import Matrix
from tests.tools import ptxas
from turingas.emulate import DeviceError, launch
from turingas.emulate.arrays import Array
from turingas.emulate.semantics.described import Described, taken

pytestmark = pytest.mark.skipif(ptxas.program_path() is None, reason="ptxas is not installed")

ROOM = 40 << 10  # bytes of shared memory
WORDS = 64  # of parameters
LANES = 128
BLOCK = WORDS + ROOM // 4 + LANES * COLUMNS  # words of input of a block
AT_A, AT_SA, AT_SB, AT_E = 256, 384, 400, 416  # columns of tensor memory
#: format: bits of exponent and mantissa
FLOATS = {"F16": (5, 10), "BF16": (8, 7), "TF32": (8, 23), "F32": (8, 23), "E4M3": (4, 3), "E5M2": (5, 2),
          "E3M2": (3, 2), "E2M3": (2, 3), "E2M1": (2, 1)}  # fmt: skip
CODES = {"F16": 0, "BF16": 1, "TF32": 2, "U8": 0, "S8": 1, "E4M3": 0, "E5M2": 1, "E2M3": 3, "E3M2": 4, "E2M1": 5}


class Mask(NamedTuple):
    """Which columns of B are 0, and by how many B is shifted. ``starts`` and ``firsts`` of each part of the columns."""

    starts: tuple[int, ...] = (0, 0, 0, 0)
    firsts: tuple[int, ...] = (0, 0, 0, 0)
    zeros: int = 1
    used: int = 1
    shift: int = 0
    on: bool = True

    @property
    def word(self) -> int:
        word = self.on << 39 | self.zeros - 1 << 40 | self.used - 1 << 48 | self.shift << 56
        word |= sum(start << 8 * n for n, start in enumerate(self.starts))
        return word | sum(first << 32 + n for n, first in enumerate(self.firsts))

    def columns(self, count: int, parts: int) -> list[bool]:
        """Which of ``count`` columns are 0, span by span."""
        found: list[bool] = []
        for part in range(parts):
            zero, here = bool(self.firsts[part]), []
            left = max(1, (self.zeros if zero else self.used) - self.starts[part])
            while len(here) < count // parts:
                here += left * [zero]
                zero = not zero
                left = self.zeros if zero else self.used
            found += here[: count // parts]
        return found if self.on else count * [False]


class Double(NamedTuple):
    """Where a matrix lies whose swizzle of 128 bytes moves 32 bytes at once, and its descriptor: CUTLASS' layouts
    SW128_32B, of Swizzle<2, 5, 2>, 1024 x 4 bits where it is transposed."""

    start: int
    leading: int
    stride: int
    turned: bool

    @property
    def descriptor(self) -> int:
        return self.start >> 4 | self.leading >> 4 << 16 | self.stride >> 4 << 32 | 1 << 61

    def address(self, row: Array, at: Array, bits: int) -> Array:
        if self.turned:
            place = row * bits // 8 % 128 + at % 4 * 128 + row * bits // 8 // 128 * self.leading + at // 4 * self.stride
        else:
            place = row % 8 * 128 + row // 8 * self.stride + at * bits // 8
        place = place + self.start
        return place ^ (place >> 7 & 3) << 5


class Product(NamedTuple):
    """``kind`` as PTX writes it; ``more``: what stands behind it. ``swizzles`` of A (None: in tensor memory) and B."""

    kind: str
    kinds: tuple[str, str]
    rows: int = 128
    columns: int = 64
    into: str = "F32"
    swizzles: tuple[int | None, int] = (128, 128)
    turned: tuple[bool, bool] = (False, False)
    negative: tuple[bool, bool] = (False, False)
    sparse: int | None = None  # the selector
    pair: bool = False
    stationary: bool = False
    scales: tuple[str, int] | None = None  # their format, and elements that one is for
    ids: tuple[int, int] = (0, 0)
    masked: bool = False
    shift: int = 0
    saturates: bool = False
    mask: Mask | None = None
    moves: bool = False  # .ashift
    double: bool = False  # swizzles of 32 bytes
    long: bool = False  # K = 96
    crosses: bool = False  # rows go on elsewhere behind their first 32 bytes

    @property
    def packed(self) -> bool:
        return self.kind.startswith("mxf4")

    @property
    def bits(self) -> int:
        """Of an element of A and B in memory."""
        return 4 if self.packed else {"F16": 16, "BF16": 16, "TF32": 32}.get(self.kinds[0], 8)

    @property
    def kept(self) -> int:
        return 96 if self.long else 256 // self.bits

    @property
    def k(self) -> int:
        return self.kept * (1 if self.sparse is None else 2)

    @property
    def mine(self) -> int:
        """Rows of a block."""
        return self.rows // (1 + self.pair)

    def descriptor(self) -> int:
        word = CODES[self.kinds[0]] << 7 | CODES[self.kinds[1]] << 10
        if self.packed:
            word = 1 << 7 | 1 << 10
        for n, bit in enumerate((*self.negative, *self.turned)):
            word |= bit << 13 + n
        word |= self.columns >> 3 << 17 | self.rows >> 4 << 24
        if self.scales:
            word |= self.ids[1] << 4 | (self.scales[0] == "UE8M0") << 23 | self.ids[0] << 29 | self.long << 31
        else:
            word |= {"F16": 0, "F32": 1, "S32": 2}[self.into] << 4 | self.saturates << 3
        if self.mask and self.mask.shift:
            word |= (1 if self.mask.shift <= 8 else 2 if self.mask.shift <= 16 else 3) << 30
        return word if self.sparse is None else word | 4 | self.sparse

    def text(self) -> str:
        group = 2 if self.pair else 1
        name = "tcgen05.mma" + ".ws" * self.stationary + ".sp" * (self.sparse is not None)
        name += f".cta_group::{group}.kind::{self.kind}" + ".ashift" * self.moves
        if self.scales:
            name += f".block_scale.scale_vec::{(32 if not self.packed else 64) // self.scales[1]}X"
        operands = ["[%r1]", "[%r3]" if self.swizzles[0] is None else "%d1", "%d2"]
        operands += ["[%r6]"] * (self.sparse is not None) + ["%r2"]
        operands += ["[%r4]", "[%r5]"] if self.scales else []
        operands += [registers(10, 8 if self.pair else 4)] * self.masked + ["%p1"]
        operands += [str(self.shift)] * (self.shift > 0) + ["%d5"] * (self.mask is not None)
        return f"{name} {', '.join(operands)};"

    def body(self) -> str:
        """Fills shared and tensor memory from ``in``, multiplies, and stores all of tensor memory."""
        loads = "\n".join(f"ld.global.b32 %r{n}, [%in+{4 * n}];" for n in range(1, 32))
        whole = registers(32, 32)
        meet = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" if self.pair else "bar.sync 0;"
        commit = "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r200];"
        if self.pair:
            commit = (
                "mov.b16 %h1, 3; tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster"
                ".multicast::cluster.b64 [%r200], %h1;"
            )
        return f"""
 mul.lo.u32 %r0, %rank, {4 * BLOCK}; cvt.u64.u32 %d0, %r0; add.u64 %in, %in, %d0;
 mul.lo.u32 %r0, %rank, {4 * LANES * COLUMNS}; cvt.u64.u32 %d0, %r0; add.u64 %out, %out, %d0;
 {loads}
 ld.global.b64 %d1, [%in+128]; ld.global.b64 %d2, [%in+136]; ld.global.b64 %d5, [%in+144];
 mov.u32 %r201, sm; shr.u32 %r202, %r201, 4; cvt.u64.u32 %d3, %r202; add.u64 %d1, %d1, %d3; add.u64 %d2, %d2, %d3;
 {"shl.b64 %d3, %d3, 16; add.u64 %d1, %d1, %d3; add.u64 %d2, %d2, %d3;" if self.crosses else ""}
 add.u32 %r1, %r1, %tm; add.u32 %r3, %r3, %tm; add.u32 %r4, %r4, %tm; add.u32 %r5, %r5, %tm; add.u32 %r6, %r6, %tm;
 setp.ne.u32 %p1, %r7, 0;
 mov.u32 %r203, 0;
 mul.wide.u32 %d4, %thread, 16; add.u64 %d4, %d4, %in; shl.b32 %r204, %thread, 4; add.u32 %r204, %r204, %r201;
FILL:
 ld.global.v4.b32 {{%r32, %r33, %r34, %r35}}, [%d4+{4 * WORDS}];
 st.shared.v4.b32 [%r204], {{%r32, %r33, %r34, %r35}};
 add.u64 %d4, %d4, 2048; add.u32 %r204, %r204, 2048; add.u32 %r203, %r203, 2048;
 setp.lt.u32 %p2, %r203, {ROOM}; @%p2 bra FILL;
 mul.wide.u32 %d4, %thread, {4 * COLUMNS}; add.u64 %d4, %d4, %in; mov.u32 %r203, 0;
 mov.u32 %r205, %mine;
TENSOR:
 {" ".join(f"ld.global.b32 %r{32 + n}, [%d4+{4 * WORDS + ROOM + 4 * n}];" for n in range(32))}
 tcgen05.st.sync.aligned.32x32b.x32.b32 [%r205], {whole};
 add.u64 %d4, %d4, 128; add.u32 %r205, %r205, 32; add.u32 %r203, %r203, 32;
 setp.lt.u32 %p2, %r203, {COLUMNS}; @%p2 bra TENSOR;
 tcgen05.wait::st.sync.aligned;
 fence.proxy.async.shared::cta;
 tcgen05.fence::before_thread_sync;
 {meet}
 tcgen05.fence::after_thread_sync;
 mov.u32 %r200, bar;
 setp.eq.u32 %p3, %rank, 0; and.pred %p3, %p3, %one;
 @!%p3 bra WAIT;
 {self.text()}
 {commit}
WAIT:
 mbarrier.try_wait.parity.shared::cta.b64 %p4, [%r200], 0;
 @!%p4 bra WAIT;
 tcgen05.fence::after_thread_sync;
 mul.wide.u32 %d4, %thread, {4 * COLUMNS}; add.u64 %d4, %d4, %out; mov.u32 %r203, 0;
 mov.u32 %r205, %mine;
BACK:
 tcgen05.ld.sync.aligned.32x32b.x32.b32 {whole}, [%r205];
 tcgen05.wait::ld.sync.aligned;
 {" ".join(f"st.global.b32 [%d4+{4 * n}], %r{32 + n};" for n in range(32))}
 add.u64 %d4, %d4, 128; add.u32 %r205, %r205, 32; add.u32 %r203, %r203, 32;
 setp.lt.u32 %p2, %r203, {COLUMNS}; @%p2 bra BACK;
 {meet}
"""


def value(kind: str, codes: Array) -> Array:
    """What codes of a format are worth, but for infinities and NaN."""
    if kind == "U8":
        return codes.astype(np.float64)
    if kind in ("S8", "S32"):
        return codes.astype(np.uint8 if kind == "S8" else np.uint32).view(np.int8 if kind == "S8" else np.int32) * 1.0
    exponent, mantissa = FLOATS[kind]
    codes = codes.astype(np.int64)
    e, f = codes >> mantissa & (1 << exponent) - 1, codes & (1 << mantissa) - 1
    bias = (1 << exponent - 1) - 1
    size = np.where(e > 0, 1.0, 0.0) + f / (1 << mantissa)
    return np.where(codes >> exponent + mantissa & 1, -1.0, 1.0) * size * 2.0 ** (np.maximum(e, 1) - bias)


def small(rng: np.random.Generator, kind: str, shape: tuple[int, ...]) -> Array:
    """Codes of small numbers of few bits."""
    if kind in ("U8", "S8"):
        return rng.integers(0, 256, shape)
    if kind == "S32":
        return rng.integers(0, 1 << 32, shape)
    exponent, mantissa = FLOATS[kind]
    if exponent + mantissa <= 5:
        return rng.integers(0, 1 << 1 + exponent + mantissa, shape)
    e = (1 << exponent - 1) - 1 + rng.integers(-1, 2, shape)
    f = rng.integers(0, 4, shape) << mantissa - 2
    return rng.integers(0, 2, shape) << exponent + mantissa | e << mantissa | f


def as_bytes(p: Product, which: int, codes: Array) -> Array:
    """A row of codes as shared memory has it, one code a byte or word, but 4 and 6 bits with their padding."""
    kind = p.kinds[which]
    if p.packed:
        return codes[:, ::2] | codes[:, 1::2] << 4
    if kind in ("E2M1", "E3M2", "E2M3"):
        bits = 4 if kind == "E2M1" else 6
        pieces = codes.reshape(len(codes), -1, 16)
        ones = pieces[..., None] >> np.arange(bits) & 1
        packed = np.packbits(ones.reshape(*pieces.shape[:2], -1).astype(np.uint8), axis=-1, bitorder="little")
        return np.concatenate([packed, np.full((*pieces.shape[:2], 16 - 2 * bits), 0xEE)], axis=2).reshape(codes.shape)
    return codes


def placed(p: Product, which: int, rows: int, k: int, start: int) -> Matrix | Double:
    """A layout for a matrix of (rows, k), tight."""
    bits, swizzle, turned = (8 if p.packed else p.bits), p.swizzles[which] or 0, p.turned[which]
    if p.double:
        return Double(start, 512 * (k // 4), 512, True) if turned else Double(start, 16, 1024, False)
    width = max(swizzle, 16)
    if turned:
        panels, eights = -(-rows * bits // 8 // width), k // 8
        if swizzle:
            return Matrix(start, 8 * width * eights, 8 * width, swizzle, True)
        return Matrix(start, 128 * panels, 128, 0, True)
    if swizzle:
        return Matrix(start, 16, 8 * width, swizzle, False)
    return Matrix(start, 128, 128 * (k * bits // 128), 0, False)


def fill(p: Product, image: Array, which: int, codes: Array, start: int) -> int:
    """Puts a matrix into shared memory; returns its descriptor."""
    content = as_bytes(p, which, codes)
    bits = 8 if p.packed else p.bits
    matrix = placed(p, which, *content.shape, start)
    rows, columns = (np.arange(n) for n in content.shape)
    place = matrix.address(rows[:, None], columns, bits)
    descriptor = matrix.descriptor
    if p.crosses:  # the end of rows of 128 bytes, and the beginning of those eight rows further on
        assert isinstance(matrix, Matrix) and matrix.swizzle == 128
        more = matrix._replace(start=start + 1024)
        at = np.broadcast_to(columns, content.shape)
        place = np.where(at < 32, matrix.address(rows[:, None], at + 96, 8), more.address(rows[:, None], at - 32, 8))
        descriptor = matrix._replace(start=start + 96, leading=more.start).descriptor | 1 << 52
    raw = content.astype({8: np.uint8, 16: np.uint16, 32: np.uint32}[bits])
    size = bits // 8
    image[place[:, :, None] + np.arange(size)] = np.ascontiguousarray(raw).view(np.uint8).reshape(*content.shape, size)
    return descriptor | 1 << 46


def lanes(p: Product) -> tuple[Array, Array]:
    """Where PTX ISA's layouts A to G have the elements of D of a block, (rows, columns) each."""
    row, column = np.mgrid[: p.mine, : p.columns]
    half, quarter = p.columns // 2, p.columns // 4
    if p.mine == 128:
        return row, column
    if p.mine == 32:
        return row + 32 * (column // quarter), column % quarter
    if p.stationary or p.pair and p.sparse is None:
        return row + 64 * (column // half), column % half
    return row // 16 * 32 + row % 16, column


def lanes_of_a(p: Product, row: int) -> list[int]:
    """The lanes of a row of A, and of what belongs to it: those that D has."""
    if p.stationary or p.pair and p.sparse is None:
        return list(range(row, LANES, p.mine))
    return [row if p.mine == 128 else row // 16 * 32 + row % 16]


def metadata(p: Product, picks: Array, tensor: Array) -> None:
    """What a sparse A of a block keeps, into tensor memory."""
    elements = 2 if p.kinds[0] == "TF32" else 8 if p.packed else 4
    for row in range(p.mine):
        named: list[int] = []
        for group in range(0, p.k, elements):
            here = np.flatnonzero(picks[row, group : group + elements])
            if elements == 2:
                named += [2 * int(here[0]), 2 * int(here[0]) + 1]
            else:
                named += (here // (elements // 4)).tolist()[:: elements // 4]
        for lane in lanes_of_a(p, row):
            for n, pick in enumerate(named):
                if p.bits >= 16:
                    at = lane // 16 * 16 + row % 8 + n // 8 * 8, AT_E + (p.sparse or 0)
                    shift = row // 8 % 2 * 16 + n % 8 * 2
                else:
                    at, shift = (lane, AT_E + n // 16), n % 16 * 2
                tensor[at] = int(tensor[at]) & ~(3 << shift) | pick << shift


def run(p: Product, rng: np.random.Generator) -> tuple[Array, Array]:
    """All of tensor memory afterwards, (blocks, lanes, columns), and as it should be."""
    blocks = 1 + p.pair
    whole = np.zeros((blocks, BLOCK), np.uint32)
    tensor = rng.integers(0, 1 << 32, (blocks, LANES, COLUMNS), np.uint32)
    shifted = p.mask.shift if p.mask else 0
    a, b = small(rng, p.kinds[0], (p.rows, p.kept)), small(rng, p.kinds[1], (p.columns + shifted, p.k))
    picks = np.ones((p.rows, p.k), bool)
    if p.sparse is not None:
        size, each = (2, 1) if p.kinds[0] == "TF32" else (4, 2 if p.packed else 1)
        order = rng.random((p.rows, p.k // size // each, size)).argsort(axis=-1) < size // 2
        picks = np.repeat(order.reshape(p.rows, -1), each, axis=1)
    left = np.zeros((p.rows, p.k))
    left[picks] = value(p.kinds[0], a).reshape(-1)
    right = value(p.kinds[1], b)[shifted:]
    if p.mask:
        right = np.where(np.array(p.mask.columns(p.columns, LANES // p.rows))[:, None], 0, right)
    bits = {"F32": 32, "S32": 32, "F16": 16}[p.into]
    c = small(rng, p.into, (p.rows, p.columns))
    where, column = lanes(p)
    scale_a = scale_b = None
    if p.scales:
        form, vector = p.scales
        count = p.k // (vector * (1 if p.sparse is None else 2))
        pool = np.array([126, 127, 128, 129] if form == "UE8M0" else [0x30, 0x34, 0x38, 0x3C])
        scale_a, scale_b = (pool[rng.integers(0, 4, (n, count))] for n in (p.rows, p.columns))
        worth = (lambda x: 2.0 ** (x - 127.0)) if form == "UE8M0" else (lambda x: value("E4M3", x))
        left = left * np.repeat(worth(scale_a), p.k // count, axis=1)
        right = right * np.repeat(worth(scale_b), p.k // count, axis=1)
    masks = rng.integers(0, 1 << 32, (blocks, 4), np.uint32) if p.masked else np.zeros((blocks, 4), np.uint32)
    adds = p.columns != 32
    wanted = []
    for n in range(blocks):
        rows = slice(n * p.mine, (n + 1) * p.mine)
        image = rng.integers(0, 256, ROOM, np.uint8)
        mine_b = len(b) // blocks
        descriptors = [0, fill(p, image, 1, b[n * mine_b : (n + 1) * mine_b], 16384)]
        if p.swizzles[0] is not None:
            descriptors[0] = fill(p, image, 0, a[rows], 0)
        else:
            content = as_bytes(p, 0, a[rows]) if p.packed else a[rows] << (2 if p.kinds[0] == "E2M1" else 0)
            raw = content.astype({8: np.uint8, 16: np.uint16, 32: np.uint32}[8 if p.packed else p.bits])
            for row, words in enumerate(np.ascontiguousarray(raw).view(np.uint32)):
                for lane in lanes_of_a(p, row):
                    tensor[n, lane, AT_A : AT_A + len(words)] = words
        if p.sparse is not None:
            metadata(p, picks[rows], tensor[n])
        if scale_a is not None and scale_b is not None:
            for at, scale, first in ((AT_SA, scale_a[rows], p.ids[0]), (AT_SB, scale_b, p.ids[1])):
                raw = tensor[n, :, at : at + 16].copy().view(np.uint8).reshape(LANES, 16, 4)
                for row, worth_of in enumerate(scale):
                    for byte, one in enumerate(worth_of, first):
                        further = byte // 4 * 4 * -(-len(scale) // 128)
                        raw[row % 32 :: 32, row // 32 + further, byte % 4] = one
                tensor[n, :, at : at + 16] = raw.reshape(LANES, 64).view(np.uint32)
        start = tensor[n, where, column]
        tensor[n, where, column] = c[rows] if bits == 32 else start & 0xFFFF0000 | c[rows].astype(np.uint32)
        after = tensor[n].copy()
        sign = (-1.0) ** (p.negative[0] + p.negative[1])
        total = sign * left[rows] @ right.T + (value(p.into, c[rows]) / 2**p.shift if adds else 0)
        if p.into == "S32":
            result = np.clip(total, -(2**31), 2**31 - 1) if p.saturates else total
            codes = result.astype(np.int64).astype(np.uint32)
        elif p.into == "F16":
            codes = after[where, column] & np.uint32(0xFFFF0000) | total.astype(np.float16).view(np.uint16)
        else:
            codes = total.astype(np.float32).view(np.uint32)
            assert (total.astype(np.float32) == total).all()
        if p.moves:
            rows_of_warps = after.reshape(4, 32, COLUMNS)
            rows_of_warps[:, :31, AT_A : AT_A + 8] = rows_of_warps[:, 1:, AT_A : AT_A + 8].copy()
        off = masks[n][where // 32] >> (where % 32).astype(np.uint32) & 1 != 0
        after[where, column] = np.where(off, after[where, column], codes)
        wanted.append(after)
        params = np.zeros(WORDS, np.uint32)
        params[1:8] = 0, p.descriptor(), AT_A, AT_SA, AT_SB, AT_E, adds
        params[10:18] = masks.reshape(-1)[:8] if blocks == 2 else np.tile(masks[0], 2)
        descriptors.append(p.mask.word if p.mask else 0)
        params[32:38] = [word >> shift & 0xFFFFFFFF for word in descriptors for shift in (0, 32)]
        whole[n, :WORDS], whole[n, WORDS : WORDS + ROOM // 4] = params, image.view(np.uint32)
        whole[n, WORDS + ROOM // 4 :] = tensor[n].reshape(-1)
    out = np.zeros((blocks, LANES, COLUMNS), np.uint32)
    options: dict[str, Any] = {"cluster": (2, 1, 1)} if p.pair else {}
    arch = "sm_103a" if p.long else "sm_100a"
    code = compiled(p.body(), arch=arch, shared=ROOM, pair=p.pair)
    launch(code, "k", blocks, 128, [out, whole], budget=50_000, **options)
    return out, np.stack(wanted)


F16 = ("F16", "F16")
PRODUCTS = [
    Product("f16", F16),
    Product("f16", F16, 64, 32, swizzles=(0, 0)),
    Product("f16", F16, 128, 96, "F16", (64, 32), (True, True)),
    Product("f16", ("BF16", "BF16"), 64, 256, swizzles=(None, 128), turned=(False, True), negative=(True, False)),
    Product("f16", ("BF16", "F16"), swizzles=(None, 0), negative=(False, True), shift=3),
    Product("tf32", ("TF32", "TF32"), swizzles=(128, 64), masked=True),
    Product("tf32", ("TF32", "TF32"), swizzles=(32, 0), turned=(True, True)),
    Product("i8", ("U8", "S8"), into="S32", swizzles=(128, 32)),
    Product("i8", ("S8", "S8"), 64, into="S32", swizzles=(None, 64), saturates=True),
    Product("f8f6f4", ("E4M3", "E5M2"), turned=(True, False)),
    Product("f8f6f4", ("E2M1", "E3M2"), swizzles=(128, 128)),
    Product("f8f6f4", ("E2M1", "E2M3"), into="F16", swizzles=(None, 64)),
    Product("f16", F16, sparse=0),
    Product("f16", ("BF16", "BF16"), 64, sparse=1, swizzles=(64, 128), turned=(True, True)),
    Product("tf32", ("TF32", "TF32"), sparse=1),
    Product("f8f6f4", ("E5M2", "E4M3"), sparse=0, swizzles=(None, 128)),
    Product("i8", ("U8", "U8"), into="S32", sparse=0),
    Product("mxf8f6f4", ("E4M3", "E2M1"), 128, 192, scales=("UE8M0", 32), ids=(2, 1)),
    Product("mxf8f6f4", ("E3M2", "E4M3"), sparse=0, scales=("UE8M0", 32), swizzles=(None, 128)),
    Product("mxf4", ("E2M1", "E2M1"), scales=("UE8M0", 32), ids=(0, 2)),
    Product("mxf4nvf4", ("E2M1", "E2M1"), scales=("UE4M3", 16), swizzles=(128, 64)),
    Product("mxf4nvf4", ("E2M1", "E2M1"), sparse=0, scales=("UE4M3", 16)),
    Product("f16", F16, 32, 128, stationary=True),
    Product("f16", F16, 64, 64, stationary=True, swizzles=(64, 128)),
    Product("f8f6f4", ("E4M3", "E4M3"), 128, 64, stationary=True, swizzles=(None, 128)),
    Product("f16", F16, 256, 128, pair=True, masked=True),
    Product("f16", F16, 128, 64, pair=True, swizzles=(None, 128)),
    Product("f16", F16, 128, 64, pair=True, sparse=0),
    Product("mxf8f6f4", ("E4M3", "E4M3"), 256, 64, pair=True, scales=("UE8M0", 32)),
    Product("f16", F16, 64, 64, stationary=True, swizzles=(None, 128)),
    Product("i8", ("S8", "U8"), 32, 128, into="S32", stationary=True, swizzles=(None, 64)),
    Product("f16", F16, 32, 64, stationary=True, sparse=1),
    Product("f8f6f4", ("E4M3", "E5M2"), 64, 64, stationary=True, sparse=0, swizzles=(None, 128)),
    Product("f16", F16, 128, 64, stationary=True, mask=Mask(zeros=3, used=4)),
    Product("f16", F16, 64, 128, stationary=True, mask=Mask((2, 9), (1, 0), 5, 7, 8), turned=(False, True)),
    Product("f16", F16, 32, 128, stationary=True, mask=Mask((0, 1, 2, 1), (1, 1, 0, 0), 3, 4, 2)),
    Product("tf32", ("TF32", "TF32"), 64, 64, stationary=True, mask=Mask(shift=24, on=False)),
    Product("f16", F16, swizzles=(None, 128), moves=True),
    Product("f8f6f4", ("E4M3", "E4M3"), sparse=0, swizzles=(None, 128), moves=True),
    Product("i8", ("S8", "S8"), 256, 64, into="S32", swizzles=(None, 128), pair=True, moves=True),
    Product("f16", F16, 128, 64, swizzles=(None, 128), pair=True, moves=True),
    Product("tf32", ("TF32", "TF32"), double=True),
    Product("tf32", ("TF32", "TF32"), 64, 96, turned=(True, True), double=True),
    Product("mxf4nvf4", ("E2M1", "E2M1"), 128, 192, scales=("UE4M3", 16), ids=(0, 2), long=True),
    Product("mxf4", ("E2M1", "E2M1"), scales=("UE8M0", 32), ids=(3, 1), swizzles=(None, 0), long=True),
    Product("mxf4nvf4", ("E2M1", "E2M1"), 256, 64, scales=("UE4M3", 16), pair=True, long=True),
    Product("mxf4", ("E2M1", "E2M1"), scales=("UE8M0", 32), long=True, crosses=True),
]


def named(p: Product) -> str:
    kind = "-pair" * p.pair + "-ws" * p.stationary + "-sp" * (p.sparse is not None) + "-mask" * (p.mask is not None)
    kind += "-ashift" * p.moves + "-32b" * p.double + "-k96" * p.long + "-crosses" * p.crosses
    return f"{p.kind}-{'x'.join(p.kinds)}-{p.rows}x{p.columns}{kind}"


@pytest.mark.parametrize("p", PRODUCTS, ids=named)
def test_products(p: Product) -> None:
    found, wanted = run(p, np.random.default_rng(len(named(p))))
    bad = np.argwhere(found != wanted)
    assert not len(bad), (len(bad), bad[:3].tolist(), found[tuple(bad[0])], wanted[tuple(bad[0])])


#: products that there are not, and what the error says
WRONG = {
    "16 rows": Product("f16", F16, 16),
    "64 rows that .ASHIFT would shift": Product("f16", F16, 64, swizzles=(None, 128), moves=True),
    "sparsity selector 1": Product("f8f6f4", ("E4M3", "E4M3"), sparse=1),
    "sparsity selector 2: the PTX ISA shows .*; the CPU device cannot": Product("f16", F16, sparse=2),
    "40 columns that B is shifted by": Product("f16", F16, stationary=True, mask=Mask(shift=40)),
    "bits that are reserved": Product("f16", F16, stationary=True, mask=Mask(firsts=(0, 0, 0, 0, 1))),
}


@pytest.mark.parametrize("message", WRONG)
def test_wrong_descriptors(message: str) -> None:
    with pytest.raises(DeviceError, match=message):
        run(WRONG[message], np.random.default_rng(1))


def test_masks_of_columns() -> None:
    """The examples of the PTX ISA, as far as it writes them out, the first column last; and their models here."""
    for rows, mask, parts in [
        (128, Mask(zeros=4, used=5, on=False), ["0" * 16]),
        (128, Mask(zeros=3, used=4), ["11100001110000"]),
        (64, Mask(firsts=(1, 0), zeros=3, used=4), ["11100001110000111", "000011100001110000"]),
        (32, Mask((0, 1, 2, 1), (1, 1, 0, 0), 3, 4, 2),
         ["00001110000111", "0000111000011", "111000011100", "1110000111000"]),
    ]:  # fmt: skip
        no = (False, False)
        of = Described(rows, 128, F16, "F32", no, no, False, 0, False, "", (0, 0), False, 32, True)
        shift, zeros = taken(of, mask.word)
        assert shift == mask.shift and zeros.tolist() == mask.columns(128, LANES // rows)
        for n, part in enumerate(parts):
            here = "".join(str(int(zero)) for zero in zeros[n * rows : n * rows + len(part)])
            assert here == part[::-1]


def test_races() -> None:
    """A product reads shared memory until its mbarrier tells, also behind a commit."""
    p = Product("f16", F16)
    whole = np.zeros((1, BLOCK), np.uint32)
    whole[0, 2] = p.descriptor()
    whole[0, 32:36] = [128 >> 4 << 16, 1 << 30 | 64, (128 >> 4 << 16) + (16384 >> 4), 1 << 30 | 64]
    for added in ("", "st.shared.b32 [%r201], %r200;"):
        code = compiled(p.body().replace("\nWAIT:", f"\n{added}\nWAIT:"), shared=ROOM)
        out = np.zeros((LANES, COLUMNS), np.uint32)
        report = launch(code, "k", 1, 128, [out, whole], budget=50_000, races=True, strict=True)
        assert not report.hazards
        found = [str(race) for race in report.races]
        assert bool(found) == bool(added) and all("STS" in race and "UTCHMMA" in race for race in found), found
