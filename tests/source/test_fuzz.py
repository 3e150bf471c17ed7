"""Any text gives items or AsmError, in bounded time."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from turingas.errors import AsmError
from turingas.source import python, read

WORDS = (
    "<regs> </regs> <params> </params> <consts> </consts> <smem> </smem> <code> </code> 0-3:a<0-3> 4~b p,8 q,8=1,2 64 "
    "out_='NOP;' x=1 { } {x} {1/0} {'a'*9} # // /* */ ; : , --:-:-:Y:4 15:0:1:-:f B0-----:R-:W0:Y:S04 @!P0 @b FFMA "
    "a0,a1 p[1] MOV LDG.E [a1+0x10] [a0-b] IADD3.X LOP3.LUT P2R LDC c[0x3][0x0] BRA LOOP LOOP: .L_x: .kernel .function "
    '.word 0x1 .include .param n `(a0) c[0x0][ a0 blockDim.x " \\ é - :: . < >'
)
BREAKS = ["\n", "\n", "\n", " ", " ", ", ", "\t", "\r\n", "\x0c", "\x85", "\ud800", "while True: x", "def f(): f()"]
PIECES = st.sampled_from(WORDS.split() + BREAKS)


def check(source, allow_python):
    try:
        parsed = read(source, "k.sass", allow_python=allow_python)
    except AsmError as error:
        errors = error.errors
    else:
        errors = parsed.errors
        for item in parsed.items:
            errors = [*errors, item.error("x")]
    for error in errors:
        assert error.message and error.show()
        assert error.line >= 0 and error.column >= 0


@pytest.fixture(autouse=True)
def few_steps(monkeypatch):
    monkeypatch.setattr(python, "MAX_STEPS", 500)
    monkeypatch.setattr(python, "MAX_GENERATED", 2000)


SETTINGS = settings(
    max_examples=300, deadline=2000, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


@SETTINGS
@given(st.lists(PIECES, max_size=30).map("".join))
def test_pieces(source):
    check(source, allow_python=True)


@SETTINGS
@given(st.text())
def test_text(source):
    check(source, allow_python=False)


@SETTINGS
@given(st.text(alphabet="ab01.:;-~,<>[]{}()@!/*#_ \n", max_size=200))
def test_punctuation(source):
    check("<regs>\n0-1 : a, b\n</regs>\n" + source, allow_python=False)


@pytest.mark.parametrize(
    "source",
    [
        "a" * 200_000,
        ":" * 100_000,
        "a: " * 50_000,
        "{" * 50_000,
        "{" * 3000 + "}" * 3000,
        "/*" * 50_000,
        "<regs>" * 10_000,
        "--:-:-:-:1 MOV " + "R0, " * 20_000 + ";",
        "--:-:-:-:1 MOV " + "[" * 50_000 + ";",
        "--:-:-:-:1 MOV " + "a" * 50_000 + "[" * 1000,
        "<regs>\n0-1 : " + "a<" * 20_000 + "\n</regs>",
        ".x " + '"' * 50_001,
        " " * 100_000 + ":",
        "\n" * 100_000,
        "<code>\n" + "(" * 10_000 + "\n</code>",
        "<code>\nx = " + "-" * 10_000 + "1\n</code>",
    ],
    ids=range(16),
)
def test_long_lines_are_linear(source):
    check(source, allow_python=True)
