"""`turingas tune` and turingas.tune_triton on GPUs: candidates are timed there, and what wins leaves the same bits."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import loader
import turingas
from kernels_sass.bench import tune as bench
from loader import cuda
from loader.tune.judge import Order
from loader.tune.search import Search
from loader.workers import Workers
from tests.loader.test_tune import BENCH, SOURCE
from turingas.cli import main
from turingas.cubin.cubin import Cubin

pytestmark = pytest.mark.gpu


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("two.sass").write_text(SOURCE)
    Path("two_bench.py").write_text(BENCH)
    words = ["tune", "two.sass", "--bench", "two_bench.py", "--rounds", "2", "--workers", "here"]
    done = CliRunner().invoke(main, [*words, "--json", "found.json"])
    assert done.exit_code == 0, done.output
    assert json.loads(Path("found.json").read_text())["unit"] == "ms"
    random = np.random.default_rng(0)
    a, b = (random.standard_normal(32, dtype=np.float32) for _ in range(2))
    with cuda.Buffer.of(a) as da, cuda.Buffer.of(b) as db, cuda.Buffer(32) as dy:
        with loader.load(Cubin.from_file("two.tuned.cubin"), "cuda:0") as module:
            module.kernel().launch(1, 32, dy, da, db)
            module.synchronize()
        assert np.allclose(dy.numpy(), b * b + a * a, rtol=1e-6)


def test_each_gpu_has_a_worker() -> None:
    order = Order(turingas.assemble(SOURCE).to_bytes(), "two", BENCH, "two_bench.py", "cuda")
    with Workers("gpus") as workers:
        assert workers.count == cuda.count()
        made = Search(order)
        made.run(workers, 2, 300, print)
        assert made.tried == 32 and "lost" not in made.refused
        made.proven(workers, 4, print)


@pytest.mark.parametrize("name", bench.TRITON)
def test_triton_launches_the_tuned_cubin(name: str, tmp_path: Path) -> None:
    """Whatever was found: the kernel runs as before, and the next time nothing is searched."""
    torch = pytest.importorskip("torch", reason="Triton's arguments are tensors of PyTorch")
    pytest.importorskip("triton", reason="Triton is not installed")
    kernels = importlib.import_module("kernels_sass.bench.triton_kernels")
    kernel = kernels.autotuned(name)
    grid, args, constants = kernels.launch(name, torch)
    kernel[grid](*args, **constants)
    tensors = [one for one in args if isinstance(one, torch.Tensor)]
    before = [one.clone() for one in tensors]
    tuned = turingas.tune_triton(kernel, grid, args, meta=constants, rounds=2, folder=tmp_path)
    assert not tuned.why, tuned.why
    assert all(torch.equal(one, kept) for one, kept in zip(tensors, before))  # the search has its own
    kernel[grid](*args, **constants)
    torch.cuda.synchronize()
    assert all(torch.equal(one, kept) for one, kept in zip(tensors, before))
    again = turingas.tune_triton(kernel, grid, args, meta=constants, rounds=2, folder=tmp_path)
    assert again.cached and (again.gained, again.figure) == (tuned.gained, tuned.figure)
