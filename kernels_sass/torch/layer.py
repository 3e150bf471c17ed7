"""``Conv2d``: a layer with the arguments and the state_dict of torch.nn.Conv2d, computed by ``turingas::conv2d``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.nn.modules.utils import _pair

from kernels_sass import conv
from kernels_sass.conv.implicit_shape import STRIDES, unreached
from kernels_sass.torch.operator import apart, called, own
from turingas.errors import LaunchError

ACTIVATIONS = (None, "relu")

Can = Mapping[str, tuple[Callable[[Any], bool], str]]

#: What our kernels can, as a layer says it: the argument, whether they can, and how a value that they cannot is told.
#: A new kernel makes these rows wider.
CAN: Can = {
    "kernel_size": (lambda size: True, ""),
    "stride": (lambda stride: max(stride) <= STRIDES, "stride {0[0]}"),
    "dilation": (lambda dilation: True, ""),
    "groups": (lambda groups: groups == 1, "{0} groups"),
    "padding": (lambda padding: min(padding) >= 0, "padding that is larger on one side"),
    "padding_mode": (lambda mode: mode == "zeros", "padding with {0}"),
}
#: And what of it all those can that are not for Hopper alone.
EVERYWHERE: Can = {
    **CAN,
    "kernel_size": (lambda size: tuple(size) == (3, 3), "filters of {0[0]} x {0[1]}"),
    "stride": (lambda stride: tuple(stride) == (1, 1), "stride {0[0]}"),
    "dilation": (lambda dilation: tuple(dilation) == (1, 1), "dilation {0[0]}"),
    "padding": (lambda padding: tuple(padding) in ((0, 0), (1, 1)), "padding {0}"),
}


PAIRS = "kernel_size", "stride", "dilation", "padding"


def paddings(padding: Any, kernel_size: Any, dilation: Any) -> tuple[int, ...]:
    """A padding as numbers for rows and columns; "same" that cannot be said so is (-1, -1)."""
    if padding == "valid":
        return 0, 0
    if padding == "same":
        sums = [reach * (size - 1) for size, reach in zip(kernel_size, dilation)]
        return (-1, -1) if any(one % 2 for one in sums) else tuple(one // 2 for one in sums)
    return tuple(padding)


def why_not(arguments: Mapping[str, Any], those: Can = CAN) -> str:
    """What no kernel of ours can, of a convolution's arguments with the names that torch.nn.Conv2d has; "". ``those``:
    EVERYWHERE for the kernels that are not for Hopper alone."""
    padding = paddings(arguments["padding"], arguments["kernel_size"], arguments["dilation"])
    given = {**arguments, "padding": padding}
    told = ", ".join(told.format(given[name]) for name, (can, told) in those.items() if not can(given[name]))
    return told or too_far(*(given[name] for name in ("kernel_size", "padding", "dilation")))


def too_far(filter: Sequence[int], padding: Sequence[int], dilation: Sequence[int]) -> str:
    """Why tensor copies do not reach all of a filter; ""."""
    for size, pad, step in zip(filter, padding, dilation):
        if why := unreached(size, pad, step):
            return why
    return ""


def arguments_of(layer: torch.nn.Conv2d) -> dict[str, Any]:
    """Those of a layer. What was put in later may be a number, or a list, where PyTorch makes pairs at first."""
    found = {name: getattr(layer, name) for name in CAN}
    return {name: one if name not in PAIRS or isinstance(one, str) else _pair(one) for name, one in found.items()}


def of(kind: Any, weight: torch.Tensor, bias: torch.Tensor | None, arguments: Mapping[str, Any], **more: Any) -> Any:
    """A layer of a kind, torch.nn.Conv2d or what has its arguments, with these very parameters."""
    made = kind(weight.shape[1] * arguments["groups"], weight.shape[0], **arguments, bias=bias is not None,
                device="meta", **more)  # fmt: skip
    made.weight = parameter(weight)
    made.bias = None if bias is None else parameter(bias)
    return made


def parameter(tensor: torch.Tensor) -> torch.nn.Parameter:
    """The tensor itself, if it is one."""
    return tensor if isinstance(tensor, torch.nn.Parameter) else torch.nn.Parameter(tensor, False)


def whole(module: torch.nn.Module) -> None:
    """Tracers of torch.fx shall take the module as it is, as they do all of torch.nn: its Python looks at tensors. What
    they ask is the name of its Python module."""
    module.__module__ = torch.nn.__name__


class Conv2d(torch.nn.Conv2d):
    """torch.nn.Conv2d computed by kernels in SASS, with ReLU and the addition of a residual in them: act(convolution +
    bias + residual). Filters of 3 x 3 with stride 1 on all GPUs that have kernels, all others on Hopper.

    Arguments and state_dict are those of torch.nn.Conv2d; ``activation``: None or "relu". What the kernels cannot, as
    ``why_not`` tells and the layer's repr too, PyTorch computes. Filters are prepared at the first call, and again
    after they have changed: see ``kernels_sass.torch.conv2d``.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
        *,
        activation: str | None = None,
    ) -> None:
        super().__init__(in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias, padding_mode,
                         device, dtype)  # fmt: skip
        whole(self)
        self.activation = activation
        self._settle()

    def _settle(self) -> None:
        """What follows from the arguments, so that calls need not look at them."""
        now = arguments_of(self)
        self.why_not = why_not(now)
        self._way = [paddings(*(now[name] for name in ("padding", "kernel_size", "dilation"))), now["stride"],
                     now["dilation"]]  # fmt: skip

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        with apart(self):
            return super()._apply(fn, recurse)

    def _load_from_state_dict(self, *given: Any) -> None:
        with apart(self):
            super()._load_from_state_dict(*given)

    def __setattr__(self, name: str, value: Any) -> None:
        """Arguments may be changed later, as those of PyTorch's layer: segmentation networks do."""
        if name == "activation" and value not in ACTIVATIONS:
            raise LaunchError(f"there is no activation {value!r}", "there are: None, 'relu'")
        super().__setattr__(name, value)
        if name in CAN and "_way" in self.__dict__:
            self._settle()

    @classmethod
    def from_torch(
        cls, conv: torch.nn.Conv2d, bn: torch.nn.BatchNorm2d | None = None, activation: str | None = None
    ) -> Conv2d:
        """The layer for one of PyTorch's, whose weight and bias it shares; or with the batch norm ``bn`` behind it
        folded into copies of them, in float64 and rounded once. LaunchError if ``bn`` is in training mode, has no
        statistics, or is for another number of channels."""
        weight, bias = (conv.weight, conv.bias) if bn is None else folded(conv.weight, conv.bias, bn)
        made: Conv2d = of(cls, weight, bias, arguments_of(conv), activation=activation)
        return made.train(conv.training)

    def forward(self, x: torch.Tensor, residual: torch.Tensor | None = None) -> torch.Tensor:
        """x: N, C, H, W, or C, H, W. residual: what is added before the activation; it may have sizes of 1."""
        if x.dim() != 4 or self.why_not:
            return self._by_torch(x, residual)
        if residual is not None and (residual.dim() != 4 or 1 in residual.shape):
            p, q = ((size + 2 * pad - step * (of - 1) - 1) // stride + 1
                    for size, of, pad, stride, step in zip(x.shape[2:], self.weight.shape[2:], *self._way))  # fmt: skip
            residual = residual.expand(x.shape[0], self.out_channels, p, q)
        padding, stride, dilation = self._way
        relu = self.activation == "relu"
        weight, bias = own(self)
        return called(x, weight, bias, residual, padding, relu, stride, dilation)

    @property
    def prepared_bytes(self) -> int:
        """Of filters as a kernel takes them; of those by HGMMA without what fills them up."""
        if why_not(arguments_of(self), EVERYWHERE):
            return self.weight.nbytes
        return 4 * conv.filter_floats(self.in_channels, self.out_channels)

    def _by_torch(self, x: torch.Tensor, residual: torch.Tensor | None) -> torch.Tensor:
        y = super().forward(x)
        if residual is not None:
            y = y + residual
        return torch.relu(y) if self.activation == "relu" else y

    def extra_repr(self) -> str:
        """As torch.nn.Conv2d has it, with the activation, and why PyTorch computes it if it does."""
        text = super().extra_repr()
        text += f", activation={self.activation!r}" if self.activation else ""
        return text + (f", by PyTorch: {self.why_not}" if self.why_not else "")


def unfoldable(bn: Any, channels: int) -> str:
    """Why a batch norm cannot be folded into a convolution of so many filters; "" if it can."""
    if bn.training:
        return "the batch norm is in training mode"
    if bn.running_mean is None or bn.running_var is None:
        return "the batch norm has no statistics"
    return "" if bn.num_features == channels else f"the batch norm is for {bn.num_features} channels, not {channels}"


def folded(weight: torch.Tensor, bias: torch.Tensor | None, bn: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Weight and bias of a convolution with a batch norm, in evaluation, behind it. LaunchError if that cannot be."""
    if why := unfoldable(bn, weight.shape[0]):
        raise LaunchError(f"{why}: it cannot be folded", "call eval() on the network")
    with torch.no_grad():
        scale = (bn.running_var.double() + bn.eps).rsqrt()
        if bn.weight is not None:
            scale = scale * bn.weight.double()
        shift = -bn.running_mean.double() * scale
        if bn.bias is not None:
            shift = shift + bn.bias.double()
        if bias is not None:
            shift = shift + bias.double() * scale
        by_filter = weight.double() * scale.reshape(-1, *[1] * (weight.dim() - 1))
        return by_filter.to(weight.dtype), shift.to(weight.dtype)


