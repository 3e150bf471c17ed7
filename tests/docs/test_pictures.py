"""The pictures are what docs/pictures.py draws, and what it draws is so."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import pytest

import turingas
from docs import pictures

EXIT = "\n--:-:-:Y:5  EXIT;"


@pytest.mark.parametrize("name", pictures.PICTURES)
def test_up_to_date(name):
    committed = (pictures.FOLDER / f"{name}.svg").read_text()
    assert committed == pictures.PICTURES[name](), "run `make reference`"
    assert ElementTree.fromstring(committed).find("{*}title").text


def test_no_other_files():
    assert {path.name for path in pictures.FOLDER.iterdir()} == {f"{name}.svg" for name in pictures.PICTURES}


def errors(source):
    cubin = turingas.assemble(source + EXIT, arch=pictures.ARCH)
    return [finding.kind for finding in turingas.lint(cubin) if finding.severity == "error"]


def test_the_linter_agrees():
    """What is drawn as right is right, and what is drawn as wrong is wrong in both places."""
    assert errors(pictures.RIGHT) == errors(pictures.LOADS) == errors(pictures.product(True)) == []
    assert errors(pictures.WRONG) == ["raw-stall", "raw-stall"]


def test_two_warps():
    slots = pictures.two_warps(0, 26)
    assert slots == ["A"] * 13 + ["B"] * 13
    slots = pictures.two_warps(4, 10)
    assert slots == [*"AAAA", "", *"BBBB", ""]
