"""`turingas diff` and turingas.diff: what counts as the same, and what is told of the rest."""

from __future__ import annotations

import json
import re

import pytest
from click.testing import CliRunner

import turingas
from tests.browser import DESK, PHONE, browser, opened
from tests.cubin import cubins
from turingas.cli import main
from turingas.compare import Diff
from turingas.diff_page import page

CODE = """.arch sm_75
.kernel {name}
--:-:0:-:2   S2R R0, SR_TID.X;
01:-:-:-:4   MOV R2, RZ;
top:
--:-:-:-:{stall}   IADD3 R2, R2, 0x1, RZ;
--:-:-:Y:d   ISETP.LT.AND P0, PT, R2, 0x10, PT;
--:-:-:Y:5   @P0 BRA top;
--:-:-:-:1   STS [R0], R2;
--:-:-:Y:5   EXIT;
"""
ONE = CODE.format(name="k", stall=4)


def diff(one, other, **options) -> Diff:
    return turingas.diff(turingas.assemble(one), turingas.assemble(other), **options)


def changed(found, name="k"):
    (one,) = [one for one in found.functions if one.name == name]
    return [(row.how, (row.a or row.b).text) for row in one.rows if row.how != "="]


def test_same():
    found = diff(ONE, ONE)
    assert not found and list(found.lines()) == ["1 same"] and not found.failures(["differs", "slower"])


@pytest.mark.parametrize("path", cubins.STORED[:5], ids=lambda path: path.stem)
def test_a_file_is_the_same_as_itself(path):
    for registers in (False, True):
        assert not turingas.diff(path, path, registers=registers)


def test_addresses_count_for_nothing():
    """An instruction more, at the beginning: the branch behind it and its label are the same."""
    found = diff(ONE, ONE.replace("--:-:0:-:2", "--:-:-:Y:1   NOP;\n--:-:0:-:2"))
    assert changed(found) == [("+", "NOP")] and found.functions[0].resources["cycles outside of loops"] == (12, 13)
    assert found.functions[0].status == "changed"


def test_where_a_branch_leads():
    found = diff(ONE, ONE.replace("top:\n", "").replace("--:-:-:Y:d", "top:\n--:-:-:Y:d"))
    assert [how for how, text in changed(found) if "BRA" in text] == ["-", "+"]


def test_control_codes():
    found = diff(ONE, CODE.format(name="k", stall=6))
    assert changed(found) == [("~", "IADD3 R2, R2, 0x1, RZ")]
    (loop,) = found.functions[0].loops
    assert (loop.a.alone, loop.b.alone, loop.slower) == (22, 24, True)
    assert found.failures(["slower"]) == [("k", "slower")]
    assert not diff(CODE.format(name="k", stall=6), ONE).failures(["slower"])
    assert not changed(diff(ONE, CODE.format(name="k", stall=6), control=False))


def test_registers():
    other = ONE.replace("R2", "R7").replace("R0", "R3").replace("P0", "P4")
    assert changed(diff(ONE, other)) and not changed(diff(ONE, other, registers=True))
    assert diff(ONE, other, registers=True).failures(["registers"])  # R7 is more than R2
    wrong = other.replace("STS [R3], R7", "STS [R3], R3")
    assert changed(diff(ONE, wrong, registers=True)) == [("-", "STS [R0], R2"), ("+", "STS [R3], R3")]


def test_registers_on_two_paths():
    """Both paths must bring the value in the register that is read."""
    source = """
--:-:-:Y:d ISETP.LT.AND P0, PT, RZ, c[0x0][0x0], PT;
--:-:-:Y:5 @P0 BRA other;
--:-:-:-:4 MOV {0}, 0x1;
--:-:-:Y:5 BRA end;
other:
--:-:-:-:4 MOV {1}, 0x2;
end:
--:-:-:-:1 STS [RZ], {2};
--:-:-:Y:5 EXIT;
"""
    one, same, wrong = (source.format(*registers) for registers in (("R0",) * 3, ("R5",) * 3, ("R5", "R6", "R6")))
    assert not changed(diff(one, same, registers=True), "kern")
    assert [text for _, text in changed(diff(one, wrong, registers=True), "kern")] == ["STS [RZ], R0", "STS [RZ], R6"]


def test_names():
    two = CODE.format(name="a", stall=4) + "\n.kernel b\n--:-:-:Y:5 EXIT;"
    last = "\n.kernel d\n--:-:-:-:4 MOV R0, RZ;\n--:-:-:-:1 STS [RZ], R0;\n--:-:-:Y:5 EXIT;"
    other = CODE.format(name="c", stall=4) + last
    found = diff(two, other)
    assert [(one.name, one.status, one.renamed) for one in found.functions] == [
        ("c", "same", "a"), ("b", "only in A", ""), ("d", "only in B", "")]  # fmt: skip
    assert found and ("c", "differs") in found.failures(["differs"])


def test_findings():
    found = diff(ONE, CODE.format(name="k", stall=1))
    (one,) = found.functions
    assert [finding.kind for finding in one.added if finding.severity == "error"] == ["raw-stall"]
    assert found.failures(["findings"]) and not diff(CODE.format(name="k", stall=1), ONE).failures(["findings"])


def test_optimised_code_and_not():
    """Real code of two modes: it is told, and the text and the page hold together."""
    compiled = dict(cubins.compiled())
    if "plain sm_75 debug" not in compiled:
        pytest.skip("no NVRTC")
    found = turingas.diff(compiled["plain sm_75 plain"], compiled["plain sm_75 debug"])
    one = max(found.functions, key=lambda one: len(one.rows))
    for side, how in (("a", "-"), ("b", "+")):
        count = sum(getattr(row, side) is not None for row in one.rows)
        assert count == len(getattr(one, side).lines) and any(row.how == how for row in one.rows)
    json.dumps(found.to_dict())
    text = page(found)
    assert text.count("<details") == len(found.functions) and not re.search(r'src=|href="[^#]', text)


@pytest.fixture
def files(tmp_path):
    (tmp_path / "a.sass").write_text(ONE)
    (tmp_path / "b.sass").write_text(CODE.format(name="k", stall=6))
    (tmp_path / "a.cubin").write_bytes(turingas.assemble(ONE).to_bytes())
    return tmp_path


def run(folder, a, b, *options):
    return CliRunner().invoke(main, ["diff", str(folder / a), str(folder / b), *map(str, options)])


def test_command(files):
    same = run(files, "a.sass", "a.cubin")
    assert (same.exit_code, same.output) == (0, "1 same\n")
    other = run(files, "a.sass", "b.sass")
    assert other.exit_code == 1 and other.output.splitlines()[:2] == [
        "k: changed", "  loop 0x0020, depth 1: 22 -> 24 cycles of one warp, 4 of many, bound by alu"]  # fmt: skip
    assert "- 0020  --:-:-:-:4     IADD3 R2, R2, 0x1, RZ\n+ 0020  --:-:-:-:6     IADD3" in other.output
    assert run(files, "b.sass", "a.sass", "--fail-if", "slower").exit_code == 0
    slower = run(files, "a.sass", "b.sass", "--fail-if", "slower")
    assert slower.exit_code == 1 and slower.output.endswith("k: fails: slower\n")


def test_command_writes(files):
    found = run(files, "a.sass", "b.sass", "--json", "--html", files / "x.html")
    data = json.loads(found.output)
    assert data["failed"] == [{"function": "k", "condition": "differs"}] and data["functions"][0]["slower"]
    made = (files / "x.html").read_text()
    assert '<span class="worse">22 &rarr; 24</span>' in made and "slower" in made
    assert run(files, "a.sass", "b.sass", "--color", "always").output.count("\x1b[32m")


def test_in_a_notebook():
    found = diff(ONE, CODE.format(name="k", stall=6))
    assert repr(found) == "<Diff of A and B: 1 changed>" and repr(found.functions) == "[<FunctionDiff k: changed>]"
    shown = found._repr_html_()
    assert "<td>k</td><td>changed</td>" in shown and "<td>slower</td>" in shown


def test_a_page_has_what_changed_side_by_side(tmp_path):
    """Instructions of one mnemonic beside each other, their words marked; what is alike is there, but folded."""
    nops = "--:-:-:-:1 NOP;\n" * 20
    code = ".kernel k\n--:-:-:-:4 MOV R2, {};\n{}--:-:-:-:4 IADD3 R{}, R2, 0x1, RZ;\n" + nops + "--:-:-:-:5 EXIT;\n"
    made = page(turingas.diff(*(turingas.assemble(code.format(*one)) for one in (
        ("0x1", "", 3), ("0x2", "--:-:-:-:4 FADD R5, R5, R5;\n", 4)))))  # fmt: skip
    rows = {re.sub(r"<[^>]*>", " ", row).split()[-1]: row for row in re.findall(r"<tr.*?</tr>", made)}
    assert "MOV R2, <mark>0x1</mark>" in rows["0x2"] and "MOV R2, <mark>0x2</mark>" in rows["0x2"]
    (added,) = [row for row in re.findall(r"<tr.*?</tr>", made) if "IADD3" in row]
    assert added.count("IADD3") == 2 and "<mark>R3</mark>" in added and "<mark>R4</mark>" in added
    assert re.search(r"\d+ alike", made) and made.count("NOP") >= 40


def test_a_page_in_the_browser(tmp_path, chromium):
    path = tmp_path / "page.html"
    path.write_text(page(turingas.diff(*(turingas.assemble(one) for one in (
        ONE, ONE.replace("EXIT", "NOP;\n" * 30 + "--:-:-:-:5 EXIT"))))))  # fmt: skip
    for size in (DESK, PHONE):
        with opened(chromium, size) as window:
            shown = window.open(path)
            assert window.too_wide() <= 0 and not window.errors
            for fold in shown.locator(".fold").all():
                rows = fold.locator("xpath=following-sibling::tr")
                assert not rows.first.is_visible()
                fold.locator("input").check()
                assert rows.first.is_visible()


@pytest.fixture(scope="module")
def chromium():
    with browser() as running:
        yield running


def test_what_is_no_cubin(files):
    (files / "c.cubin").write_bytes(b"\x7fELF")
    wrong = run(files, "a.sass", "c.cubin")
    assert wrong.exit_code == 1 and f"{files / 'c.cubin'}: error" in wrong.output
