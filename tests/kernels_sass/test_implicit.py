"""Conv2d by HGMMA on the CPU device: right against float64 whatever sizes, strides, layouts and precisions, without a
hazard or a race; and what is refused. test_implicit_plan.py has which tiles are chosen, test_implicit_source.py the
kernels' words, test_implicit_gpu.py what is asked of a GPU's driver."""

from __future__ import annotations

import numpy as np
import pytest

import loader
from kernels_sass.conv import Conv2d, implicit_plan
from kernels_sass.conv.methods import hgmma
from kernels_sass.conv.methods.hgmma import PRECISIONS
from loader.cpu import CpuKernel
from tests.kernels_sass.implicit import BOUNDS, off, only
from turingas.errors import LaunchError

CASES = [
    ("fp32", {}, (2, 32, 7, 9, 40, 3, 3), {"stride": 2, "padding": 1}),
    ("tf32", {}, (1, 68, 6, 5, 8, 1, 1), {"more": False}),
    ("fp16", {}, (2, 3, 13, 15, 16, 7, 7), {"stride": 2, "padding": 3}),  # columns of filters are channels
    ("bf16", {"layout": "NCHW"}, (2, 5, 6, 7, 3, 5, 5), {"padding": 2}),
    ("fp32", {"layout": "NCHW"}, (1, 3, 9, 4, 1, 2, 3), {"stride": (2, 1), "padding": (0, 1)}),
    ("fp16", {"layout": "CHWN"}, (3, 9, 9, 8, 6, 3, 2), {"dilation": (2, 3), "padding": (3, 0), "stride": 3}),
    ("tf32", {}, (1, 4, 1, 1, 1, 1, 1), {"stride": 8}),
    ("fp32", {}, (1, 3, 9, 8, 8, 3, 4), {"stride": 4, "padding": (0, 1)}),  # zeros in front, and no more columns
]


@pytest.mark.parametrize(("precision", "options", "sizes", "more"), CASES)
def test_layers(precision, options, sizes, more):
    assert off(*sizes, precision, **options, **more) < BOUNDS[precision]


@pytest.fixture
def watched(monkeypatch):
    """Every launch is strict and looks for races, with few blocks, so that each does several tiles."""
    found, launch = [], CpuKernel.launch

    def strict(self, *args, **options):
        report = launch(self, *args, **options, strict=True, races=True)
        found.append((self.name, [str(one) for one in report.hazards + report.races]))
        return report

    monkeypatch.setattr(CpuKernel, "launch", strict)
    monkeypatch.setattr(implicit_plan, "sms", lambda device: 1)
    return found


WATCHED = [
    ("fp32", (1, 33, 12, 11, 8, 2, 1), {"layout": "NCHW"}, ["pack", "hgmma"]),
    ("fp16", (1, 72, 12, 11, 72, 1, 1), {"schedule": {"STAGES": 4}}, ["hgmma"]),
]


@pytest.mark.parametrize(("precision", "sizes", "more", "kernels"), WATCHED)
def test_no_hazard_and_no_race(watched, precision, sizes, more, kernels):
    assert off(*sizes, precision, **more) < BOUNDS[precision]
    assert watched == [(name, []) for name in kernels], watched


SHARED = [
    ("fp32", (1, 33, 12, 11, 8, 2, 1), {"splits": 2}, ["pack", "hgmma"]),
    ("fp32", (1, 40, 9, 9, 136, 3, 3), {"splits": 8, "padding": 1, "kernel": "hgmma", "layout": "NCHW"},
     ["pack", "hgmma"]),
    ("tf32", (1, 36, 5, 6, 72, 3, 2), {"splits": 4, "dilation": 2, "padding": 2, "stride": 2}, ["hgmma"]),
    ("fp16", (1, 136, 6, 5, 72, 1, 2), {"splits": 2}, ["hgmma"]),
    ("bf16", (1, 3, 9, 9, 8, 7, 7), {"splits": 4, "padding": 3, "more": False}, ["pack_few", "hgmma"]),
]


@pytest.mark.parametrize(("precision", "sizes", "more", "kernels"), SHARED)
def test_blocks_that_share_tiles(watched, precision, sizes, more, kernels):
    """Several tiles in a block, stages that do not divide evenly; with bias, residual and ReLU."""
    assert off(*sizes, precision, **more) < BOUNDS[precision]
    assert watched == [(name, []) for name in kernels], watched


IN_TURNS = [
    ("fp16", (2, 40, 12, 13, 72, 1, 1), {}, ["hgmma"]),  # three tiles, two of them one group's
    ("tf32", (1, 36, 21, 19, 60, 2, 2), {"schedule": {"STAGES": 3, "TILE_N": 64}}, ["hgmma"]),
    ("bf16", (1, 24, 16, 25, 136, 3, 1), {"layout": "NCHW", "stride": 2}, ["pack", "hgmma"]),
    ("fp16", (1, 8, 9, 9, 8, 1, 1), {"more": False}, ["hgmma"]),  # one tile: a group has none
    ("fp16", (1, 72, 22, 20, 72, 1, 2), {"splits": 2}, ["hgmma"]),  # and then tiles that blocks share
    ("tf32", (3, 36, 11, 12, 72, 3, 2), {"splits": 2, "layout": "NCHW"}, ["pack", "hgmma"]),
    ("bf16", (1, 136, 9, 9, 8, 1, 1), {"splits": 2}, ["hgmma"]),  # these alone
]


@pytest.mark.parametrize(("precision", "sizes", "more", "kernels"), IN_TURNS)
def test_warp_groups_in_turns(watched, precision, sizes, more, kernels):
    """Odd and even counts of tiles, stages that a tile does not divide; behind them tiles of clusters, or none."""
    more = {**more, "schedule": {"PINGPONG": 1, "TILE_N": 128, "STAGES": 5, **more.get("schedule", {})}}
    assert off(*sizes, precision, **more) < BOUNDS[precision]
    assert watched == [(name, []) for name in kernels], watched


VALUES = [  # that none of the others has; several rows and columns of tiles
    ("fp16", (2, 72, 12, 11, 200, 1, 2), {"TILE_N": 192, "STAGES": 3, "GROUP": 2}),
    ("bf16", (1, 40, 13, 14, 264, 1, 1), {"TILE_N": 256, "STAGES": 2, "BUFFERS": 2, "GROUP": 4}),
    ("tf32", (2, 36, 12, 13, 200, 1, 1), {"TILE_N": 192, "STAGES": 4, "BUFFERS": 2, "GROUP": 32}),
    ("fp32", (2, 40, 13, 12, 136, 2, 1), {"TILE_N": 128, "STAGES": 5, "BUFFERS": 2, "GROUP": 8}),
    ("fp16", (3, 40, 12, 12, 72, 1, 1), {"TILE_N": 64, "STAGES": 7, "GROUP": 16, "PINGPONG": 1}),
]


@pytest.mark.parametrize(("precision", "sizes", "schedule"), VALUES)
def test_any_schedule(watched, precision, sizes, schedule):
    """What is not asked for stays as it is estimated to be best, if it can."""
    assert off(*sizes, precision, schedule=schedule) < BOUNDS[precision]
    assert watched == [("hgmma", [])], watched


WINDOWED = [
    ("fp16", hgmma.KEPT, (2, 64, 9, 10, 64, 3, 3), {"padding": 1}),
    ("tf32", hgmma.KEPT, (1, 40, 12, 17, 60, 2, 3), {"padding": (1, 0)}),  # filters that a tile does not fill
    ("bf16", hgmma.KEPT, (1, 40, 14, 13, 120, 3, 2), {"padding": (0, 1)}),
    ("fp16", hgmma.WINDOWS, (2, 72, 9, 10, 64, 3, 3), {"padding": 1}),
    ("tf32", hgmma.WINDOWS, (1, 72, 12, 17, 60, 2, 3), {"padding": (1, 0)}),  # an odd number of windows
    ("bf16", hgmma.WINDOWS, (1, 40, 14, 13, 200, 3, 2), {"padding": (0, 1)}),  # several columns of tiles
    ("tf32", hgmma.WINDOWS, (1, 68, 15, 15, 8, 1, 2), {"padding": (0, 1), "more": False}),
]


@pytest.mark.parametrize(("precision", "kind", "sizes", "more"), WINDOWED)
def test_windows(watched, monkeypatch, precision, kind, sizes, more):
    """One for all places of a filter, which stays, or does not."""
    only(monkeypatch, kind)
    assert off(*sizes, precision, **more) < BOUNDS[precision]
    assert watched == [("hgmma_window", [])], watched


ROWS = [
    ("fp16", (2, 3, 13, 15, 16, 7, 7), {"stride": 2, "padding": 3}, "hgmma_window"),
    ("bf16", (1, 3, 24, 19, 8, 11, 11), {"stride": 4, "padding": 2}, "hgmma_window"),
    ("tf32", (2, 3, 16, 9, 60, 7, 7), {"stride": 2, "padding": 3}, "hgmma_window"),
    ("fp16", (2, 2, 8, 9, 8, 3, 3), {"stride": (1, 2), "padding": (2, 1)}, "hgmma_window"),  # rows as they are
    ("tf32", (1, 2, 9, 8, 8, 3, 3), {"stride": (2, 1), "padding": (0, 2)}, "hgmma_window"),  # columns as they are
    ("fp16", (2, 3, 12, 13, 10, 3, 3), {"stride": 2, "padding": (1, 0)}, "hgmma"),
    ("fp16", (1, 5, 11, 12, 8, 5, 4), {"stride": (3, 2), "layout": "CHWN", "more": False}, "hgmma"),
    ("bf16", (2, 3, 9, 8, 8, 3, 3), {"padding": 1}, "hgmma_window"),  # columns alone
    ("fp32", (1, 3, 9, 10, 8, 7, 7), {"stride": 2, "padding": 3, "layout": "NCHW"}, "hgmma"),
]


@pytest.mark.parametrize(("precision", "sizes", "more", "kernel"), ROWS)
def test_rows_and_columns_of_filters_as_channels(watched, monkeypatch, precision, sizes, more, kernel):
    """Of few channels: heights and filters that are no multiples of the stride, windows of what is packed, or none."""
    only(monkeypatch, hgmma.KEPT)
    assert off(*sizes, precision, **more) < BOUNDS[precision]
    assert watched == [("pack_few", []), (kernel, [])], watched


def test_what_is_packed():
    """Every element has its place, and all others are zeros: with NaN in memory, and x of all numbers."""
    cases = [(2, 3, 4, 2), (2, 11, 16, 1), (2, 5, 8, 2)]
    cases += [(4, 3, 4, 1), (4, 3, 4, 4), (4, 1, 2, 1), (4, 13, 16, 1), (4, 3, 8, 2)]
    for item, c, channels, rows in cases:
        kernel, dtype = loader.load(hgmma.packing_few(item, c, channels, rows)).kernel(), f"<u{item}"
        n, h, w, pad, top, height, columns = 2, 5, 4, 2, 3 * (rows > 1), 9 // rows, 9
        x = (np.arange(n * c * h * w) + 1).astype(dtype).reshape(n, c, h, w)
        y = np.full((n, height, columns, rows, channels), 0xFFFF, dtype)
        pieces, inverse = y.nbytes // min(16, rows * channels * item), hgmma.inverse
        kernel.launch(-(-pieces // 256), 256, x, y, pieces, height, inverse(height), columns, inverse(columns), pad,
                      top, h, w, *x.strides[:1], *x.strides[2:], x.strides[1], strict=True)  # fmt: skip
        wide = np.zeros((n, height * rows, columns, channels), dtype)
        seen = wide[:, top : top + h, pad : pad + w, :c]
        seen[...] = x.transpose(0, 2, 3, 1)[:, : seen.shape[1], : seen.shape[2]]
        assert (y == wide.reshape(n, height, rows, columns, channels).swapaxes(2, 3)).all(), (item, c, channels, rows)


def test_infinities_in_a_row_of_zeros():
    """A filter of 3 x 3 has a fourth row and column of zeros where 2 x 2 pixels are one: y is NaN there alone."""
    x, w = np.ones((1, 9, 9, 3), np.float16), np.ones((8, 3, 3, 3), np.float16)
    x[0, 5, 5] = np.inf
    y = Conv2d(w, padding=0, layout="NHWC", device="cpu", stride=2, precision="fp16")(x)[0, :, :, 0]
    assert np.isnan(y[1:3]).tolist() == [[False, True, True, False], [False, True, False, False]] and y[2, 2] == np.inf
    assert (y[[0, 3]] == 27).all() and (y[:, [0, 3]] == 27).all()


PIXELS = [  # of a tile
    ("tf32", "hgmma_wide", 144, (3, 40, 12, 11, 200, 3, 3), {"padding": 1}),  # several rows and columns of tiles
    ("fp16", "hgmma_wide", 72, (2, 72, 9, 14, 64, 3, 2), {"stride": (2, 1), "padding": (1, 0), "dilation": (1, 2)}),
    ("bf16", "hgmma_wide", 256, (2, 24, 17, 16, 136, 1, 1), {}),
    ("tf32", "hgmma_wide", 96, (1, 4, 8, 13, 4, 7, 7), {"stride": 2, "padding": 3, "more": False}),
    ("tf32", "hgmma_window", 104, (2, 40, 12, 17, 60, 3, 3), {"padding": 1, "schedule": {"WINDOWS": 2}}),
    ("fp16", "hgmma_window", 240, (1, 72, 20, 19, 64, 2, 3), {"padding": (1, 0), "schedule": {"WINDOWS": 2}}),
    ("bf16", "hgmma_window", 88, (1, 40, 14, 13, 200, 3, 2), {"padding": (0, 1), "schedule": {"WINDOWS": 2}}),
    ("fp16", "hgmma_window", 136, (2, 64, 9, 10, 64, 3, 3), {"padding": 1, "schedule": {"WINDOWS": 2, "KEEP": 1}}),
]


@pytest.mark.parametrize(("precision", "kernel", "tile_m", "sizes", "more"), PIXELS)
def test_any_number_of_pixels(watched, precision, kernel, tile_m, sizes, more):
    more = {**more, "schedule": {"TILE_M": tile_m, **more.get("schedule", {})}}
    assert off(*sizes, precision, **more) < BOUNDS[precision]
    assert watched[-1] == (kernel, []), watched


@pytest.mark.slow
@pytest.mark.parametrize("precision", PRECISIONS)
def test_random_layers_without_a_hazard(watched, precision):
    random = np.random.default_rng(7)
    for _ in range(6):
        n, c, h, w, k, r, s = (int(one) for one in random.integers(1, (4, 90, 14, 14, 90, 8, 8)))
        h, w = h + r, w + s
        stride, padding = int(random.integers(1, 4)), int(random.integers(0, 4))
        layout = str(random.choice(["NCHW", "NHWC", "CHWN"]))
        sizes = n, c, h, w, k, r, s
        assert off(*sizes, precision, layout, stride, padding) < BOUNDS[precision], (sizes, layout, stride, padding)
    assert not any(found for _, found in watched), watched


@pytest.mark.slow
@pytest.mark.parametrize("precision", PRECISIONS)
def test_every_width(precision):
    """Of the tile, with and without tensor copies for y."""
    for way in PRECISIONS[precision].plain:
        for k in (way.tile_n + 8, way.tile_n + 3):
            assert off(1, 40, 9, 8, k, 3, 3, precision, kernel=hgmma.NAME, schedule=way.schedule()) < BOUNDS[precision]


@pytest.mark.slow
def test_long_sums():
    """fp32 stays below 1e-6 where there are many channels."""
    for c, r in ((2048, 1), (512, 3)):
        assert off(1, c, 4, 4, 8, r, r, "fp32", more=False) < 1e-6


def test_infinities():
    """The other part of an infinity of x is NaN, and so is what comes out; other pixels are as they were."""
    x, w = np.ones((1, 2, 2, 8), np.float32), np.ones((8, 8, 1, 1), np.float32)
    x[0, 0, 0, 0] = np.inf
    y = Conv2d(w, padding=0, layout="NHWC", device="cpu")(x)
    assert not np.isfinite(y[0, 0, 0]).any() and (y.reshape(4, 8)[1:] == 8).all()


# ---- float32 by parts of FP16 --------------------------------------------------------------------------------------


def by_pixel(x, weight, **options):
    """The relative L2 error of each pixel of a 1 x 1 convolution, x: pixels x channels."""
    with Conv2d(weight[:, :, None, None], None, 0, layout="NHWC", device="cpu", **options) as layer:
        y = layer(np.ascontiguousarray(x[None, None]))[0, 0]
    exact = x.astype("f8") @ weight.T.astype("f8")
    return np.linalg.norm(y - exact, axis=1) / np.linalg.norm(exact, axis=1)


def test_each_pixel_and_filter_has_its_own_exponent():
    """Pixels and filters of any size side by side, and channels that differ by 2^12."""
    random = np.random.default_rng(5)
    x, weight = (random.standard_normal(sizes, np.float32) for sizes in ((70, 72), (24, 72)))
    x *= np.exp2(random.uniform(-12, 0, x.shape)).astype(np.float32)
    weight *= np.exp2(random.uniform(-12, 0, weight.shape)).astype(np.float32)
    pixels = np.exp2(np.linspace(-60, 60, len(x))).astype(np.float32)[:, None]
    filters = np.exp2(np.linspace(-40, 40, len(weight))).astype(np.float32)[:, None]
    assert by_pixel(x, weight).max() < 1e-6
    with Conv2d((weight * filters)[:, :, None, None], None, 0, layout="NHWC", device="cpu") as layer:
        y = layer((x * pixels)[None, None])[0, 0] / pixels / filters.T
    exact = x.astype("f8") @ weight.T.astype("f8")
    assert (np.linalg.norm(y - exact, axis=1) / np.linalg.norm(exact, axis=1)).max() < 1e-6
    assert (np.linalg.norm(y - exact, axis=0) / np.linalg.norm(exact, axis=0)).max() < 1e-6


def test_the_largest_and_the_smallest_numbers():
    random = np.random.default_rng(6)
    x, weight = (random.standard_normal(sizes, np.float32) for sizes in ((9, 40), (8, 40)))
    for size in (2.0**-95, 2.0**120):
        assert by_pixel(x * np.float32(size), weight).max() < 1e-6, size


def test_what_is_not_finite_stays_with_its_pixel():
    """A NaN or an infinity makes a NaN of what it goes into, and of nothing else."""
    random = np.random.default_rng(7)
    x, weight = (random.standard_normal(sizes, np.float32) for sizes in ((9, 40), (8, 40)))
    x[2, 3], x[5, 39], x[7] = np.inf, np.nan, 0
    weight[4, 0] = np.inf
    with Conv2d(weight[:, :, None, None], None, 0, layout="NHWC", device="cpu") as layer:
        y = layer(x[None, None])[0, 0]
    finite = np.isfinite(y)
    assert not finite[[2, 5]].any() and not finite[:, 4].any()
    whole, filters = [0, 1, 3, 4, 6, 7, 8], [0, 1, 2, 3, 5, 6, 7]
    assert finite[np.ix_(whole, filters)].all()
    exact = x[whole].astype("f8") @ weight[filters].T.astype("f8")
    assert np.linalg.norm(y[np.ix_(whole, filters)] - exact) < 1e-6 * np.linalg.norm(exact)


def test_filters_in_halves():
    """Both parts together are the filters, times their power of two, in the order that a lane of the kernel wants."""
    weight = np.random.default_rng(8).standard_normal((3, 64), np.float32) * np.float32([[1], [1e-20], [0]])
    made, scales = hgmma.halves(weight)
    parts = made.reshape(3, 2, 2, 2, 16).astype("f8")  # rows, 32 numbers, upper and lower, 16 of them
    lane, half, one = np.ogrid[:4, :2, :2]
    back = np.empty((3, 2, 2, 16))
    back[..., (4 * lane + 2 * half + one).ravel()] = parts.sum(2)[..., (2 * lane + 8 * half + one).ravel()]
    found = back.reshape(3, 64) * scales[:, None] / 2.0**hgmma.TOP
    assert (np.abs(found - weight).max(1) <= 2.0**-22 * np.abs(weight).max(1)).all()
    assert not made[2].any()


# ---- what is refused ---------------------------------------------------------------------------------------------

ONE = np.ones((8, 8, 1, 1), np.float32)
THREE = np.ones((8, 8, 3, 3), np.float32)


@pytest.mark.parametrize(("weight", "options", "message"), [
    (ONE, {"arch": "sm_80"}, "filters of 1 x 1: the layer is for sm_80, and this layer takes the kernel 'hgmma'"),
    (THREE, {"stride": 2, "arch": "sm_75"}, r"a stride of \(2, 2\): the layer is for sm_75"),
    (THREE, {"precision": "fp16"}, "weight has the dtype float32; it must be float16"),
    (THREE, {"precision": "bf16"}, r"it must be bfloat16 \(of numpy: its bits as uint16\)"),
    (THREE, {"precision": "fp8"}, "there is no precision 'fp8'\nhint: there are: fp32, tf32, fp16, bf16"),
    (ONE, {"kernel": "hopper"}, "filters of 1 x 1: the kernel 'hopper' is for filters of 3 x 3"),
    (ONE, {"splits": 17}, "splits is 17; the kernel 'hgmma' has 1, 2, 4, 8"),
    (ONE, {"stride": 0}, "stride is 0; it must be a number from 1 on"),
    (ONE, {"padding": -1}, "padding is -1"), (ONE, {"dilation": (1, 2, 3)}, "dilation is"),
    (ONE, {"schedule": {"YIELD": "natural"}}, "hgmma.sass has no parameter 'YIELD'\nhint: it has: TILE_M, TILE_N"),
])  # fmt: skip
def test_layers_that_are_refused(weight, options, message):
    with pytest.raises(LaunchError, match=message):
        Conv2d(weight, **{"device": "cpu", **options})


@pytest.mark.parametrize(("weight", "options", "x", "message"), [
    (ONE, {}, (1, 7, 4, 4), r"x has 7 channels \(NCHW = \(1, 7, 4, 4\)\), the filters 8"),
    (ONE, {}, (8, 4, 4), "it must have four sizes, N, C, H, W"),
    (THREE, {"stride": 2, "padding": 0}, (1, 8, 2, 2), "a filter of 3 x 3 is larger than an image of 2 x 2"),
    (ONE, {"stride": 9}, (1, 8, 20, 20), "a stride of 9\nhint: tensor copies have strides up to 8"),
    (THREE, {"dilation": 200, "padding": 1}, (1, 8, 500, 500), "tensor copies reach 255 pixels far"),
    (ONE, {"splits": 2}, (1, 8, 4, 4), "splits=2, for a layer with 1 stages\nhint: each of the blocks that share"),
    (ONE, {"schedule": {"STAGES": 8, "TILE_N": 192}}, (1, 8, 4, 4), "bytes of shared memory\nhint: there are"),
    (ONE, {"schedule": {"TILE_N": 72}}, (1, 8, 4, 4), "assembled with TILE_N=72: -D TILE_N=72: there are 128"),
    (ONE, {"schedule": {"PINGPONG": 1}}, (1, 8, 4, 4), "with PINGPONG=1: .* not with TYPE=FP32"),
])  # fmt: skip
def test_calls_that_are_refused(weight, options, x, message):
    layer = Conv2d(weight, **{"padding": 0, "device": "cpu", **options})
    with pytest.raises(LaunchError, match=message):
        layer(np.ones(x, np.float32))


def test_a_layer_that_is_closed():
    with Conv2d(ONE, padding=0, device="cpu") as layer:
        assert repr(layer).startswith("Conv2d(8 -> 8, 1 x 1, fp32, stride=(1, 1), dilation=(1, 1), padding=0, activ")
    with pytest.raises(LaunchError, match="the layer is closed"):
        layer(np.ones((1, 8, 2, 2), np.float32))
