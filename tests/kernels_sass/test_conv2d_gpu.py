"""Conv2d on GPUs, with arrays of every library: stand-ins, all of them (conftest.py, tests/loader)."""

from __future__ import annotations

import timeit
import types

import numpy as np
import pytest

from kernels_sass.conv import Conv2d, conv2d
from kernels_sass.conv import shape as sizes
from loader.cuda import Buffer
from tests.kernels_sass.cases import Case, error, ones
from turingas.errors import LaunchError

W, X, Y = ones(3, 2, 3, 3), ones(1, 2, 4, 4), ones(1, 3, 4, 4)


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
    negated = libraries.torch(Buffer.of(X))
    negated.is_neg = lambda: True
    for given in ((negated,), (x, None, negated)):
        with pytest.raises(LaunchError, match=r"^(x|out) is a view .*\nhint: pass x.resolve_neg\(\)"):
            Conv2d(ones(2, 2, 3, 3))(*given)
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
