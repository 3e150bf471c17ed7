"""What tests/gpu/ask.py asks: the card and the CPU device say the same, or the CPU device refuses."""

from __future__ import annotations

import subprocess
import sys

import pytest

from loader import cuda

pytestmark = pytest.mark.gpu
ARCHS = ("sm_90",)


@pytest.mark.alone
def test_questions(gpu: cuda.Device) -> None:
    command = [sys.executable, "-m", "tests.gpu.ask", "--device", str(gpu)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=400)
    lines = done.stdout.splitlines()
    off = [line for line in lines if line.startswith(("!", "?"))]
    assert done.returncode == 0 and not off and " questions: " in lines[-1], (off or lines[-3:], done.stderr[-2000:])
