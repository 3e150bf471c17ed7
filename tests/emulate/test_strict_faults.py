"""No misses: of faults in correct kernels that matter in a run, the scoreboard mode reports at least 99%. The larger
run is ``python -m tests.emulate.strict_faults``."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

import turingas
from tests.check import faults
from tests.emulate import strict_faults
from tests.emulate.strict_faults import Broken, Oracle, Result
from tests.emulate.test_kernels import compiled_once  # noqa: F401
from tests.kernels.cases import CASES
from tests.tools import nvrtc
from turingas.emulate import launch

ENOUGH = 0.99
needs_nvrtc = pytest.mark.skipif(nvrtc.library_path() is None, reason="NVRTC is not installed")
# what each architecture runs: every source somewhere
SOURCES = {
    "sm_70": ("warps.cu", "memory.cu"),
    "sm_75": ("control.cu", "matrices.cu"),
    "sm_80": ("classics.cu", "async.cu"),
    "sm_86": ("numbers.cu", "fast.cu", "halves.cu"),
    "sm_89": ("groups.cu", "warps.cu", "matrices.cu"),
    "sm_90": ("classics.cu", "async.cu"),
}
SLOW = (
    "atomics", "bitonic", "collatz", "coalesced", "divergence", "double_functions", "doubles", "floats", "functions",
    "horspool", "integers", "longs", "nans", "recursion", "scan", "spin_lock", "stack", "warp_lock",
)  # fmt: skip


def cases(arch: str) -> Iterator[strict_faults.Case]:
    for case in CASES:
        if arch in case.archs and case.source in SOURCES[arch] and case.name not in SLOW:
            yield case


@pytest.mark.sample(2)
@needs_nvrtc
@pytest.mark.parametrize("arch", SOURCES)
def test_compiled(arch: str) -> None:
    dice, result = random.Random(arch), Result()
    for case in cases(arch):
        strict_faults.run(Broken(case, arch), 1, dice, result)
    assert result.real.total() >= 16 and len(result.real) == len(faults.KINDS), str(result)
    assert result.seen.total() >= ENOUGH * result.real.total(), str(result)
    assert result.alarms <= 0.05 * result.harmless, str(result)


def test_written_by_hand() -> None:
    dice, result = random.Random(0), Result()
    case = next(case for case in CASES if case.source == "parts.sass")
    for arch in case.archs:
        strict_faults.run(Broken(case, arch), 2, dice, result)
    assert result.real.total() >= 12
    assert result.seen.total() >= ENOUGH * result.real.total(), str(result)


# -- the oracle itself


def uses(text: str, threads: int = 32) -> set[faults.Use]:
    """What goes wrong when a block of ``threads`` runs a kernel."""
    source = ".arch sm_75\n.kernel k\n" + text.replace("; ", ";\n") + ";\n--:-:-:-:5 EXIT;\n"
    with strict_faults.noted() as (waves, events):
        launch(turingas.assemble(source), "k", 1, threads, [], strict=True)
    oracle = Oracle(waves[0].image, [tuple(path) for path in events.values()])
    return {use for *_, found, _ in oracle.begun for use in found}


def test_oracle_of_stalls() -> None:
    assert uses("--:-:-:-:4 MOV R0, R1; --:-:-:-:4 MOV R2, R0") == set()
    assert uses("--:-:-:-:3 MOV R0, R1; --:-:-:-:4 MOV R2, R0") == {(0, 1, "raw")}
    # only on the way that is taken
    assert uses("--:-:-:-:3 MOV R0, R1; --:-:-:-:5 @!PT BRA far; --:-:-:-:5 EXIT; far: --:-:-:-:1 MOV R2, R0") == set()


def test_oracle_of_scoreboards() -> None:
    right = "--:-:0:-:2 S2R R0, SR_TID.X; 01:1:-:-:8 STS [RZ], R0; 02:-:-:-:4 MOV R0, R1"
    shared = ".shared 4\n"
    assert uses(shared + right) == set()
    assert uses(shared + right.replace("01:1", "--:1")) == {(0, 1, "raw")}
    assert uses(shared + right.replace("02:-", "--:-")) == {(1, 2, "war")}
    assert uses(shared + right.replace("R0, R1", "R1, R0")) == set()
    assert uses(shared + right.replace("-:2 S2R", "-:1 S2R")) == {(0, 1, "raw")}  # the wait comes too soon


def test_oracle_of_lanes() -> None:
    guard = "--:-:0:-:2 S2R R0, SR_TID.X; 01:-:-:Y:13 ISETP.GT.AND P0, PT, R0, 0x3, PT; "
    assert uses(guard + "--:-:-:-:1 @P0 MOV R1, R0; --:-:-:-:8 @P0 MOV R2, R1") == {(2, 3, "raw")}
    assert uses(guard + "--:-:-:-:1 @P0 MOV R1, R0; --:-:-:-:8 @!P0 MOV R2, R1") == set()
    assert uses(guard + "--:-:-:-:1 @P0 MOV R1, R0; --:-:-:-:8 MOV R2, R1") == {(2, 3, "raw")}
    assert uses(guard + "--:-:-:-:1 @P0 MOV R1, R0; --:-:-:-:8 MOV R2, R1", threads=4) == set()


def test_a_kernel_that_is_not_correct_is_refused() -> None:
    broken = Broken(next(case for case in CASES if case.source == "parts.sass"), "sm_75")
    broken.clean = False
    with pytest.raises(ValueError, match="not correct"):
        strict_faults.run(broken, 1, random.Random(0), Result())
