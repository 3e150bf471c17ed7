"""`turingas tune`: the bench file, and the command; on the CPU device."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from loader.tune import command, judge, launches, search
from loader.tune.search import Search
from tests.loader.tuning import BENCH, SOURCE
from turingas import assemble
from turingas.cli import main
from turingas.cubin.cubin import Cubin
from turingas.errors import LaunchError


def test_a_bench_file(tmp_path):
    (tmp_path / "sizes_of_it.py").write_text("COUNT = 96\n")
    text = """
import numpy as np
from sizes_of_it import COUNT
grid, block, shared, kernel = (3, 1), 32, 64, "k"
def arguments(rng):
    return ["f32[8]", rng.integers(9, size=COUNT, dtype=np.int32), np.float32(2), 7]
check = {"grid": 1, "arguments": ["f32[4]=arange"]}
"""
    bench = launches.read(text, str(tmp_path / "bench.py"))
    assert (bench.timed.grid, bench.timed.block, bench.timed.shared, bench.kernel) == ((3, 1), 32, 64, "k")
    assert (bench.check.grid, bench.check.block, bench.check.shared) == (1, 32, 64)
    first, second = bench.timed.made(5), bench.timed.made(5)
    assert [np.array_equal(a, b, equal_nan=True) for a, b in zip(first, second)] == [True] * 4
    assert first[1].size == 96 and first[1] is not second[1] and np.isnan(first[0]).all() and first[3] == 7
    assert bench.timed.made(6)[1].tolist() != first[1].tolist()
    assert bench.check.made(0)[0].tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(("text", "why"), [
    ("grid = 1", "defines no arguments"), ("arguments = []\ncheck = 3", "check is a int"),
    ("arguments = []\ncheck = {'girds': 1}", "check says 'girds'"), ("arguments = []\ngrid = 1.5", "grid 1.5"),
    ("arguments = []\nshared = 'much'", "'much' bytes"), ("arguments = []\nkernel = 3", "kernel is a int"),
    ("arguments = []\n1 / 0", "bench.py:2: ZeroDivisionError"), ("arguments = [", "bench.py:1: SyntaxError"),
])  # fmt: skip
def test_bench_files_that_say_too_little(text, why):
    with pytest.raises(LaunchError) as error:
        launches.read(text, "bench.py")
    assert why in str(error.value)


@pytest.mark.parametrize(("text", "why"), [
    ("arguments = ['f32[32', 'f32[32]', 'f32[32]']", "x.py: argument 'f32[32'"),
    ("arguments = ['f32[32]']", "x.py: kernel two takes 3 arguments"),
    ("block = 4096\narguments = ['f32[32]'] * 3", "x.py: block.x is 4096"),
    ("arguments = ['f32[8]'] * 3", "a read of 4 bytes"),
])  # fmt: skip
def test_the_bench_file_is_blamed(order, here, text, why):
    """Its name is told, not that of the kernel alone."""
    with pytest.raises(LaunchError) as error:
        Search(replace(order, bench=text, path="x.py")).run(here, 1, 1000, print)
    assert why in str(error.value) and "x.py" in str(error.value)


def test_arguments_that_are_none():
    for text, why in (("arguments = 3", "arguments is a int"), ("arguments = ['f32[']", "f32["),
                      ("\ndef arguments(rng):\n    return [rng.nothing]", "bench.py:3: AttributeError")):  # fmt: skip
        with pytest.raises(LaunchError) as error:
            launches.read(text, "bench.py").timed.made(0)
        assert why in str(error.value)


def test_the_launch_of_a_program():
    """Floats are drawn, of all else the bytes stay."""
    given = (np.arange(5, dtype=np.int32), np.zeros((2, 3), np.float16), 7, np.float32(0.5), b"abc")
    described = [*[launches.argument(one, "x") for one in given], {"draw": "bfloat16", "size": 4}]
    bench = launches.read(launches.stated(described, [2, 1], 32, 16, {"grid": 1}), "nowhere.py")
    made = bench.timed.made(0)
    assert made[0].tolist() == list(range(5)) and made[1].dtype == np.float16 and made[1].any() and made[1].size == 6
    assert made[2:5] == [7, 0.5, b"abc"] and made[5].dtype == np.uint16
    assert (bench.timed.grid, bench.check.grid, bench.check.block, bench.check.shared) == ([2, 1], 1, 32, 16)
    with pytest.raises(LaunchError, match="x is a str"):
        launches.argument("7", "x")


class Tensor:
    """What is asked of a tensor of torch: the transpose of a 2 x 3 one in rows of 4."""

    dtype, shape = "torch.bfloat16", (3, 2)

    def stride(self):
        return 1, 4

    def numel(self):
        return 6

    def element_size(self):
        return 2


def test_a_tensor_reaches_as_far_as_its_strides():
    assert launches.argument(Tensor(), "x") == {"draw": "bfloat16", "size": 7}


# ---- the command --------------------------------------------------------------------------------------------------


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("two.sass").write_text(SOURCE)
    Path("two_bench.py").write_text(BENCH)
    return ["tune", "two.sass", "--bench", "two_bench.py", "--workers", "here", "--inputs", "2"]


def test_the_command(files):
    done = CliRunner().invoke(main, [*files, "--rounds", "3", "--json", "found.json"])
    assert done.exit_code == 0, done.output
    assert "there is no GPU" in done.output and "written: two.tuned.cubin" in done.output
    told = json.loads(Path("found.json").read_text())
    assert told["gained"] and told["unit"] == "model cycles" and told["figure"] < 1 and told["rounds"] == 3
    assert Cubin.from_file("two.tuned.cubin").kernel("two").words != assemble(SOURCE).kernel("two").words
    done = CliRunner().invoke(main, [*files, "--rounds", "4", "--resume", "two.tuned.cubin.search", "-o", "more.cubin"])
    assert done.exit_code == 0 and "4 rounds, 64 candidates" in done.output and Path("more.cubin").is_file()
    assert json.loads(Path("two.tuned.cubin.search").read_text())["round"] == 4


def test_the_command_is_interrupted(files, monkeypatch):
    plain, seen = judge.evaluate, []

    def until(child):
        seen.append(child)
        if len(seen) == 20:
            raise KeyboardInterrupt
        return plain(child)

    monkeypatch.setattr(search, "evaluate", until)
    done = CliRunner().invoke(main, [*files, "--seed", "3"])
    assert done.exit_code == 0 and "interrupted in round 1; --resume two.tuned.cubin.search goes on" in done.output
    assert "found: 0." in done.output and Path("two.tuned.cubin").is_file()


def test_nothing_to_gain(files):
    Path("two.sass").write_text(".arch sm_90\n.kernel two\n.param y, f32*\n--:-:-:-:1 EXIT;\n")
    Path("two_bench.py").write_text('arguments = ["f32[4]"]\n')
    done = CliRunner().invoke(main, [*files, "--rounds", "1"])
    assert "nothing faster was found" in done.output and "two.tuned.cubin, the original" in done.output
    original = assemble(Path("two.sass").read_text())
    assert Cubin.from_file("two.tuned.cubin").kernel("two").words == original.kernel("two").words


@pytest.mark.parametrize(("more", "why"), [
    (["--kernel", "three"], "no kernel 'three'"), (["--resume", "nothing"], "there is no file nothing"),
    (["-o", "no/where.cubin"], "there is no folder no"), (["--workers", "all"], "tcp://HOST:PORT"),
    (["--device", "cuda"], "cuda:0"),
])  # fmt: skip
def test_what_the_command_refuses(files, more, why):
    if "cuda" in more and command.cuda.count():
        pytest.skip("there is a GPU")
    done = CliRunner().invoke(main, [*files, *more, "--rounds", "1"])
    assert done.exit_code == 1 and why in done.output
