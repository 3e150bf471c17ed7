"""Direct convolution for few channels in NHWC, conv/methods/nhwc.sass: its words, what it computes on the CPU
device, and when it is taken.

TURINGAS_SHAPES=200 takes that many random shapes instead of a few.
"""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from kernels_sass.conv import Conv2d, launch
from kernels_sass.conv import shape as sizes
from kernels_sass.conv.code import Kernels
from kernels_sass.conv.method import FOLDER
from kernels_sass.conv.methods.nhwc import COLUMNS, NHWC, THIN
from loader.cuda import Buffer
from tests.kernels_sass import checked
from tests.kernels_sass.cases import Case, error
from tests.kernels_sass.checked import SHAPES
from tests.kernels_sass.harness import Shape
from tests.kernels_sass.preferring import costing, preferring
from turingas.check.command import look
from turingas.emulate import Device
from turingas.errors import AsmError, LaunchError

SOURCE = FOLDER / "nhwc.sass"
ARCHS = [name for name in NHWC.archs if name != "sm_87"]  # which issues as sm_86


def cubin(arch, channels):
    return checked.cubin(NHWC.kernel(f"nhwc{channels}"), arch)


def convolve(arch, shape, **options):
    return checked.convolve(NHWC.kernel(f"nhwc{shape.c}"), shape, arch, **options)


# ---- what it computes --------------------------------------------------------------------------------------------


def nhwc(*sizes, **options):
    return Shape(*sizes, layout="NHWC", **options)


@pytest.mark.sample(5)
@pytest.mark.parametrize(("arch", "columns", "shape"), [
    *(("sm_90", columns, nhwc(1, 3, 9, 7, 5, bias=True, residual=True, relu=True)) for columns in COLUMNS),
    ("sm_90", 16, nhwc(2, 3, 20, 40, 70, bias=True, relu=True)),      # several blocks, and filters beyond the last
    ("sm_86", 32, nhwc(1, 1, 17, 33, 64, pad=0, residual=True)),
    ("sm_89", 8, nhwc(1, 2, 5, 5, 33)),
    ("sm_90a", 32, nhwc(1, 4, 18, 34, 100, bias=True)),
    *(("sm_80", columns, nhwc(1, 3, 1, 1, 1)) for columns in COLUMNS),
    ("sm_90", 8, nhwc(3, 4, 3, 66, 32, pad=0, filter_layout="CRSK", residual=True, bias=True)),
    ("sm_90", 16, nhwc(2, 2, 35, 4, 65, relu=True)),
])  # fmt: skip
def test_against_float64(arch, columns, shape):
    assert convolve(arch, shape, columns=columns) < 1e-6


@pytest.mark.sample(2)
@pytest.mark.parametrize("seed", range(SHAPES))
def test_random_shapes(seed):
    of = random.Random(seed)
    pad, flag = of.randint(0, 1), lambda: of.random() < 0.5
    n, c, h, w, k = of.randint(1, 3), of.randint(1, 4), of.randint(3, 36), of.randint(3, 70), of.randint(1, 140)
    shape = nhwc(n, c, h, w, k, pad=pad, bias=flag(), residual=flag(), relu=flag())
    more = {"shift": of.randint(0, 3), "columns": of.choice(COLUMNS)}
    assert convolve(of.choice(ARCHS), shape, seed=seed, **more) < 1e-6, shape


def test_what_lies_around_an_image_is_not_read():
    """NaN in rows and columns beyond the image, and behind it."""
    assert convolve("sm_90", nhwc(2, 3, 17, 33, 8), around=math.nan) < 1e-6


def test_nan_and_infinity_reach_their_outputs_alone():
    module = Device("sm_90").load(cubin("sm_90", 1))
    x = np.ones((1, 20, 40, 1), np.float32)
    x[0, 5, 7], x[0, 15, 33] = np.nan, np.inf
    y, u = np.zeros((1, 20, 40, 64), np.float32), np.zeros(sizes.filter_floats(1, 64), np.float32)
    module.launch("filter_transform", 1, 256, [np.ones((64, 1, 3, 3), np.float32), u, 1, 64, 9, 9, 3, 1])
    shape = sizes.Shape(1, 1, 20, 40, 64, layout="NHWC", kernel=NHWC.kernel("nhwc1"))
    (one,) = launch.launches(shape, 132, relu=True)
    module.launch(one.kernel, one.grid, one.threads, [x, u, y, 0, 0, *one.numbers])
    wrong = np.argwhere(~np.isfinite(y[..., 0]))
    assert {(r, c) for _, r, c in wrong} == {(r + i, c + j) for r, c in ((5, 7), (15, 33))
                                             for i in (-1, 0, 1) for j in (-1, 0, 1)}  # fmt: skip
    assert np.isnan(y[0, 5, 7]).all() and np.isinf(y[0, 15, 33]).all()


# ---- its words ---------------------------------------------------------------------------------------------------


@pytest.mark.sample(6)
@pytest.mark.parametrize("channels", THIN)
@pytest.mark.parametrize("arch", ARCHS)
def test_the_linter_finds_nothing(arch, channels):
    """No error, no warning. 288 FFMA a channel, for 16 outputs of two filters."""
    found = look(cubin(arch, channels), str(SOURCE))
    assert not [one for one in found.findings if one.severity != "note"]
    (step,) = (loop for loop in found.loops if loop.math == "FFMA")
    assert 288 * channels <= step.pipes["fma"] <= 288 * channels + 32


def test_registers():
    """For three blocks an SM."""
    for channels in THIN:
        (main,) = (one for one in cubin("sm_90", channels).kernels if one.name == f"nhwc{channels}")
        assert main.registers <= 168 and 65536 // (128 * 168) == NHWC.kernels[main.name].an_sm


def test_parameters():
    with pytest.raises(AsmError, match="CHANNELS=5: there are 3, 1, 2, 4"):
        checked.cubin(NHWC.kernel("nhwc3"), CHANNELS=5)


# ---- when it is taken --------------------------------------------------------------------------------------------


def test_what_it_is_for():
    shape = sizes.Shape(2, 3, 40, 70, 65, layout="NHWC", kernel=NHWC.kernel("nhwc3"))
    assert shape.method.direct and shape.grid == (3, 9) and shape.blocks == (54, 2) and shape.splits == 1
    (one,) = launch.launches(shape, 132)
    assert (one.kernel, one.grid, one.threads, one.shared) == ("nhwc3", (54, 2, 1), 128, 0)
    for n, columns in ((1, 8), (8, 32), (32, 32)):  # VGG conv1_1
        assert sizes.Shape(n, 3, 224, 224, 64, layout="NHWC", kernel=NHWC.kernel("nhwc3")).tile == (16, columns)
    assert sizes.Shape(8, 4, 64, 64, 320, layout="NHWC", kernel=NHWC.kernel("nhwc4")).tile == (16, 16)
    for c, layout in ((4, "NHWC"), (3, "NCHW")):
        with pytest.raises(LaunchError, match=f"'nhwc3' is for 3 channels in NHWC, not for {c} in {layout}"):
            sizes.Shape(2, c, 40, 70, 65, layout=layout, kernel=NHWC.kernel("nhwc3"))


def test_offsets_of_32_bits():
    """A block counts from a row and a column before x; these have a place in 32 bits too."""
    n, h, w = 3, 1193, 100003
    shape = sizes.Shape(n, 3, h, w, 1, layout="NHWC")
    assert 4 * math.prod(shape.x_shape) < sizes.LIMIT < 4 * (math.prod(shape.x_shape) + sum(shape.x_strides[2:]))
    assert [part.n for _, part in shape.parts()] == [2, 1]


@pytest.fixture
def driver(install, monkeypatch):
    yield from preferring(install, monkeypatch, "nhwc")


def test_taken_on_a_gpu(driver, monkeypatch):
    """And not where one asks for something else, or where the model finds Winograd's to be faster."""
    for c in THIN:
        case = Case(1, c, 8, 9, 10, layout="NHWC")
        x, residual = Buffer.of(case.x), Buffer.of(case.residual)
        with case.conv() as conv:
            assert error(conv(x, residual).numpy(), case.y(residual=True)) < 1e-6
        assert driver.launches[-1][0] == f"nhwc{c}"
    with case.conv(splits=1) as conv:
        conv(x)
    assert driver.launches[-1][0].startswith("winograd")
    costing(monkeypatch, "nhwc", step=1e3)
    with case.conv() as conv:
        conv(x)
    assert driver.launches[-1][0].startswith("winograd")


def test_as_a_layer():
    """By name, on the CPU device; and what there is not, which is told at once."""
    case = Case(2, 4, 6, 7, 11, layout="NHWC")
    assert error(case.conv(kernel="nhwc")(case.x, case.residual), case.y(residual=True)) < 1e-6
    w, four = np.zeros((4, 5, 3, 3), np.float32), np.zeros((4, 4, 3, 3), np.float32)
    for device in ("cpu", None):
        with pytest.raises(LaunchError, match="^the kernel 'nhwc' is for at most 4 channels, not for 5"):
            Conv2d(w, kernel="nhwc", layout="NHWC", device=device)
        with pytest.raises(LaunchError, match="^the kernel 'nhwc4' is for 4 channels in NHWC, not for 4 in NCHW"):
            Conv2d(four, kernel="nhwc", device=device)
        with pytest.raises(LaunchError, match="^the kernel 'nhwc3' is for 3 channels in NHWC, not for 4 in NHWC"):
            Conv2d(four, kernel="nhwc", layout="NHWC", schedule={"CHANNELS": 3}, device=device)
        with pytest.raises(LaunchError, match="no kernel 'thin'\nhint: there are: paper, hopper, direct, nhwc, few"):
            Conv2d(w, kernel="thin", device=device)
    assert Kernels.of("sm_80", "nhwc", {"CHANNELS": 2}).main == NHWC.kernel("nhwc2")
