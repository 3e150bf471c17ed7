"""The networks that are measured: as many parameters as the originals, and converted they compute the same."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: make test-torch")

from kernels_sass.torch import convert  # noqa: E402
from kernels_sass.torch.models import MODELS, VisionTransformer, random_inputs, random_model  # noqa: E402

#: convolutions, and how many of them are 3 x 3 with stride 1; those that add, those with ReLU in them; linear layers
COUNTS = {
    "resnet18": (20, 20, 8, 17, 1), "resnet34": (36, 36, 16, 33, 1), "resnet50": (53, 53, 16, 49, 1),
    "wide_resnet50_2": (53, 53, 16, 49, 1), "vgg16": (13, 13, 0, 13, 3), "densenet121": (120, 120, 0, 59, 1),
    "vit_b_16": (1, 0, 0, 0, 49), "unet": (98, 98, 45, 0, 184), "vae_decoder": (40, 40, 15, 0, 0),
}  # fmt: skip
#: what stays PyTorch's even where all that can be is asked for, and why
LEFT = {"vit_b_16": [("conv_proj", "stride 16")]}


@pytest.mark.parametrize("name", MODELS)
def test_parameters(name):
    """As torchvision's documentation and the checkpoints of Stable Diffusion 1 have them."""
    with torch.device("meta"):
        made = MODELS[name].make(width=MODELS[name].width)
    assert sum(one.numel() for one in made.parameters()) == MODELS[name].parameters


@pytest.mark.parametrize("name", MODELS)
def test_converted(name):
    """Small ones, against float64; one graph, and all that can be is ours, linear layers where that is asked for."""
    pictures = MODELS[name].inputs == ("picture",)
    small, inputs = random_model(name, width=8 if pictures else 32), random_inputs(name, 2, scale=7 if pictures else 8)
    with torch.no_grad():
        exact = copy.deepcopy(small).double()(*(one.double() for one in inputs))
        found = [convert(small, inputs, untimed=untimed) for untimed in (False, True)]
        for made, report in found:
            assert float((made(*inputs) - exact).norm() / exact.norm()) < 1e-5 and not report.notes
    assert 0.05 < float(exact.std()) < 50
    timed, every = (report for _, report in found)
    kinds = [row.kind for row in timed.rows]
    steps = [row.folded for row in timed.replaced if row.kind == "convolution"]
    assert (kinds.count("convolution"), len(steps), sum("residual" in one for one in steps),
            sum("ReLU" in one for one in steps), kinds.count("linear")) == COUNTS[name]  # fmt: skip
    assert [(row.name, row.why) for row in every.left] == LEFT.get(name, [])
    assert sum("GELU" in row.folded for row in every.rows) == (12 if name == "vit_b_16" else 0)


def test_vit_is_an_encoder_of_pytorch():
    """The parameters have the names of torch.nn.MultiheadAttention, and mean the same."""
    model, x = random_model("vit_b_16", width=128).eval(), random_inputs("vit_b_16", 2, scale=7)[0]
    mine = model.encoder.layers.encoder_layer_0
    theirs = torch.nn.MultiheadAttention(128, mine.self_attention.heads, batch_first=True).eval()
    theirs.load_state_dict(mine.self_attention.state_dict())
    with torch.no_grad():
        tokens = mine.ln_1(model.conv_proj(x).flatten(2).transpose(1, 2))
        torch.testing.assert_close(mine.self_attention(tokens), theirs(tokens, tokens, tokens)[0], atol=1e-5, rtol=1e-5)
    assert mine.self_attention.heads == 2


def test_through_our_kernels(kernels):
    """The smallest, on the CPU device."""
    small, inputs = random_model("resnet18", width=8), random_inputs("resnet18", 1, scale=8)
    with torch.no_grad():
        made, _ = convert(small, inputs)
        exact = copy.deepcopy(small).double()(*(one.double() for one in inputs))
        assert float((made(*inputs) - exact).norm() / exact.norm()) < 2e-6 and len(kernels) == 20


def test_a_transformer_through_our_kernels(kernels, monkeypatch):
    """Products by HGMMA on the CPU device, with GELU in them."""
    monkeypatch.setitem(MODELS, "vit", replace(MODELS["vit_b_16"], make=lambda width: VisionTransformer(1, width)))
    small, inputs = random_model("vit", width=8), random_inputs("vit", 1, scale=8)
    with torch.no_grad():
        made, report = convert(small, inputs, untimed=True)
        exact = copy.deepcopy(small).double()(*(one.double() for one in inputs))
        assert float((made(*inputs) - exact).norm() / exact.norm()) < 2e-6
    assert [row.by for row in report.rows] == ["PyTorch", *["turingas::linear"] * 5] and not report.notes
