"""The command that lints libraries: a log that is gone on with, a draw that is always the same."""

from __future__ import annotations

import json
import zipfile

from tests.cubin.cubins import DATA
from tests.tools.corpus import sources
from tests.tools.lint_libraries import Log, look

CUBINS = [DATA / "plain_cuda12_sm80.cubin", DATA / "flow_cuda12_sm75.cubin", DATA / "memory_cuda12_sm90.cubin"]


def test_a_run_goes_on_where_another_ended(tmp_path):
    log = tmp_path / "log.jsonl"
    found = sources(CUBINS, tmp_path)
    look(found, Log(log), most=1)
    first = Log(log)
    assert 0 < len(first.rows) and {row["source"] for row in first.rows} == {found[0].name}
    look(found, first)
    again, whole = Log(log), Log()
    look(found, whole, to_check=1.0)
    look(found, again, to_check=1.0)
    assert again.done == whole.done and len(again.rows) == len(again.done)
    assert not again.bad() and "3 files, 0 differ" in str(again)
    assert f"{again.instructions:,} instructions" in str(again)
    before = log.read_text()
    look(found, Log(log), to_check=1.0)
    assert log.read_text() == before


def test_the_draw():
    found = sources([DATA], DATA)
    whole, part = Log(), Log()
    look(found[:6], part, 0.5)
    look(reversed(found[:6]), whole)
    assert part.done < whole.done
    assert [source.name for source in found] == [source.name for source in sources([DATA], DATA)]


def test_findings_are_told(tmp_path):
    log = tmp_path / "log.jsonl"
    row = {
        "sha1": "0",
        "source": "a#1",
        "library": "a",
        "kernel": "k",
        "arch": "sm_80",
        "instructions": 9,
        "seconds": 1,
    }
    log.write_text(json.dumps({**row, "findings": [["error", "raw", "k+0x10: error: [raw]"]]}) + "\n")
    with_one = Log(log)
    assert with_one.again() == {"a#1"} and not log.read_text() and not with_one.bad() and not with_one.instructions
    log.write_text(json.dumps({**row, "findings": [["error", "raw", "k+0x10: error: [raw]"]]}) + "\n")
    assert Log(log).bad() and "errors: 1" in str(Log(log)) and "a#1: sm_80: k+0x10" in str(Log(log))


def test_libraries_in_wheels(tmp_path):
    with zipfile.ZipFile(tmp_path / "some_library-1.0-py3-none-any.whl", "w") as wheel:
        wheel.write(DATA / "plain_cuda13.fatbin", "lib/libplain.so.1")
        wheel.writestr("lib/readme.txt", "")
    found = sources([tmp_path], tmp_path / "unpacked")
    assert sorted(source.name for source in found) == ["some_library/libplain.so.1#0", "some_library/libplain.so.1#1"]
    assert all(source.read().startswith(b"\x7fELF") for source in found)
