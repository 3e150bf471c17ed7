"""What the workers of test_workers.py are given to do, in a module that a process imports quickly."""

import os
import signal
import sys
import time
from pathlib import Path

from loader import workers
from loader.tune import judge
from turingas.errors import LaunchError


def square(n):
    return n * n


def meets(folder):
    """Which process this is, and its GPU, when two of them have come."""
    (Path(folder) / str(os.getpid())).touch()
    for _ in range(600):
        if len(os.listdir(folder)) == 2:
            return os.getpid(), os.environ.get(workers.VISIBLE)
        time.sleep(0.05)
    raise TimeoutError("the other one does not come")


def once(task):
    """The first process that gets the task dies of it."""
    number, mark = task
    if number == 1 and not os.path.exists(mark):
        Path(mark).touch()
        os._exit(1)
    return number


def always(number):
    """Every process that gets number 1 dies of it."""
    if number == 1:
        os._exit(1)
    return number


def hangs(number):
    if number == 1:
        time.sleep(60)
    return number


def hangs_in_time(number):
    """As a launch on a GPU that does not end: a number of 1 for ever, of 2 for longer than is waited."""
    judge.HANGS = 0.3
    with judge.in_time():
        time.sleep([0, 60, 0.6][number])
    return number


def refuses(number):
    raise LaunchError("no", f"because of {number}")


def blocks(number):
    """Whether Ctrl-C is left to another, and whether this process has run another's main program."""
    return signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, []), hasattr(sys.modules["__main__"], "__file__")


def released(mark):
    """Done when the file is there; begun when another is."""
    Path(mark + ".begun").touch()
    for _ in range(1200):
        if os.path.exists(mark):
            return {"status": "ok"}
        time.sleep(0.05)
    raise TimeoutError(mark)
