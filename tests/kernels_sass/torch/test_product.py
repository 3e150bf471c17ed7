"""``turingas::linear`` and ``kernels_sass.torch.Linear``: checks of PyTorch, gradients, weights that change; and gemm
of tensors."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: make test-torch")

from kernels_sass.bench import host  # noqa: E402
from kernels_sass.gemm import gemm, prepare  # noqa: E402
from kernels_sass.torch import Linear, linear, product  # noqa: E402
from loader.reference.problem import relative_error  # noqa: E402
from tests.bench import linear as timing  # noqa: E402
from turingas.errors import LaunchError  # noqa: E402


def given(dtype=None):
    random = torch.Generator().manual_seed(3)
    return tuple(torch.randn(*shape, generator=random, dtype=dtype) for shape in ((2, 3, 7), (5, 7), (5,)))


def off(found, wanted):
    return float((found.double() - wanted).norm() / wanted.norm())


@pytest.mark.parametrize("by", ["torch", "kernels"])
def test_opcheck(by, monkeypatch):
    monkeypatch.setenv("TURINGAS_TORCH_CPU", by)
    operation = torch.ops.turingas.linear.default
    for arguments in (given()[:2], (*given(), "gelu")):
        learned = [one.requires_grad_() if isinstance(one, torch.Tensor) else one for one in arguments]
        assert set(torch.library.opcheck(operation, learned).values()) == {"SUCCESS"}


@pytest.mark.parametrize("activation", product.ACTIVATIONS)
def test_numbers_and_gradients(activation, kernels):
    x, weight, bias = given()
    exact = product.ACTIVATIONS[activation](torch.nn.functional.linear(*(one.double() for one in (x, weight, bias))))
    assert off(linear(x, weight, bias, activation), exact) < 1e-6
    doubles = [one.requires_grad_() for one in given(torch.float64)]
    assert torch.autograd.gradcheck(lambda *a: linear(*a, activation), doubles)


def test_weights_that_change(kernels):
    """Its parts are those of the weight as it is."""
    layer, x = Linear(7, 5, activation="relu"), given()[0]
    with torch.no_grad():
        for _ in range(2):
            assert off(layer(x), torch.nn.functional.linear(x.double(), layer.weight.double(), layer.bias.double())
                       .relu()) < 1e-6  # fmt: skip
            layer.weight.mul_(-1.5)
    assert "activation='relu'" in repr(layer)
    with pytest.raises(LaunchError, match="there is no activation 'silu'"):
        Linear(7, 5, activation="silu")


@pytest.mark.parametrize("change, told", [
    ({"x": (2, 6)}, "it must be ..., 7"), ({"weight": (7,)}, "it must be K, C"), ({"bias": (4,)}, "bias has the shape"),
    ({"activation": "silu"}, "there is no activation 'silu'"),
    ({"weight": torch.zeros(5, 7).double()}, "x is torch.float32, weight torch.float64"),
    ({"bias": torch.zeros(5).double()}, "x is torch.float32, bias torch.float64"),
    ({"weight": torch.zeros(5, 7, device="meta")}, "x is on cpu, weight on meta"),
    ({"bias": torch.zeros(5, device="meta")}, "x is on cpu, bias on meta"),
])  # fmt: skip
def test_what_does_not_fit(change, told, kernels):
    arguments = dict(zip(("x", "weight", "bias"), given()))
    arguments |= {name: torch.zeros(one) if isinstance(one, tuple) else one for name, one in change.items()}
    for function in (linear, product._by_torch, product._fake):
        with pytest.raises(RuntimeError, match=told):
            function(**arguments)


def test_gemm_of_tensors():
    """On the host they are read in place, bfloat16 too; a batch, and a result of their own."""
    for dtype, bound in ((torch.float32, 1e-6), (torch.bfloat16, 3e-3), (torch.float16, 3e-4)):
        a, b = (torch.randn(*shape).to(dtype) for shape in ((3, 5, 9), (9, 7)))
        out = torch.full((3, 5, 7), float("nan"), dtype=dtype)
        for made in (gemm(a, b), gemm(a, b, out)):
            assert made.dtype is dtype and off(made, a.double() @ b.double()) < bound
        assert made is out


def test_gemm_of_a_parameter_with_other_memory():
    """What is prepared has the memory that there was, also where it is read as it lies."""
    weight, x = torch.nn.Parameter(torch.randn(64, 64).half()), torch.randn(8, 64).half()
    made, exact = prepare(weight), x.double() @ weight.detach().double()
    weight.data = torch.zeros(64, 64).half()
    others = [torch.full((64, 64), 7.0).half() for _ in range(8)]  # one of them may lie where the first one did
    assert off(gemm(x, made), exact) < 3e-4 and others


def test_gemm_has_no_gradients():
    a, b = torch.randn(8, 8).requires_grad_(), torch.randn(8, 8)
    for arguments in ((a, b), (b, a), (b, a.t()), (b, b, a)):
        with pytest.raises(LaunchError, match="requires gradients, and gemm has none"):
            gemm(*arguments)
    with torch.no_grad():
        assert off(gemm(a, b), a.double() @ b.double()) < 1e-6
    assert off(gemm(b, prepare(a)), b.double() @ a.detach().double()) < 1e-6


def test_gemm_of_views_with_the_sign_changed():
    """Refused where their memory would be read or written; what is copied first is right."""
    a, b, bias, z = torch.randn(8, 8), torch.randn(8, 8), torch.randn(8), torch.randn(8, 8, dtype=torch.complex64)
    gemm(a, b)
    bad = torch._neg_view(b)
    for given in ((bad, b), (a, bad), (a, b, bad)):
        with pytest.raises(LaunchError, match="^(A|B|out) is a view with the sign changed .*\nhint: pass x.resol"):
            gemm(*given)
    with pytest.raises(LaunchError, match="is a view with the sign changed"):
        gemm(a, b, bias=torch._neg_view(bias))
    with pytest.raises(LaunchError, match="is a view with the sign changed"):
        prepare(bad)
    other = z.conj().imag
    assert other.is_neg() and off(gemm(a, other), a.double() @ other.double()) < 1e-6
    with pytest.raises(LaunchError, match="gemm of complex64"):
        gemm(z.conj(), z)


@pytest.mark.parametrize("make", [
    lambda: torch.empty(8, 8, device="meta"), lambda: torch.eye(8).to_sparse(), lambda: torch.eye(8).to_sparse_csr(),
])  # fmt: skip
def test_gemm_of_tensors_without_memory(make):
    gemm(torch.ones(8, 8), torch.ones(8, 8))
    for given in ((make(), torch.ones(8, 8)), (torch.ones(8, 8), make()), (torch.ones(8, 8), torch.ones(8, 8), make())):
        with pytest.raises(LaunchError, match="a Tensor on .* has no memory that kernels take"):
            gemm(*given)


def test_what_gemm_writes_counts_as_changed(kernels):
    """A weight that it made is prepared anew; a tensor made in inference_mode has no version."""
    weight, x = torch.zeros(8, 8), torch.randn(3, 8)
    with torch.no_grad():
        for _ in range(2):
            linear(x, weight)
        one, two = torch.randn(8, 8), torch.randn(8, 8)
        gemm(one, two, weight)
        assert off(linear(x, weight), x.double() @ (one.double() @ two.double()).t()) < 1e-6
    with torch.inference_mode():
        assert off(gemm(x, one, torch.empty(3, 8)), x.double() @ one.double()) < 1e-6
        gemm(one, two, weight)


@pytest.mark.parametrize("options", [{"fused": True}, {"foreach": True}, {}])
@pytest.mark.parametrize("make", [torch.optim.SGD, torch.optim.AdamW])
def test_steps_of_optimizers(make, options, kernels):
    """Each is noticed; fused ones say nothing to PyTorch's version counters."""
    layer, x = Linear(7, 5), given()[0]
    optimizer = make(layer.parameters(), lr=0.5, **options)
    for _ in range(2):
        with torch.no_grad():
            layer(x), layer(x)
        optimizer.zero_grad()
        layer(x).square().sum().backward()
        optimizer.step()
        with torch.no_grad():
            wanted = x.double() @ layer.weight.double().t() + layer.bias.double()
            assert off(layer(x), wanted) < 1e-6


@pytest.mark.parametrize("part", [lambda one: one[:3], lambda one: one.t()])
def test_weights_that_become_a_part_of_their_memory(part, kernels):
    layer, x = Linear(5, 5, bias=False), torch.randn(2, 5)
    with torch.no_grad():
        for _ in range(2):
            layer(x)
        layer.weight.data = part(layer.weight.data)
        assert off(layer(x), x.double() @ layer.weight.double().t()) < 1e-6


@pytest.mark.parametrize("sizes", [(0, 7, 9), (3, 0, 9), (3, 4, 0)])
def test_gradients_of_nothing(sizes):
    rows, c, k = sizes
    x, weight, bias = (torch.randn(*shape).requires_grad_() for shape in ((rows, c), (k, c), (k,)))
    linear(x, weight, bias, "relu").sum().backward()
    assert [one.grad.shape for one in (x, weight, bias)] == [one.shape for one in (x, weight, bias)]


def test_infinite_gradients():
    """What ReLU has cut off gets none, not NaN."""
    x = torch.tensor([[1.0, 1.0]]).requires_grad_()
    linear(x, torch.eye(2), torch.tensor([1.0, -3.0]), "relu").backward(torch.tensor([[1.0, torch.inf]]))
    assert x.grad.tolist() == [[1.0, 0.0]]


@pytest.mark.parametrize("name", host.PRODUCTS)
def test_what_bench_host_calls(name, kernels):
    """All ways of a linear layer make the same, ours by our kernels."""
    with torch.no_grad():
        ways, outputs, exact = host.linears(host.PRODUCTS[name], "cpu")
        assert exact.any() and exact.shape == (*host.PRODUCTS[name].x[:-1], host.PRODUCTS[name].k)
        for one, way in ways.items():
            assert relative_error(outputs[one](way()), exact) < host.BOUND, one


@pytest.mark.parametrize("out", [lambda: torch.zeros(8, 12)[:, 2:10], lambda: torch.zeros(8, 8),
                                 lambda: torch.zeros(8, 12)[:, 2:10].numpy()])  # fmt: skip
def test_gemm_into_another_librarys_array(out):
    a, b, c = torch.randn(8, 8), torch.randn(8, 8), out()
    for one in (a, a.numpy()):
        assert gemm(one, b, c) is c and off(torch.as_tensor(c), a.double() @ b.double()) < 1e-6


@pytest.mark.parametrize("activation", product.ACTIVATIONS)
def test_what_is_timed_is_compared(activation):
    """`tests.bench.linear` times nothing that is wrong, or has TF32's precision."""
    x, layer = torch.randn(4, 64), Linear(64, 16, activation=activation)
    with torch.no_grad():
        y = layer(x)
        timing.compare("ours", y, x, layer)
        cut = (y.view(torch.int32) & -(1 << 13)).view(torch.float32)  # to TF32's ten bits
        for wrong in (cut, y * float("nan"), torch.zeros_like(y)):
            with pytest.raises(ArithmeticError, match="ours, .4, 64., .*a relative L2 error of"):
                timing.compare("ours", wrong, x, layer)
