"""`turingas lint --fix`, and lint and check over folders, libraries and several processes."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

import turingas
from tests.cubin.cubins import DATA
from turingas.check.fix import fix, fixable
from turingas.cli import main
from turingas.errors import AsmError
from turingas.isa import control

WRONG = """<params>
out, 8
</params>
<regs>
0 : tid   # the thread
2-3 : to<0-1>
4-5 : lo, hi
</regs>
--:-:0:-:2  S2R tid, SR_TID.X;        // who am I
--:-:-:-:1 MOV to0, out[0];
--:-:-:-:1 MOV to1, out[1];
--:-:-:-:5  IMAD.WIDE to0, tid, 0x4, to0;  # no wait!
--:-:-:-:2  LDG.E lo, [to0];
/* a comment */
--:-:-:-:1 FADD hi, lo, 1; # too early

--:-:-:-:1  STG.E [to0], hi;
--:-:-:Y:5 EXIT;
"""
CODE = re.compile(r"[-\d]\S:[-\d]:[-\d]:[-Y]:\w\s+")
LEARN = Path(__file__).parents[2] / "kernels_sass" / "learn"


def run(*args):
    return CliRunner().invoke(main, [*map(str, args)])


def test_fixed():
    made = fix(WRONG)
    assert not made.left and {one.kind for one in made.fixed} == {"raw", "raw-stall", "no-scoreboard"}
    assert not fixable(turingas.lint(turingas.assemble(made.text)))
    assert CODE.sub("", made.text) == CODE.sub("", WRONG)  # names, comments and empty lines
    assert "01:-:-:Y:8  IMAD.WIDE to0, tid, 0x4, to0;  # no wait!" in made.text
    assert "--:-:0:-:2  S2R tid, SR_TID.X;        // who am I" in made.text  # what was right is as it was


def test_nothing_to_fix():
    made = fix(WRONG)
    assert fix(made.text) == type(made)(made.text)


@pytest.mark.parametrize("name", ["01_copy", "02_scale", "03_sum"])
def test_faults_in_kernels(name):
    """A wait or a stall taken out of a kernel that is right."""
    plain = turingas.disassemble(turingas.assemble((LEARN / f"{name}.sass").read_text(), include=(str(LEARN),)))
    lines = plain.splitlines()
    places = [n for n, line in enumerate(lines) if re.match(r"..:.:.:.:[4-9a-f]|0\d:", line)]
    places.sort(key=lambda n: hashlib.sha1(f"{name}{n}".encode()).digest())
    count = 0
    for n in places[:6]:
        code, rest = lines[n][:11], lines[n][11:]
        wrong = "--" + code[2:] if code[0] == "0" else code[:7] + "-:1" + code[10:]
        text = "\n".join([*lines[:n], wrong + rest, *lines[n + 1 :], ""])
        made = fix(text)
        assert not made.left
        count += bool(made.fixed)
        if not made.fixed:
            assert made.text == text
    assert count


def test_what_is_not_mended():
    with pytest.raises(AsmError, match="inline Python or includes"):
        fix("<code>\nout_ = 'x'[1:]\n</code>\n" + WRONG)
    with pytest.raises(AsmError, match="unknown instruction"):
        fix("BOOM;")


def test_only_codes_change():
    made = fix(WRONG)
    keep = ~(control.MASK | control.REUSE_MASK)
    one, other = (turingas.assemble(text).kernels[0].words for text in (WRONG, made.text))
    assert [word & keep for word in one] == [word & keep for word in other] and one != other


def test_command(tmp_path):
    path = tmp_path / "w.sass"
    path.write_bytes(b"\xef\xbb\xbf" + WRONG.replace("\n", "\r\n").encode())
    assert run("lint", path).exit_code == 1
    found = run("lint", "--fix", path, "--severity", "error")
    assert found.exit_code == 0 and "mended: 6 findings" in found.output
    data = path.read_bytes()
    assert data.startswith(b"\xef\xbb\xbf<params>\r\n") and data.count(b"\r\n") == WRONG.count("\n")
    assert run("lint", "--fix", path).exit_code == 0 and path.read_bytes() == data
    cubin = tmp_path / "w.cubin"
    cubin.write_bytes(turingas.assemble(WRONG).to_bytes())
    wrong = run("lint", "--fix", cubin)
    assert wrong.exit_code == 1 and "--fix mends source files" in wrong.output


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "deep").mkdir()
    for name, text in (("a", WRONG), ("deep/b", fix(WRONG).text)):
        (tmp_path / f"{name}.sass").write_text(text)
        (tmp_path / f"{name}.cubin").write_bytes(turingas.assemble(text).to_bytes())
    (tmp_path / "notes.txt").write_text("no kernel")
    return tmp_path


@pytest.mark.parametrize("processes", [1, 2])
def test_folders(folder, processes):
    found = run("lint", folder, "-j", processes, "--severity", "error", "--no-loops")
    names = ["a.cubin", "a.sass", "deep/b.cubin", "deep/b.sass"]
    totals = [line.partition(": ")[::2] for line in found.output.splitlines() if line.endswith(("note", "notes"))]
    assert [name for name, _ in totals] == [str(folder / name) for name in names]
    assert [text.startswith("6 errors") for _, text in totals] == [True, True, False, False]
    assert found.exit_code == 1
    same = run("check", folder, "-j", processes)
    assert (same.exit_code, same.output) == (0, "".join(f"{folder / name}: identical\n" for name in names[::2]))


def test_one_is_wrong_and_the_others_go_on(folder):
    (folder / "0.cubin").write_bytes(b"\x7fELF")
    for processes in (1, 2):
        found = run("check", folder, "-j", processes)
        assert found.exit_code == 1 and "0.cubin: error:" in found.output and found.output.count("identical") == 2


def test_libraries(tmp_path):
    library = DATA / "plain_cuda13.fatbin"
    found = run("check", library)
    assert (found.exit_code, found.output.count("identical")) == (0, 2)
    assert f"{library}:0001.sm_75: identical" in found.output
    found = run("lint", library, "--arch", "sm_80", "--no-loops", "--severity", "error", "-j", 2)
    assert found.exit_code == 0 and ".sm_80: " in found.output and "sm_75" not in found.output
    nothing = tmp_path / "none.so"
    nothing.write_bytes(turingas.assemble("EXIT;").to_bytes()[:18] + (62).to_bytes(2, "little") + bytes(4096))
    assert run("lint", nothing).exit_code == 1 and run("check", nothing).exit_code == 1
