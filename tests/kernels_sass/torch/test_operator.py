"""``turingas::conv2d``: PyTorch's own checks of it, our kernels behind it on the CPU device, and what compiles it."""

from __future__ import annotations

import copy
import itertools
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: make test-torch")

from torch._dynamo.testing import CompileCounterWithBackend  # noqa: E402

from kernels_sass.torch import conv2d, operator  # noqa: E402
from tests import inductor  # noqa: E402
from turingas.errors import LaunchError  # noqa: E402

LAST = torch.channels_last
ORDERS = {
    "contiguous": lambda x: x, "channels_last": lambda x: x.contiguous(memory_format=LAST),
    "CHWN": lambda x: x.permute(1, 2, 3, 0).contiguous().permute(3, 0, 1, 2),
    "every other": lambda x: x.repeat_interleave(2, 3)[..., ::2],
}  # fmt: skip


def given(n=2, c=3, h=6, w=5, k=4, padding=1, seed=0, order="contiguous", dtype=None):
    """x, weight, bias, residual."""
    random = torch.Generator().manual_seed(seed)
    shapes = (n, c, h, w), (k, c, 3, 3), (k,), (n, k, h + 2 * padding - 2, w + 2 * padding - 2)
    x, weight, bias, residual = (torch.randn(shape, generator=random, dtype=dtype) for shape in shapes)
    return ORDERS[order](x), weight, bias, residual


def exact(x, weight, bias=None, residual=None, padding=1, relu=False):
    double = None if bias is None else bias.double()
    y = torch.nn.functional.conv2d(x.double(), weight.double(), double, padding=padding)
    y = y if residual is None else y + residual
    return y.relu() if relu else y


def off(found, wanted):
    return float((found.double() - wanted).norm() / wanted.norm())


# ---- the operator ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("by", ["torch", "kernels"])
@pytest.mark.parametrize("order", ["contiguous", "channels_last"])
def test_opcheck(by, order, monkeypatch):
    """Schema, fake kernel, gradients, and AOT dispatch with dynamic sizes, as torch.library checks them."""
    monkeypatch.setenv("TURINGAS_TORCH_CPU", by)
    x, weight, bias, residual = given(order=order)
    operation = torch.ops.turingas.conv2d.default
    for arguments in ((x, weight), (x, weight, bias, residual, 1, True), (x, weight, bias, None, 0)):
        assert set(torch.library.opcheck(operation, arguments).values()) == {"SUCCESS"}
    learned = [one.detach().clone().requires_grad_() for one in (x, weight, bias, residual)]
    assert set(torch.library.opcheck(operation, (*learned, 1, True)).values()) == {"SUCCESS"}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("padding", [0, 1])
def test_numbers(order, padding, kernels):
    """Our kernels, against float64; the result lies as x does."""
    x, weight, bias, residual = given(3, 5, 6, 7, 6, padding, order=order)
    for added, relu in itertools.product((None, residual), (False, True)):
        y = conv2d(x, weight, bias, added, padding, relu)
        assert off(y, exact(x, weight, bias, added, padding, relu)) < 1e-6 and y.shape == residual.shape
        assert order == "every other" or operator.layout_of(y) == operator.layout_of(x)
    assert len(kernels) == 2  # with and without ReLU


def test_residual_in_another_order(kernels):
    x, weight, bias, residual = given(order="channels_last")
    assert off(conv2d(x, weight, bias, residual), exact(x, weight, bias, residual)) < 1e-6


@pytest.mark.parametrize("sizes", [(1, 1, 3, 3, 1), (2, 1, 4, 4, 2), (1, 2, 1, 1, 3), (0, 2, 4, 4, 3)])
def test_small(sizes, kernels):
    """One channel, one pixel, no image: strides are those of the fake kernel."""
    for order in ("contiguous", "channels_last"):
        arguments = given(*sizes, order=order)
        y = conv2d(*arguments)
        torch.testing.assert_close(y.double(), exact(*arguments), atol=1e-5, rtol=1e-5)
        meta = operator._fake(*(one.to("meta") for one in arguments))
        assert (y.shape, y.stride()) == (meta.shape, meta.stride())


def test_other_types_are_pytorchs(kernels):
    """float64 and halves are PyTorch's convolution; no kernel is asked."""
    for dtype in (torch.float64, torch.bfloat16):
        arguments = given(dtype=dtype)
        y = conv2d(*arguments, 1, True)
        wanted = operator.by_torch(*arguments, True, padding=1)
        assert y.dtype is dtype and torch.equal(y, wanted)
    assert not kernels and operator.unable(torch.device("cpu"), torch.float16) == "float16, not float32"


def test_sizes_beyond_the_kernels_are_pytorchs(kernels, monkeypatch):
    """What the kernels cannot count."""

    def beyond(self):
        raise LaunchError("an image of 4 GiB or more")

    x, weight, bias, _ = given()
    monkeypatch.setattr(operator.conv.Shape, "parts", beyond)
    assert torch.equal(conv2d(x, weight, bias), operator.by_torch(x, weight, bias, None, False, padding=1))
    assert not kernels


@pytest.mark.parametrize("change, told", [
    ({"x": (2, 3, 6)}, "it must be N, C, H, W"), ({"x": (2, 4, 6, 5)}, "x has 4 channels, weight 3"),
    ({"x": (2, 3, 2, 2), "padding": 0}, "a filter of 3 x 3 is larger than an image of 2 x 2 padded by .0, 0"),
    ({"weight": (4, 3, 5)}, "it must be K, C, R, S"), ({"stride": 0}, "stride is .*; it must be 1 or more"),
    ({"bias": (5,)}, "bias has the shape"), ({"residual": (2, 4, 1, 1)}, "residual has the shape"),
    ({"padding": -1}, "padding is .*; it must be 0 or more"),
    ({"weight": torch.zeros(4, 3, 3, 3).double()}, "x is torch.float32, weight torch.float64"),
    ({"bias": torch.zeros(4).double()}, "x is torch.float32, bias torch.float64"),
    ({"residual": torch.zeros(2, 4, 6, 5).double()}, "x is torch.float32, residual torch.float64"),
    ({"weight": torch.zeros(4, 3, 3, 3, device="meta")}, "x is on cpu, weight on meta"),
    ({"bias": torch.zeros(4, device="meta")}, "x is on cpu, bias on meta"),
    ({"residual": torch.zeros(2, 4, 6, 5, device="meta")}, "x is on cpu, residual on meta"),
])  # fmt: skip
def test_what_does_not_fit(change, told, kernels):
    """Told alike by both implementations and by the fake kernel."""
    names = dict(zip(("x", "weight", "bias", "residual"), given()))
    arguments = {**names, **{name: torch.zeros(value) if isinstance(value, tuple) else value
                             for name, value in change.items()}}  # fmt: skip
    for function in (conv2d, operator._by_torch, operator._fake):
        with pytest.raises(RuntimeError, match=told):
            function(**arguments)


def test_views_with_the_sign_changed(kernels):
    """PyTorch's dispatcher gives the operator what they stand for, also below what records gradients."""
    x, weight, bias, residual = given()
    wanted = conv2d(-x, -weight, -bias, -residual)
    views = [torch._neg_view(one) for one in (x, weight, bias, residual)]
    for recorded in (False, True):
        with torch.set_grad_enabled(recorded):
            for call in (conv2d, torch.ops.turingas.conv2d):
                assert torch.equal(call(*views), wanted)


def test_a_bias_that_does_not_fit_later(kernels):
    """After calls with one that does."""
    x, weight, bias, _ = given()
    conv2d(x, weight, bias)
    with pytest.raises(RuntimeError, match="float32, bias torch.float64"):
        conv2d(x, weight, bias.double())


def test_biases_that_begin_at_the_same_place(kernels):
    """Each has its own numbers, or does not fit, whichever came before."""
    x, weight, *_ = given()
    memory = torch.randn(8)
    others = memory[:4], memory[::2], memory[:1].expand(4), memory[:4], memory[::2]
    with torch.no_grad():
        for bias in others:
            for _ in range(3):
                assert off(conv2d(x, weight, bias), exact(x, weight, bias)) < 1e-6
        for bias, told in ((memory[:3], "shape"), (memory.view(torch.int32)[:4], "float32, bias torch.int32")):
            with pytest.raises((RuntimeError, LaunchError), match=told):
                conv2d(x, weight, bias)
    assert len(kernels) == 3


def test_who_computes_on_the_cpu(monkeypatch):
    monkeypatch.setenv("TURINGAS_TORCH_CPU", "hand")
    with pytest.raises(LaunchError, match="TURINGAS_TORCH_CPU is 'hand'"):
        conv2d(*given())


# ---- gradients ---------------------------------------------------------------------------------------------------


def test_gradients():
    """Of all inputs, in float64, against differences."""
    for padding, order in ((1, "contiguous"), (0, "channels_last")):
        arguments = [one.requires_grad_() for one in given(1, 2, 4, 3, 2, padding, order=order, dtype=torch.float64)]
        assert torch.autograd.gradcheck(lambda *a, padding=padding: conv2d(*a, padding, True), arguments)
        assert torch.autograd.gradcheck(lambda *a, padding=padding: conv2d(*a, padding=padding), arguments[:2])


def test_gradients_through_our_kernels(kernels):
    arguments = [one.requires_grad_() for one in given()]
    conv2d(*arguments, 1, True).square().sum().backward()
    ours = [one.grad for one in arguments]
    doubles = [one.detach().double().requires_grad_() for one in arguments]
    exact(*doubles, 1, True).square().sum().backward()
    assert all(off(mine, one.grad) < 1e-5 for mine, one in zip(ours, doubles)) and len(kernels) == 1


# ---- filters that change -----------------------------------------------------------------------------------------


def test_filters_are_prepared_once(kernels):
    x, weight, bias, _ = given()
    for n in (1, 2, 2):
        conv2d(x[:n], weight, bias)
    assert len(kernels) == 1


@pytest.mark.parametrize("change", [
    lambda weight, bias: weight.mul_(2), lambda weight, bias: bias.add_(1),
    lambda weight, bias: setattr(weight, "data", weight.data * 3),
    lambda weight, bias: setattr(bias, "data", bias.data * 3),
])  # fmt: skip
def test_filters_that_change(change, kernels):
    x, weight, bias, _ = given()
    first = conv2d(x, weight, bias)
    change(weight, bias)
    second = conv2d(x, weight, bias)
    assert off(second, exact(x, weight, bias)) < 1e-6 < off(second, first.double()) and len(kernels) == 2


def test_usual_calls(kernels, monkeypatch):
    """From the third on a call looks up its layer by all that it depends on, and does nothing else; what has changed
    since is noticed all the same."""
    x, weight, bias, residual = given()
    last = x.contiguous(memory_format=LAST)
    calls = [(x, bias, None, 1, False), (x, bias, residual, 1, True), (x, None, residual, 1, True),
             (x, bias, None, 0, False), (last, bias, residual, 1, True), (x[:1], bias, residual[:1], 1, False),
             (x.clone(), bias.clone(), None, 1, False), (x.double(), bias.double(), None, 1, False)]  # fmt: skip
    looked, real = [], operator.Way.of.__func__
    monkeypatch.setattr(operator.Way, "of", classmethod(lambda *given: looked.append(1) or real(*given)))

    def right(weight):
        for x, bias, added, padding, relu in calls:
            w = weight.double() if x.dtype is torch.float64 else weight
            y = conv2d(x, w, bias, added, padding, relu)
            assert off(y, exact(x, w, bias, added, padding, relu)) < 1e-6 and y.dtype is x.dtype
            assert operator.layout_of(y) == operator.layout_of(x)

    for _ in range(2):
        right(weight)
    looked.clear()
    right(weight)
    assert len(looked) == 2  # of the call in float64, which is PyTorch's
    made = len(kernels)
    bias.add_(1)
    right(weight)
    assert len(kernels) > made and off(conv2d(x, weight, bias), exact(x, weight, bias)) < 1e-6
    for change in (lambda: weight.mul_(2), lambda: setattr(weight, "data", weight.data.flip(0))):
        change()
        right(weight)
    for wrong, told in (((x, weight, bias, residual[:1]), "residual has the shape"),
                        ((x[:, :2], weight, bias), "x has 2 channels")):  # fmt: skip
        with pytest.raises((RuntimeError, LaunchError), match=told):
            conv2d(*wrong)


def test_an_address_that_is_used_again(kernels):
    """A new weight at the place of an old one: the old memory is held, so that it cannot be mistaken."""
    x, weight, _, _ = given()
    for seed in range(3):
        weight.data = given(seed=seed)[1]
        assert off(conv2d(x, weight), exact(x, weight)) < 1e-6


def test_layers_of_a_weight_are_bounded(kernels, monkeypatch):
    """A bias that is computed anew each time makes a layer each time; a few are kept."""
    monkeypatch.setattr(operator, "MOST_LAYERS", 2)
    x, weight, bias, _ = given()
    kept = [bias + number for number in range(2 * operator.MOST_LAYERS)]
    for one in kept:
        assert off(conv2d(x, weight, one), exact(x, weight, one)) < 1e-6
    assert len(operator.prepared(weight).layers) == operator.MOST_LAYERS


def test_a_graph_keeps_what_it_was_captured_with(kernels):
    """The layer of old filters lives as long as the weight, once something was captured with it."""
    x, weight, bias, _ = given()
    conv2d(x, weight, bias)
    operator.prepared(weight).captured = True
    conv2d(x, weight, bias.add_(1))
    weight.mul_(2)
    conv2d(x, weight, bias)
    assert [layer for layer, *_ in operator.prepared(weight).kept] == kernels[:2]
    weight.mul_(2)
    conv2d(x, weight, bias)
    assert [layer for layer, *_ in operator.prepared(weight).kept] == kernels[:2]


def test_what_is_prepared_goes_with_its_weight(kernels):
    x, weight, bias, _ = given()
    conv2d(x, weight, bias)
    other = copy.deepcopy(weight)
    count = len(operator._PREPARED)
    assert other not in operator._PREPARED
    del weight
    assert len(operator._PREPARED) == count - 1


# ---- what PyTorch does with operators ----------------------------------------------------------------------------


class Two(torch.nn.Module):
    """Two convolutions, with something of PyTorch's between and around them."""

    def __init__(self):
        super().__init__()
        _, weight, bias, _ = given(c=3, k=3)
        self.weight, self.bias = torch.nn.Parameter(weight / 3), torch.nn.Parameter(bias)

    def forward(self, x):
        y = conv2d(x * 2, self.weight, self.bias, x, 1, True)
        return conv2d(torch.sigmoid(y), self.weight, None, None, 0).mean((2, 3))


@pytest.fixture
def two():
    torch._dynamo.reset()
    return Two()


@pytest.mark.parametrize("mode, order", [
    ("default", "channels_last"), ("reduce-overhead", "contiguous"), ("max-autotune-no-cudagraphs", "contiguous"),
])  # fmt: skip
def test_compile(two, mode, order, kernels):
    """One graph, in which the operator stays."""
    compiled, x = torch.compile(two, fullgraph=True, mode=mode), given(order=order)[0]
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), two(x), atol=1e-5, rtol=1e-5)
    assert kernels


def test_what_is_compiled_is_kept_apart(monkeypatch):
    """Each process of the tests has folders of its own, whatever it has inherited."""
    from torch._inductor.runtime import cache_dir_utils

    assert cache_dir_utils.cache_dir() == str(inductor.apart())
    folders = set()
    for worker in ("gw0", "gw1"):
        monkeypatch.setenv("PYTEST_XDIST_WORKER", worker)
        monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "elsewhere")
        monkeypatch.setenv("TRITON_CACHE_DIR", "elsewhere")
        inductor.apart()
        folders |= {cache_dir_utils.cache_dir(), cache_dir_utils.triton_cache_dir(0)}
    assert len(folders) == 4 and all(inductor.CACHE in Path(one).parents for one in folders)


def test_compile_dynamic(two, kernels):
    """Another batch makes the graph dynamic; for more of them none is compiled."""
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(two, fullgraph=True, backend=counter)
    with torch.no_grad():
        for n in (2, 3, 4, 5):
            x = given(n)[0]
            torch.testing.assert_close(compiled(x), two(x), atol=1e-5, rtol=1e-5)
    assert counter.frame_count == 2


def test_compile_with_gradients(two, kernels):
    x = given()[0]
    two(x).sum().backward()
    wanted = [one.grad.clone() for one in two.parameters()]
    two.zero_grad()
    torch.compile(two, fullgraph=True)(x).sum().backward()
    for one, grad in zip(two.parameters(), wanted):
        torch.testing.assert_close(one.grad, grad, atol=1e-4, rtol=1e-4)


def test_export(two, kernels):
    """With a dynamic batch: the operator stands in the graph."""
    batch = torch.export.Dim("batch", min=1, max=64)
    program = torch.export.export(two, (given()[0],), dynamic_shapes=({0: batch},))
    assert sum(node.target is torch.ops.turingas.conv2d.default for node in program.graph.nodes) == 2
    x = given(5)[0]
    with torch.no_grad():
        torch.testing.assert_close(program.module()(x), two(x))


def test_aot_inductor(two, kernels, tmp_path):
    """A package in a process that has imported kernels_sass.torch, where the implementations are."""
    batch = torch.export.Dim("batch", min=1, max=64)
    with torch.no_grad():
        program = torch.export.export(two, (given()[0],), dynamic_shapes=({0: batch},))
        path = torch._inductor.aoti_compile_and_package(
            program, package_path=str(tmp_path / "two.pt2"), inductor_configs=inductor.PACKAGED
        )
        loaded = torch._inductor.aoti_load_package(path)
        for n in (2, 5):
            x = given(n)[0]
            torch.testing.assert_close(loaded(x), two(x), atol=1e-5, rtol=1e-5)
    assert kernels


def test_autocast(kernels):
    """Our kernels are float32: halves that autocast made before them are taken as that."""
    x, weight, bias, residual = given()
    with torch.autocast("cpu", torch.bfloat16):
        y = conv2d(x.bfloat16(), weight, bias, residual)
        assert torch.nn.functional.conv2d(x, weight).dtype is torch.bfloat16
    assert y.dtype is torch.float32 and off(y, exact(x.bfloat16(), weight, bias, residual)) < 1e-6 and kernels


def test_below_autograd(kernels):
    """Without gradients what records them is not called, which the operator itself would; with them it is. Autocast is,
    both ways."""
    x, weight, bias, residual = given()
    operation, arguments = torch.ops.turingas.conv2d, (x, weight, bias, residual, 1, True)

    def recorder(function):
        """Whether it is called, and what the function gives."""
        names = set()
        sys.setprofile(lambda frame, event, _: names.add((Path(frame.f_code.co_filename).name, frame.f_code.co_name)))
        try:
            y = function(*arguments)
        finally:
            sys.setprofile(None)
        return ("operator.py", "autograd") in names, y

    for mode, called in ((torch.no_grad, False), (torch.inference_mode, False), (torch.enable_grad, True)):
        with mode():
            found, y = recorder(conv2d)
            assert found == called and off(y, exact(*arguments)) < 1e-6 and not y.requires_grad
            assert recorder(operation)[0] == (mode is not torch.inference_mode)
    learned = weight.clone().requires_grad_()
    with torch.no_grad():
        assert not conv2d(x, learned).requires_grad
        with torch.autocast("cpu", torch.bfloat16):
            assert conv2d(x.bfloat16(), learned).dtype is torch.float32
        with torch.enable_grad():
            conv2d(x, learned).sum().backward()
    assert learned.grad is not None


def test_inference_mode(kernels):
    """Also with a weight that was made in it."""
    x, weight, bias, _ = given()
    with torch.inference_mode():
        assert off(conv2d(x, weight, bias), exact(x, weight, bias)) < 1e-6
        other = weight * 2
        assert other.is_inference() and off(conv2d(x, other, bias), exact(x, other, bias)) < 1e-6
    assert off(conv2d(x, weight, bias), exact(x, weight, bias)) < 1e-6 and len(kernels) == 2


def test_threads(kernels):
    """They share what is prepared."""
    x, weight, bias, _ = given()
    wanted = exact(x, weight, bias)
    with ThreadPoolExecutor(4) as pool:
        for y in pool.map(lambda _: conv2d(x, weight, bias), range(8)):
            assert off(y, wanted) < 1e-6
    assert len(kernels) == 1
