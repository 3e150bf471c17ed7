"""Memory-efficient direct convolution on the CPU device: against float64, and as Chen et al. 2017 describe it."""

from __future__ import annotations

import re

import numpy as np
import pytest

import turingas
from loader.reference import conv2d, find
from loader.reference import memory_efficient as family
from loader.reference.memory_efficient import TABLE_1, VARIANTS, Blocking
from loader.reference.problem import Problem, relative_error, truth
from loader.reference.runner import Runner
from tests.loader.reference import SHAPES, arrays, check, layers

GENERAL = ["memory_efficient" + ending for ending in VARIANTS]
SINGLE = ["memory_efficient_single" + ending for ending in VARIANTS]
SHARE = SHAPES if SHAPES > 12 else SHAPES // len(VARIANTS)  # random layers of each variant


def sizes(rng, *limits):
    return (int(v) for v in rng.integers(1, np.array(limits) + 1))


def draw(rng):
    """Filters of odd and even sizes, some in chunks; rows of whole units and others; all but one K in one group."""
    n, c, k = sizes(rng, 2, 5, 70 if rng.random() < 0.2 else 9)
    r, s = sizes(rng, *((12, 12) if rng.random() < 0.1 else (5, 5)))
    h, w, stride, more = sizes(rng, 20, 40, 4, 4)
    if rng.random() < 0.5:
        w = 4 * (w // 4 + 1)
    if r > h + 2 * (more - 1) or s > w + 2 * (more - 1):
        return None
    return Problem(n, c, h, w, k, r, s, 1 if rng.random() < 0.5 else stride, more - 1)


def draw_single(rng):
    """One channel, rows of one and of several blocks, more filters than a launch takes."""
    n, k = sizes(rng, 2, 40 if rng.random() < 0.3 else 5)
    r, s = sizes(rng, *((11, 11) if rng.random() < 0.1 else (6, 6)))
    h, w, stride, more = sizes(rng, 24, 600 if rng.random() < 0.2 else 60, 8, 5)
    if rng.random() < 0.5:
        w = 4 * (w // 4 + 1)
    if r > h + 2 * (more - 1) or s > w + 2 * (more - 1):
        return None
    return Problem(n, 1, h, w, k, r, s, 1 if rng.random() < 0.5 else stride, more - 1)


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", GENERAL)
def test_random_layers(name):
    for problem in layers(1001 + GENERAL.index(name), draw, SHARE):
        check(name, problem, find(name).tolerance)


@pytest.mark.parametrize("name", SINGLE)
def test_random_layers_of_one_channel(name):
    for problem in layers(1011 + SINGLE.index(name), draw_single, SHARE):
        check(name, problem, find(name).tolerance)


def test_tolerances():
    """Float is held to 1e-6; half to 1e-3, and is really half: it is off by more than float would be."""
    problem = Problem(1, 1, 9, 10, 3, 3, 3, 1, 1)
    x, w = arrays(problem)
    exact, rounded = truth(x, w, problem), truth(x.astype(np.float16), w.astype(np.float16), problem)
    for name in GENERAL + SINGLE:
        y = conv2d(x, w, name, device="cpu")
        if "half" in name:
            assert find(name).tolerance == 1e-3
            assert relative_error(y, rounded) <= 1e-6 and 1e-5 < relative_error(y, exact) <= 1e-3
        else:
            assert find(name).tolerance == 1e-6 >= relative_error(y, exact)


CORNERS = [
    Problem(1, 1, 1, 1, 1, 1, 1),
    Problem(1, 1, 1, 1, 1, 3, 3, 1, 1),  # eight of nine taps outside
    Problem(1, 1, 3, 3, 2, 1, 1, 1, 5),  # outputs that see only padding
    Problem(2, 1, 9, 33, 1, 3, 3, 1, 1),  # one output more than a tile is wide and high
    Problem(1, 1, 2, 40, 3, 1, 9, 1, 4),  # a wide filter: rows in chunks
    Problem(1, 1, 30, 30, 1, 2, 2, 13, 0),  # a stride longer than the filter
    Problem(1, 1, 2, 20001, 1, 1, 1, 20000),  # and than shared memory
]


@pytest.mark.sample(7)
@pytest.mark.parametrize("name", ["memory_efficient", "memory_efficient_single"])
@pytest.mark.parametrize("problem", CORNERS, ids=str)
def test_corners(name, problem):
    check(name, problem)


# The last thread wants three units of the four that the compiler reads at once, at the end of the tile.
TAILS = [
    ("", Problem(1, 1, 16, 32, 27, 1, 3, 8, 4)),
    ("_half", Problem(1, 1, 6, 260, 1, 1, 3, 4)),
    ("_half2", Problem(1, 1, 10, 520, 1, 1, 6, 8)),
]


@pytest.mark.parametrize(("ending", "problem"), TAILS, ids=str)
def test_wide_reads_at_the_end_of_shared_memory(ending, problem):
    """Nothing is read past the end, nor what nobody wrote."""
    name = "memory_efficient_single" + ending
    assert [report.races for report in watched(name, problem)] == [[]]
    unit, half = VARIANTS[ending]
    found, _ = code(family.single_macros(problem, unit, half))
    assert any(re.match(rf"LDS.*\.{4 * unit * (16 if half else 32)}$", kind) for kind in found)  # else it tests nothing


@pytest.mark.sample(4)
@pytest.mark.parametrize("ending", VARIANTS)
@pytest.mark.parametrize("macros", [family.general_macros, family.single_macros])
def test_shared_memory_is_what_is_reckoned(macros, ending):
    """In whole 16 bytes, for any access is one of 16 bytes at most."""
    for problem in (Problem(1, 1, 9, 61, 3, 3, 3, 2, 1), Problem(1, 1, 9, 260, 3, 1, 3, 4)):
        chosen = macros(problem, *VARIANTS[ending])
        with Runner("cpu", "sm_75") as runner:
            (kernel,) = runner.module(family.SOURCE, family.options(chosen)).cubin.kernels
        assert kernel.shared_bytes == family.shared_bytes(chosen) and kernel.shared_bytes % 16 == 0


def test_large_filter():
    check("memory_efficient", Problem(1, 1, 14, 20, 2, 11, 15, 2, 1))


@pytest.mark.parametrize("name", ["memory_efficient", "memory_efficient_float4"])
def test_more_filters_than_a_block_takes(name):
    check(name, Problem(1, 3, 4, 8, 67, 3, 3, 1, 1))


@pytest.mark.parametrize("name", GENERAL)
def test_no_value_of_one_channel_reaches_the_next(name):
    """Whole numbers, summed without rounding: each output is exact, at the image's edges as well."""
    rng = np.random.default_rng(5)
    x = rng.integers(-9, 10, (2, 3, 7, 36)).astype(np.float32)
    w = rng.integers(-9, 10, (5, 3, 3, 3)).astype(np.float32)
    assert (conv2d(x, w, name, device="cpu") == truth(x, w, Problem(2, 3, 7, 36, 5, 3, 3, 1, 1))).all()


# ---- it is what the paper describes ------------------------------------------------------------------------------


def test_table_1():
    """W, H, F_TB, W_T, F_T, C_SH of each filter size, and T_X x T_Y threads."""
    columns = {size: tuple(vars(blocking).values()) for size, blocking in TABLE_1.items()}
    assert columns == {3: (32, 4, 64, 16, 4, 2), 5: (32, 8, 32, 8, 8, 1), 7: (64, 4, 32, 8, 8, 1)}
    assert [blocking.threads for blocking in TABLE_1.values()] == [128, 128, 128]


@pytest.mark.parametrize("unit", [1, 2, 4])
@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 6, 7, 11])
def test_blocking_without_stride_is_that_of_table_1(size, unit):
    macros = family.general_macros(Problem(1, 8, 64, 64, 64, size, size, 1, size // 2), unit)
    column = TABLE_1[min((s for s in TABLE_1 if s >= size), default=7)]
    names = ("TILE_W", "TILE_H", "TILE_K", "THREAD_Q", "THREAD_K", "TILE_C")
    assert tuple(macros[name] for name in names) == tuple(vars(column).values())


@pytest.mark.sample(1)
@pytest.mark.parametrize("size", TABLE_1)
def test_blocking_is_an_option(size):
    """Each column of Table 1 does other filters too; so does a blocking of one's own."""
    problem = Problem(1, 3, 6, 37, 5, 2, 4, 1, 1)
    x, w = arrays(problem)
    exact = truth(x, w, problem)
    for blocking, unit in ((TABLE_1[size], 1), (Blocking(12, 3, 12, 6, 2 * (size // 2), 3), 2)):
        y = conv2d(x, w, "memory_efficient", padding=1, device="cpu", blocking=blocking, unit=unit)
        assert relative_error(y, exact) <= 1e-6


@pytest.mark.parametrize("tile", [(1, 1), (48, 3), (256, 8), (1000, 2)])
def test_tile_is_an_option(tile):
    problem = Problem(1, 1, 10, 70, 3, 3, 5, 1, 2)
    x, w = arrays(problem)
    y = conv2d(x, w, "memory_efficient_single", padding=2, device="cpu", tile=tile)
    assert relative_error(y, truth(x, w, problem)) <= 1e-6


def code(macros):
    """Names of the instructions, and all the text, of what NVRTC makes for sm_75."""
    with Runner("cpu", "sm_75") as runner:
        text = str(turingas.disassemble(runner.module(family.SOURCE, family.options(macros)).cubin))
    return set(re.findall(r"\b((?:LD|ST)[GSL]\b[.\w]*)", text)), text


def accesses(problem, unit, half, macros):
    found, _ = code(macros(problem, unit, half))
    kinds = {}
    for name in found:
        kinds.setdefault(name[:3], set()).add(next((w for w in ("128", "64", "U16") if w in name), "32"))
    return kinds


@pytest.mark.parametrize(
    ("ending", "width"), [("", "32"), ("_float2", "64"), ("_float4", "128"), ("_half", "U16"), ("_half2", "32")]
)
def test_a_unit_is_one_access(ending, width):
    """Rows of x, from global to shared memory and on to registers, move n values at a time; y leaves n at a time."""
    unit, half = VARIANTS[ending]
    problem = Problem(1, 1, 64, 512, 8, 3, 5, 1, 2)  # 2 + 4 + 2: a thread's pixels are whole units
    kinds = accesses(problem, unit, half, family.single_macros)
    assert kinds["LDG"] == kinds["STS"] == {width}
    assert width in kinds["LDS"]
    assert kinds["STG"] == {{1: "32", 2: "64", 4: "128"}[unit]}
    assert "LDL" not in kinds and "STL" not in kinds


def test_filters_are_in_constant_memory():
    """Each multiply-add has one weight, that comes from constant memory by an index that all threads share."""
    _, text = code(family.single_macros(Problem(1, 1, 64, 512, 8, 3, 3, 1, 1)))
    taps = [line for line in text.splitlines() if "FFMA" in line]
    assert len(taps) == 9 and all(re.search(r" UR\d+,", line) for line in taps), taps
    assert len(re.findall(r"ULDC UR\d+, c\[0x0\]\[UR\d+\+", text)) == 9


class Watched(Runner):
    """A runner on the CPU device with the race detector on, that keeps the reports."""

    def __init__(self):
        super().__init__("cpu")
        self.reports = []

    def module(self, name, options=()):
        runner, module = self, super().module(name, options)

        class Kernel:
            def __init__(self, kernel):
                self.kernel = kernel

            def launch(self, *args):
                runner.reports.append(self.kernel.launch(*args, races=True, written=True))

        class Module:
            def kernel(self, name):
                return Kernel(module.kernel(name))

        return Module()


def watched(name, problem, **options):
    with Watched() as runner:
        x, w = arrays(problem)
        y = runner.empty(problem.y_shape)
        find(name).function(runner, problem, runner.array(x), runner.array(w), y, **options)
        assert relative_error(runner.numpy(y), truth(x, w, problem)) <= find(name).tolerance
        return runner.reports


@pytest.mark.sample(3)
@pytest.mark.parametrize("ending", ["", "_float4", "_half2"])
@pytest.mark.parametrize("stride", [1, 2])
def test_no_race_and_nothing_read_that_was_not_written(ending, stride):
    """Several warps a block, and several steps: channels here, rows there."""
    general, single = Problem(1, 3, 7, 24, 2, 3, 3, stride, 1), Problem(1, 1, 5, 190 * stride, 1, 3, 3, stride, 1)
    assert [report.races for report in watched("memory_efficient" + ending, general)] == [[]]
    assert [report.races for report in watched("memory_efficient_single" + ending, single)] == [[]]


def test_many_filters_take_several_launches():
    assert len(watched("memory_efficient_single", Problem(1, 1, 2, 3, 40, 7, 7, 1, 3))) == 3  # 19 + 19 + 2


# ---- what is refused ---------------------------------------------------------------------------------------------


LAYER = Problem(1, 1, 9, 9, 2, 3, 3, 1, 1)


def refused(words, name, problem=LAYER, scale=1.0, **options):
    x, w = arrays(problem)
    with pytest.raises(ValueError, match=words):
        conv2d(x * np.float32(scale), w, name, stride=problem.stride, padding=problem.padding, device="cpu", **options)


@pytest.mark.parametrize("unit", [0, 3, 8, "2"])
def test_units(unit):
    refused("n is .* must be one of", "memory_efficient", unit=unit)
    refused("n is .* must be one of", "memory_efficient_single", unit=unit)


def test_more_channels_than_one():
    refused("it takes one input channel, not 3", "memory_efficient_single", Problem(1, 3, 9, 9, 2, 1, 1))


def test_filters_too_large_for_registers():
    refused("a filter of 13 x 13 .* registers", "memory_efficient_single", Problem(1, 1, 20, 20, 1, 13, 13))


@pytest.mark.parametrize("name", ["memory_efficient_float2", "memory_efficient_single_float2"])
def test_strides_too_large_for_neighbouring_outputs(name):
    refused("a stride of 20000 with n = 2", name, Problem(1, 1, 1, 20001, 1, 1, 1, 20000))


@pytest.mark.parametrize(
    ("words", "blocking"),
    [
        ("at least 1", Blocking(32, 4, 64, 16, 4, 0)),
        ("width must be a multiple of thread_pixels", Blocking(30, 4, 64, 16, 4, 2)),
        ("filters must be a multiple of thread_filters", Blocking(32, 4, 62, 16, 4, 2)),
        ("that of n = 2", Blocking(32, 4, 64, 16, 1, 2)),
        ("that of n = 2", Blocking(30, 4, 64, 15, 4, 2)),
        ("2048 threads a block; the most is 1024", Blocking(32, 4, 64, 2, 2, 2)),
        ("bytes of shared memory for this", Blocking(32, 4, 64, 16, 4, 32)),
    ],
)
def test_blockings(words, blocking):
    refused(words, "memory_efficient", blocking=blocking, unit=2)


@pytest.mark.parametrize("tile", [(0, 8), (255, 8), (256, 0), (2050, 8)])
def test_tiles(tile):
    refused("a tile of", "memory_efficient_single", tile=tile, unit=2)


def test_tile_too_large_for_shared_memory():
    refused("bytes of shared memory", "memory_efficient_single", Problem(1, 1, 9, 9, 1, 3, 3, 9, 1), tile=(512, 8))


@pytest.mark.parametrize("name", ["memory_efficient_half", "memory_efficient_single_half2"])
def test_too_large_for_a_half(name):
    refused(r"x is too large for a half at \(0, 0, 0, \d\)", name, scale=1e6)


def test_a_blocking_that_is_none():
    refused(r"a blocking of \(64, 8\); it must be a loader.reference.memory_efficient.Blocking", "memory_efficient",
            blocking=(64, 8))  # fmt: skip


def test_unknown_option():
    x, w = arrays(Problem(1, 1, 9, 9, 2, 3, 3))
    with pytest.raises(TypeError, match="blocks"):
        conv2d(x, w, "memory_efficient", device="cpu", blocks=3)


def test_arrays_of_other_types_and_shapes():
    """The checks of conv2d hold here as well: nothing half done is returned."""
    x, w = arrays(Problem(1, 2, 9, 9, 2, 3, 3))
    for bad_x, bad_w in ((x.astype(np.float16), w), (x[:, :1], w), (x * np.float32(np.nan), w), (x[:0], w)):
        with pytest.raises(ValueError):
            conv2d(bad_x, bad_w, "memory_efficient_half", device="cpu")
