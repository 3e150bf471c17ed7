"""Calls of ``Linear`` and ``Conv2d`` that go past PyTorch's dispatcher: that they do, and that they take nothing which
the operator takes otherwise, or refuses."""

from __future__ import annotations

import copy
import dataclasses
import gc
import importlib
import threading
import weakref

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: make test-torch")

from torch._subclasses import FakeTensor, FakeTensorMode  # noqa: E402
from torch.autograd import forward_ad  # noqa: E402
from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402
from torch.nn.utils import parametrize, prune  # noqa: E402
from torch.overrides import TorchFunctionMode  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from kernels_sass.conv import libraries  # noqa: E402
from kernels_sass.torch import Conv2d, Linear, conv2d, linear, operator, product  # noqa: E402
from loader import arrays  # noqa: E402
from loader.cuda import CudaError  # noqa: E402
from tests.loader.conftest import install  # noqa: E402, F401
from tests.loader.driver import Driver  # noqa: E402
from turingas.errors import LaunchError  # noqa: E402

F = torch.nn.functional


def off(found, wanted):
    return float((found.double() - wanted).norm() / wanted.norm())


class Way:
    """A layer, an x for it, what it should make, and how often the operator was called."""

    def __init__(self, kind, monkeypatch):
        self.name, module = kind, product if kind == "linear" else operator
        torch.manual_seed(5)
        self.shape = (3, 7) if kind == "linear" else (2, 3, 5, 4)
        self.layer = Linear(7, 5, activation="relu") if kind == "linear" else Conv2d(3, 4, 3, padding=1,
                                                                                     activation="relu")  # fmt: skip
        self.x, self.calls, self.module = torch.randn(self.shape), [], module
        real = module._by_kernels
        monkeypatch.setattr(module, "_by_kernels", lambda *given: self.calls.append(1) or real(*given))

    def exact(self, x, weight=None, bias=None):
        weight = (self.layer.weight if weight is None else weight).detach().double()
        bias = self.layer.bias if bias is None else bias
        bias = None if bias is None else bias.detach().double()
        return self.exact_of(x.double(), weight, bias)

    def exact_of(self, x, weight, bias):
        made = F.linear(x, weight, bias) if self.name == "linear" else F.conv2d(x, weight, bias, padding=1)
        return made.relu()

    def asked(self, function, *given):
        """What a function gives, and whether the operator was called for it."""
        before = len(self.calls)
        made = function(*given)
        return made, len(self.calls) > before

    def right(self, x=None):
        """A call has the right numbers; whether the operator was called for it."""
        x = self.x if x is None else x
        y, asked = self.asked(self.layer, x)
        assert off(y, self.exact(x)) < 1e-6 and y.dtype is torch.float32
        return asked


@pytest.fixture(params=["linear", "conv2d"])
def way(request, kernels, monkeypatch):
    """One that has been called, so that calls go past the dispatcher, without gradients."""
    with torch.no_grad():
        made = Way(request.param, monkeypatch)
        assert made.right()
        while made.right():
            assert len(made.calls) < 5
        yield made


def test_a_call_goes_past(way):
    """The operator is not called again, for x elsewhere neither, nor by another layer with the same parameters."""
    assert not way.right() and not way.right(way.x.clone())
    parameter = torch.nn.Parameter(way.x, False)
    assert way.right(parameter) and not way.right(parameter)
    y = way.layer(way.x)
    assert type(y) is torch.Tensor and not y.requires_grad and y.is_contiguous() and not y.is_inference()
    other = copy.copy(way.layer)
    assert other.weight is way.layer.weight and not way.asked(other, way.x)[1]
    assert way.right(way.x[:1])  # another shape, at first
    assert not way.right(way.x[:1]) and not way.right()


OTHER = {
    "strides": lambda x: x.transpose(0, -1).contiguous().transpose(0, -1),
    "every other": lambda x: x.repeat_interleave(2, -1)[..., ::2],
    "negated": torch._neg_view,
    "gradients": lambda x: x.clone().requires_grad_(),
    "an inference tensor": lambda x: inference(lambda: x * 1.0),
}


def inference(function):
    with torch.inference_mode():
        return function()


@pytest.mark.parametrize("what", OTHER)
def test_other_tensors(what, way):
    """x that is not like the one that was there: at first the operator is called, or each time."""
    other = OTHER[what](way.x)
    asked = [way.right(other) for _ in range(6)]
    assert asked[0] and asked == ([True] * 6 if what == "negated" else sorted(asked, reverse=True))
    assert not way.right()
    (ways,) = operator.recent(way.layer.weight, way.module._RECENT).ways.values()
    assert len(ways) <= operator.MOST_ALIKE


def test_x_of_another_type(way):
    """Of a class with functions of its own: they are called."""
    seen = []

    class Own(torch.Tensor):
        @classmethod
        def __torch_function__(cls, function, kinds, args=(), kwargs=None):
            seen.append(str(function))
            return super().__torch_function__(function, kinds, [one.as_subclass(torch.Tensor) if type(one) is Own else
                                                                one for one in args], kwargs)  # fmt: skip

    bias = way.layer._parameters["bias"]
    for x, added in ((way.x, bias.detach().as_subclass(Own)), (way.x.as_subclass(Own), bias)):
        way.layer._parameters["bias"] = added
        for _ in range(3):
            seen.clear()
            y, asked = way.asked(way.layer, x)
            assert asked and any(f"turingas.{way.name}" in one for one in seen)
            assert off(y.as_subclass(torch.Tensor), way.exact(way.x, bias=bias)) < 1e-6
    assert not way.right()


WRONG = {
    "double": (lambda x: x.double(), "x is torch.float64, weight torch.float32"),
    "meta": (lambda x: x.to("meta"), "x is on meta, weight on cpu|x is on meta"),
    "sizes": (lambda x: x[:, :2], "x has"),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_refused(what, way):
    make, told = WRONG[what]
    for _ in range(2):
        with pytest.raises((RuntimeError, LaunchError), match=told):
            way.layer(make(way.x))
    if what != "sizes":
        for name in ("weight", "bias"):
            own = getattr(way.layer, name)
            setattr(way.layer, name, torch.nn.Parameter(make(own), False))
            with pytest.raises((RuntimeError, LaunchError), match="torch.float64|on meta"):
                way.layer(way.x)
            setattr(way.layer, name, own)
    assert not way.right()
    for x in (np.zeros(way.shape, np.float32), [1.0]):
        with pytest.raises((RuntimeError, AttributeError), match="but instead found type|has no attribute 'dim'"):
            way.layer(x)


def test_x_without_memory(way):
    x = way.x.clone()
    x.untyped_storage().resize_(0)
    with pytest.raises(LaunchError):
        way.layer(x)
    with pytest.raises((LaunchError, RuntimeError)):
        way.layer(way.x.to_sparse())
    zero = torch._efficientzerotensor(way.shape)
    y, asked = way.asked(way.layer, zero)
    assert asked and off(y, way.exact(torch.zeros(way.shape))) < 1e-6


CHANGES = {
    "in place": lambda layer: layer.weight.mul_(-1.5), "bias in place": lambda layer: layer.bias.add_(1),
    "data": lambda layer: setattr(layer.weight, "data", layer.weight.data * -2),
    "bias data": lambda layer: setattr(layer.bias, "data", layer.bias.data * -2),
    "negated": lambda layer: setattr(layer.weight, "data", torch._neg_view(layer.weight.data)),
    "bias negated": lambda layer: setattr(layer.bias, "data", torch._neg_view(layer.bias.data)),
    "another": lambda layer: setattr(layer, "weight", torch.nn.Parameter(layer.weight * -2)),
    "another bias": lambda layer: setattr(layer, "bias", torch.nn.Parameter(layer.bias * -2)),
    "no bias": lambda layer: setattr(layer, "bias", None),
    "loaded": lambda layer: layer.load_state_dict({"weight": layer.weight * -2, "bias": layer.bias * 3}),
    "set": lambda layer: layer.weight.set_(layer.weight.detach().clone().mul_(-2)),
    "strides": lambda layer: setattr(layer.weight, "data", layer.weight.data.transpose(0, 1).contiguous()
                                     .transpose(0, 1)),
    "turned": lambda layer: setattr(layer.weight, "data", layer.weight.data.flip(0)),
    "a stepping optimizer": lambda layer: stepped(layer, fused=True),
}  # fmt: skip


def stepped(layer, **options):
    for one in layer.parameters():
        one.grad = -torch.ones_like(one)
    torch.optim.SGD(layer.parameters(), lr=0.5, **options).step()


@pytest.mark.parametrize("what", CHANGES)
def test_parameters_that_change(what, way):
    for _ in range(2):
        CHANGES[what](way.layer)
        asked = [way.right() for _ in range(4)]
        assert "negated" in what or not asked[-1]  # it goes past with what there is now


def test_a_weight_of_which_a_part_is_left(way):
    """At the same place, with the same version."""
    layer = way.layer
    layer.weight.data, layer.bias.data = layer.weight.data[:3], layer.bias.data[:3]
    assert way.right() and way.layer(way.x).shape[1] == 3


def test_an_address_that_is_used_again(way):
    """By a new weight: the memory of the old one is held."""
    for seed in range(3):
        way.layer.weight.data = torch.randn(way.layer.weight.shape, generator=torch.Generator().manual_seed(seed))
        for _ in range(3):
            way.right()


def test_a_weight_at_an_id_that_is_used_again(way):
    """Another tensor that Python puts where the old one was; here of the same memory, with other numbers in it, which
    no version tells."""
    memory = way.layer.weight.detach().numpy().copy()
    old, new = (torch.nn.Parameter(torch.from_numpy(memory), False) for _ in range(2))
    way.layer.weight = old
    while way.right():
        pass
    memory *= -2
    way.module._RECENT[id(new)] = way.module._RECENT[id(old)]
    way.layer.weight = new
    assert way.right()


def test_layers_that_share_a_weight(way):
    """One with another activation, and one with another bias, in turn."""
    other = copy.copy(way.layer)
    other._parameters = dict(way.layer._parameters, bias=torch.nn.Parameter(way.layer.bias * -3, False))
    third = copy.copy(way.layer)
    third.activation = "none" if way.name == "linear" else None
    for _ in range(4):
        way.right()
        assert off(other(way.x), way.exact(way.x, bias=other.bias)) < 1e-6
        assert float(third(way.x).min()) < 0 and off(third(way.x).relu(), way.exact(way.x)) < 1e-6


def test_who_computes_is_asked_each_time(way, monkeypatch):
    """On the CPU the environment says it."""
    monkeypatch.setenv("TURINGAS_TORCH_CPU", "torch")
    before, real, called = len(way.calls), way.module._by_torch, []
    monkeypatch.setattr(way.module, "_by_torch", lambda *given: called.append(1) or real(*given))
    assert off(way.layer(way.x), way.exact(way.x)) < 1e-6 and called and len(way.calls) == before


def test_a_bias_that_another_thread_takes_out_meanwhile(kernels, monkeypatch):
    """No way is left to what was made for it: its memory may be another one's then."""
    monkeypatch.setattr(operator, "MOST_LAYERS", 1)
    x, weight, threads, real = torch.randn(2, 3, 5, 4), torch.randn(4, 3, 3, 3), [], operator._again

    def other():
        with torch.no_grad():
            conv2d(x, weight, torch.randn(4))

    def again(*given):
        found = real(*given)
        if found is not None:
            threads.append(threading.Thread(target=other))
            threads[0].start(), threads[0].join(2)
        return found

    monkeypatch.setattr(operator, "_again", again)
    with torch.no_grad():
        bias = torch.randn(4)
        for _ in range(2):  # in the second one it is learned
            operator.called(x, weight, bias, None, (1, 1), False, (1, 1), (1, 1))
        threads[0].join()
    known = operator.recent(weight, operator._RECENT)
    assert len(kernels) == 2 and len(known.layers) == 1 and not known.ways


# ---- what PyTorch does with operators ----------------------------------------------------------------------------


def test_gradients_are_recorded(way):
    """Where they are asked for, though the calls before did not; the thread says whether they are."""
    with torch.enable_grad():
        y, asked = way.asked(way.layer, way.x)
        y.sum().backward()
    assert asked and way.layer.weight.grad is not None and off(y.detach(), way.exact(way.x)) < 1e-6
    found = []
    thread = threading.Thread(target=lambda: found.append(way.layer(way.x).requires_grad))  # its mode is its own
    thread.start(), thread.join()
    assert found == [True] and not way.layer(way.x).requires_grad


def test_inference_mode(way):
    with torch.inference_mode():
        assert way.right()
        while way.right():
            assert len(way.calls) < 12
        assert way.layer(way.x).is_inference()
    assert not way.layer(way.x).is_inference() and not way.right()


def test_modes_see_the_operator(way):
    """Those of the dispatcher, and of functions."""
    seen = []

    class Dispatch(TorchDispatchMode):
        def __torch_dispatch__(self, function, kinds, args=(), kwargs=None):
            seen.append(str(function))
            return function(*args, **(kwargs or {}))

    class Function(TorchFunctionMode):
        def __torch_function__(self, function, kinds, args=(), kwargs=None):
            seen.append(str(function))
            return function(*args, **(kwargs or {}))

    for mode in (Dispatch, Function):
        for _ in range(3):
            seen.clear()
            with mode():
                assert way.right() and any(f"turingas.{way.name}" in one for one in seen)
    assert not way.right()


def test_modes_of_pytorch_see_the_operator(way):
    """Those that TensorGuards does not look at: none of them gets numbers."""
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        for x in (way.x, way.x, mode.from_tensor(way.x)):
            y, asked = way.asked(way.layer, x)
            assert isinstance(y, FakeTensor) and not asked
    for kind in ("real", "fake", "symbolic"):
        graph = make_fx(way.layer, tracing_mode=kind, _allow_non_fake_inputs=True)(way.x)
        assert f"turingas.{way.name}" in str(graph.graph)
        assert off(graph(-way.x), way.exact(-way.x)) < 1e-6
    assert not way.right()


def test_a_profiler_sees_the_operator(way):
    for _ in range(2):
        with torch.profiler.profile() as found:
            assert way.right()
        assert any(one.key == f"turingas::{way.name}" for one in found.key_averages())
    assert not way.right()


def test_autocast(way):
    """Halves become float32, as PyTorch was told for the operator."""
    with torch.autocast("cpu", torch.bfloat16):
        for _ in range(3):
            assert way.asked(way.layer, way.x)[1]
            y, asked = way.asked(way.layer, way.x.bfloat16())
            assert asked and y.dtype is torch.float32 and off(y, way.exact(way.x.bfloat16())) < 1e-6
    assert not way.right()


def test_transformations(way):
    """vmap, gradients by torch.func, functionalize, and a trace: tensors in them are no plain ones."""
    many = torch.stack([way.x, -way.x])
    seen = []

    def called(x):
        seen.append(type(x))
        return way.layer(x)

    assert not way.right()
    y = torch.func.grad(lambda x: called(x).sum())(way.x)
    weight, bias = way.layer.weight.detach().double(), way.layer.bias.detach().double()
    assert off(y, torch.func.grad(lambda x: way.exact_of(x, weight, bias).sum())(way.x.double())) < 1e-6
    y, asked = way.asked(torch.func.functionalize(called), way.x)
    assert asked and off(y, way.exact(way.x)) < 1e-6
    _, asked = way.asked(torch.vmap(called), many)
    assert asked and off(torch.vmap(called)(many), torch.stack([way.exact(one) for one in many])) < 1e-6
    assert set(seen) == {torch.Tensor}
    traced = torch.jit.trace(way.layer, way.x, check_trace=False)
    assert f"turingas::{way.name}" in str(traced.graph) and off(traced(many[1]), way.exact(many[1])) < 1e-6
    assert not way.right()


@pytest.mark.parametrize("recorded", [False, True])
def test_derivatives_in_forward_mode(recorded, way):
    """They are there, though the calls before were without; of all that there is."""
    tangents = [torch.randn_like(one) for one in (way.x, way.layer.weight, way.layer.bias)]
    given = way.x, way.layer.weight.detach(), way.layer.bias.detach()

    def called(x, weight, bias):
        return torch.func.functional_call(way.layer, {"weight": weight, "bias": bias}, (x,))

    doubles = [tuple(one.double() for one in those) for those in (given, tangents)]
    y, wanted = torch.func.jvp(lambda *those: way.exact_of(*those), *doubles)
    with torch.set_grad_enabled(recorded):
        for made, tangent in (torch.func.jvp(called, given, tuple(tangents)), dual(called, given, tangents)):
            assert off(made, y) < 1e-6 and off(tangent, wanted) < 1e-6 and tangent.any()
        jacobian = torch.func.jacfwd(way.layer)(way.x)
        assert jacobian.shape == (*y.shape, *way.shape) and jacobian.any()
    (ways,) = operator.recent(way.layer.weight, way.module._RECENT).ways.values()
    assert len(ways) == 1 and not way.right()


def dual(function, given, tangents):
    with forward_ad.dual_level():
        return forward_ad.unpack_dual(function(*map(forward_ad.make_dual, given, tangents)))


def test_a_compiler_sees_the_operator(way):
    torch._dynamo.reset()
    graphs = []

    def backend(graph, inputs):
        graphs.append(str(graph.graph))
        return graph.forward

    compiled = torch.compile(way.layer, fullgraph=True, backend=backend)
    for x in (way.x, -way.x):
        assert off(compiled(x), way.exact(x)) < 1e-6
    assert len(graphs) == 1 and f"turingas.{way.name}" in graphs[0]
    program = torch.export.export(way.layer, (way.x,))
    assert f"turingas.{way.name}" in str(program.graph) and not way.right()


@pytest.mark.parametrize("change", ["gone", "another", "no keys"])
def test_another_pytorch(change, kernels, monkeypatch):
    """Whose function for compiled code is gone, or refuses what it is given, or which does not tell the dispatcher's
    keys: the operator is called each time."""
    def refuses(*tensors, **more):
        raise TypeError("another signature")

    if change == "no keys":
        monkeypatch.delattr(torch._C, "_dispatch_tls_local_include_set")
    else:
        monkeypatch.setattr(operator, "_GUARDS", None if change == "gone" else refuses)
    with torch.no_grad():
        for kind in ("linear", "conv2d"):
            with monkeypatch.context() as patch:
                made = Way(kind, patch)
                assert all(made.right() for _ in range(4))


def test_modules_whose_parameters_are_made(way):
    """Called with others, pruned, parametrized, and as before."""
    others = {"weight": -way.layer.weight, "bias": way.layer.bias * 2}
    for _ in range(3):
        y = torch.func.functional_call(way.layer, others, (way.x,))
        assert off(y, way.exact(way.x, **others)) < 1e-6
    assert not way.right()
    for name in ("weight", "bias"):
        prune.random_unstructured(way.layer, name, amount=0.5)
        assert (getattr(way.layer, name) == 0).any()
        for _ in range(3):
            way.right()
        prune.remove(way.layer, name)

    class Twice(torch.nn.Module):
        def forward(self, one):
            return 2 * one

    for name in ("weight", "bias"):
        parametrize.register_parametrization(way.layer, name, Twice())
        for _ in range(3):
            way.right()


# ---- of linear alone ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(7,), (1, 7), (3, 7), (2, 3, 7), (2, 1, 3, 7)])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("activation", product.ACTIVATIONS)
def test_shapes(shape, bias, activation, kernels, monkeypatch):
    torch.manual_seed(2)
    layer, x = Linear(7, 5, bias=bias, activation=activation), torch.randn(shape)
    calls, real = [], product._by_kernels
    monkeypatch.setattr(product, "_by_kernels", lambda *given: calls.append(1) or real(*given))
    doubles = (None if one is None else one.detach().double() for one in (layer.weight, layer.bias))
    exact = product.ACTIVATIONS[activation](F.linear(x.double(), *doubles))
    with torch.no_grad():
        for _ in range(3):
            y = layer(x)
            assert y.shape == (*shape[:-1], 5) and y.is_contiguous() and y.any() and off(y, exact) < 1e-6
    assert len(calls) == 1


@pytest.mark.parametrize("activation", [["none"], "silu", None, 1])
def test_activations_that_there_are_not(activation, kernels):
    x, weight = torch.randn(3, 7), torch.randn(5, 7)
    with torch.no_grad():
        for _ in range(3):
            linear(x, weight)
        with pytest.raises(RuntimeError):
            linear(x, weight, None, activation)


def test_nothing(kernels):
    """Without rows PyTorch computes, each time."""
    with torch.no_grad():
        layer = Linear(7, 5)
        assert [tuple(layer(torch.zeros(0, 7)).shape) for _ in range(3)] == [(0, 5)] * 3


def test_nothing_is_asked_again(kernels, monkeypatch):
    """From the second call on ``gemm`` is not called, whose arguments it would check."""
    with torch.no_grad():
        layer, x = Linear(7, 5), torch.randn(3, 7)
        for _ in range(2):
            y = layer(x)
        monkeypatch.setattr(product, "gemm", lambda *given, **more: pytest.fail("gemm"))
        assert torch.equal(layer(x), y) and torch.equal(layer(x.clone()), y)


# ---- on a GPU that is none -----------------------------------------------------------------------------------------


@pytest.fixture
def gpu(install, kernels, monkeypatch):  # noqa: F811
    """Tensors in the host's memory say that they are there; nothing runs. ``now.stream``: the thread's current one;
    ``y``: what is given for a new tensor, if there is something."""
    driver, multiply = install(Driver(gpus=1, major=9, minor=0)), importlib.import_module("kernels_sass.gemm")
    driver.run, driver.now = lambda launch: None, threading.local()
    driver.do_cuPointerGetAttribute, driver.y = lambda kind, address: 0, []
    guards = torch._C._dynamo.guards
    real = guards._empty_strided_cpu
    monkeypatch.setattr(guards, "_empty_strided_cpu", lambda *given: driver.y[0] if driver.y else real(*given))
    for name, value in (("PLANS", {}), ("_place", lambda array: 0), ("_taken", lambda array: array)):
        monkeypatch.setattr(multiply, name, value)

    def stream(place):
        return getattr(driver.now, "stream", 0)

    kind = arrays.Kind(lambda x, stream: (x.data_ptr(), x.nbytes, 0, True), stream,
                       arrays.TORCH.replace("{here}", "{here} - 1"), stream,
                       arrays.torch_alike(torch), arrays.TORCH_MET)  # fmt: skip
    monkeypatch.setitem(arrays.KINDS, torch.Tensor, kind)
    monkeypatch.setitem(arrays.KINDS, torch.nn.Parameter, kind)
    for one in (torch.Tensor, torch.nn.Parameter):
        monkeypatch.setitem(libraries.LIBRARIES, one, libraries._torch(kind))
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: stream(0) in driver.captured)
    return driver


@pytest.fixture
def called(gpu, monkeypatch):
    """A linear layer that goes past the dispatcher."""
    with torch.no_grad():
        way = Way("linear", monkeypatch)
        way.layer, way.x = Linear(8, 8), torch.randn(3, 8)
        for _ in range(3):
            way.layer(way.x)
        assert len(way.calls) == 1
        yield way


def test_streams(gpu, called):
    """The current one at each call, and each thread's own; from one stream to another both kernels go along."""
    def streams(stream):
        gpu.now.stream = stream
        gpu.launches.clear()
        with torch.no_grad():
            called.layer(called.x)
        return [(name, one) for name, _, _, one, *_ in gpu.launches]

    for stream in (0, 70, 80, 70, 0, 80, 70, 70):
        assert [one for _, one in streams(stream)] == [stream] * 2
    found = []
    thread = threading.Thread(target=lambda: found.extend(streams(90)))
    thread.start(), thread.join()
    assert [one for _, one in found] == [90] * 2 and [one for _, one in streams(gpu.now.stream)] == [70] * 2
    assert len(called.calls) == 1


def test_what_is_captured_is_kept(gpu, called, monkeypatch):
    """On a stream that is recorded each kernel goes alone, and what the weight was made into stays; on the default
    stream, which nobody records, that is not asked."""
    layer, x = called.layer, called.x
    with monkeypatch.context() as patch:
        patch.setattr(torch.cuda, "is_current_stream_capturing", lambda: pytest.fail("asked"))
        layer(x)
    known = operator.recent(layer.weight, product._RECENT)
    gpu.now.stream = 70
    layer(x)
    assert not known.captured
    gpu.captured[70] = []
    gpu.calls.clear()
    layer(x)
    assert known.captured and gpu.calls["cuLaunchKernelEx"] == 2 and not gpu.calls["cuGraphLaunch"]
    layer.weight.mul_(2)
    layer(x)
    assert operator.recent(layer.weight, product._RECENT).kept == [known.matrix] and len(called.calls) == 2


def test_what_is_captured_by_conv2d_is_kept(kernels, monkeypatch):
    """It asks too, past the dispatcher, on a stream that can be recorded."""
    with torch.no_grad():
        way = Way("conv2d", monkeypatch)
        while way.right():
            pass
        known = operator.recent(way.layer.weight, operator._RECENT)
        kind = dataclasses.replace(arrays.kind_of(way.x), stream=lambda x: 70)
        monkeypatch.setitem(arrays.KINDS, torch.Tensor, kind)
        monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
        assert not known.captured and not way.right() and known.captured


def test_one_call_of_the_driver(gpu, called):
    """Both kernels are one graph, of which nothing is changed as long as x and y lie where they were, or where they
    were before; else what makes halves of x, or what makes y."""
    gpu.thread.stack = [1000]  # the context is current, as PyTorch has made it
    xs, ys = ([torch.randn(3, 8) for _ in range(4)] for _ in range(2))

    def changed(x, y):
        gpu.y[:] = [ys[y]]
        gpu.calls.clear()
        assert called.layer(xs[x]) is ys[y]
        found = gpu.calls.pop("cuGraphExecKernelNodeSetParams", 0)
        assert gpu.calls["cuGraphLaunch"] == 1 and not gpu.calls["cuLaunchKernelEx"]
        assert found or gpu.calls == {"cuGraphLaunch": 1, "cuCtxGetCurrent": 1}
        return found

    assert {changed(0, 0), changed(0, 1)} <= {1, 2}  # of what there was before; y may lie where one lay then
    assert [changed(0, 0), changed(0, 1), changed(0, 0), changed(1, 0), changed(1, 2)] == [0, 0, 0, 1, 2]
    assert [changed(1, 0), changed(1, 2), changed(2, 3)] == [0, 0, 2]
    assert len(called.calls) == 1


@pytest.mark.parametrize("first", [0, 1])
def test_x_that_begins_elsewhere(first, gpu, monkeypatch):
    """A kernel reads 16 bytes at a time where x begins at a multiple of them, another one elsewhere: each x gets its
    own, whichever came first, and both without the dispatcher."""
    way, memory, kernels = Way("linear", monkeypatch), torch.randn(3 * 64 + 4), {}
    way.layer = Linear(64, 8)
    with torch.no_grad():
        for at in (first, first, 0, 1, 4, 2, 0, 1):
            used = []
            gpu.run = lambda launch, used=used: used.append(launch[0])
            way.layer(memory[at : at + 3 * 64].view(3, 64))
            kernels.setdefault(at % 4 == 0, set()).add(id(used[-2]))
    assert len(kernels[True]) == len(kernels[False]) == 1 and kernels[True] != kernels[False]
    assert len(way.calls) == 1


def test_a_lost_context_is_told(gpu, called):
    gpu.fails["cuGraphLaunch"] = 700
    for _ in range(2):
        with pytest.raises(CudaError, match="ILLEGAL_ADDRESS|the context of"):
            called.layer(called.x)
    assert len(called.calls) == 1


# ---- memory ------------------------------------------------------------------------------------------------------


def test_what_is_ready_goes_with_its_weight(way):
    """It does not keep itself, until garbage is collected."""
    known = weakref.ref(operator.recent(way.layer.weight, way.module._RECENT))
    gc.disable()
    try:
        del way.layer
        assert known() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("captured", [False, True])
def test_what_was_made_of_a_weight_goes_when_the_module_is_moved(captured, way):
    """With the memory that it had, before the next call; not what a CUDA graph uses, nor what is as it was."""
    known = weakref.ref(operator.recent(way.layer.weight, way.module._RECENT))
    torch.nn.Sequential(way.layer).float()
    assert known() is not None and not way.right()
    known().captured = captured
    torch.nn.Sequential(way.layer).double()
    assert (known() is not None) == captured and (id(way.layer.weight) in way.module._RECENT) == captured
    way.layer.float()
    for _ in range(4):
        asked = way.right()
    assert not asked


@pytest.mark.parametrize("captured", [False, True])
def test_parameters_that_are_swapped(captured, way, swapping):
    """Behind calls, with and without gradients: other types, another state, and back; alone and in another module."""
    def negate(module):
        module.load_state_dict({name: -one for name, one in module.state_dict().items()})

    around, weight = torch.nn.Sequential(way.layer), way.layer.weight
    for mode, module in ((torch.no_grad, way.layer), (torch.enable_grad, around)):
        for change in (torch.nn.Module.half, lambda one: one.to("meta").to_empty(device="cpu"), negate):
            with mode():
                for _ in range(3):
                    y = way.layer(way.x)
                del y
                known = operator.recent(weight, way.module._RECENT)
                known.captured, known = captured, weakref.ref(known)
                change(module)
                assert way.layer.weight is weight and (known() is not None) == captured
                module.float()
                torch.nn.init.normal_(way.layer.weight), torch.nn.init.normal_(way.layer.bias)
                for _ in range(3):
                    asked = way.right()
                assert asked == torch.is_grad_enabled()


def test_shapes_are_bounded(way, monkeypatch):
    monkeypatch.setattr(operator, "MOST_SIZES", 2)
    ways = operator.recent(way.layer.weight, way.module._RECENT).ways
    for n in (1, 2, 1, 2, 1, 2):
        way.right(torch.randn(n, *way.shape[1:]))
        assert 1 <= len(ways) <= 2


def test_ways_of_a_shape_are_bounded(way):
    """x in memory with ever other strides: from some on each goes through the operator."""
    (ways,) = operator.recent(way.layer.weight, way.module._RECENT).ways.values()
    for more in range(2 * operator.MOST_ALIKE):
        wide = torch.zeros(*way.shape[:-1], way.shape[-1] + more)[..., : way.shape[-1]]
        for _ in range(2):
            way.right(wide.copy_(way.x))
    assert len(ways) <= operator.MOST_ALIKE and (len(ways) > 1) == (way.name == "linear") and not way.right()
