"""`turingas bench pipe`, with a table as ncu prints it, on a driver that stands for a card's."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from kernels_sass.bench import pipe
from kernels_sass.conv import implicit_plan
from loader.bench import measure, results
from tests.kernels_sass.card import Card, call


def table(rows):
    """What ncu --csv --page raw prints, of cycles in which the tensor pipe was active and all; each launch twice."""
    names = list(pipe.METRICS.values())
    yield "==PROF== Connected to process 7 (python3)"
    yield '==PROF== Profiling "hgmma" - 0: 0%....50%....100% - 1 pass'
    yield ",".join(f'"{title}"' for title in ("ID", "Process ID", "Kernel Name", "Context", *names))
    yield '"","","","","","cycle","cycle","ns"'
    for number, (tensor, cycles) in enumerate(row for row in rows for _ in range(2)):
        yield ",".join(f'"{cell}"' for cell in (number, 7, "hgmma", 1, tensor, cycles, cycles, "1,000"))
    yield "==PROF== Disconnected from process 7"


@pytest.fixture
def card(install, monkeypatch, tmp_path):
    """With one small layer, and ncu, which gives ``rows``."""
    made = install(Card(gpus=1, major=9, minor=0))
    monkeypatch.setattr(results, "torch", lambda: None)
    monkeypatch.setattr(measure, "state", lambda gpu: {"sm_mhz": 1000})
    monkeypatch.setattr(results, "_driver", lambda: "1.2")
    monkeypatch.setenv("TURINGAS_COMMIT", "abc")
    monkeypatch.setattr(pipe, "SQUARE", ((4, 128, 16, 3, 1),))
    monkeypatch.setattr(pipe, "ROUNDS", 1)
    monkeypatch.setattr(implicit_plan, "_clusters", lambda gpu: {2: 1, 4: 0, 8: 0})
    monkeypatch.setattr(shutil, "which", lambda name, path=None: name)

    def ncu(command, **options):
        pipe.launch(*command[command.index("kernels_sass.bench.pipe") + 1 :])
        return subprocess.CompletedProcess(command, 0, "\n".join(table(made.rows)), "")

    monkeypatch.setattr(subprocess, "run", ncu)
    made.path = tmp_path / "pipe.json"
    return made


@pytest.mark.parametrize(("half", "main", "code"), [((1800, 500), 0.96, 0), ((2100, 500), 0.81, 1)])
def test_shares(card, half, main, code):
    """Of what a layer has more than with half of its channels, over those of products alone, 4.0 of a cycle here."""
    card.rows = [(4000, 1000), (3720, 1000), half]
    done = call("pipe", "--precision", "fp16", "--batch", "1", "--json", str(card.path))
    assert done.exit_code == code, done.output
    names = [name for name, *_ in card.launches]
    assert len(names) == 6 and names[0] == names[1] == "hgmma" and len(set(names[2:])) == 1, names
    found = results.read(card.path)
    (one,) = found["settings"].values()
    assert one["main"] == pytest.approx(main) and one["whole"] == 0.93
    assert found["summary"]["fp16"]["peak"] == 4 and found["state"] == {"sm_mhz": 1000}
    shown = call("pipe", "--show", "--json", str(card.path))
    assert f"fp16: {main:.1%} of the peak in the main loop" in shown.output and shown.exit_code == code


def test_a_main_loop_of_nothing(card):
    """What is no share is told, and kept with what was counted."""
    card.rows = [(4000, 1000), (3720, 1000), (3720, 500)]
    done = call("pipe", "--precision", "fp16", "--batch", "1", "--json", str(card.path))
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
    done = call("pipe", "--precision", "fp16", "--batch", "1", "--json", str(card.path))
    assert done.exit_code == 1 and message in done.output and "hint: " in done.output


def test_no_more_cycles(card):
    """Nothing tells the main loop of a layer that takes no longer than with fewer stages; the others are kept."""
    card.rows = [(4000, 1000), (3720, 1000), (1800, 1001)]
    done = call("pipe", "--precision", "fp16", "--batch", "1", "--json", str(card.path))
    found = results.read(card.path)
    (failure,) = pipe.failures(found)
    assert done.exit_code == 1 and "1000 cycles, and 1001 with fewer stages" in failure
    assert [one["main"] for one in found["settings"].values()] == [None] and found["peak"]["fp16"]["tensor"] == 4000
    assert found["summary"]["fp16"]["whole"]["mean"] == 0.93


def test_what_is_counted():
    """The 16 settings in the precisions with one product for each."""
    settings = pipe.Asked().settings()
    assert len(settings) == 3 * 16 and settings["tf32: 64 -> 64, 3x3, 56x56, N=32"] == ("tf32", 32, (56, 64, 64, 3))


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
