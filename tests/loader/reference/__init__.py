"""What the references' tests share: random layers, and how a result is held against float64.

TURINGAS_SHAPES=200 takes that many random layers for each algorithm instead of a dozen.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from loader.reference import conv2d
from loader.reference.problem import Problem, relative_error, truth

SHAPES = int(os.environ.get("TURINGAS_SHAPES", "12"))


def layers(seed: int, draw: Callable[[np.random.Generator], Problem | None], count: int = SHAPES) -> Iterator[Problem]:
    """``count`` layers that ``draw`` makes; None asks for another one."""
    rng = np.random.default_rng(seed)
    while count:
        if problem := draw(rng):
            count -= 1
            yield problem


def arrays(problem: Problem, seed: int = 0) -> tuple[Any, Any]:
    """x and w of normal numbers."""
    rng = np.random.default_rng(seed)
    shapes = problem.x_shape, problem.w_shape
    return tuple(rng.standard_normal(shape, dtype=np.float32) for shape in shapes)  # type: ignore[return-value]


def check(algorithm: str, problem: Problem, bound: float = 1e-6) -> None:
    """The algorithm's result on the CPU device is that of float64, within ``bound`` (relative L2)."""
    x, w = arrays(problem)
    y = conv2d(x, w, algorithm, stride=problem.stride, padding=problem.padding, device="cpu")
    assert y.dtype == np.float32 and y.shape == problem.y_shape
    assert relative_error(y, truth(x, w, problem)) <= bound, problem
