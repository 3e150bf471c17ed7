"""``kernels_sass.torch.Conv2d``: arguments, state_dict and results of torch.nn.Conv2d, batch norms folded."""

from __future__ import annotations

import copy
import io

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: make test-torch")

from kernels_sass.torch import Conv2d  # noqa: E402
from turingas.errors import LaunchError  # noqa: E402


def close(found, wanted):
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)


OURS = [{}, {"padding": 1}, {"padding": "same"}, {"padding": "valid", "bias": False}]
HOPPERS = [{"kernel_size": (3, 1), "padding": (1, 0), "stride": (2, 1)}, {"dilation": 2, "padding": "same"}]
THEIRS = [
    {"groups": 2}, {"padding": 1, "padding_mode": "reflect"}, {"kernel_size": 4, "padding": "same"}, {"stride": 9},
    {"dilation": 200},
]  # fmt: skip


@pytest.mark.parametrize("more", OURS + HOPPERS + THEIRS[:-1], ids=str)
@pytest.mark.filterwarnings("ignore:Using padding='same'")
def test_as_pytorchs(more, kernels):
    """The same arguments, state_dict and results; ours is what has no reason against it."""
    arguments = {"in_channels": 4, "out_channels": 6, "kernel_size": 3, **more}
    theirs = torch.nn.Conv2d(**arguments)
    ours = Conv2d(**arguments)
    assert not ours.load_state_dict(theirs.state_dict()).missing_keys and isinstance(ours, torch.nn.Conv2d)
    x = torch.randn(2, 4, 7, 6)
    with torch.no_grad():
        close(ours(x), theirs(x))
        close(ours(x[0]), theirs(x[0]))  # one image, without N
    assert bool(kernels) == (not ours.why_not) == (more not in THEIRS) and ours.why_not in repr(ours)
    other = Conv2d.from_torch(theirs)
    assert other.weight is theirs.weight and other.bias is theirs.bias
    close(other(x), theirs(x))


CHANGES = [
    {"padding": (2, 2), "dilation": (2, 2)}, {"stride": (2, 2)}, {"stride": 2, "padding": 0}, {"dilation": 2},
    {"padding": "same"}, {"padding_mode": "circular"}, {"stride": [1, 2]},
]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_arguments_that_change(change, kernels):
    """After calls, as networks for segmentation do; back again, and in a copy."""
    ours = Conv2d(4, 6, 3, padding=1)
    theirs = torch.nn.Conv2d(4, 6, 3, padding=1)
    theirs.load_state_dict(ours.state_dict())
    x, before = torch.randn(2, 4, 7, 6), {name: getattr(theirs, name) for name in change}
    with torch.no_grad():
        for values in ({}, change, before, change):
            for name, value in values.items():
                setattr(ours, name, value), setattr(theirs, name, value)
            y = theirs(x)
            for layer in (ours, copy.deepcopy(ours), Conv2d.from_torch(theirs)):
                close(layer(x), y)
                close(layer(x, y[:1, :, :1, :1]), y + y[:1, :, :1, :1])
            assert bool(ours.why_not) == (values == {"padding_mode": "circular"})
    with pytest.raises(LaunchError, match="there is no activation 'gelu'"):
        ours.activation = "gelu"
    assert ours.activation is None


def test_reasons():
    told = {
        "": {"kernel_size": 7, "stride": 2, "padding": 3}, "2 groups": {"groups": 2}, "padding with circular":
        {"padding_mode": "circular"}, "stride 9, 4 groups": {"kernel_size": 5, "stride": 9, "groups": 4},
        "padding that is larger on one side": THEIRS[2], "a filter of 3 with a dilation of 200 and a padding of 0":
        THEIRS[-1],
    }  # fmt: skip
    for why, more in told.items():
        assert Conv2d(**{"in_channels": 4, "out_channels": 4, "kernel_size": 3, **more}).why_not == why


@pytest.mark.parametrize("why", [{}, {"stride": 2}])
def test_residual_and_activation(why, kernels):
    """By our kernels, and where PyTorch computes it: the same."""
    layer = Conv2d(3, 4, 3, padding=1, activation="relu", **why)
    x, plain = torch.randn(2, 3, 6, 6), copy.deepcopy(layer)
    plain.activation = None
    with torch.no_grad():
        y = plain(x)
        for residual in (torch.randn(y.shape), torch.randn(1, 4, 1, 1)):
            close(layer(x, residual), (y + residual).relu())
        close(layer(x), y.relu())
    with pytest.raises(LaunchError, match="there is no activation 'gelu'"):
        Conv2d(3, 4, 3, activation="gelu")


def norm(count, **more):
    made = torch.nn.BatchNorm2d(count, **more).eval()
    for tensor, (low, high) in zip((made.running_mean, made.running_var, made.weight, made.bias),
                                   ((-1, 1), (0.5, 2), (-2, 2), (-1, 1))):  # fmt: skip
        if tensor is not None:
            torch.nn.init.uniform_(tensor, low, high)
    return made


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("affine", [False, True])
def test_batch_norm(bias, affine, kernels):
    """Folded in float64: as near to float64 as the convolution itself."""
    conv, bn, x = torch.nn.Conv2d(3, 4, 3, bias=bias), norm(4, affine=affine), torch.randn(2, 3, 6, 6)
    made = Conv2d.from_torch(conv, bn, activation="relu")
    exact = copy.deepcopy(bn).double()(copy.deepcopy(conv).double()(x.double())).relu()
    with torch.no_grad():
        assert float((made(x) - exact).norm() / exact.norm()) < 1e-6 and kernels
    assert conv.weight is not made.weight


def test_batch_norms_that_cannot_be_folded():
    conv = torch.nn.Conv2d(3, 4, 3)
    for bn, why in ((norm(4).train(), "in training mode"), (norm(5), "is for 5 channels, not 4"),
                    (norm(4, track_running_stats=False), "has no statistics")):  # fmt: skip
        with pytest.raises(LaunchError, match=why):
            Conv2d.from_torch(conv, bn)


def test_what_is_done_to_modules(kernels):
    """Loaded, copied, saved, moved to other types, changed in place: always the filters that there are."""
    layer, x = Conv2d(3, 4, 3), torch.randn(1, 3, 5, 5)

    def check(one, x=x):
        with torch.no_grad():
            close(one(x), torch.nn.functional.conv2d(x, one.weight, one.bias))

    check(layer)
    layer.load_state_dict(Conv2d(3, 4, 3).state_dict())
    check(layer)
    layer.load_state_dict(Conv2d(3, 4, 3).state_dict(), assign=True)
    check(layer)
    with torch.no_grad():
        layer.weight.mul_(2)
    check(layer)
    check(copy.deepcopy(layer))
    file = io.BytesIO()
    torch.save(layer, file)
    file.seek(0)
    check(torch.load(file, weights_only=False))
    count = len(kernels)
    check(layer.double(), x.double())
    check(layer.to(torch.bfloat16), x.bfloat16())
    assert len(kernels) == count
    check(layer.float())
    check(layer.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last))


def test_learns(kernels):
    """Steps of an optimizer: gradients are PyTorch's, and each step's filters are prepared."""
    layer, x = Conv2d(2, 2, 3, padding=1), torch.randn(1, 2, 5, 5)
    optimizer, losses = torch.optim.SGD(layer.parameters(), 0.1), []
    for _ in range(3):
        loss = (layer(x) - x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[0] > losses[1] > losses[2] and len(kernels) == 3
