"""A sample of ``late_faults``: each fault is reported, or shown to change nothing; correct kernels have no finding."""

from __future__ import annotations

import hashlib

import pytest

from tests.emulate import late_faults
from tests.emulate.late_faults import Fault, Run
from tests.tools import nvrtc
from turingas import assemble

pytestmark = pytest.mark.skipif(nvrtc.library_path() is None, reason="needs NVRTC")
NAMES = ("examples/cp_async.sass", "bulk copies in and out", "cluster: asynchronous", "a product of a warp group")


def picked(name: str, fault: Fault) -> bool:
    """A third of them, always the same."""
    return hashlib.sha1(f"{name} {fault.kind} {fault.number}".encode()).digest()[0] % 3 == 0


LOOP = """
.arch sm_90
.kernel k
again:
SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [UR4+0x8], R2;
@!P0 NANOSLEEP 0x10;
@!P0 SYNCS.PHASECHK.TRANS64 P0, [UR4+0x8], R2;
@!P0 BRA again;
SYNCS.PHASECHK.TRANS64.TRYWAIT P1, [UR4], R2;
@P1 EXIT;
EXIT;
"""


def test_guards_stay() -> None:
    """What is put in the place of an instruction runs when that did."""
    run = Run("a loop", assemble(LOOP).to_bytes(), "k", lambda cubin, **options: [])
    code = late_faults.decoded(run.cubin, "k")
    found = [fault for fault in late_faults.faults(code, 0) if fault.number == 2]
    assert [fault.kind for fault in found] == ["wait", "stage"]
    for fault in found:
        one = late_faults.decoded(late_faults.broken(run, fault), "k")[2]
        assert one is not None and one.text().startswith("@!P0 ") and one.text() != code[2].text()  # type: ignore[union-attr]


def test_which_test_follows() -> None:
    code = late_faults.decoded(assemble(LOOP).to_bytes(), "k")
    assert [late_faults.tested_again(code, n) for n in (0, 2, 4)] == [2, 0, None]


def test_a_sample() -> None:
    kinds = set()
    wanted = set(NAMES)
    for run in late_faults.runs():
        if run.name not in wanted:
            continue
        wanted.remove(run.name)
        for fault, said, why, _ in late_faults.verdicts(run, lambda fault, name=run.name: picked(name, fault)):  # type: ignore[misc]
            if fault is None:
                assert not said, run.name
                continue
            assert said or why, (run.name, fault)
            kinds.add(fault.kind if said else why)
        if not wanted:
            break
    assert len(kinds) >= 5
