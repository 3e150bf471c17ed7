"""`turingas tune`: the bench file, the moves, what becomes of a candidate, the search; on the CPU device."""

from __future__ import annotations

import fcntl
import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from loader import cuda, nvrtc, timing
from loader.tune import command, judge, launches, search
from loader.tune.judge import Child, Judge, Order, Outcome, Proof
from loader.tune.model import cycles
from loader.tune.search import CHILDREN, Member, Search, pack, unpack
from loader.workers import Lost, Workers
from tests.kernels.cases import CASES
from tests.kernels_sass.card import Card
from turingas import assemble
from turingas.check.lint import lint_kernel
from turingas.cli import main
from turingas.cubin.cubin import Cubin
from turingas.cubin.model import Code
from turingas.errors import LaunchError
from turingas.isa import control
from turingas.scheduler.moves import Moves, hinted, pins, with_hint
from turingas.scheduler.order import LISTS, OPCODE

SOURCE = """
.arch sm_90
.kernel two
.param y, f32*
.param a, f32*
.param b, f32*
    S2R R0, SR_TID.X;
    ULDC.64 UR4, c[0x0][0x208];
    MOV R9, 0x4;
    IMAD.WIDE R2, R0, R9, c[0x0][0x218];
    IMAD.WIDE R10, R0, R9, c[0x0][0x220];
    IMAD.WIDE R12, R0, R9, c[0x0][0x210];
    LDG.E R4, desc[UR4][R2.64];
    FMUL R5, R4, R4;
    LDG.E R6, desc[UR4][R10.64];
    FFMA R5, R6, R6, R5;
    STG.E desc[UR4][R12.64], R5;
    EXIT;
"""
BENCH = 'grid, block = 2, 32\narguments = ["f32[32]", "f32[32]=random", "f32[32]=random"]\n'


@pytest.fixture(scope="module")
def order():
    return Order(assemble(SOURCE).to_bytes(), "two", BENCH, "two_bench.py", "cpu")


@pytest.fixture
def here():
    with Workers("here") as workers:
        yield workers


# ---- the bench file ----------------------------------------------------------------------------------------------


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


# ---- moves -------------------------------------------------------------------------------------------------------


def kinds_of(kernel):
    """What the linter finds."""
    return {f.kind for f in lint_kernel(kernel) if f.severity != "note"}


def test_moves_keep_the_instructions_and_please_the_linter():
    """Of a compiled kernel: no instruction comes or goes, and nearly all candidates are found right by the linter,
    which shares no code with what made them."""
    case = next(case for case in CASES if case.name == "tiles")
    kernel = Cubin.from_bytes(case.cubin("sm_90")).kernel(case.kernel)
    pinned, known = pins(kernel), kinds_of(kernel)
    moves, kinds, wrong = Moves(kernel, pinned), set(), 0
    for seed in range(60):
        made = moves.any(np.random.default_rng(seed))
        assert made is not None
        words, text = made
        if " of " in text:  # a hint
            continue
        now, then = ([word & ~control.MASK for word in some] for some in (words, kernel.words))
        assert sorted(now) == sorted(then) and all(now[n] == then[n] for n in pinned) and words != kernel.words
        wrong += bool(kinds_of(replace(kernel, code=Code(words=words))) - known)
        kinds.add(text.split()[0].strip("0123456789"))
    assert wrong < 12 and {"STG", "wait", "stall", "yield"} < kinds


def two(words=None):
    kernel = assemble(SOURCE).kernel("two")
    if words:
        kernel.words = words
    return Moves(kernel, pins(kernel))


def test_a_load_goes_no_farther_than_its_address():
    moves = two()
    at = {i.base: n for n, i in moves.known.items()}  # the last of each
    address = at["IMAD"] - 1  # of two loads and a store, in this order
    assert at["LDG"] - moves.reach(at["LDG"], up=True) == address + 1
    made, text = moves.shifted(at["LDG"], at["LDG"] - 1)
    assert text.startswith("LDG 1 up") and not kinds_of(two(made).kernel)
    assert moves.reach(at["STG"], up=True) == 0 == moves.reach(at["EXIT"], up=True)  # behind FFMA; the block's end


def test_what_a_relocation_names_stays():
    case = next(case for case in CASES if case.name == "indirect")
    kernel = Cubin.from_bytes(case.cubin("sm_90")).kernel(case.kernel)
    assert {row.address // 16 for row in kernel.relocations} <= pins(kernel)
    exits = {n for n, i in Moves(kernel, pins(kernel)).known.items() if i.base == "EXIT"}
    assert exits and exits <= pins(kernel)  # .nv.info lists them


def test_a_block_in_another_order():
    """With all its codes made anew, other registers now and then, or its own scoreboards: the linter finds nothing, and
    of other blocks codes alone may be others."""
    case = next(case for case in CASES if case.name == "tiles")
    kernel = Cubin.from_bytes(case.cubin("sm_90")).kernel(case.kernel)
    moves, known, kinds, orders = Moves(kernel, pins(kernel)), kinds_of(kernel), set(), 0
    for seed in range(40):
        made = moves.arrange(np.random.default_rng(seed))
        if made is None:
            continue
        words, text = made
        assert not kinds_of(replace(kernel, code=Code(words=words))) - known, text
        start = int(re.search("of (0x[0-9a-f]+)", text)[1], 16) // 16
        block = moves.block[start]
        others = [n for n in range(len(words)) if not block.start <= n < block.end]
        assert not any((words[n] ^ kernel.words[n]) & ~control.MASK for n in others)
        plain = [[word & OPCODE for word in some] for some in (words, kernel.words)]
        assert sorted(plain[0]) == sorted(plain[1])
        orders += plain[0] != plain[1]
        kinds |= {kind for kind in ("its order", "renamed", "its scoreboards", "natural", "every") if kind in text}
    assert orders > 10 and len(kinds) == 5


def test_waits_that_a_compiler_knows_better_are_not_made():
    """In Triton's kernels ptxas knows that the sources of copies were read before a loop; the scheduler would wait for
    them there with the scoreboard of their group, and so for the copies themselves, in each round."""
    source = SOURCE.replace("    LDG.E R4", "    --:-:3:-:2 LDG.E R4").replace("    FMUL R5", "    --:-:-:-:4 FMUL R5")
    with_wait = assemble(source.replace("--:-:-:-:4 FMUL", "08:-:-:-:4 FMUL")).kernel("two")
    n = next(n for n, i in Moves(with_wait, frozenset()).known.items() if i.base == "FMUL")
    moves = two([word & ~(63 << control.WAIT) if m == n else word for m, word in enumerate(with_wait.words)])
    assert any(m == n and "scoreboard 3" in message for m, message in moves.before)
    part, words = range(n, n + 1), list(moves.words)
    lax = list(words)
    lax[n] |= 8 << control.WAIT
    moves._as_lax(lax, part, range(len(words)))
    assert lax == words  # nothing there sets scoreboard 3
    part, lax = range(n - 1, n + 1), list(words)
    lax[n] |= 8 << control.WAIT
    moves._as_lax(lax, part, range(len(words)))
    assert lax[n] >> control.WAIT & 63 == 8


def test_a_block_yields_by_another_rule():
    moves, seen = two(), set()
    for seed in range(20):
        words, text = moves.yielding(np.random.default_rng(seed))
        assert not kinds_of(two(words).kernel), text
        assert [(a ^ b) & ~control.MASK for a, b in zip(words, moves.words)] == [0] * len(words)
        may = [n for n, word in enumerate(words) if 1 <= (word >> control.STALL & 15) <= 11]
        if " natural " in text:
            assert all(words[n] >> control.YIELD & 1 for n in may)
        if " every:4 " in text:
            assert [n for n in may if not words[n] >> control.YIELD & 1] == [n for n in may if n % 4 == 3]
        seen.add(text.split()[1])
    assert {"natural", "every:4", "ptxas"} <= seen


def test_what_is_in_loops_is_drawn_more_often():
    moves = two()
    moves.weight = [1.0] * 10 + [30.0] * (len(moves.words) - 10)
    random = np.random.default_rng(0)
    drawn = [moves._one(random, range(12)) for _ in range(500)]
    assert 0.75 < sum(n >= 10 for n in drawn) / len(drawn) < 0.95 and min(drawn) < 10  # 60 of 70
    assert moves._one(random, []) is None


def test_illegal_codes_are_not_made():
    """A yield with a reuse flag, a stall of 12 that keeps the slot."""
    moves = two()
    for seed in range(200):
        for move in (moves.yields, moves.stall, moves.reuse, moves.wait):
            made = move(np.random.default_rng(seed))
            assert made is None or not any(control.illegal(word) for word in made[0])


def test_hints_of_accesses():
    """All loads, all stores, those of a block, or one; nothing else of a word changes, and what others can see has no
    hint. An architecture that lacks one keeps its words."""
    moves, seen = two(), set()
    texts = [i.text() for i in moves.graph.instructions]
    for seed in range(200):
        made = moves.hint(np.random.default_rng(seed))
        there = [i.text() for i in two(made[0]).graph.instructions]
        assert [text.replace(f".{made[1].split()[0]}", "") for text in there] == texts
        seen.add(made[1])
    lines = ".arch sm_75", ".kernel old", "LDG.E.SYS R4, [R2];", "LDG.E.STRONG.SYS R5, [R2];", "EXIT;"
    old = assemble("\n".join(lines)).kernel("old")
    assert hinted(old, "LDG") == [0]
    for name, text in (("LTC128B", "LDG.E.LTC128B.SYS R4, [R2]"), ("LTC256B", "LDG.E.SYS R4, [R2]")):
        words = with_hint(old, old.words, [0], name)
        assert Moves(replace(old, code=Code(words=words)), frozenset()).known[0].text() == text
    assert {"EF of 2 LDG", "NA of 2 LDG", "EL of 1 LDG", "EF of 1 STG", "LTC128B of 2 LDG", "LTC256B of 1 LDG"} <= seen
    strong = assemble(SOURCE.replace("LDG.E R6", "LDG.E.STRONG.GPU R6").replace("STG.E", "STG.E.EL")).kernel("two")
    assert [len(hinted(strong, base)) for base in ("LDG", "STG")] == [1, 1]
    plain = with_hint(strong, strong.words, hinted(strong, "STG"), "no hint")
    assert [i.text() for i in two(plain).graph.instructions if i.base == "STG"] == ["STG.E desc[UR4][R12.64], R5"]


# ---- what becomes of a candidate ---------------------------------------------------------------------------------


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


def shuffles():
    case = next(case for case in CASES if case.name == "shuffles")
    return Judge(Order(case.cubin("sm_90"), case.kernel, BENCH, "bench.py", "cpu"))


def test_lists_of_instructions_follow_them():
    """.nv.info lists all warp shuffles: wherever they go, that is told by what they are."""
    one = shuffles()
    words, _ = one.started("reordered")
    own = one.kernel.words
    assert all(not (words[n] ^ own[n]) & ~control.MASK for n in one.pinned)
    [before] = [info.words for info in one.kernel.attributes if info.name in LISTS]
    [now] = [info.words for info in one.made(words).kernel(one.order.kernel).attributes if info.name in LISTS]
    bases = [i.base for i in one.moves(words).graph.instructions]
    assert now != before and [bases[at // 16] for at in now] == ["SHFL"] * len(before)
    assert not {at // 16 for at in before} & one.pinned


def test_a_list_of_some_instructions_pins_them():
    """Where others of their kind are not in it, nobody could tell which are."""
    one = shuffles()
    one.kernel.attributes = [
        info._replace(value=info.value[4:]) if info.name in LISTS else info for info in one.kernel.attributes
    ]
    [places] = [info.words for info in one.kernel.attributes if info.name in LISTS]
    assert {at // 16 for at in places} <= pins(one.kernel)


def test_moves_alone_hoist_a_load(order, here, monkeypatch):
    monkeypatch.setattr(search, "STARTS", {})
    made = Search(order, 3)
    made.run(here, 2, 1000, print)
    assert made.best.figure < 0.6 and any("LDG" in move or move.startswith("order") for move in made.best.moves)


# ---- the search --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def found(order, tmp_path_factory):
    path = tmp_path_factory.mktemp("search") / "state"
    made = Search(order, 3, path)
    with Workers("here") as workers:
        made.run(workers, 4, 1000, print)
        return made, made.proven(workers, 3, print), path


def test_the_search_hoists_a_load(order, found):
    made, best, _ = found
    assert best.gained and best.figure < 0.6 and best.inputs == best.strict == 3 and best.tried == 4 * CHILDREN
    assert best.history == sorted(best.history, reverse=True) and best.moves
    names = [i.base for i in Moves(best.cubin.kernel("two"), frozenset()).known.values()]
    assert names.index("FMUL") > len(names) - 1 - names[::-1].index("LDG")
    assert not kinds_of(best.cubin.kernel("two"))


def test_two_processes_find_the_same(order, found):
    other = Search(order, 3)
    with Workers("2") as workers:
        other.run(workers, 1, 1000, print)
    assert other.history == found[0].history[:1]
    assert [one.figure for one in other.population] == sorted(one.figure for one in other.population)


def test_an_interrupted_search_goes_on_as_if_nothing_had_been(order, found, tmp_path, here, monkeypatch):
    path, plain, seen = tmp_path / "state", judge.evaluate, []

    def until(child):
        seen.append(child)
        if len(seen) == 2 * CHILDREN + 5:
            raise KeyboardInterrupt
        return plain(child)

    monkeypatch.setattr(search, "evaluate", until)
    first = Search(order, 3, path)
    with pytest.raises(KeyboardInterrupt):
        first.run(here, 4, 1000, print)
    state = json.loads(path.read_text())
    assert state["round"] == 2 and len(state["done"]) == 4
    second = Search(order, 3, path)
    second.resume(path)
    second.run(here, 4, 1000, print)
    assert second.history == found[0].history and second.population == found[0].population
    assert len(seen) == 4 * CHILDREN + 1 and json.loads(path.read_text()) == json.loads(found[2].read_text())


def test_what_is_not_proven_leaves_the_next_one(order, here, monkeypatch):
    """The fastest that keeps what is promised, among the parents and those that were the best of a round."""
    own = tuple(Judge.of(order).kernel.words)
    made = Search(order)
    made.about = {}
    members = [Member((*own[:-1], own[-1] + n), (str(n),), [0.5 + n / 100]) for n in range(8)]
    made.population, made.fame = members[:4], members[3:7]
    asked = []

    def prove(task):
        number = task[1][-1] - own[-1]
        asked.append(number)
        assert list(task[2]) == [2, 3, 4] and task[3] == judge.FINAL_RUNS
        return Proof(0.9, 3, 3) if number == 5 else Proof(math.inf, 0, 0, "no")

    monkeypatch.setattr(search, "prove", prove)
    told = []
    found = made.proven(here, 3, told.append)
    assert found.moves == ("5",) and asked == [1, 2, 3, 4, 5] and len(told) == 4  # 0 is the original

    def strictly(task):
        number = task[1][-1] - own[-1]
        strict.append(number)
        return Proof(math.inf, 0, 0, "no") if number == 5 else Proof(0.0, 2, 2, "", "partly")

    strict = []
    monkeypatch.setattr(search, "strictly", strictly)
    parts = []

    def on_a_gpu(task):
        asked.append(task[1][-1] - own[-1])
        parts.append(task[2:])
        return Proof((0.9 if asked[-1] >= 3 else 0.999) - list(task[2])[0] / 1e6, len(task[2]), 0)

    monkeypatch.setattr(search, "prove", on_a_gpu)
    made.order = replace(order, device="cuda")
    monkeypatch.setattr(search, "evaluate", lambda child: Outcome(  # parents are timed again
        child.words, (), 0.5 + (child.words[-1] - own[-1]) / 100))  # fmt: skip
    several = Workers("here")
    several.count, asked[:], told[:] = 4, [], []
    found = made.proven(several, 3, told.append)  # four at a time in strict mode, on a GPU one after the other
    assert strict == [1, 2, 3, 4] and asked == [1, 1, 1, 2, 2, 2, 3, 3, 3] and found.moves == ("3",) and len(told) == 2
    assert [(list(some), runs) for some, runs in parts[:3]] == [([2], 33), ([3], 33), ([4], 33)]
    assert found.figure == pytest.approx(0.9 - 3 / 1e6, abs=1e-9)  # the one in the middle
    assert (found.inputs, found.strict, found.about["blind"]) == (3, 2, "partly")


def test_on_a_gpu_nobody_waits_for_a_round(order, here, monkeypatch):
    """A child comes from the parents that there are when somebody is free, whose times are measured before."""
    own, seen = tuple(Judge.of(order).kernel.words), []

    def evaluate(child):
        seen.append(child)
        if child.again:
            return Outcome(child.words, (), 0.9)
        if child.start == judge.STRICT:
            return Outcome(own, (judge.STRICT,), 1.0)
        words = (*child.words[:-1], child.words[-1] + 1 + len(seen))
        return Outcome(words, (f"{len(seen)}",), 0.9 - len(seen) / 1000)

    monkeypatch.setattr(search, "evaluate", evaluate)
    monkeypatch.setattr(search, "look", lambda order: {})
    monkeypatch.setattr(search, "STARTS", {judge.STRICT: {}, "reordered": {}})
    made = Search(replace(order, device="cuda"))
    made.run(here, 2, 1000, print)
    children = [child for child in seen if not child.again]
    assert len(children) == made.tried == 2 * CHILDREN and made.round == len(made.history) == 2 and made.clean
    assert [child.start for child in children[:3]] == [judge.STRICT, "reordered", ""]
    parents = [child.words for child in children]
    assert parents[:2] == [own, own] and len(set(parents[2:CHILDREN])) > 2
    assert [child.again for child in seen[:5]] == [False, False, True, True, False]  # "reordered" first
    assert sum(len(one.times) < search.TIMES for one in made.population if one.words != own) <= 1  # the last one
    by = {one.words: one for one in made.population}
    best = made.best
    assert best.moves[0] == "2" and len(best.moves) > 1 and best.words in by  # all moves from the original on


def test_lost_candidates_are_told_and_left(order, monkeypatch, here):
    class Losing(Workers):
        def run(self, function, tasks, late=lambda number: False):
            for number, made in super().run(function, tasks, late):
                yield number, Lost("the machine is gone") if function is judge.evaluate and number % 2 else made

    told = []
    made = Search(order, 3)
    made.run(Losing("here"), 1, 1000, told.append)
    assert made.refused["lost"] == CHILDREN // 2 and "round 0, child 1: the machine is gone" in told


def test_times_that_vary_are_measured_again(order, here, monkeypatch):
    """On a GPU: a candidate that was fast once by chance does not stay ahead."""
    own = tuple(Judge.of(order).kernel.words)
    lucky = (*own[:-1], own[-1] ^ 1 << control.STALL)

    def evaluate(child):
        if child.again:
            return Outcome(child.words, (), 1.2 if child.words == lucky else 1.0)
        return Outcome(lucky, ("luck",), 0.5) if child.seed == (0, 0, 3) else Outcome(own, (), 1.0)

    monkeypatch.setattr(search, "evaluate", evaluate)
    monkeypatch.setattr(search, "look", lambda order: {})
    made = Search(replace(order, device="cuda"))
    made.run(here, 1, 1000, print)
    assert made.tried == CHILDREN and [one.words for one in made.population] == [own, lucky]
    assert made.population[1].times[:3] == [0.5, 1.2, 1.2]


def test_a_search_that_is_kept_goes_on(order, here, monkeypatch, tmp_path):
    """By the code of the kernel: what else is in its cubin may differ. On a GPU, perhaps another one, parents are timed
    again, and no start is tried twice."""
    own, seen = tuple(Judge.of(order).kernel.words), []

    def evaluate(child):
        seen.append(child)
        words = own if child.start == judge.STRICT else (*own[:-1], own[-1] + len(seen))
        return Outcome(child.words if child.again else words, ("a move",), 0.9)

    monkeypatch.setattr(search, "evaluate", evaluate)
    monkeypatch.setattr(search, "look", lambda order: {})
    on_gpu = replace(order, device="cuda")
    first = Search.kept(on_gpu, 3, tmp_path)
    first.run(here, 3, 1000, print)
    [file] = tmp_path.iterdir()
    assert file.name.startswith("two-") and set(json.loads(file.read_text())["starts"]) == set(judge.STARTS)
    other = assemble(SOURCE.replace(".kernel two", ".kernel two\n.registers 64"))
    seen.clear()
    second = Search.kept(replace(on_gpu, cubin=other.to_bytes()), 3, tmp_path)
    assert second.order.cubin != order.cubin and second.tried == first.tried
    assert [one.words for one in second.population] == [one.words for one in first.population]
    assert all(len(one.times) == 1 for one in second.population)
    second.run(here, 4, 1000, print)
    assert len(seen) > 16 and not [child for child in seen if child.start]
    assert Search.kept(on_gpu, 3, None).path is None
    for other_order, seed in ((on_gpu, 4), (replace(on_gpu, bench=order.bench + "\n"), 3)):
        beside = Search.kept(other_order, seed, tmp_path)
        assert beside.tried == 0 and beside.path != second.path


def test_files_of_other_searches(order, tmp_path, found):
    path = tmp_path / "state"
    for text, why in (("{", "holds no search"), ("{}", "holds no search"), ("[]", "holds no search"),
                      (found[2].read_text().replace('"seed": 3', '"seed": 4'), "seed differ")):  # fmt: skip
        path.write_text(text)
        with pytest.raises(LaunchError, match=why):
            Search(order, 3).resume(path)


def test_words_as_text():
    words = (0, 1, (1 << 128) - 1)
    assert unpack(pack(words)) == words


# ---- the command -------------------------------------------------------------------------------------------------


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
