"""What each instruction does, a module a kind. ``load`` imports them; each registers its mnemonics."""

import functools
import importlib

MODULES = ("bits", "convert", "floating", "halves", "mufu", "integer", "loads", "atomics", "bulk", "tensor", "warp")


@functools.cache
def load() -> None:
    """Import all modules, once."""
    for name in MODULES:
        importlib.import_module(f"{__name__}.{name}")
