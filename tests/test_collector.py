"""The garbage collector, paused and afterwards."""

from __future__ import annotations

import gc
import weakref

import pytest

from turingas import collector


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


def test_what_is_made_inside_is_not_looked_through_at_once():
    before = gc.get_stats()
    with collector.paused():
        kept = [[] for _ in range(4 * collector.MANY)]
    more = [[] for _ in range(100)]
    assert gc.get_stats()[0]["collected"] == before[0]["collected"] and len(kept) > len(more)
    assert not any(one is kept for one in gc.get_objects(0))  # it is old


def test_garbage_made_inside_goes_in_the_end(monkeypatch):
    monkeypatch.setattr(collector, "MOST", 4 * collector.MANY)
    monkeypatch.setattr(collector, "_made", 0)
    seen = []
    for _ in range(8):
        with collector.paused():
            ring = Ring()
            seen.append(weakref.ref(ring))
            del ring
            left = [[] for _ in range(collector.MANY + 1)]
        assert len(left) > collector.MANY
    assert seen[0]() is None


def test_what_somebody_has_frozen_stays_frozen():
    gc.freeze()
    try:
        frozen = gc.get_freeze_count()
        with collector.paused():
            kept = [[] for _ in range(2 * collector.MANY)]
        assert gc.get_freeze_count() >= frozen - 100 and kept
    finally:
        gc.unfreeze()
