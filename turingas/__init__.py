"""TuringAs: an assembler and disassembler for NVIDIA's GPU machine code (SASS), sm_70 to sm_121.

>>> import turingas
>>> turingas.encode("01:-:2:-:4  LDG.E.128.SYS R20, [R2+0x10]", arch="sm_75")
>>> turingas.decode([0x...], arch="sm_75")
>>> cubin = turingas.assemble(open("winograd.sass").read(), arch="sm_75")
>>> turingas.disassemble(turingas.Cubin.from_file("x.cubin"))
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from turingas.errors import AsmError, CubinError
from turingas.version import __version__

if TYPE_CHECKING:
    from loader.tune.triton import tune_triton
    from turingas.api import decode, encode
    from turingas.assembler import assemble
    from turingas.assembler.schedule import schedule
    from turingas.check.finding import Finding
    from turingas.check.lint import lint
    from turingas.compare import diff
    from turingas.cubin.cubin import Cubin
    from turingas.disassembler import disassemble

__all__ = [
    "AsmError", "Cubin", "CubinError", "Finding", "__version__", "assemble", "decode", "diff", "disassemble", "encode",
    "lint", "schedule", "tune_triton",
]  # fmt: skip

# Loaded when first used: ``import turingas`` alone stays cheap.
_HOME = {
    "encode": "turingas.api",
    "decode": "turingas.api",
    "assemble": "turingas.assembler.assembler",
    "disassemble": "turingas.disassembler",
    "schedule": "turingas.assembler.schedule",
    "Cubin": "turingas.cubin.cubin",
    "Finding": "turingas.check.finding",
    "diff": "turingas.compare",
    "lint": "turingas.check.lint",
    "tune_triton": "loader.tune.triton",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'turingas' has no attribute {name!r}")
    from importlib import import_module

    if _HOME[name].startswith("loader."):
        from turingas.packages import check

        check("loader")
    value = globals()[name] = getattr(import_module(_HOME[name]), name)
    return value


def __dir__() -> list[str]:
    return __all__
