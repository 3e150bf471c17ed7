"""Whole products of NVRTC's for sm_90a, of every kind of elements, on a GPU and on the CPU device: the same bits."""

from __future__ import annotations

import pytest

from loader import cuda
from loader.cuda import Buffer
from tests.emulate import whole

pytestmark = pytest.mark.gpu
ARCHS = ("sm_90",)
SEEDS = 4


@pytest.mark.parametrize("blocks", [1, 2])
@pytest.mark.parametrize("text", whole.KINDS)
def test_bits(text: str, blocks: int, gpu: cuda.Device) -> None:
    kind = whole.KINDS[text]
    for seed in range(SEEDS):
        ours = whole.product(kind, blocks, "cpu", seed=seed)[0]
        send, fetch = (lambda a: Buffer.of(a, str(gpu))), (lambda b: b.numpy())
        theirs = whole.product(kind, blocks, str(gpu), send, fetch, seed)[0]
        off = int((ours != theirs).sum())
        assert not off, f"seed {seed}: {off} of {ours.size} words"
