"""The pictures are what docs/pictures.py draws, and what it draws is so."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest

import loader
import turingas
from docs import made, pictures

EXIT = "\n--:-:-:Y:5  EXIT;"


@pytest.mark.parametrize("name", pictures.PICTURES)
def test_drawn(name):
    text = pictures.PICTURES[name]()
    assert text == pictures.PICTURES[name]() and ElementTree.fromstring(text).find("{*}title").text


def test_what_pages_show_is_made():
    """And of the pictures of control codes each is shown. That they are there in the end, test_site.py sees."""
    assert made.shown() <= set(made.drawings())
    assert {f"pictures/{name}.svg" for name in pictures.PICTURES} <= made.shown()


def test_figures_are_drawn_once(tmp_path, monkeypatch):
    """Again only if the results have changed."""
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(made, "KEPT", tmp_path / "kept")
    path = tmp_path / "found.json"
    path.write_text("{}")
    drawn = []

    def draw():
        drawn.append(1)
        return made.drawing.pyplot().subplots()[0]

    first = made.drawn(path, "some", draw)
    assert first.startswith("<?xml") and made.drawn(path, "some", draw) == first and len(drawn) == 1
    path.write_text("[]")
    made.drawn(path, "some", draw)
    assert len(drawn) == 2


def errors(source):
    cubin = turingas.assemble(source + EXIT, arch=pictures.ARCH)
    return [finding.kind for finding in turingas.lint(cubin) if finding.severity == "error"]


def test_the_linter_agrees():
    """What is drawn as right is right, and what is drawn as wrong is wrong in both places."""
    assert errors(pictures.RIGHT) == errors(pictures.LOADS) == errors(pictures.product(True)) == []
    assert errors(pictures.WRONG) == ["raw-stall", "raw-stall"]


def test_the_orders_are_those_of_the_page():
    """The examples stand on it; and of the loop four loads are under way at once, where one was."""
    page = Path(pictures.__file__).with_name("reordering.md").read_text()
    assert pictures.PAIR in page and pictures.SUM in page
    plain, found = (pictures.loads_of(one)[:9] for one in (pictures.SUM.replace("pipeline", "reorder"), pictures.SUM))
    assert all(use <= load for (_, use), (load, _) in zip(plain, plain[1:]))
    assert all(found[n + 3][0] < found[n][1] for n in range(5)) and found[8][0] < plain[3][0]


def test_codes_that_are_filled_in():
    """Those above let everything wait, and those below are right, too, says the linter; the block is the same."""
    careful, made = pictures.loads_and_stores()
    isa = pictures.instruction_set(pictures.ARCH)
    code = [[pictures.instruction(isa, word) for word in words] for words in (careful, made)]
    assert [i.text().replace(".reuse", "") for i in code[1]] == [i.text() for i in code[0]]
    for words in (careful, made):
        lines = "\n".join(f"{line};" for line in isa.lines(words))
        found = turingas.lint(turingas.assemble(lines, arch=pictures.ARCH).to_bytes())
        assert [one.kind for one in found if one.severity == "error"] == []
    ends = [pictures.issued(some)[-1][1] for some in code]
    assert ends[0] > 3 * ends[1] > 0 and len(pictures.loads(made)) == 3


def test_two_warps():
    slots = pictures.two_warps(0, 26)
    assert slots == ["A"] * 13 + ["B"] * 13
    slots = pictures.two_warps(4, 10)
    assert slots == [*"AAAA", "", *"BBBB", ""]


FRAGMENTS = """
.arch sm_80
<params>
a, 8
b, 8
c, 8
</params>
--:-:0:-:2  S2R R0, threadIdx.x;
01:-:-:-:1  MOV R1, 0x10;
--:-:-:-:5  MOV R2, 0x8;
--:-:-:-:2  IMAD.WIDE R4, R0, R1, a;
--:-:-:-:2  IMAD.WIDE R6, R0, R2, b;
--:-:-:Y:6  IMAD.WIDE R20, R0, R1, c;
--:-:0:-:1  LDG.E.128 R8, [R4];
--:-:0:-:2  LDG.E.64 R12, [R6];
01:-:-:Y:f  HMMA.16816.F32 R16, R8, R12, RZ;
--:-:-:Y:f  NOP;
--:-:-:Y:f  NOP;
--:-:-:-:1  STG.E.128 [R20], R16;
--:-:-:Y:5  EXIT;
"""


def test_fragments():
    """Lanes that hold what ``places`` says make the product on the CPU device."""
    random = np.random.default_rng(0)
    matrices = {"A": random.integers(-8, 8, (16, 16)), "B": random.integers(-8, 8, (16, 8))}
    held = {
        name: np.array([[values[at] for at in pictures.places(name, lane)] for lane in range(32)], np.float16)
        for name, values in matrices.items()
    }
    out = np.zeros((32, 4), np.float32)
    kernel = loader.load(turingas.assemble(FRAGMENTS), device="cpu").kernel()
    kernel.launch(1, 32, held["A"], held["B"], out)
    product = matrices["A"] @ matrices["B"]
    assert [[product[at] for at in pictures.places("C", lane)] for lane in range(32)] == out.tolist()
