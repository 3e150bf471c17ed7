"""A sample of ``late_faults``: each fault is reported, or shown to change nothing; correct kernels have no finding."""

from __future__ import annotations

import hashlib

import pytest

from tests.emulate import late_faults
from tests.emulate.late_faults import Fault
from tests.tools import nvrtc

pytestmark = pytest.mark.skipif(nvrtc.library_path() is None, reason="needs NVRTC")
NAMES = ("examples/cp_async.sass", "bulk copies in and out", "cluster: asynchronous", "a product of a warp group")


def picked(name: str, fault: Fault) -> bool:
    """A third of them, always the same."""
    return hashlib.sha1(f"{name} {fault.kind} {fault.number}".encode()).digest()[0] % 3 == 0


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
