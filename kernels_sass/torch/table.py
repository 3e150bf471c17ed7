"""What can take a layer of a network's place: TABLE, in which a new kernel is one more entry."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import Node

from kernels_sass.torch import layer, operator, product
from kernels_sass.torch.layer import Conv2d, folded
from kernels_sass.torch.product import Linear

CONVOLUTION, LINEAR, PRODUCT = "convolution", "linear", "product"  # kinds of layers: the names in nodes.LAYERS
NORM, RESIDUAL, RELU = "batch norm", "residual", "ReLU"  # what can be folded in
GELU, GELU_TANH = "GELU", "GELU (tanh)"
NOTHING = "nothing"  # what does nothing in evaluation, as dropout: any entry leaves it out


@dataclass
class Found:
    """A layer in a graph: its node, its parameters, x in the example. ``steps``: what follows and could be folded in,
    in order: its name, the node, and the batch norm or the node that is added. ``kind``: CONVOLUTION, with
    ``arguments`` as torch.nn.Conv2d names them; LINEAR; PRODUCT of two tensors, the second in the example being
    ``other``, without a weight."""

    node: Node
    name: str
    weight: Any  # torch.Tensor; None of a product
    bias: torch.Tensor | None
    arguments: dict[str, Any]
    x: Any  # torch.fx.passes.shape_prop.TensorMetadata
    steps: list[tuple[str, Node, Any]] = field(default_factory=list)
    kind: str = CONVOLUTION
    other: Any = None

    @property
    def what(self) -> str:
        """In words."""
        if self.kind == PRODUCT:
            return " by ".join("x".join(map(str, getattr(one, "shape", ()))) for one in (self.x, self.other))
        if self.kind == LINEAR:
            k, c = self.weight.shape
            return f"linear, {c} -> {k}, {math.prod(getattr(self.x, 'shape', ())[:-1])} rows"
        k, c, rows, columns = self.weight.shape
        shape: Any = getattr(self.x, "shape", ())
        size = f", {shape[-2]}x{shape[-1]}" if len(shape) >= 2 else ""
        return f"{rows}x{columns}, {self.arguments['groups'] * c} -> {k}{size}"

    def parameters(self, steps: list[tuple[str, Node, Any]]) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Weight and bias, with the batch norm of ``steps`` in them if there is one."""
        norm = next((one for kind, _, one in steps if kind == NORM), None)
        return (self.weight, self.bias) if norm is None else folded(self.weight, self.bias, norm)


@dataclass(frozen=True)
class Entry:
    """Something that takes the place of layers of the ``kinds``. ``why_not``: why it cannot take one; "" if it can.
    ``folds``: what it can do besides. ``make``: the module, called with the layer's tensors, and with what is added,
    that does these ``steps`` too. ``ours``: whether kernels of ours compute it. ``slow``: why it is not expected to be
    faster than PyTorch with one that it can take; "" where it is."""

    name: str
    why_not: Callable[[Found], str]
    folds: tuple[str, ...]
    make: Callable[[Found, list[tuple[str, Node, Any]]], torch.nn.Module]
    ours: bool = True
    kinds: tuple[str, ...] = (CONVOLUTION,)
    slow: Callable[[Found], str] = lambda found: ""

    def steps(self, found: Found) -> list[tuple[str, Node, Any]]:
        """Of what follows, as much as it does."""
        able = (*self.folds, NOTHING)
        count = next((n for n, (kind, *_) in enumerate(found.steps) if kind not in able), len(found.steps))
        return found.steps[:count]


# ---- turingas::conv2d --------------------------------------------------------------------------------------------


def _why_not(found: Found) -> str:
    if why := layer.why_not(found.arguments):
        return why
    shape: Any = getattr(found.x, "shape", ())
    if len(shape) != 4:
        return f"x has {len(shape)} dimensions"
    padding = layer.paddings(*(found.arguments[name] for name in ("padding", "kernel_size", "dilation")))
    way = operator.Way.of(padding, found.arguments["stride"], found.arguments["dilation"])
    for dtype in (found.weight.dtype, found.x.dtype):
        if why := operator.unable(found.weight.device, dtype, bool(way.beyond(found.weight))):
            return why
    return operator.uncounted(shape, found.weight, way)


def _make(found: Found, steps: list[tuple[str, Node, Any]]) -> torch.nn.Module:
    activation = "relu" if any(kind == RELU for kind, *_ in steps) else None
    made: torch.nn.Module = layer.of(Conv2d, *found.parameters(steps), found.arguments, activation=activation)
    return made


# ---- turingas::linear --------------------------------------------------------------------------------------------


def _why_not_linear(found: Found) -> str:
    for dtype in (found.weight.dtype, found.x.dtype):
        if why := product.unable(found.weight.device, dtype):
            return why
    return ""


#: linear layers that are faster by ours, on an H200 (tests/bench/linear.py): the fewest rows of x, the fewest columns,
#: the most filters
FASTER = ((32, 1, 1 << 30), (16, 640, 1 << 30), (8, 512, 3072), (2, 2048, 1280))


def faster(rows: int, c: int, k: int) -> bool:
    """Whether a linear layer is expected to be faster by ours."""
    return any(rows >= fewest and c >= columns and k <= filters for fewest, columns, filters in FASTER)


def _slow_linear(found: Found) -> str:
    k, c = found.weight.shape
    rows = math.prod(getattr(found.x, "shape", ())[:-1])
    return "" if faster(rows, c, k) else f"with {rows} row{'s' * (rows != 1)} PyTorch is as fast"


def _make_linear(found: Found, steps: list[tuple[str, Node, Any]]) -> torch.nn.Module:
    activation = next((ACTIVATIONS[kind] for kind, *_ in steps if kind in ACTIVATIONS), "none")
    k, c = found.weight.shape
    made = Linear(c, k, found.bias is not None, "meta", activation=activation)
    made.weight = layer.parameter(found.weight)
    made.bias = None if found.bias is None else layer.parameter(found.bias)
    return made


#: as ``Linear`` calls them
ACTIVATIONS = {RELU: "relu", GELU: "gelu", GELU_TANH: "gelu_tanh"}


# ---- PyTorch's convolution ---------------------------------------------------------------------------------------


def _no_norm(found: Found) -> str:
    return "" if found.steps and found.steps[0][0] == NORM else "no batch norm follows"


def _make_theirs(found: Found, steps: list[tuple[str, Node, Any]]) -> torch.nn.Module:
    made: torch.nn.Module = layer.of(torch.nn.Conv2d, *found.parameters(steps), found.arguments)
    return made


OURS = Entry("turingas::conv2d", _why_not, (NORM, RESIDUAL, RELU), _make)
LINEARS = Entry("turingas::linear", _why_not_linear, tuple(ACTIVATIONS), _make_linear, kinds=(LINEAR,),
                slow=_slow_linear)  # fmt: skip
FOLDED = Entry("PyTorch", _no_norm, (NORM,), _make_theirs, ours=False)

#: The first entry that can take a layer does; or, tuned, the fastest of those that can and PyTorch.
TABLE = (OURS, LINEARS, FOLDED)
