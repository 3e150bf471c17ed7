"""torch.func and torch.vmap over our operators, layers and converted networks: as over those of torch.nn."""

from __future__ import annotations

import warnings

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: make test-torch")

from torch.autograd import forward_ad  # noqa: E402

from kernels_sass.torch import Conv2d, Linear, conv2d, convert, linear, operator, product  # noqa: E402

func, F = torch.func, torch.nn.functional


def small():
    """Layers that ``convert`` replaces, and those that it folds into them."""
    made = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3, padding=1), torch.nn.BatchNorm2d(4), torch.nn.ReLU(), torch.nn.Flatten(),
        torch.nn.Linear(4 * 5 * 4, 6), torch.nn.GELU(),
    )  # fmt: skip
    return made.eval()


def of(name):
    """Ours, PyTorch's with the same parameters, and the shape of x."""
    torch.manual_seed(7)
    if name == "converted":
        theirs, shape = small(), (2, 3, 5, 4)
        ours, report = convert(theirs, torch.zeros(shape), untimed=True)
        assert [row.by == "PyTorch" for row in report.rows] == [False, False]
        return ours, theirs, shape
    if name == "conv2d":
        ours = Conv2d(3, 4, 3, padding=1, activation="relu")
        return ours, torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3, padding=1), torch.nn.ReLU()), (2, 3, 5, 4)
    ours = Linear(7, 5, activation="relu")
    return ours, torch.nn.Sequential(torch.nn.Linear(7, 5), torch.nn.ReLU()), (3, 7)


class Both:
    def __init__(self, name):
        self.ours, self.theirs, shape = of(name)
        if name != "converted":
            self.theirs[0].load_state_dict(self.ours.state_dict())
        self.x, self.many = torch.randn(shape), torch.randn(4, *shape)

    def same(self, way):
        """What a way makes of a layer is what it makes of PyTorch's."""
        found, wanted = way(self.ours), way(self.theirs)
        torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)
        assert wanted.any()


@pytest.fixture(params=["conv2d", "linear", "converted"])
def both(request, kernels):
    return Both(request.param)


def by_parameters(layer):
    """A loss, with what is done to parameters in the order in which they come, and the parameters."""
    names = [name for name, _ in layer.named_parameters()]
    given = tuple(one.detach() for one in layer.parameters())
    return (lambda those, x: func.functional_call(layer, dict(zip(names, those)), (x,)).square().mean()), given


def flat(tensors):
    return torch.cat([one.flatten(1) for one in tensors], 1)


WAYS = {
    "grad": lambda both, f: func.grad(lambda x: f(x).square().sum())(both.x),
    "vjp": lambda both, f: func.vjp(f, both.x)[1](torch.ones_like(f(both.x)))[0],
    "jvp": lambda both, f: func.jvp(f, (both.x,), (both.x.cos(),))[1],
    "jacrev": lambda both, f: func.jacrev(f)(both.x),
    "jacfwd": lambda both, f: func.jacfwd(f)(both.x),
    "hessian": lambda both, f: func.hessian(lambda x: f(x).square().sum())(both.x),
    "grad of grad": lambda both, f: func.grad(lambda x: func.grad(lambda x: f(x).pow(3).sum())(x).sum())(both.x),
    "vmap": lambda both, f: torch.vmap(f)(both.many),
    "vmap of vmap": lambda both, f: torch.vmap(torch.vmap(f))(torch.stack([both.many, -both.many])),
    "another axis": lambda both, f: torch.vmap(f, 1, 1)(both.many.movedim(0, 1)),
    "grad of vmap": lambda both, f: func.grad(lambda many: torch.vmap(f)(many).square().sum())(both.many),
    "vmap of grad": lambda both, f: torch.vmap(func.grad(lambda x: f(x).square().sum()))(both.many),
    "backward through vmap": lambda both, f: backward(torch.vmap(f), both.many),
    "vectorized": lambda both, f: torch.autograd.functional.jacobian(f, both.x, vectorize=True),
    "without gradients": lambda both, f: func.grad(lambda x: (without(f, x) * x.sum()).sum())(both.x),
    "compiled grad": lambda both, f: compiled(func.grad(lambda x: f(x).square().sum()))(both.x),
    "compiled vmap": lambda both, f: compiled(torch.vmap(lambda x: f(x)))(both.many),
}


def backward(f, x):
    x = x.clone().requires_grad_()
    with torch.enable_grad():
        return torch.autograd.grad(f(x).square().sum(), x)[0]


def without(f, x):
    with torch.no_grad():
        return f(x)


def compiled(function):
    torch._dynamo.reset()
    return torch.compile(function, fullgraph=True, backend="aot_eager")


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("way", WAYS)
def test_as_over_pytorchs(way, grad, both):
    """After calls of the layer that went past the dispatcher, too."""
    with torch.no_grad():
        for _ in range(3):
            both.ours(both.x)
    with torch.set_grad_enabled(grad), warnings.catch_warnings():
        warnings.filterwarnings("error", "There is a performance drop")  # of a loop that PyTorch makes
        both.same(lambda f: WAYS[way](both, f))


def test_gradients_of_parameters(both):
    """For each x apart, and with parameters for each x."""
    def way(layer):
        loss, those = by_parameters(layer)
        several = tuple(torch.stack([one, -one, one / 2, one * 2]) for one in those)
        return torch.cat([
            flat(torch.vmap(func.grad(loss), (None, 0))(those, both.many)),
            flat(torch.vmap(func.grad(loss))(several, both.many)),
            torch.vmap(loss)(several, both.many)[:, None], torch.vmap(loss, (0, None))(several, both.x)[:, None],
        ], 1)  # fmt: skip

    if isinstance(both.ours, (Conv2d, Linear)):
        return both.same(way)
    # those of a batch norm are in the others: compared is what is left
    loss, those = by_parameters(both.ours)
    last = [one.shape for one in those].index((6, 80))
    theirs, others = by_parameters(both.theirs)
    for found, wanted in zip(torch.vmap(func.grad(loss), (None, 0))(those, both.many)[last : last + 2],
                             torch.vmap(func.grad(theirs), (None, 0))(others, both.many)[-2:]):  # fmt: skip
        torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("order", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("axes", [(0, None, None, None), (0, None, None, 0), (None, None, None, 1), (1, 0, 0, 0),
                                  (None, None, 0, None), (0, 1, None, None)], ids=str)  # fmt: skip
def test_what_is_mapped(axes, order, kernels, monkeypatch):
    """Of all arguments, with strides and a padding: x, residual, or both as one call of ours, filters by PyTorch."""
    torch.manual_seed(8)
    calls, real = [], operator._by_kernels
    monkeypatch.setattr(operator, "_by_kernels", lambda *given: calls.append(given[0].shape) or real(*given))
    shapes = (2, 3, 6, 5), (4, 3, 3, 3), (4,), (2, 4, 3, 3)
    given = [torch.randn(shape) for shape in shapes]
    given = [one.contiguous(memory_format=order) if one.dim() == 4 else one for one in given]
    given = [one if axis is None else torch.stack([one, -one, 2 * one], axis) for one, axis in zip(given, axes)]

    def exact(*given):
        x, weight, bias, residual = (one.double() for one in given)
        return (F.conv2d(x, weight, bias, (2, 1), (1, 0), 1) + residual).relu()

    with torch.no_grad():
        y = torch.vmap(lambda *those: conv2d(*those, (1, 0), True, (2, 1)), axes)(*given)
        wanted = torch.vmap(exact, axes)(*given)
    assert y.dtype is torch.float32 and float((y - wanted).norm() / wanted.norm()) < 1e-6
    assert calls == ([(6, 3, 6, 5)] if axes[1:3] == (None, None) else [])


@pytest.mark.parametrize("axes", [(0, None, None), (1, None, None), (None, 0, None), (0, 1, 0), (None, None, 0)],
                         ids=str)  # fmt: skip
def test_what_is_mapped_of_linear(axes, kernels, monkeypatch):
    torch.manual_seed(9)
    calls, real = [], product._by_kernels
    monkeypatch.setattr(product, "_by_kernels", lambda *given: calls.append(given[0].shape) or real(*given))
    given = [torch.randn(shape) for shape in ((3, 7), (5, 7), (5,))]
    given = [one if axis is None else torch.stack([one, -one], axis) for one, axis in zip(given, axes)]
    with torch.no_grad():
        y = torch.vmap(lambda *those: linear(*those, "gelu"), axes)(*given)
        wanted = torch.vmap(lambda *those: F.gelu(F.linear(*those)), axes)(*(one.double() for one in given))
    assert float((y - wanted).norm() / wanted.norm()) < 1e-6
    assert calls == ([(2, 3, 7)] if axes[1:] == (None, None) else [])


@pytest.mark.parametrize("name", ["conv2d", "linear"])
def test_the_operator_itself(name, kernels):
    """As the functions: torch.func, dual tensors, vmap."""
    shapes = ((3, 7), (5, 7)) if name == "linear" else ((2, 3, 5, 4), (4, 3, 3, 3))
    x, weight = map(torch.randn, shapes)
    plain = F.linear if name == "linear" else lambda x, weight: F.conv2d(x, weight, padding=1)

    def dual(f):
        with forward_ad.dual_level():
            return forward_ad.unpack_dual(f(forward_ad.make_dual(x, x.cos()), weight)).tangent

    for way in (lambda f: func.grad(lambda x: f(x, weight).square().sum())(x), lambda f: func.jacfwd(f, 1)(x, weight),
                dual, lambda f: torch.vmap(f, (0, None))(torch.stack([x, -x]), weight)):  # fmt: skip
        found, wanted = way(getattr(torch.ops.turingas, name)), way(plain)
        torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)
        assert wanted.any()


def test_what_does_not_fit_in_vmap(kernels):
    with pytest.raises(RuntimeError, match="x has 4 channels, weight 3"):
        torch.vmap(lambda x: conv2d(x, torch.zeros(4, 3, 3, 3)))(torch.zeros(5, 2, 4, 6, 6))
    with pytest.raises(RuntimeError, match="it must be N, C, H, W"):
        torch.vmap(lambda x: conv2d(x, torch.zeros(4, 3, 3, 3)))(torch.zeros(5, 3, 6, 6))
    with pytest.raises(RuntimeError, match="it must be ..., 7"):
        torch.vmap(lambda x: linear(x, torch.zeros(5, 7)))(torch.zeros(5, 2, 8))
    with pytest.raises(RuntimeError, match="x has the shape ..; it must be ..., 7"):
        torch.vmap(lambda x: linear(x, torch.zeros(7, 7)))(torch.zeros(7))


@pytest.mark.parametrize("axes", [(0, None, None), (0, 0, 0), (None, None, 0), (1, 2, None)])
def test_nothing_is_mapped(axes, kernels):
    """The shape of nothing: as of one, but for vmap's axis."""
    for ours, theirs, shapes in ((linear, F.linear, ((3, 7), (5, 7), (5,))),
                                 (lambda *of: conv2d(*of, padding=0), F.conv2d, ((2, 3, 6, 5), (4, 3, 3, 3), (4,)))):
        none = [torch.zeros(shape if axis is None else (*shape[:axis], 0, *shape[axis:]))
                for shape, axis in zip(shapes, axes)]  # fmt: skip
        with torch.no_grad():
            found, one = torch.vmap(ours, axes)(*none), theirs(*map(torch.zeros, shapes))
        assert found.shape == (0, *one.shape) and found.dtype == one.dtype
