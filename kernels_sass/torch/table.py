"""What can take a convolution of a network's place: TABLE, in which a new kernel is one more entry."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import Node

from kernels_sass import conv
from kernels_sass.torch import layer, operator
from kernels_sass.torch.layer import Conv2d, folded
from turingas.errors import LaunchError

NORM, RESIDUAL, RELU = "batch norm", "residual", "ReLU"  # what can be folded in


@dataclass
class Found:
    """A convolution in a graph: its node, its parameters, its arguments as torch.nn.Conv2d names them, x in the
    example. ``steps``: what follows and could be folded in, in order: its name, the node, and the batch norm or the
    node that is added."""

    node: Node
    name: str
    weight: torch.Tensor
    bias: torch.Tensor | None
    arguments: dict[str, Any]
    x: Any  # torch.fx.passes.shape_prop.TensorMetadata
    steps: list[tuple[str, Node, Any]] = field(default_factory=list)

    @property
    def what(self) -> str:
        """In words."""
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
    """Something that takes a convolution's place. ``why_not``: why it cannot take one; "" if it can. ``folds``: what it
    can do besides. ``make``: the module, called with x, or x and what is added, that does these ``steps`` too.
    ``ours``: whether kernels of ours compute it."""

    name: str
    why_not: Callable[[Found], str]
    folds: tuple[str, ...]
    make: Callable[[Found, list[tuple[str, Node, Any]]], torch.nn.Module]
    ours: bool = True

    def steps(self, found: Found) -> list[tuple[str, Node, Any]]:
        """Of what follows, as much as it does."""
        count = next((n for n, (kind, *_) in enumerate(found.steps) if kind not in self.folds), len(found.steps))
        return found.steps[:count]


# ---- turingas::conv2d --------------------------------------------------------------------------------------------


def _why_not(found: Found) -> str:
    if why := layer.why_not(found.arguments):
        return why
    shape: Any = getattr(found.x, "shape", ())
    if len(shape) != 4:
        return f"x has {len(shape)} dimensions"
    for dtype in (found.weight.dtype, found.x.dtype):
        if why := operator.unable(found.weight.device, dtype):
            return why
    padding = layer.paddings(*(found.arguments[name] for name in ("padding", "kernel_size", "dilation")))[0]
    try:
        n, c, h, w = shape
        list(conv.Shape(n, c, h, w, found.weight.shape[0], padding).parts())
    except LaunchError as error:
        return error.message
    return ""


def _make(found: Found, steps: list[tuple[str, Node, Any]]) -> torch.nn.Module:
    activation = "relu" if any(kind == RELU for kind, *_ in steps) else None
    made: torch.nn.Module = layer.of(Conv2d, *found.parameters(steps), found.arguments, activation=activation)
    return made


# ---- PyTorch's convolution ---------------------------------------------------------------------------------------


def _no_norm(found: Found) -> str:
    return "" if found.steps and found.steps[0][0] == NORM else "no batch norm follows"


def _make_theirs(found: Found, steps: list[tuple[str, Node, Any]]) -> torch.nn.Module:
    made: torch.nn.Module = layer.of(torch.nn.Conv2d, *found.parameters(steps), found.arguments)
    return made


OURS = Entry("turingas::conv2d", _why_not, (NORM, RESIDUAL, RELU), _make)
FOLDED = Entry("PyTorch", _no_norm, (NORM,), _make_theirs, ours=False)

#: The first entry that can take a convolution does; or, tuned, the fastest of those that can and PyTorch.
TABLE = (OURS, FOLDED)
