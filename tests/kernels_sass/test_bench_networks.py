"""`turingas bench networks` where there is no GPU to time with; the rest is in tests/kernels_sass/torch."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from docs import readme
from kernels_sass.bench import networks
from loader.bench import figures, results
from tests.kernels_sass.card import call


def row(group, status="ok", ms=None):
    return {"name": group, "group": group, "status": status, **({"ms": ms} if ms else {})}


def test_verdicts():
    """The fastest of each; what fails with PyTorch too is no failure of ours."""
    rows = [row("torch", ms=4.0), row("torch", ms=3.0), row("ours", ms=2.0), row("ours", "wrong")]
    made = networks.verdict(rows)
    assert made["over_torch"] == 1.5 and networks.verdict(rows[:2])["over_torch"] is None
    assert list(networks.failures({"settings": {"a N1": {"rows": rows}}})) == ["a N1: ours: wrong"]
    assert not list(networks.failures({"settings": {"a N1": {"rows": rows[2:]}}}))
    assert networks.brief({"verdict": made}) == "ours 2.000 ms; torch 3.000 ms; 1.50x"


def test_the_plan_for_several_gpus_is_a_command(tmp_path):
    """It begins nothing that would not end in time, and knows what it is told."""
    command = [sys.executable, "-m", "tests.bench.networks"]
    for words, code, told in ((["out", "claims", "0.5", "resnet18 N1"], 0, "nothing is left that would end in time"),
                              (["--help"], 0, "FOLDER CLAIMS SECONDS"), (["out"], 2, "are required")):  # fmt: skip
        done = subprocess.run([*command, *(str(tmp_path / one) if one in ("out", "claims") else one for one in words)],
                              capture_output=True, text=True, cwd=Path(__file__).parents[2])  # fmt: skip
        assert done.returncode == code and told in done.stdout + done.stderr, (words, done)


# ---- results of several runs --------------------------------------------------------------------------------------

FACTS = {"what": "bench networks", "arch": "sm_90", "date": "2026-01-01", "commit": "aaa", "gpu": "NVIDIA H200",
         "driver": "1", "cuda": "13.0", "sms": 132, "l2_bytes": 1, "mhz": {}, "cudnn": "9", "torch": "2",
         "sources": {}}  # fmt: skip
ASKED = {"networks": ["resnet18"], "batches": [1], "layouts": ["NCHW"], "who": ["eager", "ours"], "runs": 24, "seed": 0,
         "width": None, "scale": 1}  # fmt: skip


def kept(path, settings, asked=(), **facts):
    """A file with these settings: PyTorch's time and ours, and who else took part."""
    made = {}
    for name, (theirs, ours, *more) in settings.items():
        network, batch = name.split(" N")
        rows = [{"name": f"{who} NCHW", "group": "torch" if "PyTorch" in who else "ours", "status": "ok", "ms": ms,
                 "images_per_second": 1.0, "error": 0.0, "largest": 0.0, "top1": 1.0, "how": "graph"}
                for who, ms in zip(("PyTorch", "ours", *more), (theirs, ours, *(9.0 for _ in more)))]  # fmt: skip
        made[name] = {"network": network, "batch": int(batch), "rows": rows, "verdict": networks.verdict(rows)}
    given = {**ASKED, "networks": sorted({one["network"] for one in made.values()}),
             "batches": sorted({one["batch"] for one in made.values()}), **dict(asked)}  # fmt: skip
    results.keep(path, {**FACTS, **facts, "asked": given, "complete": True, "summary": {}, "settings": made})
    return str(path)


def joined(tmp_path, *files):
    """The command's outcome, and what it has written."""
    words = [word for file in files for word in ("--join", file)]
    done = call("networks", *words, "--json", str(tmp_path / "all.json"))
    assert done.exit_code == 0, done.output
    return done, json.loads((tmp_path / "all.json").read_text())


def lines_of(done, *names):
    """The cells of these rows of the table that says who was measured where."""
    table = done.output.partition("Who was measured, in which of the ")[2].partition("The fastest")[0].splitlines()
    rows = [[cell.strip() for cell in line.split("  ") if cell.strip()] for line in table]
    return [row for name in names for row in rows if row[:1] == [name]]


def test_join(no_gpu, tmp_path):
    """Each setting keeps what it was measured with; one that two have is the later file's; so again with a third."""
    one = kept(tmp_path / "1.json", {"resnet18 N1": (4.0, 2.0), "vgg16 N1": (3.0, 1.0)})
    two = kept(tmp_path / "2.json", {"resnet18 N1": (4.0, 1.0, "PyTorch compile"), "resnet18 N32": (5.0, 1.0)},
               {"who": ["eager", "compile", "ours"], "runs": 20}, date="2026-02-02", commit="bbb",
               gpu="NVIDIA H100")  # fmt: skip
    done, found = joined(tmp_path, one, two)
    assert (found["gpu"], found["commit"], found["date"]) == ("NVIDIA H100", "bbb", "2026-02-02")
    assert found["summary"] == {"resnet18 N1": 4.0, "vgg16 N1": 3.0, "resnet18 N32": 5.0} and not found["complete"]
    own = {name: {key: entry[key] for key in results.FACTS if key in entry}
           for name, entry in found["settings"].items()}  # fmt: skip
    assert own.pop("vgg16 N1") == {"date": "2026-01-01", "commit": "aaa", "gpu": "NVIDIA H200"}
    assert own == {"resnet18 N1": {}, "resnet18 N32": {}}
    assert found["asked"] == {**ASKED, "networks": ["resnet18", "vgg16"], "batches": [1, 32],
                              "who": ["eager", "ours", "compile"], "runs": 20}  # fmt: skip
    assert "vgg16 N1; NVIDIA H200, driver 1, 2026-01-01, cuDNN 9, PyTorch 2, commit aaa" in done.output
    assert "resnet18 N1; NVIDIA H100, driver 1, 2026-02-02, cuDNN 9, PyTorch 2, commit bbb" in done.output
    assert figures.stamp(found) == ("NVIDIA H100 and NVIDIA H200, driver 1, 2026-02-02 and 2026-01-01, cuDNN 9, "
                                    "PyTorch 2, commit bbb and aaa")  # fmt: skip
    assert lines_of(done, "PyTorch compile", "ours", "ours, linear") == [
        ["PyTorch compile", "resnet18 N1", "none"], ["ours", "all", "none"], ["ours, linear", "none", "none"]]
    again = kept(tmp_path / "3.json", {"vgg16 N8": (3.0, 1.0)})  # as the first: its settings are of this file again
    more = kept(tmp_path / "4.json", dict.fromkeys(("resnet18 N32", "resnet18 N1"), (4.0, 1.0, "PyTorch compile")))
    done = joined(tmp_path, one, more)[0]
    assert lines_of(done, "PyTorch compile") == [["PyTorch compile", "all but vgg16 N1", "none"]]
    joined(tmp_path, one, two)
    found = joined(tmp_path, str(tmp_path / "all.json"), again)[1]
    assert "gpu" not in found["settings"]["vgg16 N1"] and found["settings"]["resnet18 N1"]["commit"] == "bbb"
    assert list(found["settings"]) == ["resnet18 N1", "vgg16 N1", "resnet18 N32", "vgg16 N8"]


def test_no_setting_is_of_two_cards(no_gpu, tmp_path):
    """Who took part in the earlier run alone is not set beside the times of the later one."""
    one = kept(tmp_path / "1.json", {"resnet18 N1": (1.0, 2.0, "PyTorch compile")})
    two = kept(tmp_path / "2.json", {"resnet18 N1": (4.0, 1.0)}, gpu="NVIDIA H100")
    found = joined(tmp_path, one, two)[1]
    entry = found["settings"]["resnet18 N1"]
    assert found["gpu"] == "NVIDIA H100" and "gpu" not in entry and entry["verdict"]["over_torch"] == 4.0
    assert [row["name"] for row in entry["rows"]] == ["PyTorch NCHW", "ours NCHW"]


def test_what_cannot_be_joined(no_gpu, tmp_path):
    one = kept(tmp_path / "1.json", {"vgg16 N1": (3.0, 1.0)})
    cases = [
        ({}, {"arch": "sm_80"}, "'sm_90' does not go with 'sm_80'"),
        ({"seed": 1}, {}, "seed is 1 in one run and 0 in another"),
        ({}, {"what": "bench shapes"}, "holds the results of `bench shapes`"),
    ]
    for asked, facts, told in cases:
        other = kept(tmp_path / "2.json", {"vgg16 N8": (3.0, 1.0)}, asked, **facts)
        done = call("networks", "--join", one, "--join", other, "--json", str(tmp_path / "all.json"))
        assert done.exit_code == 1 and told in " ".join(done.output.split()), done.output
    done = call("networks", "--join", kept(tmp_path / "2.json", {}), "--json", str(tmp_path / "all.json"))
    assert done.exit_code == 1 and "there is nothing to join" in done.output
    assert not (tmp_path / "all.json").exists()


def test_rows_that_are_not_there_are_told():
    """Who was measured in which settings, by the shorter list; who has no time, and why."""
    def entry(network, batch, *names):
        rows = [{**row("torch", ms=1.0), "name": name} for name in names]
        return {f"{network} N{batch}": {"network": network, "batch": batch, "rows": rows,
                                        "verdict": networks.verdict(rows)}}  # fmt: skip

    both = "PyTorch NCHW", "PyTorch NHWC"
    found = {"settings": entry("vgg16", 8, *both, "PyTorch compile NHWC", "PyTorch max-autotune NCHW")
             | entry("unet", 128, *both[:1], "PyTorch compile NHWC") | entry("vgg16", 1, *both[:1])}  # fmt: skip
    found["settings"]["vgg16 N8"]["rows"][3]["status"] = "not ready"
    lines = {name: where for name, *where in networks.presence(found)}
    assert list(lines) == [networks.shown_as(who) for who in networks.WHO]
    assert lines["PyTorch"] == ["all", "vgg16 N8"] and lines["ours"] == ["none", "none"]
    assert lines["PyTorch compile"] == ["none", "all but vgg16 N1"]
    found["settings"] |= entry("vgg16", 32, *both[:1]) | entry("densenet121", 1, *both[:1])
    lines = {name: where for name, *where in networks.presence(found)}
    assert lines["PyTorch compile"] == ["none", "vgg16 N8; unet N128"]
    found["settings"] |= entry("vgg16", 128, *both[:1])
    for name in ("vgg16 N1", "vgg16 N8"):
        del found["settings"][name]["rows"][0]
    lines = {name: where for name, *where in networks.presence(found)}
    assert lines["PyTorch"] == ["all but vgg16 N1, N8", "vgg16 N8"]
    told = list(networks.missing(found))
    assert "vgg16 N8: PyTorch max-autotune NCHW has no time (not ready)." in told
    assert told[0].startswith("Not measured: resnet18 N1, N8, N32, N128; resnet34 N1,")
    assert told[0].endswith("; densenet121 N8, N32, N128; vit_b_16 N1, N8, N32, N128; unet N1, N8, N32; "
                            "vae_decoder N1, N8, N32, N128.")  # fmt: skip
    found["settings"] |= dict.fromkeys(networks.Asked().settings(), found["settings"]["unet N128"])
    assert not any(line.startswith("Not measured") for line in networks.missing(found))


def test_networks_without_torch_compile_are_told():
    """In the documents' table of speed-ups."""
    def entry(batch, *names):
        rows = [row("ours", ms=1.0), *({**row("torch", ms=2.0), "name": name} for name in names)]
        return {"network": "unet", "batch": batch, "rows": rows, "verdict": networks.verdict(rows)}

    found = {**FACTS, "settings": {f"unet N{batch}": entry(batch, "PyTorch NCHW") for batch in (32, 8)}}
    told = "Without `torch.compile`, which was not measured there (N: images): unet N8, N32."
    assert told in list(readme.speedups(found))
    for batch in (8, 32):
        found["settings"][f"unet N{batch}"] = entry(batch, "PyTorch NCHW", "PyTorch compile, layout kept NCHW")
    assert not any("Without" in line for line in readme.speedups(found))


@pytest.mark.parametrize("rows, told", [
    ([row("torch", ms=1.0), row("ours", "out of memory")], "No time of ours: vgg16 N128."),
    ([row("torch", "out of memory"), row("ours", ms=1.0)], "No time of PyTorch: vgg16 N128."),
])  # fmt: skip
def test_settings_without_a_time_are_told(rows, told):
    """And are no row of the documents' table."""
    entry = {"network": "vgg16", "batch": 128, "rows": rows, "verdict": networks.verdict(rows)}
    found = {**FACTS, "settings": {"vgg16 N128": entry}}
    assert told in networks.missing(found) and told in readme.whole(found)
    assert not any(line.startswith("| vgg16") for line in readme.whole(found))
