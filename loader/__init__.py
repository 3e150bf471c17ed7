"""Runs cubins from Python: ``loader.load("copy.cubin").kernel("kern").launch(grid, block, *args)``.

So far on the CPU device alone (``turingas.emulate``); GPUs come next, behind the same face.
"""

from loader.module import Kernel, Module, devices, load

__all__ = ["Kernel", "Module", "devices", "load"]
