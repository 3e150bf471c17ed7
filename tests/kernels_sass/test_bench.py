"""`turingas bench`, over the driver that stands for a GPU: contenders are checked, timed, kept; without one it says so.

The kernels are standin.cu's, compiled by NVRTC; cuDNN is a small one in Python; there is no PyTorch.
"""

from __future__ import annotations

import ctypes
import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from kernels_sass.bench import command, contenders, counters, cudnn, measure, results, schedule, winograd
from kernels_sass.bench.measure import Contender, Data
from kernels_sass.winograd import host
from loader import cuda, nvrtc, timing, validate
from loader.reference.problem import Problem, arrange, truth
from tests.loader.driver import Driver, enum
from tests.loader.test_cuda import install  # noqa: F401
from turingas.cli import main
from turingas.errors import LaunchError
from turingas.program import Cubin

STANDIN = Path(__file__).parent / "standin.cu"
SMALL = Problem(2, 3, 4, 5, 4, 3, 3, 1, 1)


class Card(Driver):
    """With what a benchmark asks beside."""

    CUdevice_attribute = enum("CUdevice_attribute", *(kind.name for kind in Driver.CUdevice_attribute),
                              "CU_DEVICE_ATTRIBUTE_CLOCK_RATE", "CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE")  # fmt: skip

    def do_cuGraphLaunch(self, graph, stream):
        """The first time alone, when outputs are checked: the CPU device takes its time."""
        super().do_cuGraphLaunch(graph, stream)
        self.handles[graph].clear()

    def do_cuDeviceGetAttribute(self, kind, device):
        name = self.CUdevice_attribute(kind).name.removeprefix("CU_DEVICE_ATTRIBUTE_")
        known = {"L2_CACHE_SIZE": 512, "MULTIPROCESSOR_COUNT": 2, "CLOCK_RATE": 1_000_000,
                 "MEMORY_CLOCK_RATE": 2_000_000}  # fmt: skip
        return known[name] if name in known else super().do_cuDeviceGetAttribute(kind, device)


@pytest.fixture
def card(install, monkeypatch, tmp_path):  # noqa: F811
    """A GPU, standin.cu in the place of both sources, a small Conv2 and Conv3, no PyTorch, no cuDNN, nothing of git."""
    card = install(Card(gpus=1))

    def assemble(source, arch, given):
        if unknown := set(given) - {"YIELD", "LDG_INTERLEAVE", "STS_INTERLEAVE"}:
            raise LaunchError(f"{source.file} has no parameter {unknown.pop()!r}")
        return Cubin.from_bytes(nvrtc.compile(STANDIN.read_text(), arch))

    monkeypatch.setattr(host, "_assemble", assemble)
    monkeypatch.setattr(host.Source, "exists", True)
    monkeypatch.setattr(host.Kernels, "_made", {})
    host._sms.cache_clear()
    for name, size in (("Conv2", (3, 4)), ("Conv3", (5, 3))):
        monkeypatch.setitem(validate.LAYERS, name, size)
    monkeypatch.setattr(measure, "torch", lambda: None)
    monkeypatch.setattr(contenders, "torch", lambda: None)
    monkeypatch.setattr(results, "torch", lambda: None)
    monkeypatch.setattr(cudnn, "library", lambda: None)
    monkeypatch.setattr(timing, "clocks", lambda gpu: timing.Clocks(1000, 2000))
    monkeypatch.setattr(timing, "nvml", lambda: None)
    monkeypatch.setattr(results, "_driver", lambda: "1.2")
    monkeypatch.setenv("TURINGAS_COMMIT", "abc")
    monkeypatch.setattr(results, "ROOT", tmp_path)
    cudnn._handle.cache_clear()
    yield card
    host.Kernels._made.clear()


@pytest.fixture
def no_gpu(install):  # noqa: F811
    install(Driver(gpus=0))


def call(*words):
    return CliRunner().invoke(main, ["bench", *words])


SOME = [word for name in ("cudnn", "torch", "tf32", "fp16", "opencnn") for word in ("--rivals", name)]
PART = ["winograd", "--layer", "Conv2", "--batch", "2", "--runs", "20", *SOME]


def row(name, group, ms=None, part="all", **more):
    """A row of results; without ms one that was wrong."""
    return {"name": name, "group": group, "part": part, **({"status": "ok", "ms": ms} if ms else {"status": "wrong"}),
            **more}  # fmt: skip


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


def test_all_take_turns(card):
    """In each round everybody runs once, each time in another order; all copies are taken."""
    played = []

    class Player(Contender):
        def launch(self, copy, stream):
            played.append((self.name, copy))

    with Data(SMALL, cuda.device(0)) as data:
        players = [Player(name) for name in "abcd"]
        replays = {player.name: measure.Queued(player, data) for player in players}
        played.clear()
        times, during = measure.alternate(data, replays, 20, seed=3)
        assert {name: len(found) for name, found in times.items()} == dict.fromkeys("abcd", 20)
        rounds = [played[start : start + 4 * data.copies] for start in range(0, len(played), 4 * data.copies)]
        assert len(rounds) == 22 and all(sorted(one) == sorted(rounds[0]) for one in rounds)
        assert len({tuple(name for name, copy in one if copy == 0) for one in rounds}) > 5


def test_copies_exceed_the_l2(card):
    gpu = cuda.device(0)
    with Data(SMALL, gpu) as data:
        x, w, y = (data.arrays(*what) for what in (("x", "NHWC"), ("w", "KRSC"), ("y", "CHWN")))
        assert len(x) == len(w) == len(y) == data.copies
        size = sum(one.nbytes for one in (x[0], w[0], y[0]))
        assert data.copies * size >= measure.ROTATION * gpu.attribute("L2_CACHE_SIZE") or data.copies == 64
        assert len({one.address for one in x}) == data.copies
        assert all((one.numpy() == arrange(data.host["x"], "NCHW", "NHWC")).all() for one in x)
        assert data.arrays("x", "NHWC") is x
        exact = truth(data.host["x"], data.host["w"], SMALL)
        y[0].copy_from(arrange(exact.astype(np.float32), "NCHW", "CHWN"))
        assert data.error(y[0], "CHWN") < 1e-7
        data.poison("CHWN")
        assert np.isnan(data.error(y[0], "CHWN"))


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
    monkeypatch.setattr(contenders.Ours, "bound", 1e-12)
    done = call(*PART[: -len(SOME)], "--rivals", "none", "--layout", "NHWC")
    assert done.exit_code == 1, done.output
    assert "NOT OK Conv2N2: ours paper NHWC: wrong: a relative L2 error of" in done.output


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
    for name, row in found.items():
        if " WINOGRAD " in name:
            what = "status 3000: CUDNN_STATUS_NOT_SUPPORTED (cudnnGetConvolutionForwardWorkspaceSize)"
            assert row["status"] == what
        elif " GEMM " in name:  # as TF32 would be: no float32
            assert row["status"].startswith("wrong: a relative L2 error of 3.0e-04")
        else:
            assert row["status"] == "ok" and row["error"] < 1e-6 and row["ms"] > 0, row
    assert found["cuDNN FFT_TILING NHWC"]["workspace"] == 5000
    assert list(small.made) == [1]  # descriptors are given back, the handle is kept


@pytest.fixture
def quick(monkeypatch):
    """Settings that take no time to measure."""

    def setting(problem, gpu, asked, step):
        rows = [row(f"ours paper {layout}{' main' * (part == 'main')}", "ours", 1.0, part, error=1e-7)
                for layout in asked.layouts for part in ("all", "main")]  # fmt: skip
        return {"rows": rows, "verdict": winograd.verdict(rows, "paper")}

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
    assert done.exit_code == 130 and "1 settings are kept" in done.output
    second = json.loads(path.read_text())
    assert list(second["settings"]) == ["Conv2N1", "Conv3N1"] and not second["complete"]
    assert second["settings"]["Conv2N1"] == first["settings"]["Conv2N1"]
    done = call(*whole)
    third = json.loads(path.read_text())
    assert list(third["settings"]) == ["Conv2N1", "Conv3N1", "Conv2N2", "Conv3N2"] and third["complete"]
    assert third["summary"]["settings"] == 4
    monkeypatch.setattr(winograd, "setting", real)
    assert call(*whole, "--seconds", "0").exit_code == 0  # complete: it begins again
    assert len(json.loads(path.read_text())["settings"]) == 1
    monkeypatch.setenv("TURINGAS_COMMIT", "def")
    assert "kept" not in call(*whole, "--seconds", "0").output  # other code: it begins again


def test_where_results_go(card, quick, tmp_path):
    """The whole table to docs/results of the checkout; a part of it only where --json says."""
    (tmp_path / "docs" / "results").mkdir(parents=True)
    assert call(*PART[: -len(SOME)], "--rivals", "none", "--layout", "CHWN").exit_code == 0
    assert not list((tmp_path / "docs" / "results").iterdir())
    assert results.default_path("winograd", "sm_90") == tmp_path / "docs" / "results" / "winograd_sm90.json"
    assert results.default_path("winograd", "sm_90", "hopper").name == "winograd_sm90.json"
    assert results.default_path("winograd", "sm_90", "paper").name == "winograd_sm90_paper.json"
    assert results.default_path("winograd", "sm_75", "paper").name == "winograd_sm75.json"
    every = call("winograd", "--seconds", "0")  # the first of 16 settings
    assert every.exit_code == 0, every.output
    assert [path.name for path in (tmp_path / "docs" / "results").iterdir()] == ["winograd_sm75.json"]


def test_not_a_file_of_ours(card, tmp_path):
    for text in ("{}", "[1]", "no"):
        path = tmp_path / "other.json"
        path.write_text(text)
        done = call(*PART, "--json", str(path))
        assert done.exit_code == 1 and "holds no results" in done.output and path.read_text() == text
        done = call("winograd", "--show", "--json", str(path))
        assert done.exit_code == 1 and "holds no results" in done.output


# ---- the schedule ------------------------------------------------------------------------------------------------


def test_schedule(card, tmp_path):
    pytest.importorskip("matplotlib")
    path = tmp_path / "found.json"
    words = ["schedule", "--layer", "Conv2", "--batch", "2", "--runs", "20", "--json", str(path)]
    done = call(*words, "--figures", str(tmp_path / "new"))
    assert done.exit_code == 0, done.output
    found = json.loads(path.read_text())
    rows = {row["name"]: row for row in found["settings"]["Conv2N2"]["rows"]}
    assert list(rows) == ["as it is", "YIELD=natural", "YIELD=nvcc8", "YIELD=cudnn7", "LDG_INTERLEAVE=8",
                          "LDG_INTERLEAVE=4", "LDG_INTERLEAVE=2", "STS_INTERLEAVE=6", "STS_INTERLEAVE=4",
                          "STS_INTERLEAVE=2"]  # fmt: skip
    assert all(row["status"] == "ok" and row["error"] < 1e-6 for row in rows.values())
    ratio = rows["YIELD=nvcc8"]["ms"] / rows["YIELD=natural"]["ms"]
    assert found["summary"]["YIELD"]["natural over nvcc8"] == pytest.approx(ratio, abs=1e-3)
    assert f"YIELD: natural over nvcc8: {found['summary']['YIELD']['natural over nvcc8']:.3f}x" in done.output
    for name in ("yield", "ldg_interleave", "sts_interleave"):
        assert (tmp_path / "new" / f"schedule_sm75_paper_{name}.png").read_bytes().startswith(b"\x89PNG")
        assert "<svg" in (tmp_path / "new" / f"schedule_sm75_paper_{name}.svg").read_text()
    shown = call("schedule", "--show", "--json", str(path))
    assert shown.exit_code == 0 and "YIELD: natural over nvcc8" in shown.output


def test_a_source_without_a_parameter(card, tmp_path, monkeypatch):
    real = host._assemble

    def assemble(source, arch, given):
        if "LDG_INTERLEAVE" in given or given.get("STS_INTERLEAVE") == 2:
            raise LaunchError("winograd.sass has none of that")
        return real(source, arch, given)

    monkeypatch.setattr(host, "_assemble", assemble)
    told = []
    found = dict(schedule.there_is(schedule.Asked(), "sm_75", "paper", told.append))
    assert found == {"YIELD": ["natural", "nvcc8", "cudnn7"], "STS_INTERLEAVE": [6, 4]}
    assert len(told) == 4 and told[-1] == "STS_INTERLEAVE=2 is left out: winograd.sass has none of that"


def test_schedule_of_ones_own(card, tmp_path):
    words = ["schedule", "--layer", "Conv2", "--batch", "2", "--runs", "20", "--json", str(tmp_path / "a.json")]
    done = call(*words, "--vary", "YIELD=every:4,7")
    assert done.exit_code == 0, done.output
    asked = json.loads((tmp_path / "a.json").read_text())["asked"]
    assert asked["vary"] == {"YIELD": ["every:4", 7]} and asked["source"] == "paper"
    done = call(*words, "--vary", "COLOUR=1")
    assert done.exit_code == 1 and "has no parameter 'COLOUR'" in done.output
    assert call(*words, "--vary", "COLOUR").exit_code == 2 and call(*words, "--vary", "2=3").exit_code == 2


# ---- counters ----------------------------------------------------------------------------------------------------


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
    assert found["useful"] == pytest.approx(100 * useful / found["ffma_threads"])
    assert found["of_peak"] == pytest.approx(100 * useful / (found["elapsed"] * 2 * 64))
    assert "Conv2N2 NHWC" in done.output and call("counters", "--show", "--json", str(path)).output in done.output


# ---- without a GPU, and wrong usage ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["winograd", "schedule", "counters"])
def test_without_a_gpu(no_gpu, name):
    done = call(name)
    assert done.exit_code == 1
    assert f"bench {name}: error: there is no GPU here" in done.output and "hint: without one, " in done.output


def test_without_rich(card, monkeypatch):
    monkeypatch.setitem(sys.modules, "rich", None)
    done = call(*PART)
    assert done.exit_code == 1 and 'pip install "turingas[bench]"' in done.output and not card.launches


def test_wrong_usage(no_gpu):
    for words in (["winograd", "--layer", "Conv9"], ["winograd", "--layout", "HWCN"], ["winograd", "--batch", "0"],
                  ["winograd", "--source", "volta"], ["winograd", "--rivals", "mkl"], ["schedule", "--runs", "3"],
                  ["roof"]):  # fmt: skip
        assert call(*words).exit_code == 2, words


def test_options():
    given = command._given({"layers": ("Conv3", "all"), "rivals": ("none",), "layouts": (), "seconds": None})
    assert given == {"layers": ("Conv2", "Conv3", "Conv4", "Conv5"), "rivals": ()}
    assert command._given({"rivals": ("all",)}) == {"rivals": winograd.RIVALS}
    assert command._given({"batches": (32, 32, 8)}) == {"batches": (32, 8)}
    assert len(winograd.Asked().settings()) == len(schedule.Asked().settings()) == 16


def test_means():
    rows = [
        row("ours paper CHWN", "ours", 1.0), row("ours paper CHWN main", "ours", 0.9, "main"),
        row("ours paper tf32x3 NCHW", "ours", 0.8), row("ours hopper NHWC", "ours", 0.1),
        row("a", "cudnn", 2.0), row("b", "torch", 1.6), row("c", "tf32", 0.1), row("d", "cudnn"),
        row("e", "opencnn", 3.0),
    ]  # fmt: skip
    found = winograd.verdict(rows, "paper")
    assert found["rival"] == "b" and found["opencnn_ms"] == 3  # not TF32, not what is wrong
    assert list(found["ours"]) == ["CHWN", "tf32x3 NCHW"]
    assert found["ours"]["CHWN"] == {"ms": 1.0, "main_ms": 0.9, "over_rival": 1.6, "over_opencnn": 3.0}
    assert found["ours"]["tf32x3 NCHW"]["over_rival"] == 2.0 and found["ours"]["tf32x3 NCHW"]["main_ms"] is None
    other = winograd.verdict([*rows[:2], row("a", "cudnn", 1.0)], "paper")
    made = winograd.summary({"x": {"verdict": found}, "y": {"verdict": other}}, "paper")
    assert made["best"]["over_rival"] == {"mean": 1.414, "least": 1.0, "of": 2}
    assert made["CHWN"]["over_rival"]["of"] == 2 and made["tf32x3 NCHW"]["over_rival"]["of"] == 1
    assert made["best of NCHW, NHWC"]["over_rival"] == {"mean": 2.0, "least": 2.0, "of": 1}
    assert winograd.best({"verdict": found}) == "tf32x3 NCHW" and winograd.best({"verdict": other}) == "CHWN"
    assert winograd.ffmas(Problem(32, 512, 7, 7, 512, 3, 3, 1, 1)) == 16 * 512 * 512 * 32 * 16


def test_numbers_of_cudnn():
    """The order of cudnnConvolutionFwdAlgo_t, in NVIDIA's documentation."""
    assert [cudnn.ALGORITHMS.index(name) for name in ("IMPLICIT_GEMM", "FFT", "WINOGRAD_NONFUSED")] == [0, 4, 7]
    assert set(cudnn.SIGNATURES) <= {name for name in vars(Small) if name.startswith("cudnn")}
