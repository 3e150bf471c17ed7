"""The loader on the CPU device."""

from __future__ import annotations

import numpy as np
import pytest

import loader
import turingas
from tests.emulate.test_device import ADD
from tests.gpu.test_loader import assembled, check_kernels
from turingas.errors import CubinError, LaunchError


@pytest.fixture(scope="module")
def cubin():
    return turingas.assemble(ADD, filename="add.sass")


def test_devices():
    assert "cpu" in loader.devices()


def test_a_path_bytes_and_a_cubin(cubin, tmp_path):
    path = tmp_path / "add.cubin"
    path.write_bytes(cubin.to_bytes())
    for source in (cubin, cubin.to_bytes(), memoryview(cubin.to_bytes()), path, str(path)):
        out, values = np.zeros(64, np.float32), np.arange(64, dtype=np.float32)
        module = loader.load(source, device="cpu")
        report = module.kernel("add").launch(2, (32, 1), out, values, 64, 2.0)
        assert (out == 2 * values).all()
        assert report.lane_instructions == 64 * 12


def test_a_cubin_that_was_read_and_then_changed(cubin):
    """As on a GPU, what it holds now runs, not the file that it came from."""
    cubin = turingas.Cubin.from_bytes(cubin.to_bytes())
    kernel = cubin.kernel("add")
    (add,) = turingas.encode("01:-:-:-:6 FADD R6, R6, c[0x0][0x174];", "sm_75")
    kernel.words = [*kernel.words[:9], add, *kernel.words[10:]]
    out, values = np.zeros(64, np.float32), np.arange(64, dtype=np.float32)
    loader.load(cubin, "cpu").kernel("add").launch(2, 32, out, values, 64, 2.0)
    assert (out == values + 2).all()


def test_the_kernels_of_the_gpu_tests():
    """What tests/gpu/test_loader.py takes for right."""
    with loader.load(assembled(), "cpu") as module:
        check_kernels(module, lambda array: array, lambda array: array)


def test_options_reach_the_device(cubin):
    out, values = np.zeros(64, np.float32), np.arange(64, dtype=np.float32)
    report = loader.load(cubin, "cpu").kernel("add").launch(2, 32, out, values, 64, 2.0, counters=True, strict=True)
    assert report.counters.warps[0] == 2 and report.hazards == []


def test_a_closed_module(cubin):
    with loader.load(cubin, "cpu") as module:
        kernel = module.kernel("add")
    with pytest.raises(LaunchError, match="closed"):
        kernel.launch(1, 32, np.zeros(4), np.zeros(4), 0, 1.0)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda c: loader.load(c, "cuda:7"), LaunchError, "no device 'cuda:7'"),
        (lambda c: loader.load(c, 0), LaunchError, "no device 0\n.*cpu"),
        (lambda c: loader.load(c, "cpu").kernel("other").launch(1, 1, shared="9"), LaunchError, "'9' bytes of shared"),
        (lambda c: loader.load(c, "cpu").kernel("other").launch(1, 1, shared=0.5), LaunchError, "0.5 bytes of shared"),
        (lambda c: loader.load(b"no cubin"), CubinError, "offset"),
        (lambda c: loader.load(__file__), CubinError, r"not an ELF file \(.*test_module.py\)"),
        (lambda c: loader.load("/nowhere.cubin"), FileNotFoundError, "nowhere"),
        (lambda c: loader.load(c, "cpu").kernel("mul"), LaunchError, "no kernel 'mul'\n.*add, other"),
        (lambda c: loader.load(c, "cpu").kernel("other").launch(1, 1, stream=3), LaunchError, "no streams"),
        (lambda c: loader.load(c, "cpu").kernel("other").launch(1, 1, 5), LaunchError, "takes 0 arguments and was"),
        (lambda c: loader.load(c, "cpu").variable("x"), LaunchError, "no variable 'x'"),
    ],
)
def test_what_is_refused(cubin, make, error, message):
    with pytest.raises(error, match=message):
        make(cubin)
