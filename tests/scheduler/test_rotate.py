"""Loops whose first lines are done for the next round at the end of each; SGEMM written straightforwardly."""

from __future__ import annotations

import numpy as np
import pytest

import turingas
from tests.bench.schedule import OWN, PLAIN, REORDERED, sgemm_of, static
from turingas.assembler.schedule import listing
from turingas.cubin.cubin import Cubin
from turingas.emulate import launch
from turingas.errors import AsmError

SUM = """.arch sm_90
.kernel sum
<params>
y, f32*
x, f32*
n, u32
</params>
    S2R R0, SR_TID.X;
    MOV R7, 0x4;
    MOV R8, n;
    MOV R9, RZ;
    IMAD.WIDE R2, R0, R7, x[0];
.schedule reorder
loop:
    LDG.E R4, [R2];
    IADD3 R2, P1, R2, 0x80, RZ;
    IADD3.X R3, R3, RZ, RZ, P1, !PT;
.schedule rotate
    FFMA R9, R4, R4, R9;
    IADD3 R8, R8, -0x1, RZ;
    ISETP.NE.AND P0, PT, R8, RZ, PT;
    @P0 BRA loop;
.schedule on
    IMAD.WIDE R6, R0, R7, y[0];
    STG.E [R6], R9;
    EXIT;
"""


def run(cubin: Cubin, rounds: int) -> tuple[np.ndarray, int]:
    y, x = np.zeros(32, np.float32), np.random.default_rng(1).standard_normal((rounds, 32)).astype(np.float32)
    report = launch(cubin, "sum", 1, 32, [y, x, np.uint32(rounds)], strict=True)  # a load behind x is an error
    assert not report.hazards
    return y, report.instructions


@pytest.mark.parametrize("rounds", [1, 2, 7])
def test_rotated_loops_do_the_same(rounds: int) -> None:
    """As many loads as before, none behind the last round."""
    wanted, before = run(turingas.assemble(SUM.replace(".schedule rotate", "")), rounds)
    found, after = run(turingas.assemble(SUM), rounds)
    assert (wanted == found).all() and after == before + 3  # the last round passes three guarded lines by


def test_the_load_comes_a_round_early() -> None:
    cubin = turingas.assemble(SUM)
    assert not [f for f in turingas.lint(cubin) if f.severity == "error"]
    shown, _ = listing(SUM)
    assert turingas.assemble(shown).texts[0].words == cubin.texts[0].words and "rotate" not in shown
    before, _, loop = shown.partition("loop:")
    assert "LDG" in before and "@P0 LDG.E R4" in loop and loop.index("FFMA") < loop.index("LDG")


@pytest.mark.parametrize(
    "old, new, message",
    [
        ("@P0 BRA", "BRA", "only if the branch back is guarded"),
        ("    FFMA", "HERE:\n    FFMA", "the branch back to the start of the loop is not found"),
        ("loop:\n", "loop:\n.schedule rotate\n", "no loop here"),
        ("    LDG", "    @P2 LDG", "has a guard of its own"),
        ("P1", "P0", "touches P0"),
        ("    LDG", "    BSYNC B0;\n    LDG", "BSYNC cannot be moved"),
        ("    EXIT", "    @P3 BRA loop;\n    EXIT", "something else leads to loop"),
    ],
)
def test_what_cannot_be_rotated(old: str, new: str, message: str) -> None:
    with pytest.raises(AsmError, match=message):
        turingas.assemble(SUM.replace(old, new))


# -- SGEMM


def test_straightforward_sgemm_is_scheduled_like_that_by_hand() -> None:
    """For 8 k, the codes of the reordered loop add up to at most 2% more cycles than those that were written by hand,
    and to far fewer than without another order."""
    cycles = {variant: cycles for _, variant, _, cycles in static(["sm_90"], (OWN, PLAIN, REORDERED))}
    assert cycles[REORDERED] <= 1.02 * cycles[OWN] and cycles[PLAIN] > 1.1 * cycles[REORDERED]


@pytest.mark.parametrize("arch, m, n, k", [("sm_90", 65, 80, 19)])
def test_straightforward_sgemm_computes_the_same(arch: str, m: int, n: int, k: int) -> None:
    """Bit for bit what the file that is scheduled by hand does: strict, no races, no finding of the linter."""
    random = np.random.default_rng(3)
    a, b = random.standard_normal((m, k)).astype(np.float32), random.standard_normal((k, n)).astype(np.float32)
    results = []
    for variant in (OWN, PLAIN, REORDERED):
        cubin, c = sgemm_of(arch, variant), np.zeros((m, n), np.float32)
        assert not [f for f in turingas.lint(cubin) if f.severity != "note"]
        grid = (-(-n // 128), -(-m // 128))
        args = [a, b, c, *map(np.uint32, (m, n, k))]
        report = launch(cubin, "sgemm", grid, 256, args, strict=True, races=True)
        assert not report.hazards and not report.races
        results.append(c)
    assert np.allclose(results[0], a @ b, atol=1e-4) and all((c == results[0]).all() for c in results)
