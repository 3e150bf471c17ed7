"""Tests of kernels without a GPU: `pytest examples/testing --turingas-strict --turingas-races`."""

from pathlib import Path

import numpy as np
import pytest

from turingas.testing import cuda, triton_launch, using

HERE = Path(__file__).parent
RANDOM = np.random.default_rng(0)


@pytest.mark.parametrize("n", [1, 100, 1000, 1024])
def test_scaled_sum(n):
    triton = pytest.importorskip("triton")
    from kernels import scaled_sum

    x, y = RANDOM.standard_normal((2, n), np.float32)
    out = np.full(n, np.nan, np.float32)
    triton_launch(scaled_sum, lambda meta: (triton.cdiv(n, meta["BLOCK"]),), x, y, out, n, 2.5, BLOCK=256, num_warps=2)
    np.testing.assert_allclose(out, x * 2.5 + y, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90"])
def test_softmax(arch):
    pytest.importorskip("triton")
    from kernels import softmax

    x = RANDOM.standard_normal((5, 100), np.float32)
    y = np.empty_like(x)
    with using(arch=arch):
        triton_launch(softmax, 5, x, y, 100, BLOCK=128)
    wanted = np.exp(x) / np.exp(x).sum(1, keepdims=True)
    np.testing.assert_allclose(y, wanted, rtol=1e-5)


@pytest.mark.turingas(races=True)  # whatever the command line says
def test_sums():
    x = RANDOM.standard_normal(1000).astype(np.float32)
    out = np.zeros(8, np.float32)
    cuda(HERE / "sums.cu").launch(8, 128, out, x, len(x))
    np.testing.assert_allclose(out, np.append(x, np.zeros(24)).reshape(8, 128).sum(1), rtol=1e-4)
