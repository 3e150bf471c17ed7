"""What the steps compute, in float64: for ``turingas validate ... --truth kernels_sass/learn/truth.py:NAME``.

Each function has its kernel's parameters and gives the output.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
BLOCK = 256  # threads, of step 3


def copy(source: Array, _target: Array) -> Array:
    """Step 1."""
    return source.astype("f8")


def scale(x: Array, _y: Array, _n: int, factor: float) -> Any:
    """Step 2."""
    return x.astype("f8") * factor


def sum(x: Array, sums: Array, n: int) -> Array:
    """Step 3: the blocks take turns."""
    return np.bincount(np.arange(n) // BLOCK % len(sums), x.astype("f8"), len(sums))


def transpose(source: Array, _target: Array, _rows: int, _columns: int) -> Any:
    """Step 4."""
    return source.T.astype("f8")


def outer_product(c: Array, a: Array, b: Array, _clocks: Array, rounds: int) -> Array:
    """Step 5, all patterns but one_bank."""
    every = 8 * rounds * np.outer(a.astype("f8"), b.astype("f8")).reshape(64, 1)
    return np.repeat(every, c.shape[1], axis=1)


def sgemm(a: Array, b: Array, _c: Array, _m: int, _n: int, _k: int) -> Any:
    """Step 8."""
    return a.astype("f8") @ b.astype("f8")
