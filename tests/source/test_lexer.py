"""The Pygments lexer."""

import pytest
from pygments.token import Comment, Error, Keyword, Name, String

from turingas.source.lexer import SassLexer

SOURCE = """# comment
<regs>
0-3 : a<0-3>
</regs>
<code>
out_ = '\\n'.join(f'NOP {i}' for i in range(3))
</code>
.kernel gemm "x"
LOOP:
  [B------:R-:W-:-:S02] /*0010*/ @!P0 LDG.E.128 R20, [R2.64+{4*4}]; // end
01:-:2:Y:4  FFMA a0, R1.reuse, c[0x0][0x160], 1.5e3;
  BRA `(LOOP);
"""


def test_tokens_cover_the_text_without_errors():
    tokens = list(SassLexer().get_tokens(SOURCE))
    assert "".join(text for _, text in tokens) == SOURCE
    assert not [text for kind, text in tokens if kind is Error]


@pytest.mark.parametrize(
    "text, kind",
    [("<regs>", Name.Tag), ("LOOP", Name.Label), ("LDG", Keyword), (".E.128", Keyword.Type), ("R20", Name.Variable),
     ("@!P0", Name.Decorator), ("# comment", Comment.Single), (".kernel", Keyword.Namespace), ("{", String.Interpol),
     (".reuse", Keyword.Pseudo), ("`(LOOP)", Name.Label), ("join", Name)],
)  # fmt: skip
def test_kinds(text, kind):
    assert (kind, text) in list(SassLexer().get_tokens(SOURCE))


def test_sass_is_told_from_style_sheets():
    assert SassLexer.analyse_text(SOURCE) == 1.0
    assert SassLexer.analyse_text("--:-:-:Y:4 NOP;") > 0.5
    assert SassLexer.analyse_text("a\n  color: red\n") == 0.0


@pytest.mark.parametrize("text", ["<regs", "/* open", "<code>\nx", "{" * 50, "`(", "\0", "a:b:c"])
def test_any_text_is_tokenized(text):
    assert "".join(part for _, part in SassLexer().get_tokens(text)).strip() == text.strip()
