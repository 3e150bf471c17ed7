"""What stands in a graph of torch.fx: layers, batch norms, additions and activations, as modules, functions, methods,
and as ATen's operators in exported graphs. A new way to write one is one more entry in a table here."""

from __future__ import annotations

import operator as python
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import torch
from torch.fx import GraphModule, Node

from kernels_sass.torch.layer import arguments_of
from kernels_sass.torch.table import CONVOLUTION, GELU, GELU_TANH, LINEAR, PRODUCT, RELU

aten, functional = torch.ops.aten, torch.nn.functional


def module_of(graph: GraphModule, node: Node) -> torch.nn.Module | None:
    """What a node calls, if that is a module."""
    return graph.get_submodule(str(node.target)) if node.op == "call_module" else None


def key_of(graph: GraphModule, node: Node) -> Any:
    """By which a node stands in the tables: the exact type of a module, a function, a method's name."""
    module = module_of(graph, node)
    return type(module) if module is not None else node.target if node.op.startswith("call_") else None


def hooked(module: torch.nn.Module) -> bool:
    """Whether something else is called with it: weight norms of old, observers, what users add."""
    return bool(module._forward_hooks or module._forward_pre_hooks)


def argument(node: Node, place: int, name: str, default: Any = None) -> Any:
    """An argument by place or by name."""
    return node.args[place] if len(node.args) > place else node.kwargs.get(name, default)


def constant(graph: GraphModule, value: Any) -> Any:
    """The parameter or buffer that a node gets; None for none. LookupError for what is computed."""
    if value is None:
        return None
    if not isinstance(value, Node) or value.op != "get_attr":
        raise LookupError
    found: Any = graph
    for part in str(value.target).split("."):
        found = getattr(found, part)
    return found


# ---- convolutions ------------------------------------------------------------------------------------------------


def _conv_module(graph: GraphModule, node: Node) -> SimpleNamespace:
    module: Any = module_of(graph, node)
    return SimpleNamespace(weight=module.weight, bias=module.bias, arguments=arguments_of(module), name=node.target)


def _conv_function(graph: GraphModule, node: Node) -> SimpleNamespace:
    filters = argument(node, 1, "weight")
    weight = constant(graph, filters)
    given = {"kernel_size": tuple(weight.shape[2:]), "padding_mode": "zeros"}
    for place, (name, default) in enumerate((("stride", 1), ("padding", 0), ("dilation", 1)), 3):
        value = argument(node, place, name, default)
        if isinstance(value, (list, tuple)) and len(value) == 1:
            value = value[0]
        given[name] = (value, value) if isinstance(value, int) else value if isinstance(value, str) else tuple(value)
    given["groups"] = argument(node, 6, "groups", 1)
    bias = constant(graph, argument(node, 2, "bias"))
    return SimpleNamespace(weight=weight, bias=bias, arguments=given, name=_owner(node, filters))


def _owner(node: Node, weight: Any) -> str:
    """The module that has a weight."""
    return str(weight.target).rpartition(".")[0] or str(node.name)


# ---- matrix products ---------------------------------------------------------------------------------------------


def _linear_module(graph: GraphModule, node: Node) -> SimpleNamespace:
    module: Any = module_of(graph, node)
    return SimpleNamespace(weight=module.weight, bias=module.bias, arguments={}, name=node.target)


def _linear_function(graph: GraphModule, node: Node) -> SimpleNamespace:
    of = argument(node, 1, "weight")
    weight, bias = constant(graph, of), constant(graph, argument(node, 2, "bias"))
    return SimpleNamespace(weight=weight, bias=bias, arguments={}, name=_owner(node, of))


def _product(graph: GraphModule, node: Node) -> SimpleNamespace:
    return SimpleNamespace(weight=None, bias=None, arguments={}, name=node.name)


Reader = Callable[[GraphModule, Node], SimpleNamespace]
#: -> kind of layer, and what reads its weight, bias, arguments, name. LookupError if the weight is computed
LAYERS: dict[Any, tuple[str, Reader]] = {
    torch.nn.Conv2d: (CONVOLUTION, _conv_module),
    torch.conv2d: (CONVOLUTION, _conv_function),
    aten.conv2d.default: (CONVOLUTION, _conv_function),
    aten.conv2d.padding: (CONVOLUTION, _conv_function),
    torch.nn.Linear: (LINEAR, _linear_module),
    functional.linear: (LINEAR, _linear_function),
    aten.linear.default: (LINEAR, _linear_function),
    **dict.fromkeys((python.matmul, torch.matmul, torch.bmm, torch.mm, "matmul", "bmm", "mm", aten.matmul.default,
                     aten.bmm.default, aten.mm.default), (PRODUCT, _product)),
}  # fmt: skip

# ---- batch norms -------------------------------------------------------------------------------------------------


def _norm_module(graph: GraphModule, node: Node) -> Any:
    return module_of(graph, node)


def _norm(names: str) -> Reader:
    def read(graph: GraphModule, node: Node) -> SimpleNamespace:
        defaults = {"training": False, "eps": 1e-5}
        given = {name: argument(node, place, name, defaults.get(name)) for place, name in enumerate(names.split())}
        tensors = {name: constant(graph, given[name]) for name in ("running_mean", "running_var", "weight", "bias")}
        features = None if tensors["running_mean"] is None else tensors["running_mean"].numel()
        return SimpleNamespace(**tensors, training=given["training"], eps=given["eps"], num_features=features)

    return read


#: -> running_mean, running_var, weight, bias, eps, training, num_features
NORMS: dict[Any, Reader] = {
    torch.nn.BatchNorm2d: _norm_module,
    functional.batch_norm: _norm("x running_mean running_var weight bias training momentum eps"),
    aten.batch_norm.default: _norm("x weight bias running_mean running_var training momentum eps"),
}

# ---- additions and activations ------------------------------------------------------------------------------------

#: -> whether the first operand is overwritten
ADDITIONS = {
    python.add: False, torch.add: False, "add": False, aten.add.Tensor: False,
    python.iadd: True, "add_": True, aten.add_.Tensor: True,
}  # fmt: skip
RELUS = {
    torch.nn.ReLU, functional.relu, torch.relu, torch.relu_, "relu", "relu_", aten.relu.default, aten.relu_.default,
}  # fmt: skip
GELUS = {torch.nn.GELU, functional.gelu, aten.gelu.default}
DROPOUTS = {torch.nn.Dropout, functional.dropout, aten.dropout.default}


def inputs(node: Node, kind: str) -> list[Any]:
    """What a layer computes with besides its parameters: x, or both sides of a product."""
    if kind != PRODUCT:
        return node.all_input_nodes[:1]
    names = ("input", "self"), ("other", "mat2")
    return [argument(node, place, next((one for one in some if one in node.kwargs), "")) for place, some in
            enumerate(names)]  # fmt: skip


def activation(graph: GraphModule, node: Node) -> str:
    """Which activation a node is, by its name in the table; "" for none."""
    key = key_of(graph, node)
    if key in GELUS:
        module = module_of(graph, node)
        way = argument(node, 1, "approximate", "none") if module is None else getattr(module, "approximate", None)
        return {"none": GELU, "tanh": GELU_TANH}.get(str(way), "")
    return RELU if key in RELUS else ""


def idle(graph: GraphModule, node: Node) -> bool:
    """Whether a node is a dropout that does nothing, since it is not in training mode."""
    if key_of(graph, node) not in DROPOUTS:
        return False
    module = module_of(graph, node)
    name = "train" if isinstance(node.target, torch._ops.OpOverload) else "training"
    return not (module.training if module is not None else argument(node, 2, name, True))


def other_summand(node: Node, mine: Node, overwrites: bool) -> Node | None:
    """What an addition adds to ``mine``, a tensor of the same sizes and type in the example; None if it is not so
    plain, or if another's memory would be overwritten."""
    operands = [argument(node, 0, "input"), argument(node, 1, "other")]
    if node.kwargs.get("alpha", 1) != 1 or len(node.args) > 2 or operands.count(mine) != 1:
        return None
    if overwrites and operands[0] is not mine:
        return None
    other = operands[1 - operands.index(mine)]
    if not isinstance(other, Node):
        return None
    here, there = mine.meta.get("tensor_meta"), other.meta.get("tensor_meta")
    same = hasattr(here, "shape") and hasattr(there, "shape") and (here.shape, here.dtype) == (there.shape, there.dtype)
    return other if same else None


def overwrites(graph: GraphModule, node: Node) -> bool:
    """Whether a node may write into a tensor that there was before it."""
    if node.op not in ("call_module", "call_function", "call_method"):
        return False
    if node.kwargs.get("inplace") or node.kwargs.get("out") is not None or getattr(
        module_of(graph, node), "inplace", False
    ):
        return True
    if isinstance(node.target, torch._ops.OpOverload):
        return node.target._schema.is_mutable
    if node.op == "call_function":
        name = str(getattr(node.target, "__name__", ""))
        in_place = name.startswith("i") and hasattr(python, name) and hasattr(python, f"__{name}__")
        positional = node.target in (functional.relu, functional.silu, functional.elu, functional.leaky_relu)
        flagged = positional and any(value is True for value in node.args[1:])
        return in_place or flagged or name == "setitem" or (name.endswith("_") and not name.endswith("__"))
    name = str(node.target)
    return node.op == "call_method" and (name == "__setitem__" or (name.endswith("_") and not name.endswith("__")))


def between(first: Node, last: Node) -> Iterator[Node]:
    """The nodes behind one and before another."""
    node = first.next
    while node is not last:
        yield node
        node = node.next
