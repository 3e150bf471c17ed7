"""``turingas::linear``: act(x weight^T + bias) as an operator of PyTorch, and ``Linear``, a layer with the arguments
and the state_dict of torch.nn.Linear. Its CUDA implementation is ``kernels_sass.gemm``, for H100 and H200 (sm_90a)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.weak import WeakTensorKeyDictionary

from kernels_sass.gemm import gemm, prepare
from kernels_sass.torch import operator
from kernels_sass.torch.layer import whole
from kernels_sass.torch.operator import MOST_SIZES, Held, Recent, current, recent
from turingas.errors import LaunchError

NAME = "turingas::linear"
SCHEMA = "(Tensor x, Tensor weight, Tensor? bias=None, str activation='none') -> Tensor"
#: by PyTorch: what an activation makes of y
ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "none": lambda y: y,
    "relu": torch.relu,
    "gelu": torch.nn.functional.gelu,
    "gelu_tanh": lambda y: torch.nn.functional.gelu(y, approximate="tanh"),
}

torch.library.define(NAME, SCHEMA, tags=(torch.Tag.pt2_compliant_tag,))


def linear(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None, activation: str = "none"
) -> torch.Tensor:
    """act(x weight^T + bias): ``torch.ops.turingas.linear``.

    x: ..., C. weight: K, C. bias: K. activation: one of ACTIVATIONS. The result: ..., K, contiguous. float32 is
    computed by ``kernels_sass.gemm`` in three products of FP16; what it cannot (``unable``), by PyTorch.
    """
    return operator.below(_OPERATION, x, weight, bias, activation)


_OPERATION = torch.ops.turingas.linear.default


def unable(device: torch.device, dtype: torch.dtype) -> str:
    """As ``operator.unable``, of this operator."""
    return operator.unable(device, dtype, by_hgmma=True)


def _check(x: Any, weight: Any, bias: Any, activation: str) -> list[Any]:
    """The result's sizes. RuntimeError for what does not fit."""
    torch._check(activation in ACTIVATIONS, lambda: f"there is no activation {activation!r}; there are: "
                                                    f"{', '.join(ACTIVATIONS)}")  # fmt: skip
    operator.alike(x, weight=weight, bias=bias)
    torch._check(weight.dim() == 2, lambda: f"weight has the shape {tuple(weight.shape)}; it must be K, C")
    k, c = weight.shape
    torch._check(x.dim() > 0 and x.shape[-1] == c, lambda: f"x has the shape {tuple(x.shape)}; it must be ..., {c}")
    if bias is not None:
        torch._check(bias.dim() == 1 and bias.shape[0] == k, lambda: f"bias has the shape {tuple(bias.shape)}, not {k}")
    return [*x.shape[:-1], k]


@torch.library.register_fake(NAME)
def _fake(x: Any, weight: Any, bias: Any = None, activation: str = "none") -> Any:
    return x.new_empty(_check(x, weight, bias, activation))


def _by_torch(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None, activation: str = "none"
) -> torch.Tensor:
    _check(x, weight, bias, activation)
    return ACTIVATIONS[activation](torch.nn.functional.linear(x, weight, bias)).contiguous()


def _by_kernels(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None, activation: str = "none"
) -> torch.Tensor:
    known = recent(weight, _RECENT)
    key = x.shape, x.dtype, x.get_device(), None if bias is None else (bias.shape, bias.dtype), activation
    if known is not None and key in known.usual:
        known.used(x)
        return _multiplied(x, known, bias, activation)
    made = _check(x, weight, bias, activation)
    if unable(x.device, x.dtype) or 0 in (*x.shape, *weight.shape):
        return _by_torch(x, weight, bias, activation)
    found = current(weight, _MATRICES, _RECENT, Matrix)
    found.used(x)
    if x.dim() in (2, 3):
        if len(found.usual) >= MOST_SIZES:
            found.usual.clear()
        found.usual.add(key)
        return _multiplied(x, found, bias, activation)
    rows = x.reshape(math.prod(x.shape[:-1]), x.shape[-1])
    return _multiplied(rows, found, bias, activation).reshape(made)


def _multiplied(x: torch.Tensor, by: Matrix, bias: torch.Tensor | None, activation: str) -> torch.Tensor:
    made: torch.Tensor = gemm(x, by.matrix, bias=bias, activation=None if activation == "none" else activation)
    return made


class Matrix(Held):
    """A weight as ``gemm`` takes it."""

    def __init__(self, weight: torch.Tensor, before: Matrix | None) -> None:
        super().__init__(weight, before)
        self.matrix = prepare(self.held, transpose_b=True)
        self.usual = set[Any]()  # by all that a call depends on but numbers: what needs no more checks

    def made(self) -> list[Any]:
        return [self.matrix]


_MATRICES: Any = WeakTensorKeyDictionary()
_RECENT: Recent[Matrix] = {}


def _on_cpu(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None, activation: str = "none"
) -> torch.Tensor:
    return (_by_kernels if operator.kernels_on_cpu() else _by_torch)(x, weight, bias, activation)


torch.library.impl(NAME, "cpu", _on_cpu)
torch.library.impl(NAME, "cuda", _by_kernels)
for _device in ("cpu", "cuda"):
    torch.library.register_autocast(NAME, _device, torch.float32)


def _remember(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    x, weight, bias, ctx.activation = inputs
    ctx.save_for_backward(x, weight, bias)


def _backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    """By PyTorch's own operators: there are no kernels of ours for gradients."""
    x, weight, bias = ctx.saved_tensors
    if ctx.activation == "relu":
        below = torch.nn.functional.linear(x, weight, bias) <= 0
        grad = torch.where(below, torch.zeros_like(grad), grad)
    elif ctx.activation != "none":
        way = "tanh" if ctx.activation == "gelu_tanh" else "none"
        before = torch.nn.functional.linear(x, weight, bias)
        grad = torch.ops.aten.gelu_backward(grad, before, approximate=way)
    wanted = ctx.needs_input_grad
    rows = math.prod(x.shape[:-1])  # -1 would not do where a size is 0
    flat = grad.reshape(rows, weight.shape[0])
    of_x = grad @ weight if wanted[0] else None
    of_weight = flat.t() @ x.reshape(rows, weight.shape[1]) if wanted[1] else None
    found = of_x, of_weight, flat.sum(0) if bias is not None and wanted[2] else None, None
    return found[: len(wanted)]


torch.library.register_autograd(NAME, _backward, setup_context=_remember)


class Linear(torch.nn.Linear):
    """torch.nn.Linear with an activation in it, computed by ``turingas::linear``. Arguments and state_dict are those of
    torch.nn.Linear; ``activation``: one of ACTIVATIONS."""

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, device: Any = None, dtype: Any = None, *,
        activation: str = "none",
    ) -> None:  # fmt: skip
        if activation not in ACTIVATIONS:
            raise LaunchError(f"there is no activation {activation!r}", "there are: " + ", ".join(ACTIVATIONS))
        super().__init__(in_features, out_features, bias, device, dtype)
        whole(self)
        self.activation = activation

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: ..., in_features."""
        return linear(x, self.weight, self.bias, self.activation)

    @property
    def prepared_bytes(self) -> int:
        """Of what is made of the weight on a device: parts of its numbers, without what fills up rows."""
        return self.weight.nbytes

    def extra_repr(self) -> str:
        """As torch.nn.Linear has it, with the activation."""
        return super().extra_repr() + f", activation={self.activation!r}"
