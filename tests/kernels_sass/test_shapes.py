"""`turingas bench shapes`, without a GPU: the reckoning, and the command on the GPU that is none of card.py."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kernels_sass.bench import shapes
from kernels_sass.conv import cost
from kernels_sass.conv import shape as sizes
from kernels_sass.conv.methods import small
from kernels_sass.conv.methods.hopper import HOPPER
from loader.bench import measure, results
from loader.reference.problem import Problem
from tests.kernels_sass.card import call
from tests.kernels_sass.preferring import costs

ROOT = Path(__file__).parents[2]


def test_the_nearest_shape_that_fits():
    p = Problem(33, 3, 14, 14, 65, 3, 3, 1, 1)
    assert shapes.fitting(p) == Problem(64, 8, 14, 14, 128, 3, 3, 1, 1)
    assert shapes.fitting(shapes.fitting(p)) == shapes.fitting(p)
    assert shapes.operations(p) == 2 * 33 * 65 * 14 * 14 * 3 * 9
    assert shapes.jobs(p) == -(-33 * 49 // 32) * 2


def test_layers():
    """Names are not given twice; those that are too large are left out."""
    wanted = shapes.Asked().settings()
    all_of_them = [f"{layer.network} N{n}" for layer in shapes.LAYERS for n in shapes.BATCHES]
    assert len(all_of_them) == len(set(all_of_them))
    large = "VGG conv1_1", "VGG conv2_1", "YOLOv3 104", "SD conv_in", "SD conv_out", "VAE conv_out", "ESRGAN conv_last"
    assert set(all_of_them) - set(wanted) == {f"{name} N100" for name in large}
    assert all(shapes.size(shapes.fitting(p)) <= shapes.MOST for p in wanted.values())


def test_the_model_is_fitted():
    """Times that are made of the very terms give them back; the methods have those of the files of results: small64x96
    and nhwc are in one of their own."""
    us = {"launch": 3.5, "step of winograd": 0.9, "step of winograd32": 0.7, "job of winograd": 2.0,
          "job of winograd32": 1.5, "second launch": 1.2, "2^20 sums": 2.5}  # fmt: skip
    settings = {}
    for name, p in shapes.Asked().settings().items():
        shape = sizes.Shape(p.n, p.c, p.h, p.w, p.k)
        of = {}
        for one in cost.ways(shape, map(HOPPER.kernel, HOPPER.kernels)):
            kind, (turns, steps, second, sums) = one.block.cost.name, cost.terms(one, 132)
            time = us["launch"] + steps * us[f"step of {kind}"] + turns * us[f"job of {kind}"]
            time += second * us["second launch"] + sums * us["2^20 sums"]
            of[f"{one.splits} x {one.kernel.name}"] = time / 1000
        settings[name] = {"problem": vars(p), "of": of}
    found = shapes.model(settings, "hopper", "NCHW", 132)
    assert found.pop("mean relative error") < 1e-9 and found == us
    wrong = {"a": {"problem": {"n": 1}, "of": {}, "status": "wrong"}}  # has no time at all
    for settings in ({}, wrong):
        assert shapes.model(settings, "hopper", "NCHW", 132) == shapes.summary(settings, "hopper", {}) == {}
    path = results.default_path("shapes", "sm_90")
    files = ROOT / "tests/bench/shapes_96_sm90.json", path.with_stem("shapes_sm90_nhwc"), path
    kept = {name: us for one in files for name, us in json.loads(one.read_text())["summary"]["model"].items()}
    mine = {"second launch": cost.LAUNCH, "2^20 sums": cost.SUMS}
    for name, one in costs().items():
        mine |= {f"step of {name}": one.step, f"job of {name}": one.job}
        mine |= {f"again of {name}": one.again} if one.again else {}
    assert all(us == pytest.approx(kept[name], rel=0.02) for name, us in mine.items())


@pytest.mark.parametrize("apart", [1, 1.25])
def test_parts_of_rows_take_longer(monkeypatch, apart):
    """By what small.py says: measured times fit that better than other factors."""
    kept = json.loads(results.default_path("shapes", "sm_90").read_text())
    monkeypatch.setattr(small, "PARTED", apart)
    other = shapes.model(kept["settings"], "hopper", "NCHW", 132)
    assert other["mean relative error"] > kept["summary"]["model"]["mean relative error"] + 0.002


def test_some_layers():
    assert list(shapes.Asked((1, 8), layers=("SD conv_in",)).settings()) == ["SD conv_in N1", "SD conv_in N8"]
    assert {name.rpartition(" ")[0] for name in shapes.Asked().settings()} == set(shapes.NAMES)


@pytest.fixture
def two(monkeypatch):
    """Two layers; the time is one of jobs, so what is not useful costs."""
    layers = (shapes.Layer("fits", 8, 4, 64), shapes.Layer("odd", 4, 4, 32))
    monkeypatch.setattr(shapes, "LAYERS", layers)
    timed = []

    def compare(data, contenders, runs):
        p = data.problem
        timed.append(p)
        *mine, rival = contenders
        assert [one.part for one in mine] == ["main"] * len(mine) and rival.name == "PyTorch fp32 NCHW"
        ms = shapes.jobs(p) * -(-p.c // 8)
        status = "ok" if p.k != 7 else "wrong"
        row = {"status": status, "error": 1e-7, "ms": float(ms), "low": ms, "high": ms}
        rows = [{**row, "name": one.name} for one in mine] + [{**row, "name": rival.name, "ms": 2.0 * p.n}]
        return rows, dict.fromkeys(("before", "during", "after"), {"sm_mhz": 1000})

    monkeypatch.setattr(measure, "compare", compare)
    return timed


def test_command(card, two, tmp_path):
    path = tmp_path / "shapes.json"
    done = call("shapes", "--batch", "32,64", "--json", str(path))
    assert done.exit_code == 0, done.output
    found = json.loads(path.read_text())
    ratios = {name: row["ratio"] for name, row in found["settings"].items()}
    assert ratios == {"fits N32": 1.0, "fits N64": 1.0, "odd N32": 4.0, "odd N64": 4.0}
    model = found["summary"].pop("model")
    assert model["job of winograd"] == pytest.approx(1000) and model["mean relative error"] < 1e-6
    jobs = {32: 4, 64: 8}  # of both layers, and the milliseconds; a launch of one job is no longer than one
    assert found["summary"] == {
        f"N={n}": {"layers": 2, "most": 4.0, "above_2": 1, "by_launch": 0, "over_pytorch": [2 * n / ms, 2 * n / ms]}
        for n, ms in jobs.items()
    }
    assert all(row["of"] == {"1 x winograd": row["ms"]} for row in found["settings"].values())
    assert all(row["state"].keys() == {"before", "during", "after"} for row in found["settings"].values())
    assert len(two) == len(set(two)) == 4  # the shape that fits, and the three others, each once
    shown = call("shapes", "--show", "--json", str(path))
    assert shown.exit_code == 0 and "N=64: at most 4.00; 1 of 2 layers above 2" in shown.output
    assert "PyTorch's time over ours: 16.0 at least, 16.0 in the mean" in " ".join(shown.output.split())


def test_a_wrong_result_is_no_time(card, two, monkeypatch, tmp_path):
    monkeypatch.setattr(shapes, "LAYERS", (shapes.Layer("odd", 4, 4, 7),))
    done = call("shapes", "--batch", "32", "--json", str(tmp_path / "a.json"))
    assert done.exit_code == 1 and "wrong" in done.output
