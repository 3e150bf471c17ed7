"""``turingas::conv2d``: the operator, as torch.library knows it.

Its CUDA implementation is ``kernels_sass.conv.Conv2d``. On the CPU it is PyTorch's own convolution, or, where the
environment has TURINGAS_TORCH_CPU=kernels, our kernels on the CPU device: exact, and slow.

Source of the rules for operators: PyTorch's documentation of torch.library and its "custom operators manual".
"""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

import torch
from torch.autograd import forward_ad
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.weak import WeakTensorKeyDictionary

from kernels_sass import conv
from kernels_sass.conv import implicit_shape
from kernels_sass.conv.conv2d import beyond
from kernels_sass.conv.implicit import supported
from loader import cuda
from loader.arrays import guards, kind_of
from turingas.errors import LaunchError
from turingas.forks import freed

NAME = "turingas::conv2d"
SCHEMA = (
    "(Tensor x, Tensor weight, Tensor? bias=None, Tensor? residual=None, int[2] padding=1, bool relu=False, "
    "int[2] stride=1, int[2] dilation=1) -> Tensor"
)
Numbers = int | Sequence[int]  # for rows and columns, or one for both
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
    padding: Numbers = 1,
    relu: bool = False,
    stride: Numbers = 1,
    dilation: Numbers = 1,
) -> torch.Tensor:
    """relu(convolution of x + bias + residual): ``torch.ops.turingas.conv2d``.

    x: N, C, H, W. weight: K, C, R, S. bias: K. residual: as the result, N, K, P, Q, with P = (H + 2 padding - dilation
    (R - 1) - 1) // stride + 1, and Q alike. padding, stride, dilation: a number, or one for rows and one for columns.
    The result lies in memory as x does: contiguous, channels_last, or C, H, W, N; an x that lies otherwise is copied
    first.

    float32 is computed by our kernels, ``kernels_sass.conv.Conv2d``: 3 x 3 with stride 1 on all GPUs that have them,
    other filters on sm_90a alone, by HGMMA. Other types, what no kernel can (``unable``), and what torch.func or dual
    tensors derive, by PyTorch's convolution. torch.vmap over x and residual makes one call of it all; over weights or
    biases, a convolution of PyTorch's for each.
    Filters are prepared when a weight is first used, and again when it has changed. Its version counter and its
    address tell that: what is written through ``weight.data``, or to an inference tensor, is not noticed.
    """
    return below(_OPERATION, x, weight, bias, residual, padding, relu, stride, dilation)


_OPERATION = torch.ops.turingas.conv2d.default
#: below what records gradients: PyTorch's own guard, which its layer for operators in Python takes too
_BELOW_AUTOGRAD = getattr(torch._C, "_AutoDispatchBelowAutograd", contextlib.nullcontext)


def below(operation: Any, *arguments: Any) -> torch.Tensor:
    """An operator of ours. Where nobody asks for derivatives it is called below what would record them: that is Python,
    and takes as long as PyTorch's convolution. What compiles or exports sees the operator alone."""
    made: torch.Tensor
    if torch.compiler.is_compiling() or torch.is_grad_enabled() or forward_ad._current_level >= 0:
        made = operation(*arguments)
        return made
    with _BELOW_AUTOGRAD():
        made = operation(*arguments)
    return made


def called(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, residual: torch.Tensor | None, padding: Pair,
    relu: bool, stride: Pair, dilation: Pair,
) -> torch.Tensor:  # fmt: skip
    """``conv2d``, for who calls it again and again with the same pairs: past the dispatcher, where that can be."""
    if torch.compiler.is_compiling() or torch.is_grad_enabled():
        return below(_OPERATION, x, weight, bias, residual, padding, relu, stride, dilation)
    tensors = (x, weight) if bias is None else (x, weight, bias)
    if residual is not None:
        tensors = *tensors, residual
    others = padding, relu, stride, dilation
    found = past(_RECENT, tensors, others)
    if found is not None and (made := found[1](found[0], x, bias, residual)) is not None:
        return made
    y = below(_OPERATION, x, weight, bias, residual, *others)
    if found is None:
        learn(_RECENT, tensors, others, lambda known: _again(known, x, bias, padding, relu, stride, dilation))
    return y


# ---- past the dispatcher -----------------------------------------------------------------------------------------

#: All that the dispatcher looks at, in one call. None: this PyTorch has no such thing; the dispatcher is always asked.
_GUARDS = guards(torch)
#: modes that a call of an operator looks at besides (TensorGuards does not see those of the dispatcher that are
#: PyTorch's own, as FakeTensorMode and make_fx's), and whether a profiler wants to see it
_FUNCTION_MODES = getattr(torch._C, "_len_torch_function_stack", lambda: 1)
_DISPATCH_MODES = getattr(torch._C, "_len_torch_dispatch_stack", lambda: 1)
_PROFILED = getattr(torch.autograd, "_profiler_enabled", lambda: True)
#: keys of the dispatcher at which nothing is done for an operator of ours, below what records gradients
_IDLE = "BackendSelect", "ADInplaceOrView", "AutogradCPU", "AutogradCUDA"
MOST_ALIKE = 4  # that differ in strides or modes alone

Check = Callable[..., bool]
Run = Callable[..., torch.Tensor | None]


def past(those: Recent[HeldT], tensors: tuple[Any, ...], others: Any) -> tuple[HeldT, Run] | None:
    """What does the same as an operator of ours for x, a weight and what else there is, and what is made of the weight;
    None: the operator is to be called. ``those``: weights that were there lately; ``others``: arguments that are no
    tensors. No gradients are asked for, and nothing is compiled."""
    x, weight = tensors[0], tensors[1]
    known = those.get(id(weight))
    if known is None or type(x) not in _PLAIN or _FUNCTION_MODES() or _DISPATCH_MODES() or _PROFILED():
        return None
    if forward_ad._current_level >= 0:
        return None
    of: Any = known[0]()
    if of is not weight:
        return None
    if (found := known[1]()) is None:
        return None
    try:
        ways = found.ways.get((x.shape, others, len(tensors)), ())
    except (TypeError, RuntimeError):  # a list; or a tensor that has no shape
        return None
    for check, run in ways:
        if check(*tensors):
            if weight.data_ptr() != found.address or not (found.inference or weight._version == found.version):
                return None
            return found, run
    return None


_PLAIN = torch.Tensor, torch.nn.Parameter


def learn(
    those: Recent[HeldT], tensors: tuple[torch.Tensor, ...], others: Any, make: Callable[[HeldT], Run | None]
) -> None:
    """After a call of the operator: what ``past`` finds the next time, if there is nothing between the operator and its
    implementation for these tensors. ``make``: what does the same as that; None: nothing does yet."""
    if _GUARDS is None or any(type(one) not in _PLAIN for one in tensors):
        return
    if _FUNCTION_MODES() or _DISPATCH_MODES() or _PROFILED() or forward_ad._current_level >= 0:
        return
    if (found := recent(tensors[1], those)) is None:
        return
    key = tensors[0].shape, others, len(tensors)
    if len(found.ways.get(key, ())) >= MOST_ALIKE:
        return
    try:
        check: Check = _GUARDS(*tensors, dynamic_dims_sizes=None, dynamic_dims_strides=None).check
        plain = _nothing_between(tensors)
    except (AttributeError, TypeError, RuntimeError):  # another PyTorch may have other functions
        return
    with _LOCK:  # or another thread could take out what is made for a bias, whose address is then free, in between
        run = make(found) if plain else _by_operator
        if run is not None:
            if len(found.ways) >= MOST_SIZES:
                found.ways.clear()
            found.ways.setdefault(key, []).append((check, run))


def own(module: torch.nn.Module) -> tuple[Any, Any]:
    """Its weight and bias. To ask a module for its parameters by name takes PyTorch as long as half a call."""
    there = module._parameters
    weight = there.get("weight")
    if weight is None or "bias" not in there or torch.compiler.is_compiling():  # pruned, parametrized
        return module.weight, module.bias
    return weight, there["bias"]


def _nothing_between(tensors: Sequence[torch.Tensor]) -> bool:
    """Whether the dispatcher, asked for an operator of ours below what records gradients, calls what that has for CPU
    or CUDA, and nothing before."""
    keys = torch._C._dispatch_tls_local_include_set()
    for one in tensors:
        keys = keys | torch._C._dispatch_keys(one)
    keys = keys - torch._C._dispatch_tls_local_exclude_set()
    for name in _IDLE:
        keys = keys.remove(getattr(torch._C.DispatchKey, name))
    return keys.highestPriorityTypeId() in (torch._C.DispatchKey.CPU, torch._C.DispatchKey.CUDA)


def _by_operator(*given: Any) -> None:
    return None


# ---- sizes and layouts -------------------------------------------------------------------------------------------


def layout_of(x: torch.Tensor) -> str | None:
    """The order in which x lies in memory; None: in none of ours."""
    if x.is_contiguous():  # NCHW, the first and the quickest to tell
        return "NCHW"
    return next((layout for layout, axes in AXES.items() if x.permute(axes).is_contiguous()), None)


def ordered(tensor: torch.Tensor, layout: str) -> torch.Tensor:
    """The tensor, or a copy, that lies so."""
    return tensor.permute(AXES[layout]).contiguous().permute(BACK[layout])


Pair = tuple[int, int]


class Way(NamedTuple):
    """How filters go over x: for rows and columns."""

    padding: Pair
    stride: Pair
    dilation: Pair

    @classmethod
    def of(cls, padding: Numbers, stride: Numbers, dilation: Numbers) -> Way:
        """RuntimeError for numbers that there are not."""
        def pair(name: str, value: Numbers, least: int) -> Pair:
            found = (value, value) if isinstance(value, int) else tuple(value)
            torch._check(len(found) == 2 and min(found) >= least,
                         lambda: f"{name} is {value}; it must be {least} or more, for rows and columns")  # fmt: skip
            return found[0], found[1]

        return cls(pair("padding", padding, 0), pair("stride", stride, 1), pair("dilation", dilation, 1))

    def beyond(self, weight: Any) -> str:
        """What of it HGMMA alone computes, for these filters; ""."""
        return beyond(tuple(weight.shape[2:]), self.stride, self.padding, self.dilation)


def alike(x: Any, **others: Any) -> None:
    """RuntimeError unless tensors (or None) have x's type and lie on its device. PyTorch itself answers a call with a
    weight on the device "meta" by memory that nobody has written."""
    for name, one in others.items():
        if one is not None and (one.dtype is not x.dtype or one.device != x.device):
            torch._check(one.dtype is x.dtype, lambda: f"x is {x.dtype}, {name} {one.dtype}")  # noqa: B023
            torch._check(one.device == x.device, lambda: f"x is on {x.device}, {name} on {one.device}")  # noqa: B023


def sizes(x: Any, weight: Any, bias: Any, residual: Any, way: Way) -> tuple[Any, Any, Any, Any]:
    """Those of the result. RuntimeError for what does not fit."""
    alike(x, weight=weight, bias=bias, residual=residual)
    torch._check(x.dim() == 4, lambda: f"x has the shape {tuple(x.shape)}; it must be N, C, H, W")
    torch._check(weight.dim() == 4, lambda: f"weight has the shape {tuple(weight.shape)}; it must be K, C, R, S")
    (n, c, h, w), (k, channels, r, s) = x.shape, weight.shape
    torch._check(channels == c, lambda: f"x has {c} channels, weight {channels}")
    p, q = ((size + 2 * padding - dilation * (of - 1) - 1) // stride + 1
            for size, of, padding, stride, dilation in zip((h, w), (r, s), *way))  # fmt: skip
    found = n, k, p, q
    for size in found[2:]:
        torch._check(size > 0, lambda: f"a filter of {r} x {s} is larger than an image of {h} x {w} padded by "
                                       f"{way.padding}")  # fmt: skip
    if bias is not None:
        torch._check(bias.dim() == 1 and bias.shape[0] == k, lambda: f"bias has the shape {tuple(bias.shape)}, not {k}")
    if residual is not None:
        torch._check(residual.dim() == 4, lambda: f"residual has the shape {tuple(residual.shape)}")
        for have, need in zip(residual.shape, found):
            torch._check(have == need, lambda: f"residual has the shape {tuple(residual.shape)}; it must be {found}")
    return found


def unable(device: torch.device, dtype: torch.dtype, by_hgmma: bool = False) -> str:
    """Why no kernel of ours can take tensors of a type on a device; "" if one can. ``by_hgmma``: for what those for
    Hopper alone compute. LaunchError where the GPU cannot be reached, as without cuda-python."""
    if dtype is not torch.float32:
        return f"{str(dtype).removeprefix('torch.')}, not float32"
    if device.type == "cuda":
        return _unable(device.index if device.index is not None else torch.cuda.current_device(), by_hgmma)
    return "" if device.type in ("cpu", "meta") else f"on the device {device}"


_UNABLE: dict[tuple[int, bool], str] = {}  # by the number of the GPU


def _unable(number: int, by_hgmma: bool) -> str:
    key = number, by_hgmma
    if key not in _UNABLE:
        gpu = cuda.device_named(f"cuda:{number}")
        try:
            if by_hgmma:
                supported(str(gpu))
            else:
                conv.choose(conv.arch_of(gpu))
            _UNABLE[key] = ""
        except LaunchError as error:
            _UNABLE[key] = error.message
    return _UNABLE[key]


# ---- prepared filters --------------------------------------------------------------------------------------------

MOST_SIZES = 1024  # shapes of x of which it is remembered whether the kernels take them
MOST_LAYERS = 8  # of a weight: with other biases, paddings, layouts


class Held:
    """What is made of a weight as it is now. ``held``: its memory, so that no other tensor gets this address meanwhile;
    ``kept``: what a CUDA graph was ``captured`` with, of weights before, which it goes on with."""

    def __init__(self, weight: torch.Tensor, before: Held | None) -> None:
        self.held, self.version, self.address = weight.detach(), _version(weight), weight.data_ptr()
        self.shape, self.strides, self.inference = weight.shape, weight.stride(), weight.is_inference()
        self.captured = False
        #: by the shape of x and what is no tensor: what takes calls past the dispatcher, and whether it may
        self.ways: dict[Any, list[tuple[Check, Run]]] = {}
        self.kept: list[Any] = [] if before is None else before.kept + before.made() * before.captured

    def made(self) -> list[Any]:
        """All of it."""
        raise NotImplementedError

    def used(self, stream: int) -> None:
        """A call with it is about to be queued on the current stream, of this number."""
        if stream and not self.captured:  # nobody captures the default stream
            self.captured = torch.cuda.is_current_stream_capturing()

    def is_of(self, weight: torch.Tensor) -> bool:
        """Whether the weight is what it was; a part of its memory (weight.data = weight.data[:5]) is not."""
        return (self.address == weight.data_ptr() and self.version == _version(weight)
                and self.shape == weight.shape and self.strides == weight.stride())  # fmt: skip


class Prepared(Held):
    """The layers with the filters of a weight as it is now."""

    def __init__(self, weight: torch.Tensor, before: Prepared | None) -> None:
        super().__init__(weight, before)
        self.layers: dict[Any, tuple[conv.Conv2d, Any, int]] = {}  # with the bias that is in each, and its version
        self.able: dict[Any, bool] = {}
        #: by all that a call depends on but x, residual and what bias says: the layer, the version of the bias that is
        #: in it, and the layout. Found here, nothing else is looked at.
        self.usual: dict[Any, tuple[conv.Conv2d, int, str]] = {}

    def made(self) -> list[Any]:
        return list(self.layers.values())

    def takes(self, x: torch.Tensor, layout: str, way: Way, bias: Any, residual: Any) -> bool:
        """Whether the kernels can count x of this shape. RuntimeError for what does not fit, at the first such call:
        later the layer tells of it."""
        key = x.shape, layout, way
        if key not in self.able:
            if len(self.able) >= MOST_SIZES:
                self.able.clear()
            sizes(x, self.held, bias, residual, way)
            self.able[key] = not uncounted(x.shape, self.held, way, layout)
        return self.able[key]

    def layer(self, bias: torch.Tensor | None, way: Way, relu: bool, layout: str) -> conv.Conv2d:
        """The layer, made when it is first asked for."""
        key = _seen(bias), way, relu, layout
        version = 0 if bias is None else _version(bias)
        if (found := self.layers.get(key)) is None or found[2] != version:
            alike(self.held, bias=bias)
            device = "cpu" if self.held.device.type == "cpu" else str(self.held.device)
            added = None if bias is None else bias.detach().contiguous()
            made = conv.Conv2d(self.held.contiguous(), added, way.padding, "relu" if relu else None, layout, device,
                               stride=way.stride, dilation=way.dilation)  # fmt: skip
            if found is None and len(self.layers) >= MOST_LAYERS:
                found = self.layers.pop(next(iter(self.layers)))
            self.usual.clear()
            self.ways.clear()
            if found is not None and self.captured:
                self.kept.append(found)
            found = self.layers[key] = made, None if bias is None else bias.detach(), version
        return found[0]


def uncounted(shape: Sequence[int], weight: torch.Tensor, way: Way, layout: str = "NCHW") -> str:
    """Why the kernels cannot count x of a shape; ""."""
    (n, c, h, w), (k, _, r, s) = shape, weight.shape
    try:
        if way.beyond(weight):
            sizes = implicit_shape.Shape(n, c, h, w, k, r, s, way.stride, way.padding, way.dilation, layout)
            sizes.check(weight.element_size())
        else:
            list(conv.Shape(n, c, h, w, k, way.padding[0], layout).parts())
    except LaunchError as error:
        return error.message
    return ""


_PREPARED: Any = WeakTensorKeyDictionary()
_LOCK = freed(threading.RLock())
HeldT = TypeVar("HeldT", bound=Held)
MOST_RECENT = 4096  # weights
Recent = dict[int, tuple[weakref.ref[torch.Tensor], weakref.ref[HeldT]]]  # by id: the quicker way
_RECENT: Recent[Prepared] = {}


def _version(tensor: torch.Tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version


def _stepped(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
    """After each step of any optimizer: the fused ones write to parameters without giving them a new version."""
    for group in optimizer.param_groups:
        if group.get("fused"):
            torch.autograd.graph.increment_version([one for one in group["params"] if one.grad is not None])


register_optimizer_step_post_hook(_stepped)


def current(
    weight: torch.Tensor, those: Any, recent: Recent[HeldT], make: Callable[[torch.Tensor, HeldT | None], HeldT]
) -> HeldT:
    """What there is among ``those`` of a weight as it is now; ``recent`` gets it, too."""
    with _LOCK:
        found: HeldT | None = those.get(weight)
        if found is None or not found.is_of(weight):
            found = those[weight] = make(weight, found)
    lately(weight, found, recent)
    return found


def lately(weight: torch.Tensor, found: HeldT, recent: Recent[HeldT]) -> None:
    """``recent`` gets what there is of a weight."""
    if len(recent) >= MOST_RECENT:
        recent.clear()
    recent[id(weight)] = weakref.ref(weight), weakref.ref(found)


#: all that is made of weights, as ``current`` takes it
MADE: list[tuple[Any, Recent[Any]]] = [(_PREPARED, _RECENT)]
Taken = list[tuple[Any, Recent[Any], torch.Tensor, Held]]


def taken_off(module: torch.nn.Module) -> Taken:
    """What was made of its parameters, which nothing of ours refers to then: PyTorch does not swap a parameter to which
    there are weak references (torch.__future__.set_swap_module_params_on_conversion)."""
    found: Taken = []
    with _LOCK:
        for parameter in module.parameters():
            for those, recent in MADE:
                recent.pop(id(parameter), None)
                if (one := those.pop(parameter, None)) is not None:
                    found.append((those, recent, parameter, one))
    return found


def put_back(taken: Taken) -> None:
    """What was taken off, but for weights that have changed, unless a CUDA graph goes on with it: their memory, and
    what was made of it, would stay until the next call."""
    with _LOCK:
        for those, recent, weight, one in taken:
            if one.captured or one.kept or one.is_of(weight):
                those[weight] = one
                lately(weight, one, recent)


@contextlib.contextmanager
def apart(module: torch.nn.Module) -> Iterator[None]:
    """While all its parameters may change, as in Module.cpu()."""
    taken = taken_off(module)
    try:
        yield
    finally:
        put_back(taken)


def prepared(weight: torch.Tensor) -> Prepared:
    """The layers of a weight as it is now."""
    return current(weight, _PREPARED, _RECENT, Prepared)


def recent(weight: torch.Tensor, those: Recent[HeldT]) -> HeldT | None:
    """What there is of a weight among ``those``, if it was there lately and is what it was."""
    known = those.get(id(weight))
    if known is None or known[0]() is not weight:
        return None
    found = known[1]()
    return found if found is not None and found.is_of(weight) else None


# ---- implementations ---------------------------------------------------------------------------------------------


@torch.library.register_fake(NAME)
def _fake(
    x: Any, weight: Any, bias: Any = None, residual: Any = None, padding: Numbers = 1, relu: bool = False,
    stride: Numbers = 1, dilation: Numbers = 1,
) -> Any:  # fmt: skip
    """The result's sizes, type and order in memory."""
    made = sizes(x, weight, bias, residual, Way.of(padding, stride, dilation))
    layout = layout_of(x) or "NCHW"
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
    padding: Numbers = 1, relu: bool = False, stride: Numbers = 1, dilation: Numbers = 1,
) -> torch.Tensor:  # fmt: skip
    """In the order that ``_fake`` says."""
    way = Way.of(padding, stride, dilation)
    sizes(x, weight, bias, residual, way)
    return ordered(by_torch(x, weight, bias, residual, relu, **way._asdict()), layout_of(x) or "NCHW")


def _by_kernels(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None, residual: torch.Tensor | None = None,
    padding: Sequence[int] = (1, 1), relu: bool = False, stride: Sequence[int] = (1, 1),
    dilation: Sequence[int] = (1, 1),
) -> torch.Tensor:  # fmt: skip
    """As the dispatcher calls it: it makes pairs of numbers."""
    known, key = recent(weight, _RECENT), None
    if known is not None:
        key = _key(x, bias, padding, relu, stride, dilation)
        if (usual := known.usual.get(key)) is not None and (bias is None or usual[1] == _version(bias)):
            known.used(stream_of(x))
            return _called(usual[0], usual[2], x, residual)
    way = Way.of(padding, stride, dilation)
    if weight.dtype is not x.dtype or unable(x.device, x.dtype, weight.dim() == 4 and bool(way.beyond(weight))):
        return _by_torch(x, weight, bias, residual, padding, relu, stride, dilation)
    torch._check(weight.device == x.device, lambda: f"x is on {x.device}, weight on {weight.device}")
    layout = layout_of(x) if x.dim() == 4 else "NCHW"
    if layout is None:
        x, layout, known = x.contiguous(), "NCHW", None  # which is another x the next time
    found = prepared(weight)
    if not found.takes(x, layout, way, bias, residual):
        return _by_torch(x, weight, bias, residual, padding, relu, stride, dilation)
    with _LOCK:
        layer = found.layer(bias, way, relu, layout)
        found.used(stream_of(x))
        if found is known:
            if len(found.usual) >= MOST_SIZES:
                found.usual.clear()
            found.usual[key] = layer, 0 if bias is None else _version(bias), layout
    return _called(layer, layout, x, residual)


def stream_of(x: torch.Tensor) -> int:
    """The number of the current one where x is."""
    kind = kind_of(x)
    return 0 if kind is None or kind.stream is None else kind.stream(x)


def _key(
    x: torch.Tensor, bias: torch.Tensor | None, padding: Sequence[int], relu: bool, stride: Sequence[int],
    dilation: Sequence[int],
) -> Any:  # fmt: skip
    """Of ``Prepared.usual``."""
    return x.shape, x.stride(), x.dtype, x.get_device(), relu, _seen(bias), *padding, *stride, *dilation


def _seen(bias: torch.Tensor | None) -> Any:
    """Which numbers it has, of those in memory: others may begin at the same place."""
    return None if bias is None else (bias.data_ptr(), bias.shape, bias.stride(), bias.dtype)


def _again(known: Prepared, x: torch.Tensor, bias: torch.Tensor | None, *others: Any) -> Run | None:
    """What a usual call does, with x and a bias that differ from these in their memory at most."""
    usual, at = known.usual.get(_key(x, bias, *others)), None if bias is None else bias.data_ptr()
    if usual is None:
        return None
    (layer, version, layout), there = usual, x.is_cuda

    def run(
        known: Prepared, x: torch.Tensor, bias: torch.Tensor | None, residual: torch.Tensor | None
    ) -> torch.Tensor | None:
        if bias is not None and (bias.data_ptr() != at or _version(bias) != version):
            return None
        if not there and not kernels_on_cpu():
            return None
        known.used(stream_of(x))
        return _called(layer, layout, x, residual)

    return run


def _called(layer: conv.Conv2d, layout: str, x: torch.Tensor, residual: torch.Tensor | None) -> torch.Tensor:
    """What a layer makes of x that lies so."""
    if layout == "NCHW":
        return layer(x, None if residual is None else residual.contiguous())
    axes = AXES[layout]
    y = layer(x.permute(axes), None if residual is None else residual.permute(axes).contiguous())
    return y.permute(BACK[layout])


def _on_cpu(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None, residual: torch.Tensor | None = None,
    padding: Sequence[int] = (1, 1), relu: bool = False, stride: Sequence[int] = (1, 1),
    dilation: Sequence[int] = (1, 1),
) -> torch.Tensor:  # fmt: skip
    by = _by_kernels if kernels_on_cpu() else _by_torch
    return by(x, weight, bias, residual, padding, relu, stride, dilation)


def kernels_on_cpu() -> bool:
    """Whether the environment asks for our kernels on the CPU device. LaunchError for what it may not say."""
    by = os.environ.get(CPU_BY, "torch")
    if by not in ("torch", "kernels"):
        raise LaunchError(f"{CPU_BY} is {by!r}", "it may be: torch, kernels")
    return by == "kernels"


torch.library.impl(NAME, "cpu", _on_cpu)
torch.library.impl(NAME, "cuda", _by_kernels)
for _device in ("cpu", "cuda"):
    torch.library.register_autocast(NAME, _device, torch.float32)


# ---- derivatives, and vmap ---------------------------------------------------------------------------------------

_LIBRARY = torch.library.Library(NAME.split("::")[0], "FRAGMENT")


def differentiable(
    operation: Any, plain: Callable[..., torch.Tensor], remember: Callable[..., None], backward: Callable[..., Any]
) -> None:
    """As torch.library.register_autograd; but torch.func refuses the operators of that, and derivatives in forward mode
    are lost in them. ``plain``: the same by PyTorch's operators, which have all derivatives."""
    defaults = [one.default_value for one in operation._schema.arguments]

    class Recorded(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, keys: Any, *given: Any) -> Any:
            with _BELOW_AUTOGRAD():
                made = operation.redispatch(keys, *given)
            remember(ctx, given, made)
            return made

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> Any:
            return None, *backward(ctx, grad, ctx.needs_input_grad[1:])

    def autograd(keys: Any, *given: Any) -> Any:
        """As the dispatcher calls it, without arguments that are the default."""
        if torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0:
            return plain(*given)
        keys = keys & torch._C._after_autograd_keyset
        if torch.is_grad_enabled() and torch._C._any_requires_grad(*given):
            return Recorded.apply(keys, *given, *defaults[len(given) :])
        with _BELOW_AUTOGRAD():
            return operation.redispatch(keys, *given)

    _LIBRARY.impl(operation, autograd, "Autograd", with_keyset=True)


def one_by_one(
    plain: Callable[..., torch.Tensor], count: int, axes: Sequence[Any], given: Sequence[Any]
) -> tuple[torch.Tensor, int]:
    """What torch.vmap does where weights or biases differ: filters that are used once are not worth preparing. Of none
    the shape."""
    if not count:
        given = [one.new_zeros(without(one.shape, axis)) if isinstance(axis, int) else one
                 for one, axis in zip(given, axes)]  # fmt: skip
        return plain(*given).unsqueeze(0)[:0], 0
    return torch.stack([plain(*(one.select(axis, number) if isinstance(axis, int) else one
                                for one, axis in zip(given, axes))) for number in range(count)]), 0  # fmt: skip


def without(shape: Sequence[int], axis: int) -> list[int]:
    """A shape without one of its sizes."""
    left = list(shape)
    del left[axis]
    return left


@torch.library.register_vmap(NAME)
def _mapped(
    info: Any, axes: Sequence[Any], x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None,
    residual: torch.Tensor | None = None, *others: Any,
) -> tuple[torch.Tensor, int]:  # fmt: skip
    """All as more images; ``axes``: of each argument vmap's, or None."""
    if any(axis is not None for axis in axes[1:3]):
        return one_by_one(_by_torch, info.batch_size, axes, (x, weight, bias, residual, *others))

    def images(one: torch.Tensor, axis: int | None) -> torch.Tensor:
        first = one.expand(info.batch_size, *one.shape) if axis is None else one.movedim(axis, 0)
        return first.flatten(0, 1)

    added = None if residual is None else images(residual, axes[3])
    count = x.shape[0] if axes[0] is None else without(x.shape, axes[0])[0]
    y = _OPERATION(images(x, axes[0]), weight, bias, added, *others)
    return y.unflatten(0, (info.batch_size, count)), 0


def _remember(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    x, weight, bias, _, padding, ctx.relu, stride, dilation = inputs
    ctx.way = Way.of(padding, stride, dilation)
    ctx.filters = None if bias is None else [weight.shape[0]]
    ctx.save_for_backward(x, weight, output if ctx.relu else None)


def _backward(ctx: Any, grad: torch.Tensor, wanted: Sequence[bool]) -> tuple[torch.Tensor | None, ...]:
    """By PyTorch's own operators: there are no kernels of ours for gradients."""
    x, weight, y = ctx.saved_tensors
    if ctx.relu:
        grad = torch.where(y > 0, grad, torch.zeros_like(grad))
    padding, stride, dilation = ctx.way
    of_x, of_weight, of_bias = torch.ops.aten.convolution_backward(
        grad, x, weight, ctx.filters, stride, padding, dilation, False, [0, 0], 1, wanted[:3]
    )
    return of_x, of_weight, of_bias, grad if wanted[3] else None, None, None, None, None


differentiable(_OPERATION, _by_torch, _remember, _backward)
