"""Fixtures of the tests of kernels_sass: a GPU that is none, as card.py has it, and no GPU at all."""

from __future__ import annotations

import pytest

from kernels_sass.conv import code, cost
from loader import nvrtc, timing, validate
from loader.bench import contenders, cudnn, measure, results
from tests.kernels_sass.card import STANDIN, Card
from tests.loader.conftest import install  # noqa: F401
from tests.loader.driver import Driver
from turingas.cubin.cubin import Cubin
from turingas.errors import LaunchError


@pytest.fixture
def card(install, monkeypatch, tmp_path):  # noqa: F811
    """A GPU, standin.cu in the place of each source, a small Conv2 and Conv3, no PyTorch, no cuDNN, nothing of git."""
    card = install(Card(gpus=1))

    def assemble(source, arch, given):
        if unknown := set(given) - {"YIELD", "LDG_INTERLEAVE", "STS_INTERLEAVE"}:
            raise LaunchError(f"{source.file} has no parameter {unknown.pop()!r}")
        return Cubin.from_bytes(nvrtc.compile(STANDIN.read_text(), arch))

    monkeypatch.setattr(code, "assemble", assemble)
    monkeypatch.setattr(code.Kernels, "_made", {})
    cost._sms.cache_clear()
    for name, size in (("Conv2", (3, 4)), ("Conv3", (5, 3))):
        monkeypatch.setitem(validate.LAYERS, name, size)
    monkeypatch.setattr(measure, "torch", lambda: None)
    monkeypatch.setattr(contenders, "torch", lambda: None)
    monkeypatch.setattr(results, "torch", lambda: None)
    monkeypatch.setattr(cudnn, "library", lambda: None)
    monkeypatch.setattr(timing, "clocks", lambda gpu: timing.Clocks(1000, 2000))
    monkeypatch.setattr(timing, "nvml", lambda: None)
    monkeypatch.setattr(timing, "FILL_SECONDS", 1.0)  # nothing here waits for Python: no more than one
    monkeypatch.setattr(results, "_driver", lambda: "1.2")
    monkeypatch.setenv("TURINGAS_COMMIT", "abc")
    monkeypatch.setattr(results, "FOLDER", tmp_path)
    cudnn._handle.cache_clear()
    yield card
    code.Kernels._made.clear()


@pytest.fixture
def no_gpu(install):  # noqa: F811
    install(Driver(gpus=0))
