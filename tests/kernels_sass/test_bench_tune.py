"""`turingas bench tune`: on a driver that stands for a GPU; Triton's kernels as Triton compiles them."""

from __future__ import annotations

import importlib
import json
import math
import time

import numpy as np
import pytest

from kernels_sass.bench import tune
from loader.tune import judge, launches, search
from loader.tune.judge import Judge, Outcome
from loader.tune.triton import order_of
from loader.validate import layer
from tests.kernels_sass.card import call
from turingas.cubin.cubin import Cubin


def some(names, first):
    """The first ones in every run, the others where there is time."""
    return [name if name in first else pytest.param(name, marks=pytest.mark.slow) for name in names]


@pytest.mark.parametrize("name", some(tune.NVRTC, ("gemm",)))
def test_each_reference_can_be_tuned(name):
    """The kernel of that name, launched as its reference launches it for a layer. What runs strictly is a small one,
    all of it, with the same cubin: a single block of the layer's grid may do the work of all."""
    order = tune.order_of(name, layer(tune.LAYER, tune.BATCH), "sm_80", "cpu")
    about = judge.look(order)
    assert order.kernel == name and about["figure"] > 0 and about["arch"] == "sm_80"
    bench = launches.read(order.bench, order.path)
    for launch, least, most in ((bench.timed, 3_000_000, math.inf), (bench.check, 1, 50_000)):
        assert least < max(one.size for one in launch.made(0) if isinstance(one, np.ndarray)) < most


def test_the_bench(card, tmp_path, monkeypatch):
    """One that is faster, one that is not, one that cannot be tuned. (A card of the tests is in this process alone;
    who does not say where is given processes, which a candidate's wrong address may end.)"""
    assert tune.Asked().workers == "gpus"
    monkeypatch.setattr(tune, "layer", lambda name, batch: tune.STRICTLY)
    monkeypatch.setattr(tune, "version", lambda: "3.6.0")
    Judge.of.cache_clear()

    def evaluate(child):
        time.sleep(0.03)
        faster = child.order.kernel == "gemm"
        words = (*child.words[:-1], child.words[-1] ^ 1 << 105) if faster and not child.again else child.words
        return Outcome(words, ("a move",), 0.8 if faster else 1.0)

    monkeypatch.setattr(search, "evaluate", evaluate)
    monkeypatch.setattr(search, "prove", lambda task: judge.Proof(0.8, 32, 2))
    path = tmp_path / "found.json"
    some = [f"--kernel={name}" for name in ("direct", "gemm", "softmax")]
    done = call("tune", *some, "--search", "1", "--workers", "here", "--json", str(path))
    assert done.exit_code == 1 and "softmax: there is no PyTorch" in done.output, done.output
    found = json.loads(path.read_text())
    assert found["triton"] == "3.6.0" and found["commit"] == "abc" and found["what"] == "bench tune"
    assert found["settings"]["gemm"]["gained"] and found["settings"]["gemm"]["unit"] == "ms"
    assert found["summary"]["NVRTC"] == {"mean": round(math.sqrt(1.25), 4), "least": 1.0, "most": 1.25, "kernels": 2}
    assert "1.2500x, " in done.output and "nothing faster" in done.output
    shown = call("tune", "--show", "--json", str(path))
    assert shown.exit_code == 1 and "1.1180x in the mean of 2" in shown.output


def test_the_seconds_are_divided(card, tmp_path, monkeypatch):
    """Each kernel has its part of what is left, of which the search takes some; what took less leaves more."""
    parts = []

    def setting(name, asked, gpu, tell, workers, until):
        assert str(workers) == "1 process"  # the same for all
        parts.append(until - time.monotonic())
        return {"status": "ok", "figure": 1.0, "original": 1.0, "gained": False, "tried": 0}

    monkeypatch.setattr(tune, "setting", setting)
    kernels = ("direct", "gemm", "softmax")
    tune.run(tune.Asked(kernels=kernels, seconds=90.0), tmp_path / "found.json", str)
    assert parts == pytest.approx([22.5, 30, 90], abs=3)  # Triton's have twice as much
    assert tune.begun(tune.Asked(search=300), time.monotonic() + 30).search == pytest.approx(30 * tune.PART, abs=3)
    assert tune.begun(tune.Asked(), time.monotonic() + 100).search == pytest.approx(100 - tune.REST, abs=3)
    assert tune.begun(tune.Asked(search=20), math.inf).search == 20 and tune.begun(tune.Asked(), 0).search == 1


def test_runs_are_joined(card, tmp_path, monkeypatch):
    """One for each GPU, of other kernels: the means are of all."""
    figures = {"direct": 0.8, "gemm": 1.0, "softmax": 0.5}

    def setting(name, *given):
        return {"status": "ok", "figure": figures[name], "original": 1.0, "gained": True, "tried": 1, "rounds": 1,
                "moves": []}  # fmt: skip

    monkeypatch.setattr(tune, "setting", setting)
    paths = [tmp_path / "one.json", tmp_path / "other.json", tmp_path / "all.json"]
    for path, names in zip(paths, (["direct", "gemm"], ["softmax", "gemm"])):
        done = call("tune", *(f"--kernel={name}" for name in names), "--workers", "here", "--json", str(path))
        assert done.exit_code == 0, done.output
    done = call("tune", f"--join={paths[0]}", f"--join={paths[1]}", "--json", str(paths[2]))
    assert done.exit_code == 0, done.output
    found = json.loads(paths[2].read_text())
    assert list(found["settings"]) == ["softmax", "direct", "gemm"] and not found["complete"]
    assert found["summary"]["all"] == {"mean": round(2.5 ** (1 / 3), 4), "least": 1.0, "most": 2.0, "kernels": 3}
    assert found["asked"]["kernels"] == ["direct", "gemm", "softmax"]


# ---- Triton ------------------------------------------------------------------------------------------------------


def halves(*shape):
    return np.zeros(shape, np.float16)


@pytest.fixture(scope="module")
def kernels():
    pytest.importorskip("triton", reason="Triton compiles the kernels of these tests")
    return importlib.import_module("kernels_sass.bench.triton_kernels")


def arguments(kernels, name):
    """Of a small launch."""
    table, ends = kernels.grouped_sizes([(128, 128, 64), (128, 128, 128)])
    return {
        "softmax": (np.zeros((2, 4000), np.float32), np.zeros((2, 4000), np.float32), 4000),
        "layer norm": (halves(1, 2048), halves(1, 2048), halves(2048), halves(2048), 2048, 1e-5),
        "matmul": (halves(128, 128), halves(128, 256), halves(128, 256), 128, 256, 128),
        "flash attention": (*(halves(128, 64) for _ in range(4)), 0.18, 128),
        "grouped GEMM": (*map(halves, ends), np.array(table, np.int32), 2, 1),
    }[name]


@pytest.mark.parametrize("name", some(tune.TRITON, ("softmax",)))
def test_tritons_kernels_run_in_strict_mode(kernels, name):
    """As Triton compiles them for sm_80, whose matrix products the CPU device knows; and for sm_90 it does compile."""
    compiled = kernels.compiled(name, 80, -1)
    args = dict(zip(compiled.src.fn.arg_names, arguments(kernels, name)))
    order = order_of(compiled, bytes(compiled.asm["cubin"]), (1,), args, {})
    assert judge.look(order)["figure"] > 0
    assert Cubin.from_bytes(kernels.compiled(name, 90).asm["cubin"]).arch == "sm_90a"


def test_grouped_products_begin_where_those_before_end(kernels):
    table, ends = kernels.grouped_sizes([(2, 3, 5), (7, 11, 13)])
    assert table == [2, 3, 5, 0, 0, 0, 7, 11, 13, 10, 15, 6] and ends == [10 + 91, 15 + 143, 6 + 77]
