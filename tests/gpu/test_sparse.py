"""Products of a warp with a sparse A (mma.sp) on a GPU against the CPU device: which lanes hold which metadata, bit for
bit."""

from __future__ import annotations

import numpy as np
import pytest

import loader
from loader import nvrtc
from loader.cuda import Buffer
from tests.emulate.sparse import CASES, WARPS, Kind, name, operands, source

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def modules():
    cubin = nvrtc.compile(source(), "sm_90a")
    return loader.load(cubin, "cpu"), loader.load(cubin, "cuda:0")


@pytest.mark.parametrize("kind, selector", CASES, ids=lambda one: str(one) if isinstance(one, int) else one.types)
def test_same_bits(kind: Kind, selector: int, modules) -> None:
    given = operands(kind)
    here, there = np.zeros((WARPS, 32, 4), np.uint32), Buffer.of(np.zeros((WARPS, 32, 4), np.uint32))
    for module, args in zip(modules, ((given, here), (Buffer.of(given), there))):
        module.kernel(name(kind, selector)).launch(WARPS, 32, *args)
    assert not (here != there.numpy()).any()
