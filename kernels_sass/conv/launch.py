"""How the convolution is launched: grids and parameters of each kernel."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from kernels_sass.conv.cost import CPU_SMS
from kernels_sass.conv.method import CHANNELS, ceil_div
from kernels_sass.conv.shape import PADDED, Shape

ADDERS = 256  # threads of a block of add_splits


@dataclass(frozen=True)
class Launch:
    """A kernel's name, grid, threads and dynamic shared memory, and its parameters behind the pointers. ``early``: it
    may begin before the kernel before it has ended. ``cluster``: blocks of one, along each axis of the grid."""

    kernel: str
    grid: tuple[int, int, int]
    threads: int
    shared: int
    numbers: tuple[int, ...]
    early: bool = False
    cluster: tuple[int, int, int] | None = None


def launches(shape: Shape, sms: int, relu: bool = False) -> tuple[Launch, ...]:
    """The convolution's kernels: the shape's main one of x, U, y, bias, residual; or where the shape is split the main
    one of x, U, partial results, 0, 0, then ``add_splits`` or ``add_splits4`` of partial results, y, bias, residual.
    All are of the module that has the shape's kernel."""
    method, early = shape.method, shape.method.early
    alone = shape.written is shape  # no partial results
    fused = relu and alone
    numbers = *shape.numbers, int(fused), shape.steps // shape.splits, shape.splits
    cluster = (1, shape.splits, 1) if alone and shape.splits > 1 else None
    shared = method.shared(shape, sms)
    main = Launch(shape.kernel.name, method.grid(shape, sms), shape.block.threads, shared, numbers, early, cluster)
    if alone:
        return (main,)
    count, inner = math.prod(shape.y_shape), shape.y_strides[1]
    width = 4 if shape.splits <= 4 and (inner if inner > 1 else shape.k) % 4 == 0 else 1  # elements of a thread
    numbers = count, shape.k, inner, shape.splits, int(relu)
    grid = ceil_div(count, ADDERS * width), 1, 1
    return main, Launch(f"add_splits{width if width > 1 else ''}", grid, ADDERS, 0, numbers, early)


def pointers(shape: Shape, x: Any, u: Any, y: Any, bias: Any, residual: Any, partial: Any) -> tuple[Any, ...]:
    """What each of the ``launches`` takes before its numbers."""
    if shape.written is shape:
        return ((x, u, y, bias, residual),)
    return (x, u, partial, 0, 0), (partial, y, bias, residual)


def transform(module: Any, w: Any, u: Any, c: int, k: int, strides: tuple[int, ...] = (), **options: Any) -> Any:
    """Launch ``filter_transform``: w, with strides of k, c, r, s in elements (K, C, 3, 3 unless said), into u."""
    blocks = ceil_div(k, PADDED), ceil_div(c, CHANNELS), 1
    numbers = strides or (9 * c, 9, 3, 1)
    return module.kernel("filter_transform").launch(blocks, (256, 1, 1), w, u, c, k, *numbers, **options)


def convolve(
    module: Any, shape: Shape, x: Any, u: Any, y: Any, bias: Any = 0, residual: Any = 0,
    relu: bool = False, sms: int = CPU_SMS, partial: Any = 0, **options: Any,
) -> list[Any]:  # fmt: skip
    """Launch the convolution of a shape of one part; arrays as ``loader.Kernel.launch`` takes them, or 0. ``partial``:
    ``shape.floats`` elements. What the launches gave."""
    done = []
    for one, given in zip(launches(shape, sms, relu), pointers(shape, x, u, y, bias, residual, partial)):
        kernel, block = module.kernel(one.kernel), (one.threads, 1, 1)
        more = {"shared": one.shared, **({"cluster": one.cluster} if one.cluster else {}), **options}
        done.append(kernel.launch(one.grid, block, *given, *one.numbers, **more))
    return done
