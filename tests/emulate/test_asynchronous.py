"""Whole asynchronous kernels on the CPU device: right against numpy in every mode, and without a finding."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import loader
from tests.emulate import asynchronous
from tests.tools import nvrtc

pytestmark = pytest.mark.skipif(nvrtc.library_path() is None, reason="needs NVRTC")
MODES: list[dict[str, Any]] = [{}, {"strict": True, "races": True}, {"races": "global"}, {"stale": True}]


@pytest.mark.parametrize("options", MODES, ids=str)
@pytest.mark.parametrize("name", asynchronous.KERNELS)
def test_kernels(name: str, options: dict[str, Any]) -> None:
    made = asynchronous.KERNELS[name](lambda array: array)
    kernel = loader.load(asynchronous.cubin(), "cpu").kernel(name)
    report = kernel.launch(made.grid, made.block, *made.args, shared=made.shared, **options)
    assert not report.hazards and not report.races
    for array, wanted in made.arrays:
        assert np.abs(array.astype(float) - wanted).max() <= made.error
