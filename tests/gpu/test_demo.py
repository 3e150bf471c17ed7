"""`make demo` and the README's first kernel on a real GPU."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from click.testing import CliRunner

import loader
import turingas
from kernels_sass.conv import code
from loader import cuda
from loader.cuda import Buffer
from tests.docs.pages import ROOT, listings

pytestmark = pytest.mark.gpu
DEVICE = "cuda:0"


@pytest.fixture(scope="module", autouse=True)
def gpu():
    assert DEVICE in loader.devices(), "no GPU"


@pytest.mark.alone
def test_demo(tmp_path):
    for needed in ("matplotlib", "PIL", "rich"):
        pytest.importorskip(needed)
    from examples import demo

    done = CliRunner().invoke(demo.main, ["-o", str(tmp_path / "demo.png")], env={"COLUMNS": "200"})
    assert done.exit_code == 0, done.output
    assert f"on {DEVICE}, {cuda.device(0).name}" in done.output and "MISMATCH" not in done.output
    times = re.search(r"time on the GPU +(\S+) ms +(\S+) ms", done.output)
    assert times and all(0 < float(time) < 5 for time in times.groups())
    assert (tmp_path / "demo.png").stat().st_size > 10_000
    assert list(json.loads((tmp_path / "speed.json").read_text())["settings"]) == ["Conv3N32"]


def test_first_kernel():
    (source,) = (one.text for one in listings(ROOT / "README.md") if one.language == "nvsass")
    random = np.random.default_rng(0)
    x, y = random.standard_normal((2, 1 << 20), np.float32)
    with loader.load(turingas.assemble(source, arch=code.arch_of(cuda.device(0))), DEVICE) as module:
        source, target = Buffer.of(x), Buffer.of(y)
        module.kernel().launch(x.size // 256, 256, source, target, 2.5)
        assert np.allclose(target.numpy(), np.float32(2.5) * x + y, rtol=1e-6, atol=1e-6)
