"""Arrays of lanes: n warps (rows) of 32 lanes, (n, 32), or (n, 1) of what is the same in all lanes of a warp."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Rows = slice | NDArray[np.intp]  # warps of a wave

LANES = np.arange(32, dtype=np.uint32)
ZERO = np.zeros((1, 1), np.uint32)
TRUE = np.ones((1, 1), bool)


def spread(value: Array, shape: tuple[int, ...]) -> Array:
    """``value`` broadcast to ``shape``, at once where it has it: numpy.broadcast_to takes as long as ten additions."""
    return value if value.shape == shape else np.broadcast_to(value, shape)
