"""Textures and surfaces of a GPU: CUDA arrays, texture and surface objects."""

from __future__ import annotations

import contextlib
import weakref
from typing import Any

import numpy as np

from loader.cuda.errors import CudaError
from loader.cuda.gpu import Device, device
from turingas.texture import ADDRESSES, FILTERS, FORMATS, Bound, Image

GATHERED = 32768  # the largest size of an image for tex2Dgather


class ArrayTexels:
    """A CUDA array: texels in the GPU's own order."""

    def __init__(self, gpu: Device, image: Image, shape: tuple[int, ...], surface: bool) -> None:
        self.gpu, self.image, self.shape = gpu, image, shape
        d = gpu.driver
        wanted = d.CUDA_ARRAY3D_DESCRIPTOR()
        width, height, depth = (*image.sizes, 0, 0)[:3]
        wanted.Width, wanted.Height, wanted.Depth = width, height, image.layers or depth
        wanted.Format, wanted.NumChannels = _format(d, image), image.channels
        flags = d.CUDA_ARRAY3D_SURFACE_LDST if surface else 0
        flags |= d.CUDA_ARRAY3D_LAYERED if image.kind.endswith("ARRAY") else 0
        flags |= d.CUDA_ARRAY3D_CUBEMAP if image.cube else 0
        flags |= d.CUDA_ARRAY3D_TEXTURE_GATHER if image.kind == "2D" and max(image.sizes) <= GATHERED else 0
        wanted.Flags = flags
        self.handle = gpu.call("cuArray3DCreate", wanted)
        weakref.finalize(self, gpu.quietly, "cuArrayDestroy", self.handle)

    def copy(self, address: int, on_gpu: bool, out: bool = False) -> None:
        """From memory in C order, of the GPU or the host; ``out``: to it. It is done when this returns."""
        d, image = self.gpu.driver, self.image
        copy = d.CUDA_MEMCPY3D()
        row = image.sizes[0] * image.texel
        height = image.sizes[1] if len(image.sizes) > 1 else 1
        copy.WidthInBytes, copy.Height = row, height
        copy.Depth = image.layers or (image.sizes[2] if len(image.sizes) > 2 else 1)
        array, memory = ("src", "dst") if out else ("dst", "src")
        kind = d.CUmemorytype.CU_MEMORYTYPE_DEVICE if on_gpu else d.CUmemorytype.CU_MEMORYTYPE_HOST
        for name, value in (
            (f"{array}MemoryType", d.CUmemorytype.CU_MEMORYTYPE_ARRAY), (f"{array}Array", self.handle),
            (f"{memory}MemoryType", kind), (f"{memory}Pitch", row), (f"{memory}Height", height),
            (memory + ("Device" if on_gpu else "Host"), address),
        ):  # fmt: skip
            setattr(copy, name, value)
        self.gpu.call("cuMemcpy3DAsync", copy, 0)
        self.gpu.call("cuStreamSynchronize", 0)

    def numpy(self) -> np.ndarray[Any, Any]:
        array = np.empty(self.shape, self.image.dtype)
        self.copy(array.ctypes.data, False, out=True)
        return array

    def copy_from(self, array: np.ndarray[Any, Any]) -> None:
        self.copy(array.ctypes.data, False)

    def describe(self, resource: Any) -> None:
        """Fill in a CUDA_RESOURCE_DESC."""
        resource.resType = self.gpu.driver.CUresourcetype.CU_RESOURCE_TYPE_ARRAY
        resource.res.array.hArray = self.handle


class LinearTexels:
    """Memory of an array on the GPU, in place."""

    def __init__(self, array: Any, address: int, image: Image) -> None:
        self.array, self.address, self.image = array, address, image
        self.shape = tuple(map(int, array.shape))

    def describe(self, resource: Any) -> None:
        d = device(0).driver
        resource.resType = d.CUresourcetype.CU_RESOURCE_TYPE_LINEAR
        linear = resource.res.linear
        linear.devPtr, linear.format = d.CUdeviceptr(self.address), _format(d, self.image)
        linear.numChannels, linear.sizeInBytes = self.image.channels, self.image.nbytes


def _format(driver: Any, image: Image) -> Any:
    return getattr(driver.CUarray_format, "CU_AD_FORMAT_" + FORMATS[image.dtype])


def bind(bound: Bound) -> None:
    """Give it a handle: a texture or surface object of the driver's, until it is collected."""
    assert bound.device is not None
    gpu = device(bound.device)
    d = gpu.driver
    resource = d.CUDA_RESOURCE_DESC()
    bound.texels.describe(resource)
    resource.flags = 0
    sampler, word = bound.sampler, "Surf" if bound.sampler is None else "Tex"
    if sampler is None:
        made = gpu.call("cuSurfObjectCreate", resource)
    else:
        wanted = d.CUDA_TEXTURE_DESC()
        wanted.addressMode = [d.CUaddress_mode(ADDRESSES.index(mode)) for mode in sampler.address]
        wanted.filterMode = d.CUfilter_mode(FILTERS.index(sampler.filter))
        integer = sampler.read == "element" and np.dtype(bound.image.dtype).kind in "iu"
        flags = d.CU_TRSF_READ_AS_INTEGER if integer else 0
        wanted.flags = flags | (d.CU_TRSF_NORMALIZED_COORDINATES if sampler.normalized else 0)
        made = gpu.call("cuTexObjectCreate", resource, wanted, None)
    bound.handle = int(made)
    weakref.finalize(bound, _destroy, gpu, f"cu{word}ObjectDestroy", made, bound.texels)


def _destroy(gpu: Device, function: str, handle: Any, texels: Any) -> None:
    """Kernels that were launched with it may still run. ``texels`` live until it is gone."""
    with contextlib.suppress(CudaError):
        gpu.synchronize()
    gpu.quietly(function, handle)
