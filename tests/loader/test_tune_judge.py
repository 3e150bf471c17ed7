"""`turingas tune`: what becomes of a candidate, on the CPU device and on a GPU."""

from __future__ import annotations

import fcntl
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from loader import cuda, nvrtc, timing
from loader.tune import command, judge, launches, search
from loader.tune.judge import Child, Judge, Order, Proof
from loader.tune.model import cycles
from loader.tune.search import Search
from tests.kernels_sass.card import Card
from tests.loader.tuning import BENCH, SOURCE
from turingas import assemble
from turingas.cubin.cubin import Cubin
from turingas.errors import LaunchError
from turingas.isa import control


def words_of(source):
    return tuple(assemble(source).kernel("two").words)


def refused(order, words, monkeypatch):
    monkeypatch.setattr(Judge, "moved", lambda self, parent, seed: (words, ("a move",)))
    return judge.evaluate(Child(order, words, (0,), math.inf)).why


def test_what_the_linter_finds_is_refused(order, monkeypatch):
    own = Judge.of(order).kernel.words
    n = next(n for n, word in enumerate(own) if word >> control.WAIT & 63)
    hasty = [*own[:n], own[n] & ~(63 << control.WAIT), *own[n + 1 :]]
    assert refused(order, tuple(hasty), monkeypatch).startswith("linter: ")


def test_what_computes_something_else_is_refused(order, monkeypatch):
    other = words_of(SOURCE.replace("R6, R6, R5", "R6, R5, R5"))
    assert refused(order, other, monkeypatch).startswith("strict mode: other")


def test_what_the_strict_mode_finds_is_refused(order, monkeypatch):
    """Here alone: the linter is blind."""
    own = Judge.of(order).kernel.words
    n = next(n for n, word in enumerate(own) if word >> control.WAIT & 63)
    hasty = [*own[:n], own[n] & ~(63 << control.WAIT), *own[n + 1 :]]
    monkeypatch.setattr(Judge, "lint", lambda self, words: None)
    assert refused(order, tuple(hasty), monkeypatch).startswith("strict mode: ")


def test_an_original_that_is_wrong_is_not_tuned(here):
    cubin = assemble(SOURCE)
    cubin.kernel("two").words = [word & ~(63 << control.WAIT) for word in cubin.kernel("two").words]
    order = Order(cubin.to_bytes(), "two", BENCH, "two_bench.py", "cpu")
    with pytest.raises(LaunchError, match="cannot be tuned as it is"):
        Search(order).run(here, 1, 10, print)


def test_the_model(order):
    """Loads side by side take the time of one; a loop's second round counts."""
    kernel = assemble(SOURCE).kernel("two")
    late = cycles(kernel, [1] * len(kernel.words))
    moved = "    LDG.E R6, desc[UR4][R10.64];\n"
    kernel = assemble(SOURCE.replace(moved, "").replace("    FMUL", moved + "    FMUL")).kernel("two")
    assert late - cycles(kernel, [1] * len(kernel.words)) > 400
    assert cycles(kernel, [3] * len(kernel.words)) == 3 * cycles(kernel, [1] * len(kernel.words))


CUDA = """
extern "C" __global__ void two(float *y, const float *a, const float *b) {
    int i = threadIdx.x;
    y[i] = a[i] * a[i] + b[i] * b[i];
}
"""


@pytest.fixture
def gpu_order(install, monkeypatch):  # noqa: F811
    """For a driver that stands for a GPU: all but the times is as there."""
    card = install(Card(gpus=1))
    Judge.of.cache_clear()
    monkeypatch.setattr(timing, "clocks", lambda gpu: None)
    monkeypatch.setattr(timing, "nvml", lambda: None)

    def elapsed(first, last):
        assert card.handles[first][0] and card.handles[last][0], "an event that was not recorded"
        return 2.0

    monkeypatch.setattr(card, "do_cuEventElapsedTime", elapsed, raising=False)
    return Order(nvrtc.compile(CUDA, "sm_75"), "two", BENCH, "two_bench.py", "cuda")


def test_on_a_gpu(gpu_order, here, monkeypatch):
    """Bits are compared there, both take turns in the same run, and at the end the strict mode is asked."""
    about = judge.look(gpu_order)
    assert (Judge.of(gpu_order).bench.timed.grid, Judge.of(gpu_order).check.grid) == (2, 1)  # nothing else was said
    assert about["device"] != judge.MODEL and about["figure"] == 2.0 / Judge.of(gpu_order).timer.copies
    asked = []
    plain = Judge.compare
    monkeypatch.setattr(Judge, "compare", lambda self, words, launch, inputs, strict: (
        asked.append((strict, list(inputs))), plain(self, words, launch, inputs, strict)))  # fmt: skip
    words = tuple(Judge.of(gpu_order).kernel.words)
    made = judge.evaluate(Child(gpu_order, words, (5,), 1.5))
    assert made.why == "" and made.figure == 1.0 and asked == [(False, [0]), (False, [1])]
    proof = judge.strictly((gpu_order, made.words, 3, False))
    assert proof.why == "" and (proof.inputs, proof.strict) == (2, 2)
    assert asked[2:] == [(True, [0]), (True, [2, 3])]  # the original first
    assert judge.strictly((gpu_order, made.words, 1, True)) == Proof(0.0, 1, 1) and asked[4:] == [(True, [2])]
    proof = judge.prove((gpu_order, made.words, range(2, 5), 24))
    assert proof.why == "" and (proof.inputs, proof.strict) == (3, 0) and asked[5:] == [(False, [2, 3, 4])]
    made = Search(gpu_order)
    assert not made.clean
    made.run(here, 1, 100, print)
    assert made.clean  # the first child has seen to it
    assert not made.proven(here, 2, print).gained  # as fast as the original is not faster


def test_other_bits_on_a_gpu_are_refused(gpu_order, monkeypatch):
    other = nvrtc.compile(CUDA.replace("b[i] * b[i]", "b[i] * a[i]"), "sm_75")
    assert refused(gpu_order, tuple(Cubin.from_bytes(other).kernel("two").words), monkeypatch).startswith("bits: other")


def test_what_the_cpu_device_cannot_run_is_said(gpu_order):
    """On a GPU the search does without the strict mode, and the output tells."""
    source = SOURCE.replace("    EXIT", "    GETLMEMBASE R0;\n    EXIT")
    one = Judge(replace(gpu_order, cubin=assemble(source).to_bytes()))
    one.kernel.lines = [("/of/this/machine.cu", 5)] * len(one.kernel.words)  # as of -lineinfo
    assert one.blind.startswith("two+0x") and "does not know GETLMEMBASE" in one.blind
    one.compare(tuple(one.kernel.words), one.check, range(1), strict=True)  # nothing runs
    about = {"device": "a GPU", "figure": 1.0, "instructions": 3, "blind": one.blind}
    found = search.Found(one.cubin, True, 0.9, (), 8, 0, 1, 16, {}, [0.9], about)
    assert any("none of them in strict mode: " in line for line in command.lines(found))


@pytest.mark.parametrize("start", judge.STARTS)
def test_what_the_scheduler_makes_is_tried_first(order, start):
    made = judge.evaluate(Child(order, tuple(Judge.of(order).kernel.words), (0,), math.inf, start=start))
    assert made.why == "" and made.moves == (start,) and (made.figure < 0.6) == ("order" in start or "loops" in start)


def test_processes_that_share_a_gpu_take_turns(gpu_order, monkeypatch, tmp_path):
    """While one compares or times, no other does; who makes candidates and lints them need not wait."""
    monkeypatch.setattr(judge.tempfile, "gettempdir", lambda: str(tmp_path))
    one = Judge(gpu_order)
    held = []

    def locked():
        with next(tmp_path.glob("*.lock")).open() as file, pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        held.append(True)

    monkeypatch.setattr(one, "_left", lambda *args: locked() or [])
    monkeypatch.setattr(judge.Timer, "ratio", lambda *args: locked() or 1.0)
    words = tuple(one.kernel.words)
    one.compare(words, one.bench.timed, range(1), strict=False)
    assert one.figure(words, 2, (0,)) == 1.0 and len(held) == 3  # the original, the candidate; its time
    with next(tmp_path.glob("*.lock")).open() as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # nobody has it now


def test_slow_candidates_are_timed_for_a_short_while(gpu_order, monkeypatch):
    one, runs = Judge(gpu_order), []
    assert one.timer.alone() > 0
    plain = judge.Timer._rounds
    monkeypatch.setattr(judge.Timer, "_rounds", lambda self, replays, count, *others: (
        runs.append(count), plain(self, replays, count, *others))[1])  # fmt: skip
    words = tuple(one.kernel.words)
    for bar, rounds in ((0.9, [2]), (0.98, [2, 4]), (0.993, [2, 4, 6]), (1.0, [2, 4, 6, judge.RUNS - 12])):
        runs.clear()
        assert one.figure(words, judge.RUNS, (0,), bar=bar) == 1.0 and runs == rounds


def test_inputs_are_looked_at_by_the_proof(gpu_order, monkeypatch):
    """Before it, only what the original writes comes back from the GPU."""
    one, copied = Judge(gpu_order), []
    words, plain = tuple(one.kernel.words), cuda.Buffer.copy_to
    one.original(strict=False)
    monkeypatch.setattr(cuda.Buffer, "copy_to", lambda self, *args: (copied.append(self), plain(self, *args))[1])
    one.compare(words, one.bench.timed, range(1), strict=False)
    assert copied == one._there[:1]
    one.compare(words, one.bench.timed, range(2, 3), strict=False)
    assert copied[1:] == 2 * one._there


WRITES = """
extern "C" __global__ void two(float *y, float *a, const float *b) {
    int i = threadIdx.x;
    y[i] = a[i] * a[i] + b[i] * b[i];
    CHANGE
}
"""


def test_what_writes_an_input_is_not_proven(gpu_order, monkeypatch):
    """The original does not. What a launch has changed is there again before the next one."""
    order = replace(gpu_order, cubin=nvrtc.compile(WRITES.replace("CHANGE", ""), "sm_75"))
    other = nvrtc.compile(WRITES.replace("CHANGE", "a[i] = 1.0f;"), "sm_75")
    one = Judge(order)
    one.original(strict=False)
    monkeypatch.setattr(one, "made", lambda words: Cubin.from_bytes(other))
    one.compare((), one.bench.timed, range(2), strict=False)
    with pytest.raises(judge.Refused, match="other results"):
        one.compare((), one.bench.timed, range(2, 3), strict=False)
    monkeypatch.undo()
    one.compare(tuple(one.kernel.words), one.bench.timed, range(2), strict=False)


def test_drawn_arrays_repeat_what_is_drawn(monkeypatch):
    monkeypatch.setattr(launches, "POOL", 5)
    names: dict[str, Any] = {}
    exec(launches.stated([{"draw": "float32", "size": 12}], 1, 32, 0, {}), names)
    [made] = names["arguments"](np.random.default_rng(0))
    assert made.size == 12 and len(set(made.tolist())) == 5 and (made[:5] == made[5:10]).all()


def test_moves_alone_hoist_a_load(order, here, monkeypatch):
    monkeypatch.setattr(search, "STARTS", {})
    made = Search(order, 3)
    made.run(here, 2, 1000, print)
    assert made.best.figure < 0.6 and any("LDG" in move or move.startswith("order") for move in made.best.moves)
