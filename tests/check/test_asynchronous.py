"""The linter's rules of asynchronous memory: what is broken is found, with both instructions; what waits is not."""

from __future__ import annotations

import pytest

import turingas
from tests.emulate.test_late import FORGOTTEN
from tests.emulate.wgmma import Product

KINDS = {"copy-pending", "product-pending", "no-arrive", "never-over"}


def found(source: str) -> list[tuple[str, str, str]]:
    """Kind and both instructions."""
    cubin = turingas.assemble(source)
    return [(one.kind, one.text, one.other_text) for one in turingas.lint(cubin) if one.kind in KINDS]


COPY = ("copy-pending", "LDS R6, [R2]", "LDGSTS.E [R2], [R4.64]")
GROUP = "01:-:0:-:1  LDGDEPBAR;"


@pytest.mark.parametrize(
    ("old", "new", "wrong"),
    [
        ("", "", True),
        ("", "--:-:-:Y:4 DEPBAR.LE SB0, 0x1;", True),
        ("", "--:-:-:Y:4 DEPBAR.LE SB1, 0x0;", True),
        ("", "--:-:-:Y:4 DEPBAR.LE SB0, 0x0;", False),
        ("", "01:-:-:-:4 NOP;", False),
        ("", "--:-:0:-:1 LDGDEPBAR;\n--:-:-:Y:4 DEPBAR.LE SB0, 0x1;", False),
        ("", "--:-:0:-:1 LDGDEPBAR;\n--:-:-:Y:4 DEPBAR.LE SB0, 0x2;", True),
        (GROUP, "01:-:-:-:4 DEPBAR.LE SB0, 0x0;", True),
        ("", "--:-:-:-:4 MOV R2, RZ;", False),  # another address, or the same: not known
        ("LDS R6, [R2]", "LDS R6, [R2+0x4]", False),
        ("LDS R6, [R2]", "@P0 LDS R6, [R2]", False),
    ],
)
def test_copies(old: str, new: str, wrong: bool) -> None:
    source = FORGOTTEN.replace(old, new) if old else FORGOTTEN
    assert found(source.format(wait=new if not old else "")) == [COPY] * wrong


def test_a_way_round_the_wait() -> None:
    way = "--:-:-:Y:d ISETP.NE.AND P0, PT, R0, RZ, PT;\n--:-:-:Y:5 @P0 BRA past;\n--:-:-:Y:4 DEPBAR.LE SB0, 0x0;\npast:"
    assert found(FORGOTTEN.format(wait=way)) == [COPY]


PRODUCT = Product(8, ("F16", "F16", "F32"))
IN_REGISTERS = "HGMMA.64x8x16.F32 R24, R8, gdesc[UR8], R24, UP0, gsb0;\n"
WAIT, ARRIVE = "WARPGROUP.DEPBAR.LE gsb0, 0x0;\n", "WARPGROUP.ARRIVE;\n"


@pytest.mark.parametrize(
    ("old", "new", "kinds"),
    [
        (WAIT, WAIT, []),
        (WAIT, "", ["product-pending"]),
        (WAIT, "WARPGROUP.DEPBAR.LE gsb0, 0x1;\n", ["product-pending"]),
        (WAIT, "MOV R25, RZ;\n" + WAIT, ["product-pending"]),
        (WAIT, WAIT + "MOV R25, RZ;\n", []),
        (ARRIVE, "", ["no-arrive"]),
        (PRODUCT.text + ";\n", IN_REGISTERS + "MOV R9, RZ;\n", ["product-pending"]),
    ],
)
def test_products(old: str, new: str, kinds: list[str]) -> None:
    source = PRODUCT.source()
    assert old in source
    assert [kind for kind, _, _ in found(source.replace(old, new))] == kinds


BARRIER = """
.arch sm_90
.kernel k
<smem> 1088 </smem>
--:-:-:-:1 UMOV UR6, 0x400;
--:-:-:-:1 UMOV UR4, 0x1ffffe;
--:-:-:Y:c UMOV UR5, 0x7ffff800;
--:1:0:-:2 SYNCS.EXCH.64 URZ, [UR6], UR4;
03:-:-:Y:6 BAR.SYNC 0x0;
{arrive}
wait:
--:-:0:-:2 SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [UR6], {parity};
01:-:-:Y:5 @!P0 BRA wait;
--:-:-:Y:5 EXIT;
"""


@pytest.mark.parametrize(
    ("arrive", "parity", "wrong"),
    [
        ("", "RZ", ["waits"]),
        ("", "R2", []),  # perhaps for the phase before the first, which is over
        ("--:-:-:-:2 SYNCS.ARRIVE.TRANS64.A1T0 RZ, [UR6], RZ;", "RZ", []),
        ("--:-:-:-:2 SYNCS.ARRIVE.TRANS64 RZ, [UR6], R3;", "RZ", ["announces"]),
        ("--:-:-:-:2 SYNCS.ARRIVE.TRANS64 RZ, [UR6], R3;\n--:0:-:-:2 UBLKCP.S.G [UR8], [UR10], UR7;", "RZ", []),
    ],
)
def test_phases(arrive: str, parity: str, wrong: list[str]) -> None:
    cubin = turingas.assemble(BARRIER.format(arrive=arrive, parity=parity))
    said = [one.message.split()[0] for one in turingas.lint(cubin) if one.kind == "never-over"]
    assert said == wrong
