"""Textures and surfaces: what a kernel reads through cudaTextureObject_t, and reads and writes through
cudaSurfaceObject_t, as the CUDA C++ Programming Guide defines them ("Texture and Surface Memory", "Texture Fetching").

Both are an image, texels in one to three dimensions, and a 64-bit handle that is passed to kernels. A texture has a
sampler besides: how a coordinate becomes a texel.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import weakref
from dataclasses import dataclass
from typing import Any

import numpy as np

from turingas.errors import LaunchError
from turingas.stays import Stays

HANDLE = 8  # bytes
FILTERS, READS = ("point", "linear"), ("element", "normalized")
ADDRESSES = ("wrap", "clamp", "mirror", "border")  # in the order of CUaddress_mode
#: types of components: their name in CU_AD_FORMAT_...
FORMATS = {
    "uint8": "UNSIGNED_INT8", "int8": "SIGNED_INT8", "uint16": "UNSIGNED_INT16", "int16": "SIGNED_INT16",
    "uint32": "UNSIGNED_INT32", "int32": "SIGNED_INT32", "float16": "HALF", "float32": "FLOAT",
}  # fmt: skip
#: the largest sizes of an image by its kind: as a texture, and as a surface (CUDA C++ Programming Guide, "Technical
#: Specifications per Compute Capability"; the same from 7.0 on). Innermost dimension first, then layers
LIMITS: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "1D": ((131072,), (32768,)),
    "2D": ((131072, 65536), (131072, 65536)),
    "3D": ((16384, 16384, 16384), (16384, 16384, 16384)),
    "1D_ARRAY": ((32768, 2048), (32768, 2048)),
    "2D_ARRAY": ((32768, 32768, 2048), (32768, 32768, 2048)),
    "CUBE": ((32768, 32768, 6), (32768, 32768, 6)),
    "CUBE_ARRAY": ((32768, 32768, 2046), (32768, 32768, 2046)),
    "linear": ((1 << 28,), ()),
}


@dataclass(frozen=True)
class Image:
    """The texels of a texture or surface. ``kind``: one of ``LIMITS``. ``sizes``: texels in each dimension, innermost
    first, without layers. ``layers``: how many, faces of cubes among them; 0: it has none."""

    dtype: str
    channels: int
    kind: str
    sizes: tuple[int, ...]
    layers: int = 0

    @property
    def cube(self) -> bool:
        return self.kind.startswith("CUBE")

    @property
    def linear(self) -> bool:
        """Whether it is memory of the caller's, in place."""
        return self.kind == "linear"

    @property
    def texel(self) -> int:
        """Bytes of a texel."""
        return self.channels * np.dtype(self.dtype).itemsize

    @property
    def nbytes(self) -> int:
        return self.texel * math.prod(self.sizes) * max(self.layers, 1)

    def check(self, surface: bool = False) -> None:
        """LaunchError for what no GPU takes as a texture, or as a surface."""
        what = "a surface" if surface else "a texture"
        if self.dtype not in FORMATS:
            raise LaunchError(f"{what} of {self.dtype}", "types: " + ", ".join(FORMATS))
        if self.channels not in (1, 2, 4):
            raise LaunchError(f"{what} of {self.channels} channels; there must be 1, 2 or 4")
        if surface and self.linear:
            raise LaunchError("linear memory cannot be a surface")
        if self.cube and (self.sizes[0] != self.sizes[1] or self.layers % 6):
            raise LaunchError("a cube has six faces, as high as wide: an array of (6, size, size)")
        for size, limit in zip((*self.sizes, self.layers), LIMITS[self.kind][surface]):
            if not 1 <= size <= limit:
                raise LaunchError(f"{what} of kind {self.kind} with a size of {size}; it must be 1 to {limit}")


@dataclass(frozen=True)
class Sampler:
    """How a texture is read. ``address``: for each dimension, innermost first; outside of a border all is zero."""

    filter: str = "point"
    address: tuple[str, ...] = ("clamp", "clamp", "clamp")
    normalized: bool = False
    read: str = "element"

    def check(self, image: Image) -> None:
        """LaunchError for what does not go together, or with ``image``."""
        for name, value, known in (("filter", self.filter, FILTERS), ("read", self.read, READS)):
            if value not in known:
                raise LaunchError(f"{name} is {value!r}; it must be one of " + ", ".join(map(repr, known)))
        for mode in self.address:
            if mode not in ADDRESSES:
                raise LaunchError(f"address is {mode!r}; it must be one of " + ", ".join(map(repr, ADDRESSES)))
            if mode in ("wrap", "mirror") and not self.normalized and not image.cube:
                raise LaunchError(f"address={mode!r} is for normalized coordinates", "pass normalized=True")
        if len(self.address) != 3:
            raise LaunchError("address is one mode, or one for each dimension")
        integer = np.dtype(image.dtype).kind in "iu" if image.dtype in FORMATS else False
        if self.read == "normalized" and not (integer and image.dtype[-2:] != "32"):
            raise LaunchError(f"read='normalized' is for integers of 8 and 16 bits, not for {image.dtype}")
        if self.filter == "linear" and integer and self.read == "element":
            raise LaunchError(f"filter='linear' of {image.dtype}: what is read must be floats", "read='normalized'")
        if self.filter == "linear" and image.linear:
            raise LaunchError("linear memory cannot be filtered")


@dataclass(eq=False)
class Bound(Stays):
    """A texture or surface as an argument of a launch; ``loader.texture`` and ``loader.surface`` make them.

    ``sampler``: None: it is a surface. ``handle``: what a kernel gets, 64 bits. ``texels``: the loader's, kept alive.
    On the CPU device ``memory`` has the texels (uint8, in C order: layers, then dimensions, outermost first); on the
    GPU ``device`` the driver has them.
    """

    instead = "make another one, of .numpy()"

    image: Image
    sampler: Sampler | None
    handle: int = 0
    memory: Any = dataclasses.field(default=None, repr=False)
    device: int | None = None
    texels: Any = dataclasses.field(default=None, repr=False)

    @property
    def what(self) -> str:
        return "surface" if self.sampler is None else "texture"


_bound: weakref.WeakValueDictionary[int, Bound] = weakref.WeakValueDictionary()
#: handles of the CPU device. Instructions take 32 bits; none is a small number or looks like a float
_handles = itertools.count(0x0BAD0001)


def give_handle(bound: Bound) -> Bound:
    """Make what lies on the CPU device known by a handle, as long as it lives."""
    bound.handle = next(_handles)
    _bound[bound.handle] = bound
    return bound


def behind(handle: int) -> Bound | None:
    """What lives on the CPU device and has that handle (its lower 32 bits)."""
    return _bound.get(handle)


def argument(name: str, bound: Bound, size: int, place: int | None) -> int:
    """The handle for a parameter of ``size`` bytes of a kernel on the GPU ``place`` (None: the CPU device). LaunchError
    when it does not fit."""
    if size != HANDLE:
        kind = {"surface": "cudaSurfaceObject_t", "texture": "cudaTextureObject_t"}[bound.what]
        hint = f"it goes as {kind}, 8 bytes"
        raise LaunchError(f"{name} is a {bound.what}, but the parameter has {size} bytes", hint)
    if bound.device != place:
        there, here = ("the CPU device" if n is None else f"cuda:{n}" for n in (bound.device, place))
        raise LaunchError(f"{name} is a {bound.what} for {there}, the kernel is on {here}", "make it there: device=")
    return bound.handle
