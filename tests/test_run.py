"""turingas run: arguments as text, what is printed, exit codes."""

from __future__ import annotations

import functools
import json
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from click.testing import CliRunner

from tests.emulate.test_device import ADD
from turingas.argument_text import argument
from turingas.cli import main
from turingas.errors import LaunchError


@pytest.fixture
def sass(tmp_path):
    path = tmp_path / "add.sass"
    path.write_text(ADD)
    return str(path)


def run(*words):
    return CliRunner().invoke(main, ["run", *map(str, words)])


@pytest.mark.parametrize(
    ("text", "kind", "shape", "first"),
    [
        ("f32[4]", np.float32, (4,), 0),
        ("i32[2,3]=7", np.int32, (2, 3), 7),
        ("u64[5]=arange", np.uint64, (5,), 0),
        ("f16[3]=1.5", np.float16, (3,), 1.5),
        ("i8[2]=-0x2", np.int8, (2,), -2),
    ],
)
def test_arrays_as_text(text, kind, shape, first):
    value = argument(text, np.random.default_rng(0))
    assert (value.dtype, value.shape, value.reshape(-1)[0]) == (kind, shape, first)


def test_random_arrays_repeat():
    one, two = (argument("f32[64]=random", np.random.default_rng(5)) for _ in range(2))
    assert (one == two).all() and len(set(one.tolist())) > 60
    whole = argument("u8[4096]=random", np.random.default_rng(5))
    assert set(whole.tolist()) == set(range(256))


def test_numbers_as_text():
    random = np.random.default_rng(0)
    assert [argument(t, random) for t in ("7", "0x10", "-3", "1.5", "1e3")] == [7, 16, -3, 1.5, 1000.0]
    assert argument("u8:200", random).dtype == np.uint8
    assert argument("f64:0.1", random) == 0.1


@pytest.mark.parametrize(
    "text",
    ["x", "f32[", "f32[4]=x", "f8[4]", "u8:300", "i32:1.5", "@nowhere.npy", "f32[4", "", f"f32[{10**14}]",
     f"u8[{10**30}]", f"f32[{10**14}]=random", f"i8[{10**14}]=arange", f"f32[{'9' * 5000}]"],
)  # fmt: skip
def test_text_that_is_no_argument(text):
    with pytest.raises(LaunchError):
        argument(text, np.random.default_rng(0))


def test_a_run_from_source(sass):
    found = run(sass, "f32[64]", "f32[64]=arange", 64, 2.5, "--kernel", "add", "--grid", 2, "--counters")
    assert found.exit_code == 0, found.output
    assert "argument 0: float32[64], changed, 0 to 157.5: 0 2.5 5" in found.output
    assert "argument 1: float32[64], as it was" in found.output
    row = next(line for line in found.output.splitlines() if "LDG.E" in line).split()
    assert row[:5] == ["80", "16", "2", "32.0", "4.0"]  # address, line, warps, lanes, sectors a request


def test_arrays_from_and_to_files(sass, tmp_path):
    np.save(tmp_path / "in.npy", np.full((8, 4), 3, np.float32))
    found = run(sass, "f32[32]", f"@{tmp_path}/in.npy", 32, 2.0, "--kernel", "add", "--save", f"0={tmp_path}/out.npy")
    assert found.exit_code == 0, found.output
    assert (np.load(tmp_path / "out.npy") == 6).all()


def test_json(sass):
    found = run(sass, "f32[64]", "f32[64]=arange", 64, 2.5, "--kernel", "add", "--grid", 2, "--counters", "--json")
    data = json.loads(found.output)
    assert (data["kernel"], data["arch"], data["warp_instructions"], data["error"]) == ("add", "sm_75", 24, "")
    load = next(row for row in data["counters"] if row["text"].startswith("LDG"))
    assert (load["line"], load["warps"], load["sectors"]) == (16, 2, 8)


def test_a_fault_is_told_and_nothing_is_saved(sass, tmp_path):
    out = tmp_path / "out.npy"
    found = run(sass, "f32[64]", "f32[60]", 64, 2.5, "--kernel", "add", "--grid", 2, "--save", f"0={out}")
    assert found.exit_code == 1
    assert "add.sass:16: add+0x0080: LDG.E.SYS R6, [R4]: error: a read of 4 bytes" in found.stderr
    assert "changed" not in found.output
    assert not out.exists()


def test_hazards_fail(tmp_path):
    path = tmp_path / "k.sass"
    path.write_text(ADD.replace("--:-:-:-:6 IMAD.WIDE R2", "--:-:-:-:1 IMAD.WIDE R2").replace(
        "--:-:-:-:6 MOV R2", "--:-:-:-:1 MOV R2"))  # fmt: skip
    words = [path, "f32[64]", "f32[64]=arange", 64, 2.5, "--kernel", "add", "--grid", 2]
    assert run(*words).exit_code == 0
    found = run(*words, "--strict")
    assert found.exit_code == 1
    assert "k.sass:14: add+0x0060: IMAD.WIDE" in found.output and "[raw-stall]" in found.output


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--grid", "a"], 2, "not one to three numbers"),
        (["--grid", "1,2,3,4"], 2, "not one to three numbers"),
        (["--save", "9=x.npy"], 1, "argument 9 is out of range: there are 0 to 3"),
        (["--save", "x"], 1, "write the number of an argument and a file"),
        (["--kernel", "nope"], 1, "no kernel 'nope'"),
        (["--device", "cuda"], 2, "is not"),
        (["--budget", "0"], 2, "0 is not in the range"),
        (["--budget", "3"], 1, "a warp ran 3 instructions, its budget"),
        (["--seed", "-1"], 2, "-1 is not in the range"),
        (["--arch", "sm_60"], 2, "known: sm_70, sm_72, sm_75"),
    ],
)
def test_wrong_options(sass, words, code, message):
    found = run(sass, "f32[64]", "f32[64]", 64, 2.5, *(["--kernel", "add"] if "--kernel" not in words else []), *words)
    assert found.exit_code == code
    assert message in found.stderr


def test_a_file_that_is_no_kernel(tmp_path):
    path = tmp_path / "x.cubin"
    path.write_bytes(b"\x7fELF" + bytes(100))
    found = run(path)
    assert found.exit_code == 1 and "x.cubin: error:" in found.stderr
    path.write_bytes(b"")
    found = run(path)
    assert found.exit_code == 1 and "x.cubin: error: offset 0x0: 0 bytes are too few for an ELF header" in found.stderr
    path.write_text("FOO;")
    found = run(path)
    assert found.exit_code == 1 and "error" in found.stderr and "Traceback" not in found.output


def test_inline_python_can_be_refused(tmp_path):
    path = tmp_path / "k.sass"
    path.write_text("<code>\nout_ = '--:-:-:-:5 EXIT;'\n</code>\n")
    assert run(path).exit_code == 0
    found = run(path, "--no-python")
    assert found.exit_code == 1 and "Python" in found.stderr


def test_ctrl_c_ends_the_run(tmp_path):
    path = tmp_path / "k.sass"
    path.write_text(".arch sm_75\n.kernel k\nhere:\n--:-:-:-:5 IADD3 R0, R0, 0x1, RZ;\n--:-:-:-:5 BRA here;\n")
    words = [sys.executable, "-m", "turingas", "run", str(path), "--grid", "4", "--budget", "1000000000"]
    usual = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)  # the tests may run in the background
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=usual)
    time.sleep(3)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    try:
        out, errors = process.communicate(timeout=30)
    finally:
        process.kill()
    assert (process.returncode, out, errors.strip()) == (130, "", "interrupted")


@pytest.mark.parametrize("word", ["--races=bogus", "--races="])
def test_what_is_said_of_races_is_no_argument(sass, word):
    """Behind "=" stands a value, whatever it is."""
    for words in ((sass, word, "i32[32]"), (sass, "i32[32]", word)):
        result = run(*words)
        assert result.exit_code == 2 and "is not one of 'shared', 'global'" in result.output, result.output
