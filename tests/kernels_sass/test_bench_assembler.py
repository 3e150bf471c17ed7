"""`turingas bench assembler`: who is measured, what is wrong has no time, results are kept, shown and drawn.

CuAssembler, TuringAs (2020) and ptxas are stand-ins: small programs with their command lines.
"""

from __future__ import annotations

import json
import os
import sys
import types
from pathlib import Path

import pytest
from click.testing import CliRunner

import turingas
from loader.bench import results
from tests.tools import nvdisasm
from turingas import speed as assembler
from turingas import speed_shown, throughput
from turingas.cli import main
from turingas.errors import LaunchError

NVDISASM = nvdisasm.program_path("sm_75")


def call(*words):
    return CliRunner().invoke(main, ["bench", "assembler", *words])


@pytest.fixture(autouse=True)
def short(monkeypatch, tmp_path):
    """Few instructions, few rounds, a small kernel in the Winograd kernel's place, no tools but those that a test has;
    results stay in tmp_path."""
    monkeypatch.setattr(assembler, "UNROLLED", 160)
    monkeypatch.setattr(assembler, "ROUNDS", 2)
    monkeypatch.setattr(assembler.conv.Kernels, "of", lambda arch: types.SimpleNamespace(
        cubin=turingas.assemble(assembler.unrolled(320), arch=arch)))  # fmt: skip
    monkeypatch.setattr(assembler, "LEAST", 0.01)
    monkeypatch.setattr(assembler, "code", lambda arch: (["a test"], turingas.encode(
        "\n".join(f"--:-:-:-:2  FFMA R{n}, R{n % 7}, R{n % 5}, R{n};" for n in range(200)), arch)))  # fmt: skip
    made = tmp_path / "one.cubin"
    made.write_bytes(turingas.assemble("--:-:-:-:2  FFMA R0, R1, R2, R3;\n--:-:-:Y:5  EXIT;").to_bytes())
    monkeypatch.setattr(assembler, "cubins", lambda arch, library, folder: ("a test", [made]))
    monkeypatch.setattr(assembler.nvrtc, "package_folders", lambda name: iter(()))
    monkeypatch.setattr(assembler.shutil, "which", lambda name: None)
    monkeypatch.setattr(assembler, "TOOLKIT", "")
    for name in ("CUDA_HOME", "TURINGAS_NVDISASM", "TURINGAS_PTXAS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(results, "FOLDER", tmp_path)
    monkeypatch.setenv("TURINGAS_COMMIT", "abc")


def program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!{sys.executable}\n{text}")
    path.chmod(0o755)
    return path


# ---- the whole way -----------------------------------------------------------------------------------------------


def test_alone(tmp_path):
    """With no other tool: ours is measured, all others are said to be missing."""
    path = tmp_path / "found.json"
    done = call("--arch", "sm_75", "--json", str(path))
    assert done.exit_code == 0, done.output
    found = json.loads(path.read_text())
    assert found["complete"] and found["commit"] == "abc" and not any(found["tools"].values())
    entry = found["settings"]["sm_75"]
    assert entry["within"]["instructions"] == 200 and entry["within"]["code"] == ["a test"]
    assert all(entry["within"][what][state] > 1000 for what in ("encode", "decode") for state in speed_shown.STATES)
    rows = {(row["name"], row["task"], row["work"]): row for row in entry["rows"]}
    mine = [("ours", "assemble", "Winograd"), ("ours", "assemble", "unrolled"), ("ours", "disassemble", "Winograd")]
    assert list(rows) == mine + [(name, "", "") for name in assembler.TOOLS]
    for one in mine:
        row = rows[one]
        rate = pytest.approx(row["instructions"] / row["seconds"], rel=0.01, abs=1)  # it is rounded
        assert row["status"] == "ok" and row["rate"] == rate
        assert 0 < row["start"] and row["runs"] == 2
    assert rows[mine[1]]["instructions"] == 168  # 160, EXIT, the branch to itself, NOPs up to a multiple of 8
    assert all(row["status"] == "not installed" for key, row in rows.items() if key not in mine)
    both = found["summary"]["python"], found["summary"]["import"]  # seconds; the machine may be busy with one of them
    assert 0 < both[0] < 10 * both[1] < 100
    assert "not installed: nvdisasm, cuobjdump, ptxas, cuassembler, turingas" in done.output
    assert "import: " in done.output and "NOT OK" not in done.output
    figures = call("--show", "--json", str(path), "--figures", str(tmp_path / "drawn"))
    assert figures.exit_code == 0 and "sm_75 ours" in figures.output
    assert {one.name for one in (tmp_path / "drawn").iterdir()} == {
        f"assembler_{name}.svg" for name in ("programs", "within")
    }  # fmt: skip


def test_code_that_does_not_repeat(tmp_path, monkeypatch):
    """A folder's cubins of the architecture are taken, in whatever depth; results stay nowhere without --json."""
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    (tmp_path / "library" / "deep").mkdir(parents=True)
    for n, arch in enumerate(("sm_75", "sm_75", "sm_90")):
        lines = [f"--:-:-:-:2  FFMA R{k}, R{n}, R{k % 7}, R{k};" for k in range(40)]
        made = turingas.assemble("\n".join([*lines, assembler.EMPTY]), arch=arch)
        (tmp_path / "library" / "deep" / f"{n}.cubin").write_bytes(made.to_bytes())
    (tmp_path / "library" / "no.cubin").write_bytes(b"none")
    source, files = assembler.cubins("sm_75", ["library"], tmp_path)
    assert source == "library" and [path.name for path in files] == ["0.cubin", "1.cubin"]
    found = throughput.measure(files, assembler._environment())
    assert list(found) == list(throughput.TARGETS) and all(one["rate"] > 0 for one in found.values())
    assert found["again"]["instructions"] == found["lint"]["instructions"] == 96
    assert 80 < found["decode"]["instructions"] == found["encode"]["instructions"] < 96
    with pytest.raises(LaunchError, match="no cubin in"):
        (tmp_path / "empty").mkdir()
        assembler.cubins("sm_75", ["empty"], tmp_path)


def test_results_are_kept_where_asked_alone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = {path.name for path in tmp_path.iterdir()}
    monkeypatch.setattr(assembler, "setting", lambda *asked: {"within": {}, "rows": []})
    monkeypatch.setattr(assembler, "brief", lambda entry: "")
    assembler.run(assembler.Asked(), None, lambda line: None)
    assert {path.name for path in tmp_path.iterdir()} == before


@pytest.fixture
def untimed(monkeypatch):
    """All programs run once, to be checked."""
    monkeypatch.setattr(assembler, "alternate", lambda every, step: [([1.0, 2.0], [0.5, 0.5])] * len(every))


@pytest.mark.skipif(NVDISASM is None, reason="nvdisasm is not installed")
def test_nvdisasm(untimed):
    """NVIDIA's own: it prints each instruction of our kernel."""
    there = {**dict.fromkeys(assembler.TOOLS), "nvdisasm": NVDISASM}
    rows = {row["name"]: row for row in assembler.programs("sm_75", there, lambda part: None)}
    assert rows["nvdisasm"]["status"] == "ok" and rows["nvdisasm"]["instructions"] == rows["ours"]["instructions"]


CUBIN_FILE = """
import shutil
class CubinFile:
    def __init__(self, path): self.path = path
    def saveAsCuAsm(self, path): shutil.copy(self.path, path)
"""
CUASM_PARSER = """
class CuAsmParser:
    def parse(self, path): self.data = open(path, "rb").read()
    def saveAsCubin(self, path): open(path, "wb").write(self.data{change})
"""
ORIGINAL = """
import shutil, sys
given = dict(zip(sys.argv[1::2], sys.argv[2::2]))
assert given["-arch"] == "75" and open(given["-i"]).read().endswith("EXIT;\\n")
shutil.copy(__file__.replace("main.py", "made.cubin"), given["-o"])
"""
PTXAS = """
import shutil, sys
if "--version" in sys.argv: sys.exit(print("release 1.2, V1.2.3"))
arch, source, dash, out = sys.argv[1:]
assert arch == "-arch=sm_75" and dash == "-o" and open(source).read().startswith(".version")
shutil.copy({made!r}, out)
"""


@pytest.fixture
def others(tmp_path):
    """Folders and files of the stand-ins, as --tool takes them."""
    made = turingas.assemble(assembler.unrolled(160), arch="sm_75").to_bytes()
    program(tmp_path / "cuasm" / "CuAsm" / "CubinFile.py", CUBIN_FILE)
    program(tmp_path / "cuasm" / "CuAsm" / "CuAsmParser.py", CUASM_PARSER.format(change=""))
    program(tmp_path / "old" / "turingas" / "__init__.py", "")
    program(tmp_path / "old" / "turingas" / "main.py", ORIGINAL)
    (tmp_path / "old" / "turingas" / "made.cubin").write_bytes(made)
    program(tmp_path / "ptxas", PTXAS.format(made=str(tmp_path / "old" / "turingas" / "made.cubin")))
    return {"cuassembler": tmp_path / "cuasm", "turingas": tmp_path / "old", "ptxas": tmp_path / "ptxas"}


def test_others(others, untimed, tmp_path):
    path = tmp_path / "found.json"
    words = [word for name, place in others.items() for word in ("--tool", f"{name}={place}")]
    done = call("--arch", "75", "--json", str(path), *words)
    assert done.exit_code == 0, done.output
    found = json.loads(path.read_text())
    rows = {(row["name"], row["task"]): row for row in found["settings"]["sm_75"]["rows"]}
    for one in (("CuAssembler", "disassemble"), ("CuAssembler", "assemble"), ("TuringAs (2020)", "assemble"),
                ("ptxas", "assemble")):  # fmt: skip
        assert rows[one]["status"] == "ok" and rows[one]["rate"] > 0, rows[one]
    assert found["tools"]["ptxas"] == "1.2.3" and "ptxas 1.2.3" in done.output
    # on another architecture TuringAs (2020) is not asked
    there = {**dict.fromkeys(assembler.TOOLS), "turingas": others["turingas"]}
    assert [row["name"] for row in assembler.programs("sm_90", there, lambda part: None)][3:] == [
        "nvdisasm", "cuobjdump", "ptxas", "cuassembler"]  # fmt: skip


def test_what_is_wrong_has_no_time(others, untimed, tmp_path):
    flip = ".replace(bytes.fromhex('4d79'), bytes.fromhex('1879'))"  # each EXIT becomes another instruction
    program(tmp_path / "cuasm" / "CuAsm" / "CuAsmParser.py", CUASM_PARSER.format(change=flip))
    program(tmp_path / "old" / "turingas" / "main.py", "raise SystemExit('one line\\nthe last line')")
    program(tmp_path / "ptxas", PTXAS.format(made=os.devnull))
    program(tmp_path / "nvdisasm", "print('        /*0000*/  EXIT ;')")
    there = {**dict.fromkeys(assembler.TOOLS), **others, "nvdisasm": tmp_path / "nvdisasm"}
    rows = {(row["name"], row["task"]): row for row in assembler.programs("sm_75", there, lambda part: None)}
    assert rows["CuAssembler", "assemble"]["status"] == "wrong: other words than ours"
    assert rows["TuringAs (2020)", "assemble"]["status"] == "failed: the last line"
    assert rows["ptxas", "assemble"]["status"].startswith("wrong: ")
    count = rows["ours", "disassemble"]["instructions"]
    assert rows["nvdisasm", "disassemble"]["status"] == f"wrong: 1 instructions, not {count}"
    assert not any("seconds" in row for row in rows.values() if row["name"] != "ours" and row["task"] == "assemble")
    found = {"settings": {"sm_75": {"rows": list(rows.values())}}}
    assert not list(speed_shown.failures(found))  # others' are not ours
    rows["ours", "assemble"]["status"] = "failed: x"
    assert len(list(speed_shown.failures(found))) == 1


WITHIN = {"code": [], "instructions": 1, "distinct": 1,
          **{what: dict.fromkeys(speed_shown.STATES, 300_000) for what in speed_shown.CODING}}  # fmt: skip


def test_ours_wrong_is_an_exit_code(untimed, tmp_path, monkeypatch):
    """A disassembler whose text makes another cubin: no time, and the command fails."""
    real = turingas.disassemble
    monkeypatch.setattr(assembler.turingas, "disassemble", lambda cubin: real(cubin).replace("FFMA", "FADD", 1))
    rows = assembler.programs("sm_75", dict.fromkeys(assembler.TOOLS), lambda part: None)
    assert rows[0]["status"].startswith("failed: ") and "seconds" not in rows[0]  # FADD takes two sources
    assert [row["status"] for row in rows[1:3]] == ["ok", "ok"]
    monkeypatch.setattr(assembler, "setting", lambda *args: {"within": WITHIN, "rows": rows})
    done = call("--arch", "sm_75", "--json", str(tmp_path / "a.json"))
    assert done.exit_code == 1 and "sm_75: ours, assemble Winograd: failed: " in done.output, done.output


def test_resumes(tmp_path, monkeypatch):
    path = tmp_path / "found.json"
    words = ["--arch", "sm_75", "--arch", "sm_90", "--json", str(path)]
    seen = []

    def interrupted(arch, *more):
        seen.append(arch)
        if seen == ["sm_75", "sm_90"]:
            raise KeyboardInterrupt
        return {"within": {**WITHIN, "number": len(seen)}, "rows": []}

    monkeypatch.setattr(assembler, "setting", interrupted)
    assert call(*words).exit_code == 130
    first = json.loads(path.read_text())
    assert list(first["settings"]) == ["sm_75"] and not first["complete"]
    assert call(*words).exit_code == 0 and seen == ["sm_75", "sm_90", "sm_90"]
    second = json.loads(path.read_text())
    assert second["complete"] and second["settings"]["sm_75"] == first["settings"]["sm_75"]


# ---- its parts ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_code_is_real(monkeypatch):
    monkeypatch.undo()
    sources, words = assembler.code("sm_75")
    assert "our Winograd kernel" in sources and "tests/cubin/data" in sources and len(words) > 2500
    assert turingas.encode("\n".join(turingas.decode(words[:500], "sm_75")), "sm_75") == words[:500]


def test_unrolled_is_unrolled():
    made = turingas.assemble(assembler.unrolled(800), arch="sm_75")
    texts = turingas.decode(made.kernels[0].words, "sm_75", control=False)
    assert sum(text.startswith("FFMA") for text in texts) == 640 and len(texts) % 8 == 0 and len(texts) > 800
    assert sum(text.startswith(("LDS", "STG")) for text in texts) == 160


def test_where_tools_are(tmp_path, monkeypatch):
    assert all(assembler.find(name) is None for name in assembler.TOOLS)
    path = program(tmp_path / "bin" / "nvdisasm", "")
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    path.chmod(0o644)
    assert assembler.find("nvdisasm") == path and os.access(path, os.X_OK)  # some installers leave it without the bit
    monkeypatch.setenv("TURINGAS_NVDISASM", str(path))
    assert assembler.find("nvdisasm") == path and assembler.version("nvdisasm", path) == "there"
    for name, named, what in (("ptxas", tmp_path / "none", "there is no"), ("cuassembler", tmp_path, "no folder CuAsm"),
                              ("turingas", tmp_path, "no folder turingas")):  # fmt: skip
        with pytest.raises(LaunchError, match=what):
            assembler.find(name, str(named))
    done = call("--tool", f"maxas={tmp_path}")
    assert done.exit_code == 1 and "there is no tool 'maxas'" in done.output
    assert call("--tool", "ptxas").exit_code == 2 and call("--arch", "sm_10").exit_code == 2


def test_turns():
    """The best turn is held against the goal, the median stands beside it; older results have one turn alone."""
    assert throughput._summary([{"instructions": 9, "rate": rate} for rate in (10, 50, 20)]) == {
        "instructions": 9, "rate": 50, "median": 20, "turns": 3}  # fmt: skip
    many = {"instructions": 9, "rate": 300_001, "median": 5, "turns": 3}
    once = {"decode": many, "lint": {"instructions": 9, "rate": 3}}
    entry = {"within": WITHIN, "rows": [], "once": once}
    found = {"settings": {"sm_75": entry}, "summary": {"import": 0.2}, "tools": {}, "targets": assembler.TARGETS,
             "machine": "", "date": "", "commit": ""}  # fmt: skip
    told = "\n".join(speed_shown.lines(found))
    assert "decoded: 300,001 a second, the best of 3 turns (median 5); reached (300,000)" in told
    assert "linted: 3 a second; MISSED (40,000)" in told
    speed_shown.show(found)


def test_what_is_kept_is_shown(monkeypatch):
    monkeypatch.undo()
    assert call("--show").exit_code == 0


def test_targets():
    """What is missed is said to be."""
    rows = [{"name": "ours", "work": "unrolled", "task": "assemble", "status": "ok", "seconds": 0.5}]
    found = {"settings": {"sm_75": {"within": WITHIN, "rows": rows}}, "summary": {"import": 0.2}, "tools": {},
             "targets": assembler.TARGETS}  # fmt: skip
    told = list(speed_shown.lines(found))
    assert [line.split("; ")[-1] for line in told[1:]] == [
        "reached (200,000)", "MISSED (400,000)", "reached (0.6)", "MISSED (0.15)"]  # fmt: skip
