"""Conv2d: what it computes on the CPU device, what it refuses, and what it asks of a GPU's driver.

The kernels themselves are slow to emulate, so what is not about them runs over standin.cu: a direct convolution in CUDA
C++ with the same kernels and parameters. GPUs, PyTorch and CuPy are stand-ins as well (tests/loader).
"""

from __future__ import annotations

import json
import sys
import threading
import timeit
import types
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from kernels_sass.conv import Conv2d, code, conv2d, launch, tuned
from kernels_sass.conv import shape as sizes
from kernels_sass.conv.code import Kernels
from kernels_sass.conv.method import METHODS
from loader import cuda, nvrtc
from loader.cuda import Buffer
from loader.reference.problem import Problem, arrange, relative_error, truth
from tests.loader.conftest import install  # noqa: F401
from tests.loader.driver import Driver
from turingas.cubin.cubin import Cubin
from turingas.errors import LaunchError

STANDIN = (Path(__file__).parent / "standin.cu").read_text()


@pytest.fixture
def standin(monkeypatch):
    """standin.cu in the place of the kernels."""

    def assemble(source, arch, schedule):
        return Cubin.from_bytes(nvrtc.compile(STANDIN, arch, [], name="standin.cu"))

    monkeypatch.setattr(code, "assemble", assemble)
    monkeypatch.setattr(Kernels, "_made", {})
    monkeypatch.setattr(METHODS["hopper"], "general", False)
    monkeypatch.setattr(code, "FITTED", ())  # nor in the place of others


class Case:
    """A convolution with bias, residual and ReLU, in a layout; ``y`` in float64 with what ``call`` asks for."""

    def __init__(self, n, c, h, w, k, pad=1, layout="NCHW", seed=0):
        random = np.random.default_rng(seed)
        self.problem, self.layout, self.pad = Problem(n, c, h, w, k, 3, 3, 1, pad), layout, pad
        made = [random.standard_normal(shape, np.float32)
                for shape in (self.problem.x_shape, self.problem.w_shape, (k,), self.problem.y_shape)]  # fmt: skip
        x, self.weight, self.bias, residual = made
        self.x, self.residual = arrange(x, "NCHW", layout), arrange(residual, "NCHW", layout)
        self.exact = truth(x, self.weight, self.problem)

    def y(self, bias=False, residual=False, relu=False):
        found = self.exact.copy()
        if bias:
            found += self.bias[:, None, None]
        if residual:
            found += arrange(self.residual, self.layout, "NCHW")
        return arrange(np.maximum(found, 0) if relu else found, "NCHW", self.layout)

    def conv(self, bias=False, relu=False, **more):
        return Conv2d(self.weight, self.bias if bias else None, self.pad, "relu" if relu else None, self.layout, **more)


def error(found, exact):
    return relative_error(np.asarray(found), exact)


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


def ones(*shape, dtype=np.float32):
    return np.ones(shape, dtype)


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
     "winograd_sm90.sass cannot be assembled with MATH=fp32: .*-D MATH=fp32: there are tf32x3, ffma"),
    ({"arch": "sm_90", "schedule": {"LANES": "paper"}},
     "winograd_sm90.sass cannot be assembled with LANES=paper: .*LANES is there with MATH=ffma alone"),
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


# ---- GPUs


@pytest.fixture
def driver(install, standin, monkeypatch):  # noqa: F811
    """With Winograd's kernels alone: the standin has no HGMMA."""
    monkeypatch.setattr(conv2d, "_multiplies", lambda device: False)
    return install(Driver(major=9, minor=0))


@pytest.fixture
def libraries(monkeypatch):
    """What Conv2d uses of PyTorch and CuPy, over Buffers and numpy arrays. ``libraries.stream`` is current."""

    found = types.SimpleNamespace(stream=77, gradients=True)

    class Tensor:
        dtype, requires_grad = "torch.float32", False

        def __init__(self, inner, contiguous=True):
            self.inner, self.shape, self.nbytes, self.contiguous = inner, Size(inner.shape), inner.nbytes, contiguous

        def data_ptr(self):
            return self.inner.address if isinstance(self.inner, Buffer) else self.inner.ctypes.data

        def get_device(self):
            return self.inner.gpu.number if isinstance(self.inner, Buffer) else -1

        def is_contiguous(self):
            return self.contiguous

        def new_empty(self, *shape):
            gpu = isinstance(self.inner, Buffer)
            return Tensor(Buffer(shape, np.float32, self.inner.gpu) if gpu else np.empty(shape, np.float32))

        def untyped_storage(self):
            return types.SimpleNamespace(resize_=lambda count: isinstance(self.inner, Buffer) and self.inner.free())

        def permute(self, *order):
            raise NotImplementedError

    class Size(tuple):
        pass

    class Array:
        dtype = np.dtype("f4")

        def __init__(self, inner):
            self.inner, self.shape, self.nbytes = inner, inner.shape, inner.nbytes
            self.data = types.SimpleNamespace(ptr=inner.address)
            self.flags = types.SimpleNamespace(c_contiguous=True)
            self.device = Device(inner.gpu.number)

    class Device:
        current = 0

        def __init__(self, id):
            self.id = id

        def __enter__(self):
            self.before, Device.current = Device.current, self.id

        def __exit__(self, *exception):
            Device.current = self.before

    torch = types.SimpleNamespace(
        Tensor=Tensor, float32="torch.float32", is_grad_enabled=lambda: found.gradients,
        empty_like=lambda like: like.new_empty(*like.shape),
        cuda=types.SimpleNamespace(current_stream=lambda place: types.SimpleNamespace(cuda_stream=found.stream)),
    )  # fmt: skip
    cupy = types.SimpleNamespace(
        ndarray=Array, empty=lambda shape, dtype: Array(Buffer(shape, dtype, f"cuda:{Device.current}")),
        cuda=types.SimpleNamespace(get_current_stream=lambda: types.SimpleNamespace(ptr=found.stream)),
    )  # fmt: skip
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    found.torch, found.cupy = Tensor, Array
    return found


def test_numpy_arrays_go_to_a_gpu_and_back(driver):
    case = Case(2, 2, 5, 4, 3, 1, "NHWC")
    conv = case.conv(bias=True, device="cuda")
    assert conv.device == "cuda:0" and driver.calls["cuLaunchKernelEx"] == 1  # filters are there already
    y = conv(case.x, case.residual)
    assert type(y) is np.ndarray and error(y, case.y(bias=True, residual=True)) < 1e-6
    out = np.empty_like(case.residual)
    assert conv(case.x, out=out) is out and error(out, case.y(bias=True)) < 1e-6
    with pytest.raises(LaunchError, match="^out overlaps x"):
        conv(case.x, out=case.x.reshape(-1)[: out.size].reshape(out.shape) if case.x.size >= out.size
             else np.lib.stride_tricks.as_strided(case.x, out.shape, out.strides))  # fmt: skip


def test_arrays_of_every_library_in_place(driver, libraries):
    case = Case(2, 2, 5, 4, 3)
    conv = case.conv(bias=True, relu=True)
    for number, make in ((0, Buffer.of), (1, libraries.torch), (1, libraries.cupy), (None, libraries.torch)):
        def there(array, make=make, number=number):
            inner = array.copy() if number is None else Buffer.of(array, f"cuda:{number}")
            return inner if make == Buffer.of else make(inner)

        x, residual = there(case.x), there(case.residual)
        y = conv(x, residual)
        assert type(y) is type(x)
        inner = y if isinstance(y, Buffer) else y.inner
        found = inner if number is None else inner.numpy()
        assert error(found, case.y(1, 1, 1)) < 1e-6
        if number is not None:
            assert inner.gpu.number == number
            assert driver.launches[-1][-1] == (0 if make == Buffer.of else 77)  # the caller's current stream
    assert sorted(conv._places) == [-1, 0, 1]


def test_weights_on_a_gpu(driver, libraries):
    case = Case(2, 2, 5, 4, 3)
    driver.streams.add(77)
    weight, bias = (libraries.torch(Buffer.of(one, "cuda:1")) for one in (case.weight, case.bias))
    weight.requires_grad = bias.requires_grad = True  # as parameters of a network do
    conv = Conv2d(weight, bias)
    assert conv.device == "cuda:1" and driver.launches == [("filter_transform", (1, 1, 1, 256, 1, 1), 0, 77)]
    bias.inner.fill(0)
    weight.inner.free()
    assert error(conv(Buffer.of(case.x, "cuda:1")).numpy(), case.y(bias=True)) < 1e-6
    for device, message in (("cpu", "weight is on cuda:1, the layer on cpu"),
                            ("cuda:0", "weight is on cuda:1, the layer on cuda:0")):  # fmt: skip
        with pytest.raises(LaunchError, match=f"^{message}"):
            Conv2d(weight, bias, device=device)
    with pytest.raises(LaunchError, match="^bias is on cuda:0, the layer on cuda:1"):
        Conv2d(weight, libraries.torch(Buffer.of(case.bias, "cuda:0")))
    assert Conv2d(case.weight, bias).device == "cuda:1"


def test_a_call_waits_for_nothing_and_copies_nothing(driver):
    case = Case(2, 2, 5, 4, 3)
    conv, x, out = case.conv(bias=True), Buffer.of(case.x), Buffer(case.residual.shape)
    conv(x, out=out)
    before = dict(driver.calls)
    conv(x, out=out)
    new = {name for name, count in driver.calls.items() if count != before.get(name, 0)}
    assert new <= {"cuLaunchKernelEx", "cuCtxGetCurrent", "cuCtxPushCurrent", "cuCtxPopCurrent"}
    assert driver.calls["cuLaunchKernelEx"] == before["cuLaunchKernelEx"] + 1


def test_arrays_elsewhere(driver, libraries):
    case = Case(1, 2, 4, 4, 3)
    x0, x1 = Buffer.of(case.x), Buffer.of(case.x, "cuda:1")
    y0, y1 = Buffer.of(case.residual), Buffer.of(case.residual, "cuda:1")
    for conv, words, message in (
        (case.conv(), (x0, y1), "residual is on cuda:1, x on cuda:0"),
        (case.conv(), (x0, case.residual), "residual is on cpu, x on cuda:0"),
        (case.conv(), (x1, None, y0), "out is on cuda:0, x on cuda:1"),
        (case.conv(device="cpu"), (x0,), "x is on cuda:0, the layer on cpu"),
        (case.conv(device="cuda:0"), (x1,), "x is on cuda:1, the layer on cuda:0"),
        (case.conv(device="cuda:0"), (libraries.torch(case.x),), "x is on cpu, the layer on cuda:0"),
        (case.conv(device="cuda:0"), (case.x, libraries.torch(case.residual)), "residual is a Tensor, x a numpy array"),
    ):
        launched = len(driver.launches)
        with pytest.raises(LaunchError, match=f"^{message}$"):
            conv(*words)
        assert len(driver.launches) == launched
    y0.free()
    with pytest.raises(LaunchError, match="^out the buffer's memory was given back"):
        case.conv()(x0, out=y0)


def test_tensors_that_are_refused(driver, libraries):
    conv, x = Conv2d(W), libraries.torch(Buffer.of(X))
    last = libraries.torch(Buffer.of(X), contiguous=False)
    with pytest.raises(LaunchError, match=r"(?s)^x is not contiguous.*channels_last goes as .*permute\(0, 2, 3, 1\)"):
        conv(last)
    x.dtype = "torch.float16"
    with pytest.raises(LaunchError, match="^x has the dtype torch.float16; it must be float32"):
        conv(x)
    del x.dtype
    x.requires_grad = True
    with pytest.raises(LaunchError, match="^x requires gradients, and this layer has none"):
        conv(x)
    libraries.gradients = False
    assert conv(x).inner.numpy().shape == Y.shape


@pytest.mark.parametrize("library", ["torch", "cupy", "buffer"])
@pytest.mark.parametrize("splits", [1, 2])
def test_what_a_prepared_shape_is_asked_again(driver, libraries, library, splits):
    """Where each array lies, which stream is current, and all that a call can get wrong."""
    case = Case(2, 16, 2, 2, 3)
    conv = case.conv(bias=True, splits=splits)
    make = {"torch": libraries.torch, "cupy": libraries.cupy, "buffer": lambda inner: inner}[library]
    ran = []
    driver.run = ran.append

    def there(array, card="cuda:0"):
        return make(Buffer.of(array, card))

    def address(array):
        return (array if library == "buffer" else array.inner).address

    def told():
        """x, y and residual as the kernels of the last call have them, and on which GPU."""
        pointers = [[int.from_bytes(one, "little") for one in launch[4][:5]] for launch in ran[-splits:]]
        device = driver.devices.index(ran[-1][0].device)
        if splits == 1:
            return pointers[0][0], pointers[0][2], pointers[0][4], device
        assert pointers[0][2] == pointers[1][0] and pointers[0][3:] == [0, 0]  # partial results
        return pointers[0][0], pointers[1][1], pointers[1][3], device

    x, residual, out = there(case.x), there(case.residual), there(case.residual)
    y = conv(x, residual)
    assert told() == (address(x), address(y), address(residual), 0)
    for card, number in (("cuda:0", 0), ("cuda:1", 1), ("cuda:0", 0)):
        other = there(case.x, card)
        y = conv(other)
        assert told() == (address(other), address(y), 0, number)
    driver.thread.stack = [1001]  # another GPU's context is current
    assert conv(x, residual, out) is out and told() == (address(x), address(out), address(residual), 0)
    assert driver.thread.stack == [1001]
    if library != "buffer":
        for stream in (5, 6, 5):
            libraries.stream = stream
            conv(x)
            assert {launch[3] for launch in driver.launches[-splits:]} == {stream}

    def spoiled(**what):
        made = there(case.x)
        for name, value in what.items():
            setattr(made, name, value)
        return made

    refused = [
        ((x, there(case.residual, "cuda:1")), "residual is on cuda:1, x on cuda:0"),
        ((x, None, there(case.residual, "cuda:1")), "out is on cuda:1, x on cuda:0"),
        ((x, x), "residual has the shape .*; it must be"),
        ((x, None, x), "out has the shape .*; it must be"),
        ((x, case.residual), "residual is on cpu, x on cuda:0"),
    ]
    if library == "torch":
        refused += [((spoiled(contiguous=False),), "x is not contiguous"),
                    ((spoiled(requires_grad=True),), "x requires gradients"),
                    ((spoiled(dtype="torch.float16"),), "x has the dtype torch.float16")]  # fmt: skip
    if library == "buffer":
        gone = there(case.x)
        gone.free()
        owned = Buffer.view(x.address, x.shape, "f4", "cuda:0", owner=types.SimpleNamespace(closed=False))
        conv(owned, out=out)
        assert told() == (x.address, out.address, 0, 0)
        owned.owner.closed = True
        inside = Buffer.view(x.address + 16, residual.shape, "f4", "cuda:0", owner=types.SimpleNamespace(closed=False))
        behind = Buffer.view(residual.address + 4, residual.shape, "f4", "cuda:0", owner=inside.owner)
        refused += [((one,), "x the buffer's memory was given back") for one in (gone, owned)]
        refused += [((there(case.x.astype("i4")),), "x has the dtype int32"), ((x, None, inside), "out overlaps x"),
                    ((x, residual, behind), "out overlaps residual")]  # fmt: skip
    for words, message in refused:
        launched = len(driver.launches)
        with pytest.raises(LaunchError, match=f"^{message}"):
            conv(*words)
        assert len(driver.launches) == launched
    conv.close()
    with pytest.raises(LaunchError, match="^the layer is closed$"):
        conv(x)


def test_an_architecture_that_the_gpu_cannot_run(driver):
    with pytest.raises(LaunchError, match=r"the cubin is for sm_75, cuda:0 \(Fake 0\) is sm_90"):
        Conv2d(W, device="cuda:0", arch="sm_75")
    conv = Conv2d(W, arch="sm_80")
    with pytest.raises(LaunchError, match="the cubin is for sm_80"):
        conv(Buffer.of(X))
    assert not driver.launches


def test_images_of_more_than_4_gib_on_a_gpu(driver, monkeypatch):
    monkeypatch.setattr(sizes, "LIMIT", 1 << 15)
    monkeypatch.setattr(conv2d, "filter_floats", lambda c, k: 16 * 8 * 64)
    case = Case(3, 2, 41, 40, 3)
    y = case.conv()(Buffer.of(case.x), Buffer.of(case.residual))
    assert error(y.numpy(), case.y(residual=True)) < 1e-6
    assert [name for name, *_ in driver.launches] == ["filter_transform", "winograd", "winograd", "winograd"]


def test_products_by_hgmma_where_they_are_faster(driver, monkeypatch):
    """By what the costs say, for each shape of x; never where a kernel, a schedule or an order of sums is asked for."""
    monkeypatch.setattr(conv2d, "_multiplies", lambda device: True)
    said = []

    class Beside:
        def __init__(self, weight, bias, *rest):
            assert weight.shape == (3, 2, 3, 3) and rest[2:] == ((1, 1), False, "NCHW", "cuda:0", "fp32", {}, None)

        def __call__(self, x, residual, out, stream=None):
            said.append((x.shape, residual, stream))
            return "products"

        def run(self, library, x, source, number, residual, out):
            assert source == x.address and number == 0 and library.seen(x, "float32") == (source, number)
            return self(x, residual, out)

        def close(self):
            said.append("closed")

    monkeypatch.setattr(conv2d, "Implicit", Beside)
    faster = {"n": 2}
    monkeypatch.setattr(conv2d.implicit_shape, "microseconds", lambda shape, sms: 0 if shape.n == faster["n"] else 1e9)
    one, two = Case(1, 2, 6, 5, 3), Case(2, 2, 6, 5, 3)
    layer = Conv2d(one.weight, device="cuda:0", padding=1)
    for _ in range(2):
        assert layer(Buffer.of(two.x)) == "products"
        assert error(layer(Buffer.of(one.x)).numpy(), one.y()) < 1e-6
    layer.queue(Buffer.of(two.x), Buffer(two.y().shape), 5)
    assert said == [((2, 2, 6, 5), None, None)] * 2 + [((2, 2, 6, 5), None, 5)]
    layer.close()
    assert said[-1] == "closed"
    layer = Conv2d(two.weight, device="cuda:0", padding=1)
    monkeypatch.setattr("kernels_sass.conv.partial.Partial.recorded", lambda self, stream: True)
    assert error(layer(Buffer.of(two.x)).numpy(), two.y()) < 1e-6  # nothing is loaded while a graph is recorded
    for options in ({"kernel": "hopper"}, {"schedule": {}}, {"splits": 1}, {"arch": "sm_90"}):
        assert Conv2d(one.weight, device="cuda:0", **options)._beside is None


def test_close_frees_what_is_on_a_gpu(driver):
    conv = Conv2d(W, ones(3), device="cuda:0")
    freed = driver.calls["cuMemFree"]
    conv.close()
    assert driver.calls["cuMemFree"] == freed + 2
    with pytest.raises(LaunchError, match="^the layer is closed$"):
        conv(Buffer.of(X))


def test_a_call_takes_microseconds(driver):
    """What Python does of a call, over a driver that does nothing; 5 on an idle core."""
    conv, x, out = Conv2d(W, device="cuda:0"), Buffer.of(X), Buffer(Y.shape)
    driver.cuLaunchKernelEx = lambda *args: (0,)
    driver.cuCtxGetCurrent = lambda: (0, 1000)
    best = min(timeit.repeat(lambda: conv(x, out=out), number=200, repeat=20)) / 200
    del driver.cuLaunchKernelEx, driver.cuCtxGetCurrent
    assert best < 50e-6


# ---- schedules that a sweep found


@pytest.fixture
def kept(driver, monkeypatch, tmp_path):
    """The file of schedules, which is not there yet. With YIELD the stand-in's outputs are larger by 1, with OUTPUT its
    filters are other ones."""
    changes = {"YIELD": ("sum += (bias", "sum += 1 + (bias"), "OUTPUT": ("t < 9 ? w", "t < 9 ? 1 + w"),
               "LANES": ("k += 8", "k += 4 + 4 * (k >= 0)")}  # fmt: skip

    def assemble(source, arch, schedule):
        text = STANDIN
        for name in schedule:
            if name not in changes:
                raise LaunchError(f"{source.file} has no parameter {name!r}")
            assert changes[name][0] in text
            text = text.replace(*changes[name])
        return Cubin.from_bytes(nvrtc.compile(text, arch, [], name="standin.cu"))

    monkeypatch.setattr(code, "assemble", assemble)
    monkeypatch.setattr(Kernels, "_made", {})
    file = tmp_path / "deep" / "schedules.json"
    monkeypatch.setattr(tuned, "path", lambda: file)
    return file


CASE = Case(2, 2, 5, 4, 3)


def keep(schedule, card="cuda:0", n=2, **facts):
    p = CASE.problem
    shape = sizes.Shape(n, p.c, p.h, p.w, p.k, p.padding, CASE.layout)
    gpu = cuda.device_named(card)
    tuned.keep(gpu, Kernels.of(code.arch_of(gpu)), shape, schedule, **facts)


def used(case=CASE, card="cuda:0", **more):
    """How much more than the convolution a layer gives: 1 with YIELD."""
    with case.conv(**more) as conv:
        y = conv(Buffer.of(case.x, card)).numpy() - case.y()
    assert y.std() < 1e-5
    return round(float(y.mean()))


def test_without_schedules_that_were_found(kept):
    assert used() == 0 and not kept.exists()


def test_a_schedule_that_was_found(kept):
    keep({"YIELD": "nvcc8"}, ms=1.5)
    found = json.loads(kept.read_text())["found"]
    ((key, entries),) = found.items()
    assert key.startswith("Fake 0, CUDA 12.9, paper, ") and entries == {
        "NCHW,2,2,5,4,3,1": {"schedule": {"YIELD": "nvcc8"}, "ms": 1.5}
    }
    assert used() == 1 and used(device="cuda:0") == 1
    assert used(schedule={}) == 0 and used(schedule={"LANES": 1}) == 0  # what is asked for is what one gets
    for other in (Case(3, 2, 5, 4, 3), Case(2, 2, 5, 4, 3, pad=0), Case(2, 2, 5, 4, 3, layout="NHWC")):
        assert used(other) == 0
    assert used(card="cuda:1") == 0  # another card
    conv = CASE.conv(device="cpu")
    assert error(conv(CASE.x), CASE.y()) < 1e-6
    keep({"YIELD": "cudnn7"}, n=3)
    assert used(Case(3, 2, 5, 4, 3)) == used() == 1
    keep({})
    assert used() == 0 and used(Case(3, 2, 5, 4, 3)) == 1
    assert [path.name for path in kept.parent.iterdir()] == [kept.name]


def test_all_kernels_are_loaded_before_the_first_call(kept, driver):
    """So that a call may be captured in a graph."""
    keep({"YIELD": "nvcc8"})
    conv, x = CASE.conv(device="cuda:0"), Buffer.of(CASE.x)
    loaded = driver.calls["cuModuleLoadData"]
    assert loaded >= 2
    conv(x)
    assert driver.calls["cuModuleLoadData"] == loaded


def test_schedules_that_are_stale(kept, monkeypatch):
    keep({"YIELD": "nvcc8"})
    keep({"YIELD": "nvcc8"}, "cuda:1")
    monkeypatch.setattr(Kernels, "_made", {})
    assembled = code.assemble
    monkeypatch.setattr(code, "assemble", lambda source, arch, given: assembled(source, arch, {"LANES": 1, **given}))
    assert used() == 0  # the source is another one since
    keep({"YIELD": "cudnn7"}, n=3)
    found = json.loads(kept.read_text())["found"]
    assert sorted(key[:6] for key in found) == ["Fake 0", "Fake 1"]  # the old one of this card is gone
    assert [list(entries) for key, entries in found.items() if key.startswith("Fake 0")] == [["NCHW,3,2,5,4,3,1"]]


@pytest.mark.parametrize(("text", "why"), [
    ("", "Expecting value"),
    ('{"format": 1, "fou', "Unterminated"),
    ("[]", "not of format 1"),
    ('{"format": 2, "found": {}}', "not of format 1"),
    ('{"format": 1, "found": {"KEY": 3}}', "'': 3 is not a schedule"),
    ('{"format": 1, "found": {"KEY": {"SHAPE": {"schedule": [1]}}}}', "is not a schedule"),
    ('{"format": 1, "found": {"KEY": {"SHAPE": {"schedule": {"YIELD": [1]}}}}}', "is not a schedule"),
    ('{"format": 1, "found": {"KEY": {"NCHW,2,2,5": {"schedule": {"YIELD": "nvcc8"}}}}}', "is not a schedule"),
    ('{"format": 1, "found": {"KEY": {"HWCN,2,2,5,4,3,1": {"schedule": {}}}}}', "is not a schedule"),
    (b"\xff\xfe", "codec can't decode"),
])  # fmt: skip
def test_a_broken_file_of_schedules(kept, text, why):
    gpu = cuda.device_named("cuda:0")
    kept.parent.mkdir()
    text = text if isinstance(text, bytes) else text.encode()
    key = tuned.key(gpu, Kernels.of(code.arch_of(gpu)))
    kept.write_bytes(text.replace(b"KEY", key.encode()).replace(b"SHAPE", b"NCHW,2,2,5,4,3,1"))
    with pytest.warns(RuntimeWarning, match=r"schedules\.json is ignored: .*" + why):
        assert used() == 0
    with pytest.warns(RuntimeWarning, match="is ignored"):
        keep({"YIELD": "nvcc8"})
    assert used() == 1


def test_schedules_that_the_source_does_not_take(kept):
    keep({"COLOUR": 1})
    with pytest.warns(RuntimeWarning, match=r"\{'COLOUR': 1\} is ignored: .*has no parameter 'COLOUR'"):
        assert used() == 0
    keep({"YIELD": "nvcc8", "OUTPUT": 1})  # the filters would have to be transformed again
    assert used() == 0


def test_a_schedule_changes_no_bit():
    """What Conv2d takes from the file changes when something is computed, and not what. But MATH does."""
    case = Case(2, 9, 4, 3, 65)
    for arch, kernel, math, schedule in (
        ("sm_75", "paper", {}, {"YIELD": "cudnn7", "LDG_INTERLEAVE": 2, "STS_INTERLEAVE": 2, "OUTPUT": "compact"}),
        ("sm_90", "hopper", {}, {"YIELD": "nvcc8", "HMMA_STALL": 4, "FADD_STALL": 2, "LDG_INTERLEAVE": 8,
                                 "STS_INTERLEAVE": 6}),
        ("sm_90", "hopper", {"MATH": "ffma"}, {"YIELD": "nvcc8", "LANES": "paper", "LDS_FIRST": 3, "LDS_INTERLEAVE": 8,
                                               "CHECK": 4, "LDG_INTERLEAVE": 8, "STS_INTERLEAVE": 6}),
    ):  # fmt: skip
        own, other = (
            case.conv(arch=arch, kernel=kernel, schedule={**math, **one})(case.x) for one in ({}, schedule)
        )
        assert own.tobytes() == other.tobytes()
    ffma, default = (case.conv(arch="sm_90", schedule=one)(case.x) for one in ({"MATH": "ffma"}, {}))
    assert ffma.tobytes() != default.tobytes() and relative_error(default, ffma) < 1e-6
