"""Memory, arrays of other libraries and streams of a GPU: over a driver on the CPU device."""

from __future__ import annotations

import types

import numpy as np
import pytest

import loader
from loader import arrays as arrays_of
from loader.cuda import Buffer, CudaError, Stream
from tests.loader.conftest import N, arrays
from turingas.errors import LaunchError

VARIABLE = '__device__ int table[3] = {5, 6, 7};\nextern "C" __global__ void k() { table[1] += 1; }\n'


def test_variables(driver):
    from tests.tools import nvrtc

    if nvrtc.library_path() is None:
        pytest.skip("NVRTC is not installed")
    with loader.load(nvrtc.compile_source(VARIABLE, "sm_75")) as module:
        module.kernel("k").launch(1, 1)
        name = next(name for name in driver.handles[module._handle].globals if "table" in name)
        variable = module.variable(name)
        assert (variable.numpy().view(np.int32) == [5, 7, 7]).all()
        with pytest.raises(LaunchError, match="no variable 'x'"):
            module.variable("x")
    with pytest.raises(LaunchError, match="given back"):
        variable.numpy()


# ---- buffers -----------------------------------------------------------------------------------------------------


def test_buffers(driver):
    array = np.arange(12, dtype=np.int16).reshape(3, 4)
    with Buffer.of(array) as buffer:
        assert (buffer.shape, buffer.dtype, buffer.nbytes) == ((3, 4), np.int16, 24)
        interface = buffer.__cuda_array_interface__
        assert interface["data"] == (buffer.address, False) and interface["shape"] == (3, 4)
        assert np.dtype(interface["typestr"]) == np.int16
        buffer.copy_from(array.T.copy().T + 1)  # any strides
        assert not driver.copying and "cuMemcpyHtoD" not in driver.calls  # which may return before the GPU has it
        into = np.zeros((3, 4), np.int16)
        buffer.copy_to(into)
        assert (into == array + 1).all()
        with Stream() as stream:
            assert (buffer.copy_from(array, stream).numpy(stream=stream) == array).all()
        with Buffer.of(array + 5) as other, Buffer.of(array[:2]) as smaller:
            assert (buffer.copy_from(other).numpy() == array + 5).all() and (other.numpy() == array + 5).all()
            with pytest.raises(LaunchError, match="of another shape"):
                buffer.copy_from(smaller)
        with pytest.raises(LaunchError, match="given back"):
            buffer.copy_from(other)
        buffer.copy_from(array)
        for wrong in (array[:2], array.astype(np.int32), array.T):
            with pytest.raises(LaunchError, match=r"the array is .*, the buffer int16\[3, 4\]"):
                buffer.copy_from(wrong)
        with pytest.raises(LaunchError, match="read-only or not contiguous"):
            buffer.copy_to(np.zeros((4, 3), np.int16).T)
    assert Buffer.of(np.zeros((0, 3))).numpy().shape == (0, 3)
    with pytest.raises(LaunchError, match="no buffer of shape"):
        Buffer(-1)
    with pytest.raises(LaunchError, match="no buffer of shape .* and type >f4"):
        Buffer.of(np.zeros(3, ">f4"))


def test_what_is_printed(driver):
    """And numpy makes no array of one object of a buffer."""
    buffer, stream = Buffer((4, 3), np.int16, "cuda:1"), Stream()
    assert repr(buffer) == "<Buffer int16[4, 3] on cuda:1>" and repr(buffer.gpu) == "<Device cuda:1: Fake 1, sm_75>"
    buffer.free()
    assert repr(buffer) == "<Buffer int16[4, 3] on cuda:1, freed>"
    assert repr(stream) == f"<Stream {stream.handle:#x} on cuda:0>"
    stream.close()
    assert repr(stream).endswith(", closed>")
    for use in (np.asarray, np.sum, lambda one: one + np.ones(3)):
        with pytest.raises(TypeError, match=r"a Buffer lies on a GPU: \.numpy\(\) gives a copy"):
            use(Buffer(3))


def test_out_of_memory(driver):
    driver.fails["cuMemAlloc"] = 2
    with pytest.raises(CudaError, match="CUDA_ERROR_OUT_OF_MEMORY"):
        Buffer(1 << 20)


# ---- streams, graphs, time ---------------------------------------------------------------------------------------


class Foreign:
    """An array with __cuda_array_interface__ that names a stream."""

    def __init__(self, buffer, stream, **changes):
        self.interface = {**buffer.__cuda_array_interface__, "stream": stream, **changes}

    @property
    def __cuda_array_interface__(self):
        return self.interface


def test_streams(driver, cubin):
    kernel = loader.load(cubin).kernel("add")
    out, values = arrays()
    with Stream() as one, Stream() as two:
        kernel.launch(2, 32, out, values, N, 1.0)
        kernel.launch(2, 32, out, Foreign(values, one.handle), N, 1.0)
        kernel.launch(2, 32, out, Foreign(values, one.handle), N, 1.0, stream=two)
        kernel.launch(2, 32, out, values, N, 1.0, stream=two.handle)
        kernel.launch(2, 32, out, values, N, 1.0, stream=types.SimpleNamespace(cuda_stream=77))
        kernel.launch(2, 32, out, values, N, 1.0, stream=types.SimpleNamespace(ptr=78))
        assert [launch[3] for launch in driver.launches] == [0, one.handle, two.handle, two.handle, 77, 78]
    assert not driver.streams


def test_foreign_arrays(driver, cubin):
    kernel = loader.load(cubin).kernel("add")
    out, values = arrays()
    kernel.launch(2, 32, Foreign(out, None, shape=(8, 8), strides=(32, 4)), Foreign(values, None), N, 4.0)
    assert (out.numpy() == 4 * np.arange(N)).all()
    for changes, message in (
        ({"strides": (8,), "shape": (32,)}, "is not contiguous"),
        ({"shape": (0,)}, "is an array without elements"),
        ({"data": (123, False)}, "is a Foreign in the host's memory"),
        ({"mask": out}, "has a mask"),
    ):
        with pytest.raises(LaunchError, match=rf"argument 1 \(in\) of add,? {message}"):
            kernel.launch(2, 32, out, Foreign(values, None, **changes), N, 4.0)


def test_an_array_that_gives_nothing(driver, cubin, monkeypatch):
    """As PyTorch's tensors without memory, which say so by a RuntimeError; an error of the driver stays one."""
    class Odd:
        def address(self):
            raise RuntimeError("there is none")

    reads = arrays_of.Kind(lambda odd, stream: odd.address(), quick="{array}.address()")
    monkeypatch.setitem(arrays_of.KINDS, Odd, reads)
    out, values = arrays()
    kernel = loader.load(cubin).kernel("add")
    with pytest.raises(LaunchError, match=r"argument 1 \(in\) of add, a Odd, does not give its memory: there is none"):
        kernel.launch(2, 32, out, Odd(), N, 2.0)
    driver.fails["cuLaunchKernelEx"] = 1
    with pytest.raises(CudaError, match="INVALID_VALUE"):
        kernel.launch(2, 32, out, values, N, 2.0)
