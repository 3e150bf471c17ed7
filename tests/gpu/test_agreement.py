"""Every test kernel on a GPU (sm_90): it does what numpy says, and the emulator leaves the same bits.

TURINGAS_RECORD names a file for the result, as docs/results/agreement_sm90.json keeps it.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.gpu.cuda import Gpu
from tests.kernels.cases import CASES, Case, difference, digest, largest
from turingas.emulate import launch

pytestmark = pytest.mark.gpu

HERE = [case for case in CASES if "sm_90" in case.archs]


@pytest.fixture(scope="module")
def gpu() -> Iterator[Gpu]:
    found = Gpu()
    yield found
    found.call("cuDevicePrimaryCtxRelease", found.device)


@pytest.fixture(scope="module")
def results(gpu: Gpu) -> Iterator[dict[str, Any]]:
    """What the tests find out, case by case; written down at the end where that is asked for."""
    cases: dict[str, Any] = {}
    yield cases
    if path := os.environ.get("TURINGAS_RECORD"):
        facts = {"date": datetime.date.today().isoformat(), "commit": commit(), **gpu.description()}
        Path(path).write_text(json.dumps({**facts, "cases": cases}, indent=1) + "\n")


def commit() -> str:
    """The commit that is tested, as git or, where there is none, TURINGAS_COMMIT says."""
    if named := os.environ.get("TURINGAS_COMMIT"):
        return named
    return subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.parametrize("case", HERE, ids=lambda case: case.name)
def test_agreement(case: Case, gpu: Gpu, results: dict[str, Any]) -> None:
    cubin = case.cubin("sm_90")
    on_gpu, truth = case.build()
    gpu.run(cubin, case.kernel, case.grid, case.block, on_gpu, case.shared)
    for found, expected in zip(on_gpu, truth):
        if expected is not None:
            assert not (problem := difference(found, expected, case.near)), f"the GPU and numpy: {problem}"

    on_cpu, _ = case.build()
    report = launch(cubin, case.kernel, case.grid, case.block, on_cpu, shared=case.shared)
    buffers = [(a, b) for a, b in zip(on_gpu, on_cpu) if isinstance(a, np.ndarray)]
    results[case.name] = {
        "bit_equal": all(a.tobytes() == b.tobytes() for a, b in buffers),
        "largest_difference": max(largest(a, b) for a, b in buffers),
        "allowed": case.devices,
        "warp_instructions": report.instructions,
        "cubin": hashlib.sha256(cubin).hexdigest()[:16],
        "gpu_left": digest([a for a, _ in buffers]),
    }
    for a, b in buffers:
        assert not (problem := difference(b, a, case.devices, one_nan=False)), f"the emulator and the GPU: {problem}"
