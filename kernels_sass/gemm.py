"""``gemm``: matrix products by HGMMA, on an H100 or H200, or the CPU device. The kernel is step 9 of the tour.

from kernels_sass.gemm import gemm
c = gemm(a, b)                                  # float16, bfloat16 or float32 matrices
c = gemm(x, weight, transpose_b=True, bias=bias, relu=True)
"""

from __future__ import annotations

import functools
import importlib
from dataclasses import replace
from typing import Any

import numpy as np

import loader
from kernels_sass.learn import hgemm
from kernels_sass.learn.hgemm import TILE_M, Tiling
from loader import cuda
from loader.cuda import Buffer
from turingas.errors import LaunchError

PRECISIONS = {"fp16": "float16", "bf16": "bfloat16", "tf32": "float32", "fp32": "float32"}
DEFAULT = {"float16": "fp16", "bfloat16": "bf16", "float32": "fp32"}
TYPES = {"fp16": "F16", "bf16": "BF16", "tf32": "TF32", "fp32": "TF32"}
CLUSTER = 1
PROMOTED = 4  # steps of fp32 after which sums leave the tensor cores: more would not be exact to 1e-6
WIDTHS = (256, 192, 128, 64)
STAGES = {256: 4, 192: 4, 128: 6, 64: 8}  # by the width: what there is room for
STARTED = 40  # what a tile takes besides, in columns' worth of time
ALIGNED = 16  # bytes: rows and beginnings that tensor maps take
PER = 8  # elements that a row is padded to a multiple of


def gemm(
    a: Any, b: Any, out: Any = None, *, transpose_a: bool = False, transpose_b: bool = False,
    precision: str | None = None, bias: Any = None, relu: bool = False, stream: Any = None,
) -> Any:  # fmt: skip
    """A B, and what is given besides: ``out`` (a new array if there is none) of M rows of N.

    ``a``: M x K, or K x M with ``transpose_a``; ``b``: K x N, or N x K with ``transpose_b``; any M, N, K from 1 on.
    Arrays of numpy (the CPU device), PyTorch or ``loader.cuda.Buffer``, of one type and in one place. ``bias``:
    N numbers of float32, added to each row; ``relu``: what is below zero is zero then. ``stream``: as ``launch`` takes
    it; else PyTorch's current one.

    ``precision``: "fp16" and "bf16" for arrays of that type: products are exact, sums in float32, results rounded
    once. "tf32" for float32: the tensor cores read 19 bits of each element (a relative L2 error of 8e-4). "fp32": three
    such products of two parts each, a relative L2 error of at most 1e-6 for numbers of any size whose products are
    normal numbers; infinities may give NaN, and what is below 1e-30 loses its second part. Default: as the arrays are.

    Rows that are no multiple of 16 bytes, and of float32 those that lie the other way round, are copied first. A Buffer
    is not: its rows must be such. LaunchError for what does not fit.
    """
    if _torch(a) and a.device.type == "cpu":
        there = [None if one is None else one.detach().numpy() if _torch(one) else one for one in (a, b, out, bias)]
        made = gemm(*there[:3], transpose_a=transpose_a, transpose_b=transpose_b, precision=precision, bias=there[3],
                    relu=relu)  # fmt: skip
        return importlib.import_module("torch").from_numpy(made) if out is None else out
    kind = _name(a)
    chosen = precision or DEFAULT.get(kind, "")
    if PRECISIONS.get(chosen) != kind:
        raise LaunchError(f"gemm of {kind} as {chosen or 'nothing'}",
                          "fp16 takes float16, bf16 bfloat16, tf32 and fp32 float32")  # fmt: skip
    if len(a.shape) != 2 or len(b.shape) != 2:
        raise LaunchError(f"gemm of shapes {tuple(a.shape)} and {tuple(b.shape)}", "matrices have two dimensions")
    m, k = map(int, a.shape[::-1] if transpose_a else a.shape)
    inner, n = map(int, b.shape[::-1] if transpose_b else b.shape)
    if k != inner or min(m, n, k) < 1:
        raise LaunchError(f"A is {m} x {k}, and B {inner} x {n}", "A has as many columns as B rows, one at least")
    if _name(b) != kind or _device(b) != _device(a):
        raise LaunchError(f"A is {kind} on {_device(a)}, B {_name(b)} on {_device(b)}", "both alike")
    if out is not None and (tuple(out.shape) != (m, n) or _name(out) != kind):
        raise LaunchError(f"out is {_name(out)} of {tuple(out.shape)}; it must be {kind} of {(m, n)}")
    if bias is not None and (tuple(bias.shape) != (n,) or _name(bias) != "float32"):
        raise LaunchError(f"bias is {_name(bias)} of {tuple(bias.shape)}; it must be float32 of {(n,)}")
    where, wide = _device(a), kind == "float32"
    # of float32 the tensor cores take rows of K alone
    a, b = _padded(a, wide and transpose_a), _padded(b, wide and not transpose_b)
    c = out if out is not None and _plain(out) else _zeros(a, m, -(-n // PER) * PER)
    sms = 4 if where == "cpu" else cuda.device_named(where).attribute("MULTIPROCESSOR_COUNT")
    tiling = tiles(m, n, sms, chosen, transpose_a and not wide, not (transpose_b or wide))
    tiling = replace(tiling, bias=int(bias is not None), relu=int(relu))
    options = {} if where == "cpu" else {"stream": _stream(a) if stream is None else stream}
    low = [_low(x, where, sms, options) for x in (a, b)] if chosen == "fp32" else []
    launched, more = hgemm.arguments(tiling, a, b, c, (m, n, k), sms, low=low, bias=bias)
    _loaded(tiling, where).kernel().launch(*launched, **more, **options)
    if out is None:
        out = c if c.shape[1] == n else _zeros(a, m, n)
    if c is not out:
        out[...] = c[:, :n]
    return out


def tiles(m: int, n: int, sms: int, precision: str = "fp16", ta: bool = False, tb: bool = False) -> Tiling:
    """The tiling for a product: as wide as keeps all multiprocessors busy, counted in tiles one after the other."""

    def time(width: int) -> float:
        rounds = -(-(-(-m // TILE_M) * -(-n // width)) // sms)
        return rounds * (width + STARTED)

    wide = precision in ("tf32", "fp32")
    width = min((w for w in WIDTHS if precision != "fp32" or w < 256), key=time)
    return Tiling(
        width, STAGES[width], CLUSTER, late=int(not wide), ta=int(ta), tb=int(tb), type=TYPES[precision],
        parts=3 if precision == "fp32" else 1, promote=PROMOTED if precision == "fp32" else 0,
    )  # fmt: skip


@functools.cache
def _loaded(tiling: Tiling, device: str) -> Any:
    return loader.load(hgemm.built(tiling), device)


@functools.cache
def _splitter(device: str) -> Any:
    return loader.load(hgemm.splitting(), device)


def _low(x: Any, device: str, sms: int, options: dict[str, Any]) -> Any:
    """The second parts of x."""
    made, quads = _zeros(x, *x.shape), x.shape[0] * x.shape[1] * 4 // ALIGNED
    _splitter(device).kernel().launch(min(8 * sms, -(-quads // 256)), 256, x, made, quads, **options)
    return made


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


def _plain(array: Any) -> bool:
    """Whether a tensor map takes it, and rows follow one another."""
    if isinstance(array, Buffer):
        return bool(array.shape[1] * array.dtype.itemsize % ALIGNED == 0)
    if _torch(array):
        whole, address, item = array.is_contiguous(), array.data_ptr(), array.element_size()
    else:
        whole, address, item = array.flags.c_contiguous, array.ctypes.data, array.itemsize
    return bool(whole and address % ALIGNED == 0 and array.shape[1] * item % ALIGNED == 0)


def _zeros(like: Any, rows: int, columns: int) -> Any:
    """A new matrix."""
    if isinstance(like, Buffer):
        made = Buffer((rows, columns), like.dtype, like.gpu)
        made.fill(0)
        return made
    return like.new_zeros((rows, columns)) if _torch(like) else np.zeros((rows, columns), like.dtype)


def _padded(array: Any, turned: bool = False) -> Any:
    """The array, ``turned`` the other way round, or a copy with zeros behind each row."""
    if not turned and _plain(array):
        return array
    if isinstance(array, Buffer):
        hint = "rows of a multiple of 16 bytes; of float32 A as M x K, and B as N x K (transpose_b)"
        raise LaunchError(f"gemm of a Buffer of {array.shape} and {array.dtype}, which it would have to copy", hint)
    given = array.T if turned else array
    rows, columns = map(int, given.shape)
    made = _zeros(array, rows, -(-columns // PER) * PER)
    made[:, :columns] = given
    return made
