"""Jobs that share their channels: the kernels, sizes and launches, and Conv2d."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

from kernels_sass.conv import Conv2d, cost, launch
from kernels_sass.conv import shape as sizes
from kernels_sass.conv.code import Kernels
from kernels_sass.conv.methods.hopper import HOPPER
from kernels_sass.conv.methods.yan2020 import YAN2020
from loader.reference.problem import arrange
from tests.kernels_sass import harness
from tests.kernels_sass.cases import Case, error
from tests.kernels_sass.harness import Shape
from turingas.errors import LaunchError

BOTH = HOPPER.kernel("winograd"), HOPPER.kernel("winograd32")


def convolve(arch, shape, sms=0, schedule=None, **options):
    kernels = Kernels.of(arch, schedule=schedule)
    assert kernels.main.name == BOTH["FILTERS" in (schedule or {})].name
    main = kernels.main.block
    hopper = {"block": main.threads, "shared": main.shared, "sms": sms or 132}
    return harness.convolve(kernels.cubin, shape, **(hopper if kernels.method is HOPPER else {}), **options)


# ---- the kernels -------------------------------------------------------------------------------------------------


@pytest.mark.sample(2)
@pytest.mark.parametrize(("arch", "sms", "schedule", "shape"), [
    ("sm_70", 0, {}, Shape(3, 16, 3, 4, 66, splits=2)),
    ("sm_75", 0, {}, Shape(2, 30, 5, 6, 68, splits=4, layout="CHWN", ni=2, bias=True, residual=True, relu=True)),
    ("sm_80", 0, {}, Shape(1, 61, 5, 5, 8, pad=0, splits=8, layout="NHWC", bias=True)),
    ("sm_86", 0, {}, Shape(1, 121, 2, 3, 5, splits=16, residual=True)),
    ("sm_90", 3, {}, Shape(2, 32, 6, 6, 70, splits=2, bias=True, residual=True, relu=True)),  # several jobs a block
    ("sm_90", 2, {}, Shape(3, 23, 4, 4, 4, splits=1, layout="NHWC", bias=True)),
    ("sm_90", 5, {}, Shape(5, 31, 5, 3, 68, splits=4, layout="CHWN", ni=5, relu=True)),
    ("sm_90", 3, {"FILTERS": 32}, Shape(2, 24, 6, 6, 70, splits=1, bias=True, residual=True, relu=True)),
    ("sm_90", 2, {"FILTERS": 32}, Shape(3, 8, 4, 4, 20, splits=1, layout="NHWC")),  # one step a job
    ("sm_90", 4, {"FILTERS": 32}, Shape(3, 61, 5, 7, 33, pad=0, splits=4, layout="CHWN", ni=3, bias=True)),
    ("sm_90", 0, {"MATH": "ffma"}, Shape(1, 121, 3, 4, 9, splits=16, layout="NHWC", residual=True)),
])  # fmt: skip
def test_against_float64(arch, sms, schedule, shape):
    found, reports = convolve(arch, shape, sms, schedule, strict=True, races=True)
    assert found < 1e-6
    assert not [fault for one in reports for fault in (*one.hazards, *one.races)]


@pytest.mark.parametrize("arch", ["sm_75", "sm_90"])
def test_no_channel_of_another_is_read(arch):
    """A block that reads channels behind its own, or none of them, gives something else."""
    for n, c in enumerate((9, 16, 25, 32)):
        shape = Shape(1, c, 3, 3, 3, splits=2)
        assert convolve(arch, shape, seed=n)[0] < 1e-6


@pytest.mark.parametrize(("arch", "source"), [("sm_70", "paper"), ("sm_80", "paper"), ("sm_90", "hopper")])
def test_sums(arch, source):
    """add_splits alone: what y needs is read from where ``winograd`` has written it, wherever y and residual lie."""
    module, random = Kernels.of(arch, source).load("cpu"), np.random.default_rng(0)
    cases = [(2, "NCHW", 4, 68, 1), (4, "NHWC", 3, 64, 2), (8, "NHWC", 3, 5, 0), (16, "CHWN", 2, 130, 3),
             (2, "CHWN", 3, 9, 0)]  # fmt: skip
    for splits, layout, size, k, shift in cases:
        shape = sizes.Shape(3, 128, size, size, k, 1, layout, splits)
        parts = random.standard_normal(shape.written.y_shape, np.float32)
        y, residual = np.full((2, shift + math.prod(shape.y_shape)), np.nan, np.float32)
        residual[:] = random.standard_normal(residual.shape)
        bias = random.standard_normal(k, np.float32)
        _, add = launch.launches(shape, 132, relu=True)
        pointers = parts, y[shift:], bias, residual[shift:]
        report = module.kernel(add.kernel).launch(add.grid, (add.threads, 1, 1), *pointers, *add.numbers, strict=True)
        assert not report.hazards and np.isnan(y[:shift]).all()
        every = arrange(parts, layout, "NCHW").reshape(3, -1, splits, 64, size, size)
        exact = every.sum(2, dtype="f8").reshape(3, -1, size, size)[:, :k] + bias[:, None, None]
        found, added = (arrange(one[shift:].reshape(shape.y_shape), layout, "NCHW") for one in (y, residual))
        assert np.abs(found - np.maximum(exact + added, 0)).max() < 1e-5, (splits, layout)


def test_nan_and_infinity_stay():
    """As they do without splits: ReLU of NaN is NaN."""
    parts = np.zeros((1, 128, 1, 4), np.float32)
    parts[0, 0, 0], parts[0, 64, 0] = (np.nan, np.inf, -np.inf, 1), (0, 1, 1, -3)
    y = np.empty((1, 1, 1, 4), np.float32)
    shape = sizes.Shape(1, 16, 1, 4, 1, splits=2)
    _, add = launch.launches(shape, 132, relu=True)
    module = Kernels.of("sm_75", "paper").load("cpu")
    module.kernel(add.kernel).launch(add.grid, (add.threads, 1, 1), parts, y, 0, 0, *add.numbers)
    assert np.array_equal(y.ravel(), [np.nan, np.inf, 0, 0], equal_nan=True)


def test_blocks_of_32_filters_are_as_exact():
    """Bit by bit the same, from the same U: so Conv2d may take either."""
    wide, narrow = Kernels.of("sm_90").every().values()
    assert (wide.main, narrow.main) == BOTH
    first, second = ({one.name: one.words for one in kernels.cubin.kernels} for kernels in (wide, narrow))
    assert first["filter_transform"] == second["filter_transform"]
    random = np.random.default_rng(0)
    x, w = random.standard_normal((2, 19, 5, 6), np.float32), random.standard_normal((70, 19, 3, 3), np.float32)
    ys = [Conv2d(w, arch="sm_90", schedule={"FILTERS": filters})(x) for filters in (64, 32)]
    assert np.array_equal(*ys)


def test_what_has_no_blocks_of_32():
    assert list(Kernels.of("sm_75").every()) == [YAN2020.kernel("winograd")]
    assert list(Kernels.of("sm_90", schedule={"MATH": "ffma"}).every()) == [BOTH[0]]
    assert list(Kernels.of("sm_90", schedule={"FILTERS": 32}).every()) == [BOTH[1]]
    with pytest.raises(LaunchError, match="FILTERS is there with MATH=tf32x3 alone"):
        Kernels.of("sm_90", schedule={"MATH": "ffma", "FILTERS": 32})


# ---- sizes and launches --------------------------------------------------------------------------------------------


def test_what_is_written():
    shape = sizes.Shape(2, 64, 4, 6, 70, layout="NHWC", splits=4)
    assert shape.blocks == (1, 8) and shape.written == sizes.Shape(2, 64, 4, 6, 512, layout="NHWC")
    assert shape.floats == 2 * 4 * 6 * 512 and replace(shape, splits=1).floats == 0
    main, add = launch.launches(shape, 132, relu=True)
    assert main.numbers[-3:] == (0, 2, 4)  # ReLU is add_splits' business
    assert (add.kernel, add.grid, add.numbers) == ("add_splits", (14, 1, 1), (2 * 4 * 6 * 70, 70, 1, 4, 1))
    for layout, size, k, kernel in (("NCHW", 2, 5, "4"), ("NCHW", 3, 8, ""), ("NHWC", 3, 8, "4"), ("NHWC", 2, 5, "")):
        _, add = launch.launches(sizes.Shape(1, 16, size, size, k, 1, layout, 2), 1)
        assert add.kernel == "add_splits" + kernel


def test_how_many():
    """Only as many as leave whole steps; one where blocks are enough; and no fewer blocks the smaller the batch."""
    for c, k, size in itertools.product((3, 24, 72, 512), (32, 512), (7, 28)):
        shapes = [cost.fastest(sizes.Shape(n, c, size, size, k), 132) for n in (1, 2, 4, 8, 16, 32, 64, 128)]
        assert all(one.steps % one.splits == 0 for one in shapes)
        assert shapes[-1].splits == 1 or math.prod(shapes[-1].blocks) / shapes[-1].splits % 132
        if c == 72:
            assert {one.splits for one in shapes} == {1}
    assert cost.fastest(sizes.Shape(32, 128, 56, 56, 32), 132, BOTH).kernel == BOTH[1]  # half of 64 would be empty
    assert cost.fastest(sizes.Shape(32, 128, 56, 56, 64), 132, BOTH).kernel == BOTH[0]
    assert cost.fastest(sizes.Shape(8, 64, 13, 13, 256), 132, BOTH).kernel == BOTH[1]  # 52 jobs
    assert cost.fastest(sizes.Shape(1, 512, 7, 7, 512), 132).splits == 16
    assert cost.fastest(sizes.Shape(8, 512, 7, 7, 512), 132).splits == 4
    assert cost.fastest(sizes.Shape(32, 512, 7, 7, 512), 132).splits == 1  # 128 jobs
    assert cost.split(sizes.Shape(1, 512, 7, 7, 512), "cpu").splits == 1


@pytest.mark.parametrize("splits", [0, 3, 8, 32, "2"])
def test_what_cannot_be_split(splits):
    with pytest.raises(LaunchError, match=r"^32 channels, 4 times 8, cannot be split into .*\nhint: into: 1, 2, 4$"):
        sizes.Shape(1, 32, 4, 4, 4, splits=splits)
    with pytest.raises(LaunchError, match="cannot be split"):
        Conv2d(np.zeros((4, 32, 3, 3), np.float32), splits=splits)


# ---- Conv2d ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("arch", "layout", "splits"),
                         [("sm_75", "NCHW", 2), ("sm_90", "NHWC", 4), ("sm_80", "CHWN", 2)])  # fmt: skip
def test_conv2d(arch, layout, splits):
    """... whose y does not depend on what else is in the batch."""
    case = Case(3, 32, 4, 5, 6, 1, layout)
    conv = case.conv(True, True, arch=arch, splits=splits)
    residual, alone = case.residual.copy(), layout.index("N")
    y = conv(case.x, residual, out=residual)
    assert y is residual and error(y, case.y(1, 1, 1)) < 1e-6
    one = np.ascontiguousarray(case.x.take([1], alone))
    assert np.array_equal(conv(one, np.ascontiguousarray(case.residual.take([1], alone))), y.take([1], alone))


def test_parts_of_images_take_turns(monkeypatch):
    """Where x is too large for one launch, the partial results of each part are written anew."""
    case = Case(5, 16, 4, 4, 7)
    conv = Conv2d(case.weight, case.bias, splits=2)
    conv(case.x[:1])  # filters are transformed
    monkeypatch.setattr(sizes, "LIMIT", 4 * 128 * 16 * 2 + 1)
    assert [part.n for _, part in sizes.Shape(5, 16, 4, 4, 7, splits=2).parts()] == [2, 2, 1]
    assert error(conv(case.x), case.y(bias=True)) < 1e-6
    with pytest.raises(LaunchError, match="^x, y or partial results of 4 GiB or more"):
        list(sizes.Shape(5, 16, 4, 4, 7, 1, "CHWN", 2).parts())
