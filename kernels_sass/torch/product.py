"""``turingas::linear``: act(x weight^T + bias) as an operator of PyTorch, and ``Linear``, a layer with the arguments
and the state_dict of torch.nn.Linear. Its CUDA implementation is ``kernels_sass.gemm``, for H100 and H200 (sm_90a)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.weak import WeakTensorKeyDictionary

from kernels_sass.gemm import gemm
from kernels_sass.torch import operator
from kernels_sass.torch.operator import Held, current
from turingas.errors import LaunchError

NAME = "turingas::linear"
SCHEMA = "(Tensor x, Tensor weight, Tensor? bias=None, str activation='none') -> Tensor"
#: by PyTorch: what an activation makes of y
ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "none": lambda y: y,
    "relu": torch.relu,
}

torch.library.define(NAME, SCHEMA, tags=(torch.Tag.pt2_compliant_tag,))


def linear(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None, activation: str = "none"
) -> torch.Tensor:
    """act(x weight^T + bias): ``torch.ops.turingas.linear``.

    x: ..., C. weight: K, C. bias: K. activation: one of ACTIVATIONS. The result: ..., K, contiguous. float32 is
    computed by ``kernels_sass.gemm`` in three TF32 products; what it cannot (``unable``), by PyTorch.
    """
    return torch.ops.turingas.linear(x, weight, bias, activation)


def unable(device: torch.device, dtype: torch.dtype) -> str:
    """As ``operator.unable``, of this operator."""
    return operator.unable(device, dtype, by_hgmma=True)


def _check(x: Any, weight: Any, bias: Any, activation: str) -> list[Any]:
    """The result's sizes. RuntimeError for what does not fit."""
    torch._check(activation in ACTIVATIONS, lambda: f"there is no activation {activation!r}; there are: "
                                                    f"{', '.join(ACTIVATIONS)}")  # fmt: skip
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
    made = _check(x, weight, bias, activation)
    if unable(x.device, x.dtype) or weight.dtype is not x.dtype or 0 in (*x.shape, *weight.shape):
        return _by_torch(x, weight, bias, activation)
    torch._check(weight.device == x.device, lambda: f"x is on {x.device}, weight on {weight.device}")
    found = current(weight, _MATRICES, Matrix)
    found.used(x)
    rows = x.detach().reshape(math.prod(x.shape[:-1]), x.shape[-1]).contiguous()
    added = None if bias is None else bias.detach().float().contiguous()
    return gemm(rows, found.matrix, transpose_b=True, bias=added, relu=activation == "relu").reshape(made)


class Matrix(Held):
    """A weight as ``gemm`` takes it."""

    def __init__(self, weight: torch.Tensor, before: Matrix | None) -> None:
        super().__init__(weight, before)
        self.matrix = self.held.contiguous()

    def made(self) -> list[Any]:
        return [self.matrix]


_MATRICES: Any = WeakTensorKeyDictionary()


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
        grad = grad * (torch.nn.functional.linear(x, weight, bias) > 0)
    wanted = ctx.needs_input_grad
    flat = grad.reshape(-1, weight.shape[0])
    of_x = grad @ weight if wanted[0] else None
    of_weight = flat.t() @ x.reshape(-1, weight.shape[1]) if wanted[1] else None
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
        self.activation = activation

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: ..., in_features."""
        return torch.ops.turingas.linear(x, self.weight, self.bias, self.activation)

    @property
    def prepared_bytes(self) -> int:
        """Of what is made of the weight on a device: the second parts of its numbers."""
        return self.weight.nbytes

    def extra_repr(self) -> str:
        """As torch.nn.Linear has it, with the activation."""
        return super().extra_repr() + f", activation={self.activation!r}"
