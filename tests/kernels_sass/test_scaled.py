"""What small.sass and fold.sass have in common: what a block sees of x is scaled by one power of two and multiplied in
FP16 parts, filters are asked for before the kernel ahead has ended, and there are no partial results."""

from __future__ import annotations

import math

import numpy as np
import pytest

from kernels_sass.conv import Conv2d
from kernels_sass.conv.methods.fold import FOLD
from kernels_sass.conv.methods.small import SMALL
from tests.kernels_sass import harness
from tests.kernels_sass.cases import Case, error
from tests.kernels_sass.checked import convolve, cubin
from tests.kernels_sass.harness import Shape

KERNELS = [method.kernel(name) for method in (SMALL, FOLD) for name in method.kernels]
CHANNELS = {SMALL: 48, FOLD: 4}
SPLITS = {SMALL: 2, FOLD: 1}
each = pytest.mark.parametrize("kernel", KERNELS, ids=[one.name for one in KERNELS])
SOME = [KERNELS[0], SMALL.kernel("small32x64"), KERNELS[-1]]  # one that multiplies in each way
first = pytest.mark.parametrize("kernel", SOME, ids=[one.name for one in SOME])


@each
def test_what_lies_around_an_image_is_not_read(kernel):
    """NaN in rows and columns beyond the image, and behind it."""
    c = {SMALL: 21, FOLD: 4}[kernel.method]  # of SMALL's some beyond the last
    for layout in ("NCHW", "NHWC"):
        assert convolve(kernel, Shape(2, c, 11, 15, 20, layout=layout), around=math.nan, columns=15) < 3e-7


@first
def test_without_looking_ahead(kernel):
    """The same bits, filters asked for when the kernel ahead has ended."""
    shape = Shape(1, CHANNELS[kernel.method], 9, 9, 64, splits=SPLITS[kernel.method])
    assert convolve(kernel, shape, columns=9, more={"AHEAD": 0}.items()) == convolve(kernel, shape, columns=9)


@first
@pytest.mark.parametrize("ahead", [0, 1])
def test_begun_before_the_filters_are_transformed(kernel, ahead):
    """Nothing is read too early unless filters are asked for ahead; then nothing but these."""
    c = {SMALL: 32, FOLD: 4}[kernel.method]
    shape = Shape(1, c, 9, 9, 64, splits=SPLITS[kernel.method], bias=True, residual=True)
    options = {"shared": kernel.block.shared, "races": "global", "early": True, "columns": 9}
    found, (_, report) = harness.convolve(cubin(kernel, AHEAD=ahead), shape, **options)
    assert found < 3e-7 and bool(report.races) == bool(ahead)
    assert all("filter_transform" in str(race) for race in report.races)


@first
def test_nan_and_infinity_reach_their_outputs_alone(kernel):
    """All other outputs are as right as without them, though all of a window have one power of two."""
    c, last = {SMALL: (20, 18), FOLD: (4, 0)}[kernel.method]
    for bad in (np.nan, np.inf):
        case = Case(1, c, 20, 24, 40)
        clean = case.y()
        case.x[0, 3, 7, 3] = case.x[0, last, 19, 23] = bad
        y = case.conv(kernel=kernel.method.name, schedule=kernel.block.defines)(case.x)
        wrong = {(r, c) for r, c in np.argwhere(~np.isfinite(y[0]).all(axis=0))}
        assert wrong == {(r + i, c + j) for r, c in ((7, 3), (19, 23)) for i in (-1, 0, 1) for j in (-1, 0, 1)
                         if r + i < 20 and c + j < 24}  # fmt: skip
        assert error(np.where(np.isfinite(y), y, clean), clean) < 5e-7


@first
def test_numbers_of_any_size(kernel):
    """Very large, very small; and where blocks see parts of the channels, some of one part much smaller."""
    random, c = np.random.default_rng(5), CHANNELS[kernel.method]
    some = 16 if c > 16 else 0
    for part, all_of_it, filters in ((2.0**-17, 1, 1), (1e-20, 1e15, 1e-10), (1, 1e-25, 1e15), (1e5, 1e10, 1),
                                     (1, 1e35, 1e-10), (1, 1e10, 1e-31)):  # fmt: skip
        x = random.standard_normal((1, c, 9, 9), np.float32) * np.float32(all_of_it)
        x[:, :some] *= np.float32(part)
        w = random.standard_normal((20, c, 3, 3), np.float32) * np.float32(filters)
        w[3] *= np.float32(1e-7)
        wanted = harness.exact(x, w, Shape(1, c, 9, 9, 20), None, None)
        with Conv2d(w, kernel=kernel.method.name, schedule=kernel.block.defines) as conv:
            y = conv(x)
        for n in range(20):
            assert error(y[:, n], wanted[:, n]) < 5e-7, (part, all_of_it, filters, n)


@first
def test_sums_are_those_of_filters_of_one_to_two(kernel):
    """From 2^128 on they are infinite, though y is 2^-60 times as large."""
    c = CHANNELS[kernel.method]
    with Conv2d(np.full((20, c, 3, 3), 2.0**-60, np.float32), None, 0, kernel=kernel.method.name,
                schedule=kernel.block.defines) as conv:  # fmt: skip
        for part in (0.99, 1.01):
            x = np.full((1, c, 5, 7), part * 2.0**128 / (9 * c), np.float32)
            wanted = np.full((1, 20, 3, 5), part * 2.0**68 if part < 1 else np.inf)
            assert np.allclose(conv(x), wanted, rtol=1e-6, atol=0)


@each
def test_residual_in_its_own_memory(kernel):
    """``out`` may be residual itself: a single thread reads each number, and then writes it."""
    case = Case(1, {SMALL: 32, FOLD: 4}[kernel.method], 9, 14, 64)
    for splits in {1, SPLITS[kernel.method]}:
        conv = case.conv(kernel=kernel.method.name, splits=splits, schedule=kernel.block.defines)
        wanted, out = conv(case.x, case.residual), case.residual.copy()
        assert np.array_equal(conv(case.x, out, out), wanted)


@first
def test_as_a_layer(kernel):
    """By name, on the CPU device, with splits."""
    case = Case(2, {SMALL: 48, FOLD: 3}[kernel.method], 6, 7, 5)
    for splits in (None, SPLITS[kernel.method]):
        more = {"kernel": kernel.method.name, "schedule": kernel.block.defines, "splits": splits}
        conv = case.conv(bias=True, relu=True, **more)
        assert error(conv(case.x, case.residual), case.y(bias=True, residual=True, relu=True)) < 1e-6
