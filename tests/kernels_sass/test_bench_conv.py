"""`turingas bench conv` without a GPU: one layer through all of it, on a driver that stands for a card's."""

from __future__ import annotations

import contextlib
import dataclasses
import types

import numpy as np
import pytest

from kernels_sass.bench import conv
from kernels_sass.conv.methods import hgmma
from loader.bench import contenders, cudnn, measure, results
from loader.cuda import device
from loader.reference.problem import Problem
from tests.kernels_sass.card import Card, call


@pytest.fixture
def card(install, monkeypatch, tmp_path):
    """With two layers, and no PyTorch: what Conv2d gives is ours and the rivals', whose time is twice as long."""
    install(Card(gpus=1, major=9, minor=0))
    for module in (measure, contenders, results, conv.measure):
        monkeypatch.setattr(module, "torch", lambda: None)
    monkeypatch.setattr(cudnn, "library", lambda: None)
    monkeypatch.setattr(measure, "state", lambda gpu: {"sm_mhz": 1000})
    monkeypatch.setattr(measure, "ROTATION", 0)
    monkeypatch.setattr(results, "_driver", lambda: "1.2")
    monkeypatch.setenv("TURINGAS_COMMIT", "abc")
    monkeypatch.setattr(conv, "RESNET", ((3, 8, 8, 1, 1),))
    monkeypatch.setattr(conv, "SQUARE", ())
    for name, one in hgmma.PRECISIONS.items():  # one width of tiles, to assemble few kernels
        monkeypatch.setitem(hgmma.PRECISIONS, name, dataclasses.replace(one, ways=one.ways[1:2]))

    class Rival(conv.Ours):
        group = "rival"

        def __init__(self, precision, layout):
            super().__init__(precision, layout)
            self.name = f"PyTorch {layout}"

    monkeypatch.setattr(conv, "Torch", Rival)
    monkeypatch.setattr(cudnn, "ALGORITHMS", ("GEMM",))
    alternate = measure.alternate

    def slower(data, replays, *rest):
        times, state = alternate(data, replays, *rest)
        return {name: [2.0 if "PyTorch" in name else 1.0 + n / 100 for n in range(6)] for name in times}, state

    monkeypatch.setattr(measure, "alternate", slower)
    return tmp_path / "conv.json"


def test_a_run(card):
    words = "--batch", "1", "--runs", "6", "--json", str(card), "--precision", "bf16"
    done = call("conv", *words)
    assert done.exit_code == 0, done.output
    found = results.read(card)
    (entry,) = found["settings"].values()
    assert found["complete"] and list(entry["precisions"]) == ["bf16"]
    for precision, one in entry["precisions"].items():
        names = {row["name"]: row["status"] for row in one["rows"]}
        assert len(names) == 2 + 2 and set(names.values()) == {"ok"}, names
        assert all(row["error"] < conv.BOUNDS[precision] and row["how"] == "graph" for row in one["rows"])
        assert one["over"] == one["nhwc over"] == pytest.approx(2 / 1.025, rel=1e-3)
        assert found["summary"][precision]["1x1"]["layers"] == 1
        assert one["state"].keys() == {"before", "during", "after"} and one["state"]["after"] == {"sm_mhz": 1000}
    shown = call("conv", "--show", "--json", str(card))
    assert "bf16, 1x1: 1.95x in the geometric mean of 1, 1.95x at least" in shown.output, shown.output


def test_parts_are_joined(card, monkeypatch, tmp_path):
    """Groups of layers, each measured by itself, become one file as if they had been measured together."""
    monkeypatch.setattr(conv, "SQUARE", ((3, 8, 8, 3, 1),))
    words = "conv", "--batch", "1", "--more", "1", "--runs", "6", "--precision", "bf16"
    parts = [tmp_path / f"{number}.json" for number in range(3)]
    for group, part in zip(("16", "1x1"), parts):
        assert call(*words, "--group", group, "--json", str(part)).exit_code == 0
    joined = [one for part in parts[:2] for one in ("--join", str(part))]
    done = call("conv", *joined, "--json", str(card))
    assert done.exit_code == 0, done.output
    found = results.read(card)
    assert found["complete"] and found["asked"]["groups"] == ["1x1", "16"]
    assert list(found["settings"]) == ["8 -> 8, 1x1/1, 3x3, N=1", "8 -> 8, 3x3/1, 3x3, N=1"]
    assert {"1x1", "16"} <= found["summary"]["bf16"].keys()
    half = call("conv", "--join", str(parts[0]), "--json", str(card))
    assert half.exit_code == 0 and results.read(card)["complete"]
    call(*words[:-1], "fp16", "--json", str(parts[2]))
    other = call("conv", "--join", str(parts[1]), "--join", str(parts[2]), "--json", str(card))
    assert other.exit_code == 1 and "join files of the same precisions" in other.output


def test_a_warm_run(card):
    """All launches of a round take the same arrays, which are one after the other in the graph."""
    data = conv.Typed(Problem(1, 3, 3, 3, 2, 1, 1), device(0), "fp16", warm=True)
    xs, ys = (data.arrays(name, "NHWC") for name in "xy")
    assert len(xs) == data.copies == conv.WARM and len(set(map(id, ys))) == 1
    data.close()
    done = call("conv", "--warm", "--batch", "1", "--runs", "6", "--json", str(card), "--precision", "fp16")
    assert done.exit_code == 0 and "warm L2" in done.output and results.read(card)["asked"]["warm"], done.output


def test_filters_are_the_same_for_all(card):
    """One layer of ours does all copies, with filters that it has brought into order once: rivals have no more."""
    data = conv.Typed(Problem(1, 3, 3, 3, 2, 1, 1), device(0), "fp16")
    x, w = data.arrays("x", "NCHW"), data.arrays("w", "KRSC")
    assert len(w) == len(x) == data.copies == len(set(map(id, x))) > len(set(map(id, w))) == 1
    data.close()


def test_what_is_wrong_is_told(card, monkeypatch):
    monkeypatch.setitem(conv.BOUNDS, "fp16", 1e-9)
    done = call("conv", "--batch", "1", "--runs", "6", "--json", str(card), "--precision", "fp16")
    assert done.exit_code == 1 and "NOT OK" in done.output and "wrong: a relative L2 error of 2" in done.output


def test_everything_that_is_asked():
    settings = conv.Asked().settings()
    assert len(settings) == 2 * 19 + 16 and {group for group, _ in settings.values()} == set(conv.GROUPS)
    assert settings["3 -> 64, 7x7/2, 224x224, N=32"] == ("start", Problem(32, 3, 224, 224, 64, 7, 7, 2, 3))
    rivals = [one.name for one in conv.every("fp32", settings["64 -> 64, 3x3/1, 56x56, N=32"][1])]
    assert len(rivals) == len(set(rivals)) == 2 + 4 + 2 + 16


def test_precisions_round(card):
    data = conv.Typed(Problem(1, 3, 3, 3, 2, 1, 1), device(0), "bf16")
    bits = data.arrays("x", "NHWC")[0].numpy()
    assert bits.dtype == np.uint16
    assert ((bits.astype(np.uint32) << 16).view(np.float32) == data.host["x"].transpose(0, 2, 3, 1)).all()
    data.close()


def test_pytorch_brings_x_into_order(card, monkeypatch):
    """Where it is installed: the same x as the host would give, in any order."""

    class Tensor:
        def __init__(self, array, buffer=None):
            self.array, self.shape, self.buffer = array, array.shape, buffer

        def permute(self, *axes):
            return Tensor(self.array.transpose(axes))

        def copy_(self, other):
            self.buffer.copy_from(np.ascontiguousarray(other.array))

    data = conv.Typed(Problem(2, 3, 4, 5, 2, 1, 1), device(0), "fp16")
    layouts = "NHWC", "CHWN"
    exact = [data.arrays("x", layout)[0].numpy() for layout in layouts]
    data.close()
    made = []
    monkeypatch.setattr(conv, "tensor", lambda buffer, precision: made.append(buffer) or Tensor(buffer.numpy(), buffer))
    monkeypatch.setattr(conv.measure, "torch", lambda: True)
    monkeypatch.setattr(data, "close", lambda: None)
    for layout, right in zip(layouts, exact):
        assert (data.arrays("x", layout)[0].numpy() == right).all()
    assert len(made) == 4


def test_pytorch_tries_all_engines(monkeypatch):
    """Not ten, its default, which it has again behind each call."""
    cudnn = types.SimpleNamespace(benchmark=False, allow_tf32=True, benchmark_limit=10)
    seen = []
    convolve = types.SimpleNamespace(conv2d=lambda *args, **options: seen.append(dict(vars(cudnn))))
    rival = conv.Torch("fp16", "NHWC")
    rival.torch = types.SimpleNamespace(backends=types.SimpleNamespace(cudnn=cudnn), no_grad=contextlib.nullcontext,
                                        nn=types.SimpleNamespace(functional=convolve))  # fmt: skip
    rival.x, rival.w, rival.y, rival.stride, rival.padding = [0], [0], [0], 1, 1
    rival._convolve(0)
    assert seen == [{"benchmark": True, "allow_tf32": False, "benchmark_limit": 0}] and cudnn.benchmark_limit == 10
