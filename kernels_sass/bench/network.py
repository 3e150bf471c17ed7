"""ResNet-50's forward pass as a list of operations, with random parameters, and PyTorch's way to do each.

The network is that of He et al., "Deep Residual Learning for Image Recognition", Table 1, in the form that is used
today (torchvision's, "v1.5"): where a stage makes the picture smaller, the 3x3 convolution of its first block has the
stride 2. So 13 of the 16 3x3 convolutions have stride 1, and these are the ones that our kernels can do.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

CONV1, CONV3, CONV3_2, CONV7 = "1x1 conv", "3x3 conv", "3x3 conv, stride 2", "7x7 conv"
NORM, RELU, ADD, POOLING, FC = "batch norm", "ReLU", "add", "pooling", "fc"
KINDS = (CONV1, CONV3, CONV3_2, CONV7, NORM, RELU, ADD, POOLING, FC)
CONVOLUTIONS = KINDS[:4]

BLOCKS, WIDTH, CLASSES, SIZE = (3, 4, 6, 3), 64, 1000, 224
EXPANSION = 4  # a block's last convolution has so many times the filters of its first
EPSILON = 1e-5  # of batch norm

Array = np.ndarray[Any, np.dtype[Any]]


@dataclasses.dataclass(frozen=True)
class Op:
    """An operation on one of two tensors, ``slot``: "x", or "skip", what goes past a block and is added to x after it.

    ``begins``: skip is x as it is before this. Convolutions and fc: ``c`` inputs, ``k`` outputs; ``size`` rows and
    columns of a filter; the padding keeps the picture's size, but for the stride. ``folded``: the batch norm is in the
    weights and the bias; ``add``, ``relu``: skip is added, and ReLU taken, by the convolution itself.
    """

    kind: str
    name: str
    slot: str = "x"
    c: int = 0
    k: int = 0
    size: int = 1
    stride: int = 1
    begins: bool = False
    folded: bool = False
    add: bool = False
    relu: bool = False


Ops = Sequence[Op]


def resnet(blocks: Sequence[int] = BLOCKS, width: int = WIDTH, classes: int = CLASSES) -> list[Op]:
    """The operations in their order; with the defaults those of ResNet-50."""
    ops = [*_convolution("conv1", 3, width, 7, 2), Op(RELU, "relu1"), Op(POOLING, "maxpool", size=3, stride=2)]
    c = width
    for stage, count in enumerate(blocks, 1):
        inner = width << (stage - 1)
        outer = EXPANSION * inner
        for number in range(count):
            name, stride = f"layer{stage}.{number}", 2 if stage > 1 and number == 0 else 1
            block = _convolution(f"{name}.downsample", c, outer, 1, stride, "skip") if number == 0 else []
            block += [*_convolution(f"{name}.conv1", c, inner, 1), Op(RELU, f"{name}.relu1"),
                      *_convolution(f"{name}.conv2", inner, inner, 3, stride), Op(RELU, f"{name}.relu2"),
                      *_convolution(f"{name}.conv3", inner, outer, 1)]  # fmt: skip
            ops += [dataclasses.replace(block[0], begins=True), *block[1:], Op(ADD, f"{name}.add"), Op(RELU, name)]
            c = outer
    return [*ops, Op(POOLING, "avgpool"), Op(FC, "fc", c=c, k=classes)]


def _convolution(name: str, c: int, k: int, size: int, stride: int = 1, slot: str = "x") -> list[Op]:
    """With its batch norm, which has the same name."""
    kind = {1: CONV1, 3: CONV3 if stride == 1 else CONV3_2, 7: CONV7}[size]
    return [Op(kind, name, slot, c, k, size, stride), Op(NORM, name, slot, k, k)]


# ---- forms -------------------------------------------------------------------------------------------------------


def fold(ops: Ops) -> list[Op]:
    """Without batch norms: each is in the convolution before it."""
    return [dataclasses.replace(op, folded=True) if op.kind in CONVOLUTIONS else op for op in ops if op.kind != NORM]


def fuse(ops: Ops, which: Callable[[Op], bool]) -> list[Op]:
    """The convolutions ``which`` take the addition and the ReLU after them into themselves."""
    made: list[Op] = []
    for op in ops:
        last = made[-1] if made else op
        takes = last.kind in CONVOLUTIONS and last.slot == op.slot and not last.relu and which(last)
        if takes and (op.kind == RELU or (op.kind == ADD and not last.add)):
            made[-1] = dataclasses.replace(last, add=last.add or op.kind == ADD, relu=op.kind == RELU)
        else:
            made.append(op)
    return made


# ---- sizes -------------------------------------------------------------------------------------------------------

Shape = tuple[int, ...]


def shapes(ops: Ops, n: int, size: int = SIZE) -> Iterator[tuple[Op, Shape]]:
    """Each operation with the shape of what it makes, N, C, H, W (fc: N, K), for n pictures of size x size."""
    there: dict[str, Shape] = {"x": (n, 3, size, size)}
    for op in ops:
        if op.begins:
            there["skip"] = there["x"]
        n, c, h, w = (*there[op.slot], 1, 1)[:4]
        if op.kind in CONVOLUTIONS:
            there[op.slot] = n, op.k, math.ceil(h / op.stride), math.ceil(w / op.stride)
        elif op.kind == FC:
            there[op.slot] = n, op.k
        elif op.kind == POOLING:
            there[op.slot] = (n, c, math.ceil(h / 2), math.ceil(w / 2)) if op.stride == 2 else (n, c, 1, 1)
        yield op, there[op.slot]


def flops(ops: Ops, n: int, size: int = SIZE) -> dict[str, int]:
    """Operations of convolutions and fc by kind, a product and its sum as two, however they are computed."""
    found = dict.fromkeys(KINDS, 0)
    for op, made in shapes(ops, n, size):
        if op.kind in CONVOLUTIONS or op.kind == FC:
            found[op.kind] += 2 * op.c * op.size**2 * math.prod(made)
    return found


# ---- parameters --------------------------------------------------------------------------------------------------

NORMS = "mean", "var", "gamma", "beta"
Parameters = dict[tuple[str, str], Array]  # by the operation's name, and "weight", "bias" or one of NORMS


def parameters(ops: Ops, seed: int = 0) -> Parameters:
    """Random ones, float32, with which numbers keep their size through the layers. A block's last batch norm makes
    them small, so that they do not grow with every block."""
    random, made = np.random.default_rng(seed), Parameters()

    def uniform(low: float, high: float, count: int) -> Array:
        return random.uniform(low, high, count).astype(np.float32)

    for op in ops:
        if op.kind in CONVOLUTIONS:
            shape = op.k, op.c, op.size, op.size
            weight = random.standard_normal(shape, np.float32)
            made[op.name, "weight"] = weight * np.float32(math.sqrt(2 / (op.c * op.size**2)))
        elif op.kind == NORM:
            high = 0.5 if op.name.endswith("conv3") else 1.2
            bounds = {"mean": (-0.2, 0.2), "var": (0.7, 1.4), "gamma": (high / 2, high), "beta": (-0.2, 0.2)}
            made |= {(op.name, what): uniform(*bounds[what], op.k) for what in NORMS}
        elif op.kind == FC:
            made[op.name, "weight"] = random.standard_normal((op.k, op.c), np.float32) / np.float32(math.sqrt(op.c))
            made[op.name, "bias"] = uniform(-0.2, 0.2, op.k)
    return made


def folded(given: Parameters) -> Parameters:
    """With each batch norm in the weight and the bias of its convolution: reckoned in float64, rounded once."""
    made = Parameters()
    for (name, what), array in given.items():
        if what == "weight" and (name, "var") in given:
            mean, var, gamma, beta = (given[name, part].astype(np.float64) for part in NORMS)
            scale = gamma / np.sqrt(var + EPSILON)
            made[name, "weight"] = (array * scale[:, None, None, None]).astype(np.float32)
            made[name, "bias"] = (beta - mean * scale).astype(np.float32)
        elif what not in NORMS:
            made[name, what] = array
    return made


# ---- forward -----------------------------------------------------------------------------------------------------


def forward(
    torch: Any,
    ops: Ops,
    tensors: Mapping[tuple[str, str], Any],
    x: Any,
    ours: Mapping[str, Callable[[Any], Any]] | None = None,
    after: Callable[[int, Any], object] | None = None,
) -> Any:
    """What comes out for x, N, 3, H, W. ``tensors``: the parameters as the form of ops needs them, of x's type and on
    its device. ``ours``: who does a convolution in PyTorch's place, by its name. ``after`` is called with each
    operation's number and what it made, which later operations may overwrite."""
    there = {"x": x}
    for number, op in enumerate(ops):
        if op.begins:
            there["skip"] = there["x"]
        do = ours[op.name] if ours and op.name in ours else None
        there[op.slot] = do(there[op.slot]) if do else _do(torch, op, tensors, there)
        if after is not None:
            after(number, there[op.slot])
    return there["x"]


def _do(torch: Any, op: Op, tensors: Mapping[tuple[str, str], Any], there: Mapping[str, Any]) -> Any:
    """One operation, by PyTorch. What only that operation reads is overwritten where PyTorch can do so."""
    functional, x = torch.nn.functional, there[op.slot]
    if op.kind in CONVOLUTIONS:
        weight, bias = tensors[op.name, "weight"], tensors[op.name, "bias"] if op.folded else None
        stride, padding = (op.stride,) * 2, (op.size // 2,) * 2
        if op.add:
            return torch.cudnn_convolution_add_relu(x, weight, there["skip"], 1.0, bias, stride, padding, (1, 1), 1)
        if op.relu:
            return torch.cudnn_convolution_relu(x, weight, bias, stride, padding, (1, 1), 1)
        return functional.conv2d(x, weight, bias, stride, padding)
    if op.kind == NORM:
        mean, var, gamma, beta = (tensors[op.name, what] for what in NORMS)
        return functional.batch_norm(x, mean, var, gamma, beta, False, 0.0, EPSILON)
    if op.kind == RELU:
        return torch.relu_(x)
    if op.kind == ADD:
        return x.add_(there["skip"])
    if op.kind == POOLING:
        return functional.max_pool2d(x, op.size, 2, 1) if op.stride == 2 else functional.adaptive_avg_pool2d(x, 1)
    return functional.linear(x.flatten(1), tensors[op.name, "weight"], tensors[op.name, "bias"])
