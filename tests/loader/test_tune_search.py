"""`turingas tune`: the search, on the CPU device and on a GPU."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

from loader.tune import judge, search
from loader.tune.judge import Judge, Outcome, Proof
from loader.tune.search import CHILDREN, Member, Search, pack, unpack
from loader.workers import Lost, Workers
from tests.loader.tuning import SOURCE, kinds_of
from turingas import assemble
from turingas.errors import LaunchError
from turingas.isa import control
from turingas.scheduler.moves import Moves


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
