"""turingas validate: its options, what it prints, exit codes."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

import turingas
from loader import nvrtc
from loader.reference import algorithms
from tests.emulate.test_device import ADD
from tests.loader.test_validate import ARGS, CONV, HOST, SCALE
from turingas.cli import main
from turingas.cubin.cubin import Cubin
from turingas.errors import LaunchError

SHAPE = ["--shape", "2,3,5,4,3"]
TRUTH = "def exact(out, x, n, by):\n    return x.astype(float) * by\ndef wrong(*a):\n    return [] + 1\n"


def validate(*words):
    return CliRunner().invoke(main, ["validate", "--device", "cpu", *map(str, words)])


@pytest.fixture
def add(tmp_path):
    path = tmp_path / "add.sass"
    path.write_text(ADD)
    (tmp_path / "scale.cu").write_text(SCALE)
    (tmp_path / "check.py").write_text(TRUTH)
    return path


@pytest.fixture(scope="module")
def code():
    options = ["-DSKIP=0", "-DWRONG=-1", "-DSPOIL=0"]
    return turingas.disassemble(Cubin.from_bytes(nvrtc.compile(CONV, "sm_75", options, name="conv.cu")))


@pytest.fixture
def sass(tmp_path, code):
    """A convolution in SASS, with a line that says how it is called."""
    path = tmp_path / "conv.sass"
    path.write_text(CONV.splitlines()[1].replace("//", "#") + "\n" + code)
    return path


def test_a_convolution_in_sass(sass):
    found = validate(sass, *SHAPE)
    assert found.exit_code == 0, found.output
    lines = found.output.splitlines()
    assert lines[0] == "conv.sass on cpu, N=2 C=3 H=5 W=4 K=3, 3x3, stride 1, padding 1, seed 0, tolerance 1.0e-06"
    assert lines[2].startswith("y: conv.sass - float64") and lines[-1] == "match"


def test_other_references(sass):
    for name in algorithms()[:3]:
        found = validate(sass, *SHAPE, "--reference", name, "--tolerance", 1e-5)
        assert found.exit_code == 0, found.output


def test_float64_alone(sass, monkeypatch):
    monkeypatch.setattr("loader.nvrtc.compile", None)
    found = validate(sass, *SHAPE, "--reference", "none")
    assert found.exit_code == 0 and "direct" not in found.output


def test_a_mismatch(sass):
    words = "x:CHWN w y:CHWN N C H W K P Q STRIDE 0 --grid ceil_div(N*K*P*Q,64) --block 64".split()  # padding 0
    found = validate(sass, *words, *SHAPE)
    assert found.exit_code == 1
    assert "mismatch: y of conv.sass, worst at [" in found.output and "match\n" not in found.output.split("mismatch")[0]


def test_the_command_line_goes_before_the_line_of_the_source(sass):
    found = validate(sass, *SHAPE, "--grid", "1")
    assert found.exit_code == 1 and "56 of 120 elements were never written" in found.output


def test_a_cubin_and_host_py(sass, tmp_path):
    cubin = tmp_path / "folder" / "conv.cubin"
    cubin.parent.mkdir()
    cubin.write_bytes(turingas.assemble(sass.read_text()).to_bytes())
    found = validate(cubin, *SHAPE)
    assert found.exit_code == 1 and "the arguments of conv.cubin lack x, w, y" in found.stderr
    host = cubin.parent / "host.py"
    host.write_text(HOST)
    assert validate(cubin, *SHAPE).exit_code == 0
    assert validate(sass, *SHAPE, "--host", host).exit_code == 0
    found = validate(cubin, *SHAPE, "--no-python")
    assert found.exit_code == 1 and "--no-python refuses" in found.stderr


def test_layouts(sass, tmp_path):
    host = tmp_path / "host.py"
    host.write_text("LAYOUTS = ['CHWN']\n" + HOST.replace("x, w, y):", "x, w, y, layout=LAYOUT):", 1))
    found = validate(sass, *SHAPE, "--host", host, "--layout", "CHWN", "--layout", "CHWN")
    assert found.exit_code == 0 and found.output.count("y: conv.sass (CHWN) - float64") == 2, found.output
    found = validate(sass, *SHAPE, "--host", host, "--layout", "NCHW")
    assert found.exit_code == 1 and "has no layout 'NCHW'" in found.stderr
    found = validate(sass, *SHAPE, "--layout", "CHWN")
    assert found.exit_code == 1 and "--layout is for a convolution with a host.py" in found.stderr


def test_layers_and_batches(sass, monkeypatch):
    small = {"Conv4": (2, 6), "Conv5": (3, 5)}
    for module in ("convolutions", "command_line"):
        monkeypatch.setattr(f"loader.validate.{module}.LAYERS", small)  # smaller than they are
    found = validate(sass, "--layer", "all", "--batch", "1,2", *SHAPE, "--json")
    results = json.loads(found.output)
    assert found.exit_code == 0 and [one["ok"] for one in results] == [True] * 5
    assert "N=2 C=2 H=6 W=6 K=2, 3x3, stride 1, padding 1" in results[1]["what"]
    row = results[1]["rows"][0]
    assert (row["array"], row["against"]) == ("y", "float64") and 0 < row["relative"] < 1e-6 and len(row["worst"]) == 4


def test_any_kernel(add, tmp_path):
    words = [add, *ARGS, "--kernel", "add", "--grid", "2"]
    both = ["--reference", tmp_path / "scale.cu", "--truth", f"{tmp_path}/check.py:exact"]
    for more in (both[:2], both[2:], both, [*both, "--strict", "--races"]):
        found = validate(*words, *more)
        assert found.exit_code == 0 and found.output.endswith("match\n"), found.output
    add.write_text(f"# validate: {' '.join(ARGS)} --kernel add --grid 2\n{ADD}")
    assert validate(add, *both).exit_code == 0


def test_a_fault(add, tmp_path):
    found = validate(add, "f32[64]", "f32[60]=random", 64, 2.5, "--kernel", "add", "--grid", "2", "--reference",
                     tmp_path / "scale.cu")  # fmt: skip
    assert found.exit_code == 1
    assert "add.sass:16: add+0x0080: LDG.E.SYS R6, [R4]: error: a read of 4 bytes" in found.stderr
    assert "match" not in found.output.replace(found.stderr, "")


def test_json_has_no_number_that_json_lacks(sass):
    found = validate(sass, *SHAPE, "--grid", "1", "--json")
    results = json.loads(found.output, parse_constant=lambda word: pytest.fail(word))
    assert found.exit_code == 1 and results[0]["rows"][0]["max_abs"] is None


def _no_driver():
    raise LaunchError("there is no driver", "install it")


@pytest.mark.parametrize(("words", "code", "message"), [
    ([], 1, "nothing to compare with"),
    (["--truth", "nowhere.py:f"], 1, "write a Python file that exists"),
    (["--truth", "check.py"], 1, "write a Python file that exists"),
    (["--truth", "check.py:f"], 1, "check.py has no function f"),
    (["--truth", "check.py:wrong"], 1, "check.py:4: TypeError"),
    (["--truth", "check.py:exact", "--no-python"], 1, "--no-python refuses check.py:exact"),
    (["--reference", "nowhere.cu"], 1, "nowhere.cu: error: No such file"),
    (["--reference", "bad.cu"], 1, "bad.cu(1): error"),
    (["--reference", "scale.cu", "--device", "cuda:99"], 1, "there is no device 'cuda:99'"),
    (["--reference", "scale.cu", "--device", "cuda"], 1, "there is no device 'cuda:0': "),
    (["--reference", "direct"], 1, "--reference direct: for a kernel that is not a convolution, write a file"),
    (["--reference", "none"], 1, "--reference none: for a kernel that is not a convolution"),
    (["--reference", "two.cu"], 1, "two.cu: the cubin has 2 kernels, so a name is needed\nhint: there are: "),
    (["--layer", "Conv1"], 2, "'Conv1' is not one of"),
    (["--shape", "1,2,3"], 2, "write N,C,H,W,K, numbers of at least 1"),
    (["--shape", "1,2,3,4,0"], 2, "numbers of at least 1"),
    (["--batch", "x"], 2, "write N[,N...]"),
    (["--filter", "1,2,3", *SHAPE], 2, "write R[,S]"),
    (["--shape", "1,1,1,1,1", "--padding", "0"], 1, "larger than an image"),
    ([*SHAPE, "--truth", "check.py:exact"], 1, "--truth is for other kernels"),
    (["--grid", "N", "--truth", "check.py:exact"], 1, "'N' is unknown here"),
    (["--layer", "Conv2", "--batch", "20000"], 1, "the most is 2147483647"),
    (["--tolerance", "-1"], 2, "-1.0 is not in the range"),
])  # fmt: skip
def test_what_is_refused(add, tmp_path, monkeypatch, words, code, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.cu").write_text("foo\n")
    (tmp_path / "two.cu").write_text('extern "C" __global__ void a() {}\nextern "C" __global__ void b() {}\n')
    monkeypatch.setattr("loader.cuda.gpu.driver", _no_driver)
    monkeypatch.setattr("loader.cuda.gpu.count", lambda: 0)
    monkeypatch.setattr("loader.cuda.count", lambda: 0)
    found = CliRunner().invoke(main, ["validate", "add.sass", *ARGS, "--kernel", "add", "--device", "cpu", *words])
    assert found.exit_code == code, found.output
    assert message in found.stderr and "Traceback" not in found.output, found.stderr
