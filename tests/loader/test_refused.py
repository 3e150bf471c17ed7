"""Odd uses of the loader: what is not what it seems is refused, and said so."""

from __future__ import annotations

import copy
import os
import pickle

import numpy as np
import pytest

import loader
import turingas
from loader.cuda import Buffer, CudaError, Graph, Stream
from tests.emulate.test_device import ADD
from tests.loader.conftest import N, arrays
from tests.loader.driver import ERRORS
from turingas.errors import LaunchError


@pytest.fixture
def kernel(driver):
    return loader.load(turingas.assemble(ADD), "cuda:0").kernel("add")


@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
def test_what_stays(driver, device):
    """A copy of it, or one in another process, would use memory that is not its own."""
    module = loader.load(turingas.assemble(ADD), device)
    array = np.zeros((8, 8), np.float32)
    those = [module, module.kernel("add"), loader.texture(array, device="cpu")]
    if device != "cpu":
        there = Buffer.of(array)
        those += [there, Stream(), Graph(lambda stream: None), module.gpu, loader.tensor_map(there, (8, 8))]
    else:
        those.append(loader.tensor_map(array, (8, 8)))
    for one in those:
        for use in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(TypeError, match=f"a {type(one).__name__} can be neither copied nor pickled: .+"):
                use(one)


@pytest.mark.parametrize("stream, message", [
    (1.5, "stream is a float"), ("5", "stream is a str"), (b"5", "stream is a bytes"), (None.__class__, "is a type"),
    (np.float32(1), "stream is a float32"), (-1, "stream is -1"), (1 << 64, "stream is 18446744073709551616"),
])  # fmt: skip
def test_what_is_no_stream(driver, kernel, stream, message):
    out, values = arrays()
    kernel.launch(2, 32, out, values, N, 2.0)
    for use in (lambda: kernel.launch(2, 32, out, values, N, 3.0, stream=stream), lambda: out.fill(0, stream)):
        with pytest.raises(LaunchError, match=message):
            use()
    assert (out.numpy() == 2 * np.arange(N)).all()
    kernel.launch(2, 32, out, values, N, 3.0, stream=np.int64(0))
    assert (out.numpy() == 3 * np.arange(N)).all() and driver.launches[-1][3] == 0


def test_a_closed_stream(driver, kernel):
    """Its number may be another's by now."""
    out, values = arrays()
    stream = Stream()
    stream.close()
    driver.calls.clear()
    for use in (lambda: kernel.launch(2, 32, out, values, N, 2.0, stream=stream), stream.synchronize,
                lambda: out.fill(0, stream), lambda: Graph(lambda one: None).launch(stream)):  # fmt: skip
        with pytest.raises(LaunchError, match="the stream is closed"):
            use()
    assert not driver.calls["cuLaunchKernelEx"] and not driver.calls["cuStreamSynchronize"]


@pytest.mark.parametrize("shape", [1 << 62, (1 << 40, 1 << 40), (1 << 32, 1 << 32)])
def test_more_bytes_than_there_are(driver, shape):
    """Not as many as are left of the number in 64 bits."""
    with pytest.raises(LaunchError, match=r"a buffer of shape .* and type float32 has [\d,]+ bytes"):
        Buffer(shape)
    assert not driver.calls["cuMemAlloc"]


def test_what_is_no_byte(driver):
    for byte in (-1, 256):
        with pytest.raises(LaunchError, match="a byte is 0 to 255"):
            Buffer(4).fill(byte)


@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
def test_options_that_there_are_not(driver, device):
    kernel = loader.load(turingas.assemble(ADD), device).kernel("add")
    with pytest.raises(TypeError, match="has no option 'strem'; did you mean 'stream'?"):
        kernel.launch(2, 32, 0, 0, N, 2.0, strem=3)


@pytest.mark.parametrize("function", ["cuCtxGetCurrent", "cuLaunchKernelEx"])
def test_a_process_that_was_forked(driver, kernel, monkeypatch, function):
    """The driver's functions fail there, each of them, and a hint says why."""
    out, values = arrays()
    kernel.launch(2, 32, out, values, N, 2.0)
    driver.fails[function] = ERRORS.CUDA_ERROR_NOT_INITIALIZED
    with pytest.raises(CudaError, match=r"CUDA_ERROR_NOT_INITIALIZED \(3\): what 3 means \(\w+ on cuda:0\)$"):
        kernel.launch(2, 32, out, values, N, 2.0)
    process = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: process + 1)
    with pytest.raises(CudaError, match=r"NOT_INITIALIZED .*\nhint: this process was forked .*spawn"):
        kernel.launch(2, 32, out, values, N, 2.0)
    driver.fails.clear()


def test_arrays_with_a_mask():
    kernel = loader.load(turingas.assemble(ADD), "cpu").kernel("add")
    out, values = np.zeros(N, np.float32), np.ma.masked_less(np.arange(N, dtype=np.float32), 3)
    with pytest.raises(LaunchError, match=r"argument 1 \(in\) of add has a mask\nhint: pass x.filled"):
        kernel.launch(2, 32, out, values, N, 2.0)
    kernel.launch(2, 32, out, values.filled(0), N, 2.0)
    assert out[2] == 0 and out[3] == 6


def test_boxes_that_are_none():
    for more in ({"box": 8}, {"box": ("8", 8)}, {"box": (8, 8), "steps": 1.5}):
        with pytest.raises(LaunchError, match=r"(box|steps) is .*whole numbers, one for each dimension"):
            loader.tensor_map(np.zeros((8, 8), np.float32), **more)
