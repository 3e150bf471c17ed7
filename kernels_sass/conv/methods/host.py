"""How ``turingas validate`` runs the sources beside this file."""

from kernels_sass.conv.host import LAYOUTS, launch, supports

__all__ = ["LAYOUTS", "launch", "supports"]
