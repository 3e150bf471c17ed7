"""What the tests of kernels_sass.torch share. They need PyTorch, which `make test-torch` installs."""

from __future__ import annotations

import os

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")  # what is small is slower with threads that others keep waiting

from kernels_sass.conv import Conv2d  # noqa: E402
from tests import inductor  # noqa: E402

inductor.apart()


@pytest.fixture
def kernels(monkeypatch):
    """Tensors in the host's memory go through our kernels, on the CPU device; the layers that were made."""
    monkeypatch.setenv("TURINGAS_TORCH_CPU", "kernels")
    made, real = [], Conv2d.__init__

    def noted(self, *args, **more):
        real(self, *args, **more)
        made.append(self)

    monkeypatch.setattr(Conv2d, "__init__", noted)
    return made


@pytest.fixture
def swapping():
    """PyTorch changes modules by swapping tensors, to which there may be no weak references."""
    import torch

    before = torch.__future__.get_swap_module_params_on_conversion()
    torch.__future__.set_swap_module_params_on_conversion(True)
    yield
    torch.__future__.set_swap_module_params_on_conversion(before)
