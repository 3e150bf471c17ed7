"""Each piece of work in a process of its own, for a fault of a GPU takes its process along.

Processes are forked, so that nothing is imported again: this process must not have touched the GPU before.
"""

from __future__ import annotations

import json
import os
import select
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any


def apart(
    work: Callable[[Any], Any], items: Sequence[Any], at_once: int = 8, patience: float = 20
) -> Iterator[tuple[Any, Any]]:
    """Item and what ``work`` makes of it (JSON), as they come. Of one that ends in an exception, or in nothing, what
    can be said of that, as text that begins with "!"."""
    waiting, running = list(reversed(items)), {}
    while waiting or running:
        while waiting and len(running) < at_once:
            item = waiting.pop()
            end, mine = os.pipe()
            child = os.fork()
            if child == 0:
                os.close(end)
                _work(work, item, mine)
            os.close(mine)
            running[end] = (child, item, time.monotonic() + patience, bytearray())
        first = min(until for _, _, until, _ in running.values())
        ready, _, _ = select.select(list(running), [], [], max(0, first - time.monotonic()))
        for end in list(running):
            child, item, until, said = running[end]
            if end in ready:
                more = os.read(end, 1 << 16)
                said += more
                if more:
                    continue
            elif time.monotonic() < until:
                continue
            else:
                os.kill(child, signal.SIGKILL)
            os.close(end)
            _, status = os.waitpid(child, 0)
            del running[end]
            if end in ready:
                yield item, json.loads(said) if said else f"! ended with status {status}"
            else:
                yield item, f"! hangs: nothing in {patience} s"


def _work(work: Callable[[Any], Any], item: Any, to: int) -> None:
    try:
        made = work(item)
    except BaseException as error:
        made = "! " + " ".join(str(error).split())
    with os.fdopen(to, "w") as file:
        file.write(json.dumps(made))
        file.flush()
    os._exit(0)
