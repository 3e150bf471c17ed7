"""`turingas bench counters`, with a table as ncu prints it. card.py has what stands for a GPU."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
import subprocess

import pytest

from kernels_sass.bench import counters, shapes
from kernels_sass.conv import cost
from kernels_sass.conv import shape as sizes
from kernels_sass.conv.methods.direct import DIRECT
from kernels_sass.conv.methods.hopper import HOPPER
from loader.reference.problem import Problem
from tests.kernels_sass.card import call
from turingas.errors import LaunchError


def table_of_ncu(launches):
    """What ncu --csv --page raw prints."""
    names = list(counters.METRICS.values())
    yield "==PROF== Connected to process 7"
    yield ",".join(f'"{title}"' for title in ("ID", "Kernel Name", *names))
    units = {"gpu__time_duration.sum": "us", "dram__bytes_read.sum": "Mbyte"}
    yield ",".join(f'"{unit}"' for unit in ("", "", *(units.get(name, "") for name in names)))
    for number in range(launches):
        cells = (str(number), "winograd", *(f"{1000 * number + place:,}" for place in range(len(names))))
        yield ",".join(f'"{cell}"' for cell in cells)


def test_what_ncu_prints():
    made = counters.read(list(table_of_ncu(4)))
    places = {name: place for place, name in enumerate(counters.METRICS)}
    assert [one["fma"] for one in made] == [1000, 3000]  # every second launch
    assert made[0]["nanoseconds"] == 1e3 * (1000 + places["nanoseconds"])
    assert made[1]["dram_read"] == 1e6 * (3000 + places["dram_read"])
    assert made[0]["dram_written"] == 1000 + places["dram_written"]
    assert counters._number("n/a", "") is None
    another = [line.replace("winograd", "other") if line.startswith('"3"') else line for line in table_of_ncu(4)]
    with pytest.raises(LaunchError, match="2 and 3 that ncu told of are no pair: they are of winograd and other"):
        counters.read(another)
    with pytest.raises(LaunchError, match="no launch: ==ERROR== no permission"):
        counters.read(["==ERROR== no permission"])


def test_counters(card, tmp_path, monkeypatch):
    path = tmp_path / "found.json"
    words = ["counters", "--layer", "Conv2", "--batch", "2", "--layout", "NHWC", "--json", str(path)]
    monkeypatch.setattr(shutil, "which", lambda name, path=None: None)
    done = call(*words)
    assert done.exit_code == 1 and "ncu (Nsight Compute) is not installed" in done.output
    monkeypatch.setattr(shutil, "which", lambda name, path=None: name)
    asked = []

    def ncu(command, **options):
        asked.append(command)
        counters.launch(*command[command.index("kernels_sass.bench.counters") + 1 :])
        return subprocess.CompletedProcess(command, 0, "\n".join(table_of_ncu(2)), "")

    monkeypatch.setattr(subprocess, "run", ncu)
    done = call(*words)
    assert done.exit_code == 0, done.output
    assert [launch[0] for launch in card.launches] == ["filter_transform", "winograd", "winograd"]
    found = json.loads(path.read_text())["settings"]["Conv2N2 NHWC"]
    useful = 16 * 3 * 3 * 2 * 4
    ran = found["ffma_threads"] + 1024 / 3 * found["tensor_instructions"]
    assert found["useful"] == pytest.approx(100 * useful / ran)
    assert found["of_peak"] == pytest.approx(100 * useful / (found["elapsed"] * 2 * 64))
    assert "Conv2N2 NHWC" in done.output and call("counters", "--show", "--json", str(path)).output in done.output


def test_needed_products():
    """Those of the method: a tile of 2 x 2 outputs takes 16, or 4 times 9."""
    p = Problem(2, 3, 4, 6, 5, 3, 3, 1, 1)
    assert [counters.needed(p, sizes.Shape.of(p, "NCHW", kernel))
            for kernel in (*map(HOPPER.kernel, HOPPER.kernels), *map(DIRECT.kernel, DIRECT.kernels))] == [
        16 * 3 * 5 * 2 * 6, 16 * 3 * 5 * 2 * 6, 9 * 3 * 5 * 2 * 24, 9 * 3 * 5 * 2 * 24
    ]  # fmt: skip


def test_counters_of_the_layers_of_networks(card, tmp_path, monkeypatch):
    """As Conv2d launches them: two blocks share channels here, and only the main kernel is counted."""
    monkeypatch.setattr(shutil, "which", lambda name, path=None: name)
    assert counters.problem("DenseNet 2", 8) == Problem(8, 128, 28, 28, 32, 3, 3, 1, 1)
    monkeypatch.setattr(shapes, "LAYERS", (shapes.Layer("Tiny 1", 16, 4, 8),))
    monkeypatch.setattr(counters, "SHAPES", counters.SHAPES | {"layers": ("Tiny 1",), "batches": (1,)})
    monkeypatch.setattr(cost, "fastest", lambda shape, *_: dataclasses.replace(shape, splits=2))

    def ncu(command, **options):
        counters.launch(*command[command.index("kernels_sass.bench.counters") + 1 :])
        assert re.fullmatch(command[command.index("-k") + 1].removeprefix("regex:"), "winograd32")
        return subprocess.CompletedProcess(command, 0, "\n".join(table_of_ncu(2)), "")

    monkeypatch.setattr(subprocess, "run", ncu)
    path = tmp_path / "found.json"
    done = call("counters", "--shapes", "--json", str(path))
    assert done.exit_code == 0, done.output
    assert [launch[0] for launch in card.launches] == ["filter_transform", *["winograd", "add_splits4"] * 2]
    found = json.loads(path.read_text())["settings"]["Tiny 1N1 NCHW"]
    assert (found["splits"], found["kernel"]) == (2, "winograd") and "2 x winograd" in done.output
    with pytest.raises(LaunchError, match="there is no layer 'DenseNet'"):
        counters.problem("DenseNet", 8)
