"""`turingas bench resnet`: the network is ResNet-50; ours stands in it; times by kind are kept, shown and drawn.

GPU, kernels and PyTorch are stand-ins (tests/loader/driver.py, standin.cu, standin_torch.py). Where PyTorch is
installed, its own operations run as well, on tensors in the host's memory.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib.util
import json
import math
import sys
import types

import numpy as np
import pytest

from kernels_sass.bench import network, resnet, resnet_shown
from kernels_sass.bench.network import CONV1, CONV3, CONV3_2, CONV7, FC, NORM
from kernels_sass.conv import code, conv2d, libraries, tuned
from kernels_sass.conv import shape as sizes
from loader import cuda
from loader.bench import contenders, measure, results
from loader.bench import figures as drawing
from tests.kernels_sass import standin_torch
from tests.kernels_sass.card import call
from turingas.errors import LaunchError

#: He et al., Table 1: what a stage makes, for a picture of 224 x 224, and its blocks.
TABLE = {
    "conv1": (64, 112, 112), "maxpool": (64, 56, 56), "layer1.2": (256, 56, 56), "layer2.3": (512, 28, 28),
    "layer3.5": (1024, 14, 14), "layer4.2": (2048, 7, 7), "avgpool": (2048, 1, 1), "fc": (1000,),
}  # fmt: skip


# ---- the network -------------------------------------------------------------------------------------------------


def test_is_resnet_50():
    ops = network.resnet()
    made = {op.name: shape for op, shape in network.shapes(ops, 1) if op.slot == "x"}
    assert {name: made[name] for name in TABLE} == {name: (1, *shape) for name, shape in TABLE.items()}
    count = {kind: sum(op.kind == kind for op in ops) for kind in network.KINDS}
    assert count[CONV1] == 2 * 16 + 4 and count[CONV3] == 13 and count[CONV3_2] == 3 and count[CONV7] == 1
    assert sum(count[kind] for kind in network.CONVOLUTIONS) - 4 + count[FC] == 50  # the layers of its name
    assert count[NORM] == 53 and count["ReLU"] == 1 + 3 * 16 and count["add"] == 16 and count["pooling"] == 2
    # torchvision's documentation of resnet50: 25557032 parameters, 4.09 GFLOPS, which are products there
    learned = [array.size for (_, what), array in network.parameters(ops).items() if what not in ("mean", "var")]
    assert sum(learned) == 25_557_032
    flops = network.flops(ops, 1)
    assert sum(flops.values()) == 2 * 4_089_184_256 and flops[FC] == 2 * 2048 * 1000
    conv2 = 3 * 64**2 * 56**2 + 3 * 128**2 * 28**2 + 5 * 256**2 * 14**2 + 2 * 512**2 * 7**2
    assert flops[CONV3] == 2 * 9 * conv2
    assert network.flops(network.fold(ops), 7) == {kind: 7 * count for kind, count in flops.items()}


def test_3x3_layers_are_those_of_yan2020():
    shapes = {(op.c, shape[1:]) for op, shape in network.shapes(network.resnet(), 1) if op.kind == CONV3}
    assert shapes == {(c, (c, size, size)) for c, size in ((64, 56), (128, 28), (256, 14), (512, 7))}


def test_forms():
    ops = network.resnet()
    folded = network.fold(ops)
    assert len(folded) == len(ops) - 53 and all(op.folded == (op.kind in network.CONVOLUTIONS) for op in folded)
    ours = network.fuse(folded, lambda op: op.kind == CONV3)
    assert len(ours) == len(folded) - 13 and [op.kind for op in ours if op.relu] == [CONV3] * 13
    assert not any(op.add for op in ours)
    fused = network.fuse(folded, lambda op: True)
    assert len(fused) == 53 + 2 + 1 and sum(op.relu for op in fused) == 49 and sum(op.add for op in fused) == 16
    assert all(op.kind == CONV1 and op.name.endswith("conv3") for op in fused if op.add)
    assert [op.slot for op in fused if not op.relu and op.kind == CONV1] == ["skip"] * 4
    for form in (folded, ours, fused):
        ends = resnet.stages(form)
        assert list(ends.values()) == ["layer1", "layer2", "layer3", "layer4", "fc"] and max(ends) == len(form) - 1
        shapes = [shape for _, shape in network.shapes(form, 2)]
        assert [shapes[number][1] for number in ends] == [256, 512, 1024, 2048, 1000]


def test_numbers_keep_their_size():
    """Random parameters are good for comparisons: nothing vanishes or grows on the way."""
    ops = network.resnet(width=8)
    x = np.random.default_rng(0).standard_normal((1, 3, 64, 64)).view(standin_torch.Tensor)
    tensors = {name: array.astype(np.float64) for name, array in network.parameters(ops).items()}
    seen = []
    network.forward(standin_torch, ops, tensors, x, after=lambda number, made: seen.append(float(made.std())))
    assert 0.2 < min(seen) and max(seen) < 20


LIBRARIES = ["numpy"] + ["torch"] * (importlib.util.find_spec("torch") is not None)


@pytest.fixture(params=LIBRARIES)
def library(request, monkeypatch):
    """The stand-in, or PyTorch on the host; with what is CUDA's in the stand-in."""
    if request.param == "torch":
        import torch

        monkeypatch.setattr(resnet.Pictures, "_there", lambda self, array: torch.from_numpy(array).clone())
        names = {"cuda": standin_torch.cuda, "backends": standin_torch.backends, "__version__": "0.0",
                 "cudnn_convolution_relu": standin_torch.cudnn_convolution_relu,
                 "cudnn_convolution_add_relu": standin_torch.cudnn_convolution_relu}  # fmt: skip
        functional = {**vars(torch.nn.functional),
                      "linear": lambda *args: standin_torch.kept(torch.nn.functional.linear(*args))}  # fmt: skip
        names["nn"] = types.SimpleNamespace(functional=types.SimpleNamespace(**functional))
        made = types.ModuleType("torch_on_the_host")
        made.__dict__.update(torch.__dict__ | names)
        return made
    kind = libraries.kind_of(np.empty(1).view(standin_torch.Tensor))
    empty = np.empty

    def again(x, shape):
        def make():
            y = standin_torch.from_numpy(empty(shape, np.float32))
            return y, y.ctypes.data

        return make

    there = libraries.Library(kind, libraries.NUMPY, again)
    monkeypatch.setitem(libraries.LIBRARIES, standin_torch.Tensor, there)
    return standin_torch


def test_forward(library):
    """Shapes as they are foretold, folded as unfolded, both layouts; in float64 to the last digits."""
    ops = network.resnet((1, 2), 4)
    given = network.parameters(ops, 3)
    x = np.random.default_rng(1).standard_normal((2, 3, 40, 40)).astype(np.float32)

    def tensors(parameters, double):
        made = {name: library.from_numpy(array) for name, array in parameters.items()}
        return {name: one.double() for name, one in made.items()} if double else made

    shapes = []
    exact = network.forward(library, ops, tensors(given, True), library.from_numpy(x).double(),
                            after=lambda number, made: shapes.append(tuple(made.shape)))  # fmt: skip
    assert shapes == [shape for _, shape in network.shapes(ops, 2, 40)]

    def off(found):
        return float((found.double() - exact).norm() / exact.norm())

    assert off(network.forward(library, ops, tensors(given, False), library.from_numpy(x))) < 1e-6
    folded = network.folded(given)
    assert folded["conv1", "weight"].dtype == np.float32 and ("conv1", "mean") not in folded
    assert off(network.forward(library, network.fold(ops), tensors(folded, False), library.from_numpy(x))) < 1e-6
    last = library.from_numpy(x).contiguous(memory_format=library.channels_last)
    assert off(network.forward(library, ops, tensors(given, False), last)) < 1e-6
    wrong = {**folded, ("layer2.1.conv2", "weight"): folded["layer2.1.conv2", "weight"][:, :, ::-1].copy()}
    assert off(network.forward(library, network.fold(ops), tensors(wrong, False), library.from_numpy(x))) > 1e-3


# ---- the command -------------------------------------------------------------------------------------------------


@pytest.fixture
def small(card, library, monkeypatch):
    """A card with PyTorch, and a small network."""
    for module in (measure, contenders, results, resnet):
        monkeypatch.setattr(module, "torch", lambda: library)
    monkeypatch.setattr(resnet, "Asked", functools.partial(resnet.Asked, blocks=(1, 1), width=4, size=24))
    monkeypatch.setattr(resnet, "ROUNDS", 1)
    return card


WORDS = ["resnet", "--batch", "2", "--runs", "20"]


def test_resnet(small, tmp_path):
    path = tmp_path / "found.json"
    done = call(*WORDS, "--json", str(path), "--figures", str(tmp_path / "figures"))
    assert done.exit_code == 0, done.output
    found = json.loads(path.read_text())
    assert found["what"] == "bench resnet" and found["complete"] and found["commit"] == "abc"
    entry = found["settings"]["N2"]
    rows = {row["name"]: row for row in entry["rows"]}
    assert list(rows) == [
        f"{name} {layout}" for layout in ("NCHW", "NHWC")
        for name in ("PyTorch plain", "PyTorch folded", "PyTorch fused", "ours folded", "ours fused",
                     "PyTorch TF32 folded")
    ]  # fmt: skip
    for name, row in rows.items():
        if " fused " in name:  # PyTorch has none here
            assert row["status"] == "cuDNN has no such engine" and "ms" not in row and "kinds" not in row
            continue
        assert row["status"] == "ok" and row["error"] < 1e-6, row
        assert row["runs"] == 20 or row["group"] == "tf32"
        assert list(row["stages"]) == ["layer1", "layer2", "fc"] and max(row["stages"].values()) < 1e-6
        assert row["by_kind"] == pytest.approx(sum(row["kinds"].values()), rel=1e-4)
        assert (NORM in row["kinds"]) == (row["form"] == "plain") and CONV3 in row["kinds"]
        assert row["pictures_per_second"] == pytest.approx(2e3 / row["ms"], rel=1e-2)
    assert entry["flops"] == network.flops(network.resnet((1, 1), 4), 2, 24)
    made = entry["verdict"]
    folded = {layout: rows[f"PyTorch folded {layout}"]["ms"] / rows[f"ours folded {layout}"]["ms"]
              for layout in ("NCHW", "NHWC")}  # fmt: skip
    assert made["pairs"] == {f"folded {layout}": pytest.approx(ratio, abs=6e-4) for layout, ratio in folded.items()}
    best = {group: min(row["ms"] for row in rows.values() if row["group"] == group and "ms" in row)
            for group in ("torch", "ours")}  # fmt: skip
    assert made["over_torch"] == found["summary"]["N2"] == pytest.approx(best["torch"] / best["ours"], abs=6e-4)
    assert sum(resnet_shown.shares(rows["PyTorch plain NCHW"]).values()) == pytest.approx(100, rel=1e-4)
    assert "N2: PyTorch plain NHWC: convolutions " in done.output and "% (68), batch norm " in done.output
    assert "ours folded NHWC" in done.output and "N2: PyTorch fused NCHW has no time: cuDNN has no such" in done.output
    drawn = tmp_path / "figures" / "resnet_sm75_N2.svg"
    assert drawn.read_bytes().startswith(b"<?xml") and str(drawn) in done.output.replace("\n", "")
    shown = call("resnet", "--show", "--json", str(path))
    assert shown.exit_code == 0 and shown.output.splitlines()[-1] == [
        line for line in done.output.splitlines() if "The convolution alone changed" in line
    ][-1]  # fmt: skip


def _noted(made, name, do, x):
    made[name] = do(x)
    return made[name]


def test_schedules_of_a_sweep(small, tmp_path, monkeypatch):
    """Those that Conv2d takes stand in the results; with -D it takes none."""
    monkeypatch.setenv("TURINGAS_CACHE", str(tmp_path))
    gpu = cuda.device(0)
    kernels = code.Kernels.of(code.arch_of(gpu), "paper")
    for n in (2, 3):
        tuned.keep(gpu, kernels, sizes.Shape(n, 4, 6, 6, 4, 1, "NHWC"), {"YIELD": "nvcc8"})
    asked = resnet.Asked(source="paper", batches=(2,))
    assert resnet.schedules(gpu, asked) == {"NHWC N2 C4 6x6 K4": {"YIELD": "nvcc8"}}
    assert resnet.schedules(gpu, resnet.Asked(source="paper", batches=(2,), schedule={"YIELD": "natural"})) == {}
    for given in ({}, {"YIELD": "natural"}):
        with contextlib.closing(resnet.Pictures(2, gpu, dataclasses.replace(asked, schedule=given))) as data:
            assert [layer.tuned for layer in data.ours("NCHW").values()] == [not given]


def test_ours_are_the_3x3_layers(small, library):
    """Each of stride 1 is done by our kernel, with its ReLU, and nothing else is."""
    asked = resnet.Asked(source="paper", batches=(2,))
    with contextlib.closing(resnet.Pictures(2, cuda.device(0), asked)) as data:
        for layout in ("NCHW", "NHWC"):
            one = resnet.Forward("ours", "folded", layout, data.ops)
            one.prepare(data)
            made, wanted = {}, ["layer1.0.conv2"]
            assert list(one.layers) == wanted == [op.name for op in data.ops if op.kind == CONV3]
            noted = {name: functools.partial(_noted, made, name, do) for name, do in one.layers.items()}
            network.forward(library, one.ops, one.tensors, one.pictures, noted)
            assert list(made) == wanted and all(float(out.min()) == 0 < float(out.max()) for out in made.values())


def test_a_wrong_kernel_has_no_time(small, tmp_path, monkeypatch):
    """A layer of ours that is off: refused by the stage that it is in, no time, exit code 1."""
    real = conv2d.Conv2d.__call__

    def off(self, x, *more):
        y = real(self, x, *more)
        y *= 1.0003 if self.layout == "NCHW" else math.nan
        return y

    monkeypatch.setattr(conv2d.Conv2d, "__call__", off)
    path = tmp_path / "found.json"
    done = call(*WORDS, "--form", "folded", "--json", str(path))
    assert done.exit_code == 1, done.output
    rows = {row["name"]: row for row in json.loads(path.read_text())["settings"]["N2"]["rows"]}
    assert rows["ours folded NCHW"]["status"].startswith("wrong: a relative L2 error of ")
    assert rows["ours folded NHWC"]["status"].startswith("wrong: a relative L2 error of nan after layer1")
    assert rows["PyTorch folded NCHW"]["status"] == "ok" and "N2: ours folded NCHW has no time: wrong" in done.output


def test_interrupted_and_resumed(small, tmp_path, monkeypatch):
    path = tmp_path / "found.json"
    whole = ["resnet", "--batch", "1,2", "--form", "plain", "--layout", "NCHW", "--runs", "20", "--json", str(path)]
    real, asked = resnet.setting, []

    def interrupted(batch, *more):
        asked.append(batch)
        if asked == [1, 2]:
            raise KeyboardInterrupt
        return real(batch, *more)

    monkeypatch.setattr(resnet, "setting", interrupted)
    assert call(*whole).exit_code == 130
    first = json.loads(path.read_text())
    assert list(first["settings"]) == ["N1"] and not first["complete"]
    done = call(*whole)
    assert done.exit_code == 0 and "1 setting is kept" in done.output and asked == [1, 2, 2]
    second = json.loads(path.read_text())
    assert second["complete"] and second["settings"]["N1"] == first["settings"]["N1"] and "N2" in second["settings"]


def test_failures():
    """What PyTorch cannot do either is no failure of ours; anything else is."""

    def row(group, form, status):
        return {"name": f"{group} {form}", "group": group, "form": form, "layout": "NCHW", "status": status}

    rows = [row("torch", "fused", "no engine"), row("ours", "fused", "no engine"), row("torch", "folded", "ok"),
            row("ours", "folded", "launch failed"), row("tf32", "folded", "no memory")]  # fmt: skip
    found = {"settings": {"N1": {"rows": rows}}}
    assert list(resnet.failures(found)) == ["N1: ours folded: launch failed"]
    rows[0]["status"] = "ok"
    assert len(list(resnet.failures(found))) == 2


def test_figures_need_matplotlib(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(LaunchError, match="drawn with matplotlib"):
        drawing.draw(resnet.figures({"settings": {}, "arch": "sm_90"}), tmp_path)
