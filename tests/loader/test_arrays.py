"""Arrays of other libraries: by DLPack and the array interfaces, by stand-ins for PyTorch and CuPy, and by numpy."""

from __future__ import annotations

import sys
import types

import numpy as np
import pytest

import loader
import turingas
from loader.arrays import ASK, HOST, kind_of, memory_of, on_host
from tests.emulate.test_device import ADD
from turingas.errors import LaunchError

N = 64


class Packed:
    """An array with DLPack alone."""

    def __init__(self, array, device=None):
        self.array, self.device = array, device

    def __dlpack__(self, stream=None):
        return self.array.__dlpack__()

    def __dlpack_device__(self):
        return self.device or self.array.__dlpack_device__()


class Interface:
    """An array with __array_interface__ alone."""

    def __init__(self, array):
        self.array = array
        self.__array_interface__ = array.__array_interface__


@pytest.fixture
def libraries(monkeypatch):
    """Stand-ins for the parts of PyTorch and CuPy that are used; both count as imported."""

    class Tensor:
        def __init__(self, array, device=-1):
            self.array, self.device = array, device
            self.nbytes = array.nbytes

        def data_ptr(self):
            return self.array.ctypes.data

        def get_device(self):
            return self.device

        def is_contiguous(self):
            return self.array.flags.c_contiguous

        def is_neg(self):
            return False

        is_conj = is_neg

    class Array:
        def __init__(self, address, nbytes, device):
            self.data, self.nbytes = types.SimpleNamespace(ptr=address), nbytes
            self.device = types.SimpleNamespace(id=device)
            self.flags = types.SimpleNamespace(c_contiguous=True)

    def current_stream(device):
        return types.SimpleNamespace(cuda_stream=500 + device)

    torch = types.SimpleNamespace(Tensor=Tensor, cuda=types.SimpleNamespace(current_stream=current_stream))
    cupy = types.SimpleNamespace(
        ndarray=Array, cuda=types.SimpleNamespace(get_current_stream=lambda: types.SimpleNamespace(ptr=600))
    )
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    return torch, cupy


def memory(value, stream=0):
    return memory_of(kind_of(value), value, stream, "it")


@pytest.mark.parametrize("wrap", [lambda a: a, Packed, Interface], ids=["numpy", "dlpack", "interface"])
def test_memory_of_the_host(wrap):
    array = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    assert memory(wrap(array)) == (array.ctypes.data, 96, HOST, True)
    part = array[1:]
    assert memory(wrap(part))[0] == array.ctypes.data + 48
    assert memory(wrap(np.broadcast_to(array[:, None], (2, 1, 3, 4)).copy()[:, :1]))[3]
    for wrong in (array[:, ::2], array.T, array[..., 0]):
        with pytest.raises(LaunchError, match="^it is not contiguous\n.*ascontiguousarray"):
            memory(wrap(wrong))
    with pytest.raises(LaunchError, match="^it is an array without elements"):
        memory(wrap(np.zeros((3, 0))))


@pytest.mark.parametrize("wrap", [lambda a: a, Packed, Interface], ids=["numpy", "dlpack", "interface"])
def test_the_cpu_device_uses_them_in_place(wrap):
    kernel = loader.load(turingas.assemble(ADD), "cpu").kernel("add")
    out, values = np.zeros((8, 8), np.float32), np.arange(N, dtype=np.float32)
    kernel.launch(2, 32, wrap(out), wrap(values), N, 2.0)
    assert (out.reshape(-1) == 2 * values).all()


def test_what_is_no_array():
    for value in (1, 2.0, True, b"1234", np.float32(1), np.int64(3), "text", None):
        assert kind_of(value) is None


def test_arrays_that_give_no_memory(libraries):
    with pytest.raises(LaunchError, match=r"^it holds Python objects \(object\)"):
        memory(np.array([None]))
    for other in (np.zeros(3, ">f4"), Interface(np.zeros(3, ">f4")), np.zeros(3, "f4,>i2")):
        with pytest.raises(LaunchError, match=r"^it has the bytes of its elements in another order than a GPU \(.*>"):
            memory(other)
    with pytest.raises(LaunchError, match="^it is on a device that is neither CPU nor CUDA"):
        memory(Packed(np.zeros(3), device=(8, 0)))
    locked = np.zeros(3)
    locked.flags.writeable = False
    with pytest.raises(LaunchError, match="^it, a Packed, does not give its memory: Cannot export readonly"):
        memory(Packed(locked))


def test_dlpack_is_told_the_stream():
    class Gpu(Packed):
        def __dlpack__(self, stream=None):
            self.stream = stream
            return super().__dlpack__()

    for stream, told in ((0, 1), (1, 1), (2, 2), (1 << 40, 1 << 40)):
        array = Gpu(np.zeros(3), device=(2, 0))
        memory(array, stream)
        assert array.stream == told


def test_torch(libraries):
    torch, _ = libraries
    array = np.zeros((4, 4), np.float32)
    kind = kind_of(torch.Tensor(array, 1))
    assert kind.read(torch.Tensor(array, 1), 0) == (array.ctypes.data, 64, 1, True)
    assert kind.stream(torch.Tensor(array, 1)) == 501 and kind.stream(torch.Tensor(array)) == 0
    assert kind_of(type("Parameter", (torch.Tensor,), {})(array)).stream is kind.stream
    out, values = np.zeros(N, np.float32), np.arange(N, dtype=np.float32)
    kernel = loader.load(turingas.assemble(ADD), "cpu").kernel("add")
    kernel.launch(2, 32, torch.Tensor(out), torch.Tensor(values), N, 2.0)
    assert (out == 2 * values).all()
    with pytest.raises(LaunchError, match=r"argument 0 \(out\) of add is on cuda:0, the kernel on the CPU device"):
        kernel.launch(2, 32, torch.Tensor(out, 0), torch.Tensor(values), N, 2.0)


def test_cupy(libraries):
    _, cupy = libraries
    array = cupy.ndarray(4096, 64, 2)
    kind = kind_of(array)
    assert kind.read(array, 0) == (4096, 64, 2, True) and kind.stream(array) == 600


def test_cuda_array_interface():
    class Array:
        def __init__(self, **changes):
            given = {"shape": (4, 4), "typestr": "<f4", "data": (4096, False), "version": 3, **changes}
            self.__cuda_array_interface__ = given

    assert memory(Array()) == (4096, 64, ASK, True)
    assert memory(Array(strides=(16, 4)))[3] and memory(Array(shape=(1, 16), strides=(999, 4)))[3]
    with pytest.raises(LaunchError, match="not contiguous"):
        memory(Array(strides=(4, 16)))
    assert kind_of(Array()).stream(Array(stream=7)) == 7 and kind_of(Array()).stream(Array()) == 0
    with pytest.raises(LaunchError, match="it is on a GPU, the kernel on the CPU device"):
        on_host(Array(), "it")
    with pytest.raises(LaunchError, match="^it, a Array, does not give its memory"):
        memory(Array(typestr="?!"))
    with pytest.raises(LaunchError, match="^it, a Array, has no memory"):
        memory(Array(data=(0, False)))
