"""`make demo`: what it computes, what it says when something is missing, and that it leaves nothing behind."""

from __future__ import annotations

import functools
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image

import loader
from examples import demo
from kernels_sass.conv import code, cost
from loader import nvrtc, reference, timing
from loader.nvrtc import NvrtcError
from tests.loader.conftest import install  # noqa: F401
from tests.loader.driver import Driver
from turingas.cubin.cubin import Cubin
from turingas.errors import LaunchError

ROOT = Path(__file__).parent.parent
STANDIN = (ROOT / "tests" / "kernels_sass" / "standin.cu").read_text()


@pytest.fixture
def no_gpu(install):  # noqa: F811
    install(Driver(gpus=0))


def call(*words):
    return CliRunner().invoke(demo.main, [str(word) for word in words], env={"COLUMNS": "120"})


def picture(path, height=9, width=12):
    random = np.random.default_rng(0)
    Image.fromarray(random.integers(0, 256, (height, width, 3), np.uint8)).save(path)
    return path


# ---- what it computes --------------------------------------------------------------------------------------------


def test_demo(no_gpu, tmp_path):
    """The sample, on the CPU device, small."""
    done = call("--side", 24, "--output", tmp_path / "new" / "demo.png")
    assert done.exit_code == 0, done.output
    assert "the CPU device: there is no GPU" in done.output and "winograd.sass for sm_75" in done.output
    rows = re.findall(r"^  (SASS|CUDA C\+\+) - (float64|CUDA C\+\+), relative L2 +(\S+) +(\S+)", done.output, re.M)
    assert len(rows) == 3 and all(0 < float(error) < 1e-6 for *_, first, second in rows for error in (first, second))
    assert done.output.count("match") == 2 and "MISMATCH" not in done.output
    with Image.open(tmp_path / "new" / "demo.png") as drawn:
        assert drawn.width == 1000 and len(drawn.convert("RGB").getcolors(1 << 20)) > 200


def test_picture_of_ones_own(no_gpu, tmp_path):
    done = call(picture(tmp_path / "a [b].png"), "-o", tmp_path / "b.jpg", "--device", "cpu", "--arch", "sm_80")
    assert done.exit_code == 0, done.output
    assert "3 x 9 x 12, 13 filters" in done.output and "13 x 9 x 12, 5 filters" in done.output
    assert "for sm_80" in done.output and "as asked" in done.output and (tmp_path / "b.jpg").exists()


def test_filters():
    """Of an even picture: no edges, a white sketch, and else the picture, but for its rim."""
    x = np.empty((1, 3, 8, 8), np.float32)
    x[:] = np.array([0.2, 0.5, 0.7]).reshape(3, 1, 1)
    first = demo.exact(x, *demo.weights(demo.COLOURS, demo.FIRST)).astype(np.float32)
    second = demo.exact(first, *demo.weights(list(demo.FIRST), demo.SECOND))
    found = {**dict(zip(demo.FIRST, first[0])), **dict(zip(demo.SECOND, second[0]))}
    inner = {name: plane[2:-2, 2:-2] for name, plane in found.items()}
    for colour, value in zip(demo.COLOURS, (0.2, 0.5, 0.7)):
        for name, factor in (("blur", 1), ("sharpen", 1), ("emboss", 1), ("cartoon", 1.1)):
            assert np.allclose(inner[f"{name} {colour}"], factor * value, atol=1e-6)
    assert all(np.allclose(inner[name], 0, atol=1e-6) for name in (*demo.EDGES, "edges"))
    assert np.allclose(inner["sketch"], 1, atol=1e-6)
    assert first[0, list(demo.FIRST).index("edges right"), 4, 0] > 0.5  # from the zeros around it
    assert {name for shown in demo.PANELS.values() for name in shown} <= {*demo.COLOURS, *found}


def test_wrong_result_is_told(no_gpu, tmp_path, monkeypatch):
    right = demo.ours

    def wrong(*args):
        y, time = right(*args)
        y[0, 1, 2, 3] += 0.01
        return y, time

    monkeypatch.setattr(demo, "ours", wrong)
    done = call(picture(tmp_path / "a.png"), "-o", tmp_path / "b.png")
    assert done.exit_code == 1 and "MISMATCH" in done.output
    assert "mismatch: y of SASS, worst at [0,1,2,3], against float64" in done.output


# ---- what is missing ---------------------------------------------------------------------------------------------


def test_no_nvrtc(no_gpu, tmp_path, monkeypatch):
    def none():
        raise NvrtcError("NVRTC is not installed")

    monkeypatch.setattr(nvrtc, "library_path", none)
    monkeypatch.setattr(reference, "_threads", threading.local())  # without modules that were compiled before
    done = call(picture(tmp_path / "a.png"), "-o", tmp_path / "b.png")
    assert done.exit_code == 0 and "Not compared with CUDA C++: NVRTC is not installed" in done.output
    assert "SASS - float64" in done.output and "SASS - CUDA C++" not in done.output


def test_what_is_no_picture(no_gpu, tmp_path):
    (tmp_path / "a.png").write_text("not a picture")
    done = call(tmp_path / "a.png")
    assert done.exit_code == 1 and "a.png is not a picture that can be read" in done.output
    done = call(picture(tmp_path / "b.png", 3, 20))
    assert done.exit_code == 1 and "b.png has 20 x 3 pixels; at least 4 x 4" in done.output
    assert call(tmp_path / "none.png").exit_code == 2
    assert "there is no device 'cuda:7'" in call("--device", "cuda:7").output.replace("\n", " ")


# ---- with a GPU --------------------------------------------------------------------------------------------------


@pytest.fixture
def gpu(install, monkeypatch):  # noqa: F811
    """An sm_75 of the driver that stands for a GPU, standin.cu in the place of the kernels, few runs."""

    def assemble(source, arch, schedule):
        return Cubin.from_bytes(nvrtc.compile(STANDIN, arch, [], name="standin.cu"))

    monkeypatch.setattr(code, "assemble", assemble)
    monkeypatch.setattr(code.Kernels, "_made", {})
    monkeypatch.setattr(reference, "_threads", threading.local())
    monkeypatch.setattr(timing, "measure", functools.partial(timing.measure, runs=2, warmup=1, flush=False))
    cost._sms.cache_clear()
    yield install(Driver(gpus=1))
    code.Kernels._made.clear()


def test_gpu(gpu, tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(demo, "turingas", lambda words: print("tables") or asked.append(words) or sys.exit(len(asked)))
    done = call(picture(tmp_path / "a.png", 4, 4), "-o", tmp_path / "b.png")
    assert done.exit_code == 1, done.output  # what the benchmark says
    assert "on cuda:0, Fake 0: the first GPU there is" in done.output
    assert re.search(r"time on the GPU +\d+\.\d{4} ms +\d+\.\d{4} ms", done.output) and "MISMATCH" not in done.output
    speed = ["bench", "winograd", "--layer", "Conv3", "--batch", "32", "--json", str(tmp_path / "speed.json")]
    assert asked == [speed]
    assert "failed" in done.output and (tmp_path / "speed.txt").read_text() == "tables\n"


def test_the_fastest_of_each(gpu, tmp_path, monkeypatch):
    """What `turingas bench winograd` found on an H200."""
    kept = json.loads(Path("kernels_sass/results/winograd_sm90.json").read_text())
    kept["settings"] = {"Conv3N32": kept["settings"]["Conv3N32"]}

    def bench(words):
        Path(words[-1]).write_text(json.dumps(kept))
        sys.exit(0)

    monkeypatch.setattr(demo, "turingas", bench)
    done = call(picture(tmp_path / "a.png", 4, 4), "-o", tmp_path / "b.png")
    assert done.exit_code == 0, done.output
    rows = kept["settings"]["Conv3N32"]["rows"]
    for group in demo.GROUPS:
        there = [row for row in rows if row["group"] == group and row["part"] == "all" and row["status"] == "ok"]
        assert f"{min(row['ms'] for row in there):.4f}" in done.output


def test_gpu_without_kernels(install, monkeypatch):  # noqa: F811
    def refuse(gpu):
        raise LaunchError(f"{gpu} ({gpu.name}) is sm_61")

    install(Driver(gpus=1))
    monkeypatch.setattr(demo.conv, "arch_of", refuse)
    assert demo.place(None, None) == ("cpu", "sm_75", "cuda:0 (Fake 0) is sm_61")


# ---- venv.sh and the Makefile ------------------------------------------------------------------------------------

PYTHON = """#!/bin/sh
echo "$0 $*" >> {log}
case "$*" in
    *version_info*) exit {old};;
    --version) echo "Python 3.8.1";;
    *ensurepip*) exit {bare};;
    "-m venv"*) {mkdir} -p .venv/bin; {cp} "$0" .venv/bin/python;;
    "-m pip install"*) exit {offline};;
esac
"""


@pytest.fixture
def machine(tmp_path):
    """Runs a copy of venv.sh where there are these Pythons alone, each made of what is wrong with it."""
    shutil.copy(ROOT / "venv.sh", tmp_path)
    (tmp_path / "bin").mkdir()
    os.symlink(shutil.which("dirname"), tmp_path / "bin" / "dirname")
    log = tmp_path / "log"

    def run(python=None, **pythons):
        for name, wrong in pythons.items():
            wrong = {key: int(key in wrong) for key in ("old", "bare", "offline")}
            path = tmp_path / "bin" / name.replace("_", ".")
            path.write_text(PYTHON.format(log=log, mkdir=shutil.which("mkdir"), cp=shutil.which("cp"), **wrong))
            path.chmod(0o755)
        log.write_text("")
        environment = {"PATH": str(tmp_path / "bin"), **({"PYTHON": python} if python else {})}
        command = [shutil.which("sh"), tmp_path / "venv.sh", "demo"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        return done.returncode, done.stderr, log.read_text()

    return run


def test_setup(machine):
    code, told, ran = machine(python3=())
    assert code == 0 and not told
    assert re.search(r"bin/python3 -m venv --clear \.venv\n", ran)
    assert re.search(r"\.venv/bin/python -m pip install .*--editable \.\[demo\]\n", ran)
    code, told, ran = machine()
    assert code == 0 and "-m venv" not in ran and "pip install" in ran  # the same environment again


def test_setup_looks_for_a_newer_python(machine):
    code, told, ran = machine(python3=("old",), python3_12=())
    assert code == 0 and "bin/python3.12 -m venv" in ran


@pytest.mark.parametrize(
    "pythons, python, told",
    [
        ({}, None, "error: python3 does not run\nhint: install Python 3.10 or later"),
        ({}, "mine", "error: mine does not run\n"),
        ({"python3": ("old",)}, None, "error: python3 is Python 3.8.1; 3.10 or later is needed\nhint: "),
        ({"python3": (), "mine": ("old",)}, "mine", "error: mine is Python 3.8.1; 3.10 or later"),
        ({"python3": ("bare",)}, None, "error: python3 cannot make virtual environments\nhint: Debian"),
        ({"python3": ("offline",)}, None, "error: pip could not install what is needed\nhint: this step needs the net"),
    ],
)
def test_setup_says_what_is_missing(machine, pythons, python, told):
    code, said, _ = machine(python, **pythons)
    assert code == 1 and told in said


@pytest.mark.skipif(shutil.which("make") is None or loader.devices() != ["cpu"], reason="no make, or a GPU")
def test_cudnn_is_not_fetched_without_a_gpu(tmp_path):
    (tmp_path / "demo").touch()
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
    python.chmod(0o755)
    variables = [f"BIN={tmp_path}", f"DEMO={tmp_path / 'demo'}", f"CUDNN={tmp_path / 'cudnn'}"]
    done = subprocess.run(["make", "cudnn", *variables], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode and "error: there is no GPU here" in done.stderr and "Installing" not in done.stdout


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_nothing_is_left_behind(tmp_path):
    """With the variables that the Makefile sets, the home folder stays empty."""
    show = ["make", "--silent", "--eval", "show:\n\t@env", "show"]
    shown = subprocess.run(show, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    kept = dict(line.split("=", 1) for line in shown.splitlines() if f"={ROOT}/" in line)
    assert {"TURINGAS_CACHE", "XDG_CACHE_HOME", "MPLCONFIGDIR", "CUDA_CACHE_PATH", "PYTEST_DEBUG_TEMPROOT"} <= set(kept)
    home = tmp_path / "home"
    home.mkdir()
    environment = {"PATH": os.environ["PATH"], **kept, "HOME": str(home), "PYTHONDONTWRITEBYTECODE": "1"}
    tools = {"TURINGAS_NVRTC", "TURINGAS_CUDA_INCLUDE"} & set(os.environ)
    environment |= {name: os.environ[name] for name in tools}
    command = [sys.executable, "-m", "examples.demo", "--device", "cpu", "--side", "8", "-o", tmp_path / "a.png"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert list(home.iterdir()) == []
