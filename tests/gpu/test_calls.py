"""printf, assert and __trap on a GPU: the text that the CPU device prints, and the end that it says."""

from __future__ import annotations

import subprocess
import sys

import pytest

from loader import cuda
from tests.gpu import calls

pytestmark = pytest.mark.gpu
ARCHS = ("sm_90",)
#: in the driver's message. Of a trap not known yet which one it is
ENDS = {"assert": ("ASSERT",), "trap": ("LAUNCH_FAILED", "ILLEGAL_INSTRUCTION")}


def said(name: str, device: str) -> tuple[list[str], str]:
    command = [sys.executable, "-m", "tests.gpu.calls", name, device]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines(), done.stderr


@pytest.mark.parametrize("name", calls.NAMES)
def test_calls(name: str, gpu: cuda.Device) -> None:
    (ours, here), (theirs, there) = said(name, "cpu"), said(name, str(gpu))
    if name not in ENDS:
        assert theirs == ours
        return
    assert theirs[:-1] == ours[:-1], "what was printed before"
    assert ours[-1] == f": error {name}" and any(end in theirs[-1] for end in ENDS[name]), theirs
    if name == "assert":
        assert "order(int *)" in here and 'Assertion `x[3] == 0 && "three"` failed' in there
