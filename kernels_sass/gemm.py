"""``gemm``: matrix products by HGMMA, on an H100 or H200, or the CPU device. The kernel is learn/09_hgemm.sass.

from kernels_sass.gemm import gemm, prepare
c = gemm(a, b)                                  # float16, bfloat16 or float32 matrices, or batches of them
c = gemm(x, weight, transpose_b=True, bias=bias, activation="gelu")
weight = prepare(weight, transpose_b=True)      # what is made of it is made once
c = gemm(x, weight)
"""

from __future__ import annotations

import functools
import importlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import loader
from kernels_sass.conv.implicit_plan import View, adjacent
from kernels_sass.conv.methods import hgmma
from kernels_sass.learn import hgemm
from kernels_sass.learn.hgemm import TILE_M, Tiling
from loader import cuda
from loader.cuda import Buffer
from turingas.errors import LaunchError

PRECISIONS = {"fp16": "float16", "bf16": "bfloat16", "tf32": "float32", "fp32": "float32"}
DEFAULT = {"float16": "fp16", "bfloat16": "bf16", "float32": "fp32"}
TYPES = {"fp16": "F16", "bf16": "BF16", "tf32": "TF32", "fp32": "FP32"}
ACTIVATIONS: Mapping[str | None, Mapping[str, int]] = {
    None: {}, "relu": {"relu": 1}, "gelu": {"gelu": 1}, "gelu_tanh": {"gelu": 2},
}  # fmt: skip
CLUSTER = 1  # blocks that load B for each other: 2 is right on a card, and no faster than without (docs/gemm.md)
PROMOTED = 4  # steps of fp32 after which sums leave the tensor cores: more would not be exact to 1e-6
GROUP = 16  # rows of tiles in a panel
WIDTHS = (256, 192, 128, 64)
STAGES = {256: 4, 192: 4, 128: 6, 64: 8}  # by the width: what there is room for
STARTED = 40  # what a tile takes besides, in columns' worth of time
ALIGNED = 16  # bytes: rows and beginnings that tensor maps take
PER = 8  # elements that a row is padded to a multiple of
MOST_SPLITS, LEAST_STEPS = 16, 8  # blocks that share a K, and steps that each has then at least
LIMIT = 1 << 32  # bytes from one matrix of a batch to the next that is turned or padded


@dataclass(frozen=True)
class Prepared:
    """What ``prepare`` makes of B: ``array`` as tensor maps take it, in fp32 its parts, with the ``scales`` of its rows,
    and whether it is ``turned``: K rows of N. ``shape``: of B, K x N or with a batch in front."""

    shape: tuple[int, ...]
    kind: str
    precision: str
    device: str
    array: Any
    scales: Any
    turned: bool


def prepare(b: Any, *, transpose_b: bool = False, precision: str | None = None, stream: Any = None) -> Prepared:
    """B for ``gemm``, with what is made of it made once: parts of FP16, or a copy if it lies otherwise than tensor maps
    take it. If not, the array itself is kept, and read at each product. Arguments as of ``gemm``."""
    b, kind, chosen, device = _described(b, precision)
    *batch, rows, columns = b.shape
    shape = (*batch, columns, rows) if transpose_b else (*batch, rows, columns)
    array, scales, turned = _operand(b, kind, not transpose_b, chosen, device, _options(b, device, stream))
    return Prepared(tuple(map(int, shape)), kind, chosen, device, array, scales, turned)


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
    once. "tf32" for float32, rounded to 19 bits on the way (a relative L2 error of 2.9e-4). "fp32": three
    such products of two parts each, a relative L2 error of at most 1e-6 for numbers of any size whose products are
    normal numbers; infinities may give NaN, and what is below 1e-30 loses its second part. Default: as the arrays are.

    ``splits``: blocks that share the K of a tile, 1 to 16; a second kernel adds what they have made, always in the same
    order. None: on a GPU as many as keep it busy where there are few rows and columns (by an estimate: it has not been
    timed), else 1. With a batch there are none.

    Rows that are no multiple of 16 bytes, and of float32 those that lie the other way round, are copied by a kernel
    first. LaunchError for what does not fit.
    """
    host = _torch(a) and a.device.type == "cpu"
    mine, kind, chosen, where = _described(a, precision or (b.precision if isinstance(b, Prepared) else None))
    if activation not in ACTIVATIONS:
        raise LaunchError(f"there is no activation {activation!r}", "there are: None, 'relu', 'gelu', 'gelu_tanh'")
    options = _options(mine, where, stream)
    if not isinstance(b, Prepared) and (_name(b) != kind or _device(b) != where):
        raise LaunchError(f"A is {kind} on {where}, B {_name(b)} on {_device(b)}", "both alike")
    batch, m, k = _sizes("A", mine, transpose_a)
    if isinstance(b, Prepared):
        if (b.kind, b.device, b.precision) != (kind, where, chosen):
            raise LaunchError(f"A is {kind} on {where}, as {chosen}, B is prepared for {b.kind} on {b.device}, as "
                              f"{b.precision}", "both alike")  # fmt: skip
        other, inner, n = (*b.shape[:-2], *b.shape[-2:]) if len(b.shape) == 3 else (0, *b.shape)
    else:
        other, n, inner = _sizes("B", b, not transpose_b)
    if k != inner or min(m, n, k) < 1:
        raise LaunchError(f"A is {m} x {k}, and B {inner} x {n}", "A has as many columns as B rows, one at least")
    if batch and other and batch != other:
        raise LaunchError(f"A has a batch of {batch}, B of {other}", "both alike, or one of them without")
    shape = (batch or other, m, n) if batch or other else (m, n)
    if out is not None and (tuple(out.shape) != shape or _name(out) != kind):
        raise LaunchError(f"out is {_name(out)} of {tuple(out.shape)}; it must be {kind} of {shape}")
    if bias is not None and (tuple(bias.shape) != (n,) or _name(bias) != "float32"):
        raise LaunchError(f"bias is {_name(bias)} of {tuple(bias.shape)}; it must be float32 of {(n,)}")
    if splits is not None and (not 1 <= splits <= MOST_SPLITS or len(shape) > 2 and splits > 1):
        raise LaunchError(f"splits is {splits}", f"it may be 1 to {MOST_SPLITS}; 1 with a batch")

    # one product, with the rows of all
    tall = len(shape) == 3 and not other and not transpose_a and not isinstance(mine, Buffer)
    if tall:
        mine, m = _contiguous(mine).reshape(batch * m, k), batch * m
    left, scales_a, ta = _operand(mine, kind, transpose_a, chosen, where, options)
    if not isinstance(b, Prepared):
        b = prepare(b, transpose_b=transpose_b, precision=chosen, stream=stream)
    target = None if out is None else _on_host(out)
    direct = target is not None and _plain(target)
    c: Any = target if direct else _new(mine, (*shape[:-1], -(-n // PER) * PER))
    flat: Any = c.reshape(m, c.shape[-1]) if tall else c
    sms = 4 if where == "cpu" else cuda.device_named(where).attribute("MULTIPROCESSOR_COUNT")
    slices = len(shape) == 3 and not tall and shape[0]
    tiling = tiles(m, n, sms, chosen, ta, b.turned, slices or 1)
    steps = -(-k // tiling.tile_k)
    if splits is None:
        splits = 1 if slices or where == "cpu" else shared(tiling, m, n, steps, sms)
    ending: dict[str, Any] = {"bias": int(bias is not None), **ACTIVATIONS[activation]}
    added = [] if bias is None else [_contiguous(_on_host(bias))]
    scales = [scales_a, b.scales] if chosen == "fp32" else []
    dtype = "bfloat16" if kind == "bfloat16" else None
    sizes = m, n, k
    if slices:
        left, right = (_batched(one) for one in (left, b.array))
        moves = (int(one.shape[0] > 1) for one in (left, right))
        tiling = replace(tiling, cluster=1, batched=1, **ending)
        launched, more = hgemm.arguments(tiling, left, right, c, sizes, sms, scales=scales, bias=[*added, None][0],
                                         dtype=dtype, slices=(slices, *moves))  # fmt: skip
        _loaded(tiling, where).kernel().launch(*launched, **more, **options)
    elif splits > 1:
        each = -(-steps // splits)
        count, pitch = -(-steps // each), flat.shape[1]
        parts = _new(mine, (count, m, pitch), "float32")
        tiling = replace(tiling, cluster=1, shared_k=1, late=0)
        launched, more = hgemm.arguments(tiling, left, b.array, parts, sizes, sms, scales=scales, dtype=dtype,
                                         slices=(count, each))  # fmt: skip
        _loaded(tiling, where).kernel().launch(*launched, **more, **options)
        quads, last = pitch // 4, _adding(Tiling(type=tiling.type, **ending), where).kernel()
        numbers = m * quads, quads, hgmma.inverse(quads), count, n
        last.launch(-(-m * quads // 256), 256, parts, flat, *numbers, *added, **options)
    else:
        tiling = replace(tiling, **ending)
        launched, more = hgemm.arguments(tiling, left, b.array, flat, sizes, sms, scales=scales, bias=[*added, None][0],
                                         dtype=dtype)  # fmt: skip
        _loaded(tiling, where).kernel().launch(*launched, **more, **options)
    if direct:
        return out
    dense = c if c.shape[-1] == n else _dense(c, shape, where, options, target)
    if out is None:
        return _from_host(dense, kind) if host else dense
    if target is not None and dense is not target:
        target[...] = dense
    return out


def tiles(
    m: int, n: int, sms: int, precision: str = "fp16", ta: bool = False, tb: bool = False, count: int = 1
) -> Tiling:
    """The tiling for ``count`` products: as wide as keeps all multiprocessors busy, counted in tiles one after the
    other."""

    def time(width: int) -> float:
        rounds = -(-(-(-m // TILE_M) * -(-n // width) * count) // sms)
        return rounds * (width + STARTED)

    def cluster(width: int) -> int:
        """Not where one of two had no rows; of K rows of N, halves are whole boxes of 64 columns."""
        return 1 if count > 1 or m <= TILE_M or tb and width % 128 else CLUSTER

    def tiling(width: int) -> Tiling:
        blocks = cluster(width)
        return Tiling(
            width, STAGES[width], blocks, GROUP // blocks, late=int(not wide), ta=int(ta), tb=int(tb),
            type=TYPES[precision], promote=PROMOTED if precision == "fp32" else 0,
        )  # fmt: skip

    wide = precision in ("tf32", "fp32")
    return tiling(min((w for w in WIDTHS if precision != "fp32" or w < 256), key=time))


def shared(tiling: Tiling, m: int, n: int, steps: int, sms: int) -> int:
    """Blocks that share a K, where there are fewer tiles than multiprocessors: as many as there is room for, each with
    some steps."""
    tiles = -(-m // TILE_M) * -(-n // tiling.tile_n)
    return max(1, min(MOST_SPLITS, sms // tiles, steps // LEAST_STEPS))


@functools.cache
def _loaded(tiling: Tiling, device: str) -> Any:
    return loader.load(hgemm.built(tiling), device)


@functools.cache
def _adding(tiling: Tiling, device: str) -> Any:
    return loader.load(hgemm.adding(tiling), device)


@functools.cache
def _halver(device: str, *of: int) -> Any:
    return loader.load(hgemm.halving(*of), device)


@functools.cache
def _packer(device: str, *of: Any) -> Any:
    return loader.load(hgmma.packing(*of), device)


# ---- operands ----------------------------------------------------------------------------------------------------


def _described(array: Any, precision: str | None) -> tuple[Any, str, str, str]:
    """The array (of numpy, if it is in the host's memory), its type, the precision, where it is. LaunchError."""
    kind = _name(array)
    chosen = precision or DEFAULT.get(kind, "")
    if PRECISIONS.get(chosen) != kind:
        raise LaunchError(f"gemm of {kind} as {chosen or 'nothing'}",
                          "fp16 takes float16, bf16 bfloat16, tf32 and fp32 float32")  # fmt: skip
    return _on_host(array), kind, chosen, _device(array)


def _sizes(name: str, array: Any, turned: bool) -> tuple[int, int, int]:
    """Of a matrix: its batch, 0 if there is none, rows and columns; ``turned``: the other way round."""
    if len(array.shape) not in (2, 3) or len(array.shape) == 3 and array.shape[0] < 1:
        raise LaunchError(f"{name} of gemm has the shape {tuple(array.shape)}",
                          "matrices have two dimensions, and a batch of one or more in front")  # fmt: skip
    rows, columns = map(int, array.shape[:-3:-1] if turned else array.shape[-2:])
    return int(array.shape[0]) if len(array.shape) == 3 else 0, rows, columns


def _options(array: Any, device: str, stream: Any) -> dict[str, Any]:
    """Of launches."""
    early = {"early": True}
    return early if device == "cpu" else {**early, "stream": _stream(array) if stream is None else stream}


def _operand(
    array: Any, kind: str, turned: bool, precision: str, device: str, options: dict[str, Any]
) -> tuple[Any, Any, bool]:
    """A matrix, or a batch, as tensor maps take it, the scales of its rows, and whether it is turned still: of float32
    the tensor cores take rows of K alone. In fp32: in parts of FP16."""
    array, wide = _contiguous(_on_host(array)), kind == "float32"
    halved = precision == "fp32"
    if turned and wide or not (halved or _plain(array)):
        array = _packed(array, turned and wide, device, options)
    return (*(_halved(array, device, options) if halved else (array, None)), turned and not wide)


def _halved(array: Any, device: str, options: dict[str, Any]) -> tuple[Any, Any]:
    """Rows in parts of FP16, and their scales."""
    *lead, k = map(int, array.shape)
    what = hgemm.Halved(math.prod(lead), k, _address(array) % ALIGNED == 0)
    halves = _new(array, (*lead, what.row), "float16")
    scales = _new(array, (what.rows + hgemm.SPARE,), "float32")
    _halver(device, *what.of).kernel().launch(*what.arguments(array, halves, scales), **options)
    return halves, scales


def _packed(
    array: Any, turned: bool, device: str, options: dict[str, Any], out: Any = None, width: int = 0
) -> Any:
    """A copy, ``turned`` if asked for, with zeros behind each row, by the kernel that brings pixels into the order of
    tensor copies. ``width``: how many numbers of each row are taken; ``out``: that has as
    many."""
    item, (*batch, rows, columns) = _item(array), map(int, array.shape)
    images, step = math.prod(batch), rows * columns * item
    if step >= LIMIT and images > 1:
        raise LaunchError(f"a batch of matrices of {step} bytes each, which are to be copied", "4 GiB are too much")
    column, channel = (item, columns * item) if turned else (columns * item, item)
    if turned:
        rows, columns = columns, rows
    columns = width or columns
    filled = columns if width else -(-columns // PER) * PER
    made = _new(array, (*batch, rows, filled)) if out is None else out
    at_once = next(count for count in (4, 8, 32) if count >= min(filled, 32))
    grid = images, -(-rows // (hgmma.PACK_TILE // at_once)), -(-filled // at_once)
    numbers = 1, hgmma.inverse(1), rows, rows, 0, columns, filled, step % LIMIT, 0, column, channel
    kernel = _packer(device, item, at_once, turned).kernel()
    kernel.launch(grid, hgmma.PACK_THREADS, array, made, *numbers, **options)
    return made


def _dense(c: Any, shape: tuple[int, ...], device: str, options: dict[str, Any], out: Any) -> Any:
    """c without what is behind its rows, in ``out`` if that can be."""
    where = out if out is not None and _whole(out) else _new(c, shape)
    return _packed(c, False, device, options, where, shape[-1])


# ---- arrays of several libraries ---------------------------------------------------------------------------------


def _torch(array: Any) -> bool:
    return type(array).__module__.partition(".")[0] == "torch"


def _name(array: Any) -> str:
    """The type of its elements. LaunchError for what is no array that gemm takes."""
    if not (isinstance(array, (np.ndarray, Buffer)) or _torch(array)):
        raise LaunchError(f"gemm of a {type(array).__name__}", "numpy, PyTorch or loader.cuda.Buffer")
    return str(array.dtype).rpartition(".")[2]


def _device(array: Any) -> str:
    """Where a product with this array runs."""
    if isinstance(array, Buffer):
        return str(array.gpu)
    return "cpu" if isinstance(array, np.ndarray) or array.device.type == "cpu" else str(array.device)


def _stream(array: Any) -> Any:
    return importlib.import_module("torch").cuda.current_stream(array.device) if _torch(array) else 0


def _on_host(array: Any) -> Any:
    """A tensor in the host's memory as an array of numpy, of bfloat16 the bits."""
    if not (_torch(array) and array.device.type == "cpu"):
        return array
    torch = importlib.import_module("torch")
    array = array.detach()
    return array.view(torch.int16).numpy().view(np.uint16) if array.dtype is torch.bfloat16 else array.numpy()


def _from_host(array: Any, kind: str) -> Any:
    torch = importlib.import_module("torch")
    if kind == "bfloat16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def _item(array: Any) -> int:
    """Bytes of an element."""
    return int(array.element_size() if _torch(array) else array.dtype.itemsize)


def _whole(array: Any) -> bool:
    """Whether rows follow one another."""
    if isinstance(array, Buffer):
        return True
    return bool(array.is_contiguous() if _torch(array) else array.flags.c_contiguous)


def _plain(array: Any) -> bool:
    """Whether a tensor map takes it, and rows follow one another."""
    return _whole(array) and _address(array) % ALIGNED == 0 and int(array.shape[-1]) * _item(array) % ALIGNED == 0


def _address(array: Any) -> int:
    if isinstance(array, Buffer):
        return int(array.address)
    return int(array.data_ptr() if _torch(array) else array.ctypes.data)


def _contiguous(array: Any) -> Any:
    if isinstance(array, Buffer):
        return array
    return array.contiguous() if _torch(array) else np.ascontiguousarray(array)


def _batched(array: Any) -> Any:
    """With a batch, of one if it has none, for a tensor map."""
    if len(array.shape) == 3:
        return array
    shape = 1, *map(int, array.shape)
    if isinstance(array, Buffer):
        return View(array.address, shape, adjacent(shape, array.dtype.itemsize), str(array.dtype), array)
    return array.reshape(shape)


def _new(like: Any, shape: Any, dtype: str | None = None) -> Any:
    """A new array, with nothing in it; of another type if asked for."""
    shape = tuple(map(int, shape))
    if isinstance(like, Buffer):
        return Buffer(shape, dtype or like.dtype, like.gpu)
    if _torch(like):
        return like.new_empty(shape, dtype=getattr(importlib.import_module("torch"), dtype) if dtype else like.dtype)
    return np.empty(shape, dtype or like.dtype)
