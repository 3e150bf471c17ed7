"""What `turingas tune` was asked for: searched, and told."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from loader import cuda
from loader.tune.judge import MODEL, Order
from loader.tune.launches import read
from loader.tune.search import Found, Search, Tell
from loader.workers import Workers
from turingas.cubin.cubin import Cubin
from turingas.cubin.split import without_capsule
from turingas.errors import LaunchError
from turingas.launch import find

SECONDS = 60.0
CYCLES = "cycles of a model (docs/tuning.md): there is no GPU"


def tune(
    cubin: Cubin,
    bench: Path,
    *,
    kernel: str | None = None,
    device: str | None = None,
    workers: str = "gpus",
    rounds: int | None = None,
    seconds: float | None = None,
    seed: int = 0,
    inputs: int = 32,
    state: Path | None = None,
    resume: Path | None = None,
    tell: Tell = print,
    show: bool = False,
) -> Found:
    """Search for a faster version of a kernel of ``cubin``, launched as the Python file ``bench`` says.

    ``device``: "cpu" or "cuda"; None: a GPU where there is one, on a cluster too. ``rounds`` and ``seconds`` end the
    search, whichever comes first (a minute, if neither is said). ``state``: the file that the search is kept in after
    each round; ``resume``: one to go on with, and to keep it in. ``show``: a bar, where there is a terminal.

    LaunchError for what cannot be launched or compared. Ctrl-C ends the search, and what it found is checked and given;
    once more leaves that out.
    """
    text = bench.read_text("utf-8")
    said = read(text, str(bench))
    name = find(cubin, kernel or said.kernel).name
    with Workers(workers) as pool:
        if device is None:
            device = "cuda" if any(found for _, found in pool.run(_gpus, [0])) else "cpu"
        search = Search(Order(without_capsule(cubin), name, text, str(bench), device), seed, resume or state)
        if resume is not None:
            search.resume(resume)
        if rounds is None and seconds is None:
            seconds = SECONDS
        with Bar(show) as bar:
            try:
                search.run(pool, rounds, seconds if seconds is not None else float("inf"), tell, bar.step)
            except KeyboardInterrupt:
                if not search.about:  # the original has not run yet
                    raise
                kept = f"; --resume {search.path} goes on" if search.path else ""
                tell(f"interrupted in round {search.round}{kept}. What was found is checked now")
        return search.proven(pool, inputs, tell)


def _gpus(_: int) -> int:
    return cuda.count()


class Bar:
    """How far the search is, on a terminal where rich is installed."""

    def __init__(self, show: bool) -> None:
        self.show = show and sys.stderr.isatty()
        self.bar: Any = None

    def __enter__(self) -> Bar:
        if self.show:
            try:
                from rich import console, progress
            except ImportError:
                return self
            self.bar = progress.Progress(
                "{task.description}", progress.BarColumn(), "{task.percentage:.0f}%, left:",
                progress.TimeRemainingColumn(), console=console.Console(stderr=True), auto_refresh=False,
                transient=True,
            )  # fmt: skip
            self.task = self.bar.add_task("", total=1.0)
            self.bar.start()
        return self

    def step(self, part: float, best: float) -> None:
        """``part`` of the work is done."""
        if self.bar is not None:
            self.bar.update(self.task, completed=part, description=f"best {best:.4f}")
            self.bar.refresh()

    def __exit__(self, *what: object) -> None:
        if self.bar is not None:
            self.bar.stop()


def lines(found: Found) -> Iterator[str]:
    """What a search came to, for people."""
    about = found.about
    model = about["device"] == MODEL
    own = f"{about['figure']:.0f} {CYCLES}" if model else f"{about['figure']:.4g} ms on {about['device']}"
    yield f"the original: {about['instructions']} instructions, {own}"
    refused = ", ".join(f"{count} {why}" for why, count in found.refused.items())
    yield f"{found.rounds} rounds, {found.tried} candidates" + (f"; refused: {refused}" if refused else "")
    if not found.gained:
        yield "nothing faster was found"
        return
    what = "of the model's cycles" if model else "of the time"
    yield f"found: {found.figure:.4f} {what}"
    strict = ", all in strict mode" if found.strict == found.inputs else f", and on {found.strict} in strict mode"
    if about["blind"]:
        strict = f", none of them in strict mode: {about['blind']}"
    yield f"the linter finds nothing new; the same bits on {found.inputs} random inputs{strict}"
    for move in found.moves:
        yield f"  {move}"


def json(found: Found) -> dict[str, Any]:
    """The same for programs."""
    model = found.about["device"] == MODEL
    return {
        **found.about, "original": found.about["figure"], "unit": "model cycles" if model else "ms",
        "gained": found.gained, "figure": found.figure, "moves": list(found.moves), "inputs": found.inputs,
        "strict": found.strict,
        "rounds": found.rounds, "tried": found.tried, "refused": found.refused, "history": found.history,
    }  # fmt: skip


def check(out: Path | None, resume: Path | None) -> None:
    """LaunchError before anything is searched."""
    if resume is not None and not resume.is_file():
        raise LaunchError(f"there is no file {resume}", "`turingas tune` writes one beside what it makes")
    if out is not None and not out.absolute().parent.is_dir():
        raise LaunchError(f"there is no folder {out.parent}")
