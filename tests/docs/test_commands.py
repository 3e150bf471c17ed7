"""What the pages tell a reader to type works, and prints what they say it prints.

Run, each page in a fresh folder: all transcripts, and all commands that neither need a GPU nor take minutes. Of the
others it is held that they parse: the command, its options and their values exist.

* needs a GPU: `turingas bench` without --show, `python -m kernels_sass...measure`
* takes minutes: what stands in ``MINUTES``
* make: the target exists; what `make try` does is run by tests/test_docs.py, `make test` is what runs this
* a form, `turingas lint FILE ... [--json]`: the options exist; docs/command-line.md has all of them but for bench
"""

from __future__ import annotations

import importlib.util
import re
import shlex
import subprocess
import sys

import click
import pytest

import turingas
from loader import nvrtc
from tests.docs.pages import DOCS, PAGES, ROOT, Desk, Step, commands, listings, matches, name, transcripts
from tests.tools import nvdisasm
from turingas.cli import main
from turingas.cli.bench import benches

MINUTES = ("--layer ",)  # on the CPU device
FORM = re.compile(r"\b(FOLDER|FILE|KERNEL|MNEMONIC|NAME)\b(?!=)")
TARGETS = set(re.findall(r"^(\S+):", (ROOT / "Makefile").read_text(), re.M))
SAID_OF_OTHERS = ("turingas.main",)  # the original TuringAs
EXTRAS = re.findall(r"^(\w+) = \[", (ROOT / "pyproject.toml").read_text().partition("optional-dependencies]")[2], re.M)


def having(what):
    return pytest.mark.parametrize("page", [page for page in PAGES if what(page)], ids=name)


def click_command(words):
    """The click command of a line and what is left of its words."""
    command, words = main.commands[words[0]], words[1:]
    while isinstance(command, click.Group):
        command, words = command.get_command(click.Context(command), words[0]), words[1:]
    return command, words


def options_exist(words, all_of_them):
    """The options of a form are those of the command; where commands are listed, all of them."""
    command, rest = click_command(words)
    options = [[*p.opts, *p.secondary_opts] for p in command.params if isinstance(p, click.Option)]
    told = {word for word in rest if re.match(r"--?[a-zA-Z]", word)}
    assert told <= {spelling for option in options for spelling in option}, words
    missing = [option for option in options if not told & set(option)]
    assert not all_of_them or not missing, (words, missing)


def parses(words, desk, monkeypatch):
    command, rest = click_command(words)
    monkeypatch.chdir(desk.folder)
    command.make_context("turingas", list(rest), ignore_unknown_options=False)


@pytest.mark.sample(18)
@having(commands)
def test_commands(page, tmp_path, monkeypatch):
    desk = Desk(tmp_path, page)
    (tmp_path / "docs").symlink_to(DOCS)
    for line in commands(page):
        program, *words = shlex.split(line, comments=True)
        if program == "turingas":
            if FORM.search(line):
                form = shlex.split(re.sub(r"\[|\]|\.\.\.", " ", line))[1:]
                options_exist(form, page.name == "command-line.md" and "[" in line and words[0] != "bench")
            elif words[0] == "bench" and "--show" not in words or any(slow in line for slow in MINUTES):
                parses(words, desk, monkeypatch)
            else:
                printed = desk.run(line)
                assert desk.code == 0, (line, printed)
        elif program == "make":
            assert set(words) <= TARGETS, line
        elif program == "pip":
            assert words[0] == "install" and set(re.findall(r"\[(\w+)\]", line)) <= set(EXTRAS), line
        elif program == "python" and words[0] == "-m" and words[1].startswith(("kernels_sass", "tests")):
            asked = [sys.executable, *words[:2], "--help"]
            text = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60).stdout
            assert {word for word in words[2:] if word.startswith("--")} <= set(re.findall(r"--\w+", text)), line
        elif program in ("python", "sed", "eval") or "_TURINGAS_COMPLETE" in program:
            printed = desk.run(line)
            assert desk.code == 0, (line, printed)
        else:
            pytest.fail(f"no test knows what to do with this line: {line}")


def in_text(page):
    """Commands in the middle of a sentence."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.M | re.S)
    return [" ".join(found.split()) for found in re.findall(r"`((?:turingas|make|python -m) [^`]+)`", text)]


@having(in_text)
def test_commands_in_the_text(page):
    """They exist, with their options; they are often forms and not whole."""
    for line in in_text(page):
        program, *words = line.split()
        if program == "make":
            assert words[0] in TARGETS, line
        elif program == "python":
            assert words[1] in SAID_OF_OTHERS or importlib.util.find_spec(words[1]), line
        elif words[0].islower() and words[0] in main.commands:
            command, rest = main.commands[words[0]], words[1:]
            while isinstance(command, click.Group) and rest and rest[0] in command.list_commands(None):
                command, rest = command.get_command(None, rest[0]), rest[1:]
            options = [p for p in command.params if isinstance(p, click.Option)]
            known = {"--help", *(spelling for p in options for spelling in p.opts + p.secondary_opts)}
            assert {word for word in rest if re.match(r"--[a-z]", word)} <= known, line
        else:
            assert words[0] in ("COMMAND", "--help"), line


@pytest.mark.sample(12)
@having(transcripts)
def test_transcripts(page, tmp_path):
    desk, steps = Desk(tmp_path, page), transcripts(page)
    for step, following in zip(steps, [*steps[1:], Step("")]):
        printed = desk.run(step.command)
        assert matches(step.prints, printed), f"{step.command}\nprints\n{printed}\nand not\n{step.prints}"
        assert desk.code == 0 or following.command == "echo $?", f"{step.command} has the exit code {desk.code}"


@having(listings)
def test_listings(page):
    """Parts of files are that; what is CUDA C++ compiles, what is Python does; SASS assembles and is free of errors."""
    for one in listings(page):
        if one.file and (ROOT / one.file).exists():
            parts = [part.strip("\n") for part in re.split(r"^ *\.\.\.$", one.text, flags=re.M)]
            text = (ROOT / one.file).read_text()
            for part in parts:
                assert part in text, f"{one.file} does not have\n{part}"
                text = text[text.index(part) + len(part) :]
        elif one.language == "cuda":
            nvrtc.compile(one.text, "sm_75", name=one.file or "listing.cu")
        elif one.language == "python":
            compile(one.text, name(page), "exec")
        elif one.language == "nvsass":
            ending = "" if "EXIT" in one.text else "--:-:-:Y:5   EXIT;"  # where it is names alone
            cubin = turingas.assemble(one.text + ending, arch="sm_75")
            if page.name != "linter.md":  # which shows what is wrong
                assert [str(finding) for finding in turingas.lint(cubin) if finding.severity == "error"] == []


def test_the_command_line_names_every_command():
    """The lines at the top of docs/command-line.md."""
    lines = (DOCS / "command-line.md").read_text().split("```")[1].splitlines()
    said = {" ".join(line.split()[1 : 3 if line.startswith("turingas bench") else 2]) for line in lines if line}
    assert said == {*main.commands} - {"bench"} | {f"bench {name}" for name in benches()}


RUN = ["adding-a-kernel.md", "adding-an-architecture.md", "adding-an-instruction.md", "conv2d.md", "emulator.md"]


@pytest.mark.parametrize("page", RUN)
def test_python(page, tmp_path):
    """Listings of Python that need no GPU run, one after the other, where the page's files and cubins are."""
    if page == "adding-an-instruction.md" and nvdisasm.program_path("sm_75") is None:
        pytest.skip("nvdisasm is not installed")
    desk = Desk(tmp_path, DOCS / page)
    for line in commands(DOCS / page):
        if line.startswith("turingas assemble "):
            desk.run(line)
    listed = [one.text for one in listings(DOCS / page) if one.language == "python" and not one.file]
    assert listed
    prelude = "from turingas.isa.arch import ALL\n"  # rows of the table use it
    text = prelude + "\n".join(listed).replace("range(128)", "range(72, 74)")  # nvdisasm takes 0.5 s for each
    (tmp_path / "listings.py").write_text(text)
    printed = desk.run("python listings.py")
    assert desk.code == 0, printed


def test_matches():
    assert matches("a ... c\n...\ne\n", "a b c\nx\ny\ne\n") and not matches("a ... c\n", "a b c\nd\n")


def test_fences_have_languages_that_pages_know():
    known = {"", "console", "text", "nvsass", "python", "cuda", "ptx", "sass", "json", "yaml", "lua", "elisp"}
    assert {one.language for page in PAGES for one in listings(page)} <= known
