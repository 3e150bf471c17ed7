"""`turingas bench schedule`, its sweep, and what a source says of its parameters. card.py has what stands for a GPU."""

from __future__ import annotations

import json
import os
import re

import pytest

from kernels_sass.bench import schedule, sweep
from kernels_sass.conv import code, parameters, tuned
from kernels_sass.conv import shape as sizes
from kernels_sass.conv.method import METHODS, Method
from kernels_sass.conv.parameters import Parameter
from loader import cuda, nvrtc
from loader.bench import measure, results
from loader.workers import Workers
from tests.kernels_sass.card import STANDIN, call
from turingas.cubin.cubin import Cubin
from turingas.errors import LaunchError

# ---- the schedule ------------------------------------------------------------------------------------------------


def test_schedule(card, tmp_path):
    pytest.importorskip("matplotlib")
    path = tmp_path / "found.json"
    words = ["schedule", "--layer", "Conv2", "--batch", "2", "--runs", "20", "--json", str(path)]
    done = call(*words, "--figures", str(tmp_path / "new"))
    assert done.exit_code == 0, done.output
    found = json.loads(path.read_text())
    rows = {row["name"]: row for row in found["settings"]["Conv2N2"]["rows"]}
    assert list(rows) == ["as it is", "YIELD=natural", "YIELD=nvcc8", "YIELD=cudnn7", "LDG_INTERLEAVE=8",
                          "LDG_INTERLEAVE=4", "LDG_INTERLEAVE=2", "STS_INTERLEAVE=6", "STS_INTERLEAVE=4",
                          "STS_INTERLEAVE=2"]  # fmt: skip
    assert all(row["status"] == "ok" and row["error"] < 1e-6 for row in rows.values())
    ratio = rows["YIELD=nvcc8"]["ms"] / rows["YIELD=natural"]["ms"]
    assert found["summary"]["YIELD"]["natural over nvcc8"] == pytest.approx(ratio, abs=1e-3)
    assert f"YIELD: natural over nvcc8: {found['summary']['YIELD']['natural over nvcc8']:.3f}x" in done.output
    for name in ("yield", "ldg_interleave", "sts_interleave"):
        assert "<svg" in (tmp_path / "new" / f"schedule_sm75_paper_{name}.svg").read_text()
    shown = call("schedule", "--show", "--json", str(path))
    assert shown.exit_code == 0 and "YIELD: natural over nvcc8" in shown.output


def test_a_source_without_a_parameter(card, tmp_path, monkeypatch):
    real = code.assemble

    def assemble(source, arch, given):
        if "LDG_INTERLEAVE" in given or given.get("STS_INTERLEAVE") == 2:
            raise LaunchError("winograd.sass has none of that")
        return real(source, arch, given)

    monkeypatch.setattr(code, "assemble", assemble)
    told = []
    found = dict(schedule.there_is({}, "sm_75", "paper", told.append))
    assert found == {"YIELD": ["natural", "nvcc8", "cudnn7"], "STS_INTERLEAVE": [6, 4]}
    assert len(told) == 4 and told[-1] == "STS_INTERLEAVE=2 is left out: winograd.sass has none of that"


def test_schedule_of_ones_own(card, tmp_path):
    words = ["schedule", "--layer", "Conv2", "--batch", "2", "--runs", "20", "--json", str(tmp_path / "a.json")]
    done = call(*words, "--vary", "YIELD=every:4,7", "-D", "STS_INTERLEAVE=a:1", "--figures", str(tmp_path))
    assert done.exit_code == 0, done.output
    assert "paper, STS_INTERLEAVE=a:1, CHWN" in (tmp_path / "schedule_sm75_paper_a1_yield.svg").read_text()
    asked = json.loads((tmp_path / "a.json").read_text())["asked"]
    assert asked["vary"] == {"YIELD": ["every:4", 7]} and asked["source"] == "paper"
    done = call(*words, "--vary", "COLOUR=1")
    assert done.exit_code == 1 and "has no parameter 'COLOUR'" in done.output
    assert call(*words, "--vary", "COLOUR").exit_code == 2 and call(*words, "--vary", "2=3").exit_code == 2


# ---- the sweep ---------------------------------------------------------------------------------------------------


@pytest.fixture
def kept(monkeypatch, tmp_path):
    """The file of schedules for Conv2d."""
    monkeypatch.setattr(tuned, "path", lambda: tmp_path / "schedules.json")
    return tmp_path / "schedules.json"


@pytest.fixture
def model(monkeypatch):
    """Times of schedules by a rule; what ran is kept."""
    ran = []

    def compare(data, contenders, runs, seed):
        rows = []
        for one in contenders:
            s = one.schedule
            ran.append(s)
            ms = 1.0 - 0.1 * (s.get("YIELD") == "cudnn7") - 0.2 * (s.get("LDG_INTERLEAVE") == 4)
            ms += 0.3 * (s.get("YIELD") == "cudnn7" and s.get("LDG_INTERLEAVE") == 4)  # not both
            ms -= 0.05 * (s.get("STS_INTERLEAVE") == 2) + 0.001 * (s.get("STS_INTERLEAVE") == 4)
            rows.append({"name": one.name, "group": "ours", "status": "ok", "ms": ms * data.problem.n})
            if "OUTPUT" in s:
                rows[-1] = {"name": one.name, "group": "ours", "status": "it has no such parameter"}
        return rows, {"during": {}}

    monkeypatch.setattr(measure, "compare", compare)
    return ran


SWEEP = ["schedule", "--sweep", "--layer", "Conv2", "--batch", "2,3"]


def test_sweep(card, kept, model, tmp_path):
    path = tmp_path / "found.json"
    done = call(*SWEEP, "--json", str(path), "--figures", str(tmp_path / "new"))
    assert done.exit_code == 0, done.output
    found = json.loads(path.read_text())
    assert found["asked"]["layout"] == "NCHW" and found["asked"]["source"] == "paper" and found["complete"]
    assert found["asked"]["vary"] == {"YIELD": ["nvcc8", "cudnn7"], "LDG_INTERLEAVE": [2, 4], "STS_INTERLEAVE": [2, 4],
                                      "OUTPUT": ["sts64", "compact"]}  # fmt: skip
    best = {"LDG_INTERLEAVE": 4, "STS_INTERLEAVE": 2}
    assert found["settings"]["Conv2N3"]["best"] == {"schedule": best, "ms": pytest.approx(2.25), "gain": 1.3333}
    assert found["summary"] == {"mean": 1.3333, "least": 1.3333, "most": 1.3333}
    tried = found["settings"]["Conv2N2"]["tried"]
    assert {"schedule": {"OUTPUT": "sts64"}, "status": "it has no such parameter"} in tried
    assert {"schedule": {"YIELD": "cudnn7"}, "gain": 1.1111} in tried
    assert "Conv2N2 1.5000 ms, 1.333x: LDG_INTERLEAVE=4 STS_INTERLEAVE=2; 1 to do" in done.output
    assert f"kept for Conv2d in {kept}" in done.output
    gpu = cuda.device(0)
    shapes = tuned.best(gpu, code.Kernels.of("sm_75", "paper"))
    assert shapes == {sizes.Shape(n, 3, 4, 4, 3, 1, "NCHW"): best for n in (2, 3)}
    assert "LDG_INTERLEAVE=4" in (tmp_path / "new" / "schedule_sm75_paper_sweep.svg").read_text()
    shown = call("schedule", "--show", "--json", str(path))
    assert shown.exit_code == 0 and "1.333x in the mean" in shown.output and "STS_INTERLEAVE=2" in shown.output


def test_a_sweep_that_was_interrupted(card, kept, model, tmp_path, monkeypatch):
    words = [*SWEEP, "--layout", "CHWN", "--json", str(tmp_path / "found.json")]
    assert call(*words, "--seconds", "0").exit_code == 0
    assert [shape.n for shape in tuned.best(cuda.device(0), code.Kernels.of("sm_75", "paper"))] == [2]
    count = len(model)
    done = call(*words)
    assert done.exit_code == 0 and len(model) == 2 * count  # the second shape alone
    assert list(json.loads((tmp_path / "found.json").read_text())["settings"]) == ["Conv2N2", "Conv2N3"]
    assert len(tuned.best(cuda.device(0), code.Kernels.of("sm_75", "paper"))) == 2


def test_a_sweep_by_workers(card, kept, model, tmp_path):
    """The same file, and the same schedules for Conv2d."""
    one, other = tmp_path / "one.json", tmp_path / "other.json"
    assert call(*SWEEP, "--json", str(one)).exit_code == 0
    found = kept.read_text()
    kept.unlink()
    done = call(*SWEEP, "--json", str(other), "--workers", "here")
    assert done.exit_code == 0 and "settings are measured at the same time" in done.output, done.output
    assert json.loads(one.read_text()) == json.loads(other.read_text()) and kept.read_text() == found
    assert call(*SWEEP, "--workers", "some").exit_code == 1


def test_workers_with_another_card(card, kept, model, tmp_path, monkeypatch):
    monkeypatch.setattr(sweep, "work", lambda task: {"gpu": "Another", "best": None})
    done = call(*SWEEP, "--json", str(tmp_path / "one.json"), "--workers", "here")
    assert done.exit_code == 1 and "Conv2N2 was measured on a Another" in done.output


def half(setting):
    """A setting as a process measures it; one that kills its worker."""
    if setting == 3:
        os._exit(1)
    return {"half": setting / 2}


def test_settings_of_processes(tmp_path):
    """A lost one is told, and left for the next time."""
    path, told = tmp_path / "found.json", []
    with Workers("2") as workers:
        def spread(wanted):
            return results.Results(path, {"what": "a test", "date": ""}, {}).spread(
                wanted, 100, told.append, workers, half, int, summary=lambda found: {"count": len(found)}
            )

        found = spread({"a": 1, "b": 3, "c": 4})
        assert found["settings"] == {"a": {"half": 0.5}, "c": {"half": 2.0}} and not found["complete"]
        assert any("b is left out: it was given up after 3 tries" in line for line in told)
        assert found["summary"] == {"count": 2}
        assert spread({"a": 1, "b": 2, "c": 4})["complete"]
    assert results.read(path)["settings"]["b"] == {"half": 1.0}


def test_a_sweep_that_cannot_be_kept(card, model, tmp_path, monkeypatch):
    """It is told, and goes on."""
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(tuned, "path", lambda: tmp_path / "file" / "schedules.json")
    done = call(*SWEEP, "--vary", "YIELD=cudnn7", "--json", str(tmp_path / "found.json"))
    assert "is ignored" in done.output
    assert done.exit_code == 0 and "Conv2N3 is not kept for Conv2d: " in done.output and "1.111x" in done.output


def test_a_sweep_with_something_given(card, kept, model, tmp_path):
    """Then nothing is kept for Conv2d, which takes the source as it is."""
    done = call(*SWEEP, "-D", "YIELD=nvcc8", "--vary", "LDG_INTERLEAVE=2,4", "--json", str(tmp_path / "found.json"))
    assert done.exit_code == 0 and "nothing is kept" in done.output and not kept.exists()
    assert all(one["YIELD"] == "nvcc8" and set(one) <= {"YIELD", "LDG_INTERLEAVE"} for one in model)


def test_a_sweep_that_gains_nothing(card, kept, model, tmp_path):
    done = call(*SWEEP, "--vary", "YIELD=nvcc8", "--json", str(tmp_path / "found.json"))
    assert done.exit_code == 0 and "3.0000 ms, 1.000x: as it is; 0 to do" in done.output
    assert set(map(str, tuned.best(cuda.device(0), code.Kernels.of("sm_75", "paper")).values())) == {"{}"}


def test_a_schedule_with_a_wrong_result(card, kept, tmp_path, monkeypatch):
    """It is told, and not taken; here everything really runs."""
    assembled = code.assemble

    def assemble(source, arch, given):
        if given.get("YIELD") != "nvcc8":
            return assembled(source, arch, given)
        return Cubin.from_bytes(nvrtc.compile(STANDIN.read_text().replace("sum += (bias", "sum += 1 + (bias"), arch))

    monkeypatch.setattr(code, "assemble", assemble)
    words = ["schedule", "--sweep", "--layer", "Conv2", "--batch", "2", "--json", str(tmp_path / "found.json")]
    done = call(*words, "--vary", "YIELD=nvcc8,cudnn7")
    assert done.exit_code == 1 and "NOT OK Conv2N2: YIELD=nvcc8: wrong: a relative L2 error of" in done.output
    entry = json.loads((tmp_path / "found.json").read_text())["settings"]["Conv2N2"]
    assert entry["best"]["schedule"] in ({}, {"YIELD": "cudnn7"}) and entry["rows"][0]["runs"] == measure.RUNS


def test_values_to_try():
    many = Parameter("YIELD", "natural", ("natural", *(f"{at}:{n}" for at in ("every", "lds") for n in range(1, 129))))
    assert many.few == ("natural", *(f"{at}:{2**n}" for at in ("every", "lds") for n in range(8)))
    assert Parameter("A", 5, (3, 4, 5)).few == (3, 4, 5)


@pytest.mark.parametrize("name", METHODS)
def test_parameters_of_the_sources(name):
    """All that the source takes, with defaults and values that it takes."""
    source = METHODS[name]
    found = parameters.parameters(source)
    text = "".join(path.read_text() for path in source.files if path.suffix == ".sass")
    assert sorted(found) == sorted({a or b for a, b in re.findall(r'^#\s+-D\s+(\w+)=|\bchoose\("(\w+)"', text, re.M)})
    for parameter, one in found.items():
        assert one.name == parameter and one.default in one.values, one
    if name == "direct":
        assert found == {"FILTERS": Parameter("FILTERS", 8, (8, 4))}
    elif name == "few":
        assert found == {"FILTERS": Parameter("FILTERS", 8, (8, 4, 3))}
    elif name == "nhwc":
        assert found == {"CHANNELS": Parameter("CHANNELS", 3, (3, 1, 2, 4))}
    elif name == "small":
        assert list(found) == ["FILTERS", "PIXELS", "WINDOW", "AHEAD", "DEPTH", "MEET"]
    elif name == "fold":
        assert found == {"AHEAD": Parameter("AHEAD", 1, (1, 0))}
    else:
        assert found["YIELD"].values[:1] and {"natural", "nvcc8", "cudnn7"} <= set(found["YIELD"].values)


def test_how_a_source_says_its_parameters(tmp_path, monkeypatch):
    (tmp_path / "a.sass").write_text("""# -D YIELD=natural|nvcc8|every:N     which
<code>
A = choose("MATH", "ffma", ("ffma", "tf32x3"))
B = choose("FIRST", 4, range(2, 5)) // 2 if A else 0
C = choose("ODD", 1, SOME)
D = choose("FEW", "a", ("a", *(f"b:{n}" for n in (1, 2))))
E, F = choose("LATER", 1 if A else 2, (1, 2)), given("SOME", 4, *range(2, 5), 8)
G, H = given("FLAG", 1), given("OTHERS", 2 - B, *(n for n in range(B)))
</code>
""")
    monkeypatch.setattr(Method, "path", tmp_path / "a.sass")
    found = parameters.parameters(METHODS["paper"])
    assert found == {"YIELD": Parameter("YIELD", "natural", ("natural", "nvcc8")),
                     "MATH": Parameter("MATH", "ffma", ("ffma", "tf32x3")), "FIRST": Parameter("FIRST", 4, (2, 3, 4)),
                     "ODD": Parameter("ODD", 1, ()), "FEW": Parameter("FEW", "a", ("a", "b:1", "b:2")),
                     "LATER": Parameter("LATER", None, (1, 2)), "SOME": Parameter("SOME", 4, (2, 3, 4, 8)),
                     "FLAG": Parameter("FLAG", 1, (0, 1)), "OTHERS": Parameter("OTHERS", None, ())}  # fmt: skip
    assert parameters.variants(METHODS["paper"], {"YIELD": "x"}) == [{"MATH": "ffma"}, {"MATH": "tf32x3"}]
    assert parameters.variants(METHODS["paper"], {"MATH": "other"}) == [{"MATH": "other"}]
