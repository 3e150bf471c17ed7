"""Direct convolution for up to 5 channels on tensor cores, conv/methods/fold.sass: its words, what it computes on the
CPU device, and when it is taken.

TURINGAS_SHAPES=200 takes that many random shapes instead of a few.
"""

from __future__ import annotations

import random

import pytest

from kernels_sass.conv import launch, tuned
from kernels_sass.conv import shape as sizes
from kernels_sass.conv.code import Kernels
from kernels_sass.conv.method import FOLDER
from kernels_sass.conv.methods.fold import FOLD
from loader.cuda import Buffer
from tests.kernels_sass import checked
from tests.kernels_sass.cases import Case, error
from tests.kernels_sass.checked import SHAPES
from tests.kernels_sass.harness import LAYOUTS, Shape
from tests.kernels_sass.preferring import preferring
from turingas.check.command import look
from turingas.errors import AsmError, LaunchError
from turingas.isa.arch import arch

SOURCE = FOLDER / "fold.sass"
KERNEL = FOLD.kernel("fold160x64")


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
    assert checked.convolve(KERNEL, shape, columns=columns) < 3e-7


@pytest.mark.sample(2)
@pytest.mark.parametrize("seed", range(SHAPES))
def test_random_shapes(seed):
    of = random.Random(seed)
    flag = lambda: of.random() < 0.5  # noqa: E731
    more = {"bias": flag(), "residual": flag(), "relu": flag(), "pad": of.randint(0, 1), "layout": of.choice(LAYOUTS)}
    n, c, h, w = of.randint(1, 3), of.randint(1, 5), of.randint(3, 15), of.randint(3, 40)
    shape = Shape(n, c, h, w, of.randint(1, 200), **more)
    columns = of.randint(1, min(32, shape.q))
    found = checked.convolve(KERNEL, shape, of.choice(FOLD.archs), seed=seed, shift=of.randint(0, 3), columns=columns)
    assert found < 5e-7, (shape, columns)


# ---- its words ---------------------------------------------------------------------------------------------------


def test_the_linter_finds_nothing():
    """No error, no warning. Three HMMA for each row of a filter, and eight positions of a warp's 32."""
    found = look(checked.cubin(KERNEL), str(SOURCE))
    assert not [one for one in found.findings if one.severity != "note"]
    (loop,) = (loop for loop in found.loops if "tensor" in loop.pipes)
    assert loop.pipes["tensor"] == 3 * 3 * 4


def test_room_on_an_sm():
    """For two blocks."""
    (one,) = (one for one in checked.cubin(KERNEL).kernels if one.name == KERNEL.name)
    main, of = KERNEL.block, arch("sm_90")
    assert main.an_sm == 2 and 2 * 256 * -(-one.registers // 8) * 8 <= 65536
    assert 2 * (main.shared + 1024 + of.shared_reserved) <= of.shared_per_sm


def test_a_block_alone():
    """Where there are no more of them than SMs: two find no room on one."""
    def shared(n, sms):
        (one,) = launch.launches(sizes.Shape(n, 4, 64, 64, 320, kernel=KERNEL), sms)
        return one.grid, one.shared

    of = arch("sm_90")
    assert shared(1, 132)[0] == (64, 2, 1) and of.shared_per_sm // 2 <= shared(1, 132)[1] <= of.shared_optin - 1024
    assert shared(1, 128) == shared(1, 132) and shared(1, 127)[1] == shared(2, 132)[1] == KERNEL.block.shared


def test_parameters():
    with pytest.raises(AsmError, match="AHEAD=2: there are 1, 0"):
        checked.cubin(KERNEL, AHEAD=2)


# ---- when it is taken --------------------------------------------------------------------------------------------


def test_tiles():
    """The fewest blocks that cover y: 64 positions, rows of 32 at most, so that a window of 128 has all they see."""
    for p, q in ((64, 64), (14, 14), (1, 1), (7, 200), (300, 2), (28, 28)):
        shape = sizes.Shape(2, 4, p, q, 330, kernel=KERNEL)
        rows, columns = shape.tile
        assert columns <= min(q, 32) and rows == 64 // columns and (rows + 2) * columns <= 128
        assert shape.blocks == (2 * -(-p // rows) * -(-q // columns), 3)
    assert sizes.Shape(1, 4, 64, 64, 320, kernel=KERNEL).tile == (2, 32)


def test_what_there_is_not():
    with pytest.raises(LaunchError, match="is for at most 5 channels, which are not split"):
        sizes.Shape(1, 6, 9, 9, 64, kernel=KERNEL)
    sizes.Shape((1 << 18) - 1, 4, 64, 8, 1, kernel=KERNEL)
    with pytest.raises(LaunchError, match="counts to 2097152 tiles, not to"):
        sizes.Shape(1 << 18, 4, 64, 8, 1, kernel=KERNEL)
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
        assert (KERNEL in hopper.every(sizes.Shape(1, c, 9, 9, k, layout=layout))) == able


@pytest.fixture
def driver(install, monkeypatch):
    yield from preferring(install, monkeypatch, KERNEL.name)


def test_taken_on_a_gpu(driver):
    """In NCHW, unless one asks for something else."""
    case = Case(1, 4, 8, 9, 40)
    with case.conv() as conv:
        assert error(conv(Buffer.of(case.x), Buffer.of(case.residual)).numpy(), case.y(residual=True)) < 1e-6
    assert driver.launches[-1][0] == KERNEL.name
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
