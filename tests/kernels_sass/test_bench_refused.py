"""`turingas bench NAME` where there is no GPU, no PyTorch or no results, and with words that there are not."""

from __future__ import annotations

import pytest

from kernels_sass.bench import networks, resnet
from tests.kernels_sass.card import call
from turingas.cli.bench import benches

NAMES = sorted(benches())
#: What there is to do without a GPU, where it is not to show what is kept.
INSTEAD = {"counters": "`turingas info`", "tune": "`turingas tune` itself runs without one",
           "gemm": "kernels_sass.learn.hgemm 300 520 200"}  # fmt: skip


@pytest.mark.parametrize("name", [name for name in NAMES if name != "assembler"])
def test_without_a_gpu(no_gpu, name, tmp_path):
    done = call(name, "--json", str(tmp_path / "none.json"))
    assert done.exit_code == 1 and f"bench {name}: error: there is no GPU here" in done.output
    assert "\nhint: " in done.output and INSTEAD.get(name, f"`turingas bench {name} --show` prints") in done.output


@pytest.mark.parametrize("name", NAMES)
def test_without_results(name, tmp_path):
    done = call(name, "--show", "--json", str(tmp_path / "none.json"))
    assert done.exit_code == 1 and f"bench {name}: error: there are no results in" in done.output


@pytest.mark.parametrize("bench", [networks, resnet], ids=["networks", "resnet"])
def test_without_torch(card, monkeypatch, bench):
    monkeypatch.setattr(bench, "torch", lambda: None)
    done = call(bench.BENCH.name)
    assert done.exit_code == 1 and "PyTorch is not installed, or sees no GPU" in done.output


@pytest.mark.parametrize("words", [
    "winograd --layer Conv9", "winograd --layout HWCN", "winograd --batch 0", "winograd --source volta",
    "winograd --rivals mkl", "schedule --runs 3", "roof", "resnet --batch 0", "resnet --layout CHWN",
    "resnet --form melted", "resnet --source volta", "networks --batch 0", "networks --layout CHWN",
    "networks --network alexnet", "networks --who nobody",
])  # fmt: skip
def test_wrong_usage(no_gpu, words):
    assert call(*words.split()).exit_code == 2
