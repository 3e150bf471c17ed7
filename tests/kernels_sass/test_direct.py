"""Direct convolution, conv/methods/direct.sass: its words, what it computes on the CPU device, and when it is
taken.

TURINGAS_SHAPES=200 takes that many random shapes instead of a few.
"""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

import turingas
from kernels_sass.conv import Conv2d, cost, launch, tuned
from kernels_sass.conv import shape as sizes
from kernels_sass.conv.code import Kernels
from kernels_sass.conv.method import FOLDER
from kernels_sass.conv.methods.direct import DIRECT
from kernels_sass.conv.methods.hopper import HOPPER
from kernels_sass.conv.methods.small import SMALL
from loader.cuda import Buffer
from tests.kernels_sass import checked, harness
from tests.kernels_sass.cases import Case, error
from tests.kernels_sass.checked import SHAPES
from tests.kernels_sass.harness import LAYOUTS, Shape
from tests.kernels_sass.preferring import costing, preferring
from turingas.check.command import look
from turingas.errors import AsmError, LaunchError
from turingas.isa.instruction import instruction
from turingas.isa.isa import instruction_set

SOURCE = FOLDER / "direct.sass"
ARCHS = [name for name in DIRECT.archs if name != "sm_87"]  # which issues as sm_86
both = pytest.mark.parametrize("filters", [8, 4])


def cubin(arch, filters):
    return checked.cubin(DIRECT.kernel(f"direct{filters}"), arch)


def convolve(arch, filters, shape, **options):
    return checked.convolve(DIRECT.kernel(f"direct{filters}"), shape, arch, **options)


# ---- what it computes --------------------------------------------------------------------------------------------


@pytest.mark.sample(4)
@both
@pytest.mark.parametrize(("arch", "shape", "groups"), [
    ("sm_80", Shape(1, 3, 9, 7, 13), 0),
    ("sm_86", Shape(2, 1, 10, 33, 17, bias=True, relu=True), 1),            # several groups a block, several blocks
    ("sm_89", Shape(5, 7, 17, 3, 16, layout="CHWN", ni=5, residual=True), 1),
    ("sm_90a", Shape(3, 4, 8, 8, 24, pad=0, layout="NHWC", bias=True, residual=True, relu=True), 2),
    ("sm_90", Shape(1, 5, 3, 3, 1, filter_layout="CRSK"), 0),               # four channels, and one more
    ("sm_90", Shape(1, 30, 5, 5, 3, splits=4, layout="CHWN", bias=True), 0),
    ("sm_90", Shape(1, 11, 9, 5, 20, splits=1, residual=True), 1),          # all buffers, one group after another
    ("sm_90", Shape(1, 16, 5, 5, 12, splits=2), 1),                         # groups and splits
    ("sm_90", Shape(1, 1, 1, 1, 1), 0),
])  # fmt: skip
def test_against_float64(arch, shape, groups, filters):
    assert convolve(arch, filters, shape, groups=groups) < 1e-6


@pytest.mark.sample(2)
@pytest.mark.parametrize("seed", range(SHAPES))
def test_random_shapes(seed):
    made = random.Random(seed)
    layout = LAYOUTS[seed % 3]
    n, pad = made.randint(1, 5), made.randint(0, 1)
    h, w = (made.randint(3 - 2 * pad, 19) for _ in "hw")
    shape = Shape(n, made.randint(1, 9), h, w, made.randint(1, 20), pad, layout, ni=n if layout == "CHWN" else 1,
                  bias=seed % 2 > 0, residual=seed % 5 > 2, relu=seed % 3 > 0)  # fmt: skip
    options = {"groups": made.randint(0, 1), "shift": made.randint(0, 3), "around": made.choice((None, np.nan, 1e30))}
    assert convolve(ARCHS[seed % len(ARCHS)], made.choice((8, 4)), shape, seed=seed, **options) < 1e-6


def test_nan_and_infinity_stay():
    """ReLU of NaN is NaN; what is outside of the image is 0, whatever lies there."""
    x, w = np.zeros((1, 1, 1, 4), np.float32), np.ones((2, 1, 3, 3), np.float32)
    x[..., 0], x[..., 3], w[1] = np.nan, np.inf, -1
    y = Conv2d(w, activation="relu", kernel="direct")(x)
    assert np.array_equal(y[0, :, 0], [[np.nan, np.nan, np.inf, np.inf], [np.nan, np.nan, 0, 0]], equal_nan=True)


def test_integers_are_exact():
    random = np.random.default_rng(0)
    x, w = (random.integers(-9, 9, size).astype("f4") for size in ((2, 6, 9, 9), (9, 6, 3, 3)))
    wanted = harness.exact(x, w, Shape(2, 6, 9, 9, 9), None, None)
    assert np.array_equal(Conv2d(w, kernel="direct")(x), wanted)


# ---- its words ---------------------------------------------------------------------------------------------------


GLOBAL = {"LDG", "STG", "LDGSTS", "UBLKCP", "RED", "ATOMG"}


@pytest.mark.parametrize(("source", "schedule"), [
    ("hopper", {}), ("hopper", {"FILTERS": 32}), ("hopper", {"MATH": "ffma"}), ("direct", {}),
    ("direct", {"FILTERS": 4}),
])  # fmt: skip
def test_no_memory_before_acqbulk(source, schedule):
    """A kernel that begins early lets the next one begin, and each role of its warps waits for the one before it, ahead
    of what it does to global memory."""
    for kernel in Kernels.of("sm_90", source, schedule).cubin.kernels:
        names = [instruction(instruction_set("sm_90"), word, 16 * n).base for n, word in enumerate(kernel.words)]
        assert "PREEXIT" in names, kernel.name
        starts = [0] + [n for n, name in enumerate(names) if name == "USETMAXREG"] + [len(names)]
        roles = [names[first:last] for first, last in zip(starts, starts[1:])]
        touch = [role for role in roles if GLOBAL & set(role)]
        assert len(touch) == (2 if len(roles) > 1 else 1), kernel.name  # those that fetch and store
        for role in touch:
            assert "ACQBULK" in role and not GLOBAL & set(role[: role.index("ACQBULK")]), kernel.name


@pytest.mark.sample(4)
@both
@pytest.mark.parametrize("arch", ARCHS)
def test_the_linter_finds_nothing(arch, filters):
    """No error, no warning; in a step, no bank conflict."""
    found = look(cubin(arch, filters), str(SOURCE))
    assert not [one for one in found.findings if one.severity != "note"]
    (step,) = (loop for loop in found.loops if loop.math == "FFMA")
    assert step.pipes["fma"] == 72 * filters and step.conflicts == 0


@pytest.mark.parametrize(("file", "least"), [
    ("direct.sass", 80), ("nhwc.sass", 80), ("few.sass", 80), ("winograd_sm90.sass", 90)
])
def test_for_newer_architectures(file, least):
    text = SOURCE.with_name(file).read_text()
    with pytest.raises(AsmError, match=f"this is for sm_{least} and later, not for sm_75: say --arch sm_90"):
        turingas.assemble(text, "sm_75", include=[str(SOURCE.parent)], filename=file)


def test_registers():
    """For three blocks an SM, and four."""
    for filters, most in ((8, 168), (4, 128)):
        (main,) = (one for one in cubin("sm_90", filters).kernels if one.name == f"direct{filters}")
        assert main.registers <= most and 65536 // (128 * most) == DIRECT.kernels[f"direct{filters}"].an_sm


# ---- when it is taken --------------------------------------------------------------------------------------------


def test_where_it_may_win():
    """On Hopper, with few channels or few filters, not in NHWC, and where nobody asked for something else."""
    def names(every):
        return [one.name for one in every]

    hopper = Kernels.of("sm_90")
    narrow = [name for name, one in SMALL.kernels.items() if one.filters == 32]
    for c, k, layout, *wanted in (
        (3, 64, "NCHW", "direct8", "fold160x64"), (7, 9, "CHWN", "direct8"),
        (320, 4, "NCHW", "direct4", "few4", *narrow), (64, 5, "CHWN", "direct8"), (8, 64, "NCHW"),
        (64, 9, "NCHW", *narrow), (7, 64, "NCHW", "direct8"), (3, 64, "NHWC", "nhwc3"),
        (4, 3, "NHWC", "nhwc4", "few3"), (5, 64, "NHWC"), (64, 6, "NHWC", "few8"),
    ):  # fmt: skip
        shape = sizes.Shape(1, c, 9, 9, k, layout=layout)
        assert names(hopper.every(shape)) == ["winograd", "winograd32", *wanted], shape
        others = Kernels.of("sm_75"), Kernels.of("sm_90", "paper"), Kernels.of("sm_90", schedule={"MATH": "tf32x3"})
        assert all({*names(one.every(shape))} <= {"winograd", "winograd32"} for one in others)
    assert names(hopper.every()) == ["winograd", "winograd32"]
    assert names(Kernels.of("sm_90", "direct").every(shape)) == ["direct8"]


def test_few_channels_are_summed_up_at_once():
    """Errors of long sums: no more channels than MANY, else it is not taken, unless it is asked for by name."""
    def splits(c, kernel):
        return [one.splits for one in cost.ways(sizes.Shape(1, c, 9, 9, 4), (kernel,))]

    eight, four = DIRECT.kernel("direct8"), DIRECT.kernel("direct4")
    assert splits(128, four) == [1, 2, 4, 8, 16] and splits(512, four) == [4, 8, 16]
    assert splits(512, HOPPER.kernel("winograd"))[0] == 1
    assert splits(2048, eight) == [16] and splits(2056, eight) == splits(1000, eight) == []  # 125 steps
    for c, k, wanted in ((2048, 8, DIRECT), (4096, 8, HOPPER)):
        every = *map(HOPPER.kernel, HOPPER.kernels), eight
        assert cost.fastest(sizes.Shape(32, c, 32, 32, k), 132, every).method is wanted
    assert cost.fastest(sizes.Shape(8, 1000, 64, 64, 4), 132, (four,)).splits == 1
    assert cost.split(sizes.Shape(1, 256, 9, 9, 4), "cpu", (eight,)).splits == 1  # as docs/conv2d.md has it
    assert cost.fastest(sizes.Shape(128, 256, 128, 128, 256), 132, (eight,)).splits == 1  # partial results > 4 GiB


def test_offsets_of_32_bits():
    """The column behind x, up to which a thread counts, has a place in them too."""
    large = sizes.Shape(33, 7, 993, 4681, 7, layout="CHWN", kernel=DIRECT.kernel("direct8"))
    size, column = 4 * math.prod(large.x_shape), 4 * large.x_strides[3]
    assert size < sizes.LIMIT <= size - 4 + column  # where off2 is in the last row's last strip but one
    with pytest.raises(LaunchError, match="^x or y of 4 GiB or more"):
        list(large.parts())
    assert len(list(sizes.Shape(32, 7, 993, 4681, 7, layout="CHWN", kernel=DIRECT.kernel("direct8")).parts())) == 1


def test_groups_of_filters():
    """Few tiles: a block for each group; many: blocks that take several, of one part of the channels."""
    def grid(n, c, size, k, splits=1):
        shape = sizes.Shape(n, c, size, size, k, splits=splits, kernel=DIRECT.kernel("direct8"))
        return launch.launches(shape, 132)[0].grid

    assert grid(1, 3, 224, 64) == (49, 8, 1)
    assert grid(32, 3, 224, 64) == (1568, 2, 1) and grid(128, 3, 224, 64) == (6272, 1, 1)
    assert grid(8, 64, 64, 20, 2) == (32, 6, 1) and grid(128, 64, 112, 20, 4) == (1568, 4, 1)


@pytest.fixture
def driver(install, monkeypatch):
    costing(monkeypatch, "fold160x64", step=1e3)  # another that takes few channels
    yield from preferring(install, monkeypatch, "direct8")


def test_taken_on_a_gpu(driver, monkeypatch):
    """Both kernels' filters are there, and each shape of x has what is fastest; what one asks for is what one gets."""
    case = Case(1, 3, 8, 9, 10)
    x, residual = Buffer.of(case.x), Buffer.of(case.residual)

    def called(x, **more):
        driver.launches.clear()
        conv = case.conv(**more)
        y = conv(x, residual)
        assert error(y.numpy(), case.y(residual=True)) < 1e-6
        return conv, [name for name, *_ in driver.launches]

    conv, names = called(x)
    assert names == ["filter_transform"] * 3 + ["direct8"]
    assert driver.early == 1  # the filters' do not begin early
    costing(monkeypatch, "direct8", step=1e3)
    conv(Buffer((2, 3, 8, 9)), out=Buffer((2, 10, 8, 9)))
    assert driver.launches[-1][0] in ("winograd", "winograd32")
    freed = driver.calls["cuMemFree"]
    conv.close()
    assert driver.calls["cuMemFree"] == freed + 3
    for more in ({"kernel": "hopper"}, {"schedule": {}}, {"splits": 1}):
        costing(monkeypatch, "direct8", step=1e-3)
        assert {"direct8"}.isdisjoint(called(x, **more)[1]), more
    assert called(x, kernel="direct")[1] == ["filter_transform", "direct8"]
    before = driver.early
    assert called(x, kernel="paper")[1] == ["filter_transform", "winograd"]
    assert driver.early == before
    few = Case(1, 3, 8, 9, 4)
    with few.conv(kernel="direct", device="cuda:0") as conv:
        assert error(conv(x).numpy(), few.y()) < 1e-6 and driver.launches[-1][0] == "direct4"


def test_beside_a_schedule_that_was_found(driver, monkeypatch):
    """A schedule of Hopper's kernel, from the file, leaves the choice between that and "direct"."""
    case = Case(1, 3, 8, 9, 10)
    shape = sizes.Shape(1, 3, 8, 9, 10)
    monkeypatch.setattr(tuned, "best", lambda gpu, kernels: {shape: {"YIELD": "nvcc8"}})
    x = Buffer.of(case.x)
    assert error(case.conv()(x).numpy(), case.y()) < 1e-6 and driver.launches[-1][0] == "direct8"
    costing(monkeypatch, "direct8", step=1e3)
    assert error(case.conv()(x).numpy(), case.y()) < 1e-6 and driver.launches[-1][0].startswith("winograd")
    monkeypatch.setattr(tuned, "best", lambda gpu, kernels: {shape: {"FILTERS": 32}})
    costing(monkeypatch, "winograd32", job=1e3)  # it would not be chosen
    assert error(case.conv()(x).numpy(), case.y()) < 1e-6 and driver.launches[-1][0] == "winograd32"


def test_as_a_layer():
    """By name, on the CPU device; with a schedule, and with what there is not."""
    case = Case(2, 5, 6, 7, 11)
    y = case.conv(kernel="direct", splits=1)(case.x, case.residual)
    assert error(y, case.y(residual=True)) < 1e-6
    assert y.tobytes() == case.conv(kernel="direct", schedule={"FILTERS": 4})(case.x, case.residual).tobytes()
    with pytest.raises(LaunchError, match="^direct.sass has no parameter 'YIELD'\nhint: it has: FILTERS"):
        case.conv(kernel="direct", schedule={"YIELD": "nvcc8"})
    with pytest.raises(LaunchError, match="^the kernel 'direct' is for sm_80, .*, not for sm_75"):
        case.conv(kernel="direct", arch="sm_75")
    with pytest.raises(LaunchError, match=r"FILTERS=3: .*there are 8, 4"):
        case.conv(kernel="direct", schedule={"FILTERS": 3})
