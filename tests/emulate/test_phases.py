"""--races of mbarriers against all interleavings of small programs: it reports those that have several outcomes, in
whatever order it runs them, and no other ones."""

from __future__ import annotations

import functools
import random

import pytest

import loader
from tests.emulate.interleavings import SOURCE, WRONG, Bar, Op, Program, outcomes, some, text
from tests.emulate.orders import order
from tests.tools import nvrtc
from turingas.emulate import DeviceError

pytestmark = pytest.mark.skipif(nvrtc.library_path() is None, reason="needs NVRTC")
BUDGET = 5000


@functools.cache
def kernel(arch: str) -> loader.Kernel:
    return loader.load(nvrtc.compile_source(SOURCE, arch), "cpu").kernel("k")


def said(program: Program, arch: str = "sm_90") -> set[str]:
    """What is reported, but for the end of a block that has not heard of all copies: nobody waits for those."""
    arguments, threads = program.arguments(), 32 * len(program.warps)
    try:
        report = kernel(arch).launch(1, threads, *arguments, races=True, budget=BUDGET)
    except DeviceError as error:
        return {error.kind, *(race.kind for race in error.report.races)}
    return {race.kind for race in report.races} - {"END"}


def right(program: Program) -> bool | None:
    found = outcomes(program)
    return None if found is None else len(found) == 1 and WRONG not in found


def check(seed: int, programs: int, copies: bool) -> dict[bool, int]:
    """How many of so many programs were right, and wrong."""
    rng, counts = random.Random(seed), {True: 0, False: 0}
    while sum(counts.values()) < programs:
        program = some(rng, copies)
        if (good := right(program)) is None:
            continue
        counts[good] += 1
        assert bool(said(program)) != good, text(program)
        with order(rng.randrange(1 << 20), slow=rng.random() < 0.5):
            assert bool(said(program)) != good, text(program)
    return counts


def test_the_model() -> None:
    bar = Bar(0, 2).told(2, arrivals=1, expected=16)
    assert bar == Bar(0, 1, 16) and bar.told(2, complete=16) == Bar(0, 1, 0)
    assert bar.told(2, arrivals=1) == Bar(0, 0, 16) and Bar(0, 0, 16).told(2, arrivals=1) is None
    assert Bar(0, 0, 16).told(2, complete=16) == Bar(1, 2)
    arrive, first, second = Op("arrive"), Op("wait", 0, 0), Op("wait", 0, 1)
    assert right(Program(((arrive, first, arrive, second), (arrive, first, arrive)), (2,)))
    assert not right(Program(((arrive, arrive, first, second), (arrive, arrive)), (2,)))  # it may miss the first phase
    assert not right(Program(((arrive, first, second),), (1,)))
    assert right(Program(((Op("bytes"), Op("copy"), first),), (1,)))
    assert not right(Program(((Op("arrive"), Op("expect"), Op("copy"), first), (arrive,)), (2,)))


@pytest.mark.parametrize("copies", [False, True], ids=["arrivals", "copies"])
def test_programs(copies: bool) -> None:
    counts = check(1, 30, copies)
    assert min(counts.values()) > 8


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_more_programs(seed: int) -> None:
    check(100 + seed, 250, copies=seed % 2 == 1)
