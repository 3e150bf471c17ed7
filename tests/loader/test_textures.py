"""Textures and surfaces on a GPU, as far as it can be seen without one: a driver that has cuda-python's own structures,
keeps CUDA arrays in the host's memory and runs kernels on the CPU device."""

from __future__ import annotations

import ctypes
import gc
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import loader
from loader import cuda
from loader.cuda import Buffer
from tests.emulate import textures
from tests.gpu import test_textures as card
from tests.gpu.test_textures import Both
from tests.loader.driver import Driver
from turingas.errors import LaunchError
from turingas.texture import ADDRESSES, FILTERS, FORMATS, Bound, Image, Sampler, give_handle

real = pytest.importorskip("cuda.bindings.driver")


def named(code: Any) -> str:
    """What numpy calls a CU_AD_FORMAT."""
    return next(name for name, word in FORMATS.items() if code == getattr(real.CUarray_format, "CU_AD_FORMAT_" + word))


class TextureDriver(Driver):
    """What the functions for arrays and objects are told, done with the CPU device's textures."""

    for name in (
        "CUDA_ARRAY3D_DESCRIPTOR", "CUDA_MEMCPY3D", "CUDA_RESOURCE_DESC", "CUDA_TEXTURE_DESC", "CUdeviceptr",
        "CUmemorytype", "CUarray_format", "CUresourcetype", "CUaddress_mode", "CUfilter_mode",
        *(f"CUDA_ARRAY3D_{flag}" for flag in ("SURFACE_LDST", "LAYERED", "CUBEMAP", "TEXTURE_GATHER")),
        "CU_TRSF_READ_AS_INTEGER", "CU_TRSF_NORMALIZED_COORDINATES",
    ):  # fmt: skip
        locals()[name] = getattr(real, name)

    def do_cuArray3DCreate(self, d: Any) -> Any:
        layered, cube = d.Flags & real.CUDA_ARRAY3D_LAYERED, d.Flags & real.CUDA_ARRAY3D_CUBEMAP
        sizes = [d.Width, d.Height, 0 if layered or cube else d.Depth]
        sizes = sizes[: sizes.index(0)] if 0 in sizes else sizes
        dtype = named(d.Format)
        kind = ("CUBE" if cube else f"{len(sizes)}D") + ("_ARRAY" if layered else "")
        image = Image(dtype, d.NumChannels, kind, tuple(sizes), d.Depth if layered or cube else 0)
        image.check(bool(d.Flags & real.CUDA_ARRAY3D_SURFACE_LDST))
        return real.CUarray(self.made((image, np.zeros(image.nbytes, np.uint8), d.Flags)))

    def do_cuArrayDestroy(self, array: Any) -> None:
        del self.handles[int(array)]

    def do_cuMemcpy3DAsync(self, copy: Any, stream: int) -> None:
        kinds = real.CUmemorytype
        out = copy.srcMemoryType == kinds.CU_MEMORYTYPE_ARRAY
        memory, array = ("dst", "src") if out else ("src", "dst")
        image, data, _ = self.handles[int(getattr(copy, array + "Array"))]
        row = image.sizes[0] * image.texel
        assert copy.WidthInBytes == getattr(copy, memory + "Pitch") == row
        assert copy.Height == getattr(copy, memory + "Height")
        assert copy.WidthInBytes * copy.Height * copy.Depth == data.size and copy.Height and copy.Depth
        if getattr(copy, memory + "MemoryType") == kinds.CU_MEMORYTYPE_DEVICE:
            host = self.here().memory.view(int(getattr(copy, memory + "Device")))[: data.size]
        else:
            at = int(getattr(copy, memory + "Host"))
            host = np.ctypeslib.as_array((ctypes.c_uint8 * data.size).from_address(at))
        target, source = (host, data) if out else (data, host)
        target[:] = source

    def do_cuTexObjectCreate(self, resource: Any, t: Any, view: Any) -> Any:
        assert view is None
        modes = tuple(ADDRESSES[int(mode)] for mode in t.addressMode)
        if resource.resType == real.CUresourcetype.CU_RESOURCE_TYPE_LINEAR:
            linear = resource.res.linear
            dtype = named(linear.format)
            size = linear.sizeInBytes // (np.dtype(dtype).itemsize * linear.numChannels)
            image = Image(dtype, linear.numChannels, "linear", (size,))
            memory = self.here().memory.view(int(linear.devPtr)).view(np.uint8)
        else:
            image, memory, _ = self.handles[int(resource.res.array.hArray)]
        integer = np.dtype(image.dtype).kind in "iu"
        read = "normalized" if integer and not t.flags & real.CU_TRSF_READ_AS_INTEGER else "element"
        normalized = bool(t.flags & real.CU_TRSF_NORMALIZED_COORDINATES)
        sampler = Sampler(FILTERS[int(t.filterMode)], modes, normalized, read)
        sampler.check(image)
        return real.CUtexObject(self.object(Bound(image, sampler, 0, memory)))

    def do_cuSurfObjectCreate(self, resource: Any) -> Any:
        image, memory, flags = self.handles[int(resource.res.array.hArray)]
        assert flags & real.CUDA_ARRAY3D_SURFACE_LDST
        return real.CUsurfObject(self.object(Bound(image, None, 0, memory)))

    def object(self, bound: Bound) -> int:
        self.handles[give_handle(bound).handle] = bound
        return bound.handle

    def do_cuTexObjectDestroy(self, handle: Any) -> None:
        del self.handles[int(handle)]

    do_cuSurfObjectDestroy = do_cuTexObjectDestroy


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Any:
    made = TextureDriver(2, 9, 0)
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", made)
    gc.collect()
    for cache in (cuda.driver, cuda.count):
        cache.cache_clear()
    from loader.cuda import gpu

    monkeypatch.setattr(gpu, "_devices", {})
    yield made
    gc.collect()
    for cache in (cuda.driver, cuda.count):
        cache.cache_clear()


def test_both_devices(driver: TextureDriver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The descriptions that the driver is given say the same as those of the CPU device, and nothing is left over. So
    the test for a card runs, and finds nothing here."""
    both = Both(cuda.device(0))
    left = len(driver.handles)
    monkeypatch.setattr(textures, "RANDOM", 15)
    monkeypatch.setattr(card, "SURFACES", 15)
    monkeypatch.setenv("TURINGAS_RECORD_TEXTURES", str(tmp_path / "found.json"))
    card.test_textures(both, "point")
    card.test_textures(both, "linear")
    card.test_surfaces(both)
    card.test_open_questions(both)
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["linear"]["equal"] == found["linear"]["words"] and found["surfaces"]["wrong"] == 0
    assert all(one["equal"] == one["words"] for one in found["open"].values())
    assert len(np.load(tmp_path / "found.json.npz")) == 4 * len(found["open"])
    gc.collect()
    functions = [handle for handle in driver.handles.values() if isinstance(handle, list)]
    assert len(driver.handles) - left == len(functions)  # kernels


def test_a_surface_that_is_a_texture(driver: TextureDriver) -> None:
    both = Both(cuda.device(0))
    for device, module in (("cuda:0", both.gpu), ("cpu", both.cpu)):
        make = (lambda a: Buffer.of(a)) if device != "cpu" else (lambda a: a)
        surface = loader.surface(np.zeros((2, 3), np.float32), device=device)
        places = np.zeros((3, 6), np.int32)
        places[0], places[1] = np.arange(6) % 3, np.arange(6) // 3
        module.kernel("write_2D_4_zero").launch(1, 32, surface, make(places), make(np.arange(6, dtype=np.float32)), 6)
        assert surface.numpy().tolist() == [[0, 1, 2], [3, 4, 5]]
        out = make(np.zeros((6, 4), np.float32))
        texture = loader.texture(surface)
        module.kernel("tex_2D_f").launch(1, 32, texture, make(places.astype(np.float32)), make(places[2]), out, 6)
        got = out.numpy() if device != "cpu" else out
        assert got[:, 0].tolist() == [0, 1, 2, 3, 4, 5]
        surface.copy_from(np.full((2, 3), 7, np.float32))
        assert texture.numpy().tolist() == [[7] * 3] * 2


def test_devices_that_do_not_fit(driver: TextureDriver) -> None:
    both = Both(cuda.device(0))
    array = np.zeros(8, np.float32)
    here, there, other = (loader.texture(array, device=device) for device in ("cpu", "cuda:0", "cuda:1"))
    on_card = Buffer.of(np.zeros(8, np.float32))
    for module, texture, words in (
        (both.cpu, there, "is a texture for cuda:0, the kernel is on the CPU device"),
        (both.gpu, here, "is a texture for the CPU device, the kernel is on cuda:0"),
        (both.gpu, other, "is a texture for cuda:1, the kernel is on cuda:0"),
    ):
        given = array if module is both.cpu else on_card
        with pytest.raises(LaunchError, match=words):
            module.kernel("tex_1D_f").launch(1, 1, texture, given, given, given, 1)
    assert loader.texture(on_card).device == 0
    for device, words in (("cuda:1", "on cuda:0, not on cuda:1"), ("cpu", "copy it to the host")):
        with pytest.raises(LaunchError) as error:
            loader.texture(on_card, device=device)
        assert words in str(error.value)
    with pytest.raises(LaunchError, match="used in place"):
        loader.texture(np.zeros(4, np.float32), linear=True, device="cuda:0")
