"""ResNet-50 on a real GPU with PyTorch: float64 held against numpy's, and all forms and layouts against float64."""

from __future__ import annotations

import contextlib
import statistics

import numpy as np
import pytest

from kernels_sass.bench import network, resnet
from kernels_sass.conv import code
from loader import cuda
from tests.kernels_sass import standin_torch

pytestmark = pytest.mark.gpu
torch = pytest.importorskip("torch", reason="PyTorch is not installed")


def test_float64_is_numpys():
    ops = network.resnet()
    given = network.parameters(ops, 5)
    x = np.random.default_rng(6).standard_normal((1, 3, 224, 224))
    doubles = {name: array.astype(np.float64) for name, array in given.items()}
    exact = network.forward(standin_torch, ops, doubles, x.view(standin_torch.Tensor))
    there = {name: torch.from_numpy(array).cuda() for name, array in doubles.items()}
    found = network.forward(torch, ops, there, torch.from_numpy(x).cuda())
    assert np.linalg.norm(found.cpu().numpy() - exact) < 1e-12 * np.linalg.norm(exact)


@pytest.mark.alone
def test_all_forms():
    """Everybody but what PyTorch's own fused call refuses is right, in a graph; the parts are about the whole."""
    gpu = cuda.device(0)
    source = code.choose(code.arch_of(gpu)).name
    asked = resnet.Asked(batches=(4,), source=source, runs=20)
    entry = resnet.setting(4, gpu, asked)
    for row in entry["rows"]:
        if row["form"] == "fused" and row["status"] != "ok":
            assert "wrong" not in row["status"], row
            continue
        assert row["status"] == "ok" and row["how"] == "graph", row
        assert row["error"] < {"ours": 1e-5, "torch": 1e-4, "tf32": 1e-2}[row["group"]], row
    assert not list(resnet.failures({"settings": {"N4": entry}}))
    assert 0.7 < statistics.median(row["by_kind"] / row["ms"] for row in entry["rows"] if "ms" in row) < 2


@pytest.mark.alone
def test_kinds_in_an_order_that_changes():
    """Times of kinds do not depend on who ran before: the same contender twice has the same times, about."""
    gpu = cuda.device(0)
    asked = resnet.Asked(batches=(32,), source=code.choose(code.arch_of(gpu)).name)
    ops = network.resnet()
    with contextlib.closing(resnet.Pictures(32, gpu, asked)) as data:
        twice = [resnet.Forward("torch", "folded", "NCHW", ops) for _ in range(2)]
        twice[1].name += " again"
        for one in twice:
            one.prepare(data)
        kinds = resnet.by_kind(data, twice, 0, lambda part: None)
    first, second = (kinds[one.name] for one in twice)
    for kind, ms in first.items():
        assert abs(second[kind] - ms) < 0.1 * ms + 0.02, (kind, first, second)
