"""Includes, <code> blocks, {expressions} and comments."""

import importlib
import os
import sys
import threading
import time
from pathlib import Path

import pytest

from turingas.errors import AsmError, raise_all
from turingas.source import expand as stage
from turingas.source import python
from turingas.source.lines import column_in, decode


def expand(*args, **options):
    lines, errors = stage.expand(*args, **options)
    raise_all(errors)
    return lines


def texts(source, **options):
    return [line.text.strip() for line in expand(source, "k.sass", **options)]


def failure(source, **options):
    with pytest.raises(AsmError) as caught:
        expand(source, "k.sass", **options)
    return caught.value


# Comments


@pytest.mark.parametrize(
    "source, kept",
    [
        ("NOP; # c", ["NOP;"]),
        ("NOP; // c", ["NOP;"]),
        ("/*0010*/ NOP ; /* 0x000 */", ["NOP ;"]),
        ("a /* b\nc\nd */ e", ["a", "e"]),
        ("a /**/ b /* c */ d", ["a      b         d"]),
        ("# <code>\n#</code>\nNOP;", ["NOP;"]),
        ("/*\n<code>\nout_ = 'x'\n</code>\n*/\nNOP;", ["NOP;"]),
        ('.section "a#b//c{" # d', ['.section "a#b//c{"']),
        ("MOV R0, {7//2}; // {1/0}", ["MOV R0, 3;"]),
        ("MOV R0, {len('#')};", ["MOV R0, 1;"]),
        ("# {undefined}", []),
        ("\ufeff"[1:] + "NOP;\r\nEXIT;\rRET;", ["NOP;", "EXIT;", "RET;"]),
    ],
)
def test_comments(source, kept):
    assert texts(source) == kept


def test_comment_that_never_ends():
    error = failure("NOP;\n  /* open\nNOP;")
    assert (error.line, error.column, error.message) == (2, 3, "/* is never closed")


# Inline Python


def test_code_block_leaves_its_text():
    source = "<code>\nout = []\nfor i in range(3):\n  out.append(f'NOP {i};')\nout_ = '\\n'.join(out)\n</code>\nEXIT;"
    assert texts(source) == ["NOP 0;", "NOP 1;", "NOP 2;", "EXIT;"]


@pytest.mark.parametrize("tag", ["code", "CODE", "Code"])
def test_block_tags_in_any_case(tag):
    assert texts(f"  <{tag}>\nout_ = 'A;'\n\t</{tag}>\n") == ["A;"]


def test_blocks_share_a_namespace_and_run_before_expressions():
    assert texts("MOV {n};\n<code>\nn = 1\n</code>\n<code>\nn += 1\nout_ = f'A {n};'\n</code>") == ["MOV 2;", "A 2;"]


def test_out_starts_empty_in_every_block():
    assert texts("<code>\nout_ = 'A;'\n</code>\n<code>\nx = 1\n</code>\n<code>\nout_ += 'B;'\n</code>") == ["A;", "B;"]


def test_values_of_expressions_may_hold_comments():
    source = "<code>\nlines = 'NOP;  # one\\n/* none */ EXIT;  // two'\n</code>\n{lines}"
    assert [text.strip() for text in texts(source)] == ["NOP;", "EXIT;"]


def test_generated_lines_may_hold_expressions_and_comments():
    assert texts("<code>\nn = 5\nout_ = 'MOV {n}; # {m}'\n</code>") == ["MOV 5;"]


def test_indented_block():
    assert texts("  <code>\n    for i in range(2):\n      out_ += f'A{i};\\n'\n  </code>") == ["A0;", "A1;"]


@pytest.mark.parametrize(
    "text, value",
    [
        ("{2**5}", "32"),
        ("{1}, {2}", "1, 2"),
        ("{ {'a': 3}['a'] }", "3"),
        ("{f'{1+1}'}", "2"),
        ("{'}'}", "}"),
        ("{[i for i in range(3)][-1]}", "2"),
        ("{'a\\nb'}", "a"),
        ("DEPBAR.LE SB0, {1+1}, {3,1}", "DEPBAR.LE SB0, 2, {3,1}"),
    ],
)
def test_expressions(text, value):
    assert texts(text)[0] == value


def test_defines_and_architecture_are_variables():
    assert texts("{N + 1} {ARCH}", defines={"N": 4}, arch="sm_90") == ["5 sm_90"]
    assert "not a Python name" in failure("", defines={"2x": 1}).message


def test_a_define_that_nobody_uses(tmp_path):
    """A slip of the pen would else be measured as if it were another schedule."""
    found = failure("<code>\nn = YIELD\n</code>\nNOP", defines={"YEILD": 3})
    assert found.message == "YEILD is defined, but the source never uses it" and found.hint == "did you mean 'YIELD'?"
    assert failure("NOP", defines={"N": 1}).hint == ""
    (tmp_path / "more.py").write_text("M = N")
    (tmp_path / "more.sass").write_text("{K}")
    text = '.include "more.py"\n.include "more.sass"'
    assert texts(text, defines={"N": 1, "K": 2}, include=[str(tmp_path)]) == ["2"]
    assert "N is defined" in failure("{n} NOPN # KN", defines={"n": 1, "N": 1}).message  # whole words
    lines, errors = stage.expand("{K + 1}", "k.sass", {"K": 1, "N": 1})     # the rest is read as without it
    assert [line.text for line in lines] == ["2"] and len(errors) == 1


@pytest.mark.parametrize("code, line, hint", [
    ("N = 4", 2, 'N = globals().get("N", 4) takes what is defined'),
    ("  M = 1\n  N, (K, *L) = 1, (2, 3)", 3, 'N = globals().get("N", ...) takes what is defined'),
    ("N: int = 4", 2, 'N = globals().get("N", ...) takes what is defined'),
    ("M = N = [" + "4, " * 40 + "]", 2, 'N = globals().get("N", ...) takes what is defined'),
    ("import math as N", 2, ""), ("from math import pi as N", 2, ""), ("\ndef N():\n    return 1", 3, ""),
    ("class N:\n    pass", 2, ""), ("M, *N = 1, 2", 2, ""),
])  # fmt: skip
def test_a_define_that_the_source_sets_itself(code, line, hint):
    """What is asked for would have no effect."""
    source = f"<code>\n{code}\n</code>\nMOV R0, {{N}};"
    found = failure(source, defines={"N": 8})
    assert found.message == "N is defined, but the source sets it here without a look at that"
    assert (found.file, found.line) == ("k.sass", line) and found.column == found.text.index("N") + 1
    assert hint in found.hint
    assert not stage.expand(source, "k.sass")[1]


@pytest.mark.parametrize("code", [
    'N = globals().get("N", 4)', "N = N + 1", "N += 1", "M = N\nN = 4", "if M:\n    N = 4", "for N in range(2): pass",
    "if 'N' not in globals(): N = 4", "def f():\n    N = 4", "def f():\n    global N\n    N = 4", "N: int",
    "known = dict(N=4)\nN = known", "def f(N): pass\nN = 1", "[N for N in (1, 2)]",
    "for name, default in (('N', 1), ('K', 2)):\n    globals().setdefault(name, default)\nN = int(N)",
    "out_ = 'MOV R0, {N}'", "def f():\n    global N\n    import math as N\nN = 1",
])  # fmt: skip
def test_a_define_that_the_source_may_look_at(code):
    """No one is refused whom nothing is known against."""
    assert not stage.expand(f"<code>\nM = 1\n{code}\n</code>\nMOV R0, {{N}};", "k.sass", {"N": 8})[1]


def test_a_define_that_an_include_sets(tmp_path):
    (tmp_path / "more.py").write_text("# N\n\nN = 4\n")
    (tmp_path / "more.sass").write_text("<code>\nK = 1\n</code>\n{N} {K}\n")
    text = '.include "more.py"\n.include "more.sass"'
    errors = stage.expand(text, "k.sass", {"N": 1, "K": 2}, [str(tmp_path)])[1]
    assert [(Path(one.file).name, one.line) for one in errors] == [("more.py", 3), ("more.sass", 2)]
    assert "note: included from k.sass:2:" in errors[1].notes


def test_a_define_that_no_python_reads():
    """A word of the source that is no Python's: an instruction, a register's name, a comment."""
    for source, line in (("NOP;\nMOV R0, R1;", 2), ("# the MOV\n{1 + 1}", 1),
                         ("<code>\nx = 1\n</code>\nMOV R0, {x};", 4)):  # fmt: skip
        found = failure(source, defines={"MOV": 3})
        assert found.message == "MOV is defined, but no Python reads it" and found.hint.startswith("{MOV} stands for")
        assert found.line == line and found.column == found.text.index("MOV") + 1
    assert texts("<code>\nout_ = '{MOV}'\n</code>\n MOV {N}", defines={"MOV": 3, "N": 2}) == ["3", "MOV 2"]
    assert "ZeroDivision" in failure("<code>\n1 / 0\n</code>\nMOV", defines={"MOV": 3}).message  # who knows


def test_print_goes_to_stderr(capsys):
    texts("<code>\nprint('hello')\n</code>")
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "hello\n")


@pytest.mark.parametrize(
    "source, line, column, message",
    [
        ("\n<code>\nx = 1\ny = 1/0\n</code>", 4, 0, "ZeroDivisionError: division by zero"),
        ("<code>\nx = = 1\n</code>", 2, 5, "invalid syntax"),
        ("<code>\n   x = 1\n  y = 2\n</code>", 2, 0, "unexpected indent"),
        ("<code>\nexit(3)\n</code>", 2, 0, "SystemExit"),
        ("<code>\nout_ = ['A']\n</code>", 1, 0, "out_ must be a string; it is of type list"),
        ("<code>\nx = 1", 1, 0, "<code> is never closed"),
        ("<code>\n</code> NOP;", 2, 8, "text after </code>"),
        ("NOP;\n  MOV {missing};", 2, 7, "NameError"),
        ("MOV {1 +};", 1, 5, "invalid syntax"),
        ("MOV {};", 1, 5, "inline Python"),
        ("MOV {(1};", 1, 5, "{ is never closed"),
        ("<code>\ndef f():\n  raise ValueError('x' * 999)\nf()\n</code>", 3, 0, "ValueError: xxx"),
        ("a\0b", 1, 2, "NUL"),
    ],
)
def test_failures_name_their_line(source, line, column, message):
    error = failure(source)
    assert message in error.message
    assert error.file == "k.sass" and error.line == line
    assert error.column == column or (column == 0 and error.column >= 0)


def test_failure_shows_the_calls_that_led_there():
    error = failure("<code>\ndef f():\n  return 1/0\nf()\n</code>")
    assert error.line == 3 and error.text == "  return 1/0"
    assert error.notes[0].startswith("note: called from k.sass:4")
    error = failure("<code>\ndef f():\n  return 1/0\n</code>\nMOV {f()};")
    assert error.line == 5 and error.notes[0].startswith("note: in k.sass:3 in f")


def test_exceptions_that_cannot_be_shown():
    assert "E" in failure("<code>\nclass E(Exception):\n  def __str__(self): 1/0\nraise E\n</code>").message


def test_every_broken_expression_is_reported():
    error = failure("{a}\n{b}\nNOP;\n{c}")
    assert [one.line for one in error.errors] == [1, 2, 4]


@pytest.mark.parametrize(
    "body",
    [
        "while True: pass",
        "while True: out_ += 'NOP;\\n'",
        "while True:\n  try: x = 1\n  except Exception: pass",
        "while True:\n  try:\n    while True: x = 1\n  except:\n    pass",
        "f = lambda n: f(n - 1) + f(n - 1) if n else 1\nf(200)",
        "def f(n): return f(n - 1) + f(n - 1) if n else 1\nf(200)",
        "[0 for i in iter(int, 1)]",
        "def f():\n  while 1: pass\nf()",
    ],
)
def test_endless_loops_end(monkeypatch, body):
    monkeypatch.setattr(python, "MAX_STEPS", 20_000)
    started = time.monotonic()
    error = failure(f"<code>\n{body}\n</code>")
    assert "steps" in error.message and time.monotonic() - started < 5
    assert 1 < error.line <= 1 + len(body.split("\n"))


def test_endless_expression_ends(monkeypatch):
    monkeypatch.setattr(python, "MAX_STEPS", 20_000)
    assert "steps" in failure("MOV {[0 for i in iter(int, 1)]};").message


def test_limits_hold_in_any_thread(monkeypatch):
    monkeypatch.setattr(python, "MAX_STEPS", 1000)
    errors = []
    thread = threading.Thread(target=lambda: errors.append(failure("<code>\nwhile True: pass\n</code>")))
    thread.start()
    thread.join(20)
    assert "steps" in errors[0].message


def test_endless_text_ends(monkeypatch):
    monkeypatch.setattr(python, "MAX_GENERATED", 1000)
    assert "text" in failure("<code>\nout_ = 'x'\nwhile True:\n  out_ += out_\n</code>").message
    assert "text" in failure("<code>\nout_ = 'x' * 2000\n</code>").message
    assert "text" in failure("{'x' * 600}\n{'x' * 600}").message


def test_no_python():
    for source in ("<code>\n</code>", "MOV {1};"):
        error = failure(source, allow_python=False)
        assert "refused" in error.message and error.line == 1
    assert texts("NOP;", allow_python=False) == ["NOP;"]


# Origins


def test_generated_lines_name_their_block():
    line = expand("NOP;\n\n<code>\nout_ = 'A;\\n\\nB;'\n</code>", "k.sass")[-1]
    error = line.origin.error("bad", column=1)
    assert (error.line, error.text) == (3, "B;")
    assert error.notes == ("note: line 3 of the text that this block generated:", "    3 | <code>")


@pytest.mark.parametrize(
    "written, plain, position, column",
    [
        ("  MOV a, b;", "MOV R1, R2", 0, 3),
        ("  MOV a, b;", "MOV R1, R2", 8, 10),
        ("MOV {1+1}, R0", "MOV 2, R0", 7, 12),
        ("LDG.E tmp, [x+y]", "LDG.E.SYS R1, [R2+R3]", 15, 13),
        ("NOP", "NOP", 99, 4),
    ],
)
def test_columns_survive_replacement(written, plain, position, column):
    assert column_in(written, plain, position) == column


# Includes


def test_include(tmp_path):
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "a.sass").write_text(".include b.sass\nA;")
    (tmp_path / "lib" / "b.sass").write_text("B {f(1)};")
    (tmp_path / "f.py").write_text("def f(x):\n  return x / len([])\n")
    main = str(tmp_path / "main.sass")
    source = '.include "a.sass" # twice is fine\n.include "a.sass"\n.include f.py'
    with pytest.raises(AsmError) as caught:
        expand(source, main, include=[str(tmp_path / "lib")])
    error = caught.value
    assert error.file == str(tmp_path / "lib" / "b.sass") and "ZeroDivisionError" in error.message
    assert f"note: included from {tmp_path / 'lib' / 'a.sass'}:1:" in error.notes
    assert f"note: included from {main}:1:" in error.notes
    (tmp_path / "f.py").write_text("def f(x):\n  return x + 1\n")
    assert [line.text for line in expand(source, main, include=[str(tmp_path / "lib")])] == ["B 2;", "A;"] * 2


def test_python_file_runs_first_as_with_inc(tmp_path):
    helper = tmp_path / "helper.py"
    helper.write_text("def twice(x):\n  return 2 * x\n")
    assert texts("{twice(4)}", include=[str(helper)]) == ["8"]
    helper.write_text("x = 1\n1/0\n")
    error = failure("NOP;", include=[str(helper)])
    assert (error.file, error.line) == (str(helper), 2)
    with pytest.raises(AsmError, match="refused"):
        expand("NOP;", include=[str(helper)], allow_python=False)


def test_recursive_include(tmp_path):
    main = tmp_path / "main.sass"
    main.write_text(".include main.sass")
    with pytest.raises(AsmError, match="includes itself"):
        expand(main.read_text(), str(main))
    (tmp_path / "a.sass").write_text("\n.include b.sass")
    (tmp_path / "b.sass").write_text(".include a.sass")
    with pytest.raises(AsmError, match="includes itself") as caught:
        expand(".include a.sass", str(main))
    assert caught.value.file == str(tmp_path / "b.sass")


def test_includes_that_multiply_end(tmp_path, monkeypatch):
    monkeypatch.setattr("turingas.source.expand.MAX_LINES", 1000)
    for n in range(30):
        (tmp_path / f"{n}.sass").write_text(f".include {n + 1}.sass\n" * 4)
    (tmp_path / "30.sass").write_text("NOP;")
    with pytest.raises(AsmError, match="lines generated or included"):
        expand(".include 0.sass", str(tmp_path / "main.sass"))


@pytest.mark.parametrize("line, message", [(".include", "one file name"), (".include a b", "one file name"),
                                           (".include nowhere.sass", "cannot find"), ('.include "a\tb"', "cannot find"),
                                           (".include ..", "cannot find")])  # fmt: skip
def test_broken_include(line, message):
    assert message in failure(line).message


def test_include_of_what_is_no_text(tmp_path):
    (tmp_path / "a.sass").write_bytes(b"NOP;\nx\xff")
    with pytest.raises(AsmError, match="not UTF-8") as caught:
        expand(".include a.sass", str(tmp_path / "main.sass"))
    assert (caught.value.line, caught.value.column) == (2, 2)


def test_decode():
    assert decode(b"\xef\xbb\xbfNOP;", "x") == "NOP;"
    with pytest.raises(AsmError) as caught:
        decode("é = 1\né\xff".encode("latin-1"), "x")
    assert (caught.value.line, caught.value.column) == (1, 1)
    assert "UTF-8" in caught.value.hint


# Modules beside the source


HELPED = "<code>\nimport helper\nout_ = f'MOV R0, {helper.N};'\n</code>"


def helped(tmp_path, **numbers):
    """Sources in folders of their own, each with a helper.py of its own."""
    for name, number in numbers.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "helper.py").write_text(f"N = {number}\n")
        (tmp_path / name / "k.sass").write_text(HELPED)
    return [str(tmp_path / name / "k.sass") for name in numbers]


def test_each_source_imports_the_modules_beside_it(tmp_path):
    path, modules = list(sys.path), set(sys.modules)
    for number, file in enumerate(helped(tmp_path, a=0, b=1, c=2)):
        assert [line.text for line in expand(HELPED, file)] == [f"MOV R0, {number};"]
    assert sys.path == path and "helper" not in set(sys.modules) - modules


def test_a_module_of_the_program_does_not_take_the_place_of_one_beside_the_source(tmp_path, monkeypatch):
    file, program = helped(tmp_path, a=1, program=7)
    monkeypatch.syspath_prepend(os.path.dirname(program))
    own = importlib.import_module("helper")
    try:
        assert [line.text for line in expand(HELPED, file)] == ["MOV R0, 1;"]
        assert sys.modules["helper"] is own and own.N == 7
    finally:
        del sys.modules["helper"]


def test_modules_of_include_folders(tmp_path):
    helped(tmp_path, a=5)
    assert [line.text for line in expand(HELPED, None, include=[tmp_path / "a"])] == ["MOV R0, 5;"]


def test_a_long_chain_of_includes_is_no_circle(tmp_path):
    for n in range(40):
        (tmp_path / f"{n}.sass").write_text(f'.include "{n + 1}.sass"\n')
    with pytest.raises(AsmError, match="includes are nested more than 32 deep"):
        expand('.include "0.sass"', str(tmp_path / "k.sass"))
