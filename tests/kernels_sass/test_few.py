"""Direct convolution for few filters on tensor cores, conv/methods/few.sass: its words, what it computes on
the CPU device, and when it is taken.

TURINGAS_SHAPES=200 takes that many random shapes instead of a few.
"""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from kernels_sass.conv import Conv2d, code, launch
from kernels_sass.conv import shape as sizes
from kernels_sass.conv.method import FOLDER
from kernels_sass.conv.methods.few import FEW, FEWS
from loader.cuda import Buffer
from tests.kernels_sass import checked
from tests.kernels_sass.cases import Case, error
from tests.kernels_sass.checked import SHAPES
from tests.kernels_sass.harness import LAYOUTS, Shape
from tests.kernels_sass.preferring import costing, preferring
from turingas.check.command import look
from turingas.errors import AsmError, LaunchError

SOURCE = FOLDER / "few.sass"
ARCHS = [name for name in FEWS.archs if name != "sm_87"]  # which issues as sm_86
each = pytest.mark.parametrize("filters", FEW)


def cubin(arch, filters):
    return checked.cubin(FEWS.kernel(f"few{filters}"), arch)


def convolve(arch, filters, shape, **options):
    return checked.convolve(FEWS.kernel(f"few{filters}"), shape, arch, **options)


# ---- what it computes --------------------------------------------------------------------------------------------


@pytest.mark.sample(4)
@pytest.mark.parametrize(("arch", "filters", "shape", "columns"), [
    ("sm_90", 8, Shape(1, 8, 6, 6, 8), 6),
    ("sm_90", 4, Shape(1, 16, 9, 20, 4, bias=True, residual=True, relu=True), 20),
    ("sm_90", 3, Shape(2, 13, 20, 17, 3, layout="NHWC", bias=True), 14),           # channels beyond the last, blocks
    ("sm_89", 8, Shape(1, 30, 25, 40, 7, pad=0, layout="NHWC", residual=True), 38),
    ("sm_90a", 8, Shape(1, 32, 10, 10, 6, splits=4, bias=True, relu=True), 10),
    ("sm_86", 4, Shape(1, 16, 10, 10, 4, splits=2, layout="NHWC", residual=True), 3),
    ("sm_80", 3, Shape(3, 40, 7, 5, 2, splits=1, layout="CHWN", relu=True), 83),   # a row a block
    ("sm_90", 3, Shape(1, 1, 9, 8, 1, pad=0, filter_layout="CRSK"), 1),
    ("sm_90", 3, Shape(1, 24, 5, 5, 3, splits=1), 1),
])  # fmt: skip
def test_against_float64(arch, filters, shape, columns):
    assert convolve(arch, filters, shape, columns=columns) < 1e-6


@pytest.mark.sample(2)
@pytest.mark.parametrize("seed", range(SHAPES))
def test_random_shapes(seed):
    of = random.Random(seed)
    filters, flag = of.choice(FEW), lambda: of.random() < 0.5
    n, c, h, w, k = of.randint(1, 3), of.randint(1, 40), of.randint(3, 24), of.randint(3, 36), of.randint(1, filters)
    splits = of.choice([one for one in (1, 2, 4) if -(-c // 8) % one == 0])
    more = {"bias": flag(), "residual": flag(), "relu": flag(), "pad": of.randint(0, 1), "layout": of.choice(LAYOUTS)}
    shape = Shape(n, c, h, w, k, splits=splits, **more)
    columns, shift = of.randint(1, 83), of.randint(0, 3)
    assert convolve(of.choice(ARCHS), filters, shape, seed=seed, shift=shift, columns=columns) < 1e-6, (shape, columns)


@each
def test_what_lies_around_an_image_is_not_read(filters):
    """NaN in rows and columns beyond the image, and behind it."""
    assert convolve("sm_90", filters, Shape(2, 9, 17, 15, filters, layout="NHWC"), around=math.nan, columns=9) < 1e-6


def test_nan_reaches_its_outputs_alone():
    case = Case(2, 11, 20, 30, 8, layout="NHWC")
    case.x[0, 5, 7, 3] = case.x[1, 18, 29, 10] = np.nan
    y = case.conv(kernel="few")(case.x)
    wrong = {(n, r, c) for n, r, c, k in np.argwhere(~np.isfinite(y))}
    assert wrong == {(n, r + i, c + j) for n, r, c in ((0, 5, 7), (1, 18, 29)) for i in (-1, 0, 1) for j in (-1, 0, 1)
                     if r + i < 20 and c + j < 30}  # fmt: skip


# ---- its words ---------------------------------------------------------------------------------------------------


@pytest.mark.sample(5)
@each
@pytest.mark.parametrize("arch", ARCHS)
def test_the_linter_finds_nothing(arch, filters):
    """No error, no warning. Three HMMA for each 16 inputs and 8 columns, 4 of the former: of as many steps as there are
    sets of inputs."""
    found = look(cubin(arch, filters), str(SOURCE))
    assert not [one for one in found.findings if one.severity != "note"]
    steps = [loop for loop in found.loops if "tensor" in loop.pipes]
    sets = 3 if filters == 4 else 2
    assert [loop.pipes["tensor"] for loop in steps] == [12 * -(-9 * filters // 8) * sets]


@each
def test_room_on_an_sm(filters):
    (main,) = (one for one in cubin("sm_90", filters).kernels if one.name == f"few{filters}")
    blocks = FEWS.kernels[main.name].an_sm
    assert 65536 // (128 * -(-main.registers // 8) * 8) == blocks
    assert blocks * (FEWS.kernels[main.name].shared + 1024) <= 227 * 1024


def test_parameters():
    with pytest.raises(AsmError, match="FILTERS=5: there are 8, 4, 3"):
        checked.cubin(FEWS.kernel("few3"), FILTERS=5)


# ---- when it is taken --------------------------------------------------------------------------------------------


def test_tiles():
    """Of 256 inputs at most, with those around the outputs; the fewest that cover y."""
    for p, q in ((64, 64), (128, 128), (1, 1), (7, 200), (300, 2), (13, 83)):
        shape = sizes.Shape(2, 64, p, q, 4, kernel=FEWS.kernel("few4"))
        rows, columns = shape.tile
        assert rows >= 1 and (rows + 2) * (columns + 2) <= 256 and rows == 256 // (columns + 2) - 2
        assert shape.tiles == 2 * -(-p // rows) * -(-q // columns) == shape.blocks[0] and shape.blocks[1] == 1
    assert sizes.Shape(1, 64, 64, 64, 4, kernel=FEWS.kernel("few4")).tile == (8, 23)
    split = sizes.Shape(3, 64, 9, 9, 3, layout="CHWN", kernel=FEWS.kernel("few3"), splits=4)
    assert split.written.k == 16 and split.tiles == 3 and split.ni == 1
    main, sums = launch.launches(split, 132, relu=True)
    assert (main.kernel, main.grid, main.threads, main.shared) == ("few3", (3, 4, 1), 128, 33280)
    assert sums.kernel.startswith("add_splits")
    with pytest.raises(LaunchError, match="^the kernel 'few3' is for at most 3 filters, not for 4"):
        sizes.Shape(1, 64, 9, 9, 4, kernel=FEWS.kernel("few3"))


@pytest.fixture
def driver(install, monkeypatch):
    yield from preferring(install, monkeypatch, *FEWS.kernels)


def test_taken_on_a_gpu(driver, monkeypatch):
    """In NCHW and NHWC, and not where one asks for something else, or where the model finds another to be faster."""
    for k, layout, kernel in ((8, "NCHW", "few8"), (4, "NHWC", "few4"), (1, "NHWC", "few3")):
        case = Case(1, 16, 8, 9, k, layout=layout)
        x, residual = Buffer.of(case.x), Buffer.of(case.residual)
        with case.conv() as conv:
            assert error(conv(x, residual).numpy(), case.y(residual=True)) < 1e-6
        assert kernel in [name for name, *_ in driver.launches[-2:]], driver.launches
    with case.conv(splits=1) as conv:
        conv(x)
    assert driver.launches[-1][0].startswith("winograd")
    costing(monkeypatch, "few3", step=1e3)
    with case.conv() as conv:
        conv(x)
    assert not driver.launches[-1][0].startswith("few")


def test_as_a_layer():
    """By name, on the CPU device, with splits; and what there is not, which is told at once."""
    case = Case(2, 16, 6, 7, 5, layout="NHWC")
    for splits in (None, 2):
        conv = case.conv(bias=True, relu=True, kernel="few", splits=splits)
        assert error(conv(case.x, case.residual), case.y(bias=True, residual=True, relu=True)) < 1e-6
    w = np.zeros((9, 8, 3, 3), np.float32)
    for device in ("cpu", None):
        with pytest.raises(LaunchError, match="^the kernel 'few' is for at most 8 filters, not for 9"):
            Conv2d(w, kernel="few", device=device)
        with pytest.raises(LaunchError, match="^the kernel 'few4' is for at most 4 filters, not for 5"):
            Conv2d(w[:5].copy(), kernel="few", schedule={"FILTERS": 4}, device=device)
        for more in ({"kernel": ["few"]}, {"kernel": "few", "schedule": {3: 4}}, {"kernel": "few", "splits": 1.0}):
            with pytest.raises(LaunchError):
                Conv2d(w[:5].copy(), device=device, **more)


def test_partial_results_of_few_filters():
    """Not of 64: what they take of 4 GiB is reckoned by the kernel's own block."""
    conv = Conv2d(np.zeros((1, 16, 3, 3), np.float32), kernel="few", splits=2)
    shape = conv._plan(-1, (1, 16, 4096, 4096)).shape
    assert shape.kernel.name == "few3" and 4 * shape.floats == 1 << 29


def test_alone():
    """Of its source there is one kernel for a schedule, whoever asks; and a kernel that there is not is told of."""
    assert list(code.Kernels.of("sm_90", "few").every()) == [FEWS.kernel("few8")]
    with pytest.raises(LaunchError, match="^few.sass has no main kernel 'few5'\nhint: it has: few8, few4, few3"):
        FEWS.kernel("few5")
