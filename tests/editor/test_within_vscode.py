"""The extension within VS Code: the .vsix that `make vscode` builds, installed into VS Code's server (the npm package
code-server, `make vscode-within`), in headless Chromium. VS Code's own test runner runs editors/vscode/test/within in
its extension host; here the report's page is looked at."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.browser import DESK, browser, opened
from tests.docs.pages import ROOT

SERVER = ROOT / "build" / "vscode-server" / "node_modules" / "code-server" / "lib" / "vscode"
EXTENSION = ROOT / "build" / "turingas.vsix"
TESTS = ROOT / "editors" / "vscode" / "test" / "within"
PATIENCE = 180  # seconds
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed"),
    pytest.mark.skipif(not (SERVER.is_dir() and EXTENSION.is_file()), reason="`make vscode-within` installs VS Code"),
]


@contextmanager
def serving(folder: Path):
    """The address of a server with the extension."""
    data, extensions = folder / "data", folder / "extensions"
    (data / "data" / "Machine").mkdir(parents=True)
    settings = {"turingas.command": [sys.executable, "-m", "turingas"], "turingas.arch": "sm_80"}
    (data / "data" / "Machine" / "settings.json").write_text(json.dumps(settings))
    command = ["node", "out/server-main.js", "--accept-server-license-terms", "--server-data-dir", str(data),
               "--extensions-dir", str(extensions)]  # fmt: skip
    subprocess.run([*command, "--install-extension", str(EXTENSION)], cwd=SERVER, check=True, timeout=60)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command += ["--host", "127.0.0.1", "--port", str(port), "--without-connection-token", "--disable-workspace-trust"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with (folder / "server.log").open("w") as log:
        running = subprocess.Popen(command, cwd=SERVER, env=environment, stdout=log, stderr=subprocess.STDOUT)
    try:
        for _ in range(100):
            with socket.socket() as asked:
                if asked.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.2)
        yield f"127.0.0.1:{port}"
    finally:
        running.terminate()
        running.wait(20)


def frame_of_the_report(page):
    for frame in page.frames:
        try:
            if frame.query_selector("#tabs") and frame.evaluate("document.body.dataset.ready"):
                return frame
        except Exception:  # a frame that is about to go
            continue
    return None


def test_within_vscode(tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    with serving(tmp_path) as address, browser() as chromium, opened(chromium, DESK) as window:
        tests = f"vscode-remote://{address}{TESTS}"
        payload = json.dumps([["extensionDevelopmentPath", tests], ["extensionTestsPath", f"{tests}/index.js"]])
        page = window.open(f"http://{address}/?folder={quote(str(folder))}&payload={quote(payload)}")
        looked = False
        end = time.monotonic() + PATIENCE
        while not (folder / "results.json").exists() and time.monotonic() < end:
            page.wait_for_timeout(500)
            if not looked and (report := frame_of_the_report(page)):
                report.click("#tabs a:has-text('graph')")
                assert report.is_visible("#graph") and "IADD3" in report.inner_text("#graph")
                report.click("#tabs a:has-text('listing')")
                assert report.is_visible("#listing")
                (folder / "looked").touch()
                looked = True
    assert looked
    results = json.loads((folder / "results.json").read_text())["results"]
    assert len(results) >= 7 and not {name: said for name, said in results.items() if said}
