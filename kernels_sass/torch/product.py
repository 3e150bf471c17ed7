"""``turingas::linear``: act(x weight^T + bias) as an operator of PyTorch, and ``Linear``, a layer with the arguments
and the state_dict of torch.nn.Linear. Its CUDA implementation is ``kernels_sass.gemm``, for H100 and H200 (sm_90a)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils.weak import WeakTensorKeyDictionary

from kernels_sass.gemm import gemm, prepare, ready
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
    computed by ``kernels_sass.gemm`` in three products of FP16; what it cannot (``unable``), what torch.func or dual
    tensors derive, and what torch.vmap makes of several weights or biases, by PyTorch.
    """
    if torch.compiler.is_compiling() or torch.is_grad_enabled():
        return operator.below(_OPERATION, x, weight, bias, activation)
    tensors = (x, weight) if bias is None else (x, weight, bias)
    found = operator.past(_RECENT, tensors, activation)
    if found is not None and (made := found[1](found[0], x, bias)) is not None:
        return made
    y = operator.below(_OPERATION, x, weight, bias, activation)
    if found is None:
        operator.learn(_RECENT, tensors, activation, lambda known: _again(known, x, bias, activation))
    return y


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
    known, key = recent(weight, _RECENT), _key(x, bias, activation)
    if known is None or key not in known.usual:
        _check(x, weight, bias, activation)
        if unable(x.device, x.dtype) or 0 in (*x.shape, *weight.shape):
            return _by_torch(x, weight, bias, activation)
        known = current(weight, _MATRICES, _RECENT, Matrix)
        if len(known.usual) >= MOST_SIZES:
            known.usual.clear()
        known.usual.add(key)
    known.used(operator.stream_of(x))
    return _multiplied(x, known, bias, activation)


def _multiplied(x: torch.Tensor, by: Matrix, bias: torch.Tensor | None, activation: str) -> torch.Tensor:
    made: torch.Tensor = gemm(_rows(x), by.matrix, bias=bias, activation=_activation(activation))
    return made if x.dim() in (2, 3) else made.reshape(*x.shape[:-1], by.shape[0])


def _key(x: torch.Tensor, bias: torch.Tensor | None, activation: str) -> Any:
    """Of ``Matrix.usual``."""
    return x.shape, x.dtype, x.get_device(), None if bias is None else (bias.shape, bias.dtype), activation


def _rows(x: torch.Tensor) -> torch.Tensor:
    """x as ``gemm`` takes it."""
    return x if x.dim() in (2, 3) else x.reshape(math.prod(x.shape[:-1]), x.shape[-1])


def _activation(name: str) -> str | None:
    return None if name == "none" else name


def _again(known: Matrix, x: torch.Tensor, bias: torch.Tensor | None, activation: str) -> operator.Run | None:
    """What a usual call does, with x and a bias that differ from these in their memory at most."""
    if _key(x, bias, activation) not in known.usual:
        return None
    shape, name = (*x.shape[:-1], known.shape[0]), _activation(activation)
    there, ordered = x.is_cuda, x.is_contiguous()
    found: Any = None  # made with the first x that need not be copied

    def run(known: Matrix, x: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor | None:
        nonlocal found
        if not there and not operator.kernels_on_cpu():
            return None
        made: torch.Tensor | None = None
        if found is not None:
            multiply, current, place = found
            made = multiply(x, bias, current(place) if place >= 0 else 0, known.used)
        if made is None:
            known.used(operator.stream_of(x))
            made = _multiplied(x, known, bias, activation)
            if found is None and ordered:
                found = ready(_rows(x), known.matrix, bias, name, shape)
        return made

    return run


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
operator.MADE.append((_MATRICES, _RECENT))


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


def _backward(ctx: Any, grad: torch.Tensor, wanted: Sequence[bool]) -> tuple[torch.Tensor | None, ...]:
    """By PyTorch's own operators: there are no kernels of ours for gradients."""
    x, weight, bias = ctx.saved_tensors
    if ctx.activation == "relu":
        below = torch.nn.functional.linear(x, weight, bias) <= 0
        grad = torch.where(below, torch.zeros_like(grad), grad)
    elif ctx.activation != "none":
        way = "tanh" if ctx.activation == "gelu_tanh" else "none"
        before = torch.nn.functional.linear(x, weight, bias)
        grad = torch.ops.aten.gelu_backward(grad, before, approximate=way)
    rows = math.prod(x.shape[:-1])  # -1 would not do where a size is 0
    flat = grad.reshape(rows, weight.shape[0])
    of_x = grad @ weight if wanted[0] else None
    of_weight = flat.t() @ x.reshape(rows, weight.shape[1]) if wanted[1] else None
    return of_x, of_weight, flat.sum(0) if bias is not None and wanted[2] else None, None


@torch.library.register_vmap(NAME)
def _mapped(
    info: Any, axes: Sequence[Any], x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None,
    activation: str = "none",
) -> tuple[torch.Tensor, int]:  # fmt: skip
    """All as more rows; ``axes``: of each argument vmap's, or None."""
    if any(axis is not None for axis in axes[1:]):
        return operator.one_by_one(_by_torch, info.batch_size, axes, (x, weight, bias, activation))
    one = x.select(axes[0], 0) if info.batch_size else x.new_empty(operator.without(x.shape, axes[0]))
    _check(one, weight, bias, activation)  # or vmap's axis could pass for C
    return _OPERATION(x.movedim(axes[0], 0), weight, bias, activation), 0


operator.differentiable(_OPERATION, _by_torch, _remember, _backward)


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

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        with operator.apart(self):
            return super()._apply(fn, recurse)

    def _load_from_state_dict(self, *given: Any) -> None:
        with operator.apart(self):
            super()._load_from_state_dict(*given)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x: ..., in_features."""
        weight, bias = operator.own(self)
        return linear(x, weight, bias, self.activation)

    @property
    def prepared_bytes(self) -> int:
        """Of what is made of the weight on a device: parts of its numbers, without what fills up rows."""
        return self.weight.nbytes

    def extra_repr(self) -> str:
        """As torch.nn.Linear has it, with the activation."""
        return super().extra_repr() + f", activation={self.activation!r}"
