"""The extension for VS Code agrees with what it shows: snippets assemble, its matcher reads what commands print."""

from __future__ import annotations

import json
import re
import shutil
import subprocess

import pytest
from click.testing import CliRunner

import turingas
from tests.docs.pages import ROOT
from turingas.cli import main
from turingas.editor.server import Server
from turingas.source.lexer import SassLexer

FOLDER = ROOT / "editors" / "vscode"
MANIFEST = json.loads((FOLDER / "package.json").read_text())["contributes"]
SNIPPETS = json.loads((FOLDER / "snippets" / "nvsass.json").read_text())


def test_language_is_the_lexers():
    [language] = MANIFEST["languages"]
    assert language["id"] in SassLexer.aliases
    assert "extensions" not in language  # style sheets have the suffix, too
    first = re.compile(language["firstLine"])
    assert first.search("--:-:0:-:1   S2R R0, SR_TID.X;") and first.search(".kernel copy")
    assert not first.search("body") and not first.search(".kernel") and not first.search("a:hover")


@pytest.mark.parametrize("name", SNIPPETS)
def test_snippets_assemble(name):
    """With what stands in their gaps to begin with."""
    text = re.sub(r"\$\{\d+:(.*?)\}(?=[^}]|$)", r"\1", "\n".join(SNIPPETS[name]["body"]), flags=re.M)
    text = re.sub(r"\$0", "", text)
    assert "$" not in text
    if name != "Kernel":
        text += "\n--:-:-:Y:5   EXIT;\n"
    assert turingas.assemble(text, "sm_80")


def test_matcher_reads_what_commands_print(tmp_path):
    [pattern] = MANIFEST["problemPatterns"]
    source = tmp_path / "k.sass"
    runner = CliRunner()
    for text, command, wanted in (
        ("--:-:-:-:1   FOO R1;\n", ["assemble"], ("1", "14", "error", "unknown instruction 'FOO'")),
        ("--:-:0:-:1   S2R R0, SR_TID.X;\n--:-:-:-:1   MOV R1, R0;\n--:-:-:Y:5   EXIT;\n", ["lint"],
         ("2", None, "error", "R0 is read while S2R may still have to write it [raw]")),
    ):  # fmt: skip
        source.write_text(text)
        printed = runner.invoke(main, [*command, str(source)]).output
        found = [match for line in printed.splitlines() if (match := re.search(pattern["regexp"], line))]
        names = ("line", "column", "severity", "message")
        assert wanted in [tuple(match[pattern[one]] for one in names) for match in found]
        assert {match[pattern["file"]] for match in found} == {str(source)}


def test_settings_are_those_of_the_server():
    from turingas.editor.analysis import Settings

    names = {name.removeprefix("turingas.") for name in MANIFEST["configuration"]["properties"]}
    given = {"arch": "sm_90", "include": ["a"], "define": {"N": 1}, "allowPython": True, "inlayHints": False}
    assert names - set(given) == {"command", "detect"}
    server = Server(Settings())
    server.configure(given)
    now = server.settings
    assert (now.arch, now.include, now.defines, now.python, server.hints) == ("sm_90", ("a",), {"N": 1}, True, False)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed")
def test_make_vscode():
    """Its own tests, and the package."""
    done = subprocess.run(["make", "vscode"], cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (ROOT / "build" / "turingas.vsix").stat().st_size > 50_000
