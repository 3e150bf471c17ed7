"""`turingas bench pipe`, with a table as ncu prints it, on a driver that stands for a card's."""

from __future__ import annotations

import re
import shutil
import subprocess
from types import SimpleNamespace

import numpy as np
import pytest

from docs import readme
from kernels_sass.bench import conv, pipe
from kernels_sass.conv import implicit_plan
from loader.bench import measure, results
from tests.kernels_sass.card import Card, call


def table(kernels, rows):
    """What ncu --csv --page raw prints of launches, of cycles in which the tensor pipe was active and all: the same of
    two that follow one another."""
    names = list(pipe.METRICS.values())
    yield "==PROF== Connected to process 7 (python3)"
    yield '==PROF== Profiling "hgmma" - 0: 0%....50%....100% - 1 pass'
    yield ",".join(f'"{title}"' for title in ("ID", "Process ID", "Kernel Name", "Context", *names))
    yield '"","","","","","cycle","cycle","ns"'
    for number, (kernel, (tensor, cycles)) in enumerate(zip(kernels, (row for row in rows for _ in range(2)))):
        yield ",".join(f'"{cell}"' for cell in (number, 7, kernel, 1, tensor, cycles, cycles, "1,000"))
    yield "==PROF== Disconnected from process 7"


STATE = {"sm_mhz": 1000, "watts": 300}
LAYER = "--of", "conv", "--precision", "fp16", "--batch", "1"


@pytest.fixture
def card(install, monkeypatch, tmp_path):
    """With one small layer, and ncu, which gives ``rows``."""
    made = install(Card(gpus=1, major=9, minor=0))
    monkeypatch.setattr(results, "torch", lambda: None)
    monkeypatch.setattr(measure, "state", lambda gpu: STATE)
    monkeypatch.setattr(results, "_driver", lambda: "1.2")
    monkeypatch.setenv("TURINGAS_COMMIT", "abc")
    monkeypatch.setattr(pipe, "SQUARE", ((4, 128, 16, 3, 1),))
    monkeypatch.setattr(pipe, "ROUNDS", 1)
    monkeypatch.setattr(implicit_plan, "_clusters", lambda gpu: {2: 1, 4: 0, 8: 0})
    monkeypatch.setattr(shutil, "which", lambda name, path=None: name)

    def ncu(command, **options):
        made.launches.clear()
        pipe.launch(*command[command.index("kernels_sass.bench.pipe") + 1 :])
        kernels = [name for name, *_ in made.launches if re.match(command[command.index("-k") + 1][6:], name)]
        return subprocess.CompletedProcess(command, 0, "\n".join(table(kernels, made.rows)), "")

    monkeypatch.setattr(subprocess, "run", ncu)
    made.path = tmp_path / "pipe.json"
    return made


@pytest.mark.parametrize(("half", "main", "code"), [((1800, 500), 0.96, 0), ((2100, 500), 0.81, 1)])
def test_shares(card, half, main, code):
    """Of what a layer has more than with half of its channels, over those of products alone, 4.0 of a cycle here."""
    card.rows = [(4000, 1000), (3720, 1000), half]
    done = call("pipe", *LAYER, "--json", str(card.path))
    assert done.exit_code == code, done.output
    names = [name for name, *_ in card.launches]
    assert len(names) == 6 and names[0] == names[1] == "hgmma" and len(set(names[2:])) == 1, names
    found = results.read(card.path)
    (one,) = found["settings"].values()
    assert one["main"] == pytest.approx(main) and one["whole"] == 0.93
    assert found["summary"]["fp16"]["peak"] == 4 and found["state"] == dict.fromkeys(("before", "after"), STATE)
    assert one["state"] == dict.fromkeys(("before", "during", "after"), STATE)
    shown = call("pipe", "--show", "--json", str(card.path))
    assert f"fp16: {main:.1%} of the peak in the main loop" in shown.output and shown.exit_code == code


def test_a_main_loop_of_nothing(card):
    """What is no share is told, and kept with what was counted."""
    card.rows = [(4000, 1000), (3720, 1000), (3720, 500)]
    done = call("pipe", *LAYER, "--json", str(card.path))
    assert done.exit_code == 1, done.output
    (one,) = results.read(card.path)["settings"].values()
    assert one["main"] == 0 and one["less"]["tensor"] == 3720 == one["tensor"]


@pytest.mark.parametrize(("rows", "message"), [
    ([(4000, 1000), (3720, 1000)], "ncu told of 2 pairs of launches, and there are 3"),
    ([(4000, 1000), (3720, 1000), ("n/a", 500)], "ncu could not count sm__pipe_tensor_cycles_active.sum"),
])  # fmt: skip
def test_what_ncu_lacks(card, rows, message):
    """Launches that it did not see, and what it could not count."""
    card.rows = rows
    done = call("pipe", *LAYER, "--json", str(card.path))
    assert done.exit_code == 1 and message in done.output and "hint: " in done.output


def test_no_more_cycles(card):
    """Nothing tells the main loop of a layer that takes no longer than with fewer stages; the others are kept."""
    card.rows = [(4000, 1000), (3720, 1000), (1800, 1001)]
    done = call("pipe", *LAYER, "--json", str(card.path))
    found = results.read(card.path)
    (failure,) = pipe.failures(found)
    assert done.exit_code == 1 and "1000 cycles, and 1001 with fewer stages" in failure
    assert [one["main"] for one in found["settings"].values()] == [None] and found["peak"]["fp16"]["tensor"] == 4000
    assert found["summary"]["fp16"]["whole"]["mean"] == 0.93


def test_what_is_counted():
    """The 16 settings, and three products, in the precisions with one product for each."""
    settings = pipe.Asked().settings()
    assert len(settings) == 3 * (16 + 3)
    assert settings["tf32: 64 -> 64, 3x3, 56x56, N=32"] == pipe.Layer("tf32", 32, (56, 64, 64, 3))
    assert settings["bf16: gemm, 8192"] == pipe.Square("bf16", 8192)
    assert [len(pipe.Asked((one,)).settings()) for one in pipe.OF] == [3 * 16, 3 * 3]


def test_the_same_kernel_is_asked_for(monkeypatch):
    """As Conv2d chooses it, on an H100: windows that keep the filters, and tiles of any number of pixels."""
    monkeypatch.setattr(pipe, "room", lambda device: {1: 132, 2: 66, 4: 30, 8: 15})
    kept = pipe.asking(pipe.shape_of(128, (56, 64, 64, 3)), "fp16", "cuda:0")
    assert kept["schedule"]["KEEP"] == 1 and kept["splits"] == 1
    assert pipe.asking(pipe.shape_of(96, (7, 512, 512, 3)), "tf32", "cuda:0")["schedule"]["TILE_M"] == 144


def test_fewer_stages():
    """Half as many of all channels, or a third, of pixels that are nearly as many."""
    half, row = (pipe.part_of(128, (56, 64, 64, 3), precision) for precision in ("tf32", "fp16"))
    assert (half.c, half.r, row.c, row.r, row.padding) == (32, 3, 64, 1, (0, 1))
    assert half.y_shape == row.y_shape and pipe.pixels(half) / pipe.pixels(row) == pytest.approx(57 / 56, abs=0.001)


@pytest.mark.parametrize("precision", pipe.PRECISE)
def test_products(card, precision, monkeypatch):
    """gemm's kernel with all of K and with half, the same tiles of both, and what it has more: its main loop."""
    card.rows = [(4000, 1000), (3720, 1000), (1800, 500)]
    made, take = [], pipe.gemm_plan.Plan
    monkeypatch.setattr(pipe.gemm_plan, "Plan", lambda product: made.append(product) or take(product))
    done = call("pipe", "--of", "gemm", "--precision", precision, "--size", "192", "--json", str(card.path))
    assert done.exit_code == 0, done.output
    assert [(one.m, one.n, one.k, one.splits) for one in made] == [(192, 192, 192, 1), (192, 192, 96, 1)]
    counted = card.launches[2:]
    assert len(counted) == 4 and len(set(counted)) == 1 and counted[0][0] == "hgemm", counted
    ((name, one),) = results.read(card.path)["settings"].items()
    assert name == f"{precision}: gemm, 192" and one["main"] == 0.96 and one["of"] == "gemm"
    assert re.fullmatch(r"TILE_N=\d+ STAGES=\d splits=1", one["kernel"])
    assert f"gemm {precision}: 96.0% of the peak in the main loop" in done.output


def test_products_are_right(card):
    """What is counted computes A B of the numbers that it is given."""
    of, gpu = pipe.Square("fp16", 64), pipe.gpu_at_hand("")
    numbers = np.random.default_rng(0).standard_normal(5000, np.float32).astype(np.float16)
    for queue, k in zip(of.launches(gpu, numbers), (64, 32)):
        queue()
        a, b, c = (buffer.numpy() for buffer in _buffers(queue))
        assert a.shape == (64, k) and np.allclose(c, a.astype("f4") @ b.astype("f4").T, rtol=1e-3, atol=1e-2)


def _buffers(queue):
    """A, B and C of a product that is queued: A is what it is given, the others lie where its addresses say."""
    _, a, _, (_, at_b, _, _, at_c) = queue.args
    size = queue.func.__self__.product.m
    there = [type(a).of(np.zeros(shape, a.dtype), a.gpu) for shape in (a.shape, (size, size))]
    for one, address in zip(there, (at_b, at_c)):
        a.gpu.call("cuMemcpyDtoDAsync", one.address, address, one.nbytes, 0)
    return a, *there


def test_blocks_that_share_k(card, monkeypatch):
    """gemm has two of an H200 share the K of 512 in tf32: so they share half of it, by the same kernel."""
    monkeypatch.setattr(pipe.cost, "sms", lambda device: 132)
    made, of = [], pipe.Square("tf32", 512)
    none = SimpleNamespace(shape=(8, 8), run=print)
    monkeypatch.setattr(pipe.gemm_plan, "Plan", lambda product: made.append(product) or none)
    assert of.kernel("cuda:0") == "TILE_N=64 STAGES=8 splits=2"
    assert len(list(of.launches(pipe.gpu_at_hand(""), np.zeros(1, "f4")))) == 2
    assert [(one.k, one.splits) for one in made] == [(512, 2), (256, 2)]


def test_files_are_joined(card, tmp_path, monkeypatch):
    """An older file, of convolutions alone, and one of products; the table of the documentation has both."""
    monkeypatch.setattr(pipe, "SQUARE", conv.SQUARE)
    card.rows = [(4000, 1000), (3720, 1000), (1800, 500)]
    products = tmp_path / "gemm.json"
    assert call("pipe", "--of", "gemm", "--precision", "fp16", "--size", "64", "--json", str(products)).exit_code == 0
    kept = results.default_path("pipe", "sm_90")
    old = results.read(kept)
    old["asked"] = {"precisions": ["tf32", "fp16", "bf16"], "batches": [32, 64, 96, 128]}
    old["settings"] = {name: {key: value for key, value in one.items() if key not in ("of", "peak", "state")}
                       for name, one in old["settings"].items() if one.get("of", "conv") == "conv"}  # fmt: skip
    results.keep(before := tmp_path / "old.json", old)
    assert "fp16: " in call("pipe", "--show", "--json", str(before)).output
    done = call("pipe", "--join", str(before), "--join", str(products), "--json", str(card.path))
    assert done.exit_code == 0, done.output
    found = results.read(card.path)
    assert found["asked"]["of"] == ["conv", "gemm"] and list(found["settings"]) == [*old["settings"], "fp16: gemm, 64"]
    assert found["summary"]["gemm fp16"]["main"]["mean"] == 0.96 and found["summary"]["tf32"]["settings"] == 16
    assert abs(found["settings"]["tf32: 64 -> 64, 3x3, 56x56, N=32"]["peak"] - 3.995) < 0.001
    lines = list(readme.busy(found))
    assert [line.split(" | ")[0] for line in lines[4:]] == [
        *(f"| Conv2d {precision}" for precision in ("tf32", "fp16", "bf16")), "| gemm fp16"]  # fmt: skip
