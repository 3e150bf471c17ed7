"""--json: what each command prints is what its schema says, member for member."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from jsonschema import Draft202012Validator, ValidationError

from docs.readme import members
from loader.bench import results
from turingas.cli import main
from turingas.cli.options import SCHEMAS
from turingas.cubin import fatbin

ROOT = Path(__file__).parent.parent
COPY = ROOT / "kernels_sass" / "learn" / "01_copy.sass"
LISTED = sorted(one.stem for one in SCHEMAS.glob("*.json"))
WAITS_NOT = "--:-:0:-:2 S2R R0, SR_TID.X;\n--:-:-:-:2 IADD3 R1, R0, 0x1, RZ;\n--:-:-:-:5 EXIT;\n"
BENCH = """\
import numpy as np
kernel, grid, block = "copy", 2, 32
def arguments(random):
    return [random.random(64, np.float32), np.zeros(64, np.float32)]
"""


def strict(schema: Any) -> Any:
    """A schema that allows no member that it does not name, so that none is left out of the documents."""
    if isinstance(schema, list):
        return [strict(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: strict(one) for key, one in schema.items()}
    if isinstance(schema.get("properties"), dict):
        made.setdefault("additionalProperties", False)
    return made


def schema(command: str) -> dict[str, Any]:
    return json.loads((SCHEMAS / f"{command}.json").read_text())


def valid(command: str, found: Any) -> Any:
    Draft202012Validator(strict(schema(command))).validate(found)
    return found


def printed(*words: object, code: int = 0) -> Any:
    """What a command prints, which is as its schema says."""
    done = CliRunner().invoke(main, [*map(str, words), "--json"])
    assert done.exit_code == code, done.output
    return valid(str(words[0]), json.loads(done.stdout))


@pytest.fixture(scope="module")
def cubin(tmp_path_factory):
    path = tmp_path_factory.mktemp("json") / "copy.cubin"
    found = printed("assemble", COPY, "-o", path)
    assert found["output"] == str(path) and path.exists() and found["arch"] == "sm_75"
    assert [one["name"] for one in found["kernels"][0]["parameters"]] == ["input", "output"]
    return path


# ---- the schemas -----------------------------------------------------------------------------------------------------


def test_every_command_has_one():
    with_json = {name for name, one in main.commands.items() if any("--json" in p.opts for p in one.params)}
    assert with_json == set(main.commands) - {"bench", "lsp", "report"} == set(LISTED) - {"bench"}


@pytest.mark.parametrize("name", LISTED)
def test_is_a_schema_that_is_printed_and_documented(name):
    Draft202012Validator.check_schema(schema(name))
    page = (ROOT / "docs" / "json.md").read_text()
    assert "\n".join(members(schema(name))) in page
    if name != "bench":
        done = CliRunner().invoke(main, [name, "--json-schema"])  # without the arguments that the command needs
        assert done.exit_code == 0 and json.loads(done.stdout) == schema(name)


def test_a_member_that_is_not_described_is_found(cubin):
    found = printed("info", cubin)
    with pytest.raises(ValidationError):
        valid("info", found | {"more": 1})
    with pytest.raises(ValidationError):
        valid("info", {"arch": found["arch"]})


# ---- the commands ----------------------------------------------------------------------------------------------------


def test_assemble_reports_errors_and_warnings(tmp_path):
    wrong = tmp_path / "wrong.sass"
    wrong.write_text("MOV R1 R2;\nFOO R1;\n")
    found = printed("assemble", wrong, code=1)
    assert [(one["line"], one["column"]) for one in found["errors"]] == [(1, 5), (2, 1)]
    assert found["errors"][1]["hint"] == "did you mean 'FLO'?" and found["output"] is None
    assert list(tmp_path.iterdir()) == [wrong]


def test_assemble_has_one_stdout():
    done = CliRunner().invoke(main, ["assemble", str(COPY), "-o", "-", "--json"])
    assert done.exit_code == 2 and "-o FILE" in done.output
    assert CliRunner().invoke(main, ["assemble", str(COPY), "-E", "--json"]).exit_code == 2


def test_info_and_disassemble(cubin):
    assert printed("info", cubin)["kernels"][0]["mix"]["S2R"] == 2
    (text,) = printed("disassemble", cubin)["texts"]
    assert text["instructions"][0]["text"].endswith("SR_TID.X")


def test_check_and_diff(cubin, tmp_path):
    assert printed("check", cubin) == [{"file": str(cubin), "differences": []}]
    assert printed("diff", cubin, COPY)["same"]
    slower = tmp_path / "slower.sass"
    text = CliRunner().invoke(main, ["disassemble", str(cubin)]).stdout
    slower.write_text(text.replace("--:-:0:-:1  S2R R0", "--:-:0:-:9  S2R R0", 1))
    found = printed("diff", cubin, slower, code=1)
    assert [one["how"] for one in found["functions"][0]["instructions"]] == ["~"]


def test_lint(tmp_path):
    wrong = tmp_path / "wrong.sass"
    wrong.write_text(WAITS_NOT)
    (run,) = printed("lint", wrong, code=1)["runs"]
    assert "raw" in {one["ruleId"] for one in run["results"]} or run["results"]


def test_run(cubin):
    found = printed("run", cubin, "f32[64]=random", "f32[64]", "--grid", 2, "--block", 32, "--counters")
    assert found["arrays"][1]["changed"] == 64 and found["counters"]
    assert printed("run", cubin, "f32[1]", "f32[64]", "--grid", 2, "--block", 32, code=1)["error"]


def test_schedule(tmp_path):
    source = tmp_path / "k.sass"
    source.write_text("S2R R0, SR_TID.X;\nIADD3 R1, R0, 0x1, RZ;\nEXIT;\n")
    assert "01:-:-:" in printed("schedule", source)["source"]
    found = printed("schedule", source, "-o", tmp_path / "out.sass")
    assert found["source"] is None and "01:-:-:" in Path(found["output"]).read_text()


def test_extract(cubin, tmp_path, monkeypatch):
    monkeypatch.setattr(fatbin, "cubins", lambda file, archs: iter([(1, "sm_75", cubin.read_bytes())]))
    (one,) = printed("extract", cubin, "-o", tmp_path)["cubins"]
    assert Path(one["path"]).read_bytes() == cubin.read_bytes() and one["bytes"] == cubin.stat().st_size


def test_isa():
    assert {"FFMA", "SHFL"} < {one["mnemonic"] for one in printed("isa")["mnemonics"]}
    assert all(one["example"] for one in printed("isa")["mnemonics"])
    assert [one["mnemonic"] for one in printed("isa", "-k", "shared atomic")["mnemonics"]] == ["ATOMS"]
    assert printed("isa", "SHFL", "--arch", "sm_80")["forms"]
    assert printed("isa", "FFMA", "--diff", "sm_90", "sm_100")["changes"]


def test_kernels_and_validate(tmp_path):
    assert "winograd.sass" in {one["name"] for one in printed("kernels")["kernels"]}
    (found,) = printed("validate", "winograd.sass", "--arch", "sm_80", "--shape", "1,8,8,8,64", "--device", "cpu")
    assert found["ok"]


def test_tune(cubin, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("bench.py").write_text(BENCH)
    words = "--bench bench.py --device cpu --workers 1 --rounds 1 --json found.json".split()
    done = CliRunner().invoke(main, ["tune", str(cubin), *words])
    assert done.exit_code == 0, done.output
    valid("tune", json.loads(Path("found.json").read_text()))


@pytest.mark.parametrize("path", sorted(results.FOLDER.glob("*.json")), ids=lambda path: path.stem)
def test_results_of_benchmarks(path):
    """Their own members aside."""
    found = json.loads(path.read_text())
    if "what" in found:  # else the tests on a GPU write it
        Draft202012Validator(schema("bench")).validate(found)


# ---- isa -k ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("words, first", [
    ("warp shuffle", "SHFL"), ("ftz fp32", "FFMA"), ("mma.sync", "HMMA"), ("ATOMS", "ATOMS"), ("__shfl", "SHFL"),
])  # fmt: skip
def test_search(words, first):
    done = CliRunner().invoke(main, ["isa", "-k", words, "--arch", "sm_90"])
    assert done.exit_code == 0
    heads = [line.split()[0] for line in done.output.splitlines() if line[0] != " "]
    assert first in heads
    assert len(done.output.splitlines()) == 2 * len(heads)  # an example for each


def test_search_finds_nothing():
    done = CliRunner().invoke(main, ["isa", "-k", "no such words"])
    assert done.exit_code == 1 and "no such words" in done.output
    assert CliRunner().invoke(main, ["isa", "FFMA", "-k", "shared"]).exit_code == 2
