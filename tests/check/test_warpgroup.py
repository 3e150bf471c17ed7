"""Products of a warp group: waits stand on the WARPGROUP.ARRIVE in front of them."""

from __future__ import annotations

import pytest

import turingas
from turingas.check import warpgroup
from turingas.cubin.model import Code, Kernel
from turingas.flow.graph import Graph

SOURCE = """
--:-:2:-:2 LDS R4, [R1];
{}:-:-:-:6 WARPGROUP.ARRIVE;
{}:-:-:-:4 {} R24, R4, gdesc[UR4], R24;
{}:-:-:-:3 {} R24, R4, gdesc[UR4], R24, gsb0;
{}:-:-:-:3 WARPGROUP.DEPBAR.LE gsb0, 0x0;
--:-:-:Y:5 EXIT;
"""


def found(op: str, *waits: str) -> list[tuple[int, str, str]]:
    words = turingas.encode(SOURCE.format(waits[0], waits[1], op, waits[2], op, waits[3]), "sm_90a")
    graph = Graph(Kernel("k", "sm_90a", Code(words=words)))
    return [(one.address // 16, one.severity, one.message) for one in warpgroup.check(graph)]


@pytest.mark.parametrize("op", ["HGMMA.64x64x16.F32", "IGMMA.64x64x32.S8.S8"])
def test_waits_of_products(op: str) -> None:
    assert found(op, "04", "--", "--", "04") == []
    said = "a product of a warp group waits for scoreboard"
    assert found(op, "--", "04", "--", "--") == [(2, "error", f"{said} 2 by itself")]
    assert found(op, "--", "--", "05", "--") == [(3, "error", f"{said} 0 and 2 by itself")]


def test_what_the_scheduler_makes() -> None:
    """It knows that from the same machine, by other code."""
    source = ".arch sm_90a\n" + SOURCE.format("?", "?", "HGMMA.64x64x16.F32", "?", "HGMMA.64x64x16.F32", "?").replace(
        "--:-:2:-:2 LDS", "LDS").replace("?:-:-:-:6", "").replace("?:-:-:-:4", "").replace("?:-:-:-:3", "")  # fmt: skip
    assert not [one for one in turingas.lint(turingas.schedule(source)) if one.kind == "group-wait"]
