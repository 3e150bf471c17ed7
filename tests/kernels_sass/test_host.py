"""Sizes, strides, tiles, parts, methods and their schedules. No kernel runs here."""

from __future__ import annotations

import itertools
import random
import types

import numpy as np
import pytest

import turingas
from kernels_sass.conv import code, cost, launch
from kernels_sass.conv.code import Kernels
from kernels_sass.conv.method import METHODS
from kernels_sass.conv.shape import LAYOUTS, Shape, filter_floats, shape_of, supports
from loader.reference.problem import Problem
from turingas.errors import LaunchError

SIZES = [(1, 1, 1, 1, 1), (2, 3, 5, 4, 7), (33, 9, 3, 8, 65), (32, 8, 4, 4, 64), (5, 2, 7, 3, 2)]
NAMES = ("tiles", "N", "C", "H", "W", "K", "P", "Q", "pad", "TH", "TW", "NI", "xn", "xc", "xh", "xw", "yn", "yk", "yp",
         "yq")  # fmt: skip


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("sizes", SIZES)
def test_strides_are_those_of_an_array(layout, sizes):
    shape = Shape(*sizes, 1, layout)
    for letters, found, strides in (("NCHW", shape.x_shape, shape.x_strides), ("NCHW", shape.y_shape, shape.y_strides)):
        array = np.zeros(found, np.float32)
        assert strides == tuple(array.strides[layout.index(letter)] // 4 for letter in letters)
    problem = Problem(*sizes, 3, 3, 1, 1)
    assert sorted(shape.y_shape) == sorted(problem.y_shape) and (shape.p, shape.q) == (problem.p, problem.q)
    assert shape_of(shape.x_shape, shape.k, 1, layout) == shape


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("sizes", "pad"), [(one, pad) for one, pad in itertools.product(SIZES, (0, 1))
                                            if pad or min(one[2:4]) > 2])  # fmt: skip
def test_tiles_cover_every_output_once(layout, sizes, pad):
    """As the kernels take a tile's number apart."""
    shape = Shape(*sizes, pad, layout)
    values = dict(zip(NAMES, shape.numbers, strict=True))
    seen = np.zeros((shape.n, shape.p + 1, shape.q + 1), int)
    for t in range(values["tiles"]):
        rest, ni = divmod(t, values["NI"])
        rest, tw = divmod(rest, values["TW"])
        nb, th = divmod(rest, values["TH"])
        if (n := nb * values["NI"] + ni) < shape.n:
            seen[n, 2 * th : 2 * th + 2, 2 * tw : 2 * tw + 2] += 1
    assert (seen[:, : shape.p, : shape.q] == 1).all()
    assert shape.blocks == (-(-values["tiles"] // 32), -(-shape.k // 64))


def test_images_side_by_side():
    for n in range(1, 300):
        chwn = Shape(n, 1, 2, 2, 1, 1, "CHWN")
        assert 1 <= chwn.ni <= 32 and chwn.tiles - n < -(-n // 32)  # hardly a place is empty
        assert chwn.ni == 32 or n % 32
        assert Shape(n, 1, 2, 2, 1).ni == Shape(n, 1, 2, 2, 1, 1, "NHWC").ni == 1


def test_parts_below_4_gib(monkeypatch):
    shape = Shape(1400, 64, 112, 112, 32)
    parts = list(shape.parts())
    assert len(parts) == 2 and [part.n for _, part in parts] == [700, 700]
    assert all(4 * np.prod(one.x_shape, dtype=object) < 1 << 32 for _, one in parts)
    assert list(Shape(1000, 64, 112, 112, 32).parts()) == [(slice(0, 1000), Shape(1000, 64, 112, 112, 32))]
    random.seed(1)
    monkeypatch.setattr("kernels_sass.conv.shape.LIMIT", limit := 4 * 500)
    for _ in range(100):
        n, c, h, w, k = (random.randint(1, most) for most in (90, 5, 9, 9, 5))
        shape = Shape(n, c, h, w, k, 1, random.choice(["NCHW", "NHWC"]))
        if max(c, k) * h * w * 4 < limit:
            images = [range(shape.n)[one] for one, _ in shape.parts()]
            assert [n for one in images for n in one] == list(range(n))
            for one, (_, part) in zip(images, shape.parts()):
                assert len(one) == part.n and 4 * part.n * max(c, k) * h * w < limit
    for layout, given in (("CHWN", (100, 1, 3, 3, 1)), ("NCHW", (1, 5, 10, 10, 1)), ("NHWC", (1, 1, 10, 10, 5))):
        with pytest.raises(LaunchError, match="of 4 GiB or more"):
            list(Shape(*given, 1, layout).parts())


@pytest.mark.parametrize(("change", "message"), [
    ({"layout": "NCWH"}, "there is no layout 'NCWH'\nhint: there are: NCHW, CHWN, NHWC"),
    ({"pad": 2}, "a padding of 2; it is 0 or 1"),
    ({"c": 0}, "c is 0; every size is at least 1"),
    ({"n": -1}, "n is -1"),
    ({"h": 2, "pad": 0}, "a filter of 3 x 3 is larger than an image of 2 x 5 with a padding of 0"),
])  # fmt: skip
def test_sizes_that_are_refused(change, message):
    with pytest.raises(LaunchError, match=f"^{message}"):
        Shape(**{"n": 1, "c": 1, "h": 5, "w": 5, "k": 1, **change})


def test_room_for_filters():
    assert filter_floats(8, 64) == 16 * 8 * 64
    assert filter_floats(9, 65) == 16 * 16 * 128
    with pytest.raises(LaunchError, match=r"^65536 filters of 1024 channels take 4294967296 bytes"):
        filter_floats(1024, 65536)


def test_grids():
    hopper = (METHODS["hopper"], 132, (132, 1, 1)), (METHODS["hopper"], 200, (147, 1, 1))
    for source, sms, grid in ((METHODS["paper"], 132, (49, 3, 1)), *hopper):
        shape = Shape(32, 64, 14, 14, 130, kernel=source.kernel("winograd"))
        assert shape.blocks == (49, 3)
        (one,) = launch.launches(shape, sms, relu=True)
        numbers, main = (*shape.numbers, 1, 8, 1), shape.block
        assert one == launch.Launch("winograd", grid, main.threads, main.shared, numbers, source.early)
    assert cost.sms("cpu") == cost.CPU_SMS and len({METHODS["paper"], METHODS["hopper"], METHODS["hopper"]}) == 2


# ---- methods


def test_the_method_for_an_architecture():
    assert code.choose("sm_70") is code.choose("sm_89") is code.choose("sm_90", "paper") is METHODS["paper"]
    assert code.choose("sm_90") is code.choose("sm_90a") is METHODS["hopper"]
    for words, message in (
        (("sm_60",), "there is no architecture 'sm_60'\nhint: there are: sm_70, "),
        (("sm_90", "cuda"), "there is no kernel 'cuda'\nhint: there are: paper, hopper"),
        (("sm_89", "hopper"), "the kernel 'hopper' is for sm_90, sm_90a, not for sm_89"),
    ):
        with pytest.raises(LaunchError, match=message):
            code.choose(*words)


@pytest.mark.parametrize(("capability", "arch"), [
    ((7, 0), "sm_70"), ((7, 2), "sm_72"), ((7, 5), "sm_75"), ((8, 0), "sm_80"), ((8, 7), "sm_87"),
    ((8, 8), "sm_87"), ((8, 9), "sm_89"),
    ((9, 0), "sm_90"), ((10, 0), "sm_100"), ((6, 1), None),
])  # fmt: skip
def test_what_is_assembled_for_a_gpu(capability, arch):
    from loader.cuda import Device

    major, minor = capability
    gpu = types.SimpleNamespace(major=major, minor=minor, name="Fake", arch=f"sm_{major}{minor}")
    gpu.runs = types.MethodType(Device.runs, gpu)
    if arch:
        assert code.arch_of(gpu) == arch
    else:
        with pytest.raises(LaunchError, match="is sm_.*; there are kernels for sm_70"):
            code.arch_of(gpu)


SOURCE = """
# -D STEP=1|2      how far it goes; STEPS=3 is none
<code>
STEP = globals().get("STEP", 1)
if STEP not in (1, 2):
    raise ValueError(f"STEP={STEP}: there are 1 and 2")
</code>
.kernel filter_transform
--:-:-:-:2  MOV R0, {STEP};
--:-:-:-:5  EXIT;
.kernel winograd
--:-:-:-:5  EXIT;
"""


@pytest.fixture
def source(tmp_path, monkeypatch):
    (tmp_path / "winograd.sass").write_text(SOURCE)
    monkeypatch.setattr(type(METHODS["paper"]), "path", tmp_path / "winograd.sass")
    monkeypatch.setattr(Kernels, "_made", {})


def test_kernels_are_assembled_once(source):
    first = Kernels.of("sm_75", "paper")
    assert Kernels.of("sm_75") is first and first.cubin.arch == "sm_75"
    assert first.load("cpu") is Kernels.of("sm_75").load("cpu")
    other = Kernels.of("sm_75", schedule={"STEP": 2})
    assert other is not first and other.cubin.to_bytes() != first.cubin.to_bytes()
    assert Kernels.of("sm_80") is not first and Kernels.of("sm_80").cubin.arch == "sm_80"


def test_schedules_that_there_are_not(source):
    with pytest.raises(LaunchError, match=r"^winograd.sass has no parameter 'STEPS'\nhint: it has: STEP"):
        Kernels.of("sm_75", schedule={"STEPS": 1})
    with pytest.raises(LaunchError, match="^winograd.sass cannot be assembled with STEP=3: .*: there are 1 and 2"):
        Kernels.of("sm_75", schedule={"STEP": 3})
    assert not Kernels._made


def test_a_mistake_in_the_source_is_no_mistake_of_the_caller(source, tmp_path):
    (tmp_path / "winograd.sass").write_text(SOURCE + "what\n")
    with pytest.raises(turingas.AsmError):
        Kernels.of("sm_75")


# ---- turingas validate


def test_what_is_supported():
    assert not any(supports(Problem(1, 1, 3, 3, 1, 3, 3, 1, pad)) for pad in (0, 1))
    assert supports(Problem(1, 1, 5, 5, 1, 5, 3)) == "filters are 3 x 3, not 5 x 3"
    assert supports(Problem(1, 1, 5, 5, 1, 3, 3, 2)) == "the stride is 1, not 2"
    assert supports(Problem(1, 1, 5, 5, 1, 3, 3, 1, 2)) == "the padding is 0 or 1, not 2"
