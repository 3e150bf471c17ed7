"""Random words of every form, as nvdisasm 13.5.37 prints them (12.4 for sm_70), spacing aside.

What is known to differ stands in EXCEPTIONS with its reason; docs/exceptions.md tells the user.
"""

from __future__ import annotations

import re

import pytest

import turingas
from tests.isa.words import ARCHS, PLAIN, Draw, random_word, sample
from tests.tools import nvdisasm
from turingas.errors import AsmError, EncodeError
from turingas.isa import control
from turingas.isa.fields import Number
from turingas.isa.isa import instruction_set

#: (our text, nvdisasm's text or "" where it refuses the word), the architectures, why
EXCEPTIONS = (
    (r"F2FP\.PACK_AB.*", "", ("sm_75",), "cuBLAS uses it on Turing; nvdisasm passes over it there without a word"),
    (
        r"VIMNMX\.[US]16x2.*",
        r"VIMNMX.*",
        ("sm_90", "sm_90a"),
        "a lone predicate result: nvdisasm prints ???7, or nothing",
    ),
    (
        r".*[+-]SNAN.*",
        r".*[+-]QNAN.*",
        ("sm_70",),
        "nvdisasm 12 calls every NaN of 16 bits quiet; nvdisasm 13 does not",
    ),
)


def ask(words: list[int], arch: str) -> list[str]:
    if nvdisasm.program_path(arch) is None:
        pytest.skip(f"no nvdisasm for {arch}")
    return nvdisasm.legal_texts(words, arch)


def squeeze(text: str) -> str:
    return re.sub(r"\s+", "", text)


def expected(ours: str, theirs: str, arch: str) -> bool:
    body = re.sub(r"^@\S+ ", "", ours)
    other = re.sub(r"^@\S+ ", "", theirs)
    return any(arch in archs and re.fullmatch(a, body) and re.fullmatch(b, other) for a, b, archs, _ in EXCEPTIONS)


@pytest.mark.sample(5)
@pytest.mark.parametrize("arch", ARCHS)
def test_every_form_reads_as_nvdisasm_prints_it(arch):
    words = [word | PLAIN for _, word in sample(arch)]
    theirs = ask(words, arch)
    ours = turingas.decode(words, arch, control=False)
    wrong = [
        (mine, text, f"{word:032x}")
        for word, mine, text in zip(words, ours, theirs)
        if squeeze(mine) != squeeze(text) and not expected(mine, text, arch)
    ]
    assert not wrong, f"{len(wrong)} of {len(words)} differ: {wrong[:5]}"
    check_nvdisasm_is_read(words, theirs, arch)


@pytest.mark.parametrize("arch", ARCHS)
def test_round_numbers_read_as_nvdisasm_prints_them(arch):
    """Values that nvdisasm may leave out, as the mask 0xff of R2P: they hardly come up at random."""
    isa, rng, words = instruction_set(arch), Draw(arch), []
    for form in isa.all_forms():
        for field in dict.fromkeys(f for o in form.operands for f in o.fields if isinstance(f, Number)):
            for value in (1, 0xFF):
                word = random_word(form, rng) & ~field.mask | field.put(value)
                if isa.explain(word) is form:
                    words.append(word | PLAIN)
    wrong = [
        (mine, text)
        for mine, text in zip(turingas.decode(words, arch, control=False), ask(words, arch))
        if squeeze(mine) != squeeze(text) and not expected(mine, text, arch)
    ]
    assert len(words) > 500 and not wrong, wrong[:5]


@pytest.mark.parametrize("arch", ARCHS)
def test_mask_of_all_predicates_is_not_printed(arch):
    masks = [0xFF, 0x7F, 0x1FF, 0xFFFF, 0xFFFFFFFF, 0x80, 0]
    lines = ["R2P PR, R5, " + hex(mask) for mask in masks] + ["R2P PR, R5", "R2P PR, R5.B2", "R2P PR, R5.B2, 0xff"]
    words = turingas.encode("\n".join(lines), arch, "--:-:-:-:5")
    assert words[0] == words[7] and words[8] == words[9]
    assert turingas.decode(words, arch, control=False) == ["R2P PR, R5", *lines[1:9], lines[8]]
    assert ask(words, arch) == ["R2P PR, R5", *lines[1:9], lines[8]]


#: What nvdisasm prints for two different words; its text encodes to the one that NVIDIA's compilers write.
AMBIGUOUS = (
    (r"U?IADD3(\.64)?(\.X)? .*", "one carry out: nvdisasm does not say which of the two; the first is meant"),
    (r"(LD|ST|ATOM|ATOMG|RED|QSPC|LDG|STG|CCTL|CCTLL)\..*\[UR.*\].*", "RZ and UR4 together: 32 or 64 bits of RZ"),
    (r"VIMNMX\.[US]16x2.*", "a lone predicate result is not printed"),
)


def check_nvdisasm_is_read(words: list[int], theirs: list[str], arch: str) -> None:
    """nvdisasm's text encodes to the word that it came from, or is refused as not saying enough: never to another."""
    isa = instruction_set(arch)
    wrong = []
    refused = 0
    for n, (word, text) in enumerate(zip(words, theirs)):
        if not text:
            continue
        try:
            bits = isa.encode(text, 16 * n)
        except EncodeError:
            refused += 1
            continue
        form = isa.explain(word)
        assert form is not None
        if bits != word & ~(control.MASK & ~form.known | form.loose):
            body = re.sub(r"^@\S+ ", "", text)
            if not any(re.fullmatch(pattern, body) for pattern, _ in AMBIGUOUS):
                wrong.append((text, f"{word:032x}", f"{bits:032x}"))
    assert not wrong, f"{len(wrong)} of {len(words)} mean another word: {wrong[:5]}"
    assert refused < 0.25 * len(words), refused


def test_yielding_instructions_show_no_reuse():
    """nvdisasm prints .reuse only while the warp keeps the issue slot; so does decode(control=False)."""
    words = turingas.encode("--:-:-:-:4  FADD R0, R1.reuse, R2\n--:-:-:Y:4  FADD R0, R1.reuse, R2", "sm_75")
    assert words[0] ^ words[1] == 1 << control.YIELD
    shown = turingas.decode(words, "sm_75", control=False)
    assert shown == ["FADD R0, R1.reuse, R2", "FADD R0, R1, R2"]
    assert [squeeze(text) for text in ask(words, "sm_75")] == [squeeze(text) for text in shown]


@pytest.mark.parametrize("arch", ("sm_75", "sm_90"))
def test_control_codes_that_nvdisasm_refuses(arch):
    """The combinations of yield, stall and reuse that control.illegal names are those that nvdisasm refuses."""
    base = turingas.encode("--:-:-:-:4  FFMA R0, R1, R2, R3", arch)[0] & ~control.MASK
    base |= control.NONE << control.READ | control.NONE << control.WRITE
    words = [base | y << control.YIELD | s << control.STALL | r << control.REUSE
             for y in (0, 1) for s in range(16) for r in range(8)]  # fmt: skip
    theirs = ask(words, arch)
    for word, text in zip(words, theirs):
        assert bool(control.illegal(word)) == (not text), f"{word:032x} {text}"


def test_nvdisasm_text_without_control_codes_is_an_error():
    with pytest.raises(AsmError, match="no control code"):
        turingas.encode("FADD R0, R1, R2;", "sm_75")
