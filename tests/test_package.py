"""What pip installs: it has what the commands need, away from the checkout. And what works where numpy is missing."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import turingas
from turingas.check.rules import RULES
from turingas.isa import describe
from turingas.isa.isa import instruction_set

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


def test_editable(tmp_path):
    """An editable installation, which make sets up, finds our packages by a finder of its own and not by the path."""
    code = f"""
import sys
from importlib.util import spec_from_file_location
class Finder:
    def find_spec(name, path=None, target=None):
        if name in ("turingas", "loader", "kernels_sass"):
            return spec_from_file_location(name, "{ROOT}/" + name + "/__init__.py")
sys.meta_path.insert(0, Finder)
import kernels_sass
print(kernels_sass.__file__)
"""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    program = [sys.executable, "-I", "-c", code]
    done = subprocess.run(program, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.stdout == f"{ROOT}/kernels_sass/__init__.py\n", done.stderr


def test_the_sdist_names_all_that_git_has():
    """In short what test_sdist sees: what stands at the top is a package, setuptools' own, or in MANIFEST.in."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a checkout of git")
    top = {name.partition("/")[0] for name in listed.stdout.split("\0") if name and not name.startswith(".")}
    manifest = set((ROOT / "MANIFEST.in").read_text().split())
    own = {"turingas", "loader", "kernels_sass", "pyproject.toml", "README.md", "LICENSE", "MANIFEST.in"}
    assert not top - manifest - own


@pytest.mark.slow
def test_sdist(tmp_path):
    """A source distribution has all that git has, but for CI; from it all tests can be collected, and some run."""
    pytest.importorskip("setuptools")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a checkout of git")
    files = [name for name in listed.stdout.split("\0") if name and not name.startswith(".")]
    for name in files:
        (tmp_path / "source" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / "source" / name)
    build = [sys.executable, "-c", "import setuptools; setuptools.setup()", "-q", "sdist", "-d", tmp_path]
    subprocess.run(build, cwd=tmp_path / "source", check=True, capture_output=True, text=True)
    [archive] = tmp_path.glob("*.tar.gz")
    shutil.unpack_archive(archive, tmp_path / "there")
    [there] = (tmp_path / "there").iterdir()
    assert not [name for name in files if not (there / name).is_file()]
    environment = {**os.environ, "PYTHONPATH": str(there)}
    for words in (["--collect-only", "tests"], ["tests/test_api.py", "tests/isa/test_sass.py"]):
        program = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *words]
        done = subprocess.run(program, cwd=there, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout[-2000:]


def test_hints_name_packages_that_there_are():
    """Nothing says to install "turingas[...]": no index has it."""
    folders = ("turingas", "loader", "kernels_sass", "docs")
    files = [path for folder in folders for path in (ROOT / folder).rglob("*.*") if path.suffix in (".py", ".md")]
    assert not [str(path) for path in files if re.search(r"turingas\[[a-z]+\]", path.read_text())]


WITHOUT_NUMPY = """
import json, sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "numpy":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Refuse())
import turingas
from turingas.check.lint import LEFT_OUT
from turingas.check.rules import RULES
from turingas.editor.analysis import Analysis
from turingas.editor.show import hover
from turingas.isa import describe
from turingas.isa.isa import instruction_set

source = open(sys.argv[1]).read()
cubin = turingas.assemble(source, "sm_90", filename="x", include=[sys.argv[2]])
scheduled = turingas.schedule(turingas.Cubin.from_bytes(cubin.to_bytes()), keep=False)
print(json.dumps({
    "words": cubin.kernels[0].words, "text": turingas.disassemble(cubin), "scheduled": scheduled.kernels[0].words,
    "findings": [repr(one) for one in turingas.lint(cubin)], "rules": list(RULES), "left_out": LEFT_OUT,
    "isa": describe.describe(instruction_set("sm_90").forms, "FFMA", ""), "hover": hover(Analysis("EXIT;"), 0, 1),
}))
"""


def test_without_numpy():
    """All parts but the CPU device do the same as with it; the linter says which rules it leaves out."""
    path, folder = ROOT / "kernels_sass/learn/08_sgemm.sass", str(ROOT / "kernels_sass/learn")
    command = [sys.executable, "-c", WITHOUT_NUMPY, str(path), folder]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    cubin = turingas.assemble(path.read_text(), "sm_90", filename="x", include=[folder])
    assert found["words"] == cubin.kernels[0].words and found["text"] == turingas.disassemble(cubin)
    again = turingas.schedule(turingas.Cubin.from_bytes(cubin.to_bytes()), keep=False)
    assert found["scheduled"] == again.kernels[0].words
    assert found["isa"] == describe.describe(instruction_set("sm_90").forms, "FFMA", "") and "EXIT" in found["hover"]
    findings = [one for one in turingas.lint(cubin) if one.kind not in found["left_out"]]
    assert set(found["left_out"]) == set(RULES) - set(found["rules"]) and len(found["left_out"]) == 3
    assert [one for one in found["findings"] if "left-out" not in one] == [repr(one) for one in findings]
    assert len(found["findings"]) == len(findings) + 1
