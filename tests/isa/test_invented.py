"""An architecture that does not exist, from one record: nothing else has to know of it."""

from __future__ import annotations

import numpy as np
import pytest

import loader
import turingas
from turingas.errors import AsmError, LaunchError
from turingas.isa.arch import ARCHS, File, child
from turingas.isa.latency import latencies
from turingas.isa.op import Op
from turingas.isa.table import OPS

FILES = {"R": File(8, "Z"), "UR": File(8, "Z"), "P": File(3, "T"), "UP": File(3, "T"), "B": File(4)}
SOURCE = """
<params>
from_, 8
to, 8
</params>
--:-:0:-:2  S2R R0, threadIdx.x;
--:-:-:-:1  MOV R1, 0x4;
--:-:-:Y:f  UMOV UR200, 0x3;
--:-:1:-:1  LDC.64 R4, from_;
--:-:2:-:2  LDC.64 R6, to;
03:-:-:-:2  IMAD.WIDE R4, R0, R1, R4;
04:-:-:Y:6  IMAD.WIDE R6, R0, R1, R6;
--:-:0:-:2  LDG.E R2, [R4];
01:-:-:Y:8  IADD3 R2, R2, UR200, RZ;
--:-:-:-:1  STG.E [R6], R2;
--:-:-:Y:5  EXIT;
"""


@pytest.fixture
def invented():
    """Uniform registers of 8 bits, no arithmetic on constants, no POPC, an instruction of its own, another bank 0."""
    made = child(
        "sm_99", ARCHS["sm_90"], files=FILES, sources="riu", param_base=0x380, wide_param_base=0x380,
        gone=(r"^POPC ", r"^SYNCS\.PHASECHK"),  # where sm_90 has a fixed bit, a UR of 8 bits has its seventh
        rows=(("NEW Rd, Ra, Sb", 0x1F7, {}),), ops={"NEW": Op(pipe="alu", does="d = a", examples=("NEW R0, R1, R2",))},
    )  # fmt: skip
    yield made
    del ARCHS["sm_99"], OPS["NEW"]


def test_there_and_back(invented):
    lines = ["UMOV UR254, 0x7", "NEW R3, R4, 0x5", "NEW R3, R4, UR200", "IADD3 R1, R2, URZ, RZ", "R2UR UR100, R1"]
    words = turingas.encode("\n".join(f"--:-:-:-:5  {line};" for line in lines), "sm_99")
    assert [line.split("  ")[1] for line in turingas.decode(words, "sm_99")] == lines
    assert words[0] >> 16 & 0xFF == 254 and words[3] >> 32 & 0xFF == 0xFF


@pytest.mark.parametrize(
    "line", ["POPC R1, R2", "IADD3 R1, R2, c[0x0][0x0], RZ", "UMOV UR255, 0x7", "FFMA R1, R2, cx[UR4][0x0], R3"]
)
def test_what_it_lacks(invented, line):
    with pytest.raises(AsmError):
        turingas.encode(f"--:-:-:-:5  {line};", "sm_99")
    if "255" not in line:
        turingas.encode(f"--:-:-:-:5  {line};", "sm_90")


def test_its_parent_is_as_it_was(invented):
    with pytest.raises(AsmError):
        turingas.encode("--:-:-:-:5  UMOV UR64, 0x7;", "sm_90")
    with pytest.raises(AsmError):
        turingas.encode("--:-:-:-:5  NEW R3, R4, 0x5;", "sm_90")


def test_a_kernel(invented):
    """Assembled, written, read, disassembled, linted, run."""
    cubin = turingas.assemble(SOURCE, "sm_99")
    assert [finding for finding in turingas.lint(cubin) if finding.severity != "note"] == []
    read = turingas.Cubin.from_bytes(cubin.to_bytes())
    assert read.arch == "sm_99" and read.kernels[0].words == cubin.kernels[0].words
    text = turingas.disassemble(read)
    assert "UR200" in text and "c[0x0][0x380]" in text
    assert turingas.assemble(text).to_bytes() == cubin.to_bytes()
    source, target = np.arange(32, dtype=np.int32), np.zeros(32, np.int32)
    with loader.load(read, device="cpu") as module:
        report = module.kernel().launch(1, 32, source, target, strict=True, races=True)
    assert not report.hazards and np.array_equal(target, source + 3)


def test_without_latencies():
    """Nothing is guessed: who asks for cycles is told that there are none."""
    child("sm_98", ARCHS["sm_90"], latency="")
    try:
        with pytest.raises(AsmError, match="nothing is known of the latencies of sm_98"):
            latencies("sm_98")
        cubin = turingas.assemble("--:-:-:Y:5  EXIT;", "sm_98")
        with pytest.raises(AsmError, match="latencies of sm_98"):
            turingas.lint(cubin)
        with loader.load(cubin, device="cpu") as module:
            module.kernel().launch(1, 32)
            with pytest.raises((AsmError, LaunchError), match="latencies of sm_98"):
                module.kernel().launch(1, 32, strict=True)
    finally:
        del ARCHS["sm_98"]
