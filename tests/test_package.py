"""What pip installs: it has what the commands need, away from the checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A folder with the files that a wheel of the checkout has: setuptools puts them together in the same way."""
    pytest.importorskip("setuptools")
    folder = tmp_path_factory.mktemp("package")
    for name in ("turingas", "loader", "kernels_sass"):
        shutil.copytree(ROOT / name, folder / "source" / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder / "source")
    build = [sys.executable, "-c", "import setuptools; setuptools.setup()", "-q", "build_py", "-d", folder / "there"]
    subprocess.run(build, cwd=folder / "source", check=True, capture_output=True, text=True)
    return folder / "there"


def test_results_are_shown(installed, tmp_path):
    """`bench winograd --show` in an empty folder, and nothing is left there."""
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    program = [sys.executable, "-m", "turingas", "bench", "winograd", "--show"]
    done = subprocess.run(program, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "NVIDIA H200" in done.stdout and "(16 settings)" in done.stdout and not list(tmp_path.iterdir())
    where = [sys.executable, "-c", "import loader, kernels_sass; print(loader.__file__, kernels_sass.__file__)"]
    done = subprocess.run(where, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(installed / name / "__init__.py") for name in ("loader", "kernels_sass")]


def test_every_file_is_there(installed):
    """Sources, tables and results: whatever git has in the packages, but Python's caches."""
    for name in ("turingas", "loader", "kernels_sass"):
        wanted = {path.relative_to(ROOT) for path in (ROOT / name).rglob("*")
                  if path.is_file() and path.suffix not in (".pyc", ".tmp")}  # fmt: skip
        assert not [path for path in wanted if not (installed / path).is_file()]
