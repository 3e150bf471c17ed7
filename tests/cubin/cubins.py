"""The cubins that these tests look at: those of data/, and what NVRTC makes of its sources where NVRTC is there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tests.tools import nvrtc

DATA = Path(__file__).parent / "data"
STORED = sorted(DATA.glob("*.cubin"))
SOURCES = sorted(DATA.glob("*.cu"))
ARCHS = ("sm_70", "sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_90a")
MODES = {"plain": (), "debug": ("-G",), "lineinfo": ("-lineinfo",), "relocatable": ("-rdc=true",)}


def named(name: str) -> bytes:
    """A stored cubin."""
    return (DATA / f"{name}.cubin").read_bytes()


def compiled() -> Iterator[tuple[str, bytes]]:
    """Every source for every architecture, on some also in the other modes, as far as the installed NVRTC makes it."""
    for source in SOURCES:
        for arch in ARCHS:
            for mode, options in MODES.items():
                if mode != "plain" and arch not in ("sm_75", "sm_90"):
                    continue
                try:
                    yield f"{source.stem} {arch} {mode}", nvrtc.compile_source(source.read_text(), arch, options)
                except nvrtc.NvrtcError:
                    continue  # NVRTC 13 knows no sm_70
