"""The file that a benchmark keeps its results in: written after each setting, gone on with after an interruption."""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import json
import math
import os
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from loader.bench import cudnn
from loader.bench.measure import torch
from loader.cuda import Device
from loader.workers import Lost, Workers
from turingas.errors import LaunchError

INSTALL = 'pip install rich matplotlib; in a checkout, pip install ".[bench]" brings both'
ROOT = Path(__file__).parents[2]
#: Results that are kept with the package: an H200's.
FOLDER = ROOT / "kernels_sass" / "results"

Json = dict[str, Any]

#: What ``facts`` says of a run, and a setting says itself that another run has measured.
FACTS = ("date", "commit", "gpu", "driver", "cuda", "sms", "l2_bytes", "mhz", "cudnn", "torch", "sources")


def rich() -> None:
    """LaunchError if the table's printer is not installed: told before anything is measured."""
    try:
        from rich import console as _  # noqa: F401
    except ImportError as error:
        raise LaunchError(f"the tables are printed with rich: {error}", INSTALL) from None


def console() -> Any:
    """Where rich prints: as wide as the terminal, and wide enough for the tables where there is none."""
    from rich.console import Console

    made = Console(highlight=False)
    return made if made.is_terminal else Console(highlight=False, width=180)


def table(title: str, *columns: str, left: Sequence[str] = (), whole: Sequence[str] = (), **options: Any) -> Any:
    """A table of rich: numbers under all columns but the first and those of ``left``. The first and those of ``whole``
    are never wrapped."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    made = Table(title=title, box=SIMPLE_HEAD, padding=(0, 1), **options)
    for number, name in enumerate(columns):
        justify: Any = "left" if not number or name in left else "right"
        made.add_column(name, justify=justify, no_wrap=not number or name in whole)
    return made


def default_path(name: str, arch: str, other: str = "") -> Path:
    """Where results go: NAME_sm90.json or NAME_sm90_OTHER.json, in FOLDER of a checkout; else in the current folder."""
    folder = FOLDER if (ROOT / "pyproject.toml").is_file() else Path()
    return folder / f"{name}_{arch.replace('_', '')}{other and '_' + other}.json"


def text(found: Mapping[str, Any]) -> str:
    """As JSON, in lines that can be compared: one for each fact, and one for each entry of what has entries of its own,
    such as a setting."""

    def lines(value: Any) -> str:
        entries = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        if not any(isinstance(one, (dict, list)) for one in entries):
            return json.dumps(value)
        if isinstance(value, dict):
            return "{\n" + ",\n".join(f"  {json.dumps(key)}: {json.dumps(one)}" for key, one in value.items()) + "\n }"
        return "[\n" + ",\n".join(f"  {json.dumps(one)}" for one in value) + "\n ]"

    return "{\n" + ",\n".join(f" {json.dumps(key)}: {lines(value)}" for key, value in found.items()) + "\n}\n"


def keep(path: Path, found: Mapping[str, Any]) -> None:
    """Write a file, which is never there by half."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    draft.write_text(text(found))
    os.replace(draft, path)


def facts_of(found: Json, entry: Json) -> Json:
    """What one setting is dated with: its own facts, where it was put into a file of other runs, and the file's."""
    return {name: entry.get(name, found.get(name)) for name in FACTS}


def join(runs: Sequence[Json]) -> Json:
    """Results of several runs of a command as one: of a setting that several have, the last one's. The facts are the
    last run's, and a setting keeps its own where those are others. LaunchError for runs that asked for something else
    in what no list says, such as the seed; ``summary`` and ``complete`` are the caller's."""
    runs = [found for found in runs if found["settings"]]
    if not runs:
        raise LaunchError("there is nothing to join", "none of the files has a setting")
    head = {name: value for name, value in runs[-1].items() if name not in ("settings", "summary", "complete")}
    asked, settings = dict[str, Any](), Json()
    for found in runs:
        for name in ("what", "arch"):
            if found[name] != head[name]:
                hint = "join runs of one command on cards of one architecture"
                raise LaunchError(f"{found[name]!r} does not go with {head[name]!r}", hint)
        for name, value in found["asked"].items():
            before = asked.setdefault(name, value)
            if isinstance(value, list):
                asked[name] = [*before, *(one for one in value if one not in before)]
            elif name == "runs":
                asked[name] = min(before, value)  # each row says its own
            elif value != before:
                raise LaunchError(f"{name} is {value} in one run and {before} in another", "they are no parts of one")
        for name, entry in found["settings"].items():
            own = facts_of(found, entry)
            apart = {key: value for key, value in own.items() if value != head.get(key)}
            settings[name] = {**{key: value for key, value in entry.items() if key not in FACTS}, **apart}
    return {**head, "asked": asked, "complete": True, "summary": {}, "settings": settings}


def read(path: Path) -> Json:
    """LaunchError for what is no result."""
    another = "name another file, or move it away"
    try:
        found = json.loads(path.read_text())
    except ValueError as error:
        raise LaunchError(f"{path} holds no results: {error}", another) from None
    if not isinstance(found, dict) or not isinstance(found.get("settings"), dict):
        raise LaunchError(f"{path} holds no results of `turingas bench`", another)
    return found


def recorded(name: str, path: Path | None = None, arch: str = "sm_90", other: str = "") -> Json:
    """The results of `turingas bench NAME` in a file: ``path``, or where they go, or an H200's, which come with the
    package; ``other`` as of ``default_path``. LaunchError without them, and for those of another command."""
    if path is None:
        path = default_path(name, arch, other)
        path = path if path.is_file() else FOLDER / path.name
    if not path.is_file():
        raise LaunchError(f"there are no results in {path}", "measure them on a GPU, or name a file with --json")
    found = read(path)
    what = str(found.get("what", ""))
    if what and what.split()[:2] != ["bench", {"sweep": "schedule"}.get(name, name)]:
        raise LaunchError(f"{path} holds the results of `{what}`", "name another file with --json")
    return found


def in_order(found: Json) -> Json:
    """The same with its settings, Conv2N32 and the like (or ..., N=32), layer by layer, as the papers have them."""

    def place(setting: str) -> tuple[str, int]:
        layer, _, batch = setting.rpartition("N")
        return layer, int(batch.removeprefix("="))

    return {**found, "settings": {name: found["settings"][name] for name in sorted(found["settings"], key=place)}}


NO_MATTER = ("seconds", "limit", "workers", "keep")  # of what was asked: no result depends on them


class Results:
    """``settings``: what was measured, by setting. What an interrupted run left in the file is kept if it was made by
    the same code, on the same card, with the same ``asked``; a file that is complete, or of something else, is
    replaced when the first setting is written. Without a path nothing is kept."""

    def __init__(self, path: Path | None, facts: Json, asked: Json) -> None:
        self.path, self.facts = path, {**facts, "asked": plain(asked)}
        self.settings: Json = {}
        self.summary: Json = {}
        self.replaces = ""  # what is in the file that new results take the place of
        if path is not None and path.exists():
            found = read(path)
            other = [key for key, value in self.facts.items() if key != "date" and found.get(key) != value]
            if not other and not found.get("complete", True):
                self.settings = found["settings"]
                self.facts["date"] = found["date"]
            elif found["settings"]:
                self.replaces = f"of another run ({', '.join(other)})" if other else "of a run that was complete"

    def found(self, complete: bool) -> Json:
        """What the file holds once it is written."""
        return {**self.facts, "complete": complete, "summary": self.summary, "settings": self.settings}

    def write(self, complete: bool) -> Json:
        """Write the whole file, which is never there by half, and give what it holds."""
        made = self.found(complete)
        if self.path is not None:
            keep(self.path, made)
        return made

    def fill(
        self,
        wanted: Mapping[str, Any],
        seconds: float,
        tell: Callable[[str], None],
        measure: Callable[[str, Any, Callable[[float], None]], Json],
        summary: Callable[[Json], Json] = lambda settings: {},
        brief: Callable[[Json], str] | None = None,
    ) -> Json:
        """Measure the settings ``wanted`` that are not there yet, by their names, and give what the file holds then.

        ``measure`` is given a setting's name, its value and ``turns.step``. After each setting the summary is made
        anew, the file is written, and, with ``brief``, a line is told. Whatever ends it, what was measured is kept.
        """

        def one_by_one(todo: turns) -> Iterator[tuple[str, Json]]:
            for name, value, _ in todo:
                yield name, measure(name, value, todo.step)

        return self._fill(wanted, seconds, tell, one_by_one, summary, brief)

    def spread(
        self,
        wanted: Mapping[str, Any],
        seconds: float,
        tell: Callable[[str], None],
        workers: Workers,
        work: Callable[[Any], Json],
        task: Callable[[Any], Any],
        done: Callable[[str, Json], Json] = lambda name, entry: entry,
        summary: Callable[[Json], Json] = lambda settings: {},
        brief: Callable[[Json], str] | None = None,
        took: Mapping[str, float] = MappingProxyType({}),
    ) -> Json:
        """``fill``, with several settings measured at the same time: ``work``, a function of a module, is called in a
        worker with the ``task`` of a setting's value, and what it gives is kept as ``done`` makes it here. ``took``:
        seconds that settings took before, the longest of which are begun first, behind those of which nothing is known.
        None is begun that would end after ``seconds``, as far as that is known. A setting whose workers were lost is
        told, and left for the next time. Ctrl-C: ``Workers.interruptible``."""

        def as_they_come(todo: turns) -> Iterator[tuple[str, Json]]:
            todo.todo.sort(key=lambda one: -took.get(one[0], math.inf))
            tasks, under_way = [task(value) for _, value in todo.todo], dict[int, str]()

            def late(number: int) -> bool:
                name = todo.todo[number][0]
                if todo.spent + took.get(name, 0.0) > seconds:
                    return True
                under_way[number] = name
                return False

            def interrupted() -> None:
                names = ", ".join(under_way.values()) or "nothing"
                tell(f"interrupted: what is being measured is waited for ({names}); Ctrl-C again drops it")

            try:
                with workers.interruptible(interrupted):
                    for number, made in workers.run(work, tasks, late):
                        name = todo.todo[number][0]
                        if isinstance(made, Lost):
                            tell(f"{name} is left out: {made.why}")
                        else:
                            yield name, done(name, made)
                            todo.number += 1
                        del under_way[number]
            except KeyboardInterrupt:
                if under_way:
                    tell(f"dropped, as it was being measured: {', '.join(under_way.values())}")
                raise
            if left := len(todo.todo) - todo.number:
                tell(f"{left} setting{'s are' if left > 1 else ' is'} left: the same command goes on with them")

        return self._fill(wanted, seconds, tell, as_they_come, summary, brief)

    def _fill(
        self,
        wanted: Mapping[str, Any],
        seconds: float,
        tell: Callable[[str], None],
        entries: Callable[[turns], Iterator[tuple[str, Json]]],
        summary: Callable[[Json], Json],
        brief: Callable[[Json], str] | None,
    ) -> Json:
        if self.settings:
            count = "1 setting is" if len(self.settings) == 1 else f"{len(self.settings)} settings are"
            tell(f"{self.path}: {count} kept of a run that was interrupted")
        if self.replaces:
            tell(f"{self.path} has results {self.replaces}, which are replaced after the first setting")
        found = self.write(complete=False) if self.settings else self.found(complete=not wanted)
        width = max(map(len, wanted), default=0)
        try:
            with turns(self.settings, wanted, seconds, tell) as todo:
                for name, entry in entries(todo):
                    self.settings[name] = entry
                    self.summary = summary(self.settings)
                    found = self.write(complete=not wanted.keys() - self.settings.keys())
                    if brief is not None:
                        tell(f"{name:<{width}} {brief(entry)}; {todo.left()}")
        except KeyboardInterrupt:
            if self.settings:
                self.write(complete=not wanted.keys() - self.settings.keys())  # it may have come before that
            kept = f"are kept in {self.path}; the same command goes on" if self.path else "are not kept without --json"
            tell(f"interrupted: {len(self.settings)} of {len(wanted)} {kept}")
            raise
        if self.path and self.settings:
            tell(f"written: {self.path}")
        return found


def plain(asked: Json) -> Json:
    """What was asked for that results depend on, as it comes back from JSON: tuples are lists there."""
    found: Json = json.loads(json.dumps({name: value for name, value in asked.items() if name not in NO_MATTER}))
    return found


class turns:
    """Iterates over the settings that are not done: name, value, and how many come after. Ends before one that would,
    as the others went, take more than ``seconds`` in all.

    ``with turns(...) as todo:`` shows a bar with the time left where there is a terminal; ``todo.step(part)`` says how
    much of the present setting is done, from 0 to 1. The bar is drawn then and at no other time, so that no thread
    disturbs a measurement.
    """

    def __init__(
        self, done: Mapping[str, Any], settings: Mapping[str, Any], seconds: float, tell: Callable[[str], None]
    ) -> None:
        self.todo = [(name, value) for name, value in settings.items() if name not in done]
        self.seconds, self.tell, self.number = seconds, tell, 0
        self.start = time.monotonic()
        self.bar: Any = None

    def __enter__(self) -> turns:
        from rich import progress

        there = console()
        if there.is_terminal and self.todo:
            self.bar = progress.Progress(
                "{task.description}", progress.BarColumn(), "{task.percentage:.0f}%, left:",
                progress.TimeRemainingColumn(), console=there, auto_refresh=False, transient=True,
            )  # fmt: skip
            self.task = self.bar.add_task("", total=len(self.todo))
            self.bar.start()
        return self

    def __exit__(self, *what: object) -> None:
        if self.bar is not None:
            self.bar.stop()

    def __iter__(self) -> Iterator[tuple[str, Any, int]]:
        for number, (name, value) in enumerate(self.todo):
            self.number = number
            left = len(self.todo) - self.number
            if self.number and self.spent * (self.number + 1) / self.number > self.seconds:
                self.tell(f"{self.spent:.0f} s are spent, {left} settings left: the same command goes on with them")
                return
            self.step(0)
            yield name, value, left - 1

    @property
    def spent(self) -> float:
        """Seconds since the first setting."""
        return time.monotonic() - self.start

    def left(self) -> str:
        """After a setting: how many there still are, and about how long they take."""
        more = len(self.todo) - self.number - 1
        return f"{more} to do" + (f", about {self.spent / (self.number + 1) * more:.0f} s" if more else "")

    def step(self, part: float) -> None:
        """``part`` of the present setting is done."""
        if self.bar is not None:
            self.bar.update(self.task, completed=self.number + part, description=self.todo[self.number][0])
            self.bar.refresh()


def facts(what: str, gpu: Device, sources: Iterable[Path]) -> Json:
    """What a result is dated with: date, code, card, versions. ``sources``: the files of the kernels."""
    cuda = ".".join(map(str, gpu.version()))
    found: Json = {"what": what, "date": datetime.date.today().isoformat(), "commit": commit(), "gpu": gpu.name}
    found |= {"arch": gpu.arch, "driver": _driver(), "cuda": cuda, "sms": gpu.attribute("MULTIPROCESSOR_COUNT")}
    found["l2_bytes"] = gpu.attribute("L2_CACHE_SIZE")
    found["mhz"] = {name: gpu.attribute(kind) // 1000
                    for name, kind in (("clock", "CLOCK_RATE"), ("memory_clock", "MEMORY_CLOCK_RATE"))}  # fmt: skip
    found["cudnn"], found["torch"] = cudnn.version(), str(torch().__version__) if torch() else ""
    found["sources"] = {path.name: digest(path) for path in sources}
    return found


def commit() -> str:
    """The commit that is measured: TURINGAS_COMMIT, or what git says of the checkout; "" where there is none."""
    if named := os.environ.get("TURINGAS_COMMIT"):
        return named
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        command = ["git", "-C", str(ROOT), "rev-parse", "HEAD"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    return ""


def _driver() -> str:
    """Its version, as the kernel module or nvidia-smi tells it."""
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    with contextlib.suppress(OSError, subprocess.SubprocessError, IndexError):
        return subprocess.run(query, capture_output=True, text=True, check=True, timeout=20).stdout.split()[0]
    return ""


def digest(path: Path) -> str:
    """Of a source: results of another are not gone on with."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16] if path.is_file() else ""
