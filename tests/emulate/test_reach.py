"""Which instructions reach the shared memory of another block: all that a card was asked (tests/gpu/reach.py), whose
answers are kept in reach_sm90.npz."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.gpu import reach

KNOWN = Path(__file__).with_name("reach_sm90.npz")


@pytest.fixture(scope="module")
def made():
    return reach.cubin()


@pytest.mark.parametrize("name", [*reach.SHARED, *reach.TWO])
def test_what_a_card_does(name, made):
    """The same words in both blocks' shared memory and in global memory, or an error on both."""
    with np.load(KNOWN) as known:
        mine = known["names"] == name
        asked = [(name, *map(int, one)) for one in known["who"][mine]]
        assert asked == [case for case in reach.cases() if case[0] == name]
        for case, fault, words in zip(asked, known["fault"][mine], known["words"][mine]):
            found = reach.run(case, "cpu", made)
            if fault:
                assert isinstance(found, str) and "of the cluster" in found, (reach.told(case), found)
            else:
                assert found == words.tolist(), (reach.told(case), reach.where(case, found))
