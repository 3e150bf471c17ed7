"""Clusters and cooperative launches on a GPU: the bits that the CPU device leaves; tiles to several blocks, too."""

from __future__ import annotations

import pytest

from loader import cuda
from tests.gpu import clusters

pytestmark = pytest.mark.gpu
ARCHS = ("sm_90",)
KNOWN = pytest.mark.xfail(strict=True, reason="an illegal instruction (715), whose cause is not known")


@pytest.mark.parametrize(
    "name",
    [name for name in clusters.probes() if name.startswith("cuda")] + [pytest.param("hgemm: as it is", marks=KNOWN)],
)
def test_clusters(name: str, gpu: cuda.Device) -> None:
    assert clusters.ask(name, str(gpu)) == clusters.OK
