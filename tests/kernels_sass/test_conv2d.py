"""Conv2d on the CPU device: what it computes and what it refuses. What it asks of a GPU's driver is in
test_conv2d_gpu.py.

The kernels themselves are slow to emulate, so what is not about them runs over standin.cu: a direct convolution in CUDA
C++ with the same kernels and parameters.
"""

from __future__ import annotations

import threading
from dataclasses import replace

import numpy as np
import pytest

from kernels_sass.conv import Conv2d, code, conv2d, launch
from kernels_sass.conv import shape as sizes
from kernels_sass.conv.code import Kernels
from loader.reference.problem import Problem, truth
from tests.kernels_sass.cases import Case, error, ones
from turingas.errors import LaunchError

# ---- the kernels

KERNELS = [*((arch, "paper") for arch in ("sm_70", "sm_75", "sm_80", "sm_90", "sm_100", "sm_120")), ("sm_90", "hopper")]


@pytest.mark.sample(3)
@pytest.mark.parametrize("layout", sizes.LAYOUTS)
@pytest.mark.parametrize(("arch", "kernel"), [KERNELS[1], KERNELS[-1]])
def test_layouts(arch, kernel, layout):
    for n, (pad, bias, residual, relu) in enumerate([(0, 0, 1, 0), (1, 1, 0, 1), (1, 1, 1, 1)]):
        case = Case(3, 9, 5, 6, 65, pad, layout, seed=n)
        conv = case.conv(bias, relu, arch=arch, kernel=kernel)
        assert error(conv(case.x, case.residual if residual else None), case.y(bias, residual, relu)) < 1e-6


@pytest.mark.sample(3)
@pytest.mark.parametrize(("arch", "kernel"), KERNELS)
def test_odd_shapes(arch, kernel):
    random = np.random.default_rng(4)
    shapes = [(1, 1, 1, 1, 1, 1, "NCHW"), (1, 1, 3, 3, 1, 0, "NHWC"), (33, 3, 2, 3, 2, 1, "CHWN")]
    for _ in range(2):
        n, c, h, w, k = (int(random.integers(1, most)) for most in (20, 20, 10, 10, 80))
        shapes.append((n, c, h + 2, w + 2, k, int(random.integers(2)), sizes.LAYOUTS[random.integers(3)]))
    for shape in shapes:
        case = Case(*shape)
        assert error(case.conv(True, arch=arch, kernel=kernel)(case.x), case.y(bias=True)) < 1e-6, shape


@pytest.mark.sample(2)
@pytest.mark.parametrize(("arch", "kernel"), KERNELS)
def test_epilogues_have_no_hazards(arch, kernel):
    """... where residual and y are the same memory, and Hopper's one block has several jobs."""
    case = Case(6, 10, 4, 5, 70, 1, "CHWN")
    kernels = Kernels.of(arch, kernel)
    module, y = kernels.load("cpu"), case.residual.copy()
    u = np.full(sizes.filter_floats(10, 70), np.nan, np.float32)
    shape = replace(sizes.shape_of(case.x.shape, 70, 1, "CHWN"), kernel=kernels.main)
    options = {"strict": True, "races": True}
    first = launch.transform(module, case.weight, u, 10, 70, **options)
    (more,) = launch.convolve(module, shape, case.x, u, y, case.bias, y, True, sms=1, **options)
    assert not [*first.hazards, *first.races, *more.hazards, *more.races]
    assert error(y, case.y(1, 1, 1)) < 1e-6


@pytest.mark.parametrize(("arch", "kernel", "schedule"), [
    ("sm_75", "paper", {"YIELD": "every:5", "LDG_INTERLEAVE": 2, "STS_INTERLEAVE": 4, "OUTPUT": "sts64"}),
    ("sm_75", "paper", {"YIELD": "cudnn7", "OUTPUT": "compact"}),
    ("sm_90", "hopper", {"YIELD": "nvcc8"}),
])  # fmt: skip
def test_schedules(arch, kernel, schedule):
    case = Case(2, 9, 4, 3, 65)
    conv = case.conv(arch=arch, kernel=kernel, schedule=schedule)
    assert error(conv(case.x), case.y()) < 1e-6
    assert Kernels.of(arch, kernel).cubin.to_bytes() != Kernels.of(arch, kernel, schedule).cubin.to_bytes()


def test_a_schedule_that_one_source_has():
    """On the CPU device it says which source is meant, and so for which architecture."""
    weight, x = np.ones((1, 1, 3, 3), np.float32), np.ones((1, 1, 3, 3), np.float32)
    cases = ({"MATH": "ffma"}, "sm_90"), ({"OUTPUT": "compact"}, "sm_75"), ({"YIELD": "nvcc8"}, "sm_75")
    for schedule, arch in cases:
        conv = Conv2d(weight, schedule=schedule)
        assert conv(x)[0, 0, 1, 1] == 9 and conv._arch("cpu") == arch
    for kernel, name in (("paper", "MATH"), ("hopper", "OUTPUT"), (None, "NONE")):
        with pytest.raises(LaunchError, match=f"has no parameter '{name}'"):
            Conv2d(weight, kernel=kernel, schedule={name: 1})


def test_what_it_takes_by_itself():
    case = Case(1, 2, 4, 4, 3)
    for words, arch, kernel in (({}, "sm_75", "paper"), ({"arch": "sm_90"}, "sm_90", "hopper"),
                                ({"kernel": "hopper"}, "sm_90", "hopper"), ({"arch": "sm_86"}, "sm_86", "paper")):
        conv = case.conv(**words)
        assert error(conv(case.x), case.y()) < 1e-6
        assert conv._arch("cpu") == arch and conv._places[-1].main.method.name == kernel


# ---- the call


@pytest.mark.parametrize("layout", sizes.LAYOUTS)
@pytest.mark.parametrize("pad", [0, 1])
def test_layouts_and_epilogues(standin, layout, pad):
    case = Case(3, 5, 4, 7, 6, pad, layout)
    for bias, residual, relu in [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 1, 1)]:
        conv = case.conv(bias, relu)
        y = conv(case.x, case.residual if residual else None)
        assert y.dtype == np.float32 and error(y, case.y(bias, residual, relu)) < 1e-6


def test_out(standin):
    case = Case(1, 2, 4, 4, 3)
    conv, out = case.conv(), np.full(case.residual.shape, 7, np.float32)
    assert conv(case.x, out=out) is out and error(out, case.y()) < 1e-6
    added = case.residual.copy()
    assert conv(case.x, added, added) is added and error(added, case.y(residual=True)) < 1e-6


def test_other_shapes_with_one_layer(standin):
    with Case(1, 2, 4, 4, 3).conv() as conv:
        for shape in ((1, 2, 1, 1), (4, 2, 5, 3), (1, 2, 1, 1)):
            x = np.ones(shape, np.float32)
            exact = truth(x, Case(1, 2, 4, 4, 3).weight, Problem(*shape, 3, 3, 3, 1, 1))
            assert error(conv(x), exact) < 1e-6
        assert len(conv._plans) == 2


def test_shapes_are_forgotten_when_there_are_many(standin, monkeypatch):
    monkeypatch.setattr(conv2d, "PLANS", 3)
    conv = Conv2d(np.ones((1, 1, 3, 3), np.float32))
    for width in range(1, 9):
        assert conv(np.ones((1, 1, 1, width), np.float32)).sum() == 3 * width - 2
        assert len(conv._plans) <= 3


def test_weights_are_read_once(standin):
    case = Case(1, 2, 4, 4, 3)
    for device in (None, "cpu"):
        weight, bias = case.weight.copy(), case.bias.copy()
        conv = Conv2d(weight, bias, device=device)
        weight[:], bias[:] = 0, 0
        assert error(conv(case.x), case.y(bias=True)) < 1e-6


def test_tensors_of_more_than_a_launch_can_address(standin, monkeypatch):
    monkeypatch.setattr(sizes, "LIMIT", 1 << 15)  # U has 1 << 15 - 4
    monkeypatch.setattr(conv2d, "filter_floats", lambda c, k: 16 * 8 * 64)
    for layout in ("NCHW", "NHWC"):
        case = Case(5, 2, 41, 40, 3, 1, layout)  # y of one image: 19680 bytes
        conv = case.conv(bias=True)
        assert error(conv(case.x, case.residual), case.y(bias=True, residual=True)) < 1e-6
        assert error(conv(case.x), case.y(bias=True)) < 1e-6
        assert [images.start for images, _ in conv._plans[-1, case.x.shape].shape.parts()] == [0, 1, 2, 3, 4]
    with pytest.raises(LaunchError, match="^x or y of 4 GiB or more: CHWN = "):
        case = Case(5, 2, 41, 40, 3, 1, "CHWN")
        case.conv()(case.x)


def test_threads(standin):
    cases = [Case(1, 2, 4, 4, 3), Case(2, 2, 3, 5, 3)]
    conv = cases[0].conv()
    found = {}

    def work(n):
        found[n] = [conv(cases[n % 2].x) for _ in range(3)]

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(conv._places) == 1
    for n, ys in found.items():
        exact = truth(cases[n % 2].x, cases[0].weight, cases[n % 2].problem)
        assert all(error(y, exact) < 1e-6 for y in ys)


def test_close(standin):
    case = Case(1, 2, 4, 4, 3)
    with case.conv() as conv:
        conv(case.x)
    for _ in range(2):
        conv.close()
        with pytest.raises(LaunchError, match="^the layer is closed$"):
            conv(case.x)
    unused = case.conv()
    unused.close()
    with pytest.raises(LaunchError, match="^the layer is closed$"):
        unused(case.x)
    assert repr(conv) == "Conv2d(2 -> 3, padding=1, activation=None, layout='NCHW', device=None)"


# ---- what is refused


W = ones(3, 2, 3, 3)


@pytest.mark.parametrize(("words", "message"), [
    ({"weight": ones(3, 2, 9)}, r"weight has the shape \(3, 2, 9\); it must be K, C, R, S"),
    ({"weight": ones(0, 2, 3, 3)}, r"weight has the shape \(0, 2, 3, 3\); it must be K, C, R, S, none of them 0"),
    ({"weight": ones(3, 2, 3, 3, dtype="f8")}, "weight has the dtype float64; it must be float32"),
    ({"weight": W.astype(">f4")}, "weight has the dtype >f4; it must be float32"),
    ({"weight": W.transpose(0, 1, 3, 2)}, "weight is not contiguous\nhint: pass a copy in C order"),
    ({"weight": [1, 2]}, "weight is a list\nhint: it must be an array of numpy, PyTorch or CuPy"),
    ({"weight": np.ma.ones((3, 2, 3, 3), np.float32)}, "weight is a MaskedArray"),
    ({"bias": ones(2)}, r"bias has the shape \(2,\); it must be \(3,\)"),
    ({"bias": ones(3, dtype="f2")}, "bias has the dtype float16"),
    ({"bias": ones(6)[::2]}, "bias is not contiguous"),
    ({"bias": 0.0}, "bias is a float"),
    ({"padding": -1}, "padding is -1; it must be a number from 0 on, or one for rows and one for columns"),
    ({"padding": (1, 1, 1)}, r"padding is \(1, 1, 1\); it must be"),
    ({"padding": True}, "padding is True"),
    ({"padding": "same"}, "padding is 'same'"),
    ({"activation": "gelu"}, "there is no activation 'gelu'\nhint: there are: None, 'relu'"),
    ({"layout": "NHCW"}, "there is no layout 'NHCW'\nhint: there are: NCHW, CHWN, NHWC"),
    ({"device": "tpu"}, "'tpu' is not a GPU"),
    ({"device": "cuda:7"}, "there is no device 'cuda:7'"),
    ({"arch": "sm_60"}, "there is no architecture 'sm_60'"),
    ({"kernel": "best"}, "there is no kernel 'best'"),
    ({"kernel": "hopper", "arch": "sm_75"}, "the kernel 'hopper' is for sm_90, sm_90a, not for sm_75"),
    ({"schedule": {"YIELDS": 1}}, "winograd.sass has no parameter 'YIELDS'\nhint: it has: YIELD, "),
    ({"schedule": {"YIELD": "never"}}, "winograd.sass cannot be assembled with YIELD=never: .*natural, nvcc8, cudnn7"),
    ({"arch": "sm_75", "schedule": {"MATH": "ffma"}}, "winograd.sass has no parameter 'MATH'"),
    ({"arch": "sm_90", "schedule": {"MATH": "fp32"}},
     "winograd_sm90.sass cannot be assembled with MATH=fp32: -D MATH=fp32: there are tf32x3, ffma"),
    ({"arch": "sm_90", "schedule": {"LANES": "paper"}},
     "winograd_sm90.sass cannot be assembled with LANES=paper: LANES is there with MATH=ffma alone"),
])  # fmt: skip
def test_layers_that_are_refused(words, message):
    with pytest.raises(LaunchError, match=f"^{message}"):
        Conv2d(**{"weight": W, **words})


X = ones(1, 2, 4, 4)
Y = ones(1, 3, 4, 4)
LOCKED = Y.copy()
LOCKED.flags.writeable = False
ROOM = ones(200)


@pytest.mark.parametrize(("words", "message"), [
    ({"x": 3}, "x is a int\nhint: it must be an array of numpy, PyTorch or CuPy"),
    ({"x": None}, "x is a NoneType"),
    ({"x": ones(1, 2, 4, 4, dtype="f8")}, "x has the dtype float64; it must be float32"),
    ({"x": X.astype(">f4")}, "x has the dtype >f4; it must be float32"),
    ({"x": ones(2, 4, 4)}, r"x has the shape \(2, 4, 4\); it must have four sizes, N, C, H, W"),
    ({"x": ones(1, 3, 4, 4)}, r"x has 3 channels \(NCHW = \(1, 3, 4, 4\)\), the filters 2"),
    ({"x": ones(0, 2, 4, 4)}, r"x has the shape \(0, 2, 4, 4\); no size may be 0"),
    ({"x": ones(1, 2, 4, 8)[..., ::2]}, "x is not contiguous\nhint: pass a copy in C order"),
    ({"residual": ones(1, 3, 4, 5)}, r"residual has the shape \(1, 3, 4, 5\); it must be \(1, 3, 4, 4\)"),
    ({"residual": ones(1, 3, 4, 4, dtype="i4")}, "residual has the dtype int32"),
    ({"residual": ones(1, 3, 4, 8)[..., ::2]}, "residual is not contiguous"),
    ({"residual": "x"}, "residual is a str"),
    ({"out": ones(3, 4, 4)}, r"out has the shape \(3, 4, 4\); it must be \(1, 3, 4, 4\)"),
    ({"out": ones(1, 3, 4, 4, dtype="f2")}, "out has the dtype float16"),
    ({"out": ones(4, 4, 3, 1).transpose(3, 2, 1, 0)}, "out is not contiguous"),
    ({"out": LOCKED}, "out is read-only"),
    ({"out": 1.0}, "out is a float"),
    ({"x": ROOM[:32].reshape(X.shape), "out": ROOM[31:79].reshape(Y.shape)}, "out overlaps x"),
    ({"x": ROOM[40:72].reshape(X.shape), "out": ROOM[:48].reshape(Y.shape)}, "out overlaps x"),
    ({"residual": ROOM[:48].reshape(Y.shape), "out": ROOM[1:49].reshape(Y.shape)}, "out overlaps residual"),
])  # fmt: skip
def test_calls_that_are_refused(words, message, monkeypatch):
    def never(*args, **options):
        raise AssertionError("launched")

    monkeypatch.setattr(code, "assemble", never)  # before anything runs, so before any kernel is needed
    with pytest.raises(LaunchError, match=f"^{message}"):
        Conv2d(W)(**{"x": X, **words})


def test_arrays_that_touch_do_not_overlap(standin):
    conv, room = Conv2d(W), ones(200)
    x, out, residual = room[:32].reshape(X.shape), room[32:80].reshape(Y.shape), room[80:128].reshape(Y.shape)
    assert error(conv(x, residual, out), conv(X, Y)) == 0


def test_images_smaller_than_the_filter(standin):
    conv = Conv2d(W, padding=0)
    assert conv(ones(1, 2, 3, 3)).shape == (1, 3, 1, 1)
    with pytest.raises(LaunchError, match="^a filter of 3 x 3 is larger than an image of 2 x 9 with a padding of 0"):
        conv(ones(1, 2, 2, 9))
