"""Correct kernels give the same, without findings, in whatever order their warps go."""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulate import asynchronous, late_faults
from tests.emulate.orders import order
from tests.tools import nvrtc
from turingas import assemble
from turingas.emulate import launch

pytestmark = pytest.mark.skipif(nvrtc.library_path() is None, reason="needs NVRTC")
NAMES = ("examples/cp_async.sass", "examples/bulk.sass", "bulk copies in and out", "a ring of tiles",
         "a tile from a tensor", "cluster: bulk", "a product of a warp group", "a pipeline of two warp groups",
         *(f"asynchronous: {name}" for name in asynchronous.KERNELS))  # fmt: skip


def test_correct_kernels() -> None:
    wanted = set(NAMES)
    for run in late_faults.runs():
        if run.name not in wanted:
            continue
        wanted.remove(run.name)
        right = run.go(run.cubin)
        for seed in range(2):
            with order(seed):
                seen = late_faults.look(run, run.cubin, 1_000_000)
            assert not seen.said, (run.name, seed, seen.said)
            for ours, theirs in zip(seen.arrays, right, strict=True):
                np.testing.assert_array_equal(ours, theirs, err_msg=f"{run.name} {seed}")
        if not wanted:
            break
    assert not wanted


FIRST = """
.kernel k
.param out 8
.shared 16
--:-:0:-:2  S2R R0, SR_TID.X;
01:-:-:Y:d  SHF.R.U32.HI R3, RZ, 0x5, R0;
--:-:-:-:4  MOV R4, 0x4;
--:-:-:Y:d  IMAD.WIDE R4, R0, R4, c[0x0][0x160];
--:-:-:-:4  MOV R6, RZ;
--:-:-:-:4  MOV R7, 0x1;
--:-:1:-:2  ATOMS.ADD R7, [R6], R7;
02:-:-:-:1  STG.E.SYS [R4], R7;
--:-:-:-:5  EXIT;
"""


def test_orders_differ() -> None:
    """Which warp comes first at an atomic differs from seed to seed, and is the same for the same one."""
    cubin = assemble(FIRST, "sm_75")

    def first(seed: int) -> int:
        out = np.zeros(256, np.int32)
        with order(seed):
            launch(cubin, "k", 1, 256, [out])
        assert sorted(out.tolist()) == list(range(256))
        return int(out.argmin()) // 32

    assert len({first(seed) for seed in range(8)}) > 1 and first(3) == first(3)
