"""Each piece of work in a process of its own, for a fault of a GPU takes its process along.

Processes are started anew, not forked: a GPU that this process has touched, which compiling may do, is of no use to a
fork. ``work`` and items are pickled, so ``work`` is a function of a module.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any


def apart(
    work: Callable[[Any], Any], items: Sequence[Any], at_once: int = 12, patience: float = 30
) -> Iterator[tuple[Any, Any]]:
    """Item and what ``work`` makes of it, as they come. Of one that ends in an exception, or in nothing, what can be
    said of that, as text that begins with "!". Who stops asking ends those that still run."""
    context = multiprocessing.get_context("spawn")
    waiting, running = list(reversed(items)), dict[Connection, tuple[Any, Any, float]]()
    try:
        while waiting or running:
            while waiting and len(running) < at_once:
                item = waiting.pop()
                end, mine = context.Pipe(duplex=False)
                child = context.Process(target=_work, args=(work, item, mine), daemon=True)
                child.start()
                mine.close()
                running[end] = child, item, time.monotonic() + patience
            first = min(until for _, _, until in running.values())
            ready = wait(list(running), max(0, first - time.monotonic()))
            for end in list(running):
                child, item, until = running[end]
                if end not in ready and time.monotonic() < until:
                    continue
                made = f"! hangs: nothing in {patience:g} s"
                if end in ready:
                    try:
                        made = end.recv()
                    except EOFError:
                        child.join(5)
                        made = f"! ended with status {child.exitcode}"
                del running[end]
                _end(child, end)
                yield item, made
    finally:
        for end, (child, _, _) in running.items():
            _end(child, end)


def _end(child: Any, end: Connection) -> None:
    """What it had to say is there, so nothing waits for what a GPU has still to do: a driver may keep a process that is
    killed for as long as that takes."""
    child.kill()
    child.join(5)
    end.close()


def _work(work: Callable[[Any], Any], item: Any, to: Connection) -> None:
    try:
        made = work(item)
    except BaseException as error:
        made = "! " + " ".join(str(error).split())
    with contextlib.suppress(OSError):  # nobody asks any more
        to.send(made)
