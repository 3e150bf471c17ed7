"""Architectures that issue as an older one: what NVRTC makes for them is clean for the linter, and runs right."""

from __future__ import annotations

import pytest

import turingas
from tests.kernels.cases import CASES, difference
from turingas.emulate import launch
from turingas.isa.arch import ARCHS

DRAWN = [case for number, case in enumerate(CASES) if case.source.endswith(".cu") and number % 6 == 5]


@pytest.mark.parametrize(("arch", "like"), [("sm_72", "sm_70"), ("sm_87", "sm_86")])
def test_compiled_code(arch, like):
    assert ARCHS[arch].latency == like
    drawn = [case for case in DRAWN if like in case.archs and case.source != "async.cu"]
    assert len(drawn) > 5
    for case in drawn:
        args, truth = case.build()
        report = launch(case.cubin(arch), case.kernel, case.grid, case.block, args, shared=case.shared, strict=True)
        assert not report.hazards, (case.name, report.hazards[:1])
        for found, expected in zip(args, truth):
            assert expected is None or not (problem := difference(found, expected, case.near)), (case.name, problem)
    for source in sorted({case.source for case in drawn}):
        cubin = turingas.Cubin.from_bytes(next(case for case in drawn if case.source == source).cubin(arch))
        assert [str(finding) for finding in turingas.lint(cubin) if finding.severity != "note"] == []
