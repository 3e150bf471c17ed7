"""The garbage collector, paused and afterwards."""

from __future__ import annotations

import gc
import subprocess
import sys

import pytest

from turingas import collector


@pytest.fixture
def thawed(monkeypatch):
    """The suite freezes what it has imported."""
    monkeypatch.setattr(collector, "_frozen", 0)
    gc.unfreeze()
    yield
    gc.freeze()


class Ring:
    """Garbage that nothing but a search finds."""

    def __init__(self) -> None:
        self.itself = self


def test_it_is_on_again_behind_an_error():
    with pytest.raises(ValueError, match="inside"), collector.paused():
        assert not gc.isenabled()
        raise ValueError("inside")
    assert gc.isenabled()


def test_it_stays_off():
    gc.disable()
    try:
        with collector.paused():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def old(wanted):
    return any(one is wanted for one in gc.get_objects(2))


def test_what_is_made_inside_counts_as_old(thawed):
    with collector.paused():
        many = [[] for _ in range(2 * collector.MANY)]
        assert not old(many)
    assert old(many)


IN_THE_END = """
import weakref
from turingas import collector

class Ring:
    def __init__(self):
        self.itself = self

collector.MOST = 4 * collector.MANY
seen, kept = [], []
for _ in range(8):
    with collector.paused():
        seen.append(weakref.ref(Ring()))
        kept.append([[] for _ in range(2 * collector.MANY)])
assert seen[0]() is None
"""


def test_garbage_made_inside_goes_in_the_end():
    """In a process of its own: in the suite's a search takes seconds."""
    subprocess.run([sys.executable, "-c", IN_THE_END], check=True)


def test_what_somebody_has_frozen_stays_frozen(thawed):
    ring = Ring()
    gc.freeze()
    with collector.paused():
        many = [[] for _ in range(2 * collector.MANY)]
    assert gc.get_freeze_count() and not old(ring) and not old(many)


def test_what_is_frozen_is_not_counted_each_time(thawed, monkeypatch):
    """That takes as long as there is much of it: half of the suite's time once."""
    gc.freeze()
    counted, count, kept = [], gc.get_freeze_count, []
    monkeypatch.setattr(collector.gc, "get_freeze_count", lambda: counted.append(1) or count())
    for _ in range(2 * collector.FROZEN):
        with collector.paused():
            kept.append([[] for _ in range(2 * collector.MANY)])
    assert 2 <= len(counted) <= 3
