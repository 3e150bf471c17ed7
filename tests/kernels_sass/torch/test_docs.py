"""docs/inference.md, examples/convert.py and the demo's network, on the CPU."""

from __future__ import annotations

import subprocess
import sys
import types

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: make test-torch")

from click.testing import CliRunner  # noqa: E402

from examples import convert as example  # noqa: E402
from examples import demo  # noqa: E402
from kernels_sass.torch.models import random_model  # noqa: E402
from tests.docs.pages import DOCS, ROOT, listings  # noqa: E402


def test_listings(tmp_path):
    """What stands behind a print is what it prints."""
    text = "\n".join(one.text for one in listings(DOCS / "inference.md") if one.language == "python")
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[-3:] == ["True", "2 groups", "9.0"] and "20 of 21 layers are ours" in lines


@pytest.fixture
def vision(monkeypatch):
    """torchvision, with one network."""

    def get_model(name, weights):
        if name != "resnet18":
            raise ValueError(f"Unknown model {name}")
        return random_model(name, width=8)

    made = types.ModuleType("torchvision")
    made.models = types.SimpleNamespace(get_model=get_model)
    monkeypatch.setitem(sys.modules, "torchvision", made)


def run(*words):
    return CliRunner().invoke(example.main, [*words, "--scale", "7", "--device", "cpu"])


def test_example_with_torchvision(vision):
    done = run("resnet18", "--weights", "--channels-last", "--batch", "2")
    assert done.exit_code == 0, done.output
    assert "20 of 21 layers are ours" in done.output and "the same class first: 100%" in done.output
    assert "resnet18, torchvision's; batch 2 on cpu: differs by " in done.output
    done = run("alexnet")
    assert done.exit_code == 1 and "no alexnet: Unknown model alexnet" in done.output


def test_example_without(monkeypatch):
    monkeypatch.setitem(sys.modules, "torchvision", None)
    monkeypatch.setattr(example, "random_model", lambda name: random_model(name, width=8))
    done = run("densenet121")
    assert done.exit_code == 0 and "densenet121, random; batch 1 on cpu" in done.output, done.output
    done = run("resnet18", "--weights")
    assert done.exit_code == 1 and "there is no resnet18 with weights: torchvision is not installed" in done.output


def test_the_demos_network(kernels):
    """Both layers of the demo as a network of PyTorch, converted: two of our layers, and nothing between them."""
    x = np.random.default_rng(0).random((1, 3, 6, 8), np.float32)
    y, report, _ = demo.converted(x, "cpu")
    wanted = x
    for inputs, filters in ((demo.COLOURS, demo.FIRST), (tuple(demo.FIRST), demo.SECOND)):
        wanted = demo.exact(wanted, *demo.weights(inputs, filters)).astype(np.float32)
    assert np.abs(y - wanted).max() < 1e-5 and len(kernels) == 2
    assert [row.folded for row in report.rows] == [("ReLU",), ("ReLU",)] and len(report.replaced) == 2
