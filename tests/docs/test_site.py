"""The site that `make docs` builds: whole, no dead link, nothing from a network; and the page to try kernels on."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
import threading
import urllib.parse
from functools import partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

import turingas
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
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=400, env=environment)
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


# -- the page to try kernels on

needs_pyodide = pytest.mark.skipif(not made.PYODIDE.exists(), reason="Pyodide is not there: make pyodide, by npm")
WORDS = "[...document.querySelectorAll('#try-words tr[data-line] td:last-child')].map(one => one.textContent)"


@pytest.fixture(scope="module")
def served(site):
    """The address of the site behind a server of its own, since browsers load no workers from files."""

    class Handler(SimpleHTTPRequestHandler):
        def log_message(self, *said: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(site))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/try.html"
        server.shutdown()


@pytest.fixture(scope="module")
def trying(served, chromium):
    """The page, when it has looked at its first example."""
    with opened(chromium) as window:
        window.open(served)
        window.page.set_default_timeout(60_000)
        window.page.wait_for_selector("#try-words tr[data-line]")
        yield window
        assert not window.errors and not window.fetched


def said(page, text):
    """Waits until the line about the whole says this."""
    page.wait_for_function("text => document.getElementById('try-said').innerText.includes(text)", arg=text)


def words_of(source, arch, **options):
    folder = [made.ROOT / "kernels_sass" / "learn"]
    cubin = turingas.assemble(source, arch, include=folder, filename="x", **options)
    return [f"{word:032x}" for kernel in cubin.texts for word in kernel.words]


LATE = "--:-:-:-:1   IADD3 R2, R1, 0x1, RZ;\n--:-:-:-:4   IADD3 R3, R2, 0x1, RZ;\n--:-:-:Y:5   EXIT;\n"


@needs_pyodide
def test_try_a_kernel(trying):
    """An example, an edit with a finding, what is told of a word, the scheduler, a mistake, a loop without end."""
    page = trying.page
    copy = (ROOT / "examples" / "copy.sass").read_text()
    assert page.input_value("#try-source") == copy
    assert page.evaluate(WORDS) == words_of(copy, page.input_value("#try-arch"))
    page.select_option("#try-arch", "sm_75")
    said(page, "sm_75, ")
    page.fill("#try-source", LATE)
    page.wait_for_selector("#try-findings .error a[href='linter.html#raw-stall']")
    assert page.inner_text("#try-findings .error a >> nth=0") == "line 2"
    assert page.inner_text("#try-shown .error").strip() == "--:-:-:-:4"
    assert page.evaluate(WORDS) == words_of(LATE, "sm_75")
    page.click("#try-source", position={"x": 200, "y": 200})  # behind the text, whose last line is empty
    page.wait_for_function("document.getElementById('try-told').innerText.includes('EXIT: ends the thread')")
    page.click("#try-anew")
    page.wait_for_selector("#try-findings .error", state="detached")
    assert page.input_value("#try-source") == turingas_schedule(LATE)
    page.fill("#try-source", "EXIT\nFFMMA R0, R1, R2, R3;\n")
    said(page, "not assembled")
    assert "did you mean" in page.inner_text("#try-findings .error")
    page.fill("#try-source", "<code>\nwhile True: pass\n</code>\n")
    page.wait_for_function("document.getElementById('try-findings').innerText.includes('more than 3,000,000 steps')")


def turingas_schedule(source):
    from turingas.assembler.schedule import listing

    return listing(source, "sm_75", keep=False)[0]


@needs_pyodide
@pytest.mark.slow
def test_try_a_link(trying, served, chromium):
    """The link holds the source and the architecture; inline Python of others runs when the reader says so."""
    page = trying.page
    source = '<code>\nout_ = "EXIT;  # \u00e4 \u2192 <b>"\n</code>\n'
    page.select_option("#try-arch", "sm_80")
    page.fill("#try-source", source)
    said(page, "sm_80, ")
    page.click("#try-share")
    said(page, "link")
    with opened(chromium, PHONE) as window:
        other = window.open(page.url)
        other.wait_for_selector("#try-trust:not([hidden])", timeout=60_000)
        said(other, "sm_80, not assembled: its Python was not run")
        assert other.input_value("#try-source") == source and other.input_value("#try-arch") == "sm_80"
        assert not other.evaluate(WORDS) and window.too_wide() <= 0
        other.click("#try-run")
        other.wait_for_selector("#try-words tr[data-line]")
        assert other.evaluate(WORDS) == words_of(source, "sm_80") and other.is_hidden("#try-trust")
        assert not window.errors and not window.fetched


def test_what_examples_include_is_there():
    """For the page that assembles them."""
    wanted = {name for path in made.EXAMPLES for name in re.findall(r'^\.include "(.+)"', path.read_text(), re.M)}
    assert wanted == {path.name for path in made.INCLUDED}


@needs_pyodide
@pytest.mark.slow
def test_try_each_example(trying):
    """With the words of the assembler here, and findings, but for those that need numpy."""
    page = trying.page
    page.select_option("#try-arch", "sm_90a")
    for path in made.EXAMPLES:
        page.select_option("#try-example", path.stem)
        wanted = words_of(path.read_text(), "sm_90a")
        said(page, f" {len(wanted)} instructions: ")
        assert page.input_value("#try-source") == path.read_text() and page.evaluate(WORDS) == wanted, path
        assert page.inner_text("#try-findings").count("[left-out]") == 1 and page.is_hidden("#try-trust")


@needs_pyodide
@pytest.mark.slow
def test_try_a_cubin(trying, tmp_path):
    """Downloaded it is the assembler's; opened again it is taken apart."""
    page = trying.page
    page.select_option("#try-arch", "sm_90a")
    page.select_option("#try-example", "copy")
    said(page, "sm_90a, 24 ")
    with page.expect_download() as found:
        page.click("#try-cubin")
    found.value.save_as(tmp_path / "copy.cubin")
    data = (tmp_path / "copy.cubin").read_bytes()
    assert turingas.Cubin.from_bytes(data).kernels[0].words == [int(word, 16) for word in page.evaluate(WORDS)]
    page.set_input_files("#try-open", tmp_path / "copy.cubin")
    page.wait_for_function("document.getElementById('try-source').value.startsWith('# 1 kernels')")
    assert page.input_value("#try-source") == turingas.disassemble(turingas.Cubin.from_bytes(data))
    (tmp_path / "bad.cubin").write_bytes(data[:200])
    page.set_input_files("#try-open", tmp_path / "bad.cubin")
    said(page, "bad.cubin: offset")


@needs_pyodide
@pytest.mark.slow
def test_try_what_does_not_end(trying):
    """A single step without an end: the worker is ended, and a new one goes on."""
    page = trying.page
    page.select_option("#try-example", "mma")  # whose Python may run, unlike that of a file that was opened before
    page.evaluate("document.getElementById('try').dataset.seconds = 1")
    page.fill("#try-source", "<code>\nx = 9 ** 9 ** 9\n</code>\n")
    said(page, "more than 1 seconds and was ended")
    page.evaluate("delete document.getElementById('try').dataset.seconds")
    page.fill("#try-source", LATE)
    page.wait_for_selector("#try-findings .error a[href='linter.html#raw-stall']")


def test_try_what_cannot_run(site, served, chromium, tmp_path):
    """As a file, and in a site that was built without Pyodide, the page says why it does nothing, and what to do."""
    files = made.tried(tmp_path)
    assert list(files) == ["assets/try/try.json"]
    with opened(chromium, PHONE) as window:
        page = window.open(site / "try.html")
        assert page.is_visible("#try-file") and page.is_hidden("#try")
        assert "python -m http.server -d build/site" in page.inner_text("#try-file")
        page.route("**/try.json", lambda route: route.fulfill(body=files["assets/try/try.json"]))
        page = window.open(served)
        page.wait_for_selector("#try-missing:not([hidden])")
        assert page.is_hidden("#try") and window.too_wide() <= 0 and not window.errors
