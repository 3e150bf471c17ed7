"""Conv2d by HGMMA on a GPU: a driver that is made of the CPU device."""

from __future__ import annotations

import gc
import json
import re
import weakref
from pathlib import Path

import numpy as np
import pytest

from kernels_sass.conv import Conv2d, conv2d, implicit_plan
from kernels_sass.conv.implicit_shape import Shape, microseconds
from kernels_sass.conv.methods import hgmma
from kernels_sass.conv.partial import SHORT
from loader.cuda import Buffer
from loader.cuda.kernel import CudaKernel
from loader.reference.problem import arrange, relative_error
from tests.kernels_sass.implicit import BOUNDS, only, rounded, truth, wide
from tests.loader.driver import Driver
from turingas.errors import LaunchError

ONE = np.ones((8, 8, 1, 1), np.float32)


@pytest.fixture
def gpu(install):
    return install(Driver(gpus=1, major=9, minor=0))


@pytest.mark.parametrize(("precision", "layout", "c"), [("fp16", "NCHW", 8), ("tf32", "NHWC", 4)])
def test_buffers(gpu, precision, layout, c):
    """With x packed and as it is; launches are kept by the addresses of their arrays."""
    random = np.random.default_rng(0)
    x, w = (rounded(random.standard_normal(one, np.float32), precision) for one in ((1, c, 5, 4), (8, c, 1, 1)))
    exact, there = truth(wide(x), wide(w), (1, 1), (0, 0), (1, 1)), Buffer.of(arrange(x, "NCHW", layout), "cuda:0")
    y = Buffer(arrange(exact, "NCHW", layout).shape, x.dtype, "cuda:0")
    with Conv2d(w, None, 0, None, layout, "cuda:0", precision=precision, schedule={"STAGES": 4}) as layer:
        for _ in range(2):
            assert layer(there, out=y) is y
        maps = gpu.calls["cuTensorMapEncodeIm2col"], gpu.calls["cuTensorMapEncodeTiled"]
        assert relative_error(wide(arrange(y.numpy(), layout, "NCHW")), exact) < BOUNDS[precision]
        found = layer(arrange(x, "NCHW", layout))  # copied there and back
        assert relative_error(wide(arrange(found, layout, "NCHW")), exact) < BOUNDS[precision]
    assert maps == (1, 1 if layout == "NCHW" else 2)
    names = ["pack_few", "hgmma"] if layout == "NCHW" else ["hgmma"]
    assert [name for name, *_ in gpu.launches] == 3 * names


@pytest.mark.parametrize("kind", hgmma.WITH_WINDOWS)
def test_buffers_and_windows(gpu, monkeypatch, kind):
    only(monkeypatch, kind)
    random = np.random.default_rng(0)
    x, w = (random.standard_normal(one).astype(np.float16) for one in ((1, 64, 9, 5), (8, 64, 2, 1)))
    there = Buffer.of(arrange(x, "NCHW", "NHWC"), "cuda:0")
    with Conv2d(w, None, 0, None, "NHWC", "cuda:0", precision="fp16") as layer:
        y = layer(there)
    exact = truth(wide(x), wide(w), (1, 1), (0, 0), (1, 1))
    assert relative_error(wide(arrange(y.numpy(), "NHWC", "NCHW")), exact) < BOUNDS["fp16"]
    assert [name for name, *_ in gpu.launches] == ["hgmma_window"]


def test_launches_are_made_ready_once(gpu, monkeypatch):
    """Whatever addresses come: only tensor maps are made of new ones, each once, and right for each array."""
    prepared, prepare = [], CudaKernel.prepare

    def noted(self, *args, **more):
        prepared.append(self.name)
        return prepare(self, *args, **more)

    monkeypatch.setattr(CudaKernel, "prepare", noted)
    random = np.random.default_rng(0)
    xs, more = (random.standard_normal((3, 1, 2, 3, 8), np.float32) for _ in range(2))
    w = random.standard_normal((8, 8, 1, 1), np.float32)
    there = [[Buffer.of(one, "cuda:0") for one in some] for some in (xs, more)]
    ys = [Buffer((1, 2, 3, 8), np.float32, "cuda:0") for _ in range(2)]
    with Conv2d(w, None, 0, None, "NHWC", "cuda:0") as layer:
        for turn in range(6):
            layer(there[0][turn % 3], there[1][turn % 3], out=ys[turn % 2])
            exact = np.einsum("nhwc,kc->nhwk", xs[turn % 3].astype("f8"), w[:, :, 0, 0]) + more[turn % 3]
            assert relative_error(ys[turn % 2].numpy(), exact) < 1e-6
    assert prepared == ["hgmma"]
    assert (gpu.calls["cuTensorMapEncodeIm2col"], gpu.calls["cuTensorMapEncodeTiled"]) == (3, 1 + 2)


def test_layers_share_the_memory_of_a_packed_x(gpu, libraries, monkeypatch):
    """A call queues its kernels at once, and what pack.sass makes lies in memory of the stream, whichever layer it is
    for: nothing but y is allocated. A stream that is recorded, and what is too large, has memory of its own."""
    layers = [Conv2d(np.full((8, 8, 1, 1), one, np.float32), padding=0, device="cuda:0", precision="tf32")
              for one in (1, 2)]  # fmt: skip
    x = libraries.torch(Buffer.of(np.ones((1, 8, 2, 3), np.float32), "cuda:0"))
    gpu.streams |= {77, 78}
    places = {}

    def queue(layer, factor, allocated=1):
        gpu.calls.clear()
        y = layer(x)
        one_by_one, at_once = gpu.calls["cuLaunchKernelEx"], gpu.calls["cuGraphLaunch"]
        assert gpu.calls["cuMemAlloc"] == allocated and (one_by_one, at_once) == ((2, 0) if allocated > 1 else (0, 1))
        if libraries.stream not in gpu.captured:
            assert (y.inner.numpy() == 8 * factor).all()

    for stream in (0, 77):
        libraries.stream = stream
        for layer in layers * 2:  # with its plan, the filters, memory of the stream, a graph of both kernels
            layer(x)
        for factor, layer in enumerate(layers, 1):
            queue(layer, factor)
        places[stream] = {address for layer in layers for plan in layer._implicit.plans.values()
                          for known in plan.queues for address in known}  # fmt: skip
    assert len(places[0]) == 1 and len(places[77]) == 2
    gpu.captured[77] = []
    queue(layers[0], 1, allocated=2)
    del gpu.captured[77]
    monkeypatch.setattr(implicit_plan, "PIECE", 1)
    layers.append(Conv2d(np.ones((8, 8, 1, 1), np.float32), padding=0, device="cuda:0", precision="tf32"))
    layers[2](x)
    queue(layers[2], 1, allocated=2)
    for layer in layers:
        layer.close()
        with pytest.raises(LaunchError, match="^the layer is closed$"):
            layer(x)


def test_which_layers_are_a_graph(gpu, libraries, monkeypatch):
    """Those of two kernels that take the GPU less time than the host; by HGMMA and by Winograd."""
    x = libraries.torch(Buffer.of(np.ones((1, 16, 4, 4), np.float32), "cuda:0"))

    def graphs(**options):
        layer = Conv2d(np.ones((8, 16, 3, 3), np.float32), device="cuda:0", **options)
        gpu.calls.clear()
        for _ in range(4):
            y = layer(x)
        assert y.inner.numpy()[0, 0, 1, 1] == 16 * 9
        return gpu.calls["cuGraphLaunch"]

    every = {"kernel": "hgmma"}, {"kernel": "hopper", "splits": 2}
    assert [graphs(**one) for one in every] == [2, 2]
    for module in (implicit_plan, conv2d):
        monkeypatch.setattr(module, "SHORT", 0)
    assert [graphs(**one) for one in every] == [0, 0]


def test_what_a_graph_of_layers_takes():
    """On a card: the host less than half of the time with what counts as short, and with what does not the GPU at least
    as long, but for 2 % by which runs differ."""
    found = json.loads(Path(__file__).parents[1].joinpath("bench/launch_sm90.json").read_text())["larger layers"]
    names = {name.rpartition(": ")[0] for name in found}
    kinds = set()
    for name in names:
        n, channels, size = map(int, re.findall(r"\d+", name)[:3])
        shape = Shape(n, channels, size, size, channels, 3, 3, padding=(1, 1), layout="NCHW")
        short = microseconds(shape, {1: 132, 2: 66, 4: 33, 8: 16}) < SHORT
        graph, alone = (found[f"{name}: {how}"] for how in ("a graph", "one by one"))
        assert (graph[0] < alone[0] / 2 and graph[1] < 1.05 * alone[1]) if short else alone[1] < 1.02 * graph[1], name
        kinds.add(short)
    assert kinds == {True, False}


def test_a_layer_that_goes(gpu, libraries):
    """It gives its memory back at once, closed or not: nothing of it goes round in circles."""
    layer = Conv2d(np.ones((8, 8, 1, 1), np.float32), padding=0, device="cuda:0", precision="tf32")
    layer(libraries.torch(Buffer.of(np.ones((1, 8, 2, 3), np.float32), "cuda:0")))
    kept = weakref.ref(layer._implicit), *map(weakref.ref, layer._implicit.plans.values())
    assert len(kept) == 2
    gc.disable()
    try:
        del layer
        assert not any(one() for one in kept)
    finally:
        gc.enable()


def test_weights_on_a_gpu(gpu):
    w, bias = Buffer.of(ONE, "cuda:0"), Buffer.of(np.arange(8, dtype=np.float32), "cuda:0")
    layer = Conv2d(w, bias, 0, layout="NHWC", precision="tf32")
    assert layer.device == "cuda:0"
    assert (layer(np.ones((1, 1, 2, 8), np.float32)) == 8 + np.arange(8)).all()


def test_clusters_that_a_gpu_runs(gpu):
    """Three multiprocessors, as the driver of the tests says."""
    assert implicit_plan.room("cuda:0") == {1: 3, 2: 1, 4: 0, 8: 0}
    x = np.ones((1, 8, 2, 2), np.float32)
    with Conv2d(np.ones((8, 8, 2, 2), np.float32), padding=1, device="cuda:0", splits=2) as layer:
        y = layer(x)
    assert y[0, 0].tolist() == [[8, 16, 8], [16, 32, 16], [8, 16, 8]]
    with (
        Conv2d(np.ones((8, 8, 2, 2), np.float32), padding=1, device="cuda:0", splits=4) as layer,
        pytest.raises(LaunchError, match="splits=4: cuda:0 runs no cluster of 4 such blocks"),
    ):
        layer(x)


def test_a_gpu_without_such_instructions(install):
    install(Driver(gpus=1, major=8, minor=0))
    with pytest.raises(LaunchError, match=r"is sm_80, and this layer takes the kernel 'hgmma', which is for sm_90a"):
        Conv2d(ONE, padding=0, device="cuda:0")
