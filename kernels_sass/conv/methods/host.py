"""How ``turingas validate`` runs the sources beside this file."""

from typing import Any

from kernels_sass.conv.code import main_of
from kernels_sass.conv.cost import sms, split
from kernels_sass.conv.launch import convolve, transform
from kernels_sass.conv.shape import LAYOUT, LAYOUTS, Shape, filter_floats, supports

__all__ = ["LAYOUTS", "launch", "supports"]


def launch(run: Any, module: Any, p: Any, x: Any, w: Any, y: Any, layout: str = LAYOUT) -> None:
    """Filters and convolution of a ``loader.reference.problem.Problem``; x and y in the layout, w as K, C, R, S."""
    kernel = main_of(module.cubin)
    shape = split(Shape.of(p, layout, kernel), run.device, (kernel,))
    u, partial = run.empty((filter_floats(p.c, p.k),)), run.empty((shape.floats,)) if shape.floats else 0
    transform(module, w, u, p.c, p.k)
    convolve(module, shape, x, u, y, sms=sms(run.device), partial=partial)
