"""Addresses of shared memory in a cluster that do not say whose it is."""

from __future__ import annotations

import pytest

import turingas
from kernels_sass import gemm_kernels as gemm
from tests.gpu import clusters

SOURCE = """
.arch sm_90
.kernel k
<smem> 1024 </smem>
<params>
out, 8
</params>
--:-:0:-:2 S2R R4, SR_TID.X;
--:-:1:-:2 S2UR UR4, {special};
02:-:-:-:8 USHF.L.U32 UR4, UR4, 0x18, URZ;
01:-:-:-:8 IMAD.SHL.U32 R5, R4, 0x4, RZ;
{line}
--:-:-:-:2 {guard} STS [{address}], R4;
{end}
--:-:-:Y:5 EXIT;
"""
CLUSTER = "--:-:-:-:8 UCGABAR_ARV;\n--:-:-:-:8 UCGABAR_WAIT;"


def found(
    line: str = "", address: str = "R5", special: str = "SR_CgaCtaId", end: str = CLUSTER, guard: str = ""
) -> bool:
    source = SOURCE.format(line=line, address=address, special=special, end=end, guard=guard)
    kinds = [one for one in turingas.lint(turingas.assemble(source)) if one.kind == "block-unsaid"]
    assert len(kinds) <= 1 and all(one.severity == "warning" and "STS" in one.text for one in kinds)
    return bool(kinds)


@pytest.mark.parametrize(
    ("line", "address"),
    [
        ("", "R5"), ("", "R5+0x100"), ("", "RZ+0x10"), ("--:-:-:-:8 IADD3 R5, R5, -0x4, RZ;", "R5"),
        ("--:-:-:-:8 MOV R5, 0x200;", "R5"), ("--:-:-:-:8 UMOV UR4, 0x20;", "R5+UR4"),
        ("--:-:-:-:8 IADD3 R6, R5, UR4, RZ;\n--:-:-:-:8 MOV R6, R5;", "R6"),
    ],
)  # fmt: skip
def test_without_a_rank(line: str, address: str) -> None:
    assert found(line, address)
    assert not found(line, address, end=""), "nothing says that there are clusters"
    assert found(".info CTA_PER_CLUSTER 2 1 1\n" + line, address, end="")
    assert not found(".info CTA_PER_CLUSTER 1 1 1\n" + line, address, end="")
    assert not found(line, address, guard="@!PT")


@pytest.mark.parametrize(
    ("line", "address", "special"),
    [
        ("", "R5+UR4", "SR_CgaCtaId"), ("--:-:-:-:8 IADD3 R5, R5, UR4, RZ;", "R5", "SR_CgaCtaId"),
        ("--:-:-:-:8 ISETP.EQ.AND P0, PT, R4, RZ, PT;\n--:-:-:-:8 @P0 IADD3 R5, R5, UR4, RZ;", "R5", "SR_CgaCtaId"),
        ("", "R5+UR4", "SR_CTAID.X"), ("--:-:-:-:8 IADD3 R5, R5, 0x1000000, RZ;", "R5", "SR_CgaCtaId"),
        ("--:-:2:-:2 LDS R5, [R5+UR4];\n04:-:-:-:4 NOP;", "R5", "SR_CgaCtaId"),
        ("--:-:-:-:8 MOV R5, out[0];", "R5", "SR_CgaCtaId"),
    ],
)  # fmt: skip
def test_what_may_have_one(line: str, address: str, special: str) -> None:
    assert not found(line, address, special)


def test_a_loop() -> None:
    """What one round adds is there in the next."""
    head = "round:\n"
    tail = "--:-:-:-:8 {} R5, R5, UR4, RZ;\n--:-:-:-:8 ISETP.EQ.AND P0, PT, R4, RZ, PT;\n--:-:-:Y:5 @P0 BRA round;\n"
    assert not found(head, end=tail.format("IADD3") + CLUSTER)
    assert found(head, end=tail.format("IADD3").replace("UR4", "0x4") + CLUSTER)


def test_the_matrix_product() -> None:
    """As it was: each STSM; as it is: none."""
    tiling, text = gemm.Tiling(128, 6, cluster=2, group=8), gemm.SOURCE.read_text()

    def wrong() -> list[str]:
        made = turingas.assemble(text, "sm_90a", tiling.defines(), [gemm.SOURCE.parent], filename="gemm.sass")
        return [one.text.split(" ")[0] for one in turingas.lint(made) if one.kind == "block-unsaid"]

    assert not wrong()
    for old, new in clusters.HGEMM[clusters.WAS][0]:
        text = text.replace(old, new)
    assert wrong() == ["STSM.16.M88.4"] * 16
