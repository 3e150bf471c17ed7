"""The .sass files of this folder: what must be encoded to which word, and what must be refused with which message."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import turingas
from turingas.errors import AsmError
from turingas.isa.isa import instruction_set

HERE = Path(__file__).parent
#: further architectures on which the lines of a file mean the same words, or are refused
SIBLINGS = {
    "sm_80": ("sm_86",), "sm_90a": ("sm_90",), "sm_100": ("sm_100a", "sm_103"), "sm_120": ("sm_121",)
}  # fmt: skip


def valid_lines(path: Path) -> tuple[str, list[str], list[int]]:
    """Read the architecture, the lines and their words."""
    text = path.read_text()
    arch = re.search(r"^# arch: (\S+)", text, re.M)
    assert arch, path
    found = [line.split("  # ") for line in text.splitlines() if not line.startswith("#")]
    return arch[1], [line for line, _ in found], [int(word, 16) for _, word in found]


@pytest.mark.parametrize("path", sorted(HERE.glob("*_valid.sass")), ids=lambda path: path.stem)
def test_valid(path):
    arch, lines, words = valid_lines(path)
    got = turingas.encode("\n".join(lines), arch)
    wrong = [(line, f"{a:032x}", f"{b:032x}") for line, a, b in zip(lines, words, got) if a != b]
    assert not wrong and len(got) == len(words)
    # spaces and the semicolon do not matter
    loose = [re.sub(r"\s*,\s*", " ,   ", line.replace(";", " ")) + "\t" for line in lines]
    assert turingas.encode("\n".join(loose), arch) == words
    shown = turingas.decode(words, arch)
    assert turingas.encode("\n".join(shown), arch) == words


@pytest.mark.parametrize("path", sorted(HERE.glob("*_valid.sass")), ids=lambda path: path.stem)
def test_siblings_agree_or_refuse(path):
    arch, lines, words = valid_lines(path)
    for sibling in SIBLINGS.get(arch, ()):
        same = 0
        for n, (line, word) in enumerate(zip(lines, words)):
            try:
                assert turingas.encode(line, sibling, address=16 * n) == [word], (sibling, line)
                same += 1
            except AsmError:
                pass
        assert same > 0.9 * len(lines)


def test_every_common_mnemonic_has_a_line():
    for path in HERE.glob("*_valid.sass"):
        arch, lines, _ = valid_lines(path)
        named = {re.sub(r"^\S+\s+(@\S+ )?", "", line).partition(" ")[0].partition(".")[0].rstrip(";") for line in lines}
        missing = set(instruction_set(arch).mnemonics()) - named
        assert len(missing) < 32, f"{path.name} has no line for {sorted(missing)}"


def invalid_lines() -> Iterator[tuple[str, str, int, str, str]]:
    """Yield architecture, line, column, message and hint of every case."""
    for path in sorted(HERE.glob("*_invalid.sass")):
        arch, case = "", [""]
        for line in [*path.read_text().splitlines(), "end"]:
            if not line.startswith("#"):
                if case[0]:
                    place = next(text for text in case if re.match(r"# *\^ ", text))
                    hint = next((text[8:] for text in case if text.startswith("# hint: ")), "")
                    column, message = re.fullmatch(r"(# *)\^ (.*)", place).groups()  # type: ignore[union-attr]
                    yield arch, case[0], len(column) + 1 if case[0][:1] != "#" else 1, message, hint
                case = [line]
            elif line.startswith("# arch: "):
                arch = line[8:]
            else:
                case.append(line)


@pytest.mark.parametrize("arch, line, column, message, hint", list(invalid_lines()))
def test_invalid(arch, line, column, message, hint):
    with pytest.raises(AsmError) as caught:
        turingas.encode(line, arch)
    error = caught.value
    assert (error.message, error.hint, error.line, error.text) == (message, hint, 1, line)
    # a caret under the first character would stand on the comment sign
    assert error.column == column or (error.column == 1 and column == 2)


def test_all_errors_are_reported():
    """All invalid lines at once: one error each, in order, with the line it is in."""
    cases = [
        case for case in invalid_lines() if case[0] == "sm_75" and "label" not in case[3] and ":" not in case[1][:3]
    ]
    with pytest.raises(AsmError) as caught:
        turingas.encode("\n".join(line for _, line, *_ in cases), "sm_75")
    assert [error.message for error in caught.value.errors] == [message for *_, message, _ in cases]
    assert [error.line for error in caught.value.errors] == list(range(1, len(cases) + 1))
