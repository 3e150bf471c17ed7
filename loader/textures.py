"""Textures and surfaces of arrays, for the CPU device and for GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from loader import cuda
from loader.arrays import ASK, BOTH, HOST, kind_of, memory_of, on_host
from loader.cuda.textures import ArrayTexels, LinearTexels, bind
from loader.module import CPU
from turingas.errors import LaunchError
from turingas.texture import Bound, Image, Sampler, give_handle


class Texture(Bound):
    """A texture or surface that kernels take as cudaTextureObject_t or cudaSurfaceObject_t, one with its texels."""

    def numpy(self) -> np.ndarray[Any, Any]:
        """A copy of the texels, in the shape of the array that it was made of."""
        return np.asarray(self.texels.numpy())

    def copy_from(self, array: Any) -> None:
        """New texels, of an array (on the host) of the same shape and type."""
        found = np.ascontiguousarray(array)
        if found.shape != self.texels.shape or str(found.dtype) != self.image.dtype:
            mine = f"{self.image.dtype}{list(self.texels.shape)}"
            raise LaunchError(f"the array is {found.dtype}{list(found.shape)}, the texels {mine}")
        self.texels.copy_from(found)


class HostTexels:
    """Texels of the CPU device: ``memory``, bytes in C order."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self.shape, self.dtype = array.shape, array.dtype
        self.memory: np.ndarray[Any, Any] = array.reshape(-1).view(np.uint8)

    def numpy(self) -> np.ndarray[Any, Any]:
        found: np.ndarray[Any, Any] = np.empty(self.shape, self.dtype)
        found.reshape(-1).view(np.uint8)[:] = self.memory
        return found

    def copy_from(self, array: np.ndarray[Any, Any]) -> None:
        self.memory[:] = array.reshape(-1).view(np.uint8)


def texture(
    array: Any,
    *,
    filter: str = "point",
    address: str | Sequence[str] = "clamp",
    normalized: bool = False,
    read: str = "element",
    channels: int = 1,
    layered: bool = False,
    cube: bool = False,
    linear: bool = False,
    device: str | None = None,
) -> Texture:
    """A texture of ``array``, to be passed to ``launch`` where a kernel takes cudaTextureObject_t; ``handle`` is its
    number, for arrays of them. It has a copy of the array (a CUDA array on a GPU), and of a surface it has the texels.

    ``array``: 1 to 3 dimensions of integers of 8 to 32 bits, float16 or float32, in C order, x last; behind x the
    ``channels`` of a texel if these are 2 or 4. ``layered``: the first dimension counts layers, of 1 or 2 dimensions;
    ``cube``: six faces, with ``layered`` six for each cube. ``linear``: one dimension, in place, for tex1Dfetch.

    ``filter``: "point" or "linear". ``address``: "wrap", "clamp", "mirror" or "border", one for all dimensions or one
    for each, in the array's order; wrap and mirror need ``normalized`` coordinates (0 to 1). ``read``: "element" as it
    is (float16 as float), "normalized": integers of 8 and 16 bits as floats from 0 or -1 to 1.

    ``device``: "cpu" or "cuda:0" ...; None: where the array lies. LaunchError for what the driver would refuse, or
    leaves undefined. Sources: CUDA C++ Programming Guide, "Texture and Surface Memory"; CUDA driver API, "Texture
    Object Management".
    """
    made = array if isinstance(array, Texture) else _made(array, channels, layered, cube, linear, False, device)
    image = made.image
    modes = [address] * len(image.sizes) if isinstance(address, str) else list(reversed(address))
    if len(modes) != len(image.sizes):
        raise LaunchError(f"address has {len(modes)} modes, and the texture {len(image.sizes)} dimensions")
    sampler = Sampler(filter, (*modes, *["clamp"] * (3 - len(modes))), normalized, read)
    image.check()
    sampler.check(image)
    return _bound(made, sampler)


def surface(
    array: Any, *, channels: int = 1, layered: bool = False, cube: bool = False, device: str | None = None
) -> Texture:
    """A surface with a copy of ``array``, to be passed where a kernel takes cudaSurfaceObject_t: ``numpy()`` gives what
    kernels made of it. Arguments as for ``texture``; x counts bytes in surf2Dread and its like. LaunchError likewise.
    """
    made = _made(array, channels, layered, cube, False, True, device)
    return _bound(made, None)


def _image(array: Any, channels: int, layered: bool, cube: bool, linear: bool) -> Image:
    name, shape = str(array.dtype).rpartition(".")[2], tuple(map(int, array.shape))
    if channels > 1:
        if shape[-1:] != (channels,):
            raise LaunchError(f"the array has the shape {shape}; the last dimension must be its {channels} channels")
        shape = shape[:-1]
    layers = shape[:1] if layered or cube else ()
    sizes = tuple(reversed(shape[len(layers) :]))
    most = 1 if linear else 2 if layers else 3
    if not (2 if cube else 1) <= len(sizes) <= most or (linear and layers):
        what = "linear memory" if linear else "a cube" if cube else "a layer" if layers else "an image"
        counts = "1 dimension" if linear else "2 dimensions" if cube else f"1 to {most} dimensions"
        raise LaunchError(f"{what} has {counts}; an array of shape {tuple(array.shape)} has {len(sizes)} there")
    if cube and not layered and layers != (6,):
        raise LaunchError(f"a cube has 6 faces, not {layers[0]}", "layered=True for several cubes")
    kind = "CUBE" if cube else "linear" if linear else f"{len(sizes)}D"
    return Image(name, channels, kind + "_ARRAY" * layered, sizes, *layers)


def _made(
    array: Any, channels: int, layered: bool, cube: bool, linear: bool, surface: bool, device: str | None
) -> Texture:
    """The texels on their device, not bound to a handle yet."""
    what = "a surface" if surface else "a texture"
    kind = kind_of(array)
    if kind is None:
        raise LaunchError(f"{what} of a {type(array).__name__}, which is no array")
    image = _image(array, channels, layered, cube, linear)
    image.check(surface)
    if isinstance(array, np.ndarray) and not linear:
        array = np.ascontiguousarray(array)
    address, _, place, _ = memory_of(kind, array, 0, f"the array of {what}")
    if place == ASK:
        place = cuda.device(0).where(address)
    on_gpu = place not in (HOST, BOTH)
    if device is None:
        device = f"cuda:{place}" if on_gpu else CPU
    if device == CPU:
        given = on_host(array, f"the array of {what}")
        held = HostTexels(given if linear else given.copy())
        return Texture(image, None, memory=held.memory, texels=held)
    gpu = cuda.device_named(device)
    if on_gpu and gpu.number != place:
        raise LaunchError(f"the array of {what} is on cuda:{place}, not on {gpu}")
    if linear:
        if not on_gpu:
            hint = "copy it there: loader.cuda.Buffer.of(array)"
            raise LaunchError(f"linear memory is used in place, and the array is not on {gpu}", hint)
        return Texture(image, None, device=gpu.number, texels=LinearTexels(array, address, image))
    texels = ArrayTexels(gpu, image, tuple(map(int, array.shape)), surface)
    texels.copy(address, on_gpu)
    return Texture(image, None, device=gpu.number, texels=texels)


def _bound(made: Texture, sampler: Sampler | None) -> Texture:
    new = Texture(made.image, sampler, 0, made.memory, made.device, made.texels)
    if new.device is None:
        give_handle(new)
    else:
        bind(new)
    return new
