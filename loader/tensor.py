"""Tensor maps of arrays, for the CPU device and for GPUs."""

from __future__ import annotations

import ctypes
import functools
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from loader import cuda
from loader.arrays import ASK, BOTH, HOST, kind_of
from turingas.errors import LaunchError
from turingas.tensor_map import INTERLEAVES, LIKE, TYPES, Layout, TensorMap, aligned

L2 = (0, 64, 128, 256)


def tensor_map(
    array: Any,
    box: Sequence[int] | None = None,
    *,
    dtype: str | None = None,
    steps: Sequence[int] | None = None,
    swizzle: int = 0,
    interleave: int = 0,
    fill: str = "zero",
    l2: int = 0,
    channels: int = 0,
    pixels: int = 0,
    lower: Sequence[int] = (),
    upper: Sequence[int] = (),
) -> TensorMap:
    """A tensor map (CUtensorMap) of ``array``, to be passed to ``launch`` where a kernel takes ``const
    __grid_constant__ CUtensorMap``, or a pointer to one. An array in a GPU's memory gives one for that GPU, any other
    one for the CPU device. The array is kept alive, and used in place.

    All sizes are in the order of the array's own dimensions, the innermost one last (1 to 5 of them; its elements must
    lie one behind the other). Coordinates in a kernel are in the other order, as PTX has them.

    ``box``: elements of a tile, 1 to 256 in each dimension. ``dtype``: a type that numpy has no word for ("bfloat16",
    "tf32", "float32.ftz", "tf32.ftz"), else that of the array. ``steps``: every how manieth element is taken, 1 to 8.
    ``swizzle``: 0, 32, 64 or 128 bytes. ``interleave``: 0, or 16 or 32 bytes that the innermost dimension then has, a
    slice of channels: of images (N, C/8, H, W, 8), NC/8HWC8, the tensor has the dimensions (N, C/8, H, W), in slices,
    and so have ``box`` and ``steps``. A copy takes one slice of channels, whatever the box says of C/8. ``fill``:
    "zero" or "nan", for elements outside. ``l2``: bytes that L2 fetches at once (0, 64, 128, 256); nothing comes of it
    on the CPU device.

    With ``pixels`` and ``channels`` instead of ``box`` an im2col map: pixels of a column, channels of a pixel, and
    ``lower`` and ``upper`` corner of the box of pixels, offsets from the first and the last pixel in the dimensions
    between images and channels.

    Raises LaunchError for what the driver would refuse. Source: CUDA driver API, Tensor Map Object Management.
    """
    kind = kind_of(array)
    if kind is None:
        raise LaunchError(f"a tensor map of a {type(array).__name__}, which is no array")
    name = dtype or str(array.dtype).rpartition(".")[2]
    name = LIKE.get(name, name)
    if (box is None) == (not pixels):
        raise LaunchError("a tensor map needs box (tiles), or pixels and channels (im2col)")
    shape = tuple(map(int, array.shape))
    strides = _strides(array, shape)
    item = TYPES[name][1] if name in TYPES else 0
    if item and item != array.dtype.itemsize:
        raise LaunchError(f"elements of {array.dtype} cannot be {name}")
    if item and strides and strides[-1] != item and shape[-1] > 1 and all(shape):
        raise LaunchError(f"the innermost dimension has a stride of {strides[-1]} bytes; its elements must be adjacent")
    if interleave in INTERLEAVES[1:] and item:
        shape, strides = _slices(shape, strides, item, interleave)
    if l2 not in L2:
        raise LaunchError(f"l2 is {l2!r}; it must be one of 0, 64, 128, 256")

    def turned(name: str, values: Sequence[int]) -> tuple[int, ...]:
        try:
            return tuple(map(operator.index, reversed(values)))
        except TypeError:
            raise LaunchError(f"{name} is {values!r}; it must be whole numbers, one for each dimension") from None

    layout = Layout(
        name, shape[::-1], strides[-2::-1], turned("box", box or ()), turned("steps", steps or [1] * len(shape)),
        interleave, swizzle, fill, channels, pixels, turned("lower", lower), turned("upper", upper),
    )  # fmt: skip
    layout.check()
    try:
        address, _, place, _ = kind.read(array, 0)
    except LaunchError as error:
        raise LaunchError(f"the array {error.message}", error.hint) from None
    if place in (HOST, BOTH):
        aligned(layout, address)
        memory = np.ctypeslib.as_array((ctypes.c_uint8 * _reach(array, layout, address)).from_address(address))
        if isinstance(array, np.ndarray):
            memory.flags.writeable = array.flags.writeable
        return TensorMap(layout, array, memory)
    if place == ASK:
        place = cuda.device(0).where(address)
    gpu = cuda.device(place)
    opaque = _encode(gpu, layout, address, l2)
    return TensorMap(layout, array, None, opaque, place, _Copy(opaque, gpu))


class _Copy:
    """The bytes of a map in a GPU's memory, made when a kernel that takes a pointer first asks for them: to allocate
    takes long, and must not be while a graph is recorded."""

    def __init__(self, opaque: bytes, gpu: Any) -> None:
        self.opaque, self.gpu = opaque, gpu

    @functools.cached_property
    def buffer(self) -> cuda.Buffer:
        return cuda.Buffer.of(np.frombuffer(self.opaque, np.uint8), self.gpu)

    @property
    def address(self) -> int:
        return self.buffer.address


def _slices(
    shape: tuple[int, ...], strides: tuple[int, ...], item: int, interleave: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Shape and strides without the dimension within a slice."""
    if len(shape) < 2 or shape[-1] * item != interleave:
        message = f"with interleave={interleave} the innermost dimension has {interleave // item} elements"
        raise LaunchError(message, "such as (N, C/8, H, W, 8) of NC/8HWC8")
    if strides[-2] != interleave and shape[-2] > 1:
        raise LaunchError(f"the slices have a stride of {strides[-2]} bytes; they must be adjacent")
    return shape[:-1], strides[:-1]


def _strides(array: Any, shape: tuple[int, ...]) -> tuple[int, ...]:
    """In bytes; in C order where the array does not say."""
    item = int(array.dtype.itemsize)
    if callable(given := getattr(array, "stride", None)):  # PyTorch, in elements
        return tuple(item * int(stride) for stride in given())
    if given := getattr(array, "strides", None):
        return tuple(map(int, given))
    found = [item]
    for size in reversed(shape[1:]):
        found.append(found[-1] * size)
    return tuple(reversed(found))


def _reach(array: Any, layout: Layout, address: int) -> int:
    """Bytes of memory that the map may touch. Stores write whole units of 16 bytes, so the padding of the last row is
    among them, if the array is known to be part of one that has it."""
    whole = array
    while isinstance(getattr(whole, "base", None), np.ndarray):
        whole = whole.base
    padded = layout.extent + -layout.dims[0] * layout.cell % 16
    if isinstance(whole, np.ndarray) and whole.flags.forc:
        if address + padded <= whole.ctypes.data + whole.nbytes:
            return padded
    return layout.extent


UNUSED = 16


def _encode(gpu: Any, layout: Layout, address: int, l2: int) -> bytes:
    """What the driver makes of it."""
    d = gpu.driver
    kind = getattr(d.CUtensorMapDataType, "CU_TENSOR_MAP_DATA_TYPE_" + TYPES[layout.dtype][2])
    strides = layout.strides or (UNUSED,)  # of one dimension: the driver refuses an empty list
    wide = [d.cuuint64_t(value) for value in layout.dims], [d.cuuint64_t(value) for value in strides]
    steps = [d.cuuint32_t(value) for value in layout.steps]

    def value(enum: Any, name: str, number: int) -> Any:
        return getattr(enum, f"CU_TENSOR_MAP_{name}_" + (f"{number}B" if number else "NONE"))

    fill = "NONE" if layout.fill == "zero" else "NAN_REQUEST_ZERO_FMA"
    last = (
        value(d.CUtensorMapInterleave, "INTERLEAVE", layout.interleave),
        value(d.CUtensorMapSwizzle, "SWIZZLE", layout.swizzle),
        _l2(d, l2),
        getattr(d.CUtensorMapFloatOOBfill, "CU_TENSOR_MAP_FLOAT_OOB_FILL_" + fill),
    )
    if layout.im2col:
        corners = list(layout.lower), list(layout.upper)
        made = gpu.call("cuTensorMapEncodeIm2col", kind, layout.rank, address, *wide, *corners, layout.channels,
                        layout.pixels, steps, *last)  # fmt: skip
    else:
        box = [d.cuuint32_t(value) for value in layout.box]
        made = gpu.call("cuTensorMapEncodeTiled", kind, layout.rank, address, *wide, box, steps, *last)
    return b"".join(int(part).to_bytes(8, "little") for part in made.opaque)


def _l2(driver: Any, nbytes: int) -> Any:
    name = f"L2_{nbytes}B" if nbytes else "NONE"
    return getattr(driver.CUtensorMapL2promotion, "CU_TENSOR_MAP_L2_PROMOTION_" + name)
