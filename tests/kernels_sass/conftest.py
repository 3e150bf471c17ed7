"""Fixtures of the tests of kernels_sass: GPUs that are none, and no GPU at all; standin.cu in the place of the kernels;
what stands for PyTorch and CuPy."""

from __future__ import annotations

import sys
import types

import numpy as np
import pytest

from kernels_sass.conv import code, conv2d, cost
from kernels_sass.conv.method import METHODS
from loader import nvrtc, timing, validate
from loader.bench import contenders, cudnn, measure, results
from loader.cuda import Buffer
from tests.kernels_sass.card import STANDIN, Card
from tests.loader.conftest import install  # noqa: F401
from tests.loader.driver import Driver
from turingas.cubin.cubin import Cubin
from turingas.errors import LaunchError


@pytest.fixture
def card(install, monkeypatch, tmp_path):  # noqa: F811
    """A GPU, standin.cu in the place of each source, a small Conv2 and Conv3, no PyTorch, no cuDNN, nothing of git."""
    card = install(Card(gpus=1))

    def assemble(source, arch, given):
        if unknown := set(given) - {"YIELD", "LDG_INTERLEAVE", "STS_INTERLEAVE"}:
            raise LaunchError(f"{source.file} has no parameter {unknown.pop()!r}")
        return Cubin.from_bytes(nvrtc.compile(STANDIN.read_text(), arch))

    monkeypatch.setattr(code, "assemble", assemble)
    monkeypatch.setattr(code.Kernels, "_made", {})
    cost._sms.cache_clear()
    for name, size in (("Conv2", (3, 4)), ("Conv3", (5, 3))):
        monkeypatch.setitem(validate.LAYERS, name, size)
    monkeypatch.setattr(measure, "torch", lambda: None)
    monkeypatch.setattr(contenders, "torch", lambda: None)
    monkeypatch.setattr(results, "torch", lambda: None)
    monkeypatch.setattr(cudnn, "library", lambda: None)
    monkeypatch.setattr(timing, "clocks", lambda gpu: timing.Clocks(1000, 2000))
    monkeypatch.setattr(timing, "nvml", lambda: None)
    monkeypatch.setattr(timing, "FILL_SECONDS", 1.0)  # nothing here waits for Python: no more than one
    monkeypatch.setattr(results, "_driver", lambda: "1.2")
    monkeypatch.setenv("TURINGAS_COMMIT", "abc")
    monkeypatch.setattr(results, "FOLDER", tmp_path)
    cudnn._handle.cache_clear()
    yield card
    code.Kernels._made.clear()


@pytest.fixture
def no_gpu(install):  # noqa: F811
    install(Driver(gpus=0))


@pytest.fixture
def standin(monkeypatch):
    """standin.cu in the place of the kernels."""

    def assemble(source, arch, schedule):
        return Cubin.from_bytes(nvrtc.compile(STANDIN.read_text(), arch, [], name="standin.cu"))

    monkeypatch.setattr(code, "assemble", assemble)
    monkeypatch.setattr(code.Kernels, "_made", {})
    monkeypatch.setattr(METHODS["hopper"], "general", False)
    monkeypatch.setattr(code, "FITTED", ())  # nor in the place of others


@pytest.fixture
def driver(install, standin, monkeypatch):  # noqa: F811
    """With Winograd's kernels alone: the standin has no HGMMA."""
    monkeypatch.setattr(conv2d, "_multiplies", lambda device: False)
    return install(Driver(major=9, minor=0))


@pytest.fixture
def libraries(monkeypatch):
    """What Conv2d uses of PyTorch and CuPy, over Buffers and numpy arrays. ``libraries.stream`` is current."""

    found = types.SimpleNamespace(stream=77, gradients=True)

    class Tensor:
        dtype, requires_grad = "torch.float32", False

        def __init__(self, inner, contiguous=True):
            self.inner, self.shape, self.nbytes, self.contiguous = inner, Size(inner.shape), inner.nbytes, contiguous

        def data_ptr(self):
            return self.inner.address if isinstance(self.inner, Buffer) else self.inner.ctypes.data

        def get_device(self):
            return self.inner.gpu.number if isinstance(self.inner, Buffer) else -1

        def is_contiguous(self):
            return self.contiguous

        def is_neg(self):
            return False

        is_conj = is_neg

        def new_empty(self, *shape):
            gpu = isinstance(self.inner, Buffer)
            return Tensor(Buffer(shape, np.float32, self.inner.gpu) if gpu else np.empty(shape, np.float32))

        def untyped_storage(self):
            return types.SimpleNamespace(resize_=lambda count: isinstance(self.inner, Buffer) and self.inner.free())

        def permute(self, *order):
            raise NotImplementedError

    class Size(tuple):
        pass

    class Array:
        dtype = np.dtype("f4")

        def __init__(self, inner):
            self.inner, self.shape, self.nbytes = inner, inner.shape, inner.nbytes
            self.data = types.SimpleNamespace(ptr=inner.address)
            self.flags = types.SimpleNamespace(c_contiguous=True)
            self.device = Device(inner.gpu.number)

    class Device:
        current = 0

        def __init__(self, id):
            self.id = id

        def __enter__(self):
            self.before, Device.current = Device.current, self.id

        def __exit__(self, *exception):
            Device.current = self.before

    torch = types.SimpleNamespace(
        Tensor=Tensor, float32="torch.float32", is_grad_enabled=lambda: found.gradients,
        empty_like=lambda like: like.new_empty(*like.shape),
        cuda=types.SimpleNamespace(current_stream=lambda place: types.SimpleNamespace(cuda_stream=found.stream)),
    )  # fmt: skip
    cupy = types.SimpleNamespace(
        ndarray=Array, empty=lambda shape, dtype: Array(Buffer(shape, dtype, f"cuda:{Device.current}")),
        cuda=types.SimpleNamespace(get_current_stream=lambda: types.SimpleNamespace(ptr=found.stream)),
    )  # fmt: skip
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    found.torch, found.cupy = Tensor, Array
    return found
