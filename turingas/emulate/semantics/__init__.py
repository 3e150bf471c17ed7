"""What each instruction does, a module a kind: each registers its mnemonics when it is imported."""

import functools
import importlib

from turingas.emulate.build import SEMANTICS, Maker, Step, untold
from turingas.emulate.errors import Unsupported
from turingas.isa.instruction import Instruction

MODULES = (
    "bits", "convert", "packed", "floating", "halves", "mufu", "integer", "loads", "atomics", "bulk", "tensor", "warp",
    "warpgroup", "tiles", "tmem", "utcmma", "textures", "surfaces",
)  # fmt: skip


@functools.cache
def load() -> None:
    """Import all modules, once."""
    for name in MODULES:
        importlib.import_module(f"{__name__}.{name}")


def build(i: Instruction, m: Maker) -> Step:
    """The function that runs ``i``. Unsupported names what is missing."""
    load()
    found = SEMANTICS.get(i.base)
    if found is None:
        raise Unsupported(f"the emulator does not know {i.base}{untold(i.base)}")
    return found(i, m)
