"""Every test kernel on the CPU device: it leaves in memory what numpy says, and for sm_90 what an H200 left.

Each case runs for sm_75 and sm_90, and for one of the other architectures in turn; TURINGAS_ALL_ARCHS=1 runs all.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.kernels import cases
from tests.kernels.cases import CASES, Case, difference
from tests.tools import nvrtc
from turingas.emulate import launch

pytestmark = pytest.mark.skipif(nvrtc.library_path() is None, reason="NVRTC is not installed")

RESULT = Path(__file__).parents[2] / "kernels_sass" / "results" / "agreement_sm90.json"
ALWAYS = ("sm_75", "sm_90")


@pytest.fixture(scope="module", autouse=True)
def compiled_once(request: pytest.FixtureRequest) -> Iterator[None]:
    """Compiled kernels stay in pytest's cache, for all workers and later runs."""
    with pytest.MonkeyPatch.context() as patch:
        if "TURINGAS_CUBINS" not in os.environ and request.config.cache:
            patch.setenv("TURINGAS_CUBINS", str(request.config.cache.mkdir("cubins")))
        yield


def runs() -> Iterator[tuple[Case, str]]:
    for number, case in enumerate(CASES):
        others = [arch for arch in case.archs if arch not in ALWAYS]
        for arch in case.archs:
            chosen = arch in ALWAYS or arch == others[number % len(others)]
            if chosen or os.environ.get("TURINGAS_ALL_ARCHS"):
                yield case, arch


def run(case: Case, arch: str) -> list[np.ndarray]:
    """What the emulator leaves in the buffers, after it is held against numpy's truth."""
    args, truth = case.build()
    watched = {"written": True, "races": True, "counters": True} if arch != "sm_90" else {}  # no false alarms
    report = launch(case.cubin(arch), case.kernel, case.grid, case.block, args, shared=case.shared, **watched)
    assert report.instructions > 0 and report.races == []
    for n, (found, expected) in enumerate(zip(args, truth)):
        if expected is not None:
            assert not (problem := difference(found, expected, case.near)), f"buffer {n}: {problem}"
    return [arg for arg in args if isinstance(arg, np.ndarray)]


@pytest.mark.parametrize(("case", "arch"), list(runs()), ids=lambda value: getattr(value, "name", value))
def test_kernel(case: Case, arch: str) -> None:
    left = run(case, arch)
    kept = recorded().get(case.name)
    if arch != "sm_90" or kept is None or case.devices:
        return
    if hashlib.sha256(case.cubin(arch)).hexdigest()[:16] == kept["cubin"]:  # not of another NVRTC
        assert cases.digest(left) == kept["gpu_left"], "an H200 left other bits"


def recorded() -> dict[str, dict[str, str]]:
    """The last result of tests/gpu/test_agreement.py."""
    found: dict[str, dict[str, str]] = json.loads(RESULT.read_text())["cases"]
    return found


def test_the_last_result_of_the_gpu_has_every_case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new or changed kernel has to go through tests/gpu/test_agreement.py before it counts. (Hand-written ones are
    left out: their cubins change with the assembler.) On a busy machine every fifth time NVRTC 12.9 makes other code
    of memory.cu, so it is asked again."""
    here = [case for case in CASES if "sm_90" in case.archs]
    assert set(recorded()) == {case.name for case in here}
    if nvrtc.version() == (12, 9):
        stale = [case for case in here if case.source.endswith(".cu")]
        for attempt in range(10):
            made = {source: cases.cubin.__wrapped__(source, "sm_90") for source in {case.source for case in stale}}
            digests = {source: hashlib.sha256(cubin).hexdigest()[:16] for source, cubin in made.items()}
            stale = [case for case in stale if digests[case.source] != recorded()[case.name]["cubin"]]
            for name in ("TURINGAS_CACHE", "TURINGAS_CUBINS"):  # nothing that was kept
                monkeypatch.setenv(name, str(tmp_path / f"{name} {attempt}"))
        assert [case.name for case in stale] == []


@pytest.mark.parametrize(
    ("found", "truth", "near", "same"),
    [
        (np.float32([0.0]), np.float32([-0.0]), None, False),
        (np.float32([np.nan]), np.uint32([0x7F800001]).view(np.float32), None, True),
        (np.float32([1.0]), np.float32([1.0000001]), None, False),
        (np.float32([1.0]), np.float32([1.0000001]), (1e-6, 0.0), True),
        (np.float32([np.inf]), np.float32([3e38]), (1e-6, 0.0), False),
        (np.float32([np.nan]), np.float32([1.0]), (1e-6, 1.0), False),
        (np.int32([1, 2]), np.int32([1, 3]), (1.0, 1.0), False),
    ],
)
def test_difference(found: np.ndarray, truth: np.ndarray, near: tuple[float, float] | None, same: bool) -> None:
    assert (difference(found, truth, near) == "") == same
