"""Convolutions and linear layers in SASS as operators of PyTorch, ``turingas::conv2d`` and ``turingas::linear``, and
networks that use them.

    import kernels_sass.torch
    model, report = kernels_sass.torch.convert(model.eval().cuda(), example)

docs/inference.md tells of it. PyTorch is an optional extra of this package.
"""

try:
    import torch as _torch  # noqa: F401
except ImportError as error:
    raise ImportError(f"kernels_sass.torch needs PyTorch, which cannot be imported: {error}; "
                      'pip install torch, or in a checkout pip install ".[torch]"') from error  # fmt: skip

from kernels_sass.torch.layer import Conv2d
from kernels_sass.torch.network import convert
from kernels_sass.torch.operator import conv2d
from kernels_sass.torch.product import Linear, linear
from kernels_sass.torch.report import Report

__all__ = ["Conv2d", "Linear", "Report", "conv2d", "convert", "linear"]
