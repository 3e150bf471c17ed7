"""Control codes that nobody wrote, on a GPU: the bits that NVIDIA's own codes give."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from tests.gpu.cuda import Gpu
from tests.kernels.cases import CASES, Case
from turingas.assembler.schedule import again
from turingas.cubin.cubin import Cubin

pytestmark = pytest.mark.gpu
_AGAIN: dict[bytes, bytes] = {}


@pytest.fixture(scope="module")
def gpu() -> Iterator[Gpu]:
    found = Gpu()
    yield found
    found.call("cuDevicePrimaryCtxRelease", found.device)


def left(gpu: Gpu, cubin: bytes, case: Case) -> list[bytes]:
    args, _ = case.build()
    gpu.run(cubin, case.kernel, case.grid, case.block, args, case.shared)
    return [arg.tobytes() for arg in args if isinstance(arg, np.ndarray)]


@pytest.mark.parametrize("case", [case for case in CASES if "sm_90" in case.archs], ids=lambda case: case.name)
def test_same_bits(case: Case, gpu: Gpu) -> None:
    data = case.cubin("sm_90")
    if data not in _AGAIN:
        _AGAIN[data] = again(Cubin.from_bytes(data))[0].to_bytes()
    if case.devices is None:  # elsewhere the order of threads shows
        assert left(gpu, _AGAIN[data], case) == left(gpu, data, case)
