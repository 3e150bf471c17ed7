"""The pages of docs/ taken apart: listings, files, commands, transcripts.

What a page promises by how a listing is fenced, and the tests hold it to:

* ``` (no language): commands, one a line, that a reader can give as they stand.
* ```console: a transcript. Lines that begin with `$ ` are commands, the others are what they print; `...` stands for
  any text. A command that fails is followed by `$ echo $?`.
* any other, behind a line that ends with a path in backquotes and a colon: that file. If the repository has it, the
  listing is part of it, word for word; else the reader is told to write it, and later commands find it.
* ```nvsass without such a line: a whole source, which assembles and has no error of the linter.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from glob import glob
from pathlib import Path

from click.testing import CliRunner

from turingas.cli import main

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
FENCE = re.compile(r"(?:^(?:[^\n]*\s)?`([\w./-]+\.(?:sass|cu|ptx|py))`:\n\n)?^```(\w*)\n(.*?)^```$", re.M | re.S)
SHELL = re.compile(r"[|<>&;`]|\$\(")


def name(page: Path) -> str:
    """What a page is called in the names of tests."""
    return page.relative_to(DOCS).as_posix()


@dataclass(frozen=True)
class Listing:
    file: str  # which the text names before it, or ""
    language: str
    text: str


def listings(page: Path) -> list[Listing]:
    return [Listing(*found) for found in FENCE.findall(page.read_text())]


def files(page: Path) -> dict[str, str]:
    """What the reader is told to write."""
    return {one.file: one.text for one in listings(page) if one.file and not (ROOT / one.file).exists()}


def commands(page: Path) -> list[str]:
    """The lines of the listings that are commands alone."""
    lines = [line for one in listings(page) if one.language == "" for line in one.text.splitlines()]
    return [line for line in lines if line.strip()]


@dataclass
class Step:
    command: str
    prints: str = ""


def transcripts(page: Path) -> list[Step]:
    steps: list[Step] = []
    for one in listings(page):
        if one.language == "console":
            assert one.text.startswith("$ "), one.text
            for line in one.text.splitlines():
                if line.startswith("$ "):
                    steps.append(Step(line[2:]))
                else:
                    steps[-1].prints += line + "\n"
    return steps


def matches(wanted: str, found: str) -> bool:
    """Whether the text is what the page says, where `...` is any text, and a line of `...` any lines."""

    def tidy(text: str) -> str:
        return "\n".join(line.rstrip() for line in text.strip("\n").splitlines())

    pattern = re.escape(tidy(wanted)).replace(re.escape("..."), ".*?")
    return re.fullmatch(pattern, tidy(found), re.S) is not None


class Desk:
    """What a reader has who stands in the checkout: kernels and examples, and what the page tells to write."""

    def __init__(self, folder: Path, page: Path) -> None:
        self.folder = folder
        for part in ("kernels_sass", "examples"):
            shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "Makefile", folder)
        for path, text in files(page).items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text)
        (folder / "bin").mkdir()
        for program, module in (("turingas", " -m turingas"), ("python", "")):  # a link would leave its environment
            path = folder / "bin" / program
            path.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)}{module} "$@"\n')
            path.chmod(0o755)
        self.code = 0

    def run(self, command: str, timeout: float = 120) -> str:
        """What the command prints, stdout and stderr; ``code`` is its exit code."""
        if command == "echo $?":
            printed, self.code = f"{self.code}\n", 0
            return printed
        if command.startswith("turingas ") and not SHELL.search(re.sub(r"'[^']*'", "", command)):
            words = [file for word in shlex.split(command, comments=True)[1:] for file in self._expand(word)]
            if words[0] == "validate" and "--device" not in words:
                words += ["--device", "cpu"]  # which is what it takes where there is no GPU
            before, path = os.getcwd(), list(sys.path)
            os.chdir(self.folder)
            try:
                result = CliRunner().invoke(main, words)
            finally:
                os.chdir(before)
                sys.path[:] = path  # the program adds folders of this desk
            self.code = result.exit_code
            broken = result.exception if not isinstance(result.exception, (SystemExit, type(None))) else ""
            return f"{result.output}{broken!r}" if broken else result.output
        programs = f"{self.folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
        environment = {**os.environ, "PATH": programs, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            ["bash", "-c", command], cwd=self.folder, env=environment, timeout=timeout, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        self.code = done.returncode
        return done.stdout

    def _expand(self, word: str) -> list[str]:
        return sorted(glob(word, root_dir=self.folder)) or [word] if re.search(r"\*\.\w+$", word) else [word]
