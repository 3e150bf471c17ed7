"""Random programs leave the same bits whichever compiler made them, and in every mode of the CPU device.

``python -m tests.emulate.programs`` runs more of them.
"""

from __future__ import annotations

import pytest

from tests.emulate.programs import COMPILERS, Program, compiled, differences, run
from tests.tools import nvrtc

pytestmark = pytest.mark.skipif(nvrtc.library_path() is None, reason="NVRTC is not installed")


@pytest.mark.parametrize("seed", [2, 3, 4, 8, 16])  # short ones
def test_compilers_agree(seed: int) -> None:
    """Each program with three of the compilers in turn; one of them compiles for debugging or does not optimise."""
    chosen = [COMPILERS[seed % 6], COMPILERS[(seed + 3) % 6], COMPILERS[6 + seed % 2]]
    assert list(differences(seed, chosen, modes=False)) == []


@pytest.mark.parametrize("seed", [2, 4])
def test_modes_agree(seed: int) -> None:
    assert list(differences(seed, [COMPILERS[seed % 6]], modes=True)) == []


def test_a_difference_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """One constant of the program changed for one compiler."""
    program = Program(2)
    program.source = program.source.replace("local[i] = tid * i;", "local[i] = tid * i + 1;")
    monkeypatch.setattr("tests.emulate.programs.compiled", lambda p, arch, options: compiled(
        program if arch == "sm_90" else p, arch, options))  # fmt: skip
    found = list(differences(2, [("sm_80", ()), ("sm_90", ())], modes=False))
    assert len(found) == 1 and "words differ" in found[0]


def test_programs_are_the_same_for_a_seed() -> None:
    assert Program(3).source == Program(3).source != Program(4).source
    cubin = compiled(Program(3), "sm_80")
    assert (run(cubin, 3).memory == run(cubin, 3).memory).all()
