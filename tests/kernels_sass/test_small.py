"""Direct convolution for few images by clusters of small blocks, conv/methods/small.sass: its words, what it computes
on the CPU device, and when it is taken.

TURINGAS_SHAPES=200 takes that many random shapes instead of a few.
"""

from __future__ import annotations

import random
import re

import numpy as np
import pytest

import turingas
from kernels_sass.conv import cost, launch
from kernels_sass.conv import shape as sizes
from kernels_sass.conv.code import Kernels
from kernels_sass.conv.method import FOLDER
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
from turingas.isa.arch import arch

SOURCE = FOLDER / "small.sass"
MAINS = tuple(SMALL.kernels)
FULL = tuple(name for name, one in SMALL.kernels.items() if one.filters == 64)
FEW = tuple(name for name in MAINS if name not in FULL)      # for up to 32 filters
each = pytest.mark.parametrize("main", MAINS)


def cubin(main, **more):
    return checked.cubin(SMALL.kernel(main), **more)


def convolve(main, shape, **options):
    return checked.convolve(SMALL.kernel(main), shape, **options)


# ---- what it computes --------------------------------------------------------------------------------------------


@pytest.mark.sample(4)
@pytest.mark.parametrize(("main", "shape", "columns"), [
    ("small64x96", Shape(1, 16, 9, 9, 64), 9),
    ("small64x96", Shape(1, 40, 12, 22, 64, splits=2, bias=True), 22),                # four rows of 22
    ("small64x88", Shape(2, 19, 9, 9, 70, bias=True, relu=True, residual=True), 4),   # blocks, channels, filters beyond
    ("small64x88", Shape(1, 64, 10, 12, 64, splits=4, residual=True), 12),
    ("small64x88", Shape(1, 70, 8, 8, 33, splits=2, layout="NHWC", bias=True), 8),    # 2 and 3 times 16 channels
    ("small64x80", Shape(1, 40, 14, 14, 10, pad=0, relu=True), 12),
    ("small64x80", Shape(1, 128, 5, 5, 65, splits=8, layout="CHWN", bias=True), 5),
    ("small64x88", Shape(1, 150, 6, 7, 9), 7),           # ten times 16 channels: all slots and windows more than once
    ("small64x128", Shape(1, 48, 28, 28, 32, splits=2), 28),
    ("small64x128", Shape(1, 64, 9, 17, 40, splits=4, residual=True, filter_layout="CRSK"), 17),
    ("small32x64", Shape(1, 16, 16, 14, 32), 14),                                     # all positions are of rows
    ("small32x64", Shape(2, 19, 9, 9, 1, bias=True, relu=True, residual=True), 4),
    ("small32x64", Shape(1, 128, 8, 9, 31, splits=8, layout="NHWC", bias=True), 9),   # shares of 4 filters, to 8 blocks
    ("small32x64", Shape(1, 150, 6, 7, 9), 7),
    ("small32x64", Shape(1, 48, 7, 32, 70, splits=2, pad=0), 30),                     # the widest, in several blocks
    ("small32x128", Shape(1, 16, 17, 14, 32, residual=True), 14),
    ("small32x128", Shape(1, 70, 9, 15, 20, splits=4, layout="CHWN", pad=0), 13),
    ("small32x128", Shape(1, 150, 28, 28, 32, splits=2, relu=True, filter_layout="CRSK"), 28),
])  # fmt: skip
def test_against_float64(main, shape, columns):
    assert convolve(main, shape, columns=columns) < 3e-7


@pytest.mark.sample(2)
@pytest.mark.parametrize("seed", range(SHAPES))
def test_random_shapes(seed):
    of = random.Random(seed)
    main, flag = of.choice(MAINS), lambda: of.random() < 0.5
    n, c, h, w = of.randint(1, 3), of.randint(9, 120), of.randint(3, 15), of.randint(3, 40)
    splits = of.choice([one for one in (1, 2, 4, 8) if -(-c // 16) >= one])
    more = {"bias": flag(), "residual": flag(), "relu": flag(), "pad": of.randint(0, 1), "layout": of.choice(LAYOUTS)}
    shape = Shape(n, c, h, w, of.randint(1, 130), splits=splits, **more)
    given, beyond = SMALL.kernels[main].defines, 2 * (main in FULL)
    widest = (given["WINDOW"] - given["PIXELS"] - 4 - beyond) // 2      # what the last place of a filter sees
    columns = of.randint(1, min(widest, shape.q))
    found = convolve(main, shape, seed=seed, shift=of.randint(0, 3), columns=columns)
    assert found < 5e-7, (main, shape, columns)


@each
def test_what_is_stored_lies_in_all_banks(main):
    """No STS waits for another bank: of x in parts, of sums, of those of other columns."""
    shape, code = Shape(1, 32, 9, 9, 64, splits=2), cubin(main)
    _, (_, report) = harness.convolve(code, shape, shared=SMALL.kernels[main].shared, columns=9, counters=True)
    (words,) = (one.words for one in code.kernels if one.name == main)
    stores = np.array(["STS" in line for line in turingas.decode(words, "sm_90a")])
    counted = report.counters
    assert (counted.wavefronts == counted.ideal)[stores].all() and counted.wavefronts[stores].sum() > 500


OTHERS = {"DEPTH": 3}, {"DEPTH": 4}, {"MEET": "mbarriers"}, {"MEET": "mbarriers", "AHEAD": 0}


@pytest.mark.sample(4)
@pytest.mark.parametrize("more", OTHERS, ids=str)
@each
def test_the_same_bits(main, more):
    """However far ahead x is loaded, and however warps meet; six times 16 channels."""
    shape = Shape(1, 90, 6, 7, 9, splits=2 if main in FEW else 1, residual=True)
    assert convolve(main, shape, columns=7, more=more.items()) == convolve(main, shape, columns=7)


@pytest.mark.parametrize("how", ["barriers", "mbarriers"])
@pytest.mark.parametrize(("what", "instead", "told"), [
    ("    yield meet(MULTIPLYING)\n", '    yield ""\n', "LDS .* read after write"),
    ("FENCE.VIEW.ASYNC.S;\n        {meet(MULTIPLYING)}", "FENCE.VIEW.ASYNC.S;", "UBLKCP.S.S .* read after write"),
    ("FENCE.VIEW.ASYNC.S;\n        {meet(MULTIPLYING)}", "{meet(MULTIPLYING)}", "async proxy"),
    ("        {meet(SPLITTING)}\n", "", "LDS.128 .* read after write"),
])  # fmt: skip
def test_without_a_meeting_there_is_a_race(how, what, instead, told):
    """Or without the fence before it: of sums of other columns, in blocks of 32 filters, and of the largest number."""
    text, main = SOURCE.read_text(), "small32x64"
    assert text.count(what) == 1
    defines = {**SMALL.kernels[main].defines, "MEET": how}
    less = turingas.assemble(text.replace(what, instead), "sm_90a", defines, filename=str(SOURCE))
    shape, shared = Shape(1, 64, 9, 9, 32, splits=4), SMALL.kernels[main].shared
    _, (_, report) = harness.convolve(less, shape, shared=shared, races=True, columns=9)
    assert report.races and all(re.search(told, str(one)) for one in report.races)


@pytest.mark.parametrize(("left_out", "times", "told"), [
    (r" *\{meet\(ALL\)\} .*\n", 2, "HGMMA.* read after write"),
    (r' *yield wait\("filters".*\n', 1, "HGMMA.* read after write"),
    (r'wait\("got", [^)]*\), ', 1, "LDS .* read after write"),
    (r'"BAR\.SYNC 0x0;", (?=unless)', 1, "LDS .* read after write"),
    (r" *FENCE\.VIEW\.ASYNC\.S; +#.*\n", 1, "HGMMA.* async proxy"),
    (r"FENCE\.VIEW\.ASYNC\.S;\\n(?=WARPSYNC)", 1, "UBLKCP.S.S .* async proxy"),
])  # fmt: skip
def test_without_a_wait_there_is_a_race(left_out, times, told):
    """For windows, filters, sums of other blocks and of other warps; or without a fence in front of what reads them."""
    text, found = re.subn(left_out, "", SOURCE.read_text())
    main, shape = "small64x88", Shape(1, 48, 9, 9, 64, splits=2)
    less = turingas.assemble(text, "sm_90a", SMALL.kernels[main].defines, filename=str(SOURCE))
    _, (_, report) = harness.convolve(less, shape, shared=SMALL.kernels[main].shared, races=True, columns=9)
    assert found == times and any(re.search(told, str(one)) for one in report.races)


# ---- its words ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("more", [{}, {"MEET": "mbarriers"}, {"DEPTH": 4}], ids=str)
@each
def test_the_linter_finds_nothing(main, more):
    """No error, no warning. Three HGMMA for each place, of which blocks of 32 filters have three, and for 64 positions
    at a time if there are more than 96."""
    found = look(cubin(main, **more), str(SOURCE))
    assert not [one for one in found.findings if one.severity != "note"]
    (loop,) = (loop for loop in found.loops if "wgmma" in loop.pipes)
    assert loop.pipes["wgmma"] == (9 if main in FEW else 27) * (2 if main.endswith("x128") else 1)


@each
def test_room_on_an_sm(main):
    """For one block, so that none share one."""
    (one,) = (one for one in cubin(main).kernels if one.name == main)
    of = arch("sm_90a")
    assert 256 * -(-one.registers // 8) * 8 <= 65536
    assert of.shared_per_sm // 2 < SMALL.kernels[main].shared + 1024 <= of.shared_optin


@each
def test_mbarriers_in_the_place_of_barriers(main):
    """What is left is barrier 0, of all warps in one place."""
    for how, barriers in (("barriers", {0, 1, 2, 3, *[4] * (main in FEW)}), ("mbarriers", {0})):
        (one,) = (one for one in cubin(main, MEET=how).kernels if one.name == main)
        text = "\n".join(turingas.decode(one.words, "sm_90a"))
        assert {int(number, 16) for number in re.findall(r" BAR\.\w+(?:\.\w+)* (0x\w+)", text)} == barriers


@pytest.mark.parametrize("depth", [2, 3, 4])
@each
def test_each_time_is_waited_for_alone(main, depth):
    """What is loaded ahead has a scoreboard for each of the times that there are registers for. Of four channels here
    the last one's."""
    (one,) = (one for one in cubin(main, DEPTH=depth).kernels if one.name == main)
    text, a_time = "\n".join(turingas.decode(one.words, "sm_90a")), SMALL.kernels[main].defines["WINDOW"] // 8
    found = {(int(board), int(to)) for board, to in re.findall(r"^--:\d:(\d):\S+ .*LDG\.E R(\d+), .*UR14", text, re.M)}
    assert found == {(time, 24 + a_time * time + n) for time in range(depth) for n in range(3, a_time, 4)}


def test_parameters():
    with pytest.raises(AsmError, match="DEPTH=5: there are 2, 3, 4"):
        cubin("small64x88", DEPTH=5)
    with pytest.raises(AsmError, match="MEET=bar: there are barriers, mbarriers"):
        cubin("small64x88", MEET="bar")
    with pytest.raises(AsmError, match="PIXELS=90: there are 96, 88, 80, 64, 128"):
        cubin("small64x88", PIXELS=90)
    with pytest.raises(AsmError, match="there are no blocks of FILTERS=64, PIXELS=128, WINDOW=160"):
        cubin("small64x96", PIXELS=128)
    told = "blocks of FILTERS=32, PIXELS=88, WINDOW=160: with so many filters PIXELS and WINDOW are 64, 128; 128, 192\n"
    with pytest.raises(AsmError, match=told):
        cubin("small64x88", FILTERS=32)
    with pytest.raises(AsmError, match="this is for sm_90a, which has HGMMA, not for sm_90"):
        turingas.assemble(SOURCE.read_text(), "sm_90", filename=str(SOURCE))


def test_assembled_for_what_has_hgmma():
    """Whatever runs sm_90 runs it; not so an architecture that has no such variant."""
    assert Kernels.of("sm_90", "small").cubin.arch == Kernels.of("sm_90a", "small").cubin.arch == "sm_90a"
    with pytest.raises(LaunchError, match="the kernel 'small' is for sm_90, sm_90a, not for sm_80"):
        Kernels.of("sm_80", "small")


@pytest.mark.parametrize("schedule", [{"PIXELS": 128}, {"WINDOW": 192}])
def test_blocks_that_there_are_not(schedule):
    """A window that is too small for its tile would give wrong sums."""
    with pytest.raises(LaunchError, match="there are no blocks of"):
        Case(1, 32, 20, 23, 64).conv(kernel="small", schedule=schedule, device="cpu")


# ---- when it is taken --------------------------------------------------------------------------------------------


def test_tiles():
    """The fewest blocks that cover y; the window has room for what the last place of a filter sees."""
    for main in MAINS:
        given = SMALL.kernels[main].defines
        for p, q in ((64, 64), (14, 14), (1, 1), (7, 200), (300, 2), (28, 28)):
            shape = sizes.Shape(2, 64, p, q, 70, kernel=SMALL.kernel(main))
            rows, columns = shape.tile
            beyond = 0 if main in FEW else 2        # of the last row: what y does not have there is needed
            assert rows * (columns + 2) <= given["PIXELS"] + beyond < (rows + 1) * (columns + 2)
            assert given["PIXELS"] + 2 * (columns + 2) + beyond <= given["WINDOW"]
            assert shape.blocks == (2 * -(-p // rows) * -(-q // columns), 3 if main in FEW else 2)
    assert sizes.Shape(1, 512, 14, 14, 512, kernel=SMALL.kernel("small64x80")).tile == (5, 14)
    for main, rows in (("small64x64", 2), ("small32x64", 2), ("small64x128", 4), ("small32x128", 4)):
        assert sizes.Shape(1, 128, 28, 28, 32, kernel=SMALL.kernel(main)).tile == (rows, 28)


def test_no_second_kernel():
    shape = sizes.Shape(1, 128, 28, 28, 192, splits=4, kernel=SMALL.kernel("small64x88"))
    (one,) = launch.launches(shape, 132, relu=True)
    assert (one.kernel, one.grid, one.cluster, one.threads) == ("small64x88", (10, 12, 1), (1, 4, 1), 256)
    assert shape.floats == 0 and one.numbers[-3] == 1 and launch.pointers(shape, *"xuybrp") == (tuple("xuybr"),)
    assert cost.terms(shape, 132)[2:] == (0, 0)


def test_what_is_chosen():
    """The best of those timed: results/shapes_sm90.json. Clusters of 4 and 8 find room on 120 SMs."""
    def taken(n, c, size, k):
        names = FEW if k <= 32 else FULL
        every = *map(HOPPER.kernel, HOPPER.kernels), *map(SMALL.kernel, names)
        return cost.fastest(sizes.Shape(n, c, size, size, k), 132, every)

    for shape, splits, kernel in (
        ((1, 128, 28, 192), 4, "small64x88"), ((1, 512, 14, 512), 4, "small64x80"), ((1, 64, 56, 64), 2, "small64x64"),
        ((1, 512, 7, 512), 8, "small64x64"), ((8, 128, 28, 192), 1, "small64x88"), ((8, 64, 112, 128), 1, "winograd"),
        ((100, 512, 14, 512), 1, "small64x80"), ((100, 64, 56, 64), 1, "winograd"),
        ((8, 128, 28, 32), 2, "small32x128"), ((1, 128, 28, 32), 8, "small32x64"), ((1, 64, 104, 128), 1, "small64x96"),
    ):  # fmt: skip
        found = taken(*shape)
        assert (found.splits, found.kernel.name) == (splits, kernel), shape
    small = SMALL.kernel("small64x88")
    for n in (1, 2, 8, 9):
        shape = sizes.Shape(n, 128, 28, 28, 192, splits=4, kernel=small)
        assert cost.terms(shape, 132)[0] == n and cost.again(shape, n) == n - 1
    one, two = (cost.microseconds(sizes.Shape(n, 128, 28, 28, 192, kernel=small, splits=4), 132) for n in (1, 2))
    assert two > 2 * one + 1.5                  # the second begins anew

def test_what_there_is_not():
    for c, splits, kernel, why in (
        (16, 2, "small64x88", "can split 16 channels into 1, not into 2"), (8, 1, "small64x88", "is for more than 8"),
        (256, 16, "small64x128", "into 8, not into 16"),
    ):  # fmt: skip
        with pytest.raises(LaunchError, match=why):
            sizes.Shape(1, c, 9, 9, 64, splits=splits, kernel=SMALL.kernel(kernel))
    for n, c, kernel in ((1 << 19, 9, "small64x80"), (699051, 9, "small64x128")):
        sizes.Shape(n - 1, c, 16, 16, 1, kernel=SMALL.kernel(kernel))
        with pytest.raises(LaunchError, match="counts to 2097152 tiles, not to"):
            sizes.Shape(n, c, 16, 16, 1, kernel=SMALL.kernel(kernel))
    with pytest.raises(LaunchError, match="can split 32 channels into 2, not into 4"):      # before any x is seen
        Case(1, 32, 9, 9, 8).conv(kernel="small", splits=4)
    for c, splits, able in ((256, 3, "1, 2, 4, 8"), (256, 32, "1, 2, 4, 8"), (96, "2", "1, 2, 4"), (32, 8, "1, 2")):
        for k, more in ((8, {}), (8, {"device": "cpu"}), (40, {"schedule": {"PIXELS": 80}})):
            with pytest.raises(LaunchError, match=rf"cannot be split into .*\nhint: into: {able}$"):
                Case(1, c, 9, 9, k).conv(kernel="small", splits=splits, **more)
    with pytest.raises(LaunchError, match="^the kernel 'small' is for more than 8 channels, not for 7"):
        Case(1, 7, 9, 9, 8).conv(kernel="small", device="cpu")


def test_which_are_compared():
    hopper = Kernels.of("sm_90")
    for c, k, layout, *wanted in (
        (64, 64, "NCHW", *FULL), (64, 33, "NCHW", *FULL), (64, 32, "NCHW", *FEW),
        (7, 64, "NCHW"), (64, 64, "NHWC"), (64, 64, "CHWN"),
    ):  # fmt: skip
        every = hopper.every(sizes.Shape(1, c, 9, 9, k, layout=layout))
        assert [one.name for one in every if one.method is SMALL] == wanted


@pytest.mark.parametrize(("k", "name"), [(1, "small32x64"), (32, "small32x64"), (33, "small64x96")])
def test_by_name(k, name):
    """Up to 32 filters have blocks of 32 then, too."""
    case = Case(1, 17, 5, 6, k)
    with case.conv(kernel="small", device="cpu") as conv:
        assert error(conv(case.x), case.y()) < 1e-6
        assert conv._only == SMALL.kernel(name)


@pytest.fixture
def driver(install, monkeypatch):
    yield from preferring(install, monkeypatch, *MAINS)


@pytest.mark.parametrize(("k", "mains"), [(40, FULL), (20, FEW)])
def test_taken_on_a_gpu(driver, monkeypatch, k, mains):
    """In NCHW, unless one asks for something else, or the model finds another to be faster."""
    case = Case(1, 32, 8, 9, k)
    x, residual = Buffer.of(case.x), Buffer.of(case.residual)
    with case.conv() as conv:
        assert error(conv(x, residual).numpy(), case.y(residual=True)) < 1e-6
    assert driver.launches[-1][0] in mains
    with case.conv(splits=1) as conv:
        conv(x)
    assert driver.launches[-1][0].startswith("winograd")
    for name in MAINS:
        costing(monkeypatch, name, step=1e3)
    with case.conv() as conv:
        conv(x)
    assert driver.launches[-1][0].startswith(("winograd", "add_splits"))
