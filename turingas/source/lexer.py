"""Pygments lexer of .sass files. Its alias is `nvsass`: `sass` is the style sheet language with the same suffix."""

# Pygments has no types.
# mypy: disable-error-code="import-untyped,misc"

from __future__ import annotations

import re
from typing import ClassVar

from pygments.lexer import RegexLexer, bygroups, default, include, using
from pygments.lexers.python import PythonLexer
from pygments.token import (
    Comment,
    Error,
    Keyword,
    Literal,
    Name,
    Number,
    Operator,
    Punctuation,
    String,
    Text,
    Whitespace,
)

_CONTROL = r"(\[?[^\s:;\[\]]*:[^\s:;]*:[^\s;\]]*\]?)"


class SassLexer(RegexLexer):
    """NVIDIA SASS as turingas reads and writes it."""

    name = "NVIDIA SASS"
    aliases: ClassVar[list[str]] = ["nvsass", "turingas"]
    filenames: ClassVar[list[str]] = ["*.sass"]
    mimetypes: ClassVar[list[str]] = ["text/x-nvidia-sass"]
    url = "https://github.com/daadaada/turingas"
    flags = re.MULTILINE | re.IGNORECASE

    tokens: ClassVar[dict[str, list[object]]] = {
        "comments": [
            (r"(#|//).*", Comment.Single),
            (r"/\*", Comment.Multiline, "comment"),
        ],
        "comment": [
            (r"[^*]+", Comment.Multiline),
            (r"\*/", Comment.Multiline, "#pop"),
            (r"\*", Comment.Multiline),
        ],
        "root": [
            (r"\s+", Whitespace),
            include("comments"),
            (
                r"^([ \t]*)(<code>)(.*\n(?:.*\n)*?)([ \t]*</code>)",
                bygroups(Whitespace, Name.Tag, using(PythonLexer), Name.Tag),
            ),
            (r"<(regs|params|consts|smem)>", Name.Tag, "block"),
            (r"\.include\b", Keyword.Namespace, "arguments"),
            (r"([A-Za-z_.$][\w.$]*)(\s*)(:)(?!:)(?![^\s;]*:)", bygroups(Name.Label, Whitespace, Punctuation)),
            (r"\.[a-z_]\w*", Keyword.Namespace, "arguments"),
            (_CONTROL, Literal.Number.Other, "instruction"),
            default("instruction"),
        ],
        "block": [
            (r"\s+", Whitespace),
            include("comments"),
            (r"</\w+>", Name.Tag, "#pop"),
            (r"0x[0-9a-f]+|\d+", Number.Integer),
            (r"[a-z_]\w*", Name.Variable),
            include("expression"),
            (r"[-~:,<>=.]", Punctuation),
            (r".", Error),
        ],
        "arguments": [
            (r"\n", Whitespace, "#pop"),
            (r"[ \t\r]+", Whitespace),
            include("comments"),
            (r'"(\\.|[^"\\\n])*"', String),
            (r"0x[0-9a-f]+", Number.Hex),
            (r"\d+\b", Number.Integer),
            include("expression"),
            (r"[\w.$%@/-]+", Name),
            (r"[=,;:+]", Punctuation),
            (r".", Text),
        ],
        "expression": [
            (r"(\{)([^{}\n]*)(\})", bygroups(String.Interpol, using(PythonLexer), String.Interpol)),
        ],
        "instruction": [
            (r"\n", Whitespace, "#pop"),
            (r"[ \t\r]+", Whitespace),
            include("comments"),
            (r"@!?\w+", Name.Decorator),
            (r"([A-Za-z]\w*)((?:\.\w+)*)", bygroups(Keyword, Keyword.Type), "operands"),
            include("expression"),
            (r";", Punctuation),
            (r".", Text),
        ],
        "operands": [
            (r"\n", Whitespace, "#pop:2"),
            (r"[ \t\r]+", Whitespace),
            include("comments"),
            (r";", Punctuation),
            (r"\.reuse\b", Keyword.Pseudo),
            (r"\.\w+", Keyword.Type),
            (r"\bSRZ?_?[\w]*\.[xyz]\b|\bSR_\w+|\bSRZ\b|\b(blockDim|gridDim|threadIdx|blockIdx)\.[xyz]\b", Name.Builtin),
            (r"\bU?(R(\d+|Z)|P[0-7T])\b", Name.Variable),
            (r"\bcx?(?=\[)|\bg?desc(?=\[)", Name.Constant),
            (r"0x[0-9a-f]+", Number.Hex),
            (r"\d+\.\d*(e[-+]?\d+)?|\d+e[-+]?\d+", Number.Float),
            (r"\d+\b", Number.Integer),
            (r"`\([^)\n]*\)", Name.Label),
            include("expression"),
            (r"[A-Za-z_$][\w$]*", Name),
            (r"[-+!~|*]", Operator),
            (r"[\[\](),:]", Punctuation),
            (r".", Text),
        ],
    }

    @staticmethod
    def analyse_text(text: str) -> float:
        """Tell SASS from the style sheets that share its suffix."""
        if re.search(r"^\s*<(regs|params|code)>", text, re.M | re.I) or re.search(r"^\s*\.kernel\b", text, re.M):
            return 1.0
        return 0.9 if re.search(r"^\s*[-\d]{2}:[-\d]:[-\d]:[-yY]:\S\s+[@A-Z]", text, re.M) else 0.0
