"""Conv2d and the loader on real tensors of PyTorch, in the host's memory: what they refuse, whatever came before."""

from __future__ import annotations

import types
import warnings

import numpy as np
import pytest

import loader
import turingas
from kernels_sass.conv import Conv2d, libraries
from loader import arrays
from loader.cuda.packer import Packer
from tests.emulate.test_device import ADD
from turingas.cubin.model import Param
from turingas.errors import LaunchError

torch = pytest.importorskip("torch", reason="PyTorch is not installed: make test-torch")

WEIGHT = torch.ones(2, 1, 3, 3)
SHAPE = 2, 1, 3, 4


@pytest.fixture(scope="module")
def conv():
    """A layer that has been called."""
    made = Conv2d(WEIGHT)
    assert float(made(torch.ones(SHAPE))[0, 0, 1, 1]) == 9
    return made


BAD = {
    "not contiguous": (lambda: torch.ones(2, 1, 4, 3).transpose(2, 3), "x is not contiguous"),
    "every other": (lambda: torch.ones(2, 1, 3, 8)[..., ::2], "x is not contiguous"),
    "float64": (lambda: torch.ones(SHAPE).double(), "x has the dtype torch.float64"),
    "negated": (lambda: torch._neg_view(torch.ones(SHAPE)), "x is a view with the sign changed .*pass x.resolve_neg"),
    "conjugate": (lambda: torch.ones(SHAPE, dtype=torch.complex64).conj(), "x has the dtype torch.complex64"),
    "gradients": (lambda: torch.ones(SHAPE).requires_grad_(), "x requires gradients"),
    "meta": (lambda: torch.ones(SHAPE, device="meta"), "x, a Tensor, (has no memory|does not give its memory)"),
    "sparse": (lambda: torch.ones(SHAPE).to_sparse(), "x, a Tensor, does not give its memory"),
    "expanded": (lambda: torch.ones(2, 1, 1, 4).expand(SHAPE), "x is not contiguous"),
    "channels": (lambda: torch.ones(2, 2, 3, 4), "x has 2 channels"),
    "empty": (lambda: torch.ones(0, 1, 3, 4), "x has the shape .*no size may be 0"),
}


@pytest.mark.parametrize("what", BAD)
def test_tensors_that_are_refused(conv, what):
    make, message = BAD[what]
    with pytest.raises(LaunchError, match=f"(?s)^{message}"):
        conv(make())


def test_views_with_the_sign_changed():
    """Refused wherever their memory would be read or written, by Conv2d and as weights of it; the operator is given
    what PyTorch's dispatcher has made of them."""
    one, y = torch.rand(SHAPE), torch.rand(2, 2, 3, 4)
    for layer in (Conv2d(WEIGHT), Conv2d(WEIGHT, kernel="hgmma")):
        for given in ((torch._neg_view(one),), (one, torch._neg_view(y)), (one, None, torch._neg_view(y))):
            with pytest.raises(LaunchError, match="is a view with the sign changed"):
                layer(*given)
        wanted = torch.conv2d(-one, WEIGHT, padding=1)
        assert torch.allclose(layer(torch._neg_view(one).resolve_neg()), wanted, atol=1e-5)
    for more in ({}, {"kernel": "hgmma"}):
        for weight, bias in ((torch._neg_view(WEIGHT), None), (WEIGHT, torch._neg_view(torch.ones(2)))):
            with pytest.raises(LaunchError, match="^(weight|bias) is a view with the sign changed"):
                Conv2d(weight, bias, **more)


@pytest.mark.parametrize("make", [
    lambda: torch.ones(1, *SHAPE)[0], lambda: torch.ones(5, 1, 3, 4)[1:3],
    lambda: torch.ones(1 + 24)[1:].view(SHAPE), lambda: torch.nn.Parameter(torch.ones(SHAPE), requires_grad=False),
    lambda: torch.ones(SHAPE).requires_grad_().detach(),
])  # fmt: skip
def test_tensors_that_are_taken(conv, make):
    """Parts of others, at any offset, and parameters."""
    assert torch.equal(conv(make()), conv(torch.ones(SHAPE)))


def test_modes(conv):
    x = torch.ones(SHAPE).requires_grad_()
    with torch.no_grad():
        wanted = conv(x)
    with torch.inference_mode():
        y = conv(torch.ones(SHAPE))
        assert torch.equal(conv(y[:, :1].contiguous() * 0 + 1), y)
    assert torch.equal(y, wanted) and type(conv(torch.nn.Parameter(x.detach(), requires_grad=False))) is torch.Tensor


def test_what_is_seen_of_a_tensor():
    """In short what ``where`` finds, or that it has to be asked."""
    library = libraries.library_of("x", WEIGHT)
    good = torch.ones(SHAPE)
    assert library.seen(good, "float32") == (good.data_ptr(), arrays.HOST) == libraries.where("x", good)[::2]
    half = good.half()
    assert library.seen(half, "float16") == (half.data_ptr(), arrays.HOST) and library.seen(half, "float32")[0] == 0
    for what, (make, _) in BAD.items():
        if what != "channels":  # this the first call with a shape tells
            assert library.seen(make(), "float32")[0] == 0, what
    made, address = library.empty(good, SHAPE)
    assert made.shape == SHAPE and made.is_contiguous() and address == made.data_ptr()


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, torch.enable_grad])
@pytest.mark.parametrize("quick", ["there", "not there", "of another place"])
def test_tensors_that_are_made_again(mode, quick, monkeypatch):
    """Each with memory of its own, in C order, whatever x and the mode were when that was made ready, and whether
    PyTorch has the function for compiled code or not; x is not kept, nor memory of that size."""
    guards, asked = torch._C._dynamo.guards, []
    real = guards._empty_strided_cpu
    if quick == "there":
        monkeypatch.setattr(guards, "_empty_strided_cpu", lambda *given: asked.append(given) or real(*given))
    elif quick == "not there":
        monkeypatch.delattr(guards, "_empty_strided_cpu")
    else:
        elsewhere = types.SimpleNamespace(get_device=lambda: 1)
        monkeypatch.setattr(guards, "_empty_strided_cpu", lambda *given: elsewhere)
    library, x = libraries._torch(arrays.kind_of(WEIGHT)), torch.ones(SHAPE)
    with mode():
        makes = [library.again(one, (2, 3, 4, 5)) for one in (x, torch.nn.Parameter(x), x.clone().requires_grad_())]
    for make in makes:
        (like,) = (one.cell_contents for one in make.__closure__ if isinstance(one.cell_contents, torch.Tensor))
        assert like.shape == (2, 3, 4, 5) and like.untyped_storage().nbytes() == 0
        for other in (torch.no_grad, torch.inference_mode, torch.enable_grad):
            with other():
                (y, address), (z, _) = make(), make()
                assert y.shape == (2, 3, 4, 5) and y.is_contiguous() and y.dtype is torch.float32
                assert address == y.data_ptr() != z.data_ptr() and not y.requires_grad and type(y) is torch.Tensor
                assert y.is_inference() == (other is torch.inference_mode)
                assert float(y.fill_(3).sum()) == 360
    assert len(asked) == (18 if quick == "there" else 0)
    with torch.enable_grad():
        assert makes[0]()[0].requires_grad_().mul(2).requires_grad


def test_launches_take_tensors_in_place():
    """What is asked first gives the address of what lies on the place, and leaves all others to what reads them."""
    kernel = loader.load(turingas.assemble(ADD), "cpu").kernel("add")
    out, values = torch.zeros(64), torch.arange(64.0)
    kernel.launch(2, 32, out, values, 64, 2.0)
    assert torch.equal(out, 2 * values)
    kind = arrays.kind_of(values)

    def take(value, place=arrays.HOST):
        packer = Packer(types.SimpleNamespace(number=place), [Param(0, 8)], ["x"], [value])
        return eval(packer.reads[0], {"take0": lambda *given: given}, {"a0": value, "stream": 7})

    assert take(values) == values.data_ptr() and take(values[8:]) == values.data_ptr() + 32
    for other in (values[::2], torch.ones(0), torch.ones(3, device="meta"), torch.ones(3).to_sparse()):
        found, stream = take(other)
        assert found is other and stream == 7
    with warnings.catch_warnings(), pytest.raises(RuntimeError, match="CSR"):
        warnings.simplefilter("ignore")  # it is in beta
        take(torch.ones(2, 2).to_sparse_csr())  # the launch then tells it with the name
    assert take(values, 0)[0] is values
    assert kind.stream(values) == 0 and arrays.kind_of(torch.nn.Parameter(values)) is kind
    assert np.shares_memory(arrays.on_host(values, "x"), values.numpy())
