"""What the tests on a GPU share."""

from __future__ import annotations

import pytest

from loader import cuda
from turingas.errors import LaunchError


@pytest.fixture(scope="module")
def gpu(request: pytest.FixtureRequest) -> cuda.Device:
    """The first GPU. Without one, or with one that is none of the module's ``ARCHS``, its tests are skipped."""
    pytest.importorskip("cuda.bindings.driver")
    try:
        found = cuda.device(0)
    except LaunchError as error:
        pytest.skip(str(error))
    archs = getattr(request.module, "ARCHS", (found.arch,))
    if found.arch not in archs:
        pytest.skip(f"these kernels are for {', '.join(archs)}, not {found.arch}")
    return found
