"""README.md: its commands work, its listings run, its times are those of kernels_sass/results."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import loader
import turingas
from docs import readme
from kernels_sass.conv.method import KNOWN
from tests.docs.pages import Desk, commands, listings, matches, transcripts
from tests.docs.test_commands import parses
from turingas.cli import main

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
MAKEFILE = (ROOT / "Makefile").read_text()
TARGETS = set(re.findall(r"^(\S+):", MAKEFILE, re.M))


def made(words):
    """make does this: there are the targets, and Makefile knows the variables."""
    names = [word.partition("=")[0] for word in words if "=" in word]
    assert {word for word in words if "=" not in word} <= TARGETS, words
    assert all(f"$({name})" in MAKEFILE for name in names), words


def test_commands(tmp_path, monkeypatch):
    desk = Desk(tmp_path, README)
    for line in commands(README):
        program, *words = shlex.split(line, comments=True)
        if program == "turingas" and words[0] == "bench":
            parses(words, desk, monkeypatch)
        elif program == "turingas":
            printed = desk.run(line)
            assert desk.code == 0, (line, printed)
        elif program == "make" and words[0] != "-C":
            made(words)
        else:
            assert line in ("git clone URL turingas", "make -C turingas demo"), line


def test_commands_in_the_text():
    text = re.sub(r"^```.*?^```$", "", README.read_text(), flags=re.M | re.S)
    for line in re.findall(r"`((?:make|turingas) [^`]*)`", text):
        program, *words = shlex.split(line)
        made(words) if program == "make" else main.commands[words[0]]
    (activate,) = re.findall(r"`\. (\.venv\S+)`", text)
    assert activate == ".venv/bin/activate" and "VENV  := .venv\n" in MAKEFILE


@pytest.mark.skipif(not (shutil.which("git") and shutil.which("make") and (ROOT / ".git").exists()), reason="no clone")
def test_the_two_commands(tmp_path):
    """What `make demo` runs in a clone; that it works there is seen by tests/test_demo.py and by hand."""
    clone, demo = [line for line in commands(README) if "turingas" in line.split()][:2]
    assert (clone, demo) == ("git clone URL turingas", "make -C turingas demo")
    subprocess.run(["git", "clone", "--quiet", ROOT, "turingas"], cwd=tmp_path, check=True)
    steps = subprocess.run([*demo.split(), "-n"], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert "./venv.sh demo" in steps and ".venv/bin/python -m examples.demo" in steps
    assert (tmp_path / "turingas" / "venv.sh").stat().st_mode & 0o100


def test_transcripts(tmp_path):
    desk = Desk(tmp_path, README)
    for step in transcripts(README):
        assert matches(step.prints, desk.run(step.command)), step.command


def kernel():
    (found,) = (one for one in listings(README) if one.language == "nvsass")
    return found


@pytest.mark.parametrize("arch", KNOWN)
def test_first_kernel(arch):
    """Twenty lines, right and without a finding on every architecture."""
    source = kernel().text
    assert len(source.splitlines()) == 20
    cubin = turingas.assemble(source, arch=arch)
    assert [str(finding) for finding in turingas.lint(cubin) if finding.kind != "occupancy"] == []
    random = np.random.default_rng(0)
    x, y = random.standard_normal((2, 128), np.float32)
    wanted = np.float32(2.5) * x + y
    with loader.load(cubin, device="cpu") as module:
        report = module.kernel().launch(4, 32, x, y, 2.5, strict=True, races=True)
    assert not report.hazards and not report.races
    assert np.allclose(y, wanted, rtol=1e-6, atol=1e-6) and kernel().file == "axpy.sass"


def test_python(tmp_path, monkeypatch):
    """All Python of the page in its order, in one folder. What it prints, and gives, is the comment behind it."""
    desk = Desk(tmp_path, README)
    monkeypatch.chdir(desk.folder)
    lines = [line for one in listings(README) if one.language == "python" for line in one.text.splitlines()]
    told = [line.partition(")  ")[2].strip(" #") for line in lines if line.startswith(("print(", "turingas.decode("))]
    shown = [f"print({line})" if line.startswith("turingas.decode(") else line for line in lines]
    shown = [re.sub(r"\)(\s+# .*)\)$", r"))\1", line) for line in shown]
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec("\n".join(shown), {})
    assert printed.getvalue().splitlines() == told and len(told) == 3


def typed(tmp_path, text):
    """What mypy says of a stranger's program."""
    (tmp_path / "user.py").write_text(text)
    words = ["--strict", "--follow-imports=silent", "--cache-dir", str(ROOT / ".mypy_cache/strangers"), "user.py"]
    done = subprocess.run([sys.executable, "-m", "mypy", *words], cwd=tmp_path, capture_output=True, text=True,
                          env={**os.environ, "MYPYPATH": str(ROOT)})  # fmt: skip
    return done.stdout


TYPES = """
from typing_extensions import assert_type
from loader.cpu import CpuKernel, CpuModule
from loader.cuda import CudaKernel, CudaModule
from turingas.emulate import Report

assert_type(loader.load("a.sass", "cpu"), CpuModule)
with loader.load("a.cubin", device="cpu", arch="sm_80") as on_cpu:
    assert_type(on_cpu, CpuModule)
    assert_type(on_cpu.kernel("f"), CpuKernel)
    assert_type(on_cpu.kernel().launch(1, 32, stream=None), Report)
assert_type(loader.load(b"", "cuda:1").kernel(), CudaKernel)
assert_type(loader.load("a.cubin").kernel().launch(1, 32), Report | None)
assert_type(turingas.lint(cubin), list[turingas.Finding])
"""


@pytest.mark.slow
def test_types(tmp_path):
    """README's Python, and what it makes of devices, pass `mypy --strict`; and a mistake does not."""
    text = "".join(one.text for one in listings(README) if one.language == "python")
    assert typed(tmp_path, text + TYPES).startswith("Success")
    assert 'has no attribute "hazard"' in typed(tmp_path, text + "report.hazard\n")


def test_times():
    """The blocks are what `make readme` writes, and in README.md no speed stands outside of them."""
    for document in readme.DOCUMENTS:
        text = document.read_text()
        assert readme.written(text) == text, f"kernels_sass/results has changed: run `make readme` ({document.name})"
    used = {name for document in readme.DOCUMENTS for _, name, *_ in readme.BLOCK.findall(document.read_text())}
    text = README.read_text()
    assert used == set(readme.BLOCKS) and len(readme.SPEED.findall(text)) == len(readme.FAULTS.findall(text)) == 1
    outside = readme.BLOCK.sub("", text)
    assert not re.findall(r"\b\d+\.\d+ ?x\b|\b\d+(?:\.\d+)? (?:ms|TFLOP)", outside)


def test_verdict():
    def said(best=(0, 0), **ratios):
        settings = {"one": {"verdict": {"ours": {label.replace("_", " "): {} for label in ratios}}}}
        summary = {label.replace("_", " "): {"over_rival": dict(zip(("mean", "least"), one))}
                   for label, one in ratios.items()}  # fmt: skip
        summary[readme.BOTH] = {"over_rival": dict(zip(("mean", "least"), best))}
        found = {"settings": settings, "summary": summary}
        return readme.verdict(found, readme.maths(found))

    assert said(NCHW=(1.5, 1.1), CHWN=(1.6, 1.2)).endswith("is reached.")
    assert said(ffma_NCHW=(1.6, 1.0), tf32x3_CHWN=(1.6, 1.2)).endswith("is reached only by tf32x3 CHWN.")
    assert said(NCHW=(1.4, 1.2)).endswith("is not reached.")
    both = "the best of NCHW, NHWC in each setting (1.52x, 1.20x at least)"
    assert said((1.52, 1.2), NCHW=(1.4, 1.2), CHWN=(1.6, 1.2)).endswith(f"is reached only by CHWN and by {both}.")
    assert said((1.52, 1.2), NCHW=(1.4, 1.2)).endswith(f"is reached only by {both}.")


def test_layers_in_which_others_are_faster():
    """All of them, the slowest first; who is as fast when rounded is none."""
    def made(**ratios):
        both = {name: {"best": {"ms": 2.0}, "rival": {"ms": 2 * one}} for name, one in ratios.items()}
        return {"precisions": {**both, "bf16": {"best": None, "rival": {"ms": 1.0}}}}

    found = {"settings": {"A": made(fp16=0.98, tf32=1.2), "B": made(fp16=1, tf32=0.997), "C": made(tf32=0.9)}}
    assert list(readme.slower(found)) == ["", "Below 1.0x: tf32, C (0.90x); fp16, A (0.98x)."]
    assert list(readme.slower({"settings": {"A": made(fp16=1.1)}})) == []


def test_clusters():
    """Beside the same tile alone; none of fewer columns, and none of rows without a time."""
    def made(**speeds):
        return {"rows": [{"name": name, "tflops": one} for name, one in speeds.items()]}

    found = {"settings": {
        "1": made(**{"as it is": 100, "clusters of 2": 97, "128 x 64": 10, "clusters of 2, 128 x 64": 20}),
        "2": made(**{"128 x 192": 100, "clusters of 2, 128 x 192": 101, "clusters of 2": 1}),
        "3": made(**{"128 x 256": 100, "128 x 256, clusters of 2": 105}), "4": {"rows": [{"name": "as it is"}]},
    }}  # fmt: skip
    assert readme.together(found).startswith("Clusters of 2 are 0.97 to 1.05 times as fast")


def test_picture():
    path = ROOT / re.findall(r"!\[[^\]]*\]\(([^)]+)\)", README.read_text())[0]
    assert path.read_bytes()[:2] == b"\xff\xd8" and path.stat().st_size < 200_000
