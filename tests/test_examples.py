"""The kernels of examples/ that the pages explain give what numpy gives, and the linter finds nothing in them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import loader
import turingas

EXAMPLES = Path(__file__).parent.parent / "examples"


def mma(random):
    a, b = (random.integers(-8, 8, shape).astype(np.float16) for shape in ((16, 16), (8, 16)))
    return 1, 32, [a, b, np.zeros((16, 8), np.float32)], 2, a.astype(np.float32) @ b.astype(np.float32).T


def cp_async(random):
    tiles = random.integers(-99, 99, (5, 128)).astype(np.float32)
    return 1, 128, [np.zeros(128, np.float32), tiles, 5], 0, tiles[:, ::-1].sum(0)


def bulk(random):
    values = random.standard_normal((4, 256)).astype(np.float32)
    return 4, 256, [np.zeros((4, 256), np.float32), values], 0, values[:, ::-1]


CASES = {"mma": mma, "cp_async": cp_async, "bulk": bulk}


def source(name, arch=None):
    text = (EXAMPLES / f"{name}.sass").read_text()
    return text if arch is None or ".arch sm_90" in text else text.replace(".arch sm_80", f".arch {arch}")


@pytest.mark.parametrize("name", CASES)
def test_on_the_cpu_device(name):
    cubin = turingas.assemble(source(name), filename=f"{name}.sass")
    assert [finding.kind for finding in turingas.lint(cubin) if finding.severity != "note"] == []
    grid, block, arguments, result, wanted = CASES[name](np.random.default_rng(0))
    report = loader.load(cubin, device="cpu").kernel().launch(grid, block, *arguments, strict=True, races=True)
    assert not report.hazards and not report.races
    assert np.array_equal(arguments[result], wanted)


@pytest.mark.gpu
@pytest.mark.parametrize("name", CASES)
def test_on_a_gpu(name):
    """Each many times: a wait that is missing shows now and then."""
    from loader.cuda import Buffer

    kernel = loader.load(turingas.assemble(source(name, "sm_90")), device="cuda:0").kernel()
    random = np.random.default_rng(0)
    for _ in range(50):
        grid, block, arguments, result, wanted = CASES[name](random)
        buffers = [Buffer.of(one) if isinstance(one, np.ndarray) else one for one in arguments]
        kernel.launch(grid, block, *buffers)
        assert np.array_equal(buffers[result].numpy(), wanted)
