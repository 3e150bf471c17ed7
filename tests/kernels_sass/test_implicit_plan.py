"""Layers by HGMMA: what copies are told, which tiles, windows and shares there are, and which are chosen."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from kernels_sass.conv import Conv2d
from kernels_sass.conv.implicit_shape import Shape, Source
from kernels_sass.conv.methods import hgmma
from kernels_sass.conv.methods.hgmma import PRECISIONS
from loader.reference.problem import Problem
from tests.kernels_sass.implicit import lint, off
from tests.tools import fit_hgmma
from tests.tools.fit_hgmma import ROOM as AT_ONCE
from turingas.errors import AsmError, LaunchError


def test_what_copies_take():
    """x itself where that can be, else an array of it; columns of a filter as channels where these are few."""
    fp16, tf32 = PRECISIONS["fp16"], PRECISIONS["tf32"]
    start = Shape(1, 3, 224, 224, 64, 7, 7, (2, 2), (3, 3), layout="NHWC")
    source = Source.of(start, fp16, True)  # 56 numbers: 4 channels, 2 rows, 7 columns
    assert (source.packed, source.stages(fp16), source.shape) == ((4, 230, 3), 4, (1, 115, 112, 56))
    for name in ("tf32", "fp32"):  # of one row
        source = Source.of(start, PRECISIONS[name], True)
        assert (source.packed, source.stages(tf32), source.shape) == ((4, 230, 3), 7, (1, 224, 112, 28))
    alex = Shape(1, 3, 227, 227, 64, 11, 11, (4, 4), (2, 2), layout="NHWC")
    assert (Source.of(alex, fp16, True).rows, Source.of(alex, fp16, True).packed) == (4, (4, 232, 2))
    assert Source.of(replace(alex, dilation=(2, 1)), fp16, True).rows == 1
    for precision, row, channels in ((fp16, 32, 16), (tf32, 64, 16)):  # 16 places of 2 x 2 pixels
        source = Source.deep(start, precision)
        assert (source.shape, source.filter, source.row) == ((1, 115, 115, channels), (4, 4), row)
        assert source.packed == (4, 230, 3) and source.stages(precision) == 16 and source.windows(start).row == row
    assert Source.deep(alex, fp16).filter == (3, 3) and Source.deep(alex, fp16).row == 128
    assert Source.deep(alex, tf32).stages(tf32) == 18  # two stages for each place
    for other in (replace(alex, dilation=(2, 1)), replace(start, stride=(1, 1)), replace(start, c=20)):
        assert Source.deep(other, fp16) is None
    inside = Shape(8, 64, 56, 56, 64, 3, 3, padding=(1, 1), layout="NHWC")
    assert Source.of(inside, fp16, True).packed == () and Source.of(inside, fp16, True).stages(fp16) == 9
    assert Source.of(inside, fp16, False).packed == (64, 56, 0)
    assert Source.of(Shape(1, 9, 5, 5, 8, 1, 1, layout="NHWC"), tf32, True).packed == (12, 5, 0)


def test_tilings_fit():
    for precision in PRECISIONS.values():
        for pixels, filters in ((100, 8), (100352, 256), (25088, 512), (6272, 2048), (401408, 64)):
            for direct in (0, 1):
                for cluster in (None, *hgmma.CLUSTERS):
                    made = hgmma.tiling(precision, hgmma.Work(pixels, filters, 9), AT_ONCE, cluster, direct=direct)
                    assert made.shared <= hgmma.ROOM and made.cluster == (cluster or made.cluster)


def test_how_many_share_a_tile():
    """Where the last round of tiles is no full one, and there are many stages."""
    fp32 = PRECISIONS["fp32"]

    def made(pixels, filters, stages):
        return hgmma.tiling(fp32, hgmma.Work(pixels, filters, stages), AT_ONCE, None).cluster

    assert made(401408, 64, 7) == 1 and made(49, 512, 144) == 8
    assert made(49, 512, 4) == 1 and made(96 * 49, 512, 144) == 4
    work = hgmma.Work(96 * 49, 512, 144)  # 37 x 4 tiles: 120 alone, and 28 for 30 clusters
    assert work.rounds(128, 4, AT_ONCE) == (1, 1) and work.rounds(128, 1, AT_ONCE) == (2, 0)


def test_ways():
    """Turns where tiles end often; windows where the L2 is asked too often; as many pixels as make full rounds."""

    def made(name, *sizes):
        precision, shape = PRECISIONS[name], Shape(*sizes, padding=(sizes[5] // 2,) * 2, layout="NHWC")
        source, free = Source.of(shape, precision, True), name != "fp32"
        windows = source.windows(shape) if free else None
        found = hgmma.tiling(precision, source.work(shape, precision), AT_ONCE, 1, windows, source.filter, wider=free)
        return type(found).__name__, found.tile_m, found.tile_n, vars(found).get("pingpong")

    assert made("fp16", 128, 512, 7, 7, 2048, 1, 1) == ("Tiling", 128, 128, 1)
    assert made("tf32", 96, 512, 7, 7, 512, 3, 3) == ("Wide", 144, 128, None)  # 33 x 4 tiles
    assert made("fp16", 64, 512, 7, 7, 512, 3, 3) == ("Wide", 96, 128, None)
    assert made("tf32", 32, 128, 28, 28, 128, 3, 3)[0] == made("tf32", 32, 64, 56, 56, 64, 3, 3)[0] == "Windowed"
    assert made("fp32", 128, 256, 14, 14, 1024, 1, 1) == ("Tiling", 128, 128, 0)


@pytest.mark.parametrize(("options", "message"), [
    ({"schedule": {"TILE_M": 100}}, "TILE_M=100: a tile of 128 filters cannot have so many pixels\nhint: .* 64 to 256"),
    ({"schedule": {"TILE_M": 136, "WINDOWS": 2, "TILE_N": 128}, "padding": 1}, "TILE_M=136: .*\nhint: .* 64 to 128"),
    ({"schedule": {"TILE_M": 96}, "layout": "NCHW"}, "TILE_M: tiles of other than 128 pixels are for NHWC"),
    ({"schedule": {"TILE_M": 96}, "splits": 2}, "and without splits"),
    ({"schedule": {"TILE_M": 96, "TILE_N": 64}}, "TILE_N is no parameter of hgmma_wide.sass"),
    ({"schedule": {"TILE_M": 256, "STAGES": 8}}, "fewer STAGES"),
    ({"schedule": {"WINDOWS": 2, "KEEP": 1, "STAGES": 18}, "padding": 1}, "KEEP=1, STAGES=18: .* 9 stages\nhint: "),
    ({"schedule": {"WINDOWS": 2, "KEEP": 1, "STAGES": 8}, "padding": 1}, "KEEP=1, STAGES=8: .* are 9 stages\nhint: "),
])  # fmt: skip
def test_pixels_that_are_refused(options, message):
    with pytest.raises(LaunchError, match=message):
        off(1, 64, 9, 9, 8, 3, 3, "fp16", **options)


@pytest.mark.parametrize(("name", "asked", "cluster", "found"), [
    ("fp16", {}, 1, (64, 8, 0)),
    ("fp16", {"group": 4}, 1, (64, 8, 0)),
    ("fp16", {"tile_n": 256}, 1, (256, 4, 0)),
    ("fp16", {"pingpong": 1}, 1, (64, 8, 1)),
    ("fp16", {"tile_n": 128, "pingpong": 1, "stages": 3}, 1, (128, 6, 1)),
    ("fp16", {}, 2, (128, 6, 0)),
    ("fp16", {"tile_n": 64}, 2, (64, 8, 0)),  # which nobody chooses
    ("fp16", {"tile_n": 192}, 1, (64, 8, 0)),  # there is no way of it: what would be chosen
    ("fp16", {"tile_n": 256}, 8, (128, 6, 0)),  # blocks that share have no room for so many sums
    ("fp32", {"pingpong": 1}, 1, (128, 6, 0)),
])  # fmt: skip
def test_ways_that_are_asked_for(name, asked, cluster, found):
    """Stages and buffers are those of the tile that a schedule asks for."""
    way, count = hgmma.Work(96 * 49, 512, 144).best(PRECISIONS[name], AT_ONCE, cluster, asked)
    assert (way.tile_n, way.stages, int(way.kind == hgmma.TURNS), count) == (*found, cluster)


@pytest.mark.parametrize(("schedule", "values"), [
    ({"TILE_N": 256}, {"tile_n": 256, "stages": 4, "buffers": 2}),
    ({"TILE_N": 192, "STAGES": 4}, {"tile_n": 192, "stages": 4, "buffers": 1}),  # three boxes
    ({"TILE_N": 64, "PINGPONG": 1}, {"tile_n": 64, "stages": 8, "pingpong": 1}),
    ({"GROUP": 4}, {"group": 4, "ahead": None}),
])  # fmt: skip
def test_what_a_schedule_leaves_open(schedule, values):
    weight = np.ones((256, 64, 1, 1), np.float16)
    with Conv2d(weight, None, 0, layout="NHWC", precision="fp16", schedule=schedule) as layer:
        layer(np.ones((1, 8, 8, 64), np.float16))
        (plan,) = layer._implicit.plans.values()
    assert values.items() <= vars(plan.kernel).items()


@pytest.mark.parametrize("precision", PRECISIONS)
def test_more_tiles_than_can_be_counted(monkeypatch, precision):
    """They would be others, without a word."""
    monkeypatch.setattr(hgmma, "MOST_TILES", 2)
    with pytest.raises(LaunchError, match="y has [2-9] tiles of .* pixels and .* filters; the kernels count to 2\n"):
        off(1, 8, 20, 20, 8, 1, 1, precision)


def test_layers_too_large_are_known_beforehand():
    """As the operator of PyTorch asks: it leaves them to PyTorch."""
    with pytest.raises(LaunchError, match="y has 2097152 tiles of 64 pixels and 64 filters"):
        Shape(128, 64, 256, 256, 1024, 1, 1, layout="NHWC").check(2)
    Shape(127, 64, 256, 256, 1024, 1, 1, layout="NHWC").check(2)


@pytest.mark.parametrize("schedule", [None, {"TILE_M": 72}, {"WINDOWS": 2}])
def test_tf32_is_rounded(schedule):
    """By the copies, both x and filters; the tensor cores truncate what they are given."""
    half = 2.0**-11
    x = np.full((1, 9, 9, 16), 1 + 1.5 * half, np.float32)  # 1 + 2 half
    weight = np.full((4, 16, 3, 3), 1 + 1.5 * half, np.float32)
    weight[1] = 1 + half  # a tie, to even
    weight[2] = -1 - 1.01 * half
    options = {"kernel": "hgmma", "schedule": schedule} if schedule else {}
    with Conv2d(weight, None, 0, layout="NHWC", device="cpu", precision="tf32", **options) as layer:
        y = layer(x)
    one = 1 + 2 * half
    assert np.abs(y / 144 - [one * one, one, -one * one, one * one]).max() < 2e-6


def test_stages_by_choice(tmp_path, capsys):
    """Of two ways one is slower than its stages say, and is chosen: they become longer until it is not."""
    p = Problem(128, 256, 14, 14, 256, 3, 3, 1, 1)
    work, windows, _ = fit_hgmma.seen(p, "tf32")
    ways = {way.kind: way for way in PRECISIONS["tf32"].ways if way.tile_n == 128}
    wide_ones = fit_hgmma.pixels(work, ways[hgmma.WIDER])
    assert wide_ones == [128, 192, 96]  # of those that make as many pixels in all the larger ones
    guess = {kind: work.time(ways[kind], 1, AT_ONCE) for kind in (hgmma.BOTH, hgmma.TURNS)}
    one, other = sorted(guess, key=guess.get)
    rows = [{"layer": "a", "problem": vars(p), "precision": "tf32", "kind": kind, "tile_n": 128, "tile_m": 128,
             "cluster": 1, "us": us} for kind, us in ((one, 1.05 * guess[other]), (other, guess[other]))]  # fmt: skip
    (path := tmp_path / "times.json").write_text(json.dumps({"rows": rows}))
    fit_hgmma.by_choice((path,), (f"tf32:{one}:128",))
    before, after = capsys.readouterr().out.splitlines()
    assert before.endswith("1.0500") and after.endswith(": 1.0000"), (before, after)
    assert float(after.split()[4].rstrip(":")) > ways[one].stage


def test_filters_that_become_neighbours():
    """Rows n and n + 8 of 16 are filters 2 n and 2 n + 1."""
    rows = np.arange(20, dtype=np.float32)[:, None]
    made = hgmma.paired(rows)
    assert made[:16, 0].tolist() == [0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15]
    assert made[16:, 0].tolist() == [16, 18, 0, 0, 0, 0, 0, 0, 17, 19, 0, 0, 0, 0, 0, 0]


def test_what_windows_can_be():
    """Filters that stay: one column of tiles that fits into shared memory; and others."""
    fp16, tf32, fp32 = (PRECISIONS[name] for name in ("fp16", "tf32", "fp32"))

    def found(kind, precision, *sizes, padding=(1, 1), **more):
        shape = Shape(*sizes, padding=padding, layout="NHWC", **more)
        source = Source.of(shape, precision, True)
        way, windows = hgmma.Way(kind, 64, 0, 0, 0), source.windows(shape)
        return windows and hgmma.of_pixels(precision, way, source.work(shape, precision), windows, source.filter)

    inside = 32, 64, 56, 56, 64, 3, 3
    kept, others = hgmma.KEPT, hgmma.WINDOWS
    assert found(kept, fp16, *inside) == hgmma.Windowed("F16", 64, "3x3", 9, 248, 3, 1)
    assert found(kept, tf32, *inside) == hgmma.Windowed("TF32", 64, "3x3", 18, 248, 2, 1)
    assert found(others, tf32, *inside) == hgmma.Windowed("TF32", 64, "3x3", 8, 248, 2, 0)
    assert found(kept, fp16, 32, 64, 56, 56, 256, 3, 3) is None  # several columns of tiles
    assert found(kept, fp16, 32, 256, 14, 14, 64, 3, 3) is None  # 288 KB of filters
    assert found(others, fp16, 32, 64, 56, 56, 64, 1, 1, padding=(0, 0)) is None
    assert found(others, fp16, 1, 64, 448, 448, 64, 3, 3) is None  # pixels of a window: 1024 at most
    many = found(kept, fp16, 2, 640, 20, 20, 64, 1, 2, padding=(0, 1))
    assert many is not None and many.stages == 20 and not lint(hgmma.built(many))
    assert found(kept, fp16, *inside, stride=(2, 1)) is None and found(kept, fp16, *inside, dilation=(1, 2)) is None


@pytest.mark.parametrize(("schedule", "message"), [
    ({"WINDOWS": 2, "GROUP": 2}, "GROUP is no parameter of hgmma_window.sass"),
    ({"WINDOWS": 2, "KEEP": 1, "STAGES": 5}, "KEEP=1, STAGES=5: the filters of this layer are 9 stages"),
    ({"WINDOWS": 4, "STAGES": 8, "TILE_N": 128}, "take"),
    ({"KEEP": 1}, "KEEP is no parameter of hgmma.sass"),
])  # fmt: skip
def test_schedules_of_windows_that_are_refused(schedule, message):
    with pytest.raises((LaunchError, AsmError), match=message):
        off(1, 64, 40, 40, 8, 3, 3, "fp16", padding=1, schedule=schedule)


@pytest.mark.parametrize(("precision", "more"), [("fp32", {}), ("fp16", {"stride": 2}), ("fp16", {"layout": "NCHW"})])
def test_layers_without_windows(precision, more):
    with pytest.raises(LaunchError, match="there are no windows of this layer"):
        off(1, 64, 9, 9, 8, 3, 3, precision, kernel=hgmma.NAME, schedule={"WINDOWS": 2}, **more)
