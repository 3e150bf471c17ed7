"""Whole asynchronous kernels on a GPU: what the same numpy says as for the CPU device, exactly but for attention."""

from __future__ import annotations

import numpy as np
import pytest

import loader
from loader import cuda
from loader.cuda import Buffer
from tests.emulate import asynchronous

pytestmark = pytest.mark.gpu
ARCHS = ("sm_90",)


@pytest.mark.parametrize("name", asynchronous.KERNELS)
def test_kernels(name: str, gpu: cuda.Device) -> None:
    made = asynchronous.KERNELS[name](lambda array: Buffer.of(array, gpu))
    with loader.load(asynchronous.cubin(), str(gpu)) as module:
        module.kernel(name).launch(made.grid, made.block, *made.args, shared=made.shared)
        for array, wanted in made.arrays:
            assert np.abs(array.numpy().astype(float) - wanted).max() <= made.error
