"""Commands over many files: folders and libraries as what they hold, several processes, a progress bar."""

from __future__ import annotations

import io
import os
import sys
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager, nullcontext, redirect_stderr
from dataclasses import dataclass
from typing import Any

import click

from turingas.cli.files import ELF
from turingas.cli.options import Bundled
from turingas.cli.output import diagnosed, printable

#: files, folders, libraries
ANYTHING = Bundled(exists=True, allow_dash=True)
START = 4096  # bytes that tell what a file is
AHEAD = 4  # jobs for each process that are handed out before their turn
JOBS = click.option("-j", "--jobs", type=click.IntRange(min=1), default=1, show_default=True,
                    help="Number of processes.")  # fmt: skip


@dataclass(frozen=True)
class Job:
    """One cubin or source. ``name`` is shown; ``data`` is what it holds where it lies in a library, else None."""

    name: str
    path: str
    data: bytes | None = None


@dataclass
class Outcome:
    """What became of a job: its ``result``, or None; what it said on stderr; its exit code."""

    job: Job
    result: Any
    said: str
    code: int


def jobs(files: Iterable[str], archs: tuple[str, ...] = ()) -> Iterator[Job]:
    """What is in ``files``: a folder stands for all cubins, sources and libraries below it, a library for its cubins,
    of ``archs`` if there are any. What is of an architecture that is not known is said, and left out."""
    for file in files:
        if os.path.isdir(file):
            for folder, folders, names in os.walk(file):
                folders.sort()
                for name in sorted(names):
                    path = os.path.join(folder, name)
                    if os.path.isfile(path):
                        yield from _within(path)
        elif file != "-" and _kind(file) == "library":
            yield from _library(file, archs, True)
        else:
            yield Job("<stdin>" if file == "-" else file, file)


def _within(path: str) -> Iterator[Job]:
    """A file of a folder; nothing for what is neither cubin, source nor library."""
    kind = _kind(path)
    if kind == "library":
        yield from _library(path, (), False)
    elif kind == "cubin" or path.endswith(".sass"):
        yield Job(path, path)


def _kind(path: str) -> str:
    from turingas.cubin.kinds import EXTRACT, other

    try:
        with open(path, "rb") as stream:
            start = stream.read(START)
    except OSError:
        return ""
    return "library" if other(start)[1] == EXTRACT else "cubin" if start.startswith(ELF) else ""


def _library(path: str, archs: tuple[str, ...], named: bool) -> Iterator[Job]:
    from turingas.cubin import fatbin
    from turingas.isa.arch import NAMES

    unknown: Counter[str] = Counter()
    number = 0
    for number, arch, cubin in fatbin.cubins(path, archs):
        if arch in NAMES:
            yield Job(f"{path}:{number:04}.{arch}", path, cubin)
        else:
            unknown[arch] += 1
    for arch, count in sorted(unknown.items()):
        click.echo(printable(f"{path}: left out: {count} cubins of {arch}, which is not known"), err=True)
    if named and not number:
        yield Job(path, path)  # whoever reads it says what it is


def each(todo: Iterable[Job], work: Callable[[Job], Any], processes: int) -> Iterator[Outcome]:
    """The outcomes of all jobs, in their order. A job that fails as commands do has no result, and the others go on."""
    if processes == 1:
        for job in todo:
            yield _one(work, job)
        return
    waiting: deque[Future[Outcome]] = deque()
    with ProcessPoolExecutor(processes) as pool:
        for job in todo:
            waiting.append(pool.submit(_one, work, job))
            while len(waiting) > AHEAD * processes:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def _one(work: Callable[[Job], Any], job: Job) -> Outcome:
    said = io.StringIO()
    try:
        with redirect_stderr(said), diagnosed(job.name):
            return Outcome(job, work(job), said.getvalue(), 0)
    except SystemExit as error:
        return Outcome(job, None, said.getvalue(), error.code if isinstance(error.code, int) else 1)


@contextmanager
def bar(what: str, files: tuple[str, ...]) -> Iterator[Callable[[str], None]]:
    """A progress bar on stderr, if that is a terminal, there is more than one file to look at and rich is installed:
    it is told of each job that is done."""
    several = len(files) > 1 or any(os.path.isdir(file) or _kind(file) == "library" for file in files if file != "-")
    try:
        if not (several and sys.stderr.isatty()):
            raise ImportError
        from rich.console import Console
        from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
    except ImportError:
        with nullcontext():
            yield lambda name: None
        return
    text = TextColumn("{task.description} {task.completed}: {task.fields[name]}")
    with Progress(SpinnerColumn(), text, TimeElapsedColumn(), console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(what, total=None, name="")
        yield lambda name: progress.update(task, advance=1, name=os.path.basename(name))
