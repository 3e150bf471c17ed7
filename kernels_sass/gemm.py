"""``gemm``: matrix products by HGMMA, on an H100 or H200, or the CPU device. The kernel is gemm.sass.

from kernels_sass.gemm import gemm, prepare
c = gemm(a, b)                                  # float16, bfloat16 or float32 matrices, or batches of them
c = gemm(x, weight, transpose_b=True, bias=bias, activation="gelu")
weight = prepare(weight, transpose_b=True)      # what is made of it is made once
c = gemm(x, weight)
"""

from __future__ import annotations

import importlib
import operator
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kernels_sass.conv.libraries import LIBRARIES, as_stored, called, library_of
from kernels_sass.gemm_kernels import SPARE, Halving
from kernels_sass.gemm_plan import (
    ACTIVATIONS,
    ALIGNED,
    MOST_SPLITS,
    Operand,
    Plan,
    Product,
    Sizes,
    halver,
    shared,
    tiles,
)  # fmt: skip
from loader.arrays import HOST
from loader.cuda import Buffer
from loader.cuda.streams import handle_of
from turingas.errors import LaunchError

__all__ = ["Prepared", "gemm", "prepare", "shared", "tiles"]

PRECISIONS = {"fp16": "float16", "bf16": "bfloat16", "tf32": "float32", "fp32": "float32"}
DEFAULT = {"float16": "fp16", "bfloat16": "bf16", "float32": "fp32"}
MOST_PLANS = 4096  # that are remembered

Seen = tuple[Any, int]  # what a plan depends on of an array, and its address
PLANS: dict[Any, Plan] = {}


@dataclass(frozen=True, eq=False)
class Prepared:
    """What ``prepare`` makes of B: ``array`` as tensor maps take it, in fp32 its parts, with the ``scales`` of its
    rows, and whether it is ``turned``: K rows of N. ``shape``: of B, K x N or with a batch in front. ``place``: the
    number of its GPU, or HOST."""

    shape: Sizes
    kind: str
    precision: str
    place: int
    array: Any
    scales: Any
    turned: bool
    lent: Buffer | None = None  # the caller's, if ``array`` is that: it may be freed
    seen: Any = field(init=False)  # as _seen has it
    addresses: tuple[int, int] = field(init=False)

    def __post_init__(self) -> None:
        addresses = _address(self.array), 0 if self.scales is None else _address(self.scales)
        object.__setattr__(self, "addresses", addresses)
        of = self.shape, self.kind, self.precision, self.place, tuple(self.array.shape), self.turned
        object.__setattr__(self, "seen", of)


def prepare(b: Any, *, transpose_b: bool = False, precision: str | None = None, stream: Any = None) -> Prepared:
    """B for ``gemm``, with what is made of it made once: parts of FP16, or a copy if it lies otherwise than tensor maps
    take it. If not, the array itself is kept, and read at each product. Arguments as of ``gemm``."""
    kind, chosen, place = _described(b, precision)
    _, n, k = _sizes("B", b, not transpose_b)
    if _torch(b):
        b = b.detach()  # the memory as it is now: a parameter may get another one (.data)
    b, (seen, _) = _whole("B", b)
    operand = Operand(tuple(map(int, b.shape)), not transpose_b, seen[-1])
    packing, parts, turned = operand.steps(kind, chosen)
    device, scales = called(place), None
    options = {"early": True} | ({} if place == HOST else {"stream": _stream(stream, b, place)})
    array = b
    if packing is not None:
        array = _new(b, packing.made)
        packing.kernel(device).launch(*packing.arguments(_taken(b), _taken(array)), **options)
    if parts is not None:
        before, array = array, _new(b, (*array.shape[:-1], parts.row), "float16")
        scales = _new(b, (parts.rows + SPARE,), "float32")
        split = Halving(parts)
        halver(device, split).launch(*split.arguments(*map(_taken, (before, array, scales))), **options)
    lent = b if array is b and isinstance(b, Buffer) else None
    return Prepared((*map(int, b.shape[:-2]), k, n), kind, chosen, place, array, scales, turned, lent)


def gemm(
    a: Any, b: Any, out: Any = None, *, transpose_a: bool = False, transpose_b: bool = False,
    precision: str | None = None, bias: Any = None, activation: str | None = None, splits: int | None = None,
    stream: Any = None,
) -> Any:  # fmt: skip
    """A B, and what is given besides: ``out`` (a new array if there is none) of M rows of N.

    ``a``: M x K, or K x M with ``transpose_a``; ``b``: K x N, or N x K with ``transpose_b``, or what ``prepare`` made;
    any M, N, K from 1 on. One of them or both may have a batch in front, the result has it then. Arrays of numpy (the
    CPU device), PyTorch or ``loader.cuda.Buffer``, of one type and in one place. ``bias``: N numbers of float32, added
    to each row; ``activation``: None, "relu", "gelu" (by the error function) or "gelu_tanh". ``stream``: as ``launch``
    takes it; else PyTorch's current one.

    ``precision``: "fp16" and "bf16" for arrays of that type: products are exact, sums in float32, results rounded
    once. "tf32" for float32, rounded to 19 bits on the way (a relative L2 error of 2.9e-4). "fp32": three products of
    parts of FP16, 22 bits of each number together, a relative L2 error of at most 1e-6. Each row of A and each column
    of B has a scale of its own, a power of two; numbers below 2^-17 of the largest of their row, or column, have an
    error of 2^-40 of that one. An infinity or a NaN makes its row, or column, of the result NaN. Default: as the arrays
    are.

    ``splits``: blocks that share the K of a tile, 1 to 16; a second kernel adds what they have made, always in the same
    order. None: on a GPU as many as keep it busy where there are few rows and columns, by an estimate, else 1. With a
    batch there are none.

    Rows that are no multiple of 16 bytes, and of float32 those that lie the other way round, are copied by a kernel
    first (in "fp32" the latter alone). What a product takes is found out at the first call with arrays of these
    shapes. There are no gradients. LaunchError for what does not fit: also for tensors that require gradients, where
    these are recorded, and for an ``out`` that is read-only or overlaps A, B or bias.
    """
    seen_a, at_a = _seen(a)
    if not seen_a:
        a, (seen_a, at_a) = _whole("A", a)
    scales = 0
    if type(b) is Prepared:
        seen_b, (at_b, scales) = b.seen, b.addresses
        if b.lent is not None and b.lent.place is None:
            _seen(b.lent)  # refuses what is freed
    else:
        seen_b, at_b = _seen(b)
        if not seen_b:
            b, (seen_b, at_b) = _whole("B", b)
    seen_bias, at_bias = NOTHING
    if bias is not None:
        seen_bias, at_bias = _seen(bias)
        if not seen_bias:
            bias, (seen_bias, at_bias) = _whole("bias", bias)
    seen_out, at_out = NOTHING if out is None else _seen(out)
    if out is not None and not seen_out:  # rows do not follow one another
        _writable(out)
        if _torch(out) and out.is_contiguous():
            as_stored(out=out)
        _product(a, b, out, transpose_a, transpose_b, precision, bias, activation, splits, (seen_a, seen_b, (), ()))
        made = gemm(a, b, transpose_a=transpose_a, transpose_b=transpose_b, precision=precision, bias=bias,
                    activation=activation, splits=splits, stream=stream)  # fmt: skip
        out[...] = sys.modules["torch"].from_numpy(made) if _torch(out) and isinstance(made, np.ndarray) else made
        return out
    kind = type(splits)  # 2.0, which is refused, equals 2
    key = seen_a, seen_b, seen_bias, seen_out, transpose_a, transpose_b, precision, activation, splits, kind
    plan = PLANS.get(key)
    if plan is None:
        product = _product(a, b, out, transpose_a, transpose_b, precision, bias, activation, splits, key)
        if len(PLANS) >= MOST_PLANS:
            PLANS.clear()
        plan = PLANS[key] = Plan(product)
    library = LIBRARIES.get(type(a)) or library_of("A", a)
    given = out is not None
    if given:
        if plan.place == HOST:
            _writable(out)
        of_a, of_b, of_bias, of_out = plan.sizes
        end = at_out + of_out
        if at_out < at_a + of_a and at_a < end or at_out < at_b + of_b and at_b < end or (
            at_bias and at_out < at_bias + of_bias and at_bias < end
        ):
            raise LaunchError("out overlaps A, B or bias", "give other memory, or none")
    else:
        make = plan.makes.get(type(a))
        if make is None:
            make = plan.makes[type(a)] = library.again(a, plan.shape)
        out, at_out = make()
    place = plan.place
    if stream is not None:
        handle = stream if type(stream) is int else handle_of(stream)
    elif place == HOST:
        handle = 0
    else:
        handle = library.kind.current(place)
    plan.run(library, a, handle, (at_a, at_b, scales, at_bias, at_out))
    if given and type(out) is not Buffer and _torch(out):
        sys.modules["torch"].autograd.graph.increment_version(out)  # by which others see that it is new
    return out


def ready(
    a: Any, b: Prepared, bias: Any, activation: str | None, shape: Sizes
) -> tuple[Callable[..., Any], Callable[[int], int], int] | None:
    """``gemm`` of tensors that differ from these, with which it was called, in their memory at most: a function of A,
    bias, the stream, and what is called with it if that may be recorded into a graph. It asks them for nothing but
    their addresses, and makes C of a ``shape`` that has as many numbers. It gives None, and does nothing, where they
    begin elsewhere than tensor maps can, or have no memory. And what tells the current stream of a place, and the
    place. None: A is to be copied first."""
    seen_a, seen_bias = _seen(a)[0], () if bias is None else _seen(bias)[0]
    plan = PLANS.get((seen_a, b.seen, seen_bias, (), False, False, None, activation, None, type(None)))
    if plan is None or not plan.product.a.aligned:
        return None
    library = library_of("A", a)
    make, run = library.again(a, shape), plan.run

    def multiply(a: Any, bias: Any, stream: int, recorded: Callable[[int], None]) -> Any:
        at, of_bias = a.data_ptr(), 0 if bias is None else bias.data_ptr()
        if not at or at % ALIGNED or not of_bias and bias is not None:
            return None
        of_b, scales = b.addresses  # b is kept as long as this is
        c, to = make()
        run(library, a, stream, (at, of_b, scales, of_bias, to), recorded)
        return c

    return multiply, library.kind.current, plan.place


def _product(
    a: Any, b: Any, out: Any, transpose_a: bool, transpose_b: bool, precision: str | None, bias: Any,
    activation: str | None, splits: int | None, seen: Any,
) -> Product:  # fmt: skip
    """What is asked for. LaunchError for what does not fit."""
    kind, chosen, place = _described(a, precision or (b.precision if isinstance(b, Prepared) else None))
    if activation not in ACTIVATIONS:
        raise LaunchError(f"there is no activation {activation!r}", "there are: None, 'relu', 'gelu', 'gelu_tanh'")
    if not isinstance(b, Prepared) and (_name(b) != kind or _place(b) != place):
        raise LaunchError(f"A is {kind} on {called(place)}, B {_name(b)} on {called(_place(b))}", "both alike")
    batch, m, k = _sizes("A", a, transpose_a)
    if isinstance(b, Prepared):
        if (b.kind, b.place, b.precision) != (kind, place, chosen):
            raise LaunchError(f"A is {kind} on {called(place)}, as {chosen}, B is prepared for {b.kind} on "
                              f"{called(b.place)}, as {b.precision}", "both alike")  # fmt: skip
        other, inner, n = (*b.shape[:-2], *b.shape[-2:]) if len(b.shape) == 3 else (0, *b.shape)
    else:
        other, n, inner = _sizes("B", b, not transpose_b)
    if k != inner or min(m, n, k) < 1:
        raise LaunchError(f"A is {m} x {k}, and B {inner} x {n}", "A has as many columns as B rows, one at least")
    if batch and other and batch != other:
        raise LaunchError(f"A has a batch of {batch}, B of {other}", "both alike, or one of them without")
    shape = (batch or other, m, n) if batch or other else (m, n)
    for name, array, wanted, of in (("out", out, shape, kind), ("bias", bias, (n,), "float32")):
        if array is None:
            continue
        if tuple(array.shape) != wanted or _name(array) != of:
            raise LaunchError(f"{name} is {_name(array)} of {tuple(array.shape)}; it must be {of} of {wanted}")
        if _place(array) != place:
            raise LaunchError(f"A is on {called(place)}, {name} on {called(_place(array))}", "both alike")
    if splits is not None:
        try:
            splits = operator.index(splits)
        except TypeError:
            raise LaunchError(f"splits is {splits!r}", f"it may be 1 to {MOST_SPLITS}") from None
    if splits is not None and (not 1 <= splits <= MOST_SPLITS or len(shape) > 2 and splits > 1):
        raise LaunchError(f"splits is {splits}", f"it may be 1 to {MOST_SPLITS}; 1 with a batch")
    of_a, of_b, _, of_out = seen[:4]
    left = Operand(tuple(map(int, a.shape)), transpose_a, of_a[-1])
    if isinstance(b, Prepared):
        right = Operand(tuple(map(int, b.array.shape)), b.turned, True, True)
    else:
        right = Operand(tuple(map(int, b.shape)), not transpose_b, of_b[-1])
    if len(shape) == 3 and not other and not transpose_a:  # one product, with the rows of all
        m, batch = batch * m, 0
        left = Operand((m, k), False, left.aligned)
    slices, aligned = batch or other, out is None or bool(of_out and of_out[-1])
    return Product(place, kind, chosen, left, right, m, n, k, slices, shape, bias is not None, activation, splits,
                   aligned)  # fmt: skip


def _writable(out: Any) -> None:
    """LaunchError for what is not."""
    if isinstance(out, np.ndarray) and not out.flags.writeable:
        raise LaunchError("out is read-only")


# ---- arrays of several libraries ---------------------------------------------------------------------------------

NOTHING: Seen = ((), 0)


def _seen(array: Any) -> Seen:
    """What a plan depends on: the shape, the type, the place, and last whether it begins where tensor maps take it; and
    the address. NOTHING: its rows do not follow one another, or it is a view with the sign changed. LaunchError for
    what is no array that gemm takes."""
    return (SEEN.get(type(array)) or _way_to_see(array))(array)


def _seen_buffer(array: Buffer) -> Seen:
    if array.place is None:
        _ = array.__cuda_array_interface__  # refuses what is freed
    return (array.shape, array.dtype, array.gpu.number, array.address % ALIGNED == 0), array.address


def _seen_numpy(array: Any) -> Seen:
    if not array.flags.c_contiguous:
        return NOTHING
    address = array.ctypes.data
    return (array.shape, array.dtype, HOST, address % ALIGNED == 0), address


def _seen_tensor(array: Any) -> Seen:
    try:
        if not array.is_contiguous() and str(array.layout) == "torch.strided":
            return NOTHING
        if array.is_neg():
            return NOTHING
        address = array.data_ptr()
    except RuntimeError:  # as of sparse ones
        address = 0
    if not address and array.numel():
        raise _no_memory(array)
    if array.requires_grad and sys.modules["torch"].is_grad_enabled():
        raise LaunchError("a tensor requires gradients, and gemm has none",
                          "use torch.no_grad(), or pass x.detach()")  # fmt: skip
    return (array.shape, array.dtype, array.get_device(), address % ALIGNED == 0), address


def _no_memory(array: Any) -> LaunchError:
    return LaunchError(f"a {type(array).__name__} on {array.device}, {array.layout}, has no memory that kernels take")


SEEN: dict[type, Callable[[Any], Seen]] = {}  # by exact type, as they are met


def _way_to_see(array: Any) -> Callable[[Any], Seen]:
    _name(array)
    made = _seen_buffer if isinstance(array, Buffer) else _seen_tensor if _torch(array) else _seen_numpy
    SEEN[type(array)] = made
    return made


def _whole(name: str, array: Any) -> tuple[Any, Seen]:
    """An array whose rows follow one another: this or a copy, which has no sign to change."""
    found = _seen(array)
    if not found[0]:
        array = np.ascontiguousarray(array) if isinstance(array, np.ndarray) else array.contiguous()
        as_stored(**{name: array})
        found = _seen(array)
    return array, found


def _described(array: Any, precision: str | None) -> tuple[str, str, int]:
    """Its type, the precision, where it is. LaunchError."""
    kind = _name(array)
    chosen = precision or DEFAULT.get(kind, "")
    if PRECISIONS.get(chosen) != kind:
        raise LaunchError(f"gemm of {kind}" + f" as {chosen}" * bool(chosen),
                          "fp16 takes float16, bf16 bfloat16, tf32 and fp32 float32")  # fmt: skip
    return kind, chosen, _place(array)


def _sizes(name: str, array: Any, turned: bool) -> tuple[int, int, int]:
    """Of a matrix: its batch, 0 if there is none, rows and columns; ``turned``: the other way round."""
    if len(array.shape) not in (2, 3) or len(array.shape) == 3 and array.shape[0] < 1:
        raise LaunchError(f"{name} of gemm has the shape {tuple(array.shape)}",
                          "matrices have two dimensions, and a batch of one or more in front")  # fmt: skip
    rows, columns = map(int, array.shape[:-3:-1] if turned else array.shape[-2:])
    return int(array.shape[0]) if len(array.shape) == 3 else 0, rows, columns


def _torch(array: Any) -> bool:
    return type(array).__module__.partition(".")[0] == "torch"


def _name(array: Any) -> str:
    """The type of its elements. LaunchError for what is no array that gemm takes."""
    if not (isinstance(array, (np.ndarray, Buffer)) or _torch(array)) or isinstance(array, np.ma.MaskedArray):
        raise LaunchError(f"gemm of a {type(array).__name__}", "numpy, without a mask, PyTorch or loader.cuda.Buffer")
    return str(array.dtype).rpartition(".")[2]


def _place(array: Any) -> int:
    """The number of the GPU where a product with this array runs, or HOST."""
    if isinstance(array, Buffer):
        return int(array.gpu.number)
    return HOST if isinstance(array, np.ndarray) else int(array.get_device())


def _address(array: Any) -> int:
    if isinstance(array, Buffer):
        return int(array.address)
    return int(array.data_ptr() if _torch(array) else array.ctypes.data)


def _stream(stream: Any, array: Any, place: int) -> int:
    """As a number; the caller's current one if there is none."""
    return int(library_of("B", array).kind.current(place)) if stream is None else handle_of(stream)


def _taken(array: Any) -> Any:
    """As launches take it: of a tensor in the host's memory, an array of numpy, of bfloat16 the bits."""
    if not (_torch(array) and array.get_device() == HOST):
        return array
    array = array.detach()
    return array.view(dtype=_dtype("int16")).numpy() if str(array.dtype) == "torch.bfloat16" else array.numpy()


def _dtype(name: str) -> Any:
    return getattr(importlib.import_module("torch"), name)


def _new(like: Any, shape: Any, dtype: str | None = None) -> Any:
    """A new array, with nothing in it; of another type if asked for."""
    shape = tuple(map(int, shape))
    if isinstance(like, Buffer):
        return Buffer(shape, dtype or like.dtype, like.gpu)
    if _torch(like):
        return like.new_empty(shape, dtype=_dtype(dtype) if dtype else like.dtype)
    return np.empty(shape, dtype or like.dtype)
