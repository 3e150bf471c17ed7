"""What the descriptors of a product in tensor memory say, but for where its matrices lie (``utcmma``)."""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np

from turingas.emulate.arrays import Array
from turingas.emulate.semantics.formats import FP4
from turingas.emulate.tensor_memory import LANES
from turingas.isa import descriptors
from turingas.isa.instruction import Instruction

SLAB = 32  # bytes of a row that one product takes
BITS = {"F16": 16, "BF16": 16, "TF32": 32}


class Described(NamedTuple):
    """What an instruction descriptor says (``isa.descriptors``)."""

    rows: int
    columns: int
    kinds: tuple[str, str]
    into: str
    negative: tuple[bool, bool]
    turned: tuple[bool, bool]
    sparse: bool
    selector: int
    saturates: bool
    scale: str  # format of the scales, if there are any
    scale_ids: tuple[int, int]  # the first byte of a column that has them
    long: bool  # K = 96
    reach: int  # by how many columns a mask may shift B
    stationary: bool  # .WS

    @property
    def packed(self) -> bool:
        """Two elements of 4 bits a byte."""
        return self.kinds[0] == FP4

    @property
    def kept(self) -> int:
        """Elements of a row of A that are there."""
        if self.long:
            return 96
        return SLAB * 2 if self.packed else SLAB * 8 // BITS.get(self.kinds[0], 8)

    @property
    def bits_of_a(self) -> int:
        return BITS.get(self.kinds[0], 4 if self.packed else 8)

    @property
    def columns_of_a(self) -> int:
        """In tensor memory."""
        return self.kept * self.bits_of_a // 32

    @property
    def k(self) -> int:
        return self.kept * (2 if self.sparse else 1)


@functools.lru_cache(256)
def described(i: Instruction, word: int) -> Described:
    """An instruction descriptor taken apart. ValueError for what is not there, Unsupported for what is not modelled."""
    kind = next(one.kind for one in descriptors.operands(i) if one.of == "idesc")
    told = {field.name: text for field, text in descriptors.parts(kind, word)}
    for name in ("A", "B", "D", "scales"):
        if told.get(name, "").endswith("?"):
            raise ValueError(f"format {told[name][:-1]} of {name}")
    rows, columns = int(told["M"]), int(told["N"])
    both, stationary = "2CTA" in i.mods, "WS" in i.mods
    if rows not in ((32, 64, 128) if stationary else (128, 256) if both else (64, 128)):
        raise ValueError(f"{rows} rows")
    if not 8 <= columns <= 256 or both and columns % 16 or stationary and columns % 32:
        raise ValueError(f"{columns} columns")
    if "ASHIFT" in i.mods and rows not in (128, 256):
        raise ValueError(f"{rows} rows that .ASHIFT would shift: it takes 128 or 256")

    def yes(name: str) -> bool:
        return told.get(name) == "yes"

    return Described(
        rows, columns, (FP4, FP4) if i.base == "UTCOMMA" else (told["A"], told["B"]), told.get("D", "F32"),
        (yes("negate A"), yes("negate B")), (yes("transpose A"), yes("transpose B")), yes("sparse"),
        int(told.get("sparsity selector", "0")), yes("saturate"), told.get("scales", ""),
        (int(told.get("scales of A", "0")), int(told.get("scales of B", "0"))), told.get("K") == "96",
        int(told.get("shift of B", "none").replace("none", "0")), stationary,
    )  # fmt: skip


@functools.lru_cache(256)
def taken(of: Described, mask: int) -> tuple[int, Array]:
    """What the mask of a .WS product says of B (PTX ISA, "Zero-Column Mask Descriptor"): by how many columns it is
    shifted, and which of those that are taken then count as 0, (columns,) bool. Columns in lanes of their own have a
    start of their own. PTX names the two spans the other way round than its examples, and an SM100 (numsim of
    TIRx-harness, whose authors asked one), have them: "use span" counts the columns that are taken. A start behind
    the first span stands at its last column, as numsim has it."""
    shift = mask >> 56 & 0x3F
    if mask >> 36 & 7 or mask >> 62:
        raise ValueError(f"mask of columns {mask:#018x} with bits that are reserved")
    if shift > of.reach:
        raise ValueError(f"{shift} columns that B is shifted by: the instruction descriptor allows {of.reach}")
    column = np.arange(of.columns)
    if not mask >> 39 & 1:
        return shift, np.zeros(of.columns, bool)
    each = of.columns * of.rows // LANES
    part = column // each
    zeros, used = (mask >> 40 & 0xFF) + 1, (mask >> 48 & 0xFF) + 1
    first = mask >> 32 + part & 1 != 0  # begins with columns that are 0
    start = np.minimum(mask >> 8 * part & 0xFF, np.where(first, zeros, used) - 1)
    place = (column % each + start) % (zeros + used)
    return shift, np.where(first, place < zeros, place >= used)
