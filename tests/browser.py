"""A page in headless Chromium, by Playwright, for the tests that look at pages. The browser is Debian's, because
Playwright's own is no package. Where there is no browser, those tests are skipped and say so."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

PHONE = {"width": 390, "height": 844}
DESK = {"width": 1280, "height": 900}
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class Opened:
    """A page of a file, and what went wrong in it."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.errors: list[str] = []
        self.fetched: list[str] = []  # from elsewhere than files and this machine
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", lambda said: self.errors.append(said.text) if said.type == "error" else None)
        page.on("request", lambda request: self._asked(request.url))

    def _asked(self, url: str) -> None:
        if not url.startswith(("file:", "data:", "blob:", "about:", "http://127.0.0.1:")):
            self.fetched.append(url)

    def open(self, address: Path | str, anchor: str = "") -> Any:
        """The page of that file or address."""
        url = address if isinstance(address, str) else address.resolve().as_uri()
        self.page.goto(url + (f"#{anchor}" if anchor else ""))
        return self.page

    def too_wide(self) -> int:
        """By how many pixels the page is wider than the window."""
        return self.page.evaluate("document.documentElement.scrollWidth - innerWidth")


@contextmanager
def browser() -> Iterator[Any]:
    """Chromium; a fixture of a module wraps it."""
    playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
    if CHROMIUM is None:
        pytest.skip("there is no Chromium: apt install chromium")
    with playwright.sync_playwright() as running:
        yield running.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])


@contextmanager
def opened(chromium: Any, size: dict[str, int] = DESK, scheme: str = "light") -> Iterator[Opened]:
    """A new page of that size, in the light or the dark."""
    context = chromium.new_context(viewport=size, color_scheme=scheme, reduced_motion="reduce")
    try:
        yield Opened(context.new_page())
    finally:
        context.close()
