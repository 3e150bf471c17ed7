"""Options that several benches of the convolution have."""

from __future__ import annotations

from dataclasses import replace

from kernels_sass.conv.method import METHODS
from loader.bench.bench import Option
from loader.validate import LAYERS

LAYOUTS = ("CHWN", "NCHW", "NHWC")

LAYER = Option("--layer", "layers", f"{', '.join(LAYERS)}. [default: all]", (*LAYERS, "all"), True, "NAME",
               every=tuple(LAYERS))  # fmt: skip
BATCH = Option("--batch", "batches", "Images. [default: 32,64,96,128]", "sizes", metavar="N[,N...]")
LAYOUT = Option("--layout", "layout", "Layout of x and y. [default: NCHW]", LAYOUTS, metavar="LAYOUT")
SOURCE = Option("--source", "source", f"{', '.join(METHODS)}. [default: the best for the GPU]", tuple(METHODS),
                metavar="NAME")  # fmt: skip
DEFINE = Option("-D --define", "schedule", "A parameter of our kernel's source.", "definitions", True, "NAME[=VALUE]")


def saying(option: Option, help: str) -> Option:
    """The option with another help text."""
    return replace(option, help=help)


def several(option: Option, help: str) -> Option:
    """The same, to be given several times: its values go to the plural."""
    return replace(option, to=f"{option.to}s", help=help, many=True)
