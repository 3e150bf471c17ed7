"""`turingas bench`, over the driver that stands for a GPU: contenders are checked, timed, kept; without one it says so.

The kernels are standin.cu's, compiled by NVRTC; cuDNN is a small one in Python; there is no PyTorch.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import io
import json
import math
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from kernels_sass.bench import figures, networks, ours, schedule, shapes, verdicts, winograd
from kernels_sass.conv import code, parameters
from kernels_sass.conv.parameters import Parameter
from loader import cuda, nvrtc, timing
from loader.bench import contenders, cudnn, measure, results
from loader.bench import figures as drawing
from loader.bench.measure import Contender, Data
from loader.reference import cublas
from loader.reference.problem import Problem, arrange, truth
from loader.workers import Workers
from tests.kernels_sass.card import SMALL, call, row
from turingas.cli import bench as commands
from turingas.cli.bench import Benches, benches
from turingas.errors import LaunchError

SOME = [word for name in ("cudnn", "torch", "tf32", "fp16", "opencnn") for word in ("--rivals", name)]
PART = ["winograd", "--layer", "Conv2", "--batch", "2", "--runs", "20", *SOME]


# ---- the whole way -----------------------------------------------------------------------------------------------


def test_winograd(card, tmp_path):
    path = tmp_path / "found.json"
    done = call(*PART, "--json", str(path))
    assert done.exit_code == 0, done.output
    found = json.loads(path.read_text())
    assert found["commit"] == "abc" and found["complete"] and found["gpu"] == "Fake 0" and found["sms"] == 2
    assert found["mhz"] == {"clock": 1000, "memory_clock": 2000} and found["sources"]
    assert found["asked"]["sources"] == ["paper"]  # the card is an sm_75
    (name,) = found["settings"]
    entry = found["settings"][name]
    rows = {row["name"]: row for row in entry["rows"]}
    assert name == "Conv2N2" and len(rows) == 7 + 16 + 6 + 1
    for layout in ("CHWN", "NCHW", "NHWC"):
        for part in ("", " main"):
            row = rows[f"ours paper {layout}{part}"]
            assert row["status"] == "ok" and row["how"] == "graph" and row["runs"] == 20
            assert row["error"] < 1e-6 and row["least"] <= row["low"] <= row["ms"] <= row["high"] <= row["most"]
            p = Problem(**entry["problem"])
            assert row["tflops"] == pytest.approx(2 * 2 * 3 * 3 * 16 * 9 / row["ms"] / 1e9, abs=0.006) and p.flops
            peak = 2 * 64 * 1e9  # SMs, FFMA a cycle of sm_75, Hz
            assert row["ffma"] == pytest.approx(16 * 3 * 3 * 2 * 4 / (row["ms"] / 1e3) / peak, abs=6e-5)
    assert rows["ours paper CHWN"]["workspace"] == 4 * 16 * 8 * 64
    assert "error" not in rows["ours paper CHWN filter"] and rows["ours paper CHWN filter"]["ms"] > 0
    opencnn = rows["reference winograd_opencnn"]
    assert opencnn["status"] == "ok" and opencnn["error"] < 1e-6 and opencnn["group"] == "opencnn"
    assert rows["cuDNN FFT NCHW"]["status"] == "cuDNN is not installed"
    assert rows["PyTorch tf32 NHWC"]["status"].startswith("PyTorch is not installed")
    ours = entry["verdict"]["ours"]["NCHW"]
    assert entry["verdict"]["rival"] is None and ours["over_rival"] is None
    assert ours["over_opencnn"] == round(opencnn["ms"] / rows["ours paper NCHW"]["ms"], 3)
    assert found["summary"]["NCHW"]["over_opencnn"]["mean"] == ours["over_opencnn"]
    assert entry["state"]["during"] == {"sm_mhz": 1000, "memory_mhz": 2000}
    assert "Conv2N2" in done.output and "cuDNN FFT NCHW: no time in 1 of 1 settings" in done.output
    assert done.output.splitlines()[-1].startswith("largest relative L2 error of ours against float64: ")
    assert "\n" not in found["opencnn_recorded"]["what"] and "cited" in found["opencnn_recorded"]["what"]
    shown = call("winograd", "--show", "--json", str(path))
    assert shown.exit_code == 0 and shown.output.splitlines()[-1] == done.output.splitlines()[-1]


def test_all_take_turns(card, caplog):
    """In each round everybody runs once, each time in another order; all copies are taken. A log tells each round, and
    each launch of the first two."""
    played = []

    class Player(Contender):
        def launch(self, copy, stream):
            played.append((self.name, copy))

    with Data(SMALL, cuda.device(0)) as data:
        players = [Player(name) for name in "abcd"]
        replays = {player.name: measure.Queued(player, data) for player in players}
        played.clear()
        with caplog.at_level("DEBUG", "loader.bench"):
            times, during = measure.alternate(data, replays, 20, seed=3)
        told = [record.getMessage() for record in caplog.records]
        assert [sum(f"{name} was launched" in line for line in told) for name in "abcd"] == [2] * 4
        assert sum("round" in line for line in told) == 22
        assert {name: len(found) for name, found in times.items()} == dict.fromkeys("abcd", 20)
        rounds = [played[start : start + 4 * data.copies] for start in range(0, len(played), 4 * data.copies)]
        assert len(rounds) == 22 and all(sorted(one) == sorted(rounds[0]) for one in rounds)
        assert len({tuple(name for name, copy in one if copy == 0) for one in rounds}) > 5
        played.clear()
        times, during = measure.alternate(data, replays, 20, 3, {"d": 3})  # in rounds -1, 0, 3, ... 18
        assert {name: len(found) for name, found in times.items()} == {"a": 20, "b": 20, "c": 20, "d": 7}
        assert sum(name == "d" for name, _ in played) == 8 * data.copies
        for enough, least, rounds in ((0.0, 5, 5), (0.0, 30, 20), (1e6, 5, 20)):  # seconds, and what they leave
            times, during = measure.alternate(data, replays, 20, 3, None, lambda part: None, enough, least)
            assert {len(found) for found in times.values()} == {rounds}


def test_copies_exceed_the_l2(card):
    gpu = cuda.device(0)
    with Data(SMALL, gpu) as data:
        x, w, y = (data.arrays(*what) for what in (("x", "NHWC"), ("w", "KRSC"), ("y", "CHWN")))
        assert len(x) == len(w) == len(y) == data.copies
        size = sum(one.nbytes for one in (x[0], w[0], y[0]))
        assert data.copies * size >= measure.ROTATION * gpu.attribute("L2_CACHE_SIZE") or data.copies == 64
        assert len({one.address for one in x}) == data.copies
        assert all((one.numpy() == arrange(data.host["x"], "NCHW", "NHWC")).all() for one in x)
        assert data.arrays("x", "NHWC") == x
        exact = truth(data.host["x"], data.host["w"], SMALL)
        y[0].copy_from(arrange(exact.astype(np.float32), "NCHW", "CHWN"))
        assert data.error(y[0], "CHWN") < 1e-7
        data.poison("CHWN")
        assert np.isnan(data.error(y[0], "CHWN"))


def test_a_head_start_has_an_end(card, monkeypatch):
    """It is that of a second launch, and no round waits for ever where that is slow."""
    filled, spent = [], [3.0, 0.01]

    class Slow(Contender):
        def launch(self, copy, stream):
            if copy == 0 and spent:
                time.sleep(spent.pop(0) / 100)

    class Scratch(cuda.Buffer):
        def fill(self, byte, stream=0):
            filled.append(byte)
            return self

    monkeypatch.setattr(measure, "Buffer", Scratch)
    monkeypatch.setattr(timing, "FILL_SECONDS", 1e-3)
    with Data(SMALL, cuda.device(0)) as data:
        queued = measure.Queued(Slow("slow"), data)
        assert not spent and queued.lead < 0.02
        for lead, most in ((0.0035, 4), (1e6, timing.MOST_FILLS)):
            queued.lead = lead
            filled.clear()
            measure.alternate(data, {"slow": queued}, 1, 0)
            assert len(filled) == 3 * (measure.FILLS + most)


def test_what_there_is_once(card):
    """All copies take it, and the others exceed the L2 without it."""
    large = Problem(1, 8, 3, 3, 4, 3, 3, 1, 1)
    with Data(large, cuda.device(0)) as several, Data(large, cuda.device(0), once="w") as data:
        x, w = data.arrays("x", "NCHW"), data.arrays("w", "KCRS")
        assert len(x) == len(w) == data.copies > several.copies
        assert len({one.address for one in x}) == data.copies and len({one.address for one in w}) == 1
        assert len({one.address for one in several.arrays("w", "KCRS")}) == several.copies


class Exact(Contender):
    """Copies the float64 result into y, without a kernel; ``broken``: leaves the last copy as it was. A graph does not
    see what it does."""

    def __init__(self, broken=False):
        super().__init__(f"exact {broken}")
        self.broken = broken

    def prepare(self, data):
        self.y, self.exact = data.arrays("y", "NCHW"), truth(data.host["x"], data.host["w"], data.problem)

    def launch(self, copy, stream):
        if not self.broken or copy != len(self.y) - 1:
            self.y[copy].copy_from(self.exact.astype(np.float32))

    def output(self, copy):
        return self.y[copy]

    def record(self, data):
        raise measure.Refused("not this one\nsecond line")


def test_what_is_wrong_has_no_time(card):
    with Data(SMALL, cuda.device(0)) as data:
        rows, _ = measure.compare(data, [Exact(True), Exact()], 20)
    assert rows[0]["status"].startswith("wrong: a relative L2 error of nan") and "ms" not in rows[0]
    assert rows[1]["status"] == "ok" and rows[1]["how"] == "queued" and rows[1]["not recorded"] == "not this one"


def test_a_wrong_kernel_is_told(card, monkeypatch):
    monkeypatch.setattr(ours.Ours, "bound", 1e-12)
    done = call(*PART[: -len(SOME)], "--rivals", "none", "--layout", "NHWC")
    assert done.exit_code == 1, done.output
    assert "NOT OK Conv2N2: ours paper NHWC: wrong: a relative L2 error of" in done.output


def test_every_kernel_of_a_source(card, monkeypatch, tmp_path):
    """A parameter of parameters.VARIANTS: each value is a kernel of ours; one that refuses is told."""
    there = {"MATH": Parameter("MATH", "ffma", ("ffma", "tf32x3", "broken"))}
    monkeypatch.setattr(parameters, "parameters", lambda source: there)
    assembled = code.assemble
    given = []

    def assemble(source, arch, schedule):
        given.append(dict(schedule))
        if schedule["MATH"] == "broken":
            raise LaunchError("no such products")
        return assembled(source, arch, {})

    monkeypatch.setattr(code, "assemble", assemble)
    words = [*PART[: -len(SOME)], "--rivals", "opencnn", "--layout", "NCHW", "--layout", "CHWN", "-D", "YIELD=nvcc8"]
    done = call(*words, "--json", str(tmp_path / "a.json"))
    assert done.exit_code == 1 and "NOT OK Conv2N2: ours paper broken NCHW: no such products" in done.output
    entry = json.loads((tmp_path / "a.json").read_text())["settings"]["Conv2N2"]
    names = [row["name"] for row in entry["rows"] if row["group"] == "ours"]
    first = ["NCHW", "NCHW main", "CHWN", "CHWN main", "NCHW filter"]
    assert names[:5] == [f"ours paper ffma {rest}" for rest in first]
    assert len(names) == 15 and {"MATH": "tf32x3", "YIELD": "nvcc8"} in given
    ours = entry["verdict"]["ours"]
    assert list(ours) == [f"{value} {layout}" for value in ("ffma", "tf32x3", "broken") for layout in ("NCHW", "CHWN")]
    assert ours["tf32x3 CHWN"]["ms"] and ours["tf32x3 CHWN"]["main_ms"] and ours["broken NCHW"]["ms"] is None
    assert "tf32x3 CHWN: over openCNN's layout" in done.output
    done = call(*words, "-D", "MATH=tf32x3", "--json", str(tmp_path / "b.json"))
    assert done.exit_code == 0, done.output
    entry = json.loads((tmp_path / "b.json").read_text())["settings"]["Conv2N2"]
    assert list(entry["verdict"]["ours"]) == ["tf32x3 NCHW", "tf32x3 CHWN"]


def test_references(card, monkeypatch):
    """They take part, cuBLAS's product too, on the stream that is timed."""
    streams = []

    def products(a, b, c, m, n, depth, first, count, stream=0):
        card.cuStreamSynchronize(stream)
        streams.append(stream)
        made = c.numpy()
        made[first : first + count] = (a.numpy().reshape(m, depth) @ b.numpy()[:count]).reshape(made[:count].shape)
        c.copy_from(made)

    there = ["direct", "im2col", "memory_efficient_single", "winograd_opencnn"]
    monkeypatch.setattr(winograd, "algorithms", lambda: there)
    monkeypatch.setattr(cublas, "library", lambda: "there")
    monkeypatch.setattr(cublas, "products", products)
    monkeypatch.setattr(contenders._Cublas, "launch", products)
    made = winograd.contenders(winograd.Asked(rivals=("references", "opencnn")))
    with Data(SMALL, cuda.device(0)) as data:
        rows, _ = measure.compare(data, made, 6)
        found = {row["name"]: row for row in rows}
        assert list(found) == [f"reference {name}" for name in (there[3], *there[:3])]
        assert found["reference winograd_opencnn"]["runs"] == 6 and found["reference direct"]["runs"] == 2
        assert found["reference im2col"]["status"] == "ok" and found["reference im2col"]["error"] < 1e-6
        assert [found[name]["how"] for name in list(found)[:3]] == ["graph", "graph", "queued"]
        assert found["reference memory_efficient_single"]["status"] not in ("ok", "wrong")
        assert set(streams) == {0, data.stream.handle}


def test_references_without_a_compiler(card, monkeypatch):
    def none(*args, **options):
        raise nvrtc.NvrtcError("NVRTC is not installed")

    monkeypatch.setattr(nvrtc, "compile", none)
    with Data(SMALL, cuda.device(0)) as data:
        rows, _ = measure.compare(data, [contenders.Reference("direct")], 2)
    assert rows[0]["status"] == "NVRTC is not installed"


# ---- cuDNN -------------------------------------------------------------------------------------------------------


class Small:
    """cuDNN's functions, as far as they are called here: descriptors are numbers, the convolution is numpy's."""

    def __init__(self, card):
        self.card, self.made, self.calls = card, {}, []

    def create(self, place):
        number = len(self.made) + 1
        self.made[number] = None
        ctypes.cast(place, ctypes.POINTER(ctypes.c_void_p))[0] = number
        return 0

    cudnnCreate = cudnnCreateTensorDescriptor = cudnnCreateFilterDescriptor = create
    cudnnCreateConvolutionDescriptor = create

    def destroy(self, descriptor):
        del self.made[descriptor.value]

    cudnnDestroyTensorDescriptor = cudnnDestroyFilterDescriptor = cudnnDestroyConvolutionDescriptor = destroy

    def cudnnGetVersion(self):
        return 91900

    def cudnnGetErrorString(self, status):
        return b"CUDNN_STATUS_NOT_SUPPORTED"

    def cudnnSetStream(self, handle, stream):
        self.stream = stream
        return 0

    def cudnnSetTensor4dDescriptor(self, descriptor, layout, kind, *sizes):
        self.made[descriptor.value] = (layout, kind, sizes)
        return 0

    def cudnnSetFilter4dDescriptor(self, descriptor, kind, layout, *sizes):
        return self.cudnnSetTensor4dDescriptor(descriptor, layout, kind, *sizes)

    def cudnnSetConvolution2dDescriptor(self, descriptor, *numbers):
        self.made[descriptor.value] = numbers
        return 0

    def cudnnSetConvolutionMathType(self, descriptor, kind):
        assert kind == 3
        return 0

    def cudnnGetConvolutionForwardWorkspaceSize(self, handle, x, w, convolution, y, algorithm, size):
        if algorithm == 6:
            return 3000
        ctypes.cast(size, ctypes.POINTER(ctypes.c_size_t))[0] = 1000 * algorithm
        return 0

    def cudnnConvolutionForward(
        self, handle, alpha, x, at_x, w, at_w, convolution, algorithm, room, size, beta, y, at_y
    ):
        assert ctypes.c_float.from_address(alpha).value == 1 and ctypes.c_float.from_address(beta).value == 0
        assert size == 1000 * algorithm and bool(room) == bool(size)
        pad, pad_w, *rest = self.made[convolution.value]
        assert pad == pad_w and rest == [1, 1, 1, 1, 1, 0]
        order = ("NCHW", "NHWC")[self.made[x.value][0]]
        memory = self.card.devices[0].memory

        def array(descriptor, address):
            layout, kind, sizes = self.made[descriptor.value]
            assert kind == 0 and ("NCHW", "NHWC")[layout] == order
            shape = [sizes["NCHW".index(letter)] for letter in order]
            flat = memory.view(address)[: 4 * int(np.prod(shape))].view(np.float32)
            return flat.reshape(shape).transpose([order.index(letter) for letter in "NCHW"])

        given, filters = array(x, at_x), array(w, at_w)
        p = Problem(*given.shape, filters.shape[0], 3, 3, 1, pad)
        array(y, at_y)[...] = truth(given, filters, p) * (1 + 3e-4 * (algorithm == 2))
        return 0


def test_cudnn(card, monkeypatch):
    small = Small(card)
    monkeypatch.setattr(cudnn, "library", lambda: small)
    assert cudnn.version() == "9.19.0"
    with Data(SMALL, cuda.device(0)) as data:
        # its numpy is not recorded in a graph, so the copies of a replay would be left as they were
        monkeypatch.setattr(cudnn.Cudnn, "record", Exact.record)
        rows, _ = measure.compare(data, cudnn.contenders(), runs=2)
    found = {row["name"]: row for row in rows}
    assert len(found) == 16
    for name, one in found.items():
        if " WINOGRAD " in name:
            what = "status 3000: CUDNN_STATUS_NOT_SUPPORTED (cudnnGetConvolutionForwardWorkspaceSize)"
            assert one["status"] == what
        elif " GEMM " in name:  # as TF32 would be: no float32
            assert one["status"].startswith("wrong: a relative L2 error of 3.0e-04")
        else:
            assert one["status"] == "ok" and one["error"] < 1e-6 and one["ms"] > 0, one
    assert found["cuDNN FFT_TILING NHWC"]["workspace"] == 5000
    assert list(small.made) == [1]  # descriptors are given back, the handle is kept


@pytest.fixture
def quick(monkeypatch):
    """Settings that take no time to measure."""

    def setting(problem, gpu, asked, step):
        rows = [row(f"ours paper {layout}{' main' * (part == 'main')}", "ours", 1.0, part, error=1e-7)
                for layout in asked.layouts for part in ("all", "main")]  # fmt: skip
        return {"rows": rows, "verdict": verdicts.verdict(rows, "paper")}

    monkeypatch.setattr(winograd, "setting", setting)


# ---- the file ----------------------------------------------------------------------------------------------------


def test_interrupted_and_resumed(card, quick, tmp_path, monkeypatch):
    path = tmp_path / "deep" / "found.json"
    whole = ["winograd", "--layer", "Conv2", "--layer", "Conv3", "--batch", "1,2", "--runs", "20", "--rivals", "none",
             "--layout", "CHWN", "--json", str(path)]  # fmt: skip
    done = call(*whole, "--seconds", "0")
    assert "3 settings left" in done.output and done.exit_code == 0, done.output
    first = json.loads(path.read_text())
    assert list(first["settings"]) == ["Conv2N1"] and not first["complete"]
    real, counted = winograd.setting, []

    def interrupted(problem, gpu, asked, step):
        counted.append(problem)
        if len(counted) == 2:
            raise KeyboardInterrupt
        return real(problem, gpu, asked, step)

    monkeypatch.setattr(winograd, "setting", interrupted)
    done = call(*whole)
    assert done.exit_code == 130 and "1 setting is kept" in done.output
    second = json.loads(path.read_text())
    assert list(second["settings"]) == ["Conv2N1", "Conv3N1"] and not second["complete"]
    assert second["settings"]["Conv2N1"] == first["settings"]["Conv2N1"]
    done = call(*whole)
    third = json.loads(path.read_text())
    assert list(third["settings"]) == ["Conv2N1", "Conv3N1", "Conv2N2", "Conv3N2"] and third["complete"]
    assert third["summary"]["settings"] == 4
    monkeypatch.setattr(winograd, "setting", real)
    done = call(*whole, "--seconds", "0")  # complete: it begins again
    assert done.exit_code == 0 and "has results of a run that was complete, which are replaced" in done.output
    assert len(json.loads(path.read_text())["settings"]) == 1
    monkeypatch.setenv("TURINGAS_COMMIT", "def")
    done = call(*whole, "--seconds", "0").output  # other code: it begins again
    assert "kept" not in done and "has results of another run (commit), which are replaced" in done


def test_nothing_was_begun(tmp_path):
    """What is found then can be shown as anything else, and what is in the file stays there."""
    path, told = tmp_path / "found.json", []
    facts = {"what": "a test", "date": ""}
    results.Results(path, {**facts, "gpu": "another"}, {}).fill({"a": 1}, 9, told.append, lambda *of: {"ms": 1})
    before = path.read_text()
    for kept in (path, None):
        with Workers("here") as workers:
            found = results.Results(kept, facts, {}).spread({"a": 1, "b": 2}, 9, told.append, workers, int, int,
                                                            took={"a": 10, "b": 10})  # fmt: skip
        assert found["settings"] == {} == found["summary"] and not found["complete"] and found["what"] == "a test"
    assert path.read_text() == before and told[-1] == "2 settings are left: the same command goes on with them"
    networks.show({**found, "gpu": "none", "driver": "", "commit": "", "cudnn": "", "torch": ""})


def test_reasons():
    """A line, whatever it is; numbers that JSON does not have are texts."""
    assert measure.reason(RuntimeError("one\ntwo")) == "one" and measure.reason(RuntimeError()) == "RuntimeError"
    assert measure.reason(RuntimeError("\n\ntwo")) == "two"
    assert [measure.finite(one) for one in (0.0123, math.nan, -math.inf)] == [0.012, "nan", "-inf"]


def test_the_bar_and_the_time_left(card, quick, monkeypatch):
    from rich.console import Console

    shown = io.StringIO()
    console = Console(file=shown, force_terminal=True, width=100, color_system=None)
    monkeypatch.setattr(results, "console", lambda: console)
    steps = []
    real = winograd.setting

    def setting(problem, gpu, asked, step):
        step(0.5)
        steps.append(shown.getvalue().count("left:"))
        return real(problem, gpu, asked, step)

    monkeypatch.setattr(winograd, "setting", setting)
    done = call("winograd", "--layer", "Conv2", "--batch", "1,2,3", "--rivals", "none", "--layout", "CHWN")
    assert done.exit_code == 0, done.output
    assert steps[0] >= 2 and steps == sorted(set(steps))  # drawn when a setting begins, and at each step
    assert "Conv2N3" in shown.getvalue() and "50%" in shown.getvalue()
    assert "\x1b[?25h" in shown.getvalue()  # the cursor is there again
    # above the bar, which is wiped before and drawn again behind it
    assert re.search(r"\x1b\[2KConv2N1 .*; 2 to do, about \d+ s\nConv2N1 .* 17%, left:", shown.getvalue())
    assert re.search(r"\x1b\[2KConv2N3 .*; 0 to do\n", shown.getvalue())


def test_the_time_left_without_a_terminal(card, quick):
    done = call("winograd", "--layer", "Conv2", "--batch", "1,2,3", "--rivals", "none", "--layout", "CHWN")
    assert re.search(r"^Conv2N1 .*; 2 to do, about \d+ s$", done.output, re.M), done.output
    assert re.search(r"^Conv2N3 .*; 0 to do$", done.output, re.M)


def test_where_results_go(card, quick, tmp_path, monkeypatch):
    """The whole table to kernels_sass/results of the checkout; a part of it only where --json says."""
    monkeypatch.setattr(results, "FOLDER", tmp_path / "kept")
    assert call(*PART[: -len(SOME)], "--rivals", "none", "--layout", "CHWN").exit_code == 0
    assert not (tmp_path / "kept").exists()
    assert results.default_path("winograd", "sm_90") == tmp_path / "kept" / "winograd_sm90.json"
    assert ours.kept_in("winograd", "sm_90", "hopper").name == "winograd_sm90.json"
    assert ours.kept_in("winograd", "sm_90", "paper").name == "winograd_sm90_paper.json"
    assert ours.kept_in("winograd", "sm_75", "paper").name == "winograd_sm75.json"
    every = call("winograd", "--seconds", "0")  # the first of 16 settings
    assert every.exit_code == 0, every.output
    assert [path.name for path in (tmp_path / "kept").iterdir()] == ["winograd_sm75.json"]
    assert f"written: {tmp_path / 'kept' / 'winograd_sm75.json'}" in every.output
    monkeypatch.setattr(results, "ROOT", tmp_path)  # no checkout: in the current folder
    assert results.default_path("winograd", "sm_90") == Path("winograd_sm90.json")


def test_not_a_file_of_ours(card, tmp_path):
    for text in ("{}", "[1]", "no"):
        path = tmp_path / "other.json"
        path.write_text(text)
        done = call(*PART, "--json", str(path))
        assert done.exit_code == 1 and "holds no results" in done.output and path.read_text() == text
        done = call("winograd", "--show", "--json", str(path))
        assert done.exit_code == 1 and "holds no results" in done.output


# ---- figures -----------------------------------------------------------------------------------------------------


def small():
    """Results of two kernels of ours, in two layers with two numbers of images."""
    settings = {}
    for number, setting in enumerate(("Conv2N32", "Conv3N32", "Conv2N128", "Conv3N128"), 1):
        rows = []
        for name, group, ms in (
            ("ours hopper ffma CHWN", "ours", 1.0), ("ours hopper tf32x3 NCHW", "ours", 0.5),
            ("cuDNN WINOGRAD_NONFUSED NCHW", "cudnn", 0.8), ("cuDNN FFT NCHW", "cudnn", 4.0),
            ("PyTorch fp32 NCHW", "torch", 2.0), ("PyTorch tf32 NHWC", "tf32", 0.2), ("PyTorch fp16 NHWC", "fp16", 0.1),
            ("reference half", "references", 3.0),
            ("reference winograd_opencnn", "opencnn", 1.5), ("reference winograd", "references", 1.6),
        ):  # fmt: skip
            more = {"tflops": 10 / ms, "error": float(f"{number}e-7"), "workspace": 1000}
            more |= {"low": ms * number, "high": ms * number}
            rows.append(row(name, group, ms * number, **more))
            if name == "reference half":
                rows[-1]["precision"] = "fp16"
            if group == "ours":
                rows[-1]["ffma"] = 0.5
                rows.append(row(f"{name} main", group, ms * number, "main", ffma=0.6, tflops=11.0))
        rows.append(row("cuDNN WINOGRAD NCHW", "cudnn"))
        settings[setting] = {"rows": rows, "verdict": verdicts.verdict(rows, "hopper")}
    return {"gpu": "NVIDIA H200", "arch": "sm_90", "driver": "580.1", "date": "2026-11-22", "commit": "abcdef0123456",
            "cudnn": "9.19.0", "torch": "", "settings": settings, "summary": verdicts.summary(settings, "hopper"),
            "asked": {"sources": ["hopper"]}}  # fmt: skip


def test_figures_from_results_alone(no_gpu, tmp_path):
    pytest.importorskip("matplotlib")
    path, folder = tmp_path / "small.json", tmp_path / "deep" / "new"
    path.write_text(json.dumps(small()))
    done = call("winograd", "--show", "--json", str(path), "--figures", str(folder))
    assert done.exit_code == 0, done.output
    assert len(list(folder.iterdir())) == len(figures.WINOGRAD) == 9
    for name in figures.WINOGRAD:
        text = (folder / f"winograd_sm90_{name}.svg").read_text()
        assert "NVIDIA H200, driver 580.1, 2026-11-22, cuDNN 9.19.0, commit abcdef012" in text, name
        assert str(folder / f"winograd_sm90_{name}.svg") in done.output
    heat = (folder / "winograd_sm90_over_all.svg").read_text()
    assert "cuDNN FFT NCHW" in heat and ">8.00<" in heat and ">1.60<" in heat
    assert "tf32 NHWC" not in heat and "half" not in heat
    apart = (folder / "winograd_sm90_precision.svg").read_text()
    assert "PyTorch tf32 NHWC" in apart and "reference half" in apart and ">0.40<" in apart and ">0.20<" in apart
    names = re.findall(r">(Conv\dN\d+)<", heat)
    assert names == ["Conv2N32", "Conv2N128", "Conv3N32", "Conv3N128"]  # as the papers have them
    again = {"again": lambda: figures.over_all(results.in_order(small()))}
    assert drawing.draw(again, folder)[0].read_text() == heat  # the same results, the same file


@pytest.mark.parametrize("what", "winograd schedule counters shapes smem roofline resnet assembler".split())
def test_results_of_another_command(no_gpu, what):
    done = call(what, "--show", "--json", str(results.FOLDER / "hmma_sm90.json"))
    assert done.exit_code == 1 and "hmma_sm90.json holds the results of `bench hmma`" in done.output


def test_results_of_an_older_version(no_gpu, tmp_path):
    """What they lack is told; of what was measured just now it would be a mistake of ours."""
    path = tmp_path / "old.json"
    found = json.loads((results.FOLDER / "shapes_sm90.json").read_text())
    for entry in found["settings"].values():
        del entry["splits"]
    path.write_text(json.dumps(found))
    done = call("shapes", "--show", "--json", str(path))
    told = " ".join(done.output.split())
    assert done.exit_code == 1 and "these results have no 'splits': another version of `turingas bench` wrote" in told
    assert f"commit {found['commit'][:9]}, which measured them, can show them" in told
    with pytest.raises(KeyError):
        dataclasses.replace(shapes.BENCH, run=lambda *of: found).command({}, path, None, False, print)


def test_a_sweep_is_shown_by_either_command(no_gpu):
    path = str(results.FOLDER / "sweep_sm90.json")
    shown = [call("schedule", "--show", "--json", path, *more) for more in ((), ("--sweep",))]
    assert shown[0].exit_code == 0 and shown[0].output == shown[1].output


def test_tables_as_in_the_papers(no_gpu, tmp_path):
    path = tmp_path / "small.json"
    path.write_text(json.dumps(small()))
    shown = call("winograd", "--show", "--json", str(path)).output
    lines = [re.sub(r"\s+", " ", line).strip() for line in shown.splitlines()]
    mine, theirs = lines.index("Table 6 of Yan, Wang, Chu 2020, here: speed-up of the best of ours"), lines.index(
        "Tables 3 and 4 of openCNN's papers, here: speed-up of openCNN's layout"
    )
    assert "cuDNN WINOGRAD_NONFUSED NCHW 128 1.60 1.60" in lines[mine:theirs]
    assert "Yan 2020 in CUDA C++ 32 3.20 3.20" in lines[mine:theirs]
    assert "cuDNN WINOGRAD NCHW: wrong" in lines[mine:theirs]  # in the place of a speed-up
    assert "Yan 2020 in CUDA C++ 32 1.07 1.07" in lines[theirs:]
    assert "Conv2N128 tf32x3 NCHW 1.5000 1.5000 1.5000 20.0 50.0% 60.0% 0.00 3e-07 4.5000 3.00 0.6000 0.3000" in lines


def test_figures_of_few_results(tmp_path):
    """What there is nothing for is left out; nothing fails."""
    pytest.importorskip("matplotlib")
    found = small()
    found["settings"] = {"Conv2N32": found["settings"]["Conv2N32"]}
    entry = found["settings"]["Conv2N32"]
    entry["rows"] = [one for one in entry["rows"] if one["group"] == "ours"]
    entry["verdict"] = verdicts.verdict(entry["rows"], "hopper")
    made = {path.stem.removeprefix("winograd_sm90_") for path in drawing.draw(figures.winograd(found), tmp_path)}
    assert made == {"tflops", "share", "workspace", "error"}


def test_without_matplotlib(card, quick, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    for words in (["winograd"], ["schedule"], ["winograd", "--show"]):
        done = call(*words, "--figures", "new")
        assert done.exit_code == 1 and "figures are drawn with matplotlib" in done.output, done.output
        assert 'pip install ".[bench]"' in done.output and not card.launches  # before anything is measured


# ---- without rich ------------------------------------------------------------------------------------------------


def test_without_rich(card, monkeypatch):
    monkeypatch.setitem(sys.modules, "rich", None)
    done = call(*PART)
    assert done.exit_code == 1 and 'pip install ".[bench]"' in done.output and not card.launches


@pytest.mark.parametrize("name", benches())
def test_each_bench_tells_its_command(name):
    """What the command asks for, its bench takes."""
    bench, command = benches()[name], Benches(name="bench").get_command(None, name)
    assert bench.name == command.name == name and bench.short and command.help
    names = {parameter.name for parameter in command.params}
    wanted = {"path", "show", *({"figures"} if bench.figures else ()), *(option.to for option in bench.options)}
    assert names == wanted
    assert all(option.help for option in bench.options if option.names.startswith("-"))
    assert {*bench.chosen} <= {option.to for option in bench.options} and (bench.load or not bench.chosen)


@pytest.mark.parametrize(("words", "file"), [
    ("winograd", "winograd_sm90"), ("winograd --source paper", "winograd_sm90_paper"),
    ("winograd --source hopper", "winograd_sm90"), ("schedule --source paper", "schedule_sm90_paper"),
    ("schedule --sweep", "sweep_sm90"), ("gemm --warm", "gemm_sm90_warm"), ("gemm", "gemm_sm90"),
])  # fmt: skip
def test_what_is_shown(words, file):
    """What was asked for, and not the best source's."""
    pytest.importorskip("rich")
    asked = call(*words.split(), "--show")
    named = call(words.split()[0], "--show", "--json", str(results.FOLDER / f"{file}.json"))
    assert (asked.exit_code, asked.output) == (named.exit_code, named.output)


def test_what_is_not_there_to_be_shown():
    done = call("schedule", "--show", "--source", "hgmma")
    assert done.exit_code == 1 and re.search("there are no results in .*schedule_sm90_hgmma.json", done.output)
    for words in ("gemm --vary GROUP=1", "schedule --define A=1", "ffma --seconds 9"):
        name, option, value = words.split()
        done = call(name, "--show", option, value)
        assert done.output.startswith(f"{option} is not looked at: --show prints what is kept"), done.output


def test_a_bench_is_one_module(tmp_path, monkeypatch):
    """One more, in a module of its own, that nobody else names."""
    (tmp_path / "more").mkdir()
    (tmp_path / "more/__init__.py").write_text("")
    (tmp_path / "more/wants.py").write_text("import nobody_has_this\n")
    (tmp_path / "more/invented.py").write_text(
        "from loader.bench.bench import Bench\n"
        "BENCH = Bench('invented', 'Says so.', 'Says so at length.', (), lambda *of: {'settings': {}}, print)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(commands, "PLACES", [*commands.PLACES, "more"])
    assert "invented   Says so." in call("--help").output and "{'settings': {}}" in call("invented").output


def test_a_bench_is_imported_when_it_is_wanted():
    program = "import sys; from turingas.cli import main"
    program += "; print([name for name in sys.modules if name.split('.')[0] in ('numpy', 'loader', 'kernels_sass')])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_options():
    given = winograd.BENCH.given({"layers": ("Conv3", "all"), "rivals": ("none",), "layouts": (), "seconds": None})
    assert given == {"layers": ("Conv2", "Conv3", "Conv4", "Conv5"), "rivals": ()}
    assert winograd.BENCH.given({"rivals": ("all",)}) == {"rivals": winograd.RIVALS}
    assert winograd.BENCH.given({"batches": (32, 32, 8)}) == {"batches": (32, 8)}
    assert len(winograd.Asked().settings()) == len(schedule.Asked().settings()) == 16


def test_means():
    rows = [
        row("ours paper CHWN", "ours", 1.0), row("ours paper CHWN main", "ours", 0.9, "main"),
        row("ours paper tf32x3 NCHW", "ours", 0.8), row("ours hopper NHWC", "ours", 0.1),
        row("a", "cudnn", 2.0), row("b", "torch", 1.6), row("c", "tf32", 0.1), row("d", "cudnn"),
        row("e", "opencnn", 3.0),
    ]  # fmt: skip
    found = verdicts.verdict(rows, "paper")
    assert found["rival"] == "b" and found["opencnn_ms"] == 3  # not TF32, not what is wrong
    assert list(found["ours"]) == ["CHWN", "tf32x3 NCHW"]
    assert found["ours"]["CHWN"] == {"ms": 1.0, "main_ms": 0.9, "over_rival": 1.6, "over_opencnn": 3.0}
    assert found["ours"]["tf32x3 NCHW"]["over_rival"] == 2.0 and found["ours"]["tf32x3 NCHW"]["main_ms"] is None
    other = verdicts.verdict([*rows[:2], row("a", "cudnn", 1.0)], "paper")
    made = verdicts.summary({"x": {"verdict": found}, "y": {"verdict": other}}, "paper")
    assert made["best"]["over_rival"] == {"mean": 1.414, "least": 1.0, "of": 2}
    assert made["CHWN"]["over_rival"]["of"] == 2 and made["tf32x3 NCHW"]["over_rival"]["of"] == 1
    assert made["best of NCHW, NHWC"]["over_rival"] == {"mean": 2.0, "least": 2.0, "of": 1}
    assert verdicts.best({"verdict": found}) == "tf32x3 NCHW" and verdicts.best({"verdict": other}) == "CHWN"
    assert winograd.ffmas(Problem(32, 512, 7, 7, 512, 3, 3, 1, 1)) == 16 * 512 * 512 * 32 * 16


def test_results_name_no_place_of_a_machine():
    """What is kept was written on some machine, and is read on others."""
    kept = [*Path("kernels_sass/results").glob("*.json"), *Path("tests/bench").glob("*.json")]
    assert len(kept) > 20
    place = re.compile(r"(?<![\w.)/])/\w[\w.-]*/[\w./-]+")
    assert not [(str(path), found) for path in kept if (found := place.findall(path.read_text()))]


def test_numbers_of_cudnn():
    """The order of cudnnConvolutionFwdAlgo_t, in NVIDIA's documentation."""
    assert [cudnn.ALGORITHMS.index(name) for name in ("IMPLICIT_GEMM", "FFT", "WINOGRAD_NONFUSED")] == [0, 4, 7]
    assert set(cudnn.SIGNATURES) <= {name for name in vars(Small) if name.startswith("cudnn")}


def test_what_must_be_done_in_time():
    """What is raised comes through whatever takes exceptions for its own; afterwards nothing is raised."""
    before, took = signal.getsignal(signal.SIGALRM), []
    with pytest.raises(measure.Late), measure.within(0.05):
        while True:
            with contextlib.suppress(Exception):
                time.sleep(10)
    assert signal.getsignal(signal.SIGALRM) is before and signal.getitimer(signal.ITIMER_REAL) == (0, 0)
    with measure.within(0.2):
        took.append(1)
    time.sleep(0.3)
    with pytest.raises(measure.Late), measure.within(0):
        took.append(2)
    assert took == [1]


def test_who_takes_no_notice_is_told_again():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measure, "AGAIN", 0.05)
        told = []
        with pytest.raises(measure.Late), measure.within(0.05):
            while len(told) < 3:
                try:
                    time.sleep(10)
                except measure.Late:
                    told.append(1)
            time.sleep(10)
    assert len(told) == 3


def test_a_thread_is_not_interrupted():
    """Signals do not reach it: it is late only if no time is left."""
    def work():
        with measure.within(0.05):
            time.sleep(0.2)
        with contextlib.suppress(measure.Late), measure.within(0):
            return "begun"
        return "late"

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(work).result() == "late"
