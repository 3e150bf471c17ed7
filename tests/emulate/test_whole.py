"""Whole products of NVRTC's for sm_90a on the CPU device: tensor maps, multicast, mbarriers and registers that change
hands, warp groups' products of every kind."""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulate import whole
from tests.tools import nvrtc

pytestmark = pytest.mark.skipif(nvrtc.library_path() is None, reason="needs NVRTC")
FLOATS = {"f16": np.float16, "tf32": np.float32}


def values(bytes_: np.ndarray, text: str, which: int) -> np.ndarray:
    """What the bytes of A or B stand for."""
    name = text.split(".")[2 + which]
    if name in FLOATS:
        word = bytes_.view(np.uint32) & 0xFFFFE000 if name == "tf32" else bytes_
        return word.view(FLOATS[name]).astype(float)
    if name == "bf16":
        return (bytes_.view(np.uint16).astype(np.uint32) << 16).view(np.float32).astype(float)
    if name == "b1":
        return np.unpackbits(bytes_, axis=-1).astype(float)
    if name in ("s8", "u8"):
        return bytes_.view(np.int8 if name == "s8" else np.uint8).astype(float)
    bits, bias = (3, 7) if name == "e4m3" else (2, 15)
    exponent, fraction = bytes_ >> bits & (0x7F >> bits), (bytes_ & (1 << bits) - 1) / (1 << bits)
    size = np.where(exponent == 0, fraction * 2.0 ** (1 - bias), (1 + fraction) * np.exp2(exponent - float(bias)))
    return np.where(bytes_ >> 7, -size, size)


@pytest.mark.parametrize("blocks", [1, 2])
@pytest.mark.parametrize("text", whole.KINDS)
def test_products(text: str, blocks: int) -> None:
    kind = whole.KINDS[text]
    sums, report, a, b = whole.product(kind, blocks, "cpu", strict=True, races=True)
    assert not report.hazards and not report.races
    found, exact = whole.unpacked(kind, sums), values(a, text, 0) @ values(b, text, 1).T
    if kind.sums == "int":
        assert (found == exact).all()
    else:
        near = 4e-3 if kind.count == 16 else 1e-3 if "e4m3" in text else 3e-6
        assert np.linalg.norm(found - exact) < near * np.linalg.norm(exact)
