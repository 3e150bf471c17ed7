"""The networks that are measured: as many parameters as the originals, and converted they compute the same."""

from __future__ import annotations

import copy

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: make test-torch")

from kernels_sass.torch import convert  # noqa: E402
from kernels_sass.torch.models import MODELS, random_inputs, random_model  # noqa: E402

#: convolutions, and how many of them are 3 x 3 with stride 1; those that add, and those with ReLU in them
COUNTS = {
    "resnet18": (20, 13, 8, 13), "resnet34": (36, 29, 16, 29), "resnet50": (53, 13, 0, 13),
    "wide_resnet50_2": (53, 13, 0, 13), "vgg16": (13, 13, 0, 13), "densenet121": (120, 58, 0, 0),
    "unet": (98, 49, 29, 0), "vae_decoder": (40, 33, 14, 0),
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_parameters(name):
    """As torchvision's documentation and the checkpoints of Stable Diffusion 1 have them."""
    with torch.device("meta"):
        made = MODELS[name].make(width=MODELS[name].width)
    assert sum(one.numel() for one in made.parameters()) == MODELS[name].parameters


@pytest.mark.parametrize("name", MODELS)
def test_converted(name):
    """Small ones, against float64; one graph, and all that can be is ours."""
    pictures = MODELS[name].inputs == ("picture",)
    small, inputs = random_model(name, width=8 if pictures else 32), random_inputs(name, 2, scale=7 if pictures else 8)
    with torch.no_grad():
        made, report = convert(small, inputs)
        exact = copy.deepcopy(small).double()(*(one.double() for one in inputs))
        error = float((made(*inputs) - exact).norm() / exact.norm())
    steps = [row.folded for row in report.replaced]
    assert (len(report.rows), len(steps), sum("residual" in one for one in steps),
            sum("ReLU" in one for one in steps)) == COUNTS[name]  # fmt: skip
    assert error < 1e-5 and not report.notes and 0.05 < float(exact.std()) < 50


def test_through_our_kernels(kernels):
    """The smallest, on the CPU device."""
    small, inputs = random_model("resnet18", width=8), random_inputs("resnet18", 1, scale=8)
    with torch.no_grad():
        made, _ = convert(small, inputs)
        exact = copy.deepcopy(small).double()(*(one.double() for one in inputs))
        assert float((made(*inputs) - exact).norm() / exact.norm()) < 2e-6 and len(kernels) == 13
