"""The site that `make docs` builds: whole, no dead link, nothing from a network."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
import urllib.parse
from html.parser import HTMLParser
from pathlib import Path

import pytest

from docs import made
from tests.browser import DESK, PHONE, browser, opened
from tests.docs.pages import ROOT
from turingas.isa.isa import instruction_set


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
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, env=environment)
    assert done.returncode == 0, done.stderr
    assert "SassLexer" not in done.stderr  # our lexer read every listing
    return folder


def test_site_has_every_page(site):
    pages = {path.relative_to(ROOT / "docs").with_suffix(".html") for path in (ROOT / "docs").rglob("*.md")}
    pages |= {Path(place).with_suffix(".html") for place in made.pages()}
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


def test_other_texts_have_no_dead_link(site):
    """Those outside of docs/, which people read in the repository; anchors in docs/ are those of the site."""
    for text in [ROOT / "README.md", *ROOT.glob("kernels_sass/*/README.md")]:
        for target, anchor in re.findall(r"\]\(([^)#:\s]*)(?:#([^)\s]*))?\)", text.read_text()):
            file = (text.parent / target).resolve() if target else text
            assert file.exists(), (text, target)
            if anchor and file.is_relative_to(ROOT / "docs"):
                page = site / file.relative_to(ROOT / "docs").with_suffix(".html")
                assert anchor in Page(page).names, (text, target, anchor)


def test_site_loads_nothing_from_a_network(site):
    for path in site.rglob("*.html"):
        assert not [target for target in Page(path).loads if "//" in target], path
    for path in [*site.rglob("*.css"), *site.rglob("*.svg")]:
        assert not re.search(r"(?:url\(|@import|href=|src=)\s*[\"']?(?:https?:)?//", path.read_text()), path


def test_search_index_has_the_mnemonics(site):
    """Each under its one anchor, as the page has it, and the short names first."""
    index = json.loads((site / "search" / "search_index.json").read_text())["docs"]
    found = {entry["location"]: entry for entry in index if entry["location"].startswith(made.MNEMONIC)}
    names = Page(site / "reference" / "instructions.html").names
    for name in {*instruction_set("sm_70").mnemonics(), *instruction_set("sm_90a").mnemonics()}:
        assert found[made.MNEMONIC + name.lower()]["title"] == name and name.lower() in names
    boost = {name: found[f"{made.MNEMONIC}{name}"]["boost"] for name in ("ldg", "ldgsts")}
    assert boost["ldg"] > boost["ldgsts"]
    script = (site / "search" / "search_index.js").read_text()  # what a page that is opened as a file loads
    assert json.loads(script.partition("=")[2]) == json.loads((site / "search" / "search_index.json").read_text())


@pytest.fixture(scope="module")
def chromium():
    with browser() as running:
        yield running


@pytest.mark.parametrize("size", [DESK, PHONE], ids=["desk", "phone"])
def test_search_in_files(site, chromium, size):
    """Typed in a page that is opened as a file: the first of the mnemonics is the one that was typed."""
    with opened(chromium, size) as window:
        page = window.open(site / "control-codes.html")
        page.keyboard.press("f")
        page.keyboard.type("LDG")
        first = page.wait_for_selector(".md-search-result__link[href*='#ldg']", state="attached")
        assert first.get_attribute("href").endswith("reference/instructions.html?h=ldg#ldg")
        assert not window.errors and not window.fetched


@pytest.mark.parametrize("share", ["drawn", pytest.param("all", marks=pytest.mark.slow)])
def test_pages_fit_a_phone(site, chromium, share):
    """None is wider than the screen, breaks a script or asks a network for something."""
    pages = sorted(set(site.rglob("*.html")) - {site / "404.html"})  # whose links are absolute
    if share == "drawn":
        pages = [site / "reference" / "instructions.html", *random.Random(22).sample(pages, 6)]
    with opened(chromium, PHONE) as window:
        for path in pages:
            window.open(path)
            assert window.too_wide() <= 0 and not window.errors and not window.fetched, path


def test_pages_are_dark_where_the_reader_has_it_dark(site, chromium):
    colours = set()
    for scheme in ("light", "dark"):
        with opened(chromium, scheme=scheme) as window:
            page = window.open(site / "index.html")
            colours.add(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert len(colours) == 2
