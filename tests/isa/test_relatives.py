"""What an architecture has of its parent, what is gone and what is new, as nvdisasm says it: words of the forms that
only one of the two has. That the forms they share read as nvdisasm's is held by test_nvdisasm.py, for each one."""

from __future__ import annotations

import re

import pytest

import turingas
from tests.isa.test_nvdisasm import ask, expected, squeeze
from tests.isa.words import PLAIN, Draw, words_of
from turingas.isa.arch import ARCHS
from turingas.isa.isa import instruction_set

#: What nvdisasm 13.5 reads on the neighbour too, where no compiler writes it: FP32 values in half arithmetic and IMMA's
#: larger relatives around Ampere, conversions of Hopper on Ada, and memory orders of ATOM that Hopper writes otherwise.
#: Here such a word is .word there.
NEIGHBOURS = re.compile(
    r"(@\S+ )?(H(ADD2|MUL2|FMA2)\b.*|FSEL\.FTZ|I2IP\.|HMMA\.16816\.|ATOMG?\.E\.|UF2FP\.(PACK_AB|MERGE_C))"
)
PAIRS = [(name, arch.parent) for name, arch in ARCHS.items() if arch.parent]


@pytest.mark.parametrize(("name", "parent"), PAIRS)
def test_gone(name, parent, tmp_path):
    """Words of the parent's forms that the child lacks: the child's nvdisasm reads none of them as the parent's text,
    unless another form of the child does as well."""
    old, new, rng = instruction_set(parent), instruction_set(name), Draw(name)
    kept = {form.text for form in new.all_forms()}
    words = [w | PLAIN for form in old.all_forms() if form.text not in kept for w in words_of(old, form, 2, rng)]
    wrong = [
        (was, mine, theirs)
        for was, mine, theirs in zip(
            turingas.decode(words, parent, control=False),
            turingas.decode(words, name, control=False),
            ask(words, name, tmp_path),
        )
        if squeeze(theirs) == squeeze(was) != squeeze(mine)
        and not (expected(was, theirs, parent) or NEIGHBOURS.match(was))
    ]
    assert not wrong, wrong[:5]


@pytest.mark.parametrize(("name", "parent"), PAIRS)
def test_new(name, parent, tmp_path):
    """Words of the child's forms that the parent lacks: the parent's nvdisasm does not read them so."""
    old, new, rng = instruction_set(parent), instruction_set(name), Draw(name)
    had = {form.text for form in old.all_forms()}
    words = [w | PLAIN for form in new.all_forms() if form.text not in had for w in words_of(new, form, 2, rng)]
    wrong = [
        (is_now, mine, theirs)
        for is_now, mine, theirs in zip(
            turingas.decode(words, name, control=False),
            turingas.decode(words, parent, control=False),
            ask(words, parent, tmp_path),
        )
        if squeeze(theirs) == squeeze(is_now) != squeeze(mine)
        and not (expected(is_now, theirs, name) or NEIGHBOURS.match(is_now))
    ]
    assert not wrong, wrong[:5]
