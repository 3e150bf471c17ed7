"""What `turingas disassemble` shows besides the code: all of it assembles again."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET

import pytest
from click.testing import CliRunner

import turingas
from tests.cubin import cubins
from turingas.cli import main
from turingas.disassembler import disassemble
from turingas.flow import draw
from turingas.flow.graph import Graph
from turingas.listing import Shown

LOOP = """.arch sm_75
.kernel loop
--:-:-:-:4   MOV R0, RZ;
top:
--:-:-:-:6   IADD3 R0, R0, 0x1, RZ;
--:-:-:Y:d   ISETP.LT.AND P0, PT, R0, 0x10, PT;
--:-:-:Y:5   @P0 BRA top;
--:-:-:Y:5   EXIT;
.kernel a%3Cb%3E
--:-:-:Y:5   EXIT;
"""


@pytest.fixture(scope="module")
def cubin():
    return turingas.assemble(LOOP)


@pytest.fixture
def file(tmp_path, cubin):
    path = tmp_path / "x.cubin"
    path.write_bytes(cubin.to_bytes())
    return path


def run(*args):
    return CliRunner().invoke(main, ["disassemble", *map(str, args)])


def words(cubin):
    return {text.name: text.words for text in cubin.texts}


@pytest.mark.parametrize("path", cubins.STORED[:4], ids=lambda path: path.stem)
def test_all_of_it_assembles(path):
    cubin = turingas.Cubin.from_file(path)
    text = disassemble(cubin, Shown(source=True, hex=True, life=True))
    assert words(turingas.assemble(text, cubin.arch)) == words(cubin)
    assert turingas.assemble(text, cubin.arch).to_bytes() == turingas.assemble(disassemble(cubin)).to_bytes()


def test_one_kernel(file, cubin):
    text = run(file, "--kernel", "lo*").output
    assert words(turingas.assemble(text)) == {"loop": cubin.texts[0].words}
    wrong = run(file, "--kernel", "pool")
    assert wrong.exit_code == 1 and "there is no kernel 'pool'" in wrong.output and "loop, a<b>" in wrong.output
    found = json.loads(run(file, "--kernel", "loop", "--json").output)
    assert [one["name"] for one in found["texts"]] == ["loop"]


def test_hex_and_life(file, cubin):
    printed = run(file, "--kernel", "loop", "--hex", "--life").output.splitlines()
    lines = [line for line in printed if "; " in line and line[0] != "#"]
    for line, word in zip(lines, cubin.texts[0].words):
        assert int(re.search(r"# [0-9a-f]{4} (0x[0-9a-f]{32})", line)[1], 16) == word
    columns = [line.rpartition("0x")[2].partition(" ")[2].strip() for line in lines[:5]]
    assert columns == ["|  1 ^|  0  |", "|  1 x|  0  |", "|  1 v|  1 ^|", "|  1 :|  1 v|", "|  0  |  0  |"]


def test_source_lines(tmp_path, monkeypatch):
    compiled = dict(cubins.compiled())
    if "plain sm_75 lineinfo" not in compiled:
        pytest.skip("no NVRTC")
    cubin = turingas.Cubin.from_bytes(compiled["plain sm_75 lineinfo"])
    monkeypatch.chdir(tmp_path)
    names = {file for text in cubin.texts for file, _ in text.lines if file}
    without = disassemble(cubin, Shown(source=True))
    assert any(f"# {name}:" in without for name in names)
    assert words(turingas.assemble(without)) == words(cubin)
    (tmp_path / "there").mkdir()
    for name in names:
        source = next(path for path in cubins.SOURCES if path.stem == "plain").read_text()
        (tmp_path / "there" / name.rpartition("/")[2]).write_text(source)
    found = disassemble(cubin, Shown(source=True, folders=("there",)))
    line = next(line for file, line in cubin.texts[0].lines if file)
    assert source.splitlines()[line - 1].strip() in found


@pytest.mark.parametrize("name", ["plain sm_75 debug", "flow sm_90 debug"])
def test_without_debug(name):
    compiled = dict(cubins.compiled())
    if name not in compiled:
        pytest.skip("no NVRTC")
    cubin = turingas.Cubin.from_bytes(compiled[name])
    text = disassemble(cubin, Shown(debug=False))
    assert ".debug_line" in disassemble(cubin) and ".debug" not in text
    assert words(turingas.assemble(text, cubin.arch)) == words(cubin)


def test_graphs(file):
    text = run(file, "--cfg", "dot").output
    assert text.count("digraph") == 2 and 'subgraph cluster_0 { label="loop, depth 1"' in text
    assert "b1 -> b1 []" in text and "b0 -> b1 [style=bold]" in text
    wrong = run(file, "--cfg", "svg")
    assert wrong.exit_code == 1 and "an SVG shows one kernel" in wrong.output
    picture = ET.fromstring(run(file, "--cfg", "svg", "--kernel", "a<b>").output)
    assert "a<b>" in [text.text for text in picture.iter("{http://www.w3.org/2000/svg}text")]


def test_arrows_of_graphs(cubin):
    """One path for each edge, and none outside of the picture."""
    graph = Graph(cubin.texts[0])
    picture = ET.fromstring(draw.svg(graph))
    width, height = float(picture.get("width")), float(picture.get("height"))
    paths = [one.get("d") for one in picture.iter("{http://www.w3.org/2000/svg}path")][1:]
    assert len(paths) == len(list(draw.edges(graph)))
    for path in paths:
        assert all(0 <= float(x) <= width for x in re.findall(r"[MH](\d+)", path))
        assert all(0 <= float(y) <= height for y in re.findall(r"V(\d+)", path))


def test_lanes():
    """What overlaps on one side lies in different lanes."""
    assert draw._lanes([(0, 9, False), (1, 2, False), (3, 4, False), (1, 2, True)]) == [1, 0, 0, 0]


def test_colours(file):
    assert "\x1b[" in run(file, "--color", "always").output and "\x1b[" not in run(file).output
    plain = re.sub(r"\x1b\[[0-9;]*m", "", run(file, "--color", "always").output)
    assert plain.strip() == run(file).output.strip()
