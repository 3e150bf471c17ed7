"""``turingas::conv2d``: the operator, as torch.library knows it.

Its CUDA implementation is ``kernels_sass.conv.Conv2d``. On the CPU it is PyTorch's own convolution, or, where the
environment has TURINGAS_TORCH_CPU=kernels, our kernels on the CPU device: exact, and slow.

Source of the rules for operators: PyTorch's documentation of torch.library and its "custom operators manual".
"""

from __future__ import annotations

import os
import threading
from typing import Any

import torch
from torch.utils.weak import WeakTensorKeyDictionary

from kernels_sass import conv
from loader import cuda
from turingas.errors import LaunchError

NAME = "turingas::conv2d"
SCHEMA = "(Tensor x, Tensor weight, Tensor? bias=None, Tensor? residual=None, int padding=1, bool relu=False) -> Tensor"
CPU_BY = "TURINGAS_TORCH_CPU"  # of the environment: "torch" or "kernels"

#: where the axes of N, C, H, W stand in memory, outermost first; what x is in more than one order is in the first
AXES = {"NCHW": (0, 1, 2, 3), "NHWC": (0, 2, 3, 1), "CHWN": (1, 2, 3, 0)}
BACK = {layout: tuple(axes.index(axis) for axis in range(4)) for layout, axes in AXES.items()}

torch.library.define(NAME, SCHEMA, tags=(torch.Tag.needs_exact_strides, torch.Tag.pt2_compliant_tag))


def conv2d(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    residual: torch.Tensor | None = None,
    padding: int = 1,
    relu: bool = False,
) -> torch.Tensor:
    """relu(convolution of x with 3 x 3 filters, stride 1, + bias + residual): ``torch.ops.turingas.conv2d``.

    x: N, C, H, W. weight: K, C, 3, 3. bias: K. residual: as the result, N, K, H + 2 padding - 2, W + 2 padding - 2.
    padding: 0 or 1. The result lies in memory as x does: contiguous, channels_last, or C, H, W, N; an x that lies
    otherwise is copied first.

    float32 is computed by our kernels; other types, and what no kernel can (``unable``), by PyTorch's convolution.
    Filters are prepared when a weight is first used, and again when it has changed. Its version counter and its
    address tell that: what is written through ``weight.data``, or to an inference tensor, is not noticed.
    """
    return torch.ops.turingas.conv2d(x, weight, bias, residual, padding, relu)


# ---- sizes and layouts -------------------------------------------------------------------------------------------


def layout_of(x: torch.Tensor) -> str | None:
    """The order in which x lies in memory; None: in none of ours."""
    if x.is_contiguous():  # NCHW, the first and the quickest to tell
        return "NCHW"
    return next((layout for layout, axes in AXES.items() if x.permute(axes).is_contiguous()), None)


def ordered(tensor: torch.Tensor, layout: str) -> torch.Tensor:
    """The tensor, or a copy, that lies so."""
    return tensor.permute(AXES[layout]).contiguous().permute(BACK[layout])


def sizes(x: Any, weight: Any, bias: Any, residual: Any, padding: int) -> tuple[Any, Any, Any, Any]:
    """Those of the result. RuntimeError for what does not fit."""
    torch._check(x.dim() == 4, lambda: f"x has the shape {tuple(x.shape)}; it must be N, C, H, W")
    torch._check(weight.dim() == 4 and weight.shape[2] == 3 and weight.shape[3] == 3,
                 lambda: f"weight has the shape {tuple(weight.shape)}; it must be K, C, 3, 3")  # fmt: skip
    (n, c, h, w), k = x.shape, weight.shape[0]
    torch._check(padding in (0, 1), lambda: f"padding is {padding}; it must be 0 or 1")
    torch._check(weight.shape[1] == c, lambda: f"x has {c} channels, weight {weight.shape[1]}")
    found = n, k, h + 2 * padding - 2, w + 2 * padding - 2
    for size in found[2:]:
        torch._check(size > 0, lambda: f"a filter of 3 x 3 is larger than an image of {h} x {w} padded by {padding}")
    if bias is not None:
        torch._check(bias.dim() == 1 and bias.shape[0] == k, lambda: f"bias has the shape {tuple(bias.shape)}, not {k}")
    if residual is not None:
        torch._check(residual.dim() == 4, lambda: f"residual has the shape {tuple(residual.shape)}")
        for have, need in zip(residual.shape, found):
            torch._check(have == need, lambda: f"residual has the shape {tuple(residual.shape)}; it must be {found}")
    return found


def unable(device: torch.device, dtype: torch.dtype) -> str:
    """Why no kernel of ours can take tensors of a type on a device; "" if one can. LaunchError where the GPU cannot be
    reached, as without cuda-python."""
    if dtype is not torch.float32:
        return f"{str(dtype).removeprefix('torch.')}, not float32"
    if device.type == "cuda":
        return _unable(device.index if device.index is not None else torch.cuda.current_device())
    return "" if device.type in ("cpu", "meta") else f"on the device {device}"


_UNABLE: dict[int, str] = {}  # by the number of the GPU


def _unable(number: int) -> str:
    if number not in _UNABLE:
        gpu = cuda.device_named(f"cuda:{number}")
        try:
            conv.choose(conv.arch_of(gpu))
            _UNABLE[number] = ""
        except LaunchError as error:
            _UNABLE[number] = error.message
    return _UNABLE[number]


# ---- prepared filters --------------------------------------------------------------------------------------------

MOST_SIZES = 1024  # shapes of x of which it is remembered whether the kernels take them
MOST_LAYERS = 8  # of a weight: with other biases, paddings, layouts


class Prepared:
    """The layers with the filters of a weight as it is now. ``held``: its memory, so that no other tensor gets this
    address meanwhile."""

    def __init__(self, weight: torch.Tensor, before: Prepared | None) -> None:
        self.held, self.version = weight.detach(), _version(weight)
        self.layers: dict[Any, tuple[conv.Conv2d, Any, int]] = {}  # with the bias that is in each, and its version
        self.able: dict[Any, bool] = {}
        self.captured = False
        self.kept: list[Any] = []  # what a CUDA graph was captured with, which it goes on with
        if before is not None:
            self.kept += before.kept + list(before.layers.values()) * before.captured

    def is_of(self, weight: torch.Tensor) -> bool:
        """Whether the weight is what it was."""
        return self.held.data_ptr() == weight.data_ptr() and self.version == _version(weight)

    def takes(self, x: torch.Tensor, layout: str, padding: int, bias: Any, residual: Any) -> bool:
        """Whether the kernels can count x of this shape. RuntimeError for what does not fit, at the first such call:
        later the layer tells of it."""
        key = x.shape, layout, padding
        if key not in self.able:
            if len(self.able) >= MOST_SIZES:
                self.able.clear()
            sizes(x, self.held, bias, residual, padding)
            n, c, h, w = x.shape
            try:
                list(conv.Shape(n, c, h, w, self.held.shape[0], padding, layout).parts())
                self.able[key] = True
            except LaunchError:
                self.able[key] = False
        return self.able[key]

    def layer(self, bias: torch.Tensor | None, padding: int, relu: bool, layout: str) -> conv.Conv2d:
        """The layer, made when it is first asked for."""
        key = None if bias is None else bias.data_ptr(), padding, relu, layout
        version = 0 if bias is None else _version(bias)
        if (found := self.layers.get(key)) is None or found[2] != version:
            device = "cpu" if self.held.device.type == "cpu" else str(self.held.device)
            made = conv.Conv2d(self.held.contiguous(), None if bias is None else bias.detach().contiguous(), padding,
                               "relu" if relu else None, layout, device)  # fmt: skip
            if found is None and len(self.layers) >= MOST_LAYERS:
                found = self.layers.pop(next(iter(self.layers)))
            if found is not None and self.captured:
                self.kept.append(found)
            found = self.layers[key] = made, None if bias is None else bias.detach(), version
        return found[0]


_PREPARED: Any = WeakTensorKeyDictionary()
_LOCK = threading.RLock()


def _version(tensor: torch.Tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version


def prepared(weight: torch.Tensor) -> Prepared:
    """What there is of a weight as it is now."""
    with _LOCK:
        found: Prepared | None = _PREPARED.get(weight)
        if found is None or not found.is_of(weight):
            found = _PREPARED[weight] = Prepared(weight, found)
        return found


# ---- implementations ---------------------------------------------------------------------------------------------


@torch.library.register_fake(NAME)
def _fake(x: Any, weight: Any, bias: Any = None, residual: Any = None, padding: int = 1, relu: bool = False) -> Any:
    """The result's sizes, type and order in memory."""
    made, layout = sizes(x, weight, bias, residual, padding), layout_of(x) or "NCHW"
    return x.new_empty([made[axis] for axis in AXES[layout]]).permute(BACK[layout])


def by_torch(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, residual: torch.Tensor | None, relu: bool,
    **options: Any,
) -> torch.Tensor:  # fmt: skip
    """The same by PyTorch's own operators. ``options``: of torch.nn.functional.conv2d."""
    y = torch.nn.functional.conv2d(x, weight, bias, **options)
    if residual is not None:
        y = y + residual
    return torch.relu(y) if relu else y


def _by_torch(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None, residual: torch.Tensor | None = None,
    padding: int = 1, relu: bool = False,
) -> torch.Tensor:  # fmt: skip
    """In the order that ``_fake`` says."""
    sizes(x, weight, bias, residual, padding)
    return ordered(by_torch(x, weight, bias, residual, relu, padding=padding), layout_of(x) or "NCHW")


def _by_kernels(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None, residual: torch.Tensor | None = None,
    padding: int = 1, relu: bool = False,
) -> torch.Tensor:  # fmt: skip
    if unable(x.device, x.dtype) or weight.dtype is not x.dtype:
        return _by_torch(x, weight, bias, residual, padding, relu)
    torch._check(weight.device == x.device, lambda: f"x is on {x.device}, weight on {weight.device}")
    layout = layout_of(x) if x.dim() == 4 else "NCHW"
    if layout is None:
        x, layout = x.contiguous(), "NCHW"
    found = prepared(weight)
    if not found.takes(x, layout, padding, bias, residual):
        return _by_torch(x, weight, bias, residual, padding, relu)
    with _LOCK:
        layer = found.layer(bias, padding, relu, layout)
        found.captured = found.captured or (x.is_cuda and torch.cuda.is_current_stream_capturing())
    if layout == "NCHW":
        return layer(x, None if residual is None else residual.contiguous())
    axes = AXES[layout]
    y = layer(x.permute(axes), None if residual is None else residual.permute(axes).contiguous())
    return y.permute(BACK[layout])


def _on_cpu(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None, residual: torch.Tensor | None = None,
    padding: int = 1, relu: bool = False,
) -> torch.Tensor:  # fmt: skip
    by = os.environ.get(CPU_BY, "torch")
    if by not in ("torch", "kernels"):
        raise LaunchError(f"{CPU_BY} is {by!r}", "it may be: torch, kernels")
    return (_by_kernels if by == "kernels" else _by_torch)(x, weight, bias, residual, padding, relu)


torch.library.impl(NAME, "cpu", _on_cpu)
torch.library.impl(NAME, "cuda", _by_kernels)
for _device in ("cpu", "cuda"):
    torch.library.register_autocast(NAME, _device, torch.float32)


# ---- gradients ---------------------------------------------------------------------------------------------------


def _remember(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    x, weight, bias, _, ctx.padding, ctx.relu = inputs
    ctx.filters = None if bias is None else [weight.shape[0]]
    ctx.save_for_backward(x, weight, output if ctx.relu else None)


def _backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    """By PyTorch's own operators: there are no kernels of ours for gradients."""
    x, weight, y = ctx.saved_tensors
    if ctx.relu:
        grad = torch.where(y > 0, grad, torch.zeros_like(grad))
    wanted = [*ctx.needs_input_grad, False, False][:4]  # without those that the caller left out
    padding = [ctx.padding] * 2
    of_x, of_weight, of_bias = torch.ops.aten.convolution_backward(
        grad, x, weight, ctx.filters, [1, 1], padding, [1, 1], False, [0, 0], 1, wanted[:3]
    )
    found = of_x, of_weight, of_bias, grad if wanted[3] else None, None, None
    return found[: len(ctx.needs_input_grad)]


torch.library.register_autograd(NAME, _backward, setup_context=_remember)
