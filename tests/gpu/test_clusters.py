"""Clusters and cooperative launches on a GPU: the bits that the CPU device leaves; tiles to several blocks, too."""

from __future__ import annotations

import subprocess
import sys

import pytest

from loader import cuda
from tests.gpu import clusters

pytestmark = pytest.mark.gpu
ARCHS = ("sm_90",)


@pytest.mark.parametrize("name", clusters.probes())
def test_clusters(name: str, gpu: cuda.Device) -> None:
    assert clusters.ask(name, str(gpu)) == clusters.OK


def test_whose_memory_an_address_means(gpu: cuda.Device) -> None:
    """What reaches the shared memory of the other block, and what does not."""
    command = [sys.executable, "-m", "tests.gpu.reach", "--device", str(gpu)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
