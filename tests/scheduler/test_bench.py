"""tests/bench/schedule.py: along which dimension a small kernel can be repeated, and what its variants are given; and
what tests/tools/schedule_libraries.py notes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import loader
import turingas
from loader import timing
from loader.tune.judge import STARTS, STRICT
from tests.bench import released, schedule, tune_starts
from tests.bench.schedule import repeated, unseen
from tests.kernels.cases import CASES
from tests.kernels_sass.card import Card
from tests.loader.conftest import install  # noqa: F401
from tests.tools import schedule_libraries
from turingas import decode
from turingas.cubin.cubin import Cubin
from turingas.emulate import launch
from turingas.errors import AsmError
from turingas.scheduler import warp


def test_the_grid_is_repeated_where_nobody_looks() -> None:
    found = {}
    for name in ("shuffles", "transpose", "places_three", "bitonic"):
        [case] = [case for case in CASES if case.name == name]
        found[name] = unseen(Cubin.from_bytes(case.cubin("sm_90")), case.kernel)
    assert found == {"shuffles": 2, "transpose": 2, "bitonic": 2, "places_three": None}
    assert repeated((3, 2), 2, 7) == (3, 2, 7) and repeated((5,), 1, 7) == (5, 7, 1)


@pytest.mark.parametrize("name", ["shuffles", "transpose", "mma_1688"])
def test_a_repeated_grid_does_the_same_again(name: str) -> None:
    [case] = [case for case in CASES if case.name == name]
    left = []
    for grid in (case.grid, repeated(case.grid, 2, 3)):
        args, _ = case.build()
        launch(case.cubin("sm_80"), case.kernel, grid, case.block, args, shared=case.shared)
        left.append([arg.tobytes() for arg in args if isinstance(arg, np.ndarray)])
    assert left[0] == left[1]


def test_all_variants_of_a_small_kernel_use_the_same_memory(install, monkeypatch) -> None:  # type: ignore[no-untyped-def]  # noqa: F811
    """On a GPU some addresses are slower than others. Its own codes are timed twice."""
    card = install(Card(gpus=1))
    monkeypatch.setattr(timing, "clocks", lambda gpu: None)
    monkeypatch.setattr(card, "do_cuEventElapsedTime", lambda first, last: 2.0, raising=False)
    made, plain = [], schedule.Buffer.of
    monkeypatch.setattr(schedule.Buffer, "of", lambda *args: (made.append(args), plain(*args))[1])
    schedule.given_of.cache_clear()
    schedule.times_of.cache_clear()
    found = schedule.measure("cuda:0", ["shuffles"])
    [case] = [case for case in CASES if case.name == "shuffles"]
    assert len(made) == sum(isinstance(arg, np.ndarray) for arg in case.build()[0]) > 0
    assert list(found["shuffles"]) == [*schedule.VARIANTS, schedule.AGAIN]
    assert set(found["shuffles"].values()) == {2.0 / schedule.LAUNCHES}
    schedule.given_of.cache_clear()


def test_small_kernels_are_made_beforehand() -> None:
    """In other processes."""
    name, arch = "shuffles", "sm_90"
    schedule._SMALL.clear()
    schedule.prepare([name], arch)
    assert set(schedule._SMALL) == {(name, variant, arch) for variant in (*schedule.VARIANTS, schedule.AGAIN)}
    prepared = dict(schedule._SMALL)
    schedule._SMALL.clear()
    assert schedule.small_cubin((name, "natural", arch)) == prepared[name, "natural", arch]


def test_what_the_scheduler_refuses_is_told(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the measurement, which goes on with the next kernel. A mistake of ours ends it."""
    asked = "shuffles", "natural", "sm_90"

    def refuse(*_: object) -> bytes:
        raise AsmError("no such luck")

    monkeypatch.setattr(schedule, "small_cubin", refuse)
    monkeypatch.setattr(schedule, "small", refuse)
    assert schedule._tried(asked) is None
    assert schedule.measure("cuda:0", ["shuffles", "tiles"]) == {}
    assert capsys.readouterr().out.count("no such luck") == 2
    monkeypatch.setattr(schedule, "small_cubin", {}.__getitem__)
    with pytest.raises(KeyError):
        schedule._tried(asked)


@pytest.mark.parametrize("name", [released.NOTHING, *released.ASKED])
def test_what_waits_for_one_scoreboard(name: str) -> None:
    """The kernels that tests/bench/released.py times: the linter finds nothing, and they are right in strict mode."""
    what, before = released.ASKED.get(name, (name, ""))
    cubin = turingas.assemble(released.source(what, before))
    assert not [one for one in turingas.lint(cubin) if one.severity != "note"]
    out, other = np.zeros(released.ROUNDS, np.uint32), np.zeros(32, np.uint32)
    report = loader.load(cubin, "cpu").kernel().launch(1, 32, out, other, strict=True)
    assert not report.hazards


def test_what_tune_tries_first() -> None:
    """Of a kernel that is not launched: stalls and cycles of the model, as parts of the original's."""
    [case] = [case for case in CASES if case.name == "tiles"]
    found = {start: row for start, *row in tune_starts.rows(Cubin.from_bytes(case.cubin("sm_80")), case.kernel)}
    assert list(found) == [start for start in STARTS if start != STRICT]
    assert found["loads fetch 128 bytes"] == [1.0, 1.0, ""] and not any(why for *_, why in found.values())
    assert found["stalls made anew, unpaced"][0] < found["stalls made anew"][0] <= 1.05


def test_the_model_takes_what_was_measured() -> None:
    """Of several instructions of a name the slowest."""
    measured = json.loads(Path(released.__file__).with_name("released_sm90.json").read_text())["cycles"]
    for name, cycles in warp.TIMES.items():
        assert cycles == max(took for one, took in measured.items() if one.split(".")[0] == name), name


def test_kernels_are_noted_with_the_commit_that_scheduled_them(tmp_path, monkeypatch) -> None:
    """Who goes on with another one keeps what was seen before, and the figures say how many are of each."""
    log, figures = tmp_path / "seen.log", tmp_path / "seen.json"
    path = str(Path(__file__).parents[1] / "cubin" / "data")
    given = ["schedule_libraries", path, "--kernels", "2", "--arch", "sm_75", "--log", str(log), "--json", str(figures)]
    monkeypatch.setattr("sys.argv", given)
    monkeypatch.setenv("TURINGAS_COMMIT", "first")
    assert schedule_libraries.main() == 0
    log.write_text(log.read_text().splitlines()[0] + "\n")
    monkeypatch.setenv("TURINGAS_COMMIT", "second")
    assert schedule_libraries.main() == 0
    found = json.loads(figures.read_text())
    assert found["commits"] == {"first": 1, "second": 1} and found["archs"]["sm_75"]["kernels"] == 2
    assert (found["asked"]["kernels"], found["asked"]["arch"]) == (2, ["sm_75"])


def test_kernels_that_have_an_instruction(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a change of its rules may change."""
    path = Path(__file__).parents[1] / "cubin" / "data"
    every, some = (schedule_libraries.draw([path], 1000, 1 << 20, {"sm_75"}, "", name)["sm_75"] for name in ("", "BAR"))
    having = [kernel.name for kernel in every if any(" BAR." in line for line in decode(kernel.words, "sm_75"))]
    assert sorted(kernel.name for kernel in some) == sorted(having) and 0 < len(some) < len(every)
