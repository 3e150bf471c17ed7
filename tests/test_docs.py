"""The documents say what is so: links, the pages of the reference. test_readme.py has README, tests/docs the rest."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import turingas
from docs import made
from tests.cubin import cubins
from turingas.isa import control
from turingas.isa.arch import DISTINCT as NAMES
from turingas.isa.isa import instruction_set

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
PAGES = [README, *sorted((ROOT / "docs").rglob("*.md"))]
MADE = {(ROOT / "docs" / place).resolve() for place in (*made.pages(), *made.drawings())}


def test_reference_has_every_instruction():
    """Each mnemonic once, with all architectures that have it, and what differs there."""
    text = made.pages()["reference/instructions.md"]()
    entries = dict(re.findall(r"^### (\w+)$(.*?)(?=^##)", text + "\n##", re.M | re.S))
    assert len(entries) == len(re.findall("^### ", text, re.M))
    for arch in NAMES:
        have = {name for name, entry in entries.items() if re.search(rf"\b{arch}\b[^<]*(?::$|</summary>)", entry, re.M)}
        assert have == set(instruction_set(arch).mnemonics())


def test_reference_tells_what_differs():
    text = made.pages()["reference/instructions.md"]()
    entry = re.search(r"### HMMA\n.*?(?=\n### )", text, re.S)[0]
    title = "<summary>On sm_75: what differs from sm_80<"
    [turing] = [part for part in entry.split("<details>") if part.startswith(title)]
    assert "+ HMMA.884" in turing and "- HMMA.16816.F32" in turing
    table = made.pages()["reference/architectures.md"]()
    blackwell = re.search(r"## sm_100\n.*?(?=\n## )", table, re.S)[0]
    whats = ("new", "gone", "written or .*")
    new, gone, other = (re.search(rf"^\* {what}: (.*)$", blackwell, re.M)[1] for what in whats)
    assert "[FFMA2](instructions.md#ffma2)" in new and "[ULDC](" in gone and "[LDG](" in other


@pytest.mark.sample(5)
@pytest.mark.parametrize("arch", NAMES)
def test_every_instruction_is_described(arch):
    """No name of a field shows, and an operand that is written has its bits told."""
    isa = instruction_set(arch)
    for name in isa.mnemonics():
        text = isa.describe(name)
        assert text.startswith(f"{name} on {arch}"), text
        assert not re.search(r"\bR[abc]_[bc]\b|\bRdw\b|\bsimm\b|f16hi|<~?desc", text), text
    assert isa.describe("ffma.ftz") == isa.describe("FFMA")


def test_description_of_variants():
    text = instruction_set("sm_75").describe("FADD")
    assert "Rd, Ra, Rb|f32|c[][]|URb|cx[][]" in re.sub(r"Rc\b", "Rb", text.replace("URc", "URb"))
    assert "also on sm_70" in text and "31:24" in text


def test_hints_show_operands_as_they_are_written():
    with pytest.raises(turingas.AsmError) as caught:
        turingas.encode("--:-:-:-:2 FFMA R0, R1, P0, R2", "sm_75")
    assert "FFMA Rd, Ra, Rb, Rc|f32|c[][]" in caught.value.hint


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_try(tmp_path):
    """What `make try` runs, in a fresh folder."""
    run = subprocess.run(["make", "-n", "try"], cwd=ROOT, capture_output=True, text=True, check=True)
    steps = [line for line in run.stdout.splitlines() if "bin/turingas " in line or line.startswith("mkdir ")]
    assert len(steps) >= 3
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    program = f"PYTHONPATH={shlex.quote(str(ROOT))} {shlex.quote(sys.executable)} -m turingas "
    for step in steps:
        step = re.sub(r"\S*bin/turingas ", program, step)
        done = subprocess.run(step, shell=True, cwd=tmp_path, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, (step, done.stderr)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_and_paths(page):
    text = page.read_text()
    assert not re.search(r"(?<![\w.])/(?:work|opt|home|root|tmp)/", text)
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", re.sub(r"`[^`\n]+`", "", text)):
        place = (page.parent / target).resolve()
        assert place.exists() or place in MADE, target


NEVER = set(re.findall(r"`(\w+)`", next(
    line for line in (ROOT / "docs/control-codes.md").read_text().splitlines() if line.startswith("| never |")
)))  # fmt: skip


@pytest.mark.parametrize("path", cubins.STORED, ids=lambda path: path.stem)
def test_what_control_codes_says_of_compilers(path):
    for kernel in turingas.Cubin.from_file(path).texts:
        lines = turingas.decode(kernel.words, kernel.arch, control=False)
        for word, after, line in zip(kernel.words, [*kernel.words[1:], 0], lines):
            write, read = word >> control.WRITE & 7, word >> control.READ & 7
            waits = after >> control.WAIT & 63
            if any(n != control.NONE and waits >> n & 1 for n in (write, read)):
                assert word >> control.STALL & 15 != 1, line
            name = re.sub(r"^@\S+ ", "", line).split()[0].split(".")[0]
            assert name not in NEVER or write == control.NONE, line
