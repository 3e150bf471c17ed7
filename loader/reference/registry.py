"""The list of algorithms: each module of a family puts its own on it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from loader.reference.problem import Problem, check_layout

#: Launches the kernels: runner, problem, x in the algorithm's layout, w as K, C, R, S, y in the algorithm's layout, and
#: options of its own by name.
Function = Callable[..., None]


@dataclass(frozen=True)
class Algorithm:
    """An entry of the list: ``layout`` of x and y that its kernels take; ``supports`` says "" or why not.

    ``tolerance``: the relative L2 error that its arithmetic may have.
    """

    name: str
    function: Function
    layout: str
    supports: Callable[[Problem], str]
    tolerance: float = 1e-6


#: by name
ALGORITHMS: dict[str, Algorithm] = {}


def algorithm(
    name: str,
    layout: str = "NCHW",
    supports: Callable[[Problem], str] = lambda problem: "",
    tolerance: float = 1e-6,
) -> Callable[[Function], Function]:
    """Put a function on the list of algorithms."""
    check_layout(layout)

    def register(function: Function) -> Function:
        assert name not in ALGORITHMS, name
        ALGORITHMS[name] = Algorithm(name, function, layout, supports, tolerance)
        return function

    return register
