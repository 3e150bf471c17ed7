"""`turingas bench schedule --source hgmma` and its like, on a driver that stands for a card's: the kernels really run,
on the CPU device. And what --vary and -D may say."""

from __future__ import annotations

import dataclasses
import json

import pytest

from kernels_sass.bench import by_hgmma, conv, schedule
from kernels_sass.bench.vary import OWN, REFUSED, known, refused
from kernels_sass.conv import code
from kernels_sass.conv.methods import hgmma
from kernels_sass.conv.parameters import Parameter
from loader import validate
from loader.bench import contenders, measure, results
from loader.cuda import device
from tests.kernels_sass.card import Card, call
from turingas.errors import LaunchError

WORDS = "schedule", "--layer", "Conv3", "--batch", "2", "--runs", "20"


@pytest.fixture
def card(install, monkeypatch, tmp_path):
    """A small Conv3 and one small layer for each group, no PyTorch, each launch timed by its first."""
    install(Card(gpus=1, major=9, minor=0))
    for module in (measure, contenders, results):
        monkeypatch.setattr(module, "torch", lambda: None)
    monkeypatch.setattr(measure, "state", lambda gpu: {"sm_mhz": 1000})
    monkeypatch.setattr(measure, "ROTATION", 0)
    monkeypatch.setattr(results, "_driver", lambda: "1.2")
    monkeypatch.setenv("TURINGAS_COMMIT", "abc")
    monkeypatch.setattr(results, "FOLDER", tmp_path)
    monkeypatch.setitem(validate.LAYERS, "Conv3", (64, 4))
    monkeypatch.setattr(conv, "RESNET", ((3, 8, 8, 1, 1), (4, 8, 8, 3, 2)))
    return tmp_path / "found.json"


def rows_of(path, setting="Conv3N2"):
    return {row["name"]: row for row in json.loads(path.read_text())["settings"][setting]["rows"]}


def test_hgmma(card):
    """Each value alone, beside what does not vary, and the layer as it is; rows say what ran."""
    pytest.importorskip("matplotlib")
    done = call(*WORDS, "--source", "hgmma", "-D", "TILE_N=64", "--vary", "STAGES=2,5", "--vary", "CLUSTER=1,2",
                "--json", str(card), "--figures", str(card.parent))  # fmt: skip
    assert done.exit_code == 0, done.output
    rows, found = rows_of(card), json.loads(card.read_text())
    assert list(rows) == [OWN, "STAGES=2", "STAGES=5", "CLUSTER=1", "CLUSTER=2"]
    for name, row in rows.items():
        assert row["status"] == "ok" and 0 < row["error"] < conv.BOUNDS["fp16"], row
        assert row["source"] == "hgmma.sass" and row["precision"] == "fp16" and row["layout"] == "NHWC"
        parameter, _, value = name.partition("=")
        assert row["defines"]["TILE_N"] == 64 and row["defines"].get(parameter, value) in (value, int(value or 0))
    assert rows["CLUSTER=1"]["defines"] == {**rows["STAGES=2"]["defines"], "STAGES": rows[OWN]["defines"]["STAGES"]}
    entry = found["settings"]["Conv3N2"]
    assert entry["flops"] == 2 * 2 * 64 * 64 * 9 * 4 * 4 and "ffmas" not in entry
    assert rows[OWN]["tflops"] == pytest.approx(entry["flops"] / rows[OWN]["ms"] / 1e9, abs=0.01)
    assert found["asked"]["precision"] == "fp16" and found["sources"].keys() >= {"hgmma.sass", "hgmma_shared.sass"}
    ratio = rows["STAGES=5"]["ms"] / rows["STAGES=2"]["ms"]
    assert found["summary"]["STAGES"] == {"2 over 5": pytest.approx(ratio, abs=1e-3)}
    assert "Winograd" not in done.output and "TFLOP/s, two operations for each product" in done.output
    picture = (card.parent / "schedule_sm90_hgmma_fp16_64_stages.svg").read_text()
    assert "Convolution, hgmma, fp16, TILE_N=64, NHWC" in picture and "Winograd" not in picture
    shown = call("schedule", "--show", "--json", str(card))
    assert shown.exit_code == 0 and "STAGES: 2 over 5: " in shown.output and "as it is" in shown.output


@pytest.mark.parametrize(("source", "precision", "varied", "file"), [
    ("hgmma_wide", "tf32", "TILE_M=96,136", "hgmma_wide.sass"),
    ("hgmma_window", "bf16", "WINDOWS=2,3", "hgmma_window.sass"),
    ("hgmma_window", "fp16", "KEEP=0,1", "hgmma_window.sass"),
    ("hgmma", "fp32", "AHEAD=1,2", "hgmma.sass"),
])  # fmt: skip
def test_every_source(card, source, precision, varied, file):
    done = call(*WORDS, "--source", source, "--precision", precision, "--vary", varied, "--json", str(card))
    assert done.exit_code == 0, done.output
    own, *rows = rows_of(card).values()
    assert own["status"] == "ok" and len(rows) == 2
    name = varied.partition("=")[0]
    for row in rows:
        assert row["status"] == "ok" and row["error"] < conv.BOUNDS[precision] and row["source"] == file, row
        assert row["name"] == f"{name}={row['defines'][name]}"


def test_values_that_vary_unless_asked_for(card):
    """As the sources list them, the default first."""
    def vary(source, **given):
        return by_hgmma.SOURCES[source].settled(given, {}, device(0), print)[1]

    assert vary("hgmma") == {
        "TILE_N": (128, 256, 192, 64), "STAGES": (4, 2, 3, 5, 6, 7, 8), "GROUP": (1, 2, 4, 8, 16, 32),
        "BUFFERS": (1, 2), "CLUSTER": (1, 2, 4, 8), "PINGPONG": (0, 1)}  # fmt: skip
    assert vary("hgmma_wide") == {"TILE_M": (128, 64, 256), "STAGES": (4, 2, 3, 5, 6, 7, 8)}
    assert vary("hgmma_window") == {"TILE_M": (128, 64, 256), "TILE_N": (128, 64), "STAGES": (6, 2, 4, 8, 16, 32, 64),
                                    "WINDOWS": (2, 3, 4), "KEEP": (0, 1)}  # fmt: skip
    assert "STAGES" not in vary("hgmma", STAGES=4)


def test_values_that_cannot_be(card):
    """With the layer's sizes, or each other: a status, and no failure; whoever has a first time is what others are
    compared with."""
    done = call(*WORDS, "--source", "hgmma", "--vary", "TILE_N=256,64,128", "-D", "STAGES=8", "--json", str(card))
    assert done.exit_code == 0, done.output
    rows = rows_of(card)
    why = rows["TILE_N=256"]["status"]
    assert why.startswith(f"{REFUSED}GROUP=1, STAGES=8, TILE_N=256 take 427008 bytes of shared memory (there are")
    assert "fewer STAGES" in why and "ms" not in rows["TILE_N=256"]
    assert rows["TILE_N=64"]["status"] == "ok" and "NOT OK" not in done.output
    assert "TILE_N=256: refused: " in done.output and "TILE_N=256 refused, TILE_N=64 0." in done.output
    assert json.loads(card.read_text())["summary"] == {"TILE_N": {}}  # 128 has no room either
    done = call(*WORDS, "--source", "hgmma", "--vary", "TILE_N=192,64,128", "--json", str(card))
    ratio = rows_of(card)["TILE_N=128"]["ms"] / rows_of(card)["TILE_N=64"]["ms"]
    assert json.loads(card.read_text())["summary"] == {"TILE_N": {"64 over 128": pytest.approx(ratio, abs=1e-3)}}
    done = call(*WORDS, "--source", "hgmma", "--vary", "PINGPONG=1,0", "--precision", "fp32", "--json", str(card))
    assert done.exit_code == 0 and "not with TYPE=FP32" in rows_of(card)["PINGPONG=1"]["status"], done.output
    done = call(*WORDS, "--source", "hgmma_window", "--vary", "STAGES=18", "-D", "KEEP=1", "--json", str(card))
    assert done.exit_code == 0 and "the filters of this layer are 9 stages" in rows_of(card)["STAGES=18"]["status"]


def test_a_layer_that_cannot_be_is_a_failure():
    row = {"name": OWN, "status": f"{REFUSED}no room"}
    assert refused({**row, "name": "STAGES=8"}) and not refused(row) and not refused({**row, "status": "ok"})
    found = {"settings": {"Conv3N2": {"rows": [row, {**row, "name": "STAGES=8"}]}}}
    assert list(schedule.failures(found)) == [f"Conv3N2: {OWN}: {REFUSED}no room"]


def test_what_is_wrong_is_a_failure(card, monkeypatch):
    monkeypatch.setitem(conv.BOUNDS, "fp16", 1e-9)
    done = call(*WORDS, "--source", "hgmma", "--vary", "STAGES=4", "--json", str(card))
    assert done.exit_code == 1 and "NOT OK Conv3N2: STAGES=4: wrong: a relative L2 error of" in done.output
    assert rows_of(card)["STAGES=4"]["status"].startswith("wrong: ")


def test_groups_of_layers(card):
    """Those of bench conv; the window has none of 1 x 1."""
    words = "schedule", "--batch", "1", "--runs", "20", "--json", str(card)
    done = call(*words, "--source", "hgmma", "--group", "1x1", "--group", "stride 2", "--vary", "STAGES=4,6")
    assert done.exit_code == 0, done.output
    settings = list(json.loads(card.read_text())["settings"])
    assert settings == ["8 -> 8, 1x1/1, 3x3, N=1", "8 -> 8, 3x3/2, 4x4, N=1"]
    assert list(results.in_order(json.loads(card.read_text()))["settings"]) == settings
    assert all(row["status"] == "ok" for name in settings for row in rows_of(card, name).values())
    done = call(*words, "--source", "hgmma_window", "--group", "1x1", "--vary", "STAGES=4")
    assert done.exit_code == 0 and rows_of(card, settings[0])["STAGES=4"]["status"].startswith(f"{REFUSED}WINDOWS: ")


def test_settings():
    asked = schedule.Asked()
    assert len(asked.settings()) == 16
    every = dataclasses.replace(asked, groups=tuple(conv.GROUPS), batches=(32, 128)).settings()
    of_conv = {name: p for name, (group, p) in conv.Asked().settings().items() if group != "16"}
    assert {name: p for name, p in every.items() if "->" in name} == of_conv and len(every) == len(of_conv) + 8


def test_workers(card):
    done = call(*WORDS, "--source", "hgmma", "--vary", "STAGES=4,5", "--workers", "here", "--json", str(card))
    assert done.exit_code == 0, done.output
    assert [row["status"] for row in rows_of(card).values()] == ["ok"] * 3


@pytest.mark.parametrize(("words", "message", "hint"), [
    ("--source hgmma --vary COLOUR=1", "hgmma.sass has no parameter 'COLOUR'", "it has: TILE_N, STAGES, GROUP"),
    ("--source hgmma -D TILE_M=96", "hgmma.sass has no parameter 'TILE_M'", "it has: TILE_N, STAGES"),
    ("--source hgmma --vary STAGES=4,9", "hgmma.sass does not take STAGES=9", "it takes: 4, 2, 3, 5, 6, 7, 8"),
    ("--source hgmma -D CLUSTER=3", "hgmma.sass does not take CLUSTER=3", "it takes: 1, 2, 4, 8"),
    ("--source hgmma_window --vary WINDOWS=two", "hgmma_window.sass does not take WINDOWS=two", "it takes: 2, 3, 4"),
    ("--source hgmma --vary TYPE=BF16", "hgmma.sass: TYPE cannot be chosen here", "--precision is for that"),
    ("--source hgmma_window --vary FILTER=1x3", "hgmma_window.sass: FILTER cannot be", "the layer decides it"),
    ("--source hgmma_wide --precision fp32", "the source 'hgmma_wide' has no fp32", "it has: fp16, bf16, tf32"),
    ("--source paper --precision fp16", "the source 'paper' has no fp16", "it has: fp32"),
    ("--source paper --group 1x1", "--group: the source 'paper' is for filters of 3 x 3", "are for: hgmma, hgmma_wide"),
    ("--source hgmma --group 1x1 --layer Conv2", "--layer Conv2 is one of the 16 settings", "add --group 16"),
    ("--source hgmma -D STAGES=4 --vary STAGES=5", "STAGES is given by -D and by --vary", "-D is for what does not"),
    ("--source paper -D YIELD=nvcc8 --vary YIELD=natural", "YIELD is given by -D and by --vary", "-D is for what"),
    ("--source hgmma --sweep", "hgmma.sass has no schedule to search", "--vary without --sweep times the values"),
    ("--sweep --source hopper --group 1x1", "--group: the source 'hopper' is for filters of 3 x 3", "other layers"),
])  # fmt: skip
def test_what_is_refused_before_anything_runs(card, words, message, hint):
    done = call("schedule", *words.split(), "--json", str(card))
    text = " ".join(done.output.split())
    assert done.exit_code == 1 and message in text and hint in text, done.output
    assert not card.exists()


def test_a_card_without_hgmma(install, monkeypatch):
    install(Card(gpus=1, major=8, minor=0))
    done = call(*WORDS, "--source", "hgmma")
    assert done.exit_code == 1 and "which is for sm_90a alone" in done.output


def test_names_that_are_no_source():
    done = call("schedule", "--source", "gemm")
    assert done.exit_code == 2 and "'hgmma_wide'" in done.output
    assert "turingas bench gemm --vary" in " ".join(call("schedule", "--help").output.split())


def test_known():
    """A text that says the same is the source's own value, and counts once."""
    there = {"A": Parameter("A", 1, (1, 2)), "B": Parameter("B", None, ()), "C": Parameter("C", 0, (0,))}
    assert known("a.sass", there, {}, {"A": ("2", 2, 1), "B": (7, "x", 7)}) == {"A": (2, 1), "B": (7, "x")}
    with pytest.raises(LaunchError, match="a.sass has no parameter 'D'\nhint: it has: A, B$"):
        known("a.sass", there, {"C": "no"}, {"D": (1,)})
    with pytest.raises(LaunchError, match="a.sass: C cannot be chosen here\nhint: no; what can: A, B$"):
        known("a.sass", there, {"C": "no"}, {"C": (0,)})


def test_ahead():
    """Without a value the source decides: 6 with 64 filters."""
    kernels = {ahead: hgmma.built(hgmma.Tiling("FP32", 64, 8, ahead=ahead)).to_bytes() for ahead in (None, 6, 1)}
    assert kernels[None] == kernels[6] != kernels[1]


def test_every_source_has_its_name():
    """None of METHODS is called as one of these, and each anchor asks for its file."""
    assert not by_hgmma.SOURCES.keys() & code.METHODS.keys()
    for name, one in by_hgmma.SOURCES.items():
        assert one.path.stem == name and one.anchor.keys() <= one.parameters.keys()
