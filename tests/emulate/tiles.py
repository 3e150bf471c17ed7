"""Copies of tiles at random: geometries, and what they come to, element by element, from the CUDA driver API's words
on tensor maps and PTX's on tensors. For the CPU device and for GPUs: a test gives what launches."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from pathlib import Path
from typing import Any

import numpy as np

from tests.tools import nvrtc

SOURCE = Path(__file__).parents[1] / "kernels" / "tiles.cu"
DUMP = 8192  # bytes of shared memory that a probe shows
NAN = ("float16", "float32", "float64")
TYPES = ("uint8", "uint16", "uint32", "int32", "uint64", "int64", "float16", "float32", "float64")
REDUCE = {
    "add": ("uint32", "int32", "uint64", "float16", "float32"),
    "min": ("uint32", "int32", "uint64", "int64", "float16"),
    "max": ("uint32", "int32", "uint64", "int64", "float16"), "inc": ("uint32",), "dec": ("uint32",),
    "and": ("uint32", "uint64"), "or": ("uint32", "uint64"), "xor": ("uint32", "uint64"),
}  # fmt: skip


@functools.cache
def cubin() -> bytes:
    return nvrtc.compile_source(SOURCE.read_text(), "sm_90a", (), name="tiles.cu")


@dataclasses.dataclass
class Case:
    """Sizes in numpy's order, the innermost one last. ``start``: where the tile begins."""

    dtype: str
    shape: tuple[int, ...]
    padded: tuple[int, ...]  # of the array that the tensor is a corner of
    start: tuple[int, ...]
    swizzle: int
    fill: str
    box: tuple[int, ...] = ()
    steps: tuple[int, ...] = ()
    columns: dict[str, Any] = dataclasses.field(default_factory=dict)  # of an im2col map
    offsets: tuple[int, ...] = ()

    @property
    def item(self) -> int:
        return np.dtype(self.dtype).itemsize

    def whole(self, rng: np.random.Generator) -> np.ndarray[Any, Any]:
        """An array that the tensor is a corner of, so that its rows have padding."""
        data = rng.integers(0, 256, (*self.padded[:-1], self.padded[-1] * self.item), np.uint8)
        array = data.view(self.dtype)
        if array.dtype.kind == "f":
            array[:] = rng.integers(-64, 65, array.shape)  # whose sums are exact
        return array

    def tensor(self, whole: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return whole[tuple(slice(0, n) for n in self.shape)]

    def options(self) -> dict[str, Any]:
        kind = self.columns or {"box": self.box}
        return {**kind, "steps": self.steps, "swizzle": self.swizzle, "fill": self.fill}

    def places(self) -> list[tuple[int, ...]]:
        """The coordinates of each element of the tile, in its order."""
        if not self.columns:
            counts = [-(-b // s) for b, s in zip(self.box[:-1], self.steps[:-1])]
            outer = itertools.product(*(range(n) for n in counts))
            return [
                (*(c + o * s for c, o, s in zip(self.start, at, self.steps)), self.start[-1] + x)
                for at in outer for x in range(self.box[-1])
            ]  # fmt: skip
        # all pixels of all images in order, from the first one on: each image has those of the box of pixels
        images, *space = self.start[:-1]
        low, high = self.columns["lower"], self.columns["upper"]
        ranges = [range(a, n + b, s) for a, b, n, s in zip(low, high, self.shape[1:-1], self.steps[1:-1])]
        pixels = ((image, *at) for image in itertools.count(images) for at in itertools.product(*ranges))
        wanted = itertools.dropwhile(lambda at: at != (images, *space), pixels)
        found = itertools.islice(wanted, self.columns["pixels"])
        moved = ((n, *(a + o for a, o in zip(at, self.offsets))) for n, *at in found)
        return [(*at, self.start[-1] + c) for at in moved for c in range(self.columns["channels"])]

    def put(self, number: int) -> int:
        """The byte of shared memory where the element begins: 16-byte pieces of 128 bytes are exchanged."""
        at = number * self.item
        row, piece, rest = at // 128, at % 128 // 16, at % 16
        if self.swizzle == 128:
            piece ^= row % 8
        elif self.swizzle == 64:
            piece = piece // 4 * 4 + (piece % 4 ^ row % 4)
        elif self.swizzle == 32:
            piece = piece // 2 * 2 + (piece % 2 ^ row % 2)
        return row * 128 + piece * 16 + rest

    def inside(self, at: tuple[int, ...]) -> bool:
        return all(0 <= c < n for c, n in zip(at, self.shape))

    def loaded(self, tensor: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """The bytes of shared memory."""
        places = self.places()
        out = np.zeros(len(places) * self.item, np.uint8)
        outside = (b"\xf7\x7f" * 4 if self.fill == "nan" else bytes(8))[: self.item]
        for n, at in enumerate(places):
            data = tensor[at].tobytes() if self.inside(at) else outside
            out[self.put(n) : self.put(n) + self.item] = list(data)
        return out

    def stored(self, padded: np.ndarray[Any, Any], tile: np.ndarray[Any, Any], operation: str) -> None:
        """Changes the array that the tensor is a corner of as a tile in shared memory makes it. Places outside of the
        tensor stay, but those between a row's end and the next 16 bytes."""
        unit = 16 // self.item
        row = dataclasses.replace(self, shape=(*self.shape[:-1], -(-self.shape[-1] // unit) * unit))
        for n, at in enumerate(self.places()):
            if row.inside(at):
                new = tile[self.put(n) : self.put(n) + self.item].copy().view(self.dtype)[0]
                padded[at] = new if operation == "store" else one(operation, padded[at], new)

    def tile(self, rng: np.random.Generator) -> np.ndarray[Any, Any]:
        """Bytes of shared memory to store; numbers whose sums are exact."""
        found = rng.integers(0, 256, self.nbytes, np.uint8)
        if np.dtype(self.dtype).kind == "f":
            found = rng.integers(-64, 65, self.nbytes // self.item).astype(self.dtype).view(np.uint8)
        return found

    def launch(self, operation: str) -> tuple[str, tuple[Any, ...], dict[str, int]]:
        """The kernel of tiles.cu, what it takes behind the map and the other array, and the options of its launch."""
        kind = "columns" if self.columns else operation
        offsets = [*reversed(self.offsets), 0, 0, 0][:3] if operation == "load" else []
        return f"{kind}{len(self.shape)}", (self.arguments(), *offsets, self.nbytes), {"shared": self.nbytes + 1024}

    def arguments(self) -> bytes:
        """``At``: coordinates as PTX has them."""
        found = [*reversed(self.start), 0, 0, 0, 0][:5]
        return np.array(found, np.int32).tobytes()

    @property
    def nbytes(self) -> int:
        return len(self.places()) * self.item


def drawn(seed: int) -> tuple[str, Case, np.random.Generator]:
    """What tests/gpu/test_tiles.py copies: an operation, a geometry, and the generator that its contents go on with."""
    rng = np.random.default_rng(seed)
    operations = ("load", "load", "store", *REDUCE)
    operation = operations[seed % len(operations)]
    if operation == "load":
        return operation, random_columns(rng) if seed % 3 == 0 else random_tile(rng), rng
    return operation, random_tile(rng, REDUCE.get(operation, TYPES), store=True), rng


def one(operation: str, old: Any, new: Any) -> Any:
    if operation == "inc":
        return old.dtype.type(0) if old >= new else old + old.dtype.type(1)
    if operation == "dec":
        return new if old == 0 or old > new else old - old.dtype.type(1)
    names = {"add": np.add, "min": np.minimum, "max": np.maximum, "and": np.bitwise_and, "or": np.bitwise_or}
    with np.errstate(over="ignore"):
        return names.get(operation, np.bitwise_xor)(old, new)


def _swizzle(rng: np.random.Generator, row: int) -> int:
    return row if row in (32, 64, 128) and rng.integers(4) else 0


def _padded(shape: tuple[int, ...], item: int, rng: np.random.Generator) -> tuple[int, ...]:
    """Rows of a multiple of 16 bytes, and more rows than needed now and then."""
    per = 16 // item
    inner = -(-shape[-1] // per) * per + per * int(rng.integers(0, 2))
    return (*(n + int(rng.integers(0, 2)) for n in shape[:-1]), inner)


def random_tile(rng: np.random.Generator, types: tuple[str, ...] = TYPES, store: bool = False) -> Case:
    dtype = str(rng.choice(types))
    item, rank = np.dtype(dtype).itemsize, int(rng.integers(1, 6))
    while True:
        row = 16 * int(rng.choice((1, 2, 2, 3, 4, 4, 5, 8, 8)))
        box = (*(int(n) for n in rng.integers(1, 7, rank - 1)), row // item)
        if box[-1] <= 256 and int(np.prod(box)) <= 2048:
            break
    shape = tuple(int(n) for n in rng.integers(1, [9] * (rank - 1) + [40]))
    start = tuple(int(rng.integers(0 if store else -b, n + 2)) for b, n in zip(box, shape))
    start = (*start[:-1], start[-1] // (16 // item) * (16 // item))  # whole 16 bytes
    steps = tuple(int(rng.choice((1, 1, 2, 3))) for _ in box[:-1]) + (1,)
    fill = "nan" if dtype in NAN and not store and rng.integers(2) else "zero"
    return Case(dtype, shape, _padded(shape, item, rng), start, _swizzle(rng, row), fill, box, steps)


def random_columns(rng: np.random.Generator) -> Case:
    dtype = str(rng.choice(TYPES))
    item, rank = np.dtype(dtype).itemsize, int(rng.integers(3, 6))
    row = 16 * int(rng.choice((1, 2, 2, 3, 4, 4, 5, 8, 8)))
    spatial = rank - 2
    shape = (int(rng.integers(1, 4)), *(int(n) for n in rng.integers(2, 8, spatial)), int(rng.integers(1, 40)))
    low = tuple(int(n) for n in rng.integers(-2, 2, spatial))
    high = tuple(int(rng.integers(max(-2, 1 - n + a), 2)) for n, a in zip(shape[1:-1], low))
    steps = (1, *(int(rng.choice((1, 1, 2))) for _ in range(spatial)), 1)
    at = [int(rng.choice(range(a, n + b, s))) for a, b, n, s in zip(low, high, shape[1:-1], steps[1:-1])]
    unit = 16 // item
    start = (int(rng.integers(0, shape[0] + 1)), *at, int(rng.integers(0, shape[-1] + 2)) // unit * unit)
    columns = {"channels": row // item, "pixels": int(rng.integers(1, 33)), "lower": low, "upper": high}
    offsets = tuple(int(n) for n in rng.integers(0, 4, spatial))
    fill = "nan" if dtype in NAN and rng.integers(2) else "zero"
    return Case(
        dtype, shape, _padded(shape, item, rng), start, _swizzle(rng, row), fill, (), steps, columns, offsets
    )  # fmt: skip
