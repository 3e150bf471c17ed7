"""The site that `make docs` builds: whole, no dead link, nothing from a network."""

from __future__ import annotations

import re
import subprocess
import sys
import urllib.parse
from html.parser import HTMLParser
from pathlib import Path

import pytest

from docs import made
from tests.docs.pages import ROOT


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
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
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
