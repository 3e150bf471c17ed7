"""`.preload`: constants in uniform registers, where arithmetic takes none."""

from __future__ import annotations

import re

import numpy as np
import pytest

import loader
import turingas
from turingas.assembler.schedule import listing
from turingas.errors import AsmError

SOURCE = """.kernel k
.preload
<params>
to, 8
n, s32
</params>
--:-:0:-:2   S2R R0, threadIdx.x;
01:-:-:-:5   MOV R1, n;
again:
--:-:-:-:5   IADD3 R1, R1, n, RZ;
--:-:-:-:5   IMAD R2, R0, R1, RZ;
--:-:-:-:1   ISETP.LT.AND P0, PT, R1, 0x40, PT;
--:-:-:-:5   MOV R6, 0x4;
--:-:-:-:4   IMAD.WIDE R4, R0, R6, to;
--:-:-:Y:d   NOP;
--:-:-:Y:5   @P0 BRA again;
--:-:-:-:1   STG.E [R4], R2;
--:-:-:Y:5   EXIT;
"""


def lines(arch: str, source: str = SOURCE) -> list[str]:
    return turingas.decode(turingas.assemble(source, arch).kernels[0].words, arch, control=False)


@pytest.mark.parametrize("arch", ["sm_90", "sm_100", "sm_120"])
def test_the_same_result(arch):
    """Loops do not load again; a source without codes is scheduled with what the directive adds."""
    for source in (SOURCE, re.sub(r"^(--|01):\S+ +", "", SOURCE, flags=re.M)):
        to = np.zeros(32, np.int32)
        with loader.load(turingas.assemble(source, arch), "cpu") as module:
            assert not module.kernel().launch(1, 32, to, 5, strict=True).hazards
        assert (to == np.arange(32) * 65).all()


def test_words():
    """Nothing where constants are operands; else neighbours together, and what the loop names is there before it."""
    without = SOURCE.replace(".preload\n", "")
    for arch in ("sm_75", "sm_90"):
        assert lines(arch) == lines(arch, without)
    found = lines("sm_100")
    assert found[:3] == ["LDCU.64 UR80, c[0x0][0x380]", "LDCU UR82, c[0x0][0x388]", "NOP"]
    assert found[4] == "MOV R1, UR82" and "IMAD.WIDE R4, R0, R6, UR80" in found
    with pytest.raises(AsmError, match="does not fit"):
        lines("sm_100", without)


def test_what_it_replaces():
    loads = "--:-:-:-:2 ULDC UR5, c[0x0][0x358];\n--:-:1:-:2 LDC R1, c[0x0][0x37c];\n"
    source = f".kernel k\n.preload\n{loads}--:-:-:Y:5 EXIT;"
    assert lines("sm_100", source)[:4] == ["LDCU UR70, c[0x0][0x358]", "NOP", "UMOV UR5, UR70", "LDC R1, c[0x0][0x37c]"]


def test_the_source_with_codes_has_the_directive_alone():
    text, _ = listing(SOURCE, "sm_100", keep=False)
    assert "LDCU" not in text and ".preload" in text and lines("sm_100", text) == lines("sm_100")


def test_mistakes():
    with pytest.raises(AsmError, match="this register may hold a constant"):
        lines("sm_100", SOURCE.replace("EXIT;", "UMOV UR80, URZ;\n--:-:-:Y:5 EXIT;"))
    with pytest.raises(AsmError, match="takes no arguments"):
        lines("sm_100", SOURCE.replace(".preload", ".preload all"))
