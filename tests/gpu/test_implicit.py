"""Conv2d by HGMMA on a card: random layers in every precision and layout, the cases of the CPU device, and PyTorch's
streams and graphs.

    python -m tests.gpu.test_implicit    # small layers of all ways, for compute-sanitizer
"""

from __future__ import annotations

import re
import sys
from unittest.mock import patch

import numpy as np
import pytest

from kernels_sass.conv import Conv2d
from kernels_sass.conv.methods import hgmma
from kernels_sass.conv.methods.hgmma import PRECISIONS
from loader.cuda import Buffer
from loader.reference.problem import arrange, relative_error
from tests.gpu.sanitizer import TOOLS, watch
from tests.kernels_sass.implicit import BOUNDS, only, rounded, truth, wide
from tests.kernels_sass.test_implicit import CASES, PIXELS, ROWS, SHARED

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("gpu")]
ARCHS = ("sm_90",)


def there(x, weight, stride, padding, dilation):
    """truth(), by PyTorch on the card where it is installed: numpy takes minutes."""
    try:
        import torch
    except ImportError:
        return truth(x, weight, stride, padding, dilation)
    x, weight = (torch.from_numpy(one).cuda() for one in (x, weight))
    return torch.nn.functional.conv2d(x, weight, None, stride, padding, dilation).cpu().numpy()


def off(n, c, h, w, k, r, s, precision, layout="NHWC", stride=1, padding=0, dilation=1, more=True, **options):
    """The relative L2 error of a layer, with bias, residual and ReLU if ``more``."""
    random = np.random.default_rng(0)
    x, weight = (rounded(random.standard_normal(one, np.float32), precision) for one in ((n, c, h, w), (k, c, r, s)))
    pairs = [one if isinstance(one, tuple) else (one, one) for one in (stride, padding, dilation)]
    exact = there(wide(x), wide(weight), *pairs)
    bias = random.standard_normal(k).astype(np.float32) if more else None
    added = rounded(random.standard_normal(exact.shape, np.float32), precision)
    if more:
        exact = np.maximum(exact + bias[:, None, None] + wide(added), 0)
    options = {"stride": stride, "dilation": dilation, "precision": precision, **options}
    with Conv2d(weight, bias, padding, "relu" if more else None, layout, "cuda:0", **options) as layer:
        given = Buffer.of(arrange(x, "NCHW", layout), "cuda:0")
        y = Buffer.of(arrange(added, "NCHW", layout), "cuda:0")
        if not more:
            y.fill(0xFF)  # NaN; and initcheck, which does not see what tensor copies store, does not ask who wrote it
        layer(given, y if more else None, out=y)
        return relative_error(wide(arrange(y.numpy(), layout, "NCHW")), exact)


@pytest.mark.parametrize(("precision", "options", "sizes", "more"), CASES)
def test_cases_of_the_cpu_device(precision, options, sizes, more):
    assert off(*sizes, precision, **options, **more) < BOUNDS[precision]


@pytest.mark.parametrize("precision", PRECISIONS)
def test_layers_of_many_tiles(precision):
    """More tiles than multiprocessors, of every width, with and without tensor copies for y."""
    for way in PRECISIONS[precision].plain:
        for k in (2 * way.tile_n + 8, way.tile_n + 3):
            options = {"kernel": hgmma.NAME, "schedule": way.schedule()}
            assert off(8, 72, 60, 58, k, 3, 3, precision, padding=1, **options) < BOUNDS[precision], options


@pytest.mark.parametrize("precision", PRECISIONS)
def test_random_layers(precision):
    random = np.random.default_rng(3)
    for _ in range(40):
        n, c, h, w, k, r, s = (int(one) for one in random.integers(1, (20, 200, 40, 40, 300, 8, 8)))
        stride, padding = int(random.integers(1, 4)), int(random.integers(0, 4))
        layout = str(random.choice(["NCHW", "NHWC", "CHWN"]))
        sizes = n, c, h + r, w + s, k, r, s
        assert off(*sizes, precision, layout, stride, padding) < BOUNDS[precision], (sizes, layout, stride, padding)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_blocks_that_share_tiles(precision):
    """With a number of them, and with as many as are best; long sums, too."""
    for splits in (2, 4, 8, None):
        sizes = 2, 200, 13, 12, 136, 3, 3
        assert off(*sizes, precision, stride=2, padding=1, splits=splits) < BOUNDS[precision], splits
    assert off(1, 512, 7, 7, 512, 3, 3, precision, padding=1, kernel=hgmma.NAME) < BOUNDS[precision]


def test_tensors_streams_and_graphs():
    """PyTorch's, in channels_last, recorded in a graph that is replayed with another x."""
    torch = pytest.importorskip("torch")
    layer = torch.nn.Conv2d(64, 96, 3, stride=2, padding=1, device="cuda", dtype=torch.float16)
    ours = Conv2d(layer.weight.detach().contiguous(), layer.bias.detach(), 1, layout="NHWC", stride=2, precision="fp16")
    x = torch.randn(4, 30, 28, 64, device="cuda", dtype=torch.float16)
    with torch.no_grad():
        ours(x)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = ours(x)
        x.normal_()
        graph.replay()
        exact = torch.nn.functional.conv2d(x.permute(0, 3, 1, 2).double(), layer.weight.double(), layer.bias.double(),
                                           stride=2, padding=1).permute(0, 2, 3, 1)  # fmt: skip
    assert float((y.double() - exact).norm() / exact.norm()) < BOUNDS["fp16"]


def test_two_kernels_as_a_graph():
    """One call of the driver queues both, on several streams, with other x and y, and while all are recorded."""
    torch = pytest.importorskip("torch")
    random = np.random.default_rng(0)
    weight = random.standard_normal((64, 64, 3, 3), np.float32)
    xs = [torch.from_numpy(random.standard_normal((2, 64, 14, 14), np.float32)).cuda() for _ in range(5)]
    for splits in (1, 2):
        layer = Conv2d(weight, device="cuda:0", kernel="hgmma", splits=splits)
        wanted = [layer(x) for x in xs]
        exact = torch.nn.functional.conv2d(xs[4].double(), torch.from_numpy(weight).cuda().double(), padding=1)
        assert float((wanted[4] - exact).norm() / exact.norm()) < 1e-6
        recorded, graph = xs[0].clone(), torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = layer(recorded)
        streams = [torch.cuda.default_stream(), *(torch.cuda.Stream() for _ in range(3))]
        torch.cuda.synchronize()
        for turn in range(40):
            with torch.cuda.stream(streams[turn % 4]):
                found = [layer(x) for x in (*xs, *xs[:2])]
                again = layer(xs[1], out=found[6])  # as the call before
            torch.cuda.synchronize()
            assert all(map(torch.equal, found, (*wanted, *wanted[:2]))) and torch.equal(again, wanted[1])
            recorded.copy_(xs[turn % 5])
            graph.replay()
            torch.cuda.synchronize()
            assert torch.equal(out, wanted[turn % 5])
        (plan, *_) = layer._implicit.plans.values()
        assert plan.queues[True]


@pytest.mark.parametrize("kind", hgmma.WITH_WINDOWS)
@pytest.mark.parametrize("precision", ["tf32", "fp16", "bf16"])
def test_windows(monkeypatch, precision, kind):
    """Filters that stay in shared memory, and others: many tiles, paddings and sizes of all kinds."""
    only(monkeypatch, kind)
    random, most = np.random.default_rng(4), (90, 128) if kind == hgmma.KEPT else (300, 300)
    for case in range(12):
        sizes = random.integers((1, 1, 8, 8, 1, 1, 2), (40, most[0], 60, 60, most[1], 4, 4))
        n, c, h, w, k, r, s = map(int, sizes)
        sizes = n, -(-c // 8) * 8, h, w, -(-k // 8) * 8, r, s
        padding = int(random.integers(r)), int(random.integers(s))
        assert off(*sizes, precision, padding=padding, more=bool(case % 2)) < BOUNDS[precision], (sizes, padding)


@pytest.mark.parametrize("precision", ["tf32", "fp16", "bf16"])
def test_any_number_of_pixels(precision):
    """Of a tile, without windows and with windows of both kinds."""
    random = np.random.default_rng(5)
    for case in range(36):
        most, sort = (256, 256, 128)[case % 3], ({}, {"WINDOWS": 2}, {"WINDOWS": 2})[case % 3]
        sizes = random.integers((1, 40, 8, 8, 1, 1, 2), (30, 300, 50, 50, (300, 64, 300)[case % 3], 4, 4))
        n, c, h, w, k, r, s = map(int, sizes)
        sizes = n, -(-c // 8) * 8, h, w, -(-k // 8) * 8, r, s
        padding = int(random.integers(r)), int(random.integers(s))
        schedule = {"TILE_M": 8 * int(random.integers(8, most // 8 + 1)), **sort}
        if sort and case % 2 and c <= 64 and k <= 64:
            schedule |= {"TILE_M": min(schedule["TILE_M"], 128), "KEEP": 1}
        more = {"padding": padding, "more": bool(case % 4), "kernel": hgmma.NAME, "schedule": schedule}
        assert off(*sizes, precision, **more) < BOUNDS[precision], (sizes, more)


@pytest.mark.parametrize("kind", [None, hgmma.KEPT])
@pytest.mark.parametrize("precision", PRECISIONS)
def test_few_channels(monkeypatch, precision, kind):
    """Rows and columns of filters as channels, with windows wherever they can be, and as is chosen."""
    if kind:
        only(monkeypatch, kind)
    random = np.random.default_rng(6)
    for case in range(30):
        n, c, h, w, k, r, s = (int(one) for one in random.integers((1, 1, 1, 1, 1, 2, 2), (40, 6, 60, 60, 70, 12, 8)))
        stride, padding = int(random.integers(1, 5)), int(random.integers(0, 4))
        layout, k = ("NHWC", -(-k // 8) * 8) if case % 3 else ("NCHW", k)
        sizes, more = (n, c, h + r, w + s, k, r, s), {"stride": stride, "padding": padding, "more": bool(case % 2)}
        assert off(*sizes, precision, layout, **more) < BOUNDS[precision], (sizes, layout, more)


def small() -> None:
    """Layers of all ways: plain, blocks that share tiles, warp groups in turns, tiles of any number of pixels."""
    ways = [(precision, sizes, {**options, **more}) for precision, options, sizes, more in CASES]
    ways += [(precision, sizes, more) for precision, sizes, more, _ in (*SHARED, *ROWS)]
    for precision, _, tile_m, sizes, more in PIXELS:
        ways.append((precision, sizes, {**more, "schedule": {"TILE_M": tile_m, **more.get("schedule", {})}}))
    for more in ({"PINGPONG": 1}, {"WINDOWS": 2, "KEEP": 0}, {"WINDOWS": 2, "KEEP": 1}):
        schedule = {"kernel": hgmma.NAME, "schedule": {"TILE_N": 64, **more}, "padding": 1}
        ways += [(precision, (4, 64, 20, 18, 64, 3, 3), schedule) for precision in ("tf32", "fp16")]
    with patch.dict(sys.modules, torch=None):  # type: ignore[dict-item]  # its kernels are not to be watched
        for precision, sizes, options in ways:
            found = off(*sizes, precision, **options)
            print(f"{precision} {sizes} {options} {found:.1e}", flush=True)
            assert found < BOUNDS[precision]
    print(f"{len(ways)} layers")


@pytest.mark.parametrize("tool", TOOLS)
def test_sanitizer(tool):
    printed = watch(tool, "tests.gpu.test_implicit")
    assert re.search(r"^[1-9]\d* layers$", printed, re.M)  # it was these that it watched


if __name__ == "__main__":
    small()
