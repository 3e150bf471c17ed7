"""What the tests of kernels_sass.torch share. They need PyTorch, which `make test-torch` installs."""

from __future__ import annotations

import pytest

from kernels_sass.conv import Conv2d


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
