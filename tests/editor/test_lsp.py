"""`turingas lsp`, through the protocol."""

from __future__ import annotations

import builtins
import re

import pytest
from click.testing import CliRunner

import turingas
from tests.editor.client import ROOT, URI, Client, Failed
from turingas.assembler.schedule import listing
from turingas.cli import main
from turingas.editor.analysis import Analysis, Settings

SOURCE = """\
.kernel copy
<params>
input,  8
output, 8
</params>
<regs>
0   : index
2-3 : from<0-1>
4-5 : to<0-1>
6   : value
</regs>
--:-:0:-:1   S2R index, threadIdx.x;
--:-:-:-:1   MOV from0, input[0];   # value
--:-:-:-:1   MOV from1, input[1];
--:-:-:-:1   MOV to0, output[0];
--:-:-:-:5   MOV to1, output[1];
01:-:-:-:5   IMAD.WIDE from0, index, 0x4, from0;
again:
01:-:-:-:6   IMAD.WIDE to0, index, 0x4, to0;
--:-:2:-:2   LDG.E value, [from0];
04:0:-:-:1   STG.E [to0], value;
--:-:-:Y:5   BRA again;
"""
EVERYWHERE = {"range": {"start": {"line": 0, "character": 0}, "end": {"line": 99, "character": 0}}}


def line(text, what):
    return next(n for n, row in enumerate(text.split("\n")) if what in row)


def applied(text, edits):
    """``text`` after edits, none of which touch each other."""
    rows = text.split("\n")
    for edit in sorted(edits, key=lambda e: (e["range"]["start"]["line"], e["range"]["start"]["character"]))[::-1]:
        start, end = edit["range"]["start"], edit["range"]["end"]
        assert start["line"] == end["line"]
        row = rows[start["line"]]
        rows[start["line"]] = row[: start["character"]] + edit["newText"] + row[end["character"] :]
    return "\n".join(rows)


@pytest.fixture(scope="module")
def server():
    client = Client()
    yield client
    assert client.end() == 0


@pytest.fixture
def opened(server):
    server.open(SOURCE)
    yield server
    server.close()


def test_a_mistake_is_underlined_and_gone_when_mended(server):
    wrong = SOURCE.replace("MOV to0", "MOVE to0")
    (one,) = server.open(wrong)
    n = line(wrong, "MOVE")
    at = wrong.split("\n")[n].index("MOVE")
    assert one["range"] == {"start": {"line": n, "character": at}, "end": {"line": n, "character": at + 4}}
    assert (one["severity"], one["source"]) == (1, "turingas") and "MOVE" in one["message"]
    change = {"range": one["range"], "text": "MOV"}
    server.tell("textDocument/didChange", {"textDocument": {"uri": URI, "version": 90}, "contentChanges": [change]})
    assert not [found for found in server.diagnostics() if found["severity"] == 1]
    server.close()


def test_a_mistake_of_no_line_names_no_file():
    """Not `<source>:0: `, as if an included file were meant."""
    for source, arch, message in (("", "sm_75", "there are no"), ("EXIT;", "sm_1", "unknown architecture")):
        (problem,) = Analysis(source, "x.sass", Settings(arch)).problems
        assert problem.message.startswith(message) and problem.at.line == 0


def test_typing_is_looked_at_once(server):
    """Ten keys in a row come to one look."""
    server.open(SOURCE)
    for n in range(10):
        place = {"line": 0, "character": 0}
        change = {"range": {"start": place, "end": place}, "text": "#"}
        document = {"uri": URI, "version": 100 + n}
        server.tell("textDocument/didChange", {"textDocument": document, "contentChanges": [change]})
    server.diagnostics()
    server.of("foldingRange")
    assert server.got.empty()
    server.close()


def test_the_linter_speaks_and_the_scheduler_mends(server):
    wrong = SOURCE.replace("01:-:-:-:6   IMAD", "01:-:-:-:1   IMAD").replace("04:0:-:-:1", "--:0:-:-:1")
    found = [one for one in server.open(wrong) if one["severity"] == 1]
    kinds = {one["code"] for one in found}
    assert kinds, found
    assert any(one.get("relatedInformation") for one in found)
    for _ in range(4):  # one after the other, as a person does
        errors = [one for one in server.open(wrong) if one["severity"] == 1]
        if not errors:
            break
        context = {"diagnostics": [], "only": ["quickfix"]}
        actions = server.of("codeAction", range=errors[0]["range"], context=context)
        assert actions, errors[0]
        wrong = applied(wrong, actions[0]["edit"]["changes"][URI])
    assert not [one for one in turingas.lint(turingas.assemble(wrong)) if one.severity == "error"]
    assert len(wrong.split("\n")) == len(SOURCE.split("\n")) and "# value" in wrong
    server.close()


def test_a_hint_is_a_quick_fix(server):
    wrong = SOURCE.replace("[to0], value", "[to0], valeu")
    (one,) = server.open(wrong)
    actions = server.of("codeAction", range=one["range"], context={"diagnostics": [one]})
    (fix,) = [action for action in actions if action["kind"] == "quickfix"]
    assert applied(wrong, fix["edit"]["changes"][URI]) == SOURCE
    server.close()


def test_all_codes_anew(opened):
    (action,) = opened.of("codeAction", range=EVERYWHERE["range"], context={"diagnostics": [], "only": ["refactor"]})
    made = applied(SOURCE, action["edit"]["changes"][URI])
    assert made == listing(SOURCE, keep=False)[0]
    assert not [one for one in turingas.lint(turingas.assemble(made)) if one.severity == "error"]


def test_hover(opened):
    n = line(SOURCE, "LDG")
    said = opened.at("hover", n, 14)["contents"]["value"]
    word = turingas.assemble(SOURCE).texts[0].words[7]
    assert "loads from global memory" in said and "lsu" in said and "`LDG.E.SYS R6, [R2]`" in said
    assert f"{word & (1 << 64) - 1:#018x}" in said
    said = opened.at("hover", n, 3)["contents"]["value"]
    assert "scoreboard 2" in said and "after 2 cycles" in said
    said = opened.at("hover", n, SOURCE.split("\n")[n].index("value"))["contents"]["value"]
    assert "`R6`" in said and f"written in line {n + 1}" in said and f"read in line {n + 2}" in said
    said = opened.at("hover", line(SOURCE, "BRA"), 18)["contents"]["value"]
    assert "label `again`" in said and "1 use" in said
    assert opened.at("hover", 0, 0) is None


def names(items):
    return [item["label"] for item in items]


def test_completion(server):
    text = SOURCE + "--:-:-:-:1   LD\n--:-:-:-:1   LDG.E.\n--:-:-:-:1   IADD3 va\n--:-:-:-:1   S2R index, \n.reg\n"
    server.open(text)
    last = len(text.split("\n")) - 1
    items = server.at("completion", last - 5, 15)
    assert {"LDG", "LDS", "FFMA"} <= set(names(items)) and "HGMMA" not in names(items)  # sm_75
    ldg = next(item for item in items if item["label"] == "LDG")
    assert ldg["detail"] == "loads from global memory"
    assert ldg["textEdit"]["range"]["start"]["character"] == 13
    found = names(server.at("completion", last - 4, 19))
    assert {"128", "64", "STRONG", "GPU"} <= set(found) and "E" not in found
    assert {"value", "from0", "again", "input", "RZ"} <= set(names(server.at("completion", last - 3, 21)))
    assert {"SR_TID.X", "threadIdx.x"} <= set(names(server.at("completion", last - 2, 24)))
    items = server.at("completion", last - 1, 4)
    one = next(item for item in items if item["label"] == ".registers")
    assert one["textEdit"]["range"]["start"]["character"] == 0
    server.close()


def test_definition_and_references(opened):
    n = line(SOURCE, "STG")
    column = SOURCE.split("\n")[n].index("value")
    place = opened.at("definition", n, column)
    assert place["range"]["start"] == {"line": 9, "character": 6}
    places = opened.at("references", n, column, context={"includeDeclaration": True})
    assert [one["range"]["start"]["line"] for one in places] == [9, n - 1, n]  # not that of the comment
    place = opened.at("definition", line(SOURCE, "BRA"), 18)
    assert place["range"]["start"]["line"] == line(SOURCE, "again:")


def test_rename(opened):
    before = turingas.assemble(SOURCE).to_bytes()
    new_names = ("STG", "value", "word"), ("BRA", "again", "L_top"), ("S2R", "index", "i"), ("MOV from0", "input", "x")
    for where, old, new in new_names:
        n = line(SOURCE, where)
        column = SOURCE.split("\n")[n].index(old)
        edit = opened.at("rename", n, column, newName=new)
        made = applied(SOURCE, edit["changes"][URI])
        code = "\n".join(row.partition("#")[0] for row in made.split("\n"))
        assert not re.search(rf"\b{old}\b", code) and "# value" in made
        if old != "input":  # the names of parameters are kept in a cubin
            assert turingas.assemble(made).to_bytes() == before


NUMBERS = """\
.arch sm_75
.kernel one
# what one does
--:-:0:-:1   S2R R0, SR_TID.X;
01:-:-:Y:d   ISETP.LT.AND P0, PT, R0, 0x4, PT;   # R0
--:-:-:-:5   @P0 IADD3 R2, R0.reuse, -R0, RZ;
--:-:-:-:5   STS [R0+0x4], R2;
--:-:-:Y:5   EXIT;
.kernel two
<regs>
1 : width
</regs>
--:-:-:-:5   MOV R0, RZ;
--:-:-:Y:5   EXIT;
"""


def test_rename_of_a_register_gives_it_a_name(server):
    """Of all of its kernel, and declared there; the code stays."""
    before = turingas.assemble(NUMBERS).to_bytes()
    server.open(NUMBERS)
    n = line(NUMBERS, "IADD3")
    column = NUMBERS.split("\n")[n].index("R0")
    assert len(server.at("references", n, column, context={"includeDeclaration": True})) == 5
    made = applied(NUMBERS, server.at("rename", n, column, newName="tid")["changes"][URI])
    assert "@P0 IADD3 R2, tid.reuse, -tid, RZ;" in made and "MOV R0, RZ" in made and "# R0" in made
    assert ".kernel one\n<regs>\n0 : tid\n</regs>\n# what one does\n" in made
    assert turingas.assemble(made).to_bytes() == before
    with pytest.raises(Failed, match="another number in <regs>"):
        server.at("rename", n, column, newName="R7")
    n = line(NUMBERS, "MOV R0")
    made = applied(NUMBERS, server.at("rename", n, NUMBERS.split("\n")[n].index("R0"), newName="zero")["changes"][URI])
    assert "1 : width\n0 : zero\n</regs>" in made and turingas.assemble(made).to_bytes() == before
    n = line(NUMBERS, "ISETP")
    made = applied(NUMBERS, server.at("rename", n, NUMBERS.split("\n")[n].index("P0"), newName="few")["changes"][URI])
    assert "@few IADD3" in made and "P0 : few" in made and turingas.assemble(made).to_bytes() == before
    server.close()


@pytest.mark.parametrize("what, column, new, said", [
    ("from0, input", 17, "x", "as a range"), ("S2R", 17, "R7", "not a valid name"), ("S2R", 17, "value", "already"),
    ("S2R", 13, "x", "no name"), (".kernel", 9, "x", "other programs"),
])  # fmt: skip
def test_rename_is_refused(opened, what, column, new, said):
    with pytest.raises(Failed, match=said):
        opened.at("rename", line(SOURCE, what), column, newName=new)


def test_rename_is_refused_where_python_has_the_name(server):
    server.open(SOURCE + "<code>\nout_ = 'MOV value, RZ;'\n</code>\n")
    with pytest.raises(Failed, match="inline Python"):
        server.at("rename", line(SOURCE, "STG"), SOURCE.split("\n")[line(SOURCE, "STG")].index("value"), newName="x")
    server.close()


def test_hints(server):
    text = SOURCE.replace("01:-:-:-:6   IMAD", "             IMAD")
    server.open(text)
    hints = server.of("inlayHint", **EVERYWHERE)
    rows = {}
    for hint in hints:
        rows.setdefault(hint["position"]["line"], []).append(hint["label"])
    assert rows[line(SOURCE, "S2R")][-1].endswith("1 live")
    front, behind = rows[line(SOURCE, "IMAD.WIDE to0")]
    assert re.fullmatch(r"\S+:-:-:[-Y]:\w", front) and "live" in behind
    place = {"line": line(SOURCE, "IMAD.WIDE to0"), "character": 0}
    context = {"diagnostics": [], "only": ["refactor.rewrite"]}
    actions = server.of("codeAction", range={"start": place, "end": place}, context=context)
    written = next(action for action in actions if "filled in" in action["title"])
    made = applied(text, written["edit"]["changes"][URI])
    assert turingas.assemble(made).to_bytes() == turingas.assemble(text).to_bytes()
    server.close()


def test_folding(opened):
    folds = [(one["startLine"], one["endLine"]) for one in opened.of("foldingRange")]
    assert folds == [(0, 21), (1, 4), (5, 10), (line(SOURCE, "again:"), line(SOURCE, "BRA"))]


def test_symbols(opened):
    found = {one["name"]: one["detail"] for one in opened.of("documentSymbol")}
    assert found["to1"] == "R5" and {"copy", "again", "input"} <= set(found)


def test_inline_python_is_not_run(tmp_path):
    touched = tmp_path / "touched"
    text = f"<code>\nopen({str(touched)!r}, 'w')\nout_ = 'NOP;'\n</code>\n--:-:-:Y:5  EXIT;\n"
    client = Client(options={"arch": "sm_90"})
    (one,) = client.open(text)
    assert (one["severity"], "not run" in one["message"], "allowPython" in one["message"]) == (3, True, True)
    client.at("hover", 4, 13)
    client.of("inlayHint", **EVERYWHERE)
    client.of("codeAction", range=EVERYWHERE["range"], context={"diagnostics": []})
    assert not touched.exists()
    client.tell("workspace/didChangeConfiguration", {"settings": {"turingas": {"allowPython": True}}})
    assert not [found for found in client.diagnostics() if found["severity"] == 1]
    assert touched.exists()
    assert client.end() == 0


def test_columns_of_other_scripts(server):
    """Columns count UTF-16 units, as editors do."""
    text = "/* 𝛼𝛽 */ --:-:-:-:1  FOO R0;\n--:-:-:Y:5  EXIT;\n"
    (one,) = [found for found in server.open(text) if found["severity"] == 1]
    assert one["range"]["start"]["character"] == len(text.split("\n")[0][: text.index("FOO")].encode("utf-16-le")) // 2
    server.close()


def test_formatting(server):
    messy = SOURCE.replace("--:-:2:-:2   LDG.E value, [from0];", "--:-:2:-:2 @PT  LDG.E   value,  [from0] ; # x")
    server.open(messy)
    made = applied(messy, server.of("formatting", options={"tabSize": 4, "insertSpaces": True}))
    assert "--:-:2:-:2  @PT  LDG.E value, [from0];" in made.replace(" ;", ";")
    assert turingas.assemble(made).to_bytes() == turingas.assemble(messy).to_bytes()
    server.close()


def test_pygls_is_missing(monkeypatch):
    real = builtins.__import__

    def without(name, *rest):
        if name.partition(".")[0] in ("pygls", "lsprotocol") or name == "turingas.editor.server":
            raise ModuleNotFoundError("no", name="pygls")
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    result = CliRunner().invoke(main, ["lsp"])
    assert result.exit_code == 1 and "pygls>=2" in result.output


def test_shipped_sources_are_formatted_without_a_change_of_meaning():
    from turingas.editor.text import Text

    for path in sorted(ROOT.glob("kernels_sass/learn/*.sass")) + sorted(ROOT.glob("examples/*.sass")):
        source = path.read_text()
        once = Text(source).formatted()
        assert Text("\n".join(once)).formatted() == once
        sections = [re.sub(r"\s+", "", a) == re.sub(r"\s+", "", b) for a, b in zip(source.split("\n"), once)]
        assert all(sections), path
