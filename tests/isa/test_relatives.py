"""What an architecture has of its parent, what is gone and what is new, as nvdisasm says it: words of the forms that
only one of the two has. That the forms they share read as nvdisasm's is held by test_nvdisasm.py, for each one."""

from __future__ import annotations

import re

import pytest

import turingas
from tests.isa.test_nvdisasm import ask, expected, squeeze
from tests.isa.words import ARCHS as WORDS
from tests.isa.words import PLAIN, Draw, words_of
from turingas.isa.arch import ARCHS
from turingas.isa.isa import instruction_set

#: What nvdisasm 13.5 reads on the neighbour too, where no compiler writes it: FP32 values in half arithmetic and IMMA's
#: larger relatives around Ampere, conversions of Hopper on Ada, memory orders of ATOM that Hopper writes otherwise,
#: surfaces and queries of textures by a register on Blackwell, and sums and minima of uniform sources on Hopper.
#: Here such a word is .word there.
NEIGHBOURS = re.compile(
    r"(@\S+ )?(H(ADD2|MUL2|FMA2)\b.*|FSEL\.FTZ|I2IP\.|HMMA\.16816\.|ATOMG?\.E\.|UF2FP\.(PACK_AB|MERGE_C)"
    r"|TXQ\.B|TMML\.B|SU\w+\.|IADD3\.X |VIMNMX )"
)
PAIRS = [(name, ARCHS[name].parent) for name in WORDS if ARCHS[name].parent]


def misread(has, lacks):
    """Words of the forms that ``has`` has and ``lacks`` lacks, which the nvdisasm of ``lacks`` reads as ``has`` does,
    where no other form of ``lacks`` reads them so: our text on both, and nvdisasm's."""
    one, other = instruction_set(has), instruction_set(lacks)
    shared, rng = {form.text for form in other.all_forms()}, Draw(has + lacks)
    words = [w | PLAIN for form in one.all_forms() if form.text not in shared for w in words_of(one, form, 2, rng)]
    texts = (turingas.decode(words, arch, control=False) for arch in (has, lacks))
    # of a larger number nvdisasm reads as many bits as it knows: URZ is URZ for it, where Blackwell has 255
    wider = ARCHS[has].files["UR"].width > ARCHS[lacks].files["UR"].width
    return [
        (there, here, theirs)
        for there, here, theirs in zip(*texts, ask(words, lacks))
        if squeeze(theirs) == squeeze(there) != squeeze(here)
        and not (expected(there, theirs, has) or NEIGHBOURS.match(there) or wider and "URZ" in there)
    ]


@pytest.mark.parametrize(("name", "parent"), PAIRS)
def test_gone(name, parent):
    """What the parent alone has, the child's nvdisasm does not read."""
    assert misread(parent, name) == []


@pytest.mark.parametrize(("name", "parent"), PAIRS)
def test_new(name, parent):
    """What the child alone has, the parent's nvdisasm does not read."""
    assert misread(name, parent) == []
