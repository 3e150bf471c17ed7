"""Tensor maps: what a copy by the tensor memory accelerator (cp.async.bulk.tensor, sm_90) is told of a tensor in global
memory, 128 bytes that a kernel takes as a parameter (``const __grid_constant__ CUtensorMap``) or makes itself.

The meaning of the fields, and what the driver refuses, is that of cuTensorMapEncodeTiled and cuTensorMapEncodeIm2col
in the CUDA driver API's documentation. Where the fields lie was read off the code that ptxas 12.9 makes of PTX's
tensormap.replace, and off maps that driver 580 wrote for an H200 (``tests/emulate/tiles_sm90.json``), so maps that
kernels and host programs make are understood. The driver writes two more fields, which are 0 here and not read: the
bytes of a box, at 0x40, and after how many bytes a swizzle repeats, at 0x48. Bits 17 and 18 of the word at 8, likewise,
are what L2 fetches.
"""

from __future__ import annotations

import dataclasses
import struct
from dataclasses import dataclass
from typing import Any

from turingas.errors import LaunchError
from turingas.launch import POINTER
from turingas.stays import Stays

NBYTES, ALIGN = 128, 64
MAX_RANK = 5

TF32 = 1 << 9  # of a number in TYPES: bit 16 of the map's word, in which numbers begin at bit 7
#: types by the name that numpy has for them, or PTX: number in the map, bytes, CU_TENSOR_MAP_DATA_TYPE_...
TYPES = {
    "uint8": (0, 1, "UINT8"), "uint16": (1, 2, "UINT16"), "uint32": (2, 4, "UINT32"), "int32": (3, 4, "INT32"),
    "uint64": (4, 8, "UINT64"), "int64": (5, 8, "INT64"), "float16": (6, 2, "FLOAT16"), "float32": (7, 4, "FLOAT32"),
    "float32.ftz": (8, 4, "FLOAT32_FTZ"), "float64": (9, 8, "FLOAT64"), "bfloat16": (10, 2, "BFLOAT16"),
    "tf32": (7 | TF32, 4, "TFLOAT32"), "tf32.ftz": (8 | TF32, 4, "TFLOAT32_FTZ"),
}  # fmt: skip
LIKE = {"bool": "uint8", "int8": "uint8", "int16": "uint16"}  # copied as these
NAMES = {code: name for name, (code, *_) in TYPES.items()}
SWIZZLES, INTERLEAVES, FILLS = (0, 32, 64, 128), (0, 16, 32), ("zero", "nan")
#: bits of an offset of the pixel box in im2col maps, by rank
CORNER_BITS = {3: 16, 4: 8, 5: 5}


@dataclass(frozen=True)
class Layout:
    """A tensor and how pieces of it are copied; dimensions from the innermost one on, as in the driver API.

    ``strides``: bytes, of all dimensions but the first. ``box``: elements of a tile in each dimension. ``steps``: of
    each dimension only every so manieth element is copied. ``swizzle``: bytes in which 16-byte pieces change places in
    shared memory, 0: none. ``fill``: what elements outside of the tensor become, "zero" or "nan".

    ``interleave``: bytes of a slice, 0: none. Channels lie in slices, as in NC/8HWC8: the first dimension counts whole
    slices, and the last but one has the slices of a pixel, of which a copy takes one, whatever the box says (an H200).

    Of an im2col map ``box`` is (): a copy takes ``pixels`` pixels of ``channels`` channels each, whose places lie
    between ``lower`` (from the first pixel) and ``upper`` (from the last), offsets in the dimensions ``space``.
    """

    dtype: str
    dims: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    steps: tuple[int, ...]
    interleave: int = 0
    swizzle: int = 0
    fill: str = "zero"
    channels: int = 0
    pixels: int = 0
    lower: tuple[int, ...] = ()
    upper: tuple[int, ...] = ()

    @property
    def rank(self) -> int:
        return len(self.dims)

    @property
    def item(self) -> int:
        """Bytes of an element."""
        return TYPES[self.dtype][1]

    @property
    def cell(self) -> int:
        """Bytes of what the first dimension counts: an element, or a slice."""
        return self.interleave or self.item

    @property
    def im2col(self) -> bool:
        return self.pixels != 0

    @property
    def space(self) -> range:
        """Of an im2col map: the dimensions of pixels, between channels and images, or before slices of channels."""
        return range(self.rank - 2) if self.interleave else range(1, self.rank - 1)

    @property
    def inner(self) -> int:
        """Elements, or slices, of a row of a copy. Along the first dimension, whose step is of slices alone; of im2col
        columns what a pixel has, of slices one, whatever ``channels`` says (an H200)."""
        if self.im2col:
            return 1 if self.interleave else self.channels
        return -(-self.box[0] // self.steps[0]) if self.interleave else self.box[0]

    @property
    def extent(self) -> int:
        """Bytes of global memory from the first element to the last."""
        return sum((n - 1) * stride for n, stride in zip(self.dims, (self.cell, *self.strides))) + self.cell

    def check(self) -> None:
        """LaunchError for what cuTensorMapEncode would refuse."""
        rank, unit = self.rank, 32 if self.interleave == 32 else 16
        if self.dtype not in TYPES:
            raise LaunchError(f"a tensor map of {self.dtype}", "types: " + ", ".join([*TYPES, *LIKE]))
        for name, value, known in (
            ("swizzle", self.swizzle, SWIZZLES), ("interleave", self.interleave, INTERLEAVES),
            ("fill", self.fill, FILLS),
        ):  # fmt: skip
            if value not in known:
                raise LaunchError(f"{name} is {value!r}; it must be one of " + ", ".join(map(repr, known)))
        least = 3 if self.im2col or self.interleave else 1
        if not least <= rank <= MAX_RANK:
            why = "an im2col map" if self.im2col else "with interleave" if self.interleave else "a tensor map"
            raise LaunchError(f"{why}: {rank} dimensions; there must be {least} to {MAX_RANK}")
        _each("strides", self.strides, rank - 1, 0, 2**40 - 1)  # 0: of CUTLASS, for a batch of one
        for n, stride in enumerate(self.strides):
            if stride % unit:
                hint = f"pad the rows: the bytes of a row must be a multiple of {unit}"
                message = f"the stride of dimension {rank - 2 - n} is {stride} bytes, no multiple of {unit}"
                raise LaunchError(message, hint)
        _each("dims", self.dims, rank, 1, 2**32)
        _each("steps", self.steps, rank, 1, 8)
        if self.im2col:
            bits = CORNER_BITS[rank]
            for name, corner in (("lower", self.lower), ("upper", self.upper)):
                _each(name, corner, rank - 2, -(1 << bits - 1), (1 << bits - 1) - 1)
            _each("channels", (self.channels,), 1, 1, 256)
            _each("pixels", (self.pixels,), 1, 1, 1024)
            if any(self.dims[n] + high - low <= 0 for n, low, high in zip(self.space, self.lower, self.upper)):
                raise LaunchError("between the lower and the upper corner there are no pixels")
        else:
            _each("box", self.box, rank, 1, 256)
        row = (self.channels if self.im2col else self.box[0]) * self.item
        if row % 16:  # of interleaved tensors too, though slices are whole: box 8, but not 1, 2, 5, 6, 12 of 16 bits
            raise LaunchError(f"a row of the box has {row} bytes; it must be a multiple of 16")
        if not self.interleave and self.swizzle and row > self.swizzle:
            hint = "take a narrower box, or a wider swizzle" if self.swizzle < 128 else "take a narrower box"
            raise LaunchError(f"a row of the box has {row} bytes, more than the swizzle of {self.swizzle}", hint)
        if self.interleave == 32 and self.swizzle != 32:
            raise LaunchError("interleave=32 goes with swizzle=32 alone")
        if self.fill == "nan" and "f" not in self.dtype:
            raise LaunchError(f"fill='nan' with elements of {self.dtype}, which have no NaN")

    def pack(self, address: int) -> bytes:
        """The 128 bytes for the tensor at ``address``. LaunchError when it is not aligned."""
        aligned(self, address)
        rank, code = self.rank, TYPES[self.dtype][0]
        data = bytearray(NBYTES)
        word = self.im2col | (rank - 1) << 4 | code << 7 | INTERLEAVES.index(self.interleave) << 11
        word |= SWIZZLES.index(self.swizzle) << 13 | FILLS.index(self.fill) << 15
        struct.pack_into("<QI", data, 0, address, word)
        upper = 0
        for n, stride in enumerate(self.strides):
            struct.pack_into("<I", data, 0x0C + 4 * n, stride >> 4 & 0xFFFFFFFF)
            upper |= stride >> 36 << 4 * n
        struct.pack_into("<I", data, 0x1C, upper)
        for n, dim in enumerate(self.dims):
            struct.pack_into("<I", data, 0x20 + 4 * n, dim - 1)
        steps = sum(step - 1 << 3 * n for n, step in enumerate(self.steps))
        struct.pack_into("<I", data, 0x34, steps)
        for n, size in enumerate(self.box or (self.channels,)):
            data[0x37 + n] = size - 1
        if self.im2col:
            corners = 0
            width = CORNER_BITS[rank]
            for n, (low, high) in enumerate(zip(self.lower, self.upper)):
                corners |= (low & (1 << width) - 1 | (high & (1 << width) - 1) << 16) << width * n
            struct.pack_into("<II", data, 0x38, corners, self.pixels - 1)
        return bytes(data)


def aligned(layout: Layout, address: int) -> None:
    """LaunchError when the tensor's address is not."""
    unit = 32 if layout.interleave == 32 else 16
    if address % unit:
        raise LaunchError(f"the tensor begins at {address:#x}; a tensor map needs a multiple of {unit} bytes")


def unpack(data: bytes) -> tuple[int, Layout]:
    """Address and layout of 128 bytes. LaunchError when they are no tensor map."""
    address, word = struct.unpack_from("<QI", data, 0)
    rank, code = (word >> 4 & 7) + 1, word >> 7 & (15 | TF32)
    if rank > MAX_RANK or code not in NAMES or word >> 11 & 3 >= len(INTERLEAVES):
        raise LaunchError("these 128 bytes are no tensor map")
    upper, *dims = struct.unpack_from(f"<I{rank}I", data, 0x1C)
    low = struct.unpack_from(f"<{rank - 1}I", data, 0x0C)
    (steps,) = struct.unpack_from("<I", data, 0x34)
    kind: dict[str, Any] = {"box": tuple(data[0x37 + n] + 1 for n in range(rank))}
    if word & 1:
        if rank not in CORNER_BITS:
            raise LaunchError("these 128 bytes are no tensor map")
        *corners, pixels = struct.unpack_from("<HHI", data, 0x38)
        lower, upper_ = (_corner(bits, rank) for bits in corners)
        kind = {"box": (), "channels": data[0x37] + 1, "pixels": (pixels & 1023) + 1, "lower": lower, "upper": upper_}
    return address, Layout(
        NAMES[code], tuple(dim + 1 for dim in dims),
        tuple((bits | (upper >> 4 * n & 15) << 32) << 4 for n, bits in enumerate(low)), **kind,
        steps=tuple((steps >> 3 * n & 7) + 1 for n in range(rank)), interleave=INTERLEAVES[word >> 11 & 3],
        swizzle=SWIZZLES[word >> 13 & 3], fill=FILLS[word >> 15 & 1],
    )  # fmt: skip


def _corner(bits: int, rank: int) -> tuple[int, ...]:
    """Offsets of the pixel box, from the dimension behind the channels on."""
    width = CORNER_BITS[rank]
    half = 1 << width - 1
    return tuple(((bits >> width * n & 2 * half - 1) ^ half) - half for n in range(rank - 2))


def _each(name: str, values: tuple[int, ...], count: int, low: int, high: int) -> None:
    if len(values) != count:
        raise LaunchError(f"{name} has {len(values)} numbers; there must be {count}")
    for value in values:
        if not low <= value <= high:
            raise LaunchError(f"{name}: {value} is out of range; it must be {low} to {high}")


@dataclass(frozen=True)
class TensorMap(Stays):
    """A tensor map as an argument of a launch; ``loader.tensor_map`` makes one. ``array`` is kept alive. On the CPU
    device the tensor lies in ``memory`` (uint8, in place); on a GPU the driver made ``opaque``, for the GPU
    ``device``, and ``copy`` has the same bytes in its memory, for kernels that take a pointer."""

    instead = "make another one, of the copied array"

    layout: Layout
    array: Any = dataclasses.field(repr=False)
    memory: Any = dataclasses.field(default=None, repr=False)
    opaque: bytes = dataclasses.field(default=b"", repr=False)
    device: int | None = None
    copy: Any = dataclasses.field(default=None, repr=False)


def check_parameter(name: str, size: int) -> None:
    """LaunchError unless a parameter takes a tensor map, or a pointer to one."""
    if size not in (NBYTES, POINTER):
        hint = f"it goes by value, in {NBYTES} bytes: const __grid_constant__ CUtensorMap map; or as a pointer"
        raise LaunchError(f"{name} is a tensor map, but the parameter has {size} bytes", hint)
