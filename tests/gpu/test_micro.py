"""`turingas bench smem`, `ffma`, `hmma`, `roofline` on a real GPU: all results are right, rates are what an SM has."""

from __future__ import annotations

import pytest

from kernels_sass.bench import roofline
from kernels_sass.micro import loops, micro, smem

pytestmark = [pytest.mark.gpu, pytest.mark.alone]
ARCHS = ("sm_70", "sm_75", "sm_80", "sm_86", "sm_89", "sm_90")


@pytest.mark.parametrize("what", micro.KINDS)
def test_right(gpu, what, monkeypatch):
    monkeypatch.setattr(loops, "ROUNDS", 16)
    monkeypatch.setattr(loops, "LAUNCHES", 3)
    rows = {name: case.measure(gpu) for name, case in micro.KINDS[what](gpu.arch).items()}
    assert not [(name, row["status"]) for name, row in rows.items() if row["status"] != "ok"]


def test_no_faster_than_the_banks(gpu):
    """A wavefront takes a cycle, or two where 64 bytes a cycle are all there is."""
    for name, case in smem.cases(gpu.arch).items():
        assert case.measure(gpu)["cpi"] > 0.98 * case.more["wavefronts"], name


def test_ceilings(gpu, monkeypatch):
    monkeypatch.setattr(roofline, "RUNS", 3)
    for name, case in roofline.ceilings(gpu.arch).items():
        row = case.measure(gpu)
        assert row["status"] == "ok" and row["tera"] > 0, name
