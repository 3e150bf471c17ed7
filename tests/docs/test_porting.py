"""docs/porting.md: each pair of its tables, as far as both sides can be assembled."""

from __future__ import annotations

import functools
import re
from collections import Counter

import pytest

import turingas
from tests.docs.pages import DOCS
from tests.tools import ptx_forms
from tests.tools.ptxas import assemble_ptx, program_path

PAGE = (DOCS / "porting.md").read_text()
CODE = re.compile(r"`([^`]+)`")
DEFAULT = "--:-:-:Y:5"
LABELS = "\nlabel:\n--:-:-:Y:5  EXIT;"


def rows(first, second):
    """The rows of the tables with these titles."""
    found = []
    for table in re.findall(rf"^\| {re.escape(first)} \| {second} \|.*\n\|---.*\n((?:\|.*\n)+)", PAGE, re.M):
        for line in table.splitlines():
            cells = re.split(r"(?<!\\)\|", line)[1:-1]
            found.append([cell.strip() for cell in cells])
    return found


PAIRS = [
    row for theirs in ("TuringAs (2020)", "CuAssembler", "maxas") for row in rows(theirs, "here")
    if len(row) == 3 and row[2]
]  # fmt: skip
PTX = rows("PTX", "here")


def words(line, arch="sm_75"):
    """The words of the instruction lines; TuringAs's blocks say that it is a TuringAs file."""
    source = line if re.match(r"\[?[B\d-][\d-]*:|0x", line) else f"{DEFAULT} {line}"
    cubin = turingas.assemble(f"<regs>\n</regs>\n{source}\n{LABELS}", arch=arch)
    return cubin.kernels[0].words[: len(source.splitlines())]


def test_all_are_found():
    assert len(PAIRS) >= 20 and len(PTX) >= 40
    assert {row[2].split(":")[0].split(";")[0] for row in PAIRS} == {"read as it is", "rewritten"}


@pytest.mark.parametrize("row", PAIRS, ids=lambda row: row[0])
def test_pair(row):
    theirs, ours, how = CODE.findall(row[0]), CODE.findall(row[1]), row[2]
    for line in ours:
        words(line)
    for line in theirs:
        if how.startswith("read as it is"):
            assert words(line) == words(ours[0])
        else:
            with pytest.raises(turingas.AsmError):
                words(line)


KINDS = {"rd": "l", "r": "r", "fd": "d", "f": "f", "p": "p"}


def template(ptx):
    """The line as tests/tools/ptx_forms.py writes it: operands by kind, addresses by space."""
    ptx = ptx.replace("[%rd1]", "[$G]").replace("[%rd2]", "[$G]").replace("[%r1]", "[$S]")
    return re.sub(
        r"%(rd|fd|r|f|p)(\d)", lambda found: f"${'=' if found[2] == '0' else ''}{KINDS[found[1]]}", ptx
    )


@functools.cache
def mnemonics(ptx, arch):
    """What ptxas makes of it: mnemonics with modifiers, how often."""
    form = ptx_forms.Form(template(ptx), arch, plain=True)
    block = ptx_forms.spell(form, next(ptx_forms.variants(form)))
    header = ptx_forms.HEADER.format(version="8.0", arch=arch)
    cubin = turingas.Cubin.from_bytes(assemble_ptx("\n".join([header, *ptx_forms.kernel(0, [block])]), arch))
    lines = turingas.decode(cubin.kernels[0].words, arch=arch, control=False)
    return Counter(re.sub(r"^@\S+ ", "", line).split()[0] for line in lines)


@pytest.mark.skipif(program_path() is None, reason="ptxas is not installed")
@pytest.mark.parametrize("row", PTX, ids=lambda row: f"{row[0]} {row[2]}")
def test_ptx(row):
    [ptx], [ours] = CODE.findall(row[0]), CODE.findall(row[1])
    [*archs] = re.findall(r"sm_\d+", row[2]) or ["sm_75", "sm_90"]
    for arch in archs:
        assert len(words(ours, arch)) == 1
        name = ours.split()[0]
        made = mnemonics(ptx, arch) - mnemonics("mov.b64 %rd0, %rd1", arch)  # what any kernel of this kind has
        if "alone" in row[2]:
            assert any(found.startswith(name.split(".")[0]) for found in made), (arch, made)
        else:
            assert name in made, (arch, made)
