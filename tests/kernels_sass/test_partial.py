"""Memory for partial results, which the layers on a GPU share: whose it is, and when it is not."""

from __future__ import annotations

import gc
import sys
import threading

import numpy as np
import pytest

from kernels_sass.conv import Conv2d, partial
from kernels_sass.conv.partial import OF_EACH_THREAD, Partial
from loader import cuda
from loader.cuda import Buffer
from tests.kernels_sass.cases import Case, error
from tests.loader.driver import Driver
from turingas.errors import LaunchError

CASE = Case(2, 32, 3, 3, 5)


@pytest.fixture
def ran(driver, monkeypatch):
    """Launches, which are noted and not run, each with its thread. Calling it: where the partial results of the last
    call lie, as both kernels were told. Memory of a stream is 32 KiB here."""
    monkeypatch.setattr(partial, "PIECE", 1 << 13)
    monkeypatch.setattr("kernels_sass.conv.conv2d.PIECE", 1 << 13)

    class Ran(list):
        def __call__(self):
            (main, _), (add, _) = self[-2:]
            assert not main[1].startswith("add_splits") and add[1].startswith("add_splits")
            address, other = (int.from_bytes(one, "little") for one in (main[4][2], add[4][0]))
            assert address == other
            return address

    ran = Ran()
    driver.run = lambda launch: ran.append((launch, threading.get_ident()))
    return ran


def test_layers_share_it_by_stream(driver, libraries, ran):
    one, two = (CASE.conv(splits=splits) for splits in (2, 4))
    x = libraries.torch(Buffer.of(CASE.x))
    found = {}
    for stream in (0, 77, 78, 0, 77):
        driver.streams.add(stream)
        libraries.stream = stream
        for layer in (one, two):
            layer(x)
            assert found.setdefault(stream, ran()) == ran()
    assert len(set(found.values())) == 3
    one(Buffer.of(CASE.x))
    assert ran() == found[0]  # Buffers: the default stream
    libraries.stream = 0
    one(libraries.torch(Buffer.of(CASE.x, "cuda:1")))
    assert ran() not in found.values()
    del driver.run
    assert error(CASE.conv(splits=2)(Buffer.of(CASE.x)).numpy(), CASE.y()) < 1e-6


@pytest.mark.parametrize("library", ["torch", "cupy"])
def test_a_stream_that_is_recorded_has_its_own(driver, libraries, ran, library):
    """What a graph was recorded with is nobody else's; and a number that means a stream of each thread is none."""
    layer, x = CASE.conv(splits=2), getattr(libraries, library)(Buffer.of(CASE.x))
    driver.streams |= {77, OF_EACH_THREAD}
    libraries.stream = 77
    layer(x)
    kept, made = ran(), driver.calls["cuMemAlloc"]
    layer(x)
    assert ran() == kept and driver.calls["cuMemAlloc"] == made + 1  # y alone
    driver.captured[77] = []
    driver.thread.stack = [1001]  # another GPU's context
    layer(x)
    driver.thread.stack = [0]
    assert driver.captured.pop(77) and driver.calls["cuMemAlloc"] == made + 3
    layer(x)
    assert ran() == kept
    libraries.stream = OF_EACH_THREAD
    layer(x)
    assert ran() != kept and driver.calls["cuMemAlloc"] == made + 6


def test_what_is_too_much(driver, libraries, ran, monkeypatch):
    """More than a piece, more streams than there are pieces, no memory left: x's library allocates, as a Buffer's layer
    does."""
    monkeypatch.setattr(partial, "MOST", 1)
    layer, x = CASE.conv(splits=2), libraries.torch(Buffer.of(CASE.x))
    driver.streams |= {77, 78}
    layer(x)
    kept = ran()
    libraries.stream = 78
    layer(x)
    assert ran() != kept
    libraries.stream = 77
    large = Case(64, 16, 4, 4, 3)
    wide = large.conv(splits=2)
    for x in (libraries.torch(Buffer.of(large.x)), Buffer.of(large.x)):
        wide(x)
        assert ran() != kept
    kept = wide._places[0].kept.pieces
    assert kept[False].nbytes == 4 * wide._plans[0, large.x.shape].floats > 4 * partial.PIECE


@pytest.mark.parametrize("make", [
    lambda: Conv2d(np.ones((8, 16, 3, 3), np.float32), splits=2, device="cuda:0"),
    lambda: Conv2d(np.ones((8, 16, 1, 1), np.float32), None, 0, device="cuda:0", layout="NCHW", precision="tf32"),
])  # fmt: skip
def test_buffers_that_are_recorded(install, make):
    """Memory for them is allocated while a graph is recorded, and is the graph's until the layer is closed."""
    there = install(Driver(gpus=1, major=9, minor=0))
    allocate, free, freed, got = there.do_cuMemAlloc, there.do_cuMemFree, [], []
    relaxed = there.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED

    def refused(size):
        if there.captured and getattr(there.thread, "mode", None) != relaxed:
            return type(there).CUresult.CUDA_ERROR_INVALID_VALUE
        got.append(allocate(size))
        return got[-1]

    there.do_cuMemAlloc = refused
    there.do_cuMemFree = lambda address: (freed.append(address), free(address))[1]
    layer, there.streams = make(), {77}
    small, large = (Buffer.of(np.ones((count, 16, 5, 8), np.float32), "cuda:0") for count in (1, 3))
    outs = [layer(x) for x in (small, large)]
    recorded = []
    for x, y in zip((small, large, small), (*outs, outs[0])):
        there.captured[77] = []
        got.clear()
        layer.queue(x, y, 77)
        recorded += got
        del there.captured[77]
        layer.queue(x, y, 77)
    assert len(recorded) == 2 and not set(recorded) & set(freed)  # the larger one serves the smaller as well
    layer.close()
    assert set(recorded) <= set(freed)


def test_no_memory_for_it(driver, libraries, ran, monkeypatch):
    layer, x = CASE.conv(splits=2, device="cuda:0"), libraries.torch(Buffer.of(CASE.x))
    modes, allocate = [], driver.do_cuMemAlloc
    driver.streams.add(77)

    def refused(size):
        modes.append(getattr(driver.thread, "mode", None))
        return allocate(size) if size != 4 * partial.PIECE else type(driver).CUresult.CUDA_ERROR_OUT_OF_MEMORY

    refused.__annotations__["return"] = "int"
    monkeypatch.setattr(driver, "do_cuMemAlloc", refused, raising=False)
    layer(x)
    assert ran() not in Partial.of(cuda.device(0))._pieces.values()
    relaxed = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    assert modes.count(relaxed) == 1 and driver.thread.mode == 0  # what another thread records is not broken off


def test_it_goes_with_the_last_layer(driver, libraries, ran):
    one, two = CASE.conv(splits=2), CASE.conv(splits=2)
    x = Buffer.of(CASE.x)
    one(x), two(x)
    gc.collect()
    shared = Partial.of(cuda.device(0))
    (piece,) = shared._buffers
    del shared
    one.close()
    with pytest.raises(LaunchError, match="^the layer is closed$"):
        one(x)
    two(x)
    assert not piece.freed and ran() == piece.address
    address, freed = piece.address, driver.calls["cuMemFree"]
    del piece
    two.close()
    gc.collect()
    assert driver.calls["cuMemFree"] == freed + 2 and address not in driver.devices[0].memory._bases  # and the filters


def test_threads_on_one_stream(driver, ran):
    """The kernels of a call stay together, of whichever layer it is."""
    layers, x = [CASE.conv(splits=splits) for splits in (2, 2, 4, 4)], Buffer.of(CASE.x)
    out = [Buffer(CASE.residual.shape) for _ in layers]
    for layer in layers:
        layer(x)
    ran.clear()
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)

    together = threading.Barrier(len(layers))

    def work(layer, y):
        together.wait()
        for _ in range(50):
            layer(x, out=y)

    threads = [threading.Thread(target=work, args=both) for both in zip(layers, out)]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert len(ran) == 400 and len({thread for _, thread in ran}) == 4
    for (main, one), (add, other) in zip(ran[::2], ran[1::2]):
        assert one == other and not main[1].startswith("add_splits") and add[1].startswith("add_splits")
