"""Right and wrong ways to synchronise (tests/kernels/synchronisation.cu): every fault is reported, and nothing else;
nor is anything of what libcu++ and cooperative groups make of barriers (libraries.cu)."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

import loader
from tests.docs.pages import DOCS
from tests.emulate.orders import order
from tests.tools import nvrtc
from turingas.emulate import DeviceError, phases

pytestmark = pytest.mark.skipif(nvrtc.library_path() is None, reason="needs NVRTC")
KERNELS = Path(__file__).parents[1] / "kernels"
BUDGET = 3000


def zeros(n: int) -> np.ndarray:
    return np.zeros(n, np.uint32)


X = np.arange(640, dtype=np.uint32)
#: grid, block, arguments, and for each fault what is reported: kinds of races, or of an error
TABLE: dict[str, tuple[int, int, list[Any], list[set[str]]]] = {
    "store_out": (1, 128, [zeros(128)], [set(), {"PROXY"}, set(), {"RAW"}, {"PROXY"}, {"PROXY"}]),
    "source_again": (1, 128, [zeros(384)], [set(), {"WAR", "END"}, {"WAR"}, {"WAR", "END"}, {"WAR", "END"}, {"END"}]),
    "ring": (1, 96, [zeros(64), X, np.int32(7)], [
        set(), {"budget"}, {"budget"}, {"WAW", "RAW", "PHASE", "PARITY", "MISSED", "budget"}, {"budget"}, {"budget"},
        {"budget"},
        {"RAW", "WAR"}, {"WAR"}, {"budget"}, {"RAW"}, {"PHASE", "PARITY", "budget"}]),
    "anew": (1, 64, [zeros(64), X], [set(), {"WAR"}, {"RAW"}]),
    "instead": (1, 64, [zeros(64), X], [set(), {"WAR"}]),
    "peer": (2, 64, [zeros(128)], [set(), {"END"}, {"RAW"}, {"RAW"}, {"END"}]),
    "told": (2, 32, [zeros(64)], [set(), {"RAW"}, set(), {"RAW"}]),
    "halves": (2, 128, [zeros(128)], [set(), {"PHASE"}, {"deadlock"}, {"RAW"}]),
    "handed_on": (2, 64, [zeros(128), np.int32(4)], [set(), {"PHASE", "WAR"}]),
    "copy_tells": (1, 64, [zeros(64), X], [set(), {"RAW"}, {"RAW"}, {"budget"}]),
    "copy_groups": (1, 64, [zeros(64), X, np.int32(7)], [set(), {"RAW", "WAW"}, {"RAW"}, {"RAW", "WAR"}]),
    "over": (1, 64, [zeros(64), X], [set(), {"PROXY"}, {"WAR"}, set()]),
    "one_waits": (1, 64, [zeros(64), X], [set(), {"RAW"}, {"RAW"}]),
    "back": (1, 64, [zeros(64), zeros(64)], [set(), {"RAW"}, {"RAW", "END"}]),
    "from_global": (1, 64, [zeros(64), zeros(64)], [set(), {"PROXY"}, {"RAW"}]),
    "stored": (2, 32, [zeros(64)], [set(), {"RAW", "END"}, {"RAW", "END", "PHASE"}]),
    "pushed": (2, 64, [zeros(128)], [set(), {"RAW", "END"}, {"WAR"}, {"PROXY"}, {"END"}]),
    "multicast": (2, 64, [zeros(64), X, np.int32(7)], [
        set(), {"WAW", "WAR", "PHASE"}, {"WAW", "RAW", "PHASE", "PARITY", "MISSED", "budget"}, {"budget"}, {"END"}]),
    "matrices": (1, 128, [zeros(512)], [set(), {"PROXY"}, {"RAW"}, {"WAR"}]),
    "warpgroup": (1, 128, [np.zeros(512, np.float32)], [set(), {"PROXY"}, {"RAW"}, {"WAR"}]),
    "rounds": (1, 64, [zeros(64), np.int32(5)], [
        set(), {"PHASE", "PARITY"}, set(), {"PHASE", "MISSED"}, set(), {"budget"}, {"budget"}]),
    "tokens": (1, 64, [zeros(64), np.int32(4)], [set(), {"budget"}]),
    "dropped": (1, 64, [zeros(64), np.int32(4)], [set(), {"budget"}, {"budget"}]),
    "answers": (1, 64, [zeros(64), np.int32(6)], [set(), {"budget"}, {"budget"}, {"budget"}, set()]),
    "announced": (1, 64, [zeros(64), X], [set(), {"EXPECT"}, {"EXPECT"}, set(), set(), {"PHASE", "MISSED"}]),
    "again": (1, 64, [zeros(64), X], [set(), {"PHASE"}, {"PHASE", "PARITY"}]),
    "rounds_of_two": (2, 32, [zeros(64), np.int32(5)], [set(), {"PHASE"}, {"PHASE", "PARITY"}, set()]),
    "taken": (1, 64, [zeros(64)], [set(), {"WAR"}, {"GONE"}]),
    "stored_in_turn": (2, 32, [zeros(64), np.int32(5)], [set(), {"PHASE", "RAW", "WAW"}, {"WAR"}]),
    "ring_of_copies": (1, 128, [zeros(64), X, np.int32(6)], [
        set(), {"PHASE", "MISSED", "WAR", "WAW"}, {"RAW", "WAW"}]),
    "turns": (1, 128, [zeros(64), X, np.int32(6)], [
        set(), {"MISSED", "WAR"}, {"MISSED"}, {"PHASE", "PARITY", "MISSED", "RAW", "WAW", "budget"},
        {"PARITY", "budget"}]),
}  # fmt: skip


@functools.cache
def cubin(fault: int, arch: str = "sm_90a") -> bytes:
    source = (KERNELS / "synchronisation.cu").read_text()
    return nvrtc.compile_source(source, arch, [f"-DFAULT={fault}"], name="synchronisation.cu")


def said(cubin: bytes, kernel: str, grid: int, block: int, args: list[Any], **options: Any) -> set[str]:
    """Kinds of what is reported."""
    given = [a.copy() if isinstance(a, np.ndarray) else a for a in args]
    try:
        report = loader.load(cubin, "cpu").kernel(kernel).launch(grid, block, *given, **options)
    except DeviceError as error:
        return {error.kind, *(race.kind for race in error.report.races)}
    return {race.kind for race in report.races} | {hazard.kind for hazard in report.hazards}


@pytest.mark.parametrize("name", TABLE)
def test_faults(name: str) -> None:
    grid, block, args, wanted = TABLE[name]
    of_global = name in ("back", "from_global")
    options = {"races": "global" if of_global else True, "budget": BUDGET}
    for fault, kinds in enumerate(wanted):
        assert said(cubin(fault), name, grid, block, args, **options) == kinds, fault


def test_the_documentation_counts_them() -> None:
    faults = sum(bool(kinds) for *_, wanted in TABLE.values() for kinds in wanted)
    assert f"{len(TABLE)} kernels and {faults} faults" in " ".join((DOCS / "emulator.md").read_text().split())


@pytest.mark.parametrize("fault", [0, 1, 4], ids=["right", "wrong", "nobody looks"])
def test_what_is_kept_of_an_mbarrier_does_not_grow(fault: int) -> None:
    kept: list[tuple[int, int]] = []
    over = phases.Phases._over

    def ended(self: phases.Phases, cell: int) -> Any:
        meeting, life = over(self, cell), self.lives[cell]
        kept.append((len(life.ends), len(life.doubts)))
        return meeting

    with patch.object(phases.Phases, "_over", ended):
        said(cubin(fault), "rounds", 1, 64, [zeros(64), np.int32(300)], races=True)
    ends, doubts = zip(*kept)
    assert len(kept) == 300 and max(ends) <= 4 and max(doubts) < 50  # one for each pair of its instructions


@pytest.mark.parametrize("name", ("rounds", "tokens", "dropped"))
def test_before_sm_90(name: str) -> None:
    """Arrivals are atomics, and tests loads: what a test looks for is not seen."""
    grid, block, args, wanted = TABLE[name]
    for fault, kinds in enumerate(wanted):
        found = said(cubin(fault, "sm_80"), name, grid, block, args, races=True, budget=BUDGET)
        assert found - {"PHASE"} == kinds - {"PHASE", "PARITY", "MISSED"} and bool(found) == bool(kinds), fault
        assert "PHASE" in found or "PHASE" not in kinds, fault


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", TABLE)
def test_in_any_order(name: str) -> None:
    """What is wrong is reported, and what is right is not, in whatever order the warps go."""
    grid, block, args, wanted = TABLE[name]
    races = "global" if name in ("back", "from_global") else True
    for fault, kinds in enumerate(wanted):
        for seed in range(3):
            with order(seed, slow=seed % 2 == 1):
                found = said(cubin(fault), name, grid, block, args, races=races, budget=6000)
                assert bool(found) == bool(kinds), (fault, seed)


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90"])
def test_libraries(arch: str) -> None:
    made = nvrtc.compile_source((KERNELS / "libraries.cu").read_text(), arch, name="libraries.cu")
    x = X.astype(np.int32)
    for name in ("barrier", "copied", "pipeline", "roles", "prior", "semaphore", "latch", "flag", "cluster"):
        out, steps = np.zeros(128, np.int32), np.int32(5)
        args = {"copied": [out, x]} | dict.fromkeys(("pipeline", "roles", "prior"), [out, x, steps])
        if name == "cluster" and arch != "sm_90":
            continue
        for races in (True, "global"):
            found = said(made, name, 2 if name == "cluster" else 1, 128, args.get(name, [x]), races=races, strict=True)
            assert not found, name
