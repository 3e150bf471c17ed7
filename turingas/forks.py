"""Locks in a process that was forked while another thread held them: that thread is not there to let go of them."""

from __future__ import annotations

import os
import weakref
from typing import Any, TypeVar

_LOCKS: weakref.WeakSet[Any] = weakref.WeakSet()
LockT = TypeVar("LockT")


def freed(lock: LockT) -> LockT:
    """The lock, which is free in a forked process; an RLock that the thread that forked held stays with it, no other
    lock does. For what is never half done, such as a table that gets an entry when that is ready, and where it can be
    told that somebody was at work."""
    _LOCKS.add(lock)
    return lock


def _in_child() -> None:
    for lock in _LOCKS:
        if lock.acquire(blocking=False):
            lock.release()
        else:
            lock._at_fork_reinit()  # as the locks of logging and concurrent.futures


if hasattr(os, "register_at_fork"):  # not on Windows, which cannot fork
    os.register_at_fork(after_in_child=_in_child)
