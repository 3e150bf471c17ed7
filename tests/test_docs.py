"""The documents say what is so: listings assemble, commands exist, pages of the reference are what the table says."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
import urllib.parse
from html.parser import HTMLParser
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import turingas
from docs import reference
from tests.cubin import cubins
from turingas.cli import main
from turingas.isa import control, forms
from turingas.isa.arch import NAMES

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
PAGES = [README, *sorted((ROOT / "docs").glob("*.md"))]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)


def fences(page: Path, *languages: str) -> list[str]:
    return [text for language, text in FENCE.findall(page.read_text()) if language in languages]


def commands(page: Path, program: str) -> list[str]:
    """The lines of a page's listings that call program."""
    lines = [line for text in fences(page, "", "sh", "bash") for line in text.splitlines()]
    return [line for line in lines if line.startswith(program + " ")]


@pytest.mark.parametrize("arch", NAMES)
def test_reference_is_up_to_date(arch):
    committed = (reference.FOLDER / f"{arch}.md").read_text()
    assert committed == reference.page(arch), "the table has changed: run `make reference`"


def test_reference_has_every_instruction():
    for arch in NAMES:
        text = (reference.FOLDER / f"{arch}.md").read_text()
        assert sorted(re.findall(r"^### (\w+)$", text, re.M)) == forms.isa(arch).mnemonics()
    assert sum(path.stat().st_size for path in reference.FOLDER.iterdir()) < 3_000_000


@pytest.mark.parametrize("arch", NAMES)
def test_every_instruction_is_described(arch):
    """No name of a field shows, and an operand that is written has its bits told."""
    isa = forms.isa(arch)
    for name in isa.mnemonics():
        text = isa.describe(name)
        assert text.startswith(f"{name} on {arch}"), text
        assert not re.search(r"\bR[abc]_[bc]\b|\bRdw\b|\bsimm\b|f16hi|<~?desc", text), text
    assert isa.describe("ffma.ftz") == isa.describe("FFMA")


def test_description_of_variants():
    text = forms.isa("sm_75").describe("FADD")
    assert "Rd, Ra, Rb|f32|c[][]|URb|cx[][]" in re.sub(r"Rc\b", "Rb", text.replace("URc", "URb"))
    assert "also on sm_70" in text and "31:24" in text


def test_hints_show_operands_as_they_are_written():
    with pytest.raises(turingas.AsmError) as caught:
        turingas.encode("--:-:-:-:2 FFMA R0, R1, P0, R2", "sm_75")
    assert "FFMA Rd, Ra, Rb, Rc|f32|c[][]" in caught.value.hint


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_listings_assemble(page):
    for source in fences(page, "nvsass"):
        cubin = turingas.assemble(source, arch="sm_75")
        assert cubin.to_bytes()
        if page.name != "linter.md":  # which shows what is wrong
            assert [str(finding) for finding in turingas.lint(cubin) if finding.severity == "error"] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_exist(page):
    for line in commands(page, "turingas"):
        words = shlex.split(re.sub(r"\[|\]|\.\.\.", " ", line), comments=True)
        command = main.commands[words[1]]
        if isinstance(command, click.Group):
            command = command.commands[words[2]]
        options = [p for p in command.params if isinstance(p, click.Option)]
        known = {option for p in options for option in [*p.opts, *p.secondary_opts]}
        assert {word for word in words if re.match(r"--?\w", word)} <= known, line
        if words[1] == "isa" and "[" not in line:
            assert CliRunner().invoke(main, words[1:]).exit_code == 0, line
    targets = re.findall(r"^(\S+):", (ROOT / "Makefile").read_text(), re.M)
    for line in commands(page, "make"):
        assert set(shlex.split(line, comments=True)[1:]) <= set(targets), line


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


def test_python_of_the_readme(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("store.sass").write_text(fences(README, "nvsass")[0])
    lines = fences(README, "python")[0].splitlines()
    assert [line for line in lines if "EXIT" in line] == [
        "turingas.decode([0x000FEA0003800000000000000000794D], arch=\"sm_75\")         # ['--:-:-:-:5  EXIT']"
    ]
    assert turingas.decode([0x000FEA0003800000000000000000794D], arch="sm_75") == ["--:-:-:-:5  EXIT"]
    exec("\n".join(lines), {})


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_and_paths(page):
    text = page.read_text()
    assert not re.search(r"(?<![\w.])/(?:work|opt|home|root|tmp)/", text)
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
        assert (page.parent / target).exists(), target


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


class Page(HTMLParser):
    """What a page of the site links to, what it loads, and what can be linked to in it."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.loads: set[str] = set()
        self.names: set[str] = set()
        self.feed(path.read_text())

    def handle_starttag(self, tag, attributes):
        has = dict(attributes)
        self.names.update(has[name] for name in ("id", "name") if has.get(name))
        if tag == "a" and has.get("href"):
            self.links.add(has["href"])
        elif tag == "link" and has.get("href"):
            self.loads.add(has["href"])
        elif has.get("src"):
            self.loads.add(has["src"])


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site as `make docs` builds it: a warning is an error."""
    folder = tmp_path_factory.mktemp("site") / "site"
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "SassLexer" not in done.stderr  # our lexer read every listing
    return folder


def test_site_has_every_page(site):
    pages = {path.relative_to(ROOT / "docs").with_suffix(".html") for path in (ROOT / "docs").rglob("*.md")}
    assert pages <= {path.relative_to(site) for path in site.rglob("*.html")}
    navigation = Page(site / "index.html").links  # each page has the whole navigation
    assert {path.as_posix() for path in pages} <= navigation | {"index.html"}


def test_site_has_no_dead_link(site):
    """Pages, pictures and anchors that the HTML names, raw HTML included, which mkdocs does not look at."""
    pages = {path: Page(path) for path in site.rglob("*.html") if path.name != "404.html"}  # whose links are absolute
    dead = []
    for path, page in pages.items():
        for target in page.links | page.loads:
            address = urllib.parse.urlsplit(target)
            if address.scheme or address.netloc:
                continue
            file = (path.parent / urllib.parse.unquote(address.path)).resolve() if address.path else path
            if not file.is_file() or address.fragment and address.fragment not in pages[file].names:
                dead.append((path.relative_to(site).as_posix(), target))
    assert not dead


def test_site_loads_nothing_from_a_network(site):
    for path in site.rglob("*.html"):
        assert not [target for target in Page(path).loads if "//" in target], path
    for path in [*site.rglob("*.css"), *site.rglob("*.svg")]:
        assert not re.search(r"(?:url\(|@import|href=|src=)\s*[\"']?(?:https?:)?//", path.read_text()), path
