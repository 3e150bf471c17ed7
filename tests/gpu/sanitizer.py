"""compute-sanitizer, where it is installed."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")


def sanitizer() -> str:
    """Where it is; without it the test is skipped."""
    found = shutil.which("compute-sanitizer") or shutil.which("compute-sanitizer", path="/usr/local/cuda/bin")
    if found is None:
        pytest.skip("compute-sanitizer is not here")
    return found


def watch(tool: str, module: str, timeout: float | None = 300) -> str:
    """What ``python -m module`` prints under a tool, which finds nothing."""
    command = [sanitizer(), "--tool", tool, "--error-exitcode", "9", sys.executable, "-m", module]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
    right = "SUMMARY: 0 hazards" if tool == "racecheck" else "SUMMARY: 0 errors"
    assert done.returncode == 0 and right in done.stdout, (done.stdout + done.stderr)[-6000:]
    return done.stdout
