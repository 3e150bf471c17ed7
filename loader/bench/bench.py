"""What a bench is: its name, its options, what it measures, prints and draws. `turingas bench` is made from these."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loader.bench import results
from loader.bench.figures import Figures, draw, pyplot
from turingas.errors import LaunchError

Given = dict[str, Any]
Tell = Callable[[str], None]
Kind = type | tuple[str, ...] | str


@dataclass(frozen=True)
class Option:
    """An option of a bench.

    ``names``: such as "--layer" or "-D --define", or without dashes for arguments that are files or folders; ``to``:
    the field of what was asked that it fills. ``kind``: int, float, str, bool (a flag), Path (of a file that there
    is), the names that may be given, or how its text is read: "sizes" (32,64), "definitions" (NAME=VALUE), "values"
    (NAME=VALUE,...), "paths" (NAME=PATH), "architectures". ``many``: it may be given several times. ``least``: of a
    number. ``every``: what "all" stands for; "none" stands for nothing.
    """

    names: str
    to: str
    help: str
    kind: Kind
    many: bool = False
    metavar: str = ""
    least: float = 0
    every: tuple[str, ...] = ()


RUNS = Option("--runs", "runs", "Runs, of which the median is taken. [default: 24]", int, least=20)
SECONDS = Option("--seconds", "seconds", "Start nothing that would end later; the same command resumes.", float)


@dataclass(frozen=True)
class Bench:
    """A command `turingas bench NAME`, which has --json, --show and, with ``figures``, --figures beside ``options``.

    ``run`` measures what was asked for, keeps it in the file, and gives what the file holds. ``load`` reads what is
    kept, by the options ``chosen``: of others --show says that it does not look at them. ``failures``: what has no time
    and should, a line each; one is enough for the exit code 1.
    """

    name: str
    short: str
    help: str
    options: tuple[Option, ...]
    run: Callable[[Given, Path | None, Tell], results.Json]
    show: Callable[[results.Json], object]
    failures: Callable[[results.Json], Iterable[str]] = lambda found: ()
    figures: Callable[[results.Json], Figures] | None = None
    load: Callable[[Given, Path | None], results.Json] | None = None
    chosen: tuple[str, ...] = ()

    def given(self, asked: Mapping[str, Any]) -> Given:
        """The options that were given, each value once; what "all" and "none" stand for in their place."""
        found = {name: value for name, value in asked.items() if value is not False and value not in (None, (), {})}
        for option in self.options:
            value = found.get(option.to)
            if isinstance(value, tuple):
                chosen = option.every if option.every and "all" in value else tuple(dict.fromkeys(value))
                found[option.to] = () if option.every and "none" in value else chosen
        return found

    def command(self, asked: Mapping[str, Any], path: Path | None, figures: Path | None, show: bool, tell: Tell) -> int:
        """Measure, or with ``show`` read what is kept; print it, draw it: the exit code. What is missing for that is
        told before anything is measured."""
        results.rich()
        if figures:
            pyplot()
        given = self.given(asked)
        for option in self.options if show else ():
            if option.to in given and option.to not in self.chosen:
                tell(f"{option.names.split()[-1]} is not looked at: --show prints what is kept, as it was measured")
        if not show:
            found = self.run(given, path, tell)
        elif self.load:
            found = self.load(given, path)
        else:
            found = results.recorded(self.name, path)
        try:
            self.show(found)
            for made in draw(self.figures(found), figures) if self.figures and figures else ():
                tell(str(made))
            return 1 if any(self.failures(found)) else 0
        except KeyError as lacks:
            if not show:
                raise
            commit = str(found.get("commit", ""))[:9]
            raise LaunchError(f"these results have no {lacks}: another version of `turingas bench` wrote them",
                              f"commit {commit}, which measured them, can show them" if commit else "") from None
