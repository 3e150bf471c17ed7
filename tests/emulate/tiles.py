"""Copies of tiles at random: geometries, and what they come to, element by element, from the CUDA driver API's words
on tensor maps and PTX's on tensors. For the CPU device and for GPUs: a test gives what launches."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import itertools
from pathlib import Path
from typing import Any

import numpy as np

import loader
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


# ---- questions of which the documentation says nothing --------------------------------------------------------------

FLOATS = np.array([1 + 2.0**-11, -(2 - 2.0**-23), 1e-42, -1e-42, np.inf, -0.0, 3.4028e38, 0.1], np.float32)
NANS = np.array([0x7F800001, 0xFFC12345, 0x7FFFFFFF, 0x7FC00000], np.uint32).view(np.float32)
MORE = 65536  # bytes that an mbarrier waits for in vain, so that its word tells of how many it has heard
POLLS = 1000


@dataclasses.dataclass
class Probe:
    """``whole``: memory; of its beginning ``shape`` and ``strides`` make the tensor (numpy's order; (): all of it).
    ``start``: where the copy begins, the innermost coordinate first. ``options``: what the map is given. ``kernel``:
    of tiles.cu, to store or reduce a tile; "": it is loaded."""

    whole: np.ndarray[Any, Any]
    start: tuple[int, ...]
    options: dict[str, Any]
    shape: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()
    kernel: str = ""

    def memory(self) -> np.ndarray[Any, Any]:
        """A copy of ``whole`` that is aligned."""
        room = np.zeros(self.whole.nbytes + 256, np.uint8)
        at = -room.ctypes.data % 256
        copy = room[at : at + self.whole.nbytes].view(self.whole.dtype).reshape(self.whole.shape)
        copy[:] = self.whole
        return copy

    def nbytes(self) -> int:
        """Of a tile, or of an im2col copy's columns."""
        extents = self.options.get("box") or (self.options["pixels"], self.options["channels"])
        if slice_ := self.options.get("interleave"):
            return (self.options.get("pixels") or len(self.slices())) * int(slice_)
        return int(np.prod(extents)) * self.whole.itemsize

    def slices(self) -> list[int | None]:
        """Of an interleaved tensor: at which byte of memory each slice of a tile begins; None: outside."""
        box, steps = (self.options.get(name, (1,) * len(self.start)) for name in ("box", "steps"))
        box = (box[0], 1, *box[2:])  # one slice of channels, whatever it says
        places = itertools.product(*(range(0, count, step) for count, step in zip(box, steps)))
        at = [tuple(c + o for c, o in zip(self.start[::-1], place)) for place in places]
        inside = [all(0 <= c < n for c, n in zip(one, self.shape)) for one in at]
        return [
            sum(c * s for c, s in zip(one, self.strides)) if good else None for one, good in zip(at, inside)
        ]  # fmt: skip

    def tensor(self, memory: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return np.lib.stride_tricks.as_strided(memory, self.shape, self.strides) if self.shape else memory


def _count(shape: tuple[int, ...], dtype: str) -> np.ndarray[Any, Any]:
    return np.arange(1, 1 + np.prod(shape)).astype(dtype).reshape(shape)


def _probes() -> dict[str, Probe]:
    found: dict[str, Probe] = {}
    for dtype in ("float32.ftz", "tf32", "tf32.ftz"):
        values = np.resize(np.concatenate([FLOATS, NANS]), (4, 12))
        for fill in ("zero", "nan"):
            found[f"{dtype}.{fill}"] = Probe(values, (0, 1), {"box": (4, 16), "dtype": dtype, "fill": fill})
        small = (np.arange(64, dtype=np.uint32) * 0x31234 & 0x807FFFFF).view(np.float32).reshape(4, 16)
        found[f"denormals.{dtype}"] = Probe(small, (0, 0), {"box": (4, 16), "dtype": dtype})
    bits = np.resize(np.arange(256, dtype=np.uint16) << 8, (4, 16)).view(np.float16)
    found["bfloat16.nan"] = Probe(bits, (0, 1), {"box": (4, 16), "dtype": "bfloat16", "fill": "nan"})
    for swizzle in (32, 64, 128):  # rows shorter than it
        for row in range(16, swizzle, 16):
            array = _count((10, 64), "uint16")
            found[f"short.{swizzle}.{row}"] = Probe(array, (0, 0), {"box": (9, row // 2), "swizzle": swizzle})
    found |= _interleaved()
    for l2 in (64, 128, 256):
        found[f"l2.{l2}"] = Probe(_count((8, 32), "uint16"), (0, 0), {"box": (8, 32), "l2": l2})
    for rank in (3, 4, 5):  # where the fields of an im2col map lie
        space = rank - 2
        plain = {"pixels": 5, "channels": 16, "lower": (0,) * space, "upper": (0,) * space}
        array = _count((2, 3, 4, 5, 32)[5 - rank:], "uint16")
        found[f"im2col.{rank}"] = Probe(array, (0,) * rank, plain)
        others = ("pixels", 9), ("channels", 32), ("lower", (-1,) * space), ("upper", (-1,) * space)
        for name, value in (*others, ("lower", (-3, -2, -1)[:space]), ("upper", (0, -1, -2)[:space])):
            number = "" if name not in plain or f"im2col.{rank}.{name}" not in found else ".each"
            found[f"im2col.{rank}.{name}{number}"] = Probe(array, (0,) * rank, {**plain, name: value})
    return found


def _interleaved() -> dict[str, Probe]:
    """Slices of 16 or 32 bytes, in dimensions (pixels, ..., channels, images). On 2026-11-26 an H200 was asked those
    without ``later``, with boxes and sizes of channels as if they counted elements, and an H100 the others."""
    found: dict[str, Probe] = {}

    def ask(name: str, slice_: int, dims: tuple[int, ...], box: tuple[int, ...], start: tuple[int, ...] = (),
            dtype: str = "uint16", swizzle: int = 0, slices: int = 5, **more: Any) -> None:  # fmt: skip
        whole = _count((2**13 // np.dtype(dtype).itemsize,), "uint16").astype(dtype)
        if dtype == "uint8":  # 16 bits are told apart
            whole = _count((2**12,), "uint16").view(np.uint8)
        strides = [slice_ * dims[0]]
        for n in dims[1:-1]:
            strides.append(strides[-1] * (slices if len(strides) == len(dims) - 2 else n))
        start = start or (0,) * len(dims)
        swizzle = 32 if slice_ == 32 else swizzle
        kernel = more.pop("kernel", "")
        options = {"box": box[::-1], "interleave": slice_, "swizzle": swizzle, **more}
        if "pixels" in more:
            del options["box"]
        shape = (*dims[::-1], slice_ // whole.itemsize)
        memory = (*strides[::-1], slice_, whole.itemsize)
        found[f"slices.{slice_}.{name}"] = Probe(whole, start, options, shape, memory, kernel)

    for slice_ in (16, 32):
        per = slice_ // 2
        dims = (10, 5 * per, 3)
        for channels in (1, per - 1, per, per + 1, 2 * per, 3 * per):
            ask(f"box{channels}", slice_, dims, (8, channels, 2))
        for at in (1, 2, 4, 5, 6, per, 5 * per, -1):
            ask(f"channel{at}", slice_, dims, (8, 2 * per, 2), (0, at, 0))
        for size in (5, 4 * per + 1, 4 * per):  # what ends the channels
            for at in (3, 4):
                ask(f"size{size}.{at}", slice_, (10, size, 3), (8, 3 * per, 1), (0, at, 0))
        for at in (1, 3, -2, 6, 9):
            ask(f"pixel{at}", slice_, dims, (8, 2 * per, 2), (at, 0, 1))
        for wide in (1, 2, 5, 6, 12, 24):
            ask(f"wide{wide}", slice_, dims, (wide, per, 2))
        for dtype, item in (("uint8", 1), ("uint32", 4), ("uint64", 8)):
            n = slice_ // item
            for channels in (n, 2 * n):
                ask(f"{dtype}.{channels}", slice_, (10, 5 * n, 3), (16, channels, 1), dtype=dtype)
        ask("nan", slice_, dims, (8, 3 * per, 2), (6, 3, 2), dtype="float16", fill="nan")
        ask("rank4", slice_, (6, 3, 4 * per, 2), (8, 2, 2 * per, 2), (0, 1, 1, 1), slices=4)
        ask("rank5", slice_, (4, 2, 2, 3 * per, 2), (8, 2, 1, 2 * per, 2), (0, 0, 1, 1, 0), slices=3)
        for n in range(3):
            steps = tuple(2 if m == n else 1 for m in range(3))
            ask(f"step{n}", slice_, dims, (8, 2 * per, 2), steps=steps[::-1])
        ask("columns", slice_, (6, 3, 4 * per, 2), (), slices=4, pixels=5, channels=2 * per, lower=(0, 0), upper=(0, 0))
        ask("store", slice_, dims, (8, 2 * per, 2), (1, 1, 0), kernel="store")
        ask("store.out", slice_, dims, (8, 3 * per, 2), (6, 3, 2), kernel="store")
        ask("later.end", slice_, (10, 5, 3), (8, per, 1), (0, 5, 0))
        ask("later.narrow", slice_, dims, (4, per, 2), dtype="uint32")  # 16 bytes, by elements
        for name in ("add", "min", "inc", "xor"):
            ask(f"later.{name}", slice_, dims, (8, per // 2, 2), (6, 1, 1), dtype="uint32", kernel=name)
        for at in ((0, -1, 0), (-1, 0, 0)):
            ask(f"later.store{at[0]}", slice_, dims, (8, per, 2), at, kernel="store")
        plain = {"pixels": 5, "channels": per, "lower": (0, 0), "upper": (0, 0)}
        shape = (6, 3, 4, 2)
        for name, at, more in (
            ("plain", (0, 0, 0, 0), {}), ("pixel", (2, 1, 0, 0), {}), ("channel", (0, 0, 1, 0), {}),
            ("row", (4, 0, 0, 0), {}), ("image", (4, 2, 1, 0), {}), ("many", (0, 0, 1, 0), {"pixels": 30}),
            ("lower", (-1, -1, 1, 0), {"lower": (-1, -1), "pixels": 12}),
            ("upper", (0, 0, 1, 0), {"upper": (-1, -2), "pixels": 12}), ("step", (0, 0, 0, 0), {"steps": (1, 1, 1, 2)}),
        ):  # fmt: skip
            ask(f"later.columns.{name}", slice_, shape, (), at, slices=4, **{**plain, **more})
    for swizzle in (32, 64, 128):
        ask(f"swizzle{swizzle}", 16, (10, 40, 3), (8, 16, 2), (1, 1, 0), swizzle=swizzle)
        ask(f"later.swizzle{swizzle}.wide", 16, (32, 5, 3), (32, 8, 2), (1, 1, 0), swizzle=swizzle)
        ask(f"later.swizzle{swizzle}.step", 16, (32, 5, 3), (8, 8, 2), (1, 1, 0), swizzle=swizzle, steps=(1, 1, 2))
    return found


PROBES = _probes()


def probed(module: Any, name: str, send: Any = None, heard: int = MORE) -> dict[str, np.ndarray[Any, Any]]:
    """``map`` as it was written; ``got``: shared memory after a load, with 0xCD where nothing came, or memory after a
    store; ``told``: of a load, whether the mbarrier has heard of as many bytes as ``heard``, polls that were left, its
    word. ``send``: an array to a GPU, and a tensor in it."""
    probe = PROBES[name]
    options, memory = probe.options, probe.memory()
    tensor = probe.tensor(memory)
    whole, given = send(memory, tensor) if send else (memory, tensor)
    made = loader.tensor_map(given, **options)
    at = np.array([*probe.start, 0, 0, 0, 0][:5], np.int32).tobytes()
    packed = made.opaque or made.layout.pack(0)
    found = {"map": np.frombuffer(packed, np.uint8)}

    def sent(array: np.ndarray[Any, Any]) -> Any:
        return send(array, array)[0] if send else array

    def back(array: Any) -> np.ndarray[Any, Any]:
        return array if isinstance(array, np.ndarray) else array.numpy()  # type: ignore[no-any-return]

    rank = len(probe.start)
    if probe.kernel:
        tile = np.arange(40001, 40001 + 2048).astype(np.uint16)
        kernel = module.kernel(f"{probe.kernel}{rank}")
        kernel.launch(1, 64, made, sent(tile), at, tile.nbytes, shared=DUMP)
        return {**found, "got": back(whole)}
    out = sent(np.zeros(DUMP, np.uint8)), sent(np.zeros(4, np.uint32))
    kernel = module.kernel(("columns" if "pixels" in options else "tile") + f"_probe{rank}")
    kernel.launch(1, 64, made, *out, at, heard, DUMP, POLLS, shared=DUMP + 1024)
    return {**found, "got": back(out[0]), "told": back(out[1])}


def answer(found: dict[str, np.ndarray[Any, Any]]) -> dict[str, Any]:
    """What is kept of an answer: the map, bytes that the mbarrier heard of, and a digest of the memory."""
    kept: dict[str, Any] = {"map": found["map"].tobytes().hex(), "got": digest(found["got"])}
    if "told" in found:  # bits 21 on of its word: minus the bytes that are still to come
        word = int(found["told"][2]) | int(found["told"][3]) << 32
        kept["heard"] = (MORE + (word >> 21)) % 2**21
    return kept


def digest(array: np.ndarray[Any, Any]) -> str:
    return hashlib.sha256(array.tobytes()).hexdigest()[:16]
