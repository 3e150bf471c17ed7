"""``turingas isa --diff``."""

from __future__ import annotations

import json

from click.testing import CliRunner

from turingas.cli import main
from turingas.isa.compare import changes


def run(*words: str) -> str:
    result = CliRunner().invoke(main, ["isa", *words])
    assert result.exit_code == 0, result.output
    return result.output


def test_what_went_and_what_came():
    found = {change.mnemonic: change for change in changes("sm_90", "sm_100")}
    assert not found["HGMMA"].there and not found["LDTM"].here and "LDS" not in found
    gone, new = (any("c[][]" in line for line in lines) for lines in (found["FFMA"].gone, found["FFMA"].new))
    assert gone and not new
    back = {change.mnemonic: change for change in changes("sm_100", "sm_90")}
    assert set(back) == set(found)
    for name, change in found.items():
        other = back[name]
        assert (change.gone, change.new, change.here) == (other.new, other.gone, other.there)


def test_as_text():
    text = run("--diff", "90", "sm_100")
    assert "sm_90 has, sm_100 has not" in text and "  HGMMA  " in text and "  - " not in text
    assert "  - FFMA" in run("FFMA", "--diff", "sm_90", "sm_100")
    assert run("--diff", "sm_100", "sm_100a") == "the same on sm_100 and sm_100a\n"
    assert run("lds", "--diff", "sm_90", "sm_100") == "the same on sm_90 and sm_100\n"


def test_as_json():
    found = json.loads(run("LDCU", "--diff", "sm_90", "sm_120", "--json"))
    [change] = found["changes"]
    assert (found["first"], found["second"], change["mnemonic"], change["here"]) == ("sm_90", "sm_120", "LDCU", False)


def test_what_there_is_not():
    for words in (["XYZ", "--diff", "sm_90", "sm_100"], ["--diff", "sm_90", "sm_10"]):
        result = CliRunner().invoke(main, ["isa", *words])
        assert result.exit_code and ("XYZ" in result.output or "sm_10" in result.output), result.output
