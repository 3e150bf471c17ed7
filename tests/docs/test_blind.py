"""What docs/linter.md and docs/emulator.md say that the tools cannot see: they do not. Whoever teaches it to one of
them finds here which text to change."""

from __future__ import annotations

import re

import numpy as np
import pytest

import turingas
from tests.docs.pages import DOCS
from turingas.emulate import build, flow, launch, semantics
from turingas.emulate.errors import DeviceError
from turingas.isa.arch import NAMES
from turingas.isa.isa import instruction_set

HEAD = """
<params>
out, 8
</params>
<smem> 256 </smem>
"""
POINTER = """
--:-:-:-:1 MOV R2, out[0];
--:-:-:Y:8 MOV R3, out[1];
"""
PLACES = """
--:-:0:-:2 S2R R4, SR_TID.X;
01:-:-:-:8 IMAD.SHL.U32 R5, R4, 0x4, RZ;
--:-:-:-:8 LOP3.LUT R6, R5, {other}, RZ, 0x3c, !PT;
--:0:-:-:2 STS [R5], R4;
01:-:1:-:2 LDS R7, [R6];
02:-:-:-:4 NOP;
"""
EXIT = "--:-:-:Y:5 EXIT;"

NEVER_WRITTEN = f"""{HEAD}{POINTER}
--:-:-:Y:8 IADD3 R4, R5, 0x7, RZ;
--:-:-:-:1 STG.E [R2], R4;
{EXIT}"""
BEYOND = f"""{HEAD}{POINTER}
--:-:0:-:2 LDG.E R4, [R2+0x1000];
01:-:-:-:1 STG.E [R2], R4;
{EXIT}"""
MISALIGNED = f"""{HEAD}
--:-:-:Y:8 MOV R2, 0x4;
--:-:0:-:2 LDS.128 R4, [R2];
01:-:-:-:4 NOP;
{EXIT}"""
SHARED_RACE = HEAD + PLACES.format(other="0x80") + EXIT  # the word of the other warp
ONE_WARP = HEAD + PLACES.format(other="0x4") + EXIT  # ... of the next lane
ENDLESS = f"""{HEAD}
again:
--:-:-:Y:5 BRA again;
{EXIT}"""
WRONG_COUNT = f"""{HEAD}
--:-:-:Y:8 BAR.SYNC 0x1, 0x40;
{EXIT}"""
BLOCKS_RACE = f"""{HEAD}{POINTER}
--:-:0:-:2 S2R R4, SR_CTAID.X;
01:-:-:-:1 STG.E [R2], R4;
{EXIT}"""
STALE_REUSE = f"""{HEAD}
--:-:-:-:4 FADD R4, R2, R3.reuse;
--:-:-:-:5 MOV R3, RZ;
--:-:-:-:4 FADD R5, R2, R3;
{EXIT}"""
FORGOTTEN_COPY = """
.arch sm_80
.kernel k
<params>
out, 8
</params>
<smem> 512 </smem>
--:-:0:-:2 S2R R0, SR_TID.X;
--:-:-:-:1 MOV R2, out[0];
--:-:-:Y:8 MOV R3, out[1];
01:-:-:Y:8 IMAD.SHL.U32 R5, R0, 0x4, RZ;
--:-:-:Y:8 IMAD.WIDE R2, R0, 0x4, R2;
--:0:-:-:2 LDGSTS.E [R5], [R2.64+URZ];
01:-:-:-:1 LDGDEPBAR;
--:-:-:Y:6 BAR.SYNC 0x0;
--:-:1:-:2 LDS R6, [R5];
02:-:-:-:1 STG.E [R2], R6;
--:-:-:Y:5 EXIT;
"""
OTHER_REGISTER = FORGOTTEN_COPY.replace("LDS R6, [R5]", "LDS R6, [R9]").replace("BAR.SYNC 0x0;", "BAR.SYNC 0x0;\n"
                                        "--:-:-:Y:8 MOV R9, R5;")  # fmt: skip
NEVER_TRUE = f"""{HEAD}
--:-:-:Y:d ISETP.EQ.AND P0, PT, RZ, RZ, PT;
--:-:-:Y:d ISETP.NE.AND P1, PT, RZ, RZ, PT;
--:-:0:-:2 @P1 LDS R5, [RZ];
--:-:-:-:4 @P0 MOV R5, RZ;
{EXIT}"""


def errors(source):
    return {found.kind for found in turingas.lint(turingas.assemble(source)) if found.severity == "error"}


def run(source, grid=1, block=32, **options):
    return launch(turingas.assemble(source), None, grid, block, [np.zeros(64, "u4")], **options)


def test_the_linter_does_not_see():
    for source in (NEVER_WRITTEN, BEYOND, MISALIGNED, SHARED_RACE, ENDLESS, WRONG_COUNT, BLOCKS_RACE, OTHER_REGISTER):
        assert not errors(source), source


def test_the_linter_accuses_what_cannot_happen():
    assert errors(NEVER_TRUE) == {"waw"}
    assert not run(NEVER_TRUE, strict=True).hazards


def test_what_the_device_sees_instead():
    for source in (BEYOND, MISALIGNED):
        with pytest.raises(DeviceError):
            run(source)
    assert run(SHARED_RACE, block=64, races=True).races
    assert run(FORGOTTEN_COPY, races=True).races and run(OTHER_REGISTER, races=True).races
    with pytest.raises(DeviceError, match="does not end"):
        run(ENDLESS, budget=1000)
    with pytest.raises(DeviceError, match="deadlock"):
        run(WRONG_COUNT)


def test_the_device_does_not_see():
    for source, grid in ((NEVER_WRITTEN, 1), (BLOCKS_RACE, 2), (STALE_REUSE, 1), (ONE_WARP, 1)):
        report = run(source, grid, strict=True, races=True, written=True)
        assert not report.hazards and not report.races
    assert run(BLOCKS_RACE, 2, races="global").races
    assert not run(FORGOTTEN_COPY, 1, strict=True).hazards
    with pytest.raises(DeviceError, match="never written"):
        run(FORGOTTEN_COPY, written=True)


def test_what_the_linter_sees_instead():
    assert errors(STALE_REUSE) == {"reuse-stale"}
    assert errors(FORGOTTEN_COPY) == {"copy-pending"}


def test_instructions_without_semantics():
    """The table of docs/emulator.md has them all."""
    semantics.load()
    known = set(build.SEMANTICS) | set(flow.FLOW)
    missing = {name for arch in NAMES for name in set(instruction_set(arch).mnemonics()) - known}
    page = (DOCS / "emulator.md").read_text()
    table = page[page.index("| not supported |") :].split("\n\n")[0]
    assert set(re.findall(r"`([A-Z0-9_]+)`", table)) == missing
