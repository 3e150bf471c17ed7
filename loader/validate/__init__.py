"""Holds a kernel against a reference and a float64 result, on the same random inputs: ``turingas validate``.

Two kinds of comparison. ``convolution``: the kernel is a convolution, the inputs are made for a layer's sizes, the
reference is one of ``loader.reference`` (or a .cu file) and the float64 result is known. ``arrays``: any kernel, with
arguments as ``turingas run`` takes them, against another kernel with the same arguments, a float64 function, or both.

Every output is filled with POISON before a kernel runs, so that an element that it never wrote is seen.
"""

from loader.validate.call import Call, line, numbers, value
from loader.validate.command_line import command, function, problems
from loader.validate.convolutions import (
    AXES,
    LAYERS,
    Convolution,
    accuracy,
    by_call,
    by_host,
    convolution,
    describe,
    inputs,
    layer,
)  # fmt: skip
from loader.validate.kernels import arrays
from loader.validate.verdict import (
    POISON,
    TOLERANCE,
    Result,
    Row,
    Sides,
    allowed,
    compare,
    judge,
    poisoned,
    unwritten,
)  # fmt: skip

__all__ = [
    "AXES", "LAYERS", "POISON", "TOLERANCE", "Call", "Convolution", "Result", "Row", "Sides", "accuracy", "allowed",
    "arrays", "by_call", "by_host", "command", "compare", "convolution", "describe", "function", "inputs", "judge",
    "layer", "line", "numbers", "poisoned", "problems", "unwritten", "value",
]  # fmt: skip
