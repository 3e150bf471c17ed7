"""The garbage collector, paused where much is made that lives on."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator

MANY = 2000  # objects that it takes a while to look through
MOST = 1 << 22  # objects that count as old before all are looked through
FROZEN = 100  # times that what somebody has frozen is taken to be so still: Python finds out by counting it
_made = 0  # of the objects that count as old, since then
_frozen = 0  # of those times, left


@contextlib.contextmanager
def paused() -> Iterator[None]:
    """No search for garbage inside: lines, words and findings stay until the end, and looking through them again and
    again takes a tenth of the time. Where it is off already it stays off."""
    on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if on:
            _grow_old()
            gc.enable()


def _grow_old() -> None:
    """Many objects that are left count as old, so that the search does not begin with them; in the end all are looked
    through."""
    global _made, _frozen
    made = gc.get_count()[0]
    if made < MANY:
        return
    if _frozen > 0 or gc.get_freeze_count():  # what somebody has frozen is to stay so
        _frozen = (_frozen or FROZEN) - 1
        return
    _made += made
    if _made > MOST:
        _made = 0
        gc.collect()
    else:
        gc.freeze()
        gc.unfreeze()
