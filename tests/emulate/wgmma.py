"""Products of a warp group, each in a kernel of its own, for the CPU device and for a GPU (sm_90a).

A block of four warps copies its image of ROOM bytes to shared memory, loads A (registers R8 to R11), metadata (R12), C
(from R24 on) and what stands in uniform registers (UR8 and UR9: the descriptor of A, UR10 and UR11: of B, UR12: whether
C counts) and stores D. ``Product`` says which instruction; ``operands`` makes random ones.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from tests.emulate.test_tensor import FLOATS
from turingas.assembler import assemble
from turingas.cubin.cubin import Cubin
from turingas.emulate import launch

Array = np.ndarray
ROOM = 40 << 10  # bytes of shared memory
THREADS = 128
SWIZZLES = {0: 0, 32: 3, 64: 2, 128: 1}  # bytes: code in a descriptor
BITS = {"F16": 16, "BF16": 16, "TF32": 32, "E4M3": 8, "E5M2": 8, "S8": 8, "U8": 8, "B1": 1}


class Product(NamedTuple):
    """HGMMA and its kin. ``kinds``: the formats of A, B and D. ``swizzles``: of A (None: in registers) and B.
    ``turned``: which are transposed; ``negative``: which have a minus."""

    columns: int
    kinds: tuple[str, str, str]
    swizzles: tuple[int | None, int] = (0, 0)
    turned: tuple[bool, bool] = (False, False)
    negative: tuple[bool, bool] = (False, False)
    sparse: bool = False
    selector: int = 0
    more: str = ""

    @property
    def k(self) -> int:
        """Of B; a sparse A has half of it."""
        return 256 // BITS[self.kinds[0]] * (2 if self.sparse else 1)

    @property
    def kept(self) -> int:
        return 256 // BITS[self.kinds[0]]

    @property
    def registers(self) -> int:
        """Of D."""
        return self.columns // (4 if self.kinds[2] == "F16" else 2)

    @property
    def text(self) -> str:
        a, b, d = self.kinds
        shape = f".64x{self.columns}x{self.k}"
        name = ".SP" * self.sparse
        if a in ("S8", "U8"):
            mnemonic = f"IGMMA{name}{shape}.{a}.{b}{self.more}"
        elif a == "B1":
            mnemonic = f"BGMMA{shape}.AND.POPC"
        elif a in ("E4M3", "E5M2"):
            mnemonic = f"QGMMA{name}{shape}.{d}.{a}.{b}"
        else:
            mnemonic = f"HGMMA{name}{shape}.{d}" + (f".{a}" if a != "F16" else "")
        flags_b = ".negB" * self.negative[1] + ".tnspB" * self.turned[1]
        if self.swizzles[0] is None:
            sources = f"{'-' * self.negative[0]}R8, gdesc[UR8]{flags_b}"
        else:
            flags_a = ".negA" * self.negative[0]
            flags = flags_a + ".negB" * self.negative[1] + ".tnspA" * self.turned[0] + ".tnspB" * self.turned[1]
            sources = f"gdesc[UR8]{flags}"
        last = f", R12, {self.selector:#x}" if self.sparse else ""
        return f"{mnemonic} R24, {sources}, R24, UP0{last}, gsb0"

    def source(self) -> str:
        """The kernel ``product(out, image, a, c, uniform)``."""
        copies = "".join(
            f"LDG.E.128 R16, desc[UR4][R2.64+{at:#x}];\nSTS.128 [R6+{at:#x}], R16;\n"
            for at in range(0, ROOM, 16 * THREADS)
        )
        each, size = (2, ".64") if self.registers % 4 else (4, ".128")
        pieces = [(24 + n, size, 4 * n) for n in range(0, self.registers, each)]
        loads = "".join(f"LDG.E{size} R{r}, desc[UR4][R4.64+{at:#x}];\n" for r, size, at in pieces)
        stores = "".join(f"STG.E{size} desc[UR4][R4.64+{at:#x}], R{r};\n" for r, size, at in pieces)
        uniform = "".join(f"R2UR UR{8 + n}, R{16 + n};\n" for n in range(4))
        return f"""
.arch sm_90a
.kernel product
.shared {ROOM}
.param out 8
.param image 8
.param a 8
.param c 8
.param uniform 8
S2R R0, SR_TID.X;
S2R R1, SR_CTAID.X;
ULDC.64 UR4, c[0x0][0x208];
IMAD R20, R1, {THREADS:#x}, R0;
LDC.64 R2, c[0x0][0x218];
IMAD R21, R1, {ROOM // 16:#x}, R0;
IMAD.WIDE.U32 R2, R21, 0x10, R2;
IMAD.SHL.U32 R6, R0, 0x10, RZ;
{copies}
LDC.64 R2, c[0x0][0x220];
IMAD.WIDE.U32 R2, R20, 0x20, R2;
LDG.E.128 R8, desc[UR4][R2.64];
LDG.E R12, desc[UR4][R2.64+0x10];
LDC.64 R4, c[0x0][0x228];
IMAD.WIDE.U32 R4, R20, {4 * self.registers:#x}, R4;
{loads}
LDC.64 R2, c[0x0][0x230];
IMAD.WIDE.U32 R2, R1, 0x20, R2;
LDG.E.128 R16, desc[UR4][R2.64];
LDG.E R22, desc[UR4][R2.64+0x10];
{uniform}
R2UR UR12, R22;
UISETP.NE.AND UP0, UPT, UR12, URZ, UPT;
LDC.64 R4, c[0x0][0x210];
IMAD.WIDE.U32 R4, R20, {4 * self.registers:#x}, R4;
FENCE.VIEW.ASYNC.S;
BAR.SYNC.DEFER_BLOCKING 0x0;
WARPGROUP.ARRIVE;
{self.text};
WARPGROUP.DEPBAR.LE gsb0, 0x0;
{stores}
EXIT;
"""


@functools.cache
def cubin(p: Product) -> Cubin:
    """The kernel of a product."""
    return assemble(p.source(), f"{p.text}.sass")


class Operands(NamedTuple):
    """For the blocks of a launch: ``a`` (blocks, 64, kept), ``b`` (blocks, k, columns) and ``c`` (blocks, 64, columns)
    are codes; ``picks`` (blocks, 64, k) say what a sparse A keeps; ``adds`` (blocks,) whether C counts. The others are
    what the kernel reads."""

    a: Array
    b: Array
    c: Array
    picks: Array
    adds: Array
    image: Array
    in_registers: Array
    accumulators: Array
    uniform: Array


def packed(codes: Array, bits: int) -> Array:
    """Codes (..., n) as bytes, the first one lowest."""
    if bits == 1:
        return np.packbits(codes.astype(np.uint8), axis=-1, bitorder="little")
    raw = codes.astype({8: np.uint8, 16: np.uint16, 32: np.uint32}[bits])
    return np.ascontiguousarray(raw).view(np.uint8)


class Matrix(NamedTuple):
    """Where a matrix of (rows, k) lies in shared memory, and its descriptor."""

    start: int
    leading: int
    stride: int
    swizzle: int
    turned: bool

    @property
    def descriptor(self) -> int:
        return self.start >> 4 | self.leading >> 4 << 16 | self.stride >> 4 << 32 | SWIZZLES[self.swizzle] << 62

    def address(self, row: Array, at: Array, bits: int) -> Array:
        """Of the elements (row, at), in bytes: CUTLASS' canonical layouts, read as shapes and strides."""
        per = 128 // bits  # T, elements of 16 bytes
        wide = max(self.swizzle, 16) // 16  # pieces
        if self.turned:
            place = row % per * bits // 8 + row // per % wide * 16 + at % 8 * wide * 16
            outer = self.stride if self.swizzle == 0 else self.leading
            place += row // (per * wide) * outer + at // 8 * (self.leading if self.swizzle == 0 else self.stride)
        else:
            place = row % 8 * wide * 16 + row // 8 * self.stride + at % per * bits // 8
            place += at // per * self.leading if self.swizzle == 0 else at // per * 16
        place += self.start
        if self.swizzle:
            place ^= (place >> 7 & wide - 1) << 4
        return place


def layout(rng: np.random.Generator, rows: int, nbytes: int, swizzle: int, turned: bool, start: int) -> Matrix:
    """A matrix with rows of ``nbytes`` (of 16 bits, if it is transposed) that lies tightly, at random in one of both
    orders."""
    width = max(swizzle, 16)
    if turned:
        panels, eights = -(-rows * 2 // width), nbytes // 16
        one, eight = (8 * width * eights, 8 * width) if rng.integers(2) else (8 * width, 8 * width * panels)
        leading, stride = (eight, one) if swizzle == 0 else (one, eight)
        return Matrix(start, leading, stride, swizzle, True)
    if swizzle:
        begin = start + 32 * int(rng.integers(swizzle // nbytes)) if nbytes < swizzle else start
        return Matrix(begin, 16, 8 * width, swizzle, False)
    pieces = nbytes // 16
    one, eight = (128, 128 * pieces) if rng.integers(2) else (16 * rows, 128)
    return Matrix(start, one, eight, swizzle, False)


def put(image: Array, matrix: Matrix, codes: Array, bits: int) -> None:
    """Writes codes (rows, k) of whole bytes, or bits, into an image (bytes,)."""
    if bits == 1:
        codes, bits = packed(codes, 1), 8
    size = bits // 8
    rows, columns = (np.arange(n) for n in codes.shape)
    place = matrix.address(rows[:, None], columns, bits)
    image[place[:, :, None] + np.arange(size)] = packed(codes, bits).reshape(*codes.shape, size)


def random_codes(rng: np.random.Generator, kind: str, shape: tuple[int, ...]) -> Array:
    """Codes of any value, the floats not far from 1, so that sums round; a few are 0."""
    if kind in ("S8", "U8"):
        return rng.integers(0, 256, shape, np.uint32)
    if kind == "B1":
        return rng.integers(0, 2, shape, np.uint32)
    if kind == "S32":
        return rng.integers(0, 1 << 32, shape, np.uint32)
    _, exponent, mantissa = FLOATS[kind]
    e = (1 << exponent - 1) - 1 + rng.integers(-3, 3, shape)
    found = rng.integers(0, 2, shape) << exponent + mantissa | e << mantissa | rng.integers(0, 1 << mantissa, shape)
    return np.where(rng.random(shape) < 0.05, 0, found).astype(np.uint32)


def any_codes(rng: np.random.Generator, kind: str, shape: tuple[int, ...]) -> Array:
    """Any bits but infinities and NaN."""
    bits = {"F32": 32, "S32": 32}.get(kind) or BITS[kind]
    found = rng.integers(0, 1 << bits, shape, np.uint64).astype(np.uint32)
    if kind in ("S8", "U8", "B1", "S32"):
        return found
    top = {"F16": 0x7C00, "BF16": 0x7F80, "TF32": 0x7F800000, "F32": 0x7F800000, "E4M3": 0x7F, "E5M2": 0x7C}[kind]
    return np.where(found & top == top, found & ~np.uint32(top), found).astype(np.uint32)


def operands(rng: np.random.Generator, p: Product, blocks: int, codes: Callable[..., Array] = random_codes) -> Operands:
    """Random ones."""
    kind_a, kind_b, kind = p.kinds
    bits = BITS[kind_a]
    a = codes(rng, kind_a, (blocks, 64, p.kept))
    b = codes(rng, kind_b, (blocks, p.k, p.columns))
    c = codes(rng, kind, (blocks, 64, p.columns))
    adds = rng.integers(0, 4, blocks) > 0
    adds[0] = True
    picks = np.ones((blocks, 64, p.k), bool)
    in_registers = rng.integers(0, 1 << 32, (blocks, THREADS, 8), np.uint32)
    if p.sparse:
        size = 2 if bits == 32 else 4
        order = rng.random((blocks, 64, p.k // size, size)).argsort(axis=-1)
        picks = (order < size // 2).reshape(picks.shape)
        metadata(p, picks, in_registers[:, :, 4])
    image = rng.integers(0, 256, (blocks, ROOM), np.uint8)
    uniform = np.zeros((blocks, 8), np.uint32)
    for n in range(blocks):
        at_b = 0
        if p.swizzles[0] is not None:
            matrix = layout(rng, 64, 32, p.swizzles[0], p.turned[0], 0)
            put(image[n], matrix, a[n], bits)
            uniform[n, :2] = matrix.descriptor & 0xFFFFFFFF, matrix.descriptor >> 32
            at_b = 8192
        matrix = layout(rng, p.columns, 64 if p.sparse else 32, p.swizzles[1], p.turned[1], at_b)
        put(image[n], matrix, b[n].T, bits)
        uniform[n, 2:4] = matrix.descriptor & 0xFFFFFFFF, matrix.descriptor >> 32
    uniform[:, 4] = adds
    if p.swizzles[0] is None:
        words = packed(a, bits).view(np.uint32).reshape(blocks, 64, 8)
        for thread in range(THREADS):
            row, t = thread // 32 * 16 + thread % 32 // 4, thread % 4
            for n in range(4):
                in_registers[:, thread, n] = words[:, row + n % 2 * 8, t + n // 2 * 4]
    return Operands(a, b, c, picks, adds, image, in_registers, to_lanes(p, c), uniform)


def metadata(p: Product, picks: Array, words: Array) -> None:
    """What the lanes hold of ``picks``, into words (blocks, threads)."""
    tf32 = p.kinds[0] == "TF32"
    wide = 2 if tf32 else 4
    for block in range(len(picks)):
        for row in range(64):
            named = []
            for group in range(p.k // wide):
                chosen = np.flatnonzero(picks[block, row, group * wide : group * wide + wide]).tolist()
                named += [2 * chosen[0], 2 * chosen[0] + 1] if tf32 else chosen
            lanes = len(named) // 8
            if p.kinds[0] in ("E4M3", "E5M2", "S8", "U8"):  # 16 of one row in each lane
                for part in range(2):
                    lane = row // 16 * 32 + row % 8 * 4 + 2 * part + row % 16 // 8
                    words[block, lane] = sum(pick << 2 * n for n, pick in enumerate(named[16 * part : 16 * part + 16]))
                continue
            for part in range(lanes):
                lane = row // 16 * 32 + row % 8 * 4 + p.selector * lanes + part
                half = sum(pick << 2 * n for n, pick in enumerate(named[8 * part : 8 * part + 8]))
                shift = 16 * (row % 16 // 8)
                words[block, lane] = int(words[block, lane]) & ~(0xFFFF << shift) | half << shift


def places(p: Product) -> tuple[Array, Array, Array, Array]:
    """Of each element of D: thread, place in its registers as elements, row, column."""
    thread, n = np.arange(THREADS)[:, None], np.arange(p.columns // 2)
    row = thread // 32 * 16 + thread % 32 // 4 + n // 2 % 2 * 8
    return thread, n, row, n // 4 * 8 + thread % 4 * 2 + n % 2


def to_lanes(p: Product, matrix: Array) -> Array:
    """Codes (blocks, 64, columns) as the registers of the threads, (blocks, threads, registers)."""
    thread, n, row, column = places(p)
    found = np.zeros((len(matrix), THREADS, p.columns // 2), np.uint32)
    found[:, thread, n] = matrix[:, row, column]
    if p.kinds[2] == "F16":
        found = found[:, :, ::2] | found[:, :, 1::2] << np.uint32(16)
    return np.ascontiguousarray(found)


def from_lanes(p: Product, words: Array) -> Array:
    """The way back."""
    if p.kinds[2] == "F16":
        words = np.stack([words & 0xFFFF, words >> 16], axis=-1).reshape(len(words), THREADS, -1)
    thread, n, row, column = places(p)
    found = np.zeros((len(words), 64, p.columns), np.uint32)
    found[:, row, column] = words[:, thread, n]
    return found


Run = Callable[[bytes, int, list[Array]], None]


def differ(p: Product, blocks: int, codes: Callable[..., Array], other: Run) -> int:
    """How many elements of D differ between the CPU device and ``other``, which runs the kernel on the same
    operands."""
    x = operands(np.random.default_rng(17), p, blocks, codes)
    sources = [x.image, x.in_registers, x.accumulators, x.uniform]
    here, there = np.zeros_like(x.accumulators), np.zeros_like(x.accumulators)
    launch(cubin(p), "product", blocks, THREADS, [here, *sources])
    other(cubin(p).to_bytes(), blocks, [there, *sources])
    return int((from_lanes(p, here) != from_lanes(p, there)).sum())


#: every mnemonic, format, place of A, transposition, swizzle, sign and kind of sparse product, in many widths
PRODUCTS = [
    Product(8, ("F16", "F16", "F32")),
    Product(64, ("F16", "F16", "F32"), (128, 128)),
    Product(128, ("F16", "F16", "F32"), (None, 128), (False, True)),
    Product(256, ("F16", "F16", "F32"), (64, 32), (True, True)),
    Product(24, ("F16", "F16", "F16"), (32, 64)),
    Product(96, ("F16", "F16", "F16"), (None, 0), (False, True), (True, False)),
    Product(40, ("F16", "F16", "F32"), (0, 0), (True, True), (False, True)),
    Product(64, ("BF16", "BF16", "F32"), (128, 64), (True, False), (True, True)),
    Product(192, ("BF16", "BF16", "F32"), (None, 32)),
    Product(64, ("TF32", "TF32", "F32"), (128, 128), negative=(False, True)),
    Product(16, ("TF32", "TF32", "F32"), (None, 0)),
    Product(64, ("E4M3", "E4M3", "F32"), (128, 128)),
    Product(32, ("E5M2", "E4M3", "F32"), (None, 64)),
    Product(48, ("E4M3", "E5M2", "F16"), (32, 0), negative=(True, False)),
    Product(64, ("S8", "S8", "S32"), (128, 128)),
    Product(32, ("U8", "S8", "S32"), (None, 32), more=".SAT"),
    Product(24, ("S8", "U8", "S32"), (64, 0)),
    Product(64, ("B1", "B1", "S32"), (0, 128)),
    Product(32, ("B1", "B1", "S32"), (None, 64)),
    Product(64, ("F16", "F16", "F32"), (128, 128), sparse=True),
    Product(32, ("BF16", "BF16", "F32"), (None, 64), (False, True), sparse=True, selector=1),
    Product(64, ("F16", "F16", "F16"), (32, 64), (True, False), sparse=True, selector=1),
    Product(16, ("TF32", "TF32", "F32"), (64, 128), sparse=True),
    Product(32, ("E4M3", "E5M2", "F32"), (None, 128), sparse=True),
    Product(64, ("E5M2", "E5M2", "F16"), (128, 0), sparse=True),
    Product(32, ("S8", "U8", "S32"), (128, 64), sparse=True),
]
