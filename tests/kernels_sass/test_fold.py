"""Direct convolution for up to 5 channels on tensor cores, conv/methods/fold.sass: its words, what it computes on the
CPU device, and when it is taken.

TURINGAS_SHAPES=200 takes that many random shapes instead of a few.
"""

from __future__ import annotations

import functools
import math
import os
import random

import numpy as np
import pytest

import turingas
from kernels_sass.conv import Conv2d, launch, tuned
from kernels_sass.conv import shape as sizes
from kernels_sass.conv.code import Kernels
from kernels_sass.conv.method import FOLDER
from kernels_sass.conv.methods.fold import FOLD
from loader.cuda import Buffer
from tests.kernels_sass import harness
from tests.kernels_sass.harness import LAYOUTS, Shape
from tests.kernels_sass.preferring import preferring
from tests.kernels_sass.test_conv2d import Case, error
from tests.loader.conftest import install  # noqa: F401
from turingas.check.command import look
from turingas.errors import AsmError, LaunchError
from turingas.isa.arch import arch

SOURCE = FOLDER / "fold.sass"
SHAPES = int(os.environ.get("TURINGAS_SHAPES", "4"))
MAIN = "fold160x64"


@functools.cache
def cubin(arch="sm_90", **given):
    return turingas.assemble(SOURCE.read_text(), arch, given, filename=str(SOURCE))


def convolve(shape, arch="sm_90", more=(), **options):
    """The error; nothing else may be wrong."""
    found, reports = harness.convolve(
        cubin(arch, **dict(more)), shape, block=256, shared=FOLD.kernels[MAIN].shared, strict=True, races=True,
        **options,
    )  # fmt: skip
    assert not [fault for one in reports for fault in (*one.hazards, *one.races)]
    return found


# ---- what it computes --------------------------------------------------------------------------------------------


@pytest.mark.sample(4)
@pytest.mark.parametrize(("shape", "columns"), [
    (Shape(1, 4, 9, 32, 66), 32),                                          # y side by side in twos; filters beyond K
    (Shape(1, 4, 8, 16, 192, bias=True, residual=True, relu=True), 16),    # two blocks of 96 filters
    (Shape(1, 3, 5, 30, 330, bias=True, residual=True, relu=True), 17),    # three, the last of 106
    (Shape(1, 4, 6, 20, 65), 10),
    (Shape(2, 5, 12, 30, 5, pad=0, layout="NHWC"), 28),
    (Shape(2, 4, 9, 24, 161, residual=True, relu=True, layout="CHWN"), 24),
    (Shape(1, 2, 70, 1, 20, residual=True, filter_layout="CRSK"), 1),      # one column, 64 rows
    (Shape(1, 1, 4, 3, 1, residual=True), 3),
])  # fmt: skip
def test_against_float64(shape, columns):
    assert convolve(shape, columns=columns) < 3e-7


@pytest.mark.sample(2)
@pytest.mark.parametrize("seed", range(SHAPES))
def test_random_shapes(seed):
    of = random.Random(seed)
    flag = lambda: of.random() < 0.5  # noqa: E731
    more = {"bias": flag(), "residual": flag(), "relu": flag(), "pad": of.randint(0, 1), "layout": of.choice(LAYOUTS)}
    n, c, h, w = of.randint(1, 3), of.randint(1, 5), of.randint(3, 15), of.randint(3, 40)
    shape = Shape(n, c, h, w, of.randint(1, 200), **more)
    columns = of.randint(1, min(32, shape.q))
    found = convolve(shape, of.choice(FOLD.archs), seed=seed, shift=of.randint(0, 3), columns=columns)
    assert found < 5e-7, (shape, columns)


def test_what_lies_around_an_image_is_not_read():
    """NaN in rows and columns beyond the image, and behind it."""
    for layout in ("NCHW", "NHWC"):
        assert convolve(Shape(2, 4, 11, 15, 20, layout=layout), around=math.nan, columns=15) < 3e-7


def test_without_looking_ahead():
    """The same bits, filters asked for when the kernel ahead has ended."""
    shape = Shape(1, 4, 9, 9, 64)
    assert convolve(shape, columns=9, more={"AHEAD": 0}.items()) == convolve(shape, columns=9)


@pytest.mark.parametrize("ahead", [0, 1])
def test_begun_before_the_filters_are_transformed(ahead):
    """Nothing is read too early unless filters are asked for ahead; then nothing but these."""
    shape, shared = Shape(1, 4, 9, 9, 64, bias=True, residual=True), FOLD.kernels[MAIN].shared
    options = {"shared": shared, "races": "global", "early": True, "columns": 9}
    found, (_, report) = harness.convolve(cubin(AHEAD=ahead), shape, **options)
    assert found < 3e-7 and bool(report.races) == bool(ahead)
    assert all("filter_transform" in str(race) for race in report.races)


def test_nan_and_infinity_reach_their_outputs_alone():
    """All other outputs are as right as without them, though all of a window have one power of two."""
    for bad in (np.nan, np.inf):
        case = Case(1, 4, 20, 24, 40)
        clean = case.y()
        case.x[0, 3, 7, 3] = case.x[0, 0, 19, 23] = bad
        y = case.conv(kernel="fold")(case.x)
        wrong = {(r, c) for r, c in np.argwhere(~np.isfinite(y[0]).all(axis=0))}
        assert wrong == {(r + i, c + j) for r, c in ((7, 3), (19, 23)) for i in (-1, 0, 1) for j in (-1, 0, 1)
                         if r + i < 20 and c + j < 24}  # fmt: skip
        assert error(np.where(np.isfinite(y), y, clean), clean) < 5e-7


def test_numbers_of_any_size():
    """Very large, very small."""
    random = np.random.default_rng(5)
    for all_of_it, filters in ((1e15, 1e-10), (1e-25, 1e15), (1e10, 1), (1e35, 1e-10), (1e10, 1e-31)):
        x = random.standard_normal((1, 4, 9, 9), np.float32) * np.float32(all_of_it)
        w = random.standard_normal((20, 4, 3, 3), np.float32) * np.float32(filters)
        w[3] *= np.float32(1e-7)
        wanted = harness.exact(x, w, Shape(1, 4, 9, 9, 20), None, None)
        with Conv2d(w, kernel="fold") as conv:
            y = conv(x)
        for n in range(20):
            assert error(y[:, n], wanted[:, n]) < 5e-7, (all_of_it, filters, n)


def test_residual_in_its_own_memory():
    """``out`` may be residual itself: a single thread reads each number, and then writes it."""
    case = Case(1, 4, 9, 14, 64)
    conv, out = case.conv(kernel="fold"), case.residual.copy()
    wanted = conv(case.x, case.residual)
    assert np.array_equal(conv(case.x, out, out), wanted)


# ---- its words ---------------------------------------------------------------------------------------------------


def test_the_linter_finds_nothing():
    """No error, no warning. Three HMMA for each row of a filter, and eight positions of a warp's 32."""
    found = look(cubin(), str(SOURCE))
    assert not [one for one in found.findings if one.severity != "note"]
    (loop,) = (loop for loop in found.loops if "tensor" in loop.pipes)
    assert loop.pipes["tensor"] == 3 * 3 * 4


def test_room_on_an_sm():
    """For two blocks."""
    (one,) = (one for one in cubin().kernels if one.name == MAIN)
    main, of = FOLD.kernels[MAIN], arch("sm_90")
    assert main.an_sm == 2 and 2 * 256 * -(-one.registers // 8) * 8 <= 65536
    assert 2 * (main.shared + 1024 + of.shared_reserved) <= of.shared_per_sm


def test_a_block_alone():
    """Where there are no more of them than SMs: two find no room on one."""
    def shared(n, sms):
        (one,) = launch.launches(sizes.Shape(n, 4, 64, 64, 320, kernel=FOLD.kernel(MAIN)), sms)
        return one.grid, one.shared

    of = arch("sm_90")
    assert shared(1, 132)[0] == (64, 2, 1) and of.shared_per_sm // 2 <= shared(1, 132)[1] <= of.shared_optin - 1024
    assert shared(1, 128) == shared(1, 132) and shared(1, 127)[1] == shared(2, 132)[1] == FOLD.kernels[MAIN].shared


def test_parameters():
    with pytest.raises(AsmError, match="AHEAD=2: there are 1, 0"):
        cubin(AHEAD=2)


# ---- when it is taken --------------------------------------------------------------------------------------------


def test_tiles():
    """The fewest blocks that cover y: 64 positions, rows of 32 at most, so that a window of 128 has all they see."""
    for p, q in ((64, 64), (14, 14), (1, 1), (7, 200), (300, 2), (28, 28)):
        shape = sizes.Shape(2, 4, p, q, 330, kernel=FOLD.kernel(MAIN))
        rows, columns = shape.tile
        assert columns <= min(q, 32) and rows == 64 // columns and (rows + 2) * columns <= 128
        assert shape.blocks == (2 * -(-p // rows) * -(-q // columns), 3)
    assert sizes.Shape(1, 4, 64, 64, 320, kernel=FOLD.kernel(MAIN)).tile == (2, 32)


def test_what_there_is_not():
    with pytest.raises(LaunchError, match="is for at most 5 channels, which are not split"):
        sizes.Shape(1, 6, 9, 9, 64, kernel=FOLD.kernel(MAIN))
    sizes.Shape((1 << 18) - 1, 4, 64, 8, 1, kernel=FOLD.kernel(MAIN))
    with pytest.raises(LaunchError, match="counts to 2097152 tiles, not to"):
        sizes.Shape(1 << 18, 4, 64, 8, 1, kernel=FOLD.kernel(MAIN))
    with pytest.raises(LaunchError, match="cannot be split into 2"):
        Case(1, 4, 9, 9, 8).conv(kernel="fold", splits=2)
    with pytest.raises(LaunchError, match="^the kernel 'fold' is for at most 5 channels, not for 7"):
        Case(1, 7, 9, 9, 8).conv(kernel="fold", device="cpu")
    with pytest.raises(LaunchError, match="the kernel 'fold' is for sm_90, sm_90a, not for sm_80"):
        Kernels.of("sm_80", "fold")


def test_which_are_compared():
    hopper = Kernels.of("sm_90")
    for c, k, layout, able in (
        (4, 320, "NCHW", True), (5, 1, "NCHW", True), (6, 64, "NCHW", False), (4, 64, "NHWC", False),
    ):  # fmt: skip
        assert (FOLD.kernel(MAIN) in hopper.every(sizes.Shape(1, c, 9, 9, k, layout=layout))) == able


@pytest.fixture
def driver(install, monkeypatch):  # noqa: F811
    yield from preferring(install, monkeypatch, MAIN)


def test_taken_on_a_gpu(driver):
    """In NCHW, unless one asks for something else."""
    case = Case(1, 4, 8, 9, 40)
    with case.conv() as conv:
        assert error(conv(Buffer.of(case.x), Buffer.of(case.residual)).numpy(), case.y(residual=True)) < 1e-6
    assert driver.launches[-1][0] == MAIN
    with case.conv(splits=1) as conv:
        conv(Buffer.of(case.x))
    assert driver.launches[-1][0].startswith("winograd")


def test_a_schedule_that_was_found(driver, monkeypatch):
    """For a shape of x of a kernel that is asked for by its name, which has it as another that is chosen."""
    own, found = (Kernels.of("sm_90", "fold", given).load("cuda:0") for given in ({}, {"AHEAD": 0}))
    case, asked, module, queue = Case(1, 4, 8, 9, 10), [], type(own), type(own).queue_of_tuples
    monkeypatch.setattr(tuned, "best", lambda gpu, kernels: {sizes.Shape(1, 4, 8, 9, 10): {"AHEAD": 0}})
    monkeypatch.setattr(module, "queue_of_tuples", lambda self, *a, **b: asked.append(self) or queue(self, *a, **b))
    with case.conv(kernel="fold", device="cuda:0") as conv:
        assert error(conv(Buffer.of(case.x)).numpy(), case.y()) < 1e-6
        conv(Buffer((2, 4, 8, 9)))
    assert own is not found and asked == [found, found, own, own]  # queued in two ways


def test_as_a_layer():
    """By name, on the CPU device."""
    case = Case(2, 3, 6, 7, 5)
    conv = case.conv(bias=True, relu=True, kernel="fold")
    assert error(conv(case.x, case.residual), case.y(bias=True, residual=True, relu=True)) < 1e-6
