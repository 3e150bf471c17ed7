"""`turingas lint` as a user runs it: text, SARIF, exit codes."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

import turingas
from tests.cubin import cubins
from tests.kernels import cases
from tests.tools import nvrtc
from turingas.check import hazards
from turingas.check.finding import Finding
from turingas.check.rules import CHECKS, RULES
from turingas.check.sarif import sarif
from turingas.cli import main
from turingas.flow.graph import Graph

PAGE = Path(__file__).parent.parent.parent / "docs" / "linter.md"

RIGHT = """.kernel right
--:-:-:-:4   CS2R R2, SRZ;
--:-:-:-:4   CS2R R4, SRZ;
--:-:-:-:4   CS2R R6, SRZ;
--:-:-:-:4   MOV R0, RZ;
top:
--:-:-:-:6   IADD3 R0, R0, 0x1, RZ;
--:-:-:-:2   FFMA R1, R2, R4, R6;
--:-:-:Y:d   ISETP.LT.AND P0, PT, R0, 0x10, PT;
--:-:-:Y:5   @P0 BRA top;
--:-:-:Y:5   EXIT;
"""
WRONG = """.kernel wrong
--:-:0:-:2   S2R R0, SR_TID.X;
01:-:-:Y:d   ISETP.LT.AND P0, PT, R0, 0x40, PT;
--:-:-:Y:6   @P0 BAR.SYNC 0x0;
--:-:-:-:4   MOV R9, RZ;
"""


def run(*args, **options):
    return CliRunner().invoke(main, ["lint", *map(str, args)], **options)


@pytest.fixture
def right(tmp_path):
    path = tmp_path / "right.sass"
    path.write_text(RIGHT)
    return path


@pytest.fixture
def wrong(tmp_path):
    path = tmp_path / "wrong.sass"
    path.write_text(WRONG)
    return path


def test_right(right):
    result = run(right)
    assert result.exit_code == 0, result.output
    text = result.output
    assert f"{right}:8: note: right+0x0050: 1 cycle lost: R2 R4 R6" in text  # source lines are known
    assert "[bank-conflict]" in text and "[occupancy]" in text and "hint: move one source" in text
    assert f"{right}: right: loop 0x0040 to 0x0070, lines 7 to 10, depth 1" in text
    assert f"{right}: 2 notes" in text


def test_wrong(wrong):
    result = run(wrong)
    assert result.exit_code == 1
    assert f"{wrong}:4: warning: wrong+0x0020: only the threads for which P0 holds" in result.output
    assert f"{wrong}:5: error: wrong+0x0030: control runs" in result.output
    assert "0x0020: @P0 BAR.SYNC 0x0" in result.output and "1 error, 1 warning, 1 note" in result.output


def test_severity(wrong, right):
    text = run(wrong, "--severity", "error").output
    assert "error:" in text and "warning:" not in text and "note:" not in text
    assert run(wrong, "--severity", "error").exit_code == 1
    assert "note:" not in run(right, "--severity", "warning").output


def test_many_notes_of_a_kind(tmp_path):
    path = tmp_path / "many.sass"
    path.write_text(20 * "--:-:-:-:2 FFMA R1, R2, R4, R6;\n" + "--:-:-:Y:5 EXIT;")
    text = run(path).output
    assert text.count("[bank-conflict]\n") == 8 and "12 more notes [bank-conflict]; --severity note" in text
    assert run(path, "--severity", "note").output.count("[bank-conflict]\n") == 20


def test_loops(right):
    assert ": loop 0x" in run(right, "--loops").output and ": loop 0x" not in run(right, "--no-loops").output


def test_cubin(right, tmp_path):
    cubin = tmp_path / "right.cubin"
    cubin.write_bytes(turingas.assemble(RIGHT).to_bytes())
    result = run(cubin)
    assert result.exit_code == 0 and f"{cubin}: note: right+0x0050" in result.output


def test_several_files(right, wrong):
    result = run(right, wrong)
    assert result.exit_code == 1 and "right+0x0050" in result.output and "wrong+0x0030" in result.output


def test_options_of_the_assembler(tmp_path):
    path = tmp_path / "x.sass"
    zeros = "''.join(f'MOV R{n}, RZ;\\n' for n in (A, 4, 6))"
    path.write_text(f"<code>\nout_ = {zeros} + f'FFMA R1, R{{A}}, R4, R6;\\n'\n</code>\nEXIT;")
    assert run(path, "-D", "A=2").exit_code == 0  # the control codes are filled in
    code = ["--default-control", "--:-:-:Y:5"]
    assert "R2 R4 R6" in run(path, "-D", "A=2", *code).output
    assert "cycle lost" not in run(path, "-D", "A=3", *code).output
    assert "refused" in run(path, "-D", "A=2", *code, "--no-python").output
    assert "bank-conflict" not in run(path, "-D", "A=2", *code, "--arch", "sm_90").output


def test_one_kernel(tmp_path):
    path = tmp_path / "two.sass"
    path.write_text(RIGHT + WRONG)
    assert run(path, "--kernel", "right").exit_code == 0 and run(path, "--kernel", "wrong").exit_code == 1
    result = run(path, "--kernel", "other")
    assert result.exit_code == 1 and "no kernel 'other'" in result.output and "right, wrong" in result.output


def test_what_is_no_kernel(tmp_path, right):
    bad, worse = tmp_path / "bad.sass", tmp_path / "bad.cubin"
    bad.write_text("--:-:-:-:2 FFAM R1, R2, R4, R6;")
    worse.write_bytes(b"\x7fELF")
    result = run(bad, worse, right)
    assert result.exit_code == 1 and "Traceback" not in result.output
    assert f"{bad}:1:12: error: unknown instruction 'FFAM'" in result.output
    assert f"{worse}: error: " in result.output
    assert "right+0x0050" in result.output  # it goes on


@pytest.mark.parametrize("args", [[], ["missing.sass"], ["x.sass", "--severity", "bad"], ["x.sass", "--arch", "sm_44"]])
def test_wrong_usage(args, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("x.sass").write_text("--:-:-:Y:5 EXIT;")
    assert run(*args).exit_code == 2


# -- SARIF


def valid(log: dict) -> None:
    """What SARIF 2.1.0 asks for: required properties, and indices that lead somewhere."""
    assert log["version"] == "2.1.0" and log["$schema"].startswith("https://")
    for one in log["runs"]:
        driver = one["tool"]["driver"]
        assert isinstance(driver["name"], str)
        rules = driver["rules"]
        assert len({rule["id"] for rule in rules}) == len(rules)
        for result in one["results"]:
            assert result["level"] in ("none", "note", "warning", "error")
            assert rules[result["ruleIndex"]]["id"] == result["ruleId"] and result["message"]["text"]
            for location in result["locations"] + result.get("relatedLocations", []):
                physical = location.get("physicalLocation")
                if physical:
                    uri = physical["artifactLocation"]["uri"]
                    assert uri and "\\" not in uri and " " not in uri
                    assert physical.get("region", {"startLine": 1})["startLine"] >= 1
                assert all(logical["fullyQualifiedName"] for logical in location["logicalLocations"])


def test_json(right, wrong, monkeypatch):
    monkeypatch.chdir(right.parent)
    result = run("right.sass", "wrong.sass", "--json")
    assert result.exit_code == 1
    log = json.loads(result.output)
    valid(log)
    (one,) = log["runs"]
    barrier = next(r for r in one["results"] if r["ruleId"] == "divergent-barrier")
    (location,) = barrier["locations"]
    assert location["physicalLocation"] == {"artifactLocation": {"uri": "wrong.sass"}, "region": {"startLine": 4}}
    assert location["logicalLocations"][0]["fullyQualifiedName"] == "wrong+0x0020"
    assert barrier["level"] == "warning" and "hint" not in barrier
    (one,) = json.loads(run("wrong.sass", "--json", "--severity", "error").output)["runs"]
    assert {r["level"] for r in one["results"]} == {"error"}


def test_json_without_findings():
    valid(sarif([]))
    assert sarif([])["runs"][0]["results"] == []


def test_uris(tmp_path, monkeypatch):
    def uri(file):
        (result,) = sarif([Finding("barriers", "error", "x", "k", file=file)])["runs"][0]["results"]
        return result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]

    monkeypatch.chdir(tmp_path)
    assert uri("a folder/x.sass") == "a%20folder/x.sass"
    assert uri(str(tmp_path / "y.sass")) == "y.sass"
    assert uri("/elsewhere/z.sass") == "file:///elsewhere/z.sass"


def test_both_instructions():
    finding = Finding("reuse-stale", "error", "x", "k", 32, "FADD", "x.sass", 7, 16, 6, "MOV", "do")
    log = sarif([finding])
    valid(log)
    (result,) = log["runs"][0]["results"]
    (related,) = result["relatedLocations"]
    assert related["physicalLocation"]["region"] == {"startLine": 6}
    assert related["logicalLocations"][0]["fullyQualifiedName"] == "k+0x0010"


def test_every_kind_is_described():
    """Each kind that a check can report is a rule, and stands in docs/linter.md."""
    assert {kind for kind, _ in SECTIONS} == set(RULES)
    checks = Path(hazards.__file__).parent.glob("*.py")
    named = {word for file in checks for word in re.findall(r'"([a-z]+(?:-[a-z]+)+)"', file.read_text())}
    assert {"nothing-pending", "no-scoreboard"} <= named
    assert named - {"utf-8"} <= set(RULES)  # the kinds of two words, which are told from other strings
    for path in cubins.STORED[:6]:
        assert {finding.kind for finding in turingas.lint(path)} <= set(RULES)


DOCS = PAGE.read_text()
SECTIONS = re.findall(r"^### `([\w-]+)`\n(.*?)(?=^##)", DOCS, re.M | re.S)


@pytest.mark.parametrize("kind, text", SECTIONS, ids=[kind for kind, _ in SECTIONS])
def test_examples_of_the_documentation(kind, text):
    """The listing of a section gives the finding that the section is about, and no error of another kind."""
    for source in re.findall(r"^```nvsass\n(.*?)^```$", text, re.M | re.S):
        found = turingas.lint(turingas.assemble(source, "sm_75"))
        assert kind in {finding.kind for finding in found}
        wrong = {finding.kind for finding in found if finding.severity != "note"}
        assert wrong <= {kind, "uninitialised"}  # listings are parts of kernels


@pytest.mark.skipif(nvrtc.library_path() is None, reason="NVRTC is not installed")
@pytest.mark.parametrize("arch", ["sm_75", "sm_90"])
def test_compiled_code_gives_notes_alone(arch):
    """The checks of this page; tests/check/test_hazards.py does the same for hazards."""
    checks = [check for check in CHECKS if check is not hazards.check]
    count = 0
    for source in ("classics.cu", "control.cu", "groups.cu", "memory.cu", "warps.cu"):
        for text in turingas.Cubin.from_bytes(cases.cubin(source, arch)).texts:
            graph = Graph(text)
            found = [finding for check in checks for finding in check(graph)]
            assert {finding.severity for finding in found} <= {"note"}, (source, found)
            count += 1
    assert count > 20


def test_files_of_two_folders_have_their_own_helpers(tmp_path):
    """The stall of 5 in the first folder is enough, that of 1 in the second is not."""
    for name, stall in (("a", 5), ("b", 1)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "helper.py").write_text(f"STALL = {stall}\n")
        (tmp_path / name / "k.sass").write_text(
            "<code>\nimport helper\nout_ = f'--:-:-:-:{helper.STALL} FADD R0, RZ, 1;'\n</code>\n"
            "--:-:-:-:5 FADD R1, R0, R0;\n--:-:-:Y:5 EXIT;\n"
        )
    result = CliRunner().invoke(main, ["lint", *(str(tmp_path / name / "k.sass") for name in "ab")])
    totals = [line.rpartition("/")[2] for line in result.output.splitlines() if line.endswith("note")]
    assert [total.partition(": ")[2] for total in totals] == ["1 note", "1 error, 1 note"]
