"""Every test kernel on a GPU (sm_90): it does what numpy says, the emulator leaves the same bits, and counts what
Nsight Compute (ncu) counts.

TURINGAS_RECORD names a file for the result, as kernels_sass/results/agreement_sm90.json keeps it; what it has is kept.
"""

from __future__ import annotations

import csv
import datetime
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.gpu.cuda import Gpu
from tests.gpu.keep import keep
from tests.kernels.cases import CASES, Case, difference, digest, largest
from turingas.emulate import launch

pytestmark = pytest.mark.gpu

HERE = [case for case in CASES if "sm_90" in case.archs]


@pytest.fixture(scope="module")
def gpu() -> Iterator[Gpu]:
    found = Gpu()
    yield found
    found.call("cuDevicePrimaryCtxRelease", found.device)


def record(gpu: Gpu, part: str, name: str, found: Any) -> None:
    """Of a case."""
    keep("TURINGAS_RECORD", lambda: facts(gpu), {part: {name: found}})


def facts(gpu: Gpu) -> dict[str, Any]:
    """What a result is dated with."""
    return {"date": datetime.date.today().isoformat(), "commit": commit(), **gpu.description()}


def commit() -> str:
    """The commit that is tested, as git or, where there is none, TURINGAS_COMMIT says."""
    if named := os.environ.get("TURINGAS_COMMIT"):
        return named
    return subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.parametrize("case", HERE, ids=lambda case: case.name)
def test_agreement(case: Case, gpu: Gpu) -> None:
    cubin = case.cubin("sm_90")
    on_gpu, truth = case.build()
    gpu.run(cubin, case.kernel, case.grid, case.block, on_gpu, case.shared)
    for found, expected in zip(on_gpu, truth):
        if expected is not None:
            assert not (problem := difference(found, expected, case.near)), f"the GPU and numpy: {problem}"

    on_cpu, _ = case.build()
    report = launch(cubin, case.kernel, case.grid, case.block, on_cpu, shared=case.shared)
    buffers = [(a, b) for a, b in zip(on_gpu, on_cpu) if isinstance(a, np.ndarray)]
    found = {
        "bit_equal": all(a.tobytes() == b.tobytes() for a, b in buffers),
        "largest_difference": max(largest(a, b) for a, b in buffers),
        "allowed": case.devices,
        "warp_instructions": report.instructions,
        "cubin": hashlib.sha256(cubin).hexdigest()[:16],
        "gpu_left": digest([a for a, _ in buffers]),
    }
    record(gpu, "cases", case.name, found)
    for a, b in buffers:
        assert not (problem := difference(b, a, case.devices, one_nan=False)), f"the emulator and the GPU: {problem}"


# ---- counters ----------------------------------------------------------------------------------------------------

#: ncu's column for each of our counters
COLUMNS = {
    "warps": "Instructions Executed",
    "lanes": "Predicated-On Thread Instructions Executed",
    "wavefronts": "L1 Wavefronts Shared",
    "ideal": "L1 Wavefronts Shared Ideal",
    "sectors": "L2 Theoretical Sectors Global",
}
#: their threads spin: how often depends on who comes first
SPIN = ("scan", "warp_lock", "spin_lock", "handshake", "atomics")
#: what is counted in warps depends here on which threads of a warp happen to run together, which no one promises
PARTED = {"search": ("warps",), "horspool": ("warps",), "stack": ("warps",), "floats": ("warps",),
          "recursion": ("warps", "sectors")}  # fmt: skip
#: they read variables of the module, which the driver places in sectors as it likes
PLACED = {"indirect": ("sectors",), "constants": ("sectors",)}
#: they begin mbarriers: SYNCS.EXCH is a wavefront to ncu on an H200, as it is here, and none on an H100
BEGUN = {"mbarrier": ("wavefronts", "ideal"), "bulk": ("wavefronts", "ideal")}


def profiled(report: Path, names: list[str]) -> Iterator[list[dict[str, int]]]:
    """ncu's counters of each case: a row an instruction."""
    record = [sys.executable, "-m", "tests.gpu.record", str(report.with_suffix(".npz")), *names]
    options = ["--clock-control", "none", "--section", "SourceCounters", "-f", "-o", str(report)]
    subprocess.run(["ncu", *options, *record], check=True, capture_output=True)
    page = ["ncu", "-i", f"{report}.ncu-rep", "--page", "source", "--csv", "--print-source", "sass"]
    text = subprocess.run(page, check=True, capture_output=True, text=True).stdout
    rows: list[dict[str, int]] = []
    for line in csv.reader(text.splitlines()):
        if line[:1] == ["Kernel Name"]:
            if rows:
                yield rows
            rows = []
        elif line[:1] == ["Address"]:
            head = line
        elif line:
            cells = dict(zip(head, line))
            rows.append({name: int(cells.get(column, 0)) for name, column in COLUMNS.items()})
    yield rows


@pytest.mark.alone
def test_counters(gpu: Gpu, tmp_path: Path) -> None:
    if shutil.which("ncu") is None:
        pytest.skip("ncu is not installed")
    counted = [case for case in HERE if case.name not in SPIN]
    wrong = []
    tables = list(profiled(tmp_path / "report", [case.name for case in counted]))
    assert len(tables) == len(counted)
    for case, table in zip(counted, tables):
        (args, _), cubin = case.build(), case.cubin("sm_90")
        report = launch(cubin, case.kernel, case.grid, case.block, args, shared=case.shared, counters=True)
        totals = {}
        for name in COLUMNS:
            theirs = np.array([row[name] for row in table])
            ours = getattr(report.counters, name)[: len(table)]
            totals[name] = [int(theirs.sum()), int(ours.sum())]
            open_ = any(name in known.get(case.name, ()) for known in (PARTED, PLACED, BEGUN))
            if not open_ and (different := np.flatnonzero(theirs != ours)).size:
                n = int(different[0])
                wrong.append(f"{case.name}: {name} at {16 * n:#x}: ncu {theirs[n]}, here {ours[n]} ({different.size})")
        record(gpu, "counters", case.name, totals)
    assert wrong == []
